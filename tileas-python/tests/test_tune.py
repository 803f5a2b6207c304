"""Tuning: the best of a space, by whoever does the work."""

import json
import xml.etree.ElementTree as ET
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tileas

GEMM = (Path(__file__).resolve().parents[2] / "examples" / "gemm_f16.tileas").read_text()
SPACE = {
    "bm=c.d0": [64, 128],
    "bn=c.d1": [64, 128, 256],
    "bk=a.d1": [32, 64, 128],
    "pipeline-depth": range(2, 7),
}
ARGS = {"a": (2048, 1024), "b": (4096, 1024), "bias": (4096,), "c": (2048, 4096), "kt": "ceildiv(a.d1, bk)"}


def test_a_fifth_finds_what_all_find():
    seen = []
    some = tileas.tune(GEMM, SPACE, ARGS, progress=lambda *now: seen.append(now))
    every = tileas.tune(GEMM, SPACE, ARGS, budget=90)
    assert len(some.looks) * 5 <= some.points == len(every.looks) == 90
    assert some.best.us <= every.best.us * 1.05
    assert [done for done, _, _ in seen] == list(range(1, len(some.looks) + 1))
    assert seen[-1][2] == min(look.us for look in some.looks if look.us)
    assert ET.fromstring(some.plot()._repr_svg_()).tag.endswith("svg")
    assert len(json.loads(some.json())) == len(some.looks)
    assert some.best.binds and "bm" in some.best.values


def test_the_best_computes():
    best = tileas.tune(GEMM, SPACE, ARGS)
    kernel = best.compile()
    rng = np.random.default_rng(3)
    a, b, bias = (rng.integers(-2, 3, s).astype(np.float16) for s in [(200, 136), (264, 136), 264])
    c = np.zeros((200, 264), np.float16)
    kernel(a, b, bias, c, -(-136 // int(best.best.values["bk"])))
    want = np.maximum(a.astype(np.float32) @ b.T.astype(np.float32) + bias, 0)
    assert (c == want).all()


def test_any_executor_gives_the_same_answer():
    alone = tileas.tune(GEMM, SPACE, ARGS)
    for pool in [ThreadPoolExecutor(3), ProcessPoolExecutor(2)]:
        with pool as executor:
            assert tileas.tune(GEMM, SPACE, ARGS, executor=executor) == alone


def test_a_cluster_of_two_workers_that_share_a_cache(tmp_path):
    distributed = pytest.importorskip("distributed")
    alone = tileas.tune(GEMM, SPACE, ARGS)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:
        best = tileas.tune(GEMM, SPACE, ARGS, executor=client.get_executor(), cache=tmp_path)
    assert best == alone
    jit = tileas.Jit(options=best.options, cache=tmp_path)
    jit.compile(best.text)
    assert jit.compiled == 0, "a worker compiled it"


def test_misuse_is_an_error():
    def fails(code, *args, **keywords):
        with pytest.raises(tileas.Error) as caught:
            tileas.tune(*args, **keywords)
        assert caught.value.code == code, caught.value

    fails("E1501", GEMM, {}, ARGS)
    fails("E1501", GEMM, {"bm=c.d0": []}, ARGS)
    fails("E1501", GEMM, {"bm=c.d0": [64, 64]}, ARGS)
    fails("E1501", GEMM, {"bm=c.d0": [96]}, ARGS)
    fails("E1501", GEMM, {"no-such-option": [1]}, ARGS)
    fails("E1501", GEMM, SPACE, ARGS, kernel="other")
    fails("E1502", GEMM, {"bm=q.d0": [64]}, ARGS)
    fails("E1502", GEMM, {"bm=c.d7": [64]}, ARGS)
    fails("E1502", GEMM, {"bm=c.d0": [64], "again=a.d0": [64]}, ARGS)
    fails("E1503", GEMM, SPACE, {})
    fails("E1503", GEMM, SPACE, ARGS | {"c": (2048,)})
    fails("E1503", GEMM, SPACE, ARGS | {"c": 5})
    fails("E1503", GEMM, SPACE, ARGS | {"kt": (5,)})
    fails("E1503", GEMM, SPACE, ARGS | {"kt": "ceildiv(a.d1, nothing)"})
    fails("E1404", GEMM, {"bk=a.d1": [4]}, ARGS | {"kt": 5})
    fails("E1404", GEMM, {"simt-warps": [8]}, ARGS | {"kt": 16})
    fails("E0004", "kernel @k() {\n  retrun\n}\n", SPACE, ARGS)
