//! Reader of files.
//!
//! In: bytes. Out: a [`Module`], or all errors that can be told apart from consequences of others, each with its place.
//! Everything that the bytes alone decide is checked here: numbers, tables, padding, that every byte belongs to something,
//! versions, values that are not visible. Whether types suit operations is left to [`Module::verify`].
//!
//! Sections come in any order, so their places are collected first. A table that is unreadable ends reading, since
//! everything refers to it; a type that is, or an op, takes with it only the functions that have it.
//!
//! Guarantee: total, no panic. Recursion is bounded by [`Limits`]; counts are compared with the bytes that are left before
//! anything is reserved. Cost: linear in the file. Parts: `types`, `debug`, `attrs`, `body`.

mod attrs;
mod body;
mod debug;
mod types;

use crate::attr::Attr;
use crate::cursor::{Cursor, PAD};
use crate::entities::{Constant, Str, Type};
use crate::error::{Code, Error, Errors, Res, Section};
use crate::module::{Function, GlobalData, Module, Version};
use crate::table::Table;
use crate::types::TypeData;
use cranelift_entity::EntityRef;

/// What a file may cost; beyond a limit there is E1619.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file. Default 64 MiB; never more than 1 GiB. What is held in memory is a multiple of it, about 5 for
    /// kernels and 25 if all of the file were the shortest of ops.
    pub max_bytes: usize,
    /// Ops of all functions. Default 1 000 000.
    pub max_ops: usize,
    /// Depth of regions. Default 64; values above 128 count as 128.
    pub max_nesting: usize,
    /// Depth of arrays and dictionaries. Default 16; values above 128 count as 128.
    pub max_attr_nesting: usize,
    /// Errors that are reported. Default 64.
    pub max_errors: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_bytes: 64 << 20,
            max_ops: 1_000_000,
            max_nesting: 64,
            max_attr_nesting: 16,
            max_errors: 64,
        }
    }
}

/// Depth no setting exceeds, as reading recurses once per level.
const DEEPEST: usize = 128;
/// Bytes no setting exceeds, so that all numbers fit.
const LARGEST: usize = 1 << 30;
/// Alignment that no section needs more of.
const MAX_ALIGNMENT: u64 = 4096;
pub(crate) const MAGIC: &[u8; 8] = b"\x7fTileIR\0";

impl Module {
    /// Reads a file.
    ///
    /// # Errors
    /// All errors that are no consequences of others, in the order of reading, at most [`Limits::max_errors`].
    pub fn read(bytes: &[u8], limits: &Limits) -> Result<Module, Errors> {
        let (module, errors) = Module::read_partly(bytes, limits);
        Errors::check(errors)?;
        Ok(module)
    }

    /// Reads what can be read of a file: functions with errors are left out.
    pub fn read_partly(bytes: &[u8], limits: &Limits) -> (Module, Vec<Error>) {
        let mut errors = ErrorList { list: Vec::new(), most: limits.max_errors.max(1) };
        let mut module = Module::new(Version::NEWEST);
        if let Err(error) = read(bytes, limits, &mut module, &mut errors) {
            errors.push(*error);
        }
        (module, errors.list)
    }
}

/// Errors found so far.
struct ErrorList {
    list: Vec<Error>,
    most: usize,
}

impl ErrorList {
    fn push(&mut self, error: Error) {
        if self.list.len() < self.most {
            self.list.push(error);
        }
    }
}

/// Where the sections are, and what of the module is read already.
struct Reader<'a> {
    limits: &'a Limits,
    module: &'a mut Module,
    /// By index in the file; `None`: an error is reported.
    types: Vec<Option<Type>>,
    ops_left: usize,
    /// Whether an error is reported about debug information; then there is none.
    no_debug: bool,
    /// Memory of the body that is read.
    stack: Vec<crate::entities::Value>,
    open_ops: Vec<crate::entities::Op>,
    result_types: Vec<Type>,
}

/// How a step ended that cannot go on.
enum Stop {
    /// By an error.
    Error(Box<Error>),
    /// By something about which there is an error already.
    Known,
}

impl From<Box<Error>> for Stop {
    fn from(error: Box<Error>) -> Stop {
        Stop::Error(error)
    }
}

