//! The page "Scheduling Glue Passes", statement by statement, where no narrower test holds it already; `docs/spec-tests.md` lists both.
//! What that page has passes for and thread-level code gives no work to is counted here over all kernels of the file tests: a count that is
//! no longer 0 says that there is work now.

use crate::corpus;

use std::collections::HashMap;
use tileas_codegen::ir::{Opcode, parse_module};
use tileas_codegen::nvvm::{
    AddressSpace, FuncBuilder, Function, Inst, Kind, Operand, ParamKind, PtxOp, Reg, RegTy,
};
use tileas_codegen::passes::{PREPARATION, PassInfo, Pipeline};
use tileas_codegen::testing::nvvm::{CleanupScratch, CleanupStats, cleanup};
use tileas_codegen::{Code, Context, Errors, KernelInfo, Settings, Stage, StageRun};

fn try_run(text: &str, options: &[(&str, &str)]) -> Result<StageRun, Errors> {
    let mut settings = Settings::default();
    for (name, value) in options {
        settings = settings.with(name, value).expect("an option");
    }
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let isa = tileas_isa::isa_for_cpu("sm_90a").expect("known");
    Context::new().run_to(Stage::Ptx, &module, &*isa, &settings)
}

fn run(text: &str, options: &[(&str, &str)]) -> StageRun {
    try_run(text, options).unwrap_or_else(|e| panic!("{e:?}\n{text}"))
}

/// Calls `f` with all kernels of the file tests: name, the loops of the materialised kernel, whether it prints, thread-level code. Planned
/// spills have accesses and detours of their own, fused reads read one tile for each of their users: both are options.
fn each_kernel(mut f: impl FnMut(&str, usize, bool, &Function)) {
    let (mut context, base) = (Context::new(), Settings::default());
    let mut seen = 0;
    for kernel in corpus::kernels() {
        let settings = kernel.settings(&base);
        let is = |option: &str, value: &str| settings.get(option).is_some_and(|v| v == value);
        if is("regalloc", "plan") || is("tune.fuse-reads", "true") {
            continue;
        }
        let module =
            context.parse(&kernel.text, &settings).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
        let run = context.run_to(Stage::Ptx, &module, &*kernel.isa(&settings), &settings);
        for state in run.unwrap_or_else(|e| panic!("{}: {e:?}", kernel.name)).kernels {
            let source = state.materialized.expect("is materialised");
            let of = |wanted: Opcode| source.ops().filter(|&op| source.opcode(op) == wanted).count();
            let (loops, prints) = (of(Opcode::For), of(Opcode::Print));
            let code = state.nvvm.expect("thread-level code");
            code.functions.iter().for_each(|func| f(&kernel.name, loops, prints > 0, func));
            seen += 1;
        }
    }
    assert!(seen > 200, "{seen} kernels");
}

/// What an instruction accesses: its space, and the address as written.
fn access(func: &Function, inst: Inst) -> Option<(AddressSpace, Operand)> {
    let mut all = func.op(inst).form().operands.iter().zip(func.operands(inst));
    all.find_map(|(class, &operand)| match class.kind {
        Kind::Addr(space) => Some((space, operand)),
        _ => None,
    })
}

/// The published rule: what a generic address may be is not known; others may be the same as those of their own space alone.
fn may_alias(a: AddressSpace, b: AddressSpace) -> bool {
    a == b || a == AddressSpace::Generic || b == AddressSpace::Generic
}

/// A load or a store of this thread that nothing else orders.
#[derive(Copy, Clone, PartialEq)]
struct Plain {
    op: PtxOp,
    address: Operand,
    guard: Option<(Reg, bool)>,
    space: AddressSpace,
    /// Writes so far of the registers of address and guard.
    versions: [u32; 2],
}

#[derive(Default)]
struct Walk {
    writes: HashMap<Reg, u32>,
    loaded: Vec<Plain>,
    stored: Vec<Plain>,
}

enum Found {
    Nothing,
    Reload,
    DeadStore,
}

