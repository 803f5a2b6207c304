//! A target that is nobody's GPU: accumulators live in shared memory, and a multiply is a loop of multiply-adds.
//!
//! The whole target is this file: tables, the home of accumulators, the contract of multiplies, emission. Its kernels go
//! through all stages with default options; the PTX is executed by the emulator under adversarial timing and compared with
//! the source in program order, as `test run` does. What the compiler knows of one target by heart shows here.
//!
//! Two contracts: one lane issues and a barrier learns of the end, as an asynchronous engine is used; or all threads of a
//! warpgroup issue and the end is the end of the instruction, as where the warps that compute multiply as well.

use std::fmt::Write as _;
use std::sync::LazyLock;
use tileas_codegen::ir::{Layout, Scalar, Space, Swizzle};
use tileas_codegen::isa::{
    AccAllocation, AccHome, AtomType, Atoms, Basis, ClassUse, ClassVector, Completion, Cpu, Emit,
    EmitColumns, Feature, Features, InOrder, Issue, Limits, MachineModel, Mma, MmaAcc, MmaAgent, MmaContract,
    MmaKind, MmaOperand, MmaRequest, MmaShape, MmaTile, OpClass, Rate, RealVector, Slot, SlotId, SlotKind,
    TargetIsa, Triple, Unit, UnitId,
};
use tileas_codegen::nvvm::{FuncBuilder, Operand, Reg, RegTy};
use tileas_codegen::{Context, Settings, Stage};
use tileas_filetests::execute::{Forms, RunCase, execute};

// ---- tables

const OURS: &str = "ours";

const fn slot(id: u8, name: &'static str) -> Slot {
    Slot {
        id: SlotId::new(id),
        name,
        kind: SlotKind::Fine,
        primary: true,
        capacity: 1,
        what: name,
        source: OURS,
    }
}

static SLOTS: [Slot; 3] = [slot(1, "copies"), slot(2, "multiplies"), slot(3, "registers")];

const fn held(slot: u8, duration: u16) -> ClassUse {
    ClassUse { slot: SlotId::new(slot), offset: 0, duration, occupancy: 1 }
}

static COPY: [ClassUse; 1] = [held(1, 8)];
static MULTIPLY: [ClassUse; 1] = [held(2, 24)];
static COMPUTE: [ClassUse; 1] = [held(3, 5)];

static UNITS: [Unit; 2] = [
    Unit { id: UnitId::new(0), name: "copies", what: "copies", source: OURS },
    Unit { id: UnitId::new(1), name: "arithmetic", what: "arithmetic", source: OURS },
];

const fn rate(unit: u8, basis: Basis, per: u32) -> Rate {
    Rate { unit: UnitId::new(unit), basis, cycles: 1, per, source: OURS }
}

static BYTES: [Rate; 1] = [rate(0, Basis::Bytes, 64)];
static MACS: [Rate; 1] = [rate(1, Basis::Macs, 128)];
static ELEMENTS: [Rate; 1] = [rate(1, Basis::Elements, 128)];

/// Slots, rate and latency of a class.
fn class(c: OpClass) -> (&'static [ClassUse], &'static [Rate], u32) {
    match c {
        OpClass::TmaLoad | OpClass::TmaStore => (&COPY, &BYTES, 40),
        OpClass::Dot => (&MULTIPLY, &MACS, 24),
        OpClass::Uniform | OpClass::Layout => (&[], &[], 0),
        _ => (&COMPUTE, &ELEMENTS, 5),
    }
}

static VECTORS: LazyLock<Vec<ClassVector>> = LazyLock::new(|| {
    let row = |&class_: &OpClass| {
        let (uses, _, latency) = class(class_);
        ClassVector { class: class_, uses, pools: &[], latency, source: OURS }
    };
    OpClass::ALL.iter().map(row).collect()
});

