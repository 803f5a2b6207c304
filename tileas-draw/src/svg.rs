//! Vector pictures: executions on tracks by lane over several iterations, dependences, reservation table below.
//!
//! In: pictures. Out: one SVG document, loops from top to bottom; it carries its own style for light and dark and needs
//! neither script nor font. An op has one colour everywhere and one `<title>` with all its numbers. An arrow leaves where the
//! result is ready and ends where the next op starts: its horizontal extent is the slack of the dependence.

use crate::picture::{Bar, Layout, Options, Picture};
use crate::rows::{ResourceRow, resource_rows};
use std::fmt::{self, Write};
use tileas_schedule::Node;
use tileas_schedule::render::slack;

/// Pixels: labels on the left, drawing, one track, the gap between lanes.
const LABEL: f64 = 150.0;
const WIDTH: f64 = 1050.0;
const TRACK: f64 = 24.0;
const GAP: f64 = 8.0;
/// Widest cycle, and width of a character of a label inside a bar.
const MAX_CYCLE: f64 = 16.0;
const CHARACTER: f64 = 6.3;
/// Height of a slot's row in the reservation table.
const CELL: f64 = 20.0;

/// Style of drawings; also used by the page.
pub(super) const STYLE: &str = "svg text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328}svg .dim{fill:#59636e}
svg .head{font:600 14px system-ui,sans-serif}.paper{fill:#fff}svg .in{fill:#101418;pointer-events:none}.lane{fill:#f4f6f8}
.begin{stroke:#c4ccd4;stroke-dasharray:3 3}.tail{stroke-width:2}.frame{fill:none;stroke:#c4ccd4}
.edge{opacity:.55}.edge path{fill:none;stroke:#1f2328;stroke-width:1.2}.edge circle{fill:#1f2328}
.carried path{stroke-dasharray:5 3}
@media(prefers-color-scheme:dark){svg text,.edge circle{fill:#e6edf3}svg .dim{fill:#9198a1}svg .in{fill:#101418}
.lane{fill:#1b2128}.paper{fill:#0d1117}.begin,.frame{stroke:#3d444d}.edge path{stroke:#e6edf3}}";

/// The drawing of some loops.
pub fn svg(pictures: &[Picture], options: &Options) -> String {
    let mut body = String::new();
    let mut y = 10.0;
    for (k, p) in pictures.iter().filter(|p| p.is_valid()).enumerate() {
        // Writing to a string cannot fail.
        let _ = section(&mut body, p, options, k, &mut y);
    }
    let width = LABEL + WIDTH + 20.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {y:.0}\" width=\"{width:.0}\" \
         height=\"{y:.0}\" role=\"img\" aria-label=\"modulo schedule\">\n<style>{STYLE}</style>\n<rect class=\"paper\" width=\"{width:.0}\" height=\"{y:.0}\"/>\n{body}</svg>\n"
    )
}

/// Colour of an op: neighbours in program order are far apart on the wheel. Later iterations are paler.
fn colour(n: Node, iteration: u32) -> String {
    let hue = (u64::from(n.as_u32()) * 137 + 210) % 360;
    let light = 58 + (iteration * 7).min(28);
    format!("hsl({hue},62%,{light}%)")
}

/// All numbers of an op, a line each.
pub(super) fn details(p: &Picture, n: Node) -> String {
    let (problem, s) = (&p.problem, &p.schedule);
    let mut t = format!("{} = {}", problem.id(n), problem.op_name(n));
    if let Some(lane) = p.lanes.names.get(p.lanes.of[n] as usize) {
        let _ = write!(t, ", {lane}");
    }
    if !p.ir[n].is_empty() {
        let _ = write!(t, "\n{}", p.ir[n]);
    }
    let row = s.start[n] % s.ii.max(1);
    let _ = write!(t, "\nstart {}, stage {}, row {row}, order {}", s.start[n], s.stage[n], s.order[n]);
    let slack = slack(problem, s, n).map_or("nothing waits for it".into(), |v| format!("slack {v}"));
    let _ = write!(t, "\nlatency {}, {slack}", problem.latency(n));
    for u in problem.uses(n) {
        let r = &problem.slots()[u.slot];
        let (from, to) = (u64::from(u.offset), u64::from(u.offset) + u64::from(u.duration));
        let _ = write!(t, "\nslot {}: {} of {} in cycles +{from} to +{to}", r.name, u.occupancy, r.capacity);
    }
    for u in problem.pool_uses(n) {
        let r = &problem.pools()[u.pool];
        let _ = write!(t, "\npool {}: {} of {} in cycles +0 to +{}", r.name, u.count, r.capacity, u.duration);
    }
    let _ = write!(t, "\nplaced by {}", p.placed_by(n));
    if let Some(group) = problem.group(n) {
        let _ = write!(t, "\ngroup {group}");
    }
    if problem.max_depth(n) > 0 {
        let _ = write!(t, "\nstage at most {}", problem.max_depth(n));
    }
    if problem.force_serial(n) {
        t.push_str("\nnever overlaps itself or its group");
    }
    t
}

/// Places in the drawing.
struct Scale {
    cycle: f64,
    top: Vec<f64>,
}

impl Scale {
    fn x(&self, cycle: u64) -> f64 {
        LABEL + cycle as f64 * self.cycle
    }

    fn y(&self, b: &Bar) -> f64 {
        self.top.get(b.lane as usize).copied().unwrap_or(0.0) + f64::from(b.track) * TRACK
    }
}

/// One loop, from `y` on.
pub(super) fn section(out: &mut String, p: &Picture, o: &Options, k: usize, y: &mut f64) -> fmt::Result {
    let iterations = p.iterations(o);
    let layout = Layout::new(p, iterations);
    let last = p.end() + p.ii() * u64::from(iterations - 1);
    *y += 12.0;
    let title = format!("{}: {}", p.schedule.name, p.headline());
    writeln!(out, "<text class=\"head\" x=\"4\" y=\"{:.1}\">{}</text>", *y, escape(&title))?;
    *y += 24.0;
    let first = *y;
    let mut scale = Scale { cycle: (WIDTH / last.max(1) as f64).min(MAX_CYCLE), top: Vec::new() };
    for (lane, &tracks) in layout.tracks.iter().enumerate() {
        scale.top.push(*y);
        let height = f64::from(tracks) * TRACK;
        writeln!(
            out,
            "<rect class=\"lane\" x=\"0\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"3\"/>",
            *y - 3.0,
            LABEL + WIDTH + 10.0,
            height + 4.0
        )?;
        let name = p.lanes.names.get(lane).map_or("", |n| n.as_str());
        writeln!(out, "<text x=\"6\" y=\"{:.1}\">{}</text>", *y + 15.0, escape(name))?;
        *y += height + GAP;
    }
    begins(out, p, &scale, last, first, *y)?;
    let mut by_node: Vec<Vec<&Bar>> = vec![Vec::new(); p.problem.num_nodes()];
    for b in &layout.bars {
        by_node[b.node.as_u32() as usize].push(b);
    }
    for bars in &by_node {
        let Some(b) = bars.first() else { continue };
        write!(out, "<g class=\"op\" data-l=\"{k}\" data-n=\"{}\">", b.node.as_u32())?;
        writeln!(out, "<title>{}</title>", escape(&details(p, b.node)))?;
        for b in bars {
            bar(out, p, &scale, b)?;
        }
        writeln!(out, "</g>")?;
    }
    edges(out, p, &scale, &by_node, k)?;
    *y += 10.0;
    reservations(out, p, k, y)
}

/// Lines where iterations begin, with their cycle.
fn begins(out: &mut String, p: &Picture, scale: &Scale, last: u64, top: f64, bottom: f64) -> fmt::Result {
    // Numbers need room; lines at least a few pixels.
    let every = (40.0 / (p.ii() as f64 * scale.cycle)).ceil().max(1.0) as u64;
    for i in (0..=last / p.ii()).step_by(every as usize) {
        let x = scale.x(i * p.ii());
        let (y1, y2) = (top - 6.0, bottom - 4.0);
        writeln!(out, "<line class=\"begin\" x1=\"{x:.1}\" y1=\"{y1:.1}\" x2=\"{x:.1}\" y2=\"{y2:.1}\"/>")?;
        writeln!(
            out,
            "<text class=\"dim\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 2.0,
            top - 7.0,
            i * p.ii()
        )?;
    }
    Ok(())
}

/// One execution: what is held, a line until the result is ready, the name where it fits.
fn bar(out: &mut String, p: &Picture, scale: &Scale, b: &Bar) -> fmt::Result {
    let (x, y) = (scale.x(b.start), scale.y(b));
    let w = (scale.x(b.held) - x).max(1.0);
    let fill = colour(b.node, b.iteration);
    if b.end > b.held {
        let (x1, x2, at) = (x + w, scale.x(b.end), y + TRACK - 7.5);
        write!(
            out,
            "<line class=\"tail\" x1=\"{x1:.1}\" y1=\"{at:.1}\" x2=\"{x2:.1}\" y2=\"{at:.1}\" stroke=\"{fill}\"/>"
        )?;
    }
    let inner = (w - 1.0).max(0.8);
    write!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{inner:.1}\" height=\"18\" rx=\"3\" fill=\"{fill}\"/>"
    )?;
    let name = p.problem.id(b.node);
    let whole = format!("{name} {}", b.iteration);
    let fits = |t: &str| t.chars().count() as f64 * CHARACTER + 6.0 <= w;
    let text = [whole.as_str(), name].into_iter().find(|t| fits(t));
    if let Some(text) = text {
        write!(out, "<text class=\"in\" x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 3.0, y + 13.0, escape(text))?;
    }
    writeln!(out)
}

/// Dependences out of iteration 0.
fn edges(out: &mut String, p: &Picture, scale: &Scale, by_node: &[Vec<&Bar>], k: usize) -> fmt::Result {
    for e in p.problem.edges().values() {
        let from = by_node[e.from.as_u32() as usize].first();
        let to = by_node[e.to.as_u32() as usize].iter().find(|b| b.iteration == e.distance);
        let (Some(a), Some(b)) = (from, to) else { continue };
        let actual = i128::from(b.start) - i128::from(a.start);
        let ready = a.start.saturating_add_signed(e.latency.into());
        let (x0, y0) = (scale.x(ready), scale.y(a) + 9.0);
        let (x1, y1) = (scale.x(b.start), scale.y(b) + 9.0);
        let class = if e.distance > 0 { "edge carried" } else { "edge" };
        let (from, to) = (e.from.as_u32(), e.to.as_u32());
        write!(out, "<g class=\"{class}\" data-l=\"{k}\" data-a=\"{from}\" data-b=\"{to}\"><title>")?;
        let slack = actual - i128::from(e.latency);
        write!(out, "{} → {}", escape(p.problem.id(e.from)), escape(p.problem.id(e.to)))?;
        write!(out, "\nat least {} cycles, here {actual}, slack {slack}", e.latency)?;
        write!(
            out,
            "\n{}</title>",
            match e.distance {
                0 => "in one iteration".to_owned(),
                1 => "to the next iteration".to_owned(),
                d => format!("{d} iterations later"),
            }
        )?;
        let bend = ((x1 - x0).abs() / 2.0).clamp(0.0, 30.0);
        write!(
            out,
            "<path d=\"M{x0:.1} {y0:.1} C{:.1} {y0:.1} {:.1} {y1:.1} {x1:.1} {y1:.1}\"/>",
            x0 + bend,
            x1 - bend
        )?;
        writeln!(out, "<circle cx=\"{x1:.1}\" cy=\"{y1:.1}\" r=\"2.6\"/></g>")?;
    }
    Ok(())
}

/// The table: a row per slot or pool, cycles modulo II from left to right, units from bottom to top.
fn reservations(out: &mut String, p: &Picture, k: usize, y: &mut f64) -> fmt::Result {
    let Some(rows) = resource_rows(p) else {
        *y += 12.0;
        writeln!(
            out,
            "<text class=\"dim\" x=\"6\" y=\"{:.1}\">(table of {} rows left out)</text>",
            *y,
            p.ii()
        )?;
        return Ok(());
    };
    if rows.is_empty() {
        return Ok(());
    }
    let cycle = (WIDTH * 0.75 / p.ii() as f64).min(28.0);
    *y += 8.0;
    writeln!(out, "<text class=\"dim\" x=\"6\" y=\"{:.1}\">modulo {}</text>", *y, p.ii())?;
    let every = (30.0 / cycle).ceil().max(1.0) as u64;
    for c in (0..p.ii()).step_by(every as usize) {
        let x = LABEL + c as f64 * cycle + 1.0;
        writeln!(out, "<text class=\"dim\" x=\"{x:.1}\" y=\"{:.1}\">{c}</text>", *y)?;
    }
    *y += 6.0;
    for r in &rows {
        resource(out, p, k, r, cycle, *y)?;
        *y += CELL + 4.0;
    }
    *y += 8.0;
    Ok(())
}

fn resource(out: &mut String, p: &Picture, k: usize, r: &ResourceRow<'_>, cycle: f64, y: f64) -> fmt::Result {
    let kind = if r.is_pool { "pool " } else { "" };
    let name = format!("{kind}{}", r.name);
    writeln!(out, "<text x=\"6\" y=\"{:.1}\">{}</text>", y + 14.0, escape(&name))?;
    let width = p.ii() as f64 * cycle;
    let unit = CELL / f64::from(r.capacity.max(1));
    for run in &r.runs {
        let (x, w) = (LABEL + f64::from(run.from) * cycle, f64::from(run.to - run.from) * cycle);
        let (h, top) = (run.amount as f64 * unit, y + CELL - (run.below + run.amount) as f64 * unit);
        let n = run.node;
        write!(out, "<g class=\"op\" data-l=\"{k}\" data-n=\"{}\"><title>", n.as_u32())?;
        write!(out, "{}: {} of {} {}", escape(p.problem.id(n)), run.amount, r.capacity, escape(r.name))?;
        write!(out, "\nrows {} to {}</title>", run.from, run.to - 1)?;
        write!(
            out,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{h:.1}\"",
            (w - 0.7).max(0.5)
        )?;
        write!(out, " fill=\"{}\"/>", colour(n, 0))?;
        let text = p.problem.id(n);
        if h >= 13.0 && text.chars().count() as f64 * CHARACTER + 4.0 <= w {
            write!(
                out,
                "<text class=\"in\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 3.0,
                top + h / 2.0 + 4.0,
                escape(text)
            )?;
        }
        writeln!(out, "</g>")?;
    }
    let load = format!("{} of {} ({} %)", r.busy, u64::from(r.capacity) * p.ii(), r.percent(p.ii()));
    writeln!(
        out,
        "<rect class=\"frame\" x=\"{LABEL}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{CELL}\"/>"
    )?;
    writeln!(out, "<text class=\"dim\" x=\"{:.1}\" y=\"{:.1}\">{load}</text>", LABEL + width + 8.0, y + 14.0)
}

/// Text for HTML, SVG and their attributes. What XML cannot contain becomes a replacement character.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
