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
    let source = b.param(param);
    elements_behind(b, source, pointee, reversed)
}

/// As [`elements`], of any pointer.
fn elements_behind(b: &mut Builder<'_>, source: Value, pointee: Num, reversed: bool) -> Value {
    let (one, all) = (tile(b, pointer(pointee), &[1]), tile(b, pointer(pointee), &[N as i64]));
    let numbers = tile(b, Elem::Num(Num::I32), &[N as i64]);
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

/// A global of words, and a pointer to it.
fn global(b: &mut Builder<'_>, name: &str, words: &[u32], constant: bool) -> Value {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let ty = tile(b, Elem::Num(Num::I32), &[words.len() as i64]);
    let (key, value) = (b.module.strings.intern(name.as_bytes()), b.module.constants.intern(&bytes));
    b.module.globals.push(tileas_tileir::GlobalData {
        name: key,
        ty,
        value,
        alignment: 0,
        private: false,
        constant,
    });
    let ty = tile(b, pointer(Num::I32), &[]);
    b.op(O::GetGlobal, &[(Key::Name, key.into())], &[], &[ty]).expect("get_global")
}

/// y becomes a table that the kernel has, the last element first, and what a counter of the kernel was; then x is what that has become.
fn variables() -> Module {
    let mut m = Module::new(Version::NEWEST);
    let mut b = kernel(&mut m, "variables", &[Num::I32, Num::I32]);
    let token = b.module.types.intern(TypeData::Token);
    let token = b.op(O::MakeToken, &[], &[], &[token]).expect("token");
    let squares: Vec<u32> = (0..N as u32).map(|i| i * i).collect();
    let (table, count) =
        (global(&mut b, "kernels.squares", &squares, true), global(&mut b, "kernels.count", &[7], false));
    let table = elements_behind(&mut b, table, Num::I32, true);
    let (words, token) = load(&mut b, table, Num::I32, token);
    let (ty, done) = (tile(&mut b, Elem::Num(Num::I32), &[]), b.module.types.intern(TypeData::Token));
    let five = constant(&mut b, Num::I32, &[], 5);
    let attrs = [
        (Key::Semantics, Semantics::AcqRel.into()),
        (Key::Scope, tileas_tileir::Scope::Device.into()),
        (Key::Mode, tileas_tileir::RmwMode::Add.into()),
    ];
    b.begin(
        O::AtomicRmwTko,
        &attrs,
        &[(Seg::Pointers, &[count]), (Seg::Arg, &[five]), (Seg::Token, &[token])],
    )
    .expect("atomic_rmw");
    let (old, token) = {
        let results = b.end(&[ty, done]);
        (results[0], results[1])
    };
    let (one, all) =
        (tile(&mut b, Elem::Num(Num::I32), &[1]), tile(&mut b, Elem::Num(Num::I32), &[N as i64]));
    let old = b.op(O::Reshape, &[], &[(Seg::Source, &[old])], &[one]).expect("reshape");
    let old = b.op(O::Broadcast, &[], &[(Seg::Source, &[old])], &[all]).expect("broadcast");
    let sum = add(&mut b, words, old, &[N as i64]);
    let y = elements(&mut b, 1, Num::I32, false);
    let token = store(&mut b, y, sum, token);
    b.begin(
        O::LoadPtrTko,
        &[(Key::Semantics, Semantics::Weak.into())],
        &[(Seg::Source, &[count]), (Seg::Token, &[token])],
    )
    .expect("load");
    let (now, token) = {
        let results = b.end(&[ty, done]);
        (results[0], results[1])
    };
    let now = b.op(O::Reshape, &[], &[(Seg::Source, &[now])], &[one]).expect("reshape");
    let now = b.op(O::Broadcast, &[], &[(Seg::Source, &[now])], &[all]).expect("broadcast");
    let x = elements(&mut b, 0, Num::I32, false);
    store(&mut b, x, now, token);
    b.op(O::Return, &[], &[], &[]).expect("return");
    b.finish();
    m
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
fn agrees(
    m: &Module,
    name: &str,
    arrays: &[(&str, usize)],
    scalars: &[i32],
    words: &dyn Fn(usize, usize) -> [u32; 2],
) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    m.verify().expect("well formed");
    let bytes = m.write(Version::NEWEST).expect("bytes");
    std::fs::write(folder.join(format!("{name}.tileirbc")), bytes).expect("file");
    let (mut params, mut list, mut expect) = (Vec::new(), serde_json::Map::new(), serde_json::Map::new());
    for (k, &(dtype, count)) in arrays.iter().enumerate() {
        for (when, side) in ["before", "after"].into_iter().enumerate() {
            let mut bytes = b"\x93NUMPY\x01\x00\x00\x00".to_vec();
            (0..count).for_each(|i| bytes.extend(words(k, i)[when].to_le_bytes()));
            std::fs::write(folder.join(format!("{side}{k}")), bytes).expect("file");
        }
        let array = format!("a{k}");
        params.push(serde_json::json!({"kind": "array", "array": array}));
        expect.insert(
            array.clone(),
            serde_json::json!({"file": format!("after{k}"), "rtol": 0.0, "atol": 0.0}),
        );
        list.insert(array, serde_json::json!({"dtype": dtype, "file": format!("before{k}")}));
    }
    params.extend(scalars.iter().map(|x| serde_json::json!({"kind": "scalar", "value": x})));
    let case = serde_json::json!({"symbol": name, "grid": [1, 1, 1], "params": params, "arrays": list, "expect": expect});
    std::fs::write(folder.join(format!("{name}.json")), case.to_string()).expect("file");
    for target in ["sm_90a", "sm_100a"] {
        let ran = cutile::run(&folder, name, target, &[Mode::Latest(1), Mode::Random(2)]);
        ran.unwrap_or_else(|e| panic!("{target}: {e:#}"));
    }
}

#[test]
fn elements_of_another_type_are_the_same_memory() {
    let word = |i: usize| 0x3f80_0000 + (i as u32).wrapping_mul(0x9e37) % 0x40_0000;
    let changed = |i: usize| word(i) & 0xffff_0000 | 7;
    agrees(&retyped(), "retyped", &[("f32", N), ("i32", N), ("f32", N)], &[], &|k, i| match k {
        0 => [word(i), changed(i)],
        1 => [0, i32::from(word(i) as i16) as u32],
        _ => [0, changed(N - 1 - i)],
    });
}

#[test]
fn addresses_are_pointers_and_loops_return() {
    // Behind iteration 2 the inner loop ends otherwise, and after two rounds the outer.
    for (n, times, y) in [(0, 0, 0), (2, 2, 0), (9, 6, 7)] {
        agrees(&addressed(n), "addressed", &[("i32", N); 2], &[], &|k, i| match k {
            0 => [i as u32, i as u32 + times],
            _ => [0, y],
        });
    }
}

/// z becomes words behind pointers that went through a loop, a choice by lane and one by a branch: with `n` steps of 32 words through x, in odd lanes those of y, and all of y
/// where `n` is above 4. Then 5 is stored to the first words of x through their addresses, which w shows as loaded through the parameter, in the opposite order.
fn chosen(n: u32) -> Module {
    let mut m = Module::new(Version::NEWEST);
    let all = [N as i64];
    let mut b = kernel(&mut m, "chosen", &[Num::I32; 4]);
    let token = b.module.types.intern(TypeData::Token);
    let token = b.op(O::MakeToken, &[], &[], &[token]).expect("token");
    let [x, y, z] = [0, 1, 2].map(|k| elements(&mut b, k, Num::I32, false));
    let (pointers, i32) = (tile(&mut b, pointer(Num::I32), &all), tile(&mut b, Elem::Num(Num::I32), &[]));
    let (one_bit, bits) = (tile(&mut b, Elem::Num(Num::I1), &[]), tile(&mut b, Elem::Num(Num::I1), &all));
    let compare = |b: &mut Builder<'_>, x: Value, with: tileas_tileir::Predicate, y: Value, ty: Type| {
        let attrs = [(Key::Pred, with.into()), (Key::Signedness, Signedness::Signed.into())];
        b.op(O::Cmpi, &attrs, &[(Seg::Lhs, &[x]), (Seg::Rhs, &[y])], &[ty]).expect("cmpi")
    };
    // As far as the loop is left: its pointers are what `break` hands on.
    let (zero, last) = (constant(&mut b, Num::I32, &[], 0), constant(&mut b, Num::I32, &[], n));
    b.begin(O::Loop, &[], &[(Seg::Init, &[zero, x])]).expect("loop");
    let [i, moved] = b.region(&[i32, pointers])[..] else { panic!("two arguments") };
    let ends = compare(&mut b, i, tileas_tileir::Predicate::Equal, last, one_bit);
    b.begin(O::If, &[], &[(Seg::Cond, &[ends])]).expect("if");
    b.region(&[]);
    b.op(O::Break, &[], &[(Seg::Values, &[i, moved])], &[]).expect("break");
    b.close();
    b.region(&[]);
    b.op(O::Yield, &[], &[], &[]).expect("yield");
    b.close();
    b.end(&[]);
    let by = constant(&mut b, Num::I32, &all, 32);
    let next = [(Seg::Pointers, &[moved][..]), (Seg::Offset, &[by])];
    let next = b.op(O::Offset, &[], &next, &[pointers]).expect("offset");
    let one = constant(&mut b, Num::I32, &[], 1);
    let count = add(&mut b, i, one, &[]);
    b.op(O::Continue, &[], &[(Seg::Values, &[count, next])], &[]).expect("continue");
    b.close();
    let [steps, moved] = b.end(&[i32, pointers])[..] else { panic!("two results") };
    // Odd lanes.
    let numbers = tile(&mut b, Elem::Num(Num::I32), &all);
    let lane = b.op(O::Iota, &[], &[], &[numbers]).expect("iota");
    let one = constant(&mut b, Num::I32, &all, 1);
    let odd = b.op(O::Andi, &[], &[(Seg::Lhs, &[lane]), (Seg::Rhs, &[one])], &[numbers]).expect("andi");
    let odd = compare(&mut b, odd, tileas_tileir::Predicate::Equal, one, bits);
    let either = [(Seg::Cond, &[odd][..]), (Seg::IfTrue, &[y]), (Seg::IfFalse, &[moved])];
    let mixed = b.op(O::Select, &[], &either, &[pointers]).expect("select");
    let four = constant(&mut b, Num::I32, &[], 4);
    let far = compare(&mut b, steps, tileas_tileir::Predicate::GreaterThan, four, one_bit);
    b.begin(O::If, &[], &[(Seg::Cond, &[far])]).expect("if");
    for arm in [y, mixed] {
        b.region(&[]);
        b.op(O::Yield, &[], &[(Seg::Values, &[arm])], &[]).expect("yield");
        b.close();
    }
    let from = b.end(&[pointers])[0];
    let (words, token) = load(&mut b, from, Num::I32, token);
    let token = store(&mut b, z, words, token);
    let wide = tile(&mut b, Elem::Num(Num::I64), &all);
    let addresses = b.op(O::PtrToInt, &[], &[(Seg::Source, &[x])], &[wide]).expect("ptr_to_int");
    let again = b.op(O::IntToPtr, &[], &[(Seg::Source, &[addresses])], &[pointers]).expect("int_to_ptr");
    let five = constant(&mut b, Num::I32, &all, 5);
    let token = store(&mut b, again, five, token);
    let back = elements(&mut b, 0, Num::I32, true);
    let (words, token) = load(&mut b, back, Num::I32, token);
    let w = elements(&mut b, 3, Num::I32, false);
    store(&mut b, w, words, token);
    b.op(O::Return, &[], &[], &[]).expect("return");
    b.finish();
    m
}

