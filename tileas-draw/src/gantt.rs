//! A chart for terminals: iterations over time by lane, and the reservation table lying on its side.
//!
//! A row per op. The digit is the iteration (modulo 10) that holds the op's slots, `-` the wait for its result, `|` the
//! begin of an iteration. What is wider than asked for is scaled: a column then stands for several cycles, and says
//! so. In the table below, a row per slot or pool: `.` free, `#` full, else the units taken.

use crate::picture::{Options, Picture};
use crate::rows::resource_rows;
use std::fmt::{self, Write};
use tileas_schedule::Node;

/// Narrowest chart, labels not counted.
const MIN_COLUMNS: usize = 16;
/// Longest label; longer ones lose their end.
const MAX_LABEL: usize = 24;

/// The chart of one loop. `options.width` counts all columns; the chart itself has at least 16.
pub fn gantt(p: &Picture, options: &Options) -> String {
    if !p.is_valid() {
        return "(a schedule of another problem)\n".to_owned();
    }
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_chart(&mut out, p, options);
    out
}

/// At most [`MAX_LABEL`] characters.
fn short(text: &str) -> String {
    if text.chars().count() <= MAX_LABEL {
        return text.to_owned();
    }
    text.chars().take(MAX_LABEL - 1).chain(['…']).collect()
}

fn write_chart(out: &mut String, p: &Picture, options: &Options) -> fmt::Result {
    let ii = p.ii();
    let iterations = u64::from(p.iterations(options));
    let last = p.end() + ii * (iterations - 1);
    let resources = resource_rows(p).unwrap_or_default();
    let ids = p.problem.nodes().map(|n| p.problem.id(n).chars().count() + 2);
    let names = p.lanes.names.iter().map(|n| n.chars().count());
    let loads: Vec<String> =
        resources.iter().map(|r| format!("{}/{}", r.busy, u64::from(r.capacity) * ii)).collect();
    let label = ids.chain(names).chain(resources.iter().map(|r| r.name.chars().count())).max().unwrap_or(0);
    let label = label.min(MAX_LABEL);
    let columns = options.width.saturating_sub(label + 1).max(MIN_COLUMNS);
    let scale = last.div_ceil(columns as u64).max(1);
    let columns = last.div_ceil(scale) as usize;

    writeln!(out, "{}: {}", p.schedule.name, p.headline())?;
    write!(out, "one column = {scale} cycle(s), digit = iteration that holds slots, - = until the result, ")?;
    writeln!(out, "| = an iteration begins")?;
    if p.problem.num_nodes() == 0 {
        return writeln!(out, "(no ops)");
    }
    ruler(out, label, columns, scale, ii)?;
    let mut nodes: Vec<Node> = p.problem.nodes().collect();
    nodes.sort_by_key(|&n| (p.lanes.of[n], p.schedule.order[n]));
    let mut lane = None;
    for n in nodes {
        if lane != Some(p.lanes.of[n]) {
            lane = Some(p.lanes.of[n]);
            let name = p.lanes.names.get(p.lanes.of[n] as usize).map_or("", |n| n.as_str());
            writeln!(out, "{}", short(name))?;
        }
        let mut row = vec!['.'; columns];
        for i in 0..=last / ii {
            if let Some(cell) = row.get_mut((i * ii / scale) as usize) {
                *cell = '|';
            }
        }
        // Earlier iterations over later ones, what is held over what is awaited.
        for held in [false, true] {
            for i in (0..iterations).rev() {
                let start = p.start(n) + ii * i;
                let length = if held { p.held(n) } else { p.span(n) };
                let mark = if held { char::from(b'0' + (i % 10) as u8) } else { '-' };
                let to = (start + length).div_ceil(scale).min(columns as u64);
                let from = (start / scale).min(to);
                row[from as usize..to as usize].fill(mark);
            }
        }
        let row: String = row.into_iter().collect();
        writeln!(out, "{:<label$} {}", short(&format!("  {}", p.problem.id(n))), row.trim_end_matches('.'))?;
    }
    if resources.is_empty() {
        return Ok(());
    }

    let scale = ii.div_ceil(options.width.saturating_sub(label + 1).max(MIN_COLUMNS) as u64).max(1);
    let columns = ii.div_ceil(scale) as usize;
    writeln!(out)?;
    write!(out, "modulo {ii}, one column = {scale} cycle(s), . = free, # = full, else units taken")?;
    writeln!(out, "; right: cycles taken of those there are")?;
    for (r, load) in resources.iter().zip(&loads) {
        let mut row = String::with_capacity(columns);
        for part in r.taken.chunks(scale as usize) {
            let most = part.iter().copied().max().unwrap_or(0);
            row.push(match most {
                0 => '.',
                n if n >= u64::from(r.capacity) => '#',
                n @ 1..=9 => char::from(b'0' + n as u8),
                _ => '+',
            });
        }
        let kind = if r.is_pool { ", pool" } else { "" };
        writeln!(out, "{:<label$} {row} {load} ({} %{kind})", short(r.name), r.percent(ii))?;
    }
    Ok(())
}

/// Cycle numbers where iterations begin, as many as there is room for.
fn ruler(out: &mut String, label: usize, columns: usize, scale: u64, ii: u64) -> fmt::Result {
    let mut row = String::new();
    for i in 0.. {
        let at = (i * ii / scale) as usize;
        if at >= columns {
            break;
        }
        let text = (i * ii).to_string();
        if (row.is_empty() || at > row.len()) && at + text.len() <= columns {
            row.extend(std::iter::repeat_n(' ', at - row.len()));
            row.push_str(&text);
        }
    }
    writeln!(out, "{:label$} {row}", "")
}
