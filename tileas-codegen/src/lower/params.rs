//! The kernel ABI: which parameters a kernel takes and where each IR parameter's parts are found.
//!
//! A view becomes tensor maps (one per distinct box of it that descriptors ask for), and, where it is reached
//! directly, a pointer, its extents and the strides of all but the innermost dimension. Tensor maps come first.

use super::ParamList;
use super::metadata::{ParamMeta, TensorMapMeta};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Dim, Function, Op, Opcode, Scalar, Swizzle, TypeData, Value, keys};
use crate::nvvm::verify::is_identifier;
use crate::nvvm::{self, Operand, Param, ParamKind, Reg};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// One tensor-map parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapKey {
    pub view: usize,
    /// Box extents of one TMA instruction, outermost first.
    pub dims: SmallVec<[u32; 5]>,
    pub swizzle: Swizzle,
    pub nan: bool,
    /// Innermost extent of the whole tile (split into several boxes when wider).
    pub loads: bool,
}

/// A view parameter.
#[derive(Clone, Debug)]
pub(crate) struct ViewInfo {
    pub value: Value,
    pub name: String,
    pub dims: SmallVec<[Dim; 4]>,
    pub elem: Scalar,
    /// Pointer, extents and strides are passed.
    pub direct: bool,
    /// Extents asked for by `dim`.
    pub sizes: bool,
}

/// The ABI of one kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Abi {
    pub views: Vec<ViewInfo>,
    pub maps: Vec<MapKey>,
    /// Map of each `make_tiled_tma_desc`.
    pub desc_map: SecondaryMap<Op, usize>,
    pub scalars: Vec<(Value, String, Scalar)>,
}

/// Registers and handles of the parameters in the emitted kernel.
#[derive(Default)]
pub(crate) struct NvParams {
    pub maps: ParamList,
    /// Generic address of each map, once taken.
    pub map_addr: Vec<Option<Reg>>,
    pub pointers: Vec<Option<Param>>,
    pub sizes: Vec<SmallVec<[Option<Param>; 4]>>,
    pub strides: Vec<SmallVec<[Option<Param>; 4]>>,
    /// Global addresses, extents and strides already loaded in the prologue.
    pub pointer_reg: Vec<Option<Reg>>,
    pub size_reg: Vec<SmallVec<[Option<Operand>; 4]>>,
    pub stride_reg: Vec<SmallVec<[Option<Operand>; 4]>>,
    pub scalars: ParamList,
}

fn value_name(f: &Function, v: Value, n: usize) -> String {
    match f.value_name(v) {
        Some(s) if is_identifier(s) => s.to_string(),
        _ => format!("arg{n}"),
    }
}

impl Abi {
    /// Reads the ABI off a function.
    pub fn of(f: &Function) -> CodegenResult<Abi> {
        let mut abi = Abi { desc_map: SecondaryMap::with_default(usize::MAX), ..Abi::default() };
        for (n, &p) in f.params().iter().enumerate() {
            let name = value_name(f, p, n);
            match f.value_data(p) {
                TypeData::View { dims, elem, .. } => abi.views.push(ViewInfo {
                    value: p,
                    name,
                    dims: dims.clone(),
                    elem: *elem,
                    direct: false,
                    sizes: false,
                }),
                TypeData::Scalar(s) => abi.scalars.push((p, name, *s)),
                other => {
                    return Err(CodegenError::new(
                        Code::E0804,
                        f.loc,
                        format!(
                            "kernel parameter `{name}` has type {other}; views and scalars can be passed"
                        ),
                    ));
                }
            }
        }
        for op in f.ops() {
            match f.opcode(op) {
                Opcode::MakeTiledTmaDesc => abi.add_map(f, op)?,
                Opcode::AsyncTiledTmaLoad => {
                    let desc = f.named_operand(op, "desc").and_then(|d| f.defining_op(d));
                    if let Some(map) = desc.and_then(|d| abi.maps.get_mut(abi.desc_map[d])) {
                        map.loads = true;
                    }
                }
                Opcode::TiledLoad | Opcode::TiledStore | Opcode::AtomicRmw => {
                    let view = f.named_operand(op, "view").and_then(|v| abi.view_index(v));
                    match view {
                        Some(i) => abi.views[i].direct = true,
                        None => {
                            return Err(CodegenError::new(
                                Code::E0804,
                                f.op_loc(op),
                                "the view is not a kernel parameter",
                            ));
                        }
                    }
                }
                Opcode::Dim => {
                    if let Some(i) = f.named_operand(op, "view").and_then(|v| abi.view_index(v)) {
                        abi.views[i].sizes = true;
                    }
                }
                _ => {}
            }
        }
        Ok(abi)
    }

