//! Explanations as text for people.

use super::Explanation;
use super::kernel::{ChannelWhy, KernelExplanation, LoopWhy};
use crate::{Options, gantt};
use std::fmt::{self, Write};
use tileas_schedule::explain::{Cycle, LinkKind, Load, Obstacle, RegionExplanation, Verdict, WhatIf};

/// Resources and holders named in one line.
const MAX_NAMED: usize = 6;
/// The unit that multiplies matrices, in the machine tables.
const TENSOR_CORE: &str = "tensor_core";
/// Candidates of the search that are printed.
const MAX_CANDIDATES: usize = 12;

impl Explanation {
    /// Words, tables and a chart of each loop.
    pub fn to_text(&self, options: &Options) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out, options);
        out
    }

    fn write(&self, out: &mut String, options: &Options) -> fmt::Result {
        let mut pictures = self.pictures.iter();
        for (k, kernel) in self.kernels.iter().enumerate() {
            if k > 0 {
                writeln!(out)?;
            }
            write_kernel(out, kernel)?;
            for l in &kernel.loops {
                writeln!(out)?;
                write_region(out, &l.region, l.real_cycles.as_deref())?;
                write_loop(out, l)?;
                if let Some(p) = pictures.next() {
                    writeln!(out, "\n{}", gantt(p, options).trim_end())?;
                }
            }
            write_channels(out, kernel)?;
            write_settings(out, kernel)?;
        }
        for (k, region) in self.graphs.iter().enumerate() {
            if k > 0 {
                writeln!(out)?;
            }
            write_region(out, region, None)?;
            if let Some(p) = pictures.next().filter(|_| region.verdict != Verdict::Empty) {
                writeln!(out, "\n{}", gantt(p, options).trim_end())?;
            }
        }
        Ok(())
    }
}

fn write_kernel(out: &mut String, k: &KernelExplanation) -> fmt::Result {
    writeln!(out, "kernel @{}", k.name)?;
    for a in &k.agents {
        let last = a.first_warp + (a.warps * a.instances).max(1) - 1;
        let elect = if a.elect { ", one elected lane" } else { "" };
        let warps =
            if a.warps > 1 { format!("warps {} to {last}", a.first_warp) } else { format!("warp {last}") };
        let turns = match a.instances {
            1 => String::new(),
            n => format!(", {n} groups of {} in turns, each on a tile of its own (ping-pong)", a.warps),
        };
        writeln!(out, "  {}: {warps}{elect}{turns}", a.name)?;
    }
    for line in &k.grid {
        writeln!(out, "  {line}")?;
    }
    if k.loops.is_empty() {
        writeln!(out, "  no loop to schedule: each agent runs its ops in program order")?;
    }
    Ok(())
}

/// `1 stage`, `2 stages`.
fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// What decides the interval, in a sentence.
pub(super) fn verdict(r: &RegionExplanation) -> String {
    match &r.verdict {
        Verdict::Empty => "Nothing to schedule.".into(),
        Verdict::Bound => format!("II {} is a lower bound: no schedule is faster.", r.ii),
        Verdict::Refuted => {
            format!("No bound binds ({} is the largest), but every smaller interval was refuted.", r.bound)
        }
        Verdict::Open(a, b) => format!(
            "No bound binds ({} is the largest). Whether {} would do is open: the search found none and proved nothing.",
            r.bound,
            if a == b { a.to_string() } else { format!("{a} to {b}") }
        ),
        Verdict::Serial(why) => format!("The serial generator ran, since {why}: one op after the other."),
    }
}

/// `ta 8 + tb 8`.
fn holders(l: &Load) -> String {
    let mut text: Vec<String> = l.holders.iter().take(MAX_NAMED).map(|(id, n)| format!("{id} {n}")).collect();
    if let Some(rest) = l.holders.get(MAX_NAMED..).filter(|r| !r.is_empty()) {
        text.push(format!("{} more {}", rest.len(), rest.iter().map(|h| h.1).sum::<u64>()));
    }
    text.join(" + ")
}

