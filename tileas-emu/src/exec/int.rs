//! Integer, logic, comparison and data movement instructions.
//!
//! Operations are written on 64-bit values; the operand access truncates and extends, and the
//! compiler specialises each to its width.
//! Source: PTX ISA, "Integer Arithmetic", "Logic and Shift", "Comparison and Selection", "Data Movement".

use super::cx::{ALL, Cx, lanes};
use super::{Flow, Trap, X};
use crate::decode::build::{Build, PredSrc};
use crate::decode::table::{Row, row};
use crate::decode::{Col, Exec, PCol, R};
use crate::parse::ast::Operand;
use crate::parse::type_bytes;

/// Value of a lane as 64 bits, zero extended.
#[inline(always)]
pub fn get(cx: &Cx<'_>, c: Col, bytes: u32, l: usize) -> u64 {
    if bytes == 8 { cx.w.u64(c, l) } else { u64::from(cx.w.u32(c, l)) }
}

/// Sets the value of a lane, truncated.
#[inline(always)]
pub fn set(cx: &mut Cx<'_>, c: Col, bytes: u32, l: usize, v: u64) {
    match bytes {
        8 => cx.w.set64(c, l, v),
        4 => cx.w.set32(c, l, v as u32),
        2 => cx.w.set32(c, l, v as u32 & 0xFFFF),
        _ => cx.w.set32(c, l, v as u32 & 0xFF),
    }
}

/// Sign extends the low `bytes`.
#[inline(always)]
pub fn sx(v: u64, bytes: u32) -> i64 {
    let s = 64 - 8 * bytes;
    ((v << s) as i64) >> s
}

/// One-operand operation.
pub fn map1(b: &mut Build<'_>, bytes: u32, f: impl Fn(u64) -> u64 + Send + Sync + 'static) -> R<Exec> {
    b.count(2)?;
    let (d, x) = (b.dst(0, bytes)?, b.src(1, bytes)?);
    Ok(if bytes == 4 {
        Box::new(move |cx, m| {
            for l in lanes(m) {
                let v = f(cx.w.u32(x, l).into());
                cx.w.set32(d, l, v as u32);
            }
            Ok(Flow::Next)
        })
    } else {
        Box::new(move |cx, m| {
            for l in lanes(m) {
                let v = f(get(cx, x, bytes, l));
                set(cx, d, bytes, l, v);
            }
            Ok(Flow::Next)
        })
    })
}

/// Two-operand operation; `second` is the width of the second operand.
pub fn map2w(
    b: &mut Build<'_>,
    bytes: u32,
    second: u32,
    f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
) -> R<Exec> {
    b.count(3)?;
    let (d, x, y) = (b.dst(0, bytes)?, b.src(1, bytes)?, b.src(2, second)?);
    Ok(if bytes == 4 && second == 4 {
        Box::new(move |cx, m| {
            for l in lanes(m) {
                let v = f(cx.w.u32(x, l).into(), cx.w.u32(y, l).into());
                cx.w.set32(d, l, v as u32);
            }
            Ok(Flow::Next)
        })
    } else {
        Box::new(move |cx, m| {
            for l in lanes(m) {
                let v = f(get(cx, x, bytes, l), get(cx, y, second, l));
                set(cx, d, bytes, l, v);
            }
            Ok(Flow::Next)
        })
    })
}

/// Two-operand operation of one width.
pub fn map2(b: &mut Build<'_>, bytes: u32, f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static) -> R<Exec> {
    map2w(b, bytes, bytes, f)
}

/// Three-operand operation with widths of the destination and the sources.
pub fn map3(
    b: &mut Build<'_>,
    w: [u32; 4],
    f: impl Fn(u64, u64, u64) -> u64 + Send + Sync + 'static,
) -> R<Exec> {
    b.count(4)?;
    let (d, x, y, z) = (b.dst(0, w[0])?, b.src(1, w[1])?, b.src(2, w[2])?, b.src(3, w[3])?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let v = f(get(cx, x, w[1], l), get(cx, y, w[2], l), get(cx, z, w[3], l));
            set(cx, d, w[0], l, v);
        }
        Ok(Flow::Next)
    }))
}

