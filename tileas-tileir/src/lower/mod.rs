//! Tile IR kernels as kernels of this compiler.
//!
//! In: a module that [`Module::verify`] accepts, and the target it is for. Out: the same kernels in the compiler's own IR, in value
//! form, or one error for each op that has no counterpart: all of them, with their places in the source. Nothing is scheduled, placed
//! or assigned here; what is written is what a user of the builder would write by hand.
//!
//! | Tile IR | becomes |
//! |---|---|
//! | a tile without dimensions | a scalar where it is computed from scalars, a tile without extents where it is left of a tile ([`Known::Value`]) |
//! | a pointer, or a tile of pointers | a pointer that all share and a count of elements behind it ([`pointers`]) |
//! | loops and branches | the same; what they hand on of pointers is told in [`control`] |
//! | a tensor view | `make_view`, its dimensions in an order whose innermost stride is 1 ([`views`]) |
//! | a load or store of a tile of a view | `tiled_load`, `tiled_store`; where rows need not be aligned, or tiles may lie anywhere, single elements |
//! | tokens | nothing: accesses stay in program order, which every order of tokens allows. Parameters between whose accesses tokens say an order may lead to the same memory (`may_alias`, [`aliases`]) |
//! | `assume` | `assume` of scalars; what is said of tiles is not used |
//! | hints | what the caller makes of [`Kernel::hints`]; `allow_tma` acts here |
//!
//! Parameters are those of the entry, in their order: a launcher passes what it passed before.

mod aliases;
mod control;
mod elementwise;
mod output;
mod pointers;
mod products;
mod shapes;
mod views;

use crate::entities::{Region, Value};
use crate::error::{Code, Error, Errors, Section};
use crate::hints::EntryHints;
use crate::module::{FuncRef, Module, OpRef};
use crate::types::{Elem, Num, TypeData};
use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::rc::Rc;
use tileas_codegen::ir;
use tileas_codegen::ir::{AttrData, FunctionBuilder, Opcode as Ir, Scalar, Space, keys};
use tileas_meta::tileir::{Key, Opcode, Seg};

/// Extents of a tile.
pub(crate) type Shape = SmallVec<[u32; 4]>;
type Done = Result<(), Box<Error>>;

/// What came out of one kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name, which is that of the entry.
    pub name: String,
    /// What its author would like of it on the target.
    pub hints: EntryHints,
}

/// Kernels of this compiler.
#[derive(Default)]
pub struct Lowered {
    /// The kernels.
    pub module: ir::Module,
    /// What else is known of them, in the same order.
    pub kernels: Vec<Kernel>,
    /// What was left out or not heeded.
    pub warnings: Vec<Error>,
}

/// Lowers all kernels of a module for a target, `sm_90` or `sm_100a`.
///
/// # Errors
/// One for each op that cannot be lowered; of ops that depend on such a one nothing is said.
pub fn lower(module: &Module, target: &str) -> Result<Lowered, Errors> {
    let mut out = Lowered::default();
    let mut errors = Vec::new();
    for func in module.functions().filter(|f| f.func.entry) {
        out.warnings.extend(func.hint_warnings());
        out.warnings.extend(unheeded(func, target));
        let mut made = ir::Function::new(func.name());
        let mut lowering = Lowering {
            func,
            target,
            b: FunctionBuilder::new(&mut made),
            known: SecondaryMap::new(),
            uses: SecondaryMap::new(),
            constants: FxHashMap::default(),
            divisors: FxHashMap::default(),
            scalars: FxHashMap::default(),
            depth: 0,
            reduces: false,
            relaxed: false,
            chosen: SecondaryMap::new(),
            carries: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        };
        lowering.kernel();
        let Lowering { errors: found, warnings, .. } = lowering;
        errors.extend(found);
        out.warnings.extend(warnings);
        out.kernels.push(Kernel { name: func.name().to_owned(), hints: func.hints(target) });
        out.module.functions.push(made);
    }
    Errors::check(errors)?;
    Ok(out)
}

/// Hints for a kernel that nothing here acts on.
fn unheeded(func: FuncRef<'_>, target: &str) -> Vec<Error> {
    let hints = func.hints(target);
    // One of either is what there is.
    let [clusters, occupancy] = [hints.num_cta_in_cga, hints.occupancy].map(|n| n.filter(|&n| n > 1));
    let mut out = Vec::new();
    let mut tell = |name: &str, value: Option<u32>, why: &str| {
        if let Some(n) = value {
            out.push(*func.error(Code::W1642, format!("hint `{name}` = {n}: {why}")));
        }
    };
    tell("num_cta_in_cga", clusters, "clusters are not made");
    tell("occupancy", occupancy, "registers and shared memory are taken as they help one CTA");
    let warps = hints.num_worker_warps_per_cta;
    tell("num_worker_warps_per_cta", warps, "the option `simt-warps` has that, where the kernel allows it");
    out
}

