"""Comparison rules of the launch descriptions, on raw bytes (no numpy).

In: wanted and found bytes of a section, its rule. Out: number of elements, of those outside the
rule, the largest deviation in the rule's unit and the first bad one.
Rules: `exact`; `ulp` n, `rel` e, `abs` e on `f32`, `f16` or `bf16` elements; `lg2` and `trig`, whose bound
depends on the input; `report` never fails. NaN agrees with NaN; a flushed result agrees with one
just above the subnormal range.
Source: PTX ISA, error statements of the approximate instructions.
"""
import math
import struct

WIDTH = {"f32": 4, "f16": 2, "bf16": 2}
LEAST = {"f32": 2.0 ** -126, "f16": 2.0 ** -14, "bf16": 2.0 ** -126}
DIGITS = {"f32": 23, "f16": 10, "bf16": 7}
TOP = {"f32": 127, "f16": 15, "bf16": 127}


def value(raw, kind):
    if kind == "bf16":
        return struct.unpack("<f", b"\0\0" + raw)[0]
    return struct.unpack("<f" if kind == "f32" else "<e", raw)[0]


def unit(x, kind):
    """Distance between neighbours at x."""
    if not math.isfinite(x):
        return 2.0 ** (TOP[kind] - DIGITS[kind])
    e = max(math.frexp(x)[1] - 1, 1 - TOP[kind]) if x else 1 - TOP[kind]
    return 2.0 ** (e - DIGITS[kind])


def limit(rule, want, x):
    """Largest allowed |found - want|; half a unit is added for the rounding of `want`."""
    kind = rule["type"]
    half = unit(want, kind)
    name = rule["rule"]
    if name == "ulp":
        return rule["n"] * unit(want, kind)
    if name == "rel":
        return abs(want) * rule["e"] + half
    if name == "abs":
        return rule["e"] + half
    if name == "lg2":
        return (2.0 ** -22 if 0.5 < x < 2 else abs(want) * 2.0 ** -22) + half
    if name == "trig":
        return math.inf if abs(x) > 100 * math.pi else (2 ** -20.5 if abs(x) <= 2 * math.pi else 2 ** -14.7) + half
    raise ValueError(f"unknown rule {name}")


def compare(want, found, rule, inputs=None):
    """Result of one section: `{"elements", "bad", "worst", "first"}`."""
    name = rule.get("rule", "exact")
    if name in ("exact", "report"):
        n = len(want) // 4 or 1
        bad = [i for i in range(0, len(want), 4) if want[i:i + 4] != found[i:i + 4]]
        first = None if not bad else f"byte {bad[0]}: want {want[bad[0]:bad[0] + 4].hex()} found {found[bad[0]:bad[0] + 4].hex()}"
        return {"elements": n, "bad": 0 if name == "report" else len(bad), "worst": float(len(bad)), "first": first}
    kind, w = rule["type"], WIDTH[rule["type"]]
    bad, worst, first = 0, 0.0, None
    for i in range(0, len(want), w):
        a, b = value(want[i:i + w], kind), value(found[i:i + w], kind)
        x = value(inputs[i:i + w], kind) if inputs else 0.0
        if want[i:i + w] == found[i:i + w] or math.isnan(a) and math.isnan(b):
            continue
        ok = False
        if math.isinf(a) or math.isinf(b):
            # The largest numbers may stand for infinity of the same sign.
            other = b if math.isinf(a) else a
            ok = not math.isnan(other) and (a > 0) == (b > 0) and abs(other) >= 2.0 ** TOP[kind] * (2 - 2.0 ** -DIGITS[kind] * 4)
            d = 0.0 if ok else math.inf
        elif math.isnan(a) or math.isnan(b):
            d = math.inf
        else:
            d = abs(a - b) / unit(a, kind)
            bound = limit(rule, a, x)
            ok = abs(a - b) <= bound or max(abs(a), abs(b)) < LEAST[kind] * 1.001 and 0.0 in (a, b)
        worst = max(worst, d)
        if not ok:
            bad += 1
            first = first or f"element {i // w}: input {x!r} want {a!r} found {b!r}"
    return {"elements": len(want) // w, "bad": bad, "worst": worst, "first": first}
