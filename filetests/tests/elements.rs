//! Every element-wise op with every element type: computes what the source says, or is refused by name.
//!
//! One kernel per row loads its operands, at tile extents that do not divide those of the views, computes, and stores. Types
//! that cannot be loaded come from i32 by a conversion and go back by one. What compiles is executed in program order, agent by
//! agent and as PTX; what does not must be what the table below says, with a code, a place, the op and the type.

use tileas_codegen::error::Loc;
use tileas_codegen::ir::Scalar;
use tileas_codegen::{Code, Context, Errors, Settings, Stage};
use tileas_filetests::execute::{Forms, RunCase, execute};

const INTS: [&str; 5] = ["i1", "i8", "i16", "i32", "i64"];
const FLOATS: [&str; 4] = ["f16", "bf16", "f32", "f64"];
/// Types without arithmetic.
const BARE: [&str; 4] = ["tf32", "e4m3", "e5m2", "ue8m0"];
/// Functions of one number.
const FUNCTIONS: [&str; 7] = ["sin", "cos", "tan", "sinh", "cosh", "tanh", "erf"];
/// Extents of tiles, and of the views around.
const SHAPES: [(&[u32], &[u32]); 5] = [
    (&[64, 32], &[70, 45]),
    (&[128, 64], &[128, 64]),
    (&[256], &[300]),
    (&[16, 8], &[33, 7]),
    (&[1, 64, 16], &[1, 65, 20]),
];

fn is_float(ty: &str) -> bool {
    ty.starts_with(['f', 'b', 't', 'e', 'u'])
}

fn bits(ty: &str) -> u32 {
    ty.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
}

/// Whether tiles of the type are loaded and stored.
fn in_memory(ty: &str) -> bool {
    matches!(ty, "i8" | "i16" | "i32" | "i64" | "f16" | "bf16" | "f32" | "f64")
}

/// One row: an op on operands of `from` with a result of `to`.
struct Row {
    op: String,
    attrs: &'static str,
    operands: usize,
    from: &'static str,
    to: &'static str,
}

impl Row {
    fn new(op: &str, attrs: &'static str, operands: usize, from: &'static str, to: &'static str) -> Row {
        Row { op: op.to_owned(), attrs, operands, from, to }
    }

