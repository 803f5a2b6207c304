//! Materialised tile IR → thread-level IR and launch metadata.
//!
//! In: a function in destination form (buffers, pipelines, one region per agent) and the target. Out: an
//! `nvvm` module and [`tileas_launch::LaunchMetadata`]. Every op lowers by itself; there are no kernel templates.
//!
//! Steps: `params` decides the kernel ABI, `frame` emits what all warps share, `control` walks regions,
//! `convert` tiles between register layouts, `channels` lowers pipelines to mbarriers, `memory` TMA and copies, `global` direct loads and stores, `element` scalars in memory, `scalar` and `tile` arithmetic,
//! `slices` writes out loops over parts of register tiles, `fuse` says which conversions between floats need no instructions of their own.
//! Guarantee: unsupported input is a located `E08xx` error. Source: PTX ISA; architecture page, "Frame", "Channels".

mod agree;
mod channels;
mod columns;
mod combine;
mod control;
mod convert;
mod element;
mod frame;
mod fuse;
mod global;
mod grid;
mod lanes;
mod math;
mod memory;
mod metadata;
mod params;
mod print;
mod reduce;
mod scalar;
mod slices;
mod sparse;
mod tile;
mod tile_order;
mod turns;
mod warp;

use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Function, Layout, Op, Opcode, PipeDef, Scalar, Space, Type, TypeData, Value, keys};
use crate::isa::{EmitColumns, TargetIsa};
use crate::nvvm::verify::is_identifier;
use crate::nvvm::{self, FuncBuilder, Operand, Param, Reg, RegTy, Sym};
use crate::storage::scratch::Conversions;
use columns::{Stores, Unfenced};
use cranelift_entity::SecondaryMap;

/// A lowered kernel.
#[derive(Debug)]
pub struct Lowered {
    /// The module with one kernel.
    pub module: nvvm::Module,
    /// What a host needs to launch it.
    pub metadata: tileas_launch::LaunchMetadata,
}

/// Instructions of one kernel, at most, where nothing else is asked for.
pub const MAX_INSTRUCTIONS: usize = 1_000_000;

/// Memory of lowerings, kept from one to the next.
#[derive(Default)]
pub struct LowerScratch {
    /// A function that is no longer needed.
    spare: Option<nvvm::Function>,
    vals: SecondaryMap<Value, Val>,
    units: Vec<Operand>,
    pipes: Vec<Pipe>,
    moves: control::Moves,
    fusion: fuse::Fusion,
    conversions: Conversions,
    /// Whether ops have numbers for locations, which their instructions are to have.
    pub(crate) numbered: bool,
}

impl LowerScratch {
    /// Keeps the memory of a function that is no longer needed.
    pub fn recycle(&mut self, lowered: nvvm::Module) {
        self.spare = lowered.functions.into_iter().next_back();
    }
}

/// Lowers one materialised kernel, for a PTX module with all of `kernels` (sorted), whose names no parameter may have, with that many
/// instructions at most (by an operation's), and in the memory of earlier calls.
///
/// # Errors
/// `E08xx` with the op's location for anything that has no lowering on this target; `E1010` at the op that begins beyond the limit.
pub fn lower_in(
    func: &Function,
    kernels: &[&str],
    isa: &dyn TargetIsa,
    max_instructions: usize,
    scratch: &mut LowerScratch,
) -> CodegenResult<Lowered> {
    let target = nvvm::Target::from_name(isa.cpu().name).ok_or_else(|| {
        CodegenError::new(Code::E0801, func.loc, format!("no PTX target for cpu `{}`", isa.cpu().name))
    })?;
    let written = slices::write_out(func);
    let func = written.as_ref().unwrap_or(func);
    let ordered = tile_order::write_out(func);
    let func = ordered.as_ref().unwrap_or(func);
    // The entry shares its name space with the shared memory below.
    if !is_identifier(&func.name) || func.name == "smem" {
        let text = format!("kernel name `{}` cannot be that of a PTX entry", func.name);
        return Err(CodegenError::new(Code::E0911, func.loc, text));
    }
    let mut module = nvvm::Module::new(target);
    let smem = module.dynamic_shared("smem", 1024);
    let is_kernel = |name: &str| name == "smem" || name == func.name || kernels.binary_search(&name).is_ok();
    let variables = global::declare_variables(func, &mut module, &is_kernel)?;
    let is_global = |name: &str| is_kernel(name) || variables.iter().any(|v| v.0 == name);
    let abi = params::Abi::of(func, &is_global)?;
    let mut kernel = match scratch.spare.take() {
        Some(old) => old.into_kernel(func.name.clone()),
        None => nvvm::Function::kernel(func.name.clone()),
    };
    let nv_params = abi.declare(&mut kernel);
    let metadata;
    {
        let mut lw = Lower::new(func, isa, &mut kernel, smem, abi, nv_params, target, scratch);
        lw.max_instructions = max_instructions;
        lw.variables = &variables;
        lw.frame()?;
        metadata = lw.metadata()?;
    }
    module.functions.push(kernel);
    Ok(Lowered { module, metadata })
}

