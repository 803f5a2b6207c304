//! nvJitLink, a library that is loaded at run time.
//!
//! In: PTX. Out: machine code, made in this process; no GPU is needed. Guarantee: calls from several threads do not meet.
//! It is not the code of ptxas: the library always makes relocatable code first, as ptxas does with `-c`, and no option changes that.
//! Seen with 13.5 on attention for sm_100a: the slow path of divisions is called and not inline, 166 registers where ptxas
//! needs 161, 6 % more code.
//! Elsewhere: the calls (`driver::nvjitlink`).

use super::ptxas::{toolkits, variable};
use super::{Assembler, Options, answer, ptx_of_release};
use crate::cubin::Cubin;
use crate::driver::Outcome;
use crate::driver::nvjitlink::Library;
use crate::error::{Code, Error};
use std::ffi::OsStr;
use std::path::PathBuf;

/// Names for the system's loader, the latest first.
const SONAMES: [&str; 3] = ["libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"];

/// What is assembled once to learn who does: a build is named in what it makes, and nowhere else.
const PROBE: &str = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry probe() { ret; }\n";

/// NVIDIA's library for linking at run time.
pub struct NvJitLink {
    library: Library,
    options: Vec<String>,
    fingerprint: String,
}

impl NvJitLink {
    /// The one the variable `NVJITLINK` names; without it the first that works of `CUDA_HOME`, the usual folder of a toolkit, what
    /// the system's loader knows, and [`Options::packages`].
    ///
    /// # Errors
    /// `E1204`: there is none, or what was found is none.
    pub fn find(options: &Options) -> Result<NvJitLink, Error> {
        if let Some(path) = variable("NVJITLINK") {
            return NvJitLink::at(path, options);
        }
        let toolkits = toolkits().flat_map(|dir| SONAMES.map(|name| dir.join("lib64").join(name)));
        let packages = options.in_packages("lib", "libnvJitLink.so");
        let all = toolkits.filter(|p| p.is_file()).chain(SONAMES.map(PathBuf::from)).chain(packages);
        let mut last = None;
        for path in all {
            match NvJitLink::at(path, options) {
                Ok(library) => return Ok(library),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::new(Code::E1204, "no nvJitLink")))
    }

    /// The one in a file, or of that name where the system's loader finds it.
    ///
    /// # Errors
    /// `E1204`: it cannot be loaded, or is no nvJitLink.
    pub fn at(path: impl AsRef<OsStr>, options: &Options) -> Result<NvJitLink, Error> {
        let path = path.as_ref();
        let library = Library::open(path)?;
        // The library has -O of its own, for another purpose, and takes two levels only; ptxas's is what is meant.
        let options: Vec<String> = options.arguments().iter().map(|o| format!("-Xptxas={o}")).collect();
        let (major, minor) = library.version();
        // Before 13.0 a build is not named; then the size of the file tells two of the same release apart.
        let build = match library.link(PROBE, "sm_90", &[]) {
            Ok(Outcome::Image(image)) => build(&image),
            _ => None,
        };
        let build = build.or_else(|| Some(format!("{} bytes", std::fs::metadata(path).ok()?.len())));
        let build = build.unwrap_or_else(|| "unknown build".to_owned());
        let fingerprint = format!("nvJitLink {major}.{minor}, {build}; {}", options.join(" "));
        Ok(NvJitLink { library, options, fingerprint })
    }
}

/// The `V13.5.37` that the tool leaves in what it makes.
fn build(image: &[u8]) -> Option<String> {
    let start = image.windows(8).position(|w| w == b"release ")?;
    let text = image.get(start..)?.split(|&b| b == 0).next()?;
    let (_, build) = std::str::from_utf8(text).ok()?.split_once(", ")?;
    Some(build.to_owned())
}

impl Assembler for NvJitLink {
    fn name(&self) -> &str {
        "nvJitLink"
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn max_ptx_version(&self) -> (u8, u8) {
        ptx_of_release(self.library.version())
    }

    fn is_relocatable(&self) -> bool {
        true
    }

    fn assemble(&self, ptx: &str, target: &str) -> Result<Cubin, Error> {
        answer("nvJitLink", self.library.link(ptx, target, &self.options)?, ptx)
    }
}

impl std::fmt::Debug for NvJitLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NvJitLink({})", self.fingerprint)
    }
}
