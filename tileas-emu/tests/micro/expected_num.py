"""Inputs and expected bytes of the arithmetic micro-kernels (rational arithmetic, numpy for tables)."""
import math
import re
from fractions import Fraction as Q

import numpy as np

import exact as X
import kernels as K
from cases import Case, Rng

N = 256
ROUND = {"rn", "rna", "rz", "rm", "rp"}
INTEGRAL = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}


def signed(x, bits=32):
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def f32_inputs(rng, lo, hi):
    """Specials, then patterns with exponents in lo..hi, half with short fractions (ties)."""
    special = [0, 1 << 31, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC01234, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0xBF800000, 0x477FE000, 0x477FF000,
               0x43E00000, 0x43E80000, 0x43F00000, 0x47600000, 0x47700000, 0x33000000, 0x33000001, 0x33800000, 0x3F801000, 0x3F803000, 0x3F808000, 0x3F818000, 0x3F880000, 0x3F980000, 0x3B000000, 0x3AFFFFFF]
    w = rng.words(N)
    x = (w & 0x807FFFFF) | ((lo + 127 + (w >> np.uint32(8)) % np.uint32(hi - lo)) << np.uint32(23)).astype(np.uint32)
    x[N // 2:] &= 0xFFFFF000
    x[-64:] &= 0xFFF80000
    x[:len(special)] = special
    return x.astype(np.uint32)


def case(kernel, ops, inputs, fn, compare=None):
    """One case: `fn(text, lane, *inputs)` gives the result word (or two) of an op."""
    rows, sections, seen = [], [], None
    for text, kind in ops:
        words = [fn(text, i, *[int(a[i]) for a in inputs]) for i in range(N)]
        if kind == "d":
            words = [(w & 0xFFFFFFFF, w >> 32 & 0xFFFFFFFF) for w in words]
            parts = list(zip(*words))
        else:
            parts = [words]
        for p in parts:
            rule = compare(text) if compare else {"rule": "exact"}
            sections.append({"label": text.split(";")[-2].strip() if "{{" not in text else text, "offset": 4 * N * len(rows), "bytes": 4 * N, **rule})
            rows.append(np.array([w & 0xFFFFFFFF for w in p], np.uint32))
    c = Case(kernel, block=N)
    for name, a in zip("abc", inputs):
        c.buffer(name, a.astype(np.uint32))
    out = np.concatenate(rows)
    c.buffer("out", size=out.nbytes, fill=0, expect=out, sections=sections)


def modifiers(text):
    head = text.split()[0].split(".")
    mods = set(head)
    mode = next((m for m in head if m in ROUND), "rn")
    return head, mods, mode, {"satfinite": "satfinite" in mods, "sat": "sat" in mods, "relu": "relu" in mods, "ftz": "ftz" in mods}


def to_int(v, mode, bits, is_signed, wide_nan):
    lo, hi = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    if v[0] == "nan":
        return 1 << (bits - 1) if wide_nan else 0
    if v[0] == "inf":
        return lo if v[1] else hi
    n = X.integer(v[2], mode, v[1])
    return min(max(-n if v[1] else n, lo), hi)


def cvt(text, i, a, b=0, c=0):
    head, mods, mode, how = modifiers(text)
    dst, src = head[-2], head[-1].rstrip(";")
    if ";" in text[:-1]:
        # Through a narrow integer, then sign- or zero-extended.
        if "sat" in mods:
            v = signed(a) if src == "s32" else a
            bits, s = int(dst[1:]), dst[0] == "s"
            return min(max(v, -(1 << (bits - 1)) if s else 0), (1 << (bits - s)) - 1)
        return to_int(X.decode(src, a), "rn", int(dst[1:]), dst[0] == "s", False)
    packed = dst.endswith("x2") and src == "f32"
    if packed:
        d = dst[:-2]
        width = 8 if d in ("e2m3", "e3m2", "e4m3", "e5m2", "ue8m0") else X.FORMATS[d][0]
        if d == "ue8m0":
            return scale(a, mode) << 8 | scale(b, mode)
        return X.encode(d, X.decode("f32", X.flush("f32", a, how["ftz"])), mode, **how) << width | X.encode(d, X.decode("f32", X.flush("f32", b, how["ftz"])), mode, **how)
    if dst.endswith("x2"):
        d, s = dst[:-2], src[:-2]
        ws = 8 if s in ("e4m3", "e5m2") else 16
        wd = 8 if d in ("e4m3", "e5m2") else 16
        half = lambda k: X.encode(d, X.decode(s, a >> k * ws & (1 << ws) - 1), mode, **how) << k * wd
        return half(1) | half(0)
    integral = next((INTEGRAL[m] for m in head if m in INTEGRAL), None)
    if dst[0] in "su" and src[0] in "su":
        v = signed(a) if src[0] == "s" else a
        bits, s = int(dst[1:]), dst[0] == "s"
        return min(max(v, -(1 << (bits - 1)) if s else 0), (1 << (bits - s)) - 1)
    if dst[0] in "su":
        bits = int(dst[1:])
        return to_int(X.decode(src, X.flush("f32", a, how["ftz"])), integral, bits, dst[0] == "s", bits == 64)
    if src[0] in "su":
        v = signed(a) if src[0] == "s" else a
        return X.encode(dst, ("num", int(v < 0), Q(abs(v))), mode, **how)
    width = X.FORMATS[src][0]
    a = X.flush(src, a & (1 << width) - 1, how["ftz"])
    v = X.decode(src, a)
    if integral:
        v = ("num", v[1], Q(X.integer(v[2], integral, v[1]))) if v[0] == "num" else v
    if mode == "rna" and dst == "tf32" and v[0] == "nan":
        # Seen on an H100.
        return a & 0xFFFFE000
    return X.encode(dst, v, mode, **how)


def scale(bits, mode):
    """f32 to ue8m0: exponent of the magnitude rounded toward zero or up, saturating."""
    v = X.decode("f32", bits)
    if v[0] == "nan":
        return 0xFF
    if v[0] == "inf":
        return 0xFE
    if v[2] == 0:
        return 0
    e = math.floor(math.log2(float(v[2])))
    e += (Q(2) ** (e + 1) <= v[2]) - (Q(2) ** e > v[2])
    e += mode == "rp" and Q(2) ** e != v[2]
    return min(max(e + 127, 0), 254)


def arith(fmt, text, words):
    head, mods, mode, how = modifiers(text)
    op = head[0]
    words = [X.flush(fmt, w, how["ftz"]) for w in words]
    if op in ("min", "max"):
        args = words[:3] if text.count("{") > 3 and "{c}" in text else words[:2]
        r = args[0]
        for w in args[1:]:
            r = X.min_max(fmt, r, w, op == "max", "NaN" in mods, "xorsign" in mods)
        return r
    a, b, c = [X.decode(fmt, w) for w in words]
    one = ("num", 0, Q(1))
    v = {"add": lambda: X.add(a, b, mode), "sub": lambda: X.add(a, X.negate(b), mode), "mul": lambda: X.mul(a, b), "fma": lambda: X.add(X.mul(a, b), c, mode),
         "div": lambda: X.div(a, b), "rcp": lambda: X.div(one, a), "sqrt": lambda: X.sqrt(a)}[op]()
    return X.encode(fmt, v, mode, **how)


def f32_arith(text, i, a, b, c):
    return arith("f32", text, [a, b, c])


def half_arith(text, i, a, b, c):
    fmt = "bf16" if ".bf16x2" in text else "f16"
    part = lambda k: arith(fmt, text, [w >> k & 0xFFFF for w in (a, b, c)]) << k
    return part(16) | part(0)


def f32x2(text, i, a, b, c):
    if "f32x2" not in text:
        return arith("f32", text.replace("{{", "").replace("}}", ""), [a, b, c])
    op = re.search(r"(fma|add|mul)\.\S*", text).group(0)
    lo, hi = arith("f32", op + " x;", [a, b, c]), arith("f32", op + " x;", [b, c, a])
    return hi << 32 | lo


# Rules of the approximations: bounds of the manual; the expected value is the rounded one.
BOUNDS = {"ex2": {"rule": "ulp", "type": "f32", "n": 2}, "lg2": {"rule": "lg2", "type": "f32", "input": "b"}, "rcp": {"rule": "ulp", "type": "f32", "n": 1}, "rsqrt": {"rule": "rel", "type": "f32", "e": 2 ** -22.9},
          "sqrt": {"rule": "rel", "type": "f32", "e": 2.0 ** -23}, "sin": {"rule": "trig", "type": "f32", "input": "a"}, "cos": {"rule": "trig", "type": "f32", "input": "a"},
          "tanh": {"rule": "rel", "type": "f32", "e": 2.0 ** -11}, "div": {"rule": "ulp", "type": "f32", "n": 2}}


def approx_rule(text):
    op = text.split(".")[0]
    if "bf16x2" in text:
        return {"rule": "rel", "type": "bf16", "e": 2.0 ** -7} if op == "ex2" else {"rule": "abs", "type": "bf16", "e": 2.0 ** -8}
    if "f16x2" in text:
        return {"rule": "rel", "type": "f16", "e": 2 ** -9.9} if op == "ex2" else {"rule": "abs", "type": "f16", "e": 2 ** -10.987}
    return dict(BOUNDS[op])


def approx(text, i, a, b, c):
    op = text.split(".")[0]
    if "f16x2" in text:
        fmt = "bf16" if "bf16x2" in text else "f16"
        # `ex2.approx.ftz.bf16x2` flushes 16-bit subnormals; `X.flush` knows f32 only.
        least = 0x80 if "ftz" in text else 0
        small = lambda w: w & 0x8000 if w & 0x7FFF < least else w
        part = lambda k: small(X.encode(fmt, elementary(op, X.decode(fmt, small(c >> k & 0xFFFF))))) << k
        return part(16) | part(0)
    ftz = "ftz" in text
    word = X.flush("f32", b if "{b}" in text and op != "div" else a, ftz)
    v = X.decode("f32", word)
    if op == "div":
        d = X.decode("f32", X.flush("f32", b, ftz))
        if "approx" in text and d[0] == "num" and d[2] > Q(2) ** 126:
            # The documented hole: the divisor's reciprocal is taken as zero.
            r = X.NAN if v[0] != "num" else ("num", v[1] ^ d[1], Q(0))
        else:
            r = X.div(v, d)
        return X.encode("f32", r, ftz=ftz)
    return X.encode("f32", elementary(op, v), ftz=ftz)


def elementary(op, v):
    """The function in double precision (its error is far below the bounds), specials by the tables."""
    kind, s, mag = v
    if kind == "nan":
        return X.NAN
    zero, inf = kind == "num" and mag == 0, kind == "inf"
    if op in ("rcp", "rsqrt") and zero:
        return ("inf", s, Q(0))
    if op == "lg2" and zero:
        return ("inf", 1, Q(0))
    if s and not zero and op in ("lg2", "rsqrt", "sqrt") or inf and op in ("sin", "cos"):
        return X.NAN
    if zero and op in ("sqrt", "sin", "tanh"):
        return v
    if inf:
        return {"ex2": ("num", 0, Q(0)) if s else v, "lg2": v, "rcp": ("num", s, Q(0)), "rsqrt": ("num", 0, Q(0)), "sqrt": v, "tanh": ("num", s, Q(1))}[op]
    x = -float(mag) if s else float(mag)
    if op == "ex2" and abs(x) > 400:
        return ("num", 0, Q(2) ** -400) if s else ("num", 0, Q(2) ** 400)
    y = {"ex2": lambda: 2.0 ** x, "lg2": lambda: math.log2(x), "rcp": lambda: 1.0 / x, "rsqrt": lambda: 1.0 / math.sqrt(x), "sqrt": lambda: math.sqrt(x),
         "sin": lambda: math.sin(x), "cos": lambda: math.cos(x), "tanh": lambda: math.tanh(x)}[op]()
    return ("num", int(y < 0), abs(Q(y)))


def bits(text, i, a, b, c):
    op = text.split()[0]
    m = 0xFFFFFFFF
    if op.startswith("prmt"):
        table = [(a | b << 32) >> 8 * k & 0xFF for k in range(8)]
        mode, n = op.split("b32")[1].strip("."), c & 3
        pick = {"f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]], "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]], "ecl": [[max(j, n) for j in range(4)]] * 4, "ecr": [[min(j, n) for j in range(4)]] * 4, "rc8": [[n] * 4] * 4, "b4e": [[(n - j) % 8 for j in range(4)]] * 4}
        if mode:
            return sum(table[k] << 8 * j for j, k in enumerate(pick[mode][n]))
        out = 0
        for j in range(4):
            sel = c >> 4 * j & 15
            byte = table[sel & 7]
            out |= (0xFF * (byte >> 7) if sel & 8 else byte) << 8 * j
        return out
    if op == "lop3.b32":
        lut = int(re.search(r"0x([0-9A-F]+)", text).group(1), 16)
        return sum((lut >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | c >> k & 1) & 1) << k for k in range(32))
    both = a | b << 32
    if op == "shf.l.wrap.b32":
        return both << (c & 31) >> 32 & m
    if op == "shf.r.clamp.b32":
        return both >> min(c, 32) & m
    if op == "shl.b32":
        return a << min(c, 32) & m
    if op == "shr.u32":
        return a >> min(c, 32)
    if op == "shr.s32":
        return signed(a) >> min(c, 31) & m
    if op.startswith("bfe"):
        pos, n = b & 255, c & 255
        if n == 0:
            return 0
        field = [a >> k & 1 if k < 32 else 0 for k in range(pos, pos + n)][:32]
        fill = a >> min(pos + n - 1, 31) & 1 if op == "bfe.s32" else 0
        field = [a >> (pos + k) & 1 if k < n and pos + k < 32 else fill for k in range(32)]
        return sum(bit << k for k, bit in enumerate(field))
    if op == "bfi.b32":
        pos = c & 255
        return sum((a >> (k - pos) & 1 if pos <= k < pos + 9 else b >> k & 1) << k for k in range(32))
    v, w = signed(a), signed(b)
    return {"popc.b32": lambda: bin(a).count("1"), "clz.b32": lambda: 32 - a.bit_length(), "brev.b32": lambda: int(f"{a:032b}"[::-1], 2), "mul.hi.s32": lambda: v * w >> 32, "mul.wide.u32": lambda: a * b,
            "mad.lo.u32": lambda: a * b + c, "min.s32": lambda: min(v, w), "abs.s32": lambda: abs(v)}[op]()


