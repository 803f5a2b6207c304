//! Proof that sharing storage changes no result: every read finds what program order says it finds.
//!
//! In: a placed function and its webs. It is executed symbolically, with one storage per web. What is followed is, for
//! each value, the parts of it that its storage no longer holds (*stale* parts): a write makes that part of all other
//! values of its web stale; what a loop or branch hands on is as stale as what it was given; where ways meet, what is
//! stale on one of them. A read of a stale part is an error. Loops are gone through until nothing is added.
//!
//! It starts from the function and the assignment of values to webs alone: nothing is asked of the code that formed the
//! webs or inserted copies. Versions of a ring have slots of their own; that these are not confused is proven of the
//! materialised function. Errors: E0601, naming the value read and the value found. Cost: accesses × values of a web, a
//! few times for nested loops.

use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Block, Function, Op, Opcode, Space, TypeData, Value, ValueDef, keys};
use crate::storage::webs::{Web, Webs};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Half-open ranges, one per dimension.
type Part = SmallVec<[(i64, i64); 2]>;

/// A part of a value that its storage does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stale {
    value: Value,
    part: Part,
    /// What was written there; the value itself where nothing was yet.
    by: Value,
    at: Op,
}

type State = Vec<Stale>;

struct Check<'a> {
    func: &'a Function,
    webs: &'a Webs,
    /// Webs whose versions have slots of their own.
    rings: &'a EntitySet<Web>,
    /// What is stale where an iteration begins, on any way there.
    heads: SecondaryMap<Op, State>,
    changed: bool,
    errors: Vec<CodegenError>,
}

/// Checks all reads of a function.
///
/// # Errors
/// E0601.
pub fn check(func: &Function, webs: &Webs, rings: &EntitySet<Web>) -> CodegenResult<()> {
    let heads = SecondaryMap::new();
    let mut c = Check { func, webs, rings, heads, changed: true, errors: Vec::new() };
    while std::mem::take(&mut c.changed) && c.errors.is_empty() {
        c.block(func.entry(), &mut State::new());
    }
    c.errors.into_iter().next().map_or(Ok(()), Err)
}

/// Whether two parts have something in common.
fn meet(a: &Part, b: &Part) -> bool {
    a.iter().zip(b).all(|(x, y)| x.0 < y.1 && y.0 < x.1)
}

/// What is left of `a` without `b`, appended to a list.
fn without(a: &Part, b: &Part, out: &mut SmallVec<[Part; 4]>) {
    if !meet(a, b) {
        out.push(a.clone());
        return;
    }
    // Cut off what lies before and behind `b`, one dimension after the other.
    let mut rest = a.clone();
    for d in 0..a.len() {
        let (from, to) = (rest[d].0.max(b[d].0), rest[d].1.min(b[d].1));
        for outer in [(rest[d].0, from), (to, rest[d].1)] {
            if outer.0 < outer.1 {
                let mut piece = rest.clone();
                piece[d] = outer;
                out.push(piece);
            }
        }
        rest[d] = (from, to);
    }
}

