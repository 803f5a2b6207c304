//! Vector clocks and what a thread of execution knows.
//!
//! Agents are warps and asynchronous engines. An agent's accesses carry its clock; another agent
//! knows of them when its vector has that clock. [`Know`] keeps three vectors because one order is
//! not enough: `g` is causality, `p` what of it crossed a proxy fence (asynchronous engines see
//! only that of ordinary writes), `t` what tcgen05 operations are ordered after.

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

/// What a release hands over.
#[derive(Clone, Default, Debug)]
pub struct Released {
    /// Causality.
    pub g: Clock,
    /// Ordinary accesses that crossed a proxy fence.
    pub p: Clock,
    /// Tensor-memory accesses.
    pub t: Clock,
    /// Causality of other CTAs, by CTA number plus one.
    pub foreign: Vec<(u32, Clock)>,
}

/// Joins what is known of other CTAs.
fn join_foreign(a: &mut Vec<(u32, Clock)>, b: &[(u32, Clock)]) {
    for (cta, clock) in b {
        match a.iter_mut().find(|x| x.0 == *cta) {
            Some(x) => x.1.join(clock),
            None => a.push((*cta, clock.clone())),
        }
    }
}

impl Released {
    /// Adds another release.
    pub fn join(&mut self, other: &Released) {
        self.g.join(&other.g);
        self.p.join(&other.p);
        self.t.join(&other.t);
        join_foreign(&mut self.foreign, &other.foreign);
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
    /// Causality of other CTAs, by CTA number plus one.
    pub foreign: Vec<(u32, Clock)>,
    /// What the last fence released, for relaxed atomics after it.
    pub fence_out: Option<Box<Released>>,
    /// What relaxed atomics have read, for the next fence: CTA number plus one, and its release.
    pub fence_in: Vec<(u32, Released)>,
}

impl Know {
    /// What a release hands over. What was acquired goes on without a fence here: the order of synchronisation is transitive,
    /// fences stand between tcgen05 operations and the synchronisation of their own threads.
    pub fn released(&self) -> Released {
        let mut t = self.t_out.clone();
        t.join(&self.t_in);
        Released { g: self.g.clone(), p: self.p.clone(), t, foreign: self.foreign.clone() }
    }

    /// Takes in a release.
    pub fn acquire(&mut self, r: &Released) {
        self.g.join(&r.g);
        self.p.join(&r.p);
        self.t_in.join(&r.t);
        join_foreign(&mut self.foreign, &r.foreign);
    }

    /// Takes in a release of a CTA (number plus one); `own` is the CTA that takes it.
    pub fn acquire_of(&mut self, cta: u32, own: u32, r: &Released) {
        if cta == own {
            self.acquire(r);
        } else {
            join_foreign(&mut self.foreign, &[(cta, r.g.clone())]);
            join_foreign(&mut self.foreign, &r.foreign);
        }
    }

    /// Keeps a release of a CTA for the next fence.
    pub fn keep_for_fence(&mut self, cta: u32, r: &Released) {
        match self.fence_in.iter_mut().find(|x| x.0 == cta) {
            Some(x) => x.1.join(r),
            None => self.fence_in.push((cta, r.clone())),
        }
    }

    /// Joins another fragment of the warp.
    pub fn merge(&mut self, o: &Know) {
        self.g.join(&o.g);
        self.p.join(&o.p);
        self.t.join(&o.t);
        self.t_out.join(&o.t_out);
        self.t_in.join(&o.t_in);
        join_foreign(&mut self.foreign, &o.foreign);
        for (cta, r) in &o.fence_in {
            self.keep_for_fence(*cta, r);
        }
    }
}
