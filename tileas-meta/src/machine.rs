//! Row types of a machine model and the generators that turn rows into Rust.
//!
//! In: constant tables (one module per lowering family, such as [`crate::blackwell`]), each row with the
//! text of its source. Out: the `OpClass` enum of the compiler crate and the `static` tables of an ISA
//! crate; every generated line ends with the name of its row and its source, so a number can be traced
//! from the compiled table to where it was published. Same rows, same bytes.
//!
//! Rows hold data only. What the numbers mean and how they combine is code in `tileas_codegen::isa`.

use std::fmt::Write as _;

/// Which part of the model a slot belongs to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// Groups ops; an op may still claim it.
    Coarse,
    /// One issue port or transport row.
    Fine,
    /// Row of the model's own tests.
    Test,
}

/// One slot of the reservation row. Identifiers are one-based.
#[derive(Copy, Clone, Debug)]
pub struct SlotRow {
    /// One-based identifier; bit `id - 1` of a row.
    pub id: u8,
    /// Name as printed.
    pub name: &'static str,
    /// Coarse, fine or test.
    pub kind: SlotKind,
    /// Whether it is one of the primary slots.
    pub primary: bool,
    /// Concurrent uses per cycle.
    pub capacity: u16,
    /// What it stands for.
    pub what: &'static str,
    /// Where the row comes from.
    pub src: &'static str,
}

/// A latency shared by all ops of a family of slots.
#[derive(Copy, Clone, Debug)]
pub struct FamilyRow {
    /// Name as printed.
    pub name: &'static str,
    /// Cycles.
    pub latency: u16,
    /// Slots of the family.
    pub slots: &'static [u8],
    /// Where the row comes from.
    pub src: &'static str,
}

/// Latency and slots of one op tag of the published table.
#[derive(Copy, Clone, Debug)]
pub struct TagRow {
    /// The tag.
    pub tag: u8,
    /// Cycles.
    pub latency: u16,
    /// Slots, first the main one.
    pub slots: &'static [u8],
    /// Family, as printed.
    pub family: &'static str,
    /// Where the row comes from.
    pub src: &'static str,
}

/// One class of operations: what the compiler crate maps its opcodes to.
#[derive(Copy, Clone, Debug)]
pub struct OpClassRow {
    /// Variant name.
    pub name: &'static str,
    /// Snake-case name as printed.
    pub text: &'static str,
    /// Documentation line.
    pub doc: &'static str,
}

/// A slot held by an op: `(slot, offset, duration, occupancy)`, cycles after the op's start.
pub type UseRow = (u8, u16, u16, u16);

/// A pool held by an op: `(pool, count, duration)` from the op's start.
pub type PoolUseRow = (u8, u16, u16);

/// Resource vector and dependence latency of an op class in the published weights.
#[derive(Copy, Clone, Debug)]
pub struct VectorRow {
    /// Name of the class in [`OP_CLASSES`].
    pub class: &'static str,
    /// Slots.
    pub uses: &'static [UseRow],
    /// Pools.
    pub pools: &'static [PoolUseRow],
    /// Cycles from start until a reader may start.
    pub latency: u16,
    /// Where the row comes from.
    pub src: &'static str,
}

/// One of the nine pool numbers as published.
#[derive(Copy, Clone, Debug)]
pub struct PublishedPoolRow {
    /// Position in the published vector.
    pub index: u8,
    /// The number.
    pub capacity: u16,
    /// Its published meaning.
    pub what: &'static str,
    /// Where the row comes from.
    pub src: &'static str,
}

/// A named use of a published pool number, with a counter of its own.
#[derive(Copy, Clone, Debug)]
pub struct PoolRow {
    /// Pool number as seen by schedulers.
    pub id: u8,
    /// Name as printed.
    pub name: &'static str,
    /// Most concurrent uses per modulo cycle.
    pub capacity: u16,
    /// Published pool the cap is taken from.
    pub published: u8,
    /// What the scheduler charges it for by itself, if it does: the name of a `PoolRole`.
    pub role: Option<&'static str>,
    /// What it counts.
    pub what: &'static str,
    /// Where the row comes from.
    pub src: &'static str,
}

