//! The kernel ABI: which parameters a kernel takes and where each IR parameter's parts are found.
//!
//! A view becomes tensor maps (one per distinct box of it that descriptors ask for), and, where it is reached
//! directly, a pointer, its extents and the strides of all but the innermost dimension. Tensor maps come first. A pointer is passed as
//! one; of views that the kernel makes of it the host makes the tensor maps, from the same parameters.
//!
//! Names in the PTX are those of the IR with `tm_` before a tensor map, `_d0` behind an extent and `_s0` behind a stride.
//! Where one is taken (by another parameter, the shared memory or a kernel of the module), a number behind it makes it
//! unique; names from the IR are given first. Views and scalars are known to the host by their names in the IR.

use super::ParamList;
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::cluster;
use crate::ir::{Dim, Function, Op, Opcode, Scalar, Swizzle, TypeData, Value, ValueDef, keys, push_number};
use crate::nvvm::verify::is_identifier;
use crate::nvvm::{self, Operand, Param, ParamKind, Reg};
use crate::storage::runs;
use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tileas_launch::expr::Binary;
use tileas_launch::{ArgKind, ArgMeta, Elem, Expr, L2, Oob, ParamKind as Passed, ParamMeta, TensorMapMeta};

/// Bytes that a kernel's parameters may take, from PTX 8.1 on.
const MAX_PARAM_BYTES: u64 = 32_764;

/// Alignment in bytes of the memory that a pointer leads to.
pub(super) const POINTER_ALIGN: u32 = 16;

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
    /// Whether tiles are stored through it.
    pub stores: bool,
}

/// Where a view comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// It is a parameter.
    Param,
    /// It is a parameter that is a pointer: memory without extents.
    Pointer,
    /// It is made of a pointer; extents and strides as the host knows them, if it does.
    Made { extents: Vec<Option<Expr>>, strides: Vec<Option<Expr>> },
}

/// A view or pointer.
#[derive(Clone, Debug)]
pub(crate) struct ViewInfo {
    pub value: Value,
    pub source: Source,
    /// Position among the kernel's parameters: of what it was made of, if it was. The last one there is: of none.
    pub arg: u16,
    pub dims: SmallVec<[Dim; 4]>,
    pub elem: Scalar,
    /// Pointer, extents and strides are passed.
    pub direct: bool,
    /// Extents asked for by `dim`.
    pub sizes: bool,
    /// A power of two up to 16 that surely divides the address, in bytes.
    pub aligned: u32,
}

impl ViewInfo {
    /// Whether the address is a parameter.
    fn passes_pointer(&self) -> bool {
        self.direct && !matches!(self.source, Source::Made { .. })
    }

    /// Whether the extent of a dimension is a parameter.
    fn passes_size(&self, d: usize) -> bool {
        let given = matches!(self.source, Source::Param);
        given && (self.direct || self.sizes) && self.dims.get(d) == Some(&Dim::Dynamic)
    }

    /// Whether the stride of a dimension is a parameter.
    fn passes_stride(&self, d: usize) -> bool {
        matches!(self.source, Source::Param) && self.direct && d + 1 < self.dims.len()
    }

    /// What the address is a multiple of, in bytes.
    fn alignment(&self) -> u32 {
        match self.source {
            Source::Pointer => self.elem.bytes().max(1),
            _ => POINTER_ALIGN,
        }
    }

    /// The extent of a dimension as the host knows it.
    pub fn extent(&self, d: usize) -> Option<Expr> {
        match &self.source {
            Source::Param => Some(Expr::Extent(self.arg, u8::try_from(d).ok()?)),
            Source::Pointer => None,
            Source::Made { extents, .. } => extents.get(d).cloned().flatten(),
        }
    }

