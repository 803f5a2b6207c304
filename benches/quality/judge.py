#!/usr/bin/env python3
"""Smallest initiation interval of loops, by a constraint solver (CP-SAT) that knows nothing of the scheduler.

In: `tileas-schedule/1` documents (files with one document or a list of them). Out: a TSV line per loop: name, ops,
lower bound, interval of the document's schedule if it has one, proven optimum (or the interval range still open),
seconds. Each interval from the bound on is a feasibility problem of its own; the first feasible one is the optimum. Schedules in the
documents are checked first, cycle by cycle.

Needs: the Python package `ortools`. Usage: judge.py [--seconds 20] [--workers 1] [--scratch] FILE...
"""

import argparse
import json
import sys
import time

from ortools.sat.python import cp_model


def positive_cycle(doc, ii):
    """Whether some recurrence does not fit into the interval."""
    numbers = {op["id"]: k for k, op in enumerate(doc["ops"])}
    arcs = [(numbers[e["from"]], numbers[e["to"]], e["latency"] - ii * e["distance"]) for e in doc["edges"]]
    longest = [0] * len(numbers)
    for _ in range(len(numbers) + 1):
        changed = False
        for a, b, weight in arcs:
            if longest[a] + weight > longest[b]:
                longest[b], changed = longest[a] + weight, True
        if not changed:
            return False
    return True


