//! Agents and placement: text in, placed text out, compared with the files in `tests/place/`.
//!
//! `TILEAS_BLESS=1` rewrites the expected files; every rewrite is to be read, not trusted. Independent of the
//! expected text, each placed kernel must pass the verifier and the properties in [`check_properties`].

use std::path::PathBuf;
use tileas_codegen::ir::opcodes::Traits;
use tileas_codegen::ir::{
    Function, Layout, Opcode, Space, layouts, parse_module, print_function, verify_function,
};
use tileas_codegen::testing::agents::{Agent, AgentKind, AgentOptions, AgentPlan, plan_agents};
use tileas_codegen::testing::place::{PlaceOptions, place};

fn read(text: &str) -> Function {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    module.functions.into_iter().next().expect("one kernel")
}

fn run(text: &str) -> Result<(Function, AgentPlan), tileas_codegen::CodegenError> {
    let func = read(text);
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let plan = plan_agents(&func, &*isa, &AgentOptions::default())?;
    place(&func, &plan, &*isa, &PlaceOptions::default())
}

/// What holds for every placed kernel, whatever it computes.
fn check_properties(name: &str, func: &Function, plan: &AgentPlan) {
    let errors = verify_function(func);
    assert!(errors.is_empty(), "{name}: {errors:#?}\n{}", print_function(func));
    let warps = plan.agents.values().find(|a| a.kind == AgentKind::Simt).map_or(4, |a| a.warps);
    for op in func.all_ops() {
        let opcode = func.opcode(op);
        let blocks = (0..func.regions(op).len()).filter_map(|r| func.op_block_at(op, r));
        let params: Vec<_> = blocks.flat_map(|b| func.block_params(b).to_vec()).collect();
        for &v in func.results(op).iter().chain(&params) {
            let data = func.value_data(v);
            if !data.is_tile() {
                continue;
            }
            let (Some(space), Some(layout)) = (data.space(), data.layout()) else {
                panic!("{name}: {opcode:?} has an unplaced tile\n{}", print_function(func));
            };
            let fits = match space {
                Space::Rmem => layout.is_register(),
                Space::Smem => layout.swizzle().is_some(),
                Space::Tmem => matches!(layout, Layout::Tmem128 | Layout::Tmem64),
                Space::Gmem => false,
            };
            assert!(fits, "{name}: {data}");
            if space == Space::Rmem {
                let regs =
                    layouts::registers_per_thread(layout, data.dims().unwrap(), data.elem().unwrap(), warps);
                // A vector that is a row and a column at once keeps its chain whole.
                let most = if name == "vector_both_ways" { 255 } else { 64 };
                assert!(regs.is_some_and(|r| r <= most), "{name}: {data} takes {regs:?}");
            }
        }
        let spaces: Vec<_> = func
            .operands(op)
            .iter()
            .chain(func.results(op))
            .filter(|&&v| func.value_data(v).is_tile())
            .filter_map(|&v| func.value_data(v).space())
            .collect();
        let kind = plan.op_agent[op].expand().map(|a: Agent| plan.agents[a].kind);
        let want = match opcode {
            Opcode::AsyncDot => Some(AgentKind::Mma),
            Opcode::AsyncTiledTmaLoad => Some(AgentKind::Load),
            Opcode::For | Opcode::If | Opcode::Constant | Opcode::Splat | Opcode::Iota => None,
            Opcode::AllocTensor => None,
            o if o.has(Traits::TERMINATOR) => None,
            Opcode::AsyncTiledTmaStore => {
                assert!(matches!(kind, Some(AgentKind::Simt | AgentKind::Store)), "{name}: {opcode:?}");
                kind
            }
            Opcode::TiledLoad | Opcode::TiledStore => Some(AgentKind::Simt),
            _ if !spaces.is_empty() => Some(AgentKind::Simt),
            _ => None,
        };
        assert_eq!(kind, want, "{name}: {}", opcode.name());
        if opcode == Opcode::AsyncDot {
            assert_eq!(spaces, [Space::Smem, Space::Smem, Space::Tmem, Space::Tmem], "{name}");
        }
        assert_ne!(opcode, Opcode::Dot);
    }
}

