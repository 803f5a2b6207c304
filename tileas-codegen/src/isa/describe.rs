//! The tables of a target as text, for `tileas isa`.
//!
//! Prints every number with its source, in table order. For people: nothing reads this back.

use super::{Feature, MachineModel, SlotId, SlotKind, TargetIsa};
use std::fmt::Write as _;

/// All tables of a target.
pub fn describe(isa: &dyn TargetIsa) -> String {
    let mut s = String::new();
    let (m, cpu) = (isa.machine(), isa.cpu());
    let _ = writeln!(s, "{} ({}), {}", cpu.name, isa.name(), isa.triple());
    let _ = writeln!(s, "  PTX {}.{} or later, source: {}", cpu.ptx_version.0, cpu.ptx_version.1, cpu.source);
    let features: Vec<&str> =
        ALL_FEATURES.iter().filter(|(f, _)| isa.features().has(*f)).map(|(_, name)| *name).collect();
    let _ = writeln!(s, "  features: {}", features.join(", "));
    model(&mut s, m);
    section(&mut s, "matrix instructions");
    for k in isa.atoms().kinds() {
        let shapes: Vec<String> = k
            .shapes
            .iter()
            .map(|x| format!("M {} N {}..{} step {}", x.m, x.n_min, x.n_max, x.n_step))
            .collect();
        let spaces: Vec<&str> = k.a_spaces.iter().map(|x| x.name()).collect();
        let _ = writeln!(
            s,
            "  {:<8} K {:<3} {}; A in {}; accumulator in {}  ; {}",
            k.kind,
            k.k,
            shapes.join(", "),
            spaces.join(" or "),
            isa.acc_home().space.name(),
            k.source
        );
        for (a, b, acc) in k.types {
            let _ = writeln!(s, "    {a} x {b} -> {acc}");
        }
    }
    s
}

const ALL_FEATURES: &[(Feature, &str)] = &[
    (Feature::Tma, "tma"),
    (Feature::TensorMemory, "tensor-memory"),
    (Feature::MmaInt8, "mma-int8"),
    (Feature::TmemLoadReduce, "tmem-load-reduce"),
    (Feature::SetMaxRegisters, "set-max-registers"),
    (Feature::FamilyPortable, "family-portable"),
];

fn section(s: &mut String, title: &str) {
    let _ = writeln!(s, "\n{title}");
}

fn slot_list(slots: &[SlotId]) -> String {
    let ids: Vec<String> = slots.iter().map(|x| x.get().to_string()).collect();
    ids.join(" ")
}

