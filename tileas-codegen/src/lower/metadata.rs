//! What a host needs to launch a kernel.
//!
//! A plain struct; with the `serde` feature also a JSON document (field names as printed there). Expressions are
//! arithmetic over `view.dN` (extent), `view.sN` (stride in elements), scalar parameter names, `ceildiv`, `min`
//! and `sms`.

use super::{Lower, params};
use crate::error::CodegenResult;
use crate::ir::{Function, Op, Opcode, Scalar, TypeData, Value, ValueDef, keys, push_number};
use smallvec::SmallVec;

/// One kernel parameter, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ParamMeta {
    /// Name in the PTX.
    pub name: String,
    /// `tensor_map`, `pointer`, `size`, `stride` or `scalar`.
    pub kind: &'static str,
    /// The IR parameter it belongs to.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub of: Option<String>,
    /// Tensor map number.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub map: Option<usize>,
    /// Dimensions of the view of a pointer.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub rank: Option<usize>,
    /// Dimension of a size or stride.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub dim: Option<usize>,
    /// Type of sizes, strides and scalars.
    #[cfg_attr(feature = "serde", serde(rename = "type", skip_serializing_if = "Option::is_none"))]
    pub ty: Option<&'static str>,
    /// Alignment in bytes (of the parameter for maps, of the memory for pointers).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub align: Option<u32>,
    /// Size in bytes of a tensor map.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub size: Option<u32>,
}

impl ParamMeta {
    fn new(name: String, kind: &'static str) -> ParamMeta {
        ParamMeta {
            name,
            kind,
            of: None,
            map: None,
            rank: None,
            dim: None,
            ty: None,
            align: None,
            size: None,
        }
    }
    pub(super) fn tensor_map(name: String, map: usize) -> ParamMeta {
        ParamMeta { map: Some(map), align: Some(64), size: Some(128), ..ParamMeta::new(name, "tensor_map") }
    }
    pub(super) fn pointer(view: &str, rank: usize) -> ParamMeta {
        ParamMeta {
            of: Some(view.into()),
            rank: Some(rank),
            align: Some(16),
            ..ParamMeta::new(view.into(), "pointer")
        }
    }
    pub(super) fn size(view: &str, d: usize) -> ParamMeta {
        ParamMeta {
            of: Some(view.into()),
            dim: Some(d),
            ty: Some("u32"),
            ..ParamMeta::new(params::dim_name(view, "_d", d, 0), "size")
        }
    }
    pub(super) fn stride(view: &str, d: usize) -> ParamMeta {
        ParamMeta {
            of: Some(view.into()),
            dim: Some(d),
            ty: Some("u32"),
            ..ParamMeta::new(params::dim_name(view, "_s", d, 0), "stride")
        }
    }
    pub(super) fn scalar(name: &str, s: Scalar) -> ParamMeta {
        ParamMeta { of: Some(name.into()), ty: Some(s.name()), ..ParamMeta::new(name.into(), "scalar") }
    }
}

/// How to encode one tensor map (`cuTensorMapEncodeTiled`), innermost dimension first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TensorMapMeta {
    /// The view whose memory it describes.
    pub view: String,
    /// Element type.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub elem: &'static str,
    /// Extents in elements.
    pub dims: Vec<String>,
    /// Strides in bytes of all but the innermost dimension.
    pub strides_bytes: Vec<String>,
    /// Box extents in elements.
    #[cfg_attr(feature = "serde", serde(rename = "box"))]
    pub box_dims: Vec<u32>,
    /// Element strides.
    pub element_strides: Vec<u32>,
    /// `none`, `b32`, `b64`, `b128`.
    pub swizzle: &'static str,
    /// Always `none`.
    pub interleave: &'static str,
    /// Fill of elements out of bounds.
    pub oob: &'static str,
    /// L2 promotion.
    pub l2: &'static str,
}

/// Launch metadata of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LaunchMetadata {
    /// Entry name.
    pub kernel: String,
    /// `.target`.
    pub target: String,
    /// `.version`.
    pub ptx_version: String,
    /// Threads per CTA.
    pub block: [u32; 3],
    /// CTAs per cluster.
    pub cluster: [u32; 3],
    /// Suggested grid, as expressions.
    pub grid: [String; 3],
    /// Dynamic shared memory in bytes.
    pub dynamic_smem: u32,
    /// Tensor-memory columns allocated.
    pub tmem_columns: u32,
    /// Named barriers used.
    pub named_barriers: u32,
    /// Registers per thread of each agent, where `setmaxnreg` is used.
    pub setmaxnreg: Option<Vec<u32>>,
    /// Parameters in order.
    pub params: Vec<ParamMeta>,
    /// Tensor maps by number.
    pub tensor_maps: Vec<TensorMapMeta>,
    /// What the code relies on.
    pub requires: Vec<String>,
}

