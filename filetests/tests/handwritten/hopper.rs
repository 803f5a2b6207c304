//! Kernels for `sm_90a` beside hand-written ones, row by row: what a step of their loops takes, barriers, registers.
//!
//! The hand-written ones: a cooperative product with a bias (two warpgroups have a tile of 128 x 256 together), one whose warpgroups take turns (128 x 128 each), one
//! of 128 x 128 together, and attention of 128 queries with 128 keys a step, one product under way over the softmax. A row is good within a fifth of theirs; products, waits, and that nothing spills or
//! is serialised, are exact. Where more is allowed the reason stands there. The counts are taken of the hand-written PTX as well, where the test data has it.

use super::measure::{count, lines, loop_around, machine_lines, registers};
use tileas_codegen::{CompiledKernel, Context, Settings};
use tileas_filetests::{TestKind, external};

/// A product by tiles of 128 x N, with or without a bias and `max(0, x)`.
fn gemm(n: u32, bias: bool) -> String {
    let (param, epilogue, out) = match bias {
        true => (
            "%bias: view<gmem, ?xbf16>, ",
            format!(
                "    %row = tiled_load %bias[%j] : tile<{n}xbf16>
    %wide = ftof %row : tile<{n}xf32>
    %one = reshape %wide : tile<1x{n}xf32>
    %all = broadcast %one : tile<128x{n}xf32>
    %sum = addf %acc, %all
    %res = maxf %sum, %z
"
            ),
            "%res",
        ),
        false => ("", String::new(), "%acc"),
    };
    format!(
        "kernel @gemm(%a: view<gmem, ?x?xbf16>, %b: view<gmem, ?x?xbf16>, {param}%c: view<gmem, ?x?xbf16>, %kt: i32) {{
  %first = program_id <{{axis = 0}}> : i32
  %ctas = num_programs <{{axis = 0}}> : i32
  %rows = dim %a <{{axis = 0}}> : i32
  %columns = dim %b <{{axis = 0}}> : i32
  %mt = divi %rows, 128 <{{rounding = positive_inf}}>
  %nt = divi %columns, {n} <{{rounding = positive_inf}}>
  %tiles = muli %mt, %nt
  %z = constant 0.0 : tile<128x{n}xf32>
  for %tile = %first to %tiles step %ctas {{
    %at = tile_order %tile, %mt, %nt <{{order = grouped(8)}}>
    %i = divi %at, %nt
    %j = remi %at, %nt
    %acc = for %k = 0 to %kt step 1 iter (%s = %z : tile<128x{n}xf32>) {{
      %ta = tiled_load %a[%i, %k] : tile<128x64xbf16>
      %tb = tiled_load %b[%j, %k] : tile<{n}x64xbf16>
      %r = dot %ta, %tb, %s <{{transpose_b}}> : tile<128x{n}xf32>
      yield %r
    }}
{epilogue}    %o = ftof {out} : tile<128x{n}xbf16>
    tiled_store %o, %c[%i, %j]
  }}
  return
}}
"
    )
}

/// Attention without a mask: keys are whole tiles.
const ATTENTION: &str = "\
kernel @attention(%q: view<gmem, ?x?xf16>, %k: view<gmem, ?x?xf16>, %v: view<gmem, ?x?xf16>, %o: view<gmem, ?x?xf16>, %c: f32) {
  %i = program_id <{axis = 0}> : i32
  %keys = dim %k <{axis = 0}> : i32
  %n = divi %keys, 128
  %tq = tiled_load %q[%i, 0] : tile<128x128xf16>
  %z = constant 0.0 : tile<128x128xf32>
  %m0 = constant inf : tile<128xf32>
  %l0 = constant 0.0 : tile<128xf32>
  %nc = negf %c : f32
  %acc, %m, %l = for %j = 0 to %n step 1 iter (%a = %z, %mp = %m0, %lp = %l0) {
    %tk = tiled_load %k[%j, 0] : tile<128x128xf16>
    %s = dot %tq, %tk, %z <{transpose_b}> : tile<128x128xf32>
    %most = reduce %s <{mode = max, axis = 1}> : tile<128xf32>
    %scaled = mulf %most, %nc
    %mn = minf %mp, %scaled
    %dm = subf %mn, %mp
    %alpha = exp2 %dm <{ftz}>
    %m1 = reshape %mn : tile<128x1xf32>
    %mb = broadcast %m1 : tile<128x128xf32>
    %x = fma %s, %c, %mb
    %p = exp2 %x <{ftz}>
    %pj = reduce %p <{mode = add, axis = 1}> : tile<128xf32>
    %ln = fma %lp, %alpha, %pj
    %ph = ftof %p : tile<128x128xf16>
    %tv = tiled_load %v[%j, 0] : tile<128x128xf16>
    %al1 = reshape %alpha : tile<128x1xf32>
    %alb = broadcast %al1 : tile<128x128xf32>
    %ar = mulf %a, %alb
    %an = dot %ph, %tv, %ar : tile<128x128xf32>
    yield %an, %mn, %ln
  }
  %l1 = reshape %l : tile<128x1xf32>
  %lb = broadcast %l1 : tile<128x128xf32>
  %y = divf %acc, %lb <{rounding = approx}>
  %r = ftof %y : tile<128x128xf16>
  tiled_store %r, %o[%i, 0]
  return
}
";

