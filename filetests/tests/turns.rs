//! Persistent matrix products whose warpgroups take turns: drawn orders of tiles, extents, epilogues and numbers of CTAs run as their source does, agent by agent and
//! as PTX. Those that may take turns do: the draw is of kernels in which nothing stands against it but registers.

use tileas_codegen::ir::Opcode;
use tileas_codegen::{Context, Settings, Stage};
use tileas_filetests::Header;
use tileas_filetests::execute::{Forms, execute};

/// Numbers below a bound, one after the other (xorshift).
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// A kernel and its cases, as a file of `test run` has them.
fn kernel(seed: u64) -> String {
    let mut d = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    d.below(2);
    let (m, n, k) = (d.of(&[64, 128]), d.of(&[32, 64, 128]), d.of(&[32, 64]));
    let order = d.of(&["rows", "grouped(3)", "grouped(8)", "hilbert(4)"]);
    let (bias, residual, sums, doubled) =
        (d.below(2) == 0, d.below(3) == 0, d.below(4) == 0, d.below(4) == 0);
    let (rows, columns, trips) = (1 + d.below(3 * m), 8 * (1 + d.below(3 * n / 8)), d.below(8));
    let depth = 8 * (1 + (trips * k / 8).saturating_sub(1 + d.below(k / 8)));
    let tiles = rows.div_ceil(m) * columns.div_ceil(n);
    let (mut params, mut views, mut body, mut sum) = (String::new(), String::new(), String::new(), "%acc");
    let mut view = |name: &str, shape: &str, elem: &str, init: &str| {
        views +=
            &format!(", \"{name}\": {{\"shape\": [{shape}], \"dtype\": \"{elem}\", \"init\": \"{init}\"}}");
    };
    let f32s = format!("tile<{m}x{n}xf32>");
    if bias {
        params += ", %bias: view<gmem, ?xf32>";
        view("bias", &columns.to_string(), "f32", "ints");
        body += &format!(
            "    %bt = tiled_load %bias[%j] : tile<{n}xf32>\n    %b1 = reshape %bt : tile<1x{n}xf32>\n    %bb = broadcast %b1 : {f32s}\n    \
             %e1 = addf {sum}, %bb : {f32s}\n"
        );
        sum = "%e1";
    }
    if residual {
        params += ", %res: view<gmem, ?x?xf32>";
        // Rows of TMA are multiples of 16 bytes.
        view("res", &format!("{rows}, {columns}"), "f32", "ints");
        body += &format!("    %rt = tiled_load %res[%i, %j] : {f32s}\n    %e2 = addf {sum}, %rt : {f32s}\n");
        sum = "%e2";
    }
    if sums {
        params += ", %sums: view<gmem, ?xf32>";
        view("sums", &(tiles * m).to_string(), "f32", "nan");
        body += &format!(
            "    %st = reduce {sum} <{{axis = 1, mode = add}}> : tile<{m}xf32>\n    %s0 = muli %i, %nt\n    %s1 = addi %s0, %j\n    \
             tiled_store %st, %sums[%s1]\n"
        );
    }
    let twice = match doubled {
        true => format!("\n      %ta = addf %t0, %t0 : tile<{m}x{k}xf16>"),
        false => String::new(),
    };
    let ta = if doubled { "%t0" } else { "%ta" };
    let grid = 1 + d.below(4);
    format!(
        "; test run\n; case: {{\"views\": {{\"a\": {{\"shape\": [{rows}, {depth}], \"dtype\": \"f16\"}}, \"b\": {{\"shape\": [{columns}, {depth}], \"dtype\": \"f16\"}}, \
         \"c\": {{\"shape\": [{rows}, {columns}], \"dtype\": \"f16\", \"init\": \"nan\"}}{views}}}, \"scalars\": {{\"kt\": {trips}}}, \"grid\": [{grid}], \"seeds\": [{seed}]}}\n\
         kernel @turns(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf16>{params}, %kt: i32) {{\n  \
         %first = program_id <{{axis = 0}}> : i32\n  %ctas = num_programs <{{axis = 0}}> : i32\n  \
         %rows = dim %c <{{axis = 0}}> : i32\n  %columns = dim %c <{{axis = 1}}> : i32\n  \
         %mt = divi %rows, {m} <{{rounding = positive_inf}}>\n  %nt = divi %columns, {n} <{{rounding = positive_inf}}>\n  \
         %tiles = muli %mt, %nt : i32\n  %z = constant 0.0 : {f32s}\n  for %tile = %first to %tiles step %ctas {{\n    \
         %at = tile_order %tile, %mt, %nt <{{order = {order}}}>\n    %i = divi %at, %nt\n    %j = remi %at, %nt\n    \
         %acc = for %k = 0 to %kt step 1 iter (%s = %z : {f32s}) {{\n      {ta} = tiled_load %a[%i, %k] : tile<{m}x{k}xf16>{twice}\n      \
         %tb = tiled_load %b[%j, %k] : tile<{n}x{k}xf16>\n      %r = dot %ta, %tb, %s <{{transpose_b}}> : {f32s}\n      yield %r\n    }}\n\
         {body}    %o = ftof {sum} : tile<{m}x{n}xf16>\n    tiled_store %o, %c[%i, %j]\n  }}\n  return\n}}\n"
    )
}

#[test]
fn drawn_products_in_turns_do_what_their_source_does() {
    let settings = Settings::default().with("target", "sm_90a").expect("a target");
    let (mut context, mut turns) = (Context::new(), 0);
    const ALL: u64 = 24;
    for seed in 1..=ALL {
        let text = kernel(seed);
        let module = context.parse(&text, &settings).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let isa = tileas_isa::isa_for(&module, &settings).expect("a target");
        let run = context.run_to(Stage::Metadata, &module, &*isa, &settings);
        let run = run.unwrap_or_else(|e| panic!("{e}\n{text}"));
        let (ptx, metadata) = (run.text(Stage::Ptx), run.text(Stage::Metadata));
        let materialized = run.kernels[0].materialized.as_ref().expect("the kernel has agents");
        let gives = |op| materialized.opcode(op) == Opcode::AsyncPipelineGiveTurn;
        turns += u64::from(materialized.ops().any(gives));
        let cases = Header::parse(&text).expect("a header").cases;
        let forms = Forms { source: &module.functions[0], materialized, ptx: &ptx, metadata: &metadata };
        execute(&forms, &cases).unwrap_or_else(|e| panic!("seed {seed}: {e:#}\n{text}"));
    }
    // A whole tile more in registers is too much for one warpgroup.
    assert!(turns * 3 >= ALL * 2, "{turns} of {ALL}");
}
