"""Matrix products."""
import cuda.tile as ct
import numpy as np

from .common import arr, ArrayList, case, exact, inout, Launch, near, out, rounded

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def gemm_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


# An H100 adds products of 8-bit floats with some 14 bits; sums here are up to 40.
FP8 = 2e-2


def plain(r, m, n, k, tile, dtype, out_dtype, atol=2e-3):
    a, b = arr(r.normal(m, k), dtype), arr(r.normal(k, n), dtype)
    grid = (-(-m // tile[0]), -(-n // tile[1]))
    return Launch(gemm_kernel, grid, [a, b, out((m, n), out_dtype), *tile],
                  {"c": rounded(a.f64 @ b.f64, out_dtype, atol)})


@case("gemm")
def gemm_f16_128x128x64(r):
    return plain(r, 256, 256, 128, (128, 128, 64), "f16", "f16")


@case("gemm")
def gemm_f16_128x256x64_ragged(r):
    return plain(r, 200, 328, 136, (128, 256, 64), "f16", "f32")


@case("gemm")
def gemm_bf16_64x64x32(r):
    return plain(r, 128, 64, 96, (64, 64, 32), "bf16", "bf16")


@case("gemm")
def gemm_small_odd(r):
    """Sizes that are odd in every direction, so no row is 16-byte aligned."""
    return plain(r, 37, 29, 51, (16, 16, 16), "f16", "f32")


@case("gemm")
def gemm_f32(r):
    return plain(r, 64, 96, 80, (32, 32, 16), "f32", "f32", 1e-4)


@case("gemm")
def gemm_e4m3(r):
    return plain(r, 128, 128, 96, (64, 64, 64), "e4m3", "f32", FP8)


@case("gemm")
def gemm_e5m2(r):
    return plain(r, 64, 64, 128, (64, 64, 64), "e5m2", "f32", FP8)


@ct.kernel
def gemm_tf32_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO).astype(ct.tfloat32)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO).astype(ct.tfloat32)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), acc)


@case("gemm")
def gemm_tf32(r):
    a, b = arr(r.normal(100, 72)), arr(r.normal(72, 90))
    scale = np.abs(a.f64) @ np.abs(b.f64)
    return Launch(gemm_tf32_kernel, (2, 2), [a, b, out((100, 90)), 64, 64, 32],
                  {"c": (a.f64 @ b.f64, 0.0, float(scale.max()) * 2 ** -10)})


@ct.kernel
def gemm_i8_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.int32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), acc)


@case("gemm")
def gemm_i8(r):
    a, b = arr(r.ints(-128, 128, 70, 100), "i8"), arr(r.ints(-128, 128, 100, 60), "i8")
    return Launch(gemm_i8_kernel, (2, 1), [a, b, out((70, 60), "i32"), 64, 64, 64],
                  {"c": exact(a.val.astype(np.int32) @ b.val.astype(np.int32))})


@case("gemm")
def gemm_u8_i8(r):
    a, b = arr(r.ints(0, 256, 64, 128), "u8"), arr(r.ints(-128, 128, 128, 32), "i8")
    return Launch(gemm_i8_kernel, (2, 1), [a, b, out((64, 32), "i32"), 32, 32, 64],
                  {"c": exact(a.val.astype(np.int32) @ b.val.astype(np.int32))})


@ct.kernel
def gemm_nt_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """C = A Bᵀ with B stored N by K, loaded through a transposed view."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
        y = ct.load(b, (k, j), (TK, TN), order=(1, 0), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


@case("gemm")
def gemm_nt(r):
    a, b = arr(r.normal(96, 80), "f16"), arr(r.normal(72, 80), "f16")
    return Launch(gemm_nt_kernel, (2, 2), [a, b, out((96, 72), "f16"), 64, 64, 32],
                  {"c": rounded(a.f64 @ b.f64.T, "f16", 2e-3)})


@ct.kernel
def gemm_tn_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """C = Aᵀ B with A stored K by M, transposed after the load."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 0, (TK, TM))):
        x = ct.transpose(ct.load(a, (k, i), (TK, TM), padding_mode=ZERO))
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


