//! Agents and placement: text in, placed text out, compared with the files in `tests/place/`.
//!
//! `TILEAS_BLESS=1` rewrites the expected files; every rewrite is to be read, not trusted. Independent of the
//! expected text, each placed kernel must pass the verifier and the properties in [`check_properties`].

use std::path::PathBuf;
use tileas_codegen::agents::{Agent, AgentKind, AgentOptions, AgentPlan, plan_agents};
use tileas_codegen::ir::opcodes::Traits;
use tileas_codegen::ir::parser::parse_module;
use tileas_codegen::ir::printer::print_function;
use tileas_codegen::ir::verifier::verify_function;
use tileas_codegen::ir::{Function, Layout, Opcode, Space, layouts};
use tileas_codegen::place::{PlaceOptions, place};

fn read(text: &str) -> Function {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e} at {:?}", e.line_column(text)));
    module.functions.into_iter().next().expect("one kernel")
}

fn run(text: &str) -> Result<(Function, AgentPlan), tileas_codegen::CodegenError> {
    let func = read(text);
    let isa = tileas_isa_blackwell::isa_for_cpu("sm_100a").expect("known cpu");
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
                assert!(regs.is_some_and(|r| r <= 64), "{name}: {data} takes {regs:?}");
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
    constant_init in_place old_accumulator tile_copy
}
