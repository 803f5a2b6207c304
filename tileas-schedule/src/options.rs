//! Options of the scheduler, each with its default. One immutable value, shared by all calls.

/// Which generator runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum SchedulerChoice {
    /// The selector decides between the serial generator and modulo scheduling (`auto`); a bare graph takes the second.
    #[default]
    Auto,
    /// Always the serial generator.
    Serial,
    /// The published cost-based generator (`ladder`), where the loop does not force serial execution.
    CostBased,
    /// Modulo scheduling, then exact mode: the least II and the fewest stages, with proofs (feature `optimal`).
    Optimal,
}

/// What a cycle of a schedule is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum CycleModel {
    /// A weight of the published machine model.
    Slot,
    /// A clock: hardware units are busy by the work of the tile, and an op in registers holds its agent for as long.
    #[default]
    Real,
}

/// Order of the selector's rules.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum SelectorKind {
    /// Asynchronous ops, TMA or MMA first: a bare GEMM body is pipelined although it is short.
    #[default]
    Auto,
    /// The op count first, as spec page 3 lists the rules.
    Spec,
}

/// How candidate initiation intervals are visited.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum IiSearch {
    /// Linear up to 256, galloping and then downwards above.
    #[default]
    Auto,
    /// One by one.
    Linear,
    /// Galloping from the bound, then downwards.
    Gallop,
}

/// How the four arms of a ready group share the work.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum ArmPolicy {
    /// The first arm that places every ready op of the group is the last one asked.
    #[default]
    FirstSuccess,
    /// Every arm proposes one start, the cheapest is taken.
    LowestCost,
    /// The permute arm alone; a group it cannot place ends the attempt.
    Permute,
}

/// How the admission horizon of `max_depth` (admission by depth, G2) moves.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum G2Horizon {
    /// 1, and one more per pass of the retry arm up to the largest depth of the group.
    #[default]
    Growing,
    /// Always 1: ops of a larger `max_depth` are never admitted by the arms.
    Fixed,
}

/// A rung of the published ladder, in the order they are tried.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rung {
    /// Iterative modulo scheduling with eviction.
    RauRefinement,
    /// The retry arm over all ops at the largest horizon.
    DeepestRetry,
    /// The group driver with its four arms.
    InitialPlacement,
    /// The cheapest start of all ready ops, again and again.
    CostBasedPlacement,
}

impl Rung {
    /// All of them.
    pub const ALL: [Rung; 4] =
        [Rung::RauRefinement, Rung::DeepestRetry, Rung::InitialPlacement, Rung::CostBasedPlacement];

    /// Its published name.
    pub fn name(self) -> &'static str {
        match self {
            Rung::RauRefinement => "rau_refinement",
            Rung::DeepestRetry => "deepest_retry",
            Rung::InitialPlacement => "initial_placement",
            Rung::CostBasedPlacement => "cost_based_placement",
        }
    }
}

/// A set of rungs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rungs(u8);

impl Rungs {
    /// All of them.
    pub const ALL: Rungs = Rungs(0xf);

    /// Some of them.
    pub fn only(rungs: &[Rung]) -> Rungs {
        Rungs(rungs.iter().fold(0, |set, &r| set | 1 << r as u8))
    }

    /// Whether a rung is in.
    pub fn has(self, rung: Rung) -> bool {
        self.0 >> rung as u8 & 1 != 0
    }
}

/// A search that modulo scheduling asks below what iterative modulo scheduling found.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Exact search over orders: finds, refutes, or leaves open.
    Orders,
    /// Ops leave and come back until none contradicts another; proves nothing.
    Ejection,
    /// All ops have starts, fewer and fewer of which contradict one another; proves nothing.
    Tabu,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 3] = [Engine::Orders, Engine::Ejection, Engine::Tabu];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Orders => "orders",
            Engine::Ejection => "ejection",
            Engine::Tabu => "tabu",
        }
    }
}

/// A set of searches.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Engines(u8);

impl Engines {
    /// All of them.
    pub const ALL: Engines = Engines(0x7);

    /// Some of them.
    pub fn only(engines: &[Engine]) -> Engines {
        Engines(engines.iter().fold(0, |set, &e| set | 1 << e as u8))
    }

    /// Whether a search is in.
    pub fn has(self, engine: Engine) -> bool {
        self.0 >> engine as u8 & 1 != 0
    }
}

/// Largest problems accepted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ops per region (option `limits.max-ops`).
    pub max_ops: usize,
    /// Edges per region, those of forced-serial groups included (option `limits.max-edges`).
    pub max_edges: usize,
    /// Reservations of slots and pools per op (option `limits.max-uses`).
    pub max_uses: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_ops: 100_000, max_edges: 1_000_000, max_uses: 1_024 }
    }
}

