//! Whether two accesses of thread-level code may touch the same bytes.
//!
//! In: addresses as they are written. Out: [`Alias`]. What a generic address leads to is not known. Of others, those of different spaces never
//! meet; of one space, those from one beginning meet where their bytes do, and those from different ones may, unless both beginnings are
//! variables or parameters, or one is known to lead to words that only its thread touches ([`Beginning::Own`]). Source: "Scheduling Glue
//! Passes", NVVMAA. Cost: constant.

use super::forms::AddressSpace;
use super::module::{Operand, Param, Reg, Sym};

/// Where an address counts from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// The function's local area, which its thread alone has.
    Local,
    /// Words in another space that their thread alone touches, from the address in this register.
    Own(Reg),
    /// A variable of the module.
    Sym(Sym),
    /// A parameter.
    Param(Param),
    /// A register, in the version of that number.
    Reg(Reg, u32),
    /// Nothing is known.
    Unknown,
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
    /// The place of an address operand. `own`: a register that leads to words of its thread; `version`: how often a register was written.
    pub fn of(
        space: AddressSpace,
        address: Operand,
        bytes: u32,
        own: Option<Reg>,
        version: impl Fn(Reg) -> u32,
    ) -> Place {
        let from = |r: Reg| if own == Some(r) { Beginning::Own(r) } else { Beginning::Reg(r, version(r)) };
        let (from, first) = match address {
            Operand::Local(at) => (Beginning::Local, i64::from(at)),
            Operand::Sym(s) => (Beginning::Sym(s), 0),
            Operand::SymAddr { sym, offset } => (Beginning::Sym(sym), i64::from(offset)),
            Operand::Param(p) => (Beginning::Param(p), 0),
            Operand::ParamAddr { param, offset } => (Beginning::Param(param), i64::from(offset)),
            Operand::Reg(r) => (from(r), 0),
            Operand::Addr { base, offset } => (from(base), i64::from(offset)),
            _ => (Beginning::Unknown, 0),
        };
        Place { space, from, first, bytes }
    }

    /// Whether no other thread and no engine touches it.
    pub fn is_own(&self) -> bool {
        matches!(self.from, Beginning::Local | Beginning::Own(_))
    }

    /// How this place and another one lie.
    pub fn alias(&self, other: &Place) -> Alias {
        use Beginning::{Param, Sym, Unknown};
        if self.space == AddressSpace::Generic || other.space == AddressSpace::Generic {
            return Alias::May;
        }
        if self.space != other.space {
            return Alias::Apart;
        }
        if self.from == other.from && self.from != Unknown {
            let end = |p: &Place| p.first + i64::from(p.bytes);
            return match (self.first, self.bytes) == (other.first, other.bytes) {
                true => Alias::Same,
                false if end(self) <= other.first || end(other) <= self.first => Alias::Apart,
                false => Alias::May,
            };
        }
        match (self.from, other.from) {
            (Sym(_), Sym(_)) | (Param(_), Param(_)) => Alias::Apart,
            _ if self.is_own() != other.is_own() => Alias::Apart,
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
                let of = |space, n| at(space, Beginning::Reg(Reg::new(n), 0), 0);
                let wanted = if a == b || a == Generic || b == Generic { Alias::May } else { Alias::Apart };
                assert_eq!(of(a, 0).alias(&of(b, 1)), wanted, "{a:?} {b:?}");
                // One address in two spaces is no address of both.
                let same = of(a, 0).alias(&of(b, 0));
                let wanted = if a == b && a != Generic { Alias::Same } else { wanted };
                assert_eq!(same, wanted, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn what_is_known_of_beginnings_tells_places_apart() {
        use AddressSpace::Shared;
        let [r, s] = [Reg::new(0), Reg::new(1)];
        let base = |first| at(Shared, Beginning::Reg(r, 3), first);
        assert_eq!(base(8).alias(&base(8)), Alias::Same);
        assert_eq!([base(4), base(12)].map(|p| p.alias(&base(8))), [Alias::Apart; 2]);
        assert_eq!([base(5), base(11)].map(|p| p.alias(&base(8))), [Alias::May; 2]);
        assert_eq!(Place { bytes: 16, ..base(8) }.alias(&base(20)), Alias::May);
        // The register was written in between.
        assert_eq!(base(8).alias(&at(Shared, Beginning::Reg(r, 4), 100)), Alias::May);
        let own = at(Shared, Beginning::Own(s), 8);
        assert_eq!(own.alias(&base(8)), Alias::Apart);
        assert_eq!(own.alias(&at(Shared, Beginning::Unknown, 0)), Alias::Apart);
        assert_eq!(own.alias(&Place { first: 9, ..own }), Alias::May);
        let sym = |n| at(Shared, Beginning::Sym(Sym::new(n)), 0);
        assert_eq!(sym(0).alias(&sym(1)), Alias::Apart);
        assert_eq!(sym(0).alias(&base(0)), Alias::May);
        let unknown = at(Shared, Beginning::Unknown, 0);
        assert_eq!(unknown.alias(&unknown), Alias::May);
    }
}
