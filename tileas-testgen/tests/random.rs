//! The fuzz targets' checks on random data, for about a second each.

use arbtest::arbitrary::Unstructured;
use std::cell::RefCell;
use tileas_codegen::Context;
use tileas_codegen::Settings;
use tileas_testgen::check::{
    Verdict, check_agents, check_compile, check_parse, check_round_trip, check_tile_ir, damaged, described,
    kernel, mutated, run_drawn,
};

/// Counts verdicts: refused, accepted.
#[derive(Default)]
struct Counts(RefCell<[u32; 2]>);

impl Counts {
    fn add(&self, verdict: Verdict) {
        self.0.borrow_mut()[usize::from(verdict == Verdict::Accepted)] += 1;
    }

    /// A share of all cases must have been accepted.
    fn assert_accepted(&self, one_in: u32) {
        let [refused, accepted] = *self.0.borrow();
        println!("{refused} refused, {accepted} accepted");
        assert!(
            accepted >= 5 && accepted * one_in >= refused + accepted,
            "{refused} refused, {accepted} accepted"
        );
    }
}

#[test]
fn any_bytes_parse_or_are_refused() {
    arbtest::arbtest(|u| {
        check_parse(u.arbitrary::<Vec<u8>>()?.as_slice());
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn kernels_print_to_a_fixed_point() {
    let counts = Counts::default();
    arbtest::arbtest(|u| {
        counts.add(check_round_trip(u)?);
        Ok(())
    })
    .size_min(400)
    .size_max(4000)
    .budget_ms(1000);
    counts.assert_accepted(4);
}

#[test]
fn kernels_compile_the_same_on_any_context() {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
    let (counts, warm) = (Counts::default(), RefCell::new(Context::new()));
    arbtest::arbtest(|u| {
        counts.add(check_agents(u, &*isa, &mut warm.borrow_mut())?);
        Ok(())
    })
    .size_min(400)
    .size_max(4000)
    .budget_ms(2000);
    counts.assert_accepted(4);
}

/// The texts of all filetests, without comments.
fn corpus() -> Vec<String> {
    let cases = tileas_filetests::collect(&tileas_filetests::root()).expect("readable filetests");
    let mut paths: Vec<_> = cases.into_iter().map(|c| c.path).collect();
    paths.dedup();
    let read = |p| std::fs::read_to_string(p).expect("a readable file");
    let bare = |text: String| {
        let code = text.lines().map(|l| l.split(';').next().unwrap_or("").trim_end());
        code.filter(|l| !l.is_empty()).collect::<Vec<_>>().join("\n")
    };
    paths.iter().map(read).map(bare).filter(|t| t.len() < 8000).collect()
}

/// Milliseconds of a test: `TILEAS_RANDOM_MS`, or the default.
fn budget(default: u64) -> u64 {
    std::env::var("TILEAS_RANDOM_MS").ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Any damage to a kernel ends in PTX or located errors at every stage.
#[test]
fn mutated_kernels_compile_or_are_refused() {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
    let (counts, warm, corpus) = (Counts::default(), RefCell::new(Context::new()), corpus());
    arbtest::arbtest(|u| {
        let text = mutated(u, &corpus)?;
        if std::env::var_os("TILEAS_SHOW_CASES").is_some() {
            std::fs::write(std::env::temp_dir().join("tileas-case.tileas"), &text)
                .expect("a writable folder");
        }
        counts.add(check_compile(&text, &*isa, &Settings::default(), &mut warm.borrow_mut()));
        Ok(())
    })
    .size_min(64)
    .size_max(512)
    .budget_ms(budget(2000));
    counts.assert_accepted(30);
}

/// Any damage to a file of Tile IR that its rules allow ends in PTX or errors at every stage.
#[test]
fn damaged_tile_ir_compiles_or_is_refused() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tileas-tileir/tests/files");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").flatten().map(|f| f.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "tileirbc"));
    paths.sort();
    let corpus: Vec<Vec<u8>> = paths.iter().map(|p| std::fs::read(p).expect("a readable file")).collect();
    for target in ["sm_90a", "sm_100a"] {
        let isa = tileas_isa::isa_for_cpu(target).expect("a target");
        let settings = Settings::default().with("target", target).expect("an option");
        let (counts, warm) = (Counts::default(), RefCell::new(Context::new()));
        arbtest::arbtest(|u| {
            let bytes = damaged(u, &corpus)?;
            counts.add(check_tile_ir(&bytes, &*isa, &settings, &mut warm.borrow_mut()));
            Ok(())
        })
        .size_min(64)
        .size_max(256)
        .budget_ms(budget(1000));
        counts.assert_accepted(40);
    }
}

/// Whatever the tree of loops, branches, products and steps, the constraints and the options: the kernel compiles, runs to its
/// end in any order of completions, agent by agent and as PTX, without a fault, and computes what its source says.
#[test]
fn kernels_compute_what_their_source_says() {
    let seeds = std::env::var("TILEAS_RANDOM_SEEDS").ok().and_then(|v| v.parse().ok()).unwrap_or(16);
    for target in ["sm_100a", "sm_90a"] {
        let isa = tileas_isa::isa_for_cpu(target).expect("a processor");
        let (counts, mut warm) = (Counts::default(), Context::new());
        for seed in 1..=seeds {
            let bytes = bytes(seed);
            let drawn = kernel(&mut Unstructured::new(&bytes)).unwrap_or_else(|e| panic!("{e}"));
            let verdict = run_drawn(&drawn, &*isa, &mut warm);
            counts
                .add(verdict.unwrap_or_else(|e| panic!("{e}\n{target}, seed {seed}\n{}", described(&drawn))));
        }
        counts.assert_accepted(2);
    }
}

/// Bytes that follow from a seed (xorshift).
fn bytes(seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    (0..256).flat_map(next).collect()
}
