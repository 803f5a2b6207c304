//! The spill planner: regalloc2 decides which value leaves the register file between which instructions.
//!
//! In: a function, one agent, the registers it may use. Out: a [`Plan`]: stores, reloads and recomputations with their
//! places, which [`super::rewrite`] writes into the function. The assignment itself is thrown away: PTX registers are
//! virtual. A value keeps its register name; a reload writes it anew, so between store and reload the name is dead.
//!
//! Guarantees: regalloc2's checker has accepted the allocation, and `content` found every operand where it should be.
//! Deterministic. Cost: that of regalloc2 and its checker; only for agents over their budget.

use super::content::{edits_at, names_of_edits};
use super::graph::{Graph, NoGraph, Origin, UnitKind};
use super::names::{MAX_SCALARS, NONE, NameClass, NameId, Names, divide};
use crate::nvvm::Liveness;
use crate::nvvm::{Bb, Function, Inst, Reg};
use cranelift_entity::EntitySet;
use regalloc2::{
    Allocation, Edit, InstPosition, MachineEnv, OperandKind, Output, PReg, PRegSet, ProgPoint, RegAllocError,
    RegallocOptions, checker::Checker,
};

/// Where something is put.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Before an instruction of a block.
    Before(Bb, Inst),
    /// At the start of the agent, after its first block has been entered from outside.
    Entry,
    /// On the way from a block, by its guarded (0) or final (1) branch.
    Edge(Bb, usize, Bb),
}

/// One store or reload of a name.
#[derive(Copy, Clone, Debug)]
pub(super) struct Transfer {
    pub place: Place,
    pub name: NameId,
    /// Live members.
    pub mask: u32,
    /// First word of the slot.
    pub slot: u32,
    pub store: bool,
}

/// What to insert, in the order of the program at each place.
#[derive(Default)]
pub(super) struct Plan {
    pub transfers: Vec<Transfer>,
    /// Words of all slots.
    pub words: u32,
}

/// Why an agent cannot be planned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// A tensor-memory load and its wait are in different blocks.
    Unwaited(Inst),
    /// The agent is entered in its middle.
    Entered(Bb),
    /// One instruction needs more registers than the budget leaves.
    TooNarrow,
    /// The allocation did not pass a check: a fault of the planner, and the function is left as it was.
    Unsound(&'static str),
}

impl std::fmt::Display for NoPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoPlan::Unwaited(i) => {
                write!(f, "{i} loads from tensor memory and is waited for in another block")
            }
            NoPlan::Entered(bb) => write!(f, "{bb} is entered from outside the agent"),
            NoPlan::TooNarrow => f.write_str("one instruction needs more registers than the budget leaves"),
            NoPlan::Unsound(what) => write!(f, "the allocation did not pass its check: {what}"),
        }
    }
}

/// Memory of the planner.
#[derive(Default)]
pub(super) struct Planner {
    pub names: Names,
    context: regalloc2::Ctx,
}

fn environment(budget: [u32; 3]) -> MachineEnv {
    let mut preferred = [PRegSet::empty(); 3];
    for (class, set) in NameClass::ALL.into_iter().zip(&mut preferred) {
        for i in 0..budget[class as usize] {
            // Index 63 of the first class means "none", and an index of 64 would wrap silently.
            assert!(i < if class == NameClass::Scalar { MAX_SCALARS } else { 64 });
            set.add(PReg::new(i as usize, super::graph::reg_class(class)));
        }
    }
    MachineEnv {
        preferred_regs_by_class: preferred,
        non_preferred_regs_by_class: [PRegSet::empty(); 3],
        scratch_by_class: [None; 3],
        fixed_stack_slots: Vec::new(),
    }
}

impl Planner {
    /// Plans one agent with `units` registers.
    pub(super) fn plan(
        &mut self,
        func: &Function,
        liveness: &Liveness,
        blocks: &[Bb],
        units: u32,
    ) -> Result<Plan, NoPlan> {
        self.names.make(func, liveness, blocks, units > MAX_SCALARS);
        let graph = Graph::build(func, liveness, &self.names, blocks).map_err(|e| match e {
            NoGraph::Unwaited(inst) => NoPlan::Unwaited(inst),
            NoGraph::Entered(bb) => NoPlan::Entered(bb),
            NoGraph::Unwritten => NoPlan::Unsound("value without a write"),
        })?;
        let mut least = graph.least;
        loop {
            let budget = divide(units, graph.peak, least).ok_or(NoPlan::TooNarrow)?;
            let env = environment(budget);
            self.context = regalloc2::Ctx::default();
            match regalloc2::run_with_ctx(
                &graph,
                &env,
                &RegallocOptions { validate_ssa: cfg!(debug_assertions), ..RegallocOptions::default() },
                &mut self.context,
            ) {
                Ok(output) => {
                    let mut checker = Checker::new(&graph, &env);
                    checker.prepare(output);
                    checker.run().map_err(|_| NoPlan::Unsound("values"))?;
                    return transfers(func, liveness, &self.names, &graph, output)
                        .ok_or(NoPlan::Unsound("contents"));
                }
                // Reused operands and moves can take a register more than an instruction names.
                Err(RegAllocError::TooManyLiveRegs) => {
                    for (n, peak) in least.iter_mut().zip(graph.peak) {
                        *n += u32::from(peak > 0);
                    }
                }
                Err(e) => {
                    return Err(NoPlan::Unsound(match e {
                        RegAllocError::CritEdge(..) => "critical edge",
                        RegAllocError::SSA(..) => "two writes of one value",
                        RegAllocError::EntryLivein => "value without a write",
                        _ => "shape",
                    }));
                }
            }
        }
    }
}

