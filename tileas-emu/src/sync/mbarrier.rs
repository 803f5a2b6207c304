//! mbarrier objects and their instructions.
//!
//! A phase completes when no arrival and no transaction byte is pending. A release of every arrival
//! and completion is collected and handed to the waiters of that phase; those of threads of other CTAs
//! of the cluster only where the arrival and the wait are for the cluster (else just that accesses are over), and those of their `st.async` and `red.async`
//! where the wait is. Copies and commits signal where their data goes: a wait for the CTA is enough for these themselves,
//! wherever they were issued, not for what their threads did before.
//! Detected: more arrivals than the count, transaction bytes beyond the expected ones, use before
//! init, ordinary access of the bytes, and waiters that could miss a phase: when a phase completes,
//! every wait for the phase before must be ordered before that completion, else a slower waiter
//! would see the parity of the phase after; arrivals from other CTAs that may come after the CTA has ended.
//! Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".

use crate::async_ops::Site;
use crate::decode::build::{Addr, Build};
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::detect::Ticket;
use crate::detect::clock::{Clock, Released, Scope};
use crate::detect::shadow::Epoch;
use crate::exec::cx::{Cx, lanes, rank_of};
use crate::exec::{Flow, Trap, Wait, X};
use crate::mem::cta::Cta;
use crate::parse::ast::Operand;

/// A wait that saw its phase complete.
#[derive(Copy, Clone, Debug)]
struct Passed {
    warp: u16,
    /// Lanes that waited, and the warp's clock then.
    at: (u32, u32),
    /// The lanes of the whole warp, once they have executed a collective instruction together later, and the warp's
    /// clock then. Such an instruction orders no memory, but no lane goes on before all have come.
    joined: Option<(u32, u32)>,
    line: u32,
}

impl Passed {
    /// Whether it comes before what a phase's arrivals released.
    fn before(&self, done: &Released) -> bool {
        let by = |(mask, clock): (u32, u32)| {
            let has = |c: &Clock, l: usize| c.has(self.warp, l as u8 + 1, clock);
            lanes(mask).any(|l| has(&done.own.g, l) || has(&done.own.r, l))
        };
        by(self.at) || self.joined.is_some_and(by)
    }
}

/// An mbarrier.
#[derive(Clone, Debug, Default)]
pub struct Mbarrier {
    /// Arrivals per phase.
    pub count: u32,
    /// Arrivals still missing.
    pub pending: i64,
    /// Transaction bytes still missing; negative when they came early.
    pub tx: i64,
    /// Completed phases.
    pub phase: u64,
    /// Line of the init.
    pub line: u32,
    /// What the arrivals of the present phase release.
    pub collected: Released,
    /// What the last completed phase released.
    pub done: Released,
    /// What threads of other CTAs release in the present phase: to the cluster, or what is over.
    wide: Released,
    /// The same of the last completed phase.
    wide_done: Released,
    /// The last arrival of each thread of other CTAs, and its phase.
    remote: Vec<(Epoch, u64)>,
    /// Waits of the last completed phase.
    waits: Vec<Passed>,
    /// Who initialised it: warp, lane plus one, clock.
    by: (u16, u8, u32),
    /// Fences that made the initialisation known to the asynchronous proxy: warp, lanes, clock.
    published: Vec<(u16, u32, u32)>,
    /// The phase that an asynchronous operation last contributed to, and where that was issued.
    signalled: Option<(u64, Site)>,
    /// Phases that some wait has seen complete.
    seen: u64,
}

/// Present state for messages.
impl std::fmt::Display for Mbarrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "phase {} with {} of {} arrivals and {} transaction bytes missing",
            self.phase, self.pending, self.count, self.tx
        )
    }
}

impl Cta {
    /// The mbarrier at an address.
    pub fn mbarrier(&mut self, address: u32) -> X<&mut Mbarrier> {
        self.smem.check(address, 8, 8, "mbarrier")?;
        self.footprint.mbarrier(address);
        self.mbarriers.get_mut(&address).ok_or_else(|| {
            Trap::new("barrier.init", format!("mbarrier at {address:#x} is used before mbarrier.init"))
        })
    }

