//! Rows of the Blackwell machine model: compute capability 10.x and its relatives with tensor memory.
//!
//! Data only; [`crate::machine`] has the row types and the generators. Source texts:
//! *machine model, …* is the public description of the pipeline model, by table; *PTX ISA* the vendor's manual;
//! *ptxas* what the assembler 13.5 accepts; *B200 measurement* numbers published with the cost tables of
//! an open compiler for that GPU; *attention reference* the unit counts published for FlashAttention-4;
//! *ours* a choice of this project where no source gives the number.
//!
//! The published weights are not clocks. Only [`ROWS`]`.real` and the hand-off count clocks.

use crate::machine::{
    AnchorRow, Basis, CpuRow, FamilyRow, MachineRows, MmaRow, NumberRow, PoolRow, PublishedPoolRow, RateRow,
    RealRow, ShapeRow, SlotKind, SlotRow, TagRow, UnitRow, VectorRow,
};

/// All tables.
pub const ROWS: MachineRows = MachineRows {
    name: "blackwell",
    slots: SLOTS,
    families: FAMILIES,
    tags: TAGS,
    vectors: VECTORS,
    acc_to_acc: NumberRow {
        name: "acc_to_acc_latency",
        value: 8,
        what: "cycles",
        src: "machine model, anchor vectors",
    },
    acc_to_reader: NumberRow {
        name: "acc_to_reader_latency",
        value: 16,
        what: "cycles",
        src: "machine model, anchor vectors",
    },
    published_pools: PUBLISHED_POOLS,
    pools: POOLS,
    capacities: CAPACITIES,
    anchors: ANCHORS,
    ceilings: CEILINGS,
    fences: FENCES,
    spill: SPILL,
    limits: LIMITS,
    gpu: GPU,
    units: UNITS,
    real: REAL,
    hand_off: NumberRow {
        name: "hand_off",
        value: 92,
        what: "clocks, one way through a barrier",
        src: "B200 measurement",
    },
    mma: MMA,
    cpus: CPUS,
};

const SLOT_TABLE: &str = "machine model, slot table";

const fn slot(id: u8, name: &'static str, kind: SlotKind, primary: bool, what: &'static str) -> SlotRow {
    SlotRow { id, name, kind, primary, capacity: 1, what, src: SLOT_TABLE }
}

const COARSE: SlotKind = SlotKind::Coarse;
const FINE: SlotKind = SlotKind::Fine;

/// Slots. One bit each in a reservation row, so the capacity is 1.
pub const SLOTS: &[SlotRow] = &[
    slot(1, "issue", COARSE, false, "generic issue"),
    slot(2, "xu", COARSE, false, "transcendental unit"),
    slot(3, "xu64", COARSE, false, "64-bit transcendental"),
    slot(4, "fp32x2_fp16ultra", FINE, true, "paired FP32x2 or packed FP16 issue"),
    slot(5, "alu", COARSE, false, "scalar ALU"),
    slot(6, "alu_or_fmaheavy", FINE, true, "ALU or FMA-heavy issue"),
    slot(7, "dual_alu", FINE, true, "dual-ALU datapath"),
    slot(8, "lsu", COARSE, false, "load/store"),
    slot(9, "tmem", COARSE, false, "tensor memory"),
    slot(10, "mma", COARSE, false, "MMA"),
    slot(11, "tc_and_mma", FINE, true, "tensor-core and legacy MMA issue"),
    slot(12, "tma", COARSE, false, "tensor memory accelerator"),
    slot(13, "tp_gnic_rd", FINE, true, "interconnect transport, read"),
    slot(14, "tp_gnic_wr", FINE, true, "interconnect transport, write"),
    slot(15, "tp_smem_rd", FINE, true, "shared-memory transport, read"),
    slot(16, "tp_smem_wr", FINE, true, "shared-memory transport, write"),
    slot(17, "tp_tmem_rd", FINE, true, "tensor-memory transport, read"),
    slot(18, "tp_tmem_wr", FINE, true, "tensor-memory transport, write"),
    slot(19, "tp_mma", FINE, true, "MMA transport"),
    slot(20, "unknown", FINE, true, "unclassified fallback"),
    slot(21, "omitted_simt", FINE, true, "SIMT op deliberately left out of the model"),
    slot(22, "test_simt", FINE, true, "self-test row"),
    slot(23, "test_mma", FINE, true, "self-test row"),
    slot(24, "test_dma", SlotKind::Test, false, "self-test row"),
];

