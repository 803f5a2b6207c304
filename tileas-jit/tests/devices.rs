//! One suite for all devices: the emulator always, a GPU where `TILEAS_CUDA` says which (`0`).

use half::f16;
use tileas_codegen::Settings;
use tileas_jit::{
    BorrowedMemory, BorrowedStream, Device, Elem, EmulatorOptions, Error, Jit, Kernel, KernelArg, Stream,
    Tensor, args,
};

const GEMM: &str = include_str!("../../examples/gemm_f16.tileas");

/// Every device there is.
fn devices() -> Vec<Device> {
    let mut all = vec![Device::emulator()];
    #[cfg(feature = "cuda")]
    if let Ok(ordinal) = std::env::var("TILEAS_CUDA") {
        let ordinal = ordinal.parse().expect("the number of a device");
        all.push(Device::cuda(ordinal).expect("a GPU"));
    }
    all.dedup_by_key(|d| d.name());
    all
}

/// Small integers, of which sums of products are exact.
fn numbers(n: usize, seed: usize) -> Vec<f16> {
    (0..n).map(|i| f16::from_f32(((i * 7 + seed * 3 + i / 11) % 5) as f32 - 2.0)).collect()
}

struct Gemm {
    m: usize,
    n: usize,
    k: usize,
    data: [Vec<f16>; 3],
}

impl Gemm {
    fn new(m: usize, n: usize, k: usize) -> Gemm {
        Gemm { m, n, k, data: [numbers(m * k, 1), numbers(n * k, 2), numbers(n, 3)] }
    }

    fn tensors(&self, device: &Device) -> [Tensor; 4] {
        let [m, n, k] = [self.m, self.n, self.k].map(|x| x as i64);
        let tensor = |i: usize, extents: &[i64]| device.tensor(&self.data[i], extents).unwrap();
        [tensor(0, &[m, k]), tensor(1, &[n, k]), tensor(2, &[n]), device.zeros(Elem::F16, &[m, n]).unwrap()]
    }

    /// max(A · Bᵀ + bias, 0)
    fn want(&self) -> Vec<f16> {
        let [a, b, bias] = &self.data;
        let at = |i: usize| {
            let (row, column) = (i / self.n, i % self.n);
            let dot: f32 =
                (0..self.k).map(|k| a[row * self.k + k].to_f32() * b[column * self.k + k].to_f32()).sum();
            f16::from_f32((dot + bias[column].to_f32()).max(0.0))
        };
        (0..self.m * self.n).map(at).collect()
    }
}

#[test]
fn a_kernel_computes() {
    for device in devices() {
        let jit = Jit::new(&device).unwrap();
        let kernel = jit.kernel(&jit.parse(GEMM).unwrap(), "gemm_bias_relu").unwrap();
        let stream = device.stream().unwrap();
        for (m, n, k) in [(128, 128, 64), (200, 136, 72), (8, 8, 8)] {
            let gemm = Gemm::new(m, n, k);
            let [a, b, bias, mut c] = gemm.tensors(&device);
            kernel.launch(&stream, args![&a, &b, &bias, &mut c, k.div_ceil(64) as i32]).unwrap();
            stream.synchronize().unwrap();
            assert!(c.read::<f16>().unwrap() == gemm.want(), "{}: {m} x {n} x {k}", device.name());
        }
    }
}

/// A kernel with its device and a stream.
fn gemm(device: &Device) -> (Jit, Kernel, Stream) {
    let jit = Jit::new(device).unwrap();
    let kernel = jit.kernel(&jit.parse(GEMM).unwrap(), "gemm_bias_relu").unwrap();
    (jit, kernel, device.stream().unwrap())
}

