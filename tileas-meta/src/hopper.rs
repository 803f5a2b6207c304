//! Rows of the Hopper machine model: compute capability 9.0 with its architecture-specific instructions.
//!
//! What the published description says of slots, pools and weights is said of Blackwell; it is taken over here as it stands, since a schedule needs
//! some order of costs and none is published for this family. What differs is below: matrix instructions are issued by warpgroups, and
//! their accumulators are registers.

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
    rows[DOT] = VectorRow { pools: &[], src: "ours: as on Blackwell, without tensor memory", ..rows[DOT] };
    rows
};

/// No pool counts accumulators: they are registers.
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
                unit: "tensor_core",
                basis: Basis::Macs,
                cycles: 1,
                per: 2048,
                src: "989.5 TFLOP/s of dense f16 as published: 132 SMs at 1.83 GHz, 4096 operations a clock each",
            },
            RateRow {
                unit: "smem",
                basis: Basis::Bytes,
                cycles: 1,
                per: 128,
                src: "128 bytes a clock: CUDA programming guide; one port: ours",
            },
        ],
        min_occupancy: 8,
        extra: &[(0, 32)],
        min_latency: 0,
        src: "ours: the wait behind the last instruction, not measured",
    };
    rows
};

const fn shape(m: u16, n_max: u16) -> ShapeRow {
    ShapeRow { m, n_min: 8, n_max, n_step: 8 }
}

/// Rows of 64 over warpgroups, or one after the other in the registers of one.
const SHAPES: &[ShapeRow] = &[shape(64, 256), shape(128, 256), shape(256, 256)];

const fn mma(
    kind: &'static str,
    types: &'static [(&'static str, &'static str, &'static str)],
    k: u16,
    transposable: &'static [&'static str],
) -> MmaRow {
    MmaRow {
        kind,
        types,
        k,
        shapes: SHAPES,
        a_spaces: &["Smem", "Rmem"],
        b_spaces: &["Smem"],
        transposable,
        n_step_transposed: 8,
        feature: "",
        src: "PTX ISA, wgmma.mma_async: shapes, types",
    }
}

/// Matrix instructions.
pub const MMA: &[MmaRow] = &[
    mma("f16", &[("F16", "F16", "F32"), ("Bf16", "Bf16", "F32")], 16, &["F16", "Bf16"]),
    mma("tf32", &[("Tf32", "Tf32", "F32")], 8, &[]),
    mma(
        "f8",
        &[("E4m3", "E4m3", "F32"), ("E4m3", "E5m2", "F32"), ("E5m2", "E4m3", "F32"), ("E5m2", "E5m2", "F32")],
        32,
        &[],
    ),
    mma("i8", &[("S8", "S8", "S32"), ("S8", "U8", "S32"), ("U8", "S8", "S32"), ("U8", "U8", "S32")], 32, &[]),
];

/// Processors.
pub const CPUS: &[CpuRow] =
    &[CpuRow { name: "sm_90a", ptx_version: (8, 0), features: &[], src: "ptxas 13.5" }];
