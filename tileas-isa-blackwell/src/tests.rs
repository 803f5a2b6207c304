//! Pins of every published number, and checks of the model against hand-computed totals.

use super::*;
use tileas_codegen::Settings;
use tileas_codegen::ir::{Layout, Space};
use tileas_codegen::isa::*;

const M: &MachineModel = &tables::MODEL;

#[test]
fn slots_are_pinned() {
    let want: [(&str, SlotKind); 24] = [
        ("issue", SlotKind::Coarse),
        ("xu", SlotKind::Coarse),
        ("xu64", SlotKind::Coarse),
        ("fp32x2_fp16ultra", SlotKind::Fine),
        ("alu", SlotKind::Coarse),
        ("alu_or_fmaheavy", SlotKind::Fine),
        ("dual_alu", SlotKind::Fine),
        ("lsu", SlotKind::Coarse),
        ("tmem", SlotKind::Coarse),
        ("mma", SlotKind::Coarse),
        ("tc_and_mma", SlotKind::Fine),
        ("tma", SlotKind::Coarse),
        ("tp_gnic_rd", SlotKind::Fine),
        ("tp_gnic_wr", SlotKind::Fine),
        ("tp_smem_rd", SlotKind::Fine),
        ("tp_smem_wr", SlotKind::Fine),
        ("tp_tmem_rd", SlotKind::Fine),
        ("tp_tmem_wr", SlotKind::Fine),
        ("tp_mma", SlotKind::Fine),
        ("unknown", SlotKind::Fine),
        ("omitted_simt", SlotKind::Fine),
        ("test_simt", SlotKind::Fine),
        ("test_mma", SlotKind::Fine),
        ("test_dma", SlotKind::Test),
    ];
    let got: Vec<_> = M.slots.iter().map(|s| (s.name, s.kind)).collect();
    assert_eq!(got, want);
    for (index, slot) in M.slots.iter().enumerate() {
        assert_eq!((slot.id.get() as usize, slot.id.bit(), slot.capacity), (index + 1, 1 << index, 1));
        assert_eq!(M.slot_named(slot.name).map(|s| s.id), Some(slot.id));
    }
    let primary: Vec<u8> = M.slots.iter().filter(|s| s.primary).map(|s| s.id.get()).collect();
    assert_eq!(primary, [4, 6, 7, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]);
    assert!(M.slots.iter().filter(|s| s.primary).all(|s| s.kind == SlotKind::Fine));
    let row = M.slots.iter().fold(0u64, |row, s| row | s.id.bit());
    assert_eq!(row, (1 << 24) - 1);
}

fn ids(slots: &[SlotId]) -> Vec<u8> {
    slots.iter().map(|s| s.get()).collect()
}

#[test]
fn latency_families_are_pinned() {
    let got: Vec<_> = M.families.iter().map(|f| (f.latency, ids(f.slots))).collect();
    let want: Vec<(u32, Vec<u8>)> =
        vec![(2, vec![7]), (4, vec![6, 4]), (7, vec![13, 14, 15, 16, 17, 18, 19]), (8, vec![11])];
    assert_eq!(got, want);
}

#[test]
fn op_tags_are_pinned() {
    let groups: [(&[u8], u32, &[u8]); 11] = [
        (&[0x01, 0x02, 0x03, 0x0C], 2, &[7]),
        (&[0x09, 0x0A, 0x0B, 0x15, 0x16, 0x17], 4, &[6]),
        (&[0x0D, 0x0E, 0x0F, 0x10], 4, &[4]),
        (&[0x18, 0x19], 8, &[11]),
        (&[0x1C], 7, &[15, 16]),
        (&[0x1D], 7, &[16]),
        (&[0x1E], 7, &[17]),
        (&[0x1F], 7, &[18]),
        (&[0x20], 7, &[19]),
        (&[0x21], 7, &[13]),
        (&[0x22], 7, &[14]),
    ];
    for (tags, latency, slots) in groups {
        for &tag in tags {
            let row = M.tag(tag).unwrap_or_else(|| panic!("tag {tag:#x}"));
            assert_eq!((row.latency, ids(row.slots)), (latency, slots.to_vec()), "tag {tag:#x}");
        }
    }
    assert_eq!(M.tags.len(), 23);
    assert_eq!(groups.iter().map(|g| g.0.len()).sum::<usize>(), 23);
    assert!(M.tag(0x04).is_none() && M.tag(0x1A).is_none());
}

