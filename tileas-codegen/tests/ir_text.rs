//! The text form: round trips, one error per code with its position, sugar, limits, random texts.

use tileas_codegen::ir::{
    AttrData, Function, Module, Opcode, ParseLimits, Scalar, TypeData, ValueNames, keys, parse_module,
    parse_module_with, print_function, print_module, print_op_line,
};
use tileas_codegen::{Code, CodegenError};

/// The source form of a GEMM with bias and ReLU, written as it prints.
const GEMM: &str = r#"target "sm_100a"

kernel @gemm_bias_relu(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %bias: view<gmem, ?xf16>, %c: view<gmem, ?x?xf16>, %kt: i32) {
  %bm = program_id <{axis = 0}> : i32
  %bn = program_id <{axis = 1}> : i32
  %da = make_tiled_tma_desc %a <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %db = make_tiled_tma_desc %b <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %z = constant 0.0 : tile<128x128xf32>
  %bt = tiled_load %bias[%bn] : tile<128xf16>
  %0 = constant 0 : i32
  %1 = constant 1 : i32
  %acc = for %i = %0 to %kt step %1 iter (%s = %z : tile<128x128xf32>) {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16>
    %tb = async.tiled_tma_load %db[%bn, %i] : tile<128x64xf16>
    %n = async.dot %ta, %tb, %s <{transpose_b, tileas.schedule.constraint.gid = 1 : i32, tileas.schedule.constraint.leader_gid = 1 : i32}> : tile<128x128xf32>
    yield %n
  }
  %bf = ftof %bt : tile<128xf32>
  %b1 = reshape %bf : tile<1x128xf32>
  %bb = broadcast %b1 : tile<128x128xf32>
  %x = addf %acc, %bb : tile<128x128xf32>
  %r = maxf %x, %z : tile<128x128xf32>
  %h = ftof %r : tile<128x128xf16>
  tiled_store %h, %c[%bm, %bn]
  return
}
"#;

/// The materialised form, shortened, written as it prints.
const MATERIALISED: &str = r#"kernel @gemm(%da: tma_desc<128x64xf16>, %dc: tma_desc<128x64xf16>, %bm: i32, %n0: i32, %kt: i32) <{num_threads = 192}> {
  %sA = alloc_tensor <{offset = 0, align = 1024}> : tile<4x128x64xf16, smem, k128>
  %s0 = alloc_tensor <{offset = 131072, align = 1024}> : tile<1x128x64xf16, smem, k128>
  %tD = alloc_tensor <{column = 0, owner_warp = 5}> : tile<1x128x128xf32, tmem, d128>
  %Pipe_0.p, %Pipe_0.c = async.pipeline.create_pipeline %sA <{numStages = 4 : i32, producerGroupId = 1, consumerGroupId = 2, distance = 0, full = tx(1, 32768), empty = commit(1)}> : pipe_producer<4>, pipe_consumer<4>
  %Pipe_1.p, %Pipe_1.c = async.pipeline.create_pipeline %tD <{numStages = 1 : i32, producerGroupId = 2, consumerGroupId = 0, full = commit(1), empty = none}> : pipe_producer<1>, pipe_consumer<1>
  %0 = constant 0 : i32
  %1 = constant 1 : i32
  async.pipeline.agent_switch <{num_agents_per_group = 1, num_warps = [4, 1, 1], warp_id = [0, 4, 5], lanes = [all, elect, elect], max_regs = [0, 0, 0]}> {
    agent 0 {
      %a0 = async.pipeline.create_iterator %Pipe_1.c : pipe_iter<1>
      %nk = cmpi %kt, %0 <{predicate = gt}> : i1
      %u1 = async.pipeline.consumer_wait %Pipe_1.c, %a0 <{consumer_idx = 0}> : pipe_consumer<1>
      %v0 = copy %tD[%a0], when(%nk) <{offsets = [0, 0], otherwise = 0.0 : f32}> : tile<128x64xf32, rmem, row>
      %h0 = ftof %v0 : tile<128x64xf16, rmem, row>
      copy %h0, %s0[%0]
      %t0 = async.tiled_tma_store %dc[%bm, %n0], %s0[%0] : async_token
      %r2 = async.pipeline.consumer_release %u1, %t0 <{bulk_pending = 1}> : pipe_consumer<1>
      async.pipeline.yield
    }
    agent 1 {
      %j0 = async.pipeline.create_iterator %Pipe_0.p : pipe_iter<4>
      %j1 = for %i = %0 to %kt step %1 iter (%j = %j0 : pipe_iter<4>) {
        %w = async.pipeline.producer_acquire %Pipe_0.p, %j : pipe_producer<4>
        %x = async.pipeline.producer_commit %w <{tx = 32768 : i32}> : pipe_producer<4>
        %ta = async.tiled_tma_load %da[%bm, %i], %sA[%j], %x : async_token
        %j2 = async.pipeline.inc_iter %j : pipe_iter<4>
        yield %j2
      }
      %2 = async.pipeline.producer_acquire %Pipe_0.p, %j1 <{drain}> : pipe_producer<4>
      async.pipeline.yield
    }
    agent 2 {
      %k0 = async.pipeline.create_iterator %Pipe_0.c : pipe_iter<4>
      %d0 = async.pipeline.create_iterator %Pipe_1.p : pipe_iter<1>
      %nz = cmpi %kt, %0 <{predicate = ne}> : i1
      %tok = async.dot %sA[%k0], %sA[%k0], %tD[%d0], %nz <{transpose_b, atom = tcgen05.f16.m128n128k16}> : async_token
      async.pipeline.yield
    }
  }
  return
}
"#;

