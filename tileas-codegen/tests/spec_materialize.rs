//! The page "Scheduler Overview", its half on materialisation, statement by statement, where no narrower test holds it already;
//! `docs/spec-tests.md` lists both. What is expected was written down by hand: who does what in which order is read off the materialised
//! kernel as a list of words, and nothing of the planner is asked.

use tileas_codegen::ir::{
    AttrData, Block, Function, Op, Opcode, Sym, Value, ValueDef, keys, parse_module, print_function,
};
use tileas_codegen::isa::SharedIsa;
use tileas_codegen::schedule::CycleModel;
use tileas_codegen::testing::agents::{AgentKind, AgentOptions, AgentPlan, plan_agents};
use tileas_codegen::testing::buffers::{BufferAssignment, BufferOptions, Key, PipeKind, assign_buffers};
use tileas_codegen::testing::ddg::{LoopSchedule, ScheduleAnalysis};
use tileas_codegen::testing::materialize::{materialize, verify_materialized};
use tileas_codegen::testing::place::{PlaceOptions, place};
use tileas_codegen::{Code, Context, Settings, Stage, StageRun};

/// Constraints of ops that must not overlap their group, and of ops that may.
const SERIAL: &str = "tileas.schedule.constraint.gid = 1, tileas.schedule.constraint.leader_gid = 1, tileas.schedule.constraint.force_serial_execution";
const GROUP: &str = "tileas.schedule.constraint.gid = 1, tileas.schedule.constraint.leader_gid = 1";

fn isa() -> SharedIsa {
    tileas_isa::isa_for_cpu("sm_100a").expect("known cpu")
}

/// The text of a kernel whose views are f16, but for `%d`, with descriptors of two of them.
fn kernel(body: &str) -> String {
    format!(
        "kernel @k(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf16>, %d: view<gmem, ?x?xf32>, %e: view<gmem, ?x?xf32>, %kt: i32) {{
  %bm = program_id <{{axis = 0}}> : i32
  %bn = program_id <{{axis = 1}}> : i32
  %da = make_tiled_tma_desc %a <{{box = [128, 64], swizzle = b128}}> : tma_desc<128x64xf16>
  %db = make_tiled_tma_desc %b <{{box = [128, 64], swizzle = b128}}> : tma_desc<128x64xf16>
  %z = constant 0.0 : tile<128x128xf32>
{body}
  return
}}
"
    )
}

/// A product of two loads over `%kt`; what stands in braces is put behind the two loads and the product.
fn gemm(tags: [&str; 3]) -> String {
    let [a, b, n] = tags;
    kernel(&format!(
        "  %p = for %i = 0 to %kt step 1 iter (%s = %z : tile<128x128xf32>) {{
    %ta = async.tiled_tma_load %da[%bm, %i] <{{{a}}}> : tile<128x64xf16>
    %tb = async.tiled_tma_load %db[%bn, %i] <{{{b}}}> : tile<128x64xf16>
    %n = async.dot %ta, %tb, %s <{{transpose_b{n}}}> : tile<128x128xf32>
    yield %n : tile<128x128xf32>
  }}
  %h = ftof %p : tile<128x128xf16>
  tiled_store %h, %c[%bm, %bn]"
    ))
}

/// Two products a turn onto accumulators of their own, of one load and two others.
fn two_products() -> String {
    kernel(
        "  %g, %u = for %i = 0 to %kt step 1 iter (%s = %z : tile<128x128xf32>, %t = %z : tile<128x128xf32>) {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16>
    %tb = async.tiled_tma_load %db[%bn, %i] : tile<128x64xf16>
    %tc = async.tiled_tma_load %db[%bm, %i] : tile<128x64xf16>
    %n = async.dot %ta, %tb, %s <{transpose_b}> : tile<128x128xf32>
    %m = async.dot %ta, %tc, %t <{transpose_b}> : tile<128x128xf32>
    yield %n, %m : tile<128x128xf32>, tile<128x128xf32>
  }
  tiled_store %g, %d[%bm, %bn]
  tiled_store %u, %e[%bm, %bn]",
    )
}

/// A kernel as the passes leave it.
struct Made {
    func: Function,
    plan: AgentPlan,
    sched: ScheduleAnalysis,
    buffers: BufferAssignment,
    out: Function,
}

/// Through the driver.
fn made(text: &str, pairs: &[&str]) -> Made {
    let mut settings = Settings::builder();
    for pair in pairs {
        settings.set_pair(pair).expect("an option");
    }
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let run = Context::new().run_to(Stage::Materialized, &module, &*isa(), &settings.finish());
    let StageRun { mut kernels, .. } = run.unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let k = kernels.remove(0);
    Made {
        func: k.placed.expect("placed"),
        plan: k.plan.expect("agents"),
        sched: k.schedule.expect("a schedule"),
        buffers: k.buffers.expect("buffers"),
        out: k.materialized.expect("materialised"),
    }
}

