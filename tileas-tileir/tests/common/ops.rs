//! Operations as lines of text, each made into a module of its own.
//!
//! A line: `name key=value … | segment:type,type … | result,result`. Values of the types are made by other operations. Types are
//! `64xf32`, `ptr<f32>`, `token`, or one of [`VIEWS`], as `pv:i32`; a line may end in `# text`.

use tileas_tileir::{
    Attr, Builder, Dim, Elem, Key, Module, Num, Opcode, Overflow, Padding, PointerMode, Seg, Set, Type,
    TypeData, Value, Version,
};

/// Views with two dimensions. `tv` is a tensor view, `pv` a partition of it, `zv` one with padding; `m…` multicast; `gv` gather,
/// `sv` strided. Of f32, or of what is named behind a colon.
pub const VIEWS: &[&str] = &["tv", "pv", "zv", "mtv", "mpv", "gv", "sv"];

/// Each operation as it should be, in all its forms.
pub const GOOD: &str = include_str!("good.txt");

pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|l| l.split('#').next().unwrap_or_default().trim()).filter(|l| !l.is_empty())
}

fn num(name: &str) -> Num {
    *Num::ALL.iter().find(|n| n.name() == name).unwrap_or_else(|| panic!("no type {name}"))
}

pub fn ty(m: &mut Module, text: &str) -> Type {
    let (name, elem) = text.split_once(':').unwrap_or((text, "f32"));
    if VIEWS.contains(&name) {
        let (elem, mode) =
            (num(elem), if name.starts_with('m') { PointerMode::Multicast } else { PointerMode::None });
        let dims = |s: &[i64]| s.iter().map(|&d| (d != 0).then_some(d)).collect::<Box<[Dim]>>();
        m.types.intern(TypeData::Elem(Elem::Num(elem)));
        m.types.intern(TypeData::Elem(Elem::Ptr { pointee: elem, mode }));
        let tensor = TypeData::TensorView { elem, shape: dims(&[0, 0]), strides: dims(&[0, 1]), mode };
        let tensor = m.types.intern(tensor);
        let (tile, map) = (Box::new([16, 32]), Box::new([0, 1]));
        let data = match name {
            "tv" | "mtv" => return tensor,
            "gv" => TypeData::GatherScatterView { tile, tensor, sparse: 0, padding: None },
            "sv" => TypeData::StridedView { tile, steps: Box::new([8, 32]), tensor, map, padding: None },
            "zv" => TypeData::PartitionView { tile, tensor, map, padding: Some(Padding::Zero) },
            _ => TypeData::PartitionView { tile, tensor, map, padding: None },
        };
        return m.types.intern(data);
    }
    if text == "token" {
        return m.types.intern(TypeData::Token);
    }
    let mut parts: Vec<&str> = text.split('x').collect();
    let elem = match parts.pop().expect("split gives one") {
        e if e.starts_with("ptr<") || e.starts_with("mptr<") => {
            let mode = if e.starts_with('m') { PointerMode::Multicast } else { PointerMode::None };
            Elem::Ptr { pointee: num(e.split(['<', '>']).nth(1).expect("behind <")), mode }
        }
        e => Elem::Num(num(e)),
    };
    if let Elem::Ptr { pointee, .. } = elem {
        m.types.intern(TypeData::Elem(Elem::Num(pointee)));
    }
    m.types.intern(TypeData::Elem(elem));
    let shape = parts.iter().map(|d| d.parse().expect("an extent")).collect();
    m.types.intern(TypeData::Tile { elem, shape })
}

