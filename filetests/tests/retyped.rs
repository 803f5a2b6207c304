//! Tile IR that cuTile does not write: pointers that are used as those to elements of another type or made of addresses, kernels that
//! end inside of a loop.

use std::path::Path;
use tileas_emu::Mode;
use tileas_filetests::cutile;
use tileas_tileir::{
    Builder, Elem, Key, Module, Num, Opcode as O, Overflow, PointerMode, Seg, Semantics, Signedness, Type,
    TypeData, Value, Version,
};

const N: usize = 128;

fn tile(b: &mut Builder<'_>, elem: Elem, shape: &[i64]) -> Type {
    b.module.types.intern(TypeData::Elem(elem));
    b.module.types.intern(TypeData::Tile { elem, shape: shape.into() })
}

fn pointer(pointee: Num) -> Elem {
    Elem::Ptr { pointee, mode: PointerMode::None }
}

/// Pointers to the elements behind a parameter, the last one first if they are reversed.
fn elements(b: &mut Builder<'_>, param: u32, pointee: Num, reversed: bool) -> Value {
    let (one, all) = (tile(b, pointer(pointee), &[1]), tile(b, pointer(pointee), &[N as i64]));
    let numbers = tile(b, Elem::Num(Num::I32), &[N as i64]);
    let source = b.param(param);
    let one = b.op(O::Reshape, &[], &[(Seg::Source, &[source])], &[one]).expect("reshape");
    let same = b.op(O::Broadcast, &[], &[(Seg::Source, &[one])], &[all]).expect("broadcast");
    let mut count = b.op(O::Iota, &[], &[], &[numbers]).expect("iota");
    if reversed {
        let last = b.module.constants.intern(&(N as u32 - 1).to_le_bytes());
        let last = b.op(O::Constant, &[(Key::Value, last.into())], &[], &[numbers]).expect("constant");
        let wraps = [(Key::Overflow, Overflow::None.into())];
        let both = [(Seg::Lhs, &[last][..]), (Seg::Rhs, &[count][..])];
        count = b.op(O::Subi, &wraps, &both, &[numbers]).expect("subi");
    }
    b.op(O::Offset, &[], &[(Seg::Pointers, &[same]), (Seg::Offset, &[count])], &[all]).expect("offset")
}

fn load(b: &mut Builder<'_>, from: Value, elem: Num, token: Value) -> (Value, Value) {
    let (ty, done) = (tile(b, Elem::Num(elem), &[N as i64]), b.module.types.intern(TypeData::Token));
    b.begin(
        O::LoadPtrTko,
        &[(Key::Semantics, Semantics::Weak.into())],
        &[(Seg::Source, &[from]), (Seg::Token, &[token])],
    )
    .expect("load");
    let results = b.end(&[ty, done]);
    (results[0], results[1])
}

fn store(b: &mut Builder<'_>, to: Value, value: Value, token: Value) -> Value {
    let done = b.module.types.intern(TypeData::Token);
    b.op(
        O::StorePtrTko,
        &[(Key::Semantics, Semantics::Weak.into())],
        &[(Seg::Destination, &[to]), (Seg::Value, &[value]), (Seg::Token, &[token])],
        &[done],
    )
    .expect("store")
}

/// A kernel with pointers to such elements as parameters.
fn kernel<'m>(m: &'m mut Module, name: &str, pointees: &[Num]) -> Builder<'m> {
    let mut types: Vec<Type> = Vec::new();
    for &pointee in pointees {
        m.types.intern(TypeData::Elem(Elem::Num(pointee)));
        m.types.intern(TypeData::Elem(pointer(pointee)));
        types.push(m.types.intern(TypeData::Tile { elem: pointer(pointee), shape: [].into() }));
    }
    Builder::new(m, name, &types)
}

