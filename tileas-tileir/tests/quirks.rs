//! Files made byte by byte: what writers do differently, what versions changed, and each error of the reader.

use crate::common;

use common::{check, file, read};
use tileas_tileir::{
    Attr, Code, Errors, Key, Limits, Module, Num, Number, Opcode, Rounding, Section, TypeData, Version,
};

/// A file in pieces.
#[derive(Clone)]
struct Raw {
    minor: u8,
    strings: Vec<Vec<u8>>,
    types: Vec<Vec<u8>>,
    constants: Vec<Vec<u8>>,
    functions: Vec<u8>,
    /// Sections that stand behind the others: number, alignment, payload.
    more: Vec<(u8, u8, Vec<u8>)>,
    /// Bytes behind the functions.
    padding: Vec<u8>,
    /// Whether the table of constants ends behind its count.
    bare: bool,
}

const I32: u8 = 1;
const F32: u8 = 2;
const F64: u8 = 3;
const TILE_I32: u8 = 4;
const TILE_F32: u8 = 5;
const FUNC: u8 = 6;
const TOKEN: u8 = 7;
const TILE_8F32: u8 = 8;
const TILE_8F64: u8 = 9;
const TILE_F64: u8 = 10;
const RETURN: [u8; 3] = [92, 0, 0];

fn varint(mut n: u128) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

fn pad(out: &mut Vec<u8>, align: usize) {
    out.resize(out.len().next_multiple_of(align), 0xcb);
}

fn table(items: &[Vec<u8>], width: usize) -> Vec<u8> {
    let mut out = varint(items.len() as u128);
    pad(&mut out, width);
    let mut at = 0u64;
    for item in items {
        out.extend(&at.to_le_bytes()[..width]);
        at += item.len() as u64;
    }
    out.extend(items.concat());
    out
}

impl Raw {
    fn new(minor: u8, bodies: &[&[u8]]) -> Raw {
        let tile = |elem: u8, dims: &[i64]| {
            let mut out = vec![13, elem, dims.len() as u8];
            dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out
        };
        let types = vec![
            vec![0],
            vec![3],
            vec![7],
            vec![9],
            tile(I32, &[]),
            tile(F32, &[]),
            vec![16, 0, 0],
            vec![17],
            tile(F32, &[8]),
            tile(F64, &[8]),
            tile(F64, &[]),
        ];
        let mut functions = vec![bodies.len() as u8];
        for (i, body) in bodies.iter().enumerate() {
            functions.extend([i as u8, FUNC, 2, 0]);
            functions.extend(if minor >= 5 { &[11, 0, 6, 0][..] } else { &[] });
            functions.extend(varint(body.len() as u128));
            functions.extend(*body);
        }
        let strings =
            ["first", "second", "default", "sm_90", "occupancy", "latency", "odd"].map(|s| s.into()).to_vec();
        let constants = vec![vec![4, 0, 0, 128, 63], vec![8, 0, 0, 0, 0, 0, 0, 240, 63]];
        Raw {
            minor,
            strings,
            types,
            constants,
            functions,
            more: Vec::new(),
            padding: Vec::new(),
            bare: false,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = b"\x7fTileIR\0\x0d".to_vec();
        out.extend([self.minor, 0, 0]);
        let functions = [&self.functions[..], &self.padding].concat();
        let mut sections = vec![
            (2, 8, functions),
            (4, 8, if self.bare { vec![0] } else { table(&self.constants, 8) }),
            (5, 4, table(&self.types, 4)),
            (1, 4, table(&self.strings, 4)),
        ];
        sections.extend(self.more.iter().cloned());
        for (id, align, payload) in sections {
            out.push(id | if align > 1 { 0x80 } else { 0 });
            out.extend(varint(payload.len() as u128));
            if align > 1 {
                out.push(align);
                pad(&mut out, usize::from(align));
            }
            out.extend(payload);
        }
        out.push(0);
        out
    }

    fn read(&self) -> Module {
        let bytes = self.bytes();
        assert!(check(&bytes), "{:?}", Module::read(&bytes, &Limits::default()).err());
        read(&bytes)
    }

    fn errors(&self) -> Errors {
        let bytes = self.bytes();
        assert!(!check(&bytes));
        Module::read(&bytes, &Limits::default()).expect_err("an error")
    }

    fn code(&self) -> &'static str {
        let errors = self.errors();
        assert_eq!(errors.len(), 1, "{errors}");
        errors[0].code.as_str()
    }
}

