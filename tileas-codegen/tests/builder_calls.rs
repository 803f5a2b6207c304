//! The construction API as an adversary uses it: any calls, with entities of other functions and of none.
//!
//! Whatever was built is verified, printed and compiled: that ends in PTX or in errors, never in a panic.

use arbtest::arbitrary::{Result, Unstructured};
use tileas_codegen::ir::builder::{Agent, OpenFor};
use tileas_codegen::ir::types::MAX_RANK;
use tileas_codegen::ir::{
    Attr, AttrData, Block, Dim, Function, FunctionBuilder, Layout, Module, Op, Opcode, Scalar, Space, Sym,
    Type, TypeData, Value, keys, print_function, verify_function,
};
use tileas_codegen::{Code, Context, Loc, Settings};

/// Entities of all functions of a case, and some of none.
#[derive(Default)]
struct Pools {
    values: Vec<Value>,
    types: Vec<Type>,
    ops: Vec<Op>,
    blocks: Vec<Block>,
    attrs: Vec<Attr>,
    syms: Vec<Sym>,
    open: Vec<OpenFor>,
}

/// One of the last of a list mostly, so that operands tend to be visible.
fn pick<T: Clone>(u: &mut Unstructured<'_>, list: &[T]) -> Result<Option<T>> {
    if list.is_empty() {
        return Ok(None);
    }
    let from = if u.ratio(3, 4)? { list.len().saturating_sub(6) } else { 0 };
    u.choose(&list[from..]).cloned().map(Some)
}

fn values(u: &mut Unstructured<'_>, p: &Pools) -> Result<Vec<Value>> {
    let n = u.int_in_range(0..=3)?;
    (0..n).filter_map(|_| pick(u, &p.values).transpose()).collect()
}

fn scalar(u: &mut Unstructured<'_>) -> Result<Scalar> {
    Ok(match u.ratio(3, 4)? {
        true => *u.choose(&[Scalar::I32, Scalar::F32, Scalar::F16, Scalar::I1])?,
        false => u.choose(Scalar::ALL)?.0,
    })
}

fn type_data(u: &mut Unstructured<'_>) -> Result<TypeData> {
    let rank = if u.ratio(1, 16)? { u.int_in_range(0..=20)? } else { u.int_in_range(1..=2)? };
    let mut dims = Vec::new();
    for _ in 0..rank {
        dims.push(*u.choose(&[64, 128, 32, 1, 16, 3, 0, 1 << 20, u32::MAX])?);
    }
    let elem = scalar(u)?;
    Ok(match u.int_in_range(0..=9)? {
        0..=2 => TypeData::tile(&dims, elem),
        3 => {
            let name = *u.choose(&["k128", "row", "d128", "cols"])?;
            let space = *u.choose(&[Space::Gmem, Space::Rmem, Space::Smem, Space::Tmem])?;
            match Layout::from_name(name) {
                Some(layout) => TypeData::tile(&dims, elem).placed(space, layout),
                None => TypeData::MemToken,
            }
        }
        4 => TypeData::View {
            space: Space::Gmem,
            dims: dims.iter().map(|&d| if d < 8 { Dim::Dynamic } else { Dim::Static(d) }).collect(),
            elem,
        },
        5 => TypeData::TmaDesc { dims: dims.into(), elem },
        6 => TypeData::PipeProducer(u.int_in_range(0..=3)?),
        7 => u.choose(&[TypeData::AsyncToken, TypeData::MemToken, TypeData::PipeIter(2)])?.clone(),
        _ => TypeData::Scalar(elem),
    })
}

fn attr_data(u: &mut Unstructured<'_>, p: &Pools) -> Result<AttrData> {
    Ok(match u.int_in_range(0..=8)? {
        0 => AttrData::Unit,
        1 | 2 => AttrData::Int(*u.choose(&[0, 1, 2, 64, 128, -1, i64::MAX, i64::MIN])?, None),
        3 => Function::float_attr(*u.choose(&[0.0, 1.5, -1e300, f64::NAN, f64::NEG_INFINITY])?),
        4 => AttrData::Str(u.choose(&["", "\"\n\\", "ü"])?.to_string()),
        5 => AttrData::Name(pick(u, &p.syms)?.unwrap_or(keys::ALL)),
        6 => AttrData::Array(pick(u, &p.attrs)?.into_iter().cycle().take(2).collect()),
        7 => AttrData::Call(keys::TX, pick(u, &p.attrs)?.into_iter().collect()),
        _ => pick(u, &p.types)?.map_or(AttrData::Unit, AttrData::Type),
    })
}