/// `(slot, offset, duration, occupancy)`.
type UseTuple = (u8, u16, u16, u16);

fn uses(class: OpClass) -> Vec<UseTuple> {
    M.uses(class).iter().map(|u| (u.slot.get(), u.offset, u.duration, u.occupancy)).collect()
}

#[test]
fn anchor_vectors_are_pinned() {
    use OpClass::*;
    let want: [(OpClass, &[UseTuple], u32); 7] = [
        (TmaLoad, &[(12, 0, 8, 1), (16, 0, 8, 1)], 8),
        (Dot, &[(11, 0, 8, 1), (19, 0, 8, 1)], 16),
        (CopyRmemToSmem, &[(16, 0, 7, 1)], 7),
        (CopySmemToRmem, &[(15, 0, 7, 1)], 7),
        (CopySmemToTmem, &[(18, 0, 7, 1)], 7),
        (CopyRmemToTmem, &[(18, 0, 7, 1)], 7),
        (CopyTmemToRmem, &[(17, 0, 7, 1)], 7),
    ];
    for (class, vector, latency) in want {
        assert_eq!((uses(class).as_slice(), M.latency(class)), (vector, latency), "{}", class.name());
        if class != Dot {
            assert!(M.pool_uses(class).is_empty(), "{}", class.name());
        }
    }
    assert_eq!((M.acc_to_acc_latency, M.acc_to_reader_latency), (8, 16));
    assert_eq!(M.latency(Dot), M.acc_to_reader_latency);
    assert_eq!(M.pool_uses(Dot), [PoolUse { pool: PoolId::new(3), count: 1, duration: 8 }]);
    assert_eq!(M.vector(TmaLoad).row(), 1 << 11 | 1 << 15);
    assert_eq!((M.duration(TmaLoad), M.duration(CopyTmemToRmem), M.duration(Uniform)), (8, 7, 0));
}

#[test]
fn our_vectors_are_pinned() {
    use OpClass::*;
    let want: [(OpClass, &[UseTuple], u32); 16] = [
        (TmaStore, &[(12, 0, 8, 1), (15, 0, 8, 1)], 8),
        (ConvertLayout, &[(16, 0, 7, 1), (15, 7, 7, 1)], 14),
        (GlobalLoad, &[(8, 0, 7, 1), (13, 0, 7, 1)], 7),
        (GlobalStore, &[(8, 0, 7, 1), (14, 0, 7, 1)], 7),
        (FpAlu, &[(4, 0, 4, 1)], 4),
        (FmaHeavy, &[(6, 0, 4, 1)], 4),
        (IntAlu, &[(7, 0, 2, 1)], 2),
        (MinMax, &[(7, 0, 2, 1)], 2),
        (Cvt, &[(4, 0, 4, 1)], 4),
        (Transcendental, &[(2, 0, 4, 1)], 4),
        (Reduce, &[(6, 0, 4, 1)], 4),
        (ReduceMinMax, &[(6, 0, 4, 1)], 4),
        (Layout, &[], 0),
        (Uniform, &[], 0),
        (Scalar, &[(5, 0, 4, 1)], 4),
        (Barrier, &[(1, 0, 1, 1)], 1),
    ];
    for (class, vector, latency) in want {
        assert_eq!((uses(class).as_slice(), M.latency(class)), (vector, latency), "{}", class.name());
        assert!(M.pool_uses(class).is_empty(), "{}", class.name());
    }
    for v in M.vectors {
        assert!(!v.source.is_empty(), "{} names no source", v.class.name());
        assert_eq!(v.class, OpClass::ALL[v.class as usize]);
    }
    assert_eq!(want.len() + 7, OpClass::ALL.len(), "a class without a pin");
}

