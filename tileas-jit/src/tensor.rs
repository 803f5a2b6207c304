//! Memory of a device with a shape.
//!
//! A [`Tensor`] is a window into a block of memory: element type, extents, strides, first byte. Copies of the handle share the memory,
//! which is freed with the last of them and of the launches that use it.

use crate::backend::Block;
use crate::device::Device;
use crate::driver::BorrowedMemory;
use crate::error::{Code, Error};
use smallvec::SmallVec;
use std::sync::Arc;
use tileas_launch::{Elem, View};

/// A type of Rust's that elements of tensors have.
pub trait Element: bytemuck::Pod {
    /// The type of the elements.
    const ELEM: Elem;
}

macro_rules! elements {
    ($($ty:ty => $elem:ident),*) => {$(
        impl Element for $ty {
            const ELEM: Elem = Elem::$elem;
        }
    )*};
}
elements!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64);
elements!(half::f16 => F16, half::bf16 => Bf16, f32 => F32, f64 => F64);

impl Device {
    /// A tensor of zeros. Extents outermost first.
    ///
    /// # Errors
    /// `E1209`: too large, or elements without addresses. `E1205`: the driver fails.
    pub fn zeros(&self, elem: Elem, extents: &[i64]) -> Result<Tensor, Error> {
        Tensor::zeros(self, elem, extents)
    }

    /// A tensor with these elements, in row-major order.
    ///
    /// # Errors
    /// `E1209`: another number of elements than the extents say. `E1205`: the driver fails.
    pub fn tensor<T: Element>(&self, elements: &[T], extents: &[i64]) -> Result<Tensor, Error> {
        let mut tensor = Tensor::zeros(self, T::ELEM, extents)?;
        tensor.write(elements)?;
        Ok(tensor)
    }

    /// A tensor in memory that somebody else has and keeps: type, extents and strides in elements, outermost first, from the
    /// memory's first byte on.
    ///
    /// # Errors
    /// `E1209`: the device takes no memory of others, which is so for the emulator; negative extents or strides, ranks that differ,
    /// or less memory than [`Tensor::span`] says.
    pub fn borrow_tensor(
        &self,
        memory: BorrowedMemory,
        elem: Elem,
        extents: &[i64],
        strides: &[i64],
    ) -> Result<Tensor, Error> {
        let BorrowedMemory { address, bytes } = memory;
        let fits = |&n: &usize| n <= bytes && address.checked_add(bytes as u64).is_some();
        Tensor::span(elem, extents, strides).filter(fits).ok_or_else(|| {
            let of = format!("extents {extents:?} and strides {strides:?}");
            Error::new(Code::E1209, format!("{of} in {bytes} bytes from address {address:#x} on"))
        })?;
        let (block, extents, strides) = (self.0.borrow_memory(memory)?, extents.into(), strides.into());
        Ok(Tensor { device: self.clone(), block, elem, offset: 0, extents, strides })
    }
}

/// A tensor in the memory of a device.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub(crate) device: Device,
    pub(crate) block: Arc<dyn Block>,
    elem: Elem,
    /// Byte of the first element.
    offset: usize,
    extents: SmallVec<[i64; 5]>,
    strides: SmallVec<[i64; 5]>,
}

/// Elements of these extents; `None` beyond what addresses can count.
fn count(extents: &[i64]) -> Option<usize> {
    extents.iter().try_fold(1_usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?))
}

impl Tensor {
    /// A tensor of zeros, rows without gaps.
    pub(crate) fn zeros(device: &Device, elem: Elem, extents: &[i64]) -> Result<Tensor, Error> {
        if !elem.bits().is_multiple_of(8) {
            return Err(Error::new(Code::E1209, format!("elements of type {} have no address", elem.name())));
        }
        let bytes = count(extents).and_then(|n| n.checked_mul(elem.bytes() as usize));
        let too_large = || Error::new(Code::E1209, format!("a tensor of {extents:?} elements"));
        let block = device.0.allocate(bytes.ok_or_else(too_large)?)?;
        let View { extents, strides, .. } = View::dense(0, elem, extents);
        Ok(Tensor { device: device.clone(), block, elem, offset: 0, extents, strides })
    }

    /// Bytes from the first element to the end of the last; `None`: no tensor has these extents and strides.
    pub fn span(elem: Elem, extents: &[i64], strides: &[i64]) -> Option<usize> {
        if extents.len() != strides.len() || !elem.bits().is_multiple_of(8) {
            return None;
        }
        let (mut last, empty) = (0_usize, count(extents)? == 0);
        for (&n, &s) in extents.iter().zip(strides) {
            let (n, s) = (usize::try_from(n).ok()?, usize::try_from(s).ok()?);
            last = last.checked_add(n.saturating_sub(1).checked_mul(s)?)?;
        }
        if empty { Some(0) } else { last.checked_add(1)?.checked_mul(elem.bytes() as usize) }
    }

    /// Element type.
    pub fn elem(&self) -> Elem {
        self.elem
    }

