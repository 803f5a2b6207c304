//! Random agents: the sync graph calls a deadlock exactly where some run of the token simulator gets stuck.

use std::cell::Cell;
use tileas_testgen::agents::{Verdict, check, program};

#[test]
fn graph_agrees_with_execution() {
    let live = Cell::new(0u32);
    let dead = Cell::new(0u32);
    let budget = std::env::var("TILEAS_R5_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3u64);
    arbtest::arbtest(|u| {
        let p = program(u)?;
        let counter = match check(&p, u)? {
            Verdict::Live => &live,
            Verdict::Deadlock => &dead,
        };
        counter.set(counter.get() + 1);
        Ok(())
    })
    .size_min(400)
    .size_max(4000)
    .budget_ms(1000 * budget);
    println!("{} live, {} deadlock", live.get(), dead.get());
    assert!(
        live.get() >= 100 && dead.get() >= 100,
        "{} live, {} deadlock: tests too little",
        live.get(),
        dead.get()
    );
}
