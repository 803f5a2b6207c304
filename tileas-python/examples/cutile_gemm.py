"""A kernel of cuTile on arrays of numpy, in the emulator: cutile_gemm.py [PICTURE.svg]; needs the package cuda-tile."""
import sys

import cuda.tile as ct
import numpy as np
import tileas


@ct.kernel
def gemm(a, b, c, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((M, N), ct.float32)
    for k in range(ct.cdiv(a.shape[1], K)):
        acc = ct.mma(ct.load(a, (i, k), (M, K)), ct.load(b, (k, j), (K, N)), acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


rng = np.random.default_rng(1)
a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in [(256, 192), (192, 256)])
c = np.zeros((256, 256), np.float16)
tileas.cutile.launch(None, (2, 2), gemm, (a, b, c, 128, 128, 64))
assert (c == a @ b).all()
print(f"{c.shape[0]} x {c.shape[1]} elements are right")
if len(sys.argv) > 1:
    kernel = tileas.cutile.compile(gemm, (a, b, c, 128, 128, 64))
    kernel.schedule("svg", iterations=4).save(sys.argv[1])
