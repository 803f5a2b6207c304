//! `ldmatrix`, `stmatrix` and `mma.sync`.
//! Source: PTX ISA, "Warp Level Matrix Instructions".

use super::Flow;
use super::cx::{Cx, Loc};
use crate::async_ops::operands::{accumulated, element, element_bytes, element_decoder};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Col, Collective, Exec, R};
use crate::layout::frag::{MatrixForm, mma_a, mma_b, mma_d16, mma_d32};
use crate::layout::idesc::Elem;
use crate::num::mma;

fn form(b: &Build<'_>) -> MatrixForm {
    match b.ms(0) {
        "m16n16" => MatrixForm::M16N16B8,
        "m16n8" => MatrixForm::M16N8B8,
        "m8n16" => MatrixForm::M8N16B8,
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
    // Bits of an element in memory; narrower ones are widened to bytes.
    let bits = match b.ms(4) {
        "b4x16_p64" => 4,
        "b6x16_p32" => 6,
        _ => 8 * f.elem(),
    };
    let free = matches!(f, MatrixForm::M8N8B16 | MatrixForm::M8N16B8);
    if !f.count_ok(n)
        || trans != (f != MatrixForm::M8N16B8) && !(free && bits == 16)
        || (f == MatrixForm::M8N16B8) != (bits < 8 && !trans)
    {
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
                cx.touch_shared(base[row as usize], 16, !load, false, None)?;
                cx.note(lane, Loc::Shared(base[row as usize]), 16);
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
                        if bits < 8 {
                            let at = (base[row as usize] + col * bits / 8) as usize;
                            let raw = u32::from(u16::from_le_bytes([
                                cx.cta.smem.bytes[at],
                                cx.cta.smem.bytes[at + 1],
                            ]));
                            v |= (raw >> (col * bits % 8) & ((1 << bits) - 1)) << (8 * part);
                            continue;
                        }
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
    let k: u32 = match b.ms(0) {
        "m16n8k4" => 4,
        "m16n8k8" => 8,
        "m16n8k16" => 16,
        _ => 32,
    };
    multiply(b, k, [1, 2, 3, 4])
}

/// `mma.sync` m16n8 of bytes.
fn mma_int(b: &mut Build<'_>) -> R<Exec> {
    let k = if b.ms(0) == "m16n8k16" { 16 } else { 32 };
    multiply(b, k, [usize::MAX, 2, 3, usize::MAX])
}

/// An `mma.sync` whose types D, A, B, C are these choices of its row; `s32` where there is none.
fn multiply(b: &mut Build<'_>, k: u32, types: [usize; 4]) -> R<Exec> {
    b.count(4)?;
    b.collective(Collective::Aligned);
    let [dt, at, bt, ct] = types.map(|i| if i == usize::MAX { "s32" } else { b.ms(i) });
    let (Some(fa), Some(fb), Some(fd)) = (element(at), element(bt), element(dt)) else {
        return Err(b.error("P011", "types are not emulated"));
    };
    let elem = element_bytes(fa);
    let integer = |e: Elem| !matches!(e, Elem::Float(_));
    let saturate = b.inst.opcode.contains("satfinite");
    if elem != element_bytes(fb)
        || !matches!(k * elem, 16 | 32)
        || dt != ct
        || integer(fa) != integer(fd)
        || integer(fb) != integer(fd)
    {
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
    // 16 bytes along K are the first half of the registers.
    let half_k = if k * elem == 16 { 1 } else { 2 };
    let (ra, rb, rc) = (take(b, 1, 2 * half_k, false)?, take(b, 2, half_k, false)?, take(b, 3, nd, false)?);
    let rd = take(b, 0, nd, true)?;
    Ok(Box::new(move |cx, _| {
        let (mut ma, mut mb) = (vec![0f32; 16 * k as usize], vec![0f32; 8 * k as usize]);
        let (da, db) = (element_decoder(fa), element_decoder(fb));
        for lane in 0..32u32 {
            for p in 0..4 / elem {
                for (r, &c) in ra.iter().enumerate() {
                    let (row, kk) = mma_a(lane, r as u32, p, elem);
                    ma[(row * k + kk) as usize] = da(cx.w.u32(c, lane as usize) >> (8 * elem * p));
                }
                for (r, &c) in rb.iter().enumerate() {
                    let (kk, col) = mma_b(lane, r as u32, p, elem);
                    mb[(col * k + kk) as usize] = db(cx.w.u32(c, lane as usize) >> (8 * elem * p));
                }
            }
        }
        let dot = |row: u32, col: u32, old: u32| {
            let (x, y) = ((row * k) as usize, (col * k) as usize);
            let sum = mma::dot(&ma[x..x + k as usize], &mb[y..y + k as usize], 0.0);
            accumulated(fd, sum, Some(old), saturate)
        };
        for lane in 0..32u32 {
            for r in 0..nd as u32 {
                let old = cx.w.u32(rc[r as usize], lane as usize);
                let new = if half {
                    (0..2).fold(0u32, |v, p| {
                        let (row, col) = mma_d16(lane, r, p);
                        v | dot(row, col, old >> (16 * p) & 0xFFFF) << (16 * p)
                    })
                } else {
                    let (row, col) = mma_d32(lane, r);
                    dot(row, col, old)
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
    row(
        "ldmatrix.sync.aligned.{m8n16,m16n16}.{x1,x2,x4}.trans?.{shared,shared::cta}?.b8x16.{b6x16_p32,b4x16_p64}",
        ldmatrix,
    ),
    row("stmatrix.sync.aligned.{m8n8,m16n8}.{x1,x2,x4}.trans?.{shared,shared::cta}?.{b16,b8}", stmatrix),
    row(
        "mma.sync.aligned.{m16n8k4,m16n8k8,m16n8k16,m16n8k32}.row.col.{f32,f16}.{f16,bf16,tf32,e4m3,e5m2}.{f16,bf16,tf32,e4m3,e5m2}.{f32,f16}",
        mma_sync,
    ),
    row("mma.sync.aligned.{m16n8k16,m16n8k32}.row.col.satfinite?.s32.{s8,u8}.{s8,u8}.s32", mma_int),
];