/// Control flow, attribute values, both dictionaries; written as it prints.
const MIXED: &str = r#"kernel @first(%p: ptr<f32, gmem>, %t: mem_token, %v: view<smem, 3x?xe4m3>, %c: i1) {
  %0 = constant -1 : i64
  %1 = constant inf : f32
  %2 = constant <{value = 1 : i32, local = [1, -2.5e-7, "a\"\\\n\u{7f}é", tile<4xf32, dense>, x(), [], true, nan : f16]}> : i32
  if %c {
    %3 = constant 1 : i32
  }
  %4, %5 = if %c <{name}> attributes {a.b = "x", c} : i32, f32 {
    yield %2, %1
  } else {
    yield %2, %1
  }
  for %6 = %2 to %4 step %2 attributes {unroll = 4} {
    if %c {
    } else {
      %7 = addi %6, %2 {note = f16} : i32
    }
  }
  return
}

kernel @second() {
  return
}
"#;

fn parse(text: &str) -> Module {
    parse_module(text).unwrap_or_else(|e| panic!("{e} in\n{text}"))
}

fn error(text: &str) -> CodegenError {
    match parse_module(text) {
        Ok(m) => panic!("parsed, as\n{}", print_module(&m)),
        Err(e) => e[0].clone(),
    }
}

/// A kernel around ops.
fn kernel(ops: &str) -> String {
    format!("kernel @k(%x: f32, %n: i32, %v: view<gmem, ?xf32>, %t: tile<4x8xf32>) {{\n{ops}\n}}")
}

/// The body lines of the first kernel, as printed.
fn body(text: &str) -> Vec<String> {
    let printed = print_module(&parse(text));
    let lines: Vec<&str> = printed.lines().collect();
    lines[1..lines.len() - 1].iter().map(|l| l.trim().to_string()).collect()
}

#[test]
fn printed_text_is_a_fixed_point() {
    for text in [GEMM, MATERIALISED, MIXED] {
        assert_eq!(print_module(&parse(text)), text);
    }
}

