//! The default generator: iterative modulo scheduling on the way up, searches on the way down, then polish.
//!
//! In: a loop, a proven lower bound on II, a cap. Out: starts and an II, in the [`Placement`]. Three steps:
//!
//! 1. *Up*: one attempt of iterative modulo scheduling per II, one by one to [`LINEAR`]. Most loops end here, at the bound. Where the
//!    bound is above that the searches come next, and only if they find nothing there are attempts in doubling steps and then halving.
//! 2. *Down* ([`Modulo::down`]): while the II found is above the proven bound and steps are left, the searches of [`search`] take
//!    turns at smaller ones. The search over orders is asked at the bound as well, where it finds or refutes. Where a refutation
//!    is one of all smaller II as well ([`crate::graph::Graph`]) they begin near the bound and go up until one finds, halve what is left, and
//!    above [`LINEAR`] end one part in [`COARSE`] above what is refuted, after many steps some more. What finds nothing for long leaves the first success to attempts.
//! 3. *Polish* ([`polish`], [`lifetime`]): fewer stages, then shorter lives of values, at the II found.
//!
//! Guarantee: starts are legal, bound ≤ II ≤ cap. Deterministic: budgets are counted in steps. What each search is worth is
//! in docs/schedule-quality.md. Source: B. R. Rau, "Iterative modulo scheduling", 1994; the files name theirs.

mod eject;
pub mod lifetime;
mod model;
mod orders;
mod polish;
mod search;
mod tabu;
#[cfg(test)]
mod tests;

use crate::options::IiSearch;
use crate::placement::{Loop, Placement};
use crate::trail::{Strategy, TryEnd};
use search::{Answer, Engine, Search};

/// Up to here II is raised one by one.
const LINEAR: u32 = 256;
/// Above that by one part in so many at least: what is left of the gap is for the searches, which do not try one after the other.
const COARSE: u32 = 64;
/// Above the bound by one part in [`COARSE`] is enough, and by one more for each so many steps: what is left of a gap takes longer than it is worth. Of
/// 913 loops of examples and tests six have longer intervals than with 10 000 (by 0.03 % on average), and all together compile in 0.88 of the time;
/// with 1 000 it is 18 and 0.07 %. Lost without it: of 700 kernels, most of other people, 1 in 18 takes above 20 ms instead of 1 in 100.
const PATIENCE: u64 = 2_500;
/// Where searches have found nothing in so many steps, attempts do, and the searches go on from there. Lost without it: 1.3 times the time, longer
/// intervals of loops with more than 50 ops.
const UNSUCCESSFUL: u64 = 10_000;
/// The first turn of each search gets one part in so many of the steps: in loops that get all of them, and in larger ones,
/// where setting up takes longer.
const FIRST_TURN: u64 = 32;
const FIRST_TURN_LARGE: u64 = 8;
/// Where no gap is left to halve a search goes back by so many halvings, with half as many steps more.
const BACK: u32 = 3;

/// Where a turn looks.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Aim {
    /// At the proven bound: a success ends the search, a refutation raises the bound.
    Bound,
    /// Below the last success by a part of the gap.
    Below,
}

/// A search and what it does next.
struct Turn {
    engine: Engine,
    aim: Aim,
    /// It asks for `gap >> shift` less than the last success, with so many steps.
    shift: u32,
    steps: u64,
}

/// Memory of the generator.
#[derive(Default)]
pub(crate) struct Modulo {
    search: Search,
    polish: polish::Polish,
    life: lifetime::Lifetime,
    turns: Vec<Turn>,
}

impl Modulo {
    /// Searches II in [`Placement::proven`]`..=cap`. The starts of a success are in [`Placement::starts`].
    pub fn search(&mut self, at: &mut Placement, l: Loop<'_>, cap: u32) -> Option<u32> {
        self.search.begin();
        let steps = at.budget.of_searches(l.o.exact_steps, l.g.n.into());
        // Where rows are many an exact search takes less time than attempts at one II after the other do.
        let exact = at.proven > LINEAR
            && l.o.ii_search == IiSearch::Auto
            && l.o.engines.has(Engine::Orders)
            && steps > 0;
        let found = if exact { up(at, l, cap.min(at.proven)) } else { up(at, l, cap) };
        let found = match self.down(at, l, found, cap, steps) {
            None if exact => up(at, l, cap),
            found => found,
        }?;
        at.choose();
        self.polish.run(at, l, found, &mut self.search);
        at.fits().then_some(found)
    }

    /// Shorter iterations for the last success, whichever search found it.
    #[cfg(feature = "optimal")]
    pub fn compact(&mut self, at: &mut Placement, l: Loop<'_>, ii: u32) {
        self.polish.run(at, l, ii, &mut self.search);
    }

    /// Shorter lives of values at the II found: last, since exact mode may come before.
    pub fn shorten(&mut self, at: &mut Placement, l: Loop<'_>, ii: u32) {
        self.life.improve(at, l, ii, &mut self.polish, &mut self.search);
        self.polish.defer(at, l, ii);
        self.polish.join(at, l, ii);
    }

