//! Random programs ([`super`]) as text of materialised kernels, with rolled loops for local stages.

use super::{Program, Role, Step};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Something that an agent's code passes from step to step.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Var {
    /// Iterator of a channel for one local stage.
    Iter(usize, u32),
    /// Ownership: of the producer (false) or of the consumer (true).
    Owned(usize, bool),
}

struct Emit<'p> {
    p: &'p Program,
    s: String,
    agent: usize,
    names: usize,
    vars: BTreeMap<Var, String>,
    /// The local stage whose iterators are used.
    local: u32,
    /// The rolled loop being written.
    block: usize,
}

impl Emit<'_> {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("%v{}", self.names)
    }

    fn line(&mut self, indent: usize, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.s, "{:indent$}{text}", "");
    }

    fn ty(&self, v: Var) -> String {
        match v {
            Var::Iter(c, _) => format!("pipe_iter<{}>", self.p.channels[c].depth),
            Var::Owned(c, false) => format!("pipe_producer<{}>", self.p.channels[c].depth),
            Var::Owned(c, true) => format!("pipe_consumer<{}>", self.p.channels[c].depth),
        }
    }

    fn get(&self, v: Var) -> String {
        self.vars.get(&v).cloned().unwrap_or_else(|| "%missing".into())
    }

    fn set(&mut self, v: Var, name: String) {
        self.vars.insert(v, name);
    }

    fn note(&self) -> String {
        if self.local > 0 { format!(" <{{local = {}}}>", self.local) } else { String::new() }
    }

    /// One step; what it changes is in `vars` afterwards.
    fn step(&mut self, step: Step, indent: usize) {
        let (a, note) = (self.agent, self.note());
        let (c, line) = match step {
            Step::Loop(b) => return self.for_op(b, indent),
            Step::If(x, y) => return self.if_op(x, y, indent),
            Step::Acquire(c) => {
                let it = self.get(Var::Iter(c, self.local));
                (c, format!("async.pipeline.producer_acquire %c{c}.p, {it}{note}"))
            }
            Step::Commit(c) => {
                let own = self.get(Var::Owned(c, false));
                (c, format!("async.pipeline.producer_commit {own}{note}"))
            }
            Step::Wait(c) => {
                let it = self.get(Var::Iter(c, self.local));
                let k = self.p.channels[c].consumers.iter().position(|&x| x == a).unwrap_or(0);
                let stage = if self.local > 0 { format!(", local = {}", self.local) } else { String::new() };
                (c, format!("async.pipeline.consumer_wait %c{c}.c, {it} <{{consumer_idx = {k}{stage}}}>"))
            }
            Step::Release(c) => {
                let own = self.get(Var::Owned(c, true));
                (c, format!("async.pipeline.consumer_release {own}{note}"))
            }
        };
        let var = Var::Owned(c, matches!(step, Step::Wait(_) | Step::Release(_)));
        let (v, ty) = (self.name(), self.ty(var));
        let opens = matches!(step, Step::Acquire(_) | Step::Wait(_));
        if !opens {
            self.access(c, var, &note, indent);
        }
        self.line(indent, &format!("{v} = {line} : {ty}"));
        if opens {
            self.set(var, v);
            self.access(c, var, &note, indent);
        }
    }

    /// The producer writes the slot, a consumer reads it.
    fn access(&mut self, c: usize, var: Var, note: &str, indent: usize) {
        let Some((_, columns)) = self.p.channels[c].at else { return };
        let it = self.get(Var::Iter(c, self.local));
        if var == Var::Owned(c, false) {
            self.line(indent, &format!("copy %tile{columns}, %b{c}[{it}]{note}"));
        } else {
            let v = self.name();
            self.line(indent, &format!("{v} = copy %b{c}[{it}]{note} : tile<128x{columns}xf16, rmem, row>"));
        }
    }

    fn inc(&mut self, c: usize, local: u32, indent: usize) {
        let var = Var::Iter(c, local);
        let (v, old, ty, note) = (self.name(), self.get(var), self.ty(var), self.note());
        self.line(indent, &format!("{v} = async.pipeline.inc_iter {old}{note} : {ty}"));
        self.set(var, v);
    }

    /// A block without local stages.
    fn steps(&mut self, block: usize, indent: usize) {
        let p = self.p;
        p.steps[self.agent][block].iter().for_each(|&(_, s)| self.step(s, indent));
        for c in 0..p.channels.len() {
            if p.channels[c].home == block && p.uses(self.agent, c) && block != 0 {
                self.inc(c, self.local, indent);
            }
        }
    }

    /// Local stages in which a loop body uses a channel, homed there or in an arm of it.
    fn locals(&self, block: usize, c: usize) -> Vec<u32> {
        let p = self.p;
        let mut out: Vec<u32> = p.steps[self.agent][block]
            .iter()
            .filter(|&&(_, s)| match s {
                Step::Acquire(d) | Step::Commit(d) | Step::Wait(d) | Step::Release(d) => c == d,
                Step::If(x, y) => {
                    p.inside(self.agent, x).contains(&c) || p.inside(self.agent, y).contains(&c)
                }
                Step::Loop(_) => false,
            })
            .map(|s| s.0)
            .collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    fn for_op(&mut self, block: usize, indent: usize) {
        let p = self.p;
        let skew = p.skew(self.agent, block);
        let outer = self.vars.clone();
        let mut carried: Vec<(Var, String)> = Vec::new();
        for c in p.inside(self.agent, block) {
            let init = self.get(Var::Iter(c, 0));
            if skew == 0 {
                carried.push((Var::Iter(c, 0), init));
                continue;
            }
            for k in self.locals(block, c) {
                carried.push((Var::Iter(c, k), init.clone()));
            }
            if p.channels[c].home == block {
                // Ownership passes from step to step.
                if p.channels[c].producer == self.agent {
                    carried.push((Var::Owned(c, false), format!("%c{c}.p")));
                }
                if p.channels[c].consumers.contains(&self.agent) {
                    carried.push((Var::Owned(c, true), format!("%c{c}.c")));
                }
            }
        }
        let list: Vec<String> = carried
            .iter()
            .map(|(v, init)| {
                let arg = self.name();
                self.set(*v, arg.clone());
                format!("{arg} = {init} : {}", self.ty(*v))
            })
            .collect();
        let results: Vec<String> = carried.iter().map(|_| self.name()).collect();
        let t = self.name();
        let (bound, note) = if skew > 0 {
            let (s, steps) = (self.name(), self.name());
            self.line(indent, &format!("{s} = constant {skew} : i32"));
            self.line(indent, &format!("{steps} = addi %trips{block}, {s} : i32"));
            (steps, format!(", skew = {skew}"))
        } else {
            (format!("%n{block}"), String::new())
        };
        let head = format!(
            "{} = for {t} = %zero to {bound} step %one iter ({}) <{{origin = {block}{note}}}> {{",
            results.join(", "),
            list.join(", ")
        );
        self.line(indent, &head);
        if skew == 0 {
            self.steps(block, indent + 2);
        } else {
            self.rolled(block, &t, indent + 2);
        }
        let ys: Vec<String> = carried.iter().map(|c| self.get(c.0)).collect();
        self.line(indent, &format!("  yield {}", ys.join(", ")));
        self.line(indent, "}");
        self.vars = outer;
        for ((v, _), r) in carried.into_iter().zip(results) {
            if let Var::Iter(c, _) = v {
                self.set(Var::Iter(c, 0), r);
            }
        }
    }

    /// The body of a rolled loop: every step under a guard of its own.
    fn rolled(&mut self, block: usize, t: &str, indent: usize) {
        let p = self.p;
        self.block = block;
        for &(local, step) in &p.steps[self.agent][block] {
            self.guarded(local, t, indent, |e, at| e.step(step, at));
        }
        for c in 0..p.channels.len() {
            if p.channels[c].home == block && p.uses(self.agent, c) {
                for local in self.locals(block, c) {
                    self.guarded(local, t, indent, |e, at| e.inc(c, local, at));
                }
            }
        }
        self.local = 0;
    }

    fn guarded(&mut self, local: u32, t: &str, indent: usize, f: impl FnOnce(&mut Self, usize)) {
        let (k, i, lt, ge, guard) = (self.name(), self.name(), self.name(), self.name(), self.name());
        self.line(indent, &format!("{k} = constant {local} : i32"));
        self.line(indent, &format!("{i} = subi {t}, {k} : i32"));
        let block = self.block;
        self.line(indent, &format!("{lt} = cmpi {i}, %trips{block} <{{predicate = lt}}> : i1"));
        self.line(indent, &format!("{ge} = cmpi {i}, %zero <{{predicate = ge}}> : i1"));
        let guard = if local == 0 {
            lt
        } else {
            self.line(indent, &format!("{guard} = andi {ge}, {lt} : i1"));
            guard
        };
        let (before, text) = (self.vars.clone(), std::mem::take(&mut self.s));
        self.local = local;
        f(self, indent + 2);
        let body = std::mem::replace(&mut self.s, text);
        let changed: Vec<Var> = self
            .vars
            .iter()
            .filter(|(v, name)| before.get(v).is_some_and(|old| old != *name))
            .map(|(v, _)| *v)
            .collect();
        let results: Vec<String> = changed.iter().map(|_| self.name()).collect();
        let types: Vec<String> = changed.iter().map(|&v| self.ty(v)).collect();
        let (eq, colon) = if changed.is_empty() { ("", "") } else { (" = ", " : ") };
        let note = if local > 0 { format!(" <{{local = {local}}}>") } else { String::new() };
        let head = format!("{}{eq}if {guard}{note}{colon}{} {{", results.join(", "), types.join(", "));
        self.line(indent, &head);
        self.s.push_str(&body);
        let new: Vec<String> = changed.iter().map(|&v| self.get(v)).collect();
        let old: Vec<String> = changed.iter().map(|v| before[v].clone()).collect();
        self.line(indent, format!("  yield {}", new.join(", ")).trim_end());
        self.line(indent, "} else {");
        self.line(indent, format!("  yield {}", old.join(", ")).trim_end());
        self.line(indent, "}");
        self.vars = before;
        for (v, r) in changed.into_iter().zip(results) {
            self.set(v, r);
        }
    }

    fn if_op(&mut self, x: usize, y: usize, indent: usize) {
        let p = self.p;
        let mut carried = p.inside(self.agent, x);
        carried.extend(p.inside(self.agent, y));
        let local = self.local;
        let vars: Vec<Var> = carried.iter().map(|&c| Var::Iter(c, local)).collect();
        let results: Vec<String> = vars.iter().map(|_| self.name()).collect();
        let types: Vec<String> = vars.iter().map(|&v| self.ty(v)).collect();
        let (eq, colon) = if vars.is_empty() { ("", "") } else { (" = ", " : ") };
        let stage = if local > 0 { format!(", local = {local}") } else { String::new() };
        let head = format!(
            "{}{eq}if %flag <{{origin = {y}{stage}}}>{colon}{} {{",
            results.join(", "),
            types.join(", ")
        );
        self.line(indent, &head);
        let before = self.vars.clone();
        // Ops inside an arm belong to the step of the branch.
        for c in p.inside(self.agent, x).into_iter().chain(p.inside(self.agent, y)) {
            let it = self.get(Var::Iter(c, local));
            self.set(Var::Iter(c, 0), it);
        }
        let inside = self.vars.clone();
        self.local = 0;
        for (n, arm) in [x, y].into_iter().enumerate() {
            self.vars.clone_from(&inside);
            self.steps(arm, indent + 2);
            let ys: Vec<String> = carried.iter().map(|&c| self.get(Var::Iter(c, 0))).collect();
            self.line(indent, format!("  yield {}", ys.join(", ")).trim_end());
            self.line(indent, if n == 0 { "} else {" } else { "}" });
        }
        self.local = local;
        self.vars = before;
        for (v, r) in vars.into_iter().zip(results) {
            self.set(v, r);
        }
    }
}

