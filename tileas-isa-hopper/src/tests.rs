//! Pins of what differs from the published numbers, and checks of the model against totals worked out by hand.

use super::*;
use tileas_codegen::Settings;
use tileas_codegen::isa::*;

const M: &MachineModel = &tables::MODEL;

#[test]
fn limits_and_rates_are_pinned() {
    let l = &M.limits;
    assert_eq!((l.tmem_lanes, l.tmem_columns, l.tmem_alloc_min_columns), (0, 0, 0));
    assert_eq!((l.smem_bytes, l.named_barriers), (227 * 1024, 16));
    assert_eq!((l.regs_per_thread, l.regs_per_sm, l.max_threads), (255, 64 * 1024, 1024));
    let gpu = ["sms", "clock_mhz", "dram_bytes", "l2_bytes", "none"].map(|n| M.gpu_number(n));
    assert_eq!(gpu, [132, 1_830, 1_830, 64, 0]);
    assert_eq!((M.acc_to_acc_latency, M.acc_to_reader_latency), (32, 32));
    // Accumulators are registers: no pool counts them.
    assert!(M.pool_for(PoolRole::Accumulators).is_none() && M.pool_uses(OpClass::Dot).is_empty());
    for (threads, want) in [(256, 255), (384, 168), (512, 128)] {
        assert_eq!(M.entry_registers(threads), want, "{threads} threads");
    }
}

#[test]
fn products_take_what_the_tensor_core_takes() {
    let dot = |m: u64, n: u64, k: u64| Work { macs: m * n * k, bytes: 2 * (m + n) * k, ..Work::default() };
    // 64 x 256 x 16 is 128 clocks of the tensor core, and its operands 10240 bytes: 80 of shared memory.
    for (work, clocks) in [(dot(64, 256, 16), 128), (dot(128, 256, 64), 1024), (dot(128, 128, 64), 512)] {
        assert_eq!(M.real_occupancy(OpClass::Dot, &work), clocks);
        assert_eq!(M.real_latency(OpClass::Dot, &work), clocks + 32);
    }
    // Narrow ones read more than they multiply: 2 x 72 x 64 bytes at 128 a clock.
    let units = M.real_uses(OpClass::Dot, &dot(64, 8, 64));
    let clocks: Vec<u32> = units.map(|u| u.clocks).collect();
    assert_eq!(clocks, [16, 72]);
}

fn request(m: u32, n: u32, k: u32) -> MmaRequest {
    let (a, b, acc) = (AtomType::F16, AtomType::F16, AtomType::F32);
    MmaRequest { a, b, acc, m, n, k, a_m_contiguous: false, b_n_contiguous: false }
}

#[test]
fn mma_shapes_are_as_the_manual_has_them() {
    let isa = isa_for_cpu("sm_90a").unwrap();
    let atoms = isa.atoms();
    for m in [0, 16, 32, 64, 96, 128, 192, 256, 512] {
        for n in 0..=512 {
            let legal = [64, 128, 256].contains(&m) && n % 8 == 0 && (8..=256).contains(&n);
            assert_eq!(atoms.select_mma(&request(m, n, 64)).is_ok(), legal, "{m}x{n}");
        }
    }
    for k in 0..=64 {
        assert_eq!(atoms.select_mma(&request(128, 128, k)).is_ok(), k > 0 && k % 16 == 0, "K {k}");
    }
    let atom = atoms.select_mma(&request(128, 256, 64)).unwrap();
    assert_eq!((atom.kind.kind, atom.k, atom.k_steps), ("f16", 16, 4));
    assert_eq!(atom.operand_bytes(), (16384, 32768));
    assert_eq!(atom.kind.a_spaces, [OperandSpace::Smem, OperandSpace::Rmem]);
    assert_eq!(atom.kind.b_spaces, [OperandSpace::Smem]);
    let (home, contract) = (isa.acc_home(), isa.mma_contract());
    assert_eq!((home.space, home.allocation), (Space::Rmem, AccAllocation::Registers));
    assert_eq!(
        (contract.issue, contract.completion, contract.in_order),
        (Issue::Warpgroup, Completion::WaitGroup, InOrder::SameAccumulator)
    );
}

