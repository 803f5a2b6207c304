//! Operands of matrix instructions in shared memory: address maps and values.

use crate::detect::Who;
use crate::exec::{Trap, X};
use crate::layout::idesc::Elem;
use crate::layout::operand::Operand;
use crate::mem::cta::Cta;
use crate::num::format::{BF16, F16, F32, Format, TF32};
use std::sync::{Arc, OnceLock};

/// Where an operand's elements are.
#[derive(Debug)]
pub struct OperandMap {
    /// Byte address of element `[mn][k]`.
    pub address: Vec<u32>,
    /// The 32-bit cells they lie in, each once, in order.
    pub cells: Vec<u32>,
    /// Extents.
    pub shape: (usize, usize),
}

fn f16_table() -> &'static [f32] {
    static T: OnceLock<Vec<f32>> = OnceLock::new();
    T.get_or_init(|| (0..=0xFFFFu16).map(crate::num::convert::f16_to_f32).collect())
}

/// A decoder of one format's patterns.
pub fn decoder(format: &'static Format) -> Box<dyn Fn(u32) -> f32> {
    if *format == F16 {
        let t = f16_table();
        return Box::new(|v| t[(v & 0xFFFF) as usize]);
    }
    if *format == BF16 {
        return Box::new(|v| f32::from_bits(v << 16));
    }
    if *format == F32 || *format == TF32 {
        return Box::new(crate::num::convert::tf32_operand);
    }
    let mask = (1u64 << format.bits) - 1;
    let t: Vec<f32> = (0..256u64).map(|v| crate::num::f32_from(format, v & mask)).collect();
    Box::new(move |v| t[(v & 0xFF) as usize])
}

/// A decoder of one element type's patterns.
pub fn element_decoder(e: Elem) -> Box<dyn Fn(u32) -> f32> {
    match e {
        Elem::Float(f) => decoder(f),
        Elem::U8 => Box::new(|v| (v & 0xFF) as f32),
        Elem::S8 => Box::new(|v| f32::from(v as u8 as i8)),
        Elem::S32 => Box::new(|v| v as i32 as f32),
    }
}

/// Element type of a name: a float format, `u8`, `s8` or `s32`.
pub fn element(name: &str) -> Option<Elem> {
    Some(match name {
        "u8" => Elem::U8,
        "s8" => Elem::S8,
        "s32" => Elem::S32,
        _ => Elem::Float(Format::by_name(name)?),
    })
}

/// Bytes of an element.
pub fn element_bytes(e: Elem) -> u32 {
    match e {
        Elem::Float(f) => f.bits.div_ceil(8),
        Elem::U8 | Elem::S8 => 1,
        Elem::S32 => 4,
    }
}

/// An accumulator's new bits: `sum` plus the old bits if they take part. Integer sums are exact in
/// f64 and wrap, or saturate.
pub fn accumulated(d: Elem, sum: f64, old: Option<u32>, saturate: bool) -> u32 {
    match d {
        Elem::Float(f) => {
            let prior = old.map_or(0.0, |o| f64::from(crate::num::f32_from(f, u64::from(o))));
            crate::num::mma::finish(f, sum + prior) as u32
        }
        _ => {
            let all = sum as i64 + old.map_or(0, |o| i64::from(o as i32));
            let all = if saturate { all.clamp(i32::MIN.into(), i32::MAX.into()) } else { all };
            all as i32 as u32
        }
    }
}

