"""Irregular and numerical kernels outside deep learning."""
from math import erf
from typing import Annotated

import cuda.tile as ct
import numpy as np

from .common import arr, case, exact, f32, i32, inout, Launch, near, out, Scalar

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def spmv_kernel(starts, columns, values, x, y, T: ct.Constant[int]):
    """Sparse matrix times vector, one row per block, row lengths known at run time."""
    row = ct.bid(0)
    at, end = ct.gather(starts, row), ct.gather(starts, row + 1)
    acc = ct.zeros((T,), ct.float32)
    while at < end:
        i = at + ct.arange(T, dtype=ct.int32)
        inside = i < end
        c = ct.gather(columns, i, mask=inside)
        acc = acc + ct.gather(values, i, mask=inside) * ct.gather(x, c, mask=inside)
        at = at + T
    ct.scatter(y, row, ct.sum(acc))


@case("irregular")
def spmv_csr(r):
    lengths = np.array([3, 0, 70, 32, 17, 1, 33, 8])
    starts = np.concatenate([[0], lengths.cumsum()])
    columns = np.concatenate([r.perm(100)[:n] for n in lengths])
    v, x = arr(r.normal(starts[-1])), arr(r.normal(100))
    dense = np.zeros((8, 100))
    for i in range(8):
        dense[i, columns[starts[i]:starts[i + 1]]] = v.f64[starts[i]:starts[i + 1]]
    return Launch(spmv_kernel, (8,), [arr(starts, "i32"), arr(columns, "i32"), v, x, out(8), 32],
                  {"y": near(dense @ x.f64, 1e-5, 1e-5)})


@ct.kernel
def nearest_kernel(points, centres, label, distance, TM: ct.Constant[int], N: ct.Constant[int],
                   D: ct.Constant[int]):
    """The nearest of N centres by |p|² - 2 p·c + |c|²."""
    i = ct.bid(0)
    p = ct.load(points, (i, 0), (TM, D), padding_mode=ZERO)
    c = ct.load(centres, (0, 0), (N, D), padding_mode=ZERO)
    dot = ct.mma(p, c.transpose(), ct.zeros((TM, N), ct.float32))
    d = ct.sum(p * p, axis=1, keepdims=True) - 2.0 * dot + ct.sum(c * c, axis=1)[None, :]
    d = ct.where(ct.arange(N, dtype=ct.int32) < centres.shape[0], d, float("inf"))
    ct.store(label, i, ct.argmin(d, axis=1))
    ct.store(distance, i, ct.min(d, axis=1))


@case("irregular")
def nearest_centre(r):
    p, c = arr(r.normal(90, 8)), arr(r.normal(20, 8))
    d = ((p.f64[:, None] - c.f64[None]) ** 2).sum(-1)
    return Launch(nearest_kernel, (3,), [p, c, out(90, "i32"), out(90), 32, 32, 8],
                  {"label": exact(d.argmin(1)), "distance": near(d.min(1), 1e-4, 1e-4)})


@ct.kernel
def mandelbrot_kernel(y, x0, y0, step, LIMIT: ct.Constant[int], T: ct.Constant[int]):
    """Steps until escape; the loop ends when every point has escaped."""
    i = (ct.bid(0) * T + ct.arange(T, dtype=ct.int32))[:, None]
    j = (ct.bid(1) * T + ct.arange(T, dtype=ct.int32))[None, :]
    cr = x0 + step * j.astype(ct.float32) + ct.zeros((T, T), ct.float32)
    ci = y0 + step * i.astype(ct.float32) + ct.zeros((T, T), ct.float32)
    zr, zi = ct.zeros((T, T), ct.float32), ct.zeros((T, T), ct.float32)
    steps = ct.zeros((T, T), ct.int32)
    for _ in range(LIMIT):
        inside = zr * zr + zi * zi <= 4.0
        if ct.max(inside.astype(ct.int32)) == 0:
            break
        steps = steps + inside.astype(ct.int32)
        new = ct.where(inside, zr * zr - zi * zi + cr, zr)
        zi = ct.where(inside, 2.0 * zr * zi + ci, zi)
        zr = new
    ct.scatter(y, (i, j), steps)


@case("irregular")
def mandelbrot(r):
    """A point near the circle may escape one step apart, hence the tolerance."""
    n, limit = 32, 12
    x0, y0, step = 0.5, -1.5, 0.0625
    c = x0 + step * np.arange(n)[None] + 1j * (y0 + step * np.arange(n)[:, None])
    z, steps = np.zeros_like(c), np.zeros((n, n), int)
    for _ in range(limit):
        inside = abs(z) <= 2
        steps += inside
        z = np.where(inside, z * z + c, z)
    return Launch(mandelbrot_kernel, (2, 2),
                  [out((n, n), "i32"), f32(x0), f32(y0), f32(step), limit, 16],
                  {"y": (steps, 0.0, 1.0)})