static REAL: LazyLock<Vec<RealVector>> = LazyLock::new(|| {
    let row = |&class_: &OpClass| {
        let (_, rates, min_latency) = class(class_);
        RealVector { class: class_, rates, min_occupancy: 0, extra: &[], min_latency, source: OURS }
    };
    OpClass::ALL.iter().map(row).collect()
});

static MODEL: LazyLock<MachineModel> = LazyLock::new(|| MachineModel {
    name: "toy",
    slots: &SLOTS,
    families: &[],
    tags: &[],
    vectors: &VECTORS,
    published_pools: &[],
    pools: &[],
    capacities: &[],
    anchors: &[],
    ceilings: &[],
    fences: &[],
    gpu: &[],
    units: &UNITS,
    real: &REAL,
    acc_to_acc_latency: 24,
    acc_to_reader_latency: 24,
    hand_off: 20,
    spill_factor: 1,
    spill_cap: 8,
    limits: Limits {
        smem_bytes: 232_448,
        tmem_columns: 0,
        tmem_lanes: 0,
        tmem_alloc_min_columns: 0,
        named_barriers: 16,
        regs_per_sm: 65_536,
        regs_per_thread: 255,
        reg_granule: 8,
        max_threads: 1024,
        warp_threads: 32,
        warpgroup_warps: 4,
        tma_box_max: 256,
        tma_rank_max: 5,
        tma_align: 16,
        mbarrier_count_max: (1 << 20) - 1,
    },
});

const fn shape(m: u16) -> MmaShape {
    MmaShape { m, n_min: 8, n_max: 256, n_step: 8 }
}

use AtomType::{Bf16, F16, F32};

static KINDS: [MmaKind; 1] = [MmaKind {
    kind: "fma",
    types: &[(F16, F16, F32), (Bf16, Bf16, F32), (F32, F32, F32)],
    k: 1,
    shapes: &[shape(16), shape(32), shape(64), shape(128), shape(256)],
    a_spaces: &[tileas_codegen::isa::OperandSpace::Smem],
    b_spaces: &[tileas_codegen::isa::OperandSpace::Smem],
    transposable: &[F16, Bf16, F32],
    n_step_transposed: 8,
    feature: None,
    source: OURS,
}];

/// Any processor with TMA and mbarriers; the toy uses no instruction beyond those.
static CPU: Cpu = Cpu { name: "sm_90a", ptx_version: (8, 0), features: &[], source: OURS };

/// Dense rows, so that no swizzle stands between a thread and its row.
static HOME: AccHome = AccHome {
    space: Space::Smem,
    allocation: AccAllocation::SharedBytes,
    layout: |_, _, _| Some(Layout::SmemRow),
    operand: None,
};

// ---- the target

#[derive(Debug)]
struct Toy {
    triple: Triple,
    features: Features,
    atoms: Atoms,
    contract: MmaContract,
}

impl Toy {
    fn new(issue: Issue) -> Toy {
        let completion = if issue.is_lane() { Completion::Commit } else { Completion::Synchronous };
        let features = Features::of(&[Feature::Tma]);
        Toy {
            triple: "nvptx64-nvidia-cuda".parse().expect("a triple"),
            features,
            atoms: Atoms { mma: &KINDS, features },
            contract: MmaContract { issue, completion, in_order: InOrder::Always },
        }
    }
}

impl TargetIsa for Toy {
    fn name(&self) -> &'static str {
        MODEL.name
    }
    fn version(&self) -> &'static str {
        "toy"
    }

    fn cpu(&self) -> &'static Cpu {
        &CPU
    }
    fn triple(&self) -> &Triple {
        &self.triple
    }
    fn features(&self) -> Features {
        self.features
    }
    fn machine(&self) -> &MachineModel {
        &MODEL
    }
    fn atoms(&self) -> &Atoms {
        &self.atoms
    }
    fn acc_home(&self) -> &AccHome {
        &HOME
    }
    fn mma_contract(&self) -> &MmaContract {
        &self.contract
    }
    fn emit(&self) -> &dyn Emit {
        self
    }
}

