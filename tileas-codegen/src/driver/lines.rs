//! Where the ops of a module come from, by line: what the PTX says with `.loc`.
//!
//! In: a module whose ops have places in a text. Out: [`Lines`]: what a front end says of an op in the attribute `loc` comes first, then its line in the
//! text that the module was read from. Cost: a scan of the text, and a sort of the ops.

use crate::ir::{AttrData, Function, Module, ORIGIN, Op};
use crate::ptx::{Lines, Place};
use rustc_hash::FxHashMap;

/// The name of a text that has none.
const UNNAMED: &str = "kernel.tileas";

/// What a front end says an op is made from.
pub(super) fn origin(func: &Function, op: Op) -> Option<&str> {
    let said = func.discardable(op).iter().find(|&(key, _)| func.symbol(key) == ORIGIN)?;
    match func.attr_data(said.1) {
        AttrData::Str(text) => Some(text),
        _ => None,
    }
}

/// File, line and column of `file:line:column`.
fn parts(origin: &str) -> Option<(&str, u32, u32)> {
    let mut from_end = origin.rsplitn(3, ':');
    let column = from_end.next()?.parse().ok()?;
    let line = from_end.next()?.parse().ok()?;
    Some((from_end.next()?, line, column))
}

/// The lines of a module's ops.
pub(super) fn of(module: &Module) -> Lines {
    let mut lines = Lines::default();
    let mut numbers: FxHashMap<String, u32> = FxHashMap::default();
    let mut plain: Vec<u32> = Vec::new();
    for func in &module.functions {
        for op in func.all_ops() {
            let Some(at) = func.op_loc(op).range() else { continue };
            match origin(func, op).and_then(parts) {
                Some((file, line, column)) => {
                    let file = number(&mut lines, &mut numbers, file);
                    lines.places.push((at.start as u32, (file, line, column)));
                }
                None => plain.push(at.start as u32),
            }
        }
    }
    if let Some(text) = module.source.as_deref().filter(|_| !plain.is_empty()) {
        let file = number(&mut lines, &mut numbers, module.file.as_deref().unwrap_or(UNNAMED));
        let ends: Vec<u32> =
            text.bytes().zip(0..).filter(|(b, _)| *b == b'\n').map(|(_, at): (u8, u32)| at).collect();
        let place = |at: u32| -> Place {
            let before = ends.partition_point(|&end| end < at);
            let begin = before.checked_sub(1).map_or(0, |n| ends[n] + 1);
            (file, before as u32 + 1, at - begin + 1)
        };
        lines.places.extend(plain.into_iter().map(|at| (at, place(at))));
    }
    lines.places.sort_unstable();
    lines.places.dedup_by_key(|p| p.0);
    lines
}

fn number(lines: &mut Lines, numbers: &mut FxHashMap<String, u32>, file: &str) -> u32 {
    if let Some(&n) = numbers.get(file) {
        return n;
    }
    let n = lines.files.len() as u32;
    lines.files.push(file.to_owned());
    numbers.insert(file.to_owned(), n);
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse_module;

    #[test]
    fn origins_come_before_lines_of_the_text() {
        let text = "kernel @k(%x: view<gmem, ?xf32>) {\n  %t = tiled_load %x[0] : tile<32xf32>\n  %y = addf %t, %t <{}> {loc = \"a:b.py:12:5\"}\n  \
                    tiled_store %y, %x[0] {loc = \"nothing\"}\n  return\n}\n";
        let mut module = parse_module(text).expect("parses");
        module.file = Some("dir/k.tileas".into());
        let lines = of(&module);
        assert_eq!(lines.files, ["a:b.py", "dir/k.tileas"]);
        let places: Vec<Place> = lines.places.iter().map(|p| p.1).collect();
        let first = |line: u32| places.iter().find(|p| p.0 == 1 && p.1 == line).map(|p| p.2);
        assert_eq!((first(2), first(3), first(4)), (Some(3), None, Some(3)), "{places:?}");
        assert!(places.contains(&(0, 12, 5)), "{places:?}");
        module.file = None;
        assert_eq!(of(&module).files[1], UNNAMED);
    }
}
