//! Leaves out accesses of memory that no one misses, of words that their thread alone touches: the local area, and where spills go.
//!
//! In: blocks of a function. Out: the same without
//!
//! - stores that another one covers before anything may have read them, and stores of what is there already, because it was stored or loaded
//!   from there and the register is as it was;
//! - loads into registers that are written again before they are read.
//!
//! Which accesses may meet such a word [`crate::nvvm::alias`] says; what others can see stays as it is written. No value is kept in a register
//! longer than it was: code that spills does so for want of one. Code as it is lowered has no such words, so that only planned spills are
//! looked at. Cost: instructions times the words that a block knows of.

use crate::nvvm::alias::{Alias, Beginning, Place};
use crate::nvvm::forms::Kind;
use crate::nvvm::module::{Bb, Function, Inst, Operand, Reg};
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use smallvec::SmallVec;

/// Registers that are no longer stored and loaded, each time they were.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Stored.
    pub stores: u32,
    /// Loaded.
    pub loads: u32,
}

/// A load or a store.
struct Access {
    place: Place,
    is_store: bool,
    /// What is loaded or stored, in order.
    values: SmallVec<[Operand; 4]>,
    is_guarded: bool,
}

/// What is known at a point of a block.
#[derive(Default)]
struct State {
    /// Stores to words of the thread that nothing has read yet.
    unread: Vec<(Place, Inst)>,
    /// Words of the thread that hold what a register does.
    held: Vec<(Place, Reg)>,
    /// The load from such a word that a register comes from, if nothing has read it since.
    loaded: SecondaryMap<Reg, PackedOption<Inst>>,
}

/// Runs the pass on some blocks; `own`: the register that leads to the thread's words in shared memory.
pub fn run(func: &mut Function, blocks: &[Bb], own: Option<Reg>) -> MemoryStats {
    let mut stats = MemoryStats::default();
    let mut state = State::default();
    let mut dead: Vec<(Bb, Inst)> = Vec::new();
    for &bb in blocks {
        state.unread.clear();
        state.held.clear();
        state.loaded.clear();
        for inst in func.insts(bb) {
            state.step(func, inst, own, |inst| dead.push((bb, inst)));
        }
        remove(func, &mut dead, own, &mut stats);
    }
    stats
}

fn remove(func: &mut Function, dead: &mut Vec<(Bb, Inst)>, own: Option<Reg>, stats: &mut MemoryStats) {
    for (bb, inst) in dead.drain(..) {
        if let Some(a) = access(func, inst, own) {
            *if a.is_store { &mut stats.stores } else { &mut stats.loads } += a.values.len() as u32;
        }
        func.remove_inst(bb, inst);
    }
}

/// The access of an instruction that does nothing else.
fn access(func: &Function, inst: Inst, own: Option<Reg>) -> Option<Access> {
    let form = func.op(inst).form();
    let is_store = form.mnemonic.starts_with("st.");
    if !is_store && !form.mnemonic.starts_with("ld.") {
        return None;
    }
    let (mut at, mut values) = (None, SmallVec::new());
    for (class, &operand) in form.operands.iter().zip(func.operands(inst)) {
        match (class.kind, operand) {
            (Kind::Addr(space), o) => at = Some((space, o)),
            (_, Operand::List(list)) => values.extend_from_slice(func.list_items(list)),
            (_, o) => values.push(o),
        }
    }
    let (space, address) = at?;
    let element = form.mnemonic.rsplit('.').next()?.get(1..)?.parse::<u32>().ok()? / 8;
    let place = Place::of(space, address, element * values.len() as u32, own);
    Some(Access { place, is_store, values, is_guarded: func.guard(inst).is_some() })
}

impl Access {
    /// Each register and the part of the place that it is loaded from or stored to; none where a guard may be off, or for what is no register.
    fn registers(&self) -> impl Iterator<Item = (Place, Option<Reg>)> {
        let bytes = self.place.bytes / self.values.len().max(1) as u32;
        self.values.iter().zip(0..).map(move |(&v, n)| {
            let first = self.place.first + i64::from(bytes) * n;
            let register = if let Operand::Reg(r) = v { Some(r) } else { None };
            (Place { first, bytes, ..self.place }, register.filter(|_| !self.is_guarded))
        })
    }
}