/// The tables of a model, without the target's own lines.
fn model(s: &mut String, m: &MachineModel) {
    section(s, "slots (id, name, kind, capacity, weight)");
    for slot in m.slots {
        let kind = match slot.kind {
            SlotKind::Coarse => "coarse",
            SlotKind::Fine => "fine",
            SlotKind::Test => "test",
        };
        let primary = if slot.primary { "primary" } else { "" };
        let weight = m.anchor(slot.id).map_or_else(|| "-".into(), |w| w.to_string());
        let _ = writeln!(
            s,
            "  {:>2} {:<16} {kind:<6} {primary:<7} {:>2} {weight:>5}  {}  ; {}",
            slot.id.get(),
            slot.name,
            slot.capacity,
            slot.what,
            slot.source
        );
    }
    section(s, "latency families (cycles, slots)");
    for f in m.families {
        let _ = writeln!(s, "  {:>2} {:<24} {}  ; {}", f.latency, slot_list(f.slots), f.name, f.source);
    }
    section(s, "op tags (tag, cycles, slots)");
    for t in m.tags {
        let _ = writeln!(
            s,
            "  {:#04x} {:>2} {:<6} {}  ; {}",
            t.tag,
            t.latency,
            slot_list(t.slots),
            t.family,
            t.source
        );
    }
    section(s, "resource vectors ((slot, duration, occupancy)…, latency)");
    for v in m.vectors {
        let mut uses: Vec<String> = v
            .uses
            .iter()
            .map(|u| match u.offset {
                0 => format!("({}, {}, {})", u.slot.get(), u.duration, u.occupancy),
                o => format!("({}, {}, {}) @{o}", u.slot.get(), u.duration, u.occupancy),
            })
            .collect();
        for p in v.pools {
            let name = m.pool(p.pool).map_or("?", |row| row.name);
            uses.push(format!("{name} {} for {}", p.count, p.duration));
        }
        let _ = writeln!(
            s,
            "  {:<18} latency {:>2}  {:<44} ; {}",
            v.class.name(),
            v.latency,
            uses.join(" "),
            v.source
        );
    }
    let _ = writeln!(
        s,
        "  accumulator to the same accumulator {}, to any reader {}",
        m.acc_to_acc_latency, m.acc_to_reader_latency
    );
    section(s, "pool numbers as published (index, number)");
    for p in m.published_pools {
        let _ = writeln!(s, "  {:>2} {:>3}  {}  ; {}", p.index, p.capacity, p.what, p.source);
    }
    section(s, "pools (id, name, capacity, published index)");
    for p in m.pools {
        let _ = writeln!(
            s,
            "  {:>2} {:<14} {:>2} {:>2}  {}  ; {}",
            p.id.get(),
            p.name,
            p.capacity,
            p.published,
            p.what,
            p.source
        );
    }
    for (title, rows) in [
        ("global capacities", m.capacities),
        ("latency ceilings", m.ceilings),
        ("fence anchors", m.fences),
        ("a whole GPU", m.gpu),
    ] {
        section(s, title);
        for r in rows {
            let _ = writeln!(s, "  {:<28} {:>7}  {}  ; {}", r.name, r.value, r.what, r.source);
        }
    }
    let secondary: Vec<String> =
        m.anchors.iter().filter(|a| a.slot.is_none()).map(|a| a.weight.to_string()).collect();
    section(s, "costs");
    let _ = writeln!(s, "  secondary anchors {}", secondary.join(" "));
    let _ = writeln!(s, "  spill surcharge min(excess * {}, {})", m.spill_factor, m.spill_cap);
    real(s, m);
    limits(s, m);
}

fn real(s: &mut String, m: &MachineModel) {
    section(s, "real cycles (unit, cycles per amount)");
    for v in m.real {
        let _ = write!(s, "  {:<18}", v.class.name());
        for r in v.rates {
            let unit = m.units.get(r.unit.index()).map_or("?", |u| u.name);
            let _ = write!(s, " {unit} {} per {} {:?};", r.cycles, r.per, r.basis);
        }
        let _ = write!(s, " at least {}, latency at least {}", v.min_occupancy, v.min_latency);
        for (occupancy, extra) in v.extra {
            let _ = write!(s, ", +{extra} at {occupancy}");
        }
        let _ = writeln!(s, "  ; {}", v.source);
        for r in v.rates {
            let unit = m.units.get(r.unit.index()).map_or("?", |u| u.name);
            let _ = writeln!(s, "    {unit}: {}", r.source);
        }
    }
    let _ = writeln!(s, "  hand-off {}", m.hand_off);
}

fn limits(s: &mut String, m: &MachineModel) {
    let l = &m.limits;
    section(s, "limits");
    for (name, value) in [
        ("shared memory per CTA, bytes", l.smem_bytes),
        ("tensor memory, columns", l.tmem_columns),
        ("tensor memory, lanes", l.tmem_lanes),
        ("tensor memory, least columns", l.tmem_alloc_min_columns),
        ("named barriers", l.named_barriers),
        ("registers per SM", l.regs_per_sm),
        ("registers per thread", l.regs_per_thread),
        ("register granule", l.reg_granule),
        ("threads per CTA", l.max_threads),
        ("threads per warp", l.warp_threads),
        ("warps per warpgroup", l.warpgroup_warps),
        ("tensor-map box, elements", l.tma_box_max),
        ("tensor-map dimensions", l.tma_rank_max),
        ("tensor-map alignment, bytes", l.tma_align),
        ("barrier count", l.mbarrier_count_max),
    ] {
        let _ = writeln!(s, "  {name:<30} {value}");
    }
}