/// Operands of a tile: a range of the lowering's pool.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Units {
    start: u32,
    len: u32,
}

impl Units {
    pub fn len(self) -> usize {
        self.len as usize
    }

    fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    fn index(self, i: usize) -> usize {
        self.start as usize + i
    }
}

/// A tile in registers: one operand per 32-bit unit, which two 16-bit or four 8-bit elements share, or element of 64 bits.
#[derive(Copy, Clone, Debug)]
pub(crate) struct TileVal {
    /// Elements in register-bit order of the layout; one entry when all are equal.
    pub regs: Units,
    /// Every element equals the first unit (which is not packed).
    pub splat: bool,
    /// Type with its extents; see [`Lower::dims`].
    pub ty: Type,
    /// Element type.
    pub elem: Scalar,
    /// The units are still packed pairs of this type, to be widened by who reads them; see [`fuse`].
    pub held: Option<Scalar>,
    /// Register layout.
    pub layout: Layout,
}

/// A ring buffer in shared or tensor memory.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Buffer {
    /// Where.
    pub space: Space,
    /// Byte offset from the base, or first column and, 65536 times, lane.
    pub at: u32,
    /// Bytes (columns) from one slot to the next.
    pub slot: u32,
    /// Rows of one slot (product of all extents but the innermost).
    pub rows: u32,
    /// Innermost extent.
    pub cols: u32,
    /// Element type.
    pub elem: Scalar,
    /// Layout of one slot.
    pub layout: Layout,
    /// Each instance of the agent has one.
    pub own: bool,
    /// It has half of the lanes of its columns.
    pub half: bool,
    /// Index among the buffers, for per-agent caches.
    pub index: u32,
}

impl Buffer {
    /// Whether a slab has fewer rows than the swizzle's pattern, so that the pattern goes on in the next one.
    pub fn swizzle_spans_slabs(&self) -> bool {
        self.layout != Layout::SmemRow
            && self
                .layout
                .swizzle()
                .is_some_and(|s| s.xor_mask() != 0 && self.rows * s.span() < s.alignment())
    }
}

/// What an IR value has become.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) enum Val {
    /// Nothing: tokens, or not yet defined.
    #[default]
    None,
    /// A scalar (predicate register for `i1`).
    Scalar(Operand),
    /// A tile in registers.
    Tile(TileVal),
    /// A buffer.
    Buffer(Buffer),
    /// A descriptor: index into the ABI's tensor maps.
    Desc(usize),
    /// A view parameter; the ABI knows it by value.
    View,
    /// A pipeline: index into `pipes`.
    Pipe(usize),
    /// Ownership of a slot: pipeline, slot, phase.
    Owned(usize, Operand, Operand),
    /// Slot and phase, number of slots.
    Iter(Operand, Operand, u32),
}

/// The phase of a slot of a pipeline without mbarriers: nothing waits for it, so nothing carries it.
pub(crate) const NO_PHASE: Operand = Operand::Imm(-1);

/// A pipeline's lowering data.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Pipe {
    /// What its op says.
    pub def: PipeDef,
    pub slots: u32,
    pub full_at: i32,
    pub empty_at: i32,
    /// Named barrier instead of mbarriers.
    pub named: Option<u32>,
    /// Each instance of the agent has one.
    pub own: bool,
    /// Its payload is in tensor memory, or it is a token.
    pub tensor_side: bool,
    /// Its slots are freed in all CTAs of the cluster.
    pub multicast: bool,
}

