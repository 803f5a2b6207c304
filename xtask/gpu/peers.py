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
    c.store([at_m, at_n], total.to(tl.bfloat16))


def compile_all():
    """Compiles all of them for sm_90, which needs no GPU; how many."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target = GPUTarget("cuda", 90, 32)
    square = "tensordesc<bf16[128,64]>"
    row = "tensordesc<bf16[128,128]>"
    kernels = [
        (gemm, {"a": square, "b": square, "c": row, "k": "i32"}, {"BM": 128, "BN": 128, "BK": 64}),
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
