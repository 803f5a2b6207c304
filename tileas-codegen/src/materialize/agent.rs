//! One agent's region: projection of the source regions, channel ops, iterators, drains.

use super::{Materializer, is_uniform};
use crate::agents::Agent;
use crate::buffers::channels::{Full, ancestor_in, runs_once};
use crate::buffers::{Free, WebId};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{AttrData, Block, Op, Opcode, Scalar, Space, TypeData, Value, ValueDef, keys};
use cranelift_entity::{EntityRef, SecondaryMap};

/// Whether a tensor-memory value has been written when it is used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Written {
    Never,
    Always,
    /// An `i1` in the new function.
    When(Value),
}

struct Region<'m, 'a> {
    m: &'m mut Materializer<'a>,
    agent: Agent,
    map: SecondaryMap<Value, Option<Value>>,
    /// Current iterator of each bundle.
    iters: Vec<Option<Value>>,
    /// Ownership values of the slot in use.
    owned_p: Vec<Option<Value>>,
    owned_c: Vec<Option<Value>>,
    /// Completion token of each source op.
    tokens: SecondaryMap<Op, Option<Value>>,
}

impl Materializer<'_> {
    pub(super) fn agent_region(&mut self, agent: Agent, block: Block) -> CodegenResult<()> {
        let n = self.buffers.bundles.len();
        let map = self.prologue.clone();
        let mut r = Region {
            m: self,
            agent,
            map,
            iters: vec![None; n],
            owned_p: vec![None; n],
            owned_c: vec![None; n],
            tokens: SecondaryMap::new(),
        };
        r.iterators(block);
        let entry = r.m.src.entry();
        r.block(entry, block)?;
        r.drain(block);
        let y = r.m.out.make_op(Opcode::AsyncPipelineYield, &[], &[], &[], r.m.src.loc);
        r.m.out.append_op(block, y);
        Ok(())
    }
}

impl Region<'_, '_> {
    fn iterators(&mut self, block: Block) {
        for n in 0..self.m.buffers.bundles.len() {
            let b = &self.m.buffers.bundles[n];
            if !self.m.takes_part(b, self.agent) {
                continue;
            }
            let ty = self.m.out.intern_type(TypeData::PipeIter(b.depth));
            let end = if b.producer == self.agent { self.m.pipe[n].0 } else { self.m.pipe[n].1 };
            let op =
                self.m.out.make_op(Opcode::AsyncPipelineCreateIterator, &[end], &[1], &[ty], self.m.src.loc);
            self.m.out.append_op(block, op);
            self.iters[n] = Some(self.m.out.results(op)[0]);
        }
    }

    /// Waits until every slot that an engine frees is free again, so that no arrival is pending at exit.
    fn drain(&mut self, block: Block) {
        for n in 0..self.m.buffers.bundles.len() {
            let b = &self.m.buffers.bundles[n];
            let engine = b.consumers.iter().any(|c| c.free == Free::Commit);
            if b.producer != self.agent || b.empty_at.is_none() || !engine {
                continue;
            }
            let depth = b.depth;
            let Some(start) = self.iters[n] else { continue };
            let i32t = self.m.out.scalar(Scalar::I32);
            let lo = self.int(block, 0);
            let hi = self.int(block, i64::from(depth));
            let one = self.int(block, 1);
            let ity = self.m.out.value_type(start);
            let op =
                self.m.out.make_op(Opcode::For, &[lo, hi, one, start], &[1, 1, 1, 1], &[ity], self.m.src.loc);
            self.m.out.append_op(block, op);
            let body = self.m.out.add_region(op);
            self.m.out.add_block_param(body, i32t);
            let it = self.m.out.add_block_param(body, ity);
            let acquired = self.acquire(body, n, it);
            self.m.out.set_attr(acquired, keys::DRAIN, AttrData::Unit);
            let next = self.inc(body, it);
            let y = self.m.out.make_op(Opcode::Yield, &[next], &[1], &[], self.m.src.loc);
            self.m.out.append_op(body, y);
        }
    }

