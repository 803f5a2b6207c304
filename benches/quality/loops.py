#!/usr/bin/env python3
"""A second generator of random loops, written from the names of the families and the schema alone.

Out: a JSON list of `tileas-schedule/1` documents without results, named FAMILY/SIZE/SEED or, where the best interval is
known by construction, FAMILY/SIZE/SEED/opt=II. The same arguments give the same documents on every machine.

Usage: loops.py [--families a,b] [--sizes 8,16] [--seeds 6] [--first 0] > loops.json
"""

import argparse
import json
import random
import sys

FAMILIES = ["gemm", "attention", "elementwise", "layered", "rigid", "grouped", "planted", "pinned", "woven"]
UNITS = {
    "xu": 2, "fp32x2": 4, "fma": 6, "dual_alu": 7, "lsu": 8, "tc_and_mma": 11, "tma": 12,
    "smem_rd": 15, "smem_wr": 16, "tmem_rd": 17, "tmem_wr": 18, "mma": 19,
}
TMEM_BANK = 3


class Loop:
    """A document that grows op by op."""

    def __init__(self, name, units=None, pools=None):
        self.name, self.ops, self.edges = name, [], []
        self.units = units or {}
        self.pools = pools or {}

    def op(self, latency, uses, pools=(), group=None, depth=0):
        """`uses`: (slot, offset, duration, occupancy). Returns the op's number."""
        for slot, *_ in uses:
            self.units.setdefault(slot, 1)
        self.ops.append({
            "id": f"op{len(self.ops)}", "name": "op", "latency": latency,
            "uses": [dict(zip(("slot", "offset", "duration", "occupancy"), u)) for u in uses],
            "pools": [dict(zip(("index", "count", "duration"), p)) for p in pools],
            "group": group, "max_depth": depth,
        })
        return len(self.ops) - 1

    def simple(self, unit, duration, latency=None):
        """An op of one unit."""
        return self.op(latency or duration, [(UNITS[unit], 0, duration, 1)])

    def edge(self, a, b, latency=None, distance=0):
        latency = self.ops[a]["latency"] if latency is None else latency
        self.edges.append({"from": f"op{a}", "to": f"op{b}", "latency": latency, "distance": distance})

    def document(self):
        names = {number: name for name, number in UNITS.items()}
        return {
            "schema": "tileas-schedule/1", "name": self.name,
            "slots": [{"id": s, "name": names.get(s, f"unit{s}"), "capacity": c} for s, c in sorted(self.units.items())],
            "pools": [{"index": i, "name": f"pool{i}", "capacity": c} for i, c in sorted(self.pools.items())],
            "ops": self.ops, "edges": self.edges,
        }


def tma_load(loop, width):
    return loop.op(8 * width, [(12, 0, 8 * width, 1), (16, 0, 8 * width, 1)])


def dot(loop, width, pool=True):
    return loop.op(16 * width, [(11, 0, 8 * width, 1), (19, 0, 8 * width, 1)], [(TMEM_BANK, 1, 8 * width)] if pool else [])


def gemm(rng, size, name):
    """Tiles of A and B are loaded, perhaps converted, and multiplied into one or more accumulators."""
    loop = Loop(name, pools={TMEM_BANK: 4})
    width = rng.choice([1, 1, 2, 4])
    accumulators = rng.choice([1, 1, 2, 4])
    last, first = [None] * accumulators, [None] * accumulators
    turn = 0
    while len(loop.ops) < size:
        inputs = [tma_load(loop, rng.choice([1, width])) for _ in range(rng.choice([1, 2, 2]))]
        if rng.random() < 0.3:
            read = loop.simple("smem_rd", 7)
            loop.edge(inputs[0], read)
            convert = loop.simple("fma", 4)
            loop.edge(read, convert)
            write = loop.simple("smem_wr", 7)
            loop.edge(convert, write)
            inputs[0] = write
        for _ in range(rng.choice([1, 1, 2])):
            a = turn % accumulators
            mma = dot(loop, width)
            for i in inputs:
                loop.edge(i, mma)
            if last[a] is not None:
                loop.edge(last[a], mma, 8 * width)
            first[a] = mma if first[a] is None else first[a]
            last[a] = mma
            turn += 1
    for a in range(accumulators):
        if last[a] is not None:
            loop.edge(last[a], first[a], 8 * width, 1)
    if rng.random() < 0.5:
        step = loop.simple("dual_alu", 2)
        loop.edge(step, step, 2, 1)
        loop.edge(step, 0)
    return loop


