//! Labels random loops by exact mode: what does a solver make of what the heuristics leave open?
//!
//! `cargo run --release -p tileas-testgen --example exact_labels --
//! OUT.tsv FAMILIES SIZES FIRST_SEED SEEDS STEPS` (families and sizes are lists with commas) schedules each loop with
//! default options and then with `scheduler = optimal` and STEPS steps. One line per loop: name, family, ops, largest
//! bound, what the heuristics proved, their II, the least and largest II that exact mode leaves, stages of both, steps
//! used, seconds of both, and a label. Printed at the end: a table of labels by family and size.
//!
//! Labels: `bound` (the heuristics proved their II), `equal` (exact mode proved it), `worse` (exact mode found a
//! smaller II and proved that), `worse?` (it found a smaller one, a still smaller one is open), `open` (nothing found,
//! nothing settled). Beside `benches/quality/judge.py`, this needs no other solver, and it proves stages as well.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;
use tileas_schedule::{ScheduleOptions, Scheduler, SchedulerChoice, verify::verify};
use tileas_testgen::families::Family;

const LABELS: [&str; 5] = ["bound", "equal", "worse", "worse?", "open"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, out, families, sizes, first, seeds, steps] = &args[..] else {
        return Err("usage: exact_labels OUT.tsv FAMILIES SIZES FIRST_SEED SEEDS STEPS".into());
    };
    let (first, seeds): (u64, u64) = (first.parse()?, seeds.parse()?);
    let sizes: Vec<u32> = sizes.split(',').map(|s| s.parse()).collect::<Result<_, _>>()?;
    let heuristic = ScheduleOptions::default();
    let exact = ScheduleOptions {
        scheduler: SchedulerChoice::Optimal,
        optimal_steps: steps.parse()?,
        ..heuristic.clone()
    };
    let mut scheduler = Scheduler::new();
    // Line by line: the largest loops take minutes.
    let mut table = std::fs::File::create(out)?;
    let mut counts: BTreeMap<(&str, u32), [u32; LABELS.len()]> = BTreeMap::new();
    for name in families.split(',') {
        let family = Family::ALL.into_iter().find(|f| f.name() == name);
        let family = family.ok_or_else(|| format!("unknown family `{name}`"))?;
        for &size in &sizes {
            for seed in first..first + seeds {
                let (problem, _) = family.problem(size, seed);
                let begin = Instant::now();
                let before = scheduler.schedule(&problem, &heuristic)?;
                let alone = begin.elapsed().as_secs_f64();
                let begin = Instant::now();
                let after = scheduler.schedule(&problem, &exact)?;
                let both = begin.elapsed().as_secs_f64();
                if !verify(&problem, &after).is_empty() {
                    return Err(format!("{}: the schedule is not legal", problem.name()).into());
                }
                let found = after.optimality.ok_or("exact mode did not run")?;
                let (least, most) = found.ii;
                let label = match (before.stats.ii_is_optimal, least == most, most < before.ii) {
                    (true, ..) => 0,
                    (false, true, false) => 1,
                    (false, true, true) => 2,
                    (false, false, true) => 3,
                    (false, false, false) => 4,
                };
                counts.entry((family.name(), size)).or_default()[label] += 1;
                let (p, stages, fewer) = (problem.num_nodes(), before.code_stages(), after.code_stages());
                let (bound, proven, text) = (before.bounds.max(), before.trail.proven, LABELS[label]);
                writeln!(
                    table,
                    "{}\t{name}\t{p}\t{bound}\t{proven}\t{}\t{least}\t{most}\t{stages}\t{fewer}\t{}\t{alone:.3}\t{both:.3}\t{text}",
                    problem.name(),
                    before.ii,
                    found.steps
                )?;
            }
        }
    }
    println!("| family | ops | {} |\n|---|---|{}", LABELS.join(" | "), "---|".repeat(LABELS.len()));
    for ((family, size), labels) in counts {
        let labels = labels.map(|n| n.to_string()).join(" | ");
        println!("| {family} | {size} | {labels} |");
    }
    Ok(())
}
