//! One budget of search steps for all schedules of a function.
//!
//! In: the option `search.steps`. Out: what each schedule may use beyond Rau's method, which has
//! its own limit. Loops are scheduled in passes: the first one, then one per round of refinement. The first pass may use
//! three quarters of the budget, each one after it half of what is left. Within a pass the loops share by weight, deeper
//! ones more; what one does not use goes to those behind it. An empty budget leaves what the cheap strategies find.
//!
//! Guarantee: what all schedules report as used adds up to no more than the option. Deterministic: no clock is read.

/// Four times the weight per level of nesting, up to so many levels.
const DEEPEST: u32 = 6;

/// What one schedule may search for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Steps of all searches together; `None`: as many as the options of one problem say.
    pub steps: Option<u64>,
    /// Only cheap strategies look below this interval: it is that of a schedule of the same loop with fewer constraints, and
    /// what search did not find there it will not find with more of them. 0: nothing is known.
    pub floor: u32,
}

impl Allowance {
    /// Everything the options say.
    pub const ALL: Allowance = Allowance { steps: None, floor: 0 };

    /// So many steps.
    pub fn of(steps: u64) -> Allowance {
        Allowance { steps: Some(steps), ..Allowance::ALL }
    }
}

/// Steps left to a function.
#[derive(Clone, Debug)]
pub struct SearchSteps {
    left: u64,
    used: u64,
    /// Of these, what the pass at hand may still use.
    pass: u64,
    /// Weight of its loops to come.
    weight: u64,
    begun: bool,
}

impl Default for SearchSteps {
    fn default() -> Self {
        SearchSteps::new(super::ScheduleOptions::default().search_steps)
    }
}

impl SearchSteps {
    /// So many for a function.
    pub fn new(steps: u64) -> SearchSteps {
        SearchSteps { left: steps, used: 0, pass: 0, weight: 0, begun: false }
    }

    /// Steps that the schedules made so far took.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// A pass over loops with these depths of nesting begins.
    pub fn begin(&mut self, depths: impl Iterator<Item = u32>) {
        let later = std::mem::replace(&mut self.begun, true);
        self.pass = if later { self.left / 2 } else { self.left - self.left / 4 };
        self.weight = depths.map(weight).fold(0, u64::saturating_add);
    }

    /// What the next loop of the pass may use.
    pub fn grant(&mut self, depth: u32) -> u64 {
        let (own, all) = (weight(depth), self.weight.max(1));
        self.weight = self.weight.saturating_sub(own);
        let share = u128::from(self.pass) * u128::from(own.min(all)) / u128::from(all);
        share as u64
    }

    /// It used so many.
    pub fn pay(&mut self, used: u64) {
        self.used = self.used.saturating_add(used);
        self.left = self.left.saturating_sub(used);
        self.pass = self.pass.saturating_sub(used);
    }
}

fn weight(depth: u32) -> u64 {
    1 << (2 * depth.min(DEEPEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_share_and_never_exceed() {
        let mut s = SearchSteps::new(1600);
        s.begin([1, 0].into_iter());
        // Four parts of five of three quarters.
        assert_eq!(s.grant(1), 960);
        s.pay(200);
        // All that is left of the pass.
        assert_eq!(s.grant(0), 1000);
        s.pay(1000);
        assert_eq!((s.left, s.used()), (400, 1200));
        s.begin([3, 3].into_iter());
        assert_eq!(s.grant(3), 100);
        s.pay(0);
        assert_eq!(s.grant(3), 200);
        let mut all = SearchSteps::new(u64::MAX);
        all.begin([9, 9, 9].into_iter());
        assert!(all.grant(9) > u64::MAX / 5);
    }
}