/// A body: the ops, then `return`.
fn body(ops: &[u8]) -> Vec<u8> {
    [ops, &RETURN].concat()
}

/// A reduction with an identity of these bytes.
fn reduce(elem: u8, scalar: u8, tile: u8, constant: u8, identity: &[u8]) -> Vec<u8> {
    let mut ops = vec![16, tile, constant, 88, 1, scalar, 0, 1, 2, elem];
    ops.extend(identity);
    // One operand; one region with one block, two parameters and one op: `yield` of the first.
    ops.extend([1, 0, 1, 1, 2, scalar, scalar, 1, 109, 0, 1, 1]);
    body(&ops)
}

fn identity(raw: &Raw) -> u64 {
    let module = raw.read();
    let f = module.function("first").expect("by name");
    let op = f.ops().find(|op| op.opcode() == Opcode::Reduce).expect("there");
    module.verify().expect("right types");
    module.number(&op.attrs(Key::Identities)[0]).expect("a number").bits
}

#[test]
fn float_patterns_are_zigzag_numbers() {
    let infinity = f32::NEG_INFINITY.to_bits();
    let bytes = varint(0x1_ff00_0000);
    let raw = Raw::new(4, &[&reduce(F32, TILE_F32, TILE_8F32, 0, &bytes)]);
    assert_eq!(identity(&raw), u64::from(infinity));
    // A negative f64 needs 65 bits; what keeps 64 of them is the same number.
    let infinity = f64::NEG_INFINITY.to_bits();
    let wide = varint(u128::from(infinity) << 1);
    assert_eq!(wide.len(), 10);
    let narrow = varint(u128::from((infinity << 1) as i64 as u64 ^ u64::MAX));
    for bytes in [&wide, &narrow] {
        let raw = Raw::new(4, &[&reduce(F64, TILE_F64, TILE_8F64, 1, bytes)]);
        assert_eq!(identity(&raw), infinity);
        let written = raw.read().write(Version::NEWEST).expect("writable");
        assert!(written.windows(10).any(|w| w == wide));
    }
    // Of narrower types there is one form.
    let raw = Raw::new(4, &[&reduce(F32, TILE_F32, TILE_8F32, 0, &varint(1))]);
    assert_eq!(raw.code(), "E1613");
    let raw = Raw::new(4, &[&reduce(F32, TILE_F32, TILE_8F32, 0, &varint(1 << 33))]);
    assert_eq!(raw.code(), "E1613");
}

#[test]
fn integers_of_attributes_have_three_forms() {
    // A constant and what is assumed of it: `bounded`, zigzag; `div_by`, a varint and zigzag.
    let mut raw = Raw::new(4, &[&body(&[16, TILE_I32, 0, 6, TILE_I32, 12, 3, 5, 8, 0])]);
    let predicate = |raw: &Raw| {
        let module = raw.read();
        let f = module.function("first").expect("by name");
        f.ops().nth(1).and_then(|op| op.attr(Key::Predicate)).cloned()
    };
    assert_eq!(predicate(&raw), Some(Attr::Bounded { lower: Some(-3), upper: Some(4) }));
    raw = Raw::new(4, &[&body(&[16, TILE_8F32, 0, 6, TILE_8F32, 8, 16, 3, 8, 0, 0])]);
    assert_eq!(predicate(&raw), Some(Attr::DivBy { divisor: 16, every: Some(4), along: Some(0) }));
    // Tagged integers are patterns.
    let hints = |bits: &[u8]| [&[11, 1, 2, 10, 1, 4, 1, I32], bits].concat();
    let mut raw = Raw::new(4, &[]);
    raw.functions = [&[1, 0, FUNC, 6, 0], &hints(&varint(0xffff_fffe))[..], &[3], &RETURN].concat();
    let module = raw.read();
    let Attr::Dict(entries) = &module.functions().next().expect("one").func.hints[0].1 else {
        panic!("no dictionary")
    };
    let Attr::Int { bits, .. } = entries[0].1 else { panic!("no integer") };
    assert_eq!(Number { num: Num::I32, bits }.signed(), -2);
    raw.functions = [&[1, 0, FUNC, 6, 0], &hints(&varint(1 << 32))[..], &[3], &RETURN].concat();
    assert_eq!(raw.code(), "E1613");
    // One of i1 is a byte.
    raw.functions = [&[1, 0, FUNC, 6, 0, 11, 1, 2, 10, 1, 6, 1, 0, 2, 3][..], &RETURN].concat();
    assert_eq!(raw.code(), "E1605");
}

