//! The command line from outside: exit statuses, files, messages.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const GEMM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gemm_f16.tileas");

/// Status, standard output, standard error.
fn tileas(args: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tileas"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // A program that fails before it reads closes the pipe.
    let _ = child.stdin.take().expect("piped").write_all(input);
    let output = child.wait_with_output().expect("ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn temp(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn compile_writes_ptx_and_metadata() {
    let out = temp("gemm.ptx");
    let (status, stdout, stderr) = tileas(&["compile", GEMM, "-o", out.to_str().expect("UTF-8")], b"");
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (0, "", ""));
    let ptx = std::fs::read_to_string(&out).expect("written");
    assert!(ptx.contains(".target sm_100a") && ptx.contains(".entry gemm_bias_relu"));
    let json = std::fs::read_to_string(temp("gemm.ptx.json")).expect("written");
    let metadata: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(metadata["kernels"][0]["kernel"], "gemm_bias_relu");
    assert_eq!(metadata["kernels"][0]["block"][0], 192);
    // Through pipes, and whatever is verified on the way: the same bytes.
    let text = std::fs::read(GEMM).expect("readable");
    for set in ["verify-passes=false", "verify-passes=true"] {
        let out = tileas(&["compile", "-", "--set", set], &text);
        assert_eq!(out, (0, ptx.clone(), String::new()), "{set}");
    }
    assert_eq!(tileas(&["compile", "-", "--emit", "metadata"], &text).1, json);
}