@case("gemm")
def gemm_tn(r):
    a, b = arr(r.normal(100, 128), "bf16"), arr(r.normal(100, 64), "bf16")
    return Launch(gemm_tn_kernel, (2, 1), [a, b, out((128, 64), "f32"), 64, 64, 32],
                  {"c": near(a.f64.T @ b.f64, 1e-5, 1e-3)})


@case("gemm")
def gemm_column_major(r):
    """The plain kernel on operands whose first stride is 1."""
    a = arr(r.normal(64, 48), "f16", strides=(1, 64))
    b = arr(r.normal(48, 80), "f16", strides=(1, 48))
    return Launch(gemm_kernel, (1, 2), [a, b, out((64, 80), "f32"), 64, 64, 16],
                  {"c": near(a.f64 @ b.f64, 1e-5, 1e-3)})


@ct.kernel
def gemm_batched_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int],
                        TK: ct.Constant[int]):
    n, i, j = ct.bid(0), ct.bid(1), ct.bid(2)
    acc = ct.zeros((1, TM, TN), ct.float32)
    for k in range(ct.cdiv(a.shape[2], TK)):
        x = ct.load(a, (n, i, k), (1, TM, TK), padding_mode=ZERO)
        y = ct.load(b, (n, k, j), (1, TK, TN), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (n, i, j), acc.astype(c.dtype))


@case("gemm")
def gemm_batched(r):
    a, b = arr(r.normal(3, 40, 64), "f16"), arr(r.normal(3, 64, 50), "f16")
    return Launch(gemm_batched_kernel, (3, 2, 1), [a, b, out((3, 40, 50), "f16"), 32, 64, 32],
                  {"c": rounded(a.f64 @ b.f64, "f16", 2e-3)})


@ct.kernel
def gemm_batch_tile_kernel(a, b, c):
    """Four small products in one multiplication with a batch dimension."""
    n = ct.bid(0)
    x = ct.load(a, (n, 0, 0), (4, 16, 32))
    y = ct.load(b, (n, 0, 0), (4, 32, 8))
    ct.store(c, (n, 0, 0), ct.mma(x, y, ct.zeros((4, 16, 8), ct.float32)))


@case("gemm")
def gemm_batch_tile(r):
    a, b = arr(r.normal(8, 16, 32), "bf16"), arr(r.normal(8, 32, 8), "bf16")
    return Launch(gemm_batch_tile_kernel, (2,), [a, b, out((8, 16, 8))],
                  {"c": near(a.f64 @ b.f64, 1e-5, 1e-4)})


@ct.kernel
def gemm_splitk_atomic_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int],
                              TK: ct.Constant[int]):
    i, j, s = ct.bid(0), ct.bid(1), ct.bid(2)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(s, ct.num_tiles(a, 1, (TM, TK)), ct.num_blocks(2)):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    row = i * TM + ct.arange(TM, dtype=ct.int32)
    col = j * TN + ct.arange(TN, dtype=ct.int32)
    ct.atomic_add(c, (row[:, None], col[None, :]), acc)


@case("gemm")
def gemm_splitk_atomic(r):
    a, b = arr(r.normal(50, 200), "f16"), arr(r.normal(200, 40), "f16")
    return Launch(gemm_splitk_atomic_kernel, (2, 1, 4),
                  [a, b, inout(np.zeros((50, 40))), 32, 64, 16],
                  {"c": near(a.f64 @ b.f64, 1e-5, 1e-3)})