const FAMILY_TABLE: &str = "machine model, latency families";

/// Latency families.
pub const FAMILIES: &[FamilyRow] = &[
    FamilyRow { name: "dual ALU", latency: 2, slots: &[7], src: FAMILY_TABLE },
    FamilyRow { name: "ALU or FMA-heavy", latency: 4, slots: &[6, 4], src: FAMILY_TABLE },
    FamilyRow { name: "transport", latency: 7, slots: &[13, 14, 15, 16, 17, 18, 19], src: FAMILY_TABLE },
    FamilyRow { name: "tensor-core or MMA issue", latency: 8, slots: &[11], src: FAMILY_TABLE },
];

const fn tag(tag: u8, latency: u16, slots: &'static [u8], family: &'static str) -> TagRow {
    TagRow { tag, latency, slots, family, src: "machine model, op-tag table" }
}

/// Latencies per op tag. Tags that are absent have no published entry.
pub const TAGS: &[TagRow] = &[
    tag(0x01, 2, &[7], "dual ALU"),
    tag(0x02, 2, &[7], "dual ALU"),
    tag(0x03, 2, &[7], "dual ALU"),
    tag(0x09, 4, &[6], "FMA-heavy"),
    tag(0x0A, 4, &[6], "FMA-heavy"),
    tag(0x0B, 4, &[6], "FMA-heavy"),
    tag(0x0C, 2, &[7], "dual ALU"),
    tag(0x0D, 4, &[4], "paired FP32x2 / FP16"),
    tag(0x0E, 4, &[4], "paired FP32x2 / FP16"),
    tag(0x0F, 4, &[4], "paired FP32x2 / FP16"),
    tag(0x10, 4, &[4], "paired FP32x2 / FP16"),
    tag(0x15, 4, &[6], "FMA-heavy"),
    tag(0x16, 4, &[6], "FMA-heavy"),
    tag(0x17, 4, &[6], "FMA-heavy"),
    tag(0x18, 8, &[11], "TC + MMA issue"),
    tag(0x19, 8, &[11], "TC + MMA issue"),
    tag(0x1C, 7, &[15, 16], "SMEM transport"),
    tag(0x1D, 7, &[16], "SMEM write transport"),
    tag(0x1E, 7, &[17], "TMEM read transport"),
    tag(0x1F, 7, &[18], "TMEM write transport"),
    tag(0x20, 7, &[19], "MMA transport"),
    tag(0x21, 7, &[13], "gnic read transport"),
    tag(0x22, 7, &[14], "gnic write transport"),
];

const ANCHOR_VECTORS: &str = "machine model, anchor vectors";

const fn vector(
    class: &'static str,
    uses: &'static [(u8, u16, u16, u16)],
    latency: u16,
    src: &'static str,
) -> VectorRow {
    VectorRow { class, uses, pools: &[], latency, src }
}

