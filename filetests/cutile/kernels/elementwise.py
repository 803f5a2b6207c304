"""Element-wise kernels."""
from math import erf as exact_erf

import cuda.tile as ct
import numpy as np

from .common import arr, case, f32, i32, inout, Launch, near, out, rounded


@ct.kernel
def vadd_view_kernel(a, b, c, T: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(c, i, ct.load(a, i, (T,)) + ct.load(b, i, (T,)))


@case("elementwise")
def vadd_view(r):
    a, b = arr(r.normal(4096)), arr(r.normal(4096))
    return Launch(vadd_view_kernel, (4,), [a, b, out(4096), 1024],
                  {"c": near(a.f64 + b.f64)})


@case("elementwise")
def vadd_view_ragged(r):
    a, b = arr(r.normal(3001), "f16"), arr(r.normal(3001), "f16")
    return Launch(vadd_view_kernel, (6,), [a, b, out(3001, "f16"), 512],
                  {"c": rounded(a.f64 + b.f64, "f16")})


@ct.kernel
def vadd_gather_kernel(a, b, c, T: ct.Constant[int]):
    at = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    ct.scatter(c, at, ct.gather(a, at) + ct.gather(b, at))


@case("elementwise")
def vadd_gather(r):
    a, b = arr(r.normal(1000)), arr(r.normal(1000))
    return Launch(vadd_gather_kernel, (4,), [a, b, out(1000), 256],
                  {"c": near(a.f64 + b.f64)})


@ct.kernel
def vadd_2d_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    x = ct.load(a, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO)
    y = ct.load(b, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO)
    ct.store(c, (i, j), x + y)


@case("elementwise")
def vadd_2d_pitched(r):
    """Rows further apart than their length; the gaps must stay untouched."""
    a = arr(r.normal(45, 70), strides=(80, 1))
    b = arr(r.normal(45, 70))
    return Launch(vadd_2d_kernel, (3, 2), [a, b, out((45, 70), strides=(72, 1)), 16, 64],
                  {"c": near(a.f64 + b.f64)})


@ct.kernel
def saxpy_kernel(x, y, alpha, n, T: ct.Constant[int]):
    at = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    inside = at < n
    v = alpha * ct.gather(x, at, mask=inside) + ct.gather(y, at, mask=inside)
    ct.scatter(y, at, v, mask=inside)


@case("elementwise")
def saxpy_masked(r):
    """Only the first n of 900 elements change."""
    x, y, n, alpha = arr(r.normal(900)), inout(r.normal(900)), 777, f32(2.5)
    want = y.f64.copy()
    want[:n] += 2.5 * x.f64[:n]
    return Launch(saxpy_kernel, (4,), [x, y, alpha, i32(n), 256], {"y": near(want)})


@ct.kernel
def gelu_tanh_kernel(x, y, T: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, i, (T,)).astype(ct.float32)
    inner = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    ct.store(y, i, (0.5 * v * (1.0 + ct.tanh(inner))).astype(y.dtype))


@case("elementwise")
def gelu_tanh(r):
    x = arr(r.normal(2000, scale=2), "bf16")
    v = x.f64
    want = 0.5 * v * (1 + np.tanh(0.7978845608028654 * (v + 0.044715 * v ** 3)))
    return Launch(gelu_tanh_kernel, (4,), [x, out(2000, "bf16"), 512],
                  {"y": rounded(want, "bf16", 1e-3)})


def erf(v):
    """Polynomial approximation of the error function, good to 2e-7."""
    sign = ct.where(v < 0.0, -1.0, 1.0)
    t = 1.0 / (1.0 + 0.3275911 * ct.abs(v))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741
                + t * (-1.453152027 + t * 1.061405429))))
    return sign * (1.0 - poly * ct.exp(-v * v))


@ct.kernel
def gelu_erf_kernel(x, y, T: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, i, (T,))
    ct.store(y, i, 0.5 * v * (1.0 + erf(v * 0.7071067811865476)))


@case("elementwise")
def gelu_erf(r):
    x = arr(r.normal(1024, scale=2))
    want = 0.5 * x.f64 * (1 + np.vectorize(exact_erf)(x.f64 / np.sqrt(2)))
    return Launch(gelu_erf_kernel, (2,), [x, out(1024), 512], {"y": near(want, 1e-5, 2e-6)})


