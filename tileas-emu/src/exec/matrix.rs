//! `ldmatrix`, `stmatrix` and `mma.sync`.
//! Source: PTX ISA, "Warp Level Matrix Instructions".

use super::Flow;
use super::cx::Cx;
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Col, Collective, Exec, R};
use crate::layout::frag::{MatrixForm, mma_a, mma_b, mma_d16, mma_d32};
use crate::num::format::{F16, F32, Format};
use crate::num::mma;

fn form(b: &Build<'_>) -> MatrixForm {
    match b.ms(0) {
        "m16n16" => MatrixForm::M16N16B8,
        "m16n8" => MatrixForm::M16N8B8,
        _ => MatrixForm::M8N8B16,
    }
}

fn count(b: &Build<'_>) -> u32 {
    match b.ms(1) {
        "x4" => 4,
        "x2" => 2,
        _ => 1,
    }
}

fn ldmatrix(b: &mut Build<'_>) -> R<Exec> {
    move_matrix(b, true)
}

fn stmatrix(b: &mut Build<'_>) -> R<Exec> {
    move_matrix(b, false)
}

fn move_matrix(b: &mut Build<'_>, load: bool) -> R<Exec> {
    b.count(2)?;
    b.visible();
    b.collective(Collective::Aligned);
    let (f, n, trans) = (form(b), count(b), b.m(2).is_some());
    if !f.count_ok(n) || f != MatrixForm::M8N8B16 && !trans {
        return Err(b.error("P011", "shape, count and .trans do not fit"));
    }
    let (r, a) = if load { (0, 1) } else { (1, 0) };
    let a = b.mem(a)?;
    let items = b.items(r)?;
    if items.len() != (n * f.regs()) as usize {
        return Err(b.error("P012", format!("{} registers expected", n * f.regs())));
    }
    let mut regs: Vec<Col> = Vec::new();
    for o in items {
        regs.push(if load { b.dest(o, 4)? } else { b.source(o, 4)? });
    }
    Ok(Box::new(move |cx, _| {
        for matrix in 0..n {
            let mut base = [0u32; 16];
            for row in 0..f.rows() {
                let lane = f.address_lane(matrix, row) as usize;
                base[row as usize] = cx.shared_address(a, lane)?;
                cx.cta.smem.check(base[row as usize], 16, 16, "matrix row")?;
                cx.touch_shared(base[row as usize], 16, !load, lane)?;
                if load {
                    cx.cta.smem.check_defined(base[row as usize], 16, "ldmatrix")?;
                }
            }
            let e = f.elem();
            for lane in 0..32 {
                for reg in 0..f.regs() {
                    let c = regs[(matrix * f.regs() + reg) as usize];
                    let mut v = if load { 0 } else { cx.w.u32(c, lane) };
                    for part in 0..4 / e {
                        let (row, col) = f.element(trans, lane as u32, reg, part);
                        let at = base[row as usize] + col * e;
                        for i in 0..e {
                            let shift = 8 * (part * e + i);
                            if load {
                                v |= u32::from(cx.cta.smem.bytes[(at + i) as usize]) << shift;
                            } else {
                                cx.cta.smem.bytes[(at + i) as usize] = (v >> shift) as u8;
                            }
                        }
                    }
                    if load {
                        cx.w.set32(c, lane, v);
                    }
                }
            }
            if !load {
                for &at in &base[..f.rows() as usize] {
                    cx.cta.smem.define(at, 16, true);
                }
            }
        }
        v_changed(cx, load);
        Ok(Flow::Next)
    }))
}

fn v_changed(cx: &mut Cx<'_>, load: bool) {
    if !load {
        cx.cta.changed();
    }
}

/// `mma.sync` m16n8 of floating-point types.
fn mma_sync(b: &mut Build<'_>) -> R<Exec> {
    b.count(4)?;
    b.collective(Collective::Aligned);
    let k: u32 = match b.ms(0) {
        "m16n8k4" => 4,
        "m16n8k8" => 8,
        "m16n8k16" => 16,
        _ => 32,
    };
    let (dt, at, bt, ct) = (b.ms(1), b.ms(2), b.ms(3), b.ms(4));
    let (Some(fa), Some(fb)) = (Format::by_name(at), Format::by_name(bt)) else {
        return Err(b.error("P011", "types are not emulated"));
    };
    let elem = fa.bits / 8;
    if fa.bits != fb.bits || k * elem != 32 || dt != ct {
        return Err(b.error("P011", "shape and types do not fit"));
    }
    let half = dt == "f16";
    let nd = if half { 2 } else { 4 };
    let take = |b: &mut Build<'_>, i: usize, n: usize, dst: bool| -> R<Vec<Col>> {
        let items = b.items(i)?;
        if items.len() != n {
            return Err(b.error("P012", format!("{n} registers expected")));
        }
        items.iter().map(|o| if dst { b.dest(o, 4) } else { b.source(o, 4) }).collect()
    };
    let (ra, rb, rc) = (take(b, 1, 4, false)?, take(b, 2, 2, false)?, take(b, 3, nd, false)?);
    let rd = take(b, 0, nd, true)?;
    Ok(Box::new(move |cx, _| {
        let (mut ma, mut mb) = (vec![0f32; 16 * k as usize], vec![0f32; 8 * k as usize]);
        let part = |v: u32, p: u32| u64::from(v >> (p * fa.bits)) & ((1u64 << fa.bits) - 1);
        for lane in 0..32u32 {
            for p in 0..4 / elem {
                for (r, &c) in ra.iter().enumerate() {
                    let (row, kk) = mma_a(lane, r as u32, p, elem);
                    ma[(row * k + kk) as usize] = crate::num::f32_from(fa, part(cx.w.u32(c, lane as usize), p));
                }
                for (r, &c) in rb.iter().enumerate() {
                    let (kk, col) = mma_b(lane, r as u32, p, elem);
                    mb[(col * k + kk) as usize] = crate::num::f32_from(fb, part(cx.w.u32(c, lane as usize), p));
                }
            }
        }
        let dot = |row: u32, col: u32, c: f64| {
            let (x, y) = ((row * k) as usize, (col * k) as usize);
            mma::dot(&ma[x..x + k as usize], &mb[y..y + k as usize], c)
        };
        for lane in 0..32u32 {
            for r in 0..nd as u32 {
                let old = cx.w.u32(rc[r as usize], lane as usize);
                let new = if half {
                    (0..2).fold(0u32, |v, p| {
                        let (row, col) = mma_d16(lane, r, p);
                        let c = f64::from(crate::num::f32_from(&F16, u64::from(old >> (16 * p) & 0xFFFF)));
                        v | (mma::finish(&F16, dot(row, col, c)) as u32) << (16 * p)
                    })
                } else {
                    let (row, col) = mma_d32(lane, r);
                    mma::finish(&F32, dot(row, col, f64::from(f32::from_bits(old)))) as u32
                };
                cx.w.set32(rd[r as usize], lane as usize, new);
            }
        }
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("ldmatrix.sync.aligned.{m8n8,m16n16}.{x1,x2,x4}.trans?.{shared,shared::cta}?.{b16,b8}", ldmatrix),
    row("stmatrix.sync.aligned.{m8n8,m16n8}.{x1,x2,x4}.trans?.{shared,shared::cta}?.{b16,b8}", stmatrix),
    row(
        "mma.sync.aligned.{m16n8k4,m16n8k8,m16n8k16,m16n8k32}.row.col.{f32,f16}.{f16,bf16,tf32,e4m3,e5m2}.{f16,bf16,tf32,e4m3,e5m2}.{f32,f16}",
        mma_sync,
    ),
];
