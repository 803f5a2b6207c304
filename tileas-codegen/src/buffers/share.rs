//! Which webs may lie in the same memory.
//!
//! In: webs and pipes. Out: [`Sharing`]. Two webs may if every access to the one is complete before any access to the
//! other is issued, by the paths of the synchronisation graph of the kernel body, which runs once; no wait is added.
//! Slots of rings that run in a repeated region never end, so webs of one loop do not share there.
//! Cost: one graph search per access, webs² comparisons.

use super::access::{Class, Key, accesses, base_of, class_of};
use super::channels::{Pipe, PipeData};
use super::sync::{Point, Sync, World};
use super::webs::{Web, Webs, ancestor_in};
use crate::agents::Agent;
use crate::ir::{Block, Op};
use cranelift_entity::{EntityRef, PrimaryMap};

/// Pairs of webs that may share memory.
#[derive(Clone, Default, Debug)]
pub struct Sharing {
    webs: usize,
    apart: Vec<bool>,
}

type At = (Agent, Op, Point);
/// Where an access is issued, and where it is known to be complete.
type Use = (At, Vec<At>);

impl Sharing {
    /// Compares all webs.
    pub fn find(world: World<'_>, webs: &Webs, pipes: &PrimaryMap<Pipe, PipeData>) -> Sharing {
        let n = webs.webs.len();
        let mut out = Sharing { webs: n, apart: vec![false; n * n] };
        let body = world.func.entry();
        let sync = Sync::of(world, body, pipes.values().as_slice());
        // Per web: for each access where it is issued, and the places where it is known to be complete.
        let uses: Vec<Option<Vec<Use>>> =
            webs.webs.keys().map(|w| uses_of(world, webs, pipes, &sync, body, w)).collect();
        for (i, a) in uses.iter().enumerate() {
            let Some(a) = a else { continue };
            // Points that lie behind every access of the web.
            let behind: Vec<Vec<Option<i64>>> =
                a.iter().flat_map(|(_, ends)| ends).map(|&end| sync.distances(end)).collect();
            for (j, b) in uses.iter().enumerate() {
                let Some(b) = b.as_ref().filter(|_| i != j) else { continue };
                let mut at = 0;
                let before = a.iter().all(|(x, ends)| {
                    let mine = &behind[at..at + ends.len()];
                    at += ends.len();
                    mine.iter().any(|d| {
                        b.iter().all(|(y, _)| {
                            let reached = sync.index(*y).and_then(|n| d.get(n).copied().flatten());
                            y.1 != x.1 && reached.is_some_and(|d| d <= 0)
                        })
                    })
                });
                if before {
                    out.apart[i * n + j] = true;
                    out.apart[j * n + i] = true;
                }
            }
        }
        out
    }

    /// Whether two webs may overlap.
    pub fn may_share(&self, a: Web, b: Web) -> bool {
        self.apart.get(a.index() * self.webs + b.index()).copied().unwrap_or(false)
    }
}

/// Where each access of a web is issued, and where known to be complete, if it is before the kernel ends; `None` for
/// webs that share with none.
fn uses_of(
    world: World<'_>,
    webs: &Webs,
    pipes: &PrimaryMap<Pipe, PipeData>,
    sync: &Sync<'_>,
    body: Block,
    web: Web,
) -> Option<Vec<Use>> {
    let World { func, plan, .. } = world;
    let data = &webs.webs[web];
    if data.scalar {
        return None;
    }
    let mut out = Vec::new();
    for &op in &data.ops {
        let mine = |v| webs.of[base_of(func, v)].expand() == Some(web);
        if !accesses(func, op).iter().any(|a| mine(a.value)) {
            continue;
        }
        let (agent, item) = (plan.op_agent[op].expand()?, ancestor_in(func, op, body)?);
        let key = Key { agent, class: class_of(func, plan, op) };
        let ends: Vec<At> = match key.class {
            Class::Sync => vec![(agent, item, Point::All)],
            Class::Mma => vec![(agent, item, Point::Done)],
            // At the end of its region the lane has waited until its stores have read their slots.
            Class::Bulk if pipes.values().any(|p| p.webs.contains(&web) && p.defers(func)) => Vec::new(),
            Class::Bulk if item != op => vec![(agent, item, Point::All)],
            Class::Bulk => Vec::new(),
            Class::Tma => {
                let of_op = |p: &&PipeData| p.tx > 0 && (p.events.contains(&op) || p.events.contains(&item));
                pipes.values().filter(of_op).flat_map(|p| sync.learned(p, item)).collect()
            }
        };
        // Without an end the web can only be the later one.
        out.push(((agent, item, Sync::wait_point(key)), ends));
    }
    Some(out)
}
