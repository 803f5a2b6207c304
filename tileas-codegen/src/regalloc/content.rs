//! What lies in which register and slot of a finished allocation.
//!
//! In: a [`Graph`] and regalloc2's output. Out: for each of its edits the name whose value it moves. The allocator says
//! only from where to where, so the contents are followed along all paths, as its checker does, but by names of ours:
//! where paths disagree nothing is known. Every operand must find its name where the allocator put it; that makes this a
//! second check, on the program that is really written.
//!
//! Cost: a few rounds over the blocks, each linear in operands and edits plus the locations per block.

use super::graph::Graph;
use super::names::{NONE, NameId};
use regalloc2::{Allocation, AllocationKind, Edit, InstPosition, OperandKind, OperandPos, Output, ProgPoint};

/// Locations: 64 registers of three classes, then the slots.
const REGISTERS: usize = 256;

/// By location: its name.
#[derive(Clone, PartialEq, Eq)]
struct State(Vec<NameId>);

fn location(a: Allocation) -> Option<usize> {
    match a.kind() {
        AllocationKind::Reg => Some(a.index()),
        AllocationKind::Stack => Some(REGISTERS + a.index()),
        AllocationKind::None => None,
    }
}

impl State {
    fn get(&self, a: Allocation) -> NameId {
        location(a).and_then(|l| self.0.get(l).copied()).unwrap_or(NONE)
    }

    fn set(&mut self, a: Allocation, name: NameId) {
        if let Some(slot) = location(a).and_then(|l| self.0.get_mut(l)) {
            *slot = name;
        }
    }

    /// A new value of the name: copies of the old one mean nothing now.
    fn define(&mut self, a: Allocation, name: NameId) {
        for n in &mut self.0 {
            if *n == name {
                *n = NONE;
            }
        }
        self.set(a, name);
    }
}

/// The name each edit moves ([`NONE`]: garbage), or `None` if some operand is not where it should be.
pub(super) fn names_of_edits(graph: &Graph, output: &Output) -> Option<Vec<NameId>> {
    let mut names = vec![NONE; output.edits.len()];
    let size = REGISTERS + output.num_spillslots;
    let mut entry: Vec<Option<State>> = vec![None; graph.blocks.len()];
    entry[0] = Some(State(vec![NONE; size]));
    let mut work = vec![0usize];
    while let Some(block) = work.pop() {
        let Some(mut state) = entry[block].clone() else { continue };
        step(graph, output, block, &mut state, &mut names, false)?;
        for s in graph.succs(block) {
            let changed = match &mut entry[s] {
                Some(old) => {
                    let mut changed = false;
                    for (o, n) in old.0.iter_mut().zip(&state.0) {
                        if *o != *n && *o != NONE {
                            *o = NONE;
                            changed = true;
                        }
                    }
                    changed
                }
                empty => {
                    *empty = Some(state.clone());
                    true
                }
            };
            if changed && !work.contains(&s) {
                work.push(s);
            }
        }
    }
    for (block, state) in entry.into_iter().enumerate() {
        if let Some(mut state) = state {
            step(graph, output, block, &mut state, &mut names, true)?;
        }
    }
    Some(names)
}

/// Edits at one point, by index.
pub(super) fn edits_at(output: &Output, point: ProgPoint) -> std::ops::Range<usize> {
    let from = output.edits.partition_point(|(p, _)| *p < point);
    let to = output.edits.partition_point(|(p, _)| *p <= point);
    from..to
}

/// Follows one block; in the `last` round edits are named and operands checked.
fn step(
    graph: &Graph,
    output: &Output,
    block: usize,
    state: &mut State,
    names: &mut [NameId],
    last: bool,
) -> Option<()> {
    let mut moves = |state: &mut State, unit: usize, pos: InstPosition| {
        for e in edits_at(output, ProgPoint::new(regalloc2::Inst::new(unit), pos)) {
            let Edit::Move { from, to } = output.edits[e].1;
            let name = state.get(from);
            if last {
                names[e] = name;
            }
            state.set(to, name);
        }
    };
    for unit in graph.unit_range(block) {
        moves(state, unit, InstPosition::Before);
        let allocs = output.inst_allocs(regalloc2::Inst::new(unit));
        let operands = graph.unit_operands(unit);
        let name = |i: usize| graph.name_of[operands[i].vreg().vreg()];
        if last {
            for (i, &a) in allocs.iter().enumerate() {
                if operands[i].kind() == OperandKind::Use && state.get(a) != name(i) {
                    return None;
                }
            }
        }
        for early in [true, false] {
            for (i, &a) in allocs.iter().enumerate() {
                let is_early = operands[i].pos() == OperandPos::Early;
                if operands[i].kind() == OperandKind::Def && is_early == early {
                    state.define(a, name(i));
                }
            }
        }
        moves(state, unit, InstPosition::After);
    }
    Some(())
}
