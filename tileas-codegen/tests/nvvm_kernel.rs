//! A warp-specialised GEMM built through the thread-level builder: mbarrier ring, TMA loads, tcgen05 MMA, TMEM
//! epilogue, TMA store. Verified, cleaned, emitted twice, assembled by ptxas (`PTXAS`, see `ptx_forms`), and timed.

use std::process::Command;
use tileas_codegen::nvvm::{
    FuncBuilder, Function, Module, Operand, ParamKind, PtxOp, Reg, RegTy, Special, Target,
};
use tileas_codegen::testing::nvvm::{CleanupScratch, Liveness, cleanup, print, verify};
use tileas_codegen::testing::ptx::{PtxEmitter, PtxInfo, PtxOptions};
use tileas_codegen::testing::regalloc::{AgentRange, PTXAS_RESERVE, PressureScratch};
use tileas_codegen::{Code, CodegenError};

const STAGES: u32 = 4;
const A_BYTES: u32 = 128 * 64 * 2;
const B_BYTES: u32 = 128 * 64 * 2;
const C_AT: u32 = STAGES * (A_BYTES + B_BYTES);
const BARS: u32 = C_AT + 4 * 4096;

struct Ring {
    slot: Reg,
    phase: Reg,
}

impl Ring {
    fn new(b: &mut FuncBuilder<'_>) -> Ring {
        Ring { slot: b.imm(RegTy::B32, 0), phase: b.imm(RegTy::B32, 0) }
    }

    fn advance(&self, b: &mut FuncBuilder<'_>) {
        b.add_u32_to(self.slot, self.slot, 1);
        let wrap = b.setp_eq_u32(self.slot, STAGES);
        b.selp_b32_to(self.slot, 0, self.slot, wrap);
        b.on(wrap).xor_b32_to(self.phase, self.phase, 1);
    }
}