/// The agent being lowered.
#[derive(Copy, Clone, Debug)]
pub(crate) struct AgentCtx {
    /// One elected lane runs everything.
    pub elect: bool,
    /// Number of warps.
    pub warps: u32,
    /// Warp index within the agent.
    pub warp: Operand,
    /// Predicate of the issuing lane (simt agents that issue one-thread ops).
    pub issuer: Option<Reg>,
    /// Uses tensor memory.
    pub tensor: bool,
    /// `tmem base + lane field` for loads and stores of this warp.
    pub tmem_warp: Option<Reg>,
    /// Thread index within the agent.
    pub thread: Option<Reg>,
    /// Entry b: this lane is one of the first 2^b of its warp, which hold the rows of a tile with few rows.
    pub row_lanes: [Option<Reg>; 5],
    /// This lane is the first of its warp.
    pub first_lane: Option<Reg>,
    /// Has issued bulk stores.
    pub stores: bool,
    /// The pipeline through which it stores all that it stores, if commits of it say too that the next slot is free.
    pub staging: Option<usize>,
    /// Memory between its warps.
    pub scratch: Option<convert::Scratch>,
    /// Of an agent with instances: which this is, and where its own memory is counted from.
    pub instance: Option<Instance>,
}

/// One of several instances of an agent.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Instance {
    /// Its number.
    pub number: Reg,
    /// What offsets of its own memory are added to.
    pub base: Reg,
    /// The parity of the next turn, as its barrier counts them.
    pub parity: Reg,
    /// First of the barriers of turns.
    pub turn_at: i32,
}

/// State of one lowering.
pub(crate) struct Lower<'a> {
    pub f: &'a Function,
    pub isa: &'a dyn TargetIsa,
    pub b: FuncBuilder<'a>,
    pub smem_sym: Sym,
    pub abi: params::Abi,
    pub nv: params::NvParams,
    pub vals: &'a mut SecondaryMap<Value, Val>,
    /// The operands of all tiles; only grows.
    pub units: &'a mut Vec<Operand>,
    pub pipes: &'a mut Vec<Pipe>,
    pub moves: &'a mut control::Moves,
    pub fusion: &'a mut fuse::Fusion,
    pub conversions: &'a mut Conversions,
    /// See [`LowerScratch::numbered`].
    pub numbered: bool,
    pub target: nvvm::Target,
    pub num_buffers: u32,
    pub max_instructions: usize,
    /// Variables of the kernel in global memory, by name.
    pub variables: &'a [(&'a str, nvvm::Sym)],
    /// Per product: what it needs of A and B, made at agent entry.
    pub operand_bases: SecondaryMap<Op, Option<[Reg; 2]>>,
    pub base: Option<Reg>,
    /// Tensor memory, where the target has it: what is emitted, and base and number of the columns allocated.
    pub columns: Option<&'a dyn EmitColumns>,
    pub tmem: Option<(Reg, u32)>,
    pub warp: Option<Reg>,
    pub lane: Option<Reg>,
    /// CTAs of the cluster, and which one this is.
    pub cluster: Option<(u32, Reg)>,
    /// Coordinates of the CTA's tile, where they are not its own.
    pub grid: [Option<Reg>; 3],
    pub agent: AgentCtx,
    /// Block that closes the open single-lane section.
    pub section: Option<nvvm::Bb>,
    pub requires: Vec<tileas_launch::Expr>,
    /// Stores to tensor memory since the last `wait::st`.
    pub pending_st: Stores,
    /// Order of tensor memory that the threads of the agent still have to fence.
    pub unfenced: Unfenced,
    /// Copies whose `when` was carried out before their loop.
    pub filled: smallvec::SmallVec<[Op; 2]>,
    /// By agent: memory between its warps.
    pub scratches: smallvec::SmallVec<[Option<convert::Scratch>; 4]>,
    /// Bytes of the agent's, from and to, that some of its threads may still read.
    pub reading: Option<(u32, u32)>,
    /// The scope of a tile's access that is not weak, while it is lowered.
    pub relaxed: Option<element::Scope>,
    /// An iteration is passed over that another instance runs: see [`turns`].
    pub passing: bool,
    /// First elements of tiles at coordinates, by their extents, computed in front of the loops around.
    pub firsts: smallvec::SmallVec<[(Value, u32, Operand); 4]>,
}

