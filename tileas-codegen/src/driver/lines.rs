//! Where the ops of a module come from, by line: what the PTX says with `.loc`.
//!
//! In: a module. Out: a copy whose ops have numbers in place of locations, which follow them through all stages, and for each number its [`Place`]:
//! what a front end says of the op in the attribute `loc` comes first, then its line in the text that the module was read from. [`Numbered::restore`]
//! takes the numbers back. Cost: a copy of the module, and a scan of the text.

use crate::error::{CodegenError, Loc};
use crate::ir::{AttrData, Function, Module, ORIGIN, Op};
use crate::ptx::Lines;
use rustc_hash::FxHashMap;

/// The name of a text that has none.
const UNNAMED: &str = "kernel.tileas";

/// A module whose ops have numbers in place of locations, apart.
#[derive(Default)]
pub(super) struct Numbered {
    /// By number.
    pub lines: Lines,
    originals: Vec<Loc>,
}

/// What a front end says an op is made from.
pub(super) fn origin(func: &Function, op: Op) -> Option<&str> {
    let said = func.discardable(op).iter().find(|&(key, _)| func.symbol(key) == ORIGIN)?;
    match func.attr_data(said.1) {
        AttrData::Str(text) => Some(text),
        _ => None,
    }
}

/// File, line and column of `file:line:column`, as far as PTX can say them.
fn parts(origin: &str) -> Option<(&str, u32, u32)> {
    let mut from_end = origin.rsplitn(3, ':');
    let mut number = || from_end.next()?.parse().ok().filter(|&n| n <= i32::MAX as u32);
    let (column, line) = (number()?, number()?);
    let file = from_end.next()?;
    (!file.is_empty() && line > 0).then_some((file, line, column))
}

impl Numbered {
    /// Numbers the ops of a module.
    pub fn of(module: &Module) -> (Module, Numbered) {
        let (mut numbered, mut out) = (module.clone(), Numbered::default());
        let mut files: FxHashMap<String, u32> = FxHashMap::default();
        let text = module.source.as_deref().unwrap_or_default();
        let ends: Vec<usize> =
            text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at).collect();
        for (func, to) in module.functions.iter().zip(&mut numbered.functions) {
            for op in func.all_ops() {
                let (at, n) = (func.op_loc(op), out.originals.len());
                let in_text = at.range().map(|r| r.start).filter(|&start| start < text.len());
                let place = match (origin(func, op).and_then(parts), in_text) {
                    (Some((file, line, column)), _) => Some((out.file(&mut files, file), line, column)),
                    (None, Some(start)) => {
                        let before = ends.partition_point(|&end| end < start);
                        let begin = before.checked_sub(1).map_or(0, |n| ends[n] + 1);
                        let file = out.file(&mut files, module.file.as_deref().unwrap_or(UNNAMED));
                        Some((file, before as u32 + 1, (start - begin) as u32 + 1))
                    }
                    (None, None) => None,
                };
                out.lines.places.push(place);
                out.originals.push(at);
                to.set_op_loc(op, Loc::new(n, n));
            }
        }
        (numbered, out)
    }

    fn file(&mut self, numbers: &mut FxHashMap<String, u32>, file: &str) -> u32 {
        if let Some(&n) = numbers.get(file) {
            return n;
        }
        let n = self.lines.files.len() as u32;
        self.lines.files.push(file.to_owned());
        numbers.insert(file.to_owned(), n);
        n
    }

    fn original(&self, loc: Loc) -> Loc {
        loc.range().and_then(|r| self.originals.get(r.start)).copied().unwrap_or_default()
    }

    /// Gives the ops of a function that was made of such ones their locations.
    pub fn restore(&self, func: &mut Function) {
        for op in func.all_ops() {
            let loc = self.original(func.op_loc(op));
            func.set_op_loc(op, loc);
        }
    }

    /// The same for what is said of ops. What is said of a function has a location of the source.
    pub fn restore_said(&self, said: &mut CodegenError, functions: &[Function]) {
        let of_function = |loc: Loc| functions.iter().any(|f| f.loc == loc);
        if !of_function(said.location) {
            said.location = self.original(said.location);
        }
        for (loc, _) in said.notes.iter_mut().filter(|(loc, _)| !of_function(*loc)) {
            *loc = self.original(*loc);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse_module;
    use crate::ptx::Place;

    #[test]
    fn origins_come_before_lines_of_the_text() {
        let text = "kernel @k(%x: view<gmem, ?xf32>) {\n  %t = tiled_load %x[0] : tile<32xf32>\n  %y = addf %t, %t <{}> {loc = \"a:b.py:12:5\"}\n  \
                    tiled_store %y, %x[0] {loc = \":1:2\"}\n  return\n}\n";
        let mut module = parse_module(text).expect("parses");
        module.file = Some("dir/k.tileas".into());
        let (numbered, lines) = Numbered::of(&module);
        assert_eq!(lines.lines.files, ["dir/k.tileas", "a:b.py"]);
        let places: Vec<Place> = lines.lines.places.iter().copied().flatten().collect();
        for place in [(0, 2, 3), (0, 4, 3), (0, 5, 3)] {
            assert!(places.contains(&place), "{places:?}");
        }
        assert!(!places.iter().any(|p| p.0 == 0 && p.1 == 3), "{places:?}");
        assert!(places.contains(&(1, 12, 5)), "{places:?}");
        // Without a text only what is said counts, and numbers are taken back.
        let mut func = numbered.functions[0].clone();
        lines.restore(&mut func);
        assert!(func.all_ops().into_iter().all(|op| func.op_loc(op) == module.functions[0].op_loc(op)));
        module.file = None;
        assert_eq!(Numbered::of(&module).1.lines.files[0], UNNAMED);
        module.source = None;
        assert_eq!(Numbered::of(&module).1.lines.files, ["a:b.py"]);
    }

    #[test]
    fn places_are_such_as_ptx_has() {
        for bad in ["", "a", "1:2", "a:1", "a:x:1", "a:0:1", ":1:1", "a:1:4294967295", "a:4294967295:1"] {
            assert_eq!(parts(bad), None, "{bad}");
        }
        assert_eq!(parts("C:/m.py:3:0"), Some(("C:/m.py", 3, 0)));
    }
}