/// With starts by hand for the ops of its loops that agents run, in program order; proven.
fn by_hand(text: &str, ii: u32, list: &[u32], opts: &BufferOptions) -> Made {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let func = module.functions.into_iter().next().expect("a kernel");
    let plan = plan_agents(&func, &*isa(), &AgentOptions::default()).expect("agents");
    let (func, plan) = place(&func, &plan, &*isa(), &PlaceOptions::default()).expect("placement");
    let mut sched = ScheduleAnalysis::default();
    for l in func.ops().filter(|&l| func.opcode(l) == Opcode::For && !func.is_slice_loop(l)) {
        let body = func.op_block_at(l, 0).expect("a body");
        let mut s = LoopSchedule { ii, stage_count: 1, model: CycleModel::Slot, ..LoopSchedule::default() };
        for op in func.block_ops(body).filter(|&op| plan.op_agent[op].is_some()) {
            s.start[op] = list[s.scheduled.len()];
            s.order[op] = s.scheduled.len() as u32;
            s.scheduled.push(op);
        }
        assert_eq!(s.scheduled.len(), list.len());
        sched.loops[l] = Some(Box::new(s));
    }
    let buffers = assign_buffers(&func, &plan, &sched, &*isa(), opts).expect("fits");
    let out = materialize(&func, &plan, &sched, &buffers).expect("materialises");
    verify_materialized(&out, &*isa()).unwrap_or_else(|e| panic!("{e:?}\n{}", print_function(&out)));
    Made { func, plan, sched, buffers, out }
}

fn note(f: &Function, op: Op, key: Sym) -> Option<u32> {
    match f.attr_data(f.inherent(op).get(key)?) {
        AttrData::Int(v, _) => u32::try_from(*v).ok(),
        _ => None,
    }
}

