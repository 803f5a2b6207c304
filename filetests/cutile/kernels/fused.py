"""Larger fused kernels."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, exact, f32, i32, inout, Launch, near, out, rounded

ZERO = ct.PaddingMode.ZERO
INF = float("inf")


@ct.kernel
def gemm_swiglu_kernel(x, wg, wu, y, TM: ct.Constant[int], TN: ct.Constant[int],
                       TK: ct.Constant[int]):
    """Two products share their left operand; the gate multiplies the other."""
    i, j = ct.bid(0), ct.bid(1)
    gate, up = ct.zeros((TM, TN), ct.float32), ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(x, 1, (TM, TK))):
        a = ct.load(x, (i, k), (TM, TK), padding_mode=ZERO)
        gate = ct.mma(a, ct.load(wg, (k, j), (TK, TN), padding_mode=ZERO), gate)
        up = ct.mma(a, ct.load(wu, (k, j), (TK, TN), padding_mode=ZERO), up)
    ct.store(y, (i, j), (gate / (1.0 + ct.exp(-gate)) * up).astype(y.dtype))


@case("fused")
def gemm_swiglu(r):
    x = arr(r.normal(60, 96), "bf16")
    wg, wu = arr(r.normal(96, 72, scale=.1), "bf16"), arr(r.normal(96, 72, scale=.1), "bf16")
    g = x.f64 @ wg.f64
    return Launch(gemm_swiglu_kernel, (2, 2), [x, wg, wu, out((60, 72), "bf16"), 32, 64, 32],
                  {"y": rounded(g / (1 + np.exp(-g)) * (x.f64 @ wu.f64), "bf16", 1e-3)})


@ct.kernel
def gemm_block_scale_kernel(a, sa, b, sb, c, TM: ct.Constant[int], TN: ct.Constant[int],
                            TK: ct.Constant[int]):
    """f8 operands; one f32 scale per row and TK columns of A, per TK by TN block of B."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO)
        s = ct.load(sa, (i, k), (TM, 1), padding_mode=ZERO) * ct.gather(sb, (k, j))
        acc = acc + ct.mma(x, y, ct.zeros((TM, TN), ct.float32)) * s
    ct.store(c, (i, j), acc.astype(c.dtype))


