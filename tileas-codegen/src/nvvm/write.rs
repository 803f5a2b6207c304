//! Writing one instruction, for PTX and for the thread-level IR's own text.
//!
//! Everything is appended to one buffer; no instruction allocates. How registers and blocks are spelled is the
//! caller's ([`Spelling`]), the rest follows the form's row.

use crate::nvvm::{Bb, Function, Inst, Kind, LOCAL_AREA, Look, Module, Operand, Reg, TEXTS, Ty};

/// How registers and blocks are spelled.
pub(crate) trait Spelling {
    /// Writes a register; `def` at a position that writes it.
    fn reg(&self, out: &mut Text, func: &Function, reg: Reg, def: bool);
    /// Writes a register and a comma.
    #[inline]
    fn reg_comma(&self, out: &mut Text, func: &Function, reg: Reg, def: bool) {
        self.reg(out, func, reg, def);
        out.text(", ");
    }
    /// Writes a block label.
    fn block(&self, out: &mut Text, bb: Bb);
}

/// Text under construction. There is room behind the text, so that short pieces are copied by moves of a fixed size, of
/// which only a part counts; bytes and not a `String`, since such moves may cut characters. The whole is checked to be
/// UTF-8 once, at the end.
#[derive(Default)]
pub(crate) struct Text {
    bytes: Vec<u8>,
    len: usize,
}

impl Text {
    /// Forgets the text, keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Appends the first `n` bytes of a piece.
    #[inline]
    pub fn fixed<const N: usize>(&mut self, piece: &[u8; N], n: usize) {
        debug_assert!(n <= N, "a piece is longer than its memory");
        match self.bytes.get_mut(self.len..).and_then(|room| room.first_chunk_mut::<N>()) {
            Some(room) => *room = *piece,
            None => self.grow(piece),
        }
        self.len += n;
    }

    /// At least `n` bytes behind the text, to be written to; then [`Text::advance`].
    #[inline]
    pub fn room(&mut self, n: usize) -> &mut [u8] {
        if self.bytes.len() - self.len < n {
            self.bytes.resize(2 * self.bytes.len() + n, 0);
        }
        &mut self.bytes[self.len..]
    }

    /// Appends the `n` bytes that were written behind the text.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        self.len += n;
    }

    /// Takes the last `n` bytes back.
    #[inline]
    pub fn back(&mut self, n: usize) {
        self.len -= n;
    }

    /// Appends a string.
    #[inline]
    pub fn text(&mut self, text: &str) {
        match self.bytes.get_mut(self.len..self.len + text.len()) {
            Some(room) => room.copy_from_slice(text.as_bytes()),
            None => self.grow(text.as_bytes()),
        }
        self.len += text.len();
    }

    /// Appends a byte.
    #[inline]
    pub fn push(&mut self, byte: u8) {
        self.fixed(&[byte], 1);
    }

    /// Makes room and puts a piece behind the text.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, piece: &[u8]) {
        self.bytes.resize((2 * self.bytes.len()).max(self.len + piece.len()).max(4096), 0);
        self.bytes[self.len..self.len + piece.len()].copy_from_slice(piece);
    }
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        self.text(s);
        Ok(())
    }
}

/// The digits of a decimal number, at the front, and how many there are.
#[inline]
pub(crate) fn number(mut v: u32) -> ([u8; 10], usize) {
    const MOST: usize = 10;
    let mut buf = [0u8; 2 * MOST];
    let mut at = MOST;
    loop {
        at -= 1;
        buf[at] = b'0' + (v % 10) as u8;
        v /= 10;
        if v == 0 {
            break;
        }
    }
    let mut digits = [0; MOST];
    digits.copy_from_slice(&buf[at..at + MOST]);
    (digits, MOST - at)
}

/// Appends a decimal number.
#[inline]
pub(crate) fn push_u32(out: &mut Text, v: u32) {
    let (digits, n) = number(v);
    out.fixed(&digits, n);
}

fn push_hex(out: &mut Text, v: u64, digits: u32) {
    let shown = digits.max((64 - v.leading_zeros()).div_ceil(4)).max(1) as usize;
    let mut buf = [0u8; 16];
    for (i, b) in buf[..shown].iter_mut().rev().enumerate() {
        *b = b"0123456789abcdef"[(v >> (4 * i)) as usize & 15];
    }
    out.fixed(&buf, shown);
}

/// Appends an integer immediate: decimal while short, hexadecimal beyond.
pub(crate) fn push_imm(out: &mut Text, v: i64) {
    if (0..65536).contains(&v) {
        push_u32(out, v as u32);
    } else if (-65536..0).contains(&v) {
        out.push(b'-');
        push_u32(out, v.unsigned_abs() as u32);
    } else if v < 0 && v >= i64::from(i32::MIN) {
        out.push(b'-');
        out.text("0x");
        push_hex(out, v.unsigned_abs(), 1);
    } else {
        out.text("0x");
        push_hex(out, v as u64, 1);
    }
}

fn push_offset(out: &mut Text, offset: i32) {
    if offset > 0 {
        out.push(b'+');
        push_u32(out, offset as u32);
    } else if offset < 0 {
        out.text("+-");
        push_u32(out, offset.unsigned_abs());
    }
}