// ---- emission

/// The body for 0, 1, … below `n`.
fn each(
    b: &mut FuncBuilder<'_>,
    first: Operand,
    step: u32,
    n: u32,
    body: impl FnOnce(&mut FuncBuilder<'_>, Reg),
) {
    let i = b.imm(RegTy::B32, first);
    let (head, exit) = (b.block(), b.block());
    let none = b.setp_ge_u32(i, n);
    b.br_on(none, exit);
    b.place(head);
    body(b, i);
    b.add_u32_to(i, i, step);
    let more = b.setp_lt_u32(i, n);
    b.br_if(more, false, head, exit);
    b.place(exit);
}

/// Address of an element of a tile whose slot begins at `base`.
fn element(b: &mut FuncBuilder<'_>, tile: &MmaTile, base: Reg, row: Reg, col: Reg) -> Reg {
    let byte = b.fold_mul(col, tile.elem.bytes());
    let within = match tile.layout {
        Layout::SmemRow => {
            let line = b.mul_lo_u32(row, tile.cols * tile.elem.bytes());
            b.fold_add(line, byte)
        }
        // Slabs of the swizzle span, one behind the other.
        layout => {
            let swizzle = layout.swizzle().unwrap_or(Swizzle::None);
            let span = swizzle.span();
            let slab = b.fold_shr(byte, span.trailing_zeros());
            let slab = b.fold_mul(slab, tile.rows * span);
            let line = b.fold_mul(row, span);
            let rest = b.fold_and(byte, span - 1);
            let at = b.fold_add(slab, line);
            let at = b.fold_add(at, rest);
            let key = b.fold_shr(at, 3);
            let key = b.fold_and(key, swizzle.xor_mask());
            b.fold_xor(at, key)
        }
    };
    b.add_u32(base, within)
}

/// An element as f32.
fn read(b: &mut FuncBuilder<'_>, elem: Scalar, at: Reg) -> Reg {
    match elem {
        Scalar::F16 => {
            let x = b.ld_shared_b16(at);
            b.cvt_f32_f16(x)
        }
        Scalar::BF16 => {
            let x = b.ld_shared_b16(at);
            b.cvt_f32_bf16(x)
        }
        _ => b.ld_shared_f32(at),
    }
}

impl Emit for Toy {
    fn operand_base(
        &self,
        b: &mut FuncBuilder<'_>,
        tile: &MmaTile,
        _: &MmaRequest,
        _: bool,
        _: Option<MmaAgent>,
    ) -> Reg {
        b.add_u32(tile.base, tile.at)
    }

    fn mma(&self, b: &mut FuncBuilder<'_>, mma: &Mma<'_>) -> Result<(), String> {
        let r = mma.atom.request;
        let begin = |b: &mut FuncBuilder<'_>, t: &MmaTile| {
            let by = b.fold_mul(t.slot, t.size);
            let by = b.fold_add(by, t.at);
            b.add_u32(t.base, by)
        };
        let (MmaOperand::Memory(left), MmaAcc::Memory(acc)) = (mma.a, mma.acc) else {
            return Err("all tiles are in shared memory".into());
        };
        let (a, x, d) = (begin(b, &left), begin(b, &mma.b), begin(b, &acc));
        // The rows that this thread moves between the accumulator and registers: they are dealt out over all warps, and
        // over as many lanes of each as there are rows for.
        let (first, step) = match mma.agent {
            None => (Operand::Imm(0), 1),
            Some(MmaAgent { thread, warps, .. }) => {
                let lanes = (r.m / warps).min(32);
                let (lane, warp) = (b.and_b32(thread, 31), b.shr_u32(thread, 5));
                let row = b.fold_mul(warp, lanes);
                let row = b.fold_add(row, lane);
                let busy = b.setp_lt_u32(lane, lanes);
                (b.selp_b32(row, r.m, busy).into(), lanes * warps)
            }
        };
        each(b, first, step, r.m, |b, m| {
            each(b, Operand::Imm(0), 1, r.n, |b, n| {
                let at = element(b, &acc, d, m, n);
                let sum = b.imm(RegTy::F32, 0.0f32);
                match mma.accumulate {
                    Operand::Reg(p) => b.on(p).ld_shared_f32_to(sum, at),
                    Operand::Imm(0) => {}
                    _ => b.ld_shared_f32_to(sum, at),
                }
                each(b, Operand::Imm(0), 1, r.k, |b, k| {
                    let (row, col) = if r.a_m_contiguous { (k, m) } else { (m, k) };
                    let p = element(b, &left, a, row, col);
                    let p = read(b, left.elem, p);
                    let (row, col) = if r.b_n_contiguous { (k, n) } else { (n, k) };
                    let q = element(b, &mma.b, x, row, col);
                    let q = read(b, mma.b.elem, q);
                    b.fma_rn_f32_to(sum, p, q, sum);
                });
                b.st_shared_f32(at, sum);
            });
        });
        if mma.agent.is_some() {
            b.bar_warp_sync(0xffff_ffffu32);
        }
        Ok(())
    }

    /// What the thread has issued is done: it goes on behind it. It has read operands by ordinary loads, which a bulk copy must not overtake.
    fn commit(&self, b: &mut FuncBuilder<'_>, barrier: Operand, _: Option<Reg>) {
        b.fence_proxy_async_shared_cta();
        b.mbarrier_arrive(barrier);
    }

    fn columns(&self) -> Option<&dyn EmitColumns> {
        None
    }
}

