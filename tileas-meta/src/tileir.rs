//! CUDA Tile IR, NVIDIA's public bytecode, as data: its operations, one row each, and its enumerations.
//!
//! A row has all that the form in bytes depends on: the number, the versions of each part, the order of attributes, operands
//! and regions; and which typing rule a verifier applies. `tileas-tileir` reads, writes, checks and prints by these rows alone.
//!
//! This is a library and no generator: `const` functions and three macros state enumerations and rows once, as Rust that can
//! be used as it stands. Generated text would say the same again.
//!
//! Versions are minor numbers of major version 13. Source: the public dialect, reader and writers of CUDA Tile IR.

macro_rules! enumeration {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$item_doc])* #[doc = concat!("`", $text, "`")] $item),* }

        impl $name {
            /// All, by number.
            pub const ALL: &'static [$name] = &[$($name::$item),*];
            /// Names, by number.
            pub const NAMES: &'static [&'static str] = &[$($text),*];

            /// The one of that number in the bytecode.
            pub fn from_number(number: u64) -> Option<$name> {
                Self::ALL.get(usize::try_from(number).ok()?).copied()
            }

            /// Name in texts.
            pub const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

enumeration! {
    /// How a result is rounded, or how a function is approximated.
    Rounding {
        NearestEven = "nearest_even", Zero = "zero", NegativeInf = "negative_inf", PositiveInf = "positive_inf",
        Approx = "approx", Full = "full", NearestIntToZero = "nearest_int_to_zero",
        /// Since 13.4.
        NearestAway = "nearest_away",
    }
}
enumeration! {
    /// What is promised of an integer operation; a broken promise is undefined behaviour.
    Overflow { None = "none", NoSignedWrap = "no_signed_wrap", NoUnsignedWrap = "no_unsigned_wrap", NoWrap = "no_wrap" }
}
enumeration! {
    /// How integers are read.
    Signedness { Unsigned = "unsigned", Signed = "signed" }
}
enumeration! {
    /// Comparison.
    Predicate {
        Equal = "equal", NotEqual = "not_equal", LessThan = "less_than", LessThanOrEqual = "less_than_or_equal",
        GreaterThan = "greater_than", GreaterThanOrEqual = "greater_than_or_equal",
    }
}
enumeration! {
    /// What a comparison with a NaN gives: true if unordered, false if ordered.
    Ordering { Unordered = "unordered", Ordered = "ordered" }
}
enumeration! {
    /// Memory order of an access.
    Semantics { Weak = "weak", Relaxed = "relaxed", Acquire = "acquire", Release = "release", AcqRel = "acq_rel" }
}
enumeration! {
    /// Who takes part in the memory order.
    Scope { TileBlock = "tl_blk", Device = "device", System = "sys" }
}
enumeration! {
    /// Atomic read-modify-write.
    RmwMode {
        And = "and", Or = "or", Xor = "xor", Add = "add", Addf = "addf", Max = "max", Min = "min", Umax = "umax",
        Umin = "umin", Xchg = "xchg",
    }
}
enumeration! {
    /// Reduction over the devices of a multicast pointer.
    Reduction {
        Add = "add", Min = "min", Max = "max", And = "and", Or = "or", Xor = "xor", Umin = "umin", Umax = "umax",
    }
}
enumeration! {
    /// What elements outside the tensor read as.
    Padding {
        Zero = "zero", NegativeZero = "neg_zero", Nan = "nan", PositiveInf = "pos_inf", NegativeInf = "neg_inf",
    }
}
enumeration! {
    /// What a pointer addresses; 13.5.
    PointerMode {
        /// Not stated.
        None = "none", Unicast = "unicast", Multicast = "multicast",
    }
}
enumeration! {
    /// Names of attributes.
    Key {
        Alignment = "alignment", Dim = "dim", FastAcc = "fast_acc", FlushToZero = "flush_to_zero", Global = "global",
        Hints = "optimization_hints", Identities = "identities", Inbounds = "inbounds", Message = "message",
        Mode = "mode", Name = "name", NumElem = "num_elem", Ordering = "ordering", Overflow = "overflow",
        Permutation = "permutation", Pred = "pred", Predicate = "predicate", PropagateNan = "propagate_nan",
        Reduction = "reduction", Reverse = "reverse", Rounding = "rounding", Saturating = "saturating",
        Scope = "memory_scope", Semantics = "memory_semantics", Signedness = "signedness",
        SignednessLhs = "signedness_lhs", SignednessRhs = "signedness_rhs", Text = "str",
        UnsignedCmp = "unsigned_cmp", Value = "value",
    }
}
enumeration! {
    /// Names of operand segments.
    Seg {
        Acc = "acc", Amount = "amount", Arg = "arg", Args = "args", Base = "base", Cmp = "cmp", Cond = "cond",
        Destination = "destination", Exponent = "exponent", IfFalse = "if_false", IfTrue = "if_true", Index = "index",
        Init = "init", Lhs = "lhs", LhsScale = "lhs_scale", Lower = "lower", Mask = "mask", Offset = "offset",
        Padding = "padding", Pointers = "pointers", Rhs = "rhs", RhsScale = "rhs_scale", Shape = "shape",
        Source = "source", Step = "step", Strides = "strides", Tile = "tile", Tiles = "tiles", Token = "token",
        Tokens = "tokens", Upper = "upper", Value = "value", Values = "values", View = "view",
    }
}

