"""The hand-written GEMM kernels of tests/data as cases: C = A * B^T in bf16, exact small values."""
import numpy as np

from cases import Case, Rng
from expected_mma import pack


def gemm(arch, m, n, k, tile_n, box_c, threads, smem, ctas, cluster=1):
    rng = Rng(m + n + k)
    # Sums of at most 136 products of -1, 0 or 1 are exact in bf16.
    a, b = rng.ints(-1, 2, (m, k)), rng.ints(-1, 2, (n, k))
    c = Case(f"gemm_{arch}", f"{m}x{n}x{k}", threads, smem)
    c.d |= {"kernel": f"../data/gemm_{arch}.ptx", "entry": f"gemm_{arch}", "grid": [ctas, 1, 1], "cluster": [cluster, 1, 1]}
    c.buffer("a", pack(a, "bf16"), param=False).buffer("b", pack(b, "bf16"), param=False)
    c.buffer("c", size=2 * m * n, fill=0xA5, expect=pack(a @ b.T, "bf16"), param=False)
    for name, rows, cols, box in (("a", m, k, [64, 128]), ("b", n, k, [64, tile_n // cluster]), ("c", m, n, [64, box_c])):
        c.map(name, type="bf16", dims=[cols, rows], strides=[2 * cols], box=box, element_strides=[1, 1], swizzle="128B", oob="zero")
    c.u32(-(-k // 64), -(-m // 128), -(-n // tile_n))


def run():
    gemm("sm90a", 200, 136, 136, 128, 64, 384, 164928, 3)
    gemm("sm90a", 128, 128, 64, 128, 64, 384, 164928, 1)
    gemm("cluster_sm90a", 200, 264, 136, 128, 64, 384, 164928, 4, 2)
    gemm("sm100a", 200, 264, 136, 256, 32, 192, 230528, 3)
