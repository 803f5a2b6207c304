//! All interleavings of a tiny launch, up to the order of independent steps.
//!
//! Stateless search: every run starts anew and follows a prefix of choices. A step is one
//! instruction that others can see with the private ones after it, or one completion. Sleep sets
//! skip a choice that was tried before and that nothing since depended on.
//! Guarantee: every state that some order reaches is reached, unless a limit ends the search.
//! Source: P. Godefroid, "Partial-Order Methods for the Verification of Concurrent Systems".

use super::core::Core;
use super::launch::{Launch, RunOptions, prepare};
use super::report::Fault;
use crate::async_ops::Pending;
use crate::decode::Program;
use crate::mem::global::Memory;
use crate::trace::NoTrace;

/// What a step touches.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// With the number of the CTA.
    items: Vec<(u32, Item)>,
    /// The CTA.
    cta: u32,
    /// Whether it records; it does only while a search executes a step.
    on: bool,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Item {
    Warp(u32),
    Bytes(u32, u32, bool),
    Mbarrier(u32),
    Named(u32),
    Tensor,
    Global(u64, bool),
    Registers,
    Cluster,
}

impl Footprint {
    fn add(&mut self, i: Item) {
        if self.on && self.items.last() != Some(&(self.cta, i)) {
            self.items.push((self.cta, i));
        }
    }

    /// Bytes of shared memory.
    pub fn bytes(&mut self, address: u32, bytes: u32, write: bool) {
        if let Some((_, Item::Bytes(_, end, w))) = self.items.last_mut()
            && *end == address
            && *w == write
        {
            *end = address + bytes;
            return;
        }
        self.add(Item::Bytes(address, address + bytes, write));
    }

    /// An mbarrier.
    pub fn mbarrier(&mut self, address: u32) {
        self.add(Item::Mbarrier(address));
    }

    /// A named barrier.
    pub fn named(&mut self, number: u32) {
        self.add(Item::Named(number));
    }

    /// Tensor memory.
    pub fn tensor(&mut self) {
        self.add(Item::Tensor);
    }

    /// Global memory; cache lines are told apart.
    pub fn global(&mut self, address: u64, write: bool) {
        self.add(Item::Global(address / 128, write));
    }

    /// The barrier of the cluster.
    pub fn cluster(&mut self) {
        self.add(Item::Cluster);
    }

    /// Starts the record of a step in a CTA.
    pub fn begin(&mut self, cta: u32) {
        self.items.clear();
        self.cta = cta;
        self.on = true;
    }

    fn conflicts(&self, o: &Footprint) -> bool {
        self.items.iter().any(|a| {
            o.items.iter().any(|b| match (a.1, b.1) {
                (Item::Global(x, xw), Item::Global(y, yw)) => x == y && (xw || yw),
                (Item::Cluster, Item::Cluster) => true,
                _ if a.0 != b.0 => false,
                (Item::Warp(x), Item::Warp(y)) => x == y,
                (Item::Bytes(a0, a1, aw), Item::Bytes(b0, b1, bw)) => (aw || bw) && a0 < b1 && b0 < a1,
                (Item::Mbarrier(x), Item::Mbarrier(y)) => x == y,
                (Item::Mbarrier(x), Item::Bytes(b0, b1, _)) | (Item::Bytes(b0, b1, _), Item::Mbarrier(x)) => {
                    x < b1 && b0 < x + 8
                }
                (Item::Named(x), Item::Named(y)) => x == y,
                (Item::Tensor, Item::Tensor) | (Item::Registers, Item::Registers) => true,
                _ => false,
            })
        })
    }
}

/// A step that can be taken: by warp and first lane, or a completion.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Choice {
    Run(u32, u32, u32),
    Complete(u32, Pending),
}

struct Node {
    /// Choices that must not be taken: tried before here, or asleep.
    asleep: Vec<(Choice, Footprint)>,
    taken: Choice,
    footprint: Footprint,
}

/// Limits of a search.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most runs.
    pub runs: u64,
    /// Most steps of a run.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs: 100_000, depth: 10_000 }
    }
}

/// Outcome of a search without faults.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Explored {
    /// Runs, complete ones and those cut short by sleep sets.
    pub runs: u64,
    /// Complete runs.
    pub complete: u64,
    /// Whether all orders were covered.
    pub exhausted: bool,
}

