//! What kernels have, so that a generator that no longer reaches something is noticed.

use crate::kernel::{End, Form, Given, Kernel, Ty, Use, each_stmt};
use std::collections::BTreeMap;

/// What a kernel has, each once.
pub fn features(k: &Kernel) -> Vec<&'static str> {
    let mut list = Vec::new();
    let mut has = |what: &'static str, it: bool| {
        if it && !list.contains(&what) {
            list.push(what);
        }
    };
    let mut defined: BTreeMap<usize, &str> = BTreeMap::new();
    let mut carried: Vec<usize> = Vec::new();
    let (mut loaded, mut dots) = (Vec::new(), Vec::new());
    let mut places = Vec::new();
    has("several CTAs", k.grid > 1);
    has("options", !k.options.is_empty());
    has("approximate", !k.exact);
    for (_, given) in &k.params {
        if let Given::View(shape, ..) = given {
            has("ragged", shape.iter().any(|n| n % 16 != 0 && *n > 1));
        }
    }
    each_stmt(
        &k.body,
        &mut |s, depth| match &s.form {
            Form::For | Form::Loop(_) => {
                has("loop", true);
                has("loop with tests", s.form != Form::For);
                has("nested loop", depth > 0);
                let inner = &s.blocks[0];
                for (&a, u) in inner.args[1..].iter().zip(&s.uses[3..]) {
                    carried.push(a);
                    if let Use::Val(id) = u {
                        has("dot starts a carried tile", dots.contains(id));
                    }
                }
                has("tile carried", s.results.iter().any(|&r| matches!(k.types[r], Ty::Tile(..))));
                has(
                    "two tiles carried",
                    s.results.iter().filter(|&&r| matches!(k.types[r], Ty::Tile(..))).count() > 1,
                );
                has("scalar carried", s.results.iter().any(|&r| matches!(k.types[r], Ty::Scalar(_))));
                let swapped = inner.yields.iter().enumerate().any(|(n, y)| {
                    inner.args[1..].iter().enumerate().any(|(m, &a)| m != n && *y == Use::Val(a))
                });
                has("carried tiles exchanged", swapped);
            }
            Form::If => {
                has("if", true);
                has("if with results", !s.results.is_empty());
                has("if in a loop", depth > 0);
                has("break", s.blocks.iter().any(|b| b.end == End::Breaks));
                has("continue", s.blocks.iter().any(|b| b.end == End::Continues));
                has("early return", s.blocks.iter().any(|b| b.end == End::Returns));
            }
            Form::Plain { text, .. } => {
                let op = text.split(' ').next().unwrap_or("");
                let operand = |n: usize| match s.uses.get(n) {
                    Some(Use::Val(id)) => Some(*id),
                    _ => None,
                };
                if let Some(&r) = s.results.first() {
                    defined.insert(r, "");
                    if op.ends_with("dot") {
                        has("dot", true);
                        has(
                            "dot in halves",
                            matches!(&k.types[r], Ty::Tile(d, _) if d[0] > 128 || d[1] > 256),
                        );
                        has("dot on a carried tile", operand(2).is_some_and(|id| carried.contains(&id)));
                        has("dot on the result of a dot", operand(2).is_some_and(|id| dots.contains(&id)));
                        let computed = |id: usize| !loaded.contains(&id);
                        has(
                            "computed operand of a dot",
                            operand(0).is_some_and(computed) || operand(1).is_some_and(computed),
                        );
                        dots.push(r);
                    }
                    if op.ends_with("load") {
                        loaded.push(r);
                        has("scalar from memory", matches!(k.types[r], Ty::Scalar(_)));
                        has("TMA load", op.contains("tma"));
                        places.push(s.uses.clone());
                    }
                }
                if op == "tiled_store" {
                    has("store in a loop", depth > 0);
                    let view = operand(1);
                    let read = k
                        .params
                        .iter()
                        .any(|(id, g)| Some(*id) == view && matches!(g, Given::View(_, _, "ints")));
                    has("store into a view that may be read", read);
                    has("store to where a load was", places.contains(&s.uses[1..].to_vec()));
                }
                for &r in &s.results {
                    has("i64", k.types[r].elem() == crate::kernel::Elem::I64);
                    has("f64", k.types[r].elem() == crate::kernel::Elem::F64);
                    has("float of a byte", k.types[r].elem().is_tiny());
                }
                has("word of rematerialisation", text.contains("tileas."));
                has("reduce", op == "reduce");
                has("select", op == "select");
                has("broadcast", op == "broadcast");
                has("atomic", op == "atomic_rmw");
                has("print", op == "print");
                has("assert", op == "assert");
            }
        },
        0,
    );
    list
}
