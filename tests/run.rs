//! `tileas run` from outside: results, comparisons, faults, wrong usage.

use std::path::{Path, PathBuf};
use std::process::Command;

const GEMM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gemm_f16.tileas");

/// Status, standard output, standard error.
fn tileas(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tileas")).args(args).output().expect("starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn temp(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Writes a file; its name.
fn file(name: &str, contents: impl AsRef<[u8]>) -> String {
    let path = temp(name);
    std::fs::write(&path, contents).expect("writable");
    path.to_str().expect("UTF-8").to_owned()
}

/// The arguments of the example kernel with the rest of a command line.
fn gemm<'a>(file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["run", file];
    for arg in ["a=200x136", "b=136x136", "bias=136xf16", "c=200x136:nan", "kt=ceildiv(a.d1, 64)"] {
        all.extend(["--arg", arg]);
    }
    all.extend(more);
    all
}

#[test]
fn a_kernel_agrees_with_its_source_and_a_formula() {
    let expect = "c=relu(a @ b.T + bias)";
    let (status, out, err) = tileas(&gemm(GEMM, &["--check", "--expect", expect, "--tol", "exact"]));
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    for part in [
        "gemm_bias_relu: grid 2 x 2 x 1, 192 threads",
        "fast: 1 runs",
        "c: 200x136xf16, 27200 changed, hash ",
        "a: 200x136xf16, 0 changed",
        "c: 27200 elements agree with the source, exactly",
        "c: 27200 elements agree with the formula, exactly",
    ] {
        assert!(out.contains(part), "{part} missing in\n{out}");
    }
    // The same bytes again, and others from another seed.
    let again = tileas(&gemm(GEMM, &["--mode", "latest,random", "--seeds", "2"])).1;
    let line = |text: &str| text.lines().find(|l| l.starts_with("c: ")).map(str::to_owned);
    assert_eq!(line(&out), line(&again));
    assert!(again.contains("random: 2 runs") && again.contains("latest: 2 runs"), "{again}");
    assert_ne!(line(&out), line(&tileas(&gemm(GEMM, &["--seed", "9"])).1));
    let (status, out, err) = tileas(&gemm(GEMM, &["--expect", "c=a @ b.T + bias"]));
    assert_eq!(status, 1, "{out}");
    assert!(err.contains("error[result]: fast: c[") && err.contains("says the formula"), "{err}");
}

#[test]
fn rounding_errors_are_relative_to_the_sum_of_magnitudes() {
    let mut args = gemm(GEMM, &["--check", "--arg", "alpha=1"]);
    args.truncate(args.len() - 2);
    for a in &mut args {
        if *a == "a=200x136" {
            *a = "a=200x136:normal";
        }
        if *a == "b=136x136" {
            *a = "b=136x136xf16:normal:77";
        }
    }
    let (status, out, err) = tileas(&args);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("within 1.953125e-3 of the scale"), "{out}");
    args.extend(["--expect", "c=relu(a @ b.T + bias)", "--scale", "c=abs(a) @ abs(b).T + abs(bias)"]);
    assert_eq!(tileas(&args).0, 0);
    args.extend(["--tol", "2^-30"]);
    assert_eq!(tileas(&args).0, 1);
}

#[test]
fn ptx_with_metadata_files_and_traces() {
    let ptx = temp("run_gemm.ptx").to_str().expect("UTF-8").to_owned();
    assert_eq!(tileas(&["compile", GEMM, "-o", &ptx]).0, 0);
    let (npy, raw, trace) = (temp("c.npy"), temp("c.bin"), temp("trace.json"));
    let (npy, raw, trace) =
        (npy.display().to_string(), raw.display().to_string(), trace.display().to_string());
    let (to_npy, to_raw) = (format!("c={npy}"), format!("c={raw}"));
    let more = ["-o", &to_npy, "--trace", &trace, "--launch", &format!("{ptx}.json")];
    let (status, first, err) = tileas(&gemm(&ptx, &more));
    assert_eq!((status, err.as_str()), (0, ""), "{first}");
    assert_eq!(tileas(&gemm(&ptx, &["-o", &to_raw])).0, 0, "the metadata beside the file");
    let (npy_bytes, raw_bytes) =
        (std::fs::read(&npy).expect("written"), std::fs::read(&raw).expect("written"));
    assert!(npy_bytes.starts_with(b"\x93NUMPY") && npy_bytes.ends_with(&raw_bytes));
    assert_eq!(raw_bytes.len(), 2 * 200 * 136);
    let events: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&trace).expect("written")).expect("JSON");
    let names: Vec<&str> =
        events.as_array().expect("a list").iter().filter_map(|e| e["args"]["name"].as_str()).collect();
    for lane in ["warp 0", "TMA load", "TMA store", "tensor pipe"] {
        assert!(names.contains(&lane), "{lane} missing in {names:?}");
    }
    // What was written is read: as the kernel's output it is all there already.
    for from in [format!("c=@{npy}"), format!("c=200x136xf16:@{raw}")] {
        let mut args = gemm(&ptx, &[]);
        for a in &mut args {
            if a.starts_with("c=") {
                *a = &from;
            }
        }
        let (status, out, err) = tileas(&args);
        assert_eq!(status, 0, "{err}");
        assert!(out.contains("c: 200x136xf16, 0 changed"), "{out}");
    }
    let (status, _, err) = tileas(&gemm(&ptx, &["--check"]));
    assert!(status == 2 && err.contains("--expect"), "{err}");
}

