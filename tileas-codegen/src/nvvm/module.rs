//! Modules, functions, blocks, instructions: the data of the thread-level IR.
//!
//! Instructions, registers and blocks are entities; their data are maps owned by [`Function`].
//! Operands live in one pool per function; brace lists are sub-ranges of it. Registers are not in SSA form: a loop
//! variable may be written more than once. A block is a list of instructions that ends in an unguarded terminator;
//! the only branch before it may be one guarded `bra` directly in front of it.

use super::forms::{PtxOp, Special, Target};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl, packed_option::PackedOption};

/// An instruction.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inst(u32);
entity_impl!(Inst, "inst");

/// A virtual register.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(u32);
entity_impl!(Reg, "v");

/// A basic block.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bb(u32);
entity_impl!(Bb, "bb");

/// A parameter of a function.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Param(u32);
entity_impl!(Param, "param");

/// A module-level variable.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sym(u32);
entity_impl!(Sym, "sym");

/// Type of a virtual register.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RegTy {
    /// Predicate.
    Pred,
    /// 16 bits: integers, f16, bf16, pairs of 8-bit floats.
    B16,
    /// 32 bits: integers, shared addresses, f16x2, bf16x2.
    #[default]
    B32,
    /// 64 bits: integers, pointers, descriptors, f32x2.
    B64,
    /// f32.
    F32,
}

impl RegTy {
    /// All types, in declaration order of the emitted registers.
    pub const ALL: [RegTy; 5] = [RegTy::Pred, RegTy::B16, RegTy::B32, RegTy::B64, RegTy::F32];

    /// 32-bit registers it occupies; predicates have a file of their own.
    pub const fn units(self) -> u32 {
        match self {
            RegTy::Pred => 0,
            RegTy::B16 | RegTy::B32 | RegTy::F32 => 1,
            RegTy::B64 => 2,
        }
    }

    /// PTX type of the declaration.
    pub fn as_str(self) -> &'static str {
        match self {
            RegTy::Pred => "pred",
            RegTy::B16 => "b16",
            RegTy::B32 => "b32",
            RegTy::B64 => "b64",
            RegTy::F32 => "f32",
        }
    }
}

/// A contiguous run of virtual registers of one type.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Regs {
    pub(crate) first: u32,
    pub(crate) len: u32,
}

impl Regs {
    /// Number of registers.
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The `i`th register, if there is one.
    pub fn get(self, i: usize) -> Option<Reg> {
        (i < self.len()).then(|| Reg::new(self.first as usize + i))
    }

    /// The registers in order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Reg> + ExactSizeIterator + Clone {
        (0..self.len()).map(move |i| Reg::new(self.first as usize + i))
    }

    /// Registers `from..to` of the run, clipped to it.
    pub fn slice(self, from: usize, to: usize) -> Regs {
        let to = to.min(self.len());
        let from = from.min(to);
        Regs { first: self.first + from as u32, len: (to - from) as u32 }
    }
}

impl IntoIterator for Regs {
    type Item = Reg;
    type IntoIter = std::iter::Map<std::ops::Range<u32>, fn(u32) -> Reg>;
    fn into_iter(self) -> Self::IntoIter {
        (self.first..self.first + self.len).map(Reg::from_u32)
    }
}

/// A brace list: a range of the function's operand pool.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct List {
    pub(crate) start: u32,
    pub(crate) len: u16,
}

