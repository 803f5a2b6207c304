//! Entity types of the tile IR.

use cranelift_entity::entity_impl;

macro_rules! entity {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u32);
        entity_impl!($name, $prefix);
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