/// y becomes the lower halves of the words of x; then these are 7 in x, of which z has the words in the opposite order: other threads load them.
fn retyped() -> Module {
    let mut m = Module::new(Version::NEWEST);
    let mut b = kernel(&mut m, "retyped", &[Num::F32, Num::I32, Num::F32]);
    let token = b.module.types.intern(TypeData::Token);
    let token = b.op(O::MakeToken, &[], &[], &[token]).expect("token");
    let (x, y, z) = (
        elements(&mut b, 0, Num::F32, false),
        elements(&mut b, 1, Num::I32, false),
        elements(&mut b, 2, Num::F32, false),
    );
    let ty = tile(&mut b, pointer(Num::I16), &[N as i64]);
    let halves = b.op(O::PtrToPtr, &[], &[(Seg::Source, &[x])], &[ty]).expect("ptr_to_ptr");
    let (low, token) = load(&mut b, halves, Num::I16, token);
    let ty = tile(&mut b, Elem::Num(Num::I32), &[N as i64]);
    let signed = [(Key::Signedness, Signedness::Signed.into())];
    let low = b.op(O::Exti, &signed, &[(Seg::Source, &[low])], &[ty]).expect("exti");
    let token = store(&mut b, y, low, token);
    let seven = b.module.constants.intern(&[7, 0]);
    let ty = tile(&mut b, Elem::Num(Num::I16), &[N as i64]);
    let seven = b.op(O::Constant, &[(Key::Value, seven.into())], &[], &[ty]).expect("constant");
    let token = store(&mut b, halves, seven, token);
    let back = elements(&mut b, 0, Num::F32, true);
    let (words, token) = load(&mut b, back, Num::F32, token);
    store(&mut b, z, words, token);
    b.op(O::Return, &[], &[], &[]).expect("return");
    b.finish();
    m
}

fn constant(b: &mut Builder<'_>, elem: Num, shape: &[i64], value: u32) -> Value {
    let (ty, value) = (tile(b, Elem::Num(elem), shape), b.module.constants.intern(&value.to_le_bytes()));
    b.op(O::Constant, &[(Key::Value, value.into())], &[], &[ty]).expect("constant")
}

fn add(b: &mut Builder<'_>, x: Value, y: Value, shape: &[i64]) -> Value {
    let ty = tile(b, Elem::Num(Num::I32), shape);
    let both = [(Seg::Lhs, &[x][..]), (Seg::Rhs, &[y])];
    b.op(O::Addi, &[(Key::Overflow, Overflow::None.into())], &both, &[ty]).expect("addi")
}

/// Adds 1 to the words of x, through their addresses in the opposite order, until it returns in iteration `n` of the inner of two loops; what
/// stands behind them would set y.
fn addressed(n: u32) -> Module {
    let mut m = Module::new(Version::NEWEST);
    let all = [N as i64];
    let mut b = kernel(&mut m, "addressed", &[Num::I32, Num::I32]);
    let token = b.module.types.intern(TypeData::Token);
    let token = b.op(O::MakeToken, &[], &[], &[token]).expect("token");
    let (x, y) = (elements(&mut b, 0, Num::I32, true), elements(&mut b, 1, Num::I32, false));
    let (ty, pointers) = (tile(&mut b, Elem::Num(Num::I64), &all), tile(&mut b, pointer(Num::I32), &all));
    let addresses = b.op(O::PtrToInt, &[], &[(Seg::Source, &[x])], &[ty]).expect("ptr_to_int");
    let x = b.op(O::IntToPtr, &[], &[(Seg::Source, &[addresses])], &[pointers]).expect("int_to_ptr");
    let zero = constant(&mut b, Num::I32, &[], 0);
    let (i1, i32) = (tile(&mut b, Elem::Num(Num::I1), &[]), tile(&mut b, Elem::Num(Num::I32), &[]));
    let leave = |b: &mut Builder<'_>, i: Value, at: u32, with: O| {
        let at = constant(b, Num::I32, &[], at);
        let attrs = [
            (Key::Pred, tileas_tileir::Predicate::Equal.into()),
            (Key::Signedness, Signedness::Signed.into()),
        ];
        let there = b.op(O::Cmpi, &attrs, &[(Seg::Lhs, &[i]), (Seg::Rhs, &[at])], &[i1]).expect("cmpi");
        b.begin(O::If, &[], &[(Seg::Cond, &[there])]).expect("if");
        for end in [with, O::Yield] {
            b.region(&[]);
            b.op(end, &[], &[], &[]).expect("an end");
            b.close();
        }
        b.end(&[]);
    };
    let next = |b: &mut Builder<'_>, i: Value| {
        let one = constant(b, Num::I32, &[], 1);
        let i = add(b, i, one, &[]);
        b.op(O::Continue, &[], &[(Seg::Values, &[i])], &[]).expect("continue");
        b.close();
        b.end(&[]);
    };
    b.begin(O::Loop, &[], &[(Seg::Init, &[zero])]).expect("loop");
    let outer = b.region(&[i32])[0];
    leave(&mut b, outer, 2, O::Break);
    b.begin(O::Loop, &[], &[(Seg::Init, &[zero])]).expect("loop");
    let inner = b.region(&[i32])[0];
    leave(&mut b, inner, n, O::Return);
    leave(&mut b, inner, 3, O::Break);
    let (words, loaded) = load(&mut b, x, Num::I32, token);
    let ones = constant(&mut b, Num::I32, &all, 1);
    let words = add(&mut b, words, ones, &all);
    store(&mut b, x, words, loaded);
    next(&mut b, inner);
    next(&mut b, outer);
    let seven = constant(&mut b, Num::I32, &all, 7);
    store(&mut b, y, seven, token);
    b.op(O::Return, &[], &[], &[]).expect("return");
    b.finish();
    m
}

