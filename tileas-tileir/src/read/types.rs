//! The type table. An item may refer to later ones, so each is resolved where it is first needed.

use super::{ErrorList, Reader, Stop};
use crate::cursor::Cursor;
use crate::entities::Type;
use crate::error::{Code, Res};
use crate::types::{Dim, Elem, Num, TypeData};
use tileas_meta::tileir::{Padding, PointerMode};

#[derive(Copy, Clone)]
enum State {
    New,
    Open,
    Done(Option<Type>),
}

struct Resolver<'r, 'a, 'm> {
    r: &'r mut Reader<'m>,
    items: Vec<Cursor<'a>>,
    states: Vec<State>,
    errors: &'r mut ErrorList,
}

/// Reads all types; one that is malformed is `None` afterwards, with an error.
pub(super) fn types(r: &mut Reader<'_>, mut c: Cursor<'_>, errors: &mut ErrorList) -> Res<()> {
    let base = c.at;
    let items = super::items(&mut c, base, 4)?;
    let n = items.len();
    let mut resolver = Resolver { r, items, states: vec![State::New; n], errors };
    for i in 0..n {
        let ty = resolver.resolve(i, 0);
        resolver.r.types.push(ty);
    }
    Ok(())
}

/// Function, view, tensor view, element: no legal type is deeper.
const DEEPEST: u32 = 6;

