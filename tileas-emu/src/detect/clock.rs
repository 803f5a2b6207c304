//! Vector clocks and what a thread of execution knows.
//!
//! Agents are warps and asynchronous engines. An agent's accesses carry its clock; another agent
//! knows of them when its vector has that clock. [`Know`] keeps three vectors because one order is
//! not enough: `g` is causality, `p` what of it crossed a proxy fence (asynchronous engines see
//! only that of ordinary writes), `t` what tcgen05 operations are ordered after.

/// A vector clock; absent entries are 0.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Clock(Vec<u32>);

impl Clock {
    /// Clock of an agent.
    pub fn get(&self, agent: u16) -> u32 {
        self.0.get(usize::from(agent)).copied().unwrap_or(0)
    }

    /// Raises an agent's clock.
    pub fn raise(&mut self, agent: u16, clock: u32) {
        let i = usize::from(agent);
        if self.0.len() <= i {
            self.0.resize(i + 1, 0);
        }
        self.0[i] = self.0[i].max(clock);
    }

    /// Pointwise maximum.
    pub fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a = (*a).max(*b);
        }
    }
}

/// What a release hands over.
#[derive(Clone, Default, Debug)]
pub struct Released {
    /// Causality.
    pub g: Clock,
    /// Ordinary writes that crossed a proxy fence.
    pub p: Clock,
    /// Tensor-memory accesses.
    pub t: Clock,
}

impl Released {
    /// Adds another release.
    pub fn join(&mut self, other: &Released) {
        self.g.join(&other.g);
        self.p.join(&other.p);
        self.t.join(&other.t);
    }
}

/// What a fragment of a warp, or an asynchronous operation, is ordered after.
#[derive(Clone, Default, Debug)]
pub struct Know {
    /// Causality.
    pub g: Clock,
    /// Ordinary writes that crossed a proxy fence.
    pub p: Clock,
    /// What its tcgen05 operations are ordered after.
    pub t: Clock,
    /// Part of `t` that a release hands over (`before_thread_sync`).
    pub t_out: Clock,
    /// Acquired, but before an `after_thread_sync`.
    pub t_in: Clock,
}

impl Know {
    /// What a release hands over.
    pub fn released(&self) -> Released {
        Released { g: self.g.clone(), p: self.p.clone(), t: self.t_out.clone() }
    }

    /// Takes in a release.
    pub fn acquire(&mut self, r: &Released) {
        self.g.join(&r.g);
        self.p.join(&r.p);
        self.t_in.join(&r.t);
    }

    /// Joins another fragment of the warp.
    pub fn merge(&mut self, o: &Know) {
        self.g.join(&o.g);
        self.p.join(&o.p);
        self.t.join(&o.t);
        self.t_out.join(&o.t_out);
        self.t_in.join(&o.t_in);
    }
}
