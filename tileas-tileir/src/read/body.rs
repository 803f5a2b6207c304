//! Bodies of functions: ops by the rows of the table.
//!
//! Values are numbered in the bytes by the height of a stack: a region's values are dropped at its end, and the results of its op
//! take their numbers. Here they get numbers of their own.

use super::{DEEPEST, Reader, Stop};
use crate::attr::Attr;
use crate::cursor::Cursor;
use crate::entities::{AttrId, Op, Region, Value};
use crate::error::Code;
use crate::module::Function;
use crate::types::TypeData;
use cranelift_entity::EntityRef;
use tileas_meta::tileir::{Arity, AttrKind, AttrRow, Opcode, Results, Seg};

/// Reads a body into a function that has its header.
pub(super) fn body(r: &mut Reader<'_>, f: &mut Function, c: &mut Cursor<'_>) -> Result<(), Stop> {
    r.stack.clear();
    r.open_ops.clear();
    let mut b = Body { r, f, opcode: None, unwritten: None };
    b.whole(c).map_err(|mut stop| {
        if let Stop::Error(error) = &mut stop {
            error.function = Some(b.r.module.lossy(b.f.name));
            if error.op.is_none() {
                let op = b.f.num_ops() as u32;
                error.op = Some((op, b.opcode.map(Opcode::name)));
                if let Some(loc) = b.r.module.debug.loc(b.f.debug, Some(op)) {
                    error.source = b.r.module.frames(loc);
                }
            }
        }
        stop
    })
}

struct Body<'b, 'm> {
    r: &'b mut Reader<'m>,
    f: &'b mut Function,
    /// What is being read.
    opcode: Option<Opcode>,
    /// A list with an item for each index that the version does not write.
    unwritten: Option<AttrId>,
}

type Step<T> = Result<T, Stop>;

impl Body<'_, '_> {
    fn whole(&mut self, c: &mut Cursor<'_>) -> Step<()> {
        let n = match self.r.module.types.get(self.f.signature) {
            TypeData::Func { params, .. } => params.len(),
            _ => 0,
        };
        for i in 0..n {
            let TypeData::Func { params, .. } = self.r.module.types.get(self.f.signature) else { break };
            let value = self.f.push_param(Region::BODY, params[i]);
            self.r.stack.push(value);
        }
        while c.left() > 0 {
            let op = self.op(c, Region::BODY, 0)?;
            self.r.open_ops.push(op);
        }
        self.f.close(Region::BODY, self.r.open_ops.drain(..));
        self.debug_run(c)
    }

    /// That there is a debug index for each op.
    fn debug_run(&self, c: &Cursor<'_>) -> Step<()> {
        let debug = &self.r.module.debug;
        let Some(i) = self.f.debug.checked_sub(1) else { return Ok(()) };
        let Some(&start) = debug.runs.get(i as usize) else { return Ok(()) };
        let end = debug.runs.get(i as usize + 1).map_or(debug.indices.len(), |&next| next as usize);
        let (have, want) = (end.saturating_sub(start as usize), self.f.num_ops() + 1);
        if have == want {
            return Ok(());
        }
        let message = format!("{have} debug indices of a function with {} ops, expected {want}", want - 1);
        let mut error = c.error(Code::E1617, c.at, message);
        error.op = None;
        Err(error.into())
    }

