//! wgmma of sm_90a.
//!
//! Each warp of a warpgroup does its 16 rows on its own: operations of a warp complete in order of
//! issue, between issue and the wait that covers their group. Until that wait their registers may
//! not be touched; registers that ordinary instructions accessed since the last `wgmma.fence` may not be
//! used by an operation. All warps of the group must issue the same operations on the same descriptors.
//! Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".

use super::Site;
use super::operands::{
    OperandMap, accumulated, element, element_bytes, element_decoder, row_times, transpose,
};
use crate::decode::build::{Build, PredSrc};
use crate::decode::table::{Row, row};
use crate::decode::{Col, Collective, Exec, R};
use crate::detect::{Agent, Ticket, Who};
use crate::exec::cx::{Warp, first};
use crate::exec::{Flow, Trap, X};
use crate::layout::frag::{wgmma_a, wgmma_d16, wgmma_d32, wgmma_n_ok};
use crate::layout::idesc::Elem;
use crate::layout::operand::{Family, Major, Operand, SmemDesc};
use crate::mem::cta::Cta;
use crate::parse::ast;
use crate::trace::Lane;
use std::collections::VecDeque;
use std::sync::Arc;

/// wgmma state of a warp.
#[derive(Clone, Default, Debug)]
pub struct Pipe {
    /// Operations not completed.
    pub ops: VecDeque<Op>,
    /// Operations issued.
    issued: u64,
    /// For each committed group: operations issued before its end, the agent's clock then.
    groups: Vec<(u64, u32)>,
    /// Columns in use by operations not waited for: operation number, column, how.
    held: Vec<(u64, Col, u8)>,
    /// Whether there was a fence.
    fenced: bool,
    /// Columns that ordinary instructions wrote (1) or read (2) since the last fence.
    pub touched: Vec<u8>,
}

/// An operation.
#[derive(Clone, Debug)]
pub struct Op {
    /// Its identity for the detectors.
    ticket: Ticket,
    form: Arc<Form>,
    a: Option<Arc<OperandMap>>,
    b: Arc<OperandMap>,
    accumulate: bool,
    /// Where it was issued.
    pub site: Site,
}

#[derive(Debug)]
struct Form {
    n: u32,
    fa: Elem,
    fb: Elem,
    fd: Elem,
    d: Vec<Col>,
    /// A in registers.
    a: Vec<Col>,
    scale: f64,
    saturate: bool,
}

/// Completes the oldest operation of a warp.
pub fn finish_oldest(cta: &mut Cta, w: &mut Warp) -> X<()> {
    let Some(op) = w.wgmma.ops.pop_front() else { return Ok(()) };
    let f = &op.form;
    let epoch = cta.det.ticket_epoch(&op.ticket, op.site.pc);
    let who = op.ticket.know.as_ref().map(|k| Who { epoch, know: k, since: 0 });
    let elem = element_bytes(f.fa);
    let k = (32 / elem) as usize;
    let group_warp = w.id % 4;
    cta.touch_operand(&op.b, who.as_ref(), "operand B")?;
    let a: Vec<f32> = match &op.a {
        Some(m) => {
            cta.touch_operand(m, who.as_ref(), "operand A")?;
            let all = cta.operand_elements(m, f.fa);
            all[16 * group_warp as usize * k..][..16 * k].to_vec()
        }
        None => {
            let f0 = element_decoder(f.fa);
            let mut v = vec![0.0; 16 * k];
            for lane in 0..32u32 {
                for (r, &c) in f.a.iter().enumerate() {
                    for part in 0..4 / elem {
                        let (row, kk) = wgmma_a(lane, r as u32, part, elem);
                        let bits = w.u32(c, lane as usize) >> (8 * elem * part);
                        v[row as usize * k + kk as usize] = f0(bits);
                    }
                }
            }
            v
        }
    };
    let n = f.n as usize;
    let bt = transpose(&cta.operand_elements(&op.b, f.fb), n, k);
    let mut sums = vec![0.0; 16 * n];
    for row in 0..16 {
        row_times(&a[row * k..(row + 1) * k], &bt, n, &mut sums[row * n..(row + 1) * n]);
    }
    let half = element_bytes(f.fd) == 2;
    for lane in 0..32u32 {
        for (r, &c) in f.d.iter().enumerate() {
            let old = w.u32(c, lane as usize);
            let value = |row: u32, col: u32, old: u32| {
                let sum = f.scale * sums[row as usize * n + col as usize];
                accumulated(f.fd, sum, op.accumulate.then_some(old), f.saturate)
            };
            let v = if half {
                let mut v = 0;
                for p in 0..2 {
                    let (row, col) = wgmma_d16(lane, r as u32, p);
                    v |= value(row, col, old >> (16 * p) & 0xFFFF) << (16 * p);
                }
                v
            } else {
                let (row, col) = wgmma_d32(lane, r as u32);
                value(row, col, old)
            };
            w.set32(c, lane as usize, v);
        }
    }
    cta.log(Lane::Tensor, op.site.line, "wgmma complete", w.id.into());
    Ok(())
}