/// Bytes and signedness of the type that is the last modifier.
fn int_type(b: &Build<'_>) -> (u32, bool) {
    let t = b.inst.opcode.rsplit('.').next().unwrap_or("");
    (type_bytes(t).unwrap_or(4), t.starts_with('s'))
}

fn add(b: &mut Build<'_>) -> R<Exec> {
    let (n, _) = int_type(b);
    map2(b, n, u64::wrapping_add)
}

fn sub(b: &mut Build<'_>) -> R<Exec> {
    let (n, _) = int_type(b);
    map2(b, n, u64::wrapping_sub)
}

/// 128-bit product of two values of a type.
fn product(a: u64, b: u64, n: u32, signed: bool) -> u128 {
    if signed { (i128::from(sx(a, n)) * i128::from(sx(b, n))) as u128 } else { u128::from(a) * u128::from(b) }
}

fn mul(b: &mut Build<'_>) -> R<Exec> {
    let (n, s) = int_type(b);
    match b.ms(0) {
        "lo" => map2(b, n, u64::wrapping_mul),
        "hi" => map2(b, n, move |x, y| (product(x, y, n, s) >> (8 * n)) as u64),
        _ if n == 8 => Err(b.error("P011", "mul.wide has no 64-bit form")),
        _ => {
            b.count(3)?;
            let (d, x, y) = (b.dst(0, 2 * n)?, b.src(1, n)?, b.src(2, n)?);
            Ok(Box::new(move |cx, m| {
                for l in lanes(m) {
                    let v = product(get(cx, x, n, l), get(cx, y, n, l), n, s) as u64;
                    set(cx, d, 2 * n, l, v);
                }
                Ok(Flow::Next)
            }))
        }
    }
}

fn mad(b: &mut Build<'_>) -> R<Exec> {
    let (n, s) = int_type(b);
    match b.ms(0) {
        "lo" => map3(b, [n; 4], |x, y, z| x.wrapping_mul(y).wrapping_add(z)),
        "hi" => map3(b, [n; 4], move |x, y, z| ((product(x, y, n, s) >> (8 * n)) as u64).wrapping_add(z)),
        _ if n == 8 => Err(b.error("P011", "mad.wide has no 64-bit form")),
        _ => map3(b, [2 * n, n, n, 2 * n], move |x, y, z| (product(x, y, n, s) as u64).wrapping_add(z)),
    }
}

/// Extended-precision forms: `add.cc`, `subc`, `madc.hi.cc`, … A lane's carry flag lies outside its registers.
fn carry(b: &mut Build<'_>) -> R<Exec> {
    let mods: Vec<&str> = b.inst.opcode.split('.').collect();
    let (name, takes) = mods[0].strip_suffix('c').map_or((mods[0], false), |n| (n, true));
    let (subtracts, multiplies) = (name == "sub", name == "mad");
    let (gives, high) = (mods.contains(&"cc"), mods.contains(&"hi"));
    let (n, s) = int_type(b);
    b.count(if multiplies { 4 } else { 3 })?;
    let (d, x, y) = (b.dst(0, n)?, b.src(1, n)?, b.src(2, n)?);
    let z = if multiplies { b.src(3, n)? } else { y };
    let mask = if n == 8 { u64::MAX } else { (1 << (8 * n)) - 1 };
    Ok(Box::new(move |cx, m| {
        if takes && cx.cta.det.on.undefined && cx.w.carry.1 & m != m {
            return Err(Trap::new("undefined", "the carry flag holds no value"));
        }
        for l in lanes(m) {
            let (mut a, mut c) = (get(cx, x, n, l), get(cx, z, n, l));
            if multiplies {
                let p = product(a, get(cx, y, n, l), n, s);
                a = (if high { p >> (8 * n) } else { p }) as u64 & mask;
            }
            let mut carry = takes && cx.w.carry.0 >> l & 1 != 0;
            if subtracts {
                // The flag is a borrow.
                c = !c & mask;
                carry = !carry;
            }
            let sum = u128::from(a) + u128::from(c) + u128::from(carry);
            set(cx, d, n, l, sum as u64);
            if gives {
                let out = (sum >> (8 * n) != 0) != subtracts;
                cx.w.carry.0 = cx.w.carry.0 & !(1 << l) | u32::from(out) << l;
            }
        }
        if gives {
            cx.w.carry.1 |= m;
        }
        Ok(Flow::Next)
    }))
}