    fn int(&mut self, block: Block, value: i64) -> Value {
        let ty = self.m.out.scalar(Scalar::I32);
        self.constant(block, AttrData::Int(value, None), ty)
    }

    fn constant(&mut self, block: Block, data: AttrData, ty: crate::ir::Type) -> Value {
        let op = self.m.out.make_op(Opcode::Constant, &[], &[], &[ty], self.m.src.loc);
        self.m.out.set_attr(op, keys::VALUE, data);
        self.m.out.append_op(block, op);
        self.m.out.results(op)[0]
    }

    fn acquire(&mut self, block: Block, n: usize, it: Value) -> Op {
        let p = self.m.pipe[n].0;
        let ty = self.m.out.value_type(p);
        let op = self.m.out.make_op(
            Opcode::AsyncPipelineProducerAcquire,
            &[p, it],
            &[1, 1],
            &[ty],
            self.m.src.loc,
        );
        self.m.out.append_op(block, op);
        op
    }

    fn inc(&mut self, block: Block, it: Value) -> Value {
        let ty = self.m.out.value_type(it);
        let op = self.m.out.make_op(Opcode::AsyncPipelineIncIter, &[it], &[1], &[ty], self.m.src.loc);
        self.m.out.append_op(block, op);
        self.m.out.results(op)[0]
    }

    fn err<T>(&self, code: Code, op: Op, message: impl Into<String>) -> CodegenResult<T> {
        Err(CodegenError::new(code, self.m.src.op_loc(op), message))
    }

