//! A small interpreter of thread-level functions, for one thread: what a function stores to global memory.

use std::collections::HashMap;
use tileas_codegen::nvvm::{Function, Inst, Operand, PtxOp, Reg, RegTy};

/// The stores of a run: address and value. Ends at `ret` or after `most` of them.
pub fn stores(f: &Function, most: usize) -> Vec<(u64, u64)> {
    let mut m =
        Machine { f, regs: HashMap::new(), local: HashMap::new(), shared: HashMap::new(), out: Vec::new() };
    let mut bb = f.layout()[0];
    'blocks: loop {
        for inst in f.insts(bb) {
            if m.out.len() >= most {
                return m.out;
            }
            if let Some((p, negated)) = f.guard(inst).get()
                && (m.reg(p) != 0) == negated
            {
                continue;
            }
            match (f.op(inst), f.operands(inst)) {
                (PtxOp::Bra, [Operand::Block(t)]) => {
                    bb = *t;
                    continue 'blocks;
                }
                (PtxOp::Ret, _) => return m.out,
                _ => m.step(inst),
            }
        }
        panic!("{bb} falls off its end");
    }
}

struct Machine<'a> {
    f: &'a Function,
    regs: HashMap<Reg, u64>,
    local: HashMap<u32, u64>,
    shared: HashMap<u64, u64>,
    out: Vec<(u64, u64)>,
}

impl Machine<'_> {
    fn reg(&self, r: Reg) -> u64 {
        self.regs.get(&r).copied().unwrap_or(0)
    }

    fn value(&self, o: Operand) -> u64 {
        match o {
            Operand::Reg(r) => self.reg(r),
            Operand::Imm(v) => v as u64,
            Operand::F32(bits) => u64::from(bits),
            Operand::Special(_) => 5,
            Operand::Sym(_) => 0,
            Operand::Addr { base, offset } => self.reg(base).wrapping_add(offset as i64 as u64),
            other => panic!("{other:?} has no value"),
        }
    }

    fn set(&mut self, r: Reg, v: u64) {
        let v = match self.f.ty(r) {
            RegTy::Pred => v & 1,
            RegTy::B16 => v & 0xffff,
            RegTy::B32 | RegTy::F32 => v & 0xffff_ffff,
            RegTy::B64 => v,
        };
        self.regs.insert(r, v);
    }

    fn load_shared(&self, at: u64) -> u64 {
        let at = at & 0xffff_ffff;
        self.shared.get(&at).copied().unwrap_or((at ^ 0x9e37).wrapping_mul(0x85eb_ca6b) & 0xffff_ffff)
    }

    fn step(&mut self, inst: Inst) {
        let ops = self.f.operands(inst);
        let v = |m: &Machine, i: usize| m.value(ops[i]);
        let list = |i: usize| match ops[i] {
            Operand::List(l) => self.f.list_items(l).to_vec(),
            other => panic!("{other:?} is no list"),
        };
        let local = |i: usize| match ops[i] {
            Operand::Local(at) => at,
            other => panic!("{other:?} is not local"),
        };
        use PtxOp::*;
        let result = match self.f.op(inst) {
            MovB16 | MovB32 | MovB64 | MovF32 | MovSpecialU32 | MovSharedU32 => v(self, 1),
            AddU16 | AddU32 | AddU64 => v(self, 1).wrapping_add(v(self, 2)),
            XorB32 => v(self, 1) ^ v(self, 2),
            SetpLtU32 => {
                u64::from(v(self, 1) as u32 <= v(self, 2) as u32 && v(self, 1) as u32 != v(self, 2) as u32)
            }
            MulWideU32 => (v(self, 1) & 0xffff_ffff) * (v(self, 2) & 0xffff_ffff),
            MadLoU32 => v(self, 1).wrapping_mul(v(self, 2)).wrapping_add(v(self, 3)),
            PackB32B16 => list(1).iter().rev().fold(0, |all, &x| all << 16 | self.value(x)),
            LdSharedB16 | LdSharedB32 | LdSharedF32 => self.load_shared(v(self, 1)),
            LdLocalB16 | LdLocalB32 | LdLocalF32 | LdLocalB64 => {
                *self.local.get(&local(1)).unwrap_or_else(|| panic!("{inst} reads local memory nobody wrote"))
            }
            StLocalB16 | StLocalB32 | StLocalF32 | StLocalB64 => {
                let value = v(self, 1);
                self.local.insert(local(0), value);
                return;
            }
            StSharedB16 | StSharedB32 | StSharedF32 => {
                let (at, value) = (v(self, 0) & 0xffff_ffff, v(self, 1));
                self.shared.insert(at, value);
                return;
            }
            StGlobalB32 | StGlobalB64 => {
                let pair = (v(self, 0), v(self, 1));
                self.out.push(pair);
                return;
            }
            UnpackB64B32 => {
                let (items, x) = (list(0), v(self, 1));
                for (i, d) in items.into_iter().enumerate() {
                    self.set(d.reg().expect("a register"), x >> (32 * i));
                }
                return;
            }
            LdSharedV4B32 | LdLocalV4B32 | Tcgen05Ld32x32bX16 => {
                let op = self.f.op(inst);
                for (i, d) in list(0).into_iter().enumerate() {
                    let i = i as u64;
                    let x = match op {
                        LdSharedV4B32 => self.load_shared(v(self, 1) + 4 * i),
                        LdLocalV4B32 => *self.local.get(&(local(1) + 4 * i as u32)).expect("written before"),
                        _ => v(self, 1).wrapping_mul(31).wrapping_add(i * i),
                    };
                    self.set(d.reg().expect("a register"), x);
                }
                return;
            }
            StSharedV4B32 | StLocalV4B32 => {
                for (i, s) in list(1).into_iter().enumerate() {
                    let x = self.value(s);
                    if self.f.op(inst) == StLocalV4B32 {
                        self.local.insert(local(0) + 4 * i as u32, x);
                    } else {
                        let at = (v(self, 0) + 4 * i as u64) & 0xffff_ffff;
                        self.shared.insert(at, x);
                    }
                }
                return;
            }
            Tcgen05WaitLd => return,
            other => panic!("{other} is not interpreted"),
        };
        let Some(d) = ops[0].reg() else { panic!("{inst} has no result") };
        self.set(d, result);
    }
}
