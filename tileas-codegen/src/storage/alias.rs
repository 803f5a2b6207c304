//! Which elements of a view an op touches, and whether two ops touch some in common.
//!
//! In: ops of the placed function. Out: [`Touched`], element ranges whose origins are linear in scalar values, and two
//! answers: [`Touched::apart`] (in one execution of a block) and [`Touched::apart_over`] (in different iterations of a
//! loop). "Not apart" means not proven. Views that are different parameters do not alias. Cost: terms × dimensions.

use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Value, ValueDef, keys};
use crate::storage::classify::touches;
use smallvec::SmallVec;

/// Σ factor · value + constant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Linear {
    /// By value; no factor is 0.
    terms: SmallVec<[(Value, i64); 2]>,
    constant: i64,
}

impl Linear {
    fn of(func: &Function, v: Value, fuel: u32) -> Linear {
        let opaque = || Linear { terms: SmallVec::from_slice(&[(v, 1)]), constant: 0 };
        let Some(op) = func.defining_op(v).filter(|_| fuel > 0) else { return opaque() };
        let arg = |n: usize| Linear::of(func, func.operands(op)[n], fuel - 1);
        match func.opcode(op) {
            Opcode::Constant => match func.constant_value(v) {
                Some(c) if c.abs() < 1e15 => Linear { terms: SmallVec::new(), constant: c as i64 },
                _ => opaque(),
            },
            Opcode::Addi => arg(0).plus(&arg(1), 1),
            Opcode::Subi => arg(0).plus(&arg(1), -1),
            Opcode::Muli => match (arg(0), arg(1)) {
                (a, b) if b.terms.is_empty() => a.times(b.constant),
                (a, b) if a.terms.is_empty() => b.times(a.constant),
                _ => opaque(),
            },
            _ => opaque(),
        }
    }

    /// An element's coordinate, of so many along its dimension, without bounds that only keep it from wrapping around: where they
    /// hold it back, all of these are out of bounds, as they are without them.
    fn unbounded(self, func: &Function, extent: i64) -> Linear {
        const BEYOND: i64 = 1 << 31;
        // Beside it only what moves on within the tile.
        let slice = |w: Value| match func.value_def(w) {
            ValueDef::Param(b, 0) => func.block_parent(b).is_some_and(|l| func.is_slice_loop(l)),
            _ => false,
        };
        let bound = |&(v, factor): &(Value, i64)| {
            let op = func.defining_op(v).filter(|_| factor > 0)?;
            let &[inner, end] = func.operands(op) else { return None };
            let end = func.constant_value(end)? as i64;
            let (mut least, mut most) = (self.constant, self.constant);
            for &(w, f) in self.terms.iter().filter(|t| t.0 != v) {
                let (low, high) = index_range(func, w).filter(|_| slice(w))?;
                let ends = [low.saturating_mul(f), high.saturating_mul(f)];
                (least, most) =
                    (least.saturating_add(ends[0].min(ends[1])), most.saturating_add(ends[0].max(ends[1])));
            }
            let held = end.saturating_mul(factor);
            let out = match func.opcode(op) {
                Opcode::Mini if func.has_attr(op, keys::UNSIGNED) => least >= 0 && held >= BEYOND,
                Opcode::Maxi if !func.has_attr(op, keys::UNSIGNED) => {
                    held.saturating_add(most).saturating_add(extent) <= 0
                }
                _ => false,
            };
            out.then_some((v, inner, factor))
        };
        let Some((v, inner, factor)) = self.terms.iter().find_map(bound) else { return self };
        let mut rest = self;
        rest.terms.retain(|t| t.0 != v);
        rest.plus(&Linear::of(func, inner, 16), factor)
    }

    fn times(mut self, k: i64) -> Linear {
        self.constant = self.constant.saturating_mul(k);
        self.terms.iter_mut().for_each(|t| t.1 = t.1.saturating_mul(k));
        self.terms.retain(|t| t.1 != 0);
        self
    }

