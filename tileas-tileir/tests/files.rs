//! Files of a front end: read, checked, written back; damaged in every way.

use crate::common;

use common::{FILES, check, file, read};
use tileas_tileir::{
    Code, Elem, Key, Limits, Module, Num, Opcode, Rounding, Seg, Semantics, Signedness, TypeData, Version,
};

#[test]
fn files_are_read_and_written_byte_for_byte() {
    for (name, bytes) in FILES {
        let module = read(bytes);
        module.verify().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(name.ends_with(&module.version.to_string()));
        assert!(module.functions().all(|f| f.hint_warnings().is_empty()), "{name}");
        assert!(module.write(module.version).expect(name) == *bytes, "{name}");
        assert!(check(bytes));
        assert!(module.heap_bytes() < 8 * bytes.len(), "{name}: {} of {}", module.heap_bytes(), bytes.len());
    }
}

#[test]
fn a_module_is_the_same_in_all_versions_that_can_express_it() {
    for (name, bytes) in FILES {
        let module = read(bytes);
        let mut written = 0;
        for version in Version::all() {
            let Ok(bytes) = module.write(version) else { continue };
            let mut again = read(&bytes);
            again.version = module.version;
            // Flags of subprograms are debug information of 13.5.
            if version >= module.version || module.version.minor() < 5 {
                assert!(again == module, "{name} as {version}");
            }
            written += 1;
        }
        assert!(written > 1, "{name}");
    }
    // The same kernel from all writers of one front end.
    let texts = ["13.1", "13.2", "13.3", "13.4", "13.5"].map(|v| {
        let module = read(file(&format!("vector_add-{v}")));
        let text = module.to_string();
        text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
    });
    assert!(texts.iter().all(|t| *t == texts[0]));
}

#[test]
fn every_truncation_is_an_error_with_a_place() {
    for (name, bytes) in FILES {
        for n in 0..bytes.len() {
            let errors = Module::read(&bytes[..n], &Limits::default()).expect_err(name);
            assert!(errors.iter().all(|e| e.offset.is_some_and(|o| o <= n)), "{name} cut at {n}: {errors}");
        }
    }
}

#[test]
fn no_damaged_byte_does_harm() {
    for (_, bytes) in FILES {
        let mut damaged = bytes.to_vec();
        for i in 0..bytes.len() {
            // The lowest and the highest bit, and what makes numbers longest.
            for byte in [bytes[i] ^ 1, bytes[i] ^ 0x80, 0xff] {
                damaged[i] = byte;
                check(&damaged);
            }
            damaged[i] = bytes[i];
        }
    }
}