    fn settle(&mut self, address: u32) -> X<()> {
        let races = self.det.on.races;
        let b = self.mbarrier(address)?;
        if b.pending < 0 {
            return Err(Trap::new(
                "barrier.arrive",
                format!(
                    "mbarrier {address:#x} (line {}) got more arrivals than its count {}",
                    b.line, b.count
                ),
            ));
        }
        if b.tx.abs() >= 1 << 20 {
            return Err(Trap::new(
                "barrier.tx",
                format!("mbarrier {address:#x}: transaction count {} is out of range", b.tx),
            ));
        }
        if b.pending == 0 && b.tx < 0 {
            return Err(Trap::new(
                "barrier.tx",
                format!(
                    "mbarrier {address:#x} (line {}): {} bytes more than expected in phase {}",
                    b.line, -b.tx, b.phase
                ),
            ));
        }
        if b.pending == 0 && b.tx == 0 {
            b.phase += 1;
            b.pending = i64::from(b.count);
            b.done = std::mem::take(&mut b.collected);
            b.wide_done = std::mem::take(&mut b.wide);
            let before = |w: &Passed| w.before(&b.done) || w.before(&b.wide_done);
            let late = if races { b.waits.iter().find(|w| !before(w)).copied() } else { None };
            b.waits.clear();
            let phase = b.phase;
            if let Some(Passed { warp, line, .. }) = late {
                return Err(Trap::new(
                    "barrier.parity",
                    format!(
                        "mbarrier {address:#x} completes phase {} although the wait of warp {warp} (line {line}) for phase {} is not \
                         ordered before: a slower warp would miss a phase",
                        phase - 1,
                        phase as i64 - 2
                    ),
                ));
            }
            self.changed();
        }
        Ok(())
    }

    /// Collects what CTA `from` (number plus one) releases here. A wait for the CTA has all of it only where that is this
    /// CTA; of an `engine` of another one it has the operation itself and what was known of this CTA.
    pub fn receive(&mut self, address: u32, release: &Released, from: u32, engine: bool) -> X<()> {
        let own = self.det.cta;
        let b = self.mbarrier(address)?;
        if from == own {
            b.collected.join(release);
        } else {
            b.wide.join(release);
            if engine {
                b.collected.own.join(&release.own);
            }
        }
        Ok(())
    }

    /// Counts arrivals.
    pub fn arrive(&mut self, address: u32, count: u32) -> X<()> {
        if count == 0 || count >= 1 << 20 {
            return Err(Trap::new("barrier.arrive", format!("{count} arrivals")));
        }
        self.mbarrier(address)?.pending -= i64::from(count);
        self.settle(address)
    }

    /// All lanes of a warp that live execute a collective instruction.
    pub fn come_together(&mut self, warp: u32, mask: u32) {
        let clock = self.det.clocks[warp as usize];
        for x in self.mbarriers.values_mut().flat_map(|b| &mut b.waits) {
            if u32::from(x.warp) == warp {
                x.joined.get_or_insert((mask, clock));
            }
        }
    }

    /// An asynchronous operation is about to signal an mbarrier: some wait must see that.
    pub fn signals(&mut self, address: u32, site: Site) -> X<()> {
        let b = self.mbarrier(address)?;
        b.signalled = Some((b.phase, site));
        Ok(())
    }

    /// An mbarrier that an asynchronous operation has signalled and no wait has seen that.
    pub fn unseen(&self) -> Option<(u32, Site)> {
        let late = |(&a, b): (&u32, &Mbarrier)| b.signalled.filter(|s| s.0 >= b.seen).map(|s| (a, s.1));
        self.mbarriers.iter().find_map(late)
    }

