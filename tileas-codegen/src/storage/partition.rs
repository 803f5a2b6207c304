//! Which values of shared and tensor memory share one storage.
//!
//! In: a function with placed tiles. Out: [`Partition`], a representative (the first member) per value. Ties: a dot's
//! accumulator and result; a `for`'s init, argument, yield and result; an `if`'s yields and results; slices with their
//! tile. A constant joins nothing: it occupies no memory. Scheduling and buffer assignment both start from here.
//! Cost: near-linear in the values.

use super::access::is_stored;
use super::webs::{for_args, is_constant, region_yields};
use crate::error::{Code, CodegenError};
use crate::ir::{Function, Op, Opcode, Value};
use cranelift_entity::SecondaryMap;

/// Disjoint sets of values.
#[derive(Default)]
pub struct Partition {
    /// Number of the parent + 1; 0 = a representative.
    parent: SecondaryMap<Value, u32>,
    /// The first tie of unequal spaces (E0604).
    pub error: Option<CodegenError>,
}

impl Partition {
    /// Finds the sets.
    pub fn find(func: &Function) -> Partition {
        let mut p = Partition::default();
        p.parent.resize(func.num_values());
        for op in func.ops() {
            match func.opcode(op) {
                Opcode::Dot | Opcode::AsyncDot => {
                    p.pair(func, func.named_operand(op, "acc"), func.result(op), op);
                }
                Opcode::ExtractSlice => p.pair(func, func.named_operand(op, "source"), func.result(op), op),
                Opcode::For => {
                    let (args, yields) = (for_args(func, op), region_yields(func, op, 0));
                    for (i, &arg) in args.iter().enumerate() {
                        let init = func.named_segment(op, "inits").get(i);
                        for v in [init, yields.get(i), func.results(op).get(i)] {
                            p.pair(func, v.copied(), Some(arg), op);
                        }
                    }
                }
                Opcode::If => {
                    for n in 0..func.regions(op).len() {
                        for (&y, &r) in region_yields(func, op, n).iter().zip(func.results(op)) {
                            p.pair(func, Some(y), Some(r), op);
                        }
                    }
                }
                _ => {}
            }
        }
        p
    }

    fn pair(&mut self, func: &Function, a: Option<Value>, b: Option<Value>, op: Op) {
        let (Some(a), Some(b)) = (a, b) else { return };
        if !is_stored(func, a) || !is_stored(func, b) || is_constant(func, a) || is_constant(func, b) {
            return;
        }
        if func.value_data(a).space() != func.value_data(b).space() {
            self.error.get_or_insert_with(|| {
                let text = format!("{} is tied to {}", func.value_data(a), func.value_data(b));
                CodegenError::new(Code::E0604, func.op_loc(op), text)
            });
        }
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.parent[a.max(b)] = a.min(b).as_u32() + 1;
        }
    }

    /// As [`Partition::root`], without shortening the way.
    pub fn root_of(&self, v: Value) -> Value {
        let mut r = v;
        while self.parent[r] != 0 {
            r = Value::from_u32(self.parent[r] - 1);
        }
        r
    }

    /// The first member of a value's set.
    pub fn root(&mut self, v: Value) -> Value {
        let r = self.root_of(v);
        let mut c = v;
        while c != r {
            let next = Value::from_u32(self.parent[c] - 1);
            self.parent[c] = r.as_u32() + 1;
            c = next;
        }
        r
    }
}
