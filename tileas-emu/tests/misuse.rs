//! Small modules: each kind of misuse is reported with its code; arithmetic agrees with the host.

use crate::common;

use common::*;
use tileas_emu::num::format::F32;
use tileas_emu::*;

const HEAD: &str =
    ".version 8.6\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n";

fn text(body: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 x, .param .u64 y)\n.maxntid 128\n{{\n.reg .pred %p<16>;\n.reg .b16 %h<8>;\n.reg .b32 %r<80>, %s;\n\
         .reg .b64 %rd<16>;\n.reg .f32 %f<16>;\n.local .align 16 .b8 own[64];\nld.param.u64 %rd0, [x];\nld.param.u64 %rd1, [y];\nmov.u32 %r0, %tid.x;\nmov.u32 %s, smem;\n\
         mul.wide.u32 %rd2, %r0, 4;\nadd.s64 %rd3, %rd0, %rd2;\nadd.s64 %rd4, %rd1, %rd2;\nld.global.b32 %r1, [%rd3];\n{body}\nret;\n}}\n"
    )
}

fn code(body: &str, threads: u32, o: &RunOptions) -> (&'static str, String) {
    let p = match Program::parse(&text(body)) {
        Ok(p) => p,
        Err(e) => return (e[0].code, e[0].to_string()),
    };
    let mut mem = Memory::new();
    let x = put(&mut mem, &F32, 4, 32, |i| i as f32);
    let y = put(&mut mem, &F32, 4, 32, |_| 0.0);
    let args = vec![Arg::u64(mem.address(x.id)), Arg::u64(mem.address(y.id))];
    let l = Launch { grid: [1, 1, 1], block: [threads, 1, 1], dynamic_smem: 4096, args, ..Launch::default() };
    let o = RunOptions { max_steps: 20_000, max_in_flight: 64, ..*o };
    match Machine::run(&p, &l, &mut mem, &o, &mut NoTrace) {
        Ok(_) => ("none", String::new()),
        Err(f) => (f.code, f.to_string()),
    }
}

const ALLOC: &str = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%s], 64; bar.warp.sync -1; ld.shared.b32 %r5, [%s];";
/// Loads a column that nobody wrote and stores it, each thread to a word of its own.
const ASIDE: &str = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r5]; tcgen05.wait::ld.sync.aligned; shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %s; add.u32 %r4, %r4, 256; st.shared.b32 [%r4], %r6;";
const FREE: &str = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 64;";
const INIT: &str = "setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared::cta.b64 [%s], 1; bar.sync 0;";

/// Each thread copies its word of the first buffer to a word of shared memory, and compares.
const COPY: &str = "shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %s; cp.async.ca.shared.global [%r4], [%rd3], 4;";
const CHECK: &str = "ld.shared.b32 %r5, [%r4]; setp.ne.u32 %p0, %r5, %r1; @%p0 trap;";
/// A branch to one of four places, each of which must be that of the thread's number.
const SWITCH: &str = "T: .branchtargets A, B, C, D;";
const CASES: &str = "A: mov.b32 %r4, 0; bra E; B: mov.b32 %r4, 1; bra E; C: mov.b32 %r4, 2; bra E; D: mov.b32 %r4, 3; \
     E: setp.ne.u32 %p0, %r3, %r4; @%p0 trap; bar.warp.sync -1; bar.sync 0;";

