//! The kernel around the loops: agents, rings with the reasons of their depths, and what other settings would give.
//!
//! Depths are explained by the facts the buffer planner recorded ([`Why`]); one slot less or more is judged by
//! the planner's own measure, the interval that the loop reaches with these rings. Other settings are judged by running the
//! stages with them.

use tileas_codegen::error::{CodegenResult, Errors};
use tileas_codegen::ir::{AttrData, Function, Module, ORIGIN, Op};
use tileas_codegen::isa::{TargetIsa, Work};
use tileas_codegen::schedule::CycleModel;
use tileas_codegen::settings::Settings;
use tileas_codegen::testing::agents::{AgentKind, AgentPlan};
use tileas_codegen::testing::buffers::{BufferAssignment, Key, Pipe, PipeData, PipeKind, Why, runs};
use tileas_codegen::testing::ddg::{ScheduleAnalysis, ScheduledRegion};
use tileas_codegen::testing::grid::{GridOrder, cluster_of};
use tileas_codegen::testing::storage::{Footprint, cost, unit_name};
use tileas_codegen::{Context, KernelState, Stage, StageRun};
use tileas_schedule::explain::{RegionExplanation, explain_region};

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AgentWhy {
    /// `agent1 load`.
    pub name: String,
    /// First warp.
    pub first_warp: u32,
    /// Warps of each instance.
    pub warps: u32,
    /// Instances that run the iterations of its outermost loop in turns.
    pub instances: u32,
    /// Whether one elected lane runs everything.
    pub elect: bool,
}

/// What one agent does in a loop: order (R1) and form (R2).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AgentLoop {
    /// The agent.
    pub agent: String,
    /// Its first start.
    pub first: u32,
    /// Stages its loop is skewed by; 0: a plain loop.
    pub skew: u32,
    /// Its ops in the order it runs them: id and local stage.
    pub ops: Vec<(String, u32)>,
}

/// A loop and what the kernel makes of it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LoopWhy {
    /// The schedule.
    pub region: RegionExplanation,
    /// The interval the kernel reaches with the rings that fit.
    pub reached: u32,
    /// By agent.
    pub agents: Vec<AgentLoop>,
    /// Real cycles of an iteration, what binds and the share of tensor peak, where the schedule's cycles are real ones.
    pub real_cycles: Option<String>,
    /// Clocks that an iteration keeps each unit of the processor busy, the most first; where cycles are not clocks anyway.
    pub clocks: Vec<(String, u32)>,
    /// Where ops come from, if the front end said it: id, operation, place (`model.py:43:12`). In the order of the schedule.
    pub sources: Vec<(String, String, String)>,
}

/// A ring or token between agents.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ChannelWhy {
    /// `Pipe_0`.
    pub name: String,
    /// `data`, `token`, `scalar` or `mutex`.
    pub kind: String,
    /// Values it hands over.
    pub values: Vec<String>,
    /// Producer.
    pub from: String,
    /// Consumers.
    pub to: Vec<String>,
    /// Iterations from producer to consumer.
    pub distance: u32,
    /// Slots.
    pub depth: u32,
    /// Slots the schedule needs (R3).
    pub need: u32,
    /// The reason in short.
    pub reason: String,
    /// The reasons in full, and what another depth would do.
    pub facts: Vec<String>,
}

/// A run with another setting.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SettingWhatIf {
    /// `max-simt-agents=2`.
    pub setting: String,
    /// The consequences in words.
    pub effect: String,
}

/// Everything about one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct KernelExplanation {
    /// Its name.
    pub name: String,
    /// Its agents.
    pub agents: Vec<AgentWhy>,
    /// The tiles its CTAs take, where those are not the ones of their numbers; the clusters they form.
    pub grid: Vec<String>,
    /// Its innermost loops with something to schedule.
    pub loops: Vec<LoopWhy>,
    /// Its channels.
    pub channels: Vec<ChannelWhy>,
    /// Shared-memory bytes.
    pub smem_bytes: u32,
    /// Tensor-memory columns.
    pub tmem_columns: u32,
    /// Other settings.
    pub what_if: Vec<SettingWhatIf>,
}

/// A scheduled kernel.
struct View<'a> {
    func: &'a Function,
    plan: &'a AgentPlan,
    analysis: &'a ScheduleAnalysis,
    buffers: &'a BufferAssignment,
    isa: &'a dyn TargetIsa,
    state: &'a KernelState,
}

