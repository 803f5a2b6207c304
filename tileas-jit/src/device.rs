//! Where kernels run.

use crate::backend::{Backend, Queue};
use crate::driver::BorrowedStream;
use crate::emulator::{Emulator, EmulatorOptions};
use crate::error::Error;
use std::sync::Arc;

/// A device: a GPU, or the emulator. Copies of the handle mean the same device, with the same memory.
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Arc<dyn Backend>);

impl Device {
    /// The emulator with default options: PTX runs on the CPU, with all detectors.
    pub fn emulator() -> Device {
        Device::emulator_with(EmulatorOptions::default())
    }

    /// The emulator.
    pub fn emulator_with(options: EmulatorOptions) -> Device {
        Device(Arc::new(Emulator::new(options)))
    }

    /// A GPU by its number.
    ///
    /// # Errors
    /// `E1204`: no driver, or one too old. `E1205`: no such device.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: u32) -> Result<Device, Error> {
        Ok(Device(Arc::new(crate::cuda::Cuda::new(ordinal)?)))
    }

    /// What it is, in words.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// The processor that code is made for, such as `sm_100a`.
    pub fn target(&self) -> &str {
        self.0.target()
    }

    /// Multiprocessors.
    pub fn sms(&self) -> u32 {
        self.0.sms()
    }

    /// A new order of launches.
    ///
    /// # Errors
    /// `E1205`: the driver fails.
    pub fn stream(&self) -> Result<Stream, Error> {
        Ok(Stream { device: self.clone(), queue: self.0.stream()? })
    }

    /// A stream that somebody else has and keeps.
    ///
    /// # Errors
    /// `E1210`: the device takes no streams of others, which is so for the emulator.
    pub fn borrow_stream(&self, stream: BorrowedStream) -> Result<Stream, Error> {
        Ok(Stream { device: self.clone(), queue: self.0.borrow_stream(stream)? })
    }

    pub(crate) fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// An order of launches: each begins when the one before it has ended. Launches of different streams may overlap. On the emulator a
/// launch has ended when the call returns.
#[derive(Clone, Debug)]
pub struct Stream {
    pub(crate) device: Device,
    pub(crate) queue: Arc<dyn Queue>,
}

impl Stream {
    /// Waits until all launches have ended.
    ///
    /// # Errors
    /// `E1205`: the driver fails, or a kernel has.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.queue.synchronize()
    }
}