/// A file of the repository, without its folder above and the extension.
fn file(name: &str) -> String {
    let path = format!("{}/../{name}.tileas", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Takes the constraints of all ops away.
fn bare(func: &mut Function) {
    for op in func.all_ops() {
        for key in [keys::GID, keys::LEADER_GID, keys::MAX_DEPTH, keys::FORCE_SERIAL_EXECUTION] {
            func.inherent_mut(op).remove(key);
        }
    }
}

impl Made {
    /// The region of an agent.
    fn region(&self, agent: usize) -> Block {
        let is = |&op: &Op| self.out.opcode(op) == Opcode::AsyncPipelineAgentSwitch;
        let switch = self.out.ops().find(is).expect("a switch");
        self.out.op_block_at(switch, agent).expect("a region")
    }

    /// The number of the only agent of a kind.
    fn agent(&self, kind: AgentKind) -> usize {
        self.plan.agents.values().position(|a| a.kind == kind).expect("an agent")
    }

    /// The placed op that an op was made from.
    fn source(&self, op: Op) -> Option<Op> {
        self.func.ops().nth(note(&self.out, op, keys::ORIGIN)? as usize)
    }

    /// The name of the pipe that a channel op is about.
    fn pipe(&self, mut v: Value) -> String {
        let f = &self.out;
        loop {
            let inits = |l: Op, n: usize| f.named_segment(l, "inits")[n];
            v = match f.value_def(v) {
                ValueDef::Param(b, n) => inits(f.block_parent(b).expect("a loop"), n as usize - 1),
                ValueDef::Result(op, n) => match f.opcode(op) {
                    Opcode::AsyncPipelineCreatePipeline => {
                        return f.value_name(v).expect("a name").to_owned();
                    }
                    Opcode::For => inits(op, n as usize),
                    _ => f.operands(op)[0],
                },
            };
        }
    }

    /// What an agent does, in order: channel ops with their pipe, ops of the kernel by the name of what they make.
    fn program(&self, agent: usize) -> Vec<String> {
        let f = &self.out;
        let mut words = Vec::new();
        f.walk(self.region(agent), &mut |op| {
            let pipe = |word: &str| format!("{word} {}", self.pipe(f.operands(op)[0]));
            let word = match f.opcode(op) {
                Opcode::AsyncPipelineProducerAcquire if f.has_attr(op, keys::DRAIN) => return,
                Opcode::AsyncPipelineProducerAcquire => pipe("acquire"),
                Opcode::AsyncPipelineProducerCommit if f.has_attr(op, keys::TX) => pipe("announce"),
                Opcode::AsyncPipelineProducerCommit => pipe("commit"),
                Opcode::AsyncPipelineConsumerWait => pipe("wait"),
                Opcode::AsyncPipelineConsumerRelease => pipe("release"),
                Opcode::For => return,
                _ => {
                    let Some(source) = self.source(op) else { return };
                    let name = self.func.result(source).and_then(|v| self.func.value_name(v));
                    name.unwrap_or(self.func.opcode(source).name()).to_owned()
                }
            };
            words.push(word);
        });
        words
    }

    fn program_of(&self, kind: AgentKind) -> Vec<String> {
        self.program(self.agent(kind))
    }

    /// The ends of all pipes, in the order in which they are made.
    fn pipes(&self) -> Vec<String> {
        let f = &self.out;
        let create = |&op: &Op| f.opcode(op) == Opcode::AsyncPipelineCreatePipeline;
        let name = |&v: &Value| f.value_name(v).expect("a name").to_owned();
        f.ops().filter(create).flat_map(|op| f.results(op).iter().map(name).collect::<Vec<_>>()).collect()
    }
}

/// An agent runs the ops of its own and no others; what is uniform belongs to none. The switch says how many warps it has, where they
/// begin and whether one lane does it all.
#[test]
fn the_switch_parts_a_kernel_by_its_agents() {
    let mut seen = 0;
    for name in
        ["examples/attention_fwd", "examples/gemm_persistent", "filetests/filetests/execute/mutex_group"]
    {
        let m = made(&file(name), &[]);
        let f = &m.out;
        let mut found: Vec<(Op, usize)> = Vec::new();
        for agent in 0..m.plan.agents.len() {
            f.walk(m.region(agent), &mut |op| {
                let source = m.source(op).filter(|_| f.regions(op).is_empty());
                found.extend(source.map(|s| (s, agent)));
            });
        }
        for op in m.func.ops().filter(|&op| m.func.regions(op).is_empty()) {
            // A slice is a name for a part of a tile.
            if m.func.opcode(op) == Opcode::ExtractSlice {
                continue;
            }
            let Some(own) = m.plan.op_agent[op].expand() else { continue };
            seen += 1;
            let by: Vec<_> = found.iter().filter(|x| x.0 == op).map(|x| x.1 as u32).collect();
            assert!(!by.is_empty() && by.iter().all(|&a| a == own.as_u32()), "{name}: {op} in {by:?}");
        }
        let switch = f.ops().find(|&op| f.opcode(op) == Opcode::AsyncPipelineAgentSwitch).expect("a switch");
        let after: Vec<Opcode> =
            f.block_ops(f.entry()).skip_while(|&op| op != switch).map(|op| f.opcode(op)).collect();
        assert_eq!(after, [Opcode::AsyncPipelineAgentSwitch, Opcode::Return], "{name}");
    }
    assert!(seen > 50, "{seen}");
    // Four warps compute; a lane loads, another one issues products.
    let m = made(&gemm([""; 3]), &[]);
    let text = print_function(&m.out);
    let line = text.lines().find(|l| l.contains("agent_switch")).expect("a switch");
    assert!(
        line.contains("num_warps = [4, 1, 1], warp_id = [0, 4, 5], lanes = [all, elect, elect]"),
        "{line}"
    );
    let words: Vec<usize> = (0..3).map(|a| m.program(a).len()).collect();
    assert_eq!(words, [10, 4, 5]);
}

/// Starts by hand, an II of 16: where an op stands in its agent's iteration, and of which iteration it is. `order` would have `tb` in
/// front of `tc`.
#[test]
fn starts_say_where_an_op_stands_and_of_which_iteration_it_is() {
    let m = by_hand(&two_products(), 16, &[0, 8, 20, 24, 28], &BufferOptions::default());
    let f = &m.out;
    let notes = |kind| {
        let mut out: Vec<(String, u32, u32, u32)> = Vec::new();
        f.walk(m.region(m.agent(kind)), &mut |op| {
            let Some(start) = note(f, op, keys::START) else { return };
            let source = m.func.result(m.source(op).expect("an origin")).and_then(|v| m.func.value_name(v));
            let ii = std::iter::successors(f.op_parent(op), |&o| f.op_parent(o))
                .find_map(|l| note(f, l, keys::II));
            let local = note(f, op, keys::LOCAL).unwrap_or(0);
            out.push((source.expect("a name").to_owned(), start, local, ii.expect("a loop")));
        });
        out
    };
    let at = |name: &str, start, local| (name.to_owned(), start, local, 16);
    // From 0 on: 4 cycles into the second turn is before 8 cycles into the first.
    assert_eq!(notes(AgentKind::Load), [at("ta", 0, 0), at("tc", 20, 1), at("tb", 8, 0)]);
    // An agent counts from its own first op.
    assert_eq!(notes(AgentKind::Mma), [at("n", 24, 0), at("m", 28, 0)]);
    // One slot is too few for an interval of 16: it is told, and nothing moves.
    let one = BufferOptions { max_depth: Some(1), ..BufferOptions::default() };
    let m = by_hand(&gemm([""; 3]), 16, &[0, 8, 16], &one);
    let l = m.func.ops().find(|&op| m.sched.loops[op].is_some()).expect("a loop");
    let loops = m.out.ops().filter(|&op| m.source(op) == Some(l)).map(|op| note(&m.out, op, keys::II));
    assert_eq!(loops.collect::<Vec<_>>(), [Some(16); 2]);
    let starts = m.out.ops().filter_map(|op| note(&m.out, op, keys::START)).collect::<Vec<_>>();
    assert_eq!((starts, m.buffers.ii_eff[l]), (vec![0, 8, 16], 24));
}

/// Every op that was scheduled is there with the start that it was given, in a loop of the interval that was found.
#[test]
fn what_is_written_is_what_was_scheduled() {
    let mut seen = 0;
    for name in ["examples/attention_fwd", "examples/gemm_f16", "filetests/filetests/stages/skew_materialize"]
    {
        let m = made(&file(name), &[]);
        let f = &m.out;
        for l in m.func.ops().filter(|&l| m.sched.loops[l].is_some()) {
            let s = m.sched.loops[l].as_deref().expect("a schedule");
            for op in f.ops().filter(|&op| m.source(op) == Some(l)) {
                assert_eq!(note(f, op, keys::II), Some(s.ii), "{name}: {l}");
            }
            for &op in s.scheduled.iter().filter(|&&op| m.func.regions(op).is_empty()) {
                let made: Vec<Op> = f.ops().filter(|&o| m.source(o) == Some(op)).collect();
                assert!(!made.is_empty(), "{name}: {op} is gone");
                for o in made {
                    seen += 1;
                    assert_eq!(note(f, o, keys::START), Some(s.start[op]), "{name}: {op}");
                }
            }
        }
    }
    assert!(seen > 20, "{seen}");
}

/// Loops with local stages are what they say of themselves: a guard, a bound or a skew that says something else is refused.
#[test]
fn guards_that_let_other_iterations_through_are_refused() {
    // Of a lane a loop with guards, of threads a prologue, a loop and an epilogue.
    let rolled = by_hand(&two_products(), 16, &[0, 8, 20, 24, 28], &BufferOptions::default());
    let text = kernel(
        "  for %i = 0 to %kt step 1 {
    %x = tiled_load %d[%bm, %i] : tile<128x32xf32>
    %y = tiled_load %e[%bm, %i] : tile<128x32xf32>
    %u = addf %x, %y : tile<128x32xf32>
    tiled_store %u, %d[%bn, %i]
  }",
    );
    let peeled = by_hand(&text, 8, &[0, 4, 16, 24], &BufferOptions::default());
    for (name, m) in [("rolled", rolled), ("peeled", peeled)] {
        let mut tried = 0;
        for op in m.out.all_ops() {
            let mut wrong = m.out.clone();
            let guard = m.out.opcode(op) == Opcode::If && note(&m.out, op, keys::ORIGIN).is_none();
            if guard {
                // As if it were always there.
                let ty = m.out.value_type(m.out.operands(op)[0]);
                let one = wrong.make_op(Opcode::Constant, &[], &[], &[ty], m.out.op_loc(op));
                wrong.set_int(one, keys::VALUE, 1);
                wrong.insert_before(op, one);
                let v = wrong.results(one)[0];
                wrong.set_operand(op, 0, v);
            } else if let Some(skew) = note(&m.out, op, keys::SKEW) {
                let a = wrong.intern_attr(AttrData::Int(i64::from(skew) + 1, None));
                wrong.inherent_mut(op).set(keys::SKEW, a);
            } else {
                continue;
            }
            tried += 1;
            let errors = verify_materialized(&wrong, &*isa()).expect_err(name);
            assert!(errors.iter().any(|e| e.code == Code::E0710), "{name}: {op}: {errors:?}");
        }
        assert!(tried > 2, "{name}: {tried}");
    }
}

/// The problem a loop was scheduled as, bounds, status and table are not asked, and constraints of ops neither: without them the same
/// function comes out.
#[test]
fn starts_by_op_are_all_that_is_read() {
    let m = made(&gemm([SERIAL, "tileas.schedule.constraint.max_depth = 2", &format!(", {SERIAL}")]), &[]);
    let text = |func: &Function, sched: &ScheduleAnalysis, without: bool| {
        let mut out = materialize(func, &m.plan, sched, &m.buffers).expect("materialises");
        if without {
            bare(&mut out);
        }
        print_function(&out)
    };
    let starts = ScheduleAnalysis { loops: m.sched.loops.clone(), ..ScheduleAnalysis::default() };
    assert_eq!(text(&m.func, &starts, false), text(&m.func, &m.sched, false));
    let mut func = m.func.clone();
    bare(&mut func);
    assert!(
        text(&m.func, &m.sched, false).contains("max_depth") && !print_function(&func).contains("constraint")
    );
    assert_eq!(text(&func, &m.sched, true), text(&m.func, &m.sched, true));
    // Nor do buffers: of what was found for a loop they ask who excludes whom, and there is nothing else that they could not do without.
    let m = made(&gemm([""; 3]), &[]);
    let starts = ScheduleAnalysis { loops: m.sched.loops.clone(), ..ScheduleAnalysis::default() };
    let dump = |sched| {
        let ba = assign_buffers(&m.func, &m.plan, sched, &*isa(), &BufferOptions::default()).expect("fits");
        ba.dump(&m.func, &m.plan)
    };
    assert_eq!(dump(&starts), dump(&m.sched));
}

/// Two products onto one accumulator have one place and one pipe: it is acquired for the first and handed over behind the last. Loads that
/// one product reads have one pipe, and those of both, where all stand in front of the first.
#[test]
fn producers_of_one_tile_share_one_pipe() {
    let text = |first: &str, second: &str| {
        kernel(&format!(
            "  %ta = async.tiled_tma_load %da[%bm, 0] : tile<128x64xf16>
  %tb = async.tiled_tma_load %db[%bn, 0] : tile<128x64xf16>
{first}  %p = async.dot %ta, %tb, %z <{{transpose_b}}> : tile<128x128xf32>
{second}  %q = async.dot %tc, %td, %p <{{transpose_b}}> : tile<128x128xf32>
  %h = ftof %q : tile<128x128xf16>
  tiled_store %h, %c[%bm, %bn]"
        ))
    };
    let loads = "  %tc = async.tiled_tma_load %da[%bm, 1] : tile<128x64xf16>
  %td = async.tiled_tma_load %db[%bn, 1] : tile<128x64xf16>
";
    let m = by_hand(&text(loads, ""), 1, &[], &BufferOptions::default());
    // Four operands, the accumulator, and the way out through shared memory.
    assert_eq!(m.buffers.webs.webs.len(), 6, "{}", m.buffers.dump(&m.func, &m.plan));
    assert_eq!(
        m.program_of(AgentKind::Load),
        ["acquire Pipe_0.p", "announce Pipe_0.p", "ta", "tb", "tc", "td"]
    );
    assert_eq!(
        m.program_of(AgentKind::Mma),
        ["acquire Pipe_1.p", "wait Pipe_0.c", "p", "q", "commit Pipe_1.p", "release Pipe_0.c"]
    );
    let bytes = m.buffers.pipes.values().map(|p| p.tx).collect::<Vec<_>>();
    assert_eq!(bytes, [4 * 128 * 64 * 2, 0, 0]);
    // A load behind the first product cannot be waited for in front of it.
    let m = by_hand(&text("", loads), 1, &[], &BufferOptions::default());
    let (load, mma) = (m.program_of(AgentKind::Load), m.program_of(AgentKind::Mma));
    assert_eq!(
        load,
        [
            "acquire Pipe_0.p",
            "announce Pipe_0.p",
            "ta",
            "tb",
            "acquire Pipe_1.p",
            "announce Pipe_1.p",
            "tc",
            "td"
        ]
    );
    assert_eq!(
        mma,
        [
            "acquire Pipe_2.p",
            "wait Pipe_0.c",
            "p",
            "release Pipe_0.c",
            "wait Pipe_1.c",
            "q",
            "commit Pipe_2.p",
            "release Pipe_1.c"
        ]
    );
}

/// What the arms of a branch make is one tile, whichever was taken: it is acquired for the branch and handed over behind it.
#[test]
fn arms_make_one_tile() {
    let m = by_hand(
        &kernel(
            "  %ta = async.tiled_tma_load %da[%bm, 0] : tile<128x64xf16>
  %tb = async.tiled_tma_load %db[%bn, 0] : tile<128x64xf16>
  %q = cmpi %kt, 0 <{predicate = ne}> : i1
  %u = if %q : tile<128x128xf32> {
    %n = async.dot %ta, %tb, %z <{transpose_b}> : tile<128x128xf32>
    yield %n
  } else {
    %m = async.dot %tb, %ta, %z <{transpose_b}> : tile<128x128xf32>
    yield %m
  }
  %h = ftof %u : tile<128x128xf16>
  tiled_store %h, %c[%bm, %bn]",
        ),
        1,
        &[],
        &BufferOptions::default(),
    );
    // Two operands, the accumulator, and the way out.
    assert_eq!(m.buffers.webs.webs.len(), 4, "{}", m.buffers.dump(&m.func, &m.plan));
    assert_eq!(
        m.program_of(AgentKind::Mma),
        ["acquire Pipe_1.p", "wait Pipe_0.c", "u", "n", "m", "commit Pipe_1.p", "release Pipe_0.c"]
    );
}

/// A tile that is read, updated and read again: the first reader waits for the first product alone, the second product until the first
/// reader is done.
#[test]
fn what_a_reader_waits_for_was_made_in_front_of_it() {
    let m = by_hand(
        &kernel(
            "  %ta = async.tiled_tma_load %da[%bm, 0] : tile<128x64xf16>
  %tb = async.tiled_tma_load %db[%bn, 0] : tile<128x64xf16>
  %p = async.dot %ta, %tb, %z <{transpose_b}> : tile<128x128xf32>
  tiled_store %p, %d[%bm, %bn]
  %q = async.dot %ta, %tb, %p <{transpose_b}> : tile<128x128xf32>
  tiled_store %q, %e[%bm, %bn]",
        ),
        1,
        &[],
        &BufferOptions::default(),
    );
    assert_eq!(
        m.program_of(AgentKind::Mma),
        [
            "acquire Pipe_1.p",
            "acquire Pipe_4.p",
            "wait Pipe_0.c",
            "p",
            "commit Pipe_1.p",
            "wait Pipe_3.c",
            "q",
            "commit Pipe_4.p",
            "release Pipe_0.c",
            "release Pipe_3.c"
        ]
    );
    let simt = m.program_of(AgentKind::Simt);
    let at = |word: &str| simt.iter().position(|w| w == word).unwrap_or_else(|| panic!("{word}: {simt:?}"));
    let order =
        ["acquire Pipe_3.p", "wait Pipe_1.c", "p_j", "commit Pipe_3.p", "wait Pipe_4.c", "q_j"].map(at);
    assert!(order.is_sorted(), "{simt:?}");
    // What the second product waits for hands nothing over.
    assert_eq!(m.pipes()[6], "Pipe_3.p");
    assert!(!m.buffers.pipes.values().nth(3).expect("a pipe").payload());
}

/// What two agents read has a pipe of its own, though one agent makes all of it.
#[test]
fn other_readers_have_a_pipe_of_their_own() {
    let m = by_hand(
        &kernel(
            "  %p = for %i = 0 to %kt step 1 iter (%s = %z : tile<128x128xf32>) {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16>
    %tb = async.tiled_tma_load %db[%bn, %i] : tile<128x64xf16>
    %n = async.dot %ta, %tb, %s <{transpose_b}> : tile<128x128xf32>
    %w = mulf %tb, 2.0
    tiled_store %w, %c[%bn, %i]
    yield %n : tile<128x128xf32>
  }
  tiled_store %p, %d[%bm, %bn]",
        ),
        512,
        &[0, 0, 64, 64, 64, 64, 64],
        &BufferOptions::default(),
    );
    let load = m.program_of(AgentKind::Load);
    assert_eq!(
        load,
        ["acquire Pipe_0.p", "announce Pipe_0.p", "ta", "acquire Pipe_1.p", "announce Pipe_1.p", "tb"]
    );
    // Each load tells its own pipe that it is there.
    let mut fills = Vec::new();
    m.out.walk(m.region(m.agent(AgentKind::Load)), &mut |op| {
        if m.out.opcode(op) == Opcode::AsyncTiledTmaLoad {
            let barrier = m.out.named_operand(op, "barrier").expect("an operand");
            let tile = m.source(op).and_then(|op| m.func.value_name(m.func.result(op)?));
            fills.push((tile.expect("a name"), m.pipe(barrier)));
        }
    });
    assert_eq!(fills, [("ta", "Pipe_0.p".to_owned()), ("tb", "Pipe_1.p".to_owned())]);
    let mma = m.program_of(AgentKind::Mma);
    let channel: Vec<_> = mma.iter().filter(|w| w.contains("Pipe_0") || w.contains("Pipe_1.")).collect();
    assert_eq!(channel, ["wait Pipe_0.c", "wait Pipe_1.c", "release Pipe_0.c", "release Pipe_1.c"]);
    let simt = m.program_of(AgentKind::Simt);
    assert!(
        simt.contains(&"wait Pipe_1.c".to_owned()) && !simt.contains(&"wait Pipe_0.c".to_owned()),
        "{simt:?}"
    );
}

