//! Tensor maps: limits of the driver's encoder, boxes against an element-by-element copy.

use tileas_emu::layout::Swizzle;
use tileas_emu::layout::tma::{Piece, RedOp};
use tileas_emu::layout::tma_map::{MapDesc, OobFill, TensorMap, TmaType};

const BASE: u64 = 0x7000_0000;

fn desc(elem: TmaType, dims: &[u64], strides: &[u64], box_dims: &[u32], swizzle: Swizzle) -> MapDesc {
    MapDesc {
        elem,
        address: BASE,
        dims: dims.to_vec(),
        strides: strides.to_vec(),
        box_dims: box_dims.to_vec(),
        element_strides: vec![],
        swizzle,
        oob: OobFill::Zero,
    }
}

#[test]
fn limits_of_the_encoder() {
    let good = desc(TmaType::Bf16, &[100, 40], &[208], &[64, 32], Swizzle::B128);
    let map = TensorMap::new(&good).unwrap();
    assert_eq!((map.inner_bytes(), map.rows(), map.tx_bytes(), map.smem_bytes()), (128, 32, 4096, 4096));
    assert_eq!(map.extent(), (BASE, BASE + 39 * 208 + 200));
    assert_eq!(map.smem_align(), (128, 1024));
    let rule = |change: &dyn Fn(&mut MapDesc)| {
        let mut d = good.clone();
        change(&mut d);
        TensorMap::new(&d).unwrap_err().rule
    };
    assert_eq!(rule(&|d| d.address += 8), "map.address");
    assert_eq!(rule(&|d| d.dims[0] = 0), "map.dim");
    assert_eq!(rule(&|d| d.dims[1] = (1 << 32) + 1), "map.dim");
    assert_eq!(rule(&|d| d.strides[0] = 200), "map.stride");
    assert_eq!(rule(&|d| d.strides[0] = 1 << 40), "map.stride");
    assert_eq!(rule(&|d| d.box_dims[1] = 257), "map.box");
    assert_eq!(rule(&|d| d.box_dims[1] = 0), "map.box");
    assert_eq!(rule(&|d| d.box_dims[0] = 12), "map.inner");
    assert_eq!(rule(&|d| d.box_dims[0] = 72), "map.inner");
    assert_eq!(rule(&|d| d.swizzle = Swizzle::B64), "map.inner");
    assert_eq!(rule(&|d| d.element_strides = vec![1, 9]), "map.element_stride");
    assert_eq!(rule(&|d| d.element_strides = vec![1]), "map.rank");
    assert_eq!(rule(&|d| d.strides.clear()), "map.rank");
    assert_eq!(rule(&|d| (d.elem, d.oob) = (TmaType::U16, OobFill::Nan)), "map.oob");
    assert_eq!(rule(&|d| d.elem = TmaType::U4Align16), "map.stride");
    assert_eq!(rule(&|d| (d.elem, d.strides[0]) = (TmaType::U4Align16, 224)), "map.packed");
    assert_eq!(map.check_box(&[0, 0], 64, false).unwrap_err().rule, "tma.align");
    assert_eq!(map.check_box(&[0], 0, false).unwrap_err().rule, "tma.rank");
    assert_eq!(map.check_box(&[0, -1], 0, true).unwrap_err().rule, "tma.coord");
    assert!(map.check_box(&[0, -1], 0, false).is_ok());
    for (code, elem) in (0..).zip(TmaType::DRIVER_ORDER) {
        assert_eq!((elem.driver_code(), TmaType::from_driver(code)), (code, Some(elem)));
    }
    assert_eq!(
        [TmaType::F16, TmaType::Bf16, TmaType::Tf32, TmaType::U6Align16].map(TmaType::driver_code),
        [6, 9, 11, 15]
    );
}

