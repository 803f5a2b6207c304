//! Channels: the hand-overs of storage between agents, and to or from asynchronous engines.
//!
//! A channel has a home block and advances once per execution of it. Its producer ops write a web, its consumer ops read
//! it; ops nested deeper count as their ancestor in the home. Transaction channels with equal home, producer and
//! consumers form one bundle. No channel is needed between matrix instructions that one lane issues to one accumulator.

use super::webs::{Web, WebId, Webs, is_constant};
use crate::agents::{Agent, AgentPlan};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Block, Function, Op, Opcode, Space, Value};
use smallvec::SmallVec;

/// How *full* is signalled.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Full {
    /// Transaction bytes of TMA loads.
    Tx,
    /// Commit of matrix instructions.
    Commit,
    /// Arrival of that many threads.
    Arrive(u32),
}

/// How a consumer frees the slot.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Free {
    /// Commit of matrix instructions.
    Commit,
    /// Arrival of that many threads.
    Arrive(u32),
    /// The issuing lane, after its bulk group has read the slot.
    Bulk,
}

impl Free {
    /// Arrivals per phase.
    pub fn count(self) -> u32 {
        match self {
            Free::Arrive(n) => n,
            Free::Commit | Free::Bulk => 1,
        }
    }
}

/// Fence before an arriving commit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Publish {
    /// None.
    None,
    /// Generic writes read by the asynchronous proxy.
    Proxy,
    /// Tensor-memory stores.
    Tmem,
}

/// One consuming agent.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// Who.
    pub agent: Agent,
    /// Its reading ops.
    pub ops: Vec<Op>,
    /// How it frees the slot.
    pub free: Free,
}

/// A bundle of channels: one barrier pair per slot.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Payload, one web per member.
    pub webs: SmallVec<[WebId; 2]>,
    /// It advances once per execution of this block.
    pub home: Block,
    /// Producing agent.
    pub producer: Agent,
    /// Writing ops.
    pub produce_ops: Vec<Op>,
    /// Consumers.
    pub consumers: Vec<Consumer>,
    /// How full is signalled.
    pub full: Full,
    /// Fence of an arriving commit.
    pub publish: Publish,
    /// The home runs at most once per kernel, so slots are never reused.
    pub once: bool,
    /// Slots.
    pub depth: u32,
    /// Least depth by rule R3.
    pub need: u32,
    /// Why it has that depth.
    pub reason: String,
    /// Both sides are whole warps of one agent: this named barrier replaces the mbarriers.
    pub named: Option<u32>,
    /// Offset of the full barriers.
    pub full_at: u32,
    /// Offset of the empty barriers; `None`: slots are never reused.
    pub empty_at: Option<u32>,
}

impl Bundle {
    /// Arrivals on the empty barrier per phase.
    pub fn empty_count(&self) -> u32 {
        self.consumers.iter().map(|c| c.free.count()).sum()
    }

    /// Bytes of one slot.
    pub fn slot_bytes(&self, webs: &Webs) -> u32 {
        self.webs.iter().map(|&w| webs.get(w)).filter(|w| w.space == Space::Smem).map(Web::slot_bytes).sum()
    }

    /// `full` for people.
    pub fn full_text(&self) -> String {
        match self.full {
            Full::Tx => "by transaction bytes".into(),
            Full::Commit => "by commit".into(),
            Full::Arrive(n) => match self.named {
                Some(id) => format!("by named barrier {id} over {n} threads"),
                None => format!("by {n} arrivals"),
            },
        }
    }

    /// `empty` for people.
    pub fn free_text(&self) -> String {
        if self.once {
            return "never (the home runs once)".into();
        }
        let parts: Vec<String> = self
            .consumers
            .iter()
            .map(|c| match c.free {
                Free::Commit => "commit".into(),
                Free::Arrive(n) => format!("{n} arrivals"),
                Free::Bulk => "bulk group read".into(),
            })
            .collect();
        format!("by {}", parts.join(" + "))
    }
}

/// Whether a block runs at most once per kernel.
pub fn runs_once(f: &Function, mut b: Block) -> bool {
    while let Some(op) = f.block_parent(b) {
        if f.opcode(op) == Opcode::For {
            return false;
        }
        match f.op_block(op) {
            Some(p) => b = p,
            None => return true,
        }
    }
    true
}