fn div(b: &mut Build<'_>) -> R<Exec> {
    let (n, s) = int_type(b);
    let rem = b.inst.opcode.starts_with("rem");
    b.count(3)?;
    let (d, x, y) = (b.dst(0, n)?, b.src(1, n)?, b.src(2, n)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let (x, y) = (get(cx, x, n, l), get(cx, y, n, l));
            if y == 0 {
                return Err(Trap::new(
                    "arith.div0",
                    format!("division by zero in lane {l}: the result is not specified"),
                ));
            }
            let v = match (s, rem) {
                (false, false) => x / y,
                (false, true) => x % y,
                (true, false) => sx(x, n).wrapping_div(sx(y, n)) as u64,
                (true, true) => sx(x, n).wrapping_rem(sx(y, n)) as u64,
            };
            set(cx, d, n, l, v);
        }
        Ok(Flow::Next)
    }))
}

fn min_max(b: &mut Build<'_>) -> R<Exec> {
    let (n, s) = int_type(b);
    match (b.inst.opcode.starts_with("min"), s) {
        (true, true) => map2(b, n, move |x, y| sx(x, n).min(sx(y, n)) as u64),
        (true, false) => map2(b, n, u64::min),
        (false, true) => map2(b, n, move |x, y| sx(x, n).max(sx(y, n)) as u64),
        (false, false) => map2(b, n, u64::max),
    }
}

fn neg(b: &mut Build<'_>) -> R<Exec> {
    let (n, _) = int_type(b);
    map1(b, n, |x| x.wrapping_neg())
}

fn abs(b: &mut Build<'_>) -> R<Exec> {
    let (n, _) = int_type(b);
    map1(b, n, move |x| sx(x, n).unsigned_abs())
}

/// Operation on predicates.
fn logic_pred(b: &mut Build<'_>, f: impl Fn(u32, u32) -> u32 + Send + Sync + 'static) -> R<Exec> {
    b.count(3)?;
    let (d, x, y) = (b.operand(0)?, b.operand(1)?, b.operand(2)?);
    let (d, x, y) = (b.pred_dst(d)?, b.pred(x)?, b.pred(y)?);
    Ok(Box::new(move |cx, m| {
        let v = f(cx.w.pred(x), cx.w.pred(y));
        if let Some(d) = d {
            cx.w.set_pred(d, m, v);
        }
        Ok(Flow::Next)
    }))
}

fn logic(b: &mut Build<'_>) -> R<Exec> {
    let pred = b.ms(0) == "pred";
    let (n, _) = int_type(b);
    match (b.inst.opcode.split('.').next(), pred) {
        (Some("and"), true) => logic_pred(b, |x, y| x & y),
        (Some("or"), true) => logic_pred(b, |x, y| x | y),
        (_, true) => logic_pred(b, |x, y| x ^ y),
        (Some("and"), false) => map2(b, n, |x, y| x & y),
        (Some("or"), false) => map2(b, n, |x, y| x | y),
        (_, false) => map2(b, n, |x, y| x ^ y),
    }
}

fn not(b: &mut Build<'_>) -> R<Exec> {
    if b.ms(0) == "pred" {
        b.count(2)?;
        let (d, x) = (b.operand(0)?, b.operand(1)?);
        let (d, x) = (b.pred_dst(d)?, b.pred(x)?);
        return Ok(Box::new(move |cx, m| {
            let v = !cx.w.pred(x);
            if let Some(d) = d {
                cx.w.set_pred(d, m, v);
            }
            Ok(Flow::Next)
        }));
    }
    let (n, _) = int_type(b);
    map1(b, n, |x| !x)
}

