"""Steps that measure: ratios against others in one run, and predicted against measured cycles."""

import json
import statistics

import arrays
import texts

# Elements, M, N, K.
GEMMS = [
    ("bf16", 8192, 8192, 8192),
    ("bf16", 4096, 4096, 4096),
    ("bf16", 4096, 4096, 14336),
    ("e4m3", 8192, 8192, 8192),
]
# Heads, keys, head dimension, causal; queries and keys of a tile.
ATTENTIONS = [
    (16, 8192, 128, False, (128, 128)),
    (8, 16384, 128, True, (128, 128)),
    (32, 8192, 64, False, (128, 256)),
    (8, 8192, 256, False, (128, 64)),
]


def bench(call, limit=0.4):
    """Milliseconds of a call: launches recorded as a graph where that works, so that no host is measured; the median of several replays."""
    import torch

    call()
    torch.cuda.synchronize()

    def timed(run, count):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / count

    once = max(timed(call, 1), 1e-3)
    count = max(1, min(50, int(20 / once)))
    try:
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(count):
                call()
        run = graph.replay
    except Exception:
        torch.cuda.synchronize()

        def run():
            for _ in range(count):
                call()

    run()
    rounds = max(3, min(15, int(1000 * limit / (once * count))))
    return statistics.median(timed(run, count) for _ in range(rounds))


class Race:
    """Contestants for the same work, all judged before they are timed."""

    def __init__(self, s, name, work, unit, tolerance):
        self.s, self.name, self.work, self.unit, self.tolerance = s, name, work, unit, tolerance
        self.times, self.wrong, self.absent = {}, [], {}

    def add(self, name, prepare, want):
        """`prepare()` gives a call and the array that it fills."""
        import torch

        if self.s.left() < 20:
            self.absent[name] = "no time"
            return
        try:
            call, out = prepare()
            call()
            torch.cuda.synchronize()
            scale = float(want.float().abs().max())
            worst = float((out.float() - want.float()).abs().max()) / scale
            if not worst <= self.tolerance:
                self.wrong.append(f"{self.name}, {name}: off by {worst:.3g} of the largest element")
                return
            self.times[name] = bench(call)
        except Exception as e:
            self.absent[name] = f"{type(e).__name__}: {str(e)[:300]}"
            self.s.say(f"{self.name}, {name}: {self.absent[name]}")

    def result(self, reference):
        """Times, rates, and the reference's time over each."""
        base = self.times.get(reference)
        rows = {
            name: {"ms": ms, self.unit: self.work / ms, "ratio": base / ms if base else None}
            for name, ms in self.times.items()
        }
        return {"name": self.name, "reference": reference, "unit": self.unit, "rows": rows, "absent": self.absent}


def ratios(s):
    """GEMM, attention and memory-bound kernels, ours and those of others."""
    if s.dry:
        import importlib.util

        import tileas

        cubins = sorted(path.name for path in (s.here / "cubins").glob("*.cubin"))
        jit = tileas.Jit(tileas.Device.emulator("sm_90a"))
        for elem in {elem for elem, *_ in GEMMS}:
            for order in ("plain", "persistent"):
                jit.compile(texts.gemm(128, 256, 64 if elem == "bf16" else 128, elem, order))
            for consumers in ("cooperative", "ping-pong"):
                other = tileas.Jit(tileas.Device.emulator("sm_90a"), options={"consumers": consumers})
                other.compile(texts.gemm(128, 128, 64 if elem == "bf16" else 128, elem, "persistent"))
            for bn in (64, 128, 256):
                pairs = tileas.Jit(tileas.Device.emulator("sm_90a"), options={"cluster": "2"})
                pairs.compile(texts.gemm(128, bn, 64 if elem == "bf16" else 128, elem, "plain"))
        for _, _, d, causal, (bm, bn) in ATTENTIONS:
            jit.compile(texts.attention(bm, bn, d, "f16", causal))
        if importlib.util.find_spec("triton") is None:
            return {"left out": "no GPU", "cubins": cubins}
        import peers

        return {"left out": "no GPU", "cubins": cubins, "Triton kernels that compile": peers.compile_all()}
    races, wrong = [], []
    for part in (gemms, attentions, rows):
        try:
            for race, reference in part(s):
                races.append(race.result(reference))
                wrong += race.wrong
        except Exception as e:
            wrong.append(f"{part.__name__}: {type(e).__name__}: {str(e)[:300]}")
    return {"races": races, "wrong": wrong}


def current():
    """torch's stream, as a place for a launch."""
    import torch

    return torch.cuda.current_stream()