#[test]
fn pointers_are_chosen() {
    for n in [0, 3, 4, 7] {
        let arrays = [("i32", 8 * 32 + N), ("i32", N), ("i32", N), ("i32", N)];
        agrees(&chosen(n), "chosen", &arrays, &[], &|k, i| match k {
            0 => [i as u32, if i < N { 5 } else { i as u32 }],
            1 => [1000 + i as u32; 2],
            2 if n > 4 || i % 2 == 1 => [0, 1000 + i as u32],
            2 => [0, 32 * n + i as u32],
            _ => [0, 5],
        });
    }
}

/// Rows of a times columns of b, as compilers write it that know pointers only: tiles of pointers are moved on from step to step.
fn product([m, n, k]: [i64; 3]) -> Module {
    let mut module = Module::new(Version::NEWEST);
    let mut types = Vec::new();
    for elem in [pointer(Num::F16), pointer(Num::F16), pointer(Num::F32)] {
        module.types.intern(TypeData::Elem(Elem::Num(elem.pointee().expect("a pointer"))));
        module.types.intern(TypeData::Elem(elem));
        types.push(module.types.intern(TypeData::Tile { elem, shape: [].into() }));
    }
    module.types.intern(TypeData::Elem(Elem::Num(Num::I32)));
    let i32 = module.types.intern(TypeData::Tile { elem: Elem::Num(Num::I32), shape: [].into() });
    types.extend([i32; 3]);
    let mut b = Builder::new(&mut module, "product", &types);
    let by16 = |b: &mut Builder<'_>, v: u32, ty: Type| {
        let of = tileas_tileir::Attr::DivBy { divisor: 16, every: None, along: None };
        b.op(O::Assume, &[(Key::Predicate, of.into())], &[(Seg::Value, &[b.param(v)])], &[ty])
            .expect("assume")
    };
    let [pa, pb, pc] = [0, 1, 2].map(|v| by16(&mut b, v, types[v as usize]));
    let [depth, stride_a, stride_b] = [3, 4, 5].map(|v| by16(&mut b, v, i32));
    let ids = [i32; 3];
    b.begin(O::GetTileBlockId, &[], &[]).expect("place");
    let place = b.end(&ids);
    let binary = |b: &mut Builder<'_>, op: O, x: Value, y: Value, shape: &[i64]| {
        let ty = tile(b, Elem::Num(Num::I32), shape);
        let attrs = [(Key::Overflow, Overflow::None.into())];
        b.op(op, &attrs, &[(Seg::Lhs, &[x]), (Seg::Rhs, &[y])], &[ty]).expect("a sum or product")
    };
    // A vector, or one number, as a tile.
    let spread = |b: &mut Builder<'_>, v: Value, elem: Elem, part: &[i64], shape: &[i64]| {
        let (part, shape) = (tile(b, elem, part), tile(b, elem, shape));
        let v = b.op(O::Reshape, &[], &[(Seg::Source, &[v])], &[part]).expect("reshape");
        b.op(O::Broadcast, &[], &[(Seg::Source, &[v])], &[shape]).expect("broadcast")
    };
    let word = Elem::Num(Num::I32);
    let numbers = |b: &mut Builder<'_>, count: i64, first: Option<Value>| {
        let ty = tile(b, word, &[count]);
        let v = b.op(O::Iota, &[], &[], &[ty]).expect("iota");
        match first {
            None => v,
            Some(first) => {
                let blocks = constant(b, Num::I32, &[], count as u32);
                let first = binary(b, O::Muli, first, blocks, &[]);
                let first = spread(b, first, word, &[1], &[count]);
                binary(b, O::Addi, first, v, &[count])
            }
        }
    };
    let (rows, columns) = (numbers(&mut b, m, Some(place[0])), numbers(&mut b, n, Some(place[1])));
    let steps = numbers(&mut b, k, None);
    // Pointers to base + row * stride + column.
    let pointers = |b: &mut Builder<'_>,
                    base: Value,
                    pointee: Num,
                    row: Value,
                    stride: Value,
                    column: Value,
                    shape: [i64; 2]| {
        let row = spread(b, row, word, &[shape[0], 1], &shape);
        let stride = spread(b, stride, word, &[1, 1], &shape);
        let row = binary(b, O::Muli, row, stride, &shape);
        let column = spread(b, column, word, &[1, shape[1]], &shape);
        let (ty, all) =
            (tile(b, pointer(pointee), &shape), spread(b, base, pointer(pointee), &[1, 1], &shape));
        let row =
            b.op(O::Offset, &[], &[(Seg::Pointers, &[all]), (Seg::Offset, &[row])], &[ty]).expect("offset");
        b.op(O::Offset, &[], &[(Seg::Pointers, &[row]), (Seg::Offset, &[column])], &[ty]).expect("offset")
    };
    let a = pointers(&mut b, pa, Num::F16, rows, stride_a, steps, [m, k]);
    let bb = pointers(&mut b, pb, Num::F16, steps, stride_b, columns, [k, n]);
    let token = b.module.types.intern(TypeData::Token);
    let token_ty = token;
    let token = b.op(O::MakeToken, &[], &[], &[token]).expect("token");
    let acc_ty = tile(&mut b, Elem::Num(Num::F32), &[m, n]);
    let zero = constant(&mut b, Num::F32, &[m, n], 0);
    let (first, block) = (constant(&mut b, Num::I32, &[], 0), constant(&mut b, Num::I32, &[], k as u32));
    let (ta, tb) = (tile(&mut b, pointer(Num::F16), &[m, k]), tile(&mut b, pointer(Num::F16), &[k, n]));
    let bounds = [
        (Seg::Lower, &[first][..]),
        (Seg::Upper, &[depth]),
        (Seg::Step, &[block]),
        (Seg::Init, &[a, bb, zero]),
    ];
    b.begin(O::For, &[], &bounds).expect("for");
    let p = b.region(&[i32, ta, tb, acc_ty]);
    let loaded = |b: &mut Builder<'_>, from: Value, shape: &[i64]| {
        let ty = tile(b, Elem::Num(Num::F16), shape);
        b.begin(
            O::LoadPtrTko,
            &[(Key::Semantics, Semantics::Weak.into())],
            &[(Seg::Source, &[from]), (Seg::Token, &[token])],
        )
        .expect("load");
        b.end(&[ty, token_ty])[0]
    };
    let (va, vb) = (loaded(&mut b, p[1], &[m, k]), loaded(&mut b, p[2], &[k, n]));
    let factors = [(Seg::Lhs, &[va][..]), (Seg::Rhs, &[vb]), (Seg::Acc, &[p[3]])];
    let acc = b.op(O::Mmaf, &[], &factors, &[acc_ty]).expect("mmaf");
    let by = constant(&mut b, Num::I32, &[m, k], k as u32);
    let a = b.op(O::Offset, &[], &[(Seg::Pointers, &[p[1]]), (Seg::Offset, &[by])], &[ta]).expect("offset");
    let by = binary(&mut b, O::Muli, stride_b, block, &[]);
    let by = spread(&mut b, by, word, &[1, 1], &[k, n]);
    let bb = b.op(O::Offset, &[], &[(Seg::Pointers, &[p[2]]), (Seg::Offset, &[by])], &[tb]).expect("offset");
    b.op(O::Continue, &[], &[(Seg::Values, &[a, bb, acc])], &[]).expect("continue");
    b.close();
    let acc = b.end(&[ta, tb, acc_ty])[2];
    let to = pointers(&mut b, pc, Num::F32, rows, stride_b, columns, [m, n]);
    store(&mut b, to, acc, token);
    b.op(O::Return, &[], &[], &[]).expect("return");
    b.finish();
    module
}

