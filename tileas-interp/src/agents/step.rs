//! One op of one agent.

use super::*;
use tileas_codegen::ir::opcodes::Traits;

/// Whether an op is done in iterations too that another instance runs: it makes a number of numbers, or an iterator.
fn lasts(f: &Function, op: Op) -> bool {
    let code = f.opcode(op);
    let number = |&v: &Value| f.value_data(v).as_scalar().is_some();
    matches!(code, Opcode::For | Opcode::If | Opcode::Yield | Opcode::AsyncPipelineIncIter)
        || code.has(Traits::PURE)
            && code.has(Traits::UNIFORM)
            && f.results(op).iter().all(number)
            && f.operands(op).iter().all(|v| !f.value_data(*v).is_tile())
}

impl Machine<'_> {
    fn get(&self, a: usize, op: Op, v: Value) -> InterpResult<Val> {
        value(self.f, op, &self.agents[a].env, v)
    }

    fn set(&mut self, a: usize, op: Op, n: usize, x: Val) {
        if let Some(&r) = self.f.results(op).get(n) {
            self.agents[a].env[r] = Some(x);
        }
    }

    /// The slot a buffer operand and its stage operand name.
    fn place(&self, a: usize, op: Op, buffer: &str, stage: &str) -> InterpResult<Place> {
        let f = self.f;
        let Some(b) = f.named_operand(op, buffer) else { return refuse(f, op, "needs a buffer") };
        let Val::Buffer(ring) = self.get(a, op, b)? else { return refuse(f, op, "works on a ring buffer") };
        let slot = match f.named_operand(op, stage).map(|v| self.get(a, op, v)).transpose()? {
            Some(Val::Iter { slot, .. }) => slot,
            Some(Val::Int(i)) => u32::try_from(i).unwrap_or(u32::MAX),
            None => 0,
            _ => return refuse(f, op, "needs a slot"),
        };
        if slot as usize >= self.rings[ring].slots.len() {
            return Err(InterpError::at(f, op, Fault::Value, format!("slot {slot} of a shorter ring")));
        }
        Ok((ring, slot))
    }

    /// Contents of a slot, all of which must have been written.
    pub(super) fn whole(&self, op: Op, at: Place) -> InterpResult<Tile> {
        let s = &self.rings[at.0].slots[at.1 as usize];
        if s.defined.count_ones(..) == s.defined.len() {
            return Ok(s.tile.clone());
        }
        let message = format!("slot {} of {} is read before it is written", at.1, self.rings[at.0].value);
        Err(InterpError::at(self.f, op, Fault::Undefined, message))
    }

    /// Pipe, slot and phase of an iterator operand.
    fn iter(&self, op: Op, v: Option<&Val>) -> InterpResult<(usize, u32, u32)> {
        match v {
            Some(Val::Iter { pipe, slot, phase }) => Ok((*pipe, *slot, *phase)),
            _ => refuse(self.f, op, "needs an iterator"),
        }
    }

    fn owned(&self, op: Op, v: Option<&Val>) -> InterpResult<(usize, u32)> {
        match v {
            Some(Val::Owned { pipe, slot }) => Ok((*pipe, *slot)),
            _ => refuse(self.f, op, "needs a slot that is held"),
        }
    }

    fn origin(&self, a: usize, op: Op, dims: &[u32]) -> InterpResult<SmallVec<[i64; 4]>> {
        let coords = self.f.named_segment(op, "coords");
        if coords.len() != dims.len() {
            return refuse(self.f, op, "coordinates do not fit the tile");
        }
        let mut at = SmallVec::new();
        for (&c, &d) in coords.iter().zip(dims) {
            at.push(eval::int(self.f, op, &self.get(a, op, c)?)?.saturating_mul(i64::from(d)));
        }
        Ok(at)
    }

    /// Executes the next op of an agent, if it need not wait.
    pub(super) fn step(&mut self, a: usize) -> InterpResult<Step> {
        let f = self.f;
        let Some(op) = self.agents[a].frames.last().and_then(|fr| fr.next) else { return Ok(Step::Ended) };
        self.steps += 1;
        if self.steps > self.limits.max_steps {
            return Err(InterpError::at(f, op, Fault::Limit, "too many steps (max_steps)"));
        }
        if !self.may_begin(a) {
            return Ok(Step::Waits);
        }
        let passing = self.agents[a].frames.last().is_some_and(|fr| fr.passing);
        if passing && !lasts(f, op) {
            self.advance(a, op);
            return Ok(Step::Done);
        }
        let mut args = Vals::new();
        for &v in f.operands(op) {
            // What is computed in iterations that the agent runs may have no value yet.
            args.push(match (self.get(a, op, v), passing) {
                (Ok(x), _) => x,
                (Err(_), true) => Val::Token,
                (Err(e), false) => return Err(e),
            });
        }
        let hands_on = matches!(f.opcode(op), Opcode::AsyncDot | Opcode::For | Opcode::Yield);
        if !hands_on && !passing && args.iter().any(|x| matches!(x, Val::Pending(_))) {
            let text = "a product is read that may be under way";
            return Err(InterpError::at(f, op, Fault::Undefined, text));
        }
        match f.opcode(op) {
            Opcode::AsyncPipelineYield => {
                self.agents[a].frames.pop();
                return Ok(Step::Done);
            }
            Opcode::Yield => return self.leave(a, op, &args),
            Opcode::For => return self.enter(a, op, &args),
            // The `yield` behind it asks for the condition.
            Opcode::ExitIf => {}
            Opcode::If => {
                let arm = match args.first() {
                    Some(v) => usize::from(eval::int(f, op, v)? == 0),
                    None => return refuse(f, op, "needs a condition"),
                };
                self.advance(a, op);
                if let Some(first) = f.op_block_at(op, arm).and_then(|b| f.first_op(b)) {
                    self.push(a, op, Some(first), None)?;
                }
                return Ok(Step::Done);
            }
            Opcode::AsyncPipelineCreateIterator => match args.first() {
                Some(&Val::End(pipe)) => self.set(a, op, 0, Val::Iter { pipe, slot: 0, phase: 0 }),
                _ => return refuse(f, op, "needs an end of a pipeline"),
            },
            Opcode::AsyncPipelineIncIter => {
                let (pipe, slot, phase) = self.iter(op, args.first())?;
                if passing && self.pipes[pipe].own {
                    self.set(a, op, 0, Val::Iter { pipe, slot, phase });
                    self.advance(a, op);
                    return Ok(Step::Done);
                }
                let slots = self.pipes[pipe].full.len().max(self.pipes[pipe].empty.len()) as u32;
                let next = if slot + 1 >= slots {
                    Val::Iter { pipe, slot: 0, phase: phase ^ 1 }
                } else {
                    Val::Iter { pipe, slot: slot + 1, phase }
                };
                self.set(a, op, 0, next);
            }
            Opcode::AsyncDotWait => {
                let pending = usize::try_from(f.attr_int(op, keys::PENDING).unwrap_or(0)).unwrap_or(0);
                self.complete_groups(a, pending)?;
            }
            Opcode::AsyncPipelineGiveTurn => self.give_turn(a, op)?,
            Opcode::AsyncPipelineStoreWait => {
                if !self.agents[a].stores.is_empty() {
                    return Ok(Step::Waits);
                }
            }
            Opcode::AsyncPipelineProducerAcquire => {
                let (pipe, slot, phase) = self.iter(op, args.get(1))?;
                if self.pipes[pipe].empty.get(slot as usize).is_some_and(|b| !b.ready(phase ^ 1)) {
                    return Ok(Step::Waits);
                }
                self.set(a, op, 0, Val::Owned { pipe, slot });
            }
            Opcode::AsyncPipelineConsumerWait => {
                let (pipe, slot, phase) = self.iter(op, args.get(1))?;
                if self.pipes[pipe].full.get(slot as usize).is_some_and(|b| !b.ready(phase)) {
                    return Ok(Step::Waits);
                }
                self.set(a, op, 0, Val::Owned { pipe, slot });
            }
            Opcode::AsyncPipelineProducerCommit => {
                if !self.commit(a, op, &args)? {
                    return Ok(Step::Waits);
                }
            }
            Opcode::Combine | Opcode::Scan => {
                for (n, v) in eval::combined(f, op, &args, &self.program)?.into_iter().enumerate() {
                    self.set(a, op, n, v);
                }
            }
            Opcode::Print => {}
            Opcode::Assert => eval::assert(f, op, &args[0])?,
            o if o.is_sparse() => {
                if let Some(v) = sparse(f, op, &args, self.memory)? {
                    self.set(a, op, 0, v);
                }
            }
            Opcode::AsyncPipelineConsumerRelease => {
                if !self.release(a, op, &args)? {
                    return Ok(Step::Waits);
                }
            }
            Opcode::AsyncTiledTmaLoad | Opcode::AsyncTiledTmaStore | Opcode::AsyncDot => {
                self.asynchronous(a, op, &args)?
            }
            Opcode::TiledLoad => {
                let (Some(Val::View(view)), Some(r)) = (args.first(), f.result(op)) else {
                    return refuse(f, op, "takes a view");
                };
                let padding = f.attr_number(op, keys::PADDING).unwrap_or(0.0);
                let single = one(view);
                let tile = tile_type(f.value_data(r)).map(|t| t.0);
                let dims = tile.unwrap_or(&single);
                let at = self.origin(a, op, dims)?;
                let t = self.memory.load(view, dims, &at, padding).map_err(|e| at_op(f, op, e))?;
                self.set(a, op, 0, if tile.is_some() { Val::Tile(Rc::new(t)) } else { t.scalar() });
            }
            Opcode::TiledStore => {
                let (Some(Val::Tile(t)), Some(Val::View(view))) = (args.first(), args.get(1)) else {
                    return refuse(f, op, "takes a register tile and a view");
                };
                let at = self.origin(a, op, &t.dims)?;
                self.memory.store(view, &at, t).map_err(|e| at_op(f, op, e))?;
            }
            Opcode::Copy => self.copy(a, op)?,
            Opcode::Global => match self.memory.variable(f, op) {
                Some(v) => self.set(a, op, 0, v),
                None => return refuse(f, op, "gives no variable"),
            },
            _ => match eval::pure(f, op, &args, &self.program)? {
                Some(v) => self.set(a, op, 0, v),
                None => return refuse(f, op, "has no meaning inside an agent"),
            },
        }
        self.advance(a, op);
        Ok(Step::Done)
    }

    /// Completes products of an agent onto registers until so many are under way.
    fn complete_groups(&mut self, a: usize, pending: usize) -> InterpResult<()> {
        let f = self.f;
        while self.agents[a].groups.len() > pending {
            let Some(g) = self.agents[a].groups.pop_front() else { break };
            let tile = |t: Tile| Val::Tile(Rc::new(t));
            let acc = match &g.acc {
                Val::Pending(sum) => match sum.get() {
                    Some(t) => Val::Tile(t.clone()),
                    None => return refuse(f, g.op, "follows a product that is under way"),
                },
                other => other.clone(),
            };
            let first = match g.first {
                Ok(place) => tile(self.whole(g.op, place)?),
                Err(v) => v,
            };
            let operands = [first, tile(self.whole(g.op, g.second)?), acc];
            let _ = g.sum.set(Rc::new(eval::product(f, g.op, &operands)?));
        }
        Ok(())
    }

    fn advance(&mut self, a: usize, op: Op) {
        if let Some(fr) = self.agents[a].frames.last_mut() {
            fr.next = self.f.next_op(op);
        }
    }

    fn push(
        &mut self,
        a: usize,
        owner: Op,
        next: Option<Op>,
        range: Option<(i64, i64, i64)>,
    ) -> InterpResult<()> {
        if self.agents[a].frames.len() > self.limits.max_nesting as usize {
            return Err(InterpError::at(self.f, owner, Fault::Limit, "regions nest too deep (max_nesting)"));
        }
        let Agent { frames, instance: (c, n, _), .. } = &mut self.agents[a];
        let passing = frames.last().is_some_and(|fr| fr.passing);
        let dealt = (*n > 1 && self.f.has_attr(owner, keys::DEALT)).then_some((0, *c > 0));
        let passing = passing || dealt.is_some_and(|d| d.1);
        frames.push(Frame { next, owner: Some(owner), range, dealt, passing });
        Ok(())
    }

    /// Whether the iteration that an agent is in has its turn, or has begun.
    fn may_begin(&mut self, a: usize) -> bool {
        let Agent { frames, instance: (c, n, agent), .. } = &mut self.agents[a];
        match frames.last_mut().and_then(|fr| fr.dealt.as_mut()) {
            Some((k, begun)) if !*begun && *k % *n == *c => {
                *begun = self.turns[*agent] >= *k;
                *begun
            }
            _ => true,
        }
    }

    /// The next iteration of a loop that is dealt out may begin.
    fn give_turn(&mut self, a: usize, op: Op) -> InterpResult<()> {
        let Agent { frames, instance: (.., agent), .. } = &self.agents[a];
        let iteration = frames.last().and_then(|fr| fr.dealt).map(|d| d.0);
        let turn = &mut self.turns[*agent];
        if iteration != Some(*turn) {
            return refuse(self.f, op, "gives a turn that is not its iteration's");
        }
        *turn += 1;
        Ok(())
    }

    fn enter(&mut self, a: usize, op: Op, args: &[Val]) -> InterpResult<Step> {
        let f = self.f;
        let [lo, hi, step, carried @ ..] = args else { return refuse(f, op, "lacks a bound") };
        let (i, hi, step) = (eval::int(f, op, lo)?, eval::int(f, op, hi)?, eval::int(f, op, step)?);
        if step <= 0 {
            return Err(InterpError::at(
                f,
                op,
                Fault::Value,
                format!("a step of {step}; it must be positive"),
            ));
        }
        self.advance(a, op);
        match f.op_block_at(op, 0) {
            Some(body) if i < hi => {
                self.bind_params(a, body, i, carried);
                self.push(a, op, f.first_op(body), Some((i, hi, step)))?;
            }
            _ => carried.iter().enumerate().for_each(|(n, v)| self.set(a, op, n, v.clone())),
        }
        Ok(Step::Done)
    }

    fn bind_params(&mut self, a: usize, body: Block, i: i64, carried: &[Val]) {
        let f = self.f;
        for (k, &p) in f.block_params(body).iter().enumerate() {
            self.agents[a].env[p] = if k == 0 { Some(Val::Int(i)) } else { carried.get(k - 1).cloned() };
        }
    }

    /// A `yield`: the next trip, or the results.
    fn leave(&mut self, a: usize, op: Op, values: &[Val]) -> InterpResult<Step> {
        let f = self.f;
        let Some(frame) = self.agents[a].frames.pop() else { return Ok(Step::Ended) };
        let Some(owner) = frame.owner else { return refuse(f, op, "ends no region") };
        let exits = match f.exit_of(owner) {
            Some(exit) => eval::int(f, exit, &self.get(a, exit, f.operands(exit)[0])?)? != 0,
            None => false,
        };
        let range = frame.range.filter(|_| !exits);
        let next = range.and_then(|(i, hi, step)| Some((i.checked_add(step)?, hi, step)));
        match (next, f.op_block_at(owner, 0)) {
            (Some((i, hi, step)), Some(body)) if i < hi => {
                self.bind_params(a, body, i, values);
                self.push(a, owner, f.first_op(body), Some((i, hi, step)))?;
                let Agent { frames, instance: (c, n, _), .. } = &mut self.agents[a];
                if let (Some((k, _)), Some(fr)) = (frame.dealt, frames.last_mut()) {
                    fr.dealt = Some((k + 1, false));
                    fr.passing = (k + 1) % *n != *c;
                }
            }
            _ => {
                values.iter().enumerate().for_each(|(n, v)| self.set(a, owner, n, v.clone()));
                if f.has_attr(owner, keys::DOTS_COMPLETE) {
                    self.complete_groups(a, 0)?;
                }
            }
        }
        Ok(Step::Done)
    }

    /// `false`: bulk stores must complete first.
    fn commit(&mut self, a: usize, op: Op, args: &[Val]) -> InterpResult<bool> {
        let f = self.f;
        let (p, s) = self.owned(op, args.first())?;
        let mut threads = self.agents[a].threads;
        if let Some(n) = f.attr_int(op, keys::BULK_PENDING) {
            if self.agents[a].stores.len() as i64 > n {
                return Ok(false);
            }
            threads = 1;
        }
        let pipe = &mut self.pipes[p];
        let fine = match (pipe.full_by, pipe.full.get_mut(s as usize)) {
            (Signal::Commit, _) => {
                self.agents[a].matrix.push_back(Job::Full(p, s));
                true
            }
            (Signal::Bytes, Some(b)) => b.expect(f.attr_int(op, keys::TX).unwrap_or(0)),
            (_, Some(b)) => b.arrive(threads),
            (_, None) => true,
        };
        if !fine {
            return Err(too_many(f, op));
        }
        self.set(a, op, 0, args[0].clone());
        Ok(true)
    }

    /// `false`: bulk stores must read their sources first.
    fn release(&mut self, a: usize, op: Op, args: &[Val]) -> InterpResult<bool> {
        let f = self.f;
        let (p, s) = self.owned(op, args.first())?;
        let threads = self.agents[a].threads;
        let mut arrivals = threads;
        if let Some(n) = f.attr_int(op, keys::BULK_PENDING) {
            if self.agents[a].stores.iter().filter(|s| s.read.is_none()).count() as i64 > n {
                return Ok(false);
            }
            arrivals = 1;
        } else if f.has_attr(op, keys::ISSUER) {
            arrivals = 1;
        } else if f.has_attr(op, keys::PER_WARP) {
            arrivals = threads / 32;
        }
        let pipe = &mut self.pipes[p];
        let after_dots = f.named_operand(op, "completes").is_some() && pipe.empty_by == Signal::Commit;
        let fine = match pipe.empty.get_mut(s as usize) {
            None => true,
            Some(_) if after_dots || (pipe.empty_by == Signal::Commit && threads == 1) => {
                self.agents[a].matrix.push_back(Job::Empty(p, s));
                true
            }
            Some(b) => b.arrive(arrivals),
        };
        if !fine {
            return Err(too_many(f, op));
        }
        self.set(a, op, 0, args[0].clone());
        Ok(true)
    }

    /// Issues a load, a bulk store or a matrix product.
    fn asynchronous(&mut self, a: usize, op: Op, args: &[Val]) -> InterpResult<()> {
        let f = self.f;
        if let Some(acc) =
            f.named_operand(op, "acc").filter(|&v| f.value_data(v).space() == Some(Space::Rmem))
        {
            // Onto registers: done when the threads wait for it, as late as they may.
            let in_registers = |v: &Value| f.value_data(*v).space() == Some(Space::Rmem);
            let first = match f.named_operand(op, "a").filter(in_registers) {
                Some(v) => Err(self.get(a, op, v)?),
                None => Ok(self.place(a, op, "a", "a_stage")?),
            };
            let second = self.place(a, op, "b", "b_stage")?;
            let (acc, sum) = (self.get(a, op, acc)?, Rc::new(OnceCell::new()));
            self.set(a, op, 0, Val::Pending(sum.clone()));
            self.agents[a].groups.push_back(Group { op, first, second, acc, sum });
            return Ok(());
        }
        if f.opcode(op) == Opcode::AsyncDot {
            let places = Operand {
                a: self.place(a, op, "a", "a_stage")?,
                b: self.place(a, op, "b", "b_stage")?,
                acc: self.place(a, op, "acc", "acc_stage")?,
            };
            let accumulate =
                match f.named_operand(op, "accumulate").map(|v| self.get(a, op, v)).transpose()? {
                    Some(v) => eval::int(f, op, &v)? != 0,
                    None => true,
                };
            self.agents[a].matrix.push_back(Job::Dot { op, a: Rc::new(places), accumulate });
            if self.agents[a].threads > 1 {
                // What all threads issue is done when they go on.
                self.matrix(a)?;
            }
        } else {
            let Some(Val::Desc(d)) = args.first() else { return refuse(f, op, "takes a descriptor") };
            let origin = self.origin(a, op, &d.extents)?;
            if f.opcode(op) == Opcode::AsyncTiledTmaStore {
                let from = self.place(a, op, "source", "stage")?;
                let store = Store { view: d.view.clone(), origin, from, read: None };
                self.agents[a].stores.push_back(store);
            } else {
                let to = self.place(a, op, "buffer", "stage")?;
                let barrier = f.named_operand(op, "barrier").map(|v| self.get(a, op, v)).transpose()?;
                let (pipe, slot) = self.owned(op, barrier.as_ref())?;
                let fill = if d.nan { f64::NAN } else { 0.0 };
                let bits = count(&d.extents) as i64 * i64::from(d.view.elem.bits());
                // Memory is read at once or when the load completes: both must give the same.
                let early = self.steps.is_multiple_of(2);
                let tile = if early {
                    let now = self.memory.load(&d.view, &d.extents, &origin, fill);
                    Some(now.map_err(|e| at_op(f, op, e))?)
                } else {
                    None
                };
                self.loads.push(Load { desc: d.clone(), origin, tile, to, pipe, slot, bytes: bits / 8 });
            }
        }
        self.set(a, op, 0, Val::Token);
        Ok(())
    }

    fn copy(&mut self, a: usize, op: Op) -> InterpResult<()> {
        let f = self.f;
        let Some(source) = f.named_operand(op, "source") else { return refuse(f, op, "needs a source") };
        let taken = match f.named_operand(op, "when").map(|v| self.get(a, op, v)).transpose()? {
            Some(v) => eval::int(f, op, &v)? != 0,
            None => true,
        };
        let number = f.named_operand(op, "number").map(|v| self.get(a, op, v)).transpose()?;
        let read = f.result(op).and_then(|r| tile_type(f.value_data(r))).map_or(&[][..], |(dims, _)| dims);
        let offsets = eval::slice_offsets(f, op, read, number.as_ref())?;
        let dest = f.named_operand(op, "dest");
        if let (None, Some(r)) = (dest, f.result(op))
            && !taken
        {
            let Some((dims, elem)) = tile_type(f.value_data(r)) else { return refuse(f, op, "makes a tile") };
            let t = Tile::splat(dims, elem, f.attr_number(op, keys::OTHERWISE).unwrap_or(0.0));
            self.set(a, op, 0, Val::Tile(Rc::new(t)));
            return Ok(());
        }
        let scalar = f.result(op).is_some_and(|r| f.value_data(r).as_scalar().is_some());
        let t = if is_stored(f, source) && matches!(self.get(a, op, source)?, Val::Buffer(_)) {
            let (ring, slot) = self.place(a, op, "source", "source_stage")?;
            let s = &self.rings[ring].slots[slot as usize];
            let dims: SmallVec<[u32; 4]> = match f.result(op).and_then(|r| tile_type(f.value_data(r))) {
                Some((dims, _)) => dims.into(),
                // A whole slot, or the one element of it.
                None => s.tile.dims.clone(),
            };
            // The same cut of the map of what was written: ones where it was.
            let written = Tile {
                dims: s.tile.dims.clone(),
                elem: tileas_codegen::ir::Scalar::I1,
                data: Data::Int((0..s.defined.len()).map(|i| i64::from(s.defined.contains(i))).collect()),
            };
            match (s.tile.slice(&dims, &offsets), written.slice(&dims, &offsets)) {
                (Some(t), Some(Tile { data: Data::Int(w), .. })) if w.iter().all(|&x| x == 1) => Rc::new(t),
                (Some(_), _) => {
                    let message = format!("slot {slot} of {source} is read before it is written");
                    return Err(InterpError::at(f, op, Fault::Undefined, message));
                }
                _ => return refuse(f, op, "the part sticks out of its source"),
            }
        } else {
            let v = self.get(a, op, source)?;
            match (&v, f.value_data(source).as_scalar()) {
                (Val::Int(_) | Val::Float(_), Some(elem)) => match Tile::of_scalar(&[1], elem, &v) {
                    Some(t) => Rc::new(t),
                    None => return refuse(f, op, "moves a tile or a scalar"),
                },
                _ => eval::tile(f, op, &v)?.clone(),
            }
        };
        if dest.is_none() {
            self.set(a, op, 0, if scalar { t.scalar() } else { Val::Tile(t) });
            return Ok(());
        }
        let (ring, slot) = self.place(a, op, "dest", "dest_stage")?;
        let s = &mut self.rings[ring].slots[slot as usize];
        let defined = &mut s.defined;
        if !s.tile.insert(&t, &offsets, |i| defined.insert(i)) {
            return refuse(f, op, "the part sticks out of its destination");
        }
        Ok(())
    }
}
