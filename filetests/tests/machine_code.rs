//! What the assembler leaves of the order in which products and what is computed beside them were written.
//!
//! Attention on Hopper issues the scores of a tile and the product with the values of the tile before together, and computes the softmax when
//! the other warpgroup's products run. No emulator can tell: it is the assembler that moves instructions. It moves the wait for the second
//! product up to that for the first, in front of the softmax. Keeping it behind (by the end of a basic block) made attention 2 to 10 % slower on
//! an H100. What is loaded iterations ahead of its use it moves from register to register, unless each iteration has registers of its own.

use std::path::Path;
use tileas_codegen::{Context, Settings};
use tileas_filetests::{TestKind, external};

/// An instruction that matters here.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Code {
    /// A product.
    Multiply,
    /// A wait that leaves so many products under way.
    Wait(u32),
    /// An exponential.
    Exponential,
    /// Two f32 become two f16.
    Narrow,
    /// A register is spilled or filled.
    Spill,
}

fn codes(text: &str) -> Vec<Code> {
    let code = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().map(|w| w.trim_end_matches([';', ','])).collect();
        let name = words.iter().position(|w| w.starts_with(|c: char| c.is_ascii_uppercase()))?;
        let last = || u32::from_str_radix(words.get(name + 2)?.trim_start_matches("0x"), 16).ok();
        let word = words[name];
        Some(match word.split('.').next()? {
            "HGMMA" => Code::Multiply,
            "WARPGROUP" if word.starts_with("WARPGROUP.DEPBAR") => Code::Wait(last()?),
            "MUFU" if word == "MUFU.EX2" => Code::Exponential,
            "F2FP" => Code::Narrow,
            "STL" | "LDL" => Code::Spill,
            _ => return None,
        })
    };
    text.lines().filter_map(code).collect()
}

/// The machine code of an example.
fn assembled(kernel: &str, options: &[&str]) -> Vec<Code> {
    codes(&machine_code(kernel, options))
}

/// The machine code of an example, as text.
fn machine_code(kernel: &str, options: &[&str]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../examples/kernels/{kernel}.tileas"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut settings = Settings::builder();
    settings.set("target", "sm_90a").expect("a target");
    for pair in options {
        settings.set_pair(pair).expect("an option");
    }
    let settings = settings.finish();
    let isa = tileas_isa::isa_for_cpu("sm_90a").expect("a target");
    let mut context = Context::new();
    let module = context.parse(&text, &settings).expect("the kernel parses");
    let compiled = context.compile(&module, &*isa, &settings).expect("the kernel compiles");
    let name = format!("machine_code-{kernel}{}", options.concat());
    external::machine_code(&name, "sm_90a", &compiled.kernels[0].ptx).unwrap_or_else(|e| panic!("{e:#}"))
}

/// Loads of 16 bytes from global memory in the innermost loop that has so many, and moves of what they read from register to register.
fn loads_and_moves(text: &str, least: usize) -> [usize; 2] {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let back = |end: usize| {
        let label = lines[end].split_once("BRA `(").and_then(|(_, to)| to.split_once(')'))?.0;
        lines[..end].iter().position(|l| l.strip_suffix(':') == Some(label))
    };
    let loops = (0..lines.len()).filter_map(|end| Some(back(end)?..end));
    let body = |l: &std::ops::Range<usize>| &lines[l.clone()];
    let words = |line: &str| -> Vec<String> {
        let code = line.split_once("*/").map_or("", |x| x.1);
        code.split([' ', ',', ';']).filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
    let register = |w: &str| w.strip_prefix('R')?.split('.').next()?.parse::<usize>().ok();
    let loads = |l: &std::ops::Range<usize>| -> Vec<usize> {
        let of = |line: &&str| {
            let words = words(line);
            let at = words.iter().position(|w| w.starts_with("LDG.E.128"))?;
            register(words.get(at + 1)?)
        };
        body(l).iter().filter_map(of).collect()
    };
    let inner = loops.filter(|l| loads(l).len() >= least).min_by_key(|l| l.len()).expect("such a loop");
    let loaded = loads(&inner);
    let moves = body(&inner).iter().filter(|line| {
        let words = words(line);
        let moves = words.iter().any(|w| w == "MOV" || w.starts_with("IMAD.MOV"));
        let from = words.last().and_then(|w| register(w));
        moves && from.is_some_and(|r| loaded.iter().any(|&l| (l..l + 4).contains(&r)))
    });
    [loaded.len(), moves.count()]
}

/// Steps that wait for all but one product: the products issued right in front of that wait, and the exponentials and conversions from there
/// to the next product.
fn steps(codes: &[Code]) -> Vec<[usize; 3]> {
    let waits = codes.iter().enumerate().filter(|(_, c)| **c == Code::Wait(1)).map(|(n, _)| n);
    let step = |at: usize| {
        let issued = codes[..at].iter().rev().take_while(|&&c| c == Code::Multiply).count();
        let rest = codes[at..].iter().take_while(|&&c| c != Code::Multiply);
        let count = |code| rest.clone().filter(|&&c| c == code).count();
        [issued, count(Code::Exponential), count(Code::Narrow)]
    };
    waits.map(step).collect()
}

fn skipped() -> bool {
    external::missing(TestKind::Ptxas).is_some() && !external::required()
}

/// A product with a head dimension of d takes d / 16 instructions for the scores and 8 for the values of 128 keys. 64 columns of P and two
/// factors for each of a thread's two rows; 32 registers of P.
#[test]
fn two_products_are_issued_together() {
    if skipped() {
        return;
    }
    for (kernel, issued) in
        [("d64", 12), ("d96", 16), ("d128", 16), ("causal", 12), ("gqa", 12), ("soft_cap", 16)]
    {
        let codes = assembled(&format!("attention_{kernel}"), &[]);
        assert!(!codes.contains(&Code::Spill), "{kernel}");
        assert_eq!(steps(&codes), [[issued, 66, 32]], "{kernel}: {codes:?}");
    }
}

/// Warpgroups in turns: the eight instructions of a step of 128 x 128 x 64 are one batch, and the batch before is under way.
#[test]
fn two_batches_are_under_way_in_turns() {
    if skipped() {
        return;
    }
    let codes = assembled("gemm_persistent_tiles", &["consumers=ping-pong"]);
    assert!(!codes.contains(&Code::Spill), "{codes:?}");
    assert_eq!(steps(&codes).iter().map(|s| s[0]).collect::<Vec<_>>(), [8], "{codes:?}");
    // The first step of a tile stands in front of the loop.
    assert_eq!(codes.iter().filter(|&&c| c == Code::Multiply).count(), 16);
}

/// What an agent gathers for a product two iterations ahead stays in the registers that it is read into: a move would wait for it. Four loads of 16 bytes gather a
/// thread's part of 128 x 64. Three iterations stand one behind the other, and once more the one for the rest, where registers are moved.
#[test]
fn gathers_stay_under_way() {
    if skipped() {
        return;
    }
    let text = machine_code("moe_gather_gemm", &[]);
    assert_eq!(loads_and_moves(&text, 5), [12, 0]);
    assert_eq!(loads_and_moves(&text, 4), [4, 16]);
}

/// One iteration after the other: nothing is left under way.
#[test]
fn the_measure_notices() {
    if skipped() {
        return;
    }
    let codes = assembled("attention_d128", &["scheduler=serial"]);
    assert!(codes.contains(&Code::Exponential) && steps(&codes).is_empty(), "{codes:?}");
}
