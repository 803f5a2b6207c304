//! Vector clocks and what a thread of execution knows.
//!
//! Agents are warps and asynchronous engines. An agent's accesses carry its clock; another agent
//! knows of them when its vector has that clock. [`Know`] keeps several vectors because one order is
//! not enough: `g` is causality, `p` what of it crossed a proxy fence (asynchronous engines see
//! only that of ordinary writes), `t` what tcgen05 operations are ordered after. Agents of other CTAs have
//! vectors of their own, a [`View`] for each CTA; what goes from one CTA to another changes its view on the way. Where
//! that goes without the scope of the cluster, `r` alone comes along: what is over, not what it wrote.

use std::rc::Rc;

/// A vector clock; absent entries are 0.
///
/// Beside whole agents it may know single lanes of a warp further: what one lane hands over does
/// not include its warp's other lanes since they last synchronised.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Clock {
    agents: Vec<u32>,
    /// Thread (32 warp + lane) and clock, by thread.
    lanes: Vec<(u32, u32)>,
}

impl Clock {
    /// Clock of an agent.
    pub fn get(&self, agent: u16) -> u32 {
        self.agents.get(usize::from(agent)).copied().unwrap_or(0)
    }

    /// Whether it includes an access of an agent at a clock; `lane` is the lane plus one, 0 for all.
    pub fn has(&self, agent: u16, lane: u8, clock: u32) -> bool {
        self.get(agent) >= clock
            || lane != 0 && self.lane(u32::from(agent) * 32 + u32::from(lane) - 1) >= clock
    }

    fn lane(&self, thread: u32) -> u32 {
        self.lanes.binary_search_by_key(&thread, |x| x.0).map_or(0, |i| self.lanes[i].1)
    }

    /// Raises the clock of one lane.
    pub fn raise_lane(&mut self, thread: u32, clock: u32) {
        match self.lanes.binary_search_by_key(&thread, |x| x.0) {
            Ok(i) => self.lanes[i].1 = self.lanes[i].1.max(clock),
            Err(i) => self.lanes.insert(i, (thread, clock)),
        }
    }

    /// Raises an agent's clock.
    pub fn raise(&mut self, agent: u16, clock: u32) {
        let i = usize::from(agent);
        if self.agents.len() <= i {
            self.agents.resize(i + 1, 0);
        }
        self.agents[i] = self.agents[i].max(clock);
    }

    /// Pointwise maximum.
    pub fn join(&mut self, other: &Clock) {
        if self.agents.len() < other.agents.len() {
            self.agents.resize(other.agents.len(), 0);
        }
        for (a, b) in self.agents.iter_mut().zip(&other.agents) {
            *a = (*a).max(*b);
        }
        for &(thread, clock) in &other.lanes {
            if self.get((thread / 32) as u16) < clock {
                self.raise_lane(thread, clock);
            }
        }
    }
}

/// What a warp's own accesses an action of some of its lanes comes after.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Own {
    /// The lanes that act.
    pub lanes: u32,
    /// Whether they are the whole warp.
    pub whole: bool,
    /// Clock up to which all lanes' accesses are ordered before.
    pub before: u32,
    /// The warp's clock.
    pub now: u32,
}

impl Own {
    /// Raises a vector by these accesses of a warp.
    pub fn raise(&self, clock: &mut Clock, warp: u32) {
        if self.whole {
            clock.raise(warp as u16, self.now);
            return;
        }
        clock.raise(warp as u16, self.before);
        let mut m = self.lanes;
        while m != 0 {
            clock.raise_lane(32 * warp + m.trailing_zeros(), self.now);
            m &= m - 1;
        }
    }
}

/// The CTAs that a release, an acquire or a fence is for.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// The thread's own.
    Cta,
    /// Those of its cluster.
    Cluster,
    /// All.
    Device,
}

impl Scope {
    /// The scope that an opcode names.
    pub fn of(opcode: &str) -> Option<Scope> {
        opcode.split('.').find_map(|m| match m {
            "cta" => Some(Scope::Cta),
            "cluster" => Some(Scope::Cluster),
            "gpu" | "gl" | "sys" => Some(Scope::Device),
            _ => None,
        })
    }
}

/// What is known of the agents of one CTA.
#[derive(Clone, Default, Debug)]
pub struct View {
    /// Causality.
    pub g: Clock,
    /// Ordinary accesses that crossed a proxy fence.
    pub p: Clock,
    /// Tensor-memory accesses.
    pub t: Clock,
    /// Initialisations of mbarriers that crossed a `fence.mbarrier_init`; only in clusters of several CTAs.
    pub i: Clock,
    /// What is over, see [`Released::over`].
    pub r: Clock,
}

impl View {
    /// Adds what another view has.
    pub fn join(&mut self, other: &View) {
        self.g.join(&other.g);
        self.p.join(&other.p);
        self.t.join(&other.t);
        self.i.join(&other.i);
        self.r.join(&other.r);
    }
}

/// What a release hands over.
#[derive(Clone, Default, Debug)]
pub struct Released {
    /// Of the CTA that has it.
    pub own: View,
    /// Of other CTAs, by CTA number plus one.
    pub foreign: Vec<(u32, View)>,
}

/// Joins what is known of other CTAs.
fn join_foreign(a: &mut Vec<(u32, View)>, b: &[(u32, View)]) {
    for (cta, view) in b {
        match a.iter_mut().find(|x| x.0 == *cta) {
            Some(x) => x.1.join(view),
            None => a.push((*cta, view.clone())),
        }
    }
}