@ct.kernel
def gemm_splitk_lock_kernel(a, b, c, locks, counts, TM: ct.Constant[int], TN: ct.Constant[int],
                            TK: ct.Constant[int]):
    """The first block to take a tile's lock stores, the others add to it."""
    i, j, s = ct.bid(0), ct.bid(1), ct.bid(2)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(s, ct.num_tiles(a, 1, (TM, TK)), ct.num_blocks(2)):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    tile = i * ct.num_blocks(1) + j
    while ct.atomic_cas(locks, tile, 0, 1, memory_order=ct.MemoryOrder.ACQUIRE) == 1:
        pass
    seen = ct.gather(counts, tile)
    if seen == 0:
        ct.store(c, (i, j), acc)
    else:
        ct.store(c, (i, j), acc + ct.load(c, (i, j), (TM, TN), padding_mode=ZERO))
    ct.scatter(counts, tile, seen + 1)
    ct.atomic_xchg(locks, tile, 0, memory_order=ct.MemoryOrder.RELEASE)


@case("gemm")
def gemm_splitk_lock(r):
    a, b = arr(r.normal(64, 150), "f16"), arr(r.normal(150, 56), "f16")
    zero = np.zeros(2)
    return Launch(gemm_splitk_lock_kernel, (2, 1, 3),
                  [a, b, out((64, 56)), inout(zero, "i32"), inout(zero, "i32"), 32, 64, 32],
                  {"c": near(a.f64 @ b.f64, 1e-5, 1e-3), "locks": exact(zero),
                   "counts": exact(zero + 3)})


def grouped_order(tile, rows, cols, G):
    """Walk the tiles in bands of G rows so that neighbours share operands."""
    band = G * cols
    first = tile // band * G
    height = min(rows - first, G)
    return first + tile % band % height, tile % band // height


@ct.kernel(num_ctas=ct.ByTarget(default=2, sm_80=1, sm_120=1), occupancy=1)
def gemm_persistent_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int],
                           TK: ct.Constant[int], G: ct.Constant[int]):
    rows, cols = ct.cdiv(a.shape[0], TM), ct.cdiv(b.shape[1], TN)
    steps = ct.cdiv(a.shape[1], TK)
    for tile in range(ct.bid(0), rows * cols, ct.num_blocks(0)):
        i, j = grouped_order(tile, rows, cols, G)
        acc = ct.zeros((TM, TN), ct.float32)
        for k in range(steps):
            x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
            y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO)
            acc = ct.mma(x, y, acc)
        ct.store(c, (i, j), acc.astype(c.dtype))


@case("gemm")
def gemm_persistent_cluster2(r):
    a, b = arr(r.normal(300, 96), "f16"), arr(r.normal(96, 250), "f16")
    return Launch(gemm_persistent_kernel, (4,), [a, b, out((300, 250), "f16"), 64, 64, 32, 4],
                  {"c": rounded(a.f64 @ b.f64, "f16", 2e-3)})


@ct.kernel
def gemm_swizzled_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int],
                         TK: ct.Constant[int]):
    rows, cols = ct.cdiv(a.shape[0], TM), ct.cdiv(b.shape[1], TN)
    i, j = grouped_order(ct.bid(0), rows, cols, 2)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO, latency=3)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO, latency=3)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


@case("gemm")
def gemm_swizzled(r):
    a, b = arr(r.normal(192, 64), "f16"), arr(r.normal(64, 128), "f16")
    return Launch(gemm_swizzled_kernel, (6,), [a, b, out((192, 128), "f16"), 64, 64, 32],
                  {"c": rounded(a.f64 @ b.f64, "f16", 2e-3)})


