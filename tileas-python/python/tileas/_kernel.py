"""Kernels that can be called, and what makes them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np

from . import _tileas
from ._arrays import dtype_of, elem_of, foreign, overlap
from ._errors import Entry, Error

Options = Union[Mapping[str, object], Sequence[str], None]


def option_list(options: Options) -> list[str]:
    """Options as the compiler takes them: NAME=VALUE."""
    if options is None:
        return []
    if isinstance(options, Mapping):
        word = {True: "true", False: "false"}
        return [
            f"{name}={word[value] if isinstance(value, bool) else value}"
            for name, value in options.items()
        ]
    if isinstance(options, str):
        raise Error("E1403", "options are a dict, or a list of NAME=VALUE")
    return [str(option) for option in options]


class Picture:
    """A schedule, drawn. A notebook shows it."""

    def __init__(self, text: str, format: str) -> None:
        self.text = text
        self.format = format

    def _repr_svg_(self) -> str | None:
        return self.text if self.format == "svg" else None

    def _repr_html_(self) -> str | None:
        return self.text if self.format == "html" else None

    def __str__(self) -> str:
        return self.text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)


class Device:
    """Where kernels run. Two objects made by two calls are two devices, with memory of their own."""

    def __init__(self, raw: _tileas.Device, number: int | None) -> None:
        self._raw = raw
        # Of a GPU.
        self._number = number

    @staticmethod
    def emulator(target: str = "sm_100a", sms: int = 4, timing: str = "fast", seed: int = 1) -> Device:
        """The emulator: kernels run on the CPU, under detectors. `timing`: when asynchronous work completes, `fast` (at once), `latest` (when
        nothing else can happen) or `random`; the last two depend on `seed`."""
        return Device(_tileas.Device.emulator(target, sms, timing, seed), None)

    @staticmethod
    def cuda(number: int = 0) -> Device:
        """A GPU."""
        return Device(_tileas.Device.cuda(number), number)

    @property
    def name(self) -> str:
        """What it is, in words."""
        return self._raw.name

    @property
    def target(self) -> str:
        """The processor that code is made for."""
        return self._raw.target

    @property
    def sms(self) -> int:
        """Multiprocessors."""
        return self._raw.sms

    def zeros(self, shape: Sequence[int], dtype: Any) -> Tensor:
        """A tensor of zeros on the device."""
        return Tensor(self, self._raw.zeros(elem_of(dtype), list(shape)))

    def tensor(self, array: np.ndarray[Any, Any]) -> Tensor:
        """A copy of an array on the device."""
        array = np.asarray(array)
        made = Tensor(self, self._raw.zeros(elem_of(array.dtype), list(array.shape)))
        made._raw.write(array.tobytes())
        return made

    def __repr__(self) -> str:
        return f"<tileas.Device {self.name}>"


class Tensor:
    """Memory of a device that stays there between launches."""

    def __init__(self, device: Device, raw: _tileas.Tensor) -> None:
        self.device = device
        self._raw = raw

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return tuple(self._raw.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return dtype_of(self._raw.elem)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of its elements; waits for launches."""
        flat = np.frombuffer(bytearray(self._raw.read()), dtype=self.dtype)
        return flat.reshape(self.shape)

    def write(self, array: np.ndarray[Any, Any]) -> None:
        """Overwrites its elements; waits for launches."""
        array = np.asarray(array)
        if array.shape != self.shape or array.dtype != self.dtype:
            have, want = f"{array.shape} {array.dtype}", f"{self.shape} {self.dtype}"
            raise Error("E1401", f"an array of {have} for a tensor of {want}")
        self._raw.write(array.tobytes())

    def __repr__(self) -> str:
        return f"<tileas.Tensor {self.shape} {self._raw.elem} on {self.device.name}>"


class Jit:
    """Makes kernels for a device, each once, whatever number of threads ask. May be used from all threads at once."""

    def __init__(
        self,
        device: Device | None = None,
        *,
        options: Options = None,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int | None = None,
    ) -> None:
        self.device = Device.emulator() if device is None else device
        if not isinstance(self.device, Device):
            raise Error("E1403", f"a tileas.Device is wanted, not {device!r}")
        self._raw = _tileas.Jit(self.device._raw, option_list(options), cache, cache_bytes)

    def compile(self, text: str, kernel: str | None = None) -> Kernel:
        """A kernel of a module's text; `kernel` names it where there are several."""
        module = self._raw.parse(text)
        names = module.names
        if kernel is None:
            if len(names) != 1:
                raise Error("E1403", f"name one of the module's kernels: {', '.join(names) or 'it has none'}")
            kernel = names[0]
        return Kernel(self, module, self._raw.kernel(module, kernel))

    def load(self, ptx: str, metadata: str | Mapping[str, Any]) -> Kernel:
        """A kernel of PTX that was written elsewhere, with its launch metadata as JSON or as a dict. They decide what memory the code
        touches, and are taken on trust."""
        text = metadata if isinstance(metadata, str) else json.dumps(metadata)
        return Kernel(self, None, self._raw.load(ptx, text))

    @property
    def compiled(self) -> int:
        """Kernels that were compiled, as no cache had them."""
        return self._raw.compiled

    @property
    def stats(self) -> dict[str, int]:
        """What the cache did."""
        return dict(zip(("disk_hits", "misses", "damaged", "failed"), self._raw.stats))