/// One call.
fn call(u: &mut Unstructured<'_>, func: &mut Function, p: &mut Pools) -> Result<()> {
    let (ty, value) = (pick(u, &p.types)?, pick(u, &p.values)?);
    let (op, block) = (pick(u, &p.ops)?, pick(u, &p.blocks)?);
    let mut b = FunctionBuilder::new(func);
    if let (Some(at), true) = (block, u.ratio(1, 2)?) {
        b.at_end(at);
    }
    if let (Some(at), true) = (op, u.ratio(1, 8)?) {
        b.before(at);
    }
    match u.int_in_range(0..=19)? {
        0 => p.types.push(b.func().intern_type(type_data(u)?)),
        1 => p.attrs.push(b.func().intern_attr(attr_data(u, p)?)),
        2 => p.syms.push(b.func().intern_symbol(u.choose(&["a", "x y", "", "axis", "7"])?)),
        3 => p.values.extend(ty.map(|ty| b.param(ty))),
        4 => p.values.extend(ty.map(|ty| b.constant(*u.choose(&[0, 1, 3]).unwrap_or(&0), ty))),
        5 => p.values.push(b.const_i32(u.arbitrary()?)),
        6..=9 => {
            let opcode = *u.choose(Opcode::ALL)?;
            let mut o = b.op(opcode);
            for _ in 0..u.int_in_range(0..=opcode.def().operands.len() + 1)? {
                o = o.operands(&values(u, p)?);
            }
            for a in opcode.def().attrs {
                if u.ratio(1, 2)? {
                    o = o.attr(a.key, attr_data(u, p)?);
                }
            }
            o = match ty {
                Some(ty) if u.ratio(1, 2)? => o.results(&[ty]),
                _ => o.inferred(),
            };
            match u.int_in_range(0..=2)? {
                0 => p.ops.push(o.finish()),
                1 => p.values.push(o.finish_one()),
                _ => p.values.extend(<[Value; 2]>::from(o.finish_two())),
            }
        }
        10 | 11 => {
            if let Some(v) = value {
                let w = pick(u, &p.values)?.unwrap_or(v);
                p.values.push(match u.int_in_range(0..=5)? {
                    0 => b.addi(v, w),
                    1 => b.addf(v, w),
                    2 => b.cmpi(v, w, keys::LT),
                    3 => b.async_dot(v, w, v).build(),
                    4 => b.async_dot(v, w, v).unit(keys::TRANSPOSE_B).accumulate(w).build(),
                    _ => b.with(keys::GID, AttrData::Int(1, None)).addi(v, w),
                });
            }
        }
        12 => {
            let (lo, hi, st) = (b.const_i32(0), b.const_i32(4), b.const_i32(1));
            let inits = values(u, p)?;
            let open = b.begin_for(value.unwrap_or(lo), hi, st, &inits);
            p.values.push(open.iv);
            p.values.extend(open.args.iter().copied());
            p.blocks.extend(b.func().op_block_at(open.op, 0));
            if u.ratio(1, 2)? {
                let yields = if u.ratio(1, 2)? { open.args.to_vec() } else { values(u, p)? };
                p.values.extend(b.end_for(open, &yields));
            } else {
                p.open.push(open);
            }
        }
        13 => {
            if let Some(open) = pick(u, &p.open)? {
                let yields = values(u, p)?;
                p.values.extend(b.end_for(open, &yields));
            }
        }
        14 => {
            let condition = value.unwrap_or(Value::from_u32(9));
            let types: Vec<Type> = ty.into_iter().filter(|_| condition.as_u32() % 2 == 0).collect();
            let given = values(u, p)?;
            p.values.extend(b.if_else(condition, &types, |_| given.clone(), |_| Vec::new()));
        }
        15 => {
            let lanes = pick(u, &p.syms)?.unwrap_or(keys::ELECT);
            let agents = [Agent { num_warps: 1, warp_id: 0, lanes, max_regs: 0 }];
            p.ops.push(b.agent_switch(&agents[..u.int_in_range(0..=1)?], |_, _| ()));
        }
        16 => p.ops.push(b.ret()),
        17 => {
            // Functions below the builder.
            let (op, value) = (op.unwrap_or(Op::from_u32(3)), value.unwrap_or(Value::from_u32(4)));
            let ty = ty.unwrap_or(Type::from_u32(u32::MAX));
            let f = b.func();
            match u.int_in_range(0..=11)? {
                0 => f.remove_op(op),
                1 => f.insert_after(op, pick(u, &p.ops)?.unwrap_or(op)),
                2 => f.insert_before(op, pick(u, &p.ops)?.unwrap_or(op)),
                3 => f.set_value_type(value, ty),
                4 => f.set_value_name(value, "n a m e"),
                5 => f.set_operand(op, u.int_in_range(0..=3)?, value),
                6 => f.set_operands(op, &[value], &[u32::MAX, 2]),
                7 => p.values.push(f.add_result(op, ty)),
                8 => p.blocks.push(f.add_region(op)),
                9 => p.values.push(f.add_block_param(block.unwrap_or(Block::from_u32(7)), ty)),
                10 => {
                    let (key, attr) = (pick(u, &p.syms)?.unwrap_or(keys::GID), pick(u, &p.attrs)?);
                    let dict = if u.ratio(1, 2)? { f.inherent_mut(op) } else { f.discardable_mut(op) };
                    attr.into_iter().for_each(|a| dict.set(key, a));
                }
                _ => p.ops.push(f.make_op(*u.choose(Opcode::ALL)?, &[value], &[1], &[ty], Loc::new(9, 3))),
            }
        }
        18 => {
            // Questions about anything.
            let (op, value) = (op.unwrap_or(Op::from_u32(3)), value.unwrap_or(Value::from_u32(4)));
            let f = b.func();
            let _ =
                (f.opcode(op), f.operands(op), f.segment(op, 1), f.results(op), f.regions(op), f.op_loc(op));
            let _ =
                (f.op_parent(op), f.next_op(op), f.prev_op(op), f.inherent(op), f.attr_ints(op, keys::BOX));
            let _ = (f.value_data(value).to_string(), f.value_def(value), f.value_name(value));
            let _ = (f.constant_value(value), f.type_data(ty.unwrap_or(Type::from_u32(1))).num_bytes());
            block.into_iter().for_each(|at| f.walk(at, &mut |_| ()));
        }
        _ => {
            // Something sensible: a load, a sum and a store.
            let view = b.view_type(&[Dim::Dynamic], Scalar::F32);
            let (x, tile) = (b.param(view), b.tile_type(&[128], Scalar::F32));
            let i = b.program_id(0);
            let t = b.tiled_load(x, &[i], tile);
            let sum = b.addf(t, t);
            b.tiled_store(sum, x, &[i]);
            p.values.extend([x, i, t, sum]);
            p.types.extend([view, tile]);
        }
    }
    p.ops.extend(func.last_op(func.entry()));
    p.blocks.extend(p.blocks.is_empty().then(|| func.entry()));
    Ok(())
}

