//! Regions, kernels and what is visible where: built right and wrong.

use tileas_tileir::{
    Builder, Code, Dim, Elem, Key, Module, Num, Opcode, PointerMode, Seg, Type, TypeData, Value, Version,
};

fn scalar(m: &mut Module, num: Num) -> Type {
    m.types.intern(TypeData::Elem(Elem::Num(num)));
    m.types.intern(TypeData::Tile { elem: Elem::Num(num), shape: Box::default() })
}

/// The codes of a kernel with an `i1` and an `i32` parameter. `returns`: whether it ends in `return`.
fn codes(returns: bool, make: impl FnOnce(&mut Builder<'_>, Value, Value, Type)) -> Vec<Code> {
    let mut m = Module::new(Version::NEWEST);
    let (i1, i32) = (scalar(&mut m, Num::I1), scalar(&mut m, Num::I32));
    let mut b = Builder::new(&mut m, "kernel", &[i1, i32]);
    let (cond, n) = (b.param(0), b.param(1));
    make(&mut b, cond, n, i32);
    if returns {
        op(&mut b, Opcode::Return, &[]);
    }
    b.finish();
    let errors = m.verify().err();
    errors.map_or_else(Vec::new, |e| e.iter().map(|e| e.code).collect())
}

fn op(b: &mut Builder<'_>, opcode: Opcode, values: &[Value]) {
    b.op(opcode, &[], &[(Seg::Values, values)], &[]).expect("an op that ends a region");
}

fn for_loop(b: &mut Builder<'_>, n: Value, i32: Type) -> Vec<Value> {
    let bounds = [(Seg::Lower, &[n][..]), (Seg::Upper, &[n]), (Seg::Step, &[n]), (Seg::Init, &[n])];
    b.begin(Opcode::For, &[], &bounds).expect("for");
    b.region(&[i32, i32])
}

#[test]
fn regions_end_as_their_operations_want() {
    let in_if = |end: fn(&mut Builder<'_>, Value)| {
        codes(true, move |b, cond, n, i32| {
            b.begin(Opcode::If, &[], &[(Seg::Cond, &[cond])]).expect("if");
            b.region(&[]);
            op(b, Opcode::Yield, &[n]);
            b.close();
            b.region(&[]);
            end(b, n);
            b.close();
            b.end(&[i32]);
        })
    };
    assert_eq!(in_if(|b, n| op(b, Opcode::Yield, &[n])), []);
    assert_eq!(in_if(|b, _| op(b, Opcode::Return, &[])), []);
    assert_eq!(in_if(|b, _| op(b, Opcode::Yield, &[])), [Code::E1625]);
    assert_eq!(in_if(|b, n| op(b, Opcode::Break, &[n])), [Code::E1625]);
    assert_eq!(in_if(|_, _| ()), [Code::E1625]);
    assert_eq!(
        in_if(|b, n| {
            op(b, Opcode::Yield, &[n]);
            op(b, Opcode::Yield, &[n]);
        }),
        [Code::E1625]
    );

    let in_for = |end: fn(&mut Builder<'_>, &[Value])| {
        codes(true, move |b, _, n, i32| {
            let params = for_loop(b, n, i32);
            end(b, &params);
            b.close();
            b.end(&[i32]);
        })
    };
    assert_eq!(in_for(|b, p| op(b, Opcode::Continue, &p[1..])), []);
    assert_eq!(in_for(|b, p| op(b, Opcode::Continue, p)), [Code::E1625]);
    // Neither `break` nor `return` leaves a `for`.
    assert_eq!(in_for(|b, p| op(b, Opcode::Break, &p[1..])), [Code::E1625]);
    assert_eq!(in_for(|b, _| op(b, Opcode::Return, &[])), [Code::E1625]);
    assert_eq!(in_for(|b, p| op(b, Opcode::Yield, &p[1..])), [Code::E1625]);

    // An `else` without effect may be left out, no other region.
    let empty = |regions: usize, results: bool| {
        codes(true, move |b, cond, n, i32| {
            b.begin(Opcode::If, &[], &[(Seg::Cond, &[cond])]).expect("if");
            for _ in 0..regions {
                b.region(&[]);
                op(b, Opcode::Yield, &[n][..usize::from(results)]);
                b.close();
            }
            b.end(&[i32][..usize::from(results)]);
        })
    };
    assert_eq!((empty(2, false), empty(1, false), empty(2, true)), (vec![], vec![], vec![]));
    assert_eq!((empty(0, false), empty(1, true)), (vec![Code::E1625], vec![Code::E1625]));
}

#[test]
fn breaks_and_continues_reach_through_branches_only() {
    let run = |inner: fn(&mut Builder<'_>, Value), last: fn(&mut Builder<'_>, Value)| {
        codes(true, move |b, cond, n, i32| {
            b.begin(Opcode::Loop, &[], &[(Seg::Init, &[n])]).expect("loop");
            let params = b.region(&[i32]);
            b.begin(Opcode::If, &[], &[(Seg::Cond, &[cond])]).expect("if");
            b.region(&[]);
            inner(b, params[0]);
            b.close();
            b.region(&[]);
            op(b, Opcode::Yield, &[]);
            b.close();
            b.end(&[]);
            last(b, params[0]);
            b.close();
            b.end(&[i32, i32]);
        })
    };
    let next = |b: &mut Builder<'_>, v: Value| op(b, Opcode::Continue, &[v]);
    assert_eq!(run(|b, v| op(b, Opcode::Break, &[v, v]), next), []);
    assert_eq!(run(|b, v| op(b, Opcode::Continue, &[v]), |b, v| op(b, Opcode::Break, &[v, v])), []);
    assert_eq!(run(|b, v| op(b, Opcode::Break, &[v]), next), [Code::E1625]);
    assert_eq!(run(|b, _| op(b, Opcode::Return, &[]), next), []);
    assert_eq!(run(|b, v| op(b, Opcode::Return, &[v]), next), [Code::E1625]);
}

#[test]
fn values_end_with_their_region() {
    let codes = codes(true, |b, _, n, i32| {
        let params = for_loop(b, n, i32);
        op(b, Opcode::Continue, &params[1..]);
        b.close();
        b.end(&[i32]);
        b.op(Opcode::Absi, &[], &[(Seg::Source, &[params[1]])], &[i32]).expect("absi");
    });
    assert_eq!(codes, [Code::E1614]);
    let mut m = Module::new(Version::NEWEST);
    let i32 = scalar(&mut m, Num::I32);
    let mut b = Builder::new(&mut m, "kernel", &[i32]);
    b.op(Opcode::Absi, &[], &[(Seg::Source, &[Value::from_u32(7)])], &[i32]).expect("absi");
    b.finish();
    assert_eq!(m.write(Version::NEWEST).expect_err("no such value")[0].code, Code::E1614);
}

#[test]
fn kernels_take_scalars_and_return() {
    assert_eq!(codes(true, |_, _, _, _| ()), []);
    assert_eq!(codes(false, |_, _, _, _| ()), [Code::E1626]);
    let mut m = Module::new(Version::NEWEST);
    m.types.intern(TypeData::Elem(Elem::Num(Num::F32)));
    let tile = m.types.intern(TypeData::Tile { elem: Elem::Num(Num::F32), shape: Box::new([8]) });
    for _ in 0..2 {
        let mut b = Builder::new(&mut m, "kernel", &[tile]);
        op(&mut b, Opcode::Return, &[]);
        b.finish();
    }
    // Each takes a tile, and the second has the name of the first.
    let codes: Vec<_> = m.verify().expect_err("two of them").iter().map(|e| e.code).collect();
    assert_eq!(codes, [Code::E1626; 3]);
}

#[test]
fn combiners_have_arithmetic_on_scalars_only() {
    let run = |inner: fn(&mut Builder<'_>, &[Value], Type)| {
        codes(true, move |b, _, _, _| {
            let elem = b.module.types.intern(TypeData::Elem(Elem::Num(Num::I32)));
            let scalar = scalar(b.module, Num::I32);
            let tile =
                b.module.types.intern(TypeData::Tile { elem: Elem::Num(Num::I32), shape: Box::new([8]) });
            let source = b.op(Opcode::Iota, &[], &[], &[tile]).expect("iota");
            let identity =
                tileas_tileir::Attr::List(Box::new([tileas_tileir::Attr::Int { ty: elem, bits: 0 }]));
            let attrs = [(Key::Dim, 0u64.into()), (Key::Identities, identity.into())];
            b.begin(Opcode::Reduce, &attrs, &[(Seg::Tiles, &[source])]).expect("reduce");
            let params = b.region(&[scalar, scalar]);
            inner(b, &params, tile);
            b.close();
            b.end(&[scalar]);
        })
    };
    assert_eq!(run(|b, p, _| op(b, Opcode::Yield, &p[..1])), []);
    assert_eq!(run(|b, p, _| op(b, Opcode::Yield, p)), [Code::E1625]);
    assert_eq!(run(|b, _, _| op(b, Opcode::Return, &[])), [Code::E1625]);
    let with_tile = |b: &mut Builder<'_>, p: &[Value], tile: Type| {
        b.op(Opcode::Iota, &[], &[], &[tile]).expect("iota");
        op(b, Opcode::Yield, &p[..1]);
    };
    assert_eq!(run(with_tile), [Code::E1625]);
}