/// A file of cuTile Python.
fn bytecode(name: &str) -> String {
    format!("{}/tileas-tileir/tests/files/{name}.tileirbc", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn bytecode_is_compiled_as_text_is() {
    let file = bytecode("matmul-13.5");
    let (status, ir, stderr) = tileas(&["as", &file, "--emit", "ir", "-o", "-"], b"");
    assert!(status == 0 && stderr.contains("W1642: hint `num_cta_in_cga`"), "{stderr}");
    let (status, ptx, _) = tileas(&["as", &file, "--gpu-name", "sm_90", "--emit", "ptx", "-o", "-"], b"");
    assert!(status == 0 && ptx.contains(".target sm_90a"), "{ptx}");
    for args in [["compile", &file], ["compile", "-"]] {
        let input = if args[1] == "-" { ir.as_bytes() } else { b"" };
        assert_eq!(tileas(&[&args[..], &["--target", "sm_90a"]].concat(), input).1, ptx);
    }
    let (status, said, _) = tileas(&["explain", &file, "--target", "sm_90a"], b"");
    assert!(status == 0 && said.contains("agent1 load"), "{said}");
    // Each op of the loop with its place in the Python program.
    let places = said.split("Source\n").nth(1).unwrap_or_default();
    assert!(places.contains("async.dot") && places.contains("kernels.py:"), "{said}");
}

#[test]
fn bytecode_is_assembled_where_there_is_an_assembler() {
    let (file, out) = (bytecode("vector_add-13.4"), temp("vector_add.cubin"));
    let out = out.to_str().expect("UTF-8");
    // As cuTile does, and with what else the other assembler takes.
    let mut options = vec![&file, "-o", out, "--gpu-name", "sm_100", "-O3", "--lineinfo"];
    options.extend(["--remark-format=yaml", "--remarks=all", "--remarks-output-file=x", "--preview=a,b"]);
    options.extend(["--host-os=linux", "--host-arch", "x86_64", "--apply-controls=x", "-l", "x"]);
    let run = Command::new(env!("CARGO_BIN_EXE_tileas-as")).args(options).output().expect("starts");
    let stderr = String::from_utf8_lossy(&run.stderr);
    if run.status.success() {
        let cubin = std::fs::read(out).expect("written");
        assert!(cubin.starts_with(b"\x7fELF"));
        // A profiler shows the Python program.
        let holds = |name: &[u8]| cubin.windows(name.len()).any(|w| w == name);
        assert!(holds(b".debug_line") && holds(b"kernels.py"));
        assert!(Path::new(&format!("{out}.json")).exists());
    } else {
        assert!(stderr.contains("E1201") && std::env::var_os("TILEAS_REQUIRE_PTXAS").is_none(), "{stderr}");
    }
    // A file without kernels asks for the version only, one without a sense is an error with its place.
    let empty = temp("empty.tileirbc");
    for (minor, expected) in [(1, 0), (5, 0), (99, 1)] {
        let oldest = tileas_tileir::Version::OLDEST;
        let mut bytes = tileas_tileir::Module::new(oldest).write(oldest).expect("no kernels");
        bytes[9] = minor;
        std::fs::write(&empty, bytes).expect("writable");
        let (status, _, stderr) =
            tileas(&["as", "--gpu-name", "sm_120", empty.to_str().expect("UTF-8"), "-o", out], b"");
        assert_eq!(status, expected, "{minor}: {stderr}");
    }
    assert_eq!(tileas(&["as", &file, "--gpu-name", "sm_120", "-o", out], b"").0, 2);
    assert!(tileas(&["as", "--list-versions"], b"").1.ends_with("13.5\n"));
}

#[test]
fn ptx_names_lines_of_the_source() {
    let text = "kernel @k(%x: view<gmem, ?xf32>) {
  %t = tiled_load %x[0] : tile<32xf32>
  %y = addf %t, %t <{}> {loc = \"model.py:12:5\"}
  tiled_store %y, %x[0]
  return
}\n";
    let file = temp("lines.tileas");
    std::fs::write(&file, text).expect("writable");
    let file = file.to_str().expect("UTF-8");
    let (status, ptx, _) = tileas(&["compile", file, "--set", "line-info"], b"");
    let (own, python) = (format!(".file 1 \"{file}\"\n"), ".file 2 \"model.py\"\n");
    assert!(status == 0 && ptx.contains(&own) && ptx.contains(python), "{ptx}");
    let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
    let behind = |place: &str, op: &str| {
        let from = lines.iter().position(|l| *l == place).unwrap_or_else(|| panic!("{place}: {ptx}"));
        let piece = lines[from + 1..].iter().take_while(|l| !l.starts_with(".loc"));
        assert!(piece.clone().any(|l| l.contains(op)), "{op} behind {place}: {ptx}");
    };
    behind(".loc 1 2 3", "ld.global");
    behind(".loc 2 12 5", "add");
    behind(".loc 1 4 3", "st.global");
    assert!(!tileas(&["compile", file], b"").1.contains(".loc"));
}

#[test]
fn every_stage_can_be_shown() {
    for (stage, part) in [
        ("ir", "kernel @gemm_bias_relu"),
        ("constraints", "; pending []"),
        ("prepared", "async.tiled_tma_load"),
        ("placed", "; agent0 simt"),
        ("schedule", "ii = 512"),
        ("materialized", "async.pipeline.agent_switch"),
        ("nvvm", "gemm_bias_relu"),
        ("ptx", ".version"),
        ("metadata", "tensor_maps"),
    ] {
        let (status, stdout, stderr) = tileas(&["compile", GEMM, "--emit", stage], b"");
        assert_eq!((status, stderr.as_str()), (0, ""), "{stage}");
        assert!(stdout.contains(part), "{stage}:\n{stdout}");
    }
}

#[test]
fn several_kernels_are_one_module() {
    let one = std::fs::read_to_string(GEMM).expect("readable");
    let two = format!("{one}\n{}", one.replace("@gemm_bias_relu", "@other"));
    let (status, ptx, stderr) = tileas(&["compile", "-"], two.as_bytes());
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert_eq!(ptx.matches(".version").count(), 1);
    assert_eq!(ptx.matches(".entry").count(), 2);
    let (_, json, _) = tileas(&["compile", "-", "--emit", "metadata"], two.as_bytes());
    let metadata: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(metadata["kernels"].as_array().map(Vec::len), Some(2));
}

#[test]
fn schedules_of_kernels_and_graphs() {
    let (status, json, _) = tileas(&["schedule", GEMM, "--format", "json"], b"");
    assert_eq!(status, 0);
    let regions: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&regions[0]["schema"], &regions[0]["ii"]), (&"tileas-schedule/1".into(), &512.into()));
    // What it wrote is a problem it reads; the answer is the same schedule.
    let file = temp("loops.json");
    std::fs::write(&file, &json).expect("writable");
    let (status, again, stderr) =
        tileas(&["schedule", "--ddg", file.to_str().expect("UTF-8"), "--format", "json"], b"");
    assert_eq!(status, 0, "{stderr}");
    let again: serde_json::Value = serde_json::from_str(&again).expect("JSON");
    for key in ["ii", "stage_count", "bounds", "ops"] {
        assert_eq!(regions[0][key], again[0][key], "{key}");
    }
    assert!(tileas(&["schedule", GEMM, "--format", "gantt"], b"").1.contains("one column ="));
    let far = tileas(&["schedule", GEMM, "--format", "gantt", "--iterations", "4000000000"], b"");
    assert!(far.0 == 0 && far.1.contains("one column ="), "{}", far.2);
    assert!(tileas(&["schedule", GEMM, "--format", "svg"], b"").1.starts_with("<svg "));
    assert!(tileas(&["schedule", GEMM, "--format", "html"], b"").1.starts_with("<!doctype html>"));
    let (status, trace, _) =
        tileas(&["schedule", GEMM, "--format", "chrome-trace", "--iterations", "2"], b"");
    let trace: serde_json::Value = serde_json::from_str(&trace).expect("JSON");
    let issues = trace["traceEvents"].as_array().expect("a list").iter();
    let issues = issues.filter(|e| e["ph"] == "X" && e["cat"] != "slot").count();
    assert_eq!((status, issues), (0, 6));
    assert!(tileas(&["schedule", GEMM, "--set", "scheduler=serial"], b"").1.contains("serial"));
    #[cfg(feature = "optimal")]
    assert!(
        tileas(&["schedule", GEMM, "--set", "scheduler=optimal"], b"")
            .1
            .contains("exact mode: ii 512 optimal")
    );
    let (status, _, stderr) = tileas(&["schedule", "--ddg", "-"], b"{\"schema\": 1}");
    assert!(status == 1 && stderr.contains("error[E030"), "{stderr}");
}

