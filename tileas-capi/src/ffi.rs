//! The functions that C calls.
//!
//! In: pointers of the caller's, who says by calling what they point to; that, and nothing else, is taken on trust. Out: handles, status, texts.

#![allow(unsafe_code, reason = "the one module of this crate that C calls")]
#![allow(non_camel_case_types, reason = "the names are C's")]

use crate::error::{Code, Failure};
use crate::table::{KernelTexts, ModuleTexts, NONE, Object, Table, other};
use ::tileas_jit::cache::Disk;
use ::tileas_jit::{
    BorrowedMemory, BorrowedStream, Cache, Device, DrawOptions, Elem, EmulatorOptions, Format, Jit,
    KernelArg, Stream, Tensor,
};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::{ptr, slice};
use tileas_codegen::Settings;

/// Success.
pub const TILEAS_OK: c_int = 0;
/// Failure: the error says why.
pub const TILEAS_FAILED: c_int = 1;
/// Dimensions of a tensor, at most.
pub const TILEAS_MAX_RANK: usize = 8;

/// Everything that is made belongs to a context. Functions may be called from any number of threads at once with one context; only
/// tileas_context_free() must be the last, and alone.
pub struct tileas_context {
    table: Table,
}

/// Where kernels run: a GPU, or the emulator. Copies of the handle mean the same device.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct tileas_device {
    /// The number of the handle; 0: there is none.
    pub id: u64,
}

/// Makes kernels for a device.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct tileas_jit {
    /// The number of the handle; 0: there is none.
    pub id: u64,
}

/// The text of kernels, read.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct tileas_module {
    /// The number of the handle; 0: there is none.
    pub id: u64,
}

/// A kernel, compiled and loaded.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct tileas_kernel {
    /// The number of the handle; 0: there is none.
    pub id: u64,
}

/// Memory of a device with an element type, extents and strides.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct tileas_tensor {
    /// The number of the handle; 0: there is none.
    pub id: u64,
}

/// An order of launches.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct tileas_stream {
    /// The number of the handle; 0: there is none.
    pub id: u64,
}

/// A text that was made.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct tileas_text {
    /// The number of the handle; 0: there is none.
    pub id: u64,
}

/// Why a function failed. It belongs to whoever gets it, and is freed by tileas_error_free().
pub struct tileas_error {
    code: CString,
    message: CString,
    entries: Vec<[CString; 3]>,
    places: Vec<[u32; 2]>,
}

/// One of the things that are wrong. Texts live as long as the error.
#[repr(C)]
pub struct tileas_error_entry {
    /// Stable code, such as "E0203".
    pub code: *const c_char,
    /// What is wrong.
    pub message: *const c_char,
    /// File, as a front end named it; empty: the text of the module.
    pub file: *const c_char,
    /// Line from 1 on; 0: not known.
    pub line: u32,
    /// Column from 1 on; 0: not known.
    pub column: u32,
}

/// The argument is a tensor that the kernel reads.
pub const TILEAS_READ: u32 = 0;
/// The argument is a tensor that the kernel may write.
pub const TILEAS_WRITE: u32 = 1;
/// The argument is an integer.
pub const TILEAS_INT: u32 = 2;
/// The argument is a floating-point number.
pub const TILEAS_FLOAT: u32 = 3;

/// An argument of a launch; tileas_read(), tileas_write(), tileas_int() and tileas_float() make them.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct tileas_arg {
    /// TILEAS_READ, TILEAS_WRITE, TILEAS_INT or TILEAS_FLOAT.
    pub kind: u32,
    /// A tensor.
    pub tensor: tileas_tensor,
    /// An integer.
    pub i: i64,
    /// A number.
    pub f: f64,
}

