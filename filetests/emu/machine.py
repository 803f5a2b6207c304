"""Execution of one PTX kernel on the CPU, with asynchronous work completing at adversarial times.

In: a parsed entry, parameter bytes, tensor maps, global memory, a mode. Out: global memory changed,
an optional trace; a wrong program raises `EmuError` naming line, CTA, warp and instruction.

Method: CTAs run one after the other. A warp is a set of fragments (pc, lanes) that diverge at
branches and join only at warp synchronisation, as PTX promises no more. TMA and tensor-core work is
queued and completes when the mode says: `fast` (at once), `random` (random delays, starved warps),
`latest` (only when no warp can go on, or a wait demands it).
Memory checks: bytes start undefined and become so again when a TMA load into them is issued; generic
writes stay "dirty" per 16 bytes until their thread executes fence.proxy.async.
Left out: clusters, timing, memory ordering other than the proxy fence. Source: PTX ISA.
"""
import random
from collections import deque

import numpy as np

from alu import Decoder, FLOATS, LANES, MachineError, RegFile, SIGNED, UNSIGNED, decode_alu, put
from ptxparse import PtxError, TYPE_BYTES
from tma import MapError

SMEM_START = 0x400            # the first KiB of a CTA's window is reserved
SMEM_LIMIT = 232448
PARAM_WINDOW = 0x7D0000000000
SHARED_WINDOW = 0x7E0000000000
ALL = 0xFFFFFFFF

RUN, MBAR, COLL, BAR, SPIN, REGS = range(6)
STATE_NAME = ["runnable", "mbarrier", "warp collective", "named barrier", "polling", "setmaxnreg"]
ALU_KIND, BRA_KIND, OTHER_KIND, EXIT_KIND = range(4)
# What a non-arithmetic instruction tells the loop; None means: go on.
STAY, YIELD = 1, 2


class EmuError(Exception):
    """A located error of the executed program."""


class Decoded:
    """One decoded instruction."""

    __slots__ = ("kind", "fn", "guard", "neg", "srcs", "dsts", "line", "text", "target", "aligned", "collective", "uni", "op")


class Fragment:
    """Lanes of a warp that are at the same pc."""

    __slots__ = ("pc", "bits", "arr", "where", "state", "wait", "spin", "n")

    def __init__(self, pc, bits):
        self.pc, self.state, self.wait, self.spin = pc, RUN, None, -1
        self.set(bits)

    def set(self, bits):
        self.bits = bits
        self.n = bits.bit_count()
        self.arr = (np.uint32(bits) >> LANES & np.uint32(1)).astype(bool)
        self.where = True if bits == ALL else self.arr


def to_bits_mask(arr):
    return int((arr.astype(np.uint64) << LANES.astype(np.uint64)).sum())


class Mbar:
    """State of one mbarrier."""

    __slots__ = ("address", "count", "pending", "tx", "phase", "waiters", "line")

    def __init__(self, address, count, line):
        self.address, self.count, self.pending, self.tx, self.phase = address, count, count, 0, 0
        self.waiters, self.line = [], line


class Bar:
    """State of one named barrier."""

    __slots__ = ("expected", "arrived", "waiting")

    def __init__(self):
        self.expected, self.arrived, self.waiting = 0, 0, []


class BulkStore:
    """A TMA store: reads shared memory, then writes global memory, each at its own time."""

    __slots__ = ("read_fn", "write_fn", "data", "stage", "waited", "line", "warp", "text")

    def __init__(self, read_fn, write_fn, line, warp, text):
        self.read_fn, self.write_fn, self.data, self.stage, self.waited = read_fn, write_fn, None, 0, False
        self.line, self.warp, self.text = line, warp, text

    def advance(self, stage):
        if self.stage < 1 <= stage:
            self.data, self.stage = self.read_fn(), 1
        if self.stage < 2 <= stage:
            self.write_fn(self.data)
            self.stage = 2


