"""Steps that measure: ratios against others in one run, and predicted against measured cycles."""

import json
import statistics

import arrays

# M, N, K.
GEMMS = [(4096, 4096, 4096), (8192, 8192, 8192)]
# Heads, keys, head dimension.
ATTENTION = (32, 4096, 128)
# Elements, and rows of 128: larger than the L2 cache.
ELEMENTS, ROWS = 1 << 26, 1 << 19


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

        cubins = sorted(path.name for path in (s.here / "cubins").glob("*.cubin"))
        if importlib.util.find_spec("triton") is None:
            return {"left out": "no GPU", "cubins": cubins}
        import peers

        return {"left out": "no GPU", "cubins": cubins, "Triton kernels that compile": peers.compile_all()}
    races = []
    for part in (gemms, attentions, rows):
        races += part(s)
    wrong = [text for race, _ in races for text in race.wrong]
    return {"races": [race.result(reference) for race, reference in races], "wrong": wrong}


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
    jit, races = tileas.Jit(on), []
    for m, n, k in GEMMS:
        race = Race(s, f"GEMM f16 {m} x {n} x {k}", 2e-9 * m * n * k, "TFLOP/s", 2e-3)
        x = arrays.Maker(False, 2)
        a, b = x.normal((m, k), "f16"), x.normal((n, k), "f16")
        zero = torch.zeros(n, dtype=torch.float16, device="cuda")
        want = a @ b.T

        def cublas():
            out = torch.empty_like(want)
            return (lambda: torch.mm(a, b.T, out=out)), out

        def ours(file, *more):
            def prepare():
                kernel = jit.compile((s.here / "examples" / file).read_text())
                out = torch.empty_like(want)
                return (lambda: kernel[None, current()](a, b, zero, out, *more)), out

            return prepare

        def by_hand():
            kernel = jit.load(
                (s.here / "ptx/gemm_coop_sm90a.ptx").read_text(), (s.here / "ptx/gemm_coop_sm90a.json").read_text()
            )
            out = torch.empty_like(want)
            counts = (-(-k // 64), -(-m // 128), -(-n // 256))
            return (lambda: kernel[None, current()](a, b, zero, out, *counts)), out

        def by_triton(bm, bn, warps, stages):
            def prepare():
                out = torch.empty_like(want)
                da = TensorDescriptor.from_tensor(a, [bm, 64])
                db = TensorDescriptor.from_tensor(b, [bn, 64])
                dc = TensorDescriptor.from_tensor(out, [bm, bn])
                grid = (m // bm, n // bn)
                return (
                    lambda: peers.gemm[grid](da, db, dc, k, bm, bn, 64, num_warps=warps, num_stages=stages)
                ), out

            return prepare

        def by_tileiras(path):
            def prepare():
                kernel = peers.Cubin(path)
                out = torch.empty_like(want)
                grid = (m // kernel.tile[0], n // kernel.tile[1], 1)
                return (lambda: kernel.launch(grid, (a, b, out), current().cuda_stream)), out

            return prepare

        race.add("cuBLAS (torch.mm)", cublas, want)
        # Products by multiply-adds take too long for the large one.
        if on.target != "sm_90a" or m <= 4096:
            relu = torch.relu(want)
            race.add("tileas, gemm_f16", ours("gemm_f16.tileas", -(-k // 64)), relu)
        if on.target == "sm_90a":
            race.add("by hand, sm_90a", by_hand, torch.relu(want))
        race.add("Triton 128x128", by_triton(128, 128, 4, 4), want)
        race.add("Triton 128x256", by_triton(128, 256, 8, 3), want)
        for path in sorted((s.here / "cubins").glob(f"gemm-*-{on.target.rstrip('af')}.cubin")):
            tile = path.name.split("-")[1]
            race.add(f"tileiras {tile}", by_tileiras(path), want)
        races.append((race, "cuBLAS (torch.mm)"))
    return races


def attentions(s):
    import peers
    import tileas
    import torch
    from triton.tools.tensor_descriptor import TensorDescriptor

    heads, length, d = ATTENTION
    race = Race(s, f"attention f16, {heads} heads, {length} keys, d {d}", 4e-9 * heads * length * length * d, "TFLOP/s", 2e-2)
    x = arrays.Maker(False, 3)
    q, k, v = (x.normal((heads, length, d), "f16") for _ in range(3))
    scale = d**-0.5
    attend = torch.nn.functional.scaled_dot_product_attention
    want = attend(q[None], k[None], v[None], scale=scale)[0]
    on = tileas.Device.cuda(0)

    def by_torch():
        out = torch.empty_like(want)
        return (lambda: out.copy_(attend(q[None], k[None], v[None], scale=scale)[0])), out

    def by_hand():
        text = [(s.here / f"ptx/attention_fwd_sm90a.{e}").read_text() for e in ("ptx", "json")]
        kernel, out = tileas.Jit(on).load(*text), torch.empty_like(want)
        return (lambda: kernel[None, current()](q, k, v, out, length, scale * 1.4426950408889634)), out

    def by_triton(bm, bn, warps, stages):
        def prepare():
            out = torch.empty_like(want)
            flat = [t.view(heads * length, d) for t in (q, k, v, out)]
            blocks = [[bm, d], [bn, d], [bn, d], [bm, d]]
            made = [TensorDescriptor.from_tensor(t, block) for t, block in zip(flat, blocks)]
            grid = (length // bm, heads)
            return (
                lambda: peers.attention[grid](
                    *made, length, scale * 1.4426950408889634, bm, bn, d, num_warps=warps, num_stages=stages
                )
            ), out

        return prepare

    race.add("torch", by_torch, want)
    if on.target == "sm_90a":
        race.add("by hand, sm_90a", by_hand, want)
    race.add("Triton 128x64", by_triton(128, 64, 8, 3), want)
    race.add("Triton 128x128", by_triton(128, 128, 8, 2), want)
    return [(race, "torch")]


def rows(s):
    """What moves memory: against a copy of as many bytes."""
    import peers
    import tileas
    import torch

    on, races = tileas.Device.cuda(0), []
    x = arrays.Maker(False, 4)
    jit = tileas.Jit(on)

    def kernel(name):
        return jit.compile((s.here / "kernels" / f"{name}.tileas").read_text())

    count, lines = ELEMENTS, ROWS
    a = torch.randn(count, device="cuda")
    b = torch.randn(count, device="cuda")
    race = Race(s, f"x + y, {count} f32", 12e-6 * count, "GB/s", 1e-6)

    def add(f):
        def prepare():
            out = torch.empty_like(a)
            return f(out), out

        return prepare

    big = torch.randn(count * 3 // 2, device="cuda")

    def copy():
        out = torch.empty_like(big)
        return (lambda: out.copy_(big)), out

    race.add("copy of as many bytes", copy, big)
    race.add("torch", add(lambda out: lambda: torch.add(a, b, out=out)), a + b)
    race.add("Triton", add(lambda out: lambda: peers.add[(count // 1024,)](a, b, out, 1024)), a + b)
    ours = kernel("add_vector")
    race.add("tileas", add(lambda out: lambda: ours[None, current()](a, b, out)), a + b)
    races.append((race, "copy of as many bytes"))

    data = x.normal((lines, 128), "f32")
    want = torch.softmax(data, 1)
    race = Race(s, f"softmax of {lines} rows of 128, f32", 8e-6 * lines * 128, "GB/s", 1e-5)

    def twice(f):
        def prepare():
            out = torch.empty_like(data)
            return f(out), out

        return prepare

    race.add("copy of as many bytes", twice(lambda out: lambda: out.copy_(data)), data)
    race.add("torch", twice(lambda out: lambda: torch.softmax(data, 1, out=out)), want)
    race.add("Triton", twice(lambda out: lambda: peers.softmax[(lines // 64,)](data, out, 128, 64)), want)
    soft = kernel("softmax_rows")
    race.add("tileas", twice(lambda out: lambda: soft[4 * on.sms, current()](data, out, lines // 128)), want)
    races.append((race, "copy of as many bytes"))
    return races


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
    short, long = (16, 144) if target != "sm_90a" else (4, 36)
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
