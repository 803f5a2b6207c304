//! Order of accesses to global memory.
//!
//! Accesses to one view parameter, at least one of them a write, happen in program order where they may touch one element.
//! For each such pair, in every region that holds both, the graph of the region must have a path from where the first is
//! complete to where the second begins: within an iteration, and from an iteration to the next one. Complete is what threads did when
//! all of them have gone on, a load when its barrier says so, a store when its lane has waited for what it wrote. What
//! threads wrote and an engine touches next has, on the way, a commit of these threads that publishes global memory; what they read and an
//! engine overwrites next, one that publishes anything.
//! No path is asked for
//! - between tiles that have no element in common: their distance is constant, or made of indices with constant bounds, or two coordinates are
//!   quotient and remainder of a number that is another one in each iteration;
//! - between tiles in the registers of one agent whose layouts give each element of the view to the same threads:
//!   coordinates count whole tiles, so that is so where each thread's first element stands alike in both. Where a layout has
//!   replicas, all of them read an element and one writes it.
//!
//! What acquires is over before all that follows it begins, and what releases begins when all before it is over, whatever is touched.
//! Different view parameters do not alias. Errors: E0711. Cost: pairs of accesses to a view × regions around both.

use super::graph::{Graph, stores_complete};
use super::linear::{Canon, Form, Known, Made, Origin, local_of, note};
use super::memory::index_between;
use super::model::{Engine, Found, Model, What, view_of};
use super::{Code, SyncReport};
use crate::ir::layouts::LANES;
use crate::ir::layouts::register_map;
use crate::ir::{Function, Op, Opcode, Type, Value, keys};
use smallvec::SmallVec;

/// One access to a view.
struct Place {
    agent: usize,
    /// (region, event) from the kernel body down.
    path: SmallVec<[(usize, usize); 4]>,
    engine: Engine,
    writes: bool,
    /// Of a TMA load: the pipe on whose barrier it completes.
    load: Option<usize>,
    op: Op,
    /// First element and extent by dimension; `None`: not followed.
    range: SmallVec<[Option<(Form, i64)>; 4]>,
    /// Of a register tile.
    held: Option<Held>,
}

/// Which of the layouts of threads a register tile has, and whether no two threads hold one element. Those of tiles without cannot be told to be
/// the same threads' as another's.
type Held = (usize, bool);

/// Checks all views.
pub fn check(m: &mut Model<'_>, graphs: &mut [Graph], report: &mut SyncReport, found: &mut Found) {
    let mut views: Vec<(Value, Vec<Place>)> = Vec::new();
    for agent in 0..m.threads.len() {
        collect(m, agent, 0, &mut SmallVec::new(), &mut views);
    }
    let fences = |p: &Place| m.func.fences(p.op, p.op);
    let fenced = views.iter().flat_map(|v| &v.1).any(fences);
    views.retain(|(_, list)| fenced || list.iter().any(|p| p.writes));
    if views.is_empty() {
        return;
    }
    let mut canon = m.canon.take().unwrap_or_default();
    let mut layouts = Layouts::default();
    for place in views.iter_mut().flat_map(|v| &mut v.1) {
        place.range = range(m.func, &mut canon, place.op);
        place.held = layouts.of(m, place);
    }
    let origins = canon.origins(m.func);
    let mut pairs = Pairs { m, canon, origins, inside: Vec::new(), graphs, report };
    for (view, list) in &views {
        for (i, x) in list.iter().enumerate() {
            for y in &list[i..] {
                if (x.writes || y.writes)
                    && let Some(text) = pairs.unordered(x, y, false)
                {
                    let name = m.func.value_name(*view).unwrap_or("?");
                    found.bad(Code::E0711, y.op, format!("%{name}: {text}"));
                }
            }
        }
    }
    let all: Vec<&Place> = views.iter().filter(|_| fenced).flat_map(|v| &v.1).collect();
    for (i, x) in all.iter().enumerate() {
        for y in &all[i..] {
            if let Some(text) = pairs.unordered(x, y, true) {
                found.bad(Code::E0711, y.op, text);
            }
        }
    }
}

