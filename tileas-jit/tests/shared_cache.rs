//! A cache in stores that machines share: a folder, Redis, S3. Each is used by two processes at once, and taken away.
//!
//! Servers are started here, on the loopback interface: `redis-server` of the system's, and the S3 server of moto (in the Python
//! that `TILEAS_PYTHON` names). One that is not there is not tested, which is said; with `TILEAS_REQUIRE_SERVERS` it is a failure.

#![cfg(feature = "shared-services")]

use crate::alone;
use opendal::Operator;
use std::ffi::OsStr;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tileas_jit::cache::{Disk, Key, KeyBuilder, Shared, Stats, opendal};
use tileas_jit::{Cache, Device, Elem, Jit, args};

/// How a process of a test finds its store: scheme and options, a line each.
const STORE: &str = "TILEAS_TEST_STORE";
/// Kernels that each process wants.
const KERNELS: usize = 20;

/// A store: its scheme and its options.
#[derive(Clone)]
struct Store(Vec<(String, String)>);

impl Store {
    fn new(scheme: &str, options: &[(&str, &str)]) -> Store {
        let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        Store([("scheme", scheme)].iter().chain(options).map(own).collect())
    }

    fn operator(&self) -> Operator {
        Operator::via_iter(&self.0[0].1, self.0[1..].iter().cloned()).expect("a store")
    }

    fn shared(&self) -> Shared {
        Shared::new(self.operator()).expect("a runtime").timeout(Duration::from_secs(10))
    }

    fn cache(&self) -> Cache {
        Cache::none().with_shared(self.shared())
    }
}

fn key(n: u64) -> Key {
    KeyBuilder::new().part("test", &n.to_le_bytes()).finish()
}

fn text(n: usize) -> String {
    format!(
        "kernel @k(%x: view<gmem, ?xf32>, %y: view<gmem, ?xf32>) {{\n  %p = program_id <{{axis = 0}}> : i32\n  \
         %t = tiled_load %x[%p] : tile<128xf32>\n  %c = constant {n}.0 : tile<128xf32>\n  \
         %s = addf %t, %c : tile<128xf32>\n  tiled_store %s, %y[%p]\n  return\n}}\n"
    )
}

/// Wants all kernels and runs them: how many were compiled, and what the cache did.
fn want_all(cache: &Cache) -> (u64, Stats) {
    let device = Device::emulator();
    let jit = Jit::builder(&device).cache(cache.clone()).build().expect("a JIT");
    for n in 0..KERNELS {
        let kernel = jit.kernel(&jit.parse(&text(n)).expect("parses"), "k").expect("compiles");
        let (x, mut y) =
            (device.tensor(&[1.0_f32; 128], &[128]).unwrap(), device.zeros(Elem::F32, &[128]).unwrap());
        kernel.launch(&device.stream().unwrap(), args![&x, &mut y]).expect("runs");
        assert_eq!(y.read::<f32>().unwrap(), [n as f32 + 1.0; 128]);
    }
    (jit.compiled(), jit.stats())
}

/// What every store has to do; `damage` writes to it what nobody signed.
fn exercise(test: &str, store: &Store) {
    // In a process of its own.
    let child = || {
        let mut child = Command::new(std::env::current_exe().expect("a path"));
        child.args(alone(&format!("shared_cache::{test}"))).stdin(Stdio::null());
        let lines: Vec<String> = store.0.iter().map(|(a, b)| format!("{a}={b}")).collect();
        child.env(STORE, lines.join("\n")).stdout(Stdio::piped()).stderr(Stdio::piped());
        child.spawn().expect("it runs")
    };
    let end = |child: Child| {
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let at = said.find("compiled ").unwrap_or_else(|| panic!("no counts: {said}"));
        let mut numbers = said[at..].split_whitespace().filter_map(|w| w.parse::<u64>().ok());
        (numbers.next().expect("a number"), numbers.next().expect("another"))
    };
    let both = [child(), child()].map(end);
    for (compiled, found) in both {
        assert_eq!(compiled + found, KERNELS as u64);
    }
    assert_eq!(end(child()), (0, KERNELS as u64), "a machine that comes later compiles nothing");

    // What it finds there goes to its disk.
    let folder = TempDir::new().expect("a folder");
    let tiers = || store.cache().with_disk(Disk::open(folder.path()).expect("a folder"));
    let (compiled, stats) = want_all(&tiers());
    assert_eq!((compiled, stats.shared_hits, stats.disk_hits), (0, KERNELS as u64, 0));
    let (compiled, stats) = want_all(&tiers());
    assert_eq!((compiled, stats.shared_hits, stats.disk_hits), (0, 0, KERNELS as u64));

    // Large entries, and the names of keys.
    let cache = store.cache();
    let large: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    cache.put(&key(1), &large);
    assert_eq!(cache.get(&key(1)).as_deref(), Some(&large[..]));
    assert_eq!(cache.get(&key(2)), None);
    assert_eq!(cache.stats(), Stats { shared_hits: 1, misses: 1, ..Stats::default() });

    // Damaged, foreign, another key's.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let operator = store.operator();
    let path = |n| format!("v1/{}", key(n));
    let whole = runtime.block_on(operator.read(&path(1))).expect("is read").to_vec();
    for at in [0, 7, 8, 45, 60, 100, whole.len() - 1] {
        let mut entry = whole.clone();
        entry[at] ^= 4;
        runtime.block_on(operator.write(&path(1), entry)).expect("is written");
        assert_eq!(cache.get(&key(1)), None, "byte {at}");
    }
    runtime.block_on(operator.write(&path(3), whole)).expect("is written");
    assert_eq!(cache.get(&key(3)), None, "another key's entry");
    assert_eq!(cache.stats().damaged, 8);

    // Signed: what others wrote is as good as none, to those who have the key and to those who have another.
    let signed = |secret: &[u8]| Cache::none().with_shared(store.shared().signed(secret));
    cache.put(&key(4), b"code of nobody knows whom");
    assert_eq!(signed(b"secret").get(&key(4)), None);
    signed(b"secret").put(&key(5), b"ours");
    assert_eq!(signed(b"secret").get(&key(5)).as_deref(), Some(&b"ours"[..]));
    assert_eq!(signed(b"another").get(&key(5)), None);
    assert_eq!(cache.get(&key(5)), None);

    // From asynchronous code, where one may not wait for a runtime.
    runtime.block_on(async {
        let cache = signed(b"secret");
        assert_eq!(cache.get(&key(5)).as_deref(), Some(&b"ours"[..]));
    });
}

