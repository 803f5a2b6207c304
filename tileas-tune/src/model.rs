//! How long a compiled kernel takes, by the rows of the machine model.
//!
//! In: what the compiler's stages left behind, arguments. Out: clocks and what binds them ([`Time`]). One CTA: its busiest agent or unit,
//! iteration by iteration, after one pass of latency; loops that hand tiles through rings go no faster than their slots cover. An SM: as many CTAs
//! side by side as shared memory, tensor memory, threads and, with `setmaxnreg`, registers have room for; they share its units. The
//! GPU: rounds of CTAs over SMs, bytes from L2 by SM, and each view once from DRAM. Trip counts come from the kernel's own scalars, interpreted for three
//! CTAs (first, middle, last); a count that depends on memory is taken as 16.
//!
//! What it leaves out: conflicts of banks, clocks that fall under load, L2 misses beyond the first, registers where agents do not change theirs.

use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use tileas_codegen::KernelState;
use tileas_codegen::ir::{Block, Function, Op, Opcode, TypeData, Value};
use tileas_codegen::isa::TargetIsa;
use tileas_codegen::testing::agents::AgentPlan;
use tileas_codegen::testing::storage::cost;
use tileas_interp::{Arg, Program, Val, eval};

/// How long a kernel takes, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Clocks of the whole launch.
    pub clocks: u64,
    /// The same in microseconds at the model's clock.
    pub us: f64,
    /// What binds: `unit tensor_core`, `agent1 load`, `latency`, `L2`, `DRAM`, `launch`.
    pub binds: String,
    /// CTAs.
    pub ctas: u64,
    /// CTAs that an SM has room for.
    pub resident: u32,
    /// Rounds of CTAs on the busiest SM.
    pub rounds: u64,
    /// Clocks of a CTA that is alone on its SM.
    pub cta_clocks: u64,
    /// Share of the tensor cores' peak, all SMs over the whole time; 0 without matrix products.
    pub tensor_share: f64,
}

/// What one CTA does.
#[derive(Clone, Debug, Default)]
struct Work {
    /// Clocks of each agent's own issue.
    agents: Vec<u64>,
    /// Clocks of each unit.
    units: Vec<u64>,
    /// Clocks from begin to end.
    path: u64,
    /// Bytes from and to global memory.
    bytes: u64,
}

impl Work {
    fn new(agents: usize, units: usize) -> Work {
        Work { agents: vec![0; agents], units: vec![0; units], ..Work::default() }
    }

    fn add(&mut self, other: &Work, times: u64) {
        let pairs = self.agents.iter_mut().zip(&other.agents).chain(self.units.iter_mut().zip(&other.units));
        for (a, b) in pairs {
            *a = a.saturating_add(b.saturating_mul(times));
        }
        self.bytes = self.bytes.saturating_add(other.bytes.saturating_mul(times));
    }

    /// Of two ways, of which one is taken: the longer, in everything.
    fn max(&mut self, other: &Work) {
        let pairs = self.agents.iter_mut().zip(&other.agents).chain(self.units.iter_mut().zip(&other.units));
        for (a, b) in pairs {
            *a = (*a).max(*b);
        }
        (self.path, self.bytes) = (self.path.max(other.path), self.bytes.max(other.bytes));
    }

    /// Clocks of an execution that overlaps with those before and after it.
    fn busiest(&self) -> u64 {
        self.agents.iter().chain(&self.units).copied().max().unwrap_or(0)
    }
}

/// A compiled kernel with what its time depends on.
struct Walk<'a> {
    func: &'a Function,
    plan: &'a AgentPlan,
    state: &'a KernelState,
    isa: &'a dyn TargetIsa,
    program: Program,
    scalars: FxHashMap<Value, Val>,
    /// When results are there, within the block that is walked.
    ready: FxHashMap<Value, u64>,
}

