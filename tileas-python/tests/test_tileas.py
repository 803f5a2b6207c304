"""The package from the outside: results, errors, misuse, threads, processes."""

import ctypes
import gc
import json
import pickle
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import tileas
from tileas import _arrays

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GEMM = (EXAMPLES / "gemm_f16.tileas").read_text()

ADD = """kernel @add(%x: view<gmem, ?x?xELEM>, %y: view<gmem, ?x?xELEM>, %z: view<gmem, ?x?xELEM>) {
  %i = program_id <{axis = 0}> : i32
  %j = program_id <{axis = 1}> : i32
  %a = tiled_load %x[%i, %j] : tile<16x64xELEM>
  %b = tiled_load %y[%i, %j] : tile<16x64xELEM>
  %s = addf %a, %b : tile<16x64xELEM>
  tiled_store %s, %z[%i, %j]
  return
}
"""


def add(elem="f32"):
    return ADD.replace("ELEM", elem)


def operands(m=200, n=264, k=136):
    rng = np.random.default_rng(7)
    a, b, bias = (rng.integers(-2, 3, s).astype(np.float16) for s in [(m, k), (n, k), n])
    c = np.full((m, n), np.nan, np.float16)
    want = np.maximum(a.astype(np.float32) @ b.T.astype(np.float32) + bias, 0)
    return a, b, bias, c, -(-k // 64), want.astype(np.float16)


@pytest.fixture(scope="module")
def gemm():
    return tileas.compile(GEMM)


def fails(code, call):
    with pytest.raises(tileas.Error) as caught:
        call()
    error = caught.value
    assert error.code == code, error
    assert error.errors and code in str(error)
    return error


def test_a_kernel_computes(gemm):
    for shape in [(200, 264, 136), (128, 128, 64), (8, 8, 8)]:
        *args, want = operands(*shape)
        gemm(*args)
        assert (args[3] == want).all()


def test_what_a_kernel_says_of_itself(gemm):
    assert gemm.name == "gemm_bias_relu" and ".entry gemm_bias_relu" in gemm.ptx
    assert gemm.metadata["kernel"] == "gemm_bias_relu" and gemm.machine_code is None
    assert gemm.assembler == "" and gemm.warnings == []
    assert "What binds" in gemm.explain()
    assert gemm.device.target == "sm_100a" and "emulator" in repr(gemm.device)
    assert "gemm_bias_relu" in repr(gemm)


def test_schedules_are_pictures(gemm, tmp_path):
    picture = gemm.schedule(iterations=4)
    assert ET.fromstring(picture._repr_svg_()).tag.endswith("svg")
    picture.save(tmp_path / "gemm.svg")
    assert (tmp_path / "gemm.svg").read_text() == str(picture)
    assert "agent1 load" in gemm.schedule("gantt").text
    assert gemm.schedule("gantt")._repr_svg_() is None
    assert "<html" in gemm.schedule("html")._repr_html_()
    json.loads(gemm.schedule("chrome-trace").text)
    with pytest.raises(ValueError, match="no format png"):
        gemm.schedule("png")


def test_arrays_of_any_strides():
    kernel = tileas.compile(add())
    base = np.arange(64 * 256, dtype=np.float32).reshape(64, 256)
    z = np.zeros((128, 300), np.float32)
    kernel(base[::2, ::2], base.T[:32, :].T[:32, :128 // 4 * 4][:, :32].repeat(4, 1), z[3:35, 5:133])
    want = base[::2, ::2] + base[:32, :32].repeat(4, 1)
    assert (z[3:35, 5:133] == want).all() and z.sum() == want.sum()
    flipped = np.zeros((32, 128), np.float32)
    kernel(base[::2, ::2][::-1], base[::2, ::2], flipped[:, ::-1])
    assert (flipped[:, ::-1] == base[::2, ::2][::-1] + base[::2, ::2]).all()


def test_types_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kernel = tileas.compile(add("bf16"))
    x = np.arange(32 * 64).reshape(32, 64).astype(ml_dtypes.bfloat16)
    z = np.zeros_like(x)
    kernel(x, x, z)
    assert (z == x + x).all()
    assert tileas.Device.emulator().tensor(x).numpy().dtype == ml_dtypes.bfloat16


def test_grids_and_tensors():
    kernel = tileas.compile(add())
    x, z = np.ones((32, 128), np.float32), np.zeros((32, 128), np.float32)
    kernel[1, 2](x, x, z)
    assert z[:16].all() and not z[16:].any()
    kernel[(2, 1), None](x, x, z)
    kernel[2](x, x, z)
    assert z[:, :64].all() and not z[16:, 64:].any()
    device = kernel.device
    a, b, out = device.tensor(x), device.tensor(2 * x), device.zeros((32, 128), np.float32)
    kernel(a, b, out)
    kernel(out, b, out)
    assert (out.numpy() == 5).all() and out.shape == (32, 128) and out.dtype == np.float32
    out.write(x)
    assert (out.numpy() == 1).all() and "f32" in repr(out)
    fails("E1401", lambda: out.write(x[:1]))
    for grid in [(), (1, 2, 3, 4), "x", 1.5, (-1,), 2**32]:
        fails("E1403", lambda: kernel[grid](x, x, z))
    fails("E1106", lambda: kernel[0](x, x, z))


def test_one_array_twice_and_arrays_that_overlap():
    kernel = tileas.compile(add())
    x = np.ones((32, 128), np.float32)
    kernel(x, x, x)
    assert (x == 2).all()
    big = np.ones((64, 128), np.float32)
    error = fails("E1402", lambda: kernel(big[:32], big[:32], big[16:48]))
    assert "z" in error.message
    # Side by side is not one over the other.
    wide = np.ones((32, 256), np.float32)
    kernel(wide[:, :128], wide[:, :128], wide[:, 128:])
    assert (wide[:, 128:] == 2).all()
    frozen = np.ones((32, 128), np.float32)
    frozen.setflags(write=False)
    kernel(frozen, frozen, x)
    fails("E1402", lambda: kernel(x, x, frozen))


def test_errors_have_places():
    text = "kernel @k() {\n  %x = addi 1, 2.5 : i32\n  retrun\n}\n"
    error = fails("E0002", lambda: tileas.compile(text))
    assert [(e.code, e.line, e.column) for e in error.errors] == [("E0002", 2, 16), ("E0004", 3, 3)]
    assert [e.code for e in tileas.check(text)] == ["E0002", "E0004"]
    assert tileas.check(GEMM) == []
    assert [e.code for e in tileas.check(GEMM, target="sm_12")] == ["E0890"]
    placed = GEMM.replace("%x  = addf %acc, %bb", '%x  = addf %acc, %bt {loc = "model.py:12:5"}')
    entry = tileas.check(placed)[0]
    assert (entry.file, entry.line, entry.column) == ("model.py", 12, 5), entry
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.errors, str(again)) == (error.code, error.errors, str(error))


def test_options():
    assert tileas.compile(GEMM, options={"max-regs": 128, "ptx-comments": False}).name
    assert ".maxnreg 128" in tileas.compile(GEMM, options=["max-regs=128"]).ptx
    fails("E1002", lambda: tileas.compile(GEMM, options={"no-such": 1}))
    fails("E1003", lambda: tileas.compile(GEMM, options={"max-regs": "many"}))
    fails("E1403", lambda: tileas.compile(GEMM, options="max-regs=128"))


def test_modules_of_several_kernels():
    both = add() + GEMM
    assert "add" in fails("E1403", lambda: tileas.compile(both)).message
    assert tileas.compile(both, "add").name == "add"
    fails("E1212", lambda: tileas.compile(both, "sub"))
    fails("E1403", lambda: tileas.compile(""))


def test_ptx_from_elsewhere(gemm):
    for metadata in (gemm.metadata, json.dumps(gemm.metadata)):
        kernel = tileas.Jit().load(gemm.ptx, metadata)
        *args, want = operands()
        kernel(*args)
        assert kernel.name == gemm.name and (args[3] == want).all()
        fails("E1403", kernel.explain)
        fails("E1403", kernel.schedule)
    fails("E1101", lambda: tileas.Jit().load(gemm.ptx, "{}"))
    fails("E1212", lambda: tileas.Jit().load(gemm.ptx, "[]"))


def test_rows_of_odd_lengths():
    """A launch that TMA does not take goes without, where the kernel is this compiler's and has no descriptors of its own."""
    text = """kernel @add(%x: view<gmem, ?x?xf32>, %y: view<gmem, ?x?xf32>, %z: view<gmem, ?x?xf32>, %kt: i32) {
  %i = program_id <{axis = 0}> : i32
  %zero = constant 0.0 : tile<128x32xf32>
  %s = for %k = 0 to %kt step 1 iter (%p = %zero : tile<128x32xf32>) {
    %a = tiled_load %x[%i, %k] : tile<128x32xf32>
    %b = tiled_load %y[%i, %k] : tile<128x32xf32>
    %n = fma %a, %b, %p
    yield %n
  }
  tiled_store %s, %z[%i, 0]
  return
}
"""
    kernel = tileas.compile(text)
    assert kernel.metadata["tensor_maps"]
    rng = np.random.default_rng(3)
    for n in (32, 31):
        x, y = (rng.integers(-2, 3, (130, n)).astype(np.float32) for _ in range(2))
        z = np.full((130, n), np.nan, np.float32)
        kernel(x, y, z, 1)
        assert (z == x * y).all()
    alone = tileas.Jit().load(kernel.ptx, kernel.metadata)
    fails("E1104", lambda: alone(x, y, z, 1))


def test_misuse_is_an_error(gemm):
    a, b, bias, c, kt, _ = operands()
    fails("E1102", lambda: gemm(a, b, bias, c))
    fails("E1103", lambda: gemm(a.astype(np.float32), b, bias, c, kt))
    fails("E1103", lambda: gemm(a, b, bias[None], c, kt))
    fails("E1103", lambda: gemm(a, b, 3, c, kt))
    fails("E1103", lambda: gemm(a, b, bias, c, 1.5))
    fails("E1104", lambda: gemm(a[:, :133], b[:, :133], bias, c, kt))
    fails("E1401", lambda: gemm(a.tolist(), b, bias, c, kt))
    fails("E1401", lambda: gemm(None, b, bias, c, kt))
    fails("E1401", lambda: gemm(a.astype(complex), b, bias, c, kt))
    fails("E1401", lambda: gemm(np.array(["x"]), b, bias, c, kt))
    fails("E1210", lambda: gemm(tileas.Device.emulator().tensor(a), b, bias, c, kt))
    fails("E1210", lambda: gemm[None, 5](a, b, bias, c, kt))
    fails("E1403", lambda: gemm[None, "s"](a, b, bias, c, kt))
    fails("E1209", lambda: tileas.Device.emulator().zeros((1 << 40, 1 << 40), np.float32))
    fails("E1204", lambda: tileas.Device.cuda(0)) if not _has_gpu() else None
    fails("E1403", lambda: tileas.Jit(device="cuda"))
    with pytest.raises(TypeError):
        tileas.compile(7)


def _has_gpu():
    try:
        tileas.Device.cuda(0)
    except tileas.Error:
        return False
    return True


def test_faults_of_kernels_are_errors():
    # A view that says more than there is cannot be made; a wrong trip count can.
    wrong = add().replace("%z[%i, %j]", "%x[%i, %j]")
    kernel = tileas.compile(wrong)
    x = np.ones((32, 128), np.float32)
    kernel(x, x.copy(), x.copy())
    assert (x == 2).all()


def test_timings_of_the_emulator(gemm):
    # Without its waits the last store may be under way when the kernel ends: not where all is done at once.
    hasty, waits = re.subn(r"cp\.async\.bulk\.wait_group[^;]*;", "", gemm.ptx)
    assert waits > 0
    for timing in ("fast", "latest", "random"):
        for seed in (1, 2):
            device = tileas.Device.emulator(timing=timing, seed=seed)
            *args, want = operands()
            tileas.Jit(device=device).compile(GEMM)(*args)
            assert (args[3] == want).all()
            kernel = tileas.Jit(device=device).load(hasty, gemm.metadata)
            if timing == "latest":
                fails("E1211", lambda: kernel(*args))
    with pytest.raises(ValueError, match="fast, latest or random"):
        tileas.Device.emulator(timing="slow")


def test_threads_share_kernels():
    jit = tileas.Jit()
    results = []

    def work():
        kernel = jit.compile(GEMM)
        *args, want = operands(64, 64, 64)
        kernel(*args)
        results.append((args[3] == want).all())

    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == [True] * 8 and jit.compiled == 1


def test_processes_share_a_cache(tmp_path):
    code = (
        "import sys, tileas; jit = tileas.Jit(cache=sys.argv[1]);"
        "jit.compile(open(sys.argv[2]).read()); print(jit.compiled, jit.stats['disk_hits'])"
    )
    run = lambda: subprocess.run(
        [sys.executable, "-c", code, tmp_path, EXAMPLES / "gemm_f16.tileas"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert run() == ["1", "0"]
    assert run() == ["0", "1"]
    fails("E1206", lambda: tileas.Jit(cache="/dev/null/x"))


class OnGpu:
    """What torch and cupy say of arrays on a GPU."""

    def __init__(self, **interface):
        self.__cuda_array_interface__ = interface


def test_the_cuda_array_interface(gemm):
    there = OnGpu(shape=(4, 6), typestr="<f2", data=(4096, True), strides=(32, 2), version=3)
    seen = _arrays.foreign(there)
    assert (seen.address, seen.elem, seen.shape, seen.strides) == (4096, "f16", [4, 6], [16, 1])
    assert seen.read_only and seen.owner is there
    dense = _arrays.foreign(OnGpu(shape=(2, 3, 4), typestr="<f4", data=(64, False), version=3))
    assert dense.strides == [12, 4, 1]
    brain = OnGpu(shape=(4,), typestr="<V2", data=(64, False), version=3)
    fails("E1401", lambda: _arrays.foreign(brain))
    # torch says of which type its two bytes are; of types that the protocol has no name for it raises.
    brain.dtype = "torch.bfloat16"
    assert _arrays.foreign(brain).elem == "bf16"

    class Eight:
        @property
        def __cuda_array_interface__(self):
            raise KeyError("torch.float8_e4m3fn")

    assert _arrays.foreign(Eight()) is None
    fails("E1402", lambda: _arrays.foreign(OnGpu(shape=(4,), typestr="<f4", data=(64, False), strides=(6,), version=3)))
    assert _arrays.foreign(np.ones(3)) is None
    _, b, bias, c, kt, _ = operands()
    assert "GPU" in fails("E1402", lambda: gemm(there, b, bias, c, kt)).message


class Capsule:
    """A DLPack tensor on a GPU, made by hand."""

    def __init__(self, code=2, bits=16, lanes=1, strides=(8, 1), device=(2, 3)):
        self.shape = (ctypes.c_int64 * 2)(4, 6)
        self.strides = (ctypes.c_int64 * 2)(*strides) if strides else None
        self.tensor = _arrays._Tensor(
            4096,
            _arrays._Device(*device),
            2,
            _arrays._Type(code, bits, lanes),
            self.shape,
            ctypes.cast(self.strides, ctypes.POINTER(ctypes.c_int64)) if strides else None,
            64,
        )
        self.place = device

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def test_dlpack(gemm):
    owner = Capsule()
    seen = _arrays.foreign(owner)
    assert (seen.address, seen.elem, seen.shape, seen.strides) == (4160, "f16", [4, 6], [8, 1])
    assert seen.device == 3 and seen.owner[0] is owner
    assert _arrays.foreign(Capsule(strides=None)).strides == [6, 1]
    assert _arrays.foreign(Capsule(code=4)).elem == "bf16"
    fails("E1401", lambda: _arrays.foreign(Capsule(code=5)))
    fails("E1401", lambda: _arrays.foreign(Capsule(lanes=4)))
    assert _arrays.foreign(Capsule(device=(1, 0))) is None
    _, b, bias, c, kt, _ = operands()
    fails("E1402", lambda: gemm(owner, b, bias, c, kt))


def test_codes_are_met():
    text = Path(__file__).read_text() + (Path(__file__).parent / "test_tune.py").read_text()
    for code, meaning in tileas.CODES.items():
        assert f'"{code}"' in text, f"{code}: {meaning}"


def test_memory_goes():
    device = tileas.Device.emulator()
    kernel = tileas.Jit(device).compile(add())
    x = np.ones((256, 1024), np.float32)
    for _ in range(20):
        z = np.zeros_like(x)
        kernel(x, x, z)
    gc.collect()
    assert z.all()
