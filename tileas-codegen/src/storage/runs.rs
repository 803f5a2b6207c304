//! What is known of the integers in a tile along one of its axes: how far they count up by one, how far they stay the same, and
//! what divides them. Accesses by coordinates choose their vectors by it.
//!
//! In: a function in any form that has tiles. Out: [`Runs`] of a value along an axis. Facts hold whatever the arguments are; all lengths are
//! powers of two, and runs begin at multiples of them. Loops are walked until what they carry stays the same. Cost: linear in the ops that a
//! value is made of, each at most [`MOST_ROUNDS`] times for each loop around it.

use crate::ir::{Dim, Function, Op, Opcode, Scalar, TypeData, Value, ValueDef, keys};
use rustc_hash::FxHashMap;

/// How often what a loop carries is looked at again.
const MOST_ROUNDS: u32 = 4;
/// Deepest chain of ops that is followed.
const DEEPEST: u32 = 64;
/// Most values looked at for one function; beyond, nothing is known.
const MOST_STEPS: u32 = 50_000;
/// Divides zero, and is longer than any axis.
const MOST: u32 = 1 << 30;

/// Facts of a value along an axis. What is `counting` elements long, from a multiple of that, counts up by one from a
/// multiple of `divisor`; what is `same` elements long stays the same.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Runs {
    /// Elements that count up by one.
    pub counting: u32,
    /// Elements that are equal.
    pub same: u32,
    /// A power of two that divides the first of those that count up; with `counting` 1, all of them.
    pub divisor: u32,
}

impl Runs {
    /// Nothing is known.
    pub const NONE: Runs = Runs { counting: 1, same: 1, divisor: 1 };

    fn number(n: i64, extent: u32) -> Runs {
        let divisor = if n == 0 { MOST } else { 1 << n.trailing_zeros().min(30) };
        Runs { counting: 1, same: extent, divisor }
    }

    /// What divides each element.
    fn all(self) -> u32 {
        if self.counting > 1 { 1 } else { self.divisor }
    }

    /// The same in shorter runs that count up.
    fn cut(self, counting: u32) -> Runs {
        match counting < self.counting {
            true => Runs { counting, same: self.same, divisor: self.divisor.min(counting) },
            false => self,
        }
    }

    fn meet(self, other: Runs) -> Runs {
        let counting = self.counting.min(other.counting);
        let (a, b) = (self.cut(counting), other.cut(counting));
        Runs { counting, same: a.same.min(b.same), divisor: a.divisor.min(b.divisor) }
    }

    /// Elements that a vector along the axis may have.
    pub fn vector(self) -> u32 {
        self.counting.min(self.divisor)
    }
}

/// Finds facts; those of one function are kept.
#[derive(Default)]
pub struct Finder {
    known: FxHashMap<(Value, Option<usize>), Runs>,
    steps: u32,
}

impl Finder {
    /// Facts of a scalar or tile of integers along an axis of a tile with `extent` elements there: `axis` is the axis of the value itself. A
    /// scalar, or a tile that has one element along the axis, is the same everywhere.
    pub fn of(&mut self, func: &Function, v: Value, axis: usize) -> Runs {
        let dims = func.value_data(v).dims().unwrap_or(&[]);
        match dims.get(axis) {
            Some(&n) if n > 1 => self.find(func, v, Some(axis), DEEPEST),
            _ => Runs { same: MOST, ..self.find(func, v, None, DEEPEST) },
        }
    }

    /// A power of two that divides a scalar.
    pub fn divisor(&mut self, func: &Function, v: Value) -> u32 {
        self.find(func, v, None, DEEPEST).all()
    }

    /// Along an axis with several elements, or, without one, of all elements alike.
    fn find(&mut self, func: &Function, v: Value, axis: Option<usize>, fuel: u32) -> Runs {
        if let Some(&r) = self.known.get(&(v, axis)) {
            return r;
        }
        self.steps += 1;
        let Some(fuel) = fuel.checked_sub(1).filter(|_| self.steps < MOST_STEPS) else { return Runs::NONE };
        let extent = self.extent(func, v, axis);
        let r = match func.value_def(v) {
            ValueDef::Result(op, n) => self.result(func, op, n as usize, axis, extent, fuel),
            ValueDef::Param(b, n) => match func.block_parent(b) {
                Some(op) if func.opcode(op) == Opcode::For => {
                    return self.carried(func, op, v, n as usize, axis, extent, fuel);
                }
                _ => Runs::NONE,
            },
        };
        let r = Runs { same: r.same.min(extent), counting: r.counting.min(extent), ..r };
        self.known.insert((v, axis), r);
        r
    }

