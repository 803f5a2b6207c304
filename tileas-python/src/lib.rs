//! The part of the Python package that is Rust: devices, tensors, kernels, tuning. `python/tileas` has the part that users see, and what
//! arrays of numpy and of others are.
//!
//! In: texts, numbers, bytes, tensors. Out: the same. Guarantee: an error is a `tileas.Error` with a code; the interpreter's lock is not held
//! while something is compiled, launched, copied or waited for.

mod ffi;
mod tile_ir;
mod tune;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::cell::Cell;
use std::path::PathBuf;
use tileas_codegen::{Context, Settings};
use tileas_jit::cache::Disk;
use tileas_jit::{Cache, Code, DrawOptions, Elem, EmulatorOptions, Entry, Error, Format, KernelArg, Timing};

/// An error as `tileas.Error`.
#[cold]
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    raise_as(py, error.code.as_str(), &error.message, &error.entries())
}

#[cold]
pub(crate) fn raise_as(py: Python<'_>, code: &str, message: &str, entries: &[Entry]) -> PyErr {
    type Row<'a> = (&'a str, &'a str, &'a str, u32, u32, &'a [String]);
    let rows: Vec<Row<'_>> =
        entries.iter().map(|e| (e.code, &*e.message, &*e.file, e.line, e.column, &*e.notes)).collect();
    let made = py
        .import("tileas._errors")
        .and_then(|m| m.getattr("Error"))
        .and_then(|class| class.call1((code, message, rows)));
    made.map_or_else(|e| e, PyErr::from_value)
}

/// Runs without the interpreter's lock.
fn free<T: Send>(py: Python<'_>, body: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    py.detach(body).map_err(|e| INTERRUPT.take().unwrap_or_else(|| raise(py, &e)))
}

thread_local! {
    /// What a signal raised while a kernel ran on this thread.
    static INTERRUPT: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Whether a signal, such as that of Ctrl-C, has come that raises: a kernel may wait for ever for what does not happen.
fn interrupted() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(raised) => {
            INTERRUPT.set(Some(raised));
            true
        }
    })
}

/// Options as `NAME=VALUE`.
pub(crate) fn settings(py: Python<'_>, options: &[String]) -> PyResult<Settings> {
    let mut settings = Settings::builder();
    for option in options {
        settings.set_pair(option).map_err(|e| raise(py, &e.into()))?;
    }
    Ok(settings.finish())
}

fn elem(name: &str) -> PyResult<Elem> {
    Elem::by_name(name).ok_or_else(|| PyValueError::new_err(format!("no element type {name}")))
}

/// A device: a GPU, or the emulator.
#[pyclass(frozen)]
struct Device(tileas_jit::Device);

#[pymethods]
impl Device {
    #[staticmethod]
    fn emulator(target: String, sms: u32, timing: &str, seed: u64) -> PyResult<Device> {
        let mode = match timing {
            "fast" => Timing::Fast,
            "latest" => Timing::Latest(seed),
            "random" => Timing::Random(seed),
            _ => {
                let message = format!("no timing {timing}: fast, latest or random");
                return Err(PyValueError::new_err(message));
            }
        };
        let mut options = EmulatorOptions { target, sms, ..EmulatorOptions::default() };
        options.run.mode = mode;
        options.run.interrupted = Some(interrupted);
        Ok(Device(tileas_jit::Device::emulator_with(options)))
    }

    #[staticmethod]
    fn cuda(py: Python<'_>, ordinal: u32) -> PyResult<Device> {
        #[cfg(feature = "cuda")]
        return Ok(Device(free(py, || tileas_jit::Device::cuda(ordinal))?));
        #[cfg(not(feature = "cuda"))]
        {
            let message = format!("no GPU {ordinal}: built without the feature `cuda`");
            Err(raise(py, &Error::new(tileas_jit::Code::E1204, message)))
        }
    }

    #[getter]
    fn name(&self) -> String {
        self.0.name()
    }

    #[getter]
    fn target(&self) -> &str {
        self.0.target()
    }

    #[getter]
    fn sms(&self) -> u32 {
        self.0.sms()
    }

    fn zeros(&self, py: Python<'_>, elem_name: &str, shape: Vec<i64>) -> PyResult<Tensor> {
        let elem = elem(elem_name)?;
        Ok(Tensor(free(py, || self.0.zeros(elem, &shape))?))
    }

