//! Runs Tile IR kernels of a folder: `cutile FOLDER [FILTER] [TARGETS]`; a line for each, and a summary.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tileas_emu::Mode;
use tileas_filetests::cutile;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(args.first().map_or(".", |s| s));
    let filter = args.get(1).cloned().unwrap_or_default();
    let targets = args.get(2).cloned().unwrap_or_else(|| "sm_90a,sm_100a".into());
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .expect("a folder")
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.strip_suffix(".tileirbc").map(str::to_owned))
        .filter(|n| n.contains(&filter))
        .collect();
    names.sort();
    let jobs: Vec<(String, String)> =
        names.iter().flat_map(|n| targets.split(',').map(move |t| (n.clone(), t.to_owned()))).collect();
    let next = AtomicUsize::new(0);
    let lines = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some((name, target)) = jobs.get(i) else { return };
                    let modes = [Mode::Fast, Mode::Latest(1), Mode::Random(2)];
                    let ran = std::panic::catch_unwind(|| cutile::run(&folder, name, target, &modes));
                    let text = match ran {
                        Ok(Ok(ran)) => {
                            let spills = ran
                                .assembled
                                .lines()
                                .filter(|l| {
                                    l.contains("spill stores") && !l.contains(" 0 bytes spill stores")
                                })
                                .map(|l| l.trim().to_owned())
                                .collect::<Vec<_>>()
                                .join("; ");
                            if spills.is_empty() { "ok".to_owned() } else { format!("ok, {spills}") }
                        }
                        Ok(Err(e)) => format!("FAILED {e:#}"),
                        Err(_) => "PANIC".to_owned(),
                    };
                    lines.lock().expect("lines").push((i, format!("{name} {target}: {text}")));
                }
            });
        }
    });
    let mut lines = lines.into_inner().expect("lines");
    lines.sort();
    let ok = lines.iter().filter(|l| l.1.contains(": ok")).count();
    for (_, l) in &lines {
        println!("{l}");
    }
    println!("{ok} of {} right", lines.len());
}
