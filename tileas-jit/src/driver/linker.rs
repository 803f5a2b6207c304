//! Calls of the linker inside the driver.
//!
//! In: PTX. Out: an image for the context's device. Guarantee: the image is copied before the linker that owns it goes, and
//! what the linker writes to outlives it. Elsewhere: its use as an assembler (`assembler::driver`).

use super::Outcome;
use super::context::{Context, call, check, warn};
use crate::error::Error;
use cudarc::driver::sys::{self, CUjit_option_enum as Jit};
use std::ffi::{CStr, c_uint, c_void};
use std::ptr;

/// Bytes for what the linker says.
const LOG_BYTES: usize = 16 << 10;

impl Context {
    /// Links one module of PTX for this device.
    pub(crate) fn link(&self, ptx: &str, opt_level: u8, line_info: bool) -> Result<Outcome, Error> {
        let mut text = super::terminated(ptx)?;
        let _current = self.enter()?;
        // Before the linker, so that it outlives it: the linker writes to it as long as it is there.
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = [
            Jit::CU_JIT_ERROR_LOG_BUFFER,
            Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            Jit::CU_JIT_OPTIMIZATION_LEVEL,
            Jit::CU_JIT_GENERATE_LINE_INFO,
            Jit::CU_JIT_TARGET_FROM_CUCONTEXT,
        ];
        let number = |n: usize| ptr::without_provenance_mut::<c_void>(n);
        // The last byte is not the linker's: the text ends.
        let mut values = [
            log.as_mut_ptr().cast(),
            number(LOG_BYTES - 1),
            number(opt_level.into()),
            number(line_info.into()),
            number(1),
        ];
        let mut raw = ptr::null_mut();
        let count = options.len() as c_uint;
        // SAFETY: as many options as values, each of the kind that the driver's documentation says.
        unsafe { call!(cuLinkCreate_v2(count, options.as_mut_ptr(), values.as_mut_ptr(), &raw mut raw)) }?;
        let linker = Linker(raw);
        let image = linker.link(&mut text).map(Vec::from);
        drop(linker);
        let said = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
        match image {
            Ok(image) => Ok(Outcome::Image(image)),
            Err(Failed { error, unknown: true }) => Ok(Outcome::Unknown(error.message)),
            Err(Failed { error, .. }) if said.trim().is_empty() => Err(error),
            Err(_) => Ok(Outcome::Refused(said.into_owned())),
        }
    }
}

struct Failed {
    error: Error,
    unknown: bool,
}

/// A linker, which owns its image.
struct Linker(sys::CUlinkState);

impl Linker {
    /// Links a text with a 0 behind it, which the driver counts.
    fn link(&self, text: &mut [u8]) -> Result<&[u8], Failed> {
        let kind = sys::CUjitInputType_enum::CU_JIT_INPUT_PTX;
        // SAFETY: a live linker, as many bytes as said, which it takes during the call; a name that ends with 0; no options.
        let result = unsafe {
            sys::cuLinkAddData_v2(
                self.0,
                kind,
                text.as_mut_ptr().cast(),
                text.len(),
                c"kernel".as_ptr(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        let unknown = matches!(
            result,
            sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                | sys::CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND
        );
        check("cuLinkAddData", result).map_err(|error| Failed { error, unknown })?;
        let (mut image, mut size) = (ptr::null_mut(), 0);
        // SAFETY: a live linker, and places for an address and a number.
        unsafe { call!(cuLinkComplete(self.0, &raw mut image, &raw mut size)) }
            .map_err(|error| Failed { error, unknown: false })?;
        if image.is_null() {
            return Ok(&[]);
        }
        // SAFETY: the driver says that so many bytes are there, until the linker goes.
        Ok(unsafe { std::slice::from_raw_parts(image.cast(), size) })
    }
}

impl Drop for Linker {
    fn drop(&mut self) {
        // SAFETY: it is not used again; the image was copied.
        warn(unsafe { call!(cuLinkDestroy(self.0)) });
    }
}
