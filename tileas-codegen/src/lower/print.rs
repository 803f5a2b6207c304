//! Output of kernels: `print` and `assert`.
//!
//! Both call functions that the driver has for each program. Source: CUDA C++ Programming Guide, Formatted Output and Assertion; the calls
//! as PTX Writer's Guide to Interoperability, System Calls, has them.

use super::{Lower, TileVal, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::{Op, Opcode, Scalar, Value, keys};
use crate::layout::Scope;
use crate::nvvm::{Operand, PtxOp, Reg, RegTy};
use crate::storage::printing::{self, Part, Printed};
use crate::storage::scratch::threads;

/// What the calls of one `print` share.
struct Printer {
    /// Base and offset of its memory.
    base: Reg,
    at: i32,
    /// The thread that calls.
    first: Reg,
}

impl Lower<'_> {
    /// The generic address of a text.
    fn text(&mut self, text: &str) -> Reg {
        let texts = &mut self.b.func.texts;
        let n = texts.iter().position(|t| t == text).unwrap_or_else(|| {
            texts.push(text.to_owned());
            texts.len() - 1
        });
        let address = self.b.reg(RegTy::B64);
        self.b.emit(PtxOp::MovGlobalU64, &[address.into(), Operand::Text(n as u32)]);
        self.b.cvta_global_u64(address)
    }

    /// Calls `vprintf`, where a guard holds if there is one.
    fn vprintf(&mut self, format: &str, values: Operand, guard: Option<Reg>) {
        let format = self.text(format);
        let printed = self.b.reg(RegTy::B32);
        if let Some(p) = guard {
            self.b.on(p);
        }
        self.b.emit(PtxOp::CallVprintf, &[printed.into(), format.into(), values]);
    }

    /// An element as `vprintf` takes it.
    fn printable(&mut self, x: Operand, elem: Scalar, unsigned: bool) -> Reg {
        match elem {
            Scalar::I8 | Scalar::I16 if unsigned => {
                let x = self.b.fold_and(x, (1_i64 << elem.bits()) - 1);
                self.b.as_reg(RegTy::B32, x)
            }
            Scalar::I64 | Scalar::F64 => self.b.as_reg(RegTy::B64, x),
            Scalar::I1 => {
                let p = self.b.as_reg(RegTy::Pred, x);
                self.b.selp_b32(1, 0, p)
            }
            e if e.is_float() => {
                let x = self.b.as_reg(RegTy::F32, x);
                self.b.cvt_f64_f32(x)
            }
            _ => self.b.as_reg(RegTy::B32, x),
        }
    }

    /// `print`: the elements of its tile go to memory, and one thread calls.
    pub(super) fn print(&mut self, op: Op) -> CodegenResult<()> {
        let (parts, bytes) = printing::parts(self.f, op);
        if self.agent.elect {
            return self.err(Code::E0803, op, "an agent of one lane does not print");
        }
        let Some(thread) = self.agent.thread else {
            return self.err(Code::E0803, op, "belongs to no agent");
        };
        // Only for a tile all threads meet; texts alone need no memory.
        let tile = parts.iter().any(|p| matches!(p, Part::Tile(_)));
        let scope = if tile { Scope::Agent } else { Scope::Warp };
        let (base, at) = if bytes == 0 { (thread, 0) } else { self.scratch(op, bytes, scope)? };
        let first = self.b.setp_eq_u32(thread, 0);
        let printer = Printer { base, at, first };
        for part in &parts {
            match part {
                Part::Call { format, values } => {
                    for &(v, offset, unsigned) in values {
                        let Some(elem) = self.f.value_data(v).elem() else { continue };
                        let x = self.scalar(op, v)?;
                        let x = self.printable(x, elem, unsigned);
                        self.b.on(first);
                        let to = Operand::addr(base, at + offset as i32);
                        self.store_printable(to, x, printing::value_bytes(elem));
                    }
                    let end = self.b.block();
                    self.b.br_on_not(first, end);
                    let from = match values.first() {
                        Some(&(_, offset, _)) => self.generic(&printer, offset).into(),
                        None => Operand::Imm(0),
                    };
                    self.vprintf(format, from, None);
                    self.b.place(end);
                    self.b.bar_warp_sync(0xffff_ffffu32);
                }
                Part::Tile(tile) => self.print_tile(op, &printer, tile)?,
            }
        }
        Ok(())
    }

    fn store_printable(&mut self, to: Operand, x: Reg, bytes: u32) {
        let form = if bytes == 8 { PtxOp::StSharedB64 } else { PtxOp::StSharedB32 };
        self.b.emit(form, &[to, x.into()]);
    }

    /// The generic address of a byte of the memory.
    fn generic(&mut self, printer: &Printer, offset: u32) -> Reg {
        let address = self.b.add_u32(printer.base, printer.at + offset as i32);
        let address = self.b.cvt_u64_u32(address);
        self.b.cvta_shared_u64(address)
    }

    fn print_tile(&mut self, op: Op, printer: &Printer, tile: &Printed) -> CodegenResult<()> {
        let v: Value = tile.value;
        let t: TileVal = self.tile(op, v)?;
        let Some(elem) = self.f.value_data(v).elem() else { return self.err(Code::E0803, op, "malformed") };
        let map = self.linear(op, t.layout, self.f.value_data(v).dims().unwrap_or(&[]))?;
        let units = self.elements(&t);
        let copies = map.replicas();
        let guard = self.copies_guard((copies.lanes, copies.warps));
        let own = self.by_thread(&threads(&map));
        let registers = 1 << map.register().len();
        for round in 0..tile.elements / tile.round {
            // A round is the elements that have its number above the bits of places in it.
            let bits = tile.round.trailing_zeros();
            let high = self.b.fold_shr(own, bits);
            let low = self.b.fold_and(own, i64::from(tile.round - 1));
            for register in 0..registers {
                let element = map.element(register, 0, 0);
                let mut guard = guard;
                match high {
                    Operand::Imm(h) if h as u32 != element >> bits ^ round => continue,
                    Operand::Imm(_) => {}
                    high => {
                        let high = self.b.as_reg(RegTy::B32, high);
                        let here = self.b.setp_eq_u32(high, element >> bits ^ round);
                        guard = Some(guard.map_or(here, |g| self.b.and_pred(g, here)));
                    }
                }
                let x = self.units[units.index(if t.splat { 0 } else { register as usize })];
                let x = self.printable(x, elem, tile.unsigned);
                let place = self.b.fold_xor(low, i64::from(element & (tile.round - 1)));
                let place = self.b.fold_mul(place, tile.step);
                let to = self.b.fold_add(place, printer.base);
                let to = self.b.as_reg(RegTy::B32, to);
                if let Some(p) = guard {
                    self.b.on(p);
                }
                self.store_printable(Operand::addr(to, printer.at + tile.at as i32), x, tile.step);
            }
            self.agent_barrier(op)?;
            self.print_round(printer, tile, round);
            if (round + 1) * tile.round < tile.elements {
                self.agent_barrier(op)?;
            }
        }
        Ok(())
    }

    /// The first thread prints what is in memory.
    fn print_round(&mut self, printer: &Printer, tile: &Printed, round: u32) {
        let end = self.b.block();
        self.b.br_on_not(printer.first, end);
        let (from, to) = (round * tile.round, (round + 1) * tile.round);
        let memory = self.generic(printer, tile.at);
        let element = self.b.imm(RegTy::B32, from);
        let body = self.b.block();
        self.b.place(body);
        let later = self.b.setp_ne_u32(element, 0);
        self.vprintf(", ", Operand::Imm(0), Some(later));
        for &list in &tile.lists {
            let inside = self.b.and_b32(element, list - 1);
            let opens = self.b.setp_eq_u32(inside, 0);
            self.vprintf("[", Operand::Imm(0), Some(opens));
        }
        let place = self.b.sub_u32(element, from);
        let place = self.b.mul_wide_u32(place, tile.step);
        let values = self.b.add_s64(memory, place);
        self.vprintf(&tile.format, values.into(), None);
        self.b.add_u32_to(element, element, tile.group);
        for &list in tile.lists.iter().rev() {
            let inside = self.b.and_b32(element, list - 1);
            let closes = self.b.setp_eq_u32(inside, 0);
            self.vprintf("]", Operand::Imm(0), Some(closes));
        }
        let again = self.b.setp_lt_u32(element, to);
        self.b.br_if(again, false, body, end);
        self.b.place(end);
        self.b.bar_warp_sync(0xffff_ffffu32);
    }

    /// `assert`: each thread looks at its elements.
    pub(super) fn assert(&mut self, op: Op) -> CodegenResult<()> {
        let Some(&v) = self.f.operands(op).first() else { return self.err(Code::E0803, op, "malformed") };
        // What was printed before is printed: the thread that does it is here as well.
        if self.agent.scratch.is_some_and(|s| s.bytes > 0)
            && self.f.ops().any(|o| self.f.opcode(o) == Opcode::Print)
        {
            self.agent_barrier(op)?;
        }
        let mut holds: Option<Operand> = None;
        let mut own = None;
        match self.vals[v] {
            Val::Tile(_) => {
                let t = self.tile(op, v)?;
                let units = self.elements(&t);
                if !t.splat {
                    // Threads that hold a copy may hold nothing.
                    let map = self.linear(op, t.layout, self.f.value_data(v).dims().unwrap_or(&[]))?;
                    let copies = map.replicas();
                    own = self.copies_guard((copies.lanes, copies.warps));
                }
                for i in units.range() {
                    let x = self.units[i];
                    holds = Some(match (holds, x) {
                        (None, x) | (Some(Operand::Imm(1)), x) => x,
                        (Some(Operand::Imm(0)), _) | (_, Operand::Imm(0)) => Operand::Imm(0),
                        (Some(all), Operand::Imm(_)) => all,
                        (Some(all), x) => {
                            let all = self.b.as_reg(RegTy::Pred, all);
                            let x = self.b.as_reg(RegTy::Pred, x);
                            self.b.and_pred(all, x).into()
                        }
                    });
                }
            }
            _ => holds = Some(self.scalar(op, v)?),
        }
        let Some(holds) = holds.filter(|&h| h != Operand::Imm(1)) else { return Ok(()) };
        let holds = self.b.as_reg(RegTy::Pred, holds);
        let message = self.f.attr_str(op, keys::MESSAGE).unwrap_or("assertion").to_owned();
        let file = self.f.attr_str(op, keys::FILE).unwrap_or("kernel").to_owned();
        let line = self.f.attr_int(op, keys::LINE).unwrap_or(0);
        let name = self.f.name.clone();
        let end = self.b.block();
        if let Some(own) = own {
            self.b.br_on_not(own, end);
        }
        self.b.br_on(holds, end);
        let [message, file, name] = [&message, &file, &name].map(|t| self.text(t));
        let operands = [message.into(), file.into(), Operand::Imm(line), name.into(), Operand::Imm(1)];
        self.b.emit(PtxOp::CallAssertfail, &operands);
        self.b.place(end);
        self.b.bar_warp_sync(0xffff_ffffu32);
        Ok(())
    }
}