/// First and last are by start, not by the text: here both run against each other. The slots are freed by the product that ends last.
#[test]
fn waits_stand_before_the_first_use_and_releases_behind_the_last() {
    let m = by_hand(&two_products(), 64, &[16, 8, 0, 32, 24], &BufferOptions::default());
    assert_eq!(m.program_of(AgentKind::Load), ["acquire Pipe_0.p", "announce Pipe_0.p", "tc", "tb", "ta"]);
    assert_eq!(
        m.program_of(AgentKind::Mma),
        ["acquire Pipe_1.p", "wait Pipe_0.c", "m", "n", "release Pipe_0.c", "commit Pipe_1.p"]
    );
    let simt = m.program_of(AgentKind::Simt);
    assert_eq!((simt[0].as_str(), simt[simt.len() - 1].as_str()), ("wait Pipe_1.c", "release Pipe_1.c"));
    // Which op is complete when the slot is free: the result that the release takes.
    let f = &m.out;
    let mut frees = Vec::new();
    f.walk(m.region(m.agent(AgentKind::Mma)), &mut |op| {
        if f.opcode(op) == Opcode::AsyncPipelineConsumerRelease {
            let by = f.operands(op).get(1).and_then(|&v| m.source(f.defining_op(v)?)).expect("a product");
            frees.extend(m.func.result(by).and_then(|v| m.func.value_name(v)).map(str::to_owned));
        }
    });
    assert_eq!(frees, ["n"]);
    // In the text's order the other one is the last.
    let m = by_hand(&two_products(), 64, &[0, 8, 16, 24, 32], &BufferOptions::default());
    assert_eq!(m.program_of(AgentKind::Mma)[2..4], ["n", "m"]);
}

