//! Contents of views: seeded data, strides and guard bytes, and reading them back.
//!
//! Elements are named by their type (`f16`, `i32`, `u8`, `e4m3`, …). Bytes between and behind elements hold a pattern,
//! so that a stray write shows. Deterministic: name and seed give the data.

use crate::mem::global::{BufferId, Memory};
use crate::num::convert::{encode, f64_from};
use crate::num::format::Format;
use crate::sched::policy::Rng;

/// How to fill a view.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// Integers from -2 to 2 (unsigned types: 0 to 4): sums of products are exact.
    Ints,
    /// Uniform in [0, 1).
    Uniform,
    /// About normal: the sum of twelve uniform numbers, less 6.
    Normal,
    /// 0, 1, 2, … up to 250 and again, centred for signed types.
    Ramp,
    /// Random integers from the first number on, below the second.
    Range(i64, i64),
    /// One number everywhere.
    All(f64),
    /// These numbers in row-major order; zeros behind them.
    List(Vec<f64>),
    /// Zeros of both signs, subnormals, infinities, NaN and large numbers between ordinary ones.
    Special,
    /// The elements' bytes in row-major order; zeros behind them.
    Bytes(Vec<u8>),
}

impl Fill {
    /// `ints`, `uniform`, `normal`, `ramp`, `zeros`, `ones`, `nan`, `special`, a range of integers such as `0..16`, or a number.
    pub fn parse(text: &str) -> Option<Fill> {
        Some(match text {
            "ints" => Fill::Ints,
            "uniform" => Fill::Uniform,
            "normal" => Fill::Normal,
            "ramp" => Fill::Ramp,
            "zeros" => Fill::All(0.0),
            "ones" => Fill::All(1.0),
            "nan" => Fill::All(f64::NAN),
            "special" => Fill::Special,
            other => match other.split_once("..") {
                Some((low, high)) => {
                    let exact = |text: &str| text.parse().ok().filter(|n: &i64| n.unsigned_abs() <= 1 << 53);
                    let (low, high) = (exact(low)?, exact(high)?);
                    (low < high).then_some(Fill::Range(low, high))?
                }
                None => Fill::All(other.parse().ok()?),
            },
        })
    }
}

/// An element type of a buffer.
#[derive(Copy, Clone, Debug)]
pub enum Elem {
    /// Floating point.
    Float(&'static Format),
    /// Integer: bytes, signed.
    Int(u32, bool),
}

impl Elem {
    /// By name. Types below a byte are not addressable as elements of a view.
    pub fn by_name(name: &str) -> Option<Elem> {
        Some(match name {
            "i1" | "u8" => Elem::Int(1, false),
            "i8" | "s8" => Elem::Int(1, true),
            "u16" => Elem::Int(2, false),
            "i16" | "s16" => Elem::Int(2, true),
            "u32" => Elem::Int(4, false),
            "i32" | "s32" => Elem::Int(4, true),
            "u64" => Elem::Int(8, false),
            "i64" | "s64" | "index" => Elem::Int(8, true),
            _ => {
                let f = Format::by_name(name)?;
                if f.bits % 8 != 0 {
                    return None;
                }
                Elem::Float(f)
            }
        })
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Elem::Float(f) => f.bits as usize / 8,
            Elem::Int(n, _) => n as usize,
        }
    }

    /// Bits of a number, rounded to nearest even.
    pub fn encode(self, x: f64) -> u64 {
        match self {
            Elem::Float(f) => {
                let value = crate::num::format::F64.decode(x.to_bits());
                encode(value, f, crate::num::arith::RN)
            }
            Elem::Int(n, true) => x as i64 as u64 & mask(n),
            Elem::Int(n, false) => {
                if x.is_nan() {
                    0x5A5A_5A5A_5A5A_5A5A & mask(n)
                } else {
                    x as i64 as u64 & mask(n)
                }
            }
        }
    }

    /// The number that the bytes of an element stand for.
    pub fn read(self, bytes: &[u8]) -> f64 {
        let mut raw = [0; 8];
        let n = bytes.len().min(8);
        raw[..n].copy_from_slice(&bytes[..n]);
        self.decode(u64::from_le_bytes(raw))
    }

    /// Whether the bytes of an element are those of an integer; the upper bits of it are left out.
    pub fn same(self, bytes: &[u8], n: i64) -> bool {
        bytes.len() <= 8 && n.to_le_bytes()[..bytes.len()] == *bytes
    }

    /// The number that the bytes of an element stand for, with all its digits.
    pub fn text(self, bytes: &[u8]) -> String {
        let mut raw = [0; 8];
        let n = bytes.len().min(8);
        raw[..n].copy_from_slice(&bytes[..n]);
        match self {
            Elem::Int(8, true) => i64::from_le_bytes(raw).to_string(),
            Elem::Int(8, false) => u64::from_le_bytes(raw).to_string(),
            _ => self.read(bytes).to_string(),
        }
    }

