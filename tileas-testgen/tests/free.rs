//! A few hundred seeds of the free generator: right, or refused for a limit. `TILEAS_RANDOM_SEEDS=n` runs n seeds.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tileas_codegen::{Context, Settings};
use tileas_testgen::features::features;
use tileas_testgen::judge::{Verdict, judge};
use tileas_testgen::kernel::Kernel;
use tileas_testgen::seeded;
use tileas_testgen::shrink::shrink;

/// What the kernels must have that are not refused, and in how many of a hundred.
const REACH: &[(&str, u64)] = &[
    ("nested loop", 8),
    ("dot on a carried tile", 4),
    ("dot starts a carried tile", 2),
    ("computed operand of a dot", 8),
    ("two tiles carried", 8),
    ("carried tiles exchanged", 4),
    ("if with results", 8),
    ("if in a loop", 4),
    ("scalar from memory", 10),
    ("store in a loop", 20),
    ("store to where a load was", 10),
    ("several CTAs", 10),
    ("ragged", 40),
    ("reduce", 10),
    ("options", 30),
];

#[test]
fn kernels_composed_freely_compute_what_their_source_says() {
    let seeds = std::env::var("TILEAS_RANDOM_SEEDS").ok().and_then(|v| v.parse().ok()).unwrap_or(200);
    let (next, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let (wrong, reached) = (Mutex::new(Vec::new()), Mutex::new(BTreeMap::<&str, u64>::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(8) {
            scope.spawn(|| {
                let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    let k = seeded(seed);
                    match judge(&k.text(), &k.options, &k.case(), &*isa) {
                        Verdict::Refused(_) => _ = refused.fetch_add(1, Ordering::Relaxed),
                        Verdict::Wrong(s) => {
                            let said = format!("seed {seed}: {}\n{}\n{}", s.key, s.detail, k.filetest());
                            wrong.lock().expect("no thread fails").push(said);
                        }
                        Verdict::Right => {
                            let mut reached = reached.lock().expect("no thread fails");
                            features(&k).into_iter().for_each(|f| *reached.entry(f).or_default() += 1);
                        }
                    }
                }
            });
        }
    });
    let (wrong, refused) = (wrong.into_inner().expect("joined"), refused.into_inner());
    assert!(wrong.is_empty(), "{} of {seeds} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(3 * refused < seeds, "{refused} of {seeds} are refused");
    let reached = reached.into_inner().expect("joined");
    for (what, percent) in REACH {
        let n = reached.get(what).copied().unwrap_or(0);
        assert!(100 * n >= percent * seeds, "{n} of {seeds} kernels have: {what}");
    }
}

/// What remains when only a store is asked for: a store of a constant. All that is tried is legal.
#[test]
fn shrinking_leaves_what_is_asked_for() {
    let mut shrunk = 0;
    for seed in 0..40 {
        let has = |k: &Kernel| k.text().contains("tiled_store");
        let k = seeded(seed);
        if !has(&k) {
            continue;
        }
        let small = shrink(&k, 1000, |k| {
            let text = k.text();
            let (mut context, settings) = (Context::new(), Settings::default());
            let module =
                context.parse(&text, &settings).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
            context.check(&module, &settings).unwrap_or_else(|e| panic!("seed {seed}: {e:?}\n{text}"));
            has(k)
        });
        assert!(
            small.options.is_empty() && small.text().lines().count() <= 6,
            "seed {seed}\n{}",
            small.text()
        );
        shrunk += 1;
    }
    assert!(shrunk > 15);
}

#[test]
fn a_seed_always_gives_the_same_kernel() {
    for seed in 0..50 {
        assert_eq!(seeded(seed), seeded(seed));
    }
}