    fn op(&mut self, c: &mut Cursor<'_>, region: Region, depth: usize) -> Step<Op> {
        let start = c.at;
        let version = self.r.module.version;
        self.opcode = None;
        let number = c.varint()?;
        let Some(opcode) = Opcode::from_number(number) else {
            let what = if number >= 16384 { "preview operation" } else { "unknown operation" };
            return Err(c
                .error(
                    Code::E1612,
                    start,
                    format!("{what} {number}; what follows it in the function is not read"),
                )
                .into());
        };
        self.opcode = Some(opcode);
        let row = opcode.row();
        if version.0 < row.since {
            let message = format!("the operation is of version 13.{}, the file of {version}", row.since);
            return Err(c.error(Code::E1612, start, message).into());
        }
        self.r.ops_left = self.r.ops_left.checked_sub(1).ok_or_else(|| {
            c.error(Code::E1619, start, format!("more than {} operations", self.r.limits.max_ops))
        })?;
        let results = match row.results {
            Results::Fixed(n) => usize::from(n),
            Results::CountedSince(since) if version.0 < since => 0,
            Results::Counted | Results::CountedSince(_) => c.count(1)?,
        };
        // Types wait on a stack, as the results of ops in regions come before those of the op.
        let types = self.r.result_types.len();
        for _ in 0..results {
            let ty = self.r.ty(c)?;
            self.r.result_types.push(ty);
        }
        let at = c.at;
        let flags = if row.flags.is_some_and(|since| since <= version.0) { c.varint()? } else { 0 };
        if flags & !row.flag_bits() != 0 {
            let message = format!("flags {flags:#x}, known are {:#x}", row.flag_bits());
            return Err(c.error(Code::E1615, at, message).into());
        }
        let flag = |bit: u8| flags >> bit & 1 != 0;
        let op = self.f.push_op(region, opcode, flags as u8);
        self.f.offsets.0.push(start as u32);
        let open = self.attrs_and_operands(c, opcode, flag);
        if let Err(mut stop) = open {
            self.place(&mut stop, op);
            return Err(stop);
        }
        if row.regions > 0 {
            self.regions(c, op, depth).map_err(|mut stop| {
                self.place(&mut stop, op);
                stop
            })?;
            self.opcode = Some(opcode);
        }
        for i in types..self.r.result_types.len() {
            let value = self.f.push_result(op, self.r.result_types[i]);
            self.r.stack.push(value);
        }
        self.r.result_types.truncate(types);
        Ok(op)
    }

    /// Says of an error that it is in an op that is there already.
    fn place(&self, stop: &mut Stop, op: Op) {
        if let Stop::Error(error) = stop
            && error.op.is_none()
        {
            error.op = Some((op.as_u32(), self.opcode.map(Opcode::name)));
            if let Some(loc) = self.r.module.debug.loc(self.f.debug, Some(op.as_u32())) {
                error.source = self.r.module.frames(loc);
            }
        }
    }

    fn attrs_and_operands(
        &mut self,
        c: &mut Cursor<'_>,
        opcode: Opcode,
        flag: impl Fn(u8) -> bool,
    ) -> Step<()> {
        let row = opcode.row();
        for attr in row.attrs.iter().filter(|a| a.flag.is_none_or(&flag)) {
            self.attr(c, attr)?;
        }
        let mut left = 0;
        if row.counted {
            let at = c.at;
            left = c.count(1)?;
            let fixed = row.operands.iter().filter(|o| o.1 == Arity::One).count();
            if left < fixed {
                let message = format!("{left} operands, expected at least {fixed}");
                return Err(c.error(Code::E1615, at, message).into());
            }
        }
        for &(seg, arity) in row.operands {
            let n = match arity {
                Arity::One => 1,
                Arity::Opt(bit) => usize::from(flag(bit)),
                Arity::Many if row.counted => left,
                Arity::Many => {
                    let n = c.count(1)?;
                    self.f.push_word(n as u64);
                    n
                }
            };
            left = left.saturating_sub(n);
            for _ in 0..n {
                self.operand(c)?;
            }
            if seg == Seg::Index
                && let Some(id) = self.unwritten.take()
            {
                self.f.set_attr(id, Attr::Bools(vec![false; n].into()));
            }
        }
        Ok(())
    }

    fn operand(&mut self, c: &mut Cursor<'_>) -> Step<()> {
        let at = c.at;
        let number = c.varint()?;
        let live = self.r.stack.len();
        let Some(&value) = usize::try_from(number).ok().and_then(|n| self.r.stack.get(n)) else {
            let message = format!("value {number} is not defined here, {live} are");
            return Err(c.error(Code::E1614, at, message).into());
        };
        self.f.push_operand(value);
        Ok(())
    }

