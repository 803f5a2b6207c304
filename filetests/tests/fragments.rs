//! The layouts of fragments that the compiler knows are those that the emulator reads out of the PTX ISA.

use tileas_codegen::layout::{Access, LinearMap, Matrix};
use tileas_emu::layout::frag;
use tileas_emu::layout::tmem::Shape;

/// Compares a map with a formula that gives row and column of an element number (within a word, and the word's) of a thread.
fn same(map: LinearMap, m: Matrix, packed: u32, formula: impl Fn(u32, u32, u32) -> (u32, u32)) {
    for warp in 0..1 << m.warps {
        for lane in 0..32 {
            for register in 0..1 << map.register().len() {
                let (row, column) =
                    formula(warp * 32 + lane, register >> packed, register & ((1 << packed) - 1));
                let want = row << m.columns | column;
                assert_eq!(map.element(register, lane, warp), want, "warp {warp}, lane {lane}, {register}");
            }
        }
    }
}

#[test]
fn accumulators_and_operands_of_multiplies() {
    let of = |rows: u32, columns, warps| Matrix::of(&[rows, columns], warps).expect("powers of two");
    for n in [8, 16, 64, 256] {
        let m = of(64, n, 4);
        same(m.accumulator().expect("fits"), m, 0, |t, r, _| frag::wgmma_d32(t, r));
        same(m.accumulator().expect("fits"), m, 1, frag::wgmma_d16);
    }
    for (bytes, k) in [(1, 32), (2, 16), (4, 8)] {
        let packed = 2 - u32::trailing_zeros(bytes);
        let m = of(64, k, 4);
        same(m.operand_a(8 * bytes).expect("fits"), m, packed, |t, r, p| frag::wgmma_a(t, r, p, bytes));
        let m = of(16, k, 1);
        same(m.operand_a(8 * bytes).expect("fits"), m, packed, |t, r, p| frag::mma_a(t, r, p, bytes));
        let m = of(k, 8, 1);
        same(m.operand_b(8 * bytes).expect("fits"), m, packed, |t, r, p| frag::mma_b(t, r, p, bytes));
    }
    let m = of(16, 8, 1);
    same(m.accumulator().expect("fits"), m, 0, |t, r, _| frag::mma_d32(t, r));
    same(m.accumulator().expect("fits"), m, 1, frag::mma_d16);
}

#[test]
fn loads_from_tensor_memory() {
    for (access, shape, lanes) in [
        (Access::Rows, Shape::L32x32b, 32),
        (Access::B64, Shape::L16x64b, 16),
        (Access::B128, Shape::L16x128b, 16),
        (Access::B256, Shape::L16x256b, 16),
    ] {
        for columns in [8, 32] {
            let m = Matrix::of(&[128, columns], 4).expect("powers of two");
            let map = m.tensor_load(access).expect("fits");
            // Shapes of 16 lanes come twice for the 32 lanes of a warp.
            let half = (1 << map.register().len()) / (32 / lanes);
            same(map, m, 0, |t, r, _| {
                let (lane, column) = shape.at(t % 32, r % half, 0);
                (32 * (t / 32) + lane + 16 * (r / half), column)
            });
        }
    }
}
