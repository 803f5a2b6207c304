//! Differences and counted rows, propagated inside the SAT solver.
//!
//! In: integer variables in order encoding (literal `x >= v` for every value but the least), conditional differences
//! `p → b >= a + c`, rows `Σ units · literal <= capacity`. The solver asks after each Boolean propagation; bounds move,
//! and what follows from them is handed back as literals, each with a reason on demand. That replaces one clause per
//! value and pair of ops: a loop of real clocks would need millions.
//!
//! Guarantee: what it derives follows from the constraints, and once all literals are set every constraint was looked at:
//! a model is a solution. Bounds are exact after each call, so that a conflict has a literal of the last decision.
//! Deterministic. Source: lazy clause generation (Ohrimenko, Stuckey, Codish 2009), with the difference propagation of
//! SMT solvers.

use super::model::NONE;
use batsat::{Lit, Theory, TheoryArg, Var, lbool};
use std::cell::Cell;
use std::rc::Rc;

/// Literals looked at that count as one step, like a conflict.
const LITERALS_PER_STEP: u64 = 4096;

/// What a search has used up; shared by the parts of one solver.
#[derive(Default)]
pub(super) struct Meter {
    conflicts: Cell<u64>,
    literals: Cell<u64>,
    /// Steps at which the solver stops.
    limit: Cell<u64>,
}

impl Meter {
    pub fn conflict(&self) {
        self.conflicts.set(self.conflicts.get() + 1);
    }

    /// Steps used so far.
    pub fn steps(&self) -> u64 {
        self.conflicts.get() + self.literals.get() / LITERALS_PER_STEP
    }

    pub fn set_limit(&self, steps: u64) {
        self.limit.set(steps);
    }

    pub fn is_over(&self) -> bool {
        self.steps() >= self.limit.get()
    }
}

/// An integer variable: `x >= v` is the literal of variable `base + v - lo - 1`.
#[derive(Copy, Clone)]
struct Int {
    base: u32,
    lo: i32,
    hi: i32,
    /// Bounds under the literals looked at.
    min: i32,
    max: i32,
}

/// A comparison that may be settled already.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Test {
    True,
    False,
    Lit(Lit),
}

/// `condition → b >= a + c`; without a condition if that is [`Lit::UNDEF`].
#[derive(Copy, Clone)]
struct Difference {
    condition: Lit,
    a: u32,
    b: u32,
    c: i32,
}

struct Counted {
    capacity: u64,
    held: u64,
    most: u64,
    /// Units of a literal, and the literal.
    entries: Vec<(u64, Lit)>,
    /// Literals that are true, in the order in which they were looked at.
    taken: Vec<Lit>,
}

/// Why a literal was handed back.
#[derive(Copy, Clone)]
enum Reason {
    None,
    /// `b >= a + c` with the least value of `a`.
    Least {
        difference: u32,
        a: i32,
    },
    /// `a <= b - c` with the largest value of `b`.
    Most {
        difference: u32,
        b: i32,
    },
    /// The condition does not hold, since `a` is at least this and `b` at most that.
    Contradiction {
        difference: u32,
        a: i32,
        b: i32,
    },
    /// A row is full by this many of its literals.
    Full {
        row: u32,
        taken: u32,
    },
}

enum Undo {
    Min(u32, i32),
    Max(u32, i32),
    Taken(u32, u64),
}

/// The theory.
pub(super) struct Differences {
    ints: Vec<Int>,
    differences: Vec<Difference>,
    rows: Vec<Counted>,
    /// By Boolean variable, the integer variable it belongs to, or [`NONE`].
    int_of: Vec<u32>,
    /// By literal, differences it is the condition of, and (row, units) of entries.
    conditions: Vec<Vec<u32>>,
    entries: Vec<Vec<(u32, u64)>>,
    /// By integer variable, differences it is `a` and `b` of.
    from: Vec<Vec<u32>>,
    to: Vec<Vec<u32>>,
    reasons: Vec<Reason>,
    explanation: Vec<Lit>,
    undo: Vec<Undo>,
    /// By level, what was looked at and what can be undone below it.
    levels: Vec<(usize, usize)>,
    looked_at: usize,
    begun: bool,
    meter: Rc<Meter>,
}

