//! Debug information: where ops came from.

use crate::entities::{Loc, Str};
use cranelift_entity::PrimaryMap;
use cranelift_entity::packed_option::PackedOption;
use std::fmt;

/// A debug record. References to other records may be absent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Nothing is known.
    Unknown,
    /// A compile unit.
    Unit {
        /// Its file.
        file: PackedOption<Loc>,
    },
    /// A file.
    File {
        /// Name.
        name: Str,
        /// Directory.
        directory: Str,
    },
    /// A block inside a function.
    Block {
        /// Around it.
        scope: PackedOption<Loc>,
        /// Its file.
        file: PackedOption<Loc>,
        /// Where it begins.
        line: u64,
        /// Where it begins.
        column: u64,
    },
    /// A place in a source text.
    Place {
        /// Function or block around it.
        scope: PackedOption<Loc>,
        /// Name of the file.
        file: Str,
        /// From 1.
        line: u64,
        /// From 1.
        column: u64,
    },
    /// A function of the source.
    Subprogram {
        /// Its file.
        file: PackedOption<Loc>,
        /// Where it begins.
        line: u64,
        /// Name.
        name: Str,
        /// Name for the linker.
        linkage: Str,
        /// Compile unit.
        unit: PackedOption<Loc>,
        /// Where its scope begins.
        scope_line: u64,
        /// Since 13.5.
        flags: u64,
    },
    /// Code of a function that was put in place of a call.
    Call {
        /// Where in that function.
        callee: PackedOption<Loc>,
        /// Where the call was.
        caller: PackedOption<Loc>,
    },
}

impl Record {
    /// The records it refers to.
    pub(crate) fn refs(&self) -> [PackedOption<Loc>; 2] {
        match *self {
            Record::Unknown | Record::File { .. } => [None.into(); 2],
            Record::Unit { file } => [file, None.into()],
            Record::Block { scope, file, .. } => [scope, file],
            Record::Place { scope, .. } => [scope, None.into()],
            Record::Subprogram { file, unit, .. } => [file, unit],
            Record::Call { callee, caller } => [callee, caller],
        }
    }
}

/// The debug information of a module.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Debug {
    /// Where the indices of each function begin: one for the function, then one for each op.
    pub(crate) runs: Vec<u32>,
    pub(crate) indices: Vec<PackedOption<Loc>>,
    /// The records.
    pub records: PrimaryMap<Loc, Record>,
}

impl Debug {
    /// The record of the function with the given number (from 1; 0: none), or of one of its ops.
    pub(crate) fn loc(&self, function: u32, op: Option<u32>) -> Option<Loc> {
        let run = *self.runs.get(function.checked_sub(1)? as usize)?;
        let i = u64::from(run) + op.map_or(0, |op| u64::from(op) + 1);
        self.indices.get(usize::try_from(i).ok()?)?.expand()
    }
}

/// A place in a source text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// Name of the file.
    pub file: String,
    /// Its directory; empty if not known.
    pub directory: String,
    /// From 1.
    pub line: u64,
    /// From 1; 0 if not known.
    pub column: u64,
    /// Name of the function around it; empty if not known.
    pub function: String,
}

impl Frame {
    /// The file with its directory.
    pub fn path(&self) -> String {
        match self.directory.is_empty() || self.file.starts_with('/') {
            true => self.file.clone(),
            false => format!("{}/{}", self.directory.trim_end_matches('/'), self.file),
        }
    }

    /// Whether it is of cuTile's own library: what that writes for a call is the caller's.
    pub fn is_library(&self) -> bool {
        self.directory.replace('\\', "/").ends_with("cuda/tile") || self.file.contains("cuda/tile/_")
    }

    /// `file:line:column`, with the directory.
    pub fn place(&self) -> String {
        format!("{}:{}:{}", self.path(), self.line, self.column)
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())?;
        if !self.function.is_empty() {
            write!(f, " in {}", self.function)?;
        }
        Ok(())
    }
}