    /// The type that a refusal names, where the op is to be refused.
    fn refused(&self) -> Option<&'static str> {
        if self.op == "ftof" {
            return BARE.into_iter().find(|b| *b == self.to).filter(|_| self.from == "f64");
        }
        // Bits of 8-bit types are only named otherwise.
        if self.op == "bitcast" && [self.from, self.to].contains(&"i8") {
            return None;
        }
        if let Some(bare) = BARE.into_iter().find(|b| [self.from, self.to].contains(b)) {
            return Some(bare);
        }
        let order = self.op == "cmpi" && self.attrs.contains("lt");
        let no_i1 = ["divi", "remi", "maxi", "mini", "shli", "shri", "negi", "absi", "mulhii"];
        if self.from == "i1" && (order || no_i1.contains(&self.op.as_str())) {
            return Some("i1");
        }
        if self.from == "f64" && self.attrs.contains("approx") {
            return Some("f64");
        }
        (self.op == "ftoi" && self.to == "i1").then_some(self.to)
    }

    /// Whether the result is the rounded exact one.
    fn exact(&self) -> bool {
        let rounded = ["divf", "sqrt", "fma", "exp", "exp2", "log", "log2", "rsqrt"];
        !rounded.contains(&self.op.as_str())
            && !FUNCTIONS.contains(&self.op.as_str())
            && !["pow", "atan2"].contains(&self.op.as_str())
    }

    fn kernel(&self, tile: &[u32]) -> String {
        let (extents, views) = (extents(tile), "?x".repeat(tile.len()));
        let memory = |ty: &'static str| match (in_memory(ty), is_float(ty)) {
            (true, _) => ty,
            (false, true) => "f32",
            (false, false) => "i32",
        };
        let (from, to) = (memory(self.from), memory(self.to));
        let coords = ["0, %b, %c", "%b, %c", "%b"][3 - tile.len()];
        let mut text = format!("kernel @k(%x: view<gmem, {views}{from}>, %y: view<gmem, {views}{from}>, ");
        text += &format!("%z: view<gmem, {views}{from}>, %o: view<gmem, {views}{to}>) {{\n");
        text += "  %b = program_id <{axis = 0}> : i32\n  %c = program_id <{axis = 1}> : i32\n";
        let mut line = |value: &str, op: &str, args: String, ty: &str| {
            text += &format!("  %{value} = {op} {args} : tile<{extents}x{ty}>\n");
        };
        let mut names = Vec::new();
        for v in ["x", "y", "z"].into_iter().take(self.operands) {
            line(&format!("{v}0"), "tiled_load", format!("%{v}[{coords}]"), from);
            let mut name = format!("%{v}0");
            if !is_float(from) {
                // Numbers all over the range; as amounts of shifts, some beyond the width.
                let by = match (v, from) {
                    ("x", "i8") => 77,
                    ("x", ty) if ty != "i1" => 2741,
                    _ => 1,
                };
                line(&format!("{v}1"), "muli", format!("{name}, {by}"), from);
                name = format!("%{v}1");
                if v == "y" && ["divi", "remi"].contains(&self.op.as_str()) {
                    line("y2", "ori", format!("{name}, 1"), from);
                    name = "%y2".to_owned();
                }
            }
            if from != self.from {
                let op = match (is_float(from), bits(self.from) < 32) {
                    (true, _) => "ftof",
                    (false, true) => "trunci",
                    (false, false) => "exti",
                };
                line(&format!("{v}3"), op, name, self.from);
                name = format!("%{v}3");
            }
            names.push(name);
        }
        match self.op.as_str() {
            "select" => {
                line("m", "cmpi", "%x0, 7 <{predicate = lt}>".to_owned(), "i1");
                line("r", "select", format!("%m, {}, {}", names[0], names[1]), self.to);
            }
            op => line("r", op, format!("{}{}", names.join(", "), self.attrs), self.to),
        }
        let mut result = "r";
        if to != self.to {
            let op = match (is_float(to), bits(self.to) < 32) {
                (true, _) => "ftof",
                (false, true) => "exti",
                (false, false) => "trunci",
            };
            line("s", op, "%r".to_owned(), to);
            result = "s";
        }
        text + &format!("  tiled_store %{result}, %o[{coords}]\n  return\n}}\n")
    }

    fn case(&self, tile: &[u32], view: &[u32]) -> String {
        let memory = |ty: &str| match (in_memory(ty), is_float(ty)) {
            (true, _) => ty.to_owned(),
            (false, float) => if float { "f32" } else { "i32" }.to_owned(),
        };
        let (from, to) = (memory(self.from), memory(self.to));
        let positive =
            ["exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "pow"].contains(&self.op.as_str());
        let init = if !is_float(&from) {
            "ramp"
        } else if positive {
            "uniform"
        } else if self.op.starts_with("fto") || self.op.starts_with("cmp") {
            "special"
        } else {
            "normal"
        };
        let one = |name: &str, ty: &str, init: &str| {
            format!("\"{name}\": {{\"shape\": {view:?}, \"dtype\": \"{ty}\", \"init\": \"{init}\"}}")
        };
        let views =
            [one("x", &from, init), one("y", &from, init), one("z", &from, init), one("o", &to, "zeros")];
        let last = tile.len() - 1;
        let grid: Vec<u32> = match tile.len() {
            1 => vec![view[0].div_ceil(tile[0])],
            _ => vec![view[last - 1].div_ceil(tile[last - 1]), view[last].div_ceil(tile[last])],
        };
        let tol = match (self.exact(), self.to) {
            (true, _) => "exact",
            // 4 ulp and those of the reference.
            (false, "f64") => "2^-49",
            _ => "2^-6",
        };
        let views = views.join(", ");
        format!(
            "{{\"views\": {{{views}}}, \"scalars\": {{}}, \"seeds\": [1], \"grid\": {grid:?}, \"tol\": \"{tol}\"}}"
        )
    }
}

fn extents(tile: &[u32]) -> String {
    tile.iter().map(u32::to_string).collect::<Vec<_>>().join("x")
}

