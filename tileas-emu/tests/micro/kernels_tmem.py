"""Micro-kernels of tensor memory (sm_100a): `python3 kernels_tmem.py` writes them.

128 threads. Tensor memory is filled from `fill` (word lane * COLUMNS + column) or with a constant,
so that cells no instruction writes are known. The result is dumped as word lane * COLUMNS + column.
"""
from kernels_tile import barrier_setup
from ptxgen import fill_shared, module, store_regs, vec, wait, write

# Columns of the move and copy kernels, and of the MMA kernels (D, and A from column 32).
COLUMNS = 32
MMA_COLUMNS = 64
# name -> (shape, repeat, registers, immediate, packed)
SHAPES = {
    "32x32b_x8": ("32x32b", 8, 8, None, False),
    "32x32b_x16_pack": ("32x32b", 16, 16, None, True),
    "16x64b_x8": ("16x64b", 8, 8, None, False),
    "16x64b_x4_pack": ("16x64b", 4, 4, None, True),
    "16x128b_x4": ("16x128b", 4, 8, None, False),
    "16x128b_x2_pack": ("16x128b", 2, 4, None, True),
    "16x256b_x2": ("16x256b", 2, 8, None, False),
    "16x256b_x1_pack": ("16x256b", 1, 4, None, True),
    "16x32bx2_x8": ("16x32bx2", 8, 8, 24, False),
}


def prologue(fill, columns=COLUMNS):
    """Allocates `columns` columns (%r19 = base), fills them. %r5 shared base, %r22 own quarter."""
    text = ("    mov.u32 %r0, %tid.x;\n    mov.u32 %r5, smem;\n    ld.param.u32 %r6, [bytes];\n    add.u32 %r18, %r5, %r6;\n    shr.u32 %r20, %r0, 5;\n    setp.ne.u32 %p5, %r20, 0;\n    @%p5 bra ALLOCATED;\n"
            f"    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r18+16], {columns};\n    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\nALLOCATED:\n"
            "    tcgen05.fence::before_thread_sync;\n    bar.sync 0;\n    tcgen05.fence::after_thread_sync;\n    ld.shared.b32 %r19, [%r18+16];\n    shl.b32 %r21, %r20, 21;\n    add.u32 %r22, %r19, %r21;\n")
    regs = [f"%r{500 + i}" for i in range(columns)]
    if fill:
        text += f"    ld.param.u64 %rd15, [fill];\n    mul.wide.u32 %rd16, %r0, {4 * columns};\n    add.s64 %rd15, %rd15, %rd16;\n"
        text += "".join(f"    ld.global.b32 {r}, [%rd15+{4 * i}];\n" for i, r in enumerate(regs))
    else:
        text += "".join(f"    mov.b32 {r}, 0x55555555;\n" for r in regs)
    text += f"    tcgen05.st.sync.aligned.32x32b.x{columns}.b32 [%r22], {{{', '.join(regs)}}};\n    tcgen05.wait::st.sync.aligned;\n"
    return text + "    tcgen05.fence::before_thread_sync;\n    bar.sync 0;\n    tcgen05.fence::after_thread_sync;\n"


def epilogue(dump=True, columns=COLUMNS):
    text = ""
    if dump:
        regs = [f"%r{500 + i}" for i in range(columns)]
        text += f"    tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {{{', '.join(regs)}}}, [%r22];\n    tcgen05.wait::ld.sync.aligned;\n" + store_regs(regs)
    return text + (f"    tcgen05.fence::before_thread_sync;\n    bar.sync 0;\n    tcgen05.fence::after_thread_sync;\n    @%p5 bra FREED;\n    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r19, {columns};\nFREED:\n")