#[test]
fn windows_of_tensors_are_tensors() {
    for device in devices() {
        let (_, kernel, stream) = gemm(&device);
        let gemm = Gemm::new(40, 72, 24);
        let [a, b, bias, _] = gemm.tensors(&device);
        // The result is a part of a larger matrix, whose other elements stay.
        let whole = device.tensor(&vec![f16::from_f32(-9.0); 64 * 96], &[64, 96]).unwrap();
        let mut part = whole.window(8 * 96 + 16, &[40, 72], &[96, 1]).unwrap();
        kernel.launch(&stream, args![&a, &b, &bias, &mut part, 1]).unwrap();
        stream.synchronize().unwrap();
        let (all, want) = (whole.read::<f16>().unwrap(), gemm.want());
        assert!(part.read::<f16>().unwrap() == want);
        for (i, x) in all.iter().enumerate() {
            let inside = (8..48).contains(&(i / 96)) && (16..88).contains(&(i % 96));
            let want = if inside { want[(i / 96 - 8) * 72 + i % 96 - 16] } else { f16::from_f32(-9.0) };
            assert_eq!(*x, want, "{i}");
        }
        part.write(&vec![f16::ONE; 40 * 72]).unwrap();
        assert_eq!(whole.read::<f16>().unwrap().iter().filter(|&&x| x == f16::ONE).count(), 40 * 72);
        for (first, extents, strides) in [
            (0, &[64_i64, 97][..], &[96_i64, 1][..]),
            (1, &[64, 96], &[96, 1]),
            (64 * 96, &[1], &[1]),
            (0, &[2], &[i64::MAX]),
            (0, &[2], &[-1]),
            (0, &[2, 2], &[1]),
            (usize::MAX, &[1], &[1]),
        ] {
            let error = whole.window(first, extents, strides).unwrap_err();
            assert_eq!(error.code.as_str(), "E1209", "{first} {extents:?} {strides:?}");
        }
        assert!(whole.window(64 * 96, &[0, 4], &[96, 1]).unwrap().read::<f16>().unwrap().is_empty());
    }
}

#[test]
fn misuse_is_an_error() {
    for device in devices() {
        let (jit, kernel, stream) = gemm(&device);
        let [a, b, bias, mut c] = Gemm::new(16, 16, 8).tensors(&device);
        let other = Device::emulator();
        let [foreign, ..] = Gemm::new(16, 16, 8).tensors(&other);
        let wide = device.zeros(Elem::F32, &[16, 8]).unwrap();
        let odd = device.zeros(Elem::F16, &[16, 9]).unwrap();
        let expect = |code: &str, text: &str, result: Result<(), Error>| {
            let error = result.unwrap_err();
            assert!(error.code.as_str() == code && error.message.contains(text), "{error}; {code}: {text}");
        };
        let go = |list: &[KernelArg<'_>]| kernel.launch(&stream, list);
        expect("E1102", "5 arguments (a, b, bias, c, kt), 1 are given", go(args![&a]));
        expect("E1103", "c is written to", go(args![&a, &b, &bias, &c, 1]));
        expect("E1103", "a has elements of type f16, f32 are given", go(args![&wide, &b, &bias, &mut c, 1]));
        expect("E1103", "kt is of type i32, a number with a fraction", go(args![&a, &b, &bias, &mut c, 1.0]));
        expect("E1103", "bias has rank 1, 2 extents are given", go(args![&a, &b, &a, &mut c, 1]));
        expect(
            "E1103",
            "kt: 8589934592 does not fit into i32",
            go(args![&a, &b, &bias, &mut c, 1_i64 << 33]),
        );
        // Of a kernel from elsewhere nothing else can be made.
        let alone = jit.kernel_of_ptx(kernel.ptx(), kernel.metadata()).unwrap();
        let refused = alone.launch(&stream, args![&odd, &b, &bias, &mut c, 1]);
        expect("E1104", "is 9 elements and must be a multiple of 8", refused);
        expect("E1210", "argument 0 is of another device", go(args![&foreign, &b, &bias, &mut c, 1]));
        let elsewhere = other.stream().unwrap();
        expect("E1210", "the stream", kernel.launch(&elsewhere, args![&a, &b, &bias, &mut c, 1]));
        let grid = kernel.launch_grid(&stream, [1, 0, 1], args![&a, &b, &bias, &mut c, 1]);
        expect("E1106", "[1, 0, 1]", grid);
        expect("E1209", "elements of type f16, not f32", c.read::<f32>().map(|_| ()));
        expect("E1209", "2 bytes for 256 elements", c.write(&[f16::ONE]));
        expect("E1209", "", device.zeros(Elem::F32, &[1 << 40, 1 << 40]).map(|_| ()));
        expect("E1209", "", device.zeros(Elem::F32, &[-1]).map(|_| ()));
        expect("E1209", "e2m1", device.zeros(Elem::E2m1, &[8]).map(|_| ()));
        let module = jit.parse(GEMM).unwrap();
        expect("E1212", "no kernel gemm; it has gemm_bias_relu", jit.kernel(&module, "gemm").map(|_| ()));
        let broken = GEMM.replace("addf %acc, %bb", "addf %acc, %bt");
        let error = jit.parse(&broken).and_then(|m| jit.kernel(&m, "gemm_bias_relu")).unwrap_err();
        assert_eq!((error.code.as_str(), error.errors.as_ref().unwrap().len()), ("E0212", 1), "{error}");
        assert!(error.message.starts_with("17:3: E0212"), "{error}");
        // Nothing of all that has hurt.
        kernel.launch(&stream, args![&a, &b, &bias, &mut c, 1]).unwrap();
        stream.synchronize().unwrap();
        assert!(c.read::<f16>().unwrap() == Gemm::new(16, 16, 8).want());
    }
}

/// The same without descriptors of its own.
const PLAIN: &str = "kernel @gemm_bias_relu(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %bias: view<gmem, ?xf16>, %c: view<gmem, ?x?xf16>, %kt: i32) {
  %i = program_id <{axis = 0}> : i32
  %j = program_id <{axis = 1}> : i32
  %z = constant 0.0 : tile<128x64xf32>
  %acc = for %k = 0 to %kt step 1 iter (%s = %z : tile<128x64xf32>) {
    %ta = tiled_load %a[%i, %k] : tile<128x64xf16>
    %tb = tiled_load %b[%j, %k] : tile<64x64xf16>
    %r = dot %ta, %tb, %s <{transpose_b}> : tile<128x64xf32>
    yield %r
  }
  %t = tiled_load %bias[%j] : tile<64xf16>
  %w = ftof %t : tile<64xf32>
  %row = reshape %w : tile<1x64xf32>
  %sum = addf %acc, %row
  %most = maxf %sum, 0.0
  %o = ftof %most : tile<128x64xf16>
  tiled_store %o, %c[%i, %j]
  return
}
";

