//! Reads numbers from a part of a file. Nothing is read beyond its end, and what is announced is compared with what is left.

use crate::error::{Code, Error, Res, Section};

/// A place in a file and the end of the part that may be read. Offsets are those of the file.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pub at: usize,
    pub section: Section,
}

impl<'a> Cursor<'a> {
    /// `bytes` are those of the file up to the end of the part.
    pub fn new(bytes: &'a [u8], at: usize, section: Section) -> Cursor<'a> {
        Cursor { bytes, at, section }
    }

    #[cold]
    pub fn error(&self, code: Code, at: usize, message: impl Into<String>) -> Box<Error> {
        Error::new(code, self.section, Some(at), message)
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn take(&mut self, n: usize) -> Res<&'a [u8]> {
        if n > self.left() {
            let message = format!("{n} bytes expected, {} left", self.left());
            return Err(self.error(Code::E1604, self.at, message));
        }
        let taken = &self.bytes[self.at..self.at + n];
        self.at += n;
        Ok(taken)
    }

    /// A part of `n` bytes, as a cursor of its own.
    pub fn part(&mut self, n: usize) -> Res<Cursor<'a>> {
        let at = self.at;
        self.take(n)?;
        Ok(Cursor { bytes: &self.bytes[..self.at], at, section: self.section })
    }

    #[inline]
    pub fn byte(&mut self) -> Res<u8> {
        match self.bytes.get(self.at) {
            Some(&byte) => {
                self.at += 1;
                Ok(byte)
            }
            None => Err(self.error(Code::E1604, self.at, "1 byte expected, 0 left")),
        }
    }

    pub fn bool(&mut self) -> Res<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.error(
                Code::E1605,
                self.at - 1,
                format!("0 or 1 expected for a bool, found {other}"),
            )),
        }
    }

    #[inline]
    pub fn varint(&mut self) -> Res<u64> {
        if let Some(&byte) = self.bytes.get(self.at)
            && byte < 0x80
        {
            self.at += 1;
            return Ok(u64::from(byte));
        }
        let start = self.at;
        let wide = self.wide()?;
        u64::try_from(wide).map_err(|_| self.error(Code::E1605, start, "a number of more than 64 bits"))
    }

    /// A varint of at most ten bytes, up to 70 bits.
    pub fn wide(&mut self) -> Res<u128> {
        let start = self.at;
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            value |= u128::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.error(Code::E1605, start, "a number of more than ten bytes"))
    }

    pub fn zigzag(&mut self) -> Res<i64> {
        let n = self.varint()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    /// A count of things that take at least `size` bytes each, so that what is reserved for them is bounded.
    pub fn count(&mut self, size: usize) -> Res<usize> {
        let start = self.at;
        let n = self.varint()?;
        let most = self.left() / size;
        match usize::try_from(n) {
            Ok(n) if n <= most => Ok(n),
            _ => Err(self.error(
                Code::E1604,
                start,
                format!("{n} items are announced, {} bytes left", self.left()),
            )),
        }
    }

    pub fn u32(&mut self) -> Res<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("4 bytes")))
    }

    pub fn u64(&mut self) -> Res<u64> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
    }

    /// A list of 64-bit numbers behind their count.
    pub fn i64s(&mut self) -> Res<Box<[i64]>> {
        let n = self.count(8)?;
        Ok(self
            .take(8 * n)?
            .chunks_exact(8)
            .map(|c| i64::from_le_bytes(c.try_into().expect("8 bytes")))
            .collect())
    }

    /// A list of 32-bit numbers behind their count.
    pub fn i32s(&mut self) -> Res<Box<[i32]>> {
        let n = self.count(4)?;
        Ok(self
            .take(4 * n)?
            .chunks_exact(4)
            .map(|c| i32::from_le_bytes(c.try_into().expect("4 bytes")))
            .collect())
    }

    /// Padding up to a multiple of `align`, counted from `base`.
    pub fn pad(&mut self, base: usize, align: usize) -> Res<()> {
        let n = (self.at - base).next_multiple_of(align) - (self.at - base);
        self.padding(n)
    }

    /// `n` bytes of padding.
    pub fn padding(&mut self, n: usize) -> Res<()> {
        let start = self.at;
        let bytes = self.take(n)?;
        match bytes.iter().position(|&b| b != PAD) {
            Some(i) => {
                let message = format!("padding byte {PAD:#04x} expected, found {:#04x}", bytes[i]);
                Err(self.error(Code::E1607, start + i, message))
            }
            None => Ok(()),
        }
    }

    /// That nothing is left.
    pub fn end(&self, of: &str) -> Res<()> {
        match self.left() {
            0 => Ok(()),
            n => Err(self.error(Code::E1608, self.at, format!("{n} bytes behind the end of {of}"))),
        }
    }
}

/// How a file begins.
pub(crate) const MAGIC: &[u8; 8] = b"\x7fTileIR\0";
/// Padding byte.
pub(crate) const PAD: u8 = 0xcb;
