//! Clusters: right kernels give one result under all timings, and each damage is found by the detector that is meant to.

use crate::common::{self, clusters as kernels};

use common::*;
use kernels::*;
use tileas_emu::*;

/// Runs a kernel; the code of the first fault, `result` or `none`, and the fault.
fn outcome(text: &str, name: &str, o: &RunOptions) -> (&'static str, String) {
    let p = match Program::parse(text) {
        Ok(p) => p,
        Err(e) => return ("parse", e[0].to_string()),
    };
    let mut case = Case::new(name);
    let o = RunOptions { max_steps: 100_000, ..*o };
    match Machine::run(&p, &case.launch, &mut case.memory, &o, &mut NoTrace) {
        Err(f) => (f.code, f.to_string()),
        Ok(r) if r.ctas != case.launch.grid[0] => ("result", format!("{} CTAs", r.ctas)),
        Ok(_) => match case.right(&case.memory) {
            Ok(()) => ("none", String::new()),
            Err(e) => ("result", e),
        },
    }
}

fn modes() -> Vec<RunOptions> {
    let mut v = vec![none(Mode::Fast), all(Mode::Fast)];
    v.extend((1..4).map(|s| all(Mode::Latest(s))));
    v.extend((0..12).map(|s| all(Mode::Random(s))));
    // Two clusters at a time.
    v.extend((0..4).map(|s| RunOptions { resident: 5, ..all(Mode::Random(s)) }));
    v
}

#[test]
fn right_kernels() {
    for name in NAMES {
        let text = entry(name);
        for o in modes() {
            let (code, text) = outcome(&text, name, &o);
            assert_eq!(code, "none", "{name} {o:?}: {text}");
        }
    }
}

/// The kernel that has run on an H100.
#[test]
fn pairs() {
    let p =
        Program::parse(include_str!("data/cluster_pairs_sm90a.ptx")).unwrap_or_else(|e| panic!("{}", e[0]));
    for o in modes() {
        let mut mem = Memory::new();
        let x = mem.alloc((0..1024).flat_map(|i| word(i).to_le_bytes()).collect());
        let y = mem.alloc(vec![0; 4096]);
        let args = vec![Arg::u64(mem.address(x)), Arg::u64(mem.address(y))];
        let l = Launch { grid: [8, 1, 1], block: [128, 1, 1], args, ..Launch::default() };
        Machine::run(&p, &l, &mut mem, &o, &mut NoTrace).unwrap_or_else(|f| panic!("{o:?}: {f}"));
        let want: Vec<u8> = (0..1024).flat_map(|i| word(i ^ 128).to_le_bytes()).collect();
        assert_eq!(mem.bytes(y), want, "{o:?}");
    }
}

#[test]
fn special_registers_and_shapes() {
    let p = Program::parse(&entry("places")).unwrap_or_else(|e| panic!("{}", e[0]));
    for cluster in [None, Some([1, 1, 1]), Some([2, 1, 1]), Some([2, 2, 2]), Some([4, 2, 2]), Some([1, 4, 1])]
    {
        let grid = [4, 4, 2];
        let mut mem = Memory::new();
        let y = mem.alloc(vec![0; 32 * 64]);
        let args = vec![Arg::u64(mem.address(y)), Arg::u64(mem.address(y)), Arg::u32(0)];
        let l = Launch { grid, cluster, block: [32, 1, 1], args, ..Launch::default() };
        Machine::run(&p, &l, &mut mem, &all(Mode::Random(1)), &mut NoTrace)
            .unwrap_or_else(|f| panic!("{cluster:?}: {f}"));
        let c = cluster.unwrap_or([1; 3]);
        let mut want: Vec<u32> = Vec::new();
        for (z, y, x) in (0..2).flat_map(|z| (0..4).flat_map(move |y| (0..4).map(move |x| (z, y, x)))) {
            let at = [x, y, z];
            want.extend((0..3).map(|k| at[k] / c[k]));
            want.extend((0..3).map(|k| grid[k] / c[k]));
            let r: Vec<u32> = (0..3).map(|k| at[k] % c[k]).collect();
            want.extend(&r);
            want.extend(c);
            want.extend([r[0] + c[0] * (r[1] + c[1] * r[2]), c.iter().product()]);
            want.extend([u32::from(cluster.is_some()); 2]);
        }
        let got = words(mem.bytes(y));
        assert_eq!(got, want, "{cluster:?}");
    }
}

