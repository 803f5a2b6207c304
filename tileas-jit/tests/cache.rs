//! Caches under everything that happens to them: threads, processes that are killed, damaged files, full and read-only disks.

use crate::alone;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tileas_codegen::Settings;
use tileas_jit::cache::{Disk, Key, KeyBuilder, Memory, Stats};
use tileas_jit::{Assembler as _, Cache, Code, Device, Elem, EmulatorOptions, Error, Jit, args};

const GEMM: &str = include_str!("../../examples/gemm_f16.tileas");
/// A folder for a test that runs as a process of its own.
const FOLDER: &str = "TILEAS_TEST_FOLDER";
/// Bytes of an entry before its contents: magic, key, length, hash.
const HEAD: usize = 8 + 32 + 8 + 32;

/// A kernel that is compiled in no time: `n` is in its text.
fn text(n: usize) -> String {
    format!(
        "kernel @k(%x: view<gmem, ?xf32>, %y: view<gmem, ?xf32>) {{\n  %p = program_id <{{axis = 0}}> : i32\n  \
         %t = tiled_load %x[%p] : tile<128xf32>\n  %c = constant {n}.0 : tile<128xf32>\n  \
         %s = addf %t, %c : tile<128xf32>\n  tiled_store %s, %y[%p]\n  return\n}}\n"
    )
}

fn jit(device: &Device, cache: &Cache) -> Jit {
    Jit::builder(device).cache(cache.clone()).build().expect("a JIT")
}

/// Whether the kernel of that text adds `n`.
fn is_right(jit: &Jit, n: usize) -> Result<(), Error> {
    let kernel = jit.kernel(&jit.parse(&text(n))?, "k")?;
    let device = jit.device();
    let (x, mut y) = (device.tensor(&[1.0_f32; 128], &[128])?, device.zeros(Elem::F32, &[128])?);
    kernel.launch(&device.stream()?, args![&x, &mut y])?;
    assert_eq!(y.read::<f32>()?, [n as f32 + 1.0; 128]);
    Ok(())
}

/// All files of keys.
fn files(folder: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path());
    let files = folders.filter(|f| f.is_dir()).flat_map(|f| std::fs::read_dir(f).expect("a folder"));
    let mut all: Vec<PathBuf> = files.map(|e| e.expect("an entry").path()).collect();
    all.retain(|p| !p.file_name().expect("a name").to_string_lossy().starts_with('.'));
    all.sort();
    all
}

fn key(n: u64) -> Key {
    KeyBuilder::new().part("test", &n.to_le_bytes()).finish()
}

/// What belongs to a key.
fn contents(n: u64) -> Vec<u8> {
    (0..5000 + n * 7 % 999).map(|i| (i * n + i / 3) as u8).collect()
}

/// The test of that name in a process of its own, which finds `folder`.
fn child(test: &str, folder: &Path) -> Command {
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    child.args(alone(&format!("cache::{test}"))).env(FOLDER, folder);
    child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    child
}

fn end(child: Child) -> String {
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    said.into_owned()
}

#[test]
fn eight_threads_compile_each_kernel_once() {
    let folder = TempDir::new().expect("a folder");
    let cache = Cache::disk(folder.path()).expect("a cache");
    let jit = jit(&Device::emulator(), &cache);
    let modules: Vec<_> = (0..10).map(|n| jit.parse(&text(n)).expect("parses")).collect();
    let start = Barrier::new(8);
    std::thread::scope(|threads| {
        for thread in 0..8 {
            let (jit, modules, start) = (&jit, &modules, &start);
            threads.spawn(move || {
                start.wait();
                for request in 0..1000 {
                    let kernel = jit.kernel(&modules[(request * 7 + thread) % 10], "k").expect("compiles");
                    assert_eq!(kernel.name(), "k");
                }
            });
        }
    });
    assert_eq!(jit.compiled(), 10);
    assert_eq!(jit.stats(), Stats { misses: 10, ..Stats::default() });
    for n in 0..10 {
        is_right(&jit, n).expect("runs");
    }
    assert_eq!(jit.compiled(), 10, "all of them are in memory");
}

