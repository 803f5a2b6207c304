//! What is known of a function, and of which state of it.
//!
//! In: analyses, published with the function they describe. Out: the same, as long as the function has not changed since.
//! One slot per kind of analysis, each with the [`Stamp`] of the function it was published for. A change makes all of
//! them stale; a pass that knows better says which ones it preserves ([`AnalysisManager::preserve`]).
//!
//! Guarantee: no analysis of another function or of an older state is handed out; asking for one is an error that says
//! what became of it. Cost: a comparison per look-up.

use crate::agents::AgentPlan;
use crate::buffers::BufferAssignment;
use crate::constraints::ConstraintMap;
use crate::ddg::ScheduleAnalysis;
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::{Function, Stamp};
use std::fmt;

/// The kinds of analysis.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AnalysisKind {
    /// [`ConstraintMap`].
    Constraints,
    /// [`AgentPlan`].
    AgentPlan,
    /// [`ScheduleAnalysis`].
    Schedule,
    /// [`BufferAssignment`].
    Buffers,
}

impl AnalysisKind {
    /// All kinds.
    pub const ALL: [AnalysisKind; 4] =
        [AnalysisKind::Constraints, AnalysisKind::AgentPlan, AnalysisKind::Schedule, AnalysisKind::Buffers];

    /// The name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            AnalysisKind::Constraints => "ConstraintMap",
            AnalysisKind::AgentPlan => "AgentPlan",
            AnalysisKind::Schedule => "ScheduleAnalysis",
            AnalysisKind::Buffers => "BufferAssignment",
        }
    }
}

impl fmt::Display for AnalysisKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One kind of analysis: an analysis, or what became of it.
#[derive(Clone)]
pub struct Slot<A> {
    held: Option<(A, Stamp)>,
    /// The pass that dropped it.
    dropped_by: Option<&'static str>,
}

impl<A> Default for Slot<A> {
    fn default() -> Slot<A> {
        Slot { held: None, dropped_by: None }
    }
}

impl<A> Slot<A> {
    fn drop_by(&mut self, pass: &'static str) {
        if self.held.take().is_some() {
            self.dropped_by = Some(pass);
        }
    }

    /// Keeps an analysis of the state `before` for the state `after`; drops any other.
    fn settle(&mut self, pass: &'static str, keep: bool, before: &Stamp, after: &Stamp) {
        match &mut self.held {
            Some((_, stamp)) if stamp == after => {}
            Some((_, stamp)) if keep && stamp == before => *stamp = after.clone(),
            _ => self.drop_by(pass),
        }
    }
}

mod sealed {
    /// Not for other crates.
    pub trait Sealed: Sized {
        fn slot(m: &super::AnalysisManager) -> &super::Slot<Self>;
        fn slot_mut(m: &mut super::AnalysisManager) -> &mut super::Slot<Self>;
    }
}

/// An analysis that an [`AnalysisManager`] has a slot for.
pub trait Analysis: sealed::Sealed {
    /// Its kind.
    const KIND: AnalysisKind;
}

macro_rules! slots {
    ($($field:ident: $ty:ty = $kind:ident;)*) => {
        /// The analyses of one function.
        #[derive(Clone, Default)]
        pub struct AnalysisManager {
            $($field: Slot<$ty>,)*
        }

        $(impl sealed::Sealed for $ty {
            fn slot(m: &AnalysisManager) -> &Slot<Self> {
                &m.$field
            }
            fn slot_mut(m: &mut AnalysisManager) -> &mut Slot<Self> {
                &mut m.$field
            }
        }

        impl Analysis for $ty {
            const KIND: AnalysisKind = AnalysisKind::$kind;
        })*

        impl AnalysisManager {
            /// Drops an analysis, whatever it describes; `pass` is named to whoever asks for it.
            pub fn invalidate(&mut self, kind: AnalysisKind, pass: &'static str) {
                match kind {
                    $(AnalysisKind::$kind => self.$field.drop_by(pass),)*
                }
            }

            /// After a pass took a function from the state `before` to its present one: the analyses of the kinds it
            /// preserves count for the present state, all others are dropped. One published since stays.
            pub fn preserve(
                &mut self,
                pass: &'static str,
                before: &Stamp,
                func: &Function,
                preserved: &[AnalysisKind],
            ) {
                let after = func.stamp();
                $(self.$field.settle(pass, preserved.contains(&AnalysisKind::$kind), before, &after);)*
            }
        }
    };
}
slots! {
    constraints: ConstraintMap = Constraints;
    plan: AgentPlan = AgentPlan;
    schedule: ScheduleAnalysis = Schedule;
    buffers: BufferAssignment = Buffers;
}

impl AnalysisManager {
    /// A manager that knows nothing.
    pub fn new() -> AnalysisManager {
        AnalysisManager::default()
    }

    /// Publishes what is known of a function as it is now, in place of an earlier analysis of the kind.
    pub fn publish<A: Analysis>(&mut self, func: &Function, analysis: A) {
        *A::slot_mut(self) = Slot { held: Some((analysis, func.stamp())), dropped_by: None };
    }

    /// The analysis of a function in its present state.
    ///
    /// # Errors
    /// `E1008` where there is none, with the pass that dropped it; `E1009` where there is one of another function or of
    /// an earlier state.
    pub fn get<A: Analysis>(&self, func: &Function) -> CodegenResult<&A> {
        let slot = A::slot(self);
        let name = A::KIND.name();
        let Some((analysis, stamp)) = &slot.held else {
            let text = format!("there is no {name} of @{}", func.name);
            let error = CodegenError::new(Code::E1008, func.loc, text);
            return Err(match slot.dropped_by {
                Some(pass) => error.note(Loc::NONE, format!("`{pass}` does not preserve it")),
                None => error,
            });
        };
        let now = func.stamp();
        if *stamp == now {
            return Ok(analysis);
        }
        let text = format!("the {name} is stale: @{} is not what it describes", func.name);
        let error = CodegenError::new(Code::E1009, func.loc, text);
        Err(if !stamp.same_function(&now) {
            error.note(Loc::NONE, "it describes another function")
        } else if stamp.changes() == now.changes() {
            error.note(Loc::NONE, "attributes of the kernel changed since")
        } else {
            let changes = now.changes().abs_diff(stamp.changes());
            error.note(Loc::NONE, format!("changes since it was published: {changes}"))
        })
    }

    /// Takes an analysis out, whatever it describes.
    pub fn take<A: Analysis>(&mut self) -> Option<A> {
        A::slot_mut(self).held.take().map(|(analysis, _)| analysis)
    }

    /// Whether there is an analysis of the function in its present state.
    pub fn has<A: Analysis>(&self, func: &Function) -> bool {
        A::slot(self).held.as_ref().is_some_and(|(_, stamp)| *stamp == func.stamp())
    }
}
