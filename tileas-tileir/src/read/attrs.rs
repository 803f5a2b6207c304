//! Attributes: those with a tag, and the kinds of the table.

use super::{DEEPEST, Reader, Stop};
use crate::attr::Attr;
use crate::cursor::Cursor;
use crate::entities::{Str, Type};
use crate::error::{Code, Res};
use crate::types::{Elem, Num, TypeData};

impl Reader<'_> {
    /// An attribute behind its tag.
    pub(super) fn tagged(&self, c: &mut Cursor<'_>, depth: usize) -> Result<Attr, Stop> {
        let at = c.at;
        if depth > self.limits.max_attr_nesting.min(DEEPEST) {
            let message =
                format!("attributes nest deeper than {}", self.limits.max_attr_nesting.min(DEEPEST));
            Err(c.error(Code::E1619, at, message))?;
        }
        Ok(match c.varint()? {
            1 => {
                let (ty, num) = self.num(c, "an integer")?;
                let bits = match num {
                    Num::I1 => u64::from(c.bool()?),
                    num if num.is_int() || num == Num::I4 => {
                        let (at, bits) = (c.at, u128::from(c.varint()?));
                        self.fitting(c, at, bits, num)?
                    }
                    num => Err(c.error(Code::E1613, at, format!("an integer attribute of type {num}")))?,
                };
                Attr::Int { ty, bits }
            }
            2 => {
                let (ty, num) = self.num(c, "a float")?;
                if !num.is_float() {
                    Err(c.error(Code::E1613, at, format!("a float attribute of type {num}")))?;
                }
                Attr::Float { ty, bits: self.float(c, num)? }
            }
            3 => Attr::Bool(c.bool()?),
            4 => Attr::Type(self.ty(c)?),
            5 => Attr::Str(self.string(c)?),
            6 => {
                let n = c.count(1)?;
                Attr::List((0..n).map(|_| self.tagged(c, depth + 1)).collect::<Result<_, Stop>>()?)
            }
            7 => Attr::Dense { ty: self.ty(c)?, value: self.constant(c)? },
            8 => {
                let divisor = c.varint()?;
                let (every, along) = both(c)?;
                Attr::DivBy { divisor, every, along }
            }
            9 => {
                let list = c.i64s()?;
                if list.iter().any(|&n| n == i64::MIN || n == i64::MAX) {
                    Err(c.error(Code::E1613, at, "a list with the least or the greatest 64-bit number"))?;
                }
                Attr::SameElements(list)
            }
            10 => Attr::Dict(self.entries(c, depth)?),
            11 => Attr::Hints(self.hint_entries(c, depth)?),
            12 => {
                let (lower, upper) = both(c)?;
                Attr::Bounded { lower, upper }
            }
            tag => Err(c.error(Code::E1613, at, format!("unknown attribute tag {tag}")))?,
        })
    }

    fn num(&self, c: &mut Cursor<'_>, what: &str) -> Result<(Type, Num), Stop> {
        let at = c.at;
        let ty = self.ty(c)?;
        match self.module.types.get(ty) {
            TypeData::Elem(Elem::Num(num)) => Ok((ty, *num)),
            _ => Err(c.error(Code::E1613, at, format!("{what} of a type that is no number")).into()),
        }
    }

    /// A bit pattern that a type has room for.
    fn fitting(&self, c: &Cursor<'_>, at: usize, bits: u128, num: Num) -> Res<u64> {
        match u64::try_from(bits) {
            Ok(bits) if bits <= u64::MAX >> (64 - num.bits()) => Ok(bits),
            _ => Err(c.error(Code::E1613, at, format!("{bits:#x} has more bits than {num}"))),
        }
    }

    /// A pattern of a float. One byte up to 8 bits; else zigzag, as if the pattern were a signed number. That of a negative f64 then
    /// takes 65 bits; a writer that keeps 64 has an odd number there, which stands for the same pattern.
    fn float(&self, c: &mut Cursor<'_>, num: Num) -> Res<u64> {
        let at = c.at;
        if num.bits() <= 8 {
            let byte = u128::from(c.byte()?);
            return self.fitting(c, at, byte, num);
        }
        let wide = c.wide()?;
        match u64::try_from(wide >> 1) {
            Ok(half) if wide & 1 != 0 && num == Num::F64 => Ok(!half),
            _ if wide & 1 != 0 => {
                Err(c.error(Code::E1613, at, format!("a negative number for the bits of {num}")))
            }
            _ => self.fitting(c, at, wide >> 1, num),
        }
    }

    fn entries(&self, c: &mut Cursor<'_>, depth: usize) -> Result<Box<[(Str, Attr)]>, Stop> {
        let n = c.count(2)?;
        let mut entries: Vec<(Str, Attr)> = Vec::new();
        // Compared as texts; a hash set beyond a few keys keeps this linear.
        let mut seen = rustc_hash::FxHashSet::default();
        for _ in 0..n {
            let at = c.at;
            let key = self.name(c, "a key")?;
            let text = self.module.strings.get(key);
            if text.is_empty() || !seen.insert(text) {
                let message = if text.is_empty() { "a key is empty" } else { "a key is there twice" };
                Err(c.error(Code::E1613, at, format!("{message}: {:?}", self.module.lossy(key))))?;
            }
            entries.push((key, self.tagged(c, depth + 1)?));
        }
        Ok(entries.into())
    }

    /// Target to dictionary.
    pub(super) fn hint_entries(&self, c: &mut Cursor<'_>, depth: usize) -> Result<Box<[(Str, Attr)]>, Stop> {
        let at = c.at;
        let entries = self.entries(c, depth)?;
        if let Some((key, _)) = entries.iter().find(|(_, value)| !matches!(value, Attr::Dict(_))) {
            let message = format!("the hints for `{}` are no dictionary", self.module.lossy(*key));
            Err(c.error(Code::E1613, at, message))?;
        }
        Ok(entries)
    }
}

/// Two signed numbers, each if its flag is set.
fn both(c: &mut Cursor<'_>) -> Res<(Option<i64>, Option<i64>)> {
    let at = c.at;
    let flags = c.byte()?;
    if flags > 3 {
        return Err(c.error(Code::E1613, at, format!("unknown flags {flags:#x}")));
    }
    let mut one = |bit: u8| if flags & bit != 0 { c.zigzag().map(Some) } else { Ok(None) };
    Ok((one(1)?, one(2)?))
}