#[test]
fn statistics_of_the_first_run() {
    let json = temp("stats.json").display().to_string();
    let more = ["--mode", "latest,random", "--seeds", "2", "--stats", "--stats-json", &json];
    let (status, out, err) = tileas(&gemm(GEMM, &more));
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    let table = out.find("statistics of latest, seed 1: 24 warps").expect("a table");
    for part in ["global memory", "bulk loads", "shared memory", "mbarrier waits", "tcgen05.mma"] {
        assert!(out[table..].contains(part), "{part} missing in\n{out}");
    }
    let text = std::fs::read_to_string(&json).expect("written");
    let doc: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&doc["kernel"], &doc["run"]), (&"gemm_bias_relu".into(), &"latest, seed 1".into()));
    let s: tileas_emu::Stats = serde_json::from_value(doc["stats"].clone()).expect("statistics");
    // Three steps along K in four CTAs, with a tile of each operand.
    assert_eq!((s.warps, s.bulk_loads.requests), (24, 24));
    assert_eq!(s.lines.iter().map(|l| l.executed).sum::<u64>(), s.total.instructions);
    // The same every time; and without the option none.
    assert_eq!(tileas(&gemm(GEMM, &more)).1, out);
    assert_eq!(std::fs::read_to_string(&json).expect("written"), text);
    assert!(!tileas(&gemm(GEMM, &[])).1.contains("statistics"));
    let (status, _, err) = tileas(&gemm(GEMM, &["--stats", "--mode", "explore"]));
    assert!(status == 2 && err.contains("explore stands alone"), "{err}");
}

/// Ones whose warps work in pairs and in turns, with `wgmma`, as libraries have them.
#[test]
fn kernels_by_hand_for_hopper() {
    let data = |name: &str| format!("{}/tileas-emu/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let softmax = "o=(exp2((q[0] @ k[0].T) * c - max((q[0] @ k[0].T) * c, axis=1)[0:, None]) @ v[0] \
        / sum(exp2((q[0] @ k[0].T) * c - max((q[0] @ k[0].T) * c, axis=1)[0:, None]), axis=1)[0:, None]).reshape(1, 128, 128)";
    let rows: [(&str, &[&str], &str); 2] = [
        (
            "gemm_coop_sm90a",
            &["a=200x136", "b=264x136", "bias=264", "c=200x264:nan", "kt=3", "mt=2", "nt=2"],
            "c=relu(a @ b.T + bias)",
        ),
        (
            "attention_fwd_sm90a",
            &["q=1x128x128", "k=1x200x128", "v=1x200x128", "o=1x128x128:nan", "nk=200", "c=0.1275"],
            softmax,
        ),
    ];
    for (name, given, expect) in rows {
        let (ptx, launch) = (data(&format!("{name}.ptx")), data(&format!("{name}.json")));
        let mut args =
            vec!["run", &ptx, "--launch", &launch, "--sms", "2", "--mode", "latest,random", "--seeds", "3"];
        // Probabilities are rounded to f16: an error is relative to all that was added.
        let scale = if name.starts_with("gemm") { "c=1" } else { "o=2" };
        args.extend(given.iter().flat_map(|a| ["--arg", a]));
        args.extend(["--reconverge", "--expect", expect, "--scale", scale]);
        let (status, out, err) = tileas(&args);
        assert_eq!((status, err.as_str()), (0, ""), "{name}\n{out}");
        assert!(out.contains("agree with the formula"), "{out}");
    }
}

const HEAD: &str = ".version 8.6\n.target sm_100a\n.address_size 64\n";

/// Each thread adds `n` to its word.
fn add(body: &str) -> String {
    format!(
        "{HEAD}.visible .entry add(.param .u64 p, .param .u32 n) {{
  .reg .b64 %rd<3>; .reg .b32 %r<4>;
  ld.param.u64 %rd0, [p]; ld.param.u32 %r0, [n];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd1, %r1, 4, %rd0;
  {body}
  ret;
}}\n"
    )
}

