//! All options of the compiler, in one immutable value.
//!
//! In: option names and values as text ([`SettingsBuilder::set`]). Out: [`Settings`], which
//! every stage reads and none changes. One table below gives each option its name, type, default, allowed values
//! and documentation; [`Settings::list`] hands it to the command line and the documentation. What a user sets has a plain name;
//! `published.*` are readings of the published pages, `search.*` budgets of the searches, `limits.*` sizes beyond which input is
//! refused, `tune.*` choices of the stages.
//!
//! Guarantee: a value that is stored is allowed. Errors are `E1002` (unknown option) and `E1003` (value not
//! allowed), both naming what is allowed. Elsewhere: what an option does (the stage that reads it).

use crate::agents::AgentOptions;
pub use crate::agents::{Consumers, PipelineStrategy};
use crate::buffers::BufferOptions;
pub use crate::constraints::ConstraintMode;
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::{Limits as IrLimits, MemSemantics, ParseLimits};
use crate::isa::TargetIsa;
use crate::materialize::MaterializeOptions;
use crate::place::PlaceOptions;
use crate::prepare::PrepareOptions;
pub use crate::regalloc::Mode as RegallocMode;
use crate::regalloc::PTXAS_RESERVE;
use crate::schedule::{
    ArmPolicy, CycleModel, G2Horizon, IiSearch, Limits, ScheduleOptions, SchedulerChoice, SelectorKind,
};

/// Latency ceilings in cycles, as published: of ops, and of those that reach across the cluster.
const CEILINGS: (u32, u32) = (5_000, 7_000);

/// The latest PTX version whose instructions are known.
const LATEST_PTX: (u8, u8) = (9, 5);

/// Values an option accepts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Words(&'static [&'static str]),
    /// An integer from the first to the second number.
    Int(u64, u64),
    /// A power of two from the first to the second number.
    PowerOfTwo(u64, u64),
    /// An integer from the first to the second number, or the word.
    IntOr(u64, u64, &'static str),
    /// A power of two in that range, or a word that stands for none.
    PowerOfTwoOr(u64, u64, &'static str),
    /// A PTX version from the first to the second, such as `8.6`.
    Version((u8, u8), (u8, u8)),
    /// Any text; what it may be is said here.
    Text(&'static str),
}

impl std::fmt::Display for Allowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Allowed::Flag => f.write_str("true, false"),
            Allowed::Words(words) => f.write_str(&words.join(", ")),
            Allowed::Int(lo, hi) => write!(f, "{lo} to {hi}"),
            Allowed::PowerOfTwo(lo, hi) => write!(f, "a power of two, {lo} to {hi}"),
            Allowed::IntOr(lo, hi, word) => write!(f, "{word}, or {lo} to {hi}"),
            Allowed::PowerOfTwoOr(lo, hi, word) => write!(f, "{word}, or a power of two, {lo} to {hi}"),
            Allowed::Version((a, b), (c, d)) => write!(f, "{a}.{b} to {c}.{d}"),
            Allowed::Text(what) => f.write_str(what),
        }
    }
}

/// One option: a row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    /// Name as written: `slice-regs`.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// What it accepts.
    pub allowed: Allowed,
    /// Its default as text.
    pub default: String,
}

/// A type an option can have.
trait Setting: Sized {
    /// The value of that text; `None` if it is not allowed.
    fn read(text: &str, allowed: Allowed) -> Option<Self>;
    /// The text [`Setting::read`] accepts for this value.
    fn show(&self, allowed: Allowed) -> String;
}

fn number(text: &str, allowed: Allowed) -> Option<u64> {
    let n = text.parse::<u64>().ok()?;
    let ok = match allowed {
        Allowed::Int(lo, hi) | Allowed::IntOr(lo, hi, _) => (lo..=hi).contains(&n),
        Allowed::PowerOfTwo(lo, hi) | Allowed::PowerOfTwoOr(lo, hi, _) => {
            (lo..=hi).contains(&n) && n.is_power_of_two()
        }
        _ => false,
    };
    ok.then_some(n)
}

macro_rules! integer_setting {
    ($($ty:ty),*) => {$(
        impl Setting for $ty {
            fn read(text: &str, allowed: Allowed) -> Option<Self> {
                number(text, allowed)?.try_into().ok()
            }
            fn show(&self, _: Allowed) -> String {
                self.to_string()
            }
        }
    )*};
}
integer_setting!(u32, u64, usize);

impl Setting for bool {
    fn read(text: &str, _: Allowed) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self, _: Allowed) -> String {
        self.to_string()
    }
}

impl Setting for Option<String> {
    fn read(text: &str, _: Allowed) -> Option<Self> {
        (!text.is_empty()).then(|| (text != "module").then(|| text.to_owned()))
    }
    fn show(&self, _: Allowed) -> String {
        self.as_deref().unwrap_or("module").to_owned()
    }
}

