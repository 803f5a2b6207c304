//! What an agent's region must contain: its own ops and all uniform values, regions and flags they rest on.
//!
//! In: the placed function, an agent. Out: [`Needs`]. A scalar that another agent reads from memory is *received*: it
//! stands in the block of its source, whose regions the agent then keeps. What is computed from it is cloned like any
//! uniform value. Errors: E0605 where a register tile of another agent is needed. Cost: linear in the ops.

use crate::agents::{Agent, AgentPlan};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Function, Op, Opcode, Value, ValueDef};
use crate::storage::access::{is_name, is_stored};
use crate::storage::classify::is_scalar_source;
use crate::storage::flag::{Flag, flag_for, flag_of};
use cranelift_entity::{EntitySet, SecondaryMap};

/// Values, flags and ops one agent needs.
#[derive(Clone, Default)]
pub struct Needs {
    /// Register and scalar values.
    pub values: EntitySet<Value>,
    /// Stored values whose "written" flag is carried; arguments stand for their loop's results.
    pub flags: EntitySet<Value>,
    /// Uniform ops to clone and region ops to keep.
    pub ops: EntitySet<Op>,
    /// Region ops that contain ops of the agent.
    pub own_regions: EntitySet<Op>,
    /// Whether what is cloned may rest on items: some value is a scalar that was read from memory, here or in another
    /// agent, or what a loop or branch hands on.
    pub clones_after_items: bool,
    /// Scalars that another agent sends, by their sources in program order.
    pub received: Vec<Received>,
}

impl Needs {
    fn with_room(func: &Function) -> Needs {
        let (ops, values) = (func.num_ops(), func.num_values());
        Needs {
            values: EntitySet::with_capacity(values),
            ops: EntitySet::with_capacity(ops),
            own_regions: EntitySet::with_capacity(ops),
            ..Needs::default()
        }
    }
}

/// A scalar that comes from another agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The op that makes it, in its agent.
    pub source: Op,
    /// Items of the source's block that rest on it; none if only what the block yields does.
    pub users: Vec<Op>,
}

struct Walk<'a> {
    func: &'a Function,
    plan: &'a AgentPlan,
    agent: Agent,
    needs: Needs,
    error: Option<CodegenError>,
}

/// Computes what `agent` needs.
///
/// # Errors
/// E0605.
pub fn compute(func: &Function, plan: &AgentPlan, agent: Agent) -> CodegenResult<Needs> {
    let mut w = Walk { func, plan, agent, needs: Needs::with_room(func), error: None };
    for op in func.ops() {
        if plan.op_agent[op].expand() == Some(agent) {
            w.root(op);
        }
    }
    match w.error {
        Some(e) => Err(e),
        None => {
            let mut needs = w.needs;
            needs.clones_after_items |= clones_regions(func, &needs);
            if needs.received.is_empty() {
                return Ok(needs);
            }
            let mut received = std::mem::take(&mut needs.received);
            let mut place: SecondaryMap<Op, u32> = SecondaryMap::new();
            func.ops().zip(0..).for_each(|(op, n)| place[op] = n);
            received.sort_by_key(|r| place[r.source]);
            for r in &mut received {
                r.users = users_of(func, plan, &needs, agent, r.source);
            }
            needs.received = received;
            Ok(needs)
        }
    }
}

/// Whether a loop or branch makes what clones rest on at other times than they stand in the text: in a block of a loop, whose
/// local stages may know what it rests on at different times, one in which the agent runs nothing of its own, or one that
/// results in a scalar; anywhere, one without ops of the agent that results in a register tile.
fn clones_regions(func: &Function, needs: &Needs) -> bool {
    let region = |&op: &Op| matches!(func.opcode(op), Opcode::For | Opcode::If) && needs.ops.contains(op);
    let late = |op: Op| {
        let mut results = func.results(op).iter().filter(|&&v| needs.values.contains(v));
        let tile = |v: &Value| func.value_data(*v).is_tile();
        match (needs.own_regions.contains(op), func.op_parent(op).is_some()) {
            (true, true) => results.any(|v| !tile(v)),
            (true, false) => false,
            (false, true) => true,
            (false, false) => results.any(tile),
        }
    };
    func.ops().filter(region).any(late)
}

