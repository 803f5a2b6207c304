"""Attention kernels."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, f32, i32, Launch, out, rounded

ZERO = ct.PaddingMode.ZERO
INF = float("inf")
LOG2E = 1.4426950408889634


def attention(q, k, v, scale, causal=False, cap=0.0):
    """Reference on (heads, rows, d); query row i sees keys up to i when causal."""
    s = q @ k.transpose(0, 2, 1) * scale
    if cap:
        s = cap * np.tanh(s / cap)
    if causal:
        rows, cols = s.shape[1:]
        s = np.where(np.tri(rows, cols, cols - rows, dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


@ct.kernel
def attention_kernel(q, k, v, o, scale, GROUP: ct.Constant[int], TM: ct.Constant[int],
                     TN: ct.Constant[int], D: ct.Constant[int], CAUSAL: ct.Constant[bool]):
    """GROUP query heads share one key head."""
    i, head = ct.bid(0), ct.bid(1)
    shared = head // GROUP
    keys = k.shape[1]
    qk_scale = scale * LOG2E
    row = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    qt = ct.load(q, (head, i, 0), (1, TM, D), padding_mode=ZERO).reshape((TM, D))
    top = ct.full((TM, 1), -INF, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    if CAUSAL:
        end = min((i + 1) * TM, keys)
    else:
        end = keys
    for j in range(ct.cdiv(end, TN)):
        kt = ct.load(k, (shared, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ZERO, latency=2)
        s = ct.mma(qt, kt.reshape((D, TN)), ct.zeros((TM, TN), ct.float32))
        col = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
        s = ct.where(col < keys, s, -INF)
        if CAUSAL:
            s = ct.where(row >= col, s, -INF)
        new = ct.maximum(top, ct.max(s, axis=1, keepdims=True) * qk_scale)
        p = ct.exp2(s * qk_scale - new, flush_to_zero=True)
        alpha = ct.exp2(top - new, flush_to_zero=True)
        total = total * alpha + ct.sum(p, axis=1, keepdims=True)
        vt = ct.load(v, (shared, j, 0), (1, TN, D), padding_mode=ZERO, latency=4).reshape((TN, D))
        acc = ct.mma(p.astype(v.dtype), vt, acc * alpha)
        top = new
    acc = ct.truediv(acc, total, flush_to_zero=True, rounding_mode=ct.RoundingMode.APPROX)
    ct.store(o, (head, i, 0), acc.reshape((1, TM, D)).astype(o.dtype))


def make(r, heads, shared, rows, keys, d, dtype, tm, tn, causal):
    q, k, v = (arr(r.normal(h, n, d), dtype)
               for h, n in ((heads, rows), (shared, keys), (shared, keys)))
    scale = d ** -0.5
    group = heads // shared
    want = attention(q.f64, k.f64.repeat(group, 0), v.f64.repeat(group, 0), scale, causal)
    return Launch(attention_kernel, (-(-rows // tm), heads),
                  [q, k, v, out((heads, rows, d), dtype), f32(scale), group, tm, tn, d, causal],
                  {"o": rounded(want, dtype, 2e-3 if dtype == "f16" else 1e-2)})


@case("attention")
def attention_d64(r):
    return make(r, 2, 2, 128, 160, 64, "f16", 64, 64, False)


@case("attention")
def attention_d64_ragged(r):
    return make(r, 2, 2, 75, 101, 64, "f16", 64, 32, False)


@case("attention")
def attention_d128_causal(r):
    return make(r, 2, 2, 128, 128, 128, "f16", 64, 64, True)


@case("attention")
def attention_causal_ragged(r):
    return make(r, 2, 2, 90, 90, 64, "bf16", 32, 32, True)


@case("attention")
def attention_gqa(r):
    return make(r, 4, 2, 64, 96, 64, "f16", 64, 32, False)


@ct.kernel
def attention_masked_tail_kernel(q, k, v, o, scale, TM: ct.Constant[int], TN: ct.Constant[int],
                                 D: ct.Constant[int]):
    """Causal; only key tiles that reach the diagonal, or the end of the keys, are masked."""
    i, head = ct.bid(0), ct.bid(1)
    keys = k.shape[1]
    row = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    qt = ct.load(q, (head, i, 0), (1, TM, D), padding_mode=ZERO).reshape((TM, D))
    top = ct.full((TM, 1), -INF, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    masked = min(i * TM // TN, keys // TN)
    for j in range(ct.cdiv(min((i + 1) * TM, keys), TN)):
        kt = ct.load(k, (head, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ZERO)
        s = ct.mma(qt, kt.reshape((D, TN)), ct.zeros((TM, TN), ct.float32))
        if j >= masked:
            col = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
            s = ct.where((col < keys) & (row >= col), s, -INF)
        new = ct.maximum(top, ct.max(s, axis=1, keepdims=True) * (scale * LOG2E))
        p = ct.exp2(s * (scale * LOG2E) - new, flush_to_zero=True)
        alpha = ct.exp2(top - new, flush_to_zero=True)
        total = total * alpha + ct.sum(p, axis=1, keepdims=True)
        vt = ct.load(v, (head, j, 0), (1, TN, D), padding_mode=ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(v.dtype), vt, acc * alpha)
        top = new
    ct.store(o, (head, i, 0), (acc / total).reshape((1, TM, D)).astype(o.dtype))


def make_masked_tail(r, heads, rows, d, tm, tn):
    q, k, v = (arr(r.normal(heads, rows, d), "f16") for _ in range(3))
    want = attention(q.f64, k.f64, v.f64, d ** -0.5, True)
    return Launch(attention_masked_tail_kernel, (-(-rows // tm), heads),
                  [q, k, v, out((heads, rows, d), "f16"), f32(d ** -0.5), tm, tn, d],
                  {"o": rounded(want, "f16", 2e-3)})


@case("attention")
def attention_masked_tail(r):
    return make_masked_tail(r, 2, 200, 64, 128, 64)


@case("attention")
def attention_masked_tail_256(r):
    """On sm_100a the tiles of the second loop lie where those of the first one lay."""
    return make_masked_tail(r, 1, 520, 64, 256, 128)


@ct.kernel
def attention_batch_kernel(q, k, v, o, scale, TM: ct.Constant[int], TN: ct.Constant[int],
                           D: ct.Constant[int], INNER: ct.Constant[bool]):
    """Tensors of four dimensions: batch, head, row, d; or with the heads inside: batch, row, head, d."""
    i, head, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    keys = k.shape[1] if INNER else k.shape[2]
    if INNER:
        qt = ct.load(q, (batch, i, head, 0), (1, TM, 1, D), padding_mode=ZERO).reshape((TM, D))
    else:
        qt = ct.load(q, (batch, head, i, 0), (1, 1, TM, D), padding_mode=ZERO).reshape((TM, D))
    top = ct.full((TM, 1), -INF, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(keys, TN)):
        if INNER:
            kt = ct.load(k, (batch, head, 0, j), (1, 1, D, TN), order=(0, 2, 3, 1), padding_mode=ZERO)
            vt = ct.load(v, (batch, j, head, 0), (1, TN, 1, D), padding_mode=ZERO)
        else:
            kt = ct.load(k, (batch, head, 0, j), (1, 1, D, TN), order=(0, 1, 3, 2), padding_mode=ZERO)
            vt = ct.load(v, (batch, head, j, 0), (1, 1, TN, D), padding_mode=ZERO)
        s = ct.mma(qt, kt.reshape((D, TN)), ct.zeros((TM, TN), ct.float32))
        s = ct.where(j * TN + ct.arange(TN, dtype=ct.int32)[None, :] < keys, s, -INF)
        new = ct.maximum(top, ct.max(s, axis=1, keepdims=True) * (scale * LOG2E))
        p = ct.exp2(s * (scale * LOG2E) - new, flush_to_zero=True)
        alpha = ct.exp2(top - new, flush_to_zero=True)
        total = total * alpha + ct.sum(p, axis=1, keepdims=True)
        acc = ct.mma(p.astype(v.dtype), vt.reshape((TN, D)), acc * alpha)
        top = new
    acc = (acc / total).astype(o.dtype)
    if INNER:
        ct.store(o, (batch, i, head, 0), acc.reshape((1, TM, 1, D)))
    else:
        ct.store(o, (batch, head, i, 0), acc.reshape((1, 1, TM, D)))


def make_batch(r, inner, rows, keys, d, tm, tn):
    batches, heads = 2, 2
    q, k, v = (r.normal(batches * heads, n, d) for n in (rows, keys, keys))
    scale = d ** -0.5

    def swapped(x):
        return x.transpose(0, 2, 1, 3) if inner else x

    q, k, v = (arr(np.ascontiguousarray(swapped(x.reshape(batches, heads, -1, d))), "f16")
               for x in (q, k, v))
    plain = [swapped(x.f64).reshape(batches * heads, -1, d) for x in (q, k, v)]
    want = np.ascontiguousarray(swapped(attention(*plain, scale).reshape(batches, heads, rows, d)))
    return Launch(attention_batch_kernel, (-(-rows // tm), heads, batches),
                  [q, k, v, out(want.shape, "f16"), f32(scale), tm, tn, d, inner],
                  {"o": rounded(want, "f16", 2e-3)})


@case("attention")
def attention_heads_outside(r):
    return make_batch(r, False, 100, 130, 64, 64, 64)


@case("attention")
def attention_heads_inside(r):
    return make_batch(r, True, 70, 101, 64, 64, 32)


@ct.kernel
def attention_cap_kernel(q, k, v, o, scale, cap, TM: ct.Constant[int], TN: ct.Constant[int],
                         D: ct.Constant[int], WINDOW: ct.Constant[int]):
    """Soft cap on the scores and a sliding window over the keys."""
    i, head = ct.bid(0), ct.bid(1)
    row = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    qt = ct.load(q, (i, head, 0), (TM, 1, D), padding_mode=ZERO).reshape((TM, D))
    top = ct.full((TM, 1), -1e30, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    first = max(i * TM - WINDOW + 1, 0) // TN
    for j in range(first, ct.cdiv(min((i + 1) * TM, k.shape[0]), TN)):
        kt = ct.load(k, (j, head, 0), (TN, 1, D), padding_mode=ZERO).reshape((TN, D))
        s = ct.mma(qt, kt.transpose(), ct.zeros((TM, TN), ct.float32)) * scale
        s = cap * ct.tanh(s / cap, rounding_mode=ct.RoundingMode.APPROX)
        col = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
        seen = (col <= row) & (col > row - WINDOW) & (col < k.shape[0])
        s = ct.where(seen, s, -INF)
        new = ct.maximum(top, ct.max(s, axis=1, keepdims=True))
        p = ct.exp(s - new)
        alpha = ct.exp(top - new)
        total = total * alpha + ct.sum(p, axis=1, keepdims=True)
        vt = ct.load(v, (j, head, 0), (TN, 1, D), padding_mode=ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(v.dtype), vt, acc * alpha)
        top = new
    ct.store(o, (i, head, 0), (acc / total).reshape((TM, 1, D)).astype(o.dtype))


@case("attention")
def attention_softcap_window(r):
    n, h, d, window, cap = 100, 2, 32, 40, 3.0
    q, k, v = (arr(r.normal(n, h, d), "bf16") for _ in range(3))
    s = np.einsum("ihd,jhd->hij", q.f64, k.f64) * d ** -0.5 * 2
    s = cap * np.tanh(s / cap)
    i, j = np.indices((n, n))
    s = np.where((j <= i) & (j > i - window), s, -np.inf)
    p = np.exp(s)
    want = np.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), v.f64)
    return Launch(attention_cap_kernel, (4, 2),
                  [q, k, v, out((n, h, d), "bf16"), f32(d ** -0.5 * 2), f32(cap), 32, 32, d,
                   window],
                  {"o": rounded(want, "bf16", 1e-2)})


@ct.kernel
def attention_paged_kernel(q, k, v, pages, lengths, o, scale, P: ct.Constant[int],
                           H: ct.Constant[int], D: ct.Constant[int]):
    """One query row per sequence, H heads padded; keys live in pages of P rows.

    k and v are (page, row, D) and shared by all heads.
    """
    n = ct.bid(0)
    length = ct.gather(lengths, n)
    qt = ct.load(q, (n, 0, 0), (1, H, D), padding_mode=ZERO).reshape((H, D))
    top = ct.full((H, 1), -INF, ct.float32)
    total = ct.zeros((H, 1), ct.float32)
    acc = ct.zeros((H, D), ct.float32)
    for j in range(ct.cdiv(length, P)):
        page = ct.gather(pages, (n, j))
        kt = ct.load(k, (page, 0, 0), (1, P, D)).reshape((P, D))
        vt = ct.load(v, (page, 0, 0), (1, P, D)).reshape((P, D))
        s = ct.mma(qt, kt.transpose(), ct.zeros((H, P), ct.float32)) * scale
        inside = j * P + ct.arange(P, dtype=ct.int32) < length
        s = ct.where(inside[None, :], s, -INF)
        new = ct.maximum(top, ct.max(s, axis=1, keepdims=True))
        p = ct.exp(s - new)
        alpha = ct.exp(top - new)
        total = total * alpha + ct.sum(p, axis=1, keepdims=True)
        acc = ct.mma(p.astype(v.dtype), vt, acc * alpha)
        top = new
    ct.store(o, (n, 0, 0), (acc / total).reshape((1, H, D)).astype(o.dtype))


@case("attention")
def attention_paged_decode(r):
    n, h, d, p = 3, 6, 64, 16
    lengths = np.array([37, 16, 60])
    need = -(-lengths // p)
    order = r.perm(12)
    pages = np.zeros((n, need.max()), int)
    taken = 0
    for i, m in enumerate(need):
        pages[i, :m] = order[taken:taken + m]
        taken += m
    q = arr(r.normal(n, h, d), "f16")
    k, v = arr(r.normal(12, p, d), "f16"), arr(r.normal(12, p, d), "f16")
    want = []
    for i in range(n):
        ks, vs = (x.f64[pages[i]].reshape(-1, d)[:lengths[i]][None] for x in (k, v))
        want.append(attention(q.f64[i][None], ks, vs, d ** -0.5)[0])
    return Launch(attention_paged_kernel, (n,),
                  [q, k, v, arr(pages, "i32"), arr(lengths, "i32"), out((n, h, d), "f16"),
                   f32(d ** -0.5), p, 8, d],
                  {"o": rounded(np.stack(want), "f16", 2e-3)})


@ct.kernel
def attention_gather_kernel(q, k, v, pages, o, length, scale, P: ct.Constant[int],
                            T: ct.Constant[int], D: ct.Constant[int]):
    """Pages found element by element: rows of a tile may come from several pages."""
    d = ct.arange(D, dtype=ct.int32)
    qt = ct.gather(q, (ct.bid(0), d)).reshape((1, D))
    top, total = ct.full((1, 1), -INF, ct.float32), ct.zeros((1, 1), ct.float32)
    acc = ct.zeros((1, D), ct.float32)
    for j in range(ct.cdiv(length, T)):
        at = j * T + ct.arange(T, dtype=ct.int32)
        inside = at < length
        page = ct.gather(pages, at // P, mask=inside)
        row = (page * P + at % P)[:, None]
        kt = ct.gather(k, (row, d[None, :]), mask=inside[:, None]).astype(ct.float32)
        vt = ct.gather(v, (row, d[None, :]), mask=inside[:, None]).astype(ct.float32)
        s = ct.sum(kt * qt.astype(ct.float32), axis=1).reshape((1, T)) * scale
        s = ct.where(inside[None, :], s, -INF)
        new = ct.maximum(top, ct.max(s, axis=1, keepdims=True))
        p, alpha = ct.exp(s - new), ct.exp(top - new)
        total = total * alpha + ct.sum(p, axis=1, keepdims=True)
        acc = acc * alpha + ct.sum(p.reshape((T, 1)) * vt, axis=0).reshape((1, D))
        top = new
    ct.scatter(o, (ct.bid(0), d), (acc / total).reshape((D,)).astype(o.dtype))


@case("attention")
def attention_paged_gather(r):
    heads, d, p, length = 4, 32, 4, 50
    pages = r.perm(16)[:13]
    q, k, v = arr(r.normal(heads, d), "bf16"), arr(r.normal(64, d), "bf16"), \
        arr(r.normal(64, d), "bf16")
    rows = (pages[:, None] * p + np.arange(p)).reshape(-1)[:length]
    want = attention(q.f64[None], k.f64[rows][None], v.f64[rows][None], d ** -0.5)[0]
    return Launch(attention_gather_kernel, (heads,),
                  [q, k, v, arr(pages, "i32"), out((heads, d), "bf16"), i32(length),
                   f32(d ** -0.5), p, 16, d],
                  {"o": rounded(want, "bf16", 2e-3)})


@ct.kernel
def decode_split_kernel(q, k, v, part, lse, scale, M: ct.Constant[int], T: ct.Constant[int],
                        D: ct.Constant[int]):
    """One query row padded to M rows; each block takes one tile of keys."""
    j, head = ct.bid(0), ct.bid(1)
    row = ct.arange(M, dtype=ct.int32)
    d = ct.arange(D, dtype=ct.int32)
    first = (row == 0)[:, None]
    qt = ct.where(first, ct.gather(q, (head, d))[None, :], ct.full((), 0, q.dtype))
    kt = ct.load(k, (head, 0, j), (1, D, T), order=(0, 2, 1), padding_mode=ZERO).reshape((D, T))
    vt = ct.load(v, (head, j, 0), (1, T, D), padding_mode=ZERO).reshape((T, D))
    s = ct.mma(qt, kt, ct.zeros((M, T), ct.float32)) * scale
    s = ct.where((j * T + ct.arange(T, dtype=ct.int32) < k.shape[1])[None, :], s, -INF)
    top = ct.max(s, axis=1, keepdims=True)
    p = ct.exp(s - top)
    total = ct.sum(p, axis=1, keepdims=True)
    acc = ct.mma(p.astype(v.dtype), vt, ct.zeros((M, D), ct.float32)) / total
    ct.scatter(part, (head, j, row[:, None], d[None, :]), acc)
    ct.scatter(lse, (head, j, row), (top + ct.log(total)).reshape((M,)))


@case("attention")
def decode_split_keys(r):
    heads, keys, d, t = 2, 117, 64, 32
    q, k, v = arr(r.normal(heads, d), "f16"), arr(r.normal(heads, keys, d), "f16"), \
        arr(r.normal(heads, keys, d), "f16")
    part, lse = np.zeros((heads, 4, 1, d)), np.zeros((heads, 4, 1))
    for j in range(4):
        ks, vs = k.f64[:, j * t:(j + 1) * t], v.f64[:, j * t:(j + 1) * t]
        s = np.einsum("hd,hnd->hn", q.f64, ks) * d ** -0.5
        lse[:, j, 0] = np.log(np.exp(s).sum(1))
        part[:, j, 0] = np.einsum("hn,hnd->hd", np.exp(s - lse[:, j]), vs)
    # Only row 0 exists in the arrays; the padding rows are clipped.
    return Launch(decode_split_kernel, (4, heads),
                  [q, k, v, out((heads, 4, 1, d)), out((heads, 4, 1)), f32(d ** -0.5), 16, t, d],
                  {"part": (part, 1e-3, 2e-3), "lse": (lse, 1e-4, 1e-4)})


@ct.kernel
def decode_merge_kernel(part, lse, o, S: ct.Constant[int], D: ct.Constant[int]):
    """Join the parts of one head by their log sums."""
    head = ct.bid(0)
    logs = ct.load(lse, (head, 0), (1, S), padding_mode=ct.PaddingMode.NEG_INF).reshape((S, 1))
    v = ct.load(part, (head, 0, 0), (1, S, D), padding_mode=ZERO).reshape((S, D))
    w = ct.exp2((logs - ct.max(logs)) * LOG2E)
    ct.store(o, (head, 0), (ct.sum(v * w, axis=0) / ct.sum(w)).reshape((1, D)).astype(o.dtype))


@case("attention")
def decode_merge(r):
    heads, s, d = 4, 5, 64
    part, lse = arr(r.normal(heads, s, d)), arr(r.normal(heads, s, scale=2))
    w = np.exp(lse.f64)[..., None]
    want = (part.f64 * w).sum(1) / w.sum(1)
    return Launch(decode_merge_kernel, (heads,), [part, lse, out((heads, d), "f16"), 8, d],
                  {"o": rounded(want, "f16", 1e-4)})


@ct.kernel
def attention_backward_kernel(q, k, v, do, lse, delta, dk, dv, scale, T: ct.Constant[int],
                              D: ct.Constant[int]):
    """Gradients of one tile of keys and values, looping over query tiles."""
    j, head = ct.bid(0), ct.bid(1)
    kt = ct.load(k, (head, j, 0), (1, T, D), padding_mode=ZERO).reshape((T, D))
    vt = ct.load(v, (head, j, 0), (1, T, D), padding_mode=ZERO).reshape((T, D))
    gk, gv = ct.zeros((T, D), ct.float32), ct.zeros((T, D), ct.float32)
    zero = ct.zeros((T, T), ct.float32)
    for i in range(ct.num_tiles(q, 1, (1, T, D))):
        qt = ct.load(q, (head, i, 0), (1, T, D), padding_mode=ZERO).reshape((T, D))
        dt = ct.load(do, (head, i, 0), (1, T, D), padding_mode=ZERO).reshape((T, D))
        ls = ct.load(lse, (head, i), (1, T), padding_mode=ZERO).reshape((T, 1))
        de = ct.load(delta, (head, i), (1, T), padding_mode=ZERO).reshape((T, 1))
        p = ct.exp(ct.mma(qt, kt.transpose(), zero) * scale - ls)
        gv = ct.mma(p.astype(q.dtype).transpose(), dt, gv)
        ds = p * (ct.mma(dt, vt.transpose(), zero) - de) * scale
        gk = ct.mma(ds.astype(q.dtype).transpose(), qt, gk)
    ct.store(dk, (head, j, 0), gk.reshape((1, T, D)).astype(dk.dtype))
    ct.store(dv, (head, j, 0), gv.reshape((1, T, D)).astype(dv.dtype))


@case("attention")
def attention_backward(r):
    h, n, m, d = 2, 70, 60, 32
    q, do = arr(r.normal(h, n, d), "f16"), arr(r.normal(h, n, d), "f16")
    k, v = arr(r.normal(h, m, d), "f16"), arr(r.normal(h, m, d), "f16")
    scale = d ** -0.5
    s = q.f64 @ k.f64.transpose(0, 2, 1) * scale
    lse = np.log(np.exp(s).sum(-1))
    p = np.exp(s - lse[..., None])
    delta = (do.f64 * (p @ v.f64)).sum(-1)
    dv = p.transpose(0, 2, 1) @ do.f64
    ds = p * (do.f64 @ v.f64.transpose(0, 2, 1) - delta[..., None]) * scale
    dk = ds.transpose(0, 2, 1) @ q.f64
    return Launch(attention_backward_kernel, (2, h),
                  [q, k, v, do, arr(lse), arr(delta), out((h, m, d), "f16"), out((h, m, d), "f16"),
                   f32(scale), 32, d],
                  {"dk": rounded(dk, "f16", 4e-3), "dv": rounded(dv, "f16", 4e-3)})