/// An operand.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register; in an address position, the address it holds.
    Reg(Reg),
    /// An integer immediate (also 0 and 1 for predicates).
    Imm(i64),
    /// An f32 immediate, as bits.
    F32(u32),
    /// A special register.
    Special(Special),
    /// A module-level variable: its address.
    Sym(Sym),
    /// A parameter.
    Param(Param),
    /// Address: register plus bytes (tensor memory: columns).
    Addr {
        /// Register part.
        base: Reg,
        /// Constant part.
        offset: i32,
    },
    /// Address: variable plus bytes.
    SymAddr {
        /// The variable.
        sym: Sym,
        /// Constant part.
        offset: i32,
    },
    /// Address: parameter plus bytes.
    ParamAddr {
        /// The parameter.
        param: Param,
        /// Constant part.
        offset: i32,
    },
    /// Address: byte offset in the function's local area.
    Local(u32),
    /// One of the function's texts: its address.
    Text(u32),
    /// A brace list of registers or immediates.
    List(List),
    /// A branch target.
    Block(Bb),
}

impl Operand {
    /// An f32 immediate.
    pub fn f32(value: f32) -> Operand {
        Operand::F32(value.to_bits())
    }

    /// Address `base + offset`.
    pub fn addr(base: Reg, offset: i32) -> Operand {
        Operand::Addr { base, offset }
    }

    /// The register this operand reads or writes, brace lists apart.
    #[inline]
    pub fn reg(self) -> Option<Reg> {
        match self {
            Operand::Reg(r) | Operand::Addr { base: r, .. } => Some(r),
            _ => None,
        }
    }

    /// The integer immediate.
    #[inline]
    pub fn imm(self) -> Option<i64> {
        match self {
            Operand::Imm(v) => Some(v),
            _ => None,
        }
    }
}

macro_rules! operand_from {
    ($($t:ty => |$x:ident| $e:expr;)*) => {
        $(impl From<$t> for Operand {
            fn from($x: $t) -> Operand {
                $e
            }
        })*
    };
}
operand_from! {
    Reg => |r| Operand::Reg(r);
    i32 => |v| Operand::Imm(i64::from(v));
    u32 => |v| Operand::Imm(i64::from(v));
    i64 => |v| Operand::Imm(v);
    u64 => |v| Operand::Imm(v as i64);
    usize => |v| Operand::Imm(v as i64);
    bool => |v| Operand::Imm(i64::from(v));
    f32 => |v| Operand::F32(v.to_bits());
    Special => |s| Operand::Special(s);
    Sym => |s| Operand::Sym(s);
    Param => |p| Operand::Param(p);
    List => |l| Operand::List(l);
    Bb => |b| Operand::Block(b);
    (Reg, i32) => |a| Operand::Addr { base: a.0, offset: a.1 };
    (Sym, i32) => |a| Operand::SymAddr { sym: a.0, offset: a.1 };
    (Param, i32) => |a| Operand::ParamAddr { param: a.0, offset: a.1 };
}

/// The guard of an instruction: it executes only where the predicate has the wanted value.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    pub(crate) pred: PackedOption<Reg>,
    pub(crate) negated: bool,
}

impl Guard {
    /// `@pred`, or `@!pred` if `negated`.
    pub fn new(pred: Reg, negated: bool) -> Guard {
        Guard { pred: pred.into(), negated }
    }

    /// The predicate and whether it is negated.
    pub fn get(self) -> Option<(Reg, bool)> {
        self.pred.expand().map(|p| (p, self.negated))
    }

    /// Whether there is a guard.
    pub fn is_some(self) -> bool {
        self.pred.is_some()
    }
}

/// One instruction. Nearly every pass looks at most of this at once, so it stands together.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Node {
    /// Operands: where in the pool, and how many.
    start: u32,
    len: u16,
    op: PtxOp,
    guard: Guard,
    pub(crate) next: PackedOption<Inst>,
    pub(crate) prev: PackedOption<Inst>,
}

/// What a parameter is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A 128-byte tensor map by value, 64-byte aligned.
    TensorMap,
    /// A generic pointer to global memory, with the alignment the host promises (0: unknown).
    Pointer {
        /// Bytes, a power of two.
        align: u32,
    },
    /// 8 bits.
    B8,
    /// 16 bits.
    B16,
    /// 32-bit integer.
    U32,
    /// 64-bit integer.
    U64,
    /// f32.
    F32,
}

