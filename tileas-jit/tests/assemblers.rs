//! Assemblers on real kernels, and what happens when they are broken, absent, or asked for what they do not know.
//!
//! `PTXAS` and `NVJITLINK` name the real ones; without them the tests that need them say so and pass, unless
//! `TILEAS_REQUIRE_PTXAS` is set. `cargo xtask test` sets all three.

use crate::alone;
use std::path::PathBuf;
use std::time::Duration;
use tileas_jit::assembler::{Ladder, NvJitLink, Options, Ptxas};
use tileas_jit::{Assembler, Code, Cubin, Error};

/// Kernels and the processor that each is for.
const KERNELS: [(&str, &str, u32); 7] = [
    (include_str!("data/gemm_f16_sm100a.ptx"), "sm_100a", 100),
    (include_str!("data/gemm_persistent_sm100a.ptx"), "sm_100a", 100),
    (include_str!("data/attention_fwd_sm100a.ptx"), "sm_100a", 100),
    (include_str!("data/gemm_sm90a.ptx"), "sm_90a", 90),
    // By hand, for runs on a GPU.
    (include_str!("../../tileas-emu/tests/data/gemm_coop_sm90a.ptx"), "sm_90a", 90),
    (include_str!("../../tileas-emu/tests/data/attention_fwd_sm90a.ptx"), "sm_90a", 90),
    (include_str!("../../tileas-emu/tests/data/cluster_pairs_sm90a.ptx"), "sm_90a", 90),
];

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// What a variable names; `None`: it is not set, and need not be.
fn tool(name: &str) -> Option<PathBuf> {
    let found = std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if found.is_none() {
        let required = std::env::var_os("TILEAS_REQUIRE_PTXAS").is_some_and(|v| v != "0" && !v.is_empty());
        // The packages that it comes in are not for all systems.
        assert!(!required || name == "NVJITLINK" && !cfg!(target_os = "linux"), "{name} is not set");
        println!("{name} is not set: not tested");
    }
    found
}

/// The real assemblers that are here.
fn real(options: &Options) -> Vec<Box<dyn Assembler>> {
    let mut all: Vec<Box<dyn Assembler>> = Vec::new();
    if let Some(path) = tool("PTXAS") {
        all.push(Box::new(Ptxas::at(path, options).expect("PTXAS works")));
    }
    if let Some(path) = tool("NVJITLINK") {
        all.push(Box::new(NvJitLink::at(path, options).expect("NVJITLINK works")));
    }
    all
}

/// An assembler for tests: knows PTX up to a version, gives an answer.
struct Fake {
    knows: (u8, u8),
    answer: Result<Cubin, Error>,
}

impl Assembler for Fake {
    fn name(&self) -> &str {
        "fake"
    }
    fn fingerprint(&self) -> &str {
        "fake 1"
    }
    fn max_ptx_version(&self) -> (u8, u8) {
        self.knows
    }
    fn assemble(&self, _: &str, _: &str) -> Result<Cubin, Error> {
        self.answer.clone()
    }
}

/// An image of a header and nothing else.
fn cubin() -> Cubin {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x41");
    (bytes[18], bytes[49]) = (190, 100);
    Cubin::new(bytes).expect("a whole image")
}

fn error(code: Code) -> Error {
    Error::new(code, "as told")
}

#[test]
fn kernels_become_machine_code_for_their_processor() {
    for assembler in real(&Options::default()) {
        for (ptx, target, processor) in KERNELS {
            let first = assembler.assemble(ptx, target).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(first.processor(), processor, "{}", assembler.name());
            let again = assembler.assemble(ptx, target).expect("once more");
            assert!(first == again, "{}: two images of {target}", assembler.name());
        }
    }
}

#[test]
fn threads_do_not_meet() {
    for assembler in real(&Options::default()) {
        let few = &KERNELS[..4];
        let assemble = |k: &(&str, &str, u32)| assembler.assemble(k.0, k.1).expect("assembles");
        let want: Vec<Cubin> = few.iter().map(assemble).collect();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (kernel, want) = (&few[n % 4], &want[n % 4]);
                scope.spawn(move || assert!(assemble(kernel) == *want));
            }
        });
    }
}