#[test]
fn pools_are_pinned() {
    let published: Vec<u16> = M.published_pools.iter().map(|p| p.capacity).collect();
    assert_eq!(published, [37, 4, 7, 37, 5, 1, 3, 6, 2]);
    let got: Vec<_> = M.pools.iter().map(|p| (p.id.get(), p.name, p.capacity)).collect();
    assert_eq!(
        got,
        [
            (0, "fma_issue", 4),
            (1, "dual_alu", 7),
            (2, "fma_fanout", 6),
            (3, "tmem_bank", 4),
            (4, "dual_issue", 3),
            (5, "barrier_carry", 3),
            (6, "coarse_issue", 5),
            (7, "fused_read", 5),
            (8, "reg_bank", 2),
        ]
    );
    for p in M.pools {
        assert_eq!(p.capacity, M.published_pools[p.published as usize].capacity, "{}", p.name);
    }
    for (role, name) in [(PoolRole::Accumulators, "tmem_bank"), (PoolRole::FusedReads, "fused_read")] {
        assert_eq!(M.pool_for(role).map(|p| p.name), Some(name));
    }
}

#[test]
fn capacities_weights_and_limits_are_pinned() {
    let capacities: Vec<u32> = M.capacities.iter().map(|n| n.value).collect();
    assert_eq!(capacities, [262_144, 3, 232_448, 4, 2_048]);
    let weights: Vec<u32> =
        M.slots.iter().map(|s| M.anchor(s.id).expect("every slot has a weight")).collect();
    assert_eq!(
        weights,
        [
            100, 100, 110, 101, 102, 102, 103, 103, 120, 104, 121, 104, 200, 400, 800, 900, 1500, 2000, 2400,
            3000, 50, 100, 200, 360
        ]
    );
    let secondary: Vec<u32> = M.anchors.iter().filter(|a| a.slot.is_none()).map(|a| a.weight).collect();
    assert_eq!(secondary, [600, 800, 1000, 1200]);
    assert_eq!(M.ceilings.iter().map(|n| n.value).collect::<Vec<_>>(), [5_000, 7_000]);
    assert_eq!(M.fences.iter().map(|n| n.value).collect::<Vec<_>>(), [1_600, 2_000]);
    let l = &M.limits;
    assert_eq!((l.tmem_lanes, l.tmem_columns, l.tmem_alloc_min_columns), (128, 512, 32));
    assert_eq!(l.tmem_lanes * l.tmem_columns * 4, 262_144);
    assert_eq!((l.smem_bytes, l.named_barriers), (227 * 1024, 16));
    assert_eq!((l.regs_per_thread, l.regs_per_sm, l.max_threads), (255, 64 * 1024, 1024));
    assert_eq!((M.gpu_number("sms"), M.gpu_number("none")), (148, 0));
}

#[test]
fn spill_surcharge_is_capped() {
    for (pressure, budget, want) in
        [(10, 10, 0), (9, 10, 0), (11, 10, 17), (250, 10, 4080), (251, 10, 4096), (u32::MAX, 0, 4096)]
    {
        assert_eq!(M.spill_surcharge(pressure, budget), want, "{pressure} of {budget}");
    }
}

#[test]
fn entry_registers_follow_the_register_file() {
    for (threads, want) in [(192, 255), (256, 255), (384, 168), (512, 128), (1024, 64), (0, 255)] {
        assert_eq!(M.entry_registers(threads), want, "{threads} threads");
    }
}

fn tile(elements: u64) -> Work {
    Work { bytes: elements * 4, elements, macs: 0 }
}

fn bytes(bytes: u64) -> Work {
    Work { bytes, ..Work::default() }
}

#[test]
fn real_latencies_hit_the_measured_points() {
    use OpClass::*;
    let dot = |k: u64| Work { macs: 128 * 128 * k, bytes: 2 * 128 * k * 2, ..Work::default() };
    assert_eq!((M.real_occupancy(Dot, &dot(64)), M.real_latency(Dot, &dot(64))), (256, 559));
    assert_eq!((M.real_occupancy(Dot, &dot(128)), M.real_latency(Dot, &dot(128))), (512, 900));
    // Outside the measured points the distance to the occupancy stays.
    assert_eq!(M.real_latency(Dot, &dot(256)), 1024 + 388);
    assert_eq!(M.real_latency(Dot, &dot(16)), 64 + 303);
    let between = M.real_latency(Dot, &dot(96));
    assert!((559..900).contains(&between), "{between}");
    assert_eq!(M.real_occupancy(TmaLoad, &bytes(32 << 10)), 192);
    assert_eq!(M.real_latency(TmaLoad, &bytes(32 << 10)), 700);
    assert_eq!(M.real_latency(TmaLoad, &bytes(64 << 10)), 460 + 384);
    assert_eq!(M.real_occupancy(TmaLoad, &bytes(16)), 30);
    assert_eq!(M.real_occupancy(TmaStore, &bytes(2048)), 104);
    assert_eq!(M.hand_off, 92);
    // Work no tile has: saturates instead of wrapping.
    let most = Work { bytes: u64::MAX, elements: u64::MAX, macs: u64::MAX };
    for &class in OpClass::ALL {
        assert!(M.real_latency(class, &most) >= M.real_occupancy(class, &most));
    }
}

