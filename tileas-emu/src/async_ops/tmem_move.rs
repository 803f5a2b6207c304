//! `tcgen05.ld` and `tcgen05.st`, and their waits.
//!
//! A load's registers and a store's cells change at any time between the instruction and the wait.
//! Source: PTX ISA, "tcgen05.ld", "tcgen05.st", "tcgen05.wait".

use super::Site;
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Col, Collective, Exec, R};
use crate::detect::{Agent, Ticket, Who};
use crate::exec::cx::{Warp, first, lanes};
use crate::exec::{Flow, Trap, X};
use crate::layout::tmem::Shape;
use crate::mem::cta::Cta;
use std::sync::Arc;

/// A tcgen05.ld or .st of a warp.
#[derive(Clone, Debug)]
pub struct Move {
    /// Its number.
    pub id: u64,
    /// Its identity for the detectors.
    pub ticket: Ticket,
    /// The form.
    form: Arc<Form>,
    /// First lane and column.
    base: (u32, u32),
    /// Values of a store, by register.
    values: Vec<[u32; 32]>,
    /// Lanes of a store's registers that hold no value.
    taint: Vec<u32>,
    /// Whether it has happened.
    pub done: bool,
    /// Where it was issued.
    pub site: Site,
}

#[derive(Debug)]
struct Form {
    load: bool,
    shape: Shape,
    imm: u32,
    packed: bool,
    regs: Vec<Col>,
    width: u32,
}

impl Form {
    /// Cells of a register, low half first when packed.
    fn cells(&self, thread: u32, reg: u32) -> ([(u32, u32); 2], usize) {
        if self.packed {
            (self.shape.packed(thread, reg, self.imm), 2)
        } else {
            ([self.shape.at(thread, reg, self.imm), (0, 0)], 1)
        }
    }
}

/// Makes the move number `i` of a warp happen.
pub fn finish(cta: &mut Cta, w: &mut Warp, i: usize) -> X<()> {
    let m = &mut w.moves[i];
    if m.done {
        return Ok(());
    }
    m.done = true;
    let m = m.clone();
    let f = &m.form;
    cta.footprint.tensor();
    cta.tmem.check(m.base.1, f.width, if f.load { "tcgen05.ld" } else { "tcgen05.st" })?;
    let epoch = cta.det.ticket_epoch(&m.ticket, m.site.pc);
    for (r, &col) in f.regs.iter().enumerate() {
        let mut taint = 0;
        for t in 0..32u32 {
            let (cells, n) = f.cells(t, r as u32);
            let mut v = 0;
            for (h, &(lane, column)) in cells[..n].iter().enumerate() {
                let (lane, column) = (m.base.0 + lane, m.base.1 + column);
                if let Some(k) = &m.ticket.know {
                    cta.det.tensor(lane, column, !f.load, &Who { epoch, know: k, since: 0 })?;
                }
                if f.load {
                    taint |= u32::from(!cta.tmem.defined(lane, column)) << t;
                    let x = cta.tmem.get(lane, column);
                    v |= if f.packed { (x & 0xFFFF) << (16 * h) } else { x };
                } else {
                    let x = m.values[r][t as usize];
                    cta.tmem.set(lane, column, if f.packed { x >> (16 * h) & 0xFFFF } else { x });
                    if m.taint[r] >> t & 1 != 0 {
                        cta.tmem.undefine(lane, column);
                    }
                }
            }
            if f.load {
                w.set32(col, t as usize, v);
            }
        }
        if f.load {
            w.taint[usize::from(col)] = taint;
            w.any_taint |= taint != 0;
        }
    }
    Ok(())
}

