//! Calls of nvJitLink.
//!
//! In: a file, then PTX. Out: images and logs. Guarantee: a handle is made, used and destroyed within one call; a library that was
//! loaded stays.
//! Source: `nvJitLink.h` of releases 12.0 and 13.5, whose numbers agree.

use super::Outcome;
use crate::error::{Code, Error};
use std::ffi::{CString, OsStr, c_char, c_int, c_uint, c_void};
use std::ptr;

type Handle = *mut c_void;
type OfHandle = unsafe extern "C" fn(Handle) -> c_int;
type SizeOf = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type BytesOf = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;

const INPUT_PTX: c_int = 2;
const INTERNAL: c_int = 6;
const THREADPOOL: c_int = 7;
const UNRECOGNIZED_ARCH: c_int = 16;
const UNSUPPORTED_ARCH: c_int = 17;

/// The functions of a library that is loaded.
pub(crate) struct Library {
    create: unsafe extern "C" fn(*mut Handle, c_uint, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Handle) -> c_int,
    add_data: unsafe extern "C" fn(Handle, c_int, *const c_void, usize, *const c_char) -> c_int,
    complete: OfHandle,
    cubin: (SizeOf, BytesOf),
    errors: (SizeOf, BytesOf),
    remarks: (SizeOf, BytesOf),
    version: (u32, u32),
}

impl Library {
    /// Loads a file, or a library by name.
    pub(crate) fn open(path: &OsStr) -> Result<Library, Error> {
        let absent = |why: String| Error::new(Code::E1204, format!("{}: {why}", path.display()));
        // SAFETY: loading runs the library's initialisers; the file is one that our caller or the system trusts as code.
        let library = unsafe { libloading::Library::new(path) }.map_err(|e| absent(e.to_string()))?;
        // Never unloaded: it has threads of its own, which may still be in its code after the last call returned.
        let library = std::mem::ManuallyDrop::new(library);
        let has = |name: &str| {
            // SAFETY: the symbol is only looked for, not used.
            unsafe { library.get::<*const c_void>(name) }.is_ok()
        };
        // Before 12.4 only names with a release are there, and no function that says which it is.
        let plain = has("nvJitLinkCreate");
        let last = (0..10).rev().find(|n| has(&format!("__nvJitLinkCreate_12_{n}")));
        let name = |function: &str| match last {
            Some(n) if !plain => format!("__nvJitLink{function}_12_{n}"),
            _ => format!("nvJitLink{function}"),
        };
        macro_rules! symbol {
            ($function:literal) => {{
                let name = name($function);
                // SAFETY: the type is that of the field it is for, which is the function's in `nvJitLink.h`.
                *unsafe { library.get(&name) }
                    .map_err(|_| absent(format!("no nvJitLink: it has no {name}")))?
            }};
        }
        let mut version = (12, last.unwrap_or(0));
        if plain {
            let get: unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> c_int = symbol!("Version");
            // SAFETY: two numbers to write to.
            let result = unsafe { get(&raw mut version.0, &raw mut version.1) };
            if result != 0 {
                return Err(absent(format!("nvJitLinkVersion fails ({result})")));
            }
        }
        Ok(Library {
            create: symbol!("Create"),
            destroy: symbol!("Destroy"),
            add_data: symbol!("AddData"),
            complete: symbol!("Complete"),
            cubin: (symbol!("GetLinkedCubinSize"), symbol!("GetLinkedCubin")),
            errors: (symbol!("GetErrorLogSize"), symbol!("GetErrorLog")),
            remarks: (symbol!("GetInfoLogSize"), symbol!("GetInfoLog")),
            version,
        })
    }

