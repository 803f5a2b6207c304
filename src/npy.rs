//! Arrays in numpy's `.npy` format, versions 1 to 3: C order, little-endian.
//!
//! Element types that numpy lacks (`bf16`, `e4m3`, …) are written as unsigned integers of their size, and are read from
//! any type of their size.

use tileas_emu::host::data::Elem;

/// A file's array: type (`<f2`), extents, elements in row-major order.
#[derive(Debug, PartialEq)]
pub struct Array<'a> {
    /// The type, as the file names it.
    pub descr: &'a str,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Bytes of the elements.
    pub data: &'a [u8],
}

const MAGIC: &[u8] = b"\x93NUMPY";

/// Whether bytes are such a file.
pub fn is_npy(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Reads a file.
pub fn read(bytes: &[u8]) -> Result<Array<'_>, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("no .npy file")?;
    let length = |n: usize| -> Option<usize> {
        let raw = rest.get(2..2 + n)?;
        Some(raw.iter().rev().fold(0, |v, &b| v << 8 | usize::from(b)))
    };
    let (start, length) = match rest.first() {
        Some(1) => (4, length(2)),
        Some(2 | 3) => (6, length(4)),
        _ => return Err("unknown version of .npy".into()),
    };
    let end = length.and_then(|n| n.checked_add(start));
    let (Some(header), Some(data)) = (end.and_then(|e| rest.get(start..e)), end.and_then(|e| rest.get(e..)))
    else {
        return Err("the header is cut off".into());
    };
    let header = std::str::from_utf8(header).map_err(|_| "the header is not text")?;
    let after = |key: &str| -> Result<&str, String> {
        let at = header.find(&format!("'{key}':")).ok_or_else(|| format!("the header has no {key}"))?;
        Ok(header[at + key.len() + 3..].trim_start())
    };
    let descr = after("descr")?.strip_prefix('\'').and_then(|d| d.split('\'').next());
    let descr = descr.ok_or("structured types are not supported")?;
    if after("fortran_order")?.starts_with("True") {
        return Err("arrays in Fortran order are not supported".into());
    }
    if descr.starts_with('>') {
        return Err("big-endian arrays are not supported".into());
    }
    let shape = after("shape")?.strip_prefix('(').and_then(|s| s.split(')').next()).ok_or("no shape")?;
    let extents = shape.split(',').map(str::trim).filter(|s| !s.is_empty());
    let shape: Result<Vec<usize>, _> = extents.map(str::parse).collect();
    Ok(Array { descr, shape: shape.map_err(|_| "malformed shape")?, data })
}

/// numpy's name of an element type.
pub fn descr(name: &str) -> Option<String> {
    let elem = Elem::by_name(name)?;
    Some(match (name, elem) {
        ("i1", _) => "|b1".into(),
        ("f16" | "f32" | "f64", _) => format!("<f{}", elem.bytes()),
        (_, Elem::Int(1, signed)) => (if signed { "|i1" } else { "|u1" }).into(),
        (_, Elem::Int(n, true)) => format!("<i{n}"),
        (_, Elem::Int(n, false)) => format!("<u{n}"),
        (_, Elem::Float(_)) if elem.bytes() == 1 => "|u1".into(),
        (_, Elem::Float(_)) => format!("<u{}", elem.bytes()),
    })
}

/// The element type that numpy calls `descr`; `None` where that does not say it.
pub fn elem_of(descr: &str) -> Option<&'static str> {
    Some(match descr {
        "|b1" => "i1",
        "<f2" => "f16",
        "<f4" => "f32",
        "<f8" => "f64",
        "|i1" => "i8",
        "<i2" => "i16",
        "<i4" => "i32",
        "<i8" => "i64",
        "|u1" => "u8",
        "<u2" => "u16",
        "<u4" => "u32",
        "<u8" => "u64",
        _ => return None,
    })
}

/// Whether elements of type `name` may come from an array of type `descr`.
pub fn fits(name: &str, descr: &str) -> bool {
    let Some(elem) = Elem::by_name(name) else { return false };
    let size: Option<usize> = descr.get(2..).and_then(|n| n.parse().ok());
    let kind = descr.get(1..2).unwrap_or("");
    let numpy_has_it = matches!(elem, Elem::Int(..)) || matches!(name, "f16" | "f32" | "f64");
    size == Some(elem.bytes())
        && match elem {
            Elem::Int(..) => matches!(kind, "i" | "u" | "b"),
            Elem::Float(_) if numpy_has_it => kind == "f",
            Elem::Float(_) => true,
        }
}

/// A file's bytes; `None` for types without a size.
pub fn write(elem: &str, shape: &[usize], data: &[u8]) -> Option<Vec<u8>> {
    let extents: String = shape.iter().map(|n| format!("{n},")).collect();
    let mut header =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({extents}), }}", descr(elem)?);
    // Magic, version and length are ten bytes; everything is padded to 64.
    let total = (10 + header.len() + 1).next_multiple_of(64);
    header.extend(std::iter::repeat_n(' ', total - 11 - header.len()));
    header.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (elem, descr) in [("f16", "<f2"), ("bf16", "<u2"), ("i32", "<i4"), ("u8", "|u1"), ("i1", "|b1")] {
            let size = Elem::by_name(elem).expect("known").bytes();
            let data: Vec<u8> = (0..6 * size as u8).collect();
            let file = write(elem, &[2, 3], &data).expect("a type of numpy");
            assert_eq!(file.len() % 64, data.len() % 64);
            let back = read(&file).expect("readable");
            assert_eq!(back, Array { descr, shape: vec![2, 3], data: &data });
            assert!(fits(elem, descr));
        }
        assert!(!fits("f16", "<u2") && !fits("f32", "<f8") && !fits("i32", "<f4") && fits("bf16", "|V2"));
        let file = write("f64", &[], &[0; 8]).expect("a type of numpy");
        assert_eq!(read(&file).expect("readable").shape, [0usize; 0]);
    }

    #[test]
    fn damaged_files_are_errors() {
        let file = write("f32", &[1], &[0; 4]).expect("a type of numpy");
        for n in 0..file.len() - 5 {
            assert!(read(&file[..n]).is_err(), "{n}");
        }
        let changed = |from: &str, to: &str| {
            let at = file.windows(from.len()).position(|w| w == from.as_bytes()).expect("there");
            let mut f = file.clone();
            f[at..at + to.len()].copy_from_slice(to.as_bytes());
            read(&f).map(|_| ())
        };
        assert!(changed("False", "True ").is_err());
        assert!(changed("<f4", ">f4").is_err());
        assert!(changed("(1,", "(x,").is_err());
        assert!(changed("shape", "shope").is_err());
    }
}