impl Released {
    /// Adds another release.
    pub fn join(&mut self, other: &Released) {
        self.own.join(&other.own);
        join_foreign(&mut self.foreign, &other.foreign);
    }

    /// What is left of it for another CTA without the scope of the cluster: what is over, so that shared memory may be written again ([`super::shadow`]). Scopes are
    /// about what is seen of writes. PTX makes no such difference, but kernels in use do: a release to the cluster costs 0.7 µs on an H100.
    pub fn over(&self) -> Released {
        let view = |v: &View| {
            let mut r = v.r.clone();
            r.join(&v.g);
            View { p: v.p.clone(), r, ..View::default() }
        };
        Released {
            own: view(&self.own),
            foreign: self.foreign.iter().map(|(cta, v)| (*cta, view(v))).collect(),
        }
    }

    /// Adds an agent's clock: one of CTA `cta`, where `own` has the release.
    pub fn raise(&mut self, cta: u32, own: u32, agent: u16, clock: u32) {
        if cta == own {
            self.own.g.raise(agent, clock);
        } else {
            let mut view = View::default();
            view.g.raise(agent, clock);
            join_foreign(&mut self.foreign, &[(cta, view)]);
        }
    }

    /// What CTA `from` hands over, as CTA `to` has it (numbers plus one).
    pub fn moved(&self, from: u32, to: u32) -> Released {
        if from == to {
            return self.clone();
        }
        let mut out = Released { own: View::default(), foreign: vec![(from, self.own.clone())] };
        for (cta, view) in &self.foreign {
            if *cta == to {
                out.own = view.clone();
            } else {
                out.foreign.push((*cta, view.clone()));
            }
        }
        out
    }
}

/// What a fragment of a warp, or an asynchronous operation, is ordered after.
#[derive(Clone, Default, Debug)]
pub struct Know {
    /// Causality.
    pub g: Clock,
    /// Ordinary accesses that crossed a proxy fence.
    pub p: Clock,
    /// What its tcgen05 operations are ordered after.
    pub t: Clock,
    /// Part of `t` that a release hands over (`before_thread_sync`), besides `t_in`.
    pub t_out: Clock,
    /// Acquired, but before an `after_thread_sync`.
    pub t_in: Clock,
    /// Initialisations of mbarriers, see [`View::i`].
    pub i: Clock,
    /// What is over, see [`View::r`].
    pub r: Clock,
    /// Of other CTAs, by CTA number plus one.
    pub foreign: Vec<(u32, View)>,
    /// What fences of each scope and of wider ones released last, for relaxed atomics after them.
    pub fence_out: [Option<Rc<Released>>; 3],
    /// What relaxed atomics have read, for the next fence.
    pub fence_in: Vec<Sent>,
}

/// What a CTA has released to an address.
#[derive(Clone, Debug)]
pub struct Sent {
    /// CTA number plus one.
    pub cta: u32,
    /// For whom.
    pub scope: Scope,
    /// What.
    pub what: Released,
}

impl Sent {
    /// Adds a release to a list.
    pub fn add(list: &mut Vec<Sent>, cta: u32, scope: Scope, what: &Released) {
        match list.iter_mut().find(|x| (x.cta, x.scope) == (cta, scope)) {
            Some(x) => x.what.join(what),
            None => list.push(Sent { cta, scope, what: what.clone() }),
        }
    }
}

impl Know {
    /// What a release hands over. What was acquired goes on without a fence here: the order of synchronisation is transitive,
    /// fences stand between tcgen05 operations and the synchronisation of their own threads.
    pub fn released(&self) -> Released {
        let mut t = self.t_out.clone();
        t.join(&self.t_in);
        let own = View { g: self.g.clone(), p: self.p.clone(), t, i: self.i.clone(), r: self.r.clone() };
        Released { own, foreign: self.foreign.clone() }
    }

    /// Takes in a release.
    pub fn acquire(&mut self, r: &Released) {
        self.g.join(&r.own.g);
        self.p.join(&r.own.p);
        self.t_in.join(&r.own.t);
        self.i.join(&r.own.i);
        self.r.join(&r.own.r);
        join_foreign(&mut self.foreign, &r.foreign);
    }

    /// Takes in a release of a CTA (number plus one); `own` is the CTA that takes it.
    pub fn acquire_of(&mut self, cta: u32, own: u32, r: &Released) {
        if cta == own {
            self.acquire(r);
        } else {
            self.acquire(&r.moved(cta, own));
        }
    }

    /// The same, as an operation that CTA `from` issues has it in CTA `to`.
    pub fn moved(&self, from: u32, to: u32) -> Know {
        let mut k = Know::default();
        k.acquire(&self.released().moved(from, to));
        k
    }

    /// What is known of another CTA (number plus one).
    pub fn of(&self, cta: u32) -> Option<&View> {
        self.foreign.iter().find(|f| f.0 == cta).map(|f| &f.1)
    }

    /// Joins another fragment of the warp.
    pub fn merge(&mut self, o: &Know) {
        self.g.join(&o.g);
        self.p.join(&o.p);
        self.t.join(&o.t);
        self.t_out.join(&o.t_out);
        self.t_in.join(&o.t_in);
        self.i.join(&o.i);
        self.r.join(&o.r);
        join_foreign(&mut self.foreign, &o.foreign);
        for s in &o.fence_in {
            Sent::add(&mut self.fence_in, s.cta, s.scope, &s.what);
        }
    }
}
