//! Variables of a [`Model`]: starts of components, rows, and the order of interchangeable ops.
//!
//! In: earliest and latest starts, components. Out: one variable per start that the model asks about, with the values
//! that dependences leave it. A component without deadline is counted from the begin of the stage of one of its ops,
//! chosen so that the windows of the others are narrow; windows are longest distances from and to it.

use super::model::{MAX_VALUES, Model, NEVER, NONE, NoModel, REFERENCES, RowOf, Var, arcs, groups};
use crate::graph::Graph;
use std::collections::BTreeMap;

impl Model {
    /// `still`: an op whose row is 0 without loss, or [`NONE`].
    pub(super) fn make_vars(
        &mut self,
        g: &Graph,
        early: &[i64],
        late: &[i64],
        still: u32,
    ) -> Result<(), NoModel> {
        let n = g.n as usize;
        self.time = vec![NONE; n];
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); n];
        for u in 0..n {
            members[self.component[u] as usize].push(u);
        }
        let mut inner: Vec<Vec<(usize, usize, i64)>> = vec![Vec::new(); n];
        for (u, v, w) in arcs(g, self.ii).filter(|&(u, v, _)| self.component[u] == self.component[v]) {
            inner[self.component[u] as usize].push((u, v, w));
        }
        // Members of a group start less than II cycles apart.
        for group in groups(g) {
            for &u in group {
                for &v in group.iter().filter(|&&v| v != u) {
                    inner[self.component[u as usize] as usize].push((u as usize, v as usize, 1 - self.ii));
                }
            }
        }
        let mut values = 0u64;
        for (ops, arcs) in members.iter().zip(&inner) {
            let windows: Vec<(i64, i64)> = match ops[..] {
                [] => continue,
                [u, ..] if late[u] < NEVER => ops.iter().map(|&u| (early[u], late[u])).collect(),
                [u] if self.pieces[u].is_empty() => continue,
                [u] => vec![(0, if u as u32 == still { 0 } else { self.ii - 1 })],
                _ => self.windows(ops, arcs, still)?,
            };
            for (&u, (lo, hi)) in ops.iter().zip(windows) {
                if lo > hi {
                    return Err(NoModel::Refuted);
                }
                values += (hi - lo) as u64;
                if values > MAX_VALUES || lo < i64::from(i32::MIN / 4) || hi > i64::from(i32::MAX / 4) {
                    return Err(NoModel::TooLarge);
                }
                self.time[u] = self.vars.len() as u32;
                self.vars.push(Var { lo: lo as i32, hi: hi as i32 });
            }
        }
        Ok(())
    }

    /// Windows of a component, counted from the stage of the op that leaves the others least room.
    fn windows(
        &self,
        ops: &[usize],
        arcs: &[(usize, usize, i64)],
        still: u32,
    ) -> Result<Vec<(i64, i64)>, NoModel> {
        let at: BTreeMap<usize, usize> = ops.iter().enumerate().map(|(i, &u)| (u, i)).collect();
        let arcs: Vec<(usize, usize, i64)> = arcs.iter().map(|&(u, v, w)| (at[&u], at[&v], w)).collect();
        let turned: Vec<(usize, usize, i64)> = arcs.iter().map(|&(u, v, w)| (v, u, w)).collect();
        let fixed = at.get(&(still as usize)).copied();
        let last = if fixed.is_some() { 0 } else { self.ii - 1 };
        let candidates: Vec<usize> = match fixed {
            Some(k) => vec![k],
            None => (0..ops.len()).take(REFERENCES).collect(),
        };
        let mut best: Option<(i64, Vec<(i64, i64)>)> = None;
        for k in candidates {
            let (from, to) = (distances(ops.len(), &arcs, k)?, distances(ops.len(), &turned, k)?);
            let windows: Vec<(i64, i64)> = from.iter().zip(&to).map(|(&f, &t)| (f, last - t)).collect();
            let room: i64 = windows.iter().map(|w| w.1 - w.0).sum();
            if best.as_ref().is_none_or(|b| room < b.0) {
                best = Some((room, windows));
            }
        }
        best.map(|b| b.1).ok_or(NoModel::TooLarge)
    }

    /// Rows of the ops that resources restrict: the start itself where its window lies in one stage, else a variable.
    pub(super) fn make_rows(&mut self) -> Result<(), NoModel> {
        let ii = self.ii as i32;
        self.rows = vec![None; self.time.len()];
        let mut values: u64 = self.vars.iter().map(|v| (v.hi - v.lo) as u64).sum();
        for u in 0..self.time.len() {
            let time = self.time[u];
            if time == NONE || self.pieces[u].is_empty() {
                continue;
            }
            let Var { lo, hi } = self.vars[time as usize];
            let stage = lo.div_euclid(ii);
            self.rows[u] = Some(if stage == hi.div_euclid(ii) {
                RowOf { var: time, shift: stage * ii }
            } else {
                let var = self.vars.len() as u32;
                self.vars.push(Var { lo: 0, hi: ii - 1 });
                self.channels.push((time, var));
                values += ii as u64;
                RowOf { var, shift: 0 }
            });
        }
        if values > MAX_VALUES { Err(NoModel::TooLarge) } else { Ok(()) }
    }

    /// Interchangeable ops start in program order: any solution can be sorted so. They have the same footprint, window
    /// and neighbours; neighbours of an op that is alone in its component ask nothing of its row.
    pub(super) fn order_twins(&mut self, g: &Graph, still: u32) -> Result<(), NoModel> {
        let mut sizes = vec![0u32; self.time.len()];
        self.component.iter().for_each(|&c| sizes[c as usize] += 1);
        let mut group = vec![NONE; self.time.len()];
        for (k, members) in groups(g).enumerate() {
            members.iter().for_each(|&u| group[u as usize] = k as u32);
        }
        let mut last_of = BTreeMap::new();
        // The op that stands still has the smallest row there is.
        let mut order: Vec<usize> = (0..self.time.len()).collect();
        order.sort_by_key(|&u| (u as u32 != still, u));
        for u in order {
            let time = self.time[u];
            if time == NONE {
                continue;
            }
            let Var { lo, hi } = self.vars[time as usize];
            let component = self.component[u];
            let free = lo == 0 && (i64::from(hi) == self.ii - 1 || u as u32 == still);
            let alone = sizes[component as usize] == 1 && free;
            let mut neighbours: Vec<(bool, u32, i64)> = Vec::new();
            if !alone {
                let ahead = g.succ.of(u as u32).iter().map(|a| (true, a.node, a.weight(self.ii)));
                let back = g.pred.of(u as u32).iter().map(|a| (false, a.node, a.weight(self.ii)));
                neighbours.extend(ahead.chain(back));
                neighbours.sort_unstable();
            }
            // An op alone that stands still has a smaller window than its twins.
            let window = if alone { (0, 0) } else { (lo, hi) };
            let of = if alone { NONE } else { component };
            let key = (of, group[u], window, self.pieces[u].clone(), neighbours);
            if let Some(before) = last_of.insert(key, time) {
                self.add_diff(before, time, 0)?;
            }
        }
        Ok(())
    }

    /// Starts of all ops from the rows of a solution, in the earliest stages that dependences and groups allow.
    ///
    /// `values`: by variable. Ops without a variable start when they can. `None`: the rows are no solution.
    pub fn extend(&self, g: &Graph, values: &[i32]) -> Option<Vec<i64>> {
        let ii = self.ii;
        let row = |u: usize| match self.time[u] {
            NONE => None,
            v => Some(i64::from(values[v as usize]).rem_euclid(ii)),
        };
        let mut start: Vec<i64> = (0..self.time.len()).map(|u| row(u).unwrap_or(0)).collect();
        let raise = |start: &mut [i64], u: usize, least: i64| {
            let short = least - start[u];
            if short > 0 {
                start[u] += if self.time[u] == NONE { short } else { (short + ii - 1) / ii * ii };
            }
            short > 0
        };
        // Paths without a cycle have fewer arcs than there are ops; groups add one each.
        for _ in 0..2 * g.n + 2 {
            let mut changed = false;
            for &u in &g.topo {
                for a in g.succ.of(u) {
                    let least = start[u as usize] + a.weight(ii);
                    changed |= raise(&mut start, a.node as usize, least);
                }
            }
            for members in groups(g) {
                let stage = members.iter().map(|&m| start[m as usize] / ii).max().unwrap_or(0);
                for &m in members {
                    changed |= raise(&mut start, m as usize, stage * ii);
                }
            }
            if !changed {
                return Some(start);
            }
        }
        None
    }
}

/// Longest distances from op `k` over arcs between `n` ops, all of which it reaches.
fn distances(n: usize, arcs: &[(usize, usize, i64)], k: usize) -> Result<Vec<i64>, NoModel> {
    let mut d = vec![-NEVER; n];
    d[k] = 0;
    for _ in 0..=n {
        let mut changed = false;
        for &(u, v, w) in arcs {
            if d[u] > -NEVER && d[u] + w > d[v] {
                d[v] = d[u] + w;
                changed = true;
            }
        }
        if !changed {
            return if d.contains(&-NEVER) { Err(NoModel::TooLarge) } else { Ok(d) };
        }
    }
    // A cycle that grows asks for a larger II.
    Err(NoModel::Refuted)
}
