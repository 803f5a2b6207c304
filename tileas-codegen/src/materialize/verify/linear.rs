//! Uniform values as linear forms, and which values of different agents are certainly equal.
//!
//! In: values of a materialised function. Out: [`Lin`] (what a guard or a bound says about steps and trips) and
//! [`Canon`] numbers: two values with one number are equal whenever their regions run for the same iterations.
//! Values that are not followed are atoms of their own, or have no number. Cost: linear in the ops followed.

use super::order::has_work;
use crate::ir::{Attr, AttrData, Function, Op, Opcode, Sym, Type, Value, ValueDef, keys};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Sum of values times factors, and a constant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lin {
    /// Value and factor, by value, without zero factors.
    pub terms: Vec<(Value, i64)>,
    /// The constant.
    pub constant: i64,
}

impl Lin {
    /// A constant.
    pub fn constant(c: i64) -> Lin {
        Lin { terms: Vec::new(), constant: c }
    }

    /// One value.
    pub fn atom(v: Value) -> Lin {
        Lin { terms: vec![(v, 1)], constant: 0 }
    }

    /// `self + k · other`.
    #[must_use]
    pub fn plus(mut self, other: &Lin, k: i64) -> Lin {
        self.constant = self.constant.saturating_add(other.constant.saturating_mul(k));
        for &(v, f) in &other.terms {
            match self.terms.binary_search_by_key(&v, |t| t.0) {
                Ok(i) => self.terms[i].1 = self.terms[i].1.saturating_add(f.saturating_mul(k)),
                Err(i) => self.terms.insert(i, (v, f.saturating_mul(k))),
            }
        }
        self.terms.retain(|t| t.1 != 0);
        self
    }

    /// `self + c`.
    #[must_use]
    pub fn offset(mut self, c: i64) -> Lin {
        self.constant = self.constant.saturating_add(c);
        self
    }

    /// The value, if this is one value alone.
    pub fn as_atom(&self) -> Option<Value> {
        match self.terms.as_slice() {
            [(v, 1)] if self.constant == 0 => Some(*v),
            _ => None,
        }
    }

    /// The number, if this is a constant.
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The linear form of a value.
    pub fn of(func: &Function, v: Value) -> Lin {
        read(func, v, 16)
    }
}

fn read(func: &Function, v: Value, fuel: u32) -> Lin {
    let (Some(op), Some(fuel)) = (func.defining_op(v), fuel.checked_sub(1)) else { return Lin::atom(v) };
    let arg = |n: usize| func.operands(op).get(n).map_or_else(Lin::default, |&x| read(func, x, fuel));
    match func.opcode(op) {
        Opcode::Constant => match func.constant_value(v) {
            Some(c) => Lin::constant(c as i64),
            None => Lin::atom(v),
        },
        Opcode::Addi => arg(0).plus(&arg(1), 1),
        Opcode::Subi => arg(0).plus(&arg(1), -1),
        Opcode::Muli => match (arg(0), arg(1)) {
            (a, b) if b.terms.is_empty() => Lin::default().plus(&a, b.constant),
            (a, b) if a.terms.is_empty() => Lin::default().plus(&b, a.constant),
            _ => Lin::atom(v),
        },
        _ => Lin::atom(v),
    }
}

/// What a condition says: all of these are at least 0. `None` if it is no conjunction of comparisons.
pub fn at_least_zero(func: &Function, condition: Value) -> Option<Vec<Lin>> {
    fn walk(func: &Function, v: Value, fuel: u32, out: &mut Vec<Lin>) -> Option<()> {
        let (op, fuel) = (func.defining_op(v)?, fuel.checked_sub(1)?);
        let operands = func.operands(op);
        match func.opcode(op) {
            Opcode::Andi => operands.iter().try_for_each(|&x| walk(func, x, fuel, out)),
            Opcode::Cmpi => {
                let (a, b) = (Lin::of(func, *operands.first()?), Lin::of(func, *operands.get(1)?));
                out.push(match func.attr_name(op, keys::PREDICATE)? {
                    "lt" => b.plus(&a, -1).offset(-1),
                    "le" => b.plus(&a, -1),
                    "gt" => a.plus(&b, -1).offset(-1),
                    "ge" => a.plus(&b, -1),
                    _ => return None,
                });
                Some(())
            }
            _ => None,
        }
    }
    let mut out = Vec::new();
    walk(func, condition, 8, &mut out)?;
    Some(out)
}

