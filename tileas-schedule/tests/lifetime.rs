//! Shorter lives at the interval found: skew of register agents, then ring bytes, then stages.

use tileas_schedule::lifetime::{LifetimeCost, lifetime_cost};
use tileas_schedule::verify::verify;
use tileas_schedule::{NodeDef, NodeExtra, Problem, ScheduleOptions, Scheduler, Use};
use tileas_testgen::families::{Family, Rng};

fn cost(p: &Problem, lifetime_steps: u64) -> (u32, LifetimeCost) {
    let o = ScheduleOptions { lifetime_steps, ..ScheduleOptions::default() };
    let s = Scheduler::new().schedule(p, &o).unwrap();
    assert_eq!(verify(p, &s), []);
    (s.ii, lifetime_cost(p, |n| i64::from(s.start[n]), s.ii))
}

#[test]
fn the_cost_counts_turns_registers_and_slots() {
    let mut p = Problem::new("t");
    let unit = p.add_slot(1, "unit", 3);
    let uses = [Use { slot: unit, offset: 1, duration: 3, occupancy: 1 }];
    let def = |id, extra| NodeDef { id, latency: 2, uses: &uses, extra, ..NodeDef::default() };
    let simt = NodeExtra { simt_agent: Some(1), registers: 40, ..NodeExtra::default() };
    let load = p.add_node(&def("load", NodeExtra { ring_bytes: 1000, ..NodeExtra::default() }));
    let a = p.add_node(&def("a", simt));
    let b = p.add_node(&def("b", simt));
    p.add_edge(load, a, 2, 0);
    p.add_edge(a, b, 2, 0);
    // The reader frees what it reads; along that edge nothing lives.
    let back = p.add_edge(load, b, 3, 1);
    p.set_order_only(back);
    let at = |starts: [i64; 3]| lifetime_cost(&p, |n| starts[n.as_u32() as usize], 10);
    // b in the turn of a; the load is held until 9, 10, 14, then 29 cycles after its start (rule R3, II 10).
    assert_eq!(at([0, 5, 14]), LifetimeCost { skew: 0, ring_bytes: 1000, stages: 2 });
    assert_eq!(at([0, 6, 14]), LifetimeCost { skew: 0, ring_bytes: 1000, stages: 2 });
    assert_eq!(at([0, 10, 19]), LifetimeCost { skew: 0, ring_bytes: 2000, stages: 2 });
    assert_eq!(at([0, 25, 35]), LifetimeCost { skew: 40, ring_bytes: 3000, stages: 4 });
    assert_eq!(at([0, 5, 25]), LifetimeCost { skew: 80, ring_bytes: 1000, stages: 3 });
}

#[test]
fn agents_are_straightened_where_dependences_allow_it() {
    // Four ops of one agent, two of them behind loads: seated as early as possible they spread over many turns.
    let mut p = Problem::new("spread");
    let unit = p.add_slot(1, "alu", 1);
    let tma = p.add_slot(2, "tma", 1);
    let on = |slot, duration| [Use { slot, offset: 0, duration, occupancy: 1 }];
    let simt = NodeExtra { simt_agent: Some(0), registers: 16, ..NodeExtra::default() };
    let free = p.add_node(&NodeDef {
        id: "free",
        latency: 4,
        uses: &on(unit, 4),
        extra: simt,
        ..NodeDef::default()
    });
    let load = p.add_node(&NodeDef { id: "load", latency: 60, uses: &on(tma, 8), ..NodeDef::default() });
    let mut ops = vec![free];
    for id in ["x", "y"] {
        let n =
            p.add_node(&NodeDef { id, latency: 4, uses: &on(unit, 4), extra: simt, ..NodeDef::default() });
        p.add_edge(load, n, 60, 0);
        ops.push(n);
    }
    // A reader of `free` outside the agent must not hold it back.
    let store = p.add_node(&NodeDef { id: "store", latency: 8, uses: &on(tma, 4), ..NodeDef::default() });
    p.add_edge(ops[2], store, 4, 0);
    let ((ii, before), (same, after)) = (cost(&p, 0), cost(&p, 4_000));
    assert_eq!(ii, same);
    assert_eq!(after.skew, 0, "{before:?} -> {after:?}");
}

#[test]
fn no_loop_gets_worse_and_some_get_better() {
    let mut better = 0;
    for family in [Family::Gemm, Family::Attention, Family::Elementwise, Family::Planted] {
        for seed in 0..8 {
            let (bare, _) = family.problem(24, seed);
            let mut rng = Rng::new(seed);
            let mut p = Problem::new("told");
            bare.slots().values().for_each(|s| _ = p.add_slot(s.id, &s.name, s.capacity));
            bare.pools().values().for_each(|s| _ = p.add_pool(s.id, &s.name, s.capacity));
            for n in bare.nodes() {
                let asynchronous = bare.op_name(n) == "load" || bare.op_name(n) == "dot" || rng.one_in(3);
                let extra = NodeExtra {
                    simt_agent: (!asynchronous).then_some(0),
                    registers: if asynchronous { 0 } else { rng.within(1, 64) },
                    ring_bytes: if asynchronous { 1024 * rng.within(1, 32) } else { 0 },
                    ..NodeExtra::default()
                };
                p.add_node(&NodeDef {
                    id: bare.id(n),
                    name: bare.op_name(n),
                    latency: bare.latency(n),
                    uses: bare.uses(n),
                    pools: bare.pool_uses(n),
                    extra,
                    ..NodeDef::default()
                });
            }
            for e in bare.edges().values() {
                p.add_edge(e.from, e.to, e.latency, e.distance);
            }
            let ((ii, before), (same, after)) = (cost(&p, 0), cost(&p, 4_000));
            assert_eq!(ii, same, "{}", bare.name());
            assert!(after <= before, "{}: {before:?} -> {after:?}", bare.name());
            better += u32::from(after < before);
        }
    }
    assert!(better >= 8, "{better} loops got better");
}
