//! A GEMM that runs from the program that compiles it: on the emulator, or on a GPU where `tileas-jit` has its feature `cuda`.
//!
//! Run with `cargo run --release --example jit`; with `-- --explain` it says how the kernel's loop is scheduled, and why.

use half::f16;
use tileas_jit::{Cache, Device, Elem, Error, Jit, args};

/// Small integers, of which sums of products are exact.
fn numbers(count: usize, seed: usize) -> Vec<f16> {
    (0..count).map(|i| f16::from_f64(((i * 7 + seed + i / 11) % 5) as f64 - 2.0)).collect()
}

/// Compiles, runs and checks max(A · Bᵀ + bias, 0) in f16.
pub fn main() -> Result<(), Error> {
    let (m, n, k) = (200, 264, 136);
    let (a_data, b_data, bias_data) = (numbers(m * k, 1), numbers(n * k, 2), numbers(n, 3));
    let [m_, n_, k_] = [m, n, k].map(|x| x as i64);

    let device = Device::emulator(); // or Device::cuda(0)?
    let cache = Cache::disk(std::env::temp_dir().join("tileas-example-cache"))?;
    let jit = Jit::builder(&device).cache(cache).build()?;
    let module = jit.parse(include_str!("gemm_f16.tileas"))?;
    let kernel = jit.kernel(&module, "gemm_bias_relu")?;
    let (a, b) = (device.tensor(&a_data, &[m_, k_])?, device.tensor(&b_data, &[n_, k_])?);
    let (bias, mut c) = (device.tensor(&bias_data, &[n_])?, device.zeros(Elem::F16, &[m_, n_])?);
    let stream = device.stream()?;
    kernel.launch(&stream, args![&a, &b, &bias, &mut c, k.div_ceil(64) as i32])?;
    let result: Vec<f16> = c.read()?; // waits for the launch

    for (i, got) in result.iter().enumerate() {
        let (row, column) = (i / n, i % n);
        let products = (0..k).map(|k_| a_data[row * k + k_].to_f64() * b_data[column * k + k_].to_f64());
        let want = (products.sum::<f64>() + bias_data[column].to_f64()).max(0.0);
        assert_eq!(*got, f16::from_f64(want), "at {row}, {column}");
    }
    println!("{m} x {n} elements are right, on the {}", device.name());
    if std::env::args().any(|arg| arg == "--explain") {
        println!("{}", jit.explain(&module, "gemm_bias_relu")?);
    }
    Ok(())
}