#[test]
fn extremes_are_no_numbers_of_lists() {
    let same = |n: i64| body(&[&[16, TILE_8F32, 0, 6, TILE_8F32, 9, 1], &n.to_le_bytes()[..], &[0]].concat());
    Raw::new(4, &[&same(2)]).read();
    assert_eq!(Raw::new(4, &[&same(i64::MIN)]).code(), "E1613");
    assert_eq!(Raw::new(4, &[&same(i64::MAX)]).code(), "E1613");
    let permute =
        |n: i32| body(&[&[16, TILE_8F32, 0, 83, TILE_8F32, 1], &n.to_le_bytes()[..], &[0]].concat());
    Raw::new(4, &[&permute(0)]).read();
    assert_eq!(Raw::new(4, &[&permute(i32::MIN)]).code(), "E1613");
    // In types the least number is an extent that is not known.
    let mut raw = Raw::new(4, &[&RETURN]);
    raw.types.push([&[14, 0, F32, 1], &i64::MIN.to_le_bytes()[..], &[1], &1i64.to_le_bytes()].concat());
    let module = raw.read();
    let (_, view) = module.types.iter().last().expect("types");
    assert!(
        matches!(view, TypeData::TensorView { shape, strides, .. } if shape[0].is_none() && strides[0] == Some(1))
    );
}

#[test]
fn promises_to_stay_inside_are_one_per_index() {
    let (old, new) = (read(file("matmul-13.1")), read(file("matmul-13.5")));
    for module in [&old, &new] {
        let f = module.function("matmul").expect("by name");
        let op = f.ops().find(|op| op.opcode() == Opcode::LoadViewTko).expect("there");
        assert!(matches!(op.attr(Key::Inbounds), Some(Attr::Bools(list)) if **list == [false, false]));
    }
}

#[test]
fn dictionaries_keep_their_order_and_have_no_doubles() {
    let hints = |entries: &[u8]| {
        let mut raw = Raw::new(4, &[]);
        raw.functions = [&[1, 0, FUNC, 6, 0, 11], entries, &[3], &RETURN].concat();
        raw
    };
    // `sm_90` after `default`: its values count for it, key by key; what is not known is a warning.
    let entry = |key: u8, n: u8| [key, 1, I32, n];
    let both = [&[2, 2, 10, 2], &entry(4, 3)[..], &entry(6, 1), &[3, 10, 1], &entry(4, 40)].concat();
    let module = hints(&both).read();
    let f = module.functions().next().expect("one");
    let names: Vec<_> = f.func.hints.iter().map(|h| module.str(h.0)).collect();
    assert_eq!(names, ["default", "sm_90"]);
    assert_eq!(f.hints("sm_100").occupancy, Some(3));
    assert_eq!(f.hints("sm_90").occupancy, None);
    let warnings = f.hint_warnings();
    assert_eq!(warnings.len(), 2);
    assert!(warnings.iter().all(|w| w.code == Code::W1601 && w.code.is_warning()));
    assert!(warnings[0].message.contains("`odd`") && warnings[1].message.contains("1 to 32"));
    let odd = hints(&[1, 6, 10, 0]).read();
    assert!(odd.functions().next().expect("one").hint_warnings()[0].message.contains("no target"));

    assert_eq!(hints(&[2, 2, 10, 0, 2, 10, 0]).code(), "E1613");
    let mut empty = hints(&[1, 2, 10, 0]);
    empty.strings[2].clear();
    assert_eq!(empty.code(), "E1613");
    let error = hints(&[1, 2, 3, 1]).errors();
    assert!(error[0].message.contains("no dictionary"), "{error}");
}

