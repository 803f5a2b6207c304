//! Element types of views, scalars and tensor maps.

use half::{bf16, f16};

macro_rules! elems {
    ($($variant:ident $name:literal $bits:literal $map:expr, $doc:literal;)*) => {
        /// The type of a scalar, or of the elements of a view.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Elem {
            $(#[doc = $doc] $variant,)*
        }

        impl Elem {
            /// All types.
            pub const ALL: &'static [Elem] = &[$(Elem::$variant,)*];

            /// Name as in kernels and metadata.
            pub fn name(self) -> &'static str {
                match self { $(Elem::$variant => $name,)* }
            }

            /// Bits of an element.
            pub fn bits(self) -> u32 {
                match self { $(Elem::$variant => $bits,)* }
            }

            /// The `CUtensorMapDataType` of a tensor map that loads them; `None`: there is none.
            /// Source: CUDA driver API, tensor map object management.
            pub fn map_type(self) -> Option<u32> {
                match self { $(Elem::$variant => $map,)* }
            }
        }
    };
}

elems! {
    I1 "i1" 8 Some(0), "A flag, in a byte.";
    U8 "u8" 8 Some(0), "8 bits, unsigned.";
    I8 "i8" 8 Some(0), "8 bits.";
    U16 "u16" 16 Some(1), "16 bits, unsigned.";
    I16 "i16" 16 Some(1), "16 bits.";
    U32 "u32" 32 Some(2), "32 bits, unsigned.";
    I32 "i32" 32 Some(3), "32 bits.";
    U64 "u64" 64 Some(4), "64 bits, unsigned.";
    I64 "i64" 64 Some(5), "64 bits.";
    Index "index" 64 Some(5), "64 bits.";
    F16 "f16" 16 Some(6), "IEEE binary16.";
    F32 "f32" 32 Some(7), "IEEE binary32.";
    F64 "f64" 64 Some(8), "IEEE binary64.";
    Bf16 "bf16" 16 Some(9), "Brain float: the upper half of a binary32.";
    Tf32 "tf32" 32 Some(11), "A binary32 of which 10 bits of the fraction count.";
    E4m3 "e4m3" 8 Some(0), "8 bits, 4 of them exponent.";
    E5m2 "e5m2" 8 Some(0), "8 bits, 5 of them exponent.";
    Ue8m0 "ue8m0" 8 Some(0), "A power of two.";
    E2m1 "e2m1" 4 None, "4 bits, 2 of them exponent.";
}

impl Elem {
    /// The type of that name; `s8` … `s64` are `i8` … `i64`.
    pub fn by_name(name: &str) -> Option<Elem> {
        let signed = |n: &str| ["i8", "i16", "i32", "i64"].into_iter().find(|i| i[1..] == *n);
        let name = name.strip_prefix('s').and_then(signed).unwrap_or(name);
        Elem::ALL.iter().copied().find(|e| e.name() == name)
    }

    /// Whole bytes of an element.
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Whether it is a number with a fraction.
    pub fn is_float(self) -> bool {
        use Elem::{Bf16, E2m1, E4m3, E5m2, F16, F32, F64, Tf32, Ue8m0};
        matches!(self, F16 | F32 | F64 | Bf16 | Tf32 | E4m3 | E5m2 | Ue8m0 | E2m1)
    }

    /// Whether memory of elements of `given` may be read as such: the same type, or unsigned integers of as many bits that stand for
    /// the bytes of any.
    pub fn takes(self, given: Elem) -> bool {
        let raw = matches!(given, Elem::U8 | Elem::U16 | Elem::U32 | Elem::U64);
        let one = |e: Elem| if e == Elem::Index { Elem::I64 } else { e };
        one(self) == one(given)
            || self.bits() == given.bits() && (raw || self == Elem::Tf32 && given == Elem::F32)
    }

    /// Bits of a number with a fraction, rounded to nearest even; `None` for types that have no such scalars. What is too large for a
    /// float of 8 bits is the largest there is; of scales, which are powers of two, the one below.
    pub fn encode(self, x: f64) -> Option<u64> {
        Some(match self {
            Elem::F16 => f16::from_f64(x).to_bits().into(),
            Elem::Bf16 => bf16::from_f64(x).to_bits().into(),
            Elem::F32 | Elem::Tf32 => (x as f32).to_bits().into(),
            Elem::F64 => x.to_bits(),
            Elem::E4m3 => small(x, 3, 7, 448.0),
            Elem::E5m2 => small(x, 2, 15, 57344.0),
            Elem::Ue8m0 if x.is_nan() => 0xff,
            Elem::Ue8m0 => (exponent(x) + 127).clamp(0, 254) as u64,
            _ => return None,
        })
    }
}

/// Exponent of a number that is normal in f64.
fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// A float of 8 bits, so many of them behind the point.
fn small(x: f64, fraction: i32, bias: i32, most: f64) -> u64 {
    let sign = u64::from(x.is_sign_negative()) << 7;
    if x.is_nan() {
        return sign | 0x7f;
    }
    let a = x.abs().min(most);
    let e = exponent(a).max(1 - bias);
    // What rounds up to the next power of two carries into the exponent.
    let unit = f64::from_bits(((1023 + e - fraction) as u64) << 52);
    let units = (a / unit).round_ties_even() as u64;
    sign | (units + (((e + bias - 1) as u64) << fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_of_8_bits() {
        let bits = |e: Elem, x: f64| e.encode(x).expect("a float");
        for (x, e4m3, e5m2) in [
            (1.0, 0x38, 0x3c),
            (-1.75, 0xbe, 0xbf),
            (448.0, 0x7e, 0x5f),
            (1e9, 0x7e, 0x7b),
            (f64::INFINITY, 0x7e, 0x7b),
            (0.0, 0, 0),
            (-0.0, 0x80, 0x80),
            (2_f64.powi(-9), 1, 0x18),
            (1.5 * 2_f64.powi(-9), 2, 0x1a),
            (2_f64.powi(-10), 0, 0x14),
            (1.9375, 0x40, 0x40),
            (2_f64.powi(-16), 0, 1),
        ] {
            assert_eq!((bits(Elem::E4m3, x), bits(Elem::E5m2, x)), (e4m3, e5m2), "{x}");
        }
        assert!(bits(Elem::E4m3, f64::NAN) & 0x7f == 0x7f && bits(Elem::E5m2, f64::NAN) & 0x7f == 0x7f);
        assert_eq!([1.0, 4.0, 5.0, 0.5, 0.0].map(|x| bits(Elem::Ue8m0, x)), [127, 129, 129, 126, 0]);
    }
}
