//! Functions of the driver that kernels call: `vprintf` and `__assertfail`.
//!
//! What a CTA prints is kept with global memory, CTA by CTA, so that the texts of several do not mix. Source: PTX Writer's Guide to
//! Interoperability, System Calls.

use super::cx::{Cx, lanes};
use super::{Flow, Trap, X};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::num::printf::{Piece, pieces};
use crate::parse::ast::Operand;

/// Most bytes of a format or message.
const MOST_TEXT: u64 = 1 << 16;

impl Cx<'_> {
    /// The text at a generic address, to its NUL.
    fn c_text(&mut self, address: u64, lane: usize) -> X<Vec<u8>> {
        let mut out = Vec::new();
        for at in address..address + MOST_TEXT {
            let mut byte = [0];
            self.load(self.generic(at), &mut byte, lane, false)?;
            if byte[0] == 0 {
                return Ok(out);
            }
            out.push(byte[0]);
        }
        Err(Trap::new("bounds", format!("a text of more than {MOST_TEXT} bytes")))
    }

    fn vprintf(&mut self, format: u64, values: u64, lane: usize) -> X<u32> {
        let format = self.c_text(format, lane)?;
        let pieces = pieces(&format).map_err(|e| Trap::new("printf", e))?;
        let (mut text, mut at, mut count) = (Vec::new(), values, 0);
        for piece in pieces {
            match piece {
                Piece::Text(t) => text.extend(t),
                Piece::Value(spec) => {
                    let n = spec.bytes();
                    at = at.next_multiple_of(n.into());
                    let mut bits = [0; 8];
                    self.load(self.generic(at), &mut bits[..n as usize], lane, false)?;
                    at += u64::from(n);
                    text.extend(spec.text(u64::from_le_bytes(bits)));
                    count += 1;
                }
            }
        }
        self.mem.print(self.cta.linear, &text);
        Ok(count)
    }
}

/// `call` of a function by name: its result, if it has one, the name, the arguments.
fn call(b: &mut Build<'_>) -> R<Exec> {
    let name = |k: usize| match b.inst.operands.get(k) {
        Some(Operand::Name(n)) => n.as_str(),
        _ => "",
    };
    b.visible();
    if name(1) == "vprintf" {
        b.count(4)?;
        let (d, format, values) = (b.dst(0, 4)?, b.src(2, 8)?, b.src(3, 8)?);
        return Ok(Box::new(move |cx, m| {
            for l in lanes(m) {
                let (format, values) = (cx.w.u64(format, l), cx.w.u64(values, l));
                let n = cx.vprintf(format, values, l)?;
                cx.w.set32(d, l, n);
            }
            Ok(Flow::Next)
        }));
    }
    if name(0) == "__assertfail" {
        b.count(6)?;
        let (message, file, line) = (b.src(1, 8)?, b.src(2, 8)?, b.src(3, 4)?);
        let function = b.src(4, 8)?;
        b.src(5, 8)?;
        return Ok(Box::new(move |cx, m| {
            let Some(l) = lanes(m).next() else { return Ok(Flow::Next) };
            let [message, file, function] = [message, file, function].map(|c| cx.w.u64(c, l));
            let [message, file, function] =
                [cx.c_text(message, l)?, cx.c_text(file, l)?, cx.c_text(function, l)?]
                    .map(|t| String::from_utf8_lossy(&t).into_owned());
            let (line, [x, y, z]) = (cx.w.u32(line, l), cx.cta.id);
            let thread = 32 * cx.w.id + l as u32;
            let text = format!(
                "{file}:{line}: {function}: block: [{x},{y},{z}], thread: [{thread},0,0] Assertion `{message}` failed."
            );
            Err(Trap::new("assert", text))
        }));
    }
    Err(b.error("P003", "only vprintf and __assertfail can be called"))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[row("call.uni?", call)];
