//! Liveness and pressure against a naive definition, and planned spills against an interpreter, on random functions.

#[path = "regalloc/execute.rs"]
mod execute;
#[path = "regalloc/generate.rs"]
mod generate;

use std::collections::BTreeSet;
use tileas_codegen::nvvm::{self, Function, Inst, Module, Reg};
use tileas_codegen::settings::RegallocMode as Mode;
use tileas_codegen::testing::nvvm::{Liveness, verify};
use tileas_codegen::testing::regalloc::{
    AgentFinder, Allocator, NoPlan, PressureScratch, RegallocOptions, SharedRoom,
};

/// Whether a register's value before an instruction is read later on some path: by walking all paths.
fn live_before(f: &Function, r: Reg, at: Inst, seen: &mut BTreeSet<Inst>) -> bool {
    let mut work = vec![at];
    while let Some(i) = work.pop() {
        if !seen.insert(i) {
            continue;
        }
        let (mut read, mut written) = (false, false);
        f.visit_reads(i, |x| read |= x == r);
        f.visit_writes(i, |x| written |= x == r);
        if read {
            return true;
        }
        if written && !f.guard(i).is_some() {
            continue;
        }
        work.extend(successors(f, i));
    }
    false
}

/// Instructions that may come after one.
fn successors(f: &Function, i: Inst) -> Vec<Inst> {
    let mut out = Vec::new();
    if let (nvvm::PtxOp::Bra, [nvvm::Operand::Block(t)]) = (f.op(i), f.operands(i)) {
        out.extend(f.first_inst(*t));
    }
    if !f.ends_block(i) {
        out.extend(f.next_inst(i));
    }
    out
}

fn units(f: &Function, regs: &BTreeSet<Reg>) -> u32 {
    regs.iter().map(|&r| f.ty(r).units()).sum()
}

/// Peak over all instructions: what is live before, and what is live after with the results.
fn naive_peak(f: &Function) -> u32 {
    let all: Vec<Reg> = (0..f.num_regs() as u32).map(Reg::from_u32).collect();
    let mut peak = 0;
    for &bb in f.layout() {
        for i in f.insts(bb) {
            let before: BTreeSet<Reg> =
                all.iter().copied().filter(|&r| live_before(f, r, i, &mut BTreeSet::new())).collect();
            let mut after: BTreeSet<Reg> = all
                .iter()
                .copied()
                .filter(|&r| successors(f, i).into_iter().any(|s| live_before(f, r, s, &mut BTreeSet::new())))
                .collect();
            f.visit_writes(i, |r| {
                after.insert(r);
            });
            peak = peak.max(units(f, &before)).max(units(f, &after));
        }
    }
    peak
}

#[test]
fn liveness_and_pressure_are_what_paths_say() {
    let mut functions = 0;
    arbtest::arbtest(|u| {
        let module = generate::module(u)?;
        let f = &module.functions[0];
        let live = Liveness::compute(f);
        for &bb in f.layout() {
            let Some(first) = f.first_inst(bb) else { continue };
            let got: BTreeSet<Reg> = live.live_in(bb).collect();
            for r in (0..f.num_regs() as u32).map(Reg::from_u32) {
                let want = live_before(f, r, first, &mut BTreeSet::new());
                assert_eq!(got.contains(&r), want, "{r} at {bb}\n{}", text(&module));
            }
        }
        // The naive peak is quadratic.
        if f.num_insts() < 60 {
            let p = PressureScratch::default().function(f, &live);
            assert_eq!(p.units, naive_peak(f), "{}", text(&module));
        }
        functions += 1;
        Ok(())
    })
    .budget_ms(4000);
    assert!(functions > 20, "{functions}");
}

fn text(module: &Module) -> String {
    let mut out = String::new();
    nvvm::print(module, &mut out);
    out
}

