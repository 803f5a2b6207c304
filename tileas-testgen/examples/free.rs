//! Draws, judges and shrinks kernels of a range of seeds, or judges files that it wrote.
//!
//! ```text
//! cargo run --release -p tileas-testgen --example free -- --seeds 0..20000 --jobs 2 --out findings
//! cargo run --release -p tileas-testgen --example free -- --show 17          # the kernel of a seed
//! cargo run --release -p tileas-testgen --example free -- findings/*.tileas  # are they still wrong?
//! ```
//! Findings with one symptom become one file, with the seeds that showed it; a few of them are shrunk.

use clap::Parser;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tileas_testgen::judge::{Symptom, Verdict, judge, quiet_panics};
use tileas_testgen::kernel::{Block, Form, Kernel};
use tileas_testgen::{features::features, seeded, shrink::shrink};

#[derive(Parser)]
struct Args {
    /// Seeds `FROM..TO`.
    #[arg(long, default_value = "0..1000", value_parser = range)]
    seeds: Range<u64>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Folder for findings.
    #[arg(long, default_value = "target/findings")]
    out: PathBuf,
    /// Findings of one symptom that are shrunk.
    #[arg(long, default_value_t = 2)]
    each: usize,
    /// Kernels tried while one is shrunk.
    #[arg(long, default_value_t = 300)]
    tries: usize,
    /// Seconds for one kernel.
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// Processor.
    #[arg(long, default_value = "sm_100a")]
    target: String,
    /// Leaves out kernels whose text has this.
    #[arg(long)]
    skip: Vec<String>,
    /// Prints the kernel of a seed.
    #[arg(long)]
    show: Option<u64>,
    /// Files to judge instead.
    files: Vec<PathBuf>,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("FROM..TO")?;
    let number = |t: &str| t.parse::<u64>().map_err(|e| e.to_string());
    Ok(number(from)?..number(to)?)
}

/// Judges on a thread of its own, which is left behind when it takes too long.
fn timed(text: String, options: Vec<(String, String)>, case: String, cpu: String, limit: u64) -> Verdict {
    let (send, receive) = mpsc::channel();
    let run = move || {
        let isa = tileas_isa::isa_for_cpu(&cpu).expect("a known processor");
        let options: Vec<(&str, &str)> = options.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let _ = send.send(judge(&text, &options, &case, &*isa));
    };
    let spawned = std::thread::Builder::new().stack_size(32 << 20).spawn(run);
    spawned.expect("a thread");
    receive.recv_timeout(Duration::from_secs(limit)).unwrap_or_else(|_| {
        Verdict::Wrong(Symptom { key: "hang".to_owned(), detail: format!("no end after {limit} s") })
    })
}

fn of(k: &Kernel, args: &Args) -> Verdict {
    let options = k.options.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    timed(k.text(), options, k.case(), args.target.clone(), args.limit)
}

/// What showed one symptom.
#[derive(Default)]
struct Seen {
    times: u64,
    seeds: Vec<u64>,
    /// Reduced: seed, kernel, what was said.
    kernels: Vec<(u64, Kernel, String)>,
}

#[derive(Default)]
struct Tally {
    right: u64,
    refused: BTreeMap<String, Vec<u64>>,
    wrong: BTreeMap<String, Seen>,
    features: BTreeMap<&'static str, [u64; 2]>,
}

fn main() {
    let args = Args::parse();
    quiet_panics();
    if let Some(seed) = args.show {
        print!("{}", seeded(seed).filetest());
        return;
    }
    if !args.files.is_empty() {
        std::process::exit(i32::from(!files(&args)));
    }
    let bar = indicatif::ProgressBar::new(args.seeds.end - args.seeds.start);
    let style = "{bar:40} {pos}/{len} {per_sec} {eta} {msg}";
    bar.set_style(indicatif::ProgressStyle::with_template(style).expect("a template"));
    let (next, tally) = (AtomicU64::new(args.seeds.start), Arc::new(Mutex::new(Tally::default())));
    std::fs::create_dir_all(&args.out).expect("a writable folder");
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.seeds.end {
                        break;
                    }
                    one(seed, &args, &tally);
                    let t = tally.lock().expect("no thread fails");
                    let wrong: u64 = t.wrong.values().map(|w| w.times).sum();
                    bar.set_message(format!("{} wrong, {} symptoms", wrong, t.wrong.len()));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish();
    let t = tally.lock().expect("no thread fails");
    let report = report(&t);
    print!("{report}");
    std::fs::write(args.out.join("report.txt"), report).expect("a writable folder");
}