fn read(bytes: &[u8], limits: &Limits, module: &mut Module, errors: &mut ErrorList) -> Res<()> {
    let max = limits.max_bytes.min(LARGEST);
    if bytes.len() > max {
        let message = format!("file of {} bytes, expected at most {max}", bytes.len());
        return Err(Error::new(Code::E1619, Section::Header, Some(max), message));
    }
    let mut c = Cursor::new(bytes, 0, Section::Header);
    module.version = header(&mut c)?;
    let sections = sections(&mut c)?;
    let section = |s: Section| sections[s as usize].clone();
    let missing = |s: Section| c.error(Code::E1606, bytes.len(), format!("there is no section {}", s.name()));
    module.strings = table(&mut section(Section::Strings).ok_or_else(|| missing(Section::Strings))?, 4)?;
    let mut r = Reader {
        limits,
        module,
        types: Vec::new(),
        ops_left: limits.max_ops,
        no_debug: false,
        stack: Vec::new(),
        open_ops: Vec::new(),
        result_types: Vec::new(),
    };
    if let Some(mut c) = section(Section::Producer) {
        match r.string(&mut c).and_then(|s| c.end("the producer").map(|()| s)) {
            Ok(s) => r.module.producer = Some(s),
            Err(error) => errors.push(*error),
        }
    }
    if let Some(c) = section(Section::Types) {
        types::types(&mut r, c, errors)?;
    }
    if let Some(mut c) = section(Section::Constants) {
        r.module.constants = constants(&mut c)?;
    }
    if let Some(c) = section(Section::Debug) {
        match debug::debug(&r, c) {
            Ok(debug) => r.module.debug = debug,
            Err(error) => {
                errors.push(*error);
                r.no_debug = true;
            }
        }
    }
    if let Some(mut c) = section(Section::Globals)
        && let Err(Stop::Error(error)) = r.globals(&mut c)
    {
        errors.push(*error);
    }
    r.functions(&mut section(Section::Functions).ok_or_else(|| missing(Section::Functions))?, errors)
}

fn header(c: &mut Cursor<'_>) -> Res<Version> {
    let there = c.left().min(MAGIC.len());
    if c.take(there)? != MAGIC {
        return Err(c.error(Code::E1601, 0, "the first 8 bytes are not those of Tile IR bytecode"));
    }
    let (major, minor) = (c.byte()?, c.byte()?);
    let (oldest, newest) = (Version::OLDEST, Version::NEWEST);
    let version = Version::new(minor).filter(|_| major == 13).ok_or_else(|| {
        let message = format!("version {major}.{minor} of the bytecode, expected {oldest} to {newest}");
        c.error(Code::E1602, 8, message)
    })?;
    let tag = c.take(2)?;
    match (tag[0], tag[1]) {
        (0, 0) => Ok(version),
        (1, 0) => Err(c.error(Code::E1603, 10, "the file has preview features")),
        (low, high) => {
            Err(c.error(Code::E1603, 10, format!("unknown bits {low:#04x} {high:#04x} of the header")))
        }
    }
}

/// The payloads, by number; number 0 stays empty.
fn sections<'a>(c: &mut Cursor<'a>) -> Res<[Option<Cursor<'a>>; 8]> {
    let mut sections = [const { None }; 8];
    loop {
        let start = c.at;
        let id = c.byte()?;
        if id == 0 {
            c.end("the file")?;
            return Ok(sections);
        }
        let Some(&section) = Section::ALL.get(usize::from(id & 0x7f)).filter(|&&s| s != Section::Header)
        else {
            return Err(c.error(Code::E1606, start, format!("unknown section {}", id & 0x7f)));
        };
        c.section = section;
        let length = usize::try_from(c.varint()?).unwrap_or(usize::MAX);
        let mut alignment = 1;
        if id & 0x80 != 0 {
            let at = c.at;
            alignment = c.varint()?;
            if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
                let message = format!("alignment {alignment}, expected a power of two up to {MAX_ALIGNMENT}");
                return Err(c.error(Code::E1606, at, message));
            }
            c.pad(0, alignment as usize)?;
        }
        let demanded = match section {
            Section::Strings | Section::Types => 4,
            Section::Functions | Section::Debug | Section::Constants => 8,
            Section::Header | Section::Globals | Section::Producer => 1,
        };
        if alignment < demanded {
            let message = format!("alignment {alignment}, expected a multiple of {demanded}");
            return Err(c.error(Code::E1606, start, message));
        }
        let slot = &mut sections[section as usize];
        if slot.is_some() {
            return Err(c.error(Code::E1606, start, "the section is there twice"));
        }
        *slot = Some(c.part(length)?);
        c.section = Section::Header;
    }
}

