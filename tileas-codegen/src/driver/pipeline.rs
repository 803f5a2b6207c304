//! Lists of passes: parsed, checked when they are built, run through the stages of the driver.
//!
//! In: text such as `agents,place,tileas-generate-schedule{scheduler=cost},buffers`, or [`Pipeline::standard`]. Out: what
//! [`Context::run_to`] gives. Guarantee: a [`Pipeline`] keeps the ordering invariants; every pass finds what it needs,
//! in the state it needs it. The list starts with a kernel in value form, unless its first pass works on a later form.

use super::{Context, Stage, StageRun};
use crate::error::{Code, CodegenError, CodegenResult, Errors, Loc};
use crate::ir::Module;
use crate::isa::TargetIsa;
use crate::pass::{Facts, ORDER, PASSES, PREPARATION, PassInfo, Step};
use crate::settings::Settings;
use std::fmt;

/// A pass in a pipeline, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassUse {
    /// The pass.
    pub info: &'static PassInfo,
    /// Options as name and value.
    pub options: Vec<(String, String)>,
}

/// A list of passes in a legal order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    passes: Vec<PassUse>,
    steps: Vec<Step>,
}

fn malformed(text: impl Into<String>) -> CodegenError {
    CodegenError::new(Code::E1005, Loc::NONE, text)
}