    /// An mbarrier at which a thread of another CTA has arrived, and neither has a wait seen that nor did `left`, what the
    /// CTA's threads knew when they exited, include it.
    pub fn unseen_arrival(&self, left: &Released) -> Option<(u32, Epoch)> {
        let known = |e: &Epoch| {
            let view = left.foreign.iter().find(|f| f.0 == e.cta);
            view.is_some_and(|v| v.1.g.has(e.agent, e.lane, e.clock))
        };
        self.mbarriers.iter().find_map(|(&a, b)| {
            b.remote.iter().find(|(e, phase)| *phase >= b.seen && !known(e)).map(|(e, _)| (a, *e))
        })
    }

    /// Requires that an asynchronous operation can know an mbarrier that it will signal.
    pub fn check_published(&mut self, address: u32, t: &Ticket) -> X<()> {
        let b = self.mbarrier(address)?;
        let Some(k) = &t.know else { return Ok(()) };
        let has = |w, l, clock| k.g.has(w, l, clock) || k.i.has(w, l, clock);
        if b.published.iter().any(|&(w, m, clock)| lanes(m).any(|l| has(w, l as u8 + 1, clock))) {
            return Ok(());
        }
        Err(Trap::new(
            "barrier.init",
            format!(
                "mbarrier {address:#x} (line {}): its initialisation is not known to the asynchronous proxy \
                 (fence.mbarrier_init or fence.proxy.async by a thread ordered after it)",
                b.line
            ),
        ))
    }

    /// Changes the pending transaction bytes.
    pub fn transact(&mut self, address: u32, delta: i64) -> X<()> {
        self.mbarrier(address)?.tx += delta;
        self.settle(address)
    }
}

impl Cx<'_> {
    /// Arrives at an mbarrier, maybe of another CTA of the cluster; `scope` is that of the release.
    fn arrive(&mut self, address: u32, count: u32, release: &Released, scope: Scope, lane: usize) -> X<()> {
        let (from, epoch) = (self.cta.det.cta, self.lane_epoch(lane));
        let (cta, at) = self.peers.at(self.cta, address)?;
        let to = cta.det.cta;
        if to == from {
            cta.receive(at, release, from, false)?;
            return cta.arrive(at, count);
        }
        let moved =
            if scope >= Scope::Cluster { release.moved(from, to) } else { release.over().moved(from, to) };
        cta.receive(at, &moved, from, false)?;
        let b = cta.mbarrier(at)?;
        let (seen, by) = (b.seen, (epoch.cta, epoch.agent, epoch.lane));
        b.remote.retain(|(e, phase)| *phase >= seen && (e.cta, e.agent, e.lane) != by);
        b.remote.push((epoch, b.phase));
        cta.arrive(at, count)
    }

    /// Makes the initialisations that a fence of these lanes is ordered after known to the asynchronous proxy.
    pub fn publish_mbarriers(&mut self, m: u32) {
        if !self.cta.det.on.races {
            return;
        }
        let (w, own) = (self.w.id, self.own(m));
        let mut g = self.know().g.clone();
        own.raise(&mut g, w);
        for b in self.cta.mbarriers.values_mut() {
            let again = b.published.iter().any(|x| u32::from(x.0) == w && m & !x.1 == 0);
            if !again && g.has(b.by.0, b.by.1, b.by.2) {
                b.published.push((w as u16, m, own.now));
            }
        }
        self.cta.det.clocks[w as usize] += 1;
    }

    /// Requires that the initialisation of an mbarrier is ordered before its use by a lane.
    fn initialised(&mut self, address: u32, lane: usize) -> X<()> {
        let from = self.cta.det.cta;
        let (cta, at) = self.peers.at(self.cta, address)?;
        let b = cta.mbarrier(at)?;
        let (by, line) = (b.by, b.line);
        if !cta.det.on.races {
            return Ok(());
        }
        let know = &self.w.frags[self.f].know;
        let known = match know.of(cta.det.cta) {
            _ if cta.det.cta == from => {
                u32::from(by.0) == self.w.id
                    && (by.1 == 0 || usize::from(by.1) == lane + 1 || by.2 < self.w.since)
                    || know.g.has(by.0, by.1, by.2)
                    || know.i.has(by.0, by.1, by.2)
            }
            view => view.is_some_and(|v| v.g.has(by.0, by.1, by.2) || v.i.has(by.0, by.1, by.2)),
        };
        if known {
            return Ok(());
        }
        let m = format!(
            "mbarrier {address:#x} is used, and its initialisation (line {line}) is not ordered before"
        );
        Err(Trap::new("barrier.init", m))
    }
}