/// Attention forward, d = 128, two query sub-tiles of 128 rows: totals per pair of sub-tiles worked out by hand.
#[test]
fn real_model_gives_the_attention_totals() {
    use OpClass::*;
    let (t, v) = (tile(128 * 128), tile(128));
    let dot = |bytes: u64| Work { bytes, elements: 128 * 128, macs: 128 * 128 * 128 };
    let half = Work { bytes: 32 << 10, elements: 128 * 128, macs: 0 };
    let softmax = [
        (CopyTmemToRmem, t),
        (ReduceMinMax, t),
        (FpAlu, v),
        (MinMax, v),
        (FpAlu, t),
        (FpAlu, v),
        (Transcendental, v),
        (CopyRmemToSmem, v),
        (Transcendental, t),
        (Cvt, t),
        (Reduce, t),
        (FpAlu, v),
        (CopyRmemToTmem, half),
    ];
    let correction = [(CopySmemToRmem, v), (CopyTmemToRmem, t), (FpAlu, t), (CopyRmemToTmem, t)];
    let engines = [(Dot, dot(64 << 10)), (Dot, dot(32 << 10))];
    let loads = [(TmaLoad, bytes(32 << 10)), (TmaLoad, bytes(32 << 10))];

    let hold = |ops: &[(OpClass, Work)]| ops.iter().map(|(c, w)| M.real_occupancy(*c, w)).sum::<u32>();
    assert_eq!(hold(&softmax), 1632);
    assert_eq!(hold(&correction) * 2, 464);
    // S and P share columns: QK, the softmax up to P and PV follow each other.
    let critical: u32 = [0, 1, 2, 3, 4, 8, 9, 12].iter().map(|&i| hold(&softmax[i..=i])).sum();
    assert_eq!(critical + 2 * 512, 2504);
    assert_eq!(critical + 900 + 512 + M.hand_off, 2984);

    let unit = |name: &str| {
        let id = M.unit_named(name).expect("a unit").id;
        let total = |ops: &[(OpClass, Work)]| -> u32 {
            ops.iter().flat_map(|(c, w)| M.real_uses(*c, w)).filter(|u| u.unit == id).map(|u| u.clocks).sum()
        };
        2 * (total(&softmax) + total(&correction) + total(&engines)) + total(&loads)
    };
    assert_eq!(unit("tensor_core"), 2048);
    assert_eq!(unit("mufu"), 2064);
    assert_eq!(unit("smem"), 2064);
    assert_eq!(unit("fma"), 774);
    assert_eq!(unit("alu"), 516);
    assert_eq!(unit("tma"), 384);
}

fn request(m: u32, n: u32, k: u32) -> MmaRequest {
    MmaRequest {
        a: AtomType::F16,
        b: AtomType::F16,
        acc: AtomType::F32,
        m,
        n,
        k,
        a_m_contiguous: false,
        b_n_contiguous: false,
    }
}

