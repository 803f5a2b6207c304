//! Machine code on a device, and launches of it.
//!
//! In: a [`Cubin`], or PTX that the driver compiles; then launches. Out: work in a stream. Guarantee: no module is unloaded while a stream may run it. The rule: a
//! [`Function`] keeps its module; when the last of them goes, that thread waits for the whole context, and only if that
//! succeeds the module is unloaded; otherwise it stays loaded, with a warning. The device is not held up by it, and a launch
//! costs nothing for it. Two things follow: drop kernels where waiting is no harm; and keep a [`Function`] as long as a CUDA
//! graph that captured a launch of it, of which we know nothing.

use super::context::{Context, Stream, call, warn};
use super::params::ParamBlock;
use crate::cubin::Cubin;
use crate::error::{Code, Error};
use cudarc::driver::sys;
use smallvec::SmallVec;
use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use tileas_launch::Launch;

/// CTAs of a cluster that every device can have. Source: CUDA C programming guide, thread block clusters.
const PORTABLE_CLUSTER: u32 = 8;

/// The first driver that tells what parameters a function has.
const PARAM_INFO_DRIVER: (u32, u32) = (12, 4);

/// Bytes for what the compiler says.
const LOG_BYTES: usize = 16 << 10;

#[derive(Debug)]
struct Loaded {
    context: Context,
    raw: sys::CUmodule,
}

// SAFETY: modules may be used from any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Nobody can launch it any more; what was launched may still run.
        match self.context.synchronize() {
            // SAFETY: nothing runs, and it is not used again.
            Ok(()) => {
                warn(self.context.enter().and_then(|_current| unsafe { call!(cuModuleUnload(self.raw)) }))
            }
            Err(error) => log::warn!("a module stays loaded, as it may still run: {error}"),
        }
    }
}

/// Machine code that is loaded. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Module(Arc<Loaded>);

impl Module {
    /// Loads machine code.
    ///
    /// # Errors
    /// `E1205`, for instance if it is for another processor.
    pub fn load(context: &Context, cubin: &Cubin) -> Result<Module, Error> {
        let _current = context.enter()?;
        let mut raw = ptr::null_mut();
        let image = cubin.bytes().as_ptr().cast();
        // SAFETY: a place for the module; an image that was checked to be whole, which the driver copies; no options.
        unsafe { call!(cuModuleLoadDataEx(&raw mut raw, image, 0, ptr::null_mut(), ptr::null_mut())) }
            .map_err(|e| Error::new(e.code, format!("{} of {cubin:?}", e.message)))?;
        Ok(Module(Arc::new(Loaded { context: context.clone(), raw })))
    }

    /// Compiles PTX for the context's device and loads it: the driver keeps the machine code to itself, and in a cache of its own. Unlike
    /// what its linker makes, it is a whole program.
    ///
    /// # Errors
    /// `E1202`: the PTX is refused. `E1205`: the driver fails otherwise.
    pub fn compile(context: &Context, ptx: &str) -> Result<Module, Error> {
        use sys::CUjit_option_enum as Jit;
        let text = super::terminated(ptx)?;
        let _current = context.enter()?;
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The last byte is not the compiler's: the text ends.
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES - 1)];
        let mut raw = ptr::null_mut();
        let (count, image) = (options.len() as c_uint, text.as_ptr().cast());
        // SAFETY: a place for the module; a text that ends with 0; as many options as values, each of the kind that the driver's
        // documentation says. The driver is done with text and log when it returns.
        let result = unsafe {
            call!(cuModuleLoadDataEx(&raw mut raw, image, count, options.as_mut_ptr(), values.as_mut_ptr()))
        };
        result.map_err(|error| {
            let said = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
            if said.trim().is_empty() { error } else { Error::new(Code::E1202, format!("driver:\n{said}")) }
        })?;
        Ok(Module(Arc::new(Loaded { context: context.clone(), raw })))
    }

    /// An entry by its name.
    ///
    /// # Errors
    /// `E1205`: there is none.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        let text = CString::new(name).map_err(|_| Error::new(Code::E1205, "a name with a byte 0 in it"))?;
        let _current = self.0.context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: a place for the function, a live module, a text that ends with 0.
        unsafe { call!(cuModuleGetFunction(&raw mut raw, self.0.raw, text.as_ptr())) }
            .map_err(|e| Error::new(e.code, format!("{} for {name}", e.message)))?;
        let sizes = (self.0.context.driver_version() >= PARAM_INFO_DRIVER).then(|| sizes(raw));
        Ok(Function { module: self.clone(), raw, sizes, allowed: Mutex::default() })
    }
}

