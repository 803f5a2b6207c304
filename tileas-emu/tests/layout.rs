//! Layouts against the manual's tables, written another way: swizzles as chunk tables, canonical
//! layouts as nested shapes and strides, fragments as the manual's case lists.

use std::collections::BTreeSet;

use tileas_emu::layout::frag::{self, MatrixForm};
use tileas_emu::layout::idesc::{Elem, Idesc, Kind};
use tileas_emu::layout::operand::{Family, Major, Operand, SmemDesc};
use tileas_emu::layout::swizzle::Swizzle;
use tileas_emu::layout::tmem::{self, DataPath, Shape};
use tileas_emu::layout::tmem_cp::CpShape;
use tileas_emu::num::format::{BF16, E2M1, E4M3, F16, F32, TF32};

#[test]
fn swizzles_are_the_manuals_tables() {
    // Rows of 128 bytes; entry = number of the 16-byte chunk found at that place.
    let b32 = ["01234567", "10325476"];
    let b64 = ["01234567", "10325476", "23016745", "32107654"];
    let b128 =
        ["01234567", "10325476", "23016745", "32107654", "45670123", "54761032", "67452301", "76543210"];
    let atom32 = ["01234567", "23016745", "45670123", "67452301"];
    let atom64 = ["01234567", "45670123"];
    let cases: [(Swizzle, &[&str], u32); 5] = [
        (Swizzle::B32, &b32, 256),
        (Swizzle::B64, &b64, 512),
        (Swizzle::B128, &b128, 1024),
        (Swizzle::B128Atom32, &atom32, 512),
        (Swizzle::B128Atom64, &atom64, 256),
    ];
    for (mode, rows, repeat) in cases {
        assert_eq!(mode.repeat(), repeat);
        for line in 0..32u32 {
            let row = rows[line as usize % rows.len()].as_bytes();
            for place in 0..8u32 {
                let chunk = u32::from(row[place as usize] - b'0');
                for byte in [0, 7, 15] {
                    let from = line * 128 + chunk * 16 + byte;
                    assert_eq!(mode.apply(from), line * 128 + place * 16 + byte, "{mode:?}");
                }
            }
        }
    }
    for mode in Swizzle::DRIVER_ORDER {
        for a in 0..4096 {
            assert_eq!(mode.apply(mode.apply(a)), a);
            assert_eq!(mode.apply(a + 8192), mode.apply(a) + 8192);
        }
        assert_eq!(Swizzle::from_driver(mode.driver_code()), Some(mode));
        assert_eq!(Swizzle::by_name(mode.name()), Some(mode));
    }
    // The flip swaps 8-byte halves in odd lines only.
    assert_eq!(Swizzle::B128Atom32Flip8.apply(0x08), 0x08);
    assert_eq!(Swizzle::B128Atom32Flip8.apply(0x80), 0x80 ^ 0x20 ^ 0x08);
}

/// Index into a mode of nested sizes with their strides.
fn mode(index: u32, sizes: &[u32], strides: &[u32]) -> u32 {
    let mut rest = index;
    let mut sum = 0;
    for (i, (&size, &stride)) in sizes.iter().zip(strides).enumerate() {
        let digit = if i + 1 == sizes.len() { rest } else { rest % size };
        rest /= size;
        sum += digit * stride;
    }
    sum
}

/// `Swizzle<bits, 4, 3>` on 16-byte chunks: bits 7.. move down onto bits 4...
fn cute_swizzle(bits: u32, address: u32) -> u32 {
    let mut out = address;
    for b in 0..bits {
        if address & 1 << (7 + b) != 0 {
            out ^= 1 << (4 + b);
        }
    }
    out
}

