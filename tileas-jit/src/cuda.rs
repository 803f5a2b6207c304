//! An NVIDIA GPU as a device.
//!
//! In: machine code, launches. Out: calls of the driver, by way of [`driver`](crate::driver). Launches return at once; what fails in a
//! kernel is the error of a later call. Nothing is held for launches that are under way: memory and code wait for them when they go.

use crate::artifact::Artifact;
use crate::assembler::{Ladder, Options};
use crate::backend::{Backend, Block, Program, Queue};
use crate::driver::{BorrowedMemory, BorrowedStream};
use crate::driver::{Context, DeviceMemory, Function, Module, Stream};
use crate::error::{Code, Error};
use std::any::Any;
use std::sync::Arc;
use tileas_launch::Launch;

/// The device.
#[derive(Debug)]
pub(crate) struct Cuda {
    context: Context,
    target: String,
    /// For copies.
    stream: Arc<Stream>,
}

impl Cuda {
    pub fn new(ordinal: u32) -> Result<Cuda, Error> {
        let context = Context::new(ordinal)?;
        let (target, stream) = (context.target(), Arc::new(Stream::new(&context)?));
        Ok(Cuda { context, target, stream })
    }

    fn block(&self, memory: DeviceMemory) -> Arc<dyn Block> {
        Arc::new(Bytes { memory, context: self.context.clone(), stream: self.stream.clone() })
    }
}

impl Backend for Cuda {
    fn name(&self) -> String {
        let (major, minor) = self.context.driver_version();
        format!("{} ({}, driver for CUDA {major}.{minor})", self.context.name(), self.target)
    }

    fn target(&self) -> &str {
        &self.target
    }

    fn sms(&self) -> u32 {
        self.context.multiprocessors()
    }

    fn wants_machine_code(&self) -> bool {
        true
    }

    fn takes_ptx(&self) -> bool {
        true
    }

    fn assemblers(&self, options: &Options) -> Ladder {
        Ladder::find_for(&self.context, options)
    }

    fn load(&self, code: &Artifact) -> Result<Arc<dyn Program>, Error> {
        let (entry, most) = (&code.metadata.kernel, self.context.max_shared_bytes());
        if code.metadata.dynamic_smem > most {
            let bytes = code.metadata.dynamic_smem;
            let text = format!("{entry} takes {bytes} bytes of shared memory, {} has {most}", self.name());
            return Err(Error::new(Code::E1208, text));
        }
        let module = match &code.machine_code {
            Some(image) => Module::load(&self.context, image)?,
            None => Module::compile(&self.context, &code.ptx)?,
        };
        Ok(Arc::new(Entry(module.function(entry)?)))
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Block>, Error> {
        let mut memory = DeviceMemory::new(&self.context, bytes)?;
        memory.zero(&self.stream)?;
        self.stream.synchronize()?;
        Ok(self.block(memory))
    }

    fn borrow_memory(&self, memory: BorrowedMemory) -> Result<Arc<dyn Block>, Error> {
        Ok(self.block(DeviceMemory::borrowed(&self.context, memory)))
    }

    fn borrow_stream(&self, stream: BorrowedStream) -> Result<Arc<dyn Queue>, Error> {
        Ok(Arc::new(InOrder(Stream::borrowed(&self.context, stream))))
    }

    fn stream(&self) -> Result<Arc<dyn Queue>, Error> {
        Ok(Arc::new(InOrder(Stream::new(&self.context)?)))
    }
}

#[derive(Debug)]
struct Entry(Function);

impl Program for Entry {}

#[derive(Debug)]
struct Bytes {
    memory: DeviceMemory,
    context: Context,
    stream: Arc<Stream>,
}

impl Block for Bytes {
    fn address(&self) -> u64 {
        self.memory.address()
    }

    fn bytes(&self) -> usize {
        self.memory.size()
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.context.synchronize()?;
        self.memory.write(&self.stream, offset, bytes)
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        self.context.synchronize()?;
        self.memory.read(&self.stream, offset, bytes)
    }
}

#[derive(Debug)]
struct InOrder(Stream);

impl Queue for InOrder {
    fn launch(&self, program: &Arc<dyn Program>, launch: &Launch, _: &[Arc<dyn Block>]) -> Result<(), Error> {
        match (&**program as &dyn Any).downcast_ref() {
            Some(Entry(function)) => function.launch(launch, &self.0),
            None => Err(Error::new(Code::E1210, "code of another device")),
        }
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.0.synchronize()
    }
}
