//! Wrong kernels made from right ones: each mutation must be found, by the detector that is meant to.

use crate::common;

use common::*;
use tileas_emu::*;

/// Name, text, replacement, which occurrence, codes that may report it (`result`: a wrong matrix).
type Mutation = (&'static str, &'static str, &'static str, usize, &'static [&'static str]);

const BLACKWELL: &[Mutation] = &[
    (
        "producer waits for the wrong parity",
        "xor.b32    %phx, %ph, 1;",
        "mov.u32    %phx, %ph;",
        0,
        &["deadlock", "race"],
    ),
    (
        "MMA waits for the wrong parity of the accumulator",
        "xor.b32    %aphx, %aph, 1;",
        "mov.u32    %aphx, %aph;",
        0,
        &["deadlock", "race"],
    ),
    ("too few expected bytes", "[%fullb], 49152;", "[%fullb], 49024;", 0, &["barrier.tx"]),
    ("too many expected bytes", "[%fullb], 49152;", "[%fullb], 49280;", 0, &["deadlock"]),
    ("K step of operand A", "add.s64    %da1, %da0, 2;", "add.s64    %da1, %da0, 4;", 0, &["result"]),
    (
        "K step of operand B leaves the row",
        "add.s64    %db3, %db0, 6;",
        "add.s64    %db3, %db0, 8;",
        0,
        &["layout"],
    ),
    (
        "stage step of operand B",
        "shl.b32    %t0, %s, 11; ",
        "shl.b32    %t0, %s, 10; ",
        0,
        &["race", "undefined"],
    ),
    (
        "accumulator released before it is read",
        "setp.ne.u32 %plast, %c, 3;",
        "setp.ne.u32 %plast, %c, 2;",
        0,
        &["race", "tcgen05.fence"],
    ),
    (
        "accumulator released before wait::ld",
        "tcgen05.wait::ld.sync.aligned;\n    setp.ne.u32 %plast, %c, 3;",
        "setp.ne.u32 %plast, %c, 3;\n @!%plast mbarrier.arrive.release.cta.shared::cta.b64 _, [%eb+80];\n tcgen05.wait::ld.sync.aligned;\n setp.ne.u32 %plast, %c, 9;",
        0,
        &["tcgen05.fence", "race"],
    ),
    ("no wait::ld", "tcgen05.wait::ld.sync.aligned;", "", 0, &["register.busy"]),
    ("no wait for the accumulator", "@!%pw bra E_WAIT;", "", 0, &["undefined", "race"]),
    ("no wait for a filled stage", "@!%pw bra M_WAIT;", "", 0, &["race", "undefined"]),
    ("no wait for a free stage", "@!%pw bra P_WAIT;", "", 0, &["race", "barrier.arrive"]),
    ("no wait for a drained accumulator", "@!%pw bra M_WAITT;", "", 0, &["race"]),
    ("no wait_group.read before reuse", "@%pel cp.async.bulk.wait_group.read 1;", "", 0, &["race"]),
    (
        "wait_group.read allows two groups",
        "cp.async.bulk.wait_group.read 1;",
        "cp.async.bulk.wait_group.read 2;",
        0,
        &["race"],
    ),
    ("no wait_group.read at the end", "@%pel cp.async.bulk.wait_group.read 0;", "", 0, &["exit.store"]),
    ("no proxy fence", "fence.proxy.async.shared::cta;", "", 0, &["proxy"]),
    (
        "proxy fence by one lane only",
        "fence.proxy.async.shared::cta;",
        "@%pel fence.proxy.async.shared::cta;",
        0,
        &["proxy"],
    ),
    (
        "no warp barrier between fence and store",
        "fence.proxy.async.shared::cta;                        // every writing lane\n    bar.warp.sync 0xffffffff;\n    @!%pel bra E_NEXT;",
        "@!%pel bra E_NEXT;\n",
        0,
        &["proxy", "race"],
    ),
    (
        "no warp barrier before the store",
        "// every writing lane\n    bar.warp.sync 0xffffffff;",
        "// every writing lane",
        0,
        &["race"],
    ),
    (
        "lane field of the TMEM address",
        "shl.b32    %t0, %warp, 21;",
        "shl.b32    %t0, %warp, 20;",
        0,
        &["layout"],
    ),
    ("lane field missing", "add.u32    %tb, %taddr, %t0;", "mov.u32    %tb, %taddr;", 0, &["layout"]),
    ("arrival count too high", "[%bar+80], 128;", "[%bar+80], 129;", 0, &["deadlock"]),
    (
        "arrival count too low",
        "[%bar+88], 128;",
        "[%bar+88], 64;",
        0,
        &["deadlock", "barrier.parity", "race"],
    ),
    (
        "stage commit dropped",
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%t0];   // frees the stage",
        "",
        0,
        &["deadlock"],
    ),
    (
        "accumulator commit dropped",
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%t0];   // accumulator complete",
        "",
        0,
        &["deadlock"],
    ),
    (
        "accumulator phase never flips",
        "@%pwrap xor.b32 %aph, %aph, 1;",
        "",
        0,
        &["race", "barrier.parity", "deadlock"],
    ),
    (
        "ring phase never flips in the MMA",
        "@%pwrap xor.b32 %ph, %ph, 1;",
        "",
        1,
        &["deadlock", "barrier.parity", "race"],
    ),
    ("first MMA accumulates", "setp.ne.u32 %pacc, %kb, 0;", "setp.ne.u32 %pacc, %kb, 99;", 0, &["undefined"]),
    ("later MMA overwrites", "%idesc, 1;", "%idesc, 0;", 1, &["result"]),
    (
        "descriptor without its constant bits",
        "mov.u32    %dhi, 0x40004040;",
        "mov.u32    %dhi, 0x40000040;",
        0,
        &["layout"],
    ),
    (
        "descriptor with the wrong stride",
        "mov.u32    %dhi, 0x40004040;",
        "mov.u32    %dhi, 0x40004020;",
        0,
        &["result"],
    ),
    (
        "descriptor with the wrong swizzle",
        "mov.u32    %dhi, 0x40004040;",
        "mov.u32    %dhi, 0x80004040;",
        0,
        &["layout"],
    ),
    ("instruction descriptor with f16 types", "0x08400490;", "0x08400010;", 0, &["result"]),
    ("instruction descriptor with N = 128", "0x08400490;", "0x08200490;", 0, &["undefined"]),
    (
        "A ring overlaps the B ring",
        "add.u32    %sB, %sB, 65536;",
        "add.u32    %sB, %sB, 49152;",
        0,
        &["race"],
    ),
    (
        "swizzle of the epilogue",
        "xor.b32    %addr, %xo, 48;",
        "add.u32    %addr, %xo, 48;",
        0,
        &["undefined", "race", "race.lanes"],
    ),
    (
        "half of the columns swapped",
        "cvt.rn.bf16x2.f32 %w5, %v11, %v10;",
        "cvt.rn.bf16x2.f32 %w5, %v10, %v11;",
        0,
        &["result"],
    ),
    ("store column", "shl.b32    %nco, %c, 6;", "shl.b32    %nco, %c, 5;", 0, &["result"]),
    (
        "no reconvergence before the final barrier",
        "JOIN:\n    bar.warp.sync 0xffffffff;",
        "JOIN:\n",
        0,
        &["divergent"],
    ),
    (
        "final barrier count",
        "bar.sync 0;\n    setp.ne.u32 %p, %warp, 5;",
        "bar.sync 0, 160;\n    setp.ne.u32 %p, %warp, 5;",
        0,
        &["race", "barrier.named"],
    ),
    (
        "no barrier after the allocation",
        "bar.sync 0;\n    tcgen05.fence::after_thread_sync;\n    ld.shared",
        "ld.shared",
        0,
        &["undefined", "race"],
    ),
    (
        "TMEM not deallocated",
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %taddr, 512;",
        "",
        0,
        &["tmem.leak"],
    ),
    ("TMEM allocation too small", "[%bar+96], 512;", "[%bar+96], 256;", 0, &["tmem.bounds"]),
    (
        "barrier initialised by nobody",
        "mbarrier.init.shared::cta.b64 [%bar+40], 1;",
        "",
        0,
        &["barrier.init"],
    ),
    ("all lanes issue the MMA", "MMA:\n    @!%pel bra JOIN;", "MMA:\n", 0, &["divergent"]),
    ("store not committed", "cp.async.bulk.commit_group;", "", 0, &["race"]),
    (
        "shared memory overrun",
        "add.u32  %bar, %base, 229376;",
        "add.u32  %bar, %base, 230480;",
        0,
        &["bounds"],
    ),
    (
        "no fence after the wait for the accumulator",
        "bar.warp.sync 0xffffffff;\n    tcgen05.fence::after_thread_sync;",
        "bar.warp.sync 0xffffffff;",
        0,
        &["tcgen05.fence"],
    ),
    (
        "no fence before the release of the accumulator",
        "tcgen05.fence::before_thread_sync;                   // all reads",
        "// all reads",
        0,
        &["tcgen05.fence"],
    ),
    ("no wait for the last releases", "@!%pw bra P_DRAIN;", "", 0, &["exit.signal", "exit.tensor"]),
    ("no fence after the initialisation", "fence.mbarrier_init.release.cluster;", "", 0, &["barrier.init"]),
    // The fence after the wait for the filled stage covers it.
    (
        "no fence after the wait for a drained accumulator",
        "@!%pw bra M_WAITT;\n    tcgen05.fence::after_thread_sync;",
        "@!%pw bra M_WAITT;",
        0,
        &["none"],
    ),
];