fn shift(b: &mut Build<'_>) -> R<Exec> {
    let (n, s) = int_type(b);
    let bits = u64::from(8 * n);
    if b.inst.opcode.starts_with("shl") {
        return map2w(b, n, 4, move |x, k| if k >= bits { 0 } else { x << k });
    }
    if s {
        return map2w(b, n, 4, move |x, k| (sx(x, n) >> k.min(bits - 1)) as u64);
    }
    map2w(b, n, 4, move |x, k| if k >= bits { 0 } else { x >> k })
}

fn funnel(b: &mut Build<'_>) -> R<Exec> {
    let (left, wrap) = (b.ms(0) == "l", b.ms(1) == "wrap");
    map3(b, [4; 4], move |lo, hi, k| {
        let k = if wrap { k & 31 } else { k.min(32) };
        let v = hi << 32 | lo;
        if left { v << k >> 32 } else { v >> k }
    })
}

fn bfe(b: &mut Build<'_>) -> R<Exec> {
    let (n, s) = int_type(b);
    map3(b, [n, n, 4, 4], move |x, pos, len| {
        let (pos, len, bits) = (pos & 255, len & 255, u64::from(8 * n));
        if len == 0 || pos >= bits && !s {
            return 0;
        }
        let x = if s { sx(x, n) } else { x as i64 };
        if s {
            let top = (pos + len).min(bits);
            if pos >= bits {
                return (x >> 63) as u64;
            }
            return (x << (64 - top) >> (64 - top + pos)) as u64;
        }
        let v = (x as u64) >> pos;
        if len >= 64 { v } else { v & ((1 << len) - 1) }
    })
}

fn bfi(b: &mut Build<'_>) -> R<Exec> {
    let (n, _) = int_type(b);
    b.count(5)?;
    let (d, x, y, p, k) = (b.dst(0, n)?, b.src(1, n)?, b.src(2, n)?, b.src(3, 4)?, b.src(4, 4)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let (pos, len) = (cx.w.u32(p, l) & 255, cx.w.u32(k, l) & 255);
            let field = if len >= 64 { u64::MAX } else { (1u64 << len) - 1 };
            let mask = if pos >= 64 { 0 } else { field << pos };
            let v = if pos >= 64 { 0 } else { get(cx, x, n, l) << pos };
            let v = v & mask | get(cx, y, n, l) & !mask;
            set(cx, d, n, l, v);
        }
        Ok(Flow::Next)
    }))
}

fn prmt(b: &mut Build<'_>) -> R<Exec> {
    map3(b, [4; 4], |x, y, sel| {
        let bytes = (y << 32 | x).to_le_bytes();
        (0..4).fold(0, |v, i| {
            let s = (sel >> (4 * i)) as usize;
            let byte = bytes[s & 7];
            let byte = if s & 8 != 0 { if byte & 0x80 != 0 { 0xFF } else { 0 } } else { byte };
            v | u64::from(byte) << (8 * i)
        })
    })
}

/// `prmt` with a mode: the two low bits of the third operand pick one of four fixed selections.
fn prmt_mode(b: &mut Build<'_>) -> R<Exec> {
    let table: [[usize; 4]; 4] = match b.ms(0) {
        "f4e" => [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
        "b4e" => [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
        "rc8" => [[0; 4], [1; 4], [2; 4], [3; 4]],
        "ecl" => [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
        "ecr" => [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
        _ => [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
    };
    map3(b, [4; 4], move |x, y, sel| {
        let bytes = (y << 32 | x).to_le_bytes();
        let pick = table[(sel & 3) as usize];
        (0..4).fold(0, |v, i| v | u64::from(bytes[pick[i]]) << (8 * i))
    })
}

fn lop3(b: &mut Build<'_>) -> R<Exec> {
    b.count(5)?;
    let table = b.imm(4)?;
    if table > 255 {
        return Err(b.error("P017", "the table has 8 bits"));
    }
    let (d, x, y, z) = (b.dst(0, 4)?, b.src(1, 4)?, b.src(2, 4)?, b.src(3, 4)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let (x, y, z) = (cx.w.u32(x, l), cx.w.u32(y, l), cx.w.u32(z, l));
            let v = (0..8).filter(|i| table >> i & 1 != 0).fold(0, |v, i| {
                let pick = |w: u32, bit: u32| if i >> bit & 1 != 0 { w } else { !w };
                v | pick(x, 2) & pick(y, 1) & pick(z, 0)
            });
            cx.w.set32(d, l, v);
        }
        Ok(Flow::Next)
    }))
}

fn count_bits(b: &mut Build<'_>) -> R<Exec> {
    let (n, _) = int_type(b);
    let clz = b.inst.opcode.starts_with("clz");
    b.count(2)?;
    let (d, x) = (b.dst(0, 4)?, b.src(1, n)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let v = get(cx, x, n, l);
            let v = if clz { v.leading_zeros() - (64 - 8 * n) } else { v.count_ones() };
            cx.w.set32(d, l, v);
        }
        Ok(Flow::Next)
    }))
}