#[test]
fn mma_shapes_are_as_the_manual_has_them() {
    let isa = isa_for_cpu("sm_100a").unwrap();
    let atoms = isa.atoms();
    for m in [0, 16, 32, 64, 96, 128, 192, 256] {
        for n in 0..=512 {
            let legal = match m {
                64 => n % 8 == 0 && (8..=256).contains(&n),
                128 => n % 16 == 0 && (16..=256).contains(&n),
                _ => false,
            };
            assert_eq!(atoms.select_mma(&request(m, n, 64)).is_ok(), legal, "{m}x{n}");
        }
    }
    for k in 0..=64 {
        assert_eq!(atoms.select_mma(&request(128, 128, k)).is_ok(), k > 0 && k % 16 == 0, "K {k}");
    }
    let atom = atoms.select_mma(&request(128, 256, 64)).unwrap();
    assert_eq!((atom.kind.kind, atom.k, atom.k_steps), ("f16", 16, 4));
    assert_eq!((atom.acc_columns(), atom.a_columns()), (256, 32));
    assert_eq!(atom.operand_bytes(), (16384, 32768));
    let target = isa_for_cpu("sm_100a").unwrap();
    let (home, contract) = (target.acc_home(), target.mma_contract());
    assert_eq!((home.space, home.allocation), (Space::Tmem, AccAllocation::Columns));
    let layout = |m| (home.layout)(m, 8, 4);
    assert_eq!((layout(64), layout(128)), (Some(Layout::Tmem64), Some(Layout::Tmem128)));
    assert_eq!(atom.kind.a_spaces, [OperandSpace::Smem, OperandSpace::Tmem]);
    assert_eq!(atom.kind.b_spaces, [OperandSpace::Smem]);
    assert_eq!(
        (contract.issue, contract.completion, contract.in_order),
        (Issue::OneThread, Completion::Commit, InOrder::SameAccumulator)
    );
}

#[test]
fn mma_types_and_refusals_say_why() {
    let a = isa_for_cpu("sm_100a").unwrap();
    let f = isa_for_cpu("sm_100f").unwrap();
    use AtomType::*;
    let with = |a, b, acc, k| MmaRequest { a, b, acc, k, ..request(128, 128, 0) };
    for (r, kind) in [
        (with(F16, F16, F32, 64), "f16"),
        (with(Bf16, Bf16, F32, 64), "f16"),
        (with(F16, F16, F16, 64), "f16"),
        (with(Tf32, Tf32, F32, 8), "tf32"),
        (with(E4m3, E5m2, F32, 32), "f8f6f4"),
        (with(S8, U8, S32, 32), "i8"),
    ] {
        assert_eq!(a.atoms().select_mma(&r).unwrap().kind.kind, kind);
    }
    let why = |isa: &SharedIsa, r: &MmaRequest| isa.atoms().select_mma(r).unwrap_err();
    assert_eq!(
        why(&a, &with(Bf16, Bf16, F16, 64)),
        "bf16 x bf16 with accumulator f16 has no instruction, the accumulator of these operands is f32"
    );
    assert_eq!(
        why(&a, &with(F16, Bf16, F32, 64)),
        "f16 x bf16 with accumulator f32 has no instruction: no kind takes these operand types"
    );
    assert_eq!(
        why(&f, &with(S8, S8, S32, 32)),
        "s8 x s8 with accumulator s32 is not available on this processor"
    );
    assert_eq!(
        why(&a, &with(E4m3, E4m3, F32, 16)),
        "K = 16 is not a positive multiple of 32, the depth of kind f8f6f4"
    );
    assert_eq!(why(&a, &request(32, 128, 64)), "M = 32 has no instruction of kind f16, M is 64 or 128");
    assert_eq!(
        why(&a, &request(128, 24, 64)),
        "N = 24 has no instruction with M = 128 of kind f16, N is 16 to 256 in steps of 16"
    );
    let transposed = MmaRequest { a_m_contiguous: true, b_n_contiguous: true, ..with(F16, F16, F32, 64) };
    assert!(a.atoms().select_mma(&transposed).is_ok());
    let tf32 = MmaRequest { b_n_contiguous: true, ..with(Tf32, Tf32, F32, 8) };
    assert_eq!(why(&a, &tf32), "B of type tf32 is stored with N contiguous, kind tf32 needs K contiguous");
    let fp8 = MmaRequest { m: 64, n: 24, b_n_contiguous: true, ..with(E4m3, E4m3, F32, 32) };
    assert_eq!(
        why(&a, &fp8),
        "N = 24 has no instruction with M = 64 of kind f8f6f4, N is 16 to 256 in steps of 16"
    );
    assert!(a.atoms().select_mma(&MmaRequest { b_n_contiguous: false, ..fp8 }).is_ok());
}