const HOPPER: &[Mutation] = &[
    ("no wgmma.fence", "wgmma.fence.sync.aligned;", "", 0, &["wgmma.fence"]),
    ("accumulator read while in flight", "wgmma.wait_group.sync.aligned 0;", "", 0, &["register.busy"]),
    (
        "stage released one block early",
        "wgmma.wait_group.sync.aligned 1; ",
        "wgmma.wait_group.sync.aligned 2; ",
        0,
        &["undefined", "race"],
    ),
    ("no wait for a filled stage", "@!%pw bra C_WAIT;", "", 0, &["race", "undefined"]),
    ("no wait for a free stage", "@!%pw bra P_WAIT;", "", 0, &["race"]),
    ("empty barrier counts one warp less", "[%bar+40], 8;", "[%bar+40], 7;", 0, &["race", "barrier.arrive"]),
    ("no proxy fence", "fence.proxy.async.shared::cta;", "", 0, &["proxy"]),
    ("no barrier before the store", "bar.sync   %bid, 128;\n    @!%pst", "@!%pst", 0, &["race"]),
    ("no barrier before the staging is written", "bar.sync   %bid, 128;\n    cvt", "cvt", 0, &["race"]),
    (
        "no wait for the stores",
        "@%pst cp.async.bulk.wait_group.read 0;               // previous",
        "// previous",
        0,
        &["race"],
    ),
    // The barrier after the next poll brings the lanes together.
    ("no warp barrier after the store", "C_NEXT:\n    bar.warp.sync 0xffffffff;", "C_NEXT:", 0, &["none"]),
    (
        "no warp barrier after a poll",
        "@!%pw bra C_WAIT;\n    bar.warp.sync 0xffffffff;",
        "@!%pw bra C_WAIT;",
        0,
        &["divergent"],
    ),
    ("no fence after the initialisation", "fence.mbarrier_init.release.cluster;", "", 0, &["barrier.init"]),
    ("K step", "add.s64    %db2, %db0, 4;", "add.s64    %db2, %db0, 2;", 0, &["result"]),
    (
        "both consumers use one barrier",
        "add.u32    %bid, %cw, 1;",
        "mov.u32    %bid, 1;",
        0,
        &["race", "barrier.named", "deadlock"],
    ),
    (
        "too many registers",
        "setmaxnreg.inc.sync.aligned.u32 232;",
        "setmaxnreg.inc.sync.aligned.u32 240;",
        0,
        &["deadlock"],
    ),
    ("scale-d always", "%da0, %db0, %pacc, 1, 1, 0, 0;", "%da0, %db0, 1, 1, 1, 0, 0;", 0, &["undefined"]),
];

