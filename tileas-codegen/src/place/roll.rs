//! Loops over the slices of a chain: how later stages know them.
//!
//! `place` writes `for %j = 0 to n step 1` around one slice, with the discardable attribute `slices = n`, where a chain
//! of register tiles has `roll-slices` slices or more that are equal but for their offsets. Such a loop belongs to the
//! one agent that runs the chain. It is not scheduled: its ops run in program order, one slice after the other, so that
//! one slice is in registers at a time; what overlaps is the TMA store of one slice with the next, through the ring
//! of its staging buffer.

use crate::ir::{Function, Op, Opcode, keys};

/// Whether an op is a loop over slices that `place` wrote.
pub fn is_slice_loop(func: &Function, op: Op) -> bool {
    func.opcode(op) == Opcode::For && func.discardable(op).get(keys::SLICES).is_some()
}
