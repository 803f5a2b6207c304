//! The maps that hardware and memory ask for.
//!
//! In: bits of rows and of columns (all axes but the last together are the rows), and how many bits of warps there are. Lane and
//! warp bits for which a tile is too small hold copies; what they leave of a tile is in further registers, columns first.
//!
//! Source: PTX ISA, register fragments of `wgmma`, `mma.sync` and `tcgen05.ld`, swizzling modes.

use super::gf2::{Columns, MAX_BITS, Span};
use super::map::LinearMap;

/// A tile as rows and columns, and the warps that hold it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Matrix {
    /// log2 of the number of rows.
    pub rows: u32,
    /// log2 of the number of columns.
    pub columns: u32,
    /// log2 of the number of warps.
    pub warps: u32,
}

/// The tiles of a product that warps compute by `mma.sync`, each warp its part of the result: rows are divided first, down to 16, then
/// columns, down to 8.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WarpProduct {
    /// The accumulator, M×N.
    pub acc: LinearMap,
    /// The first operand, M×K.
    pub a: LinearMap,
    /// The second operand, K×N.
    pub b: LinearMap,
}

impl WarpProduct {
    /// Of these extents, by so many warps, in operands of so many bits. `None`: an extent is no power of two.
    pub fn of([m, n, k]: [u32; 3], warps: u32, bits: u32) -> Option<WarpProduct> {
        let acc = Matrix::of(&[m, n], warps)?;
        let (a, b) = (Matrix::of(&[m, k], warps)?, Matrix::of(&[k, n], warps)?);
        let down = acc.warps.min(acc.rows.saturating_sub(4));
        let across = (acc.warps - down).min(acc.columns.saturating_sub(3));
        let warps = |down_bit: &dyn Fn(u32) -> u32, across_bit: &dyn Fn(u32) -> u32| -> Columns {
            (0..acc.warps)
                .map(|w| match w {
                    w if w < down => down_bit(4 + w),
                    w if w < down + across => across_bit(3 + w - down),
                    _ => 0,
                })
                .collect()
        };
        let build = |of: Matrix, registers: &[Bit], lanes: [Bit; 5], warps: &[u32]| {
            of.complete(registers.iter().map(|&x| of.column(x)), lanes.map(|x| of.column(x)), warps)
        };
        let (ra, la, rb, lb): (&[Bit], _, &[Bit], _) = match bits {
            8 => (
                &[J(0), J(1), I(3), J(4)],
                [J(2), J(3), I(0), I(1), I(2)],
                &[I(0), I(1), I(4)],
                [I(2), I(3), J(0), J(1), J(2)],
            ),
            16 => (
                &[J(0), I(3), J(3)],
                [J(1), J(2), I(0), I(1), I(2)],
                &[I(0), I(3)],
                [I(1), I(2), J(0), J(1), J(2)],
            ),
            32 => (&[I(3), J(2)], [J(0), J(1), I(0), I(1), I(2)], &[I(2)], [I(0), I(1), J(0), J(1), J(2)]),
            _ => return None,
        };
        Some(WarpProduct {
            acc: build(
                acc,
                &[J(0), I(3)],
                [J(1), J(2), I(0), I(1), I(2)],
                &warps(&|x| acc.column(I(x)), &|x| acc.column(J(x))),
            )?,
            a: build(a, ra, la, &warps(&|x| a.column(I(x)), &|_| 0))?,
            b: build(b, rb, lb, &warps(&|_| 0, &|x| b.column(J(x))))?,
        })
    }
}

/// An element bit: of the row, or of the column.
#[derive(Copy, Clone)]
enum Bit {
    I(u32),
    J(u32),
}

use Bit::{I, J};

/// What `tcgen05.ld` and `st` move at once.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// `.32x32b`: a row per thread.
    Rows,
    /// `.16x64b`.
    B64,
    /// `.16x128b`.
    B128,
    /// `.16x256b`: the accumulator of `wgmma` with twice the rows.
    B256,
}

impl Matrix {
    /// The tile of these extents; `None` if one is no power of two.
    pub fn of(dims: &[u32], warps: u32) -> Option<Matrix> {
        let log = |n: u32| n.is_power_of_two().then(|| n.trailing_zeros());
        let (&columns, rows) = dims.split_last()?;
        let rows = rows.iter().try_fold(0, |sum, &d| Some(sum + log(d)?))?;
        let m = Matrix { rows, columns: log(columns)?, warps: log(warps)? };
        (m.rows as usize + m.columns as usize <= MAX_BITS).then_some(m)
    }

