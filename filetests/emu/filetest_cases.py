#!/usr/bin/env python3
"""Compiles kernels with `; test execute` headers and runs their cases on the emulator.

usage: filetest_cases.py COMPILER FILE.tileas... [--jobs N] [--seeds A,B] [--modes M,N] [--ptxas PATH] [--keep DIR] [--verbose]

COMPILER reads the kernel on standard input, prints PTX and writes the launch metadata to the `.json` path it is
given. Header lines of a kernel file: `; test execute`, `; target sm_100a` and one `; case: {json}` per case, with the
keys of a case of run.py but `ptx` and `launch`. Per file a line: times, registers and spills if ptxas is given, the
first failure. Exit status 1 if any file failed.
"""
import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run


def header_cases(path):
    """The cases of a kernel file."""
    cases = []
    with open(path) as f:
        for number, line in enumerate(f, 1):
            if not line.startswith(";"):
                break
            text = line[1:].strip()
            if text.startswith("case:"):
                try:
                    cases.append(json.loads(text[5:]))
                except json.JSONDecodeError as e:
                    raise SystemExit(f"{path}:{number}: {e}")
    return cases


def last_line(text, mark):
    lines = [x.strip() for x in text.splitlines() if mark in x]
    return lines[0] if lines else (text.strip().splitlines() or ["no message"])[-1]


def check_ptxas(ptxas, ptx, arch):
    """`(message or None, remark)` of assembling a module: any spill is a failure."""
    done = subprocess.run([ptxas, f"-arch={arch}", "-v", ptx, "-o", os.devnull], capture_output=True, text=True)
    if done.returncode:
        return "ptxas: " + last_line(done.stderr, "error"), ""
    regs = ",".join(re.findall(r"Used (\d+) registers", done.stderr))
    spills = [int(x) for x in re.findall(r"(\d+) bytes spill", done.stderr)]
    if any(spills):
        return f"ptxas: {max(spills)} bytes of spills, {regs} registers", regs
    return None, f"{regs} regs"


def one_file(job):
    """`(path, message or None, remark)`."""
    compiler, path, keep, ptxas, seeds, modes = job
    start = time.time()
    stem = os.path.join(keep, os.path.splitext(os.path.basename(path))[0])
    with open(path) as f:
        done = subprocess.run([compiler, stem + ".json"], stdin=f, capture_output=True, text=True)
    with open(stem + ".ptx", "w") as f:
        f.write(done.stdout)
    if done.returncode:
        return path, "compiler: " + last_line(done.stderr, "error"), ""
    remark = ""
    if ptxas:
        with open(path) as f:
            target = re.search(r"^; target (\S+)", f.read(), re.M)
        message, remark = check_ptxas(ptxas, stem + ".ptx", target.group(1) if target else "sm_100a")
        if message:
            return path, message, remark
    compiled, runs = time.time(), 0
    for k, case in enumerate(header_cases(path)):
        case = dict(case, ptx=stem + ".ptx", launch=stem + ".json")
        for job in run.jobs_of(case, False, seeds, modes):
            message = run.attempt(job)[3]
            runs += 1
            if message:
                return path, f"case {k} seed={job[1]} mode={job[2]}: {message}", remark
    return path, None, f"{remark} {runs} runs {time.time() - compiled:.2f}s (compiled {compiled - start:.2f}s)"


def main(argv):
    ap = argparse.ArgumentParser(description="Compiles and runs kernel files with `; case:` headers.")
    ap.add_argument("compiler")
    ap.add_argument("files", nargs="+")
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--ptxas")
    ap.add_argument("--keep", default="/tmp")
    ap.add_argument("--seeds", type=lambda t: [int(x) for x in t.split(",")])
    ap.add_argument("--modes", type=lambda t: t.split(","))
    args = ap.parse_args(argv)
    os.makedirs(args.keep, exist_ok=True)
    jobs = [(args.compiler, f, args.keep, args.ptxas, args.seeds, args.modes) for f in args.files]
    failed = 0
    with multiprocessing.Pool(args.jobs) as pool:
        for path, message, remark in pool.imap(one_file, jobs):
            failed += message is not None
            name = os.path.splitext(os.path.basename(path))[0]
            print(f"{'FAIL' if message else 'ok  '} {name} {remark}" + (f"\n    {message}" if message else ""), flush=True)
    print(f"{len(jobs) - failed} of {len(jobs)} files passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
