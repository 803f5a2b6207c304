"""Tensor memory and the tcgen05 instructions (one CTA, dense kinds f16, tf32, f8f6f4, i8).

In: decoded instructions. Out: queued matrix operations, TMEM contents. Work of one thread runs in
issue order; threads are not ordered among each other. tcgen05.ld/st move data at any time between
issue and wait. Guarantee: TMEM use outside an allocation, the wrong lane quadrant, descriptor bits
that must be constant and overlap with unfinished ld/st/mma are errors.
Left out: cp, shift, .ws, .sp, block scaling, cta_group::2.
Source: PTX ISA, "TensorCore 5th Generation Family Instructions"; layouts as in the tables
"Canonical layouts" and "Data path layout".
"""
import numpy as np

from alu import LANES, MachineError
from tma import fp8_table

LANE_ROWS = 128
COLUMNS = 512
ONES = np.uint64(0x0101010101010101)
# descriptor swizzle code -> (pattern row bytes, XOR mask on chunk numbers)
DESC_SWIZZLE = {0: (0, 0), 2: (128, 7), 4: (64, 3), 6: (32, 1)}


class TmemOp:
    """A tcgen05.ld or .st that has not been waited for."""

    __slots__ = ("load", "rows", "cols", "regs", "values", "done", "region", "line", "text", "pack")

    def __init__(self, load, rows, cols, regs, values, region, line, text, pack):
        self.load, self.rows, self.cols, self.regs, self.values = load, rows, cols, regs, values
        self.region, self.line, self.text, self.done, self.pack = region, line, text, False, pack


def overlap(a, b):
    """Regions are `(bit set of 16-lane groups, first column, end column)`."""
    return a and b and a[0] & b[0] and a[1] < b[2] and b[1] < a[2]


