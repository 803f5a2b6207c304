//! The bytes of a kernel's parameters.
//!
//! In: values of a [`Launch`](tileas_launch::Launch). Out: a block of bytes and where in it each value stands. Guarantee: the layout
//! is the entry's, as PTX has it: in order, each at the next multiple of its alignment, which is its size, and 64 for
//! tensor maps. Safe code, no driver.

use crate::error::Error;
use smallvec::SmallVec;
use tileas_launch::{MapArg, Value};

/// An encoded tensor map: what a kernel gets by value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct TensorMap(pub [u8; 128]);

/// The unit in which the block grows, so that it starts where a tensor map may.
#[derive(Copy, Clone, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Parameters of one launch.
#[derive(Clone, Debug, Default)]
pub struct ParamBlock {
    lines: SmallVec<[Line; 10]>,
    places: SmallVec<[(usize, usize); 16]>,
    size: usize,
}

impl ParamBlock {
    /// Lays out values; `encode` makes the tensor maps.
    ///
    /// # Errors
    /// Those of `encode`.
    pub fn new(
        values: &[Value],
        mut encode: impl FnMut(&MapArg) -> Result<TensorMap, Error>,
    ) -> Result<ParamBlock, Error> {
        let mut block = ParamBlock::default();
        for value in values {
            match value {
                Value::Bits { bits, size } => {
                    let size = usize::from(*size).min(8);
                    block.push(&bits.to_le_bytes()[..size], size.next_power_of_two());
                }
                Value::Map(map) => block.push(&encode(map)?.0, 64),
            }
        }
        Ok(block)
    }

    fn push(&mut self, bytes: &[u8], align: usize) {
        let start = self.size.next_multiple_of(align);
        self.size = start + bytes.len();
        self.lines.resize(self.size.div_ceil(64), Line([0; 64]));
        for (at, &byte) in (start..).zip(bytes) {
            self.lines[at / 64].0[at % 64] = byte;
        }
        self.places.push((start, bytes.len()));
    }

    /// All bytes, gaps being 0.
    pub fn bytes(&self) -> impl Iterator<Item = u8> {
        self.lines.iter().flat_map(|l| l.0).take(self.size)
    }

    /// Where each value starts, and its bytes.
    pub fn places(&self) -> &[(usize, usize)] {
        &self.places
    }

    /// Bytes of each value.
    #[cfg(feature = "cuda")]
    pub(super) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(|p| p.1)
    }

    /// Start of the block, which is aligned to 64.
    #[cfg(feature = "cuda")]
    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use tileas_launch::{Elem, L2, Oob, Swizzle};

    fn map() -> Value {
        Value::Map(Box::new(MapArg {
            elem: Elem::F16,
            address: 0x1000,
            dims: SmallVec::from_slice(&[64, 64]),
            strides: SmallVec::from_slice(&[128]),
            box_dims: SmallVec::from_slice(&[64, 8]),
            element_strides: SmallVec::from_slice(&[1, 1]),
            swizzle: Swizzle::B128,
            oob: Oob::Zero,
            l2: L2::None,
        }))
    }

    #[test]
    fn values_stand_at_their_alignment() {
        let bits = |bits, size| Value::Bits { bits, size };
        let values = [
            bits(0xffff_fff1, 1),
            bits(0x1_2345_6789, 4),
            bits(7, 2),
            map(),
            bits(u64::MAX, 8),
            map(),
            bits(9, 1),
        ];
        let block =
            ParamBlock::new(&values, |m| Ok(TensorMap([m.box_dims[1] as u8; 128]))).expect("it encodes");
        assert_eq!(block.places(), [(0, 1), (4, 4), (8, 2), (64, 128), (192, 8), (256, 128), (384, 1)]);
        let bytes: Vec<u8> = block.bytes().collect();
        assert_eq!(bytes.len(), 385);
        assert_eq!(bytes[..10], [0xf1, 0, 0, 0, 0x89, 0x67, 0x45, 0x23, 7, 0]);
        assert!(bytes[10..64].iter().all(|&b| b == 0));
        assert!(bytes[64..192].iter().chain(&bytes[256..384]).all(|&b| b == 8));
        assert_eq!(bytes[192..200], [0xff; 8]);
        assert!(bytes[200..256].iter().all(|&b| b == 0));
        assert_eq!(bytes[384], 9);
        assert_eq!(align_of::<Line>(), 64);
    }

    #[test]
    fn no_values_take_no_bytes() {
        let block =
            ParamBlock::new(&[], |_| Err(Error::new(Code::E1205, "none"))).expect("nothing to encode");
        assert_eq!((block.bytes().count(), block.places().len()), (0, 0));
        let error =
            ParamBlock::new(&[map()], |_| Err(Error::new(Code::E1205, "no"))).expect_err("it does not");
        assert_eq!(error.code, Code::E1205);
    }
}
