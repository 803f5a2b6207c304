//! Buffers: storage webs, channels and their bundles, depths, memory layout.
//!
//! In: the placed function, the agent plan and the schedules. Out: a [`BufferAssignment`], which [`crate::materialize`]
//! turns into code. Steps: [`crate::storage::webs`], [`needs`] → [`channels`] → [`depth`] → [`memory`]. Nothing here searches for starts.
//! [`BufferAssignment::dump`] prints everything with its reasons.

pub mod channels;
pub mod depth;
pub mod memory;
pub mod needs;
pub mod order;
pub mod requests;
pub mod share;
pub mod sync;

pub use crate::storage::access::Key;
pub use crate::storage::webs::{Web, Webs};
pub use channels::{Pipe, PipeData, PipeKind};
pub use memory::MemoryMap;

use crate::agents::{Agent, AgentPlan};
use crate::ddg::{OpEdge, ScheduleAnalysis};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Function, Op, Opcode, Space};
use crate::isa::TargetIsa;
use crate::storage::Storage;
use cranelift_entity::{EntityRef, EntitySet, PrimaryMap, SecondaryMap};
use smallvec::SmallVec;
use std::fmt::Write;

/// Choices of the caller.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BufferOptions {
    /// Shared-memory bytes the kernel may ask for; default: what the target has.
    pub smem_bytes: Option<u32>,
    /// Most slots of a ring, whatever the needed depth (R3); default: no limit.
    pub max_depth: Option<u32>,
    /// Slots of every ring whose home runs that often, instead of the chosen depth (R4); default: the policy.
    pub pipeline_depth: Option<u32>,
    /// Most slots that are chosen (R4) for a ring. Default: 8.
    pub max_slots: u32,
    /// The first named barrier for hand-offs inside an agent; 0 is the frame's. Default: 1.
    pub first_named_barrier: u32,
    /// Pairs of accesses to one view in one block that may need an order. Default: 1 000 000.
    pub max_pairs: usize,
}

impl Default for BufferOptions {
    fn default() -> BufferOptions {
        BufferOptions {
            smem_bytes: None,
            max_depth: None,
            pipeline_depth: None,
            max_slots: 8,
            first_named_barrier: 1,
            max_pairs: 1_000_000,
        }
    }
}

/// A ring that got fewer slots than its loop's schedule needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reject {
    /// The channel.
    pub pipe: Pipe,
    /// The needed depth (R3).
    pub need: u32,
    /// Slots there are.
    pub have: u32,
    /// What a schedule that does with them must keep: from each last reader to each first writer.
    pub edges: Vec<OpEdge>,
}

/// Storage and hand-offs of one function.
#[derive(Clone, Default)]
pub struct BufferAssignment {
    /// Storage webs.
    pub webs: Webs,
    /// Bundled channels in program order of their commits.
    pub pipes: PrimaryMap<Pipe, PipeData>,
    /// Items before which the lane of an agent waits for all that it has stored.
    pub store_waits: order::StoreWaits,
    /// What each agent's region must contain.
    pub needs: PrimaryMap<Agent, needs::Needs>,
    /// Memory layout.
    pub memory: MemoryMap,
    /// Rings with fewer slots than the needed depth (R3).
    pub rejects: Vec<Reject>,
    /// The II each scheduled loop reaches with these depths.
    pub ii_eff: SecondaryMap<Op, u32>,
}

/// Layouts that are tried where tiles wait for each other's place.
const MOST_LAYOUTS: u32 = 4;

