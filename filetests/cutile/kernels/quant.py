"""Quantisation."""
import cuda.tile as ct
import numpy as np

from .common import arr, case, exact, Launch, near, out, rounded

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def quantize_i8_kernel(x, q, scale, N: ct.Constant[int]):
    """Symmetric, one scale per row, halves away from zero."""
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, N), padding_mode=ZERO).astype(ct.float32)
    s = ct.max(ct.abs(v), axis=1, keepdims=True) / 127.0
    v = v / s
    v = ct.where(v < 0.0, ct.ceil(v - 0.5), ct.floor(v + 0.5))
    ct.store(q, (row, 0), v.astype(ct.int8))
    ct.store(scale, (row, 0), s)


@case("quant")
def quantize_i8_rows(r):
    x = arr(r.normal(6, 300), "f16")
    s = np.abs(x.f64).max(1, keepdims=True) / 127
    v = x.f64 / s
    q = np.trunc(v + np.copysign(.5, v))
    return Launch(quantize_i8_kernel, (6,), [x, out((6, 300), "i8"), out((6, 1)), 512],
                  {"q": (q, 0.0, 1.0), "scale": near(s, 1e-6, 0.0)})


@ct.kernel
def quantize_e4m3_kernel(x, q, scale, N: ct.Constant[int]):
    row = ct.bid(0)
    col = ct.arange(N, dtype=ct.int32)
    v = ct.gather(x, (row, col)).astype(ct.float32)
    s = ct.maximum(ct.max(ct.abs(v)), 1e-12) / 448.0
    ct.scatter(scale, row, s)
    ct.scatter(q, (row, col), (v / s).astype(ct.float8_e4m3fn))


@case("quant")
def quantize_e4m3_rows(r):
    x = arr(r.normal(5, 200), "bf16")
    s = np.abs(x.f64).max(1) / 448
    return Launch(quantize_e4m3_kernel, (5,), [x, out((5, 200), "e4m3"), out(5), 256],
                  {"q": rounded(x.f64 / s[:, None], "e4m3", 2e-3), "scale": near(s, 1e-6, 0.0)})


