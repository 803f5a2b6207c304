//! The operations of the tile IR: one row each.
//!
//! A row fixes an operation's name, operand segments, results, attributes, regions, traits and slot class.
//! [`crate::ops_gen`] turns the rows into the `Opcode` enum, builder methods, parser/printer tables,
//! structural verifier checks and the reference page `docs/ops.md`.
//!
//! Names follow the specification pages and, for arithmetic, conversion, math, shape and control ops, the
//! CUDA Tile IR operation set, so that a front end for that bytecode maps one to one.

/// How many values a segment or the result list holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Arity {
    /// Exactly one.
    One,
    /// None or one.
    Opt,
    /// Any number.
    Many,
}

/// What types a segment accepts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ty {
    /// Anything.
    Any,
    /// An integer (or index) scalar.
    Int,
    /// An `i1` scalar.
    Bool,
    /// Any scalar.
    Scalar,
    /// A scalar or tile.
    Num,
    /// A scalar or tile with integer elements.
    IntNum,
    /// A scalar or tile with floating-point elements.
    FloatNum,
    /// A tile.
    Tile,
    /// A view of memory.
    View,
    /// A pointer.
    Ptr,
    /// A view, or a pointer to elements counted from it.
    Memory,
    /// An integer scalar or a pointer.
    IntOrPtr,
    /// A TMA descriptor.
    Desc,
    /// The producer end of a pipeline, or ownership obtained through it.
    Producer,
    /// The consumer end of a pipeline, or ownership obtained through it.
    Consumer,
    /// A pipeline iterator.
    Iter,
    /// An asynchronous completion token.
    Async,
    /// A memory-order token.
    Mem,
    /// Integer scalar or pipeline iterator (a stage index).
    Stage,
}

/// One operand segment.
#[derive(Copy, Clone, Debug)]
pub struct Operand {
    /// Name used in docs, errors and accessors.
    pub name: &'static str,
    /// How many values.
    pub arity: Arity,
    /// Accepted types.
    pub ty: Ty,
    /// Printed in brackets right behind the segment before it.
    pub bracket: bool,
    /// Printed as `keyword(%v)`; needed where an optional segment could be confused with the next one.
    pub keyword: Option<&'static str>,
}

/// Kinds of attribute values.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AttrKind {
    /// Presence alone.
    Unit,
    /// Integer.
    Int,
    /// Float or integer number.
    Number,
    /// Identifier out of a fixed set.
    Enum(&'static [&'static str]),
    /// Array of integers.
    Ints,
    /// String.
    Str,
    /// `name(int, …)` or a bare name.
    Call(&'static [&'static str]),
    /// A function of scalars: `(%a: f32, %b: f32) { … yield %c }`.
    Combiner,
    /// Anything.
    Any,
}

/// One inherent attribute.
#[derive(Copy, Clone, Debug)]
pub struct AttrRow {
    /// Key.
    pub name: &'static str,
    /// Kind of value.
    pub kind: AttrKind,
    /// Whether the verifier insists on it.
    pub required: bool,
}

/// How result types follow from operands; also selects the hand-written part of the verifier.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    /// No rule: result types are written out.
    None,
    /// All operands and the result have one type.
    Same,
    /// Two operands of one type, result `i1` of the same shape.
    Compare,
    /// `i1` condition, two operands of one type, result of that type.
    Select,
    /// Same shape, different element type, written out.
    Convert,
    /// The result has the type of the first operand; the second one is an integer of the same shape.
    First,
    /// Result is the `i32` scalar.
    I32,
    /// Result equals the third operand's type (`dot` in value form).
    Dot,
    /// Custom checks in the verifier.
    Custom,
}

/// Facts passes ask for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Trait {
    /// No side effect; may be cloned and removed.
    Pure,
    /// Uniform over the CTA when its operands are: cloned into every agent that needs it.
    Uniform,
    /// Element-wise over its operands.
    Elementwise,
    /// Completes later than it issues.
    Async,
    /// Reads global memory.
    ReadsGlobal,
    /// Writes global memory.
    WritesGlobal,
    /// Ends a block.
    Terminator,
    /// Reserves the nine scheduling keys as inherent attributes.
    Schedulable,
    /// One of the pipeline operations.
    Pipeline,
    /// Rearranges or selects elements without arithmetic.
    Shape,
}

/// One operation.
#[derive(Copy, Clone, Debug)]
pub struct OpRow {
    /// Full name.
    pub name: &'static str,
    /// Operand segments in order.
    pub operands: &'static [Operand],
    /// Results.
    pub results: Arity,
    /// Two results instead of one (`create_pipeline`).
    pub two_results: bool,
    /// Inherent attributes.
    pub attrs: &'static [AttrRow],
    /// Number of regions; 255 = any number.
    pub regions: u8,
    /// Traits.
    pub traits: &'static [Trait],
    /// Typing rule.
    pub rule: Rule,
    /// Slot class, by the name of its row in the machine tables; `by-space` for copies.
    pub class: &'static str,
    /// Reference text: semantics and rounding.
    pub doc: &'static str,
}

const fn one(name: &'static str, ty: Ty) -> Operand {
    Operand { name, arity: Arity::One, ty, bracket: false, keyword: None }
}
const fn opt(name: &'static str, ty: Ty) -> Operand {
    Operand { name, arity: Arity::Opt, ty, bracket: false, keyword: None }
}
const fn many(name: &'static str, ty: Ty) -> Operand {
    Operand { name, arity: Arity::Many, ty, bracket: false, keyword: None }
}
const fn index(name: &'static str, ty: Ty) -> Operand {
    Operand { name, arity: Arity::Many, ty, bracket: true, keyword: None }
}
const fn keyed(name: &'static str, ty: Ty, keyword: &'static str) -> Operand {
    Operand { name, arity: Arity::Opt, ty, bracket: false, keyword: Some(keyword) }
}
const fn need(name: &'static str, kind: AttrKind) -> AttrRow {
    AttrRow { name, kind, required: true }
}
const fn may(name: &'static str, kind: AttrKind) -> AttrRow {
    AttrRow { name, kind, required: false }
}

const BASE: OpRow = OpRow {
    name: "",
    operands: &[],
    results: Arity::One,
    two_results: false,
    attrs: &[],
    regions: 0,
    traits: &[],
    rule: Rule::None,
    class: "Uniform",
    doc: "",
};

use AttrKind::{Any, Call, Enum, Int, Ints, Number, Str, Unit};
use Trait::{
    Async, Elementwise, Pipeline, Pure, ReadsGlobal, Schedulable, Shape, Terminator, Uniform, WritesGlobal,
};

const EW: &[Trait] = &[Pure, Uniform, Elementwise, Schedulable];
const EWS: &[Trait] = &[Pure, Uniform, Shape, Schedulable];

const fn binary(name: &'static str, ty: Ty, class: &'static str, doc: &'static str) -> OpRow {
    const FLOAT: &[Operand] = &[one("lhs", Ty::FloatNum), one("rhs", Ty::FloatNum)];
    const INT: &[Operand] = &[one("lhs", Ty::IntNum), one("rhs", Ty::IntNum)];
    let operands = if matches!(ty, Ty::FloatNum) { FLOAT } else { INT };
    OpRow { name, operands, traits: EW, rule: Rule::Same, class, doc, ..BASE }
}
const fn unary(name: &'static str, ty: Ty, class: &'static str, doc: &'static str) -> OpRow {
    const FLOAT: &[Operand] = &[one("source", Ty::FloatNum)];
    const INT: &[Operand] = &[one("source", Ty::IntNum)];
    let operands = if matches!(ty, Ty::FloatNum) { FLOAT } else { INT };
    OpRow { name, operands, traits: EW, rule: Rule::Same, class, doc, ..BASE }
}
const SIGN: AttrRow = may("unsigned", Unit);
/// A promise about the result of an integer operation; no code depends on it.
const OVERFLOW: &[AttrRow] =
    &[may("overflow", Enum(&["none", "no_signed_wrap", "no_unsigned_wrap", "no_wrap"]))];
