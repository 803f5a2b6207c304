#!/usr/bin/env python3
"""Which model of accumulation do a GPU's bytes follow?

    mma_models.py DIR        DIR: bytes saved by `validate_gpu.py --save DIR`

In: the result of `wgmma_bf16_n64.q_precision` (64x64x64, products of bf16, f32 accumulator, four
instructions of K = 16). Out: for each model the number of equal words of 4096. Models: `exact`
adds exactly and rounds once per instruction; `align F` aligns all terms of an instruction, the old
accumulator included, to the largest exponent, cuts each to F fraction bits, adds, and cuts the sum
to f32. Both with rounding toward zero and to nearest.
Needs no packages. Source: M. Fasi et al., "Numerical behavior of NVIDIA tensor cores".
"""
import struct
import sys
from pathlib import Path

MICRO = Path(__file__).resolve().parent.parent / "tests" / "micro"
CASE = "wgmma_bf16_n64.q_precision"


def split(bits):
    """A bf16 or f32 pattern (as f32 bits) to an integer significand and a power of two."""
    e, m = bits >> 23 & 255, bits & 0x7FFFFF
    m = m | 0x800000 if e else m
    return (-m if bits >> 31 else m), max(e, 1) - 150


def round_f32(m, e, nearest):
    """`m * 2^e` to an f32 pattern; no overflow and no subnormals here."""
    if m == 0:
        return 0
    s, m = (1 << 31, -m) if m < 0 else (0, m)
    down = m.bit_length() - 24
    if down > 0:
        rest, half = m & ((1 << down) - 1), 1 << (down - 1)
        m >>= down
        if nearest and (rest > half or rest == half and m & 1):
            m += 1
    else:
        m <<= -down
    e += down
    if m >> 24:
        m, e = m >> 1, e + 1
    return s | (e + 150) << 23 | (m & 0x7FFFFF)


def instruction(terms, fraction, nearest):
    """Sum of integer terms (m, e) under a model; `fraction` None is exact."""
    terms = [t for t in terms if t[0]]
    if not terms:
        return 0
    if fraction is None:
        low = min(e for _, e in terms)
    else:
        low = max(abs(m).bit_length() - 1 + e for m, e in terms) - fraction
    total = 0
    for m, e in terms:
        shift = e - low
        total += m << shift if shift >= 0 else -(-m >> -shift) if m < 0 else m >> -shift
    return round_f32(total, low, nearest)


def operand(image, start, rows, k=64):
    """Rows of 64 bf16 under the 128-byte swizzle, as f32 patterns."""
    out = []
    for r in range(rows):
        row = []
        for c in range(k):
            at = start + r * 128 + ((c // 8) ^ (r % 8)) * 16 + c % 8 * 2
            row.append(split(int.from_bytes(image[at:at + 2], "little") << 16))
        out.append(row)
    return out


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    image = (MICRO / "data" / f"{CASE}.image.in").read_bytes()
    raw = (Path(sys.argv[1]) / f"{CASE}.out.bin").read_bytes()
    words = struct.unpack(f"<{len(raw) // 4}I", raw)
    a, b = operand(image, 0, 64), operand(image, 8192, 64)
    found = {}
    for t in range(128):
        for i in range(32):
            row = 16 * (t // 32) + t % 32 // 4 + 8 * (i >> 1 & 1)
            found[row, 8 * (i >> 2) + 2 * (t & 3) + (i & 1)] = words[32 * t + i]
    models = [("exact", None)] + [(f"align {f}", f) for f in range(21, 31)]
    for name, fraction in models:
        for nearest in (False, True):
            equal = 0
            for (r, c), want in found.items():
                d = 0
                for k in range(0, 64, 16):
                    terms = [(a[r][j][0] * b[c][j][0], a[r][j][1] + b[c][j][1]) for j in range(k, k + 16)]
                    d = instruction(terms + [split(d)], fraction, nearest)
                equal += d == want
            print(f"{name:9} {'nearest' if nearest else 'toward zero':12} {equal:5} of {len(found)}")


if __name__ == "__main__":
    main()
