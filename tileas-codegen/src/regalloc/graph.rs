//! One agent as the allocator sees it: blocks with split edges, instructions with early and late operands, SSA names.
//!
//! In: the agent's blocks, their liveness, the [`Names`]. Out: a [`Graph`], a `regalloc2::Function`. Before the agent's
//! first block stands one that defines what is live there; each edge that leaves the agent, and each critical one, has
//! a block of its own. Registers written more than once get block parameters where paths meet.
//!
//! One allocator instruction is one of ours, with two exceptions. A conditional branch and the final one behind it are
//! one, as nothing can stand between them. An asynchronous load and everything up to the wait that delivers it are one,
//! because its results are not there before: none of them may be moved or stored in between. What such a group reads is read late,
//! what it writes is written early; so is what an asynchronous instruction reads.
//!
//! Guarantee: the same function gives the same graph. Cost: linear in instructions, names live at blocks aside.

mod units;

use super::names::{ClassBudget, NONE, NameClass, NameId, Names};
use crate::nvvm::Liveness;
use crate::nvvm::{Bb, Function, Inst, Reg};
use cranelift_entity::{EntitySet, SecondaryMap};
use regalloc2::{Block, InstRange, Operand, OperandConstraint, PRegSet, RegClass, VReg};

/// What a block of the graph stands for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The values live where the agent starts.
    Entry,
    /// A block of the function.
    Block(Bb),
    /// The way from one block to another, `way` 0 for the guarded branch and 1 for the final one.
    Edge { from: Bb, way: usize, to: Bb },
}

/// Instructions of the function that make up one of the graph.
#[derive(Copy, Clone, Debug)]
pub(super) struct Unit {
    /// First and last; `None` for what exists in the graph alone.
    pub insts: Option<(Inst, Inst)>,
    pub operands: (u32, u32),
    pub kind: UnitKind,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum UnitKind {
    Plain,
    Branch,
    Return,
}

#[derive(Default)]
pub(super) struct GraphBlock {
    pub origin: Option<Origin>,
    units: (u32, u32),
    succs: Vec<Block>,
    preds: Vec<Block>,
    /// Names with a parameter here, ascending, and the parameters.
    param_names: Vec<NameId>,
    params: Vec<VReg>,
    /// Arguments for the only successor that may have parameters.
    args: Vec<VReg>,
}

/// The allocator's view of one agent.
#[derive(Default)]
pub(super) struct Graph {
    pub blocks: Vec<GraphBlock>,
    pub units: Vec<Unit>,
    operands: Vec<Operand>,
    /// The name of each virtual register.
    pub name_of: Vec<NameId>,
    /// Most operands of each class in one instruction.
    pub least: ClassBudget,
    /// Most names of each class live at once.
    pub peak: ClassBudget,
}

/// Why there is no graph.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum NoGraph {
    /// A tensor-memory load whose wait is in another block.
    Unwaited(Inst),
    /// The agent can be entered elsewhere than at its first block.
    Entered(Bb),
    /// A register that is read, or arrives where ways meet, without having been written on every way.
    Unwritten,
}

pub(super) fn reg_class(class: NameClass) -> RegClass {
    match class {
        NameClass::Scalar => RegClass::Int,
        NameClass::Granule => RegClass::Float,
        NameClass::Pair => RegClass::Vector,
    }
}

/// What one unit does with one name.
#[derive(Copy, Clone, Debug)]
struct Mention {
    name: NameId,
    /// Its old value is needed.
    reads: bool,
    writes: bool,
    /// Part of the old value stays in the new one.
    keeps: bool,
    /// Written by the group before anything reads it there.
    late: bool,
}

/// Units of one block, as found walking it backwards.
struct Found {
    insts: (Inst, Inst),
    mentions: (u32, u32),
    kind: UnitKind,
    group: bool,
}

/// A unit before its operands are in the pool.
type Draft = (Option<(Inst, Inst)>, Vec<Operand>, UnitKind);

/// A load whose results arrive later.
fn starts_group(func: &Function, inst: Inst) -> bool {
    let op = func.op(inst);
    let mut writes = false;
    func.visit_writes(inst, |_| writes = true);
    op.effects().is_async() && writes
}

struct Builder<'a> {
    func: &'a Function,
    liveness: &'a Liveness,
    names: &'a Names,
    graph: Graph,
    mentions: Vec<Mention>,
    /// By name: live members while walking backwards.
    live: Vec<u32>,
    /// Version of each name, by name, at the point reached.
    version: Vec<VReg>,
    live_now: ClassBudget,
    place: SecondaryMap<Bb, u32>,
}