/// Bytes of every parameter of the entry. The offsets that the driver gives beside them are no guide: they count from where parameters
/// of the processor begin, and a tensor map that comes first is at 48 on an H100.
fn sizes(function: sys::CUfunction) -> SmallVec<[usize; 16]> {
    let size = |n| {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: a live function, two numbers to write to. A number that no parameter has is refused.
        let result = unsafe { sys::cuFuncGetParamInfo(function, n, &raw mut offset, &raw mut size) };
        (result == sys::CUresult::CUDA_SUCCESS).then_some(size)
    };
    (0..).map_while(size).collect()
}

/// What the driver was told that launches may ask for; only ever raised.
#[derive(Debug, Default)]
struct Allowed {
    dynamic_smem: u32,
    wide_cluster: bool,
}

/// An entry of a module, which it keeps loaded.
#[derive(Debug)]
pub struct Function {
    module: Module,
    raw: sys::CUfunction,
    /// What the driver says of the parameters, where it can.
    sizes: Option<SmallVec<[usize; 16]>>,
    allowed: Mutex<Allowed>,
}

// SAFETY: functions may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for Function {}

impl Function {
    /// Puts a launch into a stream of the same context, and returns.
    ///
    /// The addresses among the parameters are the caller's word: whoever makes a [`View`](tileas_launch::View) says that the memory
    /// is the device's, as large as its extents and strides say, there until the kernel has run, and not in the way of
    /// other work in other streams.
    ///
    /// # Errors
    /// `E1205`: what the driver refuses, at once or of work before it.
    pub fn launch(&self, launch: &Launch, stream: &Stream) -> Result<(), Error> {
        let context = &self.module.0.context;
        let mut block = ParamBlock::new(&launch.params, |map| context.encode_tensor_map(map))?;
        // The driver reads as many values, of as many bytes, as the entry has.
        if let Some(sizes) = self.sizes.as_ref().filter(|sizes| !block.sizes().eq(sizes.iter().copied())) {
            let ours: Vec<usize> = block.sizes().collect();
            let text = format!("parameters of {ours:?} bytes in the launch, of {sizes:?} in the entry");
            return Err(Error::new(Code::E1205, text));
        }
        let _current = context.enter()?;
        self.allow(launch)?;
        let start = block.as_mut_ptr();
        let mut values: SmallVec<[*mut c_void; 16]> =
            block.places().iter().map(|&(at, _)| start.wrapping_add(at).cast()).collect();
        let [x, y, z] = launch.cluster;
        // A kernel that is not for clusters is launched as one that knows of none.
        let clusters = u32::from(launch.cluster != [1; 3]);
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue {
                clusterDim: sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z },
            },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: launch.grid[0],
            gridDimY: launch.grid[1],
            gridDimZ: launch.grid[2],
            blockDimX: launch.block[0],
            blockDimY: launch.block[1],
            blockDimZ: launch.block[2],
            sharedMemBytes: launch.dynamic_smem,
            hStream: stream.raw(),
            attrs: &raw mut attribute,
            numAttrs: clusters,
        };
        // SAFETY: a live function and stream; the values lie in the block, which is alive, as the attribute is; the driver copies all of
        // them before it returns. They are as many and as large as the entry's: the driver says so, or before 12.4 the metadata.
        unsafe { call!(cuLaunchKernelEx(&raw const config, self.raw, values.as_mut_ptr(), ptr::null_mut())) }
    }

    /// Tells the driver when a launch asks for more than those before. The lock is held meanwhile: a smaller number must not come last.
    fn allow(&self, launch: &Launch) -> Result<(), Error> {
        use sys::CUfunction_attribute_enum as A;
        let set = |attribute, value: u32| {
            let value = c_int::try_from(value).unwrap_or(c_int::MAX);
            // SAFETY: a live function of the current context.
            unsafe { call!(cuFuncSetAttribute(self.raw, attribute, value)) }
                .map_err(|e| Error::new(e.code, format!("{}: {attribute:?} = {value}", e.message)))
        };
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        if launch.dynamic_smem > allowed.dynamic_smem {
            set(A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.dynamic_smem)?;
            allowed.dynamic_smem = launch.dynamic_smem;
        }
        let ctas = launch.cluster.iter().fold(1_u32, |n, &d| n.saturating_mul(d));
        if ctas > PORTABLE_CLUSTER && !allowed.wide_cluster {
            set(A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
            allowed.wide_cluster = true;
        }
        Ok(())
    }
}
