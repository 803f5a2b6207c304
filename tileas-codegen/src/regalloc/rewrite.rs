//! Writes a spill plan into the function: chooses places, inserts instructions, splits edges.
//!
//! A value that is cheap to make again is made again and never stored. Slots of 32-bit values go to shared memory as far as
//! there is room ([`SharedRoom`]): word `w` of thread `t` at `at + 4 · (w · threads + t)`, so that a warp's accesses meet no
//! bank twice. Everything else goes to local memory, granules as vectors of four.

use super::names::{NameClass, NameId, Names};
use super::plan::{Place, Plan, Transfer};
use super::remat::Remat;
use crate::nvvm::{Bb, Function, Guard, Inst, Operand, PtxOp, Reg, RegTy, Special, Sym};
use cranelift_entity::EntitySet;
use cranelift_entity::packed_option::PackedOption;

/// Shared memory that spilled values may use.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SharedRoom {
    /// The variable it lies in.
    pub sym: Sym,
    /// Offset of the first free byte, a multiple of 16.
    pub at: u32,
    /// Free bytes from there.
    pub bytes: u32,
    /// Threads of the CTA, numbered by `%tid.x`.
    pub threads: u32,
}

/// Counts of what was inserted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct SpillStats {
    /// Registers stored, each time they are.
    pub stores: u32,
    /// Registers loaded again, each time they are.
    pub reloads: u32,
    /// Registers computed again.
    pub recomputed: u32,
    /// Bytes of local memory per thread.
    pub local_bytes: u32,
    /// Bytes of shared memory per CTA.
    pub shared_bytes: u32,
}

/// Where the words of a slot are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Home {
    Local(u32),
    /// Word number.
    Shared(u32),
}

/// Inserts the plan. `blocks`: the agent's, the first one in front. Local memory up to `local_base` is taken. Also gives the register that leads
/// to the thread's words in shared memory.
pub(super) fn rewrite(
    func: &mut Function,
    names: &Names,
    remat: &mut Remat,
    plan: &Plan,
    blocks: &[Bb],
    shared: Option<SharedRoom>,
    local_base: u32,
) -> (SpillStats, Option<Reg>) {
    let mut stats = SpillStats::default();
    // Names that are made again need no slot.
    let again: Vec<bool> =
        names.list.iter().map(|n| n.members().all(|(_, r)| remat.cost(func, r).is_some())).collect();
    let stored = |t: &Transfer| !again[t.name as usize];
    let mut w = Rewriter {
        names,
        homes: homes(names, plan, shared, local_base, stored, &mut stats),
        shared,
        base: None,
        entry: None,
        edges: Vec::new(),
        blocks,
    };
    if stats.shared_bytes > 0 {
        w.shared_base(func);
    }
    for t in &plan.transfers {
        let made_again = again[t.name as usize];
        if made_again && t.store {
            continue;
        }
        let (bb, mut at) = w.position(func, t.place);
        if !t.store {
            at = before_fence(func, at);
        }
        if made_again {
            for (i, r) in names.list[t.name as usize].members() {
                if t.mask & 1 << i != 0 {
                    remat.emit(func, bb, at, r);
                    stats.recomputed += 1;
                }
            }
        } else {
            w.transfer(func, bb, at, t);
            *if t.store { &mut stats.stores } else { &mut stats.reloads } += t.mask.count_ones();
        }
    }
    func.local_bytes = func.local_bytes.max(stats.local_bytes);
    (stats, w.base)
}

/// Finds a place for each slot in use, by its first word.
fn homes(
    names: &Names,
    plan: &Plan,
    shared: Option<SharedRoom>,
    local_base: u32,
    stored: impl Fn(&Transfer) -> bool,
    stats: &mut SpillStats,
) -> Vec<Option<Home>> {
    let class = |name: NameId| names.list[name as usize].class;
    let mut used: Vec<Option<NameClass>> = vec![None; plan.words as usize + 1];
    for t in plan.transfers.iter().filter(|t| stored(t)) {
        used[t.slot as usize] = Some(class(t.name));
    }
    let room = shared.map_or(0, |s| s.bytes / 4 / s.threads.max(1));
    let (mut words, mut bytes) = (0, local_base);
    let homes = used.iter().map(|&class| {
        let class = class?;
        let units = class.units();
        if class != NameClass::Pair && words + units <= room {
            words += units;
            return Some(Home::Shared(words - units));
        }
        let at = bytes.next_multiple_of(4 * units);
        bytes = at + 4 * units;
        Some(Home::Local(at))
    });
    let homes = homes.collect();
    stats.local_bytes = bytes.next_multiple_of(16);
    stats.shared_bytes = shared.map_or(0, |s| words * 4 * s.threads);
    homes
}

