//! What an agent's region must contain: its own ops and all uniform values, regions and flags they rest on.
//!
//! In: the placed function, an agent. Out: [`Needs`]. Errors: E0605 where a register value of another agent is needed.
//! Cost: linear in the ops.

use crate::agents::{Agent, AgentPlan};
use crate::buffers::access::is_stored;
use crate::buffers::webs::{Flag, flag_for, flag_of, for_args, region_yields, terminator};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Function, Op, Opcode, Value, ValueDef};
use cranelift_entity::EntitySet;

/// Values, flags and ops one agent needs.
#[derive(Default)]
pub struct Needs {
    /// Register and scalar values.
    pub values: EntitySet<Value>,
    /// Stored values whose "written" flag is carried; arguments stand for their loop's results.
    pub flags: EntitySet<Value>,
    /// Uniform ops to clone and region ops to keep.
    pub ops: EntitySet<Op>,
    /// Region ops that contain ops of the agent.
    pub own_regions: EntitySet<Op>,
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
    let mut w = Walk { func, plan, agent, needs: Needs::default(), error: None };
    for op in func.ops() {
        if plan.op_agent[op].expand() == Some(agent) {
            w.root(op);
        }
    }
    match w.error {
        Some(e) => Err(e),
        None => Ok(w.needs),
    }
}

impl Walk<'_> {
    fn root(&mut self, op: Op) {
        let mut p = self.func.op_parent(op);
        while let Some(r) = p {
            self.needs.own_regions.insert(r);
            p = self.func.op_parent(r);
        }
        self.parents(op);
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
                        for_args(func, op).get(n).copied(),
                        region_yields(func, op, 0).get(n).copied(),
                    ];
                    parts.into_iter().flatten().for_each(|v| self.value(v, op));
                }
                Opcode::If => {
                    self.keep(op);
                    for r in 0..2 {
                        if let Some(&y) = region_yields(func, op, r).get(n as usize) {
                            self.value(y, op);
                        }
                    }
                }
                _ => match self.plan.op_agent[op].expand() {
                    Some(a) if a == self.agent => {}
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
                    let y = region_yields(func, op, 0).get(n).copied();
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
                                (region_yields(func, op, r).get(n as usize), terminator(func, op, r))
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
                            (region_yields(func, op, 0).get(n), terminator(func, op, 0))
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
        && let Some(&arg) = for_args(func, op).get(n as usize)
    {
        return arg;
    }
    v
}
