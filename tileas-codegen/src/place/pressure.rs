//! Registers of tiles that are alive together in a placed function.
//!
//! In: the placed function, its agents and the warps that hold its tiles. Out: 32-bit registers per thread at the worst point, in program order, of
//! the agent that holds most, without scalars, addresses and what single ops need beside their operands ([`RESERVE`] stands for that). A tile that a loop carries counts
//! once. Cost: linear in ops and uses.

use crate::ir::layouts::registers_per_thread;
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Layout, Op, Opcode, Space, TypeData, Value, ValueDef};
use crate::plan::{Agent, AgentKind, AgentPlan};
use crate::storage::classify::{Classes, ValueClass, home, is_product};
use cranelift_entity::{EntityRef, SecondaryMap};

/// Registers of a thread that are not for tiles.
pub const RESERVE: u32 = 40;

/// Registers of the default agent from which on a tile is worth a closer look.
const WIDE: u64 = 64;

/// Whether some register tile takes so many registers that more warps may be worth it. Tensor memory is moved by four.
pub fn is_wide(func: &Function, classes: &Classes) -> bool {
    let mut wide = false;
    for i in 0..func.num_values() {
        let v = Value::new(i);
        match classes.class(v) {
            ValueClass::Acc => return false,
            ValueClass::Reg => {
                let data = func.value_data(v);
                let bits = data.elem().map_or(32, |e| u64::from(e.bits().max(8)));
                wide |= data.num_elements().unwrap_or(0).saturating_mul(bits) >= WIDE * 32 * 128;
            }
            _ => {}
        }
    }
    wide
}

/// Whether some register tile has a layout of those that slices have; where each tile has one of its own there are none.
pub fn is_sliceable(placed: &Function) -> bool {
    (0..placed.num_values()).any(|i| match placed.value_data(Value::new(i)) {
        TypeData::Tile { space: Some(Space::Rmem), layout: Some(l), .. } => !matches!(l, Layout::Bits(_)),
        _ => false,
    })
}

struct Lives<'a> {
    func: &'a Function,
    plan: &'a AgentPlan,
    agent: Agent,
    warps: u32,
    beside: u32,
    /// Number of an op in its block.
    position: SecondaryMap<Op, u32>,
    /// Number of the last op of the value's block that uses it, itself or inside of it; its own where none does.
    last: SecondaryMap<Value, u32>,
}

/// Registers per thread of all tiles of an agent that are alive together, at most; `beside`: what products onto registers take besides, in
/// the blocks in which they stand; and what is kept free where there are none.
pub fn peak(func: &Function, plan: &AgentPlan, warps: u32, beside: u32) -> u32 {
    plan.all(AgentKind::Simt).map(|agent| peak_of(func, plan, agent, warps, beside)).max().unwrap_or(0)
}

fn peak_of(func: &Function, plan: &AgentPlan, agent: Agent, warps: u32, beside: u32) -> u32 {
    let sums = beside > 0
        && func.ops().any(|op| is_product(func, op) && plan.op_agent[op].expand().is_none_or(|a| a == agent));
    let mut lives = Lives {
        func,
        plan,
        agent,
        warps,
        beside: if sums { beside } else { 0 },
        position: SecondaryMap::new(),
        last: SecondaryMap::new(),
    };
    lives.position.resize(func.num_ops());
    lives.last.resize(func.num_values());
    lives.number(func.entry());
    for op in func.ops() {
        for (n, &v) in func.operands(op).iter().enumerate() {
            // What a loop begins with is what it carries.
            if func.opcode(op) == Opcode::For && n >= 3 {
                continue;
            }
            let Some(user) = home(func, v).and_then(|b| func.ancestor_in(op, b)) else { continue };
            let at = lives.position[user];
            lives.last[v] = lives.last[v].max(at);
        }
    }
    lives.block(func.entry()).saturating_add(if sums { 0 } else { beside })
}