#[test]
fn launches_that_are_refused() {
    let places = entry("places");
    let required = places.replace(".reqntid", ".reqnctapercluster 2, 1, 1\n.reqntid");
    let explicit = places.replace(".reqntid", ".explicitcluster\n.reqntid");
    let most = places.replace(".reqntid", ".maxclusterrank 4\n.reqntid");
    let run = |text: &str, grid: [u32; 3], cluster: Option<[u32; 3]>| {
        let p = Program::parse(text).unwrap_or_else(|e| panic!("{}", e[0]));
        let mut mem = Memory::new();
        let y = mem.alloc(vec![0; 64 * 64]);
        let args = vec![Arg::u64(mem.address(y)), Arg::u64(mem.address(y)), Arg::u32(0)];
        let l = Launch { grid, cluster, block: [32, 1, 1], args, ..Launch::default() };
        Machine::run(&p, &l, &mut mem, &all(Mode::Fast), &mut NoTrace).map_or_else(|f| f.code, |_| "none")
    };
    for (text, grid, cluster, code) in [
        (&places, [16, 2, 1], Some([16, 1, 1]), "none"),
        (&places, [32, 1, 1], Some([32, 1, 1]), "launch"),
        (&places, [16, 16, 1], Some([16, 16, 1]), "launch"),
        (&places, [4, 1, 1], Some([0, 1, 1]), "launch"),
        (&places, [3, 1, 1], Some([2, 1, 1]), "launch"),
        (&places, [2, 3, 1], Some([2, 2, 1]), "launch"),
        (&required, [2, 1, 1], None, "none"),
        (&required, [2, 1, 1], Some([2, 1, 1]), "none"),
        (&required, [2, 1, 1], Some([1, 1, 1]), "launch"),
        (&required, [3, 1, 1], None, "launch"),
        (&explicit, [2, 1, 1], None, "launch"),
        (&explicit, [2, 1, 1], Some([2, 1, 1]), "none"),
        (&most, [4, 1, 1], Some([4, 1, 1]), "none"),
        (&most, [8, 1, 1], Some([8, 1, 1]), "launch"),
    ] {
        assert_eq!(run(text, grid, cluster), code, "{grid:?} {cluster:?}");
    }
}

const READY: &str = "barriers are there";
const EARLY: &str = "nobody ends early";

/// Kernel, what is damaged, text, replacement, codes that may report it. All occurrences are replaced.
type Damage = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

