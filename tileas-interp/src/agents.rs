//! Runs a materialised kernel: agents as concurrent processes over bounded channels.
//!
//! Needs: a function with an `agent_switch` (the output of `materialize`), arguments, memory, a [`Timing`].
//! Guarantees: one agent op is one step; what is asynchronous on the machine (TMA loads, matrix products, commits,
//! bulk stores) waits in a queue and takes effect when the timing says so, in the order the machine keeps: per
//! agent one queue for the matrix unit and one for bulk stores, loads in any order. Storage nobody wrote, a barrier
//! with too many arrivals or bytes, and a state in which nothing can go on are errors.

use crate::error::{Fault, InterpError, InterpResult};
use crate::eval::{self, Program};
use crate::pipes::{Pipe, Ring, Signal, Slot};
use crate::sequential::{at_op, one, sparse};
use crate::tile::{Data, Desc, Tile, Val, View, count, tile_type};
use crate::{Arg, Limits, Memory, Stats, bind};
use cranelift_entity::SecondaryMap;
use fixedbitset::FixedBitSet;
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::rc::Rc;
use tileas_codegen::ir::{AttrData, Block, Function, Op, Opcode, Space, Value, keys};

/// When asynchronous work completes and which agent steps next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Timing {
    /// At once; agents in bursts, in order.
    Fast,
    /// Interleaving and delays drawn from a seed.
    Random(u64),
    /// As late as allowed: only when no agent can step.
    Latest,
}

/// Runs every program of the grid.
///
/// # Errors
/// See [`Fault`]; a deadlock names, for every agent, what it waits for.
pub fn run_agents(
    f: &Function,
    grid: [u32; 3],
    args: &[Arg],
    memory: &mut Memory,
    timing: Timing,
    limits: &Limits,
) -> InterpResult<Stats> {
    let mut steps = 0;
    crate::check_size(f, limits)?;
    memory.declare(f, limits)?;
    let bound = bind(f, args)?;
    for id in Program::all(grid) {
        let program = Program { id, ..Program::of(grid) };
        let mut m = Machine::new(f, &bound, memory, program, limits, steps)?;
        m.execute(timing)?;
        steps = m.steps;
    }
    Ok(Stats { steps })
}

mod step;

type Vals = SmallVec<[Val; 4]>;
/// A slot of a ring.
type Place = (usize, u32);

/// Work of the matrix unit.
enum Job {
    Dot { op: Op, a: Rc<Operand>, accumulate: bool },
    Full(usize, u32),
    Empty(usize, u32),
}

/// A product onto registers that is under way.
struct Group {
    op: Op,
    first: Result<Place, Val>,
    second: Place,
    acc: Val,
    sum: Rc<OnceCell<Rc<Tile>>>,
}

/// Places of a matrix product.
struct Operand {
    a: Place,
    b: Place,
    acc: Place,
}

/// A TMA load under way.
struct Load {
    desc: Rc<Desc>,
    origin: SmallVec<[i64; 4]>,
    /// What was read when it was issued, if it was.
    tile: Option<Tile>,
    to: Place,
    pipe: usize,
    slot: u32,
    bytes: i64,
}

/// A bulk store: not yet read, or read and not yet written.
struct Store {
    view: Rc<View>,
    origin: SmallVec<[i64; 4]>,
    from: Place,
    read: Option<Tile>,
}

struct Frame {
    next: Option<Op>,
    owner: Option<Op>,
    /// Of a loop: current value, bound, step.
    range: Option<(i64, i64, i64)>,
    /// Of a loop that is dealt out: the number of the iteration, and whether its turn has come.
    dealt: Option<(u64, bool)>,
    /// The iteration is another instance's: only numbers and iterators go on.
    passing: bool,
}

struct Agent {
    env: SecondaryMap<Value, Option<Val>>,
    frames: Vec<Frame>,
    matrix: VecDeque<Job>,
    groups: VecDeque<Group>,
    stores: VecDeque<Store>,
    threads: i64,
    /// Which of how many instances it is, and whose turns are counted.
    instance: (u64, u64, usize),
}

struct Machine<'a> {
    f: &'a Function,
    memory: &'a mut Memory,
    limits: &'a Limits,
    program: Program,
    pipes: Vec<Pipe>,
    rings: Vec<Ring>,
    agents: Vec<Agent>,
    loads: Vec<Load>,
    /// By agent of the switch: iterations that may begin, or have begun, of its loop that is dealt out, less the first.
    turns: Vec<u64>,
    /// What each instance of an agent has for itself: the one of the first instance, and how many there are.
    own: Vec<Value>,
    steps: u64,
}