/// Which kernels of a module are compiled: names, and ranges of their numbers in source order, counted from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    names: Vec<String>,
    ranges: Vec<(usize, usize)>,
}

impl Selection {
    /// Whether a kernel is among them; none named: all are.
    pub fn has(&self, number: usize, name: &str) -> bool {
        self.names.is_empty() && self.ranges.is_empty()
            || self.names.iter().any(|n| n == name)
            || self.ranges.iter().any(|r| (r.0..=r.1).contains(&number))
    }

    /// A name that no kernel has, or the first number of a range that begins behind the last kernel.
    pub(crate) fn missing(&self, names: &[&str]) -> Option<String> {
        let name = self.names.iter().find(|n| !names.contains(&n.as_str())).cloned();
        name.or_else(|| self.ranges.iter().find(|r| r.0 >= names.len()).map(|r| r.0.to_string()))
    }
}

impl Setting for Selection {
    fn read(text: &str, _: Allowed) -> Option<Self> {
        let mut all = Selection::default();
        for part in text.split(',').filter(|_| text != "all") {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) if first <= last => all.ranges.push((first, last)),
                _ if part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '$') => {
                    all.names.push(part.to_owned());
                }
                _ => return None,
            }
        }
        Some(all)
    }
    fn show(&self, _: Allowed) -> String {
        let ranges =
            self.ranges.iter().map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
        let parts: Vec<String> = self.names.iter().cloned().chain(ranges).collect();
        if parts.is_empty() { "all".to_owned() } else { parts.join(",") }
    }
}

impl Setting for Option<u32> {
    fn read(text: &str, allowed: Allowed) -> Option<Self> {
        match allowed {
            Allowed::IntOr(_, _, word) | Allowed::PowerOfTwoOr(_, _, word) if word == text => Some(None),
            _ => u32::read(text, allowed).map(Some),
        }
    }
    fn show(&self, allowed: Allowed) -> String {
        match (self, allowed) {
            (Some(n), _) => n.to_string(),
            (None, Allowed::IntOr(_, _, word) | Allowed::PowerOfTwoOr(_, _, word)) => word.to_owned(),
            (None, _) => String::new(),
        }
    }
}

impl Setting for (u8, u8) {
    fn read(text: &str, allowed: Allowed) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        let version = (major.parse().ok()?, minor.parse().ok()?);
        matches!(allowed, Allowed::Version(lo, hi) if (lo..=hi).contains(&version)).then_some(version)
    }
    fn show(&self, _: Allowed) -> String {
        format!("{}.{}", self.0, self.1)
    }
}

macro_rules! word_setting {
    ($ty:ty: $($word:literal => $value:expr),*) => {
        impl Setting for $ty {
            fn read(text: &str, _: Allowed) -> Option<Self> {
                match text {
                    $($word => Some($value),)*
                    _ => None,
                }
            }
            fn show(&self, _: Allowed) -> String {
                $(if *self == $value { return $word.to_owned(); })*
                String::new()
            }
        }
    };
}
word_setting!(ConstraintMode: "spec" => ConstraintMode::Spec, "strict" => ConstraintMode::Strict);
word_setting!(RegallocMode: "report" => RegallocMode::Report, "plan" => RegallocMode::Plan);
word_setting!(CycleModel: "slot" => CycleModel::Slot, "real" => CycleModel::Real);
word_setting!(SelectorKind: "auto" => SelectorKind::Auto, "spec" => SelectorKind::Spec);
word_setting!(ArmPolicy: "first-success" => ArmPolicy::FirstSuccess, "lowest-cost" => ArmPolicy::LowestCost,
    "permute" => ArmPolicy::Permute);
word_setting!(G2Horizon: "growing" => G2Horizon::Growing, "fixed" => G2Horizon::Fixed);
word_setting!(Consumers: "auto" => Consumers::Auto, "cooperative" => Consumers::Cooperative, "ping-pong" => Consumers::PingPong);
word_setting!(PipelineStrategy: "auto" => PipelineStrategy::Auto, "none" => PipelineStrategy::None,
    "unspecialized" => PipelineStrategy::Unspecialized, "warp-specialize" => PipelineStrategy::WarpSpecialize);
word_setting!(MemSemantics: "public" => MemSemantics::Public, "book" => MemSemantics::Book);
word_setting!(IiSearch: "auto" => IiSearch::Auto, "linear" => IiSearch::Linear, "gallop" => IiSearch::Gallop);

