//! Addresses: shared-memory tiles in web order, then barriers (8 bytes each, full before empty), then the word for the
//! tensor-memory base; tensor-memory columns in web order.

use super::BufferAssignment;
use super::depth::slots;
use crate::error::CodegenResult;
use crate::ir::{Function, Space};
use crate::isa::TargetIsa;

/// Assigns all addresses.
///
/// # Errors
/// None beyond what depth assignment has checked already.
pub fn place(f: &Function, isa: &dyn TargetIsa, out: &mut BufferAssignment) -> CodegenResult<()> {
    let _ = (f, isa);
    let (mut at, mut column) = (0u32, 0u32);
    let ids: Vec<_> = out.webs.iter().map(|(id, _)| id).collect();
    for id in ids {
        let n = slots(&out.bundles, id);
        let w = out.webs.get_mut(id);
        w.slots = n;
        match w.space {
            Space::Smem => {
                at = at.next_multiple_of(w.layout.swizzle().map_or(1024, |s| s.alignment()).max(128));
                w.at = at;
                at += n * w.slot_bytes();
            }
            Space::Tmem => {
                w.at = column;
                column += n * w.cols;
            }
            _ => {}
        }
    }
    at = at.next_multiple_of(8);
    for b in &mut out.bundles {
        if b.named.is_some() {
            continue;
        }
        b.full_at = at;
        at += 8 * b.depth;
        b.empty_at = None;
        if !b.once {
            b.empty_at = Some(at);
            at += 8 * b.depth;
        }
    }
    out.tmem_columns = if column == 0 { 0 } else { column.next_power_of_two().max(32) };
    out.tmem_base_at = at;
    if column > 0 {
        at += 4;
    }
    out.dynamic_smem = if at == 0 { 0 } else { at.next_multiple_of(16) + 1024 };
    Ok(())
}
