//! The table of passes: names, what each needs and gives, what runs here.
//!
//! Names are those of the scheduling specification where it names a pass; our own have one word. Every row does something; the
//! published preparation is several rows, which its name stands for as well ([`PREPARATION`]).

use super::Stage;
use std::fmt;
use std::ops::BitOr;

/// A set of things that hold at a point of a pipeline.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(u16);

impl Facts {
    /// Nothing.
    pub const NONE: Facts = Facts(0);
    /// The kernel in value form, as frontends write it.
    pub const SOURCE: Facts = Facts(1);
    /// An agent plan of the function as it is.
    pub const AGENTS: Facts = Facts(1 << 1);
    /// Every tile has a space and a layout.
    pub const PLACED: Facts = Facts(1 << 2);
    /// Schedules of the function as it is.
    pub const SCHEDULE: Facts = Facts(1 << 3);
    /// Storage and channels that fit the schedules.
    pub const BUFFERS: Facts = Facts(1 << 4);
    /// Pipelines and one region per agent.
    pub const MATERIALIZED: Facts = Facts(1 << 5);
    /// Proven not to deadlock (rule R5).
    pub const PROVEN: Facts = Facts(1 << 6);
    /// Thread-level code.
    pub const NVVM: Facts = Facts(1 << 7);
    /// Thread-level code that was cleaned up.
    pub const PRETREATED: Facts = Facts(1 << 8);
    /// The boxes of descriptors have the extents of the tiles that are loaded through them.
    pub const BOXES: Facts = Facts(1 << 9);
    /// PTX text.
    pub const PTX: Facts = Facts(1 << 10);
    /// Everything.
    pub const ALL: Facts = Facts((1 << 11) - 1);

    const NAMES: [(Facts, &'static str); 11] = [
        (Facts::SOURCE, "the kernel in value form"),
        (Facts::AGENTS, "AgentPlan"),
        (Facts::PLACED, "the placed kernel"),
        (Facts::SCHEDULE, "ScheduleAnalysis"),
        (Facts::BUFFERS, "BufferAssignment"),
        (Facts::MATERIALIZED, "the materialised kernel"),
        (Facts::PROVEN, "the proof that it does not deadlock"),
        (Facts::NVVM, "thread-level code"),
        (Facts::PRETREATED, "pretreated thread-level code"),
        (Facts::BOXES, "boxes that fit the loads"),
        (Facts::PTX, "PTX"),
    ];

    /// Whether all of `other` is in this set.
    pub const fn has(self, other: Facts) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is in this set and in `other`.
    #[must_use]
    pub const fn and(self, other: Facts) -> Facts {
        Facts(self.0 & other.0)
    }

    /// What is in this set and not in `other`.
    #[must_use]
    pub const fn without(self, other: Facts) -> Facts {
        Facts(self.0 & !other.0)
    }

    const fn or(self, other: Facts) -> Facts {
        Facts(self.0 | other.0)
    }

    /// The single facts of the set.
    pub fn iter(self) -> impl Iterator<Item = Facts> {
        Facts::NAMES.into_iter().map(|n| n.0).filter(move |&f| self.has(f))
    }
}

impl BitOr for Facts {
    type Output = Facts;
    fn bitor(self, other: Facts) -> Facts {
        self.or(other)
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Facts::NAMES.iter().filter(|n| self.has(n.0)).map(|n| n.1).collect();
        f.write_str(&names.join(", "))
    }
}

/// The steps that the driver carries out, in the order of the standard pipeline.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Direct views.
    Views,
    /// The form of kernels that the scheduler is made for.
    Canonical,
    /// Loads through TMA, if the stages up to materialisation take them there.
    LowerTma,
    /// Boxes of descriptors.
    Boxes,
    /// Who runs which op.
    Agents,
    /// Spaces, layouts, copies, slices.
    Place,
    /// Starts of all ops in loops.
    Schedule,
    /// Storage, channels, depths; schedules again for the slots there are.
    Buffers,
    /// Legalisation, then pipelines and one region per agent.
    Materialize,
    /// Rule R5 on the result.
    Prove,
    /// Thread-level code.
    Lower,
    /// Clean-ups of it.
    Cleanup,
    /// Register budgets and launch attributes.
    Registers,
    /// Thread-level verifier and text.
    Ptx,
}

impl Step {
    /// The standard pipeline.
    pub const STANDARD: [Step; 14] = [
        Step::Views,
        Step::Canonical,
        Step::LowerTma,
        Step::Boxes,
        Step::Agents,
        Step::Place,
        Step::Schedule,
        Step::Buffers,
        Step::Materialize,
        Step::Prove,
        Step::Lower,
        Step::Cleanup,
        Step::Registers,
        Step::Ptx,
    ];

