#!/usr/bin/env python3
"""Tests of the PTX machine itself.

1. The hand-written sm_100a GEMM gives exact results for several shapes, seeds and modes.
2. Mutations of its text (wrong parity, bytes, counts, lane field, missing waits and fences, ...) are detected.
3. Small modules check arithmetic against numpy, operand layouts against a second formulation, and that each
   kind of misuse is reported with the expected words.
usage: selftest.py [--quick]; exit status 1 if anything fails.
"""
import multiprocessing
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import run

import numpy as np

GEMM = os.path.join(HERE, "data", "gemm_sm100a.ptx")


def gemm_case(m, n, k, ctas, text=None, **more):
    """A case for the hand-written GEMM."""
    def tensor_map(view, box):
        return {"view": view, "type": "bf16", "dims": [f"{view}.d1", f"{view}.d0"], "strides_bytes": [f"{view}.s0 * 2"],
                "box": box, "swizzle": "b128"}
    launch = {
        "kernel": "gemm_sm100a", "block": [192, 1, 1], "grid": ["min(sms, tm * tn)", "1", "1"], "dynamic_smem": 230528,
        "params": [{"name": "tmA", "kind": "tensor_map", "map": 0}, {"name": "tmB", "kind": "tensor_map", "map": 1},
                   {"name": "tmC", "kind": "tensor_map", "map": 2},
                   {"name": "k_blocks", "kind": "scalar", "of": "ceildiv(a.d1, 64)", "type": "u32"},
                   {"name": "tiles_m", "kind": "scalar", "of": "tm", "type": "u32"},
                   {"name": "tiles_n", "kind": "scalar", "of": "tn", "type": "u32"}],
        "tensor_maps": [tensor_map("a", [64, 128]), tensor_map("b", [64, 256]), tensor_map("c", [64, 32])],
        "requires": ["a.s0 % 8 == 0", "ptr(a, b, c) % 16 == 0"],
    }
    case = {"name": f"gemm {m}x{n}x{k} on {ctas}", "launch": launch, "sms": ctas,
            "views": {"a": {"shape": [m, k], "dtype": "bf16"}, "b": {"shape": [n, k], "dtype": "bf16"},
                      "c": {"shape": [m, n], "dtype": "bf16", "init": "nan"}},
            "scalars": {"tm": "ceildiv(a.d0, 128)", "tn": "ceildiv(b.d0, 256)"},
            "expect": [{"view": "c", "expr": "a @ b.T"}]}
    if text is None:
        case["ptx"] = GEMM
    else:
        case["ptx_text"] = text
    case.update(more)
    return case