#[test]
fn structure_behind_the_text() {
    let m = parse(GEMM);
    assert_eq!(m.target.as_deref(), Some("sm_100a"));
    let f = &m.functions[0];
    let ops = f.all_ops();
    let dot = *ops.iter().find(|&&o| f.opcode(o) == Opcode::AsyncDot).unwrap();
    assert_eq!(f.segments(dot), [1, 0, 1, 0, 1, 0, 0]);
    assert!(f.has_attr(dot, keys::TRANSPOSE_B));
    let range = f.op_loc(dot).range().unwrap();
    assert!(GEMM[range.clone()].starts_with("%n = async.dot"), "{}", &GEMM[range.clone()]);
    assert!(GEMM[range].ends_with(": tile<128x128xf32>"));
    let names = ValueNames::new(f);
    assert!(print_op_line(f, &names, dot).starts_with("%n = async.dot %ta, %tb, %s <{transpose_b, "));
    let parent = f.op_parent(dot).unwrap();
    assert_eq!(f.opcode(parent), Opcode::For);
    assert_eq!(
        print_op_line(f, &names, parent),
        "%acc = for %i = %0 to %kt step %1 iter (%s = %z : tile<128x128xf32>)"
    );
    let loop_range = f.op_loc(parent).range().unwrap();
    assert!(GEMM[loop_range].ends_with("yield %n\n  }"));
}

#[test]
fn destination_form_segments() {
    let m = parse(MATERIALISED);
    let f = &m.functions[0];
    let find = |opcode| f.all_ops().into_iter().filter(|&o| f.opcode(o) == opcode).collect::<Vec<_>>();
    assert_eq!(f.segments(find(Opcode::AsyncTiledTmaLoad)[0]), [1, 2, 1, 1, 1]);
    assert_eq!(f.segments(find(Opcode::AsyncDot)[0]), [1, 1, 1, 1, 1, 1, 1]);
    let copies = find(Opcode::Copy);
    assert_eq!(f.segments(copies[0]), [1, 1, 0, 0, 1, 0]);
    assert_eq!(f.segments(copies[1]), [1, 0, 1, 1, 0, 0]);
    let pipes = find(Opcode::AsyncPipelineCreatePipeline);
    let (name, counts) = f.attr_call(pipes[0], keys::FULL).unwrap();
    assert_eq!((name, &counts[..]), ("tx", &[1, 32768][..]));
    assert_eq!(f.value_name(f.results(pipes[0])[1]), Some("Pipe_0.c"));
}

#[test]
fn sugar_prints_written_out() {
    // Literal operands: typed by brackets (i32), by the other operand, by the bounds.
    let lines = body(&kernel("%a = tiled_load %v[3] : tile<4xf32>"));
    assert_eq!(lines[..2], ["%0 = constant 3 : i32", "%a = tiled_load %v[%0] : tile<4xf32>"]);
    let lines =
        body(&kernel("%a = maxf %t, 0\n%c = cmpf %a, 1.5 <{predicate = lt}>\n%s = select %c, 0.0, %a"));
    assert_eq!(
        lines[..6],
        [
            "%0 = constant 0.0 : tile<4x8xf32>",
            "%a = maxf %t, %0 : tile<4x8xf32>",
            "%1 = constant 1.5 : tile<4x8xf32>",
            "%c = cmpf %a, %1 <{predicate = lt}> : tile<4x8xi1>",
            "%2 = constant 0.0 : tile<4x8xf32>",
            "%s = select %c, %2, %a : tile<4x8xf32>",
        ]
    );
    let lines = body(&kernel("for %i = 0 to %n step 1 { %j = addi %i, 2 }"));
    assert_eq!(lines[2], "for %i = %0 to %n step %1 {");
    assert_eq!(lines[6], "return");
    // Comments in both styles, an empty else, types behind a terminator.
    let text = "kernel @f(%c: i1) { ; one\n if %c { yield } else { } // two\n %x = if %c : i1 { yield %c : i1 } else { yield %c } }";
    assert_eq!(
        print_module(&parse(text)),
        "kernel @f(%c: i1) {\n  if %c {\n  }\n  %x = if %c : i1 {\n    yield %c\n  } else {\n    yield %c\n  }\n  return\n}\n"
    );
    // A terminator without operands takes no names from the op behind it.
    let lines = body("kernel @f(%c: i1) { if %c { yield %x = constant 1 : i32 yield } }");
    assert_eq!(lines, ["if %c {", "yield", "%x = constant 1 : i32", "yield", "}", "return"]);
    let lines = body(
        "kernel @f() { %p, %q = async.pipeline.create_pipeline : pipe_producer<1>, pipe_consumer<1> %c = constant 1 : i32 }",
    );
    assert_eq!(lines[1], "%c = constant 1 : i32");
}

