//! Debug records as places in source texts.
//!
//! In: a record. Out: [`Frame`]s, innermost first. Records may be shared and chains long, so that both are cut where they exceed what a person
//! reads.

use crate::debug::{Frame, Record};
use crate::entities::{Loc, Str};
use crate::module::Module;
use cranelift_entity::packed_option::PackedOption;

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
                    let file = self.lossy(file);
                    // cuTile Python counts columns from 0.
                    let column = column.saturating_add(u64::from(file.ends_with(".py")));
                    frames.push(Frame { file, directory, line, column, function });
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