#[test]
fn pointers_move_on_in_loops() {
    // Of 0, 1 and 3 steps; elements are small integers, so that sums are exact.
    let (m, n) = (64, 64);
    for depth in [0, 32, 96] {
        let value = |i: usize, j: usize, by: usize| ((i * by + j * 3) % 5) as f32 - 2.0;
        let half = |x: f32| [0xc000, 0xbc00, 0, 0x3c00, 0x4000][(x + 2.0) as usize];
        let pair = |at: usize, width: usize, by: usize| {
            let of = |at: usize| half(value(at / width, at % width, by));
            of(2 * at) | of(2 * at + 1) << 16
        };
        let words = |k: usize, at: usize| match k {
            0 => [pair(at, depth, 7); 2],
            1 => [pair(at, n, 11); 2],
            _ => {
                let (i, j) = (at / n, at % n);
                let sum: f32 = (0..depth).map(|l| value(i, l, 7) * value(l, j, 11)).sum();
                [7.5f32.to_bits(), sum.to_bits()]
            }
        };
        let sizes = [("f16", m * depth / 2 + 1), ("f16", depth * n / 2 + 1), ("f32", m * n)];
        let words = |k: usize, at: usize| if k < 2 && at + 1 == sizes[k].1 { [0; 2] } else { words(k, at) };
        let scalars = [depth as i32, depth as i32, n as i32];
        agrees(&product([m as i64, n as i64, 32]), "product", &sizes, &scalars, &words);
    }
}

#[test]
fn globals_are_variables() {
    let words = |k: usize, at: usize| match k {
        0 => [1, 12],
        _ => [3, ((N - 1 - at) * (N - 1 - at) + 7) as u32],
    };
    agrees(&variables(), "variables", &[("i32", N), ("i32", N)], &[], &words);
}
