"""The same work by others: kernels in Triton, and machine code that tileiras made beforehand."""

import ctypes
import json

import triton
import triton.language as tl


@triton.jit
def gemm(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """a b^T, of descriptors."""
    at_m, at_n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, k, BK):
        total = tl.dot(a.load([at_m, at]), b.load([at_n, at]).T, total)
    c.store([at_m, at_n], total.to(tl.float16))


@triton.jit
def attention(q, k, v, o, rows, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """softmax(q k^T) v of heads one after the other; `scale` for powers of two."""
    first = tl.program_id(1) * rows
    at_m = first + tl.program_id(0) * BM
    x = q.load([at_m, 0])
    top = tl.full((BM,), float("-inf"), dtype=tl.float32)
    below = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, D), dtype=tl.float32)
    for at in range(0, rows, BN):
        s = tl.dot(x, k.load([first + at, 0]).T) * scale
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        keep = tl.exp2(top - new)
        below = below * keep + tl.sum(p, 1)
        total = tl.dot(p.to(tl.float16), v.load([first + at, 0]), total * keep[:, None])
        top = new
    o.store([at_m, 0], (total / below[:, None]).to(tl.float16))


@triton.jit
def softmax(x, y, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    """Of rows without gaps."""
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    where = at[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    v = tl.load(x + where).to(tl.float32)
    e = tl.exp(v - tl.max(v, 1)[:, None])
    tl.store(y + where, (e / tl.sum(e, 1)[:, None]).to(y.dtype.element_ty))


@triton.jit
def add(x, y, z, BLOCK: tl.constexpr):
    """x + y."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at) + tl.load(y + at))


def compile_all():
    """Compiles all of them for sm_90, which needs no GPU; how many."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target = GPUTarget("cuda", 90, 32)
    square = "tensordesc<fp16[128,64]>"
    row = "tensordesc<fp16[128,128]>"
    kernels = [
        (gemm, {"a": square, "b": square, "c": row, "k": "i32"}, {"BM": 128, "BN": 128, "BK": 64}),
        (attention, {n: row for n in "qkvo"} | {"rows": "i32", "scale": "fp32"}, {"BM": 128, "BN": 128, "D": 128}),
        (softmax, {"x": "*fp16", "y": "*fp16"}, {"COLUMNS": 128, "ROWS": 64}),
        (add, {n: "*fp32" for n in "xyz"}, {"BLOCK": 1024}),
    ]
    for kernel, types, constants in kernels:
        types = types | {name: "constexpr" for name in constants}
        triton.compile(ASTSource(kernel, types, constants), target=target, options={"num_warps": 8})
    return len(kernels)


class Cubin:
    """A kernel of tileiras. Of each array its launcher hands over the address, the extents and the strides, 32 bits each."""

    def __init__(self, path):
        about = json.loads(path.with_suffix(".json").read_text())
        self.name, self.tile = about["name"], about["tile"]
        self.lib = ctypes.CDLL("libcuda.so.1")
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(path.read_bytes()))
        self._call("cuModuleGetFunction", ctypes.byref(self.function), module, self.name.encode())

    def _call(self, name, *args):
        status = getattr(self.lib, name)(*args)
        if status:
            raise RuntimeError(f"{name}: error {status}")

    def launch(self, grid, tensors, stream):
        """Puts a launch into a stream."""
        values = []
        for t in tensors:
            values.append(ctypes.c_uint64(t.data_ptr()))
            values += [ctypes.c_int32(n) for n in (*t.shape, *t.stride())]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        self._call("cuLaunchKernel", self.function, *grid, 1, 1, 1, 0, ctypes.c_void_p(stream), pointers, None)
