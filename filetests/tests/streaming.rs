//! Kernels that stream use their memory as an expert's would: on rows of whole 128 bytes at least nine tenths of the sectors they
//! touch, and no bank conflict. Products leave their registers as matrices.
//!
//! The kernels and their first cases are those of `examples/kernels`, with extents rounded up so that rows are whole; the
//! emulator counts.

use serde_json::{Value, json};
use std::path::Path;
use tileas_codegen::{Context, Settings, Stage};
use tileas_filetests::execute::{Forms, RunCase, execute};

/// Loads and stores.
const BOTH: &[&str] = &[
    "adam",
    "add",
    "batch_norm_inference",
    "clamp_i8",
    "column_max",
    "column_sums",
    "conv1d_depthwise",
    "cross_entropy_backward",
    "cumulative_sums",
    "dequantise_e4m3",
    "dropout",
    "embedding",
    "gelu_erf",
    "gelu_tanh",
    "gelu_tanh_backward",
    "group_norm",
    "hard_swish_bf16",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_welford",
    "linear_recurrence",
    "log_softmax",
    "log_sum_exp",
    "masked_fill",
    "mean_pool",
    "normalise_l2",
    "quantise_i8",
    "quantise_rows_e4m3",
    "relu_squared_f16",
    "rms_norm",
    "rms_norm_backward",
    "rope_halves",
    "rope_pairs",
    "rotary_inplace",
    "silu_and_mul",
    "softmax_backward",
    "softmax_online",
    "softmax_rows",
    "softmax_wide",
    "stencil",
    "swap_heads",
    "top1_gating",
    "transpose",
];

/// Loads: what they store is a number for each of a few rows, or goes through atomics.
const LOADS: &[&str] = &[
    "argmax_pairs",
    "argmax_rows",
    "count_positive",
    "cross_entropy",
    "histogram",
    "l1_norm_rows",
    "mean_rows_f16",
    "row_sums",
    "scatter_add",
    "sum_all",
    "variance_rows",
];

/// The first case of a kernel, as it is written.
fn first_case(text: &str) -> Value {
    let mut lines = text.lines().skip_while(|l| !l.starts_with("; case:"));
    let mut json = lines.next().expect("a case")["; case:".len()..].to_owned();
    for more in lines.map_while(|l| l.strip_prefix(";+")) {
        json.push_str(more);
    }
    serde_json::from_str(&json).expect("a case is JSON")
}

/// An extent of whole rows; those that count rows or heads stay.
fn whole(extent: &Value) -> Value {
    let n = extent.as_u64().expect("extents are numbers");
    if n <= 16 || n.is_multiple_of(64) { json!(n) } else { json!(n.next_multiple_of(128)) }
}

/// The products whose fragments are stored for bulk copies.
const PRODUCTS: &[&str] =
    &["gemm_bf16", "gemm_f16_tn", "gemm_grouped", "gemm_persistent_tiles", "attention_d64"];

/// Runs the first case of a kernel under what is asked of its memory; its PTX.
fn check(name: &str, target: &str, stats: Value) -> anyhow::Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../examples/kernels/{name}.tileas"));
    let text = std::fs::read_to_string(path)?;
    let mut case = first_case(&text);
    for view in case["views"].as_object_mut().expect("views").values_mut() {
        let extents: Vec<Value> = view["shape"].as_array().expect("a shape").iter().map(whole).collect();
        view["shape"] = extents.into();
    }
    let case_object = case.as_object_mut().expect("an object");
    // Formulas may count on the extents; the filetest has them.
    case_object.remove("expect");
    case_object.remove("written");
    case_object.insert("stats".into(), stats);
    case_object.insert("seeds".into(), json!([1]));
    let case = RunCase::parse(&case.to_string())?;

    let (isa, settings) = (tileas_isa::isa_for_cpu(target)?, Settings::default());
    let mut context = Context::new();
    let module = context.parse(&text, &settings).map_err(|e| anyhow::anyhow!("{e:?}"))?;
    let run = context.run_to(Stage::Metadata, &module, &*isa, &settings);
    let run = run.map_err(|e| anyhow::anyhow!("{e:?}"))?;
    let forms = Forms {
        source: &module.functions[0],
        materialized: run.kernels[0].materialized.as_ref().expect("the kernel has agents"),
        ptx: &run.text(Stage::Ptx),
        metadata: &run.text(Stage::Metadata),
    };
    execute(&forms, &[case])?;
    Ok(forms.ptx.to_owned())
}

#[test]
fn streaming_kernels_waste_no_sectors_and_meet_no_conflicts() {
    let loads = json!({"used_load": 0.9, "conflicts": 0});
    let both = json!({"used_load": 0.9, "used_store": 0.9, "conflicts": 0});
    let rows = BOTH.iter().map(|name| (name, &both)).chain(LOADS.iter().map(|name| (name, &loads)));
    let wrong: Vec<String> = rows
        .filter_map(|(name, stats)| {
            Some(format!("{name}: {:#}", check(name, "sm_100a", stats.clone()).err()?))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn products_are_stored_as_matrices_without_conflicts() {
    for name in PRODUCTS {
        let ptx = check(name, "sm_90a", json!({"conflicts": 0})).expect("runs right");
        let count = |what: &str| ptx.lines().filter(|l| l.contains(what)).count();
        // Four registers an instruction.
        assert!(count("stmatrix.sync.aligned.m8n8.x4.shared") >= 4, "{name}");
        assert_eq!(count("st.shared"), 0, "{name}");
    }
}
