//! What a device does: memory, machine code, launches.
//!
//! In: launches as data ([`Launch`]), blocks of memory, code. Out: changed memory. Two devices implement these traits, and one suite
//! of tests is for both. Guarantee, of every implementation: what is launched keeps its code and its memory until it has ended.
//! Elsewhere: what a launch means (`tileas-launch`), whose memory it is ([`Tensor`](crate::Tensor)).

use crate::artifact::Artifact;
use crate::assembler::{Ladder, Options};
use crate::driver::{BorrowedMemory, BorrowedStream};
use crate::error::{Code, Error};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use tileas_launch::Launch;

/// A device.
pub(crate) trait Backend: Send + Sync + Debug {
    /// What it is, in words.
    fn name(&self) -> String;

    /// The processor that code is made for, such as `sm_100a`.
    fn target(&self) -> &str;

    /// Multiprocessors.
    fn sms(&self) -> u32;

    /// Whether it wants machine code; else PTX is enough.
    fn wants_machine_code(&self) -> bool;

    /// Whether it can also take PTX, of which it makes machine code of its own that nobody else sees.
    fn takes_ptx(&self) -> bool {
        !self.wants_machine_code()
    }

    /// What makes machine code for it, unless somebody names it.
    fn assemblers(&self, options: &Options) -> Ladder {
        Ladder::find(options)
    }

    /// Makes code ready to be launched.
    fn load(&self, code: &Artifact) -> Result<Arc<dyn Program>, Error>;

    /// Memory of so many bytes, all 0.
    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Block>, Error>;

    /// Memory of somebody else's.
    fn borrow_memory(&self, _: BorrowedMemory) -> Result<Arc<dyn Block>, Error> {
        let text = format!("memory by its address: {} takes none, copy to a tensor of its own", self.name());
        Err(Error::new(Code::E1209, text))
    }

    /// A new order of launches.
    fn stream(&self) -> Result<Arc<dyn Queue>, Error>;

    /// An order of launches of somebody else's.
    fn borrow_stream(&self, _: BorrowedStream) -> Result<Arc<dyn Queue>, Error> {
        Err(Error::new(Code::E1210, format!("a stream by its handle: {} takes none", self.name())))
    }
}

/// Code that is loaded. It is unloaded when the last reference goes, which a launch that has not ended holds as well.
pub(crate) trait Program: Send + Sync + Debug + Any {}

/// A block of a device's memory, freed with the last reference.
pub(crate) trait Block: Send + Sync + Debug + Any {
    /// Address of the first byte.
    fn address(&self) -> u64;

    /// Bytes.
    fn bytes(&self) -> usize;

    /// Writes at an offset, after all that was launched before on any stream. The range lies within the block.
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error>;

    /// Reads from an offset, after all that was launched before on any stream. The range lies within the block.
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error>;
}

/// An order of launches.
pub(crate) trait Queue: Send + Sync + Debug {
    /// Launches. The blocks are those that the launch's parameters lead to.
    fn launch(
        &self,
        program: &Arc<dyn Program>,
        launch: &Launch,
        blocks: &[Arc<dyn Block>],
    ) -> Result<(), Error>;

    /// Waits for all launches.
    fn synchronize(&self) -> Result<(), Error>;
}
