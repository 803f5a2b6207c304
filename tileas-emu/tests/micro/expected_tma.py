"""Bulk-copy micro-kernels: boxes by slicing padded numpy arrays."""
import numpy as np

import exact as X
from cases import Case, Rng, swizzle

TYPE = {"u8": np.uint8, "bf16": np.uint16, "f16": np.uint16, "f32": np.uint32, "tf32": np.uint32, "f32.ftz": np.uint32, "u32": np.uint32, "s32": np.int32, "u64": np.uint64}


def tensor(rng, dims, dtype, pads=None):
    """Bytes of a tensor with padded rows; returns (bytes, strides in bytes, array outermost first)."""
    size = np.dtype(TYPE[dtype]).itemsize
    strides, pitch = [], -(-dims[0] * size // 16) * 16
    for i, d in enumerate(dims[1:]):
        pitch += 16 * (pads[i] if pads else 0)
        strides.append(pitch)
        pitch *= d
    raw = rng.ints(1, 256, pitch + 64).astype(np.uint8)
    view = np.lib.stride_tricks.as_strided(raw.view(TYPE[dtype]), dims[::-1], strides[::-1] + [size])
    return raw, strides, view


def box_of(view, coords, box, steps):
    """The box out of the tensor with a margin of zeros as wide as the box (coordinates innermost first)."""
    margins = [2 * b for b in box[::-1]]
    grown = np.pad(view, [(m, m) for m in margins])
    tile = grown[tuple(slice(m + c, m + c + b, s) for m, c, b, s in zip(margins, coords[::-1], box[::-1], steps[::-1]))]
    assert tile.shape == tuple(-(-b // s) for b, s in zip(box, steps))[::-1], "the margin is too small"
    return tile


def shared_image(tile, mode, total, at=0):
    """Rows of the box at their pitch from byte `at`, swizzled, over a background of 0xA5."""
    rows = np.ascontiguousarray(tile).view(np.uint8).reshape(-1, tile.shape[-1] * tile.itemsize)
    span = {"NONE": 0, "32B": 32, "64B": 64}.get(mode, 128)
    pitch = max(rows.shape[1], span)
    image = np.full((rows.shape[0], pitch), 0xA5, np.uint8)
    image[:, :rows.shape[1]] = rows
    flat = np.full(total, 0xA5, np.uint8)
    flat[at:at + image.size] = image.ravel()
    return np.frombuffer(swizzle(flat.tobytes(), mode), np.uint8)


def load(name, dims, box, coords, dtype="bf16", mode="NONE", steps=None, pads=None, rule=None, oob="zero", predict=None, at=0):
    rng = Rng(sum(map(ord, name)))
    rank = len(dims)
    steps = steps or [1] * rank
    raw, strides, view = tensor(rng, dims, dtype, pads)
    tile = box_of(view, coords, box, steps)
    if predict:
        inside = box_of(np.ones(view.shape, bool), coords, box, steps)
        tile = np.array([predict(int(x), bool(i)) for x, i in zip(tile.ravel(), inside.ravel())], tile.dtype).reshape(tile.shape)
    row = max(tile.shape[-1] * tile.itemsize, {"NONE": 0, "32B": 32, "64B": 64}.get(mode, 128))
    total = -(-(at + row * (tile.size // tile.shape[-1])) // 1024) * 1024
    out = shared_image(tile, mode, total, at)
    c = Case(f"tma_load_{rank}d", name, 128, total + 1040)
    c.buffer("src", raw, param=False)
    c.map("src", type=dtype, dims=dims, strides=strides, box=box, element_strides=steps, swizzle=mode, oob=oob)
    c.buffer("out", size=total, fill=0, expect=out, sections=[{"label": name, "offset": 0, "bytes": total, "rule": rule}] if rule else None)
    c.u32(total, tile.nbytes, at, *coords)


def store(name, dims, box, coords, dtype="bf16", mode="NONE", op=None, pads=None):
    rng = Rng(sum(map(ord, name)))
    raw, strides, view = tensor(rng, dims, dtype, pads)
    if dtype in ("f16", "bf16", "f32") and op:
        view[...] = floats(rng, view.shape, dtype)
    tile = floats(rng, box[::-1], dtype) if op and dtype not in ("u32", "s32", "u64") else rng.ints(0, 1 << 62, box[::-1]).astype(TYPE[dtype])
    total = -(-max(tile.nbytes, 1) // 1024) * 1024
    image = shared_image(tile, mode, total)
    new = raw.copy()
    # Whole units of 16 bytes are stored, beyond the end of a row too: seen on an H100.
    unit = 16 // view.itemsize
    ends = (*view.shape[:-1], -(-view.shape[-1] // unit) * unit)
    target = np.lib.stride_tricks.as_strided(new.view(TYPE[dtype]), ends, view.strides)
    for index in np.ndindex(*tile.shape):
        at = tuple(i + c for i, c in zip(index, coords[::-1]))
        if all(0 <= i < n for i, n in zip(at, ends)):
            target[at] = reduce_one(op, dtype, target[at], tile[index]) if op else tile[index]
    rank = len(dims)
    c = Case(f"tma_{'red_' + op if op else 'store'}_{rank}d", name, 128, total + 1024)
    c.buffer("dst", raw, expect=new, param=False)
    c.map("dst", type=dtype, dims=dims, strides=strides, box=box, element_strides=[1] * rank, swizzle=mode, oob="zero")
    c.buffer("image", image).u32(total, *coords)


def floats(rng, shape, dtype):
    """Values with several exponents, so that sums round."""
    v = rng.ints(-4096, 4096, shape) * 2.0 ** rng.ints(-6, 7, shape)
    bits = [X.encode(dtype, ("num", int(x < 0), abs(X.Q(float(x))))) for x in v.ravel()]
    return np.array(bits, TYPE[dtype]).reshape(shape)


def reduce_one(op, dtype, old, new):
    if dtype in ("u32", "s32", "u64"):
        a, b = int(old), int(new)
        bits = np.dtype(TYPE[dtype]).itemsize * 8
        r = {"add": a + b, "min": min(a, b), "max": max(a, b), "xor": a ^ b}[op] & (1 << bits) - 1
        return TYPE[dtype](r - (1 << bits) if dtype == "s32" and r >> (bits - 1) else r)
    a, b = int(old), int(new)
    if op == "add":
        return X.encode(dtype, X.add(X.decode(dtype, a), X.decode(dtype, b)))
    return X.min_max(dtype, a, b, op == "max", False, False)


def run():
    # Coordinates are multiples of 16 bytes in the innermost dimension: an H100 ends the kernel at others with an illegal instruction.
    load("inner", [100], [64], [40])
    load("left", [100], [32], [-16], "u8")
    for mode in ("NONE", "32B", "64B", "128B"):
        inner = 64 if mode == "NONE" else {"32B": 16, "64B": 32, "128B": 64}[mode]
        load(f"in_{mode}", [256, 40], [inner, 16], [64, 8], mode=mode)
        load(f"corner_{mode}", [100, 20], [inner, 16], [(100 - inner // 2) // 8 * 8, 11], mode=mode, pads=[1])
    load("before_128B", [100, 20], [64, 16], [-8, -3], mode="128B")
    load("outside_128B", [100, 20], [64, 16], [104, 3], mode="128B")
    load("f32_128B", [40, 20], [32, 16], [20, 9], "f32", "128B")
    load("u8_64B", [90, 20], [64, 16], [48, 9], "u8", "64B")
    # A row narrower than the pattern: it takes the pattern's whole width in shared memory.
    load("narrow_128B", [100, 20], [16, 16], [8, 3], mode="128B")
    load("narrow_64B", [100, 20], [16, 16], [8, 3], mode="64B")
    # Boxes that do not start where the pattern does: the pattern goes by addresses.
    load("shifted_128B", [100, 20], [64, 10], [32, 3], mode="128B", at=0x180)
    load("shifted_64B", [100, 20], [32, 10], [32, 3], mode="64B", at=0x80)
    load("steps", [64, 30], [32, 14], [8, 5], steps=[1, 3], mode="64B")
    load("oob_steps", [64, 30], [32, 16], [8, 20], steps=[1, 2])
    load("in_128B", [64, 9, 5], [64, 4, 3], [0, 3, 1], mode="128B", pads=[0, 2])
    load("corner_32B", [24, 9, 5], [16, 4, 3], [16, 7, 3], mode="32B", pads=[1, 1])
    load("mixed", [24, 5, 6, 4], [16, 3, 2, 3], [16, -1, 5, 2], steps=[1, 2, 1, 1])
    load("mixed_64B", [40, 3, 4, 3, 3], [32, 2, 3, 2, 2], [24, 2, -1, 1, 2], mode="64B")
    for mode in ("NONE", "32B", "64B", "128B"):
        inner = 64 if mode == "NONE" else {"32B": 16, "64B": 32, "128B": 64}[mode]
        store(f"corner_{mode}", [100, 20], [inner, 16], [(100 - inner // 2) // 8 * 8, 11], mode=mode, pads=[1])
    store("in_f32", [40, 20], [32, 8], [4, 3], "f32", "128B")
    store("corner_3d", [40, 9, 5], [32, 4, 3], [24, 7, 3], mode="64B", pads=[1, 2])
    store("corner_5d", [40, 3, 4, 3, 3], [32, 2, 2, 2, 2], [24, 2, 3, 1, 2], mode="64B")
    for dtype in ("f32", "bf16", "f16", "u32", "s32", "u64"):
        size = np.dtype(TYPE[dtype]).itemsize
        dims, box, at = [160 // size, 12], [128 // size, 8], [48 // size, 7]
        store(f"{dtype}", dims, box, at, dtype, "128B", op="add") if dtype != "s32" else store("s32", dims, box, at, dtype, "128B", op="add")
        if dtype != "f32":
            store(dtype, dims, box, at, dtype, "128B", op="min")
            store(dtype, dims, box, at, dtype, "128B", op="max")
    store("u32", [40, 12], [32, 8], [12, 7], "u32", "128B", op="xor")
    # Four rows by number; the box is one row.
    rng = Rng(4)
    raw, strides, view = tensor(rng, [100, 30], "bf16")
    coords = [40, 3, 29, 11, 40]
    tile = np.concatenate([box_of(view, [coords[0], min(r, 30)], [64, 1], [1, 1]) for r in coords[1:]])
    c = Case("tma_gather4", "", 128, 2064)
    c.buffer("src", raw, param=False)
    c.map("src", type="bf16", dims=[100, 30], strides=strides, box=[64, 1], element_strides=[1, 1], swizzle="128B", oob="zero")
    c.buffer("out", size=1024, fill=0, expect=shared_image(tile, "128B", 1024)).u32(1024, 512, *coords)


if __name__ == "__main__":
    from cases import save
    run()
    save()