    fn attr(&mut self, c: &mut Cursor<'_>, row: &AttrRow) -> Step<()> {
        // What the version lacks has its old meaning; lists are empty.
        let written = row.since <= self.r.module.version.0;
        let at = c.at;
        let word = match row.kind {
            AttrKind::Enum(_) if !written => u64::from(row.default),
            AttrKind::Enum(names) => {
                let number = c.varint()?;
                if number >= names.len() as u64 {
                    let message = format!("{} {number}, expected less than {}", row.key, names.len());
                    return Err(c.error(Code::E1613, at, message).into());
                }
                number
            }
            AttrKind::Int => c.varint()?,
            AttrKind::Bool => u64::from(c.bool()?),
            AttrKind::Str => self.r.name(c, "a text")?.index() as u64,
            AttrKind::Const => self.r.constant(c)?.index() as u64,
            AttrKind::Ints => {
                let ints = c.i32s()?;
                if ints.iter().any(|&n| n == i32::MIN || n == i32::MAX) {
                    return Err(c
                        .error(Code::E1613, at, "a list with the least or the greatest 32-bit number")
                        .into());
                }
                self.f.push_attr(Attr::Ints(ints));
                return Ok(());
            }
            AttrKind::Bools => {
                let n = if written { c.count(1)? } else { 0 };
                let bools = (0..n).map(|_| c.bool()).collect::<Result<_, _>>()?;
                let id = self.f.push_attr(Attr::Bools(bools));
                self.unwritten = (!written).then_some(id);
                return Ok(());
            }
            AttrKind::List => {
                let n = c.count(1)?;
                let list = (0..n).map(|_| self.r.tagged(c, 0)).collect::<Step<_>>()?;
                self.f.push_attr(Attr::List(list));
                return Ok(());
            }
            AttrKind::Tagged => {
                let attr = self.r.tagged(c, 0)?;
                self.f.push_attr(attr);
                return Ok(());
            }
            AttrKind::Hints => {
                let entries = self.r.hint_entries(c, 0)?;
                self.f.push_attr(Attr::Hints(entries));
                return Ok(());
            }
        };
        self.f.push_word(word);
        Ok(())
    }

    fn regions(&mut self, c: &mut Cursor<'_>, op: Op, depth: usize) -> Step<()> {
        let at = c.at;
        let n = c.varint()?;
        let want = self.opcode.map_or(0, |o| o.row().regions);
        if n != u64::from(want) {
            return Err(c.error(Code::E1615, at, format!("{n} regions, expected {want}")).into());
        }
        let most = self.r.limits.max_nesting.min(DEEPEST);
        if depth >= most {
            return Err(c.error(Code::E1619, at, format!("regions nest deeper than {most}")).into());
        }
        let (opcode, height) = (self.opcode, self.r.stack.len());
        for i in 0..usize::from(want) {
            let region = self.f.region_of(op, i);
            let at = c.at;
            match c.varint()? {
                0 => continue,
                1 => {}
                n => {
                    return Err(c
                        .error(Code::E1615, at, format!("{n} blocks in a region, expected 1"))
                        .into());
                }
            }
            let params = c.count(1)?;
            for _ in 0..params {
                let ty = self.r.ty(c)?;
                let value: Value = self.f.push_param(region, ty);
                self.r.stack.push(value);
            }
            let ops = c.count(1)?;
            let first = self.r.open_ops.len();
            for _ in 0..ops {
                let op = self.op(c, region, depth + 1)?;
                self.r.open_ops.push(op);
            }
            self.f.close(region, self.r.open_ops.drain(first..));
            self.r.stack.truncate(height);
            self.opcode = opcode;
        }
        Ok(())
    }
}
