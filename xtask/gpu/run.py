#!/usr/bin/env python3
"""Everything that a GPU has to say about this compiler, in one go.

    python3 run.py --out DIR            on a machine with a GPU, Python, torch and triton; no network, no Rust
    python3 run.py --out DIR --dry      without a GPU: on the emulator, small, ratios left out; needs numpy

In: the folder this file lies in, as `cargo xtask gpu-bundle` packs it. Out: DIR/results.json, DIR/table.md, DIR/plot.svg, DIR/emulator.json,
DIR/log.txt. Steps in order of what they decide: the device, the JIT's own tests, the emulator against the GPU, kernels written by hand, every kernel's
cases by the tests' own comparison, predicted against measured cycles, ratios against others, every example's share of what the GPU allows. A step that
fails is a line in the table, and the others go on. Exit status 1 if something is wrong, not if something is slow. Under ten minutes: what does not
fit into --seconds is left out, and said.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "py"))
sys.path.insert(0, str(HERE))
os.environ["TRITON_CACHE_DIR"] = os.environ.get("TRITON_CACHE_DIR", "/tmp/triton-cache")


class Session:
    """What the steps share: where things are, how much time is left, what was found."""

    def __init__(self, out, dry, seconds):
        self.here, self.out, self.dry = HERE, out, dry
        self.end = time.monotonic() + seconds
        self.results = {"dry": dry, "steps": {}}
        self.log = open(out / "log.txt", "w", encoding="utf-8")

    def left(self):
        """Seconds left."""
        return self.end - time.monotonic()

    def say(self, text):
        """A line for whoever watches, and for the log."""
        print(text, flush=True)
        print(text, file=self.log, flush=True)

    def call(self, command, limit=120, **env):
        """Runs a program: status and output. It is killed at the limit, or when no time is left."""
        limit = max(5, min(limit, self.left()))
        try:
            done = subprocess.run(
                [str(part) for part in command],
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit,
            )
            status, output = done.returncode, done.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired as e:
            status, output = 124, (e.stdout or b"").decode(errors="replace") + f"\nkilled after {limit:.0f} s"
        except OSError as e:
            status, output = 127, str(e)
        print(f"$ {' '.join(map(str, command))}\n{output}", file=self.log, flush=True)
        return status, output


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--out", type=Path, default=Path("gpu-results"))
    args.add_argument("--dry", action="store_true", help="no GPU: the emulator, small")
    args.add_argument("--seconds", type=float, default=540)
    args.add_argument("--only", action="append", help="a step; may be repeated")
    args = args.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    session = Session(args.out, args.dry, args.seconds)
    import checks
    import ratios
    import report
    import roof

    steps = {
        "device": checks.device,
        "suite": checks.suite,
        "validate": checks.validate,
        "by hand": checks.by_hand,
        "kernels": checks.kernels,
        "cycles": ratios.cycles,
        "ratios": ratios.ratios,
        "roofs": roof.roofs,
    }
    for name, step in steps.items():
        if args.only and name not in args.only:
            continue
        begin = time.monotonic()
        try:
            found = step(session) if session.left() > 10 else {"left out": "no time"}
        except Exception:
            session.say(traceback.format_exc())
            found = {"wrong": [traceback.format_exc(limit=-3)]}
        found["seconds"] = round(time.monotonic() - begin, 1)
        session.results["steps"][name] = found
        wrong = len(found.get("wrong", []))
        session.say(f"== {name}: {'ok' if not wrong else f'{wrong} wrong'} in {found['seconds']} s")
        (args.out / "results.json").write_text(json.dumps(session.results, indent=1) + "\n")
    report.write(session.results, args.out)
    session.say((args.out / "table.md").read_text())
    return 1 if any(step.get("wrong") for step in session.results["steps"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
