//! The calls of the driver, made to a fake one that writes them down: `data/fake_cuda.c`, compiled here with `cc`.
//!
//! Each test starts itself once more as a process that finds the fake as its `libcuda.so`, and compares what that wrote.
//! Without a C compiler nothing is tested, which is said.

#![cfg(all(feature = "cuda", target_os = "linux"))]

use crate::alone;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use tileas_jit::assembler::{DriverLinker, Ladder, Options};
use tileas_jit::driver::{Context, DeviceMemory, Event, Module, Stream};
use tileas_jit::{Assembler, BorrowedMemory, BorrowedStream, Code, Cubin};
use tileas_launch::{Elem, L2, Launch, MapArg, Oob, Swizzle, Value};

const LOG: &str = "FAKE_CUDA_LOG";

/// The folder with the fake; `None`: it cannot be compiled.
fn fake() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fake_driver");
        std::fs::create_dir_all(&folder).expect("a folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/fake_cuda.c");
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", source, "-o"]);
        let status = cc.arg(folder.join("libcuda.so")).status();
        match status {
            Ok(status) => assert!(status.success(), "the fake does not compile"),
            Err(error) => {
                println!("no C compiler, not tested: {error}");
                return None;
            }
        }
        Some(folder)
    });
    made.as_ref()
}

/// Runs the test of that name, which does `body`, in a process with the fake. Gives what the fake wrote.
fn with_fake(test: &str, variables: &[(&str, &str)], body: fn()) -> Option<String> {
    if std::env::var_os(LOG).is_some() {
        body();
        return None;
    }
    let folder = fake()?;
    let log = folder.join(format!("{test}.log"));
    std::fs::write(&log, "").expect("the log is written");
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    child.args(alone(&format!("fake_driver::{test}")));
    child.env("LD_LIBRARY_PATH", folder).env(LOG, &log).envs(variables.iter().copied());
    let output = child.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    Some(std::fs::read_to_string(&log).expect("the log is read"))
}

/// An image of a header and nothing else.
fn cubin() -> Cubin {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x41");
    (bytes[18], bytes[49]) = (190, 100);
    Cubin::new(bytes).expect("a whole image")
}

fn map() -> MapArg {
    MapArg {
        elem: Elem::Bf16,
        address: 0xabc000,
        dims: [64, 200, 3].into_iter().collect(),
        strides: [256, 51200].into_iter().collect(),
        box_dims: [64, 128, 1].into_iter().collect(),
        element_strides: [1, 1, 2].into_iter().collect(),
        swizzle: Swizzle::B64,
        oob: Oob::Nan,
        l2: L2::B256,
    }
}

fn launch() -> Launch {
    let bits = |bits, size| Value::Bits { bits, size };
    Launch {
        grid: [12, 3, 2],
        block: [192, 1, 1],
        cluster: [2, 1, 1],
        dynamic_smem: 100_000,
        params: vec![
            Value::Map(Box::new(map())),
            bits(0x1122_3344_5566_7788, 8),
            bits(0x99aa, 2),
            bits(0xbbcc_ddee, 4),
        ],
    }
}

