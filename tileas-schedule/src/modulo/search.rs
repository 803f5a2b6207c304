//! Asks one search for a schedule at one II.
//!
//! In: a loop, an II, a schedule of a larger II to begin near, a budget of steps. Out: [`Answer`]; a success replaces the last
//! one of the [`Placement`]. Sets up what all searches share: windows, closed distances, an empty table with a row per cycle
//! up to [`MAX_ROWS`] (whatever `published.rrt-size-threshold` says), the [`Model`], with ops merged that recurrences without slack hold
//! together. What is not decided by a search, ops that nothing restricts modulo II, gets its start afterwards, and
//! components move by whole stages until all dependences hold.
//!
//! Guarantee: what was found is legal; what was refuted does not exist. Cost: ops² for the set-up, then the budget.

use super::eject::Eject;
use super::model::{MAX_ROWS, Model};
use super::orders::Orders;
use super::tabu::Tabu;
use crate::entities::Node;
use crate::graph::Graph;
pub(crate) use crate::options::Engine;
use crate::placement::{Loop, Placement};
use crate::windows::Windows;

/// What a search found out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The starts are those of the [`Placement`].
    Found,
    /// No schedule has this II.
    Refuted,
    /// The budget ran out.
    Unknown,
    /// The loop has more ops or rows than the search deals with.
    TooLarge,
}

/// The searches and their memory.
#[derive(Default)]
pub(crate) struct Search {
    model: Model,
    orders: Orders,
    eject: Eject,
    tabu: Tabu,
    starts: Vec<i32>,
    /// How often a search that draws random numbers was asked.
    turn: u64,
}

impl Search {
    /// Steps that setting up is worth.
    pub fn setup_steps(g: &Graph) -> u64 {
        u64::from(g.n) * u64::from(g.n) / 8
    }

    /// A new loop: the same seeds as with a new scheduler.
    pub fn begin(&mut self) {
        self.turn = 0;
    }

    /// Asks `engine` at `ii`; `known`: the II of the last success, if there is one.
    pub fn ask(
        &mut self,
        engine: Engine,
        at: &mut Placement,
        l: Loop<'_>,
        ii: u32,
        known: Option<u32>,
        budget: &mut u64,
    ) -> Answer {
        if !at.windows.prepare(l.p, l.g, ii.into(), l.o.max_stages, &mut at.stuck) {
            return Answer::Refuted;
        }
        let answer = self.ask_within(engine, at, l, ii, known, budget);
        if answer == Answer::Found {
            at.keep_placed();
        }
        answer
    }

    /// As [`Search::ask`], with the windows as they are; what is found is placed, and not kept.
    pub fn ask_within(
        &mut self,
        engine: Engine,
        at: &mut Placement,
        l: Loop<'_>,
        ii: u32,
        known: Option<u32>,
        budget: &mut u64,
    ) -> Answer {
        if ii > MAX_ROWS || !at.closure.build(l.g, ii) {
            return Answer::TooLarge;
        }
        if at.table.clear(l.p, ii, 0).is_err() {
            return Answer::Refuted;
        }
        let windows = &at.windows;
        if !self.model.build(l.g, &at.closure, &at.table, windows, ii) {
            return Answer::TooLarge;
        }
        if !self.model.merge_rigid() {
            return Answer::Refuted;
        }
        let guide = known.map(|from| (at.starts(), from));
        let found = |found| if found { Answer::Found } else { Answer::Unknown };
        let answer = if engine == Engine::Orders {
            self.orders.solve(&self.model, windows, guide, u64::from(ii), budget)
        } else {
            self.turn += 1;
            let seed = self.turn.wrapping_add(l.o.seed << 32);
            match engine {
                Engine::Ejection => found(self.eject.solve(&self.model, windows, guide, seed, budget)),
                _ => found(self.tabu.solve(&self.model, windows, guide, seed, budget)),
            }
        };
        if answer != Answer::Found {
            return answer;
        }
        let starts = match engine {
            Engine::Orders => &self.orders.early,
            Engine::Ejection => &self.eject.start,
            Engine::Tabu => &self.tabu.start,
        };
        self.starts.clear();
        self.starts.extend_from_slice(&starts[..self.model.ops.len()]);
        if !self.extend(l.g, windows, &mut at.ims.start, ii) {
            return Answer::Unknown;
        }
        for (u, &t) in at.ims.start.iter().enumerate() {
            at.table.place(Node::from_u32(u as u32), t);
        }
        Answer::Found
    }

    /// Starts of all ops: what was decided, and the rest as early as that allows.
    fn extend(&mut self, g: &Graph, windows: &Windows, out: &mut Vec<i64>, ii: u32) -> bool {
        let (model, wide) = (&self.model, i64::from(ii));
        out.clear();
        out.extend_from_slice(&windows.early);
        for a in 0..model.ops.len() {
            out[model.ops[a] as usize] = i64::from(self.starts[a]);
        }
        for &(op, a, far) in &model.riders {
            out[op as usize] = i64::from(self.starts[a as usize] + far);
        }
        let decided = |u: u32| model.position[u as usize];
        // A component is as late as its earliest member demands.
        let raise = |out: &mut [i64], u: u32, least: i64| -> bool {
            let now = out[u as usize];
            if least <= now {
                return true;
            }
            let a = decided(u);
            if a == u32::MAX {
                out[u as usize] = least;
                return true;
            }
            let c = model.component[a as usize];
            let shift = (least - now + wide - 1) / wide * wide;
            for b in 0..model.ops.len() {
                if model.component[b] == c {
                    out[model.ops[b] as usize] += shift;
                }
            }
            for &(op, b, _) in &model.riders {
                if model.component[b as usize] == c {
                    out[op as usize] += shift;
                }
            }
            c != model.rooted
        };
        for u in 0..g.n {
            let least = windows.early[u as usize];
            if decided(u) != u32::MAX && !raise(out, u, least) {
                return false;
            }
        }
        for _ in 0..=g.n + 1 {
            let mut changed = false;
            for &u in &g.topo {
                for arc in g.succ.of(u) {
                    let least = out[u as usize] + arc.weight(wide);
                    changed |= least > out[arc.node as usize];
                    if !raise(out, arc.node, least) {
                        return false;
                    }
                }
            }
            if !changed {
                return true;
            }
        }
        false
    }
}
