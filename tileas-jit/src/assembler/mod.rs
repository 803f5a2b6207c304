//! From PTX to machine code.
//!
//! In: the text of a PTX module and the processor it is for. Out: a [`Cubin`], by one of three assemblers, which all are NVIDIA's:
//! the driver's linker (`DriverLinker`, with the feature `cuda`), [`NvJitLink`], [`Ptxas`]. A [`Ladder`] takes
//! the first that is there and knows the PTX.
//!
//! Guarantee: equal fingerprints, PTX and target give equal machine code; what comes out is a whole ELF image; a refusal carries
//! the assembler's own lines. An assembler is code that runs with our rights: its file must be trusted as we are.
//! Elsewhere: the calls of libraries (`driver`), keeping the images (`cache`).

#[cfg(feature = "cuda")]
mod driver;
mod ladder;
mod nvjitlink;
mod ptxas;
mod release;

#[cfg(feature = "cuda")]
pub use driver::DriverLinker;
pub use ladder::{Assembled, Ladder};
pub use nvjitlink::NvJitLink;
pub use ptxas::Ptxas;
pub use release::{ptx_of_release, ptx_version};

use crate::cubin::Cubin;
use crate::driver::Outcome;
use crate::error::{Code, Error};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Makes machine code of PTX.
pub trait Assembler: Send + Sync {
    /// What it is called: `ptxas`.
    fn name(&self) -> &str;

    /// Tool, version and options: changes whenever the machine code it makes may.
    fn fingerprint(&self) -> &str;

    /// The latest `.version` it knows.
    fn max_ptx_version(&self) -> (u8, u8);

    /// Whether it makes code that could be linked with other code, as linkers do. In such code warps get no registers of others
    /// (`setmaxnreg` is ignored, ptxas C7504) and products of warpgroups are made one at a time (`wgmma`, C7509).
    fn is_relocatable(&self) -> bool {
        false
    }

    /// Assembles a module for a processor, such as `sm_100a`.
    ///
    /// # Errors
    /// `E1202`: the PTX is refused. `E1203`: there is no answer. `E1207`: the version or target is not known; another assembler may.
    fn assemble(&self, ptx: &str, target: &str) -> Result<Cubin, Error>;
}

/// How to assemble, and where to look for assemblers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// 0 to 3.
    pub opt_level: u8,
    /// Whether the machine code says which line it is of: of the source, where the PTX names that (option `line-info`), else of the PTX.
    pub line_info: bool,
    /// More options, as ptxas takes them. The driver's linker has none.
    pub extra: Vec<String>,
    /// When a process that has not answered is killed. Says nothing about libraries: they cannot be stopped.
    pub timeout: Option<Duration>,
    /// Folders with packages of Python's, in which `nvidia/*/bin` and `nvidia/*/lib` are looked into.
    pub packages: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options { opt_level: 3, line_info: false, extra: Vec::new(), timeout: None, packages: Vec::new() }
    }
}

impl Options {
    /// The options that the machine code depends on, as ptxas takes them.
    fn arguments(&self) -> Vec<String> {
        let line_info = self.line_info.then(|| "-lineinfo".to_owned());
        let level = format!("-O{}", self.opt_level);
        std::iter::once(level).chain(line_info).chain(self.extra.iter().cloned()).collect()
    }

    /// Files of that name start in `nvidia/*/<part>` of the packages, in order of their names.
    fn in_packages(&self, part: &str, starts: &str) -> Vec<PathBuf> {
        let sorted = |dir: PathBuf| {
            let mut all: Vec<PathBuf> =
                std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            all.sort();
            all
        };
        let parts = self.packages.iter().flat_map(|dir| sorted(dir.join("nvidia")));
        let files = parts.flat_map(|dir| sorted(dir.join(part)));
        files
            .filter(|f| f.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(starts)))
            .collect()
    }
}

/// Whether a module has what relocatable code does badly: see [`Assembler::is_relocatable`].
pub(crate) fn wants_whole_program(ptx: &str) -> bool {
    ptx.contains("setmaxnreg.") || ptx.contains("wgmma.")
}

/// The machine code that a library's answer is.
fn answer(name: &str, outcome: Outcome, ptx: &str) -> Result<Cubin, Error> {
    match outcome {
        Outcome::Image(image) => {
            Cubin::new(image).map_err(|e| Error::new(Code::E1203, format!("{name} makes {}", e.message)))
        }
        Outcome::Refused(said) => Err(refusal(name, &said, ptx)),
        Outcome::Unknown(why) => Err(Error::new(Code::E1207, format!("{name}: {why}"))),
    }
}

/// The error for what an assembler said. Lines that name a line of the PTX have it behind them.
fn refusal(name: &str, said: &str, ptx: &str) -> Error {
    // Wordings that all releases from 12.0 to 13.5 have.
    let unknown =
        said.contains("Unsupported .version") || said.contains("is not defined for option 'gpu-name'");
    let mut message = format!("{name}:");
    for line in said.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let _ = write!(message, "\n  {line}");
        let number = line.split_once(", line ").and_then(|(_, rest)| rest.split_once(';'));
        let number: Option<usize> = number.and_then(|(n, _)| n.parse().ok());
        if let Some(text) = number.and_then(|n| ptx.lines().nth(n.checked_sub(1)?)) {
            let _ = write!(message, "\n    | {}", text.trim());
        }
    }
    Error::new(if unknown { Code::E1207 } else { Code::E1202 }, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_quote_the_ptx() {
        let said = "ptxas k.ptx, line 2; error   : Not a name\nptxas fatal   : aborted\n";
        let error = refusal("ptxas", said, "first\n  second;\n");
        assert_eq!(error.code, Code::E1202);
        let want =
            "ptxas:\n  ptxas k.ptx, line 2; error   : Not a name\n    | second;\n  ptxas fatal   : aborted";
        assert_eq!(error.message, want);
        for said in
            ["ptxas x, line 1; fatal : Unsupported .version 9.9; current version is '9.5'", "ptxas, line 0;"]
        {
            let error = refusal("ptxas", said, "");
            assert_eq!(error.code == Code::E1207, said.contains("Unsupported"), "{error}");
        }
    }

    #[test]
    fn packages_are_looked_into_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options { packages: vec![folder.path().into()], ..Options::default() };
        assert!(options.in_packages("lib", "lib").is_empty());
        let files = ["cu13/lib/libx.so.13", "cu12/lib/libx.so.12", "cu12/lib/other.so", "cu12/bin/libx.so.1"];
        for file in files {
            let path = folder.path().join("nvidia").join(file);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            std::fs::write(path, "").expect("a file");
        }
        let found = options.in_packages("lib", "libx.so");
        let want = [files[1], files[0]].map(|f| folder.path().join("nvidia").join(f));
        assert_eq!(found, want);
    }

    #[test]
    fn default_options_are_pinned() {
        let options = Options::default();
        assert_eq!(options.arguments(), ["-O3"]);
        let all = Options { opt_level: 1, line_info: true, extra: vec!["-v".into()], ..options };
        assert_eq!(all.arguments(), ["-O1", "-lineinfo", "-v"]);
    }
}