#[test]
fn parameters_have_attributes_since_13_5() {
    let with = |attrs: &[u8]| {
        let mut raw = Raw::new(5, &[]);
        raw.types.push(vec![16, 1, TILE_I32, 0]);
        raw.functions = [&[1, 0, 11, 2, 0, 11, 0], attrs, &[3], &RETURN].concat();
        raw
    };
    let module = with(&[6, 1, 10, 1, 6, 5, 1]).read();
    let f = module.functions().next().expect("one");
    let [(key, Attr::Str(value))] = f.param_attrs(0) else { panic!("one attribute") };
    assert_eq!((module.str(*key), module.str(*value), f.param_attrs(1).len()), ("odd", "second", 0));
    let version = Version::new(4).expect("13.4");
    assert_eq!(module.write(version).expect_err("13.5")[0].code, Code::E1628);
    assert_eq!(with(&[6, 2, 10, 0, 10, 0]).code(), "E1616");
    assert_eq!(with(&[6, 1, 3, 0]).code(), "E1616");
    assert_eq!(with(&[10, 0]).code(), "E1616");
}

#[test]
fn old_records_have_what_new_ones_say() {
    // `exp` without rounding, `print_tko` without token: no results are counted.
    let ops = body(&[16, TILE_F32, 0, 23, TILE_F32, 0, 85, 0, 2, 1, 1]);
    let module = Raw::new(1, &[&ops]).read();
    module.verify().expect_err("there is no `%` in the format");
    let f = module.function("first").expect("by name");
    let ops: Vec<_> = f.body().collect();
    assert_eq!(ops[1].get::<Rounding>(Key::Rounding), Some(Rounding::Full));
    assert_eq!((ops[2].results().len(), ops[2].text(Key::Text)), (0, Some("default")));
    assert!(module.write(Version::OLDEST).is_ok());
    let newer = body(&[16, TILE_F32, 0, 23, TILE_F32, 4, 0, 85, 1, TOKEN, 0, 2, 1, 1]);
    let module = Raw::new(4, &[&newer]).read();
    let errors = module.write(Version::OLDEST).expect_err("a rounding and a token");
    assert!(errors.iter().all(|e| e.code == Code::E1628) && errors.len() == 2, "{errors}");
    // Views: a byte behind says that there is padding; later a flag before.
    let old = read(file("matmul-13.1"));
    let new = read(file("matmul-13.5"));
    let views = |m: &Module| m.types.iter().filter(|t| t.1.view().is_some_and(|v| v.2.is_some())).count();
    assert_eq!((views(&old), views(&new)), (2, 2));
    // Types and operations of later versions.
    let mut raw = Raw::new(2, &[&RETURN]);
    raw.types.push(vec![22]);
    assert_eq!(raw.code(), "E1611");
    assert_eq!(Raw::new(1, &[&body(&[110, TILE_F32, 0, 0])]).code(), "E1612");
}

#[test]
fn sections_come_in_any_order() {
    let mut raw = Raw::new(1, &[&RETURN]);
    // The name of the producer is accepted in files of any version; functions may be padded.
    raw.more.push((7, 1, vec![6]));
    raw.padding = vec![0xcb; 3];
    let module = raw.read();
    assert_eq!(module.producer.map(|p| module.str(p)), Some("odd"));
    raw.padding = vec![0xcb; 9];
    assert_eq!(raw.code(), "E1608");
    raw.padding = vec![0];
    assert_eq!(raw.code(), "E1608");
    // Tables without items: one writer pads, another one does not.
    let mut raw = Raw::new(4, &[&RETURN]);
    raw.constants.clear();
    raw.read();
    raw.bare = true;
    raw.read();
}

#[test]
fn an_unknown_operation_hides_its_function_only() {
    let bad = body(&[68, TOKEN, 126]);
    let raw = Raw::new(4, &[&bad, &body(&[68, TOKEN])]);
    let (module, errors) = Module::read_partly(&raw.bytes(), &Limits::default());
    assert_eq!(module.functions().map(|f| f.name()).collect::<Vec<_>>(), ["second"]);
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].code, errors[0].section), (Code::E1612, Section::Functions));
    assert_eq!((errors[0].function.as_deref(), errors[0].op), (Some("first"), Some((1, None))));
    // All errors are told together, and a type that is wrong once.
    let mut raw = Raw::new(4, &[&bad, &bad, &body(&[16, 11, 0, 16, 11, 0])]);
    raw.types.push(vec![99]);
    let codes: Vec<_> = raw.errors().iter().map(|e| e.code.as_str()).collect();
    assert_eq!(codes, ["E1611", "E1612", "E1612"]);
    let raw = Raw::new(4, &[&body(&[0x82, 0x80, 1])]);
    assert!(raw.errors()[0].message.contains("preview"));
}

