//! The rounds in which loops are scheduled again for what the stages behind ask for.
//!
//! In: schedules and the buffers assigned for them. Out: the best of both that was found, with the record of the rounds
//! on the regions. Each round puts the requests of one loop and one family on trial: the loop is scheduled under them
//! and everything that was kept before, buffers are assigned, and the result is compared. Better: they stay. Not better:
//! the last one is lifted and the others are tried without it, one by one; rejected depths are a fact of memory
//! and stand or fall together, after what new rejects they lead to was added. The rounds end when no stage asks for
//! anything new (converged), or with the option `published.max-constraint-iterations` (truncated).
//!
//! What better means: cycles of the loops, and those that stores and loads of registers take; then registers above the budgets, latency that no slot covers, bytes of
//! rings, stages. Rejects are judged by cycles alone, where the first schedule wins among equals.
//! Cost: one look at the channels where no stage asks for anything; else one schedule and one assignment a round.

use super::stages::{Placed, Search};
use crate::buffers::BufferAssignment as Buffers;
use crate::buffers::depth::{self, Party};
use crate::buffers::requests;
use crate::ddg::refine::{self, Constraint, Extra, Family, Request, Round, RoundStatus};
use crate::ddg::{ScheduleAnalysis, ScheduledRegion};
use crate::error::CodegenResult;
use crate::ir::Op;
use crate::schedule::SchedulerChoice;
use crate::storage::Storage;
use crate::storage::cost;

/// Cycles of an iteration that a register above the budget costs.
const SPILLED: u64 = 4;
/// Cycles of an iteration that a register costs which has to be stored and loaded: what four warps move takes a cycle a warp either way, and the
/// assembler moves about twice as much as it must. Lost without it: of 559 kernels of other people seven spill 0.4 to 3 KB a thread; with it five
/// that would not have spilled have longer intervals.
const STORED: u64 = 16;

/// What the rounds work on.
pub(super) struct Refiner<'a> {
    pub placed: &'a Placed,
    pub storage: &'a Storage,
    pub search: Search<'a>,
}

/// What a schedule with its buffers is judged by, the first difference first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    cycles: u64,
    registers: u64,
    uncovered: u64,
    ring_bytes: u64,
    stages: u64,
}

/// Constraints on trial.
#[derive(Default)]
struct Trial {
    for_op: Option<Op>,
    family: Option<Family>,
    members: Vec<u32>,
    /// Whether what follows from others was added.
    followed: bool,
}

