"""Launch descriptions and their data files.

A case is one launch of a micro-kernel: `cases/<kernel>.json` lists the cases of a kernel. Buffers
have initial bytes (`file`; or `bytes` with a `fill` byte; or a `pattern` number, see below) and, where the launch writes, expected
bytes (`expect`) and rules to compare them: `exact` (default), `ulp` n, `rel` e, `abs` e (with the
element type `f32`, `f16` or `bf16`), or `report` where the manual leaves the bytes open.
Parameters: `{"buffer": name}`, `{"u32": n}`, `{"u64": n}`, `{"map": {...}}` as
cuTensorMapEncodeTiled takes it.
"""
import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ALL = {}


class Case:
    """Collects one launch and writes its files."""

    def __init__(self, kernel, name="", block=128, smem=0):
        self.kernel, self.name = kernel, kernel + ("." + name if name else "")
        self.d = {"name": self.name, "kernel": f"{kernel}.ptx", "entry": "k", "grid": [1, 1, 1], "block": [block, 1, 1], "cluster": [1, 1, 1], "smem": smem, "buffers": [], "params": []}
        ALL.setdefault(kernel, []).append(self)

    def _file(self, suffix, data):
        path = HERE / "data" / f"{self.name}.{suffix}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(np.ascontiguousarray(data).tobytes())
        return f"data/{path.name}"

    def buffer(self, name, data=None, size=None, fill=0, pattern_of=None, expect=None, sections=None, param=True):
        """A buffer, by default passed as the next parameter."""
        b = {"name": name}
        if data is not None:
            b |= {"bytes": np.ascontiguousarray(data).nbytes, "file": self._file(name + ".in", data)}
        elif pattern_of is not None:
            b |= {"bytes": 4 * pattern_of[0], "pattern": pattern_of[1]}
        else:
            b |= {"bytes": size, "fill": fill}
        if expect is not None:
            assert np.ascontiguousarray(expect).nbytes == b["bytes"], (self.name, name)
            b["expect"] = self._file(name + ".out", expect)
        if sections:
            b["sections"] = sections
        self.d["buffers"].append(b)
        if param:
            self.d["params"].append({"buffer": name})
        return self

    def u32(self, *values):
        self.d["params"] += [{"u32": int(v) & 0xFFFFFFFF} for v in values]
        return self

    def u64(self, *values):
        self.d["params"] += [{"u64": int(v) & (1 << 64) - 1} for v in values]
        return self

    def map(self, buffer, **fields):
        """A tensor map over a buffer: type, dims, strides, box, element_strides, swizzle, oob."""
        self.d["params"].append({"map": {"buffer": buffer, **fields}})
        return self


def save():
    """Writes the launch descriptions of all cases."""
    folder = HERE / "cases"
    folder.mkdir(exist_ok=True)
    for kernel, cases in sorted(ALL.items()):
        text = ",\n".join("  " + json.dumps(c.d) for c in cases)
        (folder / f"{kernel}.json").write_text(f"[\n{text}\n]\n")
    ALL.clear()


def pattern(words, seed):
    """Word i of a pattern buffer is `(i + seed) * 2654435761 mod 2^32`."""
    return ((np.arange(words, dtype=np.uint64) + np.uint64(seed)) * np.uint64(2654435761)).astype(np.uint32)


class Rng:
    """Numbers from a hashed counter (splitmix64): the same with every numpy."""

    def __init__(self, seed):
        self.at = np.uint64(seed) << np.uint64(32)

    def bits(self, count):
        with np.errstate(over="ignore"):
            z = (self.at + np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            self.at += np.uint64(count)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return z ^ (z >> np.uint64(31))

    def ints(self, lo, hi, shape):
        """Integers lo..hi-1."""
        r = (self.bits(int(np.prod(shape))) >> np.uint64(1)) % np.uint64(hi - lo)
        return r.astype(np.int64).reshape(shape) + lo

    def words(self, shape):
        """32-bit patterns."""
        return (self.bits(int(np.prod(shape))) >> np.uint64(32)).astype(np.uint32).reshape(shape)


def swizzle(image, mode):
    """Moves 16-byte chunks within 128-byte lines; bytes, length a multiple of the pattern."""
    keys = {"NONE": lambda n: 0, "32B": lambda n: n % 2, "64B": lambda n: n % 4, "128B": lambda n: n % 8, "128B_ATOM_32B": lambda n: n % 4 * 2, "128B_ATOM_64B": lambda n: n % 2 * 4}
    lines = np.frombuffer(image, np.uint8).reshape(-1, 8, 16)
    out = lines.copy()
    for n, line in enumerate(lines):
        for c in range(8):
            out[n, c ^ keys[mode](n)] = line[c]
    return out.tobytes()


SPAN = {"NONE": 16, "32B": 32, "64B": 64, "128B": 128}
