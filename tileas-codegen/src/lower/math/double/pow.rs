//! Powers: `pow`, `powi`.
//!
//! x^y = 2^(y·log2 x). The exponent is up to 1100 and an error in it is one of the result's relative to it, so the logarithm is the sum of
//! two f64, and so is its product with y.

use super::super::{Exponent, SIGN};
use super::exp::exp2_sum;
use super::log::log2_sum;
use super::{Doubles, at_least, at_most, flip, product, upper};

/// No result is finite, or above zero, from this exponent on.
const FAR: f64 = 1150.0;

/// |x|^y.
fn magnitude<M: Doubles>(m: &mut M, size: M::D, y: &Exponent<M::D>) -> M::D {
    let (log, log_rest) = log2_sum(m, size);
    let (high, rest) = product(m, y.rounded, log);
    let mut rest = m.dfma(y.rounded, log_rest, rest);
    if let Some(y_rest) = y.rest {
        rest = m.dfma(y_rest, log, rest);
    }
    let (far, nothing, size) = (m.dfloat(FAR), m.dfloat(0.0), m.dabs(high));
    let away = m.dlt(far, size);
    let rest = m.dselect(away, nothing, rest);
    exp2_sum(m, high, rest)
}

/// x^y as C's `pow`, 2 ulp.
pub(in super::super::super) fn pow<M: Doubles>(m: &mut M, x: M::D, y: M::D) -> M::D {
    let size = m.dabs(x);
    let (nothing, one, infinite, nan) =
        (m.dfloat(0.0), m.dfloat(1.0), m.dfloat(f64::INFINITY), m.dfloat(f64::NAN));
    // An infinite exponent acts as the largest one does, but that 1^y is 1.
    let bounded = at_most(m, y, f64::MAX);
    let bounded = at_least(m, bounded, f64::MIN);
    let value = magnitude(m, size, &Exponent { rounded: bounded, rest: None });
    // Is the exponent an integer, an odd one?
    let below = m.dfloor(bounded);
    let fraction = m.dne(below, bounded);
    let half = m.dfloat(0.5);
    let halved = m.dmul(bounded, half);
    let even = m.dfloor(halved);
    let odd = m.dne(even, halved);
    let (bits, mask, none) = (upper(m, x), m.int(SIGN), m.int(0));
    let sign = m.and_int(bits, mask);
    let sign = m.select_int(odd, sign, none);
    // A fraction's half is no integer either.
    let sign = m.select_int(fraction, none, sign);
    let value = flip(m, value, sign);
    let (negative, finite) = (m.dlt(x, nothing), m.dne(size, infinite));
    let wrong = m.both(negative, finite);
    let wrong = m.both(wrong, fraction);
    let value = m.dselect(wrong, nan, value);
    let (empty, unit) = (m.deq(y, nothing), m.deq(x, one));
    let unit = m.either(empty, unit);
    m.dselect(unit, one, value)
}

/// x^y for an integer y, 2 ulp; `low`: its low 32 bits.
pub(in super::super::super) fn powi<M: Doubles>(m: &mut M, x: M::D, y: &Exponent<M::D>, low: M::I) -> M::D {
    let size = m.dabs(x);
    let value = magnitude(m, size, y);
    let (bits, last) = (upper(m, x), m.shl(low, 31));
    let sign = m.and_int(bits, last);
    let value = flip(m, value, sign);
    let (nothing, one) = (m.dfloat(0.0), m.dfloat(1.0));
    let empty = m.deq(y.rounded, nothing);
    m.dselect(empty, one, value)
}