impl Check<'_> {
    fn is_stored(&self, v: Value) -> bool {
        matches!(self.func.value_data(v), TypeData::Tile { space: Some(Space::Smem | Space::Tmem), .. })
    }

    /// The web of a value that occupies storage.
    fn web(&self, v: Value) -> Option<Web> {
        self.webs.of.get(v).and_then(|w| w.expand())
    }

    fn whole(&self, v: Value) -> Part {
        let dims = self.func.value_data(v).dims().unwrap_or(&[]);
        dims.iter().map(|&d| (0, i64::from(d))).collect()
    }

    /// The tile that a value is a part of, and which part; `None` where that shows when the program runs.
    fn part(&self, v: Value) -> (Value, Option<Part>) {
        let (mut at, mut part, mut known) = (v, self.whole(v), true);
        while let Some(op) =
            self.func.defining_op(at).filter(|&op| self.func.opcode(op) == Opcode::ExtractSlice)
        {
            let Some(source) = self.func.named_operand(op, "source") else { break };
            known &= self.func.named_operand(op, "number").is_none();
            self.move_by(&mut part, op);
            at = source;
        }
        (at, known.then_some(part))
    }

    /// Moves a part by the offsets of an op.
    fn move_by(&self, part: &mut Part, op: Op) {
        let offsets = self.func.attr_ints(op, keys::OFFSETS).unwrap_or_default();
        for (range, by) in part.iter_mut().zip(offsets) {
            *range = (range.0 + by, range.1 + by);
        }
    }

    fn name(&self, v: Value) -> String {
        self.func.value_name(v).map_or_else(|| format!("{v}"), |n| format!("%{n}"))
    }

    fn read(&mut self, state: &State, op: Op, base: Value, part: Option<&Part>) {
        let found = state.iter().find(|s| s.value == base && part.is_none_or(|p| meet(p, &s.part)));
        if let Some(s) = found {
            let text = if s.by == base {
                format!("{} is read here, and nothing was written to it yet", self.name(base))
            } else {
                let (v, by) = (self.name(base), self.name(s.by));
                format!("{v} is read here, but its place holds {by} by then; they must not share it")
            };
            let note = format!("{} is written here", self.name(s.by));
            let error = CodegenError::new(Code::E0601, self.func.op_loc(op), text);
            self.errors.push(error.note(self.func.op_loc(s.at), note));
        }
    }

    /// A write to a part of `base`, or, where it is not known, somewhere in it.
    fn write(&self, state: &mut State, op: Op, base: Value, part: Option<&Part>) {
        let Some(web) = self.web(base) else { return };
        if let Some(part) = part {
            let mut left: SmallVec<[Part; 4]> = SmallVec::new();
            let mut n = 0;
            while n < state.len() {
                if state[n].value != base || !meet(&state[n].part, part) {
                    n += 1;
                    continue;
                }
                let old = state.swap_remove(n);
                left.clear();
                without(&old.part, part, &mut left);
                // What is left does not meet the part: it is passed over when it comes up.
                state.extend(left.drain(..).map(|part| Stale { part, ..old.clone() }));
            }
        }
        if self.rings.contains(web) {
            return;
        }
        for &other in &self.webs.webs[web].values {
            if other == base || self.part(other).0 != other {
                continue;
            }
            let part = part.cloned().unwrap_or_else(|| self.whole(other));
            let entry = Stale { value: other, part, by: base, at: op };
            if !state.iter().any(|s| s.value == other && s.part == entry.part) {
                state.push(entry);
            }
        }
    }

    /// `to` is from now on what `from` is.
    fn hand_on(&mut self, state: &mut State, op: Op, from: Value, to: Value) {
        state.retain(|s| s.value != to);
        self.hand_on_too(state, op, from, to);
    }

    /// `to` may from now on be what `from` is.
    fn hand_on_too(&mut self, state: &mut State, op: Op, from: Value, to: Value) {
        if !self.is_stored(to) || from == to {
            return;
        }
        // Of a constant nothing is stored; that nothing was written yet is a flag.
        let Some(web) = self.web(from) else { return };
        if self.web(to) != Some(web) {
            let (a, b) = (self.name(from), self.name(to));
            let text = format!("{a} becomes {b} here, and they do not share a place");
            self.errors.push(CodegenError::new(Code::E0601, self.func.op_loc(op), text));
            return;
        }
        let (base, _) = self.part(from);
        let copies: SmallVec<[Stale; 4]> =
            state.iter().filter(|s| s.value == base).map(|s| Stale { value: to, ..s.clone() }).collect();
        state.extend(copies);
    }

    /// Adds what is stale on another way; whether anything was.
    fn join(into: &mut State, other: &State) -> bool {
        let before = into.len();
        for s in other {
            if !into.iter().any(|t| t.value == s.value && t.part == s.part) {
                into.push(s.clone());
            }
        }
        into.len() > before
    }

    fn block(&mut self, block: Block, state: &mut State) {
        let func = self.func;
        for op in func.block_ops(block) {
            match func.opcode(op) {
                Opcode::For => self.for_loop(op, state),
                Opcode::If => self.branch(op, state),
                Opcode::ExtractSlice | Opcode::Constant | Opcode::Yield => {}
                Opcode::AllocTensor => {
                    for &v in func.results(op).iter().filter(|&&v| self.web(v).is_some()) {
                        state.retain(|s| s.value != v);
                        state.push(Stale { value: v, part: self.whole(v), by: v, at: op });
                    }
                }
                opcode => {
                    let dest = func.named_operand(op, "dest").filter(|_| opcode == Opcode::Copy);
                    for &v in func.operands(op) {
                        if !self.is_stored(v) || Some(v) == dest {
                            continue;
                        }
                        let (base, mut part) = self.part(v);
                        if let (Opcode::Copy, None, Some(part), Some(&r)) =
                            (opcode, dest, &mut part, func.results(op).first())
                        {
                            let read = self.whole(r);
                            for (range, r) in part.iter_mut().zip(read) {
                                range.1 = range.0 + r.1;
                            }
                            self.move_by(part, op);
                        }
                        self.read(state, op, base, part.as_ref());
                    }
                    // A multiply goes on in the place of its accumulator.
                    if let Some(acc) = func.named_operand(op, "acc").filter(|&v| self.web(v).is_some())
                        && let Some(&r) = func.results(op).first()
                    {
                        self.hand_on(state, op, acc, r);
                    }
                    if let Some(dest) = dest {
                        let source = func.named_operand(op, "source");
                        let (base, mut part) = self.part(dest);
                        if let (Some(part), Some(source)) = (&mut part, source) {
                            for (range, s) in part.iter_mut().zip(self.whole(source)) {
                                range.1 = range.0 + s.1;
                            }
                            self.move_by(part, op);
                        }
                        self.write(state, op, base, part.as_ref());
                    }
                    for &v in func.results(op).iter().filter(|&&v| self.is_stored(v)) {
                        self.write(state, op, v, Some(&self.whole(v)));
                    }
                }
            }
            if !self.errors.is_empty() {
                return;
            }
        }
    }

    fn yields(&self, op: Op, region: usize) -> (SmallVec<[Value; 8]>, Option<Op>) {
        let end = self.func.op_block_at(op, region).and_then(|b| self.func.last_op(b));
        let end = end.filter(|&t| self.func.opcode(t) == Opcode::Yield);
        (end.map_or_else(SmallVec::new, |t| self.func.operands(t).into()), end)
    }

    fn for_loop(&mut self, op: Op, state: &mut State) {
        let func = self.func;
        let Some(body) = func.op_block_at(op, 0) else { return };
        let args: SmallVec<[Value; 8]> = func.block_params(body).iter().skip(1).copied().collect();
        for (&arg, &init) in args.iter().zip(func.named_segment(op, "inits")) {
            self.hand_on(state, op, init, arg);
        }
        let mut head = std::mem::take(&mut self.heads[op]);
        Check::join(&mut head, state);
        let mut after = head.clone();
        self.block(body, &mut after);
        let (yielded, end) = self.yields(op, 0);
        // All at once: what is handed on is what it was at the end of the iteration.
        let mut next: State = after
            .iter()
            .filter(|s| !args.contains(&s.value) && self.outlives(s.value, op))
            .cloned()
            .collect();
        for (&y, &arg) in yielded.iter().zip(&args) {
            let mut way: State = after.iter().filter(|s| s.value == self.part(y).0).cloned().collect();
            self.hand_on_too(&mut way, end.unwrap_or(op), y, arg);
            if y == arg {
                next.extend(way);
            } else {
                next.extend(way.into_iter().filter(|s| s.value == arg));
            }
        }
        self.changed |= Check::join(&mut head, &next);
        *state = head.clone();
        for (&arg, &result) in args.iter().zip(func.results(op)) {
            self.hand_on(state, op, arg, result);
        }
        state.retain(|s| !args.contains(&s.value));
        self.heads[op] = head;
    }

    fn branch(&mut self, op: Op, state: &mut State) {
        let func = self.func;
        let mut out = State::new();
        for r in 0..func.regions(op).len() {
            let mut arm = state.clone();
            if let Some(block) = func.op_block_at(op, r) {
                self.block(block, &mut arm);
            }
            let (yielded, end) = self.yields(op, r);
            for (&y, &result) in yielded.iter().zip(func.results(op)) {
                self.hand_on(&mut arm, end.unwrap_or(op), y, result);
            }
            arm.retain(|s| self.outlives(s.value, op));
            Check::join(&mut out, &arm);
        }
        if func.regions(op).len() < 2 {
            Check::join(&mut out, state);
        }
        *state = out;
    }

    /// Whether a value is made outside of the regions of an op.
    fn outlives(&self, v: Value, op: Op) -> bool {
        let mut at = match self.func.value_def(v) {
            ValueDef::Result(o, _) => self.func.op_parent(o),
            ValueDef::Param(b, _) => self.func.block_parent(b),
        };
        while let Some(o) = at {
            if o == op {
                return false;
            }
            at = self.func.op_parent(o);
        }
        true
    }
}
