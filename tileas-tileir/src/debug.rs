//! Debug information: where ops came from.

use crate::entities::{Loc, Str};
use crate::module::Module;
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

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.directory.is_empty() && !self.file.starts_with('/') {
            write!(f, "{}/", self.directory.trim_end_matches('/'))?;
        }
        write!(f, "{}:{}:{}", self.file, self.line, self.column)?;
        if !self.function.is_empty() {
            write!(f, " in {}", self.function)?;
        }
        Ok(())
    }
}

/// Frames of one op, and steps from a scope to the one around it; longer chains are cut.
const MOST: usize = 64;

/// Bytes of a string in a message.
const LONGEST: usize = 1000;

impl Module {
    /// The places a debug record stands for: that of the code, then those of the calls that brought it there.
    pub fn frames(&self, loc: Loc) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut open = vec![loc];
        // Calls may share records, so that what they stand for grows faster than they do.
        for _ in 0..4 * MOST {
            let Some(loc) = open.pop().filter(|_| frames.len() < MOST) else { break };
            match self.debug.records.get(loc) {
                Some(Record::Call { callee, caller }) => {
                    open.extend(caller.expand());
                    open.extend(callee.expand());
                }
                Some(&Record::Place { scope, file, line, column }) => {
                    let (function, directory) = self.scope(scope);
                    frames.push(Frame { file: self.lossy(file), directory, line, column, function });
                }
                Some(&Record::Subprogram { file, line, name, .. }) => {
                    let (file, directory) = self.file(file);
                    frames.push(Frame { file, directory, line, column: 0, function: self.lossy(name) });
                }
                _ => {}
            }
        }
        frames
    }

    /// Name of the function around a place, and its directory.
    fn scope(&self, mut scope: PackedOption<Loc>) -> (String, String) {
        for _ in 0..MOST {
            match scope.expand().and_then(|s| self.debug.records.get(s)) {
                Some(Record::Block { scope: outer, .. }) => scope = *outer,
                Some(&Record::Subprogram { file, name, .. }) => return (self.lossy(name), self.file(file).1),
                Some(&Record::Unit { file }) => return (String::new(), self.file(file).1),
                _ => return (String::new(), self.file(scope).1),
            }
        }
        Default::default()
    }

    /// Name and directory of a file.
    fn file(&self, file: PackedOption<Loc>) -> (String, String) {
        match file.expand().and_then(|f| self.debug.records.get(f)) {
            Some(&Record::File { name, directory }) => (self.lossy(name), self.lossy(directory)),
            _ => Default::default(),
        }
    }

    /// A string for a message: its begin, if it is long, so that many messages with one string stay small.
    pub(crate) fn lossy(&self, s: Str) -> String {
        let bytes = self.strings.get(s);
        String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned()
    }
}
