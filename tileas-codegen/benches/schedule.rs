//! Scheduling time, warm: `cargo bench -p tileas-codegen --features serde --bench schedule`.

use tileas_codegen::schedule::json::Documents;
use tileas_codegen::schedule::{Limits, Problem, RegionSchedule, ScheduleOptions, Scheduler};

#[path = "../tests/schedule_data/loops.rs"]
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
    warm(bencher, read(include_str!("../tests/schedule_data/gemm.json")));
}

#[divan::bench]
fn attention(bencher: divan::Bencher<'_, '_>) {
    warm(bencher, read(include_str!("../tests/schedule_data/attention.json")));
}

#[divan::bench(args = [48, 200, 1000])]
fn synthetic(bencher: divan::Bencher<'_, '_>, ops: usize) {
    warm(bencher, loops::synthetic(ops));
}
