"""Writes all micro-kernels, launch descriptions, inputs and expected bytes: `python3 expected.py`.

`--check` writes them to a temporary folder instead and compares with the files here; exit status 1
if one differs. Needs numpy. Nothing here comes from the emulator: values are rationals, layouts are
reshapes.
"""
import sys
import tempfile
from pathlib import Path

import cases
import expected_clusters
import expected_gemm
import expected_mma
import expected_num
import expected_questions
import expected_tma
import expected_tmem
import kernels
import kernels_tile
import kernels_tmem
import ptxgen


def write():
    kernels.numbers()
    for step in (kernels_tile.matrix_moves, kernels_tile.mma_sync, kernels_tile.wgmma, kernels_tile.tma, kernels_tmem.moves, kernels_tmem.mma, kernels_tmem.copies):
        step()
    for module in (expected_num, expected_mma, expected_tma, expected_tmem, expected_gemm, expected_clusters, expected_questions):
        module.run()
    cases.save()


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for g in ("*.ptx", "cases/*", "data/*") for p in folder.glob(g)}


if __name__ == "__main__":
    if "--check" not in sys.argv:
        write()
        sys.exit(0)
    here = cases.HERE
    with tempfile.TemporaryDirectory() as tmp:
        cases.HERE = ptxgen.HERE = Path(tmp)
        write()
        new, old = files(Path(tmp)), files(here)
    bad = sorted(str(p) for p in new.keys() | old.keys() if new.get(p) != old.get(p))
    print("\n".join(f"differs: {p}" for p in bad) or f"{len(new)} files agree")
    sys.exit(1 if bad else 0)