/// Rows of odd lengths, and of none, cannot go through TMA.
#[test]
fn arguments_that_tma_does_not_take_go_without() {
    for device in devices() {
        let (jit, stream) = (Jit::new(&device).unwrap(), device.stream().unwrap());
        let kernel = jit.kernel(&jit.parse(PLAIN).unwrap(), "gemm_bias_relu").unwrap();
        for (m, n, k) in [(130, 71, 65), (16, 9, 9), (3, 1, 1), (16, 16, 0), (16, 16, 8)] {
            let gemm = Gemm::new(m, n, k);
            let [a, b, bias, mut c] = gemm.tensors(&device);
            kernel.launch(&stream, args![&a, &b, &bias, &mut c, k.div_ceil(64) as i32]).unwrap();
            stream.synchronize().unwrap();
            assert!(c.read::<f16>().unwrap() == gemm.want(), "{}: {m} x {n} x {k}", device.name());
        }
        assert_eq!(jit.compiled(), 2);
        // What no kernel takes is refused for the reason that the first one has.
        let [a, b, bias, mut c] = Gemm::new(16, 16, 8).tensors(&device);
        let flat = a.window(0, &[16, 4], &[8, 2]).unwrap();
        let error = kernel.launch(&stream, args![&flat, &b, &bias, &mut c, 1]).unwrap_err();
        assert!(error.message.contains("along dimension 1 must be 1, 2 is given"), "{error}");
    }
}

