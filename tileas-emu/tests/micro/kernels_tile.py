"""Micro-kernels of matrix and bulk-copy instructions: `python3 kernels_tile.py` writes them.

Shared-memory images, register contents, descriptors and coordinates are launch parameters, so one
kernel serves many layouts. Descriptors hold offsets from the shared base; the kernels add the base.
"""
from ptxgen import dump_shared, fill_shared, module, store_regs, vec, wait, write

LDMATRIX = ["m8n8.x1.shared.b16", "m8n8.x2.shared.b16", "m8n8.x4.shared.b16", "m8n8.x1.trans.shared.b16", "m8n8.x2.trans.shared.b16", "m8n8.x4.trans.shared.b16"]
LDMATRIX_B8 = ["m16n16.x1.trans.shared.b8", "m16n16.x2.trans.shared.b8", "m8n16.x4.shared.b8x16.b4x16_p64", "m8n16.x2.shared.b8x16.b6x16_p32"]
STMATRIX = ["m8n8.x1.shared.b16", "m8n8.x2.shared.b16", "m8n8.x4.shared.b16", "m8n8.x4.trans.shared.b16"]
STMATRIX_B8 = ["m16n8.x1.trans.shared.b8", "m16n8.x2.trans.shared.b8", "m16n8.x4.trans.shared.b8"]


def regs_of(form):
    """Registers per thread of a matrix move."""
    count = int(form.split(".x")[1][0])
    return 2 * count if form.startswith("m16n16") else count


def lane_offset():
    """%r15 = shared base + offs[tid]."""
    return ("    mov.u32 %r0, %tid.x;\n    ld.param.u64 %rd10, [offs];\n    mul.wide.u32 %rd11, %r0, 4;\n    add.s64 %rd10, %rd10, %rd11;\n"
            "    ld.global.b32 %r15, [%rd10];\n    add.u32 %r15, %r15, %r5;\n")


def matrix_moves():
    params = [("image", "u64"), ("bytes", "u32"), ("offs", "u64"), ("out", "u64")]
    for name, target, version, forms in (("ldmatrix", "sm_90a", "8.0", LDMATRIX), ("ldmatrix_b8", "sm_100a", "8.6", LDMATRIX_B8)):
        body = fill_shared() + lane_offset()
        first, regs = 100, []
        for form in forms:
            n = regs_of(form)
            body += f"    ldmatrix.sync.aligned.{form} {vec('r', first, n)}, [%r15];\n"
            regs += [f"%r{first + i}" for i in range(n)]
            first += n
        write(name, module(target, version, params, body + store_regs(regs), 32, smem=1))
    # Each form stores into its own KiB; registers come from `regs` (word tid * 4 + i).
    params = [("regs", "u64"), ("bytes", "u32"), ("offs", "u64"), ("out", "u64")]
    for name, target, version, forms in (("stmatrix", "sm_90a", "8.0", STMATRIX), ("stmatrix_b8", "sm_100a", "8.6", STMATRIX_B8)):
        body = fill_shared(value="0xA5A5A5A5") + lane_offset()
        body += "    ld.param.u64 %rd12, [regs];\n    mul.wide.u32 %rd13, %r0, 16;\n    add.s64 %rd12, %rd12, %rd13;\n    ld.global.v4.b32 {%r20, %r21, %r22, %r23}, [%rd12];\n"
        for i, form in enumerate(forms):
            body += f"    stmatrix.sync.aligned.{form} [%r15+{1024 * i}], {vec('r', 20, regs_of(form))};\n"
        write(name, module(target, version, params, body + dump_shared(), 32, smem=1))