# (name, text, replacement, which occurrence; None: all)
MUTATIONS = [
    ("producer waits for the wrong parity", "xor.b32    %phx, %ph, 1;", "mov.u32    %phx, %ph;", 0),
    ("MMA waits for the wrong parity of the accumulator", "xor.b32    %aphx, %aph, 1;", "mov.u32    %aphx, %aph;", 0),
    ("too few expected bytes", "[%fullb], 49152;", "[%fullb], 49024;", 0),
    ("too many expected bytes", "[%fullb], 49152;", "[%fullb], 49280;", 0),
    ("K step of operand A", "add.s64    %da1, %da0, 2;", "add.s64    %da1, %da0, 4;", 0),
    ("K step of operand B leaves the row", "add.s64    %db3, %db0, 6;", "add.s64    %db3, %db0, 8;", 0),
    ("stage step of operand B", "shl.b32    %t0, %s, 11; ", "shl.b32    %t0, %s, 10; ", 0),
    ("accumulator released before it is read", "setp.ne.u32 %plast, %c, 3;", "setp.ne.u32 %plast, %c, 2;", 0),
    ("accumulator released before wait::ld", "tcgen05.wait::ld.sync.aligned;\n    setp.ne.u32 %plast, %c, 3;",
     "setp.ne.u32 %plast, %c, 3;\n @!%plast mbarrier.arrive.release.cta.shared::cta.b64 _, [%eb+80];\n tcgen05.wait::ld.sync.aligned;\n setp.ne.u32 %plast, %c, 9;", 0),
    ("no wait::ld", "tcgen05.wait::ld.sync.aligned;", "", 0),
    ("no wait for the accumulator", "@!%pw bra E_WAIT;", "", 0),
    ("no wait for a filled stage", "@!%pw bra M_WAIT;", "", 0),
    ("no wait for a free stage", "@!%pw bra P_WAIT;", "", 0),
    ("no wait for a drained accumulator", "@!%pw bra M_WAITT;", "", 0),
    ("no wait_group.read before reuse", "@%pel cp.async.bulk.wait_group.read 1;", "", 0),
    ("wait_group.read allows two groups", "cp.async.bulk.wait_group.read 1;", "cp.async.bulk.wait_group.read 2;", 0),
    ("no wait_group.read at the end", "@%pel cp.async.bulk.wait_group.read 0;", "", 0),
    ("no proxy fence", "fence.proxy.async.shared::cta;", "", 0),
    ("proxy fence by one lane only", "fence.proxy.async.shared::cta;", "@%pel fence.proxy.async.shared::cta;", 0),
    ("no warp barrier between fence and store", "fence.proxy.async.shared::cta;                        // every writing lane\n    bar.warp.sync 0xffffffff;\n    @!%pel bra E_NEXT;",
     "@!%pel bra E_NEXT;\n", 0),
    ("lane field of the TMEM address", "shl.b32    %t0, %warp, 21;", "shl.b32    %t0, %warp, 20;", 0),
    ("lane field missing", "add.u32    %tb, %taddr, %t0;", "mov.u32    %tb, %taddr;", 0),
    ("arrival count too high", "[%bar+80], 128;", "[%bar+80], 129;", 0),
    ("arrival count too low", "[%bar+88], 128;", "[%bar+88], 64;", 0),
    ("stage commit dropped", "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%t0];   // frees the stage", "", 0),
    ("accumulator commit dropped", "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%t0];   // accumulator complete", "", 0),
    ("accumulator phase never flips", "@%pwrap xor.b32 %aph, %aph, 1;", "", 0),
    ("ring phase never flips in the MMA", "@%pwrap xor.b32 %ph, %ph, 1;", "", 1),
    ("first MMA accumulates", "setp.ne.u32 %pacc, %kb, 0;", "setp.ne.u32 %pacc, %kb, 99;", 0),
    ("later MMA overwrites", "%idesc, 1;", "%idesc, 0;", 1),
    ("descriptor without its constant bits", "mov.u32    %dhi, 0x40004040;", "mov.u32    %dhi, 0x40000040;", 0),
    ("descriptor with the wrong stride", "mov.u32    %dhi, 0x40004040;", "mov.u32    %dhi, 0x40004020;", 0),
    ("descriptor with the wrong swizzle", "mov.u32    %dhi, 0x40004040;", "mov.u32    %dhi, 0x80004040;", 0),
    ("instruction descriptor with f16 types", "0x08400490;", "0x08400010;", 0),
    ("instruction descriptor with N = 128", "0x08400490;", "0x08200490;", 0),
    ("A ring overlaps the B ring", "add.u32    %sB, %sB, 65536;", "add.u32    %sB, %sB, 49152;", 0),
    ("swizzle of the epilogue", "xor.b32    %addr, %xo, 48;", "add.u32    %addr, %xo, 48;", 0),
    ("half of the columns swapped", "cvt.rn.bf16x2.f32 %w5, %v11, %v10;", "cvt.rn.bf16x2.f32 %w5, %v10, %v11;", 0),
    ("store column", "shl.b32    %nco, %c, 6;", "shl.b32    %nco, %c, 5;", 0),
    ("no reconvergence before the final barrier", "JOIN:\n    bar.warp.sync 0xffffffff;", "JOIN:\n", 0),
    ("final barrier count", "bar.sync 0;\n    setp.ne.u32 %p, %warp, 5;", "bar.sync 0, 160;\n    setp.ne.u32 %p, %warp, 5;", 0),
    ("no barrier after the allocation", "bar.sync 0;\n    tcgen05.fence::after_thread_sync;\n    ld.shared", "ld.shared", 0),
    ("TMEM not deallocated", "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %taddr, 512;", "", 0),
    ("TMEM allocation too small", "[%bar+96], 512;", "[%bar+96], 256;", 0),
    ("barrier initialised by nobody", "mbarrier.init.shared::cta.b64 [%bar+40], 1;", "", 0),
    ("all lanes issue the MMA", "MMA:\n    @!%pel bra JOIN;", "MMA:\n", 0),
    ("store not committed", "cp.async.bulk.commit_group;", "", 0),
    ("shared memory overrun", "add.u32  %bar, %base, 229376;", "add.u32  %bar, %base, 230480;", 0),
]


def mutate(text, old, new, which):
    """Replaces the occurrence `which` (None: all); the text must occur."""
    parts = text.split(old)
    if len(parts) < 2 or which is not None and which >= len(parts) - 1:
        raise ValueError(f"mutation text not found: {old!r}")
    if which is None:
        return new.join(parts)
    return old.join(parts[:which + 1]) + new + old.join(parts[which + 1:])


def mutation_job(job):
    """Runs modes and seeds until the mutation is detected."""
    index, quick = job
    name, old, new, which = MUTATIONS[index]
    with open(GEMM) as f:
        text = mutate(f.read(), old, new, which)
    tried = []
    for mode, seed in [("latest", 1), ("random", 1), ("random", 2), ("random", 3), ("random", 4), ("fast", 1)]:
        out = run.attempt((gemm_case(264, 1040, 328, 1, text), seed, mode, False))
        tried.append((mode, seed))
        if out[3]:
            return name, out[3].split("\n")[0], tried
    return name, None, tried


