//! Options of the scheduler, each with its default. One immutable value, shared by all calls.

/// Which generator runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum SchedulerChoice {
    /// The selector decides (`auto`); a bare graph takes the cost-based generator.
    #[default]
    Auto,
    /// Always the serial generator.
    Serial,
    /// Always the cost-based generator.
    CostBased,
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

/// Largest problems accepted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ops per region (option `max-ops`).
    pub max_ops: usize,
    /// Edges per region, those of forced-serial groups included (option `max-edges`).
    pub max_edges: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_ops: 100_000, max_edges: 1_000_000 }
    }
}

/// Options of [`super::Scheduler`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleOptions {
    /// Generator (`scheduler`, default `auto`).
    pub scheduler: SchedulerChoice,
    /// Selector rules (`selector`, default `auto`).
    pub selector: SelectorKind,
    /// Regions with fewer ops that count are small (`serial-threshold`, default 8).
    pub serial_threshold: u32,
    /// Largest initiation interval tried (`ii-cap`, default: that of the serial schedule).
    pub ii_cap: Option<u32>,
    /// Visiting order of initiation intervals (`ii-search`, default `auto`).
    pub ii_search: IiSearch,
    /// Placements per op in one attempt at one initiation interval (`budget-ratio`, default 16).
    pub budget_ratio: u32,
    /// Attempts with different priorities at one initiation interval (`attempts`, default 4).
    pub attempts: u32,
    /// Placements in all attempts of one region together, each counted once more per 256 rows of the reservation table
    /// (`step-limit`, default 4 000 000).
    pub step_limit: u64,
    /// Stages the whole iteration must fit in (`max-stages`, default unlimited).
    pub max_stages: Option<u32>,
    /// Makes failure an error instead of the serial schedule (`require-pipelining`, default off).
    pub require_pipelining: bool,
    /// Rows of the reservation table before they are quantised (`rrt-size-threshold`, default 4096; 0: as many as
    /// memory allows, 16 million cells).
    pub rrt_size_threshold: u32,
    /// Largest problems accepted (`max-ops`, `max-edges`).
    pub limits: Limits,
    /// Steps of exact search for one region, where the heuristics stay above a proven bound (`exact-steps`, default
    /// 1 000 000; 0: no exact search).
    pub exact_steps: u64,
    /// Seed of sampled priorities (`seed`, default 0).
    pub seed: u64,
}

impl Default for ScheduleOptions {
    fn default() -> Self {
        ScheduleOptions {
            scheduler: SchedulerChoice::Auto,
            selector: SelectorKind::Auto,
            serial_threshold: 8,
            ii_cap: None,
            ii_search: IiSearch::Auto,
            budget_ratio: 16,
            attempts: 4,
            step_limit: 4_000_000,
            max_stages: None,
            require_pipelining: false,
            rrt_size_threshold: 4096,
            limits: Limits::default(),
            exact_steps: 1_000_000,
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
        assert_eq!((o.scheduler, o.selector, o.ii_search), Default::default());
        assert_eq!((o.serial_threshold, o.budget_ratio, o.attempts, o.step_limit), (8, 16, 4, 4_000_000));
        assert_eq!((o.ii_cap, o.max_stages, o.require_pipelining, o.seed), (None, None, false, 0));
        assert_eq!((o.rrt_size_threshold, o.limits.max_ops, o.limits.max_edges), (4096, 100_000, 1_000_000));
    }
}