/// Warnings, to be seen where a test fails.
struct Said;

impl log::Log for Said {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        println!("{}: {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// The part of a test that runs in a process of its own. Whether this was one.
fn is_child() -> bool {
    let Ok(lines) = std::env::var(STORE) else { return false };
    let options = lines.lines().filter_map(|l| l.split_once('='));
    let store = Store(options.map(|(a, b)| (a.to_owned(), b.to_owned())).collect());
    log::set_logger(&Said).map(|()| log::set_max_level(log::LevelFilter::Warn)).expect("the first logger");
    let (compiled, stats) = want_all(&store.cache());
    assert_eq!((stats.damaged, stats.failed), (0, 0));
    println!("compiled {compiled} found {} end", stats.shared_hits);
    true
}

/// A server, which ends with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server and waits until it answers. `None`: it is not there.
fn serve(program: &OsStr, args: impl Fn(u16) -> Vec<String>) -> Option<Server> {
    // A port that is free now.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let child = Command::new(program)
        .args(args(port))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        assert!(std::env::var_os("TILEAS_REQUIRE_SERVERS").is_none(), "no {}", program.display());
        println!("no {}: not tested", program.display());
        return None;
    };
    let server = Server { child, port };
    let end = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "{} does not answer", program.display());
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(server)
}

/// A store that goes away costs its time once, and no kernel.
fn without_its_server(store: &Store) {
    let shared = Shared::new(store.operator()).expect("a runtime").timeout(Duration::from_millis(300));
    let cache = Cache::none().with_shared(shared);
    let (compiled, stats) = want_all(&cache);
    assert_eq!((compiled, stats.failed, stats.shared_hits), (KERNELS as u64, 1, 0), "asked once");
}

#[test]
fn a_folder_on_a_network() {
    if is_child() {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let root = folder.path().to_str().expect("a path in UTF-8");
    // Without it a file is there before all of it is.
    let unfinished = folder.path().join("unfinished");
    let unfinished = unfinished.to_str().expect("a path in UTF-8");
    let options = [("root", root), ("atomic_write_dir", unfinished)];
    exercise("a_folder_on_a_network", &Store::new("fs", &options));
}

#[test]
fn redis() {
    if is_child() {
        return;
    }
    let args = |port: u16| {
        let port = port.to_string();
        let all = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        all.map(String::from).to_vec()
    };
    let Some(server) = serve(OsStr::new("redis-server"), args) else { return };
    let endpoint = format!("redis://127.0.0.1:{}", server.port);
    let store = Store::new("redis", &[("endpoint", &endpoint), ("root", "/tileas")]);
    exercise("redis", &store);
    drop(server);
    without_its_server(&store);
}

#[test]
fn s3() {
    if is_child() {
        return;
    }
    let python = std::env::var_os("TILEAS_PYTHON").unwrap_or_else(|| "python3".into());
    let has_moto = Command::new(&python).args(["-c", "import moto.server"]).stderr(Stdio::null()).status();
    // A program that is not there where Python has no moto.
    let program = if has_moto.is_ok_and(|s| s.success()) { &*python } else { OsStr::new("moto") };
    let args = |port: u16| {
        let port = port.to_string();
        ["-m", "moto.server", "-H", "127.0.0.1", "-p", &port].map(String::from).to_vec()
    };
    let Some(server) = serve(program, args) else { return };
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    // The bucket is made by a bare request, which moto takes unsigned.
    let mut made = TcpStream::connect(("127.0.0.1", server.port)).expect("answers");
    let request = "PUT /kernels HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\
        Authorization: AWS4-HMAC-SHA256 Credential=test/20250101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n";
    std::io::Write::write_all(&mut made, request.as_bytes()).expect("is sent");
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut made, &mut answer).expect("is answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let options = [
        ("bucket", "kernels"),
        ("endpoint", &endpoint),
        ("region", "us-east-1"),
        ("access_key_id", "test"),
        ("secret_access_key", "test"),
        ("disable_config_load", "true"),
        ("root", "/tileas"),
    ];
    let store = Store::new("s3", &options);
    exercise("s3", &store);
    drop(server);
    without_its_server(&store);
}
