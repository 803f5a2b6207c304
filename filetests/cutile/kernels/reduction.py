"""Reductions and scans along both axes."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, exact, inout, Launch, near, out

INF = float("inf")
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def row_stats_kernel(x, total, top, low, T: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (T, N), padding_mode=ZERO)
    ct.store(total, i, ct.sum(v, axis=1))
    v = ct.load(x, (i, 0), (T, N), padding_mode=ct.PaddingMode.NEG_INF)
    ct.store(top, i, ct.max(v, axis=1))
    v = ct.load(x, (i, 0), (T, N), padding_mode=ct.PaddingMode.POS_INF)
    ct.store(low, i, ct.min(v, axis=1))


@case("reduction")
def reduce_rows(r):
    x = arr(r.normal(30, 100))
    return Launch(row_stats_kernel, (4,), [x, out(30), out(30), out(30), 8, 128],
                  {"total": near(x.f64.sum(1), 1e-5, 1e-5), "top": exact(x.f64.max(1)),
                   "low": exact(x.f64.min(1))})


@ct.kernel
def column_stats_kernel(x, total, top, prod, T: ct.Constant[int], N: ct.Constant[int]):
    j = ct.bid(0)
    acc = ct.zeros((N,), ct.float32)
    best = ct.full((N,), -INF, ct.float32)
    mul = ct.ones((N,), ct.float32)
    for i in range(ct.num_tiles(x, 0, (T, N))):
        row = i * T + ct.arange(T, dtype=ct.int32)
        inside = (row < x.shape[0])[:, None]
        v = ct.load(x, (i, j), (T, N), padding_mode=ZERO)
        acc = acc + ct.sum(v, axis=0)
        best = ct.maximum(best, ct.max(ct.where(inside, v, -INF), axis=0))
        mul = mul * ct.prod(ct.where(inside, v, 1.0), axis=0)
    ct.store(total, j, acc)
    ct.store(top, j, best)
    ct.store(prod, j, mul)


@case("reduction")
def reduce_columns(r):
    x = arr(r.normal(45, 100, scale=1.2))
    return Launch(column_stats_kernel, (2,), [x, out(100), out(100), out(100), 16, 64],
                  {"total": near(x.f64.sum(0), 1e-5, 1e-5), "top": exact(x.f64.max(0)),
                   "prod": near(x.f64.prod(0), 1e-4, 1e-30)})


@ct.kernel
def argmax_kernel(x, rows, cols, low, R: ct.Constant[int], C: ct.Constant[int]):
    v = ct.load(x, (0, 0), (R, C))
    ct.store(rows, 0, ct.argmax(v, axis=1))
    ct.store(cols, 0, ct.argmax(v, axis=0))
    ct.store(low, 0, ct.argmin(v, axis=1))


@case("reduction")
def argmax_both_axes(r):
    x = arr(r.normal(32, 64))
    return Launch(argmax_kernel, (1,),
                  [x, out(32, "i32"), out(64, "i32"), out(32, "i32"), 32, 64],
                  {"rows": exact(x.f64.argmax(1)), "cols": exact(x.f64.argmax(0)),
                   "low": exact(x.f64.argmin(1))})


@ct.kernel
def argmax_online_kernel(x, at, T: ct.Constant[int]):
    """Argmax of a long ragged row, tile by tile; the first maximum wins."""
    row = ct.bid(0)
    best, where = ct.full((1,), -INF, ct.float32), ct.zeros((1,), ct.int32)
    for j in range(ct.num_tiles(x, 1, (1, T))):
        v = ct.load(x, (row, j), (1, T), padding_mode=ct.PaddingMode.NEG_INF)
        top, pos = ct.max(v, axis=1), ct.argmax(v, axis=1)
        better = top > best
        best = ct.where(better, top, best)
        where = ct.where(better, pos + j * T, where)
    ct.store(at, row, where)


@case("reduction")
def argmax_online(r):
    x = arr(np.round(r.normal(6, 500) * 4))
    return Launch(argmax_online_kernel, (6,), [x, out(6, "i32"), 128],
                  {"at": exact(x.f64.argmax(1))})


@ct.kernel
def integer_reduce_kernel(x, total, top, bits, T: ct.Constant[int]):
    v = ct.load(x, (0, 0), (16, T))
    ct.store(total, 0, ct.sum(v.astype(ct.int64), axis=1))
    ct.store(top, 0, ct.max(v, axis=1))
    ct.store(bits, 0, ct.reduce(v, 1, lambda a, b: a | b, 0))


@case("reduction")
def reduce_integers(r):
    x = arr(r.ints(-2 ** 31, 2 ** 31, 16, 64) & ~0x1001, "i32")
    return Launch(integer_reduce_kernel, (1,),
                  [x, out(16, "i64"), out(16, "i32"), out(16, "i32"), 64],
                  {"total": exact(x.val.astype(np.int64).sum(1)), "top": exact(x.val.max(1)),
                   "bits": exact(np.bitwise_or.reduce(x.val, 1))})


def combine_moments(n1, m1, s1, n2, m2, s2):
    n = n1 + n2
    f = ct.where(n > 0.0, n2 / ct.maximum(n, 1.0), 0.0)
    d = m2 - m1
    return n, m1 + d * f, s1 + s2 + d * d * n1 * f


@ct.kernel
def welford_kernel(x, mean, var, T: ct.Constant[int]):
    """Mean and variance by combining (count, mean, squares) triples."""
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, T), padding_mode=ZERO).reshape((T,))
    inside = ct.arange(T, dtype=ct.int32) < x.shape[1]
    one = ct.where(inside, 1.0, 0.0)
    n, m, s = ct.reduce((one, v, ct.zeros((T,), ct.float32)), 0, combine_moments,
                        (0.0, 0.0, 0.0))
    ct.scatter(mean, row, m)
    ct.scatter(var, row, s / n)


@case("reduction")
def welford(r):
    x = arr(r.normal(5, 230) + 10)
    return Launch(welford_kernel, (5,), [x, out(5), out(5), 256],
                  {"mean": near(x.f64.mean(1), 1e-5, 1e-5), "var": near(x.f64.var(1), 1e-4, 1e-4)})


@ct.kernel
def total_kernel(x, y, T: ct.Constant[int]):
    """All elements of a 3-D tile to one number, then one atomic per block."""
    v = ct.load(x, (ct.bid(0), 0, 0), (1, T, T), padding_mode=ZERO)
    ct.atomic_add(y, 0, ct.sum(v))


@case("reduction")
def reduce_to_scalar(r):
    x = arr(r.normal(5, 27, 30))
    return Launch(total_kernel, (5,), [x, inout(np.zeros(1)), 32],
                  {"y": near(x.f64.sum()[None], 1e-5, 1e-3)})


@ct.kernel
def cumsum_kernel(x, y, T: ct.Constant[int]):
    """Long rows carry the running total from tile to tile."""
    row = ct.bid(0)
    carry = ct.zeros((1, 1), ct.float32)
    for j in range(ct.num_tiles(x, 1, (1, T))):
        v = ct.load(x, (row, j), (1, T), padding_mode=ZERO)
        s = ct.cumsum(v, axis=1) + carry
        ct.store(y, (row, j), s)
        carry = carry + ct.sum(v, axis=1, keepdims=True)


@case("scan")
def cumsum_long_rows(r):
    x = arr(r.normal(4, 500))
    return Launch(cumsum_kernel, (4,), [x, out((4, 500)), 128],
                  {"y": near(x.f64.cumsum(1), 1e-5, 1e-4)})


@ct.kernel
def scan_kernel(x, down, back, prod, best, R: ct.Constant[int], C: ct.Constant[int]):
    v = ct.load(x, (0, 0), (R, C))
    ct.store(down, (0, 0), ct.cumsum(v, axis=0))
    ct.store(back, (0, 0), ct.cumsum(v, axis=1, reverse=True))
    ct.store(prod, (0, 0), ct.cumprod(v, axis=1))
    ct.store(best, (0, 0), ct.scan(v, 1, ct.maximum, -INF))


@case("scan")
def scan_variants(r):
    x = arr(r.normal(16, 32))
    v = x.f64
    o = [out((16, 32)) for _ in range(4)]
    return Launch(scan_kernel, (1,), [x, *o, 16, 32],
                  {"down": near(v.cumsum(0), 1e-5, 1e-5),
                   "back": near(v[:, ::-1].cumsum(1)[:, ::-1], 1e-5, 1e-5),
                   "prod": near(v.cumprod(1), 1e-4, 1e-20),
                   "best": exact(np.maximum.accumulate(v, 1))})


@ct.kernel
def linear_recurrence_kernel(a, b, h, T: ct.Constant[int]):
    """h[t] = a[t] h[t-1] + b[t], as a scan over pairs."""
    row = ct.bid(0)
    x = ct.load(a, (row, 0), (1, T)).reshape((T,))
    y = ct.load(b, (row, 0), (1, T)).reshape((T,))
    _, s = ct.scan((x, y), 0, lambda a1, b1, a2, b2: (a1 * a2, b1 * a2 + b2), (1.0, 0.0))
    ct.store(h, (row, 0), s.reshape((1, T)))


@case("scan")
def linear_recurrence(r):
    a, b = arr(r.uniform(3, 64)), arr(r.normal(3, 64))
    want, last = np.zeros((3, 64)), np.zeros(3)
    for t in range(64):
        last = a.f64[:, t] * last + b.f64[:, t]
        want[:, t] = last
    return Launch(linear_recurrence_kernel, (3,), [a, b, out((3, 64)), 64],
                  {"h": near(want, 1e-4, 1e-5)})


@ct.kernel
def chunked_scan_kernel(q, k, v, y, T: ct.Constant[int], D: ct.Constant[int]):
    """Causal linear attention in chunks with a carried state."""
    head = ct.bid(0)
    state = ct.zeros((D, D), ct.float32)
    at = ct.arange(T, dtype=ct.int32)
    keep = at[:, None] >= at[None, :]
    for i in range(ct.num_tiles(q, 1, (1, T, D))):
        qt = ct.load(q, (head, i, 0), (1, T, D), padding_mode=ZERO).reshape((T, D))
        kt = ct.load(k, (head, i, 0), (1, T, D), padding_mode=ZERO).reshape((T, D))
        vt = ct.load(v, (head, i, 0), (1, T, D), padding_mode=ZERO).reshape((T, D))
        s = ct.mma(qt, kt.transpose(), ct.zeros((T, T), ct.float32))
        s = ct.where(keep, s, 0.0)
        o = ct.mma(qt, state, ct.mma(s, vt, ct.zeros((T, D), ct.float32)))
        ct.store(y, (head, i, 0), o.reshape((1, T, D)))
        state = ct.mma(kt.transpose(), vt, state)


@case("scan")
def linear_attention_chunked(r):
    h, n, d = 3, 50, 16
    q, k, v = (arr(r.normal(h, n, d, scale=.5)) for _ in range(3))
    s = np.tril(q.f64 @ k.f64.transpose(0, 2, 1))
    return Launch(chunked_scan_kernel, (h,), [q, k, v, out((h, n, d)), 16, d],
                  {"y": near(s @ v.f64, 1e-4, 1e-4)})