impl Setting for SchedulerChoice {
    /// Any word is accepted; [`SettingsBuilder::set`] adds the warning for unknown ones.
    fn read(text: &str, _: Allowed) -> Option<Self> {
        Some(SchedulerChoice::parse(text).0)
    }
    fn show(&self, _: Allowed) -> String {
        match self {
            SchedulerChoice::Auto => "auto",
            SchedulerChoice::Serial => "serial",
            SchedulerChoice::CostBased => "cost",
            SchedulerChoice::Optimal => "optimal",
        }
        .to_owned()
    }
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $field:ident: $ty:ty = $default:expr, $name:literal, $allowed:expr;)*) => {
        /// The options, fixed for one or more compilations. Made by [`Settings::builder`]; `Default` has all defaults.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $(pub(crate) $field: $ty,)*
            warnings: Vec<CodegenError>,
        }

        impl Default for Settings {
            fn default() -> Settings {
                Settings { $($field: $default,)* warnings: Vec::new() }
            }
        }

        impl Settings {
            /// All options in the order of the table, with their defaults.
            pub fn list() -> Vec<OptionInfo> {
                let defaults = Settings::default();
                vec![$(OptionInfo {
                    name: $name,
                    doc: concat!($($doc),+).trim_start(),
                    allowed: $allowed,
                    default: Setting::show(&defaults.$field, $allowed),
                },)*]
            }

            $(#[doc = concat!("`", $name, "`:")] $(#[doc = $doc])+
            pub fn $field(&self) -> &$ty {
                &self.$field
            })*

            /// All options as text, a line each, in the order of the table.
            pub fn text(&self) -> String {
                let mut text = String::new();
                $(
                    text.push_str(concat!($name, " = "));
                    text.push_str(&Setting::show(&self.$field, $allowed));
                    text.push('\n');
                )*
                text
            }

            /// The value of an option as text; `None` for an unknown name. `_` counts as `-` in names.
            pub fn get(&self, name: &str) -> Option<String> {
                match name.replace('_', "-").as_str() {
                    $($name => Some(Setting::show(&self.$field, $allowed)),)*
                    _ => None,
                }
            }
        }

        impl SettingsBuilder {
            /// Sets an option by name. `_` counts as `-` in names.
            ///
            /// # Errors
            /// `E1002` for an unknown name, `E1003` for a value that is not allowed, `E0409` for exact mode without its feature.
            pub fn set(&mut self, name: &str, value: &str) -> CodegenResult<&mut Self> {
                let canonical = name.replace('_', "-");
                let mut next = self.settings.clone();
                match canonical.as_str() {
                    $($name => match Setting::read(value, $allowed) {
                        Some(v) => next.$field = v,
                        None => return Err(not_allowed($name, value, $allowed)),
                    },)*
                    _ => return Err(unknown(name)),
                }
                next.check(&self.settings, &canonical, value)?;
                if canonical == "scheduler" {
                    next.warnings.retain(|w| w.code != Code::W0401);
                    next.warnings.extend(SchedulerChoice::parse(value).1.map(CodegenError::from));
                }
                self.settings = next;
                Ok(self)
            }
        }
    };
}