#[test]
fn misuse_is_reported() {
    let alloc = |rest: &str| format!("{ALLOC}{rest}{FREE}");
    let init = |rest: &str| format!("{INIT}{rest}");
    let table: &[(&str, String, u32)] = &[
        ("undefined", "ld.shared.b32 %r3, [%s];".into(), 32),
        // A register without a value does no harm before somebody else could see it.
        ("none", "add.u32 %r3, %r77, 1;".into(), 32),
        ("undefined", "add.u32 %r3, %r77, 1; st.global.b32 [%rd4], %r3;".into(), 32),
        ("undefined", "add.u32 %r3, %r77, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra L; L:".into(), 32),
        ("undefined", "add.u32 %r3, %r77, 1; redux.sync.add.u32 %r3, %r3, -1; st.global.b32 [%rd4], %r3;".into(), 32),
        ("undefined", "bar.warp.sync %r77;".into(), 32),
        ("undefined", "setp.eq.u32 %p0, %r0, 7; @%p0 mov.b32 %r3, 1; shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1; @%p0 st.global.b32 [%rd1], %r4;".into(), 32),
        ("none", "setp.eq.u32 %p0, %r0, 7; @%p0 mov.b32 %r3, 1; shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1; setp.eq.u32 %p0, %r0, 6; @%p0 st.global.b32 [%rd1], %r4;".into(), 32),
        ("undefined", "ld.local.b32 %r3, [own];".into(), 32),
        ("undefined", "st.local.b32 [own], %r1; ld.local.v2.b32 {%r3, %r4}, [own];".into(), 32),
        ("undefined", "mov.b16 %h0, 7; st.local.b16 [own+6], %h0; ld.local.b16 %h1, [own+4];".into(), 32),
        ("undefined", "setp.lt.u32 %p0, %r0, 31; @%p0 st.local.b32 [own+8], %r1; ld.local.b32 %r3, [own+8];".into(), 32),
        ("none", "st.local.v2.b32 [own+8], {%r1, %r0}; ld.local.b64 %rd5, [own+8]; ld.local.b16 %h1, [own+12];".into(), 32),
        ("align", "st.shared.b32 [%s+2], %r1;".into(), 32),
        ("bounds", "st.shared.b32 [%s+4096], %r1;".into(), 32),
        ("bounds", "ld.global.b32 %r3, [%rd3+8192];".into(), 32),
        ("bounds", "st.shared.b32 [8], %r1;".into(), 32),
        ("barrier.named", "bar.sync 1, 64;".into(), 32),
        ("barrier.named", "bar.sync 1, 16;".into(), 32),
        ("barrier.init", "mbarrier.arrive.shared::cta.b64 _, [%s];".into(), 32),
        ("barrier.bytes", init("st.shared.b32 [%s+4], %r1;"), 32),
        ("barrier.arrive", init("mbarrier.arrive.shared::cta.b64 _, [%s], 2;"), 32),
        ("barrier.tx", init("@%p0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%s], 16; bar.warp.sync -1; @%p0 mbarrier.arrive.shared::cta.b64 _, [%s];"), 32),
        ("exit.barrier", "setp.lt.u32 %p0, %r0, 32; @%p0 bra L; bar.arrive 1, 64; L:".into(), 64),
        // Lanes leave a poll at different times, and only there.
        ("divergent", init("@%p0 mbarrier.arrive.shared::cta.b64 _, [%s]; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s], 0; @!%p1 bra W; bar.sync 0;"), 32),
        ("divergent", init("@%p0 mbarrier.arrive.shared::cta.b64 _, [%s]; W: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%s], 0; selp.u32 %r3, 0, 1, %p1; setp.ne.u32 %p2, %r3, 0; @%p2 bra W; bar.sync 0;"), 32),
        ("none", init("@%p0 mbarrier.arrive.shared::cta.b64 _, [%s]; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s], 0; @!%p1 bra W; bar.warp.sync -1; bar.sync 0;"), 32),
        ("none", init("@%p0 mbarrier.arrive.shared::cta.b64 _, [%s]; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s], 0; @!%p1 bra.uni W; bar.sync 0;"), 32),
        ("none", "atom.relaxed.gpu.global.add.u32 %r3, [%rd1], 1; bar.sync 0;".into(), 64),
        ("divergent", "setp.lt.u32 %p0, %r0, 9; @%p0 bra.uni L; L:".into(), 32),
        // Initialisation of an mbarrier: before its use, and known to the asynchronous proxy.
        ("barrier.init", "setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared::cta.b64 [%s], 1; setp.eq.u32 %p0, %r0, 1; @%p0 mbarrier.arrive.shared::cta.b64 _, [%s];".into(), 32),
        ("barrier.init", init("@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], 16; @%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s+16], [%rd0], 16, [%s]; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s], 0; @!%p1 bra W;"), 32),
        ("none", init("@%p0 fence.proxy.async; @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], 16; @%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s+16], [%rd0], 16, [%s]; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s], 0; @!%p1 bra W;"), 32),
        ("exit.load", init("@%p0 fence.proxy.async; @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], 16; @%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s+16], [%rd0], 16, [%s];"), 32),
        ("deadlock", init("W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s], 0; @!%p1 bra W;"), 32),
        ("deadlock", "setp.ge.u32 %p0, %r0, 32; @%p0 bra L; bar.sync 1, 64; L:".into(), 64),
        ("divergent", "setp.lt.u32 %p0, %r0, 3; @%p0 bra L; bar.sync 0; L: bar.sync 0;".into(), 32),
        ("divergent", "setp.lt.u32 %p0, %r0, 3; @%p0 bar.sync 0;".into(), 32),
        ("divergent", "setp.lt.u32 %p0, %r0, 3; @%p0 bra L; bar.warp.sync 0xffffffff; L: bar.warp.sync 7;".into(), 32),
        ("tmem.leak", ALLOC.into(), 32),
        ("undefined", alloc("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r5]; tcgen05.wait::ld.sync.aligned; st.global.b32 [%rd4], %r6;"), 32),
        // What a thread has no value of it may put aside and take back; it does not become one, and nobody else reads it.
        ("none", alloc(&format!("{ASIDE} ld.shared.b32 %r7, [%r4]; add.u32 %r7, %r7, 1;")), 32),
        ("undefined", alloc(&format!("{ASIDE} ld.shared.b32 %r7, [%r4]; st.global.b32 [%rd4], %r7;")), 32),
        ("none", alloc(&format!("{ASIDE} st.shared.b32 [%r4], %r0; ld.shared.b32 %r7, [%r4]; st.global.b32 [%rd4], %r7;")), 32),
        ("undefined", alloc(&format!("{ASIDE} xor.b32 %r4, %r4, 4; bar.warp.sync -1; ld.shared.b32 %r7, [%r4];")), 32),
        ("undefined", alloc(&format!("{ASIDE} fence.proxy.async.shared::cta; bar.warp.sync -1; setp.eq.u32 %p0, %r0, 0; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%s+256], 128; @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;")), 32),
        ("undefined", alloc(&format!("{ASIDE} st.shared.b32 [%r6], %r0;")), 32),
        ("undefined", alloc(&format!("{ASIDE} st.local.v2.b32 [own], {{%r0, %r6}}; ld.local.v2.b32 {{%r6, %r7}}, [own]; st.global.b32 [%rd4], %r7;")), 32),
        ("none", alloc(&format!("{ASIDE} st.local.v2.b32 [own], {{%r0, %r6}}; ld.local.v2.b32 {{%r6, %r7}}, [own]; st.global.b32 [%rd4], %r6;")), 32),
        ("register.busy", alloc("tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5], {%r1}; tcgen05.wait::st.sync.aligned; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r5]; add.u32 %r7, %r6, 1;"), 32),
        ("race", alloc("tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5], {%r1}; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r5]; tcgen05.wait::ld.sync.aligned; tcgen05.wait::st.sync.aligned;"), 32),
        ("layout", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%s], 96;".into(), 32),
        ("tmem.dealloc", "mov.u32 %r4, 0; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 32;".into(), 32),
        ("trap", "trap;".into(), 32),
        ("arith.div0", "div.u32 %r3, %r1, 0;".into(), 32),
        ("limit.steps", "Q: bra Q;".into(), 32),
        ("race", "shr.u32 %r2, %r0, 5; and.b32 %r3, %r0, 31; setp.eq.u32 %p1, %r3, 0; @%p1 st.shared.b32 [%s], %r2;".into(), 64),
        ("race", "xor.b32 %r2, %r0, 32; shl.b32 %r2, %r2, 2; add.u32 %r3, %s, %r2; shl.b32 %r4, %r0, 2; add.u32 %r4, %s, %r4; st.shared.b32 [%r4], %r0; bar.sync 0; ld.shared.b32 %r5, [%r3]; st.shared.b32 [%r4], %r5;".into(), 64),
        ("none", "xor.b32 %r2, %r0, 32; shl.b32 %r2, %r2, 2; add.u32 %r3, %s, %r2; shl.b32 %r4, %r0, 2; add.u32 %r4, %s, %r4; st.shared.b32 [%r4], %r0; bar.sync 0; ld.shared.b32 %r5, [%r3]; bar.sync 0; st.shared.b32 [%r4], %r5;".into(), 64),
        // Lanes of one warp.
        ("race.lanes", "shl.b32 %r4, %r0, 2; xor.b32 %r3, %r4, 4; add.u32 %r3, %s, %r3; add.u32 %r4, %s, %r4; st.shared.b32 [%r4], %r0; ld.shared.b32 %r5, [%r3];".into(), 32),
        ("none", "shl.b32 %r4, %r0, 2; xor.b32 %r3, %r4, 4; add.u32 %r3, %s, %r3; add.u32 %r4, %s, %r4; st.shared.b32 [%r4], %r0; bar.warp.sync -1; ld.shared.b32 %r5, [%r3];".into(), 32),
        ("race", "setp.eq.u32 %p0, %r0, 0; shl.b32 %r4, %r0, 2; add.u32 %r4, %s, %r4; st.shared.b32 [%r4], %r0; fence.proxy.async.shared::cta; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%s], 128; @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;".into(), 32),
        ("none", "setp.eq.u32 %p0, %r0, 0; shl.b32 %r4, %r0, 2; add.u32 %r4, %s, %r4; st.shared.b32 [%r4], %r0; fence.proxy.async.shared::cta; bar.warp.sync -1; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%s], 128; @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;".into(), 32),
        ("none", "st.global.b32 [%rd1], %r0;".into(), 32),
        ("none", "red.global.add.u32 [%rd1], %r0;".into(), 64),
        ("none", "st.shared.b16 [%s+64], %h0;".replace("%h0", "1"), 32),
        ("exit.store", "setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.v4.b32 [%s], {%r1, %r1, %r1, %r1}; @%p0 fence.proxy.async.shared::cta; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%s], 16; @%p0 cp.async.bulk.commit_group;".into(), 32),
        ("proxy", "setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.v4.b32 [%s], {%r1, %r1, %r1, %r1}; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%s], 16; @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;".into(), 32),
        // The full wait orders the writes also of stores whose reading was waited for before.
        ("none", "setp.ne.u32 %p0, %r0, 0; @%p0 bra L; st.shared.v4.b32 [%s], {%r1, %r1, %r1, %r1}; fence.proxy.async.shared::cta; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%s], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0; ld.global.b32 %r3, [%rd1]; L:".into(), 32),
        ("race", "setp.ne.u32 %p0, %r0, 0; @%p0 bra L; st.shared.v4.b32 [%s], {%r1, %r1, %r1, %r1}; fence.proxy.async.shared::cta; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%s], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; ld.global.b32 %r3, [%rd1]; L:".into(), 32),
        ("limit.in_flight", "setp.ne.u32 %p0, %r0, 0; @%p0 bra L; st.shared.v4.b32 [%s], {%r1, %r1, %r1, %r1}; fence.proxy.async.shared::cta; Q: cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%s], 16; cp.async.bulk.commit_group; bra Q; L:".into(), 32),
        // cp.async: what it copies is there after the wait for its group, for others after a barrier too.
        ("none", format!("{COPY} cp.async.commit_group; cp.async.wait_group 0; {CHECK}"), 32),
        ("none", format!("{COPY} cp.async.wait_all; {CHECK}"), 32),
        ("none", format!("{COPY} cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1; {CHECK}"), 32),
        ("undefined", format!("{COPY} cp.async.commit_group; {CHECK} cp.async.wait_all;"), 32),
        ("undefined", format!("{COPY} cp.async.commit_group; cp.async.wait_group 1; {CHECK} cp.async.wait_all;").replace("ld.shared", "bar.warp.sync -1; ld.shared"), 32),
        ("undefined", format!("{COPY} cp.async.wait_group 0; {CHECK} cp.async.wait_all;"), 32),
        ("exit.load", format!("{COPY} cp.async.commit_group;"), 32),
        ("none", format!("{COPY} cp.async.wait_all; bar.warp.sync -1; xor.b32 %r4, %r4, 4; ld.shared.b32 %r5, [%r4];"), 32),
        ("race.lanes", format!("{COPY} cp.async.wait_all; xor.b32 %r4, %r4, 4; ld.shared.b32 %r5, [%r4];"), 32),
        ("proxy", format!("{COPY} cp.async.wait_all; bar.warp.sync -1; setp.eq.u32 %p0, %r0, 0; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%s], 128; @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;"), 32),
        ("none", "shl.b32 %r4, %r0, 4; add.u32 %r4, %r4, %s; mul.wide.u32 %rd5, %r0, 16; add.u64 %rd5, %rd5, %rd0; cp.async.cg.shared.global [ %r4 + 0 ], [ %rd5 + 0 ], 0x10, 4; cp.async.wait_all; ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r4]; or.b32 %r6, %r6, %r7; or.b32 %r6, %r6, %r8; setp.ne.u32 %p0, %r6, 0; @%p0 trap; ld.global.b32 %r6, [%rd5]; setp.ne.u32 %p0, %r5, %r6; @%p0 trap;".into(), 32),
        ("none", "shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %s; mov.u64 %rd5, 0; cp.async.ca.shared.global [%r4], [%rd5], 4, 0; cp.async.wait_all; ld.shared.b32 %r5, [%r4]; setp.ne.u32 %p0, %r5, 0; @%p0 trap;".into(), 32),
        ("align", "cp.async.ca.shared.global [%s], [%rd0+4], 8; cp.async.wait_all;".into(), 32),
        ("P017", "cp.async.cg.shared.global [%s], [%rd0], 8;".into(), 32),
        // Scopes of names, tables of labels, text for debuggers.
        ("none", "{ .reg .b32 %r0; mov.b32 %r0, 0; L: add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 3; @%p0 bra L; } { L: bar.sync 0; setp.eq.u32 %p0, 1, 2; @%p0 bra L; } setp.ne.u32 %p0, %r0, %tid.x; @%p0 trap;".into(), 32),
        ("P016", "{ L: bar.sync 0; } setp.eq.u32 %p0, 1, 2; @%p0 bra L;".into(), 32),
        ("P015", "{ L: bar.sync 0; L: }".into(), 32),
        ("none", "{ .shared .align 4 .b32 own; st.shared.b32 [own], 7; } ld.local.b32 %r3, [own];".replace("ld.local", "st.local").replace("%r3, [own]", "[own], %r0"), 32),
        ("none", format!("{SWITCH} and.b32 %r3, %r0, 3; brx.idx %r3, T; {CASES}"), 32),
        ("divergent", format!("{SWITCH} and.b32 %r3, %r0, 3; brx.idx.uni %r3, T; {CASES}"), 32),
        ("branch", format!("{SWITCH} mov.b32 %r3, %r0; brx.idx %r3, T; {CASES}"), 32),
        ("P016", "brx.idx %r0, T;".into(), 32),
        ("P002", "mov.b32 %r3, 0; .branchtargets L, L; L:".into(), 32),
        ("none", ".loc 1 5 0\n.loc 2 7 1, function_name $S + 4, inlined_at 1 3 2\n.pragma \"nounroll\";\nmov.b32 %r3, 0;".into(), 32),
        ("P002", ".loc 1 5\nmov.b32 %r3, 0;".into(), 32),
        ("none", "mov.u64 %rd5, x; ld.param.u64 %rd6, [%rd5]; setp.ne.u64 %p0, %rd6, %rd0; @%p0 trap; cvta.param.u64 %rd5, %rd5; ld.u64 %rd6, [%rd5]; setp.ne.u64 %p0, %rd6, %rd0; @%p0 trap; mov.pred %p1, -1; mov.pred %p2, %p1; @!%p2 trap;".into(), 32),
        ("none", "mad.lo.cc.u32 %r3, 0xffffffff, 2, 2; madc.hi.u32 %r4, 0xffffffff, 2, 5; setp.ne.u32 %p0, %r4, 7; @%p0 trap; sub.cc.u32 %r3, 0, 1; subc.u32 %r4, 9, 3; setp.ne.u32 %p0, %r4, 5; @%p0 trap; add.cc.u32 %r3, 0xffffffff, 1; addc.cc.u32 %r4, 0xffffffff, 0; addc.u32 %r5, 0, 0; or.b32 %r4, %r4, %r3; setp.ne.u32 %p0, %r4, 0; @%p0 trap; setp.ne.u32 %p0, %r5, 1; @%p0 trap;".into(), 32),
        ("undefined", "addc.u32 %r3, 0, 0;".into(), 32),
        ("none", "atom.global.acq_rel.gpu.cas.b32 %r3, [%rd1], 0, 1; atom.global.gpu.acq_rel.add.u32 %r3, [%rd1], 1; atom.acq_rel.gpu.global.exch.b32 %r3, [%rd1], 1; atom.global.gpu.relaxed.add.v2.f32 {%f1, %f2}, [%rd1+16], {0f3F800000, 0f40000000};".into(), 32),
        ("P011", "atom.global.gpu.cta.add.u32 %r3, [%rd1], 1;".into(), 32),
        // Local memory.
        ("none", "st.local.b32 [own+8], %r1; mov.u64 %rd5, own; cvta.local.u64 %rd5, %rd5; ld.b32 %r3, [%rd5+8]; setp.ne.u32 %p0, %r3, %r1; @%p0 trap;".into(), 32),
        ("none", "st.local.v2.b32 [own], {%r0, %r1}; ld.local.u32 %r3, [own]; setp.ne.u32 %p0, %r3, %r0; @%p0 trap;".into(), 32),
        ("bounds", "st.local.b32 [own+64], %r1;".into(), 32),
        ("align", "st.local.b32 [own+2], %r1;".into(), 32),
        ("P012", "ld.local.b32 %r3, [smem];".into(), 32),
        ("none", "setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.v4.b32 [%s], {%r1, %r1, %r1, %r1}; @%p0 fence.proxy.async.shared::cta; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%s], 16; @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;".into(), 32),
    ];
    let mut bad = Vec::new();
    for (want, body, threads) in table {
        let mut got = ("none", String::new());
        for o in [all(Mode::Random(1)), all(Mode::Fast), all(Mode::Latest(1)), all(Mode::Random(2))] {
            got = code(body, *threads, &o);
            if got.0 != "none" {
                break;
            }
        }
        if got.0 != *want {
            bad.push(format!("{body}: expected {want}, got {}", got.1));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn aligned_instructions_may_wait_for_lanes() {
    let body = "setp.lt.u32 %p0, %r0, 3; @%p0 bra L; add.u32 %r3, %r1, 1; L: bar.sync 0;";
    for seed in 1..9 {
        let strict = all(Mode::Random(seed));
        assert_eq!(code(body, 64, &strict).0, "divergent");
        let found = code(body, 64, &RunOptions { gather_aligned: true, ..strict });
        assert_eq!(found.0, "none", "{}", found.1);
    }
}

#[test]
fn texts_are_refused() {
    for (want, body) in [
        ("P010", "frobnicate.b32 %r3, %r1;"),
        ("P011", "add.v7.u32 %r3, %r1, %r1;"),
        ("P012", "add.u32 %r3, %r1;"),
        ("P013", "add.u32 %r3, %r1, %nothing;"),
        ("P014", "add.u32 %r3, %r1, %rd1;"),
        ("P015", ".reg .b32 %r<3>;"),
        ("P015", ".reg .b32 %r7;"),
        ("P015", ".reg .b64 %r1<2>;"),
        ("P015", ".reg .b32 %one, %one;"),
        ("none", "{ .reg .b32 %r<3>, %r07; } .reg .b32 %r1x<2>, %r80;"),
        ("P016", "bra NOWHERE;"),
        ("P017", "mov.b32 %r3, 0x123456789;"),
        ("P017", "setmaxnreg.inc.sync.aligned.u32 25;"),
        ("P002", "add.u32 %r3 %r1;"),
        ("P001", "add.u32 %r3, %r1, \u{e9};"),
        ("P003", ".section .debug;"),
    ] {
        assert_eq!(code(body, 32, &all(Mode::Fast)).0, want, "{body}");
    }
    assert_eq!(Program::parse(".version 8.6\n.target sm_70\n").unwrap_err()[0].code, "P018");
}

/// Runs one operation on pairs of words and compares with the host.
fn each(op: &str, f: impl Fn(u32, u32) -> u32) {
    let p = Program::parse(&text(&format!(
        "ld.global.b32 %r2, [%rd4]; mov.b32 %f1, %r1; mov.b32 %f2, %r2; {op} st.global.b32 [%rd4], %r3;"
    )))
    .unwrap_or_else(|e| panic!("{}", e[0]));
    let values = [
        0u32,
        1,
        2,
        31,
        32,
        33,
        0x7FFF_FFFF,
        0x8000_0000,
        0xFFFF_FFFF,
        0x3F80_0000,
        0xC049_0FDB,
        0x1234_5678,
    ];
    for (i, &a) in values.iter().enumerate() {
        let bytes = |f: &dyn Fn(usize) -> u32| (0..32).flat_map(|k| f(k).to_le_bytes()).collect::<Vec<u8>>();
        let mut mem = Memory::new();
        let x = mem.alloc(bytes(&|_| a));
        let y = mem.alloc(bytes(&|k| values[(k + i) % values.len()]));
        let args = vec![Arg::u64(mem.address(x)), Arg::u64(mem.address(y))];
        let l = Launch { grid: [1, 1, 1], block: [32, 1, 1], dynamic_smem: 64, args, ..Launch::default() };
        Machine::run(&p, &l, &mut mem, &all(Mode::Fast), &mut NoTrace)
            .unwrap_or_else(|e| panic!("{op}: {e}"));
        for (k, w) in mem.bytes(y).chunks_exact(4).enumerate() {
            let b = values[(k + i) % values.len()];
            let got = u32::from_le_bytes([w[0], w[1], w[2], w[3]]);
            assert_eq!(got, f(a, b), "{op} of {a:#x} and {b:#x}");
        }
    }
}

#[test]
fn integers_agree_with_the_host() {
    each("add.u32 %r3, %r1, %r2;", u32::wrapping_add);
    each("mul.lo.s32 %r3, %r1, %r2;", u32::wrapping_mul);
    each("mul.hi.u32 %r3, %r1, %r2;", |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32);
    each("mul.hi.s32 %r3, %r1, %r2;", |a, b| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32);
    each("shl.b32 %r3, %r1, %r2;", |a, b| a.checked_shl(b).unwrap_or(0));
    each("shr.s32 %r3, %r1, %r2;", |a, b| ((a as i32) >> b.min(31)) as u32);
    each("max.s32 %r3, %r1, %r2;", |a, b| (a as i32).max(b as i32) as u32);
    each("lop3.b32 %r3, %r1, %r2, 0, 0x3c;", |a, b| a ^ b);
    each("prmt.b32 %r3, %r1, %r2, 0x7610;", |a, b| a & 0xFFFF | b & 0xFFFF_0000);
    each("setp.lt.s32 %p1, %r1, %r2; selp.u32 %r3, %r1, %r2, %p1;", |a, b| (a as i32).min(b as i32) as u32);
    each("bfe.s32 %r3, %r1, 4, 8;", |a, _| ((a << 20) as i32 >> 24) as u32);
    each("shf.l.wrap.b32 %r3, %r1, %r2, 8;", |a, b| b << 8 | a >> 24);
    each("mov.b64 %rd5, {%r1, %r2}; shr.u64 %rd5, %rd5, 16; cvt.u32.u64 %r3, %rd5;", |a, b| {
        a >> 16 | b << 16
    });
    each("cvt.u16.u32 %h0, %r1; cvt.s32.s16 %r3, %h0;", |a, _| a as i16 as i32 as u32);
}

#[test]
fn floats_agree_with_the_host() {
    let f = |a: u32, b: u32, op: fn(f32, f32) -> f32| {
        let v = op(f32::from_bits(a), f32::from_bits(b));
        if v.is_nan() { 0x7FFF_FFFF } else { v.to_bits() }
    };
    each("add.rn.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", |a, b| f(a, b, |x, y| x + y));
    each("mul.rn.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", |a, b| f(a, b, |x, y| x * y));
    each("div.rn.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", |a, b| f(a, b, |x, y| x / y));
    each("fma.rn.f32 %f3, %f1, %f2, %f1; mov.b32 %r3, %f3;", |a, b| f(a, b, |x, y| x.mul_add(y, x)));
    each("setp.ltu.f32 %p1, %f1, %f2; selp.u32 %r3, 1, 0, %p1;", |a, b| {
        let (x, y) = (f32::from_bits(a), f32::from_bits(b));
        u32::from(x.is_nan() || y.is_nan() || x < y)
    });
    each("cvt.rzi.s32.f32 %r3, %f1;", |a, _| f32::from_bits(a) as i32 as u32);
    each("cvt.rn.f32.s32 %f3, %r1; mov.b32 %r3, %f3;", |a, _| (a as i32 as f32).to_bits());
}

#[test]
fn warps_exchange_values() {
    each("shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1; xor.b32 %r3, %r3, %r0;", |_, _| 1);
    each("shfl.sync.idx.b32 %r3, %r0, 5, 31, -1;", |_, _| 5);
    each("redux.sync.add.s32 %r3, 1, -1;", |_, _| 32);
    each("setp.lt.u32 %p1, %r0, 4; vote.sync.ballot.b32 %r3, %p1, -1;", |_, _| 15);
    each(
        "mov.u32 %r3, 9; setp.lt.u32 %p1, %r0, 4; @%p1 bra L; mov.u32 %r3, 8; L: bar.warp.sync -1; redux.sync.max.u32 %r3, %r3, -1;",
        |_, _| 9,
    );
}

#[test]
fn traces_and_runs_are_repeatable() {
    let p = Program::parse(include_str!("data/gemm_f16.ptx")).unwrap();
    let run = || {
        let mut mem = Memory::new();
        let (l, _, _) = gemm_f16(&mut mem, 128, 128, 128);
        let mut t = ChromeTrace::default();
        let r =
            Machine::run(&p, &l, &mut mem, &all(Mode::Random(5)), &mut t).unwrap_or_else(|f| panic!("{f}"));
        (r, t.json())
    };
    let (a, b) = (run(), run());
    assert_eq!(a, b);
    assert!(a.1.contains("TMA load") && a.1.contains("tensor pipe"));
}

/// `bar.red` over the block, with a thread-dependent predicate.
#[test]
fn barriers_reduce() {
    for (op, want) in [
        ("bar.red.popc.u32 %r3, 1, %p1;", 40u32),
        ("bar.red.or.pred %p2, 1, 64, %p1; selp.u32 %r3, 1, 0, %p2;", 1),
        ("bar.red.and.pred %p2, 1, 64, !%p1; selp.u32 %r3, 1, 0, %p2;", 0),
    ] {
        let p = Program::parse(&text(&format!("setp.lt.u32 %p1, %r0, 40; {op} st.global.u32 [%rd4], %r3;")))
            .unwrap_or_else(|e| panic!("{}", e[0]));
        for seed in 0..4 {
            let mut mem = Memory::new();
            let x = put(&mut mem, &F32, 2, 32, |i| i as f32);
            let y = put(&mut mem, &F32, 2, 32, |_| 0.0);
            let args = vec![Arg::u64(mem.address(x.id)), Arg::u64(mem.address(y.id))];
            let l =
                Launch { grid: [1, 1, 1], block: [64, 1, 1], dynamic_smem: 64, args, ..Launch::default() };
            Machine::run(&p, &l, &mut mem, &all(Mode::Random(seed)), &mut NoTrace)
                .unwrap_or_else(|e| panic!("{e}"));
            assert!(mem.bytes(y.id).chunks_exact(4).all(|w| w == want.to_le_bytes()), "{op}");
        }
    }
}

/// Two CTAs: the first writes and raises a flag, the second waits for the flag and reads.
fn flag(write: &str, read: &str) -> &'static str {
    let body = format!(
        "mov.u32 %r2, %ctaid.x; setp.ne.u32 %p0, %r0, 0; @%p0 bra END; setp.ne.u32 %p0, %r2, 0; @%p0 bra SECOND; \
         mov.u32 %r3, 7; st.global.u32 [%rd1], %r3; mov.u32 %r4, 1; {write} bra END; \
         SECOND: {read} setp.eq.u32 %p1, %r5, 0; @%p1 bra SECOND; ld.global.u32 %r6, [%rd1]; st.global.u32 [%rd1+8], %r6; END:"
    );
    let p = Program::parse(&text(&body)).unwrap_or_else(|e| panic!("{}", e[0]));
    for seed in 0..12 {
        let mut mem = Memory::new();
        let x = put(&mut mem, &F32, 4, 32, |i| i as f32);
        let y = put(&mut mem, &F32, 4, 32, |_| 0.0);
        let args = vec![Arg::u64(mem.address(x.id)), Arg::u64(mem.address(y.id))];
        let l = Launch { grid: [2, 1, 1], block: [32, 1, 1], dynamic_smem: 64, args, ..Launch::default() };
        let o = RunOptions { resident: 2, ..all(Mode::Random(seed)) };
        if let Err(f) = Machine::run(&p, &l, &mut mem, &o, &mut NoTrace) {
            return f.code;
        }
        assert_eq!(mem.bytes(y.id)[8], 7);
    }
    "none"
}

#[test]
fn ctas_synchronise_through_flags() {
    let (write, read) =
        ("st.release.gpu.global.u32 [%rd1+4], %r4;", "ld.acquire.gpu.global.u32 %r5, [%rd1+4];");
    assert_eq!(flag(write, read), "none");
    assert_eq!(flag("st.relaxed.gpu.global.u32 [%rd1+4], %r4;", read), "race");
    assert_eq!(flag(write, "ld.relaxed.gpu.global.u32 %r5, [%rd1+4];"), "race");
    let fenced = "fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%rd1+4], %r4;";
    assert_eq!(flag(fenced, "ld.relaxed.gpu.global.u32 %r5, [%rd1+4]; fence.acq_rel.gpu;"), "none");
    assert_eq!(flag("st.global.u32 [%rd1+4], %r4;", read), "race");
}

/// A loop that never ends stops when it is told to, long before its most steps.
#[test]
fn a_run_can_be_interrupted() {
    let p = Program::parse(&text("L: add.u32 %r3, %r3, 1; bra L;")).expect("parses");
    let mut mem = Memory::new();
    let x = put(&mut mem, &F32, 4, 32, |i| i as f32);
    let args = vec![Arg::u64(mem.address(x.id)); 2];
    let l = Launch { grid: [1, 1, 1], block: [32, 1, 1], dynamic_smem: 4096, args, ..Launch::default() };
    let o = RunOptions { interrupted: Some(|| true), ..RunOptions::default() };
    let fault = Machine::run(&p, &l, &mut mem, &o, &mut NoTrace).expect_err("it is told to stop");
    assert_eq!(fault.code, "interrupted");
}

#[test]
fn ctas_that_wait_for_later_ones_let_them_begin() {
    let body = "setp.ne.u32 %p0, %r0, 0; @%p0 bra END; mov.u32 %r4, 1; red.release.gpu.global.add.u32 [%rd1], %r4; \
                AGAIN: ld.acquire.gpu.global.u32 %r5, [%rd1]; setp.lt.u32 %p1, %r5, 5; @%p1 bra AGAIN; END:";
    let p = Program::parse(&text(body)).unwrap_or_else(|e| panic!("{}", e[0]));
    for mode in [Mode::Fast, Mode::Latest(1), Mode::Random(1), Mode::Random(2)] {
        let run = |ctas: u32, room: u64| {
            let mut mem = Memory::new();
            let x = put(&mut mem, &F32, 4, 32, |i| i as f32);
            let y = put(&mut mem, &F32, 4, 32, |_| 0.0);
            let args = vec![Arg::u64(mem.address(x.id)), Arg::u64(mem.address(y.id))];
            let l =
                Launch { grid: [ctas, 1, 1], block: [32, 1, 1], dynamic_smem: 64, args, ..Launch::default() };
            let o = RunOptions { max_memory: room, max_steps: 1_000_000, ..all(mode) };
            Machine::run(&p, &l, &mut mem, &o, &mut NoTrace).map(|_| ()).map_err(|f| f.code)
        };
        assert_eq!(run(5, 1 << 30), Ok(()), "{mode:?}");
        // One that is missing, and memory for fewer.
        assert_eq!(run(4, 1 << 30), Err("limit.steps"), "{mode:?}");
        assert_eq!(run(5, 1 << 16), Err("limit.steps"), "{mode:?}");
    }
}
