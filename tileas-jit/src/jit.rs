//! Kernels on request: compiled, assembled and loaded once each, whoever asks.
//!
//! In: modules and names. Out: [`Kernel`]s. A request is looked up in memory, then in the [`Cache`], then made: compile, assemble, keep,
//! load. Guarantee: a kernel is made once per key however many threads ask at the same time, outside of any lock; those who ask
//! for it meanwhile get the same one, or the same error. What a kernel depends on is in its key: its text, target, options, the
//! builds of compiler and tables, the assembler. Where a launch cannot have what TMA asks of its arguments, the kernel is made once more without.

use crate::artifact::Artifact;
use crate::assembler::{Assembler, Ladder, Options, wants_whole_program};
use crate::cache::{Cache, Key, KeyBuilder, Memory, Stats};
use crate::device::Device;
use crate::error::{Code, Error};
use crate::kernel::{Kernel, Other};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tileas_codegen::ir::Module;
use tileas_codegen::isa::TargetIsa;
use tileas_codegen::{Context, Settings, Stage, key_text};
use tileas_draw::explain::explain_module;
use tileas_draw::{Options as DrawOptions, Picture};
use tileas_launch::LaunchMetadata;

/// Makes kernels. Copies of the handle share everything; may be used from any number of threads.
#[derive(Clone)]
pub struct Jit(Arc<Inner>);

struct Inner {
    maker: Arc<Maker>,
    kernels: Memory<Kernel>,
}

/// Makes kernels, and keeps none: a kernel that may have to be made in another way holds on to it.
struct Maker {
    device: Device,
    settings: Settings,
    ladder: Ladder,
    cache: Cache,
    /// Kernels that were compiled.
    compiled: AtomicU64,
    /// Contexts that nobody uses at the moment.
    contexts: Mutex<Vec<Context>>,
}

/// How a schedule is drawn.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// A chart for terminals.
    Gantt,
    /// A drawing.
    Svg,
    /// A page with the drawing and everything about each op.
    Html,
    /// Trace events for Perfetto.
    ChromeTrace,
}

impl Format {
    /// By its name: `gantt`, `svg`, `html`, `chrome-trace`.
    pub fn by_name(name: &str) -> Option<Format> {
        let all = [
            ("gantt", Format::Gantt),
            ("svg", Format::Svg),
            ("html", Format::Html),
            ("chrome-trace", Format::ChromeTrace),
        ];
        all.into_iter().find(|(n, _)| *n == name).map(|(_, format)| format)
    }
}

/// What a [`Jit`] is made of.
pub struct JitBuilder {
    device: Device,
    settings: Settings,
    ladder: Option<Ladder>,
    cache: Cache,
    max_kernels: u64,
}

impl JitBuilder {
    /// Options of the compiler. `target` is the device's, whatever they say.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> JitBuilder {
        self.settings = settings;
        self
    }

    /// Where what was made is kept. Default: nowhere but in memory.
    #[must_use]
    pub fn cache(mut self, cache: Cache) -> JitBuilder {
        self.cache = cache;
        self
    }

    /// What makes machine code of PTX. Default: what [`Ladder::find`] finds, with lines if the option `line-info` asks for them.
    #[must_use]
    pub fn assemblers(mut self, ladder: Ladder) -> JitBuilder {
        self.ladder = Some(ladder);
        self
    }

    /// Kernels kept in memory, at most; those that were not asked for the longest go. Default: 4096.
    #[must_use]
    pub fn max_kernels(mut self, n: u64) -> JitBuilder {
        self.max_kernels = n;
        self
    }

    /// The JIT.
    ///
    /// # Errors
    /// `E1201`: the device runs machine code and nothing is there that makes it. `E1003`: the device's target is none that
    /// `target` can be.
    pub fn build(self) -> Result<Jit, Error> {
        let settings = self.settings.with("target", self.device.target())?;
        let ladder = match self.ladder {
            _ if !self.device.0.wants_machine_code() => Ladder::default(),
            Some(ladder) => ladder,
            None => {
                let line_info = *settings.line_info();
                self.device.0.assemblers(&Options { line_info, ..Options::default() })
            }
        };
        if self.device.0.wants_machine_code() && ladder.fingerprint().is_empty() {
            let text = format!("nothing assembles PTX for {}: {}", self.device.name(), ladder.describe());
            return Err(Error::new(Code::E1201, text));
        }
        let kernels = Memory::new(self.max_kernels);
        let (device, cache) = (self.device, self.cache);
        let (compiled, contexts) = (AtomicU64::new(0), Mutex::default());
        let maker = Arc::new(Maker { device, settings, ladder, cache, compiled, contexts });
        Ok(Jit(Arc::new(Inner { maker, kernels })))
    }
}