    /// The stride of a dimension as the host knows it.
    pub fn stride(&self, d: usize) -> Option<Expr> {
        match &self.source {
            Source::Param => Some(Expr::Stride(self.arg, u8::try_from(d).ok()?)),
            Source::Pointer => None,
            Source::Made { .. } if d + 1 == self.dims.len() => Some(Expr::Int(1)),
            Source::Made { strides, .. } => strides.get(d).cloned().flatten(),
        }
    }
}

/// A scalar parameter.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ScalarInfo {
    pub value: Value,
    /// Position among the kernel's parameters.
    pub arg: u16,
    pub ty: Scalar,
}

/// The ABI of one kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Abi {
    pub views: Vec<ViewInfo>,
    pub maps: Vec<MapKey>,
    /// Map of each `make_tiled_tma_desc`.
    pub desc_map: SecondaryMap<Op, usize>,
    pub scalars: Vec<ScalarInfo>,
    /// The kernel's parameters as written.
    args: Vec<ArgMeta>,
    /// The entry's parameters in order.
    params: Vec<ParamMeta>,
    /// What is assumed of parameters.
    assumed: Vec<Expr>,
}

/// Registers and handles of the parameters in the emitted kernel.
#[derive(Default)]
pub(crate) struct NvParams {
    pub maps: ParamList,
    /// Generic address of each map, once taken.
    pub map_addr: Vec<Option<Reg>>,
    pub views: Vec<NvView>,
    pub scalars: ParamList,
}

/// `view_d0` and the like.
pub(super) fn dim_name(view: &str, part: &str, d: usize) -> String {
    let mut text = String::with_capacity(view.len() + part.len() + 2);
    text.push_str(view);
    text.push_str(part);
    push_number(&mut text, d as u64);
    text
}

/// One view in the emitted kernel.
pub(crate) struct NvView {
    pub pointer: Option<Param>,
    pub sizes: SmallVec<[Option<Param>; 4]>,
    pub strides: SmallVec<[Option<Param>; 4]>,
    /// Global address, extents and strides already loaded in the prologue.
    pub pointer_reg: Option<Reg>,
    pub size_reg: SmallVec<[Option<Operand>; 4]>,
    pub stride_reg: SmallVec<[Option<Operand>; 4]>,
}

/// The parameter, or loaded pointer, that a view or pointer was made of.
fn base_of(f: &Function, mut v: Value) -> Value {
    while let Some(op) = f.defining_op(v) {
        match (f.opcode(op), f.operands(op).first()) {
            (Opcode::MakeView | Opcode::Offset | Opcode::Assume | Opcode::MayAlias, Some(&from)) => v = from,
            _ => break,
        }
    }
    v
}

/// A power of two up to 16 that divides an address for certain: of parameters the host is asked for that much, if views are made of them.
fn alignment(f: &Function, runs: &mut runs::Finder, mut p: Value) -> u32 {
    let (mut least, mut known) = (1, POINTER_ALIGN);
    while let Some(op) = f.defining_op(p) {
        let (code, operands) = (f.opcode(op), f.operands(op));
        match (code, operands) {
            (Opcode::Assume, _) => {
                let by = f.attr_int(op, keys::DIV_BY).unwrap_or(1).clamp(1, i64::from(POINTER_ALIGN)) as u32;
                least = least.max(by.min(known));
            }
            (Opcode::Offset, &[pointer, by]) => {
                let bytes = f.value_data(pointer).elem().map_or(1, Scalar::bytes);
                known = known.min(runs.divisor(f, by).saturating_mul(bytes));
            }
            (Opcode::MayAlias, _) => {}
            (Opcode::Global, _) => {
                let by = f.attr_int(op, keys::ALIGN).unwrap_or(POINTER_ALIGN.into());
                return least.max(known.min(by.clamp(1, POINTER_ALIGN.into()) as u32));
            }
            _ => return least,
        }
        let Some(&from) = operands.first() else { return least };
        p = from;
    }
    least.max(known)
}

