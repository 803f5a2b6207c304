//! Launches for the emulator.

use crate::arg::View;
use crate::elem::Elem;
use crate::error::{Code, Error};
use crate::launch::{Launch, MapArg, Value};
use crate::meta::{Oob, Swizzle};
use tileas_emu::host::data::Placed;
use tileas_emu::{Arg, MapDesc, Memory, OobFill, TmaType};

impl Launch {
    /// The launch of an entry of a module.
    ///
    /// # Errors
    /// `E1107` for element types that no tensor map has.
    pub fn emulated(&self, kernel: &str) -> Result<tileas_emu::Launch, Error> {
        let args = self.params.iter().map(|p| {
            Ok(match p {
                Value::Bits { bits, size } => {
                    let bytes = bits.to_le_bytes();
                    Arg::Bytes(bytes[..usize::from(*size).min(bytes.len())].to_vec())
                }
                Value::Map(map) => Arg::map(map.emulated()?),
            })
        });
        let args = args.collect::<Result<Vec<Arg>, Error>>()?;
        let (grid, block, dynamic_smem) = (self.grid, self.block, self.dynamic_smem);
        // A kernel that is not for clusters is launched as one that knows of none.
        let cluster = (self.cluster != [1; 3]).then_some(self.cluster);
        Ok(tileas_emu::Launch { kernel: Some(kernel.into()), grid, cluster, block, dynamic_smem, args })
    }
}

impl MapArg {
    fn emulated(&self) -> Result<MapDesc, Error> {
        let known = self.elem.map_type().and_then(|n| TmaType::DRIVER_ORDER.get(n as usize).copied());
        let none =
            || Error::new(Code::E1107, format!("no tensor map is of elements of type {}", self.elem.name()));
        Ok(MapDesc {
            elem: known.ok_or_else(none)?,
            address: self.address,
            dims: self.dims.to_vec(),
            strides: self.strides.to_vec(),
            box_dims: self.box_dims.to_vec(),
            element_strides: self.element_strides.to_vec(),
            swizzle: match self.swizzle {
                Swizzle::None => tileas_emu::Swizzle::None,
                Swizzle::B32 => tileas_emu::Swizzle::B32,
                Swizzle::B64 => tileas_emu::Swizzle::B64,
                Swizzle::B128 => tileas_emu::Swizzle::B128,
            },
            oob: match self.oob {
                Oob::Zero => OobFill::Zero,
                Oob::Nan => OobFill::Nan,
            },
        })
    }
}

impl View {
    /// A view that lies in the emulator's memory.
    pub fn emulated(placed: &Placed, memory: &Memory, elem: Option<Elem>) -> View {
        let list = |all: &[usize]| all.iter().map(|&n| n as i64).collect();
        View {
            address: memory.address(placed.buffer).saturating_add(placed.offset as u64),
            elem,
            extents: list(&placed.shape),
            strides: list(&placed.strides),
            read_only: false,
        }
    }
}