/// Clusters share rows of A here; a grid that is not of whole ones goes without, where there is such a kernel.
#[test]
fn grids_that_are_not_of_whole_clusters_go_without() {
    for device in devices() {
        let settings = Settings::default().with("cluster", "2").unwrap();
        let jit = Jit::builder(&device).settings(settings).build().unwrap();
        let stream = device.stream().unwrap();
        let kernel = jit.kernel(&jit.parse(PLAIN).unwrap(), "gemm_bias_relu").unwrap();
        let in_clusters = kernel.metadata().cluster == [1, 2, 1];
        assert!(in_clusters || !device.target().starts_with("sm_90a"), "{:?}", kernel.metadata().cluster);
        for (m, n, k) in [(200, 120, 136), (40, 136, 64), (40, 72, 72)] {
            let gemm = Gemm::new(m, n, k);
            let [a, b, bias, mut c] = gemm.tensors(&device);
            kernel.launch(&stream, args![&a, &b, &bias, &mut c, k.div_ceil(64) as i32]).unwrap();
            stream.synchronize().unwrap();
            assert!(c.read::<f16>().unwrap() == gemm.want(), "{}: {m} x {n} x {k}", device.name());
        }
        assert_eq!(jit.compiled(), if in_clusters { 2 } else { 1 });
    }
}

/// Adds one to elements by number.
const COUNT: &str = "kernel @count(%x: view<gmem, ?xi32>) {
  %i = program_id <{axis = 0}> : i32
  %o = muli %i, 128
  %n = iota : tile<128xi32>
  %at = addi %n, %o
  %one = constant 1 : tile<128xi32>
  %old = atomic_rmw %one, %x[%at] <{mode = addi}> : tile<128xi32>
  return
}";

#[test]
fn a_grid_that_does_not_follow_is_stated() {
    for device in devices() {
        let (jit, stream) = (Jit::new(&device).unwrap(), device.stream().unwrap());
        let kernel = jit.kernel(&jit.parse(COUNT).unwrap(), "count").unwrap();
        let mut x = device.tensor(&[0_i32; 300], &[300]).unwrap();
        let error = kernel.launch(&stream, args![&mut x]).unwrap_err();
        assert_eq!(error.code.as_str(), "E1106", "{error}");
        kernel.launch_grid(&stream, [3, 1, 1], args![&mut x]).unwrap();
        stream.synchronize().unwrap();
        assert!(x.read::<i32>().unwrap() == [1; 300]);
    }
}

#[test]
fn threads_share_kernels() {
    for device in devices() {
        let jit = Jit::new(&device).unwrap();
        // Four kernels that differ by a number.
        let texts = [1, 2, 3, 4].map(|n| GEMM.replace("constant 0.0", &format!("constant {n}.0")));
        let modules = texts.map(|text| jit.parse(&text).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (jit, modules) = (&jit, &modules);
                scope.spawn(move || {
                    for i in 0..1000 {
                        let kernel = jit.kernel(&modules[(thread + i) % 4], "gemm_bias_relu").unwrap();
                        assert_eq!(kernel.name(), "gemm_bias_relu");
                    }
                });
            }
        });
        assert_eq!(jit.compiled(), 4);
        jit.forget();
        jit.kernel(&modules[0], "gemm_bias_relu").unwrap();
        assert_eq!(jit.compiled(), 5);
    }
}

#[test]
fn threads_launch_side_by_side() {
    for device in devices() {
        let (_, kernel, _) = gemm(&device);
        let shared = Gemm::new(64, 64, 64);
        let [a, b, bias, _] = shared.tensors(&device);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let stream = device.stream().unwrap();
                    for _ in 0..3 {
                        let mut c = device.zeros(Elem::F16, &[64, 64]).unwrap();
                        kernel.launch(&stream, args![&a, &b, &bias, &mut c, 1]).unwrap();
                        stream.synchronize().unwrap();
                        assert!(c.read::<f16>().unwrap() == shared.want());
                    }
                });
            }
        });
    }
}

/// The code goes with the last handle, the memory with the last tensor.
#[test]
fn what_is_dropped_is_freed() {
    let device = Device::emulator();
    let address = |t: &Tensor| {
        let debug = format!("{t:?}");
        debug.split("number: ").nth(1).unwrap().split(',').next().unwrap().to_owned()
    };
    let first = device.zeros(Elem::F32, &[4]).unwrap();
    let second = device.zeros(Elem::F32, &[4]).unwrap();
    assert_ne!(address(&first), address(&second));
    let (place, copy) = (address(&first), first.clone());
    drop(first);
    assert_ne!(address(&device.zeros(Elem::F32, &[4]).unwrap()), place);
    drop(copy);
    assert_eq!(address(&device.zeros(Elem::F32, &[4]).unwrap()), place);
}