/// Splits at commas outside of braces.
fn items(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut out) = (0i32, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                out.push(&text[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    out.push(&text[from..]);
    out
}

/// One pass: `name`, or `name{option=value option}`.
fn parse_use(item: &str) -> CodegenResult<PassUse> {
    let item = item.trim();
    let (name, options) = match item.split_once('{') {
        None => (item, ""),
        Some((name, rest)) => match rest.strip_suffix('}') {
            Some(options) if !options.contains(['{', '}']) => (name.trim_end(), options),
            _ => {
                return Err(malformed(format!(
                    "`{item}`: options stand in one pair of braces behind the name"
                )));
            }
        },
    };
    if name.is_empty() {
        return Err(malformed("a pass without a name"));
    }
    let Some(info) = PassInfo::find(name) else {
        let known: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
        let error = malformed(format!("unknown pass `{name}`"));
        return Err(error.note(Loc::NONE, format!("passes are {}", known.join(", "))));
    };
    let mut out = PassUse { info, options: Vec::new() };
    let mut probe = Settings::builder();
    for pair in options.split([' ', ',']).filter(|p| !p.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
        let key = key.replace('_', "-");
        if !info.options.contains(&key.as_str()) {
            let text = format!("pass `{}` has no option `{key}`", info.name);
            let list = if info.options.is_empty() { "none".to_owned() } else { info.options.join(", ") };
            return Err(CodegenError::new(Code::E1002, Loc::NONE, text)
                .note(Loc::NONE, format!("its options: {list}")));
        }
        probe.set(&key, value)?;
        out.options.push((key, value.to_owned()));
    }
    Ok(out)
}

impl Pipeline {
    /// The pipeline of [`Context::compile`].
    pub fn standard() -> Pipeline {
        let passes = Step::STANDARD.iter().filter_map(|&s| PassInfo::of(s));
        let passes: Vec<PassUse> = passes.map(|info| PassUse { info, options: Vec::new() }).collect();
        Pipeline { passes, steps: Step::STANDARD.to_vec() }
    }

    /// Reads a list of passes, separated by commas, each with options in braces: `a,b{option=value flag},c`.
    ///
    /// # Errors
    /// `E1005` for an unknown pass or a malformed list, `E1002` and `E1003` for options, and those of
    /// [`Pipeline::build`].
    pub fn parse(text: &str) -> CodegenResult<Pipeline> {
        let ([name, short], preparation) = PREPARATION;
        let expand =
            |item| if [name, short].contains(&str::trim(item)) { items(preparation) } else { vec![item] };
        let passes = items(text).into_iter().flat_map(expand).map(parse_use);
        Pipeline::build(passes.collect::<CodegenResult<Vec<PassUse>>>()?)
    }

    /// A pipeline of these passes.
    ///
    /// # Errors
    /// `E1007` where an ordering invariant is broken, `E1006` where a pass lacks what it needs: because nothing before it
    /// gives that, or because a pass in between does not preserve it. Both name the two passes.
    pub fn build(passes: Vec<PassUse>) -> CodegenResult<Pipeline> {
        if passes.is_empty() {
            return Err(malformed("no passes"));
        }
        for order in ORDER {
            let second = passes.iter().position(|p| p.info.name == order.second);
            let late = second.filter(|&at| passes[at..].iter().any(|p| p.info.name == order.first));
            let before = second.is_some_and(|at| passes[..at].iter().any(|p| p.info.name == order.first));
            if late.is_some() && !before {
                let text = format!("`{}` must run before `{}`", order.first, order.second);
                return Err(CodegenError::new(Code::E1007, Loc::NONE, text).note(Loc::NONE, order.why));
            }
        }
        // Kernels that are materialised already enter where thread-level code is made of them.
        let first = passes.first().map_or(Facts::NONE, |p| p.info.requires);
        let source = Facts::SOURCE | Facts::BOXES;
        let start = if first.has(Facts::MATERIALIZED) { Facts::MATERIALIZED } else { source };
        let mut held = start;
        for (i, pass) in passes.iter().enumerate() {
            if let Some(missing) = pass.info.requires.without(held).iter().next() {
                return Err(lacking(&passes[..i], pass.info, missing, start));
            }
            held = held.and(pass.info.preserves) | pass.info.provides;
        }
        let steps = passes.iter().map(|p| p.info.step).collect();
        Ok(Pipeline { passes, steps })
    }

    /// The passes.
    pub fn passes(&self) -> &[PassUse] {
        &self.passes
    }

    /// The steps of the driver it consists of.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The stage whose text shows what the last pass did.
    pub fn stage(&self) -> Stage {
        match self.steps.last() {
            None => Stage::Ir,
            Some(Step::Ptx) => Stage::Ptx,
            Some(step) => step.stage(),
        }
    }

    /// These settings with the options of the passes; of two values for one option, the later holds.
    ///
    /// # Errors
    /// Those of [`crate::settings::SettingsBuilder::set`]; none for a pipeline that was parsed.
    pub fn settings(&self, settings: &Settings) -> CodegenResult<Settings> {
        let mut builder = settings.to_builder();
        for (name, value) in self.passes.iter().flat_map(|p| &p.options) {
            builder.set(name, value)?;
        }
        Ok(builder.finish())
    }

    /// Takes all kernels of a module through the passes.
    ///
    /// # Errors
    /// As [`Context::run_to`]; `E1004` where a kernel is not in the form in which the pipeline starts.
    pub fn run(
        &self,
        context: &mut Context,
        module: &Module,
        isa: &dyn TargetIsa,
        settings: &Settings,
    ) -> Result<StageRun, Errors> {
        let settings = self.settings(settings)?;
        context.run_steps(&self.steps, module, isa, &settings)
    }
}

/// The error about a pass that lacks `missing`, in a pipeline that starts with `start`.
fn lacking(before: &[PassUse], pass: &PassInfo, missing: Facts, start: Facts) -> CodegenError {
    let given = before.iter().rposition(|p| p.info.provides.has(missing));
    let dropped =
        before.iter().rposition(|p| !p.info.preserves.has(missing) && !p.info.provides.has(missing));
    let text = match (given, dropped) {
        (Some(g), Some(d)) if d > g => format!(
            "`{}` needs {missing}, which `{}` gave and `{}` does not preserve",
            pass.name, before[g].info.name, before[d].info.name
        ),
        (None, Some(d)) if start.has(missing) => {
            format!("`{}` needs {missing}, which `{}` does not preserve", pass.name, before[d].info.name)
        }
        _ => match PASSES.iter().find(|p| p.provides.has(missing)) {
            Some(giver) => format!("`{}` needs {missing}: `{}` must run before it", pass.name, giver.name),
            None => format!("`{}` needs {missing}", pass.name),
        },
    };
    CodegenError::new(Code::E1006, Loc::NONE, text)
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pass) in self.passes.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            f.write_str(pass.info.name)?;
            if !pass.options.is_empty() {
                let options: Vec<String> = pass.options.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "{{{}}}", options.join(" "))?;
            }
        }
        Ok(())
    }
}