/// A load as a line.
fn load_line(l: &Load, ii: u64) -> String {
    let units = if l.capacity == 1 { String::new() } else { format!(" (capacity {})", l.capacity) };
    format!("{}: {} = {} of {}{units}", l.name, holders(l), l.busy, u64::from(l.capacity) * ii)
}

/// The steps of a cycle that are no plain dependences.
fn special_links(c: &Cycle) -> String {
    let serial = c.links.iter().filter(|l| l.kind == LinkKind::Serial).count();
    let group = c.links.iter().filter(|l| l.kind == LinkKind::Group).count();
    let mut notes = Vec::new();
    if serial > 0 {
        notes.push("forced-serial ops never overlap their group");
    }
    if group > 0 {
        notes.push("ops of one group share a stage");
    }
    if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) }
}

/// What needs the interval, a line each.
pub(super) fn binding_lines(r: &RegionExplanation) -> Vec<String> {
    let mut lines = Vec::new();
    let ii = i64::from(r.ii);
    for l in r.loads.iter().filter(|l| l.needs as i64 == ii) {
        lines.push(load_line(l, r.ii.into()));
    }
    for c in r.recurrences.iter().filter(|c| c.needs == ii) {
        lines.push(format!("recurrence {c}: {}{}", c.sum(), special_links(c)));
    }
    for c in r.chain.iter().filter(|c| c.needs == ii) {
        let what = if c.closed { "chain without slack" } else { "critical path" };
        lines.push(format!("{what} {c}: {}{}", c.sum(), special_links(c)));
    }
    lines
}

/// What needs less, in one line each kind.
pub(super) fn other_lines(r: &RegionExplanation) -> Vec<String> {
    let ii = i64::from(r.ii);
    let mut lines = Vec::new();
    let loads: Vec<String> =
        r.loads.iter().filter(|l| l.needs as i64 != ii).map(|l| format!("{} {}", l.name, l.needs)).collect();
    for part in loads.chunks(MAX_NAMED) {
        lines.push(part.join(", "));
    }
    for c in r.recurrences.iter().filter(|c| c.needs != ii) {
        lines.push(format!("recurrence {c} {}: {}", c.needs, c.sum()));
    }
    for c in r.chain.iter().filter(|c| c.needs != ii) {
        lines.push(format!("chain {c} {}: {}{}", c.needs, c.sum(), special_links(c)));
    }
    lines
}

/// The obstacles of the next smaller interval.
pub(super) fn obstacle_lines(r: &RegionExplanation) -> Vec<String> {
    let line = |o: &Obstacle| match o {
        Obstacle::Full { resource, busy, there } => {
            format!("{resource}: {busy} are taken, {there} would be there ({} too many)", busy - there)
        }
        Obstacle::Cycle { cycle, latency, there } => {
            format!(
                "recurrence {cycle}: takes {latency} cycles, would have {there} ({} too many)",
                latency - there
            )
        }
        Obstacle::Chain { chain, latency, there } => {
            format!("{chain}: takes {latency} cycles, would have {there} ({} too many)", latency - there)
        }
        Obstacle::Search { text, proof: true } => format!("not by a bound: {text}"),
        Obstacle::Search { text, proof: false } => format!("nothing proven: {text}"),
        Obstacle::Serial => "nothing: the serial generator looks for no smaller interval".to_owned(),
    };
    r.tighter.obstacles.iter().map(line).collect()
}

/// A change and its consequences.
pub(super) fn what_if_line(w: &WhatIf, r: &RegionExplanation) -> String {
    let bound = match w.bound.cmp(&r.bound) {
        std::cmp::Ordering::Equal => format!("the bound stays {}", w.bound),
        _ => format!("the bound is {}", w.bound),
    };
    let mut named = w.binders.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    if named.is_empty() {
        named.push_str("nothing binds");
    }
    let found = match w.found {
        Some(ii) if ii == w.bound => ", and is reached".to_owned(),
        Some(ii) => format!(", a short search finds {ii}"),
        None => String::new(),
    };
    format!("{}: {bound} ({named}){found}", w.change)
}

fn list(out: &mut String, head: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "{head}")?;
    lines.iter().try_for_each(|l| writeln!(out, "  {l}"))
}

