//! Points of a space, tried.

use crate::error::{Code, Error};
use crate::model::{self, Time};
use crate::retile::{Class, Dimensions, split_constants};
use crate::space::{Point, Space, What};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tileas_codegen::ir::{Function, Module, Op, TypeData, print_function};
use tileas_codegen::{Context, Settings, Stage};
use tileas_interp as interp;
use tileas_launch::{Arg, Device, Named, View};

/// An argument, which may depend on the extents that are tried.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A view's extents and, if they are not those of rows without gaps, strides.
    View(Vec<i64>, Option<Vec<i64>>),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// As written: for a view extents, `200x136`, and strides behind a slash, `200x136/144,1`; a floating-point number; for an integer an
    /// expression over views (`a.d1`) and axes (`bk`), such as `ceildiv(a.d1, bk)`.
    Text(String),
}

impl Argument {
    /// Extents and strides as written.
    fn view(text: &str) -> Result<Argument, String> {
        let (extents, strides) = match text.split_once('/') {
            Some((extents, strides)) => (extents, Some(strides)),
            None => (text, None),
        };
        let list = |text: &str, by: char| -> Result<Vec<i64>, String> {
            let number = |n: &str| n.trim().parse().ok().filter(|&n: &i64| n >= 0);
            let numbers = text.split(by).map(number).collect::<Option<_>>();
            numbers.ok_or_else(|| format!("`{text}`: extents such as 200x136 are wanted"))
        };
        Ok(Argument::View(list(extents, 'x')?, strides.map(|s| list(s, ',')).transpose()?))
    }
}

/// What a point came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// The point.
    pub point: Point,
    /// Values by axis.
    pub values: Vec<(String, String)>,
    /// What was modelled; `None`: it does not compile or cannot be launched.
    pub time: Option<Time>,
    /// Why there is none.
    pub error: Option<String>,
    /// Bytes of shared memory.
    pub smem: u32,
    /// Measured microseconds, by whoever has a GPU.
    pub measured_us: Option<f64>,
    /// Initiation interval and stages of each scheduled loop, in cycles of the schedule's model.
    pub loops: Vec<(u32, u32)>,
}

impl Look {
    /// What points are compared by: microseconds, measured if they were; of equal ones the shorter CTA is better.
    pub fn cost(&self) -> f64 {
        match (&self.time, self.measured_us) {
            (_, Some(us)) => us,
            (Some(time), None) => time.us + time.cta_clocks as f64 * 1e-9,
            (None, None) => f64::INFINITY,
        }
    }
}

/// A kernel, what may be changed, and the arguments it is tuned for. Immutable: points may be tried on any number of threads.
#[derive(Clone)]
pub struct Tuner {
    func: Function,
    /// Constants with an op for each use, each with the first.
    copies: Vec<(Op, Op)>,
    target: Option<String>,
    /// The text, for places in errors.
    source: Option<Arc<str>>,
    settings: Settings,
    space: Space,
    /// By axis.
    classes: Vec<Option<Class>>,
    dimensions: Dimensions,
    args: Vec<(String, Argument)>,
    /// The GPU that is modelled.
    device: Device,
}