/// Visits what an op and everything inside it rest on: operands, and the values that "written" flags are made from.
pub fn for_each_use(func: &Function, op: Op, f: &mut impl FnMut(Value)) {
    let mut visit = |o: Op| {
        func.operands(o).iter().for_each(|&v| f(v));
        if let Some(flag) = flag_for(func, o) {
            flag_values(func, &flag, f);
        }
    };
    visit(op);
    for &r in func.regions(op) {
        func.walk(func.region_block(r), &mut visit);
    }
}

/// The scalars from which a flag is computed where it is used.
fn flag_values(func: &Function, flag: &Flag, f: &mut impl FnMut(Value)) {
    match flag {
        Flag::Never | Flag::Always | Flag::Carried(_) => {}
        Flag::NotFirst(l) => func.named_operand(*l, "lower").into_iter().for_each(f),
        Flag::Trips(l) => {
            ["lower", "upper"].into_iter().filter_map(|n| func.named_operand(*l, n)).for_each(f);
        }
        Flag::Or(a, b) => {
            flag_values(func, a, f);
            flag_values(func, b, f);
        }
    }
}

/// Whether an op is one of the things an agent runs in its block, in the order of a plan.
pub fn is_item(func: &Function, plan: &AgentPlan, needs: &Needs, agent: Agent, op: Op) -> bool {
    runs(func, plan, agent, op) || needs.own_regions.contains(op)
}

/// Whether an op is the agent's and comes to something: what only names a part of a stored tile has a start in a
/// schedule, but takes part in no local stage.
pub fn runs(func: &Function, plan: &AgentPlan, agent: Agent, op: Op) -> bool {
    plan.op_agent[op].expand() == Some(agent) && !is_name(func, op)
}

/// The items of the source's block that rest on what it makes, directly or through cloned ops.
fn users_of(func: &Function, plan: &AgentPlan, needs: &Needs, agent: Agent, source: Op) -> Vec<Op> {
    let Some(block) = func.op_block(source) else { return Vec::new() };
    let mut from: EntitySet<Value> = EntitySet::new();
    func.results(source).iter().for_each(|&v| {
        from.insert(v);
    });
    let mut users = Vec::new();
    for op in func.block_ops(block).skip_while(|&op| op != source).skip(1) {
        let mut uses = false;
        for_each_use(func, op, &mut |v| uses |= from.contains(v));
        if !uses {
            continue;
        }
        if is_item(func, plan, needs, agent, op) {
            users.push(op);
        } else if needs.ops.contains(op) || is_name(func, op) {
            func.results(op).iter().for_each(|&v| {
                from.insert(v);
            });
        }
    }
    users
}