/// Explains a kernel that has been taken up to the schedule; other settings are left out.
///
/// # Errors
/// As [`explain_region`].
pub fn explain_kernel(
    state: &KernelState,
    isa: &dyn TargetIsa,
    settings: &Settings,
) -> CodegenResult<KernelExplanation> {
    let mut out = KernelExplanation { name: state.name.clone(), ..KernelExplanation::default() };
    let parts = (&state.placed, &state.plan, &state.schedule, &state.buffers);
    let (Some(func), Some(plan), Some(analysis), Some(buffers)) = parts else { return Ok(out) };
    let view = View { func, plan, analysis, buffers, isa, state };
    let agent =
        |(id, a): (tileas_codegen::testing::agents::Agent, &tileas_codegen::testing::agents::AgentInfo)| {
            AgentWhy {
                name: format!("{id} {}", a.kind.name()),
                first_warp: a.first_warp,
                warps: a.warps,
                instances: a.instances,
                elect: a.elect,
            }
        };
    out.agents = plan.agents.iter().map(agent).collect();
    out.grid = state.materialized.as_ref().map(grid).unwrap_or_default();
    let options = settings.schedule_options();
    for r in &analysis.regions {
        let region = explain_region(&r.named_problem(func), &r.schedule, &options)?;
        let reached = buffers.ii_eff[r.for_op].max(r.schedule.ii);
        out.loops.push(LoopWhy {
            region,
            reached,
            agents: view.agents_of(r),
            real_cycles: view.is_real(r).then(|| r.in_real_cycles()),
            clocks: view.clocks_of(r)?,
            sources: view.sources_of(r),
        });
    }
    out.channels = buffers.pipes.iter().map(|(id, p)| view.channel(id, p)).collect();
    (out.smem_bytes, out.tmem_columns) = (buffers.memory.end, buffers.memory.tmem_columns);
    Ok(out)
}

/// What a materialised kernel says of its CTAs.
fn grid(func: &Function) -> Vec<String> {
    let mut out = Vec::new();
    if let Some((axis, ctas)) = cluster_of(func) {
        out.push(format!("{ctas} CTAs along axis {axis} of the grid are a cluster"));
    } else if let Some(GridOrder { rows, columns, side }) = GridOrder::of(func) {
        out.push(format!(
            "CTAs take tiles in bands of {side} along axis {rows} of the grid, inside of a band one step along axis {columns} after \
             the other (option `grid-group`)"
        ));
    }
    out
}