fn init(b: &mut Build<'_>) -> R<Exec> {
    b.count(2)?;
    b.visible();
    let (a, n) = (b.mem(0)?, b.src(1, 4)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let (address, count) = (cx.shared_address(a, l)?, cx.w.u32(n, l));
            if count == 0 || count >= 1 << 20 {
                return Err(Trap::new("barrier.init", format!("mbarrier count {count}")));
            }
            cx.touch_shared(address, 8, true, false, Some(l)).map_err(|t| match t.code {
                "barrier.bytes" => {
                    Trap::new("barrier.init", format!("mbarrier {address:#x} is initialised twice"))
                }
                _ => t,
            })?;
            cx.cta.smem.define(address, 8, true);
            cx.cta.smem.set_mbarrier(address, true);
            cx.cta.footprint.mbarrier(address);
            let line = cx.inst.line;
            let e = cx.lane_epoch(l);
            let by = (e.agent, e.lane, e.clock);
            let b = Mbarrier { count, pending: i64::from(count), line, by, ..Mbarrier::default() };
            cx.cta.mbarriers.insert(address, b);
            cx.log("mbarrier.init", address.into());
        }
        Ok(Flow::Next)
    }))
}

fn inval(b: &mut Build<'_>) -> R<Exec> {
    b.count(1)?;
    b.visible();
    let a = b.mem(0)?;
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let address = cx.shared_address(a, l)?;
            cx.cta.mbarrier(address)?;
            cx.cta.mbarriers.remove(&address);
            cx.cta.smem.set_mbarrier(address, false);
            cx.cta.smem.define(address, 8, false);
            cx.touch_shared(address, 8, true, false, Some(l))?;
        }
        Ok(Flow::Next)
    }))
}

/// What arrives: nothing returned, a sink, or a state register.
fn arrive(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    let expect = b.inst.opcode.contains("expect_tx");
    let no_complete = b.inst.opcode.contains("noComplete");
    let relaxed = b.inst.opcode.contains("relaxed");
    let scope = Scope::of(&b.inst.opcode).unwrap_or(Scope::Cta);
    let own = b.own_shared();
    let state = match b.operand(0)? {
        Operand::Memory { .. } => None,
        Operand::Sink => Some(None),
        o => Some(Some(b.dest(o, 8)?)),
    };
    let k = usize::from(state.is_some());
    let a = b.mem(k)?;
    let n = if b.len() > k + 1 { Some(b.src(k + 1, 4)?) } else { None };
    if b.inst.opcode.contains("shared::cluster") && matches!(state, Some(Some(_))) {
        return Err(b.error("P012", "an arrival in the cluster returns no state"));
    }
    if expect && n.is_none() || no_complete && n.is_none() || b.len() > k + 2 {
        return Err(b.error("P012", "wrong number of operands"));
    }
    Ok(Box::new(move |cx, m| {
        // Lanes arrive one by one. As long as no phase ends between them, they may hand over together.
        let apart = ends_between(cx, m, a, own, n.filter(|_| !expect))?;
        let mut release = if relaxed || apart { Released::default() } else { cx.release(m) };
        for l in lanes(m) {
            let address = cx.place_in_shared(a, l, own)?;
            cx.initialised(address, l)?;
            let v = n.map_or(1, |c| cx.w.u32(c, l));
            if apart && !relaxed {
                release = cx.release(1 << l);
            }
            if let Some(Some(c)) = state {
                if rank_of(address).is_some() {
                    let what = "an arrival at an mbarrier of another CTA returns no state";
                    return Err(Trap::new("barrier.arrive", what));
                }
                // The token is the phase that the arrival belongs to.
                let phase = cx.cta.mbarrier(address)?.phase;
                cx.w.set64(c, l, phase);
            }
            if expect {
                cx.log("expect_tx", v.into());
                let (cta, at) = cx.peers.at(cx.cta, address)?;
                cta.mbarrier(at)?.tx += i64::from(v);
                cx.arrive(address, 1, &release, scope, l)?;
            } else {
                if no_complete && i64::from(v) >= cx.cta.mbarrier(address)?.pending {
                    return Err(Trap::new("barrier.arrive", ".noComplete arrival completes the phase"));
                }
                cx.arrive(address, v, &release, scope, l)?;
            }
            cx.log("arrive", address.into());
        }
        Ok(Flow::Next)
    }))
}