impl<'a> Lower<'a> {
    #[expect(clippy::too_many_arguments, reason = "called once, with what a lowering starts from")]
    fn new(
        f: &'a Function,
        isa: &'a dyn TargetIsa,
        kernel: &'a mut nvvm::Function,
        smem_sym: Sym,
        abi: params::Abi,
        nv: params::NvParams,
        target: nvvm::Target,
        scratch: &'a mut LowerScratch,
    ) -> Self {
        let LowerScratch { spare: _, vals, units, pipes, moves, fusion, conversions, numbered } = scratch;
        conversions.clear();
        fusion.mark(f);
        vals.clear();
        vals.resize(f.num_values());
        units.clear();
        pipes.clear();
        let agent = AgentCtx {
            elect: false,
            warps: 1,
            warp: Operand::Imm(0),
            issuer: None,
            tensor: false,
            tmem_warp: None,
            thread: None,
            row_lanes: [None; 5],
            first_lane: None,
            stores: false,
            staging: None,
            scratch: None,
            instance: None,
        };
        Lower {
            f,
            isa,
            b: FuncBuilder::new(kernel),
            smem_sym,
            abi,
            nv,
            vals,
            units,
            pipes,
            moves,
            fusion,
            conversions,
            numbered: *numbered,
            target,
            num_buffers: 0,
            max_instructions: MAX_INSTRUCTIONS,
            variables: &[],
            operand_bases: SecondaryMap::new(),
            base: None,
            columns: isa.emit().columns(),
            tmem: None,
            warp: None,
            lane: None,
            cluster: None,
            grid: [None; 3],
            agent,
            section: None,
            requires: Vec::new(),
            pending_st: Stores::new(),
            unfenced: Unfenced::default(),
            filled: smallvec::SmallVec::new(),
            scratches: smallvec::SmallVec::new(),
            reading: None,
            relaxed: None,
            passing: false,
            firsts: smallvec::SmallVec::new(),
        }
    }

    /// An error at an op.
    #[cold]
    #[inline(never)]
    pub fn err<T>(&self, code: Code, op: Op, message: impl Into<String>) -> CodegenResult<T> {
        Err(CodegenError::new(code, self.f.op_loc(op), message))
    }

    /// "unsupported" at an op.
    #[cold]
    #[inline(never)]
    pub fn unsupported<T>(&self, op: Op, what: impl std::fmt::Display) -> CodegenResult<T> {
        let name = self.f.opcode(op).name();
        self.err(Code::E0802, op, format!("unsupported on {}: `{name}` {what}", self.isa.cpu().name))
    }

    /// A scalar operand.
    pub fn scalar(&self, op: Op, v: Value) -> CodegenResult<Operand> {
        match &self.vals[v] {
            Val::Scalar(x) => Ok(*x),
            _ => self.err(Code::E0803, op, format!("operand {} has no scalar form here", self.name(v))),
        }
    }

    /// The first element of a tile of `extent` elements at a coordinate, in 32 bits.
    ///
    /// Extents are below 2^31. An element that is not is negative here whatever the coordinate, as are all that follow it in
    /// the tile: out of bounds for comparisons of either sign, and for the engines, whose coordinates are signed.
    pub fn first_element(&mut self, op: Op, v: Value, extent: u32) -> CodegenResult<Operand> {
        if let Some(&(.., known)) = self.firsts.iter().find(|f| (f.0, f.1) == (v, extent)) {
            return Ok(known);
        }
        let first_beyond = (1u32 << 31).div_ceil(extent.max(1));
        let wide = *self.f.value_data(v) == TypeData::Scalar(Scalar::I64);
        let inside = match self.scalar(op, v)? {
            Operand::Imm(n) if (0..i64::from(first_beyond)).contains(&n) => Operand::Imm(n),
            Operand::Imm(_) => Operand::Imm(i64::from(first_beyond)),
            Operand::Reg(r) if wide => {
                let r = self.b.min_u64(r, i64::from(first_beyond));
                self.b.cvt_u32_u64(r).into()
            }
            x if extent <= 1 || self.below(v, first_beyond) => x,
            x => {
                let r = self.b.as_reg(RegTy::B32, x);
                self.b.min_u32(r, first_beyond).into()
            }
        };
        Ok(self.b.fold_mul(inside, extent))
    }

    /// Whether a coordinate is known to be less.
    fn below(&self, v: Value, bound: u32) -> bool {
        // Along the second and third axis a grid has 65535 CTAs at most.
        self.f.defining_op(v).is_some_and(|op| {
            self.f.opcode(op) == Opcode::ProgramId
                && self.f.attr_int(op, keys::AXIS).is_some_and(|a| a > 0)
                && bound >= 65_535
        })
    }