#[test]
fn operands_follow_the_canonical_layouts() {
    for elem in [1u32, 2, 4] {
        // T elements per 16 bytes; all strides below are in bytes.
        let t = 16 / elem;
        for (bits, swizzle) in [(0, Swizzle::None), (1, Swizzle::B32), (2, Swizzle::B64), (3, Swizzle::B128)]
        {
            let (lbo, sbo) = (0x2000, 0x800);
            let desc = SmemDesc { start: 0x4000, lbo, sbo, base_offset: 0, swizzle };
            let width = 1 << bits; // chunks in a row of the pattern
            for major in [Major::K, Major::Mn] {
                let op = Operand::new(desc, major, elem, 64);
                for mn in 0..op.mn {
                    for k in 0..op.k {
                        let offset = match (major, bits) {
                            // ((8,m),(T,2k)):((1T,SBO),(1,LBO))
                            (Major::K, 0) => mode(mn, &[8, 1], &[16, sbo]) + mode(k, &[t, 1], &[elem, lbo]),
                            // ((8,m),(T,2k)):((wT,SBO),(1,T))
                            (Major::K, _) => {
                                mode(mn, &[8, 1], &[width * 16, sbo]) + mode(k, &[t, 1], &[elem, 16])
                            }
                            // ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO))
                            (Major::Mn, 0) => {
                                mode(mn, &[t, 1, 1], &[elem, 16, sbo]) + mode(k, &[8, 1], &[16, lbo])
                            }
                            // ((T,w,m),(8,k)):((1,T,LBO),(wT,SBO))
                            (Major::Mn, _) => {
                                mode(mn, &[t, width, 1], &[elem, 16, lbo])
                                    + mode(k, &[8, 1], &[width * 16, sbo])
                            }
                        };
                        let want = cute_swizzle(bits, 0x4000 + offset);
                        assert_eq!(op.address(mn, k), want, "{major:?} {swizzle:?} elem {elem} ({mn}, {k})");
                    }
                }
                if major == Major::K && bits > 0 && width * 16 < 32 {
                    assert!(op.check().is_err());
                } else {
                    assert_eq!(op.check(), Ok(()), "{major:?} {swizzle:?}");
                }
            }
        }
    }
}

#[test]
fn advancing_the_start_steps_along_k() {
    // A K-major tile of 128 rows and 64 bf16 columns as a tensor map stores it.
    let tile = |row: u32, col: u32| 0x4000 + row * 128 + ((col / 8) ^ (row % 8)) * 16 + col % 8 * 2;
    let desc = SmemDesc { start: 0x4000, lbo: 16, sbo: 1024, base_offset: 0, swizzle: Swizzle::B128 };
    for step in 0..4 {
        let op = Operand::new(desc.advance(32 * step), Major::K, 2, 128);
        assert_eq!(op.check(), Ok(()));
        for mn in 0..128 {
            for k in 0..16 {
                assert_eq!(op.address(mn, k), tile(mn, 16 * step + k));
            }
        }
    }
    // Half a step more leaves the row; a start in another row needs a base offset.
    assert_eq!(Operand::new(desc.advance(112), Major::K, 2, 64).check().unwrap_err().rule, "desc.k_step");
    assert_eq!(Operand::new(desc.advance(128), Major::K, 2, 64).check().unwrap_err().rule, "desc.pattern");
    // MN-major: 64 columns of K rows of 128 bytes, 16 rows per step.
    let desc = SmemDesc { start: 0x8000, lbo: 64 * 128, sbo: 1024, base_offset: 0, swizzle: Swizzle::B128 };
    for step in 0..4 {
        let op = Operand::new(desc.advance(2048 * step), Major::Mn, 2, 128);
        for mn in 0..128u32 {
            for k in 0..16 {
                let (row, slab, col) = (16 * step + k, mn / 64, mn % 64);
                let want = 0x8000 + slab * 8192 + row * 128 + ((col / 8) ^ (row % 8)) * 16 + col % 8 * 2;
                assert_eq!(op.address(mn, k), want);
            }
        }
    }
    // A pattern that starts two lines into its repeat: same image, shifted by 256 bytes.
    let base = SmemDesc { start: 0x4100, lbo: 16, sbo: 1024, base_offset: 2, swizzle: Swizzle::B128 };
    let op = Operand::new(base, Major::K, 2, 16);
    assert_eq!(op.check(), Ok(()));
    for mn in 0..16 {
        for k in 0..16 {
            assert_eq!(op.address(mn, k), tile(mn, k) + 0x100);
        }
    }
}