impl ParamKind {
    /// Size in bytes.
    pub fn size(self) -> u32 {
        match self {
            ParamKind::TensorMap => 128,
            ParamKind::Pointer { .. } | ParamKind::U64 => 8,
            ParamKind::U32 | ParamKind::F32 => 4,
            ParamKind::B16 => 2,
            ParamKind::B8 => 1,
        }
    }

    /// Alignment in bytes.
    pub fn align(self) -> u32 {
        match self {
            ParamKind::TensorMap => 64,
            other => other.size(),
        }
    }
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamData {
    /// Name, unique in the function.
    pub name: String,
    /// Kind.
    pub kind: ParamKind,
}

/// Visibility of a function.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Linkage {
    /// Found by name in the loaded module.
    #[default]
    Visible,
    /// Exported, may be overridden.
    Weak,
    /// Private to the module.
    Local,
}

/// Launch directives of a kernel. Source: PTX ISA, Performance-Tuning and Cluster Dimension Directives.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchBounds {
    /// `.reqntid`: the exact block size.
    pub reqntid: Option<[u32; 3]>,
    /// `.maxntid`: an upper bound of the block size; excludes `reqntid`.
    pub maxntid: Option<[u32; 3]>,
    /// `.minnctapersm`; needs one of the two above.
    pub minnctapersm: Option<u32>,
    /// `.maxnreg`; excludes `minnctapersm`.
    pub maxnreg: Option<u32>,
    /// `.reqnctapercluster`.
    pub cluster: Option<[u32; 3]>,
}

/// A block's data.
#[derive(Clone, Debug, Default)]
pub struct BlockData {
    pub(crate) first: PackedOption<Inst>,
    pub(crate) last: PackedOption<Inst>,
    /// A hint for readers; becomes part of the label's comment.
    pub name: Option<String>,
    /// `.pragma "nounroll"` at the start of the block (a loop header).
    pub nounroll: bool,
    /// The first block of an agent: it and what it dominates is run by that agent's warps alone.
    pub agent: bool,
}

/// A function: a kernel.
#[derive(Clone, Debug)]
pub struct Function {
    /// Symbol name.
    pub name: String,
    /// Whether it is a kernel (`.entry`).
    pub is_kernel: bool,
    /// Visibility.
    pub linkage: Linkage,
    /// Launch directives.
    pub launch: LaunchBounds,
    /// Parameters, in ABI order.
    pub params: PrimaryMap<Param, ParamData>,
    /// Bytes of the local (spill) area, 16-byte aligned.
    pub local_bytes: u32,
    /// `.pragma "nounroll"` for the whole function.
    pub nounroll: bool,
    /// Texts in global memory, which end in a NUL there: formats and messages.
    pub texts: Vec<String>,
    pub(crate) nodes: PrimaryMap<Inst, Node>,
    pub(crate) pool: Vec<Operand>,
    pub(crate) reg_ty: PrimaryMap<Reg, RegTy>,
    /// Blocks by number; see [`Function::layout`] for their order.
    pub blocks: PrimaryMap<Bb, BlockData>,
    pub(crate) layout: Vec<Bb>,
    pub(crate) comments: Vec<(Inst, String)>,
    /// By instruction: 1 more than the number of the op that it is of, where that is asked for.
    pub(crate) of_op: SecondaryMap<Inst, u32>,
}

impl Function {
    /// An empty kernel.
    pub fn kernel(name: impl Into<String>) -> Function {
        Function {
            name: name.into(),
            is_kernel: true,
            linkage: Linkage::Visible,
            launch: LaunchBounds::default(),
            params: PrimaryMap::new(),
            local_bytes: 0,
            nounroll: false,
            texts: Vec::new(),
            nodes: PrimaryMap::new(),
            pool: Vec::new(),
            reg_ty: PrimaryMap::new(),
            blocks: PrimaryMap::new(),
            layout: Vec::new(),
            comments: Vec::new(),
            of_op: SecondaryMap::new(),
        }
    }

