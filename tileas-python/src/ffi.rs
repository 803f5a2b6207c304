//! Memory and streams of others, by their numbers.

#![allow(unsafe_code, reason = "the one module of this crate that takes Python's word for addresses")]

use tileas_jit::{BorrowedMemory, BorrowedStream, Device, Elem, Error, Stream, Tensor};

/// A tensor in memory of a GPU. Python keeps the owner alive while the tensor and its launches are.
pub fn borrow_tensor(
    device: &Device,
    address: u64,
    elem: Elem,
    shape: &[i64],
    strides: &[i64],
) -> Result<Tensor, Error> {
    // Extents without a span are refused below, whatever the memory.
    let bytes = Tensor::span(elem, shape, strides).unwrap_or(0);
    // SAFETY: what the object said in its protocol; `_arrays.py` checks that it is of a GPU and keeps it.
    let memory = unsafe { BorrowedMemory::new(address, bytes) };
    device.borrow_tensor(memory, elem, shape, strides)
}

/// A stream of the device's primary context.
pub fn borrow_stream(device: &Device, raw: u64) -> Result<Stream, Error> {
    // SAFETY: what the caller said; it is there while the call that uses it runs.
    let stream = unsafe { BorrowedStream::new(raw) };
    device.borrow_stream(stream)
}
