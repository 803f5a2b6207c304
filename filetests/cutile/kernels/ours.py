"""Kernels of `examples`, said in cuTile: what comes out of either text is compared."""
import cuda.tile as ct
import numpy as np

from .attention import attention
from .common import arr, case, f32, i32, Launch, near, out, rounded

ZERO = ct.PaddingMode.ZERO
NEG_INF = ct.PaddingMode.NEG_INF
INF = float("inf")


@ct.kernel
def ours_gemm_kernel(a, b, bias, c, TM: ct.Constant[int], TN: ct.Constant[int],
                     TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    shift = ct.load(bias, j, (TN,), padding_mode=ZERO).astype(ct.float32)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
        y = ct.load(b, (k, j), (TK, TN), order=(1, 0), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), ct.maximum(acc + shift, 0.0).astype(c.dtype))


@case("ours")
def ours_gemm_f16(r):
    a, b, bias = (arr(r.normal(*s), "f16") for s in ((160, 136), (208, 136), (208,)))
    want = np.maximum(a.f64 @ b.f64.T + bias.f64, 0)
    return Launch(ours_gemm_kernel, (2, 2), [a, b, bias, out((160, 208), "f16"), 128, 128, 64],
                  {"c": rounded(want, "f16", 2e-3)})


@ct.kernel
def ours_gemm_persistent_kernel(a, b, bias, c, TM: ct.Constant[int], TN: ct.Constant[int],
                                TK: ct.Constant[int]):
    down, across = ct.cdiv(a.shape[0], TM), ct.cdiv(b.shape[0], TN)
    for tile in range(ct.bid(0), down * across, ct.num_blocks(0)):
        i, j = tile % down, tile // down
        shift = ct.load(bias, j, (TN,), padding_mode=ZERO).astype(ct.float32)
        acc = ct.zeros((TM, TN), ct.float32)
        for k in range(ct.num_tiles(a, 1, (TM, TK))):
            x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
            y = ct.load(b, (k, j), (TK, TN), order=(1, 0), padding_mode=ZERO)
            acc = ct.mma(x, y, acc)
        ct.store(c, (i, j), ct.maximum(acc + shift, 0.0).astype(c.dtype))


@case("ours")
def ours_gemm_persistent(r):
    a, b, bias = (arr(r.normal(*s), "f16") for s in ((304, 136), (336, 136), (336,)))
    want = np.maximum(a.f64 @ b.f64.T + bias.f64, 0)
    return Launch(ours_gemm_persistent_kernel, (2,),
                  [a, b, bias, out((304, 336), "f16"), 128, 256, 64],
                  {"c": rounded(want, "f16", 2e-3)})


@ct.kernel
def ours_attention_kernel(q, k, v, o, scale, TM: ct.Constant[int], TN: ct.Constant[int],
                          D: ct.Constant[int]):
    """`scale` holds log2(e) / √D."""
    i = ct.bid(0)
    keys = k.shape[0]
    qt = ct.load(q, (i, 0), (TM, D), padding_mode=ZERO)
    top = ct.full((TM, 1), -INF, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(keys, TN)):
        kt = ct.load(k, (0, j), (D, TN), order=(1, 0), padding_mode=ZERO)
        s = ct.mma(qt, kt, ct.zeros((TM, TN), ct.float32))
        inside = ct.arange(TN, dtype=ct.int32)[None, :] < keys - j * TN
        s = ct.where(inside, s * scale, -INF)
        new = ct.maximum(top, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - new, flush_to_zero=True)
        alpha = ct.exp2(top - new, flush_to_zero=True)
        total = total * alpha + ct.sum(p, axis=1, keepdims=True)
        vt = ct.load(v, (j, 0), (TN, D), padding_mode=ZERO)
        acc = ct.mma(p.astype(v.dtype), vt, acc * alpha)
        top = new
    acc = ct.truediv(acc, total, flush_to_zero=True, rounding_mode=ct.RoundingMode.APPROX)
    ct.store(o, (i, 0), acc.astype(o.dtype))


