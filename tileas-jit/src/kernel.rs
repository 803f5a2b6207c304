//! A kernel that is ready to be launched, and its arguments.

use crate::artifact::Artifact;
use crate::backend::{Block, Program};
use crate::cubin::Cubin;
use crate::device::{Device, Stream};
use crate::error::{Code, Error};
use crate::tensor::Tensor;
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, OnceLock};
use tileas_launch::{Arg, LaunchMetadata};

/// An argument of a launch; [`args!`](crate::args) makes them.
#[derive(Clone, Debug)]
pub enum KernelArg<'a> {
    /// Memory, and whether the kernel may write there.
    Tensor(&'a Tensor, bool),
    /// A number.
    Number(Arg),
}

impl<'a> From<&'a Tensor> for KernelArg<'a> {
    fn from(tensor: &'a Tensor) -> KernelArg<'a> {
        KernelArg::Tensor(tensor, false)
    }
}

impl<'a> From<&'a mut Tensor> for KernelArg<'a> {
    fn from(tensor: &'a mut Tensor) -> KernelArg<'a> {
        KernelArg::Tensor(tensor, true)
    }
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl From<$ty> for KernelArg<'_> {
            fn from(x: $ty) -> Self {
                KernelArg::Number(x.into())
            }
        }
    )*};
}
numbers!(i16, i32, u32, i64, bool, f32, f64);

impl From<half::f16> for KernelArg<'_> {
    fn from(x: half::f16) -> Self {
        KernelArg::Number(x.to_f64().into())
    }
}

impl From<half::bf16> for KernelArg<'_> {
    fn from(x: half::bf16) -> Self {
        KernelArg::Number(x.to_f64().into())
    }
}

/// The arguments of a launch: `&tensor` to read, `&mut tensor` to write, numbers.
#[macro_export]
macro_rules! args {
    ($($arg:expr),* $(,)?) => { &[$($crate::KernelArg::from($arg)),*] as &[$crate::KernelArg<'_>] };
}

/// A kernel, compiled and loaded. Copies of the handle mean the same code, which is unloaded with the last of them, when no launch of
/// it is under way any more. May be launched from any number of threads at once.
#[derive(Clone, Debug)]
pub struct Kernel(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    device: Device,
    artifact: Artifact,
    program: Arc<dyn Program>,
    /// For arguments that cannot go through TMA.
    direct: Option<Direct>,
}

/// A kernel without loads and stores through TMA, made when the first launch asks for it.
struct Direct {
    make: Box<dyn Fn() -> Result<Kernel, Error> + Send + Sync>,
    made: OnceLock<Option<Kernel>>,
}

impl Direct {
    /// The kernel, if it can be had.
    fn kernel(&self, name: &str, why: &str) -> Option<&Kernel> {
        let make = || {
            log::warn!("{name}: from now on also without TMA, since {why}");
            (self.make)().inspect_err(|e| log::warn!("{name}: not without TMA: {e}")).ok()
        };
        self.made.get_or_init(make).as_ref()
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").finish_non_exhaustive()
    }
}

impl Kernel {
    pub(crate) fn new(device: Device, artifact: Artifact, program: Arc<dyn Program>) -> Kernel {
        Kernel(Arc::new(Loaded { device, artifact, program, direct: None }))
    }

    /// A kernel that nobody has a handle to yet, with what makes the one that is launched in its place where arguments cannot go through TMA.
    pub(crate) fn or(self, make: impl Fn() -> Result<Kernel, Error> + Send + Sync + 'static) -> Kernel {
        let direct = Direct { make: Box::new(make), made: OnceLock::new() };
        match Arc::try_unwrap(self.0) {
            Ok(loaded) => Kernel(Arc::new(Loaded { direct: Some(direct), ..loaded })),
            Err(shared) => Kernel(shared),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.artifact.metadata.kernel
    }

    /// What a launch must hand over and hold to.
    pub fn metadata(&self) -> &LaunchMetadata {
        &self.0.artifact.metadata
    }

    /// The PTX.
    pub fn ptx(&self) -> &str {
        &self.0.artifact.ptx
    }

    /// The machine code; the emulator has none, unless it is told to assemble.
    pub fn machine_code(&self) -> Option<&Cubin> {
        self.0.artifact.machine_code.as_ref()
    }

    /// What made the machine code, as [`Ladder`](crate::assembler::Ladder) calls it; empty without machine code.
    pub fn assembler(&self) -> &str {
        &self.0.artifact.assembler
    }

    /// The compiler's warnings, as text.
    pub fn warnings(&self) -> &[String] {
        &self.0.artifact.warnings
    }

    /// Launches with the grid that the metadata suggest. Where the kernel came from a [`Jit`](crate::Jit) and its arguments cannot go through TMA, because
    /// they are not aligned to 16 bytes or empty, it is compiled once more without (`tma-rewrite = false`) and launched so.
    ///
    /// # Errors
    /// `E1102`–`E1107`: arguments that do not fit. `E1210`: something is of another device. `E1205`, `E1211`: the launch fails.
    pub fn launch(&self, stream: &Stream, args: &[KernelArg<'_>]) -> Result<(), Error> {
        self.launch_with(stream, None, args, &[])
    }

    /// Launches with a grid of one's own: CTAs along x, y, z.
    ///
    /// # Errors
    /// As [`Kernel::launch`].
    pub fn launch_grid(&self, stream: &Stream, grid: [u32; 3], args: &[KernelArg<'_>]) -> Result<(), Error> {
        self.launch_with(stream, Some(grid), args, &[])
    }

    /// Launches; `also` is memory whose addresses the kernel finds in that of its arguments.
    ///
    /// # Errors
    /// As [`Kernel::launch`].
    pub fn launch_with(
        &self,
        stream: &Stream,
        grid: Option<[u32; 3]>,
        args: &[KernelArg<'_>],
        also: &[&Tensor],
    ) -> Result<(), Error> {
        let Loaded { device, artifact, program, direct } = &*self.0;
        let foreign = |what: &str| {
            let text = format!("{what} is of another device than {}", self.name());
            Error::new(Code::E1210, text)
        };
        if !stream.device.is(device) {
            return Err(foreign("the stream"));
        }
        let mut list: SmallVec<[Arg; 8]> = SmallVec::new();
        let mut blocks: SmallVec<[Arc<dyn Block>; 8]> = SmallVec::new();
        for (n, arg) in args.iter().enumerate() {
            match arg {
                KernelArg::Number(x) => list.push(x.clone()),
                KernelArg::Tensor(tensor, writes) => {
                    if !tensor.device.is(device) {
                        return Err(foreign(&format!("argument {n}")));
                    }
                    list.push(tensor.view(!writes).into());
                    blocks.push(tensor.block.clone());
                }
            }
        }
        for tensor in also {
            if !tensor.device.is(device) {
                return Err(foreign("memory behind an argument"));
            }
            blocks.push(tensor.block.clone());
        }
        let sms = tileas_launch::Device { sms: device.sms() };
        let launch = match artifact.metadata.launch(&list, &sms, grid) {
            Err(e) if matches!(e.code.as_str(), "E1104" | "E1107") => {
                let other = direct.as_ref().and_then(|direct| direct.kernel(self.name(), &e.message));
                // If that does not take them either, the kernel as it was meant says why.
                return match other.filter(|k| k.metadata().launch(&list, &sms, grid).is_ok()) {
                    Some(kernel) => kernel.launch_with(stream, grid, args, also),
                    None => Err(e.into()),
                };
            }
            launch => launch?,
        };
        stream.queue.launch(program, &launch, &blocks)
    }
}