/// A text as C has it; bytes 0, which no text of ours has, end it.
fn text(s: &str) -> CString {
    CString::new(s.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

type Done<T> = Result<T, Failure>;

/// Runs the body of a function; a failure goes to `error`, and `none` is returned.
///
/// # Safety
/// `context` is null or one that was made; `error` is null or a place for a pointer.
unsafe fn run<T>(
    context: *const tileas_context,
    error: *mut *mut tileas_error,
    none: T,
    body: impl FnOnce(&Table) -> Done<T>,
) -> T {
    // SAFETY: the caller's word.
    let context = unsafe { context.as_ref() };
    let result = match context {
        None => Err(Failure::new(Code::E1304, "there is no context: it is null")),
        Some(context) => catch_unwind(AssertUnwindSafe(|| body(&context.table))).unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(Failure::new(Code::E1306, format!("the library broke down: {said}")))
        }),
    };
    match result {
        Ok(value) => {
            if !error.is_null() {
                // SAFETY: a place for a pointer.
                unsafe { *error = ptr::null_mut() };
            }
            value
        }
        Err(failure) => {
            if !error.is_null() {
                let made = Box::new(tileas_error {
                    code: text(failure.code),
                    message: text(&failure.message),
                    places: failure.entries.iter().map(|e| [e.line, e.column]).collect(),
                    entries: failure
                        .entries
                        .iter()
                        .map(|e| [text(e.code), text(&e.message), text(&e.file)])
                        .collect(),
                });
                // SAFETY: a place for a pointer.
                unsafe { *error = Box::into_raw(made) };
            }
            none
        }
    }
}

#[cold]
fn is_null(what: &str) -> Failure {
    Failure::new(Code::E1303, format!("{what} is null"))
}

/// A text of the caller's.
///
/// # Safety
/// Null, or a text that ends with 0 and is there until the call returns.
unsafe fn string<'a>(s: *const c_char, what: &str) -> Done<&'a str> {
    if s.is_null() {
        return Err(is_null(what));
    }
    // SAFETY: the caller's word.
    let text = unsafe { CStr::from_ptr(s) };
    text.to_str().map_err(|e| Failure::new(Code::E1303, format!("{what} is not UTF-8: {e}")))
}

/// Elements of the caller's.
///
/// # Safety
/// Null, or so many elements, which are there until the call returns.
unsafe fn list<'a, T>(start: *const T, len: usize, what: &str) -> Done<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(is_null(what));
    }
    // SAFETY: the caller's word.
    Ok(unsafe { slice::from_raw_parts(start, len) })
}

macro_rules! getters {
    ($($name:ident($handle:ident) -> $object:ty: $variant:ident $kind:literal;)*) => {$(
        fn $name(table: &Table, handle: $handle) -> Done<$object> {
            match table.get(handle.id, $kind)? {
                Object::$variant(object) => Ok(object),
                object => Err(other(&object, $kind)),
            }
        }
    )*};
}
getters! {
    jit_of(tileas_jit) -> Jit: Jit "jit";
    module_of(tileas_module) -> Arc<ModuleTexts>: Module "module";
    kernel_of(tileas_kernel) -> Arc<KernelTexts>: Kernel "kernel";
    tensor_of(tileas_tensor) -> Tensor: Tensor "tensor";
    stream_of(tileas_stream) -> Stream: Stream "stream";
    text_of(tileas_text) -> Arc<CString>: Text "text";
}

fn device_of(table: &Table, handle: tileas_device) -> Done<(Device, Arc<[CString; 2]>)> {
    match table.get(handle.id, "device")? {
        Object::Device(device, texts) => Ok((device, texts)),
        object => Err(other(&object, "device")),
    }
}

fn elem_of(name: &str) -> Done<Elem> {
    Elem::by_name(name).ok_or_else(|| {
        let all: Vec<&str> = Elem::ALL.iter().map(|e| e.name()).collect();
        Failure::new(Code::E1305, format!("no element type {name}; there are {}", all.join(", ")))
    })
}

