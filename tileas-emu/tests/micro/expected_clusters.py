"""The hand-written kernels of clusters in tests/data as cases. Their clusters are those that the PTX requires."""
import numpy as np

from cases import Case

ROWS = 7


def case(arch, entry, ctas, cluster, block, want, x):
    c = Case(f"clusters_{arch}", entry, block)
    c.d |= {"kernel": f"../data/clusters_{arch}.ptx", "entry": entry, "grid": [ctas, 1, 1], "cluster": [cluster, 1, 1]}
    c.buffer("x", x).buffer("y", size=4 * want.size, fill=0xEE, expect=want.astype(np.uint32))
    c.u32(ROWS)


def run():
    x = (np.arange(256, dtype=np.uint64) * 2654435761 % 2**32 >> 12).astype(np.uint32)
    # By CTA and thread.
    parts = x.reshape(8, 32)[:4]
    swapped = parts[[1, 0, 3, 2]]
    case("sm90a", "ring", 4, 2, 64, np.tile(x.reshape(8, 32)[:ROWS].sum(0), 4), x)
    case("sm90a", "reduce", 8, 4, 32, x.reshape(2, 4, 32).sum(1), x)
    case("sm90a", "send", 4, 2, 32, swapped + 2 * np.arange(32) + 5, x)
    case("sm90a", "copy", 4, 2, 32, swapped, x)
    case("sm90a", "count", 4, 2, 32, np.array([[p.sum(), 64] for p in x.reshape(4, 64)[:2]]), x)
    case("sm90a", "flag", 4, 2, 32, x[:2], x)
    case("sm100a", "commit", 4, 2, 32, np.arange(128), x)