#[test]
fn mma_types_and_refusals_say_why() {
    let isa = isa_for_cpu("sm_90a").unwrap();
    use AtomType::*;
    let with = |a, b, acc, k| MmaRequest { a, b, acc, k, ..request(128, 128, 0) };
    for (r, kind) in [
        (with(F16, F16, F32, 64), "f16"),
        (with(Bf16, Bf16, F32, 64), "f16"),
        (with(Tf32, Tf32, F32, 8), "tf32"),
        (with(E4m3, E5m2, F32, 32), "f8"),
        (with(S8, U8, S32, 32), "i8"),
    ] {
        assert_eq!(isa.atoms().select_mma(&r).unwrap().kind.kind, kind);
    }
    let why = |r: &MmaRequest| isa.atoms().select_mma(r).unwrap_err();
    assert_eq!(
        why(&with(E4m3, E4m3, F32, 16)),
        "K = 16 is not a positive multiple of 32, the depth of kind f8"
    );
    assert_eq!(why(&request(32, 128, 64)), "M = 32 has no instruction of kind f16, M is 64 or 128 or 256");
    // Operands of 8 and 32 bits have K innermost; those of 16 bits either dimension.
    let transposed =
        |a, b, acc, k| MmaRequest { a_m_contiguous: true, b_n_contiguous: true, ..with(a, b, acc, k) };
    assert!(isa.atoms().select_mma(&transposed(Bf16, Bf16, F32, 64)).is_ok());
    for (ty, acc, k) in [(Tf32, F32, 8), (E4m3, F32, 32), (S8, S32, 32)] {
        assert!(why(&transposed(ty, ty, acc, k)).contains("needs K contiguous"));
    }
}

/// Two columns, two rows 8 apart and all columns 8 apart in one thread, 4 columns by 8 rows of threads in each warp of 16 rows: the figure of `wgmma`
/// accumulators in the manual, with elements counted along rows of 16.
#[test]
fn accumulators_lie_as_the_manual_draws_them() {
    let isa = isa_for_cpu("sm_90a").unwrap();
    let layout = (isa.acc_home().layout)(64, 16, 4).expect("a product of one warpgroup");
    assert_eq!(layout.to_string(), "reg(i1 i128 i8) lane(i2 i4 i16 i32 i64) warp(i256 i512)");
    let two = (isa.acc_home().layout)(128, 16, 8).expect("two warpgroups");
    assert_eq!(two.to_string(), "reg(i1 i128 i8) lane(i2 i4 i16 i32 i64) warp(i256 i512 i1024)");
    let one = (isa.acc_home().layout)(128, 16, 4).expect("two tiles of rows in one warpgroup");
    assert_eq!(one.to_string(), "reg(i1 i128 i8 i1024) lane(i2 i4 i16 i32 i64) warp(i256 i512)");
}

#[test]
fn targets_are_found_and_others_refused() {
    assert_eq!(cpus().collect::<Vec<_>>(), ["sm_90a"]);
    let isa = isa_for_cpu("sm_90a").unwrap();
    assert_eq!((isa.cpu().name, isa.name(), isa.cpu().ptx_version), ("sm_90a", "hopper", (8, 0)));
    assert_eq!(isa.triple().to_string(), TRIPLE);
    assert!(isa.features().has(Feature::Tma) && isa.features().has(Feature::SetMaxRegisters));
    assert!(!isa.features().has(Feature::TensorMemory));
    for cpu in ["sm_100a", "sm_90", "", "sm_90A", "SM_90a ", "\0"] {
        let e = isa_for_cpu(cpu).unwrap_err();
        assert_eq!(e.code, Code::E0890, "{cpu:?}");
        assert!(e.message.contains("which is sm_90a"), "{e}");
    }
    let e = super::isa(&Triple::from_str("x86_64-unknown-linux-gnu").unwrap(), "sm_90a").unwrap_err();
    assert_eq!(e.code, Code::E0890);
    assert!(e.message.contains("x86_64"), "{e}");
    let set = |name: &str, value: &str| Settings::default().with(name, value).unwrap().smem_limit(&*isa);
    assert_eq!((set("smem-bytes", "4096"), set("smem-bytes", "1000000")), (4096, 232_448));
}

#[test]
fn tables_fit_and_are_described() {
    assert_eq!(M.check(), Ok(()));
    let isa = isa_for_cpu("sm_90a").unwrap();
    let text = describe(&*isa);
    for part in ["PTX 8.0", "232448", "wgmma", "s8 x s8", "H100"] {
        assert!(text.contains(part), "{part}");
    }
    for class in OpClass::ALL {
        assert!(text.contains(class.name()), "{}", class.name());
    }
}
