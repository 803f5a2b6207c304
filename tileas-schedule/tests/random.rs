//! Random problems: legal, deterministic, never below a bound, never worse than serial.
//!
//! The cases are a fixed list of seeds, so that every run tests the same problems whatever the machine's load.
//! `TILEAS_RANDOM_CASES=20000 TILEAS_RANDOM_FIRST=1000` runs others; so does the fuzz target.

use arbtest::arbitrary::Unstructured;
use std::str::FromStr;
use tileas_schedule::Scheduler;
use tileas_testgen::generate::{Verdict, check, options, problem};

fn env<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The bytes of one case, some for its options and the rest for its problem; they depend on its number alone.
fn bytes(case: u64) -> (Vec<u8>, Vec<u8>) {
    let mut state = (case + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut draw = |len| (0..len).map(|_| (next() >> 24) as u8).collect::<Vec<u8>>();
    let options = draw(64);
    // Few bytes make short problems: what is drawn after the last byte is zero.
    let len = 200 + u64::from_le_bytes(*options.last_chunk().expect("64 bytes")) % 12_000;
    (options, draw(len))
}

#[test]
fn random_problems_have_legal_schedules() {
    let mut warm = Scheduler::new();
    let mut counts = [0u32; 3];
    let first = env("TILEAS_RANDOM_FIRST", 0u64);
    for case in first..first + env("TILEAS_RANDOM_CASES", 400u64) {
        let (for_options, for_problem) = bytes(case);
        let o = options(&mut Unstructured::new(&for_options)).expect("as many bytes as it takes");
        let p = problem(&mut Unstructured::new(&for_problem)).expect("as many bytes as it takes");
        // The case is named before it may fail.
        let _note = Note(case);
        counts[match check(&p, &o, &mut warm) {
            Verdict::Refused => 0,
            Verdict::Fallback => 1,
            Verdict::Pipelined => 2,
        }] += 1;
    }
    let [refused, fallback, pipelined] = counts;
    println!("{refused} refused, {fallback} serial, {pipelined} pipelined");
    assert!(pipelined >= 5 && pipelined > refused, "{refused} {fallback} {pipelined}: tests too little");
}

/// Inputs of the fuzz target that once went wrong, as hexadecimal bytes.
const FOUND: &[&str] = &[
    // The descent went on for ever where no II between the bound and the best had windows.
    "00000091919191919191dd9191919191919191919125040000000091919191919191dd9191919191919191919104fffbcbc2c2c2774733",
];

#[test]
fn inputs_that_once_went_wrong() {
    for text in FOUND {
        let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
        let data: Vec<u8> = (0..text.len()).step_by(2).map(digits).collect();
        let mut u = Unstructured::new(&data);
        let (p, o) = (problem(&mut u).expect("a problem"), options(&mut u).expect("options"));
        // As in the fuzz target: another problem of the same bytes goes first.
        let mut warm = Scheduler::new();
        if let Ok(other) = problem(&mut u) {
            check(&other, &o, &mut warm);
        }
        check(&p, &o, &mut warm);
    }
}

struct Note(u64);

impl Drop for Note {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("case {}: TILEAS_RANDOM_FIRST={} TILEAS_RANDOM_CASES=1", self.0, self.0);
        }
    }
}
