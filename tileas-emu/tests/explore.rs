//! Exhaustive search on tiny kernels: right ones have one result in all orders, wrong ones fail in some.

use crate::common;

use common::*;
use tileas_emu::num::format::F32;
use tileas_emu::*;

const HEAD: &str =
    ".version 8.6\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n";

/// A kernel over pointers `x` and `y`, with warp number `%w` and leader predicate `%pe`.
fn kernel(body: &str) -> Program {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 x, .param .u64 y)\n{{\n.reg .pred %p<16>, %pe;\n.reg .b32 %r<32>, %t, %w, %l, %s;\n.reg .b64 %rd<8>;\n\
         ld.param.u64 %rd0, [x];\nld.param.u64 %rd1, [y];\nmov.u32 %t, %tid.x;\nshr.u32 %w, %t, 5;\nand.b32 %l, %t, 31;\n\
         setp.eq.u32 %pe, %l, 0;\nmov.u32 %s, smem;\n{body}\nret;\n}}\n"
    );
    Program::parse(&text).unwrap_or_else(|e| panic!("{}", e[0]))
}

/// Explores a kernel of `warps` warps; the sum of runs and how often each value of `y[0]` came out.
fn search(body: &str, warps: u32, detectors: Detectors) -> Result<(Explored, Vec<(f32, u32)>), Fault> {
    search_cluster(body, warps, 1, detectors)
}

/// The same for a cluster of so many CTAs.
fn search_cluster(
    body: &str,
    warps: u32,
    ctas: u32,
    detectors: Detectors,
) -> Result<(Explored, Vec<(f32, u32)>), Fault> {
    let p = kernel(body);
    let mut mem = Memory::new();
    let x = put(&mut mem, &F32, 8, 32, |i| i as f32 + 1.0);
    let y = put(&mut mem, &F32, 8, 32, |_| 0.0);
    let args = vec![Arg::u64(mem.address(x.id)), Arg::u64(mem.address(y.id))];
    let grid = [ctas, 1, 1];
    let block = [32 * warps, 1, 1];
    let l = Launch { grid, cluster: Some(grid), block, dynamic_smem: 4096, args, ..Launch::default() };
    let o = RunOptions { detectors, ..all(Mode::Fast) };
    let mut seen: Vec<(f32, u32)> = Vec::new();
    let r = explore(&p, &l, &mem, &o, Limits::default(), &mut |m| {
        let v = get(m, &y)[0];
        match seen.iter_mut().find(|s| s.0 == v) {
            Some(s) => s.1 += 1,
            None => seen.push((v, 1)),
        }
        Ok(())
    })?;
    seen.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok((r, seen))
}

const MESSAGE: &str = "
    setp.eq.u32 %p0, %w, 0;
    @!%p0 bra INIT;
    @%pe mbarrier.init.shared::cta.b64 [%s], 1;
    @%pe fence.mbarrier_init.release.cluster;
INIT:
    bar.warp.sync -1;
    bar.sync 0;
    setp.eq.u32 %p0, %w, 0;
    @!%p0 bra READ;
    mov.u32 %r1, 7;
    @%pe st.shared.u32 [%s+64], %r1;
    bar.warp.sync -1;
    @%pe mbarrier.arrive.shared::cta.b64 _, [%s];
    ret;
READ:
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s], 0;
    @!%p1 bra WAIT;
    ld.shared.u32 %r2, [%s+64];
    cvt.rn.f32.u32 %r3, %r2;
    @%pe st.global.f32 [%rd1], %r3;";

#[test]
fn message_passing_has_one_result() {
    // `cvt` needs a float register; b32 holds it too.
    let (r, seen) = search(MESSAGE, 2, Detectors::ALL).unwrap_or_else(|f| panic!("{f}"));
    assert!(r.exhausted && r.complete >= 1, "{r:?}");
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].0, 7.0);
}

#[test]
fn message_without_wait_is_a_race_and_has_two_results() {
    let wrong = MESSAGE
        .replace("    @!%p1 bra WAIT;\n", "")
        .replace("@%pe st.shared.u32 [%s+64], %r1;", "@%pe st.shared.u32 [%s+64], %r1; bar.warp.sync -1;");
    assert_eq!(search(&wrong, 2, Detectors::ALL).unwrap_err().code, "race");
    let zero = wrong.replace(
        "    bar.sync 0;\n",
        "    mov.u32 %r9, 0; @%pe st.shared.u32 [%s+64], %r9; bar.warp.sync -1; bar.sync 0;\n",
    );
    let (r, seen) = search(&zero, 2, Detectors::NONE).unwrap_or_else(|f| panic!("{f}"));
    assert!(r.exhausted, "{r:?}");
    assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), [0.0, 7.0]);
}

