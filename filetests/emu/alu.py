"""Register files and arithmetic instructions.

Each register is a row of 32 lanes with an unsigned, a signed and a float view (`w.u`, `w.s`, `w.f`);
constants, special registers and symbols are rows too, so every operand is an index. `decode_alu`
turns an instruction into a closure `f(w, m)`, `m` being the ufunc `where` mask (True: all lanes).
Guarantee: integer results wrap as in PTX; f32 `fma` rounds through f64; `.ftz` is not modelled.
Source: PTX ISA, "Instruction Set".
"""
import numpy as np

from ptxparse import PtxError, TYPE_BYTES
from tma import round_bf16, to_bits, from_bits

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
FLOATS = {1: np.uint8, 2: np.float16, 4: np.float32, 8: np.float64}
LANES = np.arange(32, dtype=np.uint32)


class MachineError(Exception):
    """What an executing instruction reports; the machine adds the place."""


class RegFile:
    """Layout of the registers of one entry: names, constants, special registers."""

    def __init__(self, entry):
        self.index, self.types, self.bytes = {}, [], []
        self.constants = {}     # (bytes, bits) -> slot
        self.specials = {}      # (name, bytes) -> slot
        for name, typ in entry.regs.items():
            self.index[name] = self.add(typ)
        self.count = len(self.types)

    def add(self, typ):
        self.types.append(typ)
        self.bytes.append(0 if typ == "pred" else TYPE_BYTES[typ])
        return len(self.types) - 1

    def constant(self, size, bits):
        """Slot of a constant; `size` 0 is a predicate."""
        key = (size, bits & ((1 << (8 * size)) - 1) if size else bool(bits))
        if key not in self.constants:
            self.constants[key] = self.add({0: "pred", 1: "b8", 2: "b16", 4: "b32", 8: "b64"}[size])
        return self.constants[key]

    def special(self, name, size):
        if (name, size) not in self.specials:
            self.specials[(name, size)] = self.add({2: "b16", 4: "b32", 8: "b64"}[size])
        return self.specials[(name, size)]