    /// Name of a value in messages.
    pub fn name(&self, v: Value) -> String {
        match self.f.value_name(v) {
            Some(n) => format!("%{n}"),
            None => v.to_string(),
        }
    }

    /// Slot and phase of the first value of a stage segment; slot 0 without one.
    pub fn stage(&self, op: Op, values: &[Value]) -> CodegenResult<Operand> {
        match values.first() {
            None => Ok(Operand::Imm(0)),
            Some(&v) => match &self.vals[v] {
                Val::Iter(slot, _, _) => Ok(*slot),
                Val::Scalar(x) => Ok(*x),
                _ => self.err(Code::E0803, op, format!("stage {} is not an iterator", self.name(v))),
            },
        }
    }

    /// Stores the units of a tile.
    pub fn keep(&mut self, units: impl IntoIterator<Item = Operand>) -> Units {
        let start = self.units.len();
        self.units.extend(units);
        self.units_from(start)
    }

    /// The units stored since there were `start`.
    pub fn units_from(&self, start: usize) -> Units {
        Units { start: start as u32, len: (self.units.len() - start) as u32 }
    }

    /// Unit `i` of a tile.
    #[inline]
    pub fn unit(&self, t: &TileVal, i: usize) -> Operand {
        self.units[t.regs.start as usize + i]
    }

    /// Extents of a tile.
    pub fn dims(&self, t: &TileVal) -> &'a [u32] {
        self.f.type_data(t.ty).dims().unwrap_or(&[])
    }

    /// A buffer operand.
    pub fn buffer(&self, op: Op, v: Value) -> CodegenResult<Buffer> {
        match &self.vals[v] {
            Val::Buffer(b) => Ok(*b),
            _ => self.err(Code::E0803, op, format!("{} is not a buffer", self.name(v))),
        }
    }

    /// Threads of the agent.
    pub fn threads(&self) -> u32 {
        self.agent.warps * self.isa.machine().limits.warp_threads
    }

    /// The shared-memory base register.
    pub fn base(&mut self) -> Reg {
        match self.base {
            Some(r) => r,
            None => {
                let r = self.b.mov_shared_u32(self.smem_sym);
                let r = self.b.add_u32(r, 1023);
                let r = self.b.and_b32(r, 0xffff_fc00u32);
                self.base = Some(r);
                r
            }
        }
    }

    /// What offsets in shared memory are added to: in memory that each instance of the agent has for itself, or in that of all.
    pub fn base_of(&mut self, own: bool) -> Reg {
        match self.agent.instance {
            Some(i) if own => i.base,
            _ => self.base(),
        }
    }

    /// A named barrier: the first one, or that of the instance.
    pub fn barrier_id(&mut self, id: u32, own: bool) -> Operand {
        match self.agent.instance {
            Some(i) if own => self.b.add_u32(i.number, id).into(),
            _ => Operand::Imm(i64::from(id)),
        }
    }

    /// Address of slot `slot` of a shared-memory buffer, as a register and a constant offset.
    pub fn slot_addr(&mut self, buf: &Buffer, slot: Operand) -> (Reg, i32) {
        let base = self.base_of(buf.own);
        match slot {
            Operand::Imm(n) => (base, (buf.at + n as u32 * buf.slot) as i32),
            reg => {
                let off = self.b.fold_mul(reg, buf.slot);
                let r = self.b.add_u32(base, off);
                (r, buf.at as i32)
            }
        }
    }
}

/// 32-bit registers that hold the elements of a tile with `n` elements per thread.
pub(crate) fn units(elem: Scalar, n: usize) -> usize {
    n.div_ceil(1 << tile::packing(elem))
}

/// Register type of a scalar.
pub(crate) fn reg_ty(s: Scalar) -> Option<RegTy> {
    Some(match s {
        Scalar::I1 => RegTy::Pred,
        Scalar::F32 | Scalar::TF32 => RegTy::F32,
        Scalar::I32 | Scalar::Index | Scalar::I16 | Scalar::I8 => RegTy::B32,
        Scalar::I64 | Scalar::F64 => RegTy::B64,
        Scalar::F16 | Scalar::BF16 => RegTy::F32,
        _ => return None,
    })
}

/// Kernel parameter handles by ABI index.
pub(crate) type ParamList = Vec<Param>;
