//! Tile IR that cuTile does not write: a pointer that is used as one to elements of another type.

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

/// y becomes the lower halves of the words of x; then these are 7 in x, of which z has the words in the opposite order: other threads load them.
fn kernel() -> Module {
    let mut m = Module::new(Version::NEWEST);
    let mut types: Vec<Type> = Vec::new();
    for pointee in [Num::F32, Num::I32, Num::F32] {
        m.types.intern(TypeData::Elem(Elem::Num(pointee)));
        m.types.intern(TypeData::Elem(pointer(pointee)));
        types.push(m.types.intern(TypeData::Tile { elem: pointer(pointee), shape: [].into() }));
    }
    let mut b = Builder::new(&mut m, "retyped", &types);
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

#[test]
fn elements_of_another_type_are_the_same_memory() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("retyped");
    std::fs::create_dir_all(&folder).expect("a folder");
    let m = kernel();
    m.verify().expect("well formed");
    std::fs::write(folder.join("retyped.tileirbc"), m.write(Version::NEWEST).expect("bytes")).expect("file");
    let words: Vec<u32> = (0..N as u32).map(|i| 0x3f80_0000 + i.wrapping_mul(0x9e37) % 0x40_0000).collect();
    let file = |name: &str, word: &dyn Fn(usize) -> u32| {
        let mut bytes = b"\x93NUMPY\x01\x00\x00\x00".to_vec();
        (0..N).for_each(|i| bytes.extend(word(i).to_le_bytes()));
        std::fs::write(folder.join(name), bytes).expect("file");
    };
    let changed = |i: usize| words[i] & 0xffff_0000 | 7;
    file("x", &|i| words[i]);
    file("none", &|_| 0);
    file("y", &|i| i32::from(words[i] as i16) as u32);
    file("changed", &changed);
    file("z", &|i| changed(N - 1 - i));
    let array = |dtype: &str, of: &str| serde_json::json!({"dtype": dtype, "file": of});
    let want = |of: &str| serde_json::json!({"file": of, "rtol": 0.0, "atol": 0.0});
    let param = |of: &str| serde_json::json!({"kind": "array", "array": of});
    let case = serde_json::json!({
        "symbol": "retyped", "grid": [1, 1, 1], "params": [param("x"), param("y"), param("z")],
        "arrays": {"x": array("f32", "x"), "y": array("i32", "none"), "z": array("f32", "none")},
        "expect": {"x": want("changed"), "y": want("y"), "z": want("z")},
    });
    std::fs::write(folder.join("retyped.json"), case.to_string()).expect("file");
    for target in ["sm_90a", "sm_100a"] {
        let ran = cutile::run(&folder, "retyped", target, &[Mode::Latest(1), Mode::Random(2)]);
        ran.unwrap_or_else(|e| panic!("{target}: {e:#}"));
    }
}