#[test]
fn types_keep_their_rules() {
    let verify = |data: TypeData| {
        let mut m = Module::new(Version::NEWEST);
        m.types.intern(data);
        m.verify().err().map(|e| e[0].code)
    };
    let tile = |shape: &[i64]| TypeData::Tile { elem: Elem::Num(Num::F32), shape: shape.into() };
    assert_eq!(verify(tile(&[4096, 4096])), None);
    for shape in [&[4096, 8192][..], &[3], &[0], &[-4], &[i64::MIN], &[1 << 62, 1 << 62]] {
        assert_eq!(verify(tile(shape)), Some(Code::E1621), "{shape:?}");
    }
    let tensor = |shape: &[Dim], strides: &[Dim]| TypeData::TensorView {
        elem: Num::I32,
        shape: shape.into(),
        strides: strides.into(),
        mode: PointerMode::None,
    };
    assert_eq!(verify(tensor(&[None, Some(3)], &[Some(7), Some(1)])), None);
    assert_eq!(verify(tensor(&[None], &[])), Some(Code::E1621));
    assert_eq!(verify(tensor(&[Some(0)], &[Some(1)])), Some(Code::E1621));
    assert_eq!(verify(tensor(&[Some(4)], &[Some(-1)])), Some(Code::E1621));
    let view = |make: &dyn Fn(Type) -> TypeData| {
        let mut m = Module::new(Version::NEWEST);
        let base = m.types.intern(tensor(&[None, None], &[None, Some(1)]));
        let made = make(base);
        m.types.intern(made);
        m.verify().err().map(|e| e[0].code)
    };
    use tileas_tileir::Padding;
    let partition = |tile: &[i32], map: &[i32], padding| {
        let (tile, map): (Box<[i32]>, Box<[i32]>) = (tile.into(), map.into());
        view(&|tensor| TypeData::PartitionView { tile: tile.clone(), tensor, map: map.clone(), padding })
    };
    assert_eq!(partition(&[4, 8], &[1, 0], Some(Padding::Zero)), None);
    assert_eq!(partition(&[4, 8], &[0, 0], None), Some(Code::E1621));
    assert_eq!(partition(&[4, 8], &[0, 2], None), Some(Code::E1621));
    assert_eq!(partition(&[4], &[0], None), Some(Code::E1621));
    assert_eq!(partition(&[4, 6], &[0, 1], None), Some(Code::E1621));
    assert_eq!(partition(&[4, 8], &[0, 1], Some(Padding::Nan)), Some(Code::E1621));
    let strided = |steps: &[i32]| {
        let steps: Box<[i32]> = steps.into();
        view(&|tensor| TypeData::StridedView {
            tile: Box::new([4, 8]),
            steps: steps.clone(),
            tensor,
            map: Box::new([0, 1]),
            padding: None,
        })
    };
    assert_eq!(
        (strided(&[3, 5]), strided(&[3, 0]), strided(&[3])),
        (None, Some(Code::E1621), Some(Code::E1621))
    );
    let gather = |sparse| {
        view(&|tensor| TypeData::GatherScatterView { tile: Box::new([4, 8]), tensor, sparse, padding: None })
    };
    assert_eq!((gather(1), gather(2)), (None, Some(Code::E1621)));
}

#[test]
fn builders_know_the_table() {
    let mut m = Module::new(Version::NEWEST);
    let i32 = scalar(&mut m, Num::I32);
    let mut b = Builder::new(&mut m, "kernel", &[i32]);
    let n = b.param(0);
    let wrong = [
        b.op(Opcode::Addi, &[], &[(Seg::Lhs, &[n]), (Seg::Rhs, &[n])], &[i32]),
        b.op(Opcode::Andi, &[], &[(Seg::Lhs, &[n])], &[i32]),
        b.op(Opcode::Andi, &[], &[(Seg::Lhs, &[n]), (Seg::Rhs, &[n, n])], &[i32]),
        b.op(Opcode::Absi, &[], &[(Seg::Lhs, &[n])], &[i32]),
        b.op(Opcode::Absi, &[(Key::Dim, 0u64.into())], &[(Seg::Source, &[n])], &[i32]),
    ];
    assert!(wrong.into_iter().all(|r| r.is_err_and(|e| e.code == Code::E1615)));
}
