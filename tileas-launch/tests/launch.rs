//! Launches from metadata: values, texts that come back, and every error.

#![cfg(feature = "serde")]

use arbtest::arbitrary::{self, Unstructured};
use tileas_launch::expr::{Binary, Expr};
use tileas_launch::json::{read, write_all};
use tileas_launch::{
    Arg, ArgKind, ArgMeta, Code, Device, Elem, Error, Launch, LaunchMetadata, Named, Value, View,
};

const DEVICE: Device = Device { sms: 132 };

fn args() -> [ArgMeta; 3] {
    let meta = |name: &str, kind| ArgMeta { name: name.into(), kind };
    [meta("a", ArgKind::VIEW), meta("k", ArgKind::SCALAR), meta("b", ArgKind::VIEW)]
}

fn values() -> [Arg; 3] {
    [View::dense(0x1010, Elem::F16, &[100, 64]).into(), 7.into(), View::dense(0x40, Elem::F32, &[3]).into()]
}

fn value(text: &str) -> Result<i64, Error> {
    Expr::parse(text, &args())?.value(&values(), &DEVICE)
}

#[test]
fn expressions_have_values() {
    for (text, want) in [
        ("ceildiv(a.d0, 32)", 4),
        ("ceildiv(-7, 2)", -3),
        ("min(k, a.d1) * 2 + 1", 15),
        ("max(k, a.d1, 3)", 64),
        ("a.s0 % 8 == 0", 1),
        ("ptr(a) % 16 == 0", 1),
        ("ptr(a, b) % 32 == 0", 0),
        ("-7 / 2", -4),
        ("-7 % 4", 1),
        ("-(2 - 5) * 3", 9),
        ("2 - 3 - 4", -5),
        ("1 <= 2", 1),
        ("(k != 7) | (sms > 131) & 1", 1),
        ("-9223372036854775808 + 9223372036854775807", -1),
    ] {
        assert_eq!(value(text), Ok(want), "{text}");
    }
    let code = |text: &str| value(text).unwrap_err().code;
    let (open, minus) = ("(".repeat(1000), "-".repeat(1000));
    for text in [
        "",
        "a",
        "k.d0",
        "c",
        "a.x1",
        "1 +",
        "f(1)",
        "min()",
        "9999999999999999999",
        "1 2",
        "1<2<3",
        "é",
        &open,
        &minus,
    ] {
        assert_eq!(code(text), Code::E1101, "{text}");
    }
    let chain = "1+".repeat(500) + "1";
    assert_eq!(code(&chain), Code::E1101);
    for text in ["1 / 0", "1 % 0", "ceildiv(1, 0)", "9223372036854775807 + 1"] {
        assert_eq!(code(text), Code::E1105, "{text}");
    }
    assert_eq!(code("a.d9"), Code::E1103);
    assert_eq!(value("1 / (k - 7)").unwrap_err().code, Code::E1105);
}

