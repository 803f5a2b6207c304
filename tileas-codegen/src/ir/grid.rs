//! The order in which CTAs take tiles, as a materialised kernel states it.
//!
//! In: the attribute `grid_order`, `[axis of rows, axis of columns, rows of a band]`. Out: what [`Opcode::ProgramId`](super::Opcode) means then: the coordinates along
//! these axes of the tile that a CTA takes, where the tiles of a band of rows are numbered column by column. Without it they are the CTA's own.

use super::{AttrData, Function, keys};

/// An order of the tiles of a grid.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct GridOrder {
    /// The axis of the grid along which rows of tiles are counted.
    pub rows: u32,
    /// That of columns.
    pub columns: u32,
    /// Rows of a band, a power of two.
    pub side: u32,
}

impl GridOrder {
    /// Rows of a band at most.
    pub const MOST: u32 = 64;

    /// That of a kernel; an attribute that says something else says nothing.
    pub fn of(func: &Function) -> Option<GridOrder> {
        let AttrData::Array(list) = func.attr_data(func.attrs.get(keys::GRID_ORDER)?) else { return None };
        let int = |n: usize| match func.attr_data(*list.get(n)?) {
            AttrData::Int(n, _) => u32::try_from(*n).ok(),
            _ => None,
        };
        let order = GridOrder { rows: int(0)?, columns: int(1)?, side: int(2)? };
        let axes = order.rows != order.columns && order.rows.max(order.columns) < 3;
        let side = order.side.is_power_of_two() && (2..=GridOrder::MOST).contains(&order.side);
        (axes && side && list.len() == 3).then_some(order)
    }

    /// Writes it to a kernel.
    pub fn set(self, func: &mut Function) {
        let list = [self.rows, self.columns, self.side];
        let list = list.map(|n| func.intern_attr(AttrData::Int(n.into(), None)));
        let order = func.intern_attr(AttrData::Array(list.into_iter().collect()));
        func.attrs.set(keys::GRID_ORDER, order);
    }
}