@ct.kernel
def dequantize_kernel(q, scale, y, TM: ct.Constant[int], TN: ct.Constant[int],
                      B: ct.Constant[int]):
    """One scale per B columns."""
    i, j = ct.bid(0), ct.bid(1)
    v = ct.load(q, (i, j), (TM, TN)).astype(ct.float32).reshape((TM, TN // B, B))
    s = ct.load(scale, (i, j), (TM, TN // B)).reshape((TM, TN // B, 1))
    ct.store(y, (i, j), (v * s).reshape((TM, TN)).astype(y.dtype))


@case("quant")
def dequantize_e5m2_blocks(r):
    q, s = arr(r.normal(24, 128), "e5m2"), arr(r.uniform(24, 4))
    return Launch(dequantize_kernel, (3, 2), [q, s, out((24, 128), "bf16"), 8, 64, 32],
                  {"y": rounded(q.f64 * s.f64.repeat(32, 1), "bf16", 1e-6)})


@ct.kernel
def quantize_mx_kernel(x, q, scale, TM: ct.Constant[int], K: ct.Constant[int]):
    """A power-of-two scale per 32 columns, taken from the exponent bits of the maximum."""
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (TM, K), padding_mode=ZERO).reshape((TM, K // 32, 32))
    top = ct.max(ct.abs(v), axis=2)
    exponent = (ct.bitcast(top, ct.int32) >> 23) - 7
    exponent = ct.maximum(exponent, 1)
    s = ct.bitcast(exponent << 23, ct.float32).reshape((TM, K // 32, 1))
    ct.store(q, (i, 0), (v / s).reshape((TM, K)).astype(ct.float8_e4m3fn))
    ct.store(scale, (i, 0), exponent.astype(ct.uint8))


@case("quant")
def quantize_mx_e4m3(r):
    x = arr(r.normal(20, 128) * 2.0 ** r.ints(-6, 6, 20, 1))
    v = x.val.reshape(20, 4, 32)
    _, e = np.frexp(np.abs(v).max(-1))
    e = e - 1 - 7
    q = (v / 2.0 ** e[..., None]).reshape(20, 128)
    return Launch(quantize_mx_kernel, (3,), [x, out((20, 128), "e4m3"), out((20, 4), "u8"), 8, 128],
                  {"q": rounded(q, "e4m3", 2e-3), "scale": exact(e + 127)})


@ct.kernel
def unpack_i4_kernel(w, y, T: ct.Constant[int]):
    """Two signed 4-bit numbers per byte, low half first, by shifts."""
    i = ct.bid(0)
    v = ct.load(w, i, (T,), padding_mode=ZERO).astype(ct.int32)
    low = (v << 28) >> 28
    high = (v << 24) >> 28
    both = ct.cat((low.reshape((T, 1)), high.reshape((T, 1))), 1).reshape((2 * T,))
    ct.store(y, i, both.astype(y.dtype))


@case("quant")
def unpack_i4(r):
    w = arr(r.ints(0, 256, 300), "u8")
    v = w.val.astype(int)
    both = np.stack([v & 15, v >> 4], -1).reshape(-1)
    return Launch(unpack_i4_kernel, (3,), [w, out(600, "f16"), 128],
                  {"y": exact(np.where(both > 7, both - 16, both))})


@ct.kernel
def pack_bytes_kernel(x, y, z, T: ct.Constant[int]):
    """f32 to bytes, and bytes to f16."""
    v = ct.load(x, 0, (T,))
    raw = ct.pack_to_bytes(v)
    ct.store(y, 0, raw)
    ct.store(z, 0, ct.unpack_from_bytes(raw, ct.float16))


@case("quant")
def pack_unpack_bytes(r):
    pair = arr(r.normal(128), "f16")
    x = arr(pair.val.view(np.float32))
    return Launch(pack_bytes_kernel, (1,), [x, out(256, "u8"), out(128, "f16"), 64],
                  {"y": exact(x.val.view(np.uint8)), "z": exact(pair.val)})


@ct.kernel
def convert_kernel(x, h, b, e4, e5, i, u, T: ct.Constant[int]):
    at = ct.bid(0)
    v = ct.load(x, at, (T,))
    ct.store(h, at, v.astype(ct.float16))
    ct.store(b, at, v.astype(ct.bfloat16))
    ct.store(e4, at, v.astype(ct.float8_e4m3fn))
    ct.store(e5, at, v.astype(ct.float8_e5m2))
    ct.store(i, at, v.astype(ct.int16))
    ct.store(u, at, ct.abs(v).astype(ct.uint8))


@case("quant")
def convert_all(r):
    """Rounding to nearest even, exactly; integers truncate."""
    x = arr(r.normal(500, scale=30))
    v = x.val
    return Launch(convert_kernel, (4,),
                  [x, out(500, "f16"), out(500, "bf16"), out(500, "e4m3"), out(500, "e5m2"),
                   out(500, "i16"), out(500, "u8"), 128],
                  {"h": exact(v), "b": exact(v), "e4": exact(v), "e5": exact(v),
                   "i": exact(np.trunc(v)), "u": exact(np.trunc(np.abs(v)))})


@ct.kernel
def convert_large_kernel(x, e4, e5, h, T: ct.Constant[int]):
    v = ct.load(x, 0, (T,))
    ct.store(e4, 0, v.astype(ct.float8_e4m3fn))
    ct.store(e5, 0, v.astype(ct.float8_e5m2))
    ct.store(h, 0, v.astype(ct.float16))


@case("quant")
def convert_large(r):
    """Beyond the range, 8-bit floats saturate and f16 becomes infinite."""
    x = arr(np.concatenate([r.normal(28, scale=1e5), [464, -465, 7e4, np.nan]]))
    v = x.val
    return Launch(convert_large_kernel, (1,),
                  [x, out(32, "e4m3"), out(32, "e5m2"), out(32, "f16"), 32],
                  {"e4": exact(np.clip(v, -448, 448)), "e5": exact(np.clip(v, -57344, 57344)),
                   "h": exact(v)})
