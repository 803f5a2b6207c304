//! One failing function per code at least. That legal kernels pass is tested next to the builder and the parser.

use super::*;
use crate::ir::builder::{Agent, FunctionBuilder};
use crate::ir::layouts::Layout;
use crate::ir::parse_module;
use crate::ir::types::Space;

/// Builds a kernel body, ends it with `return` and gives its violations as `code: message` lines.
fn faults(body: impl FnOnce(&mut FunctionBuilder<'_>)) -> Vec<String> {
    let mut func = Function::new("k");
    let mut b = FunctionBuilder::new(&mut func);
    body(&mut b);
    b.ret();
    verify_function(&func).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn expect(have: &[String], want: &[(&str, &str)]) {
    assert_eq!(have.len(), want.len(), "{have:#?}");
    for (line, (code, part)) in have.iter().zip(want) {
        assert!(line.starts_with(code) && line.contains(part), "{line:?} lacks {code} or {part:?}");
    }
}

fn f32_tile(b: &mut FunctionBuilder<'_>, dims: &[u32]) -> Value {
    let t = b.tile_type(dims, Scalar::F32);
    b.constant(0.0, t)
}

fn matrix_view(b: &mut FunctionBuilder<'_>, elem: Scalar) -> Value {
    let t = b.view_type(&[Dim::Dynamic, Dim::Dynamic], elem);
    b.param(t)
}

fn desc(b: &mut FunctionBuilder<'_>, dims: &[u32], elem: Scalar) -> Value {
    let t = b.desc_type(dims, elem);
    b.param(t)
}

fn ring(b: &mut FunctionBuilder<'_>, dims: &[u32]) -> Value {
    let t = b.placed_tile_type(dims, Scalar::F16, Space::Smem, Layout::SmemK(crate::ir::Swizzle::B128));
    b.alloc_tensor(t)
}

#[test]
fn operand_segments_and_classes() {
    let have = faults(|b| {
        let x = b.const_i32(1);
        let t = b.scalar_type(Scalar::I32);
        b.op(Opcode::Addi).operand(x).results(&[t]).finish();
        b.op(Opcode::Addi).operands(&[x, x]).operand(x).results(&[t]).finish();
    });
    expect(
        &have,
        &[
            ("E0201", "addi: expected 1 operand for `rhs`, but got 0"),
            ("E0201", "addi: expected 1 operand for `lhs`, but got 2"),
        ],
    );
    let mut func = Function::new("raw");
    let mut b = FunctionBuilder::new(&mut func);
    let x = b.const_i32(1);
    let t = b.scalar_type(Scalar::I32);
    let op = func.make_op(Opcode::Addi, &[x, x], &[2], &[t], Loc::NONE);
    func.append_op(func.entry(), op);
    FunctionBuilder::new(&mut func).ret();
    assert_eq!(verify_function(&func)[0].code, Code::E0201);

    let have = faults(|b| {
        let x = b.const_i32(1);
        b.addf(x, x);
    });
    expect(&have, &[("E0202", "`lhs` expects a floating-point scalar or tile"), ("E0202", "`rhs`")]);
}

#[test]
fn results_attributes_regions() {
    let have = faults(|b| {
        b.op(Opcode::ProgramId).int(keys::AXIS, 0).finish();
        b.op(Opcode::ProgramId).inferred().finish();
        b.op(Opcode::ProgramId).unit(keys::AXIS).inferred().finish();
        b.op(Opcode::ProgramId).int(keys::AXIS, 3).inferred().finish();
        b.op(Opcode::ProgramId).int(keys::AXIS, 0).unit(keys::DRAIN).inferred().finish();
        b.op(Opcode::ProgramId).int(keys::AXIS, 0).int(keys::GID, 4).inferred().finish();
        let c = b.const_i32(1);
        b.op(Opcode::For).operand(c).operand(c).operand(c).finish();
        b.op(Opcode::Yield).finish();
    });
    expect(
        &have,
        &[
            ("E0203", "program_id: expected 1 results, but got 0"),
            ("E0204", "attribute `axis` is required"),
            ("E0205", "attribute `axis` expects an integer"),
            ("E0205", "expected an axis below 3, but got 3"),
            ("E0206", "unknown attribute `drain`"),
            ("E0207", "for: expected 1 regions, but got 0"),
            ("E0208", "terminator in the middle"),
            ("E0209", "a kernel must end in `return`"),
        ],
    );
}

#[test]
fn constants_stay_in_range() {
    let have = faults(|b| {
        let (i8_ty, i1, f32_ty) =
            (b.scalar_type(Scalar::I8), b.scalar_type(Scalar::I1), b.scalar_type(Scalar::F32));
        b.constant(256, i8_ty);
        b.constant(255, i8_ty);
        b.constant(-128, i8_ty);
        b.constant(1, i1);
        b.constant(0.5, i8_ty);
        b.constant(1, f32_ty);
        let token = b.async_token_type();
        b.constant(1, token);
    });
    expect(
        &have,
        &[
            ("E0205", "expected -128 to 255 for i8, but got 256"),
            ("E0205", "expected an integer for i8, but got 0.5"),
            ("E0213", "expected a scalar or tile, but got async_token"),
        ],
    );
}

#[test]
fn terminators_and_the_end_of_a_kernel() {
    let mut func = Function::new("open");
    FunctionBuilder::new(&mut func).const_i32(1);
    assert_eq!(verify_function(&func)[0].code, Code::E0225);
    assert_eq!(verify_function(&Function::new("empty"))[0].code, Code::E0225);

    let have = faults(|b| {
        let c = b.const_i32(1);
        let open = b.begin_for(c, c, c, &[]);
        let outer = b.func.entry();
        b.const_i32(2);
        b.at_end(outer);
        let open2 = b.begin_for(c, c, c, &[]);
        b.op(Opcode::AsyncPipelineYield).finish();
        b.at_end(outer);
        let _ = (open, open2);
    });
    expect(&have, &[("E0208", "region of for has no terminator"), ("E0209", "for must end in `yield`")]);
    let have = faults(|b| {
        let op =
            b.agent_switch(&[Agent { num_warps: 1, warp_id: 0, lanes: keys::ALL, max_regs: 0 }], |_, _| {});
        let block = b.func.op_block_at(op, 0).unwrap();
        let last = b.func.last_op(block).unwrap();
        b.func.remove_op(last);
        let point = b.point();
        b.at_end(block).op(Opcode::Yield).finish();
        b.set_point(point);
    });
    expect(&have, &[("E0209", "pipeline regions must end with 'async.pipeline.yield'")]);
}

#[test]
fn values_are_visible_where_used() {
    let have = faults(|b| {
        let c = b.const_i32(1);
        let mut inner = None;
        b.for_loop(c, c, c, &[], |b, iv, _| {
            inner = Some(b.addi(iv, c));
            vec![]
        });
        b.addi(inner.unwrap(), c);
    });
    expect(&have, &[("E0210", "is not defined here")]);
    let have = faults(|b| {
        let c = b.const_i32(1);
        let first = b.func.defining_op(c).unwrap();
        b.before(first);
        b.addi(c, c);
        let entry = b.func.entry();
        b.at_end(entry);
    });
    assert_eq!(have.len(), 2, "{have:?}"); // both operands
    let have = faults(|b| {
        let c = b.const_i32(1);
        let removed = b.func.defining_op(c).unwrap();
        b.func.remove_op(removed);
        b.negi(c);
    });
    expect(&have, &[("E0210", "not defined")]);
}

#[test]
fn tile_dimensions() {
    let have = faults(|b| {
        f32_tile(b, &[0, 4]);
        f32_tile(b, &[3, 4]);
        f32_tile(b, &[4096, 4096]);
        f32_tile(b, &[4096, 2048]);
        f32_tile(b, &[1 << 31, 1 << 31, 1 << 31]);
        let t = b.view_type(&[Dim::Static(0)], Scalar::F16);
        b.param(t);
    });
    expect(
        &have,
        &[
            ("E0211", "all dimensions must be positive constants, got view"),
            ("E0211", "all dimensions must be positive constants, got tile<0x4xf32>"),
            ("E0211", "all dimensions must be powers of two, got tile<3x4xf32>"),
            ("E0211", "tile would exceed the maximum of 16777215 elements, got 16777216"),
            ("E0211", "tile would exceed the maximum of "),
        ],
    );
    // Ring buffers may have any number of slots.
    expect(&faults(|b| _ = ring(b, &[3, 128, 64])), &[]);
}

#[test]
fn element_and_operand_types() {
    let have = faults(|b| {
        let (x, y) = (f32_tile(b, &[4]), f32_tile(b, &[8]));
        b.addf(x, y);
        let c = b.cmpf(x, y, keys::LT);
        b.select(c, y, y);
        let i = b.const_i32(0);
        let narrow = b.scalar_type(Scalar::I16);
        b.exti(i, narrow);
        let t = b.tile_type(&[8], Scalar::F16);
        b.ftof(x, t);
        let wide = b.scalar_type(Scalar::I64);
        b.op(Opcode::ProgramId).int(keys::AXIS, 0).results(&[wide]).finish();
    });
    expect(
        &have,
        &[
            ("E0212", "addf: expected operand 1 of type tile<4xf32>, but got tile<8xf32>"),
            ("E0212", "cmpf: expected operand 1 of type tile<4xf32>, but got tile<8xf32>"),
            ("E0212", "expected a condition of type i1 or tile<8xi1>, but got tile<4xi1>"),
            ("E0212", "expected a wider integer result for i32, but got i16"),
            ("E0212", "expected a result of type tile<4xf16>, but got tile<8xf16>"),
            ("E0212", "expected a result of type i32, but got i64"),
        ],
    );
}

#[test]
fn shapes_of_rearranging_ops() {
    let have = faults(|b| {
        let x = f32_tile(b, &[4, 1]);
        let t48 = b.tile_type(&[4, 8], Scalar::F32);
        let t88 = b.tile_type(&[8, 8], Scalar::F32);
        let t2 = b.tile_type(&[2, 2], Scalar::F32);
        let t22h = b.tile_type(&[2, 2], Scalar::F16);
        b.broadcast(x, t48);
        b.broadcast(x, t88);
        b.reshape(x, t2);
        b.reshape(x, t48);
        b.reshape(x, t22h);
        b.iota(t2);
        b.convert_layout(x, t2);
        b.extract_slice(x, &[3, 0], &[2, 2], t2).build();
        b.extract_slice(x, &[0], &[2, 2], t2).build();
        b.extract_slice(x, &[0, 0], &[4, 1], t2).build();
    });
    expect(
        &have,
        &[
            ("E0213", "broadcast: expected a shape that 4x1 broadcasts to, but got 8x8"),
            ("E0213", "reshape: expected 4 elements, but got 4x8"),
            ("E0212", "reshape: expected element type f32, but got f16"),
            ("E0213", "iota: expected one dimension of integers, but got 2x2"),
            ("E0213", "convert_layout: expected shape 4x1, but got 2x2"),
            ("E0213", "expected a slice within 0..4 of dimension 0, but got 3..5"),
            ("E0213", "expected a slice within 0..1 of dimension 1, but got 0..2"),
            ("E0213", "expected 2 offsets and extents, but got 1 and 2"),
            ("E0213", "expected a result of 4x1, but got 2x2"),
            ("E0213", "expected a slice within 0..1 of dimension 1, but got 0..2"),
        ],
    );
}

fn dot_faults(a: (&[u32], Scalar), bm: (&[u32], Scalar), acc: (&[u32], Scalar), tb: bool) -> Vec<String> {
    faults(|b| {
        let mut tile = |(dims, elem): (&[u32], Scalar)| {
            let t = b.tile_type(dims, elem);
            b.param(t)
        };
        let (x, y, z) = (tile(a), tile(bm), tile(acc));
        let dot = b.async_dot(x, y, z);
        let dot = if tb { dot.unit(keys::TRANSPOSE_B) } else { dot };
        dot.build();
    })
}

#[test]
fn matrix_multiply() {
    use Scalar::{E4M3, E5M2, F16, F32, I8, I16, I32};
    expect(&dot_faults((&[128, 64], I8), (&[64, 256], I8), (&[128, 256], I32), false), &[]);
    expect(&dot_faults((&[128, 64], F16), (&[64, 256], F16), (&[128, 256], F32), false), &[]);
    expect(&dot_faults((&[128, 64], F16), (&[256, 64], F16), (&[128, 256], F32), true), &[]);
    expect(&dot_faults((&[128, 64], E4M3), (&[64, 64], E5M2), (&[128, 64], F32), false), &[]);
    expect(
        &dot_faults((&[128, 64], F16), (&[256, 64], F16), (&[128, 128], F32), false),
        &[
            ("E0214", "A has K = 64, but B has K = 256"),
            ("E0214", "an accumulator of 128x64, but got 128x128"),
        ],
    );
    expect(
        &dot_faults((&[64], F16), (&[64, 64], F16), (&[64, 64], F32), false),
        &[("E0214", "expected A with 2 dimensions, but got 64")],
    );
    expect(
        &dot_faults((&[64, 64], I16), (&[64, 64], F16), (&[64, 64], F16), false),
        &[
            ("E0215", "expected A of f16, bf16, tf32, f32, e4m3, e5m2 or i8, but got i16"),
            ("E0215", "expected B of i16 as A, but got f16"),
            ("E0215", "expected an accumulator of f32, but got f16"),
        ],
    );
}

#[test]
fn loads_and_stores() {
    let have = faults(|b| {
        let v = matrix_view(b, Scalar::F16);
        let i = b.const_i32(0);
        let t2 = b.tile_type(&[8, 8], Scalar::F16);
        let t1 = b.tile_type(&[8], Scalar::F32);
        let x = b.tiled_load(v, &[i], t2);
        b.tiled_load(v, &[i, i], t1);
        b.tiled_store(x, v, &[i, i, i]);
        b.dim(v, 2);
        let smem = b.placed_tile_type(&[8, 64], Scalar::F16, Space::Smem, Layout::SmemRow);
        b.tiled_load(v, &[i, i], smem);
    });
    expect(
        &have,
        &[
            ("E0216", "tiled_load: 2 coordinates, but got 1"),
            ("E0213", "expected 2 dimensions, but got 1"),
            ("E0212", "view elementType not equal with tensor element type: expected f16, but got f32"),
            ("E0216", "tiled_store: 2 coordinates, but got 3"),
            ("E0205", "expected an axis below 2, but got 2"),
            ("E0221", "expected a tile in rmem, but got smem"),
        ],
    );
}

#[test]
fn tma_boxes() {
    let one = |dims: &[u32], elem: Scalar, swizzle| {
        faults(|b| {
            let v = matrix_view(b, elem);
            let t = b.desc_type(dims, elem);
            let list: Vec<i64> = dims.iter().map(|&d| i64::from(d)).collect();
            b.make_tiled_tma_desc(v, &list, swizzle, t);
        })
    };
    // Wider than the span is fine, narrower is not; without a swizzle rows are multiples of 16 bytes.
    expect(&one(&[128, 64], Scalar::F16, keys::B128), &[]);
    expect(&one(&[256, 512], Scalar::F16, keys::B128), &[]);
    expect(&one(&[256, 8], Scalar::F16, keys::NONE), &[]);
    expect(
        &one(&[128, 32], Scalar::F16, keys::B128),
        &[("E0217", "a multiple of 128 bytes for swizzle b128, but got 64")],
    );
    expect(
        &one(&[512, 64], Scalar::F16, keys::B128),
        &[("E0217", "1 to 256 in box dimension 0, but got 512")],
    );
    expect(&one(&[8, 4], Scalar::F16, keys::NONE), &[("E0217", "a multiple of 16 bytes")]);
    expect(&one(&[8, 64], Scalar::I1, keys::B32), &[("E0217", "whole bytes")]);
    expect(&one(&[8, 64], Scalar::E2M1, keys::B32), &[]);
    expect(&one(&[8], Scalar::F16, keys::B32), &[("E0217", "a box of 2 dimensions, but got 1")]);
    let have = faults(|b| {
        let t6 = b.view_type(&[Dim::Dynamic; 6], Scalar::I32);
        let v = b.param(t6);
        let t = b.desc_type(&[1, 1, 1, 1, 1, 64], Scalar::F32);
        let d = b.make_tiled_tma_desc(v, &[1, 1, 1, 1, 2, 64], keys::B128, t);
        let op = b.func.defining_op(d).unwrap();
        b.func.set_attr(op, keys::OOB, AttrData::Name(keys::NAN));
    });
    expect(
        &have,
        &[
            ("E0212", "expected i32, but got f32"),
            ("E0217", "a view of 1 to 5 dimensions, but got 6"),
            ("E0217", "a descriptor of 1x1x1x1x2x64, but got 1x1x1x1x1x64"),
            ("E0217", "floating-point elements that have a NaN for `oob = nan`, but got i32"),
        ],
    );
}

#[test]
fn value_and_destination_forms() {
    let have = faults(|b| {
        let d = desc(b, &[128, 64], Scalar::F16);
        let (buf, i) = (ring(b, &[4, 128, 64]), b.const_i32(0));
        let (token, tile) = (b.async_token_type(), b.tile_type(&[128, 64], Scalar::F16));
        let other = b.tile_type(&[64, 64], Scalar::F16);
        let [pt, _] = b.pipe_types(4);
        let it = b.iter_type(3);
        let (bar, it) = (b.param(pt), b.param(it));
        b.async_tiled_tma_load(d, &[i, i], token).buffer(buf).stage(&[i]).barrier(bar).build();
        b.async_tiled_tma_load(d, &[i, i], tile).build();
        b.async_tiled_tma_load(d, &[i], other).build();
        b.async_tiled_tma_load(d, &[i, i], token).build();
        b.async_tiled_tma_load(d, &[i, i], tile).barrier(bar).build();
        b.async_tiled_tma_load(d, &[i, i], tile).buffer(buf).stage(&[i]).build();
        b.async_tiled_tma_load(d, &[i, i], token).buffer(buf).stage(&[it]).barrier(bar).build();
        b.async_tiled_tma_load(d, &[i, i], token).buffer(buf).stage(&[i, i]).barrier(bar).build();
    });
    expect(
        &have,
        &[
            ("E0216", "2 coordinates, but got 1"),
            ("E0213", "expected a tile of 128x64 as the box, but got 64x64"),
            ("E0218", "expected a tile as result of the value form, but got async_token"),
            ("E0218", "a stage or barrier needs a buffer"),
            ("E0218", "expected async_token as result"),
            ("E0218", "expects a barrier, but got none"),
            ("E0223", "barrier has 4 slots, but the stage counts 3"),
            ("E0223", "iterator counts 3 slots, but buffer"),
            ("E0216", "expected at most 1 stage index, but got 2"),
        ],
    );
    let have = faults(|b| {
        let d = desc(b, &[128, 64], Scalar::F16);
        let (buf, i) = (ring(b, &[4, 128, 64]), b.const_i32(0));
        let token = b.async_token_type();
        let tile = f32_tile(b, &[128, 64]);
        b.async_tiled_tma_store(d, &[i, i], buf).stage(&[i]).results(&[token]).build();
        b.async_tiled_tma_store(d, &[i, i], buf).stage(&[i]).build();
        b.async_tiled_tma_store(d, &[i, i], tile).results(&[token]).build();
    });
    expect(
        &have,
        &[
            ("E0218", "expected async_token as result of the destination form, but got none"),
            ("E0212", "expected f16, but got f32"),
            ("E0218", "the value form has no result, but got async_token"),
        ],
    );
}

#[test]
fn dot_in_destination_form() {
    let have = faults(|b| {
        let (x, y) = (ring(b, &[4, 128, 64]), ring(b, &[4, 64, 128]));
        let acc = b.placed_tile_type(&[2, 128, 128], Scalar::F32, Space::Tmem, Layout::Tmem128);
        let acc = b.alloc_tensor(acc);
        let i = b.const_i32(0);
        let (i1, token) = (b.scalar_type(Scalar::I1), b.async_token_type());
        let flag = b.constant(1, i1);
        b.async_dot(x, y, acc).a_stage(&[i]).b_stage(&[i]).acc_stage(&[i]).accumulate(flag).build();
        b.async_dot(x, y, acc).a_stage(&[i]).b_stage(&[i]).acc_stage(&[i]).results(&[i1]).build();
        let va = b.tile_type(&[64, 64], Scalar::F16);
        let vc = b.tile_type(&[64, 64], Scalar::F32);
        let (p, q) = (b.param(va), b.param(vc));
        b.async_dot(p, p, q).accumulate(flag).build();
        b.async_dot(p, p, q).results(&[token]).build();
    });
    expect(
        &have,
        &[
            ("E0218", "expected async_token as result of the destination form, but got i1"),
            ("E0218", "`accumulate` belongs to the destination form"),
            ("E0218", "expected a result of the value form of type tile<64x64xf32>, but got async_token"),
        ],
    );
}

#[test]
fn copies() {
    let have = faults(|b| {
        let i1 = b.scalar_type(Scalar::I1);
        let flag = b.constant(1, i1);
        let acc_ty = b.placed_tile_type(&[1, 128, 128], Scalar::F32, Space::Tmem, Layout::Tmem128);
        let reg = b.placed_tile_type(&[128, 64], Scalar::F32, Space::Rmem, Layout::Row);
        let smem = b.placed_tile_type(&[128, 64], Scalar::F32, Space::Smem, Layout::SmemRow);
        let token = b.async_token_type();
        let acc = b.alloc_tensor(acc_ty);
        let i = b.const_i32(0);
        let read = |b: &mut FunctionBuilder<'_>, column: i64, when: bool, otherwise: bool, ty| {
            let mut o = b.copy(acc).source_stage(&[i]).ints(keys::OFFSETS, &[0, column]).results(&[ty]);
            if when {
                o = o.when(flag);
            }
            if otherwise {
                o = o.attr(keys::OTHERWISE, Function::float_attr(0.0));
            }
            o.finish_one()
        };
        let r = read(b, 64, true, true, reg);
        read(b, 96, false, false, reg);
        read(b, 0, true, false, reg);
        read(b, 0, false, true, reg);
        read(b, 0, false, false, smem);
        read(b, 0, false, false, token);
        b.copy(r).results(&[reg]).build();
        b.copy(r).dest(acc).dest_stage(&[i]).build();
        b.copy(r).dest(acc).dest_stage(&[i]).results(&[reg]).build();
        b.op(Opcode::Copy)
            .operand(r)
            .operands(&[])
            .operand(acc)
            .operand(i)
            .ints(keys::OFFSETS, &[0, 64])
            .finish();
        let wrong = b.placed_tile_type(&[4, 64], Scalar::F32, Space::Rmem, Layout::Row);
        b.alloc_tensor(wrong);
    });
    expect(
        &have,
        &[
            ("E0213", "a slice within 0..128 of dimension 1, but got 96..160"),
            ("E0204", "`otherwise` is required next to `when`"),
            ("E0218", "`otherwise` needs `when`"),
            ("E0221", "no copy leads from tmem to smem"),
            ("E0218", "expected a tile as result of the value form, but got async_token"),
            ("E0221", "no copy leads from rmem to rmem"),
            ("E0213", "expected a destination of 128x64, but got 128x128"),
            ("E0218", "expected no result or async_token"),
            ("E0213", "expected a destination of 128x64, but got 128x128"),
            ("E0221", "expected a buffer in smem or tmem, but got rmem"),
        ],
    );
}

#[test]
fn copy_pairs_are_the_nine_legal_ones() {
    let spaces = [Space::Gmem, Space::Rmem, Space::Smem, Space::Tmem];
    let mut legal = String::new();
    for a in spaces {
        for b in spaces {
            if memory::is_legal_copy(a, b) {
                legal.push_str(&format!("{}>{} ", &a.name()[..1], &b.name()[..1]));
            }
        }
    }
    assert_eq!(legal, "g>r g>s r>g r>s r>t s>g s>r s>t t>r ");
}

#[test]
fn layouts_and_buffers() {
    let have = faults(|b| {
        let k128 = Layout::from_name("k128").unwrap();
        let t = b.placed_tile_type(&[128, 64], Scalar::F16, Space::Rmem, k128);
        b.param(t);
        let t = b.placed_tile_type(&[128, 32], Scalar::F16, Space::Smem, k128);
        b.param(t);
        let t = b.placed_tile_type(&[64, 32], Scalar::F32, Space::Tmem, Layout::Tmem128);
        b.param(t);
        let t = b.placed_tile_type(&[64, 32], Scalar::F32, Space::Gmem, Layout::Row);
        b.param(t);
        let t = b.func.intern_type(TypeData::Tile {
            dims: [64u32, 32].as_slice().into(),
            elem: Scalar::F32,
            space: None,
            layout: Some(Layout::Row),
        });
        b.param(t);
        let t = b.placed_tile_type(&[4, 8, 64], Scalar::F16, Space::Smem, k128);
        b.op(Opcode::AllocTensor).int(keys::ALIGN, 1000).results(&[t]).finish();
        b.op(Opcode::AllocTensor).int(keys::ALIGN, 1024).int(keys::OFFSET, 16).results(&[t]).finish();
        b.op(Opcode::AllocTensor).int(keys::COLUMN, -1).results(&[t]).finish();
    });
    expect(
        &have,
        &[
            ("E0222", "layout k128 belongs to smem, not rmem"),
            ("E0222", "rows of a multiple of 128 bytes"),
            ("E0222", "layout d128 expects 128 rows"),
            ("E0222", "expected a tile in rmem, smem or tmem"),
            ("E0222", "expected a space in front of the layout"),
            ("E0205", "expected a power of two for `align`, but got 1000"),
            ("E0205", "expected `offset` to be a multiple of 1024, but got 16"),
            ("E0205", "expected `column` of at least 0, but got -1"),
        ],
    );
}

#[test]
fn loops_and_branches() {
    let have = faults(|b| {
        let (i, x) = (b.const_i32(0), f32_tile(b, &[8]));
        let wide_ty = b.scalar_type(Scalar::I64);
        let wide = b.constant(1, wide_ty);
        b.for_loop(i, wide, i, &[x], |_, iv, _| vec![iv]);
        let one = b.const_i32(1);
        b.for_loop(i, i, one, &[x], |_, _, _| vec![]);
        let op = b.op(Opcode::For).operand(i).operand(i).operand(one).operand(x).finish();
        let body = b.func.add_region(op);
        let point = b.point();
        b.at_end(body).op(Opcode::Yield).operand(x).finish();
        b.set_point(point);
    });
    expect(
        &have,
        &[
            ("E0219", "expected an upper bound of type i32, but got i64"),
            ("E0219", "expected a step of at least 1, but got 0"),
            ("E0219", "expected yielded value 0 of type tile<8xf32>, but got i32"),
            ("E0219", "expected 1 yielded values, but got 0"),
            ("E0219", "expected 1 results, but got 0"),
            ("E0219", "expected an induction variable"),
        ],
    );
    let have = faults(|b| {
        let i1 = b.scalar_type(Scalar::I1);
        let (c, i) = (b.constant(1, i1), b.const_i32(4));
        let t = b.scalar_type(Scalar::I32);
        b.if_else(c, &[t], |_| vec![i], |_| vec![c]);
        b.if_else(c, &[], |_| vec![i], |_| vec![]);
        b.if_else(i, &[], |_| vec![], |_| vec![]);
        let (p3, p4) = (b.iter_type(3), b.iter_type(4));
        let it = b.param(p3);
        b.if_else(c, &[p4], |_| vec![it], |_| vec![it]);
    });
    expect(
        &have,
        &[
            ("E0220", "expected yielded value 0 of type i32, but got i1"),
            ("E0220", "expected 0 yielded values, but got 1"),
            ("E0202", "`condition` expects an i1 scalar"),
            ("E0220", "branch arms must yield matching pipeline iterator types"),
            ("E0220", "expected yielded value 0 of type pipe_iter<4>, but got pipe_iter<3>"),
            ("E0220", "branch arms must yield matching pipeline iterator types"),
            ("E0220", "expected yielded value 0"),
        ],
    );
}

#[test]
fn pipelines() {
    let have = faults(|b| {
        let buf = ring(b, &[4, 128, 64]);
        let make = |b: &mut FunctionBuilder<'_>, n: i64, group: i64, full: &[i64]| {
            b.op(Opcode::AsyncPipelineCreatePipeline)
                .operands(&[buf])
                .int(keys::NUM_STAGES, n)
                .int(keys::PRODUCER_GROUP_ID, group)
                .int(keys::CONSUMER_GROUP_ID, 0)
                .call(keys::FULL, keys::TX, full)
                .call(keys::EMPTY, keys::COMMIT, &[1])
                .inferred()
                .finish_two()
        };
        let (p, c) = make(b, 4, 0, &[1, 16384]);
        make(b, 3, 0, &[1, 16384]);
        make(b, 4, 256, &[1]);
        let i = b.async_pipeline_create_iterator(p);
        b.async_pipeline_producer_acquire(p, i);
        let owned = b.async_pipeline_consumer_wait(c, i);
        b.async_pipeline_consumer_release(owned).build();
        let three = b.iter_type(3);
        b.op(Opcode::AsyncPipelineCreateIterator).operand(p).results(&[three]).finish();
        b.op(Opcode::AsyncPipelineCreateIterator).operand(buf).results(&[three]).finish();
        let i3 = b.param(three);
        b.async_pipeline_producer_acquire(p, i3);
        b.op(Opcode::AsyncPipelineConsumerRelease).operand(owned).results(&[three]).finish();
        let none = b.iter_type(0);
        b.param(none);
    });
    expect(
        &have,
        &[
            ("E0223", "a pipeline needs at least 1 slot, got pipe_iter<0>"),
            ("E0223", "expected 3 slots as `numStages`, but got pipe_producer<4>"),
            ("E0223", "expected 3 slots as `numStages`, but got pipe_consumer<4>"),
            ("E0223", "expected 3 slots in buffer"),
            ("E0205", "expected 0 to 255 for `producerGroupId`, but got 256"),
            ("E0205", "`full` expects 2 positive numbers for tx, but got [1]"),
            ("E0223", "expected a result of type pipe_iter<4>, but got pipe_iter<3>"),
            ("E0202", "`pipeline` expects an end of a pipeline"),
            ("E0223", "expected an iterator for pipe_producer<4>, but got pipe_iter<3>"),
            ("E0223", "expected a result of type pipe_consumer<4>, but got pipe_iter<3>"),
        ],
    );
}

