//! What overlaps in a trace of the emulator.
//!
//! In a persistent kernel the matrix unit works on the next tile while the epilogue of the last one still runs: for every tile but the last of a CTA, the first MMA of the next tile is issued
//! before the epilogue has read the last of this tile's accumulator, hence before its last store. One accumulator slot
//! instead of two makes that impossible; the second test shows that the measure notices.
//!
//! In Hopper's attention two warpgroups take turns: each issues the products of a step between two steps of the other. Without their
//! barriers they do not, which shows that this measure notices, too. In a persistent GEMM each has a tile of its own: one begins its products when the other has issued its last one, and
//! before that has stored; where both share a tile they store first.

use tileas_codegen::{CompiledKernel, Context, Settings};
use tileas_emu::host::data::{Fill, ViewSpec, place};
use tileas_emu::{ChromeTrace, Lane, Machine, Memory, Mode, Program, RunOptions, TraceEvent};
use tileas_launch::{Device, Named, View};

/// Tiles of the one CTA.
const TILES: usize = 4;
/// Trips of the K loop.
const TRIPS: i64 = 2;

/// What one CTA does.
fn run(kernel: &CompiledKernel, ptx: &str, named: &Named, mut memory: Memory, seed: u64) -> ChromeTrace {
    let program = Program::parse(ptx).expect("the emulator reads the PTX");
    let args = named.of(&kernel.metadata).expect("all arguments");
    let launch = kernel.metadata.launch(&args, &Device { sms: 1 }, Some([1, 1, 1])).expect("arguments fit");
    let launch = launch.emulated(&kernel.name).expect("a launch");
    let options = RunOptions { mode: Mode::Random(seed), ..RunOptions::default() };
    let mut events = ChromeTrace::default();
    Machine::run(&program, &launch, &mut memory, &options, &mut events).expect("no fault");
    events
}

/// Steps at which MMAs, reads of tensor memory and stores are issued.
fn trace(text: &str, settings: &Settings, seed: u64) -> [Vec<u64>; 3] {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
    let mut context = Context::new();
    let module = context.parse(text, settings).expect("the kernel parses");
    let compiled = context.compile(&module, &*isa, settings).expect("the kernel compiles");
    let kernel = &compiled.kernels[0];
    let (mut memory, mut named) = (Memory::new(), Named::default());
    let (m, n, k) = (256, 512, 64 * TRIPS as usize);
    for (name, shape, elem) in [
        ("a", vec![m, k], "f16"),
        ("b", vec![n, k], "f16"),
        ("bias", vec![n], "f16"),
        ("c", vec![m, n], "f16"),
    ] {
        let spec = ViewSpec { shape, strides: None, elem: elem.into(), fill: Fill::Ints, pad: 256 };
        let view = place(name, &spec, seed, &mut memory).expect("a view");
        named.insert(name, View::emulated(&view, &memory, None));
    }
    for (name, value) in [("k_tiles", TRIPS), ("m_tiles", 2), ("n_tiles", 2)] {
        named.insert(name, value);
    }
    let events = run(kernel, &kernel.ptx, &named, memory, seed);
    let steps = |wanted: &str| {
        let of = |e: &&TraceEvent| matches!(e.lane, Lane::Warp(_)) && e.what == wanted;
        events.events.iter().filter(of).map(|e| e.step).collect::<Vec<_>>()
    };
    ["mma issued", "tcgen05.ld", "store issued"].map(steps)
}

/// Tiles whose successor's first MMA is issued before their last read of the accumulator, and before their last store.
fn overlapped(settings: &Settings, seed: u64) -> (usize, usize) {
    let [mmas, reads, stores] = trace(include_str!("../../examples/gemm_persistent.tileas"), settings, seed);
    for list in [&mmas, &reads, &stores] {
        assert!(list.len() >= TILES && list.len().is_multiple_of(TILES), "{} events", list.len());
    }
    let first = |list: &[u64], t: usize| list[t * list.len() / TILES];
    let last = |list: &[u64], t: usize| list[(t + 1) * list.len() / TILES - 1];
    let before = |list: &[u64]| (0..TILES - 1).filter(|&t| first(&mmas, t + 1) < last(list, t)).count();
    (before(&reads), before(&stores))
}

