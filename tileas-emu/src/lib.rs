//! PTX emulator on the CPU: an oracle for generated kernels.
//!
//! In: the text of a PTX module, a launch, global memory. Out: global memory changed, or the first
//! fault: what is wrong, the PTX line, the warp, and the events that led there. Asynchronous work
//! (TMA, tensor cores, bulk stores) completes at any moment the machine may choose, picked by a mode
//! and a seed; detectors find races, missing fences, undefined reads and misused barriers even where
//! the chosen timing hides them.
//!
//! ```
//! use tileas_emu::{Arg, Launch, Machine, Memory, NoTrace, Program, RunOptions};
//! let text = ".version 8.6
//!     .target sm_100a
//!     .address_size 64
//!     .visible .entry k(.param .u64 p) {
//!         .reg .b64 %rd<2>; .reg .b32 %r<1>;
//!         ld.param.u64 %rd0, [p]; mov.u32 %r0, %tid.x;
//!         mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r0; ret;
//!     }";
//! let program = Program::parse(text).unwrap();
//! let mut memory = Memory::new();
//! let out = memory.alloc(vec![0; 128]);
//! let args = vec![Arg::u64(memory.address(out))];
//! let launch = Launch { grid: [1, 1, 1], block: [32, 1, 1], args, ..Launch::default() };
//! Machine::run(&program, &launch, &mut memory, &RunOptions::default(), &mut NoTrace).unwrap();
//! assert_eq!(memory.bytes(out)[4 * 9], 9);
//! ```
//!
//! Layers: [`parse`] reads text, [`decode`] makes each instruction a closure (one table row and one
//! function per form), [`exec`], [`sync`] and [`async_ops`] hold these functions, [`mem`] the memories,
//! [`detect`] the race detectors, [`stats`] counts of what is executed, [`sched`] the choice of the next step and the
//! exhaustive search.
//!
//! The crate shares no code and no tables with the compiler. What the emulator does not know is an
//! error with its place, never a guess. Left out: pairs of CTAs that multiply together (`cta_group::2`), time, caches, weak
//! memory other than what the detectors' order requires.

pub mod async_ops;
#[cfg(any(test, feature = "arbitrary"))]
pub mod check;
pub mod decode;
pub mod detect;
pub mod diag;
pub mod exec;
pub mod host;
pub mod layout;
pub mod mem;
pub mod num;
pub mod parse;
pub mod sched;
pub mod stats;
pub mod sync;
pub mod trace;

pub use decode::Program;
pub use detect::Detectors;
pub use diag::Diagnostic;
pub use layout::Swizzle;
pub use layout::tma_map::{MapDesc, OobFill, TmaType};
pub use mem::global::{BufferId, Memory};
pub use sched::explore::{Explored, Limits, explore};
pub use sched::launch::{Arg, Launch, Mode, RunOptions};
pub use sched::policy::Machine;
pub use sched::report::{Fault, Report, Site};
pub use stats::Stats;
pub use trace::{ChromeTrace, Lane, NoTrace, Trace, TraceEvent};