/// A value of a type.
pub fn value(b: &mut Builder<'_>, text: &str) -> Value {
    let t = ty(b.module, text);
    let op = |b: &mut Builder<'_>, opcode, attrs: &[(Key, Set)], operands: &[(Seg, &[Value])]| {
        b.op(opcode, attrs, operands, &[t]).expect("a simple operation")
    };
    let data = b.module.types.get(t).clone();
    match data {
        TypeData::Token => op(b, Opcode::MakeToken, &[], &[]),
        TypeData::TensorView { elem, mode, .. } => {
            let base = value(b, &format!("{}ptr<{elem}>", if mode == PointerMode::None { "" } else { "m" }));
            let n = value(b, "i32");
            op(
                b,
                Opcode::MakeTensorView,
                &[],
                &[(Seg::Base, &[base]), (Seg::Shape, &[n, n]), (Seg::Strides, &[n])],
            )
        }
        // There are no constants of i4.
        TypeData::Tile { elem: Elem::Num(Num::I4), .. } => {
            let source = value(b, &text.replace("i4", "i8"));
            op(b, Opcode::Trunci, &[(Key::Overflow, Overflow::None.into())], &[(Seg::Source, &[source])])
        }
        TypeData::Tile { elem: Elem::Num(n), .. } => {
            // tf32 has 19 bits in its three bytes.
            let bytes: &[u8] = match n {
                Num::I1 => &[0xff],
                Num::Tf32 => &[0, 0, 1],
                n => &[1; 8][..n.constant_bytes()],
            };
            let constant = b.module.constants.intern(bytes);
            op(b, Opcode::Constant, &[(Key::Value, constant.into())], &[])
        }
        TypeData::Tile { elem: Elem::Ptr { pointee, mode }, shape } if shape.is_empty() => {
            // Parameter 0 is a pointer to f32, 1 one to several devices.
            let source = b.param(u32::from(mode != PointerMode::None));
            if pointee == Num::F32 {
                return source;
            }
            if mode != PointerMode::None {
                return op(b, Opcode::PtrToPtr, &[], &[(Seg::Source, &[source])]);
            }
            let i64 = ty(b.module, "i64");
            let address =
                b.op(Opcode::PtrToInt, &[], &[(Seg::Source, &[source])], &[i64]).expect("an address");
            op(b, Opcode::IntToPtr, &[], &[(Seg::Source, &[address])])
        }
        TypeData::Tile { elem, shape } => {
            let scalar = value(b, &elem.to_string());
            let ones = b.module.types.intern(TypeData::Tile { elem, shape: vec![1; shape.len()].into() });
            let source = b.op(Opcode::Reshape, &[], &[(Seg::Source, &[scalar])], &[ones]).expect("reshape");
            op(b, Opcode::Broadcast, &[], &[(Seg::Source, &[source])])
        }
        _ => {
            let (name, elem) = text.split_once(':').unwrap_or((text, "f32"));
            let opcode = match name {
                "gv" => Opcode::MakeGatherScatterView,
                "sv" => Opcode::MakeStridedView,
                _ => Opcode::MakePartitionView,
            };
            let source = value(b, &format!("{}:{elem}", if name == "mpv" { "mtv" } else { "tv" }));
            op(b, opcode, &[], &[(Seg::View, &[source])])
        }
    }
}

fn key(name: &str) -> Key {
    *Key::ALL.iter().find(|k| k.name() == name).unwrap_or_else(|| panic!("no attribute {name}"))
}

fn seg(name: &str) -> Seg {
    *Seg::ALL.iter().find(|s| s.name() == name).unwrap_or_else(|| panic!("no segment {name}"))
}

fn set(m: &mut Module, opcode: Opcode, key: Key, text: &str) -> Set {
    use tileas_tileir::AttrKind;
    let row = opcode.row().attrs.iter().find(|a| a.key == key);
    let Some(row) = row else { return Set::Unit };
    let ints = || text.split(':').skip(1).map(|n| n.parse::<i64>().ok()).collect::<Vec<_>>();
    match row.kind {
        AttrKind::Enum(names) => {
            Set::Word(names.iter().position(|n| *n == text).expect("an enumeration's name") as u64)
        }
        AttrKind::Int => Set::Word(text.parse().expect("a number")),
        AttrKind::Bool => (text == "true").into(),
        AttrKind::Str => m.strings.intern(text.as_bytes()).into(),
        AttrKind::Const => {
            let bytes: Vec<u8> = text.split(':').map(|b| b.parse().expect("a byte")).collect();
            m.constants.intern(&bytes).into()
        }
        AttrKind::Ints => Attr::Ints(text.split(':').map(|n| n.parse().expect("a number")).collect()).into(),
        AttrKind::Bools => Attr::Bools(text.bytes().map(|b| b == b'1').collect()).into(),
        AttrKind::Tagged => match (text.split(':').next(), &ints()[..]) {
            (Some("div"), [Some(n)]) => Attr::DivBy { divisor: *n as u64, every: None, along: None }.into(),
            (Some("div"), [Some(n), e, a]) => Attr::DivBy { divisor: *n as u64, every: *e, along: *a }.into(),
            (Some("bounded"), [l, u]) => Attr::Bounded { lower: *l, upper: *u }.into(),
            (Some("same"), list) => Attr::SameElements(list.iter().flatten().copied().collect()).into(),
            _ => Attr::Bool(true).into(),
        },
        AttrKind::Hints => {
            let (i32, key) =
                (m.types.intern(TypeData::Elem(Elem::Num(Num::I32))), m.strings.intern(b"latency"));
            let tma = m.strings.intern(b"allow_tma");
            let latency = (key, Attr::Int { ty: i32, bits: text.parse().expect("a number") });
            let view = opcode.row().attrs.iter().any(|a| a.key == Key::Inbounds);
            let entries = if view { vec![latency, (tma, Attr::Bool(false))] } else { vec![latency] };
            Attr::Hints(Box::new([(m.strings.intern(b"sm_100"), Attr::Dict(entries.into()))])).into()
        }
        AttrKind::List => {
            // Identities: `f32:0`.
            let identity = |m: &mut Module, text: &str| {
                let (name, bits) = text.split_once(':').expect("type and bits");
                let (num, bits) = (num(name), bits.parse().expect("bits"));
                let ty = m.types.intern(TypeData::Elem(Elem::Num(num)));
                if num.is_float() { Attr::Float { ty, bits } } else { Attr::Int { ty, bits } }
            };
            let list = text.split('+').map(|t| identity(m, t)).collect();
            Attr::List(list).into()
        }
    }
}

