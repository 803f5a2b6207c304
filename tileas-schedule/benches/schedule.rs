//! Scheduling time, warm: `cargo bench -p tileas-schedule --features serde --bench schedule`. Without `arbitrary` the
//! random families are left out.

use tileas_schedule::json::Documents;
use tileas_schedule::{Limits, Problem, RegionSchedule, ScheduleOptions, Scheduler};

#[path = "../tests/data/loops.rs"]
mod loops;

#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

fn read(text: &str) -> Problem {
    let mut documents = Documents::read(text, &Limits::default()).expect("the example is valid");
    documents.regions.remove(0).problem
}

fn warm(bencher: divan::Bencher<'_, '_>, problem: Problem) {
    let (mut scheduler, mut out) = (Scheduler::new(), RegionSchedule::default());
    let options = ScheduleOptions::default();
    bencher.bench_local(|| {
        scheduler.schedule_into(divan::black_box(&problem), &options, &mut out).expect("schedulable");
        out.ii
    });
}

#[divan::bench]
fn gemm(bencher: divan::Bencher<'_, '_>) {
    warm(bencher, read(include_str!("../tests/data/gemm.json")));
}

#[divan::bench]
fn attention(bencher: divan::Bencher<'_, '_>) {
    warm(bencher, read(include_str!("../tests/data/attention.json")));
}

#[divan::bench(args = [48, 200, 1000])]
fn synthetic(bencher: divan::Bencher<'_, '_>, ops: usize) {
    warm(bencher, loops::synthetic(ops));
}

/// Random loops, one after the other: the time is that of all [`SEEDS`] of them.
mod families {
    use super::*;
    use tileas_testgen::families::Family;

    const FIRST: u64 = 60_000;
    const SEEDS: u64 = 10;

    fn all(bencher: divan::Bencher<'_, '_>, family: Family, ops: u32) {
        let problems: Vec<Problem> = (FIRST..FIRST + SEEDS).map(|seed| family.problem(ops, seed).0).collect();
        let (mut scheduler, mut out) = (Scheduler::new(), RegionSchedule::default());
        let options = ScheduleOptions::default();
        bencher.bench_local(|| {
            for problem in &problems {
                scheduler.schedule_into(divan::black_box(problem), &options, &mut out).expect("schedulable");
            }
            out.ii
        });
    }

    #[divan::bench(args = [48, 200, 1000])]
    fn gemm_10(bencher: divan::Bencher<'_, '_>, ops: u32) {
        all(bencher, Family::Gemm, ops);
    }

    #[divan::bench(args = [48, 200, 1000])]
    fn attention_10(bencher: divan::Bencher<'_, '_>, ops: u32) {
        all(bencher, Family::Attention, ops);
    }

    #[divan::bench(args = [48, 200, 1000])]
    fn elementwise_10(bencher: divan::Bencher<'_, '_>, ops: u32) {
        all(bencher, Family::Elementwise, ops);
    }
}
