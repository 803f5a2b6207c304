//! Tensor memory of a CTA: 128 lanes by 512 columns of 32 bits, and its allocation.

use crate::exec::{Trap, X};
use crate::layout::tmem::check_alloc;

/// An allocation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// First column.
    pub column: u32,
    /// Columns.
    pub columns: u32,
    /// Warp that made it.
    pub warp: u32,
    /// Line of the instruction.
    pub line: u32,
}

/// Tensor memory.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Cells, lane after lane.
    pub cells: Vec<u32>,
    /// Whether a cell was written; empty without the detector.
    defined: Vec<bool>,
    undefined_on: bool,
    /// Live allocations by column.
    pub allocations: Vec<Allocation>,
    /// Whether tcgen05.alloc is still allowed.
    pub permit: bool,
    last: u32,
}

impl Tensor {
    /// Empty memory; cells come with the first allocation.
    pub fn new(undefined: bool) -> Self {
        Self {
            cells: Vec::new(),
            defined: Vec::new(),
            undefined_on: undefined,
            allocations: Vec::new(),
            permit: true,
            last: 512,
        }
    }

    /// Allocates columns; `None` when they are not free now.
    pub fn allocate(&mut self, columns: u32, warp: u32, line: u32) -> X<Option<u32>> {
        check_alloc(columns)?;
        if !self.permit {
            return Err(Trap::new("tmem.alloc", "tcgen05.alloc after relinquish_alloc_permit"));
        }
        if columns > self.last {
            return Err(Trap::new(
                "tmem.alloc",
                format!("allocation of {columns} columns after one of {}", self.last),
            ));
        }
        let mut at = 0;
        for a in &self.allocations {
            if a.column - at >= columns {
                break;
            }
            at = a.column + a.columns;
        }
        if at + columns > 512 {
            return Ok(None);
        }
        self.last = columns;
        if self.cells.is_empty() {
            self.cells = vec![u32::MAX; 128 * 512];
            self.defined = vec![false; if self.undefined_on { 128 * 512 } else { 0 }];
        }
        let i = self.allocations.partition_point(|a| a.column < at);
        self.allocations.insert(i, Allocation { column: at, columns, warp, line });
        Ok(Some(at))
    }

    /// Whether columns are free side by side.
    pub fn fits(&self, columns: u32) -> bool {
        let mut at = 0;
        for a in &self.allocations {
            if a.column - at >= columns {
                return true;
            }
            at = a.column + a.columns;
        }
        at + columns <= 512
    }

    /// Frees an allocation.
    pub fn free(&mut self, address: u32, columns: u32) -> X<()> {
        let Some(i) = self.allocations.iter().position(|a| a.column == address && a.columns == columns)
        else {
            return Err(Trap::new(
                "tmem.dealloc",
                format!("dealloc of {columns} columns at {address:#x}, which is not an allocation"),
            ));
        };
        self.allocations.remove(i);
        if !self.defined.is_empty() {
            for lane in 0..128 {
                self.defined[lane * 512 + address as usize..][..columns as usize].fill(false);
            }
        }
        Ok(())
    }

    /// Requires columns to be allocated.
    pub fn check(&self, column: u32, columns: u32, what: &str) -> X<()> {
        let end = column + columns;
        if self.allocations.iter().any(|a| a.column <= column && end <= a.column + a.columns) {
            return Ok(());
        }
        Err(Trap::new(
            "tmem.bounds",
            format!("{what} touches columns {column}..{end}, which are not allocated"),
        ))
    }

    /// Value of a cell.
    pub fn get(&self, lane: u32, column: u32) -> u32 {
        self.cells[(lane * 512 + column) as usize]
    }

    /// Sets a cell.
    pub fn set(&mut self, lane: u32, column: u32, v: u32) {
        let i = (lane * 512 + column) as usize;
        self.cells[i] = v;
        if let Some(d) = self.defined.get_mut(i) {
            *d = true;
        }
    }

    /// Whether a cell holds a value (always, without the detector).
    pub fn defined(&self, lane: u32, column: u32) -> bool {
        self.defined.get((lane * 512 + column) as usize).copied().unwrap_or(true)
    }

    /// Marks a cell as holding no value.
    pub fn undefine(&mut self, lane: u32, column: u32) {
        if let Some(d) = self.defined.get_mut((lane * 512 + column) as usize) {
            *d = false;
        }
    }

    /// Requires that cells of a lane were written.
    pub fn check_defined(&self, lane: u32, column: u32, columns: u32, what: &str) -> X<()> {
        if self.defined.is_empty() {
            return Ok(());
        }
        let row = &self.defined[(lane * 512 + column) as usize..][..columns as usize];
        match row.iter().position(|d| !d) {
            None => Ok(()),
            Some(i) => Err(Trap::new(
                "undefined",
                format!(
                    "{what} of tensor memory lane {lane} column {}, which holds no value",
                    column + i as u32
                ),
            )),
        }
    }
}
