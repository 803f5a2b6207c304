//! Exact mode (`scheduler = optimal`): the least II, then the fewest stages at it, with proofs.
//!
//! In: a problem, and what the heuristics made of it: a schedule as upper bound, the largest bound they proved as
//! lower one. Out: a schedule that is better or none, and an [`Optimality`] that says between which numbers the best one
//! lies. Four steps, one file each: [`model`] (with `windows` and `resources`) says what must hold at one II,
//! [`encode`] puts that into a SAT solver, [`theory`] propagates differences of starts inside it, [`search`] decides one
//! II after the other.
//!
//! Guarantee: a refutation is a proof; a schedule found is checked by [`crate::verify`], which shares nothing with this.
//! Deterministic: the budget `search.optimal-steps` counts what the solver does. Elsewhere: the heuristics, whose bounded
//! search over orders needs no solver. Feature `optimal`; the solver is batsat, a MiniSat in Rust.

mod encode;
mod model;
mod resources;
mod search;
#[cfg(test)]
mod tests;
mod theory;
mod windows;

use crate::length;
use crate::modulo::Modulo;
use crate::placement::{Loop, Placement};
use crate::problem::MAX_QUANTITY;
use crate::schedule::Optimality;
use crate::trail::Strategy;
use search::Search;

/// Improves on the last success of the heuristics, or finds one where they did not.
///
/// `found`: the II of that success, its starts are in [`Placement::starts`]. Returns the II of what is there now.
pub(crate) fn prove(
    at: &mut Placement,
    l: Loop<'_>,
    found: Option<u32>,
    cap: u32,
    modulo: &mut Modulo,
) -> (Option<u32>, Optimality) {
    let at_hand = found.map(|ii| (ii, at.starts().to_vec()));
    let mut search = Search::new(l.p, l.g, l.o, at_hand);
    search.run(at.proven, cap);
    let (better, report) = search.into_best();
    let Some((ii, starts)) = better else { return (found, report) };
    // Compacted where that leaves it as short.
    at.keep(&starts);
    if ii <= MAX_QUANTITY / 2 {
        modulo.compact(at, l, ii);
        if !at.fits() || length(l.p, at.starts(), ii) > length(l.p, &starts, ii) {
            at.keep(&starts);
        }
    }
    at.strategy = Some(Strategy::Sat);
    at.proven = at.proven.max(report.ii.0);
    (Some(ii), report)
}