    /// The searches in turn, from a success or from the cap downwards.
    fn down(
        &mut self,
        at: &mut Placement,
        l: Loop<'_>,
        found: Option<u32>,
        cap: u32,
        steps: u64,
    ) -> Option<u32> {
        let mut known = found;
        let mut found = found.unwrap_or(cap.saturating_add(1));
        let mut left = at.budget.draw(steps);
        let part =
            if u64::from(l.g.n) > crate::placement::FULL_BUDGET { FIRST_TURN_LARGE } else { FIRST_TURN };
        self.turns.clear();
        for (engine, aim) in [
            (Engine::Orders, Aim::Bound),
            (Engine::Orders, Aim::Below),
            (Engine::Ejection, Aim::Below),
            (Engine::Tabu, Aim::Below),
        ] {
            if l.o.engines.has(engine) {
                self.turns.push(Turn { engine, aim, shift: 1, steps: left / part + 1 });
            }
        }
        let (mut k, mut refused) = (0, 0);
        // Above the bound by so much, where nothing was found yet: more each time.
        let mut rise = (at.proven / COARSE).max(1);
        // In clocks a part of so many is less than the weights are known by.
        let coarse = l.g.monotone && l.o.ii_search == IiSearch::Auto;
        let enough = |proven: u32, known: Option<u32>, spent: u64| {
            let parts = spent / PATIENCE + 1;
            let most = |ii: u32| u64::from(ii).saturating_mul(parts) / u64::from(COARSE);
            known.is_some_and(|ii| coarse && ii > LINEAR && u64::from(ii - proven) <= most(ii))
        };
        let (all, mut attempted) = (left, known.is_some());
        while found > at.proven && found > at.floor && left > 0 && refused < self.turns.len() {
            if enough(at.proven, known, all - left) {
                break;
            }
            if !attempted && all - left > UNSUCCESSFUL {
                attempted = true;
                if let Some(ii) = up(at, l, cap) {
                    (known, found) = (Some(ii), ii);
                    continue;
                }
            }
            let count = self.turns.len();
            let turn = &mut self.turns[k];
            let gap = found - at.proven;
            let down = match turn.aim {
                // An interval that did with fewer constraints is the least that search will find.
                Aim::Bound if known.is_none() => found - at.proven.max(at.floor).min(found - 1),
                Aim::Bound => gap,
                Aim::Below if known.is_none() && l.g.monotone => gap.saturating_sub(rise).max(1),
                Aim::Below => (gap >> turn.shift).max(1),
            };
            let ii = found - down;
            // Setting up costs as well: else the turns of a search that gives up at once would not end.
            let setup = 1 + u64::from(ii) / 16 + Search::setup_steps(l.g);
            let share = at.budget.draw(left.min(turn.steps.max(setup)));
            let mut rest = share.saturating_sub(setup);
            let answer = self.search.ask(turn.engine, at, l, ii, known, &mut rest);
            at.budget.pay(share - rest);
            left -= share - rest;
            refused = if answer == Answer::TooLarge { refused + 1 } else { 0 };
            let mut again = false;
            if turn.aim == Aim::Below && answer != Answer::TooLarge {
                rise = rise.saturating_mul(2);
            }
            match answer {
                Answer::Found => {
                    (found, known, again) = (ii, Some(ii), true);
                    turn.shift = turn.shift.saturating_sub(1).max(1);
                    at.record(ii, Some(turn.engine.into()));
                }
                Answer::Refuted if ii == at.proven || l.g.monotone => {
                    at.refute(l, ii);
                    at.end = Some(TryEnd::Refuted);
                    at.record(ii, None);
                    // Where that is a proof for every smaller one as well, the gap is halved: not the next one, that in the middle.
                    again = (turn.aim == Aim::Bound) != l.g.monotone;
                }
                Answer::Refuted | Answer::Unknown if down > 1 && turn.aim == Aim::Below => turn.shift += 1,
                Answer::Refuted | Answer::Unknown => {
                    turn.shift = turn.shift.saturating_sub(BACK).max(1);
                    turn.steps += turn.steps / 2;
                }
                Answer::TooLarge => {}
            }
            if !again {
                k = (k + 1) % count;
            }
        }
        known
    }
}

/// The smallest II at which iterative modulo scheduling succeeds, as far as it was asked; its starts are kept.
fn up(at: &mut Placement, l: Loop<'_>, cap: u32) -> Option<u32> {
    let linear = match l.o.ii_search {
        IiSearch::Linear => u32::MAX,
        IiSearch::Auto => LINEAR,
        IiSearch::Gallop => 0,
    };
    let mut ii = at.proven;
    if ii > cap {
        return None;
    }
    let (mut step, mut failed) = (1u32, ii - 1);
    let mut found = loop {
        if placed(at, l, ii) {
            break ii;
        }
        if at.out_of_steps || ii >= cap {
            return None;
        }
        failed = ii;
        ii = ii.saturating_add(step).min(cap);
        if ii > linear {
            step = step.saturating_mul(2).max(ii / COARSE);
        }
    };
    while found - failed > 1 && (found <= linear || found - failed > found / COARSE) {
        let middle = failed + (found - failed) / 2;
        if placed(at, l, middle) { found = middle } else { failed = middle }
    }
    Some(found)
}

/// One attempt at one II.
fn placed(at: &mut Placement, l: Loop<'_>, ii: u32) -> bool {
    let found = at.open(l, ii) && at.attempt(l, ii);
    at.record(ii, found.then_some(Strategy::Ims));
    if found {
        at.keep_placed();
    }
    found
}