impl Differences {
    pub fn new(meter: Rc<Meter>) -> Differences {
        Differences {
            ints: Vec::new(),
            differences: Vec::new(),
            rows: Vec::new(),
            int_of: Vec::new(),
            conditions: Vec::new(),
            entries: Vec::new(),
            from: Vec::new(),
            to: Vec::new(),
            reasons: Vec::new(),
            explanation: Vec::new(),
            undo: Vec::new(),
            levels: Vec::new(),
            looked_at: 0,
            begun: false,
            meter,
        }
    }

    /// An integer variable whose literals are the `hi - lo` Boolean variables from `base` on.
    pub fn add_int(&mut self, base: u32, lo: i32, hi: i32) {
        let id = self.ints.len() as u32;
        self.int_of.resize(self.int_of.len().max((base + (hi - lo) as u32) as usize), NONE);
        self.int_of[base as usize..(base + (hi - lo) as u32) as usize].fill(id);
        self.ints.push(Int { base, lo, hi, min: lo, max: hi });
        self.from.push(Vec::new());
        self.to.push(Vec::new());
    }

    /// Makes room for all Boolean variables; to be called before constraints are added.
    pub fn close_vars(&mut self, count: u32) {
        self.int_of.resize(count as usize, NONE);
        self.conditions.resize(2 * count as usize, Vec::new());
        self.entries.resize(2 * count as usize, Vec::new());
        self.reasons.resize(2 * count as usize, Reason::None);
    }

    /// `vars[x] >= v`.
    pub fn at_least(&self, x: u32, v: i32) -> Test {
        let Int { base, lo, hi, .. } = self.ints[x as usize];
        if v <= lo {
            Test::True
        } else if v > hi {
            Test::False
        } else {
            Test::Lit(Lit::new(Var::unsafe_from_idx(base + (v - lo - 1) as u32), true))
        }
    }

    pub fn add_difference(&mut self, condition: Lit, a: u32, b: u32, c: i32) {
        let id = self.differences.len() as u32;
        self.differences.push(Difference { condition, a, b, c });
        self.from[a as usize].push(id);
        self.to[b as usize].push(id);
        if condition != Lit::UNDEF {
            self.conditions[condition.idx() as usize].push(id);
        }
    }

    pub fn add_row(&mut self, capacity: u64, entries: Vec<(u64, Lit)>) {
        let row = self.rows.len() as u32;
        for &(units, lit) in &entries {
            self.entries[lit.idx() as usize].push((row, units));
        }
        let most = entries.iter().map(|e| e.0).max().unwrap_or(0);
        self.rows.push(Counted { capacity, held: 0, most, entries, taken: Vec::new() });
    }

    /// Pushes the negation of a test that holds; constants leave nothing.
    fn explain_not(&mut self, test: Test, holds: bool) {
        if let Test::Lit(l) = test {
            self.explanation.push(if holds { !l } else { l });
        }
    }

    fn condition_value(&self, acts: &TheoryArg<'_>, d: &Difference) -> lbool {
        if d.condition == Lit::UNDEF {
            return lbool::TRUE;
        }
        let value = acts.value(d.condition.var());
        if d.condition.sign() || value == lbool::UNDEF {
            value
        } else if value == lbool::TRUE {
            lbool::FALSE
        } else {
            lbool::TRUE
        }
    }

    fn hand_back(&mut self, acts: &mut TheoryArg<'_>, lit: Lit, reason: Reason) -> bool {
        if self.value(acts, lit) != lbool::TRUE {
            self.reasons[lit.idx() as usize] = reason;
        }
        acts.propagate(lit)
    }

    fn value(&self, acts: &TheoryArg<'_>, lit: Lit) -> lbool {
        let value = acts.value(lit.var());
        if value == lbool::UNDEF || lit.sign() {
            value
        } else if value == lbool::TRUE {
            lbool::FALSE
        } else {
            lbool::TRUE
        }
    }