#[test]
fn terminators_are_put_back() {
    let m = parse(&kernel("for %i = 0 to %n step 1 { if %t2 {} }").replace("%n: i32", "%n: i32, %t2: i1"));
    let f = &m.functions[0];
    for op in f.all_ops() {
        for &r in f.regions(op) {
            let last = f.last_op(f.region_block(r)).unwrap();
            assert_eq!(f.opcode(last), Opcode::Yield);
        }
    }
    assert_eq!(f.opcode(f.last_op(f.entry()).unwrap()), Opcode::Return);
    let m = parse("kernel @f() { async.pipeline.agent_switch { agent 0 {} } }");
    let f = &m.functions[0];
    let switch = f.first_op(f.entry()).unwrap();
    let last = f.last_op(f.op_block_at(switch, 0).unwrap()).unwrap();
    assert_eq!(f.opcode(last), Opcode::AsyncPipelineYield);
}

/// Checks the error of a text in which `«` and `»` enclose the place it is reported at.
#[track_caller]
fn expect_error(marked: &str, code: Code, message: &str) {
    let start = marked.find('«').unwrap();
    let end = marked.find('»').unwrap() - '«'.len_utf8();
    let text = marked.replace(['«', '»'], "");
    let e = error(&text);
    assert_eq!(e.code, code, "{e}");
    assert_eq!(e.location.range(), Some(start..end), "{e}");
    assert!(e.message.contains(message), "{e}");
    assert!(e.message.contains("expected") || e.code == Code::E0008 || e.code == Code::E0007, "{e}");
    let line = marked[..start].matches('\n').count() + 1;
    assert_eq!(e.line_column(&text).map(|p| p.0), Some(line));
}

#[test]
fn errors_of_characters_tokens_and_numbers() {
    expect_error(&kernel("  %a = «#»"), Code::E0001, "`#`");
    expect_error("«é»", Code::E0001, "`é`");
    expect_error(&kernel("%a = addf %x, «%» x"), Code::E0001, "a name behind it");
    expect_error("kernel @f(«x»)", Code::E0002, "unexpected `x`, expected a value name");
    expect_error("kernel @f() {«»", Code::E0002, "unexpected end of text");
    expect_error(&kernel("%a = addf %x «%x»"), Code::E0002, "expected `,`");
    expect_error(&kernel("%a = addf «,» %x"), Code::E0002, "expected a value");
    expect_error(&kernel("%a = tiled_load %v[«]» : f32"), Code::E0002, "expected a value");
    expect_error(&kernel("%a = addi %n, «1.5»"), Code::E0002, "expected an integer of type i32");
    expect_error(
        "kernel @f() { async.pipeline.agent_switch { agent «1» {} } }",
        Code::E0002,
        "agent number 0",
    );
    expect_error(&kernel("%a = constant «9223372036854775808» : i64"), Code::E0003, "out of range");
    expect_error(&kernel("%a = constant «1e999» : f64"), Code::E0003, "out of range");
    expect_error(&kernel("%a = constant «12ab» : i32"), Code::E0003, "malformed number");
    expect_error("target «\"abc»", Code::E0003, "closing quote");
    expect_error("target \"a«\\q»\"", Code::E0003, "unknown escape");
    expect_error("target \"«\\é»\"", Code::E0003, "unknown escape");
    expect_error("kernel @f(%a: tile<4x«4294967296»xf32>) {}", Code::E0003, "out of range");
    expect_error("kernel @f(%a: pipe_iter<«-1»>) {}", Code::E0003, "out of range");
}