# name -> (instruction, A registers, B registers, C/D registers, class of C/D, PTX version)
MMA = {
    "bf16": ("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, 4, "f", "8.0"),
    "f16": ("m16n8k16.row.col.f16.f16.f16.f16", 4, 2, 2, "r", "8.0"),
    "tf32": ("m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2, 4, "f", "8.0"),
    "e4m3": ("m16n8k32.row.col.f32.e4m3.e5m2.f32", 4, 2, 4, "f", "8.4"),
    "s8": ("m16n8k32.row.col.s32.s8.u8.s32", 4, 2, 4, "r", "8.0"),
}


def mma_sync():
    params = [("a", "u64"), ("b", "u64"), ("c", "u64"), ("out", "u64")]
    for name, (text, na, nb, nc, kind, version) in MMA.items():
        body = "    mov.u32 %r0, %tid.x;\n"
        for p, n, first, k in (("a", na, 10, "r"), ("b", nb, 20, "r"), ("c", nc, 30, kind)):
            body += f"    ld.param.u64 %rd1, [{p}];\n    mul.wide.u32 %rd2, %r0, {4 * n};\n    add.s64 %rd1, %rd1, %rd2;\n"
            for i in range(n):
                body += f"    ld.global.{'f32' if k == 'f' else 'b32'} %{k}{first + i}, [%rd1+{4 * i}];\n"
        body += f"    mma.sync.aligned.{text} {vec(kind, 40, nc)}, {vec('r', 10, na)}, {vec('r', 20, nb)}, {vec(kind, 30, nc)};\n"
        body += store_regs([f"%{kind}{40 + i}" for i in range(nc)])
        write(f"mma_{name}", module("sm_90a", version, params, body, 32))


# name -> (instruction after m64, N, registers, class, A in registers, operands after the descriptors)
WGMMA = {
    "bf16_n8": ("n8k16.f32.bf16.bf16", 4, "f", False, ", 1, 1, 0, 0"),
    "bf16_n24": ("n24k16.f32.bf16.bf16", 12, "f", False, ", 1, 1, 0, 0"),
    "bf16_n64": ("n64k16.f32.bf16.bf16", 32, "f", False, ", 1, 1, 0, 0"),
    "bf16_n256": ("n256k16.f32.bf16.bf16", 128, "f", False, ", 1, 1, 0, 0"),
    "bf16_n64_ta": ("n64k16.f32.bf16.bf16", 32, "f", False, ", 1, 1, 1, 0"),
    "bf16_n64_tb": ("n64k16.f32.bf16.bf16", 32, "f", False, ", 1, 1, 0, 1"),
    "bf16_n64_neg": ("n64k16.f32.bf16.bf16", 32, "f", False, ", -1, 1, 0, 0"),
    "bf16_n32_rs": ("n32k16.f32.bf16.bf16", 16, "f", True, ", 1, 1, 0"),
    "bf16_n32_rs_tb": ("n32k16.f32.bf16.bf16", 16, "f", True, ", 1, 1, 1"),
    "f16_n32": ("n32k16.f16.f16.f16", 8, "r", False, ", 1, 1, 0, 0"),
    "tf32_n16": ("n16k8.f32.tf32.tf32", 8, "f", False, ", 1, 1"),
    "tf32_n16_rs": ("n16k8.f32.tf32.tf32", 8, "f", True, ", 1, 1"),
    "e4m3_n16": ("n16k32.f32.e4m3.e5m2", 8, "f", False, ", 1, 1"),
    "e4m3_n16_rs": ("n16k32.f32.e4m3.e5m2", 8, "f", True, ", 1, 1"),
    "s8_n16": ("n16k32.s32.s8.u8", 8, "r", False, ""),  # mixed signs: PTX 8.4
}


def wgmma():
    for name, (text, n, kind, rs, tail) in WGMMA.items():
        params = [("image", "u64"), ("bytes", "u32"), ("adesc", "u64"), ("bdesc", "u64"), ("astep", "u64"), ("bstep", "u64"), ("steps", "u32"), ("areg", "u64"), ("out", "u64")]
        body = fill_shared()
        body += ("    shr.u32 %r15, %r5, 4;\n    cvt.u64.u32 %rd13, %r15;\n    ld.param.u64 %rd3, [adesc];\n    add.s64 %rd3, %rd3, %rd13;\n    ld.param.u64 %rd4, [bdesc];\n    add.s64 %rd4, %rd4, %rd13;\n"
                 "    ld.param.u64 %rd5, [astep];\n    ld.param.u64 %rd6, [bstep];\n    ld.param.u32 %r16, [steps];\n    mov.u32 %r17, 0;\n")
        first = 10 if kind == "f" else 200
        for i in range(n):
            # The accumulator of the first step is ignored: fill it with NaN.
            body += f"    mov.b32 %{kind}{first + i}, 0x7FC00000;\n"
        body += "    ld.param.u64 %rd7, [areg];\n    mul.wide.u32 %rd8, %r0, 16;\n    add.s64 %rd7, %rd7, %rd8;\n"
        body += "STEP:\n"
        a = "%rd3"
        if rs:
            # Words step * 512 + tid * 4 + i.
            body += "    ld.global.v4.b32 {%r40, %r41, %r42, %r43}, [%rd7];\n    add.s64 %rd7, %rd7, 2048;\n"
            a = vec("r", 40, 4)
        body += "    setp.ne.u32 %p2, %r17, 0;\n    wgmma.fence.sync.aligned;\n"
        body += f"    wgmma.mma_async.sync.aligned.m64{text} {vec(kind, first, n)}, {a}, %rd4, %p2{tail};\n"
        body += ("    wgmma.commit_group.sync.aligned;\n    wgmma.wait_group.sync.aligned 0;\n    add.s64 %rd3, %rd3, %rd5;\n    add.s64 %rd4, %rd4, %rd6;\n    add.u32 %r17, %r17, 1;\n"
                 "    setp.lt.u32 %p3, %r17, %r16;\n    @%p3 bra STEP;\n")
        body += store_regs([f"%{kind}{first + i}" for i in range(n)])
        write(f"wgmma_{name}", module("sm_90a", "8.4" if name.startswith("s8") else "8.0", params, body, 128, smem=1))


def barrier_setup(at="%r18"):
    """Thread 0 initialises an mbarrier behind `bytes` of shared memory."""
    return (f"    ld.param.u32 %r6, [bytes];\n    add.u32 {at}, %r5, %r6;\n    setp.ne.u32 %p4, %r0, 0;\n    @%p4 bra READY;\n    mbarrier.init.shared::cta.b64 [{at}], 1;\n"
            "    fence.mbarrier_init.release.cluster;\nREADY:\n    bar.warp.sync 0xffffffff;\n    bar.sync 0;\n")


def coords(rank):
    return "".join(f"    ld.param.u32 %r{20 + i}, [c{i}];\n" for i in range(rank)) + "    cvta.param.u64 %rd14, tm;\n"


def tma():
    cp = "cp.async.bulk.tensor"
    for rank in range(1, 6):
        c = vec("r", 20, rank)
        params = [("tm", "tensormap"), ("out", "u64"), ("bytes", "u32"), ("tx", "u32"), ("at", "u32")] + [(f"c{i}", "u32") for i in range(rank)]
        body = fill_shared(value="0xA5A5A5A5") + barrier_setup() + coords(rank)
        body += ("    @%p4 bra ISSUED;\n    ld.param.u32 %r30, [tx];\n    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r18], %r30;\n    ld.param.u32 %r31, [at];\n    add.u32 %r31, %r31, %r5;\n"
                 f"    {cp}.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r31], [%rd14, {c}], [%r18];\nISSUED:\n")
        body += wait("%r18", 0, "WAIT") + dump_shared()
        write(f"tma_load_{rank}d", module("sm_90a", "8.0", params, body, 128, smem=1))
        if rank in (1, 4):
            continue
        params = [("tm", "tensormap"), ("image", "u64"), ("bytes", "u32")] + [(f"c{i}", "u32") for i in range(rank)]
        ops = [("store", f"{cp}.{rank}d.global.shared::cta.tile.bulk_group")]
        if rank == 2:
            ops += [(f"red_{op}", f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.tile.bulk_group") for op in ("add", "min", "max", "xor")]
        for op, text in ops:
            body = fill_shared() + coords(rank) + "    setp.ne.u32 %p4, %r0, 0;\n    @%p4 bra DONE;\n"
            body += f"    {text} [%rd14, {c}], [%r5];\n    cp.async.bulk.commit_group;\n    cp.async.bulk.wait_group 0;\nDONE:\n"
            write(f"tma_{op}_{rank}d", module("sm_90a", "8.0", params, body, 128, smem=1))
    params = [("tm", "tensormap"), ("out", "u64"), ("bytes", "u32"), ("tx", "u32")] + [(f"c{i}", "u32") for i in range(5)]
    body = fill_shared(value="0xA5A5A5A5") + barrier_setup() + coords(5)
    body += ("    @%p4 bra ISSUED;\n    ld.param.u32 %r30, [tx];\n    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r18], %r30;\n"
             f"    {cp}.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r5], [%rd14, {vec('r', 20, 5)}], [%r18];\nISSUED:\n")
    write("tma_gather4", module("sm_100a", "8.6", params, body + wait("%r18", 0, "WAIT") + dump_shared(), 128, smem=1))


if __name__ == "__main__":
    matrix_moves()
    mma_sync()
    wgmma()
    tma()