@ct.kernel
def swiglu_kernel(gate, up, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    g = ct.load(gate, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    u = ct.load(up, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    s = ct.truediv(1.0, 1.0 + ct.exp(-g), flush_to_zero=True,
                   rounding_mode=ct.RoundingMode.APPROX)
    ct.store(y, (i, j), (g * s * u).astype(y.dtype))


@case("elementwise")
def swiglu(r):
    g, u = arr(r.normal(50, 200), "f16"), arr(r.normal(50, 200), "f16")
    want = g.f64 / (1 + np.exp(-g.f64)) * u.f64
    return Launch(swiglu_kernel, (4, 2), [g, u, out((50, 200), "f16"), 16, 128],
                  {"y": rounded(want, "f16", 1e-4)})


@ct.kernel
def silu_mul_gather_kernel(x, y, D: ct.Constant[int], T: ct.Constant[int]):
    """Gate and value are the two halves of one row."""
    row = ct.bid(0)
    col = ct.bid(1) * T + ct.arange(T, dtype=ct.int32)
    inside = col < D
    g = ct.gather(x, (row, col), mask=inside, latency=4).astype(ct.float32)
    u = ct.gather(x, (row, col + D), mask=inside, latency=4).astype(ct.float32)
    ct.scatter(y, (row, col), (g / (1.0 + ct.exp(-g)) * u).astype(y.dtype), mask=inside)


@case("elementwise")
def silu_mul_gather(r):
    x = arr(r.normal(4, 2 * 300), "bf16")
    g, u = x.f64[:, :300], x.f64[:, 300:]
    return Launch(silu_mul_gather_kernel, (4, 2), [x, out((4, 300), "bf16"), 300, 256],
                  {"y": rounded(g / (1 + np.exp(-g)) * u, "bf16", 1e-3)})


def mul_hi_lo(a, b):
    """High and low 32 bits of the product of two u32 tiles."""
    wide = a.astype(ct.uint64) * b.astype(ct.uint64)
    return (wide >> 32).astype(ct.uint32), wide.astype(ct.uint32)


@ct.kernel
def dropout_kernel(x, y, seed, p, T: ct.Constant[int]):
    i = ct.bid(0)
    c0 = (i * T + ct.arange(T, dtype=ct.int32)).astype(ct.uint32)
    c1 = ct.zeros((T,), ct.uint32)
    c2 = ct.zeros((T,), ct.uint32)
    c3 = ct.zeros((T,), ct.uint32)
    k0 = ct.full((T,), 0, ct.uint32) + ct.astype(seed, ct.uint32)
    k1 = ct.full((T,), 0x1234567, ct.uint32)
    m0 = ct.full((T,), 0xD2511F53, ct.uint32)
    m1 = ct.full((T,), 0xCD9E8D57, ct.uint32)
    for _ in range(7):
        hi0, lo0 = mul_hi_lo(m0, c0)
        hi1, lo1 = mul_hi_lo(m1, c2)
        c0, c1, c2, c3 = hi1 ^ c1 ^ k0, lo1, hi0 ^ c3 ^ k1, lo0
        k0 = k0 + ct.full((T,), 0x9E3779B9, ct.uint32)
        k1 = k1 + ct.full((T,), 0xBB67AE85, ct.uint32)
    u = (c0 >> 8).astype(ct.float32) * 5.9604644775390625e-08
    v = ct.load(x, i, (T,))
    ct.store(y, i, ct.where(u >= p, v / (1.0 - p), 0.0))


@case("elementwise")
def dropout_philox(r):
    n, seed, p = 2000, 42, 0.25
    x = arr(r.normal(n))
    mask32 = np.uint64(0xFFFFFFFF)
    c = [np.arange(n, dtype=np.uint64)] + [np.zeros(n, np.uint64)] * 3
    k0, k1 = np.uint64(seed), np.uint64(0x1234567)
    for _ in range(7):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        s = np.uint64(32)
        c = [(p1 >> s) ^ c[1] ^ k0, p1 & mask32, (p0 >> s) ^ c[3] ^ k1, p0 & mask32]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask32, (k1 + np.uint64(0xBB67AE85)) & mask32
    u = (c[0] >> np.uint64(8)).astype(np.float64) * 2.0 ** -24
    want = np.where(u >= p, x.f64 / (1 - p), 0)
    return Launch(dropout_kernel, (4,), [x, out(n), i32(seed), f32(p), 512],
                  {"y": near(want)})


@ct.kernel
def adam_kernel(w, g, m, v, lr, beta1, beta2, eps, correct1, correct2, T: ct.Constant[int]):
    i = ct.bid(0)
    grad = ct.load(g, i, (T,)).astype(ct.float32)
    mean = beta1 * ct.load(m, i, (T,)) + (1.0 - beta1) * grad
    var = beta2 * ct.load(v, i, (T,)) + (1.0 - beta2) * grad * grad
    step = mean / correct1 / (ct.sqrt(var / correct2) + eps)
    ct.store(m, i, mean)
    ct.store(v, i, var)
    ct.store(w, i, ct.load(w, i, (T,)) - lr * step)


@case("elementwise")
def adam_step(r):
    n = 1500
    w, g = inout(r.normal(n)), arr(r.normal(n), "bf16")
    m, v = inout(r.normal(n, scale=.1)), inout(r.uniform(n))
    b1, b2, lr, eps = (np.float64(np.float32(x)) for x in (0.9, 0.999, 1e-3, 1e-8))
    k1, k2 = (np.float64(np.float32(x)) for x in (1 - 0.9 ** 3, 1 - 0.999 ** 3))
    m1 = b1 * m.f64 + (1 - b1) * g.f64
    v1 = b2 * v.f64 + (1 - b2) * g.f64 ** 2
    w1 = w.f64 - lr * (m1 / k1) / (np.sqrt(v1 / k2) + eps)
    scalars = [f32(x) for x in (lr, b1, b2, eps, k1, k2)]
    return Launch(adam_kernel, (3,), [w, g, m, v, *scalars, 512],
                  {"w": near(w1), "m": near(m1), "v": near(v1)})