def gemms(s):
    import peers
    import tileas
    import torch
    from triton.tools.tensor_descriptor import TensorDescriptor

    on = tileas.Device.cuda(0)
    jit = tileas.Jit(on)
    for elem, m, n, k in GEMMS:
        race = Race(s, f"GEMM {elem} {m} x {n} x {k}", 2e-9 * m * n * k, "TFLOP/s", 1e-2)
        torch.manual_seed(2)
        kind = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}[elem]
        a, b = (torch.randn(rows, k, device="cuda").to(kind) for rows in (m, n))
        one = torch.ones((), device="cuda")

        def by_torch(out=None):
            if elem == "bf16":
                return torch.mm(a, b.T, out=out)
            scales = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16}
            return torch._scaled_mm(a, b.T, **scales, use_fast_accum=True, out=out)

        want = by_torch()

        def reference():
            out = torch.empty_like(want)
            return (lambda: by_torch(out)), out

        bk = 64 if elem == "bf16" else 128

        def ours(order, grid, bm=128, bn=256, jit=jit):
            def prepare():
                kernel = jit.compile(texts.gemm(bm, bn, bk, elem, order))
                out = torch.empty_like(want)
                return (lambda: kernel[grid, current()](a, b, out, -(-k // bk))), out

            return prepare

        def by_triton(bm, bn, warps, stages):
            def prepare():
                out = torch.empty_like(want)
                da = TensorDescriptor.from_tensor(a, [bm, bk])
                db = TensorDescriptor.from_tensor(b, [bn, bk])
                dc = TensorDescriptor.from_tensor(out, [bm, bn])
                grid = (m // bm, n // bn)
                return (
                    lambda: peers.gemm[grid](da, db, dc, k, bm, bn, bk, num_warps=warps, num_stages=stages)
                ), out

            return prepare

        def by_tileiras(path):
            def prepare():
                kernel = peers.Cubin(path)
                out = torch.empty_like(want)
                grid = (m // kernel.tile[0], n // kernel.tile[1], 1)
                return (lambda: kernel.launch(grid, (a, b, out), current().cuda_stream)), out

            return prepare

        race.add("torch", reference, want)
        race.add("tileas 128x256, a CTA a tile", ours("plain", (m // 128, n // 256)), want)
        # A number of CTAs that shares the tiles out evenly, and one for each processor.
        for ctas in sorted({on.sms // 32 * 32, on.sms}):
            race.add(f"tileas 128x256, {ctas} persistent CTAs", ours("persistent", (ctas,)), want)
        # A tile for both warpgroups, and one for each in turn.
        for consumers in ("cooperative", "ping-pong") if on.target.startswith("sm_90") else ():
            name = f"tileas 128x128, {on.sms} persistent CTAs, {consumers}"
            other = tileas.Jit(on, options={"consumers": consumers})
            race.add(name, ours("persistent", (on.sms,), 128, 128, other), want)
        # Tiles as the grid numbers them, in bands of rows, and what CTAs have in common loaded once for two or four.
        for bn in (64, 128, 256) if m // 128 % 4 == 0 else ():
            for key, value in (("grid-group", "1"), ("grid-group", "auto"), ("cluster", "2"), ("cluster", "4")):
                other = tileas.Jit(on, options={key: value})
                name = f"tileas 128x{bn}, a CTA a tile, {key}={value}"
                race.add(name, ours("plain", (m // 128, n // bn), 128, bn, other), want)
        race.add("Triton 128x256", by_triton(128, 256, 8, 3), want)
        for path in sorted((s.here / "cubins").glob(f"gemm-*-{on.target.rstrip('af')}.cubin")) if elem == "bf16" else ():
            tile = path.name.split("-")[1]
            race.add(f"tileiras {tile}", by_tileiras(path), want)
        # The first again: clocks fall under load, and with them all that comes late.
        race.add("torch again", reference, want)
        yield race, "torch"


def attentions(s):
    import tileas
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    jit = tileas.Jit(tileas.Device.cuda(0))
    attend = torch.nn.functional.scaled_dot_product_attention
    for heads, length, d, causal, (bm, bn) in ATTENTIONS:
        name = f"attention f16, {heads} heads, {length} keys, d {d}{', causal' if causal else ''}"
        work = (2e-9 if causal else 4e-9) * heads * length * length * d
        race = Race(s, name, work, "TFLOP/s", 2e-2)
        torch.manual_seed(3)
        q, k, v = (torch.randn(heads, length, d, device="cuda").half() for _ in range(3))
        want = torch.empty_like(q)

        def by_torch(backend):
            def prepare():
                def call():
                    with sdpa_kernel(backend):
                        return attend(q[None], k[None], v[None], is_causal=causal)[0]

                want.copy_(call())
                return call, want

            return prepare

        def ours():
            kernel = jit.compile(texts.attention(bm, bn, d, "f16", causal))
            out = torch.empty_like(q)
            scale = d**-0.5 * 1.4426950408889634
            return (lambda: kernel[(length // bm, heads), current()](q, k, v, out, scale)), out

        race.add("torch, cuDNN", by_torch(SDPBackend.CUDNN_ATTENTION), want)
        race.add("torch, FlashAttention-2", by_torch(SDPBackend.FLASH_ATTENTION), want)
        race.add(f"tileas {bm}x{bn}", ours, want)
        yield race, "torch, cuDNN"


def rows(s):
    """What moves memory: against torch, which moves as many bytes."""
    import tileas
    import torch

    jit = tileas.Jit(tileas.Device.cuda(0))
    torch.manual_seed(4)

    def random(*shape):
        return torch.randn(*shape, device="cuda")

    def against(name, file, moved, reference, launch, out, tolerance):
        race = Race(s, name, 1e-6 * moved, "GB/s", tolerance)
        want = reference()

        def ours():
            kernel = jit.compile((s.here / "examples/kernels" / f"{file}.tileas").read_text())
            return (lambda: launch(kernel)), out

        race.add("torch", lambda: (reference, want), want)
        race.add("tileas", ours, want)
        return race, "torch"

    x, y = random(1 << 26), random(1 << 26)
    z = torch.empty_like(x)
    grid = (x.numel() // 512,)
    yield against(
        "x + y", "add", 12 * x.numel(), lambda: torch.add(x, y), lambda k: k[grid, current()](x, y, z), z, 1e-6
    )
    a = random(65536, 1024)
    b = torch.empty_like(a)
    yield against(
        "softmax of rows of 1024, f32",
        "softmax_rows",
        8 * a.numel(),
        lambda: torch.softmax(a, 1),
        lambda k: k[(65536 // 4,), current()](a, b),
        b,
        1e-5,
    )
    c, w, bias = random(131072, 512), random(512), random(512)
    d, mean, rstd = torch.empty_like(c), random(131072), random(131072)
    yield against(
        "layer norm of rows of 512, f32",
        "layer_norm",
        8 * c.numel(),
        lambda: torch.nn.functional.layer_norm(c, (512,), w, bias, 1e-5),
        lambda k: k[(131072 // 4,), current()](c, w, bias, d, mean, rstd),
        d,
        1e-4,
    )
    h, g = random(32768, 4096).bfloat16(), random(4096).bfloat16()
    o = torch.empty_like(h)
    yield against(
        "RMS norm of rows of 4096, bf16",
        "rms_norm",
        4 * h.numel(),
        lambda: torch.nn.functional.rms_norm(h, (4096,), g, 1e-5),
        lambda k: k[(32768,), current()](h, g, o),
        o,
        2e-2,
    )


def cycles(s):
    """Clocks of an iteration of a loop: by the model, and as a difference of two launches of one CTA."""
    import tileas

    target = "sm_90a" if s.dry else tileas.Device.cuda(0).target
    found = {"loops": {}}
    source = s.here / "examples/gemm_f16.tileas"
    command = [s.here / "bin/tileas", "schedule", source, "--target", target, "--format", "json"]
    status, output = s.call([*command, "--set", "published.cycle-model=real"], 60)
    if status:
        return {"wrong": [output[-1000:]]}
    predicted = json.loads(output)[0]["ii"]
    found["loops"]["gemm_f16, K loop"] = one = {"predicted": predicted}
    if s.dry:
        return found
    import torch

    on = tileas.Device.cuda(0)
    jit = tileas.Jit(on)
    x = arrays.Maker(False, 5)
    short, long = 16, 144
    k = long * 64
    a, b, bias = x.ints((128, k), "f16"), x.ints((128, k), "f16"), x.ints((128,), "f16")
    c = torch.empty((128, 128), dtype=torch.float16, device="cuda")
    kernel = jit.compile(source.read_text())
    times = [bench(lambda trips=trips: kernel[(1, 1), current()](a, b, bias, c, trips)) for trips in (short, long)]
    one |= {"launches ms": times, "us": (times[1] - times[0]) / (long - short) * 1000}
    status, line = s.call(["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"], 10)
    if not status:
        one["clock MHz"] = float(line.strip().splitlines()[0])
        one["measured"] = one["us"] * one["clock MHz"]
    return found
