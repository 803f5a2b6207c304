"""Steps that find what is wrong: each returns a dict, with `wrong` as a list of texts."""

import json
import re

import arrays
import numpy as np


def device(s):
    """What runs here."""
    import tileas

    found = {"tileas": tileas.version}
    if s.dry:
        found["name"] = tileas.Device.emulator("sm_90a").name
        return found
    import torch
    import triton

    one = tileas.Device.cuda(0)
    query = "name,driver_version,clocks.max.sm,memory.total"
    _, line = s.call(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"])
    found |= {
        "name": one.name,
        "target": one.target,
        "sms": one.sms,
        "nvidia-smi": line.strip(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
    }
    kernel = tileas.compile((s.here / "examples/gemm_f16.tileas").read_text(), device=one)
    found["assembler"] = kernel.assembler
    return found


def suite(s):
    """The JIT's tests, on the GPU besides the emulator."""
    env = {} if s.dry else {"TILEAS_CUDA": "0"}
    status, output = s.call([s.here / "bin/devices", "--test-threads", "4"], 200, **env)
    tests = re.findall(r"^test (\S+) \.\.\. (\w+)", output, re.M)
    wrong = [name for name, result in tests if result == "FAILED"]
    if status and not wrong:
        wrong = [output[-2000:]]
    return {"tests": len(tests), "wrong": wrong}


def validate(s):
    """The emulator's micro-kernels. Where the two disagree, the GPU is right."""
    script = s.here / "emu/validate/validate_gpu.py"
    json_file = s.out / "emulator.json"
    more = ["--dry"] if s.dry else []
    dumps = ["--dumps", s.here / "emu/dumps", "--json", json_file]
    import sys

    status, output = s.call([sys.executable, script, *dumps, *more], 150)
    found = {"last lines": output.strip().splitlines()[-6:], "wrong": []}
    if status:
        found["wrong"] = re.findall(r"^.*(?:FAIL|wrong|differ|fault).*$", output, re.M)[:40] or [output[-1500:]]
    return found


GEMMS = [(200, 264, 136), (1024, 768, 512), (4096, 4096, 1000)]
ATTENTIONS = [(1, 128, 200), (2, 1000, 1000), (4, 4096, 4096)]


def by_hand(s):
    """Kernels written by hand for sm_90a."""
    import tileas

    on = tileas.Device.emulator("sm_90a", 2) if s.dry else tileas.Device.cuda(0)
    if on.target != "sm_90a":
        return {"left out": f"they are for sm_90a, this is {on.target}"}
    found = {"results": {}, "wrong": []}
    jit = tileas.Jit(on)
    x = arrays.Maker(s.dry, 1)

    def judge(name, got, want, tolerance):
        worst = float(abs(x.numpy(got).astype(np.float64) - x.numpy(want)).max())
        found["results"][name] = worst
        if not worst <= tolerance:
            found["wrong"].append(f"{name}: differs by {worst}")

    def load(name):
        return jit.load((s.here / f"ptx/{name}.ptx").read_text(), (s.here / f"ptx/{name}.json").read_text())

    gemm = load("gemm_coop_sm90a")
    for m, n, k in GEMMS[:1] if s.dry else GEMMS:
        a, b, bias = (x.ints(shape, "f16") for shape in [(m, k), (n, k), (n,)])
        c = x.full((m, n), "f16", float("nan"))
        gemm(a, b, bias, c, -(-k // 64), -(-m // 128), -(-n // 256))
        judge(f"gemm_coop {m}x{n}x{k}", c, x.relu(x.wide(a) @ x.wide(b).T + x.wide(bias)), 2.0)
    attention = load("attention_fwd_sm90a")
    for heads, queries, keys in ATTENTIONS[:1] if s.dry else ATTENTIONS:
        q, k, v = (x.normal((heads, rows, 128), "f16") for rows in (queries, keys, keys))
        o = x.full((heads, queries, 128), "f16", float("nan"))
        scale = 128**-0.5
        attention(q, k, v, o, keys, scale * 1.4426950408889634)
        judge(f"attention {heads}x{queries}x{keys}", o, x.attention(q, k, v, scale), 4e-3)
    x = arrays.Maker(s.dry, 2)
    data = x.normal((1024,), "f32")
    swapped = x.full((1024,), "f32", 0)
    try:
        load("cluster_pairs_sm90a")(data, swapped)
        judge("clusters of two", swapped, data.reshape(4, 2, 128)[:, [1, 0]].reshape(1024), 0)
    except tileas.Error as e:
        # The emulator knows no clusters.
        found["results"]["clusters of two"] = e.code
        if not s.dry:
            found["wrong"].append(f"clusters of two: {e}")
    return found


def cases_of(path):
    """Options and cases of a file, from its comments."""
    text = path.read_text()
    joined = re.sub(r"\n;\+\s*", " ", text)
    options = re.findall(r"^; set (\S+)", joined, re.M)
    return text, options, [json.loads(c) for c in re.findall(r"^; case: (.*)$", joined, re.M)]


def kernels(s):
    """Every kernel with its cases: results against formulas in torch (numpy where it is dry)."""
    import tileas

    on = tileas.Device.emulator("sm_90a") if s.dry else tileas.Device.cuda(0)
    found = {"right": 0, "refused": {}, "not for this target": [], "wrong": []}
    jits = {}
    for path in sorted((s.here / "kernels").glob("*.tileas")):
        text, options, cases = cases_of(path)
        name = path.stem
        if not cases or s.dry and "dot %" in text:
            continue
        if f'target "{on.target}"' not in text and 'target "sm' in text:
            found["not for this target"].append(name)
            continue
        try:
            jit = jits.setdefault(tuple(options), tileas.Jit(on, options=options))
            kernel = jit.compile(text)
        except tileas.Error as e:
            found["refused"][name] = e.code
            continue
        for number, case in enumerate(cases):
            try:
                problem = run_case(s.dry, on, kernel, text, options, case)
            except Exception as e:
                problem = f"{type(e).__name__}: {e}"
            if problem:
                found["wrong"].append(f"{name}, case {number}: {problem[:600]}")
            else:
                found["right"] += 1
            if s.left() < 30:
                found["left out"] = f"after {name}: no time"
                return found
    return found


def number(x, views):
    """A number of a case: as it is, or an expression over extents such as `ceildiv(a.d1, 64)`."""
    if not isinstance(x, str):
        return x
    extent = re.sub(r"(\w+)\.d(\d)", lambda m: str(views[m[1]]["shape"][int(m[2])]), x)
    return eval(extent, {"ceildiv": lambda a, b: -(-a // b), "nan": float("nan"), "inf": float("inf")})


def run_case(dry, on, kernel, text, options, case):
    """What is wrong with the results of a case; None: nothing."""
    import tileas

    x = arrays.Maker(dry, case.get("seeds", [1])[0])
    views = {name: x.view(view) for name, view in case["views"].items()}
    before = {name: x.copy(array) for name, array in views.items()}
    scalars = {name: number(value, case["views"]) for name, value in case.get("scalars", {}).items()}
    order = [arg["name"] for arg in kernel.metadata["args"]]
    grid = tuple(number(n, case["views"]) for n in case.get("grid", [])) or None
    kernel[grid](*({**views, **scalars}[name] for name in order))
    if not case.get("expect"):
        # No formula: the emulator says what comes out.
        if dry:
            return None
        other = tileas.compile(text, device=tileas.Device.emulator(on.target), options=options)
        copies = {name: x.numpy(array) for name, array in before.items()}
        other[grid](*({**copies, **scalars}[name] for name in order))
        for name, want in copies.items():
            problem = differs(x, views[name], want.astype(np.float64), 2**-6)
            if problem:
                return f"{name}: {problem}, against the emulator"
        return None
    for one in case["expect"]:
        names = {n: x.wide(a) for n, a in before.items()} | scalars
        want = x.formula(one["expr"], names)
        tolerance = one.get("tol", case.get("tol", 0))
        if isinstance(tolerance, str):
            tolerance = 0 if tolerance == "exact" else 2.0 ** int(tolerance.removeprefix("2^"))
        problem = differs(x, views[one["view"]], x.rounded(want, views[one["view"]]), tolerance)
        if problem:
            return f"{one['view']}: {problem}, against {one['expr']}"
    return None


def differs(x, got, want, tolerance):
    """How an array differs from numbers, if by more than the tolerance times the largest of them."""
    got = x.numpy(got).astype(np.float64)
    want = np.broadcast_to(want, got.shape)
    both_nan = np.isnan(got) & np.isnan(want)
    scale = np.nanmax(np.abs(np.where(np.isfinite(want), want, 0)), initial=0)
    bad = ~(np.abs(got - want) <= tolerance * scale) & ~both_nan & ~(got == want)
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {got.size} elements differ, the first at {at}: {got[at]}, not {want[at]}"