/// Bounds of a loop: lower, upper, step.
fn loop_bounds(func: &Function, l: Op) -> Option<[Value; 3]> {
    Some([func.named_operand(l, "lower")?, func.named_operand(l, "upper")?, func.named_operand(l, "step")?])
}

/// N of a loop with local stages, or what is wrong with its bounds.
pub fn trips(func: &Function, l: Op) -> Result<Lin, &'static str> {
    let skew = note(func, l, keys::SKEW).unwrap_or(0);
    let steady = func.inherent(l).get(keys::STEADY).is_some();
    let [lower, upper, step] = loop_bounds(func, l).ok_or("it has no bounds")?.map(|v| Lin::of(func, v));
    let first = if steady { skew } else { 0 };
    if lower.as_constant() != Some(first) || step.as_constant() != Some(1) {
        return Err("its first step or its stride is wrong");
    }
    let n = if steady { upper } else { upper.offset(-skew) };
    match (n.as_atom(), n.as_constant()) {
        (None, None) | (_, Some(i64::MIN..=-1)) => Err("its last step is not its trip count"),
        _ => Ok(n),
    }
}

/// Sum of numbered values times factors, sorted, without zero factors; a constant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Form {
    terms: SmallVec<[(u32, i64); 2]>,
    constant: i64,
}

impl Form {
    fn atom(n: u32) -> Form {
        Form { terms: SmallVec::from_slice(&[(n, 1)]), constant: 0 }
    }

    /// `self + k · other`.
    #[must_use]
    pub fn plus(mut self, other: &Form, k: i64) -> Form {
        self.constant = self.constant.saturating_add(other.constant.saturating_mul(k));
        for &(n, f) in &other.terms {
            match self.terms.binary_search_by_key(&n, |t| t.0) {
                Ok(i) => self.terms[i].1 = self.terms[i].1.saturating_add(f.saturating_mul(k)),
                Err(i) => self.terms.insert(i, (n, f.saturating_mul(k))),
            }
        }
        self.terms.retain(|t| t.1 != 0);
        self
    }

    /// `self + c`.
    #[must_use]
    pub fn offset(mut self, c: i64) -> Form {
        self.constant = self.constant.saturating_add(c);
        self
    }

    /// The number, if this is a constant.
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// Numbers and their factors, none 0.
    pub fn terms(&self) -> &[(u32, i64)] {
        &self.terms
    }

    /// What is added to the terms.
    pub fn base(&self) -> i64 {
        self.constant
    }
}

/// Iterations of a loop in numbers that mean the same in every agent, with local stages or without: the difference of
/// the bounds and the stride. A constant number of trips has none.
pub type Iterations = (Form, Option<u32>);

/// What the numbers tell.
pub enum Known<T> {
    As(T),
    /// It rests on what the numbers do not follow.
    Unknown,
}

/// What a number stands for.
pub struct Origin {
    /// What it is made from directly.
    pub made: Made,
    /// The ops, by origin, that it depends on.
    pub on: SmallVec<[i64; 4]>,
}

/// What a number is made from.
#[derive(Clone, PartialEq, Eq)]
pub enum Made {
    /// Counts the iterations of the loop of that origin.
    Index(i64),
    /// That op of two numbers, and whether it is unsigned.
    Of(Opcode, bool, [u32; 2]),
    /// The tile at a place in an order of so many rows and columns.
    Order([u32; 3]),
    Sum(Form),
    Other,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    /// A parameter of the kernel.
    Value(Value),
    /// Number of the iteration of the loop of that origin.
    Index(i64),
    /// A scalar that the op of that origin makes, in any agent.
    Made(i64),
    /// What a loop carries at the begin of an iteration, by class.
    Carried(u32),
    /// How often the loop of that origin runs that may end earlier than its bounds say: by that condition.
    Exits(i64, u32, Iterations),
    /// The same behind the loop of that origin, if it runs that often.
    Behind(i64, u32, Iterations),
    /// Of a branch: condition and what its arms yield.
    Choice([u32; 3]),
    /// With its attributes and what its operands are.
    Op(Opcode, SmallVec<[(Sym, Attr); 4]>, SmallVec<[u32; 4]>, u32),
    /// What is no single number.
    Sum(Form),
}

/// A scalar that a loop carries.
struct Slot {
    param: Value,
    init: Value,
    next: Value,
    /// Local stage in which the next value is made.
    local: i64,
}

