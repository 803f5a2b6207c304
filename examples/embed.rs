//! The compiler inside another program: builds a GEMM with bias and rectifier by calls, compiles it in-process, prints
//! the PTX and what a host needs to launch it.
//!
//! Run with `cargo run --example embed`. The kernel is that of `gemm_f16.tileas`.

use tileas_codegen::ir::{Dim, Function, FunctionBuilder, Module, Scalar, keys};
use tileas_codegen::{Context, Errors, Settings};

/// C = max(A · Bᵀ + bias, 0) in tiles of 128 × 128, 64 deep: `%a` is M × K, `%b` N × K, `%kt` = ceil(K / 64).
pub fn gemm() -> Function {
    let mut func = Function::new("gemm_bias_relu");
    let mut b = FunctionBuilder::new(&mut func);
    let (f16, f32) = (Scalar::F16, Scalar::F32);
    let matrix = b.view_type(&[Dim::Dynamic; 2], f16);
    let vector = b.view_type(&[Dim::Dynamic], f16);
    let i32_type = b.scalar_type(Scalar::I32);
    let [a_view, b_view] = ["a", "b"].map(|name| b.named_param(name, matrix));
    let bias = b.named_param("bias", vector);
    let c_view = b.named_param("c", matrix);
    let k_tiles = b.named_param("kt", i32_type);

    let (m, n) = (b.program_id(0), b.program_id(1));
    let desc_type = b.desc_type(&[128, 64], f16);
    let [a_desc, b_desc] =
        [a_view, b_view].map(|v| b.make_tiled_tma_desc(v, &[128, 64], keys::B128, desc_type));
    let acc_type = b.tile_type(&[128, 128], f32);
    let zero = b.constant(0.0, acc_type);
    let bias_type = b.tile_type(&[128], f16);
    let bias = b.tiled_load(bias, &[n], bias_type);
    let operand_type = b.tile_type(&[128, 64], f16);
    let (from, step) = (b.const_i32(0), b.const_i32(1));
    let acc = b.for_loop(from, k_tiles, step, &[zero], |b, i, carried| {
        let x = b.async_tiled_tma_load(a_desc, &[m, i], operand_type).build();
        let y = b.async_tiled_tma_load(b_desc, &[n, i], operand_type).build();
        vec![b.async_dot(x, y, carried[0]).unit(keys::TRANSPOSE_B).build()]
    })[0];

    let row_type = b.tile_type(&[1, 128], f32);
    let wide_type = b.tile_type(&[128], f32);
    let bias = b.ftof(bias, wide_type);
    let bias = b.reshape(bias, row_type);
    let bias = b.broadcast(bias, acc_type);
    let sum = b.addf(acc, bias);
    let relu = b.maxf(sum, zero);
    let out_type = b.tile_type(&[128, 128], f16);
    let out = b.ftof(relu, out_type);
    b.tiled_store(out, c_view, &[m, n]);
    b.ret();
    func
}

/// Compiles and prints; errors come back as values, the library prints nothing.
#[allow(dead_code, reason = "tests include this file for `gemm`")]
fn main() -> Result<(), Errors> {
    let module = Module { functions: vec![gemm()], ..Module::default() };
    let settings = Settings::default();
    let isa = tileas_isa::isa_for(&module, &settings)?;
    // One context per thread: it keeps the memory of the passes from one module to the next.
    let mut context = Context::new();
    let compiled = context.compile(&module, &*isa, &settings)?;
    for kernel in &compiled.kernels {
        println!("{}", kernel.ptx);
        println!("{}", kernel.metadata.to_json());
    }
    Ok(())
}