/// A uniform scalar as an expression over parameters; `None` where it depends on anything else.
pub(super) fn expression(f: &Function, abi: &Abi, v: Value, depth: u32) -> Option<Expr> {
    if depth == 0 {
        return None;
    }
    if let ValueDef::Param(..) = f.value_def(v) {
        return abi.scalars.iter().find(|s| s.value == v).map(|s| Expr::Scalar(s.arg));
    }
    let op = f.defining_op(v)?;
    let sub = |n: usize| expression(f, abi, *f.operands(op).get(n)?, depth - 1);
    let both = |b: Binary| Some(Expr::binary(b, sub(0)?, sub(1)?));
    match f.opcode(op) {
        Opcode::Constant => Some(Expr::Int(f.attr_int(op, keys::VALUE)?)),
        Opcode::Assume | Opcode::Exti => sub(0),
        Opcode::Divi => match f.attr_name(op, keys::ROUNDING) {
            Some("negative_inf") => both(Binary::Div),
            Some("positive_inf") => Some(Expr::ceil_div(sub(0)?, sub(1)?)),
            _ => None,
        },
        Opcode::Muli => both(Binary::Mul),
        Opcode::Addi => both(Binary::Add),
        Opcode::Subi => both(Binary::Sub),
        Opcode::Dim => {
            let view = abi.view_index(*f.operands(op).first()?)?;
            abi.views[view].extent(usize::try_from(f.attr_int(op, keys::AXIS)?).ok()?)
        }
        _ => None,
    }
}

/// A name that is not taken: the wish itself, else with the first number behind it that makes it one.
fn fresh(wish: String, taken: &mut FxHashSet<String>, global: &dyn Fn(&str) -> bool) -> String {
    let mut free = |name: &String| !global(name) && taken.insert(name.clone());
    if free(&wish) {
        return wish;
    }
    (1_u64..).map(|n| format!("{wish}_{n}")).find(|name| free(name)).unwrap_or(wish)
}

/// How a scalar is passed.
fn scalar_kind(s: Scalar) -> ParamKind {
    match s {
        Scalar::F32 | Scalar::TF32 => ParamKind::F32,
        Scalar::I64 | Scalar::F64 => ParamKind::U64,
        Scalar::I16 | Scalar::F16 | Scalar::BF16 => ParamKind::B16,
        Scalar::I1 | Scalar::I8 | Scalar::E4M3 | Scalar::E5M2 | Scalar::UE8M0 => ParamKind::B8,
        _ => ParamKind::U32,
    }
}

/// The type as a host knows it.
pub(super) fn elem(s: Scalar) -> Elem {
    match s {
        Scalar::I1 => Elem::I1,
        Scalar::I8 => Elem::I8,
        Scalar::I16 => Elem::I16,
        Scalar::I32 => Elem::I32,
        Scalar::I64 => Elem::I64,
        // 32 bits here; a host's `index` has 64.
        Scalar::Index => Elem::I32,
        Scalar::F16 => Elem::F16,
        Scalar::BF16 => Elem::Bf16,
        Scalar::F32 => Elem::F32,
        Scalar::F64 => Elem::F64,
        Scalar::E4M3 => Elem::E4m3,
        Scalar::E5M2 => Elem::E5m2,
        Scalar::UE8M0 => Elem::Ue8m0,
        Scalar::TF32 => Elem::Tf32,
        // What is packed is bytes by now.
        _ => Elem::I8,
    }
}

/// Whether all names differ. They nearly always do, and then nothing needs to be remembered.
fn all_differ<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let mut names: SmallVec<[&str; 32]> = names.collect();
    names.sort_unstable();
    names.windows(2).all(|w| w[0] != w[1])
}