/// Whether the arrivals of some lanes end a phase of a barrier at which further lanes arrive.
fn ends_between(cx: &mut Cx<'_>, m: u32, a: Addr, own: bool, counts: Option<crate::decode::Col>) -> X<bool> {
    let (mut at, mut left) = (None, 0i64);
    for l in lanes(m) {
        let address = cx.place_in_shared(a, l, own)?;
        if at != Some(address) {
            let (cta, there) = cx.peers.at(cx.cta, address)?;
            left = cta.mbarrier(there)?.pending;
            // Several barriers in one instruction: the careful way.
            if at.is_some() {
                return Ok(true);
            }
            at = Some(address);
        }
        if left <= 0 {
            return Ok(true);
        }
        left -= counts.map_or(1, |c| i64::from(cx.w.u32(c, l)));
    }
    Ok(false)
}

fn expect_tx(b: &mut Build<'_>) -> R<Exec> {
    b.count(2)?;
    b.visible();
    let sign = if b.inst.opcode.contains("complete_tx") { -1 } else { 1 };
    let (a, n, own) = (b.mem(0)?, b.src(1, 4)?, b.own_shared());
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let address = cx.place_in_shared(a, l, own)?;
            let v = i64::from(cx.w.u32(n, l));
            cx.initialised(address, l)?;
            let (cta, at) = cx.peers.at(cx.cta, address)?;
            cta.transact(at, sign * v)?;
            cx.log("expect_tx", v as u64);
        }
        Ok(Flow::Next)
    }))
}

/// Takes in what phase completion released; true where the wait succeeds.
fn passed(cx: &mut Cx<'_>, address: u32, m: u32, done: bool, acquire: Option<Scope>) -> X<()> {
    if done {
        let b = cx.cta.mbarrier(address)?;
        b.seen = b.seen.max(b.phase);
    }
    if let Some(scope) = acquire.filter(|_| done && cx.cta.det.on.races) {
        let (w, line) = (cx.w.id as u16, cx.inst.line);
        let clock = cx.cta.det.clocks[usize::from(w)];
        let b = cx.cta.mbarrier(address)?;
        let know = &mut cx.w.frags[cx.f].know;
        know.acquire(&b.done);
        if scope >= Scope::Cluster {
            know.acquire(&b.wide_done);
        } else {
            know.acquire(&b.wide_done.over());
        }
        // A later wait of the same lanes comes after the earlier one.
        let passed = Passed { warp: w, at: (m, clock), joined: None, line };
        match b.waits.iter_mut().find(|x| (x.warp, x.at.0) == (w, m)) {
            Some(x) => *x = passed,
            None => b.waits.push(passed),
        }
        cx.w.waited_apart |= m != cx.w.live;
        // Lanes may hand data to each other through the barrier.
        cx.cta.det.clocks[usize::from(w)] += 1;
        cx.w.since = cx.cta.det.clocks[usize::from(w)];
    }
    Ok(())
}