    /// The first stage whose text needs this step. That of thread-level code is handed out verified, which emission does.
    pub const fn stage(self) -> Stage {
        match self {
            Step::Views | Step::Canonical | Step::LowerTma | Step::Boxes => Stage::Prepared,
            Step::Agents | Step::Place => Stage::Placed,
            Step::Schedule | Step::Buffers => Stage::Schedule,
            Step::Materialize | Step::Prove => Stage::Materialized,
            Step::Lower | Step::Cleanup | Step::Registers | Step::Ptx => Stage::Nvvm,
        }
    }

    /// Whether the step comes before there are pipelines: kernels that have them already skip it.
    pub fn is_front(self) -> bool {
        self <= Step::Materialize
    }
}

/// One pass: a row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct PassInfo {
    /// Name.
    pub name: &'static str,
    /// A second, shorter name; empty where the name is short.
    pub short: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// What runs here.
    pub step: Step,
    /// What must hold before it.
    pub requires: Facts,
    /// What holds after it.
    pub provides: Facts,
    /// What still holds after it, if it held before.
    pub preserves: Facts,
    /// Options that only matter to it, by the names of [`crate::Settings`].
    pub options: &'static [&'static str],
}

impl PassInfo {
    /// The pass of that name or short name.
    pub fn find(name: &str) -> Option<&'static PassInfo> {
        PASSES.iter().find(|p| p.name == name || !p.short.is_empty() && p.short == name)
    }

    /// The pass that carries out a step.
    pub fn of(step: Step) -> Option<&'static PassInfo> {
        PASSES.iter().find(|p| p.step == step)
    }
}

const fn pass(name: &'static str, short: &'static str, doc: &'static str, step: Step) -> PassInfo {
    PassInfo {
        name,
        short,
        doc,
        step,
        requires: Facts::NONE,
        provides: Facts::NONE,
        preserves: Facts::ALL,
        options: &[],
    }
}

