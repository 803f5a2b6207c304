//! Machine code: an ELF image that is whole.
//!
//! In: bytes. Out: a [`Cubin`]. Guarantee: every table and section that the headers name lies within the bytes. The driver
//! is given an address without a length and reads as far as the headers say, so this is what makes loading one safe.

use crate::error::{Code, Error};
use std::fmt;
use std::sync::Arc;

/// `e_machine` of NVIDIA's GPUs.
const EM_CUDA: u64 = 190;
/// `sh_type` of sections that take no bytes.
const SHT_NOBITS: u64 = 8;

/// Machine code for one processor. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Cubin(Arc<[u8]>);

impl Cubin {
    /// Takes bytes that are an ELF image of a GPU.
    ///
    /// # Errors
    /// `E1203` if they are not, or not all of them are there.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Result<Cubin, Error> {
        let bytes = bytes.into();
        match whole(&bytes) {
            Some(()) => Ok(Cubin(bytes)),
            None => {
                let text = format!("{} bytes that are no whole ELF image of a GPU", bytes.len());
                Err(Error::new(Code::E1203, text))
            }
        }
    }

    /// The image.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The processor it says it is for, as in `sm_90`: 90. Where it stands depends on the layout, of which there are two:
    /// sm_90 of all releases and everything of 12.9 and before, or the rest.
    pub fn processor(&self) -> u32 {
        let flags = field(&self.0, 48, 4).unwrap_or_default() as u32;
        if self.0.get(7) == Some(&0x33) { flags & 0xff } else { flags >> 8 & 0xffff }
    }
}

impl AsRef<[u8]> for Cubin {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Cubin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cubin(sm_{}, {} bytes)", self.processor(), self.0.len())
    }
}

/// A little-endian number of `size` bytes.
fn field(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
}

/// `Some` if header, tables, segments and sections are there. Source: ELF-64 object file format.
fn whole(bytes: &[u8]) -> Option<()> {
    let inside = |offset: u64, size: u64| (offset.checked_add(size)? <= bytes.len() as u64).then_some(());
    // 64 bits, little endian.
    (bytes.starts_with(b"\x7fELF\x02\x01") && field(bytes, 18, 2)? == EM_CUDA).then_some(())?;
    let table = |at: usize, count: usize, entry: u64| {
        let (at, size, count) = (field(bytes, at, 8)?, field(bytes, count - 2, 2)?, field(bytes, count, 2)?);
        // Without a count the table may be longer than numbers of two bytes can say.
        (if count == 0 { at == 0 } else { size == entry }).then_some(())?;
        inside(at, size * count)?;
        Some((0..count).map(move |n| (at + n * size) as usize))
    };
    for header in table(32, 56, 56)? {
        inside(field(bytes, header + 8, 8)?, field(bytes, header + 32, 8)?)?;
    }
    for header in table(40, 60, 64)? {
        if field(bytes, header + 4, 4)? != SHT_NOBITS {
            inside(field(bytes, header + 24, 8)?, field(bytes, header + 32, 8)?)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, a section of 8 bytes and the section's header.
    fn image() -> Vec<u8> {
        let mut bytes = vec![0; 64 + 8 + 64];
        bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x41");
        let fields: &[(usize, u8)] = &[(18, 190), (40, 72), (48, 2), (49, 100), (58, 64), (60, 1)];
        for &(at, value) in fields.iter().chain(&[(72 + 4, 1), (72 + 24, 64), (72 + 32, 8)]) {
            bytes[at] = value;
        }
        bytes
    }

    #[test]
    fn whole_images_are_taken() {
        let cubin = Cubin::new(image()).expect("it is whole");
        assert_eq!(cubin.processor(), 100);
        let mut old = image();
        (old[7], old[48]) = (0x33, 90);
        assert_eq!(Cubin::new(old).expect("it is whole").processor(), 90);
    }

    #[test]
    fn others_are_not() {
        let whole = image();
        for n in 0..whole.len() {
            assert!(Cubin::new(&whole[..n]).is_err(), "the first {n} bytes");
        }
        let mut uncounted = image();
        uncounted[60] = 0;
        assert!(Cubin::new(uncounted).is_err(), "a table of unknown length");
        // Offsets and sizes that leave the file, or the range of numbers.
        for at in [18, 40, 47, 58, 61, 72 + 24, 72 + 31, 72 + 32, 72 + 39] {
            let mut bytes = image();
            bytes[at] = 0xff;
            assert!(Cubin::new(bytes).is_err(), "byte {at}");
        }
        let error = Cubin::new(*b"#!/bin/sh").expect_err("a script");
        assert_eq!(error.code, Code::E1203);
    }
}