def attention(rng, size, name):
    """Scores, running maximum and sum, exponentials, and the second product, for so many blocks of keys."""
    loop = Loop(name, pools={TMEM_BANK: 4})
    width = rng.choice([1, 2, 4])
    soft = rng.choice([1, 2])
    carried = {}

    def carry(key, op):
        if key in carried:
            loop.edge(carried[key][1], op)
            carried[key][1] = op
        else:
            carried[key] = [op, op]

    while len(loop.ops) < size:
        keys, values = tma_load(loop, width), tma_load(loop, width)
        scores = dot(loop, width)
        loop.edge(keys, scores)
        read = loop.simple("tmem_rd", 7 * soft)
        loop.edge(scores, read)
        high = loop.simple("dual_alu", 2 * soft, 4)
        loop.edge(read, high)
        carry("max", high)
        parts = []
        for _ in range(rng.choice([1, 2])):
            scale = loop.simple("fma", 4 * soft)
            loop.edge(high, scale)
            exp = loop.simple("xu", rng.choice([4, 8]) * soft, 16)
            loop.edge(scale, exp)
            parts.append(exp)
        total = loop.simple("fma", 4)
        for p in parts:
            loop.edge(p, total)
        carry("sum", total)
        write = loop.simple("tmem_wr", 7 * soft)
        for p in parts:
            loop.edge(p, write)
        second = dot(loop, width)
        loop.edge(write, second)
        loop.edge(values, second)
        if rng.random() < 0.5:
            rescale = loop.simple("fp32x2", 4)
            loop.edge(high, rescale)
            loop.edge(rescale, second)
        carry("accumulator", second)
    for key, (first, last) in sorted(carried.items()):
        loop.edge(last, first, 8 * width if key == "accumulator" else None, 1)
    return loop


def elementwise(rng, size, name):
    """Loads, a tree of register arithmetic, stores; sometimes a carried sum."""
    loop = Loop(name)
    units = [("dual_alu", 2), ("fma", 4), ("fp32x2", 4), ("xu", 8)]
    weights = rng.choice([(3, 3, 3, 1), (1, 4, 1, 2), (4, 1, 1, 0)])
    issue = rng.choice([1, 2])
    live = []
    while len(loop.ops) < size:
        if len(live) < 2 or rng.random() < 0.15:
            live.append(tma_load(loop, 1) if rng.random() < 0.5 else loop.simple("lsu", rng.choice([2, 4]), 20))
        elif rng.random() < 0.12 and len(live) > 2:
            value = live.pop(rng.randrange(len(live)))
            store = loop.simple("lsu", rng.choice([2, 4]))
            loop.edge(value, store)
        else:
            unit, latency = rng.choices(units, weights)[0]
            op = loop.simple(unit, issue * rng.choice([1, 2]), latency)
            for value in rng.sample(live, rng.choice([1, 2])):
                loop.edge(value, op)
            live.append(op)
            if len(live) > 6:
                live.pop(0)
    if rng.random() < 0.5:
        op = rng.randrange(size)
        loop.edge(op, op, None, 1)
    return loop


def machine(rng, kinds):
    """Units with their capacities, and pools."""
    units = {k: rng.choice([1, 1, 1, 2, 3]) for k in range(1, kinds + 1)}
    return units, {p: rng.choice([2, 3, 4, 6]) for p in range(rng.choice([0, 1, 2]))}


def random_uses(rng, units, count, longest, reach):
    """Reservations of different units with offsets below `reach`."""
    picked = rng.sample(sorted(units), min(count, len(units)))
    return [(u, rng.randrange(reach + 1), rng.randint(1, longest), rng.randint(1, units[u])) for u in picked]