    fn extent(&self, func: &Function, v: Value, axis: Option<usize>) -> u32 {
        let dims = func.value_data(v).dims().unwrap_or(&[]);
        axis.and_then(|a| dims.get(a)).map_or(1, |&d| d)
    }

    /// Parameter `n` of a loop body.
    #[expect(clippy::too_many_arguments, reason = "what `find` knows already")]
    fn carried(
        &mut self,
        func: &Function,
        op: Op,
        v: Value,
        n: usize,
        axis: Option<usize>,
        extent: u32,
        fuel: u32,
    ) -> Runs {
        let bounds = func.operands(op);
        if n == 0 {
            let (Some(&first), Some(&step)) = (bounds.first(), bounds.get(2)) else { return Runs::NONE };
            let (a, b) = (self.find(func, first, None, fuel), self.find(func, step, None, fuel));
            return Runs { counting: 1, same: extent, divisor: a.divisor.min(b.divisor) };
        }
        let (Some(&init), Some(&next)) =
            (func.named_segment(op, "inits").get(n - 1), func.region_yields(op, 0).get(n - 1))
        else {
            return Runs::NONE;
        };
        let mut guess = self.find(func, init, axis, fuel);
        for _ in 0..MOST_ROUNDS {
            // What was found on a guess goes with it.
            let before = self.known.clone();
            self.known.insert((v, axis), guess);
            let met = guess.meet(self.find(func, next, axis, fuel));
            if met == guess {
                return guess;
            }
            self.known = before;
            guess = met;
        }
        self.known.insert((v, axis), Runs::NONE);
        Runs::NONE
    }

