//! `cp.async`: copies of a thread from global to shared memory, and their groups.
//!
//! A copy's bytes hold no value until it completes, which may be at any moment up to the wait that covers it. It
//! writes in the generic proxy; for others it counts as a store of its thread at that wait.
//! Source: PTX ISA, "cp.async", "cp.async.commit_group", "cp.async.wait_group / cp.async.wait_all".

use super::{Pending, Site};
use crate::decode::build::{Build, PredSrc};
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::detect::{Agent, GlobalShadow, Ticket, Who};
use crate::exec::cx::{Cx, Loc, lanes};
use crate::exec::{Flow, Trap, X};
use crate::mem::cta::Cta;
use crate::mem::global::Memory;
use crate::trace::Lane;

/// What one instruction copies for the lanes of a warp.
pub struct Copy {
    /// Its number.
    pub id: u64,
    /// Its identity for the detectors.
    ticket: Ticket,
    /// The lanes' copies that no wait has covered.
    parts: Vec<Part>,
    /// Bytes that each writes.
    bytes: u32,
    /// Whether it has completed.
    pub done: bool,
    /// Where it was issued.
    pub site: Site,
}

/// A lane's copy.
#[derive(Copy, Clone)]
struct Part {
    lane: u8,
    smem: u32,
    global: u64,
    /// Bytes read; zeros follow.
    read: u32,
    /// Number of its group, once committed.
    group: Option<u32>,
}

impl Cta {
    /// Completes the copies of an instruction.
    pub fn finish_copy(&mut self, id: u64, mem: &mut Memory, shadow: &mut GlobalShadow) -> X<()> {
        let Some(i) = self.copies.iter().position(|c| c.id == id && !c.done) else { return Ok(()) };
        let c = &mut self.copies[i];
        c.done = true;
        let (site, bytes, parts, ticket) = (c.site, c.bytes, c.parts.clone(), c.ticket.clone());
        let epoch = self.det.ticket_epoch(&ticket, site.pc);
        for p in parts {
            let mut data = [0u8; 16];
            if p.read != 0 {
                data[..p.read as usize].copy_from_slice(mem.slice(p.global, p.read)?);
            }
            if let Some(k) = &ticket.know {
                let lane = if self.det.on.lanes { p.lane + 1 } else { 0 };
                let epoch = crate::detect::shadow::Epoch { is_async: false, lane, ..epoch };
                let who = Who { epoch, know: k, since: u32::MAX };
                if p.read != 0 {
                    shadow.access(&self.det, p.global, p.read, false, &who)?;
                }
                self.det.shared(p.smem, bytes, true, &who)?;
            }
            if self.explore {
                self.footprint.bytes(p.smem, bytes, true);
            }
            self.smem.write(p.smem, &data[..bytes as usize]);
        }
        self.log(Lane::Load, site.line, "cp.async complete", id);
        Ok(())
    }
}

impl Cx<'_> {
    /// Waits for the copies of lanes whose group is below the lane's limit; `None` for those not committed too.
    fn wait_copies(&mut self, m: u32, open: Option<u32>) -> X<()> {
        let warp = self.w.id;
        let limit: [u32; 32] =
            self.w.copy_groups.map(|n| open.map_or(u32::MAX, |open| n.saturating_sub(open)));
        let covered = |p: &Part| {
            m >> p.lane & 1 != 0
                && (open.is_none() || p.group.is_some_and(|g| g < limit[usize::from(p.lane)]))
        };
        let mine = |c: &Copy| c.site.warp == warp && c.parts.iter().any(covered);
        let todo: Vec<u64> = self.cta.copies.iter().filter(|c| mine(c)).map(|c| c.id).collect();
        for id in todo {
            self.cta.complete(Pending::Copy(id), self.mem, self.gshadow, &mut self.peers)?;
            let Some(i) = self.cta.copies.iter().position(|c| c.id == id) else { continue };
            let c = &mut self.cta.copies[i];
            let (over, left): (Vec<Part>, Vec<Part>) = c.parts.iter().partition(|p| covered(p));
            c.parts = left;
            let (pc, bytes, agent, clock) = (c.site.pc, c.bytes, c.ticket.agent, c.ticket.clock);
            if self.cta.copies[i].parts.is_empty() {
                self.cta.copies.remove(i);
            }
            if !self.cta.det.on.races {
                continue;
            }
            for p in over {
                let epoch = crate::detect::shadow::Epoch { pc, ..self.lane_epoch(p.lane.into()) };
                let know = &mut self.w.frags[self.f].know;
                know.g.raise_lane(32 * u32::from(agent) + u32::from(p.lane), clock);
                if epoch.lane == 0 {
                    know.g.raise(agent, clock);
                }
                let who = Who { epoch, know: &self.w.frags[self.f].know, since: self.w.since };
                self.cta.det.shared(p.smem, bytes, true, &who)?;
            }
        }
        Ok(())
    }
}

