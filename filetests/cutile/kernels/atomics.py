"""Atomic operations."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, exact, i32, inout, Launch, near, out


@ct.kernel
def histogram_kernel(x, counts, n, T: ct.Constant[int]):
    at = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    v = ct.gather(x, at, padding_value=-1)
    ct.atomic_add(counts, v, 1, memory_order=ct.MemoryOrder.RELAXED)


@case("atomics")
def histogram(r):
    """Padding lanes carry bin -1, which the bounds check drops."""
    x = r.ints(0, 50, 900)
    return Launch(histogram_kernel, (4,),
                  [arr(x, "i32"), inout(np.zeros(50), "i32"), i32(900), 256],
                  {"counts": exact(np.bincount(x, minlength=50))})


@ct.kernel
def histogram_float_kernel(x, weight, sums, T: ct.Constant[int]):
    at = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    ct.atomic_add(sums, ct.gather(x, at, padding_value=-1), ct.gather(weight, at))


@case("atomics")
def histogram_weighted(r):
    x, w = r.ints(0, 20, 500), arr(r.uniform(500))
    return Launch(histogram_float_kernel, (4,), [arr(x, "i32"), w, inout(np.zeros(20)), 128],
                  {"sums": near(np.bincount(x, w.f64, 20), 1e-5, 1e-5)})


@ct.kernel
def modes_kernel(x, top, low, utop, both, either, odd, T: ct.Constant[int]):
    """Every block folds its tile into the same T words with each mode."""
    i = ct.bid(0)
    at = ct.arange(T, dtype=ct.int32)
    v = ct.gather(x, (i, at))
    ct.atomic_max(top, at, v)
    ct.atomic_min(low, at, v)
    ct.atomic_max(utop, at, ct.bitcast(v, ct.uint32))
    ct.atomic_and(both, at, v)
    ct.atomic_or(either, at, v)
    ct.atomic_xor(odd, at, v)


@case("atomics")
def atomic_modes(r):
    n = 48
    x = arr(r.ints(-2 ** 31, 2 ** 31, 4, n), "i32")
    start = {k: r.ints(-2 ** 31, 2 ** 31, n) for k in ("top", "low", "both", "either", "odd")}
    first = {k: inout(v, "i32") for k, v in start.items()}
    utop = inout(r.ints(0, 2 ** 32, n), "u32")
    fold = {"top": np.maximum, "low": np.minimum, "both": np.bitwise_and,
            "either": np.bitwise_or, "odd": np.bitwise_xor}
    expect = {k: exact(f.reduce(np.vstack([first[k].val, x.val]))) for k, f in fold.items()}
    expect["utop"] = exact(np.maximum.reduce(np.vstack([utop.val, x.val.view(np.uint32)])))
    return Launch(modes_kernel, (4,), [x, first["top"], first["low"], utop, first["both"],
                                       first["either"], first["odd"], 64], expect)


@ct.kernel
def claim_kernel(owner, old, T: ct.Constant[int]):
    """Every lane tries to replace 0 by its number, or exchanges blindly."""
    at = ct.arange(T, dtype=ct.int32)
    seen = ct.atomic_cas(owner, at, 0, at + 100)
    ct.scatter(old, at, seen)
    swapped = ct.atomic_xchg(owner, at + T, at.astype(ct.int64).astype(ct.int32) * 2)
    ct.scatter(old, at + T, swapped)


@case("atomics")
def cas_and_exchange(r):
    t = 32
    first = r.ints(0, 2, 2 * t) * 7
    want = np.concatenate([np.where(first[:t] == 0, np.arange(t) + 100, first[:t]),
                           np.arange(t) * 2])
    return Launch(claim_kernel, (1,), [inout(first, "i32"), out(2 * t, "i32"), t],
                  {"owner": exact(want), "old": exact(first)})


@ct.kernel
def atomic_f64_i64_kernel(x, total, count, high, T: ct.Constant[int]):
    v = ct.gather(x, ct.bid(0) * T + ct.arange(T, dtype=ct.int32))
    ct.atomic_add(total, 0, ct.sum(v))
    ct.atomic_add(count, 0, ct.sum((v > 0.0).astype(ct.int64)))
    ct.atomic_max(high, 0, ct.max((v * 2.0 ** 40).astype(ct.int64)))


@case("atomics")
def atomic_64_bit(r):
    x = arr(r.normal(200), "f64")
    high = max(0, int((x.f64 * 2.0 ** 40).max()))
    return Launch(atomic_f64_i64_kernel, (4,),
                  [x, inout([0.0], "f64"), inout([0], "i64"), inout([0], "i64"), 64],
                  {"total": near(x.f64.sum()[None], 1e-12, 1e-12),
                   "count": exact([(x.f64 > 0).sum()]), "high": exact([high])})


@ct.kernel
def ticket_kernel(x, part, counter, y, T: ct.Constant[int], BLOCKS: ct.Constant[int]):
    """The block that draws the last ticket sums what all blocks left."""
    i = ct.bid(0)
    v = ct.load(x, i, (T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(part, i, ct.sum(v))
    ticket = ct.atomic_add(counter, 0, 1)
    if ticket == BLOCKS - 1:
        ct.store(y, 0, ct.sum(ct.load(part, 0, (BLOCKS,))))


@case("atomics")
def last_block_sums(r):
    x = arr(r.normal(1000))
    return Launch(ticket_kernel, (8,), [x, out(8), inout([0], "i32"), out(1), 128, 8],
                  {"y": near(x.f64.sum()[None], 1e-5, 1e-4), "counter": exact([8])})


@ct.kernel
def atomic_f16_kernel(x, y, T: ct.Constant[int]):
    at = ct.arange(T, dtype=ct.int32)
    ct.atomic_add(y, at, ct.gather(x, (ct.bid(0), at)))


@case("atomics")
def atomic_add_f16(r):
    x = arr(np.round(r.normal(3, 50) * 8) / 8, "f16")
    return Launch(atomic_f16_kernel, (3,), [x, inout(np.zeros(50), "f16"), 64],
                  {"y": exact(x.f64.sum(0))})
