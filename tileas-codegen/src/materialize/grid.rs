//! The order in which CTAs take the tiles of a product.
//!
//! In: the kernel with tiles as values. Out: a [`GridOrder`] where a loop multiplies tiles of which one operand follows one coordinate of the grid and the other operand another
//! one: what the first follows, the second may follow by numbers from memory (the rows of an expert), not the other way round. CTAs run in the order of their numbers, so those that run together would have one row or one column of the result: all tiles of one operand, and two or three of the other,
//! which the second cache does not hold. In bands of some 1000 rows of the result they share both. Any order is right: CTAs do not know when others run. Where one may wait for
//! another, in a loop that is left by what memory says, the numbers stay as they are.
//!
//! What it is worth on an H100 is in docs/performance.md: products of 8192³ are 1.05 to 1.75 times as fast, those of 4096³ 0.96 to 1.08 times.
//! Cost: linear in ops, a few times. Source of the idea: CUDA C++ programming guide on L2; Triton's tutorial on matrix products.

use crate::ir::grid::GridOrder;
use crate::ir::opcodes::{Traits, keys};
use crate::ir::{Function, Op, Opcode, Value};
use cranelift_entity::SecondaryMap;

/// Rows of the result that a band has.
const BAND: u32 = 1024;

/// The axes of the grid that a value follows, as bits.
#[derive(Copy, Clone, Default, PartialEq, Eq)]
struct Axes {
    /// By arithmetic.
    computed: u8,
    /// As what is loaded from a place that follows them.
    loaded: u8,
    /// As what is loaded from a place that memory told.
    told: u8,
}

impl Axes {
    fn join(self, other: Axes) -> Axes {
        Axes {
            computed: self.computed | other.computed,
            loaded: self.loaded | other.loaded,
            told: self.told | other.told,
        }
    }

    /// What is loaded from there.
    fn load(self) -> Axes {
        Axes { computed: 0, loaded: self.computed, told: self.loaded | self.told }
    }

    fn direct(self) -> u8 {
        self.computed | self.loaded
    }

    fn all(self) -> u8 {
        self.direct() | self.told
    }
}

/// The order for a kernel, if another than that of the numbers is better; `rows`: of a band, where the caller says so.
pub(crate) fn order(func: &Function, rows: Option<u32>) -> Option<GridOrder> {
    let program = |axis: i64| {
        func.ops()
            .any(|op| func.opcode(op) == Opcode::ProgramId && func.attr_int(op, keys::AXIS) == Some(axis))
    };
    if rows == Some(1)
        || (0..3).filter(|&axis| program(axis)).count() < 2
        || func.ops().any(|op| waits(func, op))
    {
        return None;
    }
    let axes = followed(func);
    let dots = func.ops().filter(|&op| matches!(func.opcode(op), Opcode::Dot | Opcode::AsyncDot));
    dots.filter(|&op| in_loop(func, op)).find_map(|op| {
        let &[a, b, ..] = func.operands(op) else { return None };
        let (x, y) = (axes[a], axes[b]);
        let apart =
            |p: u8, q: u8| x.all() & p != 0 && y.direct() & p == 0 && y.all() & q != 0 && x.all() & q == 0;
        let pairs = (0..3).flat_map(|p| (0..3).filter(move |&q| q != p).map(move |q| (p, q)));
        let (p, q) = pairs.into_iter().find(|&(p, q)| apart(1 << p, 1 << q))?;
        let [.., height, _] = *func.value_data(a).dims()? else { return None };
        let side = rows.unwrap_or_else(|| (BAND / height.max(1)).max(1).next_power_of_two());
        let side = side.min(GridOrder::MOST);
        (side > 1).then_some(GridOrder { rows: p, columns: q, side })
    })
}

fn in_loop(func: &Function, op: Op) -> bool {
    std::iter::successors(func.op_parent(op), |&op| func.op_parent(op))
        .any(|op| func.opcode(op) == Opcode::For)
}

/// Whether an op is a loop that is left early and looks at memory.
fn waits(func: &Function, op: Op) -> bool {
    let Some(body) = func.exit_of(op).and_then(|_| func.op_block_at(op, 0)) else { return false };
    let mut looks = false;
    func.walk(body, &mut |op| looks |= func.opcode(op).has(Traits::READS_GLOBAL));
    looks
}