#[test]
fn whoever_comes_later_finds_it_on_disk() {
    let folder = TempDir::new().expect("a folder");
    let device = Device::emulator();
    for round in 0..3 {
        // A JIT of its own, as another process would have.
        let cache = Cache::disk(folder.path()).expect("a cache");
        let jit = jit(&device, &cache);
        is_right(&jit, 3).expect("runs");
        let first = u64::from(round == 0);
        assert_eq!(jit.compiled(), first);
        assert_eq!(
            jit.stats(),
            Stats { disk_hits: 1 - first, misses: first, ..Stats::default() },
            "round {round}"
        );
    }
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
fn kernels_forgotten_come_from_disk_and_those_held_live_on() {
    let folder = TempDir::new().expect("a folder");
    let jit = jit(&Device::emulator(), &Cache::disk(folder.path()).expect("a cache"));
    let module = jit.parse(&text(1)).expect("parses");
    let held = jit.kernel(&module, "k").expect("compiles");
    jit.forget();
    let again = jit.kernel(&module, "k").expect("is there");
    assert_eq!((jit.compiled(), jit.stats().disk_hits), (1, 1));
    assert_eq!(held.ptx(), again.ptx());
    let device = jit.device();
    let (x, mut y) =
        (device.tensor(&[2.0_f32; 128], &[128]).unwrap(), device.zeros(Elem::F32, &[128]).unwrap());
    held.launch(&device.stream().unwrap(), args![&x, &mut y]).expect("still runs");
    assert_eq!(y.read::<f32>().unwrap(), [3.0; 128]);
}

#[test]
fn what_decides_about_code_is_in_the_key() {
    let folder = TempDir::new().expect("a folder");
    let cache = Cache::disk(folder.path()).expect("a cache");
    let device = Device::emulator();
    let compiled = |device: &Device, settings: Settings, text: &str| {
        let jit = Jit::builder(device).cache(cache.clone()).settings(settings).build().expect("a JIT");
        jit.kernel(&jit.parse(text).expect("parses"), "gemm_bias_relu").expect("compiles");
        jit.compiled()
    };
    let none = Settings::default;
    assert_eq!(compiled(&device, none(), GEMM), 1);
    assert_eq!(compiled(&device, none(), GEMM), 0);
    assert_eq!(compiled(&device, none().with("max-regs", "128").unwrap(), GEMM), 1, "an option");
    let other = EmulatorOptions { target: "sm_103a".into(), ..EmulatorOptions::default() };
    assert_eq!(compiled(&Device::emulator_with(other), none(), GEMM), 1, "a processor");
    // What code does not depend on: remarks, the name that a file has, options spelled out.
    let remark = format!("// of no account\n{GEMM}");
    assert_eq!(compiled(&device, none(), &remark), 0);
    assert_eq!(
        compiled(&device, none().with("scheduler", &none().get("scheduler").unwrap()).unwrap(), GEMM),
        0
    );
    let code = EmulatorOptions { assemble: true, ..EmulatorOptions::default() };
    let assemblers = tileas_jit::assembler::Ladder::find(&Default::default());
    if !assemblers.fingerprint().is_empty() {
        assert_eq!(compiled(&Device::emulator_with(code), none(), GEMM), 1, "machine code");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_a_miss() {
    let folder = TempDir::new().expect("a folder");
    let device = Device::emulator();
    for n in 0..3 {
        is_right(&jit(&device, &Cache::disk(folder.path()).unwrap()), n).expect("runs");
    }
    let files = files(folder.path());
    assert_eq!(files.len(), 3);
    for (n, path) in files.iter().enumerate() {
        let whole = std::fs::read(path).expect("is read");
        // All of the head, and places all over the contents.
        for at in (0..HEAD).chain((HEAD..whole.len()).step_by(97)).chain([whole.len() - 1]) {
            let mut entry = whole.clone();
            entry[at] ^= 1 << (at % 8);
            std::fs::write(path, &entry).expect("is written");
            let cache = Cache::disk(folder.path()).unwrap();
            let name = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned()
                + &path.file_name().unwrap().to_string_lossy();
            let key = Key(std::array::from_fn(|i| u8::from_str_radix(&name[2 * i..2 * i + 2], 16).unwrap()));
            assert_eq!(cache.get(&key), None, "file {n}, byte {at}");
            assert_eq!(cache.stats(), Stats { damaged: 1, misses: 1, ..Stats::default() });
            assert!(!path.exists(), "a damaged file goes");
            cache.put(&key, &whole[HEAD..]);
            assert_eq!(cache.get(&key).as_deref(), Some(&whole[HEAD..]));
        }
    }
    // And the kernel is made again and right.
    for path in &files {
        let mut entry = std::fs::read(path).expect("is read");
        *entry.last_mut().expect("a byte") ^= 1;
        std::fs::write(path, entry).expect("is written");
    }
    for n in 0..3 {
        let jit = jit(&device, &Cache::disk(folder.path()).unwrap());
        is_right(&jit, n).expect("runs");
        assert_eq!((jit.compiled(), jit.stats().damaged), (1, 1));
    }
}

#[test]
fn files_that_are_cut_off_foreign_or_old_are_misses() {
    let folder = TempDir::new().expect("a folder");
    let cache = Cache::disk(folder.path()).expect("a cache");
    cache.put(&key(1), &contents(1));
    cache.put(&key(2), &contents(2));
    let all = files(folder.path());
    let name = |n| key(n).to_string();
    let path = |n| all.iter().find(|p| p.ends_with(&name(n)[2..])).expect("its file").clone();
    let whole = std::fs::read(path(1)).expect("is read");
    let other = std::fs::read(path(2)).expect("is read");
    let mut old = whole.clone();
    old[7] = 0;
    let longer = [&whole[..], &[0]].concat();
    let mut cases = vec![vec![], b"#!/bin/sh\n".to_vec(), other, old, longer, vec![0; whole.len()]];
    cases.extend((0..whole.len()).step_by(61).map(|n| whole[..n].to_vec()));
    for (n, entry) in cases.iter().enumerate() {
        std::fs::write(path(1), entry).expect("is written");
        let before = cache.stats();
        assert_eq!(cache.get(&key(1)), None, "case {n}");
        assert_eq!(cache.stats().damaged, before.damaged + 1);
        assert_eq!(cache.get(&key(2)), Some(contents(2)), "nothing happens to others");
    }
    // A folder in its place: it cannot be read, nor replaced; that costs the cache and nothing else.
    std::fs::create_dir(path(1)).expect("a folder");
    assert_eq!(cache.get(&key(1)), None);
    cache.put(&key(1), &contents(1));
    assert_eq!(cache.stats().failed, 2);
}

/// Something that is no kernel, under a kernel's key, with the right hash.
#[test]
fn whole_entries_that_are_no_kernels_are_misses() {
    let folder = TempDir::new().expect("a folder");
    let device = Device::emulator();
    is_right(&jit(&device, &Cache::disk(folder.path()).unwrap()), 1).expect("runs");
    let path = files(folder.path()).remove(0);
    let whole = std::fs::read(&path).expect("is read");
    let key = Key(whole[8..40].try_into().expect("32 bytes"));
    for entry in [&b""[..], b"\xff\xff\xff\xff", &whole[HEAD..whole.len() - 1], &[0; 64], b"{}"] {
        Cache::disk(folder.path()).unwrap().put(&key, entry);
        let jit = jit(&device, &Cache::disk(folder.path()).unwrap());
        is_right(&jit, 1).expect("runs");
        assert_eq!(jit.compiled(), 1);
    }
}

#[test]
fn a_process_killed_while_it_stores_leaves_nothing_half_done() {
    const NAME: &str = "a_process_killed_while_it_stores_leaves_nothing_half_done";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let cache = Cache::disk(folder).expect("a cache");
        println!("ready");
        for n in 0.. {
            cache.put(&key(n % 50), &contents(n % 50));
        }
    }
    let folder = TempDir::new().expect("a folder");
    let mut seen = 0;
    for round in 0..20 {
        let mut child = child(NAME, folder.path()).stderr(Stdio::null()).spawn().expect("it runs");
        // It says so when it begins.
        let mut out = child.stdout.take().expect("a pipe");
        let mut said = Vec::new();
        while !said.ends_with(b"ready\n") {
            let mut byte = [0];
            std::io::Read::read_exact(&mut out, &mut byte).expect("it says something");
            said.push(byte[0]);
        }
        std::thread::sleep(Duration::from_micros(700 * round));
        child.kill().expect("SIGKILL");
        child.wait().expect("it ends");
        let cache = Cache::disk(folder.path()).expect("a cache");
        for n in 0..50 {
            match cache.get(&key(n)) {
                None => {}
                Some(found) => {
                    assert_eq!(found, contents(n));
                    seen += 1;
                }
            }
        }
        let stats = cache.stats();
        assert_eq!((stats.damaged, stats.failed), (0, 0), "round {round}");
    }
    assert!(seen > 0, "something was stored");
    // What was left half done goes when it is old.
    let parts = |folder: &Path| {
        let all =
            std::fs::read_dir(folder).unwrap().flat_map(|f| std::fs::read_dir(f.unwrap().path()).unwrap());
        all.map(|e| e.unwrap().path())
            .filter(|p| p.file_name().unwrap().to_string_lossy().starts_with('.'))
            .count()
    };
    let somewhere = files(folder.path()).remove(0);
    let left = somewhere.with_file_name(".new-left");
    std::fs::write(&left, "half").expect("is written");
    let old = SystemTime::now() - Duration::from_secs(7200);
    std::fs::File::options().append(true).open(&left).unwrap().set_modified(old).expect("is old");
    let before = parts(folder.path());
    Cache::disk(folder.path()).expect("a cache").put(&key(1), &contents(1));
    assert!(!left.exists());
    assert_eq!(parts(folder.path()), before - 1, "those that are new may still be written");
}

#[test]
fn two_processes_share_a_folder() {
    const NAME: &str = "two_processes_share_a_folder";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let cache = Cache::disk(folder).expect("a cache");
        let jit = jit(&Device::emulator(), &cache);
        for n in 0..30 {
            is_right(&jit, n).expect("runs");
        }
        let Stats { damaged, failed, disk_hits, .. } = jit.stats();
        assert_eq!((damaged, failed), (0, 0));
        println!("compiled {} found {disk_hits} end", jit.compiled());
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let both = [(); 2].map(|()| child(NAME, folder.path()).spawn().expect("it runs"));
    let said = both.map(end);
    for said in &said {
        let at = said.find("compiled ").expect("its counts");
        let numbers: Vec<u64> = said[at..].split(' ').filter_map(|w| w.parse().ok()).take(2).collect();
        assert_eq!(numbers.iter().sum::<u64>(), 30, "{said}");
    }
    assert_eq!(files(folder.path()).len(), 30);
    let said = end(child(NAME, folder.path()).spawn().expect("it runs"));
    assert!(said.contains("compiled 0 found 30 end"), "{said}");
}

/// Runs the test of that name as a process that sees a small file system of its own at its folder. `None`: it may not.
fn on_small_disk(test: &str, then: &str) -> Option<String> {
    let folder = TempDir::new().expect("a folder");
    let mount = |then: &str| {
        let mut unshare = Command::new("unshare");
        // `unshare` makes a namespace, so that nothing is left mounted.
        let script = format!("mount -t tmpfs -o size=128k tileas-test \"$0\" && {{ {then}; }}");
        unshare.args(["--mount", "--map-root-user", "sh", "-c", &script]).arg(folder.path());
        unshare.stdin(Stdio::null());
        unshare
    };
    if !cfg!(target_os = "linux") || !mount("true").output().is_ok_and(|o| o.status.success()) {
        assert!(std::env::var_os("TILEAS_REQUIRE_NAMESPACES").is_none(), "no mount namespaces");
        println!("no mount namespaces: not tested");
        return None;
    }
    let exe = std::env::current_exe().expect("a path");
    let run =
        format!("{then}; exec \"{}\" cache::{test} --exact --nocapture --test-threads=1", exe.display());
    let output = mount(&run).env(FOLDER, folder.path()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(said.into_owned())
}

#[test]
fn a_full_disk_costs_the_cache_and_nothing_else() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let cache = Cache::disk(&folder).expect("a cache");
        let jit = jit(&Device::emulator(), &cache);
        for n in 0..40 {
            is_right(&jit, n).expect("runs");
        }
        let stats = cache.stats();
        assert!(stats.failed > 0 && stats.damaged == 0, "the disk is not full: {stats:?}");
        // What fitted is there and whole, and nothing half done is.
        let again = Cache::disk(&folder).expect("a cache");
        let jit = self::jit(&Device::emulator(), &again);
        for n in 0..40 {
            is_right(&jit, n).expect("runs");
        }
        assert!(again.stats().disk_hits > 0 && again.stats().damaged == 0, "{:?}", again.stats());
        println!("was full");
        return;
    }
    let said = on_small_disk("a_full_disk_costs_the_cache_and_nothing_else", "true");
    assert!(said.is_none_or(|said| said.contains("was full")));
}

#[test]
fn a_read_only_disk_is_read() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = PathBuf::from(folder);
        if std::fs::write(folder.join("probe"), "").is_ok() {
            is_right(&jit(&Device::emulator(), &Cache::disk(&folder).unwrap()), 1).expect("runs");
            println!("was written");
            return;
        }
        let cache = Cache::disk(&folder).expect("a folder that is there will do");
        let jit = jit(&Device::emulator(), &cache);
        is_right(&jit, 1).expect("is read");
        assert_eq!((jit.compiled(), cache.stats().disk_hits), (0, 1));
        is_right(&jit, 2).expect("is made");
        assert_eq!((jit.compiled(), cache.stats().failed), (1, 1));
        let error = Disk::open(folder.join("new")).expect_err("cannot be made");
        assert_eq!(error.code, Code::E1206, "{error}");
        println!("was read");
        return;
    }
    let exe = std::env::current_exe().expect("a path");
    let first = format!(
        "\"{}\" cache::a_read_only_disk_is_read --exact --nocapture && mount -o remount,ro \"$0\"",
        exe.display()
    );
    let said = on_small_disk("a_read_only_disk_is_read", &first);
    assert!(said.is_none_or(|said| said.contains("was written") && said.contains("was read")));
}

