//! A [`Model`] as a SAT problem with a theory of differences, and one search for a solution of it.
//!
//! Variables are in order encoding. What pairs of ops must keep apart becomes one Boolean per forbidden range (before
//! or after it), each side a conditional difference. Differences and counted rows go to [`super::theory`]; clauses link
//! neighbouring values, starts with rows, stages of groups, and entries of counted rows.
//!
//! In: a model. Out: [`Decision::run`]: a solution, that there is none, or that the steps ran out; then it can go on
//! later with all it has learned. Deterministic: a step is a conflict, or as many literals as take about as long.

use super::model::{Model, NONE};
use super::theory::{Differences, Meter, Test};
use batsat::{Callbacks, ClauseKind, Lit, Solver, SolverInterface, SolverOpts, lbool};
use std::rc::Rc;

/// What a search found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Values by variable of the model.
    Found(Vec<i32>),
    /// There is no solution.
    Refuted,
    /// The steps ran out.
    Unknown,
}

struct Hooks(Rc<Meter>);

impl Callbacks for Hooks {
    fn on_new_clause(&mut self, _: &[Lit], kind: ClauseKind) {
        if !matches!(kind, ClauseKind::Axiom) {
            self.0.conflict();
        }
    }

    fn stop(&self) -> bool {
        self.0.is_over()
    }
}

/// A model in a solver.
pub(super) struct Decision {
    pub model: Model,
    solver: Solver<Hooks>,
    theory: Differences,
    meter: Rc<Meter>,
    done: bool,
}

impl Decision {
    pub fn new(model: Model) -> Decision {
        let meter = Rc::new(Meter::default());
        let mut d = Decision {
            solver: Solver::new(SolverOpts::default(), Hooks(meter.clone())),
            theory: Differences::new(meter.clone()),
            model,
            meter,
            done: false,
        };
        d.encode();
        d
    }

    /// Searches for at most `steps` more; takes what it used off them.
    pub fn run(&mut self, steps: &mut u64) -> Answer {
        if self.done {
            return Answer::Refuted;
        }
        let before = self.meter.steps();
        self.meter.set_limit(before.saturating_add(*steps));
        let result = self.solver.solve_limited_th(&mut self.theory, &[]);
        // Even the least search is some work.
        *steps = steps.saturating_sub((self.meter.steps() - before).max(1));
        if result == lbool::TRUE {
            Answer::Found((0..self.model.vars.len() as u32).map(|x| self.value(x)).collect())
        } else if result == lbool::FALSE {
            self.done = true;
            Answer::Refuted
        } else {
            Answer::Unknown
        }
    }

    fn value(&self, x: u32) -> i32 {
        let var = self.model.vars[x as usize];
        let above = |v: &i32| match self.theory.at_least(x, *v) {
            Test::Lit(l) => self.solver.value_lit(l) == lbool::TRUE,
            test => test == Test::True,
        };
        (var.lo + 1..=var.hi).take_while(above).last().unwrap_or(var.lo)
    }

    fn fresh(&mut self) -> Lit {
        Lit::new(self.solver.new_var(lbool::UNDEF, true), true)
    }

    /// A clause of tests, each to be true or false.
    fn clause(&mut self, tests: &[(Test, bool)]) {
        let mut lits = Vec::with_capacity(tests.len());
        for &(test, holds) in tests {
            match test {
                Test::Lit(l) => lits.push(if holds { l } else { !l }),
                constant if (constant == Test::True) == holds => return,
                _ => {}
            }
        }
        // An empty clause is remembered by the solver.
        self.solver.add_clause_reuse(&mut lits);
    }

    fn encode(&mut self) {
        // One variable always exists.
        self.fresh();
        let choices: Vec<Vec<Lit>> = (0..self.model.apart.len())
            .map(|k| (0..self.model.apart[k].ranges.len()).map(|_| self.fresh()).collect())
            .collect();
        for x in 0..self.model.vars.len() {
            let var = self.model.vars[x];
            let base = self.solver.num_vars();
            for _ in var.lo..var.hi {
                self.fresh();
            }
            self.theory.add_int(base, var.lo, var.hi);
        }
        let entries: Vec<Vec<Lit>> = (0..self.model.counted.len())
            .map(|k| (0..self.model.counted[k].entries.len()).map(|_| self.fresh()).collect())
            .collect();
        self.theory.close_vars(self.solver.num_vars());
        let model = std::mem::take(&mut self.model);
        for (x, var) in (0..).zip(&model.vars) {
            for v in var.lo + 1..var.hi {
                let (this, next) = (self.theory.at_least(x, v), self.theory.at_least(x, v + 1));
                self.clause(&[(next, false), (this, true)]);
            }
        }
        for d in &model.diffs {
            self.theory.add_difference(Lit::UNDEF, d.a, d.b, d.c);
        }
        for (apart, choices) in model.apart.iter().zip(&choices) {
            for (&(first, last), &before) in apart.ranges.iter().zip(choices) {
                // Before the range, b - a <= first - 1; or after it, b - a >= last + 1.
                self.theory.add_difference(before, apart.b, apart.a, 1 - first);
                self.theory.add_difference(!before, apart.a, apart.b, last + 1);
            }
            for w in choices.windows(2) {
                self.clause(&[(Test::Lit(w[0]), false), (Test::Lit(w[1]), true)]);
            }
        }
        let ii = model.ii as i32;
        for &(time, row) in &model.channels {
            let var = model.vars[time as usize];
            for stage in var.lo.div_euclid(ii)..=var.hi.div_euclid(ii) {
                let here = self.theory.at_least(time, stage * ii);
                let above = self.theory.at_least(time, (stage + 1) * ii);
                for r in 1..ii {
                    let (start, row) =
                        (self.theory.at_least(time, stage * ii + r), self.theory.at_least(row, r));
                    self.clause(&[(here, false), (above, true), (start, false), (row, true)]);
                    self.clause(&[(here, false), (above, true), (start, true), (row, false)]);
                }
            }
        }
        for members in &model.stages {
            for w in members.windows(2).filter(|w| w[0] != NONE && w[1] != NONE) {
                let (a, b) = (model.vars[w[0] as usize], model.vars[w[1] as usize]);
                let (first, last) = (a.lo.min(b.lo).div_euclid(ii), a.hi.max(b.hi).div_euclid(ii));
                for stage in first..=last + 1 {
                    let x = self.theory.at_least(w[0], stage * ii);
                    let y = self.theory.at_least(w[1], stage * ii);
                    self.clause(&[(x, false), (y, true)]);
                    self.clause(&[(x, true), (y, false)]);
                }
            }
        }
        for (row, lits) in model.counted.iter().zip(&entries) {
            for (entry, &lit) in row.entries.iter().zip(lits) {
                for (lo, hi) in entry.ranges.into_iter().filter(|r| r.0 <= r.1) {
                    let from = self.theory.at_least(entry.var, lo);
                    let behind = self.theory.at_least(entry.var, hi + 1);
                    self.clause(&[(from, false), (behind, true), (Test::Lit(lit), true)]);
                }
            }
            let held = row.entries.iter().zip(lits).map(|(e, &l)| (e.units, l)).collect();
            self.theory.add_row(row.capacity, held);
        }
        self.model = model;
    }
}
