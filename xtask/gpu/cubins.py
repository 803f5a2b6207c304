"""Has tileiras, the closed assembler of CUDA Tile IR, make the kernels that we compare with: cubins.py FOLDER TARGET…

Needs cuda-tile and nvidia-cuda-tileiras, and no GPU. Writes NAME-TARGET.cubin and, with the kernel's name and tile, NAME-TARGET.json.
"""

import io
import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import cuda.tile as ct
from cuda.tile import compilation

# Extents of the tiles.
GEMMS = {"gemm-128x128x64": (128, 128, 64), "gemm-128x256x64": (128, 256, 64)}


def make_gemm(bm, bn, bk):
    """a b^T in bf16."""

    @ct.kernel
    def gemm(a, b, c):
        m, n = ct.bid(0), ct.bid(1)
        total = ct.full((bm, bn), 0.0, ct.float32)
        for k in range(ct.cdiv(a.shape[1], bk)):
            x = ct.load(a, index=(m, k), shape=(bm, bk), padding_mode=ct.PaddingMode.ZERO)
            y = ct.load(b, index=(n, k), shape=(bn, bk), padding_mode=ct.PaddingMode.ZERO)
            total = ct.mma(x, ct.transpose(y), total)
        ct.store(c, index=(m, n), tile=ct.astype(total, ct.bfloat16))

    return gemm


def matrix():
    """A matrix of bf16 with rows without gaps, whose address and strides are multiples of 16 bytes."""
    return compilation.ArrayConstraint(
        dtype=ct.bfloat16,
        ndim=2,
        index_dtype=ct.int32,
        stride_constant=(None, 1),
        stride_divisible_by=(8, 1),
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        base_addr_divisible_by=16,
    )


def main():
    folder = Path(sys.argv[1])
    tool = Path(sysconfig.get_path("purelib")) / "nvidia/cu13/bin/tileiras"
    if not tool.exists():
        tool = next(Path(p) / "nvidia/cu13/bin/tileiras" for p in sys.path if (Path(p) / "nvidia/cu13/bin/tileiras").exists())
    convention = compilation.CallingConvention.cutile_python_v1()
    for target in sys.argv[2:]:
        for name, tile in GEMMS.items():
            code = io.BytesIO()
            signature = compilation.KernelSignature([matrix()] * 3, convention)
            compilation.export_kernel(
                make_gemm(*tile), [signature], code, gpu_code=target, output_format="tileir_bytecode"
            )
            source, cubin = folder / f"{name}.tilebc", folder / f"{name}-{target}.cubin"
            source.write_bytes(code.getvalue())
            subprocess.run([tool, "--gpu-name", target, "-o", cubin, source], check=True)
            source.unlink()
            entry = re.search(rb"\.text\.([\w$]+)", cubin.read_bytes()).group(1).decode()
            about = {"name": entry, "tile": tile}
            cubin.with_suffix(".json").write_text(json.dumps(about) + "\n")
            print(cubin.name, entry)


if __name__ == "__main__":
    main()
