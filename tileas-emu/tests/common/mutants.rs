//! Mutants of a kernel, made by rule: every instruction that orders, counts or describes is damaged in turn.
#![allow(dead_code)]

/// One mutant.
pub struct Mutant {
    /// Line of the change, from 1.
    pub line: usize,
    /// The rule that made it.
    pub rule: &'static str,
    /// The line before the change.
    pub old: String,
    /// The mutated module.
    pub text: String,
}

/// Instructions that are left out.
const DROPPED: &[&str] = &[
    "mbarrier.init",
    "mbarrier.arrive",
    "fence.",
    "tcgen05.fence",
    "tcgen05.commit",
    "tcgen05.wait",
    "tcgen05.alloc",
    "tcgen05.dealloc",
    "wgmma.fence",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "cp.async.bulk",
    "bar.sync",
    "bar.arrive",
    "bar.warp.sync",
    "barrier.cluster",
    "st.async",
    "red.async",
    "setmaxnreg",
];

/// Instructions that move behind the next one that others can see.
const MOVED: &[&str] = &[
    "mbarrier.arrive",
    "fence.proxy",
    "fence.mbarrier",
    "tcgen05.fence",
    "tcgen05.commit",
    "tcgen05.wait",
    "wgmma.fence",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group",
    "bar.sync",
    "mbarrier.try_wait",
];

/// The instruction of a line without guard and comment; empty if the line is not one whole instruction.
fn instruction(line: &str) -> &str {
    let t = line.split("//").next().unwrap_or("").trim();
    let t = if t.starts_with('@') { t.split_once(' ').map_or("", |x| x.1.trim()) } else { t };
    if t.ends_with(';') && !t.starts_with('.') && !t.contains('\n') { t } else { "" }
}

/// Number of lines to behind the next instruction that others can see, unless a branch or a label comes first.
fn reach(after: &[&str]) -> Option<usize> {
    const SEEN: &[&str] =
        &["mbarrier", "fence", "tcgen05", "wgmma", "cp.", "bar.", "ld.shared", "st.shared", "stmatrix"];
    for (n, line) in after.iter().enumerate() {
        let t = instruction(line);
        let code = line.split("//").next().unwrap_or("").trim();
        if code.ends_with(':') || ["bra", "ret", "setmaxnreg"].iter().any(|p| t.starts_with(p)) {
            return None;
        }
        if SEEN.iter().any(|p| code.starts_with(p) || t.starts_with(p)) {
            // The whole instruction, however many lines it has.
            return (n..after.len()).find(|&k| after[k].contains(';')).map(|k| k + 1);
        }
    }
    None
}

/// Bytes of the last integer of an instruction, and its value.
fn last_number(t: &str) -> Option<(std::ops::Range<usize>, u64)> {
    let body = t.strip_suffix(';')?.trim_end_matches(['}', ' ']);
    let from = body.rfind(|c: char| !c.is_ascii_alphanumeric()).map_or(0, |i| i + 1);
    let word = &body[from..];
    let v = match word.strip_prefix("0x") {
        Some(h) => u64::from_str_radix(h, 16).ok()?,
        None => word.parse().ok()?,
    };
    (!body[..from].ends_with(['%', '.'])).then_some((from..from + word.len(), v))
}