#[test]
fn agents() {
    let agent = |num_warps, warp_id, max_regs| Agent { num_warps, warp_id, lanes: keys::ALL, max_regs };
    let with = |list: &[Agent]| faults(|b| _ = b.agent_switch(list, |_, _| {}));
    expect(&with(&[agent(4, 0, 232), agent(1, 4, 0)]), &[]);
    expect(&with(&[]), &[("E0224", "expected at least 1 region, but got 0")]);
    expect(&with(&[agent(4, 0, 0), agent(1, 3, 0)]), &[("E0224", "warps 3 to 3 belong to two")]);
    expect(&with(&[agent(4, 30, 0)]), &[("E0224", "within 0..32, but got 4 from warp 30")]);
    expect(&with(&[agent(0, 0, 100)]), &[("E0224", "but got 0 from warp 0"), ("E0224", "but got 100")]);
    let have = faults(|b| {
        let i = b.const_i32(1);
        b.for_loop(i, i, i, &[], |b, _, _| {
            b.agent_switch(&[agent(1, 0, 0)], |_, _| {});
            vec![]
        });
        let op = b.agent_switch(&[agent(1, 0, 0)], |_, _| {});
        b.func.set_ints(op, keys::WARP_ID, &[0, 1]);
        let names = [keys::ALL, keys::DRAIN].map(|k| b.func.intern_attr(AttrData::Name(k)));
        b.func.set_attr(op, keys::LANES, AttrData::Array(names.as_slice().into()));
    });
    expect(
        &have,
        &[
            ("E0224", "expected at kernel level"),
            ("E0224", "expected 1 entries in `warp_id`, but got 2"),
            ("E0205", "attribute `lanes` expects a list of `all` and `elect`"),
        ],
    );
}

