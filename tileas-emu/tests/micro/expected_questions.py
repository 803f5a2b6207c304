"""Questions to the hardware: launches whose bytes the manual leaves open.

The expected bytes are the emulator's model (products exact, one rounding to nearest per
instruction; tf32 operands cut; NaN fill and type conversions of tensor maps as documented in the
crate); sections have the rule `report`: validation counts the differences and judges nothing.
"""
import numpy as np

import exact as X
from cases import Rng
from expected_mma import ELEM, TABLE, wgmma
from expected_tma import load


def patterns(rng, shape, name, lo, hi, specials=()):
    """Random patterns with unbiased exponents lo..hi; returns bytes and float64 values."""
    width, eb, mb, pad, _, _ = X.FORMATS[name]
    bias = (1 << (eb - 1)) - 1
    code = (rng.ints(0, 2, shape) << (eb + mb)) | (rng.ints(lo + bias, hi + bias, shape) << mb) | rng.ints(0, 1 << mb, shape)
    code = code << pad
    for i, s in enumerate(specials):
        code.ravel()[i * 7] = s
    size = ELEM[name]
    raw = code.astype({1: np.uint8, 2: np.uint16, 4: np.uint32}[size])
    table = TABLE.setdefault("values " + name, {})
    def value(c):
        if c not in table:
            v = X.decode(name, c)
            table[c] = float(-v[2] if v[1] else v[2])
        return table[c]
    vals = np.array([value(int(c)) for c in code.ravel()]).reshape(shape)
    return raw.view(np.uint8).reshape(*shape, size), vals


def steps(va, vb, per, out):
    """D over K in steps of `per`, rounded to `out` after each."""
    d = np.zeros((va.shape[0], vb.shape[0]))
    for k in range(0, va.shape[1], per):
        s = np.zeros_like(d)
        for j in range(k, k + per):
            s = s + np.outer(va[:, j], vb[:, j])
        d = (s + d).astype(out).astype(np.float64)
    return d


def run():
    rng = Rng(77)
    a, va = patterns(rng, (64, 64), "bf16", -6, 6)
    b, vb = patterns(rng, (64, 64), "bf16", -6, 6)
    wgmma("wgmma_bf16_n64", "q_precision", raw=(a, b, steps(va, vb, 16, np.float32)))
    a, va = patterns(rng, (64, 16), "bf16", -70, -60)
    b, vb = patterns(rng, (64, 16), "bf16", -75, -66)
    wgmma("wgmma_bf16_n64", "q_subnormal", k=16, amode="32B", bmode="32B", raw=(a, b, steps(va, vb, 16, np.float32)))
    a, va = patterns(rng, (64, 64), "f16", -3, 3)
    b, vb = patterns(rng, (32, 64), "f16", -3, 3)
    wgmma("wgmma_f16_n32", "q_precision", "f16", "f16", "f16", n=32, raw=(a, b, steps(va, vb, 16, np.float16)))
    a, va = patterns(rng, (64, 128), "e4m3", -6, 8)
    b, vb = patterns(rng, (16, 128), "e5m2", -8, 8)
    wgmma("wgmma_e4m3_n16", "q_precision", "e4m3", "e5m2", n=16, k=128, raw=(a, b, steps(va, vb, 32, np.float32)))
    # Full f32 patterns as tf32: the model cuts the 13 low bits.
    a, va = patterns(rng, (64, 32), "f32", -3, 3)
    b, vb = patterns(rng, (16, 32), "f32", -3, 3)
    cut = lambda raw: (raw.copy().view(np.uint32)[..., 0] & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    wgmma("wgmma_tf32_n16", "q_low_bits", "tf32", "tf32", n=16, k=32, raw=(a, b, steps(cut(a), cut(b), 8, np.float32)))
    nan = lambda pattern: lambda x, inside: x if inside else pattern
    load("q_nan_bf16", [100, 20], [32, 8], [80, 16], "bf16", rule="report", oob="nan", predict=nan(0x7FF7))
    load("q_nan_f32", [40, 20], [32, 8], [24, 16], "f32", rule="report", oob="nan", predict=nan(0x7FF77FF7))
    load("q_tf32", [40, 20], [32, 8], [4, 3], "tf32", rule="report", predict=lambda x, i: X.encode("tf32", X.decode("f32", x)))
    load("q_f32_ftz", [40, 20], [32, 8], [4, 3], "f32.ftz", rule="report", predict=lambda x, i: X.flush("f32", x, True))