/// Resource vectors, in class order. A dot's latency is the one to a reader.
pub const VECTORS: &[VectorRow] = &[
    vector("TmaLoad", &[(12, 0, 8, 1), (16, 0, 8, 1)], 8, ANCHOR_VECTORS),
    vector("TmaStore", &[(12, 0, 8, 1), (15, 0, 8, 1)], 8, "ours: the load's vector with the read transport"),
    VectorRow {
        class: "Dot",
        uses: &[(11, 0, 8, 1), (19, 0, 8, 1)],
        pools: &[(3, 1, 8)],
        latency: 16,
        src: ANCHOR_VECTORS,
    },
    vector("CopyRmemToSmem", &[(16, 0, 7, 1)], 7, ANCHOR_VECTORS),
    vector("CopySmemToRmem", &[(15, 0, 7, 1)], 7, ANCHOR_VECTORS),
    vector("CopySmemToTmem", &[(18, 0, 7, 1)], 7, ANCHOR_VECTORS),
    vector("CopyRmemToTmem", &[(18, 0, 7, 1)], 7, ANCHOR_VECTORS),
    vector("CopyTmemToRmem", &[(17, 0, 7, 1)], 7, ANCHOR_VECTORS),
    vector(
        "ConvertLayout",
        &[(16, 0, 7, 1), (15, 7, 7, 1)],
        14,
        "ours: a write and then a read of shared memory",
    ),
    vector(
        "GlobalLoad",
        &[(8, 0, 7, 1), (13, 0, 7, 1)],
        7,
        "ours: gnic read transport (tag 0x21) and the load/store unit",
    ),
    vector(
        "GlobalStore",
        &[(8, 0, 7, 1), (14, 0, 7, 1)],
        7,
        "ours: gnic write transport (tag 0x22) and the load/store unit",
    ),
    vector("FpAlu", &[(4, 0, 4, 1)], 4, "machine model, latency families (slot 4); the class is ours"),
    vector("FmaHeavy", &[(6, 0, 4, 1)], 4, "machine model, latency families (slot 6); the class is ours"),
    vector("IntAlu", &[(7, 0, 2, 1)], 2, "machine model, latency families (slot 7); the class is ours"),
    vector("MinMax", &[(7, 0, 2, 1)], 2, "machine model, latency families (slot 7); the class is ours"),
    vector("Cvt", &[(4, 0, 4, 1)], 4, "machine model, latency families (slot 4); the class is ours"),
    vector(
        "Transcendental",
        &[(2, 0, 4, 1)],
        4,
        "slot: machine model, anchor vectors; duration and latency: ours",
    ),
    vector("Reduce", &[(6, 0, 4, 1)], 4, "machine model, latency families (slot 6); the class is ours"),
    vector("ReduceMinMax", &[(6, 0, 4, 1)], 4, "machine model, latency families (slot 6); the class is ours"),
    vector("Layout", &[], 0, "ours: no code"),
    vector("Uniform", &[], 0, "ours: classified as omitted_simt (slot 21), which nothing contends for"),
    vector("Scalar", &[(5, 0, 4, 1)], 4, "slot: machine model, slot table; duration and latency: ours"),
    vector("Barrier", &[(1, 0, 1, 1)], 1, "ours: one generic issue"),
];

const POOL_TABLE: &str = "machine model, capacity pools";

const fn published(index: u8, capacity: u16, what: &'static str) -> PublishedPoolRow {
    PublishedPoolRow { index, capacity, what, src: POOL_TABLE }
}

/// The nine pool numbers as published.
pub const PUBLISHED_POOLS: &[PublishedPoolRow] = &[
    published(0, 37, "op-tag table size, not a capacity"),
    published(1, 4, "ALU-or-FMA-heavy issue width; also TMEM-bank pressure, in-iteration"),
    published(2, 7, "dual_alu fan-out"),
    published(3, 37, "backward-walk shadow of pool 0"),
    published(4, 5, "issue width of coarse families; cap for fused SMEM reads"),
    published(5, 1, "SMEM capacity lock, unused per cycle"),
    published(6, 3, "dual-issue cap; also named-barrier carry, cross-iteration"),
    published(7, 6, "alu_or_fmaheavy fan-out"),
    published(8, 2, "register-bank pairing"),
];

const fn pool(id: u8, name: &'static str, capacity: u16, published: u8, what: &'static str) -> PoolRow {
    PoolRow {
        id,
        name,
        capacity,
        published,
        role: None,
        what,
        src: "number: machine model, capacity pools; one counter per use: ours",
    }
}

