//! Operands of different extents beside each other, for the text form and the builder.
//!
//! In: the operands of an element-wise op as a front end gave them. Out: the type they agree on, and the op that takes an
//! operand there: `splat` for a scalar beside tiles, `broadcast` for a tile of the same rank that has one element along an axis
//! where another has several. The ops are made, so that everything behind reads explicit types only.
//!
//! Guarantee: nothing is made where extents agree, and nothing where they cannot (other ranks, extents that differ and are not 1,
//! tiles that are placed, what is neither scalar nor tile); the verifier says what is wrong then.

use super::entities::{Type, Value};
use super::function::Function;
use super::opcodes::{Opcode, Rule};
use super::types::{Shape, TypeData};
use std::ops::Range;

/// Which of `n` operands must agree in type.
pub(super) fn alike(rule: Rule, n: usize) -> Range<usize> {
    match rule {
        Rule::Same | Rule::Compare => 0..n,
        Rule::Select => n.min(1)..n,
        _ => 0..0,
    }
}

/// Extents; none of a scalar.
fn extents(ty: &TypeData) -> Option<&[u32]> {
    match ty {
        TypeData::Scalar(_) => Some(&[]),
        TypeData::Tile { dims, space: None, .. } if !dims.is_empty() => Some(dims),
        _ => None,
    }
}

/// Whether an operand is widened with the others. A `select` between tiles may have one condition for all.
fn takes_part(func: &Function, rule: Rule, index: usize, v: Value) -> bool {
    match rule {
        // The exponent of a power is of another type.
        Rule::Same | Rule::Compare | Rule::First => true,
        Rule::Select => index > 0 || func.value_data(v).is_tile(),
        _ => false,
    }
}

/// The extents that these operands, with their numbers, can all be taken to; `None` where there are none, or all have them already.
pub(super) fn common_extents(
    func: &Function,
    rule: Rule,
    operands: impl Iterator<Item = (usize, Value)>,
) -> Option<Shape> {
    let mut operands = operands.filter(|&(n, v)| takes_part(func, rule, n, v)).map(|(_, v)| v);
    let mut all = Shape::from_slice(extents(func.value_data(operands.next()?))?);
    let mut differ = false;
    for v in operands {
        let own = extents(func.value_data(v))?;
        if *all == *own {
            continue;
        }
        differ = true;
        if all.is_empty() {
            all = own.into();
        } else if !own.is_empty() {
            if own.len() != all.len() {
                return None;
            }
            for (m, &n) in all.iter_mut().zip(own) {
                if *m != n && *m != 1 && n != 1 {
                    return None;
                }
                *m = n.max(*m);
            }
        }
    }
    differ.then_some(all)
}

/// The extents of a type, if all operands can be taken to them and one has others: literals alone beside them have that type.
pub(super) fn extents_of(
    func: &Function,
    rule: Rule,
    mut operands: impl Iterator<Item = (usize, Value)>,
    ty: Type,
) -> Option<Shape> {
    let to = Shape::from_slice(extents(func.type_data(ty))?);
    let mut differ = false;
    let fit = operands.all(|(n, v)| match extents(func.value_data(v)) {
        Some(own) if takes_part(func, rule, n, v) => {
            differ |= *own != *to;
            own.len() == to.len() && own.iter().zip(&to).all(|(&m, &n)| m == n || m == 1)
        }
        _ => true,
    });
    (fit && differ).then_some(to)
}

/// The op that takes operand `index` to these extents, and its result type; `None` where it has them or takes no part.
pub(super) fn widening(
    func: &mut Function,
    rule: Rule,
    index: usize,
    v: Value,
    to: &[u32],
) -> Option<(Opcode, Type)> {
    let data = func.value_data(v);
    let (own, elem) = (extents(data)?, data.elem()?);
    if own == to || !takes_part(func, rule, index, v) {
        return None;
    }
    let opcode = if own.is_empty() { Opcode::Splat } else { Opcode::Broadcast };
    Some((opcode, func.intern_type(TypeData::tile(to, elem))))
}
