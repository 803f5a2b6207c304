//! One suite for all devices: the emulator always, a GPU where `TILEAS_CUDA` says which (`0`).

use half::f16;
use std::sync::Arc;
use tileas_jit::{Cache, Code, Device, Elem, EmulatorOptions, Jit, Stream, Tensor, args};

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
            let dot: f32 = (0..self.k).map(|k| a[row * self.k + k].to_f32() * b[column * self.k + k].to_f32()).sum();
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
