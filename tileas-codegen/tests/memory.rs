//! What is tried where a kernel needs more memory than there is, and what lies in one place in loops.

use tileas_codegen::ir::{AttrData, Function, Op, Opcode, keys};
use tileas_codegen::testing::materialize::verify_materialized;
use tileas_codegen::{Code, Context, Settings, Stage};

/// The first kernel of a file below the root of the repository, materialised with the options that it sets, and one more.
fn materialized(path: &str, cpu: &str, more: Option<&str>) -> Function {
    let isa = tileas_isa::isa_for_cpu(cpu).expect("a processor");
    let text = std::fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).expect("a file");
    let mut settings = Settings::builder();
    for line in text.lines().filter_map(|l| l.strip_prefix("; set ")).chain(more) {
        settings.set_pair(line.trim()).expect("a setting");
    }
    let (mut context, settings) = (Context::new(), settings.finish());
    let module = context.parse(&text, &settings).expect("text");
    let mut run = context.run_to(Stage::Materialized, &module, &*isa, &settings).expect("a kernel");
    assert!(run.warnings.is_empty(), "{path}: {:?}", run.warnings);
    run.kernels.remove(0).materialized.expect("that stage")
}

/// By name of a buffer: where it lies, and its slots.
fn buffer(f: &Function, name: &str) -> (i64, u32) {
    let is = |op: &_| f.result(*op).is_some_and(|v| f.value_name(v) == Some(name));
    let op = f.all_ops().into_iter().find(is).expect("a buffer");
    let slots = f.result(op).and_then(|v| f.value_data(v).dims()?.first().copied());
    (f.attr_int(op, keys::OFFSET).expect("an offset"), slots.expect("slots"))
}

/// In attention the probabilities take the slots of the keys when the scores are there, where a slot of keys is handed back with its values: behind
/// the product that reads the probabilities. Their ring has as many slots then.
#[test]
fn webs_of_one_loop_that_take_turns_lie_in_one_place() {
    for (path, keys_, probabilities, bytes) in [
        ("examples/attention_fwd.tileas", "W2", "W5", 197_760),
        ("filetests/filetests/kernels/causal_attention_d128.tileas", "W2", "W5", 197_760),
        ("filetests/filetests/kernels/softcap_attention_d128.tileas", "W2", "W5", 197_760),
        ("filetests/filetests/kernels/softmax_attention_d128.tileas", "W2", "W5", 197_760),
        // Fewer rows of probabilities than keys: the smaller tile lies in the larger one, and both have one slot.
        ("filetests/filetests/compose/paged_attention.tileas", "W2", "W5", 44_128),
    ] {
        let f = materialized(path, "sm_100a", None);
        assert_eq!(buffer(&f, keys_), buffer(&f, probabilities), "{path}");
        let asked = f.attrs.get(keys::DYNAMIC_SMEM).map(|a| f.attr_data(a));
        assert!(matches!(asked, Some(AttrData::Int(n, _)) if *n == bytes), "{path}: {asked:?}");
    }
    // Keys that are freed before that product, and what it reads with the probabilities, stay apart from them; so do two slots of keys that
    // are half as large as the probabilities.
    for (path, more, others) in [
        ("examples/kernels/attention_d128.tileas", None, ["W2", "W4"]),
        ("examples/attention_fwd.tileas", None, ["W0", "W3"]),
        ("filetests/filetests/kernels/softmax_attention_d64.tileas", Some("pipeline-depth=2"), ["W2", "W3"]),
    ] {
        let f = materialized(path, "sm_100a", more);
        assert!(others.iter().all(|w| buffer(&f, w).0 != buffer(&f, "W5").0), "{path}");
    }
}

/// The proof sees no access to what warps hand to each other inside of an op: nothing may lie there.
#[test]
fn nothing_lies_where_warps_hand_tiles_to_each_other() {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a processor");
    let f = materialized("examples/kernels/attention_decode.tileas", "sm_100a", None);
    let is = |op: &_| f.opcode(*op) == Opcode::AllocTensor && f.has_attr(*op, keys::SCRATCH);
    let scratch = f.all_ops().into_iter().find(is).expect("warps that do");
    assert!(verify_materialized(&f, &*isa).is_ok());
    let mut over = f.clone();
    over.set_int(scratch, keys::OFFSET, buffer(&f, "W4").0);
    let errors = verify_materialized(&over, &*isa).expect_err("it lies in a ring");
    assert_eq!(errors[0].code, Code::E0708, "{errors:?}");
}

/// Sums of 512 columns and scores of 64: the scores lie in the other lanes of the columns of sums.
#[test]
fn accumulators_of_64_rows_share_columns_by_lanes() {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a processor");
    let f = materialized("filetests/filetests/kernels/mla_decode.tileas", "sm_100a", None);
    let is = |op: &Op| f.opcode(*op) == Opcode::AllocTensor && f.has_attr(*op, keys::COLUMN);
    let buffers: Vec<Op> = f.all_ops().into_iter().filter(is).collect();
    let place = |op: &Op| {
        (f.attr_int(*op, keys::LANE).expect("half"), f.attr_int(*op, keys::COLUMN).expect("a column"))
    };
    let lower: Vec<i64> = buffers.iter().map(place).filter(|p| p.0 == 0).map(|p| p.1).collect();
    let upper: Vec<i64> = buffers.iter().map(place).filter(|p| p.0 == 16).map(|p| p.1).collect();
    assert_eq!(lower.len() + upper.len(), buffers.len());
    assert!(lower.iter().any(|c| upper.contains(c)), "{lower:?} {upper:?}");
    assert!(verify_materialized(&f, &*isa).is_ok());
    let first = *buffers.iter().find(|op| place(op) == (0, 0)).expect("the first column");
    let other = *buffers.iter().find(|op| place(op) == (16, 0)).expect("the same column");
    // In the lanes of another buffer, and in lanes that none of 64 rows has.
    for (op, lane) in [(other, 0), (first, 16), (first, 8)] {
        let mut damaged = f.clone();
        damaged.set_int(op, keys::LANE, lane);
        assert!(verify_materialized(&damaged, &*isa).is_err(), "{op} in lane {lane}");
    }
}

/// On sm_90a; there is no smaller kernel of which that is known.
#[test]
fn loops_that_do_not_fit_overlapped_run_one_iteration_after_the_other() {
    let isa = tileas_isa::isa_for_cpu("sm_90a").expect("a processor");
    let (mut context, settings) = (Context::new(), Settings::default());
    let module = context.parse(include_str!("memory_without_overlap.tileas"), &settings).expect("text");
    let run = context.run_to(Stage::Ptx, &module, &*isa, &settings).expect("it fits in the end");
    assert!(run.warnings.iter().any(|w| w.code == Code::W0406), "{:?}", run.warnings);
    let required = settings.with("require-pipelining", "true").expect("a setting");
    let errors =
        context.run_to(Stage::Ptx, &module, &*isa, &required).err().expect("it does not fit overlapped");
    assert_eq!(errors[0].code, Code::E0602);
}