// ---- kernels

/// A tile size and element type of operands; products are f32.
#[derive(Copy, Clone)]
struct Size {
    m: u32,
    n: u32,
    k: u32,
    elem: &'static str,
}

impl Size {
    fn bytes(self) -> u32 {
        if self.elem == "f32" { 4 } else { 2 }
    }

    /// `%d<name>` for boxes of a view.
    fn desc(self, name: &str, rows: u32, cols: u32) -> String {
        let swizzle = Swizzle::widest(cols * self.bytes()).name();
        let e = self.elem;
        format!(
            "  %d{name} = make_tiled_tma_desc %{name} <{{box = [{rows}, {cols}], swizzle = {swizzle}}}> : tma_desc<{rows}x{cols}x{e}>\n"
        )
    }
}

/// A kernel; `$A`, `$B`, `$D`, `$P` … in the body are the types of A (MxK), Bᵀ (NxK), the product (MxN), its operand form.
fn kernel(
    name: &str,
    views: &[(&str, &str)],
    scalars: &str,
    s: Size,
    descs: &[(&str, u32, u32)],
    body: &str,
) -> String {
    let mut text = format!("kernel @{name}(");
    for (v, elem) in views {
        let _ = write!(text, "%{v}: view<gmem, ?x?x{elem}>, ");
    }
    if scalars.is_empty() {
        text.truncate(text.len() - 2);
    }
    text += scalars;
    text += ") {\n  %bm = program_id <{axis = 0}> : i32\n  %bn = program_id <{axis = 1}> : i32\n";
    for &(v, rows, cols) in descs {
        text += &s.desc(v, rows, cols);
    }
    let Size { m, n, k, elem } = s;
    let types = [
        ("$A", format!("tile<{m}x{k}x{elem}>")),
        ("$B", format!("tile<{n}x{k}x{elem}>")),
        ("$V", format!("tile<{n}x{k}x{elem}>")),
        ("$D", format!("tile<{m}x{n}xf32>")),
        ("$P", format!("tile<{m}x{n}x{elem}>")),
        ("$O", format!("tile<{m}x{k}xf32>")),
        ("$R", format!("tile<{m}xf32>")),
        ("$C", format!("tile<{m}x1xf32>")),
    ];
    let body = types.iter().fold(body.to_owned(), |b, (from, to)| b.replace(from, to));
    text + &body + "  return\n}\n"
}

