"""Kernels that mostly move data."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, exact, i32, inout, Launch, near, out, rounded

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def transpose_kernel(x, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, (j, i), ct.transpose(ct.load(x, (i, j), (TM, TN))))


@case("movement")
def transpose_tile(r):
    x = arr(r.ints(-30000, 30000, 50, 100), "i16")
    return Launch(transpose_kernel, (2, 2), [x, out((100, 50), "i16"), 32, 64],
                  {"y": exact(x.val.T)})


@ct.kernel
def transpose_view_kernel(x, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    """The load is transposed by its view, the store is plain."""
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, (j, i), ct.load(x, (j, i), (TN, TM), order=(1, 0)))


@case("movement")
def transpose_view(r):
    x = arr(r.normal(50, 70))
    return Launch(transpose_view_kernel, (2, 2), [x, out((70, 50)), 32, 64],
                  {"y": exact(x.val.T)})


@ct.kernel
def transpose_store_kernel(x, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, (i, j), ct.load(x, (i, j), (TM, TN)), order="F")


@case("movement")
def transpose_store(r):
    x = arr(r.normal(30, 64), "f16")
    return Launch(transpose_store_kernel, (2, 2), [x, out((64, 30), "f16"), 16, 32],
                  {"y": exact(x.val.T)})


@ct.kernel
def permute_kernel(x, y, A: ct.Constant[int], B: ct.Constant[int], C: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0, 0), (A, B, C), padding_mode=ZERO)
    ct.store(y, (0, i, 0), ct.permute(v, (2, 0, 1)))


@case("movement")
def permute_3d(r):
    x = arr(r.normal(7, 15, 30))
    return Launch(permute_kernel, (2,), [x, out((30, 7, 15)), 4, 16, 32],
                  {"y": exact(x.val.transpose(2, 0, 1))})


@ct.kernel
def rope_half_kernel(x, cos, sin, y, H: ct.Constant[int], D: ct.Constant[int]):
    """Element d pairs with d + D; x is (sequence, heads, 2 D)."""
    t = ct.bid(0)
    c, s = ct.load(cos, (t, 0), (1, D)), ct.load(sin, (t, 0), (1, D))
    a = ct.load(x, (t, 0, 0), (1, H, D), padding_mode=ZERO).reshape((H, D)).astype(ct.float32)
    b = ct.load(x, (t, 0, 1), (1, H, D), padding_mode=ZERO).reshape((H, D)).astype(ct.float32)
    ct.store(y, (t, 0, 0), (a * c - b * s).reshape((1, H, D)).astype(y.dtype))
    ct.store(y, (t, 0, 1), (b * c + a * s).reshape((1, H, D)).astype(y.dtype))


def angles(n, d):
    theta = np.arange(n)[:, None] * 10000.0 ** (-np.arange(d) / d)
    return arr(np.cos(theta)), arr(np.sin(theta))


@case("rope")
def rope_half(r):
    n, h, d = 6, 5, 32
    x = arr(r.normal(n, h, 2 * d), "bf16")
    cos, sin = angles(n, d)
    a, b = x.f64[..., :d], x.f64[..., d:]
    c, s = cos.f64[:, None], sin.f64[:, None]
    want = np.concatenate([a * c - b * s, b * c + a * s], -1)
    return Launch(rope_half_kernel, (n,), [x, cos, sin, out((n, h, 2 * d), "bf16"), 8, d],
                  {"y": rounded(want, "bf16", 1e-3)})


@ct.kernel
def rope_pairs_kernel(x, cos, sin, H: ct.Constant[int], D: ct.Constant[int]):
    """Element 2d pairs with 2d + 1, in place, through pointers."""
    t = ct.bid(0)
    head = ct.arange(H, dtype=ct.int32)[:, None]
    d = ct.arange(D, dtype=ct.int32)[None, :]
    c, s = ct.gather(cos, (t, d)), ct.gather(sin, (t, d))
    a, b = ct.gather(x, (t, head, 2 * d)), ct.gather(x, (t, head, 2 * d + 1))
    a, b = a.astype(ct.float32), b.astype(ct.float32)
    ct.scatter(x, (t, head, 2 * d), (a * c - b * s).astype(x.dtype))
    ct.scatter(x, (t, head, 2 * d + 1), (b * c + a * s).astype(x.dtype))


@case("rope")
def rope_pairs(r):
    n, h, d = 5, 6, 32
    x = inout(r.normal(n, h, 2 * d), "f16")
    cos, sin = angles(n, d)
    a, b = x.f64[..., ::2], x.f64[..., 1::2]
    c, s = cos.f64[:, None], sin.f64[:, None]
    want = np.stack([a * c - b * s, b * c + a * s], -1).reshape(n, h, 2 * d)
    return Launch(rope_pairs_kernel, (n,), [x, cos, sin, 8, d],
                  {"x": rounded(want, "f16", 1e-3)})


@ct.kernel
def rope_reshape_kernel(x, cos, sin, y, D: ct.Constant[int], T: ct.Constant[int]):
    """Pairs split by reshape and extract, joined by cat."""
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (T, 2 * D), padding_mode=ZERO).reshape((T, D, 2))
    a = ct.extract(v, (0, 0, 0), (T, D, 1))
    b = ct.extract(v, (0, 0, 1), (T, D, 1))
    c = ct.load(cos, (i, 0), (T, D), padding_mode=ZERO).reshape((T, D, 1))
    s = ct.load(sin, (i, 0), (T, D), padding_mode=ZERO).reshape((T, D, 1))
    ct.store(y, (i, 0), ct.cat((a * c - b * s, b * c + a * s), 2).reshape((T, 2 * D)))


@case("rope")
def rope_pairs_cat(r):
    n, d = 27, 16
    x = arr(r.normal(n, 2 * d))
    cos, sin = angles(n, d)
    a, b, c, s = x.f64[:, ::2], x.f64[:, 1::2], cos.f64, sin.f64
    want = np.stack([a * c - b * s, b * c + a * s], -1).reshape(n, 2 * d)
    return Launch(rope_reshape_kernel, (4,), [x, cos, sin, out((n, 2 * d)), d, 8],
                  {"y": near(want, 1e-5, 1e-5)})


@ct.kernel
def embedding_kernel(table, ids, y, T: ct.Constant[int], D: ct.Constant[int]):
    i = ct.bid(0)
    token = ct.load(ids, i, (T,), padding_mode=ZERO)
    col = ct.bid(1) * D + ct.arange(D, dtype=ct.int32)
    row = i * T + ct.arange(T, dtype=ct.int32)
    v = ct.gather(table, (token[:, None], col[None, :]))
    ct.scatter(y, (row[:, None], col[None, :]), v)


@case("movement")
def embedding(r):
    table, ids = arr(r.normal(100, 90), "bf16"), arr(r.ints(0, 100, 29), "i64")
    return Launch(embedding_kernel, (4, 2), [table, ids, out((29, 90), "bf16"), 8, 64],
                  {"y": exact(table.val[ids.val].astype(np.float32))})


@ct.kernel
def cat_extract_kernel(x, y, swapped, T: ct.Constant[int]):
    """Exchange the halves of each row, and the rows' halves."""
    v = ct.load(x, (ct.bid(0), 0), (T, T))
    left, right = ct.extract(v, (0, 0), (T, T // 2)), ct.extract(v, (0, 1), (T, T // 2))
    ct.store(y, (ct.bid(0), 0), ct.cat((right, left), 1))
    top, low = ct.extract(v, (0, 0), (T // 2, T)), ct.extract(v, (1, 0), (T // 2, T))
    ct.store(swapped, (ct.bid(0), 0), ct.cat((low, top), 0))


@case("movement")
def cat_extract(r):
    x = arr(r.ints(-99, 99, 32, 16), "i32")
    v = x.val.reshape(2, 16, 16)
    return Launch(cat_extract_kernel, (2,), [x, out((32, 16), "i32"), out((32, 16), "i32"), 16],
                  {"y": exact(np.roll(v, 8, 2).reshape(32, 16)),
                   "swapped": exact(np.roll(v, 8, 1).reshape(32, 16))})


@ct.kernel
def insert_kernel(x, small, y, which, T: ct.Constant[int]):
    """Replace one quarter of the tile, chosen at run time."""
    v, s = ct.load(x, (0, 0), (T, T)), ct.load(small, (0, 0), (T // 2, T // 2))
    v = ct.insert(v, (which // 2, which % 2), s)
    ct.store(y, (0, 0), v)


@case("movement")
def insert_block(r):
    x, s = arr(r.normal(32, 32)), arr(r.normal(16, 16))
    want = x.val.copy()
    want[16:, :16] = s.val
    return Launch(insert_kernel, (1,), [x, s, out((32, 32)), i32(2), 32], {"y": exact(want)})


@ct.kernel
def fft_kernel(x, y, f1, t, f2, A: ct.Constant[int], B: ct.Constant[int]):
    """A discrete Fourier transform of A*B points as two small ones with twiddles.

    Complex numbers are pairs along the last axis.
    """
    n = ct.bid(0)
    v = ct.load(x, (n, 0, 0), (1, A * B, 2)).reshape((A, B, 2))
    re = ct.extract(v, (0, 0, 0), (A, B, 1)).reshape((A, B))
    im = ct.extract(v, (0, 0, 1), (A, B, 1)).reshape((A, B))
    w = ct.load(f1, (0, 0, 0), (A, A, 2))
    wr = ct.extract(w, (0, 0, 0), (A, A, 1)).reshape((A, A))
    wi = ct.extract(w, (0, 0, 1), (A, A, 1)).reshape((A, A))
    zero = ct.zeros((A, B), ct.float32)
    ar = ct.mma(wr, re, zero) - ct.mma(wi, im, zero)
    ai = ct.mma(wr, im, zero) + ct.mma(wi, re, zero)
    w = ct.load(t, (0, 0, 0), (A, B, 2))
    tr = ct.extract(w, (0, 0, 0), (A, B, 1)).reshape((A, B))
    ti = ct.extract(w, (0, 0, 1), (A, B, 1)).reshape((A, B))
    br, bi = ar * tr - ai * ti, ar * ti + ai * tr
    w = ct.load(f2, (0, 0, 0), (B, B, 2))
    wr = ct.extract(w, (0, 0, 0), (B, B, 1)).reshape((B, B))
    wi = ct.extract(w, (0, 0, 1), (B, B, 1)).reshape((B, B))
    cr = ct.mma(br, wr, zero) - ct.mma(bi, wi, zero)
    ci = ct.mma(br, wi, zero) + ct.mma(bi, wr, zero)
    cr = ct.permute(cr, (1, 0)).reshape((1, A * B, 1))
    ci = ct.permute(ci, (1, 0)).reshape((1, A * B, 1))
    ct.store(y, (n, 0, 0), ct.cat((cr, ci), 2))


def pairs(z):
    return np.stack([z.real, z.imag], -1)


@case("movement")
def fft_two_step(r):
    a, b, n = 8, 16, 3
    x = arr(r.normal(n, a * b, 2))

    def root(p, q, m):
        return arr(pairs(np.exp(-2j * np.pi * np.outer(np.arange(p), np.arange(q)) / m)))
    z = x.f64[..., 0] + 1j * x.f64[..., 1]
    return Launch(fft_kernel, (n,), [x, out((n, a * b, 2)), root(a, a, a), root(a, b, a * b),
                                     root(b, b, b), a, b],
                  {"y": near(pairs(np.fft.fft(z)), 1e-4, 1e-3)})


@ct.kernel
def hadamard_kernel(x, y, N: ct.Constant[int]):
    """Walsh–Hadamard transform by repeated split and join."""
    v = ct.load(x, (ct.bid(0), 0), (1, N)).reshape((N,))
    for _ in ct.static_iter(range(5)):
        v = v.reshape((2, N // 2))
        a = ct.extract(v, (0, 0), (1, N // 2)).reshape((N // 2, 1))
        b = ct.extract(v, (1, 0), (1, N // 2)).reshape((N // 2, 1))
        v = ct.cat((a + b, a - b), 1).reshape((N,))
    ct.store(y, (ct.bid(0), 0), v.reshape((1, N)))


@case("movement")
def hadamard(r):
    x = arr(r.normal(4, 32))
    h = np.ones((1, 1))
    for _ in range(5):
        h = np.kron(h, [[1, 1], [1, -1]])
    return Launch(hadamard_kernel, (4,), [x, out((4, 32)), 32],
                  {"y": near(x.f64 @ h, 1e-5, 1e-5)})