/// All mutants of a module. Rules whose name is in `without` are not applied.
pub fn mutants(text: &str, without: &[&str]) -> Vec<Mutant> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out: Vec<Mutant> = Vec::new();
    let mut add = |i: usize, rule: &'static str, new: Vec<String>, taken: usize| {
        if without.contains(&rule) {
            return;
        }
        let mut all: Vec<String> = lines[..i].iter().map(|l| l.to_string()).collect();
        all.extend(new);
        all.extend(lines[i + taken..].iter().map(|l| l.to_string()));
        out.push(Mutant { line: i + 1, rule, old: lines[i].trim().to_string(), text: all.join("\n") });
    };
    for (i, &line) in lines.iter().enumerate() {
        let t = instruction(line);
        if t.is_empty() {
            continue;
        }
        let number = last_number(t);
        let with = |v: u64| -> Vec<String> {
            let (at, _) = number.clone().unwrap_or((0..0, 0));
            vec![line.replace(t, &format!("{}{v}{}", &t[..at.start], &t[at.end..]))]
        };
        let value = number.as_ref().map_or(0, |n| n.1);
        if DROPPED.iter().any(|p| t.starts_with(p)) {
            add(i, "drop", vec![], 1);
        }
        if MOVED.iter().any(|p| t.starts_with(p))
            && let Some(n) = reach(&lines[i + 1..])
        {
            let mut moved: Vec<String> = lines[i + 1..=i + n].iter().map(|l| l.to_string()).collect();
            moved.push(line.to_string());
            add(i, "later", moved, n + 1);
        }
        if t.starts_with("bra") && i > 0 && instruction(lines[i - 1]).starts_with("mbarrier.try_wait") {
            add(i, "no wait", vec![], 1);
        }
        if t.starts_with("mbarrier.init") {
            add(i, "count + 1", with(value + 1), 1);
            if value > 1 {
                add(i, "count - 1", with(value - 1), 1);
            }
        }
        if t.starts_with("mbarrier.arrive.expect_tx") {
            add(i, "bytes + 128", with(value + 128), 1);
            add(i, "bytes - 128", with(value - 128), 1);
        }
        // What is for the cluster: for nobody, or for the CTA.
        for what in [".release.", ".acquire."].iter().filter(|what| t.contains(**what)) {
            if !t.starts_with("fence") && !t.contains("barrier.cluster.wait") {
                add(i, "relaxed", vec![line.replace(what, ".relaxed.")], 1);
            }
            if t.contains(&format!("{what}cluster.")) {
                add(i, "narrow", vec![line.replace(&format!("{what}cluster."), &format!("{what}cta."))], 1);
            }
        }
        if t.contains("wait_group") {
            add(i, "groups + 1", with(value + 1), 1);
        }
        if t.starts_with("mbarrier.try_wait") && number.is_some() {
            add(i, "parity", with(value ^ 1), 1);
        }
        if t.starts_with("xor.b32") && value == 1 && number.is_some() {
            add(i, "parity", vec![line.replace(t, &t.replace("xor.b32", "or.b32 "))], 1);
            add(i, "no flip", with(0), 1);
        }
        if t.starts_with("setp.eq.u32") && (2..=8).contains(&value) {
            add(i, "ring - 1", with(value - 1), 1);
            add(i, "ring + 1", with(value + 1), 1);
        }
        if t.starts_with("shl.b32") && (9..=16).contains(&value) {
            add(i, "stride / 2", with(value - 1), 1);
        }
        if t.starts_with("add.s64") && [2, 4, 6].contains(&value) {
            add(i, "K step", with(value + 2), 1);
        }
        if value >> 28 == 4 && (t.starts_with("mov.b64") || t.starts_with("mov.u32")) {
            add(i, "stride dimension", with(value ^ 0x60), 1);
            add(i, "swizzle", with(value ^ 0xC000_0000), 1);
            add(i, "constant bits", with(value ^ 0x4000), 1);
        }
        if t.starts_with("or.b32") && value == 0x10000 {
            add(i, "leading dimension", with(0x20000), 1);
        }
        if t.starts_with("tcgen05.mma")
            && let Some(id) = t.split(", ").find(|w| w.starts_with("0x"))
        {
            let v = u32::from_str_radix(&id[2..], 16).unwrap_or(0);
            for (rule, new) in [
                ("rows", v ^ (12 << 24)),
                ("columns", (v & !(63 << 17)) | (v >> 18 & 63) << 17),
                ("types", v ^ (1 << 7 | 1 << 10)),
            ] {
                add(i, rule, vec![line.replace(id, &format!("{new:#x}"))], 1);
            }
        }
        if t.starts_with("setmaxnreg") {
            add(
                i,
                "registers + 8",
                vec![line.replace(t, &t.replace(&value.to_string(), &(value + 8).to_string()))],
                1,
            );
        }
    }
    out
}