    /// Ops of a block in emission order: by start where scheduled, else program order.
    fn order(&self, block: Block) -> Vec<Op> {
        let f = self.m.src;
        let ops: Vec<Op> = f.block_ops(block).filter(|&o| !f.opcode(o).is_terminator()).collect();
        let Some(s) = f.block_parent(block).and_then(|l| self.m.analysis.loops[l].as_deref()) else {
            return ops;
        };
        if s.serial {
            return ops;
        }
        let mut scheduled: SecondaryMap<Op, bool> = SecondaryMap::new();
        for &o in &s.scheduled {
            scheduled[o] = true;
        }
        let mut key: SecondaryMap<Op, u32> = SecondaryMap::new();
        for &o in &ops {
            let inputs = f
                .operands(o)
                .iter()
                .filter_map(|&v| f.defining_op(v))
                .filter(|&d| f.op_block(d) == Some(block))
                .map(|d| key[d])
                .max()
                .unwrap_or(0);
            key[o] = if scheduled[o] { s.start[o].max(inputs) } else { inputs };
        }
        let mut keyed: Vec<(u32, usize, Op)> = ops.iter().enumerate().map(|(i, &o)| (key[o], i, o)).collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|k| k.2).collect()
    }

    /// Whether the agent has an op in this op's regions.
    fn inside(&self, op: Op) -> bool {
        let f = self.m.src;
        let mut found = false;
        for &r in f.regions(op) {
            f.walk(f.region_block(r), &mut |o| found |= self.m.plan.op_agent[o].expand() == Some(self.agent));
        }
        found
    }

    fn block(&mut self, src: Block, dst: Block) -> CodegenResult<()> {
        let f = self.m.src;
        let ops = self.order(src);
        let at = |op: Op| ancestor_in(f, src, op).and_then(|a| ops.iter().position(|&o| o == a));
        let range = |list: &[Op]| {
            let idx: Vec<usize> = list.iter().filter_map(|&o| at(o)).collect();
            Some((*idx.iter().min()?, *idx.iter().max()?))
        };
        // (bundle, first, last) of the producing and the consuming side of this agent.
        let mut producing = Vec::new();
        let mut consuming = Vec::new();
        for (n, b) in self.m.buffers.bundles.iter().enumerate() {
            if b.home != src {
                continue;
            }
            if b.producer == self.agent
                && let Some((a, z)) = range(&b.produce_ops)
            {
                producing.push((n, a, z));
            }
            for c in b.consumers.iter().filter(|c| c.agent == self.agent) {
                if let Some((a, z)) = range(&c.ops) {
                    consuming.push((n, a, z, c.free));
                }
            }
        }
        for (i, &op) in ops.iter().enumerate() {
            for &(n, a, _) in &producing {
                if a == i {
                    self.begin_produce(dst, n, op);
                }
            }
            for &(n, a, _, free) in &consuming {
                if a == i {
                    self.begin_consume(dst, n, free, op);
                }
            }
            self.op(op, dst)?;
            for &(n, _, z) in &producing {
                if z == i {
                    self.end_produce(dst, n, op);
                }
            }
            for &(n, _, z, free) in &consuming {
                if z == i && free != Free::Bulk {
                    self.end_consume(dst, n, op, None);
                }
            }
        }
        // Releases of bulk stores, in issue order, at the end of the home.
        let mut stores: Vec<(usize, usize)> =
            consuming.iter().filter(|c| c.3 == Free::Bulk).map(|c| (c.2, c.0)).collect();
        stores.sort_unstable();
        for (k, &(z, n)) in stores.iter().enumerate() {
            self.end_consume(dst, n, ops[z], Some((stores.len() - 1 - k) as i64));
        }
        for n in 0..self.m.buffers.bundles.len() {
            let b = &self.m.buffers.bundles[n];
            if b.home == src
                && !b.once
                && self.m.takes_part(b, self.agent)
                && let Some(it) = self.iters[n]
            {
                self.iters[n] = Some(self.inc(dst, it));
            }
        }
        Ok(())
    }

    fn tag(&mut self, op: Op, origin: Op) {
        let a = self.m.out.intern_attr(AttrData::Int(origin.index() as i64, None));
        self.m.out.discardable_mut(op).set(keys::ORIGIN, a);
    }

    fn begin_produce(&mut self, dst: Block, n: usize, at: Op) {
        let Some(it) = self.iters[n] else { return };
        let op = self.acquire(dst, n, it);
        self.m.out.set_op_loc(op, self.m.src.op_loc(at));
        self.owned_p[n] = self.m.out.result(op);
        if self.m.buffers.bundles[n].full == Full::Tx {
            let bytes = self.m.buffers.bundles[n].slot_bytes(&self.m.buffers.webs);
            let commit = self.commit(dst, n, at);
            if let Some(c) = commit {
                self.m.out.set_int(c, keys::TX, i64::from(bytes));
            }
        }
    }

    fn commit(&mut self, dst: Block, n: usize, at: Op) -> Option<Op> {
        let owned = self.owned_p[n]?;
        let ty = self.m.out.value_type(owned);
        let op = self.m.out.make_op(
            Opcode::AsyncPipelineProducerCommit,
            &[owned],
            &[1],
            &[ty],
            self.m.src.op_loc(at),
        );
        self.m.out.append_op(dst, op);
        self.owned_p[n] = self.m.out.result(op);
        Some(op)
    }

    fn end_produce(&mut self, dst: Block, n: usize, at: Op) {
        if self.m.buffers.bundles[n].full != Full::Tx {
            self.commit(dst, n, at);
        }
    }

    fn begin_consume(&mut self, dst: Block, n: usize, free: Free, at: Op) {
        let Some(it) = self.iters[n] else { return };
        let c = self.m.pipe[n].1;
        let ty = self.m.out.value_type(c);
        let op = self.m.out.make_op(
            Opcode::AsyncPipelineConsumerWait,
            &[c, it],
            &[1, 1],
            &[ty],
            self.m.src.op_loc(at),
        );
        let index =
            self.m.buffers.bundles[n].consumers.iter().position(|c| c.agent == self.agent).unwrap_or(0);
        self.m.out.set_int(op, keys::CONSUMER_IDX, index as i64);
        if free == Free::Bulk && !self.m.plan.agents[self.agent].elect {
            self.m.out.set_attr(op, keys::ISSUER, AttrData::Unit);
        }
        self.m.out.append_op(dst, op);
        self.owned_c[n] = self.m.out.result(op);
    }

    fn end_consume(&mut self, dst: Block, n: usize, at: Op, bulk: Option<i64>) {
        let Some(owned) = self.owned_c[n] else { return };
        let ty = self.m.out.value_type(owned);
        let mut operands = vec![owned];
        operands.extend(self.tokens[at]);
        let op = self.m.out.make_op(
            Opcode::AsyncPipelineConsumerRelease,
            &operands,
            &[1, operands.len() as u32 - 1],
            &[ty],
            self.m.src.op_loc(at),
        );
        if let Some(pending) = bulk {
            self.m.out.set_int(op, keys::BULK_PENDING, pending);
        }
        self.m.out.append_op(dst, op);
    }

    fn op(&mut self, op: Op, dst: Block) -> CodegenResult<()> {
        let f = self.m.src;
        let code = f.opcode(op);
        match code {
            Opcode::For => return if self.inside(op) { self.for_op(op, dst) } else { Ok(()) },
            Opcode::If => return self.if_op(op, dst),
            Opcode::AllocTensor => return Ok(()),
            _ => {}
        }
        if is_uniform(f, self.m.plan, op) {
            let in_prologue = f.op_block(op) == Some(f.entry())
                && f.results(op).iter().all(|&r| self.m.prologue[r].is_some());
            let stored = f
                .results(op)
                .iter()
                .any(|&r| matches!(f.value_data(r).space(), Some(Space::Smem | Space::Tmem)));
            let ready = f.operands(op).iter().all(|&v| self.map[v].is_some());
            if !in_prologue && !stored && ready {
                self.cloned(op, dst)?;
            }
            return Ok(());
        }
        if self.m.plan.op_agent[op].expand() != Some(self.agent) {
            return Ok(());
        }
        match code {
            Opcode::AsyncTiledTmaLoad => self.tma_load(op, dst),
            Opcode::AsyncTiledTmaStore => self.tma_store(op, dst),
            Opcode::AsyncDot => self.dot(op, dst),
            Opcode::Copy => self.copy(op, dst),
            Opcode::ExtractSlice
                if f.operands(op).first().is_some_and(|&v| self.m.buffers.webs.of(v).is_some()) =>
            {
                Ok(())
            }
            _ => self.cloned(op, dst),
        }
    }

    fn cloned(&mut self, op: Op, dst: Block) -> CodegenResult<()> {
        let map = std::mem::take(&mut self.map);
        let new = self.m.clone_op(dst, op, &|v| map[v]);
        self.map = map;
        let new = new?;
        for i in 0..self.m.src.results(op).len() {
            let r = self.m.src.results(op)[i];
            self.map[r] = Some(self.m.out.results(new)[i]);
        }
        if self.m.plan.op_agent[op].is_some() {
            self.tag(new, op);
        }
        Ok(())
    }

    fn mapped(&self, op: Op, v: Value) -> CodegenResult<Value> {
        match self.map[v] {
            Some(x) => Ok(x),
            None => {
                let f = self.m.src;
                let name = f.value_name(v).map_or_else(|| v.to_string(), |n| format!("%{n}"));
                self.err(
                    Code::E0702,
                    op,
                    format!(
                        "`{}` needs {name}, which another agent computes; this hand-over is unsupported",
                        f.opcode(op).name()
                    ),
                )
            }
        }
    }

    fn all_mapped(&self, op: Op, values: &[Value]) -> CodegenResult<Vec<Value>> {
        values.iter().map(|&v| self.mapped(op, v)).collect()
    }

    /// The ring and current slot of the storage of `v`, as `op` reads (or writes) it.
    fn slot(&self, op: Op, v: Value, write: bool) -> CodegenResult<(Value, Option<Value>, WebId)> {
        let Some(web) = self.m.buffers.webs.of(v) else {
            return self.err(Code::E0701, op, "the tile has no storage");
        };
        let Some(ring) = self.m.ring(web) else {
            return self.err(Code::E0701, op, "the storage has no buffer");
        };
        let mut best = None;
        for (n, b) in self.m.buffers.bundles.iter().enumerate() {
            if !b.webs.contains(&web) {
                continue;
            }
            let produces = b.producer == self.agent && b.produce_ops.contains(&op);
            let consumes = b.consumers.iter().any(|c| c.agent == self.agent && c.ops.contains(&op));
            if (write && produces) || (!write && consumes) {
                return Ok((ring, self.iters[n], web));
            }
            if produces || consumes {
                best = self.iters[n];
            }
        }
        Ok((ring, best, web))
    }

    fn push(
        &mut self,
        dst: Block,
        src: Op,
        code: Opcode,
        operands: &[Value],
        segments: &[u32],
        types: &[crate::ir::Type],
    ) -> Op {
        let op = self.m.out.make_op(code, operands, segments, types, self.m.src.op_loc(src));
        self.m.out.append_op(dst, op);
        self.tag(op, src);
        op
    }

    fn tma_load(&mut self, op: Op, dst: Block) -> CodegenResult<()> {
        let f = self.m.src;
        let Some(result) = f.result(op) else { return self.err(Code::E0701, op, "load without result") };
        let (ring, it, web) = self.slot(op, result, true)?;
        let n =
            self.m.buffers.bundles.iter().position(|b| b.webs.contains(&web) && b.produce_ops.contains(&op));
        let Some((n, barrier)) = n.and_then(|n| Some((n, self.owned_p[n]?))) else {
            return Ok(()); // nobody reads the tile
        };
        let _ = n;
        let desc = self.all_mapped(op, f.named_segment(op, "desc"))?;
        let coords = self.all_mapped(op, f.named_segment(op, "coords"))?;
        let mut operands = desc;
        operands.extend(&coords);
        operands.push(ring);
        operands.extend(it);
        operands.push(barrier);
        let token = self.m.out.intern_type(TypeData::AsyncToken);
        self.push(
            dst,
            op,
            Opcode::AsyncTiledTmaLoad,
            &operands,
            &[1, coords.len() as u32, 1, u32::from(it.is_some()), 1],
            &[token],
        );
        Ok(())
    }

    fn tma_store(&mut self, op: Op, dst: Block) -> CodegenResult<()> {
        let f = self.m.src;
        let Some(source) = f.named_operand(op, "source") else {
            return self.err(Code::E0701, op, "store without source");
        };
        let (ring, it, _) = self.slot(op, source, false)?;
        let mut operands = self.all_mapped(op, f.named_segment(op, "desc"))?;
        let coords = self.all_mapped(op, f.named_segment(op, "coords"))?;
        operands.extend(&coords);
        operands.push(ring);
        operands.extend(it);
        let token = self.m.out.intern_type(TypeData::AsyncToken);
        let new = self.push(
            dst,
            op,
            Opcode::AsyncTiledTmaStore,
            &operands,
            &[1, coords.len() as u32, 1, u32::from(it.is_some())],
            &[token],
        );
        self.tokens[op] = self.m.out.result(new);
        Ok(())
    }

    fn dot(&mut self, op: Op, dst: Block) -> CodegenResult<()> {
        let f = self.m.src;
        let mut operands = Vec::new();
        let mut segments = Vec::new();
        for name in ["a", "b"] {
            let Some(v) = f.named_operand(op, name) else {
                return self.err(Code::E0701, op, "malformed dot");
            };
            let (ring, it, _) = self.slot(op, v, false)?;
            operands.push(ring);
            operands.extend(it);
            segments.extend([1, u32::from(it.is_some())]);
        }
        let (Some(acc), Some(result)) = (f.named_operand(op, "acc"), f.result(op)) else {
            return self.err(Code::E0701, op, "malformed dot");
        };
        let (ring, it, _) = self.slot(op, result, true)?;
        operands.push(ring);
        operands.extend(it);
        segments.extend([1, u32::from(it.is_some())]);
        let flag = match self.written(op, acc, dst)? {
            Written::Always => None,
            Written::When(v) => Some(v),
            Written::Never => {
                let ty = self.m.out.scalar(Scalar::I1);
                Some(self.constant(dst, AttrData::Int(0, None), ty))
            }
        };
        operands.extend(flag);
        segments.push(u32::from(flag.is_some()));
        let token = self.m.out.intern_type(TypeData::AsyncToken);
        let new = self.push(dst, op, Opcode::AsyncDot, &operands, &segments, &[token]);
        self.m.copy_attrs(op, new);
        self.tokens[op] = self.m.out.result(new);
        Ok(())
    }

    fn copy(&mut self, op: Op, dst: Block) -> CodegenResult<()> {
        let f = self.m.src;
        let Some(source) = f.named_operand(op, "source") else {
            return self.err(Code::E0701, op, "copy without source");
        };
        let stored = |v: Value| self.m.buffers.webs.of(v).is_some();
        let target = f.named_operand(op, "dest").or_else(|| f.result(op)).filter(|&v| stored(v));
        if let Some(target) = target {
            let (ring, it, _) = self.slot(op, target, true)?;
            let value = self.mapped(op, source)?;
            let mut operands = vec![value, ring];
            operands.extend(it);
            let new =
                self.push(dst, op, Opcode::Copy, &operands, &[1, 0, 1, u32::from(it.is_some()), 0], &[]);
            if let Some(o) = f.attr_ints(op, keys::OFFSETS) {
                self.m.out.set_ints(new, keys::OFFSETS, &o);
            }
            return Ok(());
        }
        let Some(result) = f.result(op) else { return self.err(Code::E0701, op, "copy without result") };
        let ty = self.m.ty(result);
        let zeros = |r: &mut Self, value: AttrData| {
            let v = r.constant(dst, value, ty);
            r.map[result] = Some(v);
        };
        if !stored(source) {
            // The storage holds nothing but a constant: the copy is that constant.
            if let Some(c) = f.defining_op(source)
                && f.opcode(c) == Opcode::Constant
                && let Some(v) = f.attr(c, keys::VALUE).cloned()
            {
                zeros(self, v);
                return Ok(());
            }
            return self.cloned(op, dst);
        }
        let mut offsets: Vec<i64> = f.attr_ints(op, keys::OFFSETS).map(|o| o.to_vec()).unwrap_or_default();
        let rank = f.value_data(result).dims().map_or(0, <[u32]>::len);
        offsets.resize(rank, 0);
        let mut root = source;
        while let Some(d) = f.defining_op(root).filter(|&d| f.opcode(d) == Opcode::ExtractSlice) {
            if let Some(o) = f.attr_ints(d, keys::OFFSETS) {
                for (x, y) in offsets.iter_mut().zip(o) {
                    *x += y;
                }
            }
            match f.operands(d).first() {
                Some(&v) => root = v,
                None => break,
            }
        }
        let tmem = f.value_data(source).space() == Some(Space::Tmem);
        let when = if tmem { self.written(op, root, dst)? } else { Written::Always };
        if when == Written::Never {
            zeros(self, AttrData::Int(0, None));
            return Ok(());
        }
        let (ring, it, _) = self.slot(op, source, false)?;
        let mut operands = vec![ring];
        operands.extend(it);
        let mut segments = vec![1, u32::from(it.is_some()), 0, 0, 0];
        if let Written::When(p) = when {
            operands.push(p);
            segments[4] = 1;
        }
        let new = self.push(dst, op, Opcode::Copy, &operands, &segments, &[ty]);
        self.m.out.set_ints(new, keys::OFFSETS, &offsets);
        if matches!(when, Written::When(_)) {
            self.m.out.set_attr(new, keys::OTHERWISE, crate::ir::Function::float_attr(0.0));
        }
        let v = self.m.out.results(new)[0];
        if let Some(n) = f.value_name(result) {
            self.m.out.set_value_name(v, n);
        }
        self.map[result] = Some(v);
        Ok(())
    }

    fn compare(&mut self, dst: Block, predicate: &str, a: Value, b: Value) -> Value {
        let ty = self.m.out.scalar(Scalar::I1);
        let op = self.m.out.make_op(Opcode::Cmpi, &[a, b], &[1, 1], &[ty], self.m.src.loc);
        let s = self.m.out.intern_symbol(predicate);
        self.m.out.set_attr(op, keys::PREDICATE, AttrData::Name(s));
        self.m.out.append_op(dst, op);
        self.m.out.results(op)[0]
    }

    fn or(&mut self, dst: Block, a: Written, b: Value) -> Written {
        match a {
            Written::Always => Written::Always,
            Written::Never => Written::When(b),
            Written::When(a) => {
                let ty = self.m.out.scalar(Scalar::I1);
                let op = self.m.out.make_op(Opcode::Ori, &[a, b], &[1, 1], &[ty], self.m.src.loc);
                self.m.out.append_op(dst, op);
                Written::When(self.m.out.results(op)[0])
            }
        }
    }

    /// Whether storage holds an update when `v` is used at the end of `dst`; emits the test if it is dynamic.
    fn written(&mut self, at: Op, v: Value, dst: Block) -> CodegenResult<Written> {
        let f = self.m.src;
        match f.value_def(v) {
            ValueDef::Param(b, n) => {
                let Some(l) = f.block_parent(b) else { return Ok(Written::Always) };
                let Some(&init) = f.operands(l).get(n as usize + 2) else { return Ok(Written::Always) };
                let before = self.written(at, init, dst)?;
                if before == Written::Always {
                    return Ok(before);
                }
                self.unconditional(l, n as usize - 1)?;
                let iv = self.mapped(at, f.block_params(b)[0])?;
                let lo = self.mapped(at, f.operands(l)[0])?;
                let later = self.compare(dst, "ne", iv, lo);
                Ok(self.or(dst, before, later))
            }
            ValueDef::Result(op, n) => match f.opcode(op) {
                Opcode::Constant => Ok(Written::Never),
                Opcode::For => {
                    let Some(&init) = f.operands(op).get(n as usize + 3) else { return Ok(Written::Always) };
                    let before = self.written(at, init, dst)?;
                    if before == Written::Always {
                        return Ok(before);
                    }
                    self.unconditional(op, n as usize)?;
                    let (lo, hi) = (self.mapped(at, f.operands(op)[0])?, self.mapped(at, f.operands(op)[1])?);
                    let some = self.compare(dst, "gt", hi, lo);
                    Ok(self.or(dst, before, some))
                }
                Opcode::ExtractSlice => {
                    let Some(&s) = f.operands(op).first() else { return Ok(Written::Always) };
                    self.written(at, s, dst)
                }
                Opcode::If => self.err(
                    Code::E0703,
                    op,
                    "an accumulator that starts from a constant is updated under a condition",
                ),
                _ => Ok(Written::Always),
            },
        }
    }

    /// The loop's value `n` is updated in every iteration.
    fn unconditional(&self, l: Op, n: usize) -> CodegenResult<()> {
        let f = self.m.src;
        let y = f.op_block_at(l, 0).and_then(|b| f.last_op(b));
        let v = y.and_then(|y| f.operands(y).get(n).copied());
        let direct = v.and_then(|v| f.defining_op(v)).is_some_and(|d| f.opcode(d) == Opcode::AsyncDot);
        if direct {
            return Ok(());
        }
        self.err(
            Code::E0703,
            l,
            "an accumulator that starts from a constant is not updated in every iteration",
        )
    }

    /// Bundles whose iterator changes inside the regions of `op`.
    fn carried(&self, op: Op) -> Vec<usize> {
        let f = self.m.src;
        (0..self.m.buffers.bundles.len())
            .filter(|&n| {
                let b = &self.m.buffers.bundles[n];
                if b.once && runs_once(f, b.home) || self.iters[n].is_none() {
                    return false;
                }
                let mut at = Some(b.home);
                while let Some(block) = at {
                    match f.block_parent(block) {
                        Some(p) if p == op => return true,
                        Some(p) => at = f.op_block(p),
                        None => return false,
                    }
                }
                false
            })
            .collect()
    }

    fn for_op(&mut self, op: Op, dst: Block) -> CodegenResult<()> {
        let f = self.m.src;
        let Some(body) = f.op_block_at(op, 0) else { return Ok(()) };
        let mut operands = self.all_mapped(op, &f.operands(op)[..3])?;
        let params = f.block_params(body).to_vec();
        let inits = f.operands(op)[3..].to_vec();
        let stored = |v: Value| matches!(f.value_data(v).space(), Some(Space::Smem | Space::Tmem));
        let kept: Vec<usize> =
            (0..inits.len()).filter(|&i| !stored(params[i + 1]) && self.map[inits[i]].is_some()).collect();
        let carried = self.carried(op);
        let mut types = Vec::new();
        for &i in &kept {
            operands.extend(self.map[inits[i]]);
            types.push(self.m.ty(params[i + 1]));
        }
        for &n in &carried {
            let it = self.iters[n].unwrap_or(operands[0]);
            operands.push(it);
            types.push(self.m.out.value_type(it));
        }
        let new = self.push(dst, op, Opcode::For, &operands, &[1, 1, 1, types.len() as u32], &types);
        let block = self.m.out.add_region(new);
        let iv_ty = self.m.ty(params[0]);
        let iv = self.m.out.add_block_param(block, iv_ty);
        if let Some(n) = f.value_name(params[0]) {
            self.m.out.set_value_name(iv, n);
        }
        self.map[params[0]] = Some(iv);
        for (k, &ty) in types.iter().enumerate() {
            let p = self.m.out.add_block_param(block, ty);
            if k < kept.len() {
                self.map[params[kept[k] + 1]] = Some(p);
            } else {
                self.iters[carried[k - kept.len()]] = Some(p);
            }
        }
        self.block(body, block)?;
        let mut yields = Vec::new();
        let src_yield = f.last_op(body);
        for &i in &kept {
            let Some(&v) = src_yield.and_then(|y| f.operands(y).get(i)) else { continue };
            yields.push(self.mapped(op, v)?);
        }
        yields.extend(carried.iter().filter_map(|&n| self.iters[n]));
        let y = self.m.out.make_op(Opcode::Yield, &yields, &[yields.len() as u32], &[], f.op_loc(op));
        self.m.out.append_op(block, y);
        for (k, &v) in self.m.out.results(new).to_vec().iter().enumerate() {
            if k < kept.len() {
                self.map[f.results(op)[kept[k]]] = Some(v);
            } else {
                self.iters[carried[k - kept.len()]] = Some(v);
            }
        }
        Ok(())
    }

    fn if_op(&mut self, op: Op, dst: Block) -> CodegenResult<()> {
        let f = self.m.src;
        let scalar_results = f.results(op).iter().any(|&r| f.value_data(r).as_scalar().is_some());
        let Some(&c) = f.operands(op).first() else { return Ok(()) };
        if !self.inside(op) && (!scalar_results || self.map[c].is_none()) {
            return Ok(());
        }
        let cond = self.mapped(op, c)?;
        let carried = self.carried(op);
        let new = self.push(dst, op, Opcode::If, &[cond], &[1], &[]);
        let before: Vec<Option<Value>> = self.iters.clone();
        let mut arms: Vec<(Block, Vec<Option<Value>>, Vec<Option<Value>>)> = Vec::new();
        for n in 0..2 {
            self.iters.clone_from(&before);
            let block = self.m.out.add_region(new);
            let mut values = Vec::new();
            if let Some(src) = f.op_block_at(op, n) {
                self.block(src, block)?;
                if let Some(y) = f.last_op(src) {
                    values = f.operands(y).iter().map(|&v| self.map[v]).collect();
                }
            }
            arms.push((block, values, carried.iter().map(|&n| self.iters[n]).collect()));
        }
        self.iters = before;
        let kept: Vec<usize> = (0..f.results(op).len())
            .filter(|&i| arms.iter().all(|a| a.1.get(i).is_some_and(Option::is_some)))
            .collect();
        for (block, values, iters) in &arms {
            let mut ys: Vec<Value> = kept.iter().filter_map(|&i| values[i]).collect();
            ys.extend(iters.iter().flatten());
            let y = self.m.out.make_op(Opcode::Yield, &ys, &[ys.len() as u32], &[], f.op_loc(op));
            self.m.out.append_op(*block, y);
        }
        for &i in &kept {
            let ty = self.m.ty(f.results(op)[i]);
            let v = self.m.out.add_result(new, ty);
            self.map[f.results(op)[i]] = Some(v);
        }
        for &n in &carried {
            if let Some(it) = self.iters[n] {
                let ty = self.m.out.value_type(it);
                self.iters[n] = Some(self.m.out.add_result(new, ty));
            }
        }
        Ok(())
    }
}
