//! Random inputs for the whole compiler and the properties every answer must have.
//!
//! [`kernel`] draws well-formed kernels (nested loops, branches, several products, register work in between);
//! [`edited`] damages a text, [`mutated`] one of a corpus. The `check_…` functions assert: any text parses or gives a located error, print ∘ parse
//! is the identity on printed text, compiling ends with an answer that does not depend on the context's past, and
//! errors come from the stages that may refuse, not from a verifier of an earlier stage's work. Fuzz targets call
//! nothing else; [`Verdict`]s are counted, so that a run that tests nothing is seen.

use super::Context;
use crate::ir::{Module, parse_module, print_module};
use crate::isa::TargetIsa;
use crate::settings::Settings;
use arbitrary::{Result, Unstructured};
use std::fmt::Write;

/// What became of a case.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Refused with errors.
    Refused,
    /// Accepted.
    Accepted,
}

/// Parses any bytes.
///
/// # Panics
/// If an error has no place in the text, or an accepted text does not print to a fixed point.
pub fn check_parse(bytes: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(bytes);
    match parse_module(&text) {
        Err(e) => {
            assert!(e.location.range().is_none_or(|r| r.end <= text.len()), "{e} at {:?}", e.location);
            assert!(e.code.as_str().starts_with("E00"), "{e}");
            Verdict::Refused
        }
        Ok(module) => {
            check_print(&module);
            Verdict::Accepted
        }
    }
}

/// A generated kernel, damaged now and then, must print to a fixed point.
///
/// # Errors
/// When the data ends.
pub fn check_round_trip(u: &mut Unstructured<'_>) -> Result<Verdict> {
    let mut text = kernel(u)?.text;
    if u.ratio(1, 2)? {
        text = edited(u, &text)?;
    }
    Ok(check_parse(text.as_bytes()))
}

fn check_print(module: &Module) {
    let once = print_module(module);
    let again = parse_module(&once).unwrap_or_else(|e| panic!("{e} in the print\n{once}"));
    assert_eq!(print_module(&again), once, "not a fixed point");
}

/// Takes a generated kernel through all stages, on a context that has compiled others before.
///
/// # Errors
/// When the data ends.
///
/// # Panics
/// If the answer depends on the context's past, or a stage hands on what a verifier refuses.
pub fn check_agents(u: &mut Unstructured<'_>, isa: &dyn TargetIsa, warm: &mut Context) -> Result<Verdict> {
    let text = kernel(u)?.text;
    let mut settings = Settings::builder();
    let slices = *u.choose(&["32", "64", "128"])?;
    let scheduler = *u.choose(&["auto", "serial", "cost"])?;
    settings.set("slice-regs", slices).unwrap_or_else(|e| panic!("{e}"));
    settings.set("scheduler", scheduler).unwrap_or_else(|e| panic!("{e}"));
    Ok(check_compile(&text, isa, &settings.finish(), warm))
}

/// Compiles a text.
///
/// # Panics
/// As [`check_agents`].
pub fn check_compile(text: &str, isa: &dyn TargetIsa, settings: &Settings, warm: &mut Context) -> Verdict {
    // In builds of every kind: what is looked for are faults of the passes.
    let mut settings = settings.clone();
    settings.verify_passes = true;
    let settings = &settings;
    let Ok(module) = warm.parse(text, settings) else { return Verdict::Refused };
    check_print(&module);
    let first = warm.compile(&module, isa, settings);
    let second = Context::new().compile(&module, isa, settings);
    match (first, second) {
        (Ok(a), Ok(b)) => {
            assert_eq!(a.ptx(), b.ptx(), "the context's past shows in the PTX of\n{text}");
            assert!(a.kernels.iter().zip(&b.kernels).all(|(x, y)| x.metadata == y.metadata));
            Verdict::Accepted
        }
        (Err(a), Err(b)) => {
            assert_eq!(a, b, "the context's past shows in the errors of\n{text}");
            for e in &a {
                let thread_level = e.code.as_str().starts_with("E09") && e.location.range().is_none();
                let ours = e.message.starts_with("after `") || thread_level;
                assert!(!ours, "a stage handed on what a verifier refuses: {e}\n{text}");
            }
            Verdict::Refused
        }
        _ => panic!("only one of two compilations succeeded:\n{text}"),
    }
}