const QUOTIENTS: &[&str] = &["zero", "negative_inf", "positive_inf"];
/// Roundings of f32 arithmetic that is exact but for them.
const DIRECTED: &[&str] = &["nearest_even", "zero", "negative_inf", "positive_inf"];
const DIRECTED_OR_APPROX: &[&str] = &["nearest_even", "zero", "negative_inf", "positive_inf", "approx"];
const DIRECTED_OR_FAST: &[&str] = &["nearest_even", "zero", "negative_inf", "positive_inf", "approx", "full"];
const FAST: &[&str] = &["approx", "full"];
const FTZ: AttrRow = may("ftz", Unit);
const ARITHMETIC: &[AttrRow] = &[may("rounding", Enum(DIRECTED)), FTZ];
const APPROX: &[AttrRow] = &[may("approx", Unit)];
/// Not through the tensor memory accelerator.
const NO_TMA: AttrRow = may("no_tma", Unit);
const SEMANTICS: &[&str] = &["weak", "relaxed", "acquire", "release"];
const SCOPES: &[&str] = &["cta", "cluster", "gpu", "sys"];
const SWIZZLES: &[&str] = &["none", "b32", "b64", "b128"];
const ATOMIC_SEMANTICS: &[&str] = &["relaxed", "acquire", "release", "acq_rel"];
const ATOMIC_MODES: &[&str] = &["addi", "addf", "maxi", "mini", "andi", "ori", "xori", "exch"];
const REDUCE_MODES: &[&str] = &["add", "max", "min"];
const PREDICATES: &[&str] = &["eq", "ne", "lt", "le", "gt", "ge"];

/// Keys of the nine scheduling attributes, in the order of the specification's table; `true` marks unit keys.
pub const SCHEDULE_KEYS: &[(&str, bool)] = &[
    ("tileas.schedule.constraint.gid", false),
    ("tileas.schedule.constraint.leader_gid", false),
    ("tileas.schedule.constraint.max_depth", false),
    ("tileas.schedule.constraint.force_serial_execution", true),
    ("tileas.preferred_atom_size", false),
    ("tileas.max_num_slices_for_non_reduce_axis", false),
    ("tileas.max_num_of_recomputations", false),
    ("tileas.enable_defusion_if_fusion_extending_liveness", true),
    ("tileas.recomputable", true),
];