def shuffle_fn(a, b):
    def one(text, i, x, y):
        lane, base = i % 32, i - i % 32
        warp = [int(w) for w in a[base:base + 32]]
        m = re.search(r"shfl\.sync\.(\w+)\.b32 \S+ \{ra\}, (\S+), (\S+), 0xffffffff", text)
        if m:
            mode, bval, cval = m.group(1), y if m.group(2) == "{rb}" else int(m.group(2)), int(m.group(3), 16)
            seg, clamp = cval >> 8 & 31, cval & 31
            top = (lane & seg) | (clamp & ~seg & 31)
            low = lane & seg
            n = bval & 31
            j, ok = {"up": (lane - n, lane - n >= top), "down": (lane + n, lane + n <= top), "bfly": (lane ^ n, (lane ^ n) <= top), "idx": (low | n & ~seg & 31, (low | n & ~seg & 31) <= top)}[mode]
            r = warp[j] if ok else x
            return r ^ int(ok) if "%p1" in text else r
        s = [signed(w) for w in warp]
        if "ballot" in text:
            return sum(int(v < 0) << k for k, v in enumerate(s))
        if "vote.sync.any" in text:
            return int(any(v < 0 for v in s))
        if "match" in text:
            return sum(int(int(w) == y) << k for k, w in enumerate(b[base:base + 32]))
        if ".add" in text:
            return sum(warp) & 0xFFFFFFFF
        if ".min.s32" in text:
            return min(s) & 0xFFFFFFFF
        if ".max.u32" in text:
            return max(warp)
        r = 0
        for w in warp:
            r ^= w
        return r
    return one