/// C[128·m, 128·n] tile = A · Bᵀ, f16 in, f32 accumulate, f16 out; K in steps of 64.
fn gemm() -> (Module, Vec<AgentRange>) {
    let mut m = Module::new(Target::Sm100a);
    let smem = m.dynamic_shared("smem", 1024);
    let mut f = Function::kernel("gemm");
    f.launch.reqntid = Some([192, 1, 1]);
    f.launch.minnctapersm = Some(1);
    let maps = ["tm_a", "tm_b", "tm_c"].map(|n| f.param(n, ParamKind::TensorMap));
    let kt = f.param("kt", ParamKind::U32);
    let mut b = FuncBuilder::new(&mut f);

    // Prologue, all warps.
    let [ma, mb, mc] = maps.map(|p| b.cvta_param_u64(p));
    let kt = b.ld_param_b32(kt);
    let tid = b.special(Special::TidX);
    let lane = b.and_b32(tid, 31);
    let warp = b.shr_u32(tid, 5);
    let warp = b.shfl_sync_idx_b32(warp, 0, 31, -1);
    let base = b.mov_shared_u32(smem);
    let m0 = b.special(Special::CtaidX);
    let m0 = b.mul_lo_u32(m0, 128);
    let n0 = b.special(Special::CtaidY);
    let n0 = b.mul_lo_u32(n0, 128);
    let (init, ready) = (b.named_block("barrier init"), b.block());
    let first = b.setp_eq_u32(tid, 0);
    b.br_if(first, true, ready, init);
    b.place(init);
    for i in 0..2 * STAGES + 1 {
        b.mbarrier_init((base, (BARS + 8 * i) as i32), 1);
    }
    b.fence_mbarrier_init();
    for map in [ma, mb, mc] {
        b.prefetch_tensormap(map);
    }
    b.place(ready);
    b.bar_warp_sync(-1);
    let is_mma = b.setp_eq_u32(warp, 5);
    let (alloc, go) = (b.block(), b.block());
    b.br_if(is_mma, true, go, alloc);
    b.place(alloc);
    b.tcgen05_alloc_cg1((base, (BARS + 128) as i32), 128);
    b.tcgen05_relinquish_cg1();
    b.place(go);
    b.tcgen05_fence_before();
    b.bar_sync_all(0);
    b.tcgen05_fence_after();
    let tmem = b.ld_shared_b32((base, (BARS + 128) as i32));
    let elected = b.elect_sync(-1);
    let (load, mma, join) = (b.named_block("load"), b.named_block("mma"), b.named_block("join"));
    let simt_first = b.block();
    let (try_mma, simt) = (b.block(), simt_first);
    let is_load = b.setp_eq_u32(warp, 4);
    b.br_if(is_load, false, load, try_mma);
    b.place(try_mma);
    b.br_if(is_mma, false, mma, simt);

    // Epilogue warps: one row per thread, two chunks of 64 columns.
    b.place(simt);
    b.mbarrier_wait((base, (BARS + 8 * 2 * STAGES) as i32), 0);
    b.bar_warp_sync(-1);
    b.tcgen05_fence_after();
    let quarter = b.shl_b32(warp, 21);
    let tsrc = b.add_u32(tmem, quarter);
    let staging = b.shl_b32(warp, 12);
    let staging = b.add_u32(base, staging);
    let row = b.shl_b32(lane, 7);
    let row = b.add_u32(staging, row);
    let key = b.and_b32(lane, 7);
    let key = b.shl_b32(key, 4);
    let row_m = b.shl_b32(warp, 5);
    let row_m = b.add_u32(m0, row_m);
    for chunk in 0..2 {
        let lo = b.tcgen05_ld_32x32b_x32((tsrc, chunk * 64));
        let hi = b.tcgen05_ld_32x32b_x32((tsrc, chunk * 64 + 32));
        b.tcgen05_wait_ld();
        let values: Vec<Reg> = lo.into_iter().chain(hi).collect();
        let packed: Vec<Reg> = values.chunks(2).map(|p| b.cvt_rn_f16x2_f32(p[1], p[0])).collect();
        if chunk > 0 {
            b.on(elected).bulk_wait_group_read(0);
            b.bar_warp_sync(-1);
        }
        for (j, quad) in packed.chunks(4).enumerate() {
            let at = b.xor_b32(key, 16 * j as i32);
            let at = b.add_u32(row, at);
            b.st_shared_v4_b32((at, C_AT as i32), quad);
        }
        b.fence_proxy_async_shared_cta();
        b.bar_warp_sync(-1);
        let n = b.add_u32(n0, 64 * chunk);
        let (store, next) = (b.block(), b.block());
        b.br_if(elected, true, next, store);
        b.place(store);
        b.tma_store_2d(mc, [n, row_m], (staging, C_AT as i32));
        b.bulk_commit_group();
        b.place(next);
        b.bar_warp_sync(-1);
    }
    b.on(elected).bulk_wait_group(0);
    b.bra(join);

    // TMA producer: one lane.
    b.place(load);
    b.br_on_not(elected, join);
    let ring = Ring::new(&mut b);
    let k = b.imm(RegTy::B32, 0);
    let (head, body) = (b.named_block("load loop"), b.block());
    b.place(head);
    let done = b.setp_ge_u32(k, kt);
    b.br_if(done, false, join, body);
    b.place(body);
    let off = b.shl_b32(ring.slot, 3);
    let bar = b.add_u32(base, off);
    let free = b.xor_b32(ring.phase, 1);
    b.mbarrier_wait((bar, (BARS + 8 * STAGES) as i32), free);
    b.mbarrier_arrive_expect_tx((bar, BARS as i32), A_BYTES + B_BYTES);
    let step = b.mul_lo_u32(ring.slot, A_BYTES);
    let at = b.add_u32(base, step);
    let kc = b.mul_lo_u32(k, 64);
    b.tma_load_2d((at, 0), ma, [kc, m0], (bar, BARS as i32));
    b.tma_load_2d((at, (STAGES * A_BYTES) as i32), mb, [kc, n0], (bar, BARS as i32));
    ring.advance(&mut b);
    b.add_u32_to(k, k, 1);
    b.bra(head);

    // MMA issuer: one lane.
    b.place(mma);
    b.br_on_not(elected, join);
    let ring = Ring::new(&mut b);
    let lo = b.bfe_u32(base, 4, 14);
    let lo = b.or_b32(lo, 0x10000);
    let k = b.imm(RegTy::B32, 0);
    let (head, body, tail) = (b.named_block("mma loop"), b.block(), b.block());
    b.place(head);
    let done = b.setp_ge_u32(k, kt);
    b.br_if(done, false, tail, body);
    b.place(body);
    let off = b.shl_b32(ring.slot, 3);
    let bar = b.add_u32(base, off);
    b.mbarrier_wait((bar, BARS as i32), ring.phase);
    b.tcgen05_fence_after();
    let step = b.mul_lo_u32(ring.slot, A_BYTES >> 4);
    let la = b.add_u32(lo, step);
    let lb = b.add_u32(la, (STAGES * A_BYTES) >> 4);
    let da = b.pack_b64_b32([Operand::Reg(la), Operand::Imm(0x4000_4040)]);
    let db = b.pack_b64_b32([Operand::Reg(lb), Operand::Imm(0x4000_4040)]);
    let acc = b.setp_ne_u32(k, 0);
    for step in 0..4 {
        let (sa, sb) = (b.add_s64(da, 2 * step), b.add_s64(db, 2 * step));
        let enable: Operand = if step == 0 { acc.into() } else { true.into() };
        b.tcgen05_mma_cg1_f16_ss(tmem, sa, sb, 0x0820_0010, enable);
    }
    let empty = b.add_u32(bar, BARS + 8 * STAGES);
    b.tcgen05_commit_cg1(empty);
    ring.advance(&mut b);
    b.add_u32_to(k, k, 1);
    b.bra(head);
    b.place(tail);
    let full = b.add_u32(base, BARS + 8 * 2 * STAGES);
    b.tcgen05_commit_cg1(full);

    // Frame.
    b.place(join);
    b.bar_warp_sync(-1);
    b.tcgen05_fence_before();
    b.bar_sync_all(0);
    let (free, end) = (b.block(), b.block());
    b.br_if(is_mma, true, end, free);
    b.place(free);
    b.tcgen05_fence_after();
    b.tcgen05_dealloc_cg1(tmem, 128);
    b.place(end);
    b.ret();

    // Agent ranges: the blocks between the role labels.
    let layout = f.layout().to_vec();
    let at = |bb| layout.iter().position(|&x| x == bb).unwrap();
    let range = |name: &str, from: usize, to: usize, max_regs| AgentRange {
        name: name.into(),
        blocks: layout[from..to].to_vec(),
        max_regs,
    };
    let agents = vec![
        range("simt", at(simt), at(load), 168),
        range("load", at(load), at(mma), 40),
        range("mma", at(mma), at(join), 40),
    ];
    m.functions.push(f);
    (m, agents)
}

