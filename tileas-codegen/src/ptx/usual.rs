//! Writing an instruction of the usual kind: registers, integers, addresses in registers, lists of registers, labels, with
//! commas between them.
//!
//! Room for the whole instruction is found once, and pieces are copied by moves of a fixed size. What is unusual, or does not
//! fit, is left to [`super::write`], which writes everything; where both can, they write the same.

use super::Names;
use crate::nvvm::write::{Text, number};
use crate::nvvm::{Function, Kind, Look, Operand};
use cranelift_entity::EntityRef;

/// Room for an instruction; longer ones are unusual.
const ROOM: usize = 4096;

/// Puts the first `n` bytes of a piece at a place; the next place.
#[inline]
fn put<const N: usize>(room: &mut [u8], at: usize, piece: &[u8; N], n: usize) -> Option<usize> {
    *room.get_mut(at..)?.first_chunk_mut::<N>()? = *piece;
    Some(at + n)
}

/// An integer immediate in a short decimal form.
#[inline]
fn immediate(room: &mut [u8], at: usize, v: i64) -> Option<usize> {
    match v {
        0..=9 => put(room, at, &[b'0' + v as u8], 1),
        10..=65535 => {
            let (digits, n) = number(v as u32);
            put(room, at, &digits, n)
        }
        0xffff_ffff => put(room, at, b"0xffffffff", 10),
        _ => None,
    }
}

/// Appends an instruction with indentation, guard, semicolon and line end; whether it is of the usual kind. If not,
/// nothing is appended.
#[inline]
pub(super) fn push(out: &mut Text, func: &Function, names: &Names, look: Look<'_>) -> bool {
    match line(out.room(ROOM), func, names, look) {
        Some(len) => {
            out.advance(len);
            true
        }
        None => false,
    }
}

// Called once, where a call would cost as much as some instructions.
#[inline(always)]
fn line(room: &mut [u8], func: &Function, names: &Names, look: Look<'_>) -> Option<usize> {
    let Look { op, guard, operands, .. } = look;
    if !op.has_commas() || operands.len() != op.num_operands() {
        return None;
    }
    let head = op.head();
    let mut at = match guard.get() {
        None => put(room, 0, &head.bytes, usize::from(head.len))?,
        Some((p, negated)) => {
            let at = if negated { put(room, 0, b"    @!", 6)? } else { put(room, 0, b"    @", 5)? };
            let name = &names.names[p.index()];
            let at = put(room, at, &name.0, name.len())?;
            let at = put(room, at, b" ", 1)?;
            let (indented, n) = (&head.bytes, usize::from(head.len));
            // The head without its indentation.
            put(room, at, indented[crate::nvvm::INDENT..].first_chunk::<44>()?, n - crate::nvvm::INDENT)?
        }
    };
    let plain = op.is_plain();
    for (i, &operand) in operands.iter().enumerate() {
        let is_address = !plain && matches!(op.form().operands[i].kind, Kind::Addr(_));
        match operand {
            Operand::Reg(r) if is_address => {
                let name = &names.names[r.index()];
                at = put(room, at, b"[", 1)?;
                at = put(room, at, &name.0, name.len())?;
                at = put(room, at, b"], ", 3)?;
            }
            Operand::Reg(r) => {
                // With the comma.
                let name = &names.names[r.index()];
                at = put(room, at, &name.0, name.len() + 2)?;
            }
            Operand::Addr { base, offset } if is_address => {
                let name = &names.names[base.index()];
                at = put(room, at, b"[", 1)?;
                at = put(room, at, &name.0, name.len())?;
                if offset != 0 {
                    at = put(room, at, b"+-", if offset < 0 { 2 } else { 1 })?;
                    let (digits, n) = number(offset.unsigned_abs());
                    at = put(room, at, &digits, n)?;
                }
                at = put(room, at, b"], ", 3)?;
            }
            _ if is_address => return None,
            Operand::Imm(v) => {
                at = immediate(room, at, v)?;
                at = put(room, at, b", ", 2)?;
            }
            Operand::List(list) => {
                let items = func.list_items(list);
                at = put(room, at, b"{", 1)?;
                for &item in items {
                    let Operand::Reg(r) = item else { return None };
                    let name = &names.names[r.index()];
                    at = put(room, at, &name.0, name.len() + 2)?;
                }
                if !items.is_empty() {
                    at -= 2;
                }
                at = put(room, at, b"}, ", 3)?;
            }
            Operand::Block(bb) => {
                at = put(room, at, b"$L", 2)?;
                let (digits, n) = number(names.label[bb]);
                at = put(room, at, &digits, n)?;
                at = put(room, at, b", ", 2)?;
            }
            _ => return None,
        }
    }
    if !operands.is_empty() {
        at -= 2;
    }
    put(room, at, b";\n", 2)
}