fn write_region(out: &mut String, r: &RegionExplanation, real_cycles: Option<&str>) -> fmt::Result {
    if r.verdict == Verdict::Empty {
        return writeln!(out, "loop {}\n{}", r.name, verdict(r));
    }
    write!(out, "loop {}: an iteration every {}", r.name, count(r.ii.into(), "cycle"))?;
    writeln!(out, ", {}, {}", count(r.stages.into(), "stage"), r.generator)?;
    real_cycles.map_or(Ok(()), |text| writeln!(out, "{text}"))?;
    writeln!(out, "{}", verdict(r))?;
    list(out, "What binds", &binding_lines(r))?;
    list(out, "What needs less", &other_lines(r))?;
    if let Some(ii) = r.tighter.ii {
        list(out, &format!("Why not II {ii}"), &obstacle_lines(r))?;
    }
    let changes: Vec<String> = r.what_if.iter().map(|w| what_if_line(w, r)).collect();
    list(out, "What would change it", &changes)?;
    list(out, "How it was found", &search_lines(r))?;
    list(out, "Refinement", &r.rounds)?;
    list(out, "Remarks", &r.notes)?;
    writeln!(
        out,
        "Slack (alone: others stay; path: to the shortest iteration of {} cycles, here {};",
        r.shortest, r.length
    )?;
    writeln!(out, "     around: idle cycles on the tightest dependence cycle through the op)")?;
    write_ops(out, r)
}

/// Candidates and counts.
pub(super) fn search_lines(r: &RegionExplanation) -> Vec<String> {
    let s = &r.search;
    let mut lines = Vec::new();
    let skip = s.candidates.len().saturating_sub(MAX_CANDIDATES);
    let before = u64::from(s.forgotten) + skip as u64;
    if before > 0 {
        lines.push(format!("{} before these", count(before, "candidate")));
    }
    for c in &s.candidates[skip..] {
        lines.push(format!("II {}: {}{}", c.ii, c.end, if c.proof { " (a proof)" } else { "" }));
    }
    if s.attempts > 0 {
        let (a, p, e) = (s.attempts.into(), s.placements, s.evictions);
        lines.push(format!("{}, {}, {}", count(a, "attempt"), count(p, "placement"), count(e, "eviction")));
    }
    let mut arms: Vec<(String, u64)> = Vec::new();
    for arm in r.ops.iter().filter_map(|o| o.arm.as_ref()) {
        match arms.iter_mut().find(|a| a.0 == *arm) {
            Some(a) => a.1 += 1,
            None => arms.push((arm.clone(), 1)),
        }
    }
    for (arm, n) in arms {
        lines.push(format!("the arm `{arm}` placed {}", count(n, "op")));
    }
    let moved = r.ops.iter().filter(|o| o.first_start.is_some()).count() as u64;
    if moved > 0 {
        lines.push(format!("compaction moved {}", count(moved, "op")));
    }
    lines
}

fn write_ops(out: &mut String, r: &RegionExplanation) -> fmt::Result {
    let width = |f: &dyn Fn(&tileas_schedule::explain::OpWhy) -> usize, least: usize| {
        r.ops.iter().map(f).max().unwrap_or(0).max(least)
    };
    let (id, name) = (width(&|o| o.id.chars().count(), 2), width(&|o| o.name.chars().count(), 2));
    write!(
        out,
        "  {:>5}  {:<id$}  {:<name$}  {:>6}  {:>5}  {:>6}",
        "order", "id", "op", "start", "stage", "row"
    )?;
    writeln!(out, "  {:>6}  {:>6}  {:>6}  {:>6}  by", "alone", "path", "around", "first")?;
    let some = |v: Option<i64>| v.map_or("-".to_owned(), |v| v.to_string());
    for o in &r.ops {
        write!(out, "  {:>5}  {:<id$}  {:<name$}  {:>6}", o.order, o.id, o.name, o.start)?;
        write!(out, "  {:>5}  {:>6}", o.stage, o.row)?;
        let (alone, around) = (some(o.slack.alone), some(o.slack.around));
        let first = o.first_start.unwrap_or(o.start.into());
        write!(out, "  {alone:>6}  {:>6}  {around:>6}  {first:>6}", o.slack.path())?;
        writeln!(out, "  {}", o.arm.as_deref().or(r.search.strategy.as_deref()).unwrap_or("serial"))?;
    }
    Ok(())
}