impl Refiner<'_> {
    /// Schedules and buffers after all rounds. `given`: what the schedules were made with.
    pub fn run(
        &mut self,
        analysis: ScheduleAnalysis,
        assigned: Buffers,
        given: Vec<Constraint>,
    ) -> CodegenResult<(ScheduleAnalysis, Buffers)> {
        let mut asked = Vec::new();
        self.requests(&analysis, &assigned, &mut asked);
        if asked.is_empty() && given.is_empty() {
            return Ok((analysis, assigned));
        }
        let (best, extra) = self.rounds(analysis, assigned, given, asked)?;
        self.without_waits(best, extra)
    }

    /// Loops whose agents would wait for each other, because rings shrank to what memory holds and no schedule was found that
    /// needs no more, run one iteration after the other.
    fn without_waits(
        &mut self,
        best: (ScheduleAnalysis, Buffers),
        mut extra: Extra,
    ) -> CodegenResult<(ScheduleAnalysis, Buffers)> {
        let (analysis, assigned) = &best;
        if assigned.rejects.is_empty() || self.search.settings.require_pipelining {
            return Ok(best);
        }
        let party = Party { func: self.placed.func(), plan: self.placed.plan(), needs: &assigned.needs };
        let stuck = analysis.regions.iter().filter(|r| {
            let schedule = analysis.loops[r.for_op].as_deref();
            schedule.is_some_and(|s| !s.serial && !depth::runs_on(party, self.search.isa, s, &assigned.pipes))
        });
        let stuck: Vec<Op> = stuck.map(|r| r.for_op).collect();
        if stuck.is_empty() {
            return Ok(best);
        }
        // Whatever generator was asked for; the other loops keep their schedules.
        let mut others = analysis.clone();
        others.regions.retain(|r| !stuck.contains(&r.for_op));
        extra.serial.extend(stuck);
        let mut serial = self.search.settings.clone();
        serial.scheduler = SchedulerChoice::Serial;
        let Search { isa, constraints, scheduler, steps, .. } = &mut self.search;
        let search = Search { isa: *isa, settings: &serial, constraints, scheduler, steps };
        let mut next =
            Refiner { search, placed: self.placed, storage: self.storage }.attempt(&extra, &others)?;
        for (new, old) in next.0.regions.iter_mut().zip(&analysis.regions) {
            new.schedule.rounds.clone_from(&old.schedule.rounds);
            (new.schedule.status.truncated, new.schedule.status.converged) =
                (old.schedule.status.truncated, old.schedule.status.converged);
        }
        Ok(next)
    }

    /// The rounds; besides the best of them the constraints it was made with.
    fn rounds(
        &mut self,
        analysis: ScheduleAnalysis,
        assigned: Buffers,
        given: Vec<Constraint>,
        mut asked: Vec<Constraint>,
    ) -> CodegenResult<((ScheduleAnalysis, Buffers), Extra)> {
        let mut best = (analysis, assigned);
        let mut kept: Vec<u32> = (0..given.len() as u32).collect();
        let mut rounds = self.first(&best, &given);
        // For those nothing was scheduled again.
        let most = rounds.len() as u64 + u64::from(self.search.settings.max_constraint_iterations);
        let mut known = given;
        let mut trial = Trial::default();
        let mut truncated = false;
        loop {
            let mut added = Vec::new();
            if trial.members.is_empty() {
                asked.retain(|c| !is_known(&known, c));
                let Some(first) = asked.first() else { break };
                (trial.for_op, trial.family) = (Some(first.for_op), Some(first.family));
                trial.followed = false;
                let (for_op, family) = (first.for_op, first.family);
                let batch = asked.iter().filter(|c| (c.for_op, c.family) == (for_op, family));
                add(&mut known, batch, &mut trial, &mut added);
            }
            let Some(for_op) = trial.for_op else { break };
            if rounds.len() as u64 >= most {
                truncated = true;
                break;
            }
            let added = added.iter().map(|&n| self.request(&best.0, &known, n)).collect();
            let mut round = Round {
                number: rounds.len() as u32 + 1,
                added,
                trial: trial.members.clone(),
                cycles: (self.cycles_of(&best, for_op), None),
                kept: false,
                lifted: Vec::new(),
                status: RoundStatus::OPEN,
            };
            let mut extra = Extra::default();
            kept.iter().chain(&trial.members).for_each(|&n| extra.add(&known[n as usize]));
            let reason = match self.attempt(&extra, &best.0) {
                Err(e) => Err(e.message),
                Ok(next) => {
                    let now = self.cycles_of(&next, for_op);
                    round.cycles.1 = Some(now);
                    let (new, old) = (self.score(&next), self.score(&best));
                    let hard = trial.family == Some(Family::Reject);
                    let sure = trial.members.iter().all(|&n| refine::is_sure(known[n as usize].asker));
                    let better = if hard { new.cycles < old.cycles } else { new < old };
                    if sure || better {
                        Ok(next)
                    } else {
                        let before = round.cycles.0;
                        let worse = now > before;
                        let text = match worse {
                            true => format!("an iteration would take {now} cycles instead of {before}"),
                            false => "nothing is better with it".to_owned(),
                        };
                        // Other rings may be short in the new schedule; their edges belong to the same try. What else buffers
                        // ask for of it is added once: another order may only have moved tiles apart that are handed over together.
                        asked.clear();
                        self.requests(&next.0, &next.1, &mut asked);
                        asked.retain(|c| {
                            let follows = match hard {
                                true => c.family == Family::Reject,
                                false => !trial.followed && c.asker == "buffers",
                            };
                            follows && c.for_op == for_op && !is_known(&known, c)
                        });
                        Err(text)
                    }
                }
            };
            match reason {
                Ok(next) => {
                    best = next;
                    kept.append(&mut trial.members);
                    round.kept = true;
                }
                Err(_) if !asked.is_empty() && round.cycles.1.is_some() => {
                    trial.followed = true;
                    let mut more = Vec::new();
                    add(&mut known, asked.iter(), &mut trial, &mut more);
                    // They are shown with the round that asked for them.
                    round.added.extend(more.iter().map(|&n| self.request(&best.0, &known, n)));
                }
                Err(text) if trial.family == Some(Family::Reject) => {
                    round.lifted.extend(trial.members.drain(..).map(|n| (n, text.clone())));
                }
                Err(text) => round.lifted.extend(trial.members.pop().map(|n| (n, text))),
            }
            rounds.push((for_op, round));
            if trial.members.is_empty() {
                asked.clear();
                self.requests(&best.0, &best.1, &mut asked);
            }
        }
        record(&mut best.0, rounds, truncated);
        let mut extra = Extra::default();
        kept.iter().for_each(|&n| extra.add(&known[n as usize]));
        Ok((best, extra))
    }

    /// The rounds that what was known before the first schedule stands for, one a loop.
    fn first(&self, best: &(ScheduleAnalysis, Buffers), given: &[Constraint]) -> Vec<(Op, Round)> {
        let mut rounds: Vec<(Op, Round)> = Vec::new();
        for (n, c) in (0..).zip(given) {
            if rounds.last().is_none_or(|(for_op, _)| *for_op != c.for_op) {
                let cycles = self.cycles_of(best, c.for_op);
                let round = Round {
                    number: rounds.len() as u32 + 1,
                    added: Vec::new(),
                    trial: Vec::new(),
                    cycles: (cycles, Some(cycles)),
                    kept: true,
                    lifted: Vec::new(),
                    status: RoundStatus::OPEN,
                };
                rounds.push((c.for_op, round));
            }
            if let Some((_, round)) = rounds.last_mut() {
                round.added.push(self.request(&best.0, given, n));
                round.trial.push(n);
            }
        }
        rounds
    }

    fn attempt(
        &mut self,
        extra: &Extra,
        before: &ScheduleAnalysis,
    ) -> CodegenResult<(ScheduleAnalysis, Buffers)> {
        let next = self.search.schedule(self.placed, self.storage, extra, Some(before))?;
        let assigned = self.search.buffers(self.placed, self.storage, &next)?;
        Ok((next, assigned))
    }

    /// Everything that the stages ask for, the most urgent first.
    fn requests(&self, analysis: &ScheduleAnalysis, assigned: &Buffers, out: &mut Vec<Constraint>) {
        for region in &analysis.regions {
            let trips = cost::static_trips(self.placed.func(), region.for_op);
            refine::requests(
                region,
                |agent| self.placed.registers_for_tiles(self.search.settings, agent),
                trips,
                out,
            );
        }
        requests::requests(self.placed.func(), self.placed.plan(), self.search.isa, analysis, assigned, out);
    }

    fn score(&self, (analysis, assigned): &(ScheduleAnalysis, Buffers)) -> Score {
        let (mut registers, mut stored) = (0, 0);
        for r in &analysis.regions {
            for a in refine::register_agents(&r.problem) {
                let levels = refine::register_levels(&r.problem, &r.schedule, a);
                registers += u64::from(
                    refine::most_of(&levels)
                        .saturating_sub(self.placed.registers_for_tiles(self.search.settings, a)),
                );
                // What is estimated is off by an eighth at most, mostly.
                stored += refine::stored_above(
                    &levels,
                    self.placed.registers(self.search.settings, a)
                        + self.placed.registers(self.search.settings, a) / 8,
                );
            }
        }
        let cycles = analysis.regions.iter().map(|r| u64::from(self.cycles(r, assigned)));
        Score {
            cycles: cycles.sum::<u64>() + SPILLED * registers + STORED * stored,
            registers,
            uncovered: requests::all_uncovered(assigned),
            ring_bytes: requests::ring_bytes(assigned),
            stages: analysis.regions.iter().map(|r| u64::from(r.schedule.code_stages())).sum(),
        }
    }

    /// Cycles of an iteration: the interval; where the trip count is known, the average from the first start to the end.
    fn cycles(&self, r: &ScheduledRegion, assigned: &Buffers) -> u32 {
        let ii = assigned.ii_eff[r.for_op];
        let Some(trips) = cost::static_trips(self.placed.func(), r.for_op) else { return ii };
        let end = |n| u64::from(r.schedule.start[n]) + u64::from(r.problem.latency(n));
        let length = r.problem.nodes().map(end).max().unwrap_or(0);
        let all = (trips.max(1) - 1).saturating_mul(ii.into()).saturating_add(length);
        u32::try_from(all.div_ceil(trips.max(1))).unwrap_or(u32::MAX)
    }

    fn cycles_of(&self, (analysis, assigned): &(ScheduleAnalysis, Buffers), for_op: Op) -> u32 {
        analysis.region(for_op).map_or(0, |r| self.cycles(r, assigned))
    }

    /// A constraint as people see it: ops by the ids of their loop's schedule.
    fn request(&self, analysis: &ScheduleAnalysis, known: &[Constraint], number: u32) -> Request {
        let c = &known[number as usize];
        let name = |op: Op| {
            let node = analysis.node(op).map(|(r, n)| r.problem.id(n).to_owned());
            node.unwrap_or_else(|| op.to_string())
        };
        let rule = refine::rule_text(&c.rule, name);
        Request { number, family: c.family, asker: c.asker, rule, why: c.why.clone() }
    }
}