settings! {
    /// Processor to compile for; `module`: the one that the module names, else sm_100a.
    target: Option<String> = None, "target", Allowed::Text("a processor such as sm_100a, or module");
    /// Kernels to compile: names and ranges of their numbers in source order, from 0; the others are checked and left out.
    select_kernels: Selection = Selection::default(), "select-kernels", Allowed::Text("all, or names and ranges of numbers: gemm,0-2");
    /// Generator of loop schedules. `auto` lets the selector decide; another word counts as `cost`, with a warning.
    scheduler: SchedulerChoice = SchedulerChoice::Auto, "scheduler", Allowed::Words(&["auto", "serial", "cost", "optimal"]);
    /// Failing to pipeline a loop is an error instead of a serial schedule.
    require_pipelining: bool = false, "require-pipelining", Allowed::Flag;
    /// Stages a whole iteration must fit in.
    max_stages: Option<u32> = None, "max-stages", Allowed::IntOr(1, 1_000_000, "unlimited");
    /// How loops become pipelines. `none`: not at all, one iteration after the other. `unspecialized`: loops are pipelined, but
    /// no agent exists to load alone: loads stay where they are used, and what an engine executes is issued by one
    /// agent. `warp-specialize`: an agent for each engine. `auto` specialises where the target has TMA.
    pipeline_strategy: PipelineStrategy = PipelineStrategy::Auto, "pipeline-strategy", Allowed::Words(&["auto", "none", "unspecialized", "warp-specialize"]);
    /// Slots of every ring, memory permitting; `auto` covers the latencies of the machine model.
    pipeline_depth: Option<u32> = None, "pipeline-depth", Allowed::IntOr(1, 64, "auto");
    /// Warps of an agent that computes in registers; `auto`: 4, or, where it keeps clear of tensor memory, as many as its tiles need.
    simt_warps: Option<u32> = None, "simt-warps", Allowed::PowerOfTwoOr(1, 16, "auto");
    /// Most agents that compute in registers; `auto`: one, or two where loops compute with products in tensor memory that share no tile, or where
    /// operands of products that two warpgroups issue are gathered or computed, which another agent then does.
    max_simt_agents: Option<u32> = None, "max-simt-agents", Allowed::IntOr(1, 4, "auto");
    /// Who computes with products in registers in the iterations of an outermost loop. `cooperative`: all warpgroups of an agent, together on one tile. `ping-pong`: two
    /// warpgroups in turns, each on a tile of its own, so that one stores its tile while the tensor core works for the other; an error where iterations cannot be
    /// dealt out. `auto`: `ping-pong` where that is possible and the registers and shared memory suffice.
    consumers: Consumers = Consumers::Auto, "consumers", Allowed::Words(&["auto", "cooperative", "ping-pong"]);
    /// CTAs of a cluster, next to each other along one axis of the grid, that load what they have in common together (TMA multicast). A grid must then have a multiple of so many
    /// CTAs along that axis. Kernels in which nothing is in common stay without, with a warning.
    cluster: u32 = 1, "cluster", Allowed::PowerOfTwo(1, 8);
    /// Rows of tiles that CTAs take together, column by column, before they go on to the next ones, in kernels whose loops multiply tiles that follow two coordinates of the grid:
    /// the second cache then holds what they share. `auto`: so many that they are 1024 rows of the result. 1: CTAs take tiles as the grid numbers them, as those of clusters do.
    grid_group: Option<u32> = None, "grid-group", Allowed::PowerOfTwoOr(1, 64, "auto");
    /// 32-bit registers per thread that the widest tile of one slice may take.
    slice_regs: u32 = 64, "slice-regs", Allowed::PowerOfTwo(8, 128);
    /// Loads of matrix operands, loads in loops with products and stores of rows go through TMA where they can. It asks for pointers
    /// and strides that are multiples of 16 bytes, which direct accesses do not need.
    tma_rewrite: bool = true, "tma-rewrite", Allowed::Flag;
    /// Shared-memory bytes a kernel may ask for; `target` is all there are.
    smem_bytes: Option<u32> = None, "smem-bytes", Allowed::IntOr(1024, 0x7fff_ffff, "target");
    /// Registers per thread, as `.maxnreg` says it to the assembler; `target` is what the threads of the CTA can have.
    max_regs: Option<u32> = None, "max-regs", Allowed::IntOr(24, 255, "target");
    /// What happens to agents that need more registers than they may use: `report` warns and leaves it to the
    /// assembler, `plan` stores values in shared or local memory or computes them again.
    regalloc: RegallocMode = RegallocMode::Report, "regalloc", Allowed::Words(&["report", "plan"]);
    /// Least PTX version to state.
    min_ptx_version: (u8, u8) = (0, 0), "min-ptx-version", Allowed::Version((0, 0), LATEST_PTX);
    /// Latest PTX version the assembler at hand accepts.
    max_ptx_version: (u8, u8) = LATEST_PTX, "max-ptx-version", Allowed::Version((1, 0), LATEST_PTX);
    /// Comments in the PTX.
    ptx_comments: bool = true, "ptx-comments", Allowed::Flag;
    /// The PTX says with `.loc` which line of the source instructions are of, as profilers and debuggers show it; the assembler keeps it if it
    /// is told to (`-lineinfo`). The source is the text, or what the front end says in the attribute `loc`.
    line_info: bool = false, "line-info", Allowed::Flag;
    /// The IR verifier runs after every pass that rewrites the IR, not on the source alone, and the thread-level verifier checks
    /// operands and blocks. A check of this compiler, not of its input: on in builds with debug assertions, off in others.
    verify_passes: bool = cfg!(debug_assertions), "verify-passes", Allowed::Flag;

    // Readings of the published pages, and numbers that they name.
    /// How oddities in scheduling constraints are treated: as documented with warnings, or strictly with errors.
    constraint_mode: ConstraintMode = ConstraintMode::Spec, "published.constraint-mode", Allowed::Words(&["spec", "strict"]);
    /// What a cycle is: a clock of the hardware units and of the agents, or a weight of the published machine model.
    cycle_model: CycleModel = CycleModel::Real, "published.cycle-model", Allowed::Words(&["slot", "real"]);
    /// Order of the selector's rules: `auto` looks for asynchronous work first, `spec` counts ops first.
    selector: SelectorKind = SelectorKind::Auto, "published.selector", Allowed::Words(&["auto", "spec"]);
    /// Loops with fewer ops that count are small.
    serial_threshold: u32 = 8, "published.serial-threshold", Allowed::Int(0, 1_000_000);
    /// Rows of the reservation table before they are quantised; 0 = as many as memory allows.
    rrt_size_threshold: u32 = 4096, "published.rrt-size-threshold", Allowed::Int(0, 0x7fff_ffff);
    /// Choice among the placement arms of a ready group.
    arm_policy: ArmPolicy = ArmPolicy::FirstSuccess, "published.arm-policy", Allowed::Words(&["first-success", "lowest-cost", "permute"]);
    /// Largest max_depth the arms admit: growing in the retry arm, or always 1.
    g2_horizon: G2Horizon = G2Horizon::Growing, "published.g2-horizon", Allowed::Words(&["growing", "fixed"]);
    /// Registers per thread above which starts pay a spill surcharge.
    spill_budget: Option<u32> = None, "published.spill-budget", Allowed::IntOr(1, 1_000_000, "unlimited");
    /// Refuses to pipeline latencies above 5000 cycles, 7000 across the cluster.
    latency_ceilings: bool = false, "published.latency-ceilings", Allowed::Flag;
    /// One agent issues TMA loads and matrix multiplies: a warp less, and loads run ahead only by the stages of the
    /// schedule.
    light_specialization: bool = false, "published.light-specialization", Allowed::Flag;
    /// Rounds in which a loop is scheduled again because a ring did not get the slots its schedule needs.
    max_constraint_iterations: u32 = 16, "published.max-constraint-iterations", Allowed::Int(0, 1_000);
    /// Memory semantics of loads and stores. `public`: loads may be acquire, stores release. `book`: both are weak or relaxed.
    verify_mem_semantics: MemSemantics = MemSemantics::Public, "published.verify-mem-semantics", Allowed::Words(&["public", "book"]);

    // Budgets and ways of the searches.
    /// Largest initiation interval tried; `serial` is that of the serial schedule.
    ii_cap: Option<u32> = None, "search.ii-cap", Allowed::IntOr(1, 0x7fff_ffff, "serial");
    /// How candidate initiation intervals are visited; `auto` is linear up to 256, galloping above.
    ii_search: IiSearch = IiSearch::Auto, "search.ii-search", Allowed::Words(&["auto", "linear", "gallop"]);
    /// Placements per op in one attempt at one initiation interval.
    budget_ratio: u32 = 16, "search.budget-ratio", Allowed::Int(1, 100_000);
    /// Placements in all attempts of one loop together.
    step_limit: u64 = 4_000_000, "search.step-limit", Allowed::Int(1, u64::MAX);
    /// Seed of sampled priorities.
    seed: u64 = 0, "search.seed", Allowed::Int(0, u64::MAX);
    /// Orders the permute arm looks at for one group.
    permute_budget: u32 = 24, "search.permute-budget", Allowed::Int(1, 1_000_000);
    /// Starts the placement arms look at in one loop; 0 = no arms.
    arm_steps: u64 = 60_000, "search.arm-steps", Allowed::Int(0, u64::MAX);
    /// Steps of local and exact search in one loop of up to 64 ops, fewer in larger ones; 0 = none.
    exact_steps: u64 = 8_000_000, "search.exact-steps", Allowed::Int(0, u64::MAX);
    /// Steps of the searches in all loops of a function and all rounds of refinement together: starts of the arms, local and
    /// exact search, fewer stages, shorter lifetimes. Each loop has its own limits beside this; 0 = no searches.
    search_steps: u64 = 1_000_000, "search.steps", Allowed::Int(0, u64::MAX);
    /// Steps of exact mode (`scheduler = optimal`) in one loop: conflicts, and one more per 4096 literals.
    optimal_steps: u64 = 200_000, "search.optimal-steps", Allowed::Int(0, u64::MAX);
    /// Placements spent on shorter lifetimes in one loop; 0 = compaction only.
    lifetime_steps: u64 = 4_000, "search.lifetime-steps", Allowed::Int(0, u64::MAX);

    // Sizes beyond which input is refused.
    /// Ops of one scheduling problem.
    max_ops: usize = 100_000, "limits.max-ops", Allowed::Int(1, 0x7fff_ffff);
    /// Edges of one scheduling problem, and pairs of accesses to one view in one block that may need an order.
    max_edges: usize = 1_000_000, "limits.max-edges", Allowed::Int(1, 0x7fff_ffff);
    /// Reservations of slots and pools of one op of a scheduling problem.
    max_uses: usize = 1_024, "limits.max-uses", Allowed::Int(1, 0x7fff_ffff);
    /// Ops directly in one region of the source.
    max_region_ops: usize = 65_536, "limits.max-region-ops", Allowed::Int(1, 0x7fff_ffff);
    /// Instructions of one kernel at thread level, before clean-up.
    max_instructions: usize = 1_000_000, "limits.max-instructions", Allowed::Int(1, 0x7fff_ffff);
    /// Regions inside regions.
    max_nesting: usize = 64, "limits.max-nesting", Allowed::Int(1, 256);
    /// Ops of one source text.
    max_module_ops: usize = 1_000_000, "limits.max-module-ops", Allowed::Int(1, 0x7fff_ffff);
    /// Bytes of one source text.
    max_bytes: usize = 64 << 20, "limits.max-bytes", Allowed::Int(1, 0x7fff_ffff);

    // Choices of the stages that rarely need another value.
    /// Up to five independent copies from shared memory to registers are one op of the schedule: they start together
    /// and hold the transport once. The results of all are then alive together.
    fuse_reads: bool = false, "tune.fuse-reads", Allowed::Flag;
    /// Least slices of a chain of register tiles that become a loop over slices, where they are equal but for their
    /// offsets; with fewer, and where they are not, each slice is written out. 0: always written out.
    roll_slices: u32 = 2, "tune.roll-slices", Allowed::Int(0, 1_000);
    /// Most ops that a loop with a constant number of iterations may be written out to, if nothing in it could run ahead; one that
    /// runs at most once always is. 0: all loops stay.
    unroll_ops: u32 = 32, "tune.unroll-ops", Allowed::Int(0, 1_000);
    /// Ops in the prologue and epilogue of a loop over local stages; with more it stays rolled, with guards. 0: always.
    max_peeled_ops: u32 = 128, "tune.max-peeled-ops", Allowed::Int(0, 1_000_000);
    /// Most slots that `pipeline-depth = auto` gives a ring beyond what its schedule needs.
    max_slots: u32 = 8, "tune.max-slots", Allowed::Int(1, 64);
    /// First named barrier for hand-offs inside an agent; 0 is the kernel's own.
    first_named_barrier: u32 = 1, "tune.first-named-barrier", Allowed::Int(1, 15);
    /// Shared memory is not limited; the kernel may not load. A debugging aid.
    unlimited_smem: bool = false, "tune.unlimited-smem", Allowed::Flag;
    /// Registers per thread kept free for what the assembler adds, when budgets are checked.
    register_reserve: u32 = PTXAS_RESERVE, "tune.register-reserve", Allowed::Int(0, 128);
}

