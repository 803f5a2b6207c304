"""Steps that find what is wrong: each returns a dict, with `wrong` as a list of texts."""

import os
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
    load("cluster_pairs_sm90a")(data, swapped)
    judge("clusters of two", swapped, data.reshape(4, 2, 128)[:, [1, 0]].reshape(1024), 0)
    return found


def kernels(s):
    """Every kernel that is tested has its cases run here, compared as the tests do: filetests, examples, cuTile's."""
    folders = ["filetests/turns", "cutile"] if s.dry else ["filetests", "examples/kernels", "cutile"]
    command = [s.here / "bin/device", "--jobs", min(os.cpu_count() or 4, 14), "--seconds", 20]
    if s.dry:
        command.append("--emulator")
    status, output = s.call([*command, *(s.here / folder for folder in folders)], 200)
    lines = output.strip().splitlines()
    found = {"summary": lines[-1] if lines else "", "wrong": [line[:600] for line in lines if ": FAILED" in line]}
    if status and not found["wrong"]:
        found["wrong"] = [output[-1500:]]
    return found