impl Walk {
    fn step(&mut self, func: &Function, inst: Inst) -> Found {
        let (op, effects) = (func.op(inst), func.op(inst).form().effects);
        let mnemonic = op.form().mnemonic;
        let is_plain = !effects.syncs() && !effects.is_async() && !effects.is_volatile();
        let guard = func.guard(inst).get();
        let version = |r: Option<Reg>| r.map_or(0, |r| self.writes.get(&r).copied().unwrap_or(0));
        let this = access(func, inst).map(|(space, address)| Plain {
            op,
            address,
            guard,
            space,
            versions: [version(address.reg()), version(guard.map(|g| g.0))],
        });
        let mut found = Found::Nothing;
        match this {
            Some(this) if is_plain && mnemonic.starts_with("ld.") => {
                self.stored.retain(|s| !may_alias(s.space, this.space));
                if self.loaded.contains(&this) {
                    found = Found::Reload;
                }
                self.loaded.push(this);
            }
            Some(this) if is_plain && mnemonic.starts_with("st.") => {
                self.loaded.retain(|l| !may_alias(l.space, this.space));
                if self.stored.contains(&this) {
                    found = Found::DeadStore;
                }
                self.stored.push(this);
            }
            _ if effects.is_pure() => {}
            // What others have written may be seen now, and others may see what this thread has.
            _ => {
                self.loaded.retain(|l| l.space == AddressSpace::Param);
                self.stored.clear();
            }
        }
        func.visit_writes(inst, |r| *self.writes.entry(r).or_default() += 1);
        found
    }
}

/// Alias facts serve to take a value from a register instead of memory, to leave out a store, to load before a loop. Beside planned spills no
/// kernel has a place for any of these: tiles are in registers between one access and the next, and the lowering loads each once.
#[test]
fn code_as_it_is_lowered_repeats_no_access() {
    let (mut loads, mut stores, mut in_loops) = (0, 0, 0);
    each_kernel(|name, _, _, func| {
        let mut walk = Walk::default();
        for &bb in func.layout() {
            (walk.loaded, walk.stored) = Default::default();
            for inst in func.insts(bb) {
                let mnemonic = func.op(inst).form().mnemonic;
                loads += usize::from(mnemonic.starts_with("ld."));
                stores += usize::from(mnemonic.starts_with("st."));
                match walk.step(func, inst) {
                    Found::Nothing => {}
                    Found::Reload => panic!("{name}: {mnemonic} {inst:?} repeats a load"),
                    Found::DeadStore => {
                        panic!("{name}: {mnemonic} {inst:?} overwrites a store that nobody read")
                    }
                }
            }
        }
        for (from, to) in loops(func) {
            let insts = || func.layout()[from..=to].iter().flat_map(|&bb| func.insts(bb));
            let (mut written, mut changed, mut orders) = (Vec::new(), Vec::new(), false);
            for inst in insts() {
                let (form, space) = (func.op(inst).form(), access(func, inst).map(|a| a.0));
                func.visit_writes(inst, |r| written.push(r));
                match space {
                    Some(space) if form.mnemonic.starts_with("st.") => changed.push(space),
                    _ => orders |= form.effects.syncs() || form.effects.writes() || form.effects.is_async(),
                }
            }
            let plain = insts().filter(|&i| func.op(i).form().mnemonic.starts_with("ld."));
            for inst in plain.filter(|_| !orders) {
                let Some((space, address)) = access(func, inst) else { continue };
                in_loops += 1;
                let moves = address.reg().is_some_and(|r| written.contains(&r));
                let kept = !changed.iter().any(|&c| may_alias(c, space));
                assert!(moves || !kept, "{name}: {inst:?} loads the same in each iteration");
            }
        }
    });
    println!("{loads} loads, {stores} stores, {in_loops} loads in loops that order nothing");
    assert!(loads > 1000 && stores > 1000 && in_loops > 20, "{loads} {stores} {in_loops}");
}

/// Places in the layout of the first and the last block of each loop.
fn loops(func: &Function) -> Vec<(usize, usize)> {
    let place: HashMap<_, _> = func.layout().iter().enumerate().map(|(n, &bb)| (bb, n)).collect();
    let ends = func.layout().iter().enumerate();
    let back = |(n, &bb): (usize, _)| {
        let heads = func.successors(bb).into_iter().flatten().filter_map(|s| place.get(&s).copied());
        heads.filter(move |&h| h <= n).map(move |h| (h, n)).collect::<Vec<_>>()
    };
    ends.flat_map(back).collect()
}

