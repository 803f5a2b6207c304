//! Bytes of constants, and bit patterns, as numbers.

use crate::attr::Attr;
use crate::entities::{Constant, Type};
use crate::module::Module;
use crate::types::{Elem, Num, TypeData};

/// A bit pattern with its type.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Number {
    /// What it is the pattern of.
    pub num: Num,
    /// The pattern, in the low bits.
    pub bits: u64,
}

impl Number {
    /// The value of an integer, with sign; `i1` is 0 or 1.
    pub fn signed(self) -> i64 {
        let spare = if self.num == Num::I1 { 0 } else { 64 - self.num.bits() };
        (self.bits << spare) as i64 >> spare
    }

    /// The value of a float, exactly; of an integer, the nearest.
    pub fn float(self) -> f64 {
        // Bits of exponent and significand, and whether there is a sign, and infinities.
        let (e, m, sign, inf) = match self.num {
            Num::F64 => return f64::from_bits(self.bits),
            Num::F32 => (8, 23, true, true),
            Num::Tf32 => (8, 10, true, true),
            Num::Bf16 => (8, 7, true, true),
            Num::F16 => (5, 10, true, true),
            Num::F8E5M2 => (5, 2, true, true),
            Num::F8E4M3FN => (4, 3, true, false),
            Num::F4E2M1FN => (2, 1, true, false),
            Num::F8E5M3FNU => (5, 3, false, false),
            Num::F8E8M0FNU => {
                let e = self.bits as u8;
                return if e == 0xff { f64::NAN } else { 2f64.powi(i32::from(e) - 127) };
            }
            _ => return self.signed() as f64,
        };
        let negative = sign && self.bits >> (e + m) & 1 != 0;
        let exponent = (self.bits >> m & ((1 << e) - 1)) as i32;
        let significand = self.bits & ((1 << m) - 1);
        let last = (1 << e) - 1;
        let (bias, full) = ((1 << (e - 1)) - 1, (1 << m) - 1);
        let magnitude = if exponent == last && inf {
            if significand == 0 { f64::INFINITY } else { f64::NAN }
        } else if exponent == last && significand == full && self.num != Num::F4E2M1FN {
            f64::NAN
        } else if exponent == 0 {
            significand as f64 * 2f64.powi(1 - bias - m)
        } else {
            (significand | 1 << m) as f64 * 2f64.powi(exponent - bias - m)
        };
        if negative { -magnitude } else { magnitude }
    }
}

/// The elements of a constant.
#[derive(Copy, Clone, Debug)]
pub struct Elements<'a> {
    num: Num,
    bytes: &'a [u8],
    len: usize,
    splat: bool,
}

impl<'a> Elements<'a> {
    /// Reads `bytes` as `len` elements; `None` if they are neither one nor all.
    pub fn new(num: Num, len: usize, bytes: &'a [u8]) -> Option<Elements<'a>> {
        let size = num.constant_bytes();
        let one = bytes.len() == size && (num != Num::I1 || matches!(bytes, [0] | [0xff]));
        let packed = num == Num::I1 && len > 1 && bytes.len() == len.div_ceil(8);
        let all = num != Num::I1 && Some(bytes.len()) == size.checked_mul(len);
        (one || packed || all).then_some(Elements { num, bytes, len, splat: one })
    }

    /// Type of the elements.
    pub fn num(&self) -> Num {
        self.num
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none; no tile is so.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element that all are equal to, if the bytes hold but one.
    pub fn splat(&self) -> Option<Number> {
        if self.splat { self.get(0) } else { None }
    }

    /// An element, counted with the last dimension fastest.
    pub fn get(&self, i: usize) -> Option<Number> {
        if i >= self.len {
            return None;
        }
        let i = if self.splat { 0 } else { i };
        let bits = if self.num == Num::I1 {
            u64::from(self.bytes.get(i / 8)? >> (i % 8) & 1)
        } else {
            let size = self.num.constant_bytes();
            let bytes = self.bytes.get(i * size..)?.get(..size)?;
            bytes.iter().rev().fold(0, |bits, &b| bits << 8 | u64::from(b))
                & (u64::MAX >> (64 - self.num.bits()))
        };
        Some(Number { num: self.num, bits })
    }

    /// All elements.
    pub fn iter(&self) -> impl Iterator<Item = Number> + '_ {
        (0..self.len).filter_map(|i| self.get(i))
    }
}

impl Module {
    /// The number that an attribute is: an identity of a reduction, the value of a hint.
    pub fn number(&self, attr: &Attr) -> Option<Number> {
        let (Attr::Int { ty, bits } | Attr::Float { ty, bits }) = *attr else { return None };
        match self.types.get(ty) {
            TypeData::Elem(Elem::Num(num)) => Some(Number { num: *num, bits }),
            _ => None,
        }
    }

    /// A constant as elements of a tile; `None` if the type is no tile of numbers or the bytes do not fill it.
    pub fn elements(&self, ty: Type, constant: Constant) -> Option<Elements<'_>> {
        let (elem, shape) = self.types.get(ty).tile()?;
        let len = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?))?;
        Elements::new(elem.num()?, len, self.constants.get(constant))
    }
}