#[test]
fn schedules_are_explained() {
    let (status, text, stderr) = tileas(&["explain", GEMM], b"");
    assert_eq!((status, stderr.as_str()), (0, ""));
    for part in
        ["slot smem: n 256 + ta 128 + tb 128 = 512 of 512", "Why not II 511", "Pipe_0 (data of ta, tb)"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let (_, graph, _) = tileas(&["schedule", GEMM, "--format", "json"], b"");
    let (status, json, _) = tileas(&["explain", "--ddg", "-", "--format", "json"], graph.as_bytes());
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((status, &json["graphs"][0]["ii"]), (0, &512.into()));
    assert_eq!(json["graphs"][0]["tighter"]["obstacles"][0]["full"]["there"], 511);
    assert!(tileas(&["explain", GEMM, "--format", "html"], b"").1.contains("What would change it"));
    let (status, _, stderr) = tileas(&["explain", "--ddg", "-"], b"{\"schema\": 1}");
    assert!(status == 1 && stderr.contains("error[E030"), "{stderr}");
    let (status, _, stderr) =
        tileas(&["explain", GEMM, "--set", "require-pipelining", "--set", "search.ii-cap=3"], b"");
    assert!(status == 1 && stderr.contains("error[E0401]"), "{stderr}");
    assert_eq!(tileas(&["explain"], b"").0, 2);
}

/// The drawing in the documentation is what its command draws; `TILEAS_BLESS=1` draws it again.
#[test]
fn the_committed_drawing_is_current() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/img/gemm-schedule.svg");
    let (status, drawing, _) = tileas(&["schedule", GEMM, "--format", "svg", "--iterations", "4"], b"");
    assert_eq!(status, 0);
    if std::env::var_os("TILEAS_BLESS").is_some() {
        std::fs::write(&file, &drawing).expect("writable");
    }
    assert_eq!(
        std::fs::read_to_string(&file).expect("readable"),
        drawing,
        "set TILEAS_BLESS=1 to draw again"
    );
}