#[test]
fn descriptor_bits() {
    // Values of public kernels: K-major, 128-byte rows.
    let d = SmemDesc::decode(0x4000_4040_0001_0040, Family::Tcgen05).unwrap();
    assert_eq!(d, SmemDesc { start: 0x400, lbo: 16, sbo: 1024, base_offset: 0, swizzle: Swizzle::B128 });
    let d = SmemDesc::decode(0x4000_0040_0001_0040, Family::Wgmma).unwrap();
    assert_eq!(d, SmemDesc { start: 0x400, lbo: 16, sbo: 1024, base_offset: 0, swizzle: Swizzle::B128 });
    assert_eq!(SmemDesc::decode(0x8000_0020_0001_0040, Family::Wgmma).unwrap().swizzle, Swizzle::B64);
    assert_eq!(SmemDesc::decode(0xC000_0010_0001_0040, Family::Wgmma).unwrap().swizzle, Swizzle::B32);
    assert_eq!(SmemDesc::decode(0x8000_4020_0001_0040, Family::Tcgen05).unwrap().swizzle, Swizzle::B64);
    assert_eq!(SmemDesc::decode(0xC000_4010_0001_0040, Family::Tcgen05).unwrap().swizzle, Swizzle::B32);
    let rule = |bits, family| SmemDesc::decode(bits, family).unwrap_err().rule;
    assert_eq!(rule(0x4000_0040_0001_0040, Family::Tcgen05), "desc.version");
    assert_eq!(rule(0x6000_4040_0001_0040, Family::Tcgen05), "desc.swizzle");
    assert_eq!(rule(0x4000_4040_0001_0040, Family::Wgmma), "desc.reserved");
    assert_eq!(rule(0x4000_4040_0001_4040, Family::Tcgen05), "desc.reserved");
    for family in [Family::Wgmma, Family::Tcgen05] {
        for swizzle in [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128] {
            let d = SmemDesc { start: 0x3FFF0, lbo: 0x120, sbo: 0x3FFF0, base_offset: 5, swizzle };
            assert_eq!(SmemDesc::decode(d.encode(family), family), Ok(d));
        }
    }
}

#[test]
fn instruction_descriptor_bits() {
    let i = Idesc::decode(0x0840_0490, Kind::F16, 1).unwrap();
    assert_eq!(
        (i.m, i.n, i.a, i.b, i.d),
        (128, 256, Elem::Float(&BF16), Elem::Float(&BF16), Elem::Float(&F32))
    );
    assert_eq!((i.a_major, i.b_major), (Major::K, Major::K));
    let i = Idesc::decode(0x0821_0010, Kind::F16, 1).unwrap();
    assert_eq!((i.m, i.n, i.a, i.b_major), (128, 128, Elem::Float(&F16), Major::Mn));
    let i = Idesc::decode(0x1040_0010, Kind::F8F6F4, 2).unwrap();
    assert_eq!((i.m, i.n, i.a), (256, 256, Elem::Float(&E4M3)));
    let i = Idesc::decode(0x0410_0910, Kind::Tf32, 1).unwrap();
    assert_eq!((i.m, i.n, i.a), (64, 64, Elem::Float(&TF32)));
    let i = Idesc::decode(0x0820_00A0, Kind::I8, 1).unwrap();
    assert_eq!((i.m, i.n, i.a, i.b, i.d), (128, 128, Elem::S8, Elem::U8, Elem::S32));
    assert_eq!(Idesc::decode(0x0840_0010 | 5 << 7, Kind::F8F6F4, 1).unwrap().a, Elem::Float(&E2M1));
    let rule = |bits, kind, ctas| Idesc::decode(bits, kind, ctas).unwrap_err().rule;
    assert_eq!(rule(0x0840_0490 | 1 << 6, Kind::F16, 1), "idesc.reserved");
    assert_eq!(rule(0x0840_0490 | 1 << 23, Kind::F16, 1), "idesc.reserved");
    assert_eq!(rule(0x0840_0490 | 1 << 30, Kind::F16, 1), "idesc.shift");
    assert_eq!(rule(0x0840_0410, Kind::F16, 1), "idesc.type"); // f16 with bf16
    assert_eq!(rule(0x0840_0480, Kind::F16, 1), "idesc.type"); // bf16 into f16
    assert_eq!(rule(0x0840_0490, Kind::Tf32, 1), "idesc.type");
    assert_eq!(rule(0x1040_0490, Kind::F16, 1), "idesc.shape"); // M = 256
    assert_eq!(rule(0x0440_0490, Kind::F16, 2), "idesc.shape"); // M = 64
    assert_eq!(rule(0x0800_0490, Kind::F16, 1), "idesc.shape"); // N = 0
    assert_eq!(rule(0x0402_0490, Kind::F16, 2), "idesc.shape"); // N = 8
    assert_eq!(rule(0x0840_0010 | 5 << 7 | 1 << 15, Kind::F8F6F4, 1), "idesc.transpose");
    assert_eq!(rule(0x0820_00A0 | 1 << 13, Kind::I8, 1), "idesc.negate");
    assert_eq!(rule(0x0400_0000 | 5 << 17 | 0xA0, Kind::I8, 1), "idesc.shape"); // N = 40
}

