//! What kernels print: tiles of every shape and element type, as nested lists, on each family of processors.
//!
//! The text that is expected is made here, from the numbers of the elements; a kernel counts its elements and converts the numbers.

use std::fmt::Write;
use tileas_codegen::{Context, Settings, Stage};
use tileas_filetests::execute::{Forms, RunCase, execute};

/// Compiles the text for a target and runs the case in all ways.
fn check(text: &str, target: &str, case: &str) -> anyhow::Result<()> {
    let mut builder = Settings::builder();
    builder.set("target", target)?;
    let settings = builder.finish();
    let mut context = Context::new();
    let module = context.parse(text, &settings).map_err(|e| anyhow::anyhow!("{e}"))?;
    let isa = tileas_isa::isa_for(&module, &settings)?;
    let run =
        context.run_to(Stage::Metadata, &module, &*isa, &settings).map_err(|e| anyhow::anyhow!("{e}"))?;
    let forms = Forms {
        source: &module.functions[0],
        materialized: run.kernels[0].materialized.as_ref().expect("the kernel has agents"),
        ptx: &run.text(Stage::Ptx),
        metadata: &run.text(Stage::Metadata),
    };
    execute(&forms, &[RunCase::parse(case)?])
}

/// Elements as nested lists.
fn lists(dims: &[usize], from: usize, element: &dyn Fn(usize) -> String) -> String {
    let Some((&first, rest)) = dims.split_first() else { return element(from) };
    let step: usize = rest.iter().product();
    let parts: Vec<String> = (0..first).map(|n| lists(rest, from + n * step, element)).collect();
    format!("[{}]", parts.join(", "))
}

/// `%v`: the number of each element, from `from` on.
fn numbered(dims: &[usize], from: i64) -> String {
    let shape = |dims: &[usize]| dims.iter().map(|d| format!("{d}x")).collect::<String>();
    let mut text = format!("  %v = constant <{{value = {from}}}> : tile<{}i32>\n", shape(dims));
    for (axis, &d) in dims.iter().enumerate() {
        let step: usize = dims[axis + 1..].iter().product();
        let mut flat = vec![1; dims.len()];
        flat[axis] = d;
        let _ = writeln!(text, "  %i{axis} = iota : tile<{d}xi32>");
        let _ = writeln!(text, "  %m{axis} = muli %i{axis}, {step}");
        let _ = writeln!(text, "  %r{axis} = reshape %m{axis} : tile<{}i32>", shape(&flat));
        let _ = writeln!(text, "  %b{axis} = broadcast %r{axis} : tile<{}i32>", shape(dims));
        let before = if axis == 0 { "v".to_owned() } else { format!("v{}", axis - 1) };
        let _ = writeln!(text, "  %v{axis} = addi %{before}, %b{axis}");
    }
    text
}

/// A conversion of `%v…` to an element type, a specification, and what that prints of a number.
type Row = (&'static str, &'static str, &'static str, fn(i64) -> String);

const ELEMENTS: &[Row] = &[
    ("i32", "", "%d", |n| n.to_string()),
    ("i32", "", "%#6x", |n| format!("{:>6}", if n == 0 { "0".into() } else { format!("{:#x}", n as i32) })),
    ("i8", "trunci", "%i", |n| (n as i8).to_string()),
    ("i8", "trunci", "%u", |n| (n as u8).to_string()),
    ("i16", "trunci", "%hx", |n| format!("{:x}", n as u16)),
    ("i16", "trunci", "%+d", |n| format!("{:+}", n as i16)),
    ("i64", "exti", "%-4ld|", |n| format!("{n:<4}|")),
    ("f32", "itof", "%.2f", |n| format!("{:.2}", n as f64)),
    ("f16", "itof", "%g", |n| n.to_string()),
    ("bf16", "itof", "%5.1f", |n| format!("{:5.1}", n as f64)),
    ("f64", "itof", "%e", |n| {
        let text = format!("{:.6e}", n as f64);
        let (m, e) = text.split_once('e').unwrap();
        let e: i32 = e.parse().unwrap();
        format!("{m}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs())
    }),
];

fn kernel(dims: &[usize], from: i64, row: &Row) -> (String, String) {
    let &(elem, convert, spec, print) = row;
    let last = dims.len().checked_sub(1).map_or("v".to_owned(), |n| format!("v{n}"));
    let shape: String = dims.iter().map(|d| format!("{d}x")).collect();
    let mut text = format!("kernel @k(%n: i32) {{\n{}", numbered(dims, from));
    let value = if convert.is_empty() {
        last
    } else {
        let _ = writeln!(text, "  %e = {convert} %{last} : tile<{shape}{elem}>");
        "e".to_owned()
    };
    let (spec, behind) = spec.split_at(spec.rfind(|c: char| c.is_ascii_alphabetic()).unwrap() + 1);
    let _ = write!(
        text,
        "  print %n, %{value}, %n <{{format = \"%d: {spec} of %%{behind}%d\\n\"}}>\n  return\n}}\n"
    );
    let element = |n: usize| -> String {
        let text = print(from + n as i64);
        text.strip_suffix('|').unwrap_or(&text).to_owned()
    };
    (text, format!("3: {} of %{behind}3\n", lists(dims, 0, &element)))
}

fn all(cases: impl Iterator<Item = (Vec<usize>, Row)>) {
    let mut wrong = Vec::new();
    for (dims, row) in cases {
        let (text, want) = kernel(&dims, -5, &row);
        let case = serde_json::json!({"scalars": {"n": 3}, "grid": [1], "printed": want, "seeds": [1]});
        for target in ["sm_100a", "sm_90a"] {
            if let Err(e) = check(&text, target, &case.to_string()) {
                wrong.push(format!("{target} {dims:?} {}: {e:#}\n{text}", row.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn elements_of_each_type_are_printed() {
    all(ELEMENTS.iter().map(|&row| (vec![2, 4], row)));
}

#[test]
fn tiles_of_any_shape_are_lists() {
    let shapes: &[&[usize]] = &[
        &[],
        &[1],
        &[2],
        &[32],
        &[64],
        &[128],
        &[1, 1],
        &[4, 1],
        &[1, 8],
        &[8, 64],
        &[128, 32],
        &[16, 256],
        &[2, 1, 4],
        &[2, 2, 2, 2],
        &[1, 2, 1, 2, 1],
        &[4, 64, 2],
    ];
    all(shapes.iter().flat_map(|dims| [0, 6].map(|n| (dims.to_vec(), ELEMENTS[n]))));
}

/// A tile that does not fit memory goes there in rounds.
#[test]
fn large_tiles_are_printed_whole() {
    all([(vec![128, 64], ELEMENTS[0]), (vec![64, 128], ELEMENTS[6])].into_iter());
}
