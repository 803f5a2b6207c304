//! The page about Tile IR has the table of operations, and the page about errors has the codes.

use std::fmt::Write;
use std::path::Path;
use tileas_meta::tileir::{Arity, AttrKind, Lowered, OPS, OpRow, Results};
use tileas_tileir::{Code, Num, Version};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn or_dash(list: Vec<String>, separator: &str) -> String {
    if list.is_empty() { "–".into() } else { list.join(separator) }
}

fn since(version: u8, first: u8) -> String {
    if version > first { format!(" (13.{version})") } else { String::new() }
}

fn versions() -> String {
    let mut out = String::from("| version | types | operations | parts of operations |\n|---|---|---|---|\n");
    for v in Version::all().map(Version::minor) {
        let types = Num::ALL.iter().filter(|n| n.since() == v).map(|n| format!("`{n}`")).collect();
        let ops: Vec<_> = OPS.iter().filter(|o| o.since == v).collect();
        let names = if v == 1 {
            format!("{} operations", ops.len())
        } else {
            or_dash(ops.iter().map(|o| format!("`{}`", o.name)).collect(), " ")
        };
        let mut parts = Vec::new();
        for row in OPS.iter().filter(|o| o.since < v) {
            if row.flags == Some(v) {
                let units = row.units.iter().map(|u| u.1.to_string());
                let optional =
                    row.operands.iter().filter(|o| matches!(o.1, Arity::Opt(_))).map(|o| o.0.to_string());
                parts.push(format!(
                    "`{}` {}",
                    row.name,
                    units.chain(optional).collect::<Vec<_>>().join(", ")
                ));
            }
            for attr in row.attrs.iter().filter(|a| a.since == v) {
                parts.push(format!("`{}` {}", row.name, attr.key));
            }
        }
        writeln!(out, "| 13.{v} | {} | {names} | {} |", or_dash(types, " "), or_dash(parts, "; "))
            .expect("a string");
    }
    out
}

fn types() -> String {
    let mut out =
        String::from("| number | tag | since | bits | bytes in constants |\n|---|--:|---|--:|--:|\n");
    for n in Num::ALL {
        let bytes = if *n == Num::I1 { "1, or a bit".into() } else { n.constant_bytes().to_string() };
        writeln!(out, "| `{n}` | {} | 13.{} | {} | {bytes} |", n.tag(), n.since(), n.bits())
            .expect("a string");
    }
    out
}

fn attributes(row: &OpRow) -> String {
    let units = row.units.iter().map(|u| format!("{}?{}", u.1, since(row.flags.unwrap_or(1), row.since)));
    let attrs = row.attrs.iter().map(|a| {
        let kind = match a.kind {
            AttrKind::Enum(_) => "",
            AttrKind::Int => ": int",
            AttrKind::Bool => ": bool",
            AttrKind::Str => ": text",
            AttrKind::Const => ": constant",
            AttrKind::Ints => ": ints",
            AttrKind::Bools => ": bools",
            AttrKind::List => ": list",
            AttrKind::Tagged => ": predicate",
            AttrKind::Hints => "",
        };
        format!("{}{kind}{}{}", a.key, if a.flag.is_some() { "?" } else { "" }, since(a.since, row.since))
    });
    or_dash(units.chain(attrs).collect(), ", ")
}

fn operations() -> String {
    let mut out = String::from(
        "| # | operation | since | results | attributes | operands | regions | compiled |\n|--:|---|---|---|---|---|--:|---|\n",
    );
    for row in OPS {
        let results = match row.results {
            Results::Fixed(n) => n.to_string(),
            Results::Counted => "counted".into(),
            Results::CountedSince(v) => format!("counted{}", since(v, row.since)),
        };
        let operands = row.operands.iter().map(|(seg, arity)| match arity {
            Arity::One => seg.to_string(),
            Arity::Opt(_) => format!("{seg}?"),
            Arity::Many => format!("{seg}*"),
        });
        let counted = if row.counted { "counted: " } else { "" };
        let lowered = match row.lowered {
            Lowered::No => "–",
            Lowered::Yes(how) => how,
        };
        writeln!(
            out,
            "| {} | `{}` | 13.{} | {results} | {} | {counted}{} | {} | {lowered} |",
            row.opcode as u8,
            row.name,
            row.since,
            attributes(row),
            or_dash(operands.collect(), ", "),
            row.regions,
        )
        .expect("a string");
    }
    out
}

#[test]
fn the_page_has_the_tables() {
    let path = root().join("docs/tile-ir.md");
    let have = std::fs::read_to_string(&path).expect("docs/tile-ir.md");
    let mut want = have.clone();
    for (name, table) in [("versions", versions()), ("types", types()), ("operations", operations())] {
        let mark = format!("<!-- {name} -->\n");
        let from = want.find(&mark).expect("the mark of a table") + mark.len();
        let to = from + want[from..].find("<!-- end -->").expect("the end of a table");
        want.replace_range(from..to, &table);
    }
    if std::env::var_os("TILEAS_BLESS").is_some() {
        std::fs::write(&path, &want).expect("writable");
        return;
    }
    assert!(have == want, "docs/tile-ir.md is stale: run the tests once with TILEAS_BLESS=1");
}

#[test]
fn every_code_is_explained_and_tested() {
    let page = std::fs::read_to_string(root().join("docs/errors.md")).expect("docs/errors.md");
    let tests: String = ["quirks.rs", "ops.rs", "files.rs", "common/bad.txt", "structure.rs", "lower.rs"]
        .iter()
        .map(|f| std::fs::read_to_string(root().join("tileas-tileir/tests").join(f)).expect("a test"))
        .collect();
    for (code, meaning) in Code::ALL {
        let row = format!("| {code} | {meaning} |");
        assert!(page.contains(&row), "docs/errors.md lacks {row}");
        assert!(tests.contains(code.as_str()), "no test has {code}");
    }
}
