#!/usr/bin/env python3
"""Table of schedule quality from the scheduler's and the judge's results, as Markdown.

In: the TSV of the example `schedule_quality` and, if there is one, that of `judge.py` for the loops it left open.
Out: per family the number of loops, how many intervals are proven optimal, how many are as small as any the judge
found, mean and largest ratio to the best known lower bound, and scheduling times; then the mean ratio per family and size
beside those of simpler schedulers.

A third file, that of the example `exact_labels`, adds what exact mode proved or found.

Usage: table.py SCHEDULE.tsv [JUDGE.tsv [LABELS.tsv...]]
"""

import sys


def read(name):
    with open(name, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file if line.strip()]


def main():
    judged = {row[0]: row for row in read(sys.argv[2])} if len(sys.argv) > 2 else {}
    labels = {row[0]: row for name in sys.argv[3:] for row in read(name)}
    families = {}
    sizes = {}
    for name, family, _ops, ii, bound, known, proven, _rung, micros, size, *others in read(sys.argv[1]):
        ii, lower = int(ii), int(bound) if known == "-" else int(known)
        optimal = proven == "true"
        open_gap = False
        if optimal:
            lower = ii
        elif name in judged or name in labels:
            best = ii
            # The judge's own lower bound leaves recurrences out; all are proofs.
            if name in judged:
                low, high = int(judged[name][4]), judged[name][5]
                lower = max(lower, low)
                best = min(best, int(high)) if high not in ("None", "-") else best
            if name in labels:
                lower, best = max(lower, int(labels[name][6])), min(best, int(labels[name][7]))
            optimal = ii <= lower
            open_gap = ii == best and best > lower
        families.setdefault(family, []).append((ii / lower, optimal, open_gap, float(micros)))
        if not others:
            continue
        # A scheduler that finds nothing ends with the serial schedule.
        simple = [int(other if other != "-" else others[0]) / lower for other in others]
        sizes.setdefault((family, int(size)), []).append([ii / lower, *simple])
    print("| family | loops | proven optimal | best known, unproven | mean ratio | largest ratio | median µs | largest ms |")
    print("|---|---|---|---|---|---|---|---|")
    rows = list(families.items())
    rows.append(("all", [r for family in families.values() for r in family]))
    for family, loops in rows:
        n = len(loops)
        times = sorted(r[3] for r in loops)
        print(
            f"| {family} | {n} | {100 * sum(r[1] for r in loops) / n:.1f} % | {100 * sum(r[2] for r in loops) / n:.1f} % "
            f"| {sum(r[0] for r in loops) / n:.4f} | {max(r[0] for r in loops):.3f} "
            f"| {times[n // 2]:.0f} | {times[-1] / 1000:.1f} |"
        )
    print()
    print("| family | ops | all strategies | Rau only | all arms | permute only | serial |")
    print("|---|---|---|---|---|---|---|")
    for (family, size), loops in sizes.items():
        mean = [sum(column) / len(loops) for column in zip(*loops)]
        print(f"| {family} | {size} | {mean[0]:.4f} | {mean[3]:.3f} | {mean[2]:.3f} | {mean[4]:.3f} | {mean[1]:.2f} |")


if __name__ == "__main__":
    main()