    /// A conflict between the bounds of a difference that holds.
    fn refuse(&mut self, acts: &mut TheoryArg<'_>, d: Difference, bound: Test, holds: bool) -> bool {
        self.explanation.clear();
        if d.condition != Lit::UNDEF {
            self.explanation.push(!d.condition);
        }
        self.explain_not(bound, holds);
        if self.explanation.is_empty() {
            // Only before the first decision; which literal is named does not matter there.
            self.explanation.push(Lit::new(Var::unsafe_from_idx(0), true));
        }
        acts.raise_conflict(&self.explanation, false);
        false
    }

    /// What follows for `b` from the least value of `a`. `false`: a conflict.
    fn push_least(&mut self, acts: &mut TheoryArg<'_>, id: u32) -> bool {
        let d = self.differences[id as usize];
        let (a, b) = (self.ints[d.a as usize], self.ints[d.b as usize]);
        let least = a.min + d.c;
        if least <= b.min {
            return true;
        }
        let value = self.condition_value(acts, &d);
        if value == lbool::TRUE {
            match self.at_least(d.b, least) {
                Test::Lit(lit) => self.hand_back(acts, lit, Reason::Least { difference: id, a: a.min }),
                _ => {
                    let bound = self.at_least(d.a, a.min);
                    self.refuse(acts, d, bound, true)
                }
            }
        } else if value == lbool::UNDEF && least > b.max {
            let reason = Reason::Contradiction { difference: id, a: a.min, b: b.max };
            self.hand_back(acts, !d.condition, reason)
        } else {
            true
        }
    }

    /// What follows for `a` from the largest value of `b`. `false`: a conflict.
    fn push_most(&mut self, acts: &mut TheoryArg<'_>, id: u32) -> bool {
        let d = self.differences[id as usize];
        let (a, b) = (self.ints[d.a as usize], self.ints[d.b as usize]);
        let most = b.max - d.c;
        if most >= a.max {
            return true;
        }
        let value = self.condition_value(acts, &d);
        if value == lbool::TRUE {
            // a <= most.
            match self.at_least(d.a, most + 1) {
                Test::Lit(lit) => self.hand_back(acts, !lit, Reason::Most { difference: id, b: b.max }),
                _ => {
                    let bound = self.at_least(d.b, b.max + 1);
                    self.refuse(acts, d, bound, false)
                }
            }
        } else if value == lbool::UNDEF && most < a.min {
            let reason = Reason::Contradiction { difference: id, a: a.min, b: b.max };
            self.hand_back(acts, !d.condition, reason)
        } else {
            true
        }
    }

    /// What follows from a literal that became true. `false`: a conflict.
    fn look_at(&mut self, acts: &mut TheoryArg<'_>, lit: Lit) -> bool {
        let var = lit.var().idx();
        let x = self.int_of[var as usize];
        if x != NONE {
            let int = &mut self.ints[x as usize];
            let value = int.lo + 1 + (var - int.base) as i32;
            if lit.sign() && value > int.min {
                self.undo.push(Undo::Min(x, int.min));
                int.min = value;
                for k in 0..self.from[x as usize].len() {
                    let id = self.from[x as usize][k];
                    if !self.push_least(acts, id) {
                        return false;
                    }
                }
            } else if !lit.sign() && value <= int.max {
                self.undo.push(Undo::Max(x, int.max));
                int.max = value - 1;
                for k in 0..self.to[x as usize].len() {
                    let id = self.to[x as usize][k];
                    if !self.push_most(acts, id) {
                        return false;
                    }
                }
            }
            return true;
        }
        for k in 0..self.conditions[lit.idx() as usize].len() {
            let id = self.conditions[lit.idx() as usize][k];
            if !self.push_least(acts, id) || !self.push_most(acts, id) {
                return false;
            }
        }
        for k in 0..self.entries[lit.idx() as usize].len() {
            let (row, units) = self.entries[lit.idx() as usize][k];
            self.undo.push(Undo::Taken(row, units));
            let r = &mut self.rows[row as usize];
            r.held += units;
            r.taken.push(lit);
            if !self.push_row(acts, row) {
                return false;
            }
        }
        true
    }

