//! Several assemblers, of which the first that can is used.
//!
//! In: assemblers, or why there is none of a kind. Out: machine code, and who made it. Guarantee: a rung is passed over only if it
//! is not there or says (`E1207`) that it does not know the version or target; any other refusal is the answer.

use super::{Assembler, NvJitLink, Options, Ptxas, ptx_version, wants_whole_program};
use crate::cubin::Cubin;
use crate::error::{Code, Error};
use std::sync::Arc;

/// Machine code and how it came about.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// The machine code.
    pub cubin: Cubin,
    /// Name of the rung that made it.
    pub rung: String,
    /// Why those before it did not: name and reason.
    pub passed_over: Vec<(String, Error)>,
}

/// Assemblers in the order in which they are asked. Itself an assembler, whose fingerprint is that of all rungs that are there.
#[derive(Clone, Default)]
pub struct Ladder {
    rungs: Vec<Rung>,
    fingerprint: String,
}

#[derive(Clone)]
struct Rung {
    name: String,
    /// The assembler, or why there is none.
    there: Result<Arc<dyn Assembler>, Error>,
}

impl Ladder {
    /// nvJitLink, then ptxas, as [`NvJitLink::find`] and [`Ptxas::find`] find them.
    pub fn find(options: &Options) -> Ladder {
        Ladder::default().with("nvJitLink", NvJitLink::find(options)).with("ptxas", Ptxas::find(options))
    }

    /// The linker of the context's driver, then nvJitLink, then ptxas.
    #[cfg(feature = "cuda")]
    pub fn find_for(context: &crate::driver::Context, options: &Options) -> Ladder {
        let driver = super::DriverLinker::new(context, options);
        let mut ladder = Ladder::default().with("driver", driver);
        for rung in Ladder::find(options).rungs {
            ladder = ladder.add(rung);
        }
        ladder
    }

    /// Adds a rung below: an assembler, or why there is none.
    #[must_use]
    pub fn with(self, name: &str, rung: Result<impl Assembler + 'static, Error>) -> Ladder {
        self.add(Rung { name: name.to_owned(), there: rung.map(|a| Arc::new(a) as Arc<dyn Assembler>) })
    }

    fn add(mut self, rung: Rung) -> Ladder {
        if let Ok(a) = &rung.there {
            let separator = if self.fingerprint.is_empty() { "" } else { " | " };
            self.fingerprint = format!("{}{separator}{}", self.fingerprint, a.fingerprint());
        }
        self.rungs.push(rung);
        self
    }

    /// A line for each rung: what it is, or why it is not there.
    pub fn describe(&self) -> String {
        let line = |Rung { name, there }: &Rung| match there {
            Ok(a) => {
                let (major, minor) = a.max_ptx_version();
                format!("{name}: {}, PTX up to {major}.{minor}", a.fingerprint())
            }
            Err(error) => format!("{name}: not there: {error}"),
        };
        self.rungs.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Assembles, and says who did. Linkers are asked last where a module has what they do badly ([`Assembler::is_relocatable`]).
    ///
    /// # Errors
    /// `E1201`: none can, with the reason of each. Others: what the rung that was used says.
    pub fn assemble_by(&self, ptx: &str, target: &str) -> Result<Assembled, Error> {
        let whole = wants_whole_program(ptx);
        match self.ask(ptx, target, !whole) {
            Err(error) if whole && error.code == Code::E1201 => {
                let found = self.ask(ptx, target, true)?;
                log::warn!("{} makes slow code of this kernel; ptxas would make better", found.rung);
                Ok(found)
            }
            answer => answer,
        }
    }

    /// Asks the rungs; linkers only where they may be used.
    pub(crate) fn ask(&self, ptx: &str, target: &str, linkers: bool) -> Result<Assembled, Error> {
        let wanted = ptx_version(ptx);
        let mut passed_over: Vec<(String, Error)> = Vec::new();
        for Rung { name, there } in &self.rungs {
            let answer = there.as_ref().map_err(Clone::clone).and_then(|assembler| {
                let known = assembler.max_ptx_version();
                match wanted.filter(|&wanted| wanted > known) {
                    Some((major, minor)) => Err(Error::new(
                        Code::E1207,
                        format!(
                            "PTX {major}.{minor} is asked for, versions up to {}.{} are known",
                            known.0, known.1
                        ),
                    )),
                    None if assembler.is_relocatable() && !linkers => Err(Error::new(
                        Code::E1207,
                        "it makes relocatable code, in which `setmaxnreg` is ignored and products of warpgroups are made one at a time",
                    )),
                    None => assembler.assemble(ptx, target),
                }
            });
            match answer {
                Ok(cubin) => {
                    log::debug!("{name} assembles for {target}: {} bytes", cubin.bytes().len());
                    return Ok(Assembled { cubin, rung: name.clone(), passed_over });
                }
                Err(error) if there.is_err() || error.code == Code::E1207 => {
                    log::debug!("{name} is passed over: {error}");
                    passed_over.push((name.clone(), error));
                }
                Err(error) => return Err(error),
            }
        }
        let reasons: Vec<String> = passed_over.iter().map(|(name, e)| format!("\n  {name}: {e}")).collect();
        Err(Error::new(Code::E1201, format!("no assembler can be used{}", reasons.concat())))
    }
}

impl Assembler for Ladder {
    fn name(&self) -> &str {
        "ladder"
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn max_ptx_version(&self) -> (u8, u8) {
        let known = self.rungs.iter().filter_map(|r| r.there.as_ref().ok());
        known.map(|a| a.max_ptx_version()).max().unwrap_or_default()
    }

    fn assemble(&self, ptx: &str, target: &str) -> Result<Cubin, Error> {
        self.assemble_by(ptx, target).map(|a| a.cubin)
    }
}