/// One cap per use of a published number.
pub const POOLS: &[PoolRow] = &[
    pool(0, "fma_issue", 4, 1, "ALU-or-FMA-heavy issue width"),
    pool(1, "dual_alu", 7, 2, "dual-ALU fan-out"),
    pool(2, "fma_fanout", 6, 7, "ALU-or-FMA-heavy fan-out"),
    PoolRow {
        role: Some("Accumulators"),
        ..pool(3, "tmem_bank", 4, 1, "accumulators in tensor memory being updated")
    },
    pool(4, "dual_issue", 3, 6, "dual issue"),
    pool(5, "barrier_carry", 3, 6, "named barriers carried across iterations"),
    pool(6, "coarse_issue", 5, 4, "issue width of the coarse families"),
    PoolRow {
        role: Some("FusedReads"),
        ..pool(7, "fused_read", 5, 4, "members of a fused shared-memory read")
    },
    pool(8, "reg_bank", 2, 8, "register-bank pairing"),
];

const fn num(name: &'static str, value: u32, what: &'static str, src: &'static str) -> NumberRow {
    NumberRow { name, value, what, src }
}

const CAPACITY_TABLE: &str = "machine model, global capacities";

/// Global capacities.
pub const CAPACITIES: &[NumberRow] = &[
    num(
        "tmem_or_register_bytes",
        262_144,
        "bytes of tensor memory, and of the register file",
        CAPACITY_TABLE,
    ),
    num("alu_issue_per_warp_slot", 3, "concurrent ALU issue per warp slot", CAPACITY_TABLE),
    num("smem_bytes", 232_448, "bytes per SM; unbounded with tune.unlimited-smem", CAPACITY_TABLE),
    num("alu_or_fmaheavy_issue", 4, "concurrent ALU-or-FMA-heavy issue", CAPACITY_TABLE),
    num("register_bank_width", 2_048, "over 8 banks", CAPACITY_TABLE),
];

const fn anchor(slot: u8, weight: u16) -> AnchorRow {
    AnchorRow { slot, weight, src: "machine model, slot cycle anchors" }
}

/// Cost weights: one per slot, then the secondary anchors.
pub const ANCHORS: &[AnchorRow] = &[
    anchor(1, 100),
    anchor(2, 100),
    anchor(3, 110),
    anchor(4, 101),
    anchor(5, 102),
    anchor(6, 102),
    anchor(7, 103),
    anchor(8, 103),
    anchor(9, 120),
    anchor(10, 104),
    anchor(11, 121),
    anchor(12, 104),
    anchor(13, 200),
    anchor(14, 400),
    anchor(15, 800),
    anchor(16, 900),
    anchor(17, 1500),
    anchor(18, 2000),
    anchor(19, 2400),
    anchor(20, 3000),
    anchor(21, 50),
    anchor(22, 100),
    anchor(23, 200),
    anchor(24, 360),
    anchor(0, 600),
    anchor(0, 800),
    anchor(0, 1000),
    anchor(0, 1200),
];

const CEILING_TEXT: &str = "machine model, ceilings and fences";

/// Latency ceilings.
pub const CEILINGS: &[NumberRow] = &[
    num("far_memory", 5_000, "cycles, far memory round trip", CEILING_TEXT),
    num("cross_cluster", 7_000, "cycles, cross-cluster", CEILING_TEXT),
];

/// Fence anchors.
pub const FENCES: &[NumberRow] = &[
    num("near_sm_smem_spill", 1_600, "cycles", CEILING_TEXT),
    num("intra_cluster", 2_000, "cycles", CEILING_TEXT),
];

/// Spill surcharge: factor and cap.
pub const SPILL: &[NumberRow] = &[
    num("spill_factor", 17, "cycles per register above the budget", "machine model, spill surcharge"),
    num("spill_cap", 4_096, "cycles per op", "machine model, spill surcharge"),
];