def run():
    rng = Rng(1)
    a, b = f32_inputs(rng, -30, 20), f32_inputs(rng, -12, 12)[::-1].copy()
    case("cvt_f32", K.CVT_F32, [a, b], cvt)
    h = rng.words(N)
    h[:24] = [0, 0x80008000, 0x00010001, 0x03FF0400, 0x7BFF7C00, 0xFC007E00, 0x3C003C01, 0x7FFF7BFF, 0x5F005F80, 0x64006401, 0x38003801, 0x3E003E01, 0xB800B801, 0xBE00BE01, 0x41004101, 0x2E002E01, 0x13801480, 0x07FF0800, 0x5B805B7F, 0x77007780, 0x7A807B00, 0x7F807C7F, 0x78FC7EFB, 0x80018002]
    case("cvt_f16", K.CVT_F16, [h], cvt)
    g = rng.words(N)
    g[:8] = [0, 0x80, 0x7F80, 0xFF80, 0x8000, 1, 0x477F, 0x7F7F]
    g = np.where((g & 0x7F80 == 0x7F80) & (g & 0x7F != 0), g & 0xFFFFBFFF, g).astype(np.uint32)
    case("cvt_bf16", K.CVT_BF16, [g], lambda t, i, x: cvt(t, i, x & 0xFFFF))
    w = f32_inputs(rng, -4, 36)
    w[32:96] = (np.arange(64).astype(np.float32) / 4 - 8).view(np.uint32)
    w[96:104] = np.array([2147483520, 2147483648, -2147483648, 4294967040, 4294967296, 32767.5, 65535.5, -32768.5], np.float32).view(np.uint32)
    w[104:112] = [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x01000001, 0x01000003, 0x7F, 0x80, 0xFFFFFF7F]
    case("cvt_int", K.CVT_INT, [w], cvt)
    x, y, z = f32_inputs(rng, -4, 4), f32_inputs(rng, -4, 4), f32_inputs(rng, -8, 8)
    y = np.roll(y, 7)
    z = np.roll(z, 40)
    x[200:216], y[200:216] = (x[200:216] & 0x807FFFFF) | 0x10000000, (y[200:216] & 0x807FFFFF) | 0x2F800000
    x[216:232] = (x[216:232] & 0x807FFFFF) | 0x01000000
    case("f32_arith", K.F32_ARITH, [x, y, z], f32_arith)
    case("f32x2", K.F32X2, [x, y, z], f32x2)
    p = [rng.words(N) for _ in range(3)]
    for q in p[:2]:
        q[64:] = (q[64:] & 0x83FF83FF) | 0x3C003C00
    case("half_arith", K.HALF_ARITH, p, half_arith)
    u = f32_inputs(rng, -8, 2)
    u[32:96] = (np.arange(64).astype(np.float32) * 4 - 150).view(np.uint32)
    u[96:160] = (np.arange(64).astype(np.float32) / 11 - 3).view(np.uint32)
    v = f32_inputs(rng, -20, 20)
    v[128:] &= 0x7FFFFFFF
    c = rng.words(N)
    c = ((c & 0x83FF83FF) | ((c >> np.uint32(3)) & 0x1C001C00) + np.uint32(0x24002400)).astype(np.uint32)
    case("approx", K.APPROX, [u, v, c], approx, approx_rule)
    s = [rng.words(N) for _ in range(3)]
    s[2][128:] &= 63
    s[1][128:192] &= 31
    s[0][:4] = [0, 0xFFFFFFFF, 0x80000000, 1]
    case("bits", K.BITS, s, bits)
    sa, sb = rng.words(N), (rng.words(N) % np.uint32(40)).astype(np.uint32)
    sa[64:96] &= 0x7FFFFFFF
    case("shuffle", K.SHUFFLE, [sa, sb], shuffle_fn(sa, sb))
    e, f = f32_inputs(rng, -4, 5), np.roll(f32_inputs(rng, -4, 5), 100)
    case("cvt_sm100", K.CVT_SM100, [e, f], cvt)


if __name__ == "__main__":
    from cases import save
    run()
    save()