    fn plus(mut self, other: &Linear, k: i64) -> Linear {
        self.constant = self.constant.saturating_add(other.constant.saturating_mul(k));
        for &(v, f) in &other.terms {
            match self.terms.iter_mut().find(|t| t.0 == v) {
                Some(t) => t.1 = t.1.saturating_add(f.saturating_mul(k)),
                None => self.terms.push((v, f.saturating_mul(k))),
            }
        }
        self.terms.retain(|t| t.1 != 0);
        self.terms.sort_unstable();
        self
    }

    fn factor(&self, v: Value) -> i64 {
        self.terms.iter().find(|t| t.0 == v).map_or(0, |t| t.1)
    }
}

/// The elements of a view that one execution of an op reads or writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Touched {
    /// The op.
    pub op: Op,
    /// The view, or the pointer that it was made of.
    pub view: Value,
    named: Value,
    /// Whether it is written.
    pub write: bool,
    /// Origin and extent per dimension.
    range: SmallVec<[(Linear, i64); 2]>,
}

impl Touched {
    /// What an op (not its regions) touches.
    pub fn of(func: &Function, op: Op) -> Option<Touched> {
        let touch = touches(func, op)?;
        let coords = func.named_segment(op, "coords");
        let tile = func
            .named_operand(op, "desc")
            .or_else(|| match func.opcode(op) {
                Opcode::TiledStore => func.named_operand(op, "value"),
                _ => func.result(op),
            })
            .and_then(|v| func.value_data(v).dims());
        let sparse = func.opcode(op).is_sparse();
        let extent = |n: usize| tile.filter(|_| !sparse).and_then(|d| d.get(n)).map_or(1, |&d| i64::from(d));
        let range = coords.iter().enumerate().map(|(n, &c)| {
            // Single elements may be anywhere.
            if func.value_data(c).is_tile() {
                return (Linear::default(), i64::MAX);
            }
            let e = extent(n);
            (Linear::of(func, c, 16).times(e).unbounded(func, e), e)
        });
        let (view, named, write) = (touch.view, touch.named, touch.write);
        Some(Touched { op, view, named, write, range: range.collect() })
    }

    /// Whether they have no element in common in one execution of the block that holds both, in two of its ops or in regions
    /// of two. Indices of loops with constant bounds may be anything in these bounds.
    pub fn apart(&self, other: &Touched, func: &Function) -> bool {
        self.pairs(other).any(|(x, y)| {
            let gap = x.0.clone().plus(&y.0, -1);
            let (mut least, mut most) = (gap.constant, gap.constant);
            for &(v, factor) in &gap.terms {
                let Some((low, high)) = index_range(func, v) else { return false };
                let (a, b) = (low.saturating_mul(factor), high.saturating_mul(factor));
                (least, most) = (least.saturating_add(a.min(b)), most.saturating_add(a.max(b)));
            }
            least >= y.1 || most.saturating_neg() >= x.1
        })
    }

    /// Whether what this touches in some iteration and `other` in a later one have no element in common: along a dimension the
    /// index moves on by more than the extents, or two dimensions hold a quotient and its remainder, which together tell what
    /// was divided.
    pub fn apart_over(&self, other: &Touched, func: &Function, body: Block) -> bool {
        let Some(l) = func.block_parent(body).filter(|&l| func.opcode(l) == Opcode::For) else {
            return false;
        };
        let Some(&iv) = func.block_params(body).first() else { return false };
        let walk = Iterating { func, body, iv };
        // A step is positive.
        let step = func.named_operand(l, "step").and_then(|v| func.constant_value(v));
        let step = step.map_or(1, |s| s as i64).max(1);
        let moves_on = self.pairs(other).any(|(x, y)| {
            let stride = x.0.factor(iv).saturating_mul(step);
            stride != 0
                && walk.rest(x, y, iv).is_some_and(|(least, most)| match stride {
                    1.. => stride.saturating_sub(most) >= x.1,
                    _ => least.saturating_sub(stride) >= y.1,
                })
        });
        let told = |v: Value| {
            self.pairs(other).any(|(x, y)| {
                let stride = x.0.factor(v).saturating_abs();
                stride > 0
                    && walk.rest(x, y, v).is_some_and(|(least, most)| {
                        stride.saturating_sub(most) >= x.1 && stride.saturating_add(least) >= y.1
                    })
            })
        };
        let terms = || self.range.iter().flat_map(|r| &r.0.terms).map(|t| t.0);
        let parts = |by: Opcode| terms().filter_map(move |v| Some((v, walk.divided(v, by)?)));
        moves_on
            || parts(Opcode::Divi).any(|(quotient, of)| {
                let mut remainders = parts(Opcode::Remi).filter(|r| r.1 == of).map(|r| r.0);
                walk.differs(of.0) && told(quotient) && remainders.any(told)
            })
    }