/// Kinds of attributes, each with its form in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AttrKind {
    /// A number out of a set: varint. The names by number.
    Enum(&'static [&'static str]),
    /// Varint.
    Int,
    /// One byte.
    Bool,
    /// String index.
    Str,
    /// Constant index; the type is that of the result.
    Const,
    /// Varint count, then 32 bits each.
    Ints,
    /// Varint count, then a byte each.
    Bools,
    /// Varint count, then tagged attributes.
    List,
    /// A tagged attribute.
    Tagged,
    /// A dictionary without tag: target to dictionary.
    Hints,
}

/// An attribute.
#[derive(Copy, Clone, Debug)]
pub struct AttrRow {
    /// Name.
    pub key: Key,
    /// Kind.
    pub kind: AttrKind,
    /// Bit of the flags that says whether it is there.
    pub flag: Option<u8>,
    /// First version that writes it.
    pub since: u8,
    /// What files of earlier versions mean, for enumerations. Lists are empty.
    pub default: u8,
}

/// How many values a segment holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Arity {
    /// One.
    One,
    /// One if that bit of the flags is set.
    Opt(u8),
    /// Any number. Written with a count of its own, unless the row is `counted`.
    Many,
}

/// Number of results.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Results {
    /// That many, without a count.
    Fixed(u8),
    /// A count is written.
    Counted,
    /// A count is written; before that version it is 0.
    CountedSince(u8),
}

/// What a verifier demands of types, beyond numbers of operands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Typing {
    /// Operands and result have one type, with elements of f16, bf16, f32 or f64.
    Float,
    /// The same with integer elements.
    Int,
    /// A float base, an integer exponent, the base's type.
    Powi,
    /// Two of one type of floats, `i1` of that shape.
    Cmpf,
    /// Two of one type of integers, `i1` of that shape.
    Cmpi,
    /// Numbers of one width, same shape.
    Bitcast,
    /// To a wider integer, same shape.
    Exti,
    /// To a narrower integer, same shape.
    Trunci,
    /// From float to another float, same shape.
    Ftof,
    /// From float to integer, same shape.
    Ftoi,
    /// From integer to float, same shape.
    Itof,
    /// From `i64` to pointer, same shape.
    IntToPtr,
    /// From pointer to `i64`, same shape.
    PtrToInt,
    /// From pointer to pointer, same shape.
    PtrToPtr,
    /// From one dimension of numbers to as many bytes.
    Pack,
    /// The inverse of [`Typing::Pack`].
    Unpack,
    /// Extents of 1 grow.
    Broadcast,
    /// Two tiles side by side along `dim`.
    Cat,
    /// The value fits the result.
    Constant,
    /// A block of a tile.
    Extract,
    /// A tile with a block replaced.
    Insert,
    /// One dimension of integers.
    Iota,
    /// Dimensions in another order.
    Permute,
    /// As many elements in another shape.
    Reshape,
    /// A condition for each element.
    Select,
    /// Pointers and integers of one shape.
    Offset,
    /// Matrix product of floats.
    Mmaf,
    /// Matrix product of bytes.
    Mmai,
    /// Matrix product with scales.
    MmafScaled,
    /// Combines along a dimension, which disappears.
    Reduce,
    /// Combines along a dimension, which stays.
    Scan,
    /// Two regions behind a condition.
    If,
    /// A counted loop.
    For,
    /// A loop with exits.
    Loop,
    /// Leaves a loop.
    Break,
    /// Next iteration.
    Continue,
    /// Ends a region of `if`, `reduce`, `scan`.
    Yield,
    /// Ends the function.
    Return,
    /// Three `i32` scalars.
    BlockId,
    /// Pointer and dynamic extents to tensor view.
    TensorView,
    /// Tensor view to the view of the result, which contains its type.
    View,
    /// A scalar for each dimension of a view.
    IndexSpace,
    /// A scalar for each dimension of a tensor view.
    TensorShape,
    /// Elements through pointers.
    LoadPtr,
    /// Elements through pointers.
    StorePtr,
    /// Compare and swap through pointers.
    AtomicCas,
    /// Read, modify, write through pointers.
    AtomicRmw,
    /// A tile through a view.
    LoadView,
    /// A tile through a view.
    StoreView,
    /// A tile combined with memory.
    AtomicRedView,
    /// A tile combined from all devices.
    MultimemLoad,
    /// A tile combined with or stored to all devices.
    MultimemStore,
    /// Tokens to a token.
    Tokens,
    /// The type of the operand, and a predicate that suits it.
    Assume,
    /// An `i1` tile.
    Assert,
    /// Tiles.
    Print,
    /// A scalar pointer to the elements of a global.
    GetGlobal,
    /// A scalar pointer.
    Alloca,
    /// Never in a function.
    ModuleLevel,
}

