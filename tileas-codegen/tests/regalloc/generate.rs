//! Random thread-level functions: a prologue, agents with arbitrary control flow, a join.

use arbtest::arbitrary::{Result, Unstructured};
use tileas_codegen::nvvm::{Bb, FuncBuilder, Function, Guard, Module, PtxOp, Reg, RegTy, Special, Target};

/// What a random function is made of.
#[derive(Default)]
struct Pool {
    words: Vec<Reg>,
    floats: Vec<Reg>,
    longs: Vec<Reg>,
    halves: Vec<Reg>,
    preds: Vec<Reg>,
}

/// A module with one random kernel that the verifier accepts. Every block stores something to global memory.
pub fn module(u: &mut Unstructured) -> Result<Module> {
    let mut module = Module::new(Target::Sm100a);
    let smem = module.dynamic_shared("smem", 1024);
    let mut f = Function::kernel("k");
    let mut b = FuncBuilder::new(&mut f);
    let mut pool = Pool::default();
    let base = b.mov_shared_u32(smem);
    pool.words.push(b.special(Special::TidX));
    for i in 0..u.int_in_range(2..=24)? {
        let r = b.imm(RegTy::B32, i * 77 + 5);
        pool.words.push(r);
    }
    for i in 0..u.int_in_range(1..=12)? {
        pool.floats.push(b.imm(RegTy::F32, i as f32 + 0.5));
    }
    for i in 0..u.int_in_range(1..=6)? {
        pool.longs.push(b.imm(RegTy::B64, (1i64 << 33) + i));
        pool.halves.push(b.imm(RegTy::B16, i + 3));
    }
    pool.preds.push(b.setp_lt_u32(pool.words[0], pool.words[1]));
    // Values that are no constants, so that they cannot be made again.
    for i in 0..u.int_in_range(0..=20)? {
        let r = b.ld_shared_b32((base, 4 * i));
        pool.words.push(r);
    }
    let join = b.named_block("JOIN");
    let agents = u.int_in_range(1..=2)?;
    let firsts: Vec<Bb> = (0..agents).map(|i| b.named_block(format!("AGENT{i}"))).collect();
    let out = b.imm(RegTy::B64, 1i64 << 40);
    for &first in &firsts {
        b.func.blocks[first].agent = true;
        let p = *u.choose(&pool.preds)?;
        b.br_on(p, first);
    }
    b.bra(join);
    for &first in &firsts {
        let mut blocks = vec![first];
        for _ in 0..u.int_in_range(0..=7)? {
            blocks.push(b.block());
        }
        let outside =
            (pool.words.len(), pool.floats.len(), pool.longs.len(), pool.halves.len(), pool.preds.len());
        for (i, &bb) in blocks.iter().enumerate() {
            // The builder's `place` falls through; here each block is closed already.
            b.place(bb);
            for _ in 0..u.int_in_range(1..=12)? {
                inst(u, &mut b, &mut pool, base)?;
            }
            let stored = *u.choose(&pool.words)?;
            b.st_global_b32((out, 8 * i as i32), stored);
            if u.ratio(1, 3)? {
                let long = *u.choose(&pool.longs)?;
                b.st_global_b64((out, 4), long);
            }
            let target = |u: &mut Unstructured| -> Result<Bb> {
                if u.ratio(1, 4)? { Ok(join) } else { Ok(*u.choose(&blocks)?) }
            };
            match u.int_in_range(0..=3)? {
                0 => {
                    let t = target(u)?;
                    b.bra(t);
                }
                _ => {
                    let a = *u.choose(&pool.words)?;
                    let p = b.setp_lt_u32(a, u.arbitrary::<u32>()?);
                    let (t, e) = (target(u)?, target(u)?);
                    b.br_if(p, u.arbitrary()?, t, e);
                }
            }
        }
        // What one agent made is unknown to the next, except where a name was written again.
        pool.words.truncate(outside.0);
        pool.floats.truncate(outside.1);
        pool.longs.truncate(outside.2);
        pool.halves.truncate(outside.3);
        pool.preds.truncate(outside.4);
    }
    b.place(join);
    for _ in 0..u.int_in_range(1..=4)? {
        let r = *u.choose(&pool.words)?;
        b.st_global_b32((out, 1000), r);
    }
    b.ret();
    module.functions.push(f);
    Ok(module)
}

/// One random instruction: fresh results, or an old register written again.
fn inst(u: &mut Unstructured, b: &mut FuncBuilder, pool: &mut Pool, base: Reg) -> Result<()> {
    let word = |u: &mut Unstructured, pool: &Pool| u.choose(&pool.words).copied();
    match u.int_in_range(0..=11)? {
        0..=2 => {
            let (x, y) = (word(u, pool)?, word(u, pool)?);
            pool.words.push(b.add_u32(x, y));
        }
        3 => {
            let (d, x) = (word(u, pool)?, word(u, pool)?);
            if u.arbitrary()? {
                let p = *u.choose(&pool.preds)?;
                b.guarded(Guard::new(p, u.arbitrary()?));
            }
            b.xor_b32_to(d, d, x);
        }
        4 => {
            let x = word(u, pool)?;
            pool.preds.push(b.setp_lt_u32(x, u.arbitrary::<u32>()?));
        }
        5 => {
            let (x, y) = (word(u, pool)?, *u.choose(&pool.longs)?);
            let wide = b.mul_wide_u32(x, 12345);
            pool.longs.push(b.add_u64(wide, y));
        }
        6 => {
            let x = *u.choose(&pool.longs)?;
            pool.words.extend(b.unpack_b64_b32(x));
        }
        7 => {
            let at = u.int_in_range(0..=63)? * 16;
            let four = b.ld_shared_v4_b32((base, at));
            pool.words.extend(four);
        }
        8 => {
            let x = *u.choose(&pool.floats)?;
            let y = *u.choose(&pool.floats)?;
            let r = b.reg(RegTy::F32);
            b.emit(PtxOp::XorB32, &[r.into(), x.into(), y.into()]);
            pool.floats.push(r);
        }
        9 => {
            let x = *u.choose(&pool.halves)?;
            let y = *u.choose(&pool.halves)?;
            pool.halves.push(b.add_u16(x, y));
            pool.words.push(b.pack_b32_b16([x, y]));
        }
        10 => {
            // Sixteen results at once, not there before the wait.
            let address = word(u, pool)?;
            let many = b.tcgen05_ld_32x32b_x16((address, 0));
            if u.arbitrary()? {
                let x = word(u, pool)?;
                b.st_shared_b32((base, 2048), x);
            }
            b.tcgen05_wait_ld();
            pool.words.extend(many);
        }
        _ => {
            let four: Vec<Reg> = (0..4).map(|_| word(u, pool)).collect::<Result<_>>()?;
            b.st_shared_v4_b32((base, u.int_in_range(0..=63)? * 16), four);
        }
    }
    Ok(())
}
