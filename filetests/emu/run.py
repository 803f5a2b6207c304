#!/usr/bin/env python3
"""Runs cases: a PTX kernel with its launch metadata against a numpy expression.

usage: run.py CASES.json... [--jobs N] [--trace FILE] [--seeds A,B] [--modes M,N] [--verbose]

A case file holds one case or a list; keys of a case:
  ptx       path of the module, or `ptx_text`
  launch    launch metadata, object or path: kernel, block, grid, dynamic_smem, params, tensor_maps, requires
  views     name -> {shape, dtype, init = ints|normal|uniform|ramp|zeros|ones|nan|number, strides (elements), pad (bytes)}
  scalars   name -> number or expression; grid (override), sms (default 4)
  seeds     default [1]; modes default ["fast", "latest", "random"]
  expect    [{view, expr, tol = exact | number | "2^-9", bound (expression), k}]
  fails     text that the error must contain (for tests of the machine)
`expr` is evaluated in float64 on the initial values of the views. `exact` compares bits after one
rounding to the view's type (all NaNs are equal). With a tolerance t the limit is t * `bound` (a view-sized
expression such as `abs(a) @ abs(b).T`) plus one rounding, without `bound` 4t * |ref| + t * k.
Everything else in the views must keep its initial bytes.
Prints a line per (case, seed, mode); exit status 1 if any failed. As a library: `run_case`, `run_one`.
"""
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import ast
import functools
import json
import multiprocessing
import operator
import struct
import sys
import time
import traceback
import zlib

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import ptxparse
from machine import EmuError, Machine, PARAM_WINDOW
from tma import GlobalMemory, MapError, TensorMap, View, from_bits, to_bits

MODES = ("fast", "latest", "random")


class CaseError(Exception):
    """A case or its launch metadata is wrong, or the kernel's result is."""


# ---------------------------------------------------------------- expressions over view names

OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Div: operator.floordiv,
    ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}


