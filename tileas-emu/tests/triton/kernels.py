"""Kernels that Triton compiles to PTX, with inputs and the results that numpy computes.

Usage: kernels.py FOLDER. Writes FOLDER/<case>.ptx, raw buffers FOLDER/<case>.<buffer>.{in,out} and FOLDER/cases.json:
launches with their parameters in order. No GPU takes part.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import numpy as np
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(z + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def softmax(x, y, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + col, mask=col < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * stride + col, (e / tl.sum(e, axis=0)).to(y.dtype.element_ty), mask=col < n)


@triton.jit
def layer_norm(x, w, b, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for at in range(0, n, BLOCK):
        col = at + tl.arange(0, BLOCK)
        total += tl.load(x + row * n + col, mask=col < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], tl.float32)
    for at in range(0, n, BLOCK):
        col = at + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + col, mask=col < n, other=0.0).to(tl.float32)
        d = tl.where(col < n, v - mean, 0.0)
        squares += d * d
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    for at in range(0, n, BLOCK):
        col = at + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + col, mask=col < n).to(tl.float32)
        r = (v - mean) * scale * tl.load(w + col, mask=col < n) + tl.load(b + col, mask=col < n)
        tl.store(y + row * n + col, r.to(y.dtype.element_ty), mask=col < n)


@triton.jit
def gemm(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    p = tl.arange(0, BK)
    pa = a + i[:, None] * k + p[None, :]
    pb = b + p[:, None] * n + j[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for at in range(0, k, BK):
        ta = tl.load(pa, mask=(i[:, None] < m) & (p[None, :] < k - at), other=0.0)
        tb = tl.load(pb, mask=(p[:, None] < k - at) & (j[None, :] < n), other=0.0)
        acc = tl.dot(ta, tb, acc)
        pa += BK
        pb += BK * n
    out = c + i[:, None] * n + j[None, :]
    tl.store(out, acc.to(c.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


@triton.jit
def gemm_tma(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM
    j = tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for at in range(0, k, BK):
        acc = tl.dot(a.load([i, at]), b.load([j, at]).T, acc)
    c.store([i, j], acc.to(tl.float16))


@triton.jit
def attention(q, k, v, o, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    at = tl.program_id(0) * BM
    base = tl.program_id(1) * n * D
    i = at + tl.arange(0, BM)
    d = tl.arange(0, D)
    tq = tl.load(q + base + i[:, None] * D + d[None, :], mask=i[:, None] < n, other=0.0)
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    end = n
    if CAUSAL:
        end = tl.minimum(n, at + BM)
    for begin in range(0, end, BN):
        j = begin + tl.arange(0, BN)
        tk = tl.load(k + base + j[None, :] * D + d[:, None], mask=j[None, :] < n, other=0.0)
        s = tl.dot(tq, tk) * scale
        inside = j[None, :] < n
        if CAUSAL:
            inside = inside & (j[None, :] <= i[:, None])
        s = tl.where(inside, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, axis=1))
        e = tl.exp2(s - new[:, None])
        fade = tl.exp2(top - new)
        total = total * fade + tl.sum(e, axis=1)
        tv = tl.load(v + base + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        acc = tl.dot(e.to(tv.dtype), tv, acc * fade[:, None])
        top = new
    tl.store(o + base + i[:, None] * D + d[None, :], (acc / total[:, None]).to(o.dtype.element_ty), mask=i[:, None] < n)


NAMES = {"fp32": np.float32, "fp16": np.float16, "i32": np.int32}


def bf16(x):
    """The bits of bf16 numbers nearest to x."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Cases:
    def __init__(self, folder):
        self.folder, self.list = Path(folder), []
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, name, fn, arch, grid, args, constants, tol, warps=4, stages=3, ctas=1, expect=(), detectors=True):
        """`args`: by parameter name, a (type, array) for a tensor, a (type, array, block) for a tensor descriptor or a
        (type, number); `expect`: substrings of the PTX."""
        signature, attrs, params = {}, {}, []
        for i, (param, (ty, value, *block)) in enumerate(args.items()):
            tensor = isinstance(value, np.ndarray)
            signature[param] = "*" + ty if tensor else ty
            if block:
                signature[param] = f"tensordesc<{ty}[{','.join(map(str, block[0]))}]>"
            elif tensor or ty == "i32" and value % 16 == 0:
                attrs[(i,)] = [["tt.divisibility", 16]]
        for param in constants:
            signature[param] = "constexpr"
        source = ASTSource(fn=fn, signature=signature, constexprs=constants, attrs=attrs)
        built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps, "num_stages": stages, "num_ctas": ctas})
        ptx = built.asm["ptx"]
        for text in expect:
            assert text in ptx, f"{name}: no {text} in the PTX"
        (self.folder / f"{name}.ptx").write_text(ptx)
        maps = list(getattr(built.metadata, "tensordesc_meta", None) or [])
        for param, (ty, value, *block) in args.items():
            if not isinstance(value, np.ndarray):
                raw = np.array(value, NAMES[ty]).tobytes()
                params.append({"scalar": list(raw)})
                continue
            item = {"buffer": f"{name}.{param}.in", "type": ty}
            value.tofile(self.folder / item["buffer"])
            params.append(item)
            if block:
                # A map, then the extents and strides in elements.
                meta = maps.pop(0)
                item["map"] = {"dims": value.shape[::-1], "box": list(meta["block_size"])[::-1], "swizzle": meta["swizzle"]}
                params.extend({"scalar": list(np.int32(n).tobytes())} for n in value.shape)
                params.extend({"scalar": list(np.int64(n // value.itemsize).tobytes())} for n in value.strides)
        self.list.append(
            {
                "name": name,
                "entry": built.metadata.name,
                # A program is a cluster.
                "grid": [grid[0] * ctas, *grid[1:]],
                "block": [32 * warps, 1, 1],
                "smem": built.metadata.shared,
                "params": params,
                "tol": tol,
                "detectors": detectors,
            }
        )
        return self.list[-1]

    def result(self, case, param, value):
        """What a tensor must hold afterwards, in f32."""
        names = [p.get("buffer", "") for p in case["params"]]
        item = case["params"][names.index(f"{case['name']}.{param}.in")]
        item["expect"] = f"{case['name']}.{param}.out"
        np.ascontiguousarray(value, np.float32).tofile(self.folder / item["expect"])

    def close(self):
        (self.folder / "cases.json").write_text(json.dumps(self.list, indent=1))


def main(folder):
    rng = np.random.default_rng(1)
    cases = Cases(folder)

    n = 2500
    x, y = rng.normal(size=n).astype(np.float32), rng.normal(size=n).astype(np.float32)
    for arch in (80, 90, 100):
        args = {"x": ("fp32", x), "y": ("fp32", y), "z": ("fp32", np.full(n, np.nan, np.float32)), "n": ("i32", n)}
        case = cases.add(f"add_sm{arch}", add, arch, (3, 1, 1), args, {"BLOCK": 1024}, 0.0)
        cases.result(case, "z", x + y)

    rows, cols, pitch = 3, 781, 800
    x = rng.normal(size=(rows, pitch)).astype(np.float32)
    e = np.exp(x[:, :cols].astype(np.float64))
    want = x * 0 + 7
    want[:, :cols] = e / e.sum(axis=1, keepdims=True)
    for arch in (80, 90):
        args = {"x": ("fp32", x), "y": ("fp32", np.full_like(x, 7)), "stride": ("i32", pitch), "n": ("i32", cols)}
        case = cases.add(f"softmax_sm{arch}", softmax, arch, (rows, 1, 1), args, {"BLOCK": 1024}, 1e-5)
        cases.result(case, "y", want)

    rows, cols = 3, 1000
    x = rng.normal(size=(rows, cols)).astype(np.float16)
    w, b = rng.normal(size=cols).astype(np.float32), rng.normal(size=cols).astype(np.float32)
    d = x.astype(np.float64)
    d = (d - d.mean(axis=1, keepdims=True)) / np.sqrt(d.var(axis=1, keepdims=True) + 1e-5)
    for arch in (80, 90):
        args = {"x": ("fp16", x), "w": ("fp32", w), "b": ("fp32", b), "y": ("fp16", np.full_like(x, np.nan))}
        args |= {"n": ("i32", cols), "eps": ("fp32", 1e-5)}
        case = cases.add(f"layer_norm_sm{arch}", layer_norm, arch, (rows, 1, 1), args, {"BLOCK": 256}, 2e-3)
        cases.result(case, "y", d * w + b)

    def gemms(name, arch, ty, m, n, k, bm, bn, bk, tol, expect, **options):
        a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
        if ty == "bf16":
            a, b = bf16(a), bf16(b)
            wide = from_bf16(a), from_bf16(b)
        else:
            a, b = a.astype(NAMES[ty]), b.astype(NAMES[ty])
            wide = a, b
        args = {"a": (ty, a), "b": (ty, b), "c": ("fp32", np.full((m, n), np.nan, np.float32))}
        args |= {"m": ("i32", m), "n": ("i32", n), "k": ("i32", k)}
        blocks = {"BM": bm, "BN": bn, "BK": bk}
        grid = (-(-m // bm), -(-n // bn), 1)
        case = cases.add(name, gemm, arch, grid, args, blocks, tol, expect=expect, **options)
        cases.result(case, "c", wide[0].astype(np.float64) @ wide[1].astype(np.float64))

    mma, wgmma = ["mma.sync.aligned", "cp.async.cg"], ["wgmma.mma_async"]
    gemms("gemm_f16_sm80", 80, "fp16", 100, 96, 160, 64, 64, 32, 1e-3, mma)
    gemms("gemm_bf16_sm80", 80, "bf16", 64, 64, 96, 64, 32, 32, 1e-3, mma)
    gemms("gemm_tf32_sm80", 80, "fp32", 64, 64, 64, 32, 32, 32, 2e-2, mma, stages=2)
    gemms("gemm_f16_sm90", 90, "fp16", 100, 136, 200, 64, 128, 64, 1e-3, wgmma)
    gemms("gemm_bf16_sm90", 90, "bf16", 128, 64, 128, 128, 64, 32, 1e-3, wgmma, warps=8)

    # Clusters that share out a tile.
    gemms("gemm_f16_pairs_sm90", 90, "fp16", 200, 136, 200, 128, 128, 64, 1e-3, wgmma + [".reqnctapercluster 2", "%cluster_ctarank"], ctas=2)

    # Without detectors: nothing makes the initialisation of its mbarriers known to the asynchronous proxy.
    m, n, k = 100, 136, 200
    a, b = rng.normal(size=(m, k)).astype(np.float16), rng.normal(size=(n, k)).astype(np.float16)
    args = {"a": ("fp16", a, [64, 64]), "b": ("fp16", b, [64, 64])}
    args |= {"c": ("fp16", np.full((m, n), np.nan, np.float16), [64, 64]), "k": ("i32", k)}
    blocks = {"BM": 64, "BN": 64, "BK": 64}
    expect = wgmma + ["cp.async.bulk.tensor"]
    case = cases.add("gemm_tma_sm90", gemm_tma, 90, (2, 3, 1), args, blocks, 5e-3, expect=expect, detectors=False)
    cases.result(case, "c", a.astype(np.float64) @ b.T.astype(np.float64))

    heads, n, d = 2, 96, 64
    q, k, v = (rng.normal(size=(heads, n, d)).astype(np.float16) for _ in range(3))
    s = np.einsum("hid,hjd->hij", q.astype(np.float64), k.astype(np.float64)) * 0.125
    for arch, expect in ((80, mma[:1]), (90, wgmma)):
        for causal in (False, True):
            masked = np.where(np.tril(np.ones((n, n))) > 0, s, -np.inf) if causal else s
            p = np.exp(masked - masked.max(axis=2, keepdims=True))
            want = np.einsum("hij,hjd->hid", p / p.sum(axis=2, keepdims=True), v.astype(np.float64))
            args = {t: ("fp16", a) for t, a in (("q", q), ("k", k), ("v", v), ("o", np.full_like(q, np.nan)))}
            args |= {"n": ("i32", n), "scale": ("fp32", 0.125 * np.log2(np.e))}
            name = f"attention{'_causal' if causal else ''}_sm{arch}"
            blocks = {"BM": 64, "BN": 32, "D": d, "CAUSAL": causal}
            case = cases.add(name, attention, arch, (2, heads, 1), args, blocks, 4e-3, stages=2, expect=expect)
            cases.result(case, "o", want)

    cases.close()


if __name__ == "__main__":
    main(sys.argv[1])