/// What becomes of an operation here.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Lowered {
    /// Nothing yet: functions with it are refused.
    No,
    /// It is translated; how, in a few words.
    Yes(&'static str),
}

/// An operation.
#[derive(Copy, Clone, Debug)]
pub struct OpRow {
    /// Which.
    pub opcode: Opcode,
    /// Name in texts.
    pub name: &'static str,
    /// First version.
    pub since: u8,
    /// Results.
    pub results: Results,
    /// First version that writes flags; `None`: there are none.
    pub flags: Option<u8>,
    /// Flags that are attributes themselves, with their bits.
    pub units: &'static [(u8, Key)],
    /// Attributes in the order of the bytes.
    pub attrs: &'static [AttrRow],
    /// Whether one count stands before all operands, in place of those of lists.
    pub counted: bool,
    /// Operands in the order of the bytes.
    pub operands: &'static [(Seg, Arity)],
    /// Regions.
    pub regions: u8,
    /// Types.
    pub typing: Typing,
    /// What becomes of it.
    pub lowered: Lowered,
}

impl OpRow {
    const fn flags(mut self, since: u8, units: &'static [(u8, Key)]) -> OpRow {
        self.flags = Some(since);
        self.units = units;
        self
    }

    const fn attrs(mut self, attrs: &'static [AttrRow]) -> OpRow {
        self.attrs = attrs;
        self
    }

    const fn args(mut self, operands: &'static [(Seg, Arity)]) -> OpRow {
        self.operands = operands;
        self
    }

    const fn counted(mut self, operands: &'static [(Seg, Arity)]) -> OpRow {
        self.counted = true;
        self.operands = operands;
        self
    }

    const fn regions(mut self, regions: u8) -> OpRow {
        self.regions = regions;
        self
    }

    /// For the table: the operation is translated, `how` in a few words.
    pub const fn lowered(mut self, how: &'static str) -> OpRow {
        self.lowered = Lowered::Yes(how);
        self
    }

    /// All bits of the flags that have a meaning.
    pub fn flag_bits(&self) -> u64 {
        let units = self.units.iter().map(|u| u.0);
        let attrs = self.attrs.iter().filter_map(|a| a.flag);
        let operands =
            self.operands.iter().filter_map(|o| if let Arity::Opt(bit) = o.1 { Some(bit) } else { None });
        units.chain(attrs).chain(operands).fold(0, |bits, bit| bits | 1 << bit)
    }
}

const fn attr(key: Key, kind: AttrKind) -> AttrRow {
    AttrRow { key, kind, flag: None, since: 1, default: 0 }
}

const fn opt(bit: u8, row: AttrRow) -> AttrRow {
    AttrRow { flag: Some(bit), ..row }
}

const fn since(version: u8, default: u8, row: AttrRow) -> AttrRow {
    AttrRow { since: version, default, ..row }
}