/// The items of a table as cursors of their own. `width`: bytes of an offset.
fn items<'a>(c: &mut Cursor<'a>, base: usize, width: usize) -> Res<Vec<Cursor<'a>>> {
    let n = c.count(width)?;
    if n == 0 {
        // One writer ends here, another one pads.
        c.padding(c.left().min(width))?;
        c.end("an empty table")?;
        return Ok(Vec::new());
    }
    c.pad(base, width)?;
    let table = c.at;
    let offsets: Vec<u64> =
        (0..n).map(|_| if width == 4 { c.u32().map(u64::from) } else { c.u64() }).collect::<Res<_>>()?;
    let left = c.left() as u64;
    let mut items = Vec::with_capacity(n);
    for (i, &offset) in offsets.iter().enumerate() {
        let next = offsets.get(i + 1).copied().unwrap_or(left);
        if next < offset || next > left || i == 0 && offset != 0 {
            let message = format!("item {i} of {n} goes from {offset} to {next} in {left} bytes");
            return Err(c.error(Code::E1609, table + i * width, message));
        }
        items.push((next - offset) as usize);
    }
    items.into_iter().map(|n| c.part(n)).collect()
}

fn table<K: EntityRef>(c: &mut Cursor<'_>, width: usize) -> Res<Table<K>> {
    let items = items(c, c.at, width)?;
    let mut table = Table::default();
    table.reserve(items.len(), items.iter().map(Cursor::left).sum());
    for mut item in items {
        table.push(item.take(item.left())?);
    }
    Ok(table)
}

fn constants(c: &mut Cursor<'_>) -> Res<Table<Constant>> {
    let items = items(c, c.at, 8)?;
    let mut table = Table::default();
    table.reserve(items.len(), items.iter().map(Cursor::left).sum());
    for mut item in items {
        let n = item.count(1)?;
        table.push(item.take(n)?);
        item.end("a constant")?;
    }
    Ok(table)
}

impl<'a> Reader<'a> {
    /// The index of something in a table of `len`.
    fn index(&self, c: &mut Cursor<'_>, what: &str, len: usize) -> Res<usize> {
        let at = c.at;
        let i = c.varint()?;
        usize::try_from(i)
            .ok()
            .filter(|&i| i < len)
            .ok_or_else(|| c.error(Code::E1610, at, format!("{what} {i}, the table has {len}")))
    }

    fn string(&self, c: &mut Cursor<'_>) -> Res<Str> {
        self.index(c, "string", self.module.strings.len()).map(Str::new)
    }

    /// A string that is used as a name or a text.
    fn name(&self, c: &mut Cursor<'_>, of: &str) -> Res<Str> {
        let at = c.at;
        let s = self.string(c)?;
        match std::str::from_utf8(self.module.strings.get(s)) {
            Ok(_) => Ok(s),
            Err(e) => {
                let message =
                    format!("{of}: string {} is not UTF-8 from its byte {} on", s.index(), e.valid_up_to());
                Err(c.error(Code::E1620, at, message))
            }
        }
    }

    fn constant(&self, c: &mut Cursor<'_>) -> Res<Constant> {
        self.index(c, "constant", self.module.constants.len()).map(Constant::new)
    }

    fn ty(&self, c: &mut Cursor<'_>) -> Result<Type, Stop> {
        let i = self.index(c, "type", self.types.len())?;
        self.types[i].ok_or(Stop::Known)
    }

    fn globals(&mut self, c: &mut Cursor<'_>) -> Result<(), Stop> {
        let n = c.count(4)?;
        for _ in 0..n {
            let name = self.name(c, "the global's name")?;
            let (ty, value, alignment) = (self.ty(c)?, self.constant(c)?, c.varint()?);
            let (mut private, mut constant) = (false, false);
            if self.module.version.0 >= 3 {
                (private, constant) = (c.bool()?, c.bool()?);
            }
            self.module.globals.push(GlobalData { name, ty, value, alignment, private, constant });
        }
        c.end("the globals")?;
        Ok(())
    }