/// Compiles for the toy and runs the cases.
fn check(text: &str, cases: &[String], issue: Issue) {
    let isa = Toy::new(issue);
    let settings = Settings::default();
    let mut context = Context::new();
    let module = context.parse(text, &settings).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let run = context
        .run_to(Stage::Metadata, &module, &isa, &settings)
        .unwrap_or_else(|e| panic!("{issue:?}: {e:#?}\n{text}"));
    let (ptx, metadata) = (run.text(Stage::Ptx), run.text(Stage::Metadata));
    assert!(!ptx.contains("tcgen05"), "{ptx}");
    let cases: Vec<RunCase> =
        cases.iter().map(|c| RunCase::parse(c).expect("a case").without_stats()).collect();
    for (source, kernel) in module.functions.iter().zip(&run.kernels) {
        let materialized = kernel.materialized.as_ref().expect("the kernel has agents");
        let forms = Forms { source, materialized, ptx: &ptx, metadata: &metadata };
        if let Err(e) = execute(&forms, &cases) {
            let mut at = String::new();
            if std::env::var_os("TOY_TEXT").is_some() {
                at = format!("{}\n{ptx}", run.text(Stage::Materialized));
            }
            panic!("{} {issue:?}: {e:?}\n{at}", source.name);
        }
    }
}

