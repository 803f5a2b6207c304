//! What a `print` is carried out by: calls of `vprintf`, and the shared memory that their values take.
//!
//! In: a verified `print`. Out: its [`Part`]s in order. `vprintf` takes a format and the address of its values, which lie one behind the
//! other, each at a multiple of its size. One thread calls it, and the elements of a tile are with many: so they meet in memory of the
//! agent ([`super::scratch`]), from where they are printed without being loaded. A tile larger than [`ROOM`] goes there in rounds.

use crate::ir::format::{self, Piece, Spec};
use crate::ir::{AttrData, Function, Op, Scalar, Value, keys};
use smallvec::SmallVec;

/// Most bytes of a tile that are in memory at once.
const ROOM: u32 = 1 << 14;
/// Most values of a call. Source: CUDA C++ Programming Guide, Formatted Output, Limitations.
const MOST_VALUES: usize = 32;

/// One step of a `print`.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A call with scalars: which, and at what byte.
    Call {
        /// The format.
        format: String,
        /// The values, where each lies, and whether it is printed without a sign.
        values: SmallVec<[(Value, u32, bool); 4]>,
    },
    /// A tile.
    Tile(Printed),
}

/// How a tile is printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Printed {
    /// The tile.
    pub value: Value,
    /// Where it lies.
    pub at: u32,
    /// Bytes of an element.
    pub step: u32,
    /// Whether elements are printed without a sign.
    pub unsigned: bool,
    /// Elements that a call prints; they are a row or a part of one.
    pub group: u32,
    /// The format of a call.
    pub format: String,
    /// Elements of the lists that are opened and closed around calls, the largest first.
    pub lists: SmallVec<[u32; 5]>,
    /// Elements of the tile.
    pub elements: u32,
    /// Elements in memory at once.
    pub round: u32,
}

/// Bytes that a value takes for `vprintf`.
pub fn value_bytes(elem: Scalar) -> u32 {
    if elem.is_float() || elem.bits() == 64 { 8 } else { 4 }
}

/// The specification of one value.
fn specification(out: &mut String, spec: Spec<'_>, elem: Scalar) {
    out.push('%');
    out.push_str(spec.how);
    if !spec.is_float() && elem.bits() == 64 && spec.conversion != 'c' {
        out.push_str("ll");
    }
    out.push(spec.conversion);
}

/// The parts of a `print`, and the bytes that it takes.
pub fn parts(func: &Function, op: Op) -> (SmallVec<[Part; 4]>, u32) {
    let mut out: SmallVec<[Part; 4]> = SmallVec::new();
    let mut bytes = 0;
    let format = match func.attr(op, keys::FORMAT) {
        Some(AttrData::Str(text)) => text.as_str(),
        _ => "",
    };
    let (mut text, mut values) = (String::new(), SmallVec::new());
    let mut operands = func.operands(op).iter().copied();
    let flush = |out: &mut SmallVec<[Part; 4]>, text: &mut String, values: &mut SmallVec<_>| {
        if !text.is_empty() {
            out.push(Part::Call { format: std::mem::take(text), values: std::mem::take(values) });
        }
    };
    for piece in format::pieces(format).unwrap_or_default() {
        let spec = match piece {
            Piece::Text(t) => {
                text.push_str(t);
                continue;
            }
            Piece::Spec(spec) => spec,
        };
        let Some(v) = operands.next() else { break };
        let data = func.value_data(v);
        let Some(elem) = data.elem() else { break };
        let size = value_bytes(elem);
        if data.is_tile() {
            flush(&mut out, &mut text, &mut values);
            bytes = u32::next_multiple_of(bytes, 16);
            let tile = printed(v, data.dims().unwrap_or(&[]), spec, elem, bytes);
            bytes += tile.round * size;
            out.push(Part::Tile(tile));
            continue;
        }
        if values.len() == MOST_VALUES {
            flush(&mut out, &mut text, &mut values);
        }
        if values.is_empty() {
            bytes = bytes.next_multiple_of(16);
        }
        bytes = bytes.next_multiple_of(size);
        values.push((v, bytes, spec.is_unsigned()));
        bytes += size;
        specification(&mut text, spec, elem);
    }
    flush(&mut out, &mut text, &mut values);
    (out, bytes)
}

fn printed(value: Value, dims: &[u32], spec: Spec<'_>, elem: Scalar, at: u32) -> Printed {
    let elements: u32 = dims.iter().product();
    let row = dims.last().copied().unwrap_or(1);
    let group = row.min(MOST_VALUES as u32);
    let whole = !dims.is_empty() && group == row;
    let mut format = String::new();
    if whole {
        format.push('[');
    }
    for n in 0..group {
        if n > 0 {
            format.push_str(", ");
        }
        specification(&mut format, spec, elem);
    }
    if whole {
        format.push(']');
    }
    let outer = dims.len() - usize::from(whole);
    let lists = (0..outer).map(|d| dims[d..].iter().product()).collect();
    let step = value_bytes(elem);
    Printed {
        value,
        at,
        step,
        unsigned: spec.is_unsigned(),
        group,
        format,
        lists,
        elements,
        round: elements.min(ROOM / step),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse_module;

    fn of(body: &str) -> (SmallVec<[Part; 4]>, u32) {
        let text = format!("kernel @k(%i: i32, %l: i64, %f: f32) {{\n{body}\nreturn }}");
        let module = parse_module(&text).unwrap();
        let f = &module.functions[0];
        let op = f.ops().find(|&op| f.opcode(op) == crate::ir::Opcode::Print).unwrap();
        parts(f, op)
    }

    #[test]
    fn values_lie_at_multiples_of_their_sizes() {
        let (parts, bytes) = of(r#"print %i, %f, %i, %l <{format = "%d %5.1f%% %u %lx\n"}>"#);
        let [Part::Call { format, values }] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!(format, "%d %5.1f%% %u %llx\n");
        assert_eq!(values.iter().map(|v| v.1).collect::<Vec<_>>(), [0, 8, 16, 24]);
        assert_eq!(bytes, 32);
    }

    #[test]
    fn tiles_are_rows_or_parts_of_rows_in_lists() {
        let (parts, bytes) =
            of("%t = iota <{axis = 1}> : tile<2x4xi32>\nprint %i, %t, %f <{format = \"%d: %3d;%g\"}>");
        let [Part::Call { .. }, Part::Tile(t), Part::Call { format, values }] = parts.as_slice() else {
            panic!("{parts:?}")
        };
        assert_eq!((t.at, t.step, t.group, t.elements, t.round), (16, 4, 4, 8, 8));
        assert_eq!(t.format, "[%3d, %3d, %3d, %3d]");
        assert_eq!(t.lists.as_slice(), [8]);
        assert_eq!((format.as_str(), values[0].1, bytes), (";%g", 48, 56));
        let (parts, _) = of("%t = constant <{value = 1.0}> : tile<128x64xf16>\nprint %t <{format = \"%f\"}>");
        let [Part::Tile(t)] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!((t.step, t.group, t.elements, t.round), (8, 32, 8192, 2048));
        assert_eq!(t.lists.as_slice(), [8192, 64]);
    }
}