fn build(b: &mut Build<'_>, load: bool) -> R<Exec> {
    b.visible();
    b.collective(Collective::Aligned);
    let shape = Shape::by_name(b.ms(0)).ok_or_else(|| b.error("P011", "unknown shape"))?;
    let repeat: u32 = b.ms(1)[1..].parse().unwrap_or(0);
    if !shape.repeat_ok(repeat) {
        return Err(b.error("P011", format!(".x{repeat} does not exist for this shape")));
    }
    let packed = b.m(2).is_some();
    let two = b.ms(0) == "16x32bx2";
    b.count(if two { 3 } else { 2 })?;
    let imm = match (two, load) {
        (false, _) => 0,
        (true, true) => b.imm(2)?,
        (true, false) => b.imm(1)?,
    };
    let imm = u32::try_from(imm)
        .ok()
        .filter(|&x| x <= 512)
        .ok_or_else(|| b.error("P017", "column distance out of range"))?;
    let (a, v) = if load { (1, 0) } else { (0, b.len() - 1) };
    let a = b.mem(a)?;
    let items = b.items(v)?;
    if items.len() != shape.regs(repeat) as usize {
        return Err(
            b.error("P012", format!("{} registers expected, found {}", shape.regs(repeat), items.len()))
        );
    }
    let mut regs = Vec::new();
    for o in items {
        regs.push(if load { b.dest(o, 4)? } else { b.source(o, 4)? });
    }
    let width = shape.width(repeat, imm, packed);
    let form = Arc::new(Form { load, shape, imm, packed, regs, width });
    Ok(Box::new(move |cx, m| {
        let l = first(m);
        let address = cx.w.address(a, l) as u32;
        if lanes(m).any(|k| cx.w.address(a, k) as u32 != address) {
            return Err(Trap::new("tmem.address", "the address differs between lanes"));
        }
        cx.room(0)?;
        let base = shape.base(address, cx.w.id % 4)?;
        cx.cta.tmem.check(base.1, form.width, if load { "tcgen05.ld" } else { "tcgen05.st" })?;
        let own = cx.own(m);
        let (w, know) = (cx.w.id, &cx.w.frags[cx.f].know);
        let det = &mut cx.cta.det;
        let ticket = if det.on.races {
            let agent = det.agent(if load { Agent::TmemLoad(w) } else { Agent::TmemStore(w) });
            det.issue(w, know, agent, own)
        } else {
            Ticket::default()
        };
        let (mut values, mut taint) = (Vec::new(), Vec::new());
        if load {
            for &c in &form.regs {
                cx.w.regs[usize::from(c)] = [0xFFFF_FFFF; 32];
            }
            cx.w.occupy(&form.regs, 1);
        } else {
            values.extend(form.regs.iter().map(|&c| cx.w.regs[usize::from(c)]));
            taint.extend(form.regs.iter().map(|&c| cx.w.taint[usize::from(c)]));
        }
        let (id, site) = (cx.cta.op_id(), cx.site());
        cx.w.moves.push(Move { id, ticket, form: form.clone(), base, values, taint, done: false, site });
        cx.log(if load { "tcgen05.ld" } else { "tcgen05.st" }, base.1.into());
        Ok(Flow::Next)
    }))
}

fn ld(b: &mut Build<'_>) -> R<Exec> {
    build(b, true)
}

fn st(b: &mut Build<'_>) -> R<Exec> {
    build(b, false)
}

/// Completes and forgets all moves of one direction.
fn wait(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    b.visible();
    b.collective(Collective::Aligned);
    let load = b.inst.opcode.contains("wait::ld");
    Ok(Box::new(move |cx, _| {
        for i in 0..cx.w.moves.len() {
            if cx.w.moves[i].form.load == load {
                finish(cx.cta, cx.w, i)?;
                let t = &cx.w.moves[i].ticket;
                let (agent, clock, on) = (t.agent, t.clock, t.know.is_some());
                if on {
                    let know = &mut cx.w.frags[cx.f].know;
                    know.t.raise(agent, clock);
                    know.g.raise(agent, clock);
                }
            }
        }
        let cols: Vec<Col> =
            cx.w.moves
                .iter()
                .filter(|m| load && m.form.load)
                .flat_map(|m| m.form.regs.iter().copied())
                .collect();
        cx.w.moves.retain(|m| m.form.load != load);
        cx.w.release_columns(cols.into_iter(), 1);
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row(
        "tcgen05.ld.sync.aligned.{32x32b,16x64b,16x128b,16x256b,16x32bx2}.{x1,x2,x4,x8,x16,x32,x64,x128}.pack::16b?.b32",
        ld,
    ),
    row(
        "tcgen05.st.sync.aligned.{32x32b,16x64b,16x128b,16x256b,16x32bx2}.{x1,x2,x4,x8,x16,x32,x64,x128}.unpack::16b?.b32",
        st,
    ),
    row("tcgen05.wait::ld.sync.aligned", wait),
    row("tcgen05.wait::st.sync.aligned", wait),
];