/// Ops of two agents that exclude each other have a mutex around them; ops of one agent need none, and neither does a group that may
/// overlap.
#[test]
fn mutexes_are_made_where_agents_exclude_each_other() {
    let product = format!(", {SERIAL}");
    let pairs = ["scheduler=cost", "published.cycle-model=slot"];
    let m = made(&gemm([SERIAL, "", &product]), &pairs);
    assert_eq!(
        m.pipes(),
        ["Pipe_0.p", "Pipe_0.c", "Mutex_1.p", "Mutex_1.c", "Pipe_2.p", "Pipe_2.c", "Pipe_3.p", "Pipe_3.c"]
    );
    let (load, mma) = (m.program_of(AgentKind::Load), m.program_of(AgentKind::Mma));
    let around = |words: &[String], name: &str| {
        let at = words.iter().position(|w| w == name).expect("the op");
        words
            .iter()
            .enumerate()
            .filter(|(_, w)| w.contains("Mutex"))
            .map(|(n, w)| (n < at, w.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        around(&load, "ta"),
        [(true, "acquire Mutex_1.p".to_owned()), (false, "commit Mutex_1.p".to_owned())]
    );
    assert_eq!(
        around(&mma, "n"),
        [(true, "wait Mutex_1.c".to_owned()), (false, "release Mutex_1.c".to_owned())]
    );
    // Around two loads of the group: from the first on until behind the last.
    let both = made(&gemm([SERIAL, SERIAL, &product]), &pairs).program_of(AgentKind::Load);
    let mut inside =
        both.iter().skip_while(|w| *w != "acquire Mutex_1.p").take_while(|w| *w != "commit Mutex_1.p");
    assert!(
        ["ta", "tb"].iter().all(|t| inside.clone().any(|w| w == t)) && inside.next().is_some(),
        "{both:?}"
    );
    // It hands nothing over, and an iteration is over before the next one begins.
    let create = m
        .out
        .ops()
        .find(|&op| m.out.results(op).iter().any(|&v| m.out.value_name(v) == Some("Mutex_1.p")))
        .expect("made");
    assert!(m.out.operands(create).is_empty());
    assert_eq!(m.out.attr_int(create, keys::NUM_STAGES), Some(1));
    for tags in [[SERIAL, SERIAL, ""], [GROUP, "", &format!(", {GROUP}")], ["", "", &product]] {
        let m = made(&gemm(tags), &pairs);
        assert!(m.pipes().iter().all(|p| p.starts_with("Pipe_")), "{tags:?}: {:?}", m.pipes());
    }
}

/// Who comes first is by start: the same group with the starts of its two ops exchanged has its mutex the other way round. Three
/// agents hand the right to go on from one to the next, and the last one back to the first.
#[test]
fn excluded_ops_follow_each_other_by_their_starts() {
    let product = format!(", {SERIAL}");
    let mut m = made(&gemm([SERIAL, "", &product]), &["scheduler=cost", "published.cycle-model=slot"]);
    let mutexes = |m: &Made| {
        let ba =
            assign_buffers(&m.func, &m.plan, &m.sched, &*isa(), &BufferOptions::default()).expect("fits");
        let ends = ba.pipes.values().filter(|p| p.kind == PipeKind::Mutex).map(|p| {
            let kind = |k: Key| m.plan.agents[k.agent].kind;
            (kind(p.producer), kind(p.consumers[0].key))
        });
        ends.collect::<Vec<_>>()
    };
    assert_eq!(mutexes(&m), [(AgentKind::Load, AgentKind::Mma)]);
    let named = |m: &Made, name: &str| {
        let is = |&op: &Op| m.func.result(op).and_then(|v| m.func.value_name(v)) == Some(name);
        m.func.ops().find(is).expect("an op")
    };
    let (load, dot) = (named(&m, "ta"), named(&m, "n"));
    let l = m.func.op_parent(dot).expect("a loop");
    let s = m.sched.loops[l].as_deref_mut().expect("a schedule");
    (s.start[load], s.start[dot]) = (s.start[dot], s.start[load]);
    (s.order[load], s.order[dot]) = (s.order[dot], s.order[load]);
    assert_eq!(mutexes(&m), [(AgentKind::Mma, AgentKind::Load)]);
    let m = made(
        &kernel(&format!(
            "  %p = for %i = 0 to %kt step 1 iter (%s = %z : tile<128x128xf32>) {{
    %ta = async.tiled_tma_load %da[%bm, %i] <{{{SERIAL}}}> : tile<128x64xf16>
    %tb = async.tiled_tma_load %db[%bn, %i] : tile<128x64xf16>
    %n = async.dot %ta, %tb, %z <{{transpose_b, {SERIAL}}}> : tile<128x128xf32>
    %x = maxf %s, %n <{{{SERIAL}}}> : tile<128x128xf32>
    yield %x : tile<128x128xf32>
  }}
  tiled_store %p, %d[%bm, %bn]"
        )),
        &["scheduler=cost"],
    );
    let mut got = mutexes(&m);
    got.sort_by_key(|e| (e.0.name(), e.1.name()));
    let want = [
        (AgentKind::Load, AgentKind::Mma),
        (AgentKind::Load, AgentKind::Simt),
        (AgentKind::Mma, AgentKind::Simt),
    ];
    assert_eq!(got, want);
}

