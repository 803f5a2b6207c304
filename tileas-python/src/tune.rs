//! Tuning, point by point: what is tried where is for Python to say.

use crate::{raise_as, settings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tileas_codegen::Context;
use tileas_tune::{Argument, Axis, Error, Look, Space};

#[cold]
fn raise(py: Python<'_>, error: &Error) -> PyErr {
    raise_as(py, error.code, &error.message, &[])
}

#[derive(FromPyObject)]
enum Value {
    Int(i64),
    Float(f64),
    Shape(Vec<i64>),
    Text(String),
}

/// A kernel, what may be changed, arguments.
#[pyclass(frozen)]
pub struct Tuner(tileas_tune::Tuner);

#[pymethods]
impl Tuner {
    #[new]
    fn new(
        py: Python<'_>,
        text: &str,
        kernel: Option<&str>,
        axes: Vec<String>,
        args: Vec<(String, Value)>,
        options: Vec<String>,
    ) -> PyResult<Tuner> {
        let settings = settings(py, &options)?;
        let module = Context::new()
            .parse(text, &settings)
            .map_err(|e| crate::raise(py, &tileas_jit::Error::from(e)))?;
        let names: Vec<&str> = module.functions.iter().map(|f| f.name.as_str()).collect();
        let kernel = match (kernel, names.as_slice()) {
            (Some(kernel), _) => kernel,
            (None, [one]) => one,
            (None, _) => {
                let text = format!("several kernels; name one of {}", names.join(", "));
                return Err(PyValueError::new_err(text));
            }
        };
        let args = args.into_iter().map(|(name, value)| {
            let value = match value {
                Value::Int(n) => Argument::Int(n),
                Value::Float(x) => Argument::Float(x),
                Value::Shape(extents) => Argument::View(extents, None),
                Value::Text(text) => Argument::Text(text),
            };
            (name, value)
        });
        let made = axes.iter().map(|a| Axis::parse(a)).collect::<Result<Vec<_>, _>>().and_then(Space::new);
        let made =
            made.and_then(|space| tileas_tune::Tuner::new(&module, kernel, &settings, space, args.collect()));
        made.map(Tuner).map_err(|e| raise(py, &e))
    }

    #[getter]
    fn points(&self) -> usize {
        self.0.space().points()
    }

    /// Compiles a point and models its time: a document.
    fn look(&self, py: Python<'_>, point: Vec<usize>) -> String {
        py.detach(|| serde_json::to_string(&self.0.look(&mut Context::new(), &point)).unwrap_or_default())
    }

    /// The text of a point's kernel, and its options as `NAME=VALUE`.
    fn configuration(&self, py: Python<'_>, point: Vec<usize>) -> PyResult<(String, Vec<String>)> {
        let text = self.0.text(&point).map_err(|e| raise(py, &e))?;
        let options = self.0.space().values(&point);
        let options = options.filter(|(axis, _)| axis.what == tileas_tune::What::Option);
        Ok((text, options.map(|(axis, value)| format!("{}={value}", axis.name)).collect()))
    }
}

/// Which points to look at.
#[pyclass]
pub struct Search(tileas_tune::Search);

#[pymethods]
impl Search {
    #[new]
    fn new(tuner: &Tuner, budget: Option<usize>) -> Search {
        Search(tileas_tune::Search::new(tuner.0.space(), tuner.0.start(), budget))
    }

    fn next_batch(&mut self) -> Vec<Vec<usize>> {
        self.0.next_batch()
    }

    /// Tells the search of a look, as the document that [`Tuner::look`] gave.
    fn tell(&mut self, look: &str) -> PyResult<()> {
        let look = read(look)?;
        self.0.tell(&look.point, look.time.is_some().then(|| look.cost()));
        Ok(())
    }

    #[getter]
    fn best(&self) -> Option<Vec<usize>> {
        self.0.best().map(|(point, _)| point.clone())
    }
}

fn read(look: &str) -> PyResult<Look> {
    serde_json::from_str(look).map_err(|e| PyValueError::new_err(format!("no look: {e}")))
}

/// Looks as a drawing.
#[pyfunction]
pub fn plot(title: &str, looks: Vec<String>) -> PyResult<String> {
    let looks = looks.iter().map(|l| read(l)).collect::<PyResult<Vec<Look>>>()?;
    Ok(tileas_tune::plot::svg(title, &looks))
}