#[test]
fn plain_ptx_takes_pointers_and_scalars() {
    let good = file(
        "add.ptx",
        add("ld.global.u32 %r2, [%rd1];\n  add.u32 %r2, %r2, %r0;\n  st.global.u32 [%rd1], %r2;"),
    );
    let base = ["run", &good, "--block", "64", "--arg", "p=64xi32:ramp", "--arg", "n=5"];
    let (status, out, err) = tileas(&[&base[..], &["--expect", "p=p + n"]].concat());
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("p: 64xi32, 64 changed") && out.contains("-120 to -57: -120 -119"), "{out}");
    let (status, out, err) = tileas(&[&base[..], &["--mode", "explore"]].concat());
    assert!(status == 0 && out.contains("all orders"), "{out}{err}");
    // Everything that can be wrong with a launch says so, with status 2.
    for (args, part) in [
        (vec!["run", &good, "--arg", "p=64xi32", "--arg", "n=5"], ".reqntid"),
        (
            vec!["run", &good, "--block", "33", "--arg", "p=64xi32", "--arg", "n=5"],
            "a block of [33, 1, 1] threads",
        ),
        (vec!["run", &good, "--block", "64", "--arg", "p=64xi32"], "no --arg for n"),
        ([&base[..], &["--arg", "q=1"]].concat(), "no such parameter"),
        ([&base[..], &["--arg", "n=6"]].concat(), "given twice"),
        ([&base[..], &["--kernel", "sub"]].concat(), "no kernel sub"),
        ([&base[..], &["--max-bytes", "255"]].concat(), "--max-bytes"),
        ([&base[..], &["--expect", "p=p +"]].concat(), "expected a number"),
        ([&base[..], &["--expect", "q=1"]].concat(), "no such tensor"),
        ([&base[..], &["--scale", "p=1"]].concat(), "without --expect"),
        ([&base[..], &["-o", "q=x"]].concat(), "no such tensor"),
        ([&base[..], &["--mode", "explore,fast"]].concat(), "stands alone"),
        ([&base[..], &["--mode", "slow"]].concat(), "slow"),
        ([&base[..], &["--grid", "0"]].concat(), "above 0"),
        ([&base[..], &["--seeds", "0"]].concat(), "0"),
        ([&base[..], &["--tol", "near"]].concat(), "power"),
        ([&base[..], &["--set", "verify-passes=false"]].concat(), ".tileas"),
        (vec!["run", &good, "--block", "64", "--arg", "p=64xi32", "--arg", "n=4294967296"], "does not fit"),
        (vec!["run", &good, "--block", "64", "--arg", "p=64xi32", "--arg", "n=64xi32"], "4 bytes"),
        (vec!["run", &good, "--block", "64", "--arg", "p=999999999999999xi32", "--arg", "n=1"], "bytes"),
        (vec!["run", &good, "--block", "64", "--arg", "p=64xi32:often", "--arg", "n=1"], "--arg p"),
        (vec!["run", GEMM, "--arg", "a=200xq7"], "there is no --arg for"),
        (vec!["run", GEMM, "--block", "64"], ".ptx"),
    ] {
        let (status, _, err) = tileas(&args);
        assert_eq!(status, 2, "{args:?}\n{err}");
        assert!(err.contains(part), "{part} missing for {args:?}\n{err}");
    }
    let missing = ["run", &good, "--block", "64", "--arg", "p=64xi32:@/no/such", "--arg", "n=1"];
    assert_eq!(tileas(&missing).0, 3);
    assert_eq!(tileas(&["run", "/no/such.ptx"]).0, 3);
    assert_eq!(tileas(&[&base[..], &["-o", "p=/no/such/folder"]].concat()).0, 3);
    let short = file("short.bin", [0; 7]);
    let arg = format!("p=64xi32:@{short}");
    let (status, _, err) = tileas(&["run", &good, "--block", "64", "--arg", &arg, "--arg", "n=1"]);
    assert!(status == 2 && err.contains("7 bytes"), "{err}");
}