fn golden(name: &str) {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/place");
    let text = std::fs::read_to_string(dir.join(format!("{name}.tileas"))).expect("input");
    let (func, plan) = run(&text).unwrap_or_else(|e| panic!("{name}: {e} at {:?}", e.line_column(&text)));
    let mut got = String::new();
    for (agent, info) in &plan.agents {
        got += &format!(
            "; {agent} {} warps {}+{} max_regs {}\n",
            info.kind.name(),
            info.first_warp,
            info.warps,
            info.max_regs
        );
    }
    got += &format!("; threads {} entry cap {}\n", plan.num_threads, plan.entry_reg_cap);
    got += &print_function(&func);
    let file = dir.join(format!("{name}.placed"));
    if std::env::var_os("TILEAS_BLESS").is_some() {
        std::fs::write(&file, &got).expect("writable");
    }
    check_properties(name, &func, &plan);
    let want = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(got == want, "{name}: expected\n{want}\ngot\n{got}");
    // Same input, same bytes.
    let (again, _) = run(&text).expect("placed before");
    assert_eq!(print_function(&again), print_function(&func));
}

macro_rules! goldens {
    ($($name:ident)*) => { $(#[test] fn $name() { golden(stringify!($name)); })* };
}

goldens! {
    simple persistent wide small_m64 f32_output bf16 no_loop two_accumulators nonzero_init elementwise
    if_in_loop scaled_accumulator computed_operand tma_to_registers column_bias vector register_carry
    constant_init in_place old_accumulator tile_copy scaled_small vector_both_ways arms piece
}

fn code(text: &str) -> String {
    match run(text) {
        Ok((f, _)) => panic!("placed:\n{}", print_function(&f)),
        Err(e) => e.code.as_str().to_string(),
    }
}

/// A kernel with one dot; `changes` are replacements in its text.
fn dot_kernel(changes: &[(&str, &str)]) -> String {
    let mut text = "kernel @k(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf32>) {
  %i0 = constant 0 : i32
  %da = make_tiled_tma_desc %a <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %db = make_tiled_tma_desc %b <{box = [64, 64], swizzle = b128}> : tma_desc<64x64xf16>
  %z = constant 0.0 : tile<128x64xf32>
  %ta = async.tiled_tma_load %da[%i0, %i0] : tile<128x64xf16>
  %tb = async.tiled_tma_load %db[%i0, %i0] : tile<64x64xf16>
  %p = async.dot %ta, %tb, %z <{transpose_b}> : tile<128x64xf32>
  tiled_store %p, %c[%i0, %i0]
  return
}
"
    .to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

#[test]
fn impossible_kernels_are_refused() {
    // No instruction for 32 rows.
    let rows = [("[128, 64]", "[32, 64]"), ("<128x64x", "<32x64x")];
    assert_eq!(code(&dot_kernel(&rows)), "E0502");
    // Rows of 64 bytes under a 128-byte swizzle.
    let narrow = [
        ("[128, 64]", "[128, 32]"),
        ("128x64xf16", "128x32xf16"),
        ("[64, 64]", "[64, 32]"),
        ("64x64xf16", "64x32xf16"),
    ];
    assert_eq!(code(&dot_kernel(&narrow)), "E0504");
    // Extents that are no powers of two have no layout: E0506.
    let odd = "kernel @k(%c: view<gmem, ?x?xf32>, %d: view<gmem, ?xf32>) {
  %i0 = constant 0 : i32
  %t = tiled_load %c[%i0, %i0] : tile<96x64xf32>
  %u = reduce %t <{mode = add, axis = 0}> : tile<64xf32>
  tiled_store %u, %d[%i0]
  return
}
";
    assert_eq!(code(odd), "E0506");
    // One tile as it is loaded, and stored under another swizzle.
    let twice = "kernel @k(%a: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf16>) {
  %i0 = constant 0 : i32
  %da = make_tiled_tma_desc %a <{box = [64, 64], swizzle = b128}> : tma_desc<64x64xf16>
  %dc = make_tiled_tma_desc %c <{box = [64, 64], swizzle = b64}> : tma_desc<64x64xf16>
  %ta = async.tiled_tma_load %da[%i0, %i0] : tile<64x64xf16>
  async.tiled_tma_store %dc[%i0, %i0], %ta
  return
}
";
    assert_eq!(code(twice), "E0503");
    // A row mix-up that would need 512 registers.
    let mixed = "kernel @k(%c: view<gmem, ?x?xf32>, %d: view<gmem, ?x?xf32>) {
  %i0 = constant 0 : i32
  %t = tiled_load %c[%i0, %i0] : tile<128x512xf32>
  %u = reshape %t : tile<256x256xf32>
  tiled_store %u, %d[%i0, %i0]
  return
}
";
    assert_eq!(code(mixed), "E0507");
    // What is placed cannot be placed again.
    let (placed, _) = run(&dot_kernel(&[])).unwrap();
    assert_eq!(code(&print_function(&placed)), "E0501");
}