fn collect(
    m: &Model<'_>,
    agent: usize,
    region: usize,
    path: &mut SmallVec<[(usize, usize); 8]>,
    out: &mut Vec<(Value, Vec<Place>)>,
) {
    if m.regions[region].trips == Some(0) {
        // Nothing in there happens.
        return;
    }
    for (i, e) in m.regions[region].events[agent].iter().enumerate() {
        path.push((region, i));
        match &e.what {
            What::Region(inner) => inner.iter().for_each(|&r| collect(m, agent, r, path, out)),
            What::Access(engine, _, completes) => {
                if let Some((view, writes)) = view_of(m.func, e.op) {
                    let place = Place {
                        agent,
                        path: SmallVec::from_slice(path),
                        engine: *engine,
                        writes,
                        load: completes.filter(|_| *engine == Engine::Load),
                        op: e.op,
                        range: SmallVec::new(),
                        held: None,
                    };
                    match out.iter_mut().find(|v| v.0 == view) {
                        Some(v) => v.1.push(place),
                        None => out.push((view, vec![place])),
                    }
                }
            }
            _ => {}
        }
        path.pop();
    }
}

/// Whether two updates are atomic, of one kind, and leave the same in either order.
fn commute(func: &Function, a: Op, b: Op) -> bool {
    let both =
        [a, b].map(|op| (func.opcode(op), func.attr_name(op, keys::MODE), func.has_attr(op, keys::UNSIGNED)));
    both[0] == both[1] && both[0].0 == Opcode::AtomicRmw && both[0].1 != Some("exch")
}

/// The register tile that an op loads or stores, or the descriptor of what it moves.
fn tile(func: &Function, op: Op) -> Option<Value> {
    let stored = || func.named_operand(op, "value").filter(|_| func.opcode(op) == Opcode::TiledStore);
    func.named_operand(op, "desc").or_else(stored).or_else(|| func.result(op))
}

/// Elements along a dimension.
fn extent(func: &Function, op: Op, d: usize) -> i64 {
    if func.opcode(op).is_sparse() {
        return 1;
    }
    let dims = tile(func, op).and_then(|v| func.value_data(v).dims());
    dims.and_then(|dims| dims.get(d)).map_or(1, |&n| i64::from(n))
}

fn range(func: &Function, canon: &mut Canon, op: Op) -> SmallVec<[Option<(Form, i64)>; 4]> {
    let local = local_of(func, op);
    let coords = func.named_segment(op, "coords").iter().enumerate();
    coords
        .map(|(d, &c)| {
            // Single elements may be anywhere.
            if func.value_data(c).is_tile() {
                return None;
            }
            let extent = extent(func, op, d);
            let first = unbounded(func, canon, c, extent, local, 16)?;
            Some((Form::default().plus(&first, extent), extent))
        })
        .collect()
}

/// A coordinate without bounds that keep the first element, `factor` times as much, from wrapping around: where such a bound
/// holds it back, the tile is out of bounds, and there is no access.
fn unbounded(
    func: &Function,
    canon: &mut Canon,
    v: Value,
    factor: i64,
    local: i64,
    fuel: u32,
) -> Option<Form> {
    let plain = |canon: &mut Canon| canon.form(func, v, local);
    let (Some(op), Some(fuel)) = (func.defining_op(v), fuel.checked_sub(1)) else { return plain(canon) };
    let &[a, b] = func.operands(op) else { return plain(canon) };
    let constant = func.constant_value(b).map(|c| c as i64);
    match (func.opcode(op), constant) {
        (Opcode::Mini, Some(most))
            if func.has_attr(op, keys::UNSIGNED) && most.saturating_mul(factor) >= 1 << 31 =>
        {
            unbounded(func, canon, a, factor, local, fuel)
        }
        (Opcode::Muli, _) if let Some((inner, n)) = held_above(func, v, 0) => {
            let inner = unbounded(func, canon, inner, factor.saturating_mul(n), local, fuel)?;
            Some(Form::default().plus(&inner, n))
        }
        (Opcode::Muli, Some(c)) if c > 0 => {
            let inner = unbounded(func, canon, a, factor.saturating_mul(c), local, fuel)?;
            Some(Form::default().plus(&inner, c))
        }
        (Opcode::Addi, _)
            if let Some((inner, n)) =
                index_between(func, b).and_then(|(_, most)| held_above(func, a, most)) =>
        {
            let left = unbounded(func, canon, inner, factor.saturating_mul(n), local, fuel)?;
            Some(canon.form(func, b, local)?.plus(&left, n))
        }
        (Opcode::Addi, _) => {
            let left = unbounded(func, canon, a, factor, local, fuel)?;
            Some(left.plus(&unbounded(func, canon, b, factor, local, fuel)?, 1))
        }
        _ => plain(canon),
    }
}

