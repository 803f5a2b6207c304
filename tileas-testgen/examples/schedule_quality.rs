//! Schedules the random families and writes what a comparison with a constraint solver needs.
//!
//! `cargo run --release -p tileas-testgen --example schedule_quality -- OUT SEEDS [SIZES [DETAIL
//! [FIRST_SEED [FAMILIES]]]]` (sizes and families are lists with commas) writes `OUT.tsv` (one line per loop: name, family, ops,
//! II, proven lower bound, known optimum or `-`, whether the II is proven optimal, strategy, microseconds on a warm scheduler, the size asked for,
//! and the II of the serial schedule, of all arms, of one pass of Rau's method and of the permute arm, each alone, `-` where it
//! falls back to the serial one, stages with a start and the stage count) and `OUT.json` (documents of the loops that are not proven optimal, for
//! `benches/quality/judge.py`). FAMILIES may also be a file of documents that some other generator wrote, named
//! FAMILY/SIZE/SEED and, where the smallest II is known, FAMILY/SIZE/SEED/opt=II; seeds and sizes then say nothing. DETAIL: `open` is that, `all` has documents of every loop, `some` leaves the simpler schedulers out.

use std::fmt::Write;
use std::time::Instant;
use tileas_schedule::json::{Document, Documents};
use tileas_schedule::{
    ArmPolicy, Engine, Engines, Limits, Problem, RegionSchedule, Rung, Rungs, ScheduleOptions, Scheduler,
    SchedulerChoice, verify::verify,
};
use tileas_testgen::families::Family;

/// The fastest of so many runs counts, but of those above so many microseconds the first one does.
const REPEATS: u32 = 5;
const LONG: f64 = 20_000.0;

/// What simpler schedulers reach: serial, the arms alone, Rau's method alone.
fn simpler(problem: &Problem, scheduler: &mut Scheduler) -> Result<String, Box<dyn std::error::Error>> {
    let all = ScheduleOptions::default();
    let scheduler_choice = SchedulerChoice::CostBased;
    let alone =
        |rung| ScheduleOptions { scheduler: scheduler_choice, rungs: Rungs::only(&[rung]), ..all.clone() };
    let serial = ScheduleOptions { scheduler: SchedulerChoice::Serial, ..all.clone() };
    let permute = ScheduleOptions { arm_policy: ArmPolicy::Permute, ..alone(Rung::InitialPlacement) };
    let mut text = String::new();
    for options in [serial, alone(Rung::InitialPlacement), alone(Rung::RauRefinement), permute] {
        let schedule = scheduler.schedule(problem, &options)?;
        match schedule.status.serial_fallback {
            true => text.push_str("\t-"),
            false => write!(text, "\t{}", schedule.ii)?,
        }
    }
    Ok(text)
}

/// A loop, its family, the size asked for, and its smallest II where that is known.
type Loop = (Problem, String, u32, Option<u32>);

/// The loops of a file of documents.
fn read(file: &str) -> Result<Vec<Loop>, Box<dyn std::error::Error>> {
    let documents = Documents::read(&std::fs::read_to_string(file)?, &Limits::default());
    let mut loops = Vec::new();
    for problem in documents.map_err(|e| format!("{file}: {e:?}"))?.regions.into_iter().map(|d| d.problem) {
        let name = problem.name().to_owned();
        let mut parts = name.split('/');
        let family = parts.next().unwrap_or_default().to_owned();
        let size = parts.next().and_then(|s| s.parse().ok()).unwrap_or_default();
        let known = name.split_once("opt=").and_then(|(_, ii)| ii.parse().ok());
        loops.push((problem, family, size, known));
    }
    Ok(loops)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let out = args.get(1).ok_or("usage: schedule_quality OUT SEEDS [SIZES]")?;
    let seeds: u64 = args.get(2).map_or(Ok(6), |s| s.parse())?;
    let detail = args.get(4).map_or("open", |s| s);
    let every = detail == "all";
    let sizes = args.get(3).map_or("8,12,16,24,32,48,64", |s| s);
    let sizes: Vec<u32> = sizes.split(',').map(|s| s.parse()).collect::<Result<_, _>>()?;
    let first: u64 = args.get(5).map_or(Ok(0), |s| s.parse())?;
    let wanted = args.get(6).map(String::as_str);
    let loops = match wanted {
        Some(file) if file.ends_with(".json") => read(file)?,
        _ => {
            let families = Family::ALL
                .into_iter()
                .filter(|f| wanted.is_none_or(|w| w.split(',').any(|w| w == f.name())));
            let each = |f: Family, size: u32, seed| {
                let (problem, known) = f.problem(size, seed);
                (problem, f.name().to_owned(), size, known)
            };
            let seeds = |f, size| (first..first + seeds).map(move |seed| each(f, size, seed));
            families.flat_map(|f| sizes.iter().flat_map(move |&size| seeds(f, size))).collect()
        }
    };
    let mut options = ScheduleOptions::default();
    if let Ok(names) = std::env::var("ENGINES") {
        let asked: Vec<Engine> =
            Engine::ALL.into_iter().filter(|e| names.split(',').any(|n| n == e.name())).collect();
        options.engines = Engines::only(&asked);
    }
    let (mut scheduler, mut schedule) = (Scheduler::new(), RegionSchedule::default());
    let (mut table, mut open) = (String::new(), Vec::new());
    for (problem, family, size, known) in loops {
        scheduler.schedule_into(&problem, &options, &mut schedule)?;
        let mut micros = f64::INFINITY;
        for _ in 0..REPEATS {
            let begin = Instant::now();
            scheduler.schedule_into(&problem, &options, &mut schedule)?;
            micros = micros.min(begin.elapsed().as_secs_f64() * 1e6);
            if micros > LONG {
                break;
            }
        }
        let violations = verify(&problem, &schedule);
        if !violations.is_empty() {
            return Err(format!("{}: {violations:?}", problem.name()).into());
        }
        let proven = schedule.stats.ii_is_optimal || Some(schedule.ii) == known;
        let rung = schedule.stats.strategy.map_or("serial", |s| s.name());
        let known_text = known.map_or("-".to_owned(), |k| k.to_string());
        let (name, bound) = (problem.name(), schedule.bounds.max().max(schedule.trail.proven));
        let others = if detail == "some" { String::new() } else { simpler(&problem, &mut scheduler)? };
        let (ops, ii) = (problem.num_nodes(), schedule.ii);
        let (stages, finish) = (schedule.code_stages(), schedule.stage_count);
        writeln!(
            table,
            "{name}\t{family}\t{ops}\t{ii}\t{bound}\t{known_text}\t{proven}\t{rung}\t{micros:.1}\t{size}{others}\t{stages}\t{finish}"
        )?;
        if every || !proven && known.is_none() {
            open.push(Document::of(problem).filled(&schedule).to_string());
        }
    }
    std::fs::write(format!("{out}.tsv"), table)?;
    std::fs::write(format!("{out}.json"), format!("[{}]\n", open.join(",\n")))?;
    Ok(())
}