/// Writes a kernel and the words of its arrays before and after it, and runs it for both targets.
fn agrees(m: &Module, name: &str, types: &[&str], words: &dyn Fn(usize, usize) -> [u32; 2]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    m.verify().expect("well formed");
    let bytes = m.write(Version::NEWEST).expect("bytes");
    std::fs::write(folder.join("retyped.tileirbc"), bytes).expect("file");
    let (mut params, mut arrays, mut expect) = (Vec::new(), serde_json::Map::new(), serde_json::Map::new());
    for (k, dtype) in types.iter().enumerate() {
        for (when, side) in ["before", "after"].into_iter().enumerate() {
            let mut bytes = b"\x93NUMPY\x01\x00\x00\x00".to_vec();
            (0..N).for_each(|i| bytes.extend(words(k, i)[when].to_le_bytes()));
            std::fs::write(folder.join(format!("{side}{k}")), bytes).expect("file");
        }
        let array = format!("a{k}");
        params.push(serde_json::json!({"kind": "array", "array": array}));
        expect.insert(
            array.clone(),
            serde_json::json!({"file": format!("after{k}"), "rtol": 0.0, "atol": 0.0}),
        );
        arrays.insert(array, serde_json::json!({"dtype": dtype, "file": format!("before{k}")}));
    }
    let case = serde_json::json!({"symbol": name, "grid": [1, 1, 1], "params": params, "arrays": arrays, "expect": expect});
    std::fs::write(folder.join("retyped.json"), case.to_string()).expect("file");
    for target in ["sm_90a", "sm_100a"] {
        let ran = cutile::run(&folder, "retyped", target, &[Mode::Latest(1), Mode::Random(2)]);
        ran.unwrap_or_else(|e| panic!("{target}: {e:#}"));
    }
}

#[test]
fn elements_of_another_type_are_the_same_memory() {
    let word = |i: usize| 0x3f80_0000 + (i as u32).wrapping_mul(0x9e37) % 0x40_0000;
    let changed = |i: usize| word(i) & 0xffff_0000 | 7;
    agrees(&retyped(), "retyped", &["f32", "i32", "f32"], &|k, i| match k {
        0 => [word(i), changed(i)],
        1 => [0, i32::from(word(i) as i16) as u32],
        _ => [0, changed(N - 1 - i)],
    });
}

#[test]
fn addresses_are_pointers_and_loops_return() {
    // Behind iteration 2 the inner loop ends otherwise, and after two rounds the outer.
    for (n, times, y) in [(0, 0, 0), (2, 2, 0), (9, 6, 7)] {
        agrees(&addressed(n), "addressed", &["i32", "i32"], &|k, i| match k {
            0 => [i as u32, i as u32 + times],
            _ => [0, y],
        });
    }
}