#[test]
fn wgmma_fragments() {
    // Every element of D once, for all N.
    for n in (8..=256).step_by(8) {
        assert!(frag::wgmma_n_ok(n, false));
        let mut seen = BTreeSet::new();
        let mut packed = BTreeSet::new();
        for t in 0..128 {
            for r in 0..n / 2 {
                let (row, col) = frag::wgmma_d32(t, r);
                assert!(row < 64 && col < n && seen.insert((row, col)));
            }
            for r in 0..n / 4 {
                for p in 0..2 {
                    assert!(packed.insert(frag::wgmma_d16(t, r, p)));
                }
            }
        }
        assert_eq!(seen.len() as u32, 64 * n);
        assert_eq!(packed, seen);
    }
    assert!(
        !frag::wgmma_n_ok(40, true)
            && frag::wgmma_n_ok(24, true)
            && !frag::wgmma_n_ok(0, false)
            && !frag::wgmma_n_ok(264, false)
    );
    for elem in [1, 2, 4] {
        let mut seen = BTreeSet::new();
        for t in 0..128 {
            for r in 0..4 {
                for p in 0..4 / elem {
                    let (row, k) = frag::wgmma_a(t, r, p, elem);
                    assert!(row < 64 && k < 32 / elem && seen.insert((row, k)));
                }
            }
        }
    }
    // Accumulators packed to 16 bits are the A fragment of the next product.
    for t in 0..128 {
        for step in 0..4 {
            for j in 0..4 {
                for p in 0..2 {
                    let (row, k) = frag::wgmma_a(t, j, p, 2);
                    let d = 8 * step + 4 * (j >> 1) + 2 * (j & 1) + p;
                    assert_eq!(frag::wgmma_d32(t, d), (row, 16 * step + k));
                }
            }
        }
    }
}

