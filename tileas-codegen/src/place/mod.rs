//! Where every tile value lives: spaces, layouts, explicit copies, slices, TMA stores.
//!
//! In: a prepared function in value form and its [`AgentPlan`]. Out: a new function in which every tile has a space and a
//! layout and every move between spaces is an op, with the plan extended to the new ops.
//!
//! - Matrix operands are in shared memory, in the swizzle of the descriptor that loads them; a computed operand is
//!   copied there. Accumulators are in the target's home of accumulators, along loops and conditionals as well.
//! - Everything else is in registers, in chains (see [`chains`]); where one rule does not do for a whole chain, each tile has a layout of
//!   its own (`assign`), and conversions stand between them. A chain over `slice_regs` registers per thread is
//!   cut along its columns: all ops of slice k precede those of slice k + 1, except where an op in between takes or
//!   overwrites what the chain writes or reads; there all slices so far are finished first. Slices that are equal but
//!   for their offsets are one loop over their number, marked `slices` (see [`roll`]).
//! - A value that enters an accumulator from registers is copied there directly before the op that
//!   takes it: into a new `alloc_tensor` where no accumulator of the same tied set is live, as a value
//!   (`%w = copy %x`) where one is and the chain is whole, and onto that accumulator slice by slice
//!   (`copy %x0, %s <{offsets}>`) where the chain is sliced; the op then takes the accumulator itself.
//! - A zero that an accumulator starts from stays a `constant` in that space, which occupies nothing, as long as
//!   one loop updates it by dots alone. Where a register op reads or writes the carried value, an arm may leave it
//!   as it is or a second loop goes on with it, zeros are really stored, like any other start.
//! - A store of rows to a view of rank 2 or more becomes a descriptor, a copy to shared memory and a TMA store.
//!   Coalesced chains (neither tensor nor shared memory, no broadcast) load and store directly.
//!
//! Guarantees: source locations and names are kept (`%x` becomes `%x_0`, `%x_1`, … when sliced); dead pure ops are
//! gone; output depends on the input alone. Cost: linear in the ops of the result.

mod assign;
pub mod chains;
pub mod dce;
mod derive;
mod emit;
mod operands;
pub mod pressure;

use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::Function;
use crate::isa::TargetIsa;
use crate::plan::{AgentKind, AgentPlan};
use crate::storage::classify::Classes;

/// Choices of `place_in`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PlaceOptions {
    /// 32-bit registers per thread that the widest tile of one slice may take. Default: 64.
    pub slice_regs: u32,
    /// Least slices that become a loop, where they are equal but for their offsets; 0: none. Default: 2.
    pub roll_slices: u32,
    /// Stores of rows go through TMA where they can. Default: true.
    pub tma_rewrite: bool,
}

impl Default for PlaceOptions {
    fn default() -> Self {
        PlaceOptions { slice_regs: 64, roll_slices: 2, tma_rewrite: true }
    }
}

/// Places all tiles of a kernel, in the memory of a function that is no longer needed.
///
/// # Errors
/// `E0501` to `E0507` for kernels that cannot be placed, `E0509` for a plan made for another kernel,
/// `E0804` for parameters that are tiles.
pub fn place_in(
    func: &Function,
    classes: &Classes,
    mut plan: AgentPlan,
    isa: &dyn TargetIsa,
    opts: &PlaceOptions,
    spare: Option<Function>,
) -> CodegenResult<(Function, AgentPlan)> {
    if let Some(&v) = func.params().iter().find(|&&v| func.value_data(v).is_tile()) {
        let text = format!("a kernel parameter of type {} cannot be passed", func.value_data(v));
        return Err(CodegenError::new(Code::E0804, func.loc, text));
    }
    let mut func = func.copy_in(spare);
    let warps = plan
        .agents
        .values()
        .find(|a| a.kind == AgentKind::Simt)
        .map_or(isa.machine().limits.warpgroup_warps, |a| a.warps)
        .max(1);
    let layouts = operands::matrix_layouts(&func, classes, isa, warps)?;
    let inputs = chains::Inputs { func: &func, classes, layouts: &layouts, warps, isa, opts };
    let chains = chains::Chains::find(&inputs)?;
    if let Some(&op) = chains.ops.iter().find(|&&op| plan.op_agent[op].is_none()) {
        return Err(CodegenError::new(
            Code::E0509,
            func.op_loc(op),
            format!("the plan gives `{}` no agent", func.opcode(op).name()),
        ));
    }
    emit::Placer::new(&mut func, &mut plan, classes, &chains, &layouts, isa, opts).run()?;
    dce::remove_dead(&mut func);
    Ok((func, plan))
}
