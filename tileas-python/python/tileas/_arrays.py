"""Arrays of others: numpy's, and those on a GPU by either of two protocols.

In: objects. Out: what a kernel needs of them, and what has to be kept until it has run.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._errors import Error

# Types by the names that numpy and ml_dtypes give them.
ELEMS = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "i1",
    "float8_e8m0fnu": "ue8m0",
}
DTYPES = {elem: name for name, elem in ELEMS.items()}


def elem_of(dtype: Any) -> str:
    """The element type of a dtype."""
    found = np.dtype(dtype)
    if not found.isnative:
        raise Error("E1401", f"elements of {found.str} have their bytes in the other order; astype({found.name!r}) turns them")
    name = found.name
    if name not in ELEMS:
        raise Error("E1401", f"no kernel takes elements of type {name}; {', '.join(ELEMS)} can be taken")
    return ELEMS[name]


def dtype_of(elem: str) -> np.dtype[Any]:
    """The dtype of an element type; types that numpy lacks are ml_dtypes'."""
    name = DTYPES.get(elem, {"tf32": "float32"}.get(elem))
    if name is None:
        raise Error("E1401", f"numpy has no type for elements of type {elem}")
    try:
        return np.dtype(name)
    except TypeError:
        try:
            import ml_dtypes
        except ImportError:
            raise Error("E1401", f"{name} is a type of ml_dtypes, which is not installed") from None
        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found


@dataclass(frozen=True)
class Foreign:
    """Memory of a GPU that somebody else has."""

    address: int
    elem: str
    shape: list[int]
    # In elements.
    strides: list[int]
    device: int | None
    # What keeps the memory.
    owner: object
    read_only: bool = False


def foreign(value: Any) -> Foreign | None:
    """What an object says of its memory on a GPU; None: it has none there."""
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except KeyError:
        # torch's own property, for types that it has no name for: 8-bit floats.
        interface = None
    if interface is not None:
        return _interface(value, interface)
    place = getattr(value, "__dlpack_device__", None)
    if place is not None:
        kind, number = place()
        # kDLCUDA, kDLCUDAManaged.
        if int(kind) in (2, 13):
            return _dlpack(value, int(number))
    return None


def _interface(value: Any, interface: dict[str, Any]) -> Foreign:
    dtype = np.dtype(interface["typestr"])
    # The protocol has no name for bf16 and 8-bit floats: their owners say unsigned integers or bytes; torch says so of its own.
    named = ELEMS.get(str(getattr(value, "dtype", "")).removeprefix("torch."))
    elem = named if named is not None and dtype.itemsize == dtype_size(named) else elem_of(dtype)
    shape = [int(n) for n in interface["shape"]]
    steps = interface.get("strides")
    if steps is None:
        strides = dense(shape)
    else:
        if any(int(s) % dtype.itemsize for s in steps):
            raise Error("E1402", f"strides of {steps} bytes are no multiples of the elements' {dtype.itemsize}")
        strides = [int(s) // dtype.itemsize for s in steps]
    address, read_only = interface["data"]
    return Foreign(int(address), elem, shape, strides, None, value, bool(read_only))


def dtype_size(elem: str) -> int:
    """Bytes of an element."""
    return {"f64": 8, "i64": 8, "u64": 8, "f32": 4, "i32": 4, "u32": 4, "tf32": 4}.get(
        elem, 1 if elem in ("i1", "i8", "u8", "e4m3", "e5m2", "ue8m0") else 2
    )


def dense(shape: list[int]) -> list[int]:
    """Strides of rows without gaps."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 1, 0, -1):
        strides[d - 1] = strides[d] * max(shape[d], 1)
    return strides


# Source: dlpack.h, version 1.0, of which the part that all versions share is read.
class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


# By code and bits.
_TYPES = {
    (0, 8): "i8",
    (0, 16): "i16",
    (0, 32): "i32",
    (0, 64): "i64",
    (1, 8): "u8",
    (1, 16): "u16",
    (1, 32): "u32",
    (1, 64): "u64",
    (2, 16): "f16",
    (2, 32): "f32",
    (2, 64): "f64",
    (4, 16): "bf16",
    (10, 8): "e4m3",
    (12, 8): "e5m2",
    (6, 8): "i1",
    (14, 8): "ue8m0",
}


def _dlpack(value: Any, number: int) -> Foreign:
    capsule = value.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # A capsule that nobody consumes frees what it has when it goes; it is kept with the owner.
    address = get(capsule, b"dltensor")
    tensor = ctypes.cast(address, ctypes.POINTER(_Tensor)).contents
    elem = _TYPES.get((tensor.dtype.code, tensor.dtype.bits))
    if elem is None or tensor.dtype.lanes != 1:
        raise Error("E1401", f"a DLPack type of code {tensor.dtype.code} and {tensor.dtype.bits} bits")
    shape = [int(tensor.shape[d]) for d in range(tensor.ndim)]
    strides = [int(tensor.strides[d]) for d in range(tensor.ndim)] if tensor.strides else dense(shape)
    start = int(tensor.data or 0) + int(tensor.byte_offset)
    return Foreign(start, elem, shape, strides, number, (value, capsule))


def overlap(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays may have an element in common."""
    limit: Any = 1000  # numpy's stubs know no numbers but 0 and -1
    try:
        return np.shares_memory(a, b, max_work=limit)
    except np.exceptions.TooHardError:
        return True