class TensorCore:
    """TMEM of one CTA and its queues of matrix work, one per issuing thread."""

    def __init__(self, cta):
        self.cta = cta
        self.mem = np.full((LANE_ROWS, COLUMNS), 0xFFFFFFFF, np.uint32)
        self.f32 = self.mem.view(np.float32)
        self.defined = np.zeros((LANE_ROWS, COLUMNS), bool)
        self.owner = np.zeros(COLUMNS, np.int64)       # 0: free, else base + 1
        self.allocations = {}
        self.permit, self.last_size = True, COLUMNS
        self.queues = {}

    # ---- allocation
    def allocate(self, w, n, ins):
        if n < 32 or n > 512 or n & (n - 1):
            raise MachineError(f"{n} columns: not a power of two in 32..512")
        if not self.permit:
            raise MachineError("tcgen05.alloc after relinquish_alloc_permit")
        if n > self.last_size:
            raise MachineError(f"allocation of {n} columns after a smaller one")
        free = [b for b in range(0, COLUMNS, n) if not self.owner[b:b + n].any()]
        if not free:
            raise MachineError(f"no {n} free TMEM columns: the allocation would block for ever")
        # Another CTA of the same SM may own the lower columns.
        base = self.cta.rng.choice(free) if self.cta.mode == "random" else free[0]
        self.owner[base:base + n] = base + 1
        self.allocations[base] = (n, w.id, ins)
        self.last_size = n
        self.mem[:, base:base + n] = 0xFFFFFFFF
        self.defined[:, base:base + n] = False
        return base

    def free(self, w, address, n):
        have = self.allocations.get(address)
        if have is None:
            raise MachineError(f"tcgen05.dealloc of {address:#x}, which is not allocated")
        if have[:2] != (n, w.id):
            raise MachineError(f"dealloc of {n} columns by warp {w.id}, allocated were {have[0]} by warp {have[1]}")
        for q in self.queues.values():
            if q:
                raise MachineError("tcgen05.dealloc while tensor-core work is in flight")
        if any(x.loads or x.stores for x in self.cta.warps):
            raise MachineError("tcgen05.dealloc while a tcgen05.ld/st is in flight")
        del self.allocations[address]
        self.owner[address:address + n] = 0
        self.defined[:, address:address + n] = False

    def check_columns(self, c0, c1, what):
        if c0 < 0 or c1 > COLUMNS or not self.owner[c0:c1].all() or (self.owner[c0:c1] != self.owner[c0]).any():
            raise MachineError(f"{what}: TMEM columns {c0}..{c1} are not inside one allocation")

    def finish_cta(self):
        for base, (n, wid, ins) in self.allocations.items():
            raise self.cta.error(ins.line, wid, ins.text, f"{n} TMEM columns at {base} were not deallocated")

    # ---- ld and st
    def finish(self, w, x):
        """Moves the data of a tcgen05.ld or .st."""
        if x.done:
            return
        x.done = True
        try:
            for q in self.queues.values():
                for op in q:
                    if overlap(op.dst, x.region) or (not x.load and overlap(op.src, x.region)):
                        raise MachineError(f"touches columns of the tcgen05.mma of line {op.line} that is in flight")
            if x.load:
                for other in self.cta.warps:
                    for y in other.stores:
                        if not y.done and overlap(x.region, y.region) and other is w:
                            raise MachineError(f"reads columns of the tcgen05.st of line {y.line} before wait::st")
                known = self.defined[x.rows, x.cols]
                v = self.mem[x.rows, x.cols]
                if not known.all():
                    # An accumulator of 64 rows fills lanes 0..15 of every 32; a load of the rest gives arbitrary bits.
                    excused = np.zeros_like(known)
                    if len(known) == 32:
                        excused[16:] = known[:16]
                    if (~known & ~excused).any():
                        r, c = np.argwhere(~known & ~excused)[0]
                        raise MachineError(f"undefined TMEM lane {int(x.rows[r, c])} column {int(x.cols[r, c])} read")
                    sign = (x.rows.astype(np.uint32) + x.cols.astype(np.uint32)) << np.uint32(31)
                    v = np.where(known, v, np.uint32(0x7E967699) | sign)
                if x.pack:
                    v = (v[:, 0::2] & np.uint32(0xFFFF)) | (v[:, 1::2] << np.uint32(16))
                for k, r in enumerate(x.regs):
                    w.u[r][:] = v[:, k]
            else:
                self.mem[x.rows, x.cols] = x.values
                self.defined[x.rows, x.cols] = True
        except MachineError as e:
            raise self.cta.error(x.line, w.id, x.text, str(e)) from None

    def issue_check(self, dst, src):
        """An MMA may not overtake a tcgen05.ld/st on its operands."""
        for w in self.cta.warps:
            for x in w.loads:
                if overlap(dst, x.region):
                    raise MachineError(f"accumulator is still being read by the tcgen05.ld of line {x.line} of warp {w.id}")
            for x in w.stores:
                if overlap(dst, x.region) or overlap(src, x.region):
                    raise MachineError(f"operand is still being written by the tcgen05.st of line {x.line} of warp {w.id}")

    def queue(self, thread):
        from collections import deque
        return self.queues.setdefault(thread, deque())


# ---------------------------------------------------------------- operands of the MMA

class Kind:
    """Element size, K extent and converters of one MMA kind."""

    def __init__(self, name, elem, types, dtypes):
        self.name, self.elem, self.types, self.dtypes = name, elem, types, dtypes
        self.k = 32 // elem


def bf16_values(raw):
    return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


KINDS = {
    "f16": Kind("f16", 2, {0: lambda r: r.view(np.float16).astype(np.float32), 1: bf16_values}, (0, 1)),
    "tf32": Kind("tf32", 4, {2: lambda r: (r.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)}, (1,)),
    "f8f6f4": Kind("f8f6f4", 1, {0: lambda r: fp8_table("e4m3").astype(np.float32)[r.view(np.uint8)],
                                 1: lambda r: fp8_table("e5m2").astype(np.float32)[r.view(np.uint8)]}, (0, 1)),
    "i8": Kind("i8", 1, {0: lambda r: r.view(np.uint8).astype(np.float64), 1: lambda r: r.view(np.int8).astype(np.float64)}, (2,)),
}