impl Resolver<'_, '_, '_> {
    fn resolve(&mut self, i: usize, depth: u32) -> Option<Type> {
        match self.states[i] {
            State::Done(ty) => return ty,
            State::Open => {
                let c = &self.items[i];
                self.errors.push(*c.error(Code::E1611, c.at, format!("type {i} contains itself")));
                self.states[i] = State::Done(None);
                return None;
            }
            State::New => self.states[i] = State::Open,
        }
        let mut c = self.items[i].clone();
        let ty = match self
            .item(&mut c, depth)
            .and_then(|data| c.end("a type").map(|()| data).map_err(Stop::from))
        {
            Ok(data) => Some(self.r.module.types.intern(data)),
            Err(Stop::Error(mut error)) => {
                error.message = format!("type {i}: {}", error.message);
                self.errors.push(*error);
                None
            }
            Err(Stop::Known) => None,
        };
        self.states[i] = State::Done(ty);
        ty
    }

    fn inner(&mut self, c: &mut Cursor<'_>, depth: u32) -> Result<Type, Stop> {
        let at = c.at;
        let i = self.r.index(c, "type", self.items.len())?;
        if depth == DEEPEST {
            Err(c.error(Code::E1611, at, format!("types nest deeper than {DEEPEST}")))?;
        }
        self.resolve(i, depth + 1).ok_or(Stop::Known)
    }

    fn elem(&mut self, c: &mut Cursor<'_>, depth: u32) -> Result<Elem, Stop> {
        let at = c.at;
        let ty = self.inner(c, depth)?;
        match self.r.module.types.get(ty) {
            TypeData::Elem(elem) => Ok(*elem),
            _ => Err(c.error(Code::E1611, at, "a number or a pointer expected").into()),
        }
    }

    fn num(&mut self, c: &mut Cursor<'_>, depth: u32) -> Result<Num, Stop> {
        let at = c.at;
        match self.elem(c, depth)? {
            Elem::Num(num) => Ok(num),
            Elem::Ptr { .. } => Err(c.error(Code::E1611, at, "a number expected, found a pointer").into()),
        }
    }

    fn item(&mut self, c: &mut Cursor<'_>, depth: u32) -> Result<TypeData, Stop> {
        let at = c.at;
        let version = self.r.module.version;
        let tag = c.varint()?;
        let num = Num::ALL.iter().find(|n| n.tag() == tag);
        let since = num.map_or(if matches!(tag, 20 | 21) { 3 } else { 1 }, |n| n.since());
        if version.0 < since {
            let message = format!("type tag {tag} of version 13.{since} in a file of {version}");
            return Err(c.error(Code::E1611, at, message).into());
        }
        if let Some(&num) = num {
            return Ok(TypeData::Elem(Elem::Num(num)));
        }
        Ok(match tag {
            12 => {
                let flags = self.flags(c, 4)?;
                let pointee = self.num(c, depth)?;
                TypeData::Elem(Elem::Ptr { pointee, mode: self.mode(c, flags)? })
            }
            13 => TypeData::Tile { elem: self.elem(c, depth)?, shape: c.i64s()? },
            14 => {
                let flags = self.flags(c, 4)?;
                let (elem, shape, strides) = (self.num(c, depth)?, dims(c)?, dims(c)?);
                TypeData::TensorView { elem, shape, strides, mode: self.mode(c, flags)? }
            }
            15 => {
                let flags = self.flags(c, 3)?;
                let (tile, tensor, map) = (c.i32s()?, self.tensor(c, depth)?, c.i32s()?);
                // Before there were flags, the padding was announced behind.
                let padded = if version.0 < 3 { c.bool()? } else { flags };
                TypeData::PartitionView { tile, tensor, map, padding: padding(c, padded)? }
            }
            16 => TypeData::Func { params: self.list(c, depth)?, results: self.list(c, depth)? },
            17 => TypeData::Token,
            20 => {
                let flags = self.flags(c, 3)?;
                let (tile, tensor, at) = (c.i32s()?, self.tensor(c, depth)?, c.at);
                let sparse = u32::try_from(c.varint()?)
                    .map_err(|_| c.error(Code::E1605, at, "a dimension of more than 32 bits"))?;
                TypeData::GatherScatterView { tile, tensor, sparse, padding: padding(c, flags)? }
            }
            21 => {
                let flags = self.flags(c, 3)?;
                let (tile, steps, tensor, map) = (c.i32s()?, c.i32s()?, self.tensor(c, depth)?, c.i32s()?);
                TypeData::StridedView { tile, steps, tensor, map, padding: padding(c, flags)? }
            }
            _ => return Err(c.error(Code::E1611, at, format!("unknown type tag {tag}")).into()),
        })
    }

    fn list(&mut self, c: &mut Cursor<'_>, depth: u32) -> Result<Box<[Type]>, Stop> {
        let n = c.count(1)?;
        (0..n)
            .map(|_| {
                let at = c.at;
                match self.inner(c, depth)? {
                    ty if matches!(self.r.module.types.get(ty), TypeData::Func { .. }) => {
                        Err(c.error(Code::E1611, at, "a function type in a function type").into())
                    }
                    ty => Ok(ty),
                }
            })
            .collect()
    }

    fn tensor(&mut self, c: &mut Cursor<'_>, depth: u32) -> Result<Type, Stop> {
        let at = c.at;
        let ty = self.inner(c, depth)?;
        match self.r.module.types.get(ty) {
            TypeData::TensorView { .. } => Ok(ty),
            _ => Err(c.error(Code::E1611, at, "a tensor view expected").into()),
        }
    }

    /// Flags, of which only bit 0 has a meaning.
    fn flags(&self, c: &mut Cursor<'_>, since: u8) -> Res<bool> {
        let at = c.at;
        match if self.r.module.version.0 < since { 0 } else { c.varint()? } {
            flags @ 0..=1 => Ok(flags != 0),
            flags => Err(c.error(Code::E1611, at, format!("unknown flags {flags:#x}"))),
        }
    }

    fn mode(&self, c: &mut Cursor<'_>, there: bool) -> Res<PointerMode> {
        let at = c.at;
        let number = if there { c.varint()? } else { 0 };
        match PointerMode::from_number(number) {
            Some(mode) if mode == PointerMode::None || self.r.module.version.0 >= 5 => Ok(mode),
            _ => Err(c.error(Code::E1611, at, format!("unknown kind {number} of pointers"))),
        }
    }
}

fn padding(c: &mut Cursor<'_>, there: bool) -> Res<Option<Padding>> {
    if !there {
        return Ok(None);
    }
    let at = c.at;
    let number = c.varint()?;
    let padding = Padding::from_number(number);
    padding.map(Some).ok_or_else(|| c.error(Code::E1611, at, format!("unknown padding {number}")))
}

fn dims(c: &mut Cursor<'_>) -> Res<Box<[Dim]>> {
    Ok(c.i64s()?.iter().map(|&d| (d != i64::MIN).then_some(d)).collect())
}