@case("fused")
def gemm_block_scale_f8(r):
    m, n, k, t = 100, 128, 256, 64
    a, b = arr(r.normal(m, k), "e4m3"), arr(r.normal(k, n), "e4m3")
    sa, sb = arr(r.uniform(m, k // t)), arr(r.uniform(k // t, n // t))
    want = (a.f64 * sa.f64.repeat(t, 1)) @ (b.f64 * sb.f64.repeat(t, 0).repeat(t, 1))
    return Launch(gemm_block_scale_kernel, (2, 2), [a, sa, b, sb, out((m, n), "bf16"), 64, t, t],
                  {"c": rounded(want, "bf16", 1e-2)})


@ct.kernel
def gemm_softmax_kernel(x, w, y, TM: ct.Constant[int], N: ct.Constant[int],
                        TK: ct.Constant[int]):
    """A product whose whole rows fit one tile, and their softmax."""
    i = ct.bid(0)
    acc = ct.zeros((TM, N), ct.float32)
    for k in range(ct.num_tiles(x, 1, (TM, TK))):
        a = ct.load(x, (i, k), (TM, TK), padding_mode=ZERO)
        acc = ct.mma(a, ct.load(w, (k, 0), (TK, N), padding_mode=ZERO), acc)
    acc = ct.where(ct.arange(N, dtype=ct.int32) < w.shape[1], acc, -INF)
    e = ct.exp(acc - ct.max(acc, axis=1, keepdims=True))
    ct.store(y, (i, 0), e / ct.sum(e, axis=1, keepdims=True))


@case("fused")
def gemm_softmax(r):
    x, w = arr(r.normal(50, 64, scale=.5), "f16"), arr(r.normal(64, 100, scale=.5), "f16")
    e = np.exp(x.f64 @ w.f64)
    return Launch(gemm_softmax_kernel, (4,), [x, w, out((50, 100)), 16, 128, 32],
                  {"y": near(e / e.sum(1, keepdims=True), 1e-4, 1e-6)})


@ct.kernel
def attention_latent_kernel(q, qr, c, kr, o, scale, H: ct.Constant[int], T: ct.Constant[int],
                            D: ct.Constant[int], R: ct.Constant[int]):
    """Decoding with latent keys: H heads of one sequence share c (keys and values) and kr."""
    n = ct.bid(0)
    keys = c.shape[1]
    qt = ct.load(q, (n, 0, 0), (1, H, D)).reshape((H, D))
    rt = ct.load(qr, (n, 0, 0), (1, H, R)).reshape((H, R))
    top = ct.full((H, 1), -INF, ct.float32)
    total = ct.zeros((H, 1), ct.float32)
    acc = ct.zeros((H, D), ct.float32)
    for j in range(ct.cdiv(keys, T)):
        kt = ct.load(c, (n, j, 0), (1, T, D), padding_mode=ZERO).reshape((T, D))
        pt = ct.load(kr, (n, j, 0), (1, T, R), padding_mode=ZERO).reshape((T, R))
        s = ct.mma(qt, kt.transpose(), ct.zeros((H, T), ct.float32))
        s = ct.mma(rt, pt.transpose(), s) * scale
        s = ct.where(j * T + ct.arange(T, dtype=ct.int32) < keys, s, -INF)
        new = ct.maximum(top, ct.max(s, axis=1, keepdims=True))
        p = ct.exp(s - new)
        alpha = ct.exp(top - new)
        total = total * alpha + ct.sum(p, axis=1, keepdims=True)
        acc = ct.mma(p.astype(c.dtype), kt, acc * alpha)
        top = new
    ct.store(o, (n, 0, 0), (acc / total).reshape((1, H, D)).astype(o.dtype))


@case("attention")
def attention_latent_decode(r):
    n, h, keys, d, rope = 2, 16, 50, 128, 64
    q, qr = arr(r.normal(n, h, d), "bf16"), arr(r.normal(n, h, rope), "bf16")
    c, kr = arr(r.normal(n, keys, d), "bf16"), arr(r.normal(n, keys, rope), "bf16")
    scale = (d + rope) ** -0.5
    s = (q.f64 @ c.f64.transpose(0, 2, 1) + qr.f64 @ kr.f64.transpose(0, 2, 1)) * scale
    p = np.exp(s - s.max(-1, keepdims=True))
    want = p / p.sum(-1, keepdims=True) @ c.f64
    return Launch(attention_latent_kernel, (n,),
                  [q, qr, c, kr, out((n, h, d), "bf16"), f32(scale), h, 32, d, rope],
                  {"o": rounded(want, "bf16", 1e-2)})


@ct.kernel
def attention_alibi_kernel(q, k, v, o, slopes, scale, TM: ct.Constant[int],
                           TN: ct.Constant[int], D: ct.Constant[int]):
    """Causal with a distance penalty; the loop is split at the diagonal by hand."""
    i, head = ct.bid(0), ct.bid(1)
    slope = ct.gather(slopes, head)
    row = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    qt = ct.load(q, (head, i, 0), (1, TM, D), padding_mode=ZERO).reshape((TM, D))
    top = ct.full((TM, 1), -INF, ct.float32)
    total, acc = ct.zeros((TM, 1), ct.float32), ct.zeros((TM, D), ct.float32)
    diagonal = i * TM // TN
    for j in range(ct.cdiv(min((i + 1) * TM, k.shape[1]), TN)):
        kt = ct.load(k, (head, j, 0), (1, TN, D), padding_mode=ZERO).reshape((TN, D))
        s = ct.mma(qt, kt.transpose(), ct.zeros((TM, TN), ct.float32)) * scale
        col = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
        s = s - slope * (row - col).astype(ct.float32)
        if j >= diagonal:
            s = ct.where(col <= row, s, -INF)
        new = ct.maximum(top, ct.max(s, axis=1, keepdims=True))
        p, alpha = ct.exp(s - new), ct.exp(top - new)
        total = total * alpha + ct.sum(p, axis=1, keepdims=True)
        vt = ct.load(v, (head, j, 0), (1, TN, D), padding_mode=ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(v.dtype), vt, acc * alpha)
        top = new
    ct.store(o, (head, i, 0), (acc / total).reshape((1, TM, D)).astype(o.dtype))


@case("attention")
def attention_alibi(r):
    h, n, d = 2, 96, 32
    q, k, v = (arr(r.normal(h, n, d), "f16") for _ in range(3))
    slopes = arr(np.array([0.25, 0.0625]))
    i, j = np.indices((n, n))
    s = q.f64 @ k.f64.transpose(0, 2, 1) * d ** -0.5 - slopes.f64[:, None, None] * (i - j)
    p = np.exp(np.where(j <= i, s, -np.inf))
    want = p / p.sum(-1, keepdims=True) @ v.f64
    return Launch(attention_alibi_kernel, (3, h),
                  [q, k, v, out((h, n, d), "f16"), slopes, f32(d ** -0.5), 32, 16, d],
                  {"o": rounded(want, "f16", 2e-3)})


@ct.kernel
def route_kernel(logits, weight, expert, N: ct.Constant[int], T: ct.Constant[int],
                 K: ct.Constant[int]):
    """The K largest of N probabilities per row, one maximum at a time, renormalised."""
    row = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    col = ct.arange(N, dtype=ct.int32)
    v = ct.gather(logits, (row[:, None], col[None, :]), padding_value=-INF)
    left = v
    total = ct.zeros((T, 1), ct.float32)
    first = ct.max(v, axis=1, keepdims=True)
    for k in ct.static_iter(range(K)):
        best = ct.max(left, axis=1, keepdims=True)
        at = ct.argmax(left, axis=1)
        total = total + ct.exp(best - first)
        ct.scatter(expert, (row, k), at)
        left = ct.where(col[None, :] == at[:, None], -INF, left)
    for k in ct.static_iter(range(K)):
        at = ct.gather(expert, (row, k))
        best = ct.gather(logits, (row, at))
        w = ct.exp(best - first.reshape((T,))) / total.reshape((T,))
        ct.scatter(weight, (row, k), w)


@case("fused")
def topk_routing(r):
    rows, n, k = 27, 60, 4
    x = arr(r.normal(rows, n))
    at = np.argsort(-x.f64, 1)[:, :k]
    e = np.exp(np.take_along_axis(x.f64, at, 1))
    return Launch(route_kernel, (4,), [x, out((rows, k)), out((rows, k), "i32"), 64, 8, k],
                  {"weight": near(e / e.sum(1, keepdims=True), 1e-5, 1e-6), "expert": exact(at)})


@ct.kernel
def selective_scan_kernel(x, dt, a, b, c, y, N: ct.Constant[int], D: ct.Constant[int],
                          S: ct.Constant[int]):
    """A state of S numbers per channel, decayed and driven step by step."""
    d = ct.bid(0) * D + ct.arange(D, dtype=ct.int32)
    s = ct.arange(S, dtype=ct.int32)
    decay = ct.gather(a, (d[:, None], s[None, :]))
    state = ct.zeros((D, S), ct.float32)
    for t in range(N):
        step = ct.gather(dt, (t, d))[:, None]
        v = ct.gather(x, (t, d)).astype(ct.float32)[:, None]
        state = state * ct.exp(decay * step) + step * v * ct.gather(b, (t, s))[None, :]
        ct.scatter(y, (t, d), ct.sum(state * ct.gather(c, (t, s))[None, :], axis=1))


@case("fused")
def selective_scan(r):
    n, d, s = 20, 50, 16
    x, dt = arr(r.normal(n, d), "bf16"), arr(r.uniform(n, d, hi=.5))
    a, b, c = arr(-r.uniform(d, s)), arr(r.normal(n, s)), arr(r.normal(n, s))
    state, want = np.zeros((d, s)), np.zeros((n, d))
    for t in range(n):
        step = dt.f64[t][:, None]
        state = state * np.exp(a.f64 * step) + step * x.f64[t][:, None] * b.f64[t]
        want[t] = state @ c.f64[t]
    return Launch(selective_scan_kernel, (2,), [x, dt, a, b, c, out((n, d)), n, 32, s],
                  {"y": near(want, 1e-4, 1e-4)})


@ct.kernel
def batch_norm_kernel(x, scale, shift, mean, var, y, T: ct.Constant[int], C: ct.Constant[int],
                      momentum, training):
    """Statistics down the columns, running averages, and a flag for inference."""
    j = ct.bid(0)
    n = x.shape[0]
    m, v = ct.load(mean, j, (C,), padding_mode=ZERO), ct.load(var, j, (C,), padding_mode=ZERO)
    if training != 0:
        s, q = ct.zeros((C,), ct.float32), ct.zeros((C,), ct.float32)
        for i in range(ct.num_tiles(x, 0, (T, C))):
            t = ct.load(x, (i, j), (T, C), padding_mode=ZERO).astype(ct.float32)
            s, q = s + ct.sum(t, axis=0), q + ct.sum(t * t, axis=0)
        bm = s / n
        bv = q / n - bm * bm
        ct.store(mean, j, m + momentum * (bm - m))
        ct.store(var, j, v + momentum * (bv - v))
        m, v = bm, bv
    a = ct.load(scale, j, (C,), padding_mode=ZERO) * ct.rsqrt(v + 1e-5)
    b = ct.load(shift, j, (C,), padding_mode=ZERO) - m * a
    for i in range(ct.num_tiles(x, 0, (T, C))):
        t = ct.load(x, (i, j), (T, C), padding_mode=ZERO).astype(ct.float32)
        ct.store(y, (i, j), ct.maximum(t * a + b, 0.0).astype(y.dtype))


@case("norm")
def batch_norm_relu(r):
    n, c = 70, 40
    x, w, b = arr(r.normal(n, c), "f16"), arr(r.normal(c)), arr(r.normal(c))
    mean, var = inout(r.normal(c)), inout(r.uniform(c))
    bm, bv = x.f64.mean(0), x.f64.var(0)
    y = np.maximum((x.f64 - bm) / np.sqrt(bv + 1e-5) * w.f64 + b.f64, 0)
    return Launch(batch_norm_kernel, (2,),
                  [x, w, b, mean, var, out((n, c), "f16"), 16, 32, f32(.1), i32(1)],
                  {"y": rounded(y, "f16", 1e-3), "mean": near(mean.f64 + .1 * (bm - mean.f64)),
                   "var": near(var.f64 + .1 * (bv - var.f64), 1e-5, 1e-5)})
