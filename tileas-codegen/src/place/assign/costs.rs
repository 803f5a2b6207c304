//! What it costs to compute a node in a layout, to move it and to convert it: quarters of a cycle of an SM for all warps.

use super::super::chains::rows_columns;
use super::super::derive::wanted;
use super::{Assignment, Use};
use crate::ir::opcodes::keys;
use crate::ir::{Layout, Op, Opcode, Scalar, Value};
use crate::layout::gf2::{Columns, Span};
use crate::layout::{Axes, LinearMap, Matrix, Side};
use crate::storage::scratch::Reduction;
use cranelift_entity::EntityRef;

/// Quarters of a cycle for which all threads wait for each other in a trip through shared memory. With 32 cycles, which is what the
/// instructions take, a mask of 128 keys may be computed once and handed round: then no product is under way over the softmax, and warpgroups
/// do not take turns; the intervals of other people's kernels are 0.9 % longer. With 256 they are 0.5 % shorter, and those that change spill almost twice as much.
const MEETING: u32 = 4 * 128;
/// The same where warps hand each other a part of a reduction or scan, which little waits for. With what a trip costs, intervals are 0.1 % longer.
const HANDING: u32 = 4 * 32;

impl Assignment<'_> {
    pub(super) fn warps(&self) -> u32 {
        self.from.warps.max(1)
    }

    /// Words of a tile in each thread.
    fn words(map: &LinearMap, bits: u32) -> u32 {
        let registers = 1u32 << map.register().len();
        if bits >= 32 { registers * (bits / 32) } else { (registers * bits.max(8)).div_ceil(32) }
    }

    /// Quarters of a cycle for an access to global memory: issues, and sectors at two a cycle.
    fn access_cost(&self, map: &LinearMap, dims: &[u32], bytes: u32, most: u32) -> u32 {
        let Some(axes) = Axes::of(dims) else { return 0 };
        let last = axes.rank().checked_sub(1).map_or(0, |a| axes.bits(a));
        // The vector: a run of registers along the last axis.
        let run = map.register().iter().enumerate().take_while(|(k, c)| **c == 1 << k).count() as u32;
        let vector = run.min(last).min((16 / bytes.clamp(1, 16)).ilog2()).min(most.max(1).ilog2());
        let accesses = (1u32 << map.register().len()) >> vector;
        // Sectors that the lanes of a warp touch: bits inside of a sector that lanes do not have cost sectors.
        let inside = (32 / bytes.clamp(1, 32)).ilog2().min(last);
        let own = (1u32 << vector) - 1;
        let lanes = map.lane().iter().fold(0, |m, c| m | c) | own;
        let distinct = map.lane().iter().filter(|c| **c != 0).count() as u32;
        let covered = (lanes & ((1 << inside) - 1)).count_ones();
        let sectors = 1u32 << (distinct + vector - covered.min(distinct + vector));
        // A row has an address and bounds of its own; what is no whole word is put together.
        let rows = 1u32 << map.register().iter().filter(|c| **c >> last != 0).count().min(16);
        let singles = if (bytes << vector) < 4 { accesses } else { 0 };
        self.warps() * (accesses * (1 + 2 * sectors) + 6 * rows + singles)
    }

    /// Quarters of a cycle to read a tile from shared memory, or to `store` it there.
    fn shared_cost(&self, map: &LinearMap, value: Value, layout: Layout, store: bool) -> Option<u32> {
        let data = self.func().value_data(value);
        let ((rows, columns), bytes) = (rows_columns(data.dims()?), data.elem()?.bytes());
        let order = Matrix::of(&[rows, columns], self.warps())?.swizzled(layout.swizzle()?.span(), bytes)?;
        let side = Side::fixed(map, order.columns(), bytes.trailing_zeros(), 0, store)?;
        Some(side.cost() * (self.warps() >> side.copies.1.count_ones()))
    }

    /// The number of a map: costs are looked up more often than there are maps.
    pub(super) fn number(&mut self, map: LinearMap) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(map).or_insert(next)
    }

    /// [`Self::new_cost`] of maps with their numbers.
    pub(super) fn convert_cost(
        &mut self,
        source: (u32, &LinearMap),
        result: (u32, &LinearMap),
        bits: u32,
    ) -> u32 {
        let key = (source.0, result.0, bits);
        if let Some(&c) = self.costs.get(&key) {
            return c;
        }
        let cost = self.new_cost(source.1, result.1, bits);
        self.costs.insert(key, cost);
        cost
    }

    /// Quarters of a cycle for a conversion, from the criteria of [`crate::layout`] without making a plan.
    fn new_cost(&self, source: &LinearMap, result: &LinearMap, bits: u32) -> u32 {
        // Registers alone make no difference where they are copies.
        let alike = source.lane() == result.lane() && source.warp() == result.warp();
        if alike && (source.register() == result.register() || source.compact() == result.compact()) {
            return 0;
        }
        let own = Span::of(source.register());
        let both: Columns = source.register().iter().chain(source.lane()).copied().collect();
        let warp = Span::of(&both);
        let words = Self::words(result, bits).max(Self::words(source, bits));
        let differ = |kind: usize| -> Columns {
            source.kind(kind).iter().zip(result.kind(kind)).map(|(a, b)| a ^ b).collect()
        };
        let (lanes, warps) = (differ(1), differ(2));
        let packs = u32::from(bits < 32) * words * 2;
        let n = self.warps();
        let bytes = (1u32 << both.len().min(20)).max(1) * bits.max(8) / 8;
        let waves = 2 * (bytes / 128).max(1) * n;
        let trip = 4 * waves + n * words + MEETING;
        if own.contains_all(result.register()) && own.contains_all(&lanes) && own.contains_all(&warps) {
            let selects = lanes.iter().chain(&warps).filter(|c| **c != 0).count() as u32;
            n * (words * 2 * selects + packs)
        } else if warp.contains_all(result.register())
            && warp.contains_all(result.lane())
            && warp.contains_all(&warps)
        {
            let moved = lanes.iter().filter(|c| !own.contains(**c)).count() as u32;
            (n * (words * (4 + 4 * moved) + packs)).min(trip)
        } else {
            trip
        }
    }

    /// What a reduction costs in a layout of its source.
    fn reduce_cost(&self, source: &LinearMap, axes: &Axes, axis: usize) -> u32 {
        let r = Reduction::along(source, axes, axis);
        let (from, to) = (1u32 << source.register().len(), 1u32 << r.result.register().len());
        let lanes = r.lanes.count_ones();
        let mut cost = self.warps() * ((from - to.min(from)) + lanes * to * 5);
        if r.warps != 0 {
            cost += self.warps() * to * (2 + r.contributors()) * 4 + HANDING;
        }
        cost
    }

    /// What a scan costs in a layout: a combination for half of the registers for each bit of the axis, and what other threads have.
    fn scan_cost(&self, source: &LinearMap, axes: &Axes, axis: usize) -> u32 {
        let mask = axes.mask(axis);
        let along = |columns: &[u32]| columns.iter().filter(|c| **c & mask != 0).count() as u32;
        let (own, lanes, warps) = (along(source.register()), along(source.lane()), along(source.warp()));
        let words = 1u32 << source.register().len();
        let others = words >> own.min(16);
        self.warps() * (words * (own.div_ceil(2) + lanes + warps) + others * lanes * 6)
            + warps * (self.warps() * others * 8 + HANDING)
    }

    pub(super) fn own_costs(&mut self) {
        let func = self.func();
        let ops: Vec<(Op, usize)> = {
            let mut v: Vec<(Op, usize)> = self.of_op.iter().map(|(&op, &n)| (op, n)).collect();
            v.sort_by_key(|x| x.0.index());
            v
        };
        for (op, n) in ops {
            let weight = self.weight(op);
            for c in 0..self.nodes[n].candidates.len() {
                let map = self.nodes[n].candidates[c];
                let cost = match func.opcode(op) {
                    o if matches!(o, Opcode::TiledLoad | Opcode::TiledStore) || o.is_sparse() => {
                        let node = &self.nodes[n];
                        self.access_cost(&map, &node.dims, node.bytes, node.vector)
                    }
                    Opcode::Broadcast => 0,
                    _ => self.warps() << map.register().len().min(16),
                };
                let own = &mut self.nodes[n].own[c];
                *own = own.saturating_add(cost.saturating_mul(weight));
            }
        }
        for n in 0..self.nodes.len() {
            let Some((value, load)) = self.nodes[n].shared else { continue };
            let Some(layout) = self.from.layouts.of_value[value] else { continue };
            let weight = self.weight(load);
            for c in 0..self.nodes[n].candidates.len() {
                let cost = self.shared_cost(&self.nodes[n].candidates[c], value, layout, false);
                let own = &mut self.nodes[n].own[c];
                *own = own.saturating_add(cost.unwrap_or(0).saturating_mul(weight));
            }
        }
        for u in 0..self.written.len() {
            let (n, value, op, layout) = self.written[u];
            let weight = self.weight(op);
            for c in 0..self.nodes[n].candidates.len() {
                let map = self.nodes[n].candidates[c];
                let cost = self.map_of(value, &map).and_then(|at| self.shared_cost(&at, value, layout, true));
                let own = &mut self.nodes[n].own[c];
                *own = own.saturating_add(cost.unwrap_or(0).saturating_mul(weight));
            }
        }
        // Uses of what the node itself has, and what is made of that.
        for u in 0..self.uses.len() {
            let Use { value, op, from, to, weight } = self.uses[u];
            if to.is_some_and(|to| to != from) {
                continue;
            }
            let bits = func.value_data(value).elem().map_or(32, Scalar::bits);
            for c in 0..self.nodes[from].candidates.len() {
                let map = self.nodes[from].candidates[c];
                let Some(at) = self.map_of(value, &map) else { continue };
                let mut cost = 0;
                if to.is_some() {
                    if let Some(want) = wanted(func, op, value, &map) {
                        let (a, b) = (self.number(at), self.number(want));
                        cost = self.convert_cost((a, &at), (b, &want), bits).saturating_mul(weight);
                    }
                } else if matches!(func.opcode(op), Opcode::Reduce | Opcode::Combine | Opcode::Scan) {
                    let axis = func.attr_int(op, keys::AXIS).and_then(|a| usize::try_from(a).ok());
                    let axes = func.value_data(value).dims().and_then(Axes::of);
                    if let (Some(axis), Some(axes)) = (axis, axes)
                        && axis < axes.rank()
                    {
                        let cost_of = match func.opcode(op) {
                            Opcode::Scan => self.scan_cost(&at, &axes, axis),
                            _ => self.reduce_cost(&at, &axes, axis),
                        };
                        cost = cost_of.saturating_mul(self.weight(op));
                    }
                }
                let own = &mut self.nodes[from].own[c];
                *own = own.saturating_add(cost);
            }
        }
    }
}
