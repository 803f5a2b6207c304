//! Random layouts for tests.

use super::gf2::{Columns, Span, sum};
use super::map::LinearMap;

/// A linear congruential generator.
pub struct Random(pub u64);

impl Random {
    /// A number below `n`.
    pub fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(n.max(1))) as u32
    }

    /// Those vectors in another order.
    pub fn shuffled(&mut self, mut v: Columns) -> Columns {
        for i in (1..v.len()).rev() {
            v.swap(i, self.below(i as u32 + 1) as usize);
        }
        v
    }
}

/// A register layout of `bits` bits with that many register and warp bits: permuted bits, bits with some sums among them,
/// or any columns; with copies where there is room.
fn map(random: &mut Random, bits: u32, registers: usize, warps: usize, kind: u32) -> LinearMap {
    let places = registers + 5 + warps;
    loop {
        let mut c: Columns = (0..places).map(|k| if k < bits as usize { 1 << k } else { 0 }).collect();
        c = random.shuffled(c);
        if kind > 0 {
            for _ in 0..if kind == 1 { 3 } else { 40 } {
                let (a, b) = (random.below(places as u32) as usize, random.below(places as u32) as usize);
                if a != b {
                    c[a] ^= c[b];
                }
            }
        }
        if Span::of(&c).rank() < bits {
            continue;
        }
        let lanes = [c[registers], c[registers + 1], c[registers + 2], c[registers + 3], c[registers + 4]];
        return LinearMap::registers(&c[..registers], &lanes, &c[registers + 5..]).expect("few bits");
    }
}

/// Two layouts of a tile. `in_warp`: what a warp wants it has.
pub fn pair(random: &mut Random, round: u32, in_warp: bool) -> (LinearMap, LinearMap) {
    let kind = round % 3;
    let warps = random.below(3) as usize;
    let (ra, rb) = (random.below(5) as usize, random.below(5) as usize);
    let least = 1 + random.below((ra.min(rb) + 5 + warps) as u32);
    let bits = least.max(1);
    let source = map(random, bits, ra, warps, kind);
    if !in_warp {
        let result = map(random, bits, rb, warps, kind);
        return (source, result);
    }
    // The warps' columns differ by what a warp has; with the others they have to reach everything.
    let inside: Columns = source.register().iter().chain(source.lane()).copied().collect();
    let n = inside.len() as u32;
    let any = |random: &mut Random| match kind {
        0 => inside[random.below(n) as usize],
        _ => sum(&inside, random.below(1 << n)),
    };
    let registers: Columns = (0..rb).map(|_| any(random)).collect();
    let lane: [u32; 5] =
        std::array::from_fn(|k| if random.below(2) == 0 { source.lane()[k] } else { any(random) });
    let warp: Columns =
        source.warp().iter().map(|&w| if random.below(2) == 0 { w } else { w ^ any(random) }).collect();
    let result = LinearMap::registers(&registers, &lane, &warp).expect("few bits");
    (source, result)
}