impl Jit {
    /// A JIT for a device, to be built.
    pub fn builder(device: &Device) -> JitBuilder {
        JitBuilder {
            device: device.clone(),
            settings: Settings::default(),
            ladder: None,
            cache: Cache::none(),
            max_kernels: 4096,
        }
    }

    /// A JIT with default options that keeps what it makes in memory only.
    ///
    /// # Errors
    /// As [`JitBuilder::build`].
    pub fn new(device: &Device) -> Result<Jit, Error> {
        Jit::builder(device).build()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.maker.device
    }

    /// Reads the text of a module.
    ///
    /// # Errors
    /// The compiler's, with their places.
    pub fn parse(&self, text: &str) -> Result<Module, Error> {
        Ok(self.0.maker.with_context(|context| context.parse(text, &self.0.maker.settings))?)
    }

    /// A kernel of a module.
    ///
    /// # Errors
    /// The compiler's; `E1202`–`E1204`: the assemblers'; `E1205`, `E1208`: it cannot be loaded; `E1212`: the module has no such kernel.
    pub fn kernel(&self, module: &Module, name: &str) -> Result<Kernel, Error> {
        self.kernel_with(module, name, &self.0.maker.settings)
    }

    /// A kernel of a module, with options of its own.
    ///
    /// # Errors
    /// As [`Jit::kernel`].
    pub fn kernel_with(&self, module: &Module, name: &str, settings: &Settings) -> Result<Kernel, Error> {
        let settings = settings.with("target", self.0.maker.device.target())?;
        let module = self.only(module, name)?;
        let maker = &self.0.maker;
        let isa = tileas_isa::isa_for(&module, &settings)?;
        self.0.kernels.get_or_make(&maker.key_of(&module, &*isa, &settings), || {
            let kernel = maker.kernel(&module, &settings)?;
            // What TMA asks of arguments other accesses do not, and clusters ask for their grids.
            let alone = settings.with("cluster", "1")?;
            let direct = alone.with("tma-rewrite", "false")?;
            if direct == settings || kernel.metadata().tensor_maps.is_empty() {
                return Ok(kernel);
            }
            let maker = maker.clone();
            Ok(kernel.or(move |which| {
                maker.kernel(&module, if which == Other::Direct { &direct } else { &alone })
            }))
        })
    }

    /// A kernel of PTX that was written elsewhere: the entry of the name that the metadata say. What the metadata promise is
    /// the caller's word: they decide what memory the code touches.
    ///
    /// # Errors
    /// `E1202`–`E1204`: the assemblers'; `E1205`, `E1208`: it cannot be loaded.
    pub fn kernel_of_ptx(&self, ptx: &str, metadata: &LaunchMetadata) -> Result<Kernel, Error> {
        let maker = &self.0.maker;
        let key =
            maker.key().part("ptx", ptx.as_bytes()).part("metadata", metadata.to_json().as_bytes()).finish();
        let make = || maker.assembled(ptx.to_owned(), metadata.clone(), Vec::new());
        self.0.kernels.get_or_make(&key, || maker.loaded(&key, make))
    }

    /// Forgets all kernels in memory. Each is unloaded when nobody has it and no launch of it is under way.
    pub fn forget(&self) {
        self.0.kernels.clear();
    }

    /// Kernels that were compiled, as nothing had them.
    pub fn compiled(&self) -> u64 {
        self.0.maker.compiled.load(Ordering::Relaxed)
    }

    /// What the caches have done.
    pub fn stats(&self) -> Stats {
        self.0.maker.cache.stats()
    }

    /// How the loops of a kernel are scheduled, and why not faster, as text.
    ///
    /// # Errors
    /// The compiler's; `E1212`: the module has no such kernel.
    pub fn explain(&self, module: &Module, name: &str) -> Result<String, Error> {
        let module = &self.only(module, name)?;
        let isa = tileas_isa::isa_for(module, &self.0.maker.settings)?;
        let explain = |c: &mut Context| explain_module(c, module, &*isa, &self.0.maker.settings);
        let (explanation, _) = self.0.maker.with_context(explain)?;
        Ok(explanation.to_text(&tileas_draw::Options::default()))
    }

    /// How the loops of a kernel are scheduled, as a picture.
    ///
    /// # Errors
    /// As [`Jit::explain`].
    pub fn draw(
        &self,
        module: &Module,
        name: &str,
        format: Format,
        options: &DrawOptions,
    ) -> Result<String, Error> {
        let module = &self.only(module, name)?;
        let isa = tileas_isa::isa_for(module, &self.0.maker.settings)?;
        let run = self
            .0
            .maker
            .with_context(|c| c.run_to(Stage::Schedule, module, &*isa, &self.0.maker.settings))?;
        let pictures: Vec<Picture> = run.kernels.iter().flat_map(Picture::of_kernel).collect();
        Ok(match format {
            Format::Svg => tileas_draw::svg(&pictures, options),
            Format::Html => tileas_draw::html_page(&pictures, options),
            Format::ChromeTrace => tileas_draw::chrome_trace(&pictures, options),
            Format::Gantt => {
                let all: Vec<String> = pictures.iter().map(|p| tileas_draw::gantt(p, options)).collect();
                all.join("\n")
            }
        })
    }