#[test]
fn any_calls_end_in_a_kernel_or_in_errors() {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
    let (mut context, settings) = (Context::new(), Settings::default());
    let (mut compiled, mut refused, mut strangers) = (0, 0, 0);
    arbtest::arbtest(|u| {
        let mut pools: Vec<Pools> = (0..2).map(|_| Pools::default()).collect();
        let mut functions: Vec<Function> = ["a", "b c", ""].map(Function::new).into();
        let mixed = u.ratio(1, 3)?;
        for _ in 0..u.int_in_range(1..=40)? {
            let n = u.int_in_range(0..=1)?;
            let at = if mixed { u.int_in_range(0..=1)? } else { n };
            call(u, &mut functions[n], &mut pools[at])?;
        }
        for f in &mut functions {
            if u.ratio(7, 8)? && f.last_op(f.entry()).is_none_or(|op| f.opcode(op) != Opcode::Return) {
                FunctionBuilder::new(f).ret();
            }
            let errors = verify_function(f);
            strangers += usize::from(errors.iter().any(|e| e.code == Code::E0228));
            assert!(!print_function(f).is_empty());
            let copy = f.clone();
            assert_eq!(errors, verify_function(&copy), "copies are as their originals");
            let module = Module { functions: vec![copy], ..Module::new() };
            match context.compile(&module, &*isa, &settings) {
                Ok(_) => compiled += 1,
                Err(found) => {
                    assert!(!found.is_empty());
                    refused += 1;
                }
            }
        }
        Ok(())
    })
    .budget_ms(4_000);
    assert!(compiled > 20 && refused > 20 && strangers > 20, "{compiled}, {refused}, {strangers}");
}