#[test]
fn targets_are_found_and_others_refused() {
    let want = ["sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_110a", "sm_110f"];
    assert_eq!(cpus().collect::<Vec<_>>(), want);
    for cpu in want {
        let isa = isa_for_cpu(cpu).unwrap();
        assert_eq!((isa.cpu().name, isa.name()), (cpu, "blackwell"));
        assert_eq!(isa.triple().to_string(), TRIPLE);
        assert!(isa.features().has(Feature::TensorMemory) && isa.features().has(Feature::Tma));
        assert_eq!(isa.features().has(Feature::MmaInt8), ["sm_100a", "sm_110a"].contains(&cpu));
        assert_eq!(isa.features().has(Feature::TmemLoadReduce), ["sm_103a", "sm_110a"].contains(&cpu));
    }
    for (cpu, version) in [("sm_100a", (8, 6)), ("sm_100f", (8, 8)), ("sm_103a", (8, 8)), ("sm_110a", (9, 0))]
    {
        assert_eq!(isa_for_cpu(cpu).unwrap().cpu().ptx_version, version);
    }
    for cpu in ["sm_90a", "sm_120a", "sm_100", "", "sm_100A", "SM_100a ", "\0"] {
        let e = isa_for_cpu(cpu).unwrap_err();
        assert_eq!(e.code, Code::E0890, "{cpu:?}");
        assert!(e.message.contains("sm_100a, sm_100f"), "{e}");
    }
    let note = isa_for_cpu("sm_100").unwrap_err().notes;
    assert!(note[0].1.ends_with("such as sm_100a"), "{note:?}");
    for triple in ["x86_64-unknown-linux-gnu", "aarch64-apple-darwin"] {
        let e = isa(&Triple::from_str(triple).unwrap(), "sm_100a").unwrap_err();
        assert_eq!(e.code, Code::E0890);
        assert!(e.message.contains(triple), "{e}");
    }
}

#[test]
fn shared_memory_is_limited_by_target_and_options() {
    let isa = isa_for_cpu("sm_100a").unwrap();
    let limit = |pairs: &[(&str, &str)]| {
        let set = |s: Settings, (name, value): &(&str, &str)| s.with(name, value).unwrap();
        pairs.iter().fold(Settings::default(), set).smem_limit(&*isa)
    };
    assert_eq!(limit(&[]), 232_448);
    assert_eq!(limit(&[("smem-bytes", "4096")]), 4096);
    assert_eq!(limit(&[("smem-bytes", "1000000")]), 232_448);
    assert_eq!(limit(&[("tune.unlimited-smem", "true")]), u32::MAX);
}

#[test]
fn description_has_every_table() {
    let isa = isa_for_cpu("sm_103a").unwrap();
    let text = describe(&*isa);
    for slot in M.slots {
        assert!(text.contains(slot.name), "{}", slot.name);
    }
    for class in OpClass::ALL {
        assert!(text.contains(class.name()), "{}", class.name());
    }
    for part in ["PTX 8.8", "232448", "tmem-load-reduce", "hand-off 92", "min(excess * 17, 4096)", "0x22"] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("mma-int8") && !text.contains("s8 x s8"), "not on this processor");
    assert_eq!(text, describe(&*isa));
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    let good = *isa_for_cpu("sm_100a").unwrap().machine();
    assert_eq!(good.check(), Ok(()));
    let changed = |change: fn(&mut MachineModel)| {
        let mut model = good;
        change(&mut model);
        model.check().unwrap_err().to_string()
    };
    assert!(changed(|m| m.vectors = &[]).starts_with("E0891: "));
    assert!(changed(|m| m.vectors = &[]).contains("no vector of class"));
    assert!(changed(|m| m.real = &m.real[1..]).contains("vector 0 is not one of class"));
    assert!(changed(|m| m.slots = &m.slots[..1]).contains("over the slots"));
    assert!(changed(|m| m.units = &[]).contains("over the slots"));
    assert!(changed(|m| m.limits.warp_threads = 64).contains("64 threads in a warp"));
    assert!(changed(|m| m.limits.named_barriers = 0).contains("named barrier"));
}