/// Accesses of two agents to one view that may meet need a token unless something orders them already; a scalar that another agent
/// computes with has a pipe with a slot for it.
#[test]
fn what_agents_cannot_know_of_each_other_has_a_pipe() {
    // Threads store what TMA loads afterwards: the load waits, once for both stores.
    let m = by_hand(
        &kernel(
            "  %dc = make_tiled_tma_desc %c <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %x = tiled_load %a[%bm, 0] : tile<128x64xf16>
  %y = mulf %x, 2.0
  tiled_store %y, %c[%bn, 0]
  tiled_store %y, %c[%bm, 0]
  %ta = async.tiled_tma_load %dc[%bm, 0] : tile<128x64xf16>
  %tb = async.tiled_tma_load %db[%bn, 0] : tile<128x64xf16>
  %n = async.dot %ta, %tb, %z <{transpose_b}> : tile<128x128xf32>
  tiled_store %n, %d[%bm, %bn]",
        ),
        1,
        &[],
        &BufferOptions::default(),
    );
    let (simt, load) = (m.program_of(AgentKind::Simt), m.program_of(AgentKind::Load));
    assert_eq!(simt[..6], ["x", "y", "tiled_store", "acquire Pipe_0.p", "tiled_store", "commit Pipe_0.p"]);
    assert_eq!(
        load,
        ["acquire Pipe_1.p", "announce Pipe_1.p", "wait Pipe_0.c", "ta", "release Pipe_0.c", "tb"]
    );
    assert!(
        print_function(&m.out).contains("%Pipe_0.p, %Pipe_0.c = async.pipeline.create_pipeline <{"),
        "no buffers"
    );
    // What is stored where it was loaded from, when the tile is there, needs none.
    let m = by_hand(
        &kernel(
            "  %ta = async.tiled_tma_load %da[%bm, 0] : tile<128x64xf16>
  %y = mulf %ta, 2.0
  tiled_store %y, %a[%bm, 0]",
        ),
        1,
        &[],
        &BufferOptions::default(),
    );
    assert_eq!(m.program_of(AgentKind::Load), ["acquire Pipe_0.p", "announce Pipe_0.p", "ta"]);
    assert_eq!(m.program_of(AgentKind::Simt)[..3], ["wait Pipe_0.c", "ta_r", "release Pipe_0.c"]);
    // A condition that one agent reads from memory and another one branches on.
    let text = kernel(
        "  %p = for %i = 0 to %kt step 1 iter (%s = %z : tile<128x128xf32>) {
    %w = tiled_load %on[%i] : i32
    %q = cmpi %w, 0 <{predicate = ne}> : i1
    %u = if %q : tile<128x128xf32> {
      %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16>
      %tb = async.tiled_tma_load %db[%bn, %i] : tile<128x64xf16>
      %n = async.dot %ta, %tb, %s <{transpose_b}> : tile<128x128xf32>
      yield %n : tile<128x128xf32>
    } else {
      yield %s : tile<128x128xf32>
    }
    yield %u : tile<128x128xf32>
  }
  tiled_store %p, %d[%bm, %bn]",
    );
    let m = made(&text.replace("%kt: i32", "%on: view<gmem, ?xi32>, %kt: i32"), &[]);
    let (load, mma) = (m.program_of(AgentKind::Load), m.program_of(AgentKind::Mma));
    // It reads the number, puts it into the slot and branches on it; the other one takes it out.
    assert_eq!(load[..5], ["acquire Pipe_1.p", "w", "w", "commit Pipe_1.p", "u"]);
    let at = mma.iter().position(|w| w == "wait Pipe_1.c").expect("a wait");
    assert_eq!(mma[at..at + 4], ["wait Pipe_1.c", "w", "release Pipe_1.c", "u"]);
}
