//! The tile that a CTA takes.
//!
//! In: the kernel's [`GridOrder`]. Out: the coordinates that `program_id` gives along its two axes, computed once at the kernel's entry. CTAs are numbered with the lower axis
//! first; tiles in bands of `side` rows, column by column in a band.
//!
//! Guarantee: each CTA of a grid has another tile of it. A grid with more than 65535 CTAs along the lower axis is left as it is: then all products below are less than 2³².

use super::Lower;
use crate::ir::grid::GridOrder;
use crate::nvvm::{Operand, Special};

/// CTAs along the second and third axis of a grid at most. Source: CUDA C++ programming guide, compute capabilities.
const MOST: u32 = 65_535;

impl Lower<'_> {
    /// Computes the coordinates of the CTA's tile.
    pub(super) fn order_tiles(&mut self, order: GridOrder) {
        let GridOrder { rows, columns, side } = order;
        let (low, high) = (rows.min(columns) as usize, rows.max(columns) as usize);
        let own = [Special::CtaidX, Special::CtaidY, Special::CtaidZ];
        let all = [Special::NctaidX, Special::NctaidY, Special::NctaidZ];
        let b = &mut self.b;
        let (own_low, own_high) = (b.special(own[low]), b.special(own[high]));
        let (all_low, all_high) = (b.special(all[low]), b.special(all[high]));
        let fits = b.setp_le_u32(all_low, MOST);
        let before = b.mul_lo_u32(own_high, all_low);
        let number = b.add_u32(before, own_low);
        let number = b.selp_b32(number, 0u32, fits);
        let (height, width) = if rows as usize == low { (all_low, all_high) } else { (all_high, all_low) };
        let band_tiles = b.shl_b32(width, side.trailing_zeros());
        let band = b.div_u32(number, band_tiles);
        let passed = b.mul_lo_u32(band, band_tiles);
        let rest = b.sub_u32(number, passed);
        let first = b.shl_b32(band, side.trailing_zeros());
        let below = b.sub_u32(height, first);
        let in_band = b.min_u32(below, side);
        let column = b.div_u32(rest, in_band);
        let taken = b.mul_lo_u32(column, in_band);
        let row = b.sub_u32(rest, taken);
        let row = b.add_u32(first, row);
        let (of_low, of_high) = if rows as usize == low { (row, column) } else { (column, row) };
        let of_low = b.selp_b32(of_low, own_low, fits);
        let of_high = b.selp_b32(of_high, own_high, fits);
        self.grid[low] = Some(of_low);
        self.grid[high] = Some(of_high);
    }

    /// The coordinate of the CTA's tile along an axis.
    pub(super) fn program_id(&mut self, axis: i64) -> Operand {
        let axis = axis.clamp(0, 2) as usize;
        match self.grid[axis] {
            Some(r) => r.into(),
            None => self.b.special([Special::CtaidX, Special::CtaidY, Special::CtaidZ][axis]).into(),
        }
    }
}
