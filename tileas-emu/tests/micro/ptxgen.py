"""Helpers that write the micro-kernels' PTX text.

A micro-kernel asks one question about layout or rounding and stores raw register or memory bytes.
In: lists of instructions. Out: PTX modules with one entry, `k`. Every pointer parameter is a
global address; parameters are documented where the kernels are made (`kernels.py`).
"""
from pathlib import Path

HERE = Path(__file__).resolve().parent


def module(target, version, params, body, threads, smem=0):
    """A module with entry `k`. `params`: list of (name, type); type `tensormap` is a 128-byte map."""
    lines = []
    for name, kind in params:
        lines.append(f"    .param .align 64 .b8 {name}[128]" if kind == "tensormap" else f"    .param .{kind} {name}")
    shared = ".extern .shared .align 1024 .b8 smem[];\n" if smem else ""
    return (
        f".version {version}\n.target {target}\n.address_size 64\n\n{shared}"
        f".visible .entry k(\n" + ",\n".join(lines) + f"\n)\n.reqntid {threads}, 1, 1\n{{\n"
        "    .reg .pred %p<8>;\n    .reg .b8 %b<4>;\n    .reg .b16 %h<64>;\n    .reg .b32 %r<640>;\n    .reg .b64 %rd<64>;\n    .reg .f32 %f<160>;\n"
        + body + "    ret;\n}\n"
    )


def write(name, text):
    """Writes `name`.ptx beside this file."""
    (HERE / f"{name}.ptx").write_text(text)


def elementwise(name, target, version, inputs, ops, threads=256):
    """One thread per element. `inputs` b32 arrays a, b, c...; every op stores a b32 array.

    An op is (text, class): in the text {a} is an input as .f32, {ra} as .b32, {ha} its low 16 bits,
    {t0}.. scratch b32, and {d} the result of class `f` (.f32), `r` (.b32), `h` (.b16), `b` (.b8),
    `d` (.b64: two arrays, low words first).
    """
    params = [(x, "u64") for x in inputs] + [("out", "u64")]
    body = "    mov.u32 %r0, %tid.x;\n    mul.wide.u32 %rd0, %r0, 4;\n"
    names = {}
    for i, x in enumerate(inputs):
        body += (f"    ld.param.u64 %rd1, [{x}];\n    add.s64 %rd1, %rd1, %rd0;\n    ld.global.b32 %r{10 + i}, [%rd1];\n"
                 f"    mov.b32 %f{10 + i}, %r{10 + i};\n    cvt.u16.u32 %h{10 + i}, %r{10 + i};\n")
        names |= {x: f"%f{10 + i}", "r" + x: f"%r{10 + i}", "h" + x: f"%h{10 + i}"}
    names |= {f"t{i}": f"%r{30 + i}" for i in range(8)}
    body += "    ld.param.u64 %rd2, [out];\n    add.s64 %rd2, %rd2, %rd0;\n"
    k = 0
    step = 4 * threads
    for text, kind in ops:
        d = {"f": "%f1", "r": "%r1", "h": "%h1", "b": "%b1", "d": "%rd4"}[kind]
        body += "    " + text.format(d=d, **names) + "\n"
        if kind == "h":
            body += "    cvt.u32.u16 %r1, %h1;\n"
        if kind == "b":
            body += "    cvt.u32.u8 %r1, %b1;\n"
        if kind == "f":
            body += "    mov.b32 %r1, %f1;\n"
        if kind == "d":
            body += "    mov.b64 {%r1, %r2}, %rd4;\n"
        body += f"    st.global.b32 [%rd2+{k * step}], %r1;\n"
        k += 1
        if kind == "d":
            body += f"    st.global.b32 [%rd2+{k * step}], %r2;\n"
            k += 1
    write(name, module(target, version, params, body, threads))
    return [t for t, kind in ops for t in ([t, t] if kind == "d" else [t])]


def fill_shared(source="image", size="bytes", value=None):
    """Copies `size` bytes from global memory into shared memory at its base (all 16-byte chunks of
    the block's threads), then fences for the async proxy and synchronises. %r5 is the base."""
    load = f"    ld.param.u64 %rd10, [{source}];\n" if value is None else ""
    move = ("    add.s64 %rd12, %rd10, %rd11;\n    ld.global.v4.b32 {%r11, %r12, %r13, %r14}, [%rd12];\n" if value is None
            else f"    mov.b32 %r11, {value};\n    mov.b32 %r12, {value};\n    mov.b32 %r13, {value};\n    mov.b32 %r14, {value};\n")
    return (
        f"{load}    ld.param.u32 %r6, [{size}];\n    mov.u32 %r5, smem;\n    mov.u32 %r0, %tid.x;\n    shl.b32 %r7, %r0, 4;\n    mov.u32 %r8, %ntid.x;\n    shl.b32 %r8, %r8, 4;\n"
        "FILL:\n    setp.ge.u32 %p0, %r7, %r6;\n    @%p0 bra FILLED;\n    cvt.u64.u32 %rd11, %r7;\n" + move +
        "    add.u32 %r9, %r5, %r7;\n    st.shared.v4.b32 [%r9], {%r11, %r12, %r13, %r14};\n    add.u32 %r7, %r7, %r8;\n    bra FILL;\n"
        "FILLED:\n    bar.warp.sync 0xffffffff;\n    fence.proxy.async.shared::cta;\n    bar.sync 0;\n"
    )


def dump_shared(out="out", size="bytes"):
    """Copies `size` bytes of shared memory to global memory, all threads."""
    return (
        f"    bar.warp.sync 0xffffffff;\n    bar.sync 0;\n    ld.param.u64 %rd10, [{out}];\n    ld.param.u32 %r6, [{size}];\n    mov.u32 %r0, %tid.x;\n    shl.b32 %r7, %r0, 4;\n    mov.u32 %r8, %ntid.x;\n    shl.b32 %r8, %r8, 4;\n"
        "DUMP:\n    setp.ge.u32 %p0, %r7, %r6;\n    @%p0 bra DUMPED;\n    cvt.u64.u32 %rd11, %r7;\n    add.s64 %rd12, %rd10, %rd11;\n    add.u32 %r9, %r5, %r7;\n"
        "    ld.shared.v4.b32 {%r11, %r12, %r13, %r14}, [%r9];\n    st.global.v4.b32 [%rd12], {%r11, %r12, %r13, %r14};\n    add.u32 %r7, %r7, %r8;\n    bra DUMP;\nDUMPED:\n"
    )


def store_regs(regs, out="out"):
    """Stores `regs` (b32 or f32 names) of every thread: word `tid * len + i` of `out`."""
    n = len(regs)
    text = f"    mov.u32 %r0, %tid.x;\n    mul.wide.u32 %rd20, %r0, {4 * n};\n    ld.param.u64 %rd21, [{out}];\n    add.s64 %rd21, %rd21, %rd20;\n"
    for i, r in enumerate(regs):
        kind = "f32" if r.startswith("%f") else "b32"
        text += f"    st.global.{kind} [%rd21+{4 * i}], {r};\n"
    return text


def vec(prefix, first, count):
    """`{%r10, %r11, ...}`"""
    return "{" + ", ".join(f"%{prefix}{first + i}" for i in range(count)) + "}"


def wait(barrier, parity, label):
    """Spins until phase `parity` of the mbarrier at register `barrier` completes, then rejoins the warp."""
    return (f"{label}:\n    mbarrier.try_wait.parity.shared::cta.b64 %p1, [{barrier}], {parity};\n"
            f"    @!%p1 bra {label};\n    bar.warp.sync 0xffffffff;\n")