impl Graph {
    /// The graph of `blocks`, of which the first is the entry.
    pub(super) fn build(
        func: &Function,
        liveness: &Liveness,
        names: &Names,
        blocks: &[Bb],
    ) -> Result<Graph, NoGraph> {
        let mut b = Builder {
            func,
            liveness,
            names,
            graph: Graph::default(),
            mentions: Vec::new(),
            live: vec![0; names.list.len()],
            version: vec![VReg::invalid(); names.list.len()],
            live_now: [0; 3],
            place: SecondaryMap::new(),
        };
        b.shape(blocks)?;
        b.fill(blocks)?;
        Ok(b.graph)
    }

    fn block(&self, block: Block) -> &GraphBlock {
        &self.blocks[block.index()]
    }

    /// Units of a block, by index.
    pub(super) fn unit_range(&self, block: usize) -> std::ops::Range<usize> {
        let (from, to) = self.blocks[block].units;
        from as usize..to as usize
    }

    /// Predecessors and successors of a block, by index.
    pub(super) fn succs(&self, block: usize) -> impl Iterator<Item = usize> + '_ {
        self.blocks[block].succs.iter().map(|b| b.index())
    }

    pub(super) fn unit_operands(&self, unit: usize) -> &[Operand] {
        let (from, to) = self.units[unit].operands;
        &self.operands[from as usize..to as usize]
    }
}