fn emit(m: &Module, emitter: &mut PtxEmitter) -> (String, PtxInfo) {
    let mut diagnostics = Vec::new();
    let verified = verify(m, (8, 8), &mut diagnostics).unwrap_or_else(|| panic!("{diagnostics:#?}"));
    assert_eq!(diagnostics, Vec::<CodegenError>::new());
    let mut out = String::new();
    let info = emitter.emit(verified, &PtxOptions::default(), &mut out);
    (out, info)
}

#[test]
fn warp_specialised_gemm_assembles_without_spills() {
    let (mut m, agents) = gemm();
    let f = &m.functions[0];
    let live = Liveness::compute(f);
    let peak = |a: &AgentRange| PressureScratch::default().peak(f, &live, &a.blocks).units;
    let peaks: Vec<u32> = agents.iter().map(peak).collect();
    // The simt agent holds 64 accumulator values and packs two into one; the others hold scalars only.
    assert!((64..96).contains(&peaks[0]) && peaks[1] < 24 && peaks[2] < 24, "{peaks:?}");
    assert!(agents.iter().zip(&peaks).all(|(a, p)| p + PTXAS_RESERVE <= a.max_regs), "{peaks:?}");

    let (raw, _) = emit(&m, &mut PtxEmitter::default());
    let stats = cleanup(&mut m.functions[0], &mut CleanupScratch::default());
    assert!(stats.folded > 0 && stats.propagated > 0 && stats.removed > 0, "{stats:?}");
    let mut emitter = PtxEmitter::default();
    let (text, info) = emit(&m, &mut emitter);
    assert_eq!(text, emit(&m, &mut emitter).0, "the emitter's scratch leaks from one module into the next");
    assert!(text.len() < raw.len());
    assert_eq!(info.version, (8, 6));
    assert!(!text.contains("mul.lo"), "multiplications by powers of two become shifts");
    assert!(text.contains("@!%p") && !text.contains("bra $L1;\n$L1:"));
    let mut dump = String::new();
    print(&m, &mut dump);
    assert!(dump.contains("\"mma loop\"") && dump.contains(" ; -> "), "{dump}");

    let Some(ptxas) = std::env::var_os("PTXAS") else {
        assert!(std::env::var_os("TILEAS_REQUIRE_PTXAS").is_none(), "PTXAS is not set");
        return;
    };
    for (name, text) in [("raw", &raw), ("clean", &text)] {
        let dir = std::env::temp_dir();
        let src = dir.join(format!("tileas-gemm-{name}-{}.ptx", std::process::id()));
        std::fs::write(&src, text).unwrap();
        let run = Command::new(&ptxas)
            .args(["-v", "-warn-spills", "-Werror", "-arch=sm_100a", "-o", "/dev/null"])
            .arg(&src)
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
        assert!(run.status.success(), "{name}: {log}\n{text}");
        assert!(log.contains("0 bytes spill stores") && log.contains("0 bytes stack frame"), "{log}");
        std::fs::remove_file(&src).unwrap();
    }
}