#[test]
fn the_life_of_a_kernel() {
    let log = with_fake("the_life_of_a_kernel", &[], || {
        let context = Context::new(0).expect("the fake has a device");
        assert_eq!((context.name(), context.capability()), ("Fake 40", (10, 0)));
        assert_eq!((context.target().as_str(), context.multiprocessors()), ("sm_100a", 148));
        assert_eq!((context.max_shared_bytes(), context.driver_version()), (232_448, (12, 9)));
        let stream = Stream::new(&context).expect("a stream");
        let [start, end] = [(); 2].map(|()| Event::new(&context).expect("an event"));
        let function = Module::load(&context, &cubin()).expect("loads").function("kernel").expect("is there");
        start.record(&stream).expect("is recorded");
        function.launch(&launch(), &stream).expect("is launched");
        // Less shared memory and no cluster; then more than every device can do.
        let small = Launch { dynamic_smem: 5000, cluster: [1, 1, 1], ..launch() };
        function.launch(&small, &stream).expect("is launched");
        let wide = Launch { dynamic_smem: 200_000, cluster: [4, 4, 1], grid: [4, 4, 1], ..launch() };
        function.launch(&wide, &stream).expect("is launched");
        end.record(&stream).expect("is recorded");
        end.synchronize().expect("is waited for");
        assert_eq!(end.elapsed_ms(&start), Ok(1.5));
        drop(context);
        drop(function);
    });
    let Some(log) = log else { return };
    let map = "map: type 9, address 0xabc000, interleave 0, swizzle 2, l2 3, fill 1\n  \
        [64 stride 0 box 64 step 1] [200 stride 256 box 128 step 1] [3 stride 51200 box 1 step 2]\n";
    let values = "  0102030405060708, 8877665544332211, aa99, eeddccbb\n";
    let want = format!(
        "init 0\nretain 40\nstream, flags 1\nevent, flags 0\nevent, flags 0\nload, 0 options\nfunction kernel of 0x400\n\
         record 0x300 in 0x200\n\
         {map}attribute 8 of 0x500 = 100000\n\
         launch 0x500 in 0x200: grid 12 3 2, block 192 1 1, shared 100000, attribute 4: 2 1 1\n{values}\
         {map}launch 0x500 in 0x200: grid 12 3 2, block 192 1 1, shared 5000\n{values}\
         {map}attribute 8 of 0x500 = 200000\nattribute 14 of 0x500 = 1\n\
         launch 0x500 in 0x200: grid 4 4 1, block 192 1 1, shared 200000, attribute 4: 4 4 1\n{values}\
         record 0x301 in 0x200\nsynchronize event 0x301\nelapsed from 0x300 to 0x301\n\
         synchronize context\nunload 0x400\n\
         destroy event 0x301\ndestroy event 0x300\ndestroy stream 0x200\n\
         release 40, contexts pushed 0, linkers 0\n"
    );
    assert_eq!(log, want);
}