#[test]
fn types_may_stand_in_any_order_but_not_in_circles() {
    let mut raw = Raw::new(4, &[&body(&[16, 11, 0])]);
    raw.types.push(vec![13, 12, 0]);
    raw.types.push(vec![7]);
    let module = raw.read();
    let f = module.function("first").expect("by name");
    let value = f.body().next().and_then(|op| op.result(0)).expect("a constant");
    // It is the type that is there already.
    assert_eq!(module.types.display(f.value_type(value)).to_string(), "tile<f32>");
    let mut raw = Raw::new(4, &[&RETURN]);
    raw.types.extend([vec![16, 1, 12, 0], vec![16, 0, 1, 11]]);
    assert_eq!(raw.code(), "E1611");
    let mut raw = Raw::new(4, &[&RETURN]);
    for i in 0..20 {
        raw.types.push(vec![16, 1, 12 + i, 0]);
    }
    raw.types.push(vec![3]);
    assert!(raw.errors().iter().all(|e| e.code == Code::E1611));
    // Functions take no functions, in whatever order they stand.
    let mut raw = Raw::new(4, &[&RETURN]);
    raw.types.push(vec![16, 1, FUNC, 0]);
    assert_eq!(raw.code(), "E1611");
}

#[test]
fn numbers_of_values_are_heights_of_a_stack() {
    // Constants %0, %1, %2; a loop whose induction variable is %3 and carried value %4; its result is %3 again.
    let mut ops = vec![16, TILE_I32, 0, 16, TILE_I32, 0, 16, TILE_F32, 0];
    ops.extend([41, 1, TILE_F32, 0, 4, 0, 1, 0, 2, 1, 1, 2, TILE_I32, TILE_F32, 1, 17, 0, 1, 4]);
    let absf = |value: u8| body(&[&ops[..], &[0, TILE_F32, value]].concat());
    let module = Raw::new(4, &[&absf(3)]).read();
    module.verify().expect("types as they should be");
    let f = module.function("first").expect("by name");
    let last = f.body().rev().nth(1).expect("absf");
    assert_eq!(f.def_op(last.operands()[0]).map(|op| op.opcode()), Some(Opcode::For));
    // The carried value is gone.
    let errors = Raw::new(4, &[&absf(4)]).errors();
    assert_eq!((errors[0].code, errors[0].op), (Code::E1614, Some((5, Some("absf")))));
}

#[test]
fn bits_are_numbers() {
    let float = |num, bits| Number { num, bits }.float();
    assert_eq!(float(Num::F16, 0x3c00), 1.0);
    assert_eq!(float(Num::F16, 0x0001), 2f64.powi(-24));
    assert_eq!(float(Num::F16, 0xfc00), f64::NEG_INFINITY);
    assert_eq!(float(Num::Bf16, 0xc040), -3.0);
    assert_eq!(float(Num::F32, u64::from(1e-40f32.to_bits())), f64::from(1e-40f32));
    assert_eq!(float(Num::Tf32, 0x1_fc00), 1.0);
    assert_eq!(float(Num::F64, 0.1f64.to_bits()), 0.1);
    assert_eq!(float(Num::F8E4M3FN, 0x7e), 448.0);
    assert!(float(Num::F8E4M3FN, 0xff).is_nan());
    assert_eq!(float(Num::F8E5M2, 0x7b), 57344.0);
    assert_eq!(float(Num::F8E5M2, 0x7c), f64::INFINITY);
    assert_eq!(float(Num::F8E8M0FNU, 127), 1.0);
    assert!(float(Num::F8E8M0FNU, 255).is_nan());
    assert_eq!(float(Num::F8E5M3FNU, 0x78), 1.0);
    assert_eq!(float(Num::F8E5M3FNU, 0xfe), 114_688.0);
    assert_eq!(float(Num::F4E2M1FN, 0xf), -6.0);
    assert_eq!(float(Num::F4E2M1FN, 1), 0.5);
    let signed = |num, bits| Number { num, bits }.signed();
    assert_eq!((signed(Num::I4, 9), signed(Num::I8, 0x80), signed(Num::I1, 1)), (-7, -128, 1));
}