fn multiply(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    b.collective(Collective::Aligned);
    let shape = b.ms(0);
    let (dt, at, bt) = (b.ms(1), b.ms(2), b.ms(3));
    let (Some(fd), Some(fa), Some(fb)) = (element(dt), element(at), element(bt)) else {
        return Err(b.error("P011", "types are not emulated"));
    };
    let parse = || {
        let (n, k) = shape.strip_prefix("m64n")?.split_once('k')?;
        Some((n.parse::<u32>().ok()?, k.parse::<u32>().ok()?))
    };
    let Some((n, k)) = parse() else { return Err(b.error("P011", "unknown shape")) };
    let elem = element_bytes(fa);
    let integer = fd == Elem::S32;
    let is_int = |e: Elem| matches!(e, Elem::U8 | Elem::S8);
    if !wgmma_n_ok(n, integer) || k != 32 / elem || elem != element_bytes(fb) || elem != 1 && at != bt {
        return Err(b.error("P011", "shape and types do not fit"));
    }
    if is_int(fa) != integer || is_int(fb) != integer || dt == "f16" && (at == "bf16" || at == "tf32") {
        return Err(b.error("P011", "accumulator type does not fit"));
    }
    let items = b.items(0)?;
    let nd = if element_bytes(fd) == 2 { n / 4 } else { n / 2 };
    if items.len() != nd as usize {
        return Err(b.error("P012", format!("{nd} accumulator registers expected, found {}", items.len())));
    }
    let d = items.iter().map(|o| b.dest(o, 4)).collect::<R<Vec<_>>>()?;
    let in_regs = matches!(b.operand(1)?, ast::Operand::Vector(_));
    let (mut a, mut ad) = (Vec::new(), 0);
    if in_regs {
        let items = b.items(1)?;
        if items.len() != 4 {
            return Err(b.error("P012", "A takes 4 registers"));
        }
        a = items.iter().map(|o| b.source(o, 4)).collect::<R<Vec<_>>>()?;
    } else {
        ad = b.src(1, 8)?;
    }
    let bd = b.src(2, 8)?;
    let transposes = if elem != 2 {
        0
    } else if in_regs {
        1
    } else {
        2
    };
    b.count(if integer { 4 } else { 6 + transposes })?;
    let o = b.operand(3)?;
    let enable: PredSrc = b.pred(o)?;
    let sign = |b: &Build<'_>, k: usize| match b.imm(k)? as i64 {
        1 => Ok(1.0),
        -1 => Ok(-1.0),
        _ => Err(b.error("P017", "scale is 1 or -1")),
    };
    let scale = if integer { 1.0 } else { sign(b, 4)? * sign(b, 5)? };
    let flag = |b: &Build<'_>, k: usize| match b.imm(k)? {
        0 => Ok(Major::K),
        1 => Ok(Major::Mn),
        _ => Err(b.error("P017", "transpose is 0 or 1")),
    };
    let (ma, mb) = match transposes {
        0 => (Major::K, Major::K),
        1 => (Major::K, flag(b, 6)?),
        _ => (flag(b, 6)?, flag(b, 7)?),
    };
    // The operation checks its registers itself: the accumulators of the operation before are busy.
    b.forget(&d);
    b.forget(&a);
    let saturate = b.inst.opcode.contains("satfinite");
    let form = Arc::new(Form { n, fa, fb, fd, d, a, scale, saturate });
    Ok(Box::new(move |cx, m| {
        let l = first(m);
        let accumulate = cx.w.pred(enable) >> l & 1 != 0;
        let undefined = cx.cta.det.on.undefined;
        for (&c, read) in
            form.d.iter().zip(std::iter::repeat(accumulate)).chain(form.a.iter().zip(std::iter::repeat(true)))
        {
            let i = usize::from(c);
            if read && undefined && cx.w.defined[i] != u32::MAX {
                return Err(Trap::new(
                    "undefined",
                    format!("wgmma reads register {}, which holds no value", cx.kernel.regs.name(c)),
                ));
            }
        }
        cx.room(0)?;
        if !cx.w.wgmma.fenced {
            return Err(Trap::new("wgmma.fence", "no wgmma.fence before the first operation"));
        }
        // Accumulators may not have been touched at all, operand A may have been read.
        for (&c, how) in form.d.iter().map(|c| (c, 3)).chain(form.a.iter().map(|c| (c, 1))) {
            if cx.w.wgmma.touched.get(usize::from(c)).copied().unwrap_or(0) & how != 0 {
                return Err(Trap::new(
                    "wgmma.fence",
                    format!("register {} was accessed since the last wgmma.fence", cx.kernel.regs.name(c)),
                ));
            }
        }
        for &c in &form.d {
            cx.w.defined[usize::from(c)] = u32::MAX;
        }
        let operand = |cx: &mut crate::exec::cx::Cx<'_>, bits: u64, major: Major, mn: u32| {
            let desc = SmemDesc::decode(bits, Family::Wgmma)?;
            cx.cta.operand_map(Operand::new(desc, major, elem, mn))
        };
        let (abits, bbits) = (if form.a.is_empty() { cx.w.u64(ad, l) } else { 0 }, cx.w.u64(bd, l));
        let av = if form.a.is_empty() { Some(operand(cx, abits, ma, 64)?) } else { None };
        let bv = operand(cx, bbits, mb, form.n)?;
        let group = cx.w.id / 4;
        let number = cx.w.wgmma.issued;
        let (what, warps) = cx.cta.wgmma_seen.entry((group, number)).or_insert(((cx.pc, abits, bbits), 0));
        *warps += 1;
        let (seen, all) = (*what, *warps == 4);
        if all {
            cx.cta.wgmma_seen.remove(&(group, number));
        }
        if seen != (cx.pc, abits, bbits) {
            return Err(Trap::new(
                "wgmma.group",
                "warps of the warpgroup issue different operations or descriptors",
            ));
        }
        let own = cx.own(m);
        let (w, know) = (cx.w.id, &cx.w.frags[cx.f].know);
        let det = &mut cx.cta.det;
        let ticket = if det.on.races {
            let agent = det.agent(Agent::Wgmma(w));
            det.issue(w, know, agent, own)
        } else {
            Ticket::default()
        };
        let site = cx.site();
        let p = &mut cx.w.wgmma;
        p.issued += 1;
        p.held.extend(form.d.iter().map(|&c| (number, c, 1)).chain(form.a.iter().map(|&c| (number, c, 2))));
        p.ops.push_back(Op { ticket, form: form.clone(), a: av, b: bv, accumulate, site });
        cx.w.occupy(&form.d, 1);
        cx.w.occupy(&form.a, 2);
        cx.log("wgmma issued", number);
        Ok(Flow::Next)
    }))
}

