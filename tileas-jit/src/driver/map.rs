//! Tensor maps.
//!
//! In: a [`MapArg`]. Out: its 128 bytes, as the driver encodes them. Guarantee: the driver sees as many numbers as it reads.
//! Elsewhere: whether the numbers are allowed (the driver; what our kernels need of them: `tileas-launch`).

use super::context::{Context, call};
use super::params::TensorMap;
use crate::error::{Code, Error};
use cudarc::driver::sys::{self, CUtensorMapDataType_enum as Type, CUtensorMapSwizzle_enum as Shuffle};
use cudarc::driver::sys::{CUtensorMapFloatOOBfill_enum as Fill, CUtensorMapL2promotion_enum as Promotion};
use tileas_launch::{L2, MapArg, Oob, Swizzle};

/// By their numbers, which are those of [`tileas_launch::Elem::map_type`].
const TYPES: [Type; 13] = [
    Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    Type::CU_TENSOR_MAP_DATA_TYPE_UINT16,
    Type::CU_TENSOR_MAP_DATA_TYPE_UINT32,
    Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
    Type::CU_TENSOR_MAP_DATA_TYPE_UINT64,
    Type::CU_TENSOR_MAP_DATA_TYPE_INT64,
    Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
    Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
    Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
];

fn shuffle(swizzle: Swizzle) -> Shuffle {
    match swizzle {
        Swizzle::None => Shuffle::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::B32 => Shuffle::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::B64 => Shuffle::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::B128 => Shuffle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}

fn fill(oob: Oob) -> Fill {
    match oob {
        Oob::Zero => Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        Oob::Nan => Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    }
}

fn promotion(l2: L2) -> Promotion {
    match l2 {
        L2::None => Promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
        L2::B64 => Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        L2::B128 => Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        L2::B256 => Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    }
}

/// The numbers, with 0 behind them: the driver wants addresses of all lists, even of one that it does not read.
fn five<T: Copy + Default>(numbers: &[T]) -> [T; 5] {
    let mut all = [T::default(); 5];
    for (to, from) in all.iter_mut().zip(numbers) {
        *to = *from;
    }
    all
}

impl Context {
    /// Encodes a tensor map. It holds the address and extents: another tensor needs another map.
    ///
    /// # Errors
    /// `E1205` with what was asked.
    pub fn encode_tensor_map(&self, map: &MapArg) -> Result<TensorMap, Error> {
        let wrong = |why: &str| {
            Error::new(Code::E1205, format!("no tensor map can be made: {why}; asked for: {map:?}"))
        };
        let rank = map.dims.len();
        if !(1..=5).contains(&rank) {
            return Err(wrong("1 to 5 dimensions are possible"));
        }
        if (map.strides.len() + 1, map.box_dims.len(), map.element_strides.len()) != (rank, rank, rank) {
            return Err(wrong("the lists are not of the same rank"));
        }
        let elem = map.elem.map_type().and_then(|n| TYPES.get(n as usize)).copied();
        let elem = elem.ok_or_else(|| wrong("there is none of that type"))?;
        let (dims, strides) = (five(&map.dims), five(&map.strides));
        let (boxes, steps) = (five(&map.box_dims), five(&map.element_strides));
        let mut encoded = sys::CUtensorMap { opaque: [0; 16] };
        let _current = self.enter()?;
        // SAFETY: room for a map, lists of at least `rank` numbers; the address is only written into the map.
        let result = unsafe {
            call!(cuTensorMapEncodeTiled(
                &raw mut encoded,
                elem,
                rank as u32,
                map.address as *mut std::ffi::c_void,
                dims.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
                shuffle(map.swizzle),
                promotion(map.l2),
                fill(map.oob),
            ))
        };
        result.map_err(|e| wrong(&e.message))?;
        let mut bytes = [0; 128];
        for (to, from) in bytes.chunks_exact_mut(8).zip(encoded.opaque) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        Ok(TensorMap(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileas_launch::Elem;

    #[test]
    fn numbers_are_the_drivers() {
        assert!(TYPES.iter().enumerate().all(|(n, &t)| t as usize == n));
        for elem in Elem::ALL {
            assert!(elem.map_type().is_none_or(|n| (n as usize) < TYPES.len()), "{elem:?}");
        }
        for s in [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128] {
            assert_eq!(shuffle(s) as u32, s as u32);
        }
        for o in [Oob::Zero, Oob::Nan] {
            assert_eq!(fill(o) as u32, o as u32);
        }
        for l in [L2::None, L2::B64, L2::B128, L2::B256] {
            assert_eq!(promotion(l) as u32, l as u32);
        }
        assert_eq!(size_of::<sys::CUtensorMap>(), size_of::<TensorMap>());
        assert_eq!(align_of::<sys::CUtensorMap>(), align_of::<TensorMap>());
    }
}
