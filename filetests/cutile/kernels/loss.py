"""Losses."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, i32, inout, Launch, near, out, rounded

INF = float("inf")


@ct.kernel
def cross_entropy_kernel(x, target, loss, lse, ignore, T: ct.Constant[int]):
    """Online log-sum-exp over the classes; rows with the ignored label give 0."""
    row = ct.bid(0)
    n = x.shape[1]
    label = ct.gather(target, row)
    top, total = ct.full((1, 1), -INF, ct.float32), ct.zeros((1, 1), ct.float32)
    for j in range(ct.cdiv(n, T)):
        v = ct.load(x, (row, j), (1, T), padding_mode=ct.PaddingMode.NEG_INF).astype(ct.float32)
        new = ct.maximum(top, ct.max(v, axis=1, keepdims=True))
        total = total * ct.exp(top - new) + ct.sum(ct.exp(v - new), axis=1, keepdims=True)
        top = new
    both = (top + ct.log(total)).item()
    ct.scatter(lse, row, both)
    if label == ignore:
        ct.scatter(loss, row, 0.0)
    else:
        ct.scatter(loss, row, both - ct.gather(x, (row, label)).astype(ct.float32))


@case("loss")
def cross_entropy(r):
    x, t = arr(r.normal(7, 500, scale=2), "bf16"), r.ints(0, 500, 7)
    t[3] = -100
    lse = np.log(np.exp(x.f64).sum(1))
    loss = np.where(t < 0, 0, lse - x.f64[np.arange(7), t])
    return Launch(cross_entropy_kernel, (7,),
                  [x, arr(t, "i64"), out(7), out(7), i32(-100), 128],
                  {"loss": near(loss, 1e-5, 1e-5), "lse": near(lse, 1e-5, 1e-5)})


@ct.kernel
def cross_entropy_backward_kernel(x, target, lse, grad, N: ct.Constant[int], T: ct.Constant[int]):
    row = ct.bid(0)
    col = ct.bid(1) * T + ct.arange(T, dtype=ct.int32)
    label = ct.gather(target, row)
    p = ct.exp(ct.gather(x, (row, col)).astype(ct.float32) - ct.gather(lse, row))
    g = ct.where(col == label, p - 1.0, p)
    ct.scatter(grad, (row, col), g.astype(grad.dtype))


@case("loss")
def cross_entropy_backward(r):
    x, t = arr(r.normal(4, 300), "f16"), r.ints(0, 300, 4)
    lse = np.log(np.exp(x.f64).sum(1))
    g = np.exp(x.f64 - lse[:, None])
    g[np.arange(4), t] -= 1
    return Launch(cross_entropy_backward_kernel, (4, 2),
                  [x, arr(t, "i32"), arr(lse), out((4, 300), "f16"), 300, 256],
                  {"grad": rounded(g, "f16", 1e-5)})


@ct.kernel
def divergence_kernel(p, q, total, T: ct.Constant[int]):
    """Sum of p (log p - log q), f64 atomics."""
    i = ct.bid(0)
    a = ct.load(p, i, (T,), padding_mode=ct.PaddingMode.ZERO)
    b = ct.load(q, i, (T,), padding_mode=ct.PaddingMode.ZERO)
    term = ct.where(a > 0.0, a * (ct.log2(a) - ct.log2(ct.maximum(b, 1e-30))), 0.0)
    ct.atomic_add(total, 0, ct.sum(term.astype(ct.float64)) * 0.6931471805599453)


@case("loss")
def kl_divergence(r):
    p, q = arr(r.uniform(1000, lo=.1)), arr(r.uniform(1000, lo=.1))
    want = (p.f64 * np.log(p.f64 / q.f64)).sum()
    return Launch(divergence_kernel, (4,), [p, q, inout(np.zeros(1), "f64"), 256],
                  {"total": near(want[None], 1e-5, 1e-4)})