#[test]
fn memory_is_copied_within_its_bounds() {
    let log = with_fake("memory_is_copied_within_its_bounds", &[], || {
        let context = Context::new(0).expect("the fake has a device");
        let stream = Stream::new(&context).expect("a stream");
        let mut memory = DeviceMemory::new(&context, 16).expect("memory");
        memory.zero(&stream).expect("is filled");
        memory.write(&stream, 0, &[1, 2, 3]).expect("is written");
        let mut bytes = [9; 16];
        memory.read(&stream, 0, &mut bytes).expect("is read");
        assert_eq!(bytes, [1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let error = memory.write(&stream, 0, &[0; 17]).expect_err("is too much");
        assert_eq!(error.to_string(), "E1205: a copy of 17 bytes from 0 on, where there are 16");
        assert!(memory.read(&stream, 0, &mut [0; 17]).is_err());
        assert!(memory.read(&stream, 15, &mut [0; 2]).is_err());
        assert!(memory.write(&stream, usize::MAX, &[0; 2]).is_err());
        let mut none = DeviceMemory::new(&context, 0).expect("nothing is little");
        none.write(&stream, 0, &[]).and_then(|()| none.zero(&stream)).expect("and is soon done");
        assert_eq!((none.address(), none.size(), memory.size()), (0, 0, 16));
        let seen = std::thread::spawn(move || memory.read(&stream, 0, &mut [0]).is_ok()).join();
        assert!(seen.expect("no panic"), "in another thread");
    });
    let Some(log) = log else { return };
    let want = "init 0\nretain 40\nstream, flags 1\nalloc 16\nfill 16 with 0 in 0x200\nwrite 3 in 0x200\nsynchronize stream 0x200\n\
        read 16 in 0x200\nsynchronize stream 0x200\n\
        read 1 in 0x200\nsynchronize stream 0x200\n";
    assert_eq!(&log[..want.len().min(log.len())], want);
    let mut rest: Vec<&str> = log[want.len()..].lines().collect();
    assert_eq!(rest.pop(), Some("release 40, contexts pushed 0, linkers 0"));
    rest.sort();
    assert_eq!(rest, ["destroy stream 0x200", "free"]);
}

#[test]
fn what_fails_is_named() {
    let log = with_fake("what_fails_is_named", &[("FAKE_CUDA_BROKEN", "1")], || {
        let error = Context::new(1).expect_err("there is one device");
        assert_eq!(
            error.to_string(),
            "E1205: cuDeviceGet fails: a made-up error (CUDA_ERROR_INVALID_DEVICE)"
        );
        let context = Context::new(0).expect("the fake has a device");
        let stream = Stream::new(&context).expect("a stream");
        // PTX is the driver's to compile; what it says of it is told.
        let compiled = Module::compile(&context, ".version 8.6\n").expect("it compiles");
        compiled.function("kernel").expect("is there");
        let error = Module::compile(&context, "nonsense").expect_err("it does not compile");
        assert_eq!(error.to_string(), "E1202: driver:\nptxas fatal: no");
        assert_eq!(Module::compile(&context, "\0").expect_err("a byte 0").code, Code::E1202);
        let module = Module::load(&context, &cubin()).expect("loads");
        let error = module.function("other").expect_err("there is no other");
        assert!(
            error.message.starts_with("cuModuleGetFunction fails:") && error.message.ends_with("for other")
        );
        assert!(module.function("a\0b").is_err());
        let function = module.function("kernel").expect("is there");
        let error = function.launch(&launch(), &stream).expect_err("it is broken");
        assert_eq!(error.message, "cuLaunchKernelEx fails: an illegal address (CUDA_ERROR_ILLEGAL_ADDRESS)");
        // Values that are not the entry's do not get as far as the driver.
        for n in 0..4 {
            let mut launch = launch();
            launch.params.remove(n);
            let error = function.launch(&launch, &stream).expect_err("a value is missing");
            assert!(
                error.code == Code::E1205 && error.message.contains("of [128, 8, 2, 4] in the entry"),
                "{error}"
            );
        }
        for change in [
            |m: &mut MapArg| m.dims[0] = 13,
            |m: &mut MapArg| m.elem = Elem::E2m1,
            |m: &mut MapArg| m.strides.push(1),
            |m: &mut MapArg| m.box_dims.clear(),
            |m: &mut MapArg| m.dims.clear(),
            |m: &mut MapArg| m.dims.resize(6, 1),
        ] {
            let mut map = map();
            change(&mut map);
            let error = context.encode_tensor_map(&map).expect_err("it is wrong");
            assert!(error.message.contains("asked for: MapArg { elem"), "{error}");
        }
    });
    let Some(log) = log else { return };
    // Nobody knows whether it still runs: it stays.
    assert!(log.contains("synchronize context\n") && !log.contains("unload"), "{log}");
    assert!(log.ends_with("release 40, contexts pushed 0, linkers 0\n"), "{log}");
    assert_eq!(log.matches("launch ").count(), 1, "{log}");
    // The map that the driver refuses, and those of launches that have one.
    assert_eq!(log.matches("map: ").count(), 1 + 3 + 1, "{log}");
    assert!(!log.contains("WITHOUT") && !log.contains("NOT ALIGNED"), "{log}");
}

#[test]
fn an_old_driver_is_refused() {
    let log = with_fake("an_old_driver_is_refused", &[("FAKE_CUDA_DRIVER", "11080")], || {
        let error = Context::new(0).expect_err("too old");
        assert_eq!(error.to_string(), "E1204: the driver is of CUDA 11.8, 12.0 or later is needed");
    });
    assert!(log.is_none_or(|log| log.is_empty()));
}

#[test]
fn the_drivers_linker_assembles() {
    let log = with_fake("the_drivers_linker_assembles", &[], || {
        let context = Context::new(0).expect("the fake has a device");
        let options = Options { opt_level: 2, line_info: true, ..Options::default() };
        let linker = DriverLinker::new(&context, &options).expect("no options of ptxas");
        assert_eq!((linker.name(), linker.max_ptx_version()), ("driver", (8, 8)));
        let fingerprint = linker.fingerprint();
        assert!(
            fingerprint.starts_with("driver 12.9, ") && fingerprint.ends_with(", sm_100a; -O2 -lineinfo")
        );
        let image = linker.assemble("good;", "sm_100a").expect("assembles");
        assert_eq!(image, cubin());
        let error = linker.assemble("x;\n  bad;\n", "sm_100a").expect_err("is bad");
        assert_eq!(error.code, Code::E1202);
        let want = "driver:\n  ptxas application ptx input, line 2; error   : no bad\n    | bad;";
        assert_eq!(error.message, want);
        let error = linker.assemble("silent;", "sm_100a").expect_err("is bad");
        assert_eq!(error.to_string(), "E1205: cuLinkAddData fails: a made-up error (CUDA_ERROR_INVALID_PTX)");
        for (ptx, target) in [("future;", "sm_100a"), ("good;", "sm_90a")] {
            assert_eq!(linker.assemble(ptx, target).expect_err("not known").code, Code::E1207);
        }
        let more = Options { extra: vec!["-v".into()], ..Options::default() };
        assert_eq!(DriverLinker::new(&context, &more).expect_err("not for it").code, Code::E1204);
        let ladder = Ladder::find_for(&context, &options);
        let done = ladder.assemble_by(".version 8.8\n", "sm_100a").expect("assembles");
        assert_eq!(done.rung, "driver");
        assert!(ladder.describe().starts_with("driver: driver 12.9"), "{}", ladder.describe());
    });
    let Some(log) = log else { return };
    let one = |bytes: usize| {
        format!(
            "linker: log 6=16383 7=2 13=1 8=1\nadd to 0x600: type 1, {bytes} bytes, kernel, 0 options\ndestroy linker 0x600\n"
        )
    };
    let all: String = [6, 11, 8, 8, 14].map(one).concat();
    assert_eq!(log, format!("init 0\nretain 40\n{all}release 40, contexts pushed 0, linkers 0\n"));
}

#[test]
#[allow(unsafe_code, reason = "what is tested takes the caller's word")]
fn what_is_borrowed_is_not_freed() {
    let log = with_fake("what_is_borrowed_is_not_freed", &[], || {
        let device = tileas_jit::Device::cuda(0).expect("the fake has a device");
        let mut memory = [7_u16; 12];
        let address = memory.as_mut_ptr().expose_provenance() as u64;
        {
            // SAFETY: the memory of the fake is the process's, and nobody else uses these bytes meanwhile.
            let memory = unsafe { BorrowedMemory::new(address, 22) };
            let borrow =
                |extents: &[i64], strides: &[i64]| device.borrow_tensor(memory, Elem::U16, extents, strides);
            let mut tensor = borrow(&[2, 3], &[8, 1]).expect("11 elements");
            tensor.write::<u16>(&[1, 2, 3, 4, 5, 6]).expect("is written");
            assert_eq!(tensor.read::<u16>(), Ok(vec![1, 2, 3, 4, 5, 6]));
            assert!(tensor.window(10, &[1], &[1]).is_ok(), "the last of them");
            for (first, extents) in [(11, 1), (10, 2)] {
                let error = tensor.window(first, &[extents], &[1]).expect_err("beyond the last");
                assert_eq!(error.code, Code::E1209);
            }
            for (extents, strides) in [
                (&[2, 3][..], &[1][..]),
                (&[-1], &[1]),
                (&[2], &[-1]),
                (&[i64::MAX; 2], &[1, 1]),
                (&[12], &[1]),
            ] {
                assert_eq!(borrow(extents, strides).expect_err("no tensor").code, Code::E1209);
            }
            // SAFETY: the fake does not look at it.
            let stream = unsafe { BorrowedStream::new(0x77) };
            let stream = device.borrow_stream(stream).expect("a stream");
            stream.synchronize().expect("is waited for");
        }
        assert_eq!(memory, [1, 2, 3, 7, 7, 7, 7, 7, 4, 5, 6, 7]);
    });
    let Some(log) = log else { return };
    assert!(log.contains("synchronize stream 0x77\n"), "{log}");
    assert!(!log.contains("free") && !log.contains("destroy stream 0x77"), "{log}");
    assert!(log.ends_with("release 40, contexts pushed 0, linkers 0\n"), "{log}");
}