/// Assigns storage, channels, depths and memory.
///
/// # Errors
/// E06xx, located at the op that needs what there is not.
pub fn assign_buffers_in(
    func: &Function,
    plan: &AgentPlan,
    storage: &Storage,
    sched: &ScheduleAnalysis,
    isa: &dyn TargetIsa,
    opts: &BufferOptions,
) -> CodegenResult<BufferAssignment> {
    let mut needs: PrimaryMap<Agent, needs::Needs> = PrimaryMap::new();
    for agent in plan.agents.keys() {
        needs.push(needs::compute(func, plan, agent)?);
    }
    let world = sync::World { func, plan, sched, needs: &needs, max_pairs: opts.max_pairs };
    let smem_limit = opts.smem_bytes.unwrap_or(isa.machine().limits.smem_bytes);
    let scratch = scratch(func, plan, storage, opts)?;
    let input = depth::Input { world, isa, smem_limit, opts, scratch: &scratch };
    // Webs that follow one another in the same memory: each round adds the waits for those of the layout before.
    let mut waits: Vec<(Web, Web)> = Vec::new();
    let mut rounds = 0;
    let (webs, pipes, store_waits, memory, rejects) = loop {
        let mut webs = storage.webs.clone();
        let (mut pipes, store_waits) = channels::build(world, storage, &mut webs, &waits)?;
        bind(opts.first_named_barrier, &scratch, &mut pipes);
        let chosen = depth::choose(&input, &mut webs, &mut pipes)?;
        if chosen.waits.is_empty() {
            break (webs, pipes, store_waits, chosen.memory, chosen.rejects);
        }
        rounds += 1;
        if rounds > MOST_LAYOUTS {
            let (a, b) = chosen.waits[0];
            let loc = |w: Web| func.defining_op(webs.webs[w].root).map_or(func.loc, |op| func.op_loc(op));
            let text = "memory does not suffice, and this tile cannot wait for the place of another one";
            return Err(CodegenError::new(Code::E0602, loc(b), text).note(loc(a), "the other one"));
        }
        waits.extend(chosen.waits);
    };
    let mut ii_eff = SecondaryMap::new();
    for op in func.ops() {
        if func.opcode(op) == Opcode::For
            && let Some(s) = &sched.loops[op]
        {
            ii_eff[op] = depth::ii_eff(depth::Party { func, plan, needs: &needs }, isa, s, &pipes);
        }
    }
    Ok(BufferAssignment { webs, pipes, store_waits, needs, memory, rejects, ii_eff })
}

/// Bytes that an exchange between warps takes at most if there is to be room for two.
const TURNS: u32 = 1024;

/// What the register ops of each agent take for themselves.
fn scratch(
    func: &Function,
    plan: &AgentPlan,
    storage: &Storage,
    opts: &BufferOptions,
) -> CodegenResult<SmallVec<[memory::Scratch; 2]>> {
    let mut most: SmallVec<[(u32, Option<Op>); 4]> = SmallVec::from_elem((0, None), plan.agents.len());
    for &(op, agent, bytes) in &storage.scratch {
        // Twice, where that is little: exchanges that take turns need one barrier each.
        let bytes = match bytes {
            small if small <= TURNS => 2 * small,
            large => large,
        };
        if let Some(m) = most.get_mut(agent.index()).filter(|m| m.0 < bytes) {
            *m = (bytes, Some(op));
        }
    }
    let mut out: SmallVec<[memory::Scratch; 2]> = SmallVec::new();
    for (agent, (bytes, op)) in plan.agents.keys().zip(most) {
        let Some(op) = op else { continue };
        let named = opts.first_named_barrier.saturating_add(out.len() as u32);
        if named >= channels::NAMED_BARRIERS {
            let text = "no named barrier is left for the agent whose threads hand tiles to each other here";
            return Err(CodegenError::new(Code::E0606, func.op_loc(op), text));
        }
        out.push(memory::Scratch { agent, bytes, at: 0, named });
    }
    Ok(out)
}

/// Binds named barriers. An agent has one for all of its life and for all that its threads hand to each other: they come
/// to it in one order. The lowest that is free goes to the next agent that needs one; where none is left mbarriers serve.
fn bind(first: u32, scratch: &[memory::Scratch], pipes: &mut PrimaryMap<Pipe, PipeData>) {
    let mut bound: SmallVec<[Agent; 4]> = scratch.iter().map(|s| s.agent).collect();
    for p in pipes.values_mut().filter(|p| p.named.is_some()) {
        let agent = p.producer.agent;
        let number = bound.iter().position(|&a| a == agent).unwrap_or(bound.len());
        if number == bound.len() {
            bound.push(agent);
        }
        p.named = Some(first.saturating_add(number as u32)).filter(|&n| n < channels::NAMED_BARRIERS);
    }
}

impl BufferAssignment {
    /// Webs that a loop carries in slots of their own for each version.
    pub fn rings(&self) -> EntitySet<Web> {
        let mut rings = EntitySet::new();
        for p in self.pipes.values().filter(|p| p.payload() && p.distance > 0) {
            rings.extend(p.webs.iter().copied());
        }
        rings
    }