/// A named number with a unit: global capacities, ceilings, fences, limits.
#[derive(Copy, Clone, Debug)]
pub struct NumberRow {
    /// Name as printed.
    pub name: &'static str,
    /// Value.
    pub value: u32,
    /// Unit and meaning.
    pub what: &'static str,
    /// Where the row comes from.
    pub src: &'static str,
}

/// Cost weight of a slot, or a weight that belongs to no slot (`slot` = 0).
#[derive(Copy, Clone, Debug)]
pub struct AnchorRow {
    /// One-based slot, 0 for the secondary anchors.
    pub slot: u8,
    /// Weight in cycles.
    pub weight: u16,
    /// Where the row comes from.
    pub src: &'static str,
}

/// A hardware unit of the real-cycle model.
#[derive(Copy, Clone, Debug)]
pub struct UnitRow {
    /// Name as printed.
    pub name: &'static str,
    /// What it stands for.
    pub what: &'static str,
    /// Where the row comes from.
    pub src: &'static str,
}

/// What an op's work is counted in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Bytes moved.
    Bytes,
    /// Tile elements.
    Elements,
    /// Multiply-adds.
    Macs,
    /// A fixed number of cycles whatever the work.
    Fixed,
}

/// `ceil(work · cycles / per)` cycles on a unit.
#[derive(Copy, Clone, Debug)]
pub struct RateRow {
    /// Name of the unit.
    pub unit: &'static str,
    /// What is counted.
    pub basis: Basis,
    /// Numerator.
    pub cycles: u32,
    /// Denominator.
    pub per: u32,
    /// Where the rate comes from.
    pub src: &'static str,
}

/// Real cycles of an op class: rates, the first of which is the unit that sets the op's duration.
#[derive(Copy, Clone, Debug)]
pub struct RealRow {
    /// Name of the class in [`OP_CLASSES`].
    pub class: &'static str,
    /// Rates per unit, main unit first.
    pub rates: &'static [RateRow],
    /// Least duration in cycles.
    pub min_occupancy: u32,
    /// Latency beyond the occupancy at given occupancies `(occupancy, extra)`, ascending; linear in between,
    /// constant outside. Empty: none.
    pub extra: &'static [(u32, u32)],
    /// Least latency in cycles.
    pub min_latency: u32,
    /// Where the latency comes from.
    pub src: &'static str,
}

/// An element type an MMA takes or gives, by the name the compiler crate has for it.
pub type TypeName = &'static str;

/// Shapes of one MMA instruction for a given M.
#[derive(Copy, Clone, Debug)]
pub struct ShapeRow {
    /// Rows.
    pub m: u16,
    /// Least columns.
    pub n_min: u16,
    /// Most columns.
    pub n_max: u16,
    /// Columns are a multiple of this.
    pub n_step: u16,
}

/// One MMA kind of a target.
#[derive(Copy, Clone, Debug)]
pub struct MmaRow {
    /// Kind as written in the instruction.
    pub kind: &'static str,
    /// Allowed `(A, B, accumulator)` types.
    pub types: &'static [(TypeName, TypeName, TypeName)],
    /// Depth of one instruction, in elements.
    pub k: u16,
    /// Shapes.
    pub shapes: &'static [ShapeRow],
    /// Spaces A may be in (`Smem`, `Tmem`, `Rmem`).
    pub a_spaces: &'static [&'static str],
    /// Spaces B may be in.
    pub b_spaces: &'static [&'static str],
    /// Operand types that may be stored with M or N contiguous.
    pub transposable: &'static [TypeName],
    /// N is a multiple of this when a transposed B is used (the shape's own step if smaller).
    pub n_step_transposed: u16,
    /// Feature the target must have, by the name of its field, or empty.
    pub feature: &'static str,
    /// Where the row comes from.
    pub src: &'static str,
}