/// Options of [`crate::Scheduler`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleOptions {
    /// Generator (`scheduler`, default `auto`).
    pub scheduler: SchedulerChoice,
    /// What a cycle is, for problems built from IR (`published.cycle-model`, default `real`).
    pub cycle_model: CycleModel,
    /// Selector rules (`published.selector`, default `auto`).
    pub selector: SelectorKind,
    /// Regions with fewer ops that count are small (`published.serial-threshold`, default 8).
    pub serial_threshold: u32,
    /// Largest initiation interval tried (`search.ii-cap`, default: that of the serial schedule).
    pub ii_cap: Option<u32>,
    /// Visiting order of initiation intervals (`search.ii-search`, default `auto`).
    pub ii_search: IiSearch,
    /// Placements per op in one attempt at one initiation interval (`search.budget-ratio`, default 16).
    pub budget_ratio: u32,
    /// Placements in all attempts of one region together, each counted once more per 256 rows of the reservation table
    /// (`search.step-limit`, default 4 000 000).
    pub step_limit: u64,
    /// Stages the whole iteration must fit in (`max-stages`, default unlimited).
    pub max_stages: Option<u32>,
    /// Makes failure an error instead of the serial schedule (`require-pipelining`, default off).
    pub require_pipelining: bool,
    /// Rows of the reservation table before they are quantised (`published.rrt-size-threshold`, default 4096), four times as many where cycles
    /// are clocks; 0: as many as memory allows, 16 million cells.
    pub rrt_size_threshold: u32,
    /// Largest problems accepted (`limits.max-ops`, `limits.max-edges`).
    pub limits: Limits,
    /// Choice among the arms (`published.arm-policy`, default `first-success`).
    pub arm_policy: ArmPolicy,
    /// Admission by depth in the arms (`published.g2-horizon`, default `growing`).
    pub g2_horizon: G2Horizon,
    /// Orders the permute arm looks at each time (`search.permute-budget`, default 24).
    pub permute_budget: u32,
    /// Starts that the arms of the published ladder look at in one region (`search.arm-steps`, default 60 000; 0: no arms).
    pub arm_steps: u64,
    /// Registers per thread that starts above pay a surcharge for (`published.spill-budget`, default unlimited).
    pub spill_budget: Option<u32>,
    /// Refuses to pipeline what needs more cycles than the first number from the begin of an iteration to the end of an op,
    /// than the second to that of one that reaches across the cluster (`published.latency-ceilings`, default: neither).
    pub latency_ceilings: Option<(u32, u32)>,
    /// Rungs of the published ladder that are tried; for experiments.
    pub rungs: Rungs,
    /// Searches of modulo scheduling that are asked; for experiments.
    pub engines: Engines,
    /// Steps of exact mode in one region: conflicts of the solver, and one more per 4096 literals it sets
    /// (`search.optimal-steps`, default 200 000; only with `scheduler = optimal`).
    pub optimal_steps: u64,
    /// Placements spent on shorter lifetimes at the interval found (`search.lifetime-steps`, default 4 000; 0: compaction
    /// only).
    pub lifetime_steps: u64,
    /// Steps of local and exact search for one region, where the heuristics stay above a proven bound (`search.exact-steps`,
    /// default 8 000 000; 0: neither). Above 64 ops it is 64 / ops of them, or (88 / ops)² where that is less.
    pub exact_steps: u64,
    /// Steps of all searches of one function together, its loops and the rounds of refinement (`search.steps`, default
    /// 1 000 000; 0: none). A problem that is scheduled by itself has the budgets above alone. See [`crate::budget`].
    pub search_steps: u64,
    /// Seed of sampled priorities (`search.seed`, default 0).
    pub seed: u64,
}

/// Rows of a reservation table in clocks for one in published slots, of which [`ScheduleOptions::rrt_size_threshold`] speaks. Lost with 1: loops of
/// more than 4096 clocks have rows of several, and attention with a head of 128 on Hopper takes 1.3 times as long to compile.
const CLOCKS_A_SLOT: u32 = 4;

impl ScheduleOptions {
    /// Rows of the reservation table before they are quantised; 0: as many as memory allows.
    pub(crate) fn table_rows(&self) -> u32 {
        match self.cycle_model {
            CycleModel::Slot => self.rrt_size_threshold,
            CycleModel::Real => self.rrt_size_threshold.saturating_mul(CLOCKS_A_SLOT),
        }
    }
}

impl Default for ScheduleOptions {
    fn default() -> Self {
        ScheduleOptions {
            scheduler: SchedulerChoice::Auto,
            cycle_model: CycleModel::Real,
            selector: SelectorKind::Auto,
            serial_threshold: 8,
            ii_cap: None,
            ii_search: IiSearch::Auto,
            budget_ratio: 16,
            step_limit: 4_000_000,
            max_stages: None,
            require_pipelining: false,
            rrt_size_threshold: 4096,
            limits: Limits::default(),
            arm_policy: ArmPolicy::FirstSuccess,
            g2_horizon: G2Horizon::Growing,
            permute_budget: 24,
            arm_steps: 60_000,
            spill_budget: None,
            latency_ceilings: None,
            rungs: Rungs::ALL,
            engines: Engines::ALL,
            lifetime_steps: 4_000,
            exact_steps: 8_000_000,
            optimal_steps: 200_000,
            search_steps: 1_000_000,
            seed: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_pinned() {
        let o = ScheduleOptions::default();
        assert_eq!((o.scheduler, o.selector, o.ii_search, o.cycle_model), Default::default());
        assert_eq!((o.serial_threshold, o.budget_ratio, o.step_limit), (8, 16, 4_000_000));
        assert_eq!((o.ii_cap, o.max_stages, o.require_pipelining, o.seed), (None, None, false, 0));
        assert_eq!((o.arm_policy, o.g2_horizon), Default::default());
        assert_eq!((o.permute_budget, o.arm_steps, o.spill_budget), (24, 60_000, None));
        assert_eq!((o.latency_ceilings, o.rungs, o.lifetime_steps), (None, Rungs::ALL, 4_000));
        assert_eq!(o.engines, Engines::ALL);
        assert_eq!((o.exact_steps, o.optimal_steps, o.search_steps), (8_000_000, 200_000, 1_000_000));
        assert_eq!((o.rrt_size_threshold, o.limits), (4096, Limits::default()));
        assert_eq!((o.limits.max_ops, o.limits.max_edges, o.limits.max_uses), (100_000, 1_000_000, 1_024));
    }
}
