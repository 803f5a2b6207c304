"""Strided views, gather and scatter views, slices and raw memory."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, exact, i32, inout, Launch, near, out

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def window_kernel(x, y, N: ct.Constant[int], T: ct.Constant[int]):
    """Sliding sums over overlapping tiles: N rows, a new window every 4 elements."""
    i = ct.bid(0)
    view = x.tiled_view((N, T), traversal_steps=(N, 4), padding_mode=ZERO)
    for j in range(view.num_tiles(1)):
        ct.store(y, (i, j), ct.sum(view.load((i, j)), axis=1, keepdims=True))


@case("views")
def strided_view_windows(r):
    x = arr(r.normal(20, 50))
    p = np.pad(x.f64, ((0, 0), (0, 16)))
    want = np.stack([p[:, j:j + 16].sum(1) for j in range(0, 50, 4)], 1)
    return Launch(window_kernel, (3,), [x, out((20, 13)), 8, 16], {"y": near(want, 1e-5, 1e-5)})


@ct.kernel
def gaps_kernel(x, y, T: ct.Constant[int]):
    """Every second tile of both axes, loaded and stored through views with gaps."""
    i, j = ct.bid(0), ct.bid(1)
    source = x.tiled_view((T, T), traversal_steps=(2 * T, 2 * T))
    target = y.tiled_view((T, T), traversal_steps=(2 * T, 2 * T))
    target.store((i, j), source.load((i, j)) * 10)


@case("views")
def strided_view_gaps(r):
    x, y = arr(r.ints(-99, 99, 28, 32), "i32"), inout(r.ints(-99, 99, 28, 32), "i32")
    want = y.val.copy()
    for i in range(0, 28, 16):
        for j in range(0, 32, 16):
            want[i:i + 8, j:j + 8] = x.val[i:i + 8, j:j + 8] * 10
    return Launch(gaps_kernel, (2, 2), [x, y, 8], {"y": exact(want)})


@ct.kernel
def rows_kernel(x, ids, y, T: ct.Constant[int], N: ct.Constant[int]):
    """Rows named by a list; row numbers past the end read 0."""
    i, start = ct.bid(0), ct.bid(1) * N
    rows = ct.load(ids, i, (T,), padding_mode=ZERO)
    v = ct.load_advanced_indexing(x, (rows, ct.Slice(start, N)), padding_mode=ZERO)
    ct.store(y, (i, ct.bid(1)), v)


@case("views")
def gather_view_rows(r):
    x, ids = arr(r.normal(30, 70), "f16"), r.ints(0, 30, 16)
    ids[5] = 30
    want = np.vstack([x.f64, np.zeros(70)])[ids]
    return Launch(rows_kernel, (2, 2), [x, arr(ids, "i32"), out((16, 70), "f16"), 8, 64],
                  {"y": exact(want)})


@ct.kernel
def columns_kernel(x, ids, y, T: ct.Constant[int], N: ct.Constant[int]):
    """Scatter along the second axis."""
    i = ct.bid(0)
    cols = ct.load(ids, 0, (T,))
    v = ct.load(x, (i, 0), (N, T), padding_mode=ZERO)
    ct.store_advanced_indexing(y, (ct.Slice(i * N, N), cols), v)


@case("views")
def scatter_view_columns(r):
    x, ids, y = arr(r.normal(20, 16)), r.perm(40)[:16], inout(np.zeros((20, 40)))
    want = np.zeros((20, 40))
    want[:, ids] = x.f64
    return Launch(columns_kernel, (3,), [x, arr(ids, "i32"), y, 16, 8], {"y": exact(want)})


@ct.kernel
def moe_view_kernel(x, w, ids, expert, y, TM: ct.Constant[int], TN: ct.Constant[int],
                    TK: ct.Constant[int]):
    """Rows gathered through a view feed a product."""
    i = ct.bid(0)
    rows = ct.load(ids, i, (TM,))
    e = ct.gather(expert, i)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(x.shape[1], TK)):
        a = ct.load_advanced_indexing(x, (rows, ct.Slice(k * TK, TK)), padding_mode=ZERO)
        b = ct.load(w, (e, k, 0), (1, TK, TN), padding_mode=ZERO).reshape((TK, TN))
        acc = ct.mma(a, b, acc)
    ct.store(y, (i, 0), acc)


@case("views")
def gather_view_gemm(r):
    x, w = arr(r.normal(50, 48), "bf16"), arr(r.normal(3, 48, 30), "bf16")
    ids, e = r.ints(0, 50, 64), r.ints(0, 3, 4)
    want = np.concatenate([x.f64[ids[i * 16:][:16]] @ w.f64[e[i]] for i in range(4)])
    return Launch(moe_view_kernel, (4,), [x, w, arr(ids, "i32"), arr(e, "i32"), out((64, 30)),
                                          16, 32, 16],
                  {"y": near(want, 1e-5, 1e-3)})


@ct.kernel
def view_atomics_kernel(x, total, top, T: ct.Constant[int], N: ct.Constant[int]):
    """Reductions into memory through a view, without old values."""
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (T, N), padding_mode=ZERO)
    total.tiled_view((N,)).atomic_store_add((0,), ct.sum(v, axis=0))
    top.tiled_view((N,)).atomic_store_max((0,), ct.max(v.astype(ct.int32), axis=0))


@case("views")
def view_atomics(r):
    x = arr(r.uniform(30, 50) * 90)
    return Launch(view_atomics_kernel, (4,),
                  [x, inout(np.zeros(50)), inout(np.zeros(50), "i32"), 8, 64],
                  {"total": near(x.f64.sum(0), 1e-5, 1e-3),
                   "top": exact(np.trunc(x.f64).max(0))})


@ct.kernel
def ragged_kernel(x, offsets, y, T: ct.Constant[int], N: ct.Constant[int]):
    """Each block owns the rows between two offsets: a slice at run time."""
    i = ct.bid(0)
    start, stop = ct.gather(offsets, i), ct.gather(offsets, i + 1)
    part = x.slice(axis=0, start=start, stop=stop)
    acc = ct.zeros((1, N), ct.float32)
    for t in range(ct.cdiv(stop - start, T)):
        acc = acc + ct.sum(ct.load(part, (t, 0), (T, N), padding_mode=ZERO), axis=0, keepdims=True)
    ct.store(y, (i, 0), acc)


@case("views")
def ragged_slices(r):
    x, offsets = arr(r.normal(60, 40)), np.array([0, 7, 7, 40, 60])
    want = np.stack([x.f64[a:b].sum(0) for a, b in zip(offsets, offsets[1:])])
    return Launch(ragged_kernel, (4,), [x, arr(offsets, "i32"), out((4, 40)), 8, 64],
                  {"y": near(want, 1e-5, 1e-5)})


@ct.kernel
def raw_kernel(x, y, count, n, T: ct.Constant[int]):
    """Offsets from the base pointer, no shape involved."""
    at = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    inside = at < n
    raw, target = x.get_raw_memory(), y.get_raw_memory()
    v = raw.load_offset(n - 1 - at, mask=inside, padding_value=0.0, latency=2)
    target.store_offset(at, v + raw.load_offset(0), mask=inside)
    count.get_raw_memory().atomic_add_offset(0, ct.sum(inside.astype(ct.int32)))


@case("views")
def raw_offsets(r):
    x = arr(r.normal(300))
    return Launch(raw_kernel, (3,), [x, out(300), inout([0], "i32"), i32(300), 128],
                  {"y": near(x.f64[::-1] + x.f64[0]), "count": exact([300])})


@ct.kernel
def acquire_kernel(flag, x, y, T: ct.Constant[int]):
    """Plain loads and stores with memory orders."""
    i = ct.bid(0)
    ready = ct.load(flag, 0, (1,), memory_order=ct.MemoryOrder.ACQUIRE,
                    memory_scope=ct.MemoryScope.DEVICE)
    v = ct.load(x, i, (T,)) * ready.astype(ct.float32)
    ct.store(y, i, v, memory_order=ct.MemoryOrder.RELEASE, memory_scope=ct.MemoryScope.SYS)


@case("views")
def ordered_accesses(r):
    x = arr(r.normal(256))
    return Launch(acquire_kernel, (2,), [arr([3], "i32"), x, out(256), 128],
                  {"y": near(x.f64 * 3)})


@ct.kernel
def middle_kernel(x, y, TM: ct.Constant[int], TN: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, (i, j), ct.load(x, (i, j), (TM, TN)) + 1)


@case("views")
def unaligned_rows(r):
    """Base 4-byte aligned only, odd pitch, first stride not the largest."""
    x = arr(r.ints(0, 99, 10, 33), "i32", strides=(37, 1), align=4)
    return Launch(middle_kernel, (2, 2), [x, out((10, 33), "i32", strides=(1, 11), align=4), 8, 32],
                  {"y": exact(x.val + 1)})


@case("views")
def scalar_stride(r):
    """No unit stride at all."""
    x = arr(r.ints(0, 99, 12, 20), "i32", strides=(64, 3))
    return Launch(middle_kernel, (2, 1), [x, out((12, 20), "i32", strides=(2, 24)), 8, 32],
                  {"y": exact(x.val + 1)})


@ct.kernel
def padding_kernel(x, y, T: ct.Constant[int]):
    """One ragged tile read with each padding mode."""
    modes = ct.static_eval((ct.PaddingMode.ZERO, ct.PaddingMode.NEG_ZERO, ct.PaddingMode.NAN,
                            ct.PaddingMode.POS_INF, ct.PaddingMode.NEG_INF))
    for k in ct.static_iter(range(5)):
        v = ct.load(x, 0, (T,), padding_mode=modes[k])
        ct.store(y, (k, 0), ct.bitcast(v, ct.int32).reshape((1, T)))


@case("views")
def padding_modes(r):
    x = arr(r.normal(10))
    rows = [np.append(x.val, np.full(6, v, np.float32)) for v in (0, -0.0, np.nan, np.inf, -np.inf)]
    want = np.stack(rows).astype(np.float32).view(np.int32)
    return Launch(padding_kernel, (1,), [x, out((5, 16), "i32"), 16], {"y": exact(want)})