/// One processor of the family.
#[derive(Copy, Clone, Debug)]
pub struct CpuRow {
    /// Name as in `--target`.
    pub name: &'static str,
    /// Least PTX version that knows it.
    pub ptx_version: (u8, u8),
    /// Features beyond those all of the family have.
    pub features: &'static [&'static str],
    /// Where the row comes from.
    pub src: &'static str,
}

/// All tables of one lowering family.
#[derive(Copy, Clone, Debug)]
pub struct MachineRows {
    /// Name of the model.
    pub name: &'static str,
    /// Slots in identifier order.
    pub slots: &'static [SlotRow],
    /// Latency families.
    pub families: &'static [FamilyRow],
    /// Op tags.
    pub tags: &'static [TagRow],
    /// One row per class, in the order of [`OP_CLASSES`].
    pub vectors: &'static [VectorRow],
    /// Latency from an accumulator update to the next update of the same accumulator.
    pub acc_to_acc: NumberRow,
    /// Latency from an accumulator update to any other reader.
    pub acc_to_reader: NumberRow,
    /// Pool numbers as published.
    pub published_pools: &'static [PublishedPoolRow],
    /// Named pools.
    pub pools: &'static [PoolRow],
    /// Global capacities.
    pub capacities: &'static [NumberRow],
    /// Cost weights.
    pub anchors: &'static [AnchorRow],
    /// Latency ceilings.
    pub ceilings: &'static [NumberRow],
    /// Fence anchors.
    pub fences: &'static [NumberRow],
    /// Spill surcharge: factor, then cap.
    pub spill: &'static [NumberRow],
    /// Hardware limits; names are the fields of `Limits`.
    pub limits: &'static [NumberRow],
    /// A whole GPU, for estimates of run time.
    pub gpu: &'static [NumberRow],
    /// Units of the real-cycle model.
    pub units: &'static [UnitRow],
    /// One row per class, in the order of [`OP_CLASSES`].
    pub real: &'static [RealRow],
    /// Real cycles from a producer's arrival to the waiting agent's next instruction.
    pub hand_off: NumberRow,
    /// MMA kinds.
    pub mma: &'static [MmaRow],
    /// Processors.
    pub cpus: &'static [CpuRow],
}

