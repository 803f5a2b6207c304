//! Memory of a device.
//!
//! In: a number of bytes. Out: an address, and copies in and out. Guarantee: copies stay within the memory, and are done when they return.
//! When it goes, the driver waits for kernels that run before it frees: it is plain memory (`cuMemAlloc`), not a pool's.

use super::borrowed::BorrowedMemory;
use super::context::{Context, Stream, call, warn};
use crate::error::{Code, Error};
use cudarc::driver::sys;

/// Bytes on a device.
#[derive(Debug)]
pub struct DeviceMemory {
    context: Context,
    address: sys::CUdeviceptr,
    size: usize,
    owned: bool,
}

impl DeviceMemory {
    /// Memory of that many bytes, with anything in it. None at all for 0.
    ///
    /// # Errors
    /// `E1205`.
    pub fn new(context: &Context, size: usize) -> Result<DeviceMemory, Error> {
        let mut address = 0;
        if size > 0 {
            let _current = context.enter()?;
            // SAFETY: a place for the address; the context is current.
            unsafe { call!(cuMemAlloc_v2(&raw mut address, size)) }?;
        }
        Ok(DeviceMemory { context: context.clone(), address, size, owned: true })
    }

    /// Memory of somebody else's, who keeps it.
    pub(crate) fn borrowed(context: &Context, memory: BorrowedMemory) -> DeviceMemory {
        let BorrowedMemory { address, bytes } = memory;
        DeviceMemory { context: context.clone(), address, size: bytes, owned: false }
    }

    /// The address, for a view.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Fills a part of it, from a byte on, after what is in the stream.
    ///
    /// # Errors
    /// `E1205`, also if there are too many bytes.
    pub fn write(&self, stream: &Stream, from: usize, bytes: &[u8]) -> Result<(), Error> {
        let Some(to) = self.part(from, bytes.len())? else { return Ok(()) };
        let _current = self.context.enter()?;
        // SAFETY: both sides have that many bytes, and are there until the stream has done it, for which we wait.
        unsafe { call!(cuMemcpyHtoDAsync_v2(to, bytes.as_ptr().cast(), bytes.len(), stream.raw())) }?;
        stream.synchronize()
    }

    /// Reads a part of it, from a byte on, after what is in the stream.
    ///
    /// # Errors
    /// `E1205`, also if there are too few bytes.
    pub fn read(&self, stream: &Stream, from: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let Some(from) = self.part(from, bytes.len())? else { return Ok(()) };
        let _current = self.context.enter()?;
        // SAFETY: as for `write`.
        unsafe { call!(cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), from, bytes.len(), stream.raw())) }?;
        stream.synchronize()
    }

    /// Makes all of it 0, in the order of the stream.
    ///
    /// # Errors
    /// `E1205`.
    pub fn zero(&mut self, stream: &Stream) -> Result<(), Error> {
        if self.size == 0 {
            return Ok(());
        }
        let _current = self.context.enter()?;
        // SAFETY: memory of that many bytes; freeing it waits.
        unsafe { call!(cuMemsetD8Async(self.address, 0, self.size, stream.raw())) }
    }

    /// The address of a part; `None` for no bytes, which the driver need not be asked for.
    fn part(&self, from: usize, bytes: usize) -> Result<Option<sys::CUdeviceptr>, Error> {
        if from.checked_add(bytes).is_some_and(|end| end <= self.size) {
            return Ok((bytes > 0).then(|| self.address + from as u64));
        }
        let text = format!("a copy of {bytes} bytes from {from} on, where there are {}", self.size);
        Err(Error::new(Code::E1205, text))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.owned && self.size > 0 {
            // SAFETY: it is ours and is not used again.
            warn(self.context.enter().and_then(|_current| unsafe { call!(cuMemFree_v2(self.address)) }));
        }
    }
}