    /// The number bits stand for.
    pub fn decode(self, bits: u64) -> f64 {
        match self {
            Elem::Float(f) => f64_from(f, bits),
            Elem::Int(n, true) => {
                let unused = 64 - 8 * n;
                ((bits << unused) as i64 >> unused) as f64
            }
            Elem::Int(..) => bits as f64,
        }
    }
}

fn mask(bytes: u32) -> u64 {
    if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 }
}

/// What a view looks like.
#[derive(Clone, Debug)]
pub struct ViewSpec {
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Strides in elements; dense if absent.
    pub strides: Option<Vec<usize>>,
    /// Element type name.
    pub elem: String,
    /// Contents.
    pub fill: Fill,
    /// Guard bytes in front, and as many behind.
    pub pad: usize,
}

impl ViewSpec {
    /// Element type, strides, byte of the first element, and bytes in all.
    fn layout(&self) -> Result<(Elem, Vec<usize>, usize, usize), String> {
        let Some(elem) = Elem::by_name(&self.elem) else {
            return Err(format!("no element type {}", self.elem));
        };
        let dense = || -> Option<Vec<usize>> {
            let mut strides = vec![1usize; self.shape.len()];
            for k in (0..self.shape.len().saturating_sub(1)).rev() {
                strides[k] = strides[k + 1].checked_mul(self.shape[k + 1].max(1))?;
            }
            Some(strides)
        };
        let too_large = || format!("more than {MAX_BYTES} bytes");
        let strides = match &self.strides {
            Some(s) if s.len() == self.shape.len() => s.clone(),
            Some(_) => return Err("as many strides as extents are needed".into()),
            None => dense().ok_or_else(too_large)?,
        };
        let last = self
            .shape
            .iter()
            .zip(&strides)
            .try_fold(0usize, |a, (&n, &s)| a.checked_add(n.saturating_sub(1).checked_mul(s)?));
        let elements = match (self.shape.contains(&0), last.and_then(|l| l.checked_add(1))) {
            (true, _) => 0,
            (false, Some(n)) => n,
            (false, None) => return Err(too_large()),
        };
        // Guards keep the alignment of what follows.
        let offset = self.pad.checked_next_multiple_of(256).ok_or_else(too_large)?;
        let total = elements.checked_mul(elem.bytes()).and_then(|n| n.checked_add(offset.checked_mul(2)?));
        // Strides of 0 or below the extents make few bytes of many elements.
        let count = self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        match (total, count) {
            (Some(total), Some(n)) if total <= MAX_BYTES && n <= MAX_BYTES => {
                Ok((elem, strides, offset, total))
            }
            _ => Err(too_large()),
        }
    }

    /// Bytes that the view takes, with its guards.
    ///
    /// # Errors
    /// Unknown element types, ranks that do not fit, views that are too large.
    pub fn bytes(&self) -> Result<usize, String> {
        Ok(self.layout()?.3)
    }
}

/// A view in memory.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Its buffer.
    pub buffer: BufferId,
    /// Element type.
    pub elem: Elem,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<usize>,
    /// Byte of the first element.
    pub offset: usize,
}

/// Most bytes of one view.
const MAX_BYTES: usize = 1 << 31;

/// Puts a view into memory. The data depend on its name.
///
/// # Errors
/// Unknown element types, ranks that do not fit, views that are too large.
pub fn place(name: &str, spec: &ViewSpec, seed: u64, memory: &mut Memory) -> Result<Placed, String> {
    let (elem, strides, offset, total) = spec.layout().map_err(|e| format!("{name}: {e}"))?;
    if let Fill::Range(low, high) = spec.fill
        && let Some(x) = [low, high - 1].into_iter().find(|&x| elem.decode(elem.encode(x as f64)) != x as f64)
    {
        return Err(format!("{name}: {x} is not exact in {}", spec.elem));
    }
    let (size, empty) = (elem.bytes(), spec.shape.contains(&0));
    let mut bytes: Vec<u8> = (0..total).map(|i| (i as u8) ^ 0x5A).collect();
    let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for b in name.bytes() {
        hash = (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01B3);
    }
    let mut rng = Rng::new(hash);
    let unsigned = matches!(elem, Elem::Int(_, false));
    let count: usize = if empty { 0 } else { spec.shape.iter().product() };
    for i in 0..count {
        let at = offset + position(i, &spec.shape, &strides) * size;
        if let Fill::Bytes(list) = &spec.fill {
            let given = list.get(i * size..(i + 1) * size);
            bytes[at..at + size].copy_from_slice(given.unwrap_or(&[0; 8][..size]));
            continue;
        }
        let x = number(&spec.fill, i, unsigned, &mut rng);
        // A flag is 0 or 1.
        let x = if spec.elem == "i1" { f64::from(x as i64 as u8 & 1) } else { x };
        bytes[at..at + size].copy_from_slice(&elem.encode(x).to_le_bytes()[..size]);
    }
    let buffer = memory.alloc(bytes);
    Ok(Placed { buffer, elem, shape: spec.shape.clone(), strides, offset })
}