/// The classes of operations every machine model has a row for.
pub const OP_CLASSES: &[OpClassRow] = &[
    OpClassRow {
        name: "TmaLoad",
        text: "tma_load",
        doc: "Tensor-map load of a box from global to shared memory.",
    },
    OpClassRow {
        name: "TmaStore",
        text: "tma_store",
        doc: "Tensor-map store of a box from shared to global memory.",
    },
    OpClassRow { name: "Dot", text: "dot", doc: "Matrix multiply-accumulate of tiles by the target's MMA." },
    OpClassRow {
        name: "CopyRmemToSmem",
        text: "copy_rmem_to_smem",
        doc: "Copy of a tile from registers to shared memory.",
    },
    OpClassRow {
        name: "CopySmemToRmem",
        text: "copy_smem_to_rmem",
        doc: "Copy of a tile from shared memory to registers.",
    },
    OpClassRow {
        name: "CopySmemToTmem",
        text: "copy_smem_to_tmem",
        doc: "Copy of a tile from shared to tensor memory.",
    },
    OpClassRow {
        name: "CopyRmemToTmem",
        text: "copy_rmem_to_tmem",
        doc: "Copy of a tile from registers to tensor memory.",
    },
    OpClassRow {
        name: "CopyTmemToRmem",
        text: "copy_tmem_to_rmem",
        doc: "Copy of a tile from tensor memory to registers.",
    },
    OpClassRow {
        name: "ConvertLayout",
        text: "convert_layout",
        doc: "Trip of a register tile through shared memory to change its layout.",
    },
    OpClassRow {
        name: "GlobalLoad",
        text: "global_load",
        doc: "Load of a tile from global memory to registers.",
    },
    OpClassRow {
        name: "GlobalStore",
        text: "global_store",
        doc: "Store of a register tile to global memory, and global atomics.",
    },
    OpClassRow {
        name: "FpAlu",
        text: "fp_alu",
        doc: "Element-wise floating add, multiply, fused multiply-add on packed pairs.",
    },
    OpClassRow {
        name: "FmaHeavy",
        text: "fma_heavy",
        doc: "Element-wise floating math that does not pair, issued on the FMA-heavy port.",
    },
    OpClassRow {
        name: "IntAlu",
        text: "int_alu",
        doc: "Element-wise integer, logic, comparison and select.",
    },
    OpClassRow { name: "MinMax", text: "min_max", doc: "Element-wise minimum and maximum." },
    OpClassRow { name: "Cvt", text: "cvt", doc: "Element-wise conversion between number types." },
    OpClassRow {
        name: "Transcendental",
        text: "transcendental",
        doc: "Element-wise exponential, logarithm, reciprocal, root, sine, cosine, hyperbolic tangent.",
    },
    OpClassRow {
        name: "Reduce",
        text: "reduce",
        doc: "Reduction or scan along an axis with an arithmetic combiner.",
    },
    OpClassRow {
        name: "ReduceMinMax",
        text: "reduce_min_max",
        doc: "Reduction along an axis with minimum or maximum.",
    },
    OpClassRow {
        name: "Layout",
        text: "layout",
        doc: "View of the same bytes: reshape, broadcast, slice; no code.",
    },
    OpClassRow {
        name: "Uniform",
        text: "uniform",
        doc: "Value every agent computes for itself; occupies nothing that counts.",
    },
    OpClassRow {
        name: "Scalar",
        text: "scalar",
        doc: "Scalar that one agent computes: loaded, atomic or cancelled program id.",
    },
    OpClassRow {
        name: "Barrier",
        text: "barrier",
        doc: "Synchronisation inside an agent or between agents.",
    },
];

/// The `OpClass` enum of the compiler crate.
pub fn op_class_enum(rows: &[OpClassRow]) -> String {
    let mut s = String::from("// Generated from tileas_meta::machine::OP_CLASSES.\n\n");
    s.push_str("/// What kind of work an operation is, as far as a machine model cares.\n");
    s.push_str("#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(u8)]\n");
    s.push_str("pub enum OpClass {\n");
    for row in rows {
        let _ = writeln!(s, "    /// {}\n    {},", row.doc, row.name);
    }
    s.push_str("}\n\nimpl OpClass {\n    /// All classes, in table order.\n    pub const ALL: &'static [OpClass] = &[\n");
    for row in rows {
        let _ = writeln!(s, "        OpClass::{},", row.name);
    }
    s.push_str("    ];\n\n    /// The name as printed.\n    pub const fn name(self) -> &'static str {\n        match self {\n");
    for row in rows {
        let _ = writeln!(s, "            OpClass::{} => {:?},", row.name, row.text);
    }
    s.push_str("        }\n    }\n}\n");
    s
}

/// Emits `pub static NAME: &[TYPE] = &[lines];` where each line carries its row's name and source.
fn table(out: &mut String, name: &str, ty: &str, doc: &str, rows: impl Iterator<Item = (String, String)>) {
    let _ = writeln!(out, "/// {doc}\npub static {name}: &[{ty}] = &[");
    for (index, (line, src)) in rows.enumerate() {
        let _ = writeln!(out, "    {line}, // {name}[{index}]: {src}");
    }
    out.push_str("];\n\n");
}

fn list<T>(items: &[T], f: impl Fn(&T) -> String) -> String {
    let inner: Vec<String> = items.iter().map(f).collect();
    format!("&[{}]", inner.join(", "))
}

fn number(r: &NumberRow) -> String {
    format!("Number {{ name: {:?}, value: {}, what: {:?}, source: {:?} }}", r.name, r.value, r.what, r.src)
}