/// Runs a launch in all orders. Each run starts with a copy of `memory`; `check` sees the memory
/// after each complete run and may refuse it.
pub fn explore(
    program: &Program,
    launch: &Launch,
    memory: &Memory,
    options: &RunOptions,
    limits: Limits,
    check: &mut dyn FnMut(&Memory) -> Result<(), String>,
) -> Result<Explored, Fault> {
    let mut path: Vec<Node> = Vec::new();
    let mut out = Explored::default();
    loop {
        if out.runs >= limits.runs {
            return Ok(out);
        }
        out.runs += 1;
        let mut mem = memory.clone();
        if one_run(program, launch, &mut mem, options, limits, &mut path)? {
            out.complete += 1;
            check(&mem).map_err(super::launch::refuse)?;
        }
        // The deepest node whose taken choice has an alternative: the alternative is found by the
        // next run, which sees the taken one asleep.
        match path.pop() {
            None => {
                out.exhausted = true;
                return Ok(out);
            }
            Some(mut n) => {
                n.asleep.push((n.taken, std::mem::take(&mut n.footprint)));
                // Marks the place: the next run chooses here afresh.
                path.push(Node {
                    asleep: n.asleep,
                    taken: Choice::Run(u32::MAX, 0, 0),
                    footprint: Footprint::default(),
                });
            }
        }
    }
}

const OPEN: Choice = Choice::Run(u32::MAX, 0, 0);

/// One run along `path` and beyond; false when sleep sets end it.
fn one_run(
    program: &Program,
    launch: &Launch,
    mem: &mut Memory,
    options: &RunOptions,
    limits: Limits,
    path: &mut Vec<Node>,
) -> Result<bool, Fault> {
    let (kernel, mut env) = prepare(program, launch)?;
    env.gather_aligned = options.gather_aligned;
    mem.load_module(&program.globals);
    let mut none = NoTrace;
    let mut core = Core::new(kernel, env, launch.dynamic_smem, mem, *options, &mut none)?;
    core.explore = true;
    core.join = true;
    let (mut pending, mut ready) = (Vec::new(), Vec::new());
    let mut depth = 0;
    // Choices asleep at the present node.
    let mut asleep: Vec<(Choice, Footprint)> = Vec::new();
    while core.refill() {
        let mut choices = Vec::new();
        let mut c = 0;
        while c < core.ctas.len() {
            if core.retire(c)? {
                continue;
            }
            let cta = &core.ctas[c];
            Core::ready_list(cta, &mut ready);
            for &(w, f) in &ready {
                let lane =
                    cta.warps[w as usize].as_ref().map_or(0, |x| x.frags[f as usize].mask.trailing_zeros());
                choices.push(Choice::Run(cta.linear, w, lane));
            }
            cta.pending(&mut pending);
            choices.extend(pending.iter().map(|&p| Choice::Complete(cta.linear, p)));
            c += 1;
        }
        if core.ctas.is_empty() {
            continue;
        }
        if choices.is_empty() {
            return Err(core.deadlock(0));
        }
        if depth >= limits.depth {
            return Err(super::launch::refuse(format!("a run is longer than {} steps", limits.depth)));
        }
        let taken = if depth < path.len() {
            let n = &mut path[depth];
            if n.taken == OPEN {
                match choices.iter().find(|c| !n.asleep.iter().any(|a| a.0 == **c)) {
                    Some(&c) => n.taken = c,
                    None => {
                        path.truncate(depth);
                        return Ok(false);
                    }
                }
            }
            n.taken
        } else {
            match choices.iter().find(|c| !asleep.iter().any(|a| a.0 == **c)) {
                Some(&c) => {
                    path.push(Node {
                        asleep: std::mem::take(&mut asleep),
                        taken: c,
                        footprint: Footprint::default(),
                    });
                    c
                }
                None => return Ok(false),
            }
        };
        let footprint = step(&mut core, taken)?;
        let n = &mut path[depth];
        asleep = n.asleep.iter().filter(|a| !a.1.conflicts(&footprint)).cloned().collect();
        n.footprint = footprint;
        depth += 1;
    }
    Ok(true)
}

fn step(core: &mut Core<'_>, choice: Choice) -> Result<Footprint, Fault> {
    let (Choice::Run(linear, ..) | Choice::Complete(linear, _)) = choice;
    let Some(c) = core.ctas.iter().position(|x| x.linear == linear) else { return Ok(Footprint::default()) };
    for cta in &mut core.ctas {
        cta.footprint.begin(cta.linear);
    }
    match choice {
        Choice::Run(_, w, lane) => {
            let f = core.ctas[c].warps[w as usize]
                .as_ref()
                .and_then(|x| x.frags.iter().position(|f| f.mask.trailing_zeros() == lane))
                .unwrap_or(0);
            core.run(c, w, f as u32, 1 << 20, true)?;
            core.ctas[c].footprint.add(Item::Warp(w));
            if core.ctas[c].free_registers != 0 {
                core.ctas[c].footprint.add(Item::Registers);
            }
        }
        Choice::Complete(_, p) => {
            let warp = match p {
                Pending::Move(w, _) | Pending::Wgmma(w) => Some(w),
                Pending::Copy(_) => Some(core.ctas[c].site_of(p).warp),
                _ => None,
            };
            if let Some(w) = warp {
                core.ctas[c].footprint.add(Item::Warp(w));
            }
            core.complete(c, p)?;
        }
    }
    let mut all = Footprint::default();
    for cta in &mut core.ctas {
        all.items.append(&mut cta.footprint.items);
    }
    Ok(all)
}
