"""Matrix micro-kernels: fragments by reshaping, operand images by building slabs of rows."""
import numpy as np

import exact as X
from cases import SPAN, Case, Rng, swizzle

ELEM = {"bf16": 2, "f16": 2, "tf32": 4, "f32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1, "s32": 4}
TABLE = {}


def pack(values, name):
    """Small exact values to storage bytes, same shape plus a byte axis."""
    v = np.asarray(values)
    if name in ("s8", "u8"):
        raw = v.astype(np.int8 if name == "s8" else np.uint8).view(np.uint8)
    elif name == "f16":
        raw = v.astype(np.float16)
    elif name == "s32":
        raw = v.astype(np.int32)
    elif name in ("tf32", "f32"):
        raw = v.astype(np.float32)
    elif name == "bf16":
        raw = (v.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    else:
        t = TABLE.setdefault(name, {x: X.encode(name, ("num", int(x < 0), abs(X.Q(x)))) for x in np.arange(-16, 17) / 2})
        raw = np.array([t[float(x)] for x in v.ravel()], np.uint8).reshape(v.shape)
    return np.ascontiguousarray(raw).view(np.uint8).reshape(*v.shape, ELEM[name])


def values(rng, shape, name):
    lo = 0 if name == "u8" else -3
    return rng.ints(lo, 4, shape).astype(np.float64) / (2 if name in ("e4m3", "e5m2") else 1)


def image_of(raw, major, mode, gap=0):
    """Image of an operand `raw[mn][k][bytes]`, with descriptor fields in bytes.

    Returns (bytes, lbo, sbo, bytes from one MMA to the next along K).
    """
    mn, k, e = raw.shape
    span, t, kk = SPAN[mode], 16 // e, 32 // e
    if mode == "NONE":
        # Core matrices of 8 rows of 16 bytes, set apart by `gap`.
        if major == "K":
            core = raw.reshape(mn // 8, 8, k // t, 16).transpose(0, 2, 1, 3)          # [mn][k][8][16]
            sbo, lbo = 128 + gap, (128 + gap) * (mn // 8) + gap
            first, second, step = sbo, lbo, 2 * lbo
        else:
            core = raw.transpose(1, 0, 2).reshape(k // 8, 8, mn // t, 16).transpose(2, 0, 1, 3)   # [mn chunk][k/8][8][16]
            lbo, sbo = 128 + gap, (128 + gap) * (k // 8) + gap
            first, second, step = sbo, lbo, kk // 8 * lbo
        out = np.zeros(core.shape[0] * first + core.shape[1] * second + 128, np.uint8)
        for i in range(core.shape[0]):
            for j in range(core.shape[1]):
                out[i * first + j * second:][:128] = core[i, j].ravel()
        return out.tobytes(), lbo, sbo, step
    if major == "K":
        assert k * e == span, "one slab"
        return swizzle(raw.tobytes(), mode), 16, 8 * span, 32
    # Slabs of `span` bytes along MN, each [k][span].
    slabs = raw.transpose(1, 0, 2).reshape(k, mn * e // span, span).transpose(1, 0, 2)
    return swizzle(slabs.tobytes(), mode), k * span, 8 * span, kk * span


WGMMA_CODE = {"NONE": 0, "128B": 1, "64B": 2, "32B": 3}
UMMA_CODE = {"NONE": 0, "128B": 2, "64B": 4, "32B": 6}


def descriptor(start, lbo, sbo, mode, tcgen05, base=0):
    high = (UMMA_CODE[mode] << 61 | 1 << 46) if tcgen05 else WGMMA_CODE[mode] << 62
    return high | base << 49 | (sbo >> 4) << 32 | (lbo >> 4) << 16 | start >> 4


def align(data, n=1024):
    return data + bytes(-len(data) % n)


def operands(a, b, ta, tb, amode, bmode, tcgen05, gap=0, shift=0):
    """Joint image of two operands; `shift` moves A by whole 128-byte lines (base offset)."""
    ia, la, sa, stepa = image_of(a, "MN" if ta else "K", amode, gap)
    ib, lb, sb, stepb = image_of(b, "MN" if tb else "K", bmode, gap)
    start_b = len(align(bytes(shift) + ia))
    image = align(align(bytes(shift) + ia) + ib)
    da = descriptor(shift, la, sa, amode, tcgen05, shift >> 7 & 7)
    db = descriptor(start_b, lb, sb, bmode, tcgen05)
    return image, da, db, stepa >> 4, stepb >> 4


def fragment_d(d):
    """D[rows][N] of 16-row blocks to [threads][registers]: word order (n8, half, element)."""
    m, n = d.shape
    return d.reshape(m // 16, 2, 8, n // 8, 4, 2).transpose(0, 2, 4, 3, 1, 5).reshape(m * 2, n // 2)


def fragment_a(raw):
    """A raw[rows][k][bytes] to [steps][threads][4 words as bytes]."""
    m, k, e = raw.shape
    p = 4 // e
    x = raw.reshape(m // 16, 2, 8, k // (8 * p), 2, 4, p * e)
    return x.transpose(3, 0, 2, 5, 4, 1, 6).reshape(k // (8 * p), m * 2, 16)


def wgmma(kernel, name, ta="bf16", tb="bf16", td="f32", n=64, k=64, amode="128B", bmode="128B", trans_a=0, trans_b=0, negate=False, rs=False, gap=0, shift=0, seed=3, raw=None):
    """`raw`: patterns of A and B and the predicted D instead of small exact values; then the result
    is a question to the hardware, reported and not judged."""
    rng = Rng(seed)
    if raw:
        a, b, d = raw
    else:
        va, vb = values(rng, (64, k), ta), values(rng, (n, k), tb)
        a, b = pack(va, ta), pack(vb, tb)
        # Sums of zero products are +0.
        d = va @ vb.T * (-1 if negate else 1) + 0.0
    if rs:
        ib, lb, sb, stepb = image_of(b, "MN" if trans_b else "K", bmode, gap)
        image, da, db, sa, stepb = align(ib), 0, descriptor(0, lb, sb, bmode, False), 0, stepb >> 4
    else:
        image, da, db, sa, stepb = operands(a, b, trans_a, trans_b, amode, bmode, False, gap, shift)
    areg = fragment_a(a) if rs else None
    out = pack(fragment_d(d), td)
    steps = k * ELEM[ta] // 32
    c = Case(kernel, name, 128, len(image) + 1024)
    c.buffer("image", np.frombuffer(image, np.uint8)).u32(len(image)).u64(da, db, sa, stepb).u32(steps)
    c.buffer("areg", areg if rs else None, size=2048)
    question = [{"label": name, "offset": 0, "bytes": out.nbytes, "rule": "report"}] if raw else None
    c.buffer("out", size=out.nbytes, fill=0, expect=out, sections=question)


def run_wgmma():
    # Swizzles: K extent = one span, so that the steps stay in the row.
    for mode in ("128B", "64B", "32B"):
        wgmma("wgmma_bf16_n64", f"k_{mode}", k=SPAN[mode] // 2, amode=mode, bmode=mode)
        wgmma("wgmma_bf16_n64_tb", f"mn_{mode}", k=32, amode="64B", bmode=mode, trans_b=1)
        wgmma("wgmma_bf16_n64_ta", f"mn_{mode}", k=32, amode=mode, bmode="64B", trans_a=1)
    wgmma("wgmma_bf16_n64", "k_none", k=32, amode="NONE", bmode="NONE")
    wgmma("wgmma_bf16_n64", "k_none_gap", k=32, amode="NONE", bmode="64B", gap=32)
    wgmma("wgmma_bf16_n64", "base_offset", shift=0x100)
    wgmma("wgmma_bf16_n64_tb", "mn_none", k=32, amode="64B", bmode="NONE", trans_b=1, gap=16)
    wgmma("wgmma_bf16_n64_ta", "mn_none", k=32, amode="NONE", bmode="64B", trans_a=1, gap=16)
    wgmma("wgmma_bf16_n64_neg", "", k=16, amode="32B", bmode="32B", negate=True)
    for n in (8, 24, 256):
        wgmma(f"wgmma_bf16_n{n}", "", n=n, k=16, amode="32B", bmode="32B")
    wgmma("wgmma_bf16_n32_rs", "", n=32, rs=True)
    wgmma("wgmma_bf16_n32_rs_tb", "", n=32, k=32, bmode="64B", rs=True, trans_b=1)
    wgmma("wgmma_f16_n32", "", "f16", "f16", "f16", n=32)
    wgmma("wgmma_tf32_n16", "", "tf32", "tf32", n=16, k=32)
    wgmma("wgmma_tf32_n16_rs", "", "tf32", "tf32", n=16, k=32, rs=True)
    wgmma("wgmma_e4m3_n16", "", "e4m3", "e5m2", n=16, k=128)
    wgmma("wgmma_e4m3_n16_rs", "", "e4m3", "e5m2", n=16, k=128, rs=True)
    wgmma("wgmma_s8_n16", "", "s8", "u8", "s32", n=16, k=64, amode="64B", bmode="64B")


def run_mma_sync():
    rng = Rng(8)
    for name, ta, tb, tc, k in (("bf16", "bf16", "bf16", "f32", 16), ("f16", "f16", "f16", "f16", 16), ("tf32", "tf32", "tf32", "f32", 8), ("e4m3", "e4m3", "e5m2", "f32", 32), ("s8", "s8", "u8", "s32", 32)):
        va, vb, vc = values(rng, (16, k), ta), values(rng, (8, k), tb), values(rng, (16, 8), "f32")
        p = 4 // ELEM[ta]
        # B: k = (half, quad, part), column = line.
        fb = pack(vb, tb).reshape(8, 2, 4, p * ELEM[tb]).transpose(0, 2, 1, 3)
        Case(f"mma_{name}", block=32).buffer("a", fragment_a(pack(va, ta))).buffer("b", fb).buffer("c", pack(fragment_d(vc), tc)) \
            .buffer("out", size=128 * ELEM[tc], fill=0, expect=pack(fragment_d(va @ vb.T + vc), tc))


def run_matrix_moves():
    rng = Rng(9)
    lanes = np.arange(32)
    image = rng.words(512).view(np.uint8)
    offs = (lanes * 5 % 32 * 48 + 16).astype(np.uint32)
    rows = np.stack([image[o:o + 16] for o in offs])                     # the row that lane l points to
    m = rows.view(np.uint16).reshape(4, 8, 8)                           # matrix, row, column
    plain = m.reshape(4, 8, 4, 2).transpose(1, 2, 0, 3).reshape(32, 4, 2)
    trans = m.transpose(0, 2, 1).reshape(4, 8, 4, 2).transpose(1, 2, 0, 3).reshape(32, 4, 2)
    out = np.concatenate([x[:, :n] for x in (plain, trans) for n in (1, 2, 4)], axis=1)
    Case("ldmatrix", "", 32, 4096).buffer("image", image).u32(2048).buffer("offs", offs).buffer("out", size=out.nbytes, fill=0, expect=out)
    # 8-bit forms. A register of m16n16 holds rows (4 quad + 2 reg + 0, 1) at columns line and line + 8.
    two = rows.reshape(2, 4, 2, 2, 2, 8).transpose(5, 1, 0, 2, 4, 3).reshape(32, 4, 4)
    nibbles = np.stack([rows[:, :8] & 15, rows[:, :8] >> 4], axis=-1).reshape(4, 8, 4, 4).transpose(1, 2, 0, 3).reshape(32, 4, 4)
    bits = np.unpackbits(rows[:, :12], axis=1, bitorder="little").reshape(32, 16, 6)
    sixes = (bits << np.arange(6, dtype=np.uint8)).sum(-1).astype(np.uint8).reshape(4, 8, 4, 4).transpose(1, 2, 0, 3).reshape(32, 4, 4)
    out = np.concatenate([two[:, :2], two, nibbles, sixes[:, :2]], axis=1)
    Case("ldmatrix_b8", "", 32, 4096).buffer("image", image).u32(2048).buffer("offs", offs).buffer("out", size=out.nbytes, fill=0, expect=out)
    regs = rng.words((32, 4))
    offs = (lanes * 7 % 32 * 32).astype(np.uint32)

    def stored(forms):
        out = np.full((len(forms), 1024), 0xA5, np.uint8)
        for k, (rows_of, n) in enumerate(forms):
            for lane in range(8 * n):
                out[k, offs[lane]:offs[lane] + 16] = rows_of[lane].view(np.uint8)
        return out

    frag = regs.view(np.uint16).reshape(8, 4, 4, 2).transpose(2, 0, 1, 3).reshape(4, 8, 8)   # matrix, row, column
    plain, trans = frag.reshape(32, 8), np.ascontiguousarray(frag.transpose(0, 2, 1)).reshape(32, 8)
    out = stored([(plain, 1), (plain, 2), (plain, 4), (trans, 4)])
    Case("stmatrix", "", 32, 8192).buffer("regs", regs).u32(4096).buffer("offs", offs).buffer("out", size=4096, fill=0, expect=out)
    # m16n8: bytes 0, 1 = columns 2 quad, +1 of row line; bytes 2, 3 of row line + 8. Memory rows are columns.
    byte = regs.view(np.uint8).reshape(8, 4, 4, 2, 2)                                         # line, quad, matrix, half, column
    cols = np.ascontiguousarray(byte.transpose(2, 1, 4, 3, 0)).reshape(32, 16)
    out = stored([(cols, 1), (cols, 2), (cols, 4)])
    Case("stmatrix_b8", "", 32, 8192).buffer("regs", regs).u32(3072).buffer("offs", offs).buffer("out", size=3072, fill=0, expect=out)


def run():
    run_wgmma()
    run_mma_sync()
    run_matrix_moves()


if __name__ == "__main__":
    from cases import save
    run()
    save()
