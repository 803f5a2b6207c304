//! Whole kernels against a plain matrix product, in all modes, with and without detectors. `TILEAS_SEEDS=32` runs that many
//! seeds.

use crate::common;

use common::*;
use tileas_emu::*;

const F16: &str = include_str!("data/gemm_f16.ptx");
const SM100: &str = include_str!("data/gemm_sm100a.ptx");
const CLUSTER: &str = include_str!("data/gemm_cluster_sm90a.ptx");
const SM90: &str = include_str!("data/gemm_sm90a.ptx");

fn program(text: &str) -> Program {
    Program::parse(text).unwrap_or_else(|e| panic!("{}", e[0]))
}

fn modes() -> Vec<RunOptions> {
    let mut v = vec![none(Mode::Fast), all(Mode::Fast), all(Mode::Latest(1)), all(Mode::Latest(2))];
    let seeds = std::env::var("TILEAS_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    v.extend((0..seeds).map(|s| all(Mode::Random(s))));
    v
}

#[test]
fn compiled_f16() {
    let p = program(F16);
    for o in modes() {
        for (m, n, k) in [(128, 128, 64), (200, 136, 392)] {
            let mut mem = Memory::new();
            let (l, c, want) = gemm_f16(&mut mem, m, n, k);
            if let Err(e) = run(&p, &mut mem, &l, &c, &want, &o) {
                panic!("{o:?} {m}x{n}x{k}: {e}");
            }
        }
    }
}

#[test]
fn hand_written_sm100a() {
    let p = program(SM100);
    for o in modes() {
        let mut mem = Memory::new();
        let (l, c, want) = gemm_hand(&mut mem, 200, 520, 200, 2, false);
        if let Err(e) = run(&p, &mut mem, &l, &c, &want, &o) {
            panic!("{o:?}: {e}");
        }
    }
}

#[test]
fn hand_written_sm90a() {
    let p = program(SM90);
    for o in modes() {
        let mut mem = Memory::new();
        let (l, c, want) = gemm_hand(&mut mem, 200, 264, 200, 2, true);
        if let Err(e) = run(&p, &mut mem, &l, &c, &want, &o) {
            panic!("{o:?}: {e}");
        }
    }
}

#[test]
fn hand_written_pairs() {
    let p = program(CLUSTER);
    for o in modes() {
        for ctas in [2, 4] {
            let mut mem = Memory::new();
            let (l, c, want) = gemm_pairs(&mut mem, 200, 264, 264, ctas);
            if let Err(e) = run(&p, &mut mem, &l, &c, &want, &o) {
                panic!("{o:?} {ctas} CTAs: {e}");
            }
        }
    }
}