    fn pairs<'a>(
        &'a self,
        other: &'a Touched,
    ) -> impl Iterator<Item = (&'a (Linear, i64), &'a (Linear, i64))> {
        // What may be anywhere is apart from nothing; so are views that were made of one pointer.
        let same = self.named == other.named;
        self.range.iter().zip(&other.range).filter(move |(x, y)| same && x.1 != i64::MAX && y.1 != i64::MAX)
    }
}

/// Different iterations of a loop.
#[derive(Copy, Clone)]
struct Iterating<'a> {
    func: &'a Function,
    body: Block,
    iv: Value,
}

impl Iterating<'_> {
    fn varies(&self, v: Value) -> bool {
        varies_in(self.func, self.body, v, 16)
    }

    /// The least and the greatest that `x` can be above `y` without the term `but`, of which both have as much: what no
    /// iteration changes is in both, and indices of inner loops with constant bounds are anything in these bounds.
    fn rest(&self, x: &(Linear, i64), y: &(Linear, i64), but: Value) -> Option<(i64, i64)> {
        if x.0.factor(but) != y.0.factor(but) {
            return None;
        }
        let constant = x.0.constant.saturating_sub(y.0.constant);
        let (mut least, mut most) = (constant, constant);
        for (form, other, sign) in [(&x.0, &y.0, 1), (&y.0, &x.0, -1)] {
            for &(v, factor) in form.terms.iter().filter(|t| t.0 != but) {
                if self.varies(v) {
                    let (low, high) = index_range(self.func, v).filter(|_| v != self.iv)?;
                    let ends = [low, high].map(|end| end.saturating_mul(factor).saturating_mul(sign));
                    least = least.saturating_add(ends[0].min(ends[1]));
                    most = most.saturating_add(ends[0].max(ends[1]));
                } else if other.factor(v) != factor {
                    return None;
                }
            }
        }
        Some((least, most))
    }

    /// What a truncated quotient or its remainder is made from: the number, a divisor that no iteration changes (each use of a
    /// literal is a constant of its own), and whether both are unsigned.
    fn divided(&self, v: Value, by: Opcode) -> Option<(Value, Linear, bool)> {
        let op = self.func.defining_op(v).filter(|&op| self.func.opcode(op) == by)?;
        let &[number, divisor] = self.func.operands(op) else { return None };
        let truncated = self.func.attr_name(op, keys::ROUNDING).is_none_or(|r| r == "zero");
        (truncated && !self.varies(divisor))
            .then(|| (number, Linear::of(self.func, divisor, 16), self.func.has_attr(op, keys::UNSIGNED)))
    }

    /// Whether a number is another one in each iteration: it moves on with the index, or is the tile at such a place in an order.
    fn differs(&self, v: Value) -> bool {
        if let Some(op) = self.func.defining_op(v).filter(|&op| self.func.opcode(op) == Opcode::TileOrder) {
            let &[index, rows, columns] = self.func.operands(op) else { return false };
            return !self.varies(rows) && !self.varies(columns) && self.differs(index);
        }
        let form = Linear::of(self.func, v, 16);
        form.factor(self.iv) != 0 && form.terms.iter().all(|t| t.0 == self.iv || !self.varies(t.0))
    }
}