#[test]
fn a_fault_is_the_error_of_its_launch() {
    let mut options = EmulatorOptions::default();
    options.run.max_steps = 100;
    let device = Device::emulator_with(options);
    let (_, kernel, stream) = gemm(&device);
    let [a, b, bias, mut c] = Gemm::new(16, 16, 8).tensors(&device);
    let error = kernel.launch(&stream, args![&a, &b, &bias, &mut c, 1]).unwrap_err();
    assert!(error.code.as_str() == "E1211" && error.message.contains("gemm_bias_relu"), "{error}");
    assert_eq!(a.read::<f16>().unwrap().len(), 128);
}

#[test]
fn schedules_are_explained() {
    let jit = Jit::new(&Device::emulator()).unwrap();
    let text = jit.explain(&jit.parse(GEMM).unwrap(), "gemm_bias_relu").unwrap();
    assert!(text.contains("gemm_bias_relu") && text.contains("II"), "{text}");
}

#[test]
fn targets_are_the_devices() {
    let options = |target: &str| EmulatorOptions { target: target.into(), ..EmulatorOptions::default() };
    let jit = Jit::new(&Device::emulator_with(options("sm_103a"))).unwrap();
    let kernel = jit.kernel(&jit.parse(GEMM).unwrap(), "gemm_bias_relu").unwrap();
    assert_eq!(kernel.metadata().target, "sm_103a");
    let wrong =
        jit.parse(&format!("target \"sm_100a\"\n{GEMM}")).and_then(|m| jit.kernel(&m, "gemm_bias_relu"));
    // What the device is comes before what the module says.
    assert_eq!(wrong.unwrap().metadata().target, "sm_103a");
    let none = Jit::new(&Device::emulator_with(options("sm_7")))
        .and_then(|j| j.kernel(&j.parse(GEMM)?, "gemm_bias_relu"));
    assert_eq!(none.unwrap_err().code.as_str(), "E0890");
}

#[test]
#[allow(unsafe_code, reason = "what is tested takes the caller's word")]
fn the_emulator_takes_no_addresses() {
    let device = Device::emulator();
    // SAFETY: refused, whatever they are.
    let (memory, stream) = unsafe { (BorrowedMemory::new(64, 16), BorrowedStream::new(0)) };
    let tensor = device.borrow_tensor(memory, Elem::F32, &[4], &[1]);
    let stream = device.borrow_stream(stream);
    assert_eq!(
        tensor.expect_err("refused").to_string(),
        "E1209: memory by its address: emulator of sm_100a takes none, copy to a tensor of its own"
    );
    assert_eq!(
        stream.expect_err("refused").to_string(),
        "E1210: a stream by its handle: emulator of sm_100a takes none"
    );
}

#[test]
fn ptx_that_a_device_does_not_take_is_refused() {
    for device in devices() {
        let (jit, kernel, _) = gemm(&device);
        let broken = kernel.ptx().replace("ret;", "no.such.instruction %r0;");
        let error = jit.kernel_of_ptx(&broken, kernel.metadata()).expect_err("is refused");
        let want = if kernel.machine_code().is_some() { "E1202" } else { "E1208" };
        assert_eq!(error.code.as_str(), want, "{error}");
        assert!(error.message.contains("no.such.instruction"), "{error}");
    }
}

#[test]
fn variables_of_a_kernel_last() {
    const COUNT: &str = r#"kernel @count(%y: ptr<i32, gmem>) {
  %calls = global <{name = "calls", values = [7]}> : ptr<i32, gmem>
  %one = constant 1 : i32
  %old = atomic_rmw %one, %calls[0] <{mode = addi}> : i32
  %t = splat %old : tile<1xi32>
  scatter %t, %y[0]
  return
}"#;
    for device in devices() {
        let jit = Jit::new(&device).unwrap();
        let kernel = jit.kernel(&jit.parse(COUNT).unwrap(), "count").unwrap();
        let stream = device.stream().unwrap();
        let mut y = device.zeros(Elem::I32, &[1]).unwrap();
        for calls in 7..10 {
            kernel.launch(&stream, args![&mut y]).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(y.read::<i32>().unwrap(), [calls], "{}", device.name());
        }
    }
}