fn fence(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    b.collective(Collective::Aligned);
    Ok(Box::new(|cx, _| {
        cx.w.wgmma.touched.clear();
        cx.w.wgmma.fenced = true;
        Ok(Flow::Next)
    }))
}

fn commit(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    b.collective(Collective::Aligned);
    Ok(Box::new(|cx, _| {
        let agent =
            usize::from(if cx.cta.det.on.races { cx.cta.det.agent(Agent::Wgmma(cx.w.id)) } else { 0 });
        let clock = cx.cta.det.clocks.get(agent).copied().unwrap_or(0);
        let p = &mut cx.w.wgmma;
        let upto = p.issued;
        p.groups.push((upto, clock));
        Ok(Flow::Next)
    }))
}

fn wait(b: &mut Build<'_>) -> R<Exec> {
    b.count(1)?;
    b.visible();
    b.collective(Collective::Aligned);
    let n = usize::try_from(b.imm(0)?).unwrap_or(usize::MAX);
    Ok(Box::new(move |cx, _| {
        let Some(last) = cx.w.wgmma.groups.len().checked_sub(n.saturating_add(1)) else {
            return Ok(Flow::Next);
        };
        let (upto, clock) = cx.w.wgmma.groups[last];
        while cx.w.wgmma.issued - (cx.w.wgmma.ops.len() as u64) < upto {
            finish_oldest(cx.cta, cx.w)?;
        }
        if cx.cta.det.on.races {
            let agent = cx.cta.det.agent(Agent::Wgmma(cx.w.id));
            cx.know().g.raise(agent, clock);
        }
        cx.w.wgmma.groups.drain(..=last);
        let held = std::mem::take(&mut cx.w.wgmma.held);
        for &(_, c, how) in held.iter().filter(|h| h.0 < upto) {
            cx.w.busy[usize::from(c)] &= !how;
        }
        let kept: Vec<_> = held.into_iter().filter(|h| h.0 >= upto).collect();
        for &(_, c, how) in &kept {
            cx.w.busy[usize::from(c)] |= how;
        }
        cx.w.wgmma.held = kept;
        cx.w.any_busy = cx.w.busy.iter().any(|&x| x != 0);
        cx.log("wgmma wait", n as u64);
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("wgmma.fence.sync.aligned", fence),
    row("wgmma.commit_group.sync.aligned", commit),
    row("wgmma.wait_group.sync.aligned", wait),
    row(
        "wgmma.mma_async.sync.aligned.{*}.{f16,f32}.{f16,bf16,tf32,e4m3,e5m2}.{f16,bf16,tf32,e4m3,e5m2}",
        multiply,
    ),
    row("wgmma.mma_async.sync.aligned.{*}.{s32}.{s8,u8}.{s8,u8}.satfinite?", multiply),
];