#[test]
fn agents_take_the_warps_they_need() {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let two = "kernel @two(%c: view<gmem, ?xf32>, %d: view<gmem, ?xf32>) {
  %i = program_id <{axis = 0}> : i32
  %t = tiled_load %c[%i] : tile<1024xf32>
  tiled_store %t, %d[%i]
  %u = tiled_load %c[%i] : tile<256xf32>
  tiled_store %u, %c[%i]
  return
}
";
    // The second store writes the view both chains read: one component, whatever the options.
    let many = AgentOptions { max_simt_agents: Some(4), ..AgentOptions::default() };
    assert_eq!(plan_agents(&read(two), &*isa, &many).unwrap().num_threads, 128);
    let apart = two
        .replace("%u, %c", "%u, %d")
        .replace("%t, %d", "%t, %e")
        .replace(") {", ", %e: view<gmem, ?xf32>) {");
    let plan = plan_agents(&read(&apart), &*isa, &many).unwrap();
    assert_eq!(plan.agents.values().map(|a| a.first_warp).collect::<Vec<_>>(), [0, 4]);
    assert_eq!(plan_agents(&read(&apart), &*isa, &AgentOptions::default()).unwrap().num_threads, 128);
    // Three register agents leave 144 registers at entry: those who issue, and two warps more, give some of theirs.
    let three = dot_kernel(&[
        (
            ") {",
            ", %x: view<gmem, ?xf32>, %y: view<gmem, ?xf32>, %u: view<gmem, ?xf32>, %v: view<gmem, ?xf32>) {",
        ),
        (
            "  return",
            "  %tx = tiled_load %x[%i0] : tile<256xf32>
  tiled_store %tx, %y[%i0]
  %tu = tiled_load %u[%i0] : tile<256xf32>
  tiled_store %tu, %v[%i0]
  return",
        ),
    ]);
    let plan = plan_agents(&read(&three), &*isa, &many).unwrap();
    let regs: Vec<u32> = plan.agents.values().map(|a| a.max_regs).collect();
    assert_eq!((plan.num_threads, plan.entry_reg_cap, regs), (512, 128, vec![152, 152, 152, 40, 40]));
    // What the CTA has at launch is all there is.
    let total: u32 = plan.agents.values().map(|a| a.warps * 32 * a.max_regs).sum();
    assert!(total + 2 * 32 * 40 <= 512 * 128);
    let fixed = AgentOptions { max_regs: Some(128), ..many };
    let plan = plan_agents(&read(&three), &*isa, &fixed).unwrap();
    assert!(plan.num_threads == 448 && plan.agents.values().all(|a| a.max_regs == 0));
    // Sixteen warps and one leave 96, as registers are given out to four warps at a time; those who issue give some of theirs.
    let wide = AgentOptions { simt_warps: 16, ..AgentOptions::default() };
    let loop_text = "kernel @k(%a: view<gmem, ?x?xf32>, %c: view<gmem, ?x?xf32>) {
  %da = make_tiled_tma_desc %a <{box = [128, 32], swizzle = b128}> : tma_desc<128x32xf32>
  %x = async.tiled_tma_load %da[0, 0] : tile<128x32xf32>
  tiled_store %x, %c[0, 0]
}";
    let plan = plan_agents(&read(loop_text), &*isa, &wide).unwrap();
    let regs: Vec<u32> = plan.agents.values().map(|a| a.max_regs).collect();
    assert_eq!((plan.num_threads, plan.entry_reg_cap, regs), (640, 96, vec![104, 40]));
    // Tensor memory belongs to four warps.
    let error = plan_agents(&read(&dot_kernel(&[])), &*isa, &wide).unwrap_err();
    assert!(error.code.as_str() == "E0508" && error.message.contains("simt-warps"), "{error}");
}
