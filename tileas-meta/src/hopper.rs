//! Rows of the Hopper machine model: compute capability 9.0 with its architecture-specific instructions.
//!
//! What the published description says of slots, pools and weights is said of Blackwell; it is taken over here as it stands, since a schedule needs
//! some order of costs and none is published for this family. What differs is below. Products are computed by multiply-adds of
//! the CUDA cores so far; the tensor cores have no rows.

use crate::blackwell;
use crate::machine::{
    Basis, CpuRow, MachineRows, MmaRow, NumberRow, PoolRow, RateRow, RealRow, ShapeRow, VectorRow,
};

/// All tables.
pub const ROWS: MachineRows = MachineRows {
    name: "hopper",
    vectors: &VECTORS,
    acc_to_acc: NumberRow { name: "acc_to_acc_latency", value: 32, what: "cycles", src: "ours" },
    acc_to_reader: NumberRow { name: "acc_to_reader_latency", value: 32, what: "cycles", src: "ours" },
    pools: &POOLS,
    limits: &LIMITS,
    gpu: GPU,
    real: &REAL,
    mma: MMA,
    cpus: CPUS,
    ..blackwell::ROWS
};

/// Class of matrix products.
const DOT: usize = 2;

const VECTORS: [VectorRow; blackwell::VECTORS.len()] = {
    let mut rows = [blackwell::VECTORS[0]; blackwell::VECTORS.len()];
    rows.copy_from_slice(blackwell::VECTORS);
    rows[DOT] = VectorRow {
        class: "Dot",
        uses: &[(6, 0, 32, 1)],
        pools: &[],
        latency: 32,
        src: "ours: many multiply-adds, slot 6",
    };
    rows
};

/// No pool counts accumulators: they are in shared memory.
const POOLS: [PoolRow; blackwell::POOLS.len()] = {
    let mut rows = [blackwell::POOLS[0]; blackwell::POOLS.len()];
    rows.copy_from_slice(blackwell::POOLS);
    rows[3].role = None;
    rows
};

const LIMITS: [NumberRow; blackwell::LIMITS.len()] = {
    let mut rows = [blackwell::LIMITS[0]; blackwell::LIMITS.len()];
    rows.copy_from_slice(blackwell::LIMITS);
    let mut at = 1;
    // Columns, lanes, least allocation.
    while at < 4 {
        rows[at] = NumberRow { value: 0, what: "there is no tensor memory", ..rows[at] };
        at += 1;
    }
    rows
};

const fn num(name: &'static str, value: u32, what: &'static str, src: &'static str) -> NumberRow {
    NumberRow { name, value, what, src }
}

/// A whole GPU, for estimates of run time; the device at hand may differ.
const GPU: &[NumberRow] = &[
    num("sms", 132, "multiprocessors of an H100 SXM", "H100 white paper"),
    num(
        "clock_mhz",
        1_830,
        "MHz under load",
        "989.5 TFLOP/s of dense f16 as published, over 132 x 4096 a clock",
    ),
    num("dram_bytes", 1_830, "bytes a clock, all SMs together", "H100 data sheet: 3.35 TB/s; at that clock"),
    num(
        "l2_bytes",
        64,
        "bytes a clock and SM from the L2 cache",
        "A100 white paper; H100: ours, not measured",
    ),
    blackwell::GPU[4],
    blackwell::GPU[5],
    blackwell::GPU[6],
    blackwell::GPU[7],
    blackwell::GPU[8],
];

const REAL: [RealRow; blackwell::REAL.len()] = {
    let mut rows = [blackwell::REAL[0]; blackwell::REAL.len()];
    rows.copy_from_slice(blackwell::REAL);
    rows[DOT] = RealRow {
        class: "Dot",
        rates: &[
            RateRow {
                unit: "fma",
                basis: Basis::Macs,
                cycles: 1,
                per: 128,
                src: "128 lanes an SM: CUDA programming guide, instruction throughput",
            },
            RateRow {
                unit: "smem",
                basis: Basis::Macs,
                cycles: 9,
                per: 256,
                src: "ours: nine reads of a lane for eight multiply-adds, 32 lanes a clock",
            },
        ],
        min_occupancy: 4,
        extra: &[],
        min_latency: 0,
        src: "ours: not measured",
    };
    rows
};

const fn shape(m: u16) -> ShapeRow {
    ShapeRow { m, n_min: 8, n_max: 256, n_step: 8 }
}

/// Products by multiply-adds.
pub const MMA: &[MmaRow] = &[MmaRow {
    kind: "fma",
    types: &[("F16", "F16", "F32"), ("Bf16", "Bf16", "F32"), ("F32", "F32", "F32")],
    k: 1,
    shapes: &[shape(16), shape(32), shape(64), shape(128), shape(256)],
    a_spaces: &["Smem"],
    b_spaces: &["Smem"],
    transposable: &["F16", "Bf16", "F32"],
    n_step_transposed: 8,
    feature: "",
    src: "PTX ISA, fma",
}];

/// Processors.
pub const CPUS: &[CpuRow] =
    &[CpuRow { name: "sm_90a", ptx_version: (8, 0), features: &[], src: "ptxas 13.5" }];