/// All operations, grouped as in `docs/ops.md`.
pub const OPS: &[OpRow] = &[
    // -- constants and program structure
    OpRow {
        name: "constant",
        attrs: &[need("value", Number)],
        traits: EWS,
        class: "Uniform",
        doc: "A scalar, or a tile with every element equal to `value`. Floats round to nearest even into the element type.",
        ..BASE
    },
    OpRow {
        name: "program_id",
        attrs: &[need("axis", Int)],
        traits: &[Pure, Uniform],
        rule: Rule::I32,
        doc: "Index of this CTA along `axis` of the grid.",
        ..BASE
    },
    OpRow {
        name: "num_programs",
        attrs: &[need("axis", Int)],
        traits: &[Pure, Uniform],
        rule: Rule::I32,
        doc: "Number of CTAs along `axis` of the grid.",
        ..BASE
    },
    OpRow {
        name: "dim",
        operands: &[one("view", Ty::View)],
        attrs: &[need("axis", Int)],
        traits: &[Pure, Uniform],
        rule: Rule::I32,
        doc: "Extent of `view` along `axis`, in elements.",
        ..BASE
    },
    OpRow {
        name: "tile_order",
        operands: &[one("index", Ty::Int), one("rows", Ty::Int), one("columns", Ty::Int)],
        attrs: &[need("order", Call(&["rows", "grouped", "hilbert"]))],
        traits: &[Pure, Uniform],
        rule: Rule::Same,
        doc: "Which tile of a result of `rows` × `columns` tiles comes at place `index` (from 0 to `rows` · `columns` - 1): its row-major number, `row · columns + column`. CTAs with neighbouring indices run at about the same time, and what they both read is read once from memory. `rows`: row by row, the index itself. `grouped(n)`, n up to 65536: bands of n rows (the last may have fewer), each column by column. `hilbert(n)`, n a power of two from 2 to 64: bands of n rows in squares of n × n, each along Hilbert's curve from its first column to its last; what is left at the edges column by column. `rows` · `columns` · n must fit the type.",
        ..BASE
    },
    OpRow {
        name: "assume",
        operands: &[one("source", Ty::IntOrPtr)],
        attrs: &[may("div_by", Int), may("min", Int), may("max", Int)],
        traits: &[Pure, Uniform],
        rule: Rule::Same,
        doc: "The source, of which is promised that `div_by`, a power of two, divides it (of a pointer: the address in bytes), and that it is at least `min` and at most `max`, signed. Code counts on it; of kernel parameters the launch metadata ask for it (`requires`).",
        ..BASE
    },
    OpRow {
        name: "offset",
        operands: &[one("pointer", Ty::Ptr), one("offset", Ty::Int)],
        traits: &[Pure, Uniform],
        rule: Rule::First,
        doc: "The pointer moved on by so many elements (signed; of 4 bits an even number).",
        ..BASE
    },
    OpRow {
        name: "ptr_to_int",
        operands: &[one("pointer", Ty::Ptr)],
        traits: &[Pure, Uniform],
        rule: Rule::None,
        doc: "The address as a 64-bit integer; the counterpart of `int_to_ptr`.",
        ..BASE
    },
    OpRow {
        name: "may_alias",
        operands: &[one("pointer", Ty::Ptr), one("other", Ty::Ptr)],
        traits: &[Pure, Uniform],
        rule: Rule::Custom,
        doc: "The pointer, which may lead to what the other one leads to: accesses through both keep their order. Without it memory behind different parameters is taken to be apart.",
        ..BASE
    },
    OpRow {
        name: "int_to_ptr",
        operands: &[one("source", Ty::Int)],
        traits: &[Pure, Uniform],
        rule: Rule::Custom,
        doc: "The pointer to global memory whose address a 64-bit integer is, as one that was loaded from a list of arrays. What it leads to is taken to be apart from what parameters lead to, unless `may_alias` says otherwise; pointers from integers may lead to the same. The interpreters know no addresses.",
        ..BASE
    },
    OpRow {
        name: "global",
        attrs: &[need("name", Str), may("values", Any), may("size", Int), may("align", Int)],
        traits: &[Pure, Uniform],
        rule: Rule::Custom,
        doc: "A pointer to a variable in global memory that belongs to the kernel: `global <{name = \"count\", values = [7]}> : ptr<i32, gmem>`. It has `size` elements (default: as many as `values`, up to 256 MiB), which are `values`, then zeros, when the program is loaded; what kernels write stays until it is unloaded. All CTAs share it, and all kernels of one PTX module; the host finds it by its name: letters, digits and `_`, a letter first, and no kernel is called so. Elements have whole bytes. `tileas run` begins each run with the initial values. Its address is a multiple of `align` bytes, a power of two up to 512 (default 16). Operations of the same name say the same. What it leads to is taken to be apart from what parameters lead to, unless `may_alias` says otherwise.",
        ..BASE
    },
    OpRow {
        name: "make_view",
        operands: &[one("pointer", Ty::Ptr), index("extents", Ty::Int), index("strides", Ty::Int)],
        traits: &[Pure, Uniform],
        rule: Rule::Custom,
        doc: "A view of the memory behind a pointer: `make_view %p[%m, %n][%ld] : view<gmem, ?x?xf16>`. An extent for each dimension, which is what the type says where it says it, and a stride, in elements, for each but the innermost; none is 2^31 or more, or negative. Views of one pointer are taken to overlap, those of different parameters are not. Addresses that are parameters must be multiples of 16 bytes; of one that was loaded, or moved on (`offset`), by more than what is known to divide it (`assume`), code looks whether it is before it uses vectors. Where all operands follow from kernel parameters by sums, differences, products and quotients that round up or down, the host can make tensor maps of the view.",
        ..BASE
    },
    // -- integer arithmetic
    OpRow {
        attrs: OVERFLOW,
        ..binary(
            "addi",
            Ty::IntNum,
            "IntAlu",
            "Sum, wrapping. `overflow` promises that it does not wrap (signed, unsigned, or neither); no code depends on that.",
        )
    },
    OpRow {
        attrs: OVERFLOW,
        ..binary("subi", Ty::IntNum, "IntAlu", "Difference, wrapping; `overflow` as in `addi`.")
    },
    OpRow {
        attrs: OVERFLOW,
        ..binary("muli", Ty::IntNum, "FmaHeavy", "Product, wrapping; `overflow` as in `addi`.")
    },
    binary(
        "mulhii",
        Ty::IntNum,
        "FmaHeavy",
        "Upper half of the product of twice the width; both factors unsigned. Not for i1.",
    ),
    OpRow {
        attrs: &[SIGN, may("rounding", Enum(QUOTIENTS))],
        ..binary(
            "divi",
            Ty::IntNum,
            "FmaHeavy",
            "Quotient, rounded towards `rounding` (default `zero`: truncated); signed unless `unsigned`, which excludes `negative_inf`. \
             Division by zero is undefined, and so is a signed quotient that the type does not have.",
        )
    },
    OpRow {
        attrs: &[SIGN],
        ..binary(
            "remi",
            Ty::IntNum,
            "FmaHeavy",
            "Remainder of the truncated division; signed unless `unsigned`.",
        )
    },
    OpRow {
        attrs: &[SIGN],
        ..binary("maxi", Ty::IntNum, "MinMax", "Larger value; signed unless `unsigned`.")
    },
    OpRow {
        attrs: &[SIGN],
        ..binary("mini", Ty::IntNum, "MinMax", "Smaller value; signed unless `unsigned`.")
    },
    binary("andi", Ty::IntNum, "IntAlu", "Bitwise and."),
    binary("ori", Ty::IntNum, "IntAlu", "Bitwise or."),
    binary("xori", Ty::IntNum, "IntAlu", "Bitwise exclusive or."),
    OpRow {
        attrs: OVERFLOW,
        ..binary(
            "shli",
            Ty::IntNum,
            "IntAlu",
            "Left shift; amounts of the width or more give 0; `overflow` as in `addi`.",
        )
    },
    OpRow {
        attrs: &[SIGN],
        ..binary("shri", Ty::IntNum, "IntAlu", "Right shift; arithmetic unless `unsigned`.")
    },
    OpRow {
        attrs: OVERFLOW,
        ..unary("negi", Ty::IntNum, "IntAlu", "Two's complement negation; `overflow` as in `addi`.")
    },
    unary("popci", Ty::IntNum, "IntAlu", "Number of bits that are 1."),
    unary(
        "absi",
        Ty::IntNum,
        "IntAlu",
        "Absolute value of a signed integer, as an unsigned one: the least integer stays as it is. Not for i1.",
    ),
    OpRow {
        name: "cmpi",
        operands: &[one("lhs", Ty::IntNum), one("rhs", Ty::IntNum)],
        attrs: &[need("predicate", Enum(PREDICATES)), SIGN],
        traits: EW,
        rule: Rule::Compare,
        class: "IntAlu",
        doc: "Integer comparison; signed unless `unsigned`.",
        ..BASE
    },
    // -- floating-point arithmetic and math
    OpRow {
        attrs: ARITHMETIC,
        ..binary(
            "addf",
            Ty::FloatNum,
            "FpAlu",
            "Sum, rounded to nearest even. `rounding` (f32 only): `nearest_even`, `zero`, `negative_inf`, `positive_inf`. `ftz` (f32 only): \
             subnormal operands and results become zeros of the same sign.",
        )
    },
    OpRow {
        attrs: ARITHMETIC,
        ..binary(
            "subf",
            Ty::FloatNum,
            "FpAlu",
            "Difference, rounded to nearest even; `rounding` and `ftz` as in `addf`.",
        )
    },
    OpRow {
        attrs: ARITHMETIC,
        ..binary(
            "mulf",
            Ty::FloatNum,
            "FpAlu",
            "Product, rounded to nearest even; `rounding` and `ftz` as in `addf`.",
        )
    },
    OpRow {
        attrs: &[may("rounding", Enum(DIRECTED_OR_FAST)), FTZ],
        ..binary(
            "divf",
            Ty::FloatNum,
            "Transcendental",
            "Quotient, rounded to nearest even (`div.rn`); `rounding` and `ftz` as in `addf`. Besides (f32 only): `full` (`div.full`, 2 ulp), \
             and `approx` (`div.approx`, 2 ulp for divisors of magnitude 2^-126 to 2^126; beyond 2^126 the quotient is 0 or NaN).",
        )
    },
    OpRow {
        name: "remf",
        operands: &[one("lhs", Ty::FloatNum), one("rhs", Ty::FloatNum)],
        traits: EW,
        rule: Rule::Same,
        class: "Transcendental",
        doc: "Remainder of the truncated quotient, exact, with the sign of `lhs`, as `fmod` in C: NaN for an infinite `lhs` or a \
              zero `rhs`, `lhs` for an infinite `rhs`. The code holds several 64-bit integer divisions, in f64 some 450 instructions.",
        ..BASE
    },
    OpRow {
        attrs: &[may("propagate_nan", Unit), FTZ],
        ..binary(
            "maxf",
            Ty::FloatNum,
            "MinMax",
            "Larger value; a NaN operand loses unless `propagate_nan`; -0 is below 0; `ftz` as in `addf`.",
        )
    },
    OpRow {
        attrs: &[may("propagate_nan", Unit), FTZ],
        ..binary(
            "minf",
            Ty::FloatNum,
            "MinMax",
            "Smaller value; a NaN operand loses unless `propagate_nan`; -0 is below 0; `ftz` as in `addf`.",
        )
    },
    OpRow {
        name: "fma",
        operands: &[one("a", Ty::FloatNum), one("b", Ty::FloatNum), one("c", Ty::FloatNum)],
        attrs: ARITHMETIC,
        traits: EW,
        rule: Rule::Same,
        class: "FpAlu",
        doc: "a·b + c with one rounding to nearest even; `rounding` and `ftz` as in `addf`.",
        ..BASE
    },
    unary("negf", Ty::FloatNum, "FpAlu", "Sign flip, exact."),
    unary("absf", Ty::FloatNum, "FpAlu", "Absolute value, exact."),
    unary(
        "floor",
        Ty::FloatNum,
        "Cvt",
        "Greatest integer not above the operand, exact; -0 stays, infinities and NaN too.",
    ),
    unary(
        "ceil",
        Ty::FloatNum,
        "Cvt",
        "Least integer not below the operand, exact; (-1, 0) gives -0; infinities and NaN stay.",
    ),
    unary(
        "roundeven",
        Ty::FloatNum,
        "Cvt",
        "Nearest integer, of two the even one, exact; [-0.5, 0) gives -0; infinities and NaN stay.",
    ),
    OpRow {
        attrs: &[may("rounding", Enum(FAST))],
        ..unary(
            "exp",
            Ty::FloatNum,
            "Transcendental",
            "e^x as 2^(x·log2 e): product rounded to nearest, then `ex2.approx` (2 ulp); 2 ulp in f64. `rounding`: `full` is the default; `approx` (not f64) \
             takes `ex2.approx.ftz`, which makes zeros of subnormal results.",
        )
    },
    OpRow {
        attrs: &[FTZ],
        ..unary(
            "exp2",
            Ty::FloatNum,
            "Transcendental",
            "2^x by `ex2.approx` (2 ulp); 2 ulp in f64; `ftz` as in `addf`.",
        )
    },
    unary(
        "log",
        Ty::FloatNum,
        "Transcendental",
        "Natural logarithm as `lg2.approx` times ln 2; 2 ulp in f64.",
    ),
    unary("log2", Ty::FloatNum, "Transcendental", "Binary logarithm by `lg2.approx`; 2 ulp in f64."),
    OpRow {
        attrs: &[may("rounding", Enum(DIRECTED_OR_APPROX)), FTZ],
        ..unary(
            "sqrt",
            Ty::FloatNum,
            "Transcendental",
            "Square root, rounded to nearest even (`sqrt.rn`); `rounding` and `ftz` as in `addf`, and `approx` (f32 only: `sqrt.approx`, relative error 2^-23).",
        )
    },
    OpRow {
        attrs: &[FTZ],
        ..unary(
            "rsqrt",
            Ty::FloatNum,
            "Transcendental",
            "Reciprocal square root by `rsqrt.approx`; 2 ulp in f64; `ftz` as in `addf`.",
        )
    },
    OpRow {
        attrs: APPROX,
        ..unary(
            "sin",
            Ty::FloatNum,
            "Transcendental",
            "Sine of an angle in radians: 2 ulp in f32 and f64 for every finite operand, however large; NaN for infinities. `approx`: `sin.approx`, \
             absolute error 2^-20.5 between -2π and 2π, 2^-14.7 up to 100π, nothing promised beyond.",
        )
    },
    OpRow {
        attrs: APPROX,
        ..unary(
            "cos",
            Ty::FloatNum,
            "Transcendental",
            "Cosine of an angle in radians: 2 ulp in f32 and f64 for every finite operand, however large; NaN for infinities. `approx`: `cos.approx`, \
             with the errors of `sin`.",
        )
    },
    OpRow {
        attrs: APPROX,
        ..unary(
            "tan",
            Ty::FloatNum,
            "Transcendental",
            "Tangent of an angle in radians: 4 ulp in f32 and f64 for every finite operand, however large; NaN for infinities. `approx`: the quotient \
             of `sin.approx` and `cos.approx` by `div.approx`.",
        )
    },
    OpRow {
        attrs: APPROX,
        ..unary(
            "sinh",
            Ty::FloatNum,
            "Transcendental",
            "Hyperbolic sine: 2 ulp in f32 and f64. `approx`: (2^t - 2^-t) / 2 with t = x·log2 e by `ex2.approx`; the absolute error near 0 is 2^-22.",
        )
    },
    OpRow {
        attrs: APPROX,
        ..unary(
            "cosh",
            Ty::FloatNum,
            "Transcendental",
            "Hyperbolic cosine: 2 ulp in f32 and f64. `approx`: (2^t + 2^-t) / 2 with t = x·log2 e by `ex2.approx`.",
        )
    },
    OpRow {
        attrs: &[may("rounding", Enum(FAST))],
        ..unary(
            "tanh",
            Ty::FloatNum,
            "Transcendental",
            "Hyperbolic tangent. `rounding`: `full`, the default, is good to 2 ulp in f32 and f64; `approx` is `tanh.approx`, relative error 2^-11.",
        )
    },
    OpRow {
        attrs: APPROX,
        ..binary(
            "pow",
            Ty::FloatNum,
            "Transcendental",
            "`lhs` to the power of `rhs`: 2 ulp in f32 and f64; zeros, infinities, NaN and negative bases as `pow` in C \
             (`pow(x, 0)` and `pow(1, y)` are 1; a negative base needs an integer exponent). `approx`: 2^(y·log2 x) by `lg2.approx` and \
             `ex2.approx`: NaN for negative bases, and relative errors that grow with |y·log2 x|.",
        )
    },
    OpRow {
        name: "powi",
        operands: &[one("base", Ty::FloatNum), one("exponent", Ty::IntNum)],
        attrs: APPROX,
        traits: EW,
        rule: Rule::First,
        class: "Transcendental",
        doc: "`base` to the power of a signed integer: 2 ulp in f32 and f64; `powi(x, 0)` is 1 for every x, NaN included. `approx`: as `pow`, \
              but of |base|, with the sign that the exponent's parity gives. Not for exponents of type i1.",
        ..BASE
    },
    binary(
        "atan2",
        Ty::FloatNum,
        "Transcendental",
        "Angle of the point (x = `rhs`, y = `lhs`) in -π to π: 2 ulp in f32 and f64; zeros, infinities and NaN as `atan2` in C.",
    ),
    unary(
        "erf",
        Ty::FloatNum,
        "Transcendental",
        "Error function 2/√π ∫ e^(-t²) dt from 0 to x: 2 ulp in f32 and f64.",
    ),
    OpRow {
        name: "cmpf",
        operands: &[one("lhs", Ty::FloatNum), one("rhs", Ty::FloatNum)],
        attrs: &[need("predicate", Enum(PREDICATES)), may("unordered", Unit)],
        traits: EW,
        rule: Rule::Compare,
        class: "IntAlu",
        doc: "Ordered comparison: false with a NaN operand, except `ne`, which is then true. `unordered`: true with a NaN operand.",
        ..BASE
    },
    OpRow {
        name: "select",
        operands: &[one("condition", Ty::Num), one("if_true", Ty::Num), one("if_false", Ty::Num)],
        traits: EW,
        rule: Rule::Select,
        class: "IntAlu",
        doc: "Element-wise choice by an `i1` condition; a scalar one chooses for all elements.",
        ..BASE
    },
    // -- conversions
    OpRow {
        name: "ftof",
        operands: &[one("source", Ty::FloatNum)],
        traits: EW,
        rule: Rule::Convert,
        class: "Cvt",
        doc: "Float to float, rounded to nearest even; overflow gives infinity, in e4m3, e5m2 and e2m1 the largest finite number; NaN gives 6 in e2m1. To ue8m0, which has powers of two and no sign: the magnitude rounded up, 2^-127 for 0, 2^127 for infinity.",
        ..BASE
    },
    OpRow {
        name: "itof",
        operands: &[one("source", Ty::IntNum)],
        attrs: &[SIGN],
        traits: EW,
        rule: Rule::Convert,
        class: "Cvt",
        doc: "Integer to float, rounded to nearest even; signed unless `unsigned`.",
        ..BASE
    },
    OpRow {
        name: "ftoi",
        operands: &[one("source", Ty::FloatNum)],
        attrs: &[SIGN],
        traits: EW,
        rule: Rule::Convert,
        class: "Cvt",
        doc: "Float to integer, truncated and saturated; NaN gives 0.",
        ..BASE
    },
    OpRow {
        name: "exti",
        operands: &[one("source", Ty::IntNum)],
        attrs: &[SIGN],
        traits: EW,
        rule: Rule::Convert,
        class: "Cvt",
        doc: "Widens an integer; sign-extended unless `unsigned`.",
        ..BASE
    },
    OpRow {
        name: "trunci",
        operands: &[one("source", Ty::IntNum)],
        attrs: OVERFLOW,
        traits: EW,
        rule: Rule::Convert,
        class: "Cvt",
        doc: "Keeps the low bits of an integer; `overflow` as in `addi`.",
        ..BASE
    },
    OpRow {
        name: "bitcast",
        operands: &[one("source", Ty::Num)],
        traits: EW,
        rule: Rule::Convert,
        class: "IntAlu",
        doc: "The same bits as an element type of the same width. The bits of a NaN that came from \
              memory or from an integer are kept, but for f16 and bf16 scalars and what is splat from them; those of a NaN that arithmetic made are not specified.",
        ..BASE
    },
    // -- shape
    OpRow {
        name: "splat",
        operands: &[one("source", Ty::Scalar)],
        traits: EWS,
        rule: Rule::Custom,
        class: "Uniform",
        doc: "A tile with every element equal to a scalar.",
        ..BASE
    },
    OpRow {
        name: "unsplat",
        operands: &[one("source", Ty::Tile)],
        traits: &[Pure, Shape, Schedulable],
        rule: Rule::Custom,
        class: "Layout",
        doc: "The only element of a tile that has one, as a scalar: what is left of a tile after reductions can be a bound, a coordinate, a condition. Every agent may use it, as a scalar that is loaded.",
        ..BASE
    },
    OpRow {
        name: "broadcast",
        operands: &[one("source", Ty::Tile)],
        traits: EWS,
        rule: Rule::Custom,
        class: "Layout",
        doc: "Repeats along dimensions of extent 1; rank is kept.",
        ..BASE
    },
    OpRow {
        name: "reshape",
        operands: &[one("source", Ty::Tile)],
        traits: EWS,
        rule: Rule::Custom,
        class: "Layout",
        doc: "Same elements in row-major order, another shape.",
        ..BASE
    },
    OpRow {
        name: "permute",
        operands: &[one("source", Ty::Tile)],
        attrs: &[need("permutation", Ints)],
        traits: EWS,
        rule: Rule::Custom,
        class: "Layout",
        doc: "Axes in another order: axis i of the result is axis `permutation[i]` of the source.",
        ..BASE
    },
    OpRow {
        name: "cat",
        operands: &[one("lhs", Ty::Tile), one("rhs", Ty::Tile)],
        attrs: &[need("axis", Int)],
        traits: EWS,
        rule: Rule::Custom,
        class: "Layout",
        doc: "Two tiles of one type behind each other along `axis`, of which the result has twice as many elements.",
        ..BASE
    },
    OpRow {
        name: "iota",
        traits: EWS,
        rule: Rule::Custom,
        class: "Uniform",
        doc: "0, 1, 2, … along the only dimension. Code is generated for integers of 8 to 64 bits.",
        ..BASE
    },
    OpRow {
        name: "extract_slice",
        operands: &[one("source", Ty::Tile), keyed("number", Ty::Int, "at")],
        attrs: &[need("offsets", Ints), need("sizes", Ints)],
        traits: EWS,
        rule: Rule::Custom,
        class: "Layout",
        doc: "The sub-tile at static `offsets` (elements) of extent `sizes`. `at(%k)`: the last offset grows by `%k` times the last extent; for placed tiles in shared or tensor memory, and in loops over slices (`slices`, written by the compiler) for any, where `%k` is the loop's number: registers have no addresses, so such loops are written out. Kernels in value form have no use for it. A part that leaves the tile is undefined. Code is generated for parts of accumulators along their columns, for parts of operands as they are loaded, and for parts of register tiles whose elements each thread has already: columns where threads hold whole rows (chains with a `reduce` or a `dot`), there also runs of 128 rows; else runs of elements in row-major order whose length and start are multiples of 16 bytes per thread (512 elements of f32 with 128 threads).",
        ..BASE
    },
    OpRow {
        name: "reduce",
        operands: &[one("source", Ty::Tile)],
        attrs: &[need("mode", Enum(REDUCE_MODES)), need("axis", Int), SIGN],
        traits: &[Pure, Schedulable],
        rule: Rule::Custom,
        class: "Reduce",
        doc: "Combines the elements along `axis`, which the result lacks. `add` of integers wraps; floats are summed in f32 (f64 in f64), in an order that is not specified, and the sum is rounded to nearest even into the element type. `max` and `min` as `maxf`, `maxi`, …: a NaN loses, integers are signed unless `unsigned`. Code is generated for f64, f32, f16, bf16 and integers of 8 to 64 bits. What is left of a vector is a tile without extents, `tile<f32>`, which `reshape` makes a `tile<1xf32>` of, `unsplat` an `f32`.",
        ..BASE
    },
    OpRow {
        name: "combine",
        operands: &[many("sources", Ty::Tile)],
        results: Arity::Many,
        attrs: &[need("axis", Int), need("by", AttrKind::Combiner)],
        traits: &[Pure, Schedulable],
        rule: Rule::Custom,
        class: "Reduce",
        doc: "Combines the elements of one or several tiles of one shape along `axis`, which the results lack, by a function that yields one element of each tile from two of each: `by = (%a: f32, %i: i32, %b: f32, %j: i32) { … yield %c, %k }` for two tiles. It is made of element-wise ops on scalars, sees its parameters alone, and must be associative and commutative; the order is not specified. Elements are those of `reduce`, and i1; each application rounds as its ops do.",
        ..BASE
    },
    OpRow {
        name: "scan",
        operands: &[many("sources", Ty::Tile)],
        results: Arity::Many,
        attrs: &[need("axis", Int), need("by", AttrKind::Combiner), may("reverse", Unit)],
        traits: &[Pure, Schedulable],
        rule: Rule::Custom,
        class: "Reduce",
        doc: "Combines each element with all before it along `axis` (`reverse`: behind it), by a function as in `combine`: its first parameters are what comes before, or with `reverse` behind. It must be associative.",
        ..BASE
    },
    OpRow {
        name: "convert_layout",
        operands: &[one("source", Ty::Tile)],
        traits: &[Pure, Shape, Schedulable],
        rule: Rule::Custom,
        class: "ConvertLayout",
        doc: "The same tile in another register layout.",
        ..BASE
    },
    // -- memory
    OpRow {
        name: "tiled_load",
        operands: &[one("view", Ty::View), index("coords", Ty::Int)],
        attrs: &[
            may("padding", Number),
            may("mem_semantic", Enum(SEMANTICS)),
            may("mem_scope", Enum(SCOPES)),
            NO_TMA,
        ],
        traits: &[ReadsGlobal, Schedulable],
        rule: Rule::Custom,
        class: "GlobalLoad",
        doc: "Loads the tile at tile coordinates (coordinate × extent = element); a scalar result is the one element there, of a type that scalars have (no 8-bit floats, nothing of 4 bits: a tile of one element takes these). Out of bounds elements read as `padding` (default 0). `mem_semantic` is `weak` (default), `relaxed` or `acquire`; all but `weak` come with a `mem_scope`. What a tile acquires is what the writers of its elements released, for all that the CTA does behind it. With `no_tma` the load is not made one through the tensor memory accelerator, so nothing is asked of the view's strides.",
        ..BASE
    },
    OpRow {
        name: "tiled_store",
        operands: &[one("value", Ty::Tile), one("view", Ty::View), index("coords", Ty::Int)],
        results: Arity::Many,
        attrs: &[may("mem_semantic", Enum(SEMANTICS)), may("mem_scope", Enum(SCOPES)), NO_TMA],
        traits: &[WritesGlobal, Schedulable],
        rule: Rule::Custom,
        class: "GlobalStore",
        doc: "Stores a tile at tile coordinates; out of bounds elements are dropped. `mem_semantic` is `weak` (default), `relaxed` or `release`; all but `weak` come with a `mem_scope`. Who acquires an element that was released finds all that the CTA did before. `no_tma` as in `tiled_load`.",
        ..BASE
    },
    OpRow {
        name: "gather",
        operands: &[one("view", Ty::Memory), index("coords", Ty::IntNum), keyed("mask", Ty::Num, "mask")],
        attrs: &[
            may("padding", Number),
            may("mem_semantic", Enum(SEMANTICS)),
            may("mem_scope", Enum(SCOPES)),
        ],
        traits: &[ReadsGlobal, Schedulable],
        rule: Rule::Custom,
        class: "GlobalLoad",
        doc: "Loads a tile of single elements, or a scalar. There is a coordinate, in elements, for each dimension of `view`: a scalar, or a tile of the result's rank whose extents are the result's or 1, where it repeats. Elements that are out of bounds or whose `mask` (a tile of i1, likewise) is false read as `padding` (default 0), and are not accessed. A mask stands behind a comma: `gather %v[%i, %j], mask(%m)`. Runs along the last axis whose last coordinates are known to count up by one from a multiple of their length, the others and the mask staying the same, are loaded as vectors. In place of a view there may be a pointer, with one coordinate that counts elements from it (signed) and no bounds; vectors are then as long as what is known to divide the address (`assume`). `mem_semantic` and `mem_scope` as in `tiled_load`.",
        ..BASE
    },
    OpRow {
        name: "scatter",
        operands: &[
            one("value", Ty::Tile),
            one("view", Ty::Memory),
            index("coords", Ty::IntNum),
            keyed("mask", Ty::Num, "mask"),
        ],
        results: Arity::Many,
        attrs: &[may("mem_semantic", Enum(SEMANTICS)), may("mem_scope", Enum(SCOPES))],
        traits: &[WritesGlobal, Schedulable],
        rule: Rule::Custom,
        class: "GlobalStore",
        doc: "Stores the elements of a tile where coordinates say, which are as in `gather`. What is out of bounds or masked is dropped. No two elements may have the same coordinates: that is a race, as between CTAs (`atomic_rmw` with `exch` stores one of them). `mem_semantic` and `mem_scope` as in `tiled_store`.",
        ..BASE
    },
    OpRow {
        name: "print",
        operands: &[many("values", Ty::Num)],
        results: Arity::Many,
        attrs: &[need("format", Str)],
        traits: &[Schedulable],
        rule: Rule::Custom,
        class: "GlobalStore",
        doc: "Prints text as C's `printf` does, once per CTA: `%[flags][width][.precision]` and one of `d i u o x X c` for integers, `e E f F g G a A` for floats, `%%` for a percent sign. Lengths (`l`, `ll`, …) may be written and say nothing, as types say it: an i8 of −1 is 255 by `%u`. Values are no literals. One of the values may be a tile: it is printed as nested lists, `[[1, 2], [3, 4]]`, each element as its specification says. Prints of a CTA keep their order; those of different CTAs may interleave.",
        ..BASE
    },
    OpRow {
        name: "assert",
        operands: &[one("condition", Ty::Num)],
        results: Arity::Many,
        attrs: &[may("message", Str), may("file", Str), may("line", Int)],
        traits: &[Schedulable],
        rule: Rule::Custom,
        class: "GlobalStore",
        doc: "Stops the kernel, and with it the program's context (`cudaErrorAssert`), if an element of the condition, which is `i1`, does not hold; the driver prints `file` and `line` (else `kernel`, and of kernels read from text the line there), the kernel's name, the CTA, the thread and the message. What the kernel printed before is printed.",
        ..BASE
    },
    OpRow {
        name: "atomic_rmw",
        operands: &[
            one("value", Ty::Num),
            one("view", Ty::Memory),
            index("coords", Ty::IntNum),
            keyed("mask", Ty::Num, "mask"),
        ],
        attrs: &[
            need("mode", Enum(ATOMIC_MODES)),
            SIGN,
            may("mem_semantic", Enum(ATOMIC_SEMANTICS)),
            may("mem_scope", Enum(SCOPES)),
        ],
        traits: &[ReadsGlobal, WritesGlobal, Schedulable],
        rule: Rule::Custom,
        class: "GlobalLoad",
        doc: "Updates elements atomically; the result is what was there before. A scalar: the element at the coordinates, once per execution and CTA. A tile: each of its elements, at coordinates as in `gather`, in no particular order; where the result is not used, without waiting for it. There is no result of tiles of fewer elements than the threads of their warps. Out of bounds, or where `mask` is false, nothing is updated and the result is 0. `mem_semantic` is `relaxed` (default), `acquire`, `release` or `acq_rel`; `mem_scope` is `gpu` (default), `cta` or `sys`. A relaxed update orders no other access. `release` makes what the CTA stored before visible to whoever acquires the value, `acquire` what they released to the CTA: this is how the last CTA finds what all have written. f32 and f64: `addf`, `exch`; f16 and bf16: `addf`; i32, i64: all but `addf`.",
        ..BASE
    },
    OpRow {
        name: "atomic_cas",
        operands: &[
            one("compare", Ty::Num),
            one("value", Ty::Num),
            one("view", Ty::Memory),
            index("coords", Ty::IntNum),
            keyed("mask", Ty::Num, "mask"),
        ],
        attrs: &[may("mem_semantic", Enum(ATOMIC_SEMANTICS)), may("mem_scope", Enum(SCOPES))],
        traits: &[ReadsGlobal, WritesGlobal, Schedulable],
        rule: Rule::Custom,
        class: "GlobalLoad",
        doc: "As `atomic_rmw`: stores `value` where `compare` is, bit by bit; the result is what was there before. Of i32, i64, f32 and f64.",
        ..BASE
    },
    OpRow {
        name: "make_tiled_tma_desc",
        operands: &[one("view", Ty::View)],
        attrs: &[
            need("box", Ints),
            need("swizzle", Enum(SWIZZLES)),
            may("oob", Enum(&["zero", "nan"])),
            may("multicast", Unit),
        ],
        traits: &[Pure, Uniform],
        rule: Rule::Custom,
        doc: "A TMA descriptor for boxes of `view`; coordinates count boxes. Its elements may be of another type of the width of the view's, 8 bits or more, for loads without `oob = nan`: bits are taken as they are. `multicast`, written by the compiler: the CTAs of a cluster load such a box together, each a part of its rows into the shared memory of all.",
        ..BASE
    },
    OpRow {
        name: "async.tiled_tma_load",
        operands: &[
            one("desc", Ty::Desc),
            index("coords", Ty::Int),
            opt("buffer", Ty::Tile),
            index("stage", Ty::Stage),
            opt("barrier", Ty::Producer),
        ],
        traits: &[Async, ReadsGlobal, Schedulable],
        rule: Rule::Custom,
        class: "TmaLoad",
        doc: "Loads a box through TMA. Value form: the result is the tile. Destination form: writes slot `stage` of `buffer`, completes on `barrier`, the result is a token.",
        ..BASE
    },
    OpRow {
        name: "async.tiled_tma_store",
        operands: &[
            one("desc", Ty::Desc),
            index("coords", Ty::Int),
            one("source", Ty::Tile),
            index("stage", Ty::Stage),
        ],
        results: Arity::Opt,
        traits: &[Async, WritesGlobal, Schedulable],
        rule: Rule::Custom,
        class: "TmaStore",
        doc: "Stores a shared-memory tile through TMA; out of bounds elements are dropped. In destination form the result is a token.",
        ..BASE
    },
    OpRow {
        name: "copy",
        operands: &[
            one("source", Ty::Num),
            index("source_stage", Ty::Stage),
            opt("dest", Ty::Tile),
            index("dest_stage", Ty::Stage),
            keyed("when", Ty::Bool, "when"),
            keyed("number", Ty::Int, "at"),
        ],
        results: Arity::Opt,
        attrs: &[may("offsets", Ints), may("otherwise", Number)],
        traits: &[Schedulable],
        rule: Rule::Custom,
        class: "by-space",
        doc: "Moves a tile between spaces. Value form: the result is the copy. Destination form: reads slot `source_stage` of a buffer at static `offsets` into a register tile, or writes a register tile to slot `dest_stage` of a buffer. A scalar is written to, or read from, a buffer of one element a slot. `when` false: the result is `otherwise` in every element and the source is not read. `at(%k)`: the last offset grows by `%k` times the last extent of the register tile.",
        ..BASE
    },
    OpRow {
        name: "alloc_tensor",
        attrs: &[
            may("offset", Int),
            may("align", Int),
            may("column", Int),
            may("lane", Int),
            may("owner_warp", Int),
            may("scratch", Int),
            may("named", Int),
            may("stride", Int),
        ],
        traits: &[Pure, Uniform],
        rule: Rule::Custom,
        doc: "A ring buffer: the leading dimension counts slots. `offset`: bytes from the shared-memory base; `column`: first tensor-memory column; `lane`: the buffer has 16 lanes of each warp, from this one on, and another may have the others. `scratch`: no buffer of tiles, but what register ops of the agent with that number take for themselves between its warps, which meet at the named barrier `named`. `stride`: of an agent with instances each has such a buffer, so many bytes behind that of the instance before.",
        ..BASE
    },
    // -- matrix multiply
    OpRow {
        name: "async.dot",
        operands: &[
            one("a", Ty::Tile),
            index("a_stage", Ty::Stage),
            one("b", Ty::Tile),
            index("b_stage", Ty::Stage),
            one("acc", Ty::Tile),
            index("acc_stage", Ty::Stage),
            opt("accumulate", Ty::Bool),
        ],
        attrs: &[
            may("transpose_a", Unit),
            may("transpose_b", Unit),
            may("unsigned_a", Unit),
            may("unsigned_b", Unit),
            may("atom", Any),
            may("takes_turn", Int),
            may("gives_turn", Int),
        ],
        traits: &[Async, Schedulable],
        rule: Rule::Dot,
        class: "Dot",
        doc: "acc + A·B with A M×K, B K×N (`transpose_x`: stored with the two dimensions exchanged), accumulated in f32 for floating inputs, in i32 for bytes. Value form: the result is the new accumulator. Destination form: updates slot `acc_stage` of `acc` (overwrites it when `accumulate` is false), the result is a token. Code is generated for M = 64 or 128, and N a power of two up to 256, from 8 on with M = 64 and from 16 on with M = 128 or for i8; for fewer rows where N is 64 or 128: such products are turned round; and for any others that are small (M·N up to 16384): operands and accumulator are then in registers and each warp multiplies its part (`warp_dot`), which also takes K as small as one instruction of a warp has it. Larger M and N are computed in halves, with all that is tied to the product, where every op on the way can be (not `scan`, `combine`, `cat`, `extract_slice` of fewer rows or columns there, explicit TMA stores, loads and stores that are not weak; rows of 256 elements are reduced in halves too, by sums, maxima and minima, and are too long to be transposed). K is a multiple of 16 for f16 and bf16, of 8 for tf32, of 32 for e4m3, e5m2 and i8, and as large as shared memory allows; operands for which it does not suffice go in strips of 128 bytes a row where both follow element by element from loads. A and B have the same type (e4m3 and e5m2 mix); the accumulator is f32, or f16 for f16, e4m3 and e5m2: then the sum is rounded to f16 by each product, or, in a loop that only adds products to it, once at its end (what passes the largest f16 on the way then stays finite, which the interpreter, and `--check`, do not follow). An f16 accumulator that is scaled or used otherwise between products takes conversions, and is not halved where an f32 one is. Bytes (i8, signed unless `unsigned_a` or `unsigned_b`) have an i32 accumulator, which wraps; processors 10.0 and 11.0 multiply them, 10.3 does not. Products of f32 are three of tf32, of the high and low parts of the operands: each product of elements is within 2^-20 of itself, and exact where tf32 holds the factors; infinite factors give NaN. For one product of tf32, which is much faster, convert the operands (`ftof`) or load them as tf32. Instructions take tf32 operands with K innermost alone (A plain, B with `transpose_b`), and so does sm_90a with 8-bit operands: others are turned round by threads of their own, through shared memory once more. An e4m3 or e5m2 B with N innermost has N from 16 on. On sm_90a, M from 64 to 256 and N from 8 to 256 are as large as registers allow, i8 included. `takes_turn` and `gives_turn`, written by the compiler: of two warpgroups each issues its products when the other has issued its own; the first of the two barriers.",
        ..BASE
    },
    OpRow {
        name: "async.dot_wait",
        results: Arity::Many,
        attrs: &[need("pending", Int)],
        traits: &[Pipeline],
        rule: Rule::Custom,
        doc: "All threads of the agent wait until at most `pending` of the products that they have issued onto registers are under way: the results of the others can be read, and their operands overwritten. Written by the compiler, where accumulators are registers.",
        ..BASE
    },
    OpRow {
        name: "dot",
        operands: &[one("a", Ty::Tile), one("b", Ty::Tile), one("acc", Ty::Tile)],
        attrs: &[
            may("transpose_a", Unit),
            may("transpose_b", Unit),
            may("unsigned_a", Unit),
            may("unsigned_b", Unit),
        ],
        traits: &[Pure, Schedulable],
        rule: Rule::Dot,
        class: "Dot",
        doc: "`async.dot` in value form, written by front ends that do not care; `async.dot` says which extents and types there is code for.",
        ..BASE
    },
    // -- control
    OpRow {
        name: "warp_dot",
        operands: &[one("a", Ty::Tile), one("b", Ty::Tile), one("acc", Ty::Tile)],
        attrs: &[may("unsigned_a", Unit), may("unsigned_b", Unit)],
        traits: &[Pure, Schedulable],
        rule: Rule::Custom,
        class: "FmaHeavy",
        doc: "acc + A·B of register tiles, M×K and K×N: each warp multiplies its part (`mma.sync`). Written by the compiler for products that the instructions of `async.dot` are too large for; of f16, bf16, tf32 (K from 8, of tf32 from 4), e4m3, e5m2 and i8 (K from 16).",
        ..BASE
    },
    OpRow {
        name: "for",
        operands: &[
            one("lower", Ty::Int),
            one("upper", Ty::Int),
            one("step", Ty::Int),
            many("inits", Ty::Any),
        ],
        results: Arity::Many,
        attrs: &[may("dots_complete", Unit), may("dealt", Unit)],
        regions: 1,
        traits: &[Schedulable],
        rule: Rule::Custom,
        doc: "Counted loop: the body runs for lower, lower + step, … below upper (signed; step > 0). Upper + step must fit the type of the index. `dots_complete`, written by the compiler: behind the last iteration the agent waits for all its products onto registers. `dealt`, written by the compiler: the instances of the agent run the iterations in turns; see `async.pipeline.give_turn`.",
        ..BASE
    },
    OpRow {
        name: "if",
        operands: &[one("condition", Ty::Bool)],
        results: Arity::Many,
        regions: 2,
        traits: &[Schedulable],
        rule: Rule::Custom,
        doc: "Runs one of two regions; both yield the results.",
        ..BASE
    },
    OpRow {
        name: "loop",
        operands: &[many("inits", Ty::Any)],
        results: Arity::Many,
        regions: 1,
        rule: Rule::Custom,
        doc: "Runs its region until a `break`, at most 2^31 - 1 times. A loop that only counts up to a bound becomes a `for`.",
        ..BASE
    },
    OpRow {
        name: "exit_if",
        operands: &[one("condition", Ty::Bool)],
        results: Arity::Many,
        traits: &[Uniform],
        rule: Rule::Custom,
        doc: "Ends a `for` after this iteration, if the condition holds. Stands right before its `yield`, which says what the results are.",
        ..BASE
    },
    OpRow {
        name: "break",
        operands: &[many("values", Ty::Any)],
        results: Arity::Many,
        traits: &[Terminator],
        rule: Rule::Custom,
        doc: "Leaves the innermost `loop`, from its region or from branches in it; the values are its results.",
        ..BASE
    },
    OpRow {
        name: "continue",
        operands: &[many("values", Ty::Any)],
        results: Arity::Many,
        traits: &[Terminator],
        rule: Rule::Custom,
        doc: "Begins the next iteration of the innermost `loop` or `for`, from its region or from branches in it, with these values.",
        ..BASE
    },
    OpRow {
        name: "yield",
        operands: &[many("values", Ty::Any)],
        results: Arity::Many,
        traits: &[Terminator],
        rule: Rule::Custom,
        doc: "Ends a `for` or `if` region.",
        ..BASE
    },
    OpRow {
        name: "return",
        results: Arity::Many,
        traits: &[Terminator],
        rule: Rule::Custom,
        doc: "Ends a kernel: last in it, or in branches outside of loops.",
        ..BASE
    },
    // -- pipelines
    OpRow {
        name: "async.pipeline.create_pipeline",
        operands: &[many("buffers", Ty::Tile)],
        two_results: true,
        attrs: &[
            need("numStages", Int),
            need("producerGroupId", Int),
            need("consumerGroupId", Int),
            may("distance", Int),
            need("full", Call(&["tx", "commit", "arrive", "none"])),
            need("empty", Call(&["commit", "arrive", "bulk", "none"])),
            may("publish", Enum(&["none", "proxy", "tmem", "global"])),
            may("named", Int),
            may("full_at", Int),
            may("empty_at", Int),
            may("channel", Int),
            may("instances", Int),
            may("multicast", Unit),
        ],
        traits: &[Pipeline],
        rule: Rule::Custom,
        doc: "A channel bundle: one full/empty barrier pair per slot. `full`, `empty`: how the side is signalled and its arrival count (`tx(count, bytes)`). `publish`: fence before an arriving commit. `named`: both sides are whole warps of one agent and this named barrier replaces the mbarriers. `instances`: all of it is one agent's, and each of its instances has such a pipeline, with the named barrier behind that of the instance before. `multicast`: a slot is free when the consumers in all CTAs of the cluster have freed it. `full_at`, `empty_at`: shared-memory byte offsets of the barrier arrays.",
        ..BASE
    },
    OpRow {
        name: "async.pipeline.create_iterator",
        operands: &[one("pipeline", Ty::Any)],
        traits: &[Pipeline],
        rule: Rule::Custom,
        doc: "Slot and phase of the next use, starting at (0, 0).",
        ..BASE
    },
    OpRow {
        name: "async.pipeline.inc_iter",
        operands: &[one("iter", Ty::Iter)],
        traits: &[Pipeline],
        rule: Rule::Same,
        doc: "The following slot; the phase flips on wrap.",
        ..BASE
    },
    OpRow {
        name: "async.pipeline.producer_acquire",
        operands: &[one("pipeline", Ty::Producer), one("iter", Ty::Iter)],
        attrs: &[may("drain", Unit), may("issuer", Unit)],
        traits: &[Pipeline],
        rule: Rule::Custom,
        doc: "Waits until the slot is free.",
        ..BASE
    },
    OpRow {
        name: "async.pipeline.producer_commit",
        operands: &[one("owned", Ty::Producer)],
        attrs: &[may("tx", Int), may("bulk_pending", Int)],
        traits: &[Pipeline],
        rule: Rule::Same,
        doc: "Announces the slot as full (with `tx`: expects that many bytes, before the copies; with `bulk_pending`: when all but that many bulk groups of the issuing lane are complete).",
        ..BASE
    },
    OpRow {
        name: "async.pipeline.consumer_wait",
        operands: &[one("pipeline", Ty::Consumer), one("iter", Ty::Iter)],
        attrs: &[may("consumer_idx", Int), may("issuer", Unit)],
        traits: &[Pipeline],
        rule: Rule::Custom,
        doc: "Waits until the slot is full. `issuer`: only the issuing lane waits.",
        ..BASE
    },
    OpRow {
        name: "async.pipeline.consumer_release",
        operands: &[one("owned", Ty::Consumer), opt("completes", Ty::Async)],
        attrs: &[may("bulk_pending", Int), may("issuer", Unit), may("per_warp", Unit)],
        traits: &[Pipeline],
        rule: Rule::Custom,
        doc: "Frees the slot, when `completes` (if given) has completed. `bulk_pending`: bulk groups that may stay in flight. `per_warp`: a lane of each warp arrives for all, which have used the slot together.",
        ..BASE
    },
    OpRow {
        name: "async.pipeline.store_wait",
        results: Arity::Many,
        traits: &[Pipeline],
        rule: Rule::Custom,
        doc: "The issuing lane waits until all TMA stores that it has issued are complete.",
        ..BASE
    },
    OpRow {
        name: "async.pipeline.give_turn",
        results: Arity::Many,
        traits: &[Pipeline],
        rule: Rule::Custom,
        doc: "In a loop that is `dealt` to the instances of an agent: the instance that runs the next iteration may begin. It waits for that at the begin of its iteration. What an instance has waited for until here it has waited for before the next one does. Written by the compiler.",
        ..BASE
    },
    OpRow {
        name: "async.pipeline.agent_switch",
        attrs: &[
            need("num_warps", Ints),
            need("warp_id", Ints),
            need("lanes", Any),
            need("max_regs", Ints),
            may("num_agents_per_group", Int),
            may("instances", Ints),
            may("turn_at", Int),
        ],
        results: Arity::Many,
        regions: 255,
        traits: &[Pipeline],
        rule: Rule::Custom,
        doc: "Each region runs on its own warps: `num_warps` of them from `warp_id` on, or, where an agent has `instances`, so many each, which run the same region and deal out the iterations of its loop that is `dealt`: instance c runs the iterations c, c + n, …. Iterators of pipelines with other agents go on through the iterations of the others, those of its own do not. `turn_at`: shared-memory byte offset of a barrier for each instance.",
        ..BASE
    },
    OpRow {
        name: "async.pipeline.yield",
        results: Arity::Many,
        traits: &[Pipeline, Terminator],
        rule: Rule::Custom,
        doc: "Ends an agent's region.",
        ..BASE
    },
];

/// Attributes that stages of the compiler put on ops of any kind and later stages read; `true` marks unit keys. They are
/// inherent: dropping the discardable ones changes nothing.
pub const STAGE_KEYS: &[(&str, bool)] = &[
    ("slices", false),
    ("origin", false),
    ("ii", false),
    ("start", false),
    ("local", false),
    ("skew", false),
    ("steady", true),
    ("of", false),
    ("prologue", false),
    ("epilogue", false),
    ("vector", false),
];

/// Attribute names that no operation row mentions but passes use, so that they have constant symbols.
pub const EXTRA_SYMBOLS: &[&str] = &[
    "num_threads",
    "dynamic_smem",
    "tmem_columns",
    "tmem_base_at",
    "grid_wait",
    "cluster",
    "grid_order",
    "target",
    "all",
    "elect",
    "slot",
    "name",
];
