//! The text form of maps: `reg(j1 i8 j8 j16^i1 0) lane(j2 j4 i1 i2 i4) warp(i16 i32)`.
//!
//! Each kind of bits lists its columns, lowest bit first. A column is a sum of element bits, each an axis (`i`, `j`, `k`, `p`,
//! `q`, …, outermost first) and the coordinate that it adds; `0` is a column without any. Kinds without bits are left out.
//! Guarantee: what is printed parses to the same map.

use super::gf2::{Columns, MAX_BITS};
use super::map::{Axes, Home, LinearMap};
use std::fmt;

/// Letters of the axes.
const LETTERS: [char; 16] = ['i', 'j', 'k', 'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z', 'a', 'b'];

/// A map as text.
#[derive(Copy, Clone, Debug)]
pub struct Text<'a>(pub &'a LinearMap, pub &'a Axes);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Text(map, axes) = *self;
        let mut first = true;
        for (kind, name) in map.home().kinds().iter().enumerate() {
            let columns = map.kind(kind);
            if columns.is_empty() {
                continue;
            }
            write!(f, "{}{name}(", if first { "" } else { " " })?;
            first = false;
            for (n, &column) in columns.iter().enumerate() {
                if n > 0 {
                    f.write_str(" ")?;
                }
                if column == 0 {
                    f.write_str("0")?;
                }
                let mut any = false;
                for (axis, letter) in LETTERS.iter().enumerate().take(axes.rank()) {
                    let x = axes.coordinate(column, axis);
                    for b in (0..axes.bits(axis)).filter(|b| x >> b & 1 == 1) {
                        write!(f, "{}{letter}{}", if any { "^" } else { "" }, 1u32 << b)?;
                        any = true;
                    }
                }
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl fmt::Debug for LinearMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, name) in self.home().kinds().iter().enumerate() {
            write!(f, "{name}{:?}", self.kind(kind))?;
        }
        Ok(())
    }
}

/// Reads a map.
///
/// # Errors
/// What is wrong, with the part it is about.
pub fn parse(text: &str, axes: &Axes) -> Result<LinearMap, String> {
    let mut found: Vec<(&str, Columns)> = Vec::new();
    for part in text.split_inclusive(')') {
        let part = part.trim();
        let (name, columns) = part
            .strip_suffix(')')
            .and_then(|p| p.split_once('('))
            .ok_or_else(|| format!("`{part}` is no list of columns, such as `reg(j1 j2)`"))?;
        let columns: Result<Columns, String> = columns.split_whitespace().map(|c| column(c, axes)).collect();
        if found.iter().any(|f| f.0 == name) {
            return Err(format!("`{name}` is there twice"));
        }
        found.push((name, columns?));
    }
    let homes = [Home::Registers, Home::Shared, Home::Tensor];
    let known = |h: &Home| found.iter().all(|f| h.kinds().contains(&f.0));
    let home = homes.into_iter().find(|h| !found.is_empty() && known(h)).ok_or_else(|| {
        "kinds of bits are `reg`, `lane`, `warp` and `cta`, or `off`, or `tlane` and `tcol`".to_owned()
    })?;
    let of = |kind: usize| -> &[u32] {
        let name = home.kinds().get(kind);
        found.iter().find(|f| Some(&f.0) == name).map_or(&[], |f| &f.1)
    };
    if home == Home::Registers && of(1).len() != 5 {
        return Err(format!("a warp has 5 bits of lanes, but got {}", of(1).len()));
    }
    LinearMap::new(home, [of(0), of(1), of(2), of(3)])
        .ok_or_else(|| format!("at most {MAX_BITS} bits are possible"))
}

fn column(text: &str, axes: &Axes) -> Result<u32, String> {
    if text == "0" {
        return Ok(0);
    }
    text.split('^').try_fold(0, |sum, bit| {
        let mut letters = bit.chars();
        let axis =
            letters.next().and_then(|c| LETTERS.iter().position(|&l| l == c)).filter(|&a| a < axes.rank());
        let (Some(axis), Ok(x)) = (axis, letters.as_str().parse::<u32>()) else {
            return Err(format!("`{bit}` is no axis with a power of two, such as `j4`"));
        };
        if !x.is_power_of_two() || x >> axes.bits(axis) != 0 || letters.as_str().starts_with(['+', '0']) {
            return Err(format!("`{bit}` is no bit of an axis of {} elements", 1u32 << axes.bits(axis)));
        }
        Ok(sum ^ x << axes.low(axis))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let mut seed = 5u64;
        for n in 0..600 {
            let dims = [&[8u32, 16][..], &[1, 64], &[128], &[2, 2, 2, 4, 8]][n % 4];
            let axes = Axes::of(dims).expect("powers of two");
            let mut some = |count: usize| -> Columns {
                (0..count)
                    .map(|_| {
                        seed = seed
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        (seed >> 33) as u32 & ((1 << axes.total()) - 1)
                    })
                    .collect()
            };
            let (a, b, c) = (some(n % 5), some(5), some(n % 3));
            let map = match n % 3 {
                0 => LinearMap::registers(&a, &[b[0], b[1], b[2], b[3], b[4]], &c),
                1 => LinearMap::shared(&b),
                _ => LinearMap::tensor(&b, &c),
            };
            let map = map.expect("few bits");
            assert_eq!(parse(&Text(&map, &axes).to_string(), &axes), Ok(map));
        }
    }

    #[test]
    fn text_is_that_of_the_pages() {
        let axes = Axes::of(&[64, 32]).expect("powers of two");
        let text = "reg(j1 i8 j8 i1^j16 0) lane(j2 j4 i1 i2 i4) warp(i16 i32)";
        let map = parse(text, &axes).expect("a map");
        assert_eq!(Text(&map, &axes).to_string(), text);
        assert_eq!(map.register(), [1, 8 << 5, 8, 16 | 1 << 5, 0]);
        for (wrong, why) in [
            ("", "kinds of bits"),
            ("reg(j1)", "5 bits of lanes"),
            ("reg(j1", "no list of columns"),
            ("off(j1) off(j2)", "twice"),
            ("off(j1) tcol(j2)", "kinds of bits"),
            ("off(j3)", "no bit of an axis of 32"),
            ("off(j32)", "no bit of an axis of 32"),
            ("off(j+1)", "no bit"),
            ("off(k1)", "no axis"),
            ("off(j1^)", "no axis"),
            ("off(0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0)", "at most 24"),
        ] {
            let error = parse(wrong, &axes).expect_err(wrong);
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