/// The `static` tables of an ISA crate; the crate supplies `use tileas_codegen::isa::*`.
///
/// # Panics
/// When a row names a class, unit or slot that has no row: a mistake in the tables, seen by the build.
pub fn machine_statics(m: &MachineRows) -> String {
    check(m);
    let unit = |name: &str| m.units.iter().position(|u| u.name == name).expect("checked");
    let mut s = String::new();
    let _ = writeln!(s, "// Generated from tileas_meta rows of the machine model {:?}.\n", m.name);
    table(
        &mut s,
        "SLOTS",
        "Slot",
        "Slots in identifier order.",
        m.slots.iter().map(|r| {
            (
                format!(
                    "Slot {{ id: SlotId::new({}), name: {:?}, kind: SlotKind::{:?}, primary: {}, capacity: {}, what: {:?}, source: {:?} }}",
                    r.id, r.name, r.kind, r.primary, r.capacity, r.what, r.src
                ),
                r.src.into(),
            )
        }),
    );
    let slots = |ids: &[u8]| list(ids, |id| format!("SlotId::new({id})"));
    table(
        &mut s,
        "FAMILIES",
        "LatencyFamily",
        "Latency families.",
        m.families.iter().map(|r| {
            (
                format!(
                    "LatencyFamily {{ name: {:?}, latency: {}, slots: {}, source: {:?} }}",
                    r.name,
                    r.latency,
                    slots(r.slots),
                    r.src
                ),
                r.src.into(),
            )
        }),
    );
    table(
        &mut s,
        "TAGS",
        "OpTag",
        "Published op tags.",
        m.tags.iter().map(|r| {
            (
                format!(
                    "OpTag {{ tag: {:#04x}, latency: {}, slots: {}, family: {:?}, source: {:?} }}",
                    r.tag,
                    r.latency,
                    slots(r.slots),
                    r.family,
                    r.src
                ),
                r.src.into(),
            )
        }),
    );
    table(
        &mut s,
        "VECTORS",
        "ClassVector",
        "Resource vector of each op class, in class order.",
        m.vectors.iter().map(|r| {
            let uses = list(r.uses, |(slot, offset, duration, occupancy)| {
                format!("ClassUse {{ slot: SlotId::new({slot}), offset: {offset}, duration: {duration}, occupancy: {occupancy} }}")
            });
            let pools = list(r.pools, |(pool, count, duration)| {
                format!("PoolUse {{ pool: PoolId::new({pool}), count: {count}, duration: {duration} }}")
            });
            (
                format!(
                    "ClassVector {{ class: OpClass::{}, uses: {uses}, pools: {pools}, latency: {}, source: {:?} }}",
                    r.class, r.latency, r.src
                ),
                r.src.into(),
            )
        }),
    );
    table(
        &mut s,
        "PUBLISHED_POOLS",
        "PublishedPool",
        "Pool numbers as published.",
        m.published_pools.iter().map(|r| {
            (
                format!(
                    "PublishedPool {{ index: {}, capacity: {}, what: {:?}, source: {:?} }}",
                    r.index, r.capacity, r.what, r.src
                ),
                r.src.into(),
            )
        }),
    );
    table(
        &mut s,
        "POOLS",
        "Pool",
        "Named pools, in identifier order.",
        m.pools.iter().map(|r| {
            (
                format!(
                    "Pool {{ id: PoolId::new({}), name: {:?}, capacity: {}, published: {}, role: {}, what: {:?}, source: {:?} }}",
                    r.id,
                    r.name,
                    r.capacity,
                    r.published,
                    r.role.map_or("None".into(), |role| format!("Some(PoolRole::{role})")),
                    r.what,
                    r.src
                ),
                r.src.into(),
            )
        }),
    );
    for (name, doc, rows) in [
        ("CAPACITIES", "Global capacities.", m.capacities),
        ("CEILINGS", "Latency ceilings.", m.ceilings),
        ("FENCES", "Fence anchors.", m.fences),
        ("GPU", "A whole GPU.", m.gpu),
    ] {
        table(&mut s, name, "Number", doc, rows.iter().map(|r| (number(r), r.src.into())));
    }
    table(
        &mut s,
        "ANCHORS",
        "CycleAnchor",
        "Cost weights: one per slot, then the secondary ones.",
        m.anchors.iter().map(|r| {
            let slot = match r.slot {
                0 => "None".into(),
                id => format!("Some(SlotId::new({id}))"),
            };
            (
                format!("CycleAnchor {{ slot: {slot}, weight: {}, source: {:?} }}", r.weight, r.src),
                r.src.into(),
            )
        }),
    );
    table(
        &mut s,
        "UNITS",
        "Unit",
        "Units of the real-cycle model.",
        m.units.iter().enumerate().map(|(index, r)| {
            (
                format!(
                    "Unit {{ id: UnitId::new({index}), name: {:?}, what: {:?}, source: {:?} }}",
                    r.name, r.what, r.src
                ),
                r.src.into(),
            )
        }),
    );
    table(
        &mut s,
        "REAL",
        "RealVector",
        "Real cycles of each op class, in class order.",
        m.real.iter().map(|r| {
            let rates = list(r.rates, |x| {
                format!(
                    "Rate {{ unit: UnitId::new({}), basis: Basis::{:?}, cycles: {}, per: {}, source: {:?} }}",
                    unit(x.unit),
                    x.basis,
                    x.cycles,
                    x.per,
                    x.src
                )
            });
            (
                format!(
                    "RealVector {{ class: OpClass::{}, rates: {rates}, min_occupancy: {}, extra: &{:?}, min_latency: {}, source: {:?} }}",
                    r.class, r.min_occupancy, r.extra, r.min_latency, r.src
                ),
                r.src.into(),
            )
        }),
    );
    table(
        &mut s,
        "MMA",
        "MmaKind",
        "MMA kinds.",
        m.mma.iter().map(|r| {
            let types = list(r.types, |(a, b, c)| format!("(AtomType::{a}, AtomType::{b}, AtomType::{c})"));
            let shapes = list(r.shapes, |x| {
                format!("MmaShape {{ m: {}, n_min: {}, n_max: {}, n_step: {} }}", x.m, x.n_min, x.n_max, x.n_step)
            });
            let spaces = |names: &[&str]| list(names, |n| format!("OperandSpace::{n}"));
            let feature = match r.feature {
                "" => "None".into(),
                f => format!("Some(Feature::{f})"),
            };
            (
                format!(
                    "MmaKind {{ kind: {:?}, types: {types}, k: {}, shapes: {shapes}, a_spaces: {}, b_spaces: {}, transposable: {}, n_step_transposed: {}, feature: {feature}, source: {:?} }}",
                    r.kind,
                    r.k,
                    spaces(r.a_spaces),
                    spaces(r.b_spaces),
                    list(r.transposable, |t| format!("AtomType::{t}")),
                    r.n_step_transposed,
                    r.src
                ),
                r.src.into(),
            )
        }),
    );
    table(
        &mut s,
        "CPUS",
        "Cpu",
        "Processors of the family.",
        m.cpus.iter().map(|r| {
            (
                format!(
                    "Cpu {{ name: {:?}, ptx_version: {:?}, features: {}, source: {:?} }}",
                    r.name,
                    r.ptx_version,
                    list(r.features, |f| format!("Feature::{f}")),
                    r.src
                ),
                r.src.into(),
            )
        }),
    );
    s.push_str("/// Hardware limits.\npub static LIMITS: Limits = Limits {\n");
    for r in m.limits {
        let _ = writeln!(s, "    {}: {}, // {}; {}", r.name, r.value, r.what, r.src);
    }
    s.push_str("};\n\n");
    let _ = writeln!(s, "/// The model.\npub static MODEL: MachineModel = MachineModel {{");
    let _ = writeln!(s, "    name: {:?},", m.name);
    for (field, table) in [
        ("slots", "SLOTS"),
        ("families", "FAMILIES"),
        ("tags", "TAGS"),
        ("vectors", "VECTORS"),
        ("published_pools", "PUBLISHED_POOLS"),
        ("pools", "POOLS"),
        ("capacities", "CAPACITIES"),
        ("anchors", "ANCHORS"),
        ("ceilings", "CEILINGS"),
        ("fences", "FENCES"),
        ("gpu", "GPU"),
        ("units", "UNITS"),
        ("real", "REAL"),
    ] {
        let _ = writeln!(s, "    {field}: {table},");
    }
    for (field, r) in [
        ("acc_to_acc_latency", &m.acc_to_acc),
        ("acc_to_reader_latency", &m.acc_to_reader),
        ("hand_off", &m.hand_off),
        ("spill_factor", &m.spill[0]),
        ("spill_cap", &m.spill[1]),
    ] {
        let _ = writeln!(s, "    {field}: {}, // {}; {}", r.value, r.what, r.src);
    }
    s.push_str("    limits: LIMITS,\n};\n");
    s
}