#[test]
fn what_a_lowering_asks_is_there() {
    let module = read(file("matmul-13.5"));
    let f = module.function("matmul").expect("by name");
    assert_eq!((f.params().len(), module.functions().len()), (15, 1));
    assert_eq!(f.ty(f.params().next().expect("15")).scalar().and_then(Elem::pointee), Some(Num::F16));
    let hints = ["sm_90", "sm_90a", "sm_100", "sm_80"].map(|t| f.hints(t));
    // The file was made for sm_100, so that only its hints are there.
    assert_eq!(hints[2].num_cta_in_cga, Some(2));
    assert_eq!(hints[2].occupancy, Some(2));

    let find = |opcode| f.ops().find(|op| op.opcode() == opcode).expect("the kernel has it");
    let mma = find(Opcode::Mmaf);
    let shape = |v| f.ty(v).tile().map(|(elem, shape)| (elem, shape.to_vec()));
    assert_eq!(shape(mma.operand(Seg::Lhs).expect("lhs")), Some((Elem::Num(Num::F16), vec![64, 32])));
    assert_eq!(shape(mma.result(0).expect("result")), Some((Elem::Num(Num::F32), vec![64, 128])));
    assert!(!mma.has(Key::FastAcc) && mma.operands().len() == 3);
    assert_eq!(mma.source()[0].function, "matmul");
    assert_eq!(mma.source()[0].file, "/kernels/kernels.py");

    let loads: Vec<_> = f.ops().filter(|op| op.opcode() == Opcode::LoadViewTko).collect();
    assert_eq!(loads[0].hints("sm_100a").latency, Some(4));
    assert_eq!(loads[1].hints("sm_100a").allow_tma, Some(false));
    assert_eq!(loads[0].get::<Semantics>(Key::Semantics), Some(Semantics::Weak));
    assert_eq!((loads[0].list(Seg::Index).len(), loads[0].list(Seg::Mask).len()), (2, 0));
    assert!(!loads[0].inbounds(0) && loads[0].operand(Seg::Token).is_some());

    let looped = find(Opcode::For);
    let body = looped.regions().next().expect("one");
    assert_eq!(f.owner(body).map(|op| op.id), Some(looped.id));
    assert_eq!(f.region_params(body).len(), 2);
    assert!(f.region(body).any(|op| op.id == mma.id));
    assert_eq!(f.region(body).next_back().expect("ops").opcode(), Opcode::Continue);
    assert_eq!(f.def_op(looped.result(0).expect("one")).map(|op| op.id), Some(looped.id));

    let module = read(file("softmax-13.4"));
    let f = module.function("softmax").expect("by name");
    let compared = f.ops().find(|op| op.opcode() == Opcode::Cmpi).expect("bounds");
    assert!(compared.get::<Signedness>(Key::Signedness).is_some());
    assert_eq!(compared.get::<Rounding>(Key::Signedness), None);
    let gathered = f.ops().find(|op| op.opcode() == Opcode::LoadPtrTko).expect("gather");
    // The padding is a scalar that is spread over the tile.
    let mut padding = gathered.operand(Seg::Padding).and_then(|v| f.def_op(v)).expect("padding");
    while let Some(source) = padding.operand(Seg::Source) {
        padding = f.def_op(source).expect("a constant");
    }
    let result = padding.result(0).expect("one");
    assert!(matches!(f.ty(result), TypeData::Tile { shape, .. } if shape.is_empty()));
    let elements =
        module.elements(f.value_type(result), padding.get(Key::Value).expect("bytes")).expect("they fit");
    assert_eq!(elements.splat().map(|n| n.float()), Some(f64::NEG_INFINITY));
}

#[test]
fn errors_name_the_function_the_op_and_its_source() {
    let bytes = file("locks-13.2");
    let module = read(bytes);
    let f = module.function("locks").expect("by name");
    let op = f.ops().find(|op| op.opcode() == Opcode::Maxi).expect("inlined");
    let chain = op.source();
    assert_eq!((chain[0].function.as_str(), chain[1].function.as_str()), ("clamp", "locks"));
    assert!(chain[0].line != chain[1].line);
    let mut damaged = bytes.to_vec();
    damaged[op.offset().expect("read from bytes")] = 126;
    let (rest, errors) = Module::read_partly(&damaged, &Limits::default());
    assert_eq!((rest.functions().len(), errors.len()), (0, 1));
    let error = &errors[0];
    assert_eq!((error.code, error.offset), (Code::E1612, op.offset()));
    assert_eq!((error.function.as_deref(), error.op), (Some("locks"), Some((op.id.as_u32(), None))));
    assert_eq!(error.source, chain);
    assert!(error.to_string().contains("called from /kernels/kernels.py"), "{error}");
}

#[test]
fn text_of_a_kernel() {
    let text = read(file("vector_add-13.4")).to_string();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/vector_add-13.4.txt");
    if std::env::var_os("TILEAS_BLESS").is_some() {
        std::fs::write(path, &text).expect("writable");
    }
    assert!(
        std::fs::read_to_string(path).expect("there") == text,
        "the text differs; TILEAS_BLESS=1 rewrites it:\n{text}"
    );
}