fn brev(b: &mut Build<'_>) -> R<Exec> {
    let (n, _) = int_type(b);
    map1(b, n, move |x| x.reverse_bits() >> (64 - 8 * n))
}

fn selp(b: &mut Build<'_>) -> R<Exec> {
    let n = type_bytes(b.ms(0)).unwrap_or(4);
    b.count(4)?;
    let (d, x, y, p) = (b.dst(0, n)?, b.src(1, n)?, b.src(2, n)?, b.operand(3)?);
    let p = b.pred(p)?;
    Ok(Box::new(move |cx, m| {
        let p = cx.w.pred(p);
        for l in lanes(m) {
            let v = get(cx, if p >> l & 1 != 0 { x } else { y }, n, l);
            set(cx, d, n, l, v);
        }
        Ok(Flow::Next)
    }))
}

/// Destination predicates `p` or `p|q`.
pub fn pair(b: &mut Build<'_>, k: usize) -> R<(Option<PCol>, Option<PCol>)> {
    match b.operand(k)? {
        Operand::Pair(p, q) => Ok((b.pred_dst(p)?, b.pred_dst(q)?)),
        o => Ok((b.pred_dst(o)?, None)),
    }
}

/// A comparison with optional combination; `test` compares the lanes' operands.
fn compare(
    b: &mut Build<'_>,
    bytes: u32,
    test: impl Fn(u64, u64) -> bool + Send + Sync + 'static,
) -> R<Exec> {
    let combine = b.m(1);
    b.count(if combine.is_some() { 4 } else { 3 })?;
    let (p, q) = pair(b, 0)?;
    let (x, y) = (b.src(1, bytes)?, b.src(2, bytes)?);
    let c = if combine.is_some() {
        let o = b.operand(3)?;
        Some(b.pred(o)?)
    } else {
        None
    };
    let op = match combine {
        Some("or") => 1,
        Some("xor") => 2,
        _ => 0,
    };
    Ok(Box::new(move |cx, m| {
        let mut t = 0;
        for l in lanes(m) {
            t |= u32::from(test(get(cx, x, bytes, l), get(cx, y, bytes, l))) << l;
        }
        let with = |t: u32, c: u32| match op {
            1 => t | c,
            2 => t ^ c,
            _ => t & c,
        };
        let c = c.map_or(ALL, |c| cx.w.pred(c));
        if let Some(p) = p {
            cx.w.set_pred(p, m, with(t, c));
        }
        if let Some(q) = q {
            cx.w.set_pred(q, m, with(!t, c));
        }
        Ok(Flow::Next)
    }))
}