class AsyncOp:
    """A queued operation with the place it was issued at."""

    __slots__ = ("run", "line", "warp", "text", "kind", "dst", "src")

    def __init__(self, kind, run, line, warp, text, dst=None, src=None):
        self.kind, self.run, self.line, self.warp, self.text, self.dst, self.src = kind, run, line, warp, text, dst, src


class Warp:
    """Registers and fragments of one warp."""

    def __init__(self, cta, wid, regs, specials):
        self.cta, self.id = cta, wid
        self.u, self.s, self.f = [], [], []
        for size in regs.bytes:
            a = np.zeros(32, UNSIGNED[size] if size else bool)
            self.u.append(a)
            self.s.append(a.view(SIGNED[size]) if size else a)
            self.f.append(a.view(FLOATS[size]) if size else a)
        for (size, bits), slot in regs.constants.items():
            self.u[slot][:] = bits
        for (name, size), slot in regs.specials.items():
            self.u[slot][:] = np.asarray(specials(name)).astype(UNSIGNED[size])
        self.undefined = set(range(regs.count))
        self.inflight = set()
        self.loads, self.stores = [], []      # tcgen05.ld / st not yet waited for
        self.dirty = []                       # (granules, thread + 1) of generic writes without a proxy fence
        self.frags = [Fragment(0, ALL)]
        self.live = ALL
        self.reg_cap = 0
        self.frozen = 0


