//! Instructions that work on one thread's registers, as patterns of modifiers and operand shapes.
//!
//! Written from the PTX manual, not from the decoder's tables: a form that the decoder refuses is a gap of one of
//! the two. In an opcode `{a,b}` is one of several modifiers and `?` after a part makes it optional. Operands:
//! `d` a destination, `s` a source register or immediate, `r` a source register, `n` an immediate that is not zero, each followed by its
//! width: bytes, `t` (of the last type), `u` (of the type before), `w` (twice the last type). `P` is a predicate
//! to write, `Q` a pair of them, `p` one to read, `!` one to read that may be negated, `b` an immediate byte.

/// Opcode pattern and operands.
pub type Form = (&'static str, &'static str);

/// Forms that sm_90 and sm_100a have.
pub const COMMON: &[Form] = &[
    ("{add,sub,min,max}.{s16,u16,s32,u32,s64,u64}", "dt st st"),
    ("mul.{lo,hi}.{s16,u16,s32,u32,s64,u64}", "dt st st"),
    ("mul.wide.{s16,u16,s32,u32}", "dw st st"),
    ("mad.{lo,hi}.{s16,u16,s32,u32,s64,u64}", "dt st st st"),
    ("mad.wide.{s16,u16,s32,u32}", "dw st st sw"),
    ("{div,rem}.{s16,u16,s32,u32,s64,u64}", "dt st nt"),
    ("{neg,abs}.{s16,s32,s64}", "dt st"),
    ("{and,or,xor}.{b16,b32,b64}", "dt st st"),
    ("{and,or,xor}.pred", "P p p"),
    ("not.{b16,b32,b64}", "dt st"),
    ("not.pred", "P p"),
    ("shl.{b16,b32,b64}", "dt st s4"),
    ("shr.{b16,b32,b64,u16,u32,u64,s16,s32,s64}", "dt st s4"),
    ("shf.{l,r}.{wrap,clamp}.b32", "d4 s4 s4 s4"),
    ("bfe.{u32,s32,u64,s64}", "dt st r4 b"),
    ("bfi.{b32,b64}", "dt st st r4 b"),
    ("prmt.b32", "d4 s4 s4 s4"),
    ("prmt.b32.{f4e,b4e,rc8,ecl,ecr,rc16}", "d4 s4 s4 s4"),
    ("lop3.b32", "d4 s4 s4 s4 b"),
    ("{popc,clz}.{b32,b64}", "d4 st"),
    ("brev.{b32,b64}", "dt st"),
    ("selp.{b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64}", "dt st st p"),
    ("setp.{eq,ne}.{b16,b32,b64}", "P st st"),
    ("setp.{eq,ne,lt,le,gt,ge}.{s16,s32,s64,u16,u32,u64}", "Q st st"),
    ("setp.{eq,ne,lo,ls,hi,hs}.{and,or,xor}.{u16,u32,u64}", "P st st !"),
    ("setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.ftz?.f32", "Q st st"),
    ("setp.{eq,ne,lt,ge,ltu,geu,num,nan}.{and,or,xor}.f64", "P st st !"),
    ("setp.{eq,lt,gt,neu,leu,num,nan}.f16", "P st st"),
    ("mov.{b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64}", "dt st"),
    ("mov.pred", "P p"),
    ("{add,sub,mul}.{rn,rz,rm,rp}?.ftz?.sat?.f32", "dt st st"),
    ("{add,sub,mul}.{rn,rz,rm,rp}?.f64", "dt st st"),
    ("{add,sub,mul}.rn?.ftz?.sat?.{f16,f16x2}", "dt st st"),
    ("{add,sub,mul}.rn?.{bf16,bf16x2}", "dt st st"),
    ("fma.{rn,rz,rm,rp}.ftz?.sat?.f32", "dt st st st"),
    ("fma.{rn,rz,rm,rp}.f64", "dt st st st"),
    ("fma.rn.ftz?.{sat,relu}?.{f16,f16x2}", "dt st st st"),
    ("fma.rn.relu?.{bf16,bf16x2}", "dt st st st"),
    ("mad.{rn,rz,rm,rp}.ftz?.sat?.f32", "dt st st st"),
    ("{min,max}.ftz?.NaN?.f32", "dt st st"),
    ("{min,max}.ftz?.NaN?.xorsign.abs.f32", "dt st st"),
    ("{min,max}.f64", "dt st st"),
    ("{min,max}.ftz?.NaN?.{f16,f16x2}", "dt st st"),
    ("{min,max}.NaN?.{bf16,bf16x2}", "dt st st"),
    ("{neg,abs}.ftz?.f32", "dt st"),
    ("{neg,abs}.{f64,f16,f16x2,bf16,bf16x2}", "dt st"),
    ("copysign.{f32,f64}", "dt st st"),
    ("div.{approx,full}.ftz?.f32", "dt st st"),
    ("div.{rn,rz,rm,rp}.ftz?.f32", "dt st st"),
    ("div.{rn,rz,rm,rp}.f64", "dt st st"),
    ("{rcp,sqrt}.{rn,rz,rm,rp}.ftz?.f32", "dt st"),
    ("{rcp,sqrt}.{rn,rz,rm,rp}.f64", "dt st"),
    ("{rcp,sqrt,rsqrt,sin,cos,lg2,ex2}.approx.ftz?.f32", "dt st"),
    ("ex2.approx.{f16,f16x2}", "dt st"),
    ("ex2.approx.ftz.{bf16,bf16x2}", "dt st"),
    ("tanh.approx.{f32,f16,f16x2,bf16,bf16x2}", "dt st"),
    ("testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}", "P st"),
    ("cvt.sat?.{u8,s8,u16,s16,u32,s32,u64,s64}.{u8,s8,u16,s16,u32,s32,u64,s64}", "du st"),
    ("cvt.{rni,rzi,rmi,rpi}.ftz?.{u8,s8,u16,s16,u32,s32,u64,s64}.f32", "du st"),
    ("cvt.{rni,rzi,rmi,rpi}.{u8,s8,u16,s16,u32,s32,u64,s64}.{f16,f64}", "du st"),
    ("cvt.{rn,rz,rm,rp}.{f16,f32,f64}.{u8,s8,u16,s16,u32,s32,u64,s64}", "du st"),
    ("cvt.{rn,rz}.relu?.{f16,bf16}.f32", "du st"),
    ("cvt.f32.{f16,bf16}", "du st"),
    ("cvt.f64.{f16,f32}", "du st"),
    ("cvt.{rn,rz,rm,rp}.{f16,f32}.f64", "du st"),
    ("cvt.{rni,rzi,rmi,rpi}.ftz?.sat?.f32.f32", "du st"),
    ("cvt.{rni,rzi,rmi,rpi}.{f16.f16,f64.f64}", "dt st"),
    ("cvt.{rn,rz}.relu?.{f16x2,bf16x2}.f32", "du st st"),
    ("cvt.rn.satfinite.relu?.{e4m3x2,e5m2x2}.f32", "d2 s4 s4"),
    ("cvt.rn.satfinite.relu?.{e4m3x2,e5m2x2}.f16x2", "d2 s4"),
    ("cvt.rn.relu?.f16x2.{e4m3x2,e5m2x2}", "d4 s2"),
    ("cvt.rna.satfinite?.tf32.f32", "d4 s4"),
    ("cvt.{rn,rz}.relu?.tf32.f32", "d4 s4"),
];