#[inline]
fn push_scalar(out: &mut Text, func: &Function, s: &impl Spelling, operand: Operand, ty: Ty, def: bool) {
    match operand {
        Operand::Reg(r) => s.reg(out, func, r, def),
        Operand::Imm(v) => push_imm(out, v),
        Operand::F32(bits) => {
            out.text(if ty == Ty::F32 { "0f" } else { "0x" });
            push_hex(out, u64::from(bits), 8);
        }
        // The verifier refuses the rest here; the printer shows it all the same.
        _ => push_other(out, func, None, s, operand),
    }
}

fn push_other(out: &mut Text, func: &Function, module: Option<&Module>, s: &impl Spelling, operand: Operand) {
    match operand {
        Operand::Special(sp) => out.text(sp.as_str()),
        Operand::Sym(sym) | Operand::SymAddr { sym, .. } => {
            match module.and_then(|m| m.symbols.get(sym)) {
                Some(data) => out.text(&data.name),
                None => {
                    out.text("sym");
                    push_u32(out, sym.as_u32());
                }
            }
            if let Operand::SymAddr { offset, .. } = operand {
                push_offset(out, offset);
            }
        }
        Operand::Param(param) | Operand::ParamAddr { param, .. } => {
            match func.params.get(param) {
                Some(data) => out.text(&data.name),
                None => {
                    out.text("param");
                    push_u32(out, param.as_u32());
                }
            }
            if let Operand::ParamAddr { offset, .. } = operand {
                push_offset(out, offset);
            }
        }
        Operand::Addr { base, offset } => {
            s.reg(out, func, base, false);
            push_offset(out, offset);
        }
        Operand::Local(offset) => {
            out.text(LOCAL_AREA);
            push_offset(out, offset as i32);
        }
        Operand::Text(n) => {
            out.text(&func.name);
            out.text(TEXTS);
            push_u32(out, n);
        }
        Operand::Block(bb) => s.block(out, bb),
        Operand::Reg(r) => s.reg(out, func, r, false),
        Operand::Imm(v) => push_imm(out, v),
        Operand::F32(bits) => {
            out.text("0f");
            push_hex(out, u64::from(bits), 8);
        }
        Operand::List(list) => push_list(out, func, s, list, Ty::X32, false),
    }
}

fn push_list(out: &mut Text, func: &Function, s: &impl Spelling, list: crate::nvvm::List, ty: Ty, def: bool) {
    out.push(b'{');
    let items = func.list_items(list);
    for &item in items {
        match item {
            Operand::Reg(r) => s.reg_comma(out, func, r, def),
            Operand::List(_) => out.text("?, "), // never nested; refused by the verifier
            item => {
                push_scalar(out, func, s, item, ty, def);
                out.text(", ");
            }
        }
    }
    if !items.is_empty() {
        out.back(2);
    }
    out.push(b'}');
}

/// Appends indentation, guard, mnemonic and operands, without the semicolon.
#[inline]
pub(crate) fn push_inst(out: &mut Text, module: &Module, func: &Function, s: &impl Spelling, inst: Inst) {
    let Look { op, guard, operands, .. } = func.look(inst);
    out.text("    ");
    if let Some((p, negated)) = guard.get() {
        out.text(if negated { "@!" } else { "@" });
        s.reg(out, func, p, false);
        out.push(b' ');
    }
    out.text(op.form().head);
    let form = op.form();
    for (i, ((&operand, class), before)) in operands.iter().zip(form.operands).zip(form.syntax).enumerate() {
        if i > 0 {
            push_literal(out, before);
        }
        match (operand, class.kind) {
            (Operand::Reg(r), Kind::Reg { .. }) => s.reg(out, func, r, class.def),
            (_, Kind::Reg { ty, .. }) => push_scalar(out, func, s, operand, ty, class.def),
            (Operand::List(list), Kind::Vec { ty, .. }) => push_list(out, func, s, list, ty, class.def),
            (_, Kind::Addr(_)) => {
                out.push(b'[');
                push_other(out, func, Some(module), s, operand);
                out.push(b']');
            }
            _ => push_other(out, func, Some(module), s, operand),
        }
    }
    if operands.len() == form.operands.len() {
        if !operands.is_empty() {
            push_literal(out, form.syntax[operands.len()]);
        }
    } else {
        // More operands than the form has; refused by the verifier.
        for &operand in operands.iter().skip(form.operands.len()) {
            out.text(" ?");
            push_other(out, func, Some(module), s, operand);
        }
    }
}

/// Text between operands: nearly always a comma, which as a constant is copied without a call.
#[inline]
fn push_literal(out: &mut Text, text: &str) {
    match text {
        ", " => out.text(", "),
        "" => {}
        other => out.text(other),
    }
}

/// Appends a comment's text: one line, ASCII.
pub(crate) fn push_comment(out: &mut Text, text: &str) {
    for c in text.chars() {
        out.push(match c {
            ' '..='~' => c as u8,
            c if c.is_ascii() => b' ',
            _ => b'?',
        });
    }
}