    fn column(self, bit: Bit) -> u32 {
        match bit {
            I(b) if b < self.rows => 1 << (self.columns + b),
            J(b) if b < self.columns => 1 << b,
            _ => 0,
        }
    }

    /// The map with these bits in the lowest registers, in lanes, and in warps from `first_warp` up the rows.
    fn build(self, registers: &[Bit], lanes: [Bit; 5], first_warp: u32) -> Option<LinearMap> {
        let lanes = lanes.map(|b| self.column(b));
        let warps: Columns = (0..self.warps).map(|w| self.column(I(first_warp + w))).collect();
        self.complete(registers.iter().map(|&b| self.column(b)), lanes, &warps)
    }

    /// The map with these columns; every bit that is missing is in a register.
    fn complete(
        self,
        registers: impl Iterator<Item = u32>,
        lanes: [u32; 5],
        warps: &[u32],
    ) -> Option<LinearMap> {
        let mut register: Columns = registers.filter(|&c| c != 0).collect();
        let mut span = Span::of(&register);
        for &c in lanes.iter().chain(warps) {
            span.push(c);
        }
        register.extend((0..self.rows + self.columns).map(|b| 1 << b).filter(|&c| span.push(c).is_none()));
        LinearMap::registers(&register, &lanes, warps)
    }

    /// The accumulator of `wgmma` and of `mma.sync`, which is also the first operand in 16-bit elements.
    pub fn accumulator(self) -> Option<LinearMap> {
        self.build(&[J(0), I(3)], [J(1), J(2), I(0), I(1), I(2)], 4)
    }

    /// The first operand of `wgmma` and `mma.sync` in elements of 8, 16 or 32 bits, rows by K.
    pub fn operand_a(self, bits: u32) -> Option<LinearMap> {
        match bits {
            8 => self.build(&[J(0), J(1), I(3)], [J(2), J(3), I(0), I(1), I(2)], 4),
            16 => self.accumulator(),
            32 => self.build(&[I(3)], [J(0), J(1), I(0), I(1), I(2)], 4),
            _ => None,
        }
    }

    /// The second operand of `mma.sync` in elements of 8, 16 or 32 bits, K by columns; all warps hold all of it.
    pub fn operand_b(self, bits: u32) -> Option<LinearMap> {
        let (registers, lanes) = match bits {
            8 => (&[I(0), I(1), I(4)][..], [I(2), I(3), J(0), J(1), J(2)]),
            16 => (&[I(0), I(3)][..], [I(1), I(2), J(0), J(1), J(2)]),
            32 => (&[I(2)][..], [I(0), I(1), J(0), J(1), J(2)]),
            _ => return None,
        };
        let warps: Columns = (0..self.warps).map(|_| 0).collect();
        self.complete(registers.iter().map(|&b| self.column(b)), lanes.map(|b| self.column(b)), &warps)
    }

    /// What `tcgen05.ld` of that shape gives of an accumulator with one row in each lane of tensor memory.
    pub fn tensor_load(self, access: Access) -> Option<LinearMap> {
        match access {
            Access::Rows => self.build(&[], [I(0), I(1), I(2), I(3), I(4)], 5),
            Access::B64 => self.build(&[], [I(3), J(0), I(0), I(1), I(2)], 5),
            Access::B128 => self.build(&[I(3)], [J(0), J(1), I(0), I(1), I(2)], 5),
            Access::B256 => self.build(&[J(0), I(3)], [J(1), J(2), I(0), I(1), I(2)], 5),
        }
    }

    /// One row per thread.
    pub fn rows(self) -> Option<LinearMap> {
        self.tensor_load(Access::Rows)
    }

    /// Runs of `1 << vector` elements for each thread, threads one after the other.
    pub fn coalesced(self, vector: u32) -> Option<LinearMap> {
        let bits = self.rows + self.columns;
        let vector = vector.min(bits);
        let bit = |b: u32| if b < bits { 1 << b } else { 0 };
        let lanes = [0, 1, 2, 3, 4].map(|l| bit(vector + l));
        let warps: Columns = (0..self.warps).map(|w| bit(vector + 5 + w)).collect();
        self.complete((0..vector).map(bit), lanes, &warps)
    }

    /// All of it in every thread.
    pub fn everywhere(self) -> Option<LinearMap> {
        let warps: Columns = (0..self.warps).map(|_| 0).collect();
        self.complete(std::iter::empty(), [0; 5], &warps)
    }