@ct.kernel
def gemm_grouped_kernel(aa, bb, cc, TM: ct.Constant[int], TN: ct.Constant[int],
                        TK: ct.Constant[int]):
    """Several products of different sizes; blocks take tiles in turn."""
    start = 0
    tile = ct.bid(0)
    for g in range(len(aa)):
        a, b, c = aa[g], bb[g], cc[g]
        rows, cols = ct.cdiv(a.shape[0], TM), ct.cdiv(b.shape[1], TN)
        end = start + rows * cols
        while tile < end:
            i, j = (tile - start) // cols, (tile - start) % cols
            acc = ct.zeros((TM, TN), ct.float32)
            for k in range(ct.cdiv(a.shape[1], TK)):
                x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
                y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO)
                acc = ct.mma(x, y, acc)
            ct.store(c, (i, j), acc.astype(c.dtype))
            tile = tile + ct.num_blocks(0)
        start = end


@case("gemm")
def gemm_grouped(r):
    sizes = [(64, 32, 48), (30, 70, 64), (100, 64, 16)]
    a = [arr(r.normal(m, k), "f16") for m, n, k in sizes]
    b = [arr(r.normal(k, n), "f16") for m, n, k in sizes]
    c = [out((m, n), "f16") for m, n, k in sizes]
    expect = {f"cc{i}": rounded(x.f64 @ y.f64, "f16", 2e-3)
              for i, (x, y) in enumerate(zip(a, b))}
    return Launch(gemm_grouped_kernel, (4,),
                  [ArrayList(a), ArrayList(b), ArrayList(c), 32, 32, 16], expect)


@ct.kernel
def gemm_bias_gelu_kernel(a, b, bias, c, TM: ct.Constant[int], TN: ct.Constant[int],
                          TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    v = acc + ct.load(bias, j, (TN,), padding_mode=ZERO).astype(ct.float32)
    v = 0.5 * v * (1.0 + ct.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))
    ct.store(c, (i, j), v.astype(c.dtype))


@case("gemm")
def gemm_bias_gelu(r):
    a, b = arr(r.normal(70, 64), "bf16"), arr(r.normal(64, 100, scale=.2), "bf16")
    bias = arr(r.normal(100), "bf16")
    v = a.f64 @ b.f64 + bias.f64
    want = 0.5 * v * (1 + np.tanh(0.7978845608028654 * (v + 0.044715 * v ** 3)))
    return Launch(gemm_bias_gelu_kernel, (2, 2), [a, b, bias, out((70, 100), "bf16"), 64, 64, 32],
                  {"c": rounded(want, "bf16", 2e-3)})


