//! Global memory: buffers with guarded gaps between them, and module variables.

use crate::decode::{GlobalVar, MODULE_WINDOW};
use crate::exec::{Trap, X};
use std::collections::BTreeMap;

/// Address of the first buffer; each further one is `SPACING` later.
const BASE: u64 = 0x7F00_0000_0000;
const SPACING: u64 = 1 << 32;

/// A buffer of global memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub struct BufferId(u32);

impl BufferId {
    /// The buffer of a number; memories number theirs from 0 on.
    pub fn new(n: u32) -> BufferId {
        BufferId(n)
    }

    /// Address of its first byte, the same in every memory.
    pub fn address(self) -> u64 {
        BASE + u64::from(self.0) * SPACING
    }
}

/// Global memory.
#[derive(Clone, Default, Debug)]
pub struct Memory {
    buffers: Vec<Vec<u8>>,
    module: Vec<(u64, Vec<u8>, bool)>,
    /// What the module variables of the next launch begin with.
    kept: Option<Vec<Vec<u8>>>,
    printed: BTreeMap<u32, Vec<u8>>,
    /// Bytes printed, also those that were dropped.
    printed_bytes: usize,
    /// Stores that changed something.
    changes: u64,
}

/// Bytes that are kept of what is printed. Source: CUDA C++ Programming Guide, Formatted Output: the default size of its buffer.
const MOST_PRINTED: usize = 1 << 20;

impl Memory {
    /// No buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer with these bytes. Its address is a multiple of 4 GiB.
    pub fn alloc(&mut self, bytes: Vec<u8>) -> BufferId {
        self.buffers.push(bytes);
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Address of a buffer's first byte.
    pub fn address(&self, id: BufferId) -> u64 {
        id.address()
    }

    /// Puts bytes where a buffer is, whether it was there or not. Those with numbers in between are empty.
    pub fn put(&mut self, id: BufferId, bytes: Vec<u8>) {
        let n = id.0 as usize;
        if self.buffers.len() <= n {
            self.buffers.resize(n + 1, Vec::new());
        }
        self.buffers[n] = bytes;
    }

    /// Takes a buffer's bytes and leaves it empty.
    pub fn take(&mut self, id: BufferId) -> Vec<u8> {
        self.buffers.get_mut(id.0 as usize).map(std::mem::take).unwrap_or_default()
    }

    /// Bytes of a buffer.
    pub fn bytes(&self, id: BufferId) -> &[u8] {
        self.buffers.get(id.0 as usize).map_or(&[], |b| b)
    }

    /// Bytes of a buffer.
    pub fn bytes_mut(&mut self, id: BufferId) -> Option<&mut Vec<u8>> {
        self.buffers.get_mut(id.0 as usize)
    }

    /// Bytes of all buffers and module variables.
    pub fn size(&self) -> u64 {
        let variables = self.module.iter().map(|m| m.1.len() as u64);
        self.buffers.iter().map(|b| b.len() as u64).chain(variables).sum()
    }

    /// Puts module variables in place, with their initial values or what was kept of an earlier launch.
    pub fn load_module(&mut self, vars: &[GlobalVar]) {
        self.module = vars.iter().map(|v| (v.address, v.init.clone(), v.writable)).collect();
        for (var, bytes) in self.module.iter_mut().zip(self.kept.take().into_iter().flatten()) {
            if var.2 && var.1.len() == bytes.len() {
                var.1 = bytes;
            }
        }
    }

    /// Takes what the last launch left in its module variables.
    pub fn take_variables(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.module).into_iter().map(|var| var.1).collect()
    }

    /// What the module variables of the next launch begin with: [`take_variables`](Memory::take_variables) of an earlier one of the same
    /// program. Otherwise each launch begins as one does whose module was just loaded.
    pub fn keep_variables(&mut self, bytes: Vec<Vec<u8>>) {
        self.kept = Some(bytes);
    }

    /// How often a store has changed something: while that stays, who polls sees nothing new.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// A store has changed something.
    pub fn changed(&mut self) {
        self.changes += 1;
    }

    /// Keeps what a CTA prints.
    pub fn print(&mut self, cta: u32, text: &[u8]) {
        self.printed_bytes = self.printed_bytes.saturating_add(text.len());
        if self.printed_bytes <= MOST_PRINTED {
            self.printed.entry(cta).or_default().extend_from_slice(text);
        }
    }

    /// Takes what was printed, CTA by CTA. A last line says so where some was dropped.
    pub fn take_printed(&mut self) -> String {
        let all: Vec<u8> = std::mem::take(&mut self.printed).into_values().flatten().collect();
        let mut text = String::from_utf8_lossy(&all).into_owned();
        let bytes = std::mem::take(&mut self.printed_bytes);
        if bytes > MOST_PRINTED {
            text.push_str(&format!("\n(of {bytes} bytes printed {} were kept)\n", text.len()));
        }
        text
    }

    fn find(&self, address: u64, bytes: u32) -> X<(bool, usize, usize)> {
        let n = bytes as usize;
        if address >= BASE {
            let (i, o) = ((address - BASE) / SPACING, ((address - BASE) % SPACING) as usize);
            if let Some(b) = self.buffers.get(i as usize)
                && o + n <= b.len()
            {
                return Ok((false, i as usize, o));
            }
        } else if address >= MODULE_WINDOW
            && let Some(i) = self
                .module
                .iter()
                .position(|m| address >= m.0 && address - m.0 + u64::from(bytes) <= m.1.len() as u64)
        {
            return Ok((true, i, (address - self.module[i].0) as usize));
        }
        Err(Trap::new(
            "bounds",
            format!("global access of {bytes} bytes at {address:#x} is outside every buffer"),
        ))
    }

    /// Bytes at an address.
    pub fn slice(&self, address: u64, bytes: u32) -> X<&[u8]> {
        let (module, i, o) = self.find(address, bytes)?;
        let b = if module { &self.module[i].1 } else { &self.buffers[i] };
        Ok(&b[o..o + bytes as usize])
    }

    /// Bytes at an address, for writing.
    pub fn slice_mut(&mut self, address: u64, bytes: u32) -> X<&mut [u8]> {
        let (module, i, o) = self.find(address, bytes)?;
        if module && !self.module[i].2 {
            return Err(Trap::new("bounds", format!("write of constant memory at {address:#x}")));
        }
        let b = if module { &mut self.module[i].1 } else { &mut self.buffers[i] };
        Ok(&mut b[o..o + bytes as usize])
    }
}
