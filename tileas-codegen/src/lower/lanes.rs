//! Integers of 8 and 16 bits, computed where they are: all elements of a unit at once.
//!
//! In: an element-wise op on tiles of such elements. Out: its units by bitwise ops, sums and shifts of 32 bits, in which nothing goes from one element to
//! the next, and by selections of bytes where it converts them; or nothing where an op needs elements by themselves (products, comparisons, amounts
//! that differ).
//! Lost without it: a unit of four bytes is taken apart, computed four times and put together again, 11 instructions for 1 to 5; bytes of weights
//! become f16 at 3 instructions each for 1.25.

use super::tile::packing;
use super::{Lower, Units};
use crate::ir::{Op, Opcode, Scalar, keys};
use crate::nvvm::{Operand, Reg, RegTy};
use smallvec::SmallVec;

/// An operand: units of a tile, or the same number in all elements.
#[derive(Copy, Clone)]
pub(super) enum Lanes {
    Units(Units),
    All(i64),
}

/// The same bits in each element of a unit.
fn spread(bits: u32, x: i64) -> i64 {
    let each = x as u64 & ((1 << bits) - 1);
    (0..32 / bits).fold(0, |all, n| all | each << (n * bits)) as i64
}

impl Lower<'_> {
    /// The units of the result for `count` units, if they can be had at once.
    pub(super) fn lanes(&mut self, op: Op, elem: Scalar, inputs: &[Lanes], count: usize) -> Option<Units> {
        let code = self.f.opcode(op);
        let bits = if elem.is_int() && packing(elem) > 0 { elem.bits() } else { return None };
        let &[Lanes::Units(a), b] = inputs else { return None };
        let amount = match b {
            Lanes::All(n) if (0..i64::from(bits)).contains(&n) => Some(n),
            _ => None,
        };
        let computes = match code {
            Opcode::Andi | Opcode::Ori | Opcode::Xori | Opcode::Addi | Opcode::Subi => true,
            Opcode::Shli | Opcode::Shri => amount.is_some(),
            _ => false,
        };
        if !computes {
            return None;
        }
        let unsigned = self.f.has_attr(op, keys::UNSIGNED);
        let mut all: SmallVec<[Operand; 32]> = SmallVec::new();
        for i in 0..count {
            let x = self.units[a.start as usize + i];
            let y = match b {
                Lanes::Units(b) => self.units[b.start as usize + i],
                Lanes::All(n) => Operand::Imm(spread(bits, n)),
            };
            let r = match (code, amount) {
                (Opcode::Andi, _) => self.b.and_b32(x, y),
                (Opcode::Ori, _) => self.b.or_b32(x, y),
                (Opcode::Xori, _) => self.b.xor_b32(x, y),
                (Opcode::Shli, Some(n)) => {
                    let moved = self.b.shl_b32(x, n);
                    self.b.and_b32(moved, spread(bits, -1 << n))
                }
                (Opcode::Shri, Some(n)) => {
                    let moved = self.b.shr_u32(x, n);
                    let moved = self.b.and_b32(moved, spread(bits, (1 << (i64::from(bits) - n)) - 1));
                    match unsigned || n == 0 {
                        true => moved,
                        false => self.sign_extended(moved, bits, n),
                    }
                }
                _ => self.sum(code == Opcode::Subi, x, y, bits),
            };
            all.push(r.into());
        }
        Some(self.keep(all))
    }

    /// The units of a conversion of bytes to pairs, or back, if they can be had without the elements; `count` elements.
    pub(super) fn converted(
        &mut self,
        op: Op,
        from: Units,
        types: (Scalar, Scalar),
        count: usize,
    ) -> Option<Units> {
        let unsigned = self.f.has_attr(op, keys::UNSIGNED);
        let mut all: SmallVec<[Operand; 32]> = SmallVec::new();
        let unit = |this: &Self, i: usize| this.units[from.start as usize + i.min(from.len() - 1)];
        match (self.f.opcode(op), types) {
            (Opcode::Exti, (Scalar::I8, Scalar::I16)) => {
                // Behind each byte a zero, or its sign.
                let pairs = if unsigned { [0x4140, 0x4342] } else { [0x9180, 0xb3a2] };
                for i in 0..count.div_ceil(2) {
                    let x = unit(self, i / 2);
                    all.push(self.b.prmt_b32(x, 0, pairs[i % 2]).into());
                }
            }
            (Opcode::Trunci, (Scalar::I16, Scalar::I8)) => {
                for i in 0..count.div_ceil(4) {
                    let (x, y) = (unit(self, 2 * i), unit(self, 2 * i + 1));
                    all.push(self.b.prmt_b32(x, y, 0x6420).into());
                }
            }
            // The f16 with the bits 0x6400 + n is 1024 + n. The sign bit is turned round first: n is 128 more than the number.
            (Opcode::Itof, (Scalar::I8, Scalar::F16)) => {
                let bytes: SmallVec<[Operand; 16]> = (0..count.div_ceil(4))
                    .map(|i| {
                        let x = unit(self, i);
                        if unsigned { x } else { self.b.xor_b32(x, 0x8080_8080_i64).into() }
                    })
                    .collect();
                let (high, off) = (0x6464_6464_i64, if unsigned { 0x6400_6400_i64 } else { 0x6480_6480 });
                let (high, off) = (self.b.imm(RegTy::B32, high), self.b.imm(RegTy::B32, off));
                for i in 0..count.div_ceil(2) {
                    let pair = self.b.prmt_b32(bytes[i / 2], high, [0x4140, 0x4342][i % 2]);
                    all.push(self.b.sub_rn_f16x2(pair, off).into());
                }
            }
            _ => return None,
        }
        Some(self.keep(all))
    }

    /// Elements of which `n` bits at the top are 0, with their sign there instead. The sign turned round and taken away borrows from no
    /// neighbour where the top bit is set before.
    fn sign_extended(&mut self, x: Reg, bits: u32, n: i64) -> Reg {
        let (top, sign) = (spread(bits, 1 << (bits - 1)), spread(bits, 1 << (i64::from(bits) - 1 - n)));
        let turned = self.b.xor_b32(x, sign);
        let guarded = self.b.or_b32(turned, top);
        let less = self.b.sub_u32(guarded, sign);
        self.b.xor_b32(less, top)
    }

    /// Sums or differences: of all bits but the top ones, which then neither carry nor borrow, and those by exclusive or.
    fn sum(&mut self, minus: bool, x: Operand, y: Operand, bits: u32) -> Reg {
        let top = spread(bits, 1 << (bits - 1));
        let rest = spread(bits, (1 << (bits - 1)) - 1);
        let low = self.b.fold_and(y, rest);
        let mixed = match y {
            Operand::Imm(n) => self.b.xor_b32(x, if minus { !n & 0xffff_ffff } else { n }),
            y => self.b.xor_b32(x, y),
        };
        let tops = self.b.and_b32(mixed, top);
        if !minus {
            let rest_of = self.b.and_b32(x, rest);
            let sum = self.b.add_u32(rest_of, low);
            return self.b.xor_b32(sum, tops);
        }
        let guarded = self.b.or_b32(x, top);
        let difference = self.b.sub_u32(guarded, low);
        // The guard is 1 where nothing was borrowed; the top bit of the difference is x - y - borrow.
        let tops = match y {
            Operand::Imm(_) => tops,
            _ => self.b.xor_b32(tops, top),
        };
        self.b.xor_b32(difference, tops)
    }
}