def host_value(text, views, scalars):
    """Evaluates a launch expression: integers, `v.dN`, `v.sN`, scalars, ceildiv, min, max, ptr."""
    if isinstance(text, (int, float)):
        return text
    functions = {"ceildiv": lambda a, b: -(-a // b), "cdiv": lambda a, b: -(-a // b), "min": min, "max": max, "abs": abs}

    def walk(n):
        if isinstance(n, ast.Expression):
            return walk(n.body)
        if isinstance(n, ast.Constant) and isinstance(n.value, (int, float)):
            return n.value
        if isinstance(n, ast.Name) and n.id in scalars:
            return scalars[n.id]
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id in views:
            v = views[n.value.id]
            table = {"d": v.shape, "s": v.strides}.get(n.attr[:1])
            if table is not None and n.attr[1:].isdigit() and int(n.attr[1:]) < len(table):
                return table[int(n.attr[1:])]
        if isinstance(n, ast.BinOp) and type(n.op) in OPERATORS:
            return OPERATORS[type(n.op)](walk(n.left), walk(n.right))
        if isinstance(n, ast.UnaryOp) and isinstance(n.op, (ast.USub, ast.Not)):
            return -walk(n.operand) if isinstance(n.op, ast.USub) else not walk(n.operand)
        if isinstance(n, ast.BoolOp):
            vals = [walk(x) for x in n.values]
            return all(vals) if isinstance(n.op, ast.And) else any(vals)
        if isinstance(n, ast.Compare):
            left, ok = walk(n.left), True
            for op, right in zip(n.ops, n.comparators):
                right = walk(right)
                ok = ok and OPERATORS[type(op)](left, right)
                left = right
            return ok
        if isinstance(n, ast.IfExp):
            return walk(n.body) if walk(n.test) else walk(n.orelse)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name):
            if n.func.id == "ptr":
                acc = 0
                for x in n.args:
                    if not isinstance(x, ast.Name) or x.id not in views:
                        raise CaseError(f"unknown view in {text!r}")
                    acc |= views[x.id].address
                return acc
            if n.func.id in functions:
                return functions[n.func.id](*[walk(x) for x in n.args])
        raise CaseError(f"cannot evaluate {text!r}: unknown {ast.unparse(n)!r}")

    return walk(ast.parse(str(text).strip(), mode="eval"))


# ---------------------------------------------------------------- building a launch

def fill(view, init, rng):
    """Initial contents of a view; all bytes between the elements get a pattern."""
    view.data[:] = np.arange(len(view.data), dtype=np.int64).astype(np.uint8) ^ 0x5A
    shape = view.shape
    count = int(np.prod(shape))
    if isinstance(init, list):
        values = np.array(init, float).reshape(shape)
    elif isinstance(init, (int, float)):
        values = np.full(shape, init)
    elif init == "ints":
        values = rng.integers(-2, 3, shape) if view.dtype[0] != "u" else rng.integers(0, 5, shape)
    elif init == "normal":
        values = rng.standard_normal(shape)
    elif init == "uniform":
        values = rng.random(shape)
    elif init == "ramp":
        values = (np.arange(count) % 251 - (125 if view.dtype[0] != "u" else 0)).reshape(shape)
    elif init in ("zeros", "ones"):
        values = np.full(shape, 0 if init == "zeros" else 1)
    elif init == "nan":
        if view.dtype[0] in "iu":
            values = np.full(shape, 0x5A)
        else:
            values = np.full(shape, np.nan)
    else:
        raise CaseError(f"unknown init {init!r}")
    if count:
        view.elements()[...] = to_bits(values, view.dtype)


def scalar_bytes(value, typ, size):
    if typ in ("f32", "f64"):
        return struct.pack("<f" if typ == "f32" else "<d", value)
    if typ in ("f16", "bf16"):
        return int(to_bits(np.array([float(value)]), typ)[0]).to_bytes(2, "little")
    return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")


@functools.lru_cache(maxsize=64)
def parse_file(path, stamp):
    with open(path) as f:
        return ptxparse.parse(f.read())


def load_module(case):
    if "ptx_text" in case:
        return ptxparse.parse(case["ptx_text"])
    return parse_file(case["ptx"], os.stat(case["ptx"]).st_mtime_ns)


def load_launch(case):
    launch = case["launch"]
    if isinstance(launch, str):
        with open(launch) as f:
            launch = json.load(f)
    if isinstance(launch, dict) and "kernels" in launch:
        launch = launch["kernels"]
    if isinstance(launch, list):
        wanted = case.get("kernel")
        picks = [x for x in launch if wanted is None or x["kernel"] == wanted]
        if not picks:
            raise CaseError(f"no kernel {wanted!r} in the launch metadata")
        launch = picks[0]
    return launch


def build(case, seed):
    """Returns `(machine, views, scalars)` of a case."""
    module, launch = load_module(case), load_launch(case)
    entry = module.entries.get(launch["kernel"])
    if entry is None:
        raise CaseError(f"no entry {launch['kernel']!r} in the module")
    sms = case.get("sms", 4)
    views = {}
    for k, (name, v) in enumerate(case.get("views", {}).items()):
        views[name] = View(name, k, v["shape"], v["dtype"], v.get("strides"), v.get("pad", 0))
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        fill(views[name], v.get("init", "ints"), rng)
    scalars = {"sms": sms}
    for name, v in case.get("scalars", {}).items():
        scalars[name] = host_value(v, views, scalars)
    if case.get("check_requires", True):
        for text in launch.get("requires", []):
            if not host_value(text, views, scalars):
                raise CaseError(f"launch requirement {text!r} does not hold")

    maps = []
    for m in launch.get("tensor_maps", []):
        ev = lambda x: int(host_value(x, views, scalars))
        try:
            maps.append(TensorMap(views[m["view"]], m["type"], [ev(x) for x in m["dims"]], [ev(x) for x in m["strides_bytes"]],
                                  [ev(x) for x in m["box"]], m.get("swizzle", "none"), m.get("element_strides"),
                                  m.get("interleave", "none"), m.get("oob", "zero")))
        except MapError as e:
            raise CaseError(f"tensor map over {m['view']}: {e}") from None

    params = bytearray(max(entry.param_bytes, 1))
    map_at = {}
    described = launch["params"]
    if [p["name"] for p in described] != list(entry.params):
        raise CaseError(f"parameters {[p['name'] for p in described]} in the metadata, {list(entry.params)} in the entry")
    for p in described:
        q = entry.params[p["name"]]
        kind = p["kind"]
        if kind == "tensor_map":
            if q.size != 128 or q.align < 64:
                raise CaseError(f"parameter {q.name} must be 128 bytes aligned to 64")
            map_at[q.offset] = maps[p["map"]]
            params[q.offset:q.offset + 128] = b"\xa5" * 128
            continue
        typ = p.get("type", "u64" if kind == "pointer" else "u32")
        if kind == "pointer":
            value = views[p["of"]].address
        elif kind == "size":
            value = views[p["of"]].shape[p["dim"]]
        elif kind == "stride":
            value = views[p["of"]].strides[p["dim"]]
        elif kind == "scalar":
            value = host_value(p.get("of", p["name"]), views, scalars)
        elif kind == "expr":
            value = host_value(p["expr"], views, scalars)
        else:
            raise CaseError(f"parameter {q.name}: unknown kind {kind!r}")
        size = {"i": 4, "u": 4}.get(typ, int("".join(c for c in typ if c.isdigit())) // 8)
        if size != q.size:
            raise CaseError(f"parameter {q.name} has {q.size} bytes in the entry, {size} in the metadata")
        params[q.offset:q.offset + size] = scalar_bytes(value, typ, size)

    grid = case.get("grid") or launch["grid"]
    grid = [int(host_value(x, views, scalars)) for x in grid]
    grid += [1] * (3 - len(grid))
    block = [int(host_value(x, views, scalars)) for x in launch["block"]]
    block += [1] * (3 - len(block))
    cluster = [int(x) for x in launch.get("cluster") or [1]]
    if max(cluster) > 1:
        raise CaseError("clusters are not supported")
    smem = int(host_value(launch.get("dynamic_smem", 0), views, scalars))
    machine = Machine(module, entry, block, grid, smem, params, map_at, GlobalMemory(views.values()), sms,
                      case.get("max_steps", 20_000_000))
    return machine, views, scalars


# ---------------------------------------------------------------- comparison

def tolerance(t):
    if isinstance(t, str) and "^" in t:
        base, _, e = t.partition("^")
        return float(base) ** float(e)
    return float(t)


def environment(views, scalars):
    env = {name: from_bits(v.elements().copy(), v.dtype).astype(np.float64) for name, v in views.items()}
    env.update(scalars)
    env.update(np=np, relu=lambda x: np.where(np.isnan(x), x, np.maximum(x, 0)), where=np.where, zeros=np.zeros, ones=np.ones,
               abs=np.abs, exp=np.exp, exp2=np.exp2, log2=np.log2, sqrt=np.sqrt, tanh=np.tanh, maximum=np.maximum, minimum=np.minimum,
               sum=np.sum, max=np.max, min=np.min, arange=np.arange, inf=np.inf, nan=np.nan, float=float, int=int, f16=lambda x: from_bits(to_bits(x, "f16"), "f16"),
               bf16=lambda x: from_bits(to_bits(x, "bf16"), "bf16"), f32=lambda x: from_bits(to_bits(x, "f32"), "f32"),
               softmax=lambda x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))
    return env


def compare(case, views, initial, env):
    """Raises `CaseError` at the first difference."""
    expected = {name: initial[name].copy() for name in views}
    for e in case.get("expect", []):
        v = views[e["view"]]
        got_bits = v.elements().copy()
        ref = np.broadcast_to(np.asarray(eval(e["expr"], {"__builtins__": {}}, env)), v.shape)
        want_bits = to_bits(ref, v.dtype)
        tol = e.get("tol", "exact")
        got = from_bits(got_bits, v.dtype).astype(np.float64)
        if tol == "exact":
            want = from_bits(want_bits, v.dtype).astype(np.float64)
            # -0 and +0 are told apart by bits only in integer types; sums may give either.
            bad = ~((got == want) | (np.isnan(got) & np.isnan(want)))
        else:
            t = tolerance(tol)
            want = ref.astype(np.float64)
            if "bound" in e:
                bound = np.broadcast_to(np.asarray(eval(e["bound"], {"__builtins__": {}}, env)), v.shape)
                ulp = {"f16": 2.0 ** -11, "bf16": 2.0 ** -8, "f32": 2.0 ** -24}.get(v.dtype, 0)
                limit = t * bound + ulp * np.abs(want)
            else:
                limit = 4 * t * np.abs(want) + t * e.get("k", 1)
            bad = ~((np.abs(got - want) <= limit) | (np.isnan(got) & np.isnan(want)) | (got == want))
        if bad.any():
            at = tuple(int(x) for x in np.argwhere(bad)[0])
            raise CaseError(f"{e['view']}{list(at)}: got {got[at]}, expected {want[at]} ({int(bad.sum())} of {bad.size} elements differ)")
        v.elements(expected[e["view"]])[...] = got_bits
    for name, v in views.items():
        wrong = np.flatnonzero(v.data != expected[name])
        if len(wrong):
            raise CaseError(f"byte {int(wrong[0])} of view {name} was changed ({len(wrong)} bytes in all)")


def run_one(case, seed, mode, trace=None):
    """Executes a case once; raises `EmuError`, `CaseError` or `PtxError` on failure."""
    machine, views, scalars = build(case, seed)
    initial = {name: v.data.copy() for name, v in views.items()}
    env = environment(views, scalars)
    machine.run(mode, seed, trace)
    with np.errstate(all="ignore"):
        compare(case, views, initial, env)


def attempt(job):
    """One (case, seed, mode) with its outcome: `(name, seed, mode, message or None, seconds, trace)`."""
    case, seed, mode, want_trace = job
    trace = [] if want_trace else None
    start, message = time.time(), None
    try:
        run_one(case, seed, mode, trace)
    except (EmuError, CaseError, ptxparse.PtxError, MapError) as e:
        message = str(e)
    except (KeyError, IndexError, TypeError, ValueError, SyntaxError, NameError, OSError) as e:
        # Malformed cases and metadata; a fault of the machine would show here too.
        message = f"{type(e).__name__}: {e}\n{traceback.format_exc(limit=-3)}"
    if case.get("fails"):
        if message is None:
            message = f"succeeded; an error with {case['fails']!r} was expected"
        elif case["fails"] in message:
            message = None
    return case.get("name", "case"), seed, mode, message, time.time() - start, trace


def jobs_of(case, trace=False, seeds=None, modes=None):
    for mode in modes or case.get("modes", MODES):
        if mode not in MODES:
            raise CaseError(f"unknown mode {mode!r}")
        for seed in seeds or case.get("seeds", [1]):
            yield case, seed, mode, trace


def run_case(case):
    """All seeds and modes of a case; returns the list of outcomes."""
    return [attempt(j) for j in jobs_of(case)]


def read_cases(path):
    """Cases of a file; relative paths in it are relative to its folder."""
    with open(path) as f:
        data = json.load(f)
    cases = data if isinstance(data, list) else [data]
    folder = os.path.dirname(os.path.abspath(path))
    stem = os.path.splitext(os.path.basename(path))[0]
    for k, c in enumerate(cases):
        c.setdefault("name", stem if len(cases) == 1 else f"{stem}[{k}]")
        for key in ("ptx", "launch"):
            if isinstance(c.get(key), str):
                c[key] = os.path.join(folder, c[key])
    return cases


def main(argv):
    ap = argparse.ArgumentParser(description="Runs PTX cases on the CPU.")
    ap.add_argument("files", nargs="+")
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--trace")
    ap.add_argument("--seeds", type=lambda t: [int(x) for x in t.split(",")])
    ap.add_argument("--modes", type=lambda t: t.split(","))
    ap.add_argument("--verbose", action="store_true")
    args = ap.parse_args(argv)
    jobs = []
    for path in args.files:
        for case in read_cases(path):
            jobs += jobs_of(case, bool(args.trace), args.seeds, args.modes)
    failed, traces = 0, []
    pool = multiprocessing.Pool(args.jobs) if args.jobs > 1 and len(jobs) > 1 else None
    results = pool.imap(attempt, jobs) if pool else map(attempt, jobs)
    for name, seed, mode, message, seconds, trace in results:
        failed += message is not None
        print(f"{'FAIL' if message else 'ok  '} {name} seed={seed} mode={mode} {seconds:.2f}s" + (f"\n  {message}" if message else ""), flush=True)
        if trace is not None:
            traces.append({"case": name, "seed": seed, "mode": mode, "events": trace})
    if pool:
        pool.close()
        pool.join()
    if args.trace:
        with open(args.trace, "w") as f:
            json.dump(traces, f)
    print(f"{len(jobs) - failed} of {len(jobs)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