fn view(name: &str, rows: u32, cols: u32, dtype: &str, init: &str) -> String {
    format!(r#""{name}": {{"shape": [{rows}, {cols}], "dtype": "{dtype}", "init": "{init}"}}"#)
}

fn case(views: &[String], scalars: &str, grid: [u32; 2], expect: &str, seeds: &str) -> String {
    format!(
        r#"{{"views": {{{}}}, "scalars": {{{scalars}}}, "grid": {grid:?}, "seeds": [{seeds}], "expect": [{{"view": "c", "expr": "{expect}"}}]}}"#,
        views.join(", ")
    )
}

const SIZES: [Size; 3] = [
    Size { m: 32, n: 16, k: 16, elem: "f16" },
    Size { m: 64, n: 32, k: 8, elem: "f32" },
    Size { m: 16, n: 64, k: 32, elem: "f16" },
];

const ISSUES: [Issue; 2] = [Issue::OneThread, Issue::Warpgroup];

/// Kernels by tile size and contract, with extents that are no multiples of the tile.
fn all(f: impl Fn(Size) -> (String, Vec<String>)) {
    for (n, s) in SIZES.into_iter().enumerate() {
        let (text, cases) = f(s);
        // One lane takes its time: two sizes and types are enough for it.
        for issue in ISSUES.into_iter().filter(|i| n < 2 || !i.is_lane()) {
            check(&text, &cases, issue);
        }
    }
}

fn gemm_cases(s: Size, expect: &str) -> Vec<String> {
    let ragged = (s.m + s.m / 2 + 3, s.n + 4, 2 * s.k + s.k / 2);
    let one = |(m, n, k): (u32, u32, u32), trips: u32| {
        let views =
            [view("a", m, k, s.elem, "ints"), view("b", n, k, s.elem, "ints"), view("c", m, n, "f32", "nan")];
        let grid = [m.div_ceil(s.m), n.div_ceil(s.n)];
        case(&views, &format!(r#""kt": {trips}"#), grid, expect, "1, 2")
    };
    vec![one((s.m, s.n, s.k), 1), one(ragged, 3)]
}

#[test]
fn gemm_loop() {
    all(|s| {
        let body = "  %z = constant 0.0 : $D
  %acc = for %i = 0 to %kt step 1 iter (%s = %z : $D) {
    %ta = async.tiled_tma_load %da[%bm, %i] : $A
    %tb = async.tiled_tma_load %db[%bn, %i] : $B
    %n = async.dot %ta, %tb, %s <{transpose_b}> : $D
    yield %n
  }
  tiled_store %acc, %c[%bm, %bn]
";
        let views = [("a", s.elem), ("b", s.elem), ("c", "f32")];
        let descs = [("a", s.m, s.k), ("b", s.n, s.k)];
        (kernel("gemm", &views, "%kt: i32", s, &descs, body), gemm_cases(s, "a @ b.T"))
    });
}

#[test]
fn gemm_with_epilogue() {
    all(|s| {
        let body = "  %z = constant 0.0 : $D
  %two = constant 2.0 : $D
  %acc = for %i = 0 to %kt step 1 iter (%s = %z : $D) {
    %ta = async.tiled_tma_load %da[%bm, %i] : $A
    %tb = async.tiled_tma_load %db[%bn, %i] : $B
    %n = async.dot %ta, %tb, %s <{transpose_b}> : $D
    yield %n
  }
  %r = maxf %acc, %z : $D
  %q = mulf %r, %two : $D
  tiled_store %q, %c[%bm, %bn]
";
        let views = [("a", s.elem), ("b", s.elem), ("c", "f32")];
        let descs = [("a", s.m, s.k), ("b", s.n, s.k)];
        (kernel("epilogue", &views, "%kt: i32", s, &descs, body), gemm_cases(s, "2 * relu(a @ b.T)"))
    });
}

#[test]
fn dot_without_loop() {
    all(|s| {
        let body = "  %z = constant 0.0 : $D
  %ta = async.tiled_tma_load %da[%bm, 0] : $A
  %tb = async.tiled_tma_load %db[%bn, 0] : $B
  %n = dot %ta, %tb, %z <{transpose_b}> : $D
  tiled_store %n, %c[%bm, %bn]
";
        let views = [("a", s.elem), ("b", s.elem), ("c", "f32")];
        let descs = [("a", s.m, s.k), ("b", s.n, s.k)];
        let (m, n, k) = (s.m + 3, s.n + 4, s.k - 1);
        let k = k.next_multiple_of(16 / s.bytes());
        let views_ =
            [view("a", m, k, s.elem, "ints"), view("b", n, k, s.elem, "ints"), view("c", m, n, "f32", "nan")];
        let cases = vec![case(&views_, "", [2, 2], "a @ b.T", "1, 2, 3")];
        (kernel("single", &views, "", s, &descs, body), cases)
    });
}

/// The left operand of the second dot is computed from the first one's product, and the second accumulator is rescaled in
/// every turn.
#[test]
fn chained_dots() {
    all(|s| {
        let body = "  %z = constant 0.0 : $D
  %o0 = constant 0.0 : $O
  %ta = async.tiled_tma_load %da[%bm, 0] : $A
  %acc, %sum = for %i = 0 to %kt step 1 iter (%s = %o0 : $O, %l = constant 0.0 : $R) {
    %tb = async.tiled_tma_load %db[%i, 0] : $B
    %tv = async.tiled_tma_load %dv[%i, 0] : $V
    %p = async.dot %ta, %tb, %z <{transpose_b}> : $D
    %q = maxf %p, %z : $D
    %rs = reduce %q <{mode = max, axis = 1}> : $R
    %m = maxf %l, %rs : $R
    %d = subf %l, %m : $R
    %f = absf %d : $R
    %one = constant 1.0 : $R
    %g = minf %f, %one : $R
    %gc = reshape %g : $C
    %gb = broadcast %gc : $O
    %os = mulf %s, %gb : $O
    %h = ftof %q : $P
    %n = async.dot %h, %tv, %os : $O
    yield %n, %m
  }
  tiled_store %acc, %c[%bm, 0]
"
        .replace("%l = constant 0.0 : $R", "%l = %l0 : $R")
        .replace("  %o0 =", "  %l0 = constant 0.0 : $R\n  %o0 =");
        let body = if s.elem == "f32" {
            body.replace("    %h = ftof %q : $P\n", "").replace("dot %h", "dot %q")
        } else {
            body
        };
        let views = [("a", s.elem), ("b", s.elem), ("v", s.elem), ("c", "f32")];
        let descs = [("a", s.m, s.k), ("b", s.n, s.k), ("v", s.n, s.k)];
        let text = kernel("chained", &views, "%kt: i32", s, &descs, &body);
        let case = |trips: u32| {
            let views = [
                view("a", s.m + 5, s.k, s.elem, "ints"),
                view("b", trips.max(1) * s.n, s.k, s.elem, "ints"),
                view("v", trips.max(1) * s.n, s.k, s.elem, "ints"),
                view("c", s.m + 5, s.k, "f32", "nan"),
            ];
            format!(
                r#"{{"views": {{{}}}, "scalars": {{"kt": {trips}}}, "grid": [2, 1], "seeds": [1, 2]}}"#,
                views.join(", ")
            )
        };
        (text, vec![case(0), case(1), case(3)])
    });
}

#[test]
fn nested_loops() {
    all(|s| {
        let body = "  %z = constant 0.0 : $D
  for %t = 0 to %rows step 1 {
    %acc = for %i = 0 to %kt step 1 iter (%s = %z : $D) {
      %ta = async.tiled_tma_load %da[%t, %i] : $A
      %tb = async.tiled_tma_load %db[%bn, %i] : $B
      %n = async.dot %ta, %tb, %s <{transpose_b}> : $D
      yield %n
    }
    tiled_store %acc, %c[%t, %bn]
  }
";
        let views = [("a", s.elem), ("b", s.elem), ("c", "f32")];
        let descs = [("a", s.m, s.k), ("b", s.n, s.k)];
        let (m, n, k) = (3 * s.m - 1, s.n + 4, 2 * s.k);
        let views_ =
            [view("a", m, k, s.elem, "ints"), view("b", n, k, s.elem, "ints"), view("c", m, n, "f32", "nan")];
        let cases = vec![case(&views_, r#""kt": 2, "rows": 3"#, [1, 2], "a @ b.T", "1, 2")];
        (kernel("nested", &views, "%kt: i32, %rows: i32", s, &descs, body), cases)
    });
}

#[test]
fn two_accumulators() {
    all(|s| {
        let body = "  %z = constant 0.0 : $D
  %x, %y = for %i = 0 to %kt step 1 iter (%s = %z : $D, %t = %z : $D) {
    %ta = async.tiled_tma_load %da[%bm, %i] : $A
    %tb = async.tiled_tma_load %db[%bn, %i] : $B
    %te = async.tiled_tma_load %de[%bn, %i] : $B
    %n = async.dot %ta, %tb, %s <{transpose_b}> : $D
    %o = async.dot %ta, %te, %t <{transpose_b}> : $D
    yield %n, %o
  }
  %r = mulf %x, %y : $D
  tiled_store %r, %c[%bm, %bn]
";
        let views = [("a", s.elem), ("b", s.elem), ("e", s.elem), ("c", "f32")];
        let descs = [("a", s.m, s.k), ("b", s.n, s.k), ("e", s.n, s.k)];
        let (m, n, k) = (s.m + 3, s.n + 4, 2 * s.k);
        let views_ = [
            view("a", m, k, s.elem, "ints"),
            view("b", n, k, s.elem, "ints"),
            view("e", n, k, s.elem, "ints"),
            view("c", m, n, "f32", "nan"),
        ];
        let cases = vec![case(&views_, r#""kt": 2"#, [2, 2], "(a @ b.T) * (a @ e.T)", "1, 2")];
        (kernel("two", &views, "%kt: i32", s, &descs, body), cases)
    });
}