#[test]
fn what_was_not_used_the_longest_goes_first() {
    let folder = TempDir::new().expect("a folder");
    let open = || Cache::none().with_disk(Disk::open(folder.path()).expect("a folder").limit(100_000));
    let cache = open();
    for n in 0..12 {
        cache.put(&key(n), &contents(n));
        let path = files(folder.path());
        let name = key(n).to_string();
        let path = path.iter().find(|p| p.ends_with(&name[2..])).expect("its file");
        let used = SystemTime::now() - Duration::from_secs(1000 - n);
        std::fs::File::options().append(true).open(path).unwrap().set_modified(used).unwrap();
    }
    // Read: it is used now.
    assert!(cache.get(&key(0)).is_some());
    for n in 12..60 {
        cache.put(&key(n), &contents(n));
        if n == 17 {
            assert!(cache.get(&key(0)).is_some(), "it was used a moment ago");
            assert!(cache.get(&key(1)).is_none(), "it was not");
        }
    }
    let total: u64 = files(folder.path()).iter().map(|p| p.metadata().unwrap().len()).sum();
    assert!(total <= 100_000, "{total}");
    assert!(cache.get(&key(59)).is_some());
    assert!(total > 40_000, "not everything goes: {total}");
    // Larger than all room: not kept, and an entry of such a size is not read.
    let small = Cache::none().with_disk(Disk::open(folder.path()).unwrap().limit(100));
    small.put(&key(99), &contents(99));
    assert_eq!(open().get(&key(99)), None);
    open().put(&key(99), &contents(99));
    assert_eq!(small.get(&key(99)), None);
}