/// The number and its factor in a product that does not fall below a negative bound, if with at most so much added it is negative there.
fn held_above(func: &Function, product: Value, most: i64) -> Option<(Value, i64)> {
    let constant = |v: Value| func.constant_value(v).map(|c| c as i64);
    let of = |v: Value, opcode: Opcode| func.defining_op(v).filter(|&op| func.opcode(op) == opcode);
    let &[held, n] = func.operands(of(product, Opcode::Muli)?) else { return None };
    let bound = of(held, Opcode::Maxi).filter(|&op| !func.has_attr(op, keys::UNSIGNED))?;
    let &[inner, least] = func.operands(bound) else { return None };
    let (n, least) = (constant(n).filter(|&n| n > 0)?, constant(least)?);
    (least.saturating_mul(n).saturating_add(most) < 0).then_some((inner, n))
}

/// The coordinates in its tile of the first element that each thread holds; `None` where these do not tell which
/// threads hold all others.
fn firsts(m: &Model<'_>, agent: usize, v: Value) -> Option<Vec<SmallVec<[u64; 4]>>> {
    let data = m.func.value_data(v);
    let dims = data.dims()?;
    let warps = u32::try_from(m.threads[agent] / i64::from(LANES)).ok()?;
    let map = register_map(data.layout()?, dims, warps)?;
    // Each bit of the thread number is one bit of an element's number, or none.
    let mut parts = map.lane().iter().chain(map.warp()).filter(|&&p| p != 0);
    let plain = parts.all(|p| p.is_power_of_two()) && dims.iter().all(|n| n.is_power_of_two());
    let place = |thread: i64| {
        let (lane, warp) = (thread % i64::from(LANES), thread / i64::from(LANES));
        let mut flat = u64::from(map.element(0, lane as u32, warp as u32));
        dims.iter()
            .rev()
            .map(|&n| {
                let at = flat % u64::from(n);
                flat /= u64::from(n);
                at
            })
            .collect()
    };
    plain.then(|| (0..m.threads[agent]).map(place).collect())
}

/// Layouts of threads that accesses have, each once.
#[derive(Default)]
struct Layouts {
    firsts: Vec<Vec<SmallVec<[u64; 4]>>>,
    /// By type and threads.
    known: Vec<((Type, i64), Option<Held>)>,
}

impl Layouts {
    fn of(&mut self, m: &Model<'_>, place: &Place) -> Option<Held> {
        let v = tile(m.func, place.op).filter(|_| !m.func.opcode(place.op).is_sparse())?;
        let key = (m.func.value_type(v), m.threads[place.agent]);
        if let Some(known) = self.known.iter().find(|k| k.0 == key) {
            return known.1;
        }
        let held = firsts(m, place.agent, v).map(|list| {
            let mut sorted = list.clone();
            sorted.sort_unstable();
            let distinct = sorted.windows(2).all(|two| two[0] != two[1]);
            let n = self.firsts.iter().position(|f| *f == list).unwrap_or_else(|| {
                self.firsts.push(list);
                self.firsts.len() - 1
            });
            (n, distinct)
        });
        self.known.push((key, held));
        held
    }
}

/// Two accesses that need an order.
struct Pairs<'a, 'm> {
    m: &'a Model<'m>,
    canon: Canon,
    /// Of each number in a form: what it is made from.
    origins: Vec<Origin>,
    /// By loop: its op, and the origins of the ops in it in any agent, sorted.
    inside: Vec<(Op, Vec<i64>)>,
    graphs: &'a mut [Graph],
    report: &'a mut SyncReport,
}

