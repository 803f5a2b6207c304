"""max(A B^T + bias, 0) in f16, on the emulator: gemm.py examples/gemm_f16.tileas [--explain]"""
import sys

import numpy as np
import tileas

rng = np.random.default_rng(1)
a, b, bias = (rng.integers(-2, 3, shape).astype(np.float16) for shape in [(200, 136), (264, 136), (264,)])
c = np.zeros((200, 264), np.float16)
kernel = tileas.compile(open(sys.argv[1]).read())  # device=tileas.Device.cuda(0) for a GPU
kernel(a, b, bias, c, -(-136 // 64))
assert (c == np.maximum(a.astype(np.float32) @ b.T.astype(np.float32) + bias, 0)).all()
print(f"{c.shape[0]} x {c.shape[1]} elements are right, on the {kernel.device.name}")
if "--explain" in sys.argv:
    print(kernel.explain())