/// What is counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Row {
    /// Instructions of a step of who multiplies, in PTX and as machine code.
    Step,
    MachineStep,
    /// The same of who loads.
    Load,
    MachineLoad,
    /// Products of a step.
    Products,
    Fences,
    Commits,
    /// `WARPGROUP.ARRIVE`.
    Arrives,
    /// Waits for what was loaded, and signals that it was read.
    Waits,
    Signals,
    Mbarriers,
    NamedBarriers,
    /// `bar.sync` and `bar.arrive` in a step, and in all of a kernel but that.
    BarriersInStep,
    OtherBarriers,
    Registers,
}

/// What a kernel takes.
struct Counts {
    rows: Vec<(Row, usize)>,
    /// How many products each wait of a step leaves under way.
    pending: Vec<usize>,
}

fn counts(name: &str, ptx: &str) -> Counts {
    let said = external::ptxas(name, "sm_90a", ptx).expect("neither spills nor serialised products");
    assert!(said.contains("registers"), "{said}");
    let machine = external::machine_code(name, "sm_90a", ptx).expect("machine code");
    let (ptx, machine) = (lines(ptx), machine_lines(&machine));
    let (step, load) =
        (loop_around(&ptx, "wgmma.mma_async"), loop_around(&ptx, "shared::cta.global.tile.mbarrier"));
    let (machine_step, machine_load) = (loop_around(&machine, "gsb0, 0x1"), loop_around(&machine, "UTMALDG"));
    let number = |l: &&str| l.strip_suffix(';')?.rsplit([' ', ',']).next()?.parse().ok();
    let waits: Vec<&str> = step.iter().copied().filter(|l| l.contains("wgmma.wait_group")).collect();
    let named = |lines: &[&str]| count(lines, "bar.sync") + count(lines, "bar.arrive");
    let mut ids: Vec<&str> = ptx
        .iter()
        .filter_map(|l| l.split_once("bar.sync ").or_else(|| l.split_once("bar.arrive ")))
        .map(|x| x.1)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let rows = vec![
        (Row::Step, step.len()),
        (Row::MachineStep, machine_step.len()),
        (Row::Load, load.len()),
        (Row::MachineLoad, machine_load.len()),
        (Row::Products, count(&machine_step, "HGMMA")),
        (Row::Fences, count(&step, "wgmma.fence")),
        (Row::Commits, count(&step, "wgmma.commit_group")),
        (Row::Arrives, count(&machine_step, "WARPGROUP.ARRIVE")),
        (Row::Waits, count(&step, "mbarrier.try_wait")),
        (Row::Signals, count(&step, "mbarrier.arrive")),
        (Row::Mbarriers, count(&ptx, "mbarrier.init.")),
        (Row::NamedBarriers, ids.len()),
        (Row::BarriersInStep, named(&step)),
        (Row::OtherBarriers, named(&ptx) - named(&step)),
        (Row::Registers, registers(&machine)),
    ];
    Counts { rows, pending: waits.iter().filter_map(number).collect() }
}

/// What the hand-written kernel takes whose warpgroups take turns, which is not among the test data.
const TURNS: [(Row, usize); 15] = [
    (Row::Step, 50),
    (Row::MachineStep, 50),
    (Row::Load, 16),
    (Row::MachineLoad, 30),
    (Row::Products, 8),
    (Row::Fences, 1),
    (Row::Commits, 1),
    (Row::Arrives, 1),
    (Row::Waits, 1),
    (Row::Signals, 1),
    (Row::Mbarriers, 16),
    (Row::NamedBarriers, 3),
    (Row::BarriersInStep, 0),
    (Row::OtherBarriers, 4),
    (Row::Registers, 152),
];

