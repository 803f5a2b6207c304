//! Packed 16-bit and packed f32 arithmetic: `f16x2`, `bf16x2`, `f32x2`.
//!
//! In: registers with two values. Out: the register of results, each half by itself as in
//! [`super::arith`].
//! Source: PTX ISA, "Half Precision Floating-Point Instructions", "Mixed Precision".

use super::arith::{self, MinMax, Mode};
use super::convert::encode;
use super::format::{BF16, F16, F32, Format, Num};

/// Applies a binary operation to both halves of 32-bit registers.
pub fn map2(format: &Format, a: u32, b: u32, op: impl Fn(&Format, u64, u64) -> u64) -> u32 {
    let lo = op(format, u64::from(a & 0xFFFF), u64::from(b & 0xFFFF)) as u32;
    let hi = op(format, u64::from(a >> 16), u64::from(b >> 16)) as u32;
    hi << 16 | lo
}

/// `add.{f16x2,bf16x2}`.
pub fn add2(format: &Format, a: u32, b: u32, how: Mode) -> u32 {
    map2(format, a, b, |f, x, y| arith::add(f, x, y, how))
}

/// `sub.{f16x2,bf16x2}`.
pub fn sub2(format: &Format, a: u32, b: u32, how: Mode) -> u32 {
    map2(format, a, b, |f, x, y| arith::sub(f, x, y, how))
}

/// `mul.{f16x2,bf16x2}`.
pub fn mul2(format: &Format, a: u32, b: u32, how: Mode) -> u32 {
    map2(format, a, b, |f, x, y| arith::mul(f, x, y, how))
}

/// `fma.rn.{f16x2,bf16x2}`, with `.relu` and `.sat` in `how`.
pub fn fma2(format: &Format, a: u32, b: u32, c: u32, how: Mode) -> u32 {
    let half = |s: u32| {
        let part = |x: u32| u64::from(x >> s & 0xFFFF);
        (arith::fma(format, part(a), part(b), part(c), how) as u32) << s
    };
    half(16) | half(0)
}

/// `min`/`max.{f16x2,bf16x2}`.
pub fn min_max2(format: &Format, a: u32, b: u32, how: MinMax) -> u32 {
    map2(format, a, b, |f, x, y| arith::min_max(f, x, y, how))
}

/// `neg`: flips both signs (a NaN too; PTX leaves its pattern open).
pub const fn neg2(a: u32) -> u32 {
    a ^ 0x8000_8000
}

/// `abs`.
pub const fn abs2(a: u32) -> u32 {
    a & 0x7FFF_7FFF
}

/// Applies an f32 operation to both halves of 64-bit registers (`fma.rn.f32x2` and its like).
pub fn map_f32x2(a: u64, b: u64, c: u64, op: impl Fn(u64, u64, u64) -> u64) -> u64 {
    let lo = |x: u64| x & 0xFFFF_FFFF;
    op(a >> 32, b >> 32, c >> 32) << 32 | lo(op(lo(a), lo(b), lo(c)))
}

/// `fma.f32x2`.
pub fn fma_f32x2(a: u64, b: u64, c: u64, how: Mode) -> u64 {
    map_f32x2(a, b, c, |x, y, z| arith::fma(&F32, x, y, z, how))
}

/// `add.f32x2`.
pub fn add_f32x2(a: u64, b: u64, how: Mode) -> u64 {
    map_f32x2(a, b, 0, |x, y, _| arith::add(&F32, x, y, how))
}

/// `mul.f32x2`.
pub fn mul_f32x2(a: u64, b: u64, how: Mode) -> u64 {
    map_f32x2(a, b, 0, |x, y, _| arith::mul(&F32, x, y, how))
}

/// Value of a 16-bit pattern rounded to another 16-bit format; both halves.
pub fn swap_format2(src: &Format, a: u32, dst: &Format, how: Mode) -> u32 {
    let half = |s: u32| (encode(src.decode(u64::from(a >> s & 0xFFFF)), dst, how) as u32) << s;
    half(16) | half(0)
}

/// True when either half is NaN (`testp`-like checks and detectors).
pub fn any_nan2(format: &Format, a: u32) -> bool {
    [a & 0xFFFF, a >> 16].iter().any(|&x| format.decode(u64::from(x)) == Num::Nan)
}

/// The format named by a packed type suffix: `f16x2`, `bf16x2`.
pub fn packed_format(name: &str) -> Option<&'static Format> {
    match name {
        "f16x2" => Some(&F16),
        "bf16x2" => Some(&BF16),
        _ => None,
    }
}
