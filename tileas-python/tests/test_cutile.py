"""Kernels of cuTile: written here, exported by its package, run on the emulator, compared with numpy."""

import inspect
import io
import os
import signal
import sys
import threading
from typing import Annotated

import ml_dtypes
import numpy as np
import pytest
import tileas
from test_tileas import OnGpu, fails
from tileas import cutile

if not os.environ.get("TILEAS_REQUIRE_CUTILE"):
    pytest.importorskip("cuda.tile", reason="no cuda-tile")
import cuda.tile as ct
from cuda.tile import compilation

ZERO = ct.PaddingMode.ZERO


def run(grid, kernel, *args, **keywords):
    return cutile.launch(None, grid, kernel, args, **keywords)


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(dtype)


@ct.kernel
def scaled_sum(x, y, z, factor, N: ct.Constant[int]):
    at = ct.bid(0) * N + ct.arange(N, dtype=ct.int32)
    ct.scatter(z, at, ct.gather(x, at) * factor + ct.gather(y, at))


def test_elementwise_with_gather():
    x, y, z = normal(1000), normal(1000)[::-1].copy(), np.zeros(1000, np.float32)
    run((4,), scaled_sum, x, y, z, 2.5, 256)
    np.testing.assert_allclose(z, x * 2.5 + y, rtol=1e-5, atol=1e-6)