impl Pairs<'_, '_> {
    /// What is not ordered, if there is something: of accesses that may touch one element, or that acquire or release.
    fn unordered(&mut self, x: &Place, y: &Place, fences: bool) -> Option<String> {
        let m = self.m;
        let asked = |a: &Place, b: &Place| !fences || m.func.fences(a.op, b.op);
        if !asked(x, y) && !asked(y, x) || !fences && commute(m.func, x.op, y.op) {
            return None;
        }
        let threads = x.engine == Engine::Threads && y.engine == Engine::Threads;
        let one = m.instances[x.agent] == 1;
        if x.agent == y.agent && threads && one && (m.threads[x.agent] == 1 || !fences && self.own(x, y)) {
            return None;
        }
        let around = (0..x.path.len().min(y.path.len())).take_while(|&k| x.path[k].0 == y.path[k].0);
        let depths: SmallVec<[usize; 8]> = around.collect();
        // Orders that hold between executions of the inner regions, one after the other, hold in the outer ones.
        let mut shown = [false; 2];
        let innermost = depths.last().copied();
        for &k in depths.iter().rev() {
            let region = x.path[k].0;
            let item = |p: &Place| m.regions[region].events[p.agent][p.path[k].1].op;
            let (nx, ny) = (self.origin(item(x)), self.origin(item(y)));
            let here = Some(k) == innermost;
            let mut within = [false; 2];
            if here && nx != ny {
                // In program order the first is the one with the smaller number.
                let (a, b, n) = if nx < ny { (x, y, 0) } else { (y, x, 1) };
                if asked(a, b) && (fences || !self.apart(a, b)) {
                    within[n] = true;
                    self.report.ordered_pairs += 1;
                    if !self.ordered(a, b, k, 0, fences) {
                        return Some(self.text(a, b, "in one iteration"));
                    }
                    shown[n] = true;
                }
            }
            let info = &m.regions[region];
            if !info.repeats || info.trips.is_some_and(|n| n <= 1) {
                continue;
            }
            for (n, (a, b)) in [(x, y), (y, x)].into_iter().enumerate() {
                let known = std::ptr::eq(x, y) && n == 1 || within[n] || shown[n];
                if known || !asked(a, b) || !fences && !self.meets_later(a, b, item(a)) {
                    continue;
                }
                self.report.ordered_pairs += 1;
                if !self.ordered(a, b, k, 1, fences) {
                    return Some(self.text(a, b, "from one iteration to a later one"));
                }
                shown[n] = true;
            }
        }
        None
    }

    fn origin(&self, op: Op) -> i64 {
        note(self.m.func, op, keys::ORIGIN).unwrap_or(-1)
    }

    fn text(&self, a: &Place, b: &Place, when: &str) -> String {
        let m = self.m;
        let does = |p: &Place| if p.writes { "writes" } else { "reads" };
        format!(
            "{} of agent {} {} what {} of agent {} {} {when}, and nothing orders them",
            m.op_name(a.op),
            a.agent,
            does(a),
            m.op_name(b.op),
            b.agent,
            does(b)
        )
    }

    /// Whether what both touch in one agent's registers is the same thread's.
    fn own(&self, x: &Place, y: &Place) -> bool {
        let (Some((a, distinct)), Some((b, _))) = (x.held, y.held) else { return false };
        a == b && (x.writes == y.writes || distinct)
    }

    /// Whether they touch no element in common in one iteration of the region around both.
    fn apart(&self, x: &Place, y: &Place) -> bool {
        x.range.iter().zip(&y.range).any(|(p, q)| {
            let (Some((p, wide)), Some((q, broad))) = (p, q) else { return false };
            let gap = p.clone().plus(q, -1);
            let mut span = Some((gap.base(), gap.base()));
            for &(n, factor) in gap.terms() {
                let most = self.last_index(n);
                span = span.zip(most).map(|((lo, hi), last)| {
                    let end = factor.saturating_mul(last);
                    (lo.saturating_add(end.min(0)), hi.saturating_add(end.max(0)))
                });
            }
            span.is_some_and(|(lo, hi)| lo >= *broad || hi <= -*wide)
        })
    }

    /// The greatest number that a loop with a constant trip count gives to an iteration, if the number is one.
    fn last_index(&self, number: u32) -> Option<i64> {
        let Made::Index(l) = self.origins.get(number as usize)?.made else { return None };
        let l = self.m.loops.iter().find(|x| x.origin == l)?;
        Some((self.m.regions[l.region?].trips? - 1).max(0))
    }

