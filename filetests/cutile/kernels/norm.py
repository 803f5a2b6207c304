"""Layer norm and RMS norm, forward and backward."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, exact, f32, i32, inout, Launch, near, out, rounded

ZERO = ct.PaddingMode.ZERO


def layer_norm(x, w, b, eps=1e-5):
    mean = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(1, keepdims=True) + eps)
    return (x - mean) * rstd * w + b, mean, rstd


@ct.kernel
def layer_norm_kernel(x, w, b, y, mean, rstd, eps, T: ct.Constant[int]):
    """One row per block, three passes over column tiles."""
    row = ct.bid(0)
    tiles = ct.num_tiles(x, 1, (1, T))
    n = x.shape[1]
    total = ct.zeros((1, T), ct.float32)
    for j in range(tiles):
        total = total + ct.load(x, (row, j), (1, T), padding_mode=ZERO).astype(ct.float32)
    mu = ct.sum(total, axis=1) / n
    total = ct.zeros((1, T), ct.float32)
    for j in range(tiles):
        v = ct.load(x, (row, j), (1, T), padding_mode=ZERO).astype(ct.float32)
        inside = j * T + ct.arange(T, dtype=ct.int32) < n
        total = total + ct.where(inside, v - mu, 0.0) ** 2
    r = 1.0 / ct.sqrt(ct.sum(total, axis=1) / n + eps)
    ct.store(mean, row, mu)
    ct.store(rstd, row, r)
    for j in range(tiles):
        v = ct.load(x, (row, j), (1, T), padding_mode=ZERO).astype(ct.float32)
        scale = ct.load(w, j, (T,), padding_mode=ZERO)
        shift = ct.load(b, j, (T,), padding_mode=ZERO)
        ct.store(y, (row, j), ((v - mu) * r * scale + shift).astype(y.dtype))


@case("norm")
def layer_norm_view(r):
    x, w, b = arr(r.normal(6, 700) + .5, "f16"), arr(r.normal(700)), arr(r.normal(700))
    y, mean, rstd = layer_norm(x.f64, w.f64, b.f64)
    return Launch(layer_norm_kernel, (6,),
                  [x, w, b, out((6, 700), "f16"), out(6), out(6), f32(1e-5), 256],
                  {"y": rounded(y, "f16", 1e-3), "mean": near(mean[:, 0]),
                   "rstd": near(rstd[:, 0])})


@ct.kernel
def layer_norm_gather_kernel(x, w, b, y, N: ct.Constant[int], T: ct.Constant[int]):
    row = ct.bid(0)
    col = ct.arange(T, dtype=ct.int32)
    inside = col < N
    v = ct.gather(x, (row, col)).astype(ct.float32)
    mu = ct.sum(v) / N
    d = ct.where(inside, v - mu, 0.0)
    r = ct.rsqrt(ct.sum(d * d) / N + 1e-5)
    ct.scatter(y, (row, col), (d * r * ct.gather(w, col) + ct.gather(b, col)).astype(y.dtype))


@case("norm")
def layer_norm_gather(r):
    x, w, b = arr(r.normal(5, 900), "bf16"), arr(r.normal(900)), arr(r.normal(900))
    y, _, _ = layer_norm(x.f64, w.f64, b.f64)
    return Launch(layer_norm_gather_kernel, (5,), [x, w, b, out((5, 900), "bf16"), 900, 1024],
                  {"y": rounded(y, "bf16", 4e-3)})


def rms_norm(x, w, eps=1e-6):
    return x / np.sqrt((x * x).mean(1, keepdims=True) + eps) * w


@ct.kernel
def rms_norm_kernel(x, w, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    """TM rows per block."""
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (TM, TN), padding_mode=ZERO).astype(ct.float32)
    r = ct.rsqrt(ct.sum(v * v, axis=1, keepdims=True) / x.shape[1] + 1e-6)
    ct.store(y, (i, 0), (v * r * ct.load(w, 0, (TN,), padding_mode=ZERO)).astype(y.dtype))


@case("norm")
def rms_norm_view(r):
    x, w = arr(r.normal(30, 400), "bf16"), arr(r.normal(400))
    return Launch(rms_norm_kernel, (8,), [x, w, out((30, 400), "bf16"), 4, 512],
                  {"y": rounded(rms_norm(x.f64, w.f64), "bf16", 1e-3)})


@ct.kernel
def rms_norm_gather_kernel(x, w, y, eps, N: ct.Constant[int], T: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.zeros((T,), ct.float32)
    for j in range(ct.cdiv(N, T)):
        v = ct.gather(x, (row, j * T + ct.arange(T, dtype=ct.int32)), latency=1)
        total = total + v.astype(ct.float32) * v.astype(ct.float32)
    r = ct.rsqrt(ct.sum(total) / N + eps)
    for j in range(ct.cdiv(N, T)):
        col = j * T + ct.arange(T, dtype=ct.int32)
        v = ct.gather(x, (row, col), latency=1).astype(ct.float32)
        s = ct.gather(w, col).astype(ct.float32)
        ct.scatter(y, (row, col), (v * r * s).astype(y.dtype), latency=1)


@case("norm")
def rms_norm_gather(r):
    x, w = arr(r.normal(7, 520), "f16"), arr(r.normal(520), "f16")
    return Launch(rms_norm_gather_kernel, (7,), [x, w, out((7, 520), "f16"), f32(1e-6), 520, 256],
                  {"y": rounded(rms_norm(x.f64, w.f64), "f16", 1e-3)})


@ct.kernel(occupancy=2, num_worker_warps=4)
def rms_norm_persistent_kernel(x, w, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    scale = ct.load(w, 0, (TN,), padding_mode=ZERO)
    for i in range(ct.bid(0), ct.num_tiles(x, 0, (TM, TN)), ct.num_blocks(0)):
        v = ct.load(x, (i, 0), (TM, TN), padding_mode=ZERO, latency=10).astype(ct.float32)
        r = ct.rsqrt(ct.sum(v * v, axis=1, keepdims=True) / x.shape[1] + 1e-6)
        ct.store(y, (i, 0), (v * r * (1.0 + scale)).astype(y.dtype), allow_tma=False, latency=3)


@case("norm")
def rms_norm_persistent(r):
    x, w = arr(r.normal(50, 256), "f16"), arr(r.normal(256))
    return Launch(rms_norm_persistent_kernel, (3,), [x, w, out((50, 256), "f16"), 8, 256],
                  {"y": rounded(rms_norm(x.f64, 1 + w.f64), "f16", 1e-3)})


@ct.kernel
def add_rms_norm_kernel(x, residual, w, y, N: ct.Constant[int], T: ct.Constant[int]):
    """The sum replaces the residual, its norm goes to y."""
    row = ct.bid(0)
    col = ct.arange(T, dtype=ct.int32)
    s = ct.gather(x, (row, col)).astype(ct.float32) + \
        ct.gather(residual, (row, col)).astype(ct.float32)
    ct.scatter(residual, (row, col), s.astype(residual.dtype))
    r = ct.rsqrt(ct.sum(s * s) / N + 1e-6)
    ct.scatter(y, (row, col), (s * r * ct.gather(w, col)).astype(y.dtype))


@case("norm")
def add_rms_norm(r):
    x, res, w = arr(r.normal(4, 333), "f16"), inout(r.normal(4, 333), "f16"), arr(r.normal(333))
    s = x.f64 + res.f64
    return Launch(add_rms_norm_kernel, (4,), [x, res, w, out((4, 333), "f16"), 333, 512],
                  {"residual": rounded(s, "f16"),
                   "y": rounded(rms_norm(s, w.f64), "f16", 1e-3)})


def layer_norm_grads(x, w, dy, mean, rstd):
    h = (x - mean) * rstd
    g = dy * w
    dx = (g - g.mean(1, keepdims=True) - h * (g * h).mean(1, keepdims=True)) * rstd
    return dx, (dy * h).sum(0), dy.sum(0)


@ct.kernel
def layer_norm_dx_kernel(dy, x, w, mean, rstd, dx, dw, db, locks, N: ct.Constant[int],
                         T: ct.Constant[int], GROUPS: ct.Constant[int]):
    """One row per block; dw and db go to one of GROUPS partial rows under a lock."""
    row = ct.bid(0)
    col = ct.arange(T, dtype=ct.int32)
    inside = col < N
    v = ct.load(x, (row, 0), (1, T), padding_mode=ZERO).reshape((T,)).astype(ct.float32)
    g = ct.load(dy, (row, 0), (1, T), padding_mode=ZERO).reshape((T,)).astype(ct.float32)
    s = ct.load(w, 0, (T,), padding_mode=ZERO).astype(ct.float32)
    mu, r = ct.gather(mean, row), ct.gather(rstd, row)
    h = ct.where(inside, (v - mu) * r, 0.0)
    gs = g * s
    c1 = ct.sum(h * gs) / N
    c2 = ct.sum(gs) / N
    ct.store(dx, (row, 0), ((gs - (h * c1 + c2)) * r).reshape((1, T)).astype(dx.dtype))
    group = row % GROUPS
    while ct.atomic_cas(locks, group, 0, 1, memory_order=ct.MemoryOrder.ACQUIRE) == 1:
        pass
    dw_old = ct.load(dw, (group, 0), (1, T), padding_mode=ZERO)
    db_old = ct.load(db, (group, 0), (1, T), padding_mode=ZERO)
    ct.store(dw, (group, 0), dw_old + (g * h).reshape((1, T)))
    ct.store(db, (group, 0), db_old + g.reshape((1, T)))
    ct.atomic_xchg(locks, group, 0, memory_order=ct.MemoryOrder.RELEASE)


@case("norm")
def layer_norm_backward_lock(r):
    rows, n, groups = 8, 200, 2
    x, w, dy = arr(r.normal(rows, n), "f16"), arr(r.normal(n), "f16"), arr(r.normal(rows, n), "f16")
    _, m, s = layer_norm(x.f64, w.f64, 0)
    mean, rstd = arr(m[:, 0]), arr(s[:, 0])
    dx, _, _ = layer_norm_grads(x.f64, w.f64, dy.f64, m, s)
    part = [layer_norm_grads(x.f64[g::groups], w.f64, dy.f64[g::groups], m[g::groups],
                             s[g::groups]) for g in range(groups)]
    zero = np.zeros((groups, n))
    return Launch(layer_norm_dx_kernel, (rows,),
                  [dy, x, w, mean, rstd, out((rows, n), "f16"), inout(zero), inout(zero),
                   inout(np.zeros(groups), "i32"), n, 256, groups],
                  {"dx": rounded(dx, "f16", 2e-3),
                   "dw": near(np.stack([p[1] for p in part]), 1e-4, 1e-4),
                   "db": near(np.stack([p[2] for p in part]), 1e-4, 1e-4),
                   "locks": exact(np.zeros(groups))})


@ct.kernel
def layer_norm_dw_kernel(dy, x, mean, rstd, dw, db, rows, TM: ct.Constant[int],
                         TN: ct.Constant[int]):
    """Column tiles by row tiles, added up with atomics."""
    i, j = ct.bid(0), ct.bid(1)
    row = i * TM + ct.arange(TM, dtype=ct.int32)
    col = j * TN + ct.arange(TN, dtype=ct.int32)
    g = ct.gather(dy, (row[:, None], col[None, :]))
    v = ct.gather(x, (row[:, None], col[None, :]))
    h = (v - ct.gather(mean, row)[:, None]) * ct.gather(rstd, row)[:, None]
    ct.atomic_add(dw, col, ct.sum(g * h, axis=0))
    ct.atomic_add(db, col, ct.sum(g, axis=0), memory_order=ct.MemoryOrder.RELAXED)


@case("norm")
def layer_norm_dw_atomic(r):
    rows, n = 50, 90
    x, dy = arr(r.normal(rows, n)), arr(r.normal(rows, n))
    _, m, s = layer_norm(x.f64, 1, 0)
    _, dw, db = layer_norm_grads(x.f64, 1, dy.f64, m, s)
    return Launch(layer_norm_dw_kernel, (4, 2),
                  [dy, x, arr(m[:, 0]), arr(s[:, 0]), inout(np.zeros(n)), inout(np.zeros(n)),
                   i32(rows), 16, 64],
                  {"dw": near(dw, 1e-4, 1e-4), "db": near(db, 1e-4, 1e-4)})


@ct.kernel
def layer_norm_dw_final_kernel(dw, db, w_grad, b_grad, TM: ct.Constant[int],
                               TN: ct.Constant[int]):
    """Sum the partial rows."""
    j = ct.bid(0)
    a, b = ct.zeros((TM, TN), ct.float32), ct.zeros((TM, TN), ct.float32)
    for i in range(ct.num_tiles(dw, 0, (TM, TN))):
        a = a + ct.load(dw, (i, j), (TM, TN), padding_mode=ZERO)
        b = b + ct.load(db, (i, j), (TM, TN), padding_mode=ZERO)
    ct.store(w_grad, j, ct.sum(a, axis=0).astype(w_grad.dtype))
    ct.store(b_grad, j, ct.sum(b, axis=0).astype(b_grad.dtype))


@case("norm")
def layer_norm_dw_final(r):
    dw, db = arr(r.normal(20, 150)), arr(r.normal(20, 150))
    return Launch(layer_norm_dw_final_kernel, (3,),
                  [dw, db, out(150, "f16"), out(150, "f16"), 8, 64],
                  {"w_grad": rounded(dw.f64.sum(0), "f16"),
                   "b_grad": rounded(db.f64.sum(0), "f16")})
