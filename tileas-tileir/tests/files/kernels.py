"""Writes the Tile IR files of this folder with cuTile Python: kernels.py [FOLDER]. Needs the packages cuda-tile (1.7) and nvidia-cuda-tileiras, no GPU.

Each kernel is here for what its bytecode has; see the table at the end.
"""

import sys
from pathlib import Path

import cuda.tile as ct
from cuda.tile import _compile
from cuda.tile.compilation import ArrayConstraint, CallingConvention, KernelSignature, ScalarConstraint, export_kernel


def array(dtype, ndim, aligned=16):
    """An array with elements next to each other along its last dimension."""
    return ArrayConstraint(
        dtype,
        ndim,
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=[],
        may_alias_internally=False,
        stride_constant=[None] * (ndim - 1) + [1],
        stride_divisible_by=[aligned] * (ndim - 1) + [1],
        base_addr_divisible_by=aligned,
    )


@ct.kernel
def vector_add(a, b, c, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(c, index=(i,), tile=ct.load(a, index=(i,), shape=(tile,)) + ct.load(b, index=(i,), shape=(tile,)))


@ct.kernel(num_ctas=ct.ByTarget(sm_90=1, sm_100=2, default=1), occupancy=2)
def matmul(a, b, c, m: ct.Constant[int], n: ct.Constant[int], k: ct.Constant[int]):
    acc = ct.full((m, n), 0.0, ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(m, k))):
        x = ct.load(a, index=(ct.bid(0), step), shape=(m, k), padding_mode=ct.PaddingMode.ZERO, latency=4)
        y = ct.load(b, index=(step, ct.bid(1)), shape=(k, n), padding_mode=ct.PaddingMode.ZERO, allow_tma=False)
        acc = ct.mma(x, y, acc)
    ct.store(c, index=(ct.bid(0), ct.bid(1)), tile=ct.astype(acc, c.dtype))


@ct.kernel
def softmax(x, y, columns: ct.Constant[int], width: ct.Constant[int]):
    row = ct.bid(0)
    at = ct.arange(width, dtype=ct.int32)
    v = ct.astype(ct.gather(x, (row, at), check_bounds=True, padding_value=-float("inf")), ct.float32)
    e = ct.exp(v - ct.max(v, 0, keepdims=True))
    ct.scatter(y, (row, at), ct.astype(e / ct.sum(e, 0, keepdims=True), y.dtype), check_bounds=True)


@ct.kernel
def attention(q, k, v, out, scale: float, m: ct.Constant[int], n: ct.Constant[int], d: ct.Constant[int]):
    head, block = ct.bid(1), ct.bid(0)
    qs = ct.reshape(ct.load(q, index=(head, block, 0), shape=(1, m, d)), (m, d))
    peak = ct.full((m, 1), -float("inf"), ct.float32)
    total = ct.full((m, 1), 0.0, ct.float32)
    acc = ct.full((m, d), 0.0, ct.float32)
    rows = block * m + ct.arange(m, dtype=ct.int32)[:, None]
    for j in range(ct.cdiv((block + 1) * m, n)):
        ks = ct.reshape(ct.load(k, index=(head, 0, j), shape=(1, d, n), order=(0, 2, 1)), (d, n))
        s = ct.mma(qs, ks, ct.full((m, n), 0.0, ct.float32)) * scale
        s = ct.where(rows >= j * n + ct.arange(n, dtype=ct.int32)[None, :], s, -float("inf"))
        high = ct.maximum(peak, ct.max(s, 1, keepdims=True))
        p = ct.exp2(s - high, flush_to_zero=True)
        shrink = ct.exp2(peak - high, flush_to_zero=True)
        total = total * shrink + ct.sum(p, 1, keepdims=True)
        vs = ct.reshape(ct.load(v, index=(head, j, 0), shape=(1, n, d)), (n, d))
        acc = ct.mma(ct.astype(p, q.dtype), vs, acc * shrink)
        peak = high
    ct.store(out, index=(head, block, 0), tile=ct.reshape(ct.astype(acc / total, out.dtype), (1, m, d)))


def clamp(x):
    """Inlined, so that places in it have a chain of calls."""
    return ct.minimum(ct.maximum(x, 0), 7)


@ct.kernel
def locks(lock, sums, x, tile: ct.Constant[int]):
    i = ct.bid(0)
    part = clamp(ct.load(x, index=(i,), shape=(tile,)))
    tries = 0
    while True:
        if ct.atomic_cas(lock, (0,), 0, 1, memory_order=ct.MemoryOrder.ACQUIRE) == 0:
            break
        tries = tries + 1
        if tries > 1000:
            ct.printf("block %d waits", i)
            continue
    ct.store(sums, index=(0,), tile=ct.load(sums, index=(0,), shape=(tile,)) + part)
    ct.atomic_xchg(lock, (0,), 0, memory_order=ct.MemoryOrder.RELEASE)
    if i == 0:
        ct.atomic_add(lock, (1,), tries)


@ct.kernel
def scans(x, y, z, rows: ct.Constant[int], columns: ct.Constant[int]):
    t = ct.load(x, index=(ct.bid(0), 0), shape=(rows, columns))
    ct.store(y, index=(ct.bid(0), 0), tile=ct.cumsum(t, 1, reverse=True))
    best = ct.argmax(t, axis=1)
    ct.store(z, index=(ct.bid(0),), tile=best)


F16, F32, I32 = ct.float16, ct.float32, ct.int32
# Name, kernel, parameters, versions.
FILES = [
    ("vector_add", vector_add, [array(F32, 1)] * 3 + [1024], ["13.1", "13.2", "13.3", "13.4", "13.5"]),
    ("matmul", matmul, [array(F16, 2)] * 3 + [64, 128, 32], ["13.1", "13.5"]),
    ("softmax", softmax, [array(F16, 2)] * 2 + [1000, 1024], ["13.4"]),
    ("attention", attention, [array(F16, 3)] * 4 + [ScalarConstraint(F32), 64, 64, 64], ["13.4"]),
    ("locks", locks, [array(I32, 1)] * 3 + [128], ["13.2"]),
    ("scans", scans, [array(F32, 2)] * 2 + [array(I32, 1), 32, 64], ["13.5"]),
]

if __name__ == "__main__":
    # 13.5 is a version for developers.
    _compile.dev_features_enabled = lambda: True
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    for name, kernel, parameters, versions in FILES:
        signature = KernelSignature(parameters, CallingConvention.cutile_python_v1(), symbol=name)
        for version in versions:
            path = folder / f"{name}-{version}.tileirbc"
            export_kernel(
                kernel,
                [signature],
                str(path),
                gpu_code="sm_100",
                output_format="tileir_bytecode",
                bytecode_version=version,
            )
            print(path, path.stat().st_size)