    /// The empty kernel, in the memory of this function.
    pub fn into_kernel(mut self, name: impl Into<String>) -> Function {
        let Function {
            name: own_name,
            is_kernel,
            linkage,
            launch,
            params,
            local_bytes,
            nounroll,
            texts,
            nodes,
            pool,
            reg_ty,
            blocks,
            layout,
            comments,
            of_op,
        } = &mut self;
        (*own_name, *is_kernel, *linkage, *launch) =
            (name.into(), true, Linkage::Visible, LaunchBounds::default());
        (*local_bytes, *nounroll) = (0, false);
        texts.clear();
        params.clear();
        nodes.clear();
        pool.clear();
        reg_ty.clear();
        blocks.clear();
        layout.clear();
        comments.clear();
        of_op.clear();
        self
    }

    /// Adds a parameter.
    pub fn param(&mut self, name: impl Into<String>, kind: ParamKind) -> Param {
        self.params.push(ParamData { name: name.into(), kind })
    }

    /// A fresh register.
    #[inline]
    pub fn reg(&mut self, ty: RegTy) -> Reg {
        self.reg_ty.push(ty)
    }

    /// `n` fresh registers with consecutive numbers.
    pub fn regs(&mut self, ty: RegTy, n: usize) -> Regs {
        let first = self.reg_ty.len() as u32;
        for _ in 0..n {
            self.reg_ty.push(ty);
        }
        Regs { first, len: n as u32 }
    }

    /// Type of a register.
    #[inline]
    pub fn ty(&self, reg: Reg) -> RegTy {
        self.reg_ty[reg]
    }

    /// Number of registers ever made.
    pub fn num_regs(&self) -> usize {
        self.reg_ty.len()
    }

    /// Number of instructions ever made.
    pub fn num_insts(&self) -> usize {
        self.nodes.len()
    }

    /// Blocks in emission order; the first is the entry.
    pub fn layout(&self) -> &[Bb] {
        &self.layout
    }

    /// A new block, not yet in the layout.
    pub fn block(&mut self) -> Bb {
        self.blocks.push(BlockData::default())
    }

    /// Appends a block to the layout.
    pub fn append_block(&mut self, bb: Bb) {
        self.layout.push(bb);
    }

    /// Stores a brace list.
    pub fn list(&mut self, items: impl IntoIterator<Item = Operand>) -> List {
        let start = self.pool.len();
        self.pool.extend(items);
        List { start: start as u32, len: (self.pool.len() - start) as u16 }
    }

    /// Elements of a brace list.
    #[inline]
    pub fn list_items(&self, list: List) -> &[Operand] {
        &self.pool[list.start as usize..list.start as usize + list.len as usize]
    }

    /// A new instruction, not yet in a block.
    #[inline]
    pub fn make_inst(&mut self, op: PtxOp, operands: &[Operand], guard: Guard) -> Inst {
        let start = self.pool.len() as u32;
        self.pool.extend_from_slice(operands);
        let (len, none) = (operands.len() as u16, PackedOption::default());
        self.nodes.push(Node { start, len, op, guard, next: none, prev: none })
    }

    /// The instruction's form.
    #[inline]
    pub fn op(&self, inst: Inst) -> PtxOp {
        self.nodes[inst].op
    }

    /// Its operands in order of appearance.
    #[inline]
    pub fn operands(&self, inst: Inst) -> &[Operand] {
        let r = &self.nodes[inst];
        &self.pool[r.start as usize..r.start as usize + usize::from(r.len)]
    }

    /// Its operands, to be changed in place.
    #[inline]
    pub fn operands_mut(&mut self, inst: Inst) -> &mut [Operand] {
        let r = &self.nodes[inst];
        &mut self.pool[r.start as usize..r.start as usize + usize::from(r.len)]
    }