class Idesc:
    """Decoded 32-bit instruction descriptor."""

    def __init__(self, bits, kind):
        self.d = bits >> 4 & 3
        self.a, self.b = bits >> 7 & 7, bits >> 10 & 7
        self.neg_a, self.neg_b = bits >> 13 & 1, bits >> 14 & 1
        self.trans_a, self.trans_b = bits >> 15 & 1, bits >> 16 & 1
        self.n, self.m = (bits >> 17 & 63) << 3, (bits >> 24 & 31) << 4
        if bits & 0b111 or bits & (1 << 6 | 1 << 23 | 1 << 29) or bits >> 30:
            raise MachineError(f"instruction descriptor {bits:#010x}: sparse, reserved or shift bits are set")
        if bits >> 3 & 1:
            raise MachineError("saturation is not supported")
        if self.m not in (64, 128) or not 8 <= self.n <= 256:
            raise MachineError(f"instruction descriptor {bits:#010x}: M {self.m} N {self.n} is not a dense shape of one CTA")
        if self.a not in kind.types or self.b not in kind.types or self.d not in kind.dtypes:
            raise MachineError(f"instruction descriptor {bits:#010x}: types {self.a}, {self.b} -> {self.d} of kind::{kind.name}")
        if kind.name == "f16" and (self.a != self.b or self.a == 1 and self.d == 0):
            raise MachineError(f"instruction descriptor {bits:#010x}: bf16 and f16 mixed")
        if kind.name == "tf32" and (self.trans_a or self.trans_b):
            raise MachineError("MN-major tf32 needs the 32-byte-atom swizzle, which is not supported")
        if kind.name == "i8" and (self.neg_a or self.neg_b):
            raise MachineError("integer operands cannot be negated")


