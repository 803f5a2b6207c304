"""Arrays, launch descriptions and the registry of test cases."""
import zlib
from dataclasses import dataclass

import cuda.tile as ct
import ml_dtypes
import numpy as np

# name -> (cuTile type, numpy type of the values, numpy type of the stored bits)
DTYPES = {
    "f16": (ct.float16, np.float16, np.float16),
    "bf16": (ct.bfloat16, ml_dtypes.bfloat16, np.uint16),
    "f32": (ct.float32, np.float32, np.float32),
    "f64": (ct.float64, np.float64, np.float64),
    "e4m3": (ct.float8_e4m3fn, ml_dtypes.float8_e4m3fn, np.uint8),
    "e5m2": (ct.float8_e5m2, ml_dtypes.float8_e5m2, np.uint8),
    "ue8m0": (ct.float8_e8m0fnu, ml_dtypes.float8_e8m0fnu, np.uint8),
    "i1": (ct.bool_, np.bool_, np.uint8),
    "i8": (ct.int8, np.int8, np.int8),
    "i16": (ct.int16, np.int16, np.int16),
    "i32": (ct.int32, np.int32, np.int32),
    "i64": (ct.int64, np.int64, np.int64),
    "u8": (ct.uint8, np.uint8, np.uint8),
    "u16": (ct.uint16, np.uint16, np.uint16),
    "u32": (ct.uint32, np.uint32, np.uint32),
    "u64": (ct.uint64, np.uint64, np.uint64),
}


class Array:
    """A strided array over a flat buffer of exactly the addressed extent."""

    def __init__(self, values, dtype, role, strides=None, aliases=(), align=16, index64=False,
                 constant=()):
        values = np.asarray(values)
        self.dtype, self.role, self.shape = dtype, role, values.shape
        self.aliases, self.align, self.index64 = tuple(aliases), align, index64
        self.constant = constant    # axes whose length is compiled in
        self.strides = tuple(strides) if strides else row_major(self.shape)
        extent = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides))
        self.buffer = np.full(extent, 3, DTYPES[dtype][1])
        self.buffer = self.image(values)

    def offsets(self):
        """The position of every element in the buffer."""
        grids = np.indices(self.shape)
        return sum((g * s for g, s in zip(grids, self.strides)), np.zeros(self.shape, np.int64))

    @property
    def val(self):
        """The stored values, after rounding to the type."""
        return self.buffer[self.offsets()]

    @property
    def f64(self):
        return self.val.astype(np.float64)

    def image(self, values):
        """The buffer with `values` stored through the view."""
        buffer = self.buffer.copy()
        buffer[self.offsets()] = cast(np.asarray(values), self.dtype)
        return buffer

    def bits(self, buffer=None):
        buffer = self.buffer if buffer is None else buffer
        return buffer.view(DTYPES[self.dtype][2])


def cast(values, dtype):
    target = DTYPES[dtype][1]
    if dtype in ("bf16", "e4m3", "e5m2", "ue8m0") and values.dtype.kind in "iu":
        values = values.astype(np.float32)
    with np.errstate(over="ignore"):
        return values.astype(target)


def row_major(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return tuple(strides)


def arr(values, dtype="f32", **options):
    return Array(values, dtype, "in", **options)


def out(shape, dtype="f32", fill=7, **options):
    """An output whose initial contents do not matter."""
    return Array(np.full(shape, fill), dtype, "out", **options)


def inout(values, dtype="f32", **options):
    return Array(values, dtype, "inout", **options)


@dataclass
class Scalar:
    dtype: str
    value: object


def i32(value):
    return Scalar("i32", int(value))


def i64(value):
    return Scalar("i64", int(value))


def f32(value):
    return Scalar("f32", float(np.float32(value)))


def f64(value):
    return Scalar("f64", float(value))


@dataclass
class ArrayList:
    """A list of arrays: the launcher passes a table of i64 words."""
    items: list


@dataclass
class Launch:
    kernel: object
    grid: tuple
    args: list                  # Array, ArrayList, Scalar, or a constant
    expect: dict                # array name -> (values, rtol, atol)
    stdout: str | None = None
    trap: str | None = None


CASES = {}                      # name -> (family, function)


def case(family):
    def register(make):
        assert make.__name__ not in CASES, make.__name__
        CASES[make.__name__] = (family, make)
        return make
    return register


class Random:
    def __init__(self, name):
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def normal(self, *shape, scale=1.0):
        return self.rng.standard_normal(shape) * scale

    def uniform(self, *shape, lo=0.0, hi=1.0):
        return self.rng.uniform(lo, hi, shape)

    def ints(self, lo, hi, *shape):
        return self.rng.integers(lo, hi, shape)

    def perm(self, n):
        return self.rng.permutation(n)


def exact(values):
    return (values, 0.0, 0.0)


def near(values, rtol=1e-5, atol=1e-6):
    return (values, rtol, atol)


# Relative half-ulp of each storage type, for outputs rounded to it.
ULP = {"f16": 2 ** -10, "bf16": 2 ** -7, "f32": 2 ** -22, "f64": 2 ** -51, "e4m3": 2 ** -3,
       "e5m2": 2 ** -2}


def rounded(values, dtype, atol=1e-4, slack=1.0):
    """One unit in the last place of the output type plus `atol`."""
    return (values, ULP[dtype] * slack, atol)