/// What a step did.
#[derive(PartialEq)]
enum Step {
    Done,
    Waits,
    Ended,
}

/// Instances of an agent, at most.
const MOST_INSTANCES: i64 = 32;

fn refuse<T>(f: &Function, op: Op, message: &str) -> InterpResult<T> {
    Err(InterpError::at(f, op, Fault::Unsupported, message))
}

fn too_many(f: &Function, op: Op) -> InterpError {
    InterpError::at(f, op, Fault::Barrier, "more arrivals or bytes than the phase counts")
}

impl<'a> Machine<'a> {
    /// Runs the prologue: constants, rings, pipes; sets up one agent per region of the switch.
    fn new(
        f: &'a Function,
        bound: &[(Value, Val)],
        memory: &'a mut Memory,
        program: Program,
        limits: &'a Limits,
        steps: u64,
    ) -> InterpResult<Machine<'a>> {
        let (pipes, rings, agents, loads) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (turns, own) = (Vec::new(), Vec::new());
        let mut m = Machine { f, memory, limits, program, pipes, rings, agents, loads, turns, own, steps };
        let switch = f.block_ops(f.entry()).find(|&op| f.opcode(op) == Opcode::AsyncPipelineAgentSwitch);
        let list = switch.and_then(|op| f.attr_ints(op, keys::INSTANCES)).unwrap_or_default();
        let instances = list.into_iter().max().unwrap_or(1).clamp(1, MOST_INSTANCES);
        let mut env: SecondaryMap<Value, Option<Val>> = SecondaryMap::new();
        for (v, x) in bound {
            env[*v] = Some(x.clone());
        }
        let mut room = limits.max_ring_elements;
        for op in f.block_ops(f.entry()) {
            let results = f.results(op);
            match f.opcode(op) {
                Opcode::Return => {}
                Opcode::AllocTensor => {
                    let Some((dims, elem)) = results.first().and_then(|&r| tile_type(f.value_data(r))) else {
                        return refuse(f, op, "makes a tile");
                    };
                    let Some((&slots, dims)) = dims.split_first() else {
                        return refuse(f, op, "has no slots");
                    };
                    let size = count(dims);
                    let copies = if f.has_attr(op, keys::STRIDE) { instances } else { 1 };
                    let Some(left) = room.checked_sub(size as u64 * u64::from(slots) * copies as u64) else {
                        return Err(InterpError::at(
                            f,
                            op,
                            Fault::Limit,
                            "too many elements (max_ring_elements)",
                        ));
                    };
                    room = left;
                    let slot = Slot {
                        tile: Tile::splat(dims, elem, 0.0),
                        defined: FixedBitSet::with_capacity(size),
                    };
                    env[results[0]] = Some(Val::Buffer(m.rings.len()));
                    for _ in 0..copies {
                        m.rings.push(Ring { value: results[0], slots: vec![slot.clone(); slots as usize] });
                    }
                    m.own.extend(results.iter().copied().filter(|_| copies > 1));
                }
                Opcode::AsyncPipelineCreatePipeline => {
                    let Some(pipe) = Pipe::of(f, op, limits.max_slots) else {
                        return refuse(f, op, "has attributes without sense");
                    };
                    for &r in results {
                        env[r] = Some(Val::End(m.pipes.len()));
                    }
                    let copies = if pipe.own { instances } else { 1 };
                    m.own.extend(results.iter().copied().filter(|_| copies > 1));
                    m.pipes.extend((0..copies).map(|_| pipe.clone()));
                }
                Opcode::AsyncPipelineAgentSwitch => m.switch(op, &env)?,
                Opcode::Global => match (results.first(), m.memory.variable(f, op)) {
                    (Some(&r), Some(v)) => env[r] = Some(v),
                    _ => return refuse(f, op, "gives no variable"),
                },
                _ => {
                    let mut args = Vals::new();
                    for &v in f.operands(op) {
                        args.push(value(f, op, &env, v)?);
                    }
                    match (results.first(), eval::pure(f, op, &args, &m.program)?) {
                        (Some(&r), Some(v)) => env[r] = Some(v),
                        _ => return refuse(f, op, "does not belong before the agents"),
                    }
                }
            }
        }
        if m.agents.is_empty() {
            return Err(InterpError::new(
                Fault::Unsupported,
                "the kernel has no agents: it is not materialised",
            ));
        }
        Ok(m)
    }

    fn switch(&mut self, op: Op, env: &SecondaryMap<Value, Option<Val>>) -> InterpResult<()> {
        let f = self.f;
        let warps = f.attr_ints(op, keys::NUM_WARPS).unwrap_or_default();
        let lanes = match f.attr(op, keys::LANES) {
            Some(AttrData::Array(lanes)) => lanes.clone(),
            _ => return refuse(f, op, "has no lanes"),
        };
        for (n, (&warps, &lane)) in warps.iter().zip(&lanes).enumerate() {
            let elect = matches!(f.attr_data(lane), AttrData::Name(s) if f.symbol(*s) == "elect");
            let Some(b) = f.op_block_at(op, n) else { return refuse(f, op, "has too few regions") };
            let instances = f.attr_ints(op, keys::INSTANCES).and_then(|list| list.get(n).copied());
            let instances = instances.unwrap_or(1).clamp(1, MOST_INSTANCES) as usize;
            for c in 0..instances {
                let mut env = env.clone();
                for &v in self.own.iter().filter(|_| instances > 1) {
                    if let Some(Val::Buffer(k) | Val::End(k)) = &mut env[v] {
                        *k += c;
                    }
                }
                self.agents.push(Agent {
                    env,
                    frames: vec![Frame {
                        next: f.first_op(b),
                        owner: None,
                        range: None,
                        dealt: None,
                        passing: false,
                    }],
                    matrix: VecDeque::new(),
                    groups: VecDeque::new(),
                    stores: VecDeque::new(),
                    threads: if elect { 1 } else { warps * 32 },
                    instance: (c as u64, instances as u64, n),
                });
            }
            self.turns.push(0);
        }
        Ok(())
    }

    // ---- time

    fn execute(&mut self, timing: Timing) -> InterpResult<()> {
        let mut rng = match timing {
            Timing::Random(seed) => seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15) | 1,
            _ => 0x9e37_79b9_7f4a_7c15,
        };
        let mut draw = move |n: usize| {
            rng ^= rng << 13;
            rng ^= rng >> 7;
            rng ^= rng << 17;
            (rng % n.max(1) as u64) as usize
        };
        let n = self.agents.len();
        loop {
            let mut moved = false;
            // Bursts of every agent, in a drawn order; between them engines may or may not advance.
            let first = draw(n);
            for k in 0..n {
                let a = (first + k) % n;
                let burst = if timing == Timing::Fast { usize::MAX } else { 1 + draw(12) };
                for _ in 0..burst {
                    if self.step(a)? != Step::Done {
                        break;
                    }
                    moved = true;
                    if timing == Timing::Fast {
                        while self.complete(&mut |_| 0)? {}
                    }
                }
                if matches!(timing, Timing::Random(_)) && draw(3) == 0 {
                    moved |= self.complete(&mut draw)?;
                }
            }
            if !moved && !self.complete(&mut draw)? {
                break;
            }
        }
        if self.agents.iter().all(|a| a.frames.is_empty()) { Ok(()) } else { Err(self.deadlock()) }
    }

    /// Lets one piece of asynchronous work take effect. `false`: there is none.
    fn complete(&mut self, draw: &mut impl FnMut(usize) -> usize) -> InterpResult<bool> {
        let n = self.agents.len();
        let kinds = 2 * n + 1;
        let first = draw(kinds);
        for k in 0..kinds {
            let pick = (first + k) % kinds;
            let done = if pick < n {
                self.matrix(pick)?
            } else if pick < 2 * n {
                self.bulk(pick - n)?
            } else if self.loads.is_empty() {
                false
            } else {
                let k = draw(self.loads.len());
                self.load(k)?;
                true
            };
            if done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn load(&mut self, k: usize) -> InterpResult<()> {
        let l = self.loads.swap_remove(k);
        let tile = match l.tile {
            Some(tile) => tile,
            None => {
                let fill = if l.desc.nan { f64::NAN } else { 0.0 };
                self.memory.load(&l.desc.view, &l.desc.extents, &l.origin, fill)?
            }
        };
        let slot = &mut self.rings[l.to.0].slots[l.to.1 as usize];
        // Rows may be counted by one dimension instead of several.
        slot.tile = Tile { dims: slot.tile.dims.clone(), ..tile };
        slot.defined.insert_range(..);
        let fine = match self.pipes[l.pipe].full.get_mut(l.slot as usize) {
            Some(b) => b.complete(l.bytes),
            None => false,
        };
        if fine {
            return Ok(());
        }
        let message = format!("channel {} got more bytes than announced", self.pipes[l.pipe].number);
        Err(InterpError::new(Fault::Barrier, message))
    }

    fn matrix(&mut self, a: usize) -> InterpResult<bool> {
        let Some(job) = self.agents[a].matrix.pop_front() else { return Ok(false) };
        let arrived = match job {
            Job::Dot { op, a, accumulate } => {
                let x = Val::Tile(Rc::new(self.whole(op, a.a)?));
                let y = Val::Tile(Rc::new(self.whole(op, a.b)?));
                let acc = if accumulate {
                    self.whole(op, a.acc)?
                } else {
                    self.rings[a.acc.0].slots[a.acc.1 as usize].tile.clone()
                };
                let args = [x, y, Val::Tile(Rc::new(acc)), Val::Int(i64::from(accumulate))];
                let t = eval::product(self.f, op, &args)?;
                let slot = &mut self.rings[a.acc.0].slots[a.acc.1 as usize];
                slot.tile = t;
                slot.defined.insert_range(..);
                true
            }
            Job::Full(p, s) => self.pipes[p].full.get_mut(s as usize).is_none_or(|b| b.arrive(1)),
            Job::Empty(p, s) => self.pipes[p].empty.get_mut(s as usize).is_none_or(|b| b.arrive(1)),
        };
        if arrived {
            return Ok(true);
        }
        Err(InterpError::new(Fault::Barrier, "a commit arrives where no arrival is pending"))
    }

    /// Reads the source of the oldest unread bulk store, or writes the oldest one that was read.
    fn bulk(&mut self, a: usize) -> InterpResult<bool> {
        let unread = self.agents[a].stores.iter().position(|s| s.read.is_none());
        match unread {
            Some(k) => {
                let (ring, slot) = self.agents[a].stores[k].from;
                let s = &self.rings[ring].slots[slot as usize];
                if s.defined.count_ones(..) != s.defined.len() {
                    let message = format!(
                        "a store reads slot {slot} of {} before it is written",
                        self.rings[ring].value
                    );
                    return Err(InterpError::new(Fault::Undefined, message));
                }
                self.agents[a].stores[k].read = Some(s.tile.clone());
                Ok(true)
            }
            None => {
                let Some(s) = self.agents[a].stores.pop_front() else { return Ok(false) };
                if let Some(t) = &s.read {
                    self.memory.store(&s.view, &s.origin, t)?;
                }
                Ok(true)
            }
        }
    }

    /// Who waits for what.
    fn deadlock(&self) -> InterpError {
        let mut parts = Vec::new();
        let mut loc = None;
        for (n, a) in self.agents.iter().enumerate() {
            let Some(op) = a.frames.last().and_then(|fr| fr.next) else {
                parts.push(format!("agent {n} ended"));
                continue;
            };
            loc = loc.or(Some(self.f.op_loc(op)));
            let iter = self.f.named_operand(op, "iter").and_then(|v| a.env[v].clone());
            let at = match iter {
                Some(Val::Iter { pipe, slot, phase }) => {
                    let p = &self.pipes[pipe];
                    let seen = |b: &[crate::pipes::Barrier]| b.get(slot as usize).map_or(0, |b| b.phase());
                    let (full, empty) = (seen(&p.full), seen(&p.empty));
                    format!(
                        " channel {} slot {slot} phase {phase} (full completed {full}, empty {empty} times)",
                        p.number
                    )
                }
                _ => String::new(),
            };
            parts.push(format!("agent {n} waits at {}{at}", self.f.opcode(op).name()));
        }
        InterpError { fault: Fault::Deadlock, message: parts.join("; "), loc }
    }
}

fn value(f: &Function, op: Op, env: &SecondaryMap<Value, Option<Val>>, v: Value) -> InterpResult<Val> {
    match &env[v] {
        // What was waited for since.
        Some(Val::Pending(sum)) => {
            Ok(sum.get().map_or_else(|| Val::Pending(sum.clone()), |t| Val::Tile(t.clone())))
        }
        Some(x) => Ok(x.clone()),
        None => Err(InterpError::at(f, op, Fault::Undefined, format!("{v} has no value here"))),
    }
}

fn is_stored(f: &Function, v: Value) -> bool {
    f.value_data(v).is_tile() && matches!(f.value_data(v).space(), Some(Space::Smem | Space::Tmem))
}