    /// Gives the variables of the module that operands name other numbers.
    pub(crate) fn renumber_symbols(&mut self, to: impl Fn(Sym) -> Sym) {
        for operand in &mut self.pool {
            if let Operand::Sym(sym) | Operand::SymAddr { sym, .. } = operand {
                *sym = to(*sym);
            }
        }
    }

    /// Its guard.
    #[inline]
    pub fn guard(&self, inst: Inst) -> Guard {
        self.nodes[inst].guard
    }

    /// Sets its guard.
    pub fn set_guard(&mut self, inst: Inst, guard: Guard) {
        self.nodes[inst].guard = guard;
    }

    /// Attaches a comment to an instruction.
    pub fn comment(&mut self, inst: Inst, text: impl Into<String>) {
        self.comments.push((inst, text.into()));
    }

    /// Turns the instruction into another one with the same number of operands or fewer.
    pub fn rewrite(&mut self, inst: Inst, op: PtxOp, operands: &[Operand]) {
        let node = &mut self.nodes[inst];
        if operands.len() > usize::from(node.len) {
            node.start = self.pool.len() as u32;
            self.pool.extend_from_slice(operands);
        } else {
            self.pool[node.start as usize..node.start as usize + operands.len()].copy_from_slice(operands);
        }
        node.len = operands.len() as u16;
        node.op = op;
    }

    /// Appends an instruction to a block.
    #[inline]
    pub fn append_inst(&mut self, bb: Bb, inst: Inst) {
        let last = self.blocks[bb].last;
        match last.expand() {
            Some(l) => {
                self.nodes[l].next = inst.into();
                self.nodes[inst].prev = last;
            }
            None => self.blocks[bb].first = inst.into(),
        }
        self.blocks[bb].last = inst.into();
    }

    /// Inserts `inst` before `at`, which is in block `bb`.
    pub fn insert_before(&mut self, bb: Bb, at: Inst, inst: Inst) {
        let before = self.nodes[at].prev;
        self.nodes[inst].prev = before;
        self.nodes[inst].next = at.into();
        self.nodes[at].prev = inst.into();
        match before.expand() {
            Some(b) => self.nodes[b].next = inst.into(),
            None => self.blocks[bb].first = inst.into(),
        }
    }

    /// Takes an instruction out of its block.
    pub fn remove_inst(&mut self, bb: Bb, inst: Inst) {
        let (prev, next) = (self.nodes[inst].prev, self.nodes[inst].next);
        match prev.expand() {
            Some(p) => self.nodes[p].next = next,
            None => self.blocks[bb].first = next,
        }
        match next.expand() {
            Some(n) => self.nodes[n].prev = prev,
            None => self.blocks[bb].last = prev,
        }
        self.nodes[inst].prev = None.into();
        self.nodes[inst].next = None.into();
    }

    /// Moves all instructions of `from` to the end of `bb`.
    pub fn splice(&mut self, bb: Bb, from: Bb) {
        let data = &mut self.blocks[from];
        let (first, last) = (data.first.take(), data.last.take());
        let (Some(first), Some(last)) = (first, last) else { return };
        match self.blocks[bb].last.expand() {
            Some(end) => {
                self.nodes[end].next = first.into();
                self.nodes[first].prev = end.into();
            }
            None => self.blocks[bb].first = first.into(),
        }
        self.blocks[bb].last = last.into();
    }