/// A tree, and its value in wide arithmetic where no step leaves 64 bits.
fn tree(u: &mut Unstructured<'_>, depth: u32) -> arbitrary::Result<(Expr, Option<i128>)> {
    let leaf = |e: Expr, v: i128| Ok((e, Some(v)));
    if depth == 0 || u.ratio(1, 4)? {
        return match u.int_in_range(0..=5)? {
            0 => leaf(Expr::Scalar(1), 7),
            1 => leaf(Expr::Extent(0, 1), 64),
            2 => leaf(Expr::Stride(0, 0), 64),
            3 => leaf(Expr::Addresses(vec![0, 2]), 0x1050),
            4 => leaf(Expr::Sms, 132),
            _ => {
                let v: i64 = if u.ratio(1, 8)? { u.arbitrary()? } else { u.int_in_range(-9..=9)? };
                leaf(Expr::Int(v), v.into())
            }
        };
    }
    let (a, x) = tree(u, depth - 1)?;
    let (b, y) = tree(u, depth - 1)?;
    let both = x.zip(y);
    let narrow = |v: Option<i128>| v.filter(|&v| i64::try_from(v).is_ok());
    let div =
        |x: i128, y: i128| (y != 0).then(|| x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0));
    Ok(match u.int_in_range(0..=16)? {
        0 => (Expr::Negate(Box::new(a)), narrow(x.map(|x| -x))),
        1 => (Expr::ceil_div(a, b), narrow(both.and_then(|(x, y)| div(-x, y).map(|q| -q)))),
        2 => (Expr::Min(vec![a, b]), both.map(|(x, y)| x.min(y))),
        3 => (Expr::Max(vec![a, b]), both.map(|(x, y)| x.max(y))),
        n => {
            use Binary::{Add, And, Div, Eq, Ge, Gt, Le, Lt, Mul, Ne, Or, Rem, Sub};
            let op = [Eq, Ne, Le, Ge, Lt, Gt, Or, And, Add, Sub, Mul, Div, Rem][n as usize - 4];
            let v = both.and_then(|(x, y)| match op {
                Eq => Some((x == y).into()),
                Ne => Some((x != y).into()),
                Le => Some((x <= y).into()),
                Ge => Some((x >= y).into()),
                Lt => Some((x < y).into()),
                Gt => Some((x > y).into()),
                Or => Some((x != 0 || y != 0).into()),
                And => Some((x != 0 && y != 0).into()),
                Add => Some(x + y),
                Sub => Some(x - y),
                Mul => Some(x * y),
                Div => div(x, y),
                Rem => (y != 0).then(|| x.rem_euclid(y)),
            });
            (Expr::binary(op, a, b), narrow(v))
        }
    })
}

#[test]
fn trees_come_back_from_their_text() {
    arbtest::arbtest(|u| {
        let (expr, want) = tree(u, 5)?;
        let text = expr.text(&args()).to_string();
        assert_eq!(Expr::parse(&text, &args()).as_ref(), Ok(&expr), "{text}");
        let got = expr.value(&values(), &DEVICE).ok().map(i128::from);
        // What overflows in between is an error, though the whole might fit.
        assert!(got == want, "{text} is {got:?}, not {want:?}");
        Ok(())
    });
}

const DOCUMENT: &str = r#"{"kernels": [{"kernel": "k", "target": "sm_100a", "ptx_version": "8.6",
    "block": [128, 1, 1], "grid": ["ceildiv(a.d0, 64)", "1", 1], "dynamic_smem": 4096, "params": [
      {"name": "tm", "kind": "tensor_map", "map": 0}, {"name": "p", "kind": "pointer", "of": "a", "rank": 2},
      {"name": "n", "kind": "size", "of": "a", "dim": 1, "type": "u32"},
      {"name": "s", "kind": "stride", "of": "a", "dim": 0, "type": "u32"},
      {"name": "x", "kind": "scalar", "type": "f32"}, {"name": "i", "kind": "scalar", "type": "i8"},
      {"name": "twice", "kind": "expr", "expr": "a.d1 * 2"}],
    "tensor_maps": [{"view": "a", "type": "f16", "dims": ["a.d1", "a.d0"], "strides_bytes": ["a.s0 * 2"],
      "box": [64, 32], "swizzle": "b128", "oob": "nan", "l2": "b256"}],
    "args": [{"name": "a", "kind": "view", "type": "f16", "rank": 2, "written": true},
      {"name": "x", "kind": "scalar", "type": "f32"}, {"name": "i", "kind": "scalar", "type": "i8"}],
    "requires": ["a.d1 == 72", "a.s1 == 1", "a.s0 % 8 == 0", "ptr(a) % 16 == 0"]}]}"#;

fn kernel() -> LaunchMetadata {
    read(DOCUMENT).unwrap().remove(0)
}

fn launch(view: View, x: impl Into<Arg>, i: impl Into<Arg>) -> Result<Launch, Error> {
    kernel().launch(&[view.into(), x.into(), i.into()], &DEVICE, None)
}

fn a() -> View {
    View::dense(0x1000, Elem::F16, &[100, 72])
}

#[test]
fn a_grid_follows_or_is_stated() {
    assert!(kernel().has_grid().is_ok());
    let scatters = LaunchMetadata { grid_follows: false, ..kernel() };
    assert_eq!(scatters.has_grid().unwrap_err().code, Code::E1106);
    let text = scatters.to_json();
    assert_eq!(read(&text).unwrap(), [scatters]);
}