/// Hardware limits; the names are the fields of `Limits`.
pub const LIMITS: &[NumberRow] = &[
    num("smem_bytes", 232_448, "227 KiB per CTA", "PTX ISA; ptxas"),
    num("tmem_columns", 512, "columns of 128 lanes x 32 bits", "PTX ISA, tensor memory"),
    num("tmem_lanes", 128, "lanes", "PTX ISA, tensor memory"),
    num("tmem_alloc_min_columns", 32, "columns, allocations are powers of two", "PTX ISA, tcgen05.alloc"),
    num("named_barriers", 16, "barriers 0 to 15 of a CTA", "PTX ISA, bar.sync"),
    num("regs_per_sm", 65_536, "32-bit registers", "CUDA programming guide, compute capabilities"),
    num("regs_per_thread", 255, "32-bit registers", "CUDA programming guide, compute capabilities"),
    num("reg_granule", 8, "registers", "PTX ISA, setmaxnreg"),
    num("max_threads", 1_024, "threads per CTA", "CUDA programming guide, compute capabilities"),
    num("warp_threads", 32, "threads", "PTX ISA"),
    num("warpgroup_warps", 4, "warps", "PTX ISA"),
    num("tma_box_max", 256, "elements along one dimension", "CUDA driver API, tensor map encoding"),
    num("tma_rank_max", 5, "dimensions", "CUDA driver API, tensor map encoding"),
    num("tma_align", 16, "bytes, base address and outer strides", "CUDA driver API, tensor map encoding"),
    num("mbarrier_count_max", 1_048_575, "arrivals, or bytes of one phase", "PTX ISA, mbarrier"),
];

/// A whole GPU, for estimates of run time; the device at hand may differ.
pub const GPU: &[NumberRow] = &[
    num("sms", 148, "multiprocessors of a B200", "published B200 review: 74 of each of two dies"),
    num(
        "clock_mhz",
        1_850,
        "MHz under load",
        "2.25 PFLOP/s of dense f16 as published, over 148 x 8192 a clock",
    ),
    num("dram_bytes", 4_324, "bytes a clock, all SMs together", "B200 data sheet: 8 TB/s; at that clock"),
    num(
        "l2_bytes",
        64,
        "bytes a clock and SM from the L2 cache",
        "A100 white paper; B200: ours, not measured",
    ),
    num(
        "sm_smem_bytes",
        233_472,
        "bytes of shared memory of an SM",
        "CUDA programming guide, compute capabilities",
    ),
    num(
        "cta_smem_bytes",
        1_024,
        "bytes that the system takes of each CTA",
        "CUDA programming guide, shared memory",
    ),
    num("sm_threads", 2_048, "threads of an SM", "CUDA programming guide, compute capabilities"),
    num("sm_ctas", 32, "CTAs of an SM", "CUDA programming guide, compute capabilities"),
    num(
        "launch_clocks",
        4_000,
        "clocks from launch to the first CTA and from the last to the end",
        "ours, about 2 us",
    ),
];

const fn unit(name: &'static str, what: &'static str, src: &'static str) -> UnitRow {
    UnitRow { name, what, src }
}

/// Units of the real-cycle model.
pub const UNITS: &[UnitRow] = &[
    unit("tensor_core", "matrix engine of one SM", "ours"),
    unit("mufu", "transcendental unit", "ours"),
    unit("fma", "floating add and multiply lanes", "ours"),
    unit("alu", "integer, comparison and conversion lanes", "ours"),
    unit("smem", "shared-memory port, reads and writes", "ours"),
    unit("tmem_rd", "tensor-memory reads", "ours"),
    unit("tmem_wr", "tensor-memory writes", "ours"),
    unit("tma", "tensor memory accelerator", "ours"),
    unit("global", "load/store path to global memory", "ours"),
];

const fn rate(unit: &'static str, basis: Basis, cycles: u32, per: u32, src: &'static str) -> RateRow {
    RateRow { unit, basis, cycles, per, src }
}

const SMEM_PORT: RateRow =
    rate("smem", Basis::Bytes, 1, 128, "128 bytes a clock: CUDA programming guide; one port: ours");
const FMA: RateRow =
    rate("fma", Basis::Elements, 1, 128, "128 lanes an SM: CUDA programming guide, instruction throughput");
const ALU: RateRow =
    rate("alu", Basis::Elements, 1, 64, "64 lanes an SM: ours, not confirmed for this family");
