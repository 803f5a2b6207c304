//! A device, its streams and its events.
//!
//! In: the number of a device. Out: its primary context, which is the one that CUDA's runtime and others in this process use, so that
//! their memory and streams are ours too. Guarantee: while a call of ours runs, the context is the thread's current one,
//! and afterwards the one that was is again: a program that works with several devices notices nothing.
//!
//! The calls are cudarc's `sys`, its safe layer is not used: an error has to name the call, and that layer keeps events for every
//! piece of memory. Each call goes through [`call!`], which looks at the result.

use super::borrowed::BorrowedStream;
use crate::error::{Code, Error};
use cudarc::driver::sys;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

/// Calls a function of the driver; anything but success is an `E1205` with its name. For use in `unsafe` blocks only.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::driver::context::check(stringify!($function), cudarc::driver::sys::$function($($argument),*))
    };
}
pub(super) use call;

/// The first driver that has all functions that are called: that of CUDA 12.0.
const LEAST_DRIVER: c_int = 12_000;

/// Turns a result into an error.
pub(super) fn check(function: &str, result: sys::CUresult) -> Result<(), Error> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = ptr::null();
    // SAFETY: a place for the address of a text that the driver keeps.
    let described = unsafe { sys::cuGetErrorString(result, &raw mut text) };
    let text = if described == sys::CUresult::CUDA_SUCCESS && !text.is_null() {
        // SAFETY: the driver's own text, ended by 0, which is never freed.
        unsafe { CStr::from_ptr(text) }.to_string_lossy()
    } else {
        "an error without a text".into()
    };
    Err(Error::new(Code::E1205, format!("{function} fails: {text} ({result:?})")))
}

/// For destructors, which can hand no error on.
pub(super) fn warn(result: Result<(), Error>) {
    if let Err(error) = result {
        log::warn!("{error}");
    }
}

/// Whether there is a driver at all. Functions of cudarc panic where there is none.
fn is_present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: loads the system's driver, if it has one, and lets it go.
    *PRESENT.get_or_init(|| unsafe { sys::is_culib_present() })
}

#[derive(Debug)]
struct Inner {
    device: sys::CUdevice,
    raw: sys::CUcontext,
    name: String,
    capability: (u32, u32),
    multiprocessors: u32,
    max_shared: u32,
    driver: (u32, u32),
}

// SAFETY: contexts may be current on any number of threads, and the driver's functions may be called from all.
unsafe impl Send for Inner {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once, when it was made; everything that belongs to it has an `Arc` of this.
        warn(unsafe { call!(cuDevicePrimaryCtxRelease_v2(self.device)) });
    }
}

/// The primary context of a device. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context(Arc<Inner>);

/// While this lives, a context is the thread's current one.
pub(super) struct Current;

impl Drop for Current {
    fn drop(&mut self) {
        let mut popped = ptr::null_mut();
        // SAFETY: takes away what `Context::enter` put there.
        warn(unsafe { call!(cuCtxPopCurrent_v2(&raw mut popped)) });
    }
}

impl Context {
    /// Opens the device of that number.
    ///
    /// # Errors
    /// `E1204`: no driver, or one before CUDA 12.0. `E1205`: no such device.
    pub fn new(ordinal: u32) -> Result<Context, Error> {
        if !is_present() {
            return Err(Error::new(Code::E1204, "there is no CUDA driver: no libcuda can be loaded"));
        }
        let mut version = 0;
        // SAFETY: a number to write to; may be called before `cuInit`.
        unsafe { call!(cuDriverGetVersion(&raw mut version)) }?;
        let driver = ((version / 1000) as u32, (version % 1000 / 10) as u32);
        if version < LEAST_DRIVER {
            let text = format!("the driver is of CUDA {}.{}, 12.0 or later is needed", driver.0, driver.1);
            return Err(Error::new(Code::E1204, text));
        }
        let ordinal = c_int::try_from(ordinal)
            .map_err(|_| Error::new(Code::E1205, format!("there is no device {ordinal}")))?;
        let mut device = 0;
        // SAFETY: a number to write to.
        unsafe {
            call!(cuInit(0))?;
            call!(cuDeviceGet(&raw mut device, ordinal))?;
        }
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: a number to write to, and a device that exists.
            unsafe { call!(cuDeviceGetAttribute(&raw mut value, which, device)) }?;
            Ok::<u32, Error>(u32::try_from(value).unwrap_or(0))
        };
        use sys::CUdevice_attribute_enum as A;
        let capability = (
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let multiprocessors = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let max_shared = attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let mut name = [0_u8; 256];
        // SAFETY: as many bytes as said, of which the driver ends the last it uses with 0.
        unsafe { call!(cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, device)) }?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
        let mut raw = ptr::null_mut();
        // SAFETY: a place for the context. Last of all, so that what is retained is released.
        unsafe { call!(cuDevicePrimaryCtxRetain(&raw mut raw, device)) }?;
        Ok(Context(Arc::new(Inner { device, raw, name, capability, multiprocessors, max_shared, driver })))
    }

    /// Makes it current until the guard goes.
    pub(super) fn enter(&self) -> Result<Current, Error> {
        // SAFETY: a live context.
        unsafe { call!(cuCtxPushCurrent_v2(self.0.raw)) }?;
        Ok(Current)
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Compute capability: (9, 0) is Hopper's.
    pub fn capability(&self) -> (u32, u32) {
        self.0.capability
    }

    /// The processor to assemble for: `sm_90a`. From 9.0 on, with what only this processor has.
    pub fn target(&self) -> String {
        let (major, minor) = self.0.capability;
        format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
    }

    /// Multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors
    }

    /// Bytes of shared memory that a CTA may have when its kernel asks for them.
    pub fn max_shared_bytes(&self) -> u32 {
        self.0.max_shared
    }

    /// The release of CUDA that the driver is of.
    pub fn driver_version(&self) -> (u32, u32) {
        self.0.driver
    }

    /// Waits for everything that was given to the device in this context, by whomever.
    ///
    /// # Errors
    /// `E1205`, also for what went wrong in a kernel.
    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.enter()?;
        // SAFETY: the context is current.
        unsafe { call!(cuCtxSynchronize()) }
    }
}

