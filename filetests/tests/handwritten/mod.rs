//! Compiled kernels beside hand-written ones of the same tile. Here `gemm_sm100a.ptx` of the emulator's test data,
//! bf16, 128x256 accumulator, K steps of 64, persistent; those of Hopper in [`hopper`].
//!
//! Barriers, instructions of the K loops and registers must stay near what the expert wrote. Registers need `PTXAS`; without
//! it they are not compared, unless `TILEAS_REQUIRE_PTXAS` is set.

mod hopper;
mod measure;

use measure::{lines, loop_around};
use tileas_codegen::{Context, Settings};
use tileas_filetests::external;

const KERNEL: &str = "\
kernel @tile(%a: view<gmem, ?x?xbf16>, %b: view<gmem, ?x?xbf16>, %c: view<gmem, ?x?xbf16>, %k_tiles: i32, %m_tiles: i32, %n_tiles: i32) {
  %pid = program_id <{axis = 0}> : i32
  %programs = num_programs <{axis = 0}> : i32
  %tiles = muli %m_tiles, %n_tiles : i32
  %da = make_tiled_tma_desc %a <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xbf16>
  %db = make_tiled_tma_desc %b <{box = [256, 64], swizzle = b128}> : tma_desc<256x64xbf16>
  %z  = constant 0.0 : tile<128x256xf32>
  for %tile = %pid to %tiles step %programs {
    %bm = remi %tile, %m_tiles <{unsigned}> : i32
    %bn = divi %tile, %m_tiles <{unsigned}> : i32
    %acc = for %i = 0 to %k_tiles step 1 iter (%s = %z : tile<128x256xf32>) {
      %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xbf16>
      %tb = async.tiled_tma_load %db[%bn, %i] : tile<256x64xbf16>
      %n  = async.dot %ta, %tb, %s <{transpose_b}> : tile<128x256xf32>
      yield %n : tile<128x256xf32>
    }
    %h  = ftof %acc : tile<128x256xbf16>
    tiled_store %h, %c[%bm, %bn]
  }
  return
}
";

const HAND_WRITTEN: &str = include_str!("../../../tileas-emu/tests/data/gemm_sm100a.ptx");

fn compiled() -> String {
    let (isa, settings) = (tileas_isa::isa_for_cpu("sm_100a").expect("a target"), Settings::default());
    let mut context = Context::new();
    let module = context.parse(KERNEL, &settings).expect("the kernel parses");
    context.compile(&module, &*isa, &settings).expect("the kernel compiles").ptx().to_owned()
}

/// The number that ptxas prints before ` registers`.
fn registers(said: &str) -> u32 {
    let before = &said[..said.find(" registers").expect("statistics")];
    before.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn barriers_and_k_loops_are_near_the_hand_written() {
    let ours = compiled();
    let (ours, theirs) = (lines(&ours), lines(HAND_WRITTEN));
    let barriers = |lines: &[&str]| lines.iter().filter(|l| l.contains("mbarrier.init.")).count();
    assert_eq!(barriers(&theirs), 12);
    assert!(barriers(&ours) <= 12, "{} barriers", barriers(&ours));
    for word in ["shared::cta.global.tile.mbarrier", "tcgen05.mma"] {
        let (ours, theirs) = (loop_around(&ours, word).len(), loop_around(&theirs, word).len());
        assert!((10..100).contains(&theirs), "{word}: {theirs} instructions by hand: no K loop");
        assert!(2 * ours <= 3 * theirs, "{word}: {ours} instructions in the K loop, {theirs} by hand");
    }
}

#[test]
fn registers_are_near_the_hand_written() {
    if std::env::var_os("PTXAS").is_none() {
        assert!(!external::required(), "PTXAS is not set");
        return;
    }
    let of = |name: &str, ptx: &str| {
        registers(&external::ptxas(name, "sm_100a", ptx).expect("ptxas accepts it without spills"))
    };
    let (ours, theirs) = (of("tile_compiled", &compiled()), of("tile_hand_written", HAND_WRITTEN));
    assert!(5 * ours <= 6 * theirs, "{ours} registers, {theirs} by hand");
}