    /// Extents, outermost first.
    pub fn extents(&self) -> &[i64] {
        &self.extents
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// Elements.
    pub fn len(&self) -> usize {
        count(&self.extents).unwrap_or(0)
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device that it is on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Another window into the same memory: elements of this one's type, `first` elements behind its first one.
    ///
    /// # Errors
    /// `E1209`: ranks differ, or an element would lie outside the memory.
    pub fn window(&self, first: usize, extents: &[i64], strides: &[i64]) -> Result<Tensor, Error> {
        let byte = first.saturating_mul(self.elem.bytes() as usize);
        self.part(byte, self.elem, extents, strides)
    }

    /// The memory from some byte behind this one's first on, as elements of any type.
    ///
    /// # Errors
    /// As [`Tensor::window`].
    pub fn part(&self, byte: usize, elem: Elem, extents: &[i64], strides: &[i64]) -> Result<Tensor, Error> {
        let offset = self.offset.saturating_add(byte);
        let end = || offset.checked_add(Tensor::span(elem, extents, strides)?);
        if end().is_none_or(|end| end > self.block.bytes()) {
            let text = format!(
                "extents {extents:?} and strides {strides:?} from byte {offset} on do not lie in the memory of {} bytes",
                self.block.bytes()
            );
            return Err(Error::new(Code::E1209, text));
        }
        Ok(Tensor { elem, offset, extents: extents.into(), strides: strides.into(), ..self.clone() })
    }

    /// Address of the first element on the device.
    pub fn address(&self) -> u64 {
        self.block.address() + self.offset as u64
    }

    /// The same memory as elements of another type of as many bytes.
    ///
    /// # Errors
    /// `E1209`: the types have not as many bytes.
    pub fn cast(&self, elem: Elem) -> Result<Tensor, Error> {
        if elem.bits() != self.elem.bits() {
            let text = format!("elements of type {} as {}", self.elem.name(), elem.name());
            return Err(Error::new(Code::E1209, text));
        }
        Ok(Tensor { elem, ..self.clone() })
    }

    /// Writes all elements, in row-major order, after everything launched before.
    ///
    /// # Errors
    /// `E1209`: another type, or another number of elements. `E1205`: the driver fails.
    pub fn write<T: Element>(&mut self, elements: &[T]) -> Result<(), Error> {
        self.check(T::ELEM)?;
        self.write_bytes(bytemuck::cast_slice(elements))
    }

    /// Writes all elements, given as bytes.
    ///
    /// # Errors
    /// As [`Tensor::write`].
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let size = self.elem.bytes() as usize;
        if bytes.len() != self.len() * size {
            let text = format!("{} bytes for {} elements of {size}", bytes.len(), self.len());
            return Err(Error::new(Code::E1209, text));
        }
        self.rows(|offset, at, n| self.block.write(offset, &bytes[at..at + n]))
    }

    /// Reads all elements, in row-major order, after everything launched before.
    ///
    /// # Errors
    /// `E1209`: another type. `E1205`: the driver fails.
    pub fn read<T: Element>(&self) -> Result<Vec<T>, Error> {
        self.check(T::ELEM)?;
        let mut elements = vec![T::zeroed(); self.len()];
        self.read_bytes(bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }

    /// Reads all elements as bytes, into memory of that size.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    pub fn read_bytes(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let size = self.elem.bytes() as usize;
        if bytes.len() != self.len() * size {
            let text = format!("{} bytes for {} elements of {size}", bytes.len(), self.len());
            return Err(Error::new(Code::E1209, text));
        }
        self.rows(|offset, at, n| self.block.read(offset, &mut bytes[at..at + n]))
    }

    fn check(&self, elem: Elem) -> Result<(), Error> {
        if self.elem.takes(elem) {
            return Ok(());
        }
        let text = format!("elements of type {}, not {}", self.elem.name(), elem.name());
        Err(Error::new(Code::E1209, text))
    }

    /// Runs of bytes that follow each other, in row-major order: byte of the block, byte of a dense copy, how many.
    fn rows(&self, mut each: impl FnMut(usize, usize, usize) -> Result<(), Error>) -> Result<(), Error> {
        let size = self.elem.bytes() as usize;
        // The innermost dimensions without gaps are one run.
        let mut run = 1_usize;
        let mut inner = self.extents.len();
        while inner > 0 && (self.strides[inner - 1] == run as i64 || self.extents[inner - 1] == 1) {
            inner -= 1;
            run *= self.extents[inner] as usize;
        }
        let outer = &self.extents[..inner];
        let total = count(outer).unwrap_or(0);
        if run == 0 {
            return Ok(());
        }
        for i in 0..total {
            let (mut rest, mut element) = (i, 0);
            for (&n, &s) in outer.iter().zip(&self.strides).rev() {
                element += (rest % n as usize) * s as usize;
                rest /= n as usize;
            }
            each(self.offset + element * size, i * run * size, run * size)?;
        }
        Ok(())
    }

    /// What a launch needs to know.
    pub(crate) fn view(&self, read_only: bool) -> View {
        View {
            address: self.address(),
            elem: Some(self.elem),
            extents: self.extents.clone(),
            strides: self.strides.clone(),
            read_only,
        }
    }
}