#[test]
fn constants_are_one_or_all_elements() {
    use tileas_tileir::Elements;
    let ints = |num, n, bytes: &[u8]| {
        Elements::new(num, n, bytes)
            .map(|e| (e.splat().is_some(), e.iter().map(Number::signed).collect::<Vec<_>>()))
    };
    assert_eq!(ints(Num::I16, 2, &[1, 0]), Some((true, vec![1, 1])));
    assert_eq!(ints(Num::I16, 2, &[1, 0, 255, 255]), Some((false, vec![1, -1])));
    assert_eq!(ints(Num::I16, 2, &[1, 0, 255]), None);
    assert_eq!(ints(Num::I1, 4, &[0xff]), Some((true, vec![1; 4])));
    assert_eq!(ints(Num::I1, 4, &[5]), Some((false, vec![1, 0, 1, 0])));
    assert_eq!(ints(Num::I1, 1, &[5]), None);
    assert_eq!(ints(Num::I1, 16, &[5, 128]).map(|e| e.1[15]), Some(1));
    assert_eq!(ints(Num::I4, 2, &[0xf, 7]), Some((false, vec![-1, 7])));
    let tf32 = Elements::new(Num::Tf32, 2, &[0, 0xfc, 1, 0, 0xfc, 5]).expect("two");
    assert_eq!(tf32.iter().map(Number::float).collect::<Vec<_>>(), [1.0, -1.0]);
    assert_eq!(tf32.get(2), None);
}

#[test]
fn a_file_that_is_none() {
    let good = Raw::new(4, &[&RETURN]).bytes();
    let code = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        check(&bytes);
        let errors = Module::read(&bytes, &Limits::default()).expect_err("an error");
        (errors[0].code.as_str(), errors[0].offset)
    };
    assert_eq!(code(0, 0), ("E1601", Some(0)));
    assert_eq!(code(9, 6), ("E1602", Some(8)));
    assert_eq!(code(9, 0), ("E1602", Some(8)));
    assert_eq!(code(8, 14), ("E1602", Some(8)));
    assert_eq!(code(10, 1), ("E1603", Some(10)));
    assert_eq!(code(11, 1), ("E1603", Some(10)));
    assert_eq!(code(12, 0x88), ("E1606", Some(12)));
    assert_eq!(code(12, 0x85).0, "E1606");
    // The alignment of the functions.
    assert_eq!(code(14, 3), ("E1606", Some(14)));
    assert_eq!(code(14, 4).0, "E1606");
    assert_eq!(code(15, 0), ("E1607", Some(15)));
    let mut more = good.clone();
    more.push(0);
    assert_eq!(Module::read(&more, &Limits::default()).expect_err("more")[0].code, Code::E1608);
    let mut raw = Raw::new(4, &[&RETURN]);
    raw.more.push((7, 1, vec![6, 6]));
    assert_eq!(raw.code(), "E1608");
    raw.more = vec![(7, 1, vec![60])];
    assert_eq!(raw.code(), "E1610");
    raw.more = vec![(1, 4, vec![0])];
    assert_eq!(raw.code(), "E1606");
    let limits = Limits { max_bytes: 100, ..Limits::default() };
    assert_eq!(Module::read(&good, &limits).expect_err("large")[0].code, Code::E1619);
}

