//! Formats of `print`: those of C's `printf`, checked and cut into pieces.
//!
//! In: the text of a format. Out: [`Piece`]s in order, or what is wrong with it. What a value is printed as follows from its type, so the
//! lengths of C (`l`, `ll`, `h`, …) are read over.

use smallvec::SmallVec;

/// A part of a format.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text, in which a percent sign is written twice.
    Text(&'a str),
    /// How the next value is printed.
    Spec(Spec<'a>),
}

/// How one value is printed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// Flags, width and precision, as written.
    pub how: &'a str,
    /// The conversion: `d`, `f`, ….
    pub conversion: char,
}

impl Spec<'_> {
    /// Whether it prints floats, else integers.
    pub fn is_float(&self) -> bool {
        "eEfFgGaA".contains(self.conversion)
    }

    /// Whether it prints integers without a sign.
    pub fn is_unsigned(&self) -> bool {
        "ouxX".contains(self.conversion)
    }
}

/// Most digits of a width or precision.
const MOST_DIGITS: usize = 3;

/// The pieces of a format.
///
/// # Errors
/// What is expected where something else stands.
pub fn pieces(format: &str) -> Result<SmallVec<[Piece<'_>; 8]>, String> {
    let mut out = SmallVec::new();
    let (mut start, mut at) = (0, 0);
    if format.contains('\0') {
        return Err("a format without NUL characters".into());
    }
    let bytes = format.as_bytes();
    while let Some(found) = bytes[at..].iter().position(|&b| b == b'%') {
        at += found;
        if bytes.get(at + 1) == Some(&b'%') {
            at += 2;
            continue;
        }
        if start < at {
            out.push(Piece::Text(&format[start..at]));
        }
        let skip = |from: usize, set: &[u8]| bytes[from..].iter().take_while(|b| set.contains(b)).count();
        let from = at + 1;
        let mut end = from + skip(from, b"-+ #0");
        let width = skip(end, b"0123456789");
        end += width;
        let mut precision = 0;
        if bytes.get(end) == Some(&b'.') {
            precision = skip(end + 1, b"0123456789");
            end += 1 + precision;
        }
        if width.max(precision) > MOST_DIGITS {
            return Err(format!("widths and precisions of {MOST_DIGITS} digits at most"));
        }
        let how = &format[from..end];
        end += skip(end, b"hlLqjzt");
        match bytes.get(end).map(|&b| char::from(b)) {
            Some(conversion) if "diouxXceEfFgGaA".contains(conversion) => {
                out.push(Piece::Spec(Spec { how, conversion }));
            }
            _ => {
                let rest: String = format[at..].chars().take(8).flat_map(char::escape_debug).collect();
                return Err(format!(
                    "one of `d i u o x X c e E f F g G a A` or `%` behind `%`, not `{rest}`"
                ));
            }
        }
        start = end + 1;
        at = start;
    }
    if start < format.len() {
        out.push(Piece::Text(&format[start..]));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_cut() {
        let spec = |how, conversion| Piece::Spec(Spec { how, conversion });
        let all = pieces("a%-5lld 100%% %.3f%x\n").unwrap();
        let text = Piece::Text;
        assert_eq!(
            all.as_slice(),
            [text("a"), spec("-5", 'd'), text(" 100%% "), spec(".3", 'f'), spec("", 'x'), text("\n")]
        );
        assert_eq!(pieces("").unwrap().as_slice(), []);
        assert_eq!(pieces("ä%%").unwrap().as_slice(), [text("ä%%")]);
        for wrong in ["%", "%s", "%*d", "%5", "%.1234f", "a\0", "%ä", "%n"] {
            assert!(pieces(wrong).is_err(), "{wrong}");
        }
    }
}
