//! The linker inside the driver, as an assembler.
//!
//! In: PTX. Out: machine code for the context's device, and no other. Needs neither files nor processes besides the driver.
//! Elsewhere: the calls (`driver::linker`), loading what it makes ([`Module`](crate::driver::Module)).

use super::{Assembler, Options, answer, ptx_of_release};
use crate::cubin::Cubin;
use crate::driver::{Context, Outcome};
use crate::error::{Code, Error};

/// The assembler that comes with the driver.
#[derive(Clone, Debug)]
pub struct DriverLinker {
    context: Context,
    options: Options,
    target: String,
    fingerprint: String,
}

impl DriverLinker {
    /// The linker of the context's driver. The fingerprint has the driver's build where the system tells it (Linux);
    /// elsewhere only the release of CUDA.
    ///
    /// # Errors
    /// `E1204`: there are options that only ptxas has.
    pub fn new(context: &Context, options: &Options) -> Result<DriverLinker, Error> {
        if !options.extra.is_empty() {
            let text = format!("the driver's linker takes no options of ptxas: {}", options.extra.join(" "));
            return Err(Error::new(Code::E1204, text));
        }
        let build = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        let build = build.lines().next().map_or("unknown build", str::trim);
        let ((major, minor), target) = (context.driver_version(), context.target());
        let arguments = options.arguments().join(" ");
        let fingerprint = format!("driver {major}.{minor}, {build}, {target}; {arguments}");
        Ok(DriverLinker { context: context.clone(), options: options.clone(), target, fingerprint })
    }
}

impl Assembler for DriverLinker {
    fn name(&self) -> &str {
        "driver"
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn max_ptx_version(&self) -> (u8, u8) {
        ptx_of_release(self.context.driver_version())
    }

    fn is_relocatable(&self) -> bool {
        true
    }

    fn assemble(&self, ptx: &str, target: &str) -> Result<Cubin, Error> {
        if target != self.target {
            let why = format!("it assembles for its {} only, not for {target}", self.target);
            return answer("driver", Outcome::Unknown(why), ptx);
        }
        let Options { opt_level, line_info, .. } = self.options;
        answer("driver", self.context.link(ptx, opt_level, line_info)?, ptx)
    }
}