    /// Instructions of a block in order.
    pub fn insts(&self, bb: Bb) -> InstIter<'_> {
        InstIter { func: self, at: self.blocks[bb].first.expand() }
    }

    /// First instruction of a block.
    #[inline]
    pub fn first_inst(&self, bb: Bb) -> Option<Inst> {
        self.blocks[bb].first.expand()
    }

    /// Last instruction of a block.
    #[inline]
    pub fn last_inst(&self, bb: Bb) -> Option<Inst> {
        self.blocks[bb].last.expand()
    }

    /// The instruction before this one in its block.
    #[inline]
    pub fn prev_inst(&self, inst: Inst) -> Option<Inst> {
        self.nodes[inst].prev.expand()
    }

    /// The instruction after this one in its block.
    #[inline]
    pub fn next_inst(&self, inst: Inst) -> Option<Inst> {
        self.nodes[inst].next.expand()
    }

    /// Calls `f` with each register the instruction mentions; the flag says whether it is written. A guard is a read.
    #[inline]
    pub fn visit_regs(&self, inst: Inst, mut f: impl FnMut(Reg, bool)) {
        self.visit_reads(inst, |r| f(r, false));
        self.visit_writes(inst, |r| f(r, true));
    }

    /// Calls `f` with each register the instruction mentions, its guard included: [`Function::visit_regs`] for those
    /// who do not ask what is written.
    #[inline]
    pub fn visit_mentions(&self, inst: Inst, mut f: impl FnMut(Reg)) {
        let look = self.look(inst);
        if let Some((p, _)) = look.guard.get() {
            f(p);
        }
        look.mentions(look.operands, &mut f);
    }

    /// The operands the instruction writes, and those it reads. (In an address, the register is read in any case.)
    #[inline]
    pub fn results_and_sources(&self, inst: Inst) -> (&[Operand], &[Operand]) {
        self.look(inst).results_and_sources()
    }

    /// Calls `f` with each register the instruction writes.
    #[inline]
    pub fn visit_writes(&self, inst: Inst, f: impl FnMut(Reg)) {
        self.look(inst).visit_writes(f);
    }

    /// Calls `f` with each register the instruction reads, its guard included.
    #[inline]
    pub fn visit_reads(&self, inst: Inst, f: impl FnMut(Reg)) {
        self.look(inst).visit_reads(f);
    }

    /// The instruction as it is now, for who asks several things about it.
    #[inline]
    pub(crate) fn look(&self, inst: Inst) -> Look<'_> {
        let &Node { start, len, op, guard, .. } = &self.nodes[inst];
        let operands = &self.pool[start as usize..start as usize + usize::from(len)];
        Look { op, guard, operands, pool: &self.pool }
    }

    /// Whether control leaves the block here for good: an unguarded terminator.
    #[inline]
    pub fn ends_block(&self, inst: Inst) -> bool {
        let node = &self.nodes[inst];
        node.op.is_terminator() && !node.guard.is_some()
    }

    /// Targets of the branches that end a block: first the guarded one, then the final one.
    pub fn successors(&self, bb: Bb) -> [Option<Bb>; 2] {
        let mut out = [None; 2];
        let Some(last) = self.last_inst(bb) else { return out };
        let target = |inst: Inst| match self.look(inst) {
            Look { op, operands: [Operand::Block(t)], .. } if op.is_branch() => Some(*t),
            _ => None,
        };
        out[1] = target(last);
        if let Some(before) = self.nodes[last].prev.expand()
            && self.guard(before).is_some()
        {
            out[0] = target(before);
        }
        out
    }
}

/// An instruction, looked up once.
#[derive(Copy, Clone)]
pub(crate) struct Look<'a> {
    /// Its form.
    pub op: PtxOp,
    /// Its guard.
    pub guard: Guard,
    /// Its operands in order of appearance.
    pub operands: &'a [Operand],
    /// All operands of the function, for brace lists.
    pool: &'a [Operand],
}

impl<'a> Look<'a> {
    /// As [`Function::results_and_sources`].
    #[inline]
    pub fn results_and_sources(self) -> (&'a [Operand], &'a [Operand]) {
        self.operands.split_at(self.op.num_results().min(self.operands.len()))
    }

