//! A warm scheduler allocates nothing.
#![expect(unsafe_code, reason = "counting allocations takes a global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tileas_schedule::{RegionSchedule, ScheduleOptions, Scheduler};

#[path = "data/loops.rs"]
mod loops;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; counting touches a thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_second_schedule_allocates_nothing() {
    let options = ScheduleOptions::default();
    let problems = [loops::synthetic(200), loops::synthetic(48), loops::synthetic(3)];
    let mut scheduler = Scheduler::new();
    let mut out = RegionSchedule::default();
    for p in &problems {
        let before = COUNT.get();
        scheduler.schedule_into(p, &options, &mut out).unwrap();
        let first = COUNT.get() - before;
        let answer = out.clone();
        let before = COUNT.get();
        scheduler.schedule_into(p, &options, &mut out).unwrap();
        let second = COUNT.get() - before;
        assert_eq!(second, 0, "{} ops", p.num_nodes());
        assert!(first > 0 || p.num_nodes() < 200, "the counter counts");
        assert_eq!(out, answer);
    }
}

/// Every strategy works in memory that stays: loops on which the first one fails, too.
#[test]
fn no_strategy_allocates_the_second_time() {
    use tileas_schedule::{ArmPolicy, Engine, SchedulerChoice, Strategy};
    use tileas_testgen::families::Family;
    let mut scheduler = Scheduler::new();
    let mut out = RegionSchedule::default();
    let mut found: Vec<Option<Strategy>> = Vec::new();
    for (scheduler_choice, arm_policy) in [
        (SchedulerChoice::Auto, ArmPolicy::FirstSuccess),
        (SchedulerChoice::CostBased, ArmPolicy::FirstSuccess),
        (SchedulerChoice::CostBased, ArmPolicy::LowestCost),
    ] {
        let options = ScheduleOptions {
            scheduler: scheduler_choice,
            arm_policy,
            exact_steps: 50_000,
            ..ScheduleOptions::default()
        };
        for family in Family::ALL {
            // Large loops take other ways.
            for (ops, seed) in [(24, 0), (24, 1), (24, 2), (96, 0)] {
                let (p, _) = family.problem(ops, seed);
                scheduler.schedule_into(&p, &options, &mut out).unwrap();
                if out.status.serial_fallback {
                    continue;
                }
                found.push(out.stats.strategy);
                let before = COUNT.get();
                scheduler.schedule_into(&p, &options, &mut out).unwrap();
                assert_eq!(COUNT.get() - before, 0, "{}", p.name());
            }
        }
    }
    assert!(
        found.contains(&Some(Strategy::Ims)) && found.contains(&Some(Strategy::Search(Engine::Orders))),
        "{found:?}"
    );
}