const MUFU: RateRow = rate("mufu", Basis::Elements, 1, 16, "16 a clock: attention reference");
const TMEM_RD: RateRow = rate(
    "tmem_rd",
    Basis::Bytes,
    1,
    2048,
    "about 2400 bytes a clock beside the MMA: third-party measurement; rounded down to a power of two: ours",
);
const TMEM_WR: RateRow = rate("tmem_wr", Basis::Bytes, 1, 1024, "half of the read rate: ours");
const GLOBAL: RateRow = rate("global", Basis::Bytes, 1, 64, "ours");

/// Latency is the occupancy, at least `min`.
const fn real(class: &'static str, rates: &'static [RateRow], min: u32, src: &'static str) -> RealRow {
    RealRow { class, rates, min_occupancy: min, extra: &[], min_latency: 0, src }
}

const PIPELINED: &str = "ours: other warps of the agent hide the pipeline depth; least duration: ours";

/// Real clocks, in class order.
pub const REAL: &[RealRow] = &[
    RealRow {
        class: "TmaLoad",
        rates: &[rate("tma", Basis::Bytes, 6, 1024, "6 clocks per KiB: B200 measurement"), SMEM_PORT],
        min_occupancy: 30,
        extra: &[(0, 460)],
        min_latency: 700,
        src: "460 beside the occupancy: B200 measurement; at least 700, with contention: ours",
    },
    RealRow {
        class: "TmaStore",
        rates: &[rate("tma", Basis::Bytes, 52, 1024, "52 clocks per KiB: B200 measurement"), SMEM_PORT],
        min_occupancy: 30,
        extra: &[],
        min_latency: 700,
        src: "as the load: ours",
    },
    RealRow {
        class: "Dot",
        rates: &[
            rate("tensor_core", Basis::Macs, 1, 4096, "4096 f16 multiply-adds a clock: B200 measurement"),
            SMEM_PORT,
        ],
        min_occupancy: 1,
        // 128x128x64 runs 256 clocks and is readable after 559, 128x128x128 runs 512 and is readable after 900.
        extra: &[(256, 303), (512, 388)],
        min_latency: 0,
        src: "559 and 900 clocks to the reader: B200 measurement; in between: ours",
    },
    RealRow {
        class: "CopyRmemToSmem",
        rates: &[SMEM_PORT],
        min_occupancy: 8,
        extra: &[(0, 31)],
        min_latency: 0,
        src: "61 clocks for write and read: B200 measurement; its halves: ours",
    },
    RealRow {
        class: "CopySmemToRmem",
        rates: &[SMEM_PORT],
        min_occupancy: 8,
        extra: &[(0, 30)],
        min_latency: 0,
        src: "61 clocks for write and read: B200 measurement; its halves: ours",
    },
    RealRow {
        class: "CopySmemToTmem",
        rates: &[SMEM_PORT, TMEM_WR],
        min_occupancy: 8,
        extra: &[(0, 303)],
        min_latency: 0,
        src: "ours: its commit takes as long as that of the smallest measured MMA",
    },
    real("CopyRmemToTmem", &[TMEM_WR], 4, PIPELINED),
    real("CopyTmemToRmem", &[TMEM_RD], 4, PIPELINED),
    RealRow {
        class: "ConvertLayout",
        rates: &[rate(
            "smem",
            Basis::Bytes,
            2,
            128,
            "16 clocks per KiB for write and read: B200 measurement",
        )],
        min_occupancy: 16,
        extra: &[(0, 61)],
        min_latency: 0,
        src: "61 clocks for write and read: B200 measurement",
    },
    RealRow {
        class: "GlobalLoad",
        rates: &[GLOBAL],
        min_occupancy: 4,
        extra: &[],
        min_latency: 700,
        src: "ours: as the tensor-map load",
    },
    real("GlobalStore", &[GLOBAL], 4, "ours: nothing waits for it"),
    real("FpAlu", &[FMA], 4, PIPELINED),
    real("FmaHeavy", &[FMA], 4, PIPELINED),
    real("IntAlu", &[ALU], 4, PIPELINED),
    real("MinMax", &[ALU], 4, PIPELINED),
    real(
        "Cvt",
        &[rate("alu", Basis::Elements, 1, 128, "64 lanes, two elements packed by one instruction: ours")],
        4,
        PIPELINED,
    ),
    real("Transcendental", &[MUFU], 4, PIPELINED),
    real("Reduce", &[FMA], 4, PIPELINED),
    real(
        "ReduceMinMax",
        &[rate("alu", Basis::Elements, 1, 128, "64 lanes, three-operand form takes two elements: ours")],
        4,
        PIPELINED,
    ),
    real("Layout", &[], 0, "ours: no code"),
    real("Uniform", &[], 0, "ours: not counted"),
    real("Scalar", &[rate("alu", Basis::Fixed, 1, 1, "ours")], 4, PIPELINED),
    real("Barrier", &[], 30, "named barrier: B200 measurement"),
];

