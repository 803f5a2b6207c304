//! What is known of a function, and of which state of it.
//!
//! In: analyses, published with the function they describe. Out: the same, as long as the function has not changed since.
//! One slot per kind of analysis, each with the [`Stamp`] of the function it was published for. A change makes all of
//! them stale.
//!
//! Guarantee: no analysis of another function or of an older state is handed out; asking for one is an error that says
//! what became of it. Cost: a comparison per look-up.

use crate::agents::AgentPlan;
use crate::buffers::BufferAssignment;
use crate::ddg::ScheduleAnalysis;
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::{Function, Stamp};

/// One kind of analysis, with the state it describes.
pub type Slot<A> = Option<(A, Stamp)>;

mod sealed {
    /// Not for other crates.
    pub trait Sealed: Sized {
        fn slot(m: &super::AnalysisManager) -> &super::Slot<Self>;
        fn slot_mut(m: &mut super::AnalysisManager) -> &mut super::Slot<Self>;
    }
}

/// An analysis that an [`AnalysisManager`] has a slot for.
pub trait Analysis: sealed::Sealed {
    /// The name of the type.
    const NAME: &'static str;
}

macro_rules! slots {
    ($($field:ident: $ty:ident;)*) => {
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
            const NAME: &'static str = stringify!($ty);
        })*
    };
}
slots! {
    plan: AgentPlan;
    schedule: ScheduleAnalysis;
    buffers: BufferAssignment;
}

impl AnalysisManager {
    /// A manager that knows nothing.
    pub fn new() -> AnalysisManager {
        AnalysisManager::default()
    }

    /// Publishes what is known of a function as it is now, in place of an earlier analysis of the kind.
    pub fn publish<A: Analysis>(&mut self, func: &Function, analysis: A) {
        *A::slot_mut(self) = Some((analysis, func.stamp()));
    }

    /// The analysis of a function in its present state.
    ///
    /// # Errors
    /// `E1008` where there is none; `E1009` where there is one of another function or of
    /// an earlier state.
    pub fn get<A: Analysis>(&self, func: &Function) -> CodegenResult<&A> {
        let name = A::NAME;
        let Some((analysis, stamp)) = A::slot(self) else {
            let text = format!("there is no {name} of @{}", func.name);
            return Err(CodegenError::new(Code::E1008, func.loc, text));
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
        A::slot_mut(self).take().map(|(analysis, _)| analysis)
    }

    /// Whether there is an analysis of the function in its present state.
    pub fn has<A: Analysis>(&self, func: &Function) -> bool {
        A::slot(self).as_ref().is_some_and(|(_, stamp)| *stamp == func.stamp())
    }
}