struct Rewriter<'a> {
    names: &'a Names,
    homes: Vec<Option<Home>>,
    shared: Option<SharedRoom>,
    /// Address of the thread's words in shared memory.
    base: Option<Reg>,
    /// The block before the agent's first one, with its terminator, once it exists.
    entry: Option<(Bb, Inst)>,
    edges: Vec<(Place, Bb, Inst)>,
    blocks: &'a [Bb],
}

impl Rewriter<'_> {
    /// Where to insert: block and the instruction before which.
    fn position(&mut self, func: &mut Function, place: Place) -> (Bb, Inst) {
        match place {
            Place::Before(bb, inst) => (bb, inst),
            Place::Entry => match self.entry {
                Some(entry) => entry,
                None => {
                    let entry = self.make_entry(func);
                    self.entry = Some(entry);
                    entry
                }
            },
            Place::Edge(from, way, to) => {
                if let Some(&(_, bb, at)) = self.edges.iter().find(|(p, ..)| *p == place) {
                    return (bb, at);
                }
                let (bb, at) = split(func, from, way, to);
                self.edges.push((place, bb, at));
                (bb, at)
            }
        }
    }

    /// A block that everyone passes who comes to the agent from outside.
    fn make_entry(&mut self, func: &mut Function) -> (Bb, Inst) {
        let first = self.blocks[0];
        let bb = func.block();
        let jump = func.make_inst(PtxOp::Bra, &[first.into()], Guard::default());
        func.append_inst(bb, jump);
        let at = func.layout.iter().position(|&b| b == first).unwrap_or(0);
        func.layout.insert(at, bb);
        func.blocks[bb].agent = std::mem::take(&mut func.blocks[first].agent);
        func.blocks[bb].name = func.blocks[first].name.take();
        let mut inside = EntitySet::new();
        for &b in self.blocks {
            inside.insert(b);
        }
        for i in 0..func.layout.len() {
            let b = func.layout[i];
            if b != bb && !inside.contains(b) {
                retarget(func, b, None, first, bb);
            }
        }
        (bb, jump)
    }

    /// Puts the address of the thread's words into a register at the agent's start.
    fn shared_base(&mut self, func: &mut Function) {
        let Some(room) = self.shared else { return };
        let (bb, at) = self.position(func, Place::Entry);
        let emit = |func: &mut Function, op: PtxOp, sources: &[Operand]| {
            let d = func.reg(RegTy::B32);
            let mut operands = vec![d.into()];
            operands.extend_from_slice(sources);
            let inst = func.make_inst(op, &operands, Guard::default());
            func.insert_before(bb, at, inst);
            d
        };
        let base = emit(func, PtxOp::MovSharedU32, &[room.sym.into()]);
        let thread = emit(func, PtxOp::MovSpecialU32, &[Special::TidX.into()]);
        self.base = Some(emit(func, PtxOp::MadLoU32, &[thread.into(), 4u32.into(), base.into()]));
    }

    /// One store or reload.
    fn transfer(&self, func: &mut Function, bb: Bb, at: Inst, t: &Transfer) {
        let Some(home) = self.homes.get(t.slot as usize).copied().flatten() else { return };
        let name = &self.names.list[t.name as usize];
        let emit = |func: &mut Function, op: PtxOp, value: Operand, address: Operand| {
            let operands = if t.store { [address, value] } else { [value, address] };
            let inst = func.make_inst(op, &operands, Guard::default());
            func.insert_before(bb, at, inst);
        };
        if let (Home::Local(offset), NameClass::Granule, 15) = (home, name.class, t.mask) {
            let items: Vec<Operand> = name.members().map(|(_, r)| r.into()).collect();
            let list = func.list(items);
            let op = if t.store { PtxOp::StLocalV4B32 } else { PtxOp::LdLocalV4B32 };
            return emit(func, op, list.into(), Operand::Local(offset));
        }
        for (i, r) in name.members() {
            if t.mask & 1 << i == 0 {
                continue;
            }
            let (op, address) = match (home, self.base, self.shared) {
                (Home::Local(offset), ..) => {
                    (local(func.ty(r), t.store), Operand::Local(offset + 4 * i as u32))
                }
                (Home::Shared(word), Some(base), Some(room)) => {
                    let offset = room.at + 4 * room.threads * (word + i as u32);
                    (shared(func.ty(r), t.store), Operand::addr(base, offset as i32))
                }
                _ => continue,
            };
            emit(func, op, r.into(), address);
        }
    }
}

