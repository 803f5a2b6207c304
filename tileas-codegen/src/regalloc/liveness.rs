//! Liveness of virtual registers.
//!
//! In: a function whose blocks end in terminators. Out: the registers live at the start and end of each block, as bit
//! sets. A guarded write does not end the old value's life. Cost: O(blocks × registers / 64) per round, and few
//! rounds, since blocks are visited backwards.

use crate::nvvm::{Bb, Function, Reg};
use cranelift_entity::{EntityRef, SecondaryMap};

/// Which registers are live where.
#[derive(Default)]
pub struct Liveness {
    words: usize,
    row: SecondaryMap<Bb, u32>,
    live_in: Vec<u64>,
    live_out: Vec<u64>,
    gen_set: Vec<u64>,
    kill: Vec<u64>,
}

#[inline]
fn set(bits: &mut [u64], r: Reg) {
    bits[r.index() / 64] |= 1 << (r.index() % 64);
}

#[inline]
fn get(bits: &[u64], r: Reg) -> bool {
    bits[r.index() / 64] & (1 << (r.index() % 64)) != 0
}

impl Liveness {
    /// Liveness of a function, in fresh memory.
    pub fn compute(func: &Function) -> Liveness {
        let mut l = Liveness::default();
        l.recompute(func);
        l
    }

    /// Liveness of another function, reusing the memory.
    pub fn recompute(&mut self, func: &Function) {
        let Self { words, row, live_in, live_out, gen_set, kill } = self;
        row.clear();
        *words = func.num_regs().div_ceil(64);
        let w = *words;
        let size = w * func.layout().len();
        for v in [&mut *live_in, &mut *live_out, &mut *gen_set, &mut *kill] {
            v.clear();
            v.resize(size, 0);
        }
        for (i, &bb) in func.layout().iter().enumerate() {
            row[bb] = i as u32 + 1; // 0: not placed
            let (g, k) = (&mut gen_set[i * w..(i + 1) * w], &mut kill[i * w..(i + 1) * w]);
            for inst in func.insts(bb) {
                func.visit_reads(inst, |r| {
                    if !get(k, r) {
                        set(g, r);
                    }
                });
                if !func.guard(inst).is_some() {
                    func.visit_writes(inst, |r| set(k, r));
                }
            }
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (i, &bb) in func.layout().iter().enumerate().rev() {
                for s in func.successors(bb).into_iter().flatten() {
                    let Some(j) = (row[s] as usize).checked_sub(1) else { continue };
                    let from = &live_in[j * w..(j + 1) * w];
                    for (out, new) in live_out[i * w..(i + 1) * w].iter_mut().zip(from) {
                        *out |= new;
                    }
                }
                let row = i * w..(i + 1) * w;
                let made = gen_set[row.clone()].iter().zip(&live_out[row.clone()]).zip(&kill[row.clone()]);
                let mut difference = 0;
                for (live, ((g, out), k)) in live_in[row].iter_mut().zip(made) {
                    let new = g | (out & !k);
                    difference |= new ^ *live;
                    *live = new;
                }
                changed |= difference != 0;
            }
        }
    }

    fn row<'a>(&self, of: &'a [u64], bb: Bb) -> &'a [u64] {
        match (self.row[bb] as usize).checked_sub(1) {
            Some(i) => &of[i * self.words..(i + 1) * self.words],
            None => &[],
        }
    }

    /// Registers live at the start of a block, in register order.
    pub fn live_in(&self, bb: Bb) -> impl Iterator<Item = Reg> {
        bits(self.row(&self.live_in, bb))
    }

    /// Registers live at the end of a block, in register order.
    pub fn live_out(&self, bb: Bb) -> impl Iterator<Item = Reg> {
        bits(self.row(&self.live_out, bb))
    }

    /// Whether `r` is live at the end of `bb`.
    pub fn is_live_out(&self, bb: Bb, r: Reg) -> bool {
        let row = self.row(&self.live_out, bb);
        r.index() / 64 < row.len() && get(row, r)
    }
}

fn bits(words: &[u64]) -> impl Iterator<Item = Reg> {
    words.iter().enumerate().flat_map(|(i, &w)| {
        let mut w = w;
        std::iter::from_fn(move || {
            (w != 0).then(|| {
                let bit = w.trailing_zeros() as usize;
                w &= w - 1;
                Reg::new(i * 64 + bit)
            })
        })
    })
}