impl Walk<'_> {
    fn int(&self, v: Value) -> Option<i64> {
        match self.scalars.get(&v)? {
            Val::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// What a scalar op gives, if all it takes is known.
    fn evaluate(&mut self, op: Op) {
        let func = self.func;
        let Some(result) = func.result(op) else { return };
        if !matches!(func.value_data(result), TypeData::Scalar(_)) {
            return;
        }
        let args: Option<Vec<Val>> = func.operands(op).iter().map(|v| self.scalars.get(v).cloned()).collect();
        if let Some(args) = args
            && let Ok(Some(value)) = eval::pure(func, op, &args, &self.program)
        {
            self.scalars.insert(result, value);
        }
    }

    fn block(&mut self, block: Block) -> Work {
        let func = self.func;
        let mut work = Work::new(self.plan.agents.len(), self.isa.machine().units.len());
        for op in func.block_ops(block) {
            self.evaluate(op);
            let begin =
                func.operands(op).iter().filter_map(|v| self.ready.get(v)).copied().max().unwrap_or(0);
            let took = match func.opcode(op) {
                Opcode::For => self.for_loop(op, &mut work),
                Opcode::If => self.branch(op, &mut work),
                _ => self.leaf(op, &mut work),
            };
            let end = begin.saturating_add(took);
            work.path = work.path.max(end);
            for &v in func.results(op) {
                self.ready.insert(v, end);
            }
        }
        work
    }

    fn leaf(&mut self, op: Op, work: &mut Work) -> u64 {
        let (func, machine) = (self.func, self.isa.machine());
        let Some(agent) = self.plan.op_agent[op].expand() else { return 0 };
        let (class, amount) = (cost::op_class(func, op), cost::work(func, op));
        // Of instances that take turns each does its part.
        let own =
            u64::from(machine.real_occupancy(class, &amount) / self.plan.agents[agent].instances.max(1));
        if let Some(sum) = work.agents.get_mut(agent.index()) {
            *sum = sum.saturating_add(own);
        }
        for one in machine.real_uses(class, &amount) {
            if let Some(sum) = work.units.get_mut(one.unit.index()) {
                *sum = sum.saturating_add(u64::from(one.clocks));
            }
        }
        if is_global(func.opcode(op)) {
            work.bytes = work.bytes.saturating_add(amount.bytes);
        }
        u64::from(machine.real_latency(class, &amount))
    }

    fn for_loop(&mut self, op: Op, work: &mut Work) -> u64 {
        let func = self.func;
        let (bounds, inits) = func.operands(op).split_at(3.min(func.operands(op).len()));
        let known = match bounds {
            &[lower, upper, step] => self.int(lower).zip(self.int(upper)).zip(self.int(step)),
            _ => None,
        };
        let trips = known.map_or(cost::ASSUMED_TRIPS, |((lower, upper), step)| {
            let span = u64::try_from(upper.saturating_sub(lower)).unwrap_or(0);
            span.div_ceil(u64::try_from(step).unwrap_or(1).max(1))
        });
        let Some(body) = func.op_block_at(op, 0).filter(|_| trips > 0) else { return 0 };
        // An iteration in the middle: bounds of inner loops may depend on the index.
        if let (Some(((lower, _), step)), Some(&index)) = (known, func.block_params(body).first()) {
            let middle = lower.saturating_add(step.saturating_mul((trips / 2) as i64));
            self.scalars.insert(index, Val::Int(middle));
        }
        for (&param, init) in func.for_args(op).iter().zip(inits) {
            if let Some(value) = self.scalars.get(init).cloned() {
                self.scalars.insert(param, value);
            }
        }
        let outer = std::mem::take(&mut self.ready);
        let inner = self.block(body);
        self.ready = outer;
        let each = inner.busiest().max(self.interval(op, body));
        work.add(&inner, trips);
        inner.path.saturating_add((trips - 1).saturating_mul(each))
    }

    /// Clocks that an iteration takes at least, as it was scheduled and as rings cover latencies.
    fn interval(&self, op: Op, body: Block) -> u64 {
        let schedule = self.state.schedule.as_ref().and_then(|s| s.loops[op].as_deref());
        let mut clocks = match schedule {
            Some(s) if s.model == tileas_codegen::schedule::CycleModel::Real => u64::from(s.ii),
            _ => 0,
        };
        for pipe in self.state.buffers.iter().flat_map(|b| b.pipes.values()) {
            if pipe.home == body && pipe.has_empty {
                clocks = clocks.max(pipe.why.cover.div_ceil(u64::from(pipe.depth.max(1))));
            }
        }
        clocks
    }

    fn branch(&mut self, op: Op, work: &mut Work) -> u64 {
        let func = self.func;
        let condition = func.operands(op).first().and_then(|&v| self.int(v));
        let mut taken = Work::new(work.agents.len(), work.units.len());
        for (n, wanted) in [(0, true), (1, false)] {
            if condition.is_some_and(|c| (c != 0) != wanted) {
                continue;
            }
            if let Some(block) = func.op_block_at(op, n) {
                let outer = std::mem::take(&mut self.ready);
                taken.max(&self.block(block));
                self.ready = outer;
            }
        }
        work.add(&taken, 1);
        taken.path
    }
}

fn is_global(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::TiledLoad | O::TiledStore | O::AsyncTiledTmaLoad | O::AsyncTiledTmaStore | O::AtomicRmw
    )
}