/// Reads the plan off the allocation.
fn transfers(
    func: &Function,
    liveness: &Liveness,
    names: &Names,
    graph: &Graph,
    output: &Output,
) -> Option<Plan> {
    let moved = names_of_edits(graph, output)?;
    let mut plan = Plan { transfers: Vec::new(), words: output.num_spillslots as u32 };
    let mut live: EntitySet<Reg> = EntitySet::new();
    let mask = |live: &EntitySet<Reg>, name: NameId| {
        names.list[name as usize]
            .members()
            .filter(|&(_, r)| live.contains(r))
            .fold(0, |mask, (i, _)| mask | 1 << i)
    };
    let transfer = |live: &EntitySet<Reg>, place: Place, e: usize| {
        let Edit::Move { from, to } = output.edits[e].1;
        slot_move(from, to, moved[e], mask, live, place)
    };
    for (index, block) in graph.blocks.iter().enumerate() {
        live.clear();
        let units = graph.unit_range(index);
        match block.origin? {
            origin @ (Origin::Entry | Origin::Edge { .. }) => {
                let (place, at) = match origin {
                    Origin::Edge { from, way, to } => (Place::Edge(from, way, to), to),
                    _ => (Place::Entry, entry_of(graph)?),
                };
                liveness.live_in(at).for_each(|r| {
                    live.insert(r);
                });
                for unit in units {
                    let inst = regalloc2::Inst::new(unit);
                    for e in edits_at(output, ProgPoint::before(inst)) {
                        plan.transfers.extend(transfer(&live, place, e));
                    }
                    // Operands that may be anywhere: what arrives and what leaves.
                    for (o, &a) in graph.unit_operands(unit).iter().zip(output.inst_allocs(inst)) {
                        let name = graph.name_of[o.vreg().vreg()];
                        if let Some(slot) = a.as_stack() {
                            let store = o.kind() == OperandKind::Def;
                            let mask = mask(&live, name);
                            let slot = slot.index() as u32;
                            plan.transfers.push(Transfer { place, name, mask, slot, store });
                        }
                    }
                    for e in edits_at(output, ProgPoint::after(inst)) {
                        plan.transfers.extend(transfer(&live, place, e));
                    }
                }
            }
            Origin::Block(bb) => {
                liveness.live_out(bb).for_each(|r| {
                    live.insert(r);
                });
                let start = plan.transfers.len();
                for unit in units.rev() {
                    let inst = regalloc2::Inst::new(unit);
                    let (first, last) = graph.units[unit].insts?;
                    let after = edits_at(output, ProgPoint::new(inst, InstPosition::After));
                    if !after.is_empty() && graph.units[unit].kind == UnitKind::Plain {
                        let place = Place::Before(bb, func.next_inst(last)?);
                        plan.transfers.extend(after.rev().filter_map(|e| transfer(&live, place, e)));
                    } else if !after.is_empty() {
                        return None;
                    }
                    let mut at = Some(last);
                    while let Some(i) = at {
                        if !func.guard(i).is_some() {
                            func.visit_writes(i, |r| {
                                live.remove(r);
                            });
                        }
                        func.visit_reads(i, |r| {
                            live.insert(r);
                        });
                        at = if i == first { None } else { func.prev_inst(i) };
                    }
                    let before = edits_at(output, ProgPoint::before(inst));
                    let place = Place::Before(bb, first);
                    plan.transfers.extend(before.rev().filter_map(|e| transfer(&live, place, e)));
                }
                plan.transfers[start..].reverse();
            }
        }
    }
    Some(plan)
}

/// The agent's first block.
fn entry_of(graph: &Graph) -> Option<Bb> {
    match graph.blocks[graph.succs(0).next()?].origin? {
        Origin::Block(bb) => Some(bb),
        _ => None,
    }
}

/// A move as a transfer, if a slot takes part in it and what it moves is read.
fn slot_move(
    from: Allocation,
    to: Allocation,
    name: NameId,
    mask: impl Fn(&EntitySet<Reg>, NameId) -> u32,
    live: &EntitySet<Reg>,
    place: Place,
) -> Option<Transfer> {
    if name == NONE {
        return None;
    }
    let (slot, store) = match (from.as_stack(), to.as_stack()) {
        (None, Some(slot)) => (slot, true),
        (Some(slot), None) => (slot, false),
        _ => return None,
    };
    let mask = mask(live, name);
    (mask != 0).then_some(Transfer { place, name, mask, slot: slot.index() as u32, store })
}
