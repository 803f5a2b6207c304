//! What a host needs to launch a kernel.
//!
//! In: a materialised kernel and its ABI. Out: [`LaunchMetadata`]. Elsewhere: its text, launches (`tileas-launch`).

use super::{Lower, params};
use crate::error::CodegenResult;
use crate::ir::{Function, Op, Opcode, TypeData, Value, keys};
use smallvec::SmallVec;
use tileas_launch::{Expr, LaunchMetadata};

/// `value = k · program_id(axis) + …`: the axis and k.
fn program_axis(f: &Function, v: Value) -> Option<(i64, i64)> {
    let op = f.defining_op(v)?;
    match f.opcode(op) {
        Opcode::ProgramId => Some((f.attr_int(op, keys::AXIS)?, 1)),
        // A bound that keeps a coordinate from wrapping around.
        Opcode::Mini => program_axis(f, *f.operands(op).first()?),
        Opcode::Addi => {
            let [a, b] = *f.operands(op) else { return None };
            program_axis(f, a).or_else(|| program_axis(f, b))
        }
        Opcode::Muli => {
            let [a, b] = *f.operands(op) else { return None };
            let (v, k) = if f.constant_value(b).is_some() { (a, b) } else { (b, a) };
            let (axis, n) = program_axis(f, v)?;
            Some((axis, n.checked_mul(f.constant_value(k)? as i64)?))
        }
        _ => None,
    }
}

impl Lower<'_> {
    /// Collects the metadata after lowering.
    pub(super) fn metadata(&mut self) -> CodegenResult<LaunchMetadata> {
        let (mut requires, (grid, grid_follows)) = (self.abi.requires(), self.grid());
        for r in std::mem::take(&mut self.requires) {
            if !requires.contains(&r) {
                requires.push(r);
            }
        }
        let (args, params, tensor_maps) = self.abi.describe();
        Ok(LaunchMetadata {
            kernel: self.f.name.clone(),
            target: self.isa.cpu().name.into(),
            ptx_version: (0, 0),
            block: [self.kernel_int(keys::NUM_THREADS).unwrap_or(32), 1, 1],
            cluster: self.b.func.launch.cluster.unwrap_or([1; 3]),
            grid,
            grid_follows,
            dynamic_smem: self.kernel_int(keys::DYNAMIC_SMEM).unwrap_or(0),
            tmem_columns: self.kernel_int(keys::TMEM_COLUMNS).unwrap_or(0),
            named_barriers: 1 + self.named_barriers(),
            setmaxnreg: self.register_budgets(),
            args,
            params,
            tensor_maps,
            requires,
        })
    }

    /// Named barriers of pipelines, and of warps among themselves.
    fn named_barriers(&self) -> u32 {
        let mut named: SmallVec<[u32; 16]> = self.pipes.iter().filter_map(|p| p.named).collect();
        named.extend(self.scratches.iter().flatten().map(|s| s.named));
        // Two for turns.
        let turns = self.f.ops().filter_map(|op| self.f.attr_int(op, keys::GIVES_TURN));
        named.extend(turns.filter_map(|n| u32::try_from(n).ok()).flat_map(|n| [n, n + 1]));
        named.sort_unstable();
        named.dedup();
        named.len() as u32
    }

    fn register_budgets(&self) -> Option<Vec<u32>> {
        let f = self.f;
        let switch = f.block_ops(f.entry()).find(|&o| f.opcode(o) == Opcode::AsyncPipelineAgentSwitch)?;
        let budgets = f.attr_ints(switch, keys::MAX_REGS)?;
        budgets.iter().any(|&n| n > 0).then(|| budgets.iter().map(|&n| n.max(0) as u32).collect())
    }

    /// A kernel attribute.
    pub(super) fn kernel_int(&self, key: crate::ir::Sym) -> Option<u32> {
        match self.f.attr_data(self.f.attrs.get(key)?) {
            crate::ir::AttrData::Int(v, _) => u32::try_from(*v).ok(),
            _ => None,
        }
    }

    /// The suggested grid, and whether it follows along all axes that the kernel asks about.
    fn grid(&self) -> ([Expr; 3], bool) {
        let f = self.f;
        let mut grid = [const { Expr::Int(1) }; 3];
        let mut done = [false; 3];
        for op in f.ops() {
            match f.opcode(op) {
                Opcode::For => self.persistent_axis(op, &mut grid, &mut done),
                Opcode::AsyncTiledTmaStore | Opcode::TiledStore => {
                    let Some((view, dims)) = self.store_target(op) else { continue };
                    let info = &self.abi.views[view];
                    for (d, &c) in f.named_segment(op, "coords").iter().enumerate() {
                        let Some((axis @ 0..=2, k)) = program_axis(f, c) else { continue };
                        if !done[axis as usize]
                            && let Some(&extent) = dims.get(d)
                            && let Some(dim) = info.extent(d)
                        {
                            done[axis as usize] = true;
                            let step = i64::from(extent).saturating_mul(k);
                            grid[axis as usize] = Expr::ceil_div(dim, Expr::Int(step));
                        }
                    }
                }
                _ => {}
            }
        }
        let asks = |op: Op| {
            let which =
                matches!(f.opcode(op), Opcode::ProgramId).then(|| f.attr_int(op, keys::AXIS)).flatten();
            which.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < 3)
        };
        (grid, f.ops().filter_map(asks).all(|axis| done[axis]))
    }

    /// `for %t = program_id(a) to T step num_programs(a)`: as many CTAs as there are SMs, but no more than tiles.
    fn persistent_axis(&self, op: Op, grid: &mut [Expr; 3], done: &mut [bool; 3]) {
        let f = self.f;
        let [lo, hi, step, ..] = *f.operands(op) else { return };
        let of = |v: Value, code: Opcode| {
            let d = f.defining_op(v)?;
            (f.opcode(d) == code).then(|| f.attr_int(d, keys::AXIS)).flatten()
        };
        if let (Some(a @ 0..=2), Some(b)) = (of(lo, Opcode::ProgramId), of(step, Opcode::NumPrograms))
            && a == b
            && f.exit_of(op).is_none()
            && !done[a as usize]
        {
            done[a as usize] = true;
            grid[a as usize] = match params::expression(f, &self.abi, hi, 16) {
                Some(e) => Expr::Min(vec![Expr::Sms, e]),
                None => Expr::Sms,
            };
        }
    }

    fn store_target(&self, op: Op) -> Option<(usize, &[u32])> {
        let f = self.f;
        if f.opcode(op) == Opcode::TiledStore {
            let view = self.abi.view_index(f.named_operand(op, "view")?)?;
            let dims = f.value_data(f.named_operand(op, "value")?).dims()?;
            return Some((view, dims));
        }
        let desc = f.defining_op(f.named_operand(op, "desc")?)?;
        let view = self.abi.view_index(f.named_operand(desc, "view")?)?;
        match f.value_data(f.result(desc)?) {
            TypeData::TmaDesc { dims, .. } => Some((view, dims)),
            _ => None,
        }
    }
}
