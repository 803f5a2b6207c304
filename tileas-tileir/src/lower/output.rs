//! What kernels print and assert.
//!
//! A `print` here has one tile at most: an operation that prints several becomes one for each, with the text up to it.

use super::{Done, Lowering};
use crate::error::Code;
use crate::module::OpRef;
use smallvec::SmallVec;
use tileas_codegen::ir::format::{self, Piece};
use tileas_codegen::ir::{self, AttrData, Opcode as Ir, keys};
use tileas_meta::tileir::{Key, Seg};

impl<'m> Lowering<'m, '_> {
    pub(super) fn print(&mut self, op: OpRef<'m>) -> Done {
        self.tokens(op);
        let text = op.text(Key::Text).unwrap_or("");
        let pieces = match format::pieces(text) {
            Ok(pieces) => pieces,
            Err(expected) => return Err(op.error(Code::E1642, format!("a format has {expected}"))),
        };
        let mut args = op.list(Seg::Args).iter();
        let (mut part, mut values) = (String::new(), SmallVec::<[ir::Value; 8]>::new());
        let mut has_tile = false;
        for piece in pieces {
            let spec = match piece {
                Piece::Text(text) => {
                    part.push_str(text);
                    continue;
                }
                Piece::Spec(spec) => spec,
            };
            let Some(&arg) = args.next() else {
                return Err(op.error(Code::E1642, "the format asks for more values than there are"));
            };
            let v = self.value(op, arg)?;
            let data = self.b.func().value_data(v);
            if data.elem().is_some_and(|e| e.is_float() != spec.is_float()) {
                let text = format!("`%{}` does not print {data}", spec.conversion);
                return Err(op.error(Code::E1642, text));
            }
            if data.is_tile() && std::mem::replace(&mut has_tile, true) {
                self.print_part(&mut part, &mut values);
            }
            part.push('%');
            part.push_str(spec.how);
            part.push(spec.conversion);
            values.push(v);
        }
        self.print_part(&mut part, &mut values);
        Ok(())
    }

    fn print_part(&mut self, text: &mut String, values: &mut SmallVec<[ir::Value; 8]>) {
        if !text.is_empty() {
            let format = AttrData::Str(std::mem::take(text));
            self.b.op(Ir::Print).operands(values).attr(keys::FORMAT, format).results(&[]).finish();
            values.clear();
        }
    }

    pub(super) fn assert(&mut self, op: OpRef<'m>) -> Done {
        let condition = self.named(op, Seg::Cond)?;
        let mut made = self.b.op(Ir::Assert).operand(condition);
        if let Some(message) = op.text(Key::Message).filter(|m| !m.is_empty()) {
            made = made.attr(keys::MESSAGE, AttrData::Str(message.replace('\0', " ")));
        }
        if let Some((file, line, _)) = Self::origin(op) {
            made = made.attr(keys::FILE, AttrData::Str(file)).int(keys::LINE, line.into());
        }
        made.results(&[]).finish();
        Ok(())
    }
}