/// The least and the greatest value of the index of a loop with constant bounds.
fn index_range(func: &Function, v: Value) -> Option<(i64, i64)> {
    let ValueDef::Param(b, 0) = func.value_def(v) else { return None };
    let l = func.block_parent(b).filter(|&l| func.opcode(l) == Opcode::For)?;
    let bound = |n: &str| func.named_operand(l, n).and_then(|v| func.constant_value(v)).map(|x| x as i64);
    let (lower, upper, step) = (bound("lower")?, bound("upper")?, bound("step")?);
    let trips = upper.saturating_sub(lower).max(1).saturating_add(step - 1).checked_div(step)?;
    (step > 0).then(|| (lower, lower.saturating_add((trips - 1).saturating_mul(step))))
}

/// Whether a value may differ from one execution of a loop body to the next: it is made there, and not only from what
/// stays as it is.
fn varies_in(func: &Function, body: Block, v: Value, fuel: u32) -> bool {
    if !defined_in(func, body, v) {
        return false;
    }
    let pure = |op: &Op| func.opcode(*op).has(Traits::PURE) && func.regions(*op).is_empty();
    func.defining_op(v)
        .filter(pure)
        .filter(|_| fuel > 0)
        .is_none_or(|op| func.operands(op).iter().any(|&x| varies_in(func, body, x, fuel - 1)))
}

