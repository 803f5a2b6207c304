//! The budgets of a loop are kept, whatever its family and size.

use tileas_schedule::verify::verify;
use tileas_schedule::{RegionSchedule, ScheduleOptions, Scheduler};
use tileas_testgen::families::Family;

/// What a single loop may take does not grow with its size: `search.exact-steps`, in which steps of large loops count more, and what the
/// arms and the search for fewer stages take.
#[test]
fn a_loop_of_any_family_and_size_stays_within_its_steps() {
    let (mut scheduler, mut s) = (Scheduler::new(), RegionSchedule::default());
    let mut spent = 0;
    for exact_steps in [0, 30_000, 100_000] {
        let o = ScheduleOptions { exact_steps, ..ScheduleOptions::default() };
        let most = exact_steps + exact_steps / 8 + 2 * o.arm_steps;
        for (family, ops) in Family::ALL.into_iter().flat_map(|f| [24, 64, 96, 200].map(|ops| (f, ops))) {
            let (p, _) = family.problem(ops, 1);
            scheduler.schedule_into(&p, &o, &mut s).unwrap_or_else(|e| panic!("{e:?}"));
            assert_eq!(verify(&p, &s), []);
            assert!(s.stats.steps <= most, "{}: {} of {most}", p.name(), s.stats.steps);
            spent += u32::from(s.stats.steps > exact_steps / 2);
        }
    }
    assert!(spent > 20, "{spent}");
}