const ROUNDING: AttrRow = attr(Key::Rounding, AttrKind::Enum(Rounding::NAMES));
const OVERFLOW: AttrRow = attr(Key::Overflow, AttrKind::Enum(Overflow::NAMES));
const SIGNEDNESS: AttrRow = attr(Key::Signedness, AttrKind::Enum(Signedness::NAMES));
const PRED: AttrRow = attr(Key::Pred, AttrKind::Enum(Predicate::NAMES));
const SEM: AttrRow = attr(Key::Semantics, AttrKind::Enum(Semantics::NAMES));
const SCOPE: AttrRow = attr(Key::Scope, AttrKind::Enum(Scope::NAMES));
const MODE: AttrRow = attr(Key::Mode, AttrKind::Enum(RmwMode::NAMES));
const REDUCTION: AttrRow = attr(Key::Reduction, AttrKind::Enum(Reduction::NAMES));
const HINTS: AttrRow = attr(Key::Hints, AttrKind::Hints);
const INBOUNDS: AttrRow = attr(Key::Inbounds, AttrKind::Bools);
const DIM: AttrRow = attr(Key::Dim, AttrKind::Int);
const IDENTITIES: AttrRow = attr(Key::Identities, AttrKind::List);

use Arity::{Many, One, Opt};
const ONE: Results = Results::Fixed(1);
const SOURCE: &[(Seg, Arity)] = &[(Seg::Source, One)];
const BINARY: &[(Seg, Arity)] = &[(Seg::Lhs, One), (Seg::Rhs, One)];
const TERNARY: &[(Seg, Arity)] = &[(Seg::Lhs, One), (Seg::Rhs, One), (Seg::Acc, One)];
const SHIFT: &[(Seg, Arity)] = &[(Seg::Value, One), (Seg::Amount, One)];
const VALUES: &[(Seg, Arity)] = &[(Seg::Values, Many)];
const VIEW: &[(Seg, Arity)] = &[(Seg::View, One)];
const FTZ: &[(u8, Key)] = &[(0, Key::FlushToZero)];
const NAN_FTZ: &[(u8, Key)] = &[(0, Key::PropagateNan), (1, Key::FlushToZero)];

macro_rules! operations {
    ($($number:literal $variant:ident $name:literal $since:literal $results:expr, $typing:ident
        $(.$part:ident($($arg:expr),*))*;)*) => {
        /// An operation's kind. The discriminant is its number in the bytecode.
        #[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Opcode { $(#[doc = concat!("`", $name, "`")] $variant = $number),* }

        impl Opcode {
            /// All, by number.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$variant),*];
        }

        /// All operations, by number.
        pub static OPS: &[OpRow] = &[$(OpRow {
            opcode: Opcode::$variant, name: $name, since: $since, results: $results, flags: None, units: &[],
            attrs: &[], counted: false, operands: &[], regions: 0, typing: Typing::$typing, lowered: Lowered::No,
        } $(.$part($($arg),*))*),*];
    };
}

