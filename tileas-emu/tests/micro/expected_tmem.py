"""Tensor-memory micro-kernels: lane and column maps by reshaping."""
import numpy as np

from cases import Case, Rng, pattern
from expected_mma import ELEM, align, descriptor, operands, image_of, pack, values
from kernels_tmem import COLUMNS, CP, MMA_COLUMNS, SHAPES

UNTOUCHED = 0x55555555


def arrange(cells, shape, repeat, imm):
    """Cells [lanes][columns] of one access to [32 threads][registers]."""
    if shape == "32x32b":
        return cells[:, :repeat]
    if shape == "16x32bx2":
        return np.concatenate([cells[:16, :repeat], cells[:16, imm:imm + repeat]])
    half = cells[:16]
    if shape == "16x64b":
        # lane = line + 8 * bit 0 of the thread, column = 2 j + bit 1.
        return half[:, :2 * repeat].reshape(2, 8, repeat, 2).transpose(1, 3, 0, 2).reshape(32, repeat)
    if shape == "16x128b":
        return half[:, :4 * repeat].reshape(2, 8, repeat, 4).transpose(1, 3, 2, 0).reshape(32, 2 * repeat)
    return half[:, :8 * repeat].reshape(2, 8, repeat, 4, 2).transpose(1, 3, 2, 0, 4).reshape(32, 4 * repeat)


def run_moves():
    rng = Rng(21)
    for name, (shape, repeat, n, imm, packed) in SHAPES.items():
        for half in ((0,) if shape == "32x32b" else (0, 16)):
            width = {'32x32b': 1, '16x64b': 2, '16x128b': 4, '16x256b': 8, '16x32bx2': 4}[shape] * repeat * (2 if packed else 1)
            column = min(5, COLUMNS - width)
            fill = pattern(128 * COLUMNS, n).reshape(128, COLUMNS)
            regs = rng.words((4, 32, n))
            place = np.arange(128 * COLUMNS).reshape(128, COLUMNS)
            out, new = [], fill.copy().ravel()
            for w in range(4):
                cells = place[32 * w + half:32 * w + 32, column:]
                if packed:
                    # Pairs of columns take the place of one.
                    even = cells[:, :cells.shape[1] // 2 * 2]
                    lo, hi = (arrange(even[:, k::2], shape, repeat, imm) for k in (0, 1))
                    out.append(fill.ravel()[lo] & 0xFFFF | fill.ravel()[hi] << 16)
                    new[lo], new[hi] = regs[w] & 0xFFFF, regs[w] >> 16
                else:
                    at = arrange(cells, shape, repeat, imm)
                    out.append(fill.ravel()[at])
                    new[at] = regs[w]
            out = np.concatenate(out).astype(np.uint32)
            label = f"lane{half}"
            at = half << 16 | column
            Case(f"tmem_ld_{name}", label, 128, 1024).buffer("fill", pattern_of=(fill.size, n)).buffer("regs", size=16, fill=0).u32(0, at).buffer("out", size=out.nbytes, fill=0, expect=out)
            Case(f"tmem_st_{name}", label, 128, 1024).buffer("fill", pattern_of=(fill.size, n)).buffer("regs", regs).u32(0, at).buffer("out", size=new.nbytes, fill=0, expect=new)


D_CODE = {"f32": 1, "s32": 2}
T_CODE = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "u8": 0, "s8": 1}