    fn borrow(
        &self,
        py: Python<'_>,
        address: u64,
        elem_name: &str,
        shape: Vec<i64>,
        strides: Vec<i64>,
    ) -> PyResult<Tensor> {
        let elem = elem(elem_name)?;
        Ok(Tensor(ffi::borrow_tensor(&self.0, address, elem, &shape, &strides).map_err(|e| raise(py, &e))?))
    }

    fn stream(&self, py: Python<'_>) -> PyResult<Stream> {
        Ok(Stream(free(py, || self.0.stream())?))
    }

    fn borrow_stream(&self, py: Python<'_>, raw: u64) -> PyResult<Stream> {
        Ok(Stream(ffi::borrow_stream(&self.0, raw).map_err(|e| raise(py, &e))?))
    }
}

/// Memory of a device.
#[pyclass(frozen)]
struct Tensor(tileas_jit::Tensor);

#[pymethods]
impl Tensor {
    #[getter]
    fn elem(&self) -> &'static str {
        self.0.elem().name()
    }

    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.0.extents().to_vec()
    }

    #[getter]
    fn strides(&self) -> Vec<i64> {
        self.0.strides().to_vec()
    }

    #[getter]
    fn address(&self) -> u64 {
        self.0.address()
    }

    /// `n` elements from some byte on, of any type.
    fn part(&self, py: Python<'_>, byte: usize, elem_name: &str, n: i64) -> PyResult<Tensor> {
        Ok(Tensor(self.0.part(byte, elem(elem_name)?, &[n], &[1]).map_err(|e| raise(py, &e))?))
    }

    fn write(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        // Another handle of the same memory.
        free(py, || self.0.clone().write_bytes(bytes))
    }

    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut bytes = vec![0; self.0.len() * self.0.elem().bytes() as usize];
        free(py, || self.0.read_bytes(&mut bytes))?;
        Ok(PyBytes::new(py, &bytes))
    }
}

/// An order of launches.
#[pyclass(frozen)]
struct Stream(tileas_jit::Stream);

#[pymethods]
impl Stream {
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        free(py, || self.0.synchronize())
    }
}

/// A module, read.
#[pyclass(frozen)]
struct Module(tileas_codegen::ir::Module);

#[pymethods]
impl Module {
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.0.functions.iter().map(|f| f.name.as_str()).collect()
    }
}

/// Makes kernels.
#[pyclass(frozen)]
struct Jit(tileas_jit::Jit);

#[pymethods]
impl Jit {
    #[new]
    fn new(
        py: Python<'_>,
        device: &Device,
        options: Vec<String>,
        cache: Option<PathBuf>,
        cache_bytes: Option<u64>,
    ) -> PyResult<Jit> {
        let settings = settings(py, &options)?;
        let jit = free(py, || {
            let mut builder = tileas_jit::Jit::builder(&device.0).settings(settings);
            if let Some(folder) = cache {
                let disk = Disk::open(folder)?;
                builder = builder.cache(Cache::none().with_disk(match cache_bytes {
                    Some(bytes) => disk.limit(bytes),
                    None => disk,
                }));
            }
            builder.build()
        });
        Ok(Jit(jit?))
    }

    fn parse(&self, py: Python<'_>, text: &str) -> PyResult<Module> {
        Ok(Module(free(py, || self.0.parse(text))?))
    }