    /// Index of a view parameter.
    pub fn view_index(&self, v: Value) -> Option<usize> {
        self.views.iter().position(|x| x.value == v)
    }

    fn add_map(&mut self, f: &Function, op: Op) -> CodegenResult<()> {
        let fail = |m: String| Err(CodegenError::new(Code::E0804, f.op_loc(op), m));
        let Some(view) = f.named_operand(op, "view").and_then(|v| self.view_index(v)) else {
            return fail("a descriptor of a view that is not a kernel parameter needs a device-built tensor map, which is unsupported".into());
        };
        let Some(dims) = f.attr_ints(op, keys::BOX) else { return fail("descriptor without box".into()) };
        let swizzle = f.attr_name(op, keys::SWIZZLE).and_then(Swizzle::from_name).unwrap_or(Swizzle::None);
        let elem = self.views[view].elem;
        let mut dims: SmallVec<[u32; 5]> = dims.iter().map(|&d| d.clamp(0, 1 << 24) as u32).collect();
        let Some(inner) = dims.last_mut() else { return fail("descriptor of rank 0".into()) };
        let span = (swizzle.span() / elem.bytes()).max(1);
        if *inner * elem.bytes() < 16 || (*inner > span && *inner % span != 0) {
            return fail(format!(
                "innermost box extent of {inner} elements does not fit 16-byte TMA rows with swizzle {}",
                swizzle.name()
            ));
        }
        *inner = (*inner).min(span);
        if let Some(big) = dims.iter().find(|&&d| d > 256) {
            return fail(format!("box extent {big} exceeds 256"));
        }
        let key =
            MapKey { view, dims, swizzle, nan: f.attr_name(op, keys::OOB) == Some("nan"), loads: false };
        let same = |m: &MapKey| {
            m.view == key.view && m.dims == key.dims && m.swizzle == key.swizzle && m.nan == key.nan
        };
        let index = match self.maps.iter().position(same) {
            Some(i) => i,
            None => {
                self.maps.push(key);
                self.maps.len() - 1
            }
        };
        self.desc_map[op] = index;
        Ok(())
    }

    fn map_name(&self, i: usize) -> String {
        let view = self.maps[i].view;
        let nth = self.maps[..i].iter().filter(|m| m.view == view).count();
        let name = &self.views[view].name;
        if nth == 0 { format!("tm_{name}") } else { format!("tm_{name}_{nth}") }
    }

