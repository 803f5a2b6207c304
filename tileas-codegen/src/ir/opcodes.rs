//! The operation table: `Opcode`, symbols and per-opcode definitions, generated from `tileas-meta/src/ops.rs`.

use super::entities::Sym;

/// How many values an operand segment holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Arity {
    /// Exactly one.
    One,
    /// None or one.
    Opt,
    /// Any number.
    Many,
}

/// How many results an op has.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Results {
    /// Exactly one.
    One,
    /// Exactly two.
    Two,
    /// None or one.
    Opt,
    /// Any number.
    Many,
}

/// Class of types a segment accepts; see the row documentation in `tileas-meta`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "documented at the rows in tileas-meta")]
pub enum TyClass {
    Any,
    Int,
    Bool,
    Scalar,
    Num,
    IntNum,
    FloatNum,
    Tile,
    View,
    Ptr,
    Memory,
    IntOrPtr,
    Desc,
    Producer,
    Consumer,
    Iter,
    Async,
    Mem,
    Stage,
}

/// Kinds of attribute values.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AttrKind {
    /// Presence alone.
    Unit,
    /// Integer.
    Int,
    /// Integer or float.
    Number,
    /// One of these names.
    Enum(&'static [&'static str]),
    /// Array of integers.
    Ints,
    /// String.
    Str,
    /// One of these names, bare or with integer arguments.
    Call(&'static [&'static str]),
    /// A function of scalars.
    Combiner,
    /// Anything.
    Any,
}

/// How result types follow from operand types.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "documented at the rows in tileas-meta")]
pub enum Rule {
    None,
    Same,
    Compare,
    Select,
    Convert,
    First,
    I32,
    Dot,
    Custom,
}

/// One operand segment.
#[derive(Copy, Clone, Debug)]
pub struct Segment {
    /// Name for docs and errors.
    pub name: &'static str,
    /// How many values.
    pub arity: Arity,
    /// Accepted types.
    pub ty: TyClass,
    /// Printed in brackets behind the segment before it.
    pub bracket: bool,
    /// Printed as `keyword(%v)`.
    pub keyword: Option<&'static str>,
}

/// One inherent attribute.
#[derive(Copy, Clone, Debug)]
pub struct AttrDef {
    /// Key.
    pub key: Sym,
    /// Kind of value.
    pub kind: AttrKind,
    /// Whether it must be there.
    pub required: bool,
}

/// A set of traits.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Traits(pub u16);

#[expect(missing_docs, reason = "documented at the rows in tileas-meta")]
impl Traits {
    pub const PURE: u16 = 1;
    pub const UNIFORM: u16 = 2;
    pub const ELEMENTWISE: u16 = 4;
    pub const ASYNC: u16 = 8;
    pub const READS_GLOBAL: u16 = 16;
    pub const WRITES_GLOBAL: u16 = 32;
    pub const TERMINATOR: u16 = 64;
    pub const SCHEDULABLE: u16 = 128;
    pub const PIPELINE: u16 = 256;
    pub const SHAPE: u16 = 512;

    /// Whether all of `bits` are set.
    #[inline]
    pub fn has(self, bits: u16) -> bool {
        self.0 & bits == bits
    }
}

/// The definition of one opcode.
#[derive(Debug)]
pub struct OpDef {
    /// Full name.
    pub name: &'static str,
    /// Operand segments in order.
    pub operands: &'static [Segment],
    /// Results.
    pub results: Results,
    /// Inherent attributes.
    pub attrs: &'static [AttrDef],
    /// Number of regions; 255 = any number.
    pub regions: u8,
    /// Traits.
    pub traits: Traits,
    /// Typing rule.
    pub rule: Rule,
    /// Slot class by name; `by-space` where it depends on the spaces moved between.
    pub class: &'static str,
    /// Semantics.
    pub doc: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/opcodes.rs"));

/// Segments of an op, at most.
const MAX_SEGMENTS: usize = 8;

/// Per op, the [`segment_key`]s of its segments; 0 behind the last.
static SEGMENT_KEYS: [[u32; MAX_SEGMENTS]; OP_DEFS.len()] = {
    let mut all = [[0; MAX_SEGMENTS]; OP_DEFS.len()];
    let mut op = 0;
    while op < OP_DEFS.len() {
        let mut n = 0;
        while n < OP_DEFS[op].operands.len() {
            all[op][n] = segment_key(OP_DEFS[op].operands[n].name);
            n += 1;
        }
        op += 1;
    }
    all
};

/// A number for a segment's name, different for all names there are: of a literal the compiler knows it, and searching
/// takes no text.
#[inline(always)]
const fn segment_key(name: &str) -> u32 {
    let name = name.as_bytes();
    let n = name.len();
    if n == 0 {
        return 0;
    }
    u32::from_le_bytes([n as u8, name[0], name[n / 2], name[n - 1]])
}

impl Opcode {
    /// The number of the segment of that name.
    #[inline(always)]
    pub fn segment(self, name: &str) -> Option<usize> {
        self.segment_by_key(self.segment_key(name))
    }