#[test]
fn clusters() {
    let pairs = concat!(env!("CARGO_MANIFEST_DIR"), "/tileas-emu/tests/data/cluster_pairs_sm90a.ptx");
    let tensors = ["--arg", "x=1024xf32:ramp", "--arg", "y=1024xf32:nan"];
    let run = |more: &[&str]| tileas(&[&["run", pairs][..], &tensors, more].concat());
    // Rows of 128: each pair of them changes places.
    let (status, out, err) = run(&["--grid", "8", "--mode", "latest,random", "--seeds", "3"]);
    assert!(status == 0 && out.contains("y: 1024xf32, 1024 changed"), "{out}{err}");
    let json = pairs.replace(".ptx", ".json");
    let (status, with, err) = run(&["--launch", &json, "--mode", "latest,random", "--seeds", "3"]);
    assert_eq!((status, err.as_str()), (0, ""));
    let result = |text: &str| text.lines().find(|l| l.starts_with("y:")).map(str::to_owned);
    assert_eq!(result(&with), result(&out));
    for (more, part) in [
        (vec!["--grid", "3"], "is not made of clusters"),
        (vec!["--grid", "4", "--cluster", "4"], ".reqnctapercluster"),
        (vec!["--grid", "9", "--launch", &json], "E1106"),
    ] {
        let (status, _, err) = run(&more);
        assert!(status == 2 && err.contains(part), "{part} missing for {more:?}\n{err}");
    }
}

#[test]
fn faults_show_the_line() {
    let race = file(
        "race.ptx",
        add("and.b32 %r2, %r1, 31;\n  mad.wide.u32 %rd1, %r2, 4, %rd0;\n  st.global.u32 [%rd1], %r1;"),
    );
    let args = |name| ["run", name, "--block", "64", "--arg", "p=64xi32", "--arg", "n=5"];
    let (status, _, err) = tileas(&args(&race));
    assert_eq!(status, 1, "{err}");
    for part in ["error[race]", "race.ptx:11:3", "st.global.u32 [%rd1], %r1;", "run: fast; CTA 0"] {
        assert!(err.contains(part), "{part} missing in\n{err}");
    }
    // Without detectors it runs; the order then shows in the bytes.
    let off = [&args(&race)[..], &["--detectors", "off"]].concat();
    assert_eq!(tileas(&off).0, 0);
    let (status, _, err) = tileas(&[&off[..], &["--mode", "random", "--seeds", "32"]].concat());
    assert!(status == 1 && err.contains("not what the first run"), "{err}");
    let (status, _, err) = tileas(&[&off[..], &["--mode", "explore"]].concat());
    assert!(status == 1 && err.contains("depends on the order"), "{err}");
    let apart = "{ .reg .pred %p; setp.lt.u32 %p, %r1, %r0; @%p bra L; add.u32 %r2, %r1, 1; L: bar.sync 0; }";
    let apart = file("apart.ptx", add(apart));
    let random = [&args(&apart)[..], &["--mode", "random"]].concat();
    let (status, _, err) = tileas(&random);
    assert!(status == 1 && err.contains("error[divergent]"), "{err}");
    assert_eq!(tileas(&[&random[..], &["--reconverge"]].concat()).0, 0);
    let outside = file("outside.ptx", add("st.global.u32 [%rd1+256], %r1;"));
    let (status, _, err) = tileas(&args(&outside));
    assert!(status == 1 && err.contains("error[bounds]") && err.contains("outside.ptx:9:3"), "{err}");
    let stuck = file(
        "stuck.ptx",
        add("setp.lt.u32 %p0, %r1, 32;\n  @%p0 bra OTHER;\n  bar.sync 1, 64; bar.sync 2, 64; ret;\nOTHER:\n  bar.sync 2, 64; bar.sync 1, 64;")
            .replace(".reg .b64", ".reg .pred %p<1>; .reg .b64"),
    );
    let (status, _, err) = tileas(&args(&stuck));
    assert!(status == 1 && err.contains("error[deadlock]"), "{err}");
    let limit = [&args(&outside)[..], &["--max-steps", "3"]].concat();
    assert!(tileas(&limit).2.contains("error["));
    let bad = file("bad.ptx", add("frobnicate.u32 %r1;"));
    let (status, _, err) = tileas(&args(&bad));
    assert!(status == 1 && err.contains("error[P010]") && err.contains("bad.ptx:9:3"), "{err}");
}