impl Lives<'_> {
    fn number(&mut self, block: Block) {
        for (n, op) in self.func.block_ops(block).enumerate() {
            // Parameters are there before the first op.
            self.position[op] = n as u32 + 1;
            for &v in self.func.results(op) {
                self.last[v] = self.last[v].max(n as u32 + 1);
            }
            for r in 0..self.func.regions(op).len() {
                if let Some(b) = self.func.op_block_at(op, r) {
                    self.number(b);
                }
            }
        }
    }

    /// Whether another agent holds a value. What a loop carries is of who makes the next.
    fn is_others(&self, v: Value) -> bool {
        let func = self.func;
        let made = |v: Value| func.defining_op(v).and_then(|op| self.plan.op_agent[op].expand());
        let carried = |l: Op, n: usize| {
            let y = func.op_block_at(l, 0).and_then(|b| func.last_op(b))?;
            made(*func.operands(y).get(n)?)
        };
        let by = match func.value_def(v) {
            ValueDef::Param(b, n) => {
                func.block_parent(b).and_then(|l| carried(l, (n as usize).checked_sub(1)?))
            }
            ValueDef::Result(op, n) if func.opcode(op) == Opcode::For => carried(op, n as usize),
            ValueDef::Result(..) => made(v),
        };
        by.is_some_and(|a| a != self.agent)
    }

    fn registers(&self, v: Value) -> u32 {
        if self.is_others(v) {
            return 0;
        }
        match self.func.value_data(v) {
            TypeData::Tile { dims, elem, space: Some(Space::Rmem), layout: Some(layout) } => {
                // Constants and splats are one register.
                let def = self.func.defining_op(v);
                let leaf = def.map(|op| self.func.opcode(op));
                // What is repeated is so in name only.
                if let (Some(Opcode::Broadcast), Some(op)) = (leaf, def)
                    && let Some(&source) = self.func.operands(op).first()
                {
                    return self.registers(source);
                }
                // A part of what is alive around the block is no other registers.
                if let (Some(Opcode::ExtractSlice), Some(op), true) = (leaf, def, self.beside > 0)
                    && let Some(&source) = self.func.operands(op).first()
                    && home(self.func, source) != self.func.op_block(op)
                {
                    return 0;
                }
                if matches!(leaf, Some(Opcode::Constant | Opcode::Splat)) {
                    return 1;
                }
                let n = registers_per_thread(*layout, dims, *elem, self.warps).unwrap_or(0);
                // What is computed element by element on the way to memory the assembler computes in pieces: with ptxas 13.5 a strip of 64 registers, with bias
                // and clamped, takes some 16 beside the sums.
                let piece = |op: Op| {
                    let around = self.func.op_block(op).and_then(|b| self.func.block_parent(b));
                    self.func.opcode(op).has(Traits::ELEMENTWISE)
                        && around.is_some_and(|l| self.func.is_slice_loop(l))
                };
                if self.beside > 0 && def.is_some_and(piece) { n.div_ceil(4) } else { n }
            }
            _ => 0,
        }
    }

    /// Of a block, with what lies inside of its ops.
    fn block(&self, block: Block) -> u32 {
        let func = self.func;
        let ops: Vec<Op> = func.block_ops(block).collect();
        // By position: what begins and what ends there.
        let mut ends = vec![0u32; ops.len() + 2];
        let mut live = 0u32;
        for &v in func.block_params(block) {
            let n = self.registers(v);
            live = live.saturating_add(n);
            if let Some(e) = ends.get_mut(self.last[v] as usize) {
                *e = e.saturating_add(n);
            }
        }
        let mut most = live;
        let multiplies = self.beside > 0 && ops.iter().any(|&op| is_product(func, op));
        live = live.saturating_sub(ends[0]);
        for (n, &op) in ops.iter().enumerate() {
            let at = n + 1;
            let inside = (0..func.regions(op).len())
                .filter_map(|r| func.op_block_at(op, r))
                .map(|b| self.block(b))
                .max()
                .unwrap_or(0);
            most = most.max(live.saturating_add(inside));
            let mut made = 0u32;
            for &v in func.results(op) {
                let n = self.registers(v);
                made = made.saturating_add(n);
                if let Some(e) = ends.get_mut(self.last[v] as usize) {
                    *e = e.saturating_add(n);
                }
            }
            // What an op reads last it may write over.
            live = live.saturating_add(made).saturating_sub(ends[at]);
            most = most.max(live);
        }
        most.saturating_add(if multiplies { self.beside } else { 0 })
    }
}
