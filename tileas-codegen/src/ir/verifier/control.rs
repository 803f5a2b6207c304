//! Loops, branches, pipelines and agents.

use super::Checker;
use super::MOST_PENDING;
use crate::error::Code;
use crate::ir::attrs::AttrData;
use crate::ir::entities::{Block, Op, Sym, Type};
use crate::ir::opcodes::{Opcode, keys};
use crate::ir::types::TypeData;
use smallvec::SmallVec;

impl Checker<'_> {
    pub(super) fn control(&mut self, op: Op) {
        match self.func.opcode(op) {
            Opcode::For => self.for_loop(op),
            Opcode::Loop => self.unbounded_loop(op),
            Opcode::If => self.branch(op),
            Opcode::Break | Opcode::Continue => {
                self.same_count(op, Code::E0203, "results", self.func.results(op).len(), 0);
                self.leaves_loop(op);
            }
            Opcode::ExitIf => self.exit_if(op),
            Opcode::AsyncPipelineCreatePipeline => self.create_pipeline(op),
            Opcode::AsyncPipelineCreateIterator => self.create_iterator(op),
            Opcode::AsyncPipelineProducerAcquire | Opcode::AsyncPipelineConsumerWait => self.acquire(op),
            Opcode::AsyncPipelineConsumerRelease => self.owned_result(op),
            Opcode::AsyncPipelineAgentSwitch => self.agents(op),
            Opcode::AsyncDotWait => {
                self.same_count(op, Code::E0203, "results", self.func.results(op).len(), 0);
                let pending = self.func.attr_int(op, keys::PENDING).unwrap_or(0);
                if !(0..=MOST_PENDING).contains(&pending) {
                    let text = format_args!("expected 0 to {MOST_PENDING} in `pending`, but got {pending}");
                    self.err(op, Code::E0209, text);
                }
            }
            Opcode::Return
            | Opcode::Yield
            | Opcode::AsyncPipelineYield
            | Opcode::AsyncPipelineStoreWait
            | Opcode::AsyncPipelineGiveTurn => {
                self.same_count(op, Code::E0203, "results", self.func.results(op).len(), 0);
            }
            _ => {}
        }
    }

    fn types(&self, values: &[crate::ir::Value]) -> SmallVec<[Type; 8]> {
        values.iter().map(|&v| self.func.value_type(v)).collect()
    }

    /// Compares two lists of types, lengths first.
    fn same_types(&mut self, op: Op, code: Code, what: &str, have: &[Type], want: &[Type]) {
        if have.len() != want.len() {
            self.same_count(op, code, format_args!("{what}s"), have.len(), want.len());
            return;
        }
        for (n, (&h, &w)) in have.iter().zip(want).enumerate() {
            self.same_type(op, code, format_args!("{what} {n}"), h, w);
        }
    }

    /// Types that the `yield` at the end of a block passes on; `None` when the block ends otherwise.
    fn yielded(&self, b: Block) -> Option<(Op, SmallVec<[Type; 8]>)> {
        let last = self.func.last_op(b)?;
        (self.func.opcode(last) == Opcode::Yield).then(|| (last, self.types(self.func.operands(last))))
    }

    fn for_loop(&mut self, op: Op) {
        let func = self.func;
        let &[lower, upper, step, ref inits @ ..] = func.operands(op) else { return };
        let iv = func.value_type(lower);
        self.same_type(op, Code::E0219, "an upper bound", func.value_type(upper), iv);
        self.same_type(op, Code::E0219, "a step", func.value_type(step), iv);
        if let Some(s) = func.constant_value(step)
            && s <= 0.0
        {
            self.err(op, Code::E0219, format_args!("expected a step of at least 1, but got {s}"));
        }
        let inits = self.types(inits);
        let results = self.types(func.results(op));
        self.same_types(op, Code::E0219, "result", &results, &inits);
        let Some(body) = func.op_block_at(op, 0) else { return };
        let params = self.types(func.block_params(body));
        match params.split_first() {
            None => self.err(op, Code::E0219, "expected an induction variable, but got no body parameters"),
            Some((&have, args)) => {
                self.same_type(op, Code::E0219, "an induction variable", have, iv);
                self.same_types(op, Code::E0219, "iteration argument", args, &inits);
            }
        }
        if let Some((at, yields)) = self.yielded(body) {
            self.same_types(at, Code::E0219, "yielded value", &yields, &inits);
        }
    }

    fn unbounded_loop(&mut self, op: Op) {
        let func = self.func;
        let Some(body) = func.op_block_at(op, 0) else { return };
        let inits = self.types(func.operands(op));
        let params = self.types(func.block_params(body));
        self.same_types(op, Code::E0219, "iteration argument", &params, &inits);
    }

    /// What `break` and `continue` hand on.
    fn leaves_loop(&mut self, op: Op) {
        let func = self.func;
        let mut around = func.op_parent(op);
        while let Some(p) = around.filter(|&p| func.opcode(p) == Opcode::If) {
            around = func.op_parent(p);
        }
        let Some(l) = around else { return };
        let given = self.types(func.operands(op));
        let args = match func.opcode(l) {
            Opcode::For => func.for_args(l),
            Opcode::Loop => func.op_block_at(l, 0).map_or(&[][..], |b| func.block_params(b)),
            _ => return,
        };
        if func.opcode(op) == Opcode::Break {
            let results = self.types(func.results(l));
            self.same_types(op, Code::E0219, "result", &given, &results);
        } else {
            let args = self.types(args);
            self.same_types(op, Code::E0219, "value of the next iteration", &given, &args);
        }
    }

    fn exit_if(&mut self, op: Op) {
        let func = self.func;
        self.same_count(op, Code::E0203, "results", func.results(op).len(), 0);
        if func.op_parent(op).and_then(|l| func.exit_of(l)) != Some(op) {
            self.err(op, Code::E0219, "expected right before the terminator of a `for`");
        }
    }

    fn branch(&mut self, op: Op) {
        let func = self.func;
        let results = self.types(func.results(op));
        for &r in func.regions(op) {
            let b = func.region_block(r);
            self.same_count(op, Code::E0220, "block parameters", func.block_params(b).len(), 0);
            let Some((at, yields)) = self.yielded(b) else { continue };
            let iterators = yields.len() == results.len()
                && yields.iter().zip(&results).any(|(&a, &b)| {
                    let iter = |t| matches!(func.type_data(t), TypeData::PipeIter(_));
                    a != b && iter(a) && iter(b)
                });
            if iterators {
                self.err(at, Code::E0220, "branch arms must yield matching pipeline iterator types");
            }
            self.same_types(at, Code::E0220, "yielded value", &yields, &results);
        }
    }

    // ---- pipelines

    fn slots(&self, data: &TypeData) -> Option<u32> {
        match *data {
            TypeData::PipeProducer(n) | TypeData::PipeConsumer(n) | TypeData::PipeIter(n) => Some(n),
            _ => None,
        }
    }

    fn create_pipeline(&mut self, op: Op) {
        let func = self.func;
        let Some(stages) = func.attr_int(op, keys::NUM_STAGES) else { return };
        let &[producer, consumer] = func.results(op) else { return };
        let (p, c) = (self.data(producer), self.data(consumer));
        if !matches!((p, c), (TypeData::PipeProducer(_), TypeData::PipeConsumer(_))) {
            self.err(
                op,
                Code::E0223,
                format_args!("expected results pipe_producer and pipe_consumer, but got {p} and {c}"),
            );
            return;
        }
        for end in [p, c] {
            if self.slots(end).map(i64::from) != Some(stages) {
                self.err(
                    op,
                    Code::E0223,
                    format_args!("expected {stages} slots as `numStages`, but got {end}"),
                );
            }
        }
        for &b in func.operands(op) {
            let have = self.data(b).dims().and_then(|d| d.first()).copied();
            if have.map(i64::from) != Some(stages) {
                let have = have.unwrap_or(0);
                let name = self.show(b);
                self.err(
                    op,
                    Code::E0223,
                    format_args!("expected {stages} slots in buffer {name}, but got {have}"),
                );
            }
        }
        for key in [keys::PRODUCER_GROUP_ID, keys::CONSUMER_GROUP_ID] {
            if let Some(v) = func.attr_int(op, key)
                && !(0..256).contains(&v)
            {
                let name = func.symbol(key);
                self.err(op, Code::E0205, format_args!("expected 0 to 255 for `{name}`, but got {v}"));
            }
        }
        for key in [keys::FULL, keys::EMPTY] {
            self.signal(op, key);
        }
    }

    fn signal(&mut self, op: Op, key: Sym) {
        let Some((name, args)) = self.func.attr_call(op, key) else { return };
        let want = match name {
            "tx" => 2,
            "none" => 0,
            _ => 1,
        };
        if args.len() != want || args.iter().any(|&a| a <= 0) {
            let key = self.func.symbol(key);
            self.err(
                op,
                Code::E0205,
                format_args!("`{key}` expects {want} positive numbers for {name}, but got {args:?}"),
            );
        }
    }

    fn create_iterator(&mut self, op: Op) {
        let (Some(&pipe), Some(result)) = (self.func.operands(op).first(), self.result_data(op)) else {
            return;
        };
        let pipe = self.data(pipe);
        if !matches!(pipe, TypeData::PipeProducer(_) | TypeData::PipeConsumer(_)) {
            self.err(
                op,
                Code::E0202,
                format_args!("`pipeline` expects an end of a pipeline, but got {pipe}"),
            );
        } else if !matches!(result, TypeData::PipeIter(_)) || self.slots(result) != self.slots(pipe) {
            let n = self.slots(pipe).unwrap_or(0);
            self.err(
                op,
                Code::E0223,
                format_args!("expected a result of type pipe_iter<{n}>, but got {result}"),
            );
        }
    }

    fn acquire(&mut self, op: Op) {
        let &[pipe, iter] = self.func.operands(op) else { return };
        let (p, i) = (self.data(pipe), self.data(iter));
        if self.slots(p) != self.slots(i) {
            self.err(op, Code::E0223, format_args!("expected an iterator for {p}, but got {i}"));
        }
        self.owned_result(op);
    }

    /// The result is ownership of the same kind as the first operand.
    fn owned_result(&mut self, op: Op) {
        let (Some(&first), Some(have)) = (self.func.operands(op).first(), self.result_type(op)) else {
            return;
        };
        self.same_type(op, Code::E0223, "a result", have, self.func.value_type(first));
    }

    // ---- agents

    fn agents(&mut self, op: Op) {
        let func = self.func;
        let regions = func.regions(op).len();
        self.same_count(op, Code::E0203, "results", func.results(op).len(), 0);
        if func.op_parent(op).is_some() {
            self.err(op, Code::E0224, "expected at kernel level, but got a nested place");
        }
        if regions == 0 {
            self.err(op, Code::E0224, "expected at least 1 region, but got 0");
        }
        for (n, &r) in func.regions(op).iter().enumerate() {
            let params = func.block_params(func.region_block(r)).len();
            self.same_count(op, Code::E0224, format_args!("parameters in region {n}"), params, 0);
        }
        let ints = |key| func.attr_ints(op, key).unwrap_or_default();
        let (warps, first, regs) = (ints(keys::NUM_WARPS), ints(keys::WARP_ID), ints(keys::MAX_REGS));
        for (key, list) in [(keys::NUM_WARPS, &warps), (keys::WARP_ID, &first), (keys::MAX_REGS, &regs)] {
            let name = func.symbol(key);
            self.same_count(op, Code::E0224, format_args!("entries in `{name}`"), list.len(), regions);
        }
        let names: Option<SmallVec<[Sym; 4]>> = match func.attr(op, keys::LANES) {
            Some(AttrData::Array(list)) => list
                .iter()
                .map(|&a| match func.attr_data(a) {
                    AttrData::Name(s) if [keys::ALL, keys::ELECT].contains(s) => Some(*s),
                    _ => None,
                })
                .collect(),
            _ => None,
        };
        match names {
            None => self.err(op, Code::E0205, "attribute `lanes` expects a list of `all` and `elect`"),
            Some(list) => self.same_count(op, Code::E0224, "entries in `lanes`", list.len(), regions),
        }
        let mut end = 0;
        let mut ranges: SmallVec<[(i64, i64); 8]> =
            first.iter().copied().zip(warps.iter().copied()).collect();
        ranges.sort_unstable();
        for (start, count) in ranges {
            if count < 1 || start < 0 || start.saturating_add(count) > 32 {
                self.err(
                    op,
                    Code::E0224,
                    format_args!("expected warps within 0..32, but got {count} from warp {start}"),
                );
            } else if start < end {
                self.err(
                    op,
                    Code::E0224,
                    format_args!("expected disjoint agents, but warps {start} to {} belong to two", end - 1),
                );
            }
            end = end.max(start.saturating_add(count));
        }
        for r in regs {
            if r != 0 && (!(24..=256).contains(&r) || r % 8 != 0) {
                self.err(
                    op,
                    Code::E0224,
                    format_args!("expected 0 or a multiple of 8 from 24 to 256 in `max_regs`, but got {r}"),
                );
            }
        }
    }
}