def operand_chunks(desc, rows, kind, mn_major, smem_start, smem_end):
    """16-byte chunk numbers of one operand: `[rows][k chunks]` or, MN-major, `[k][mn chunks]`."""
    start = (desc & 0x3FFF) << 4
    lbo, sbo = (desc >> 16 & 0x3FFF) << 4, (desc >> 32 & 0x3FFF) << 4
    if desc >> 14 & 3 or desc >> 30 & 3:
        raise MachineError(f"matrix descriptor {desc:#018x}: bits 14, 15, 30, 31 must be 0")
    if desc >> 46 & 7 != 1:
        raise MachineError(f"matrix descriptor {desc:#018x}: bits 48:46 must be 1")
    if desc >> 49 & 7:
        raise MachineError(f"matrix descriptor {desc:#018x}: a base offset is not supported")
    if desc >> 52 & 0x1FF:
        raise MachineError(f"matrix descriptor {desc:#018x}: bits 60:52 must be 0")
    code = desc >> 61
    if code not in DESC_SWIZZLE:
        raise MachineError(f"matrix descriptor {desc:#018x}: swizzle code {code} is not supported")
    span, xor = DESC_SWIZZLE[code]
    elem, k = kind.elem, kind.k
    per_chunk = 16 // elem
    if span and start % (8 * span) >= span:
        raise MachineError(f"matrix descriptor {desc:#018x}: start {start:#x} is not in the first row of a swizzle pattern")
    if not mn_major:
        mn = np.arange(rows)[:, None]
        kc = np.arange(k // per_chunk)[None, :]
        if span:
            if start % span + k * elem > span:
                raise MachineError(f"matrix descriptor {desc:#018x}: K step leaves the {span}-byte row")
            off = mn // 8 * sbo + mn % 8 * span + kc * 16
        else:
            off = mn // 8 * sbo + kc * lbo + mn % 8 * 16
    else:
        kk = np.arange(k)[:, None]
        mc = np.arange(-(-rows // per_chunk))[None, :]
        if span:
            if start % span and start % span + rows * elem > span:
                raise MachineError(f"matrix descriptor {desc:#018x}: start {start:#x} is inside a {span}-byte slab")
            off = mc * 16 // span * lbo + kk // 8 * sbo + kk % 8 * span + mc * 16 % span
        else:
            off = mc * sbo + kk // 8 * lbo + kk % 8 * 16
    c = (start + off) >> 4
    if xor:
        c = c ^ ((c >> 3) & xor)
    lo, hi = int(c.min()) * 16, int(c.max()) * 16 + 16
    if lo < smem_start or hi > smem_end:
        raise MachineError(f"matrix descriptor {desc:#018x}: operand bytes {lo:#x}..{hi:#x} outside shared memory")
    return c


class Operand:
    """Where an MMA finds one operand in shared memory."""

    __slots__ = ("chunks", "flat", "mn_major", "rows")

    def __init__(self, chunks, mn_major, rows):
        self.chunks, self.mn_major, self.rows = chunks, mn_major, rows
        self.flat = np.unique(chunks)


def fetch(cta, operand, convert, what):
    """Operand values `[mn][k]`."""
    if not (cta.defined.view(np.uint64).reshape(-1, 2)[operand.flat] == ONES).all():
        raise MachineError(f"operand {what}: shared bytes are undefined or being loaded")
    raw = cta.smem.view(np.uint64).reshape(-1, 2)[operand.chunks]
    x = convert(raw.reshape(raw.shape[0], -1))
    return x.T[:operand.rows] if operand.mn_major else x


def lanes_of(m, half):
    """TMEM lanes of the rows: all for M = 128, half of every quadrant for M = 64."""
    if m == 128:
        return slice(0, 128)
    r = np.arange(64)
    return r % 16 + 32 * (r // 16) + half


def lane_groups(m, half):
    return 0xFF if m == 128 else (0xAA if half else 0x55)


def decode_mma(d, ins, p, out, machine):
    kind = None
    for x in p[2:]:
        if x.startswith("kind::") and x[6:] in KINDS:
            kind = KINDS[x[6:]]
        elif x != "cta_group::1" and not x.startswith("collector::a::"):
            d.fail(f"unsupported modifier .{x}")
    if kind is None or "cta_group::1" not in p:
        d.fail("tcgen05.mma needs .cta_group::1 and a supported kind")
    o = list(ins.operands)
    if len(o) not in (4, 5, 6, 7):
        d.fail("wrong number of operands")
    dslot, _, doff = d.mem(o[0])
    a_tmem = o[1].kind == "mem"
    if a_tmem:
        aslot, _, aoff = d.mem(o[1])
    else:
        aslot = d.src(o[1], 8)
    bslot, islot = d.src(o[2], 8), d.src(o[3], 4)
    rest = o[4:]
    mask = None
    if rest and rest[0].kind == "vec":
        if len(rest[0].items) != 4:
            d.fail("the lane mask has 4 registers")
        mask = [d.src(x, 4) for x in rest.pop(0).items]
    enable, negated = d.pred(rest[0]) if rest else (d.regs.constant(0, 1), False)
    scale = 1.0
    if len(rest) > 1:
        if rest[1].kind != "int" or not 0 <= rest[1].value < 16 or kind.name not in ("f16", "tf32"):
            d.fail("scale-input-d is an immediate in 0..15 of kinds f16 and tf32")
        scale = 2.0 ** -rest[1].value
    cache = machine.__dict__.setdefault("operand_cache", {})

    def operand(cta, desc, rows, mn_major):
        key = (desc, rows, mn_major, kind.elem)
        x = cache.get(key)
        if x is None:
            x = cache[key] = Operand(operand_chunks(desc, rows, kind, mn_major, 0x400, cta.smem_end), mn_major, rows)
        return x

    def run(w, fr, am):
        if am.sum() != 1:
            raise MachineError(f"{int(am.sum())} lanes issue a tcgen05.mma")
        k = int(np.flatnonzero(am)[0])
        cta, core = w.cta, w.cta.tensor
        i = Idesc(int(w.u[islot][k]), kind)
        address = (int(w.u[dslot][k]) + doff) & 0xFFFFFFFF
        half, c0 = address >> 16, address & 0xFFFF
        c1 = c0 + i.n
        if half not in ((0,) if i.m == 128 else (0, 16)):
            raise MachineError(f"accumulator address {address:#x}: lane {half} with M = {i.m}")
        core.check_columns(c0, c1, "accumulator")
        groups = lane_groups(i.m, half)
        dst, src = (groups, c0, c1), None
        ac = None
        if a_tmem:
            a_address = (int(w.u[aslot][k]) + aoff) & 0xFFFFFFFF
            if a_address >> 16 != half:
                raise MachineError(f"operand A at {a_address:#x} and the accumulator at {address:#x} differ in lanes")
            if i.trans_a:
                raise MachineError("operand A in TMEM cannot be transposed")
            ac = a_address & 0xFFFF
            src = (groups, ac, ac + 8)
            core.check_columns(ac, ac + 8, "operand A")
            a_op = None
            if overlap(src, dst):
                raise MachineError("operand A overlaps the accumulator")
        else:
            a_op = operand(cta, int(w.u[aslot][k]), i.m, i.trans_a)
            cta.check_clean(a_op.flat, "operand A")
        b_op = operand(cta, int(w.u[bslot][k]), i.n, i.trans_b)
        cta.check_clean(b_op.flat, "operand B")
        core.issue_check(dst, src)
        accumulate = bool(w.u[enable][k]) != negated
        lanes = lanes_of(i.m, half)
        off_lanes = None
        if mask:
            words = np.array([w.u[s][k] for s in mask], np.uint32)
            off_lanes = (words[:, None] >> LANES & np.uint32(1)).reshape(-1).astype(bool)[lanes]

        def go():
            if a_op is None:
                if not core.defined[lanes, ac:ac + 8].all():
                    raise MachineError("operand A: undefined TMEM read")
                a = kind.types[i.a](np.ascontiguousarray(core.mem[lanes, ac:ac + 8]))
            else:
                a = fetch(cta, a_op, kind.types[i.a], "A")
            b = fetch(cta, b_op, kind.types[i.b], "B")
            v = a @ b.T
            if i.neg_a != i.neg_b:
                v = -v
            block = core.mem[lanes, c0:c1]
            if accumulate:
                if not core.defined[lanes, c0:c1].all():
                    raise MachineError("accumulates on undefined TMEM")
                if i.d == 1:
                    old = block.view(np.float32)
                elif i.d == 0:
                    old = block.astype(np.uint16).view(np.float16).astype(np.float32)
                else:
                    old = block.view(np.int32)
                v = v + (old if scale == 1.0 else old * np.float32(scale))
            if i.d == 1:
                bits = v.astype(np.float32, copy=False).view(np.uint32)
            elif i.d == 0:
                bits = v.astype(np.float16).view(np.uint16).astype(np.uint32)
            else:
                bits = v.astype(np.int64).astype(np.int32).view(np.uint32)
            if off_lanes is None:
                core.mem[lanes, c0:c1] = bits
                core.defined[lanes, c0:c1] = True
            else:
                rows = np.arange(128)[lanes][~off_lanes]
                core.mem[rows, c0:c1] = bits[~off_lanes]
                core.defined[rows, c0:c1] = True

        from machine import AsyncOp
        core.queue(32 * w.id + k).append(AsyncOp("mma", go, ins.line, w.id, ins.text, dst, src))
        cta.log("mma", w.id, ins.line, column=c0, accumulate=accumulate)
    return run


def decode_commit(d, ins, p, out, machine):
    if p[2:] not in (["cta_group::1", "mbarrier::arrive::one", "shared::cluster", "b64"], ["cta_group::1", "mbarrier::arrive::one", "b64"]):
        d.unsupported()
    d.count(1)
    slot, width, off = d.mem(ins.operands[0])
    if width == 8 and "shared::cluster" not in p:
        d.unsupported()

    def run(w, fr, am):
        cta = w.cta
        from machine import AsyncOp
        for k in np.flatnonzero(am):
            b = cta.mbar(int(w.u[slot][k]) + off)

            def go(b=b):
                if cta.mbars.get(b.address) is not b:
                    raise MachineError("mbarrier was invalidated")
                cta.mbar_arrive(b, 1)
            cta.tensor.queue(32 * w.id + int(k)).append(AsyncOp("commit", go, ins.line, w.id, ins.text))
            cta.log("commit", w.id, ins.line, mbar=b.address)
    return run


# ---------------------------------------------------------------- ld, st, alloc

def fragment(shape, n, imm):
    """`(rows, columns)` of shape [32 lanes][registers], relative to the address."""
    t = LANES.astype(np.int64)[:, None]
    if shape == "32x32b":
        j = np.arange(n)[None, :]
        return t + 0 * j, j + 0 * t
    if shape == "16x64b":
        j = np.arange(n)[None, :]
        return t // 4 + 8 * (t & 1) + 0 * j, 2 * j + (t >> 1 & 1)
    if shape == "16x128b":
        r = np.arange(2 * n)[None, :]
        return t // 4 + 8 * (r & 1), 4 * (r >> 1) + (t & 3)
    if shape == "16x256b":
        r = np.arange(4 * n)[None, :]
        return t // 4 + 8 * (r >> 1 & 1), 8 * (r >> 2) + 2 * (t & 3) + (r & 1)
    j = np.arange(n)[None, :]
    return t % 16 + 0 * j, j + np.where(t >= 16, imm, 0)


MAX_REPEAT = {"32x32b": 128, "16x64b": 128, "16x128b": 64, "16x256b": 32, "16x32bx2": 128}


def decode_move(load):
    def build(d, ins, p, out, machine):
        if p[2:4] != ["sync", "aligned"] or p[-1] != "b32" or len(p) not in (7, 8):
            d.unsupported()
        shape, rep = p[4], p[5]
        packed = len(p) == 8
        if shape not in MAX_REPEAT or rep[0] != "x" or not rep[1:].isdigit():
            d.unsupported()
        n = int(rep[1:])
        if n & (n - 1) or not 1 <= n <= MAX_REPEAT[shape]:
            d.fail(f"repeat {rep} of {shape}")
        if packed and (p[6] != ("pack::16b" if load else "unpack::16b") or shape != "32x32b"):
            d.unsupported()
        o = list(ins.operands)
        imm = 0
        if shape == "16x32bx2":
            k = o.pop(2 if load else 1)
            if k.kind != "int":
                d.fail("16x32bx2 needs an immediate")
            imm = k.value
        if len(o) != 2:
            d.fail("wrong number of operands")
        mem, vec = (o[1], o[0]) if load else (o[0], o[1])
        slot, _, off = d.mem(mem)
        rows, cols = fragment(shape, n, imm)
        items = vec.items if vec.kind == "vec" else [vec]
        if len(items) != rows.shape[1]:
            d.fail(f"{rows.shape[1]} registers expected, found {len(items)}")
        regs = [(d.dst if load else d.src)(x, 4) for x in items]
        if packed:
            rows = np.repeat(rows, 2, axis=1)
            cols = np.arange(2 * n)[None, :] + 0 * rows
        out.aligned = True
        full = shape == "32x32b"
        width = int(cols.max()) + 1

        def run(w, fr, am):
            core = w.cta.tensor
            if (w.u[slot] != w.u[slot][0]).any():
                raise MachineError("TMEM address differs between lanes")
            address = (int(w.u[slot][0]) + off) & 0xFFFFFFFF
            lane, c0 = address >> 16, address & 0xFFFF
            quadrant = 32 * (w.id % 4)
            if lane != quadrant and (full or lane != quadrant + 16):
                raise MachineError(f"TMEM lane {lane} is not accessible to warp {w.id}, which owns lanes {quadrant}..{quadrant + 31}")
            core.check_columns(c0, c0 + width, "tcgen05.ld" if load else "tcgen05.st")
            groups = (3 if full else 1) << (lane // 16)
            region = (groups, c0, c0 + width)
            for q in core.queues.values():
                for op in q:
                    if overlap(op.dst, region) or (not load and overlap(op.src, region)):
                        raise MachineError(f"touches columns of the tcgen05.mma of line {op.line} that is in flight")
            values = None
            if not load:
                values = np.stack([w.u[r] for r in regs], axis=1)
                if packed:
                    wide = np.empty((32, 2 * n), np.uint32)
                    wide[:, 0::2], wide[:, 1::2] = values & np.uint32(0xFFFF), values >> np.uint32(16)
                    values = wide
            x = TmemOp(load, rows + lane, cols + c0, regs, values, region, ins.line, ins.text, packed)
            if load:
                w.undefined.difference_update(regs)
                w.inflight.update(regs)
                w.loads.append(x)
            else:
                w.stores.append(x)
            w.cta.log("tmem.ld" if load else "tmem.st", w.id, ins.line, column=c0)
        return run
    return build


def decode_wait(load):
    def build(d, ins, p, out, machine):
        if p[2:] != ["sync", "aligned"]:
            d.unsupported()
        out.aligned = True

        def run(w, fr, am):
            pending = w.loads if load else w.stores
            for x in pending:
                w.cta.tensor.finish(w, x)
            pending.clear()
            if load:
                w.inflight.clear()
        return run
    return build


def decode_alloc(d, ins, p, out, machine):
    if p[2:] not in (["cta_group::1", "sync", "aligned", "shared::cta", "b32"], ["cta_group::1", "sync", "aligned", "b32"]):
        d.unsupported()
    d.count(2)
    slot, width, off = d.mem(ins.operands[0])
    n = d.src(ins.operands[1], 4)
    out.aligned = True

    def run(w, fr, am):
        c = w.cta
        a = int(c.smem_addresses(w, slot, width == 8, off, np.array([0]), 4)[0])
        base = c.tensor.allocate(w, int(w.u[n][0]), ins)
        c.smem[a:a + 4] = np.frombuffer(np.uint32(base).tobytes(), np.uint8)
        c.defined[a:a + 4] = 1
        c.log("tmem.alloc", w.id, ins.line, column=base)
    return run


def decode_dealloc(d, ins, p, out, machine):
    if p[2:] != ["cta_group::1", "sync", "aligned", "b32"]:
        d.unsupported()
    d.count(2)
    slot, n = d.src(ins.operands[0], 4), d.src(ins.operands[1], 4)
    out.aligned = True
    return lambda w, fr, am: w.cta.tensor.free(w, int(w.u[slot][0]), int(w.u[n][0]))


def decode_relinquish(d, ins, p, out, machine):
    if p[2:] != ["cta_group::1", "sync", "aligned"]:
        d.unsupported()
    out.aligned = True

    def run(w, fr, am):
        w.cta.tensor.permit = False
    return run


def decode_fence(d, ins, p, out, machine):
    if len(p) != 2:
        d.unsupported()
    return lambda w, fr, am: None


TABLE = {
    "mma": decode_mma, "commit": decode_commit, "ld": decode_move(True), "st": decode_move(False),
    "wait::ld": decode_wait(True), "wait::st": decode_wait(False), "alloc": decode_alloc, "dealloc": decode_dealloc,
    "relinquish_alloc_permit": decode_relinquish, "fence::before_thread_sync": decode_fence,
    "fence::after_thread_sync": decode_fence,
}


def decode(d, ins, p, out, machine):
    """Closure of a tcgen05 instruction, or None."""
    fn = TABLE.get(p[1])
    return None if fn is None else fn(d, ins, p, out, machine)
