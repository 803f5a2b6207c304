//! Storage of tiles in shared and tensor memory: which values live in one place, what ops do to them, and how long.
//!
//! Values that loops, conditionals and multiplies tie together want one place, so that nothing moves; values that are
//! alive at once need two. [`classify`] and [`coalesce`] decide before tiles are placed, which is where a copy can still be
//! made. [`Storage`] is what came of it in the placed function, found once: its [`webs`] and the tiles that loops hand to
//! their next iteration in slots of their own ([`carried`]). Scheduling, buffer assignment and materialisation ask here
//! what an op accesses ([`access`]; which elements of a view, and whether two ops meet there: [`alias`]), which part ([`slice`]), whether it was written ([`flag`]), what class of the machine
//! model it is, how much it does ([`cost`]), and what it occupies for how long ([`footprint`]), shared memory that it takes for itself included ([`scratch`]). [`runs`] says which coordinates count up. [`check`] proves afterwards,
//! of the placed function, that every read finds what program order says it finds.

pub mod access;
pub mod alias;
pub mod carried;
pub mod check;
pub mod classify;
pub mod coalesce;
pub(crate) mod components;
pub mod cost;
pub mod flag;
pub mod footprint;
pub mod printing;
pub mod runs;
pub mod scratch;
pub mod slice;
pub mod webs;

use crate::error::CodegenResult;
use crate::ir::{Function, Op, Value};
use crate::plan::{Agent, AgentPlan};
use carried::Carried;
use webs::{Web, Webs};

/// What is known of the storage of a placed function before it is scheduled.
#[derive(Clone, Default)]
pub struct Storage {
    /// Its webs.
    pub webs: Webs,
    /// Tiles whose every version has a slot of its own.
    pub carried: Vec<Carried>,
    /// Bytes that register ops take for themselves, of those that take any.
    pub scratch: Vec<(Op, Agent, u32)>,
}

impl Storage {
    /// Finds the storage of a placed function.
    ///
    /// # Errors
    /// `E0604`, `E0608`: see [`webs`].
    pub fn of(func: &Function, plan: &AgentPlan) -> CodegenResult<Storage> {
        let (webs, carried) = (webs::build(func)?, carried::find(func, plan));
        Ok(Storage { webs, carried, scratch: scratch::all_bytes(func, plan) })
    }

    /// The carried ring of a web, if it is one.
    pub fn carried(&self, web: Web) -> Option<&Carried> {
        self.carried.iter().find(|r| self.web_of(r.arg) == Some(web))
    }

    /// The web of a value; none for constants and what is in registers.
    pub fn web_of(&self, v: Value) -> Option<Web> {
        self.webs.of[v].expand()
    }
}