# ---------------------------------------------------------------- small modules

HEAD = ".version 8.6\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"


def small_case(name, body, views, params=(), regs="", threads=32, smem=4096, maps=(), **more):
    """A case around a few instructions; the views are passed as pointers in order."""
    plist, described = [], []
    for k, m in enumerate(maps):
        plist.append(f".param .align 64 .b8 tm{k}[128]")
        described.append({"name": f"tm{k}", "kind": "tensor_map", "map": k})
    for v in views:
        plist.append(f".param .u64 .ptr .global .align 16 p_{v}")
        described.append({"name": f"p_{v}", "kind": "pointer", "of": v})
    load = "".join(f"ld.param.u64 %p_{v}, [p_{v}];\ncvta.to.global.u64 %p_{v}, %p_{v};\n" for v in views)
    ptr = "".join(f".reg .b64 %p_{v};\n" for v in views)
    text = (HEAD + f".visible .entry k({', '.join(plist)})\n.reqntid {threads}, 1, 1\n.minnctapersm 1\n{{\n"
            ".reg .pred %p<8>; .reg .b16 %h<32>; .reg .b32 %r<256>; .reg .b64 %rd<32>; .reg .f32 %f<64>;\n"
            + ptr + regs + load + "mov.u32 %r0, %tid.x;\nmul.wide.u32 %rd0, %r0, 4;\n" + body + "\nret;\n}\n")
    launch = {"kernel": "k", "block": [threads], "grid": [1], "dynamic_smem": smem, "params": described, "tensor_maps": list(maps)}
    return {"name": name, "ptx_text": text, "launch": launch, "views": views, "modes": ["latest"], **more}


def in_out(*ops, dtype="u32", out="u32", n=32):
    """Views x, y (inputs) and z (output)."""
    return {"x": {"shape": [n], "dtype": dtype, "init": ops[0]}, "y": {"shape": [n], "dtype": dtype, "init": ops[1]},
            "z": {"shape": [n], "dtype": out, "init": "zeros"}}


LOAD_XY = """add.s64 %rd1, %p_x, %rd0; add.s64 %rd2, %p_y, %rd0; add.s64 %rd3, %p_z, %rd0;
ld.global.nc.b32 %r1, [%rd1]; ld.global.b32 %r2, [%rd2];
"""