/// Warps of an agent that computes in registers, where tiles do not need more.
const DEFAULT_WARPS: u32 = 4;

fn unknown(name: &str) -> CodegenError {
    let list = Settings::list();
    // Who leaves the group out is told the whole name.
    let plain = name.replace('_', "-");
    let meant = |o: &&OptionInfo| {
        o.name.split_once('.').is_some_and(|(_, rest)| rest == plain) || o.name.replace('.', "-") == plain
    };
    if let Some(o) = list.iter().find(meant) {
        let text = format!("unknown option `{name}`: its name is `{}`", o.name);
        return CodegenError::new(Code::E1002, Loc::NONE, text);
    }
    let names: Vec<&str> = list.iter().map(|o| o.name).collect();
    CodegenError::new(Code::E1002, Loc::NONE, format!("unknown option `{name}`"))
        .did_you_mean(name, names.iter().copied())
        .note(Loc::NONE, format!("options are {}", names.join(", ")))
}

fn not_allowed(name: &str, value: &str, allowed: Allowed) -> CodegenError {
    let text = format!("option `{name}` cannot be `{value}`; allowed: {allowed}");
    let words = match allowed {
        Allowed::Words(words) => words,
        Allowed::Flag => &["true", "false"],
        _ => &[],
    };
    CodegenError::new(Code::E1003, Loc::NONE, text).did_you_mean(value, words.iter().copied())
}

