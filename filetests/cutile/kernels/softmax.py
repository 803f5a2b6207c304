"""Softmax along rows."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, i32, Launch, near, out, rounded

INF = float("inf")


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@ct.kernel
def softmax_row_kernel(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (row, 0), e / ct.sum(e, axis=1, keepdims=True))


@case("softmax")
def softmax_row(r):
    x = arr(r.normal(8, 1000, scale=3))
    return Launch(softmax_row_kernel, (8,), [x, out((8, 1000)), 1024],
                  {"y": near(softmax(x.f64), 1e-5, 1e-8)})


@ct.kernel
def softmax_online_kernel(x, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    i = ct.bid(0)
    top = ct.full((TM, 1), -INF, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    tiles = ct.num_tiles(x, 1, (TM, TN))
    for j in range(tiles):
        v = ct.load(x, (i, j), (TM, TN), padding_mode=ct.PaddingMode.NEG_INF).astype(ct.float32)
        new = ct.maximum(top, ct.max(v, axis=1, keepdims=True))
        total = total * ct.exp(top - new) + ct.sum(ct.exp(v - new), axis=1, keepdims=True)
        top = new
    for j in range(tiles):
        v = ct.load(x, (i, j), (TM, TN), padding_mode=ct.PaddingMode.NEG_INF).astype(ct.float32)
        ct.store(y, (i, j), (ct.exp(v - top) / total).astype(y.dtype))


@case("softmax")
def softmax_online_128(r):
    """128 rows per block, online over tiles of 64 columns, ragged both ways."""
    x = arr(r.normal(200, 300, scale=3), "f16")
    return Launch(softmax_online_kernel, (2,), [x, out((200, 300), "f16"), 128, 64],
                  {"y": rounded(softmax(x.f64), "f16", 1e-6, slack=2)})


@ct.kernel
def softmax_gather_kernel(x, y, N: ct.Constant[int], T: ct.Constant[int]):
    row = ct.bid(0)
    col = ct.arange(T, dtype=ct.int32)
    v = ct.gather(x, (row, col), padding_value=-INF).astype(ct.float32)
    e = ct.exp2((v - ct.max(v)) * 1.4426950408889634)
    ct.scatter(y, (row, col), (e / ct.sum(e)).astype(y.dtype), mask=col < N)


@case("softmax")
def softmax_gather(r):
    x = arr(r.normal(6, 777, scale=2), "bf16")
    return Launch(softmax_gather_kernel, (6,), [x, out((6, 777), "bf16"), 777, 1024],
                  {"y": rounded(softmax(x.f64), "bf16", 1e-6, slack=2)})


@ct.kernel
def softmax_persistent_kernel(x, y, rows, N: ct.Constant[int]):
    """Each block walks over rows with the stride of the grid."""
    for row in range(ct.bid(0), rows, ct.num_blocks(0)):
        v = ct.load(x, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
        e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
        ct.store(y, (row, 0), e / ct.sum(e, axis=1, keepdims=True))


@case("softmax")
def softmax_persistent(r):
    x = arr(r.normal(19, 250))
    return Launch(softmax_persistent_kernel, (4,), [x, out((19, 250)), i32(19), 256],
                  {"y": near(softmax(x.f64), 1e-5, 1e-8)})
