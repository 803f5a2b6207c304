//! What the results must be: what the source computes, and what formulas say.

use super::launch::{Setup, View};
use super::{Args, Kernel, usage};
use crate::Failure;
use crate::input::say;
use std::collections::BTreeMap;
use tileas_codegen::ir::Function;
use tileas_emu::Memory;
use tileas_emu::host::check::{Reference, Tolerance, compare};
use tileas_emu::host::data::Elem;
use tileas_emu::host::formula::{self, Array};
use tileas_interp::{Bound, Fault, InterpResult, Limits, Oracle};
use tileas_launch::Arg;

/// What to do where the source does not end.
const IN_TURN: &str = "the source runs one CTA after the other: one that waits for a later one never ends. `--expect` with \
    `--scale` for the same tensor compares without running the source (with `--resident`, as CTAs run together that wait for one \
    another); `--max-steps` says how long it may run";
/// What to do where it cannot be run.
const WITHOUT: &str = "`--expect` with `--scale` for the same tensor compares without running the source";

/// References for one tensor.
struct Expected {
    name: String,
    by: &'static str,
    tolerance: Tolerance,
    /// Whether the references are doubles, which have not all bits of the elements.
    rounded: bool,
    references: Vec<Reference>,
    /// Elements whose scale is not the sum of magnitudes, since that is not finite.
    fallen_back: usize,
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
        // The source says what to compare with, and the scale of those that have a formula for the one but not for the other.
        let unscaled = |(name, _): &(String, String)| !args.scale.iter().any(|(n, _)| n == name);
        let oracle = match &kernel.source {
            Some((f, text)) if args.check || args.expect.iter().any(unscaled) => {
                let oracle = oracle(f, setup, approximate, args.max_steps).map_err(|e| {
                    let notes: &[&str] = match e.fault {
                        Fault::Limit => &[IN_TURN],
                        Fault::Unsupported => &[WITHOUT],
                        _ => &[],
                    };
                    text.report_interp(&e, notes);
                    Failure::Diagnostics
                })?;
                Some((f, oracle))
            }
            _ => None,
        };
        if let Some((name, _)) =
            args.scale.iter().find(|(n, _)| !args.check && !args.expect.iter().any(|(e, _)| e == n))
        {
            return usage(format!("--scale {name} without --expect {name} or --check"));
        }
        let formulas = Formulas::new(args, setup);
        if let Some((f, oracle)) = oracle.as_ref().filter(|_| args.check) {
            for (name, v) in &setup.views {
                let Some(n) = oracle.buffer(f, name) else { continue };
                let buffer = &oracle.after.buffers[n];
                let given = formulas.scale(name, v)?;
                // Row-major numbers of elements by their place; elements that overlap have one formula's value.
                let mut scales = vec![0.0; if given.is_some() { buffer.len() } else { 0 }];
                for (i, &x) in given.iter().flatten().enumerate() {
                    let at = (v.placed.byte(i) - v.placed.offset) / v.placed.elem.bytes();
                    scales.get_mut(at).into_iter().for_each(|s| *s = x);
                }
                let scale = |i| scales.get(i).copied().unwrap_or_else(|| oracle.scale(n, i));
                let references = buffer.written().ones().map(|i| Reference {
                    byte: v.placed.offset + i * v.placed.elem.bytes(),
                    value: buffer.number(i),
                    integer: buffer.whole(i),
                    scale: scale(i),
                });
                let tolerance = for_elem(args.tol, v.placed.elem);
                let falls_back = given.is_none() && tolerance != Tolerance::EXACT;
                judge.list.push(Expected {
                    name: name.clone(),
                    by: "the source",
                    tolerance,
                    rounded: false,
                    references: references.collect(),
                    fallen_back: match falls_back {
                        true => buffer.written().ones().filter(|&i| oracle.falls_back(n, i)).count(),
                        false => 0,
                    },
                });
            }
        }
        for (name, text) in &args.expect {
            let Some(v) = setup.views.get(name) else {
                return usage(format!("--expect {name}: no such tensor"));
            };
            let values = formulas.value("--expect", name, text, v)?;
            let scale = formulas.scale(name, v)?;
            let buffer = oracle.as_ref().and_then(|(f, o)| o.buffer(f, name).map(|n| (o, n)));
            let elem = v.placed.elem;
            let tolerance = for_elem(args.tol, elem);
            let mut fallen_back = 0;
            let references = values.into_iter().enumerate().map(|(i, x)| {
                let (byte, value) = (v.placed.byte(i), elem.decode(elem.encode(x)));
                let at = (byte - v.placed.offset) / elem.bytes();
                let scale = match (&scale, buffer) {
                    (Some(s), _) => s[i],
                    (None, Some((o, n))) => {
                        fallen_back += usize::from(tolerance != Tolerance::EXACT && o.falls_back(n, at));
                        o.scale(n, at)
                    }
                    (None, None) => value.abs(),
                };
                Reference { byte, value, integer: None, scale }
            });
            let references = references.collect();
            let (name, by) = (name.clone(), "the formula");
            let rounded = matches!(elem, Elem::Int(8, _));
            judge.list.push(Expected { name, by, tolerance, rounded, references, fallen_back });
        }
        Ok(judge)
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
    pub fn summary(&self) -> Result<(), Failure> {
        for e in self.list.iter().filter(|e| !e.references.is_empty()) {
            let how = match e.tolerance {
                // Formulas are of doubles.
                Tolerance::EXACT if e.rounded => "to 53 bits".to_owned(),
                Tolerance::EXACT => "exactly".to_owned(),
                t => format!("within {:e} of the scale", t.relative),
            };
            say(&format!("{}: {} elements agree with {}, {how}", e.name, e.references.len(), e.by))?;
            if e.fallen_back > 0 {
                say(&format!(
                    "{}: of {} of them the magnitudes are not finite; their scale is the largest number the source writes there",
                    e.name, e.fallen_back
                ))?;
            }
        }
        Ok(())
    }
}

