//! The debug section.

use super::Reader;
use crate::cursor::Cursor;
use crate::debug::{Debug, Record};
use crate::entities::Loc;
use crate::error::{Code, Res};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap};

pub(super) fn debug(r: &Reader<'_>, mut c: Cursor<'_>) -> Res<Debug> {
    let c = &mut c;
    let base = c.at;
    let nf = c.count(4)?;
    c.pad(base, 4)?;
    let runs_at = c.at;
    let runs: Vec<u32> = (0..nf).map(|_| c.u32()).collect::<Res<_>>()?;
    let ni = c.count(8)?;
    if let Some(i) = runs.iter().position(|&run| run as usize >= ni) {
        let message = format!("function {i} begins at index {} of {ni}", runs[i]);
        return Err(c.error(Code::E1617, runs_at + 4 * i, message));
    }
    c.pad(base, 8)?;
    let indices_at = c.at;
    let indices: Vec<u64> = (0..ni).map(|_| c.u64()).collect::<Res<_>>()?;
    let items = super::items(c, base, 4)?;
    let n = items.len();
    if let Some(i) = indices.iter().position(|&record| record > n as u64) {
        let message = format!("index {i} is record {}, there are {n}", indices[i]);
        return Err(c.error(Code::E1617, indices_at + 8 * i, message));
    }
    let indices = indices.into_iter().map(reference).collect();
    let mut records = PrimaryMap::with_capacity(n);
    for item in &items {
        let mut c = item.clone();
        records.push(record(r, &mut c, n)?);
        c.end("a debug record")?;
    }
    acyclic(&records).map_err(|loc| {
        let c = &items[loc.index()];
        c.error(Code::E1617, c.at, format!("record {} contains itself", loc.index() + 1))
    })?;
    Ok(Debug { runs, indices, records })
}

fn reference(number: u64) -> PackedOption<Loc> {
    number.checked_sub(1).map(|i| Loc::new(i as usize)).into()
}

fn record(r: &Reader<'_>, c: &mut Cursor<'_>, n: usize) -> Res<Record> {
    let reference = |c: &mut Cursor<'_>| {
        let at = c.at;
        let i = c.varint()?;
        if i > n as u64 {
            return Err(c.error(Code::E1610, at, format!("debug record {i}, there are {n}")));
        }
        Ok(reference(i))
    };
    let at = c.at;
    Ok(match c.varint()? {
        0 => Record::Unknown,
        1 => Record::Unit { file: reference(c)? },
        2 => Record::File { name: r.string(c)?, directory: r.string(c)? },
        3 => Record::Block {
            scope: reference(c)?,
            file: reference(c)?,
            line: c.varint()?,
            column: c.varint()?,
        },
        4 => {
            Record::Place { scope: reference(c)?, file: r.string(c)?, line: c.varint()?, column: c.varint()? }
        }
        5 => Record::Subprogram {
            file: reference(c)?,
            line: c.varint()?,
            name: r.string(c)?,
            linkage: r.string(c)?,
            unit: reference(c)?,
            scope_line: c.varint()?,
            flags: if r.module.version.0 >= 5 { c.varint()? } else { 0 },
        },
        6 => Record::Call { callee: reference(c)?, caller: reference(c)? },
        tag => return Err(c.error(Code::E1617, at, format!("unknown tag {tag} of a debug record"))),
    })
}

/// Whether no record contains itself; else one that does.
fn acyclic(records: &PrimaryMap<Loc, Record>) -> Result<(), Loc> {
    // 0: not seen, 1: being looked at, 2: done.
    let mut state = vec![0u8; records.len()];
    let mut open = Vec::new();
    for start in records.keys() {
        open.push(start);
        while let Some(&at) = open.last() {
            match std::mem::replace(&mut state[at.index()], 1) {
                0 => {
                    for next in records[at].refs().iter().filter_map(|r| r.expand()) {
                        match state[next.index()] {
                            0 => open.push(next),
                            1 => return Err(next),
                            _ => {}
                        }
                    }
                }
                _ => {
                    state[at.index()] = 2;
                    open.pop();
                }
            }
        }
    }
    Ok(())
}
