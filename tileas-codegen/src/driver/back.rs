//! From the materialised function to PTX: rule R5, thread-level code, clean-ups, register budgets, text.
//!
//! In: a materialised function and the steps to take, in a legal order. Out: thread-level code, launch metadata and PTX in
//! [`KernelState`]. What the clean-ups and the register allocator find out about liveness serves the verifier and the
//! text behind them, as long as the code is as they left it. Cost: the sum of the steps.

use super::result::KernelState;
use super::{Context, Job};
use crate::error::{Code, CodegenError, Errors, Loc};
use crate::ir::{Function, Opcode, keys};
use crate::isa::TargetIsa;
use crate::lower::{Lowered, lower_in};
use crate::materialize::verify::verify_materialized_in;
use crate::nvvm::{self, verify::Checks};
use crate::pass::Step;
use crate::ptx::{FunctionInfo, PtxInfo, PtxOptions};
use crate::regalloc::{RegallocOptions, SharedRoom};
use crate::settings::Settings;
use cranelift_entity::SecondaryMap;

/// Where liveness of the code as it is can be had.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Live {
    Unknown,
    /// Noted on the way by the clean-ups: registers may seem to live longer than they do.
    OfCleanup,
    OfAllocator,
}

impl Context {
    /// The steps from the materialised function on. `checks`: how closely thread-level code is looked at.
    pub(super) fn back(
        &mut self,
        func: &Function,
        checks: Checks,
        job: &Job<'_>,
        state: &mut KernelState,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<Option<FunctionInfo>, Errors> {
        let &Job { isa, settings, back, ref kernels, .. } = job;
        let (mut lowered, mut info): (Option<Lowered>, _) = (None, None);
        let mut live = Live::Unknown;
        for step in back {
            let Some(materialized) = &state.materialized else {
                let text = format!("kernel @{} is not materialised, no pass before does that", func.name);
                return Err(CodegenError::new(Code::E1004, func.loc, text).into());
            };
            match (step, &mut lowered) {
                (Step::Prove, _) => {
                    _ = verify_materialized_in(materialized, isa, settings.smem_limit(isa), &mut self.sync)?
                }
                (Step::Lower, _) => {
                    let most = settings.max_instructions;
                    self.lower.numbered = self.numbered.is_some();
                    lowered = Some(lower_in(materialized, kernels, isa, most, &mut self.lower)?);
                    live = Live::Unknown;
                }
                (Step::Cleanup, Some(code)) => {
                    for f in &mut code.module.functions {
                        nvvm::passes::cleanup(f, &mut self.cleanup);
                    }
                    live = self.noted(code, checks);
                }
                (Step::Registers, Some(code)) => {
                    live = self.registers(code, live, materialized, isa, settings, warnings);
                }
                (Step::Ptx, Some(code)) => {
                    if settings.verify_passes {
                        let mut found = Vec::new();
                        nvvm::passes::index::check_indices(
                            &code.module,
                            Some(code.metadata.dynamic_smem),
                            &mut found,
                        );
                        Errors::check(found)?;
                    }
                    // Text grows in memory that is kept; what is handed out has its size.
                    let mut text = std::mem::take(&mut self.text);
                    text.clear();
                    let emitted = self.emit(checks, &code.module, live, settings, warnings, &mut text);
                    state.ptx.clone_from(&text);
                    self.text = text;
                    let emitted = emitted?;
                    code.metadata.ptx_version = emitted.version;
                    info = emitted.functions.into_iter().next();
                }
                // A pipeline has `lower` before these.
                _ => {}
            }
        }
        if let Some(Lowered { module, metadata, .. }) = lowered {
            (state.nvvm, state.metadata) = (Some(module), Some(metadata));
        }
        Ok(info)
    }

    /// Whether the clean-ups know liveness. Code that is looked at closely has its own found.
    fn noted(&mut self, lowered: &Lowered, checks: Checks) -> Live {
        let [func] = &lowered.module.functions[..] else { return Live::Unknown };
        if checks != Checks::Input && !cfg!(debug_assertions) {
            return Live::Unknown;
        }
        let known = self.cleanup.liveness(func);
        debug_assert!(known.is_none_or(|l| l.covers(func)), "the clean-ups' notes say less than there is");
        if known.is_some() && checks == Checks::Input { Live::OfCleanup } else { Live::Unknown }
    }

    /// Keeps register budgets, or warns about those that do not hold. Nearly all functions keep them as they are, which
    /// the clean-ups' liveness shows: what it says does not fit may fit, never the other way round.
    fn registers(
        &mut self,
        lowered: &mut Lowered,
        live: Live,
        materialized: &Function,
        isa: &dyn TargetIsa,
        settings: &Settings,
        warnings: &mut Vec<CodegenError>,
    ) -> Live {
        let Lowered { module, metadata } = lowered;
        let machine = isa.machine();
        let at = metadata.dynamic_smem.next_multiple_of(16);
        let sym = module.symbols.iter().find(|(_, s)| s.kind == nvvm::SymKind::DynamicShared);
        for func in &mut module.functions {
            let mut options = register_options(func, isa, settings);
            if live == Live::OfCleanup && self.allocator.fits(func, self.cleanup.solved(), &options) {
                return live;
            }
            let threads = func.launch.reqntid.map_or(machine.limits.max_threads, |d| d[0]);
            let bytes = machine.limits.smem_bytes.saturating_sub(at);
            options.shared = sym.map(|(sym, _)| SharedRoom { sym, at, bytes, threads });
            for report in self.allocator.run(func, &options) {
                warnings.extend(report.warning(func).map(|w| match overlaps(materialized, &report.name) {
                    true => w.note(Loc::NONE, OVERLAPS),
                    false => w,
                }));
                if let Some(Ok(stats)) = report.outcome
                    && stats.shared_bytes > 0
                {
                    metadata.dynamic_smem = metadata.dynamic_smem.max(at + stats.shared_bytes);
                }
            }
        }
        Live::OfAllocator
    }

    /// Verifies and prints a module.
    fn emit(
        &mut self,
        checks: Checks,
        module: &nvvm::Module,
        live: Live,
        settings: &Settings,
        warnings: &mut Vec<CodegenError>,
        out: &mut String,
    ) -> Result<PtxInfo, Errors> {
        let known = match live {
            Live::Unknown => None,
            Live::OfCleanup => Some(self.cleanup.solved()),
            Live::OfAllocator => self.allocator.liveness(),
        };
        let (mut found, version) = (Vec::new(), settings.max_ptx_version);
        let Some(verified) = self.verifier.verify_for(checks, module, version, known, &mut found) else {
            found.retain(|e| !e.code.is_warning());
            return Err(Errors::of(found));
        };
        warnings.extend(found);
        let known = known.unwrap_or(self.verifier.liveness());
        let options = PtxOptions { comments: settings.ptx_comments, min_version: settings.min_ptx_version };
        Ok(self.emitter.emit_knowing(
            verified,
            Some(known),
            self.numbered.as_ref().map(|n| &n.lines),
            &options,
            out,
        ))
    }

    /// All kernels in one module. Every kernel was verified alone; names are unique by `E0226`.
    pub(super) fn combine(&mut self, kernels: &[KernelState], settings: &Settings) -> Result<String, Errors> {
        let mut modules = kernels.iter().filter_map(|k| k.nvvm.as_ref());
        let Some(mut all) = modules.next().cloned() else { return Ok(String::new()) };
        for module in modules {
            // Variables are numbered per module; those of one name are one.
            let mut numbers: SecondaryMap<nvvm::Sym, Option<nvvm::Sym>> = SecondaryMap::new();
            for (sym, data) in &module.symbols {
                let found = all.symbols.iter().find(|(_, other)| other.name == data.name);
                numbers[sym] = match found {
                    Some((there, other)) if other == data => Some(there),
                    None => Some(all.symbols.push(data.clone())),
                    Some(_) => {
                        let name = &data.name;
                        let text = format!("kernels of one PTX module disagree about the variable `{name}`");
                        return Err(CodegenError::new(Code::E1004, Loc::NONE, text).into());
                    }
                };
            }
            for func in &module.functions {
                let mut func = func.clone();
                func.renumber_symbols(|sym| numbers[sym].unwrap_or(sym));
                all.functions.push(func);
            }
        }
        let mut text = String::new();
        self.emit(Checks::Input, &all, Live::Unknown, settings, &mut Vec::new(), &mut text)?;
        Ok(text)
    }
}

/// What an agent over its budget is told that has several stages of a loop under way.
const OVERLAPS: &str =
    "its loop has several stages under way, whose values live at the same time: `max-stages` allows fewer";

/// Whether an agent of a materialised kernel, by its name in the code, runs several stages of a loop at a time.
fn overlaps(func: &Function, agent: &str) -> bool {
    let number = agent.strip_prefix("AGENT").and_then(|n| n.parse().ok());
    let switch = func.block_ops(func.entry()).find(|&o| func.opcode(o) == Opcode::AsyncPipelineAgentSwitch);
    let mut found = false;
    if let Some(body) = switch.zip(number).and_then(|(switch, n)| func.op_block_at(switch, n)) {
        func.walk(body, &mut |op| found |= func.inherent(op).get(keys::SKEW).is_some());
    }
    found
}

/// What the allocator is to keep of a function, shared memory to spill to apart; a limit of the settings becomes the function's.
fn register_options(func: &mut nvvm::Function, isa: &dyn TargetIsa, settings: &Settings) -> RegallocOptions {
    let machine = isa.machine();
    let threads = func.launch.reqntid.map_or(machine.limits.max_threads, |d| d[0]);
    let mut options = RegallocOptions {
        mode: settings.regalloc,
        cap: machine.entry_registers(threads),
        reserve: settings.register_reserve,
        shared: None,
    };
    if let Some(n) = settings.max_regs {
        // More than the threads of a CTA can have would keep it from being launched.
        options.cap = options.cap.min(n);
        // The two exclude each other.
        (func.launch.maxnreg, func.launch.minnctapersm) = (Some(options.cap), None);
    }
    options
}
