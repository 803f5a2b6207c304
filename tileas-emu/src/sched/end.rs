//! How CTAs end: what they leave behind, what is wrong, where nothing can go on.
//!
//! In: a [`Core`] one of whose CTAs has ended, or can do nothing more, or whose instruction is a [`Trap`]. Out: the [`Fault`] with its place,
//! the place of the other access, and the last events.

use super::core::Core;
use super::report::{Fault, Site};
use crate::async_ops::{Load, Pending, Source};
use crate::exec::{Trap, Wait};
use crate::trace::Lane;

impl Core<'_> {
    /// A fault at an instruction.
    pub fn fault(&self, c: usize, t: Trap, pc: u32, lane: Option<Lane>, mask: u32) -> Fault {
        let at = |pc: u32| {
            let inst = self.kernel.code.get(pc as usize);
            let (line, text) = inst.map_or((0, Box::from("")), |i| (i.line, Box::from(i.text.as_str())));
            (line, self.kernel.source(line).map(String::into_boxed_str), text)
        };
        let (line, source, text) = at(pc);
        let other = t.prior.map(|(pc, actor)| {
            let (line, source, text) = at(pc);
            Box::new(Site { line, source, text, actor })
        });
        let cta = &self.ctas[c];
        let events = cta.events.iter().map(|e| e.to_string()).collect();
        Fault {
            code: t.code,
            message: t.message,
            line,
            source,
            text,
            cta: cta.linear,
            lane,
            mask,
            other,
            events,
        }
    }

    /// Ends a CTA whose warps have all exited, if it has; checks what it leaves behind.
    pub fn retire(&mut self, c: usize) -> Result<bool, Fault> {
        let cta = &self.ctas[c];
        if cta.warps.iter().flatten().any(|w| w.live != 0) {
            return Ok(false);
        }
        let mut left = Vec::new();
        cta.pending(&mut left);
        for p in left {
            let site = self.ctas[c].site_of(p);
            let (code, what) = match p {
                Pending::Store(id) => {
                    let unread = self.ctas[c].stores.iter().any(|s| s.id == id && s.stage == 0);
                    if unread {
                        ("exit.store", "a bulk store still reads shared memory when the CTA ends")
                    } else {
                        while self.ctas[c].stores.iter().any(|s| s.id == id && s.stage < 2) {
                            self.complete(c, p)?;
                        }
                        continue;
                    }
                }
                Pending::Load(_) | Pending::Copy(_) => {
                    ("exit.load", "a load is still in flight when the CTA ends")
                }
                Pending::Pipe(_) => ("exit.tensor", "the tensor pipe still works when the CTA ends"),
                Pending::Wgmma(_) => ("exit.tensor", "a wgmma still works when the CTA ends"),
                Pending::Move(..) => ("exit.tensor", "a tcgen05.ld or .st still works when the CTA ends"),
            };
            return Err(self.fault(c, Trap::new(code, what), site.pc, Some(Lane::Warp(site.warp)), 0));
        }
        let cta = &self.ctas[c];
        if cta.det.on.races
            && let Some(s) = cta.stores.iter().find(|s| !s.read_waited)
        {
            let t = Trap::new(
                "exit.store",
                "nothing waits until this store has read shared memory before the CTA ends",
            );
            return Err(self.fault(c, t, s.site.pc, Some(Lane::Warp(s.site.warp)), 0));
        }
        if cta.det.on.races
            && let Some((a, site)) = cta.unseen()
        {
            let t = Trap::new(
                "exit.signal",
                format!(
                    "no wait sees what this operation signals to mbarrier {a:#x} before the CTA ends: \
                     it may come when the shared memory is another CTA's"
                ),
            );
            return Err(self.fault(c, t, site.pc, Some(Lane::Warp(site.warp)), 0));
        }
        if cta.det.on.races
            && let Some((n, b)) = cta.named.iter().enumerate().find(|(_, b)| b.arrived != 0)
        {
            let t = Trap::new(
                "exit.barrier",
                format!(
                    "{} of {} threads have arrived at barrier {n} when the CTA ends",
                    b.arrived, b.expected
                ),
            );
            return Err(self.fault(c, t, b.pc, None, 0));
        }
        if cta.clustered()
            && cta.det.on.races
            && let Some((t, pc)) = self.still_used(c)
        {
            return Err(self.fault(c, t, pc, None, 0));
        }
        let cta = &self.ctas[c];
        if let Some(a) = cta.tmem.allocations.first() {
            let t = Trap::new(
                "tmem.leak",
                format!("{} columns at {} (line {}) are not freed", a.columns, a.column, a.line),
            );
            return Err(self.fault(c, t, u32::MAX, Some(Lane::Warp(a.warp)), 0));
        }
        let cta = self.ctas.remove(c);
        if let Some(stats) = &mut self.stats {
            cta.warps.iter().flatten().for_each(|w| stats.warp(&w.counts));
        }
        self.report.ctas += 1;
        Ok(true)
    }

    /// What other CTAs of the cluster do with the shared memory of a CTA that ends, and it does not know to be over.
    fn still_used(&self, c: usize) -> Option<(Trap, u32)> {
        let cta = &self.ctas[c];
        let own = cta.det.cta;
        if let Some((cell, e, write)) = cta.det.smem.foreign(own, &cta.left) {
            let message = format!(
                "the CTA ends, and nothing orders the {} of its shared memory at {:#x} by CTA {} before that",
                if write { "write" } else { "read" },
                4 * cell,
                e.cta - 1
            );
            return Some((Trap { code: "exit.cluster", message, prior: None }, e.pc));
        }
        if let Some((a, e)) = cta.unseen_arrival(&cta.left) {
            let message = format!(
                "the CTA ends, and neither a wait nor a barrier comes after the arrival of CTA {} at its mbarrier {a:#x}",
                e.cta - 1
            );
            return Some((Trap { code: "exit.cluster", message, prior: None }, e.pc));
        }
        let reads = |l: &&Load| matches!(l.order.source, Source::Shared(from, ..) if from == own);
        self.ctas.iter().flat_map(|x| &x.loads).find(reads).map(|l| {
            (Trap::new("exit.load", "a copy still reads shared memory when the CTA ends"), l.site.pc)
        })
    }

    /// The fault of a CTA in which nothing can happen any more.
    pub fn deadlock(&self, c: usize) -> Fault {
        let mut text = String::from("no warp can go on:");
        let mut at = None;
        let mut lanes_only = true;
        // The reason may be in another CTA of the cluster.
        let members = &self.ctas[c].det.cluster;
        let cluster = self.ctas.iter().filter(|x| members.contains(&x.det.cta));
        for (cta, w) in cluster.flat_map(|x| x.warps.iter().flatten().map(move |w| (x, w))) {
            for f in &w.frags {
                let line = self.kernel.code.get(f.pc as usize).map_or(0, |i| i.line);
                let why = match f.wait {
                    Wait::Ready => "ready".into(),
                    Wait::Mbarrier(a, p, _) => match cta.mbarriers.get(&a) {
                        Some(b) => format!(
                            "waits for parity {} of mbarrier {a:#x} (line {}), {b}",
                            u32::from(p),
                            b.line
                        ),
                        None => format!("waits for mbarrier {a:#x}"),
                    },
                    Wait::Named(n, _) => {
                        let b = &cta.named[n as usize];
                        format!("waits at barrier {n}, {} of {} threads arrived", b.arrived, b.expected)
                    }
                    Wait::Lanes => format!("waits for the other lanes of live {:#x}", w.live),
                    Wait::Cluster(_) => {
                        format!("waits at the barrier of the cluster, {}", cta.cluster.borrow())
                    }
                    Wait::Change(_) => "polls".into(),
                    Wait::Registers(n) => format!("waits for {n} registers, {} are free", cta.free_registers),
                    Wait::TensorMemory(n) => format!("waits for {n} columns of tensor memory"),
                };
                lanes_only &= f.wait == Wait::Lanes;
                if at.is_none() || f.wait == Wait::Lanes {
                    at = Some((f.pc, w.id, f.mask));
                }
                if members.len() > 1 {
                    text.push_str(&format!("\n  CTA {}", cta.linear));
                }
                text.push_str(&format!("\n  warp {} lanes {:#x} line {line} {why}", w.id, f.mask));
            }
        }
        let (pc, w, mask) = at.unwrap_or((u32::MAX, 0, 0));
        let code = if lanes_only { "divergent" } else { "deadlock" };
        self.fault(c, Trap::new(code, text), pc, Some(Lane::Warp(w)), mask)
    }
}