impl Builder<'_> {
    /// Blocks and edges.
    fn shape(&mut self, blocks: &[Bb]) -> Result<(), NoGraph> {
        let func = self.func;
        let mut inside: EntitySet<Bb> = EntitySet::new();
        let mut preds: SecondaryMap<Bb, u32> = SecondaryMap::new();
        for &bb in blocks {
            inside.insert(bb);
        }
        for &bb in func.layout() {
            for s in func.successors(bb).into_iter().flatten() {
                preds[s] += u32::from(inside.contains(bb));
                if inside.contains(s) && !inside.contains(bb) && s != blocks[0] {
                    return Err(NoGraph::Entered(s));
                }
            }
        }
        preds[blocks[0]] += 1;
        let graph = &mut self.graph;
        let add = |graph: &mut Graph, origin: Origin| {
            graph.blocks.push(GraphBlock { origin: Some(origin), ..GraphBlock::default() });
            Block::new(graph.blocks.len() - 1)
        };
        add(graph, Origin::Entry);
        // Blocks, each followed by those of its edges.
        let mut links: Vec<(Block, Result<Block, Bb>)> = Vec::new();
        for &bb in blocks {
            let block = add(graph, Origin::Block(bb));
            self.place[bb] = block.index() as u32;
            let succs = func.successors(bb);
            let several = succs.iter().flatten().count() > 1;
            for (way, s) in succs.into_iter().enumerate() {
                let Some(to) = s else { continue };
                if !inside.contains(to) {
                    let edge = add(graph, Origin::Edge { from: bb, way, to });
                    links.push((block, Ok(edge)));
                } else if several && preds[to] > 1 {
                    let edge = add(graph, Origin::Edge { from: bb, way, to });
                    links.push((block, Ok(edge)));
                    links.push((edge, Err(to)));
                } else {
                    links.push((block, Err(to)));
                }
            }
        }
        links.insert(0, (Block::new(0), Err(blocks[0])));
        for (from, to) in links {
            let to = to.unwrap_or_else(|bb| Block::new(self.place[bb] as usize));
            graph.blocks[from.index()].succs.push(to);
            graph.blocks[to.index()].preds.push(from);
        }
        self.renumber();
        Ok(())
    }

    /// Numbers the blocks in reverse postorder: the allocator's checker starts from blocks in the order of their
    /// numbers and takes one that it meets before all its predecessors for one where nothing is known.
    fn renumber(&mut self) {
        let order = self.order();
        let mut new = vec![Block::invalid(); self.graph.blocks.len()];
        for (n, &old) in order.iter().enumerate() {
            new[old] = Block::new(n);
        }
        let mut old: Vec<Option<GraphBlock>> =
            std::mem::take(&mut self.graph.blocks).into_iter().map(Some).collect();
        for at in order {
            let Some(mut block) = old[at].take() else { continue };
            for link in block.succs.iter_mut().chain(&mut block.preds) {
                *link = new[link.index()];
            }
            if let Some(Origin::Block(bb)) = block.origin {
                self.place[bb] = self.graph.blocks.len() as u32;
            }
            self.graph.blocks.push(block);
        }
    }

    fn class(&self, name: NameId) -> NameClass {
        self.names.list[name as usize].class
    }

    /// A fresh virtual register for a name.
    fn fresh(&mut self, name: NameId) -> VReg {
        let v = VReg::new(self.graph.name_of.len(), reg_class(self.class(name)));
        self.graph.name_of.push(name);
        v
    }

    fn set_live(&mut self, r: Reg, on: bool) {
        let name = self.names.of(r);
        if name == NONE {
            return;
        }
        let members = &self.names.list[name as usize].members;
        let bit = members.iter().position(|m| m.expand() == Some(r)).map_or(0, |i| 1u32 << i);
        let live = &mut self.live[name as usize];
        let before = *live;
        *live = if on { before | bit } else { before & !bit };
        let count = &mut self.live_now[self.names.list[name as usize].class as usize];
        match (before == 0, *live == 0) {
            (true, false) => *count += 1,
            (false, true) => *count -= 1,
            _ => {}
        }
        let (class, now) = (self.names.list[name as usize].class as usize, *count);
        self.graph.peak[class] = self.graph.peak[class].max(now);
    }

    /// Names live in a set of registers, ascending.
    fn live_names(&self, regs: impl Iterator<Item = Reg>) -> Vec<NameId> {
        let mut out: Vec<NameId> = regs.map(|r| self.names.of(r)).filter(|&n| n != NONE).collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Instructions, operands, parameters.
    fn fill(&mut self, blocks: &[Bb]) -> Result<(), NoGraph> {
        let entry_names = self.live_names(self.liveness.live_in(blocks[0]));
        // Writes of each name, what arrives at the entry counted as one: with more than one, paths need parameters.
        let mut several: Vec<bool> = self.names.list.iter().map(|n| n.writes > 1).collect();
        for &n in &entry_names {
            several[n as usize] |= self.names.list[n as usize].writes > 0;
        }
        let mut found: Vec<Vec<Found>> = Vec::with_capacity(blocks.len());
        for &bb in blocks {
            found.push(self.walk(bb)?);
        }
        // Versions, in the order of the numbers: a block with one predecessor comes after it.
        let mut position = vec![usize::MAX; self.graph.blocks.len()];
        for (i, &bb) in blocks.iter().enumerate() {
            position[self.place[bb] as usize] = i;
        }
        let mut outgoing: Vec<Vec<VReg>> = vec![Vec::new(); self.graph.blocks.len()];
        let mut chunks: Vec<Vec<Draft>> = Vec::new();
        chunks.resize_with(self.graph.blocks.len(), Vec::new);
        for block in 0..self.graph.blocks.len() {
            let origin = self.graph.blocks[block].origin;
            let mut units = Vec::new();
            // A name with one write has one version, which dominates its uses: any visited predecessor knows it.
            let preds = &self.graph.blocks[block].preds;
            match preds.iter().find(|p| !outgoing[p.index()].is_empty()) {
                Some(p) => self.version.clone_from(&outgoing[p.index()]),
                None => self.version.fill(VReg::invalid()),
            }
            match origin {
                Some(Origin::Entry) => {
                    let mut operands = Vec::new();
                    for &n in &entry_names {
                        let v = self.fresh(n);
                        self.version[n as usize] = v;
                        operands.push(Operand::any_def(v));
                    }
                    if !operands.is_empty() {
                        units.push((None, operands, UnitKind::Plain));
                    }
                    units.push((None, Vec::new(), UnitKind::Branch));
                }
                Some(Origin::Edge { to, .. }) => {
                    if self.graph.blocks[block].succs.is_empty() {
                        let names = self.live_names(self.liveness.live_in(to));
                        let uses =
                            names.iter().map(|&n| Operand::any_use(self.version[n as usize])).collect();
                        units.push((None, uses, UnitKind::Return));
                    } else {
                        units.push((None, Vec::new(), UnitKind::Branch));
                    }
                }
                Some(Origin::Block(bb)) => {
                    if self.graph.blocks[block].preds.len() > 1 {
                        let names: Vec<NameId> = self
                            .live_names(self.liveness.live_in(bb))
                            .into_iter()
                            .filter(|&n| several[n as usize])
                            .collect();
                        for &n in &names {
                            let v = self.fresh(n);
                            self.version[n as usize] = v;
                            self.graph.blocks[block].params.push(v);
                        }
                        self.graph.blocks[block].param_names = names;
                    }
                    for f in std::mem::take(&mut found[position[block]]) {
                        let operands = self.operands(&f);
                        units.push((Some(f.insts), operands, f.kind));
                    }
                }
                None => {}
            }
            outgoing[block].clone_from(&self.version);
            chunks[block] = units;
        }
        for (block, units) in chunks.into_iter().enumerate() {
            let from = self.graph.units.len() as u32;
            for (insts, operands, kind) in units {
                let start = self.graph.operands.len() as u32;
                self.count(&operands);
                if operands.iter().any(|o| o.vreg().vreg() >= self.graph.name_of.len()) {
                    return Err(NoGraph::Unwritten);
                }
                self.graph.operands.extend(operands);
                let operands = (start, self.graph.operands.len() as u32);
                self.graph.units.push(Unit { insts, operands, kind });
            }
            self.graph.blocks[block].units = (from, self.graph.units.len() as u32);
            // Only a lone successor can have parameters: edges are split.
            if let [only] = self.graph.blocks[block].succs[..] {
                let names = &self.graph.blocks[only.index()].param_names;
                let args: Vec<VReg> = names.iter().map(|&n| outgoing[block][n as usize]).collect();
                if args.contains(&VReg::invalid()) {
                    return Err(NoGraph::Unwritten);
                }
                self.graph.blocks[block].args = args;
            }
        }
        Ok(())
    }

    fn count(&mut self, operands: &[Operand]) {
        let mut now = [0; 3];
        for o in operands {
            if o.constraint() != OperandConstraint::Any {
                now[o.class() as usize] += 1;
            }
        }
        for (most, n) in self.graph.least.iter_mut().zip(now) {
            *most = n.max(*most);
        }
    }

    /// Reverse postorder of the blocks; of two ways, the one to the earlier block comes first.
    fn order(&self) -> Vec<usize> {
        let mut out = Vec::new();
        let mut seen = vec![false; self.graph.blocks.len()];
        let mut stack = vec![(0usize, 0usize)];
        seen[0] = true;
        while let Some((block, next)) = stack.pop() {
            let mut succs: smallvec::SmallVec<[Block; 2]> =
                self.graph.blocks[block].succs.iter().copied().collect();
            succs.sort_unstable_by_key(|s| std::cmp::Reverse(s.index()));
            match succs.get(next) {
                Some(s) => {
                    stack.push((block, next + 1));
                    if !std::mem::replace(&mut seen[s.index()], true) {
                        stack.push((s.index(), 0));
                    }
                }
                None => out.push(block),
            }
        }
        out.reverse();
        out
    }
}