#[test]
fn independent_steps_are_not_permuted() {
    // Each warp works on its own word: one order stands for all.
    let body = "
        shl.b32 %r1, %w, 2; add.u32 %r1, %s, %r1;
        mov.u32 %r2, 1;
        @%pe st.shared.u32 [%r1], %r2;
        @%pe ld.shared.u32 %r3, [%r1];
        @%pe st.shared.u32 [%r1], %r2;";
    let (r, _) = search(body, 3, Detectors::ALL).unwrap_or_else(|f| panic!("{f}"));
    assert!(r.exhausted);
    assert_eq!(r.complete, 1, "{r:?}");
}

#[test]
fn conflicting_steps_are_permuted() {
    // Three unordered writers of one word: the last one wins, each can be last.
    let body = "
        add.u32 %r1, %w, 1;
        cvt.rn.f32.u32 %r2, %r1;
        @%pe st.shared.f32 [%s], %r2;
        bar.warp.sync -1;
        bar.sync 0;
        @%pe ld.shared.f32 %r3, [%s];
        setp.eq.and.u32 %p1, %w, 0, %pe;
        @%p1 st.global.f32 [%rd1], %r3;";
    let (r, seen) = search(body, 3, Detectors::NONE).unwrap_or_else(|f| panic!("{f}"));
    assert!(r.exhausted);
    assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), [1.0, 2.0, 3.0]);
    assert_eq!(search(body, 3, Detectors::ALL).unwrap_err().code, "race");
}

#[test]
fn a_lost_wakeup_is_found() {
    // Two named barriers taken in opposite order.
    let body = "
        setp.eq.u32 %p0, %w, 0;
        @%p0 bra OTHER;
        bar.sync 1, 64; bar.sync 2, 64; ret;
    OTHER:
        bar.sync 2, 64; bar.sync 1, 64;";
    let f = search(body, 2, Detectors::ALL).unwrap_err();
    assert_eq!(f.code, "deadlock");
    assert!(f.message.contains("barrier 1") && f.message.contains("barrier 2"), "{f}");
}

const NEIGHBOURS: &str = "
    mov.u32 %r9, 0;
    @%pe st.shared.u32 [%s+64], %r9;
    bar.warp.sync -1;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mov.u32 %r1, %cluster_ctarank;
    setp.eq.and.u32 %p0, %r1, 0, %pe;
    setp.eq.and.u32 %p1, %r1, 1, %pe;
    mapa.shared::cluster.u32 %r2, %s, 1;
    mov.u32 %r3, 7;
    @%p0 st.shared::cluster.u32 [%r2+64], %r3;
    bar.warp.sync -1;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    @%p1 ld.shared.u32 %r4, [%s+64];
    cvt.rn.f32.u32 %r5, %r4;
    @%p1 st.global.f32 [%rd1], %r5;";

#[test]
fn a_store_to_the_neighbour_arrives_before_the_barrier_ends() {
    let (r, seen) = search_cluster(NEIGHBOURS, 1, 2, Detectors::ALL).unwrap_or_else(|f| panic!("{f}"));
    assert!(r.exhausted && r.complete >= 2, "{r:?}");
    assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), [7.0]);
}

#[test]
fn a_load_before_the_barrier_may_come_first() {
    let early = NEIGHBOURS.replace(
        "bar.warp.sync -1;\n    barrier.cluster.arrive.release.aligned;\n    barrier.cluster.wait.acquire.aligned;\n    @%p1 ld",
        "@%p1 ld",
    );
    let early = format!(
        "{early}\nbar.warp.sync -1;\nbarrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;"
    );
    assert_eq!(search_cluster(&early, 1, 2, Detectors::ALL).unwrap_err().code, "race");
    let (r, seen) = search_cluster(&early, 1, 2, Detectors::NONE).unwrap_or_else(|f| panic!("{f}"));
    assert!(r.exhausted, "{r:?}");
    assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), [0.0, 7.0]);
}
