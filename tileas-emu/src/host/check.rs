//! Compares memory after a run with reference values.
//!
//! In: the bytes of a view's buffer before and after, a reference value for every element that must be written, a
//! tolerance. Guarantee: elements with a reference are near enough, and no other byte of the buffer has changed,
//! whether between the elements, in the guards or in elements without a reference.

use super::data::Placed;

/// How near a result must be: |result - reference| ≤ `relative` · scale. 0: equal.
///
/// NaN equals NaN, and the zeros are equal. Relative to an infinity nothing but equal numbers is near. The scale of a sum of products is Σ|a·b|, since rounding errors grow with
/// what is summed and not with what is left after cancellation.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Tolerance {
    /// Factor of the scale.
    pub relative: f64,
}

impl Tolerance {
    /// Equal.
    pub const EXACT: Tolerance = Tolerance { relative: 0.0 };

    /// `exact`, a number, or a power (`2^-9`).
    pub fn parse(text: &str) -> Option<Tolerance> {
        let relative: f64 = match (text, text.split_once('^')) {
            ("exact", _) => 0.0,
            (_, Some((base, e))) => base.trim().parse::<f64>().ok()?.powf(e.trim().parse().ok()?),
            _ => text.parse().ok()?,
        };
        (relative.is_finite() && relative >= 0.0).then_some(Tolerance { relative })
    }

    /// Whether a result is near enough.
    pub fn allows(self, got: f64, want: f64, scale: f64) -> bool {
        got == want
            || (got.is_nan() && want.is_nan())
            || (self.relative > 0.0 && scale.is_finite() && (got - want).abs() <= self.relative * scale)
    }
}

/// What one element must be.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Reference {
    /// Byte of the element in its buffer.
    pub byte: usize,
    /// Value.
    pub value: f64,
    /// Of an integer, the value with all its bits, which decides; its sign is that of the element's type.
    pub integer: Option<i64>,
    /// What the tolerance is relative to.
    pub scale: f64,
}

/// A result that is not as it must be.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// What, with the place.
    pub message: String,
    /// Elements that differ in all.
    pub count: usize,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.message)?;
        if self.count > 1 { write!(f, "; {} elements differ", self.count) } else { Ok(()) }
    }
}

impl std::error::Error for Difference {}

/// Compares one buffer.
///
/// # Errors
/// The first difference.
pub fn compare(
    name: &str,
    view: &Placed,
    before: &[u8],
    after: &[u8],
    references: impl IntoIterator<Item = Reference>,
    tolerance: Tolerance,
) -> Result<(), Difference> {
    let size = view.elem.bytes();
    let mut expected = before.to_vec();
    let (mut first, mut count) = (None, 0);
    for r in references {
        let range = r.byte..r.byte + size;
        let (Some(now), Some(slot)) = (after.get(range.clone()), expected.get_mut(range)) else {
            let message = format!("{name}: byte {} is outside the buffer", r.byte);
            return Err(Difference { message, count: 0 });
        };
        let got = view.elem.read(now);
        let near = match r.integer {
            Some(n) => view.elem.same(now, n),
            None => tolerance.allows(got, r.value, r.scale),
        };
        if !near {
            let texts = match r.integer {
                Some(n) => (view.elem.text(now), view.elem.text(&n.to_le_bytes()[..size.min(8)])),
                None => (got.to_string(), r.value.to_string()),
            };
            first.get_or_insert((r, got, texts));
            count += 1;
        }
        slot.copy_from_slice(now);
    }
    if let Some((r, got, (is, want))) = first {
        let limit = match tolerance.relative {
            _ if r.integer.is_some() => String::new(),
            0.0 => String::new(),
            t => format!(" (difference {:e}, allowed {:e})", (got - r.value).abs(), t * r.scale),
        };
        let at = view.describe(r.byte);
        let message = format!("{name}{at} is {is}, expected {want}{limit}");
        return Err(Difference { message, count });
    }
    if let Some(k) = (0..after.len()).find(|&k| Some(&after[k]) != expected.get(k)) {
        let at = view.describe(k);
        let message = format!("{name}{at}: byte {k} of the buffer was changed; nothing stores there");
        return Err(Difference { message, count: 0 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;
    use crate::host::data::{Fill, ViewSpec, place};

    #[test]
    fn tolerances() {
        assert_eq!(Tolerance::parse("2^-9"), Some(Tolerance { relative: 1.0 / 512.0 }));
        assert_eq!(Tolerance::parse("exact"), Some(Tolerance::EXACT));
        assert_eq!(Tolerance::parse("0.5"), Some(Tolerance { relative: 0.5 }));
        for bad in ["", "-1", "nan", "2^", "2^x", "inf", "2^9999"] {
            assert_eq!(Tolerance::parse(bad), None, "{bad}");
        }
        let t = Tolerance { relative: 0.25 };
        assert!(t.allows(1.0, 2.0, 4.0) && !t.allows(1.0, 2.0, 3.9));
        assert!(!t.allows(1.0, 2.0, f64::INFINITY) && t.allows(f64::INFINITY, f64::INFINITY, 1.0));
        assert!(!t.allows(f64::NAN, 2.0, 4.0) && !t.allows(2.0, f64::INFINITY, f64::NAN));
        assert!(Tolerance::EXACT.allows(f64::NAN, f64::NAN, 0.0) && Tolerance::EXACT.allows(0.0, -0.0, 0.0));
        assert!(!Tolerance::EXACT.allows(1.0, 1.0 + f64::EPSILON, f64::INFINITY));
    }

    #[test]
    fn values_gaps_and_guards_count() {
        let mut memory = Memory::new();
        let spec = ViewSpec {
            shape: vec![2, 3],
            strides: Some(vec![4, 1]),
            elem: "i32".into(),
            fill: Fill::All(5.0),
            pad: 16,
        };
        let v = place("c", &spec, 1, &mut memory).unwrap();
        let before = memory.bytes(v.buffer).to_vec();
        let reference =
            |i: usize, value: f64| Reference { byte: v.byte(i), value, integer: None, scale: 1.0 };
        let run = |after: &[u8], list: &[Reference]| {
            compare("c", &v, &before, after, list.iter().copied(), Tolerance::EXACT)
                .map_err(|d| d.to_string())
        };
        let mut after = before.clone();
        after[v.byte(4)] = 9;
        assert_eq!(run(&after, &[reference(4, 9.0)]), Ok(()));
        assert_eq!(run(&after, &[reference(4, 8.0)]), Err("c[1, 1] is 9, expected 8".into()));
        assert!(run(&after, &[]).unwrap_err().contains("c[1, 1]: byte"));
        let both = run(&after, &[reference(3, 1.0), reference(4, 1.0)]).unwrap_err();
        assert_eq!(both, "c[1, 0] is 5, expected 1; 2 elements differ");
        // All bits of integers count, whatever their sign is taken for.
        let exact = |n: i64| Reference { integer: Some(n), ..reference(4, n as f64) };
        assert_eq!(run(&after, &[exact(9)]), Ok(()));
        assert_eq!(run(&after, &[exact(9 - (1 << 32))]), Ok(()), "the bits of an i32");
        assert_eq!(run(&after, &[exact(8)]), Err("c[1, 1] is 9, expected 8".into()));
        // Between the rows, and in the guard.
        for byte in [v.byte(2) + 4, 3] {
            let mut after = before.clone();
            after[byte] ^= 1;
            assert!(run(&after, &[]).unwrap_err().contains("nothing stores there"), "{byte}");
        }
        assert!(run(&before, &[Reference { byte: 9999, value: 0.0, integer: None, scale: 0.0 }]).is_err());
    }
}