    /// Declares the parameters in the emitted kernel.
    pub fn declare(&self, k: &mut nvvm::Function) -> NvParams {
        let mut nv = NvParams::default();
        for i in 0..self.maps.len() {
            nv.maps.push(k.param(self.map_name(i), ParamKind::TensorMap));
            nv.map_addr.push(None);
        }
        for v in &self.views {
            let rank = v.dims.len();
            nv.pointers.push(v.direct.then(|| k.param(v.name.clone(), ParamKind::Pointer { align: 16 })));
            nv.pointer_reg.push(None);
            let mut sizes = SmallVec::new();
            let mut size_regs = SmallVec::new();
            for (d, dim) in v.dims.iter().enumerate() {
                match dim {
                    Dim::Static(n) => {
                        sizes.push(None);
                        size_regs.push(Some(Operand::Imm(i64::from(*n))));
                    }
                    Dim::Dynamic => {
                        let wanted = v.direct || v.sizes;
                        sizes.push(wanted.then(|| k.param(format!("{}_d{d}", v.name), ParamKind::U32)));
                        size_regs.push(None);
                    }
                }
            }
            nv.sizes.push(sizes);
            nv.size_reg.push(size_regs);
            let strides = (0..rank)
                .map(|d| {
                    (v.direct && d + 1 < rank).then(|| k.param(format!("{}_s{d}", v.name), ParamKind::U32))
                })
                .collect();
            nv.strides.push(strides);
            nv.stride_reg.push((0..rank).map(|_| None).collect());
        }
        for (_, name, s) in &self.scalars {
            let kind = match s {
                Scalar::F32 | Scalar::TF32 => ParamKind::F32,
                Scalar::I64 | Scalar::F64 => ParamKind::U64,
                Scalar::F16 | Scalar::BF16 => ParamKind::B16,
                _ => ParamKind::U32,
            };
            nv.scalars.push(k.param(name.clone(), kind));
        }
        nv
    }

    /// Parameter list and tensor maps for the host, in declaration order.
    pub fn describe(&self) -> (Vec<ParamMeta>, Vec<TensorMapMeta>) {
        let mut params = Vec::new();
        let mut maps = Vec::new();
        for (i, m) in self.maps.iter().enumerate() {
            params.push(ParamMeta::tensor_map(self.map_name(i), i));
            let v = &self.views[m.view];
            let rank = v.dims.len();
            let extent = |d: usize| format!("{}.d{d}", v.name);
            maps.push(TensorMapMeta {
                view: v.name.clone(),
                elem: v.elem.name(),
                dims: (0..rank).rev().map(extent).collect(),
                strides_bytes: (0..rank.saturating_sub(1))
                    .rev()
                    .map(|d| format!("{}.s{d} * {}", v.name, v.elem.bytes()))
                    .collect(),
                box_dims: m.dims.iter().rev().copied().collect(),
                element_strides: vec![1; rank],
                swizzle: m.swizzle.name(),
                interleave: "none",
                oob: if m.nan { "nan" } else { "zero" },
                l2: if m.loads { "b256" } else { "none" },
            });
        }
        for v in &self.views {
            let rank = v.dims.len();
            if v.direct {
                params.push(ParamMeta::pointer(&v.name));
            }
            for (d, dim) in v.dims.iter().enumerate() {
                if (v.direct || v.sizes) && *dim == Dim::Dynamic {
                    params.push(ParamMeta::size(&v.name, d));
                }
            }
            if v.direct {
                for d in 0..rank.saturating_sub(1) {
                    params.push(ParamMeta::stride(&v.name, d));
                }
            }
        }
        for (_, name, s) in &self.scalars {
            params.push(ParamMeta::scalar(name, *s));
        }
        (params, maps)
    }

    /// Conditions on views that the code relies on.
    pub fn requires(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut aligned = Vec::new();
        for (i, v) in self.views.iter().enumerate() {
            let mapped = self.maps.iter().any(|m| m.view == i);
            let per16 = 16 / v.elem.bytes().clamp(1, 16);
            for d in 0..v.dims.len().saturating_sub(1) {
                if mapped {
                    out.push(format!("{}.s{d} % {per16} == 0", v.name));
                }
            }
            if mapped || v.direct {
                aligned.push(v.name.as_str());
            }
        }
        for v in self
            .views
            .iter()
            .enumerate()
            .filter(|(i, v)| v.direct || self.maps.iter().any(|m| m.view == *i))
            .map(|x| x.1)
        {
            out.push(format!("{}.s{} == 1", v.name, v.dims.len().saturating_sub(1)));
        }
        if !aligned.is_empty() {
            out.push(format!("ptr({}) % 16 == 0", aligned.join(", ")));
        }
        out
    }
}