@ct.kernel
def option_kernel(price, strike, years, call, put, rate, sigma, T: ct.Constant[int]):
    """Black–Scholes with a polynomial for the normal distribution."""
    i = ct.bid(0)
    s, k, t = ct.load(price, i, (T,)), ct.load(strike, i, (T,)), ct.load(years, i, (T,))
    root = sigma * ct.sqrt(t)
    d1 = (ct.log(s / k) + (rate + 0.5 * sigma * sigma) * t) / root
    d2 = d1 - root
    n1, n2 = normal(d1), normal(d2)
    paid = k * ct.exp(-rate * t)
    ct.store(call, i, s * n1 - paid * n2)
    ct.store(put, i, paid * (1.0 - n2) - s * (1.0 - n1))


def normal(d):
    k = 1.0 / (1.0 + 0.2316419 * ct.abs(d))
    tail = 0.3989422804014327 * ct.exp(-0.5 * d * d) * k * (0.31938153 + k * (
        -0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    return ct.where(d > 0.0, 1.0 - tail, tail)


@case("irregular")
def black_scholes(r):
    s, k, t = arr(r.uniform(500, lo=5, hi=30)), arr(r.uniform(500, lo=1, hi=100)), \
        arr(r.uniform(500, lo=.25, hi=10))
    rate, sigma = 0.02, 0.3
    root = sigma * np.sqrt(t.f64)
    d1 = (np.log(s.f64 / k.f64) + (rate + sigma ** 2 / 2) * t.f64) / root
    n1, n2 = (0.5 + 0.5 * np.vectorize(erf)(d / np.sqrt(2)) for d in (d1, d1 - root))
    paid = k.f64 * np.exp(-rate * t.f64)
    return Launch(option_kernel, (4,), [s, k, t, out(500), out(500), f32(rate), f32(sigma), 128],
                  {"call": near(s.f64 * n1 - paid * n2, 1e-4, 2e-4),
                   "put": near(paid * (1 - n2) - s.f64 * (1 - n1), 1e-4, 2e-4)})


@ct.kernel
def sort_kernel(x, y, N: ct.Constant[int]):
    """Bitonic sort of 64 keys per row: partners meet by reshaping."""
    v = ct.load(x, (ct.bid(0), 0), (1, N)).reshape((N,))
    at = ct.arange(N, dtype=ct.int32)
    for k in ct.static_iter((2, 4, 8, 16, 32, 64)):
        for j in ct.static_iter((32, 16, 8, 4, 2, 1)):
            if j < k:
                w = v.reshape((N // (2 * j), 2, j))
                a = ct.extract(w, (0, 0, 0), (N // (2 * j), 1, j))
                b = ct.extract(w, (0, 1, 0), (N // (2 * j), 1, j))
                other = ct.cat((b, a), 1).reshape((N,))
                small = ((at & j) == 0) == ((at & k) == 0)
                v = ct.where(small, ct.minimum(v, other), ct.maximum(v, other))
    ct.store(y, (ct.bid(0), 0), v.reshape((1, N)))


@case("irregular")
def bitonic_sort(r):
    x = arr(r.ints(-10 ** 6, 10 ** 6, 4, 64), "i32")
    return Launch(sort_kernel, (4,), [x, out((4, 64), "i32"), 64], {"y": exact(np.sort(x.val, 1))})


@ct.kernel
def pi_kernel(hits, seed, ROUNDS: ct.Constant[int], T: ct.Constant[int]):
    """Points from a 64-bit linear congruential generator, counted inside the circle."""
    lane = (ct.bid(0) * T + ct.arange(T, dtype=ct.int32)).astype(ct.uint64)
    state = lane * 0x9E3779B1 + seed
    count = ct.zeros((T,), ct.int32)
    for _ in range(ROUNDS):
        state = state * 0x5851F42D4C957F2D + 0x14057B7E
        u = (state >> 40).astype(ct.float32) * 5.9604644775390625e-08
        state = state * 0x5851F42D4C957F2D + 0x14057B7E
        v = (state >> 40).astype(ct.float32) * 5.9604644775390625e-08
        count = count + (u * u + v * v < 1.0).astype(ct.int32)
    ct.atomic_add(hits, 0, ct.sum(count))


@case("irregular")
def monte_carlo_pi(r):
    seed, rounds, n = 12345, 10, 4 * 128
    with np.errstate(over="ignore"):
        state = np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B1) + np.uint64(seed)
        hits = 0
        for _ in range(rounds):
            u = []
            for _ in range(2):
                state = state * np.uint64(0x5851F42D4C957F2D) + np.uint64(0x14057B7E)
                u.append((state >> np.uint64(40)) * 2.0 ** -24)
            hits += int((u[0] ** 2 + u[1] ** 2 < 1).sum())
    return Launch(pi_kernel, (4,), [inout([0], "i32"), Scalar("u64", seed), rounds, 128],
                  {"hits": (np.array([hits]), 0.0, 1.0)})


Fixed = Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(1,), static_stride_dims=(0, 1))]


@ct.kernel
def static_shape_kernel(x: Fixed, y: Fixed, T: ct.Constant[int]):
    """The row length and both strides are constants of the compiled kernel."""
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (T, 64), padding_mode=ZERO)
    ct.store(y, (i, 0), v / ct.sum(v, axis=1, keepdims=True) * x.shape[1])


@case("views")
def static_shape(r):
    x = arr(r.uniform(30, 40, lo=.1), constant=(1,))
    v = x.f64
    return Launch(static_shape_kernel, (4,), [x, out((30, 40), constant=(1,)), 8],
                  {"y": near(v / v.sum(1, keepdims=True) * 40)})


@ct.kernel
def tuple_kernel(inputs, y, weights, T: ct.Constant[int]):
    """A tuple of arrays and a tuple of scalars, flattened into parameters."""
    i = ct.bid(0)
    acc = ct.zeros((T,), ct.float32)
    for k in ct.static_iter(range(3)):
        acc = acc + ct.load(inputs[k], i, (T,)) * weights[k]
    ct.store(y, i, acc)


@case("views")
def tuple_parameters(r):
    a = tuple(arr(r.normal(300)) for _ in range(3))
    w = (f32(.5), f32(-2), f32(3))
    want = sum(x.f64 * s.value for x, s in zip(a, w))
    return Launch(tuple_kernel, (3,), [a, out(300), w, 128], {"y": near(want)})


@ct.kernel
def foreign_kernel(x, y, rows, T: ct.Constant[int]):
    """A second array built inside the kernel over the same memory."""
    flat = ct.Array.from_foreign(x.foreign_pointer, (rows, 32), (32, 1))
    i = ct.bid(0)
    ct.store(y, (i, 0), ct.load(flat, (i, 0), (T, 32), padding_mode=ZERO))


@case("views")
def array_from_pointer(r):
    x = arr(r.normal(640))
    return Launch(foreign_kernel, (3,), [x, out((20, 32)), i32(20), 8],
                  {"y": exact(x.val.reshape(20, 32))})


@ct.kernel
def absolute_kernel(x, y, scale, T: ct.Constant[int]):
    """Integer absolute value and power-of-two scales rounded up."""
    i = ct.bid(0)
    v = ct.load(x, i, (T,))
    ct.store(y, i, ct.abs(v))
    top = ct.max(ct.abs(v)).astype(ct.float32)
    s = ct.astype(top, ct.float8_e8m0fnu, rounding_mode=ct.RoundingMode.RP)
    ct.scatter(scale, i, s)


@case("numeric")
def absolute_and_scale(r):
    x = arr(r.ints(-1000, 1000, 4 * 64), "i32")
    top = np.abs(x.val).reshape(4, 64).max(1)
    return Launch(absolute_kernel, (4,), [x, out(256, "i32"), out(4, "ue8m0", fill=1), 64],
                  {"y": exact(np.abs(x.val)), "scale": exact(2.0 ** np.ceil(np.log2(top)))})


@ct.kernel
def approx_kernel(x, y, T: ct.Constant[int]):
    """Approximate and flushing variants of f32 functions."""
    i = ct.bid(0)
    v = ct.load(x, i, (T,))
    a = ct.sqrt(v, rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True)
    b = ct.exp(-v, rounding_mode=ct.RoundingMode.APPROX)
    c = ct.truediv(1.0, v, rounding_mode=ct.RoundingMode.FULL)
    d = ct.tanh(v, rounding_mode=ct.RoundingMode.APPROX)
    e = ct.rsqrt(v, flush_to_zero=True)
    f = ct.sqrt(v, rounding_mode=ct.RoundingMode.RZ)
    ct.store(y, i, a + b + c + d + e + f)


@case("numeric")
def approximate_functions(r):
    x = arr(r.uniform(200, lo=.5, hi=4))
    v = x.f64
    want = 2 * np.sqrt(v) + np.exp(-v) + 1 / v + np.tanh(v) + 1 / np.sqrt(v)
    return Launch(approx_kernel, (4,), [x, out(200), 64], {"y": near(want, 1e-3, 1e-3)})


@ct.kernel
def matmul_operator_kernel(a, b, c, T: ct.Constant[int]):
    """The @ operator on f16 and a vector product."""
    x, y = ct.load(a, (0, 0), (T, T)), ct.load(b, (0, 0), (T, T))
    z = x @ y
    v = ct.extract(y, (0, 0), (T, 1)).reshape((T,))
    ct.store(c, (0, 0), z + (x @ v).reshape((T, 1)))


@case("gemm")
def gemm_operator(r):
    a, b = arr(r.normal(16, 16), "f32"), arr(r.normal(16, 16), "f32")
    z = a.f64 @ b.f64
    return Launch(matmul_operator_kernel, (1,), [a, b, out((16, 16)), 16],
                  {"c": near(z + z[:, :1], 1e-4, 1e-4)})