fn write_loop(out: &mut String, l: &LoopWhy) -> fmt::Result {
    list(out, "In clocks", &clock_lines(l))?;
    list(out, "Agents", &agent_lines(l))?;
    list(out, "Source", &source_lines(l))?;
    if l.reached > l.region.ii {
        writeln!(
            out,
            "With the rings that fit, an iteration takes {} cycles instead of {}.",
            l.reached, l.region.ii
        )?;
    }
    Ok(())
}

/// Who runs what of a loop.
pub(super) fn agent_lines(l: &LoopWhy) -> Vec<String> {
    let line = |a: &super::kernel::AgentLoop| {
        let ops: Vec<String> = a
            .ops
            .iter()
            .map(|(id, local)| {
                if *local == 0 {
                    id.clone()
                } else {
                    format!("{id} of {} before", count((*local).into(), "iteration"))
                }
            })
            .collect();
        let form = match a.skew {
            0 => "a plain loop".to_owned(),
            n => format!("a loop skewed by {}", count(n.into(), "stage")),
        };
        format!("{} begins at cycle {}, {form}: {}", a.agent, a.first, ops.join(", "))
    };
    l.agents.iter().map(line).collect()
}

/// What units of the processor have to do in an iteration: cycles of the published slots say what fits together, not how long it takes.
pub(super) fn clock_lines(l: &LoopWhy) -> Vec<String> {
    let list = |of: &[&(String, u32)]| {
        of.iter().map(|(name, clocks)| format!("{name} {clocks}")).collect::<Vec<_>>().join(", ")
    };
    let (agents, units): (Vec<_>, Vec<_>) = l.clocks.iter().partition(|c| c.0.starts_with("agent"));
    let mut lines = Vec::new();
    if let Some((first, most)) = units.first().filter(|c| c.1 > 0) {
        let mut bound = format!("{}: an iteration takes {most} at least, for {first}", list(&units));
        if let Some((_, clocks)) = units.iter().find(|c| c.0 == TENSOR_CORE && c.1 < *most) {
            let share = u64::from(*clocks) * 100 / u64::from(*most);
            let _ = write!(bound, ", of which {TENSOR_CORE} is busy {share} %");
        }
        lines.push(bound);
    }
    if !agents.is_empty() {
        lines.push(format!("{}: work of threads if none of it overlaps", list(&agents)));
    }
    lines
}

/// The place of each op in the program that the front end read.
pub(super) fn source_lines(l: &LoopWhy) -> Vec<String> {
    let width = |of: fn(&(String, String, String)) -> &String| {
        l.sources.iter().map(|s| of(s).len()).max().unwrap_or(0)
    };
    let (id, name) = (width(|s| &s.0), width(|s| &s.1));
    l.sources.iter().map(|s| format!("{:id$}  {:name$}  {}", s.0, s.1, s.2)).collect()
}

/// The headline of a channel.
pub(super) fn channel_line(c: &ChannelWhy) -> String {
    let values = if c.values.is_empty() { String::new() } else { format!(" of {}", c.values.join(", ")) };
    let to = c.to.join(", ");
    format!("{} ({}{values}), {} -> {to}: {}", c.name, c.kind, c.from, count(c.depth.into(), "slot"))
}

fn write_channels(out: &mut String, k: &KernelExplanation) -> fmt::Result {
    if k.channels.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nChannels ({} bytes of shared memory, {} columns of tensor memory)",
        k.smem_bytes, k.tmem_columns
    )?;
    for c in &k.channels {
        writeln!(out, "  {}", channel_line(c))?;
        for f in &c.facts {
            writeln!(out, "    {f}")?;
        }
    }
    Ok(())
}

fn write_settings(out: &mut String, k: &KernelExplanation) -> fmt::Result {
    let lines: Vec<String> = k.what_if.iter().map(|w| format!("{}: {}", w.setting, w.effect)).collect();
    if !lines.is_empty() {
        writeln!(out)?;
    }
    list(out, "Other settings", &lines)
}