const PAIRS: &[Mutation] = &[
    (
        "no barrier before the first signal",
        "barrier.cluster.arrive.relaxed.aligned;              // the barriers of both CTAs are ready\n    barrier.cluster.wait.acquire.aligned;                // the barriers of both CTAs are ready",
        "bar.sync 0;",
        0,
        &["barrier.init"],
    ),
    ("no fence after the initialisation", "fence.mbarrier_init.release.cluster;", "", 0, &["barrier.init"]),
    (
        "consumers of one CTA counted",
        "[%bar+32], 16;",
        "[%bar+32], 8;",
        0,
        &["race", "barrier.parity", "undefined", "barrier.arrive"],
    ),
    (
        "producer's wait acquires nothing",
        "try_wait.parity.acquire.cluster",
        "try_wait.parity.relaxed.cluster",
        0,
        &["race", "barrier.parity"],
    ),
    (
        "consumers release nothing",
        "mbarrier.arrive.release.cluster.shared::cluster",
        "mbarrier.arrive.relaxed.cluster.shared::cluster",
        1,
        &["race", "barrier.parity"],
    ),
    (
        "the other CTA's slot is not freed",
        "mapa.shared::cluster.u32 %t0, %eprev, 1;",
        "mapa.shared::cluster.u32 %t0, %eprev, 0;",
        0,
        &["deadlock", "undefined", "barrier.arrive", "race", "barrier.parity"],
    ),
    ("half of B for one CTA", "mov.u16  %both, 3;", "mov.u16  %both, 1;", 0, &["deadlock", "barrier.tx"]),
    ("a CTA that the cluster lacks", "mov.u16  %both, 3;", "mov.u16  %both, 5;", 0, &["cluster.mask"]),
    ("the same half twice", "shl.b32    %t1, %rank, 13; ", "mov.u32    %t1, 0; ", 0, &["race", "undefined"]),
    (
        "the other half's rows",
        "shl.b32    %t1, %rank, 6;",
        "xor.b32    %t1, %rank, 1; shl.b32 %t1, %t1, 6;",
        0,
        &["result"],
    ),
    ("only A expected", "[%fullb], 32768;", "[%fullb], 24576;", 0, &["barrier.tx", "race", "undefined"]),
    (
        "no barrier at the end",
        "barrier.cluster.arrive.release.aligned;              // neither ends while the other signals it\n    barrier.cluster.wait.acquire.aligned;                // neither ends while the other signals it",
        "",
        0,
        &["exit.cluster"],
    ),
];