fn setp_int(b: &mut Build<'_>) -> R<Exec> {
    let (n, s) = int_type(b);
    match (b.ms(0), s) {
        ("eq", _) => compare(b, n, |x, y| x == y),
        ("ne", _) => compare(b, n, |x, y| x != y),
        ("lt", true) => compare(b, n, move |x, y| sx(x, n) < sx(y, n)),
        ("le", true) => compare(b, n, move |x, y| sx(x, n) <= sx(y, n)),
        ("gt", true) => compare(b, n, move |x, y| sx(x, n) > sx(y, n)),
        ("ge", true) => compare(b, n, move |x, y| sx(x, n) >= sx(y, n)),
        ("lt" | "lo", false) => compare(b, n, |x, y| x < y),
        ("le" | "ls", false) => compare(b, n, |x, y| x <= y),
        ("gt" | "hi", false) => compare(b, n, |x, y| x > y),
        ("ge" | "hs", false) => compare(b, n, |x, y| x >= y),
        _ => Err(b.error("P011", "comparison not of this type")),
    }
}

fn setp_float(b: &mut Build<'_>) -> R<Exec> {
    let ftz = b.m(2).is_some();
    let t = b.ms(3);
    let n = type_bytes(t).unwrap_or(4);
    let Some(format) = crate::num::Format::by_name(t) else { return Err(b.error("P011", "not a type")) };
    let op = b.ms(0).to_string();
    compare(b, n, move |x, y| {
        let v = |x: u64| {
            let x = if ftz && format.is_subnormal(x) { 0 } else { x };
            match format.bits {
                32 => f64::from(f32::from_bits(x as u32)),
                64 => f64::from_bits(x),
                _ => crate::num::convert::f64_from(format, x),
            }
        };
        let (x, y) = (v(x), v(y));
        let unordered = x.is_nan() || y.is_nan();
        match op.as_str() {
            "eq" => x == y,
            "ne" => !unordered && x != y,
            "lt" => x < y,
            "le" => x <= y,
            "gt" => x > y,
            "ge" => x >= y,
            "equ" => unordered || x == y,
            "neu" => x != y,
            "ltu" => unordered || x < y,
            "leu" => unordered || x <= y,
            "gtu" => unordered || x > y,
            "geu" => unordered || x >= y,
            "num" => !unordered,
            _ => unordered,
        }
    })
}

/// Copies columns.
fn copy(cx: &mut Cx<'_>, m: u32, from: &[Col], to: &[Col]) -> X<Flow> {
    for (&x, &d) in from.iter().zip(to) {
        let v = cx.w.regs[usize::from(x)];
        if m == ALL {
            cx.w.regs[usize::from(d)] = v;
        } else {
            for l in lanes(m) {
                cx.w.set32(d, l, v[l]);
            }
        }
    }
    Ok(Flow::Next)
}