const DAMAGE: &[Damage] = &[
    ("ring", "no barrier before the first remote arrival", READY, "", &["barrier.init"]),
    (
        "ring",
        "no fence after the initialisation",
        "fence.mbarrier_init.release.cluster;",
        "",
        &["barrier.init"],
    ),
    ("ring", "half of the bytes expected", "[%fb], 128;", "[%fb], 64;", &["barrier.tx", "undefined"]),
    ("ring", "more bytes expected than come", "[%fb], 128;", "[%fb], 192;", &["deadlock"]),
    ("ring", "no barrier at the end", EARLY, "", &["exit.cluster", "exit.load"]),
    (
        "ring",
        "a relaxed arrival",
        ".release.cluster.shared::cluster",
        ".relaxed.cluster.shared::cluster",
        &["race", "barrier.parity"],
    ),
    (
        "ring",
        "a relaxed wait",
        ".acquire.cluster.shared::cta",
        ".relaxed.cluster.shared::cta",
        &["race", "barrier.parity"],
    ),
    ("ring", "no wait for free slots", "@!%p4 bra EMPTY;", "", &["race", "barrier.arrive", "barrier.parity"]),
    ("ring", "no wait for full slots", "@!%p4 bra FULL;", "", &["undefined", "race"]),
    ("ring", "a CTA that the cluster lacks", "mov.u16 %mask, 3;", "mov.u16 %mask, 7;", &["cluster.mask"]),
    ("ring", "no CTA at all", "mov.u16 %mask, 3;", "mov.u16 %mask, 0;", &["cluster.mask"]),
    ("ring", "a copy for one CTA", "mov.u16 %mask, 3;", "mov.u16 %mask, 1;", &["deadlock", "barrier.tx"]),
    (
        "ring",
        "no multicast",
        ".multicast::cluster [%slot], [%at], 64, [%fb], %mask;",
        " [%slot], [%at], 64, [%fb];",
        &["deadlock"],
    ),
    ("ring", "no proxy fence", "fence.proxy.async.shared::cta;", "", &["proxy"]),
    (
        "ring",
        "no barrier of the warp before slots are freed",
        "fence.proxy.async.shared::cta;\n    bar.warp.sync -1;",
        "fence.proxy.async.shared::cta;",
        &["race", "proxy"],
    ),
    (
        "ring",
        "slots freed in the own CTA only",
        "setp.lt.u32 %p5, %l, 2;",
        "setp.eq.u32 %p5, %l, %rank;",
        &["deadlock"],
    ),
    (
        "ring",
        "slots freed too often",
        "setp.lt.u32 %p5, %l, 2;",
        "setp.lt.u32 %p5, %l, 1;",
        &["deadlock", "barrier.arrive", "race", "barrier.parity"],
    ),
    (
        "ring",
        "a rank that the cluster lacks",
        "setp.lt.u32 %p5, %l, 2;",
        "setp.lt.u32 %p5, %l, 3;",
        &["cluster.rank"],
    ),
    (
        "ring",
        "data for one CTA, the signal for another",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%slot], [%at], 64, [%fb], %mask;",
        "mapa.shared::cluster.u32 %slot, %slot, 1; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%slot], [%at], 64, [%fb];",
        &["cluster.signal"],
    ),
    (
        "reduce",
        "no barrier before parts are read",
        "parts are there",
        "",
        &["undefined", "race", "exit.cluster"],
    ),
    (
        "reduce",
        "a relaxed arrival",
        "arrive.release.aligned;   // parts",
        "arrive.relaxed.aligned;   // parts",
        &["race"],
    ),
    ("reduce", "no barrier at the end", EARLY, "", &["exit.cluster"]),
    (
        "reduce",
        "a relaxed arrival at the end",
        "arrive.release.aligned;   // nobody",
        "arrive.relaxed.aligned;   // nobody",
        &["exit.cluster"],
    ),
    (
        "reduce",
        "no wait",
        "barrier.cluster.wait.acquire.aligned;     // parts are there",
        "",
        &["barrier.cluster"],
    ),
    (
        "reduce",
        "no arrival",
        "barrier.cluster.arrive.release.aligned;   // parts are there",
        "",
        &["barrier.cluster"],
    ),
    (
        "reduce",
        "a CTA that is one barrier ahead",
        "barrier.cluster.arrive.release.aligned;   // parts",
        "setp.eq.u32 %p2, %rank, 1; @%p2 bra DONE; barrier.cluster.arrive.release.aligned;   // parts",
        &["exit.cluster"],
    ),
    (
        "reduce",
        "a CTA that never comes",
        "barrier.cluster.arrive.release.aligned;   // parts",
        "setp.eq.u32 %p2, %rank, 1; STAY: @%p2 bra STAY; barrier.cluster.arrive.release.aligned;   // parts",
        &["limit.steps"],
    ),
    (
        "reduce",
        "a remote address for the own CTA",
        "ld.shared::cluster.u32",
        "ld.shared::cta.u32",
        &["bounds"],
    ),
    (
        "reduce",
        "a rank that the cluster lacks",
        "setp.lt.u32 %p1, %i, 4;",
        "setp.lt.u32 %p1, %i, 5;",
        &["cluster.rank"],
    ),
    ("send", "no barrier before the first store", READY, "", &["barrier.init"]),
    (
        "send",
        "no fence after the initialisation",
        "@%p0 fence.mbarrier_init.release.cluster;",
        "",
        &["barrier.init"],
    ),
    ("send", "too few bytes expected", "[%n], 384;", "[%n], 256;", &["barrier.tx", "undefined", "race"]),
    (
        "send",
        "a relaxed arrival",
        "barrier.cluster.arrive.release",
        "barrier.cluster.arrive.relaxed",
        &["race"],
    ),
    ("send", "no wait", "@!%p1 bra WAIT;", "", &["undefined", "race"]),
    ("send", "a sum without a start", "st.shared.u32 [%sum], %n;", "", &["undefined"]),
    (
        "send",
        "a signal to the own barrier",
        "mapa.shared::cluster.u32 %n, %bar, %other;",
        "mov.u32 %n, %bar;",
        &["cluster.signal"],
    ),
    ("copy", "no barrier before the first copy", READY, "", &["barrier.init", "exit.cluster"]),
    ("copy", "no proxy fence", "fence.proxy.async.shared::cta;", "", &["proxy"]),
    ("copy", "no barrier at the end", EARLY, "", &["exit.load", "exit.cluster"]),
    ("copy", "no wait", "@!%p1 bra WAIT;", "", &["undefined", "race"]),
    ("copy", "a source that changes", "WAIT:", "@%p0 st.shared.u32 [%at], %t; WAIT:", &["race"]),
    (
        "count",
        "no barrier before the first atomic",
        "zeros are there",
        "",
        &["undefined", "race", "exit.cluster"],
    ),
    ("count", "no barrier behind the last one", "nobody counts any more", "", &["race", "exit.cluster"]),
    (
        "count",
        "a load and a store",
        "red.relaxed.cluster.shared::cluster.add.u32 [%there], %v;",
        "ld.shared::cluster.u32 %n, [%there]; st.shared::cluster.u32 [%there], %n;",
        &["race", "race.lanes"],
    ),
    ("flag", "a relaxed store", "st.release.cluster", "st.relaxed.cluster", &["race"]),
    ("flag", "a store for the CTA", "st.release.cluster", "st.release.cta", &["race"]),
    ("flag", "a relaxed load", "ld.acquire.cluster", "ld.relaxed.cluster", &["race"]),
    ("flag", "a load for the CTA", "ld.acquire.cluster", "ld.acquire.cta", &["race"]),
    ("flag", "a weak flag", "st.release.cluster.shared", "st.shared", &["race"]),
    ("mail", "an arrival for the CTA", "arrive.release.cluster", "arrive.release.cta", &["race"]),
    ("mail", "an arrival for the CTA by default", "arrive.release.cluster", "arrive", &["race"]),
    ("mail", "a relaxed arrival", "arrive.release.cluster", "arrive.relaxed.cluster", &["race"]),
    ("mail", "a wait for the CTA", "wait.parity.acquire.cluster", "wait.parity.acquire.cta", &["race"]),
    ("mail", "no wait", "@!%p2 bra WAIT;", "", &["race", "undefined"]),
    ("commit", "no barrier before the first commit", READY, "", &["barrier.init"]),
    (
        "commit",
        "no fence after the initialisation",
        "@%p0 fence.mbarrier_init.release.cluster;",
        "",
        &["barrier.init"],
    ),
    (
        "commit",
        "a commit for the own CTA",
        "mov.u16 %mask, 3;",
        "mov.u32 %bar, %cluster_ctarank; shl.b32 %bar, 1, %bar; cvt.u16.u32 %mask, %bar; mov.u32 %bar, bar;",
        &["deadlock"],
    ),
    ("commit", "a CTA that the cluster lacks", "mov.u16 %mask, 3;", "mov.u16 %mask, 4;", &["cluster.mask"]),
    ("commit", "no wait", "@!%p1 bra WAIT;", "", &["exit.signal", "exit.tensor", "exit.cluster"]),
];