    /// The module with one kernel alone.
    fn only(&self, module: &Module, name: &str) -> Result<Module, Error> {
        let all = &module.functions;
        match all.iter().find(|f| f.name == name) {
            Some(f) => Ok(Module {
                functions: vec![f.clone()],
                target: module.target.clone(),
                source: module.source.clone(),
                file: module.file.clone(),
            }),
            None => {
                let names: Vec<&str> = all.iter().map(|f| f.name.as_str()).collect();
                let text = format!("the module has no kernel {name}; it has {}", names.join(", "));
                Err(Error::new(Code::E1212, text))
            }
        }
    }
}

impl Maker {
    /// A kernel of a module that has no other, as the caches have it, or as it is made now.
    fn kernel(&self, module: &Module, settings: &Settings) -> Result<Kernel, Error> {
        let isa = tileas_isa::isa_for(module, settings)?;
        self.loaded(&self.key_of(module, &*isa, settings), || {
            self.compiled.fetch_add(1, Ordering::Relaxed);
            let compiled = self.with_context(|context| context.compile(module, &*isa, settings))?;
            let warnings = compiled.warnings.iter().map(ToString::to_string).collect();
            let kernel = compiled.kernels.into_iter().next();
            let kernel = kernel.ok_or_else(|| Error::new(Code::E1212, "nothing came out of the compiler"))?;
            self.assembled(kernel.ptx, kernel.metadata, warnings)
        })
    }

    /// The key of a compiled kernel.
    fn key_of(&self, module: &Module, isa: &dyn TargetIsa, settings: &Settings) -> Key {
        self.key().part("kernel", key_text(module, isa, settings).as_bytes()).finish()
    }

    /// What every key has in it.
    fn key(&self) -> KeyBuilder {
        let form = if self.device.0.wants_machine_code() { "machine code of whole programs" } else { "ptx" };
        let key =
            KeyBuilder::new().part("form", form.as_bytes()).part("target", self.device.target().as_bytes());
        key.part("assemblers", self.ladder.fingerprint().as_bytes())
    }

    /// The kernel of a key, loaded: of what the caches have, or as it is made now.
    fn loaded(&self, key: &Key, make: impl FnOnce() -> Result<Artifact, Error>) -> Result<Kernel, Error> {
        let artifact = match self.kept(key) {
            Some(artifact) => artifact,
            None => {
                let artifact = make()?;
                self.cache.put(key, &artifact.to_bytes());
                artifact
            }
        };
        let program = self.device.0.load(&artifact)?;
        Ok(Kernel::new(self.device.clone(), artifact, program))
    }

    /// PTX with its machine code, if the device wants any.
    fn assembled(
        &self,
        ptx: String,
        metadata: LaunchMetadata,
        warnings: Vec<String>,
    ) -> Result<Artifact, Error> {
        let (mut machine_code, mut assembler) = (None, String::new());
        if self.device.0.wants_machine_code() {
            let (ladder, device) = (&self.ladder, &self.device);
            // What linkers do badly the device itself does better.
            let assembled = match wants_whole_program(&ptx) && device.0.takes_ptx() {
                true => match ladder.ask(&ptx, device.target(), false) {
                    Err(error) if error.code == Code::E1201 => None,
                    answer => Some(answer?),
                },
                false => Some(ladder.assemble_by(&ptx, device.target())?),
            };
            (machine_code, assembler) = match assembled {
                Some(assembled) => (Some(assembled.cubin), assembled.rung),
                None => (None, "driver, when it is loaded".into()),
            };
        }
        Ok(Artifact { metadata, ptx, machine_code, assembler, warnings })
    }

    /// What the caches have. Something else under this key is as good as nothing.
    fn kept(&self, key: &Key) -> Option<Artifact> {
        let artifact = Artifact::from_bytes(&self.cache.get(key)?);
        if artifact.is_none() {
            log::warn!("cache: {key} is no kernel");
        }
        artifact
    }

    /// Runs with a context that is this thread's meanwhile.
    fn with_context<T>(&self, f: impl FnOnce(&mut Context) -> T) -> T {
        let pool = || self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut context = pool().pop().unwrap_or_default();
        let result = f(&mut context);
        pool().push(context);
        result
    }
}