/// The time of a kernel that was compiled to PTX, with its arguments in order and its grid. `None`: stages are missing.
pub(crate) fn time(state: &KernelState, isa: &dyn TargetIsa, args: &[Arg], grid: [u32; 3]) -> Option<Time> {
    let (func, plan, metadata) = (state.placed.as_ref()?, state.plan.as_ref()?, state.metadata.as_ref()?);
    let machine = isa.machine();
    let one = |id: [i64; 3]| {
        let program = Program { id, grid: grid.map(i64::from) };
        let scalars = func.params().iter().zip(args).map(|(&p, arg)| {
            let value = match arg {
                Arg::Int(n) => Val::Int(*n),
                Arg::Float(x) => Val::Float(*x),
                Arg::View(v) => Val::View(v.clone().into()),
            };
            (p, value)
        });
        let (scalars, ready) = (scalars.collect(), FxHashMap::default());
        Walk { func, plan, state, isa, program, scalars, ready }.block(func.entry())
    };
    let last = grid.map(|n| i64::from(n) - 1);
    let ids = [[0; 3], last.map(|n| n / 2), last];
    let samples = ids.map(one);
    let mean = |f: &dyn Fn(&Work) -> u64| samples.iter().map(f).sum::<u64>() / samples.len() as u64;
    let path = samples.iter().map(|w| w.path).max().unwrap_or(0);

    let row = |name: &str| u64::from(machine.gpu_number(name)).max(1);
    let threads = metadata.block.iter().map(|&n| u64::from(n)).product::<u64>().max(1);
    let smem = u64::from(metadata.dynamic_smem) + row("cta_smem_bytes");
    let limits = &machine.limits;
    let mut resident = row("sm_ctas").min(row("sm_threads") / threads).min(row("sm_smem_bytes") / smem);
    if let Some(n) = limits.tmem_columns.checked_div(metadata.tmem_columns) {
        resident = resident.min(u64::from(n));
    }
    if metadata.setmaxnreg.is_some() {
        let regs = threads * u64::from(machine.entry_registers(threads as u32));
        resident = resident.min(u64::from(limits.regs_per_sm) / regs.max(1));
    }
    let resident = resident.max(1);

    let ctas = grid.iter().map(|&n| u64::from(n)).product::<u64>();
    let sms = row("sms");
    let per_sm = ctas.div_ceil(sms);
    let rounds = per_sm.div_ceil(resident);
    let mut candidates = vec![(rounds.saturating_mul(path), "latency".to_owned())];
    for (n, unit) in machine.units.iter().enumerate() {
        let clocks = mean(&|w| w.units[n]);
        candidates.push((per_sm.saturating_mul(clocks), format!("unit {}", unit.name)));
    }
    let bytes = mean(&|w| w.bytes);
    candidates.push((per_sm.saturating_mul(bytes) / row("l2_bytes"), "L2".to_owned()));
    let distinct = args.iter().map(|arg| match arg {
        Arg::View(v) => {
            let elements = v.sizes.iter().try_fold(1_u64, |n, &d| n.checked_mul(u64::try_from(d).ok()?));
            elements.unwrap_or(u64::MAX).saturating_mul(u64::from(v.elem.bits())) / 8
        }
        _ => 0,
    });
    let moved = distinct.fold(0, u64::saturating_add).min(ctas.saturating_mul(bytes));
    candidates.push((moved / row("dram_bytes"), "DRAM".to_owned()));
    // The first of the largest.
    let (most, mut binds) =
        candidates.into_iter().rev().max_by_key(|c| c.0).unwrap_or_else(|| (0, "launch".to_owned()));
    if binds == "latency" {
        let sample = &samples[1];
        let busiest = (0..sample.agents.len()).max_by_key(|&a| sample.agents[a]);
        if let Some(agent) = busiest.filter(|&a| sample.agents[a] * 10 > path * 9) {
            let info = plan.agents.values().nth(agent);
            binds = format!("agent{agent} {}", info.map_or("", |a| a.kind.name()));
        }
    }
    let overhead = row("launch_clocks");
    if overhead > most {
        "launch".clone_into(&mut binds);
    }
    let clocks = most.saturating_add(overhead);
    let tensor = machine.unit_named("tensor_core").map_or(0, |unit| {
        let n = machine.units.iter().position(|u| u.name == unit.name).unwrap_or(0);
        mean(&|w| w.units[n])
    });
    Some(Time {
        clocks,
        us: clocks as f64 / row("clock_mhz") as f64,
        binds,
        ctas,
        resident: resident as u32,
        rounds,
        cta_clocks: path,
        tensor_share: (tensor as f64 * ctas as f64) / (clocks as f64 * sms as f64),
    })
}
