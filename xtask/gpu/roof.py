"""How near every example comes to what memory or the tensor cores allow, at sizes of real use."""

import re

import arrays
import ratios

MI = 1 << 20
ROWS = 1 << 16
T = 4096


def product(m, n, k, step=64, **more):
    """C = A Bᵀ."""
    return {"a": (m, k), "b": (n, k), "c": (m, n), "kt": k // step, "flops": 2 * m * n * k, **more}


def square(step=64, **more):
    """A product of square matrices, however they lie."""
    return product(T, T, T, step, **more)


def attention(length, heads, d, part=1, **more):
    """Heads side by side; `part` of the scores count."""
    views = dict.fromkeys("qkvo", (length, heads * d))
    return {**views, "scale": 0.18, "flops": int(4 * part * length * length * heads * d), **more}


# By example, as far as torch has arrays of its elements: extents of views, values of scalars, and besides: `flops`; `peak`, TFLOP/s where it is not
# that of f16; `moved`, bytes where it is not each view once; `grid`; `below`, a bound of whole numbers; `fixed`, one number everywhere; `part` of the
# processors that have work.
KERNELS = {
    "adam": {**dict.fromkeys("pgmv", (64 * MI,)), "lr": 0.01, "moved": 7 * 256 * MI},
    "add": dict.fromkeys("abc", (64 * MI,)),
    "argmax_pairs": {"x": (ROWS, 1024), "m": (ROWS,), "at": (ROWS,)},
    "argmax_rows": {"x": (8 * ROWS, 128), "m": (8 * ROWS,), "k": (8 * ROWS,)},
    "attention_backward": {
        **dict.fromkeys(("q", "k", "v", "do", "dk", "dv"), (16384, 64)),
        **{"lse": (16384,), "delta": (16384,), "scale": 0.125, "scale2": 0.18, "flops": 8 * 16384**2 * 64, "part": 128 / 132},
    },
    "attention_causal": attention(8192, 16, 64, 0.5),
    "attention_d128": attention(16384, 1, 128),
    "attention_d256": attention(16384, 1, 256),
    "attention_d64": attention(8192, 16, 64),
    "attention_d96": attention(16384, 1, 96),
    "attention_decode": attention(4096, 1, 64, n=32),
    "attention_gqa": {
        **{"q": (32, T, 64), "k": (8, T, 64), "v": (8, T, 64), "o": (32, T, 64)},
        **{"group": 4, "scale": 0.18, "flops": 4 * T * T * 32 * 64},
    },
    "attention_paged": {
        **{"q": (16 * 1024, 64), "k": (64 * T, 64), "v": (64 * T, 64), "o": (16 * 1024, 64), "table": (1024, 32), "lengths": (1024,)},
        **{"scale": 0.18, "below": {"table": T}, "fixed": {"lengths": 2048}, "moved": 1024 * 2048 * 64 * 4},
    },
    "attention_soft_cap": attention(16384, 1, 128, cap2=7.2),
    "batch_norm_inference": {**dict.fromkeys("xy", (64, 256, T)), **dict.fromkeys(("mean", "var", "w", "b"), (256,))},
    "batched_gemm": {
        **{"a": (32, 2048, 512), "b": (32, 2048, 512), "c": (32, 2048, 2048)},
        **{"kt": 8, "flops": 2 * 32 * 2048 * 2048 * 512},
    },
    "clamp_i8": {"x": (16384, 16384), "y": (16384, 16384), "least": -100, "most": 55},
    "column_max": {"x": (T, ROWS), "m": (ROWS,)},
    "column_sums": {"x": (T, ROWS), "s": (ROWS,), "n": 128},
    "conv1d_depthwise": {"x": (16, T, 2048), "w": (4, 2048), "bias": (2048,), "y": (16, T, 2048)},
    "conv2d_implicit_gemm": {
        **{"x": (32, 56, 56, 256), "w": (9, 256, 256), "y": (32 * 56 * 56, 256)},
        **{"flops": 2 * 32 * 56 * 56 * 9 * 256 * 256},
    },
    "count_positive": {"x": (ROWS, 512), "n": (ROWS,)},
    "cross_entropy": {"x": (ROWS, 512), "t": (ROWS,), "loss": (ROWS,), "below": {"t": 500}},
    "cross_entropy_backward": {"x": (ROWS, 512), "t": (ROWS,), "dloss": (ROWS,), "dx": (ROWS, 512), "below": {"t": 500}},
    "cumulative_sums": {"x": (ROWS, 512), "y": (ROWS, 512)},
    "dequantise_e4m3": {"q": (ROWS, 512), "s": (ROWS,), "y": (ROWS, 512)},
    "dropout": {"x": (64 * MI,), "y": (64 * MI,), "seed": 3, "p": 0.25},
    "embedding": {
        **{"ids": (ROWS,), "table": (32000, 1024), "y": (ROWS, 1024)},
        **{"below": {"ids": 32000}, "moved": ROWS * 2048 + 32000 * 2048},
    },
    "gelu_erf": {"x": (8192, 8192), "y": (8192, 8192)},
    "gelu_tanh": {"x": (8 * ROWS, 128), "y": (8 * ROWS, 128)},
    "gelu_tanh_backward": dict.fromkeys(("x", "dy", "dx"), (ROWS, 200)),
    "gemm_bf16": square(),
    "gemm_bias_gelu": square(bias=(T,)),
    "gemm_e4m3": square(128, scale=0.25, peak=1979),
    "gemm_f16_nn": square(),
    "gemm_f16_nt": square(),
    "gemm_f16_tn": square(),
    "gemm_f16_tt": square(),
    "gemm_few_rows": product(16, 16896, 8192),
    "gemm_fp8_block_scaled": square(128, sa=(T, 32), sb=(T, 32), peak=1979),
    "gemm_grouped": {**dict.fromkeys("abc", (8, 2048, 2048)), "kt": 32, "flops": 16 * 2048**3},
    "gemm_persistent_tiles": square(grid=132),
    "gemm_s8": square(sa=(T,), sb=(T,), peak=1979),
    "gemm_split_k_atomic": {**product(512, 512, 16384), "kt": 64, "grid": (4, 8, 4)},
    "gemm_stream_k": square(grid=264),
    "gemm_swiglu": square(g=(T, T), u=(T, T), flops=4 * T**3),
    "gemm_tf32": square(32, peak=495),
    "gemm_w4a16": square(w=(T, T // 2), s=(T, T // 64)),
    "group_norm": {"x": (256, 256, 256), "w": (256,), "b": (256,), "y": (256, 256, 256)},
    "hard_swish_bf16": {"x": (64 * MI,), "y": (64 * MI,)},
    "histogram": {"x": (MI,), "h": (256,), "below": {"x": 256}, "grid": 1024},
    "l1_norm_rows": {"x": (ROWS, 900), "n": (ROWS,)},
    "layer_norm": {"x": (ROWS, 512), "y": (ROWS, 512), "w": (512,), "b": (512,), "mean": (ROWS,), "rstd": (ROWS,)},
    "layer_norm_backward": {
        **dict.fromkeys(("x", "dy", "dx"), (ROWS, 256)),
        **{"g": (256,), "dg": (ROWS // 32, 256), "db": (ROWS // 32, 256)},
    },
    "layer_norm_welford": {"x": (ROWS, 1000), "y": (ROWS, 1000)},
    "linear_recurrence": dict.fromkeys("abh", (ROWS, 256)),
    "log_softmax": {"x": (16 * ROWS, 64), "y": (16 * ROWS, 64)},
    "log_sum_exp": {"x": (ROWS, T), "y": (ROWS,)},
    "masked_fill": {"x": (8 * ROWS, 128), "k": (8 * ROWS, 128), "y": (8 * ROWS, 128)},
    "mean_pool": {"x": (16384, 60, 64), "y": (16384, 64), "inv": 1 / 60},
    "mean_rows_f16": {"x": (ROWS, T), "m": (ROWS,)},
    "moe_gather_gemm": square(ids=(T,), x=(T, T), w=(T, T), below={"ids": T}, grid=(32, 64)),
    "moe_gemm_scatter": square(
        tokens=(T,), gate=(T,), experts=(32,), x=(T, T), w=(8, T, T), y=(T, T), below={"tokens": T, "experts": 8}, grid=(32, 64)
    ),
    "normalise_l2": {"x": (8 * ROWS, 256), "y": (8 * ROWS, 256)},
    "quantise_i8": {"x": (4 * ROWS, 256), "q": (4 * ROWS, 256), "inv": 30.0},
    "quantise_rows_e4m3": {"x": (4 * ROWS, 512), "q": (4 * ROWS, 512), "s": (4 * ROWS,)},
    "relu_squared_f16": {"x": (8192, 8192), "y": (8192, 8192)},
    "rms_norm": {"x": (ROWS, T), "g": (T,), "y": (ROWS, T)},
    "rms_norm_backward": {**dict.fromkeys(("x", "dy", "dx"), (ROWS, 200)), "w": (200,), "dw": (200,)},
    "rope_halves": {**dict.fromkeys("xy", (8 * ROWS, 128)), **dict.fromkeys("cs", (8 * ROWS, 64))},
    "rope_pairs": {**dict.fromkeys("xy", (4 * ROWS, 64, 2)), **dict.fromkeys("cs", (4 * ROWS, 64))},
    "rotary_inplace": {"x": (8 * ROWS, 128), **dict.fromkeys("cs", (8 * ROWS, 64)), "moved": 8 * ROWS * 1024},
    "row_sums": {"x": (ROWS, T), "s": (ROWS,), "n": 16},
    "scatter_add": {
        **{"ids": (ROWS,), "x": (ROWS, 64), "table": (2 * ROWS, 64)},
        **{"below": {"ids": 2 * ROWS}, "grid": ROWS // 16, "moved": ROWS * 64 * 12},
    },
    "silu_and_mul": {"x": (2 * ROWS, 512), "y": (2 * ROWS, 256)},
    "softmax_backward": dict.fromkeys(("y", "dy", "dx"), (ROWS, 500)),
    "softmax_online": {"x": (8192, 8192), "y": (8192, 8192), "moved": 3 * 4 * 8192 * 8192},
    "softmax_rows": {"x": (ROWS, 1024), "y": (ROWS, 1024)},
    "softmax_wide": {"x": (8192, 16384), "y": (8192, 16384)},
    "split_k_gemm": {
        **{"a": (512, 16384), "b": (16384, 512), "c": (512, 512), "parts": (4, 512, 512), "done": (4, 8)},
        **{"kt": 64, "fixed": {"done": 0}, "grid": (4, 8, 4), "flops": 2 * 512 * 512 * 16384},
    },
    "stencil": {"x": (8192, 8192), "y": (8192, 8192), "grid": (512, 128)},
    "sum_all": {"x": (8192, 16384), "s": (1,), "grid": (256, 128)},
    "swap_heads": {"x": (ROWS, 8, 64), "y": (8, ROWS, 64), "grid": ROWS // 16},
    "top1_gating": {"x": (16 * ROWS, 64), "p": (16 * ROWS,), "at": (16 * ROWS,)},
    "transpose": {"x": (16384, 16384), "y": (16384, 16384), "grid": (128, 256)},
    "variance_rows": {"x": (ROWS, 777), "v": (ROWS,)},
    "w8a16_gemm": square(w=(T, T), s=(T,), grid=(32, 64)),
}
# TB/s that a copy reaches, and TFLOP/s of f16, by target.
ROOFS = {"sm_90a": (3.0, 989.5)}


def parameters(text):
    """Names and types of a kernel's parameters."""
    head = re.search(r"^kernel @\w+\((.*?)\) \{", text, re.M | re.S)[1]
    return re.findall(r"%(\w+): (view<[^>]*>|\w+)", head)


def roofs(s):
    """Each example by its time, and what share of the nearest roof that is."""
    files = {path.stem: path.read_text() for path in (s.here / "examples/kernels").glob("*.tileas")}
    have = {name: [p for p, _ in parameters(files[name])] for name in KERNELS}
    wrong = [f"{name}: no {p}" for name, all_ in have.items() for p in all_ if p not in KERNELS[name]]
    if s.dry:
        return {"left out": "no GPU", "wrong": wrong}
    import tileas
    import torch

    on = tileas.Device.cuda(0)
    if on.target not in ROOFS:
        return {"left out": f"no roofs for {on.target}", "wrong": wrong}
    bandwidth, peak = ROOFS[on.target]
    jit, rows = tileas.Jit(on), {}
    for name, spec in KERNELS.items():
        if s.left() < 40:
            rows[name] = {"absent": "no time"}
            continue
        try:
            args, moved = [], 0
            for p, kind in parameters(files[name]):
                if not kind.startswith("view"):
                    args.append(spec[p])
                    continue
                elem = kind[5:-1].split("x")[-1]
                of = getattr(torch, arrays.TORCH[elem])
                if p in spec.get("fixed", {}):
                    x = torch.full(spec[p], spec["fixed"][p], device="cuda")
                elif elem in ("i1", "i8", "i32"):
                    x = torch.randint(0, spec.get("below", {}).get(p, 2), spec[p], device="cuda")
                else:
                    x = torch.randn(spec[p], device="cuda")
                args.append(x.to(of))
                moved += args[-1].numel() * args[-1].element_size()
            kernel, grid = jit.compile(files[name]), spec.get("grid")
            ms = ratios.bench(lambda: kernel[grid, ratios.current()](*args), 0.05)
            rates = {"GB/s": spec.get("moved", moved) / ms / 1e6, "TFLOP/s": spec.get("flops", 0) / ms / 1e9}
            shares = rates["GB/s"] / 1000 / bandwidth, rates["TFLOP/s"] / spec.get("peak", peak) / spec.get("part", 1)
            rows[name] = {"ms": ms, **rates, "share": max(shares)}
        except Exception as e:
            wrong.append(f"{name}: {type(e).__name__}: {str(e)[:300]}")
    return {"rows": rows, "wrong": wrong}