#[cfg(feature = "serde")]
impl LaunchMetadata {
    /// The JSON document.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

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

/// A uniform scalar as an expression over parameters; `None` where it depends on anything else.
fn expression(f: &Function, abi: &params::Abi, v: Value, depth: u32) -> Option<String> {
    if depth == 0 {
        return None;
    }
    if let ValueDef::Param(..) = f.value_def(v) {
        return abi.scalars.iter().find(|s| s.0 == v).map(|s| s.1.clone());
    }
    let op = f.defining_op(v)?;
    let sub = |n: usize| expression(f, abi, *f.operands(op).get(n)?, depth - 1);
    Some(match f.opcode(op) {
        Opcode::Constant => format!("{}", f.attr_int(op, keys::VALUE)?),
        Opcode::Muli => format!("{}*{}", paren(sub(0)?), paren(sub(1)?)),
        Opcode::Addi => format!("{} + {}", sub(0)?, sub(1)?),
        Opcode::Subi => format!("{} - {}", sub(0)?, paren(sub(1)?)),
        Opcode::Dim => {
            let view = abi.view_index(*f.operands(op).first()?)?;
            format!("{}.d{}", abi.views[view].name, f.attr_int(op, keys::AXIS)?)
        }
        _ => return None,
    })
}

fn paren(s: String) -> String {
    if s.contains([' ', '-']) { format!("({s})") } else { s }
}

impl Lower<'_> {
    /// Collects the metadata after lowering.
    pub(super) fn metadata(&mut self) -> CodegenResult<LaunchMetadata> {
        let (params, tensor_maps) = self.abi.describe();
        let mut requires = self.abi.requires();
        for r in &self.requires {
            if !requires.contains(r) {
                requires.push(r.clone());
            }
        }
        Ok(LaunchMetadata {
            kernel: self.f.name.clone(),
            target: self.isa.cpu().name.into(),
            ptx_version: String::new(),
            block: [self.kernel_int(keys::NUM_THREADS).unwrap_or(32), 1, 1],
            cluster: [1, 1, 1],
            grid: self.grid(),
            dynamic_smem: self.kernel_int(keys::DYNAMIC_SMEM).unwrap_or(0),
            tmem_columns: self.kernel_int(keys::TMEM_COLUMNS).unwrap_or(0),
            named_barriers: 1 + self.named_barriers(),
            setmaxnreg: self.register_budgets(),
            params,
            tensor_maps,
            requires,
        })
    }

    /// Named barriers of pipelines.
    fn named_barriers(&self) -> u32 {
        let mut named: SmallVec<[u32; 16]> = self.pipes.iter().filter_map(|p| p.named).collect();
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

    fn grid(&self) -> [String; 3] {
        let f = self.f;
        let mut grid = ["1".to_string(), "1".to_string(), "1".to_string()];
        let mut done = [false; 3];
        for op in f.ops() {
            match f.opcode(op) {
                Opcode::For => self.persistent_axis(op, &mut grid, &mut done),
                Opcode::AsyncTiledTmaStore | Opcode::TiledStore => {
                    let Some((view, dims)) = self.store_target(op) else { continue };
                    let name = &self.abi.views[view].name;
                    for (d, &c) in f.named_segment(op, "coords").iter().enumerate() {
                        let Some((axis @ 0..=2, k)) = program_axis(f, c) else { continue };
                        if !done[axis as usize]
                            && let Some(&extent) = dims.get(d)
                        {
                            done[axis as usize] = true;
                            let step = i64::from(extent).saturating_mul(k);
                            let dim = params::dim_name(name, ".d", d, 0);
                            let mut text = ["ceildiv(", &dim, ", ", if step < 0 { "-" } else { "" }].concat();
                            push_number(&mut text, step.unsigned_abs());
                            text.push(')');
                            grid[axis as usize] = text;
                        }
                    }
                }
                _ => {}
            }
        }
        grid
    }

    /// `for %t = program_id(a) to T step num_programs(a)`: as many CTAs as there are SMs, but no more than tiles.
    fn persistent_axis(&self, op: Op, grid: &mut [String; 3], done: &mut [bool; 3]) {
        let f = self.f;
        let [lo, hi, step, ..] = *f.operands(op) else { return };
        let of = |v: Value, code: Opcode| {
            let d = f.defining_op(v)?;
            (f.opcode(d) == code).then(|| f.attr_int(d, keys::AXIS)).flatten()
        };
        if let (Some(a @ 0..=2), Some(b)) = (of(lo, Opcode::ProgramId), of(step, Opcode::NumPrograms))
            && a == b
            && !done[a as usize]
        {
            done[a as usize] = true;
            grid[a as usize] = match expression(f, &self.abi, hi, 16) {
                Some(e) => format!("min(sms, {e})"),
                None => "sms".into(),
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