    /// Shared memory as TMA and matrix descriptors have it: columns in slabs of `span` bytes, slabs one after the other, rows of a
    /// slab dense; address bits of lines go into those of 16-byte chunks, as many as `span` has.
    pub fn swizzled(self, span: u32, elem_bytes: u32) -> Option<LinearMap> {
        let elem = elem_bytes.is_power_of_two().then(|| elem_bytes.trailing_zeros())?;
        let slab =
            span.is_power_of_two().then(|| span.trailing_zeros())?.checked_sub(elem)?.min(self.columns);
        let swizzle = span.trailing_zeros().saturating_sub(4).min(3);
        let mut offset: Columns = (0..slab).map(|b| 1 << b).collect();
        offset.extend((0..self.rows).map(|b| 1 << (self.columns + b)));
        offset.extend((slab..self.columns).map(|b| 1 << b));
        // Address bit 7 + k holds chunk bit 4 + k besides its own.
        let plain = offset.clone();
        for k in 0..swizzle {
            let at = |bit: u32| bit.checked_sub(elem).map(|b| b as usize);
            if let (Some(line), Some(chunk)) = (at(7 + k), at(4 + k))
                && line < offset.len()
            {
                offset[line] ^= plain[chunk];
            }
        }
        LinearMap::shared(&offset)
    }
}

#[cfg(test)]
mod tests {
    use super::super::map::Axes;
    use super::super::name::{Text, parse};
    use super::*;

    fn text(map: Option<LinearMap>, dims: &[u32]) -> String {
        let (map, axes) = (map.expect("few bits"), Axes::of(dims).expect("powers of two"));
        assert!(map.is_surjective(axes.total()), "{map:?}");
        let text = Text(&map, &axes).to_string();
        assert_eq!(parse(&text, &axes), Ok(map));
        text
    }

    #[test]
    fn constants_read_as_they_are_written() {
        let big = [128, 32];
        let m = Matrix::of(&big, 4).expect("powers of two");
        let of = |map| text(map, &big);
        assert_eq!(of(m.accumulator()), "reg(j1 i8 j8 j16 i64) lane(j2 j4 i1 i2 i4) warp(i16 i32)");
        assert_eq!(of(m.operand_a(8)), "reg(j1 j2 i8 j16 i64) lane(j4 j8 i1 i2 i4) warp(i16 i32)");
        assert_eq!(of(m.operand_a(32)), "reg(i8 j4 j8 j16 i64) lane(j1 j2 i1 i2 i4) warp(i16 i32)");
        assert_eq!(of(m.rows()), "reg(j1 j2 j4 j8 j16) lane(i1 i2 i4 i8 i16) warp(i32 i64)");
        assert_eq!(
            of(m.tensor_load(Access::B256)),
            "reg(j1 i8 j8 j16 i16) lane(j2 j4 i1 i2 i4) warp(i32 i64)"
        );
        assert_eq!(
            of(m.tensor_load(Access::B128)),
            "reg(i8 j4 j8 j16 i16) lane(j1 j2 i1 i2 i4) warp(i32 i64)"
        );
        assert_eq!(
            of(m.tensor_load(Access::B64)),
            "reg(j2 j4 j8 j16 i16) lane(i8 j1 i1 i2 i4) warp(i32 i64)"
        );
        let whole = [128, 128];
        let m = Matrix::of(&whole, 4).expect("powers of two");
        assert_eq!(
            text(m.coalesced(3), &whole),
            "reg(j1 j2 j4 i8 i16 i32 i64) lane(j8 j16 j32 j64 i1) warp(i2 i4)"
        );
        let few = Matrix::of(&[16, 8], 4).expect("powers of two");
        assert_eq!(text(few.rows(), &[16, 8]), "reg(j1 j2 j4) lane(i1 i2 i4 i8 0) warp(0 0)");
        assert_eq!(text(few.everywhere(), &[16, 8]), "reg(j1 j2 j4 i1 i2 i4 i8) lane(0 0 0 0 0) warp(0 0)");
        assert_eq!(text(few.operand_b(16), &[16, 8]), "reg(i1 i8) lane(i2 i4 j1 j2 j4) warp(0 0)");
    }

    #[test]
    fn swizzles_move_chunks() {
        for (span, mask) in [(16, 0), (32, 0x10), (64, 0x30), (128, 0x70)] {
            for bytes in [1, 2, 4] {
                let (rows, columns) = (32, 256);
                let m = Matrix::of(&[rows, columns], 1).expect("powers of two");
                let map = m.swizzled(span, bytes).expect("few bits");
                for e in 0..rows * columns {
                    let (row, column) = (e / columns, e % columns);
                    let slab = span / bytes;
                    let linear = (column / slab * rows * slab + row * slab + column % slab) * bytes;
                    let address = linear ^ linear >> 3 & mask;
                    assert_eq!(map.at(address / bytes), e, "{span} {bytes}");
                }
            }
        }
    }
}