#[test]
fn diagnostics_have_excerpts_and_status_1() {
    let (status, stdout, stderr) = tileas(&["check", "-"], b"kernel @k(%x: f32) {\n  %a = addf %x, %y\n}\n");
    assert_eq!((status, stdout.as_str()), (1, ""));
    for part in ["error[E0005]", "<stdin>:2:", "%a = addf %x, %y"] {
        assert!(stderr.contains(part), "{part} missing in\n{stderr}");
    }
    let (status, _, stderr) = tileas(&["compile", "-"], b"kernel @k() {\n  // \xff\n}");
    assert!(status == 1 && stderr.contains("<stdin>:2:6") && stderr.contains("0xff"), "{stderr}");
    let warned = b"kernel @k(%x: f32) {\n  %a = addf %x, %x <{tileas.schedule.constraint.gid = 7}>\n}\n";
    let (status, stdout, stderr) = tileas(&["check", "-"], warned);
    assert!(
        status == 0 && stderr.contains("warning[W0101]") && stderr.contains("warning[W0407]"),
        "{stdout}{stderr}"
    );
    assert_eq!(tileas(&["check", "-", "--set", "published.constraint-mode=strict"], warned).0, 0);
}

#[test]
fn usage_is_status_2_and_files_status_3() {
    for args in [
        &["compile"] as &[&str],
        &["compile", GEMM, "--emit", "sass"],
        &["compile", GEMM, "--set", "slice-regs=48"],
        &["compile", GEMM, "--set", "no-such-option=1"],
        &["compile", GEMM, "--target", "sm_80"],
        &["schedule", GEMM, "--ddg", "-"],
        &["fly"],
    ] {
        let (status, stdout, stderr) = tileas(args, b"");
        assert_eq!((status, stdout.as_str()), (2, ""), "{args:?}\n{stderr}");
        assert!(!stderr.is_empty());
    }
    assert_eq!(tileas(&["check", "/no/such/file"], b"").0, 3);
    assert_eq!(tileas(&["compile", GEMM, "-o", "/no/such/folder/out"], b"").0, 3);
}

#[test]
fn tables_and_options() {
    let (status, isa, _) = tileas(&["isa", "--target", "sm_103a"], b"");
    assert!(status == 0 && isa.contains("sm_103a") && isa.contains("tma"));
    // Whatever is listed can be compiled for.
    let list = tileas(&["isa", "--list"], b"").1;
    assert!(list.lines().any(|l| l == "sm_100a"));
    for cpu in list.lines() {
        let (status, ptx, stderr) = tileas(&["compile", GEMM, "--target", cpu], b"");
        assert!(status == 0 && ptx.contains(&format!(".target {cpu}\n")), "{cpu}: {stderr}");
    }
    let (status, _, stderr) = tileas(&["compile", GEMM, "--target", "sm_80"], b"");
    assert!(status != 0 && !stderr.contains("compute capability"), "{stderr}");
    let (status, options, _) = tileas(&["options"], b"");
    assert_eq!(status, 0);
    for o in tileas_codegen::Settings::list() {
        assert!(options.contains(&format!("{}={}\n", o.name, o.default)), "{}", o.name);
    }
    // The long help of the scheduler and `options` show the same list.
    let (_, help, _) = tileas(&["schedule", "--help"], b"");
    for o in tileas_codegen::Settings::list() {
        assert!(help.contains(&format!("{}={}", o.name, o.default)), "{}", o.name);
    }
    let (_, one, _) = tileas(&["options", "slice"], b"");
    assert!(one.starts_with("slice-regs=64") && one.contains("a power of two"));
}