#[test]
fn a_document_becomes_a_launch() {
    let l = launch(a(), 1.5, -2).unwrap();
    assert_eq!((l.grid, l.block, l.cluster, l.dynamic_smem), ([2, 1, 1], [128, 1, 1], [1; 3], 4096));
    let bits = |bits: u64, size: u8| Value::Bits { bits, size };
    let tail = [
        bits(0x1000, 8),
        bits(72, 4),
        bits(72, 4),
        bits(1.5_f32.to_bits().into(), 4),
        bits((-2_i64) as u64, 1),
        bits(144, 4),
    ];
    assert_eq!(l.params[1..], tail);
    let Value::Map(m) = &l.params[0] else { panic!("a map") };
    assert_eq!(
        (m.elem, m.address, &m.dims[..], &m.strides[..]),
        (Elem::F16, 0x1000, &[72, 100][..], &[144][..])
    );
    assert_eq!((&m.box_dims[..], &m.element_strides[..]), (&[64, 32][..], &[1, 1][..]));
    assert_eq!((m.swizzle as u32, m.oob as u32, m.l2 as u32), (3, 1, 3));
    assert_eq!(m.elem.map_type(), Some(6));
    // The grid that is asked for wins.
    let grid = kernel().launch(&[a().into(), 1.5.into(), 1.into()], &DEVICE, Some([9, 1, 1])).unwrap().grid;
    assert_eq!(grid, [9, 1, 1]);
}

/// What a document leaves out follows from the parameters.
#[test]
fn arguments_follow_from_parameters() {
    let (start, end) = (DOCUMENT.find("\"args\"").unwrap(), DOCUMENT.find("\"requires\"").unwrap());
    let mut open = read(&[&DOCUMENT[..start], &DOCUMENT[end..]].concat()).unwrap().remove(0);
    let ArgKind::View { written, .. } = &mut open.args[0].kind else { panic!("a view") };
    assert!(!*written);
    *written = true;
    assert_eq!(open, kernel());
}

#[test]
fn documents_come_back() {
    let one = kernel();
    assert_eq!(read(&one.to_json()).unwrap(), std::slice::from_ref(&one));
    assert_eq!(read(&write_all([&one, &one])).unwrap(), [one.clone(), one]);
}

#[test]
fn errors_name_what_is_wrong() {
    let strided = |d: usize, s: i64| {
        let mut view = a();
        view.strides[d] = s;
        view
    };
    let wide = |n: i64| View::dense(0x1000, Elem::F16, &[100, n]);
    let cases: [(Result<Launch, Error>, Code, &str); 18] = [
        (kernel().launch(&[], &DEVICE, None), Code::E1102, "k takes 3 arguments (a, x, i), 0 are given"),
        (launch(View::dense(0, Elem::F16, &[72]), 1.0, 1), Code::E1103, "a has rank 2, 1 extent is given"),
        (
            launch(View::dense(0, Elem::Bf16, &[1, 72]), 1.0, 1),
            Code::E1103,
            "a has elements of type f16, bf16",
        ),
        (launch(wide(-1), 1.0, 1), Code::E1103, "a has a negative extent: [100, -1]"),
        (
            launch(View { read_only: true, ..a() }, 1.0, 1),
            Code::E1103,
            "a is written to, what is given is for",
        ),
        (launch(a(), a(), 1), Code::E1103, "x is a number, a view is given"),
        (kernel().launch(&[1.into(), 1.into(), 1.into()], &DEVICE, None), Code::E1103, "a is a view"),
        (launch(a(), 1.0, 1.5), Code::E1103, "i is of type i8, a number with a fraction is given"),
        (launch(a(), 1.0, 256), Code::E1103, "parameter i: 256 does not fit into i8"),
        (launch(wide(64), 1.0, 1), Code::E1104, "extent 1 of a is 72 in its type, 64 is given"),
        (launch(strided(0, 73), 1.0, 1), Code::E1104, "is 73 elements and must be a multiple of 8 for TMA"),
        (launch(strided(1, 2), 1.0, 1), Code::E1104, "along dimension 1 must be 1, 2 is given"),
        (
            launch(View::dense(0x1008, Elem::F16, &[100, 72]), 1.0, 1),
            Code::E1104,
            "launch requirement `ptr(a) % 16 == 0` does not hold: a is at address 0x1008, no multiple of 16",
        ),
        (
            launch(View::dense(0x1000, Elem::F16, &[0, 72]), 1.0, 1),
            Code::E1106,
            "the grid is [0, 1, 1], as `ceildiv(a.d0, 64)` is 0",
        ),
        (
            kernel().launch(&[a().into(), 1.into(), 1.into()], &DEVICE, Some([1, 65536, 1])),
            Code::E1106,
            "at most 65535 CTAs along dimension 1",
        ),
        (
            launch(View { extents: [i64::MAX, 72].as_slice().into(), ..a() }, 1.0, 1),
            Code::E1106,
            "a grid of 144115188075855872, as `ceildiv(a.d0, 64)` says",
        ),
        (
            LaunchMetadata { requires: Vec::new(), ..kernel() }.launch(
                &[strided(0, i64::MAX).into(), 1.into(), 1.into()],
                &DEVICE,
                None,
            ),
            Code::E1105,
            "overflow",
        ),
        (
            LaunchMetadata { requires: Vec::new(), ..kernel() }.launch(
                &[wide(0).into(), 1.into(), 1.into()],
                &DEVICE,
                None,
            ),
            Code::E1107,
            "extent 1 of a is 0",
        ),
    ];
    for (got, code, text) in cases {
        let error = got.unwrap_err();
        assert!(error.code == code && error.message.contains(text), "{error}; {code}: {text}");
    }
}