#[test]
fn folders_are_their_owners() {
    let parent = TempDir::new().expect("a folder");
    let folder = parent.path().join("a/b");
    Cache::disk(&folder).expect("is made").put(&key(1), &contents(1));
    #[cfg(unix)]
    for path in [folder.clone(), files(&folder)[0].clone(), files(&folder)[0].parent().unwrap().to_owned()] {
        use std::os::unix::fs::PermissionsExt;
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
    // A file is no folder.
    let file = parent.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let error = Cache::disk(&file).err().expect("no folder");
    assert_eq!(error.code, Code::E1206, "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    // What else lies there stays.
    let (beside, within) = (folder.join("README"), folder.join("aa/notes.txt"));
    std::fs::create_dir_all(within.parent().unwrap()).unwrap();
    std::fs::write(&beside, vec![0; 10_000]).unwrap();
    std::fs::write(&within, vec![0; 10_000]).unwrap();
    let cache = Cache::none().with_disk(Disk::open(&folder).unwrap().limit(8000));
    for n in 0..10 {
        cache.put(&key(n), &contents(n));
    }
    assert!(beside.exists() && within.exists());
}

#[test]
fn makers_wait_for_each_other_and_panics_do_not_spread() {
    let memory = Memory::<u64>::new(100);
    let made = AtomicU64::new(0);
    let start = Barrier::new(8);
    let slow = || {
        made.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
    };
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                start.wait();
                let one = memory.get_or_make(&key(1), || {
                    slow();
                    Ok(7)
                });
                assert_eq!(one, Ok(7));
                start.wait();
                // An error is for all who wait, and not kept.
                let error = memory.get_or_make(&key(2), || {
                    slow();
                    Err(Error::new(Code::E1212, "none"))
                });
                assert_eq!(error.expect_err("fails").code, Code::E1212);
                start.wait();
                // One panics; somebody else makes it.
                let panics = std::panic::AssertUnwindSafe(|| {
                    memory.get_or_make(&key(3), || {
                        if made.fetch_add(1, Ordering::Relaxed) == 2 {
                            std::thread::sleep(Duration::from_millis(50));
                            std::panic::resume_unwind(Box::new("on purpose"));
                        }
                        Ok(8)
                    })
                });
                if let Ok(result) = std::panic::catch_unwind(panics) {
                    assert_eq!(result, Ok(8));
                }
            });
        }
    });
    assert_eq!(made.load(Ordering::Relaxed), 4, "one, one error, a panic and who made it then");
    assert_eq!(memory.get_or_make(&key(2), || Ok(9)), Ok(9));
    // A maker may ask for other keys.
    let outer = memory.get_or_make(&key(4), || memory.get_or_make(&key(5), || Ok(10)));
    assert_eq!(outer, Ok(10));
    memory.clear();
    assert_eq!(memory.get_or_make(&key(1), || Ok(11)), Ok(11));
}

#[test]
fn no_two_lists_of_parts_have_one_key() {
    let key = |parts: &[(&str, &str)]| {
        parts.iter().fold(KeyBuilder::new(), |k, (label, part)| k.part(label, part.as_bytes())).finish()
    };
    let lists: [&[(&str, &str)]; 8] = [
        &[],
        &[("", "")],
        &[("a", "bc")],
        &[("ab", "c")],
        &[("a", "b"), ("", "c")],
        &[("a", "b"), ("c", "")],
        &[("c", ""), ("a", "b")],
        &[("a", "bc"), ("", "")],
    ];
    for (i, a) in lists.iter().enumerate() {
        for b in &lists[..i] {
            assert_ne!(key(a), key(b));
        }
    }
    assert_eq!(key(lists[2]).to_string().len(), 64);
}