#[test]
fn other_kernels_do_not_matter() {
    // Which memory the pointer of the other kernel leads to is not known.
    let text = "kernel @sound(%x: view<gmem, ?xf32>) {
  %t = tiled_load %x[0] : tile<32xf32>
  %y = addf %t, %t
  tiled_store %y, %x[0]
  return
}
kernel @refused(%a: ptr<f32, gmem>, %b: ptr<f32, gmem>, %x: view<gmem, ?xf32>, %n: i32) {
  %is = cmpi %n, 1 <{predicate = eq}>
  %p = if %is : ptr<f32, gmem> {
    yield %a
  } else {
    yield %b
  }
  %i = iota : tile<32xi32>
  %t = gather %p[%i] : tile<32xf32>
  tiled_store %t, %x[0]
  return
}\n";
    let k = file("one_of_two.tileas", text);
    let run = |name: &str| tileas(&["run", &k, "--kernel", name, "--check", "--arg", "x=32"]);
    assert_eq!(run("sound").0, 0, "{}", run("sound").2);
    let (status, _, err) = run("refused");
    assert!(status == 1 && err.contains("E0804"), "{err}");
}

#[test]
fn requirements_and_source_faults() {
    // Rows of 137 elements of two bytes are not aligned for a tensor map.
    let mut args = gemm(GEMM, &[]);
    for a in &mut args {
        if *a == "a=200x136" {
            *a = "a=200x137";
        }
    }
    let (status, _, err) = tileas(&args);
    assert!(status == 2 && err.contains("must be a multiple of 8 for TMA"), "{err}");
    assert!(err.ends_with("\nhelp: strides that fit: --arg a=200x137/144,1\n"), "{err}");
    let text = "kernel @k(%x: view<gmem, ?xf32>, %n: i32) {
  %m = divi 8, %n : i32
  %t = tiled_load %x[%m] : tile<32xf32>
  tiled_store %t, %x[0]
  return
}\n";
    let k = file("divides.tileas", text);
    let (status, out, err) = tileas(&["run", &k, "--arg", "x=64", "--arg", "n=0", "--check"]);
    assert!(status != 0 && !err.is_empty(), "{out}{err}");
    if status == 1 {
        assert!(err.contains("error[value]: in program order") && err.contains("divides.tileas:2"), "{err}");
    }
}

#[test]
fn arguments_must_fit_the_types_of_the_parameters() {
    // The rows are vectors that nothing guards: the type says that they are whole.
    let text = "kernel @rows(%x: view<gmem, ?x128xf16>, %i: view<gmem, ?xi32>, %y: view<gmem, ?x128xf16>) {
  %p = program_id <{axis = 0}> : i32
  %k = tiled_load %i[%p] : i32
  %t = tiled_load %x[%k, 0] : tile<1x128xf16>
  tiled_store %t, %y[%p, 0]
  return
}\n";
    let k = file("rows.tileas", text);
    let ptx = temp("rows.ptx").to_str().expect("UTF-8").to_owned();
    assert_eq!(tileas(&["compile", &k, "-o", &ptx]).0, 0);
    let (x_fits, y_fits) = ("x=3x128xf16", "y=4x128xf16");
    for file in [&k, &ptx] {
        let run = |x: &str, i: &str, y: &str| {
            tileas(&["run", file, "--arg", x, "--arg", i, "--arg", y, "--expect", "y=x[i]"])
        };
        let (status, out, err) = run(x_fits, "i=4xi32:0..3", y_fits);
        assert_eq!((status, err.as_str()), (0, ""), "{out}");
        for (x, i, y, part) in [
            (
                "x=3x120xf16",
                "i=4xi32:0..3",
                y_fits,
                "rows: launch requirement `x.d1 == 128` does not hold: extent 1 of x is 128 in its type, 120 is given\n",
            ),
            (
                "x=3x128xf16/129,1",
                "i=4xi32:0..3",
                y_fits,
                "a multiple of 8\nhelp: strides that fit: --arg x=3x128xf16/128,1\n",
            ),
            (x_fits, "i=2x2xi32:0..3", y_fits, "i has rank 1, 2 extents are given"),
            ("x=384xf16", "i=4xi32:0..3", y_fits, "x has rank 2, 1 extent is given"),
            (
                x_fits,
                "i=4xi32:0..3",
                "y=0x128xf16",
                "nothing is to be launched: the grid is [0, 1, 1], as `ceildiv(y.d0, 1)` is 0",
            ),
        ] {
            let (status, _, err) = run(x, i, y);
            assert!(status == 2 && err.contains(part), "{part} missing in\n{err}");
        }
    }
}

