"""Kernels of cuTile, compiled and launched here; on the emulator where there is no GPU.

>>> tileas.cutile.launch(None, grid, kernel, (x, y, 16))      # as ct.launch, with arrays of numpy
>>> print(tileas.cutile.compile(kernel, (x, y, 16)).explain())

The package cuda-tile writes the bytecode; it needs neither a GPU nor a toolkit for that.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import os
import struct
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _tileas
from ._arrays import DTYPES, Foreign, dtype_size, elem_of, foreign
from ._errors import Error
from ._kernel import Device, Jit, Kernel, Options, Tensor, _grid, option_list

__all__ = ["compile", "launch"]

# Versions of the bytecode, the newest first; those before 13.3 are for one processor.
_VERSIONS = (("13.4", None), ("13.3", None), ("13.2", "sm_100"), ("13.1", "sm_100"))
# Warps that the option simt-warps is set to where a kernel asks for them.
_WARPS = (4, 8)
# Dimensions up to which strides and extents are looked at, and what they are looked at for: bytes, elements.
_MOST_DIMS, _DIVISOR = 5, 16


def compile(
    kernel: Any,
    signature: Any = None,
    *,
    target: str | None = None,
    device: Device | None = None,
    options: Options = None,
    cache: str | os.PathLike[str] | None = None,
) -> Kernel:
    """Compiles a kernel for a device, or for the emulator of a target.

    `kernel` is one of cuTile's, and `signature` a `cuda.tile.compilation.KernelSignature` or arguments as for a launch; or `kernel` is
    bytecode, and `signature` the name of an entry where it has several.
    """
    if device is None:
        device = Device.emulator() if target is None else Device.emulator(target)
    elif target not in (None, device.target):
        raise Error("E1403", f"target {target} on {device.name}")
    if isinstance(kernel, (bytes, bytearray)):
        return _compiled(bytes(kernel), signature, device, options, cache)
    if isinstance(signature, (tuple, list)):
        call = _Call(kernel, signature)
        signature = _signature(kernel, call.specs)
    code = _exported(kernel, signature)
    try:
        return _compiled(code, None, device, options, cache)
    except Error as error:
        raise _told(error) from None


def launch(
    stream: Any,
    grid: Any,
    kernel: Any,
    args: Sequence[Any],
    /,
    *,
    device: Device | None = None,
    options: Options = None,
    cache: str | os.PathLike[str] | None = None,
    programmatic_dependent_launch: bool = False,
) -> None:
    """Launches a kernel of cuTile, with the arguments that `cuda.tile.launch` takes.

    Arrays of numpy run on the emulator unless a device is given, and hold the results when the call returns; what is on a GPU runs
    there, on the stream. A kernel is compiled once for each device and each signature. `programmatic_dependent_launch` has no effect.
    """
    call = _Call(kernel, args)
    device = call.device() if device is None else device
    given = option_list(options)
    if device._number is None and not any(option.startswith("line-info=") for option in given):
        # What the emulator finds, it finds in lines of the kernel.
        given.append("line-info=true")
    built = _built(kernel, call, device, given, cache)
    call.run(built, _grid(grid), stream)


@dataclass
class _Memory:
    """An array as an argument: where it is, and what it looks like."""

    name: str
    elem: str
    shape: list[int]
    # In elements.
    strides: list[int]
    address: int
    owner: np.ndarray[Any, Any] | Tensor | Foreign

    def span(self) -> int:
        """Bytes from its first element to the end of its last."""
        if 0 in self.shape:
            return 0
        steps = sum((n - 1) * s for n, s in zip(self.shape, self.strides))
        return (steps + 1) * dtype_size(self.elem)


# What the kernel may count on, as tuples that can be compared: the tag, then what the constraint of the same name takes.
_Spec = tuple[Any, ...]


@dataclass
class _Call:
    """Arguments of a launch: `specs` are what the kernel is compiled for, `flat` what it is passed."""

    kernel: Any
    args: Sequence[Any]
    specs: tuple[_Spec, ...] = ()
    # Numbers, arrays, lists of arrays.
    flat: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        function = getattr(self.kernel, "_annotated_function", None)
        if function is None:
            raise Error("E1403", f"a kernel of cuTile is wanted, not {type(self.kernel).__name__}")
        names = list(function.pysig.parameters)
        if not isinstance(self.args, (tuple, list)) or len(self.args) != len(names):
            have = len(self.args) if isinstance(self.args, (tuple, list)) else repr(self.args)
            text = f"{function.pyfunc.__name__} takes {len(names)} arguments ({', '.join(names)}), not {have}"
            raise Error("E1102", text)
        rows = zip(names, self.args, function.parameter_annotations)
        self.specs = tuple(self._leaf(name, arg, note) for name, arg, note in rows)

    def _leaf(self, name: str, arg: Any, note: Any) -> _Spec:
        """What to expect of an argument; the annotation says what is constant, and what is counted in 64 bits."""
        if type(arg) is tuple:
            pairs = enumerate(_pairs(name, arg, note))
            return ("tuple", tuple(self._leaf(f"{name}[{i}]", a, n) for i, (a, n) in pairs))
        if note.KIND != "leaf":
            raise Error("E1401", f"{name}: {type(arg).__name__} where a tuple is wanted")
        if isinstance(arg, (np.bool_, np.integer, np.floating)):
            arg = arg.item()
        if note.constant:
            if not isinstance(arg, (bool, int, float)):
                raise Error("E1401", f"{name}: {type(arg).__name__} is no constant; bool, int and float are")
            # 1, True and 1.0 are three constants, and nan is one.
            return ("constant", type(arg).__name__, struct.pack("=d", arg) if isinstance(arg, float) else arg)
        if isinstance(arg, (bool, int, float)):
            return ("scalar", self._number(name, arg, note))
        if isinstance(arg, list):
            found = [self._array(f"{name}[{i}]", a) for i, a in enumerate(arg)]
            if not found:
                raise Error("E1401", f"{name}: a list without arrays")
            self.flat.append(found)
            element = note.list.element if note.list else None
            return ("list", _common(name, [_look(memory, element) for memory in found]))
        found_one = self._array(name, arg)
        self.flat.append(found_one)
        return _look(found_one, note.array)

    def _number(self, name: str, arg: bool | int | float, note: Any) -> str:
        self.flat.append(arg)
        if isinstance(arg, bool):
            return "bool_"
        if isinstance(arg, float):
            return "float32"
        ty: str = note.scalar.dtype.name if note.scalar else "int32"
        bits = int(ty.removeprefix("int"))
        if not -(1 << bits - 1) <= arg < 1 << bits - 1:
            raise Error("E1103", f"{name}: {arg} does not fit into {ty}")
        return ty

    def _array(self, name: str, arg: Any) -> _Memory:
        if isinstance(arg, Tensor):
            raw = arg._raw
            return _Memory(name, raw.elem, raw.shape, raw.strides, raw.address, arg)
        there = None if isinstance(arg, np.ndarray) else foreign(arg)
        if there is not None:
            return _Memory(name, there.elem, there.shape, there.strides, there.address, there)
        arg = _host(arg)
        if isinstance(arg, np.ndarray):
            elem, size = elem_of(arg.dtype), arg.dtype.itemsize
            if any(s < 0 or s % size for s in arg.strides):
                raise Error("E1402", f"{name}: strides of {arg.strides} bytes, not multiples of {size} from 0 on: np.ascontiguousarray copies")
            strides = [s // size for s in arg.strides]
            return _Memory(name, elem, list(arg.shape), strides, arg.ctypes.data, arg)
        raise Error("E1401", f"{name}: {type(arg).__name__} is no array, number, list or tuple")

    def memories(self) -> Iterator[_Memory]:
        """All arrays."""
        for arg in self.flat:
            yield from [arg] if isinstance(arg, _Memory) else arg if isinstance(arg, list) else []

    def device(self) -> Device:
        """Where the arrays are."""
        for memory in self.memories():
            if isinstance(memory.owner, Tensor):
                return memory.owner.device
            if isinstance(memory.owner, Foreign):
                return _default(memory.owner.device or 0)
        return _default(None)

    def run(self, kernel: Kernel, grid: tuple[int, int, int] | None, stream: Any) -> None:
        """Launches, and writes back what has changed."""
        device, raw = kernel.device, kernel._raw
        params = raw.params
        blocks = _blocks(device, [m for m in self.memories() if isinstance(m.owner, np.ndarray)])
        also: list[_tileas.Tensor] = []

        def place(memory: _Memory) -> _tileas.Tensor:
            size = dtype_size(memory.elem)
            # The kernel was compiled for its type: bits are all that is passed.
            elem, n = f"u{8 * size}", memory.span() // size
            if isinstance(memory.owner, Tensor):
                return memory.owner._raw.part(0, elem, n)
            if isinstance(memory.owner, Foreign):
                _check_place(device, memory, memory.owner)
                return device._raw.borrow(memory.address, elem, [n], [1])
            block = next(b for b in blocks if any(m is memory for m in b.memories))
            return block.tensor.part(memory.address - block.low, elem, n)

        def passed(arg: Any) -> Any:
            if isinstance(arg, _Memory):
                return place(arg)
            if not isinstance(arg, list):
                return arg
            # A row of words for each array: address, extents, strides.
            rows = []
            for memory in arg:
                also.append(place(memory))
                rows.append([also[-1].address, *memory.shape, *memory.strides])
            table = np.array(rows, np.uint64).view(np.int64)
            tensor = device._raw.zeros("i64", [table.size])
            tensor.write(table.tobytes())
            return tensor

        list_: list[Any] = []
        for arg in self.flat:
            if isinstance(arg, _Memory) and params[len(list_)][3] and not _writeable(arg.owner):
                raise Error("E1402", f"{arg.name}: it may only be read, and {kernel.name} writes there")
            list_.append(passed(arg))
            if isinstance(arg, _Memory):
                list_ += [*arg.shape, *arg.strides]
            elif isinstance(arg, list):
                list_.append(len(arg))
        on_gpu = device._number is not None
        theirs = any(isinstance(m.owner, Foreign) for m in self.memories())
        if not on_gpu:
            queue = device._raw.stream()
        elif stream is None and theirs:
            queue = device._raw.borrow_stream(0)
        else:
            queue = kernel._stream(stream)
        try:
            raw.launch(queue, grid, list_, also)
            if stream is None:
                queue.synchronize()
        finally:
            for block in blocks:
                block.write_back(kernel.name)


def _host(arg: Any) -> Any:
    """What an object has in memory of the host, as an array of numpy; itself where it has nothing there."""
    if isinstance(arg, np.ndarray) or not hasattr(arg, "__dlpack__"):
        return arg
    try:
        shared, array = np.from_dlpack(arg), np.asarray(arg)
    except (TypeError, ValueError, RuntimeError, BufferError):
        return arg
    # numpy takes what comes by DLPack as read-only where nothing else is said.
    return array if array.ctypes.data == shared.ctypes.data else shared


def _pairs(name: str, arg: tuple[Any, ...], note: Any) -> Iterator[tuple[Any, Any]]:
    """Items of a tuple, each with its annotation."""
    if note.KIND == "heterogeneous_tuple":
        if len(note.items) != len(arg):
            raise Error("E1401", f"{name}: a tuple of {len(arg)} where one of {len(note.items)} is wanted")
        return zip(arg, note.items)
    return ((a, note.each if note.KIND == "homogeneous_tuple" else note) for a in arg)


def _look(memory: _Memory, note: Any) -> _Spec:
    """What cuTile's launcher lets a kernel count on, given an array."""
    shape, strides, size, rank = memory.shape, memory.strides, dtype_size(memory.elem), len(memory.shape)
    index = note.index_dtype.name if note else "int32"
    if index == "int32" and any(n >= 1 << 31 for n in (*shape, *strides)):
        raise Error("E1103", f"{memory.name}: extents {shape} and strides {strides} do not fit into int32")
    near = rank <= _MOST_DIMS

    def constants(numbers: list[int], axes: tuple[int, ...]) -> list[int | None]:
        """Those that are asked for; where none are, the ones."""
        if any(not -rank <= d < rank for d in axes):
            raise Error("E1401", f"{memory.name}: dimensions {axes} of {rank}")
        asked = {d % rank for d in axes}
        return [n if d in asked or near and not asked and n == 1 else None for d, n in enumerate(numbers)]

    shape_constant = constants(shape, note.static_shape_dims if note else ())
    stride_constant = constants(strides, note.static_stride_dims if note else ())
    shape_divisor = [_DIVISOR if near and n % _DIVISOR == 0 else 1 for n in shape]
    stride_divisor = [_DIVISOR // size if near and s * size % _DIVISOR == 0 else 1 for s in strides]
    # Each stride leaps over what the smaller ones reach.
    order = sorted(zip(strides, shape))
    apart = all(s > 0 for s in strides) and all(s >= t * n for (t, n), (s, _) in zip(order, order[1:]))
    base = _DIVISOR if memory.address % _DIVISOR == 0 else 1
    lists = (stride_constant, shape_constant, stride_divisor, shape_divisor)
    return ("array", memory.elem, rank, index, *(tuple(x) for x in lists), base, not apart)


def _common(name: str, specs: list[_Spec]) -> _Spec:
    """What holds of all arrays of a list."""
    if len({spec[:4] for spec in specs}) != 1:
        raise Error("E1401", f"{name}: arrays of different types or ranks")
    columns = [list(zip(*(spec[i] for spec in specs))) for i in (4, 5, 6, 7)]
    same = [tuple(c[0] if len(set(c)) == 1 else None for c in column) for column in columns[:2]]
    least = [tuple(map(min, column)) for column in columns[2:]]
    return (*specs[0][:4], *same, *least, min(s[8] for s in specs), any(s[9] for s in specs))


def _cutile(part: str) -> Any:
    """A module of cuTile."""
    try:
        return importlib.import_module(part)
    except ImportError as error:
        text = f"kernels of cuTile need the package cuda-tile (pip install cuda-tile): {error}"
        raise Error("E1403", text) from error


def _constraint(spec: _Spec) -> Any:
    """The spec in cuTile's words."""
    ct, made = _cutile("cuda.tile"), _cutile("cuda.tile.compilation")
    tag, *rest = spec
    if tag == "constant":
        ty, value = rest
        return made.ConstantConstraint(struct.unpack("=d", value)[0] if ty == "float" else value)
    if tag == "scalar":
        return made.ScalarConstraint(getattr(ct, rest[0]))
    if tag == "tuple":
        return made.TupleConstraint([_constraint(item) for item in rest[0]])
    if tag == "list":
        return made.ListConstraint(_constraint(rest[0]), alias_groups=(), elements_may_alias=True)
    elem, rank, index, stride_constant, shape_constant, stride_divisor, shape_divisor, base, overlaps = rest
    dtype = DTYPES[elem]
    return made.ArrayConstraint(
        getattr(ct, {"bool": "bool_"}.get(dtype, dtype)),
        rank,
        index_dtype=getattr(ct, index),
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=overlaps,
        stride_constant=stride_constant,
        shape_constant=shape_constant,
        stride_divisible_by=stride_divisor,
        shape_divisible_by=shape_divisor,
        base_addr_divisible_by=base,
    )


def _second(spec: _Spec) -> bool:
    """Whether only the second calling convention has it."""
    if spec[0] == "list":
        return _second(spec[1])
    return spec[0] == "tuple" or spec[0] == "array" and any(n is not None for n in spec[5])


def _signature(kernel: Any, specs: tuple[_Spec, ...]) -> Any:
    made = _cutile("cuda.tile.compilation")
    convention = made.CallingConvention
    convention = convention.cutile_python_v2() if any(map(_second, specs)) else convention.cutile_python_v1()
    name = kernel._annotated_function.pyfunc.__name__
    parameters = [_constraint(spec) for spec in specs]
    return made.KernelSignature(parameters, convention, name if name.isascii() else None)


def _exported(kernel: Any, signature: Any) -> bytes:
    """The kernel as bytecode."""
    made = _cutile("cuda.tile.compilation")
    if not isinstance(signature, made.KernelSignature):
        raise Error("E1403", f"a signature is a KernelSignature or arguments, not {type(signature).__name__}")
    for version, processor in _VERSIONS:
        file = io.BytesIO()
        form = {"output_format": "tileir_bytecode", "bytecode_version": version, "gpu_code": processor}
        try:
            made.export_kernel(kernel, [signature], file, **form)
        except ValueError as error:
            # Of an older package, or of a newer one.
            if "bytecode version" not in str(error):
                raise
            continue
        return file.getvalue()
    raise Error("E1403", f"cuda-tile writes no bytecode of {', '.join(v for v, _ in _VERSIONS)}")


def _told(error: Error) -> Error:
    """The error with places in the program as Python has them."""
    if not any(e.file for e in error.errors):
        return error
    rows = [(e.code, e.message, e.file, e.line, e.column, e.notes) for e in error.errors]
    place = "{0}: {2}:{3}:{4}: {1}".format
    text = "\n".join(place(*row) if row[2] else f"{row[0]}: {row[1]}" for row in rows)
    return Error(error.code, text, rows)


def _compiled(
    code: bytes, name: str | None, device: Device, options: Options, cache: str | os.PathLike[str] | None
) -> Kernel:
    """A kernel of bytecode."""
    given = option_list(options)
    jit = Jit(device, options=given, cache=cache)
    module, hints, notes = jit._raw.tile_ir(code)
    names = module.names
    if name is None and len(names) == 1:
        name = names[0]
    if name not in names:
        raise Error("E1403", f"name one of the kernels: {', '.join(names) or 'there is none'}")
    wishes = dict(hints[names.index(name)])
    warps = wishes.pop("num_worker_warps", None)
    unused = "hint {}={} is not used{}"
    notes = notes + [unused.format(hint, n, "") for hint, n in wishes.items() if (hint, n) != ("num_ctas", 1)]
    if warps in _WARPS and not any(option.startswith("simt-warps=") for option in given):
        hinted = Jit(device, options=[*given, f"simt-warps={warps}"], cache=cache)
        try:
            return Kernel(hinted, module, hinted._raw.kernel(module, name), notes)
        except Error as error:
            notes.append(unused.format("num_worker_warps", warps, f": {error.errors[0].message}"))
    elif warps is not None:
        notes.append(unused.format("num_worker_warps", warps, "" if warps in _WARPS else ": 4 and 8 are"))
    return Kernel(jit, module, jit._raw.kernel(module, name), notes)


# Kernels by kernel of cuTile, then device and whatever else makes a difference.
_kernels: weakref.WeakKeyDictionary[Any, dict[Any, Kernel]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
# Devices of those who give none, by number; None: the emulator.
_devices: dict[int | None, Device] = {}


def _default(number: int | None) -> Device:
    if number not in _devices:
        _devices[number] = Device.emulator() if number is None else Device.cuda(number)
    return _devices[number]


def _built(
    kernel: Any, call: _Call, device: Device, options: list[str], cache: str | os.PathLike[str] | None
) -> Kernel:
    # The kernel keeps the device, so that no other one has its id.
    key = (call.specs, id(device), tuple(options), cache)
    with _lock:
        of_kernel = _kernels.setdefault(kernel, {})
        found = of_kernel.get(key)
        if found is not None:
            return found
        made = compile(kernel, _signature(kernel, call.specs), device=device, options=options, cache=cache)
        of_kernel[key] = made
    for text in made.warnings:
        # Spills are nothing to the emulator.
        if text.startswith("W16") or text.startswith("W0903") and device._number is not None:
            warnings.warn(text, stacklevel=3)
    return made


def _writeable(owner: Any) -> bool:
    if isinstance(owner, Foreign):
        return not owner.read_only
    return isinstance(owner, Tensor) or owner.flags.writeable


def _check_place(device: Device, memory: _Memory, there: Foreign) -> None:
    if device._number is None:
        raise Error("E1402", f"{memory.name}: memory of a GPU, for {device.name}")
    if there.device not in (None, device._number):
        raise Error("E1402", f"{memory.name}: memory of GPU {there.device}, for GPU {device._number}")


@dataclass
class _Block:
    """Memory of the host that arrays share, and its copy on the device. It begins as far behind a multiple of 16 as on the host."""

    low: int
    memories: list[_Memory]
    tensor: _tileas.Tensor
    before: bytes

    def write_back(self, kernel: str) -> None:
        """Changes the arrays as the kernel has."""
        after = self.tensor.read()
        if after == self.before:
            return
        told = bytearray(self.before)
        for memory in self.memories:
            array = memory.owner
            assert isinstance(array, np.ndarray)
            bits = f"u{array.itemsize}"
            old, in_told, new = (
                np.ndarray(array.shape, bits, b, memory.address - self.low, array.strides)
                for b in (self.before, told, after)
            )
            if np.array_equal(new, old):
                continue
            if not array.flags.writeable:
                raise Error("E1402", f"{memory.name}: it may only be read, and {kernel} writes there")
            array.view(bits)[...] = new
            in_told[...] = new
        if told != after:
            names = ", ".join(memory.name for memory in self.memories)
            raise Error("E1211", f"{kernel}: writes between the rows of {names}")


def _blocks(device: Device, memories: list[_Memory]) -> list[_Block]:
    """Arrays on the device, those that overlap in one block."""
    groups: list[list[_Memory]] = []
    high = 0
    for memory in sorted(memories, key=lambda m: m.address):
        end = memory.address + max(memory.span(), 1)
        if groups and memory.address < high:
            groups[-1].append(memory)
            high = max(high, end)
        else:
            groups.append([memory])
            high = end
    return [_block(device, group) for group in groups]


def _block(device: Device, memories: list[_Memory]) -> _Block:
    first = memories[0].address
    low, high = first // _DIVISOR * _DIVISOR, max(m.address + m.span() for m in memories)
    before = bytes(first - low) + ctypes.string_at(first, high - first)
    tensor = device._raw.zeros("u8", [len(before)])
    tensor.write(before)
    return _Block(low, memories, tensor, before)