#[test]
fn errors_of_names_and_types() {
    expect_error(&kernel("%a = «addq» %x, %x"), Code::E0004, "`addq`");
    expect_error(&kernel("%a = addf %x, «%y»"), Code::E0005, "`%y`");
    expect_error(&kernel("%a = addf %x, «%a»"), Code::E0005, "`%a`");
    expect_error(&kernel("«%x» = constant 1 : i32"), Code::E0005, "defined twice");
    expect_error("kernel @f(%a: i32, «%a»: i32) {}", Code::E0005, "defined twice");
    expect_error(
        &kernel("for %i = 0 to %n step 1 { %j = addi %i, 1 «%j» = addi %i, 2 }"),
        Code::E0005,
        "twice",
    );
    expect_error(&kernel("for %i = 0 to %n step 1 { for «%i» = 0 to %n step 1 {} }"), Code::E0005, "twice");
    expect_error("kernel @f(%a: «u8») {}", Code::E0006, "`u8`");
    expect_error("kernel @f(%a: tile<«4xq7»>) {}", Code::E0006, "`4xq7`");
    expect_error("kernel @f(%a: tile<«?xf32»>) {}", Code::E0006, "extents");
    expect_error("kernel @f(%a: tile<«0xf32»>) {}", Code::E0006, "at least 1");
    expect_error("kernel @f(%a: tile<4xf32, «moon»>) {}", Code::E0006, "a layout");
    expect_error("kernel @f(%a: view<«lmem», 4xf32>) {}", Code::E0006, "`gmem`");
    expect_error(&kernel("«%a = reshape %t»"), Code::E0007, "needs its result type");
    expect_error(&kernel("«%a, %b = addf %x, %x : f32»"), Code::E0007, "2 result names but 1");
    expect_error(&kernel("«%a = for %i = 0 to %n step 1» {}"), Code::E0007, "0 iteration values");
    expect_error(&kernel("«%a = return»"), Code::E0007, "result names, expected none");
    expect_error(&kernel("%a = addf «1.0», 2.0"), Code::E0007, "literal `1.0`");
    expect_error(&kernel("if %n { «yield %n : f32» }"), Code::E0007, "other types");
    expect_error("kernel @f() <{a = 1, «a» = 2}> {}", Code::E0009, "`a` given twice");
    expect_error(&kernel("%a = constant 1 <{«value» = 2}> : i32"), Code::E0009, "given twice");
}

#[test]
fn names_are_reused_where_the_first_is_not_visible() {
    // Sibling loops, both arms, a loop and its result; the second `%i` counts behind the loop that had one.
    let text = kernel(
        "  %r = for %i = %n to %n step %n iter (%s = %x : f32) {
    %r = addf %s, %s : f32
    yield %r
  }
  %c = cmpi %n, %n <{predicate = eq}> : i1
  if %c {
    %q = addf %r, %r : f32
  } else {
    %q = mulf %r, %r : f32
    for %i = %n to %n step %n {
    }
  }
  %i = addi %n, %n : i32
  return",
    );
    let m = parse(&text);
    assert_eq!(print_module(&m).trim_end(), text);
    let f = &m.functions[0];
    let by = |name: &str| {
        let ops = f.all_ops().into_iter();
        ops.filter(|&op| f.result(op).and_then(|v| f.value_name(v)) == Some(name)).collect::<Vec<_>>()
    };
    let (r, q) = (by("r"), by("q"));
    assert_eq!((r.len(), q.len()), (2, 2));
    // The last `%r` is the loop's; both arms read it.
    assert_eq!(f.opcode(r[0]), Opcode::For);
    for op in q {
        assert_eq!(f.operands(op)[0], f.results(r[0])[0]);
    }
}

#[test]
fn what_the_verifier_judges_parses_and_prints_to_a_fixed_point() {
    for ops in [
        "%a = addf %x : f32",
        "%a = addf : f32",
        "%a = addf %x, %x, %x",
        "%a, %b = addf %x, %x : f32, f32",
        "for %i = 0 to %n step 1 {}\n%b = addi %n, %i",
        "return %a = addf %x, %x",
        "for %i = 0 to %n step 1 { yield yield }",
        "for %i = 0 to %n step 1 { yield %a = addf %x, %x yield }",
        "%a = if %n : i32 { yield %n }",
        "%a = if %n : i32 { } else { }",
        "%a = for %i = 0 to %n step 1 iter (%s = %x) { }",
    ] {
        let m = parse(&kernel(ops));
        let text = print_module(&m);
        assert_eq!(print_module(&parse(&text)), text, "{ops}");
        assert!(!tileas_codegen::ir::verify_module(&m).is_empty(), "{ops}");
    }
}

