//! What the allocator allocates: names, each one register or four, in three disjoint classes.
//!
//! regalloc2 knows at most 64 registers of a class and neither pairs nor groups. A budget up to that many scalars maps
//! one to one; a larger one is cut into *granules*: four 32-bit registers that are written by one kind of instruction in
//! one block and last read in one block, so that they come and go together. 64-bit registers are a class of their own,
//! weighing two. Predicates have their own file and take no part.
//!
//! In: a function, its liveness, the blocks of one agent. Out: [`Names`] and, for a budget, [`ClassBudget`].
//! Cost: linear in the instructions of the agent, times a logarithm for the grouping.

use crate::nvvm::Liveness;
use crate::nvvm::{Bb, Function, PtxOp, Reg, RegTy};
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;

/// Members of a granule.
pub(super) const GRANULE: usize = 4;
/// Usable indices: 63 in the class whose last index stands for "none".
pub(super) const MAX_SCALARS: u32 = 63;
/// Usable indices of the other classes.
pub(super) const MAX_OTHERS: u32 = 64;

/// The three classes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum NameClass {
    /// One 32-bit register (or a 16-bit one).
    #[default]
    Scalar,
    /// Four 32-bit registers.
    Granule,
    /// A 64-bit register.
    Pair,
}

impl NameClass {
    pub(super) const ALL: [NameClass; 3] = [NameClass::Scalar, NameClass::Granule, NameClass::Pair];

    /// 32-bit registers of one name.
    pub(super) fn units(self) -> u32 {
        match self {
            NameClass::Scalar => 1,
            NameClass::Granule => GRANULE as u32,
            NameClass::Pair => 2,
        }
    }

    fn most(self) -> u32 {
        if self == NameClass::Scalar { MAX_SCALARS } else { MAX_OTHERS }
    }
}

/// One name.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Name {
    pub class: NameClass,
    /// The registers it stands for, from the front.
    pub members: [PackedOption<Reg>; GRANULE],
    /// Writes of any member.
    pub writes: u32,
}

impl Name {
    pub(super) fn members(&self) -> impl Iterator<Item = (usize, Reg)> + '_ {
        self.members.iter().enumerate().filter_map(|(i, m)| Some((i, m.expand()?)))
    }
}

/// Index of a name.
pub(super) type NameId = u32;
/// No name: predicates, and registers the agent does not touch.
pub(super) const NONE: NameId = u32::MAX;

/// The names of one agent.
#[derive(Default)]
pub(super) struct Names {
    pub list: Vec<Name>,
    of: SecondaryMap<Reg, u32>,
    facts: SecondaryMap<Reg, Facts>,
    order: Vec<Reg>,
    keyed: Vec<(Key, u32, Reg)>,
}

/// How a register is written and read in the agent.
#[derive(Copy, Clone, Default)]
struct Facts {
    writer: Option<PtxOp>,
    block: u32,
    last_block: u32,
    writes: u32,
    seen: bool,
}

/// Registers with equal keys may share a granule.
type Key = (Option<PtxOp>, u32, u32, bool);

impl Names {
    /// The name of a register.
    pub(super) fn of(&self, r: Reg) -> NameId {
        self.of[r].wrapping_sub(1)
    }

