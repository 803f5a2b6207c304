//! Named barriers: `bar` and `barrier`.
//!
//! Whole warps arrive. Detected: counts that differ within a phase, more arrivals than the count,
//! numbers outside 0..15, arrivals left over when the CTA ends.
//! Source: PTX ISA, "bar, barrier".

use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Collective, Exec, R};
use crate::detect::clock::Released;
use crate::exec::cx::{Cx, first};
use crate::exec::{Flow, Trap, Wait, X};

/// A named barrier.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// Threads of the present phase; 0 before the first arrival.
    pub expected: u32,
    /// Threads arrived.
    pub arrived: u32,
    /// Completed phases.
    pub phase: u64,
    /// The last arrival.
    pub pc: u32,
    /// Releases of the present phase.
    collected: Released,
    /// Releases of the last completed phase.
    pub done: Released,
    /// Threads of the present phase whose predicate holds (`bar.red`).
    count: u32,
    /// Threads of the last completed phase, and how many of them had a true predicate.
    result: (u32, u32),
}

fn arrive(cx: &mut Cx<'_>, number: u32, count: u32) -> X<bool> {
    let threads = 32 * cx.cta.warp_count();
    if number > 15 {
        return Err(Trap::new("barrier.named", format!("barrier number {number} is not in 0..15")));
    }
    let count = if count == 0 { threads } else { count };
    if count % 32 != 0 || count > threads {
        return Err(Trap::new(
            "barrier.named",
            format!("barrier {number} with count {count} in a block of {threads} threads"),
        ));
    }
    let live = cx.w.live;
    let release = cx.release(live);
    if cx.cta.det.on.races {
        cx.w.sync_clock = cx.cta.det.clocks[cx.w.id as usize];
        cx.w.since = cx.w.sync_clock;
    }
    cx.cta.footprint.named(number);
    let b = &mut cx.cta.named[number as usize];
    if b.arrived != 0 && b.expected != count {
        return Err(Trap::new(
            "barrier.named",
            format!("barrier {number} is used with counts {} and {count} in one phase", b.expected),
        ));
    }
    b.expected = count;
    b.pc = cx.pc;
    // A warp counts as a whole, whatever lanes have exited.
    b.arrived += 32;
    b.collected.join(&release);
    if b.arrived > count {
        return Err(Trap::new(
            "barrier.named",
            format!("barrier {number}: {} arrivals for a count of {count}", b.arrived),
        ));
    }
    if b.arrived == count {
        b.arrived = 0;
        b.phase += 1;
        b.result = (count, std::mem::take(&mut b.count));
        b.done = std::mem::take(&mut b.collected);
        cx.cta.changed();
        return Ok(true);
    }
    Ok(false)
}

fn operands(
    b: &mut Build<'_>,
    from: usize,
    to: usize,
) -> R<(crate::decode::Col, Option<crate::decode::Col>)> {
    let number = b.src(from, 4)?;
    let count = if to > from + 1 { Some(b.src(from + 1, 4)?) } else { None };
    if to > from + 2 {
        return Err(b.error("P012", "too many operands"));
    }
    b.visible();
    // The non-aligned `barrier` forms also bring the lanes of a warp together here: they too count
    // whole warps.
    b.collective(Collective::Aligned);
    Ok((number, count))
}

fn sync(b: &mut Build<'_>) -> R<Exec> {
    let to = b.len();
    let (number, count) = operands(b, 0, to)?;
    Ok(Box::new(move |cx, m| {
        let l = first(m);
        let n = cx.w.u32(number, l);
        let c = count.map_or(0, |c| cx.w.u32(c, l));
        cx.log("bar.sync", n.into());
        if arrive(cx, n, c)? {
            let done = cx.cta.named[n as usize].done.clone();
            cx.know().acquire(&done);
            return Ok(Flow::Next);
        }
        let phase = cx.cta.named[n as usize].phase;
        Ok(Flow::Then(Wait::Named(n, phase)))
    }))
}

fn arrive_only(b: &mut Build<'_>) -> R<Exec> {
    let to = b.len();
    let (number, count) = operands(b, 0, to)?;
    if count.is_none() {
        return Err(b.error("P012", "bar.arrive needs a thread count"));
    }
    Ok(Box::new(move |cx, m| {
        let l = first(m);
        let (n, c) = (cx.w.u32(number, l), count.map_or(0, |c| cx.w.u32(c, l)));
        cx.log("bar.arrive", n.into());
        arrive(cx, n, c)?;
        Ok(Flow::Next)
    }))
}

/// `bar.red`: executes a second time when the barrier has completed, to take the result.
fn reduce(b: &mut Build<'_>) -> R<Exec> {
    let op = b.ms(0);
    let last =
        b.len().checked_sub(1).filter(|&n| n >= 2).ok_or_else(|| b.error("P012", "operands are missing"))?;
    let o = b.operand(last)?;
    let source = b.pred(o)?;
    let o = b.operand(0)?;
    let (pred, count) = if op == "popc" { (None, Some(b.dest(o, 4)?)) } else { (b.pred_dst(o)?, None) };
    let (number, threads) = operands(b, 1, last)?;
    let or = op == "or";
    Ok(Box::new(move |cx, m| {
        let l = first(m);
        let (n, c) = (cx.w.u32(number, l), threads.map_or(0, |c| cx.w.u32(c, l)));
        let arrived = cx.w.reducing.take();
        if arrived.is_none() {
            if let Some(b) = cx.cta.named.get_mut(n as usize) {
                b.count += (cx.w.pred(source) & m).count_ones();
            }
            cx.log("bar.red", n.into());
            if !arrive(cx, n, c)? {
                let phase = cx.cta.named[n as usize].phase;
                cx.w.reducing = Some(phase);
                return Ok(Flow::Retry(Wait::Named(n, phase)));
            }
            let done = cx.cta.named[n as usize].done.clone();
            cx.know().acquire(&done);
        }
        let (all, yes) = cx.cta.named[n as usize].result;
        if let Some(p) = pred {
            let r = if or { yes != 0 } else { yes == all };
            cx.w.set_pred(p, m, if r { u32::MAX } else { 0 });
        }
        if let Some(d) = count {
            for l in crate::exec::cx::lanes(m) {
                cx.w.set32(d, l, yes);
            }
        }
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("bar.sync", sync),
    row("bar.cta.sync", sync),
    row("barrier.sync.aligned?", sync),
    row("barrier.cta.sync.aligned?", sync),
    row("bar.arrive", arrive_only),
    row("bar.cta.arrive", arrive_only),
    row("bar.red.{and,or}.pred", reduce),
    row("bar.red.{popc}.u32", reduce),
    row("barrier.red.{and,or}.aligned?.pred", reduce),
    row("barrier.red.{popc}.aligned?.u32", reduce),
    row("barrier.arrive.aligned?", arrive_only),
    row("barrier.cta.arrive.aligned?", arrive_only),
];
