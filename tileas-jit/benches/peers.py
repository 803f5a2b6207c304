"""What others take for the GEMM that `latency.rs` compiles: relu(A B^T + bias), tiles of 128 x 128 x 64, for sm_100a, to machine code.

Usage: peers.py [ROUNDS]. Needs triton, cuda-tile and nvidia-cuda-tileiras, and no GPU. Front ends are not counted: tileiras begins
with bytecode, Triton with its IR, except that its first stage, which reads Python, is told apart. Prints medians in milliseconds.
"""

import io
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import cuda.tile as ct
import triton
import triton.language as tl
from cuda.tile import compilation
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@ct.kernel
def cutile_gemm(a, b, bias, c, tiles: ct.Constant[int]):
    m, n = ct.bid(0), ct.bid(1)
    total = ct.full((128, 128), 0.0, ct.float32)
    for k in range(tiles):
        x = ct.load(a, index=(m, k), shape=(128, 64), padding_mode=ct.PaddingMode.ZERO)
        y = ct.load(b, index=(n, k), shape=(128, 64), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(x, ct.transpose(y), total)
    row = ct.load(bias, index=(n,), shape=(128,))
    total = ct.maximum(total + ct.astype(row, ct.float32), 0.0)
    ct.store(c, index=(m, n), tile=ct.astype(total, ct.float16))


@triton.jit
def triton_gemm(a, b, bias, c, m, n, k):
    at_m = tl.program_id(0) * 128
    at_n = tl.program_id(1) * 128
    da = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[128, 64])
    db = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[128, 64])
    dc = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[128, 128])
    total = tl.zeros((128, 128), dtype=tl.float32)
    for at in range(0, k, 64):
        total = tl.dot(da.load([at_m, at]), db.load([at_n, at]).T, total)
    row = tl.load(bias + at_n + tl.arange(0, 128))
    total = tl.maximum(total + row[None, :].to(tl.float32), 0.0)
    dc.store([at_m, at_n], total.to(tl.float16))


def cutile(rounds):
    def array(rank):
        return compilation.ArrayConstraint(
            dtype=ct.float16,
            ndim=rank,
            index_dtype=ct.int32,
            stride_constant=(None,) * (rank - 1) + (1,),
            stride_divisible_by=(8,) * (rank - 1) + (1,),
            stride_lower_bound_incl=0,
            alias_groups=(),
            may_alias_internally=False,
            base_addr_divisible_by=16,
        )

    signature = compilation.KernelSignature(
        [array(2), array(2), array(1), array(2), compilation.ConstantConstraint(8)],
        compilation.CallingConvention.cutile_python_v1(),
    )
    code = io.BytesIO()
    compilation.export_kernel(
        cutile_gemm, [signature], code, gpu_code="sm_100", output_format="tileir_bytecode"
    )
    tool = Path(sysconfig.get_path("purelib")) / "nvidia/cu13/bin/tileiras"
    times = []
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "k.tilebc", Path(folder) / "k.cubin"
        source.write_bytes(code.getvalue())
        command = [tool, "--gpu-name", "sm_100", "-o", cubin, source]
        for _ in range(rounds):
            begin = time.perf_counter()
            subprocess.run(command, check=True)
            times.append(time.perf_counter() - begin)
    return times


def by_triton(rounds):
    types = {"a": "*fp16", "b": "*fp16", "bias": "*fp16", "c": "*fp16", "m": "i32", "n": "i32", "k": "i32"}
    sixteen = {(i,): [["tt.divisibility", 16]] for i in range(7)}
    stages = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TRITON_CACHE_DIR"] = folder
            seen = {}

            def listen(*, src, metadata, metadata_group, times, cache_hit):
                seen["front"] = times.ir_initialization / 1e6
                seen["rest"] = sum(t for _, t in times.lowering_stages) / 1e6
                seen.update({f"  {name}": t / 1e6 for name, t in times.lowering_stages})

            triton.knobs.compilation.listener = listen
            source = ASTSource(triton_gemm, types, attrs=sixteen)
            triton.compile(source, target=GPUTarget("cuda", 100, 32))
            for name, seconds in seen.items():
                stages.setdefault(name, []).append(seconds)
    return stages


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    show = lambda name, times: print(f"{name:24} {statistics.median(times) * 1000:8.1f} ms")
    show("tileiras", cutile(rounds))
    for name, times in by_triton(rounds).items():
        show(f"triton {name}", times)


if __name__ == "__main__":
    main()