/// The fence that orders a product onto registers behind what was done with them, if `at` is such a product: nothing touches them in between.
/// Each product begins with one, so the nearest is its own.
/// Source: PTX ISA, wgmma.fence.
fn before_fence(func: &Function, at: Inst) -> Inst {
    let is_product = |inst: Inst| func.op(inst).form().mnemonic.starts_with("wgmma.mma_async");
    if !is_product(at) {
        return at;
    }
    let before = std::iter::successors(func.prev_inst(at), |&i| func.prev_inst(i));
    let fence = before.into_iter().find(|&i| func.op(i) == PtxOp::WgmmaFenceSyncAligned);
    fence.unwrap_or(at)
}

fn local(ty: RegTy, store: bool) -> PtxOp {
    match (ty, store) {
        (RegTy::B16, true) => PtxOp::StLocalB16,
        (RegTy::B16, false) => PtxOp::LdLocalB16,
        (RegTy::F32, true) => PtxOp::StLocalF32,
        (RegTy::F32, false) => PtxOp::LdLocalF32,
        (RegTy::B64, true) => PtxOp::StLocalB64,
        (RegTy::B64, false) => PtxOp::LdLocalB64,
        (_, true) => PtxOp::StLocalB32,
        (_, false) => PtxOp::LdLocalB32,
    }
}

fn shared(ty: RegTy, store: bool) -> PtxOp {
    match (ty, store) {
        (RegTy::B16, true) => PtxOp::StSharedB16,
        (RegTy::B16, false) => PtxOp::LdSharedB16,
        (RegTy::F32, true) => PtxOp::StSharedF32,
        (RegTy::F32, false) => PtxOp::LdSharedF32,
        (_, true) => PtxOp::StSharedB32,
        (_, false) => PtxOp::LdSharedB32,
    }
}

/// Sends the branches of `bb` that go to `old` to `new`; only one of them if `way` says which.
fn retarget(func: &mut Function, bb: Bb, way: Option<usize>, old: Bb, new: Bb) {
    let Some(last) = func.last_inst(bb) else { return };
    let before = PackedOption::from(func.prev_inst(last));
    let at = |n: usize| if n == 1 { PackedOption::from(last) } else { before };
    for n in 0..2 {
        if way.is_some_and(|w| w != n) {
            continue;
        }
        if let Some(inst) = at(n).expand()
            && matches!(func.op(inst), PtxOp::Bra | PtxOp::BraUni)
            && func.operands(inst) == [Operand::Block(old)]
        {
            func.operands_mut(inst)[0] = Operand::Block(new);
        }
    }
}

/// A block on the way from one to another.
fn split(func: &mut Function, from: Bb, way: usize, to: Bb) -> (Bb, Inst) {
    let bb = func.block();
    let jump = func.make_inst(PtxOp::Bra, &[to.into()], Guard::default());
    func.append_inst(bb, jump);
    retarget(func, from, Some(way), to, bb);
    // The final branch keeps falling through; the other way is a detour at the end.
    let at = match way {
        1 => func.layout.iter().position(|&b| b == from).map_or(func.layout.len(), |p| p + 1),
        _ => func.layout.len(),
    };
    func.layout.insert(at, bb);
    (bb, jump)
}