    /// Kernels of CUDA Tile IR bytecode; hints of each, in the same order; warnings.
    fn tile_ir(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<(Module, Vec<tile_ir::Hints>, Vec<String>)> {
        let lowered = py.detach(|| tile_ir::lower(bytes, self.0.device().target()));
        let (module, hints, warnings) = lowered.map_err(|e| tile_ir::raise(py, &e))?;
        Ok((Module(module), hints, warnings))
    }

    fn kernel(&self, py: Python<'_>, module: &Module, name: &str) -> PyResult<Kernel> {
        Ok(Kernel(free(py, || self.0.kernel(&module.0, name))?))
    }

    fn load(&self, py: Python<'_>, ptx: &str, metadata: &str) -> PyResult<Kernel> {
        Ok(Kernel(free(py, || {
            let all = tileas_launch::json::read(metadata)?;
            let one = all.first().filter(|_| all.len() == 1).ok_or_else(|| {
                let text = format!("metadata of {} kernels where those of one are wanted", all.len());
                Error::new(Code::E1212, text)
            })?;
            self.0.kernel_of_ptx(ptx, one)
        })?))
    }

    fn explain(&self, py: Python<'_>, module: &Module, name: &str) -> PyResult<String> {
        free(py, || self.0.explain(&module.0, name))
    }

    fn draw(
        &self,
        py: Python<'_>,
        module: &Module,
        name: &str,
        format: &str,
        iterations: Option<u32>,
    ) -> PyResult<String> {
        let kind = Format::by_name(format).ok_or_else(|| {
            PyValueError::new_err(format!("no format {format}; there are gantt, svg, html, chrome-trace"))
        })?;
        let options = DrawOptions { iterations, ..DrawOptions::default() };
        free(py, || self.0.draw(&module.0, name, kind, &options))
    }

    #[getter]
    fn compiled(&self) -> u64 {
        self.0.compiled()
    }

    /// Hits on disk, misses, damaged entries, failures.
    #[getter]
    fn stats(&self) -> (u64, u64, u64, u64) {
        let stats = self.0.stats();
        (stats.disk_hits, stats.misses, stats.damaged, stats.failed)
    }
}

/// An argument of a launch.
#[derive(FromPyObject)]
enum Argument {
    Tensor(Py<Tensor>),
    Bool(bool),
    Int(i64),
    Float(f64),
}

/// A kernel, compiled and loaded.
#[pyclass(frozen)]
struct Kernel(tileas_jit::Kernel);

#[pymethods]
impl Kernel {
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn ptx(&self) -> &str {
        self.0.ptx()
    }

    #[getter]
    fn metadata(&self) -> String {
        self.0.metadata().to_json()
    }

    #[getter]
    fn machine_code<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.machine_code().map(|code| PyBytes::new(py, code.bytes()))
    }

    #[getter]
    fn assembler(&self) -> &str {
        self.0.assembler()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.0.warnings().to_vec()
    }

    /// Of each parameter: name, whether it is a view, type of its elements, whether the kernel writes there.
    /// Which parameters are addresses alone.
    #[getter]
    fn pointers(&self) -> Vec<bool> {
        let all = self.0.metadata().args.iter();
        all.map(|arg| matches!(arg.kind, tileas_launch::ArgKind::View { rank: None, .. })).collect()
    }

    #[getter]
    fn params(&self) -> Vec<(&str, bool, Option<&'static str>, bool)> {
        let all = self.0.metadata().args.iter();
        all.map(|arg| {
            (arg.name.as_str(), arg.kind.is_view(), arg.kind.elem().map(Elem::name), arg.kind.is_written())
        })
        .collect()
    }

    fn launch(
        &self,
        py: Python<'_>,
        stream: &Stream,
        grid: Option<[u32; 3]>,
        args: Vec<Argument>,
        also: Vec<Py<Tensor>>,
    ) -> PyResult<()> {
        let written =
            self.0.metadata().args.iter().map(|a| a.kind.is_written()).chain(std::iter::repeat(true));
        let list: Vec<KernelArg<'_>> = args
            .iter()
            .zip(written)
            .map(|(arg, written)| match arg {
                Argument::Tensor(tensor) => KernelArg::Tensor(&tensor.get().0, written),
                Argument::Bool(b) => (*b).into(),
                Argument::Int(n) => (*n).into(),
                Argument::Float(x) => (*x).into(),
            })
            .collect();
        let also: Vec<&tileas_jit::Tensor> = also.iter().map(|tensor| &tensor.get().0).collect();
        free(py, || self.0.launch_with(&stream.0, grid, &list, &also))
    }
}

/// All errors of a text, or none.
#[pyfunction]
fn check(py: Python<'_>, text: &str, options: Vec<String>) -> PyResult<()> {
    let settings = settings(py, &options)?;
    free(py, || {
        let mut context = Context::new();
        let module = context.parse(text, &settings)?;
        let isa = tileas_isa::isa_for(&module, &settings)?;
        context.compile(&module, &*isa, &settings)?;
        Ok(())
    })
}

#[pymodule]
fn _tileas(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Device>()?;
    module.add_class::<Tensor>()?;
    module.add_class::<Stream>()?;
    module.add_class::<Module>()?;
    module.add_class::<Jit>()?;
    module.add_class::<Kernel>()?;
    module.add_class::<tune::Tuner>()?;
    module.add_class::<tune::Search>()?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(tune::plot, module)?)
}
