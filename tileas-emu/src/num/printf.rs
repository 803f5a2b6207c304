//! Text of numbers as C's `printf` makes it.
//!
//! In: a format, and the bits of values one after the other. Source: ISO C 7.21.6.1; which conversions there are: CUDA C++ Programming
//! Guide, Formatted Output. Floats are rounded from their exact value, to even, as glibc does.

/// A part of a format.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text as it is to appear.
    Text(Vec<u8>),
    /// A value.
    Value(Spec),
}

/// How a value is printed.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Spec {
    left: bool,
    plus: bool,
    blank: bool,
    alternate: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    wide: bool,
    conversion: u8,
}

/// Most characters of a width or precision.
const MOST: usize = 1 << 12;

/// The parts of a format, or what is wrong with it.
pub fn pieces(format: &[u8]) -> Result<Vec<Piece>, String> {
    let (mut out, mut text, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(&b) = format.get(at) {
        at += 1;
        if b != b'%' {
            text.push(b);
            continue;
        }
        if format.get(at) == Some(&b'%') {
            at += 1;
            text.push(b'%');
            continue;
        }
        if !text.is_empty() {
            out.push(Piece::Text(std::mem::take(&mut text)));
        }
        let mut s = Spec::default();
        while let Some(&flag) = format.get(at) {
            match flag {
                b'-' => s.left = true,
                b'+' => s.plus = true,
                b' ' => s.blank = true,
                b'#' => s.alternate = true,
                b'0' => s.zeros = true,
                _ => break,
            }
            at += 1;
        }
        let number = |at: &mut usize| {
            let mut n = 0usize;
            while let Some(d) = format.get(*at).filter(|b| b.is_ascii_digit()) {
                n = (n * 10 + usize::from(d - b'0')).min(MOST);
                *at += 1;
            }
            n
        };
        s.width = number(&mut at);
        if format.get(at) == Some(&b'.') {
            at += 1;
            s.precision = Some(number(&mut at));
        }
        let from = at;
        while format.get(at).is_some_and(|b| b"hlLqjzt".contains(b)) {
            at += 1;
        }
        s.wide = format[from..at].iter().any(|b| b"lqjzt".contains(b));
        s.conversion = format.get(at).copied().unwrap_or(0);
        if !b"diouxXceEfFgGaA".contains(&s.conversion) {
            return Err(format!("`%{}` in a format", char::from(s.conversion)));
        }
        at += 1;
        out.push(Piece::Value(s));
    }
    if !text.is_empty() {
        out.push(Piece::Text(text));
    }
    Ok(out)
}

impl Spec {
    fn is_float(&self) -> bool {
        b"eEfFgGaA".contains(&self.conversion)
    }

    /// Bytes that the value takes, at a multiple of which it lies.
    pub fn bytes(&self) -> u32 {
        if self.is_float() || self.wide && self.conversion != b'c' { 8 } else { 4 }
    }

    /// The text of a value.
    pub fn text(&self, bits: u64) -> Vec<u8> {
        let upper = self.conversion.is_ascii_uppercase();
        let (prefix, mut digits, zeros) = match self.conversion {
            b'c' => return self.padded("", vec![bits as u8], false),
            _ if self.is_float() => {
                let v = f64::from_bits(bits);
                let finite = v.is_finite();
                let (hex, text) = self.float(v.abs());
                (format!("{}{hex}", self.sign(v.is_sign_negative() && !v.is_nan())), text, finite)
            }
            b'd' | b'i' => {
                let v = if self.wide { bits as i64 } else { i64::from(bits as u32 as i32) };
                (
                    self.sign(v < 0).to_owned(),
                    self.digits(v.unsigned_abs().to_string()),
                    self.precision.is_none(),
                )
            }
            c => {
                let v = if self.wide { bits } else { u64::from(bits as u32) };
                let mut prefix = "";
                let mut text = match c {
                    b'o' => format!("{v:o}"),
                    b'x' | b'X' => {
                        if self.alternate && v != 0 {
                            prefix = "0x";
                        }
                        format!("{v:x}")
                    }
                    _ => v.to_string(),
                };
                text = self.digits(text);
                if c == b'o' && self.alternate && !text.starts_with('0') {
                    text.insert(0, '0');
                }
                (prefix.to_owned(), text, self.precision.is_none())
            }
        };
        let mut prefix = prefix;
        if upper {
            prefix.make_ascii_uppercase();
            digits.make_ascii_uppercase();
        }
        self.padded(&prefix, digits.into_bytes(), zeros)
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.blank) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    /// At least as many digits as the precision says.
    fn digits(&self, text: String) -> String {
        match self.precision {
            Some(0) if text == "0" => String::new(),
            Some(n) => format!("{}{text}", "0".repeat(n.saturating_sub(text.len()))),
            None => text,
        }
    }

    fn padded(&self, prefix: &str, text: Vec<u8>, zeros: bool) -> Vec<u8> {
        let missing = self.width.saturating_sub(prefix.len() + text.len());
        let mut out = Vec::with_capacity(missing + prefix.len() + text.len());
        let fill = |out: &mut Vec<u8>, b: u8| out.resize(out.len() + missing, b);
        let zeros = zeros && self.zeros && !self.left;
        if !zeros && !self.left {
            fill(&mut out, b' ');
        }
        out.extend_from_slice(prefix.as_bytes());
        if zeros {
            fill(&mut out, b'0');
        }
        out.extend(text);
        if self.left {
            fill(&mut out, b' ');
        }
        out
    }

    /// What stands in front of zeros that fill up, and the rest.
    fn float(&self, v: f64) -> (&'static str, String) {
        if v.is_nan() {
            return ("", "nan".into());
        }
        if v.is_infinite() {
            return ("", "inf".into());
        }
        match self.conversion.to_ascii_lowercase() {
            b'f' => ("", self.point(format!("{v:.*}", self.precision.unwrap_or(6)))),
            b'e' => ("", self.scientific(v, self.precision.unwrap_or(6))),
            b'g' => ("", self.shorter(v)),
            _ => ("0x", self.hexadecimal(v)),
        }
    }

    /// A point also without digits behind it, where it is asked for.
    fn point(&self, text: String) -> String {
        if self.alternate && !text.contains('.') { format!("{text}.") } else { text }
    }

    fn scientific(&self, v: f64, precision: usize) -> String {
        let text = format!("{v:.precision$e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", self.point(mantissa.to_owned()), exponent.abs())
    }

    fn shorter(&self, v: f64) -> String {
        let precision = self.precision.unwrap_or(6).max(1);
        let rounded = format!("{v:.*e}", precision - 1);
        let exponent: i32 = rounded.split_once('e').and_then(|x| x.1.parse().ok()).unwrap_or(0);
        let fixed = exponent >= -4 && i64::from(exponent) < precision as i64;
        let text = if fixed {
            self.point(format!("{v:.*}", (precision as i32 - 1 - exponent).max(0) as usize))
        } else {
            self.scientific(v, precision - 1)
        };
        if self.alternate {
            return text;
        }
        let (mantissa, exponent) = match text.split_once('e') {
            Some((m, e)) => (m, format!("e{e}")),
            None => (text.as_str(), String::new()),
        };
        let mantissa = if mantissa.contains('.') {
            mantissa.trim_end_matches('0').trim_end_matches('.')
        } else {
            mantissa
        };
        format!("{mantissa}{exponent}")
    }

    fn hexadecimal(&self, v: f64) -> String {
        const DIGITS: usize = 13;
        let bits = v.to_bits();
        let exponent = (bits >> 52) as i32 & 0x7ff;
        let mut mantissa = bits & ((1 << 52) - 1) | u64::from(exponent > 0) << 52;
        let scale = if v == 0.0 { 0 } else { exponent.max(1) - 1023 };
        let mut digits = DIGITS;
        match self.precision {
            Some(n) if n < DIGITS => {
                let cut = 4 * (DIGITS - n) as u32;
                let (rest, half) = (mantissa & ((1 << cut) - 1), 1u64 << (cut - 1));
                mantissa >>= cut;
                mantissa += u64::from(rest > half || rest == half && mantissa & 1 == 1);
                digits = n;
            }
            Some(_) => {}
            None => {
                while digits > 0 && mantissa & 15 == 0 {
                    mantissa >>= 4;
                    digits -= 1;
                }
            }
        }
        let whole = mantissa >> (4 * digits);
        let fraction = mantissa & ((1u64 << (4 * digits)) - 1);
        let mut text =
            if digits > 0 { format!("{whole:x}.{fraction:0digits$x}") } else { format!("{whole:x}") };
        if let Some(more) = self.precision.and_then(|n| n.checked_sub(digits)).filter(|&n| n > 0) {
            text.push_str(&"0".repeat(more));
        }
        let sign = if scale < 0 { '-' } else { '+' };
        format!("{}p{sign}{}", self.point(text), scale.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(format: &str, bits: u64) -> String {
        let mut out = Vec::new();
        for piece in pieces(format.as_bytes()).unwrap() {
            match piece {
                Piece::Text(t) => out.extend(t),
                Piece::Value(s) => out.extend(s.text(bits)),
            }
        }
        String::from_utf8(out).unwrap()
    }

    /// What glibc 2.36 prints.
    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        for (format, v, want) in TEXTS_OF_INTEGERS {
            assert_eq!(print(format, *v as u64), *want, "{format} of {v}");
        }
        for (format, v, want) in TEXTS_OF_FLOATS {
            assert_eq!(print(format, v.to_bits()), *want, "{format} of {v:e}");
        }
        assert!(pieces(b"%s").is_err() && pieces(b"%").is_err());
        assert_eq!(print("%f|%5.1F|%-5e|", f64::NAN.to_bits()), "nan|  NAN|nan  |");
    }

    const TEXTS_OF_INTEGERS: &[(&str, i64, &str)] = &[
        ("%d", 0, "0"),
        ("%d", -12345, "-12345"),
        ("%5d|", 1, "    1|"),
        ("%5d|", 2147483647, "2147483647|"),
        ("%-5d|", -1, "-1   |"),
        ("%-5d|", -2147483648, "-2147483648|"),
        ("%05d", 65, "00065"),
        ("%05d", 255, "00255"),
        ("%+d", 0, "+0"),
        ("%+d", -12345, "-12345"),
        ("% d", 1, " 1"),
        ("% d", 2147483647, " 2147483647"),
        ("%.3d", -1, "-001"),
        ("%.3d", -2147483648, "-2147483648"),
        ("%8.3d", 65, "     065"),
        ("%8.3d", 255, "     255"),
        ("%08.3d", 0, "     000"),
        ("%08.3d", -12345, "  -12345"),
        ("%i", 1, "1"),
        ("%i", 2147483647, "2147483647"),
        ("%u", -1, "4294967295"),
        ("%u", -2147483648, "2147483648"),
        ("%x", 65, "41"),
        ("%x", 255, "ff"),
        ("%X", 0, "0"),
        ("%X", -12345, "FFFFCFC7"),
        ("%#x", 1, "0x1"),
        ("%#x", 2147483647, "0x7fffffff"),
        ("%#X", -1, "0XFFFFFFFF"),
        ("%#X", -2147483648, "0X80000000"),
        ("%#o", 65, "0101"),
        ("%#o", 255, "0377"),
        ("%o", 0, "0"),
        ("%o", -12345, "37777747707"),
        ("%.0d", 1, "1"),
        ("%.0d", 2147483647, "2147483647"),
        ("%#010x", -1, "0xffffffff"),
        ("%#010x", -2147483648, "0x80000000"),
        ("%c", 65, "A"),
        ("%lld", 0, "0"),
        ("%lld", -1, "-1"),
        ("%lld", 1234567890123, "1234567890123"),
        ("%lld", i64::MIN, "-9223372036854775808"),
        ("%20lld", 0, "                   0"),
        ("%20lld", -1, "                  -1"),
        ("%20lld", 1234567890123, "       1234567890123"),
        ("%20lld", i64::MIN, "-9223372036854775808"),
        ("%llu", 0, "0"),
        ("%llu", -1, "18446744073709551615"),
        ("%llu", 1234567890123, "1234567890123"),
        ("%llu", i64::MIN, "9223372036854775808"),
        ("%llx", 0, "0"),
        ("%llx", -1, "ffffffffffffffff"),
        ("%llx", 1234567890123, "11f71fb04cb"),
        ("%llx", i64::MIN, "8000000000000000"),
        ("%#llo", 0, "0"),
        ("%#llo", -1, "01777777777777777777777"),
        ("%#llo", 1234567890123, "021756176602313"),
        ("%#llo", i64::MIN, "01000000000000000000000"),
        ("%+.22lld", 0, "+0000000000000000000000"),
        ("%+.22lld", -1, "-0000000000000000000001"),
        ("%+.22lld", 1234567890123, "+0000000001234567890123"),
        ("%+.22lld", i64::MIN, "-0009223372036854775808"),
    ];
    const TEXTS_OF_FLOATS: &[(&str, f64, &str)] = &[
        ("%f", 0.0, "0.000000"),
        ("%f", -3.25, "-3.250000"),
        ("%f", 0.0001, "0.000100"),
        ("%f", 3.0000001, "3.000000"),
        ("%.0f", -0.0, "-0"),
        ("%.0f", 0.1, "0"),
        ("%.0f", 5e-324, "0"),
        ("%.0f", 1.234e-05, "0"),
        ("%.0f", 0.999999999, "1"),
        ("%#.0f", 1.0, "1."),
        ("%#.0f", 1e10, "10000000000."),
        ("%#.0f", 1e-310, "0."),
        ("%#.0f", 1.0 / 3.0, "0."),
        ("%8.3f", 1.5, "   1.500"),
        ("%8.3f", 1e-05, "   0.000"),
        ("%8.3f", 99999.95, "99999.950"),
        ("%8.3f", f64::NEG_INFINITY, "    -inf"),
        ("%-10.2f|", 2.5, "2.50      |"),
        ("%-10.2f|", 123456789.0, "123456789.00|"),
        ("%-10.2f|", 999999.5, "999999.50 |"),
        ("%-10.2f|", 1e15, "1000000000000000.00|"),
        ("%010.2f", 0.0, "0000000.00"),
        ("%010.2f", -3.25, "-000003.25"),
        ("%010.2f", 0.0001, "0000000.00"),
        ("%010.2f", 3.0000001, "0000003.00"),
        ("%+f", -0.0, "-0.000000"),
        ("%+f", 0.1, "+0.100000"),
        ("%+f", 5e-324, "+0.000000"),
        ("%+f", 1.234e-05, "+0.000012"),
        ("%+f", 0.999999999, "+1.000000"),
        ("% .1f", 1.0, " 1.0"),
        ("% .1f", 1e10, " 10000000000.0"),
        ("% .1f", 1e-310, " 0.0"),
        ("% .1f", 1.0 / 3.0, " 0.3"),
        ("%e", 1.5, "1.500000e+00"),
        ("%e", 1e-05, "1.000000e-05"),
        ("%e", 99999.95, "9.999995e+04"),
        ("%e", f64::NEG_INFINITY, "-inf"),
        ("%.0e", 2.5, "2e+00"),
        ("%.0e", 123456789.0, "1e+08"),
        ("%.0e", 999999.5, "1e+06"),
        ("%.0e", 1e15, "1e+15"),
        ("%#.0e", 0.0, "0.e+00"),
        ("%#.0e", -3.25, "-3.e+00"),
        ("%#.0e", 1e300, "1.e+300"),
        ("%#.0e", 0.0001, "1.e-04"),
        ("%#.0e", 3.0000001, "3.e+00"),
        ("%.3E", -0.0, "-0.000E+00"),
        ("%.3E", 0.1, "1.000E-01"),
        ("%.3E", 5e-324, "4.941E-324"),
        ("%.3E", 1.234e-05, "1.234E-05"),
        ("%.3E", 0.999999999, "1.000E+00"),
        ("%g", 1.0, "1"),
        ("%g", 1e10, "1e+10"),
        ("%g", 1e-310, "1e-310"),
        ("%g", 1.0 / 3.0, "0.333333"),
        ("%G", 1.5, "1.5"),
        ("%G", 1e-05, "1E-05"),
        ("%G", 99999.95, "99999.9"),
        ("%G", f64::NEG_INFINITY, "-INF"),
        ("%#g", 2.5, "2.50000"),
        ("%#g", 123456789.0, "1.23457e+08"),
        ("%#g", 1e15, "1.00000e+15"),
        ("%.3g", 0.0, "0"),
        ("%.3g", -3.25, "-3.25"),
        ("%.3g", 1e300, "1e+300"),
        ("%.3g", 0.0001, "0.0001"),
        ("%.3g", 3.0000001, "3"),
        ("%.0g", -0.0, "-0"),
        ("%.0g", 0.1, "0.1"),
        ("%.0g", 5e-324, "5e-324"),
        ("%.0g", 1.234e-05, "1e-05"),
        ("%.0g", 0.999999999, "1"),
        ("%a", 1.0, "0x1p+0"),
        ("%a", 1e10, "0x1.2a05f2p+33"),
        ("%a", 1e-310, "0x0.012688b70e62bp-1022"),
        ("%a", 1.0 / 3.0, "0x1.5555555555555p-2"),
        ("%A", 1.5, "0X1.8P+0"),
        ("%A", 1e-05, "0X1.4F8B588E368F1P-17"),
        ("%A", 99999.95, "0X1.869FF33333333P+16"),
        ("%A", f64::NEG_INFINITY, "-INF"),
        ("%.0a", 2.5, "0x1p+1"),
        ("%.0a", 123456789.0, "0x2p+26"),
        ("%.0a", 999999.5, "0x2p+19"),
        ("%.0a", 1e15, "0x2p+49"),
        ("%.2a", 0.0, "0x0.00p+0"),
        ("%.2a", -3.25, "-0x1.a0p+1"),
        ("%.2a", 1e300, "0x1.7ep+996"),
        ("%.2a", 0.0001, "0x1.a3p-14"),
        ("%.2a", 3.0000001, "0x1.80p+1"),
        ("%.15a", -0.0, "-0x0.000000000000000p+0"),
        ("%.15a", 0.1, "0x1.999999999999a00p-4"),
        ("%.15a", 5e-324, "0x0.000000000000100p-1022"),
        ("%.15a", 1.234e-05, "0x1.9e0fcaf9380fc00p-17"),
        ("%.15a", 0.999999999, "0x1.fffffff768fa100p-1"),
        ("%012.3a", 1.0, "0x001.000p+0"),
        ("%012.3a", 1e10, "0x01.2a0p+33"),
        ("%012.3a", 1e-310, "0x0.012p-1022"),
        ("%012.3a", 1.0 / 3.0, "0x001.555p-2"),
        ("%F", 1.5, "1.500000"),
        ("%F", 1e-05, "0.000010"),
        ("%F", 99999.95, "99999.950000"),
        ("%F", f64::NEG_INFINITY, "-INF"),
    ];
}