    fn functions(&mut self, c: &mut Cursor<'a>, errors: &mut ErrorList) -> Res<()> {
        let start = c.at;
        let n = c.count(4)?;
        for _ in 0..n {
            let (function, mut c) = match self.function(c) {
                Ok(header) => header,
                // Nothing says where the next one begins.
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Known) => return Ok(()),
            };
            let whole = function.and_then(|mut f| body::body(self, &mut f, &mut c).map(|()| f));
            match whole {
                Ok(function) => _ = self.module.funcs.push(function.finish()),
                Err(Stop::Error(error)) => errors.push(*error),
                Err(Stop::Known) => {}
            }
        }
        // One writer pads the payload.
        let padding = c.left().min((c.at - start).next_multiple_of(8) - (c.at - start));
        if c.left() > 0 && c.clone().byte()? == PAD {
            c.padding(padding)?;
        }
        c.end("the functions")
    }

    /// What stands before a body, and the body. What is wrong with the former, apart from its length, does not hide
    /// what follows.
    fn function(&mut self, c: &mut Cursor<'a>) -> Result<(Result<Function, Stop>, Cursor<'a>), Stop> {
        let start = c.at;
        let version = self.module.version.0;
        let name = self.name(c, "the function's name");
        let type_at = c.at;
        let signature = self.ty(c);
        let flags_at = c.at;
        let flags = c.byte()?;
        let entry = flags & 2 != 0;
        let debug_at = c.at;
        let debug = c.varint()?;
        let mut hints: Box<[(Str, Attr)]> = Box::default();
        if entry && (version >= 5 || flags & 4 != 0) {
            let at = c.at;
            let Attr::Hints(entries) = self.tagged(c, 0)? else {
                Err(c.error(Code::E1616, at, "the kernel's hints are another attribute than hints"))?
            };
            hints = entries;
        }
        let mut param_attrs: Box<[Attr]> = Box::default();
        let attrs_at = c.at;
        if version >= 5 {
            let Attr::List(attrs) = self.tagged(c, 0)? else {
                Err(c.error(Code::E1616, attrs_at, "the parameters' attributes are no array"))?
            };
            param_attrs = attrs;
        }
        let length = usize::try_from(c.varint()?).unwrap_or(usize::MAX);
        let body = c.part(length)?;
        let called = name.as_ref().ok().map(|&name| self.module.lossy(name));
        let check = || {
            let (name, signature) = (name?, signature?);
            if self.module.strings.get(name).is_empty() {
                Err(c.error(Code::E1616, start, "the function has no name"))?;
            }
            let n = match self.module.types.get(signature) {
                TypeData::Func { params, .. } => params.len(),
                _ => Err(c.error(Code::E1616, type_at, "the signature is no function type"))?,
            };
            if flags & !7 != 0 || version >= 5 && flags & 4 != 0 {
                let message = format!("flags {flags:#04x}: unknown, or those of preview features");
                Err(c.error(Code::E1616, flags_at, message))?;
            }
            if !entry && flags & 4 != 0 {
                Err(c.error(Code::E1616, flags_at, "hints for a function that is no kernel"))?;
            }
            let dicts = param_attrs.iter().all(|a| matches!(a, Attr::Dict(_)));
            if !dicts || !param_attrs.is_empty() && param_attrs.len() != n {
                let message =
                    format!("{} attributes of {n} parameters, expected a dictionary each", param_attrs.len());
                Err(c.error(Code::E1616, attrs_at, message))?;
            }
            let most = self.module.debug.runs.len();
            let debug = if self.no_debug { 0 } else { debug };
            let debug = u32::try_from(debug).ok().filter(|&d| d as usize <= most).ok_or_else(|| {
                c.error(
                    Code::E1610,
                    debug_at,
                    format!("function {debug} of the debug information, which has {most}"),
                )
            })?;
            let mut f = Function::new(name, signature);
            (f.entry, f.private, f.hints, f.param_attrs, f.debug) =
                (entry, flags & 1 != 0, hints, param_attrs, debug);
            Ok(f)
        };
        Ok((
            check().map_err(|mut stop| {
                if let Stop::Error(error) = &mut stop {
                    error.function = called;
                }
                stop
            }),
            body,
        ))
    }
}
