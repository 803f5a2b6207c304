//! Counting: hand-written PTX, and numbers worked out by hand.

use tileas_emu::stats::{Kind, Line, Requests, Shared};
use tileas_emu::*;

const HEAD: &str = ".version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 p) {
    .reg .pred %p<8>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<16>;
    .shared .align 128 .b8 tile[16384];
    .local .align 4 .b8 own[16];
    ld.param.u64 %rd0, [p];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, tile;
";

/// Bytes of the buffer that the parameter points to.
const BYTES: usize = 1 << 16;

fn counted(body: &str, threads: u32, ctas: u32, mode: Mode) -> Stats {
    let text = format!("{HEAD}{body}\n    ret;\n}}\n");
    let program = Program::parse(&text).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
    let mut memory = Memory::new();
    // Addresses of buffers are multiples of 256.
    let buffer = memory.alloc(vec![0; BYTES]);
    assert!(memory.address(buffer).is_multiple_of(256));
    let args = vec![Arg::u64(memory.address(buffer))];
    let launch = Launch { grid: [ctas, 1, 1], block: [threads, 1, 1], args, ..Launch::default() };
    // What lies in memory is not the point here.
    let detectors = Detectors::NONE;
    let options = RunOptions { mode, detectors, stats: true, ..RunOptions::default() };
    let run = |options: &RunOptions| {
        Machine::run(&program, &launch, &mut memory.clone(), options, &mut NoTrace)
            .unwrap_or_else(|f| panic!("{f}\n{text}"))
    };
    let report = run(&options);
    assert_eq!(run(&options), report, "the same counts twice");
    // Counting changes nothing, and is off where nobody asks for it.
    let off = run(&RunOptions { stats: false, ..options });
    assert_eq!((off.steps, off.operations, off.stats), (report.steps, report.operations, None));
    *report.stats.expect("was asked for")
}

/// One warp.
fn stats(body: &str) -> Stats {
    counted(body, 32, 1, Mode::Fast)
}

fn requests(requests: u64, sectors: u64, bytes: u64) -> Requests {
    Requests { requests, sectors, bytes }
}

fn shared(requests: u64, wavefronts: u64, ideal: u64) -> Shared {
    Shared { requests, wavefronts, ideal }
}

/// The address of thread t is p + `scale` · t + `offset`, in `%rd1`.
fn global(scale: u32, offset: u32, then: &str) -> Stats {
    stats(&format!("mad.wide.u32 %rd1, %r0, {scale}, %rd0; add.u64 %rd1, %rd1, {offset}; {then}"))
}

/// The same in the shared tile, in `%r2`; what is loaded is written before.
fn tile(scale: u32, offset: u32, then: &str) -> Stats {
    stats(&format!("mad.lo.u32 %r2, %r0, {scale}, %r1; add.u32 %r2, %r2, {offset}; {then}"))
}

#[test]
fn coalesced_loads_use_all_they_touch() {
    let s = global(4, 0, "ld.global.u32 %r3, [%rd1];");
    assert_eq!(s.loads, requests(1, 4, 128));
    assert_eq!(s.loads.used(), Some(1.0));
    assert_eq!((s.stores, s.atomics, s.shared), Default::default());
    // 16 bytes a lane: 512 in all; 2 bytes a lane: 64.
    assert_eq!(global(16, 0, "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd1];").loads, requests(1, 16, 512));
    assert_eq!(global(2, 0, "ld.global.u16 %r3, [%rd1];").loads, requests(1, 2, 64));
    // Parameters are not global memory, what has no space and lies there is.
    assert_eq!(global(4, 0, "ld.u32 %r3, [%rd1];").loads, requests(1, 4, 128));
}

#[test]
fn strided_and_misaligned_stores_waste() {
    let s = global(128, 0, "st.global.u32 [%rd1], %r0;");
    assert_eq!(s.stores, requests(1, 32, 128));
    assert_eq!((s.stores.used(), s.stores.wasted()), (Some(0.125), 896));
    // 128 bytes from byte 16 on lie in five sectors.
    assert_eq!(global(4, 16, "st.global.u32 [%rd1], %r0;").stores, requests(1, 5, 128));
    // Every other word: four lanes to a sector.
    assert_eq!(global(8, 0, "st.global.u32 [%rd1], %r0;").stores, requests(1, 8, 128));
}