/// Compares a compiled kernel with a hand-written one; `allowed` are the rows in which more is good.
fn compare(name: &str, ours: &str, theirs: &Counts, allowed: &[(Row, usize)]) {
    let ours = counts(&format!("{name}_compiled"), ours);
    assert_eq!(ours.pending, theirs.pending, "{name}: waits of a step");
    for (&(row, n), &(same, hand)) in ours.rows.iter().zip(&theirs.rows) {
        assert_eq!(row, same);
        let most = match row {
            Row::Products => {
                assert_eq!(n, hand, "{name}: {row:?}");
                hand
            }
            _ => allowed.iter().find(|a| a.0 == row).map_or(hand * 6 / 5, |a| a.1),
        };
        assert!(n <= most, "{name}: {row:?} {n}, by hand {hand}");
    }
}

/// A hand-written kernel, and what a step of it is known to take.
fn by_hand(name: &str, ptx: &str, step: [usize; 4]) -> Counts {
    let counts = counts(&format!("{name}_by_hand"), ptx);
    let found: Vec<usize> = counts.rows[..4].iter().map(|r| r.1).collect();
    assert_eq!(found, step, "{name}: the measure");
    counts
}

fn skipped() -> bool {
    external::missing(TestKind::Ptxas).is_some() && !external::required()
}

/// In PTX the addresses of a slot stand once in front of the wait for it and once behind; machine code has them once.
const LOAD_IN_PTX: (Row, usize) = (Row::Load, 26);

#[test]
fn cooperative() {
    if skipped() {
        return;
    }
    let hand = include_str!("../../../tileas-emu/tests/data/gemm_coop_sm90a.ptx");
    let hand = by_hand("coop", hand, [38, 40, 16, 30]);
    // A slice of 64 columns has a barrier in front of it and one behind, so that two stores are under way; by hand it has one, and a store waits for the
    // one before.
    let allowed = [LOAD_IN_PTX, (Row::OtherBarriers, 9)];
    compare("coop", &compiled(&gemm(256, true), "auto").ptx, &hand, &allowed);
}

#[test]
fn in_turns() {
    if skipped() {
        return;
    }
    let hand = Counts { rows: TURNS.to_vec(), pending: vec![1] };
    compare("turns", &compiled(&gemm(128, true), "auto").ptx, &hand, &[LOAD_IN_PTX]);
}

#[test]
fn a_small_tile_together() {
    if skipped() {
        return;
    }
    let hand = include_str!("../../../tileas-emu/tests/data/gemm_sm90a.ptx");
    let hand = by_hand("small", hand, [34, 34, 19, 27]);
    // Six slots, in memory of which no further CTA would fit; by hand there are four. The order of tiles in groups is not by hand. Two slices are stored.
    let allowed = [LOAD_IN_PTX, (Row::MachineLoad, 33), (Row::Mbarriers, 12), (Row::OtherBarriers, 5)];
    compare("small", &compiled(&gemm(128, false), "cooperative").ptx, &hand, &allowed);
}

#[test]
fn attention() {
    if skipped() {
        return;
    }
    let hand = include_str!("../../../tileas-emu/tests/data/attention_fwd_sm90a.ptx");
    let hand = by_hand("attention", hand, [475, 477, 34, 42]);
    // A tile of keys or values is two boxes of 64 columns, by hand one box of one axis more; K is a step ahead of V, and each has its condition. There are three slots
    // of K, by hand two. Each of the two products has a fence: in machine code it has one either way.
    let allowed = [(Row::Fences, 2), (Row::Load, 69), (Row::MachineLoad, 84), (Row::Mbarriers, 11)];
    compare("attention", &compiled(ATTENTION, "auto").ptx, &hand, &allowed);
}

fn compiled(text: &str, consumers: &str) -> CompiledKernel {
    let settings = Settings::default()
        .with("target", "sm_90a")
        .and_then(|s| s.with("consumers", consumers))
        .expect("options");
    let isa = tileas_isa::isa_for_cpu("sm_90a").expect("a target");
    let mut context = Context::new();
    let module = context.parse(text, &settings).unwrap_or_else(|e| panic!("{e:?}"));
    context.compile(&module, &*isa, &settings).expect("the kernel compiles").kernels.swap_remove(0)
}
