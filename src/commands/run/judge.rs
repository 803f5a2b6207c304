//! What the results must be: what the source computes, and what formulas say.

use super::launch::{Setup, View};
use super::{Args, Kernel, usage};
use crate::Failure;
use std::collections::BTreeMap;
use tileas_codegen::ir::Function;
use tileas_emu::Memory;
use tileas_emu::host::HostScalar;
use tileas_emu::host::check::{Reference, Tolerance, compare};
use tileas_emu::host::data::Elem;
use tileas_emu::host::formula::{self, Array};
use tileas_interp::{Bound, InterpResult, Limits, Oracle};

/// References for one tensor.
struct Expected {
    name: String,
    by: &'static str,
    tolerance: Tolerance,
    references: Vec<Reference>,
}

/// All that results are compared with.
pub struct Judge {
    list: Vec<Expected>,
}

impl Judge {
    /// Computes the references.
    pub fn new(args: &Args, kernel: &Kernel, setup: &Setup) -> Result<Judge, Failure> {
        let mut judge = Judge { list: Vec::new() };
        let approximate = args.tol != Tolerance::EXACT;
        let oracle = match &kernel.source {
            Some((f, text)) if args.check || !args.expect.is_empty() => {
                let oracle = oracle(f, setup, approximate).map_err(|e| {
                    text.report_interp(&e);
                    Failure::Diagnostics
                })?;
                Some((f, oracle))
            }
            _ => None,
        };
        if let Some((f, oracle)) = oracle.as_ref().filter(|_| args.check) {
            for (name, v) in &setup.views {
                let Some(n) = oracle.buffer(f, name) else { continue };
                let buffer = &oracle.after.buffers[n];
                let references = buffer.written().ones().map(|i| Reference {
                    byte: v.placed.offset + i * v.placed.elem.bytes(),
                    value: buffer.number(i),
                    scale: oracle.scale(n, i),
                });
                judge.list.push(Expected {
                    name: name.clone(),
                    by: "the source",
                    tolerance: for_elem(args.tol, v.placed.elem),
                    references: references.collect(),
                });
            }
        }
        judge.formulas(args, setup, oracle.as_ref())?;
        Ok(judge)
    }

    fn formulas(
        &mut self,
        args: &Args,
        setup: &Setup,
        oracle: Option<&(&Function, Oracle)>,
    ) -> Result<(), Failure> {
        let mut names: BTreeMap<String, Array> = BTreeMap::new();
        if !args.expect.is_empty() {
            for (name, v) in &setup.views {
                let all = Array::new(&v.placed.shape, v.placed.numbers(&setup.memory));
                names.extend(all.map(|a| (name.clone(), a)));
            }
            for (name, s) in &setup.host.scalars {
                let x = match *s {
                    HostScalar::Int(i) => i as f64,
                    HostScalar::Float(x) => x,
                };
                names.insert(name.clone(), Array::number(x));
            }
        }
        if let Some((name, _)) = args.scale.iter().find(|(n, _)| !args.expect.iter().any(|(e, _)| e == n)) {
            return usage(format!("--scale {name} without --expect {name}"));
        }
        for (name, text) in &args.expect {
            let Some(v) = setup.views.get(name) else {
                return usage(format!("--expect {name}: no such tensor"));
            };
            let array = |option: &str, text: &str| {
                let value = formula::evaluate(text, &names).and_then(|a| a.broadcast(&v.placed.shape));
                value.or_else(|e| usage(format!("{option} {name}: {e}")))
            };
            let values = array("--expect", text)?.data;
            let scale = match args.scale.iter().find(|(n, _)| n == name) {
                Some((_, text)) => Some(array("--scale", text)?.data),
                None => None,
            };
            let buffer = oracle.and_then(|(f, o)| o.buffer(f, name).map(|n| (o, n)));
            let elem = v.placed.elem;
            let references = values.into_iter().enumerate().map(|(i, x)| {
                let (byte, value) = (v.placed.byte(i), elem.decode(elem.encode(x)));
                let scale = match (&scale, buffer) {
                    (Some(s), _) => s[i],
                    (None, Some((o, n))) => o.scale(n, (byte - v.placed.offset) / elem.bytes()),
                    (None, None) => value.abs(),
                };
                Reference { byte, value, scale }
            });
            let references = references.collect();
            let tolerance = for_elem(args.tol, elem);
            self.list.push(Expected { name: name.clone(), by: "the formula", tolerance, references });
        }
        Ok(())
    }

    /// Compares memory after a run.
    pub fn compare(&self, setup: &Setup, after: &Memory) -> Result<(), String> {
        for e in &self.list {
            let Some(v) = setup.views.get(&e.name) else { continue };
            let (old, new) = (setup.memory.bytes(v.placed.buffer), after.bytes(v.placed.buffer));
            compare(&e.name, &v.placed, old, new, e.references.iter().copied(), e.tolerance)
                .map_err(|d| format!("{d}, says {}", e.by))?;
        }
        Ok(())
    }

    /// Prints what has been compared.
    pub fn summary(&self) {
        for e in self.list.iter().filter(|e| !e.references.is_empty()) {
            let how = match e.tolerance {
                Tolerance::EXACT => "exactly".to_owned(),
                t => format!("within {:e} of the scale", t.relative),
            };
            println!("{}: {} elements agree with {}, {how}", e.name, e.references.len(), e.by);
        }
    }
}

/// Integers are compared exactly.
fn for_elem(tolerance: Tolerance, elem: Elem) -> Tolerance {
    if matches!(elem, Elem::Int(..)) { Tolerance::EXACT } else { tolerance }
}

/// What the source computes from the tensors and scalars of a launch.
fn oracle(f: &Function, setup: &Setup, scaled: bool) -> InterpResult<Oracle> {
    let bound = |name: &str| match (setup.views.get(name), setup.host.scalars.get(name)) {
        (Some(View { placed: v, .. }), _) => {
            let bytes = setup.memory.bytes(v.buffer);
            let bytes = bytes.get(v.offset..).unwrap_or(&[]);
            Some(Bound::Tensor { bytes, shape: &v.shape, strides: &v.strides })
        }
        (None, Some(&HostScalar::Int(i))) => Some(Bound::Int(i)),
        (None, Some(&HostScalar::Float(x))) => Some(Bound::Float(x)),
        (None, None) => None,
    };
    Oracle::new(f, setup.launch.grid, bound, &Limits::default(), scaled)
}