    /// Whether what `a` touches in one iteration may have an element in common with what `b` touches in a later one; `at`: the
    /// event of `a` in the loop.
    fn meets_later(&mut self, a: &Place, b: &Place, at: Op) -> bool {
        let func = self.m.func;
        // Guards of a rolled loop stand between.
        let mut l = func.op_parent(at);
        while let Some(op) = l.filter(|&op| func.opcode(op) != Opcode::For) {
            l = func.op_parent(op);
        }
        let Some(l) = l else { return true };
        let apart = a.range.iter().zip(&b.range).any(|(p, q)| {
            let (Some((p, wide)), Some((q, broad))) = (p, q) else { return false };
            p.terms().iter().any(|&(n, times)| {
                let stride = self.grows(n, l).saturating_mul(times);
                stride != 0
                    && self.rest(p, q, n, l).is_some_and(|(least, most)| match stride {
                        1.. => stride.saturating_sub(most) >= *wide,
                        _ => least.saturating_sub(stride) >= *broad,
                    })
            })
        });
        !apart && !self.told_apart(a, b, l)
    }

    /// Whether two coordinates hold quotient and remainder of a number that is another one in each iteration, and tell both.
    fn told_apart(&mut self, a: &Place, b: &Place, l: Op) -> bool {
        let terms = |p: &Place| -> SmallVec<[u32; 8]> {
            p.range.iter().flatten().flat_map(|r| r.0.terms()).map(|t| t.0).collect()
        };
        let made = |s: &Self, n: u32| match &s.origins[n as usize].made {
            Made::Of(op @ (Opcode::Divi | Opcode::Remi), unsigned, of) => Some((*op, *unsigned, *of)),
            _ => None,
        };
        let all = terms(a);
        for &quotient in &all {
            let Some((Opcode::Divi, unsigned, of)) = made(self, quotient) else { continue };
            // Different places in an order are different tiles.
            let order = match &self.origins[of[0] as usize].made {
                Made::Order(of) => Some(*of),
                _ => None,
            };
            let alike =
                |s: &mut Self, &[_, rows, columns]: &[u32; 3]| !s.varies(rows, l) && !s.varies(columns, l);
            let counted = order.filter(|o| alike(self, o)).map_or(of[0], |o| o[0]);
            if self.grows(counted, l) <= 0 || self.varies(of[1], l) {
                continue;
            }
            let rest = all.iter().find(|&&n| made(self, n) == Some((Opcode::Remi, unsigned, of)));
            let Some(&remainder) = rest else { continue };
            let told = |s: &mut Self, n: u32| {
                a.range.iter().zip(&b.range).any(|(p, q)| {
                    let (Some((p, wide)), Some((q, broad))) = (p, q) else { return false };
                    let factor = p.terms().iter().find(|t| t.0 == n).map_or(0, |t| t.1.saturating_abs());
                    factor > 0
                        && s.rest(p, q, n, l).is_some_and(|(least, most)| {
                            factor.saturating_sub(most) >= *wide && factor.saturating_add(least) >= *broad
                        })
                })
            };
            if told(self, quotient) && told(self, remainder) {
                return true;
            }
        }
        false
    }

    /// By how much a number grows with each iteration of a loop, at least; 0 where that is not known.
    fn grows(&mut self, number: u32, l: Op) -> i64 {
        match self.origins[number as usize].made.clone() {
            Made::Index(index) => i64::from(index == self.origin(l)),
            Made::Of(Opcode::Muli, _, [a, b]) => {
                // A stride is positive.
                let Some(Known::As((_, Some(stride)))) = self.canon.iterations(self.m.func, l) else {
                    return 0;
                };
                match (a == stride, b == stride) {
                    (_, true) => self.grows(a, l),
                    (true, false) => self.grows(b, l),
                    _ => 0,
                }
            }
            Made::Sum(form) => {
                let mut grows = 0;
                for &(n, factor) in form.terms() {
                    match self.grows(n, l) {
                        by @ 1.. if grows == 0 && factor > 0 => grows = by.saturating_mul(factor),
                        0 if !self.varies(n, l) => {}
                        _ => return 0,
                    }
                }
                grows
            }
            _ => 0,
        }
    }

