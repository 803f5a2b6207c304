//! Iterators keep step: every use of a ring takes the iterator that was advanced last.
//!
//! The position of an iterator is how often it was advanced, counted from an anchor: its creation, the begin of an iteration
//! of a loop, the end of a loop, the join of a branch that advances it in one arm. An agent has one current position per
//! pipe, and in a loop with local stages one per pipe and local stage. Rules:
//! - a use and an advance take the current position;
//! - a loop gets the current position, hands on the one its iteration ends with, and ends in a new one; what it does not
//!   carry it does not advance; the same for branches, whose arms end in the same result;
//! - an iteration uses a position before it advances it, d positions for a pipe of distance d;
//! - in a loop with local stages iteration i of local stage k has position i: the prologue gets `before + i`, the
//!   steady loop `before + skew - k`, its epilogue `end - k + step`; a rolled loop gets `before` for every stage;
//! - that goes for the pipes whose iterators the loop carries. The others it must not advance: all its iterations, and
//!   so all its copies, use the position they have where the loop stands.
//!
//! Together with the counts per home (each side uses a pipe and advances it once per iteration) both sides of a pipe are in
//! the same slot and phase in the same iteration. Errors: E0705. Cost: linear in the ops.

use super::linear::note;
use super::model::Model;
use crate::error::Code;
use crate::ir::{Block, Function, Op, Opcode, TypeData, Value, keys};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// Advances since an anchor.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Pos {
    pipe: u32,
    anchor: u32,
    offset: i32,
}

impl Default for Pos {
    fn default() -> Pos {
        Pos { pipe: u32::MAX, anchor: u32::MAX, offset: 0 }
    }
}

impl Pos {
    fn plus(self, n: i64) -> Pos {
        Pos { offset: self.offset.saturating_add(i32::try_from(n).unwrap_or(i32::MAX)), ..self }
    }
}

/// By pipe.
type Carried = SmallVec<[bool; 16]>;

/// Memory of the check.
#[derive(Default)]
pub(super) struct Scratch {
    pos: SecondaryMap<Value, Pos>,
    /// Current positions, one frame of all pipes upon the other.
    frames: Vec<Pos>,
    /// Chains of the loop with local stages that is being read: local stage, position.
    chains: Vec<(i64, Pos)>,
}

struct Check<'m, 'f> {
    m: &'m Model<'f>,
    s: &'m mut Scratch,
    anchors: u32,
    found: Vec<(Op, String)>,
}

/// Checks every agent.
pub(super) fn check(m: &mut Model<'_>, s: &mut Scratch) {
    s.pos.clear();
    let mut c = Check { m, s, anchors: 0, found: Vec::new() };
    let func = c.m.func;
    for op in func.block_ops(func.entry()) {
        if func.opcode(op) == Opcode::AsyncPipelineAgentSwitch {
            for n in 0..func.regions(op).len() {
                c.s.frames.clear();
                c.s.frames.resize(c.m.pipes.len(), Pos::default());
                c.s.chains.clear();
                if let Some(b) = func.op_block_at(op, n) {
                    c.block(b, 0);
                }
            }
        }
    }
    for (op, text) in c.found {
        m.error(Code::E0705, op, text);
    }
}

fn is_iter(func: &Function, v: Value) -> bool {
    matches!(func.value_data(v), TypeData::PipeIter(_))
}

/// Operands of the terminator of a region, from the n-th on the region op's results.
fn yields(func: &Function, op: Op, n: usize) -> &[Value] {
    func.op_block_at(op, n).and_then(|b| func.last_op(b)).map_or(&[], |t| func.operands(t))
}

