//! The order in which the tiles of a result are taken, as arithmetic.
//!
//! In: a materialised kernel. Out: the same with each `tile_order` written as quotients, remainders and choices of scalars, or nothing where it has none.
//! Until here it is one op: that different indices give different tiles could not be read from the arithmetic, and is why what iterations store is apart.
//! All agents compute it alike, once for a tile. Guarantee: each index below `rows` · `columns` gives another number below it. Cost: linear in ops, and
//! some 12 ops for each doubling of a square's side.

use crate::ir::opcodes::keys;
use crate::ir::{AttrData, Function, Op, Opcode, Scalar, Type, Value};
use smallvec::SmallVec;

/// Writes orders of tiles as arithmetic; `None`: there are none.
pub fn write_out(func: &Function) -> Option<Function> {
    let orders: SmallVec<[Op; 4]> = func.ops().filter(|&op| func.opcode(op) == Opcode::TileOrder).collect();
    if orders.is_empty() {
        return None;
    }
    let mut out = func.copy_in(None);
    let mut made: SmallVec<[(Value, Value); 4]> = SmallVec::new();
    for op in orders {
        let (Some(result), &[index, rows, columns]) = (out.result(op), out.operands(op)) else { continue };
        let Some((name, list)) = func.attr_call(op, keys::ORDER) else { continue };
        let (side, ty) = (list.first().copied().unwrap_or(1), out.value_type(result));
        let mut w = Writer { func: &mut out, at: op, ty };
        let v = match name {
            "rows" => index,
            "grouped" => w.grouped(index, rows, columns, side),
            _ => w.hilbert(index, rows, columns, side),
        };
        out.remove_op(op);
        if let (Some(name), None) = (out.value_sym(result), out.value_sym(v)) {
            out.set_value_sym(v, name);
        }
        made.push((result, v));
    }
    for op in out.all_ops() {
        for n in 0..out.operands(op).len() {
            let mut v = out.operands(op)[n];
            // The place of one may be the number of another.
            while let Some(&(_, to)) = made.iter().find(|m| m.0 == v) {
                v = to;
            }
            out.set_operand(op, n, v);
        }
    }
    Some(out)
}

struct Writer<'a> {
    func: &'a mut Function,
    at: Op,
    ty: Type,
}

impl Writer<'_> {
    fn put(&mut self, opcode: Opcode, operands: &[Value], ty: Type) -> Value {
        let segments: SmallVec<[u32; 3]> = SmallVec::from_elem(1, operands.len());
        let op = self.func.make_op(opcode, operands, &segments, &[ty], self.func.op_loc(self.at));
        self.func.insert_before(self.at, op);
        self.func.results(op)[0]
    }

    fn of(&mut self, opcode: Opcode, a: Value, b: Value) -> Value {
        self.put(opcode, &[a, b], self.ty)
    }

    fn int(&mut self, n: i64) -> Value {
        let v = self.put(Opcode::Constant, &[], self.ty);
        if let Some(op) = self.func.defining_op(v) {
            self.func.set_int(op, keys::VALUE, n);
        }
        v
    }

    fn by(&mut self, opcode: Opcode, a: Value, n: i64) -> Value {
        let n = self.int(n);
        self.of(opcode, a, n)
    }

    fn equal(&mut self, a: Value, b: Value) -> Value {
        let truth = self.func.scalar(Scalar::I1);
        let v = self.put(Opcode::Cmpi, &[a, b], truth);
        let eq = AttrData::Name(self.func.intern_symbol("eq"));
        if let Some(op) = self.func.defining_op(v) {
            self.func.set_attr(op, keys::PREDICATE, eq);
        }
        v
    }

    fn choose(&mut self, c: Value, a: Value, b: Value) -> Value {
        self.put(Opcode::Select, &[c, a, b], self.ty)
    }

    /// The band of `side` rows that an index is in: its first row, its height, and the index in it.
    fn band(&mut self, index: Value, rows: Value, columns: Value, side: i64) -> [Value; 3] {
        let whole = self.by(Opcode::Muli, columns, side);
        // Without columns there is no index, but a quotient.
        let whole = self.by(Opcode::Maxi, whole, 1);
        let band = self.of(Opcode::Divi, index, whole);
        let first = self.by(Opcode::Muli, band, side);
        let below = self.of(Opcode::Subi, rows, first);
        let height = self.by(Opcode::Mini, below, side);
        let height = self.by(Opcode::Maxi, height, 1);
        let rest = self.of(Opcode::Remi, index, whole);
        [first, height, rest]
    }

    fn number(&mut self, row: Value, column: Value, columns: Value) -> Value {
        let before = self.of(Opcode::Muli, row, columns);
        self.of(Opcode::Addi, before, column)
    }

    fn grouped(&mut self, index: Value, rows: Value, columns: Value, side: i64) -> Value {
        let [first, height, rest] = self.band(index, rows, columns, side);
        let (row, column) = (self.of(Opcode::Remi, rest, height), self.of(Opcode::Divi, rest, height));
        let row = self.of(Opcode::Addi, first, row);
        self.number(row, column, columns)
    }

    fn hilbert(&mut self, index: Value, rows: Value, columns: Value, side: i64) -> Value {
        let [first, height, rest] = self.band(index, rows, columns, side);
        let square = self.by(Opcode::Muli, height, side);
        let nth = self.of(Opcode::Divi, rest, square);
        let begins = self.by(Opcode::Muli, nth, side);
        let rest = self.of(Opcode::Remi, rest, square);
        let left = self.of(Opcode::Subi, columns, begins);
        let width = self.by(Opcode::Mini, left, side);
        // What is no whole square is taken column by column.
        let (row, column) = (self.of(Opcode::Remi, rest, height), self.of(Opcode::Divi, rest, height));
        let area = self.of(Opcode::Muli, height, width);
        let full = self.int(side * side);
        let full = self.equal(area, full);
        let (x, y) = self.curve(rest, side);
        let (row, column) = (self.choose(full, y, row), self.choose(full, x, column));
        let (row, column) = (self.of(Opcode::Addi, first, row), self.of(Opcode::Addi, begins, column));
        self.number(row, column, columns)
    }

    /// Column and row of step `t` on Hilbert's curve through a square, from its first column to its last. The two lowest bits of what is left say which
    /// quarter of the square made so far this is a quarter of, and that is turned to fit.
    fn curve(&mut self, mut t: Value, side: i64) -> (Value, Value) {
        let zero = self.int(0);
        let (mut x, mut y, mut made) = (zero, zero, 1);
        while made < side {
            let high = self.by(Opcode::Shri, t, 1);
            let right = self.by(Opcode::Andi, high, 1);
            let odd = self.of(Opcode::Xori, t, right);
            let down = self.by(Opcode::Andi, odd, 1);
            // In the upper quarters rows and columns change places, in the right one mirrored as well.
            let flips = self.by(Opcode::Muli, right, made - 1);
            let (mx, my) = (self.of(Opcode::Xori, x, flips), self.of(Opcode::Xori, y, flips));
            let upper = self.equal(down, zero);
            let (nx, ny) = (self.choose(upper, my, x), self.choose(upper, mx, y));
            let (dx, dy) = (self.by(Opcode::Muli, right, made), self.by(Opcode::Muli, down, made));
            (x, y) = (self.of(Opcode::Addi, nx, dx), self.of(Opcode::Addi, ny, dy));
            t = self.by(Opcode::Shri, t, 2);
            made *= 2;
        }
        (x, y)
    }
}
