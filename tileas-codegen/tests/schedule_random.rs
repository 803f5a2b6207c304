//! Random problems: legal, deterministic, never below a bound, never worse than serial.
#![cfg(feature = "arbitrary")]

use std::cell::RefCell;
use tileas_codegen::schedule::Scheduler;
use tileas_codegen::schedule::generate::{Verdict, check, options, problem};

#[test]
fn random_problems_have_legal_schedules() {
    let warm = RefCell::new(Scheduler::new());
    let counts = RefCell::new([0u32; 3]);
    // A fixed stream, so that every run tests the same problems; the fuzz target explores others.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for case in 0..100usize {
        let bytes: Vec<u8> = (0..2000 + case * 997 % 28_000)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 24) as u8
            })
            .collect();
        let u = &mut arbitrary::Unstructured::new(&bytes);
        let (Ok(p), Ok(o)) = (problem(u), options(u)) else { continue };
        let verdict = check(&p, &o, &mut warm.borrow_mut());
        counts.borrow_mut()[match verdict {
            Verdict::Refused => 0,
            Verdict::Fallback => 1,
            Verdict::Pipelined => 2,
        }] += 1;
    }
    let [refused, fallback, pipelined] = *counts.borrow();
    println!("{refused} refused, {fallback} serial, {pipelined} pipelined");
    assert!(pipelined >= 5 && pipelined > refused, "{refused} {fallback} {pipelined}: tests too little");
}