/// Numbers for values of several agents: those with one number are equal in every iteration of the regions around.
///
/// Loops with local stages count steps; a value of theirs is what it is in the iteration that its group runs, and what they
/// hand from group to group is traced to the group that made it. Scalars that loops carry are of one class as long as
/// nothing shows that they differ: they begin alike and go on alike (partition refinement). Copies of a loop body
/// are not looked at; [`super::form`] compares them with the loop.
#[derive(Default)]
pub struct Canon {
    numbers: FxHashMap<Key, u32>,
    /// By value and local stage.
    known: FxHashMap<(Value, i64), Option<Form>>,
    made: FxHashMap<Value, i64>,
    /// Class of a carried scalar; `None`: it rests on what is not followed.
    classes: FxHashMap<Value, Option<u32>>,
}

/// Ops followed from one value, at most: what is deeper has no number.
const FUEL: u32 = 256;

/// The `n`-th value that region `r` of an op yields.
fn yielded(func: &Function, op: Op, r: usize, n: usize) -> Option<Value> {
    let end = func.last_op(func.op_block_at(op, r)?)?;
    func.operands(end).get(n).copied()
}

/// Arguments of a loop, each the one that the next was in the iteration before, and what the last one was: a value that the
/// body makes, or which of them.
type Chain = (SmallVec<[Value; 4]>, Result<Value, usize>);

/// The arguments through which a loop hands a value on until it is `v`, from there back.
fn handed_on(func: &Function, v: Value) -> Option<Chain> {
    let mut chain: SmallVec<[Value; 4]> = smallvec::smallvec![v];
    loop {
        let ValueDef::Param(b, n) = func.value_def(*chain.last()?) else { return None };
        let next = yielded(func, func.block_parent(b)?, 0, (n as usize).checked_sub(1)?)?;
        if let Some(k) = chain.iter().position(|&x| x == next) {
            return Some((chain, Err(k)));
        }
        match func.value_def(next) {
            ValueDef::Param(c, m) if c == b && m > 0 && chain.len() < FUEL as usize => chain.push(next),
            _ => return Some((chain, Ok(next))),
        }
    }
}

fn is_skewed(func: &Function, l: Op) -> bool {
    func.inherent(l).get(keys::SKEW).is_some()
}

/// Nothing tells in which local stage an op stands: it is cloned wherever it is needed.
pub const ANYWHERE: i64 = i64::MIN;

/// The local stage in which an op stands.
pub fn local_of(func: &Function, op: Op) -> i64 {
    let (mut at, mut top) = (Some(op), op);
    while let Some(op) = at.filter(|&op| !is_skewed(func, op)) {
        if let Some(k) = note(func, op, keys::LOCAL) {
            return k;
        }
        (at, top) = (func.op_parent(op), op);
    }
    let cloned =
        at.is_some() && !func.regions(top).is_empty() && !is_guard(func, top) && !has_work(func, top);
    if cloned { ANYWHERE } else { 0 }
}

/// Whether a branch is a guard of a rolled loop: neither a branch of the kernel nor of a copy.
fn is_guard(func: &Function, op: Op) -> bool {
    func.opcode(op) == Opcode::If
        && note(func, op, keys::ORIGIN).is_none()
        && note(func, op, keys::OF).is_none()
}

impl Canon {
    /// Says that a value is what the op of that origin makes, in every agent that has it.
    pub fn made(&mut self, v: Value, origin: i64) {
        self.made.insert(v, origin);
    }

    /// Finds the classes of what loops carry.
    pub fn carry(&mut self, func: &Function) {
        let mut slots: Vec<Slot> = Vec::new();
        let mut first: FxHashMap<(Option<i64>, Type), u32> = FxHashMap::default();
        func.walk(func.entry(), &mut |l| {
            let body = func.op_block_at(l, 0).filter(|_| func.opcode(l) == Opcode::For);
            let params = body.map_or(&[][..], |b| func.block_params(b));
            for (n, &param) in params.iter().skip(1).enumerate() {
                let Some(&init) = func.named_segment(l, "inits").get(n) else { continue };
                let next = yielded(func, l, 0, n).filter(|_| func.value_data(param).as_scalar().is_some());
                let Some(next) = next else { continue };
                let made = match handed_on(func, param).filter(|_| is_skewed(func, l)) {
                    Some((_, Ok(made))) => made,
                    _ => next,
                };
                let local = func.defining_op(made).map_or(0, |d| local_of(func, d));
                let count = first.len() as u32;
                let key = (note(func, l, keys::ORIGIN), func.value_type(param));
                self.classes.insert(param, Some(*first.entry(key).or_insert(count)));
                slots.push(Slot { param, init, next, local });
            }
        });
        let (mut next_class, mut before) = (first.len() as u32, (first.len(), slots.len()));
        loop {
            self.known.clear();
            let mut split: FxHashMap<[u32; 3], u32> = FxHashMap::default();
            let mut new: Vec<Option<u32>> = Vec::with_capacity(slots.len());
            for s in &slots {
                let class = self.classes[&s.param];
                let begin = class.and_then(|_| self.number(func, s.init, 0));
                let goes_on = begin.and_then(|_| self.number(func, s.next, s.local));
                let key = class.zip(begin).zip(goes_on).map(|((c, b), g)| [c, b, g]);
                new.push(key.map(|key| {
                    *split.entry(key).or_insert_with(|| {
                        next_class += 1;
                        next_class - 1
                    })
                }));
            }
            for (s, class) in slots.iter().zip(&new) {
                self.classes.insert(s.param, *class);
            }
            let now = (split.len(), new.iter().flatten().count());
            if std::mem::replace(&mut before, now) == now {
                break;
            }
        }
        self.known.clear();
    }