operations! {
    0 Absf "absf" 1 ONE, Float .args(SOURCE) .lowered("`absf`");
    1 Absi "absi" 1 ONE, Int .args(SOURCE) .lowered("`absi`");
    2 Addf "addf" 1 ONE, Float .flags(1, FTZ) .attrs(&[ROUNDING]) .args(BINARY) .lowered("`addf`");
    3 Addi "addi" 1 ONE, Int .attrs(&[OVERFLOW]) .args(BINARY) .lowered("`addi`");
    4 Andi "andi" 1 ONE, Int .args(BINARY) .lowered("`andi`");
    5 Assert "assert" 1 Results::Fixed(0), Assert .attrs(&[attr(Key::Message, AttrKind::Str)]) .args(&[(Seg::Cond, One)]) .lowered("`assert`");
    6 Assume "assume" 1 ONE, Assume .attrs(&[attr(Key::Predicate, AttrKind::Tagged)]) .args(&[(Seg::Value, One)]) .lowered("`assume`, of scalars");
    7 AtomicCasTko "atomic_cas_tko" 1 Results::Fixed(2), AtomicCas .flags(1, &[]) .attrs(&[SEM, SCOPE])
        .args(&[(Seg::Pointers, One), (Seg::Cmp, One), (Seg::Value, One), (Seg::Mask, Opt(0)), (Seg::Token, Opt(1))]) .lowered("`atomic_cas`");
    8 AtomicRmwTko "atomic_rmw_tko" 1 Results::Fixed(2), AtomicRmw .flags(1, &[]) .attrs(&[SEM, SCOPE, MODE])
        .args(&[(Seg::Pointers, One), (Seg::Arg, One), (Seg::Mask, Opt(0)), (Seg::Token, Opt(1))]) .lowered("`atomic_rmw`");
    9 Bitcast "bitcast" 1 ONE, Bitcast .args(SOURCE) .lowered("`bitcast`");
    10 Break "break" 1 Results::Counted, Break .counted(VALUES) .lowered("`break`");
    11 Broadcast "broadcast" 1 ONE, Broadcast .args(SOURCE) .lowered("`broadcast`, `splat`");
    12 Cat "cat" 1 ONE, Cat .attrs(&[DIM]) .args(BINARY) .lowered("`cat`");
    13 Ceil "ceil" 1 ONE, Float .args(SOURCE) .lowered("`ceil`");
    14 Cmpf "cmpf" 1 ONE, Cmpf .attrs(&[PRED, attr(Key::Ordering, AttrKind::Enum(Ordering::NAMES))]) .args(BINARY) .lowered("`cmpf`");
    15 Cmpi "cmpi" 1 ONE, Cmpi .attrs(&[PRED, SIGNEDNESS]) .args(BINARY) .lowered("`cmpi`");
    16 Constant "constant" 1 ONE, Constant .attrs(&[attr(Key::Value, AttrKind::Const)]) .lowered("`constant`");
    17 Continue "continue" 1 Results::Counted, Continue .counted(VALUES) .lowered("`continue`");
    18 Cos "cos" 1 ONE, Float .args(SOURCE) .lowered("`cos`");
    19 Cosh "cosh" 1 ONE, Float .args(SOURCE) .lowered("`cosh`");
    20 Divf "divf" 1 ONE, Float .flags(1, FTZ) .attrs(&[ROUNDING]) .args(BINARY) .lowered("`divf`");
    21 Divi "divi" 1 ONE, Int .attrs(&[SIGNEDNESS, ROUNDING]) .args(BINARY) .lowered("`divi`");
    22 Entry "entry" 1 Results::Fixed(0), ModuleLevel;
    23 Exp "exp" 1 ONE, Float .attrs(&[since(3, Rounding::Full as u8, ROUNDING)]) .args(SOURCE) .lowered("`exp`");
    24 Exp2 "exp2" 1 ONE, Float .flags(1, FTZ) .args(SOURCE) .lowered("`exp2`");
    37 Exti "exti" 1 ONE, Exti .attrs(&[SIGNEDNESS]) .args(SOURCE) .lowered("`exti`");
    38 Extract "extract" 1 Results::Counted, Extract .counted(&[(Seg::Source, One), (Seg::Index, Many)]) .lowered("`extract_slice`, or a choice of blocks");
    39 Floor "floor" 1 ONE, Float .args(SOURCE) .lowered("`floor`");
    40 Fma "fma" 1 ONE, Float .flags(1, FTZ) .attrs(&[ROUNDING]) .args(TERNARY) .lowered("`fma`");
    41 For "for" 1 Results::Counted, For .flags(2, &[(0, Key::UnsignedCmp)])
        .counted(&[(Seg::Lower, One), (Seg::Upper, One), (Seg::Step, One), (Seg::Init, Many)]) .regions(1) .lowered("`for`");
    42 Ftof "ftof" 1 ONE, Ftof .attrs(&[ROUNDING]) .args(SOURCE) .lowered("`ftof`");
    43 Ftoi "ftoi" 1 ONE, Ftoi .flags(4, &[(0, Key::Saturating)]) .attrs(&[SIGNEDNESS, ROUNDING]) .args(SOURCE) .lowered("`ftoi`");
    44 GetGlobal "get_global" 1 ONE, GetGlobal .attrs(&[attr(Key::Name, AttrKind::Str)]) .lowered("`global`");
    45 GetIndexSpaceShape "get_index_space_shape" 1 Results::Counted, IndexSpace .args(VIEW) .lowered("`divi`");
    46 GetNumTileBlocks "get_num_tile_blocks" 1 Results::Fixed(3), BlockId .lowered("`num_programs`");
    47 GetTensorShape "get_tensor_shape" 1 Results::Counted, TensorShape .args(VIEW) .lowered("numbers of the view");
    48 GetTileBlockId "get_tile_block_id" 1 Results::Fixed(3), BlockId .lowered("`program_id`");
    49 Global "global" 1 Results::Fixed(0), ModuleLevel;
    50 If "if" 1 Results::Counted, If .args(&[(Seg::Cond, One)]) .regions(2) .lowered("`if`");
    51 IntToPtr "int_to_ptr" 1 ONE, IntToPtr .args(SOURCE) .lowered("`int_to_ptr`");
    58 Iota "iota" 1 ONE, Iota .lowered("`iota`");
    59 Itof "itof" 1 ONE, Itof .attrs(&[SIGNEDNESS, ROUNDING]) .args(SOURCE) .lowered("`itof`");
    60 JoinTokens "join_tokens" 1 Results::Counted, Tokens .counted(&[(Seg::Tokens, Many)]) .lowered("program order; `may_alias`");
    61 LoadPtrTko "load_ptr_tko" 1 Results::Fixed(2), LoadPtr .flags(1, &[]) .attrs(&[SEM, opt(0, SCOPE), opt(1, HINTS)])
        .args(&[(Seg::Source, One), (Seg::Mask, Opt(2)), (Seg::Padding, Opt(3)), (Seg::Token, Opt(4))]) .lowered("`gather`");
    62 LoadViewTko "load_view_tko" 1 Results::Counted, LoadView .flags(1, &[])
        .attrs(&[SEM, opt(0, SCOPE), opt(1, HINTS), since(4, 0, INBOUNDS)])
        .args(&[(Seg::View, One), (Seg::Index, Many), (Seg::Token, Opt(2))]) .lowered("`tiled_load` or `gather`");
    63 Log "log" 1 ONE, Float .args(SOURCE) .lowered("`log`");
    64 Log2 "log2" 1 ONE, Float .args(SOURCE) .lowered("`log2`");
    65 Loop "loop" 1 Results::Counted, Loop .counted(&[(Seg::Init, Many)]) .regions(1) .lowered("`loop`");
    66 MakePartitionView "make_partition_view" 1 ONE, View .args(VIEW) .lowered("`tiled_load`, `tiled_store`");
    67 MakeTensorView "make_tensor_view" 1 Results::Counted, TensorView
        .args(&[(Seg::Base, One), (Seg::Shape, Many), (Seg::Strides, Many)]) .lowered("`make_view`");
    68 MakeToken "make_token" 1 ONE, Tokens .lowered("program order");
    69 Maxf "maxf" 1 ONE, Float .flags(1, NAN_FTZ) .args(BINARY) .lowered("`maxf`");
    70 Maxi "maxi" 1 ONE, Int .attrs(&[SIGNEDNESS]) .args(BINARY) .lowered("`maxi`");
    71 Minf "minf" 1 ONE, Float .flags(1, NAN_FTZ) .args(BINARY) .lowered("`minf`");
    72 Mini "mini" 1 ONE, Int .attrs(&[SIGNEDNESS]) .args(BINARY) .lowered("`mini`");
    73 Mmaf "mmaf" 1 ONE, Mmaf .flags(3, &[(0, Key::FastAcc)]) .args(TERNARY) .lowered("`dot`; f64 one by one");
    74 Mmai "mmai" 1 ONE, Mmai .attrs(&[attr(Key::SignednessLhs, AttrKind::Enum(Signedness::NAMES)),
        attr(Key::SignednessRhs, AttrKind::Enum(Signedness::NAMES))]) .args(TERNARY) .lowered("`dot`");
    75 Module "module" 1 Results::Fixed(0), ModuleLevel;
    76 Mulf "mulf" 1 ONE, Float .flags(1, FTZ) .attrs(&[ROUNDING]) .args(BINARY) .lowered("`mulf`");
    77 Mulhii "mulhii" 1 ONE, Int .args(BINARY) .lowered("`mulhii`");
    78 Muli "muli" 1 ONE, Int .attrs(&[OVERFLOW]) .args(BINARY) .lowered("`muli`");
    79 Negf "negf" 1 ONE, Float .args(SOURCE) .lowered("`negf`");
    80 Negi "negi" 1 ONE, Int .attrs(&[since(2, 0, OVERFLOW)]) .args(SOURCE) .lowered("`negi`");
    81 Offset "offset" 1 ONE, Offset .args(&[(Seg::Pointers, One), (Seg::Offset, One)]) .lowered("`offset`, coordinates");
    82 Ori "ori" 1 ONE, Int .args(BINARY) .lowered("`ori`");
    83 Permute "permute" 1 ONE, Permute .attrs(&[attr(Key::Permutation, AttrKind::Ints)]) .args(SOURCE) .lowered("`permute`");
    84 Pow "pow" 1 ONE, Float .args(&[(Seg::Base, One), (Seg::Exponent, One)]) .lowered("`pow`");
    85 PrintTko "print_tko" 1 Results::CountedSince(2), Print .flags(2, &[]) .attrs(&[attr(Key::Text, AttrKind::Str)])
        .args(&[(Seg::Args, Many), (Seg::Token, Opt(0))]) .lowered("`print`, one for each tile");
    86 PtrToInt "ptr_to_int" 1 ONE, PtrToInt .args(SOURCE) .lowered("`ptr_to_int`");
    87 PtrToPtr "ptr_to_ptr" 1 ONE, PtrToPtr .args(SOURCE) .lowered("`may_alias` of `int_to_ptr`");
    88 Reduce "reduce" 1 Results::Counted, Reduce .attrs(&[DIM, IDENTITIES]) .counted(&[(Seg::Tiles, Many)]) .regions(1) .lowered("`reduce`, `combine`");
    89 Remf "remf" 1 ONE, Float .args(BINARY) .lowered("`remf`");
    90 Remi "remi" 1 ONE, Int .attrs(&[SIGNEDNESS]) .args(BINARY) .lowered("`remi`");
    91 Reshape "reshape" 1 ONE, Reshape .args(SOURCE) .lowered("`reshape`, `splat`, `unsplat`");
    92 Return "return" 1 Results::Counted, Return .counted(VALUES) .lowered("`return`");
    93 Rsqrt "rsqrt" 1 ONE, Float .flags(1, FTZ) .args(SOURCE) .lowered("`rsqrt`");
    94 Scan "scan" 1 Results::Counted, Scan .attrs(&[DIM, attr(Key::Reverse, AttrKind::Bool), IDENTITIES])
        .counted(&[(Seg::Tiles, Many)]) .regions(1) .lowered("`scan`");
    95 Select "select" 1 ONE, Select .args(&[(Seg::Cond, One), (Seg::IfTrue, One), (Seg::IfFalse, One)]) .lowered("`select`");
    96 Shli "shli" 1 ONE, Int .attrs(&[OVERFLOW]) .args(SHIFT) .lowered("`shli`");
    97 Shri "shri" 1 ONE, Int .attrs(&[SIGNEDNESS]) .args(SHIFT) .lowered("`shri`");
    98 Sin "sin" 1 ONE, Float .args(SOURCE) .lowered("`sin`");
    99 Sinh "sinh" 1 ONE, Float .args(SOURCE) .lowered("`sinh`");
    100 Sqrt "sqrt" 1 ONE, Float .flags(1, FTZ) .attrs(&[ROUNDING]) .args(SOURCE) .lowered("`sqrt`");
    101 StorePtrTko "store_ptr_tko" 1 ONE, StorePtr .flags(1, &[]) .attrs(&[SEM, opt(0, SCOPE), opt(1, HINTS)])
        .args(&[(Seg::Destination, One), (Seg::Value, One), (Seg::Mask, Opt(2)), (Seg::Token, Opt(3))]) .lowered("`scatter`");
    102 StoreViewTko "store_view_tko" 1 Results::Counted, StoreView .flags(1, &[])
        .attrs(&[SEM, opt(0, SCOPE), opt(1, HINTS), since(4, 0, INBOUNDS)])
        .args(&[(Seg::Tile, One), (Seg::View, One), (Seg::Index, Many), (Seg::Token, Opt(2))]) .lowered("`tiled_store` or `scatter`");
    103 Subf "subf" 1 ONE, Float .flags(1, FTZ) .attrs(&[ROUNDING]) .args(BINARY) .lowered("`subf`");
    104 Subi "subi" 1 ONE, Int .attrs(&[OVERFLOW]) .args(BINARY) .lowered("`subi`");
    105 Tan "tan" 1 ONE, Float .args(SOURCE) .lowered("`tan`");
    106 Tanh "tanh" 1 ONE, Float .attrs(&[since(2, Rounding::Full as u8, ROUNDING)]) .args(SOURCE) .lowered("`tanh`");
    107 Trunci "trunci" 1 ONE, Trunci .attrs(&[OVERFLOW]) .args(SOURCE) .lowered("`trunci`");
    108 Xori "xori" 1 ONE, Int .args(BINARY) .lowered("`xori`");
    109 Yield "yield" 1 Results::Counted, Yield .counted(VALUES) .lowered("`yield`");
    110 Atan2 "atan2" 2 ONE, Float .args(BINARY) .lowered("`atan2`");
    111 Pack "pack" 3 ONE, Pack .args(SOURCE) .lowered("shifts");
    112 Unpack "unpack" 3 ONE, Unpack .args(SOURCE) .lowered("shifts");
    113 Alloca "alloca" 3 ONE, Alloca .flags(3, &[(0, Key::Global)])
        .attrs(&[attr(Key::NumElem, AttrKind::Int), attr(Key::Alignment, AttrKind::Int)]);
    114 MmafScaled "mmaf_scaled" 3 ONE, MmafScaled
        .args(&[(Seg::Lhs, One), (Seg::Rhs, One), (Seg::Acc, One), (Seg::LhsScale, One), (Seg::RhsScale, One)]) .lowered("`dot` of scaled bf16");
    115 MakeGatherScatterView "make_gather_scatter_view" 3 ONE, View .args(VIEW) .lowered("`gather`, `scatter`");
    116 MakeStridedView "make_strided_view" 3 ONE, View .args(VIEW) .lowered("`gather`, `scatter`");
    117 AtomicRedViewTko "atomic_red_view_tko" 3 Results::Counted, AtomicRedView .flags(3, &[])
        .attrs(&[SEM, SCOPE, MODE, since(5, 0, INBOUNDS)])
        .args(&[(Seg::View, One), (Seg::Index, Many), (Seg::Tile, One), (Seg::Token, Opt(0))]) .lowered("`atomic_rmw`");
    118 Insert "insert" 4 Results::Counted, Insert
        .counted(&[(Seg::Source, One), (Seg::Destination, One), (Seg::Index, Many)]) .lowered("`select` of blocks");
    119 GdcLaunchDependentsTko "gdc_launch_dependents_tko" 4 ONE, Tokens .counted(&[(Seg::Tokens, Many)]) .lowered("left out (W1641)");
    120 GdcWaitTko "gdc_wait_tko" 4 ONE, Tokens .counted(&[(Seg::Tokens, Many)]) .lowered("waits at the begin");
    121 Powi "powi" 4 ONE, Powi .args(&[(Seg::Base, One), (Seg::Exponent, One)]) .lowered("`powi`");
    122 MemoryFenceAliasTko "memory_fence_alias_tko" 4 ONE, Tokens .args(&[(Seg::Token, One)]) .lowered("program order");
    123 MultimemLoadReduceViewTko "multimem_load_reduce_view_tko" 5 Results::Counted, MultimemLoad .flags(5, &[])
        .attrs(&[SEM, opt(0, SCOPE), REDUCTION, INBOUNDS])
        .args(&[(Seg::View, One), (Seg::Index, Many), (Seg::Token, Opt(1))]);
    124 MultimemReduceViewTko "multimem_reduce_view_tko" 5 Results::Counted, MultimemStore .flags(5, &[])
        .attrs(&[SEM, SCOPE, REDUCTION, INBOUNDS])
        .args(&[(Seg::View, One), (Seg::Tile, One), (Seg::Index, Many), (Seg::Token, Opt(0))]);
    125 MultimemStoreViewTko "multimem_store_view_tko" 5 Results::Counted, MultimemStore .flags(5, &[])
        .attrs(&[SEM, opt(0, SCOPE), INBOUNDS])
        .args(&[(Seg::View, One), (Seg::Tile, One), (Seg::Index, Many), (Seg::Token, Opt(1))]);
}