def layered(rng, size, name):
    """Layers of ops; edges go to later layers, some come back with a distance."""
    units, pools = machine(rng, rng.choice([3, 4, 6]))
    loop = Loop(name, units, pools)
    wide = rng.choice([2, 4, 8])
    layers = []
    while len(loop.ops) < size:
        layer = []
        for _ in range(min(rng.randint(1, wide), size - len(loop.ops))):
            uses = random_uses(rng, units, rng.choice([1, 1, 2]), rng.choice([2, 5]), rng.choice([0, 3]))
            draws = [(p, rng.randint(1, max(1, pools[p] // 2)), rng.randint(1, 6)) for p in pools if rng.random() < 0.4]
            op = loop.op(rng.randint(1, 12), uses, draws)
            if layers:
                for source in rng.sample(layers[-1], min(len(layers[-1]), rng.randint(1, 2))):
                    loop.edge(source, op)
                if rng.random() < 0.2:
                    loop.edge(rng.choice(rng.choice(layers)), op)
            layer.append(op)
        layers.append(layer)
    for _ in range(rng.randint(0, size // 8)):
        first, last = sorted(rng.sample(range(len(layers)), 2)) if len(layers) > 1 else (0, 0)
        loop.edge(rng.choice(layers[last]), rng.choice(layers[first]), None, rng.randint(1, 3))
    return loop


def tiling(rng, name, size, full, longest, extra, reach):
    """A loop made from a table of `full` packed units: (loop, interval, hidden starts).

    The packed units have no free cycle, so no interval is smaller. Other reservations are added where they fit.
    """
    kinds = rng.choice([4, 5, 6])
    loop = Loop(name, {k: 1 for k in range(1, kinds + 1)})
    per_unit = -(-size // full)
    interval = max(sum(rng.randint(1, longest) for _ in range(per_unit)), per_unit, longest + reach)
    places = []
    for unit in range(1, full + 1):
        pieces = min(per_unit, size - len(places))
        cuts = sorted(rng.sample(range(1, interval), pieces - 1))
        turn = rng.randrange(interval)
        places += [(unit, turn + a, b - a) for a, b in zip([0, *cuts], [*cuts, interval])]
    rng.shuffle(places)
    taken = {k: [k <= full] * interval for k in loop.units}
    starts = []
    for unit, row, duration in places:
        lead = rng.randrange(reach + 1)
        start = row - lead + interval * rng.randint(0, 3)
        uses = [(unit, lead, duration, 1)]
        for other in rng.sample(range(full + 1, kinds + 1), min(extra, kinds - full)):
            for _ in range(8):
                offset, length = rng.randrange(reach + 1), rng.randint(1, longest)
                rows = [(start + offset + k) % interval for k in range(length)]
                if not any(taken[other][r] for r in rows) and length <= interval:
                    for r in rows:
                        taken[other][r] = True
                    uses.append((other, offset, length, 1))
                    break
        loop.op(rng.randint(1, 16), uses)
        starts.append(start)
    least = min(starts)
    return loop, interval, [s - least for s in starts]


def dependences(rng, loop, interval, starts, count, slack):
    """Edges that the hidden schedule keeps, with up to `slack` cycles to spare."""
    size = len(starts)
    for _ in range(count):
        a, b = rng.randrange(size), rng.randrange(size)
        distance = rng.choice([0, 0, 0, 1, 2])
        room = starts[b] - starts[a] + interval * distance
        if a == b or room <= 0:
            continue
        loop.edge(a, b, max(1, min(room - rng.randint(0, slack), 40)), distance)


def circuits(rng, loop, interval, starts, lengths, spare):
    """Recurrences over disjoint ops that leave `spare` cycles between them and the interval."""
    order = list(range(len(starts)))
    rng.shuffle(order)
    at = 0
    for length in lengths:
        ring = sorted(order[at:at + length], key=lambda a: (starts[a], a))
        at += length
        if len(ring) < 2:
            break
        for a, b in zip(ring, ring[1:]):
            loop.edge(a, b, starts[b] - starts[a])
        first, last = ring[0], ring[-1]
        distance = (starts[last] - starts[first]) // interval + 1
        loop.edge(last, first, starts[first] - starts[last] + interval * distance - spare, distance)


def rigid(rng, size, name):
    """Ops of several reservations at fixed offsets; by turns without a plan, with one, and with circuits as tight."""
    kind = rng.choice(["free", "tight", "packed"])
    if kind == "packed":
        loop, interval, starts = tiling(rng, name, size, rng.choice([1, 2]), rng.choice([3, 6]), rng.choice([2, 3]), 6)
        circuits(rng, loop, interval, starts, [rng.randint(2, 5) for _ in range(size // 8)], 0)
        dependences(rng, loop, interval, starts, size, 8)
        loop.name += f"/opt={interval}"
        return loop
    units = {k: rng.choice([1, 1, 1, 2]) for k in range(1, rng.choice([3, 4, 5]) + 1)}
    loop = Loop(name, units)
    shapes = [random_uses(rng, units, rng.choice([2, 3]), rng.choice([2, 4, 6]), rng.choice([4, 8, 12])) for _ in range(rng.choice([2, 4, size]))]
    for a in range(size):
        loop.op(rng.randint(2, 14), rng.choice(shapes))
        if a and rng.random() < 0.7:
            loop.edge(rng.randrange(max(0, a - 6), a), a)
    busy = {}
    for op in loop.ops:
        for use in op["uses"]:
            busy[use["slot"]] = busy.get(use["slot"], 0) + use["duration"] * use["occupancy"]
    bound = max(-(-total // units[slot]) for slot, total in busy.items())
    if kind == "tight":
        for _ in range(max(1, size // 10)):
            ring = sorted(rng.sample(range(size), min(size, rng.randint(2, 6))))
            distance = rng.choice([1, 1, 2])
            cuts = sorted(rng.randrange(bound * distance) for _ in ring[1:])
            for a, b, latency in zip(ring, ring[1:], [y - x for x, y in zip([0, *cuts], cuts)]):
                loop.edge(a, b, latency)
            loop.edge(ring[-1], ring[0], bound * distance - cuts[-1], distance)
    return loop


def grouped(rng, size, name):
    """A random graph in which ops of one group share a stage and some stages are capped."""
    units, pools = machine(rng, rng.choice([3, 4]))
    loop = Loop(name, units, pools)
    groups = rng.randint(1, max(1, size // 4))
    deep = rng.choice([0.0, 0.2, 0.5])
    for a in range(size):
        uses = random_uses(rng, units, rng.choice([1, 2]), rng.choice([3, 6]), rng.choice([0, 0, 4]))
        group = a * groups // size if rng.random() < 0.6 else None
        loop.op(rng.randint(1, 10), uses, (), group, rng.randint(1, 4) if rng.random() < deep else 0)
        for _ in range(rng.choice([0, 1, 1, 2]) if a else 0):
            loop.edge(rng.randrange(max(0, a - 10), a), a)
    for _ in range(rng.randint(0, size // 8)):
        first, last = sorted(rng.sample(range(size), 2))
        loop.edge(last, first, None, rng.randint(1, 2))
    return loop


def planted(rng, size, name):
    """Made from a schedule in which one or more units have no free cycle."""
    loop, interval, starts = tiling(rng, name, size, rng.choice([1, 1, 2, 3]), rng.choice([3, 6, 8]), rng.choice([0, 1, 2]), rng.choice([0, 3]))
    dependences(rng, loop, interval, starts, 2 * size, 12)
    loop.name += f"/opt={interval}"
    return loop


def pinned(rng, size, name):
    """Planted, and recurrences without slack that fix ops to one another."""
    loop, interval, starts = tiling(rng, name, size, rng.choice([1, 1, 2]), rng.choice([3, 6, 8]), rng.choice([0, 1, 2]), rng.choice([0, 3]))
    share = rng.choice([0.25, 0.5, 0.9])
    lengths = []
    while sum(lengths) < share * size:
        lengths.append(rng.randint(2, 6))
    circuits(rng, loop, interval, starts, lengths, 0)
    dependences(rng, loop, interval, starts, size, 12)
    loop.name += f"/opt={interval}"
    return loop


def woven(rng, size, name):
    """Pinned, with longer recurrences, and dependences from every op on the ones shortly before: most ops are one recurrence."""
    loop, interval, starts = tiling(rng, name, size, 1, rng.choice([4, 16, 48]), 0, 0)
    lengths = []
    share = rng.uniform(0.2, 0.95)
    while sum(lengths) < share * size:
        lengths.append(rng.choice([2, 3, 4, 6, 10, 20]))
    circuits(rng, loop, interval, starts, lengths, 0)
    order = sorted(range(size), key=lambda a: (starts[a], a))
    for k in range(1, size):
        for _ in range(rng.choice([0, 1, 1, 2])):
            a, b = order[rng.randrange(max(0, k - 12), k)], order[k]
            if starts[b] > starts[a]:
                loop.edge(a, b, min(loop.ops[a]["latency"], starts[b] - starts[a]))
    loop.name += f"/opt={interval}"
    return loop


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--sizes", default="8,12,16,24,32,48,64")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    documents = []
    for family in args.families.split(","):
        for size in map(int, args.sizes.split(",")):
            for seed in range(args.first, args.first + args.seeds):
                name = f"{family}/{size}/{seed}"
                # Strings as seeds give the same stream in every version of Python.
                documents.append(globals()[family](random.Random(name), size, name).document())
    print("[" + ",\n".join(json.dumps(d) for d in documents) + "]")


if __name__ == "__main__":
    sys.exit(main())
