//! A schedule as text for people: a table of ops and the modulo reservation table.
//!
//! In: a problem and its schedule. Out: strings; nothing here decides anything. Charts and other pictures are drawn
//! elsewhere.

use super::RegionSchedule;
use crate::entities::Node;
use crate::problem::Problem;
use std::fmt::Write;

/// Rows of the longest reservation table that is printed.
const MAX_ROWS: usize = 512;
/// How often an op is named in a row that it holds in several iterations.
const MAX_TIMES: u64 = 4;

/// Cycles an op could start later without breaking a dependence, all others staying where they are; `None` if nothing
/// depends on it.
pub fn slack(p: &Problem, s: &RegionSchedule, node: Node) -> Option<i64> {
    let out = p.edges().values().filter(|e| e.from == node && e.to != node);
    out.map(|e| {
        let ready = i64::from(s.start[node]) + i64::from(e.latency);
        i64::from(s.start[e.to]) + i64::from(s.ii) * i64::from(e.distance) - ready
    })
    .min()
}

/// Headline, bounds with witnesses, ops in order, and who holds which slot modulo II: a row per cycle in which that
/// changes.
pub fn table(p: &Problem, s: &RegionSchedule) -> String {
    if s.start.len() != p.num_nodes() {
        return "(a schedule of another problem)\n".to_owned();
    }
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut out, p, s);
    out
}

fn write_table(out: &mut String, p: &Problem, s: &RegionSchedule) -> std::fmt::Result {
    write!(out, "{}: ii = {}, {} stages", s.name, s.ii, s.code_stages())?;
    write!(out, " (stage_count {}), {}", s.stage_count, s.generator)?;
    if s.stats.ii_is_optimal {
        write!(out, ", optimal")?;
    }
    if s.status.serial_fallback {
        write!(out, ", fallback")?;
    }
    if s.status.budget_exceeded {
        write!(out, ", budget exceeded")?;
    }
    if s.stats.curtailed {
        write!(out, ", steps of the function spent")?;
    }
    if s.status.truncated {
        write!(out, ", truncated")?;
    }
    writeln!(out)?;
    if let Some(o) = &s.optimality {
        writeln!(out, "exact mode: {o} ({} steps)", o.steps)?;
    }
    let ids = |nodes: &[Node]| nodes.iter().map(|&n| p.id(n)).collect::<Vec<_>>().join(" -> ");
    let b = &s.bounds;
    let slot = b.resource_slot.map_or("-", |x| &p.slots()[x].name);
    let pool = b.density_pool.map_or("-", |x| &p.pools()[x].name);
    writeln!(out, "bounds: resource {} ({slot}), fine density {} ({pool}),", b.resource, b.fine_density)?;
    let cycle = if b.recurrence_cycle.is_empty() { "-".to_owned() } else { ids(&b.recurrence_cycle) };
    let chain = if b.dependency_chain.is_empty() { "-".to_owned() } else { ids(&b.dependency_chain) };
    writeln!(out, "        recurrence {} ({cycle}), dependency {} ({chain})", b.recurrence, b.dependency)?;
    let nodes = s.by_order();
    let width = |f: &dyn Fn(Node) -> usize, least| nodes.iter().map(|&n| f(n)).max().unwrap_or(0).max(least);
    let id_width = width(&|n| p.id(n).chars().count(), 2);
    let name_width = width(&|n| p.op_name(n).chars().count(), 2);
    writeln!(out)?;
    writeln!(out, "order  {:<id_width$}  {:<name_width$}  start  stage  cycle  slack", "id", "op")?;
    for &n in &nodes {
        let slack = slack(p, s, n).map_or("-".to_owned(), |v| v.to_string());
        let (id, name, start) = (p.id(n), p.op_name(n), s.start[n]);
        write!(out, "{:>5}  {id:<id_width$}  {name:<name_width$}  {start:>5}", s.order[n])?;
        writeln!(out, "  {:>5}  {:>5}  {slack:>5}", s.stage[n], start % s.ii.max(1))?;
    }
    write_reservations(out, p, s)
}

fn write_reservations(out: &mut String, p: &Problem, s: &RegionSchedule) -> std::fmt::Result {
    let used: Vec<_> = p.slots().iter().filter(|(k, _)| holders(p, *k).next().is_some()).collect();
    if used.is_empty() || s.ii == 0 {
        return Ok(());
    }
    writeln!(out)?;
    let ii = u64::from(s.ii);
    let first = |n: Node, u: &super::Use| (u64::from(s.start[n]) + u64::from(u.offset)) % ii;
    // Where a reservation begins or ends: from one such row to the next nothing changes.
    let ends = p.nodes().flat_map(|n| p.uses(n).iter().map(move |u| (n, u)));
    let mut rows: Vec<u64> =
        ends.flat_map(|(n, u)| [first(n, u), (first(n, u) + u64::from(u.duration)) % ii]).collect();
    rows.push(0);
    rows.sort_unstable();
    rows.dedup();
    if rows.len() > MAX_ROWS {
        return writeln!(out, "(reservation table of {} rows not printed)", rows.len());
    }
    let mut columns: Vec<Vec<String>> = Vec::new();
    for &(slot, _) in &used {
        let mut cells: Vec<String> = vec![String::new(); rows.len()];
        for (n, u) in holders(p, slot) {
            for (cell, &row) in cells.iter_mut().zip(&rows) {
                let behind = (row + ii - first(n, u)) % ii;
                let times = (u64::from(u.duration) + ii - 1 - behind) / ii;
                for _ in 0..times.min(MAX_TIMES) {
                    if !cell.is_empty() {
                        cell.push(' ');
                    }
                    cell.push_str(p.id(n));
                    if u.occupancy > 1 {
                        write!(cell, "*{}", u.occupancy)?;
                    }
                }
            }
        }
        columns.push(cells);
    }
    let widths: Vec<usize> = used
        .iter()
        .zip(&columns)
        .map(|((_, r), c)| c.iter().map(|x| x.chars().count()).max().unwrap_or(0).max(r.name.chars().count()))
        .collect();
    write!(out, "cycle")?;
    for ((_, r), w) in used.iter().zip(&widths) {
        write!(out, " | {:<w$}", r.name)?;
    }
    writeln!(out)?;
    for (k, row) in rows.iter().enumerate() {
        if k > 0 && columns.iter().all(|c| c[k] == c[k - 1]) {
            continue;
        }
        write!(out, "{row:>5}")?;
        for (c, w) in columns.iter().zip(&widths) {
            let text = if c[k].is_empty() { "." } else { &c[k] };
            write!(out, " | {text:<w$}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn holders(p: &Problem, slot: super::Slot) -> impl Iterator<Item = (Node, &super::Use)> {
    p.nodes().flat_map(move |n| {
        let uses = p.uses(n).iter();
        uses.filter(move |u| u.slot == slot && u.duration > 0 && u.occupancy > 0).map(move |u| (n, u))
    })
}