    /// The number of a value, as a group of that local stage sees it; `None` for what is not followed.
    pub fn number(&mut self, func: &Function, v: Value, local: i64) -> Option<u32> {
        let form = self.form(func, v, local)?;
        Some(self.number_of(form))
    }

    /// The value as a sum of numbers.
    pub fn form(&mut self, func: &Function, v: Value, local: i64) -> Option<Form> {
        self.follow(func, v, local, FUEL)
    }

    /// How often a loop runs, in numbers of all agents. `None` where a loop with local stages does not show it.
    pub fn iterations(&mut self, func: &Function, l: Op) -> Option<Known<Iterations>> {
        self.span(func, l, local_of(func, l), FUEL)
    }

    fn span(&mut self, func: &Function, l: Op, local: i64, fuel: u32) -> Option<Known<Iterations>> {
        let most = self.most(func, l, local, fuel)?;
        let (Some(exit), Known::As(iterations)) = (func.exit_of(l), &most) else { return Some(most) };
        let condition = self.follow(func, func.operands(exit)[0], 0, fuel);
        let (Some(condition), Some(origin)) = (condition, note(func, l, keys::ORIGIN)) else {
            return Some(Known::Unknown);
        };
        let key = Key::Exits(origin, self.number_of(condition), iterations.clone());
        Some(Known::As((self.atom(key), None)))
    }

    /// How often a loop runs by its bounds.
    fn most(&mut self, func: &Function, l: Op, local: i64, fuel: u32) -> Option<Known<Iterations>> {
        let (last, first, stride) = if is_skewed(func, l) {
            let n = trips(func, l).ok()?;
            let Some(v) = n.as_atom() else {
                // As many trips as that: every such loop counts as having stride 1.
                return Some(Known::As((Form::default().offset(n.as_constant()?), None)));
            };
            // N = max((hi - lo + stride - 1) div stride, 0)
            let max = func.defining_op(v).filter(|&o| func.opcode(o) == Opcode::Maxi)?;
            let div = func.operands(max).iter().find_map(|&x| func.defining_op(x))?;
            let zero = func.operands(max).iter().any(|&x| func.constant_value(x) == Some(0.0));
            let truncated =
                func.opcode(div) == Opcode::Divi && func.inherent(div).get(keys::ROUNDING).is_none();
            let (&[up, stride], true) = (func.operands(div), truncated && zero) else { return None };
            (up, None, stride)
        } else {
            let [lower, upper, stride] = loop_bounds(func, l)?;
            (upper, Some(lower), stride)
        };
        let mut read = |v: Value| self.follow(func, v, local, fuel);
        let (Some(last), Some(step)) = (read(last), read(stride)) else { return Some(Known::Unknown) };
        let span = match first.map(&mut read) {
            Some(None) => return Some(Known::Unknown),
            Some(Some(first)) => last.plus(&first, -1),
            None => last.plus(&step, -1).offset(1),
        };
        if let (Some(span), Some(step)) = (span.as_constant(), step.as_constant())
            && step > 0
        {
            let span = span.max(0);
            let n = span / step + i64::from(span % step != 0);
            return Some(Known::As((Form::default().offset(n), None)));
        }
        Some(Known::As((span, Some(self.number_of(step)))))
    }