/// The op of `block` that is `op` or contains it.
pub fn ancestor_in(f: &Function, block: Block, op: Op) -> Option<Op> {
    let mut op = op;
    loop {
        let b = f.op_block(op)?;
        if b == block {
            return Some(op);
        }
        op = f.block_parent(b)?;
    }
}

/// A value without the slices taken of it.
fn root(f: &Function, mut v: Value) -> Value {
    while let Some(op) = f.defining_op(v) {
        if f.opcode(op) != Opcode::ExtractSlice {
            break;
        }
        match f.operands(op).first() {
            Some(&s) => v = s,
            None => break,
        }
    }
    v
}

struct Access {
    op: Op,
    agent: Agent,
    value: Value,
}

/// Finds all channels and bundles them, in program order of their first producer op.
///
/// # Errors
/// `E0602`–`E0604` for hand-overs that have no channel form.
pub fn find(f: &Function, plan: &AgentPlan, webs: &Webs) -> CodegenResult<Vec<Bundle>> {
    let ops = f.all_ops();
    let mut writes: Vec<Vec<Access>> = webs.iter().map(|_| Vec::new()).collect();
    let mut reads: Vec<Vec<Access>> = webs.iter().map(|_| Vec::new()).collect();
    for &op in &ops {
        let Some(agent) = plan.op_agent[op].expand() else { continue };
        let mut add = |list: &mut Vec<Vec<Access>>, v: Value| {
            if let Some(w) = webs.of(v) {
                list[w.0 as usize].push(Access { op, agent, value: root(f, v) });
            }
        };
        match f.opcode(op) {
            Opcode::AsyncTiledTmaLoad => f.results(op).iter().for_each(|&v| add(&mut writes, v)),
            Opcode::AsyncDot => {
                for name in ["a", "b"] {
                    if let Some(v) = f.named_operand(op, name) {
                        add(&mut reads, v);
                    }
                }
                f.results(op).iter().for_each(|&v| add(&mut writes, v));
            }
            Opcode::AsyncTiledTmaStore => {
                if let Some(v) = f.named_operand(op, "source") {
                    add(&mut reads, v);
                }
            }
            Opcode::Copy => {
                if let Some(v) = f.named_operand(op, "source")
                    && !is_constant(f, v)
                {
                    add(&mut reads, v);
                }
                if let Some(v) = f.named_operand(op, "dest") {
                    add(&mut writes, v);
                }
                f.results(op).iter().for_each(|&v| add(&mut writes, v));
            }
            _ => {}
        }
    }
    let mut found: Vec<Bundle> = Vec::new();
    for (id, w) in webs.iter() {
        let (writes, reads) = (&writes[id.0 as usize], &reads[id.0 as usize]);
        if writes.is_empty() {
            if let Some(r) = reads.first() {
                return Err(CodegenError::new(
                    Code::E0602,
                    f.op_loc(r.op),
                    "reads storage that nothing writes",
                ));
            }
            continue;
        }
        one_web(f, plan, id, w, writes, reads, &mut found)?;
    }
    let position = |op: Op| ops.iter().position(|&o| o == op).unwrap_or(usize::MAX);
    found.sort_by_key(|b| b.produce_ops.iter().map(|&o| position(o)).min());
    // Bundle transaction channels that agree in everything but the payload.
    let mut out: Vec<Bundle> = Vec::new();
    for b in found {
        let same = |x: &Bundle| {
            x.full == Full::Tx
                && b.full == Full::Tx
                && x.home == b.home
                && x.producer == b.producer
                && x.consumers.len() == b.consumers.len()
                && x.consumers.iter().zip(&b.consumers).all(|(p, q)| p.agent == q.agent && p.free == q.free)
        };
        match out.iter_mut().find(|x| same(x)) {
            Some(x) => {
                x.webs.extend(b.webs);
                x.produce_ops.extend(b.produce_ops);
                for (p, q) in x.consumers.iter_mut().zip(b.consumers) {
                    p.ops.extend(q.ops);
                    p.ops.sort_unstable();
                    p.ops.dedup();
                }
            }
            None => out.push(b),
        }
    }
    Ok(out)
}