/// Each broken module, and the code that must be among its diagnostics.
#[test]
fn the_verifier_names_every_violation() {
    type Build = fn(&mut Module, &mut FuncBuilder<'_>);
    let cases: [(Code, Build); 14] = [
        (Code::E0901, |_, b| {
            b.emit(PtxOp::AddU32, &[1.into()]);
        }),
        (Code::E0902, |_, b| {
            let f = b.imm(RegTy::F32, 1.0f32);
            b.add_u32(f, 1);
        }),
        (Code::E0902, |_, b| {
            let r = b.imm(RegTy::B32, 1);
            b.ld_global_b32((r, 0)); // a 32-bit register is no global address
        }),
        (Code::E0902, |_, b| {
            let a = b.imm(RegTy::B32, 0);
            b.st_shared_v4_b32((a, 0), [a, a]);
        }),
        (Code::E0902, |_, b| {
            let r = b.imm(RegTy::B32, 0);
            b.on(r).nanosleep_u32(1);
        }),
        (Code::E0903, |_, b| {
            let a = b.imm(RegTy::B32, 0);
            b.tcgen05_alloc_cg1((a, 0), 96); // not a power of two
        }),
        (Code::E0903, |_, b| b.bar_sync(1, 100)), // not whole warps
        (Code::E0904, |_, b| {
            let nowhere = b.block();
            let p = b.setp_eq_u32(1, 1);
            let next = b.block();
            b.br_if(p, false, nowhere, next);
            b.place(next);
        }),
        (Code::E0905, |_, b| {
            let r = b.reg(RegTy::B32);
            b.nanosleep_u32(r);
        }),
        (Code::E0906, |_, b| {
            b.ret();
            b.nanosleep_u32(1);
        }),
        (Code::E0907, |m, b| {
            m.target = Target::Sm90a;
            b.tcgen05_wait_ld();
        }),
        (Code::E0908, |_, b| {
            let p = b.imm(RegTy::B64, 0);
            b.ld_global_v8_b32((p, 0));
        }),
        (Code::E0912, |_, b| b.setmaxnreg_inc(128)),
        (Code::E0911, |m, _| {
            m.dynamic_shared("no spaces", 16);
        }),
    ];
    for (i, (code, build)) in cases.into_iter().enumerate() {
        let mut m = Module::new(Target::Sm100a);
        let mut f = Function::kernel("k");
        let mut b = FuncBuilder::new(&mut f);
        build(&mut m, &mut b);
        b.ret();
        m.functions.push(f);
        let mut diagnostics = Vec::new();
        assert!(verify(&m, (8, 6), &mut diagnostics).is_none(), "case {i} passes");
        assert!(diagnostics.iter().any(|d| d.code == code), "case {i}: {diagnostics:?}");
        assert!(diagnostics.iter().all(|d| d.code == code), "case {i} says more: {diagnostics:?}");
    }
    // Warnings do not fail.
    let mut m = Module::new(Target::Sm100a);
    let mut f = Function::kernel("k");
    let mut b = FuncBuilder::new(&mut f);
    let p = b.setp_eq_u32(1, 1);
    b.on(p).bar_warp_sync(-1);
    let r = b.reg(RegTy::B32);
    b.on(p).mov_b32_to(r, 1);
    b.nanosleep_u32(r);
    b.ret();
    m.functions.push(f);
    let mut diagnostics = Vec::new();
    assert!(verify(&m, (8, 6), &mut diagnostics).is_some());
    let codes: Vec<Code> = diagnostics.iter().map(|d| d.code).collect();
    assert_eq!(codes, [Code::W0901, Code::W0902]);
}

/// Prints the time per 1 000 instructions; run with `--release -- --nocapture` to read it.
#[test]
fn emission_time() {
    let mut m = Module::new(Target::Sm100a);
    let mut f = Function::kernel("k");
    let mut b = FuncBuilder::new(&mut f);
    let t = b.special(Special::TidX);
    let mut x = t;
    for i in 0..333 {
        x = b.add_u32(x, 70_000 + i);
        let y = b.xor_b32(x, t);
        b.st_shared_b32((y, 16), x);
    }
    b.ret();
    m.functions.push(f);
    let mut diagnostics = Vec::new();
    let verified = verify(&m, (8, 6), &mut diagnostics).unwrap();
    let (mut emitter, mut out) = (PtxEmitter::default(), String::new());
    let mut best = std::time::Duration::MAX;
    for _ in 0..200 {
        out.clear();
        let start = std::time::Instant::now();
        emitter.emit(verified, &PtxOptions::default(), &mut out);
        best = best.min(start.elapsed());
    }
    println!("1 001 instructions, {} bytes: {best:?}", out.len());
    // Debug builds are slower by an order of magnitude; the bound there only catches quadratic behaviour.
    let limit = if cfg!(debug_assertions) { 5_000 } else { 120 };
    assert!(best.as_micros() < limit, "{best:?}");
}