class Decoder:
    """Operand access while one entry is decoded; collects what each instruction reads and writes."""

    def __init__(self, entry, regs, symbols, spaces):
        self.entry, self.regs, self.symbols = entry, regs, symbols
        self.param_base = spaces
        self.srcs, self.dsts, self.ins = [], [], None

    def start(self, ins):
        self.ins, self.srcs, self.dsts = ins, [], []

    def fail(self, message):
        raise PtxError(self.ins.line, f"{message} in `{self.ins.text}`")

    def unsupported(self):
        self.fail(f"unsupported instruction {self.ins.op}")

    def count(self, *counts):
        if len(self.ins.operands) not in counts:
            self.fail(f"expected {counts} operands, found {len(self.ins.operands)}")

    def size_of(self, slot):
        return self.regs.bytes[slot]

    def src(self, o, size, exact=True, floating=None):
        """Slot of a source operand of `size` bytes (0: predicate)."""
        if o.kind == "reg":
            slot = self.regs.index[o.name]
            have = self.regs.bytes[slot]
            if (have == 0) != (size == 0) or (exact and have != size) or have < size:
                self.fail(f"register {o.name} has {8 * have} bits, {8 * size} needed")
            self.srcs.append(slot)
            return slot
        if o.kind == "int":
            if floating:
                return self.regs.constant(size, float_bits(float(o.value), floating))
            if size and not -(1 << (8 * size - 1)) <= o.value < 1 << (8 * size):
                self.fail(f"immediate {o.value} does not fit {8 * size} bits")
            return self.regs.constant(size, o.value)
        if o.kind == "float":
            width, value = o.value
            if width == 8 * size:
                return self.regs.constant(size, value)
            if floating is None:
                self.fail("float immediate for an integer operand")
            v = value if width == 0 else float(np.array(value, UNSIGNED[width // 8]).view(FLOATS[width // 8]))
            return self.regs.constant(size, float_bits(v, floating))
        if o.kind == "special" and size:
            natural = 8 if o.name in ("%clock64", "%globaltimer") else 4
            if size not in (natural, 2) or size > natural:
                self.fail(f"{o.name} read as {8 * size} bits")
            return self.regs.special(o.name, size)
        if o.kind == "sym" and size in (4, 8):
            if o.name in self.symbols:
                return self.regs.constant(size, self.symbols[o.name] + o.offset)
            self.fail(f"unknown symbol {o.name}")
        self.fail(f"bad source operand {o!r}")

    def pred(self, o):
        """`(slot, negated)` of a predicate source; immediates 0/1 allowed."""
        if o.kind == "notreg":
            slot = self.regs.index[o.name]
            self.srcs.append(slot)
            return slot, True
        return self.src(o, 0), False

    def dst(self, o, size, exact=True):
        """Slot of a destination, or a fresh one for the sink `_`."""
        if o.kind == "sink":
            return self.regs.add({0: "pred", 1: "b8", 2: "b16", 4: "b32", 8: "b64"}[size])
        if o.kind != "reg":
            self.fail(f"destination must be a register, found {o!r}")
        slot = self.regs.index[o.name]
        have = self.regs.bytes[slot]
        if (have == 0) != (size == 0) or (exact and have != size) or have < size:
            self.fail(f"register {o.name} has {8 * have} bits, {8 * size} needed")
        self.dsts.append(slot)
        return slot

    def mem(self, o):
        """`(slot, size of the slot, byte offset)` of an address operand."""
        if o.kind != "mem":
            self.fail(f"expected an address, found {o!r}")
        b = o.base
        if b.kind == "reg":
            slot = self.regs.index[b.name]
            self.srcs.append(slot)
            if self.regs.bytes[slot] not in (4, 8):
                self.fail(f"address register {b.name} must have 32 or 64 bits")
            return slot, self.regs.bytes[slot], o.offset
        if b.kind == "sym" and b.name in self.symbols:
            return self.regs.constant(4, self.symbols[b.name]), 4, o.offset + b.offset
        if b.kind == "int":
            return self.regs.constant(8, b.value), 8, o.offset
        self.fail(f"bad address {b!r}")


def float_bits(v, typ):
    return int(to_bits(np.array([v]), typ)[0])


def decode_alu(d, ins):
    """Closure of an arithmetic, logic, move or conversion instruction; None if it is none."""
    name = ins.parts[0]
    fn = TABLE.get(name)
    return None if fn is None else fn(d, ins, ins.parts)


def put(dst, m, value):
    np.copyto(dst, value, where=m, casting="unsafe")


def int_type(d, p, allowed=("u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64")):
    t = p[-1]
    if t not in allowed:
        d.unsupported()
    return t, TYPE_BYTES[t]


def only(d, p, *allowed):
    """Rejects modifiers that are not listed."""
    for x in p:
        if x not in allowed:
            d.unsupported()


def view_name(t):
    return "s" if t[0] == "s" else "u"


def int_binary(ufunc, modifiers=()):
    def build(d, ins, p):
        t = p[-1]
        if t in FLOAT_TYPES:
            return float_binary(d, ins, p)
        t, size = int_type(d, p)
        only(d, p[1:-1], *modifiers)
        d.count(3)
        a, b = d.src(ins.operands[1], size), d.src(ins.operands[2], size)
        r = d.dst(ins.operands[0], size)
        if view_name(t) == "s":
            return lambda w, m: ufunc(w.s[a], w.s[b], out=w.s[r], where=m)
        return lambda w, m: ufunc(w.u[a], w.u[b], out=w.u[r], where=m)
    return build


def logic(ufunc, pred_ufunc):
    def build(d, ins, p):
        if len(p) != 2:
            d.unsupported()
        d.count(3)
        if p[1] == "pred":
            (a, na), (b, nb) = d.pred(ins.operands[1]), d.pred(ins.operands[2])
            r = d.dst(ins.operands[0], 0)
            return lambda w, m: put(w.u[r], m, pred_ufunc(w.u[a] ^ na, w.u[b] ^ nb))
        t, size = int_type(d, p, ("b16", "b32", "b64"))
        a, b = d.src(ins.operands[1], size), d.src(ins.operands[2], size)
        r = d.dst(ins.operands[0], size)
        return lambda w, m: ufunc(w.u[a], w.u[b], out=w.u[r], where=m)
    return build


def not_(d, ins, p):
    d.count(2)
    if p[1:] == ["pred"]:
        a, na = d.pred(ins.operands[1])
        r = d.dst(ins.operands[0], 0)
        return lambda w, m: put(w.u[r], m, ~(w.u[a] ^ na))
    t, size = int_type(d, p, ("b16", "b32", "b64"))
    a, r = d.src(ins.operands[1], size), d.dst(ins.operands[0], size)
    return lambda w, m: np.invert(w.u[a], out=w.u[r], where=m)


def unary_int(ufunc):
    """neg and abs of signed integers; floats go their own way."""
    def build(d, ins, p):
        if p[-1] in FLOAT_TYPES:
            return float_unary(d, ins, p)
        t, size = int_type(d, p, ("s16", "s32", "s64"))
        only(d, p[1:-1])
        d.count(2)
        a, r = d.src(ins.operands[1], size), d.dst(ins.operands[0], size)
        return lambda w, m: ufunc(w.s[a], out=w.s[r], where=m)
    return build


def shift(left):
    def build(d, ins, p):
        t, size = int_type(d, p, ("b16", "b32", "b64") if left else
                           ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"))
        only(d, p[1:-1])
        d.count(3)
        a, b = d.src(ins.operands[1], size), d.src(ins.operands[2], 4)
        r = d.dst(ins.operands[0], size)
        signed = t[0] == "s"
        dt = (SIGNED if signed else UNSIGNED)[size]
        ufunc = np.left_shift if left else np.right_shift
        limit = np.uint32(8 * size)

        def run(w, m):
            x = w.s if signed else w.u
            amount = np.minimum(w.u[b], limit)
            over = amount == limit
            v = ufunc(x[a], np.where(over, 0, amount).astype(dt))
            if over.any():
                v = np.where(over, (x[a] >> dt(8 * size - 1)) if signed else dt(0), v)
            np.copyto(x[r], v, where=m)

        if ins.operands[2].kind == "int" and 0 <= ins.operands[2].value < 8 * size:
            n = dt(ins.operands[2].value)
            if signed:
                return lambda w, m: ufunc(w.s[a], n, out=w.s[r], where=m)
            return lambda w, m: ufunc(w.u[a], n, out=w.u[r], where=m)
        return run
    return build


def divide(remainder):
    def build(d, ins, p):
        if p[-1] in FLOAT_TYPES and not remainder:
            return float_binary(d, ins, p)
        t, size = int_type(d, p, ("u16", "s16", "u32", "s32", "u64", "s64"))
        only(d, p[1:-1])
        d.count(3)
        a, b = d.src(ins.operands[1], size), d.src(ins.operands[2], size)
        r = d.dst(ins.operands[0], size)
        signed = t[0] == "s"

        def run(w, m):
            x = w.s if signed else w.u
            den = x[b]
            if (den == 0).any():
                if (den[m] if m is not True else den).min() == 0 and ((den == 0) & m).any():
                    raise MachineError("integer division by zero")
                den = np.where(den == 0, 1, den)
            rem = np.fmod(x[a], den)
            put(x[r], m, rem if remainder else (x[a] - rem) // den)
        return run
    return build


def high_product(a, b, size, signed):
    """Upper half of the double-width product."""
    if size < 8:
        wide = (SIGNED if signed else UNSIGNED)[2 * size]
        return (a.astype(wide) * b.astype(wide)) >> wide(8 * size)
    return np.array([((int(x) * int(y)) >> 64) & ((1 << 64) - 1) for x, y in zip(a, b)],
                    np.uint64).view(SIGNED[8] if signed else UNSIGNED[8])


def multiply(add):
    """mul and mad; `add` says that there is a third source."""
    def build(d, ins, p):
        if p[-1] in FLOAT_TYPES:
            return float_fma(d, ins, p) if add else float_binary(d, ins, p)
        t, size = int_type(d, p, ("u16", "s16", "u32", "s32", "u64", "s64", "b32"))
        if len(p) != 3 or p[1] not in ("lo", "hi", "wide"):
            d.unsupported()
        d.count(4 if add else 3)
        signed, mode = t[0] == "s", p[1]
        rsize = 2 * size if mode == "wide" else size
        if rsize > 8:
            d.unsupported()
        a, b = d.src(ins.operands[1], size), d.src(ins.operands[2], size)
        c = d.src(ins.operands[3], rsize) if add else None
        r = d.dst(ins.operands[0], rsize)
        wide = (SIGNED if signed else UNSIGNED)[rsize]
        if mode == "lo" and not add:
            return lambda w, m: np.multiply(w.u[a], w.u[b], out=w.u[r], where=m)

        def run(w, m):
            x = w.s if signed else w.u
            if mode == "lo":
                v = x[a] * x[b]
            elif mode == "wide":
                v = x[a].astype(wide) * x[b].astype(wide)
            else:
                v = high_product(x[a], x[b], size, signed).astype(wide)
            if add:
                v = v + x[c]
            put(x[r], m, v)
        return run
    return build


def bfe(d, ins, p):
    t, size = int_type(d, p, ("u32", "s32", "u64", "s64"))
    d.count(4)
    a, pos, ln = d.src(ins.operands[1], size), d.src(ins.operands[2], 4), d.src(ins.operands[3], 4)
    r = d.dst(ins.operands[0], size)
    bits, signed = 8 * size, t[0] == "s"

    def run(w, m):
        out = np.empty(32, UNSIGNED[size])
        for k in range(32):
            x, q, n = int(w.u[a][k]), int(w.u[pos][k]) & 255, int(w.u[ln][k]) & 255
            v = (x >> q) & ((1 << n) - 1) if n else 0
            if signed and n:
                top = min(q + n - 1, bits - 1)
                if (x >> top) & 1 and q + n > top:
                    v |= -1 << max(0, top - q + 1) if q <= top else -1
            out[k] = v & ((1 << bits) - 1)
        put(w.u[r], m, out)

    if not signed and ins.operands[2].kind == ins.operands[3].kind == "int":
        q, n = ins.operands[2].value & 255, ins.operands[3].value & 255
        dt = UNSIGNED[size]
        mask = dt(((1 << min(n, bits)) - 1) if q < bits else 0)
        q = dt(min(q, bits - 1))
        return lambda w, m: np.bitwise_and(w.u[a] >> q, mask, out=w.u[r], where=m)
    return run


def bfi(d, ins, p):
    t, size = int_type(d, p, ("b32", "b64"))
    d.count(5)
    a, b = d.src(ins.operands[1], size), d.src(ins.operands[2], size)
    pos, ln = d.src(ins.operands[3], 4), d.src(ins.operands[4], 4)
    r = d.dst(ins.operands[0], size)
    full = (1 << (8 * size)) - 1

    def run(w, m):
        out = np.empty(32, UNSIGNED[size])
        for k in range(32):
            q, n = int(w.u[pos][k]) & 255, int(w.u[ln][k]) & 255
            mask = (((1 << n) - 1) << q) & full
            out[k] = (int(w.u[b][k]) & ~mask) | ((int(w.u[a][k]) << q) & mask)
        put(w.u[r], m, out)
    return run


def lop3(d, ins, p):
    if p[1:] != ["b32"]:
        d.unsupported()
    d.count(5)
    a, b, c = (d.src(o, 4) for o in ins.operands[1:4])
    r = d.dst(ins.operands[0], 4)
    if ins.operands[4].kind != "int" or not 0 <= ins.operands[4].value < 256:
        d.fail("lop3 needs an 8-bit table")
    lut = ins.operands[4].value

    def run(w, m):
        v = np.zeros(32, np.uint32)
        for k in range(8):
            if lut >> k & 1:
                x = w.u[a] if k & 4 else ~w.u[a]
                y = w.u[b] if k & 2 else ~w.u[b]
                z = w.u[c] if k & 1 else ~w.u[c]
                v |= x & y & z
        put(w.u[r], m, v)
    return run


def prmt(d, ins, p):
    if p[1:] != ["b32"]:
        d.unsupported()
    d.count(4)
    a, b, c = (d.src(o, 4) for o in ins.operands[1:4])
    r = d.dst(ins.operands[0], 4)

    def run(w, m):
        src = np.concatenate([w.u[a].view(np.uint8).reshape(32, 4), w.u[b].view(np.uint8).reshape(32, 4)], axis=1)
        out = np.empty((32, 4), np.uint8)
        for k in range(4):
            sel = (w.u[c] >> np.uint32(4 * k)) & np.uint32(15)
            byte = src[LANES, sel & np.uint32(7)]
            out[:, k] = np.where(sel & 8, np.where(byte & 0x80, 0xFF, 0), byte)
        put(w.u[r], m, out.reshape(-1).view(np.uint32))
    return run


def bit_count(kind):
    def build(d, ins, p):
        t, size = int_type(d, p, ("b32", "b64"))
        d.count(2)
        rsize = size if kind == "brev" else 4
        a, r = d.src(ins.operands[1], size), d.dst(ins.operands[0], rsize)
        bits = 8 * size

        def run(w, m):
            vals = [int(x) for x in w.u[a]]
            if kind == "popc":
                out = [v.bit_count() for v in vals]
            elif kind == "clz":
                out = [bits - v.bit_length() for v in vals]
            else:
                out = [int(format(v, f"0{bits}b")[::-1], 2) for v in vals]
            put(w.u[r], m, np.array(out, UNSIGNED[rsize]))
        return run
    return build


INT_CMP = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
           "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}


def compare(cmp, t):
    """Comparison of two float32/float64 arrays with PTX's NaN rules."""
    base = INT_CMP.get(cmp)
    if cmp in ("num", "nan"):
        return lambda a, b: (np.isnan(a) | np.isnan(b)) == (cmp == "nan")
    if base is not None and cmp not in ("lo", "ls", "hi", "hs"):
        if cmp == "ne":
            return lambda a, b: np.not_equal(a, b) & ~(np.isnan(a) | np.isnan(b))
        return base
    if cmp.endswith("u") and cmp[:-1] in INT_CMP:
        base = INT_CMP[cmp[:-1]]
        return lambda a, b: base(a, b) | np.isnan(a) | np.isnan(b)
    return None


def setp(d, ins, p):
    t = p[-1]
    mods = [x for x in p[2:-1] if x != "ftz"]
    cmp = p[1] if len(p) > 2 else None
    if len(mods) > 1 or (mods and mods[0] not in ("and", "or", "xor")):
        d.unsupported()
    d.count(4 if mods else 3)
    size = TYPE_BYTES.get(t)
    if t in FLOAT_TYPES:
        if t.endswith("x2"):
            d.unsupported()
        fn = compare(cmp, t)
        get = lambda w, s: load_float(w, s, t)
        a, b = d.src(ins.operands[1], size, floating=t), d.src(ins.operands[2], size, floating=t)
    else:
        int_type(d, p)
        fn = INT_CMP.get(cmp)
        if t[0] == "b" and cmp not in ("eq", "ne") or t[0] == "s" and cmp in ("lo", "ls", "hi", "hs"):
            fn = None
        get = (lambda w, s: w.s[s]) if t[0] == "s" else (lambda w, s: w.u[s])
        a, b = d.src(ins.operands[1], size), d.src(ins.operands[2], size)
    if fn is None:
        d.fail(f"unknown comparison {cmp!r}")
    c, nc = d.pred(ins.operands[3]) if mods else (None, False)
    o = ins.operands[0]
    outs = o.items if o.kind == "pair" else [o]
    r = d.dst(outs[0], 0)
    q = d.dst(outs[1], 0) if len(outs) > 1 else None
    if not mods and q is None and t not in FLOAT_TYPES:
        if t[0] == "s":
            return lambda w, m: fn(w.s[a], w.s[b], out=w.u[r], where=m)
        return lambda w, m: fn(w.u[a], w.u[b], out=w.u[r], where=m)
    combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[mods[0]] if mods else None

    def run(w, m):
        v = fn(get(w, a), get(w, b))
        inv = ~v
        if combine is not None:
            k = w.u[c] ^ nc
            v, inv = combine(v, k), combine(inv, k)
        put(w.u[r], m, v)
        if q is not None:
            put(w.u[q], m, inv)
    return run


def selp(d, ins, p):
    t = p[-1]
    if len(p) != 2 or t not in TYPE_BYTES or TYPE_BYTES[t] < 2:
        d.unsupported()
    d.count(4)
    size = TYPE_BYTES[t]
    floating = t if t in FLOAT_TYPES else None
    a, b = d.src(ins.operands[1], size, floating=floating), d.src(ins.operands[2], size, floating=floating)
    c, nc = d.pred(ins.operands[3])
    r = d.dst(ins.operands[0], size)
    if nc:
        a, b = b, a
    return lambda w, m: put(w.u[r], m, np.where(w.u[c], w.u[a], w.u[b]))


def mov(d, ins, p):
    t = p[-1]
    if len(p) != 2:
        d.unsupported()
    d.count(2)
    o, s = ins.operands
    if t == "pred":
        a, na = d.pred(s)
        r = d.dst(o, 0)
        return lambda w, m: put(w.u[r], m, w.u[a] ^ na)
    if t not in TYPE_BYTES or TYPE_BYTES[t] not in (2, 4, 8):
        d.unsupported()
    size = TYPE_BYTES[t]
    if s.kind == "vec" or o.kind == "vec":
        v = s if s.kind == "vec" else o
        n = len(v.items)
        part = size // n
        if t[0] != "b" or n not in (2, 4) or part < 1:
            d.unsupported()
        if s.kind == "vec":
            parts = [d.src(x, part) for x in s.items]
            r = d.dst(o, size)
            dt = UNSIGNED[part]

            def pack(w, m):
                buf = np.empty((32, n), dt)
                for k in range(n):
                    buf[:, k] = w.u[parts[k]]
                put(w.u[r], m, buf.reshape(-1).view(UNSIGNED[size]))
            return pack
        a = d.src(s, size)
        parts = [d.dst(x, part) for x in o.items]

        def unpack(w, m):
            buf = w.u[a].view(UNSIGNED[part]).reshape(32, n).copy()
            for k in range(n):
                put(w.u[parts[k]], m, buf[:, k])
        return unpack
    if s.kind == "special" and s.name in ("%clock", "%clock64", "%globaltimer", "%globaltimer_lo"):
        r = d.dst(o, size)
        return lambda w, m: put(w.u[r], m, np.full(32, w.cta.time, np.uint64))
    a = d.src(s, size, floating=t if t in FLOAT_TYPES else None)
    r = d.dst(o, size)
    if s.kind == "sym" and s.name in d.entry.params:
        d.fail("address of a parameter needs cvta.param")
    return lambda w, m: np.copyto(w.u[r], w.u[a], where=m)


# ---------------------------------------------------------------- floating point

FLOAT_TYPES = {"f16", "bf16", "f16x2", "bf16x2", "f32", "f32x2", "f64"}


def load_float(w, slot, t):
    """Lanes (times 2 for packed types) as float32, or float64 for f64."""
    u = w.u[slot]
    if t == "f32":
        return u.view(np.float32)
    if t in ("f16", "f16x2"):
        return u.view(np.float16).astype(np.float32)
    if t in ("bf16", "bf16x2"):
        return (u.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if t == "f32x2":
        return u.view(np.float32)
    return u.view(np.float64)


def store_float(w, slot, t, m, value):
    """Rounds to `t` and stores the lanes in `m`."""
    u = w.u[slot]
    if t in ("f32", "f32x2"):
        out = value.astype(np.float32).view(u.dtype)
    elif t in ("f16", "f16x2"):
        out = value.astype(np.float16).view(u.dtype)
    elif t in ("bf16", "bf16x2"):
        out = round_bf16(value.astype(np.float64)).view(u.dtype)
    else:
        out = value.astype(np.float64).view(u.dtype)
    np.copyto(u, out, where=m)


def float_mods(d, p, allowed):
    only(d, p[1:-1], *allowed)
    if p[-1] not in FLOAT_TYPES:
        d.unsupported()
    return p[-1], TYPE_BYTES[p[-1]]


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.fmin, "max": np.fmax, "div": np.divide}


def float_binary(d, ins, p):
    name = p[0]
    allowed = ("ftz", "rn", "sat")
    if name in ("min", "max"):
        allowed = ("ftz", "NaN")
    if name == "div":
        allowed = ("ftz", "rn", "full", "approx")
    t, size = float_mods(d, p, allowed)
    if name == "div" and (t not in ("f32", "f64") or not set(p) & {"rn", "full", "approx"}):
        d.fail("div needs .rn, .full or .approx")
    if t == "f32x2" and name in ("min", "max", "div"):
        d.unsupported()
    d.count(*((3, 4) if name in ("min", "max") and t == "f32" else (3,)))
    srcs = [d.src(o, size, floating=t) for o in ins.operands[1:]]
    r = d.dst(ins.operands[0], size)
    ufunc = BINARY[name]
    if "NaN" in p:
        ufunc = np.minimum if name == "min" else np.maximum
    sat = "sat" in p
    if t == "f32" and len(srcs) == 2 and not sat:
        a, b = srcs
        return lambda w, m: ufunc(w.f[a], w.f[b], out=w.f[r], where=m)

    def run(w, m):
        v = load_float(w, srcs[0], t)
        for s in srcs[1:]:
            v = ufunc(v, load_float(w, s, t))
        if sat:
            v = np.where(np.isnan(v), 0, np.clip(v, 0, 1))
        store_float(w, r, t, m, v)
    return run


def float_fma(d, ins, p):
    t, size = float_mods(d, p, ("rn", "ftz", "sat", "relu"))
    if "rn" not in p:
        d.fail("fma needs .rn")
    d.count(4)
    a, b, c = (d.src(o, size, floating=t) for o in ins.operands[1:])
    r = d.dst(ins.operands[0], size)
    sat, relu = "sat" in p, "relu" in p

    def run(w, m):
        x, y, z = (load_float(w, s, t).astype(np.float64) for s in (a, b, c))
        v = x * y + z
        if sat:
            v = np.where(np.isnan(v), 0, np.clip(v, 0, 1))
        if relu:
            v = np.maximum(v, 0)
        store_float(w, r, t, m, v)
    return run


def float_unary(d, ins, p):
    t, size = float_mods(d, p, ("ftz",))
    d.count(2)
    a, r = d.src(ins.operands[1], size, floating=t), d.dst(ins.operands[0], size)
    elem = 8 * size // (2 if t.endswith("x2") else 1)
    sign = 1 << (elem - 1)
    for k in range(1, 8 * size // elem):
        sign |= sign << elem * k
    dt = UNSIGNED[size]
    if p[0] == "neg":
        return lambda w, m: np.bitwise_xor(w.u[a], dt(sign), out=w.u[r], where=m)
    keep = dt(~sign & ((1 << 8 * size) - 1))
    return lambda w, m: np.bitwise_and(w.u[a], keep, out=w.u[r], where=m)


MATH = {"ex2": np.exp2, "lg2": np.log2, "rcp": lambda x: 1 / x, "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt,
        "tanh": np.tanh, "sin": np.sin, "cos": np.cos}


def math(d, ins, p):
    name = p[0]
    t, size = float_mods(d, p, ("approx", "ftz", "rn"))
    rn_ok = name in ("rcp", "sqrt")
    if ("approx" not in p and not (rn_ok and "rn" in p)) or ("rn" in p and not rn_ok):
        d.fail(f"{name} needs .approx{' or .rn' if rn_ok else ''}")
    if t != "f32" and not (name in ("ex2", "tanh") and t in ("f16", "f16x2", "bf16", "bf16x2")):
        d.unsupported()
    if name == "ex2" and ((t.startswith("f16") and "ftz" in p) or (t.startswith("bf16") and "ftz" not in p)):
        d.fail("ex2 takes .ftz for bf16 and not for f16")
    d.count(2)
    a, r = d.src(ins.operands[1], size, floating=t), d.dst(ins.operands[0], size)
    fn = MATH[name]
    return lambda w, m: store_float(w, r, t, m, fn(load_float(w, a, t)))


def cvt(d, ins, p):
    if len(p) < 3:
        d.unsupported()
    dt, st = p[-2], p[-1]
    mods = p[1:-2]
    only(d, mods, "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna", "ftz", "sat", "relu", "satfinite")
    relu, sat = "relu" in mods, "sat" in mods or "satfinite" in mods
    if dt in ("f16x2", "bf16x2") and st == "f32":
        if "rn" not in mods:
            d.fail("packed cvt needs .rn")
        d.count(3)
        hi, lo = d.src(ins.operands[1], 4, floating="f32"), d.src(ins.operands[2], 4, floating="f32")
        r = d.dst(ins.operands[0], 4)
        half = dt[:-2]

        def packed(w, m):
            buf = np.empty((32, 2), np.float32)
            buf[:, 0], buf[:, 1] = w.f[lo], w.f[hi]
            if relu:
                # NaN stays NaN and is canonical in the narrow type.
                buf = np.maximum(buf, np.float32(0))
            if half == "f16":
                if sat:
                    buf = np.clip(buf, -65504, 65504)
                out = buf.astype(np.float16).view(np.uint32)
            else:
                x = buf.view(np.uint32)
                out = ((x + np.uint32(0x7FFF) + ((x >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
                out = np.where(np.isnan(buf), np.uint16(0x7FFF), out).view(np.uint32)
            put(w.u[r], m, out.reshape(32))
        return packed
    if dt in ("e4m3x2", "e5m2x2") and st == "f32":
        if "satfinite" not in mods or "rn" not in mods:
            d.fail("fp8 cvt needs .rn.satfinite")
        d.count(3)
        hi, lo = d.src(ins.operands[1], 4, floating="f32"), d.src(ins.operands[2], 4, floating="f32")
        r = d.dst(ins.operands[0], 2)
        limit = 448.0 if dt[:4] == "e4m3" else 57344.0

        def to_fp8(w, m):
            buf = np.empty((32, 2))
            buf[:, 0], buf[:, 1] = w.f[lo], w.f[hi]
            if relu:
                buf = np.maximum(buf, 0)
            bits = to_bits(np.clip(np.nan_to_num(buf, nan=0.0), -limit, limit), dt[:4])
            bits = np.where(np.isnan(buf), 0x7F, bits).astype(np.uint8)
            put(w.u[r], m, bits.reshape(-1).view(np.uint16))
        return to_fp8
    d.count(2)
    floats = ("f16", "bf16", "f32", "f64")
    if dt == "tf32" and st == "f32" and ("rna" in mods or "rn" in mods):
        a, r = d.src(ins.operands[1], 4, floating="f32"), d.dst(ins.operands[0], 4)
        return lambda w, m: put(w.u[r], m, (w.u[a] + np.uint32(0x1000)) & np.uint32(0xFFFFE000))
    ints = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
    if dt not in floats + ints or st not in floats + ints:
        d.unsupported()
    ssize, dsize = TYPE_BYTES[st], TYPE_BYTES[dt]
    a = d.src(ins.operands[1], ssize, exact=ssize > 2 or st in floats, floating=st if st in floats else None)
    r = d.dst(ins.operands[0], dsize, exact=dt in floats)
    rsize = d.size_of(r)
    rounds = [x for x in mods if x in ("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna")]
    if dt in floats:
        narrowing = st in ints or dsize < ssize or (dt != st and dsize == ssize)
        if narrowing and rounds not in (["rn"],) and not (st in ints and rounds == ["rz"] and ssize < dsize):
            d.fail("this cvt needs .rn")
        if not narrowing and rounds and not (dt == st and len(rounds) == 1):
            d.fail("this cvt takes no rounding")
    if dt in ints and st in floats and rounds not in (["rni"], ["rzi"], ["rmi"], ["rpi"]):
        d.fail("float to integer cvt needs .rni, .rzi, .rmi or .rpi")
    if dt in ints and st in ints and rounds:
        d.fail("integer cvt takes no rounding")
    integral = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}

    def source(w):
        if st in floats:
            return load_float(w, a, st)
        raw = w.u[a].astype(UNSIGNED[ssize])
        return raw.view(SIGNED[ssize]) if st[0] == "s" else raw

    def run(w, m):
        v = source(w)
        if dt in floats:
            v = v.astype(np.float64)
            if rounds and rounds[0] in integral:
                v = integral[rounds[0]](v)
            if sat and "satfinite" not in mods:
                v = np.where(np.isnan(v), 0, np.clip(v, 0, 1))
            if relu:
                v = np.where(np.isnan(v), v, np.maximum(v, 0))
            store_float(w, r, dt, m, v)
            return
        info = np.iinfo((SIGNED if dt[0] == "s" else UNSIGNED)[dsize])
        if st in floats:
            v = integral[rounds[0]](v.astype(np.float64))
            v = np.nan_to_num(v, nan=0.0, posinf=2.0 ** 65, neginf=-(2.0 ** 65))
            out = np.array([min(max(int(x), info.min), info.max) for x in v], info.dtype)
        elif sat:
            out = np.array([min(max(int(x), info.min), info.max) for x in v], info.dtype)
        else:
            out = v.astype(info.dtype)
        # A wider destination register is sign- or zero-extended.
        put(w.u[r], m, out.astype((SIGNED if dt[0] == "s" else UNSIGNED)[rsize]).view(UNSIGNED[rsize]))
    return run


def cvta(d, ins, p):
    d.count(2)
    if p[-1] != "u64":
        d.unsupported()
    o, s = ins.operands
    rest = p[1:-1]
    if rest == ["param"]:
        r = d.dst(o, 8)
        if s.kind != "sym" or s.name not in d.entry.params:
            d.fail("cvta.param needs a kernel parameter")
        a = d.regs.constant(8, d.param_base[0] + d.entry.params[s.name].offset + s.offset)
        return lambda w, m: np.copyto(w.u[r], w.u[a], where=m)
    base = {"shared": d.param_base[1], "shared::cta": d.param_base[1]}
    if rest[-1:] in (["global"], ["shared"], ["shared::cta"]) and len(rest) <= 2 and rest[:-1] in ([], ["to"]):
        space = rest[-1]
        if space == "global":
            a, r = d.src(s, 8), d.dst(o, 8)
            return lambda w, m: np.copyto(w.u[r], w.u[a], where=m)
        off = np.uint64(base[space])
        if rest[0] == "to":
            a, r = d.src(s, 8), d.dst(o, 8)
            return lambda w, m: np.subtract(w.u[a], off, out=w.u[r], where=m)
        size = d.size_of(d.regs.index[s.name]) if s.kind == "reg" else 8
        a, r = d.src(s, size), d.dst(o, 8)
        return lambda w, m: put(w.u[r], m, w.u[a].astype(np.uint64) + off)
    d.unsupported()


TABLE = {
    "add": int_binary(np.add), "sub": int_binary(np.subtract), "mul": multiply(False), "mad": multiply(True),
    "div": divide(False), "rem": divide(True), "min": int_binary(np.minimum), "max": int_binary(np.maximum),
    "and": logic(np.bitwise_and, np.logical_and), "or": logic(np.bitwise_or, np.logical_or),
    "xor": logic(np.bitwise_xor, np.logical_xor), "not": not_,
    "neg": unary_int(np.negative), "abs": unary_int(np.abs), "shl": shift(True), "shr": shift(False),
    "bfe": bfe, "bfi": bfi, "lop3": lop3, "prmt": prmt, "popc": bit_count("popc"), "clz": bit_count("clz"),
    "brev": bit_count("brev"), "setp": setp, "selp": selp, "mov": mov, "fma": float_fma, "cvt": cvt, "cvta": cvta,
}
for _name in MATH:
    TABLE[_name] = math
