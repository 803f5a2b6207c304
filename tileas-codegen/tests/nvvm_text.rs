//! The text form of the thread-level IR: what prints parses, prints the same and emits the same PTX; errors are located;
//! no text makes the parser panic.

use crate::corpus;

use tileas_codegen::nvvm::{self, Module};
use tileas_codegen::testing::nvvm::{parse, verify};
use tileas_codegen::testing::ptx::{PtxEmitter, PtxOptions};
use tileas_codegen::{Code, Context, Settings};

fn text_of(module: &Module) -> String {
    let mut text = String::new();
    nvvm::print(module, &mut text);
    text
}

fn ptx_of(module: &Module) -> String {
    let mut found = Vec::new();
    let verified = verify(module, (9, 5), &mut found).unwrap_or_else(|| panic!("{found:?}"));
    let mut out = String::new();
    PtxEmitter::default().emit(verified, &PtxOptions::default(), &mut out);
    out
}

#[test]
fn every_kernel_prints_as_parsed_and_emits_the_same_ptx() {
    let mut context = Context::new();
    let mut seen = 0;
    for kernel in corpus::kernels() {
        for module in kernel.lower(&mut context, &Settings::default()) {
            let text = text_of(&module);
            let parsed =
                parse(&text).unwrap_or_else(|e| panic!("{}: {e} at {:?}", kernel.name, e.line_column(&text)));
            assert_eq!(text_of(&parsed), text, "{}", kernel.name);
            assert_eq!(ptx_of(&parsed), ptx_of(&module), "{}", kernel.name);
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen} kernels");
}

/// One function around a body.
fn around(body: &str) -> String {
    format!(
        "target sm_100a\nshared @smem dynamic align 1024\nglobal @g bytes 64 align 4\n\n\
         kernel @k(x: ptr<global, align 4>, n: u32) linkage visible {{\nbb0:\n{body}    ret\n}}\n"
    )
}

#[test]
fn errors_have_codes_and_places() {
    for (body, code, place) in [
        ("    fly.b32 %v0:b32, 1\n", Code::E0921, "fly.b32"),
        ("    mov.b32 %v0:b32 1\n", Code::E0920, "1"),
        ("    mov.b32 %v0:b33, 1\n", Code::E0920, "b33"),
        ("    mov.b32 %v0:b32, 1 2\n", Code::E0920, "2\n"),
        ("    mov.b32 %v0:b32, 0xg\n", Code::E0923, "0xg"),
        ("    mov.b32 %v9999999:b32, 0\n", Code::E0923, "%v9999999"),
        ("    ld.param.b32 %v0:b32, [m]\n", Code::E0922, "m]"),
        ("    mov.u32 %v0:b32, nowhere\n", Code::E0922, "nowhere"),
        ("    ld.shared.b32 %v0:b32, [smem+99999999999]\n", Code::E0923, "99999999999"),
        ("    mov.b32 %v0:b32, 1\n    mov.f32 %v0:f32, 0f00000000\n", Code::E0924, "%v0:f32"),
        (
            "    mov.f32 %v0:f32, 0f00000000\n    add.u32 %v1:b32, %v0, 1\n    mov.b64 %v2:b64, %v0 %v0\n",
            Code::E0920,
            "%v0\n",
        ),
        ("bb0:\n", Code::E0924, "bb0:\n    ret"),
        ("bb1 what:\n", Code::E0920, "what"),
        ("    @%v0 \n", Code::E0920, "\n    ret"),
        ("    @3 ret\n", Code::E0920, "3 ret"),
        ("    bra bb99999999\n", Code::E0923, "bb99999999"),
    ] {
        let text = around(body);
        let e = match parse(&text) {
            Ok(m) => panic!("accepted: {body}\n{}", text_of(&m)),
            Err(e) => e,
        };
        assert_eq!(e.code, code, "{body}{e}");
        let at = e.location.start as usize;
        assert!(
            text[at..].starts_with(place),
            "{body}{e}\nfound at {:?}",
            &text[at..(at + 20).min(text.len())]
        );
    }
    for (text, code) in [
        ("", Code::E0920),
        ("target sm_1", Code::E0922),
        ("target sm_100a\nkernel @k(", Code::E0920),
        ("target sm_100a\nkernel @k() linkage visible {\n", Code::E0920),
        ("target sm_100a\nkernel @k() linkage nowhere {\n}", Code::E0920),
        ("target sm_100a\nkernel @k() reqntid [1, 2] {\n}", Code::E0920),
        ("target sm_100a\nkernel @k() maxnreg 4294967296 {\n}", Code::E0923),
        ("target sm_100a\nkernel @k() {\n    ret\n}", Code::E0920),
    ] {
        assert_eq!(parse(text).map(|_| ()).expect_err(text).code, code, "{text}");
    }
}

#[test]
fn forms_of_one_mnemonic_are_told_apart() {
    let body = "    mov.u32 %v0:b32, %tid.x\n    mov.u32 %v1:b32, %clock\n    mov.u32 %v2:b32, smem\n    mov.u64 %v3:b64, g\n\
                \x20   mov.b64 %v4:b64, {%v0, %v1}\n    mov.b64 {%v5:f32, %v6:f32}, %v4\n    mov.b64 %v7:b64, %v4\n\
                \x20   mov.b32 %v8:b32, 0x00000001\n    mov.f32 %v9:f32, 0f3f800000\n    add.s64 %v10:b64, %v4, -0x12345678\n\
                \x20   ld.shared.b32 %v11:b32, [%v2+-8]\n    @!%v12 st.global.b32 [%v3+4], %v8 ; one ; two\n\
                \x20   setp.eq.u32 %v12:pred, %v0, 65536\n";
    let text = around(body);
    let module = parse(&text).unwrap_or_else(|e| panic!("{e} {:?}", e.line_column(&text)));
    let printed = text_of(&module);
    assert!(printed.contains("65536") || printed.contains("0x10000"), "{printed}");
    let f = &module.functions[0];
    let ops: Vec<String> = f.insts(f.layout()[0]).map(|i| format!("{:?}", f.op(i))).collect();
    assert_eq!(
        ops[..6].join(" "),
        "mov_special_u32 mov_clock_u32 mov_shared_u32 mov_global_u64 pack_b64_b32 unpack_b64_b32"
    );
    assert_eq!(text_of(&parse(&printed).expect("parses")), printed);
}

#[test]
fn no_text_panics() {
    let mut context = Context::new();
    let kernels = corpus::kernels();
    let gemm =
        kernels.iter().find(|k| k.name == "kernels/gemm_bias_relu").or(kernels.first()).expect("a kernel");
    let module = &gemm.lower(&mut context, &Settings::default())[0];
    let text = text_of(module);
    let short = around(
        "    mov.b64 {%v5:f32, %v6:f32}, %v4 ; x\n    tcgen05.ld.sync.aligned.32x32b.x2.b32 {%v0:b32, %v1:b32}, [%v2]\n",
    );
    arbtest::arbtest(|u| {
        let base = if u.arbitrary()? { &text } else { &short };
        let mut bytes = base.as_bytes().to_vec();
        for _ in 0..u.int_in_range(1..=6)? {
            let at = u.choose_index(bytes.len())?;
            match u.int_in_range(0..=4)? {
                0 => bytes[at] = *u.choose(b"%{}[]:;,@!\"-+0x9fbv \n")?,
                1 => bytes.truncate(at.max(1)),
                2 => {
                    let end = (at + u.int_in_range(1..=12)?).min(bytes.len());
                    bytes.drain(at..end);
                    if bytes.is_empty() {
                        bytes.push(b'x');
                    }
                }
                3 => {
                    let end = (at + u.int_in_range(1..=40)?).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    let to = u.choose_index(bytes.len())?;
                    bytes.splice(to..to, part);
                }
                _ => bytes.splice(at..at, "é".bytes()).for_each(drop),
            }
        }
        let Ok(mutated) = String::from_utf8(bytes) else { return Ok(()) };
        if let Ok(module) = parse(&mutated) {
            // What is accepted prints, and its print is stable.
            let printed = text_of(&module);
            if let Ok(again) = parse(&printed) {
                assert_eq!(text_of(&again), printed);
            }
            verify(&module, (9, 5), &mut Vec::new());
        }
        Ok(())
    })
    .budget_ms(1500);
}