/// Formulas of the command line, and what their names stand for.
struct Formulas<'a> {
    args: &'a Args,
    names: BTreeMap<String, Array>,
}

impl<'a> Formulas<'a> {
    fn new(args: &'a Args, setup: &Setup) -> Formulas<'a> {
        let mut names: BTreeMap<String, Array> = BTreeMap::new();
        if !args.expect.is_empty() || !args.scale.is_empty() {
            for (name, v) in &setup.views {
                let all = Array::new(&v.placed.shape, v.placed.numbers(&setup.memory));
                names.extend(all.map(|a| (name.clone(), a)));
            }
            for (name, arg) in setup.args.iter() {
                let x = match *arg {
                    Arg::Int(i) => i as f64,
                    Arg::Float(x) => x,
                    Arg::View(_) => continue,
                };
                names.insert(name.to_owned(), Array::number(x));
            }
        }
        Formulas { args, names }
    }

    /// The elements that a formula says a tensor has, in row-major order.
    fn value(&self, option: &str, name: &str, text: &str, v: &View) -> Result<Vec<f64>, Failure> {
        let value = formula::evaluate(text, &self.names).and_then(|a| a.broadcast(&v.placed.shape));
        value.map(|a| a.data).or_else(|e| usage(format!("{option} {name}: {e}")))
    }

    /// The scales of a tensor's elements, if there is a formula for them.
    fn scale(&self, name: &str, v: &View) -> Result<Option<Vec<f64>>, Failure> {
        let given = self.args.scale.iter().find(|(n, _)| n == name);
        given.map(|(_, text)| self.value("--scale", name, text, v)).transpose()
    }
}

/// Integers are compared exactly.
fn for_elem(tolerance: Tolerance, elem: Elem) -> Tolerance {
    if matches!(elem, Elem::Int(..)) { Tolerance::EXACT } else { tolerance }
}

/// What the source computes from the tensors and scalars of a launch.
fn oracle(f: &Function, setup: &Setup, scaled: bool, max_steps: u64) -> InterpResult<Oracle> {
    let bound = |name: &str| match (setup.views.get(name), setup.args.get(name)) {
        (Some(View { placed: v, .. }), _) => {
            let bytes = setup.memory.bytes(v.buffer);
            let bytes = bytes.get(v.offset..).unwrap_or(&[]);
            Some(Bound::Tensor { bytes, shape: &v.shape, strides: &v.strides })
        }
        (None, Some(&Arg::Int(i))) => Some(Bound::Int(i)),
        (None, Some(&Arg::Float(x))) => Some(Bound::Float(x)),
        _ => None,
    };
    let most = Limits::default().max_steps.min(max_steps);
    Oracle::new(f, setup.launch.grid, bound, &Limits { max_steps: most, ..Limits::default() }, scaled)
}