#[test]
fn readers_may_go_away() {
    let text = std::fs::read(GEMM).expect("readable");
    let run = [
        "run", "-", "--arg", "a=8x8", "--arg", "b=8x8", "--arg", "bias=8", "--arg", "c=8x8", "--arg", "kt=1",
    ];
    for args in [&["compile", "-"] as &[&str], &["check", "-"], &["explain", "-"], &run] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tileas"));
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        // Nobody reads before anything is written: the program waits for its input.
        drop(child.stdout.take());
        child.stdin.take().expect("piped").write_all(&text).expect("is read");
        let output = child.wait_with_output().expect("ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.as_ref()), (Some(0), ""), "{args:?}");
    }
    // Nor has whoever reads messages to stay.
    let mut command = Command::new(env!("CARGO_BIN_EXE_tileas"));
    command.args(["check", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    drop(child.stderr.take());
    child.stdin.take().expect("piped").write_all(b"nonsense").expect("is read");
    assert_eq!(child.wait().expect("ends").code(), Some(1));
}

#[test]
fn check_finds_what_compile_refuses() {
    let refused = concat!(env!("CARGO_MANIFEST_DIR"), "/filetests/filetests/refused/e0502_rows.tileas");
    let compile = tileas(&["compile", refused], b"");
    assert!(compile.0 == 1 && compile.2.contains("error[E0502]"), "{}", compile.2);
    assert_eq!(tileas(&["check", refused], b""), compile);
    let (status, stdout, stderr) = tileas(&["check", refused, "--source-only"], b"");
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert!(stdout.contains("for no target"), "{stdout}");
    let (status, stdout, _) = tileas(&["check", GEMM, "--target", "sm_103a"], b"");
    assert!(status == 0 && stdout.ends_with("0 warnings, compiled for sm_103a\n"), "{stdout}");
}

#[test]
fn misspelt_names_are_guessed() {
    let text = |op: &str, attr: &str| {
        format!("kernel @k(%x: view<gmem, ?xf32>) {{\n  %i = {op} <{{{attr} = 0}}> : i32\n}}\n").into_bytes()
    };
    for (op, attr, guess) in [("progam_id", "axis", "program_id"), ("program_id", "aixs", "axis")] {
        let (status, _, stderr) = tileas(&["check", "-"], &text(op, attr));
        assert!(status == 1 && stderr.contains(&format!("did you mean `{guess}`?")), "{stderr}");
    }
    for (set, guess) in [
        ("slice_reg=64", "slice-regs"),
        ("published.constraint-mode=strct", "strict"),
        ("verify-passes=ture", "true"),
    ] {
        let (status, _, stderr) = tileas(&["check", GEMM, "--set", set], b"");
        assert!(status == 2 && stderr.contains(&format!("did you mean `{guess}`?")), "{stderr}");
    }
    assert!(!tileas(&["check", "-"], &text("zzz", "axis")).2.contains("did you mean"));
}

#[test]
fn all_errors_of_a_text_are_shown() {
    let text = b"kernel @k(%x: f32) {\n  %a = addd %x, %x\n  %b = addf %a, %x\n  %c = addf %x, %y\n}\n\
                 kernel @l(%x: f33) {\n}\nkernel @m() {\n  return )\n}\n";
    let (status, _, stderr) = tileas(&["check", "-"], text);
    let codes: Vec<&str> =
        stderr.lines().filter_map(|l| l.strip_prefix("error[")?.split(']').next()).collect();
    assert_eq!((status, codes), (1, vec!["E0004", "E0005", "E0006", "E0002"]), "{stderr}");
}

#[test]
fn tune() {
    let (svg, json, tuned) = (temp("tune.svg"), temp("tune.json"), temp("tuned.tileas"));
    let path = |p: &Path| p.to_str().expect("UTF-8").to_owned();
    let (svg_, json_, tuned_) = (path(&svg), path(&json), path(&tuned));
    let args = ["a=512x512", "b=512x512", "bias=512", "c=512x512", "kt=ceildiv(a.d1, bk)"];
    let mut line = vec!["tune", GEMM];
    args.iter().for_each(|a| line.extend(["--arg", a]));
    let none = |space: &'static str| {
        let mut line = line.clone();
        line.extend(["--space", space]);
        line
    };
    let mut first = line.clone();
    first.extend(["--space", "bm=c.d0:64,128", "--space", "bk=a.d1:32,64", "--exhaustive"]);
    first.extend(["--plot", &svg_, "--json", &json_, "-o", &tuned_]);
    let (status, stdout, stderr) = tileas(&first, b"");
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("4 of 4 points looked at\n") && stdout.contains("\nbest: bm="), "{stdout}");
    let looks: serde_json::Value =
        serde_json::from_slice(&std::fs::read(json).expect("is written")).expect("JSON");
    assert_eq!(looks.as_array().map_or(0, Vec::len), 4, "{looks}");
    assert!(std::fs::read_to_string(svg).expect("is written").starts_with("<svg"));
    let (status, _, stderr) = tileas(&["check", &tuned_], b"");
    assert_eq!((status, stderr.as_str()), (0, ""));

    let (status, list, _) = tileas(&["tune", GEMM, "--dimensions"], b"");
    assert_eq!((status, list.lines().count()), (0, 3), "{list}");
    for (space, code) in
        [("bk=a.d1:63", "E1501"), ("bk=d.d0:64", "E1502"), ("bm=c.d0:64", "E1503"), ("bk=a.d1:4", "E1504")]
    {
        let (status, _, stderr) = tileas(&none(space), b"");
        assert!(status != 0 && stderr.starts_with(&format!("error[{code}]")), "{space}: {stderr}");
    }
}