def moves():
    for name, (shape, repeat, n, imm, packed) in SHAPES.items():
        regs = vec("r", 200, n)
        tail = "" if imm is None else f", {imm}"
        # `at` is added to the warp's own quarter: lane field and column of the access.
        params = [("fill", "u64"), ("regs", "u64"), ("bytes", "u32"), ("at", "u32"), ("out", "u64")]
        address = "    ld.param.u32 %r30, [at];\n    add.u32 %r30, %r30, %r22;\n"
        body = prologue(True) + address
        body += f"    tcgen05.ld.sync.aligned.{shape}.x{repeat}{'.pack::16b' if packed else ''}.b32 {regs}, [%r30]{tail};\n    tcgen05.wait::ld.sync.aligned;\n"
        body += store_regs([f"%r{200 + i}" for i in range(n)]) + epilogue(False)
        write(f"tmem_ld_{name}", module("sm_100a", "8.6", params, body, 128, smem=1))
        body = prologue(True) + address + f"    ld.param.u64 %rd17, [regs];\n    mul.wide.u32 %rd18, %r0, {4 * n};\n    add.s64 %rd17, %rd17, %rd18;\n"
        body += "".join(f"    ld.global.b32 %r{200 + i}, [%rd17+{4 * i}];\n" for i in range(n))
        body += f"    tcgen05.st.sync.aligned.{shape}.x{repeat}{'.unpack::16b' if packed else ''}.b32 [%r30]{tail}, {regs};\n    tcgen05.wait::st.sync.aligned;\n"
        write(f"tmem_st_{name}", module("sm_100a", "8.6", params, body + epilogue(), 128, smem=1))


def commit_and_wait():
    return ("    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r18];\nISSUED:\n"
            + wait("%r18", 0, "WAIT") + "    tcgen05.fence::after_thread_sync;\n")


def mma():
    params = [("image", "u64"), ("bytes", "u32"), ("fill", "u64"), ("adesc", "u64"), ("bdesc", "u64"), ("astep", "u64"), ("bstep", "u64"), ("steps", "u32"), ("idesc", "u32"), ("d_at", "u32"), ("out", "u64")]
    start = ("    shr.u32 %r15, %r5, 4;\n    cvt.u64.u32 %rd13, %r15;\n    ld.param.u64 %rd3, [adesc];\n    ld.param.u64 %rd4, [bdesc];\n    add.s64 %rd4, %rd4, %rd13;\n    ld.param.u64 %rd5, [astep];\n    ld.param.u64 %rd6, [bstep];\n"
             "    ld.param.u32 %r16, [steps];\n    ld.param.u32 %r31, [idesc];\n    ld.param.u32 %r32, [d_at];\n    add.u32 %r32, %r32, %r19;\n    mov.u32 %r17, 0;\n    @%p4 bra ISSUED;\n")
    for kind in ("f16", "tf32", "f8f6f4", "i8"):
        for ts in (False, True):
            body = fill_shared() + barrier_setup() + prologue(True, MMA_COLUMNS) + start
            # A in tensor memory: `adesc` is its column (and lane), `astep` the columns per step.
            body += "    cvt.u32.u64 %r33, %rd3;\n    add.u32 %r33, %r33, %r19;\n    cvt.u32.u64 %r34, %rd5;\n" if ts else "    add.s64 %rd3, %rd3, %rd13;\n"
            a = "[%r33]" if ts else "%rd3"
            body += f"STEP:\n    setp.ne.u32 %p2, %r17, 0;\n    tcgen05.mma.cta_group::1.kind::{kind} [%r32], {a}, %rd4, %r31, %p2;\n"
            body += "    add.u32 %r33, %r33, %r34;\n" if ts else "    add.s64 %rd3, %rd3, %rd5;\n"
            body += "    add.s64 %rd4, %rd4, %rd6;\n    add.u32 %r17, %r17, 1;\n    setp.lt.u32 %p3, %r17, %r16;\n    @%p3 bra STEP;\n"
            write(f"umma_{kind}{'_ts' if ts else ''}", module("sm_100a", "8.6", params, body + commit_and_wait() + epilogue(columns=MMA_COLUMNS), 128, smem=1))


CP = {
    "128x256b": "128x256b", "4x256b": "4x256b", "128x128b": "128x128b", "64x128b_02": "64x128b.warpx2::02_13",
    "64x128b_01": "64x128b.warpx2::01_23", "32x128b": "32x128b.warpx4",
}


def copies():
    params = [("image", "u64"), ("bytes", "u32"), ("desc", "u64"), ("out", "u64")]
    for name, text in CP.items():
        body = fill_shared() + barrier_setup() + prologue(False)
        body += ("    shr.u32 %r15, %r5, 4;\n    cvt.u64.u32 %rd13, %r15;\n    ld.param.u64 %rd3, [desc];\n    add.s64 %rd3, %rd3, %rd13;\n    add.u32 %r32, %r19, 4;\n    @%p4 bra ISSUED;\n"
                 f"    tcgen05.cp.cta_group::1.{text} [%r32], %rd3;\n")
        write(f"tmem_cp_{name}", module("sm_100a", "8.6", params, body + commit_and_wait() + epilogue(), 128, smem=1))


if __name__ == "__main__":
    moves()
    mma()
    copies()