@ct.kernel
def softmax(x, y, N: ct.Constant[int]):
    row = ct.load(x, (ct.bid(0), 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    powers = ct.exp(row - ct.max(row, axis=1, keepdims=True))
    ct.store(y, (ct.bid(0), 0), powers / ct.sum(powers, axis=1, keepdims=True))


@pytest.mark.parametrize("columns", [1, 37, 64, 100])
def test_softmax_of_ragged_rows(columns):
    x = normal(5, columns)
    y = np.zeros_like(x)
    run((5,), softmax, x, y, 128)
    powers = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, powers / powers.sum(1, keepdims=True), rtol=1e-5)


@ct.kernel
def gemm(a, b, c, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((M, N), ct.float32)
    for k in range(ct.cdiv(a.shape[1], K)):
        x = ct.load(a, (i, k), (M, K), padding_mode=ZERO)
        acc = ct.mma(x, ct.load(b, (k, j), (K, N), padding_mode=ZERO), acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("shape", [(256, 256, 192), (200, 136, 150), (1, 9, 17)])
def test_gemm(target, shape):
    m, n, k = shape
    a, b, c = normal(m, k, dtype=np.float16), normal(k, n, dtype=np.float16), np.zeros((m, n), np.float32)
    run((-(-m // 128), -(-n // 128)), gemm, a, b, c, 128, 128, 64, device=tileas.Device.emulator(target))
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)


@ct.kernel
def attention(q, k, v, o, scale, M: ct.Constant[int], N: ct.Constant[int], D: ct.Constant[int]):
    head = ct.bid(1)
    queries = ct.load(q, (head, ct.bid(0), 0), (1, M, D), padding_mode=ZERO).reshape((M, D))
    top, total = ct.full((M, 1), -float("inf"), ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, D), ct.float32)
    for j in range(ct.cdiv(k.shape[1], N)):
        keys = ct.load(k, (head, 0, j), (1, D, N), order=(0, 2, 1), padding_mode=ZERO).reshape((D, N))
        s = ct.mma(queries, keys, ct.zeros((M, N), ct.float32)) * scale
        s = ct.where(j * N + ct.arange(N, dtype=ct.int32)[None, :] < k.shape[1], s, -float("inf"))
        new = ct.maximum(top, ct.max(s, axis=1, keepdims=True))
        p, fade = ct.exp(s - new), ct.exp(top - new)
        total = total * fade + ct.sum(p, axis=1, keepdims=True)
        values = ct.load(v, (head, j, 0), (1, N, D), padding_mode=ZERO).reshape((N, D))
        acc = ct.mma(p.astype(v.dtype), values, acc * fade)
        top = new
    ct.store(o, (head, ct.bid(0), 0), (acc / total).reshape((1, M, D)).astype(o.dtype))


def test_attention():
    q, k, v = normal(2, 100, 64, dtype=np.float16), normal(2, 90, 64, dtype=np.float16), normal(2, 90, 64, dtype=np.float16)
    o = np.zeros_like(q)
    run((2, 2), attention, q, k, v, o, 0.125, 64, 32, 64)
    s = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k.astype(np.float64)) * 0.125
    p = np.exp(s - s.max(-1, keepdims=True))
    want = np.einsum("hqk,hkd->hqd", p / p.sum(-1, keepdims=True), v.astype(np.float64))
    np.testing.assert_allclose(o, want, rtol=4e-3, atol=4e-3)


@ct.kernel
def moments(x, total, highest, where, N: ct.Constant[int]):
    i = ct.bid(0)
    row = ct.load(x, (i, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF)
    ct.store(highest, (i,), ct.max(row, axis=1))
    ct.store(where, (i,), ct.argmax(row, axis=1))
    ct.store(total, (i,), ct.sum(ct.load(x, (i, 0), (1, N), padding_mode=ZERO), axis=1))


def test_reductions():
    x = normal(6, 200)
    total, highest, where = np.zeros(6, np.float32), np.zeros(6, np.float32), np.zeros(6, np.int32)
    run((6,), moments, x, total, highest, where, 256)
    np.testing.assert_allclose(total, x.sum(1), rtol=1e-4, atol=1e-4)
    assert (highest == x.max(1)).all() and (where == x.argmax(1)).all()


@ct.kernel
def running(x, y, M: ct.Constant[int], N: ct.Constant[int]):
    ct.store(y, (ct.bid(0), 0), ct.cumsum(ct.load(x, (ct.bid(0), 0), (M, N)), axis=1))


def test_a_scan():
    x = np.random.default_rng(1).integers(-9, 9, (12, 128)).astype(np.int32)
    y = np.zeros_like(x)
    run((3,), running, x, y, 4, 128)
    assert (y == x.cumsum(1)).all()


@ct.kernel
def histogram(x, counts, N: ct.Constant[int]):
    ct.atomic_add(counts, ct.gather(x, ct.bid(0) * N + ct.arange(N, dtype=ct.int32), padding_value=-1), 1)


def test_atomics():
    x = np.random.default_rng(2).integers(0, 10, 500).astype(np.int32)
    counts = np.zeros(10, np.int32)
    run((4,), histogram, x, counts, 128)
    assert (counts == np.bincount(x, minlength=10)).all()


@ct.kernel
def collatz(x, steps, limit):
    value, n = ct.gather(x, ct.bid(0)), 0
    while value != 1:
        if n >= limit:
            break
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        n = n + 1
    ct.scatter(steps, ct.bid(0), n)


def test_a_loop_with_break():
    x = np.array([1, 6, 27, 97, 16], np.int32)
    steps = np.zeros_like(x)
    run((5,), collatz, x, steps, 30)
    assert steps.tolist() == [0, 8, 30, 30, 4]


@ct.kernel
def gathered(parts, out, N: ct.Constant[int]):
    acc = ct.zeros((N,), ct.float32)
    for i in range(len(parts)):
        acc = acc + ct.load(parts[i], (ct.bid(0),), (N,), padding_mode=ZERO)
    for i in range(len(parts)):
        ct.store(parts[i], (ct.bid(0),), acc)
    ct.store(out, (ct.bid(0),), acc)


def test_a_list_of_arrays():
    parts = [normal(100), normal(70), normal(128)]
    want = sum(np.pad(part, (0, 128 - len(part))) for part in parts)
    out = np.zeros(128, np.float32)
    run((4,), gathered, parts, out, 32)
    np.testing.assert_allclose(out, want, rtol=1e-6)
    assert all((part == out[: len(part)]).all() for part in parts)
    frozen = normal(64)
    frozen.setflags(write=False)
    assert "parts[1]" in fails("E1402", lambda: run((2,), gathered, [normal(64), frozen], out, 32)).message
    for wrong in ([], [normal(4), normal(4, 4)], [normal(4), 1]):
        fails("E1401", lambda: run((1,), gathered, wrong, out, 32))


@ct.kernel
def of_tuple(pair, out, sizes: ct.Constant[tuple[int, int]]):
    (x, factor), y = pair
    tile = ct.load(x, (ct.bid(0), 0), sizes) * factor
    ct.store(out, (ct.bid(0), 0), tile + ct.load(y, (ct.bid(0), 0), sizes))


def test_tuples():
    x, y, out = normal(8, 16), normal(8, 16), np.zeros((8, 16), np.float32)
    run((2,), of_tuple, ((x, 3.0), y), out, (4, 16))
    np.testing.assert_allclose(out, 3 * x + y, rtol=1e-6)


@ct.kernel
def copied(x, y, M: ct.Constant[int], N: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, (i, j), ct.load(x, (i, j), (M, N), padding_mode=ZERO) * 2)


def test_views_of_any_strides():
    base = normal(40, 96)
    wide = np.full((64, 200), 7, np.float32)
    for x in (base[::2, 1:], base.T, base[3:30, ::3], np.broadcast_to(base[:1], (20, 96))):
        y = wide[5:5 + x.shape[0], 1:1 + x.shape[1]] if x.shape[0] < 50 else np.zeros(x.shape, np.float32)
        run((8, 8), copied, x, y, 16, 16)
        assert (y == 2 * x).all()
    assert (wide[:5] == 7).all() and (wide[:, 0] == 7).all() and (wide[:, 120:] == 7).all()
    # Two views of the same memory, side by side.
    halves = normal(16, 64)
    want = 2 * halves[:, :32]
    run((1, 2), copied, halves[:, :32], halves[:, 32:], 16, 16)
    assert (halves[:, 32:] == want).all()
    fails("E1402", lambda: run((1, 1), copied, base[::-1], base.copy(), 16, 16))
    fails("E1402", lambda: run((1, 1), copied, base, np.broadcast_to(base[:1], (40, 96)), 16, 16))


def test_types():
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint16, np.int64):
        x = np.arange(12 * 40).reshape(12, 40).astype(dtype)
        y = np.zeros_like(x)
        run((1, 3), copied, x, y, 16, 16)
        assert (y == x * dtype(2)).all(), dtype
    device = tileas.Device.emulator()
    flags = np.array([True, False, True])
    assert (device.tensor(flags).numpy() == flags).all()
    empty = np.zeros((0, 16), np.float32)
    run((1, 1), copied, empty, empty.copy(), 16, 16)


@ct.kernel
def chosen(x, y, flag, N: ct.Constant[int]):
    tile = ct.load(x, (ct.bid(0),), (N,), padding_mode=ZERO)
    ct.store(y, (ct.bid(0),), ct.where(tile, 1, 2) if flag else ct.where(tile, 3, 4))


def test_flags():
    x, y = np.array([True, False] * 10), np.zeros(20, np.int32)
    for flag, want in ((True, [1, 2]), (np.bool_(False), [3, 4])):
        run((1,), chosen, x, y, flag, 32)
        assert y.tolist() == want * 10


@ct.kernel
def large(
    x: Annotated[ct.Array, ct.ArrayAnnotation(index_dtype=ct.int64, static_shape_dims=(0,))], y, n: ct.ScalarInt64
):
    ct.store(y, (0,), ct.load(x, (0,), (x.shape[0],)) + (n >> 33))


def test_64_bits_and_extents_that_are_constant():
    x, y = np.arange(16, dtype=np.int64), np.zeros(16, np.int64)
    run((1,), large, x, y, 5 << 33)
    assert (y == x + 5).all()
    fails("E1103", lambda: run((1,), collatz, x.astype(np.int32), y.astype(np.int32), 1 << 40))


def later(a, acc):
    return ct.mma(a, a, acc)  # here


def test_errors_are_where_they_are_in_the_program():
    @ct.kernel
    def products(x, y):
        a = ct.load(x, (0, 0), (128, 128))
        b = ct.mma(a, a, a)  # here
        c = later(a, a + 1.0)
        ct.store(y, (0, 0), b + c)

    # Of f64 there are products of few elements only.
    large = np.zeros((128, 128))
    error = fails("E1643", lambda: run((1,), products, large, large.copy()))
    kernel, helper = (inspect.getsourcelines(f) for f in (products._pyfunc, later))
    at = [(first + n, text.index("ct.mma") + 1) for texts, first in (kernel, helper) for n, text in enumerate(texts) if "# here" in text]
    assert [(e.code, e.file, e.line, e.column) for e in error.errors] == [("E1643", __file__, *place) for place in at]
    assert f"{__file__}:{at[0][0]}" in str(error) and not error.errors[0].notes
    assert f"called from {__file__}:{at[0][0] + 1}" in error.errors[1].notes[0]

    @ct.kernel
    def bytes_of(x):
        ct.store(x, (0,), ct.astype(ct.astype(ct.load(x, (0,), (16,)), ct.float8_e4m3fn), ct.float64))

    error = fails("E0802", lambda: run((1,), bytes_of, np.zeros(16)))
    assert (error.errors[0].file, error.errors[0].line) == (__file__, inspect.getsourcelines(bytes_of._pyfunc)[1] + 2)
    # What cuTile finds is cuTile's to say.
    with pytest.raises(ct.TileTypeError):
        run((1,), softmax, np.zeros((2, 3, 4), np.float32), np.zeros((2, 3, 4), np.float32), 4)


def test_ctrl_c_ends_a_kernel_that_never_would():
    @ct.kernel
    def waiting(x):
        while ct.atomic_add(x, 0, 0.0) < 1.0:
            pass

    # It is compiled, and ends where there is nothing to wait for.
    run((1,), waiting, np.ones(1, np.float32))
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    # What was started in the background may have been told to ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run((1,), waiting, np.zeros(1, np.float32))
    timer.join()
    signal.signal(signal.SIGINT, before)
    # The next one runs.
    y = np.zeros(64, np.float32)
    run((2,), scaled_sum, normal(64), normal(64), y, 2.0, 32)
    assert y.any()


def test_races_and_accesses_out_of_bounds_are_found():
    @ct.kernel
    def racing(x, y):
        ct.store(y, (0,), ct.load(x, (ct.bid(0),), (32,)))

    @ct.kernel
    def beyond(x, y):
        at = ct.bid(0) * 32 + ct.arange(32, dtype=ct.int32)
        ct.scatter(y, at, ct.gather(x, at), check_bounds=False)

    message = fails("E1211", lambda: run((4,), racing, normal(128), np.zeros(32, np.float32))).message
    # Both accesses are of the line with the store, unless one wants none of it.
    place = f"({__file__}:{inspect.getsourcelines(racing._pyfunc)[1] + 2}:"
    assert "race" in message and message.count(place) == 2
    plain = {"line-info": False}
    message = fails("E1211", lambda: run((4,), racing, normal(128), np.zeros(32, np.float32), options=plain)).message
    assert "race" in message and place not in message
    error = fails("E1211", lambda: run((4,), beyond, normal(128), np.zeros(100, np.float32)))
    assert "bounds" in error.message

    @ct.kernel
    def over_the_edge(y):
        ct.scatter(y, (0, ct.arange(64, dtype=ct.int32)), ct.ones((64,), ct.float32), check_bounds=False)

    # Between rows there is memory, but not of the array.
    rows = np.zeros((4, 64), np.float32)
    assert "between" in fails("E1211", lambda: run((1,), over_the_edge, rows[:, :60])).message
    with pytest.raises(tileas.Error, match="bytes in the other order"):
        run((1,), racing, normal(32).astype(">f4"), np.zeros(32, np.float32))
    assert rows[0].tolist() == [1] * 60 + [0] * 4


def test_a_kernel_is_compiled_once():
    device, calls = tileas.Device.emulator(), []
    original = cutile._exported
    cutile._exported = lambda *args: calls.append(args) or original(*args)
    try:
        for n in (100, 101, 112, 128):
            run((8,), scaled_sum, normal(n), normal(n), normal(n), 1.0, 16, device=device)
        # Extents that are multiples of 16 may be counted on.
        assert len(calls) == 2
        run((8,), scaled_sum, normal(100), normal(100), normal(100), 1, 16, device=device)
        run((4,), scaled_sum, normal(100), normal(100), normal(100), 1, 32, device=device)
        run((4,), scaled_sum, normal(100), normal(100), normal(100), 1, 32, device=device, options={"max-regs": 64})
        assert len(calls) == 5
    finally:
        cutile._exported = original


def test_threads():
    results = []

    def work():
        x, y = normal(20, 20), np.zeros((20, 20), np.float32)
        run((2, 2), copied, x, y, 16, 16)
        results.append((y == 2 * x).all())

    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == [True] * 8


def test_what_is_compiled():
    a, b, c = normal(256, 64, dtype=np.float16), normal(64, 256, dtype=np.float16), np.zeros((256, 256), np.float32)
    args = (a, b, c, 128, 128, 64)
    kernel = cutile.compile(gemm, args, target="sm_90a")
    assert kernel.device.target == "sm_90a" and kernel.metadata["kernel"] == "gemm" and "wgmma" in kernel.ptx
    assert "What binds" in kernel.explain() and kernel.schedule()._repr_svg_()
    array = compilation.ArrayConstraint
    constraints = [
        array(dtype, 2, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(), may_alias_internally=False,
              stride_constant=(None, 1), stride_divisible_by=(16, 1), base_addr_divisible_by=16)
        for dtype in (ct.float16, ct.float16, ct.float32)
    ]
    signature = compilation.KernelSignature([*constraints, 128, 128, 64], compilation.CallingConvention.cutile_python_v1())
    kernel = cutile.compile(gemm, signature)
    kernel[2, 2](a, 256, 64, 64, 1, b, 64, 256, 256, 1, c, 256, 256, 256, 1)
    columns = np.asfortranarray(a)
    fails("E1402", lambda: kernel[2, 2](columns, 256, 64, 1, 256, b, 64, 256, 256, 1, c, 256, 256, 256, 1))
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)
    file = io.BytesIO()
    both = [signature.with_symbol("one"), signature.with_symbol("two")]
    compilation.export_kernel(gemm, both, file, output_format="tileir_bytecode", bytecode_version="13.3")
    assert cutile.compile(file.getvalue(), "two").name == "two"
    fails("E1403", lambda: cutile.compile(file.getvalue()))
    fails("E1403", lambda: cutile.compile(file.getvalue(), "three"))
    fails("E1604", lambda: cutile.compile(file.getvalue()[:100]))
    fails("E1601", lambda: cutile.compile(b"kernel"))
    fails("E1403", lambda: cutile.compile(gemm, "f16"))
    fails("E1403", lambda: cutile.compile(gemm._pyfunc, args))
    fails("E1403", lambda: cutile.compile(gemm, args, target="sm_90a", device=tileas.Device.emulator()))


def test_hints():
    args = (normal(64, 64), np.zeros((64, 64), np.float32), 16, 16)
    kernel = cutile.compile(copied.replace_hints(num_worker_warps=8, occupancy=2, num_ctas=2), args)
    assert ".reqntid 256" in kernel.ptx
    assert kernel.warnings == ["hint num_ctas=2 is not used", "hint occupancy=2 is not used"]
    assert ".reqntid 256" not in cutile.compile(copied, args).ptx
    hinted = copied.replace_hints(num_worker_warps=8)
    assert ".reqntid 128" in cutile.compile(hinted, args, options={"simt-warps": 4}).ptx
    a, c = np.zeros((128, 128), np.float16), np.zeros((128, 128), np.float32)
    kernel = cutile.compile(gemm.replace_hints(num_worker_warps=8), (a, a, c, 128, 128, 64))
    assert "num_worker_warps=8 is not used: " in kernel.warnings[0]


@ct.kernel
def printing(x, n):
    tile = ct.load(x, (ct.bid(0), 0), (2, 4))
    ct.printf("%d: %5.1f of %d%%\n", ct.bid(0), tile, n)
    ct.print(f"sums {ct.sum(tile, axis=1):.2f}", ct.arange(2, dtype=ct.int32), n, sep="; ")
    print("both:", tile > 5, tile.astype(ct.int64))


def test_printing(capfd):
    run((2,), printing, np.arange(16, dtype=np.float32).reshape(4, 4), 7)
    assert capfd.readouterr().out == (
        "0: [[  0.0,   1.0,   2.0,   3.0], [  4.0,   5.0,   6.0,   7.0]] of 7%\n"
        "sums [6.00, 22.00]; [0, 1]; 7\n"
        "both: [[0, 0, 0, 0], [0, 0, 1, 1]] [[0, 1, 2, 3], [4, 5, 6, 7]]\n"
        "1: [[  8.0,   9.0,  10.0,  11.0], [ 12.0,  13.0,  14.0,  15.0]] of 7%\n"
        "sums [38.00, 54.00]; [0, 1]; 7\n"
        "both: [[1, 1, 1, 1], [1, 1, 1, 1]] [[8, 9, 10, 11], [12, 13, 14, 15]]\n"
    )


@ct.kernel
def positive(x):
    tile = ct.load(x, (ct.bid(0),), (32,))
    ct.assert_(tile > 0, "positive numbers")
    ct.store(x, (ct.bid(0),), ct.sqrt(tile))


def test_assertions():
    x = np.ones(64, np.float32)
    run((2,), positive, x)
    x[40] = -1
    message = fails("E1211", lambda: run((2,), positive, x)).message
    line = inspect.getsourcelines(positive._pyfunc)[1] + 3
    assert f"{__file__}:{line}: " in message and "block: [1,0,0]" in message
    assert "`positive numbers` failed" in message


def test_tensors_of_a_device():
    device = tileas.Device.emulator()
    x = normal(20, 24)
    there, out = device.tensor(x), device.zeros((20, 24), np.float32)
    run((2, 2), copied, there, out, 16, 16)
    run((2, 2), copied, out, there, 16, 16)
    assert (there.numpy() == 4 * x).all()
    table = device.tensor(normal(64)), device.tensor(normal(64))
    total = np.zeros(64, np.float32)
    run((2,), gathered, list(table), total, 32)
    assert (table[1].numpy() == total).all() and total.any()
    fails("E1210", lambda: run((2,), copied, there, out, 16, 16, device=tileas.Device.emulator()))
    gpu = OnGpu(shape=(20, 24), typestr="<f4", data=(4096, False), version=3)
    fails("E1402", lambda: run((2, 2), copied, gpu, out, 16, 16, device=device))


class OnHost:
    """What torch says of a tensor that is not on a GPU."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **_):
        return self.array.__dlpack__()

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_tensors_of_others_on_the_host():
    x, y = normal(20, 24), np.zeros((20, 24), np.float32)
    run((2, 2), copied, OnHost(x), OnHost(y), 16, 16)
    assert (y == 2 * x).all()


def test_misuse():
    x = normal(20, 24)
    assert "(x, y, M, N)" in fails("E1102", lambda: run((1,), copied, x, x)).message
    fails("E1102", lambda: cutile.launch(None, (1,), copied, None))
    fails("E1403", lambda: run((1, 2, 3, 4), copied, x, x, 16, 16))
    fails("E1403", lambda: run((1,), print, x))
    fails("E1401", lambda: run((1,), copied, x, "y", 16, 16))
    fails("E1401", lambda: run((1,), copied, x, x.astype(complex), 16, 16))
    fails("E1401", lambda: run((1,), copied, x, x, 16, None))
    fails("E1401", lambda: run((1,), of_tuple, ((x, 1.0), x), x, (4, 4, 4)))
    fails("E1401", lambda: run((1,), of_tuple, ((x, 1.0), x), x, 4))


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.tile.compilation", None)
    error = fails("E1403", lambda: cutile.compile(copied, (normal(4, 4), normal(4, 4), 8, 8)))
    assert "pip install cuda-tile" in error.message
