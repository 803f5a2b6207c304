"""Memory, synchronisation and TMA instructions.

`decode_other` turns an instruction into a closure `f(w, fr, am)` (`am`: active lanes) that returns
None to go on, STAY to block at the same pc or YIELD to give up the turn.
Guarantee: every modifier is checked against a list; an unknown one is an error.
Source: PTX ISA, "Data Movement", "Parallel Synchronization and Communication", "Tensor copy".
"""
import numpy as np

import tensor
from alu import LANES, MachineError, UNSIGNED, FLOAT_TYPES, SIGNED, put
from machine import (ALL, AsyncOp, BulkStore, MBAR, Mbar, PARAM_WINDOW, REGS, SHARED_WINDOW, SPIN, STAY, YIELD)
from ptxparse import TYPE_BYTES


def decode_other(d, ins, out, machine):
    """Closure of `ins`, or None if it is not known. Sets `aligned`/`collective` of `out`."""
    head = ins.parts[0]
    fn = TABLE.get(head)
    if fn is None:
        return None
    return fn(d, ins, ins.parts, out, machine)


def mods(d, p, allowed):
    """Rejects modifiers outside `allowed`."""
    for x in p:
        if x not in allowed:
            d.fail(f"unsupported modifier .{x}")


SEMANTICS = {"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "weak", "volatile"}
CACHE = {"nc", "L1::no_allocate", "L1::evict_last", "L1::evict_first", "L1::evict_normal", "L1::evict_unchanged",
         "L2::64B", "L2::128B", "L2::256B", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L2::cache_hint"}


def access_shape(d, p, spaces):
    """`(space, vector length, type)` of a ld/st opcode."""
    typ = p[-1]
    if typ not in TYPE_BYTES:
        d.fail(f"unknown type .{typ}")
    space, n = "generic", 1
    for x in p[1:-1]:
        if x in spaces:
            space = x
        elif x in ("v2", "v4", "v8"):
            n = int(x[1])
        elif x not in SEMANTICS | CACHE:
            d.fail(f"unsupported modifier .{x}")
    if TYPE_BYTES[typ] > 8 or n * TYPE_BYTES[typ] > (32 if space == "global" else 16):
        d.unsupported()
    return space, n, typ


def reg_list(d, o, n, get):
    items = o.items if o.kind == "vec" else [o]
    if len(items) != n:
        d.fail(f"{n} registers expected, found {len(items)}")
    return [get(x) for x in items]


def active(am):
    return np.flatnonzero(am)


def windows(w, addresses, size):
    """Groups lanes by view: yields `(view, positions, byte offsets)`; checks bounds and alignment."""
    if (addresses % size).any():
        raise MachineError(f"misaligned global address {int(addresses[(addresses % size) != 0][0]):#x} for {size} bytes")
    left = np.arange(len(addresses))
    while len(left):
        v = w.cta.m.memory.find(int(addresses[left[0]]))
        if v is None:
            raise MachineError(f"global address {int(addresses[left[0]]):#x} belongs to no view")
        off = addresses[left] - v.address
        here = (off >= 0) & (off < 1 << 32)
        o = off[here]
        if (o + size > v.nbytes).any():
            raise MachineError(f"global access at byte {int(o.max())} + {size} of view {v.name} with {v.nbytes} bytes")
        yield v, left[here], o
        left = left[~here]


def ld(d, ins, p, out, machine):
    space, n, typ = access_shape(d, p, ("global", "shared", "shared::cta", "param", "const", "local"))
    size = TYPE_BYTES[typ]
    d.count(2, 3)
    regs = reg_list(d, ins.operands[0], n, lambda o: d.dst(o, size, exact=False))
    dt, wide = UNSIGNED[size], SIGNED if typ[0] == "s" else UNSIGNED
    sdt = wide[size]

    def deliver(w, lanes, vals):
        for k, r in enumerate(regs):
            v = vals[:, k] if vals.ndim == 2 else vals
            u = w.u[r]
            if u.dtype != dt:
                v = v.view(sdt).astype(wide[u.dtype.itemsize]).view(u.dtype)
            u[lanes] = v

    if space == "param":
        m = ins.operands[1]
        if m.kind != "mem" or m.base.kind != "sym" or m.base.name not in d.entry.params:
            d.fail("ld.param needs a kernel parameter")
        q = d.entry.params[m.base.name]
        off = m.offset + m.base.offset
        if off < 0 or off + n * size > q.size or (q.offset + off) % (n * size):
            d.fail(f"parameter {q.name} has {q.size} bytes")
        at = q.offset + off
        vals = np.frombuffer(bytes(machine.params[at:at + n * size]), dt)
        return lambda w, fr, am: deliver(w, active(am), np.broadcast_to(vals, (32, n))[am])
    if space in ("const", "local"):
        d.unsupported()
    slot, width, off = d.mem(ins.operands[1])
    total = n * size

    def shared(w, lanes, a):
        c = w.cta
        shift = size.bit_length() - 1
        idx = a >> shift
        if n > 1:
            idx = idx[:, None] + np.arange(n)
        ok = c.defined.view(dt)[idx] == dt((1 << 8 * size) // 255 if size < 8 else 0x0101010101010101)
        if not ok.all():
            bad = lanes[np.flatnonzero(~(ok.all(axis=1) if n > 1 else ok))[0]]
            raise MachineError(f"lane {bad} reads shared bytes that are undefined or being loaded")
        deliver(w, lanes, c.smem.view(dt)[idx])

    def load_global(w, lanes, a):
        for v, pos, o in windows(w, a, total):
            idx = o // size
            if n > 1:
                idx = idx[:, None] + np.arange(n)
            deliver(w, lanes[pos], v.data.view(dt)[idx])

    def run(w, fr, am):
        lanes = active(am)
        if space in ("shared", "shared::cta"):
            return shared(w, lanes, w.cta.smem_addresses(w, slot, width == 8, off, lanes, total))
        a = w.u[slot][lanes].astype(np.int64) + off
        if space == "generic" and SHARED_WINDOW <= int(a[0]) < SHARED_WINDOW + (1 << 24):
            a = a - SHARED_WINDOW
            w.cta.smem_check(int(a.min()), int(a.max()) + total)
            return shared(w, lanes, a)
        load_global(w, lanes, a)
    if width != 8 and space in ("global", "generic"):
        d.fail("a 64-bit address is needed")
    return run


def st(d, ins, p, out, machine):
    space, n, typ = access_shape(d, p, ("global", "shared", "shared::cta"))
    size = TYPE_BYTES[typ]
    d.count(2, 3)
    slot, width, off = d.mem(ins.operands[0])
    floating = typ if typ in FLOAT_TYPES else None
    regs = reg_list(d, ins.operands[1], n, lambda o: d.src(o, size, exact=False, floating=floating))
    dt, total = UNSIGNED[size], n * size
    one = dt((1 << 8 * size) // 255 if size < 8 else 0x0101010101010101)

    def values(w, lanes):
        vals = [w.u[r][lanes].astype(dt, copy=False) for r in regs]
        return vals[0] if n == 1 else np.stack(vals, axis=1)

    def shared(w, lanes, a):
        c = w.cta
        idx = a >> (size.bit_length() - 1)
        if n > 1:
            idx = idx[:, None] + np.arange(n)
        c.smem.view(dt)[idx] = values(w, lanes)
        c.defined.view(dt)[idx] = one
        c.mark_dirty(w, a >> 4, lanes)

    def run(w, fr, am):
        lanes = active(am)
        if space in ("shared", "shared::cta"):
            return shared(w, lanes, w.cta.smem_addresses(w, slot, width == 8, off, lanes, total))
        a = w.u[slot][lanes].astype(np.int64) + off
        if space == "generic" and SHARED_WINDOW <= int(a[0]) < SHARED_WINDOW + (1 << 24):
            a = a - SHARED_WINDOW
            w.cta.smem_check(int(a.min()), int(a.max()) + total)
            return shared(w, lanes, a)
        vals = values(w, lanes)
        for v, pos, o in windows(w, a, total):
            idx = o // size
            if n > 1:
                idx = idx[:, None] + np.arange(n)
            v.data.view(dt)[idx] = vals[pos]
    if width != 8 and space in ("global", "generic"):
        d.fail("a 64-bit address is needed")
    return run


def atom(d, ins, p, out, machine):
    """Atomic updates of global memory, lane after lane."""
    sem, scope, space, mode, typ = (p[1:] + [""] * 5)[:5]
    if len(p) != 6 or sem not in ("relaxed", "acquire", "release", "acq_rel") or scope not in ("cta", "gpu", "sys") or space != "global":
        d.unsupported()
    kinds = {"add": ("u32", "u64", "f32"), "min": ("u32", "s32", "u64"), "max": ("u32", "s32", "u64"),
             "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"), "exch": ("b32", "b64")}
    if typ not in kinds.get(mode, ()):
        d.unsupported()
    size = TYPE_BYTES[typ]
    d.count(3)
    dst = d.dst(ins.operands[0], size, exact=False)
    slot, width, off = d.mem(ins.operands[1])
    src = d.src(ins.operands[2], size, exact=False, floating=typ if typ in FLOAT_TYPES else None)
    if width != 8:
        d.fail("a 64-bit address is needed")
    dt = UNSIGNED[size]
    work = np.float32 if typ == "f32" else SIGNED[size] if typ[0] == "s" else dt
    fn = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
          "xor": np.bitwise_xor, "exch": lambda a, b: b}[mode]

    def run(w, fr, am):
        lanes = active(am)
        a = w.u[slot][lanes].astype(np.int64) + off
        for k, lane in enumerate(lanes):
            for v, _, o in windows(w, a[k:k + 1], size):
                cell = v.data.view(dt)[o // size].view(work)
                with np.errstate(over="ignore"):
                    new = fn(cell, w.u[src][lane:lane + 1].astype(dt, copy=False).view(work))
                old = cell.view(dt).copy()
                v.data.view(dt)[o // size] = new.astype(work).view(dt)
                w.u[dst][lane:lane + 1] = old
    return run


def matrix(load):
    """ldmatrix / stmatrix of 8x8 matrices of 16-bit elements."""
    def build(d, ins, p, out, machine):
        mods(d, p[1:], {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"})
        if p[1:4] != ["sync", "aligned", "m8n8"] or p[-1] != "b16":
            d.unsupported()
        count = next((int(x[1]) for x in p if x in ("x1", "x2", "x4")), None)
        if count is None:
            d.fail("matrix count missing")
        trans = "trans" in p
        d.count(2)
        mem, vec = (ins.operands[1], ins.operands[0]) if load else (ins.operands[0], ins.operands[1])
        slot, width, off = d.mem(mem)
        regs = reg_list(d, vec, count, (lambda o: d.dst(o, 4)) if load else (lambda o: d.src(o, 4)))
        out.aligned = True
        rows = np.arange(8 * count)
        q, c = LANES // 4, 2 * (LANES % 4)

        def run(w, fr, am):
            cta = w.cta
            a = cta.smem_addresses(w, slot, width == 8, off, rows, 16) >> 1
            idx = (a[:, None] + np.arange(8)).reshape(count, 8, 8)
            if load:
                if not (cta.defined.view(np.uint16)[idx] == 0x0101).all():
                    raise MachineError("ldmatrix reads shared bytes that are undefined or being loaded")
                t = cta.smem.view(np.uint16)[idx]
                for k, r in enumerate(regs):
                    x = t[k].T if trans else t[k]
                    w.u[r][:] = x[q, c].astype(np.uint32) | (x[q, c + 1].astype(np.uint32) << np.uint32(16))
                return
            t = np.empty((count, 8, 8), np.uint16)
            for k, r in enumerate(regs):
                x = t[k].T if trans else t[k]
                x[q, c] = w.u[r] & np.uint32(0xFFFF)
                x[q, c + 1] = w.u[r] >> np.uint32(16)
            cta.smem.view(np.uint16)[idx] = t
            cta.defined.view(np.uint16)[idx] = 0x0101
            # Each row of 16 bytes is written by four lanes; any of them counts as the writer.
            cta.mark_dirty(w, a >> 3, rows)
        return run
    return build


# ---------------------------------------------------------------- warp collectives

def members(d, o, out):
    """Member mask of a .sync instruction: a constant or a register."""
    if o.kind == "int":
        out.collective = o.value & ALL
    else:
        out.collective = (d.src(o, 4),)


def shfl(d, ins, p, out, machine):
    if len(p) != 4 or p[1] != "sync" or p[2] not in ("idx", "up", "down", "bfly") or p[3] != "b32":
        d.unsupported()
    d.count(5)
    o = ins.operands[0]
    outs = o.items if o.kind == "pair" else [o]
    a, b, c = d.src(ins.operands[1], 4), d.src(ins.operands[2], 4), d.src(ins.operands[3], 4)
    members(d, ins.operands[4], out)
    r = d.dst(outs[0], 4)
    q = d.dst(outs[1], 0) if len(outs) > 1 else None
    mode = p[2]

    def run(w, fr, am):
        lane = LANES.astype(np.int64)
        bv = (w.u[b] & np.uint32(31)).astype(np.int64)
        cv = w.u[c].astype(np.int64)
        clamp, seg = cv & 31, (cv >> 8) & 31
        top = (lane & seg) | (clamp & ~seg)
        low = lane & seg
        if mode == "up":
            j = lane - bv
            ok = j >= top
        elif mode == "down":
            j = lane + bv
            ok = j <= top
        elif mode == "bfly":
            j = lane ^ bv
            ok = j <= top
        else:
            j = low | (bv & ~seg)
            ok = j <= top
        j = np.where(ok, j, lane)
        if not am[j[am]].all():
            raise MachineError("shuffle reads a lane that does not take part")
        put(w.u[r], am, w.u[a][j])
        if q is not None:
            put(w.u[q], am, ok)
    return run


def vote(d, ins, p, out, machine):
    if len(p) != 4 or p[1] != "sync" or (p[2], p[3]) not in (("ballot", "b32"), ("any", "pred"), ("all", "pred"), ("uni", "pred")):
        d.unsupported()
    d.count(3)
    a, neg = d.pred(ins.operands[1])
    members(d, ins.operands[2], out)
    mode = p[2]
    r = d.dst(ins.operands[0], 4 if mode == "ballot" else 0)

    def run(w, fr, am):
        v = (w.u[a] != neg) & am
        if mode == "ballot":
            res = int((v.astype(np.uint64) << LANES.astype(np.uint64)).sum())
        elif mode == "any":
            res = v.any()
        elif mode == "all":
            res = (v == am).all()
        else:
            res = (v == am).all() or not v.any()
        w.u[r][am] = res
    return run


def elect(d, ins, p, out, machine):
    if p[1:] != ["sync"]:
        d.unsupported()
    d.count(2)
    o = ins.operands[0]
    if o.kind != "pair":
        d.fail("elect.sync writes d|p")
    members(d, ins.operands[1], out)
    r, q = d.dst(o.items[0], 4), d.dst(o.items[1], 0)

    def run(w, fr, am):
        # The same mask elects the same lane; which one is up to the machine.
        lane = w.cta.elected.get(fr.bits)
        if lane is None:
            lanes = active(am)
            lane = int(w.cta.rng.choice(list(lanes)) if w.cta.mode == "random" else lanes[0])
            w.cta.elected[fr.bits] = lane
        w.u[r][am] = lane
        w.u[q][am] = False
        w.u[q][lane] = True
    return run


def redux(d, ins, p, out, machine):
    t = p[-1]
    ops = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    mods(d, p[3:-1], {"abs", "NaN"})
    if p[1] != "sync" or p[2] not in ops or t not in ("u32", "s32", "b32", "f32") or (t == "f32" and p[2] not in ("min", "max")):
        d.unsupported()
    d.count(3)
    a = d.src(ins.operands[1], 4)
    members(d, ins.operands[2], out)
    r = d.dst(ins.operands[0], 4)
    ufunc = ops[p[2]]
    if t == "f32" and "NaN" not in p:
        ufunc = np.fmin if p[2] == "min" else np.fmax

    def run(w, fr, am):
        x = {"f": w.f, "s": w.s}.get(t[0], w.u)
        v = np.abs(x[a]) if "abs" in p else x[a]
        x[r][am] = ufunc.reduce(v[am], dtype=v.dtype)
    return run


def activemask(d, ins, p, out, machine):
    if p[1:] != ["b32"]:
        d.unsupported()
    r = d.dst(ins.operands[0], 4)

    def run(w, fr, am):
        w.u[r][am] = fr.bits
    return run


def bar(d, ins, p, out, machine):
    q = [x for x in p if x != "cta"]
    if q == ["bar", "warp", "sync"]:
        d.count(1)
        members(d, ins.operands[0], out)
        return lambda w, fr, am: None
    aligned = q[0] == "bar" or q[-1] == "aligned"
    if q[-1] == "aligned":
        q = q[:-1]
    if len(q) != 2 or q[1] not in ("sync", "arrive"):
        d.unsupported()
    block = q[1] == "sync"
    d.count(*((1, 2) if block else (2,)))
    out.aligned = aligned
    a = d.src(ins.operands[0], 4)
    b = d.src(ins.operands[1], 4) if len(ins.operands) > 1 else None

    def run(w, fr, am):
        lane = active(am)[0]
        lanes = 32 if aligned else int(am.sum())
        n = None if b is None else int(w.u[b][lane])
        if (w.u[a][am] != w.u[a][lane]).any():
            raise MachineError("barrier number differs between lanes")
        r = w.cta.bar_arrive(w, fr, int(w.u[a][lane]), n, lanes, block)
        return r if r is not None or block else handed_over(w)
    return run


# ---------------------------------------------------------------- fences, registers, hints

def fence(d, ins, p, out, machine):
    rest = p[1:]
    if rest[:2] == ["proxy", "async"]:
        if rest[2:] not in ([], ["shared::cta"], ["global"], ["shared::cluster"]):
            d.unsupported()
        if rest[2:] == ["global"]:
            return lambda w, fr, am: None
        return lambda w, fr, am: w.cta.proxy_fence(w, am)
    if rest[:1] == ["mbarrier_init"] or (rest and rest[0].startswith("proxy")):
        if rest not in (["mbarrier_init", "release", "cluster"],) and not rest[1].startswith(("tensormap", "alias")):
            d.unsupported()
        return lambda w, fr, am: None
    mods(d, rest, {"sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "sys"})
    return lambda w, fr, am: None


def membar(d, ins, p, out, machine):
    mods(d, p[1:], {"cta", "gl", "sys"})
    return lambda w, fr, am: None


def setmaxnreg(d, ins, p, out, machine):
    if p[1] not in ("inc", "dec") or p[2:] != ["sync", "aligned", "u32"]:
        d.unsupported()
    d.count(1)
    n = ins.operands[0].value if ins.operands[0].kind == "int" else None
    if n is None or n % 8 or not 24 <= n <= 256:
        d.fail("setmaxnreg needs a multiple of 8 in 24..256")
    if not machine.reg_known:
        d.fail("setmaxnreg needs a known register count at entry")
    out.aligned = True
    inc = p[1] == "inc"

    def run(w, fr, am):
        c = w.cta
        if inc and n < w.reg_cap or not inc and n > w.reg_cap:
            raise MachineError(f"setmaxnreg.{p[1]} to {n} from {w.reg_cap}")
        need = 32 * (n - w.reg_cap)
        if need > c.reg_pool:
            fr.state = REGS
            c.reg_waiters.append(fr)
            return STAY
        c.reg_pool -= need
        w.reg_cap = n
        if not inc:
            for f in c.reg_waiters:
                f.state = 0
            c.reg_waiters = []
        return None
    return run


def no_op(*allowed):
    """Hints without functional effect; operands are still resolved."""
    def build(d, ins, p, out, machine):
        if ".".join(p[1:]) not in allowed:
            d.unsupported()
        for o in ins.operands:
            if o.kind == "mem":
                d.mem(o)
            elif o.kind == "reg":
                d.src(o, d.size_of(d.regs.index[o.name]))
        return lambda w, fr, am: None
    return build


def nanosleep(d, ins, p, out, machine):
    d.src(ins.operands[0], 4)
    return lambda w, fr, am: YIELD


def trap(d, ins, p, out, machine):
    def run(w, fr, am):
        raise MachineError("trap executed")
    return run


def mapa(d, ins, p, out, machine):
    """One CTA per cluster: rank 0 is the CTA itself."""
    if p[1:] not in (["shared::cluster", "u32"],):
        d.unsupported()
    a, b = d.src(ins.operands[1], 4), d.src(ins.operands[2], 4)
    r = d.dst(ins.operands[0], 4)

    def run(w, fr, am):
        if w.u[b][am].any():
            raise MachineError("mapa to another CTA")
        put(w.u[r], am, w.u[a])
    return run


def createpolicy(d, ins, p, out, machine):
    mods(d, p[1:], {"fractional", "L2::evict_last", "L2::evict_first", "L2::evict_normal", "L2::evict_unchanged", "b64"})
    r = d.dst(ins.operands[0], 8)

    def run(w, fr, am):
        w.u[r][am] = 0
    return run


# ---------------------------------------------------------------- mbarrier

def handed_over(w):
    """After a signal the others may run first: shows work that should have come before the signal."""
    c = w.cta
    if c.mode == "random":
        if c.rng.random() < 0.5:
            return None
        w.frozen = c.rng.randrange(0, 40)
    return YIELD


def mbarrier(d, ins, p, out, machine):
    op = p[1]
    o = ins.operands
    tail = set(p[2:])
    mods(d, p[2:], SEMANTICS | {"shared", "shared::cta", "shared::cluster", "b64", "expect_tx", "parity"})
    if op == "init":
        d.count(2)
        slot, width, off = d.mem(o[0])
        n = d.src(o[1], 4)

        def init(w, fr, am):
            c = w.cta
            for k in active(am):
                a, count = int(w.u[slot][k]) + off, int(w.u[n][k])
                if a % 8:
                    raise MachineError(f"misaligned mbarrier address {a:#x}")
                c.smem_check(a, a + 8, "mbarrier")
                if a in c.mbars:
                    raise MachineError(f"mbarrier {a:#x} initialised twice without mbarrier.inval")
                if not 1 <= count < 1 << 20:
                    raise MachineError(f"mbarrier count {count} is not in 1..2^20-1")
                c.mbars[a] = Mbar(a, count, ins.line)
                c.mbar8[a >> 3] = True
                c.defined[a:a + 8] = 0
        return init
    if op == "inval":
        d.count(1)
        slot, width, off = d.mem(o[0])

        def inval(w, fr, am):
            for k in active(am):
                b = w.cta.mbar(int(w.u[slot][k]) + off)
                if b.waiters:
                    raise MachineError("mbarrier invalidated while somebody waits")
                del w.cta.mbars[b.address]
                w.cta.mbar8[b.address >> 3] = False
        return inval
    if op in ("arrive", "expect_tx"):
        expect = "expect_tx" in tail or op == "expect_tx"
        arrive = op == "arrive"
        args = list(o)
        state = None
        if arrive:
            if args[0].kind not in ("mem",):
                state = args[0] if args[0].kind == "sink" else d.dst(args[0], 8)
                args = args[1:]
            else:
                state = None
        if len(args) not in ((2,) if expect else (1, 2)):
            d.fail("wrong number of operands")
        slot, width, off = d.mem(args[0])
        n = d.src(args[1], 4) if len(args) > 1 else None
        state = state if isinstance(state, int) else None

        def run(w, fr, am):
            c = w.cta
            lanes = active(am)
            for k in lanes:
                b = c.mbar(int(w.u[slot][k]) + off)
                count = 1
                if state is not None:
                    w.u[state][k] = b.phase
                if expect:
                    amount = int(w.s[n][k])
                    if amount < 0:
                        raise MachineError("negative expect_tx")
                    b.tx += amount
                elif n is not None:
                    count = int(w.u[n][k])
                if arrive:
                    c.mbar_arrive(b, count)
                else:
                    c.mbar_settle(b)
            c.log("mbar.arrive" if arrive else "mbar.expect", w.id, ins.line, mbar=int(w.u[slot][lanes[0]]) + off)
            return handed_over(w)
        return run
    if op in ("try_wait", "test_wait"):
        d.count(*((3, 4) if op == "try_wait" else (3,)))
        parity = "parity" in tail
        slot, width, off = d.mem(o[1])
        q = d.src(o[2], 4 if parity else 8)
        if len(o) > 3:
            d.src(o[3], 4)
        r = d.dst(o[0], 0)
        polling = op == "test_wait"

        def wait(w, fr, am):
            c = w.cta
            first, verdict = None, True
            u = w.u[r]
            a, qq = w.u[slot], w.u[q]
            lanes = active(am)
            k0 = lanes[0]
            uniform = len(lanes) == 1 or ((a[am] == a[k0]).all() and (qq[am] == qq[k0]).all())
            for k in lanes[:1] if uniform else lanes:
                b = c.mbar(int(a[k]) + off)
                if parity and qq[k] > 1:
                    raise MachineError(f"phase parity {int(qq[k])} is neither 0 nor 1")
                done = (b.phase & 1) != int(qq[k]) if parity else b.phase > int(qq[k])
                if uniform:
                    u[am] = done
                else:
                    u[k] = done
                if not done and verdict:
                    first, verdict = (b, int(qq[k])), False
            if verdict:
                fr.spin = -1
                c.log("wait", w.id, ins.line, mbar=b.address)
                return None
            # A wait may give up at any time, so the first failure is reported to the program.
            if fr.spin == fr.pc:
                if polling or not uniform:
                    fr.state = SPIN
                    fr.spin = -1
                    c.spinners.append(fr)
                    return YIELD
                if c.mode != "random" or c.rng.random() < 0.8:
                    fr.state, fr.wait = MBAR, first
                    first[0].waiters.append(fr)
                    return STAY
            fr.spin = fr.pc
            return YIELD
        return wait
    return None


# ---------------------------------------------------------------- TMA

def tensor_operand(d, o, rank):
    if o.kind != "tensor" or len(o.items) != rank:
        d.fail(f"expected a tensor operand with {rank} coordinates")
    return d.src(o.base, 8), [d.src(x, 4) for x in o.items]


def find_map(w, address):
    off = address - PARAM_WINDOW
    tm = w.cta.m.maps.get(off)
    if tm is None:
        raise MachineError(f"no tensor map at generic address {address:#x}")
    return tm


def issue_load(w, line, text, chunks, nbytes, fetch, b):
    """Queues a copy into shared memory that signals mbarrier `b`."""
    c = w.cta
    c.poison(chunks)

    def go():
        if c.mbars and c.mbar8.reshape(-1, 2)[chunks].any():
            raise MachineError("TMA load overwrites an mbarrier")
        c.smem.view(np.uint64).reshape(-1, 2)[chunks] = fetch().view(np.uint64).reshape(-1, 2)
        c.defined.view(np.uint64).reshape(-1, 2)[chunks] = 0x0101010101010101
        if c.mbars.get(b.address) is not b:
            raise MachineError("mbarrier was invalidated")
        c.mbar_tx(b, -nbytes)
    c.loads.append(AsyncOp("tma.load", go, line, w.id, text))
    c.log("tma.load", w.id, line, bytes=nbytes)


def issue_store(w, k, line, text, read, write):
    op = BulkStore(read, write, line, w.id, text)
    t = 32 * w.id + int(k)
    w.cta.bulk_open.setdefault(t, []).append(op)
    w.cta.bulk_all.append(op)
    w.cta.log("tma.store", w.id, line)


def cp(d, ins, p, out, machine):
    reduce_add = p[0] == "cp" and p[1] == "reduce"
    if reduce_add:
        p = [p[0]] + p[2:]
    if p[1:3] != ["async", "bulk"]:
        return None
    rest = p[3:]
    if rest == ["commit_group"]:
        d.count(0)

        def commit(w, fr, am):
            c = w.cta
            for k in active(am):
                t = 32 * w.id + int(k)
                c.bulk_groups.setdefault(t, []).append(c.bulk_open.pop(t, []))
        return commit
    if rest in (["wait_group"], ["wait_group", "read"]):
        d.count(1)
        if ins.operands[0].kind != "int" or ins.operands[0].value < 0:
            d.fail("wait_group needs an immediate")
        n, stage = ins.operands[0].value, 1 if len(rest) == 2 else 2

        def wait_group(w, fr, am):
            c = w.cta
            for k in active(am):
                groups = c.bulk_groups.get(32 * w.id + int(k))
                if not groups:
                    continue
                cut = max(0, len(groups) - n)
                for g in groups[:cut]:
                    for op in g:
                        c.store_advance(op, stage)
                        op.waited = True
                if stage == 2:
                    del groups[:cut]
            c.log("wait_group", w.id, ins.line)
        return wait_group
    if rest[:1] == ["prefetch"]:
        for o in ins.operands:
            if o.kind == "tensor":
                tensor_operand(d, o, len(o.items))
            elif o.kind == "mem":
                d.mem(o)
        return lambda w, fr, am: None
    if rest[:1] == ["tensor"]:
        return cp_tensor(d, ins, rest[1:], reduce_add)
    return cp_plain(d, ins, rest) if not reduce_add else None


def cp_tensor(d, ins, rest, reduce_add):
    if rest[0] not in ("1d", "2d", "3d", "4d", "5d"):
        d.unsupported()
    rank = int(rest[0][0])
    hint = rest[-1] == "L2::cache_hint"
    body = [x for x in rest[1:] if x not in ("tile", "L2::cache_hint", "cta_group::1")]
    o = list(ins.operands)
    if hint:
        d.src(o.pop(), 8)
    if body[:2] in (["shared::cta", "global"], ["shared::cluster", "global"]) and body[2:] == ["mbarrier::complete_tx::bytes"] and not reduce_add:
        if len(o) != 3:
            d.fail("expected [dst], [map, coords], [mbarrier]")
        dslot, _, doff = d.mem(o[0])
        mslot, coords = tensor_operand(d, o[1], rank)
        bslot, _, boff = d.mem(o[2])

        def load(w, fr, am):
            c = w.cta
            for k in active(am):
                tm = find_map(w, int(w.u[mslot][k]))
                if len(tm.dims) != rank:
                    raise MachineError(f"{rank}-dimensional copy through a map of rank {len(tm.dims)}")
                dst = int(w.u[dslot][k]) + doff
                if dst % tm.align:
                    raise MachineError(f"shared address {dst:#x} is not a multiple of {tm.align}")
                c.smem_check(dst, dst + tm.bytes, "TMA load")
                b = c.mbar(int(w.u[bslot][k]) + boff)
                xy = [int(w.s[x][k]) for x in coords]
                issue_load(w, ins.line, ins.text, tm.chunks(dst), tm.bytes, lambda tm=tm, xy=xy: tm.fetch(xy), b)
        return load
    if reduce_add:
        if "add" not in body:
            d.unsupported()
        body = [x for x in body if x != "add"]
    if body == ["global", "shared::cta", "bulk_group"]:
        if len(o) != 2:
            d.fail("expected [map, coords], [src]")
        mslot, coords = tensor_operand(d, o[0], rank)
        sslot, _, soff = d.mem(o[1])

        def store(w, fr, am):
            c = w.cta
            for k in active(am):
                tm = find_map(w, int(w.u[mslot][k]))
                if len(tm.dims) != rank:
                    raise MachineError(f"{rank}-dimensional copy through a map of rank {len(tm.dims)}")
                src = int(w.u[sslot][k]) + soff
                if src % tm.align:
                    raise MachineError(f"shared address {src:#x} is not a multiple of {tm.align}")
                c.smem_check(src, src + tm.bytes, "TMA store")
                xy = [int(w.s[x][k]) for x in coords]
                if min(xy) < 0:
                    raise MachineError(f"negative store coordinates {xy}")
                chunks = tm.chunks(src)
                c.check_clean(chunks, "TMA store")

                def read(tm=tm, xy=xy, chunks=chunks):
                    region = tm.region(xy)
                    if region:
                        ok = c.defined.view(np.uint64).reshape(-1, 2)[chunks].view(np.uint8).reshape(tm.box[::-1] + [tm.size])
                        if not ok[region[1]].all():
                            raise MachineError("TMA store reads shared bytes that are undefined or being loaded")
                    return c.smem.view(np.uint64).reshape(-1, 2)[chunks].reshape(-1).view(np.uint8)
                write = tm.reduce_add if reduce_add else tm.put
                issue_store(w, k, ins.line, ins.text, read, lambda data, xy=xy, write=write: write(xy, data))
        return store
    d.unsupported()


def cp_plain(d, ins, rest):
    body = [x for x in rest if x != "L2::cache_hint"]
    o = list(ins.operands)
    if len(body) != len(rest):
        d.src(o.pop(), 8)
    if body[:2] in (["shared::cta", "global"], ["shared::cluster", "global"]) and body[2:] == ["mbarrier::complete_tx::bytes"]:
        if len(o) != 4:
            d.fail("expected [dst], [src], size, [mbarrier]")
        dslot, _, doff = d.mem(o[0])
        gslot, _, goff = d.mem(o[1])
        n = d.src(o[2], 4)
        bslot, _, boff = d.mem(o[3])
        load = True
    elif body == ["global", "shared::cta", "bulk_group"]:
        if len(o) != 3:
            d.fail("expected [dst], [src], size")
        gslot, _, goff = d.mem(o[0])
        dslot, _, doff = d.mem(o[1])
        n = d.src(o[2], 4)
        load = False
    else:
        d.unsupported()

    def run(w, fr, am):
        c = w.cta
        for k in active(am):
            size, g, s = int(w.u[n][k]), int(w.u[gslot][k]) + goff, int(w.u[dslot][k]) + doff
            if size % 16 or g % 16 or s % 16 or size == 0:
                raise MachineError("bulk copy needs addresses and a size that are multiples of 16")
            c.smem_check(s, s + size, "bulk copy")
            v, _, at = next(windows(w, np.array([g]), 1))
            at = int(at[0])
            if at + size > v.nbytes:
                raise MachineError(f"bulk copy of {size} bytes at {at} of view {v.name} with {v.nbytes} bytes")
            chunks = (s >> 4) + np.arange(size // 16)
            if load:
                b = c.mbar(int(w.u[bslot][k]) + boff)
                issue_load(w, ins.line, ins.text, chunks, size, lambda v=v, at=at, size=size: v.data[at:at + size].copy(), b)
                continue
            c.check_clean(chunks, "bulk store")

            def read(s=s, size=size):
                if not c.defined[s:s + size].all():
                    raise MachineError("bulk store reads shared bytes that are undefined or being loaded")
                return c.smem[s:s + size].copy()

            def write(data, v=v, at=at, size=size):
                v.data[at:at + size] = data
            issue_store(w, k, ins.line, ins.text, read, write)
    return run


TABLE = {
    "ld": ld, "st": st, "atom": atom, "ldmatrix": matrix(True), "stmatrix": matrix(False), "shfl": shfl, "vote": vote, "elect": elect,
    "redux": redux, "activemask": activemask, "bar": bar, "barrier": bar, "fence": fence, "membar": membar,
    "setmaxnreg": setmaxnreg, "nanosleep": nanosleep, "trap": trap, "mapa": mapa, "createpolicy": createpolicy,
    "prefetch": no_op("tensormap", "param.tensormap", "global.L2", "global.L1"),
    "griddepcontrol": no_op("wait", "launch_dependents"),
    "mbarrier": mbarrier, "cp": cp, "tcgen05": tensor.decode,
}