impl regalloc2::Function for Graph {
    fn num_insts(&self) -> usize {
        self.units.len()
    }
    fn num_blocks(&self) -> usize {
        self.blocks.len()
    }
    fn entry_block(&self) -> Block {
        Block::new(0)
    }
    fn block_insns(&self, block: Block) -> InstRange {
        let (from, to) = self.block(block).units;
        InstRange::new(regalloc2::Inst::new(from as usize), regalloc2::Inst::new(to as usize))
    }
    fn block_succs(&self, block: Block) -> &[Block] {
        &self.block(block).succs
    }
    fn block_preds(&self, block: Block) -> &[Block] {
        &self.block(block).preds
    }
    fn block_params(&self, block: Block) -> &[VReg] {
        &self.block(block).params
    }
    fn is_ret(&self, inst: regalloc2::Inst) -> bool {
        self.units[inst.index()].kind == UnitKind::Return
    }
    fn is_branch(&self, inst: regalloc2::Inst) -> bool {
        self.units[inst.index()].kind == UnitKind::Branch
    }
    fn branch_blockparams(&self, block: Block, _: regalloc2::Inst, _: usize) -> &[VReg] {
        &self.block(block).args
    }
    fn inst_operands(&self, inst: regalloc2::Inst) -> &[Operand] {
        self.unit_operands(inst.index())
    }
    fn inst_clobbers(&self, _: regalloc2::Inst) -> PRegSet {
        PRegSet::empty()
    }
    fn num_vregs(&self) -> usize {
        self.name_of.len()
    }
    fn spillslot_size(&self, class: RegClass) -> usize {
        NameClass::ALL.into_iter().find(|&c| reg_class(c) == class).map_or(1, |c| c.units() as usize)
    }
}
