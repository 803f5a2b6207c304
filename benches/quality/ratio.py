#!/usr/bin/env python3
"""How much longer a constraint solver takes than the scheduler for the same loops, as Markdown.

In: the TSV of the example `schedule_quality` and that of `judge.py --scratch` over the same loops (one worker; building
the models is included). Out: per family the median times of both, the median ratio, and how often each has the smaller
interval.

Usage: ratio.py SCHEDULE.tsv JUDGE.tsv
"""

import statistics
import sys


def read(name):
    with open(name, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file if line.strip()]


def main():
    judged = {row[0]: row for row in read(sys.argv[2])}
    families = {}
    for row in read(sys.argv[1]):
        if row[0] not in judged:
            continue
        other = judged[row[0]]
        seconds, found = float(other[6]), other[5]
        theirs = int(found) if found not in ("None", "-") else None
        ours = int(row[3])
        smaller = (theirs is None or ours < theirs) - (theirs is not None and theirs < ours)
        families.setdefault(row[1], []).append((float(row[8]), seconds * 1e6, smaller))
    print("| family | loops | scheduler, median | CP-SAT, median | ratio, median | smaller interval: scheduler / CP-SAT |")
    print("|---|---|---|---|---|---|")
    for family, loops in families.items():
        ours, theirs = (statistics.median(loop[k] for loop in loops) for k in (0, 1))
        ratio = statistics.median(loop[1] / loop[0] for loop in loops)
        better, worse = (sum(loop[2] == sign for loop in loops) for sign in (1, -1))
        print(f"| {family} | {len(loops)} | {ours:.0f} µs | {theirs / 1e6:.2f} s | {ratio:.0f} | {better} / {worse} |")


if __name__ == "__main__":
    main()
