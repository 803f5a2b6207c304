//! Uniform values as linear forms, and which values of different agents are certainly equal.
//!
//! In: values of a materialised function. Out: [`Lin`] (what a guard or a bound says about steps and trips) and
//! [`Canon`] numbers: two values with one number are equal whenever their regions run for the same iterations.
//! Values that are not followed are atoms of their own, or have no number. Cost: linear in the ops followed.

use crate::ir::{Attr, AttrData, Function, Op, Opcode, Sym, Value, ValueDef, keys};
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

#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Value(Value),
    /// Induction variable of the loop of that origin.
    Induction(i64),
    /// A scalar that the op of that origin computes and that travels between agents.
    Sent(i64),
    /// With its attributes and what its operands are.
    Op(Opcode, SmallVec<[(Sym, Attr); 4]>, SmallVec<[u32; 4]>, u32),
}

/// Numbers for values of several agents.
#[derive(Default)]
pub struct Canon {
    numbers: FxHashMap<Key, u32>,
    known: FxHashMap<Value, Option<u32>>,
}

impl Canon {
    /// The number of a value; `None` for what is not a pure function of parameters and induction variables.
    pub fn number(&mut self, func: &Function, v: Value) -> Option<u32> {
        self.follow(func, v, 64)
    }

    /// Says that a value is what the op of that origin computes, in every agent that has it.
    pub fn sent(&mut self, v: Value, origin: i64) {
        let next = self.numbers.len() as u32;
        let n = *self.numbers.entry(Key::Sent(origin)).or_insert(next);
        self.known.insert(v, Some(n));
    }

    fn follow(&mut self, func: &Function, v: Value, fuel: u32) -> Option<u32> {
        if let Some(&n) = self.known.get(&v) {
            return n;
        }
        let key = self.key(func, v, fuel.checked_sub(1)?);
        let n = key.map(|k| {
            let next = self.numbers.len() as u32;
            *self.numbers.entry(k).or_insert(next)
        });
        self.known.insert(v, n);
        n
    }

    fn key(&mut self, func: &Function, v: Value, fuel: u32) -> Option<Key> {
        match func.value_def(v) {
            ValueDef::Param(b, n) => match func.block_parent(b) {
                None => Some(Key::Value(v)),
                Some(l) => {
                    // Rolled and peeled loops count steps, not iterations.
                    let plain = n == 0 && func.discardable(l).get(keys::SKEW).is_none();
                    plain.then(|| note(func, l, keys::ORIGIN).map(Key::Induction)).flatten()
                }
            },
            ValueDef::Result(op, n) => {
                use crate::ir::opcodes::Traits;
                if !func.opcode(op).has(Traits::PURE) || !func.regions(op).is_empty() {
                    return None;
                }
                let mut args = SmallVec::new();
                for &x in func.operands(op) {
                    args.push(self.follow(func, x, fuel)?);
                }
                Some(Key::Op(func.opcode(op), func.inherent(op).iter().collect(), args, n))
            }
        }
    }
}

/// The number an attribute in the discardable dictionary holds.
pub fn note(func: &Function, op: Op, key: crate::ir::Sym) -> Option<i64> {
    match func.attr_data(func.discardable(op).get(key)?) {
        AttrData::Int(v, _) => Some(*v),
        _ => None,
    }
}