class Cta:
    """One thread block: memory, barriers, asynchronous engines, scheduler."""

    def __init__(self, machine, ctaid, mode, seed, log):
        self.m, self.ctaid, self.mode = machine, ctaid, mode
        self.rng = random.Random(f"{seed}:{ctaid}:{mode}")
        self.log_list = log
        self.time = 0
        self.smem_end = machine.smem_end
        n = -(-self.smem_end // 1024) * 1024
        self.smem = np.full(n, 0xFF, np.uint8)
        self.defined = np.zeros(n, np.uint8)
        self.dirty = np.zeros(n // 16, np.int32)
        self.any_dirty = False
        self.mbar8 = np.zeros(n // 8, bool)
        self.mbars, self.bars = {}, {}
        self.loads = []
        self.bulk_open, self.bulk_groups, self.bulk_all = {}, {}, []
        self.spinners = []
        self.idle = 0                         # wake-ups of polling lanes since the last progress
        self.elected = {}
        self.reg_pool, self.reg_waiters = 0, []
        import tensor
        self.tensor = tensor.TensorCore(self)
        self.nwarps = machine.nthreads // 32
        self.p_async = self.rng.choice([0.01, 0.1, 0.5, 0.95])
        self.p_freeze = self.rng.choice([0.0, 0.01, 0.05])
        self.warps = [Warp(self, k, machine.regs, lambda name, k=k: self.special(name, k)) for k in range(self.nwarps)]
        for w in self.warps:
            w.reg_cap = machine.reg_cap

    def special(self, name, wid):
        bx, by, bz = self.m.block
        tid = LANES + 32 * wid
        base, _, axis = name.partition(".")
        k = "xyz".find(axis) if axis else 0
        if base == "%tid":
            return (tid % bx, tid // bx % by, tid // (bx * by))[k]
        if base == "%ntid":
            return self.m.block[k]
        if base == "%ctaid":
            return self.ctaid[k]
        if base == "%nctaid":
            return self.m.grid[k]
        linear = self.ctaid[0] + self.m.grid[0] * (self.ctaid[1] + self.m.grid[1] * self.ctaid[2])
        one = np.uint64(1) << LANES.astype(np.uint64)
        table = {
            "%laneid": LANES, "%warpid": wid, "%nwarpid": self.nwarps, "%smid": linear % self.m.sms, "%nsmid": self.m.sms,
            "%cluster_ctarank": 0, "%cluster_nctarank": 1, "%dynamic_smem_size": self.m.dynamic_smem,
            "%total_smem_size": self.smem_end - SMEM_START, "%lanemask_eq": one, "%lanemask_lt": one - np.uint64(1),
            "%lanemask_le": 2 * one - np.uint64(1), "%lanemask_gt": ALL - (2 * one - np.uint64(1)), "%lanemask_ge": ALL - (one - np.uint64(1)),
        }
        if base == "%cluster_ctaid":
            return 0
        if base == "%clusterid":
            return self.ctaid[0]
        if base == "%nclusterid":
            return self.m.grid[0]
        if name not in table:
            raise MachineError(f"special register {name} cannot be read here")
        return table[name]

    # ------------------------------------------------------------ trace and errors
    def log(self, kind, warp, line, **detail):
        if self.log_list is not None:
            self.log_list.append({"time": self.time, "kind": kind, "warp": warp, "cta": list(self.ctaid), "line": line, **detail})

    def error(self, line, warp, text, message):
        return EmuError(f"line {line}: cta {self.ctaid} warp {warp}: {message} in `{text}`")

    # ------------------------------------------------------------ shared memory
    def smem_check(self, lo, hi, what="access"):
        if lo < SMEM_START or hi > self.smem_end:
            raise MachineError(f"shared {what} of bytes {lo:#x}..{hi:#x} outside {SMEM_START:#x}..{self.smem_end:#x}")

    def smem_addresses(self, w, slot, wide, offset, lanes, size):
        """Checked byte addresses of the lanes; 64-bit registers may hold plain shared addresses."""
        a = w.u[slot][lanes].astype(np.int64) + offset
        if (a % size).any():
            raise MachineError(f"misaligned shared address {int(a[(a % size) != 0][0]):#x} for {size} bytes")
        self.smem_check(int(a.min()), int(a.max()) + size)
        if self.mbars and self.mbar8[a >> 3].any() or size == 16 and self.mbars and self.mbar8[(a >> 3) + 1].any():
            raise MachineError("ordinary access to the bytes of an mbarrier")
        return a

    def mark_dirty(self, w, granules, lanes):
        owner = (lanes + 32 * w.id + 1).astype(np.int32)
        self.dirty[granules] = owner
        w.dirty.append((granules, owner))
        self.any_dirty = True

    def proxy_fence(self, w, am):
        if not w.dirty:
            return
        keep = []
        for g, owner in w.dirty:
            act = am[(owner - 1) & 31]
            mine = self.dirty[g] == owner
            self.dirty[g[mine & act]] = 0
            if not act.all():
                keep.append((g[~act], owner[~act]))
        w.dirty = keep
        self.any_dirty = any(x.dirty for x in self.warps)

    def check_clean(self, granules, what):
        """Asynchronous reads may not see generic writes that were not fenced."""
        if self.any_dirty:
            d = self.dirty[granules]
            if d.any():
                t = int(d[d != 0][0]) - 1
                raise MachineError(f"{what} reads shared memory that thread {t} wrote without fence.proxy.async")

    def poison(self, chunks):
        """A TMA load was issued: until it completes its bytes have no value."""
        if self.mbars and self.mbar8.reshape(-1, 2)[chunks].any():
            raise MachineError("TMA load overwrites an mbarrier")
        self.smem.view(np.uint64).reshape(-1, 2)[chunks] = np.uint64(0xFFFFFFFFFFFFFFFF)
        self.defined.view(np.uint64).reshape(-1, 2)[chunks] = 0
        self.dirty[chunks] = 0

    # ------------------------------------------------------------ mbarriers
    def mbar(self, address):
        if address % 8:
            raise MachineError(f"misaligned mbarrier address {address:#x}")
        b = self.mbars.get(address)
        if b is None:
            raise MachineError(f"mbarrier at {address:#x} used before mbarrier.init")
        return b

    def mbar_settle(self, b):
        if b.pending < 0:
            raise MachineError(f"mbarrier {b.address:#x} (line {b.line}) got more arrivals than its count {b.count}")
        if not -(1 << 20) < b.tx < 1 << 20:
            raise MachineError(f"mbarrier {b.address:#x} transaction count {b.tx} out of range")
        if b.pending == 0:
            if b.tx < 0:
                raise MachineError(f"mbarrier {b.address:#x} (line {b.line}): {-b.tx} bytes more than expected at the end of a phase")
            if b.tx == 0:
                b.phase += 1
                b.pending = b.count
                self.log("phase", -1, b.line, mbar=b.address, phase=b.phase)
                for fr in b.waiters:
                    fr.state, fr.wait = RUN, None
                b.waiters = []
                self.idle = 0
                self.wake_spinners()

    def mbar_arrive(self, b, count):
        if count < 1:
            raise MachineError("arrival count must be positive")
        b.pending -= count
        self.mbar_settle(b)

    def mbar_tx(self, b, delta):
        b.tx += delta
        self.mbar_settle(b)

    def wake_spinners(self):
        for fr in self.spinners:
            if fr.state == SPIN:
                fr.state = RUN
        self.spinners = []

    # ------------------------------------------------------------ named barriers
    def bar_arrive(self, w, fr, number, count, lanes, block):
        if not 0 <= number < 16:
            raise MachineError(f"barrier number {number} is not in 0..15")
        if count is None:
            count = 32 * self.nwarps
        if count % 32 or not 0 < count <= 32 * self.nwarps:
            raise MachineError(f"barrier {number} with thread count {count} in a block of {32 * self.nwarps}")
        b = self.bars.setdefault(number, Bar())
        if b.arrived and b.expected != count:
            raise MachineError(f"barrier {number} used with counts {b.expected} and {count} in one phase")
        b.expected = count
        b.arrived += lanes
        if b.arrived > count:
            raise MachineError(f"barrier {number}: {b.arrived} arrivals for a count of {count}")
        if b.arrived == count:
            for _, f in b.waiting:
                f.state, f.wait = RUN, None
                f.pc += 1
            b.arrived, b.waiting = 0, []
            self.log("bar", w.id, 0, number=number)
            return None
        if block:
            b.waiting.append((w, fr))
            fr.state, fr.wait = BAR, number
            return STAY
        return None

    # ------------------------------------------------------------ asynchronous engines
    def complete(self, op):
        try:
            with np.errstate(all="ignore"):
                op.run()
        except MachineError as e:
            raise self.error(op.line, op.warp, op.text, f"{e} (while completing)") from None
        except MapError as e:
            raise self.error(op.line, op.warp, op.text, f"{e} (while completing)") from None
        self.log(op.kind + ".done", op.warp, op.line)

    def store_advance(self, op, stage):
        if op.stage >= stage:
            return
        try:
            op.advance(stage)
        except (MachineError, MapError) as e:
            raise self.error(op.line, op.warp, op.text, f"{e} (while completing)") from None
        self.log("tma.store." + ("read" if stage == 1 else "done"), op.warp, op.line)

    def tick(self):
        """Completes what the mode lets complete between two turns of warps."""
        if self.mode == "latest":
            return
        p = 2.0 if self.mode == "fast" else self.p_async
        rnd = self.rng.random
        while self.loads and rnd() < p:
            self.complete(self.loads.pop(self.rng.randrange(len(self.loads))))
        for q in list(self.tensor.queues.values()):
            while q and rnd() < p:
                self.complete(q.popleft())
        for op in self.bulk_all:
            if op.stage < 2 and rnd() < p:
                self.store_advance(op, op.stage + 1)
        for w in self.warps:
            for x in w.loads:
                if not x.done and rnd() < p:
                    self.tensor.finish(w, x)
            for x in w.stores:
                if not x.done and rnd() < p:
                    self.tensor.finish(w, x)

    def force_one(self):
        """No warp can go on: completes one operation that can release a waiter."""
        heads = [q for q in self.tensor.queues.values() if q]
        n = len(self.loads) + len(heads)
        if n == 0:
            return False
        k = self.rng.randrange(n)
        if k < len(self.loads):
            self.complete(self.loads.pop(k))
        else:
            self.complete(heads[k - len(self.loads)].popleft())
        return True

    # ------------------------------------------------------------ scheduler
    def run(self):
        active = list(self.warps)
        quantum = 32
        while active:
            ran = False
            if self.mode == "random":
                self.rng.shuffle(active)
            for w in active:
                if w.frozen:
                    w.frozen -= 1
                    ran = True
                    continue
                if self.mode == "random":
                    if self.rng.random() < self.p_freeze:
                        w.frozen = self.rng.randrange(1, 60)
                    quantum = self.rng.randrange(1, 48)
                ready = [f for f in w.frags if f.state == RUN]
                if not ready:
                    continue
                if len(ready) > 1:
                    fr = self.rng.choice(ready) if self.mode == "random" else min(ready, key=lambda f: f.pc)
                else:
                    fr = ready[0]
                self.step(w, fr, quantum)
                ran = True
                self.tick()
            if not all(w.live for w in active):
                active = [w for w in active if w.live]
            if self.time > self.m.max_steps:
                raise EmuError(f"cta {self.ctaid}: step limit of {self.m.max_steps} reached\n{self.report()}")
            if ran:
                continue
            if not active:
                break
            if self.force_one():
                self.idle = 0
                self.wake_spinners()
                continue
            if self.spinners and self.idle < 1000:
                self.idle += 1
                self.wake_spinners()
                continue
            raise EmuError(f"cta {self.ctaid}: deadlock\n{self.report()}")
        self.finish()

    def finish(self):
        """Checks at the end of the CTA."""
        for op in self.loads:
            raise self.error(op.line, op.warp, op.text, "TMA load still in flight at the end of the CTA")
        for q in self.tensor.queues.values():
            for op in q:
                raise self.error(op.line, op.warp, op.text, "tensor-core work still in flight at the end of the CTA")
        for op in self.bulk_all:
            if not op.waited:
                raise self.error(op.line, op.warp, op.text, "no wait_group{.read} covers this bulk store before the end of the CTA")
            self.store_advance(op, 1)
            self.store_advance(op, 2)
        for k, b in sorted(self.bars.items()):
            if b.arrived:
                raise EmuError(f"cta {self.ctaid}: barrier {k} has {b.arrived} of {b.expected} arrivals at the end")
        for b in self.mbars.values():
            if b.tx:
                raise EmuError(f"cta {self.ctaid}: mbarrier {b.address:#x} (line {b.line}) ends with transaction count {b.tx}")
        self.tensor.finish_cta()

    def report(self):
        """Who waits where; states of the mbarriers waited for."""
        out, seen = [], {}
        for w in self.warps:
            for f in w.frags:
                d = self.m.code[f.pc]
                text = f"  warp {w.id} lanes {f.bits:08x} line {d.line} `{d.text}`: {STATE_NAME[f.state]}"
                if f.state == MBAR:
                    b, parity = f.wait
                    seen[b.address] = b
                    text += f" {b.address:#x} parity {parity}"
                elif f.state == BAR:
                    b = self.bars[f.wait]
                    text += f" {f.wait} ({b.arrived} of {b.expected} threads)"
                out.append(text)
            if not w.frags:
                out.append(f"  warp {w.id}: exited")
        for a, b in sorted(self.mbars.items()):
            mark = "*" if a in seen else " "
            out.append(f" {mark}mbarrier {a:#x} (line {b.line}): phase {b.phase}, pending {b.pending} of {b.count}, tx {b.tx}")
        return "\n".join(out)

    def split(self, w, fr, bits):
        """Takes `bits` out of `fr` as a new fragment at the same pc."""
        new = Fragment(fr.pc, bits)
        fr.set(fr.bits & ~bits)
        w.frags.append(new)
        return new

    def exit_lanes(self, w, fr, bits):
        w.live &= ~bits
        if bits == fr.bits:
            w.frags.remove(fr)
        else:
            fr.set(fr.bits & ~bits)
        if w.live == 0:
            if w.loads or w.stores:
                x = (w.loads + w.stores)[0]
                raise MachineError(f"warp exits with tcgen05.ld/st of line {x.line} not waited for")

    def collect(self, w, fr, d, bits):
        """Warp synchronisation. Returns the fragment to execute on, or None while lanes are missing."""
        any_pc = d.op == "bar"
        if fr.bits & ~bits:
            raise MachineError(f"lanes {fr.bits:08x} execute with member mask {bits:08x}")
        fr.state, fr.wait = COLL, bits
        group = [f for f in w.frags if f.state == COLL and f.wait == bits and
                 (f.pc == fr.pc or any_pc and self.m.code[f.pc].op == "bar")]
        have = 0
        for f in group:
            have |= f.bits
        if have != bits & w.live:
            return None
        by_pc = {}
        for f in group:
            f.state, f.wait = RUN, None
            first = by_pc.setdefault(f.pc, f)
            if first is not f:
                first.set(first.bits | f.bits)
                w.frags.remove(f)
        keep = by_pc[fr.pc]
        if any_pc:
            for f in by_pc.values():
                if f is not keep:
                    f.pc += 1
        return keep

    def step(self, w, fr, quantum):
        """Runs one fragment until it blocks, yields or has used its quantum."""
        code, u = self.m.code, w.u
        d = None
        try:
            for _ in range(quantum):
                d = code[fr.pc]
                self.time += 1
                if w.undefined and d.srcs and not w.undefined.isdisjoint(d.srcs):
                    self.undefined_read(w, fr, d)
                if w.inflight and not (w.inflight.isdisjoint(d.srcs) and w.inflight.isdisjoint(d.dsts)):
                    raise MachineError("register of a tcgen05.ld used before tcgen05.wait::ld")
                g = d.guard
                kind = d.kind
                if kind == ALU_KIND:
                    if g < 0:
                        d.fn(w, fr.where)
                    else:
                        am = (u[g] != d.neg) & fr.arr
                        if am.any():
                            d.fn(w, am)
                        else:
                            fr.pc += 1
                            continue
                    if w.undefined:
                        w.undefined.difference_update(d.dsts)
                    fr.pc += 1
                    continue
                if g < 0:
                    am, bits = fr.arr, fr.bits
                else:
                    am = (u[g] != d.neg) & fr.arr
                    bits = to_bits_mask(am)
                    if bits == 0:
                        fr.pc += 1
                        continue
                if kind == BRA_KIND:
                    if bits == fr.bits:
                        back = d.target <= fr.pc
                        fr.pc = d.target
                        if back and self.mode != "random" and len(w.frags) > 1:
                            return
                        continue
                    if d.uni:
                        raise MachineError("bra.uni diverges")
                    new = self.split(w, fr, bits)
                    new.pc = d.target
                    fr.pc += 1
                    # The lower pc goes first; it often rejoins.
                    return
                if kind == EXIT_KIND:
                    self.exit_lanes(w, fr, bits)
                    if bits == fr.bits:
                        return
                    fr.pc += 1
                    continue
                if d.aligned and bits != w.live:
                    raise MachineError(f"lanes {bits:08x} of {w.live:08x} execute an .aligned instruction")
                if d.collective is not None:
                    if bits != fr.bits:
                        new = self.split(w, fr, bits)
                        fr.pc += 1
                        fr = new
                    members = d.collective
                    if isinstance(members, tuple):
                        members = int(u[members[0]][am][0])
                    if bits != members or fr.bits != members:
                        fr = self.collect(w, fr, d, members)
                        if fr is None:
                            return
                    am = fr.arr
                r = d.fn(w, fr, am)
                if r is None:
                    if w.undefined:
                        w.undefined.difference_update(d.dsts)
                    fr.pc += 1
                    continue
                if r == STAY:
                    return
                if r == YIELD:
                    w.undefined.difference_update(d.dsts)
                    fr.pc += 1
                    return
        except (MachineError, MapError) as e:
            raise self.error(d.line, w.id, d.text, str(e)) from None

    def undefined_read(self, w, fr, d):
        bad = w.undefined.intersection(d.srcs)
        if d.guard >= 0 and d.guard not in bad:
            # A skipped instruction reads nothing but its guard.
            if not ((w.u[d.guard] != d.neg) & fr.arr).any():
                return
        names = {v: k for k, v in self.m.regs.index.items()}
        raise MachineError("undefined register " + ", ".join(sorted(names[b] for b in bad)) + " read")


class Machine:
    """A kernel ready to launch."""

    def __init__(self, module, entry, block, grid, dynamic_smem, param_bytes, maps, memory, sms=4, max_steps=50_000_000):
        self.module, self.entry, self.block, self.grid = module, entry, tuple(block), tuple(grid)
        self.dynamic_smem, self.params, self.maps, self.memory, self.sms = dynamic_smem, param_bytes, maps, memory, sms
        self.max_steps = max_steps
        self.nthreads = block[0] * block[1] * block[2]
        if self.nthreads % 32 or not 0 < self.nthreads <= 1024:
            raise PtxError(entry.line, f"block of {self.nthreads} threads")
        if entry.reqntid and entry.reqntid != self.block:
            raise PtxError(entry.line, f".reqntid {entry.reqntid} but the launch has {self.block}")
        if entry.maxntid and self.nthreads > entry.maxntid[0] * entry.maxntid[1] * entry.maxntid[2]:
            raise PtxError(entry.line, "launch exceeds .maxntid")
        if entry.cluster and entry.cluster != (1, 1, 1):
            raise PtxError(entry.line, "clusters are not supported")
        self.reg_cap = entry.maxnreg or min(256, 65536 // self.nthreads // 8 * 8)
        self.reg_known = bool(entry.maxnreg or ((entry.reqntid or entry.maxntid) and entry.minnctapersm))
        symbols, at = {}, SMEM_START
        for name, (size, align) in list(module.shared.items()) + list(entry.shared.items()):
            at = -(-at // align) * align
            symbols[name] = at
            at += size
        if module.dynamic_shared:
            name, align = module.dynamic_shared
            at = -(-at // max(align, 16)) * max(align, 16)
            symbols[name] = at
        self.smem_end = at + dynamic_smem
        if self.smem_end - SMEM_START > SMEM_LIMIT:
            raise PtxError(entry.line, f"{self.smem_end - SMEM_START} bytes of shared memory, limit {SMEM_LIMIT}")
        self.regs = RegFile(entry)
        dec = Decoder(entry, self.regs, symbols, (PARAM_WINDOW, SHARED_WINDOW))
        self.code = [self.decode(dec, ins) for ins in entry.instrs]

    def decode(self, dec, ins):
        import ops
        d = Decoded()
        dec.start(ins)
        d.line, d.text, d.op = ins.line, ins.text, ins.parts[0]
        d.target, d.aligned, d.collective, d.uni = 0, False, None, False
        d.guard, d.neg = -1, False
        if ins.guard:
            d.guard, d.neg = self.regs.index[ins.guard[1]], ins.guard[0]
        head = ins.parts[0]
        if head == "bra":
            if ins.parts[1:] not in ([], ["uni"]) or len(ins.operands) != 1:
                dec.unsupported()
            d.kind, d.fn = BRA_KIND, None
            d.target, d.uni = self.entry.labels[ins.operands[0].name], "uni" in ins.parts
        elif ins.op in ("ret", "exit", "ret.uni"):
            d.kind, d.fn = EXIT_KIND, None
        else:
            fn = decode_alu(dec, ins)
            if fn is not None:
                d.kind, d.fn = ALU_KIND, fn
            else:
                d.kind = OTHER_KIND
                d.fn = ops.decode_other(dec, ins, d, self)
                if d.fn is None:
                    dec.unsupported()
        d.srcs = frozenset(dec.srcs) | ({d.guard} if d.guard >= 0 else frozenset())
        d.dsts = tuple(dec.dsts)
        return d

    def run(self, mode, seed=0, trace=None):
        """Executes the grid."""
        with np.errstate(all="ignore"):
            for z in range(self.grid[2]):
                for y in range(self.grid[1]):
                    for x in range(self.grid[0]):
                        Cta(self, (x, y, z), mode, seed, trace).run()