impl State {
    fn step(&mut self, func: &Function, inst: Inst, own: Option<Reg>, mut dead: impl FnMut(Inst)) {
        let access = access(func, inst, own);
        if let Some(a) = access.as_ref().filter(|a| a.is_store)
            && a.registers().all(|(p, r)| r.is_some_and(|r| self.held.contains(&(p, r))))
        {
            return dead(inst);
        }
        func.visit_reads(inst, |r| self.loaded[r] = None.into());
        match &access {
            Some(a) if a.is_store => {
                self.unread.retain(|&(p, earlier)| {
                    let covered = !a.is_guarded && a.place.alias(&p) == Alias::Same;
                    if covered {
                        dead(earlier);
                    }
                    !covered
                });
                self.held.retain(|(p, _)| p.alias(&a.place) == Alias::Apart);
                if a.place.is_own() {
                    self.unread.push((a.place, inst));
                }
            }
            Some(a) => self.unread.retain(|(p, _)| p.alias(&a.place) == Alias::Apart),
            None => {
                for class in func.op(inst).form().operands {
                    let Kind::Addr(space) = class.kind else { continue };
                    let place = Place { space, from: Beginning::Other, first: 0, bytes: 0 };
                    self.unread.retain(|(p, _)| p.alias(&place) == Alias::Apart);
                    self.held.retain(|(p, _)| p.alias(&place) == Alias::Apart);
                }
            }
        }
        let is_guarded = func.guard(inst).is_some();
        func.visit_writes(inst, |r| {
            self.held.retain(|h| h.1 != r);
            // Where a guard is off the old value stays.
            if let Some(load) = self.loaded[r].take().filter(|_| !is_guarded) {
                dead(load);
            }
        });
        let Some(a) = access.filter(|a| a.place.is_own()) else { return };
        self.held.extend(a.registers().filter_map(|(p, r)| Some((p, r?))));
        // Of vectors other elements may be read.
        if let ([Operand::Reg(r)], false, false) = (&a.values[..], a.is_store, a.is_guarded) {
            self.loaded[*r] = inst.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvvm::{FuncBuilder, Guard, PtxOp, RegTy, Special};

    /// Runs the pass on one block, `%v0` leading to words of the thread; the stores (`s`) and loads (`l`) that are left, by the
    /// bytes they begin with; `*`: elsewhere.
    fn left(build: impl FnOnce(&mut FuncBuilder<'_>, Reg)) -> (String, MemoryStats) {
        let mut f = Function::kernel("k");
        f.local_bytes = 64;
        let mut b = FuncBuilder::new(&mut f);
        let own = b.special(Special::TidX);
        build(&mut b, own);
        b.ret();
        let blocks = f.layout().to_vec();
        let stats = run(&mut f, &blocks, Some(own));
        let all = f.layout().iter().flat_map(|&bb| f.insts(bb));
        let said = all.filter_map(|i| access(&f, i, Some(own))).map(|a| {
            let letter = if a.is_store { 's' } else { 'l' };
            let at = if a.place.is_own() { a.place.first.to_string() } else { "*".to_owned() };
            letter.to_string() + &at
        });
        (said.collect::<Vec<_>>().join(" "), stats)
    }

    /// Reads all words of the thread from 0 to 12, after something else.
    fn read_all(b: &mut FuncBuilder<'_>, own: Reg) {
        b.bar_sync_all(0);
        let all = [0, 4, 8, 12].map(|n| b.ld_shared_b32((own, n)));
        let next = b.block();
        b.place(next);
        let sum = all.into_iter().reduce(|x, y| b.add_u32(x, y)).expect("four");
        b.st_shared_b32((sum, 96), sum);
    }

    #[test]
    fn a_store_that_is_covered_or_changes_nothing_is_left_out() {
        const READ: &str = " l0 l4 l8 l12 s*";
        let of = |build: &dyn Fn(&mut FuncBuilder<'_>, Reg, [Reg; 2])| {
            let (text, stats) = left(|b, own| {
                let x = b.add_u32(own, 1);
                let y = b.add_u32(own, 2);
                build(b, own, [x, y]);
                read_all(b, own);
            });
            (text.strip_suffix(READ).unwrap_or_else(|| panic!("{text}")).to_owned(), stats.stores)
        };
        // Covered, whatever else is stored or ordered in between; what others can see stays.
        let (text, n) = of(&|b, own, [x, y]| {
            b.st_shared_b32((own, 4), x);
            b.st_shared_b32((y, 4), y);
            b.bar_sync_all(0);
            b.st_shared_b32((own, 4), y);
            b.st_shared_b32((y, 4), x);
        });
        assert_eq!((text.as_str(), n), ("s* s4 s*", 1));
        // A generic address may lead there, one of another space does not.
        for (op, left) in [(PtxOp::PrefetchTensormap, "s0 s0"), (PtxOp::LdGlobalB32, "l* s0")] {
            let (text, _) = of(&|b, own, [x, y]| {
                let pointer = b.cvt_u64_u32(x);
                b.st_shared_b32((own, 0), x);
                match op {
                    PtxOp::LdGlobalB32 => _ = b.ld_global_b32(pointer),
                    op => _ = b.emit(op, &[pointer.into()]),
                }
                b.st_shared_b32((own, 0), y);
            });
            assert_eq!(text, left);
        }
        // Read in between, by its bytes or by some of them.
        for bytes in [0, 2] {
            let (text, n) = of(&|b, own, [x, y]| {
                b.st_shared_b32((own, 0), x);
                let read = b.ld_shared_b32((own, bytes));
                b.st_shared_b32((own, 8), read);
                b.st_shared_b32((own, 0), y);
            });
            assert_eq!((text, n), (format!("s0 l{bytes} s8 s0"), 0));
        }
        // Another place is read.
        let (text, n) = of(&|b, own, [x, y]| {
            b.st_shared_b32((own, 0), x);
            let [near, far] = [(own, 4), (y, 0)].map(|at| b.ld_shared_b32(at));
            b.st_shared_b32((own, 8), near);
            b.st_shared_b32((own, 12), far);
            b.st_shared_b32((own, 0), y);
        });
        assert_eq!((text.as_str(), n), ("l4 l* s8 s12 s0", 1));
        // A guarded store covers nothing, and is covered.
        let guarded = |first: bool| {
            move |b: &mut FuncBuilder<'_>, own: Reg, [x, y]: [Reg; 2]| {
                let p = b.setp_eq_u32(x, 3);
                for (n, value) in [x, y].into_iter().enumerate() {
                    if (n == 0) == first {
                        b.guarded(Guard::new(p, false)).st_shared_b32((own, 0), value);
                    } else {
                        b.st_shared_b32((own, 0), value);
                    }
                }
            }
        };
        assert_eq!(of(&guarded(true)), ("s0".to_owned(), 1));
        assert_eq!(of(&guarded(false)), ("s0 s0".to_owned(), 0));
        // The same once more: stored, or loaded from there, and the register is as it was.
        let (text, n) = of(&|b, own, [x, _]| {
            b.st_shared_b32((own, 0), x);
            b.st_shared_b32((own, 0), x);
            let y = b.ld_shared_b32((own, 4));
            b.st_shared_b32((own, 4), y);
            b.add_u32_to(y, y, 1);
            b.st_shared_b32((own, 4), y);
            b.st_shared_b32((own, 8), y);
            b.st_shared_b32((own, 8), x);
            b.st_shared_b32((own, 8), y);
        });
        assert_eq!((text.as_str(), n), ("s0 l4 s4 s8", 4));
        let (text, n) = of(&|b, own, [x, y]| {
            let z = b.ld_shared_b32((own, 12));
            b.st_shared_b32((own, 12), z);
            // Each is read before the next, and none is what is there.
            for value in [x, y, x] {
                b.st_shared_b32((own, 8), value);
                let seen = b.ld_shared_b32((own, 8));
                b.st_shared_b32((x, 0), seen);
            }
        });
        assert_eq!((text.as_str(), n), ("l12 s8 l8 s* s8 l8 s* s8 l8 s*", 1));
    }

    #[test]
    fn a_load_that_is_not_read_is_left_out() {
        let (text, stats) = left(|b, own| {
            let x = b.reg(RegTy::B32);
            let load = |b: &mut FuncBuilder<'_>, n: i32| {
                b.emit(PtxOp::LdSharedB32, &[x.into(), Operand::addr(own, n)]);
            };
            load(b, 0);
            load(b, 4);
            b.st_shared_b32((own, 16), x);
            load(b, 8);
            // Where the guard is off, what was loaded stays.
            let p = b.setp_eq_u32(own, 3);
            b.guarded(Guard::new(p, false)).mov_to(x, 1);
            load(b, 12);
            let next = b.block();
            b.place(next);
            b.st_shared_b32((x, 0), x);
            let seen = b.ld_shared_b32((own, 16));
            b.st_shared_b32((x, 4), seen);
        });
        assert_eq!(text, "l4 s16 l8 l12 s* l16 s*");
        assert_eq!(stats, MemoryStats { stores: 0, loads: 1 });
    }
}