    /// The webs, channels, depths and memory as text, with reasons.
    pub fn dump(&self, func: &Function, plan: &AgentPlan) -> String {
        let mut s = String::new();
        let name = |v| func.value_name(v).map_or_else(|| format!("{v}"), |n| format!("%{n}"));
        for (w, d) in self.webs.webs.iter() {
            let members: Vec<String> = d.values.iter().map(|&v| name(v)).collect();
            let size = match d.space {
                Space::Tmem => {
                    let lane =
                        d.lane.map_or(String::new(), |lane| format!(", 16 lanes of each warp from {lane}"));
                    format!("tmem {} columns at {}{lane}", d.columns(), d.at)
                }
                _ => format!("smem {} bytes at {}", d.bytes(), d.at),
            };
            let _ = writeln!(s, "{w}: {{{}}} {size}, {} slots", members.join(" "), d.slots);
        }
        for (id, p) in self.pipes.iter() {
            let agent = |k: Key| format!("{}{}", plan.agents[k.agent].kind.name(), k.agent.as_u32());
            let home = match func.block_parent(p.home) {
                None => "kernel body".to_string(),
                Some(op) => format!("{} {op}", func.opcode(op).name()),
            };
            let webs: Vec<String> = p.webs.iter().map(|w| w.to_string()).collect();
            let to: Vec<String> = p.consumers.iter().map(|c| agent(c.key)).collect();
            let kind = match p.kind {
                PipeKind::Mutex => " mutex",
                PipeKind::Scalar => " scalar",
                PipeKind::Ring | PipeKind::Carried(_) => "",
                PipeKind::Token | PipeKind::InPlace => " token",
            };
            let empty = if p.has_empty { "" } else { ", no empty side" };
            let named = p.named.map_or(String::new(), |id| format!(", named barrier {id}"));
            let _ = writeln!(
                s,
                "{id}{kind}: {} in {home}, {} -> {}, distance {}, depth {}{empty}{named} ({})",
                webs.join(" "),
                agent(p.producer),
                to.join(" "),
                p.distance,
                p.depth,
                p.why
            );
        }
        for &(agent, op) in &self.store_waits {
            let lane = plan.agents[agent].kind.name();
            let _ = writeln!(s, "{op}: {lane}{} waits for its stores", agent.as_u32());
        }
        for r in &self.rejects {
            let _ = writeln!(s, "{}: {} slots are needed, there are {}", r.pipe, r.need, r.have);
        }
        for op in func.ops().filter(|&op| self.ii_eff[op] > 0) {
            let _ = writeln!(s, "{op}: ii_eff {}", self.ii_eff[op]);
        }
        let m = &self.memory;
        for x in &m.scratch {
            let kind = plan.agents[x.agent].kind.name();
            let _ = writeln!(
                s,
                "{kind}{}: {} bytes at {} between its warps, named barrier {}",
                x.agent.as_u32(),
                x.bytes,
                x.at,
                x.named
            );
        }
        let _ =
            writeln!(s, "smem {} bytes ({} dynamic), tmem {} columns", m.end, m.dynamic_smem, m.tmem_columns);
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Block, Publish};
    use crate::storage::access::Class;

    #[test]
    fn named_barriers_go_to_those_that_need_one_and_are_used_again() {
        let pipe = |producer: u32, inside: bool| PipeData {
            home: Block::from_u32(0),
            distance: 0,
            webs: SmallVec::new(),
            kind: PipeKind::InPlace,
            producer: Key { agent: Agent::from_u32(producer), class: Class::Sync },
            acquires: SmallVec::new(),
            events: SmallVec::new(),
            consumers: Vec::new(),
            tx: 0,
            publish: Publish::None,
            named: inside.then_some(0),
            depth: 1,
            has_empty: true,
            why: depth::Why::default(),
            full_at: 0,
            empty_at: 0,
        };
        let mut pipes = PrimaryMap::new();
        [(2, true), (0, false), (1, true), (2, true), (3, true), (4, true)]
            .into_iter()
            .for_each(|(producer, inside)| _ = pipes.push(pipe(producer, inside)));
        let scratch = [memory::Scratch { agent: Agent::from_u32(3), bytes: 64, at: 0, named: 13 }];
        bind(13, &scratch, &mut pipes);
        let bound: Vec<_> = pipes.values().map(|p| p.named).collect();
        assert_eq!(bound, [Some(14), None, Some(15), Some(14), Some(13), None]);
    }
}