    /// What does not fit into a row any more. `false`: a conflict.
    fn push_row(&mut self, acts: &mut TheoryArg<'_>, row: u32) -> bool {
        let r = &self.rows[row as usize];
        if r.held > r.capacity {
            self.explanation.clear();
            self.explanation.extend(r.taken.iter().map(|&l| !l));
            acts.raise_conflict(&self.explanation, false);
            return false;
        }
        let left = r.capacity - r.held;
        if r.most <= left {
            return true;
        }
        let reason = Reason::Full { row, taken: r.taken.len() as u32 };
        for k in 0..self.rows[row as usize].entries.len() {
            let (units, lit) = self.rows[row as usize].entries[k];
            if units > left && self.value(acts, lit) == lbool::UNDEF && !self.hand_back(acts, !lit, reason) {
                return false;
            }
        }
        true
    }

    fn look(&mut self, acts: &mut TheoryArg<'_>) {
        if !std::mem::replace(&mut self.begun, true) {
            for id in 0..self.differences.len() as u32 {
                if !self.push_least(acts, id) || !self.push_most(acts, id) {
                    return;
                }
            }
        }
        let before = self.looked_at;
        while self.looked_at < acts.model().len() {
            let lit = acts.model()[self.looked_at];
            self.looked_at += 1;
            if !self.look_at(acts, lit) {
                break;
            }
        }
        let seen = &self.meter.literals;
        seen.set(seen.get() + (self.looked_at - before) as u64);
    }
}

impl Theory for Differences {
    fn final_check(&mut self, acts: &mut TheoryArg<'_>) {
        self.look(acts);
    }

    fn partial_check(&mut self, acts: &mut TheoryArg<'_>) {
        self.look(acts);
    }

    fn create_level(&mut self) {
        self.levels.push((self.looked_at, self.undo.len()));
    }

    fn pop_levels(&mut self, n: usize) {
        let kept = self.levels.len() - n;
        let Some(&(looked_at, undo)) = self.levels.get(kept) else { return };
        self.levels.truncate(kept);
        self.looked_at = looked_at;
        while self.undo.len() > undo {
            match self.undo.pop() {
                Some(Undo::Min(x, v)) => self.ints[x as usize].min = v,
                Some(Undo::Max(x, v)) => self.ints[x as usize].max = v,
                Some(Undo::Taken(row, units)) => {
                    let r = &mut self.rows[row as usize];
                    r.held -= units;
                    r.taken.pop();
                }
                None => {}
            }
        }
    }

    fn n_levels(&self) -> usize {
        self.levels.len()
    }

    fn explain_propagation(&mut self, lit: Lit) -> &[Lit] {
        self.explanation.clear();
        // (difference, least value of a, largest value of b) that the literal follows from.
        let (difference, least, most, conditional) = match self.reasons[lit.idx() as usize] {
            Reason::None => (NONE, None, None, false),
            Reason::Least { difference, a } => (difference, Some(a), None, true),
            Reason::Most { difference, b } => (difference, None, Some(b), true),
            Reason::Contradiction { difference, a, b } => (difference, Some(a), Some(b), false),
            Reason::Full { row, taken } => {
                self.explanation.extend_from_slice(&self.rows[row as usize].taken[..taken as usize]);
                (NONE, None, None, false)
            }
        };
        if let Some(&d) = self.differences.get(difference as usize) {
            if conditional && d.condition != Lit::UNDEF {
                self.explanation.push(d.condition);
            }
            if let Some(a) = least
                && let Test::Lit(l) = self.at_least(d.a, a)
            {
                self.explanation.push(l);
            }
            if let Some(b) = most
                && let Test::Lit(l) = self.at_least(d.b, b + 1)
            {
                self.explanation.push(!l);
            }
        }
        &self.explanation
    }
}