fn wait(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    b.polls();
    let by_parity = b.inst.opcode.contains("parity");
    let blocking = b.inst.opcode.starts_with("mbarrier.try_wait");
    let relaxed = b.inst.opcode.contains("relaxed");
    let acquire = (!relaxed).then(|| Scope::of(&b.inst.opcode).unwrap_or(Scope::Cta));
    if b.len() != 3 && !(blocking && b.len() == 4) {
        return Err(b.error("P012", "wrong number of operands"));
    }
    let o = b.operand(0)?;
    let p = b.pred_dst(o)?;
    let a = b.mem(1)?;
    let v = b.src(2, if by_parity { 4 } else { 8 })?;
    if b.len() == 4 {
        b.src(3, 4)?;
    }
    Ok(Box::new(move |cx, m| {
        one_wait(
            cx,
            m,
            a,
            |cx, l, phase| {
                if by_parity { (phase & 1) as u32 != cx.w.u32(v, l) & 1 } else { phase > cx.w.u64(v, l) }
            },
            p,
            blocking,
            acquire,
        )
    }))
}

fn one_wait(
    cx: &mut Cx<'_>,
    m: u32,
    a: Addr,
    test: impl Fn(&Cx<'_>, usize, u64) -> bool,
    p: Option<crate::decode::PCol>,
    blocking: bool,
    acquire: Option<Scope>,
) -> X<Flow> {
    let mut result = 0u32;
    let mut blocked = None;
    let mut last = None;
    for l in lanes(m) {
        let address = cx.shared_address(a, l)?;
        let phase = match last {
            Some((x, phase)) if x == address => phase,
            _ => cx.cta.mbarrier(address)?.phase,
        };
        cx.initialised(address, l)?;
        let done = test(cx, l, phase);
        if done {
            result |= 1 << l;
            if last != Some((address, phase)) {
                passed(cx, address, m, done, acquire)?;
            }
        } else {
            blocked = Some((address, phase));
        }
        last = Some((address, phase));
    }
    match blocked {
        // In a loop that only comes back here, lanes that all wait for one phase sleep until it
        // completes. Without such a loop the wait may fail, so it does.
        Some((address, phase)) if result == 0 && blocking && cx.inst.spins && !cx.env.spurious => {
            cx.log("wait", address.into());
            return Ok(Flow::Retry(Wait::Mbarrier(address, phase & 1 != 0, phase)));
        }
        _ => {}
    }
    if let Some(p) = p {
        cx.w.set_pred(p, m, result);
    }
    if blocked.is_some() {
        // A polling loop sleeps until something changes: before that it would find the same.
        let sleeps = cx.inst.spins || cx.inst.looped && !cx.cta.explore;
        return Ok(if sleeps { Flow::Then(Wait::Change(cx.cta.version)) } else { Flow::Yield });
    }
    cx.log("pass", last.map_or(0, |x| x.0.into()));
    Ok(Flow::Next)
}

fn pending_count(b: &mut Build<'_>) -> R<Exec> {
    Err(b.error("P011", "mbarrier.pending_count is not emulated"))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("mbarrier.init.{shared,shared::cta}?.b64", init),
    row("mbarrier.inval.{shared,shared::cta}?.b64", inval),
    row(
        "mbarrier.arrive.expect_tx?.{release,relaxed}?.{cta,cluster}?.{shared,shared::cta,shared::cluster}?.b64",
        arrive,
    ),
    row("mbarrier.arrive.noComplete.{release}?.{cta}?.{shared,shared::cta}?.b64", arrive),
    row("mbarrier.expect_tx.relaxed?.{cta,cluster}?.{shared,shared::cta,shared::cluster}?.b64", expect_tx),
    row("mbarrier.complete_tx.relaxed?.{cta,cluster}?.{shared,shared::cta,shared::cluster}?.b64", expect_tx),
    row(
        "mbarrier.{try_wait,test_wait}.parity?.{acquire,relaxed}?.{cta,cluster}?.{shared,shared::cta}?.b64",
        wait,
    ),
    row("mbarrier.pending_count.b64", pending_count),
];