fn mov(b: &mut Build<'_>) -> R<Exec> {
    b.count(2)?;
    let ty = b.ms(0);
    if ty == "pred" {
        let (d, x) = (b.operand(0)?, b.operand(1)?);
        let (d, x): (_, PredSrc) = (b.pred_dst(d)?, b.pred(x)?);
        return Ok(Box::new(move |cx, m| {
            let v = cx.w.pred(x);
            if let Some(d) = d {
                cx.w.set_pred(d, m, v);
            }
            Ok(Flow::Next)
        }));
    }
    let n = type_bytes(ty).unwrap_or(4);
    let parts = |b: &Build<'_>, items: &[Operand]| -> R<u32> {
        let k = items.len() as u32;
        if matches!(k, 2 | 4) && n / k * k == n && n / k > 0 {
            Ok(n / k)
        } else {
            Err(b.error("P012", "vector length does not fit"))
        }
    };
    match (b.operand(0)?, b.operand(1)?) {
        (Operand::Vector(d), x) => {
            let each = parts(b, d)?;
            let x = b.source(x, n)?;
            let mut to = Vec::new();
            for o in d {
                to.push(if *o == Operand::Sink { None } else { Some(b.dest(o, each)?) });
            }
            Ok(Box::new(move |cx, m| {
                for l in lanes(m) {
                    let words: [u32; 4] = std::array::from_fn(|k| {
                        if (k as u32) < n.div_ceil(4) { cx.w.u32(x + k as Col, l) } else { 0 }
                    });
                    for (k, d) in to.iter().enumerate() {
                        let Some(d) = *d else { continue };
                        let bit = k * each as usize * 8;
                        let lo = words[bit / 32] >> (bit % 32);
                        let hi = if each == 8 { words[bit / 32 + 1] } else { 0 };
                        set(cx, d, each, l, u64::from(hi) << 32 | u64::from(lo));
                    }
                }
                Ok(Flow::Next)
            }))
        }
        (d, Operand::Vector(x)) => {
            let each = parts(b, x)?;
            let from = x.iter().map(|o| b.source(o, each)).collect::<R<Vec<_>>>()?;
            let d = b.dest(d, n)?;
            Ok(Box::new(move |cx, m| {
                for l in lanes(m) {
                    let mut v = 0u128;
                    for (k, &x) in from.iter().enumerate() {
                        let mask = if each == 8 { u64::MAX } else { (1 << (8 * each)) - 1 };
                        v |= u128::from(get(cx, x, each, l) & mask) << (k as u32 * each * 8);
                    }
                    for k in 0..n.div_ceil(4) {
                        cx.w.set32(d + k as Col, l, (v >> (32 * k)) as u32);
                    }
                }
                Ok(Flow::Next)
            }))
        }
        (d, x) => {
            let x = b.source(x, n)?;
            let d = b.dest(d, n)?;
            let k = n.div_ceil(4) as Col;
            let (from, to): (Vec<Col>, Vec<Col>) = ((x..x + k).collect(), (d..d + k).collect());
            Ok(Box::new(move |cx, m| copy(cx, m, &from, &to)))
        }
    }
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("add.{s16,u16,s32,u32,s64,u64}", add),
    row("sub.{s16,u16,s32,u32,s64,u64}", sub),
    row("mul.{lo,hi,wide}.{s16,u16,s32,u32,s64,u64}", mul),
    row("mad.{lo,hi,wide}.{s16,u16,s32,u32,s64,u64}", mad),
    row("add.cc.{s32,u32,s64,u64}", carry),
    row("addc.cc?.{s32,u32,s64,u64}", carry),
    row("sub.cc.{s32,u32,s64,u64}", carry),
    row("subc.cc?.{s32,u32,s64,u64}", carry),
    row("mad.{lo,hi}.cc.{s32,u32,s64,u64}", carry),
    row("madc.{lo,hi}.cc?.{s32,u32,s64,u64}", carry),
    row("div.{s16,u16,s32,u32,s64,u64}", div),
    row("rem.{s16,u16,s32,u32,s64,u64}", div),
    row("min.{s16,u16,s32,u32,s64,u64}", min_max),
    row("max.{s16,u16,s32,u32,s64,u64}", min_max),
    row("neg.{s16,s32,s64}", neg),
    row("abs.{s16,s32,s64}", abs),
    row("and.{pred,b16,b32,b64}", logic),
    row("or.{pred,b16,b32,b64}", logic),
    row("xor.{pred,b16,b32,b64}", logic),
    row("not.{pred,b16,b32,b64}", not),
    row("shl.{b16,b32,b64}", shift),
    row("shr.{b16,b32,b64,u16,u32,u64,s16,s32,s64}", shift),
    row("shf.{l,r}.{wrap,clamp}.b32", funnel),
    row("bfe.{u32,s32,u64,s64}", bfe),
    row("bfi.{b32,b64}", bfi),
    row("prmt.b32", prmt),
    row("prmt.b32.{f4e,b4e,rc8,ecl,ecr,rc16}", prmt_mode),
    row("lop3.b32", lop3),
    row("popc.{b32,b64}", count_bits),
    row("clz.{b32,b64}", count_bits),
    row("brev.{b32,b64}", brev),
    row("selp.{b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64}", selp),
    row("setp.{eq,ne,lt,le,gt,ge,lo,ls,hi,hs}.{and,or,xor}?.{b16,b32,b64,u16,u32,u64,s16,s32,s64}", setp_int),
    row(
        "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{and,or,xor}?.ftz?.{f16,bf16,f32,f64}",
        setp_float,
    ),
    row("mov.{pred,b16,u16,s16,f16,bf16,b32,u32,s32,f32,b64,u64,s64,f64,b128}", mov),
];
