#!/usr/bin/env python3
"""Runs the micro-kernels on a GPU and compares bytes with the formulas and with the emulator.

    validate_gpu.py --dumps DIR            GPU against formulas and the emulator's dumps
    validate_gpu.py --dry --dumps DIR      no GPU: the dumps take the GPU's place
    validate_gpu.py --self-test            no GPU, no emulator: the script checks itself

In: launch descriptions (tests/micro/cases), their data, dump files `<case>.<buffer>.bin` and
`index.json` (`{"cases": {name: "ok" or an error text}}`). Out: a table for
docs/emulator-validation.md (`--table`), all results as JSON (`--json`), the GPU's own bytes
(`--save`, in the form of the dumps). Exit status 1 if something disagrees.
Needs Python 3.8 and libcuda; no packages. A kernel that hangs or faults costs one worker process.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from compare import compare

HERE = Path(__file__).resolve().parent
MICRO = HERE.parent / "tests" / "micro"
# Target of the PTX -> compute capability that runs it.
CAPABILITY = {"sm_90a": [9, 0], "sm_100a": [10, 0], "sm_100f": [10, 0], "sm_103a": [10, 3]}


def load_cases(folder, only):
    cases = []
    for path in sorted((folder / "cases").glob("*.json")):
        cases += json.loads(path.read_text())
    return [c for c in cases if not only or re.search(only, c["name"])]


def initial(folder, b):
    """Bytes of a buffer before the launch."""
    if "file" in b:
        return (folder / b["file"]).read_bytes()
    if "pattern" in b:
        return b"".join(((i + b["pattern"]) * 2654435761 & 0xFFFFFFFF).to_bytes(4, "little") for i in range(b["bytes"] // 4))
    return bytes([b["fill"]]) * b["bytes"]


def target_of(folder, case):
    return re.search(r"^\.target\s+(\w+)", (folder / case["kernel"]).read_text(), re.M).group(1)


def run_case(driver, folder, case, out):
    """One launch; writes the bytes of every buffer with expectations to `out`."""
    module = driver.module((folder / case["kernel"]).read_text())
    memory = {b["name"]: driver.alloc(initial(folder, b)) for b in case["buffers"]}
    params = []
    for p in case["params"]:
        if "buffer" in p:
            params.append(memory[p["buffer"]].to_bytes(8, "little"))
        elif "map" in p:
            params.append(driver.tensor_map(memory[p["map"]["buffer"]], p["map"]))
        else:
            kind = "u32" if "u32" in p else "u64"
            params.append(p[kind].to_bytes(4 if kind == "u32" else 8, "little"))
    f = driver.function(module, case["entry"], case["smem"])
    driver.launch(f, case["grid"], case["block"], case["smem"], params)
    for b in case["buffers"]:
        if "expect" in b:
            (out / f"{case['name']}.{b['name']}.bin").write_bytes(driver.read(memory[b["name"]], b["bytes"]))
    for address in memory.values():
        driver.free(address)
    driver.unload(module)


def worker(folder, out):
    """Reads case names from stdin, answers one JSON line each."""
    from cuda import CudaError, Driver
    cases = {c["name"]: c for c in load_cases(folder, None)}
    try:
        driver = Driver()
    except CudaError as e:
        print(json.dumps({"fatal": str(e)}), flush=True)
        return
    print(json.dumps({"device": driver.describe()}), flush=True)
    for line in sys.stdin:
        try:
            run_case(driver, folder, cases[line.strip()], out)
            print(json.dumps({"status": "ok"}), flush=True)
        except (CudaError, OSError, KeyError) as e:
            print(json.dumps({"status": f"{type(e).__name__}: {e}"}), flush=True)


class Gpu:
    """A worker process that is replaced when a launch faults or hangs."""

    def __init__(self, folder, out, timeout):
        self.folder, self.out, self.timeout, self.process = folder, out, timeout, None
        self.device = self.start()

    def start(self):
        args = [sys.executable, str(HERE / "validate_gpu.py"), "--worker", "--micro", str(self.folder), "--save", str(self.out)]
        self.process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self.read(120)

    def read(self, timeout):
        timer = threading.Timer(timeout, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        return json.loads(line) if line else {"status": f"no answer within {timeout} s: hang or crash"}

    def run(self, name):
        if self.process is None or self.process.poll() is not None:
            self.start()
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        answer = self.read(self.timeout)
        if answer.get("status") != "ok":
            # The context may be poisoned.
            self.process.kill()
            self.process.wait()
            self.process = None
        return answer.get("status", "no status")

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def sections_of(b):
    return b.get("sections") or [{"label": b["name"], "offset": 0, "bytes": b["bytes"], "rule": "exact"}]


def judge(folder, case, found_dir, dumps):
    """Rows of one case: each section against the formula and, where there is one, the dump."""
    rows = []
    for b in case["buffers"]:
        if "expect" not in b:
            continue
        name = f"{case['name']}.{b['name']}.bin"
        want, found = (folder / b["expect"]).read_bytes(), (found_dir / name).read_bytes()
        dump = (dumps / name).read_bytes() if dumps and (dumps / name).exists() else None
        if len(found) != len(want) or dump is not None and len(dump) != len(want):
            rows.append({"section": b["name"], "rule": "size", "elements": 0, "bad": 1, "worst": 0.0, "first": f"{len(found)} bytes, want {len(want)}", "emulator": None})
            continue
        for s in sections_of(b):
            part = slice(s["offset"], s["offset"] + s["bytes"])
            inputs = None
            if "input" in s:
                inputs = initial(folder, next(x for x in case["buffers"] if x["name"] == s["input"]))
            r = compare(want[part], found[part], s, inputs)
            emulator = None if dump is None else compare(dump[part], found[part], s, inputs)
            rows.append({"section": s["label"], "rule": s.get("rule", "exact"), **r, "emulator": None if emulator is None else emulator["bad"]})
    return rows


def table(results, source):
    """Markdown: one row per case, then the sections that disagree."""
    lines = [f"Bytes from: {source}", "", "| case | target | status | sections | elements | differ from formula | differ from emulator | largest deviation |", "|---|---|---|---|---|---|---|---|"]
    detail = []
    for r in results:
        rows = r["rows"]
        emulator = [x["emulator"] for x in rows if x["emulator"] is not None]
        worst = max([x["worst"] for x in rows if x["rule"] not in ("exact", "size", "report")], default=None)
        cells = [r["name"], r["target"], r["status"].replace("|", "/").replace("\n", " ")[:90], len(rows), sum(x["elements"] for x in rows), sum(x["bad"] for x in rows),
                 sum(emulator) if emulator else "-", "-" if worst is None else f"{worst:.3g} ulp"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
        detail += [f"- question `{r['name']}`: {x['worst']:.0f} of {x['elements']} words differ from the model, {x['first']}" for x in rows if x["rule"] == "report" and x["worst"]]
        detail += [f"- `{r['name']}` {x['section']}: {x['bad']} of {x['elements']} ({x['rule']}), {x['first']}" for x in rows if x["bad"] or x["emulator"]]
    return "\n".join(lines + ([""] + detail if detail else [])) + "\n"


def self_test(folder, cases):
    """The formulas' bytes as if a GPU had given them: all agree; one flipped bit is found."""
    with tempfile.TemporaryDirectory() as tmp:
        tmp, missed, total = Path(tmp), [], 0
        for case in cases:
            outs = [b for b in case["buffers"] if "expect" in b]
            for b in outs:
                (tmp / f"{case['name']}.{b['name']}.bin").write_bytes((folder / b["expect"]).read_bytes())
            if any(r["bad"] or r["emulator"] for r in judge(folder, case, tmp, tmp)):
                missed.append(case["name"] + ": formula disagrees with itself")
            for b in outs:
                path = tmp / f"{case['name']}.{b['name']}.bin"
                good = path.read_bytes()
                for s in sections_of(b):
                    if s.get("rule") == "report":
                        continue
                    # Flip the top exponent bit of the section's last element.
                    bad = bytearray(good)
                    bad[s["offset"] + s["bytes"] - 1] ^= 0x40
                    path.write_bytes(bad)
                    total += 1
                    if s.get("rule") != "trig" and not any(r["bad"] for r in judge(folder, case, tmp, None)):
                        missed.append(f"{case['name']} {s['label']}: a flipped bit is not seen")
                path.write_bytes(good)
        print(f"self test: {len(cases)} cases, {total} flipped bits, {len(missed)} problems")
        print("\n".join(missed))
        return 1 if missed else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--micro", type=Path, default=MICRO, help="folder with cases, data and PTX")
    p.add_argument("--dumps", type=Path, help="the emulator's dump files")
    p.add_argument("--dry", action="store_true", help="take the dumps for the GPU's bytes")
    p.add_argument("--self-test", action="store_true")
    p.add_argument("--only", help="regular expression on case names")
    p.add_argument("--save", type=Path, help="folder for the GPU's bytes")
    p.add_argument("--table", type=Path, help="write the table here")
    p.add_argument("--json", type=Path, help="write all results here")
    p.add_argument("--timeout", type=float, default=30, help="seconds per launch")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.worker:
        worker(a.micro, a.save)
        return 0
    cases = load_cases(a.micro, a.only)
    if not cases:
        p.error("no case matches")
    if a.self_test:
        return self_test(a.micro, cases)
    if a.dry and not a.dumps:
        p.error("--dry needs --dumps")
    index = {}
    if a.dumps and (a.dumps / "index.json").exists():
        index = json.loads((a.dumps / "index.json").read_text())["cases"]
    keep = tempfile.TemporaryDirectory()
    out = a.dumps if a.dry else a.save or Path(keep.name)
    out.mkdir(parents=True, exist_ok=True)
    gpu, source = None, f"emulator dumps in {a.dumps} (dry run)"
    if not a.dry:
        gpu = Gpu(a.micro, out, a.timeout)
        if "device" not in gpu.device:
            print("no GPU: " + str(gpu.device.get("fatal", gpu.device)), file=sys.stderr)
            return 2
        d = gpu.device["device"]
        source = f"{d['name']}, compute capability {d['cc'][0]}.{d['cc'][1]}, driver {d['driver']}"
    results = []
    for case in cases:
        target = target_of(a.micro, case)
        if gpu and CAPABILITY.get(target) != gpu.device["device"]["cc"]:
            status = "not run: other target"
        elif gpu:
            status = gpu.run(case["name"])
        else:
            files = [out / f"{case['name']}.{b['name']}.bin" for b in case["buffers"] if "expect" in b]
            status = index.get(case["name"], "ok" if all(f.exists() for f in files) else "no dump")
        rows = judge(a.micro, case, out, None if a.dry else a.dumps) if status == "ok" else []
        results.append({"name": case["name"], "target": target, "status": status, "rows": rows})
    if gpu:
        gpu.close()
    text = table(results, source)
    print(text)
    if a.table:
        a.table.write_text(text)
    if a.json:
        a.json.write_text(json.dumps({"source": source, "results": results}, indent=1))
    ran = [r for r in results if r["status"] == "ok"]
    wrong = [r for r in ran if any(x["bad"] or x["emulator"] for x in r["rows"])]
    skipped = [r for r in results if r["status"].startswith("not run")]
    failed = len(results) - len(ran) - len(skipped)
    print(f"{len(results)} cases: {len(ran)} ran, {len(wrong)} disagree, {failed} failed, {len(skipped)} of other targets")
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    os.environ.setdefault("CUDA_CACHE_DISABLE", "1")
    sys.exit(main())