    /// The least and the greatest that `p` of one iteration can be above `q` of another one, without the number `but`, which is as
    /// often in both.
    fn rest(&mut self, p: &Form, q: &Form, but: u32, l: Op) -> Option<(i64, i64)> {
        let factor = |f: &Form, n: u32| f.terms().iter().find(|t| t.0 == n).map_or(0, |t| t.1);
        if factor(p, but) != factor(q, but) {
            return None;
        }
        let (mut least, mut most) = (p.base().saturating_sub(q.base()), p.base().saturating_sub(q.base()));
        for (form, other, sign) in [(p, q, 1), (q, p, -1)] {
            for &(n, times) in form.terms().iter().filter(|t| t.0 != but) {
                if !self.varies(n, l) {
                    if factor(other, n) != times {
                        return None;
                    }
                    continue;
                }
                let own = self.origins[n as usize].made == Made::Index(self.origin(l));
                let last = self.last_index(n).filter(|_| !own)?;
                let end = times.saturating_mul(sign).saturating_mul(last);
                (least, most) = (least.saturating_add(end.min(0)), most.saturating_add(end.max(0)));
            }
        }
        Some((least, most))
    }

    /// Whether a number may change from one iteration of a loop to the next.
    fn varies(&mut self, number: u32, l: Op) -> bool {
        let (m, origin) = (self.m, self.origin(l));
        let known = self.inside.iter().position(|i| i.0 == l).unwrap_or_else(|| {
            let mut set = Vec::new();
            for other in m.func.ops().filter(|&o| m.func.opcode(o) == Opcode::For && self.origin(o) == origin)
            {
                for n in 0..m.func.regions(other).len() {
                    let Some(b) = m.func.op_block_at(other, n) else { continue };
                    m.func.walk(b, &mut |o| set.extend(note(m.func, o, keys::ORIGIN)));
                }
            }
            set.push(origin);
            set.sort_unstable();
            self.inside.push((l, set));
            self.inside.len() - 1
        });
        let set = &self.inside[known].1;
        self.origins[number as usize].on.iter().any(|on| set.binary_search(on).is_ok())
    }

    /// Whether `a` is complete before `b` begins, at most so many iterations later, in the region at depth `k`.
    fn ordered(&mut self, a: &Place, b: &Place, k: usize, most: i64, fences: bool) -> bool {
        let m = self.m;
        let region = a.path[k].0;
        let (ea, eb) = (a.path[k].1, b.path[k].1);
        let g = &mut self.graphs[region];
        let (na, nb) = (g.at(a.agent, ea), g.at(b.agent, eb));
        let to = nb.begin(b.engine != Engine::Threads);
        let written = g.written.get(&(a.agent, ea)).copied();
        let loads = a.load.and_then(|p| g.loads.get(&(a.agent, ea, p)).copied());
        // What threads read is overwritten behind a fence of theirs, be it for shared memory.
        let overwritten = !a.writes && b.writes && b.engine == Engine::Store && !fences;
        let mut near = |from: usize| g.distance(from, to, most).is_some_and(|d| d <= most);
        match a.engine {
            // What an acquire makes visible an engine may load; what it stores only comes later.
            Engine::Threads
                if overwritten
                    || a.writes && b.engine != Engine::Threads && !(fences && b.engine == Engine::Store) =>
            {
                // By a commit behind which the fences of all these threads stand.
                let list = &m.regions[region].events[a.agent];
                let published = |p: usize| m.func.attr_call(m.pipes[p].op, keys::PUBLISH);
                (0..list.len()).any(|c| {
                    let What::Commit(p, None) = list[c].what else { return false };
                    let fits = |name: &str| name == "global" || overwritten && name == "proxy";
                    if list[c].lane || published(p).is_none_or(|(name, _)| !fits(name)) {
                        return false;
                    }
                    let nc = g.at(a.agent, c);
                    let given = g.distance(na.all_left, nc.all_left, most);
                    let taken = given.filter(|&d| d <= most).and_then(|_| g.distance(nc.all_left, to, most));
                    given.zip(taken).is_some_and(|(x, y)| x + y <= most)
                })
            }
            Engine::Threads => near(na.all_left),
            Engine::Store => {
                let inside = stores_complete(m, a.agent, &a.path[k + 1..]).then_some(na.lane_leaves);
                written.into_iter().chain(inside).any(near)
            }
            Engine::Load => loads.into_iter().chain([na.done]).any(near),
            // The matrix engine touches no view.
            Engine::Mma => false,
        }
    }
}