impl<'f> Check<'_, 'f> {
    fn func(&self) -> &'f Function {
        self.m.func
    }

    fn fresh(&mut self, pipe: u32) -> Pos {
        self.anchors += 1;
        Pos { pipe, anchor: self.anchors, offset: 0 }
    }

    fn say(&mut self, op: Op, pos: Pos, what: &str) {
        let text = if pos.pipe == u32::MAX {
            format!("{what}: an iterator of no iteration of this agent")
        } else {
            format!(
                "{what}: an iterator of Pipe_{} of another iteration than the one advanced last",
                pos.pipe
            )
        };
        self.found.push((op, text));
    }

    /// Pushes a copy of a frame; gives where it stands.
    fn open(&mut self, at: usize) -> usize {
        let (n, new) = (self.m.pipes.len(), self.s.frames.len());
        self.s.frames.extend_from_within(at..at + n);
        new
    }

    /// The position of a value where the frame says what is current.
    fn current(&mut self, op: Op, v: Value, at: usize, what: &str) -> Option<Pos> {
        let pos = self.s.pos[v];
        let now = (pos.pipe != u32::MAX).then(|| self.s.frames[at + pos.pipe as usize]);
        if now == Some(pos) {
            return Some(pos);
        }
        self.say(op, pos, what);
        None
    }

    fn block(&mut self, b: Block, at: usize) {
        let func = self.func();
        // The loop with local stages that was read last: what follows is its epilogue.
        let mut read: Option<i64> = None;
        // Whose prologue or epilogue is being read, and which pipes that loop carries.
        let mut copied: (Option<i64>, Carried) = (None, Carried::new());
        for op in func.block_ops(b) {
            match func.opcode(op) {
                Opcode::For if note(func, op, keys::SKEW).is_some_and(|s| s > 0) => {
                    self.staged(op, at);
                    read = note(func, op, keys::ORIGIN);
                }
                Opcode::For => self.plain_loop(op, at),
                Opcode::If => match note(func, op, keys::OF) {
                    Some(of) => {
                        let key = if read == Some(of) { keys::EPILOGUE } else { keys::PROLOGUE };
                        let local = note(func, op, keys::LOCAL).unwrap_or(0);
                        if copied.0 != Some(of) {
                            copied = (Some(of), self.carried(b, of));
                        }
                        self.copy(op, at, &copied.1, note(func, op, key).map_or(0, |step| step - local));
                    }
                    None => self.branch(op, at),
                },
                _ => self.leaf(op, at),
            }
        }
    }

    /// An op without regions.
    fn leaf(&mut self, op: Op, at: usize) {
        let func = self.func();
        match func.opcode(op) {
            Opcode::AsyncPipelineCreateIterator => {
                let pipe = func.operands(op).first().and_then(|&v| self.m.trace(v, 64));
                let (Some((p, _)), Some(v)) = (pipe, func.result(op)) else { return };
                if self.s.frames[at + p] != Pos::default() {
                    self.found.push((op, format!("a second iterator of Pipe_{p} in one agent")));
                }
                let pos = self.fresh(p as u32);
                self.s.pos[v] = pos;
                self.s.frames[at + p] = pos;
            }
            Opcode::AsyncPipelineIncIter => {
                let (Some(&v), Some(next)) = (func.operands(op).first(), func.result(op)) else { return };
                let Some(pos) = self.current(op, v, at, "an advance") else { return };
                self.s.pos[next] = pos.plus(1);
                self.s.frames[at + pos.pipe as usize] = pos.plus(1);
            }
            o if o.is_terminator() => {}
            _ => {
                for &v in func.operands(op).iter().filter(|&&v| is_iter(func, v)) {
                    self.current(op, v, at, "a use");
                }
            }
        }
    }

    /// What a region did not hand on it must not have advanced.
    fn unchanged(&mut self, op: Op, at: usize, inner: usize, handed: &[Value]) {
        for p in 0..self.m.pipes.len() {
            let carried = handed.iter().any(|&v| self.s.pos[v].pipe == p as u32);
            if !carried && self.s.frames[inner + p] != self.s.frames[at + p] {
                self.found.push((op, format!("an advanced iterator of Pipe_{p} is not handed on")));
            }
        }
    }

    fn plain_loop(&mut self, op: Op, at: usize) {
        let func = self.func();
        let Some(body) = func.op_block_at(op, 0) else { return };
        let (inits, params) = (func.named_segment(op, "inits"), func.block_params(body));
        let inner = self.open(at);
        for (&init, &param) in inits.iter().zip(params.iter().skip(1)).filter(|x| is_iter(func, *x.0)) {
            let Some(pos) = self.current(op, init, at, "the begin of a loop") else { continue };
            let p = pos.pipe as usize;
            if self.s.frames[inner + p] == self.s.frames[at + p] {
                self.s.frames[inner + p] = self.fresh(pos.pipe);
            }
            self.s.pos[param] = self.s.frames[inner + p];
        }
        self.block(body, inner);
        let out = yields(func, op, 0);
        for (&v, &result) in out.iter().zip(func.results(op)).filter(|x| is_iter(func, *x.0)) {
            if let Some(pos) = self.current(op, v, inner, "the end of an iteration") {
                self.s.pos[result] = Pos { pipe: pos.pipe, ..Pos::default() };
            }
        }
        self.unchanged(op, at, inner, out);
        self.s.frames.truncate(inner);
        self.end(op, at, |_| 0);
    }

    /// Gives the results of a loop their positions: a new anchor per pipe, less what a result is behind.
    fn end(&mut self, op: Op, at: usize, behind: impl Fn(usize) -> i64) {
        let func = self.func();
        let before = self.anchors;
        for (n, &result) in func.results(op).iter().enumerate().filter(|x| is_iter(func, *x.1)) {
            let pipe = self.s.pos[result].pipe;
            let Some(p) = (pipe != u32::MAX).then_some(pipe as usize) else { continue };
            if self.s.frames[at + p].anchor <= before {
                self.s.frames[at + p] = self.fresh(pipe);
            }
            self.s.pos[result] = self.s.frames[at + p].plus(-behind(n));
        }
    }

    fn branch(&mut self, op: Op, at: usize) {
        let func = self.func();
        for n in 0..func.regions(op).len() {
            let Some(b) = func.op_block_at(op, n) else { continue };
            let inner = self.open(at);
            self.block(b, inner);
            let out = yields(func, op, n);
            for (&v, &result) in out.iter().zip(func.results(op)).filter(|x| is_iter(func, *x.0)) {
                let Some(pos) = self.current(op, v, inner, "the end of an arm") else { continue };
                let known = self.s.pos[result];
                if n == 0 {
                    self.s.pos[result] = pos;
                } else if known != pos {
                    self.s.pos[result] = self.fresh(pos.pipe);
                }
            }
            self.unchanged(op, at, inner, out);
            self.s.frames.truncate(inner);
        }
        for &result in func.results(op).iter().filter(|&&v| is_iter(func, v)) {
            let pos = self.s.pos[result];
            if pos.pipe != u32::MAX {
                self.s.frames[at + pos.pipe as usize] = pos;
            }
        }
    }

    /// By pipe, whether the steady loop of that origin in a block carries its iterator.
    fn carried(&self, b: Block, of: i64) -> Carried {
        let func = self.func();
        let mut out: Carried = SmallVec::from_elem(false, self.m.pipes.len());
        let is_loop = |op: &Op| {
            func.opcode(*op) == Opcode::For
                && note(func, *op, keys::ORIGIN) == Some(of)
                && func.inherent(*op).get(keys::STEADY).is_some()
        };
        for l in func.block_ops(b).filter(is_loop) {
            for &v in func.named_segment(l, "inits").iter().filter(|&&v| is_iter(func, v)) {
                if let Some((p, _)) = self.m.trace(v, 64) {
                    out[p] = true;
                }
            }
        }
        out
    }

    /// A group of one iteration under its guard: the positions of what its loop carries are `by` on. Its results are
    /// one further where the group advances.
    fn copy(&mut self, op: Op, at: usize, carried: &Carried, by: i64) {
        let inner = self.open(at);
        for p in (0..self.m.pipes.len()).filter(|&p| carried[p]) {
            self.s.frames[inner + p] = self.s.frames[inner + p].plus(by);
        }
        self.guarded(op, inner);
        self.s.frames.truncate(inner);
    }

    /// A guarded group at the positions of a frame, which are advanced afterwards where the group advances.
    fn guarded(&mut self, op: Op, at: usize) {
        let func = self.func();
        let inner = self.open(at);
        if let Some(b) = func.op_block_at(op, 0) {
            self.block(b, inner);
        }
        let (then, other) = (yields(func, op, 0), yields(func, op, 1));
        for (n, &result) in func.results(op).iter().enumerate().filter(|x| is_iter(func, *x.1)) {
            let (Some(&v), Some(&old)) = (then.get(n), other.get(n)) else { continue };
            let (a, b) = (
                self.current(op, v, inner, "the end of a guarded group"),
                self.current(op, old, at, "a group that is skipped"),
            );
            let (Some(a), Some(b)) = (a, b) else { continue };
            if a.pipe != b.pipe {
                self.say(op, b, "a group that is skipped");
            }
            self.s.pos[result] = if a == b { b } else { b.plus(1) };
        }
        self.unchanged(op, at, inner, then);
        for p in 0..self.m.pipes.len() {
            if self.s.frames[inner + p] != self.s.frames[at + p] {
                self.s.frames[at + p] = self.s.frames[at + p].plus(1);
            }
        }
        self.s.frames.truncate(inner);
    }

    /// A loop with local stages.
    fn staged(&mut self, op: Op, at: usize) {
        let func = self.func();
        let Some(body) = func.op_block_at(op, 0) else { return };
        let skew = note(func, op, keys::SKEW).unwrap_or(0);
        let steady = func.inherent(op).get(keys::STEADY).is_some();
        let (inits, params) = (func.named_segment(op, "inits"), func.block_params(body));
        let out = yields(func, op, 0);
        let first = self.s.chains.len();
        for n in (0..inits.len()).filter(|&n| is_iter(func, inits[n])) {
            let (init, Some(&param), Some(&next)) = (inits[n], params.get(n + 1), out.get(n)) else {
                continue;
            };
            let Some(last) = func.defining_op(next) else {
                self.found
                    .push((op, "a loop with local stages does not advance an iterator it carries".into()));
                continue;
            };
            let local = note(func, last, keys::LOCAL).unwrap_or(0);
            // As often as iterations of that stage were before.
            let pos = self.s.pos[init];
            let done = if steady { skew - local } else { 0 };
            if pos.pipe == u32::MAX || self.s.frames[at + pos.pipe as usize].plus(done) != pos {
                self.say(op, pos, "the begin of a loop with local stages");
                continue;
            }
            let begin = self.fresh(pos.pipe);
            self.s.pos[param] = begin;
            if self.s.chains[first..].iter().any(|c| c.0 == local && c.1.pipe == pos.pipe) {
                let text = format!("two iterators of Pipe_{} for local stage {local}", pos.pipe);
                self.found.push((op, text));
            }
            self.s.chains.push((local, begin));
        }
        let all = self.s.chains.len();
        for o in func.block_ops(body) {
            let local = note(func, o, keys::LOCAL).unwrap_or(0);
            let inner = self.open(at);
            // What the loop carries is there for its own stage alone.
            for k in first..all {
                self.s.frames[inner + self.s.chains[k].1.pipe as usize] = Pos::default();
            }
            for k in (first..all).filter(|&k| self.s.chains[k].0 == local) {
                let pos = self.s.chains[k].1;
                self.s.frames[inner + pos.pipe as usize] = pos;
            }
            match func.opcode(o) {
                Opcode::For => self.plain_loop(o, inner),
                Opcode::If if note(func, o, keys::ORIGIN).is_none() => self.guarded(o, inner),
                Opcode::If => self.branch(o, inner),
                _ => self.leaf(o, inner),
            }
            for p in 0..self.m.pipes.len() {
                let chained = self.s.chains[first..all].iter().any(|c| c.1.pipe == p as u32);
                if !chained && self.s.frames[inner + p] != self.s.frames[at + p] {
                    self.found.push((o, format!("an advanced iterator of Pipe_{p} is not handed on")));
                }
            }
            let Scratch { chains, frames, .. } = &mut *self.s;
            for c in chains[first..all].iter_mut().filter(|c| c.0 == local) {
                c.1 = frames[inner + c.1.pipe as usize];
            }
            self.s.frames.truncate(inner);
        }
        for n in (0..out.len().min(inits.len())).filter(|&n| is_iter(func, out[n])) {
            let (pos, init) = (self.s.pos[out[n]], self.s.pos[inits[n]]);
            let chain = self.s.chains[first..].iter().find(|c| c.1 == pos);
            // The argument's own chain, advanced.
            let begin = params.get(n + 1).map_or(Pos::default(), |&v| self.s.pos[v]);
            let own = chain.is_some() && pos.pipe == init.pipe && pos != begin;
            let same = begin.anchor == pos.anchor || chain.is_some_and(|c| self.starts(func, op, n, c.0));
            if !own || !same {
                self.say(op, pos, "the end of a step");
            }
            if let Some(&result) = func.results(op).get(n) {
                self.s.pos[result] = Pos { pipe: init.pipe, ..Pos::default() };
            }
        }
        self.s.chains.truncate(first);
        let local =
            |n: usize| out.get(n).and_then(|&v| func.defining_op(v)).and_then(|d| note(func, d, keys::LOCAL));
        self.end(op, at, |n| if steady { local(n).unwrap_or(0) } else { 0 });
    }

    /// Whether argument `n` of a loop is the chain of that local stage.
    fn starts(&self, func: &Function, op: Op, n: usize, local: i64) -> bool {
        let last = yields(func, op, 0).get(n).and_then(|&v| func.defining_op(v));
        last.is_some_and(|d| note(func, d, keys::LOCAL).unwrap_or(0) == local)
    }
}
