//! Numbers of what a module and its functions hold.

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
    /// A string of a module.
    Str, "str"
);
entity!(
    /// A type of a module; equal types have equal numbers.
    Type, "type"
);
entity!(
    /// The bytes of a constant of a module.
    Constant, "const"
);
entity!(
    /// A debug record of a module.
    Loc, "loc"
);
entity!(
    /// A global of a module.
    Global, "global"
);
entity!(
    /// A function of a module.
    Func, "func"
);
entity!(
    /// An operation of a function. In the order of the bytes: an op comes before those of its regions.
    Op, "op"
);
entity!(
    /// A value of a function. Unlike the numbers in the bytes, that of one value is never another's.
    Value, "%"
);
entity!(
    /// A region of a function: parameters and ops. It has one block; number 0 is the function's body.
    Region, "region"
);
entity!(
    /// A structured attribute of a function.
    AttrId, "attr"
);

impl Region {
    /// The region that is the function.
    pub const BODY: Region = Region(0);
}
