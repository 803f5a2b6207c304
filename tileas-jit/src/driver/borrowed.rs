//! Memory and streams of somebody else's, such as a tensor of PyTorch's.
//!
//! In: numbers, and the caller's word for them, which is why the two functions are `unsafe`. Out: the types that our own memory and
//! streams have. What the word is stands in a value that only those functions make, so that all others may be safe.

use crate::device::{Device, Stream};
use crate::error::{Code, Error};
use crate::tensor::Tensor;
use tileas_launch::Elem;

/// Memory that somebody promised is there.
#[derive(Debug)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only GPUs take it"))]
pub(crate) struct BorrowedMemory {
    pub(super) address: u64,
    pub(super) bytes: usize,
}

/// A stream that somebody promised is there.
#[derive(Debug)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only GPUs take it"))]
pub(crate) struct BorrowedStream {
    pub(super) raw: u64,
}

impl Device {
    /// A tensor in memory that somebody else has and keeps: address of its first element, type, extents and strides in
    /// elements, outermost first.
    ///
    /// # Safety
    /// The memory is of this device, from the address on as large as extents and strides say, and is there until the tensor with
    /// all its copies is gone and every launch with them has ended. Meanwhile nobody else writes what a launch uses.
    ///
    /// # Errors
    /// `E1209`: the device takes no memory of others, which is so for the emulator; negative extents or strides, or ranks
    /// that differ.
    pub unsafe fn borrow_tensor(
        &self,
        address: u64,
        elem: Elem,
        extents: &[i64],
        strides: &[i64],
    ) -> Result<Tensor, Error> {
        let bytes = Tensor::span(elem, extents, strides)
            .filter(|&n| address.checked_add(n as u64).is_some())
            .ok_or_else(|| {
                let text =
                    format!("extents {extents:?} and strides {strides:?} from address {address:#x} on");
                Error::new(Code::E1209, text)
            })?;
        let block = self.0.borrow_memory(BorrowedMemory { address, bytes })?;
        Ok(Tensor::of_block(self, block, elem, extents, strides))
    }

    /// A stream that somebody else has and keeps: its `CUstream` as a number, 0 being the default one.
    ///
    /// # Safety
    /// It is of the device's primary context, and is not destroyed before the stream that is returned, with all its copies.
    ///
    /// # Errors
    /// `E1210`: the device takes no streams of others, which is so for the emulator.
    pub unsafe fn borrow_stream(&self, raw: u64) -> Result<Stream, Error> {
        Ok(Stream { device: self.clone(), queue: self.0.borrow_stream(BorrowedStream { raw })? })
    }
}
