"""Compiler hints: they must not change any result."""
import cuda.tile as ct

from .common import arr, case, i32, Launch, near, out, rounded

ZERO = ct.PaddingMode.ZERO


@ct.kernel(occupancy=ct.ByTarget(default=4, sm_90=2, sm_100=8), num_worker_warps=8)
def hinted_copy_kernel(x, y, T: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, i, (T,), latency=10, allow_tma=False)
    ct.store(y, i, v * 2.0, latency=1, allow_tma=False)


@case("hints")
def hints_copy(r):
    x = arr(r.normal(2000))
    return Launch(hinted_copy_kernel, (4,), [x, out(2000), 512], {"y": near(x.f64 * 2)})


@ct.kernel(num_ctas=ct.ByTarget(default=1, sm_100=2), occupancy=2)
def hinted_gemm_kernel(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int],
                       TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO, latency=6)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO, latency=2, allow_tma=False)
        acc = ct.mma(x, y, acc, use_fast_acc=True)
    ct.store(c, (i, j), acc.astype(c.dtype), latency=2)


@case("hints")
def hints_gemm_fast_acc(r):
    a, b = arr(r.normal(128, 128), "e4m3"), arr(r.normal(128, 64), "e4m3")
    want = a.f64 @ b.f64
    return Launch(hinted_gemm_kernel, (2, 1), [a, b, out((128, 64), "bf16"), 64, 64, 64],
                  {"c": rounded(want, "bf16", 5e-2)})


@ct.kernel
def unchecked_kernel(x, y, T: ct.Constant[int]):
    """The caller promises full tiles, so nothing is checked."""
    i = ct.bid(0)
    at = i * T + ct.arange(T, dtype=ct.int32)
    v = ct.load(x, i, (T,), check_bounds=False) + ct.gather(x, at, check_bounds=False)
    ct.store(y, i, v, check_bounds=False)


@case("hints")
def unchecked_bounds(r):
    x = arr(r.normal(1024))
    return Launch(unchecked_kernel, (4,), [x, out(1024), 256], {"y": near(x.f64 * 2)})


@ct.kernel
def dependent_kernel(x, y, T: ct.Constant[int]):
    """Programmatic dependent launch: wait first, let the next grid start at the end."""
    i = ct.bid(0)
    ct.grid_dependency_control_wait()
    v = ct.load(x, i, (T,), padding_mode=ZERO)
    ct.grid_dependency_control_launch_dependents()
    ct.store(y, i, v + 1.0)


@case("hints")
def dependent_launch(r):
    x = arr(r.normal(500))
    return Launch(dependent_kernel, (2,), [x, out(500), 256], {"y": near(x.f64 + 1)})


@ct.kernel
def known_divisor_kernel(x, y, start, T: ct.Constant[int]):
    start = ct.assume_divisible_by(start, 16)
    at = start + ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    ct.scatter(y, at, ct.gather(x, at) + 1.0)


@case("hints")
def assumed_divisor(r):
    x = arr(r.normal(300))
    want = x.f64 + 1
    want[:32] = 7
    return Launch(known_divisor_kernel, (3,), [x, out(300), i32(32), 128], {"y": near(want)})