/// Whether a value is defined in a block or below it.
fn defined_in(func: &Function, body: Block, v: Value) -> bool {
    let mut at = match func.value_def(v) {
        ValueDef::Result(op, _) => func.op_block(op),
        ValueDef::Param(b, _) => Some(b),
    };
    while let Some(b) = at {
        if b == body {
            return true;
        }
        at = func.block_parent(b).and_then(|op| func.op_block(op));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse_module;

    fn touched(body: &str) -> (Function, Vec<Touched>) {
        let text = format!("kernel @k(%v: view<gmem, ?x?xf32>, %n: i32) {{\n{body}\n  return\n}}\n");
        let func = parse_module(&text).expect(&text).functions.remove(0);
        let list = func.all_ops().into_iter().filter_map(|op| Touched::of(&func, op)).collect();
        (func, list)
    }

    #[test]
    fn halves_of_a_tile_are_apart() {
        let (f, t) = touched(
            "  %two = constant 2 : i32\n  %one = constant 1 : i32\n  %a = muli %n, %two : i32\n  %b = addi %a, %one : i32\n  \
             %x = tiled_load %v[%n, %a] : tile<16x16xf32>\n  %y = tiled_load %v[%n, %b] : tile<16x16xf32>\n  \
             %z = tiled_load %v[%n, %n] : tile<16x32xf32>\n  %w = tiled_load %v[%b, %n] : tile<16x32xf32>",
        );
        assert!(t[0].apart(&t[1], &f) && t[1].apart(&t[0], &f), "neighbours");
        assert!(!t[0].apart(&t[2], &f) && !t[2].apart(&t[1], &f), "a whole and its parts");
        assert!(!t[2].apart(&t[3], &f), "rows n and 2n + 1 may be the same");
    }

    #[test]
    fn slices_of_two_tiles_are_apart() {
        let (f, t) = touched(
            "  %c0 = constant 0 : i32\n  %c1 = constant 1 : i32\n  %c4 = constant 4 : i32\n  \
             for %i = %c0 to %c4 step %c1 {\n    %x = tiled_load %v[%n, %i] : tile<16x16xf32>\n    yield\n  }\n  \
             for %j = %c0 to %c4 step %c1 {\n    %a = addi %j, %c4 : i32\n    \
             %y = tiled_load %v[%n, %a] : tile<16x16xf32>\n    %z = tiled_load %v[%n, %j] : tile<16x16xf32>\n    yield\n  }",
        );
        assert!(t[0].apart(&t[1], &f) && t[1].apart(&t[0], &f) && !t[0].apart(&t[2], &f));
    }

    #[test]
    fn iterations_are_apart_where_the_stride_covers_the_extent() {
        let (f, t) = touched(
            "  %c0 = constant 0 : i32\n  %c1 = constant 1 : i32\n  %c2 = constant 2 : i32\n  \
             for %i = %c0 to %n step %c1 {\n    %a = muli %i, %c2 : i32\n    %b = addi %i, %c1 : i32\n    \
             %x = tiled_load %v[%n, %i] : tile<16x16xf32>\n    %y = tiled_load %v[%n, %a] : tile<16x8xf32>\n    \
             %z = tiled_load %v[%n, %b] : tile<16x16xf32>\n    %w = tiled_load %v[%n, %n] : tile<16x16xf32>\n    yield\n  }",
        );
        let body = f.op_block(t[0].op).expect("in the loop");
        assert!(t[0].apart_over(&t[0], &f, body), "i and j");
        assert!(t[0].apart_over(&t[1], &f, body) && t[1].apart_over(&t[0], &f, body), "16 i against 8 · 2 j");
        // z of iteration i is x of iteration i + 1, but x of i is never z of a later one.
        assert!(!t[2].apart_over(&t[0], &f, body) && t[0].apart_over(&t[2], &f, body));
        assert!(!t[3].apart_over(&t[3], &f, body));
    }

    #[test]
    fn tiles_at_different_places_of_an_order_are_apart() {
        let (f, t) = touched(
            "  %c0 = constant 0 : i32\n  %c1 = constant 1 : i32\n  %two = constant 2 : i32\n  \
             for %i = %c0 to %n step %c1 {\n    %p = tile_order %i, %n, %two <{order = grouped(8)}>\n    \
             %q = divi %p, %two : i32\n    %r = remi %p, %two : i32\n    %m = addi %n, %i : i32\n    \
             %o = tile_order %i, %m, %two <{order = grouped(8)}>\n    %oq = divi %o, %two : i32\n    %or = remi %o, %two : i32\n    \
             %x0 = tiled_load %v[%q, %r] : tile<16x16xf32>\n    %x1 = tiled_load %v[%q, %q] : tile<16x16xf32>\n    \
             %x2 = tiled_load %v[%oq, %or] : tile<16x16xf32>\n    yield\n  }",
        );
        let body = f.op_block(t[0].op).expect("in the loop");
        let apart: Vec<bool> = t.iter().map(|x| x.apart_over(x, &f, body)).collect();
        // Both parts of the place; one of them; an order that differs from iteration to iteration.
        assert_eq!(apart, [true, false, false]);
    }

    #[test]
    fn iterations_are_apart_by_any_step_and_by_quotient_and_remainder() {
        let (f, t) = touched(
            "  %c0 = constant 0 : i32\n  %c1 = constant 1 : i32\n  %c4 = constant 4 : i32\n  %g = num_programs <{axis = 0}>\n  \
             for %i = %c0 to %n step %g {\n    %q = divi %i, %c4 : i32\n    %r = remi %i, %c4 : i32\n    \
             %o = remi %i, %n : i32\n    %w = muli %q, %c4 : i32\n    %p = remi %i, 4 : i32\n    %t = remi %i, 5 : i32\n    \
             %x0 = tiled_load %v[%n, %i] : tile<16x16xf32>\n    %x1 = tiled_load %v[%r, %q] : tile<16x16xf32>\n    \
             %x2 = tiled_load %v[%q, %q] : tile<16x16xf32>\n    %x3 = tiled_load %v[%o, %q] : tile<16x16xf32>\n    \
             %x6 = tiled_load %v[%p, %q] : tile<16x16xf32>\n    %x7 = tiled_load %v[%q, %t] : tile<16x16xf32>\n    \
             for %j = %c0 to %c4 step %c1 {\n      %s = addi %w, %j : i32\n      %u = addi %q, %j : i32\n      \
             %x4 = tiled_load %v[%r, %s] : tile<16x16xf32>\n      %x5 = tiled_load %v[%r, %u] : tile<16x16xf32>\n      yield\n    }\n    \
             yield\n  }",
        );
        let body = f.op_block(t[0].op).expect("in the loop");
        let apart: Vec<bool> = t.iter().map(|x| x.apart_over(x, &f, body)).collect();
        // i; (r, q); q alone; parts by different divisors; the same divisor, written twice; 4 and 5; four slices in each of q; slices of
        // q and q + 1 that overlap.
        assert_eq!(apart, [true, true, false, false, true, false, true, false]);
    }
}
