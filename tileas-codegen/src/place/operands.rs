//! Matrix operands: which atom computes a dot, how its operands lie in shared memory and its accumulator in
//! its home. Whether the target has the tensor maps that are asked for.
//!
//! Cost: linear in the dots.

use super::chains::rows_columns;
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::layouts::moved_map;
use crate::ir::opcodes::keys;
use crate::ir::{Function, Layout, Op, Opcode, Scalar, Swizzle, TypeData, Value, ValueDef};
use crate::isa::{MmaRequest, TargetIsa};
use crate::layout::LinearMap;
use crate::storage::classify::{Classes, ValueClass};
use cranelift_entity::SecondaryMap;

/// Layouts of shared-memory and tensor-memory tiles.
#[derive(Debug, Default)]
pub(super) struct MatrixLayouts {
    /// Of TMA loads and of accumulators.
    pub(super) of_value: SecondaryMap<Value, Option<Layout>>,
    /// Of each shared-memory operand, in the order of [`Classes::operands`].
    pub(super) of_operand: Vec<Layout>,
}

/// The swizzle of the descriptor an op uses, `none` if it is a parameter's.
fn descriptor_swizzle(func: &Function, op: Op) -> Swizzle {
    func.named_operand(op, "desc")
        .and_then(|d| func.defining_op(d))
        .and_then(|d| func.attr_name(d, keys::SWIZZLE))
        .and_then(Swizzle::from_name)
        .unwrap_or(Swizzle::None)
}

/// Whether the view or the descriptor of an op is known: layouts, tensor maps and the order of accesses follow from which one it is.
fn is_known(func: &Function, op: Op) -> CodegenResult<()> {
    for (name, what) in [("view", "view"), ("desc", "descriptor")] {
        let Some(v) = func.named_operand(op, name) else { continue };
        let chooses = match func.value_def(func.memory_root(v)) {
            ValueDef::Result(by, _)
                if func.opcode(by) == Opcode::MakeTiledTmaDesc || func.makes_pointer(by) =>
            {
                continue;
            }
            ValueDef::Result(by, _) => Some(by),
            ValueDef::Param(block, _) => func.block_parent(block),
        };
        let Some(by) = chooses else { continue };
        let name = func.opcode(by).name();
        let text = match func.value_data(v) {
            TypeData::Ptr { .. } => format!(
                "which of two pointers this goes to is not known before the kernel runs: `{name}` chooses it. Access each in an arm of its own, or \
                 choose between addresses (`ptr_to_int`, then `int_to_ptr` and, where one of the two is written, `may_alias`)"
            ),
            _ => format!(
                "the {what} is not known before the kernel runs: `{name}` chooses it. Access each {what} in an arm of its own"
            ),
        };
        return Err(
            CodegenError::new(Code::E0804, func.op_loc(op), text).note(func.op_loc(by), "chosen here")
        );
    }
    Ok(())
}

/// The widest swizzle for rows of a tile.
pub(super) fn widest_swizzle(func: &Function, v: Value) -> Swizzle {
    let (dims, elem) = (func.value_data(v).dims().unwrap_or(&[]), func.value_data(v).elem());
    Swizzle::widest(rows_columns(dims).1.saturating_mul(elem.map_or(1, Scalar::bytes)))
}

/// Finds the layouts of all tiles in shared and tensor memory.
///
/// # Errors
/// `E0217`, `E0502`, `E0503`, `E0504`; `E0804` where a view or a descriptor is chosen when the kernel runs.
pub(super) fn matrix_layouts(
    func: &Function,
    classes: &Classes,
    isa: &dyn TargetIsa,
    warps: u32,
) -> CodegenResult<MatrixLayouts> {
    let mut out = MatrixLayouts::default();
    out.of_value.resize(func.num_values());
    for op in func.ops() {
        is_known(func, op)?;
        for &v in func.results(op) {
            match classes.class(v) {
                ValueClass::Acc => out.of_value[v] = acc_layout(func, v, isa, warps),
                ValueClass::Smem => fits(func, op, v, descriptor_swizzle(func, op))?,
                _ => {}
            }
        }
        for r in 0..func.regions(op).len() {
            let Some(block) = func.op_block_at(op, r) else { continue };
            for &v in func.block_params(block) {
                if classes.class(v) == ValueClass::Acc {
                    out.of_value[v] = acc_layout(func, v, isa, warps);
                }
            }
        }
        match func.opcode(op) {
            Opcode::AsyncDot => check_atom(func, op, isa, warps)?,
            Opcode::MakeTiledTmaDesc => check_box(func, op, isa)?,
            _ => {}
        }
    }
    for operand in &classes.operands {
        let (op, v) = (operand.op, operand.value);
        let load = func.defining_op(v).filter(|_| classes.class(v) == ValueClass::Smem);
        let swizzle = match load {
            Some(load) => descriptor_swizzle(func, load),
            None if func.opcode(op) == Opcode::AsyncTiledTmaStore => descriptor_swizzle(func, op),
            None => widest_swizzle(func, v),
        };
        let layout = match (func.opcode(op), operand.operand) {
            (Opcode::AsyncTiledTmaStore, _) => {
                let wanted = descriptor_swizzle(func, op);
                fits(func, op, v, wanted)?;
                if wanted != swizzle {
                    return Err(two_layouts(func, op, v, Layout::SmemK(swizzle), Layout::SmemK(wanted)));
                }
                // A store reads bytes: whichever major order a dot asked for is the same to it. An accumulator is copied.
                match out.of_value[v].filter(|_| load.is_some()) {
                    Some(l) => l,
                    None => Layout::SmemK(swizzle),
                }
            }
            (_, 0) if func.has_attr(op, keys::TRANSPOSE_A) => Layout::SmemMn(swizzle),
            (_, 0) => Layout::SmemK(swizzle),
            _ if func.has_attr(op, keys::TRANSPOSE_B) => Layout::SmemK(swizzle),
            _ => Layout::SmemMn(swizzle),
        };
        if load.is_some() {
            let stores_only = func.opcode(op) == Opcode::AsyncTiledTmaStore;
            match out.of_value[v] {
                // Which axis of K and the other one a product takes as the inner one is said by the product: the bytes are the same.
                Some(before) if before.swizzle() != layout.swizzle() && !stores_only => {
                    return Err(two_layouts(func, op, v, before, layout));
                }
                Some(_) => {}
                None if stores_only => {}
                None => out.of_value[v] = Some(layout),
            }
        }
        out.of_operand.push(layout);
    }
    // Loads that only registers or stores read.
    for op in func.ops() {
        if let (Opcode::AsyncTiledTmaLoad, Some(v)) = (func.opcode(op), func.result(op))
            && out.of_value[v].is_none()
        {
            out.of_value[v] = Some(Layout::SmemK(descriptor_swizzle(func, op)));
        }
    }
    Ok(out)
}

