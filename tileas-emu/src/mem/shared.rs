//! Shared memory of a CTA.

use crate::decode::SMEM_START;
use crate::exec::{Trap, X};

/// Shared memory: bytes by window offset, starting with the reserved ones.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Contents.
    pub bytes: Vec<u8>,
    /// One past the last byte.
    pub end: u32,
    /// Per byte: whether it was written; empty without the detector.
    defined: Vec<bool>,
    /// Per byte that holds no value: 1 + the thread that stored what it had no value of, or 0; empty before one did.
    stored_by: Vec<u32>,
    /// Per 8 bytes: whether an mbarrier lives there.
    mbarriers: Vec<bool>,
}

impl Shared {
    /// Memory up to `end`, filled with a NaN pattern.
    pub fn new(end: u32, undefined: bool) -> Self {
        let n = end as usize;
        Self {
            bytes: vec![0xFF; n],
            end,
            defined: if undefined { vec![false; n] } else { Vec::new() },
            stored_by: Vec::new(),
            mbarriers: vec![false; n.div_ceil(8)],
        }
    }

    /// Checks bounds and alignment.
    pub fn check(&self, address: u32, bytes: u32, align: u32, what: &str) -> X<()> {
        if !address.is_multiple_of(align) {
            return Err(Trap::new(
                "align",
                format!("shared {what} at {address:#x} is not aligned to {align} bytes"),
            ));
        }
        if address < SMEM_START || address.checked_add(bytes).is_none_or(|e| e > self.end) {
            return Err(Trap::new(
                "bounds",
                format!(
                    "shared {what} of {bytes} bytes at {address:#x} is outside {SMEM_START:#x}..{:#x}",
                    self.end
                ),
            ));
        }
        Ok(())
    }

    /// Marks or clears the bytes of an mbarrier.
    pub fn set_mbarrier(&mut self, address: u32, on: bool) {
        self.mbarriers[address as usize / 8] = on;
    }

    /// Whether a range touches an mbarrier.
    pub fn in_mbarrier(&self, address: u32, bytes: u32) -> bool {
        let (a, b) = (address as usize / 8, (address + bytes.max(1) - 1) as usize / 8);
        self.mbarriers[a..=b].iter().any(|&m| m)
    }

    /// Marks bytes as written or as unknown.
    pub fn define(&mut self, address: u32, bytes: u32, yes: bool) {
        if !self.defined.is_empty() {
            self.defined[address as usize..(address + bytes) as usize].fill(yes);
        }
        if let Some(by) = self.stored_by.get_mut(address as usize..(address + bytes) as usize) {
            by.fill(0);
        }
    }

    /// Notes that a thread stored there what it had no value of: it alone may load that again.
    pub fn undefine(&mut self, address: u32, bytes: u32, thread: u32) {
        self.define(address, bytes, false);
        if !self.defined.is_empty() {
            self.stored_by.resize(self.defined.len(), 0);
            self.stored_by[address as usize..(address + bytes) as usize].fill(thread + 1);
        }
    }

    /// Whether a thread stored some of those bytes without having a value, and the others were written.
    pub fn undefined_by(&self, address: u32, bytes: u32, thread: u32) -> bool {
        let range = address as usize..(address + bytes) as usize;
        let Some(by) = self.stored_by.get(range.clone()) else { return false };
        by.contains(&(thread + 1))
            && self.defined[range].iter().zip(by).all(|(&written, &by)| written || by == thread + 1)
    }

    /// Requires that bytes were written.
    pub fn check_defined(&self, address: u32, bytes: u32, what: &str) -> X<()> {
        if !self.defined.is_empty()
            && let Some(i) =
                self.defined[address as usize..(address + bytes) as usize].iter().position(|d| !d)
        {
            let at = address as usize + i;
            return Err(Trap::new(
                "undefined",
                format!(
                    "{what} of shared memory at {at:#x}, which holds no value (or one still being loaded)"
                ),
            ));
        }
        Ok(())
    }

    /// Bytes of a checked range.
    pub fn slice(&self, address: u32, bytes: u32) -> &[u8] {
        &self.bytes[address as usize..(address + bytes) as usize]
    }

    /// Writes a checked range.
    pub fn write(&mut self, address: u32, data: &[u8]) {
        self.bytes[address as usize..address as usize + data.len()].copy_from_slice(data);
        self.define(address, data.len() as u32, true);
    }

    /// Little-endian word of a checked range.
    pub fn u32(&self, address: u32) -> u32 {
        let a = address as usize;
        u32::from_le_bytes([self.bytes[a], self.bytes[a + 1], self.bytes[a + 2], self.bytes[a + 3]])
    }
}