/// All passes, in the order of the standard pipeline.
pub static PASSES: &[PassInfo] = &[
    PassInfo {
        requires: Facts::SOURCE,
        provides: Facts::SOURCE,
        preserves: Facts::NONE,
        ..pass(
            "decompose-tiled-views",
            "views",
            "loads of parts of tiles load these parts; views that are handed on are followed",
            Step::Views,
        )
    },
    PassInfo {
        requires: Facts::SOURCE,
        provides: Facts::SOURCE,
        preserves: Facts::BOXES,
        options: &["tune.unroll-ops"],
        ..pass(
            "scheduling-canonicalizer",
            "canonical",
            "small constant loops, wrappers of single ops, dead ops and branches that only choose are gone",
            Step::Canonical,
        )
    },
    PassInfo {
        requires: Facts::SOURCE,
        provides: Facts::SOURCE,
        preserves: Facts::BOXES,
        options: &["tma-rewrite"],
        ..pass(
            "tileas-lower-tma-load-store-to-async",
            "tma",
            "plain loads become asynchronous TMA loads where the later passes accept them",
            Step::LowerTma,
        )
    },
    PassInfo {
        requires: Facts::SOURCE,
        provides: Facts::SOURCE.or(Facts::BOXES),
        preserves: Facts::NONE,
        ..pass(
            "refresh-tma-boxes",
            "boxes",
            "boxes of descriptors follow the tiles that are loaded",
            Step::Boxes,
        )
    },
    PassInfo {
        requires: Facts::SOURCE.or(Facts::BOXES),
        provides: Facts::AGENTS,
        options: &[
            "simt-warps",
            "max-simt-agents",
            "consumers",
            "pipeline-strategy",
            "published.light-specialization",
        ],
        ..pass("agents", "", "plans who runs which op, and with how many warps and registers", Step::Agents)
    },
    PassInfo {
        requires: Facts::SOURCE.or(Facts::AGENTS),
        provides: Facts::PLACED.or(Facts::AGENTS),
        preserves: Facts::NONE,
        options: &["slice-regs", "tune.roll-slices"],
        ..pass(
            "place",
            "",
            "gives every tile its space and layout; copies and slices become explicit",
            Step::Place,
        )
    },
    PassInfo {
        requires: Facts::PLACED.or(Facts::AGENTS),
        provides: Facts::SCHEDULE,
        preserves: Facts::ALL.without(Facts::BUFFERS),
        options: &[
            "scheduler",
            "published.rrt-size-threshold",
            "published.cycle-model",
            "published.constraint-mode",
            "published.selector",
            "published.serial-threshold",
            "search.ii-cap",
            "search.ii-search",
            "search.budget-ratio",
            "search.step-limit",
            "max-stages",
            "require-pipelining",
            "limits.max-ops",
            "limits.max-edges",
            "search.seed",
            "published.arm-policy",
            "published.g2-horizon",
            "search.permute-budget",
            "search.arm-steps",
            "search.exact-steps",
            "search.steps",
            "search.lifetime-steps",
            "published.spill-budget",
            "tune.fuse-reads",
            "published.latency-ceilings",
            "published.max-constraint-iterations",
        ],
        ..pass(
            "tileas-generate-schedule",
            "schedule",
            "schedules every innermost loop and publishes ScheduleAnalysis",
            Step::Schedule,
        )
    },
    PassInfo {
        requires: Facts::PLACED.or(Facts::AGENTS).or(Facts::SCHEDULE),
        provides: Facts::SCHEDULE.or(Facts::BUFFERS),
        options: &[
            "pipeline-depth",
            "tune.max-slots",
            "smem-bytes",
            "tune.first-named-barrier",
            "published.max-constraint-iterations",
        ],
        ..pass(
            "buffers",
            "",
            "assigns storage, channels and depths; loops whose rings got too few slots are scheduled again",
            Step::Buffers,
        )
    },
    PassInfo {
        requires: Facts::PLACED.or(Facts::AGENTS).or(Facts::SCHEDULE).or(Facts::BUFFERS),
        provides: Facts::MATERIALIZED,
        preserves: Facts::NONE,
        options: &["cluster", "grid-group", "tune.max-peeled-ops"],
        ..pass(
            "tileas-materialize-schedule",
            "materialize",
            "checks that the schedule is legal, then writes pipelines and one region per agent",
            Step::Materialize,
        )
    },
    PassInfo {
        requires: Facts::MATERIALIZED,
        provides: Facts::PROVEN,
        ..pass("verify-materialized", "prove", "proves that the agents do not deadlock", Step::Prove)
    },
    PassInfo {
        requires: Facts::MATERIALIZED.or(Facts::PROVEN),
        provides: Facts::NVVM,
        preserves: Facts::NONE,
        ..pass("lower", "", "thread-level code and launch metadata", Step::Lower)
    },
    PassInfo {
        requires: Facts::NVVM,
        provides: Facts::PRETREATED,
        preserves: Facts::ALL.without(Facts::PTX),
        ..pass("nvvm-pretreat", "cleanup", "copies, constants, dead code, jumps to jumps", Step::Cleanup)
    },
    PassInfo {
        requires: Facts::NVVM,
        preserves: Facts::ALL.without(Facts::PTX),
        options: &["regalloc", "max-regs", "tune.register-reserve"],
        ..pass("registers", "", "register budgets, spills, launch attributes", Step::Registers)
    },
    PassInfo {
        requires: Facts::NVVM.or(Facts::PRETREATED),
        provides: Facts::PTX,
        options: &["min-ptx-version", "max-ptx-version", "ptx-comments", "line-info"],
        ..pass("ptx", "", "verifies thread-level code (`nvvm-verify`) and writes it as text", Step::Ptx)
    },
];

/// Two passes of which the first must come first where both are there, and why.
#[derive(Debug)]
pub struct Order {
    /// Comes first.
    pub first: &'static str,
    /// Comes later.
    pub second: &'static str,
    /// The invariant.
    pub why: &'static str,
}

/// The published name of the preparation, its short name, and the passes it stands for.
pub const PREPARATION: ([&str; 2], &str) = (
    ["tileas-prepare-for-scheduling", "prepare"],
    "decompose-tiled-views,scheduling-canonicalizer,tileas-lower-tma-load-store-to-async,refresh-tma-boxes",
);

/// The ordering invariants of the scheduling passes and of the backend. That schedules survive until they are
/// materialised follows from what passes preserve, that boxes fit from what placement requires.
pub static ORDER: &[Order] = &[
    Order {
        first: "decompose-tiled-views",
        second: "scheduling-canonicalizer",
        why: "what carried a view that is followed is dead",
    },
    Order {
        first: "scheduling-canonicalizer",
        second: "tileas-lower-tma-load-store-to-async",
        why: "loops that are written out have no loads to run ahead",
    },
    Order {
        first: "tileas-lower-tma-load-store-to-async",
        second: "refresh-tma-boxes",
        why: "boxes follow the final loads",
    },
    Order {
        first: "scheduling-canonicalizer",
        second: "tileas-generate-schedule",
        why: "what is scheduled has been prepared for it",
    },
    Order {
        first: "nvvm-pretreat",
        second: "ptx",
        why: "thread-level code is pretreated before it is emitted",
    },
    Order {
        first: "registers",
        second: "ptx",
        why: "launch attributes and spills are final before code is emitted",
    },
];