/// Right variants of what is damaged above.
const ALSO_RIGHT: &[Damage] = &[
    (
        "reduce",
        "fences in place of a release",
        "barrier.cluster.arrive.release.aligned;   // parts",
        "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed.aligned;   // parts",
        &[],
    ),
    // Slots that are over, of which nothing is read.
    (
        "ring",
        "an arrival for the CTA",
        ".release.cluster.shared::cluster",
        ".release.cta.shared::cluster",
        &[],
    ),
    (
        "ring",
        "an arrival for the CTA by default",
        "arrive.release.cluster.shared::cluster",
        "arrive.shared::cluster",
        &[],
    ),
    ("ring", "a wait for the CTA", ".acquire.cluster.shared::cta", ".acquire.cta.shared::cta", &[]),
    ("reduce", "lanes that arrive one by one", ".aligned;", ";", &[]),
    (
        "ring",
        "arrivals by default",
        "barrier.cluster.arrive.release.aligned",
        "barrier.cluster.arrive.aligned",
        &[],
    ),
    (
        "count",
        "atomics at generic addresses",
        "red.relaxed.cluster.shared::cluster.add.u32 [%there], %v;",
        "cvt.u64.u32 %off, %there; cvta.shared::cluster.u64 %off, %off; red.add.u32 [%off], %v;",
        &[],
    ),
    (
        "flag",
        "a fence and a relaxed store",
        "st.release.cluster.shared",
        "fence.acq_rel.cluster; st.relaxed.cluster.shared",
        &[],
    ),
    (
        "flag",
        "a relaxed load and a fence",
        "ld.shared.u32 %v, [%at];",
        "fence.acq_rel.cluster; ld.shared.u32 %v, [%at];",
        &[],
    ),
];

fn damaged(kernel: &str, old: &str, new: &str) -> String {
    let text = entry(kernel);
    assert!(text.contains(old), "text of the damage not found: {old}");
    // A comment names its line.
    if [READY, EARLY, "parts are there", "zeros are there", "nobody counts any more"].contains(&old) {
        return text.lines().filter(|l| !l.contains(old)).map(|l| format!("{l}\n")).collect();
    }
    text.replace(old, new)
}

#[test]
fn damage_is_found() {
    let mut bad = Vec::new();
    for (kernel, name, old, new, codes) in DAMAGE {
        let text = damaged(kernel, old, new);
        let mut got = ("none", String::new());
        for o in modes().iter().rev() {
            got = outcome(&text, kernel, o);
            if got.0 != "none" {
                break;
            }
        }
        if !codes.contains(&got.0) {
            bad.push(format!("{kernel}, {name}: {} {}", got.0, got.1.lines().next().unwrap_or("")));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn variants_are_right() {
    for (kernel, name, old, new, _) in ALSO_RIGHT {
        let text = damaged(kernel, old, new);
        for o in modes() {
            let (code, what) = outcome(&text, kernel, &o);
            assert_eq!(code, "none", "{kernel}, {name} {o:?}: {what}");
        }
    }
}
