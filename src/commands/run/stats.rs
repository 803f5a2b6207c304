//! `--stats` and `--stats-json`: what the first run cost, as a table and as a document.

use super::Kernel;
use crate::Failure;
use crate::input::{say, write_output};
use tileas_emu::Stats;
use tileas_emu::stats::{Line, Requests};

/// Most lines of a list of the worst.
const WORST: usize = 5;

/// Most characters of an instruction in a table.
const WIDTH: usize = 60;

/// Prints the table.
pub fn print(run: &str, s: &Stats) -> Result<(), Failure> {
    say(table(run, s).trim_end())
}

/// Writes all counts.
pub fn write(file: &str, kernel: &Kernel, run: &str, s: &Stats) -> Result<(), Failure> {
    let all = serde_json::json!({ "kernel": kernel.name, "run": run, "stats": s });
    write_output(file, &format!("{all:#}\n"))
}

/// A part of a whole; nothing where there is no whole.
fn per(n: u64, of: u64) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.1}", n as f64 / of as f64) }
}

fn used(r: &Requests) -> String {
    r.used().map_or_else(|| "-".to_owned(), |x| format!("{:.1}%", 100.0 * x))
}

/// Numbers of global memory, below the head of [`table`].
fn global(r: &Requests) -> String {
    let per = per(r.sectors, r.requests);
    format!("{:>10} {:>10} {per:>11} {:>12} {:>7}", r.requests, r.sectors, r.bytes, used(r))
}

/// An instruction on one line, cut where it is long.
fn instruction(line: &Line) -> String {
    let text = line.text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The instructions with the most of something, the first of the text among equals; none that has nothing of it.
fn worst(s: &Stats, of: fn(&Line) -> u64) -> Vec<&Line> {
    let mut lines: Vec<&Line> = s.lines.iter().filter(|l| of(l) != 0).collect();
    lines.sort_by_key(|l| std::cmp::Reverse(of(l)));
    lines.truncate(WORST);
    lines
}

/// The table: a summary, then the worst lines.
fn table(run: &str, s: &Stats) -> String {
    let mut out = format!("statistics of {run}: {} warps\n", s.warps);
    let mut add = |line: String| {
        out.push_str(line.trim_end());
        out.push('\n');
    };
    let kinds = [
        ("loads", s.loads),
        ("stores", s.stores),
        ("atomics", s.atomics),
        ("bulk loads", s.bulk_loads),
        ("bulk stores", s.bulk_stores),
    ];
    let head = "  requests    sectors per request        bytes    used";
    if kinds.iter().any(|k| k.1.requests != 0) {
        add(format!("  global memory  {head}"));
    }
    for (name, r) in kinds.iter().filter(|k| k.1.requests != 0) {
        add(format!("    {name:<13}{}", global(r)));
    }
    let shared_head = "  requests wavefronts per request   conflicts";
    if s.shared.requests != 0 {
        let (x, w) = (&s.shared, s.shared.wavefronts);
        add(format!("  shared memory  {shared_head}"));
        add(format!(
            "                 {:>10} {w:>10} {:>11} {:>11}",
            x.requests,
            per(w, x.requests),
            x.conflicts()
        ));
    }
    let (t, m) = (&s.total, &s.most);
    let counts = [
        ("all", t.instructions, m.instructions),
        ("shuffles", t.shuffles, m.shuffles),
        ("barriers", t.barriers, m.barriers),
        ("mbarrier waits", t.waits, m.waits),
        ("local loads", t.local_loads, m.local_loads),
        ("local stores", t.local_stores, m.local_stores),
        ("mma", t.mma, m.mma),
        ("wgmma", t.wgmma, m.wgmma),
        ("tcgen05.mma", t.tcgen05_mma, m.tcgen05_mma),
        ("tcgen05.ld, .st, .cp", t.tcgen05_moves, m.tcgen05_moves),
    ];
    add("  instructions        of all   most of a warp".to_owned());
    for (name, all, most) in counts.iter().filter(|c| c.1 != 0) {
        add(format!("    {name:<20} {all:>7} {most:>14}"));
    }
    if s.polls != 0 {
        add(format!("    {:<20} {:>7}", "polls", s.polls));
    }
    let lines = worst(s, |l| l.global.wasted());
    if !lines.is_empty() {
        add(format!("  wasted sectors {head}"));
    }
    for l in lines {
        add(format!("    line {:<8}{}  {}", l.line, global(&l.global), instruction(l)));
    }
    let lines = worst(s, |l| l.shared.conflicts());
    if !lines.is_empty() {
        add(format!("  bank conflicts {shared_head}"));
    }
    for l in lines {
        let (x, w) = (&l.shared, l.shared.wavefronts);
        add(format!(
            "    line {:<8}{:>10} {w:>10} {:>11} {:>11}  {}",
            l.line,
            x.requests,
            per(w, x.requests),
            x.conflicts(),
            instruction(l)
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileas_emu::stats::{Counts, Shared};

    #[test]
    fn columns_stand_below_their_heads() {
        let bad = Requests { requests: 1024, sectors: 32768, bytes: 131_072 };
        let conflicts = Shared { requests: 7, wavefronts: 224, ideal: 7 };
        let line = |line, text: &str, global, shared| Line {
            line,
            text: text.to_owned(),
            global,
            shared,
            ..Line::default()
        };
        let s = Stats {
            warps: 4,
            total: Counts { instructions: 12_345, shuffles: 20, ..Counts::default() },
            most: Counts { instructions: 4000, shuffles: 5, ..Counts::default() },
            polls: 3,
            loads: bad,
            stores: Requests { requests: 1, sectors: 4, bytes: 128 },
            shared: conflicts,
            lines: vec![
                line(9, "ld.global.u32 %r1,\n  [%rd1]", bad, Shared::default()),
                line(12, &format!("ld.shared.u32 {}", "x".repeat(80)), Requests::default(), conflicts),
            ],
            ..Stats::default()
        };
        let want = "\
statistics of fast: 4 warps
  global memory    requests    sectors per request        bytes    used
    loads              1024      32768        32.0       131072   12.5%
    stores                1          4         4.0          128  100.0%
  shared memory    requests wavefronts per request   conflicts
                          7        224        32.0         217
  instructions        of all   most of a warp
    all                    12345           4000
    shuffles                  20              5
    polls                      3
  wasted sectors   requests    sectors per request        bytes    used
    line 9             1024      32768        32.0       131072   12.5%  ld.global.u32 %r1, [%rd1]
  bank conflicts   requests wavefronts per request   conflicts
    line 12               7        224        32.0         217  ld.shared.u32 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
";
        assert_eq!(table("fast", &s), want);
        // Nothing but instructions: no empty tables.
        let s =
            Stats { warps: 1, total: Counts { instructions: 2, ..Counts::default() }, ..Stats::default() };
        assert_eq!(table("fast", &s).lines().count(), 3);
    }
}
