//! Which step comes next: fast, random, latest.

use super::core::Core;
use super::launch::{Launch, Mode, RunOptions, prepare};
use super::report::{Fault, Report};
use crate::async_ops::Pending;
use crate::decode::Program;
use crate::mem::global::Memory;
use crate::trace::Trace;

/// A small deterministic generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator of a seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.bits() % n as u64) as usize }
    }

    /// True with a probability in 1/1024.
    pub fn chance(&mut self, of1024: u32) -> bool {
        self.bits() % 1024 < u64::from(of1024)
    }
}

/// Runs launches.
#[derive(Debug)]
pub struct Machine;

impl Machine {
    /// Runs a launch to its end or its first fault. `memory` holds the results; after a fault its
    /// contents are what had been written until then.
    pub fn run(
        program: &Program,
        launch: &Launch,
        memory: &mut Memory,
        options: &RunOptions,
        trace: &mut dyn Trace,
    ) -> Result<Report, Fault> {
        let (kernel, mut env) = prepare(program, launch)?;
        memory.load_module(&program.globals);
        env.spurious = matches!(options.mode, Mode::Random(s) if s % 4 == 3);
        env.gather_aligned = options.gather_aligned;
        let mut core = Core::new(kernel, env, launch.dynamic_smem, memory, *options, trace)?;
        match options.mode {
            Mode::Fast => fast(&mut core)?,
            Mode::Random(seed) => random(&mut core, seed, false)?,
            Mode::Latest(seed) => random(&mut core, seed, true)?,
        }
        core.count();
        Ok(core.report)
    }
}

fn fast(core: &mut Core<'_>) -> Result<(), Fault> {
    let (mut pending, mut ready) = (Vec::new(), Vec::new());
    while core.refill() {
        let mut c = 0;
        let mut progress = false;
        while c < core.ctas.len() {
            loop {
                core.ctas[c].pending(&mut pending);
                let Some(&p) = pending.first() else { break };
                core.complete(c, p)?;
                progress = true;
            }
            Core::ready_list(&core.ctas[c], &mut ready);
            // One fragment per warp: the one that is furthest behind.
            let mut last = u32::MAX;
            let mut best: Vec<(u32, u32)> = Vec::with_capacity(ready.len());
            for &(w, f) in &ready {
                let pc =
                    |f: u32| core.ctas[c].warps[w as usize].as_ref().map_or(0, |x| x.frags[f as usize].pc);
                if w != last {
                    best.push((w, f));
                    last = w;
                } else if let Some(b) = best.last_mut()
                    && pc(f) < pc(b.1)
                {
                    *b = (w, f);
                }
            }
            for &(w, f) in &best {
                core.run(c, w, f, 4096, false)?;
                progress = true;
            }
            if !core.retire(c)? {
                c += 1;
            } else {
                progress = true;
            }
        }
        if !progress {
            return Err(core.deadlock(0));
        }
    }
    Ok(())
}

/// Everything by seed; with `latest`, asynchronous work only when no warp can go on.
fn random(core: &mut Core<'_>, seed: u64, latest: bool) -> Result<(), Fault> {
    let mut rng = Rng::new(seed ^ 0x7EA5);
    core.join = latest;
    core.elected = rng.below(32) as u32;
    if !latest {
        core.apart = ([100, 700, 0][(seed % 3) as usize], Rng::new(seed ^ 0x1A4E5));
    }
    let work = [10, 100, 512, 970][rng.below(4)];
    let starve = [0, 10, 50][rng.below(3)];
    let longest = [0, 3, 7, 10][rng.below(4)];
    // Warps that do not run for a while: CTA number, warp, turns.
    let mut frozen: Option<(u32, u32, u32)> = None;
    let (mut pending, mut ready): (Vec<Pending>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
    while core.refill() {
        let c = rng.below(core.ctas.len());
        core.ctas[c].pending(&mut pending);
        Core::ready_list(&core.ctas[c], &mut ready);
        let linear = core.ctas[c].linear;
        if let Some((n, w, turns)) = frozen {
            if ready.iter().any(|r| n != linear || r.0 != w) {
                ready.retain(|r| n != linear || r.0 != w);
            }
            frozen = if turns > 1 { Some((n, w, turns - 1)) } else { None };
        } else if rng.chance(starve) {
            frozen = Some((linear, rng.below(core.ctas[c].warps.len()) as u32, 1 + rng.below(300) as u32));
        }
        let complete = if latest { ready.is_empty() } else { ready.is_empty() || rng.chance(work) };
        if complete && !pending.is_empty() {
            let i = if latest {
                pending.len() - 1 - rng.below(2).min(pending.len() - 1)
            } else {
                rng.below(pending.len())
            };
            core.complete(c, pending[i])?;
            continue;
        }
        if !ready.is_empty() {
            let (w, f) = ready[rng.below(ready.len())];
            let budget = if latest { 4096 } else { 1 << rng.below(longest + 1) };
            core.run(c, w, f, budget, false)?;
            if core.ctas[c].warps[w as usize].as_ref().is_none_or(|x| x.live == 0) {
                core.retire(c)?;
            }
            continue;
        }
        if core.retire(c)? {
            continue;
        }
        // This CTA is stuck; so is the launch unless another one can go on.
        let stuck = (0..core.ctas.len()).all(|i| {
            core.ctas[i].pending(&mut pending);
            Core::ready_list(&core.ctas[i], &mut ready);
            pending.is_empty() && ready.is_empty()
        });
        if stuck {
            return Err(core.deadlock(c));
        }
    }
    Ok(())
}