fn rank_of(rank: usize) -> Done<usize> {
    if rank <= TILEAS_MAX_RANK {
        return Ok(rank);
    }
    Err(Failure::new(Code::E1305, format!("{rank} dimensions, {TILEAS_MAX_RANK} are the most")))
}

fn add_device(table: &Table, device: Device) -> tileas_device {
    let texts = Arc::new([text(&device.name()), text(device.target())]);
    tileas_device { id: table.add(Object::Device(device, texts)) }
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn tileas_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// A new context; NULL where there is no memory for it.
#[unsafe(no_mangle)]
pub extern "C" fn tileas_context_new() -> *mut tileas_context {
    let made = catch_unwind(|| Box::into_raw(Box::new(tileas_context { table: Table::default() })));
    made.unwrap_or(ptr::null_mut())
}

/// Frees a context with everything in it: handles and texts of it mean nothing any more. Waits for launches that are under way. NULL is
/// taken.
///
/// # Safety
/// It was made by tileas_context_new() and not freed, and no other function has it at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_context_free(context: *mut tileas_context) {
    if !context.is_null() {
        // SAFETY: it was made by `Box::into_raw`; nobody has it any more.
        let context = unsafe { Box::from_raw(context) };
        // What goes wrong while objects go has nobody to be told to.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(context)));
    }
}

/// The code of an error, such as "E1301". It lives as long as the error.
///
/// # Safety
/// An error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_error_code(error: *const tileas_error) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.map_or(ptr::null(), |e| e.code.as_ptr())
}

/// The whole text of an error. It lives as long as the error.
///
/// # Safety
/// An error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_error_message(error: *const tileas_error) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.map_or(ptr::null(), |e| e.message.as_ptr())
}

/// How many things are wrong: at least one.
///
/// # Safety
/// An error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_error_count(error: *const tileas_error) -> usize {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.map_or(0, |e| e.entries.len())
}

/// One of the things that are wrong, by its number from 0 on. TILEAS_FAILED where there are not so many.
///
/// # Safety
/// An error that was not freed; a place for the entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_error_at(
    error: *const tileas_error,
    n: usize,
    entry: *mut tileas_error_entry,
) -> c_int {
    // SAFETY: the caller's word.
    let Some(error) = (unsafe { error.as_ref() }) else { return TILEAS_FAILED };
    let (Some([code, message, file]), Some(&[line, column])) = (error.entries.get(n), error.places.get(n))
    else {
        return TILEAS_FAILED;
    };
    if entry.is_null() {
        return TILEAS_FAILED;
    }
    let (code, message, file) = (code.as_ptr(), message.as_ptr(), file.as_ptr());
    // SAFETY: a place for the entry.
    unsafe { *entry = tileas_error_entry { code, message, file, line, column } };
    TILEAS_OK
}

/// Frees an error. NULL is taken.
///
/// # Safety
/// It was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_error_free(error: *mut tileas_error) {
    if !error.is_null() {
        // SAFETY: it was made by `Box::into_raw`.
        drop(unsafe { Box::from_raw(error) });
    }
}

/// The emulator as a device: kernels run on the CPU, under detectors of races, deadlocks and accesses out of bounds. `target`: the processor that
/// code is made for, such as "sm_100a"; NULL for that. `sms`: multiprocessors, for grids with as many CTAs; 0 for 4.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_device_emulator(
    context: *mut tileas_context,
    target: *const c_char,
    sms: u32,
    error: *mut *mut tileas_error,
) -> tileas_device {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, tileas_device { id: NONE }, |table| {
            let mut options = EmulatorOptions::default();
            if !target.is_null() {
                string(target, "the target")?.clone_into(&mut options.target);
            }
            if sms > 0 {
                options.sms = sms;
            }
            Ok(add_device(table, Device::emulator_with(options)))
        })
    }
}