#[test]
fn malformed_documents_are_errors() {
    let with = |from: &str, to: &str| {
        assert!(DOCUMENT.contains(from), "{from}");
        read(&DOCUMENT.replacen(from, to, 1)).unwrap_err()
    };
    for (from, to, text) in [
        (r#""kernel": "k","#, "", "missing field `kernel`"),
        ("tensor_map", "texture", "unknown kind texture"),
        (r#""map": 0"#, r#""map": 1"#, "no such tensor map"),
        ("b128", "b96", "there is no swizzle b96"),
        ("[128, 1, 1]", "[0, 1, 1]", "a block of [0, 1, 1]"),
        ("a.d1 * 2", "a.d1 *", "expected a number"),
        ("a.d1 * 2", "x.d1", "no view is called x"),
        ("8.6", "new", "PTX version new"),
        (r#""type": "f32""#, r#""type": "f33""#, "there is no type f33"),
    ] {
        let error = with(from, to);
        assert!(error.code == Code::E1101 && error.message.contains(text), "{from} -> {to}: {error}");
    }
    assert_eq!(read("[").unwrap_err().code, Code::E1101);
    let deep = "[".repeat(100_000);
    assert_eq!(read(&deep).unwrap_err().code, Code::E1101);
}

#[test]
fn arguments_have_names() {
    let mut named = Named::default();
    for name in ["i", "x", "other"] {
        named.insert(name, 1);
    }
    assert_eq!(named.of(&kernel()).unwrap_err().message, "k needs a");
    named.insert("a", a());
    named.insert("x", 0.5);
    assert_eq!(named.of(&kernel()).unwrap(), [a().into(), Arg::Float(0.5), Arg::Int(1)]);
    assert_eq!(named.value("a.d0 + i", &DEVICE), Ok(101));
    assert_eq!(named.iter().count(), 4);
}

#[test]
fn types_take_what_has_their_bytes() {
    for (want, have, takes) in [
        (Elem::F16, Elem::F16, true),
        (Elem::F16, Elem::U16, true),
        (Elem::F16, Elem::I16, false),
        (Elem::Tf32, Elem::F32, true),
        (Elem::F32, Elem::Tf32, false),
        (Elem::Index, Elem::I64, true),
        (Elem::E4m3, Elem::U8, true),
        (Elem::I32, Elem::U16, false),
    ] {
        assert_eq!(want.takes(have), takes, "{} of {}", want.name(), have.name());
    }
    for &e in Elem::ALL {
        assert_eq!(Elem::by_name(e.name()), Some(e));
    }
    assert_eq!(Elem::by_name("s32"), Some(Elem::I32));
}