/// Between registers each element is moved by an instruction of its own: the loops of thread-level code are those of the kernel and those
/// that wait, so that none needs a mark to be unrolled, and no tile lies in memory that registers would be indexed through.
#[test]
fn no_loop_goes_over_registers() {
    each_kernel(|name, in_source, prints, func| {
        let waits = |&(from, to): &(usize, usize)| {
            let mut insts = func.layout()[from..=to].iter().flat_map(|&bb| func.insts(bb));
            insts.any(|i| func.op(i).form().mnemonic.contains("try_wait"))
        };
        let all = loops(func);
        // A loop of the kernel may wait, too: in blocks of their own.
        let polls = all.iter().filter(|l| l.0 == l.1 && waits(l)).count();
        // Where loads are under way from iteration to iteration, some iterations stand one behind the other, as long as so many are left.
        let left = |i: Inst| func.op(i).form().mnemonic == "setp.gt.u32";
        let rounds = all.iter().filter(|l| func.insts(func.layout()[l.1]).any(left)).count();
        let own = all.len() - polls - rounds;
        assert!(rounds <= in_source, "{name}: {rounds} of {in_source} loops");
        assert!(prints || own <= in_source, "{name}: {own} loops, the kernel has {in_source}");
        let local = |i: Inst| access(func, i).is_some_and(|a| a.0 == AddressSpace::Local);
        let locals = func.layout().iter().flat_map(|&bb| func.insts(bb)).filter(|&i| local(i)).count();
        assert_eq!(locals, 0, "{name}: accesses of local memory");
    });
}

/// The type of each view and tile says where it lies, so that each access names its space from the beginning; generic are the texts and
/// values that the driver's functions take, and the addresses of tensor maps, whose instructions want them so.
#[test]
fn no_access_is_generic() {
    let mut calls = 0;
    each_kernel(|name, _, _, func| {
        for inst in func.layout().iter().flat_map(|&bb| func.insts(bb)) {
            let form = func.op(inst).form();
            let is_generic = access(func, inst).is_some_and(|a| a.0 == AddressSpace::Generic);
            assert!(!is_generic || form.mnemonic == "prefetch.tensormap", "{name}: {}", form.mnemonic);
            calls += usize::from(form.mnemonic.starts_with("call."));
        }
    });
    assert!(calls > 0, "some kernel prints");
}

const FUNCTIONS: &str = "
func @twice(%v: view<gmem, ?xf32>, %to: view<gmem, ?xf32>, %i: i32) {
  %t = tiled_load %v[%i] : tile<128xf32>
  %r = addf %t, %t
  tiled_store %r, %to[%i]
  return
}

func @unused(%x: f32) : f32 {
  %r = mulf %x, %x
  return %r
}

kernel @one(%x: view<gmem, ?xf32>, %y: view<gmem, ?xf32>, %z: view<gmem, ?xf32>) {
  %i = program_id <{axis = 0}>
  call @twice(%x, %y, %i)
  call @twice(%y, %z, %i)
  return
}