/// Place of a byte of the box without the crate's swizzle: the chunk number within its row of 128
/// bytes is combined with the row's low bits, as many as the mode has.
fn place(swizzle: Swizzle, linear: u32) -> u32 {
    let (row, chunk, byte) = (linear / 128, linear / 16 % 8, linear % 16);
    let (chunk, byte) = match swizzle {
        Swizzle::None => (chunk, byte),
        Swizzle::B32 => (chunk ^ (row % 2), byte),
        Swizzle::B64 => (chunk ^ (row % 4), byte),
        Swizzle::B128 => (chunk ^ (row % 8), byte),
        Swizzle::B128Atom32 => (chunk ^ (2 * (row % 4)), byte),
        Swizzle::B128Atom32Flip8 => {
            (chunk ^ (2 * (row % 4)), if row % 2 == 1 { (byte + 8) % 16 } else { byte })
        }
        Swizzle::B128Atom64 => (chunk ^ (4 * (row % 2)), byte),
    };
    row * 128 + chunk * 16 + byte
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn apply_load(map: &TensorMap, pieces: &[Piece], global: &[u8], smem: &mut [Option<u8>]) {
    for p in pieces {
        for i in 0..p.bytes {
            let byte = match p.global {
                Some(g) => global[(g - map.address) as usize + i as usize],
                None => map.fill_byte(p.smem + i),
            };
            let at = (p.smem + i) as usize;
            assert!(smem[at].is_none(), "byte {at} written twice");
            smem[at] = Some(byte);
        }
    }
}

#[test]
fn boxes_match_an_element_copy() {
    let mut rng = Rng(11);
    let modes = Swizzle::DRIVER_ORDER;
    for round in 0..400 {
        let swizzle = modes[round % 7];
        let elem = [TmaType::U8, TmaType::Bf16, TmaType::F32, TmaType::U64][rng.below(4) as usize];
        let size = elem.bits() / 8;
        let rank = 1 + rng.below(5) as usize;
        let span = if swizzle == Swizzle::None { 64 } else { swizzle.span() };
        let inner = 16 * (1 + rng.below(u64::from(span / 16)) as u32) / size;
        let mut box_dims = vec![inner.max(16 / size)];
        let mut dims = vec![1 + rng.below(3 * u64::from(inner) + 1)];
        let mut strides = vec![];
        let mut steps = vec![1];
        let mut pitch = (dims[0] * u64::from(size)).next_multiple_of(16) + 16 * rng.below(2);
        for _ in 1..rank {
            box_dims.push(1 + rng.below(5) as u32);
            dims.push(1 + rng.below(7));
            steps.push(1 + rng.below(3) as u32);
            strides.push(pitch);
            pitch = pitch * dims[dims.len() - 1] + 16 * rng.below(2);
        }
        let mut d = desc(elem, &dims, &strides, &box_dims, swizzle);
        d.element_strides = steps.clone();
        let map = TensorMap::new(&d).unwrap();
        let mut coords: Vec<i32> = dims.iter().map(|&n| rng.below(n + 4) as i32 - 2).collect();
        let step = (16 / size) as i32;
        coords[0] = coords[0] / step * step;
        let global: Vec<u8> = (0..map.extent().1 - BASE).map(|_| 1 + rng.below(255) as u8).collect();
        let smem_at = 1024u32;
        let mut smem = vec![None; (smem_at + map.smem_bytes() + 1024) as usize];
        let mut pieces = vec![];
        map.pieces(&coords, smem_at, false, &mut pieces).unwrap();
        apply_load(&map, &pieces, &global, &mut smem);

        // Element by element, dimension 0 fastest.
        let counts: Vec<u32> = box_dims.iter().zip(&steps).map(|(&b, &s)| b.div_ceil(s)).collect();
        let total: u32 = counts.iter().product();
        let mut covered = 0;
        let mut stored = vec![0u8; global.len()];
        for e in 0..total {
            let mut rest = e;
            let mut offset = Some(0u64);
            let mut line = 0;
            let mut weight = 1;
            for i in 0..rank {
                let digit = rest % counts[i];
                rest /= counts[i];
                let c = i64::from(coords[i]) + i64::from(digit) * i64::from(steps[i]);
                let stride = if i == 0 { u64::from(size) } else { strides[i - 1] };
                offset = offset.filter(|_| c >= 0 && c < dims[i] as i64).map(|o| o + c as u64 * stride);
                if i > 0 {
                    line += digit * weight;
                    weight *= counts[i];
                }
            }
            let row_bytes = if swizzle == Swizzle::None { counts[0] * size } else { swizzle.span() };
            let linear = smem_at + line * row_bytes + e % counts[0] * size;
            for b in 0..size {
                let at = place(swizzle, linear + b) as usize;
                let want = offset.map_or(0, |o| global[o as usize + b as usize]);
                assert_eq!(smem[at], Some(want), "{d:?} at {coords:?}: element {e} byte {b}");
                covered += 1;
                if let Some(o) = offset {
                    stored[o as usize + b as usize] = want;
                }
            }
        }
        assert_eq!(covered, map.tx_bytes());
        assert_eq!(smem.iter().flatten().count() as u32, covered);
        // Storing the loaded box writes back exactly its part of the tensor.
        let mut back = vec![0u8; global.len()];
        for p in &pieces {
            let Some(g) = p.global else { continue };
            for i in 0..p.bytes as usize {
                back[(g - BASE) as usize + i] = smem[p.smem as usize + i].unwrap();
            }
        }
        assert_eq!(back, stored);
    }
}

#[test]
fn padded_types_spread_groups() {
    let d = desc(TmaType::U4Align16, &[256, 4], &[128], &[128, 2], Swizzle::B128);
    let map = TensorMap::new(&d).unwrap();
    assert_eq!((map.tx_bytes(), map.inner_bytes()), (256, 128));
    let mut pieces = vec![];
    map.pieces(&[128, 3], 0, false, &mut pieces).unwrap();
    // Row 3 of the tensor: 128 elements from byte 64; row 4 is outside.
    assert_eq!(pieces[2], Piece { smem: 16, global: Some(BASE + 3 * 128 + 64 + 8), bytes: 8 });
    assert_eq!(pieces[3], Piece { smem: 24, global: None, bytes: 8 });
    assert_eq!(pieces[16], Piece { smem: 128 + 16, global: None, bytes: 8 });
    assert_eq!(pieces.iter().map(|p| p.bytes).sum::<u32>(), 256);
}

#[test]
fn gathered_rows_follow_each_other() {
    let d = desc(TmaType::F16, &[64, 10], &[128], &[64, 1], Swizzle::B128);
    let map = TensorMap::new(&d).unwrap();
    let mut pieces = vec![];
    map.row_gather(&[0, 7, 2, 11, 2], 1024, &mut pieces).unwrap();
    assert_eq!(pieces.len(), 32);
    assert_eq!(pieces[9], Piece { smem: 1024 + 128, global: Some(BASE + 2 * 128 + 16), bytes: 16 });
    assert!(pieces[16..24].iter().all(|p| p.global.is_none()));
    assert!(
        TensorMap::new(&desc(TmaType::F16, &[64, 10], &[128], &[64, 2], Swizzle::B128))
            .unwrap()
            .row_gather(&[0; 5], 0, &mut pieces)
            .is_err()
    );
}

#[test]
fn fills_and_element_conversions() {
    let mut d = desc(TmaType::Bf16, &[8], &[], &[16], Swizzle::None);
    d.oob = OobFill::Nan;
    let map = TensorMap::new(&d).unwrap();
    assert_eq!([map.fill_byte(16), map.fill_byte(17)], [0xF7, 0x7F]);
    let map = |elem| TensorMap::new(&desc(elem, &[8], &[], &[8], Swizzle::None)).unwrap();
    assert_eq!(map(TmaType::F32Ftz).load_element(0x8000_0001), 0x8000_0000);
    assert_eq!(map(TmaType::F32).load_element(0x8000_0001), 0x8000_0001);
    assert_eq!(map(TmaType::Tf32).load_element(0x3F80_1001), 0x3F80_2000);
}

#[test]
fn reductions() {
    let f = |x: f32| u64::from(x.to_bits());
    assert_eq!(RedOp::Add.apply(TmaType::F32, f(1.5), f(2.0)), f(3.5));
    assert_eq!(RedOp::Add.apply(TmaType::F16, 0x3C00, 0x1000), 0x3C00); // 1 + 2^-11 ties to even
    assert_eq!(RedOp::Max.apply(TmaType::Bf16, 0xBF80, 0x7FFF), 0xBF80);
    assert_eq!(RedOp::Min.apply(TmaType::Bf16, 0x0000, 0x8000), 0x8000);
    assert_eq!(RedOp::Min.apply(TmaType::S32, 5, 0xFFFF_FFFF), 0xFFFF_FFFF);
    assert_eq!(RedOp::Min.apply(TmaType::U32, 5, 0xFFFF_FFFF), 5);
    assert_eq!(RedOp::Max.apply(TmaType::S64, u64::MAX, 1), 1);
    assert_eq!(RedOp::Add.apply(TmaType::U32, 0xFFFF_FFFF, 2), 1);
    assert_eq!([RedOp::Inc.apply(TmaType::U32, 3, 3), RedOp::Inc.apply(TmaType::U32, 2, 3)], [0, 3]);
    assert_eq!([RedOp::Dec.apply(TmaType::U32, 0, 3), RedOp::Dec.apply(TmaType::U32, 2, 3)], [3, 1]);
    assert_eq!(RedOp::Xor.apply(TmaType::U64, 5, 1), 4);
    assert!(
        RedOp::Add.allowed(TmaType::Bf16)
            && !RedOp::Max.allowed(TmaType::F32)
            && !RedOp::And.allowed(TmaType::F16)
    );
}