#[test]
fn lanes_that_are_off_ask_for_nothing() {
    let s = global(4, 0, "setp.lt.u32 %p1, %r0, 9; @%p1 ld.global.u32 %r3, [%rd1];");
    assert_eq!(s.loads, requests(1, 2, 36));
    // No lane, no request; but an instruction all the same.
    let s = global(4, 0, "setp.lt.u32 %p1, %r0, 0; @%p1 ld.global.u32 %r3, [%rd1];");
    assert_eq!(s.loads, Requests::default());
    assert_eq!(s.total.instructions, 8);
}

#[test]
fn a_request_counts_bytes_and_words_once() {
    let s = stats("ld.global.u32 %r3, [%rd0];");
    assert_eq!(s.loads, requests(1, 1, 4));
    // All lanes of shared memory at one word: one wavefront.
    let s = tile(0, 0, "st.shared.u32 [%r2], %r0; ld.shared.u32 %r3, [%r2];");
    assert_eq!(s.shared, shared(2, 2, 2));
    // Two lanes that share a word are no conflict.
    assert_eq!(tile(2, 0, "st.shared.u16 [%r2], %r0;").shared, shared(1, 1, 1));
}

#[test]
fn bank_conflicts_of_words() {
    let store = "st.shared.u32 [%r2], %r0;";
    assert_eq!(tile(4, 0, store).shared, shared(1, 1, 1));
    // Every other word: lanes l and l + 16 meet in a bank. Rows of 32 words: all lanes in one bank.
    assert_eq!(tile(8, 0, store).shared, shared(1, 2, 1));
    let s = tile(128, 0, store);
    assert_eq!((s.shared, s.shared.conflicts()), (shared(1, 32, 1), 31));
    // Rows of 33 words: none.
    assert_eq!(tile(132, 0, store).shared, shared(1, 1, 1));
    // Of the 32 lanes in one bank only five are on.
    let some = "setp.lt.u32 %p1, %r0, 5; @%p1 st.shared.u32 [%r2], %r0;";
    assert_eq!(tile(128, 0, some).shared, shared(1, 5, 1));
}

#[test]
fn wide_accesses_go_in_phases() {
    let wide = "st.shared.v2.u32 [%r2], {%r0, %r0};";
    assert_eq!(tile(8, 0, wide).shared, shared(1, 2, 2));
    // 16 bytes apart: of 16 lanes 0 and 8 meet, so each phase takes two.
    assert_eq!(tile(16, 0, wide).shared, shared(1, 4, 2));
    let widest = "st.shared.v4.u32 [%r2], {%r0, %r0, %r0, %r0};";
    assert_eq!(tile(16, 0, widest).shared, shared(1, 4, 4));
    // Rows of 128 bytes: the eight lanes of each phase meet.
    assert_eq!(tile(128, 0, widest).shared, shared(1, 32, 4));
    // Rows of 144 bytes: they spread over all banks.
    assert_eq!(tile(144, 0, widest).shared, shared(1, 4, 4));
    // One phase has active lanes.
    let some = "setp.lt.u32 %p1, %r0, 8; @%p1 st.shared.v4.u32 [%r2], {%r0, %r0, %r0, %r0};";
    assert_eq!(tile(16, 0, some).shared, shared(1, 1, 1));
}

#[test]
fn rows_of_matrices_with_and_without_a_swizzle() {
    let load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2];";
    // Lane l: row l of a tile with rows of 128 bytes; the eight rows of each matrix meet in four banks.
    assert_eq!(tile(128, 0, load).shared, shared(1, 32, 4));
    // The 16-byte chunk is exclusive-ored with the row modulo 8, as a 128-byte swizzle does.
    let swizzle = format!("and.b32 %r7, %r0, 7; shl.b32 %r7, %r7, 4; xor.b32 %r2, %r2, %r7; {load}");
    assert_eq!(tile(128, 0, &swizzle).shared, shared(1, 4, 4));
    // One matrix takes the rows of eight lanes; where the others point is no matter.
    let one = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r2];";
    assert_eq!(tile(16, 0, one).shared, shared(1, 1, 1));
    let two = "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r2], {%r0, %r0};";
    assert_eq!(tile(64, 0, two).shared, shared(1, 8, 2));
    // A matrix of 16 rows: two phases.
    let tall = "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r3, %r4}, [%r2];";
    assert_eq!(tile(16, 0, tall).shared, shared(1, 2, 2));
}