#[test]
fn limits_are_kept() {
    let small = ParseLimits { max_ops: 3, max_nesting: 2, max_bytes: 120, max_tile_elements: Some(64) };
    let code = |text: &str| parse_module_with(text, &small).map(|m| print_module(&m)).map_err(|e| e[0].code);
    assert!(
        code("kernel @f(%t: tile<8x8xf32>) { %a = addf %t, %t  %b = addf %a, 1.0 }")
            .is_err_and(|c| c == Code::E0010)
    );
    assert!(code("kernel @f(%t: tile<8x8xf32>) { %a = addf %t, %t  %b = addf %t, %t }").is_ok());
    assert_eq!(code("kernel @f(%t: tile<8x16xf32>) {}"), Err(Code::E0010));
    assert_eq!(code("kernel @f(%c: i1) { if %c { if %c { } } }"), Err(Code::E0008));
    assert_eq!(code("kernel @f() <{a = [[[[1]]]]}> {}"), Err(Code::E0008));
    assert!(code("kernel @f() <{a = [[1]]}> {}").is_ok());
    assert_eq!(code(&" ".repeat(121)), Err(Code::E0010));
    expect_error("kernel @f(%t: tile<«65536x65536x65537xf32»>) {}", Code::E0010, "too many elements");
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    // The deepest nesting any setting allows, on a thread with the default 2 MiB of stack.
    let limits = ParseLimits { max_nesting: usize::MAX, ..ParseLimits::default() };
    let nest = |n: usize| format!("kernel @f(%c: i1) {{{}{}}}", "if %c {".repeat(n), "}".repeat(n));
    let m = parse_module_with(&nest(255), &limits).unwrap();
    let text = print_module(&m);
    assert_eq!(print_module(&parse_module_with(&text, &limits).unwrap()), text);
    assert_eq!(parse_module_with(&nest(256), &limits).err().map(|e| e[0].code), Some(Code::E0008));
    assert_eq!(parse_module_with(&nest(100_000), &limits).err().map(|e| e[0].code), Some(Code::E0008));
    let lists = format!("kernel @f() <{{a = {}", "x([".repeat(100_000));
    assert_eq!(parse_module_with(&lists, &limits).err().map(|e| e[0].code), Some(Code::E0008));
    // One level is left for the kernel itself, so the default of 64 admits 63 nested ops.
    assert!(parse_module(&nest(63)).is_ok());
    assert_eq!(error(&nest(64)).code, Code::E0008);
}

#[test]
fn names_print_unique_and_legal() {
    let mut f = Function::new("odd name");
    let ty = f.scalar(Scalar::I32);
    for name in ["x", "x", "x_1", "7", "a b", "x", "", "%é"] {
        let v = f.add_block_param(f.entry(), ty);
        f.set_value_name(v, name);
    }
    let text = print_function(&f);
    assert!(
        text.starts_with(
            "kernel @odd_name(%x: i32, %x_1: i32, %x_1_1: i32, %0: i32, %a_b: i32, %x_2: i32, %1: i32, %__: i32) {"
        ),
        "{text}"
    );
    assert_eq!(
        print_module(&parse(&text.replace("}\n", "  return\n}\n"))),
        text.replace("}\n", "  return\n}\n")
    );
}

