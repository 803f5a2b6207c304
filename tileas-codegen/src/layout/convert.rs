//! How a tile gets from one register layout to another.
//!
//! In: two layouts of one tile in the registers of the same warps, the width of its elements, what shared memory there is. Out: the
//! cheapest [`Plan`]: registers are renamed, selected by thread, shuffled, or go through shared memory.
//!
//! Costs are in quarters of a cycle of an SM for the instructions of all warps: a shuffle and a wavefront one cycle, a selection or a permutation of
//! bytes a half, an issue of an access a quarter, a barrier of the agent 16, of a warp 2. They follow published
//! throughputs; none was measured for this.

use super::gf2::{Columns, Span, sum};
use super::map::LinearMap;
use super::shuffle::Shuffle;
use super::trip::Trip;

/// A plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Every thread has what it wants.
    Moves(Moves),
    /// Its warp has.
    Shuffle(Shuffle),
    /// Through shared memory.
    Trip(Trip),
}

/// A plan without other threads: register r of the result of thread t is register `by_register r ^ by_thread t` of the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moves {
    /// By bit of a register of the result.
    pub by_register: Columns,
    /// By bit of a thread: lanes, then warps.
    pub by_thread: Columns,
}

/// What there is for a conversion.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Means {
    /// log2 of the bits of an element, 3 to 5: wider ones are converted as [`LinearMap::halves`].
    pub width: u32,
    /// log2 of the bytes of shared memory that it may take; `None`: it may not.
    pub room: Option<u32>,
    /// Whether there are `ldmatrix` and `stmatrix`.
    pub matrices: bool,
}

impl Means {
    /// log2 of the elements of a word.
    pub fn packed(self) -> u32 {
        5 - self.width
    }
}

impl Moves {
    fn plan(source: &LinearMap, result: &LinearMap) -> Option<Moves> {
        let own = Span::of(source.register());
        let by_register: Option<Columns> = result.register().iter().map(|&v| own.solve(v)).collect();
        let threads = |m: &LinearMap| -> Columns { m.lane().iter().chain(m.warp()).copied().collect() };
        let by_thread: Option<Columns> =
            threads(source).iter().zip(&threads(result)).map(|(s, d)| own.solve(s ^ d)).collect();
        Some(Moves { by_register: by_register?, by_thread: by_thread? })
    }

    /// The register of the source for a register of the result of a thread.
    pub fn register(&self, register: u32, thread: u32) -> u32 {
        sum(&self.by_register, register) ^ sum(&self.by_thread, thread)
    }

    /// Whether each word of the result is a word of the source, the same for all threads.
    pub fn renames(&self, packed: u32) -> bool {
        let slots = &self.by_register[..(packed as usize).min(self.by_register.len())];
        slots.iter().enumerate().all(|(k, &m)| m == 1 << k)
            && self.by_register.iter().skip(packed as usize).all(|m| m & ((1 << packed) - 1) == 0)
            && self.by_thread.iter().all(|&m| m == 0)
    }
}

impl Plan {
    /// The cheapest plan. `None`: there is none without more shared memory, or elements are nowhere in the source.
    pub fn find(source: &LinearMap, result: &LinearMap, means: Means) -> Option<Plan> {
        let moves = Moves::plan(source, result).map(Plan::Moves);
        if moves.as_ref().is_some_and(|m| m.cost(result, means) == 0) {
            return moves;
        }
        let shuffle = || Shuffle::plan(source, result, means.packed()).map(Plan::Shuffle);
        let trip =
            || Trip::plan(source, result, means.width - 3, means.room?, means.matrices).map(Plan::Trip);
        let all = [moves, shuffle(), trip()];
        all.into_iter().flatten().min_by_key(|p| p.cost(result, means))
    }

    /// What it costs, in quarters of a cycle of an SM.
    pub fn cost(&self, result: &LinearMap, means: Means) -> u32 {
        let warps = 1 << result.warp().len();
        let words = (1u32 << result.register().len()) >> means.packed().min(result.register().len() as u32);
        match self {
            Plan::Moves(m) if m.renames(means.packed()) => 0,
            Plan::Moves(m) => {
                let selects = Span::of(&m.by_thread).rank();
                warps * words * 2 * (selects + u32::from(means.packed() > 0))
            }
            Plan::Shuffle(s) => {
                let c = s.counts(means.packed());
                warps * (4 * c.shuffles + 2 * (c.selects + c.permutes))
            }
            Plan::Trip(t) => t.cost(warps),
        }
    }
}

/// Whether one slot in memory that is written in one layout and read in another needs an order among threads, and among which.
///
/// Equal layouts are not enough: where threads hold copies, one of them writes what others read, and may write again
/// while they still read.
pub fn order_needed(written: &LinearMap, read: &LinearMap) -> Order {
    let copies = written.replicas();
    let own = Span::of(written.register());
    let both: Columns = written.register().iter().chain(written.lane()).copied().collect();
    let warp = Span::of(&both);
    let differ = |kind: usize| -> Columns {
        written.kind(kind).iter().zip(read.kind(kind)).map(|(a, b)| a ^ b).collect()
    };
    let in_thread =
        own.contains_all(read.register()) && own.contains_all(&differ(1)) && own.contains_all(&differ(2));
    if in_thread && copies.lanes == 0 && copies.warps == 0 {
        return Order::None;
    }
    let in_warp =
        warp.contains_all(read.register()) && warp.contains_all(read.lane()) && warp.contains_all(&differ(2));
    if in_warp && copies.warps == 0 { Order::Warp } else { Order::Agent }
}