/// Collects options; [`SettingsBuilder::finish`] fixes them.
#[derive(Clone, Debug, Default)]
pub struct SettingsBuilder {
    settings: Settings,
}

impl SettingsBuilder {
    /// Sets an option written as `name=value`; a name alone sets a flag.
    ///
    /// # Errors
    /// As [`SettingsBuilder::set`].
    pub fn set_pair(&mut self, pair: &str) -> CodegenResult<&mut Self> {
        match pair.split_once('=') {
            Some((name, value)) => self.set(name.trim(), value.trim()),
            None => self.set(pair.trim(), "true"),
        }
    }

    /// The options as set so far.
    pub fn finish(&self) -> Settings {
        self.settings.clone()
    }
}

impl Settings {
    /// What one option by itself cannot say: whether it goes with `others` that were set.
    fn check(&self, others: &Settings, name: &str, value: &str) -> CodegenResult<()> {
        self.scheduler.check()?;
        if self.min_ptx_version > self.max_ptx_version {
            let allowed = match name {
                "min-ptx-version" => Allowed::Version((0, 0), others.max_ptx_version),
                _ => Allowed::Version(others.min_ptx_version, LATEST_PTX),
            };
            return Err(not_allowed(name, value, allowed));
        }
        Ok(())
    }

    /// Starts from the defaults.
    pub fn builder() -> SettingsBuilder {
        SettingsBuilder::default()
    }

    /// These settings with one option changed.
    ///
    /// # Errors
    /// As [`SettingsBuilder::set`].
    pub fn with(&self, name: &str, value: &str) -> CodegenResult<Settings> {
        let mut builder = self.to_builder();
        builder.set(name, value)?;
        Ok(builder.finish())
    }