def compile(
    text: str,
    kernel: str | None = None,
    *,
    device: Device | None = None,
    options: Options = None,
    cache: str | os.PathLike[str] | None = None,
) -> Kernel:
    """Compiles a kernel; for the emulator unless a device is given."""
    return Jit(device, options=options, cache=cache).compile(text, kernel)


def check(text: str, *, target: str | None = None, options: Options = None) -> list[Entry]:
    """Everything that keeps a text from being compiled; nothing is raised."""
    given = option_list(options)
    if target is not None:
        given.append(f"target={target}")
    try:
        _tileas.check(text, given)
    except Error as error:
        return error.errors
    return []


def _grid(grid: Any) -> tuple[int, int, int] | None:
    if grid is None:
        return None
    numbers = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    if not 1 <= len(numbers) <= 3 or not all(
        isinstance(n, (int, np.integer)) and 0 <= n < 2**32 for n in numbers
    ):
        raise Error("E1403", f"a grid is one to three numbers of CTAs, not {grid!r}")
    x, y, z = (*(int(n) for n in numbers), 1, 1)[:3]
    return x, y, z


class Kernel:
    """A kernel. `kernel(a, b, n)` launches it with the grid that its metadata suggest, `kernel[grid](…)` and `kernel[grid, stream](…)` with
    another, and on somebody else's stream.

    Arrays of numpy are copied to the device, and back where the kernel writes them: the call returns when that is done. Tensors, and on a
    GPU whatever has DLPack or the CUDA array interface, stay where they are; what is launched on a stream of the caller's may then
    still run.
    """

    def __init__(
        self, jit: Jit, module: _tileas.Module | None, raw: _tileas.Kernel, notes: Sequence[str] = ()
    ) -> None:
        self._jit = jit
        # None: it was made elsewhere.
        self._module = module
        self._raw = raw
        self._params = raw.params
        self._pointers = raw.pointers
        # Of the front end.
        self._notes = notes

    @property
    def name(self) -> str:
        """Its name."""
        return self._raw.name

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self._jit.device

    @property
    def ptx(self) -> str:
        """Its PTX."""
        return self._raw.ptx

    @property
    def metadata(self) -> dict[str, Any]:
        """What a launch must hand over and hold to."""
        kernels: list[dict[str, Any]] = [json.loads(self._raw.metadata)]
        return kernels[0]

    @property
    def machine_code(self) -> bytes | None:
        """Its machine code; the emulator has none."""
        return self._raw.machine_code

    @property
    def assembler(self) -> str:
        """What made the machine code."""
        return self._raw.assembler

    @property
    def warnings(self) -> list[str]:
        """The compiler's warnings, and those of what made the module."""
        return [*self._raw.warnings, *self._notes]

    def explain(self) -> str:
        """How its loops are scheduled, what limits them, and what would change that."""
        return self._jit._raw.explain(self._source(), self.name)

    def schedule(self, format: str = "svg", iterations: int | None = None) -> Picture:
        """Its schedules as a picture: svg, html, gantt (text) or chrome-trace (JSON)."""
        text = self._jit._raw.draw(self._source(), self.name, format, iterations)
        return Picture(text, format)

    def _source(self) -> _tileas.Module:
        if self._module is None:
            raise Error("E1403", f"{self.name} is PTX from elsewhere: nothing is known of its schedule")
        return self._module

    def __getitem__(self, place: Any) -> Bound:
        grid, stream = place if _is_placed(place) else (place, None)
        return Bound(self, _grid(grid), stream)

    def __call__(self, *args: Any) -> None:
        """Launches."""
        self._launch(None, None, args)

    def _launch(self, grid: tuple[int, int, int] | None, stream: Any, args: tuple[Any, ...]) -> None:
        if len(args) != len(self._params):
            names = ", ".join(name for name, *_ in self._params)
            raise Error("E1102", f"{self.name} takes {len(self._params)} arguments ({names}), not {len(args)}")
        for pointer, (name, *_), arg in zip(self._pointers, self._params, args):
            # What is copied are rows: strides that the kernel is told beside would be those of other memory.
            if pointer and isinstance(arg, np.ndarray) and not arg.flags.c_contiguous:
                raise Error(
                    "E1402",
                    f"{name} is a pointer, and takes arrays whose rows follow each other: numpy.ascontiguousarray makes one, "
                    f"tileas.cutile.launch takes any; this has strides of {arg.strides} bytes",
                )
        arrays: list[tuple[str, np.ndarray[Any, Any], bool, Tensor]] = []
        owners: list[object] = []
        list_ = [
            self._argument(param, arg, arrays, owners) for param, arg in zip(self._params, args)
        ]
        if stream is None and owners:
            # What others have in flight on their default stream comes first.
            queue = self.device._raw.borrow_stream(0)
        else:
            queue = self._stream(stream)
        try:
            self._raw.launch(queue, grid, list_, [])
            if stream is None:
                queue.synchronize()
        finally:
            for _, array, written, tensor in arrays:
                if written:
                    array[...] = tensor.numpy()
        # Memory of others is theirs to keep until their stream has come so far.
        del owners

    def _stream(self, stream: Any) -> _tileas.Stream:
        if stream is None:
            return self.device._raw.stream()
        if isinstance(stream, _tileas.Stream):
            return stream
        # torch, cupy, a number.
        for name in ("cuda_stream", "ptr"):
            stream = getattr(stream, name, stream)
        if isinstance(stream, bool) or not isinstance(stream, int) or stream < 0:
            raise Error("E1403", f"a stream is a CUstream as a number, or has it as cuda_stream or ptr; not {stream!r}")
        return self.device._raw.borrow_stream(stream)

    def _argument(
        self,
        param: tuple[str, bool, str | None, bool],
        arg: Any,
        arrays: list[tuple[str, np.ndarray[Any, Any], bool, Tensor]],
        owners: list[object],
    ) -> Any:
        name, is_view, elem, written = param
        if isinstance(arg, Tensor):
            return arg._raw
        if isinstance(arg, (bool, np.bool_)):
            return bool(arg)
        if isinstance(arg, (int, np.integer)):
            return int(arg)
        if isinstance(arg, (float, np.floating)):
            return float(arg)
        if isinstance(arg, np.ndarray):
            if arg.ndim == 0 and not is_view:
                return arg.item()
            return self._array(name, elem, written, arg, arrays)
        there = foreign(arg)
        if there is None:
            raise Error("E1401", f"{name}: {type(arg).__name__} is no array, tensor or number")
        if self.device._number is None:
            raise Error("E1402", f"{name}: memory of a GPU, for {self.device.name}")
        if there.device not in (None, self.device._number):
            raise Error("E1402", f"{name}: memory of GPU {there.device}, for GPU {self.device._number}")
        if written and there.read_only:
            raise Error("E1402", f"{name}: it may only be read, and {self.name} writes there")
        owners.append(there.owner)
        return self.device._raw.borrow(there.address, there.elem, there.shape, there.strides)

    def _array(
        self,
        name: str,
        elem: str | None,
        written: bool,
        array: np.ndarray[Any, Any],
        arrays: list[tuple[str, np.ndarray[Any, Any], bool, Tensor]],
    ) -> Any:
        if written and not array.flags.writeable:
            raise Error("E1402", f"{name}: the array is read-only, and {self.name} writes there")
        for n, (other, seen, was_written, tensor) in enumerate(arrays):
            same = (
                seen.ctypes.data == array.ctypes.data
                and seen.shape == array.shape
                and seen.strides == array.strides
                and seen.dtype == array.dtype
            )
            if same:
                arrays[n] = (other, seen, was_written or written, tensor)
                return tensor._raw
            if (written or was_written) and overlap(seen, array):
                raise Error("E1402", f"{name} and {other} share memory that {self.name} writes")
        made = self.device._raw.zeros(elem_of(array.dtype), list(array.shape))
        made.write(array.tobytes())
        tensor = Tensor(self.device, made)
        arrays.append((name, array, written, tensor))
        return made

    def __repr__(self) -> str:
        return f"<tileas.Kernel {self.name} for {self.device.target}>"


def _is_placed(place: Any) -> bool:
    """Whether an index is a grid and a stream, rather than a grid of two numbers."""
    if not isinstance(place, tuple) or len(place) != 2:
        return False
    grid, stream = place
    return isinstance(grid, (tuple, list)) or grid is None or not isinstance(stream, (int, np.integer))


class Bound:
    """A kernel with a grid and a stream."""

    def __init__(self, kernel: Kernel, grid: tuple[int, int, int] | None, stream: Any) -> None:
        self._kernel = kernel
        self._grid = grid
        self._stream = stream

    def __call__(self, *args: Any) -> None:
        """Launches."""
        self._kernel._launch(self._grid, self._stream, args)