/// The names of views and scalars in launch metadata: those of the IR, or `arg` and the position. All differ.
fn value_names(f: &Function) -> Vec<String> {
    let named = |v: Value| f.value_name(v).filter(|s| is_identifier(s));
    let written = || f.params().iter().filter_map(|&v| named(v));
    if written().count() == f.params().len() && all_differ(written()) {
        return written().map(str::to_owned).collect();
    }
    let mut taken: FxHashSet<String> = FxHashSet::default();
    let mut names: Vec<Option<String>> = Vec::with_capacity(f.params().len());
    for &v in f.params() {
        names.push(named(v).filter(|s| taken.insert((*s).to_owned())).map(str::to_owned));
    }
    let wish = |n: usize| named(f.params()[n]).map_or_else(|| format!("arg{n}"), str::to_owned);
    let all = names.into_iter().enumerate();
    all.map(|(n, s)| s.unwrap_or_else(|| fresh(wish(n), &mut taken, &|_| false))).collect()
}

impl Abi {
    /// Reads the ABI off a function; no parameter gets a name that is `global`.
    pub fn of(f: &Function, global: &dyn Fn(&str) -> bool) -> CodegenResult<Abi> {
        let mut abi = Abi { desc_map: SecondaryMap::with_default(usize::MAX), ..Abi::default() };
        abi.desc_map.resize(f.num_ops());
        abi.views.reserve_exact(f.params().len());
        abi.args.reserve_exact(f.params().len());
        for ((n, &value), name) in f.params().iter().enumerate().zip(value_names(f)) {
            let Ok(arg) = u16::try_from(n) else {
                let text = format!("{} kernel parameters, at most 65536 can be passed", f.params().len());
                return Err(CodegenError::new(Code::E0804, f.loc, text));
            };
            let kind = match f.value_data(value) {
                TypeData::View { dims, elem: ty, .. } => {
                    let dims = SmallVec::from_slice(dims);
                    let rank = u8::try_from(dims.len()).ok();
                    let source = Source::Param;
                    abi.views.push(ViewInfo {
                        value,
                        source,
                        arg,
                        dims,
                        elem: *ty,
                        direct: false,
                        sizes: false,
                        aligned: POINTER_ALIGN,
                    });
                    ArgKind::View { elem: Some(elem(*ty)), rank, written: false }
                }
                &TypeData::Ptr { elem: ty, .. } => {
                    let (source, dims) = (Source::Pointer, SmallVec::new());
                    abi.views.push(ViewInfo {
                        value,
                        source,
                        arg,
                        dims,
                        elem: ty,
                        direct: false,
                        sizes: false,
                        aligned: POINTER_ALIGN,
                    });
                    ArgKind::View { elem: Some(elem(ty)), rank: None, written: false }
                }
                &TypeData::Scalar(ty) => {
                    abi.scalars.push(ScalarInfo { value, arg, ty });
                    ArgKind::Scalar { elem: Some(elem(ty)) }
                }
                other => {
                    return Err(CodegenError::new(
                        Code::E0804,
                        f.loc,
                        format!(
                            "kernel parameter `{name}` has type {other}; views, pointers and scalars can be passed"
                        ),
                    ));
                }
            };
            abi.args.push(ArgMeta { name, kind });
        }
        let mut runs = runs::Finder::default();
        for op in f.ops() {
            match f.opcode(op) {
                Opcode::MakeView => abi.add_made(f, &mut runs, op),
                _ if f.makes_pointer(op) => abi.add_loaded(f, op),
                Opcode::Assume => abi.add_assumption(f, op),
                _ => {}
            }
        }
        for op in f.ops() {
            match f.opcode(op) {
                Opcode::MakeTiledTmaDesc => abi.add_map(f, op)?,
                code @ (Opcode::AsyncTiledTmaLoad | Opcode::AsyncTiledTmaStore) => {
                    let desc = f.named_operand(op, "desc").and_then(|d| f.defining_op(d));
                    if let Some(map) = desc.and_then(|d| abi.maps.get_mut(abi.desc_map[d])) {
                        map.loads |= code == Opcode::AsyncTiledTmaLoad;
                        map.stores |= code == Opcode::AsyncTiledTmaStore;
                        let view = map.view;
                        abi.note_written(view, code == Opcode::AsyncTiledTmaStore);
                    }
                }
                code if matches!(code, Opcode::TiledLoad | Opcode::TiledStore) || code.is_sparse() => {
                    let named = f.named_operand(op, "view");
                    let root = named.and_then(|v| abi.view_index(base_of(f, v)));
                    let Some(root) = root else {
                        let text = "what is accessed is no view or pointer that is a kernel parameter, or made of one";
                        return Err(CodegenError::new(Code::E0804, f.op_loc(op), text));
                    };
                    abi.views[root].direct = true;
                    abi.note_written(root, !matches!(code, Opcode::TiledLoad | Opcode::Gather));
                    if let Some(named) = named.and_then(|v| abi.view_index(v)) {
                        abi.views[named].direct = true;
                    }
                }
                Opcode::PtrToInt => {
                    let base = f.operands(op).first().and_then(|&v| abi.view_index(base_of(f, v)));
                    if let Some(i) = base {
                        abi.views[i].direct = true;
                        // Who has the address may write there.
                        abi.note_written(i, true);
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
        abi.list(global);
        abi.check_space(f)?;
        Ok(abi)
    }

    /// Notes that an op writes to a view, if it does.
    fn note_written(&mut self, view: usize, writes: bool) {
        let arg = self.args.get_mut(usize::from(self.views[view].arg));
        if let (Some(ArgMeta { kind: ArgKind::View { written, .. }, .. }), true) = (arg, writes) {
            *written = true;
        }
    }

    /// All parameters must fit the space there is for them.
    fn check_space(&self, f: &Function) -> CodegenResult<()> {
        let bytes = self.params.iter().fold(0_u64, |at, p| {
            let (size, align) = match p.kind {
                Passed::TensorMap(_) => (128, 64),
                Passed::Pointer { .. } => (8, 8),
                Passed::Scalar { elem, .. } => (elem.bytes().into(), elem.bytes().into()),
                _ => (4, 4),
            };
            at.next_multiple_of(align) + size
        });
        if bytes <= MAX_PARAM_BYTES {
            return Ok(());
        }
        let (all, views, maps) = (self.params.len(), self.views.len(), self.maps.len());
        let text = format!(
            "{all} kernel parameters ({views} views, {maps} tensor maps among what they need) take {bytes} bytes, there are {MAX_PARAM_BYTES}"
        );
        let note = "of views with constant extents and one dimension only the pointer is passed";
        Err(CodegenError::new(Code::E0804, f.loc, text).note(Loc::NONE, note))
    }

    /// Lists the parameters and makes their names unique.
    fn list(&mut self, global: &dyn Fn(&str) -> bool) {
        let each = self.views.iter().map(|v| 1 + 2 * v.dims.len()).sum::<usize>();
        let mut params = Vec::with_capacity(self.maps.len() + each + self.scalars.len());
        for i in 0..self.maps.len() {
            params.push(ParamMeta { name: self.map_name(i), kind: Passed::TensorMap(i as u16) });
        }
        for v in &self.views {
            let (name, view) = (self.name(v.arg), v.arg);
            if v.passes_pointer() {
                params.push(ParamMeta {
                    name: name.to_owned(),
                    kind: Passed::Pointer { view, align: v.alignment() },
                });
            }
            for d in (0..v.dims.len()).filter(|&d| v.passes_size(d)) {
                let kind = Passed::Extent { view, dim: d as u8, elem: Elem::U32 };
                params.push(ParamMeta { name: dim_name(name, "_d", d), kind });
            }
            for d in (0..v.dims.len()).filter(|&d| v.passes_stride(d)) {
                let kind = Passed::Stride { view, dim: d as u8, elem: Elem::U32 };
                params.push(ParamMeta { name: dim_name(name, "_s", d), kind });
            }
        }
        for s in &self.scalars {
            let kind = Passed::Scalar { arg: s.arg, elem: elem(s.ty) };
            params.push(ParamMeta { name: self.name(s.arg).to_owned(), kind });
        }
        if all_differ(params.iter().map(|p| p.name.as_str())) && !params.iter().any(|p| global(&p.name)) {
            self.params = params;
            return;
        }
        let mut taken: FxHashSet<String> = FxHashSet::default();
        let own = |p: &ParamMeta| matches!(p.kind, Passed::Pointer { .. } | Passed::Scalar { .. });
        for first in [true, false] {
            for p in params.iter_mut().filter(|p| own(p) == first) {
                p.name = fresh(std::mem::take(&mut p.name), &mut taken, global);
            }
        }
        self.params = params;
    }

    /// Name of a kernel's parameter in the launch metadata.
    fn name(&self, arg: u16) -> &str {
        self.args.get(usize::from(arg)).map_or("", |a| &a.name)
    }

    /// Index of a view parameter.
    pub fn view_index(&self, v: Value) -> Option<usize> {
        self.views.iter().position(|x| x.value == v)
    }

    /// Notes a view that the kernel makes.
    fn add_made(&mut self, f: &Function, runs: &mut runs::Finder, op: Op) {
        let Some(value) = f.result(op) else { return };
        let TypeData::View { dims, elem, .. } = f.value_data(value) else { return };
        let arg = f.operands(op).first().and_then(|&p| self.view_index(base_of(f, p)));
        let arg = arg.map_or(u16::MAX, |i| self.views[i].arg);
        // An address that is moved on is not what the host has.
        let known = f.is_launch_view(value);
        let all = |name| -> Vec<Option<Expr>> {
            let list = f.named_segment(op, name).iter();
            list.map(|&v| known.then(|| expression(f, self, v, 16)).flatten()).collect()
        };
        let source = Source::Made { extents: all("extents"), strides: all("strides") };
        let (dims, elem) = (SmallVec::from_slice(dims), *elem);
        let aligned = f.operands(op).first().map_or(1, |&p| alignment(f, runs, p));
        self.views.push(ViewInfo { value, source, arg, dims, elem, direct: false, sizes: false, aligned });
    }

    /// Notes a pointer that the kernel has from somewhere.
    fn add_loaded(&mut self, f: &Function, op: Op) {
        let Some((value, elem)) = f.result(op).and_then(|v| Some((v, f.value_data(v).elem()?))) else {
            return;
        };
        let source = Source::Made { extents: Vec::new(), strides: Vec::new() };
        let least =
            f.attr_int(op, keys::ALIGN).map_or(POINTER_ALIGN, |n| n.clamp(1, POINTER_ALIGN.into()) as u32);
        let aligned = if f.opcode(op) == Opcode::Global { least } else { 1 };
        let (dims, arg) = (SmallVec::new(), u16::MAX);
        self.views.push(ViewInfo { value, source, arg, dims, elem, direct: false, sizes: false, aligned });
    }

    /// Notes what is assumed of a parameter, for the host to check.
    fn add_assumption(&mut self, f: &Function, op: Op) {
        let Some(&(mut of)) = f.operands(op).first().filter(|_| f.op_block(op) == Some(f.entry())) else {
            return;
        };
        while let Some(&before) =
            f.defining_op(of).filter(|&d| f.opcode(d) == Opcode::Assume).and_then(|d| f.operands(d).first())
        {
            of = before;
        }
        let subject = match self.views.iter().find(|v| v.value == of) {
            Some(v) => Expr::Addresses(vec![v.arg]),
            None => match self.scalars.iter().find(|s| s.value == of) {
                Some(s) => Expr::Scalar(s.arg),
                None => match expression(f, self, of, 16) {
                    Some(e) => e,
                    None => return,
                },
            },
        };
        let by = f.attr_int(op, keys::DIV_BY).filter(|&n| n > 1).map(|n| subject.clone().is_multiple_of(n));
        let least = f.attr_int(op, keys::MIN).map(|n| subject.clone().is_at_least(n));
        let most = f.attr_int(op, keys::MAX).map(|n| subject.clone().is_at_most(n));
        for e in [by, least, most].into_iter().flatten() {
            if !self.assumed.contains(&e) {
                self.assumed.push(e);
            }
        }
    }

    fn add_map(&mut self, f: &Function, op: Op) -> CodegenResult<()> {
        let fail = |m: String| Err(CodegenError::new(Code::E0804, f.op_loc(op), m));
        let Some(view) = f.named_operand(op, "view").and_then(|v| self.view_index(v)) else {
            return fail("a descriptor of a view that is not a kernel parameter needs a device-built tensor map, which is unsupported".into());
        };
        let info = &self.views[view];
        if (0..info.dims.len()).any(|d| info.extent(d).is_none() || info.stride(d).is_none()) {
            return fail("the host makes tensor maps: pointer, extents and strides of the view must follow from kernel parameters".into());
        }
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
        if let Some((_, ctas)) = cluster::cluster_of(f).filter(|_| f.has_attr(op, keys::MULTICAST)) {
            let Some(dim) = cluster::parted(&dims, ctas) else {
                return fail(format!("the rows of its boxes cannot be divided among {ctas} CTAs"));
            };
            dims[dim] /= ctas;
        }
        if let Some(big) = dims.iter().find(|&&d| d > 256) {
            return fail(format!("box extent {big} exceeds 256"));
        }
        let key = MapKey {
            view,
            dims,
            swizzle,
            nan: f.attr_name(op, keys::OOB) == Some("nan"),
            loads: false,
            stores: false,
        };
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
        let name = self.name(self.views[view].arg);
        let mut out = String::with_capacity(name.len() + 8);
        out.push_str("tm_");
        out.push_str(name);
        if nth > 0 {
            out.push('_');
            push_number(&mut out, nth as u64);
        }
        out
    }

    /// Declares the parameters in the emitted kernel.
    pub fn declare(&self, k: &mut nvvm::Function) -> NvParams {
        let mut nv = NvParams::default();
        nv.maps.reserve_exact(self.maps.len());
        nv.map_addr.reserve_exact(self.maps.len());
        nv.views.reserve_exact(self.views.len());
        nv.scalars.reserve_exact(self.scalars.len());
        let mut names = self.params.iter().map(|p| p.name.as_str());
        // The order is that of `list`.
        let mut next = |kind| k.param(names.next().unwrap_or_default(), kind);
        for _ in &self.maps {
            nv.maps.push(next(ParamKind::TensorMap));
            nv.map_addr.push(None);
        }
        for v in &self.views {
            // In the order of the parameters: pointer, extents, strides.
            let pointer = v.passes_pointer().then(|| next(ParamKind::Pointer { align: v.alignment() }));
            let mut view = NvView {
                pointer,
                sizes: SmallVec::new(),
                strides: SmallVec::new(),
                pointer_reg: None,
                size_reg: SmallVec::new(),
                stride_reg: SmallVec::from_elem(None, v.dims.len()),
            };
            for (d, dim) in v.dims.iter().enumerate() {
                view.sizes.push(v.passes_size(d).then(|| next(ParamKind::U32)));
                view.size_reg.push(match dim {
                    Dim::Static(n) => Some(Operand::Imm(i64::from(*n))),
                    Dim::Dynamic => None,
                });
            }
            for d in 0..v.dims.len() {
                view.strides.push(v.passes_stride(d).then(|| next(ParamKind::U32)));
            }
            nv.views.push(view);
        }
        for s in &self.scalars {
            nv.scalars.push(next(scalar_kind(s.ty)));
        }
        nv
    }

    /// Parameters as written, parameters of the entry and tensor maps for the host, in declaration order. Gives the lists away.
    pub fn describe(&mut self) -> (Vec<ArgMeta>, Vec<ParamMeta>, Vec<TensorMapMeta>) {
        let maps = self.maps.iter().map(|m| {
            let v = &self.views[m.view];
            let rank = v.dims.len();
            let bytes = |d: usize| {
                let elem = Expr::Int(v.elem.bytes().into());
                Expr::binary(Binary::Mul, v.stride(d).unwrap_or(Expr::Int(0)), elem)
            };
            TensorMapMeta {
                view: v.arg,
                elem: elem(v.elem),
                dims: (0..rank).rev().map(|d| v.extent(d).unwrap_or(Expr::Int(0))).collect(),
                strides_bytes: (0..rank.saturating_sub(1)).rev().map(bytes).collect(),
                box_dims: m.dims.iter().rev().copied().collect(),
                element_strides: vec![1; rank],
                swizzle: match m.swizzle {
                    Swizzle::None => tileas_launch::Swizzle::None,
                    Swizzle::B32 => tileas_launch::Swizzle::B32,
                    Swizzle::B64 => tileas_launch::Swizzle::B64,
                    Swizzle::B128 => tileas_launch::Swizzle::B128,
                },
                oob: if m.nan { Oob::Nan } else { Oob::Zero },
                l2: if m.loads { L2::B256 } else { L2::None },
            }
        });
        let maps = maps.collect();
        (std::mem::take(&mut self.args), std::mem::take(&mut self.params), maps)
    }

    /// Conditions on views that the code relies on.
    pub fn requires(&self) -> Vec<Expr> {
        let dims = self.views.iter().map(|v| v.dims.len()).sum::<usize>();
        let mut out = Vec::with_capacity(2 * dims + 1);
        let mapped = |view: usize| self.maps.iter().any(|m| m.view == view);
        for (i, v) in self.views.iter().enumerate() {
            // Whether the parameters tell the host of the view.
            let is_passed = v.direct || mapped(i) || (0..v.dims.len()).any(|d| v.passes_size(d));
            for (d, dim) in v.dims.iter().enumerate() {
                let stated = v.extent(d).filter(|e| !matches!(e, Expr::Int(_)));
                if let (Dim::Static(n), true, Some(e)) = (dim, is_passed, stated) {
                    out.push(e.is(i64::from(*n)));
                }
            }
        }
        let mut aligned = Vec::new();
        for (i, v) in self.views.iter().enumerate() {
            let per16 = 16 / v.elem.bytes().clamp(1, 16);
            for d in (0..v.dims.len().saturating_sub(1)).filter(|_| mapped(i)) {
                out.extend(v.stride(d).map(|s| s.is_multiple_of(per16.into())));
            }
            // TMA stores whole units of 16 bytes, beyond the end of a row too (seen on an H100).
            if self.maps.iter().any(|m| m.view == i && m.stores)
                && let (Some(d), Some(&dim)) = (v.dims.len().checked_sub(1), v.dims.last())
                && !matches!(dim, Dim::Static(n) if n.is_multiple_of(per16))
            {
                out.extend(v.extent(d).map(|e| e.is_multiple_of(per16.into())));
            }
            if (mapped(i) || v.direct)
                && v.alignment() == POINTER_ALIGN
                && v.arg != u16::MAX
                && !aligned.contains(&v.arg)
            {
                aligned.push(v.arg);
            }
        }
        let given = |v: &ViewInfo| matches!(v.source, Source::Param);
        for (_, v) in self.views.iter().enumerate().filter(|&(i, v)| given(v) && (v.direct || mapped(i))) {
            out.push(Expr::Stride(v.arg, v.dims.len().saturating_sub(1) as u8).is(1));
        }
        if !aligned.is_empty() {
            out.push(Expr::Addresses(aligned).is_multiple_of(16));
        }
        for e in &self.assumed {
            if !out.contains(e) {
                out.push(e.clone());
            }
        }
        out
    }
}
