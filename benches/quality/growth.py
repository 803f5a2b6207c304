#!/usr/bin/env python3
"""Scheduling time over the size of the loop, as an SVG with logarithmic axes.

In: the TSV of the example `schedule_quality`. Out: one line per family, the median over its loops of a size. Nothing
but the standard library.

Usage: growth.py SCHEDULE.tsv > growth.svg
"""

import math
import statistics
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 440, 70, 20, 130, 50
COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#444444"]


def main():
    times = {}
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            row = line.rstrip("\n").split("\t")
            times.setdefault(row[1], {}).setdefault(int(row[9]), []).append(float(row[8]))
    sizes = sorted({size for family in times.values() for size in family})
    medians = {f: {n: statistics.median(t) for n, t in of.items()} for f, of in times.items()}
    flat = [t for of in medians.values() for t in of.values()]
    low, high = math.floor(math.log10(min(flat))), math.ceil(math.log10(max(flat)))
    first, last = math.log10(sizes[0]), math.log10(sizes[-1])

    def x(size):
        return LEFT + (math.log10(size) - first) / max(last - first, 1e-9) * (WIDTH - LEFT - RIGHT)

    def y(micros):
        return HEIGHT - BOTTOM - (math.log10(micros) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(low, high + 1):
        at, micros = y(10**power), 10**power
        label = f"{micros} µs" if micros < 1000 else f"{micros // 1000} ms" if micros < 10**6 else f"{micros // 10**6} s"
        out.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    for size in sizes:
        out.append(f'<path d="M{x(size):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>')
        out.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">operations</text>')
    for k, (family, of) in enumerate(medians.items()):
        colour = COLOURS[k % len(COLOURS)]
        points = " ".join(f"{x(n):.1f},{y(t):.1f}" for n, t in sorted(of.items()))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 14 + 18 * k}" fill="{colour}">{family}</text>')
    print("\n".join(out) + "\n</svg>")


if __name__ == "__main__":
    main()
