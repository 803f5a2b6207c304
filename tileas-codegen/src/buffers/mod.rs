//! Storage and channels: where every shared- and tensor-memory tile lives and how its parts are handed over.
//!
//! In: a placed function, its agents and its schedules. Out: a [`BufferAssignment`]: storage webs, channel bundles
//! with depths and the reason for each, shared-memory offsets, tensor-memory columns. Nothing is rewritten here.
//!
//! Steps: [`webs`] unions tied values, [`channels`] finds the hand-overs and bundles them, [`depth`] applies rules R3
//! and R4, [`memory`] places everything. Source: architecture page, "Storage webs", "Channels", R3, R4.

pub mod channels;
pub mod depth;
pub mod memory;
pub mod webs;

pub use channels::{Bundle, Consumer, Free, Full};
pub use webs::{Init, Web, WebId};

use crate::agents::AgentPlan;
use crate::error::CodegenResult;
use crate::ir::Function;
use crate::isa::TargetIsa;
use crate::schedule::ScheduleAnalysis;
use std::fmt::Write;

/// Everything the materialiser needs to know of memory.
#[derive(Clone, Debug, Default)]
pub struct BufferAssignment {
    /// Storage webs.
    pub webs: webs::Webs,
    /// Channel bundles, in order of creation; `Pipe_n` is bundle n.
    pub bundles: Vec<Bundle>,
    /// Dynamic shared memory in bytes, base alignment included.
    pub dynamic_smem: u32,
    /// Tensor-memory columns to allocate; 0 = none.
    pub tmem_columns: u32,
    /// Shared-memory offset of the word that receives the tensor-memory base.
    pub tmem_base_at: u32,
}

/// Plans storage, channels and their depths.
///
/// # Errors
/// `E06xx`, at the op that asks for more than there is.
pub fn assign_buffers(
    func: &Function,
    plan: &AgentPlan,
    analysis: &ScheduleAnalysis,
    isa: &dyn TargetIsa,
) -> CodegenResult<BufferAssignment> {
    let webs = webs::Webs::compute(func, plan)?;
    let mut bundles = channels::find(func, plan, &webs)?;
    let mut out = BufferAssignment { webs, ..BufferAssignment::default() };
    depth::assign(func, plan, analysis, isa, &out.webs, &mut bundles)?;
    out.bundles = bundles;
    memory::place(func, isa, &mut out)?;
    Ok(out)
}

impl BufferAssignment {
    /// Webs, channels, depths and reasons, as text.
    pub fn dump(&self, func: &Function) -> String {
        let mut s = String::new();
        for (id, w) in self.webs.iter() {
            let names: Vec<String> =
                w.values.iter().filter_map(|&v| func.value_name(v)).map(|n| format!("%{n}")).collect();
            let at = match w.space {
                crate::ir::Space::Tmem => format!("column {}", w.at),
                _ => format!("offset {}", w.at),
            };
            let _ = writeln!(
                s,
                "W{}: {} {}x{}x{} {}, {} slot{} at {at}: {}",
                id.0,
                w.space.name(),
                w.rows,
                w.cols,
                w.elem.name(),
                w.layout,
                w.slots,
                if w.slots == 1 { "" } else { "s" },
                names.join(" ")
            );
        }
        for (n, b) in self.bundles.iter().enumerate() {
            let webs: Vec<String> = b.webs.iter().map(|w| format!("W{}", w.0)).collect();
            let consumers: Vec<String> = b.consumers.iter().map(|c| c.agent.to_string()).collect();
            let _ = writeln!(
                s,
                "Pipe_{n}: {} -> {}, {}, d = 0, D = {}, full {}, freed {}; {}",
                b.producer,
                consumers.join(" "),
                webs.join(" "),
                b.depth,
                b.full_text(),
                b.free_text(),
                b.reason
            );
        }
        let _ = writeln!(
            s,
            "dynamic shared memory {} B, tensor memory {} columns",
            self.dynamic_smem, self.tmem_columns
        );
        s
    }
}
