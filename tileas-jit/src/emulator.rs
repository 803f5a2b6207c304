//! The emulator as a device: PTX runs on the CPU, under detectors, on any machine.
//!
//! Every block of memory has a number of its own, hence an address of its own, 4 GiB from the next. A launch takes the bytes of its
//! blocks, runs to its end in the calling thread, and puts them back: launches on different blocks run side by side, those that
//! share one wait for each other. A fault of the kernel is the error of the launch, with memory as it was then.

use crate::artifact::Artifact;
use crate::backend::{Backend, Block, Program, Queue};
use crate::error::{self, Error};
use std::any::Any;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tileas_emu::{BufferId, Machine, Memory, Mode, NoTrace, RunOptions};
use tileas_launch::Launch;

/// How the emulator runs kernels.
#[derive(Clone, Debug)]
pub struct EmulatorOptions {
    /// The processor that code is made for. Default: `sm_100a`.
    pub target: String,
    /// Multiprocessors, for grids with as many CTAs; at least one. Default: 4. So many CTAs, up to 8, run at the same time, but for
    /// [`Mode::Fast`], in which they do where they wait for one another.
    pub sms: u32,
    /// Timing, detectors, limits.
    pub run: RunOptions,
    /// Whether kernels are assembled as for a GPU, though PTX is what runs: for trying assemblers and caches. Default: no.
    pub assemble: bool,
    /// Whether launches are checked and nothing is run. Default: no.
    pub dry: bool,
}

impl Default for EmulatorOptions {
    fn default() -> EmulatorOptions {
        EmulatorOptions {
            target: "sm_100a".into(),
            sms: 4,
            run: RunOptions::default(),
            assemble: false,
            dry: false,
        }
    }
}

/// CTAs that run at the same time, at most, unless the options ask for more.
const MOST_TOGETHER: u32 = 8;

/// The device.
#[derive(Debug)]
pub(crate) struct Emulator {
    options: Arc<EmulatorOptions>,
    numbers: Arc<Numbers>,
}

/// Numbers of blocks: those given back, lowest last, and the first that was never given.
#[derive(Debug, Default)]
struct Numbers(Mutex<(Vec<u32>, u32)>);

impl Emulator {
    pub fn new(mut options: EmulatorOptions) -> Emulator {
        options.sms = options.sms.max(1);
        // Where timing is drawn, CTAs meet as well.
        if options.run.mode != Mode::Fast {
            options.run.resident = options.run.resident.max(options.sms.min(MOST_TOGETHER));
        }
        Emulator { options: Arc::new(options), numbers: Arc::default() }
    }
}

/// A lock that a panic elsewhere does not take away: what it guards is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend for Emulator {
    fn name(&self) -> String {
        format!("emulator of {}", self.options.target)
    }

    fn target(&self) -> &str {
        &self.options.target
    }

    fn sms(&self) -> u32 {
        self.options.sms
    }

    fn wants_machine_code(&self) -> bool {
        self.options.assemble
    }

    fn load(&self, code: &Artifact) -> Result<Arc<dyn Program>, Error> {
        let program = tileas_emu::Program::parse(&code.ptx).map_err(|all| {
            let lines: Vec<String> = all.iter().map(|d| format!("line {}: {}", d.line, d.message)).collect();
            Error::new(
                error::Code::E1208,
                format!("the emulator does not read the PTX: {}", lines.join("; ")),
            )
        })?;
        Ok(Arc::new(Emulated { program, kernel: code.metadata.kernel.clone(), variables: Mutex::default() }))
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Block>, Error> {
        let mut memory = Vec::new();
        if bytes as u64 > self.options.run.max_memory || memory.try_reserve_exact(bytes).is_err() {
            let text = format!("{bytes} bytes of memory; the emulator has {}", self.options.run.max_memory);
            return Err(Error::new(error::Code::E1209, text));
        }
        memory.resize(bytes, 0);
        let mut numbers = lock(&self.numbers.0);
        let number = numbers.0.pop().unwrap_or_else(|| {
            numbers.1 += 1;
            numbers.1 - 1
        });
        Ok(Arc::new(Bytes { number, memory: Mutex::new(memory), len: bytes, numbers: self.numbers.clone() }))
    }

    fn stream(&self) -> Result<Arc<dyn Queue>, Error> {
        Ok(Arc::new(InOrder(self.options.clone())))
    }
}

/// A program and the entry that is meant.
#[derive(Debug)]
struct Emulated {
    program: tileas_emu::Program,
    kernel: String,
    /// What its launches have left in the kernel's variables.
    variables: Mutex<Vec<Vec<u8>>>,
}

impl Program for Emulated {}

/// A block.
#[derive(Debug)]
struct Bytes {
    number: u32,
    memory: Mutex<Vec<u8>>,
    len: usize,
    numbers: Arc<Numbers>,
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let mut numbers = lock(&self.numbers.0);
        let at = numbers.0.partition_point(|&n| n > self.number);
        numbers.0.insert(at, self.number);
    }
}

impl Block for Bytes {
    fn address(&self) -> u64 {
        BufferId::new(self.number).address()
    }

    fn bytes(&self) -> usize {
        self.len
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        lock(&self.memory).get_mut(offset..offset + bytes.len()).ok_or_else(lost)?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        bytes.copy_from_slice(lock(&self.memory).get(offset..offset + bytes.len()).ok_or_else(lost)?);
        Ok(())
    }
}

/// A launch that panicked took the bytes with it.
#[cold]
fn lost() -> Error {
    Error::new(error::Code::E1211, "the emulator broke down in a launch on this memory")
}

/// Launches that have ended when the call returns.
#[derive(Debug)]
struct InOrder(Arc<EmulatorOptions>);

impl Queue for InOrder {
    fn launch(
        &self,
        program: &Arc<dyn Program>,
        launch: &Launch,
        blocks: &[Arc<dyn Block>],
    ) -> Result<(), Error> {
        let program: &dyn Any = &**program;
        let blocks = blocks.iter().map(|b| (&**b as &dyn Any).downcast_ref::<Bytes>());
        let (Some(Emulated { program, kernel, variables }), Some(mut blocks)) =
            (program.downcast_ref(), blocks.collect::<Option<Vec<&Bytes>>>())
        else {
            return Err(Error::new(error::Code::E1210, "code or memory of another device"));
        };
        let launch = launch.emulated(kernel)?;
        // In the order of their numbers, so that two launches never wait for each other's.
        blocks.sort_unstable_by_key(|b| b.number);
        blocks.dedup_by_key(|b| b.number);
        let mut held: Vec<_> = blocks.iter().map(|b| lock(&b.memory)).collect();
        let mut variables = lock(variables);
        let mut memory = Memory::new();
        memory.keep_variables(std::mem::take(&mut *variables));
        for (block, bytes) in blocks.iter().zip(&mut held) {
            memory.put(BufferId::new(block.number), std::mem::take(&mut **bytes));
        }
        let result = match self.0.dry {
            true => Ok(()),
            false => Machine::run(program, &launch, &mut memory, &self.0.run, &mut NoTrace).map(|_| ()),
        };
        *variables = memory.take_variables();
        for (block, bytes) in blocks.iter().zip(&mut held) {
            **bytes = memory.take(BufferId::new(block.number));
        }
        // As a driver does: on the standard output of the process, if that takes it.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(memory.take_printed().as_bytes()).and_then(|()| out.flush());
        result.map_err(|fault| Error::new(error::Code::E1211, format!("{kernel}: {fault}")))
    }

    fn synchronize(&self) -> Result<(), Error> {
        Ok(())
    }
}
