//! Typing rules of the operation table, shapes of rearranging ops, and matrix multiply.

use super::{Checker, shape};
use crate::error::{Code, CodegenError};
use crate::ir::attrs::AttrData;
use crate::ir::entities::{Op, Sym, Value};
use crate::ir::format::{self, Piece, Spec};
use crate::ir::opcodes::{Opcode, Rule, Traits, keys};
use crate::ir::types::{Scalar, Shape, Space, TypeData};
use smallvec::SmallVec;

/// Bytes of a variable of a kernel.
const MAX_VARIABLE_BYTES: u64 = 1 << 28;

impl Checker<'_> {
    pub(super) fn typing(&mut self, op: Op) {
        match self.func.opcode(op).def().rule {
            Rule::Same => self.rule_same(op),
            Rule::Compare => self.rule_compare(op),
            Rule::Select => self.rule_select(op),
            Rule::Convert => self.rule_convert(op),
            Rule::First => self.rule_first(op),
            Rule::I32 => {
                if let Some(have) = self.result_data(op)
                    && *have != TypeData::Scalar(Scalar::I32)
                {
                    self.err(op, Code::E0212, format_args!("expected a result of type i32, but got {have}"));
                }
            }
            Rule::Dot => self.dot(op),
            Rule::None | Rule::Custom => {}
        }
        self.packed(op);
        match self.func.opcode(op) {
            Opcode::Constant => self.constant(op),
            Opcode::TiledLoad | Opcode::Gather => {
                if let Some(elem) = self.result_data(op).and_then(TypeData::elem) {
                    self.number(op, keys::PADDING, elem);
                }
            }
            Opcode::Assume => self.assume(op),
            Opcode::MakeView => self.make_view(op),
            Opcode::IntToPtr => self.int_to_ptr(op),
            Opcode::Global => self.global(op),
            Opcode::PtrToInt => {
                if let Some(have) = self.result_data(op).filter(|d| **d != TypeData::Scalar(Scalar::I64)) {
                    self.err(op, Code::E0212, format_args!("expected an i64 as result, but got {have}"));
                }
            }
            Opcode::MayAlias => {
                if let (Some(have), Some(of)) = (self.result_type(op), self.seg(op, 0)) {
                    self.same_type(op, Code::E0212, "operand 0", self.func.value_type(of), have);
                }
            }
            Opcode::ProgramId | Opcode::NumPrograms => self.axis_below(op, 3),
            Opcode::TileOrder => self.tile_order(op),
            Opcode::Offset
                if self.result_data(op).and_then(TypeData::elem).is_some_and(Scalar::is_packed) =>
            {
                let func = self.func;
                self.even(op, func.segment(op, 1), "an offset");
            }
            Opcode::Dim => {
                if let Some(rank) = self.view_rank(op, 0) {
                    self.axis_below(op, rank);
                }
            }
            Opcode::Splat | Opcode::Broadcast | Opcode::Reshape | Opcode::Iota | Opcode::ConvertLayout => {
                self.reshaping(op);
            }
            Opcode::Unsplat => self.unsplat(op),
            Opcode::Print => self.print(op),
            Opcode::Assert => self.assert(op),
            Opcode::Permute => self.permute(op),
            Opcode::Cat => self.cat(op),
            Opcode::ExtractSlice => self.extract_slice(op),
            Opcode::Reduce => self.reduce(op),
            Opcode::Combine | Opcode::Scan => self.combine(op),
            Opcode::Divi => self.quotient(op),
            Opcode::WarpDot => self.warp_dot(op),
            o if o.def().attrs.iter().any(|a| a.key == keys::FTZ) => self.only_f32(op),
            _ => {}
        }
    }

    /// Elements of less than a byte are moved and converted, and in memory begin with a byte.
    fn packed(&mut self, op: Op) {
        let (func, opcode) = (self.func, self.func.opcode(op));
        let is_packed = |v: &Value| self.data(*v).elem().is_some_and(Scalar::is_packed);
        let all = || func.operands(op).iter().chain(func.results(op));
        let Some(&first) = all().find(|v| is_packed(v)) else { return };
        let converts = matches!(
            opcode,
            Opcode::Exti | Opcode::Trunci | Opcode::Itof | Opcode::Ftof | Opcode::Bitcast | Opcode::Select
        );
        let handed_on = opcode == Opcode::Splat || opcode.is_terminator() && opcode != Opcode::ExitIf;
        // As numbers that decide where or how often, they would be other ones.
        let decides = |n: usize, v: &Value| {
            let carried = opcode == Opcode::For && n > 2 || opcode == Opcode::Loop;
            is_packed(v) && self.data(*v).as_scalar().is_some() && !(converts || handed_on || carried)
        };
        let decided = func.operands(op).iter().enumerate().find(|&(n, v)| decides(n, v)).map(|(_, &v)| v);
        // Integers become such floats by way of others.
        let by_way = func.result(op).filter(|v| opcode == Opcode::Itof && is_packed(v));
        if let (false, None, None) = (!opcode.takes_packed(), decided, by_way) {
            let touches = opcode.has(Traits::READS_GLOBAL) || opcode.has(Traits::WRITES_GLOBAL);
            let odd = |v: &&Value| {
                is_packed(v)
                    && self.data(**v).is_tile()
                    && self.data(**v).dims().is_none_or(|d| d.last().is_none_or(|n| n % 2 != 0))
            };
            let scalar = func.result(op).filter(|v| is_packed(v) && !self.data(*v).is_tile());
            if let Some(v) = all().find(odd).copied().or(scalar).filter(|_| touches) {
                let have = self.data(v);
                self.err(op, Code::E0213, format_args!("expected rows of whole bytes, but got {have}"));
            }
            return;
        }
        let v = by_way.or(decided).unwrap_or(first);
        let have = self.data(v);
        let hint = match (have.elem().is_some_and(Scalar::is_int), func.results(op).contains(&v)) {
            (true, false) => "exti",
            (true, true) => "trunci",
            _ => "ftof",
        };
        self.err(
            op,
            Code::E0202,
            format_args!(
                "expected elements of whole bytes (`{hint}` converts them), but {} is {have}",
                self.show(v)
            ),
        );
    }

    fn rule_same(&mut self, op: Op) {
        let func = self.func;
        let Some(want) = self.result_type(op) else { return };
        for (n, &v) in func.operands(op).iter().enumerate() {
            self.same_type(op, Code::E0212, format_args!("operand {n}"), func.value_type(v), want);
        }
    }

    fn rule_compare(&mut self, op: Op) {
        let func = self.func;
        let &[lhs, rhs] = func.operands(op) else { return };
        self.same_type(op, Code::E0212, "operand 1", func.value_type(rhs), func.value_type(lhs));
        let Some(have) = self.result_data(op) else { return };
        let want = with_elem(self.data(lhs), Scalar::I1);
        if *have != want {
            self.err(op, Code::E0212, format_args!("expected a result of type {want}, but got {have}"));
        }
    }

    fn rule_select(&mut self, op: Op) {
        let func = self.func;
        let &[condition, yes, no] = func.operands(op) else { return };
        let Some(result) = self.result_type(op) else { return };
        self.same_type(op, Code::E0212, "operand 1", func.value_type(yes), result);
        self.same_type(op, Code::E0212, "operand 2", func.value_type(no), result);
        let have = self.data(condition);
        let want = with_elem(func.type_data(result), Scalar::I1);
        if *have != want && *have != TypeData::Scalar(Scalar::I1) {
            self.err(
                op,
                Code::E0212,
                format_args!("expected a condition of type i1 or {want}, but got {have}"),
            );
        }
    }

    fn rule_convert(&mut self, op: Op) {
        let Some(source) = self.func.operands(op).first().map(|&v| self.data(v)) else { return };
        let Some(result) = self.result_data(op) else { return };
        let (Some(from), Some(to)) = (source.elem(), result.elem()) else { return };
        if with_elem(source, to) != *result {
            let want = with_elem(source, to);
            self.err(op, Code::E0212, format_args!("expected a result of type {want}, but got {result}"));
        }
        let (ok, want) = match self.func.opcode(op) {
            Opcode::Ftof => (to.is_float(), "a floating-point result"),
            Opcode::Itof => (to.is_float(), "a floating-point result"),
            Opcode::Ftoi => (to.is_int(), "an integer result"),
            Opcode::Exti => (to.is_int() && to.bits() > from.bits(), "a wider integer result"),
            Opcode::Trunci => (to.is_int() && to.bits() < from.bits(), "a narrower integer result"),
            Opcode::Bitcast => (to.bits() == from.bits(), "a result of the same width"),
            _ => (true, ""),
        };
        if !ok {
            let (from, to) = (from.name(), to.name());
            self.err(op, Code::E0212, format_args!("expected {want} for {from}, but got {to}"));
        }
    }

    fn rule_first(&mut self, op: Op) {
        let func = self.func;
        let (&[first, second], Some(result)) = (func.operands(op), self.result_type(op)) else { return };
        self.same_type(op, Code::E0212, "operand 0", func.value_type(first), result);
        let Some(elem) = self.data(second).elem() else { return };
        if matches!(self.data(first), TypeData::Ptr { .. }) {
            return;
        }
        let (have, want) = (self.data(second), with_elem(self.data(first), elem));
        if *have != want {
            self.err(op, Code::E0212, format_args!("expected operand 1 of type {want}, but got {have}"));
        }
    }

    /// There is no rounding down of unsigned quotients: truncation is that.
    fn quotient(&mut self, op: Op) {
        let down = self.func.attr_name(op, keys::ROUNDING) == Some("negative_inf");
        if down && self.func.has_attr(op, keys::UNSIGNED) {
            self.err(op, Code::E0205, "expected `rounding` zero or positive_inf next to `unsigned`");
        }
    }

    /// Other roundings than to nearest even, and flushing to zero, are for f32.
    fn only_f32(&mut self, op: Op) {
        let Some(elem) = self.result_data(op).and_then(TypeData::elem).filter(|&e| e != Scalar::F32) else {
            return;
        };
        let other = self.func.attr_name(op, keys::ROUNDING).is_some_and(|r| r != "nearest_even");
        for (key, set) in [("rounding", other), ("ftz", self.func.has_attr(op, keys::FTZ))] {
            if set {
                let have = elem.name();
                self.err(op, Code::E0205, format_args!("expected f32 next to this `{key}`, but got {have}"));
            }
        }
    }

    fn constant(&mut self, op: Op) {
        let Some(result) = self.result_data(op) else { return };
        let elem = match result {
            TypeData::Scalar(s) => *s,
            TypeData::Tile { elem, .. } => *elem,
            other => {
                self.err(op, Code::E0213, format_args!("expected a scalar or tile, but got {other}"));
                return;
            }
        };
        self.number(op, keys::VALUE, elem);
    }

    /// A number that elements are to have.
    fn number(&mut self, op: Op, key: Sym, elem: Scalar) {
        if elem.is_float() {
            return;
        }
        let name = elem.name();
        match self.func.attr(op, key) {
            Some(AttrData::Float(f, _)) => {
                let f = f.get();
                self.err(op, Code::E0205, format_args!("expected an integer for {name}, but got {f:?}"));
            }
            Some(&AttrData::Int(v, _)) if elem.bits() < 64 => {
                // Both readings of the bit pattern are accepted.
                let (low, high) = (-(1i64 << (elem.bits() - 1)), (1i64 << elem.bits()) - 1);
                if !(low..=high).contains(&v) {
                    self.err(
                        op,
                        Code::E0205,
                        format_args!("expected {low} to {high} for {name}, but got {v}"),
                    );
                }
            }
            _ => {}
        }
    }

    fn warp_dot(&mut self, op: Op) {
        let (Some(a), Some(b), Some(acc)) = (self.seg(op, 0), self.seg(op, 1), self.seg(op, 2)) else {
            return;
        };
        let dims = |v: Value| self.data(v).dims().unwrap_or(&[]);
        let fit = matches!((dims(a), dims(b), dims(acc)), (&[m, k], &[k2, n], &[m2, n2]) if (m, n, k) == (m2, n2, k2));
        if !fit {
            let (a, b, acc) = (shape(dims(a)), shape(dims(b)), shape(dims(acc)));
            self.err(op, Code::E0213, format_args!("expected MxK, KxN and MxN, but got {a}, {b} and {acc}"));
        }
        if let (Some(of), Some(have)) = (self.data(a).elem(), self.data(acc).elem()) {
            let want = if of.is_int() { Scalar::I32 } else { Scalar::F32 };
            if have != want {
                let (have, want) = (have.name(), want.name());
                self.err(op, Code::E0215, format_args!("expected an accumulator of {want}, but got {have}"));
            }
        }
        let Some(have) = self.result_type(op) else { return };
        self.same_type(op, Code::E0212, "operand 2", self.func.value_type(acc), have);
    }

    fn assume(&mut self, op: Op) {
        let Some(by) = self.func.attr_int(op, keys::DIV_BY) else { return };
        if by <= 0 || !(by as u64).is_power_of_two() {
            self.err(op, Code::E0205, format_args!("expected a power of two for `div_by`, but got {by}"));
        }
    }

    fn int_to_ptr(&mut self, op: Op) {
        let Some(result) = self.result_data(op) else { return };
        if !matches!(result, TypeData::Ptr { space: Space::Gmem, .. }) {
            let text = format_args!("expected a pointer to global memory as result, but got {result}");
            self.err(op, Code::E0212, text);
        }
        if let Some(have) = self.seg(op, 0).and_then(|v| self.data(v).elem()).filter(|&e| e != Scalar::I64) {
            self.err(op, Code::E0212, format_args!("expected an i64, but got {}", have.name()));
        }
    }

    fn global(&mut self, op: Op) {
        let (func, Some(result)) = (self.func, self.result_data(op)) else { return };
        let &TypeData::Ptr { elem, space: Space::Gmem } = result else {
            let text = format_args!("expected a pointer to global memory as result, but got {result}");
            self.err(op, Code::E0212, text);
            return;
        };
        if elem.is_packed() {
            self.err(
                op,
                Code::E0202,
                format_args!("expected elements of whole bytes, but got {}", elem.name()),
            );
            return;
        }
        if let Some(AttrData::Str(name)) = func.attr(op, keys::NAME) {
            let mut letters = name.bytes();
            let first = letters.next().is_some_and(|b| b.is_ascii_alphabetic());
            if !first || !letters.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                let text = format_args!(
                    "expected a name of letters, digits and `_`, a letter first, but got {name:?}"
                );
                self.err(op, Code::E0205, text);
            }
        }
        let list = match func.attr(op, keys::VALUES) {
            Some(AttrData::Array(list)) => list.as_slice(),
            Some(_) => {
                self.err(op, Code::E0205, format_args!("expected a list of numbers as `values`"));
                return;
            }
            None => &[],
        };
        for &a in list {
            let fits = match *func.attr_data(a) {
                AttrData::Float(..) => elem.is_float(),
                AttrData::Int(v, _) if elem.is_int() && elem.bits() < 64 => {
                    (-(1i64 << (elem.bits() - 1))..1i64 << elem.bits()).contains(&v)
                }
                AttrData::Int(..) => true,
                _ => false,
            };
            if !fits {
                let name = elem.name();
                self.err(op, Code::E0205, format_args!("expected numbers of type {name} as `values`"));
                return;
            }
        }
        let most = MAX_VARIABLE_BYTES / u64::from(elem.bytes());
        match func.variable_len(op) {
            Some(n) if n > 0 && n >= list.len() as u64 && n <= most => {}
            Some(n) => self.err(
                op,
                Code::E0205,
                format_args!("expected {} to {most} elements, but got {n}", list.len().max(1)),
            ),
            None => self.err(op, Code::E0204, format_args!("expected `size` or `values`")),
        }
        if let Some(n) = func.attr_int(op, keys::ALIGN)
            && !(n > 0 && n <= 512 && n & (n - 1) == 0)
        {
            self.err(
                op,
                Code::E0205,
                format_args!("expected a power of two up to 512 as `align`, but got {n}"),
            );
        }
    }

    fn make_view(&mut self, op: Op) {
        let Some(result) = self.result_data(op) else { return };
        let TypeData::View { dims, elem, .. } = result else {
            self.err(op, Code::E0213, format_args!("expected a view as result, but got {result}"));
            return;
        };
        if let Some(have) = self.seg(op, 0).and_then(|p| self.data(p).elem()).filter(|have| have != elem) {
            let (want, have) = (elem.name(), have.name());
            self.err(op, Code::E0212, format_args!("expected a pointer to {want}, but got one to {have}"));
        }
        let rank = dims.len();
        if rank == 0 {
            self.err(op, Code::E0211, "expected a view of at least one dimension");
            return;
        }
        for (segment, want, what) in [(1, rank, "extents"), (2, rank - 1, "strides")] {
            let have = self.func.segment(op, segment).len();
            self.same_count(op, Code::E0216, what, have, want);
        }
        if elem.is_packed() {
            let func = self.func;
            let inner = func.segment(op, 1).last().copied();
            self.even(op, inner.as_slice(), "rows");
            self.even(op, func.segment(op, 2), "strides");
        }
    }

    fn tile_order(&mut self, op: Op) {
        if let Some(have) = self.result_data(op).and_then(TypeData::elem).filter(|s| s.bits() < 32) {
            self.err(op, Code::E0202, format_args!("expected i32, i64 or index, but got {}", have.name()));
        }
        let Some((name, list)) = self.func.attr_call(op, keys::ORDER) else { return };
        let (fits, want) = match (name, list.as_slice()) {
            ("rows", []) => (true, ""),
            ("rows", _) => (false, "`rows` without a number"),
            ("grouped", &[n]) if (1..=1 << 16).contains(&n) => (true, ""),
            ("grouped", _) => (false, "`grouped(n)` with n from 1 to 65536"),
            (_, &[n @ 2..=64]) if n & (n - 1) == 0 => (true, ""),
            _ => (false, "`hilbert(n)` with n a power of two from 2 to 64"),
        };
        if !fits {
            self.err(op, Code::E0205, format_args!("expected {want}"));
        }
    }

    /// Of elements of which a byte has two, a constant is even.
    fn even(&mut self, op: Op, list: &[Value], what: &str) {
        for &v in list {
            if let Some(n) = self.func.constant_value(v).filter(|n| n % 2.0 != 0.0) {
                self.err(
                    op,
                    Code::E0211,
                    format_args!("expected {what} of whole bytes, but got {n} elements of 4 bits"),
                );
            }
        }
    }

    fn axis_below(&mut self, op: Op, rank: usize) {
        if let Some(axis) = self.func.attr_int(op, keys::AXIS)
            && !(0..rank as i64).contains(&axis)
        {
            self.err(op, Code::E0205, format_args!("expected an axis below {rank}, but got {axis}"));
        }
    }

    pub(super) fn view_rank(&self, op: Op, segment: usize) -> Option<usize> {
        match self.data(self.seg(op, segment)?) {
            TypeData::View { dims, .. } => Some(dims.len()),
            _ => None,
        }
    }

    fn reshaping(&mut self, op: Op) {
        let Some(result) = self.result_data(op) else { return };
        let TypeData::Tile { dims: to, elem: to_elem, .. } = result else {
            let hint = if matches!(result, TypeData::Scalar(_)) { " (`unsplat` makes a scalar)" } else { "" };
            self.err(op, Code::E0213, format_args!("expected a tile as result, but got {result}{hint}"));
            return;
        };
        let opcode = self.func.opcode(op);
        let source = self.func.operands(op).first().map(|&v| self.data(v));
        if let Some(elem) = source.and_then(TypeData::elem)
            && elem != *to_elem
        {
            let (have, want) = (to_elem.name(), elem.name());
            self.err(op, Code::E0212, format_args!("expected element type {want}, but got {have}"));
        }
        let from = source.and_then(TypeData::dims).unwrap_or(&[]);
        let fault = match opcode {
            Opcode::Iota if to.len() != 1 || !to_elem.is_int() => {
                Some("one dimension of integers".to_string())
            }
            Opcode::Broadcast
                if from.len() != to.len() || from.iter().zip(to.iter()).any(|(&a, &b)| a != b && a != 1) =>
            {
                Some(format!("a shape that {} broadcasts to", shape(from)))
            }
            Opcode::Reshape if super::product(from) != super::product(to) => {
                Some(format!("{} elements", super::product(from)))
            }
            Opcode::ConvertLayout if from != to.as_slice() => Some(format!("shape {}", shape(from))),
            _ => None,
        };
        if let Some(want) = fault {
            self.err(op, Code::E0213, format_args!("expected {want}, but got {}", shape(to)));
        }
    }

    fn unsplat(&mut self, op: Op) {
        let (Some(&source), Some(result)) = (self.func.operands(op).first(), self.result_data(op)) else {
            return;
        };
        let source = self.data(source);
        let Some(elem) = source.elem() else { return };
        if super::product(source.dims().unwrap_or(&[])) != 1 {
            self.err(op, Code::E0213, format_args!("expected a tile of one element, but got {source}"));
        } else if *result != TypeData::Scalar(elem) {
            self.err(op, Code::E0212, format_args!("expected {} as result, but got {result}", elem.name()));
        }
    }

    fn no_result(&mut self, op: Op) {
        let count = self.func.results(op).len();
        if count > 0 {
            self.err(op, Code::E0203, format_args!("expected no result, but got {count}"));
        }
    }

    fn print(&mut self, op: Op) {
        let func = self.func;
        self.no_result(op);
        let Some(AttrData::Str(format)) = func.attr(op, keys::FORMAT) else { return };
        let specs: SmallVec<[Spec<'_>; 8]> = match format::pieces(format) {
            Ok(pieces) => pieces
                .into_iter()
                .filter_map(|p| if let Piece::Spec(s) = p { Some(s) } else { None })
                .collect(),
            Err(expected) => {
                self.err(op, Code::E0205, format_args!("`format`: expected {expected}"));
                return;
            }
        };
        let values = func.operands(op);
        if specs.len() != values.len() {
            let (want, have) = (specs.len(), values.len());
            self.err(op, Code::E0201, format_args!("expected {want} values for `format`, but got {have}"));
            return;
        }
        let mut tiles = 0;
        for (n, (spec, &v)) in specs.iter().zip(values).enumerate() {
            let data = self.data(v);
            tiles += usize::from(data.is_tile());
            let Some(elem) = data.elem() else { continue };
            if elem.is_float() != spec.is_float() {
                let kind = if spec.is_float() { "floats" } else { "integers" };
                let c = spec.conversion;
                self.err(
                    op,
                    Code::E0202,
                    format_args!("expected {kind} as value {n} for `%{c}`, but got {data}"),
                );
            }
        }
        if tiles > 1 {
            self.err(op, Code::E0202, format_args!("expected one tile at most, but got {tiles}"));
        }
    }

    fn assert(&mut self, op: Op) {
        let func = self.func;
        self.no_result(op);
        if let Some(data) =
            func.operands(op).first().map(|&v| self.data(v)).filter(|d| d.elem() != Some(Scalar::I1))
        {
            self.err(op, Code::E0202, format_args!("expected a condition of i1, but got {data}"));
        }
        for key in [keys::MESSAGE, keys::FILE] {
            if let Some(AttrData::Str(text)) = func.attr(op, key)
                && text.contains('\0')
            {
                self.err(op, Code::E0205, format_args!("expected a text without NUL characters"));
            }
        }
        if func.attr_int(op, keys::LINE).is_some_and(|n| u32::try_from(n).is_err()) {
            self.err(op, Code::E0205, format_args!("expected a line number of 32 bits"));
        }
    }

    fn reduce(&mut self, op: Op) {
        let func = self.func;
        let (Some(&source), Some(result)) = (func.operands(op).first(), self.result_data(op)) else { return };
        let source = self.data(source);
        let (Some(from), Some(elem)) = (source.dims().filter(|d| !d.is_empty()), source.elem()) else {
            self.err(op, Code::E0213, format_args!("expected a tile with dimensions, but got {source}"));
            return;
        };
        self.axis_below(op, from.len());
        let axis = func.attr_int(op, keys::AXIS).and_then(|a| usize::try_from(a).ok());
        let Some(axis) = axis.filter(|&a| a < from.len()) else { return };
        if result.elem() != Some(elem) || !result.is_tile() {
            let name = elem.name();
            self.err(op, Code::E0212, format_args!("expected a tile of {name} as result, but got {result}"));
            return;
        }
        let left = from.iter().enumerate().filter(|&(n, _)| n != axis).map(|(_, &d)| d);
        let want: Vec<u32> = left.collect();
        let to = result.dims().unwrap_or(&[]);
        if to != want.as_slice() {
            self.err(op, Code::E0213, format_args!("expected {}, but got {}", shape(&want), shape(to)));
        }
    }

    fn combine(&mut self, op: Op) {
        let func = self.func;
        let (sources, results) = (func.operands(op), func.results(op));
        let Some(&first) = sources.first() else {
            self.err(op, Code::E0201, "expected at least 1 operand for `sources`, but got 0");
            return;
        };
        let (have, want) = (results.len(), sources.len());
        if have != want {
            self.err(op, Code::E0203, format_args!("expected {want} results, but got {have}"));
            return;
        }
        let from: Shape = self.data(first).dims().unwrap_or(&[]).into();
        if from.is_empty() {
            let have = self.data(first);
            self.err(op, Code::E0213, format_args!("expected a tile with dimensions, but got {have}"));
            return;
        }
        self.axis_below(op, from.len());
        let axis = func.attr_int(op, keys::AXIS).and_then(|a| usize::try_from(a).ok());
        let Some(axis) = axis.filter(|&a| a < from.len()) else { return };
        let left = |n: usize| func.opcode(op) == Opcode::Scan || n != axis;
        let want: Shape = from.iter().enumerate().filter(|&(n, _)| left(n)).map(|(_, &d)| d).collect();
        for (&source, &result) in sources.iter().zip(results) {
            let (source, result) = (self.data(source), self.data(result));
            if source.dims() != Some(&from[..]) {
                let have = shape(source.dims().unwrap_or(&[]));
                self.err(op, Code::E0213, format_args!("expected tiles of {}, but got {have}", shape(&from)));
                return;
            }
            if result.elem() != source.elem() || !result.is_tile() {
                let name = source.elem().map_or("?", Scalar::name);
                self.err(
                    op,
                    Code::E0212,
                    format_args!("expected a tile of {name} as result, but got {result}"),
                );
                return;
            }
            let to = result.dims().unwrap_or(&[]);
            if to != want.as_slice() {
                self.err(op, Code::E0213, format_args!("expected {}, but got {}", shape(&want), shape(to)));
            }
        }
        self.combiner(op);
    }

    /// The function by which an op combines elements: scalars, two for each tile, and element-wise ops.
    fn combiner(&mut self, op: Op) {
        let func = self.func;
        let Some(by) = func.combiner(op) else { return };
        let elems: SmallVec<[TypeData; 4]> =
            func.operands(op).iter().filter_map(|&v| Some(TypeData::Scalar(self.data(v).elem()?))).collect();
        let params = by.params();
        let want: Vec<&TypeData> = elems.iter().chain(&elems).collect();
        let agree = |values: &[Value], want: &[&TypeData]| {
            values.len() == want.len() && values.iter().zip(want).all(|(&v, &t)| by.value_data(v) == t)
        };
        let list = |want: &[&TypeData]| want.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ");
        if !agree(params, &want) {
            self.err(op, Code::E0213, format_args!("expected `by` with parameters {}", list(&want)));
            return;
        }
        let block = by.entry();
        let last = by.last_op(block);
        let mut inner =
            Checker { func: by, limits: self.limits, errors: Vec::new(), visible: Default::default() };
        params.iter().for_each(|&p| {
            inner.visible.insert(p);
        });
        for o in by.block_ops(block) {
            if Some(o) == last && by.opcode(o).is_terminator() {
                break;
            }
            let code = by.opcode(o);
            let scalar =
                by.operands(o).iter().chain(by.results(o)).all(|&v| by.value_data(v).as_scalar().is_some());
            if !scalar || !(code.has(Traits::ELEMENTWISE) || code == Opcode::Constant) {
                let text = format!("{}: expected element-wise ops on scalars in `by`", code.name());
                inner.errors.push(CodegenError::new(Code::E0213, by.op_loc(o), text));
                continue;
            }
            inner.op(o, block, None, 0);
        }
        self.errors.append(&mut inner.errors);
        let given = last.filter(|&o| by.opcode(o) == Opcode::Yield).map(|o| by.operands(o));
        let all: Vec<&TypeData> = elems.iter().collect();
        let known = |&v: &Value| by.defining_op(v).is_none_or(|d| by.op_block(d) == Some(block));
        if given.is_none_or(|g| !agree(g, &all) || !g.iter().all(known)) {
            self.err(op, Code::E0213, format_args!("expected `by` to end with a `yield` of {}", list(&all)));
        }
    }

    /// The tile type of a result and of an operand, with equal element types.
    fn rearranged(
        &mut self,
        op: Op,
        operand: Value,
    ) -> Option<(crate::ir::types::Shape, crate::ir::types::Shape)> {
        let (source, result) = (self.data(operand), self.result_data(op)?);
        if source.elem() != result.elem() || !result.is_tile() {
            self.err(
                op,
                Code::E0212,
                format_args!("expected the element type of {source}, but got {result}"),
            );
            return None;
        }
        let shape = |d: &TypeData| crate::ir::types::Shape::from_slice(d.dims().unwrap_or(&[]));
        Some((shape(source), shape(result)))
    }

    fn permute(&mut self, op: Op) {
        let Some(&source) = self.func.operands(op).first() else { return };
        let Some((from, to)) = self.rearranged(op, source) else { return };
        let Some(order) = self.func.attr_ints(op, keys::PERMUTATION) else { return };
        let mut sorted: Vec<i64> = order.to_vec();
        sorted.sort_unstable();
        if sorted.iter().copied().ne(0..from.len() as i64) {
            let rank = from.len();
            self.err(
                op,
                Code::E0205,
                format_args!("expected each axis from 0 to {} once in `permutation`", rank.saturating_sub(1)),
            );
            return;
        }
        let want: Vec<u32> = order.iter().map(|&a| from[a as usize]).collect();
        if to.as_slice() != want.as_slice() {
            self.err(op, Code::E0213, format_args!("expected {}, but got {}", shape(&want), shape(&to)));
        }
    }

    fn cat(&mut self, op: Op) {
        let &[lhs, rhs] = self.func.operands(op) else { return };
        self.same_type(op, Code::E0212, "operand 1", self.func.value_type(rhs), self.func.value_type(lhs));
        let Some((from, to)) = self.rearranged(op, lhs) else { return };
        self.axis_below(op, from.len());
        let axis = self.func.attr_int(op, keys::AXIS).and_then(|a| usize::try_from(a).ok());
        let Some(axis) = axis.filter(|&a| a < from.len()) else { return };
        let mut want = from;
        want[axis] = want[axis].saturating_mul(2);
        if to != want {
            self.err(op, Code::E0213, format_args!("expected {}, but got {}", shape(&want), shape(&to)));
        }
    }

    fn extract_slice(&mut self, op: Op) {
        let func = self.func;
        let (Some(&source), Some(result)) = (func.operands(op).first(), self.result_data(op)) else { return };
        let Some(sizes) = func.attr_ints(op, keys::SIZES) else { return };
        let Some(dims) = result.dims().filter(|_| result.is_tile()) else {
            self.err(op, Code::E0213, format_args!("expected a tile as result, but got {result}"));
            return;
        };
        if sizes.len() != dims.len() || sizes.iter().zip(dims).any(|(&s, &d)| s != i64::from(d)) {
            let want = sizes.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
            self.err(op, Code::E0213, format_args!("expected a result of {want}, but got {}", shape(dims)));
        }
        let source = self.data(source);
        if source.elem() != result.elem() || source.space() != result.space() {
            self.err(
                op,
                Code::E0212,
                format_args!("expected element type and space of {source}, but got {result}"),
            );
        }
        self.sub_tile(op, source.dims().unwrap_or(&[]), dims, keys::OFFSETS);
        if let Some(number) = func.named_operand(op, "number") {
            self.slice_number(op, number);
            // Loops over slices are written out where these are in registers.
            let counts = match func.value_def(number) {
                crate::ir::ValueDef::Param(b, 0) => {
                    func.block_parent(b).is_some_and(|l| func.is_slice_loop(l))
                }
                _ => false,
            };
            if !counts && !matches!(source.space(), Some(Space::Smem | Space::Tmem)) {
                self.err(
                    op,
                    Code::E0221,
                    format_args!("expected a tile in smem or tmem next to `at`, but got {source}"),
                );
            }
        }
    }

    /// The number of a slice is an index.
    pub(super) fn slice_number(&mut self, op: Op, number: Value) {
        let data = self.data(number);
        if data.as_scalar() != Some(Scalar::I32) {
            self.err(op, Code::E0212, format_args!("expected an i32 in `at`, but got {data}"));
        }
    }

    /// Checks that the part of extents `small` at the offsets of the attribute `key` (0 if absent) lies in `big`.
    pub(super) fn sub_tile(&mut self, op: Op, big: &[u32], small: &[u32], key: Sym) {
        let Some(offsets) = self.func.attr_ints(op, key) else { return };
        if offsets.len() != big.len() || small.len() != big.len() {
            let (have, part) = (offsets.len(), small.len());
            self.err(
                op,
                Code::E0213,
                format_args!("expected {} offsets and extents, but got {have} and {part}", big.len()),
            );
            return;
        }
        for (n, &offset) in offsets.iter().enumerate() {
            let end = offset.saturating_add(i64::from(small[n]));
            if offset < 0 || end > i64::from(big[n]) {
                self.err(
                    op,
                    Code::E0213,
                    format_args!(
                        "expected a slice within 0..{} of dimension {n}, but got {offset}..{end}",
                        big[n]
                    ),
                );
            }
        }
    }

    // ---- matrix multiply

    fn dot(&mut self, op: Op) {
        let func = self.func;
        let staged = func.opcode(op) == Opcode::AsyncDot;
        let part = |c: &mut Self, n: usize| -> Option<(Value, crate::ir::types::Shape)> {
            let v = c.seg(op, if staged { 2 * n } else { n })?;
            let stage = if staged { func.segment(op, 2 * n + 1) } else { &[] };
            Some((v, c.slot_dims(op, v, stage)?))
        };
        let (Some(a), Some(b), Some(acc)) = (part(self, 0), part(self, 1), part(self, 2)) else { return };
        let rank_fault =
            [("A", &a.1), ("B", &b.1), ("accumulator", &acc.1)].into_iter().find(|m| m.1.len() != 2);
        if let Some((name, dims)) = rank_fault {
            self.err(
                op,
                Code::E0214,
                format_args!("expected {name} with 2 dimensions, but got {}", shape(dims)),
            );
        } else {
            let order = |dims: &[u32], swap: bool| if swap { (dims[1], dims[0]) } else { (dims[0], dims[1]) };
            let (m, k) = order(&a.1, func.has_attr(op, keys::TRANSPOSE_A));
            let (kb, n) = order(&b.1, func.has_attr(op, keys::TRANSPOSE_B));
            if k != kb {
                self.err(op, Code::E0214, format_args!("A has K = {k}, but B has K = {kb}"));
            }
            if acc.1.as_slice() != [m, n] {
                self.err(
                    op,
                    Code::E0214,
                    format_args!("expected an accumulator of {m}x{n}, but got {}", shape(&acc.1)),
                );
            }
        }
        self.dot_elements(op, a.0, b.0, acc.0);
        let stages = staged && (0..3).any(|n| !func.segment(op, 2 * n + 1).is_empty());
        let Some(result) = self.result_type(op) else { return };
        // An accumulator in registers is a value in either form.
        let in_registers = func.value_data(acc.0).space() == Some(Space::Rmem);
        if stages && !in_registers {
            if *func.type_data(result) != TypeData::AsyncToken {
                let have = func.type_data(result);
                self.err(
                    op,
                    Code::E0218,
                    format_args!("expected async_token as result of the destination form, but got {have}"),
                );
            }
        } else {
            self.same_type(op, Code::E0218, "a result of the value form", result, func.value_type(acc.0));
            if staged && !stages && !func.segment(op, 6).is_empty() {
                self.err(op, Code::E0218, "`accumulate` belongs to the destination form");
            }
        }
    }

    fn dot_elements(&mut self, op: Op, a: Value, b: Value, acc: Value) {
        let (Some(ea), Some(eb), Some(ec)) =
            (self.data(a).elem(), self.data(b).elem(), self.data(acc).elem())
        else {
            return;
        };
        let eight = |s: Scalar| matches!(s, Scalar::E4M3 | Scalar::E5M2);
        let legal = |s: Scalar| {
            eight(s) || matches!(s, Scalar::F16 | Scalar::BF16 | Scalar::TF32 | Scalar::F32 | Scalar::I8)
        };
        for (name, s) in [("A", ea), ("B", eb)] {
            if !legal(s) {
                let have = s.name();
                self.err(
                    op,
                    Code::E0215,
                    format_args!("expected {name} of f16, bf16, tf32, f32, e4m3, e5m2 or i8, but got {have}"),
                );
            }
        }
        // The two 8-bit formats may be mixed.
        if ea != eb && !(eight(ea) && eight(eb)) {
            let (ea, eb) = (ea.name(), eb.name());
            self.err(op, Code::E0215, format_args!("expected B of {ea} as A, but got {eb}"));
        }
        let want = if ea == Scalar::I8 { Scalar::I32 } else { Scalar::F32 };
        // Sums of tiles that are values, which preparation keeps in f32.
        let narrow =
            self.data(acc).space().is_none() && ec == Scalar::F16 && (eight(ea) || ea == Scalar::F16);
        if ec != want && !narrow {
            let (have, want) = (ec.name(), want.name());
            self.err(op, Code::E0215, format_args!("expected an accumulator of {want}, but got {have}"));
        }
        for (key, s) in [(keys::UNSIGNED_A, ea), (keys::UNSIGNED_B, eb)] {
            if self.func.has_attr(op, key) && s != Scalar::I8 {
                let (name, have) = (self.func.symbol(key).to_owned(), s.name());
                self.err(op, Code::E0215, format_args!("expected i8 next to `{name}`, but got {have}"));
            }
        }
    }
}

/// The same scalar or tile with another element type.
fn with_elem(data: &TypeData, elem: Scalar) -> TypeData {
    match data {
        TypeData::Tile { dims, space, layout, .. } => TypeData::Tile {
            dims: crate::ir::types::Shape::from_slice(dims),
            elem,
            space: *space,
            layout: *layout,
        },
        _ => TypeData::Scalar(elem),
    }
}