#[test]
fn the_next_tile_starts_before_the_epilogue_ends() {
    for seed in 1..=4 {
        assert_eq!(overlapped(&Settings::default(), seed), (TILES - 1, TILES - 1), "seed {seed}");
    }
}

#[test]
fn one_accumulator_slot_allows_no_overlap() {
    let settings = Settings::default().with("tune.max-slots", "1").expect("an option");
    for seed in 1..=4 {
        assert_eq!(overlapped(&settings, seed).0, 0, "seed {seed}");
    }
}

/// Key tiles of the attention.
const STEPS: usize = 7;

/// Steps at which a warp of either warpgroup issues its products, those behind the first wait for scores alone.
fn products(seed: u64, turns: bool) -> [Vec<u64>; 2] {
    let settings = Settings::default().with("target", "sm_90a").expect("an option");
    let isa = tileas_isa::isa_for_cpu("sm_90a").expect("a target");
    let mut context = Context::new();
    let text = include_str!("../../examples/kernels/attention_d128.tileas");
    let module = context.parse(text, &settings).expect("the kernel parses");
    let compiled = context.compile(&module, &*isa, &settings).expect("the kernel compiles");
    let kernel = &compiled.kernels[0];
    // One barrier is named by the number of the group; behind the loop the first group waits at its own.
    let barriers = ["bar.sync %r", "bar.arrive %r", "bar.sync 14,"];
    let is_turn = |line: &&str| !turns && barriers.iter().any(|b| line.contains(b));
    let kept: Vec<&str> = kernel.ptx.lines().filter(|line| !is_turn(line)).collect();
    let ptx = kept.join("\n");
    let (mut memory, mut named) = (Memory::new(), Named::default());
    for (name, rows) in [("q", 128), ("k", 128 * STEPS), ("v", 128 * STEPS), ("o", 128)] {
        let spec = ViewSpec {
            shape: vec![rows, 128],
            strides: None,
            elem: "f16".into(),
            fill: Fill::Ints,
            pad: 256,
        };
        let view = place(name, &spec, seed, &mut memory).expect("a view");
        named.insert(name, View::emulated(&view, &memory, None));
    }
    named.insert("scale", 0.125_f64);
    let events = run(kernel, &ptx, &named, memory, seed);
    [0, 4].map(|warp| {
        let of = |e: &&TraceEvent| e.lane == Lane::Warp(warp) && e.what == "wgmma issued";
        events.events.iter().filter(of).map(|e| e.step).collect()
    })
}

/// Steps of both groups in the loop during which the other issues nothing: of eight products with Q and eight with V.
fn alone(issued: &[Vec<u64>; 2]) -> usize {
    let step = |list: &[u64], t: usize| (list[8 + 16 * t], list[8 + 16 * t + 15]);
    let meets = |(from, to): (u64, u64), other: &[u64]| other.iter().any(|&at| from < at && at < to);
    let of = |mine: &[u64], other: &[u64]| {
        (0..STEPS - 1).filter(|&t| !meets(step(mine, t), &other[8..other.len() - 8])).count()
    };
    of(&issued[0], &issued[1]) + of(&issued[1], &issued[0])
}

#[test]
fn warpgroups_take_turns() {
    for seed in 1..=4 {
        let issued = products(seed, true);
        assert!(issued.iter().all(|list| list.len() == 16 * STEPS), "{issued:?}");
        assert_eq!(alone(&issued), 2 * (STEPS - 1), "seed {seed}: {issued:?}");
        // One after the other: the second group's step t is between steps t and t + 1 of the first.
        for t in 0..STEPS - 2 {
            assert!(issued[0][8 + 16 * t + 15] < issued[1][8 + 16 * t], "seed {seed}");
            assert!(issued[1][8 + 16 * t + 15] < issued[0][8 + 16 * (t + 1)], "seed {seed}");
        }
    }
}