    /// What [`Opcode::segment_by_key`] knows a segment's name by.
    #[inline(always)]
    pub(crate) fn segment_key(self, name: &str) -> u32 {
        debug_assert_eq!(
            self.segment_by_key(segment_key(name)),
            self.def().operands.iter().position(|s| s.name == name),
            "{name}"
        );
        segment_key(name)
    }

    #[inline]
    pub(crate) fn segment_by_key(self, key: u32) -> Option<usize> {
        // From the last to the first, without a branch for each.
        let keys = SEGMENT_KEYS[self as usize].iter().enumerate().rev();
        let found = keys.fold(MAX_SEGMENTS, |found, (n, &k)| if k == key { n } else { found });
        (found < MAX_SEGMENTS).then_some(found)
    }

    /// The definition.
    #[inline]
    pub fn def(self) -> &'static OpDef {
        &OP_DEFS[self as usize]
    }

    /// The full name.
    #[inline]
    pub fn name(self) -> &'static str {
        self.def().name
    }

    /// The opcode of that name. Linear in the table only on a miss of the length test; parsing is the only caller.
    pub fn from_name(name: &str) -> Option<Opcode> {
        Opcode::ALL.iter().copied().find(|o| o.name() == name)
    }

    /// Whether all of these traits hold.
    #[inline]
    pub fn has(self, traits: u16) -> bool {
        self.def().traits.has(traits)
    }

    /// Ends a block.
    #[inline]
    pub fn is_terminator(self) -> bool {
        self.has(Traits::TERMINATOR)
    }

    /// Accesses single elements of a view, at coordinates that count elements and may be tiles.
    #[inline]
    pub fn is_sparse(self) -> bool {
        matches!(self, Opcode::Gather | Opcode::Scatter | Opcode::AtomicRmw | Opcode::AtomicCas)
    }

    /// Takes tiles out of registers, however they lie there: its results, if any, are scalars.
    #[inline]
    pub fn leaves_tiles(self) -> bool {
        matches!(self, Opcode::Unsplat | Opcode::Print | Opcode::Assert)
    }

    /// Takes elements of less than a byte: moves them, or makes other ones of them.
    pub fn takes_packed(self) -> bool {
        use Opcode as O;
        let moves = matches!(self, O::Select | O::Exti | O::Trunci | O::Itof | O::Ftof | O::Bitcast);
        let computes = self.has(Traits::ELEMENTWISE) && !moves;
        let other =
            matches!(self, O::Reduce | O::Combine | O::Scan | O::Iota | O::Dot | O::AsyncDot | O::WarpDot);
        !(computes || other || self.is_sparse() || self.leaves_tiles())
    }

    /// Updates memory atomically.
    #[inline]
    pub fn is_atomic(self) -> bool {
        matches!(self, Opcode::AtomicRmw | Opcode::AtomicCas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_matches_enum() {
        for (i, &op) in Opcode::ALL.iter().enumerate() {
            assert_eq!(op as usize, i);
            assert_eq!(Opcode::from_name(op.name()), Some(op));
        }
        assert_eq!(OP_DEFS.len(), Opcode::ALL.len());
        let mut names: Vec<&str> = OP_DEFS.iter().flat_map(|d| d.operands).map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        let mut keys: Vec<u32> = names.iter().map(|name| segment_key(name)).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), names.len(), "two names of segments have one key");
        assert_eq!(KNOWN_SYMBOLS[keys::TRANSPOSE_B.as_u32() as usize], "transpose_b");
    }
}