/// Cross-references of the rows. A wrong table fails the build of the ISA crate here, with the row's name.
fn check(m: &MachineRows) {
    for (index, slot) in m.slots.iter().enumerate() {
        assert_eq!(slot.id as usize, index + 1, "slot {} out of order", slot.name);
    }
    assert!(m.slots.len() <= 64, "one row of slots must fit a u64");
    for (index, pool) in m.pools.iter().enumerate() {
        assert_eq!(pool.id as usize, index, "pool {} out of order", pool.name);
    }
    assert_eq!(m.vectors.len(), OP_CLASSES.len(), "one resource vector per op class");
    assert_eq!(m.real.len(), OP_CLASSES.len(), "one real-cycle row per op class");
    for (class, (vector, real)) in OP_CLASSES.iter().zip(m.vectors.iter().zip(m.real)) {
        assert_eq!((vector.class, real.class), (class.name, class.name), "class rows out of order");
        for (slot, _, duration, occupancy) in vector.uses {
            assert!((1..=m.slots.len()).contains(&(*slot as usize)), "{}: no slot {slot}", class.name);
            assert!(*duration > 0 && *occupancy > 0, "{}: empty use of slot {slot}", class.name);
        }
        for (pool, count, _) in vector.pools {
            let row = m.pools.get(*pool as usize).unwrap_or_else(|| panic!("{}: no pool {pool}", class.name));
            assert!(*count <= row.capacity, "{}: needs more of pool {pool} than there is", class.name);
        }
        for rate in real.rates {
            assert!(m.units.iter().any(|u| u.name == rate.unit), "{}: no unit {}", class.name, rate.unit);
            assert!(rate.per > 0, "{}: rate with denominator 0", class.name);
        }
        assert!(real.extra.is_sorted_by_key(|p| p.0), "{}: latency points out of order", class.name);
    }
    assert_eq!(m.spill.len(), 2, "spill surcharge: factor and cap");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_names_are_unique() {
        for (i, a) in OP_CLASSES.iter().enumerate() {
            for b in &OP_CLASSES[..i] {
                assert!(a.name != b.name && a.text != b.text, "{} twice", a.name);
            }
        }
    }

    #[test]
    fn every_row_has_a_line_that_names_it() {
        let m = &crate::blackwell::ROWS;
        let text = machine_statics(m);
        for (table, len) in [
            ("SLOTS", m.slots.len()),
            ("TAGS", m.tags.len()),
            ("VECTORS", m.vectors.len()),
            ("POOLS", m.pools.len()),
            ("ANCHORS", m.anchors.len()),
            ("REAL", m.real.len()),
            ("MMA", m.mma.len()),
            ("CPUS", m.cpus.len()),
        ] {
            for index in 0..len {
                assert!(text.contains(&format!("// {table}[{index}]: ")), "{table}[{index}]");
            }
        }
        assert_eq!(text, machine_statics(m), "same rows, same bytes");
    }
}