#[test]
fn modules_built_wrong_still_print() {
    let mut f = Function::new("f");
    let ty = f.intern_type(TypeData::tile(&[4], Scalar::F32));
    let lost = f.make_op(Opcode::Constant, &[], &[], &[ty], Default::default());
    let lost = f.results(lost)[0];
    let user = f.make_op(Opcode::Negf, &[lost], &[1], &[ty], Default::default());
    let bare = f.make_op(Opcode::For, &[], &[], &[], Default::default());
    let odd = f.make_op(Opcode::If, &[], &[], &[ty], Default::default());
    let call = f.intern_symbol("not a word");
    f.set_attr(odd, keys::NAME, AttrData::Name(call));
    for op in [user, bare, odd] {
        f.append_op(f.entry(), op);
    }
    let text = print_function(&f);
    assert!(text.contains("%0 = negf %<v0> : tile<4xf32>"), "{text}");
    assert!(text.contains("%1 = if <{name = \"not a word\"}> : tile<4xf32> {"), "{text}");
    assert!(parse_module(&text).is_err());
}

/// Parsing never panics; what parses prints to a fixed point.
fn check_any(text: &str) {
    let Ok(m) = parse_module(text) else { return };
    let once = print_module(&m);
    let again = parse_module(&once).unwrap_or_else(|e| panic!("{e}\nprinted:\n{once}\nfrom:\n{text}"));
    assert_eq!(print_module(&again), once, "from:\n{text}");
}

#[test]
fn random_bytes() {
    arbtest::arbtest(|u| {
        let bytes: Vec<u8> = u.arbitrary()?;
        check_any(&String::from_utf8_lossy(&bytes));
        Ok(())
    })
    .budget_ms(300);
}

#[test]
fn random_edits_of_valid_text() {
    // Pieces a random splice is made of: every token of the samples, so that many results parse.
    let pieces: Vec<&str> = [GEMM, MATERIALISED, MIXED]
        .into_iter()
        .flat_map(|t| t.split_inclusive([' ', ',', '\n', '[', ']', '(', ')']))
        .chain([
            "0",
            "-1.5e3",
            "nan",
            "%0",
            "{",
            "}",
            "}>",
            "<{",
            "\"",
            "\\",
            ";",
            "é",
            "else {",
            "yield",
            "addi %0, 3",
        ])
        .collect();
    arbtest::arbtest(|u| {
        let mut text = u.choose(&[GEMM, MATERIALISED, MIXED])?.to_string();
        for _ in 0..u.int_in_range(1..=3)? {
            let mut cuts = [u.int_in_range(0..=text.len())?, 0];
            cuts[1] = (cuts[0] + u.int_in_range(0..=12)?).min(text.len());
            if text.is_char_boundary(cuts[0]) && text.is_char_boundary(cuts[1]) {
                let piece: &str = u.choose(&pieces)?;
                text.replace_range(cuts[0]..cuts[1], piece);
            }
        }
        check_any(&text);
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn random_programs_of_pieces() {
    let lines = [
        "%A = constant 1 : i32",
        "%A = constant nan : tile<4xf32>",
        "%A = addi %B, 3",
        "%A = maxf %B, 0 : tile<4xf32, rmem, row>",
        "%A = select %B, %B, 1",
        "%A, %B = if %n : i32, i32 { yield %n, %n } else { yield %n, %n }",
        "if %n {",
        "} else {",
        "}",
        "for %A = 0 to %n step 2 {",
        "%A = for %B = %n to 4 step 1 iter (%C = %n) {",
        "yield",
        "yield %B",
        "yield %A : i32",
        "return",
        "copy %A, %B[%n, 2], when(%n) {x = [1, y(2)]}",
        "%A = copy %n[1] : i32",
        "async.pipeline.agent_switch { agent 0 { } agent 1 {",
        "async.pipeline.create_pipeline %A, %n : i1, i1",
    ];
    let names = ["n", "a", "b.c", "0", "1", "2"];
    arbtest::arbtest(|u| {
        let mut text = "kernel @k(%n: i32) {\n".to_string();
        let mut open = 1;
        for _ in 0..u.int_in_range(1..=12)? {
            let mut line = u.choose(&lines)?.to_string();
            for hole in ["%A", "%B", "%C"] {
                line = line.replace(hole, &format!("%{}", u.choose(&names)?));
            }
            open += line.matches('{').count() as i32 - line.matches('}').count() as i32;
            text += &line;
            text.push('\n');
        }
        text += &"}".repeat(open.max(0) as usize);
        check_any(&text);
        Ok(())
    })
    .budget_ms(700);
}