#[test]
fn kernels_are_selected_and_measured() {
    let kernel = |name: &str| {
        format!(
            "kernel @{name}(%x: view<gmem, ?xf32>) {{\n  %t = tiled_load %x[0] : tile<128xf32>\n  %r = addf %t, %t\n  \
             tiled_store %r, %x[0]\n  return\n}}\n"
        )
    };
    let text = kernel("one") + &kernel("two") + &kernel("three");
    let run = |set: &str, more: &[&str]| {
        let set = format!("select-kernels={set}");
        tileas(&[&["compile", "-", "--set", &set], more].concat(), text.as_bytes())
    };
    let entries = |set: &str| {
        let (_, out, _) = run(set, &[]);
        ["one", "two", "three"].map(|n| out.contains(&format!(".entry {n}(")))
    };
    assert_eq!(entries("all"), [true; 3]);
    assert_eq!(entries("two"), [false, true, false]);
    assert_eq!(entries("0,2-2"), [true, false, true]);
    assert_eq!(entries("1-5,one"), [true; 3]);
    for missing in ["four", "3"] {
        let (status, _, said) = run(missing, &[]);
        assert!(status != 0 && said.contains("E1003"), "{said}");
    }
    let (_, _, said) = run("two", &["--kernel-info=extended"]);
    assert!(said.contains("kernel-info: Allocas in function 'two' = 0\n"), "{said}");
    assert!(said.contains("kernel-info: fp_ops in function 'two' = ") && !said.contains("'one'"), "{said}");
    let (_, _, said) = run("two", &["--kernel-info"]);
    assert!(said.contains("kernel-info: FlatAddrspaceAccesses in function 'two' = 0\n"), "{said}");
    assert!(!said.contains("fp_ops"), "{said}");
}