    fn result(
        &mut self,
        func: &Function,
        op: Op,
        n: usize,
        axis: Option<usize>,
        extent: u32,
        fuel: u32,
    ) -> Runs {
        use Opcode as O;
        let operand = |k: usize| func.operands(op).get(k).copied();
        let Some(result) = func.result(op) else { return Runs::NONE };
        let unsigned = func.has_attr(op, keys::UNSIGNED);
        match func.opcode(op) {
            O::Constant => match func.attr(op, keys::VALUE) {
                Some(&crate::ir::AttrData::Int(v, _)) => Runs::number(v, extent),
                _ => Runs { same: extent, ..Runs::NONE },
            },
            O::Dim => {
                let axis = func.attr_int(op, keys::AXIS).and_then(|a| usize::try_from(a).ok());
                match (operand(0).map(|v| func.value_data(v)), axis) {
                    (Some(TypeData::View { dims, .. }), Some(a)) => match dims.get(a) {
                        Some(&Dim::Static(n)) => Runs::number(i64::from(n), 1),
                        _ => Runs::NONE,
                    },
                    _ => Runs::NONE,
                }
            }
            O::Assume => {
                let Some(v) = operand(0) else { return Runs::NONE };
                let known = self.find(func, v, None, fuel);
                let by = func.attr_int(op, keys::DIV_BY).unwrap_or(1).clamp(1, i64::from(MOST)) as u32;
                Runs { divisor: known.divisor.max(by), ..known }
            }
            O::MayAlias => match operand(0) {
                Some(v) => self.find(func, v, None, fuel),
                None => Runs::NONE,
            },
            // Bytes of an address.
            O::Offset => {
                let (Some(p), Some(n)) = (operand(0), operand(1)) else { return Runs::NONE };
                let bytes = func.value_data(p).elem().map_or(1, Scalar::bytes);
                let (p, n) = (self.find(func, p, None, fuel), self.find(func, n, None, fuel));
                Runs { divisor: p.divisor.min(n.divisor.saturating_mul(bytes)), ..p }
            }
            O::Iota => match axis {
                // Narrow ones begin again.
                Some(_) => {
                    let bits = func.value_data(result).elem().map_or(1, Scalar::bits);
                    Runs { counting: extent.min(1 << (bits - 1).min(30)), same: 1, divisor: MOST }
                }
                None => Runs::NONE,
            },
            O::Splat => {
                let Some(v) = operand(0) else { return Runs::NONE };
                Runs { same: extent, ..self.find(func, v, None, fuel) }
            }
            O::Broadcast => {
                let Some(v) = operand(0) else { return Runs::NONE };
                match axis.filter(|_| self.extent(func, v, axis) == extent) {
                    Some(a) => self.find(func, v, Some(a), fuel),
                    None => Runs { same: extent, ..self.find(func, v, None, fuel) },
                }
            }
            O::Reshape => {
                let Some(v) = operand(0) else { return Runs::NONE };
                let (from, to) = (func.value_data(v).dims(), func.value_data(result).dims());
                let (Some(from), Some(to)) = (from, to) else { return Runs::NONE };
                let behind = |d: &[u32], a: usize| d[a + 1..].iter().map(|&n| u64::from(n)).product::<u64>();
                let same = axis.and_then(|a| {
                    let low = behind(to, a);
                    (0..from.len()).rev().find(|&b| behind(from, b) == low && from[b] > 1)
                });
                match (axis, same) {
                    (Some(_), Some(b)) => {
                        let r = self.find(func, v, Some(b), fuel);
                        Runs { same: r.same.min(extent), ..r.cut(extent) }
                    }
                    (Some(_), None) => Runs { same: 1, ..self.find(func, v, None, fuel) },
                    (None, _) => self.find(func, v, None, fuel),
                }
            }
            O::Permute => {
                let order = func.attr_ints(op, keys::PERMUTATION).unwrap_or_default();
                let from = axis.map(|a| order.get(a).and_then(|&b| usize::try_from(b).ok()));
                match (operand(0), from) {
                    (Some(v), None) => self.find(func, v, None, fuel),
                    (Some(v), Some(Some(b))) => self.find(func, v, Some(b), fuel),
                    _ => Runs::NONE,
                }
            }
            O::ExtractSlice => {
                let Some(v) = operand(0).filter(|_| func.operands(op).len() == 1) else { return Runs::NONE };
                let offsets = func.attr_ints(op, keys::OFFSETS).unwrap_or_default();
                let at = axis.and_then(|a| offsets.get(a).copied()).unwrap_or(0);
                let most = Runs::number(at, 1).divisor;
                let r = self.find(func, v, axis, fuel).cut(most);
                Runs { same: r.same.min(most), ..r }
            }
            O::ConvertLayout | O::Exti => match operand(0) {
                Some(v) => self.find(func, v, axis, fuel),
                None => Runs::NONE,
            },
            O::Addi | O::Subi => {
                let (Some(a), Some(b)) = (operand(0), operand(1)) else { return Runs::NONE };
                let (a, b) = (self.find(func, a, axis, fuel), self.find(func, b, axis, fuel));
                let sum = func.opcode(op) == O::Addi;
                let counts = |x: Runs, y: Runs| {
                    // Where one counts the other has to stay the same.
                    let x = x.cut(y.same);
                    Runs { counting: x.counting, same: 1, divisor: x.divisor.min(y.divisor) }
                };
                match (a.counting > 1, b.counting > 1) {
                    (false, false) => {
                        Runs { counting: 1, same: a.same.min(b.same), divisor: a.divisor.min(b.divisor) }
                    }
                    (true, false) => counts(a, b),
                    (false, true) if sum => counts(b, a),
                    _ => Runs { same: a.same.min(b.same), ..Runs::NONE },
                }
            }
            O::Muli => {
                let (Some(a), Some(b)) = (operand(0), operand(1)) else { return Runs::NONE };
                let (a, b) = (self.find(func, a, axis, fuel), self.find(func, b, axis, fuel));
                let divisor = (u64::from(a.all()) * u64::from(b.all())).min(u64::from(MOST)) as u32;
                Runs { counting: 1, same: a.same.min(b.same), divisor }
            }
            O::Shli | O::Shri => {
                let (Some(a), Some(b)) = (operand(0), operand(1)) else { return Runs::NONE };
                let amount = self.constant(func, b);
                let (a, b) = (self.find(func, a, axis, fuel), self.find(func, b, axis, fuel));
                let same = a.same.min(b.same);
                let Some(by) = amount.filter(|n| (0..30).contains(n)) else {
                    return Runs { same, ..Runs::NONE };
                };
                match func.opcode(op) {
                    O::Shli => {
                        let divisor = (u64::from(a.all()) << by).min(u64::from(MOST)) as u32;
                        Runs { counting: 1, same, divisor }
                    }
                    _ => Runs {
                        counting: 1,
                        same: same.max(a.vector().min(1 << by)),
                        divisor: (a.all() >> by).max(1),
                    },
                }
            }
            // Quotients and remainders by a power of two; of signed numbers below zero they are others.
            O::Divi | O::Remi if unsigned || func.attr_name(op, keys::ROUNDING) == Some("negative_inf") => {
                let (Some(a), Some(b)) = (operand(0), operand(1)) else { return Runs::NONE };
                if !unsigned && self.constant(func, b).is_none_or(|n| n <= 0) {
                    return Runs::NONE;
                }
                let (x, y) = (self.find(func, a, axis, fuel), self.find(func, b, axis, fuel));
                let same = x.same.min(y.same);
                let run = x.vector().min(y.divisor).min(y.same);
                match func.opcode(op) {
                    O::Divi => Runs { same: same.max(run), ..Runs::NONE },
                    _ if unsigned => Runs { counting: run, same, divisor: x.divisor.min(y.divisor) },
                    _ => Runs { same, ..Runs::NONE },
                }
            }
            O::Andi => {
                let (Some(a), Some(b)) = (operand(0), operand(1)) else { return Runs::NONE };
                let mask = self.constant(func, b);
                let (x, y) = (self.find(func, a, axis, fuel), self.find(func, b, axis, fuel));
                let same = x.same.min(y.same);
                match mask {
                    // The lowest bits alone.
                    Some(m) if m > 0 && m < i64::from(MOST) && (m + 1) & m == 0 => {
                        let run = x.vector().min(m as u32 + 1);
                        Runs { counting: run, same, divisor: if run > 1 { x.divisor } else { x.all() } }
                    }
                    _ => Runs { counting: 1, same, divisor: x.all().max(y.all()) },
                }
            }
            // Below a bound that divides: all of a run, or none.
            O::Cmpi => {
                let (Some(a), Some(b)) = (operand(0), operand(1)) else { return Runs::NONE };
                let (x, y) = (self.find(func, a, axis, fuel), self.find(func, b, axis, fuel));
                let whole = match func.attr_name(op, keys::PREDICATE) {
                    Some("lt" | "ge") => x.vector().min(y.all()).min(y.same),
                    Some("gt" | "le") => y.vector().min(x.all()).min(x.same),
                    _ => 1,
                };
                Runs { same: x.same.min(y.same).max(whole), ..Runs::NONE }
            }
            O::For | O::If => {
                let regions = func.regions(op).len();
                let mut given = (0..regions).map(|r| func.region_yields(op, r).get(n).copied());
                let inits =
                    (func.opcode(op) == O::For).then(|| func.named_segment(op, "inits").get(n).copied());
                let param = func.op_block_at(op, 0).and_then(|b| func.block_params(b).get(n + 1).copied());
                match (inits, param) {
                    // What is carried has the facts that hold before and after each iteration.
                    (Some(_), Some(p)) => self.find(func, p, axis, fuel),
                    (Some(_), None) => Runs::NONE,
                    (None, _) => {
                        let first = given.next().flatten();
                        let Some(first) = first else { return Runs::NONE };
                        let first = self.find(func, first, axis, fuel);
                        given.fold(first, |r, v| match v {
                            Some(v) => r.meet(self.find(func, v, axis, fuel)),
                            None => Runs::NONE,
                        })
                    }
                }
            }
            o if o.has(crate::ir::opcodes::Traits::ELEMENTWISE) => {
                let mut same = extent;
                for &v in func.operands(op) {
                    let elem = func.value_data(v).elem();
                    let r = match elem.is_some_and(Scalar::is_int) {
                        true => self.find(func, v, axis, fuel),
                        false => Runs::NONE,
                    };
                    let scalar = !func.value_data(v).is_tile();
                    same = same.min(if scalar { extent } else { r.same });
                }
                Runs { same, ..Runs::NONE }
            }
            _ if axis.is_none() => Runs { same: 1, ..Runs::NONE },
            _ => Runs::NONE,
        }
    }