@case("ours")
def ours_attention_d128(r):
    q, k, v = (arr(r.normal(n, 128), "f16") for n in (200, 136, 136))
    want = attention(q.f64[None], k.f64[None], v.f64[None], 128 ** -0.5)[0]
    return Launch(ours_attention_kernel, (2,),
                  [q, k, v, out((200, 128), "f16"), f32(0.12751743), 128, 128, 128],
                  {"o": rounded(want, "f16", 2e-3)})


@ct.kernel
def ours_softmax_kernel(x, y, ROWS: ct.Constant[int], T: ct.Constant[int]):
    i = ct.bid(0)
    t = ct.load(x, (i, 0), (ROWS, T), padding_mode=NEG_INF)
    e = ct.exp(t - ct.max(t, axis=1, keepdims=True))
    ct.store(y, (i, 0), e / ct.sum(e, axis=1, keepdims=True))


@case("ours")
def ours_softmax_rows(r):
    x = arr(r.normal(9, 1000))
    e = np.exp(x.f64 - x.f64.max(1, keepdims=True))
    return Launch(ours_softmax_kernel, (3,), [x, out((9, 1000)), 4, 1024],
                  {"y": near(e / e.sum(1, keepdims=True), 1e-5, 1e-7)})


@ct.kernel
def ours_layer_norm_kernel(x, w, b, y, mean, rstd, ROWS: ct.Constant[int], T: ct.Constant[int]):
    i = ct.bid(0)
    n = x.shape[1]
    t = ct.load(x, (i, 0), (ROWS, T), padding_mode=ZERO)
    m = ct.sum(t, axis=1, keepdims=True) / n
    d = ct.where(ct.arange(T, dtype=ct.int32)[None, :] < n, t - m, 0.0)
    r = ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / n + 1e-5)
    scale = ct.load(w, 0, (T,), padding_mode=ZERO)
    shift = ct.load(b, 0, (T,), padding_mode=ZERO)
    ct.store(y, (i, 0), d * r * scale + shift)
    ct.store(mean, i, m.reshape((ROWS,)))
    ct.store(rstd, i, r.reshape((ROWS,)))


@case("ours")
def ours_layer_norm(r):
    x, w, b = arr(r.normal(13, 300)), arr(r.normal(300)), arr(r.normal(300))
    m = x.f64.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(x.f64.var(1, keepdims=True) + 1e-5)
    return Launch(ours_layer_norm_kernel, (4,),
                  [x, w, b, out((13, 300)), out(13), out(13), 4, 512],
                  {"y": near((x.f64 - m) * rstd * w.f64 + b.f64, 1e-4, 1e-4),
                   "mean": near(m[:, 0], 1e-4, 1e-5), "rstd": near(rstd[:, 0], 1e-4)})


@ct.kernel
def ours_rms_norm_kernel(x, g, y, T: ct.Constant[int]):
    i = ct.bid(0)
    t = ct.load(x, (i, 0), (1, T), padding_mode=ZERO).astype(ct.float32)
    r = ct.rsqrt(ct.sum(t * t, axis=1, keepdims=True) * (1 / T) + 1e-5)
    scale = ct.load(g, 0, (T,), padding_mode=ZERO).astype(ct.float32)
    ct.store(y, (i, 0), (t * r * scale).astype(y.dtype))


@case("ours")
def ours_rms_norm(r):
    x, g = arr(r.normal(3, 4096), "bf16"), arr(r.normal(4096), "bf16")
    want = x.f64 / np.sqrt((x.f64 ** 2).mean(1, keepdims=True) + 1e-5) * g.f64
    return Launch(ours_rms_norm_kernel, (3,), [x, g, out((3, 4096), "bf16"), 4096],
                  {"y": rounded(want, "bf16", 1e-2)})