/// Offset in elements of element `i` in row-major order.
fn position(mut i: usize, shape: &[usize], strides: &[usize]) -> usize {
    let mut at = 0;
    for (&n, &s) in shape.iter().zip(strides).rev() {
        at += (i % n) * s;
        i /= n;
    }
    at
}

fn number(fill: &Fill, i: usize, unsigned: bool, rng: &mut Rng) -> f64 {
    let unit = |rng: &mut Rng| (rng.bits() >> 11) as f64 / (1u64 << 53) as f64;
    match fill {
        Fill::Ints => rng.below(5) as f64 - if unsigned { 0.0 } else { 2.0 },
        Fill::Range(low, high) => low.saturating_add(rng.below(low.abs_diff(*high) as usize) as i64) as f64,
        Fill::Uniform => unit(rng),
        Fill::Normal => (0..12).map(|_| unit(rng)).sum::<f64>() - 6.0,
        Fill::Ramp => (i % 251) as f64 - if unsigned { 0.0 } else { 125.0 },
        Fill::All(x) => *x,
        Fill::List(list) => list.get(i).copied().unwrap_or(0.0),
        Fill::Bytes(_) => 0.0,
        Fill::Special => {
            const LIST: [f64; 12] = [
                0.0,
                -0.0,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
                65504.0,
                -448.0,
                6.0e-8,
                1.0e-40,
                1.0,
                -1.5,
                0.333,
            ];
            LIST[rng.below(LIST.len())]
        }
    }
}

impl Placed {
    /// Elements in row-major order.
    pub fn numbers(&self, memory: &Memory) -> Vec<f64> {
        let bytes = memory.bytes(self.buffer);
        let size = self.elem.bytes();
        (0..self.count()).map(|i| self.elem.read(&bytes[self.byte(i)..self.byte(i) + size])).collect()
    }

    /// Bytes of the elements in row-major order, without gaps and guards.
    pub fn dense(&self, memory: &Memory) -> Vec<u8> {
        let bytes = memory.bytes(self.buffer);
        let size = self.elem.bytes();
        (0..self.count()).flat_map(|i| bytes[self.byte(i)..self.byte(i) + size].iter().copied()).collect()
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// The element that a byte of the buffer belongs to as `[i, j]`; empty outside all elements.
    pub fn describe(&self, byte: usize) -> String {
        let Some(mut rest) = byte.checked_sub(self.offset).map(|b| b / self.elem.bytes()) else {
            return String::new();
        };
        // Larger strides first; that is unique unless elements overlap.
        let mut order: Vec<usize> = (0..self.shape.len()).collect();
        order.sort_by_key(|&k| std::cmp::Reverse(self.strides[k]));
        let mut at = vec![0; self.shape.len()];
        for k in order {
            at[k] = rest.checked_div(self.strides[k]).unwrap_or(0);
            rest -= at[k] * self.strides[k];
            if at[k] >= self.shape[k] {
                return String::new();
            }
        }
        if rest == 0 { format!("{at:?}") } else { String::new() }
    }

    /// Byte of element `i` (row-major) in the buffer.
    pub fn byte(&self, i: usize) -> usize {
        self.offset + position(i, &self.shape, &self.strides) * self.elem.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_views_keep_their_guards() {
        let mut memory = Memory::new();
        let spec = ViewSpec {
            shape: vec![3, 4],
            strides: Some(vec![8, 1]),
            elem: "f16".into(),
            fill: Fill::Ramp,
            pad: 16,
        };
        let v = place("a", &spec, 1, &mut memory).unwrap();
        let want: Vec<f64> = (0..12).map(|i| f64::from(i) - 125.0).collect();
        assert_eq!(v.numbers(&memory), want);
        assert_eq!(memory.bytes(v.buffer).len(), 256 + (2 * 8 + 4) * 2 + 256);
        // A byte of the gap between the rows.
        let gap = 256 + 4 * 2;
        assert_eq!(memory.bytes(v.buffer)[gap], gap as u8 ^ 0x5A);
        assert_eq!(v.strides, [8, 1]);
        let far = ViewSpec { shape: vec![1 << 40, 1 << 40], strides: None, ..spec };
        assert!(place("b", &far, 1, &mut memory).is_err());
    }

    #[test]
    fn the_same_seed_gives_the_same_data() {
        let make = |seed| {
            let mut memory = Memory::new();
            let spec =
                ViewSpec { shape: vec![64], strides: None, elem: "f32".into(), fill: Fill::Normal, pad: 0 };
            place("a", &spec, seed, &mut memory).unwrap().numbers(&memory)
        };
        assert_eq!(make(3), make(3));
        assert_ne!(make(3), make(4));
    }
}