fn copy(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    let hint = b.inst.opcode.contains("cache_hint");
    let operands = b.len() - usize::from(hint && b.len() > 3);
    if !(3..=4).contains(&operands) {
        return Err(b.error("P012", "wrong number of operands"));
    }
    let (dst, src) = (b.mem(0)?, b.mem(1)?);
    let bytes = u32::try_from(b.imm(2)?).unwrap_or(0);
    if !matches!((b.ms(0), bytes), ("ca", 4 | 8 | 16) | ("cg", 16)) {
        return Err(b.error("P017", "the size is 4, 8 or 16, for .cg 16"));
    }
    let (mut size, mut ignore) = (None, PredSrc::Const(false));
    if operands == 4 && b.is_pred(3) {
        let o = b.operand(3)?;
        ignore = b.pred(o)?;
    } else if operands == 4 {
        size = Some(b.src(3, 4)?);
    }
    if hint {
        b.src(operands, 8)?;
    }
    Ok(Box::new(move |cx, m| {
        cx.room(m.count_ones() as usize)?;
        let ignored = cx.w.pred(ignore);
        let mut parts = Vec::new();
        for l in lanes(m) {
            let (smem, global) = (cx.shared_address(dst, l)?, cx.w.address(src, l));
            let read = match size {
                _ if ignored >> l & 1 != 0 => 0,
                Some(c) => cx.w.u32(c, l),
                None => bytes,
            };
            if read > bytes {
                return Err(Trap::new("bounds", format!("cp.async of {read} bytes into {bytes}")));
            }
            cx.cta.smem.check(smem, bytes, bytes, "cp.async")?;
            if cx.cta.smem.in_mbarrier(smem, bytes) {
                return Err(Trap::new("barrier.bytes", format!("cp.async into an mbarrier at {smem:#x}")));
            }
            if read != 0 {
                if !global.is_multiple_of(bytes.into()) {
                    let m = format!("cp.async of {bytes} bytes from {global:#x} is misaligned");
                    return Err(Trap::new("align", m));
                }
                cx.mem.slice(global, read)?;
                cx.note(l, Loc::Global(global), read);
            }
            cx.cta.smem.define(smem, bytes, false);
            parts.push(Part { lane: l as u8, smem, global, read, group: None });
        }
        let (w, own) = (cx.w.id, cx.own(m));
        let det = &mut cx.cta.det;
        let ticket = if det.on.races {
            let agent = det.agent(Agent::Copy(w));
            det.issue(w, &cx.w.frags[cx.f].know, agent, own)
        } else {
            Ticket::default()
        };
        let (id, site) = (cx.cta.op_id(), cx.site());
        cx.cta.copies.push(Copy { id, ticket, parts, bytes, done: false, site });
        cx.log("cp.async", id);
        Ok(Flow::Next)
    }))
}

fn commit(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    Ok(Box::new(|cx, m| {
        let (w, groups) = (cx.w.id, cx.w.copy_groups);
        let open = cx.cta.copies.iter_mut().filter(|c| c.site.warp == w).flat_map(|c| &mut c.parts);
        for p in open.filter(|p| m >> p.lane & 1 != 0 && p.group.is_none()) {
            p.group = Some(groups[usize::from(p.lane)]);
        }
        for l in lanes(m) {
            cx.w.copy_groups[l] += 1;
        }
        Ok(Flow::Next)
    }))
}

fn wait(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    let open = if b.inst.opcode.contains("wait_all") {
        b.count(0)?;
        None
    } else {
        b.count(1)?;
        Some(u32::try_from(b.imm(0)?).unwrap_or(u32::MAX))
    };
    Ok(Box::new(move |cx, m| {
        cx.wait_copies(m, open)?;
        cx.log("cp.async wait", open.map_or(u64::MAX, u64::from));
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("cp.async.{ca,cg}.{shared,shared::cta}.global.L2::cache_hint?.{L2::64B,L2::128B,L2::256B}?", copy),
    row("cp.async.commit_group", commit),
    row("cp.async.wait_group", wait),
    row("cp.async.wait_all", wait),
];