/// A kernel that uses `ty` and `value`, which may be of another one.
fn stored(name: &str, value: Option<Value>, ty: Option<Type>) -> (Function, Value, Type) {
    let mut func = Function::new(name);
    let mut b = FunctionBuilder::new(&mut func);
    let view = b.view_type(&[Dim::Dynamic], Scalar::F32);
    let (x, i) = (b.param(view), b.program_id(0));
    let tile = b.tile_type(&[128], Scalar::F32);
    let t = b.tiled_load(x, &[i], ty.unwrap_or(tile));
    b.tiled_store(value.unwrap_or(t), x, &[i]);
    b.ret();
    (func, t, tile)
}

#[test]
fn values_and_types_of_another_function_are_found() {
    let (first, value, ty) = stored("first", None, None);
    assert_eq!(verify_function(&first), []);
    // They have the numbers of the right ones.
    for (value, ty, part) in [(Some(value), None, "operand v2"), (None, Some(ty), "type")] {
        let (second, ..) = stored("second", value, ty);
        let errors = verify_function(&second);
        assert!(!errors.is_empty() && errors.iter().all(|e| e.code == Code::E0228), "{errors:?}");
        assert!(errors[0].message.contains(part), "{errors:?}");
        let copied = second.clone();
        assert_eq!(verify_function(&copied), errors);
    }
    for value in [Value::from_u32(77), Value::from_u32(u32::MAX)] {
        let (f, ..) = stored("third", Some(value), None);
        assert_eq!(verify_function(&f)[0].code, Code::E0228);
    }
    // Copies have the entities of their original.
    let mut copy = first.clone();
    let store = copy.all_ops()[2];
    copy.set_operand(store, 0, value);
    assert_eq!(verify_function(&copy), []);
}

#[test]
fn ops_blocks_and_loops_of_another_function_are_found() {
    let (first, ..) = stored("first", None, None);
    let theirs = first.all_ops()[2];
    let mut other = Function::new("other");
    let mut b = FunctionBuilder::new(&mut other);
    let n = b.const_i32(1);
    let opened = b.begin_for(n, n, n, &[]);
    let in_loop = b.point();
    type Misuse<'a> = &'a dyn Fn(&mut FunctionBuilder<'_>);
    let calls: &[(&str, Misuse<'_>)] = &[
        ("before another's", &|b| _ = b.before(theirs).ret()),
        ("at another's end", &|b| _ = b.set_point(in_loop).ret()),
        ("another's loop", &|b| _ = b.end_for(opened.clone(), &[])),
        ("on another's value", &|b| _ = b.addi(n, n)),
        ("another's name", &|b| _ = b.name(n, "x")),
        ("twice", &|b| {
            let ret = b.ret();
            let entry = b.func().entry();
            b.func().append_op(entry, ret);
        }),
        ("nowhere", &|b| {
            let op = b.func().make_op(Opcode::Return, &[], &[], &[], Loc::NONE);
            let next = b.func().make_op(Opcode::Return, &[], &[], &[], Loc::NONE);
            b.func().insert_after(op, next);
        }),
    ];
    for (what, misuse) in calls {
        let (mut f, ..) = stored("k", None, None);
        let ops = f.all_ops();
        misuse(&mut FunctionBuilder::new(&mut f));
        let errors = verify_function(&f);
        assert!(errors.iter().any(|e| e.code == Code::E0228), "{what}: {errors:?}");
        assert!(f.all_ops().starts_with(&ops), "{what}: nothing is lost");
    }
}

#[test]
fn seventeen_dimensions_and_absent_bodies_are_errors() {
    let code = |build: &dyn Fn(&mut FunctionBuilder<'_>)| {
        let mut f = Function::new("k");
        build(&mut FunctionBuilder::new(&mut f));
        FunctionBuilder::new(&mut f).ret();
        verify_function(&f).iter().map(|e| e.code).collect::<Vec<_>>()
    };
    for (rank, want) in [(MAX_RANK, vec![]), (MAX_RANK + 1, vec![Code::E0211])] {
        let dims = vec![Dim::Dynamic; rank];
        let view = |b: &mut FunctionBuilder<'_>| {
            let ty = b.view_type(&dims, Scalar::F32);
            b.param(ty);
        };
        assert_eq!(code(&view), want);
        let tile = |b: &mut FunctionBuilder<'_>| {
            let ty = b.tile_type(&vec![1; rank], Scalar::F32);
            b.constant(0, ty);
        };
        assert_eq!(code(&tile), want);
    }
    let huge = code(&|b| {
        let ty = b.tile_type(&[1 << 31; 16], Scalar::F32);
        b.constant(0, ty);
    });
    assert_eq!(huge, [Code::E0211]);
    let bare = |b: &mut FunctionBuilder<'_>| {
        let n = b.const_i32(1);
        b.op(Opcode::For).operand(n).operand(n).operand(n).operands(&[]).finish();
    };
    assert_eq!(code(&bare), [Code::E0207]);
    let unclosed = |b: &mut FunctionBuilder<'_>| {
        let n = b.const_i32(1);
        _ = b.begin_for(n, n, n, &[]);
    };
    assert_eq!(code(&unclosed), [Code::E0208]);
    let nothing = |b: &mut FunctionBuilder<'_>| {
        let n = b.const_i32(1);
        b.for_loop(n, n, n, &[n], |_, _, _| Vec::new());
    };
    assert_eq!(code(&nothing), [Code::E0219]);
    let empty = |b: &mut FunctionBuilder<'_>| {
        let n = b.const_i32(1);
        b.for_loop(n, n, n, &[], |_, _, _| Vec::new());
    };
    assert_eq!(code(&empty), []);
}

