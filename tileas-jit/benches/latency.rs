//! From a module to a launch, by where the kernel comes from: `cargo bench -p tileas-jit --bench latency`.
//!
//! `compiled` ends at PTX, `by_nvjitlink` and `by_ptxas` at machine code (variables `NVJITLINK`, `PTXAS`; left out where there is none), `from_disk` and
//! `from_memory` at a kernel that is ready, on the emulator, for which reading the PTX is loading. `launched` is what a launch costs besides
//! the kernel: arguments, requirements, grid, tensor maps, parameters. What others take: `peers.py`.

use divan::{Bencher, black_box};
use half::f16;
use tempfile::TempDir;
use tileas_codegen::Context;
use tileas_jit::assembler::{Assembler, NvJitLink, Options, Ptxas};
use tileas_jit::{Cache, Device, Elem, EmulatorOptions, Jit, args};

const KERNELS: [(&str, &str, &str); 3] = [
    ("gemm", "gemm_bias_relu", include_str!("../../examples/gemm_f16.tileas")),
    ("persistent", "gemm_persistent", include_str!("../../examples/gemm_persistent.tileas")),
    ("attention", "attention_fwd", include_str!("../../examples/attention_fwd.tileas")),
];
const NAMES: [&str; 3] = ["gemm", "persistent", "attention"];

fn main() {
    divan::main();
}

fn of(name: &str) -> (&'static str, &'static str) {
    let (_, kernel, text) = KERNELS.iter().find(|k| k.0 == name).expect("one of them");
    (kernel, text)
}

fn jit(cache: Cache) -> Jit {
    Jit::builder(&Device::emulator()).cache(cache).build().expect("a JIT")
}

#[divan::bench(args = NAMES)]
fn a_compiled(bencher: Bencher, name: &str) {
    let (kernel, text) = of(name);
    let jit = jit(Cache::none());
    let module = jit.parse(text).expect("parses");
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
    let (mut context, settings) = (Context::new(), tileas_codegen::Settings::default());
    assert_eq!(module.functions[0].name, kernel);
    bencher.bench_local(|| context.compile(&module, &*isa, &settings).expect("compiles"));
}

fn assemble(bencher: Bencher, name: &str, assembler: Result<impl Assembler, tileas_jit::Error>) {
    let (kernel, text) = of(name);
    let Ok(assembler) = assembler else { return };
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
    let (mut context, settings) = (Context::new(), tileas_codegen::Settings::default());
    let module = context.parse(text, &settings).expect("parses");
    assert_eq!(module.functions[0].name, kernel);
    bencher.bench_local(|| {
        let compiled = context.compile(&module, &*isa, &settings).expect("compiles");
        assembler.assemble(&compiled.kernels[0].ptx, "sm_100a").expect("assembles")
    });
}

#[divan::bench(args = NAMES, sample_count = 10, sample_size = 1)]
fn b_by_nvjitlink(bencher: Bencher, name: &str) {
    assemble(bencher, name, NvJitLink::find(&Options::default()));
}

#[divan::bench(args = NAMES, sample_count = 10, sample_size = 1)]
fn c_by_ptxas(bencher: Bencher, name: &str) {
    assemble(bencher, name, Ptxas::find(&Options::default()));
}

#[divan::bench(args = NAMES)]
fn d_from_disk(bencher: Bencher, name: &str) {
    let (kernel, text) = of(name);
    let folder = TempDir::new().expect("a folder");
    let jit = jit(Cache::disk(folder.path()).expect("a cache"));
    let module = jit.parse(text).expect("parses");
    jit.kernel(&module, kernel).expect("compiles");
    bencher.bench_local(|| {
        jit.forget();
        jit.kernel(&module, kernel).expect("is on disk")
    });
    assert_eq!(jit.compiled(), 1);
}

#[divan::bench(args = NAMES)]
fn e_from_memory(bencher: Bencher, name: &str) {
    let (kernel, text) = of(name);
    let jit = jit(Cache::none());
    let module = jit.parse(text).expect("parses");
    jit.kernel(&module, kernel).expect("compiles");
    bencher.bench_local(|| jit.kernel(black_box(&module), kernel).expect("is in memory"));
    assert_eq!(jit.compiled(), 1);
}

#[divan::bench]
fn f_launched(bencher: Bencher) {
    let device = Device::emulator_with(EmulatorOptions { dry: true, ..EmulatorOptions::default() });
    let jit = Jit::new(&device).expect("a JIT");
    let (kernel, text) = of("gemm");
    let kernel = jit.kernel(&jit.parse(text).expect("parses"), kernel).expect("compiles");
    let zeros = |extents: &[i64]| device.zeros(Elem::F16, extents).expect("memory");
    let (a, b, bias, mut c) = (zeros(&[512, 512]), zeros(&[512, 512]), zeros(&[512]), zeros(&[512, 512]));
    let stream = device.stream().expect("a stream");
    bencher.bench_local(|| kernel.launch(&stream, args![&a, &b, &bias, &mut c, 8]).expect("is launched"));
    assert_eq!(c.read::<f16>().expect("is read")[0], f16::ZERO);
}