/// Its threads may outlive the last call, and with it their code.
#[test]
#[cfg(target_os = "linux")]
fn nvjitlink_stays_loaded() {
    let Some(path) = tool("NVJITLINK") else { return };
    // Alone in a process: other tests have it loaded too.
    if std::env::var_os("TILEAS_TEST_CHILD").is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().expect("is known"));
        let child = child.args(alone("assemblers::nvjitlink_stays_loaded")).env("TILEAS_TEST_CHILD", "1");
        let output = child.output().expect("starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let mapped = || std::fs::read_to_string("/proc/self/maps").expect("is there").contains("libnvJitLink");
    let assembler = NvJitLink::at(&path, &Options::default()).expect("loads");
    assert!(mapped());
    drop(assembler);
    assert!(mapped());
}

#[test]
fn broken_ptx_is_refused_with_its_line() {
    let broken = KERNELS[0].0.replacen("mbarrier.init", "mbarrier.unit", 1);
    let line = broken.lines().position(|l| l.contains("mbarrier.unit")).expect("it has one") + 1;
    for assembler in real(&Options::default()) {
        let error = assembler.assemble(&broken, "sm_100a").expect_err("it is broken");
        assert_eq!(error.code, Code::E1202, "{error}");
        assert!(error.message.contains(&format!("line {line};")), "{error}");
        assert!(error.message.contains("\n    | mbarrier.unit"), "{error}");
        assert!(!error.message.contains("tileas-"), "no names of temporary folders: {error}");
        // For another processor than the text says: that is the text's fault, too.
        let error = assembler.assemble(KERNELS[3].0, "sm_100a").expect_err("it is for sm_90a");
        assert_eq!(error.code, Code::E1202, "{error}");
        let cut = KERNELS[3].0.replacen("ret;", "\0", 1);
        for text in ["", "\0", "no PTX", &cut] {
            let error = assembler.assemble(text, "sm_90a").expect_err("no module");
            assert_eq!(error.code, Code::E1202, "{text:?}: {error}");
        }
    }
}

#[test]
fn what_is_not_known_is_said_so() {
    let future = KERNELS[3].0.replacen(".version 8.6", ".version 99.0", 1);
    for assembler in real(&Options::default()) {
        for (ptx, target) in [(future.as_str(), "sm_90a"), (KERNELS[3].0, "sm_999a")] {
            let error = assembler.assemble(ptx, target).expect_err("nobody knows that");
            assert_eq!(error.code, Code::E1207, "{}: {error}", assembler.name());
        }
        let (major, minor) = assembler.max_ptx_version();
        for (minor, works) in [(minor, true), (minor + 1, false)] {
            let ptx = format!(".version {major}.{minor}\n.target sm_90\n.visible .entry k() {{ ret; }}\n");
            let answer = assembler.assemble(&ptx, "sm_90");
            assert_eq!(answer.is_ok(), works, "{} with {major}.{minor}: {answer:?}", assembler.fingerprint());
        }
    }
}

#[test]
fn fingerprints_tell_tools_and_options_apart() {
    let all = [
        Options::default(),
        Options { opt_level: 1, ..Options::default() },
        Options { line_info: true, ..Options::default() },
        Options { extra: vec!["--maxrregcount=64".into()], ..Options::default() },
    ];
    let mut seen = Vec::new();
    let (ptx, target, _) = KERNELS[3];
    for options in &all {
        for assembler in real(options) {
            assert!(assembler.assemble(ptx, target).is_ok(), "{}", assembler.fingerprint());
            seen.push((assembler.name().to_owned(), assembler.fingerprint().to_owned()));
        }
    }
    for (n, one) in seen.iter().enumerate() {
        assert!(!seen[..n].contains(one), "{one:?} twice");
        // A build, not only a release: `V13.5.37`, or the size of a file.
        assert!(one.1.contains(", V") || one.1.contains(" bytes"), "{one:?}");
    }
    // Where and how long to look is no matter of the machine code.
    let patient = Options { timeout: Some(Duration::from_secs(600)), ..Options::default() };
    for (a, b) in real(&Options::default()).iter().zip(real(&patient)) {
        assert_eq!(a.fingerprint(), b.fingerprint());
    }
}