impl View<'_> {
    fn name(&self, op: Op) -> String {
        let value = self.func.results(op).iter().find_map(|&v| self.func.value_name(v));
        // Ops without a named result have the id that their loop's schedule shows.
        let id = || {
            let node = self.analysis.node_of[op].expand()?;
            let region = self.analysis.regions.iter().find(|r| r.holds(node, op))?;
            Some(region.problem.id(node).to_owned())
        };
        value.map(str::to_owned).or_else(id).unwrap_or_else(|| op.to_string())
    }

    fn agent(&self, key: Key) -> String {
        format!("{} {}", key.agent, self.plan.agents[key.agent].kind.name())
    }

    fn agents_of(&self, r: &ScheduledRegion) -> Vec<AgentLoop> {
        let problem = r.named_problem(self.func);
        let (s, ii) = (&r.schedule, r.schedule.ii.max(1));
        let mut out = Vec::new();
        for (agent, info) in self.plan.agents.iter() {
            let mine = s.by_order().into_iter();
            let mut nodes: Vec<_> = mine.filter(|&n| runs(self.func, self.plan, agent, r.ops[n])).collect();
            let Some(first) = nodes.iter().map(|&n| s.start[n]).min() else { continue };
            nodes.sort_by_key(|&n| ((s.start[n] - first) % ii, s.order[n]));
            let local = |n| (s.start[n] - first) / ii;
            out.push(AgentLoop {
                agent: format!("{agent} {}", info.kind.name()),
                first,
                skew: nodes.iter().map(|&n| local(n)).max().unwrap_or(0),
                ops: nodes.iter().map(|&n| (problem.id(n).to_owned(), local(n))).collect(),
            });
        }
        out
    }

    /// Whether the cycles of a loop's schedule are clocks.
    fn is_real(&self, r: &ScheduledRegion) -> bool {
        self.analysis.loops[r.for_op].as_ref().is_some_and(|s| s.model == CycleModel::Real)
    }

    /// The real work of a loop that was scheduled by the published slots.
    fn clocks_of(&self, r: &ScheduledRegion) -> CodegenResult<Vec<(String, u32)>> {
        let mut out: Vec<(String, u32)> = Vec::new();
        if self.is_real(r) {
            return Ok(out);
        }
        let machine = self.isa.machine();
        for &op in r.ops.values().chain(r.fused.iter().map(|f| &f.1)) {
            let footprint = Footprint::of(self.func, self.plan, machine, CycleModel::Real, op)?;
            for u in &footprint.uses {
                let name = unit_name(machine, u.slot);
                let clocks = u.duration.saturating_mul(u.occupancy);
                match out.iter_mut().find(|(n, _)| *n == name) {
                    Some((_, sum)) => *sum = sum.saturating_add(clocks),
                    None => out.push((name, clocks)),
                }
            }
        }
        out.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Ok(out)
    }

    fn sources_of(&self, r: &ScheduledRegion) -> Vec<(String, String, String)> {
        let problem = r.named_problem(self.func);
        let place = |op: Op| {
            let (_, value) =
                self.func.discardable(op).iter().find(|&(key, _)| self.func.symbol(key) == ORIGIN)?;
            match self.func.attr_data(value) {
                AttrData::Str(text) => Some(text.clone()),
                _ => None,
            }
        };
        // A copy comes from where what it copies does.
        let copied = |op: Op| self.func.operands(op).first().and_then(|&v| self.func.defining_op(v));
        let source = |n| {
            let op = r.ops[n];
            let place = place(op).or_else(|| copied(op).and_then(place))?;
            Some((problem.id(n).to_owned(), self.func.opcode(op).name().to_owned(), place))
        };
        r.schedule.by_order().into_iter().filter_map(source).collect()
    }

    fn channel(&self, id: Pipe, p: &PipeData) -> ChannelWhy {
        let kind = match p.payload() {
            _ if p.kind == PipeKind::Mutex => "mutex",
            _ if p.is_scalar() => "scalar",
            true => "data",
            false => "token",
        };
        let mut values: Vec<String> = Vec::new();
        for &w in &p.webs {
            let named = self.buffers.webs.webs[w].values.iter().find_map(|&v| self.func.value_name(v));
            values.push(named.map_or_else(|| w.to_string(), str::to_owned));
        }
        ChannelWhy {
            name: id.to_string(),
            kind: kind.to_owned(),
            values,
            from: self.agent(p.producer),
            to: p.consumers.iter().map(|c| self.agent(c.key)).collect(),
            distance: p.distance,
            depth: p.depth,
            need: p.why.need,
            reason: p.why.to_string(),
            facts: self.facts(id, p),
        }
    }

    /// The reasons of a depth, and what one slot less or more would do.
    fn facts(&self, id: Pipe, p: &PipeData) -> Vec<String> {
        let mut facts = Vec::new();
        let w = &p.why;
        if w.in_place {
            facts.push("the webs stay in place and are handed over and back: one slot".to_owned());
            return facts;
        }
        if let Some(s) = w.span {
            let name = |op: Option<Op>, or: &str| op.map_or_else(|| or.to_owned(), |op| self.name(op));
            let (writer, reader) = (name(s.writer, "its writer"), name(s.reader, "its reader"));
            let span = s.last.saturating_sub(s.first);
            facts.push(format!(
                "R3: a slot is taken when {writer} starts (cycle {}) and free when {reader} is through (cycle {}): \
                 {span} cycles at II {}{} need {} to keep these starts",
                s.first,
                s.last,
                s.ii,
                if p.distance > 0 { format!(", and {} iterations of distance,", p.distance) } else { String::new() },
                slots(w.need)
            ));
        } else {
            facts.push(format!("R3: what fills it runs in program order: {} at least", slots(w.need)));
        }
        facts.push(covers(w, p.depth));
        if w.runs_once {
            return facts;
        }
        // What lies in memory that is left does not matter much: one slot less than covers the latency.
        let fewer = (p.depth - w.spare).checked_sub(1).filter(|&d| d > 0);
        for depth in [fewer, p.depth.checked_add(1)].into_iter().flatten() {
            facts.push(self.with_depth(id, p, depth));
        }
        facts.extend([(1, 2), (2, 1)].into_iter().filter_map(|(n, d)| self.with_tiles(p, n, d)));
        facts
    }

    /// How many slots would be chosen (R4) if tiles were `num`/`den` as large: the producer's latency by the machine model, what
    /// consumers hold and what an iteration takes in proportion. `None`: the producer is no single op, or hands over no tile.
    fn with_tiles(&self, p: &PipeData, num: u64, den: u64) -> Option<String> {
        let single = |op: &Op| self.func.regions(*op).is_empty();
        if !p.payload() || p.is_scalar() || p.events.is_empty() || !p.events.iter().all(single) {
            return None;
        }
        let scaled = |op: Op, num: u64, den: u64| {
            let w = cost::work(self.func, op);
            let work = Work {
                bytes: w.bytes.saturating_mul(num) / den,
                elements: w.elements.saturating_mul(num) / den,
                macs: w.macs.saturating_mul(num) / den,
            };
            u64::from(self.isa.machine().real_latency(cost::op_class(self.func, op), &work))
        };
        let latency = |num, den| p.events.iter().map(|&op| scaled(op, num, den)).max().unwrap_or(0);
        let now = cost::latency(self.func, self.plan, self.isa, p.producer.agent, *p.events.first()?);
        // Registers written by a copy are ready when it was issued: no latency of the model stands behind such a ring.
        if now != scaled(*p.events.first()?, 1, 1) {
            return None;
        }
        let hold = p.why.cover.saturating_sub(latency(1, 1)).saturating_mul(num) / den;
        let (cover, period) = (latency(num, den) + hold, (p.why.period.saturating_mul(num) / den).max(1));
        let want = u32::try_from(cover.div_ceil(period)).unwrap_or(u32::MAX).max(p.why.need);
        let size = if num > den { "twice" } else { "half" };
        let now = p.depth - p.why.spare;
        let change = if want == now {
            "still ".to_owned() + &slots(want)
        } else {
            format!("{} instead of {now}", slots(want))
        };
        Some(format!(
            "with tiles {size} as large: about {cover} real cycles at {period} an iteration, so {change}"
        ))
    }

    /// What another depth would do, to the schedule and to the real latency.
    fn with_depth(&self, id: Pipe, p: &PipeData, depth: u32) -> String {
        let mut effects = Vec::new();
        if let Some((now, then)) = self.state.interval_with_depth(self.isa, id, depth) {
            effects.push(match then.cmp(&now) {
                std::cmp::Ordering::Equal => format!("the loop keeps its {now} cycles an iteration"),
                _ => format!("the loop would take {then} cycles an iteration instead of {now}"),
            });
        }
        effects.push(uncovered(&p.why, depth));
        format!("with {}: {}", slots(depth), effects.join("; "))
    }
}