/// A queue of work.
#[derive(Debug)]
pub struct Stream {
    context: Context,
    raw: sys::CUstream,
    owned: bool,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: the driver orders calls on one stream.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new queue, which does not wait for the default one.
    ///
    /// # Errors
    /// `E1205`.
    pub fn new(context: &Context) -> Result<Stream, Error> {
        let _current = context.enter()?;
        let mut raw = ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: a place for the stream; the context is current.
        unsafe { call!(cuStreamCreate(&raw mut raw, flags)) }?;
        Ok(Stream { context: context.clone(), raw, owned: true })
    }

    /// A queue of somebody else's, who keeps it.
    pub(crate) fn borrowed(context: &Context, stream: BorrowedStream) -> Stream {
        let raw = ptr::with_exposed_provenance_mut(stream.raw as usize);
        Stream { context: context.clone(), raw, owned: false }
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The `CUstream`, for those who call the driver themselves.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Waits for everything in it.
    ///
    /// # Errors
    /// `E1205`, also for what went wrong in a kernel.
    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.context.enter()?;
        // SAFETY: a live stream.
        unsafe { call!(cuStreamSynchronize(self.raw)) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: it is ours and is not used again; the driver lets what is in it finish.
            warn(self.context.enter().and_then(|_current| unsafe { call!(cuStreamDestroy_v2(self.raw)) }));
        }
    }
}

/// A moment in a queue.
#[derive(Debug)]
pub struct Event {
    context: Context,
    raw: sys::CUevent,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that takes the time.
    ///
    /// # Errors
    /// `E1205`.
    pub fn new(context: &Context) -> Result<Event, Error> {
        let _current = context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: a place for the event; the context is current.
        unsafe { call!(cuEventCreate(&raw mut raw, sys::CUevent_flags_enum::CU_EVENT_DEFAULT as c_uint)) }?;
        Ok(Event { context: context.clone(), raw })
    }

    /// Puts it behind what is in the stream now.
    ///
    /// # Errors
    /// `E1205`.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        let _current = self.context.enter()?;
        // SAFETY: a live event and a live stream.
        unsafe { call!(cuEventRecord(self.raw, stream.raw)) }
    }

    /// Waits until the device has come to it.
    ///
    /// # Errors
    /// `E1205`.
    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.context.enter()?;
        // SAFETY: a live event.
        unsafe { call!(cuEventSynchronize(self.raw)) }
    }

    /// Milliseconds from `start` to this; both have to have come to pass.
    ///
    /// # Errors
    /// `E1205`.
    pub fn elapsed_ms(&self, start: &Event) -> Result<f32, Error> {
        let _current = self.context.enter()?;
        let mut ms = 0.0;
        // SAFETY: a number to write to, and two live events.
        unsafe { call!(cuEventElapsedTime(&raw mut ms, start.raw, self.raw)) }?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it is not used again; one that is still to come is kept by the driver until then.
        warn(self.context.enter().and_then(|_current| unsafe { call!(cuEventDestroy_v2(self.raw)) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_there_is_an_error_and_no_panic() {
        if is_present() {
            println!("there is a driver here: not tested");
            return;
        }
        let error = Context::new(0).expect_err("there is no driver");
        assert_eq!(error.code, Code::E1204, "{error}");
    }
}