fn one(seed: u64, args: &Args, tally: &Mutex<Tally>) {
    let k = seeded(seed);
    if args.skip.iter().any(|s| k.filetest().contains(s)) {
        return;
    }
    let verdict = of(&k, args);
    let symptom = {
        let mut t = tally.lock().expect("no thread fails");
        for f in features(&k) {
            let n = t.features.entry(f).or_default();
            n[0] += 1;
            n[1] += u64::from(!matches!(verdict, Verdict::Refused(_)));
        }
        match verdict {
            Verdict::Right => {
                t.right += 1;
                return;
            }
            Verdict::Refused(code) => {
                t.refused.entry(code).or_default().push(seed);
                return;
            }
            Verdict::Wrong(s) => {
                let w = t.wrong.entry(s.key.clone()).or_default();
                w.times += 1;
                w.seeds.push(seed);
                // Wrong results have many causes that look the same.
                let each = if s.key.contains("wrong result") { 8 * args.each } else { args.each };
                if w.times > each as u64 {
                    return;
                }
                s
            }
        }
    };
    let same = |k: &Kernel| matches!(of(k, args), Verdict::Wrong(s) if s.key == symptom.key);
    let small = if symptom.key == "hang" { k } else { shrink(&k, args.tries, same) };
    let detail = match of(&small, args) {
        Verdict::Wrong(s) => s.detail,
        _ => symptom.detail,
    };
    let mut t = tally.lock().expect("no thread fails");
    if let Some(w) = t.wrong.get_mut(&symptom.key)
        && w.kernels.iter().all(|(_, k, _)| skeleton(&k.body) != skeleton(&small.body))
    {
        w.kernels.push((seed, small, detail));
    }
    write(&args.out, &t);
}

/// Names and nesting of the operations, but for loads and constants: reduced kernels of one cause are often alike.
fn skeleton(b: &Block) -> String {
    let mut out = String::new();
    for s in &b.stmts {
        match &s.form {
            Form::Plain { text, .. } => {
                let op = text.split(' ').next().unwrap_or("");
                if op != "constant" && !op.ends_with("load") && !op.ends_with("desc") {
                    let _ = write!(out, "{} ", op.trim_start_matches("async."));
                }
            }
            Form::For | Form::Loop(_) => {
                _ = write!(out, "for({}){} ", s.results.len(), skeleton(&s.blocks[0]))
            }
            Form::If => {
                let arms: Vec<String> = s.blocks.iter().map(skeleton).collect();
                let _ = write!(out, "if({}){{{}}} ", s.results.len(), arms.join("|"));
            }
        }
    }
    format!("[{}]", out.trim_end())
}

/// Writes a file for each reduced kernel.
fn write(out: &std::path::Path, t: &Tally) {
    for (key, Seen { kernels, .. }) in &t.wrong {
        for (seed, k, detail) in kernels {
            let word: String =
                key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(48).collect();
            let mut text = format!("; seed {seed}: {key}\n");
            for line in detail.lines().take(6) {
                // Writing to a string cannot fail.
                let _ = writeln!(text, ";   {line}");
            }
            let name = format!("{word}-{seed}.tileas");
            let _ = writeln!(text, "; tileas run {name} {}", k.arguments());
            text.push_str(&k.filetest());
            std::fs::write(out.join(name), text).expect("a writable folder");
        }
    }
}

fn report(t: &Tally) -> String {
    let mut out = String::new();
    let (refused, wrong): (u64, u64) =
        (t.refused.values().map(|r| r.len() as u64).sum(), t.wrong.values().map(|w| w.times).sum());
    let _ = writeln!(out, "{} right, {refused} refused, {wrong} wrong", t.right);
    let few = |list: &[u64]| list.iter().take(8).map(ToString::to_string).collect::<Vec<_>>().join(" ");
    for (code, seeds) in &t.refused {
        let _ = writeln!(out, "{:5}  refused {code}  (seeds {})", seeds.len(), few(seeds));
    }
    let mut list: Vec<_> = t.wrong.iter().collect();
    list.sort_by_key(|w| std::cmp::Reverse(w.1.times));
    for (key, Seen { times, seeds, .. }) in list {
        let _ = writeln!(out, "{times:5}  {key}  (seeds {})", few(seeds));
    }
    let mut seeds: Vec<u64> = t.wrong.values().flat_map(|w| &w.seeds).copied().collect();
    seeds.sort_unstable();
    let _ = writeln!(out, "wrong seeds: {seeds:?}");
    let _ = writeln!(out, "kernels with a feature, and those not refused:");
    for (f, [all, ran]) in &t.features {
        let _ = writeln!(out, "{all:6} {ran:6}  {f}");
    }
    out
}

/// Judges filetests with one case; whether all are right.
fn files(args: &Args) -> bool {
    let mut good = true;
    for path in &args.files {
        let text = std::fs::read_to_string(path).expect("a readable file");
        let header = match tileas_filetests::Header::parse(&text) {
            Ok(header) => header,
            Err(e) => {
                println!("{}: {e}", path.display());
                continue;
            }
        };
        let case = text.lines().find_map(|l| l.strip_prefix("; case: ")).unwrap_or("{}").to_owned();
        let pairs = header.set.iter().filter_map(|p| p.split_once('='));
        let options = pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
        let said = match timed(text, options, case, args.target.clone(), args.limit) {
            Verdict::Right => "right".to_owned(),
            Verdict::Refused(code) => format!("refused {code}"),
            Verdict::Wrong(s) => {
                good = false;
                s.key
            }
        };
        println!("{:60} {said}", path.file_name().unwrap_or_default().to_string_lossy());
    }
    good
}