#[test]
fn limits_are_located_errors() {
    let mut func = Function::new("long");
    let mut b = FunctionBuilder::new(&mut func);
    let mut v = b.const_i32(0);
    for n in 0..100_000 {
        b.set_loc(Loc::new(n, n + 1));
        v = b.negi(v);
    }
    b.ret();
    let errors = verify_function(&func);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].code, Code::E1001);
    assert!(errors[0].message.contains("limits.max-region-ops") && errors[0].message.contains("65536"));
    assert_eq!(errors[0].location, Loc::new(65_535, 65_536));
    let more = Limits { max_region_ops: 200_000, ..Limits::default() };
    assert_eq!(verify_function_with(&func, &more), []);

    // Nesting far beyond any stack is refused, not walked.
    let mut func = Function::new("deep");
    let mut b = FunctionBuilder::new(&mut func);
    let c = b.const_i32(1);
    for _ in 0..100_000 {
        let _ = b.begin_for(c, c, c, &[]);
    }
    assert!(verify_function(&func).iter().any(|e| e.code == Code::E0008));
}

#[test]
fn modules_have_unique_kernel_names() {
    let kernel = || {
        let mut f = Function::new("k");
        FunctionBuilder::new(&mut f).ret();
        f
    };
    let module = Module { functions: vec![kernel(), kernel()], ..Module::default() };
    let errors = verify_module(&module);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].code, Code::E0226);
    assert!(verify(&module.functions[0]).is_ok());
}