    /// By number: what it is made from.
    pub fn origins(&self, func: &Function) -> Vec<Origin> {
        let mut of_class: FxHashMap<u32, i64> = FxHashMap::default();
        for (&param, class) in &self.classes {
            let ValueDef::Param(b, _) = func.value_def(param) else { continue };
            let origin = func.block_parent(b).and_then(|l| note(func, l, keys::ORIGIN));
            if let (Some(class), Some(origin)) = (class, origin) {
                of_class.insert(*class, origin);
            }
        }
        let mut keys: Vec<Option<&Key>> = vec![None; self.numbers.len()];
        self.numbers.iter().for_each(|(key, &n)| keys[n as usize] = Some(key));
        let mut out: Vec<Origin> = Vec::with_capacity(keys.len());
        // What a number is made from has smaller numbers.
        for key in keys.into_iter().flatten() {
            let (mut made, mut on, mut parts) = (Made::Other, SmallVec::new(), SmallVec::<[u32; 4]>::new());
            match key {
                Key::Value(_) => {}
                Key::Index(l) => {
                    made = Made::Index(*l);
                    on.push(*l);
                }
                Key::Made(op) => on.push(*op),
                Key::Carried(class) => on.extend(of_class.get(class).copied()),
                Key::Exits(l, condition, (span, step)) => {
                    on.push(*l);
                    parts.push(*condition);
                    parts.extend(span.terms.iter().map(|t| t.0).chain(*step));
                }
                Key::Behind(l, _, (span, step)) => {
                    on.push(*l);
                    parts.extend(span.terms.iter().map(|t| t.0).chain(*step));
                }
                Key::Choice(list) => parts.extend_from_slice(list),
                Key::Op(op, attrs, list, _) => {
                    // Other roundings of quotients say nothing about remainders.
                    let rounded = attrs.iter().any(|a| a.0 == keys::ROUNDING);
                    if let (&[a, b], false) = (list.as_slice(), rounded) {
                        made = Made::Of(*op, attrs.iter().any(|a| a.0 == keys::UNSIGNED), [a, b]);
                    }
                    if let (&[a, b, c], Opcode::TileOrder) = (list.as_slice(), op) {
                        made = Made::Order([a, b, c]);
                    }
                    parts.extend_from_slice(list);
                }
                Key::Sum(form) => {
                    made = Made::Sum(form.clone());
                    parts.extend(form.terms.iter().map(|t| t.0));
                }
            }
            for n in parts {
                let more = &out[n as usize].on;
                on.extend(more.iter().copied());
            }
            on.sort_unstable();
            on.dedup();
            out.push(Origin { made, on });
        }
        out
    }

