"""Number types, integer arithmetic, comparisons and elementary functions."""
from fractions import Fraction

import cuda.tile as ct
import numpy as np

from .common import arr, case, exact, f64, i32, i64, Launch, near, out, rounded

NAN = float("nan")


@ct.kernel
def i64_kernel(a, b, total, prod, quotient, rest, shift: ct.ScalarInt64, T: ct.Constant[int]):
    i = ct.bid(0)
    x, y = ct.load(a, i, (T,)), ct.load(b, i, (T,))
    ct.store(total, i, x + y - shift)
    ct.store(prod, i, x * (y & 0xFFFF))
    ct.store(quotient, i, x // y)
    ct.store(rest, i, x % y)


@case("numeric")
def i64_arithmetic(r):
    a = r.ints(-2 ** 45, 2 ** 45, 150)
    b = r.ints(1, 2 ** 33, 150) * np.where(r.ints(0, 2, 150) > 0, 1, -1)
    return Launch(i64_kernel, (3,),
                  [arr(a, "i64"), arr(b, "i64"), *[out(150, "i64") for _ in range(4)],
                   i64(2 ** 40 + 3), 64],
                  {"total": exact(a + b - (2 ** 40 + 3)), "prod": exact(a * (b & 0xFFFF)),
                   "quotient": exact(a // b), "rest": exact(a % b)})


# Version 1.7 writes an unsigned // as a floor division, which the format forbids;
# an exact quotient by cdiv says the same.

@ct.kernel
def division_kernel(a, b, floor_, mod, up, half, T: ct.Constant[int]):
    i = ct.bid(0)
    x, y = ct.load(a, i, (T,)), ct.load(b, i, (T,))
    ct.store(floor_, i, x // y)
    ct.store(mod, i, x % y)
    ct.store(up, i, ct.cdiv(x, y))
    u = x.astype(ct.uint32)
    ct.store(half, i, ct.cdiv(u - u % 3, 3).astype(ct.int32))


@case("numeric")
def i32_division(r):
    """Python's rules for negative operands."""
    a, b = r.ints(-1000, 1000, 128), r.ints(1, 50, 128) * np.where(r.ints(0, 2, 128) > 0, 1, -1)
    return Launch(division_kernel, (2,),
                  [arr(a, "i32"), arr(b, "i32"), *[out(128, "i32") for _ in range(4)], 64],
                  {"floor_": exact(a // b), "mod": exact(a % b), "up": exact(-(-a // b)),
                   "half": exact(a.astype(np.int32).view(np.uint32) // 3)})


@ct.kernel
def bits_kernel(a, b, y, z, u, T: ct.Constant[int]):
    i = ct.bid(0)
    x, s = ct.load(a, i, (T,)), ct.load(b, i, (T,))
    ct.store(y, i, (x & 0x0F0F0F0F) | (s << 4) ^ ~x)
    ct.store(z, i, x >> (s & 31))
    ct.store(u, i, x.astype(ct.uint32) >> (s & 31).astype(ct.uint32))


@case("numeric")
def bitwise(r):
    a, b = r.ints(-2 ** 31, 2 ** 31, 200).astype(np.int32), r.ints(0, 2 ** 27, 200).astype(np.int32)
    return Launch(bits_kernel, (4,), [arr(a, "i32"), arr(b, "i32"), out(200, "i32"),
                                      out(200, "i32"), out(200, "u32"), 64],
                  {"y": exact((a & 0x0F0F0F0F) | (b << 4) ^ ~a), "z": exact(a >> (b & 31)),
                   "u": exact(a.view(np.uint32) >> (b & 31).astype(np.uint32))})


@ct.kernel
def popcount_kernel(x, count, reversed_, T: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, i, (T,))
    c = v - ((v >> 1) & 0x55555555)
    c = (c & 0x33333333) + ((c >> 2) & 0x33333333)
    c = (c + (c >> 4)) & 0x0F0F0F0F
    ct.store(count, i, (c * 0x01010101) >> 24)
    v = ((v >> 1) & 0x55555555) | ((v & 0x55555555) << 1)
    v = ((v >> 2) & 0x33333333) | ((v & 0x33333333) << 2)
    v = ((v >> 4) & 0x0F0F0F0F) | ((v & 0x0F0F0F0F) << 4)
    v = ((v >> 8) & 0x00FF00FF) | ((v & 0x00FF00FF) << 8)
    ct.store(reversed_, i, (v >> 16) | (v << 16))


@case("numeric")
def popcount_reverse(r):
    x = r.ints(0, 2 ** 32, 200)
    count = [int(v).bit_count() for v in x]
    back = [int(f"{v:032b}"[::-1], 2) for v in x]
    return Launch(popcount_kernel, (4,), [arr(x, "u32"), out(200, "u32"), out(200, "u32"), 64],
                  {"count": exact(count), "reversed_": exact(back)})


@ct.kernel
def small_ints_kernel(a, b, s, u, m, T: ct.Constant[int]):
    """Wrapping i8, u8 and i16."""
    i = ct.bid(0)
    x, y = ct.load(a, i, (T,)), ct.load(b, i, (T,))
    ct.store(s, i, x + y)
    ct.store(u, i, x.astype(ct.uint8) * y.astype(ct.uint8))
    ct.store(m, i, ct.maximum(x.astype(ct.int16) * y.astype(ct.int16), -x.astype(ct.int16)))


@case("numeric")
def small_integers(r):
    a, b = r.ints(-128, 128, 160).astype(np.int8), r.ints(-128, 128, 160).astype(np.int8)
    wide = a.astype(np.int16) * b.astype(np.int16)
    with np.errstate(over="ignore"):
        total = a + b
        product = a.view(np.uint8) * b.view(np.uint8)
    return Launch(small_ints_kernel, (3,),
                  [arr(a, "i8"), arr(b, "i8"), out(160, "i8"), out(160, "u8"), out(160, "i16"), 64],
                  {"s": exact(total), "u": exact(product),
                   "m": exact(np.maximum(wide, -a.astype(np.int16)))})


@ct.kernel
def unsigned_kernel(a, b, less, top, div, wide, T: ct.Constant[int]):
    i = ct.bid(0)
    x, y = ct.load(a, i, (T,)), ct.load(b, i, (T,))
    ct.store(less, i, x < y)
    ct.store(top, i, ct.maximum(x, y) - ct.minimum(x, y))
    ct.store(div, i, ct.cdiv(x - x % y, y) + x % y)
    ct.store(wide, i, x.astype(ct.uint64) * y.astype(ct.uint64))


@case("numeric")
def unsigned(r):
    a, b = r.ints(0, 2 ** 32, 100).astype(np.uint32), r.ints(1, 2 ** 32, 100).astype(np.uint32)
    return Launch(unsigned_kernel, (2,), [arr(a, "u32"), arr(b, "u32"), out(100, "i1", fill=0),
                                          out(100, "u32"), out(100, "u32"), out(100, "u64"), 64],
                  {"less": exact(a < b), "top": exact(np.maximum(a, b) - np.minimum(a, b)),
                   "div": exact(a // b + a % b),
                   "wide": exact(a.astype(np.uint64) * b.astype(np.uint64))})


@ct.kernel
def compare_kernel(a, b, y, flags, T: ct.Constant[int]):
    """Comparisons with NaN and signed zero among the operands."""
    i = ct.bid(0)
    x, z = ct.load(a, i, (T,)), ct.load(b, i, (T,))
    bits = ct.where(x < z, 1, 0) + ct.where(x <= z, 2, 0) + ct.where(x == z, 4, 0)
    bits = bits + ct.where(x != z, 8, 0) + ct.where(x > z, 16, 0) + ct.where(x >= z, 32, 0)
    bits = bits + ct.where(ct.isnan(x), 64, 0)
    ct.store(y, i, bits)
    ct.store(flags, i, (x < z) & (x > -1.0) | (z == 0.0))


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40])


@case("numeric")
def compare_where(r):
    a, b = arr(np.repeat(SPECIAL, 8)), arr(np.tile(SPECIAL, 8))
    x, z = a.val, b.val
    y = (x < z) * 1 + (x <= z) * 2 + (x == z) * 4 + (x != z) * 8 + (x > z) * 16 + (x >= z) * 32
    return Launch(compare_kernel, (1,), [a, b, out(64, "i32"), out(64, "i1", fill=0), 64],
                  {"y": exact(y + np.isnan(x) * 64),
                   "flags": exact((x < z) & (x > -1) | (z == 0))})


@ct.kernel
def min_max_kernel(a, b, top, low, ntop, nlow, flushed, T: ct.Constant[int]):
    x, y = ct.load(a, 0, (T,)), ct.load(b, 0, (T,))
    ct.store(top, 0, ct.maximum(x, y))
    ct.store(low, 0, ct.minimum(x, y))
    ct.store(ntop, 0, ct.maximum(x, y, propagate_nan=True))
    ct.store(nlow, 0, ct.minimum(x, y, propagate_nan=True))
    ct.store(flushed, 0, ct.add(x, y, flush_to_zero=True))


@case("numeric")
def min_max_nan(r):
    a, b = arr(np.repeat(SPECIAL, 8)), arr(np.tile(SPECIAL, 8))
    x, y = a.val, b.val
    with np.errstate(invalid="ignore"):
        flushed = np.where(np.abs(x) < 1e-38, 0, x) + np.where(np.abs(y) < 1e-38, 0, y)
    return Launch(min_max_kernel, (1,), [a, b, *[out(64) for _ in range(5)], 64],
                  {"top": exact(np.fmax(x, y)), "low": exact(np.fmin(x, y)),
                   "ntop": exact(np.maximum(x, y)), "nlow": exact(np.minimum(x, y)),
                   "flushed": exact(flushed)})


@ct.kernel
def functions_kernel(x, y, T: ct.Constant[int]):
    """Row k holds function k."""
    i = ct.bid(0)
    v = ct.load(x, i, (T,))
    a = ct.abs(v) + 0.1
    rows = (ct.sin(v), ct.cos(v), ct.tan(v * 0.4), ct.sinh(v), ct.cosh(v), ct.tanh(v),
            ct.exp(v), ct.exp2(v), ct.log(a), ct.log2(a), ct.sqrt(a), ct.rsqrt(a),
            ct.floor(v), ct.ceil(v), ct.pow(a, v), ct.atan2(v, a), v ** 3, v / a,
            ct.mod(v, 0.75), -v)
    for k in ct.static_iter(range(20)):
        ct.store(y, (k, i), rows[k].reshape((1, T)))


def functions(r, dtype, rtol, atol):
    x = arr(r.normal(150), dtype)
    v = x.f64
    tenth, two_fifths = (np.float64(np.float32(c).astype(x.val.dtype)) for c in (0.1, 0.4))
    a = np.abs(v) + tenth
    rows = [np.sin(v), np.cos(v), np.tan(v * two_fifths), np.sinh(v), np.cosh(v),
            np.tanh(v), np.exp(v), np.exp2(v), np.log(a), np.log2(a), np.sqrt(a), 1 / np.sqrt(a),
            np.floor(v), np.ceil(v), a ** v, np.arctan2(v, a), v ** 3, v / a, v % .75, -v]
    return Launch(functions_kernel, (3,), [x, out((20, 150), dtype), 64],
                  {"y": near(np.stack(rows), rtol, atol)})


@case("numeric")
def functions_f32(r):
    return functions(r, "f32", 1e-5, 1e-5)


@case("numeric")
def functions_f64(r):
    return functions(r, "f64", 1e-12, 1e-12)


@case("numeric")
def functions_f16(r):
    return functions(r, "f16", 8e-3, 8e-3)


@ct.kernel
def rounding_kernel(a, b, y, T: ct.Constant[int]):
    """Row k holds rounding mode k of add, multiply and divide."""
    x, z = ct.load(a, 0, (T,)), ct.load(b, 0, (T,))
    modes = ct.static_eval((ct.RoundingMode.RN, ct.RoundingMode.RZ, ct.RoundingMode.RM,
                            ct.RoundingMode.RP))
    for k in ct.static_iter(range(4)):
        s = ct.add(x, z, rounding_mode=modes[k])
        p = ct.mul(x, z, rounding_mode=modes[k])
        q = ct.truediv(x, z, rounding_mode=modes[k])
        ct.store(y, (k, 0), s.reshape((1, T)))
        ct.store(y, (k + 4, 0), p.reshape((1, T)))
        ct.store(y, (k + 8, 0), q.reshape((1, T)))


def round_f32(exact_value, mode):
    """Round a fraction to f32 in the given direction."""
    near_value = np.float32(float(exact_value))
    error = Fraction(float(near_value)) - exact_value
    if mode == 0 or error == 0:
        return near_value
    up, down = np.float32(np.inf), np.float32(-np.inf)
    if mode == 1:
        mode = 2 if exact_value > 0 else 3
    if mode == 2:
        return np.nextafter(near_value, down) if error > 0 else near_value
    return np.nextafter(near_value, up) if error < 0 else near_value


@case("numeric")
def rounding_modes(r):
    a, b = arr(r.normal(64) * 3), arr(r.normal(64) + 5)
    want = np.zeros((12, 64), np.float32)
    for i, (x, z) in enumerate(zip(a.val, b.val)):
        x, z = Fraction(float(x)), Fraction(float(z))
        for k in range(4):
            want[k, i], want[k + 4, i] = round_f32(x + z, k), round_f32(x * z, k)
            want[k + 8, i] = round_f32(x / z, k)
    return Launch(rounding_kernel, (1,), [a, b, out((12, 64)), 64], {"y": exact(want)})


@ct.kernel
def f64_kernel(x, y, scale, T: ct.Constant[int]):
    """Polynomial and fused multiply-add in f64; the constants are rounded to f32."""
    i = ct.bid(0)
    v = ct.load(x, i, (T,))
    p = ct.full((T,), 1.0 / 720, ct.float64)
    for c in ct.static_iter((120.0, 24.0, 6.0, 2.0, 1.0, 1.0)):
        p = p * v + 1.0 / c
    ct.store(y, i, p * scale)


@case("numeric")
def f64_polynomial(r):
    x = arr(r.normal(100), "f64")
    p = np.full(100, np.float32(1 / 720), np.float64)
    for c in (120, 24, 6, 2, 1, 1):
        p = p * x.f64 + np.float64(np.float32(1 / c))
    return Launch(f64_kernel, (2,), [x, out(100, "f64"), f64(1.25), 64],
                  {"y": near(p * 1.25, 1e-13, 1e-13)})


@ct.kernel
def mixed_kernel(h, b, i, y, T: ct.Constant[int]):
    """Type promotion between f16, bf16, i32 and constants."""
    at = ct.bid(0)
    x = ct.load(h, at, (T,)).astype(ct.float32) * ct.load(b, at, (T,)).astype(ct.float32)
    ct.store(y, at, x + ct.load(i, at, (T,)).astype(ct.float32) * 0.5)


@case("numeric")
def mixed_types(r):
    h, b, i = arr(r.normal(200), "f16"), arr(r.normal(200), "bf16"), arr(r.ints(-9, 9, 200), "i32")
    return Launch(mixed_kernel, (2,), [h, b, i, out(200), 128],
                  {"y": near(h.f64 * b.f64 + i.f64 * .5)})


@ct.kernel
def half_arithmetic_kernel(a, b, y, T: ct.Constant[int]):
    """Arithmetic that stays in f16."""
    i = ct.bid(0)
    x, z = ct.load(a, i, (T,)), ct.load(b, i, (T,))
    ct.store(y, i, (x + z) * x - z)


@case("numeric")
def f16_arithmetic(r):
    a, b = arr(r.normal(128), "f16"), arr(r.normal(128), "f16")
    return Launch(half_arithmetic_kernel, (2,), [a, b, out(128, "f16"), 64],
                  {"y": rounded((a.f64 + b.f64) * a.f64 - b.f64, "f16", 4e-3)})


@case("numeric")
def bf16_arithmetic(r):
    a, b = arr(r.normal(128), "bf16"), arr(r.normal(128), "bf16")
    return Launch(half_arithmetic_kernel, (2,), [a, b, out(128, "bf16"), 64],
                  {"y": rounded((a.f64 + b.f64) * a.f64 - b.f64, "bf16", 4e-2)})


@ct.kernel
def index64_kernel(x: ct.IndexedWithInt64, y: ct.IndexedWithInt64, rows, T: ct.Constant[int]):
    """Shapes and strides as 64-bit parameters, far-apart rows."""
    row = ct.bid(0)
    at = ct.arange(T, dtype=ct.int64)
    v = ct.gather(x, (row, at))
    ct.store(y, (rows - 1 - row, 0), v.reshape((1, T)))


@case("numeric")
def index_64_bit(r):
    x = arr(r.normal(3, 60), strides=(5000, 1), index64=True)
    return Launch(index64_kernel, (3,), [x, out((3, 60), index64=True), i32(3), 64],
                  {"y": exact(x.val[::-1])})


@ct.kernel
def truth_kernel(x, y, of_x, of_y, ways, T: ct.Constant[int]):
    i = ct.bid(0)
    a = ct.load(x, i, (T,))
    ct.store(of_x, i, a.astype(ct.bool_).astype(ct.int32))
    ct.store(of_y, i, ct.load(y, i, (T,)).astype(ct.bool_).astype(ct.int32))
    n = 0
    if ct.load(x, i * T, ()):
        n = 1
    if not ct.load(y, i * T, ()):
        n += 10
    ct.store(ways, i, n)


@case("numeric")
def float_truth(r):
    """A number is true unless it is zero, however small, and NaN is."""
    few = np.array([0.0, 0.25, -0.0, 2.5, np.nan, -4.0, np.inf, 1e-3])
    x, y = few[r.ints(0, 8, 128)], few[r.ints(0, 8, 128)]
    ways = np.where(x[::64] != 0, 1, 0) + np.where(y[::64] != 0, 0, 10)
    return Launch(truth_kernel, (2,),
                  [arr(x, "f32"), arr(y, "f16"), out(128, "i32"), out(128, "i32"), out(2, "i32"), 64],
                  {"of_x": exact(x != 0), "of_y": exact(y != 0), "ways": exact(ways)})