    /// Starts from these options.
    pub fn to_builder(&self) -> SettingsBuilder {
        SettingsBuilder { settings: self.clone() }
    }

    /// Warnings about values that were accepted but look wrong.
    pub fn warnings(&self) -> &[CodegenError] {
        &self.warnings
    }

    /// Limits of the parser.
    pub fn parse_limits(&self) -> ParseLimits {
        ParseLimits {
            max_ops: self.max_module_ops,
            max_nesting: self.max_nesting,
            max_bytes: self.max_bytes,
            ..ParseLimits::default()
        }
    }

    /// Limits of the verifier.
    pub fn ir_limits(&self) -> IrLimits {
        IrLimits {
            max_region_ops: self.max_region_ops,
            max_nesting: self.max_nesting.max(1) + 1,
            semantics: self.verify_mem_semantics,
        }
    }

    /// Whether loops become pipelines at all.
    fn pipelines(&self) -> bool {
        self.pipeline_strategy != PipelineStrategy::None
    }

    /// What agent planning reads.
    #[doc(hidden)]
    pub fn agent_options(&self) -> AgentOptions {
        AgentOptions {
            simt_warps: self.simt_warps.unwrap_or(DEFAULT_WARPS),
            max_regs: self.max_regs,
            max_simt_agents: self.max_simt_agents,
            slice_regs: self.slice_regs,
            strategy: self.pipeline_strategy,
            light: self.light_specialization,
            feeder: false,
            instances: 1,
        }
    }

    /// What preparation reads, all stages of it.
    #[doc(hidden)]
    pub fn prepare_options(&self, isa: &dyn TargetIsa) -> PrepareOptions {
        PrepareOptions {
            tma: self.tma_rewrite && self.pipeline_strategy.specializes(isa),
            unroll_ops: self.unroll_ops,
            simt_warps: self.simt_warps.unwrap_or(DEFAULT_WARPS),
            shared: self.max_simt_agents != Some(1),
            ..PrepareOptions::default()
        }
    }

    /// What placement reads.
    #[doc(hidden)]
    pub fn place_options(&self) -> PlaceOptions {
        PlaceOptions {
            slice_regs: self.slice_regs,
            roll_slices: self.roll_slices,
            tma_rewrite: self.tma_rewrite,
        }
    }

    /// What materialisation reads.
    #[doc(hidden)]
    pub fn materialize_options(&self) -> MaterializeOptions {
        MaterializeOptions { max_peeled_ops: self.max_peeled_ops }
    }

    /// Shared-memory bytes a kernel may ask for: what the target has, less by `smem-bytes`, all by `tune.unlimited-smem`.
    pub fn smem_limit(&self, isa: &dyn TargetIsa) -> u32 {
        let has = if self.unlimited_smem { u32::MAX } else { isa.machine().limits.smem_bytes };
        self.smem_bytes.map_or(has, |n| has.min(n))
    }

    /// What buffer assignment reads.
    #[doc(hidden)]
    pub fn buffer_options(&self, isa: &dyn TargetIsa) -> BufferOptions {
        BufferOptions {
            smem_bytes: Some(self.smem_limit(isa)),
            max_depth: None,
            // Without pipelines no slot is there to run ahead.
            pipeline_depth: self.pipeline_depth.filter(|_| self.pipelines()),
            max_slots: if self.pipelines() { self.max_slots } else { 1 },
            first_named_barrier: self.first_named_barrier,
            max_pairs: self.max_edges,
        }
    }

