"""Convolutions and stencils."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, exact, Launch, near, out, rounded


@ct.kernel
def conv2d_kernel(x, w, y, H: ct.Constant[int], W: ct.Constant[int], C: ct.Constant[int],
                  R: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int],
                  TK: ct.Constant[int]):
    """Implicit matrix product; x is (n, H, W, C), w is (R R C, out), no padding."""
    OH, OW = H - R + 1, W - R + 1
    m = ct.bid(0) * TM + ct.arange(TM, dtype=ct.int32)
    n, p, q = m // (OH * OW), m // OW % OH, m % OW
    col = ct.bid(1) * TN + ct.arange(TN, dtype=ct.int32)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(R * R * C, TK)):
        at = k * TK + ct.arange(TK, dtype=ct.int32)
        r, s, c = at // (R * C), at // C % R, at % C
        inside = (at < R * R * C)[None, :]
        a = ct.gather(x, (n[:, None], p[:, None] + r[None, :], q[:, None] + s[None, :], c[None, :]),
                      mask=inside)
        b = ct.gather(w, (at[:, None], col[None, :]))
        acc = ct.mma(a, b, acc)
    ct.scatter(y, (m[:, None], col[None, :]), acc.astype(y.dtype))


@case("conv")
def conv2d_implicit(r):
    n, h, w, c, k, f = 2, 10, 9, 5, 3, 24
    x, f_ = arr(r.normal(n, h, w, c), "f16"), arr(r.normal(k * k * c, f), "f16")
    oh, ow = h - k + 1, w - k + 1
    win = np.lib.stride_tricks.sliding_window_view(x.f64, (k, k), (1, 2))
    cols = win.transpose(0, 1, 2, 4, 5, 3).reshape(n * oh * ow, -1)
    return Launch(conv2d_kernel, (4, 1),
                  [x, f_, out((n * oh * ow, f), "f16"), h, w, c, k, 32, 32, 16],
                  {"y": rounded(cols @ f_.f64, "f16", 2e-3)})


@ct.kernel
def stencil_kernel(x, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    """Five points; outside the grid counts as 0."""
    i = (ct.bid(0) * TM + ct.arange(TM, dtype=ct.int32))[:, None]
    j = (ct.bid(1) * TN + ct.arange(TN, dtype=ct.int32))[None, :]
    around = ct.gather(x, (i - 1, j)) + ct.gather(x, (i + 1, j)) + \
        ct.gather(x, (i, j - 1)) + ct.gather(x, (i, j + 1))
    ct.scatter(y, (i, j), around - 4.0 * ct.gather(x, (i, j)))


@case("conv")
def stencil_2d(r):
    x = arr(r.normal(40, 50))
    p = np.pad(x.f64, 1)
    want = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * x.f64
    return Launch(stencil_kernel, (3, 2), [x, out((40, 50)), 16, 32], {"y": near(want, 1e-5, 1e-5)})


@ct.kernel
def conv1d_kernel(x, w, bias, y, R: ct.Constant[int], TM: ct.Constant[int], TN: ct.Constant[int]):
    """Causal depthwise convolution along the first axis, then SiLU."""
    t = (ct.bid(0) * TM + ct.arange(TM, dtype=ct.int32))[:, None]
    c = (ct.bid(1) * TN + ct.arange(TN, dtype=ct.int32))[None, :]
    acc = ct.zeros((TM, TN), ct.float32) + ct.gather(bias, c).astype(ct.float32)
    for k in range(R):
        v = ct.gather(x, (t + (k - R + 1), c)).astype(ct.float32)
        acc = acc + v * ct.gather(w, (k, c)).astype(ct.float32)
    ct.scatter(y, (t, c), (acc / (1.0 + ct.exp(-acc))).astype(y.dtype))


@case("conv")
def conv1d_causal(r):
    n, c, k = 50, 40, 4
    x, w, b = arr(r.normal(n, c), "bf16"), arr(r.normal(k, c), "bf16"), arr(r.normal(c), "bf16")
    p = np.pad(x.f64, ((k - 1, 0), (0, 0)))
    v = sum(p[i:i + n] * w.f64[i] for i in range(k)) + b.f64
    return Launch(conv1d_kernel, (4, 2), [x, w, b, out((n, c), "bf16"), k, 16, 32],
                  {"y": rounded(v / (1 + np.exp(-v)), "bf16", 2e-3)})


@ct.kernel
def max_pool_kernel(x, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    """2 by 2 maximum by reshape and two reductions."""
    i, j = ct.bid(0), ct.bid(1)
    v = ct.load(x, (i, j), (2 * TM, 2 * TN), padding_mode=ct.PaddingMode.NEG_INF)
    v = ct.max(v.reshape((2 * TM, TN, 2)), axis=2)
    v = ct.max(v.reshape((TM, 2, TN)), axis=1)
    ct.store(y, (i, j), v)


@case("conv")
def max_pool(r):
    x = arr(r.normal(30, 44), "f16")
    want = x.f64.reshape(15, 2, 22, 2).max((1, 3))
    return Launch(max_pool_kernel, (2, 2), [x, out((15, 22), "f16"), 8, 16], {"y": exact(want)})
