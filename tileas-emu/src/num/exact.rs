//! Exact dyadic numbers with a sticky bit, and the five roundings.
//!
//! In: finite values as sign, integer significand and power of two. Out: sums, products, quotients
//! and square roots that are exact, or cut after more bits than any format keeps with the sticky
//! bit telling that something was cut. Rounding to a format is in [`super::format`].
//!
//! Guarantee: rounding the result of one operation once gives the correctly rounded result of that
//! operation for operands of at most 53 bits.

/// Direction in which an inexact result is rounded.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum Rounding {
    /// `.rn`: to nearest, ties to even.
    Rn,
    /// `.rna`: to nearest, ties away from zero.
    Rna,
    /// `.rz`: toward zero.
    Rz,
    /// `.rm`: toward negative infinity.
    Rm,
    /// `.rp`: toward positive infinity.
    Rp,
}

/// A finite number: magnitude `mant * 2^exp`, plus something in `(0, 2^exp)` when `sticky`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Exact {
    /// Negative; zeros carry a sign too.
    pub neg: bool,
    /// Integer significand.
    pub mant: u128,
    /// Power of two of the significand's lowest bit.
    pub exp: i32,
    /// The magnitude is a little larger than written. Then `mant` has at least 58 bits.
    pub sticky: bool,
}

/// Significands are cut to this many bits before an addition that cannot be exact.
const WORK_BITS: i32 = 124;

impl Exact {
    /// Zero with a sign.
    pub const fn zero(neg: bool) -> Self {
        Self { neg, mant: 0, exp: 0, sticky: false }
    }

    /// An integer times a power of two.
    pub const fn new(neg: bool, mant: u128, exp: i32) -> Self {
        Self { neg, mant, exp, sticky: false }
    }

    /// An integer.
    pub const fn from_int(x: i128) -> Self {
        Self::new(x < 0, x.unsigned_abs(), 0)
    }

    /// True for both zeros.
    pub const fn is_zero(&self) -> bool {
        self.mant == 0 && !self.sticky
    }

    /// Exponent `e` of a non-zero number: its magnitude is in `[2^e, 2^(e+1))`.
    pub const fn top(&self) -> i32 {
        self.exp + 127 - self.mant.leading_zeros() as i32
    }

    /// The number with the other sign.
    pub const fn negate(self) -> Self {
        Self { neg: !self.neg, ..self }
    }

    /// Exact product; the significands must have at most 128 bits together.
    pub fn times(self, other: Self) -> Self {
        debug_assert!(!self.sticky && !other.sticky);
        Self::new(self.neg != other.neg, self.mant * other.mant, self.exp + other.exp)
    }

    /// Sum. An exact zero gets the sign that IEEE 754 gives it under `rounding`.
    pub fn add(self, other: Self, rounding: Rounding) -> Self {
        if other.is_zero() || self.is_zero() {
            if other.is_zero() && self.is_zero() {
                let neg = if self.neg == other.neg { self.neg } else { rounding == Rounding::Rm };
                return Self::zero(neg);
            }
            return if other.is_zero() { self } else { other };
        }
        // `a` is the operand with the higher top bit; it can be moved up to `WORK_BITS`.
        let (mut a, mut b) = if self.top() >= other.top() { (self, other) } else { (other, self) };
        let up = WORK_BITS - (128 - a.mant.leading_zeros() as i32);
        if up > 0 && !a.sticky {
            a.mant <<= up;
            a.exp -= up;
        }
        if b.exp >= a.exp {
            // The top of `b` is not above the top of `a`, so this cannot overflow.
            b.mant <<= b.exp - a.exp;
        } else {
            let down = (a.exp - b.exp) as u32;
            b.sticky |= if down >= 128 { b.mant != 0 } else { b.mant & ((1u128 << down) - 1) != 0 };
            b.mant = if down >= 128 { 0 } else { b.mant >> down };
        }
        if a.neg == b.neg {
            return Self { neg: a.neg, mant: a.mant + b.mant, exp: a.exp, sticky: a.sticky | b.sticky };
        }
        // With a sticky bit on `b` alone the difference lies just below `a - b`.
        if b.sticky {
            return Self { neg: a.neg, mant: a.mant - b.mant - 1, exp: a.exp, sticky: true };
        }
        if a.mant == b.mant && !a.sticky {
            return Self::zero(rounding == Rounding::Rm);
        }
        let (neg, mant) = if a.mant >= b.mant { (a.neg, a.mant - b.mant) } else { (b.neg, b.mant - a.mant) };
        Self { neg, mant, exp: a.exp, sticky: a.sticky }
    }

    /// Quotient with at least 64 significant bits; `other` is not zero and has at most 64 bits.
    pub fn over(self, other: Self) -> Self {
        let neg = self.neg != other.neg;
        if self.mant == 0 {
            return Self::zero(neg);
        }
        let up = self.mant.leading_zeros();
        let n = self.mant << up;
        let (q, r) = (n / other.mant, n % other.mant);
        Self { neg, mant: q, exp: self.exp - up as i32 - other.exp, sticky: r != 0 }
    }

    /// Square root with 63 significant bits of a number that is not negative.
    pub fn sqrt(self) -> Self {
        if self.mant == 0 {
            return self;
        }
        let mut up = self.mant.leading_zeros() as i32;
        if (self.exp - up) & 1 != 0 {
            up -= 1;
        }
        let n = if up >= 0 { self.mant << up } else { self.mant };
        let exp = self.exp - up.max(0);
        if exp & 1 != 0 {
            // Only a 128-bit odd-exponent significand gets here; no format has one.
            return Self { neg: false, mant: (n >> 1).isqrt(), exp: (exp + 1) / 2, sticky: true };
        }
        let root = n.isqrt();
        Self { neg: false, mant: root, exp: exp / 2, sticky: root * root != n }
    }
}