    /// What the scheduler reads.
    pub fn schedule_options(&self) -> ScheduleOptions {
        ScheduleOptions {
            scheduler: if self.pipelines() { self.scheduler } else { SchedulerChoice::Serial },
            cycle_model: self.cycle_model,
            selector: self.selector,
            serial_threshold: self.serial_threshold,
            ii_cap: self.ii_cap,
            ii_search: self.ii_search,
            budget_ratio: self.budget_ratio,
            step_limit: self.step_limit,
            max_stages: self.max_stages,
            require_pipelining: self.require_pipelining,
            rrt_size_threshold: self.rrt_size_threshold,
            limits: Limits { max_ops: self.max_ops, max_edges: self.max_edges, max_uses: self.max_uses },
            seed: self.seed,
            arm_policy: self.arm_policy,
            g2_horizon: self.g2_horizon,
            permute_budget: self.permute_budget,
            arm_steps: self.arm_steps,
            exact_steps: self.exact_steps,
            optimal_steps: self.optimal_steps,
            search_steps: self.search_steps,
            lifetime_steps: self.lifetime_steps,
            spill_budget: self.spill_budget,
            latency_ceilings: self.latency_ceilings.then_some(CEILINGS),
            ..ScheduleOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_pinned() {
        let list = Settings::list();
        let text: Vec<String> = list.iter().map(|o| format!("{}={}", o.name, o.default)).collect();
        assert_eq!(
            text.join(" "),
            "target=module select-kernels=all scheduler=auto require-pipelining=false max-stages=unlimited pipeline-strategy=auto \
             pipeline-depth=auto simt-warps=auto max-simt-agents=auto consumers=auto cluster=1 grid-group=auto slice-regs=64 tma-rewrite=true smem-bytes=target \
             max-regs=target regalloc=report min-ptx-version=0.0 max-ptx-version=9.5 ptx-comments=true line-info=false verify-passes=DEBUG \
             published.constraint-mode=spec published.cycle-model=real published.selector=auto published.serial-threshold=8 \
             published.rrt-size-threshold=4096 published.arm-policy=first-success published.g2-horizon=growing \
             published.spill-budget=unlimited published.latency-ceilings=false published.light-specialization=false \
             published.max-constraint-iterations=16 published.verify-mem-semantics=public search.ii-cap=serial \
             search.ii-search=auto search.budget-ratio=16 search.step-limit=4000000 search.seed=0 search.permute-budget=24 \
             search.arm-steps=60000 search.exact-steps=8000000 search.steps=1000000 search.optimal-steps=200000 \
             search.lifetime-steps=4000 limits.max-ops=100000 limits.max-edges=1000000 limits.max-uses=1024 \
             limits.max-region-ops=65536 limits.max-instructions=1000000 limits.max-nesting=64 \
             limits.max-module-ops=1000000 limits.max-bytes=67108864 tune.fuse-reads=false tune.roll-slices=2 tune.unroll-ops=32 \
             tune.max-peeled-ops=128 tune.max-slots=8 tune.first-named-barrier=1 tune.unlimited-smem=false \
             tune.register-reserve=8"
                .replace("DEBUG", if cfg!(debug_assertions) { "true" } else { "false" })
        );
    }

    #[test]
    fn defaults_are_those_of_the_stages() {
        let s = Settings::default();
        assert_eq!(s.schedule_options(), ScheduleOptions::default());
        assert_eq!(s.agent_options(), AgentOptions::default());
        assert_eq!(s.place_options(), PlaceOptions::default());
        assert_eq!(s.max_instructions, crate::lower::MAX_INSTRUCTIONS);
        assert_eq!(s.ir_limits().max_region_ops, IrLimits::default().max_region_ops);
        assert_eq!(s.parse_limits().max_ops, ParseLimits::default().max_ops);
    }

    #[test]
    fn every_option_reads_what_it_shows_and_nothing_else() {
        for o in Settings::list() {
            assert!(!o.doc.is_empty() && o.doc.ends_with('.'), "{}", o.name);
            let mut b = Settings::builder();
            b.set(o.name, &o.default).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(b.finish(), Settings::default(), "{}", o.name);
            if matches!(o.allowed, Allowed::Text(_)) || o.name == "scheduler" {
                continue;
            }
            for bad in ["", "no-such-value", "-1", "18446744073709551616"] {
                let e = b.set(o.name, bad).map(|_| ()).expect_err(o.name);
                assert_eq!(e.code, Code::E1003);
                assert!(e.message.contains(o.name) && e.message.contains(&o.allowed.to_string()), "{e}");
            }
        }
        let mut b = Settings::builder();
        assert_eq!(b.set("slice-regs", "48").map(|_| ()).expect_err("not a power of two").code, Code::E1003);
        assert_eq!(b.set("slice-reg", "64").map(|_| ()).expect_err("unknown").code, Code::E1002);
        for (old, new) in [("exact_steps", "search.exact-steps"), ("search-steps", "search.steps")] {
            let e = b.set(old, "1").map(|_| ()).expect_err("without its group");
            assert_eq!((e.code, e.message.contains(&format!("`{new}`"))), (Code::E1002, true), "{e}");
        }
    }

    #[test]
    fn values_arrive() {
        let mut b = Settings::builder();
        for pair in [
            "slice_regs=32",
            "search.ii-cap=40",
            "require-pipelining",
            "scheduler=Cost",
            "max-ptx-version=8.7",
        ] {
            b.set_pair(pair).unwrap_or_else(|e| panic!("{e}"));
        }
        let s = b.finish();
        assert_eq!(
            (s.slice_regs, s.ii_cap, s.require_pipelining, s.max_ptx_version),
            (32, Some(40), true, (8, 7))
        );
        assert_eq!(s.get("search.ii-cap").as_deref(), Some("40"));
        assert_eq!((s.scheduler, s.warnings().len()), (SchedulerChoice::CostBased, 1));
        assert!(b.set("scheduler", "serial").map(|b| b.finish().warnings().is_empty()).unwrap_or(false));
    }
}