def lower_bound(doc):
    """Busy cycles over capacity, per slot and pool, and the recurrences."""
    busy = {}
    for op in doc["ops"]:
        for use in op["uses"]:
            key = ("slot", use["slot"])
            busy[key] = busy.get(key, 0) + use["duration"] * use["occupancy"]
        for use in op["pools"]:
            key = ("pool", use["index"])
            busy[key] = busy.get(key, 0) + use["duration"] * use["count"]
    caps = {("slot", s["id"]): s["capacity"] for s in doc["slots"]}
    caps.update({("pool", p["index"]): p["capacity"] for p in doc["pools"]})
    low = max([1] + [-(-total // caps[key]) for key, total in busy.items()])
    high = max(low, 1 + sum(max(0, e["latency"]) for e in doc["edges"]))
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if positive_cycle(doc, middle) else (low, middle)
    return low


def check(doc):
    """What the document's schedule violates, read literally from the schema: a list of texts."""
    ii, wrong = doc["ii"], []
    start = {op["id"]: op["start"] for op in doc["ops"]}
    for e in doc["edges"]:
        if start[e["to"]] < start[e["from"]] + e["latency"] - ii * e["distance"]:
            wrong.append(f"edge {e}")
    caps = {("slot", s["id"]): s["capacity"] for s in doc["slots"]}
    caps.update({("pool", p["index"]): p["capacity"] for p in doc["pools"]})
    held = {key: [0] * ii for key in caps}
    stage_of = {}
    for op in doc["ops"]:
        if op["start"] < 0 or op["stage"] != op["start"] // ii or op["stage"] >= doc["stage_count"]:
            wrong.append(f"stage of {op['id']}")
        if 0 < op["max_depth"] < op["stage"]:
            wrong.append(f"depth of {op['id']}")
        if op["group"] is not None and stage_of.setdefault(op["group"], op["stage"]) != op["stage"]:
            wrong.append(f"group of {op['id']}")
        reservations = [(("slot", u["slot"]), u["offset"], u["duration"], u["occupancy"]) for u in op["uses"]]
        reservations += [(("pool", u["index"]), 0, u["duration"], u["count"]) for u in op["pools"]]
        for key, offset, duration, units in reservations:
            for k in range(duration):
                held[key][(op["start"] + offset + k) % ii] += units
    wrong += [f"{key} at {row}" for key, rows in held.items() for row, n in enumerate(rows) if n > caps[key]]
    if len({(op["stage"], op["order"]) for op in doc["ops"]}) != len(doc["ops"]):
        wrong.append("order")
    return wrong


def feasible(doc, ii, seconds, workers):
    """True, False, or None where the time ran out."""
    model = cp_model.CpModel()
    path = sum(max(0, e["latency"]) for e in doc["edges"])
    stages = min(path // ii, sum(op["latency"] for op in doc["ops"]) // ii) + len(doc["ops"]) + 2
    row, stage = {}, {}
    for op in doc["ops"]:
        last = op["max_depth"] if op["max_depth"] > 0 else stages
        row[op["id"]] = model.new_int_var(0, ii - 1, "")
        stage[op["id"]] = model.new_int_var(0, last, "")
    start = {u: row[u] + ii * stage[u] for u in row}
    for e in doc["edges"]:
        model.add(start[e["to"]] - start[e["from"]] >= e["latency"] - ii * e["distance"])
    groups = {}
    for op in doc["ops"]:
        if op["group"] is not None:
            first = groups.setdefault(op["group"], op["id"])
            model.add(stage[op["id"]] == stage[first])
    demands = {}
    for op in doc["ops"]:
        reservations = [(("slot", u["slot"]), u["offset"], u["duration"], u["occupancy"]) for u in op["uses"]]
        reservations += [(("pool", u["index"]), 0, u["duration"], u["count"]) for u in op["pools"]]
        for key, offset, duration, units in reservations:
            if duration == 0 or units == 0:
                continue
            whole, part = divmod(duration, ii)
            at = demands.setdefault(key, [0, [], []])
            at[0] += whole * units
            if part == 0:
                continue
            place = row[op["id"]] if offset % ii == 0 else None
            if place is None:
                place = model.new_int_var(0, ii - 1, "")
                turn = model.new_bool_var("")
                model.add(place == row[op["id"]] + offset % ii - ii * turn)
            # Cycles II to 2 II of two turns in a row are one full turn of the table.
            for shift in (0, ii):
                at[1].append(model.new_fixed_size_interval_var(place + shift, part, ""))
                at[2].append(units)
    caps = {("slot", s["id"]): s["capacity"] for s in doc["slots"]}
    caps.update({("pool", p["index"]): p["capacity"] for p in doc["pools"]})
    for key, (always, intervals, units) in demands.items():
        if always > caps[key]:
            return False
        if all(u == 1 for u in units) and caps[key] - always == 1:
            model.add_no_overlap(intervals)
        elif intervals:
            model.add_cumulative(intervals, units, caps[key] - always)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return True
    return False if status == cp_model.INFEASIBLE else None


def judge(doc, seconds, workers):
    """(proven lower bound, smallest interval shown feasible or None)."""
    bounds = doc.get("bounds", {})
    ours = doc.get("ii")
    # The document's bounds are proofs of the program under test: only the plain one is trusted.
    ii, open_from = lower_bound(doc), None
    limit = ours if ours is not None else ii + sum(op["latency"] for op in doc["ops"]) + 1
    while ii <= limit:
        if ours is not None and ii == ours and open_from is None:
            return ii, ii
        answer = feasible(doc, ii, seconds, workers)
        if answer:
            return (open_from or ii), ii
        if answer is None and open_from is None:
            open_from = ii
        ii += 1
    return (open_from or ii), ours


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--scratch", action="store_true", help="search without the document's own schedule")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    for name in args.files:
        with open(name, encoding="utf-8") as file:
            docs = json.load(file)
        for doc in docs if isinstance(docs, list) else [docs]:
            if args.scratch:
                doc.pop("ii", None)
            elif "ii" in doc and (wrong := check(doc)):
                sys.exit(f"{doc['name']}: illegal: {wrong[:5]}")
            begin = time.monotonic()
            low, high = judge(doc, args.seconds, args.workers)
            took = time.monotonic() - begin
            ours = doc.get("ii", "-")
            print(doc["name"], len(doc["ops"]), lower_bound(doc), ours, low, high, f"{took:.2f}", sep="\t", flush=True)


if __name__ == "__main__":
    sys.exit(main())