def umma(kind, name, ta, tb, td="f32", m=128, n=32, k=64, amode="128B", bmode="128B", trans_a=0, trans_b=0, neg_a=0, neg_b=0, ts=False, half=0, gap=0):
    rng = Rng(sum(map(ord, kind + name)))
    va, vb = values(rng, (m, k), ta), values(rng, (n, k), tb)
    a, b = pack(va, ta), pack(vb, tb)
    idesc = D_CODE[td] << 4 | T_CODE[ta] << 7 | T_CODE[tb] << 10 | neg_a << 13 | neg_b << 14 | trans_a << 15 | trans_b << 16 | (n >> 3) << 17 | (m >> 4) << 24
    fill = pattern(128 * MMA_COLUMNS, n).reshape(128, MMA_COLUMNS)
    lanes = np.arange(128) if m == 128 else np.arange(64) % 16 + 32 * (np.arange(64) // 16) + half
    if ts:
        ib, lb, sb, stepb = image_of(b, "MN" if trans_b else "K", bmode, gap)
        image, db, stepb = align(ib), descriptor(0, lb, sb, bmode, True), stepb >> 4
        words = np.ascontiguousarray(a.reshape(m, -1)).view(np.uint32)
        fill[lanes, 32:32 + words.shape[1]] = words
        da, stepa = half << 16 | 32, 8
    else:
        image, da, db, stepa, stepb = operands(a, b, trans_a, trans_b, amode, bmode, True, gap)
    d = va @ vb.T * (-1 if neg_a != neg_b else 1) + 0.0
    out = fill.copy()
    out[lanes, :n] = pack(d, td).reshape(m, -1).view(np.uint32)
    c = Case(f"umma_{kind}{'_ts' if ts else ''}", name, 128, len(image) + 1024)
    c.buffer("image", np.frombuffer(image, np.uint8)).u32(len(image)).buffer("fill", fill if ts else None, pattern_of=None if ts else (fill.size, n)).u64(da, db, stepa, stepb).u32(k * ELEM[ta] // 32, idesc, half << 16)
    c.buffer("out", size=out.nbytes, fill=0, expect=out)


def run_mma():
    for mode in ("128B", "64B", "32B"):
        umma("f16", f"k_{mode}", "bf16", "bf16", k={"128B": 64, "64B": 32, "32B": 16}[mode], amode=mode, bmode=mode)
        umma("f16", f"mn_{mode}", "bf16", "bf16", n=64 if mode == "128B" else 32, k=32, amode=mode, bmode=mode, trans_a=1, trans_b=1)
    umma("f16", "none_gap", "f16", "f16", k=32, amode="NONE", bmode="NONE", gap=16)
    umma("f16", "mn_none", "f16", "f16", k=32, amode="NONE", bmode="NONE", trans_a=1, trans_b=1, gap=32)
    umma("f16", "m64", "bf16", "bf16", m=64, k=16, amode="32B", bmode="32B")
    umma("f16", "m64_upper", "bf16", "bf16", m=64, k=16, amode="32B", bmode="32B", half=16)
    umma("f16", "neg_a", "f16", "f16", m=64, n=8, k=16, amode="32B", bmode="32B", neg_a=1)
    umma("f16", "m64", "bf16", "bf16", m=64, n=24, k=64, ts=True)
    umma("f16", "m128_tb", "bf16", "bf16", k=32, bmode="64B", ts=True, trans_b=1)
    umma("tf32", "k_128B", "tf32", "tf32", m=64, k=32)
    umma("tf32", "k_128B", "tf32", "tf32", n=16, k=32, ts=True)
    umma("f8f6f4", "e4m3_e5m2", "e4m3", "e5m2", m=64, k=128)
    umma("f8f6f4", "e5m2_mn", "e5m2", "e4m3", m=64, n=32, k=32, amode="64B", bmode="32B", trans_a=1, trans_b=1)
    umma("f8f6f4", "e4m3", "e4m3", "e4m3", m=64, n=16, k=64, bmode="64B", ts=True)
    umma("i8", "s8_u8", "s8", "u8", "s32", m=64, n=24, k=64, amode="64B", bmode="64B")
    umma("i8", "u8_s8", "u8", "s8", "s32", m=64, n=8, k=64, bmode="64B", ts=True)


def run_copies():
    rng = Rng(31)
    for name in CP:
        rows, wide = int(name.split("x")[0]), "256b" in name
        raw = rng.ints(0, 256, (rows, 1, 32 if wide else 16)).astype(np.uint8)
        # Core matrices of 8 rows of 16 bytes; 4 rows still take a core.
        padded = np.zeros((max(rows, 8), 32 if wide else 16), np.uint8)
        padded[:rows] = raw[:, 0]
        chunks = padded.shape[1] // 16
        core = padded.reshape(-1, 8, chunks, 16).transpose(0, 2, 1, 3)
        sbo, lbo = 128 * chunks, 128
        image = align(core.tobytes())
        cells = np.ascontiguousarray(raw.reshape(rows, -1)).view(np.uint32)
        out = np.full((128, COLUMNS), UNTOUCHED, np.uint32)
        quarter = lambda w, part: out.__setitem__((slice(32 * w, 32 * w + 32), slice(4, 4 + cells.shape[1])), part)
        if rows == 128:
            out[:, 4:4 + cells.shape[1]] = cells
        elif rows == 4:
            out[::32, 4:12] = cells
        else:
            for w in range(4):
                part = 0 if rows == 32 else {"64x128b_02": w % 2, "64x128b_01": w // 2}[name]
                quarter(w, cells[32 * part:32 * part + 32])
        Case(f"tmem_cp_{name}", "", 128, len(image) + 1024).buffer("image", np.frombuffer(image, np.uint8)).u32(len(image)).u64(descriptor(0, lbo, sbo, "NONE", True)) \
            .buffer("out", size=out.nbytes, fill=0, expect=out)


def run():
    run_moves()
    run_mma()
    run_copies()


if __name__ == "__main__":
    from cases import save
    run()
    save()