def alu_cases():
    rng = np.random.default_rng(7)
    xs = [int(v) for v in rng.integers(0, 1 << 32, 32)]
    ys = [int(v) for v in rng.integers(1, 1 << 32, 32)]
    xs[:4], ys[:4] = [0, 0xFFFFFFFF, 0x80000000, 7], [1, 0xFFFFFFFF, 1, 0xFFFFFFFD]
    signed = [v - (1 << 32) if v >> 31 else v for v in xs]
    signed_y = [v - (1 << 32) if v >> 31 else v for v in ys]
    m = (1 << 32) - 1

    def each(f, a=xs, b=ys):
        return [int(f(p, q)) & m for p, q in zip(a, b)]

    def tdiv(a, b):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    table = [
        ("add.s32 %r3, %r1, %r2;", each(lambda a, b: a + b)), ("sub.u32 %r3, %r1, %r2;", each(lambda a, b: a - b)),
        ("mul.lo.u32 %r3, %r1, %r2;", each(lambda a, b: a * b)), ("mul.hi.u32 %r3, %r1, %r2;", each(lambda a, b: a * b >> 32)),
        ("mul.hi.s32 %r3, %r1, %r2;", each(lambda a, b: a * b >> 32, signed, signed_y)),
        ("mad.lo.s32 %r3, %r1, %r2, %r1;", each(lambda a, b: a * b + a)),
        ("div.u32 %r3, %r1, %r2;", each(lambda a, b: a // b)), ("rem.u32 %r3, %r1, %r2;", each(lambda a, b: a % b)),
        ("div.s32 %r3, %r1, %r2;", each(tdiv, signed, signed_y)),
        ("rem.s32 %r3, %r1, %r2;", each(lambda a, b: a - tdiv(a, b) * b, signed, signed_y)),
        ("min.s32 %r3, %r1, %r2;", each(min, signed, signed_y)), ("max.u32 %r3, %r1, %r2;", each(max)),
        ("abs.s32 %r3, %r1;", each(lambda a, b: abs(a), signed, signed_y)), ("neg.s32 %r3, %r1;", each(lambda a, b: -a)),
        ("not.b32 %r3, %r1;", each(lambda a, b: ~a)), ("and.b32 %r3, %r1, %r2;", each(lambda a, b: a & b)),
        ("shl.b32 %r3, %r1, 7;", each(lambda a, b: a << 7)), ("shr.s32 %r3, %r1, 9;", each(lambda a, b: a >> 9, signed)),
        ("and.b32 %r4, %r2, 63; shl.b32 %r3, %r1, %r4;", each(lambda a, b: a << (b & 63) if b & 63 < 32 else 0)),
        ("and.b32 %r4, %r2, 63; shr.s32 %r3, %r1, %r4;", each(lambda a, b: a >> (b & 63), signed)),
        ("and.b32 %r4, %r2, 63; shr.u32 %r3, %r1, %r4;", each(lambda a, b: a >> (b & 63))),
        ("bfe.u32 %r3, %r1, 5, 11;", each(lambda a, b: a >> 5 & 2047)),
        ("bfe.s32 %r3, %r1, 5, 11;", each(lambda a, b: (a >> 5 & 2047) - (2048 if a >> 15 & 1 else 0))),
        ("bfi.b32 %r3, %r1, %r2, 8, 9;", each(lambda a, b: b & ~(511 << 8) | (a & 511) << 8)),
        ("lop3.b32 %r3, %r1, %r2, 255, 0xE8;", each(lambda a, b: a & b | a & 255 | b & 255)),
        ("prmt.b32 %r3, %r1, %r2, 0x5410;", each(lambda a, b: a & 0xFFFF | b << 16)),
        ("prmt.b32 %r3, %r1, %r2, 0x7B30;", each(lambda a, b: (a & 255) | (a >> 24) << 8 | (0xFF if a >> 31 else 0) << 16 | (b >> 24) << 24)),
        ("popc.b32 %r3, %r1;", each(lambda a, b: bin(a).count("1"))), ("clz.b32 %r3, %r1;", each(lambda a, b: 32 - a.bit_length())),
        ("mul.wide.s32 %rd4, %r1, %r2; mov.b64 {%r4, %r3}, %rd4;", each(lambda a, b: a * b >> 32, signed, signed_y)),
        ("mov.b64 %rd4, {%r1, %r2}; shr.u64 %rd5, %rd4, 20; cvt.u32.u64 %r3, %rd5;", each(lambda a, b: (a | b << 32) >> 20)),
        ("cvt.u64.u32 %rd4, %r1; mov.u64 %rd5, 10; mul.lo.u64 %rd6, %rd4, %rd5; cvt.u32.u64 %r3, %rd6;", each(lambda a, b: a * 10)),
        ("mov.b32 {%h0, %h1}, %r1; mov.b32 %r3, {%h1, %h0};", each(lambda a, b: a >> 16 | a << 16)),
        ("cvt.u16.u32 %h0, %r1; cvt.s32.s16 %r3, %h0;", each(lambda a, b: (a & 0xFFFF) - (65536 if a >> 15 & 1 else 0))),
        ("setp.lt.s32 %p0, %r1, %r2; selp.b32 %r3, 1, 0, %p0;", each(lambda a, b: a < b, signed, signed_y)),
        ("setp.hi.u32 %p0, %r1, %r2; setp.ne.and.b32 %p1|%p2, %r1, %r2, !%p0; selp.u32 %r3, 5, 9, %p1;",
         each(lambda a, b: 5 if a != b and not a > b else 9)),
        ("mov.u32 %r3, 0; setp.ge.u32 %p0, %r1, %r2; @%p0 bra A; add.u32 %r3, %r3, 1; bra B; A: add.u32 %r3, %r3, 2; B: bar.warp.sync -1;",
         each(lambda a, b: 2 if a >= b else 1)),
        ("shfl.sync.bfly.b32 %r3, %r1, 3, 31, 0xffffffff;", [xs[k ^ 3] for k in range(32)]),
        ("shfl.sync.down.b32 %r3|%p0, %r1, 5, 31, 0xffffffff;", [xs[min(k + 5, 31) if k + 5 < 32 else k] for k in range(32)]),
        ("shfl.sync.up.b32 %r3, %r1, 1, 0, 0xffffffff;", [xs[max(k - 1, 0)] for k in range(32)]),
        ("shfl.sync.idx.b32 %r3, %r1, 2, 0x181f, 0xffffffff;", [xs[(k & 24) | 2] for k in range(32)]),
        ("redux.sync.max.s32 %r3, %r1, 0xffffffff;", [max(signed) & m] * 32),
        ("setp.lt.u32 %p0, %r0, 5; vote.sync.ballot.b32 %r3, %p0, 0xffffffff;", [31] * 32),
        ("mov.u32 %r4, smem; shl.b32 %r5, %r0, 2; add.u32 %r5, %r4, %r5; st.shared.b32 [%r5], %r1; bar.sync 0; xor.b32 %r5, %r5, 64; ld.shared.b32 %r3, [%r5];",
         [xs[k ^ 16] for k in range(32)]),
        ("mov.u32 %r4, smem; mad.lo.u32 %r5, %r0, 16, %r4; stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r1, %r2, %r1, %r2};"
         "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7, %r8, %r3}, [%r5];", ys),
    ]
    for k, (body, want) in enumerate(table):
        yield small_case(f"alu {k}: {body[:40]}", LOAD_XY + body + "st.global.b32 [%rd3], %r3;", in_out(xs, ys),
                         expect=[{"view": "z", "expr": repr([float(v) for v in want])}])


def float_cases():
    rng = np.random.default_rng(8)
    xs = [float(v) for v in rng.standard_normal(32).astype(np.float32)]
    ys = [float(v) for v in rng.standard_normal(32).astype(np.float32)]
    table = [
        ("add.rn.f32 %f3, %f1, %f2;", "f32(x + y)"), ("sub.f32 %f3, %f1, %f2;", "f32(x - y)"), ("mul.f32 %f3, %f1, %f2;", "f32(x * y)"),
        ("fma.rn.ftz.f32 %f3, %f1, %f2, %f1;", "f32(x * y + x)"), ("div.full.f32 %f3, %f1, %f2;", "f32(x / y)"),
        ("max.ftz.f32 %f3, %f1, %f2;", "maximum(x, y)"), ("min.f32 %f3, %f1, 0f00000000;", "minimum(x, 0)"),
        ("neg.f32 %f3, %f1;", "-x"), ("abs.f32 %f3, %f1;", "abs(x)"),
        ("setp.gt.f32 %p0, %f1, %f2; selp.f32 %f3, %f1, %f2, %p0;", "maximum(x, y)"),
        ("cvt.rzi.s32.f32 %r4, %f1; cvt.rn.f32.s32 %f3, %r4;", "where(x < 0, -1, 1) * ((abs(x) >= 1) + 0 + (abs(x) >= 2) + (abs(x) >= 3))"),
        ("cvt.rn.f16.f32 %h0, %f1; cvt.f32.f16 %f3, %h0;", "f16(x)"),
        ("cvt.rn.bf16x2.f32 %r4, %f2, %f1; shl.b32 %r5, %r4, 16; mov.b32 %f3, %r5;", "bf16(x)"),
        ("cvt.rn.relu.bf16x2.f32 %r4, %f2, %f1; and.b32 %r5, %r4, 0xffff0000; mov.b32 %f3, %r5;", "relu(bf16(y))"),
        ("cvt.rn.f16x2.f32 %r4, %f2, %f1; cvt.rn.f16x2.f32 %r5, %f1, %f2; fma.rn.f16x2 %r6, %r4, %r5, %r4; mov.b32 {%h0, %h1}, %r6; cvt.f32.f16 %f3, %h0;",
         "f16(f16(x) * f16(y) + f16(x))"),
        ("mov.b64 %rd4, {%f1, %f2}; add.rn.f32x2 %rd5, %rd4, %rd4; mov.b64 {%f4, %f3}, %rd5;", "y * 2"),
    ]
    for k, (body, want) in enumerate(table):
        body = LOAD_XY + "mov.b32 %f1, %r1; mov.b32 %f2, %r2;" + body + "st.global.f32 [%rd3], %f3;"
        yield small_case(f"float {k}: {table[k][0][:40]}", body, in_out(xs, ys, dtype="f32", out="f32"), expect=[{"view": "z", "expr": want}])
    for name, want in [("ex2.approx.ftz", "exp2(x)"), ("lg2.approx", "log2(x)"), ("rcp.approx.ftz", "1 / x"), ("rsqrt.approx", "1 / sqrt(x)"),
                       ("sqrt.rn", "sqrt(x)"), ("tanh.approx", "tanh(x)")]:
        body = LOAD_XY + f"mov.b32 %f1, %r1; abs.f32 %f1, %f1; {name}.f32 %f3, %f1; st.global.f32 [%rd3], %f3;"
        yield small_case(f"float {name}", body, in_out(xs, ys, dtype="f32", out="f32"),
                         expect=[{"view": "z", "expr": want.replace("x", "abs(x)").replace("eabs(x)p", "exp"), "tol": "2^-20"}])


def misuse_cases():
    """Each must be reported with the given words."""
    v = in_out("ints", "ints")
    one = "elect.sync _|%p0, -1;"
    table = [
        ("mov.u32 %r4, smem; ld.shared.b32 %r3, [%r4];", "undefined or being loaded"),
        ("add.u32 %r3, %r77, 1;", "undefined register %r77"),
        ("mov.u32 %r4, smem; st.shared.b32 [%r4+2], %r1;", "misaligned"),
        ("mov.u32 %r4, smem; st.shared.b32 [%r4+4096], %r1;", "outside"),
        ("ld.global.b32 %r3, [%rd1+4];", "of view x"),
        ("setp.lt.u32 %p0, %r0, 3; @%p0 bra L; add.u32 %r3, %r1, 1; L: bar.sync 0;", ".aligned"),
        ("bar.sync 1, 64;", "thread count 64"),
        ("bar.sync 1, 16;", "thread count 16"),
        ("mov.u32 %r4, smem; mbarrier.arrive.shared::cta.b64 _, [%r4];", "before mbarrier.init"),
        ("mov.u32 %r4, smem;" + one + "@%p0 mbarrier.init.shared::cta.b64 [%r4], 1; bar.warp.sync -1;"
         "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0; @!%p1 bra W;", "deadlock"),
        ("mov.u32 %r4, smem;" + one + "@%p0 mbarrier.init.shared::cta.b64 [%r4], 40; @%p0 mbarrier.expect_tx.shared::cta.b64 [%r4], 16;"
         " bar.warp.sync -1; mbarrier.arrive.shared::cta.b64 _, [%r4]; mbarrier.arrive.shared::cta.b64 _, [%r4];", "more arrivals"),
        ("mov.u32 %r4, smem; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r4], 64;", "were not deallocated"),
        ("mov.u32 %r4, smem; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r4], 64; ld.shared.b32 %r5, [%r4];"
         "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r5]; tcgen05.wait::ld.sync.aligned;", "undefined TMEM"),
        ("mov.u32 %r4, smem; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r4], 64; ld.shared.b32 %r5, [%r4];"
         "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5], {%r1}; tcgen05.wait::st.sync.aligned;"
         "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r5]; add.u32 %r7, %r6, 1;", "before tcgen05.wait::ld"),
        ("mov.u32 %r4, smem; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r4], 64; ld.shared.b32 %r5, [%r4];"
         "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5], {%r1}; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r5]; tcgen05.wait::ld.sync.aligned;", "before wait::st"),
        ("mov.u32 %r4, smem; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r4], 96;", "power of two"),
        ("mov.u32 %r4, 0; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 32;", "not allocated"),
        ("trap;", "trap"), ("div.u32 %r3, %r1, 0;", "division by zero"),
        ("frobnicate.b32 %r3, %r1;", "unsupported instruction"), ("add.u32 %r3, %r1, %rd1;", "64 bits, 32 needed"),
        ("add.u32 %r3, %r1, %undeclared;", "undeclared register"), ("bra NOWHERE;", "unknown label"),
        ("setmaxnreg.inc.sync.aligned.u32 24;", "setmaxnreg"),
        ("Q: bra Q;", "step limit"),
    ]
    for k, (body, words) in enumerate(table):
        yield small_case(f"misuse {k}: {words}", LOAD_XY + body, v, fails=words, max_steps=20000)


def matmul_case(name, dtype, m, n, k_blocks, a_major, b_major, swizzle, a_tmem=False, d_f16=False, shape="32x32b"):
    """One CTA, one accumulator: D = A * B^T with all layouts; the swizzle span is one slab.

    A is `[m][k]` (K-major) or `[k][m]` (MN-major), B alike; operands come in by TMA, one slab per copy; D leaves
    by tcgen05.ld and st.global.
    """
    elem = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1}[dtype]
    span = {"none": 16, "b32": 32, "b64": 64, "b128": 128}[swizzle]
    kk = 32 // elem                       # K of one MMA
    store = {"tf32": "f32", "e4m3": "e4m3"}.get(dtype, dtype)
    per = span // elem                    # elements per slab row
    k = k_blocks * max(kk, per if span > 16 else kk)
    code = {"none": 0, "b32": 6, "b64": 4, "b128": 2}[swizzle]
    copies, smem_at, views, maps, places = [], 1024, {}, [], []
    for which, (v, mn, major) in enumerate((("a", m, a_major), ("b", n, b_major))):
        kmajor = major == "k"
        inner, outer = (k, mn) if kmajor else (mn, k)
        views[v] = {"shape": [outer, inner], "dtype": store, "init": "ints"}
        maps.append({"view": v, "type": store, "dims": [f"{v}.d1", f"{v}.d0"], "strides_bytes": [f"{v}.s0 * {elem}"],
                     "box": [per, outer], "swizzle": swizzle})
        slabs = inner // per
        slab_bytes = -(-outer * span // 1024) * 1024
        assert inner % per == 0 and outer <= 256, (inner, per, outer)
        for s in range(slabs):
            copies.append((which, smem_at + s * slab_bytes, s * per, outer * span))
        places.append((smem_at, slab_bytes, kmajor))
        smem_at += slabs * slab_bytes
    total = sum(c[3] for c in copies)
    idesc = (0 if d_f16 else 1) << 4 | (n >> 3) << 17 | (m >> 4) << 24
    idesc |= {"f16": 0, "bf16": 1 << 7 | 1 << 10, "tf32": 2 << 7 | 2 << 10, "e4m3": 0}[dtype]
    idesc |= (a_major == "mn") << 15 | (b_major == "mn") << 16
    kind = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4"}[dtype]

    def descriptor(which, step):
        """lo and hi words; offsets relative to the aligned base in %r10."""
        at, slab, kmajor = places[which]
        if span == 16:
            if kmajor:      # cores [k/T][rows][16 B]
                off, lbo, sbo = step * 2 * slab, slab, 128
            else:           # slabs of 16 B of MN, rows are k
                off, lbo, sbo = step * kk * 16, 128, slab
        elif kmajor:
            per_slab = span // 32
            off, lbo, sbo = step // per_slab * slab + step % per_slab * 32, 16, 8 * span
        else:
            off, lbo, sbo = step * kk * span, slab, 8 * span
        return at + off, (lbo >> 4) << 16, (sbo >> 4) | 1 << 14 | code << 29

    body = ["mov.u32 %r10, smem; add.u32 %r10, %r10, 1023; and.b32 %r10, %r10, 0xfffffc00;",
            "shr.u32 %r11, %r0, 5; shfl.sync.idx.b32 %r11, %r11, 0, 31, -1; elect.sync _|%p1, -1;",
            "setp.ne.u32 %p2, %r11, 0; @%p2 bra INIT; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10+16], 512;",
            "@%p1 mbarrier.init.shared::cta.b64 [%r10], 1; @%p1 mbarrier.init.shared::cta.b64 [%r10+8], 1; @%p1 fence.mbarrier_init.release.cluster;",
            "INIT: bar.sync 0; ld.shared.b32 %r12, [%r10+16];"]
    if a_tmem:
        # A goes to columns 256.. of TMEM: 8 columns per step, each row by its own thread.
        body += ["and.b32 %r20, %r0, 127; shl.b32 %r21, %r11, 21; add.u32 %r21, %r12, %r21;",
                 f"mul.wide.u32 %rd6, %r20, {k * elem}; add.s64 %rd6, %p_a, %rd6;"]
        for s in range(k // kk):
            body += [f"ld.global.v4.b32 {{%r30, %r31, %r32, %r33}}, [%rd6+{32 * s}]; ld.global.v4.b32 {{%r34, %r35, %r36, %r37}}, [%rd6+{32 * s + 16}];",
                     f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r21+{256 + 8 * s}], {{%r30, %r31, %r32, %r33, %r34, %r35, %r36, %r37}};"]
        body += ["tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;"]
    body += ["@%p2 bra READ; @!%p1 bra READ;", f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], {total};"]
    for which, at, x, _ in copies:
        body.append(f"cvta.param.u64 %rd10, tm{which}; mov.u32 %r13, {x}; mov.u32 %r14, 0; add.u32 %r15, %r10, {at};"
                    "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r15], [%rd10, {%r13, %r14}], [%r10];")
    body += ["W1: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0; @!%p3 bra W1; tcgen05.fence::after_thread_sync;"]
    for step in range(k // kk):
        regs = []
        for which in (0, 1):
            off, lo, hi = descriptor(which, step)
            body.append(f"add.u32 %r16, %r10, {off}; bfe.u32 %r16, %r16, 4, 14; or.b32 %r16, %r16, {lo:#x}; mov.b64 %rd{12 + which}, {{%r16, {hi:#x}}};")
        a_text = f"[%r17]" if a_tmem else "%rd12"
        if a_tmem:
            body.append(f"add.u32 %r17, %r12, {256 + 8 * step};")
        body.append(f"tcgen05.mma.cta_group::1.kind::{kind} [%r12], {a_text}, %rd13, {idesc:#x}, {int(step > 0)};")
    body += ["tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r18];".replace("%r18", "%r10+8"),
             "READ: W2: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10+8], 0; @!%p3 bra W2; bar.warp.sync -1; tcgen05.fence::after_thread_sync;"]
    # Read-out: rows and columns by the fragment of the chosen shape.
    body += ["and.b32 %r19, %r0, 31; shl.b32 %r21, %r11, 21; add.u32 %r21, %r12, %r21;"]
    halves = [0] if shape == "32x32b" or m == 64 else [0, 16]
    for half in halves:
        for c in range(0, n, 8):
            if shape == "32x32b":
                body.append(f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{', '.join(f'%r{40 + j}' for j in range(8))}}}, [%r21+{c}]; tcgen05.wait::ld.sync.aligned;"
                            "mad.lo.u32 %r22, %r11, 32, %r19;")
                cells = [("%r22", f"{c + j}", 40 + j) for j in range(8)]
            else:
                base = half << 16
                regs = {"16x64b": 4, "16x128b": 4, "16x256b": 4}[shape]
                rep = {"16x64b": "x4", "16x128b": "x2", "16x256b": "x1"}[shape]
                body.append(f"add.u32 %r23, %r21, {base + c}; tcgen05.ld.sync.aligned.{shape}.{rep}.b32 {{{', '.join(f'%r{40 + j}' for j in range(regs))}}}, [%r23]; tcgen05.wait::ld.sync.aligned;")
                # %r24 = lane/4, %r25 = lane & 3
                body.append("shr.u32 %r24, %r19, 2; and.b32 %r25, %r19, 3;")
                row0 = 16 if m == 64 else 32
                body.append(f"mad.lo.u32 %r26, %r11, {row0}, {half}; add.u32 %r26, %r26, %r24; add.u32 %r27, %r26, 8;")
                if shape == "16x64b":
                    body.append("and.b32 %r28, %r19, 1; mad.lo.u32 %r26, %r28, 8, %r26; shr.u32 %r28, %r25, 1;")
                    cells = [("%r26", f"{c + 2 * j}+%r28", 40 + j) for j in range(4)]
                elif shape == "16x128b":
                    cells = [("%r27" if j & 1 else "%r26", f"{c + 4 * (j >> 1)}+%r25", 40 + j) for j in range(4)]
                else:
                    body.append("shl.b32 %r28, %r25, 1;")
                    cells = [("%r27" if j & 2 else "%r26", f"{c + (j & 1)}+%r28", 40 + j) for j in range(4)]
            for row, col, reg in cells:
                const, _, extra = col.partition("+")
                body.append(f"mad.lo.u32 %r29, {row}, {n}, {const};" + (f"add.u32 %r29, %r29, {extra};" if extra else "")
                            + f"setp.lt.u32 %p4, {row}, {m}; mul.wide.u32 %rd7, %r29, {2 if d_f16 else 4}; add.s64 %rd7, %p_z, %rd7;"
                            + (f"@%p4 st.global.b16 [%rd7], %r{reg};" if d_f16 else f"@%p4 st.global.b32 [%rd7], %r{reg};"))
    body += ["bar.warp.sync -1; tcgen05.fence::before_thread_sync; bar.sync 0; @%p2 bra DONE; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, 512; DONE:"]
    views["z"] = {"shape": [m, n], "dtype": "f16" if d_f16 else "f32", "init": "nan"}
    expr = ("a" if a_major == "k" else "a.T") + " @ " + ("b.T" if b_major == "k" else "b")
    return small_case(name, "\n".join(body), views, threads=128, smem=smem_at + 1024, maps=maps,
                      modes=["latest", "random"], expect=[{"view": "z", "expr": expr}])


def matmul_cases():
    for dtype in ("f16", "bf16"):
        for swizzle in ("none", "b32", "b64", "b128"):
            for a_major in ("k", "mn"):
                for b_major in ("k", "mn"):
                    if dtype == "bf16" and a_major == b_major:
                        continue
                    yield matmul_case(f"mma {dtype} {swizzle} A {a_major} B {b_major}", dtype, 128, 64, 2, a_major, b_major, swizzle)
    yield matmul_case("mma f16 M 64", "f16", 64, 64, 2, "k", "k", "b128", shape="16x256b")
    for shape in ("16x64b", "16x128b", "16x256b"):
        yield matmul_case(f"mma f16 read by {shape}", "f16", 128, 32, 1, "k", "k", "b64", shape=shape)
    yield matmul_case("mma f16 A in TMEM", "f16", 128, 64, 1, "k", "mn", "b128", a_tmem=True)
    yield matmul_case("mma f16 -> f16", "f16", 128, 64, 1, "k", "k", "b128", d_f16=True)
    yield matmul_case("mma tf32", "tf32", 128, 64, 2, "k", "k", "b128")
    yield matmul_case("mma e4m3", "e4m3", 128, 64, 1, "k", "k", "b128")
    yield matmul_case("mma e4m3 MN-major", "e4m3", 128, 128, 1, "mn", "mn", "b128")


def attempt_case(case):
    return case["name"], [o for o in run.run_case(case)]


def main():
    quick = "--quick" in sys.argv
    start, failures, total = time.time(), 0, 0
    pool = multiprocessing.Pool(2)

    cases = []
    shapes = [(128, 256, 64, 1), (200, 520, 328, 2), (8, 8, 8, 1), (384, 512, 640, 1), (264, 1040, 328, 3)]
    for shape in shapes[:3] if quick else shapes:
        cases.append(gemm_case(*shape, seeds=[1, 2] if quick else [1, 2, 3, 4], modes=["latest", "random"]))
        cases.append(gemm_case(*shape, seeds=[1], modes=["fast"]))
    cases += list(alu_cases()) + list(float_cases()) + list(misuse_cases()) + list(matmul_cases())
    for name, outcomes in pool.imap(attempt_case, cases):
        for _, seed, mode, message, seconds, _ in outcomes:
            total += 1
            if message:
                failures += 1
                print(f"FAIL {name} seed={seed} mode={mode}: {message}", flush=True)
    print(f"cases: {total} runs, {failures} failures, {time.time() - start:.1f}s", flush=True)

    missed = 0
    for name, message, tried in pool.imap(mutation_job, [(k, quick) for k in range(len(MUTATIONS))]):
        if message is None:
            missed += 1
            print(f"MISSED {name}", flush=True)
        else:
            print(f"found  {name} [{tried[-1][0]} {tried[-1][1]}]: {message[:150]}")
    print(f"mutations: {len(MUTATIONS) - missed} of {len(MUTATIONS)} found, {time.time() - start:.1f}s")
    pool.close()
    pool.join()
    return 1 if failures or missed else 0


if __name__ == "__main__":
    sys.exit(main())