#[test]
fn options_reach_the_assembler() {
    let (ptx, target, _) = KERNELS[3];
    let plain: Vec<Cubin> =
        real(&Options::default()).iter().map(|a| a.assemble(ptx, target).expect("assembles")).collect();
    let lines = Options { line_info: true, ..Options::default() };
    for (a, plain) in real(&lines).iter().zip(&plain) {
        let image = a.assemble(ptx, target).expect("assembles");
        let has = |c: &Cubin| c.bytes().windows(11).any(|w| w == b".debug_line");
        assert!(has(&image) && !has(plain), "{}", a.name());
    }
    let slow = Options { opt_level: 0, ..Options::default() };
    for (a, plain) in real(&slow).iter().zip(&plain) {
        assert!(a.assemble(ptx, target).expect("assembles") != *plain, "{}", a.name());
    }
    let unknown = Options { extra: vec!["--no-such-option".into()], ..Options::default() };
    for a in real(&unknown) {
        let error = a.assemble(ptx, target).expect_err("there is no such option");
        assert!(error.code == Code::E1202 && error.message.contains("no-such-option"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn an_assembler_that_hangs_is_killed() {
    let options = Options { timeout: Some(Duration::from_millis(100)), ..Options::default() };
    let hangs = Ptxas::at(data("hangs.sh"), &options).expect("it knows its version");
    let error = hangs.assemble(KERNELS[3].0, "sm_90a").expect_err("it hangs");
    assert_eq!(error.code, Code::E1203);
    assert!(error.message.ends_with("has not ended after 100ms and is killed"), "{error}");
}

#[cfg(unix)]
#[test]
fn what_is_no_assembler_is_an_error() {
    let options = Options::default();
    let code = |r: Result<Ptxas, Error>| r.map_err(|e| e.code).map(|a| a.assemble(".version 8.0", "sm_90a"));
    assert_eq!(code(Ptxas::at(data("babbles_version.sh"), &options)), Err(Code::E1203));
    assert_eq!(code(Ptxas::at("/nonexistent/ptxas", &options)), Err(Code::E1203));
    for (name, says) in [("babbles.sh", "no whole ELF"), ("crashes.sh", "signal: 9")] {
        // A relative path: the process runs in another folder, and is found all the same.
        let path = PathBuf::from("tests/data").join(name);
        let error = Ptxas::at(path, &options).expect("it knows a version");
        let error = error.assemble(".version 8.0", "sm_90a").expect_err(name);
        assert!(error.code == Code::E1203 && error.message.contains(says), "{name}: {error}");
    }
    for path in
        ["/nonexistent/libnvJitLink.so", "libc.so.6"].map(PathBuf::from).into_iter().chain([data("hangs.sh")])
    {
        let error = NvJitLink::at(&path, &options).expect_err("it is none");
        assert_eq!(error.code, Code::E1204, "{error}");
    }
}

#[test]
fn the_ladder_takes_the_first_that_can() {
    let old = Fake { knows: (7, 0), answer: Err(error(Code::E1202)) };
    let ladder = Ladder::default()
        .with("absent", Err::<Fake, _>(error(Code::E1204)))
        .with("old", Ok(old))
        .with("narrow", Ok(Fake { knows: (9, 9), answer: Err(error(Code::E1207)) }))
        .with("good", Ok(Fake { knows: (9, 9), answer: Ok(cubin()) }))
        .with("never", Ok(Fake { knows: (9, 9), answer: Err(error(Code::E1203)) }));
    let done = ladder.assemble_by(KERNELS[0].0, "sm_100a").expect("one can");
    assert_eq!((done.rung.as_str(), &done.cubin), ("good", &cubin()));
    let passed: Vec<_> = done.passed_over.iter().map(|(name, e)| (name.as_str(), e.code)).collect();
    assert_eq!(passed, [("absent", Code::E1204), ("old", Code::E1207), ("narrow", Code::E1207)]);
    assert!(done.passed_over[1].1.message.contains("PTX 8.6 is asked for, versions up to 7.0"));
    // The old one is good enough for old text, and its refusal is the answer.
    let refused = ladder.assemble(&KERNELS[0].0.replace("version 8.6", "version 7.0"), "sm_100a");
    assert_eq!(refused, Err(error(Code::E1202)));
    assert_eq!(
        (ladder.max_ptx_version(), ladder.fingerprint()),
        ((9, 9), "fake 1 | fake 1 | fake 1 | fake 1")
    );
    let want = "absent: not there: E1204: as told\nold: fake 1, PTX up to 7.0\n";
    assert!(ladder.describe().starts_with(want), "{}", ladder.describe());
}

/// A linker for tests.
struct Linker(Fake);

impl Assembler for Linker {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn fingerprint(&self) -> &str {
        self.0.fingerprint()
    }
    fn max_ptx_version(&self) -> (u8, u8) {
        self.0.max_ptx_version()
    }
    fn is_relocatable(&self) -> bool {
        true
    }
    fn assemble(&self, ptx: &str, target: &str) -> Result<Cubin, Error> {
        self.0.assemble(ptx, target)
    }
}

/// They ignore `setmaxnreg` and make products of warpgroups one at a time.
#[test]
fn linkers_come_last_for_whole_programs() {
    let good = || Fake { knows: (9, 9), answer: Ok(cubin()) };
    let linker = || Ladder::default().with("linker", Ok(Linker(good())));
    let ladder = linker().with("whole", Ok(good()));
    for (line, rung, alone) in [
        ("add.u32 %r0, %r0, 1;", "linker", 0),
        ("setmaxnreg.inc.sync.aligned.u32 232;", "whole", 1),
        ("wgmma.fence.sync.aligned;", "whole", 1),
    ] {
        let ptx = format!(".version 8.6\n.target sm_90a\n{line}\n");
        let done = ladder.assemble_by(&ptx, "sm_90a").expect("one can");
        assert_eq!((done.rung.as_str(), done.passed_over.len()), (rung, alone), "{line}");
        // Where nothing else is there, slow code is better than none.
        let done = linker().assemble_by(&ptx, "sm_90a").expect("it can");
        assert_eq!(done.rung, "linker");
    }
}

#[test]
fn a_ladder_on_which_nobody_can_says_why() {
    let none = Ladder::default().assemble("", "sm_90a").expect_err("no rungs");
    assert_eq!(none.code, Code::E1201);
    let ladder = Ladder::default()
        .with("absent", Err::<Fake, _>(error(Code::E1204)))
        .with("old", Ok(Fake { knows: (7, 0), answer: Ok(cubin()) }));
    let none = ladder.assemble(KERNELS[0].0, "sm_100a").expect_err("too new");
    assert_eq!(none.code, Code::E1201);
    let want = "no assembler can be used\n  absent: E1204: as told\n  old: E1207: PTX 8.6 is asked for, versions up to 7.0 are known";
    assert_eq!(none.message, want);
}

#[test]
fn real_rungs_stand_below_one_that_is_too_old() {
    let Some(path) = tool("NVJITLINK") else { return };
    let options = Options::default();
    let ladder = Ladder::default()
        .with("old", Ok(Fake { knows: (7, 0), answer: Ok(cubin()) }))
        .with("nvJitLink", NvJitLink::at(path, &options));
    let done = ladder.assemble_by(KERNELS[3].0, "sm_90a").expect("nvJitLink can");
    assert_eq!((done.rung.as_str(), done.cubin.processor()), ("nvJitLink", 90));
    println!("{}", ladder.describe());
    println!("{}", Ladder::find(&options).describe());
}
