//! Memory and streams of somebody else's, such as a tensor of PyTorch's.
//!
//! In: numbers, and the caller's word for them, which is why the two functions are `unsafe`. Out: values that stand for the word,
//! so that all that is done with them ([`Device::borrow_tensor`](crate::Device::borrow_tensor),
//! [`Device::borrow_stream`](crate::Device::borrow_stream)) may be safe.

/// Memory of a GPU that somebody promised is there.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedMemory {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// A stream that somebody promised is there.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedStream {
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only GPUs take it"))]
    pub(super) raw: u64,
}

impl BorrowedMemory {
    /// Memory from an address on.
    ///
    /// # Safety
    /// It is memory of the device that it will be given to, and is there until every tensor that is made of it is gone, with all
    /// its copies, and every launch with them has ended. Meanwhile nobody else writes what a launch uses.
    pub unsafe fn new(address: u64, bytes: usize) -> Self {
        BorrowedMemory { address, bytes }
    }
}

impl BorrowedStream {
    /// A stream: its `CUstream` as a number, 0 being the default one.
    ///
    /// # Safety
    /// It is of the primary context of the device that it will be given to, and is not destroyed before every
    /// [`Stream`](crate::Stream) that is made of it, with all its copies.
    pub unsafe fn new(raw: u64) -> Self {
        BorrowedStream { raw }
    }
}
