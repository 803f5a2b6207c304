//! Random problems: legal, deterministic, never below a bound, never worse than serial.
#![cfg(feature = "arbitrary")]

use std::cell::RefCell;
use tileas_codegen::schedule::Scheduler;
use tileas_codegen::schedule::generate::{Verdict, check, options, problem};

#[test]
fn random_problems_have_legal_schedules() {
    let warm = RefCell::new(Scheduler::new());
    let counts = RefCell::new([0u32; 3]);
    arbtest::arbtest(|u| {
        let p = problem(u)?;
        let o = options(u)?;
        let verdict = check(&p, &o, &mut warm.borrow_mut());
        counts.borrow_mut()[match verdict {
            Verdict::Refused => 0,
            Verdict::Fallback => 1,
            Verdict::Pipelined => 2,
        }] += 1;
        Ok(())
    })
    .size_min(2000)
    .size_max(30_000)
    .budget_ms(2000);
    let [refused, fallback, pipelined] = *counts.borrow();
    println!("{refused} refused, {fallback} serial, {pipelined} pipelined");
    assert!(pipelined >= 5 && pipelined > refused, "{refused} {fallback} {pipelined}: tests too little");
}