#[test]
fn agents_are_what_their_first_blocks_dominate() {
    arbtest::arbtest(|u| {
        let module = generate::module(u)?;
        let f = &module.functions[0];
        let ranges = AgentFinder::default().find(f, 255);
        let mut owner = BTreeSet::new();
        for r in &ranges {
            for bb in &r.blocks {
                assert!(owner.insert(*bb), "{bb} twice");
            }
        }
        for r in &ranges[1..] {
            // Entered at the first block only.
            for &bb in f.layout().iter().filter(|bb| !r.blocks.contains(bb)) {
                for s in f.successors(bb).into_iter().flatten() {
                    assert!(s == r.blocks[0] || !r.blocks.contains(&s) || !owner.contains(&bb));
                }
            }
        }
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn planned_functions_compute_the_same_with_fewer_registers() {
    let (mut planned, mut failed, mut shared, mut stores, mut again) = (0, 0, 0, 0, 0);
    let mut allocator = Allocator::default();
    arbtest::arbtest(|u| {
        let mut module = generate::module(u)?;
        let before = text(&module);
        let want = execute::stores(&module.functions[0], 400);
        let reserve = u.int_in_range(0..=2)?;
        let cap = u.int_in_range(14..=80)?;
        let sym = module.symbols.keys().next();
        let room = match (u.arbitrary()?, sym) {
            (true, Some(sym)) => {
                Some(SharedRoom { sym, at: 4096, bytes: u.int_in_range(0..=4096)?, threads: 32 })
            }
            _ => None,
        };
        let options = RegallocOptions { mode: Mode::Plan, cap, reserve, shared: room };
        let mut accepted = Vec::new();
        verify(&module, (9, 5), &mut accepted).unwrap_or_else(|| panic!("{accepted:?}\n{before}"));
        let reports = allocator.run(&mut module.functions[0], &options);
        let after = text(&module);
        let mut found = Vec::new();
        verify(&module, (9, 5), &mut found).unwrap_or_else(|| panic!("{found:?}\n{before}\n{after}"));
        let f = &module.functions[0];
        assert_eq!(execute::stores(f, 400), want, "cap {cap}\n{before}\n{after}");
        for r in &reports {
            match &r.outcome {
                Some(Ok(stats)) => {
                    planned += 1;
                    shared += u32::from(stats.shared_bytes > 0);
                    stores += stats.stores;
                    again += stats.recomputed;
                    assert!(r.after.units < r.before.units);
                    assert!(stats.shared_bytes <= room.map_or(0, |r| r.bytes));
                }
                Some(Err(why)) => {
                    failed += 1;
                    assert!(
                        !matches!(why, NoPlan::Unsound(_)),
                        "{why}: cap {cap}, reserve {reserve}\n{before}"
                    );
                }
                None => panic!("a plan was asked for"),
            }
        }
        if reports.iter().all(|r| r.over == 0) && reports.iter().all(|r| r.name != "frame") {
            // Nobody is over: the agents of the result, found anew, fit.
            let live = Liveness::compute(f);
            for agent in &AgentFinder::default().find(f, cap)[1..] {
                let p = PressureScratch::default().peak(f, &live, &agent.blocks);
                assert!(
                    p.units + reserve <= cap,
                    "{} has {} of {cap}\n{before}\n{after}",
                    agent.name,
                    p.units
                );
            }
        }
        Ok(())
    })
    .budget_ms(15000);
    assert!(
        planned > 30 && shared > 5 && stores > 100 && again > 10,
        "{planned} {failed} {shared} {stores} {again}"
    );
}

#[test]
fn the_same_plan_each_time() {
    let mut used = Allocator::default();
    arbtest::arbtest(|u| {
        let module = generate::module(u)?;
        let options = RegallocOptions { mode: Mode::Plan, cap: 24, reserve: 0, ..RegallocOptions::default() };
        let (mut a, mut b) = (module.clone(), module);
        let first = used.run(&mut a.functions[0], &options);
        let second = Allocator::default().run(&mut b.functions[0], &options);
        assert_eq!(first, second);
        assert_eq!(text(&a), text(&b));
        Ok(())
    })
    .budget_ms(1500);
}