@ct.kernel
def gemm_w8a16_kernel(a, w, scale, c, TM: ct.Constant[int], TN: ct.Constant[int],
                      TK: ct.Constant[int]):
    """Weights are i8 with one scale per column."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
        y = ct.load(w, (k, j), (TK, TN), padding_mode=ZERO).astype(ct.float16)
        acc = ct.mma(x, y, acc)
    s = ct.load(scale, (0, j), (1, TN), padding_mode=ZERO)
    ct.store(c, (i, j), (acc * s).astype(c.dtype))


@case("gemm")
def gemm_w8a16(r):
    a, w = arr(r.normal(48, 96), "f16"), arr(r.ints(-127, 128, 96, 80), "i8")
    scale = arr(r.uniform(1, 80, lo=.01, hi=.02))
    return Launch(gemm_w8a16_kernel, (2, 2), [a, w, scale, out((48, 80), "f16"), 32, 64, 32],
                  {"c": rounded(a.f64 @ w.f64 * scale.f64, "f16", 4e-3)})


@ct.kernel
def moe_kernel(x, w, ids, experts, y, topk: ct.Constant[int], TM: ct.Constant[int],
               TN: ct.Constant[int], TK: ct.Constant[int]):
    """Each block of TM slots belongs to one expert; slots name rows of x.

    A slot number past the end marks padding.
    """
    i, j = ct.bid(0), ct.bid(1)
    slot = ct.gather(ids, i * TM + ct.arange(TM, dtype=ct.int32))
    expert = ct.gather(experts, i)
    row = slot // topk
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(x.shape[1], TK)):
        col = k * TK + ct.arange(TK, dtype=ct.int32)
        a = ct.gather(x, (row[:, None], col[None, :]))
        b = ct.load(w, (expert, k, j), (1, TK, TN), padding_mode=ZERO).reshape((TK, TN))
        acc = ct.mma(a, b, acc)
    out_col = j * TN + ct.arange(TN, dtype=ct.int32)
    ct.scatter(y, (slot[:, None], out_col[None, :]), acc.astype(y.dtype))


@case("gemm")
def moe_gather(r):
    tokens, topk, count, k, n, tm = 20, 2, 3, 48, 40, 16
    x, w = arr(r.normal(tokens, k), "f16"), arr(r.normal(count, k, n), "f16")
    choice = np.stack([r.perm(count)[:topk] for _ in range(tokens)]).reshape(-1)
    ids, experts = [], []
    for e in range(count):
        mine = list(np.flatnonzero(choice == e))
        mine += [tokens * topk] * (-len(mine) % tm)
        ids += mine
        experts += [e] * (len(mine) // tm)
    want = np.stack([x.f64[s // topk] @ w.f64[e] for s, e in enumerate(choice)])
    return Launch(moe_kernel, (len(experts), 1),
                  [x, w, arr(np.array(ids), "i32"), arr(np.array(experts), "i32"),
                   out((tokens * topk, n), "f16"), topk, tm, 64, 16],
                  {"y": rounded(want, "f16", 2e-3)})


@ct.kernel
def gemm_mx_kernel(a, sa, b, sb, c, TM: ct.Constant[int], TN: ct.Constant[int],
                   TK: ct.Constant[int]):
    """Every 32 elements along K share one power-of-two scale."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO)
        xs = ct.load(sa, (i, k), (TM, TK // 32))
        ys = ct.load(sb, (k, j), (TK // 32, TN))
        acc = ct.mma_scaled(x, xs, y, ys, acc)
    ct.store(c, (i, j), acc)


def powers(r, *shape):
    return 2.0 ** r.ints(-3, 4, *shape)


@case("gemm")
def gemm_mx_e4m3(r):
    m, n, k = 128, 64, 256
    a, b = arr(r.normal(m, k), "e4m3"), arr(r.normal(k, n), "e4m3")
    sa, sb = arr(powers(r, m, k // 32), "ue8m0"), arr(powers(r, k // 32, n), "ue8m0")
    want = (a.f64 * sa.f64.repeat(32, 1)) @ (b.f64 * sb.f64.repeat(32, 0))
    return Launch(gemm_mx_kernel, (2, 1), [a, sa, b, sb, out((m, n)), 64, 64, 128],
                  {"c": near(want, 1e-5, 2e-2)})


@ct.kernel
def gemm_mx_f4_kernel(a, sa, b, sb, c, TM: ct.Constant[int], TN: ct.Constant[int],
                      TK: ct.Constant[int]):
    """Two 4-bit floats per byte, low half first; B is stored N by K."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK // 2))):
        x = ct.load(a, (i, k), (TM, TK // 2)).reshape((TM * TK // 2,))
        y = ct.load(b, (j, k), (TN, TK // 2)).reshape((TN * TK // 2,))
        x = ct.unpack_from_bytes(x, ct.float4_e2m1fn).reshape((TM, TK))
        y = ct.unpack_from_bytes(y, ct.float4_e2m1fn).reshape((TN, TK))
        xs = ct.load(sa, (i, k), (TM, TK // 16))
        ys = ct.load(sb, (j, k), (TN, TK // 16))
        acc = ct.mma_scaled(x, xs, y.transpose(), ys.transpose(), acc)
    ct.store(c, (i, j), acc)


F4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


@case("gemm")
def gemm_mx_f4(r):
    m, n, k = 64, 64, 128
    a, b = r.ints(0, 16, m, k), r.ints(0, 16, n, k)
    sa, sb = arr(r.uniform(m, k // 16, lo=.5, hi=2), "e4m3"), \
        arr(r.uniform(n, k // 16, lo=.5, hi=2), "e4m3")
    want = (F4[a] * sa.f64.repeat(16, 1)) @ (F4[b] * sb.f64.repeat(16, 1)).T

    def packed(v):
        return arr(v[:, ::2] | v[:, 1::2] << 4, "u8")
    return Launch(gemm_mx_f4_kernel, (1, 2), [packed(a), sa, packed(b), sb, out((m, n)),
                                              64, 32, 64],
                  {"c": near(want, 1e-5, 2e-2)})


@ct.kernel
def gemm_f16_acc_kernel(a, b, c, T: ct.Constant[int]):
    x, y = ct.load(a, (0, 0), (T, T)), ct.load(b, (0, 0), (T, T))
    ct.store(c, (0, 0), ct.mma(x, y, ct.zeros((T, T), ct.float16)))


@case("gemm")
def gemm_f16_accumulator(r):
    a, b = arr(r.normal(32, 32), "f16"), arr(r.normal(32, 32), "f16")
    return Launch(gemm_f16_acc_kernel, (1,), [a, b, out((32, 32), "f16"), 32],
                  {"c": (a.f64 @ b.f64, 2 ** -7, 0.1)})


@ct.kernel
def gemm_f64_kernel(a, b, c, T: ct.Constant[int]):
    i = ct.bid(0)
    acc = ct.zeros((T, T), ct.float64)
    for k in range(ct.num_tiles(a, 1, (T, T))):
        x = ct.load(a, (i, k), (T, T), padding_mode=ZERO)
        y = ct.load(b, (k, 0), (T, T), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, 0), acc)


@case("gemm")
def gemm_f64(r):
    a, b = arr(r.normal(30, 50), "f64"), arr(r.normal(50, 16), "f64")
    return Launch(gemm_f64_kernel, (2,), [a, b, out((30, 16), "f64"), 16],
                  {"c": near(a.f64 @ b.f64, 1e-12, 1e-12)})


@ct.kernel
def gemm_gather_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int],
                       TK: ct.Constant[int]):
    """Everything through masked pointers instead of views."""
    row = ct.bid(0) * TM + ct.arange(TM, dtype=ct.int32)
    col = ct.bid(1) * TN + ct.arange(TN, dtype=ct.int32)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(a.shape[1], TK)):
        inner = k * TK + ct.arange(TK, dtype=ct.int32)
        x = ct.gather(a, (row[:, None], inner[None, :]))
        y = ct.gather(b, (inner[:, None], col[None, :]))
        acc = ct.mma(x, y, acc)
    ct.scatter(c, (row[:, None], col[None, :]), acc.astype(c.dtype))


@case("gemm")
def gemm_gather(r):
    a, b = arr(r.normal(45, 70), "f16"), arr(r.normal(70, 61), "f16")
    return Launch(gemm_gather_kernel, (2, 1), [a, b, out((45, 61), "f16"), 32, 64, 32],
                  {"c": rounded(a.f64 @ b.f64, "f16", 2e-3)})


@ct.kernel
def gemv_kernel(a, x, y, TM: ct.Constant[int], TK: ct.Constant[int]):
    """Matrix times vector by multiply and reduce."""
    i = ct.bid(0)
    acc = ct.zeros((TM, TK), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        m = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO).astype(ct.float32)
        v = ct.load(x, k, (TK,), padding_mode=ZERO).astype(ct.float32)
        acc = acc + m * v
    ct.store(y, i, ct.sum(acc, axis=1).astype(y.dtype))


@case("gemm")
def gemv(r):
    a, x = arr(r.normal(100, 300), "bf16"), arr(r.normal(300), "bf16")
    return Launch(gemv_kernel, (7,), [a, x, out(100, "f32"), 16, 128],
                  {"y": near(a.f64 @ x.f64, 1e-5, 1e-4)})