#[test]
fn malformed_parts() {
    let raw = |ops: &[u8]| Raw::new(4, &[&body(ops)]);
    // Numbers: eleven bytes, more than 64 bits.
    assert_eq!(raw(&[0x80; 11]).code(), "E1605");
    assert_eq!(raw(&[255, 255, 255, 255, 255, 255, 255, 255, 255, 127]).code(), "E1605");
    // Indices of a type, a constant, a string.
    assert_eq!(raw(&[16, 99, 0]).code(), "E1610");
    assert_eq!(raw(&[16, TILE_F32, 9]).code(), "E1610");
    assert_eq!(raw(&[16, TILE_F32, 0, 5, 99, 0]).code(), "E1610");
    // Unknown flags, enumerations, tags; operands that are not enough.
    assert_eq!(raw(&[16, TILE_F32, 0, 2, TILE_F32, 2, 0, 0, 0]).code(), "E1615");
    assert_eq!(raw(&[16, TILE_F32, 0, 2, TILE_F32, 0, 8, 0, 0]).code(), "E1613");
    assert_eq!(raw(&[16, TILE_F32, 0, 6, TILE_F32, 13, 0]).code(), "E1613");
    assert_eq!(raw(&[16, TILE_I32, 0, 41, 0, 0, 2, 0, 0]).code(), "E1615");
    // Regions and blocks.
    assert_eq!(raw(&[16, TILE_I32, 0, 50, 0, 0, 1, 0]).code(), "E1615");
    assert_eq!(raw(&[16, TILE_I32, 0, 50, 0, 0, 2, 2, 0]).code(), "E1615");
    // Counts beyond what is left.
    assert_eq!(raw(&[60, 0xff, 0xff, 0xff, 0x7f]).code(), "E1604");
    // Depth of regions and attributes, number of ops.
    let deep: Vec<u8> = [16, TILE_I32, 0]
        .into_iter()
        .chain([50, 0, 0, 2, 1, 0, 1].into_iter().cycle().take(7 * 70))
        .collect();
    assert_eq!(raw(&deep).code(), "E1619");
    let nested: Vec<u8> =
        [16, TILE_I32, 0, 6, TILE_I32].into_iter().chain([6, 1].into_iter().cycle().take(40)).collect();
    assert_eq!(raw(&nested).code(), "E1619");
    let limits = Limits { max_ops: 1, ..Limits::default() };
    let errors = Module::read(&raw(&[68, TOKEN]).bytes(), &limits).expect_err("two ops");
    assert_eq!(errors[0].code, Code::E1619);
    // Names and texts.
    let mut text = Raw::new(4, &[&RETURN]);
    text.strings[0] = vec![0xff];
    assert_eq!(text.code(), "E1620");
    text.strings[0].clear();
    assert_eq!(text.code(), "E1616");
    // Heads of functions.
    let head = |head: &[u8]| {
        let mut raw = Raw::new(4, &[]);
        raw.functions = [&[1], head, &[3], &RETURN].concat();
        raw.code()
    };
    assert_eq!(head(&[0, TOKEN, 2, 0]), "E1616");
    assert_eq!(head(&[0, FUNC, 10, 0]), "E1616");
    assert_eq!(head(&[0, FUNC, 4, 0]), "E1616");
    assert_eq!(head(&[0, FUNC, 6, 0, 6, 0]), "E1616");
    assert_eq!(head(&[0, FUNC, 2, 1]), "E1610");
    // Tables.
    let mut raw = Raw::new(4, &[&RETURN]);
    let bytes = raw.bytes();
    let second =
        bytes.windows(8).position(|w| w == [0, 0, 0, 0, 1, 0, 0, 0]).expect("offsets of the types") + 4;
    let mut damaged = bytes.clone();
    damaged[second] = 0xff;
    assert_eq!(Module::read(&damaged, &Limits::default()).expect_err("offsets")[0].code, Code::E1609);
    raw.constants[0].push(0);
    assert_eq!(raw.code(), "E1608");
    // Types.
    for ty in [
        &[99][..],
        &[13, TILE_F32, 0],
        &[12, 2, F32],
        &[12, 1, F32, 3],
        &[15, 2],
        &[17, 0],
        &[16, 1, TOKEN, 1, 99],
    ] {
        let mut raw = Raw::new(4, &[&RETURN]);
        raw.types.push(ty.to_vec());
        assert!(["E1611", "E1608", "E1610"].contains(&raw.code()), "{ty:?}");
    }
}