/// A GPU by its number.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_device_cuda(
    context: *mut tileas_context,
    ordinal: u32,
    error: *mut *mut tileas_error,
) -> tileas_device {
    // SAFETY: the caller's word.
    unsafe {
        run(context, error, tileas_device { id: NONE }, |table| {
            #[cfg(feature = "cuda")]
            return Ok(add_device(table, Device::cuda(ordinal)?));
            #[cfg(not(feature = "cuda"))]
            {
                let _ = table;
                Err(Failure::new(Code::E1305, format!("no GPU {ordinal}: built without the feature `cuda`")))
            }
        })
    }
}

/// What a device is, in words. The text lives as long as the handle.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_device_name(
    context: *mut tileas_context,
    device: tileas_device,
    error: *mut *mut tileas_error,
) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { run(context, error, ptr::null(), |table| Ok(device_of(table, device)?.1[0].as_ptr())) }
}

/// The processor that code is made for. The text lives as long as the handle.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_device_target(
    context: *mut tileas_context,
    device: tileas_device,
    error: *mut *mut tileas_error,
) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { run(context, error, ptr::null(), |table| Ok(device_of(table, device)?.1[1].as_ptr())) }
}

/// A maker of kernels for a device. `options`: `count` texts NAME=VALUE (`tileas options` lists them). `cache`: a folder where kernels are kept, which
/// processes may share, or NULL; `cache_bytes`: its size at most, 0 for 1 GiB.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_jit_new(
    context: *mut tileas_context,
    device: tileas_device,
    options: *const *const c_char,
    count: usize,
    cache: *const c_char,
    cache_bytes: u64,
    error: *mut *mut tileas_error,
) -> tileas_jit {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, tileas_jit { id: NONE }, |table| {
            let (device, _) = device_of(table, device)?;
            let mut settings = Settings::builder();
            for &option in list(options, count, "the list of options")? {
                let option = string(option, "an option")?;
                settings.set_pair(option).map_err(::tileas_jit::Error::from)?;
            }
            let mut builder = Jit::builder(&device).settings(settings.finish());
            if !cache.is_null() {
                let mut disk = Disk::open(string(cache, "the folder of the cache")?)?;
                if cache_bytes > 0 {
                    disk = disk.limit(cache_bytes);
                }
                builder = builder.cache(Cache::none().with_disk(disk));
            }
            Ok(tileas_jit { id: table.add(Object::Jit(builder.build()?)) })
        })
    }
}

/// How many kernels a maker has compiled, as no cache had them; 0 for a handle that means nothing.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_jit_compiled(context: *mut tileas_context, jit: tileas_jit) -> u64 {
    // SAFETY: the caller's word.
    unsafe { run(context, ptr::null_mut(), 0, |table| Ok(jit_of(table, jit)?.compiled())) }
}

/// Reads the text of a module: `len` bytes of UTF-8.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_module_parse(
    context: *mut tileas_context,
    jit: tileas_jit,
    source: *const c_char,
    len: usize,
    error: *mut *mut tileas_error,
) -> tileas_module {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, tileas_module { id: NONE }, |table| {
            let jit = jit_of(table, jit)?;
            let bytes = list(source.cast::<u8>(), len, "the text")?;
            let source = str::from_utf8(bytes)
                .map_err(|e| Failure::new(Code::E1303, format!("the text is not UTF-8: {e}")))?;
            let module = jit.parse(source)?;
            let names = module.functions.iter().map(|f| text(&f.name)).collect();
            Ok(tileas_module { id: table.add(Object::Module(Arc::new(ModuleTexts { module, names }))) })
        })
    }
}

/// How many kernels a module has; 0 for a handle that means nothing.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_module_count(context: *mut tileas_context, module: tileas_module) -> usize {
    // SAFETY: the caller's word.
    unsafe { run(context, ptr::null_mut(), 0, |table| Ok(module_of(table, module)?.names.len())) }
}