const BYTE_STEP_16: &[ShapeRow] = &[
    ShapeRow { m: 64, n_min: 16, n_max: 256, n_step: 16 },
    ShapeRow { m: 128, n_min: 16, n_max: 256, n_step: 16 },
];

/// M = 128 takes N in steps of 16 only: the manual's table says 8, public kernels require 16.
const STEP_8_OR_16: &[ShapeRow] = &[
    ShapeRow { m: 64, n_min: 8, n_max: 256, n_step: 8 },
    ShapeRow { m: 128, n_min: 16, n_max: 256, n_step: 16 },
];

const fn mma(
    kind: &'static str,
    types: &'static [(&'static str, &'static str, &'static str)],
    k: u16,
    shapes: &'static [ShapeRow],
    transposable: &'static [&'static str],
    n_step_transposed: u16,
    feature: &'static str,
) -> MmaRow {
    MmaRow {
        kind,
        types,
        k,
        shapes,
        a_spaces: &["Smem", "Tmem"],
        b_spaces: &["Smem"],
        transposable,
        n_step_transposed,
        feature,
        src: "PTX ISA, tcgen05.mma, shapes for one CTA",
    }
}

/// MMA kinds of one CTA, dense, without scale factors. The transposed tf32 operand exists only in a swizzle
/// with 32-byte atoms, which no layout of ours uses.
pub const MMA: &[MmaRow] = &[
    mma(
        "f16",
        &[("F16", "F16", "F32"), ("Bf16", "Bf16", "F32"), ("F16", "F16", "F16")],
        16,
        STEP_8_OR_16,
        &["F16", "Bf16"],
        8,
        "",
    ),
    mma("tf32", &[("Tf32", "Tf32", "F32")], 8, STEP_8_OR_16, &[], 8, ""),
    mma(
        "f8f6f4",
        &[
            ("E4m3", "E4m3", "F32"),
            ("E4m3", "E5m2", "F32"),
            ("E5m2", "E4m3", "F32"),
            ("E5m2", "E5m2", "F32"),
            ("E4m3", "E4m3", "F16"),
            ("E4m3", "E5m2", "F16"),
            ("E5m2", "E4m3", "F16"),
            ("E5m2", "E5m2", "F16"),
        ],
        32,
        STEP_8_OR_16,
        &["E4m3", "E5m2"],
        16,
        "",
    ),
    mma(
        "i8",
        &[("S8", "S8", "S32"), ("S8", "U8", "S32"), ("U8", "S8", "S32"), ("U8", "U8", "S32")],
        32,
        BYTE_STEP_16,
        &["S8", "U8"],
        16,
        "MmaInt8",
    ),
];

const fn cpu(name: &'static str, ptx_version: (u8, u8), features: &'static [&'static str]) -> CpuRow {
    CpuRow { name, ptx_version, features, src: "ptxas 13.5" }
}

/// Processors with tensor memory, with the least PTX version the assembler takes for each.
pub const CPUS: &[CpuRow] = &[
    cpu("sm_100a", (8, 6), &["MmaInt8"]),
    cpu("sm_100f", (8, 8), &["FamilyPortable"]),
    cpu("sm_103a", (8, 8), &["TmemLoadReduce"]),
    cpu("sm_103f", (8, 8), &["FamilyPortable"]),
    cpu("sm_110a", (9, 0), &["MmaInt8", "TmemLoadReduce"]),
    cpu("sm_110f", (9, 0), &["FamilyPortable"]),
];
