//! Which generator schedules a region: one ordered predicate over a small summary.
//!
//! In: [`RegionSummary`] (a by-product of building the region) and the options. Out: a [`Generator`]. The literal rule
//! order of spec page 3 is `selector = spec`; the default asks for asynchronous work before it counts ops, because a
//! bare GEMM body has three, and takes small reads of global memory for such work: nobody but the schedule reads them
//! an iteration ahead, and a recurrence over time steps runs in few CTAs.

use crate::entities::Place;
use crate::error::{Code, Diagnostic, Result};
use crate::options::{ScheduleOptions, SchedulerChoice, SelectorKind};
use crate::problem::RegionSummary;
use crate::schedule::Generator;

/// The generator for a region; `None` stands for a bare graph, which is pipelined unless forced. `force_serial_execution` on
/// the loop wins over every value of the option `scheduler`.
pub fn select(summary: Option<&RegionSummary>, options: &ScheduleOptions) -> Generator {
    if summary.is_some_and(|s| s.force_serial) {
        return Generator::Serial;
    }
    match options.scheduler {
        SchedulerChoice::Serial => return Generator::Serial,
        SchedulerChoice::CostBased => return Generator::CostBased,
        SchedulerChoice::Optimal => return Generator::Modulo,
        SchedulerChoice::Auto => {}
    }
    let Some(s) = summary else { return Generator::Modulo };
    let heavy = s.is_asynchronous();
    let small = s.op_count < options.serial_threshold;
    let serial = match options.selector {
        SelectorKind::Spec => small || !heavy,
        // A region with nothing to wait for is serial whether or not it is small.
        SelectorKind::Auto => !heavy && s.reads_ahead == 0,
    };
    if serial { Generator::Serial } else { Generator::Modulo }
}

impl SchedulerChoice {
    /// Refuses exact mode where it was not built in.
    ///
    /// # Errors
    /// `E0409`, naming the feature.
    pub fn check(self) -> Result<()> {
        if self != SchedulerChoice::Optimal || cfg!(feature = "optimal") {
            return Ok(());
        }
        let text = "`scheduler = optimal` is not part of this build: enable the feature `optimal` \
                    (`cargo build --features optimal`), or leave `scheduler = auto`";
        Err(Diagnostic::new(Code::E0409, Place::Whole, text))
    }

    /// Reads the word of the option `scheduler`. An unknown word selects the cost-based generator, with a warning.
    pub fn parse(word: &str) -> (SchedulerChoice, Option<Diagnostic>) {
        match word {
            "auto" => (SchedulerChoice::Auto, None),
            "serial" | "Serial" => (SchedulerChoice::Serial, None),
            "cost" | "cost-based" | "CostBased" => (SchedulerChoice::CostBased, None),
            "optimal" => (SchedulerChoice::Optimal, None),
            other => {
                let text = format!(
                    "unknown scheduler `{other}`, using `cost` (there are auto, serial, cost, optimal)"
                );
                (SchedulerChoice::CostBased, Some(Diagnostic::new(Code::W0401, Place::Whole, text)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_in_order() {
        let auto = ScheduleOptions::default();
        let spec = ScheduleOptions { selector: SelectorKind::Spec, ..ScheduleOptions::default() };
        let gemm = RegionSummary { op_count: 3, has_tma: true, has_mma: true, ..RegionSummary::default() };
        let forced = RegionSummary { force_serial: true, op_count: 20, ..gemm };
        let scalar = RegionSummary { op_count: 20, ..RegionSummary::default() };
        let reads = RegionSummary { reads_ahead: 4, ..scalar };
        let eight = RegionSummary { op_count: 8, has_async_pipeline: true, ..RegionSummary::default() };
        let cases = [
            (Some(&gemm), Generator::Modulo, Generator::Serial),
            (Some(&forced), Generator::Serial, Generator::Serial),
            (Some(&scalar), Generator::Serial, Generator::Serial),
            (Some(&eight), Generator::Modulo, Generator::Modulo),
            (Some(&reads), Generator::Modulo, Generator::Serial),
            (None, Generator::Modulo, Generator::Modulo),
        ];
        for (i, (s, a, b)) in cases.into_iter().enumerate() {
            assert_eq!((select(s, &auto), select(s, &spec)), (a, b), "case {i}");
        }
        let asked = [
            (SchedulerChoice::CostBased, Generator::CostBased),
            (SchedulerChoice::Optimal, Generator::Modulo),
        ];
        for (scheduler, generator) in asked {
            let options = ScheduleOptions { scheduler, ..ScheduleOptions::default() };
            assert_eq!(select(Some(&gemm), &options), generator);
            assert_eq!(select(Some(&forced), &options), Generator::Serial);
        }
    }

    #[test]
    fn words() {
        for w in ["auto", "serial", "Serial", "cost", "cost-based", "CostBased", "optimal"] {
            assert_eq!(SchedulerChoice::parse(w).1, None, "{w}");
        }
        let (choice, warning) = SchedulerChoice::parse("fast");
        assert_eq!(choice, SchedulerChoice::CostBased);
        assert_eq!(warning.map(|w| w.code), Some(Code::W0401));
    }
}