/// Forms that only sm_100a has.
pub const BLACKWELL: &[Form] = &[
    ("{add,mul}.{rn,rz,rm,rp}?.ftz?.f32x2", "dt st st"),
    ("fma.{rn,rz,rm,rp}.ftz?.f32x2", "dt st st st"),
    ("{add,sub}.{rn,rz,rm,rp}?.sat?.f32.{f16,bf16}", "d4 st s4"),
    ("fma.{rn,rz,rm,rp}.sat?.f32.{f16,bf16}", "d4 st st s4"),
    ("cvt.rn.satfinite.relu?.{e2m3x2,e3m2x2}.f32", "d2 s4 s4"),
    ("cvt.rn.relu?.f16x2.{e2m3x2,e3m2x2}", "d4 s2"),
    ("cvt.{rz,rp}.satfinite?.ue8m0x2.f32", "d2 s4 s4"),
    ("cvt.rn.bf16x2.ue8m0x2", "d4 s2"),
];

/// Warp-wide forms, for all lanes of a warp; `m` is the member mask, `c` the packed clamp of shfl.
pub const WARP: &[Form] = &[
    ("shfl.sync.{idx,up,down,bfly}.b32", "d4 s4 s4 c m"),
    ("vote.sync.{all,any,uni}.pred", "P ! m"),
    ("vote.sync.ballot.b32", "d4 ! m"),
    ("match.any.sync.{b32,b64}", "d4 rt m"),
    ("redux.sync.{add,min,max}.{u32,s32}", "d4 r4 m"),
    ("redux.sync.{and,or,xor}.b32", "d4 r4 m"),
];

/// Bytes of a type of these forms.
pub fn bytes(ty: &str) -> u32 {
    match ty {
        "u8" | "s8" | "b8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b64" | "u64" | "s64" | "f64" | "f32x2" => 8,
        _ => 4,
    }
}
