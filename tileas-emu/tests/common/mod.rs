//! Matrices and references shared by the tests.
#![allow(dead_code)]

pub mod clusters;
pub mod mutants;

use tileas_emu::num::{Cvt, Format, Rounding, f32_from, f32_to};
use tileas_emu::*;

/// A matrix in global memory, row major.
pub struct Matrix {
    pub rows: usize,
    pub cols: usize,
    pub format: &'static Format,
    pub id: BufferId,
}

/// Small integers by a fixed formula: sums stay exact.
pub fn value(seed: usize, i: usize) -> f32 {
    let h = (i.wrapping_mul(2654435761).wrapping_add(seed * 40503)) >> 7;
    (h % 5) as f32 - 2.0
}

pub fn put(
    mem: &mut Memory,
    format: &'static Format,
    rows: usize,
    cols: usize,
    f: impl Fn(usize) -> f32,
) -> Matrix {
    let n = (format.bits / 8) as usize;
    let mut bytes = Vec::with_capacity(rows * cols * n);
    for i in 0..rows * cols {
        let v = f32_to(format, f(i), Cvt::with(Rounding::Rn));
        bytes.extend_from_slice(&v.to_le_bytes()[..n]);
    }
    Matrix { rows, cols, format, id: mem.alloc(bytes) }
}

pub fn get(mem: &Memory, m: &Matrix) -> Vec<f32> {
    let n = (m.format.bits / 8) as usize;
    mem.bytes(m.id)
        .chunks_exact(n)
        .map(|c| f32_from(m.format, c.iter().rev().fold(0u64, |v, &x| v << 8 | u64::from(x))))
        .collect()
}

/// A 2-D tensor map of a matrix.
pub fn map(mem: &Memory, m: &Matrix, elem: TmaType, box_cols: u32, box_rows: u32, swizzle: Swizzle) -> Arg {
    Arg::map(MapDesc {
        elem,
        address: mem.address(m.id),
        dims: vec![m.cols as u64, m.rows as u64],
        strides: vec![(m.cols * (m.format.bits / 8) as usize) as u64],
        box_dims: vec![box_cols, box_rows],
        element_strides: vec![],
        swizzle,
        oob: OobFill::default(),
    })
}

/// `a[m][k] * b[n][k]` (`transposed`) or `a[m][k] * b[k][n]`.
pub fn reference(a: &[f32], b: &[f32], m: usize, n: usize, k: usize, transposed: bool) -> Vec<f32> {
    let mut c = vec![0.0f32; m * n];
    for i in 0..m {
        for j in 0..n {
            let mut s = 0.0f64;
            for x in 0..k {
                let y = if transposed { b[j * k + x] } else { b[x * n + j] };
                s += f64::from(a[i * k + x]) * f64::from(y);
            }
            c[i * n + j] = s as f32;
        }
    }
    c
}

/// Compares after rounding the reference to the format.
pub fn same(got: &[f32], want: &[f32], format: &'static Format) -> Result<(), String> {
    let how = Cvt::with(Rounding::Rn);
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let w = f32_from(format, f32_to(format, w, how));
        if g != w {
            return Err(format!("element {i}: got {g}, expected {w}"));
        }
    }
    Ok(())
}

/// Options of a mode with all detectors.
pub fn all(mode: Mode) -> RunOptions {
    RunOptions { mode, max_steps: 50_000_000, ..RunOptions::default() }
}

/// Options of a mode without detectors.
pub fn none(mode: Mode) -> RunOptions {
    RunOptions { detectors: Detectors::NONE, ..all(mode) }
}

/// The compiler's f16 GEMM: C[M,N] = A[M,K] * B[N,K]^T.
pub fn gemm_f16(mem: &mut Memory, m: usize, n: usize, k: usize) -> (Launch, Matrix, Vec<f32>) {
    use num::format::F16;
    let a = put(mem, &F16, m, k, |i| value(1, i));
    let b = put(mem, &F16, n, k, |i| value(2, i));
    let c = put(mem, &F16, m, n, |_| -7.0);
    let args = vec![
        map(mem, &a, TmaType::F16, 64, 128, Swizzle::B128),
        map(mem, &b, TmaType::F16, 64, 128, Swizzle::B128),
        map(mem, &c, TmaType::F16, 64, 128, Swizzle::B128),
        Arg::u32(k.div_ceil(64) as u32),
    ];
    let want = reference(&get(mem, &a), &get(mem, &b), m, n, k, true);
    let grid = [m.div_ceil(128) as u32, n.div_ceil(128) as u32, 1];
    (Launch { grid, block: [192, 1, 1], dynamic_smem: 164_940, args, ..Launch::default() }, c, want)
}

/// The hand-written kernels: bf16, C[M,N] = A[M,K] * B[N,K]^T, persistent.
pub fn gemm_hand(
    mem: &mut Memory,
    m: usize,
    n: usize,
    k: usize,
    ctas: u32,
    hopper: bool,
) -> (Launch, Matrix, Vec<f32>) {
    use num::format::BF16;
    let a = put(mem, &BF16, m, k, |i| value(1, i));
    let b = put(mem, &BF16, n, k, |i| value(2, i));
    let c = put(mem, &BF16, m, n, |_| -7.0);
    let tile_n = if hopper { 128 } else { 256 };
    let args = vec![
        map(mem, &a, TmaType::Bf16, 64, 128, Swizzle::B128),
        map(mem, &b, TmaType::Bf16, 64, tile_n, Swizzle::B128),
        map(mem, &c, TmaType::Bf16, 64, if hopper { 64 } else { 32 }, Swizzle::B128),
        Arg::u32(k.div_ceil(64) as u32),
        Arg::u32(m.div_ceil(128) as u32),
        Arg::u32(n.div_ceil(tile_n as usize) as u32),
    ];
    let want = reference(&get(mem, &a), &get(mem, &b), m, n, k, true);
    let (block, dynamic_smem) = if hopper { (384, 164_928) } else { (192, 230_528) };
    (Launch { grid: [ctas, 1, 1], block: [block, 1, 1], dynamic_smem, args, ..Launch::default() }, c, want)
}

/// The same of pairs of CTAs, each of which loads a half of B's tile for both. The tiles of M are even in number.
pub fn gemm_pairs(mem: &mut Memory, m: usize, n: usize, k: usize, ctas: u32) -> (Launch, Matrix, Vec<f32>) {
    let (mut l, c, want) = gemm_hand(mem, m, n, k, ctas, true);
    if let Arg::Map(b) = &mut l.args[1] {
        b.box_dims[1] = 64;
    }
    (l, c, want)
}

/// Runs and compares.
pub fn run(
    program: &Program,
    mem: &mut Memory,
    l: &Launch,
    c: &Matrix,
    want: &[f32],
    o: &RunOptions,
) -> Result<Report, String> {
    let r = Machine::run(program, l, mem, o, &mut NoTrace)
        .map_err(|f| format!("{f}\n{}", f.events.join("\n")))?;
    same(&get(mem, c), want, c.format)?;
    Ok(r)
}