/// A text of the corpus, with a few lines deleted, doubled or exchanged, numbers changed or words replaced.
///
/// # Errors
/// When the data ends.
pub fn mutated(u: &mut Unstructured<'_>, corpus: &[String]) -> Result<String> {
    const NUMBERS: &[&str] = &[
        "0",
        "1",
        "2",
        "3",
        "7",
        "8",
        "16",
        "31",
        "32",
        "64",
        "96",
        "128",
        "256",
        "512",
        "1024",
        "4096",
        "65536",
        "2147483647",
        "2147483648",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "-1",
        "-2147483648",
        "-9223372036854775808",
        "0.5",
        "-0.0",
        "1e300",
        "inf",
        "nan",
        "?",
    ];
    let text = u.choose(corpus)?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..u.int_in_range(1..=4)? {
        if lines.is_empty() {
            break;
        }
        let n = u.choose_index(lines.len())?;
        match u.int_in_range(0..=5)? {
            0 => _ = lines.remove(n),
            1 => {
                let m = u.choose_index(lines.len())?;
                let line = lines[n].clone();
                lines.insert(m, line);
            }
            2 => {
                let m = u.choose_index(lines.len())?;
                lines.swap(n, m);
            }
            3 | 4 => {
                let starts: Vec<usize> = digits(&lines[n]).collect();
                if !starts.is_empty() {
                    let from = *u.choose(&starts)?;
                    let to = from + lines[n][from..].bytes().take_while(u8::is_ascii_digit).count();
                    lines[n].replace_range(from..to, u.choose(NUMBERS)?);
                }
            }
            _ => {
                let line = edited(u, &lines[n])?;
                lines[n] = line;
            }
        }
    }
    Ok(lines.join("\n"))
}

/// Where runs of digits begin.
fn digits(line: &str) -> impl Iterator<Item = usize> + '_ {
    let digit = |i: usize| line.as_bytes()[i].is_ascii_digit();
    (0..line.len()).filter(move |&i| digit(i) && (i == 0 || !digit(i - 1)))
}

/// Replaces a few short ranges by pieces of the text itself.
///
/// # Errors
/// When the data ends.
pub fn edited(u: &mut Unstructured<'_>, text: &str) -> Result<String> {
    let pieces: Vec<&str> = text.split_inclusive([' ', ',', '\n', '[', ']', '(', ')', '<', '>']).collect();
    let mut text = text.to_owned();
    for _ in 0..u.int_in_range(1..=3)? {
        let from = u.int_in_range(0..=text.len())?;
        let to = (from + u.int_in_range(0..=12)?).min(text.len());
        if text.is_char_boundary(from) && text.is_char_boundary(to) {
            text.replace_range(from..to, u.choose(&pieces)?);
        }
    }
    Ok(text)
}

/// A kernel that was drawn, and what its arguments look like: views `a` of M × K, `b` of K × N (N × K where it is
/// transposed) and `c` of M × N, bounds `n` of all loops and a number `m`. Coordinates along K are below max(n, m + 1).
#[derive(Clone, Debug)]
pub struct Drawn {
    /// Its source.
    pub text: String,
    /// Rows of a tile (M) of the accumulator.
    pub rows: u32,
    /// Columns of a tile (N) of the accumulator.
    pub columns: u32,
    /// Columns of a tile of A.
    pub depth: u32,
    /// Element type of the views.
    pub elem: &'static str,
    /// Whether B is stored N × K.
    pub transpose_b: bool,
}

/// Draws a kernel: C = what a tree of loops, branches, products and element-wise steps makes of A and B.
///
/// # Errors
/// When the data ends.
pub fn kernel(u: &mut Unstructured<'_>) -> Result<Drawn> {
    let n = *u.choose(&[32u32, 64, 128])?;
    let k = 64;
    let elem = *u.choose(&["f16", "bf16"])?;
    let transpose_b = u.arbitrary()?;
    let b_box = if transpose_b { [n, k] } else { [k, n.max(64)] };
    let n = if transpose_b { n } else { n.max(64) };
    let mut g = Kernel { text: String::new(), count: 0, n, k, elem, transpose_b, b_box, left: 12 };
    let _ = write!(
        g.text,
        "kernel @k(%a: view<gmem, ?x?x{elem}>, %b: view<gmem, ?x?x{elem}>, %c: view<gmem, ?x?x{elem}>, %n: i32, %m: i32) {{\n\
         %bm = program_id <{{axis = 0}}> : i32\n%bn = program_id <{{axis = 1}}> : i32\n\
         %da = make_tiled_tma_desc %a <{{box = [128, {k}], swizzle = b128}}> : tma_desc<128x{k}x{elem}>\n\
         %db = make_tiled_tma_desc %b <{{box = [{0}, {1}], swizzle = b128}}> : tma_desc<{0}x{1}x{elem}>\n\
         %zero = constant 0.0 : tile<128x{n}xf32>\n",
        b_box[0], b_box[1]
    );
    let result = g.block(u, "zero", "m", 0)?;
    g.store(&result);
    g.text.push_str("return\n}\n");
    Ok(Drawn { text: g.text, rows: 128, columns: n, depth: k, elem, transpose_b })
}