/// The module of a line, in the newest version, or in the first that has the operation.
pub fn module(line: &str, version: Version) -> Module {
    let mut m = Module::new(version);
    let mut parts = line.split('|');
    let mut head = parts.next().expect("split gives one").split_whitespace();
    let name = head.next().expect("a name");
    let opcode =
        Opcode::ALL.iter().copied().find(|o| o.name() == name).unwrap_or_else(|| panic!("no op {name}"));
    let mut params = vec![ty(&mut m, "ptr<f32>")];
    if line.contains('m') && version.minor() >= 5 {
        params.push(ty(&mut m, "mptr<f32>"));
    }
    if name == "get_global" {
        let t = ty(&mut m, "4xf32");
        let (name, value) = (m.strings.intern(b"table"), m.constants.intern(&[0; 16]));
        let data =
            tileas_tileir::GlobalData { name, ty: t, value, alignment: 16, private: false, constant: false };
        m.globals.push(data);
    }
    let mut b = Builder::new(&mut m, "kernel", &params);
    let mut attrs = Vec::new();
    for text in head {
        let (k, v) = text.split_once('=').unwrap_or((text, ""));
        let k = key(k);
        let v = set(b.module, opcode, k, v);
        attrs.push((k, v));
    }
    let mut operands: Vec<(Seg, Vec<Value>)> = Vec::new();
    for part in parts.next().unwrap_or_default().split_whitespace() {
        let (s, types) = part.split_once(':').expect("segment and types");
        let values = types.split(',').filter(|t| !t.is_empty()).map(|t| value(&mut b, t)).collect();
        operands.push((seg(s), values));
    }
    let names = parts.next().unwrap_or_default().trim().split(',').map(str::trim).filter(|t| !t.is_empty());
    let results: Vec<Type> = names.map(|t| ty(b.module, t)).collect();
    let segments: Vec<(Seg, &[Value])> = operands.iter().map(|(s, v)| (*s, &v[..])).collect();
    let op = b.begin(opcode, &attrs, &segments).unwrap_or_else(|e| panic!("{line}: {e}"));
    assert!(opcode.row().regions == 0 || parts.next().is_none(), "{line}");
    regions(&mut b, opcode, &operands, &results);
    let _ = op;
    b.end(&results);
    if opcode != Opcode::Return {
        b.op(Opcode::Return, &[], &[], &[]).expect("return");
    }
    b.finish();
    m
}

/// Regions with what each operation needs at least.
fn regions(b: &mut Builder<'_>, opcode: Opcode, operands: &[(Seg, Vec<Value>)], results: &[Type]) {
    let all = |s: Seg| operands.iter().find(|o| o.0 == s).map(|o| o.1.clone()).unwrap_or_default();
    // By type, a value that is made anew.
    let again = |b: &mut Builder<'_>, types: &[Type]| -> Vec<Value> {
        types
            .iter()
            .map(|&t| {
                let text = b.module.types.display(t).to_string();
                let text =
                    text.strip_prefix("tile<").and_then(|t| t.strip_suffix('>')).unwrap_or(&text).to_owned();
                value(b, &text)
            })
            .collect()
    };
    match opcode {
        Opcode::If => {
            for _ in 0..2 {
                b.region(&[]);
                let values = again(b, results);
                b.op(Opcode::Yield, &[], &[(Seg::Values, &values)], &[]).expect("yield");
                b.close();
            }
        }
        Opcode::For => {
            let iv = ty(b.module, "i32");
            let params: Vec<Type> = [iv].into_iter().chain(results.iter().copied()).collect();
            let params = b.region(&params);
            b.op(Opcode::Continue, &[], &[(Seg::Values, &params[1..])], &[]).expect("continue");
            b.close();
        }
        Opcode::Loop => {
            let carried: Vec<Type> = all(Seg::Init).iter().map(|_| ty(b.module, "i32")).collect();
            let params = b.region(&carried);
            let cond = value(b, "i1");
            b.begin(Opcode::If, &[], &[(Seg::Cond, &[cond])]).expect("if");
            b.region(&[]);
            let values = again(b, results);
            b.op(Opcode::Break, &[], &[(Seg::Values, &values)], &[]).expect("break");
            b.close();
            b.region(&[]);
            b.op(Opcode::Yield, &[], &[], &[]).expect("yield");
            b.close();
            b.end(&[]);
            b.op(Opcode::Continue, &[], &[(Seg::Values, &params)], &[]).expect("continue");
            b.close();
        }
        Opcode::Reduce | Opcode::Scan => {
            let elems: Vec<Type> = results
                .iter()
                .map(|&t| {
                    let elem = b.module.types.get(t).tile().map_or(Elem::Num(Num::F32), |t| t.0);
                    b.module.types.intern(TypeData::Tile { elem, shape: Box::default() })
                })
                .collect();
            let params = b.region(&elems.iter().flat_map(|&t| [t, t]).collect::<Vec<_>>());
            let values: Vec<Value> = params.iter().step_by(2).copied().collect();
            b.op(Opcode::Yield, &[], &[(Seg::Values, &values)], &[]).expect("yield");
            b.close();
        }
        _ => {}
    }
}