/// The name of a kernel by its number from 0 on. The text lives as long as the module.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_module_kernel_name(
    context: *mut tileas_context,
    module: tileas_module,
    n: usize,
    error: *mut *mut tileas_error,
) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe {
        run(context, error, ptr::null(), |table| {
            let names = &module_of(table, module)?.names;
            let name = names.get(n).map(|name| name.as_ptr());
            name.ok_or_else(|| Failure::new(Code::E1305, format!("kernel {n} of {}", names.len())))
        })
    }
}

/// A kernel of a module, by its name: from memory, from the cache, or compiled now.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_kernel_get(
    context: *mut tileas_context,
    jit: tileas_jit,
    module: tileas_module,
    name: *const c_char,
    error: *mut *mut tileas_error,
) -> tileas_kernel {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, tileas_kernel { id: NONE }, |table| {
            let (jit, module) = (jit_of(table, jit)?, module_of(table, module)?);
            let kernel = jit.kernel(&module.module, string(name, "the name")?)?;
            let texts = KernelTexts {
                name: text(kernel.name()),
                ptx: text(kernel.ptx()),
                metadata: text(&kernel.metadata().to_json()),
                assembler: text(kernel.assembler()),
                warnings: text(&kernel.warnings().join("\n")),
                kernel,
            };
            Ok(tileas_kernel { id: table.add(Object::Kernel(Arc::new(texts))) })
        })
    }
}

/// The name of a kernel. The text lives as long as the kernel.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_kernel_name(
    context: *mut tileas_context,
    kernel: tileas_kernel,
    error: *mut *mut tileas_error,
) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { run(context, error, ptr::null(), |table| Ok(kernel_of(table, kernel)?.name.as_ptr())) }
}

/// The PTX of a kernel. The text lives as long as the kernel.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_kernel_ptx(
    context: *mut tileas_context,
    kernel: tileas_kernel,
    error: *mut *mut tileas_error,
) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { run(context, error, ptr::null(), |table| Ok(kernel_of(table, kernel)?.ptx.as_ptr())) }
}

/// The launch metadata of a kernel as JSON. The text lives as long as the kernel.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_kernel_metadata(
    context: *mut tileas_context,
    kernel: tileas_kernel,
    error: *mut *mut tileas_error,
) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { run(context, error, ptr::null(), |table| Ok(kernel_of(table, kernel)?.metadata.as_ptr())) }
}

/// What made the machine code of a kernel; empty without machine code. The text lives as long as the kernel.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_kernel_assembler(
    context: *mut tileas_context,
    kernel: tileas_kernel,
    error: *mut *mut tileas_error,
) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { run(context, error, ptr::null(), |table| Ok(kernel_of(table, kernel)?.assembler.as_ptr())) }
}

/// The compiler's warnings, a line each; empty without any. The text lives as long as the kernel.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_kernel_warnings(
    context: *mut tileas_context,
    kernel: tileas_kernel,
    error: *mut *mut tileas_error,
) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { run(context, error, ptr::null(), |table| Ok(kernel_of(table, kernel)?.warnings.as_ptr())) }
}

/// The machine code of a kernel, an ELF image, and its size; NULL where there is none, as on the emulator. It lives as long as the kernel.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_kernel_machine_code(
    context: *mut tileas_context,
    kernel: tileas_kernel,
    bytes: *mut usize,
    error: *mut *mut tileas_error,
) -> *const c_void {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, ptr::null(), |table| {
            let kernel = kernel_of(table, kernel)?;
            let code = kernel.kernel.machine_code().map(|code| code.bytes());
            if !bytes.is_null() {
                *bytes = code.map_or(0, <[u8]>::len);
            }
            Ok(code.map_or(ptr::null(), |code| code.as_ptr().cast()))
        })
    }
}

/// How the loops of a kernel are scheduled, what limits them, and what would change that.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_explain(
    context: *mut tileas_context,
    jit: tileas_jit,
    module: tileas_module,
    name: *const c_char,
    error: *mut *mut tileas_error,
) -> tileas_text {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, tileas_text { id: NONE }, |table| {
            let (jit, module) = (jit_of(table, jit)?, module_of(table, module)?);
            let made = jit.explain(&module.module, string(name, "the name")?)?;
            Ok(tileas_text { id: table.add(Object::Text(Arc::new(text(&made)))) })
        })
    }
}