/// Among whom an order is needed.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Order {
    /// Every thread reads what it wrote itself.
    None,
    /// The lanes of each warp.
    Warp,
    /// All threads of the agent.
    Agent,
}

#[cfg(test)]
mod tests {
    use super::super::forms::Matrix;
    use super::super::map::Axes;
    use super::super::random::{Random, pair};
    use super::*;

    const MEANS: Means = Means { width: 5, room: Some(16), matrices: true };

    #[test]
    fn moves_are_found_exactly_where_threads_have_it() {
        let mut random = Random(3);
        let mut found = 0;
        for round in 0..3000 {
            let (source, result) = pair(&mut random, round, true);
            let threads = 32 << source.warp().len();
            let has = |t: u32, e: u32| {
                (0..1 << source.register().len()).any(|r| source.element(r, t & 31, t >> 5) == e)
            };
            let registers = 1 << result.register().len();
            let want =
                (0..threads).all(|t| (0..registers).all(|r| has(t, result.element(r, t & 31, t >> 5))));
            let moves = Moves::plan(&source, &result);
            assert_eq!(moves.is_some(), want, "{source:?} {result:?}");
            let Some(m) = moves else { continue };
            found += 1;
            for t in 0..threads {
                for r in 0..registers {
                    let e = result.element(r, t & 31, t >> 5);
                    assert_eq!(source.element(m.register(r, t), t & 31, t >> 5), e);
                }
            }
        }
        assert!(found > 100, "{found}");
    }

    #[test]
    fn orders_are_those_of_enumeration() {
        let mut random = Random(9);
        let mut seen = [0; 3];
        for round in 0..600 {
            let (w, r) = pair(&mut random, round, round % 2 == 0);
            let r = if round % 5 == 0 { w } else { r };
            // Who writes and who reads an element.
            let threads = 32u32 << w.warp().len();
            let mut order = Order::None;
            for (a, b) in (0..threads).flat_map(|a| (0..threads).map(move |b| (a, b))).filter(|(a, b)| a != b)
            {
                let holds = |m: &LinearMap, t: u32| -> Vec<u32> {
                    (0..1 << m.register().len()).map(|x| m.element(x, t & 31, t >> 5)).collect()
                };
                let (wa, rb, wb) = (holds(&w, a), holds(&r, b), holds(&w, b));
                let meets = |x: &[u32], y: &[u32]| x.iter().any(|e| y.contains(e));
                if meets(&wa, &rb) || meets(&wa, &wb) {
                    order = order.max(if a >> 5 == b >> 5 { Order::Warp } else { Order::Agent });
                }
                if order == Order::Agent {
                    break;
                }
            }
            assert_eq!(order_needed(&w, &r), order, "{w:?} {r:?}");
            seen[order as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 5), "{seen:?}");
        let m = Matrix::of(&[128, 64], 4).expect("powers of two");
        let axes = Axes::of(&[128, 64]).expect("powers of two");
        let vector = m.rows().expect("fits").slice(&axes, 1);
        let everywhere = m.everywhere().expect("fits");
        let of_fragment = m.accumulator().expect("fits").slice(&axes, 1);
        assert_eq!(order_needed(&vector, &vector), Order::None);
        assert_eq!(order_needed(&everywhere, &everywhere), Order::Agent);
        assert_eq!(order_needed(&of_fragment, &of_fragment), Order::Warp);
    }

    #[test]
    fn the_cheapest_way_is_taken() {
        let m = Matrix::of(&[128, 128], 4).expect("powers of two");
        let (row, acc) = (m.rows().expect("fits"), m.accumulator().expect("fits"));
        let half = Means { width: 4, ..MEANS };
        let renames = |p: Option<Plan>, packed| matches!(p, Some(Plan::Moves(m)) if m.renames(packed));
        assert!(
            renames(Plan::find(&acc, &m.operand_a(16).expect("fits"), half), 1),
            "P is an operand as it is"
        );
        // An operand in 8 bits: the trip and the shuffles are close.
        let eighths = Means { width: 3, ..MEANS };
        let p = Plan::find(&acc, &m.operand_a(8).expect("fits"), eighths).expect("possible");
        assert!(p.cost(&acc, eighths) <= 4 * 320, "{} {p:?}", p.cost(&acc, eighths));
        assert!(matches!(Plan::find(&acc, &row, MEANS), Some(Plan::Trip(_))));
        assert_eq!(Plan::find(&acc, &row, Means { room: None, ..MEANS }), None, "other warps have it");
        // Copies make a selection of what would be a shuffle.
        let all = m.everywhere().expect("fits");
        let one = Plan::find(&all, &row, MEANS);
        assert!(matches!(one, Some(Plan::Moves(_))), "{one:?}");
    }
}