/// What a value has become.
#[derive(Clone, Default)]
enum Known {
    /// Nothing that was lowered: an error has been told.
    #[default]
    Nothing,
    /// Memory order.
    Token,
    /// A scalar or tile. What has no dimensions is either.
    Value(ir::Value),
    /// Elements behind a pointer.
    Pointer(pointers::Pointer),
    /// A tensor view.
    Tensor(Rc<views::Tensor>),
    /// Tiles of a tensor view.
    Tiles(Rc<views::Tiles>),
}

struct Lowering<'m, 'f> {
    func: FuncRef<'m>,
    target: &'m str,
    b: FunctionBuilder<'f>,
    known: SecondaryMap<Value, Known>,
    uses: SecondaryMap<Value, u32>,
    /// Constants at the top of the kernel.
    constants: FxHashMap<(ir::Type, u64), ir::Value>,
    /// What is known to divide a scalar, or the address of a pointer.
    divisors: FxHashMap<ir::Value, u64>,
    /// The scalars of tiles without extents.
    scalars: FxHashMap<ir::Value, ir::Value>,
    /// Regions around the current op.
    depth: u32,
    /// Whether tiles are reduced to single elements.
    reduces: bool,
    /// Whether the order of atomic updates of tiles cannot be observed.
    relaxed: bool,
    /// By pointer that loops or branches hand on: a parameter that it may be.
    chosen: SecondaryMap<Value, Option<Value>>,
    /// How the loops around hand on what they carry, the innermost last.
    carries: Vec<Vec<control::Carry>>,
    errors: Vec<Error>,
    warnings: Vec<Error>,
}

/// The element type here.
pub(crate) fn scalar_of(num: Num) -> Option<Scalar> {
    Some(match num {
        Num::I1 => Scalar::I1,
        Num::I8 => Scalar::I8,
        Num::I16 => Scalar::I16,
        Num::I32 => Scalar::I32,
        Num::I64 => Scalar::I64,
        Num::F16 => Scalar::F16,
        Num::Bf16 => Scalar::BF16,
        Num::F32 => Scalar::F32,
        Num::Tf32 => Scalar::TF32,
        Num::F64 => Scalar::F64,
        Num::F8E4M3FN => Scalar::E4M3,
        Num::F8E5M2 => Scalar::E5M2,
        Num::F8E8M0FNU => Scalar::UE8M0,
        Num::F4E2M1FN => Scalar::E2M1,
        Num::I4 => Scalar::I4,
        Num::F8E5M3FNU => return None,
    })
}