/// The schedules of a kernel as a picture. `format`: "gantt", "svg", "html" or "chrome-trace".
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_draw(
    context: *mut tileas_context,
    jit: tileas_jit,
    module: tileas_module,
    name: *const c_char,
    format: *const c_char,
    error: *mut *mut tileas_error,
) -> tileas_text {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, tileas_text { id: NONE }, |table| {
            let (jit, module) = (jit_of(table, jit)?, module_of(table, module)?);
            let (name, format) = (string(name, "the name")?, string(format, "the format")?);
            let Some(kind) = Format::by_name(format) else {
                let message = format!("no format {format}; there are gantt, svg, html, chrome-trace");
                return Err(Failure::new(Code::E1305, message));
            };
            let made = jit.draw(&module.module, name, kind, &DrawOptions::default())?;
            Ok(tileas_text { id: table.add(Object::Text(Arc::new(text(&made)))) })
        })
    }
}

/// A text. It lives as long as its handle.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_text_get(
    context: *mut tileas_context,
    made: tileas_text,
    error: *mut *mut tileas_error,
) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { run(context, error, ptr::null(), |table| Ok(text_of(table, made)?.as_ptr())) }
}

/// A tensor of zeros, rows without gaps. `elem`: "f16", "bf16", "f32", "i32", …; `extents`: `rank` of them, outermost first.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_tensor_zeros(
    context: *mut tileas_context,
    device: tileas_device,
    elem: *const c_char,
    rank: usize,
    extents: *const i64,
    error: *mut *mut tileas_error,
) -> tileas_tensor {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, tileas_tensor { id: NONE }, |table| {
            let (device, _) = device_of(table, device)?;
            let elem = elem_of(string(elem, "the element type")?)?;
            let tensor = device.zeros(elem, list(extents, rank_of(rank)?, "the extents")?)?;
            Ok(tileas_tensor { id: table.add(Object::Tensor(tensor)) })
        })
    }
}

/// A tensor in memory of a GPU that the caller has and keeps: the address of its first element, extents and strides in elements. It is the
/// caller's word that the memory is there, as large as that, until the tensor is freed and all launches with it have ended.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_tensor_borrow(
    context: *mut tileas_context,
    device: tileas_device,
    address: u64,
    elem: *const c_char,
    rank: usize,
    extents: *const i64,
    strides: *const i64,
    error: *mut *mut tileas_error,
) -> tileas_tensor {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, tileas_tensor { id: NONE }, |table| {
            let (device, _) = device_of(table, device)?;
            let elem = elem_of(string(elem, "the element type")?)?;
            let rank = rank_of(rank)?;
            let (extents, strides) =
                (list(extents, rank, "the extents")?, list(strides, rank, "the strides")?);
            // Extents without a span are refused below, whatever the memory.
            let bytes = Tensor::span(elem, extents, strides).unwrap_or(0);
            let memory = BorrowedMemory::new(address, bytes);
            let tensor = device.borrow_tensor(memory, elem, extents, strides)?;
            Ok(tileas_tensor { id: table.add(Object::Tensor(tensor)) })
        })
    }
}

/// Another window into the memory of a tensor, `first` elements behind its first one. The memory lives as long as any tensor in it.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_tensor_window(
    context: *mut tileas_context,
    tensor: tileas_tensor,
    first: usize,
    rank: usize,
    extents: *const i64,
    strides: *const i64,
    error: *mut *mut tileas_error,
) -> tileas_tensor {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, tileas_tensor { id: NONE }, |table| {
            let rank = rank_of(rank)?;
            let (extents, strides) =
                (list(extents, rank, "the extents")?, list(strides, rank, "the strides")?);
            let window = tensor_of(table, tensor)?.window(first, extents, strides)?;
            Ok(tileas_tensor { id: table.add(Object::Tensor(window)) })
        })
    }
}