fn slots(n: u32) -> String {
    if n == 1 { "1 slot".to_owned() } else { format!("{n} slots") }
}

/// Real cycles a ring leaves uncovered.
fn uncovered(w: &Why, depth: u32) -> String {
    let covered = u64::from(depth).saturating_mul(w.period);
    match w.cover.checked_sub(covered) {
        Some(left) if left > 0 => format!("{left} of {} real cycles would be waited for", w.cover),
        _ => format!("all {} real cycles are covered", w.cover),
    }
}

/// The chosen depth (R4) in words.
fn covers(w: &Why, depth: u32) -> String {
    let covered = u64::from(depth).saturating_mul(w.period);
    if w.runs_once {
        return "R4: what fills it runs once, so no second slot would ever be used".to_owned();
    }
    let mut text = format!(
        "R4: {} real cycles pass from the begin of a production to its release, an iteration takes {}: {} of them are hidden by {}",
        w.cover,
        w.period,
        covered.min(w.cover),
        slots(depth - w.spare)
    );
    if w.spare > 0 {
        text += &format!("; {} more in memory that no further CTA could use", slots(w.spare));
    }
    for (on, why) in [
        (w.memory_full, "; memory allows no more"),
        (w.limited, "; an option (`pipeline-depth`) allows no more"),
        (covered < w.cover && !w.memory_full && !w.limited, "; the option `tune.max-slots` allows no more"),
    ] {
        if on {
            text += why;
        }
    }
    text
}