impl Walk<'_> {
    /// The regions around an op are regions of the agent's own.
    fn own_parents(&mut self, op: Op) {
        let mut p = self.func.op_parent(op);
        while let Some(r) = p {
            self.needs.own_regions.insert(r);
            p = self.func.op_parent(r);
        }
        self.parents(op);
    }

    fn root(&mut self, op: Op) {
        self.own_parents(op);
        for &v in self.func.operands(op) {
            self.value(v, op);
        }
        if let Some(f) = flag_for(self.func, op) {
            self.flag_expr(&f, op);
        }
    }

    fn parents(&mut self, op: Op) {
        if let Some(p) = self.func.op_parent(op) {
            self.keep(p);
        }
    }

    fn keep(&mut self, op: Op) {
        if !self.needs.ops.insert(op) {
            return;
        }
        self.parents(op);
        match self.func.opcode(op) {
            Opcode::For => {
                for name in ["lower", "upper", "step"] {
                    if let Some(v) = self.func.named_operand(op, name) {
                        self.value(v, op);
                    }
                }
                // Every agent that runs the loop leaves it at the same time.
                if let Some(exit) = self.func.exit_of(op) {
                    self.keep(exit);
                }
            }
            _ => {
                for &v in self.func.operands(op) {
                    self.value(v, op);
                }
            }
        }
    }

    fn value(&mut self, v: Value, user: Op) {
        let func = self.func;
        if is_stored(func, v) || !self.needs.values.insert(v) {
            return;
        }
        match func.value_def(v) {
            ValueDef::Result(op, n) => match func.opcode(op) {
                Opcode::For => {
                    self.keep(op);
                    let n = n as usize;
                    let parts = [
                        func.named_segment(op, "inits").get(n).copied(),
                        func.for_args(op).get(n).copied(),
                        func.region_yields(op, 0).get(n).copied(),
                    ];
                    parts.into_iter().flatten().for_each(|v| self.value(v, op));
                }
                Opcode::If => {
                    self.keep(op);
                    for r in 0..2 {
                        if let Some(&y) = func.region_yields(op, r).get(n as usize) {
                            self.value(y, op);
                        }
                    }
                }
                _ => match self.plan.op_agent[op].expand() {
                    Some(a) if a == self.agent => self.needs.clones_after_items |= is_scalar_source(func, op),
                    Some(_) if is_scalar_source(func, op) => {
                        self.needs.clones_after_items = true;
                        self.needs.received.push(Received { source: op, users: Vec::new() });
                        self.own_parents(op);
                    }
                    Some(a) => {
                        self.error.get_or_insert_with(|| {
                            CodegenError::new(
                                Code::E0605,
                                func.op_loc(user),
                                format!(
                                    "{} of agent {} uses a register value of agent {}",
                                    func.opcode(user).name(),
                                    self.agent.as_u32(),
                                    a.as_u32()
                                ),
                            )
                            .note(func.op_loc(op), "made here")
                        });
                    }
                    None => self.keep(op),
                },
            },
            ValueDef::Param(b, n) => {
                let Some(op) = func.block_parent(b) else { return };
                self.keep(op);
                if let Some(n) = (n as usize).checked_sub(1) {
                    let init = func.named_segment(op, "inits").get(n).copied();
                    let y = func.region_yields(op, 0).get(n).copied();
                    init.into_iter().chain(y).for_each(|v| self.value(v, op));
                }
            }
        }
    }

    fn flag(&mut self, v: Value, at: Op) {
        let f = flag_of(self.func, v, at);
        self.flag_expr(&f, at);
    }

    fn flag_expr(&mut self, f: &Flag, user: Op) {
        let func = self.func;
        match f {
            Flag::Never | Flag::Always => {}
            Flag::NotFirst(l) => {
                if let Some(b) = func.op_block_at(*l, 0)
                    && let Some(&iv) = func.block_params(b).first()
                {
                    self.value(iv, user);
                }
                if let Some(v) = func.named_operand(*l, "lower") {
                    self.value(v, user);
                }
            }
            Flag::Trips(l) => {
                for name in ["lower", "upper"] {
                    if let Some(v) = func.named_operand(*l, name) {
                        self.value(v, user);
                    }
                }
            }
            Flag::Or(a, b) => {
                self.flag_expr(a, user);
                self.flag_expr(b, user);
            }
            Flag::Carried(v) => {
                let v = canonical(func, *v);
                if !self.needs.flags.insert(v) {
                    return;
                }
                match func.value_def(v) {
                    ValueDef::Result(op, n) => {
                        self.keep(op);
                        for r in 0..2 {
                            if let (Some(&y), Some(t)) =
                                (func.region_yields(op, r).get(n as usize), func.terminator(op, r))
                            {
                                self.flag(y, t);
                            }
                        }
                    }
                    ValueDef::Param(b, n) => {
                        let Some(op) = func.block_parent(b) else { return };
                        self.keep(op);
                        let n = (n as usize).saturating_sub(1);
                        if let Some(&init) = func.named_segment(op, "inits").get(n) {
                            self.flag(init, op);
                        }
                        if let (Some(&y), Some(t)) =
                            (func.region_yields(op, 0).get(n), func.terminator(op, 0))
                        {
                            self.flag(y, t);
                        }
                    }
                }
            }
        }
    }
}

/// A loop's result stands for its argument.
pub fn canonical(func: &Function, v: Value) -> Value {
    if let ValueDef::Result(op, n) = func.value_def(v)
        && func.opcode(op) == Opcode::For
        && let Some(&arg) = func.for_args(op).get(n as usize)
    {
        return arg;
    }
    v
}
