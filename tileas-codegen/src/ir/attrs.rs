//! Attribute values and dictionaries.

use super::combiner::Combiner;
use super::entities::{Attr, Sym, Type};
use super::types::Scalar;
use smallvec::SmallVec;

/// The discardable attribute that says what an op was made from: `"file:line:column"`.
pub const ORIGIN: &str = "loc";

/// A floating-point attribute, compared by bits.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FloatBits(u64);

impl FloatBits {
    /// Wraps a value; all NaNs become one.
    pub fn new(value: f64) -> FloatBits {
        FloatBits(if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() })
    }

    /// The value.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// An attribute value.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AttrData {
    /// Presence alone.
    Unit,
    /// An integer, with its written type if there was one.
    Int(i64, Option<Scalar>),
    /// A float, with its written type if there was one.
    Float(FloatBits, Option<Scalar>),
    /// A quoted string.
    Str(String),
    /// A bare name.
    Name(Sym),
    /// A list.
    Array(SmallVec<[Attr; 4]>),
    /// `name(args)`.
    Call(Sym, SmallVec<[Attr; 4]>),
    /// A type.
    Type(Type),
    /// How two elements become one.
    Combiner(Combiner),
}

// As of dictionaries: lists are copied as one move of memory.
impl Clone for AttrData {
    fn clone(&self) -> AttrData {
        match self {
            AttrData::Unit => AttrData::Unit,
            &AttrData::Int(v, ty) => AttrData::Int(v, ty),
            &AttrData::Float(v, ty) => AttrData::Float(v, ty),
            AttrData::Str(text) => AttrData::Str(text.clone()),
            &AttrData::Name(name) => AttrData::Name(name),
            AttrData::Array(list) => AttrData::Array(SmallVec::from_slice(list)),
            AttrData::Call(name, list) => AttrData::Call(*name, SmallVec::from_slice(list)),
            &AttrData::Type(ty) => AttrData::Type(ty),
            AttrData::Combiner(c) => AttrData::Combiner(c.clone()),
        }
    }
}

/// An attribute dictionary in written order. Keys are unique.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct AttrDict(SmallVec<[(Sym, Attr); 4]>);

// Dictionaries are copied often: as one move of memory.
impl Clone for AttrDict {
    fn clone(&self) -> AttrDict {
        // Most are empty.
        if self.0.is_empty() { AttrDict::default() } else { AttrDict(SmallVec::from_slice(&self.0)) }
    }
}

impl AttrDict {
    /// The value under `key`.
    pub fn get(&self, key: Sym) -> Option<Attr> {
        self.0.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    /// Sets or replaces the value under `key`.
    pub fn set(&mut self, key: Sym, value: Attr) {
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some(slot) => slot.1 = value,
            None => self.0.push((key, value)),
        }
    }

    /// Removes the value under `key`.
    pub fn remove(&mut self, key: Sym) -> Option<Attr> {
        let i = self.0.iter().position(|(k, _)| *k == key)?;
        Some(self.0.remove(i).1)
    }

    /// Entries in written order.
    pub fn iter(&self) -> impl Iterator<Item = (Sym, Attr)> + '_ {
        self.0.iter().copied()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