#[test]
fn depth_and_size_overflow_nothing() {
    let deep = |n: usize| {
        let mut f = Function::new("deep");
        let mut b = FunctionBuilder::new(&mut f);
        let one = b.const_i32(1);
        let open: Vec<OpenFor> = (0..n).map(|_| b.begin_for(one, one, one, &[])).collect();
        for open in open.into_iter().rev() {
            b.end_for(open, &[]);
        }
        b.ret();
        f
    };
    let f = deep(100_000);
    assert!(verify_function(&f).iter().any(|e| e.code == Code::E0008));
    assert!(print_function(&f).contains("not shown"));
    let mut count = 0;
    f.walk(f.entry(), &mut |_| count += 1);
    assert_eq!(count, f.all_ops().len());
    // Each list holds the one before twice.
    let mut f = Function::new("lists");
    let mut attr = f.intern_attr(AttrData::Unit);
    for _ in 0..200 {
        attr = f.intern_attr(AttrData::Array([attr, attr].into_iter().collect()));
    }
    let ret = FunctionBuilder::new(&mut f).ret();
    f.discardable_mut(ret).set(keys::GID, attr);
    assert_eq!(verify_function(&f)[0].code, Code::E1001);
    assert!(print_function(&f).contains("..."));
    let mut attr = f.intern_attr(AttrData::Unit);
    for _ in 0..100_000 {
        attr = f.intern_attr(AttrData::Array([attr].into_iter().collect()));
    }
    f.discardable_mut(ret).set(keys::GID, attr);
    assert_eq!(verify_function(&f)[0].code, Code::E0008);
    assert!(print_function(&f).contains("..."));
}

#[test]
fn parameters_have_limited_space() {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
    // There are 32 764 bytes.
    let kernel = |wide: usize| {
        let mut func = Function::new("wide");
        let mut b = FunctionBuilder::new(&mut func);
        let (i64_ty, i32_ty) = (b.scalar_type(Scalar::I64), b.scalar_type(Scalar::I32));
        (0..wide).for_each(|_| _ = b.param(i64_ty));
        b.param(i32_ty);
        b.ret();
        Module { functions: vec![func], ..Module::new() }
    };
    let compile = |wide| Context::new().compile(&kernel(wide), &*isa, &Settings::default());
    assert!(compile(4095).is_ok());
    let errors = compile(4096).expect_err("too many");
    assert_eq!(errors.iter().map(|e| e.code).collect::<Vec<_>>(), [Code::E0804]);
    assert!(
        errors[0].message.contains("4097 kernel parameters") && errors[0].message.contains("32772 bytes")
    );
}
