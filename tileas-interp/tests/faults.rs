//! The multi-agent run can fail: every way to break a channel shows, and names what went wrong.

use tileas_codegen::ir::{AttrData, Function, Op, Opcode, Scalar, keys, parse_module};
use tileas_codegen::{Context, Settings, Stage};
use tileas_interp::{Arg, Buffer, Fault, Limits, Memory, Timing, View, run_agents, run_sequential};

const GEMM: &str = "
kernel @gemm(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf32>, %kt: i32) {
  %bm = program_id <{axis = 0}> : i32
  %bn = program_id <{axis = 1}> : i32
  %da = make_tiled_tma_desc %a <{box = [64, 32], swizzle = b64}> : tma_desc<64x32xf16>
  %db = make_tiled_tma_desc %b <{box = [64, 32], swizzle = b64}> : tma_desc<64x32xf16>
  %z = constant 0.0 : tile<64x64xf32>
  %acc = for %i = 0 to %kt step 1 iter (%s = %z : tile<64x64xf32>) {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<64x32xf16>
    %tb = async.tiled_tma_load %db[%bn, %i] : tile<64x32xf16>
    %n = async.dot %ta, %tb, %s <{transpose_b}> : tile<64x64xf32>
    yield %n : tile<64x64xf32>
  }
  tiled_store %acc, %c[%bm, %bn]
  return
}";
const KT: i64 = 20;

fn materialised(text: &str) -> Function {
    let settings = Settings::builder().finish();
    let module = parse_module(text).expect("parses");
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
    let mut context = Context::new();
    let run = context.run_to(Stage::Materialized, &module, &*isa, &settings).expect("compiles");
    parse_module(&run.text(Stage::Materialized)).expect("parses").functions[0].clone()
}

fn setup() -> (Memory, Vec<Arg>) {
    let mut memory = Memory::new();
    let mut args = Vec::new();
    for (n, (rows, cols, ty)) in
        [(64, KT * 32, Scalar::F16), (64, KT * 32, Scalar::F16), (64, 64, Scalar::F32)]
            .into_iter()
            .enumerate()
    {
        let mut b = Buffer::new(ty, (rows * cols) as usize);
        for i in 0..b.len() {
            // Different in every box, so that a stale slot shows.
            b.set(i, if n == 2 { 0.0 } else { ((i * 7 + i / 640 + n) % 11) as f64 - 5.0 });
        }
        let buffer = memory.add(b);
        let (sizes, strides) = ([rows, cols][..].into(), [cols, 1][..].into());
        args.push(Arg::View(View { buffer, offset: 0, sizes, strides, elem: ty }));
    }
    args.push(Arg::Int(KT));
    (memory, args)
}

/// Runs under several timings; the first error, or a difference from the source.
fn fails(f: &Function) -> Option<Result<Fault, String>> {
    let module = parse_module(GEMM).expect("parses");
    let (mut want, args) = setup();
    let start = want.clone();
    run_sequential(&module.functions[0], [1; 3], &args, &mut want, &Limits::default()).expect("runs");
    let seeds = (0..12).map(Timing::Random);
    for timing in [Timing::Fast, Timing::Latest].into_iter().chain(seeds) {
        let mut got = start.clone();
        match run_agents(f, [1; 3], &args, &mut got, timing, &Limits::default()) {
            Err(e) => return Some(Ok(e.fault)),
            Ok(_) if got.buffers[2].bytes() != want.buffers[2].bytes() => {
                return Some(Err(format!("{timing:?}: wrong numbers")));
            }
            Ok(_) => {}
        }
    }
    None
}

fn ops(f: &Function, opcode: Opcode) -> Vec<Op> {
    let mut found = Vec::new();
    f.walk(f.entry(), &mut |op| {
        if f.opcode(op) == opcode {
            found.push(op);
        }
    });
    found
}

#[test]
fn the_kernel_itself_is_right() {
    assert_eq!(fails(&materialised(GEMM)), None);
}

#[test]
fn a_lost_release_starves_the_producer() {
    let f = materialised(GEMM);
    let pipe = ops(&f, Opcode::AsyncPipelineConsumerRelease);
    // The one in the loop: the ring is shorter than the loop.
    let op = pipe
        .into_iter()
        .find(|&op| f.op_parent(op).is_some_and(|p| f.opcode(p) == Opcode::For))
        .expect("one");
    let mut g = f.clone();
    g.remove_op(op);
    assert_eq!(fails(&g), Some(Ok(Fault::Deadlock)));
}

#[test]
fn wrong_bytes_are_refused() {
    let f = materialised(GEMM);
    for (bytes, fault) in [(8192 - 16, Fault::Barrier), (8192 + 16, Fault::Deadlock)] {
        let mut g = f.clone();
        for op in ops(&f, Opcode::AsyncPipelineProducerCommit) {
            if f.attr_int(op, keys::TX).is_some() {
                g.set_int(op, keys::TX, bytes);
            }
        }
        let got = fails(&g);
        // Too few: the phase flips early and the rest comes too late, or is one too many.
        assert!(matches!(got, Some(Ok(x)) if x == fault || x == Fault::Deadlock), "{bytes}: {got:?}");
    }
}