/// The program as a materialised kernel.
pub fn text(p: &Program) -> String {
    let params: Vec<String> = (1..p.blocks.len()).map(|b| format!("%n{b}: i32, ")).collect();
    let smem = (p.channels.len() * 64).next_multiple_of(16) + 1024;
    let mut s = format!(
        "kernel @random({}%f: i32) <{{num_threads = {}, dynamic_smem = {smem}}}> {{\n  %zero = constant 0 : i32\n  %one = constant 1 : i32\n  %flag = cmpi %f, %zero <{{predicate = gt}}> : i1\n",
        params.concat(),
        32 * p.agents
    );
    for columns in [32, 64] {
        let _ = writeln!(s, "  %tile{columns} = constant 0.0 : tile<128x{columns}xf16, rmem, row>");
    }
    for b in (1..p.blocks.len()).filter(|&b| p.blocks[b].1 == Role::Loop) {
        let _ = writeln!(
            s,
            "  %span{b} = subi %n{b}, %zero : i32\n  %up{b} = addi %span{b}, %one : i32\n  %last{b} = subi %up{b}, %one : i32\n  %quot{b} = divi %last{b}, %one : i32\n  %trips{b} = maxi %quot{b}, %zero : i32"
        );
    }
    for (n, c) in p.channels.iter().enumerate() {
        let empty = if c.freed {
            format!("arrive({}), empty_at = {}", c.consumers.len(), n * 64 + 32)
        } else {
            "none".into()
        };
        let d = c.depth;
        let buffer = c.at.map_or(String::new(), |(at, columns)| {
            let ty = format!("tile<{d}x128x{columns}xf16, smem, k{}>", 2 * columns);
            let _ = writeln!(s, "  %b{n} = alloc_tensor <{{offset = {at}, align = 1024}}> : {ty}");
            format!("%b{n} ")
        });
        let _ = writeln!(
            s,
            "  %c{n}.p, %c{n}.c = async.pipeline.create_pipeline {buffer}<{{numStages = {d}, producerGroupId = {}, consumerGroupId = {}, distance = {}, full = arrive(1), full_at = {}, empty = {empty}}}> : pipe_producer<{d}>, pipe_consumer<{d}>",
            c.producer,
            c.consumers[0],
            c.distance,
            n * 64
        );
    }
    let list = |f: &dyn Fn(usize) -> String| (0..p.agents).map(f).collect::<Vec<_>>().join(", ");
    let _ = writeln!(
        s,
        "  async.pipeline.agent_switch <{{num_warps = [{}], warp_id = [{}], lanes = [{}], max_regs = [{}]}}> {{",
        list(&|_| "1".into()),
        list(&|a| a.to_string()),
        list(&|_| "elect".into()),
        list(&|_| "0".into())
    );
    let mut e = Emit { p, s, agent: 0, names: 0, vars: BTreeMap::new(), local: 0, block: 0 };
    for a in 0..p.agents {
        e.line(4, &format!("agent {a} {{"));
        e.agent = a;
        e.vars.clear();
        for c in (0..p.channels.len()).filter(|&c| p.uses(a, c)) {
            let v = e.name();
            let side = if p.channels[c].producer == a { "p" } else { "c" };
            let ty = e.ty(Var::Iter(c, 0));
            e.line(6, &format!("{v} = async.pipeline.create_iterator %c{c}.{side} : {ty}"));
            e.set(Var::Iter(c, 0), v);
        }
        e.steps(0, 6);
        e.line(6, "async.pipeline.yield");
        e.line(4, "}");
    }
    e.s.push_str("  }\n  return\n}\n");
    e.s
}
