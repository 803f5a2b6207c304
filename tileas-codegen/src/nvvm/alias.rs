//! Whether two accesses of thread-level code may touch the same bytes.
//!
//! In: addresses as they are written. Out: [`Alias`]. What a generic address leads to is not known. Of others, those of different spaces never
//! meet. Of one space, those that lead to words which their thread alone touches meet where their bytes do, and no other access. Source:
//! "Scheduling Glue Passes", NVVMAA. Cost: constant.

use super::forms::AddressSpace;
use super::module::{Operand, Reg};

/// Where an address counts from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// The function's local area, which its thread alone has.
    Local,
    /// Words in another space that their thread alone touches, from the address in this register.
    Own(Reg),
    /// Anything else.
    Other,
}

/// The bytes of an access.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Space.
    pub space: AddressSpace,
    /// Where `first` counts from.
    pub from: Beginning,
    /// First byte.
    pub first: i64,
    /// Number of bytes.
    pub bytes: u32,
}

/// How two places lie.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Alias {
    /// They have no byte in common.
    Apart,
    /// They may have.
    May,
    /// They are the same bytes.
    Same,
}

impl Place {
    /// The place of an address operand. `own`: a register that leads to words of its thread.
    pub fn of(space: AddressSpace, address: Operand, bytes: u32, own: Option<Reg>) -> Place {
        let (from, first) = match address {
            Operand::Local(at) => (Beginning::Local, i64::from(at)),
            Operand::Reg(r) if own == Some(r) => (Beginning::Own(r), 0),
            Operand::Addr { base, offset } if own == Some(base) => (Beginning::Own(base), i64::from(offset)),
            _ => (Beginning::Other, 0),
        };
        Place { space, from, first, bytes }
    }

    /// Whether no other thread and no engine touches it.
    pub fn is_own(&self) -> bool {
        self.from != Beginning::Other
    }

    /// How this place and another one lie.
    pub fn alias(&self, other: &Place) -> Alias {
        if self.space == AddressSpace::Generic || other.space == AddressSpace::Generic {
            return Alias::May;
        }
        if self.space != other.space || self.is_own() != other.is_own() {
            return Alias::Apart;
        }
        let end = |p: &Place| p.first + i64::from(p.bytes);
        match self.from == other.from && self.is_own() {
            true if (self.first, self.bytes) == (other.first, other.bytes) => Alias::Same,
            true if end(self) <= other.first || end(other) <= self.first => Alias::Apart,
            _ => Alias::May,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_entity::EntityRef;

    fn at(space: AddressSpace, from: Beginning, first: i64) -> Place {
        Place { space, from, first, bytes: 4 }
    }

    /// The published rule: generic may alias, distinct spaces do not, equal ones may.
    #[test]
    fn spaces_are_apart_and_generic_addresses_are_not() {
        use AddressSpace::{Generic, Global, Local, Param, Shared, Tensor};
        let all = [Shared, Global, Param, Tensor, Local, Generic];
        for a in all {
            for b in all {
                let found = at(a, Beginning::Other, 0).alias(&at(b, Beginning::Other, 0));
                let may = a == b || a == Generic || b == Generic;
                assert_eq!(found, if may { Alias::May } else { Alias::Apart }, "{a:?} {b:?}");
            }
        }
        // One number is an address in each space.
        let own = Beginning::Own(Reg::new(0));
        assert_eq!(at(Shared, own, 0).alias(&at(Local, Beginning::Local, 0)), Alias::Apart);
    }

    #[test]
    fn words_of_a_thread_are_told_apart() {
        use AddressSpace::{Generic, Shared};
        let [r, s] = [Reg::new(0), Reg::new(1)];
        let place = |address| Place::of(Shared, address, 4, Some(r));
        let own = |first| place(Operand::addr(r, first));
        assert_eq!(own(8).alias(&own(8)), Alias::Same);
        assert_eq!(own(0).alias(&place(r.into())), Alias::Same);
        assert_eq!([own(4), own(12)].map(|p| p.alias(&own(8))), [Alias::Apart; 2]);
        assert_eq!([own(5), own(11)].map(|p| p.alias(&own(8))), [Alias::May; 2]);
        assert_eq!(Place { bytes: 16, ..own(8) }.alias(&own(20)), Alias::May);
        let other = place(Operand::addr(s, 8));
        assert_eq!((own(8).alias(&other), other.alias(&own(8))), (Alias::Apart, Alias::Apart));
        assert_eq!(other.alias(&other), Alias::May);
        assert_eq!(own(8).alias(&Place { space: Generic, ..other }), Alias::May);
        assert_eq!([own(8), other].map(|p| p.is_own()), [true, false]);
    }
}