#[test]
fn sides_that_never_wait_are_found() {
    let f = materialised(GEMM);
    for key in [keys::FULL, keys::EMPTY] {
        let mut broken = 0;
        for op in ops(&f, Opcode::AsyncPipelineCreatePipeline) {
            // Used once per kernel: its empty side is not there in the first place.
            if matches!(f.attr_call(op, key), None | Some(("none", _)))
                || f.attr_int(op, keys::NUM_STAGES) == Some(1)
            {
                continue;
            }
            let mut g = f.clone();
            let none = g.intern_symbol("none");
            g.set_attr(op, key, AttrData::Name(none));
            assert!(fails(&g).is_some(), "channel {:?} without {key:?}", f.attr_int(op, keys::CHANNEL));
            broken += 1;
        }
        assert!(broken > 0);
    }
}

#[test]
fn bad_arguments_are_errors() {
    let f = materialised(GEMM);
    let (mut memory, mut args) = setup();
    args.pop();
    let e = run_agents(&f, [1; 3], &args, &mut memory, Timing::Fast, &Limits::default()).unwrap_err();
    assert_eq!(e.fault, Fault::Argument);
    args.push(Arg::Int(KT + 1));
    // One tile more than the matrices have: zeros come in, nothing fails.
    run_agents(&f, [1; 3], &args, &mut memory, Timing::Latest, &Limits::default())
        .expect("out of bounds is padding");
    let few = Limits { max_steps: 50, ..Limits::default() };
    let e = run_agents(&f, [1; 3], &args, &mut memory, Timing::Fast, &few).unwrap_err();
    assert_eq!(e.fault, Fault::Limit);
}

#[test]
fn views_that_do_not_fit_are_named() {
    let module = parse_module(
        "kernel @k(%n: i32, %x: view<gmem, ?x64xf32>) {
  %t = tiled_load %x[0, 0] : tile<16x64xf32>
  tiled_store %t, %x[0, 0]
}",
    )
    .expect("parses");
    let run = |elem, sizes: &[i64]| {
        let mut memory = Memory::new();
        let buffer = memory.add(Buffer::new(elem, 4096));
        let strides = vec![1; sizes.len()][..].into();
        let view = View { buffer, offset: 0, sizes: sizes.into(), strides, elem };
        let args = [Arg::Int(0), Arg::View(view)];
        run_sequential(&module.functions[0], [1; 3], &args, &mut memory, &Limits::default())
    };
    for (elem, sizes, given) in [
        (Scalar::F32, &[8_i64, 60] as &[i64], "extents [8, 60] are given"),
        (Scalar::F32, &[64], "extents [64], strides [1] are given"),
        (Scalar::F16, &[8, 64], "elements f16 are given"),
    ] {
        let e = run(elem, sizes).expect_err("another type");
        let want = format!("argument 1 %x: its type is view<gmem, ?x64xf32>, {given}");
        assert!(e.fault == Fault::Argument && e.to_string().contains(&want), "{e}");
    }
}

#[test]
fn memory_and_coordinates_are_bounded() {
    let module = parse_module(GEMM).expect("parses");
    let (mut memory, args) = setup();
    let few = Limits { max_tile_elements: 1 << 12, ..Limits::default() };
    let e = run_sequential(&module.functions[0], [1, 1, 1], &args, &mut memory, &few).expect_err("too large");
    assert_eq!(e.fault, Fault::Limit);
    let e = run_agents(&materialised(GEMM), [1, 1, 1], &args, &mut memory, Timing::Fast, &few)
        .expect_err("too large");
    assert_eq!(e.fault, Fault::Limit);
    // Coordinates at the ends of 64 bits are outside the view, and nothing overflows.
    let far = "
kernel @far(%a: view<gmem, ?x?xf32>, %n: i64) {
  %x = tiled_load %a[%n, %n] : tile<16x32xf32>
  tiled_store %x, %a[%n, %n]
}";
    let Ok(module) = parse_module(far) else { panic!("does not parse") };
    for n in [i64::MAX, i64::MIN, i64::MAX / 16, -1] {
        let mut memory = Memory::new();
        let buffer = memory.add(Buffer::new(Scalar::F32, 64));
        let (sizes, strides) = ([8, 8][..].into(), [i64::MAX, i64::MAX][..].into());
        let view = Arg::View(View { buffer, offset: i64::MAX, sizes, strides, elem: Scalar::F32 });
        let done = run_sequential(
            &module.functions[0],
            [1, 1, 1],
            &[view, Arg::Int(n)],
            &mut memory,
            &Limits::default(),
        );
        assert!(done.is_ok(), "{n}: {done:?}");
    }
}