impl Cta {
    /// The map of an operand, checked for bounds.
    pub fn operand_map(&mut self, o: Operand) -> X<Arc<OperandMap>> {
        if let Some(m) = self.operand_cache.get(&o) {
            return Ok(m.clone());
        }
        o.check()?;
        let mut address = Vec::with_capacity((o.mn * o.k) as usize);
        for mn in 0..o.mn {
            for k in 0..o.k {
                address.push(o.address(mn, k));
            }
        }
        let mut cells: Vec<u32> = address.iter().map(|a| a / 4).collect();
        cells.sort_unstable();
        cells.dedup();
        let (lo, hi) = (cells.first().copied().unwrap_or(0) * 4, cells.last().copied().unwrap_or(0) * 4 + 4);
        self.smem.check(lo, hi - lo, 1, "matrix operand")?;
        let m = Arc::new(OperandMap { address, cells, shape: (o.mn as usize, o.k as usize) });
        if self.operand_cache.len() > 4096 {
            self.operand_cache.clear();
        }
        self.operand_cache.insert(o, m.clone());
        Ok(m)
    }

    /// Checks and records the asynchronous read of an operand.
    pub fn touch_operand(&mut self, m: &OperandMap, who: Option<&Who<'_>>, what: &str) -> X<()> {
        let mut i = 0;
        while i < m.cells.len() {
            let mut n = 1;
            while i + n < m.cells.len() && m.cells[i + n] == m.cells[i] + n as u32 {
                n += 1;
            }
            let (at, bytes) = (m.cells[i] * 4, 4 * n as u32);
            self.smem.check_defined(at, bytes, what)?;
            if self.explore {
                self.footprint.bytes(at, bytes, false);
            }
            if let Some(w) = who {
                self.det.shared(at, bytes, false, w)?;
            }
            i += n;
        }
        Ok(())
    }

    /// Values `[mn][k]` of an operand whose elements have `elem` bytes.
    pub fn operand_values(&self, m: &OperandMap, elem: u32, format: &'static Format) -> Vec<f32> {
        let f = decoder(format);
        let b = &self.smem.bytes;
        let raw = |a: u32| {
            let a = a as usize;
            match elem {
                1 => u32::from(b[a]),
                2 => u32::from(u16::from_le_bytes([b[a], b[a + 1]])),
                _ => u32::from_le_bytes([b[a], b[a + 1], b[a + 2], b[a + 3]]),
            }
        };
        m.address.iter().map(|&a| f(raw(a))).collect()
    }

    /// Values `[mn][k]` of an operand of any element type.
    pub fn operand_elements(&self, m: &OperandMap, e: Elem) -> Vec<f32> {
        match e {
            Elem::Float(f) => self.operand_values(m, element_bytes(e), f),
            _ => self.operand_bytes(m, e == Elem::S8).into_iter().map(|v| v as f32).collect(),
        }
    }

    /// Integer values of an operand of bytes.
    pub fn operand_bytes(&self, m: &OperandMap, signed: bool) -> Vec<i32> {
        m.address
            .iter()
            .map(|&a| {
                let v = self.smem.bytes[a as usize];
                if signed { i32::from(v as i8) } else { i32::from(v) }
            })
            .collect()
    }
}

/// `sum_k a[row][k] * b[n][k]` for all `n`, in f64 in order of k; `bt` is `[k][n]`.
// The hot loop of matrix products: by itself it gets the registers it needs.
#[inline(never)]
pub fn row_times(a: &[f32], bt: &[f64], n: usize, out: &mut [f64]) {
    out.fill(0.0);
    for (k, &x) in a.iter().enumerate() {
        let x = f64::from(x);
        for (o, &y) in out.iter_mut().zip(&bt[k * n..(k + 1) * n]) {
            *o += x * y;
        }
    }
}

/// `[n][k]` values as `[k][n]` in f64.
pub fn transpose(b: &[f32], n: usize, k: usize) -> Vec<f64> {
    let mut t = vec![0.0; n * k];
    for i in 0..n {
        for j in 0..k {
            t[j * n + i] = f64::from(b[i * k + j]);
        }
    }
    t
}

/// Rejects a mask of formats a machine could not mix.
pub fn same_k(a: &OperandMap, b: &OperandMap) -> X<()> {
    if a.shape.1 == b.shape.1 { Ok(()) } else { Err(Trap::new("layout", "operands differ in K")) }
}