/// The axes that each value follows.
fn followed(func: &Function) -> SecondaryMap<Value, Axes> {
    let mut axes: SecondaryMap<Value, Axes> = SecondaryMap::new();
    loop {
        let mut grown = false;
        let mut add = |axes: &mut SecondaryMap<Value, Axes>, v: Value, more: Axes| {
            let all = axes[v].join(more);
            grown |= all != axes[v];
            axes[v] = all;
        };
        for op in func.ops() {
            let (operands, results) = (func.operands(op), func.results(op));
            let of = |axes: &SecondaryMap<Value, Axes>, list: &[Value]| {
                list.iter().fold(Axes::default(), |all, &v| all.join(axes[v]))
            };
            let opcode = func.opcode(op);
            if opcode == Opcode::For {
                let bounds = of(&axes, operands.get(..3).unwrap_or_default());
                let yields = func.terminator(op, 0).map_or(&[][..], |t| func.operands(t));
                let params = func.op_block_at(op, 0).map_or(&[][..], |b| func.block_params(b));
                params.first().into_iter().for_each(|&index| add(&mut axes, index, bounds));
                for (n, &r) in results.iter().enumerate() {
                    let both = [operands.get(3 + n), yields.get(n)].into_iter().flatten();
                    let all = both.fold(Axes::default(), |all, &v| all.join(axes[v]));
                    params.get(1 + n).into_iter().for_each(|&p| add(&mut axes, p, all));
                    add(&mut axes, r, all.join(bounds));
                }
                continue;
            }
            let mut all = of(&axes, operands);
            for n in 0..func.regions(op).len() {
                let yields = func.terminator(op, n).map_or(&[][..], |t| func.operands(t));
                all = all.join(of(&axes, yields));
                let params = func.op_block_at(op, n).map_or(&[][..], |b| func.block_params(b));
                params.iter().for_each(|&p| add(&mut axes, p, all));
            }
            if opcode == Opcode::ProgramId {
                all.computed |= func.attr_int(op, keys::AXIS).map_or(0, |axis| 1 << axis.clamp(0, 2));
            }
            if opcode.has(Traits::READS_GLOBAL) {
                all = all.load();
            }
            results.iter().for_each(|&r| add(&mut axes, r, all));
        }
        if !grown {
            return axes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse_module;

    /// The order of a kernel whose loop multiplies a tile of `%a` by one of `%b`, at such places; `before` stands in front of the loop.
    fn order_of(before: &str, a: &str, b: &str, rows: Option<u32>) -> Option<(u32, u32, u32)> {
        let program = |n: u32| format!("%p{n} = program_id <{{axis = {n}}}> : i32\n");
        let text = format!(
            "kernel @k(%a: view<gmem, ?x?x?xf16>, %b: view<gmem, ?x?x?xf16>, %at: view<gmem, ?xi32>, %kt: i32) {{\n{}{}{}{before}
              %z = constant 0.0 : tile<128x64xf32>
              %acc = for %k = 0 to %kt step 1 iter (%s = %z : tile<128x64xf32>) {{
                %x = tiled_load %a[{a}] : tile<1x128x64xf16>
                %y = tiled_load %b[{b}] : tile<1x64x64xf16>
                %x2 = reshape %x : tile<128x64xf16>
                %y2 = reshape %y : tile<64x64xf16>
                %r = dot %x2, %y2, %s : tile<128x64xf32>
                yield %r
              }}
              return
            }}",
            program(0),
            program(1),
            program(2)
        );
        let module = parse_module(&text).unwrap_or_else(|e| panic!("{e}"));
        order(&module.functions[0], rows).map(|o| (o.rows, o.columns, o.side))
    }

    /// A number that memory has at a place.
    fn told(at: &str) -> String {
        format!("%n = tiled_load %at[{at}] : i32\n")
    }

    #[test]
    fn operands_that_follow_axes_of_their_own() {
        assert_eq!(order_of("", "0, %p0, %k", "0, %k, %p1", None), Some((0, 1, 8)));
        assert_eq!(order_of("", "0, %p1, %k", "0, %k, %p0", None), Some((1, 0, 8)));
        assert_eq!(order_of("", "%p0, %p2, %k", "%p0, %k, %p1", None), Some((2, 1, 8)));
        assert_eq!(order_of("", "0, %p0, %k", "0, %k, %p1", Some(4)), Some((0, 1, 4)));
        assert_eq!(order_of("", "0, %p0, %k", "0, %k, %p1", Some(1)), None);
    }

    #[test]
    fn operands_that_share_an_axis() {
        // Attention: queries of a head and keys of the head.
        assert_eq!(order_of("", "%p1, %p0, 0", "%p1, %k, 0", None), None);
        assert_eq!(order_of("", "%p1, %p0, 0", "0, %k, %p1", None), None);
        assert_eq!(order_of("", "0, %k, 0", "0, %k, %p1", None), None);
    }

    #[test]
    fn places_that_memory_tells() {
        // The expert of some rows; the rows of an expert, with and without columns of their own.
        assert_eq!(order_of(&told("%p0"), "0, %p0, %k", "%n, %k, %p1", None), Some((0, 1, 8)));
        assert_eq!(order_of(&told("%p1"), "%n, %p0, %k", "%p1, %k, %p2", None), Some((0, 2, 8)));
        assert_eq!(order_of(&told("%p1"), "%n, %p0, %k", "%p1, %k, 0", None), None);
    }
}
