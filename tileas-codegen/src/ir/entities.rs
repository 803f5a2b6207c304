//! Entity types of the tile IR.
//!
//! An entity is a number. Above the bits that count, those that a caller's function hands out say which one it was, so that
//! the verifier finds an entity of another function; see `Maker`. Nothing else looks at them: equality, order, hash
//! and text are those of the number.

use cranelift_entity::EntityRef;
use cranelift_entity::packed_option::ReservedValue;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bits of the number; the maker stands above.
const BITS: u32 = 26;
const NUMBER: u32 = (1 << BITS) - 1;
/// Entities of one kind that a function can have.
pub(super) const MOST: usize = NUMBER as usize;

/// Which function made an entity, one of 63 in turn; 0: not known, and never wrong. Functions that passes make have none, as
/// they copy entities from one function to the next.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Maker(u32);

impl Maker {
    /// The next one. The counter tells erroneous input from legal one and nothing else.
    pub(super) fn next() -> Maker {
        static MADE: AtomicU32 = AtomicU32::new(0);
        Maker(MADE.fetch_add(1, Relaxed) % (u32::MAX >> BITS) + 1)
    }

    /// Whether entities of the two may be of one function.
    #[inline]
    pub(super) fn agrees(self, other: Maker) -> bool {
        self.0 == other.0 || self.0 == 0 || other.0 == 0
    }

    /// Whether it is known.
    #[inline]
    pub(super) fn is_some(self) -> bool {
        self.0 != 0
    }
}

macro_rules! entity {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Copy, Clone)]
        pub struct $name(u32);

        impl EntityRef for $name {
            // Numbers beyond the last one become that; functions refuse to make so many.
            #[inline]
            fn new(index: usize) -> Self {
                $name(index.min(MOST) as u32)
            }

            #[inline]
            fn index(self) -> usize {
                (self.0 & NUMBER) as usize
            }
        }

        impl ReservedValue for $name {
            #[inline]
            fn reserved_value() -> Self {
                $name(u32::MAX)
            }

            #[inline]
            fn is_reserved_value(&self) -> bool {
                self.0 == u32::MAX
            }
        }

        impl $name {
            /// The entity of that number, whosoever it is.
            #[inline]
            pub fn from_u32(number: u32) -> Self {
                $name(number.min(NUMBER))
            }

            /// The number.
            #[inline]
            pub fn as_u32(self) -> u32 {
                self.0 & NUMBER
            }

            /// The same, made by a function.
            #[inline]
            pub(super) fn by(self, maker: Maker) -> Self {
                $name(self.0 & NUMBER | maker.0 << BITS)
            }

            /// Who made it.
            #[allow(dead_code, reason = "regions are reached through their ops")]
            #[inline]
            pub(super) fn maker(self) -> Maker {
                Maker(self.0 >> BITS)
            }
        }

        impl PartialEq for $name {
            #[inline]
            fn eq(&self, other: &Self) -> bool {
                self.as_u32() == other.as_u32()
            }
        }

        impl Eq for $name {}

        impl Hash for $name {
            #[inline]
            fn hash<H: Hasher>(&self, state: &mut H) {
                state.write_u32(self.as_u32());
            }
        }

        impl Ord for $name {
            #[inline]
            fn cmp(&self, other: &Self) -> Ordering {
                self.as_u32().cmp(&other.as_u32())
            }
        }

        impl PartialOrd for $name {
            #[inline]
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.as_u32())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

entity!(
    /// An operation. Numbered by creation; program order is in the function's layout.
    Op, "op"
);
entity!(
    /// An SSA value: the result of an op or a block parameter.
    Value, "v"
);
entity!(
    /// A straight list of ops ended by a terminator.
    Block, "block"
);
entity!(
    /// A body owned by a kernel or an op.
    Region, "region"
);
entity!(
    /// An interned type; equality is identity within one function.
    Type, "type"
);
entity!(
    /// An interned attribute value; equality is identity within one function.
    Attr, "attr"
);
entity!(
    /// An interned name.
    Sym, "sym"
);

impl Sym {
    /// The symbol of a name known at build time.
    pub(crate) const fn known(index: u32) -> Sym {
        Sym(index)
    }
}