    /// As [`Function::visit_writes`].
    #[inline]
    pub fn visit_writes(self, mut f: impl FnMut(Reg)) {
        for operand in self.results_and_sources().0 {
            match *operand {
                Operand::Reg(r) => f(r),
                Operand::List(l) => self.list_regs(l, &mut f),
                _ => {}
            }
        }
    }

    /// As [`Function::visit_reads`].
    #[inline]
    pub fn visit_reads(self, mut f: impl FnMut(Reg)) {
        if let Some((p, _)) = self.guard.get() {
            f(p);
        }
        let (results, sources) = self.results_and_sources();
        // A product that is told to add to nothing (its third source) reads no accumulator.
        let overwrites = matches!(sources.get(2), Some(Operand::Imm(0)));
        if self.op.updates() && !overwrites {
            self.mentions(results, &mut f);
        }
        for operand in results {
            if let Operand::Addr { base, .. } = *operand {
                f(base);
            }
        }
        self.mentions(sources, &mut f);
    }

    #[inline]
    fn mentions(self, operands: &[Operand], f: &mut impl FnMut(Reg)) {
        for operand in operands {
            match *operand {
                Operand::Reg(r) | Operand::Addr { base: r, .. } => f(r),
                Operand::List(l) => self.list_regs(l, f),
                _ => {}
            }
        }
    }

    #[inline]
    fn list_regs(self, list: List, f: &mut impl FnMut(Reg)) {
        for item in &self.pool[list.start as usize..list.start as usize + list.len as usize] {
            if let Operand::Reg(r) = *item {
                f(r);
            }
        }
    }
}

/// Iterator over the instructions of a block.
pub struct InstIter<'a> {
    func: &'a Function,
    at: Option<Inst>,
}

impl Iterator for InstIter<'_> {
    type Item = Inst;
    fn next(&mut self) -> Option<Inst> {
        let inst = self.at?;
        self.at = self.func.nodes[inst].next.expand();
        Some(inst)
    }
}

/// Where a module-level variable lives.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SymKind {
    /// Dynamic shared memory: size given at launch.
    DynamicShared,
    /// Static shared memory of that many bytes.
    Shared {
        /// Size.
        bytes: u32,
    },
    /// Global memory of that many bytes, which begin with [`SymData::init`].
    Global {
        /// Size.
        bytes: u32,
    },
}

/// A module-level variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymData {
    /// Name, unique in the module.
    pub name: String,
    /// Place and size.
    pub kind: SymKind,
    /// Alignment in bytes, a power of two.
    pub align: u32,
    /// The first bytes of global memory; zeros follow.
    pub init: Vec<u8>,
}

/// A module: variables and functions for one target.
#[derive(Clone, Debug)]
pub struct Module {
    /// Target of every function.
    pub target: Target,
    /// Variables.
    pub symbols: PrimaryMap<Sym, SymData>,
    /// Functions in emission order.
    pub functions: Vec<Function>,
}

impl Module {
    /// An empty module.
    pub fn new(target: Target) -> Module {
        Module { target, symbols: PrimaryMap::new(), functions: Vec::new() }
    }

    /// Declares dynamic shared memory.
    pub fn dynamic_shared(&mut self, name: impl Into<String>, align: u32) -> Sym {
        self.symbols.push(SymData {
            name: name.into(),
            kind: SymKind::DynamicShared,
            align,
            init: Vec::new(),
        })
    }

    /// Declares static shared memory.
    pub fn shared(&mut self, name: impl Into<String>, bytes: u32, align: u32) -> Sym {
        self.symbols.push(SymData {
            name: name.into(),
            kind: SymKind::Shared { bytes },
            align,
            init: Vec::new(),
        })
    }

    /// Declares a variable in global memory that begins with `init`.
    pub fn global(&mut self, name: impl Into<String>, bytes: u32, align: u32, init: Vec<u8>) -> Sym {
        self.symbols.push(SymData { name: name.into(), kind: SymKind::Global { bytes }, align, init })
    }
}
