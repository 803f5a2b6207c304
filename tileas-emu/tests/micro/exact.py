"""Exact arithmetic on PTX floating-point patterns with rationals.

A value is `("nan", 0, 0)`, `("inf", sign, 0)` or `("num", sign, magnitude)` with a Fraction.
Source: PTX ISA `cvt`, `add`, `fma`, ...; IEEE 754 for the sign of zero.
"""
from fractions import Fraction as Q

# name -> (bits, exponent bits, fraction bits, unused low bits, specials, NaN pattern)
FORMATS = {
    "f16": (16, 5, 10, 0, "ieee", 0x7FFF), "bf16": (16, 8, 7, 0, "ieee", 0x7FFF), "f32": (32, 8, 23, 0, "ieee", 0x7FFFFFFF),
    "tf32": (32, 8, 10, 13, "ieee", 0x7FFFE000), "e5m2": (8, 5, 2, 0, "ieee", 0x7F), "e4m3": (8, 4, 3, 0, "one", 0x7F),
    "e2m1": (4, 2, 1, 0, "none", 7), "e2m3": (6, 2, 3, 0, "none", 0x1F), "e3m2": (6, 3, 2, 0, "none", 0x1F),
}
NAN = ("nan", 0, Q(0))


def decode(name, bits):
    width, eb, mb, pad, special, _ = FORMATS[name]
    s, code = bits >> (width - 1) & 1, (bits & (1 << (width - 1)) - 1) >> pad
    e, m = code >> mb, code & (1 << mb) - 1
    if special == "ieee" and e == (1 << eb) - 1:
        return ("inf", s, Q(0)) if m == 0 else NAN
    if special == "one" and code == (1 << (eb + mb)) - 1:
        return NAN
    bias = (1 << (eb - 1)) - 1
    if e == 0:
        return ("num", s, Q(m, 1 << mb) * Q(2) ** (1 - bias))
    return ("num", s, (1 + Q(m, 1 << mb)) * Q(2) ** (e - bias))


def integer(mag, mode, s):
    """Magnitude rounded to an integer under a sign."""
    n = mag.numerator // mag.denominator
    rest = mag - n
    up = {"rn": rest > Q(1, 2) or rest == Q(1, 2) and n & 1, "rna": rest >= Q(1, 2), "rz": False, "rm": s and rest, "rp": not s and rest}[mode]
    return n + bool(up)


def encode(name, v, mode="rn", satfinite=False, sat=False, relu=False, ftz=False):
    width, eb, mb, pad, special, nan = FORMATS[name]
    kind, s, mag = v
    largest = ((1 << (eb + mb)) - {"ieee": (1 << mb) + 1, "one": 2, "none": 1}[special]) << pad
    if sat:
        if kind == "nan" or s:
            kind, s, mag = "num", 0, Q(0)
        elif kind == "inf" or mag > 1:
            kind, mag = "num", Q(1)
    if kind == "nan":
        return largest if special == "none" else nan
    if relu and s:
        kind, s, mag = "num", 0, Q(0)
    sign = s << (width - 1)
    infinity = ((1 << eb) - 1) << (mb + pad)
    if kind == "inf":
        return sign | (largest if satfinite or special != "ieee" else infinity)
    if mag == 0:
        return sign
    bias = (1 << (eb - 1)) - 1
    e = mag.numerator.bit_length() - mag.denominator.bit_length()
    if Q(2) ** e > mag:
        e -= 1
    e = max(e, 1 - bias)
    n = integer(mag / Q(2) ** (e - mb), mode, s)
    code = n + ((e + bias - 1) << mb) if n >= 1 << mb or e > 1 - bias else n
    code <<= pad
    if code > largest:
        away = mode in ("rn", "rna") or mode == ("rm" if s else "rp")
        return sign | (infinity if away and special == "ieee" and not satfinite else largest)
    if ftz and width == 32 and code >> pad < 1 << mb:
        code = 0
    return sign | code


def flush(name, bits, on):
    width, eb, mb, pad, _, _ = FORMATS[name]
    small = (bits & (1 << (width - 1)) - 1) >> pad < 1 << mb
    return bits & 1 << (width - 1) if on and width == 32 and small else bits


def negate(v):
    return (v[0], 1 - v[1], v[2])


def add(a, b, mode="rn"):
    if "nan" in (a[0], b[0]) or a[0] == b[0] == "inf" and a[1] != b[1]:
        return NAN
    if "inf" in (a[0], b[0]):
        return a if a[0] == "inf" else b
    t = (-a[2] if a[1] else a[2]) + (-b[2] if b[1] else b[2])
    if t == 0:
        s = a[1] if a[1] == b[1] and a[2] == b[2] == 0 else int(mode == "rm") if not (a[2] == b[2] == 0 and a[1] == b[1]) else a[1]
        return ("num", s, Q(0))
    return ("num", int(t < 0), abs(t))


def mul(a, b):
    s = a[1] ^ b[1]
    if "nan" in (a[0], b[0]) or "inf" in (a[0], b[0]) and any(x[0] == "num" and x[2] == 0 for x in (a, b)):
        return NAN
    return ("inf", s, Q(0)) if "inf" in (a[0], b[0]) else ("num", s, a[2] * b[2])


def div(a, b):
    s = a[1] ^ b[1]
    if "nan" in (a[0], b[0]) or a[0] == b[0] == "inf" or a[0] == b[0] == "num" and a[2] == b[2] == 0:
        return NAN
    if a[0] == "inf" or b[0] == "num" and b[2] == 0:
        return ("inf", s, Q(0))
    return ("num", s, Q(0)) if b[0] == "inf" else ("num", s, a[2] / b[2])


def sqrt(a):
    """Square root cut to 80 bits with a sticky last bit; squares are exact."""
    from math import isqrt
    if a[0] == "nan" or a[1] and not (a[0] == "num" and a[2] == 0):
        return NAN
    if a[0] == "inf" or a[2] == 0:
        return a
    shift = 400
    n = a[2].numerator << 2 * shift
    r = isqrt(n // a[2].denominator)
    exact = r * r * a[2].denominator == n
    return ("num", 0, Q(r, 1 << shift) if exact else Q(2 * r + 1, 1 << (shift + 1)))


def less(a, b):
    """a < b for numbers and infinities; -0 < +0."""
    key = lambda v: ((-1 if v[1] else 1) * (Q(2) ** 300 if v[0] == "inf" else v[2]), -v[1])
    return key(a) < key(b)


def min_max(name, a, b, largest, nan, xorsign):
    x, y = decode(name, a), decode(name, b)
    top = 1 << (FORMATS[name][0] - 1)
    sign = 0
    if xorsign:
        sign, a, b = (a ^ b) & top, a & ~top, b & ~top
        x, y = decode(name, a), decode(name, b)
    if x[0] == "nan" and y[0] == "nan" or nan and "nan" in (x[0], y[0]):
        return FORMATS[name][5]
    if "nan" in (x[0], y[0]):
        return (b if x[0] == "nan" else a) ^ sign
    return (b if less(x, y) == largest else a) ^ sign