fn one_web(
    f: &Function,
    plan: &AgentPlan,
    id: WebId,
    w: &Web,
    writes: &[Access],
    reads: &[Access],
    found: &mut Vec<Bundle>,
) -> CodegenResult<()> {
    let is_dot = |a: &Access| f.opcode(a.op) == Opcode::AsyncDot;
    let threads = |a: Agent| plan.agents[a].warps * 32;
    let fail = |op: Op, m: String| Err(CodegenError::new(Code::E0603, f.op_loc(op), m));
    // A web written by registers first and by matrix instructions then is handed over in between.
    let (dots, other): (Vec<&Access>, Vec<&Access>) = writes.iter().partition(|a| is_dot(a));
    let mut groups: Vec<(Vec<&Access>, Vec<&Access>)> = Vec::new();
    if !dots.is_empty() && !other.is_empty() {
        groups.push((other, dots.clone()));
        groups.push((dots, reads.iter().collect()));
    } else {
        groups.push((writes.iter().collect(), reads.iter().collect()));
    }
    for (producers, consumers) in groups {
        let Some(first) = producers.first() else { continue };
        if consumers.is_empty() {
            continue;
        }
        if let Some(p) = producers.iter().find(|p| p.agent != first.agent) {
            return fail(p.op, "storage is written by two agents without a hand-over between them".into());
        }
        let by_dots = is_dot(first);
        let home = if by_dots {
            let value = consumers[0].value;
            if let Some(c) = consumers.iter().find(|c| c.value != value) {
                return fail(c.op, "an accumulator is read at two points of its life; only its final value can be handed over".into());
            }
            match f.defining_op(value).and_then(|op| f.op_block(op)) {
                Some(b) => b,
                None => return fail(
                    consumers[0].op,
                    "an accumulator is read inside the loop that updates it; this hand-over is unsupported"
                        .into(),
                ),
            }
        } else {
            let Some(b) = f.op_block(first.op) else { continue };
            if let Some(p) = producers.iter().find(|p| f.op_block(p.op) != Some(b)) {
                return fail(p.op, "the parts of one tile are written in different regions".into());
            }
            b
        };
        for c in &consumers {
            if ancestor_in(f, home, c.op).is_none() {
                return fail(c.op, "the tile is used outside the region that produces it".into());
            }
        }
        for p in &producers {
            if ancestor_in(f, home, p.op).is_none() {
                return fail(p.op, "the tile is written outside the region that hands it over".into());
            }
        }
        let mut list: Vec<Consumer> = Vec::new();
        for c in &consumers {
            let free = match f.opcode(c.op) {
                Opcode::AsyncDot => Free::Commit,
                Opcode::AsyncTiledTmaStore => Free::Bulk,
                _ => Free::Arrive(threads(c.agent)),
            };
            match list.iter_mut().find(|x| x.agent == c.agent) {
                Some(x) if x.free == free => x.ops.push(c.op),
                Some(_) => {
                    return fail(
                        c.op,
                        "one agent reads the tile both with registers and with an asynchronous engine".into(),
                    );
                }
                None => list.push(Consumer { agent: c.agent, ops: vec![c.op], free }),
            }
        }
        for c in &mut list {
            c.ops.dedup();
        }
        let full = match f.opcode(first.op) {
            Opcode::AsyncTiledTmaLoad => Full::Tx,
            Opcode::AsyncDot => Full::Commit,
            _ => Full::Arrive(threads(first.agent)),
        };
        let publish = match (full, w.space) {
            (Full::Arrive(_), Space::Tmem) => Publish::Tmem,
            (Full::Arrive(_), _) => Publish::Proxy,
            _ => Publish::None,
        };
        // A hand-over between threads of one agent, such as a staging tile that its issuing lane stores.
        let inside = matches!(full, Full::Arrive(_))
            && !plan.agents[first.agent].elect
            && list.iter().all(|c| c.agent == first.agent);
        let named = inside.then(|| 1 + first.agent.as_u32()).filter(|&n| n < 16);
        found.push(Bundle {
            webs: SmallVec::from_slice(&[id]),
            home,
            producer: first.agent,
            produce_ops: producers.iter().map(|p| p.op).collect(),
            consumers: list,
            full,
            publish,
            once: runs_once(f, home),
            depth: 1,
            need: 1,
            reason: String::new(),
            named,
            full_at: 0,
            empty_at: None,
        });
    }
    Ok(())
}
