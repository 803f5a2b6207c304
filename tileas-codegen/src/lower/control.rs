//! Regions: blocks of ops, counted loops, uniform branches, and single-lane sections of multi-warp agents.

use super::columns::Stores;
use super::{Lower, NO_PHASE, TileVal, Val, reg_ty};
use crate::error::{Code, CodegenResult, Loc};
use crate::ir::opcodes::Traits;
use crate::ir::verifier::MOST_PENDING;
use crate::ir::{Block, Op, Opcode, Scalar, TypeData, Value, ValueDef, keys};
use crate::nvvm::{Bb, Operand, Reg, RegTy};
use crate::storage::access::may_take_over;
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// Moves that are to happen at once.
#[derive(Default)]
pub(crate) struct Moves {
    list: Vec<(Reg, Operand)>,
    /// By register: the first move that writes it, plus 1; 0 = none.
    first: SecondaryMap<Reg, u32>,
}

/// Ops of a body that is written out more than once, at most.
const MOST_IN_COPY: usize = 64;

/// Ops behind an added wait among which the one it is for is looked for.
const MOST_BEHIND: usize = 16;

/// What loops and branches carry.
type Carried = SmallVec<[Val; 8]>;

impl Lower<'_> {
    /// Lowers the ops of a block up to its terminator.
    pub(super) fn block(&mut self, block: Block) -> CodegenResult<()> {
        let around = self.b.of_op;
        let mut next = self.f.first_op(block);
        while let Some(op) = next {
            // The loop around asks for the condition of an exit.
            if !self.f.opcode(op).is_terminator() && self.f.opcode(op) != Opcode::ExitIf {
                self.op(op)?;
            }
            next = self.f.next_op(op);
        }
        self.b.of_op = around;
        Ok(())
    }

    /// Lowers one op.
    pub(super) fn op(&mut self, op: Op) -> CodegenResult<()> {
        if self.numbered {
            self.number(op);
        }
        if self.passing { self.pass(op) } else { self.made(op) }
    }

    /// Says that the instructions that follow are of an op. A wait that was added is of the next one that was not, what else was added of the one
    /// before.
    fn number(&mut self, op: Op) {
        let waits = matches!(
            self.f.opcode(op),
            Opcode::AsyncPipelineProducerAcquire | Opcode::AsyncPipelineConsumerWait
        );
        let behind = std::iter::successors(Some(op), |&op| self.f.next_op(op));
        let mut numbers = behind.take(if waits { MOST_BEHIND } else { 1 }).map(|op| self.f.op_loc(op));
        if let Some(at) = numbers.find_map(Loc::range) {
            self.b.of_op = at.start as u32 + 1;
        }
    }

    /// Lowers an op of an iteration that the agent runs.
    pub(super) fn made(&mut self, op: Op) -> CodegenResult<()> {
        use Opcode as O;
        let code = self.f.opcode(op);
        if self.b.func.num_insts() > self.max_instructions {
            let limit = self.max_instructions;
            let text =
                format!("more than {limit} instructions, the limit of the option `limits.max-instructions`");
            return self.err(Code::E1010, op, &text);
        }
        if !self.is_issued(op) {
            self.close_section();
        }
        match code {
            O::For => self.lower_for(op),
            O::If => self.lower_if(op),
            O::MakeTiledTmaDesc => {
                let map = self.abi.desc_map[op];
                self.set(op, Val::Desc(map));
                Ok(())
            }
            O::MakeView => self.make_view(op),
            O::Assume | O::IntToPtr | O::PtrToInt | O::MayAlias => {
                if let Some(&v) = self.f.operands(op).first() {
                    let value = self.vals[v];
                    self.set(op, value);
                }
                Ok(())
            }
            O::Offset => self.offset(op),
            O::Global => self.variable(op),
            O::AllocTensor | O::AsyncPipelineCreatePipeline => {
                self.err(Code::E0803, op, "must stand at the top of the kernel")
            }
            O::AsyncPipelineCreateIterator => {
                let Some(TypeData::PipeIter(n)) = self.f.result(op).map(|r| self.f.value_data(r)) else {
                    return self.err(Code::E0803, op, "an iterator has type pipe_iter");
                };
                let n = *n;
                let phased = match self.f.operands(op).first().map(|&v| &self.vals[v]) {
                    Some(&Val::Pipe(p)) => self.pipes[p].named.is_none(),
                    _ => true,
                };
                let phase = if phased { Operand::Imm(0) } else { NO_PHASE };
                self.set(op, Val::Iter(Operand::Imm(0), phase, n));
                Ok(())
            }
            O::AsyncPipelineIncIter => self.inc_iter(op),
            O::AsyncPipelineProducerAcquire => self.producer_acquire(op),
            O::AsyncPipelineProducerCommit => self.producer_commit(op),
            O::AsyncPipelineConsumerWait => self.consumer_wait(op),
            O::AsyncPipelineConsumerRelease => self.consumer_release(op),
            O::AsyncPipelineStoreWait => {
                self.open_section();
                self.b.bulk_wait_group(0);
                Ok(())
            }
            O::AsyncPipelineGiveTurn => {
                match self.f.prev_op(op).is_some_and(|l| self.gives_behind(l).is_some()) {
                    true => Ok(()),
                    false => self.give_turn(op),
                }
            }
            O::AsyncTiledTmaLoad => self.tma_load(op),
            O::AsyncTiledTmaStore => self.tma_store(op),
            O::AsyncDot => self.async_dot(op),
            O::AsyncDotWait => {
                let pending = self.f.attr_int(op, keys::PENDING).unwrap_or(0);
                self.isa.emit().group_wait(&mut self.b, pending.clamp(0, MOST_PENDING) as u32);
                Ok(())
            }
            O::Copy if self.is_scalar_copy(op) => self.copy_scalar(op),
            O::Copy => self.copy(op),
            o if o.is_sparse() && (self.is_tile_op(op) || o == O::Scatter) => {
                self.in_order(op, |this| this.sparse(op))
            }
            O::Unsplat => self.unsplat(op),
            O::Print => self.print(op),
            O::Assert => self.assert(op),
            O::WarpDot => self.warp_dot(op),
            O::Combine => self.combine_tiles(op),
            O::Scan => self.scan(op),
            O::AtomicRmw | O::AtomicCas => self.atomic(op),
            O::Gather => self.load_element(op),
            O::TiledLoad if !self.is_tile_op(op) => self.load_element(op),
            O::TiledLoad => self.in_order(op, |this| this.tiled_load(op)),
            O::TiledStore => self.in_order(op, |this| this.tiled_store(op)),
            _ if self.is_tile_op(op) => self.tile_op(op),
            _ => self.scalar_op(op),
        }
    }

    /// Records the first result.
    pub(super) fn set(&mut self, op: Op, val: Val) {
        if let Some(r) = self.f.result(op) {
            self.vals[r] = val;
        }
    }

    /// Whether, in an agent of several lanes, only the issuing lane executes this op.
    fn is_issued(&self, op: Op) -> bool {
        use Opcode as O;
        if self.agent.elect {
            return false;
        }
        match self.f.opcode(op) {
            O::AsyncTiledTmaLoad | O::AsyncTiledTmaStore | O::AsyncPipelineStoreWait => true,
            O::AsyncDot => self.isa.mma_contract().issue.is_lane(),
            O::AsyncPipelineConsumerWait
            | O::AsyncPipelineConsumerRelease
            | O::AsyncPipelineProducerAcquire => {
                self.f.has_attr(op, keys::ISSUER) || self.f.has_attr(op, keys::BULK_PENDING)
            }
            O::AsyncPipelineProducerCommit => {
                self.f.has_attr(op, keys::TX) || self.f.has_attr(op, keys::BULK_PENDING)
            }
            _ => false,
        }
    }

    /// Opens a section that only the issuing lane runs, unless one is open or the agent has a single lane.
    pub(super) fn open_section(&mut self) {
        if self.agent.elect || self.section.is_some() {
            return;
        }
        if let Some(p) = self.agent.issuer {
            let end = self.b.block();
            self.b.br_on_not(p, end);
            self.section = Some(end);
        }
    }

    /// Closes the open single-lane section; the warp reconverges.
    pub(super) fn close_section(&mut self) {
        if let Some(end) = self.section.take() {
            self.b.place(end);
            self.b.bar_warp_sync(0xffff_ffffu32);
        }
    }

    /// Registers for a value that changes over iterations, those that it begins in where nothing else needs them.
    fn taken_over(&mut self, op: Op, user: Op, p: Value, v: Value) -> CodegenResult<Val> {
        let init = self.vals[v];
        if let Val::Tile(t) = init
            && !t.splat
            && t.held.is_none()
            && may_take_over(self.f, v, user, self.fusion.uses_of(v))
            && t.regs.range().all(|i| matches!(self.units[i], Operand::Reg(_)))
        {
            return Ok(init);
        }
        self.loop_value(op, self.f.value_data(p), &init)
    }

    /// Fresh registers for a value that changes over iterations, initialised from `init`.
    fn loop_value(&mut self, op: Op, ty: &TypeData, init: &Val) -> CodegenResult<Val> {
        Ok(match init {
            Val::Scalar(x) => {
                let Some(rt) = ty.as_scalar().and_then(reg_ty) else {
                    return self.unsupported(op, "carries a value of this type");
                };
                let r = self.b.reg(rt);
                self.b.mov_to(r, *x);
                Val::Scalar(r.into())
            }
            Val::Iter(s, p, n) => {
                let slot = if *n == 1 {
                    Operand::Imm(0)
                } else {
                    let r = self.b.reg(RegTy::B32);
                    self.b.mov_to(r, *s);
                    r.into()
                };
                if *p == NO_PHASE {
                    return Ok(Val::Iter(slot, NO_PHASE, *n));
                }
                let phase = self.b.reg(RegTy::B32);
                self.b.mov_to(phase, *p);
                Val::Iter(slot, phase.into(), *n)
            }
            // The end of a pipeline in the place of a slot: nothing is owned yet.
            Val::Pipe(p) => self.loop_value(op, ty, &Val::Owned(*p, Operand::Imm(0), Operand::Imm(0)))?,
            Val::Owned(p, s, ph) => {
                let Val::Iter(s, ph, _) =
                    self.loop_value(op, ty, &Val::Iter(*s, *ph, self.pipes[*p].slots))?
                else {
                    return Ok(*init);
                };
                Val::Owned(*p, s, ph)
            }
            Val::Tile(_) => {
                let t = self.expand(op, init)?;
                let rt = element_reg(t.elem);
                let start = self.units.len();
                for i in 0..t.regs.len() {
                    let x = self.unit(&t, i);
                    let r = self.b.reg(rt);
                    self.b.mov_to(r, x);
                    self.units.push(r.into());
                }
                Val::Tile(TileVal { regs: self.units_from(start), splat: false, ..t })
            }
            other => *other,
        })
    }

    /// Assigns `values` to the registers of `targets` as if in parallel.
    pub(super) fn assign(&mut self, op: Op, targets: &[Val], values: &[Value]) -> CodegenResult<()> {
        let Moves { mut list, mut first } = std::mem::take(self.moves);
        list.clear();
        first.clear();
        let mut push = |d: Operand, s: Operand| {
            if let Operand::Reg(d) = d
                && s != Operand::Reg(d)
            {
                if first[d] == 0 {
                    first[d] = list.len() as u32 + 1;
                }
                list.push((d, s));
            }
        };
        for (t, &v) in targets.iter().zip(values) {
            match (*t, self.vals[v]) {
                (Val::Scalar(d), Val::Scalar(s)) => push(d, s),
                (Val::Desc(d), Val::Desc(s)) if d != s => {
                    return self.err(
                        Code::E0804,
                        op,
                        "which of two descriptors is meant is known only when the kernel runs",
                    );
                }
                (Val::Owned(d, ..), Val::Owned(s, ..)) if d != s => {
                    return self.err(Code::E0803, op, "carries slots of two pipelines in one value");
                }
                (Val::Iter(ds, dp, _), Val::Iter(ss, sp, _))
                | (Val::Owned(_, ds, dp), Val::Owned(_, ss, sp)) => {
                    push(ds, ss);
                    push(dp, sp);
                }
                // An end stands for a slot that no path uses.
                (Val::Owned(_, ds, dp), Val::Pipe(_)) => {
                    push(ds, Operand::Imm(0));
                    push(dp, Operand::Imm(0));
                }
                (Val::Tile(d), Val::Tile(s)) => {
                    let s = self.expand(op, &Val::Tile(s))?;
                    for i in 0..d.regs.len().min(s.regs.len()) {
                        push(self.unit(&d, i), self.unit(&s, i));
                    }
                }
                _ => {}
            }
        }
        // A source that an earlier move overwrites is saved first.
        for (i, (_, source)) in list.iter_mut().enumerate() {
            if let Operand::Reg(s) = *source
                && (1..=i as u32).contains(&first[s])
            {
                let t = self.b.reg(self.b.func.ty(s));
                self.b.mov_to(t, s);
                *source = t.into();
            }
        }
        // Saving happened after nothing was written yet, so the order of the moves is free now.
        for &(d, s) in &list {
            self.b.mov_to(d, s);
        }
        *self.moves = Moves { list, first };
        Ok(())
    }

    /// Stores that are pending on another way to this point: each is noted once, however many branches came before.
    fn also_pending(&mut self, stores: Stores) {
        for s in stores {
            if !self.pending_st.contains(&s) {
                self.pending_st.push(s);
            }
        }
    }

    fn lower_for(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let [lo, hi, step, inits @ ..] = f.operands(op) else {
            return self.err(Code::E0803, op, "malformed loop");
        };
        let Some(block) = f.op_block_at(op, 0) else { return self.err(Code::E0803, op, "loop without body") };
        let wide = f.value_data(*lo).as_scalar() == Some(Scalar::I64);
        let (lo, hi, step) = (self.scalar(op, *lo)?, self.scalar(op, *hi)?, self.scalar(op, *step)?);
        self.fill_ahead(op, block, (lo, hi))?;
        let known = self.firsts.len();
        self.first_elements_ahead(block)?;
        let params = f.block_params(block);
        let iv = self.b.reg(if wide { RegTy::B64 } else { RegTy::B32 });
        self.b.mov_to(iv, lo);
        self.vals[params[0]] = Val::Scalar(iv.into());
        let mut carried = Carried::new();
        for (n, &init) in inits.iter().enumerate() {
            let Some(&p) = params.get(n + 1) else { break };
            let v = self.taken_over(op, op, p, init)?;
            self.vals[p] = v;
            carried.push(v);
        }
        let body = self.b.block();
        let exit = self.b.block();
        let instance = self.agent.instance.filter(|_| f.has_attr(op, keys::DEALT));
        // Constant bounds say themselves whether there is a first iteration.
        if !matches!((lo, hi), (Operand::Imm(lo), Operand::Imm(hi)) if lo < hi) {
            let none = if wide { self.b.setp_ge_s64(iv, hi) } else { self.b.setp_ge_s32(iv, hi) };
            self.b.br_on(none, exit);
        }
        if let Some(i) = instance {
            // The first iteration is another instance's.
            let later = self.is_later(i);
            self.b.br_on_not(later, body);
            self.pass_iteration(op, block, &carried)?;
            let ends = self.next_index(iv, hi, step, wide, false);
            self.b.br_on(ends, exit);
        }
        if let (Operand::Imm(step @ 1..=0xffff), false, copies @ 2..) = (step, wide, self.copies(op, block)) {
            self.rounds(op, block, copies, &carried, (iv, hi, step), (body, exit))?;
        }
        self.b.place(body);
        if let Some(i) = instance {
            self.take_turn(i);
        }
        // What the iteration before has written may be read still.
        let reading = std::mem::replace(&mut self.reading, self.agent.scratch.map(|s| (0, s.bytes)));
        let before = self.pending_st.clone();
        let unfenced = self.unfenced;
        self.unfenced = self.unfenced_around(block);
        let mut index = iv;
        for copy in 0..self.guarded_copies(op, block) {
            if copy > 0 {
                index = self.next_copy(op, block, (index, step))?;
            }
            self.block(block)?;
            self.close_section();
            // The next iteration may read, or store to, what this one stored.
            self.wait_stores();
        }
        // The condition may be one of the values that change now.
        let ends = match f.exit_of(op) {
            Some(e) => self.exit_condition(e)?,
            None => None,
        };
        if let Some(y) = f.last_op(block) {
            let values = f.operands(y);
            self.assign(op, &carried, values)?;
        }
        if index != iv {
            self.b.mov_to(iv, index);
            self.vals[params[0]] = Val::Scalar(iv.into());
            params[1..].iter().zip(&carried).for_each(|(&p, &v)| self.vals[p] = v);
        }
        if let Some(p) = ends {
            self.b.br_on(p, exit);
        }
        if instance.is_some() {
            // An index that is no iteration's any more is not counted on from.
            let ends = self.next_index(iv, hi, step, wide, false);
            self.b.br_on(ends, exit);
            self.pass_iteration(op, block, &carried)?;
        }
        let again = self.next_index(iv, hi, step, wide, true);
        let turns = self.turns(op);
        if turns.is_some() || f.has_attr(op, keys::DOTS_COMPLETE) {
            // Not where no iteration ran.
            let last = self.b.block();
            self.b.br_if(again, false, body, last);
            self.b.place(last);
            if let Some(barrier) = turns {
                self.end_turns(barrier);
            }
            // The next instance may issue its products while these are under way.
            let gives = self.gives_behind(op);
            if let Some(give) = gives {
                self.give_turn(give)?;
            }
            if f.has_attr(op, keys::DOTS_COMPLETE) {
                self.isa.emit().group_wait(&mut self.b, 0);
            }
            if let Some(give) = gives {
                let done = self.b.block();
                self.b.bra(done);
                self.b.place(exit);
                self.give_turn(give)?;
                self.b.place(done);
            } else {
                self.b.place(exit);
            }
        } else {
            self.b.br_if(again, false, body, exit);
            self.b.place(exit);
        }
        self.firsts.truncate(known);
        self.also_pending(before);
        self.unfenced = self.unfenced.or(unfenced);
        self.reading = super::convert::hull(self.reading, reading);
        if !self.agent.elect {
            self.b.bar_warp_sync(0xffff_ffffu32);
        }
        for (&r, v) in f.results(op).iter().zip(carried) {
            self.vals[r] = v;
        }
        Ok(())
    }

    /// Where the tiles begin that the one lane of an agent loads in a loop at coordinates from outside. The assembler leaves that in the loop: coordinates
    /// are uniform there (GEMM: 40 instructions of a step are 34).
    fn first_elements_ahead(&mut self, block: Block) -> CodegenResult<()> {
        let f = self.f;
        if !self.agent.elect {
            return Ok(());
        }
        for op in f.block_ops(block).filter(|&op| f.opcode(op) == Opcode::AsyncTiledTmaLoad) {
            let Some((tile, _)) = self.box_tile(op) else { continue };
            for (&v, &extent) in f.named_segment(op, "coords").iter().zip(&tile) {
                if !f.is_inside(v, block) && matches!(self.scalar(op, v)?, Operand::Reg(_)) {
                    let first = self.first_element(op, v, extent)?;
                    self.firsts.push((v, extent, first));
                }
            }
        }
        Ok(())
    }

    /// The iterations of a loop, `copies` at a time, as long as there are so many; the rest are left to `body`. What a load from global memory gives, and later
    /// iterations take, would be moved from register to register at the end of each iteration, and waited for there. With a copy of the body for each
    /// iteration that is under way, and one more, each has registers of its own, and the assembler moves nothing: gathers for a product take 0.78 to 0.83
    /// of the time (H100). No copy leaves the loop: it would move what it leaves with.
    fn rounds(
        &mut self,
        op: Op,
        block: Block,
        copies: usize,
        carried: &Carried,
        (iv, hi, step): (Reg, Operand, i64),
        (body, exit): (Bb, Bb),
    ) -> CodegenResult<()> {
        let params = &self.f.block_params(block)[1..];
        let values = self.f.last_op(block).map_or(&[][..], |y| self.f.operands(y));
        let round = self.b.block();
        // Unsigned: there is an iteration, so that the distance to the end is exact.
        let others = step * (copies as i64 - 1);
        let left = self.b.sub_s32(hi, iv);
        let few = self.b.setp_le_u32(left, others);
        self.b.br_on(few, body);
        self.b.place(round);
        let reading = std::mem::replace(&mut self.reading, self.agent.scratch.map(|s| (0, s.bytes)));
        let before = self.pending_st.clone();
        let unfenced = self.unfenced;
        self.unfenced = self.unfenced_around(block);
        // Each copy has an index of its own: what later iterations take may be it.
        let mut index = iv;
        for copy in 0..copies {
            if copy > 0 {
                index = self.next_copy(op, block, (index, step.into()))?;
            }
            self.block(block)?;
            self.close_section();
            self.wait_stores();
        }
        self.assign(op, carried, values)?;
        self.vals[self.f.block_params(block)[0]] = Val::Scalar(iv.into());
        params.iter().zip(carried).for_each(|(&p, &v)| self.vals[p] = v);
        self.b.add_s32_to(iv, index, step);
        let ends = self.b.setp_ge_s32(iv, hi);
        self.b.br_on(ends, exit);
        let left = self.b.sub_s32(hi, iv);
        let enough = self.b.setp_gt_u32(left, others);
        self.b.br_if(enough, false, round, body);
        self.also_pending(before);
        self.unfenced = self.unfenced.or(unfenced);
        self.reading = super::convert::hull(self.reading, reading);
        Ok(())
    }

    /// Gives the values of a body the registers of its next copy, and returns the index there.
    fn next_copy(&mut self, op: Op, block: Block, (index, step): (Reg, Operand)) -> CodegenResult<Reg> {
        let values = self.f.last_op(block).map_or(&[][..], |y| self.f.operands(y));
        let next = self.renamed(op, values)?;
        let index = self.b.add_s32(index, step);
        let params = self.f.block_params(block);
        self.vals[params[0]] = Val::Scalar(index.into());
        params[1..].iter().zip(&next).for_each(|(&p, &v)| self.vals[p] = v);
        Ok(index)
    }

    /// How many copies a loop has of a body whose parts are guarded, each for an iteration of its own, where nothing but loads runs ahead: see
    /// [`Lower::rounds`]. Steps behind the last one do nothing, so that there are no others.
    fn guarded_copies(&self, op: Op, block: Block) -> usize {
        let f = self.f;
        let rolled =
            f.attr_int(op, keys::SKEW).is_some() && !f.has_attr(op, keys::STEADY) && f.exit_of(op).is_none();
        let narrow = f.operands(op).first().and_then(|&v| f.value_data(v).as_scalar()) == Some(Scalar::I32);
        let Some(y) = f.last_op(block).filter(|_| rolled && narrow && !self.agent.elect) else { return 1 };
        let mut plain =
            !f.has_attr(op, keys::DEALT) && !f.has_attr(op, keys::DOTS_COMPLETE) && self.turns(op).is_none();
        f.walk(block, &mut |o| {
            let waits = f.opcode(o).has(Traits::ASYNC) || f.opcode(o).has(Traits::PIPELINE);
            plain &= !waits && f.opcode(o) != Opcode::For;
        });
        let values = f.operands(y);
        // What a guard gives is what its part loads.
        let loaded = |v: Value| {
            let ValueDef::Result(by, n) = f.value_def(v) else { return false };
            let part = f.op_block_at(by, 0).and_then(|b| f.last_op(b));
            part.and_then(|y| f.operands(y).get(n as usize)).is_some_and(|&v| self.is_loaded(v))
        };
        match plain {
            true => 1 + self.ahead(values, loaded),
            false => 1,
        }
    }

    /// Whether a tile is loaded from global memory.
    fn is_loaded(&self, v: Value) -> bool {
        let f = self.f;
        let by = f.defining_op(v).filter(|_| f.value_data(v).is_tile());
        by.is_some_and(|by| f.opcode(by) == Opcode::TiledLoad || f.opcode(by).is_sparse())
    }

    /// Iterations by which what a loop carries is loaded ahead.
    fn ahead(&self, values: &[Value], loaded: impl Fn(Value) -> bool) -> usize {
        let steps = |&v: &Value| {
            let mut v = v;
            for steps in 1..=values.len() {
                match self.f.value_def(v) {
                    ValueDef::Param(_, 0) => return 0,
                    ValueDef::Param(_, n) => v = values[n as usize - 1],
                    ValueDef::Result(..) if loaded(v) => return steps,
                    ValueDef::Result(..) => return 0,
                }
            }
            0
        };
        values.iter().map(steps).max().unwrap_or(0)
    }

    /// How many copies of a body [`Lower::rounds`] writes; 1: none is worth it.
    fn copies(&self, op: Op, block: Block) -> usize {
        let f = self.f;
        let plain =
            |o: Op| f.regions(o).is_empty() && !matches!(f.opcode(o), Opcode::AsyncDot | Opcode::WarpDot);
        let Some(y) = f.last_op(block).filter(|_| !self.agent.elect && f.exit_of(op).is_none()) else {
            return 1;
        };
        let values = f.operands(y);
        let inside = |v: Value| match f.value_def(v) {
            ValueDef::Result(by, _) => f.op_block(by) == Some(block),
            ValueDef::Param(b, n) => b == block && n > 0,
        };
        let once = |n: usize, v: Value| inside(v) && !values[..n].contains(&v);
        if f.has_attr(op, keys::DEALT)
            || f.has_attr(op, keys::DOTS_COMPLETE)
            || self.turns(op).is_some()
            || f.block_ops(block).count() > MOST_IN_COPY
            || f.block_ops(block).any(|o| !plain(o))
            || !values.iter().enumerate().all(|(n, &v)| once(n, v))
        {
            return 1;
        }
        1 + self.ahead(values, |v| self.is_loaded(v))
    }

    /// What the next copy of a body takes, in the registers that it is in.
    fn renamed(&mut self, op: Op, values: &[Value]) -> CodegenResult<Carried> {
        let mut next = Carried::new();
        for &v in values {
            next.push(match self.vals[v] {
                tile @ Val::Tile(_) => Val::Tile(self.expand(op, &tile)?),
                other => other,
            });
        }
        Ok(next)
    }

    /// Counts on, and compares: whether that is an iteration's index, or whether it is not.
    fn next_index(&mut self, iv: Reg, hi: Operand, step: Operand, wide: bool, is: bool) -> Reg {
        match (wide, is) {
            (true, _) => self.b.add_s64_to(iv, iv, step),
            (false, _) => self.b.add_s32_to(iv, iv, step),
        };
        match (wide, is) {
            (true, true) => self.b.setp_lt_s64(iv, hi),
            (true, false) => self.b.setp_ge_s64(iv, hi),
            (false, true) => self.b.setp_lt_s32(iv, hi),
            (false, false) => self.b.setp_ge_s32(iv, hi),
        }
    }

    /// The condition of an `exit_if`, in a register of its own; `None`: it never holds.
    fn exit_condition(&mut self, op: Op) -> CodegenResult<Option<Reg>> {
        let Some(&c) = self.f.operands(op).first() else {
            return self.err(Code::E0803, op, "malformed exit");
        };
        let cond = self.scalar(op, c)?;
        if cond == Operand::Imm(0) {
            return Ok(None);
        }
        let p = self.b.reg(RegTy::Pred);
        self.b.mov_to(p, cond);
        Ok(Some(p))
    }

    fn lower_if(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Some(&c) = f.operands(op).first() else { return self.err(Code::E0803, op, "malformed branch") };
        let cond = self.scalar(op, c)?;
        let (Some(then), Some(otherwise)) = (f.op_block_at(op, 0), f.op_block_at(op, 1)) else {
            return self.err(Code::E0803, op, "a branch has two regions");
        };
        if let Operand::Imm(v) = cond {
            let taken = if v != 0 { then } else { otherwise };
            self.block(taken)?;
            self.close_section();
            if let Some(y) = f.last_op(taken) {
                for (&r, &v) in f.results(op).iter().zip(f.operands(y)) {
                    self.vals[r] = match self.vals[v] {
                        Val::Tile(_) => self.taken_over(op, y, r, v)?,
                        other => other,
                    };
                }
            }
            return Ok(());
        }
        let Operand::Reg(p) = cond else {
            return self.err(Code::E0803, op, "the condition is not a predicate");
        };
        let else_bb = self.b.block();
        let end = self.b.block();
        self.b.br_on_not(p, else_bb);
        let before = self.pending_st.clone();
        let (unfenced, reading) = (self.unfenced, self.reading);
        self.block(then)?;
        self.close_section();
        let mut merged = Carried::new();
        if let Some(y) = f.last_op(then) {
            for (&r, &v) in f.results(op).iter().zip(f.operands(y)) {
                merged.push(self.taken_over(op, y, r, v)?);
            }
        }
        self.b.bra(end);
        self.b.place(else_bb);
        let after_then = std::mem::replace(&mut self.pending_st, before);
        let then_unfenced = std::mem::replace(&mut self.unfenced, unfenced);
        let then_reading = std::mem::replace(&mut self.reading, reading);
        self.block(otherwise)?;
        self.close_section();
        self.also_pending(after_then);
        self.unfenced = self.unfenced.or(then_unfenced);
        self.reading = super::convert::hull(self.reading, then_reading);
        if let Some(y) = f.last_op(otherwise) {
            let values = f.operands(y);
            self.assign(op, &merged, values)?;
        }
        self.b.place(end);
        if !self.agent.elect {
            self.b.bar_warp_sync(0xffff_ffffu32);
        }
        for (&r, v) in f.results(op).iter().zip(merged) {
            self.vals[r] = v;
        }
        Ok(())
    }
}

/// Register type of one unit of a tile.
pub(super) fn element_reg(elem: Scalar) -> RegTy {
    match elem {
        Scalar::F32 | Scalar::TF32 => RegTy::F32,
        Scalar::I1 => RegTy::Pred,
        Scalar::I64 | Scalar::F64 => RegTy::B64,
        _ => RegTy::B32,
    }
}
