"""Writes every micro-kernel: `python3 kernels.py`. The instruction lists are shared with the
scripts that compute expected bytes."""
from ptxgen import dump_shared, elementwise, fill_shared, module, store_regs, vec, wait, write

CVT_F32 = (
    [(f"cvt.{r}.f16.f32 {{d}}, {{a}};", "h") for r in ("rn", "rz", "rm", "rp")]
    + [("cvt.rn.ftz.f16.f32 {d}, {a};", "h"), ("cvt.rn.sat.f16.f32 {d}, {a};", "h"), ("cvt.rn.relu.f16.f32 {d}, {a};", "h")]
    + [("cvt.rn.satfinite.f16.f32 {d}, {a};", "h"), ("cvt.rz.satfinite.bf16.f32 {d}, {a};", "h"), ("cvt.rn.relu.satfinite.bf16.f32 {d}, {a};", "h")]
    + [("cvt.rn.bf16.f32 {d}, {a};", "h"), ("cvt.rz.bf16.f32 {d}, {a};", "h"), ("cvt.rn.relu.bf16.f32 {d}, {a};", "h")]
    + [(f"cvt.{r}.f16x2.f32 {{d}}, {{a}}, {{b}};", "r") for r in ("rn", "rz", "rn.relu")]
    + [(f"cvt.{r}.bf16x2.f32 {{d}}, {{a}}, {{b}};", "r") for r in ("rn", "rz", "rn.relu")]
    + [("cvt.rna.tf32.f32 {d}, {a};", "r"), ("cvt.rn.tf32.f32 {d}, {a};", "r"), ("cvt.rz.tf32.f32 {d}, {a};", "r"), ("cvt.rn.relu.tf32.f32 {d}, {a};", "r")]
    + [(f"cvt.rn.satfinite{s}.{t}x2.f32 {{d}}, {{a}}, {{b}};", "h") for t in ("e4m3", "e5m2") for s in ("", ".relu")]
)
# Inputs are pairs of 16-bit patterns; NaNs appear in the f16 sections only.
CVT_F16 = (
    [("cvt.f32.f16 {d}, {ha};", "f"), ("cvt.rn.bf16.f16 {d}, {ha};", "h"), ("cvt.rz.bf16.f16 {d}, {ha};", "h")]
    + [(f"cvt.rn.satfinite{s}.{t}x2.f16x2 {{d}}, {{ra}};", "h") for t in ("e4m3", "e5m2") for s in ("", ".relu")]
    + [(f"cvt.rn{s}.f16x2.{t}x2 {{d}}, {{ha}};", "r") for t in ("e4m3", "e5m2") for s in ("", ".relu")]
    + [(f"cvt.{r}.f16.f16 {{d}}, {{ha}};", "h") for r in ("rni", "rzi", "rmi", "rpi")]
)
CVT_BF16 = [("cvt.f32.bf16 {d}, {ha};", "f"), ("cvt.rn.f16.bf16 {d}, {ha};", "h"), ("cvt.rp.f16.bf16 {d}, {ha};", "h")]
CVT_INT = (
    [(f"cvt.{r}.{t}.f32 {{d}}, {{a}};", "r") for t in ("s32", "u32") for r in ("rni", "rzi", "rmi", "rpi")]
    + [(f"cvt.rni.{t}.f32 {{t0}}, {{a}}; cvt.{t[0]}32.{t} {{d}}, {{t0}};", "r") for t in ("s16", "u16")]
    + [("cvt.rzi.ftz.s32.f32 {d}, {a};", "r"), ("cvt.rni.s64.f32 {d}, {a};", "d"), ("cvt.rzi.u64.f32 {d}, {a};", "d")]
    + [(f"cvt.{r}.f32.s32 {{d}}, {{ra}};", "f") for r in ("rn", "rz", "rm", "rp")]
    + [("cvt.rn.f32.u32 {d}, {ra};", "f"), ("cvt.rz.f32.u32 {d}, {ra};", "f"), ("cvt.rn.f16.s32 {d}, {ra};", "h"), ("cvt.rn.bf16.u32 {d}, {ra};", "h")]
    + [(f"cvt.{r}.f32.f32 {{d}}, {{a}};", "f") for r in ("rni", "rzi", "rmi", "rpi", "rni.ftz")]
    + [("cvt.sat.s8.s32 {t0}, {ra}; cvt.s32.s8 {d}, {t0};", "r"), ("cvt.sat.u16.s32 {t0}, {ra}; cvt.u32.u16 {d}, {t0};", "r"), ("cvt.sat.s32.u32 {d}, {ra};", "r")]
)
F32_ARITH = (
    [(f"add.{r}.f32 {{d}}, {{a}}, {{b}};", "f") for r in ("rn", "rz", "rm", "rp", "rn.ftz")]
    + [(f"mul.{r}.f32 {{d}}, {{a}}, {{b}};", "f") for r in ("rn", "rz", "rm", "rp", "rn.ftz", "rn.sat")]
    + [(f"fma.{r}.f32 {{d}}, {{a}}, {{b}}, {{c}};", "f") for r in ("rn", "rz", "rm", "rp", "rn.ftz", "rn.sat")]
    + [(f"sub.{r}.f32 {{d}}, {{a}}, {{b}};", "f") for r in ("rn", "rp")]
    + [(f"div.{r}.f32 {{d}}, {{a}}, {{b}};", "f") for r in ("rn", "rz", "rm", "rp")]
    + [(f"rcp.{r}.f32 {{d}}, {{a}};", "f") for r in ("rn", "rz")]
    + [(f"sqrt.{r}.f32 {{d}}, {{a}};", "f") for r in ("rn", "rm", "rp")]
    + [(f"{op}{m}.f32 {{d}}, {{a}}, {{b}};", "f") for op in ("min", "max") for m in ("", ".ftz", ".NaN", ".xorsign.abs")]
)
HALF_ARITH = [
    (f"{op}.{t} {{d}}, {{ra}}, {{rb}}{', {rc}' if 'fma' in op else ''};", "r")
    for t in ("f16x2", "bf16x2") for op in ("add.rn", "sub.rn", "mul.rn", "fma.rn", "fma.rn.relu", "min", "max.NaN")
] + [("fma.rn.sat.f16x2 {d}, {ra}, {rb}, {rc};", "r"), ("add.rn.sat.f16x2 {d}, {ra}, {rb};", "r")]
APPROX = [
    ("ex2.approx.ftz.f32 {d}, {a};", "f"), ("ex2.approx.f32 {d}, {a};", "f"), ("lg2.approx.ftz.f32 {d}, {b};", "f"), ("rcp.approx.ftz.f32 {d}, {b};", "f"),
    ("rsqrt.approx.ftz.f32 {d}, {b};", "f"), ("sqrt.approx.ftz.f32 {d}, {b};", "f"), ("sin.approx.ftz.f32 {d}, {a};", "f"), ("cos.approx.ftz.f32 {d}, {a};", "f"),
    ("tanh.approx.f32 {d}, {a};", "f"), ("div.full.ftz.f32 {d}, {a}, {b};", "f"), ("div.approx.ftz.f32 {d}, {a}, {b};", "f"),
    ("ex2.approx.f16x2 {d}, {rc};", "r"), ("tanh.approx.f16x2 {d}, {rc};", "r"),
    ("ex2.approx.ftz.bf16x2 {d}, {rc};", "r"), ("tanh.approx.bf16x2 {d}, {rc};", "r"),
]
BITS = [
    ("prmt.b32 {d}, {ra}, {rb}, {rc};", "r"), ("prmt.b32.f4e {d}, {ra}, {rb}, {rc};", "r"), ("prmt.b32.rc16 {d}, {ra}, {rb}, {rc};", "r"), ("prmt.b32.ecl {d}, {ra}, {rb}, {rc};", "r"), ("prmt.b32.ecr {d}, {ra}, {rb}, {rc};", "r"), ("prmt.b32.b4e {d}, {ra}, {rb}, {rc};", "r"), ("prmt.b32.rc8 {d}, {ra}, {rb}, {rc};", "r"),
    ("lop3.b32 {d}, {ra}, {rb}, {rc}, 0x96;", "r"), ("lop3.b32 {d}, {ra}, {rb}, {rc}, 0xE8;", "r"), ("shf.l.wrap.b32 {d}, {ra}, {rb}, {rc};", "r"), ("shf.r.clamp.b32 {d}, {ra}, {rb}, {rc};", "r"),
    ("shl.b32 {d}, {ra}, {rc};", "r"), ("shr.s32 {d}, {ra}, {rc};", "r"), ("shr.u32 {d}, {ra}, {rc};", "r"), ("bfe.u32 {d}, {ra}, {rb}, {rc};", "r"), ("bfe.s32 {d}, {ra}, {rb}, {rc};", "r"),
    ("bfi.b32 {d}, {ra}, {rb}, {rc}, 9;", "r"), ("popc.b32 {d}, {ra};", "r"), ("clz.b32 {d}, {ra};", "r"), ("brev.b32 {d}, {ra};", "r"), ("mul.hi.s32 {d}, {ra}, {rb};", "r"),
    ("mul.wide.u32 {d}, {ra}, {rb};", "d"), ("mad.lo.u32 {d}, {ra}, {rb}, {rc};", "r"), ("min.s32 {d}, {ra}, {rb};", "r"), ("abs.s32 {d}, {ra};", "r"),
]
SHUFFLE = [
    ("shfl.sync.idx.b32 {d}, {ra}, {rb}, 0x1f, 0xffffffff;", "r"), ("shfl.sync.bfly.b32 {d}, {ra}, 5, 0x1f, 0xffffffff;", "r"),
    ("shfl.sync.up.b32 {d}, {ra}, 3, 0x0, 0xffffffff;", "r"), ("shfl.sync.down.b32 {d}, {ra}, 3, 0x1f, 0xffffffff;", "r"),
    ("shfl.sync.idx.b32 {d}, {ra}, {rb}, 0x181f, 0xffffffff;", "r"), ("shfl.sync.down.b32 {d}, {ra}, 2, 0x181f, 0xffffffff;", "r"), ("shfl.sync.up.b32 {d}, {ra}, 2, 0x1800, 0xffffffff;", "r"),
    ("shfl.sync.bfly.b32 {t0}|%p1, {ra}, 9, 0x1807, 0xffffffff; selp.u32 {t1}, 1, 0, %p1; xor.b32 {d}, {t0}, {t1};", "r"),
    ("setp.lt.s32 %p1, {ra}, 0; vote.sync.ballot.b32 {d}, %p1, 0xffffffff;", "r"), ("setp.lt.s32 %p1, {ra}, 0; vote.sync.any.pred %p2, %p1, 0xffffffff; selp.u32 {d}, 1, 0, %p2;", "r"),
    ("redux.sync.add.u32 {d}, {ra}, 0xffffffff;", "r"), ("redux.sync.min.s32 {d}, {ra}, 0xffffffff;", "r"), ("redux.sync.max.u32 {d}, {ra}, 0xffffffff;", "r"), ("redux.sync.xor.b32 {d}, {ra}, 0xffffffff;", "r"),
    ("match.any.sync.b32 {d}, {rb}, 0xffffffff;", "r"),
]
CVT_SM100 = (
    [(f"cvt.rn.satfinite{s}.e2m1x2.f32 {{d}}, {{a}}, {{b}};", "b") for s in ("", ".relu")]
    + [(f"cvt.rn.satfinite{s}.{t}x2.f32 {{d}}, {{a}}, {{b}};", "h") for t in ("e2m3", "e3m2") for s in ("", ".relu")]
    + [(f"cvt.{r}.satfinite.ue8m0x2.f32 {{d}}, {{a}}, {{b}};", "h") for r in ("rz", "rp")]
    + [("cvt.rn.satfinite.tf32.f32 {d}, {a};", "r"), ("cvt.rz.relu.satfinite.tf32.f32 {d}, {a};", "r")]
)
F32X2 = [
    (f"{{{{ .reg .b64 x, y, z; mov.b64 x, {{{{{{a}}, {{b}}}}}}; mov.b64 y, {{{{{{b}}, {{c}}}}}}; mov.b64 z, {{{{{{c}}, {{a}}}}}}; {op}.f32x2 {{d}}, x, y{z}; }}}}", "d")
    for op, z in (("fma.rn", ", z"), ("fma.rz.ftz", ", z"), ("add.rn", ""), ("mul.rm", ""))
] + [("max.f32 {d}, {a}, {b}, {c};", "f"), ("min.NaN.f32 {d}, {a}, {b}, {c};", "f")]


def numbers():
    elementwise("cvt_f32", "sm_90a", "8.1", "ab", CVT_F32)
    elementwise("cvt_f16", "sm_90a", "8.1", "a", CVT_F16)
    elementwise("cvt_bf16", "sm_90a", "8.1", "a", CVT_BF16)
    elementwise("cvt_int", "sm_90a", "8.1", "a", CVT_INT)
    elementwise("f32_arith", "sm_90a", "8.0", "abc", F32_ARITH)
    elementwise("half_arith", "sm_90a", "8.0", "abc", HALF_ARITH)
    elementwise("approx", "sm_90a", "8.0", "abc", APPROX)
    elementwise("bits", "sm_90a", "8.0", "abc", BITS)
    elementwise("shuffle", "sm_90a", "8.0", "ab", SHUFFLE)
    elementwise("cvt_sm100", "sm_100a", "8.6", "ab", CVT_SM100)
    elementwise("f32x2", "sm_100a", "8.8", "abc", F32X2)


if __name__ == "__main__":
    numbers()