#[test]
fn globals() {
    let with = |payload: &[u8]| {
        let mut raw = Raw::new(4, &[&body(&[44, 11, 6])]);
        raw.types.push(vec![13, 12, 0]);
        raw.types.push(vec![12, 0, F32]);
        raw.more.push((6, 1, payload.to_vec()));
        raw
    };
    let module = with(&[1, 6, TILE_8F32, 0, 16, 1, 1]).read();
    module.verify().expect("a pointer to the global");
    let global = module.globals.values().next().expect("one");
    assert_eq!(
        (module.str(global.name), global.alignment, global.private, global.constant),
        ("odd", 16, true, true)
    );
    assert_eq!(module.write(Version::OLDEST).expect_err("13.3")[0].code, Code::E1628);
    assert_eq!(with(&[1, 6, TILE_8F32, 0, 16, 2, 1]).code(), "E1605");
    assert_eq!(with(&[1, 6, TILE_8F32, 0, 16, 1, 1, 0]).code(), "E1608");
    let module = with(&[2, 6, TILE_8F32, 0, 16, 1, 1, 6, TILE_8F32, 0, 16, 1, 1]).read();
    assert_eq!(module.verify().expect_err("two of one name")[0].code, Code::E1618);
    let module = with(&[1, 6, TILE_8F64, 0, 16, 1, 1]).read();
    let codes: Vec<_> = module.verify().expect_err("4 bytes of 8").iter().map(|e| e.code).collect();
    assert_eq!(codes, [Code::E1627, Code::E1622]);
}

#[test]
fn debug_information() {
    let debug = |records: &[&[u8]], indices: &[u8]| {
        let mut raw = Raw::new(4, &[]);
        raw.functions = [&[1, 0, FUNC, 2, 1, 3], &RETURN[..]].concat();
        let mut payload = vec![1];
        pad(&mut payload, 4);
        payload.extend([0; 4]);
        payload.push(indices.len() as u8);
        pad(&mut payload, 8);
        indices.iter().for_each(|&i| payload.extend(u64::from(i).to_le_bytes()));
        payload.extend(varint(records.len() as u128));
        pad(&mut payload, 4);
        let mut at = 0u32;
        for record in records {
            payload.extend(at.to_le_bytes());
            at += record.len() as u32;
        }
        payload.extend(records.concat());
        raw.more.push((3, 8, payload));
        raw
    };
    // File, function, block in it, place in the block, another place, call.
    let records: &[&[u8]] = &[
        &[2, 5, 6],
        &[5, 1, 1, 3, 3, 0, 1],
        &[3, 2, 1, 2, 2],
        &[4, 3, 5, 7, 8],
        &[4, 2, 5, 9, 1],
        &[6, 4, 5],
        &[0],
        &[1, 1],
    ];
    let module = debug(records, &[2, 6]).read();
    let f = module.functions().next().expect("one");
    let frames = f.body().next().expect("return").source();
    let texts: Vec<_> = frames.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["odd/latency:7:8 in sm_90", "odd/latency:9:1 in sm_90"]);
    assert_eq!(f.loc().map(|l| module.frames(l)[0].function.clone()).as_deref(), Some("sm_90"));
    // Nothing known is no place.
    assert!(debug(&[&[0]], &[1, 0]).read().functions().all(|f| f.body().all(|op| op.source().is_empty())));
    assert_eq!(debug(&[&[0]], &[1]).code(), "E1617");
    assert_eq!(debug(&[&[0]], &[1, 2]).code(), "E1617");
    assert_eq!(debug(&[&[7]], &[1, 1]).code(), "E1617");
    assert_eq!(debug(&[&[6, 2, 0], &[6, 1, 0]], &[1, 1]).code(), "E1617");
    assert_eq!(debug(&[&[6, 3, 0]], &[1, 1]).code(), "E1610");
    // Records that share others end where there are too many places.
    let mut doubled: Vec<Vec<u8>> = vec![vec![4, 0, 5, 7, 8]];
    (1..60).for_each(|i| doubled.push(vec![6, i, i]));
    let doubled: Vec<&[u8]> = doubled.iter().map(Vec::as_slice).collect();
    let module = debug(&doubled, &[60, 60]).read();
    assert!(module.functions().all(|f| f.body().all(|op| op.source().len() == 64)));
}

#[test]
fn heads_of_functions_that_are_no_kernels() {
    let mut raw = Raw::new(4, &[]);
    raw.functions = [&[2, 0, FUNC, 3, 0, 3], &RETURN[..], &[0, FUNC, 1, 0, 2, 68, TOKEN]].concat();
    let module = raw.read();
    let codes: Vec<_> = module.verify().expect_err("no kernel").iter().map(|e| e.code).collect();
    assert_eq!(codes, [Code::E1626; 2]);
    assert!(module.to_string().contains("private func @first"));
}