impl Tuner {
    /// Of a kernel in a module.
    ///
    /// # Errors
    /// `E1501`: the module has no such kernel. `E1502`: a dimension that cannot be changed, or two axes that change the same.
    /// `E1503`: a parameter without an argument or of another kind, an argument without a parameter, an expression that has no value.
    pub fn new(
        module: &Module,
        kernel: &str,
        settings: &Settings,
        space: Space,
        mut args: Vec<(String, Argument)>,
    ) -> Result<Tuner, Error> {
        let all = &module.functions;
        let func = all.iter().find(|f| f.name == kernel).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|f| f.name.as_str()).collect();
            Error::new(Code::E1501, format!("the module has no kernel {kernel}; it has {}", names.join(", ")))
        })?;
        let (func, copies) = split_constants(func);
        let func = &func;
        let dimensions = Dimensions::of(func);
        let mut classes: Vec<Option<Class>> = Vec::new();
        for axis in &space.axes {
            let class = match &axis.what {
                What::Tile { view, dim } => Some(dimensions.class(func, view, *dim)?),
                What::Option => None,
            };
            if let Some(n) = class.and_then(|_| classes.iter().position(|&c| c == class)) {
                let text = format!("{} and {} are the same extent", space.axes[n].name, axis.name);
                return Err(Error::new(Code::E1502, text));
            }
            classes.push(class);
        }
        for &p in func.params() {
            let name = func.value_name(p).unwrap_or_default();
            let wrong = |what: &str| Err(Error::new(Code::E1503, format!("{name}: {what}")));
            let mut given = args.iter_mut().find(|(n, _)| n == name).map(|(_, a)| a);
            if let (TypeData::View { .. }, Some(Argument::Text(text))) =
                (func.value_data(p), given.as_deref())
            {
                match Argument::view(text) {
                    Ok(view) => given.iter_mut().for_each(|given| **given = view.clone()),
                    Err(why) => return wrong(&why),
                }
            }
            match (func.value_data(p), given.as_deref()) {
                (_, None) => return wrong("there is no argument for it"),
                (TypeData::View { dims, .. }, Some(Argument::View(extents, strides))) => {
                    let ranks = [Some(extents.len()), strides.as_ref().map(Vec::len)];
                    if ranks.into_iter().flatten().any(|n| n != dims.len()) {
                        return wrong(&format!("it has {} dimensions", dims.len()));
                    }
                }
                (TypeData::View { .. }, _) => return wrong("a view is wanted: its extents"),
                (_, Some(Argument::View(..))) => return wrong("a number is wanted"),
                _ => {}
            }
        }
        let known = |name: &str| func.params().iter().any(|&p| func.value_name(p) == Some(name));
        if let Some((name, _)) = args.iter().find(|(name, _)| !known(name)) {
            return Err(Error::new(Code::E1503, format!("{name}: {kernel} has no such parameter")));
        }
        let sms = tileas_isa::isa_for(module, settings)?.machine().gpu_number("sms");
        let (func, target, source) = (func.clone(), module.target.clone(), module.source.clone());
        let tuner = Tuner {
            func,
            copies,
            target,
            source,
            settings: settings.clone(),
            space,
            classes,
            dimensions,
            args,
            device: Device { sms },
        };
        // Expressions that mean nothing mean nothing anywhere.
        tuner.arguments(&tuner.start())?;
        Ok(tuner)
    }

    /// What may be changed.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The point that is nearest to what the kernel and the options say now: their values where the space has them, else those in the
    /// middle.
    pub fn start(&self) -> Point {
        let axes = self.space.axes.iter().zip(&self.classes);
        axes.map(|(axis, class)| {
            let now = match class {
                Some(class) => Some(self.dimensions.extent(*class).to_string()),
                None => self.settings.get(&axis.name),
            };
            let found = now.and_then(|now| axis.values.iter().position(|v| *v == now));
            found.unwrap_or(axis.values.len() / 2)
        })
        .collect()
    }

    /// The kernel of a point, as a module of its own, and the options.
    ///
    /// # Errors
    /// `E1501`: the space has no such point.
    pub fn configuration(&self, point: &[usize]) -> Result<(Module, Settings), Error> {
        let mut settings = self.settings.clone();
        let mut changes = Vec::new();
        if point.len() != self.space.axes.len() || self.space.values(point).count() != point.len() {
            return Err(Error::new(Code::E1501, format!("the space has no point {point:?}")));
        }
        for ((axis, value), class) in self.space.values(point).zip(&self.classes) {
            match class {
                // Values were looked at when the space was made.
                Some(class) => changes.push((*class, value.parse().unwrap_or(1))),
                None => settings = settings.with(&axis.name, value)?,
            }
        }
        let func = self.dimensions.retile(&self.func, &self.copies, &changes);
        let mut module = Module::new();
        module.functions.push(func);
        module.target.clone_from(&self.target);
        module.source.clone_from(&self.source);
        Ok((module, settings))
    }

    /// The text of the kernel of a point.
    ///
    /// # Errors
    /// As [`Tuner::configuration`].
    pub fn text(&self, point: &[usize]) -> Result<String, Error> {
        let (module, _) = self.configuration(point)?;
        let target = module.target.as_ref().map(|t| format!("target {t}\n\n")).unwrap_or_default();
        Ok(target + &module.functions.iter().map(print_function).collect::<String>())
    }

    /// The arguments at a point, in the order of the parameters.
    ///
    /// # Errors
    /// `E1503`: an expression that has no value.
    pub fn arguments(&self, point: &[usize]) -> Result<Vec<Arg>, Error> {
        let mut named = Named::default();
        for (axis, value) in self.space.values(point) {
            if let Ok(n) = value.parse::<i64>() {
                named.insert(&axis.name, n);
            }
        }
        let wrong = |name: &str, what: String| Error::new(Code::E1503, format!("{name}: {what}"));
        for (name, arg) in &self.args {
            if let Argument::View(extents, strides) = arg {
                let elem = self.elem(name);
                let mut view = View::dense(0, elem.unwrap_or(tileas_launch::Elem::U8), extents);
                if let Some(strides) = strides {
                    view.strides = strides.as_slice().into();
                }
                named.insert(name, view);
            }
        }
        let mut args = Vec::new();
        for &p in self.func.params() {
            let name = self.func.value_name(p).unwrap_or_default();
            let float = matches!(self.func.value_data(p), TypeData::Scalar(s) if s.is_float());
            let arg = match self.args.iter().find(|(n, _)| n == name).map(|(_, a)| a) {
                Some(Argument::View(..)) => {
                    named.get(name).cloned().ok_or_else(|| wrong(name, "no view".into()))?
                }
                Some(Argument::Float(x)) if float => (*x).into(),
                Some(Argument::Int(n)) if float => (*n as f64).into(),
                Some(Argument::Int(n)) => (*n).into(),
                Some(Argument::Text(text)) if float => {
                    text.parse::<f64>().map_err(|e| wrong(name, format!("`{text}`: {e}")))?.into()
                }
                Some(Argument::Text(text)) => named
                    .value(text, &self.device)
                    .map_err(|e| wrong(name, format!("`{text}`: {}", e.message)))?
                    .into(),
                _ => return Err(wrong(name, "an integer or an expression is wanted".into())),
            };
            args.push(arg);
        }
        Ok(args)
    }

    /// Element type of a parameter that is a view.
    fn elem(&self, name: &str) -> Option<tileas_launch::Elem> {
        let p = self.func.params().iter().find(|&&p| self.func.value_name(p) == Some(name))?;
        match self.func.value_data(*p) {
            // What is packed is passed as bytes.
            TypeData::View { elem, .. } if elem.is_packed() => Some(tileas_launch::Elem::I8),
            TypeData::View { elem, .. } => tileas_launch::Elem::by_name(elem.name()),
            _ => None,
        }
    }

    /// Compiles a point and models its time.
    pub fn look(&self, context: &mut Context, point: &[usize]) -> Look {
        let values = self.space.values(point).map(|(axis, v)| (axis.name.clone(), v.to_owned())).collect();
        let mut look = Look {
            point: point.to_vec(),
            values,
            time: None,
            error: None,
            smem: 0,
            measured_us: None,
            loops: Vec::new(),
        };
        if let Err(error) = self.look_into(context, point, &mut look) {
            look.error = Some(error.to_string());
        }
        look
    }

    fn look_into(&self, context: &mut Context, point: &[usize], look: &mut Look) -> Result<(), Error> {
        let (module, settings) = self.configuration(point)?;
        let args = self.arguments(point)?;
        let isa = tileas_isa::isa_for(&module, &settings)?;
        let run = context.run_to(Stage::Metadata, &module, &*isa, &settings)?;
        let nothing = || Error::new(Code::E1501, "nothing came out of the compiler");
        let state = run.kernels.first().ok_or_else(nothing)?;
        let metadata = state.metadata.as_ref().ok_or_else(nothing)?;
        let launch = metadata.launch(&args, &self.device, None)?;
        look.smem = metadata.dynamic_smem;
        look.loops = state.loops().map(|(_, s)| (s.ii, s.stage_count)).collect();
        let plain: Vec<interp::Arg> =
            args.iter().zip(self.func.params()).map(|(arg, &p)| self.plain(arg, p)).collect();
        look.time = model::time(state, &*isa, &plain, launch.grid);
        Ok(())
    }

    /// An argument as the interpreter takes it.
    fn plain(&self, arg: &Arg, param: tileas_codegen::ir::Value) -> interp::Arg {
        match (arg, self.func.value_data(param)) {
            (Arg::View(v), TypeData::View { elem, .. }) => interp::Arg::View(interp::View {
                buffer: 0,
                offset: 0,
                sizes: v.extents.iter().copied().collect(),
                strides: v.strides.iter().copied().collect(),
                elem: *elem,
            }),
            (Arg::Float(x), _) => interp::Arg::Float(*x),
            (Arg::Int(n), _) => interp::Arg::Int(*n),
            (Arg::View(_), _) => interp::Arg::Int(0),
        }
    }
}
