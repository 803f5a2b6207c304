//! In a persistent kernel the matrix unit works on the next tile while the epilogue of the last one still runs.
//!
//! The emulator's trace is the witness: for every tile but the last of a CTA, the first MMA of the next tile is issued
//! before the epilogue has read the last of this tile's accumulator, hence before its last store. One accumulator slot
//! instead of two makes that impossible; the second test shows that the measure notices.

use tileas_codegen::{Context, Settings};
use tileas_emu::host::data::{Fill, ViewSpec, place};
use tileas_emu::{ChromeTrace, Lane, Machine, Memory, Mode, Program, RunOptions, TraceEvent};
use tileas_launch::{Device, Named, View};

/// Tiles of the one CTA.
const TILES: usize = 4;
/// Trips of the K loop.
const TRIPS: i64 = 2;

/// Steps at which MMAs, reads of tensor memory and stores are issued.
fn trace(text: &str, settings: &Settings, seed: u64) -> [Vec<u64>; 3] {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
    let mut context = Context::new();
    let module = context.parse(text, settings).expect("the kernel parses");
    let compiled = context.compile(&module, &*isa, settings).expect("the kernel compiles");
    let kernel = &compiled.kernels[0];
    let program = Program::parse(&kernel.ptx).expect("the emulator reads the PTX");
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
    let args = named.of(&kernel.metadata).expect("all arguments");
    let launch = kernel.metadata.launch(&args, &Device { sms: 1 }, Some([1, 1, 1])).expect("arguments fit");
    let launch = launch.emulated(&kernel.name).expect("a launch");
    let options = RunOptions { mode: Mode::Random(seed), ..RunOptions::default() };
    let mut events = ChromeTrace::default();
    Machine::run(&program, &launch, &mut memory, &options, &mut events).expect("no fault");
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