/// All ops and types.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let unsigned = " <{unsigned}>";
    for ty in INTS {
        for op in ["addi", "subi", "muli", "andi", "ori", "xori", "shli", "mulhii"] {
            rows.push(Row::new(op, "", 2, ty, ty));
        }
        for op in ["divi", "remi", "maxi", "mini", "shri"] {
            rows.push(Row::new(op, "", 2, ty, ty));
            rows.push(Row::new(op, unsigned, 2, ty, ty));
        }
        for rounding in [" <{rounding = negative_inf}>", " <{rounding = positive_inf}>"] {
            rows.push(Row::new("divi", rounding, 2, ty, ty));
        }
        rows.push(Row::new("divi", " <{rounding = positive_inf, unsigned}>", 2, ty, ty));
        rows.push(Row::new("negi", "", 1, ty, ty));
        rows.push(Row::new("absi", "", 1, ty, ty));
        rows.push(Row::new("popci", "", 1, ty, ty));
        rows.push(Row::new("select", "", 2, ty, ty));
        for attrs in [" <{predicate = eq}>", " <{predicate = lt}>", " <{predicate = lt, unsigned}>"] {
            rows.push(Row::new("cmpi", attrs, 2, ty, "i1"));
        }
        for to in FLOATS {
            rows.push(Row::new("itof", "", 1, ty, to));
            rows.push(Row::new("itof", unsigned, 1, ty, to));
            rows.push(Row::new("ftoi", "", 1, to, ty));
            rows.push(Row::new("ftoi", unsigned, 1, to, ty));
        }
        for to in INTS {
            if bits(to) > bits(ty) {
                rows.push(Row::new("exti", "", 1, ty, to));
                rows.push(Row::new("exti", unsigned, 1, ty, to));
            } else if bits(to) < bits(ty) {
                rows.push(Row::new("trunci", "", 1, ty, to));
            }
        }
    }
    for (from, to) in [("i16", "f16"), ("f16", "bf16"), ("bf16", "i16"), ("i32", "f32"), ("f32", "i32")] {
        rows.push(Row::new("bitcast", "", 1, from, to));
    }
    for (from, to) in
        [("f32", "tf32"), ("tf32", "i32"), ("i8", "e4m3"), ("e5m2", "i8"), ("i64", "f64"), ("f64", "i64")]
    {
        rows.push(Row::new("bitcast", "", 1, from, to));
    }
    for ty in FLOATS.into_iter().chain(BARE) {
        for op in ["addf", "subf", "mulf", "divf", "maxf", "minf"] {
            rows.push(Row::new(op, "", 2, ty, ty));
        }
        rows.push(Row::new("maxf", " <{propagate_nan}>", 2, ty, ty));
        rows.push(Row::new("fma", "", 3, ty, ty));
        for op in ["negf", "absf", "exp", "exp2", "log", "log2", "sqrt", "rsqrt"].into_iter().chain(FUNCTIONS)
        {
            rows.push(Row::new(op, "", 1, ty, ty));
        }
        for op in ["floor", "ceil", "roundeven"] {
            rows.push(Row::new(op, "", 1, ty, ty));
        }
        rows.push(Row::new("sin", " <{approx}>", 1, ty, ty));
        rows.push(Row::new("tanh", " <{rounding = approx}>", 1, ty, ty));
        for op in ["pow", "atan2", "remf"] {
            rows.push(Row::new(op, "", 2, ty, ty));
        }
        rows.push(Row::new("cmpf", " <{predicate = lt}>", 2, ty, "i1"));
        rows.push(Row::new("cmpf", " <{predicate = lt, unordered}>", 2, ty, "i1"));
        for to in FLOATS.into_iter().chain(BARE) {
            rows.push(Row::new("ftof", "", 1, ty, to));
        }
    }
    rows
}