    fn intern(&mut self, key: Key) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(key).or_insert(next)
    }

    fn atom(&mut self, key: Key) -> Form {
        Form::atom(self.intern(key))
    }

    fn number_of(&mut self, form: Form) -> u32 {
        match form.terms.as_slice() {
            [(n, 1)] if form.constant == 0 => *n,
            _ => self.intern(Key::Sum(form)),
        }
    }

    fn follow(&mut self, func: &Function, v: Value, local: i64, fuel: u32) -> Option<Form> {
        if let Some(known) = self.known.get(&(v, local)) {
            return known.clone();
        }
        let fuel = fuel.checked_sub(1)?;
        let found = match func.value_def(v) {
            ValueDef::Param(b, n) => match func.block_parent(b) {
                None => Some(self.atom(Key::Value(v))),
                Some(l) if n == 0 => self.induction(func, l, local, fuel),
                Some(l) if is_skewed(func, l) => self.handed(func, v, local, fuel),
                Some(_) => self.carried(v),
            },
            ValueDef::Result(op, n) => self.result(func, v, (op, n), local, fuel),
        };
        self.known.insert((v, local), found.clone());
        found
    }

    fn carried(&mut self, param: Value) -> Option<Form> {
        let class = self.classes.get(&param).copied().flatten()?;
        Some(self.atom(Key::Carried(class)))
    }

    /// The induction variable of a loop, or the step of one with local stages.
    fn induction(&mut self, func: &Function, l: Op, local: i64, fuel: u32) -> Option<Form> {
        let index = self.atom(Key::Index(note(func, l, keys::ORIGIN)?));
        if is_skewed(func, l) {
            return (local != ANYWHERE).then(|| index.offset(local));
        }
        let lower = self.follow(func, func.named_operand(l, "lower")?, local, fuel)?;
        let step = self.follow(func, func.named_operand(l, "step")?, local, fuel)?;
        Some(match step.as_constant() {
            Some(s) => lower.plus(&index, s),
            None => {
                let args = smallvec::smallvec![self.number_of(index), self.number_of(step)];
                lower.plus(&self.atom(Key::Op(Opcode::Muli, SmallVec::new(), args, 0)), 1)
            }
        })
    }

    /// What a loop with local stages hands from step to step: what a group before made in this iteration, or what the loop
    /// carries at its begin.
    fn handed(&mut self, func: &Function, v: Value, local: i64, fuel: u32) -> Option<Form> {
        let (chain, end) = handed_on(func, v)?;
        let made = match end {
            Ok(made) => made,
            // What the loop never changes.
            Err(_) if chain.len() == 1 => return self.carried(v),
            // Arguments that it exchanges; before them, what is handed from stage to stage.
            Err(cycle) => return self.carried(*chain.get(cycle)?).filter(|_| cycle as i64 == local),
        };
        if local == ANYWHERE {
            return None;
        }
        let from = func.defining_op(made).map_or(0, |d| local_of(func, d));
        match chain.len() as i64 - (local - from) {
            0 => self.follow(func, made, from, fuel),
            // Of so many iterations before.
            n => self.carried(*chain.get(usize::try_from(chain.len() as i64 - n).ok()?)?),
        }
    }

    fn result(
        &mut self,
        func: &Function,
        v: Value,
        (op, n): (Op, u32),
        local: i64,
        fuel: u32,
    ) -> Option<Form> {
        use crate::ir::opcodes::Traits;
        if let Some(&origin) = self.made.get(&v) {
            return Some(self.atom(Key::Made(origin)));
        }
        let at = n as usize;
        let origin = note(func, op, keys::ORIGIN);
        let whole = func.value_data(v).as_scalar().is_some_and(|s| !s.is_float());
        let operand = |c: &mut Canon, k: usize| c.follow(func, *func.operands(op).get(k)?, local, fuel);
        match func.opcode(op) {
            Opcode::For => {
                let param = *func.block_params(func.op_block_at(op, 0)?).get(at + 1)?;
                let class = self.classes.get(&param).copied().flatten()?;
                let Known::As(iterations) = self.span(func, op, local, fuel)? else { return None };
                Some(self.atom(Key::Behind(origin?, class, iterations)))
            }
            // Behind a prologue or epilogue there is what was before it, some iterations on.
            Opcode::If if note(func, op, keys::OF).is_some() => {
                self.follow(func, yielded(func, op, 1, at)?, local, fuel)
            }
            Opcode::If if is_guard(func, op) => {
                let local = local_of(func, op);
                self.follow(func, yielded(func, op, 0, at)?, local, fuel)
            }
            Opcode::If => {
                let condition = operand(self, 0)?;
                let mut parts = [self.number_of(condition), 0, 0];
                for r in 0..2 {
                    let form = self.follow(func, yielded(func, op, r, at)?, local, fuel)?;
                    parts[r + 1] = self.number_of(form);
                }
                Some(self.atom(Key::Choice(parts)))
            }
            // What an agent makes by itself: no other agent makes it.
            _ if origin.is_some() => Some(self.atom(Key::Made(origin?))),
            Opcode::Constant if whole && func.constant_value(v).is_some() => {
                Some(Form::default().offset(func.constant_value(v)? as i64))
            }
            Opcode::Addi if whole => Some(operand(self, 0)?.plus(&operand(self, 1)?, 1)),
            Opcode::Subi if whole => Some(operand(self, 0)?.plus(&operand(self, 1)?, -1)),
            o if o.has(Traits::PURE) && func.regions(op).is_empty() => {
                let mut args: SmallVec<[u32; 4]> = SmallVec::new();
                for k in 0..func.operands(op).len() {
                    let form = operand(self, k)?;
                    if let (Opcode::Muli, Some(c), true) = (o, form.as_constant(), whole) {
                        let other = operand(self, 1 - k.min(1))?;
                        return Some(Form::default().plus(&other, c));
                    }
                    args.push(self.number_of(form));
                }
                // What stages noted says nothing about the value.
                let own = func.inherent(op).iter().filter(|a| keys::STAGE.iter().all(|k| k.0 != a.0));
                Some(self.atom(Key::Op(o, own.collect(), args, n)))
            }
            _ => None,
        }
    }
}

/// The number that a stage left on an op.
pub fn note(func: &Function, op: Op, key: crate::ir::Sym) -> Option<i64> {
    match func.attr_data(func.inherent(op).get(key)?) {
        AttrData::Int(v, _) => Some(*v),
        _ => None,
    }
}