fn mutate(text: &str, old: &str, new: &str, which: usize) -> String {
    let parts: Vec<&str> = text.split(old).collect();
    assert!(which + 1 < parts.len(), "text of the mutation not found: {old}");
    format!("{}{new}{}", parts[..=which].join(old), parts[which + 1..].join(old))
}

fn tries() -> Vec<RunOptions> {
    let mut v = vec![all(Mode::Random(1)), all(Mode::Latest(1))];
    v.extend((2..7).map(|s| all(Mode::Random(s))));
    v.push(all(Mode::Fast));
    v
}

/// What is damaged.
#[derive(Copy, Clone)]
enum Base {
    Blackwell,
    Hopper,
    Pairs,
}

/// Code of the first fault, or `result`, or `none`.
fn outcome(text: &str, base: Base, o: &RunOptions) -> (&'static str, String) {
    let p = match Program::parse(text) {
        Ok(p) => p,
        Err(e) => return ("parse", e[0].to_string()),
    };
    let mut mem = Memory::new();
    let (l, c, want) = match base {
        Base::Hopper => gemm_hand(&mut mem, 136, 136, 328, 1, true),
        Base::Blackwell => gemm_hand(&mut mem, 264, 264, 328, 1, false),
        Base::Pairs => gemm_pairs(&mut mem, 136, 136, 328, 2),
    };
    match Machine::run(&p, &l, &mut mem, o, &mut NoTrace) {
        Err(f) => (f.code, f.to_string()),
        Ok(_) => match same(&get(&mem, &c), &want, c.format) {
            Ok(()) => ("none", String::new()),
            Err(e) => ("result", e),
        },
    }
}

fn check(base: Base, table: &[Mutation]) {
    let whole = match base {
        Base::Blackwell => include_str!("data/gemm_sm100a.ptx"),
        Base::Hopper => include_str!("data/gemm_sm90a.ptx"),
        Base::Pairs => include_str!("data/gemm_cluster_sm90a.ptx"),
    };
    let mut bad = Vec::new();
    for (name, old, new, which, codes) in table {
        let text = mutate(whole, old, new, *which);
        let mut got = ("none", String::new());
        for o in tries() {
            got = outcome(&text, base, &o);
            if got.0 != "none" {
                break;
            }
        }
        if !codes.contains(&got.0) {
            bad.push(format!("{name}: {} {}", got.0, got.1.lines().next().unwrap_or("")));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn blackwell() {
    check(Base::Blackwell, BLACKWELL);
}

#[test]
fn hopper() {
    check(Base::Hopper, HOPPER);
}

#[test]
fn pairs() {
    check(Base::Pairs, PAIRS);
}