/// Whether a constraint was tried before, for whatever reason it was asked for.
fn is_known(known: &[Constraint], c: &Constraint) -> bool {
    known.iter().any(|k| k.for_op == c.for_op && k.rule == c.rule)
}

/// Puts constraints on trial.
fn add<'c>(
    known: &mut Vec<Constraint>,
    batch: impl Iterator<Item = &'c Constraint>,
    trial: &mut Trial,
    added: &mut Vec<u32>,
) {
    for c in batch {
        if !is_known(known, c) {
            let number = known.len() as u32;
            known.push(c.clone());
            trial.members.push(number);
            added.push(number);
        }
    }
}

/// Writes the rounds to the regions they are about, and how it ended to all that were refined.
fn record(analysis: &mut ScheduleAnalysis, mut rounds: Vec<(Op, Round)>, truncated: bool) {
    if let Some((_, last)) = rounds.last_mut() {
        last.status = if truncated { RoundStatus::BUDGET_EXCEEDED } else { RoundStatus::CONVERGED };
    }
    for region in &mut analysis.regions {
        region.schedule.status.truncated = truncated;
        region.schedule.status.converged = !truncated;
    }
    for (for_op, round) in rounds {
        if let Some(region) = analysis.regions.iter_mut().find(|r| r.for_op == for_op) {
            region.schedule.rounds.push(round);
        }
    }
}