    /// The number that all elements are.
    fn constant(&self, func: &Function, v: Value) -> Option<i64> {
        let op = func.defining_op(v)?;
        match func.opcode(op) {
            Opcode::Constant => func.attr_int(op, keys::VALUE),
            Opcode::Splat | Opcode::Broadcast | Opcode::Reshape | Opcode::ConvertLayout => {
                self.constant(func, func.operands(op).first().copied()?)
            }
            _ => None,
        }
    }
}

/// Elements that a vector of a `gather` or `scatter` may have, along the last axis of its tile: the last coordinates count up, the others
/// and the mask stay the same.
pub fn vector(func: &Function, finder: &mut Finder, op: Op) -> u32 {
    let dims = func.sparse_tile(op).and_then(|v| func.value_data(v).dims()).unwrap_or(&[]);
    let Some(axis) = dims.len().checked_sub(1) else { return 1 };
    let Some((&last, others)) = func.named_segment(op, "coords").split_last() else { return 1 };
    let mut counting = finder.of(func, last, axis).vector();
    if let Some(base) = func.named_operand(op, "view")
        && let TypeData::Ptr { elem, .. } = *func.value_data(base)
    {
        counting =
            counting.min((finder.find(func, base, None, DEEPEST).divisor / elem.bytes().max(1)).max(1));
    }
    let mask = func.named_operand(op, "mask");
    others
        .iter()
        .copied()
        .chain(mask)
        .fold(counting.min(dims[axis]), |n, v| n.min(finder.of(func, v, axis).same))
}