/// Runs of the stages with other settings.
pub(super) fn other_settings(
    context: &mut Context,
    module: &Module,
    isa: &dyn TargetIsa,
    settings: &Settings,
    run: &StageRun,
) -> Vec<(String, Result<StageRun, Errors>)> {
    let loops = run.kernels.iter().filter_map(|k| k.schedule.as_ref()).any(|s| !s.regions.is_empty());
    if !loops {
        return Vec::new();
    }
    let full = run.kernels.iter().filter_map(|k| k.buffers.as_ref());
    let full = full.flat_map(|b| b.pipes.values()).any(|p| p.why.memory_full);
    let plans = run.kernels.iter().filter_map(|k| k.plan.as_ref());
    let warps = plans.flat_map(|p| p.agents.values()).map(|a| a.warps).max().unwrap_or(4);
    let simt = |p: &AgentPlan| p.agents.values().filter(|a| a.kind == AgentKind::Simt).count();
    let agents = run.kernels.iter().filter_map(|k| k.plan.as_ref()).map(simt).max().unwrap_or(1);
    let mut pairs = vec![
        ("scheduler", "serial".to_owned()),
        ("max-simt-agents", (agents + 1).to_string()),
        ("simt-warps", (warps * 2).to_string()),
    ];
    if run.kernels.iter().filter_map(|k| k.plan.as_ref()).any(|p| p.dealt().is_some()) {
        pairs.push(("consumers", "cooperative".to_owned()));
    }
    if full {
        pairs.push(("tune.unlimited-smem", "true".to_owned()));
    }
    let mut out = Vec::new();
    for (name, value) in pairs {
        let mut builder = settings.to_builder();
        // Beyond what the option allows there is nothing to try.
        if builder.set(name, &value).is_err() {
            continue;
        }
        let other = context.run_to(Stage::Schedule, module, isa, &builder.finish());
        out.push((format!("{name}={value}"), other));
    }
    out
}

/// A run with another setting against the one explained; `None`: the kernel was not scheduled.
pub(super) fn compare(
    other: &(String, Result<StageRun, Errors>),
    k: usize,
    state: &KernelState,
) -> Option<SettingWhatIf> {
    let (setting, run) = other;
    let says = |effect: String| Some(SettingWhatIf { setting: setting.clone(), effect });
    let then = match run {
        Ok(run) => run.kernels.get(k)?,
        Err(errors) => {
            let first = errors.iter().next();
            return says(first.map_or_else(String::new, |e| format!("{}: {}", e.code, e.message)));
        }
    };
    let (Some(a), Some(b)) = (summary(state), summary(then)) else { return None };
    if a == b {
        return says("no difference".to_owned());
    }
    let mut effects = Vec::new();
    for (name, now) in &a.loops {
        match b.loops.iter().find(|l| l.0 == *name) {
            Some((_, then)) if then != now => {
                effects.push(format!("{name} takes {then} cycles instead of {now}"))
            }
            Some(_) => {}
            None => effects.push(format!("{name} is not there")),
        }
    }
    if a.agents != b.agents {
        effects.push(format!("agents: {} instead of {}", b.agents, a.agents));
    }
    if a.smem != b.smem {
        effects.push(format!("{} bytes of shared memory instead of {}", b.smem, a.smem));
    }
    if effects.is_empty() {
        effects.push("other loops".to_owned());
    }
    says(effects.join("; "))
}

#[derive(PartialEq, Eq)]
struct Summary {
    /// Name and cycles of each loop.
    loops: Vec<(String, u32)>,
    agents: usize,
    smem: u32,
}

fn summary(state: &KernelState) -> Option<Summary> {
    let (plan, analysis, buffers) = (state.plan.as_ref()?, state.schedule.as_ref()?, state.buffers.as_ref()?);
    let cycles = |r: &ScheduledRegion| buffers.ii_eff[r.for_op].max(r.schedule.ii);
    Some(Summary {
        loops: analysis.regions.iter().map(|r| (r.schedule.name.clone(), cycles(r))).collect(),
        agents: plan.agents.len(),
        smem: buffers.memory.end,
    })
}