/// Semantics by name against the two rules; a scope goes with everything but weak.
#[test]
fn memory_semantics_follow_the_chosen_rule() {
    let faults = |sem: &str, scope: &str, load: bool, semantics: MemSemantics| -> Vec<Code> {
        let attrs: Vec<String> = [("mem_semantic", sem), ("mem_scope", scope)]
            .iter()
            .filter(|a| !a.1.is_empty())
            .map(|a| format!("{} = {}", a.0, a.1))
            .collect();
        let attrs = if attrs.is_empty() { String::new() } else { format!(" <{{{}}}>", attrs.join(", ")) };
        let op = match load {
            true => format!("  %a = tiled_load %v[%z]{attrs} : i32\n"),
            false => format!("  %t = constant 0 : tile<128xi32>\n  tiled_store %t, %v[%z]{attrs}\n"),
        };
        let text =
            format!("kernel @k(%v: view<gmem, ?xi32>) {{\n  %z = constant 0 : i32\n{op}  return\n}}\n");
        let module = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let limits = Limits { semantics, ..Limits::default() };
        verify_function_with(&module.functions[0], &limits).iter().map(|e| e.code).collect()
    };
    let both = [MemSemantics::Public, MemSemantics::Book];
    for semantics in both {
        for load in [true, false] {
            for sem in ["", "weak"] {
                assert_eq!(faults(sem, "", load, semantics), []);
                assert_eq!(faults(sem, "gpu", load, semantics), [Code::E0227]);
            }
            assert_eq!(faults("relaxed", "sys", load, semantics), []);
            assert_eq!(faults("relaxed", "", load, semantics), [Code::E0227]);
        }
    }
    let strong = |sem, load| both.map(|rule| faults(sem, "gpu", load, rule).len());
    assert_eq!([strong("acquire", true), strong("release", true)], [[0, 1], [1, 1]]);
    assert_eq!([strong("acquire", false), strong("release", false)], [[1, 1], [0, 1]]);
    assert_eq!(faults("acquire", "", false, MemSemantics::Public).len(), 2);
}

#[test]
fn errors_stand_at_their_op() {
    let mut func = Function::new("k");
    let mut b = FunctionBuilder::new(&mut func);
    let x = b.const_i32(0);
    b.set_loc(Loc::new(7, 9));
    b.addf(x, x);
    b.set_loc(Loc::NONE).ret();
    assert!(verify_function(&func).iter().all(|e| e.location == Loc::new(7, 9)));
}

/// Every declared code of the family is exercised by a test above; E0228, entities of other functions, by
/// `tests/builder_calls.rs`.
#[test]
fn no_code_without_a_test() {
    let text = include_str!("tests.rs");
    for (code, _) in Code::all() {
        let c = code.as_str();
        if c.starts_with("E02") && *code != Code::E0228 {
            assert!(text.contains(&format!("\"{c}\"")) || text.contains(&format!("Code::{c}")), "{c}");
        }
    }
}