/// The layout of an accumulator, or of what is one.
pub(super) fn acc_layout(func: &Function, v: Value, isa: &dyn TargetIsa, warps: u32) -> Option<Layout> {
    let (m, n) = rows_columns(func.value_data(v).dims().unwrap_or(&[]));
    (isa.acc_home().layout)(m, n, warps)
}

/// How threads hold a tile that they move to or from an accumulator in memory.
pub(super) fn acc_moved(isa: &dyn TargetIsa, dims: &[u32], warps: u32) -> Option<LinearMap> {
    let (m, n) = rows_columns(dims);
    moved_map((isa.acc_home().layout)(m, n, warps)?, dims, warps)
}

/// The layout of the first operand of a product that takes it from registers.
pub(super) fn operand_layout(func: &Function, op: Op, isa: &dyn TargetIsa, warps: u32) -> Option<Layout> {
    let dims = |v: Option<Value>| v.and_then(|v| func.value_data(v).dims());
    let (&[m, k], &[_, n]) = (dims(func.named_operand(op, "a"))?, dims(func.result(op))?) else {
        return None;
    };
    isa.acc_home().operand?(m, n, k, warps)
}

fn two_layouts(func: &Function, op: Op, v: Value, before: Layout, now: Layout) -> CodegenError {
    CodegenError::new(
        Code::E0503,
        func.op_loc(op),
        format!("%{} is needed as `{before}` and as `{now}`", func.value_name(v).unwrap_or("tile")),
    )
    .note(
        func.defining_op(v).map_or(crate::error::Loc::NONE, |d| func.op_loc(d)),
        "load it twice, or give both uses the same transposition",
    )
}

/// Rows of a swizzled tile are whole spans.
fn fits(func: &Function, op: Op, v: Value, swizzle: Swizzle) -> CodegenResult<()> {
    let (dims, elem) = (func.value_data(v).dims().unwrap_or(&[]), func.value_data(v).elem());
    let bytes = u64::from(rows_columns(dims).1) * u64::from(elem.map_or(8, Scalar::bits)) / 8;
    if dims.len() > 1 && !bytes.is_multiple_of(u64::from(swizzle.span())) {
        return Err(CodegenError::new(
            Code::E0504,
            func.op_loc(op),
            format!(
                "rows of {bytes} bytes do not fill the {}-byte span of swizzle `{}`",
                swizzle.span(),
                swizzle.name()
            ),
        ));
    }
    Ok(())
}

/// The tensor maps of the target.
fn check_box(func: &Function, op: Op, isa: &dyn TargetIsa) -> CodegenResult<()> {
    let limits = &isa.machine().limits;
    let extents = func.attr_ints(op, keys::BOX).unwrap_or_default();
    let outer = extents.split_last().map_or(&[][..], |x| x.1);
    let why = if extents.len() > limits.tma_rank_max as usize {
        format!("a tensor map has 1 to {} dimensions, not {}", limits.tma_rank_max, extents.len())
    } else if let Some(most) = outer.iter().find(|&&e| e > i64::from(limits.tma_box_max)) {
        format!("a box has 1 to {} elements along a dimension, not {most}", limits.tma_box_max)
    } else {
        return Ok(());
    };
    Err(CodegenError::new(Code::E0217, func.op_loc(op), why))
}

fn check_atom(func: &Function, op: Op, isa: &dyn TargetIsa, warps: u32) -> CodegenResult<()> {
    let error = |why: String| Err(CodegenError::new(Code::E0502, func.op_loc(op), why));
    let Some(request) = MmaRequest::of(func, op) else {
        return error("operands of a dot are matrices of a type the target multiplies".to_string());
    };
    if let Err(why) = isa.atoms().select_mma(&request) {
        return error(why);
    }
    match func.result(op).map(|v| acc_layout(func, v, isa, warps).is_some()) {
        Some(true) => Ok(()),
        _ => error(format!("{warps} warps cannot hold an accumulator of {}x{}", request.m, request.n)),
    }
}