#[test]
fn atomics_on_one_address() {
    let s = global(0, 0, "atom.global.add.u32 %r3, [%rd1], 1;");
    assert_eq!((s.atomics, s.loads, s.stores), (requests(1, 1, 4), Requests::default(), Requests::default()));
    // A reduction without a result, in two vectors of 16 bytes each.
    let s =
        global(16, 0, "setp.lt.u32 %p1, %r0, 2; @%p1 red.global.add.v4.f32 [%rd1], {%r0, %r0, %r0, %r0};");
    assert_eq!(s.atomics, requests(1, 1, 32));
    // That lanes take turns at a word is not counted.
    let s = tile(0, 0, "st.shared.u32 [%r2], 0; atom.shared.add.u32 %r3, [%r2], 1;");
    assert_eq!(s.shared, shared(2, 2, 2));
}

#[test]
fn spaces_of_generic_accesses() {
    // Even lanes go to shared memory, odd ones to global memory: one request to each.
    let s = stats(
        "mov.u64 %rd2, tile; cvta.shared.u64 %rd2, %rd2; and.b32 %r3, %r0, 1; setp.eq.u32 %p1, %r3, 0;
         selp.b64 %rd3, %rd2, %rd0, %p1; mad.wide.u32 %rd3, %r0, 4, %rd3; st.u32 [%rd3], %r0;",
    );
    assert_eq!((s.stores, s.shared), (requests(1, 4, 64), shared(1, 1, 1)));
}

#[test]
fn copies_of_lanes_and_bulk_copies() {
    let s = stats(
        "mad.wide.u32 %rd1, %r0, 16, %rd0; mad.lo.u32 %r2, %r0, 16, %r1;
         cp.async.cg.shared.global [%r2], [%rd1], 16; cp.async.wait_all;",
    );
    assert_eq!((s.loads, s.shared), (requests(1, 16, 512), Shared::default()));
    // 48 bytes from byte 16 on: two sectors, back to the start of the buffer.
    let s = stats(
        "setp.eq.u32 %p1, %r0, 0; @!%p1 bra END; add.u64 %rd1, %rd0, 16; mov.u32 %r5, 4096; add.u32 %r5, %r5, %r1;
         mbarrier.init.shared::cta.b64 [%r5], 1; fence.proxy.async;
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 48;
         cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 48, [%r5];
         WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
         cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 48; cp.async.bulk.commit_group;
         cp.async.bulk.wait_group 0;
         END:",
    );
    assert_eq!((s.bulk_loads, s.bulk_stores), (requests(1, 2, 48), requests(1, 2, 48)));
    assert_eq!((s.loads, s.stores, s.shared), Default::default());
    assert_eq!(s.total.waits, 1);
}

#[test]
fn instructions_by_kind_and_warp() {
    // Warps of number 0 and 1 of three CTAs; the second one has a shuffle more.
    let body = "shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1; bar.sync 0; setp.ge.u32 %p1, %r0, 32;
        @!%p1 bra END; shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1; END: bar.red.popc.u32 %r4, 0, %p1;
        st.local.u32 [own], %r0; ld.local.u32 %r5, [own]; ld.local.u32 %r5, [own]; bar.arrive 1, 64;";
    let s = counted(body, 64, 3, Mode::Fast);
    assert_eq!(s.warps, 6);
    assert_eq!((s.total.shuffles, s.most.shuffles), (9, 2));
    assert_eq!((s.total.barriers, s.most.barriers), (12, 2));
    assert_eq!((s.total.local_loads, s.total.local_stores, s.most.local_loads), (12, 6, 2));
    // Head, body and `ret`; what the first warp jumps over the second executes.
    assert_eq!((s.most.instructions, s.total.instructions), (3 + 10 + 1, 6 * 14 - 3));
    assert_eq!(s.polls, 0);
    assert_eq!((s.loads, s.shared), Default::default());
}

#[test]
fn tensor_cores() {
    let s = stats(
        "mov.b32 %r3, 0; mov.b32 %r4, 0; mov.b32 %r5, 0; mov.b32 %r6, 0;
         mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r3, %r4, %r5, %r6}, {%r3, %r4}, {%r3}, {%r3, %r4, %r5, %r6};",
    );
    assert_eq!((s.total.mma, s.total.wgmma, s.total.tcgen05_mma), (1, 0, 0));
}

