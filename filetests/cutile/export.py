#!/usr/bin/env python3
"""Export every kernel: bytecode, launch description, inputs and expected outputs."""
import argparse
import importlib
import inspect
import io
import json
import pathlib
import sys
import traceback

import numpy as np
from cuda.tile.compilation import (ArrayConstraint, CallingConvention, KernelSignature,
                                   ListConstraint, ScalarConstraint, TupleConstraint,
                                   export_kernel)
import cuda.tile as ct

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from kernels import common  # noqa: E402
from kernels.common import Array, ArrayList, Scalar  # noqa: E402

FILES = ["elementwise", "softmax", "norm", "reduction", "movement", "gemm", "attention",
         "quant", "loss", "atomics", "control", "numeric", "conv", "views", "hints", "fused",
         "irregular", "ours"]


def array_constraint(a):
    """What the just-in-time launcher would assume of this array."""
    fixed = a.constant
    bits = common.DTYPES[a.dtype][0].bitwidth
    step = 128 // bits
    return ArrayConstraint(
        common.DTYPES[a.dtype][0], len(a.shape),
        index_dtype=ct.int64 if a.index64 else ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=a.aliases, may_alias_internally=False,
        shape_constant=[n if i in fixed else None for i, n in enumerate(a.shape)],
        stride_constant=[s if fixed or s == 1 else None for s in a.strides],
        stride_divisible_by=[step if s % step == 0 else 1 for s in a.strides],
        shape_divisible_by=[16 if n % 16 == 0 else 1 for n in a.shape],
        base_addr_divisible_by=a.align)


def constraint(arg):
    if isinstance(arg, Array):
        return array_constraint(arg)
    if isinstance(arg, Scalar):
        return ScalarConstraint(common.DTYPES[arg.dtype][0])
    if isinstance(arg, ArrayList):
        parts = [array_constraint(a) for a in arg.items]
        first = parts[0]
        merged = ArrayConstraint(
            first.dtype, first.ndim, index_dtype=first.index_dtype, stride_lower_bound_incl=0,
            alias_groups=first.alias_groups, may_alias_internally=False,
            stride_constant=[s[0] if len(set(s)) == 1 else None
                             for s in zip(*(p.stride_constant for p in parts))],
            stride_divisible_by=[min(s) for s in zip(*(p.stride_divisible_by for p in parts))],
            shape_divisible_by=[min(s) for s in zip(*(p.shape_divisible_by for p in parts))],
            base_addr_divisible_by=16)
        return ListConstraint(merged, alias_groups=(), elements_may_alias=False)
    if isinstance(arg, tuple):
        return TupleConstraint([constraint(a) for a in arg])
    return arg


def needs_v2(args):
    """Fixed shapes and tuples exist only in the second calling convention."""
    return any(isinstance(a, tuple) or isinstance(a, Array) and a.constant for a in args)


def index_params(a):
    kind = "i64" if a.index64 else "i32"
    return [{"kind": kind, "value": int(v)} for v in (*a.shape, *a.strides)]


def describe(name, family, launch, symbol):
    """The JSON text and the arrays to save next to it."""
    params, arrays, expect, files = [], {}, {}, {}

    def add_array(label, a, **more):
        file = f"{name}.{label}.npy"
        files[file] = a.bits()
        arrays[label] = {"dtype": a.dtype, "shape": list(a.shape), "strides": list(a.strides),
                         "file": file, "role": a.role, "align": a.align, **more}
        if label in launch.expect:
            values, rtol, atol = launch.expect[label]
            file = f"{name}.{label}.expect.npy"
            files[file] = a.bits(a.image(values))
            expect[label] = {"file": file, "rtol": rtol, "atol": atol}

    labels = list(inspect.signature(launch.kernel._pyfunc).parameters)
    assert len(labels) == len(launch.args), f"{name}: {labels}"
    flat = []
    for label, arg in zip(labels, launch.args):
        if isinstance(arg, tuple):
            flat += [(f"{label}{i}", a) for i, a in enumerate(arg)]
        else:
            flat.append((label, arg))
    for label, arg in flat:
        if isinstance(arg, Array):
            add_array(label, arg)
            params += [{"kind": "pointer", "array": label}, *index_params(arg)]
        elif isinstance(arg, Scalar):
            # Integer parameters carry no sign in the bytecode.
            kind = arg.dtype.replace("u", "i")
            params.append({"kind": kind, "value": arg.value})
        elif isinstance(arg, ArrayList):
            table, patches = [], []
            for i, a in enumerate(arg.items):
                add_array(f"{label}{i}", a)
                patches.append({"index": len(table), "array": f"{label}{i}"})
                table += [0, *a.shape, *a.strides]
            words = common.arr(np.array(table).reshape(len(arg.items), -1), "i64")
            add_array(label, words, addresses=patches)
            params += [{"kind": "pointer", "array": label},
                       {"kind": "i32", "value": len(arg.items)}]
    missing = set(launch.expect) - set(expect)
    assert not missing, f"{name}: no such array {missing}"
    grid = list(launch.grid) + [1] * (3 - len(launch.grid))
    text = {"name": name, "family": family, "symbol": symbol, "grid": grid, "params": params,
            "arrays": arrays, "expect": expect}
    if launch.stdout is not None:
        text["stdout"] = launch.stdout
    if launch.trap is not None:
        text["trap"] = launch.trap
    return text, files


def export(name, family, make, folder, version):
    launch = make(common.Random(name))
    cconv = (CallingConvention.cutile_python_v2() if needs_v2(launch.args)
             else CallingConvention.cutile_python_v1())
    signature = KernelSignature([constraint(a) for a in launch.args], cconv)
    signature = signature.with_mangled_symbol(launch.kernel._pyfunc.__name__)
    buffer = io.BytesIO()
    # Only from 13.3 on is bytecode independent of the target.
    target = "sm_100" if version in ("13.1", "13.2") else None
    export_kernel(launch.kernel, [signature], buffer, output_format="tileir_bytecode",
                  bytecode_version=version, gpu_code=target)
    text, files = describe(name, family, launch, signature.symbol)
    (folder / f"{name}.tileirbc").write_bytes(buffer.getvalue())
    (folder / f"{name}.json").write_text(json.dumps(text, indent=1) + "\n")
    for file, data in files.items():
        np.save(folder / file, data)


def load_cases():
    for file in FILES:
        if (pathlib.Path(__file__).parent / "kernels" / f"{file}.py").exists():
            importlib.import_module(f"kernels.{file}")
    return common.CASES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bytecode-version", help="such as 13.3; default: newest release")
    parser.add_argument("--only", help="comma-separated case names")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    only = args.only.split(",") if args.only else None
    failed = []
    for name, (family, make) in load_cases().items():
        if only and name not in only:
            continue
        try:
            export(name, family, make, args.folder, args.bytecode_version)
        except Exception as error:
            failed.append(name)
            print(f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
            if args.verbose:
                traceback.print_exc()
    done = len(only or common.CASES) - len(failed)
    print(f"{done} exported, {len(failed)} failed {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