#[test]
fn mma_fragments_are_the_manuals_cases() {
    for lane in 0..32u32 {
        let (group, tid) = (lane >> 2, lane % 4);
        // m16n8k16, 16 bits: a0..a7.
        for i in 0..8u32 {
            let row = if i < 2 || (4..6).contains(&i) { group } else { group + 8 };
            let col = tid * 2 + (i & 1) + if i < 4 { 0 } else { 8 };
            assert_eq!(frag::mma_a(lane, i / 2, i % 2, 2), (row, col));
        }
        for i in 0..4u32 {
            let row = tid * 2 + (i & 1) + if i < 2 { 0 } else { 8 };
            assert_eq!(frag::mma_b(lane, i / 2, i % 2, 2), (row, group));
            let row = if i < 2 { group } else { group + 8 };
            assert_eq!(frag::mma_d32(lane, i), (row, tid * 2 + (i & 1)));
            assert_eq!(frag::mma_d16(lane, i / 2, i % 2), (row, tid * 2 + (i & 1)));
        }
        // m16n8k8, tf32: a0..a3, b0, b1.
        for i in 0..4u32 {
            let row = if i == 0 || i == 2 { group } else { group + 8 };
            let col = if i < 2 { tid } else { tid + 4 };
            assert_eq!(frag::mma_a(lane, i, 0, 4), (row, col));
        }
        for i in 0..2u32 {
            assert_eq!(frag::mma_b(lane, i, 0, 4), (if i == 0 { tid } else { tid + 4 }, group));
        }
        // m16n8k32, 8 bits: a0..a15, b0..b7.
        for i in 0..16u32 {
            let row = if i < 4 || (8..12).contains(&i) { group } else { group + 8 };
            let col = if i < 8 { tid * 4 + (i & 3) } else { tid * 4 + (i & 3) + 16 };
            assert_eq!(frag::mma_a(lane, i / 4, i % 4, 1), (row, col));
        }
        for i in 0..8u32 {
            let row = tid * 4 + (i & 3) + if i < 4 { 0 } else { 16 };
            assert_eq!(frag::mma_b(lane, i / 4, i % 4, 1), (row, group));
        }
    }
}

#[test]
fn matrix_moves_cover_their_matrices() {
    for form in [MatrixForm::M8N8B16, MatrixForm::M16N16B8, MatrixForm::M16N8B8, MatrixForm::M8N16B8] {
        for trans in [false, true] {
            let mut seen = BTreeSet::new();
            for lane in 0..32 {
                for reg in 0..form.regs() {
                    for part in 0..4 / form.elem() {
                        let (row, col) = form.element(trans, lane, reg, part);
                        assert!(row < form.rows() && (col + 1) * form.elem() <= 16, "{form:?}");
                        assert!(seen.insert((row, col)), "{form:?}");
                    }
                }
            }
            assert_eq!(seen.len() as u32 * form.elem(), form.rows() * 16, "{form:?}");
        }
    }
    // m16n8k16 B from memory rows of K through .trans, A without.
    for lane in 0..32 {
        for part in 0..2 {
            assert_eq!(MatrixForm::M8N8B16.element(true, lane, 0, part), frag::mma_b(lane, 0, part, 2));
            assert_eq!(MatrixForm::M8N8B16.element(false, lane, 0, part), frag::mma_a(lane, 0, part, 2));
        }
        // The 8-bit store takes accumulators of two rows, transposed.
        for part in 0..4 {
            let (row, col) = frag::mma_d32(lane, part);
            assert_eq!(MatrixForm::M16N8B8.element(true, lane, 0, part), (col, row));
        }
    }
    assert_eq!(MatrixForm::M8N8B16.address_lane(2, 5), 21);
    assert_eq!(MatrixForm::M16N16B8.address_lane(1, 3), 19);
}