/// Writes all elements of a tensor, in row-major order, after everything launched before. `bytes` is what they take.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_tensor_write(
    context: *mut tileas_context,
    tensor: tileas_tensor,
    data: *const c_void,
    bytes: usize,
    error: *mut *mut tileas_error,
) -> c_int {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, TILEAS_FAILED, |table| {
            tensor_of(table, tensor)?.write_bytes(list(data.cast::<u8>(), bytes, "the data")?)?;
            Ok(TILEAS_OK)
        })
    }
}

/// Reads all elements of a tensor, in row-major order, after everything launched before. `bytes` is what they take.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_tensor_read(
    context: *mut tileas_context,
    tensor: tileas_tensor,
    data: *mut c_void,
    bytes: usize,
    error: *mut *mut tileas_error,
) -> c_int {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, TILEAS_FAILED, |table| {
            let tensor = tensor_of(table, tensor)?;
            let place = match (data.is_null(), bytes) {
                (_, 0) => &mut [],
                (true, _) => return Err(is_null("the place for the data")),
                (false, _) => slice::from_raw_parts_mut(data.cast::<u8>(), bytes),
            };
            tensor.read_bytes(place)?;
            Ok(TILEAS_OK)
        })
    }
}

/// A new order of launches: each begins when the one before it has ended.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_stream_new(
    context: *mut tileas_context,
    device: tileas_device,
    error: *mut *mut tileas_error,
) -> tileas_stream {
    // SAFETY: the caller's word.
    unsafe {
        run(context, error, tileas_stream { id: NONE }, |table| {
            let stream = device_of(table, device)?.0.stream()?;
            Ok(tileas_stream { id: table.add(Object::Stream(stream)) })
        })
    }
}

/// A CUstream that the caller has and keeps, of the device's primary context; NULL is the default one.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_stream_borrow(
    context: *mut tileas_context,
    device: tileas_device,
    stream: *mut c_void,
    error: *mut *mut tileas_error,
) -> tileas_stream {
    // SAFETY: the caller's word.
    unsafe {
        run(context, error, tileas_stream { id: NONE }, |table| {
            let stream = BorrowedStream::new(stream.expose_provenance() as u64);
            let stream = device_of(table, device)?.0.borrow_stream(stream)?;
            Ok(tileas_stream { id: table.add(Object::Stream(stream)) })
        })
    }
}

/// Waits until all launches of a stream have ended.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_stream_synchronize(
    context: *mut tileas_context,
    stream: tileas_stream,
    error: *mut *mut tileas_error,
) -> c_int {
    // SAFETY: the caller's word.
    unsafe {
        run(context, error, TILEAS_FAILED, |table| {
            stream_of(table, stream)?.synchronize()?;
            Ok(TILEAS_OK)
        })
    }
}