kernel @two(%x: view<gmem, ?xf32>) {
  %i = program_id <{axis = 0}>
  print %i <{format = \"CTA %d\\n\"}>
  call @twice(%x, %x, %i)
  return
}
";

/// Kernels are entries that can be found by name; functions are no more, and what else a module has is its own.
#[test]
fn only_kernels_are_visible() {
    let all = run(FUNCTIONS, &[]).text(Stage::Ptx);
    let visible: Vec<&str> = all.lines().filter(|l| l.contains(".visible")).collect();
    assert_eq!(visible, [".visible .entry one(", ".visible .entry two("], "{all}");
    assert_eq!(all.matches(".entry").count(), 2);
    for name in ["twice", "unused"] {
        assert!(!all.contains(name), "{name}: {all}");
    }
    let functions: Vec<&str> = all.lines().filter(|l| l.contains(".func")).collect();
    assert!(functions.iter().all(|l| l.starts_with(".extern .func ")), "{functions:?}");
    assert!(
        all.contains("\n.global .align 1 .b8 two"),
        "the text that is printed is the module's own: {all}"
    );
    // The driver's functions are named where they are called alone.
    let silent = run(FUNCTIONS, &[("select-kernels", "one")]).text(Stage::Ptx);
    assert!(!silent.contains(".func") && !silent.contains(".entry two("), "{silent}");
}

/// A function is written out at each call, of the pointers that are given there: what is known of them holds in it.
#[test]
fn what_is_known_of_a_pointer_holds_in_the_function_it_is_given_to() {
    let made = run(FUNCTIONS, &[("select-kernels", "one")]);
    let code = &made.kernels[0].nvvm.as_ref().expect("thread-level code").functions[0];
    // Each is cast to its space once.
    assert_eq!(count(code, PtxOp::CvtaToGlobalU64), 3);
    // `%x` is loaded from, `%z` stored to, `%y` both.
    let (mut bases, mut from): (HashMap<Reg, String>, Vec<(bool, String)>) = Default::default();
    for inst in code.layout().iter().flat_map(|&bb| code.insts(bb)) {
        let mnemonic = code.op(inst).form().mnemonic;
        let is_memory = mnemonic.starts_with("ld.global") || mnemonic.starts_with("st.global");
        if let Some((_, address)) = access(code, inst).filter(|_| is_memory) {
            let base = address.reg().and_then(|r| bases.get(&r)).expect("leads to a parameter");
            from.push((mnemonic.starts_with("st."), base.clone()));
        }
        let known = code.operands(inst).iter().skip(1).find_map(|&o| match o {
            Operand::Param(p) => {
                matches!(code.params[p].kind, ParamKind::Pointer { .. }).then(|| code.params[p].name.clone())
            }
            other => other.reg().and_then(|r| bases.get(&r).cloned()),
        });
        if let (Some(known), [Operand::Reg(d), ..]) = (known, code.operands(inst)) {
            bases.entry(*d).or_insert(known);
        }
    }
    from.dedup();
    let names: Vec<(bool, &str)> = from.iter().map(|(s, n)| (*s, n.as_str())).collect();
    assert_eq!(names, [(false, "x"), (true, "y"), (false, "y"), (true, "z")]);
}

/// Which kernels are chosen is decided of verified kernels by their names and changes no other kernel; what is wrong with the others is
/// told, unless it takes compiling to find out.
#[test]
fn selection_leaves_the_chosen_kernels_as_they_are() {
    let whole = run(FUNCTIONS, &[]);
    for (n, name) in ["one", "two"].into_iter().enumerate() {
        for chosen in [name.to_owned(), n.to_string(), format!("{n}-{n}")] {
            let one = run(FUNCTIONS, &[("select-kernels", &chosen)]);
            assert_eq!(one.kernels.len(), 1);
            assert_eq!(one.kernels[0].ptx, whole.kernels[n].ptx, "{chosen}");
        }
    }
    let with = |other: &str| try_run(&format!("{FUNCTIONS}{other}"), &[("select-kernels", "one")]);
    let wrong = "kernel @bad(%x: view<gmem, ?xf32>) {\n  tiled_store %x, %x[0]\n}\n";
    let Err(found) = with(wrong) else { panic!("taken") };
    assert!(found.iter().all(|e| e.code.as_str().starts_with("E02")), "{found:?}");
    let large = "kernel @large(%x: view<gmem, ?x?xf32>) {\n  %t = tiled_load %x[0, 0] : tile<1024x1024xf32>\n  \
        %m = reduce %t <{mode = max, axis = 1}> : tile<1024xf32>\n  %b = reshape %m : tile<1024x1xf32>\n  \
        %c = broadcast %b : tile<1024x1024xf32>\n  %d = subf %t, %c\n  tiled_store %d, %x[0, 0]\n  return\n}\n";
    assert!(try_run(large, &[]).is_err() && with(large).is_ok());
}

/// Calls are those of the driver's functions, which no module defines.
#[test]
fn calls_of_the_driver_are_counted() {
    let made = run(FUNCTIONS, &[]);
    let count = |n: usize, metric: &str| {
        let module = made.kernels[n].nvvm.as_ref().expect("thread-level code");
        KernelInfo::of(module, &module.functions[0], 0).get(metric)
    };
    assert_eq!([0, 1].map(|n| count(n, "DirectCalls")), [Some(0), Some(1)]);
    assert_eq!(count(1, "DirectCallsToDefinedFunctions"), Some(0));
    assert_eq!(count(1, "FlatAddrspaceAccesses"), Some(0));
}

/// The names of the page.
#[test]
fn passes_and_options_have_their_published_names() {
    for name in ["tileas-generate-schedule", "tileas-materialize-schedule", "nvvm-pretreat"] {
        assert_eq!(PassInfo::find(name).map(|p| p.name), Some(name));
    }
    assert_eq!(PREPARATION.0[0], "tileas-prepare-for-scheduling");
    let options = PassInfo::find("tileas-generate-schedule").expect("is there").options;
    for name in ["scheduler", "published.max-constraint-iterations", "published.rrt-size-threshold"] {
        assert!(options.contains(&name), "{name}");
    }
    assert!(Settings::list().iter().any(|o| o.name == "select-kernels"));
}

/// The published orders, each turned round in a list that is right otherwise.
#[test]
fn each_published_order_is_kept() {
    for (list, code) in [
        // Preparation, and its stages.
        ("agents,place,schedule,prepare", Code::E1007),
        ("canonical,views,tma,boxes,agents,place", Code::E1007),
        ("views,tma,canonical,boxes,agents,place", Code::E1007),
        ("views,canonical,boxes,tma,agents,place", Code::E1007),
        ("views,canonical,tma,agents,place", Code::E1006),
        // The analysis is there until it is materialised, and of the kernel as it is.
        ("prepare,agents,place,materialize", Code::E1006),
        ("prepare,agents,place,schedule,buffers,schedule,materialize", Code::E1006),
        // Pretreatment, register budgets and launch attributes come before PTX.
        ("prove,lower,registers,ptx,cleanup", Code::E1007),
        ("prove,lower,registers,ptx", Code::E1006),
        ("prove,lower,cleanup,ptx,registers", Code::E1007),
        // What is emitted was proven and lowered.
        ("lower,cleanup,registers,ptx", Code::E1006),
        ("prove,cleanup,registers,ptx", Code::E1006),
    ] {
        match Pipeline::parse(list) {
            Err(e) => assert_eq!(e.code, code, "{list}: {e}"),
            Ok(p) => panic!("`{list}` is taken as {p}"),
        }
    }
    let list = "prepare,agents,place,schedule,buffers,materialize,prove,lower,cleanup,registers,ptx";
    assert!(Pipeline::parse(list).is_ok(), "{list}");
}

fn cleaned(build: impl FnOnce(&mut FuncBuilder<'_>)) -> Function {
    let mut func = Function::kernel("k");
    build(&mut FuncBuilder::new(&mut func));
    cleanup(&mut func, &mut CleanupScratch::default());
    func
}

fn count(func: &Function, op: PtxOp) -> usize {
    func.layout().iter().flat_map(|&bb| func.insts(bb)).filter(|&i| func.op(i) == op).count()
}

/// A pointer is cast once, and not at all where it is not read.
#[test]
fn casts_of_pointers_are_made_once() {
    let mut param = None;
    let func = cleaned(|b| {
        let p = b.func.param("x", ParamKind::Pointer { align: 16 });
        param = Some(p);
        let x = b.ld_param_b64(p);
        let again = b.ld_param_b64(p);
        let [first, second, _dead] = [x, again, x].map(|r| b.cvta_to_global_u64(r));
        let copy = b.mov_b64(second);
        let t = b.imm(RegTy::B32, 7);
        b.st_global_b32((first, 0), t);
        b.st_global_b32((copy, 4), t);
        b.ret();
    });
    assert_eq!(count(&func, PtxOp::CvtaToGlobalU64), 1);
    assert_eq!(count(&func, PtxOp::LdParamB64), 1);
    assert_eq!(count(&func, PtxOp::MovB64), 0);
}

/// What the driver emits is pretreated: there is nothing left to do.
#[test]
fn emitted_code_is_pretreated() {
    for text in [FUNCTIONS, include_str!("../../examples/gemm_f16.tileas")] {
        for kernel in run(text, &[]).kernels {
            let mut func = kernel.nvvm.expect("thread-level code").functions.swap_remove(0);
            let left = cleanup(&mut func, &mut CleanupScratch::default());
            assert_eq!(left, CleanupStats::default(), "{}", kernel.name);
        }
    }
}

/// A tensor map is passed by value and used where it lies: its address is taken, nothing of it is loaded or copied.
#[test]
fn tensor_maps_are_used_where_they_are_passed() {
    let mut maps = 0;
    each_kernel(|name, _, _, func| {
        for inst in func.layout().iter().flat_map(|&bb| func.insts(bb)) {
            for &operand in func.operands(inst) {
                if let Operand::Param(p) | Operand::ParamAddr { param: p, .. } = operand
                    && func.params[p].kind == ParamKind::TensorMap
                {
                    assert_eq!(func.op(inst), PtxOp::CvtaParamU64, "{name}");
                    maps += 1;
                }
            }
        }
    });
    assert!(maps > 50, "{maps} maps");
}
