//! `docs/launching.md` has the numbers that the code has.

use std::collections::BTreeMap;
use tileas_launch::{Elem, L2, Oob, Swizzle};

/// Cells of the rows of all tables, without the marks of code.
fn rows() -> Vec<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/launching.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let cells = |line: &str| line.split('|').map(|c| c.trim().replace('`', "")).collect();
    page.lines().filter(|l| l.starts_with('|')).map(cells).collect()
}

#[test]
fn enums_of_tensor_maps_are_as_written() {
    let mut types = BTreeMap::new();
    let (mut swizzles, mut promotions, mut fills) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows() {
        // Names of the driver's enum begin with a capital.
        if let [_, names, name, number, _] = &row[..]
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && let Ok(number) = number.parse::<u32>()
        {
            types.extend(names.split(", ").map(|name| (name.to_owned(), number)));
        }
        if let [_, swizzle, _, s, l2, _, l, oob, _, o, _] = &row[..]
            && let (Ok(s), Ok(l)) = (s.parse::<u32>(), l.parse::<u32>())
        {
            swizzles.push((swizzle.clone(), s));
            promotions.push((l2.clone(), l));
            fills.extend(o.parse::<u32>().map(|o| (oob.clone(), o)));
        }
    }
    let known: BTreeMap<String, u32> =
        Elem::ALL.iter().filter_map(|e| Some((e.name().to_owned(), e.map_type()?))).collect();
    assert_eq!(types, known);
    let number = |(name, _): &(String, u32)| Swizzle::by_name(name).map(|s| s as u32);
    assert_eq!(swizzles.iter().map(number).collect::<Vec<_>>(), [Some(0), Some(1), Some(2), Some(3)]);
    assert!(swizzles.iter().all(|s| number(s) == Some(s.1)), "{swizzles:?}");
    assert_eq!(promotions.len(), 4);
    assert!(promotions.iter().all(|(n, i)| L2::by_name(n).map(|l| l as u32) == Some(*i)), "{promotions:?}");
    assert_eq!(fills.len(), 2);
    assert!(fills.iter().all(|(n, i)| Oob::by_name(n).map(|o| o as u32) == Some(*i)), "{fills:?}");
}

#[test]
fn every_code_is_listed() {
    let listed: Vec<String> =
        rows().iter().flat_map(|r| r[1].split(", ").map(str::to_owned).collect::<Vec<_>>()).collect();
    for (code, _) in tileas_launch::Code::ALL {
        assert!(listed.iter().any(|l| l == code.as_str()), "{code}");
    }
}