/// Warp 0 waits for what warp 1 does last, in loops of several forms.
#[test]
fn polls_are_counted_apart() {
    let waits = [
        "P: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra P;",
        "P: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @%p2 bra Q; bra P; Q:",
        "P: mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra P;",
        "P: mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r5], 0; @%p2 bra Q; nanosleep.u32 20; bra P; Q:",
    ];
    let loads = [
        "P: ld.acquire.gpu.global.u32 %r6, [%rd0]; setp.ne.u32 %p2, %r6, 1; @%p2 bra P;",
        "P: ld.acquire.gpu.global.u32 %r6, [%rd0]; setp.eq.u32 %p2, %r6, 1; @%p2 bra Q; bra P; Q:",
        "P: atom.global.or.b32 %r6, [%rd0], 0; setp.ne.u32 %p2, %r6, 1; @%p2 bra P;",
    ];
    for (k, wait) in waits.iter().chain(&loads).enumerate() {
        let body = format!(
            "mov.u32 %r5, 4096; add.u32 %r5, %r5, %r1; setp.eq.u32 %p1, %r0, 0;
             @%p1 mbarrier.init.shared::cta.b64 [%r5], 32;
             bar.sync 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra SECOND; {wait} bra END;
             SECOND: mov.u32 %r7, 0; L: add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, 5000; @%p3 bra L;
             mbarrier.arrive.shared::cta.b64 _, [%r5]; setp.eq.u32 %p1, %r0, 32;
             @%p1 st.release.gpu.global.u32 [%rd0], 1;
             END:"
        );
        let (mut first, mut polls) = (None, 0);
        for mode in [Mode::Fast, Mode::Latest(1), Mode::Latest(2), Mode::Latest(3), Mode::Random(5)] {
            let mut s = counted(&body, 64, 1, mode);
            polls += s.polls;
            s.polls = 0;
            s.lines.iter_mut().for_each(|l| l.polls = 0);
            assert_eq!(s.total.waits, u64::from(k < waits.len()), "{wait}");
            if matches!(mode, Mode::Random(_)) {
                // Lanes may leave a poll at different times.
                continue;
            }
            let first = first.get_or_insert_with(|| s.clone());
            assert_eq!(s, *first, "{wait} {mode:?}");
        }
        assert!(polls != 0, "{wait}");
    }
}

/// A loop that happens to have one access in it is no poll.
#[test]
fn loops_with_work_are_no_polls() {
    let s = stats(
        "mov.u32 %r3, 0; L: red.global.add.u32 [%rd0], 1; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 10; @%p1 bra L;",
    );
    assert_eq!((s.atomics, s.polls), (requests(10, 10, 40), 0));
    // A search goes on to other words.
    let s = stats(
        "mov.u64 %rd2, %rd0; add.u64 %rd3, %rd0, 64; L: ld.volatile.global.u32 %r3, [%rd2]; add.u64 %rd2, %rd2, 4;
         setp.lt.u64 %p1, %rd2, %rd3; setp.eq.and.u32 %p1, %r3, 0, %p1; @%p1 bra L;",
    );
    assert_eq!((s.loads, s.polls), (requests(16, 16, 64), 0));
}

#[test]
fn lines_add_up() {
    let s = counted(
        "mad.wide.u32 %rd1, %r0, 4, %rd0;
         mad.lo.u32 %r2, %r0, 8, %r1;
         ld.global.u32 %r3, [%rd1];
         st.shared.u32 [%r2], %r3; st.global.u32 [%rd1+4], %r3;",
        64,
        2,
        Mode::Latest(1),
    );
    let all: Vec<&Line> = s.lines.iter().filter(|l| l.kind != Kind::Other).collect();
    let of = |l: &Line| (l.line, l.kind, l.executed, l.global, l.shared);
    assert_eq!(
        all.into_iter().map(of).collect::<Vec<_>>(),
        [
            (15, Kind::Load, 4, requests(4, 16, 512), Shared::default()),
            (16, Kind::Store, 4, Requests::default(), shared(4, 8, 4)),
            // A word on: five sectors.
            (16, Kind::Store, 4, requests(4, 20, 512), Shared::default()),
        ]
    );
    assert_eq!((s.loads, s.stores, s.shared), (requests(4, 16, 512), requests(4, 20, 512), shared(4, 8, 4)));
    assert_eq!(s.lines.iter().map(|l| l.executed).sum::<u64>(), s.total.instructions);
    assert!(s.lines[2].text.starts_with("mov.u32 %r1, tile"), "{}", s.lines[2].text);
}
