//! The modulo reservation table as runs of equal cells: who holds how much of which slot or pool, in which rows.
//!
//! In: a picture. Out: one [`ResourceRow`] per slot or pool that is used. An op longer than II meets itself and is
//! counted each time. Cost: II × (uses of a row), bounded by [`MAX_CELLS`]; larger tables are left out.

use crate::picture::Picture;
use tileas_schedule::Node;

/// Cells (rows modulo II, times ops that hold something) that are worked out.
const MAX_CELLS: u64 = 1 << 22;

/// A rectangle of the table: an op holds `amount` units in rows `from..to`, stacked on `below` units of others.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub node: Node,
    pub from: u32,
    pub to: u32,
    pub below: u64,
    pub amount: u64,
}

/// A slot or pool.
#[derive(Clone, Debug)]
pub(super) struct ResourceRow<'a> {
    pub name: &'a str,
    pub is_pool: bool,
    pub capacity: u32,
    /// Units times cycles taken in one interval.
    pub busy: u64,
    /// Units taken in each row.
    pub taken: Vec<u64>,
    /// By row, then bottom up.
    pub runs: Vec<Run>,
}

impl ResourceRow<'_> {
    /// Share of the capacity that is taken, in percent, rounded down.
    pub fn percent(&self, ii: u64) -> u64 {
        let all = u128::from(self.capacity) * u128::from(ii);
        (u128::from(self.busy) * 100).checked_div(all).unwrap_or(0) as u64
    }
}

/// Slots, then pools, each in the order of the problem; `None` where the table is too large.
pub(super) fn resource_rows(p: &Picture) -> Option<Vec<ResourceRow<'_>>> {
    let problem = &p.problem;
    let uses: usize = problem.nodes().map(|n| problem.uses(n).len() + problem.pool_uses(n).len()).sum();
    if p.ii().saturating_mul(uses.max(1) as u64) > MAX_CELLS {
        return None;
    }
    let mut rows = Vec::new();
    for (slot, r) in problem.slots().iter() {
        let holds = problem.nodes().flat_map(|n| {
            let uses = problem.uses(n).iter().filter(move |u| u.slot == slot);
            uses.map(move |u| (n, u.offset, u.duration, u.occupancy))
        });
        rows.extend(row(p, &r.name, false, r.capacity, holds));
    }
    for (pool, r) in problem.pools().iter() {
        let holds = problem.nodes().flat_map(|n| {
            let uses = problem.pool_uses(n).iter().filter(move |u| u.pool == pool);
            uses.map(move |u| (n, 0, u.duration, u.count))
        });
        rows.extend(row(p, &r.name, true, r.capacity, holds));
    }
    Some(rows)
}

/// One row of the table; `None` if no op holds anything.
fn row<'a>(
    p: &Picture,
    name: &'a str,
    is_pool: bool,
    capacity: u32,
    holds: impl Iterator<Item = (Node, u32, u32, u32)>,
) -> Option<ResourceRow<'a>> {
    let ii = p.ii();
    // By cycle: (op, units), in order of issue.
    let mut cells: Vec<Vec<(Node, u64)>> = vec![Vec::new(); ii as usize];
    let mut busy = 0;
    let mut holds: Vec<_> = holds.filter(|h| h.2 > 0 && h.3 > 0).collect();
    holds.sort_by_key(|h| p.schedule.order[h.0]);
    for (n, offset, duration, amount) in holds {
        busy += u64::from(duration) * u64::from(amount);
        let first = p.start(n) + u64::from(offset);
        let (whole, rest) = (u64::from(duration) / ii, u64::from(duration) % ii);
        for k in 0..ii.min(duration.into()) {
            let units = u64::from(amount) * (whole + u64::from(k < rest));
            let cell = &mut cells[((first + k) % ii) as usize];
            match cell.last_mut() {
                Some((m, held)) if *m == n => *held += units,
                _ => cell.push((n, units)),
            }
        }
    }
    if busy == 0 {
        return None;
    }
    let taken = cells.iter().map(|c| c.iter().map(|x| x.1).sum()).collect();
    let mut runs: Vec<Run> = Vec::new();
    // Runs that reach the row at hand, bottom up.
    let mut open: Vec<usize> = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        let (mut below, mut next) = (0, Vec::with_capacity(cell.len()));
        for &(node, amount) in cell {
            let same = open.iter().copied().find(|&k| {
                let r = &runs[k];
                (r.node, r.below, r.amount) == (node, below, amount)
            });
            let k = same.unwrap_or_else(|| {
                runs.push(Run { node, from: at as u32, to: at as u32, below, amount });
                runs.len() - 1
            });
            runs[k].to = at as u32 + 1;
            next.push(k);
            below += amount;
        }
        open = next;
    }
    Some(ResourceRow { name, is_pool, capacity, busy, taken, runs })
}