#[test]
fn tensor_memory_shapes() {
    let shapes = [Shape::L32x32b, Shape::L16x64b, Shape::L16x128b, Shape::L16x256b, Shape::L16x32bx2];
    for shape in shapes {
        for repeat in [1u32, 2, 4, 8, 16, 32, 64, 128] {
            if !shape.repeat_ok(repeat) {
                assert!(shape.regs(repeat) > 128);
                continue;
            }
            let imm = repeat;
            let mut seen = BTreeSet::new();
            let mut halves = BTreeSet::new();
            for t in 0..32 {
                for r in 0..shape.regs(repeat) {
                    let (lane, col) = shape.at(t, r, imm);
                    assert!(lane < shape.lanes() && col < shape.width(repeat, imm, false));
                    assert!(seen.insert((lane, col)));
                    for (lane, col) in shape.packed(t, r, 2 * imm) {
                        assert!(col < shape.width(repeat, 2 * imm, true));
                        assert!(halves.insert((lane, col)));
                    }
                }
            }
            assert_eq!(
                seen.len() as u32,
                shape.lanes() * shape.width(repeat, imm, false),
                "{shape:?} x{repeat}"
            );
            assert_eq!(halves.len(), 2 * seen.len());
        }
    }
    // Thread 5 = quad 1 of line 1.
    assert_eq!(Shape::L16x256b.at(5, 6, 0), (9, 10));
    assert_eq!(Shape::L16x128b.at(5, 3, 0), (9, 5));
    assert_eq!(Shape::L16x64b.at(5, 3, 0), (9, 6));
    assert_eq!(Shape::L16x64b.at(6, 0, 0), (1, 1));
    assert_eq!(Shape::L16x32bx2.at(20, 1, 8), (4, 9));
    // A warp reaches its quarter only.
    assert_eq!(Shape::L32x32b.base(0x0040_0010, 2), Ok((64, 16)));
    assert_eq!(Shape::L16x256b.base(0x0050_0000, 2), Ok((80, 0)));
    for address in [0, 0x0020_0000, 0x0050_0000, 0x0041_0000] {
        assert_eq!(Shape::L32x32b.base(address, 2).unwrap_err().rule, "tmem.lane");
    }
    assert!(tmem::check_alloc(32).is_ok() && tmem::check_alloc(512).is_ok());
    for n in [0, 16, 48, 1024] {
        assert_eq!(tmem::check_alloc(n).unwrap_err().rule, "tmem.alloc");
    }
}

#[test]
fn accumulators_and_copies_in_tensor_memory() {
    let full = DataPath::of(128, 1).unwrap();
    let half = DataPath::of(64, 1).unwrap();
    let split = DataPath::of(128, 2).unwrap();
    assert_eq!(full.at(77, 5, 64), (0, 77, 5));
    assert_eq!(DataPath::of(256, 2).unwrap().at(200, 5, 64), (1, 72, 5));
    // M = 64: rows 0..16, 16..32, ... at lanes 0, 32, 64, 96.
    assert_eq!([0, 15, 16, 47, 63].map(|r| half.at(r, 0, 8).1), [0, 15, 32, 79, 111]);
    assert_eq!(split.at(70, 40, 64), (1, 70, 8));
    assert!(half.check_lane(16).is_ok() && full.check_lane(16).is_err() && half.check_lane(32).is_err());
    assert_eq!(DataPath::of(32, 1), None);
    assert_eq!(
        [tmem::a_column(5, 2), tmem::a_column(7, 1), tmem::a_column(3, 4)],
        [(2, 16), (1, 24), (3, 0)]
    );
    for (shape, multicast, copies) in [
        ("128x256b", "", 1),
        ("4x256b", "", 1),
        ("128x128b", "", 1),
        ("64x128b", "warpx2::02_13", 2),
        ("64x128b", "warpx2::01_23", 2),
        ("32x128b", "warpx4", 4),
    ] {
        let cp = CpShape::by_name(shape, multicast).unwrap();
        let mut lanes: BTreeSet<u32> = BTreeSet::new();
        for row in 0..cp.rows() {
            let (to, n) = cp.lanes(row);
            assert_eq!(n, copies);
            lanes.extend(&to[..n]);
        }
        assert_eq!(lanes.len(), cp.rows() as usize * copies);
    }
    assert!(CpShape::by_name("64x128b", "").is_err());
    // Scale factors: 512 bytes, row r of 32 at 16 r.
    let desc = SmemDesc { start: 0x400, lbo: 0, sbo: 128, base_offset: 0, swizzle: Swizzle::None };
    let cp = CpShape::by_name("32x128b", "warpx4").unwrap();
    assert_eq!(
        (cp.source(desc, 0, 0), cp.source(desc, 9, 3), cp.source(desc, 31, 0)),
        (0x400, 0x400 + 156, 0x400 + 496)
    );
}