/// One more than the highest number.
const NUMBERS: usize = 126;

/// By number, the index of its row plus 1.
static ROW_OF: [u8; NUMBERS] = {
    let mut at = [0; NUMBERS];
    let mut i = 0;
    while i < OPS.len() {
        at[OPS[i].opcode as usize] = i as u8 + 1;
        i += 1;
    }
    at
};

impl Opcode {
    /// The one of that number in the bytecode.
    pub fn from_number(number: u64) -> Option<Opcode> {
        let row = *ROW_OF.get(usize::try_from(number).ok()?)?;
        OPS.get(usize::from(row).checked_sub(1)?).map(|r| r.opcode)
    }

    /// Its row.
    pub fn row(self) -> &'static OpRow {
        &OPS[usize::from(ROW_OF[self as usize]) - 1]
    }

    /// Name in texts.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_have_the_layout_that_readers_rely_on() {
        for (i, row) in OPS.iter().enumerate() {
            assert!(i == 0 || OPS[i - 1].opcode < row.opcode, "{}", row.name);
            assert_eq!(Opcode::from_number(row.opcode as u64), Some(row.opcode));
            let lists = row.operands.iter().filter(|o| o.1 == Many).count();
            let optional = row.operands.iter().any(|o| matches!(o.1, Opt(_)));
            assert!(!row.counted || lists == 1 && !optional, "{}: what a count leaves is one list", row.name);
            let bits = row.flag_bits();
            assert!(bits < 256 && (bits + 1).is_power_of_two(), "{}: bits are used from 0 on", row.name);
            assert_eq!(row.flags.is_some(), bits != 0, "{}", row.name);
        }
        assert_eq!(OPS.len(), 108);
        assert_eq!(Opcode::from_number(25), None);
        assert_eq!(Opcode::from_number(126), None);
    }
}
