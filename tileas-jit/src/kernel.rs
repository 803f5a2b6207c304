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
    /// For launches that it does not take.
    others: Option<Others>,
}

/// Why a launch asks for another form of a kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// Arguments cannot go through TMA.
    Direct,
    /// The grid is not of whole clusters.
    Alone,
}

/// The kernel in other forms, each made when the first launch asks for it.
struct Others {
    make: Box<dyn Fn(Other) -> Result<Kernel, Error> + Send + Sync>,
    made: [OnceLock<Kernel>; 2],
}

impl Others {
    /// The kernel in another form, if it can be had. What cannot is tried again at the next launch, as it may be for want of memory.
    fn kernel(&self, which: Other, name: &str, why: &str) -> Option<&Kernel> {
        let slot = &self.made[which as usize];
        if slot.get().is_none() {
            let without = if which == Other::Direct { "TMA" } else { "clusters" };
            log::warn!("{name}: from now on also without {without}, since {why}");
            let made = (self.make)(which);
            let made = made.inspect_err(|e| log::warn!("{name}: not without {without}: {e}")).ok()?;
            // Whoever was first.
            _ = slot.set(made);
        }
        slot.get()
    }
}

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

impl Kernel {
    pub(crate) fn new(device: Device, artifact: Artifact, program: Arc<dyn Program>) -> Kernel {
        Kernel(Arc::new(Loaded { device, artifact, program, others: None }))
    }

    /// A kernel that nobody has a handle to yet, with what makes those that are launched in its place where it does not take a launch.
    pub(crate) fn or(self, make: impl Fn(Other) -> Result<Kernel, Error> + Send + Sync + 'static) -> Kernel {
        let others = Others { make: Box::new(make), made: Default::default() };
        match Arc::try_unwrap(self.0) {
            Ok(loaded) => Kernel(Arc::new(Loaded { others: Some(others), ..loaded })),
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
    /// their strides are no multiples of 16 bytes or they are empty, it is compiled once more without (`tma-rewrite = false`) and launched so; without clusters (`cluster = 1`), where the grid is not of whole ones.
    ///
    /// # Errors
    /// `E1102`–`E1107`: arguments that do not fit, or no grid follows from the kernel. `E1210`: something is of another device. `E1205`, `E1211`: the launch fails.
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
        let Loaded { device, artifact, program, others } = &*self.0;
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
        if grid.is_none() {
            artifact.metadata.has_grid()?;
        }
        let sms = tileas_launch::Device { sms: device.sms() };
        let launch = match artifact.metadata.launch(&list, &sms, grid) {
            Err(e) if matches!(e.code.as_str(), "E1104" | "E1106" | "E1107") => {
                let which = if e.code.as_str() == "E1106" { Other::Alone } else { Other::Direct };
                let in_clusters = artifact.metadata.cluster != [1; 3];
                let other = others.as_ref().filter(|_| which == Other::Direct || in_clusters);
                let other = other.and_then(|others| others.kernel(which, self.name(), &e.message));
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