impl<'m> Lowering<'m, '_> {
    fn kernel(&mut self) {
        let func = self.func;
        for op in func.ops() {
            for &v in op.operands() {
                self.uses[v] += 1;
            }
            let scalar = |v| func.ty(v).scalar().is_some();
            self.reduces |= match op.opcode() {
                Opcode::Reduce => true,
                Opcode::Reshape => {
                    op.result(0).is_some_and(scalar) && !op.operand(Seg::Source).is_some_and(scalar)
                }
                _ => false,
            };
        }
        self.relaxed = pointers::updates_are_unordered(func);
        for (n, param) in func.params().enumerate() {
            if let Err(e) = self.parameter(n, param) {
                self.errors.push(*e);
            }
        }
        let aliases = aliases::find(func);
        self.chosen = aliases.chosen;
        for (param, with) in aliases.pairs {
            if let (Known::Pointer(p), Known::Pointer(q)) =
                (self.known[param].clone(), self.known[with].clone())
            {
                let ty = self.b.func().value_type(p.base);
                let base =
                    self.b.op(Ir::MayAlias).operand(p.base).operand(q.base).results(&[ty]).finish_one();
                self.known[param] = Known::Pointer(pointers::Pointer::to(base));
            }
        }
        self.region(Region::BODY);
    }

    fn parameter(&mut self, n: usize, param: Value) -> Done {
        let name = format!("p{n}");
        let fail = |text: String| Err(self.func.error(Code::E1642, text));
        let ty = match self.func.ty(param).scalar() {
            Some(Elem::Num(num)) => match scalar_of(num) {
                Some(s) => self.b.scalar_type(s),
                None => return fail(format!("parameter {n} is of type {num}, which is not passed")),
            },
            Some(Elem::Ptr { pointee, .. }) => match scalar_of(pointee) {
                Some(s) => self.b.ptr_type(s, Space::Gmem),
                None => {
                    return fail(format!("parameter {n} is a pointer to {pointee}, which is not supported"));
                }
            },
            None => return fail(format!("parameter {n} is no scalar")),
        };
        let v = self.b.named_param(&name, ty);
        self.known[param] = match self.func.ty(param).scalar() {
            Some(Elem::Ptr { .. }) => Known::Pointer(pointers::Pointer::to(v)),
            _ => Known::Value(v),
        };
        Ok(())
    }

    /// Lowers the ops of a region, its terminator included.
    fn region(&mut self, region: Region) {
        let func = self.func;
        for op in func.region(region) {
            self.place(op);
            if let Err(e) = self.op(op) {
                // What an error was told of before makes no new one.
                if !e.message.is_empty() {
                    self.errors.push(*e);
                }
            }
        }
    }

    /// File, line and column of an op in its source.
    fn origin(op: OpRef<'m>) -> Option<(String, u32, u32)> {
        let sources = op.source();
        let frame = sources.iter().find(|f| !f.is_library()).or(sources.first())?;
        let line = u32::try_from(frame.line).unwrap_or(0);
        let column = u32::try_from(frame.column).unwrap_or(0);
        Some((frame.path(), line, column))
    }

    fn place(&mut self, op: OpRef<'m>) {
        if let Some((file, line, column)) = Self::origin(op) {
            self.b.set_origin(&file, line, column);
        }
    }

    /// What stops an op of which nothing more is to be said.
    fn silent(&self) -> Box<Error> {
        Error::new(Code::E1641, Section::Functions, None, "")
    }

    fn op(&mut self, op: OpRef<'m>) -> Done {
        use Opcode as O;
        match op.opcode() {
            O::MakeToken | O::JoinTokens | O::MemoryFenceAliasTko => {
                self.tokens(op);
                Ok(())
            }
            O::Assume => self.assume(op),
            O::Assert => self.assert(op),
            O::PrintTko => self.print(op),
            O::GetTileBlockId | O::GetNumTileBlocks => {
                let code = if op.opcode() == O::GetTileBlockId { Ir::ProgramId } else { Ir::NumPrograms };
                for (axis, result) in op.results().enumerate() {
                    let v = self.b.op(code).int(keys::AXIS, axis as i64).inferred().finish_one();
                    self.known[result] = Known::Value(v);
                }
                Ok(())
            }
            O::For => self.counted_loop(op),
            O::Loop => self.endless_loop(op),
            O::If => self.branch(op),
            O::Yield | O::Break | O::Continue | O::Return => self.terminator(op),
            O::MakeTensorView => self.tensor_view(op),
            O::MakePartitionView | O::MakeStridedView | O::MakeGatherScatterView => self.tile_view(op),
            O::GetIndexSpaceShape | O::GetTensorShape => self.view_shape(op),
            O::LoadViewTko => self.load_view(op),
            O::StoreViewTko => self.store_view(op),
            O::AtomicRedViewTko => self.update_view(op),
            O::LoadPtrTko => self.load_pointer(op),
            O::StorePtrTko => self.store_pointer(op),
            O::AtomicRmwTko | O::AtomicCasTko => self.update_pointer(op),
            O::Offset => self.offset(op),
            O::Constant => self.constant_op(op),
            O::Iota => self.iota(op),
            O::Reshape | O::Broadcast | O::Permute | O::Cat | O::Extract => self.shape_op(op),
            O::Select => self.select(op),
            O::Insert => self.insert(op),
            O::Pack | O::Unpack => self.bytes(op),
            O::IntToPtr => self.int_to_ptr(op),
            O::GetGlobal => self.global(op),
            O::PtrToInt => self.ptr_to_int(op),
            O::PtrToPtr => self.ptr_to_ptr(op),
            O::GdcWaitTko => {
                self.tokens(op);
                // Before anything is accessed: the kernel's prologue does.
                let f = self.b.func();
                let unit = f.intern_attr(AttrData::Unit);
                f.attrs.set(keys::GRID_WAIT, unit);
                Ok(())
            }
            O::GdcLaunchDependentsTko => {
                self.tokens(op);
                self.warnings.push(*op.error(Code::W1641, "the end of the kernel lets its dependents begin"));
                Ok(())
            }
            O::Reduce | O::Scan => self.reduction(op),
            O::Mmaf | O::Mmai => self.product(op),
            O::MmafScaled => self.scaled_product(op),
            code if elementwise::counterpart(code).is_some() => self.elementwise(op),
            code => Err(op.error(Code::E1641, format!("`{code}` is not supported"))),
        }
    }

    fn tokens(&mut self, op: OpRef<'m>) {
        for result in op.results().filter(|&r| *self.func.ty(r) == TypeData::Token) {
            self.known[result] = Known::Token;
        }
    }

    /// Element type and extents of a tile's value.
    fn tile_type(&self, op: OpRef<'m>, v: Value) -> Result<(Scalar, Shape), Box<Error>> {
        let Some((elem, shape)) = self.func.ty(v).tile() else {
            return Err(op.error(Code::E1642, "a tile is expected"));
        };
        let num = match elem {
            Elem::Num(num) => num,
            Elem::Ptr { pointee, .. } => pointee,
        };
        let Some(scalar) = scalar_of(num) else {
            return Err(op.error(Code::E1642, format!("elements of type {num} are not supported")));
        };
        Ok((scalar, shape.iter().map(|&n| u32::try_from(n).unwrap_or(0)).collect()))
    }

    /// The type here of a tile that is made of tiles; a scalar, if it has no extents.
    fn ir_type(&mut self, elem: Scalar, shape: &[u32]) -> ir::Type {
        if shape.is_empty() { self.b.scalar_type(elem) } else { self.b.tile_type(shape, elem) }
    }

    fn set(&mut self, op: OpRef<'m>, v: ir::Value) {
        if let Some(result) = op.result(0) {
            self.known[result] = Known::Value(v);
        }
    }

    /// The value of an operand: a scalar or tile.
    fn value(&mut self, op: OpRef<'m>, v: Value) -> Result<ir::Value, Box<Error>> {
        match &self.known[v] {
            Known::Value(x) => Ok(*x),
            Known::Nothing => Err(self.silent()),
            _ => Err(op.error(Code::E1642, "a pointer or view stands where numbers are expected")),
        }
    }

    fn named(&mut self, op: OpRef<'m>, seg: Seg) -> Result<ir::Value, Box<Error>> {
        match op.operand(seg) {
            Some(v) => self.value(op, v),
            None => Err(op.error(Code::E1642, format!("`{}` is missing", seg.name()))),
        }
    }

    /// The value as a scalar.
    fn scalar(&mut self, op: OpRef<'m>, v: Value) -> Result<ir::Value, Box<Error>> {
        let x = self.value(op, v)?;
        Ok(self.as_scalar(x))
    }

    /// A tile without extents as a scalar; scalars are that.
    fn as_scalar(&mut self, x: ir::Value) -> ir::Value {
        let data = self.b.func().value_data(x);
        let Some(elem) = data.elem().filter(|_| data.is_tile()) else { return x };
        if let Some(from) = self.splat_of(x) {
            return from;
        }
        if let Some(&known) = self.scalars.get(&x) {
            return known;
        }
        let ty = self.b.scalar_type(elem);
        let made = self.b.op(Ir::Unsplat).operand(x).results(&[ty]).finish_one();
        if self.depth == 0 {
            self.scalars.insert(x, made);
        }
        made
    }

    /// A scalar as a tile; tiles are that.
    fn as_tile(&mut self, x: ir::Value) -> ir::Value {
        match *self.b.func().value_data(x) {
            ir::TypeData::Scalar(elem) => {
                let ty = self.b.tile_type(&[], elem);
                self.b.op(Ir::Splat).operand(x).results(&[ty]).finish_one()
            }
            _ => x,
        }
    }

    /// The scalar that all elements of a tile are.
    fn splat_of(&mut self, x: ir::Value) -> Option<ir::Value> {
        let f = self.b.func();
        let op = f.defining_op(x)?;
        match f.opcode(op) {
            Ir::Splat => f.operands(op).first().copied(),
            Ir::Constant if f.value_data(x).is_tile() => {
                let (elem, number) = (f.value_data(x).elem()?, f.attr(op, keys::VALUE)?.clone());
                let ty = self.b.scalar_type(elem);
                Some(self.b.op(Ir::Constant).attr(keys::VALUE, number).results(&[ty]).finish_one())
            }
            _ => None,
        }
    }

    /// A scalar in every element of a tile.
    fn splat(&mut self, x: ir::Value, shape: &[u32]) -> ir::Value {
        let f = self.b.func();
        let Some(elem) = f.value_data(x).elem() else { return x };
        let number = f
            .defining_op(x)
            .filter(|&op| f.opcode(op) == Ir::Constant)
            .and_then(|op| f.attr(op, keys::VALUE).cloned());
        let ty = self.b.tile_type(shape, elem);
        match number {
            Some(number) => self.number(number, ty),
            None => self.b.op(Ir::Splat).operand(x).results(&[ty]).finish_one(),
        }
    }

    /// A constant, once.
    fn number(&mut self, number: AttrData, ty: ir::Type) -> ir::Value {
        let bits = match &number {
            AttrData::Int(n, _) => Some(*n as u64),
            AttrData::Float(x, _) => Some(x.get().to_bits()),
            _ => None,
        };
        if let Some(&known) = bits.and_then(|bits| self.constants.get(&(ty, bits))) {
            return known;
        }
        let v = self.b.op(Ir::Constant).attr(keys::VALUE, number).results(&[ty]).finish_one();
        if let (Some(bits), 0) = (bits, self.depth) {
            self.constants.insert((ty, bits), v);
        }
        v
    }

    /// An integer constant.
    fn integer(&mut self, n: i64, elem: Scalar) -> ir::Value {
        let ty = self.b.scalar_type(elem);
        let v = self.number(AttrData::Int(n, None), ty);
        if n != 0 {
            self.divisors.insert(v, 1 << n.trailing_zeros().min(62));
        }
        v
    }

    /// An integer that is known, if it is.
    fn known_integer(&mut self, x: ir::Value) -> Option<i64> {
        let f = self.b.func();
        let op = f.defining_op(x)?;
        match f.opcode(op) {
            Ir::Constant => f.attr_int(op, keys::VALUE),
            Ir::Splat | Ir::Exti | Ir::Assume => {
                let from = f.operands(op).first().copied()?;
                self.known_integer(from)
            }
            _ => None,
        }
    }

    /// An integer scalar or tile in another width, signed.
    fn resized(&mut self, x: ir::Value, to: Scalar) -> ir::Value {
        let data = self.b.func().value_data(x);
        let Some(from) = data.elem().filter(|&e| e != to) else { return x };
        let code = if from.bits() < to.bits() { Ir::Exti } else { Ir::Trunci };
        let shape = data.dims().map(Shape::from_slice);
        let ty = match shape {
            Some(shape) => self.b.tile_type(&shape, to),
            None => self.b.scalar_type(to),
        };
        self.b.op(code).operand(x).results(&[ty]).finish_one()
    }

    fn assume(&mut self, op: OpRef<'m>) -> Done {
        use crate::attr::Attr;
        let (Some(source), Some(result)) = (op.operand(Seg::Value), op.result(0)) else { return Ok(()) };
        let known = self.known[source].clone();
        let promise = op.attr(Key::Predicate);
        let (divisor, least, most) = match promise {
            Some(&Attr::DivBy { divisor, every: None, along: None }) => (Some(divisor), None, None),
            Some(&Attr::Bounded { lower, upper }) => (None, lower, upper),
            _ => (None, None, None),
        };
        let divisor = divisor.filter(|d| d.is_power_of_two() && *d < 1 << 40);
        let promised = |this: &mut Self, x: ir::Value| {
            let ty = this.b.func().value_type(x);
            let made = this.b.op(Ir::Assume).operand(x);
            let made = match divisor {
                Some(d) => made.int(keys::DIV_BY, d as i64),
                None => made,
            };
            let made = match least {
                Some(n) => made.int(keys::MIN, n),
                None => made,
            };
            let made = match most {
                Some(n) => made.int(keys::MAX, n),
                None => made,
            };
            let v = made.results(&[ty]).finish_one();
            let before = this.divisors.get(&x).copied().unwrap_or(1);
            this.divisors.insert(v, before.max(divisor.unwrap_or(1)));
            v
        };
        let says = divisor.is_some() || least.is_some() || most.is_some();
        self.known[result] = match known {
            Known::Value(x) if says && !self.b.func().value_data(x).is_tile() => {
                Known::Value(promised(self, x))
            }
            Known::Pointer(p) if divisor.is_some() && p.offset.is_none() && p.shape.is_none() => {
                let base = promised(self, p.base);
                Known::Pointer(pointers::Pointer { base, ..p })
            }
            other => other,
        };
        Ok(())
    }
}