/// Launches a kernel. `grid`: three numbers of CTAs, or NULL for those that the metadata suggest. `args`: `count` arguments in the order of
/// the kernel's parameters.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_launch(
    context: *mut tileas_context,
    kernel: tileas_kernel,
    stream: tileas_stream,
    grid: *const u32,
    args: *const tileas_arg,
    count: usize,
    error: *mut *mut tileas_error,
) -> c_int {
    // SAFETY: the caller's word, here and within.
    unsafe {
        run(context, error, TILEAS_FAILED, |table| {
            let (kernel, stream) = (kernel_of(table, kernel)?, stream_of(table, stream)?);
            let args = list(args, count, "the list of arguments")?;
            let tensors = args.iter().map(|arg| match arg.kind {
                TILEAS_READ | TILEAS_WRITE => tensor_of(table, arg.tensor).map(Some),
                _ => Ok(None),
            });
            let tensors: Vec<Option<Tensor>> = tensors.collect::<Done<_>>()?;
            let mut given: Vec<KernelArg<'_>> = Vec::with_capacity(count);
            for (n, (arg, tensor)) in args.iter().zip(&tensors).enumerate() {
                given.push(match (arg.kind, tensor) {
                    (kind, Some(tensor)) => KernelArg::Tensor(tensor, kind == TILEAS_WRITE),
                    (TILEAS_INT, _) => KernelArg::from(arg.i),
                    (TILEAS_FLOAT, _) => KernelArg::from(arg.f),
                    (kind, None) => {
                        let message = format!("argument {n} is of kind {kind}, which there is not");
                        return Err(Failure::new(Code::E1305, message));
                    }
                });
            }
            match grid.is_null() {
                true => kernel.kernel.launch(&stream, &given)?,
                false => {
                    let grid = list(grid, 3, "the grid")?;
                    kernel.kernel.launch_grid(&stream, [grid[0], grid[1], grid[2]], &given)?;
                }
            }
            Ok(TILEAS_OK)
        })
    }
}

/// Frees a device: the handle means nothing any more. What was made of it keeps it. A handle of 0 is taken.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_device_free(
    context: *mut tileas_context,
    handle: tileas_device,
    error: *mut *mut tileas_error,
) -> c_int {
    // SAFETY: the caller's word.
    unsafe { free(context, handle.id, "device", error) }
}

/// Frees a jit: the handle means nothing any more. Its kernels stay. A handle of 0 is taken.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_jit_free(
    context: *mut tileas_context,
    handle: tileas_jit,
    error: *mut *mut tileas_error,
) -> c_int {
    // SAFETY: the caller's word.
    unsafe { free(context, handle.id, "jit", error) }
}

/// Frees a module: the handle means nothing any more. A handle of 0 is taken.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_module_free(
    context: *mut tileas_context,
    handle: tileas_module,
    error: *mut *mut tileas_error,
) -> c_int {
    // SAFETY: the caller's word.
    unsafe { free(context, handle.id, "module", error) }
}

/// Frees a kernel: the handle means nothing any more. It is unloaded when no launch of it is under way any more. A handle of 0 is taken.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_kernel_free(
    context: *mut tileas_context,
    handle: tileas_kernel,
    error: *mut *mut tileas_error,
) -> c_int {
    // SAFETY: the caller's word.
    unsafe { free(context, handle.id, "kernel", error) }
}

/// Frees a tensor: the handle means nothing any more. The memory is freed with the last tensor in it, when no launch with it is under way any more. A handle of 0 is taken.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_tensor_free(
    context: *mut tileas_context,
    handle: tileas_tensor,
    error: *mut *mut tileas_error,
) -> c_int {
    // SAFETY: the caller's word.
    unsafe { free(context, handle.id, "tensor", error) }
}

/// Frees a stream: the handle means nothing any more. Waits for nothing. A handle of 0 is taken.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_stream_free(
    context: *mut tileas_context,
    handle: tileas_stream,
    error: *mut *mut tileas_error,
) -> c_int {
    // SAFETY: the caller's word.
    unsafe { free(context, handle.id, "stream", error) }
}

/// Frees a text: the handle means nothing any more. A handle of 0 is taken.
///
/// # Safety
/// Pointers are null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tileas_text_free(
    context: *mut tileas_context,
    handle: tileas_text,
    error: *mut *mut tileas_error,
) -> c_int {
    // SAFETY: the caller's word.
    unsafe { free(context, handle.id, "text", error) }
}

/// Frees what a handle means.
///
/// # Safety
/// As [`run`].
unsafe fn free(context: *const tileas_context, id: u64, what: &str, error: *mut *mut tileas_error) -> c_int {
    // SAFETY: the caller's word.
    unsafe {
        run(context, error, TILEAS_FAILED, |table| {
            if id != NONE {
                drop(table.remove(id, what)?);
            }
            Ok(TILEAS_OK)
        })
    }
}