    /// Its release.
    pub(crate) fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Links one module of PTX.
    pub(crate) fn link(&self, ptx: &str, target: &str, options: &[String]) -> Result<Outcome, Error> {
        let arch = format!("-arch={target}");
        let options =
            std::iter::once(arch.as_str()).chain(options.iter().map(String::as_str)).map(CString::new);
        let options = options.collect::<Result<Vec<CString>, _>>();
        let options = options.map_err(|_| Error::new(Code::E1202, "an option with a byte 0 in it"))?;
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: as many strings as said, which live until the end of this function.
        let created = unsafe { (self.create)(&raw mut handle, pointers.len() as c_uint, pointers.as_ptr()) };
        let job = Job { library: self, handle };
        match created {
            0 => {}
            // Release 12.9 has but an internal error for it.
            INTERNAL | UNRECOGNIZED_ARCH | UNSUPPORTED_ARCH => {
                let (major, minor) = self.version;
                return Ok(Outcome::Unknown(format!("release {major}.{minor} does not know {target}")));
            }
            _ => {
                let said = job.text("GetErrorLog", self.errors)?;
                return Err(failed("Create", created, &said));
            }
        }
        // The library looks for a 0 behind the text, whatever the size says: without one it reads on.
        let text = super::terminated(ptx)?;
        // SAFETY: the handle was just made; text and name end with 0, and live until the end of this function.
        let mut result = unsafe {
            (self.add_data)(job.handle, INPUT_PTX, text.as_ptr().cast(), text.len(), c"kernel".as_ptr())
        };
        let mut call = "AddData";
        if result == 0 {
            call = "Complete";
            // SAFETY: a handle with its data.
            result = unsafe { (self.complete)(job.handle) };
        }
        if result != 0 {
            let said = job.text("GetErrorLog", self.errors)?;
            let own_fault = matches!(result, INTERNAL | THREADPOOL) || said.is_empty();
            return if own_fault { Err(failed(call, result, &said)) } else { Ok(Outcome::Refused(said)) };
        }
        let remarks = job.text("GetInfoLog", self.remarks)?;
        remark("nvJitLink", &remarks);
        job.read("GetLinkedCubin", self.cubin).map(Outcome::Image)
    }
}

/// Hands on what an assembler remarks of code that it has made: a warning where that costs time, as where it makes the products of a
/// warpgroup one at a time.
pub(crate) fn remark(tool: &str, said: &str) {
    for line in said.lines().filter(|l| !l.trim().is_empty()) {
        let level = if line.contains("Performance Loss") { log::Level::Warn } else { log::Level::Debug };
        log::log!(level, "{tool}: {}", line.trim());
    }
}

fn failed(call: &str, result: c_int, said: &str) -> Error {
    Error::new(Code::E1203, format!("nvJitLink{call} fails ({result}) {said}"))
}

/// A handle, destroyed when it goes.
struct Job<'a> {
    library: &'a Library,
    handle: Handle,
}

impl Job<'_> {
    /// Reads a log.
    fn text(&self, call: &str, functions: (SizeOf, BytesOf)) -> Result<String, Error> {
        let bytes = self.read(call, functions)?;
        let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).trim_end().to_owned())
    }

    /// Reads something whose size is asked first.
    fn read(&self, call: &str, (size_of, bytes_of): (SizeOf, BytesOf)) -> Result<Vec<u8>, Error> {
        let mut size = 0;
        // SAFETY: a live handle and a number to write to.
        let result = unsafe { size_of(self.handle, &raw mut size) };
        if result != 0 {
            return Err(failed(call, result, "for the size"));
        }
        if size == 0 {
            return Ok(Vec::new());
        }
        // One more: releases differ in whether the size of a log counts the 0 behind it.
        let mut bytes = vec![0_u8; size + 1];
        // SAFETY: room for what it says it writes.
        let result = unsafe { bytes_of(self.handle, bytes.as_mut_ptr().cast()) };
        bytes.truncate(size);
        if result != 0 { Err(failed(call, result, "")) } else { Ok(bytes) }
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is not used again. One that could not be created with these options may be destroyed too.
            let result = unsafe { (self.library.destroy)(&raw mut self.handle) };
            if result != 0 {
                log::warn!("nvJitLinkDestroy fails ({result})");
            }
        }
    }
}