#[test]
fn what_a_stride_must_be_comes_with_what_helps() {
    let text = "kernel @product(%a: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf16>) {
  %z = constant 0.0 : tile<128x32xf32>
  %x = tiled_load %a[0, 0] : tile<128x32xf16>
  %y = tiled_load %a[0, 0] : tile<32x32xf16>
  %n = dot %x, %y, %z
  %h = ftof %n : tile<128x32xf16>
  tiled_store %h, %c[0, 0]
  return
}\n";
    let k = file("product.tileas", text);
    let run = |a: &str, c: &str, more: &[&str]| {
        tileas(&[&["run", &k, "--check", "--arg", a, "--arg", c], more].concat())
    };
    let (status, _, err) = run("a=99x33", "c=99x40", &[]);
    assert!(status == 2 && err.contains("`a.s0 % 8 == 0`") && err.contains("33 elements"), "{err}");
    let help = "help: strides that fit: --arg a=99x33/40,1\nhelp: or do without tensor maps: --set tma-rewrite=false\n";
    assert!(err.ends_with(help), "{err}");
    // What was said of the tensor otherwise stays.
    let (_, _, err) = run("a=99x33xf16/35,1:ramp:7", "c=99x40", &[]);
    assert!(err.contains("--arg a=99x33xf16/40,1:ramp:7\n"), "{err}");
    // Both do help.
    for (a, more) in [("a=99x33/40,1", &[] as &[&str]), ("a=99x33", &["--set", "tma-rewrite=false"])] {
        let (status, out, err) = run(a, "c=99x40", more);
        assert_eq!((status, err.as_str()), (0, ""), "{out}");
    }
    // Elements that only a tensor map can load: there is no way without.
    let k = file(
        "product_tf32.tileas",
        text.replace("%y, %z", "%y, %z <{transpose_b}>")
            .replace("%a: view<gmem, ?x?xf16>", "%a: view<gmem, ?x?xtf32>")
            .replace("32xf16>\n  %y", "32xtf32>\n  %y")
            .replace("tile<32x32xf16>", "tile<32x32xtf32>"),
    );
    let (status, _, err) = tileas(&["run", &k, "--arg", "a=99x33", "--arg", "c=99x40"]);
    assert!(status == 2 && err.ends_with("help: strides that fit: --arg a=99x33/36,1\n"), "{err}");
    let (status, _, err) = run("a=0x40", "c=99x40", &[]);
    assert!(status == 2 && err.contains("extent 0 of a is 0"), "{err}");
}

/// `o = exp(x - max(x))` row by row, with a maximum that starts at -inf; `wrong`: with another result.
fn shifted(wrong: &str) -> String {
    format!(
        "kernel @k(%x: view<gmem, ?x?xf32>, %o: view<gmem, ?x?xf32>, %n: i32) {{
  %low = constant -inf : tile<64xf32>
  %max = for %i = 0 to %n step 1 iter (%m = %low : tile<64xf32>) {{
    %t = tiled_load %x[0, %i] : tile<64x32xf32>
    %r = reduce %t <{{axis = 1, mode = max}}> : tile<64xf32>
    %s = maxf %m, %r
    yield %s
  }}
  %c = reshape %max : tile<64x1xf32>
  %b = broadcast %c : tile<64x32xf32>
  %t = tiled_load %x[0, 0] : tile<64x32xf32>
  %d = subf %t, %b
  %e = exp %d
  %w = mulf %e, {wrong}
  tiled_store %w, %o[0, 0]
  return
}}
"
    )
}

