//! Times the compiled f16 GEMM: `speed [SIZE]`.

#[path = "../tests/common/mod.rs"]
mod common;

use common::*;
use std::time::Instant;
use tileas_emu::*;

fn main() {
    let n: usize = std::env::args().nth(1).and_then(|x| x.parse().ok()).unwrap_or(512);
    let text = include_str!("../tests/data/gemm_f16.ptx");
    let program = match Program::parse(text) {
        Ok(p) => p,
        Err(e) => return println!("{}", e[0]),
    };
    for (name, o) in [
        ("fast, no detectors", none(Mode::Fast)),
        ("fast, all detectors", all(Mode::Fast)),
        ("random, all detectors", all(Mode::Random(1))),
        ("latest, all detectors", all(Mode::Latest(1))),
    ] {
        let mut mem = Memory::new();
        let (l, c, want) = gemm_f16(&mut mem, n, n, n);
        let start = Instant::now();
        let r = Machine::run(&program, &l, &mut mem, &o, &mut NoTrace);
        let t = start.elapsed();
        match r.map_err(|f| f.to_string()).and_then(|r| same(&get(&mem, &c), &want, c.format).map(|()| r)) {
            Ok(r) => {
                println!("{name}: {:.2} s, {} steps, {} operations", t.as_secs_f64(), r.steps, r.operations)
            }
            Err(e) => println!("{name}: {e}"),
        }
    }
}