#[test]
fn without_barriers_warpgroups_meet() {
    assert!((1..=4).any(|seed| alone(&products(seed, false)) < 2 * (STEPS - 1)));
}

/// Trips of a K loop that takes longer than what stands behind it, where every instruction takes a step.
const LONG: i64 = 40;

/// Steps at which a warp of each warpgroup issues its products, and at which lanes issue stores, of a persistent GEMM with that many tiles of 128 x 128.
fn tiles(seed: u64, tiles: usize, consumers: &str) -> ([Vec<u64>; 2], Vec<u64>) {
    let builder = Settings::default().with("target", "sm_90a").expect("an option");
    let settings = builder.with("consumers", consumers).expect("an option");
    let isa = tileas_isa::isa_for_cpu("sm_90a").expect("a target");
    let mut context = Context::new();
    let text = include_str!("../../examples/kernels/gemm_persistent_tiles.tileas");
    let module = context.parse(text, &settings).expect("the kernel parses");
    let compiled = context.compile(&module, &*isa, &settings).expect("the kernel compiles");
    let kernel = &compiled.kernels[0];
    let (mut memory, mut named) = (Memory::new(), Named::default());
    let k = 64 * LONG as usize;
    for (name, shape) in [("a", vec![128, k]), ("b", vec![128 * tiles, k]), ("c", vec![128, 128 * tiles])] {
        let spec = ViewSpec { shape, strides: None, elem: "f16".into(), fill: Fill::Ints, pad: 256 };
        let view = place(name, &spec, seed, &mut memory).expect("a view");
        named.insert(name, View::emulated(&view, &memory, None));
    }
    named.insert("kt", LONG);
    let events = run(kernel, &kernel.ptx, &named, memory, seed);
    let steps = |warp: Option<usize>, wanted: &str| {
        let of = |e: &&TraceEvent| {
            e.what == wanted && matches!(e.lane, Lane::Warp(w) if warp.is_none_or(|warp| w as usize == warp))
        };
        events.events.iter().filter(of).map(|e| e.step).collect::<Vec<_>>()
    };
    ([0, 4].map(|warp| steps(Some(warp), "wgmma issued")), steps(None, "store issued"))
}

/// Each warpgroup has every second tile; it begins when the other has issued its last product, and before that has stored its tile.
#[test]
fn one_warpgroup_multiplies_while_the_other_one_stores() {
    const ALL: usize = 5;
    for seed in 1..=4 {
        let (products, stores) = tiles(seed, ALL, "ping-pong");
        // Eight instructions for 64 of K.
        let each = 8 * LONG as usize;
        assert_eq!(products.clone().map(|p| p.len()), [3 * each, 2 * each], "seed {seed}");
        let of = |t: usize| &products[t % 2][t / 2 * each..][..each];
        let (mut first, mut last) = (0, 0);
        for t in 0..ALL - 1 {
            let (end, begin) = (of(t)[each - 1], of(t + 1)[0]);
            assert!(end < begin, "seed {seed}: tile {t} ends at {end}, the next one begins at {begin}");
            // Stores are in the order of the lanes that issue them; two for a tile.
            first += usize::from(stores.iter().filter(|&&s| s < begin).count() <= 2 * t + 1);
            last += usize::from(stores.iter().filter(|&&s| s < begin).count() > 2 * t + 2);
        }
        // A load may come so late that a tile is stored before the next one begins.
        assert!(first >= ALL - 2 && last == 0, "seed {seed}: {products:?} {stores:?}");
    }
}

/// Together they store a tile before the next one begins.
#[test]
fn warpgroups_that_share_a_tile_do_not() {
    for seed in 1..=2 {
        let (products, stores) = tiles(seed, 3, "cooperative");
        let each = products[0].len() / 3;
        for t in 0..2 {
            let begin = products[0][(t + 1) * each];
            assert_eq!(stores.iter().filter(|&&s| s < begin).count(), 2 * t + 2, "seed {seed}");
        }
    }
}