#[test]
fn tolerances_hold_behind_infinities() {
    let args = |k: &str, x: &str, more: &[&str]| {
        let x = format!("x={x}");
        let mut all = vec!["run", k, "--check", "--arg", &x, "--arg", "o=64x32:nan", "--arg", "n=3"];
        all.extend(more);
        tileas(&all)
    };
    // The same kernel is compiled; what the source says is another thing only with a formula.
    let right = file("shifted.tileas", shifted("1.0"));
    let (status, out, err) = args(&right, "64x96:normal", &[]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(
        out.contains("o: 2048 elements agree with the source, within") && !out.contains("not finite"),
        "{out}"
    );
    // Magnitudes overflow in the exponent: the scale is another, and one against which errors show.
    let (status, out, err) = args(&right, "64x96:100", &[]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("o: of 2048 of them the magnitudes are not finite"), "{out}");
    let expect = ["--expect", "o=x[:, 0:32] * 0 + 1.01"];
    assert_eq!(args(&right, "64x96:100", &expect).0, 1);
    // A formula is a scale for both.
    let (status, out, err) = args(&right, "64x96:100", &["--scale", "o=x[:, 0:32] * 0 + 1"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(!out.contains("not finite"), "{out}");
}

#[test]
fn indices_are_integers_of_a_range() {
    let good = file(
        "add_range.ptx",
        add("ld.global.u32 %r2, [%rd1];\n  add.u32 %r2, %r2, %r0;\n  st.global.u32 [%rd1], %r2;"),
    );
    let run = |p: &str| tileas(&["run", &good, "--block", "64", "--arg", p, "--arg", "n=0"]);
    let (status, out, _) = run("p=64xi32:3..9");
    assert!(status == 0 && out.contains("3 to 8: "), "{out}");
    assert_eq!(run("p=64xi32:3..9:4").0, 0, "a seed behind it");
    let (_, out, _) = run("p=64xi32:-1..0");
    assert!(out.contains("-1 to -1: "), "{out}");
    for (p, part) in [("p=64xi32:9..9", "--arg p"), ("p=64xi32:0..2147483649", "not exact in i32")] {
        let (status, _, err) = run(p);
        assert!(status == 2 && err.contains(part), "{err}");
    }
}

/// The order of sums of floats by atomics is free: each run is compared with the source, not with the first one.
#[test]
fn atomic_sums_of_floats_may_differ_between_runs() {
    let text = "kernel @k(%x: view<gmem, ?xf32>, %o: view<gmem, ?xf32>) {
  %i = program_id <{axis = 0}> : i32
  %t = tiled_load %x[%i] : tile<128xf32>
  %k = constant 0 : tile<128xi32>
  %old = atomic_rmw %t, %o[%k] <{mode = addf}> : tile<128xf32>
  return
}
";
    let path = file("atomic_sums.tileas", text);
    let args = [
        "run",
        &path,
        "--arg",
        "x=1000:normal",
        "--arg",
        "o=1:0",
        "--grid",
        "8",
        "--mode",
        "fast,latest,random",
    ];
    let all = [&args[..], &["--seeds", "3", "--check", "--tol", "1e-5"]].concat();
    let (status, out, err) = tileas(&all);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    let (status, _, err) = tileas(&[&args[..], &["--check", "--tol", "exact"]].concat());
    assert!(status == 1 && err.contains("o[0] is"), "{err}");
}

/// Integers have their sign from the tensor, and all their digits; formulas have those of a double.
#[test]
fn integers_are_compared_bit_by_bit() {
    let bytes = "kernel @k(%x: view<gmem, ?xi8>, %y: view<gmem, ?xi8>) {
  %t = tiled_load %x[0] : tile<128xi8>
  tiled_store %t, %y[0]
  return
}
";
    let path = file("bytes_as_they_are.tileas", bytes);
    let unsigned =
        ["run", &path, "--arg", "x=100xu8:0..256", "--arg", "y=100xu8:0", "--check", "--expect", "y=x"];
    let (status, out, err) = tileas(&unsigned);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    let wide = "kernel @k(%y: view<gmem, 1xi64>) {
  %s = constant 4636462338285764992 : tile<1xi64>
  tiled_store %s, %y[0]
  return
}
";
    let path = file("wide_number.tileas", wide);
    let near = ["run", &path, "--arg", "y=1xi64:0", "--expect", "y=4636462338285764993"];
    let (status, out, err) = tileas(&near);
    assert!((status, err.as_str()) == (0, "") && out.contains("to 53 bits"), "{out}");
}
