//! Metrics of a function of thread-level code, for tuning and diagnostics.
//!
//! In: a function and its module. Out: the metrics that the published pass prints ([`KernelInfo::metrics`]), and the nineteen counters
//! of its longer list ([`KernelInfo::counters`]). Both are counts of what stands in the code, each instruction once however often it runs.
//! Accesses through generic addresses deserve a look: they keep the assembler from what it knows of a space. Source: "Scheduling Glue
//! Passes", KernelInfoPrinter. Cost: linear in instructions, and liveness.

use crate::nvvm::{AddressSpace, Function, Kind, Liveness, Module, Operand, SymKind};
use crate::regalloc::PressureScratch;
use std::fmt::Write;

/// What is known of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Name of the function.
    pub function: String,
    /// Name and value, in the published order.
    pub metrics: Vec<(&'static str, u64)>,
    /// Name and value: `regs` (32-bit registers live at once), `smem` (bytes), `cmem`, `tex`, `params`, `local` and `stack` (bytes), then
    /// numbers of instructions.
    pub counters: Vec<(&'static str, u64)>,
}

impl KernelInfo {
    /// Looks at a function. `dynamic_smem`: bytes of dynamic shared memory that it is launched with.
    pub fn of(module: &Module, func: &Function, dynamic_smem: u32) -> KernelInfo {
        let (mut flat, mut calls, mut count) = (0, 0, [0u64; 12]);
        for &bb in func.layout() {
            for inst in func.insts(bb) {
                let form = func.op(inst).form();
                flat += form.operands.iter().filter(|c| c.kind == Kind::Addr(AddressSpace::Generic)).count()
                    as u64;
                let m = form.mnemonic;
                calls += u64::from(m.starts_with("call."));
                let guarded = func.guard(inst).is_some();
                let branch = m.starts_with("bra") || m.starts_with("brx");
                let memory = m.starts_with("ld.") || m.starts_with("st.");
                let arithmetic =
                    !memory && form.effects.is_pure() && !m.starts_with("mov") && !m.starts_with("cvt");
                let last = m.rsplit('.').next().unwrap_or("");
                let float = ["f16", "bf16", "f32", "f64"].iter().any(|f| last.starts_with(f));
                let rows = [
                    m.starts_with("bar.") || m.starts_with("barrier.") || m.starts_with("mbarrier."),
                    m.starts_with("ld."),
                    m.starts_with("st."),
                    branch,
                    arithmetic && float,
                    arithmetic && !float && last != "pred",
                    branch && guarded,
                    guarded,
                    memory && [".v2", ".v4", ".v8"].iter().any(|v| m.contains(v)),
                    m.contains("mma"),
                    m.starts_with("tcgen05."),
                    m.starts_with("cp.async.bulk"),
                ];
                rows.iter().zip(&mut count).for_each(|(&is, n)| *n += u64::from(is));
            }
        }
        let local = u64::from(func.local_bytes);
        let block = func.launch.reqntid.or(func.launch.maxntid).unwrap_or_default().map(u64::from);
        let metrics = vec![
            ("ExternalNotKernel", 0),
            ("maxntidx", block[0]),
            ("maxntidy", block[1]),
            ("maxntidz", block[2]),
            ("minctasm", u64::from(func.launch.minnctapersm.unwrap_or(0))),
            ("maxnreg", u64::from(func.launch.maxnreg.unwrap_or(0))),
            ("Allocas", u64::from(local > 0)),
            ("AllocasStaticSizeSum", local),
            ("AllocasDyn", 0),
            ("DirectCalls", calls),
            ("IndirectCalls", 0),
            // The driver defines what is called.
            ("DirectCallsToDefinedFunctions", 0),
            ("InlineAssemblyCalls", 0),
            ("Invokes", 0),
            ("FlatAddrspaceAccesses", flat),
        ];
        let shared: u64 = module
            .symbols
            .values()
            .map(|s| match s.kind {
                SymKind::DynamicShared => u64::from(dynamic_smem),
                SymKind::Shared { bytes } => u64::from(bytes),
                SymKind::Global { .. } => 0,
            })
            .sum();
        let regs = PressureScratch::default().function(func, &Liveness::compute(func)).units;
        let local_accesses = Self::local_accesses(func);
        let mut counters = vec![
            ("regs", u64::from(regs)),
            ("smem", shared),
            ("cmem", 0),
            ("tex", 0),
            ("params", func.params.len() as u64),
            ("local", local_accesses),
            ("stack", local),
        ];
        let names = [
            "barriers",
            "loads",
            "stores",
            "branches",
            "fp_ops",
            "int_ops",
            "divergence",
            "predicated",
            "vector_ops",
            "mma_ops",
            "tcgen05_ops",
            "tma_ops",
        ];
        counters.extend(names.into_iter().zip(count));
        KernelInfo { function: func.name.clone(), metrics, counters }
    }

    /// Accesses of the local area.
    fn local_accesses(func: &Function) -> u64 {
        let insts = func.layout().iter().flat_map(|&bb| func.insts(bb));
        insts.filter(|&i| func.operands(i).iter().any(|o| matches!(o, Operand::Local(_)))).count() as u64
    }

    /// The value of a metric or counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.metrics.iter().chain(&self.counters).find(|m| m.0 == name).map(|m| m.1)
    }

    /// A line for each metric, `kernel-info: Metric in function 'name' = value`; with the counters if `extended`.
    pub fn text(&self, extended: bool) -> String {
        let mut out = String::new();
        let counters = self.counters.iter().filter(|_| extended);
        for (metric, value) in self.metrics.iter().chain(counters) {
            let _ = writeln!(out, "kernel-info: {metric} in function '{}' = {value}", self.function);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvvm::parser::parse;

    #[test]
    fn every_metric_counts_what_stands_in_the_code() {
        let text = "target sm_100a\nshared @smem dynamic align 1024\nshared @flags bytes 64 align 8\n\n\
            kernel @k(x: ptr<global, align 16>, n: u32) linkage visible reqntid [64, 2, 1] maxnreg 40 local 32 {\n\
            bb0:\n    ld.param.b64 %v0:b64, [x]\n    ld.param.b32 %v1:b32, [n]\n    add.u32 %v2:b32, %v1, 7\n\
            \x20   mov.f32 %v3:f32, 0f3f800000\n    add.f32 %v4:f32, %v3, %v3\n    st.local.b32 [__local+16], %v2\n\
            \x20   ld.global.v2.b32 {%v5:b32, %v6:b32}, [%v0]\n    setp.eq.u32 %v7:pred, %v5, 3\n    @%v7 st.global.f32 [%v0], %v4\n\
            \x20   mbarrier.arrive.shared::cta.b64 _, [flags+8]\n    @%v7 bra bb1\n    bra bb2\nbb1:\n    bra bb2\nbb2:\n    ret\n}\n";
        let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let info = KernelInfo::of(&module, &module.functions[0], 1000);
        let of = |name: &str| info.get(name).unwrap_or_else(|| panic!("{name}"));
        for (name, value) in [
            ("maxntidx", 64),
            ("maxntidy", 2),
            ("maxnreg", 40),
            ("Allocas", 1),
            ("AllocasStaticSizeSum", 32),
            ("DirectCalls", 0),
            ("FlatAddrspaceAccesses", 0),
            ("smem", 1064),
            ("params", 2),
            ("local", 1),
            ("stack", 32),
            ("barriers", 1),
            ("loads", 3),
            ("stores", 2),
            ("branches", 3),
            ("fp_ops", 1),
            ("int_ops", 2),
            ("divergence", 1),
            ("predicated", 2),
            ("vector_ops", 1),
            ("mma_ops", 0),
            ("tcgen05_ops", 0),
            ("tma_ops", 0),
        ] {
            assert_eq!(of(name), value, "{name}");
        }
        assert!(of("regs") >= 4);
        assert_eq!(info.counters.len(), 19);
        let text = info.text(false);
        assert!(
            text.contains("kernel-info: AllocasStaticSizeSum in function 'k' = 32\n")
                && !text.contains("regs"),
            "{text}"
        );
        assert_eq!(info.text(true).lines().count(), info.metrics.len() + 19);
    }

    #[test]
    fn engines_and_generic_addresses_are_counted() {
        let text = "target sm_100a\nshared @smem dynamic align 1024\nglobal @counter bytes 4 align 4\n\n\
            kernel @k(x: ptr<global, align 16>) linkage visible reqntid [32, 1, 4] minnctapersm 3 {\n\
            bb0:\n    ld.param.b64 %v0:b64, [x]\n    prefetch.tensormap [%v0]\n    mov.f32 %v1:f32, 0f00000000\n    mov.b32 %v2:b32, 0\n\
            \x20   mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%v3:f32, %v4:f32, %v5:f32, %v6:f32}, {%v2, %v2}, {%v2}, {%v1, %v1, %v1, %v1}\n\
            \x20   cp.async.bulk.commit_group\n    tcgen05.wait::ld.sync.aligned\n    ret\n}\n";
        let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let info = KernelInfo::of(&module, &module.functions[0], 0);
        for (name, value) in [
            ("maxntidx", 32),
            ("maxntidz", 4),
            ("minctasm", 3),
            ("maxnreg", 0),
            ("FlatAddrspaceAccesses", 1),
            ("smem", 0),
            ("mma_ops", 1),
            ("tcgen05_ops", 1),
            ("tma_ops", 1),
        ] {
            assert_eq!(info.get(name), Some(value), "{name}");
        }
    }
}