/// Compiles and executes a row, or says why it was refused.
fn run(row: &Row, tile: &[u32], view: &[u32], context: &mut Context) -> Result<(), Errors> {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
    let (text, settings) = (row.kernel(tile), Settings::default().with("verify-passes", "true")?);
    let module = context.parse(&text, &settings).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let run = context.run_to(Stage::Metadata, &module, &*isa, &settings)?;
    let cases = [RunCase::parse(&row.case(tile, view)).expect("a case")];
    let (ptx, metadata) = (run.text(Stage::Ptx), run.text(Stage::Metadata));
    let materialized = run.kernels[0].materialized.as_ref().expect("the kernel has agents");
    let forms = Forms { source: &module.functions[0], materialized, ptx: &ptx, metadata: &metadata };
    execute(&forms, &cases).unwrap_or_else(|e| panic!("{e:#}\n{text}"));
    Ok(())
}

/// Runs rows, and compares what is refused with the table.
fn sweep(rows: &[Row], shapes: &[(&[u32], &[u32])]) {
    let (mut context, mut wrong, mut computed) = (Context::new(), Vec::new(), 0);
    for row in rows {
        for (tile, view) in shapes {
            let name = format!("{}{} {} to {} {tile:?}", row.op, row.attrs, row.from, row.to);
            match (run(row, tile, view, &mut context), row.refused()) {
                (Ok(()), None) => computed += 1,
                (Ok(()), Some(_)) => wrong.push(format!("{name}: accepted")),
                (Err(e), None) => wrong.push(format!("{name}: {}", e[0])),
                (Err(errors), Some(ty)) => {
                    let told = errors.iter().all(|e| {
                        e.code == Code::E0802
                            && e.location != Loc::NONE
                            && e.message.contains(&format!(" {ty}"))
                            && (e.message.contains(&format!("`{}`", row.op)) || e.message.contains("`ftof`"))
                    });
                    if !told {
                        wrong.push(format!("{name}: {}", errors[0]));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(computed * 2 > rows.len() * shapes.len(), "{computed} of {} rows compile", rows.len());
}

#[test]
fn every_op_and_type_computes_or_is_refused_by_name() {
    sweep(&rows(), &SHAPES[..1]);
}

#[test]
fn every_type_at_other_extents() {
    let rows = rows().into_iter().filter(|r| {
        ["addi", "addf", "select"].contains(&r.op.as_str()) && r.refused().is_none()
            || ["itof", "ftoi"].contains(&r.op.as_str()) && r.from == "i16"
    });
    sweep(&rows.collect::<Vec<_>>(), &SHAPES[1..]);
}

/// Types of which a byte holds two.
fn packed() -> Vec<&'static str> {
    Scalar::ALL.iter().filter(|(s, _)| s.is_packed()).map(|&(_, name)| name).collect()
}

/// Conversions of packed types: `from`, `to`, the op.
fn conversions(ty: &'static str) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut all = Vec::new();
    if is_float(ty) {
        for other in FLOATS.into_iter().chain(["e4m3", "e5m2"]) {
            all.extend([(ty, other, "ftof"), (other, ty, "ftof")]);
        }
    } else {
        for other in &INTS[1..] {
            all.extend([(ty, *other, "exti"), (ty, *other, "exti <{unsigned}>"), (*other, ty, "trunci")]);
        }
        all.extend(FLOATS.into_iter().flat_map(|f| [(ty, f, "itof"), (ty, f, "itof <{unsigned}>")]));
    }
    all.extend(packed().into_iter().map(|other| (ty, other, "bitcast")));
    all
}

/// Tensors of packed elements are bytes, of which a row has half as many.
#[test]
fn packed_types_are_moved_and_converted() {
    let mut context = Context::new();
    let settings = Settings::default().with("verify-passes", "true").expect("a setting");
    let (mut at, targets) = (0, ["sm_100a", "sm_90a"]);
    for ty in packed() {
        for (from, to, op) in conversions(ty) {
            let (name, attrs) = op.split_once(' ').unwrap_or((op, ""));
            let text = format!(
                "kernel @k(%x: view<gmem, ?x?x{from}>, %o: view<gmem, ?x?x{to}>) {{\n  %b = program_id <{{axis = 0}}> : i32\n  %c = program_id <{{axis = 1}}> : i32\n  \
                 %t = tiled_load %x[%b, %c] : tile<64x32x{from}>\n  %r = {name} %t {attrs} : tile<64x32x{to}>\n  tiled_store %r, %o[%b, %c]\n  return\n}}\n"
            );
            let tensor = |name: &str, of: &'static str, init: &str| {
                let half = packed().contains(&of);
                let (columns, dtype) = if half { (24, "i8") } else { (48, of) };
                format!(
                    "\"{name}\": {{\"shape\": [70, {columns}], \"dtype\": \"{dtype}\", \"init\": \"{init}\"}}"
                )
            };
            let init = match from {
                _ if packed().contains(&from) => "-128..128",
                f if is_float(f) => "special",
                _ => "ramp",
            };
            let case = format!(
                "{{\"views\": {{{}, {}}}, \"scalars\": {{}}, \"seeds\": [1], \"grid\": [2, 2], \"tol\": \"exact\"}}",
                tensor("x", from, init),
                tensor("o", to, "zeros")
            );
            let isa = tileas_isa::isa_for_cpu(targets[at % 2]).expect("a processor");
            at += 1;
            let module = context.parse(&text, &settings).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let run = context.run_to(Stage::Metadata, &module, &*isa, &settings);
            let run = run.unwrap_or_else(|e| panic!("{e}\n{text}"));
            let cases = [RunCase::parse(&case).expect("a case")];
            let (ptx, metadata) = (run.text(Stage::Ptx), run.text(Stage::Metadata));
            let materialized = run.kernels[0].materialized.as_ref().expect("the kernel has agents");
            let forms = Forms { source: &module.functions[0], materialized, ptx: &ptx, metadata: &metadata };
            execute(&forms, &cases).unwrap_or_else(|e| panic!("{e:#}\n{text}"));
        }
    }
}

fn refusal(text: &str, context: &mut Context) -> Errors {
    let (isa, settings) = (tileas_isa::isa_for_cpu("sm_100a").expect("a processor"), Settings::default());
    let module = context.parse(text, &settings).unwrap_or_else(|e| panic!("{e}\n{text}"));
    context.compile(&module, &*isa, &settings).err().unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn packed_types_do_not_compute() {
    let mut context = Context::new();
    for ty in packed() {
        let ops = match is_float(ty) {
            true => ["addf %t, %t", "negf %t", "exp %t", "cmpf %t, %t <{predicate = lt}>"],
            false => ["addi %t, %t", "shli %t, %t", "negi %t", "cmpi %t, %t <{predicate = eq}>"],
        };
        let bodies = ops
            .iter()
            .map(|op| format!("%r = {op} : tile<64x32x{}>", if op.starts_with("cmp") { "i1" } else { ty }));
        let more = [
            format!("%r = reduce %t <{{mode = add, axis = 1}}> : tile<64x{ty}>"),
            format!("%r = {} : tile<64x32x{ty}>", if is_float(ty) { "sqrt %t" } else { "ftoi %f" }),
            format!("%r = gather %x[%i, %i] : tile<64x1x{ty}>"),
            "print %t <{format = \"%d\"}>".to_owned(),
        ];
        for body in bodies.chain(more) {
            let text = format!(
                "kernel @k(%x: view<gmem, ?x?x{ty}>) {{\n  %t = tiled_load %x[0, 0] : tile<64x32x{ty}>\n  %f = constant 1.0 : tile<64x32xf32>\n  \
                 %j = iota : tile<64xi32>\n  %i = reshape %j : tile<64x1xi32>\n  {body}\n  return\n}}\n"
            );
            let errors = refusal(&text, &mut context);
            let e = &errors[0];
            assert!(e.code == Code::E0202 && e.location != Loc::NONE && e.message.contains(ty), "{e}");
            assert!(e.message.contains("converts them"), "{e}");
        }
        for (text, code) in [
            (format!("kernel @k(%x: {ty}) {{ return }}"), Code::E0202),
            (format!("kernel @k(%x: view<gmem, ?x33x{ty}>) {{ return }}"), Code::E0211),
            (
                format!(
                    "kernel @k(%x: view<gmem, ?x?x{ty}>) {{ %t = tiled_load %x[0, 0] : tile<64x1x{ty}> return }}"
                ),
                Code::E0213,
            ),
            (
                format!("kernel @k(%x: view<gmem, ?x?x{ty}>) {{ %t = tiled_load %x[0, 0] : {ty} return }}"),
                Code::E0213,
            ),
        ] {
            let errors = refusal(&text, &mut context);
            assert!(errors[0].code == code, "{}", errors[0]);
        }
    }
}

/// Ops that are not element by element, as the body of a kernel on a tile `%t` of the type with the extents given, and what they are called.
fn whole_tiles(ty: &str) -> Vec<(&'static str, String)> {
    let e = "64x32";
    let (add, max) = match ty {
        "i1" => ("addi", "ori"),
        _ if is_float(ty) => ("addf", "maxf"),
        _ => ("addi", "maxi"),
    };
    let by = format!("by = (%a: {ty}, %b: {ty}) {{ %c = {max} %a, %b yield %c }}");
    let product = format!(
        "%d = dot %t, %w, %z <{{transpose_b}}> : tile<128x64x{}>",
        if ty == "i8" { "i32" } else { "f32" }
    );
    vec![
        ("`tiled_load`, `tiled_store`", "tiled_store %t, %o[0, 0]".into()),
        (
            "`gather`, `scatter`",
            format!("%g = gather %x[%n, %n] : tile<64x1x{ty}>\n  scatter %g, %o[%n, %n]"),
        ),
        (
            "`select`",
            "%c = cmpi %rows, 3 <{predicate = lt}>\n  %s = select %c, %t, %t\n  tiled_store %s, %o[0, 0]"
                .into(),
        ),
        (
            "shape ops",
            format!(
                "%u = permute %t <{{permutation = [1, 0]}}> : tile<32x64x{ty}>\n  %q = reshape %u : tile<{e}x{ty}>\n  tiled_store %q, %o[0, 0]"
            ),
        ),
        (
            "`reduce` `add`",
            format!(
                "%r = reduce %t <{{mode = add, axis = 1}}> : tile<64x{ty}>\n  %q = reshape %r : tile<64x1x{ty}>\n  tiled_store %q, %o[0, 0]"
            ),
        ),
        (
            "`reduce` `max`, `min`",
            format!(
                "%r = reduce %t <{{mode = max, axis = 0}}> : tile<32x{ty}>\n  %q = reshape %r : tile<1x32x{ty}>\n  tiled_store %q, %o[0, 0]"
            ),
        ),
        (
            "`combine`",
            format!(
                "%r = combine %t <{{axis = 1, {by}}}> : tile<64x{ty}>\n  %q = reshape %r : tile<64x1x{ty}>\n  tiled_store %q, %o[0, 0]"
            ),
        ),
        ("`scan`", format!("%r = scan %t <{{axis = 0, {by}}}> : tile<{e}x{ty}>\n  tiled_store %r, %o[0, 0]")),
        (
            "`atomic_rmw` of tiles, adding",
            format!("%r = atomic_rmw %t, %o[%rows, %columns] <{{mode = {add}}}> : tile<{e}x{ty}>"),
        ),
        (
            "`dot`",
            format!(
                "%w = tiled_load %x[0, 0] : tile<64x64x{ty}>\n  %z = constant 0 : tile<128x64x{0}>\n  %l = tiled_load %x[0, 0] : tile<128x64x{ty}>\n  {1}\n  tiled_store %d, %p[0, 0]",
                if ty == "i8" { "i32" } else { "f32" },
                product.replace("%t", "%l")
            ),
        ),
    ]
}

/// Whether a kernel around these ops compiles.
fn compiles(ty: &str, body: &str, context: &mut Context) -> bool {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
    let acc = if ty == "i8" { "i32" } else { "f32" };
    let text = format!(
        "kernel @k(%x: view<gmem, ?x?x{ty}>, %o: view<gmem, ?x?x{ty}>, %p: view<gmem, ?x?x{acc}>) {{\n  %t = tiled_load %x[0, 0] : tile<64x32x{ty}>\n  \
         %i = iota : tile<64xi32>\n  %n = reshape %i : tile<64x1xi32>\n  %rows = reshape %i : tile<64x1xi32>\n  %j = iota : tile<32xi32>\n  \
         %columns = reshape %j : tile<1x32xi32>\n  {body}\n  return\n}}\n"
    );
    let Ok(module) = context.parse(&text, &Settings::default()) else { return false };
    context.compile(&module, &*isa, &Settings::default()).is_ok()
}

/// Whether tiles of that rank are loaded, computed on, reduced and stored.
fn has_rank(rank: usize, context: &mut Context) -> bool {
    let dims = |n: usize| format!("{}x", ["2", "4", "2", "4", "8"][..n].join("x"));
    let (views, at) = ("?x".repeat(rank), vec!["0"; rank].join(", "));
    let left = if rank == 1 { String::new() } else { dims(rank - 1) };
    let text = format!(
        "kernel @k(%x: view<gmem, {views}f32>, %y: view<gmem, {views}f32>) {{\n  %t = tiled_load %x[{at}] : tile<{0}f32>\n  \
         %m = reduce %t <{{mode = add, axis = {1}}}> : tile<{left}f32>\n  %n = mulf %m, 2.0\n  %r = reshape %n : tile<{left}1xf32>\n  \
         %b = broadcast %r : tile<{0}f32>\n  %u = addf %t, %b\n  tiled_store %u, %y[{at}]\n  return\n}}\n",
        dims(rank),
        rank - 1,
    );
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
    let module = context.parse(&text, &Settings::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    context.compile(&module, &*isa, &Settings::default()).is_ok()
}

/// The table of what computes on which type, as the tests above find it.
fn table() -> String {
    let types: Vec<&str> = INTS.into_iter().chain(FLOATS).chain(BARE).chain(packed()).collect();
    let mut text = String::from(
        "# Types of elements\n\nWhat code is generated for, on the default target: `x`. Everything else is refused with a code, most of it `E0202`, `E0802` or `E0215`. \
         Tiles have any rank from 0 to 5 but\nfor those of `dot`, which have 2. Of conversions the column is what is converted. Written by a test that compiles each (`filetests/tests/elements.rs`; how each rounds: [ops.md](ops.md)).\n\n",
    );
    let mut row = |name: &str, has: &dyn Fn(&str) -> bool| {
        text += &format!("| {name}{}|", if name.is_empty() { "" } else { " " });
        types.iter().for_each(|ty| text += if has(ty) { " x |" } else { " |" });
        text.push('\n');
    };
    row("", &|_| false);
    let all = rows();
    let mut names: Vec<&str> = Vec::new();
    for r in &all {
        if !names.contains(&r.op.as_str()) && r.op != "select" {
            names.push(&r.op);
        }
    }
    for name in names {
        let of = |ty: &str| {
            let mut of = all.iter().filter(|r| r.op == name && r.from == ty).peekable();
            let mut packed = packed().into_iter().filter(|p| *p == ty).flat_map(conversions);
            let converts = packed.any(|c| c.0 == ty && c.2.split(' ').next() == Some(name));
            converts || of.peek().is_some() && of.any(|r| r.refused().is_none())
        };
        row(&format!("`{name}`"), &of);
    }
    let mut context = Context::new();
    assert!((1..=5).all(|rank| has_rank(rank, &mut context)), "ranks are as the page says");
    let found: Vec<Vec<(&str, bool)>> = types
        .iter()
        .map(|ty| whole_tiles(ty).into_iter().map(|(n, b)| (n, compiles(ty, &b, &mut context))).collect())
        .collect();
    for (n, (name, _)) in found[0].iter().enumerate() {
        row(name, &|ty| types.iter().position(|t| *t == ty).is_some_and(|at| found[at][n].1));
    }
    let head = format!(
        "| |{}\n|---|{}\n",
        types.iter().map(|t| format!(" {t} |")).collect::<String>(),
        "---|".repeat(types.len())
    );
    let blank = format!("| |{}\n", " |".repeat(types.len()));
    text.replacen(&blank, &head, 1)
}

#[test]
fn the_page_of_types_is_up_to_date() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/types.md");
    let now = table();
    if std::env::var_os("TILEAS_BLESS").is_some() {
        std::fs::write(&path, &now).expect("can be written");
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(page == now, "docs/types.md differs; TILEAS_BLESS=1 rewrites it:\n{now}");
}