/// A kernel being written.
struct Kernel {
    text: String,
    count: u32,
    n: u32,
    k: u32,
    elem: &'static str,
    transpose_b: bool,
    b_box: [u32; 2],
    /// Statements that may still be drawn.
    left: u32,
}

impl Kernel {
    fn fresh(&mut self) -> String {
        self.count += 1;
        format!("v{}", self.count)
    }

    fn tile(&self) -> String {
        format!("tile<128x{}xf32>", self.n)
    }

    /// Statements that turn the accumulator `acc` into the one returned; `i` is the innermost index.
    fn block(&mut self, u: &mut Unstructured<'_>, acc: &str, i: &str, depth: u32) -> Result<String> {
        let mut acc = acc.to_owned();
        for _ in 0..u.int_in_range(1..=3)? {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            match u.int_in_range(0..=9)? {
                0..=3 => acc = self.product(&acc, i),
                4..=6 if depth < 3 => acc = self.for_loop(u, &acc, depth)?,
                7 if depth < 3 => acc = self.branch(u, &acc, i, depth)?,
                8 => acc = self.arithmetic(u, &acc)?,
                9 => self.store(&acc),
                _ => {}
            }
        }
        Ok(acc)
    }

    fn product(&mut self, acc: &str, i: &str) -> String {
        let (a, b, r) = (self.fresh(), self.fresh(), self.fresh());
        let (elem, k, [b0, b1], tile) = (self.elem, self.k, self.b_box, self.tile());
        let (at, unit) = if self.transpose_b {
            (format!("%bn, %{i}"), "<{transpose_b}> ")
        } else {
            (format!("%{i}, %bn"), "")
        };
        let _ = write!(
            self.text,
            "%{a} = async.tiled_tma_load %da[%bm, %{i}] : tile<128x{k}x{elem}>\n\
             %{b} = async.tiled_tma_load %db[{at}] : tile<{b0}x{b1}x{elem}>\n\
             %{r} = async.dot %{a}, %{b}, %{acc} {unit}: {tile}\n"
        );
        r
    }

    fn for_loop(&mut self, u: &mut Unstructured<'_>, acc: &str, depth: u32) -> Result<String> {
        let (r, i, s, tile) = (self.fresh(), self.fresh(), self.fresh(), self.tile());
        let (from, step) = (u.int_in_range(0..=2)?, u.int_in_range(1..=2)?);
        let _ = writeln!(
            self.text,
            "%{r} = for %{i} = {from} to %n step {step} iter (%{s} = %{acc} : {tile}) {{"
        );
        let inner = self.block(u, &s, &i, depth + 1)?;
        let _ = writeln!(self.text, "yield %{inner}\n}}");
        Ok(r)
    }

    fn branch(&mut self, u: &mut Unstructured<'_>, acc: &str, i: &str, depth: u32) -> Result<String> {
        let (r, c, tile) = (self.fresh(), self.fresh(), self.tile());
        let _ =
            writeln!(self.text, "%{c} = cmpi %{i}, %m <{{predicate = lt}}> : i1\n%{r} = if %{c} : {tile} {{");
        let inner = self.block(u, acc, i, depth + 1)?;
        let _ = writeln!(self.text, "yield %{inner}\n}} else {{");
        let other = if u.arbitrary()? { self.block(u, acc, i, depth + 1)? } else { acc.to_owned() };
        let _ = writeln!(self.text, "yield %{other}\n}}");
        Ok(r)
    }

    fn arithmetic(&mut self, u: &mut Unstructured<'_>, acc: &str) -> Result<String> {
        let (r, tile) = (self.fresh(), self.tile());
        let op = *u.choose(&["addf", "mulf", "maxf"])?;
        let _ = writeln!(self.text, "%{r} = {op} %{acc}, 0.5 : {tile}");
        Ok(r)
    }

    fn store(&mut self, acc: &str) {
        let h = self.fresh();
        let (n, elem) = (self.n, self.elem);
        let _ =
            writeln!(self.text, "%{h} = ftof %{acc} : tile<128x{n}x{elem}>\ntiled_store %{h}, %c[%bm, %bn]");
    }
}