    /// Names for the registers of the blocks, in granules if `granules`.
    pub(super) fn make(&mut self, func: &Function, liveness: &Liveness, blocks: &[Bb], granules: bool) {
        let Names { list, of, facts, order, keyed } = self;
        list.clear();
        of.clear();
        facts.clear();
        order.clear();
        keyed.clear();
        let mut note = |r: Reg, block: u32, writer: Option<PtxOp>, facts: &mut SecondaryMap<Reg, Facts>| {
            if func.ty(r) == RegTy::Pred {
                return;
            }
            let f = &mut facts[r];
            if !f.seen {
                *f = Facts { writer: None, block, last_block: block, writes: 0, seen: true };
                order.push(r);
            }
            f.last_block = f.last_block.max(block);
            if let Some(op) = writer {
                f.writes += 1;
                f.writer.get_or_insert(op);
            }
        };
        for (i, &bb) in blocks.iter().enumerate() {
            // Live values that the agent does not touch take registers all the same.
            for r in liveness.live_in(bb) {
                note(r, i as u32, None, facts);
            }
            for inst in func.insts(bb) {
                func.visit_reads(inst, |r| note(r, i as u32, None, facts));
                func.visit_writes(inst, |r| note(r, i as u32, Some(func.op(inst)), facts));
            }
            for r in liveness.live_out(bb) {
                note(r, i as u32, None, facts);
            }
        }
        if granules {
            for (position, &r) in order.iter().enumerate() {
                let f = facts[r];
                if matches!(func.ty(r), RegTy::B32 | RegTy::F32) && f.writer.is_some() {
                    keyed.push(((f.writer, f.block, f.last_block, f.writes > 1), position as u32, r));
                }
            }
            keyed.sort_unstable();
            for group in keyed.chunk_by(|a, b| a.0 == b.0) {
                for four in group.chunks_exact(GRANULE) {
                    let mut name = Name { class: NameClass::Granule, ..Name::default() };
                    for (slot, &(_, _, r)) in name.members.iter_mut().zip(four) {
                        *slot = r.into();
                        name.writes += facts[r].writes;
                        of[r] = list.len() as u32 + 1;
                    }
                    list.push(name);
                }
            }
        }
        for &r in order.iter() {
            if of[r] == 0 {
                let class = if func.ty(r) == RegTy::B64 { NameClass::Pair } else { NameClass::Scalar };
                let mut name = Name { class, writes: facts[r].writes, ..Name::default() };
                name.members[0] = r.into();
                list.push(name);
                of[r] = list.len() as u32;
            }
        }
    }
}

/// Registers of each class the allocator may use, in the order of [`NameClass::ALL`].
pub(super) type ClassBudget = [u32; 3];

/// Divides `units` registers among the classes: to each what it needs at its peak, less where that is too much, but
/// never below what one instruction needs. `None` if that alone is too much.
pub(super) fn divide(units: u32, peak: ClassBudget, least: ClassBudget) -> Option<ClassBudget> {
    let mut out = [0; 3];
    for (i, class) in NameClass::ALL.into_iter().enumerate() {
        if least[i] > class.most() {
            return None;
        }
        out[i] = peak[i].max(least[i]).min(class.most());
    }
    let total = |b: &ClassBudget| -> u32 { NameClass::ALL.iter().zip(b).map(|(c, n)| c.units() * n).sum() };
    while total(&out) > units {
        // The class with most to give, granules first among equals.
        let give = |i: usize| NameClass::ALL[i].units() * (out[i] - least[i]);
        let from = [1, 0, 2].into_iter().rev().max_by_key(|&i| give(i))?;
        if give(from) == 0 {
            return None;
        }
        out[from] -= 1;
    }
    // What is left over goes where it fits.
    for i in [1, 2, 0] {
        let class = NameClass::ALL[i];
        let room = (units - total(&out)) / class.units();
        if peak[i] > 0 {
            out[i] = (out[i] + room).min(class.most());
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_divided_without_remainder_and_never_below_the_least() {
        // Scalars, granules, pairs.
        for units in 20..252 {
            for peak in [[60, 40, 20], [5, 60, 0], [100, 0, 100], [8, 8, 8]] {
                let least = [4, if peak[1] > 0 { 2 } else { 0 }, 1];
                match divide(units, peak, least) {
                    Some(b) => {
                        let total = b[0] + 4 * b[1] + 2 * b[2];
                        assert!(total <= units, "{units} {peak:?} {b:?}");
                        assert!(b.iter().zip(least).all(|(b, l)| *b >= l), "{units} {peak:?} {b:?}");
                        assert!(b[0] <= 63 && b[1] <= 64 && b[2] <= 64);
                        // Nothing that could still help is left.
                        assert!(units - total < 4 || b[0] == 63 || peak[0] == 0, "{units} {peak:?} {b:?}");
                    }
                    None => assert!(units < least[0] + 4 * least[1] + 2 * least[2]),
                }
            }
        }
        assert_eq!(divide(50, [10, 60, 2], [3, 20, 1]), None);
    }
}
