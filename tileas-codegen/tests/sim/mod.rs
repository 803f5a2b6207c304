//! Executes kernels on symbols: every tile is a hash of how it was made.
//!
//! [`reference`] runs a placed function in program order. [`run`] runs a materialised one: agents step in random
//! order, barriers count arrivals, bytes and phases as the hardware's do, loads, stores and matrix ops complete late.
//! An agent of several threads is two that run apart: the issuing lane, and the others, for which what only the lane
//! does is nothing. Each has its half of every tile in registers and of what threads write; a reader of two halves that do
//! not fit has read garbage. In tensor memory threads keep to their own half.
//! Equal outputs mean that slots, phases, flags, guards and orders are right; no step possible means deadlock.
//! Scalars are concrete, so that they decide bounds, conditions and coordinates: memory holds a small number at every
//! place, atomics change it, and slots of scalar channels hold numbers.
//! Shares no code with the compiler beyond the IR.

use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use tileas_codegen::ir::{AttrData, Block, Function, Op, Opcode, Scalar, Space, Value, keys};

pub const ZERO: u64 = 0;
/// Contents of memory nobody wrote.
const JUNK: u64 = 0xdead;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Val {
    Int(i64),
    Tile(u64),
    Iter(usize, u32, u32),
    Own(usize, u32),
    Token,
}

/// What was stored: where (descriptor or view, coordinates) → what, last store wins.
pub type Outputs = BTreeMap<u64, u64>;

/// What a scalar slot nobody wrote holds: no scalar in memory is as large.
const UNWRITTEN: i64 = 6;

/// What memory holds at a place before the kernel runs.
fn scalar_at(key: u64) -> i64 {
    (key >> 13) as i64 & 3
}

/// Scalars in memory that atomics changed.
type Cells = BTreeMap<u64, i64>;

/// An atomic op; gives the old value.
fn atomic(f: &Function, op: Op, cells: &mut Cells, value: Val, key: u64) -> Val {
    if let Val::Tile(v) = value {
        // A float: what is added up stands for the sum.
        let cell = cells.entry(key).or_insert_with(|| scalar_at(key));
        let old = std::mem::replace(cell, cell.wrapping_add(v as i64));
        return Val::Tile(h(&[11, old as u64]));
    }
    let Val::Int(v) = value else { panic!("a number") };
    let cell = cells.entry(key).or_insert_with(|| scalar_at(key));
    let old = *cell;
    *cell = match f.attr_name(op, keys::MODE).expect("a mode") {
        "addi" => old + v,
        "maxi" => old.max(v),
        "mini" => old.min(v),
        "andi" => old & v,
        "ori" => old | v,
        "xori" => old ^ v,
        "exch" => v,
        mode => panic!("{mode} on integers"),
    };
    Val::Int(old)
}

/// A load of one element or of a tile.
fn load(f: &Function, op: Op, cells: &Cells, args: &[Val]) -> Val {
    let key = store_key(args[0], &args[1..]);
    let result = f.value_data(f.results(op)[0]);
    if result.as_scalar().is_some_and(|s| s.is_int()) {
        return Val::Int(cells.get(&key).copied().unwrap_or_else(|| scalar_at(key)));
    }
    Val::Tile(h(&[9, key]))
}

fn with_cells(mut out: Outputs, cells: Cells) -> Outputs {
    out.extend(cells.into_iter().map(|(k, v)| (h(&[10, k]), v as u64)));
    out
}

fn h(parts: &[u64]) -> u64 {
    let mut s = DefaultHasher::new();
    parts.hash(&mut s);
    s.finish() | 1
}

fn name(f: &Function, op: Op) -> u64 {
    let mut s = DefaultHasher::new();
    f.opcode(op).name().hash(&mut s);
    for key in [keys::PREDICATE, keys::AXIS, keys::BOX, keys::TRANSPOSE_A, keys::TRANSPOSE_B, keys::SIZES] {
        if let Some(a) = f.attr(op, key) {
            match a {
                AttrData::Int(v, _) => v.hash(&mut s),
                AttrData::Name(n) => f.symbol(*n).hash(&mut s),
                AttrData::Array(_) => f.attr_ints(op, key).unwrap_or_default().to_vec().hash(&mut s),
                _ => 7.hash(&mut s),
            }
        }
    }
    s.finish()
}

fn is_stored(f: &Function, v: Value) -> bool {
    matches!(f.value_data(v).space(), Some(Space::Smem | Space::Tmem)) && f.value_data(v).is_tile()
}

/// A tile put together from parts: what was under them (until they cover it), and each part by its offset.
type Parts = (u64, BTreeMap<Vec<i64>, (Vec<u32>, u64)>);

thread_local! {
    static PARTS: RefCell<FxHashMap<u64, Parts>> = RefCell::new(FxHashMap::default());
}

fn slice(tile: u64, full: &[u32], dims: &[u32], offsets: &[i64]) -> u64 {
    if tile == ZERO || full == dims {
        return tile;
    }
    let meets = |o: &[i64], d: &[u32]| {
        (0..o.len()).all(|i| o[i] < offsets[i] + i64::from(dims[i]) && offsets[i] < o[i] + i64::from(d[i]))
    };
    let found = PARTS.with_borrow(|t| {
        let p = t.get(&tile)?;
        match p.1.get(offsets).filter(|x| x.0 == dims) {
            Some(x) => Some((x.1, true)),
            None => p.1.iter().all(|(o, x)| !meets(o, &x.0)).then_some((p.0, false)),
        }
    });
    match found {
        Some((part, true)) => return part,
        Some((base, false)) => return slice(base, full, dims, offsets),
        None => {}
    }
    let mut parts = vec![1, tile];
    parts.extend(dims.iter().map(|&d| u64::from(d)));
    parts.extend(offsets.iter().map(|&o| o as u64));
    h(&parts)
}

fn insert(tile: u64, full: &[u32], dims: &[u32], offsets: &[i64], part: u64) -> u64 {
    if full == dims {
        return part;
    }
    let size = |d: &[u32]| d.iter().map(|&x| u64::from(x)).product::<u64>();
    PARTS.with_borrow_mut(|t| {
        let mut p: Parts = t.get(&tile).cloned().unwrap_or((tile, BTreeMap::new()));
        p.1.insert(offsets.to_vec(), (dims.to_vec(), part));
        if p.1.values().map(|x| size(&x.0)).sum::<u64>() >= size(full) {
            p.0 = 2;
        }
        let mut list = vec![2, p.0];
        for (o, (d, v)) in &p.1 {
            list.extend(o.iter().map(|&x| x as u64));
            list.extend(d.iter().map(|&x| u64::from(x)));
            list.push(*v);
        }
        let id = h(&list);
        t.insert(id, p);
        id
    })
}

/// Ops whose meaning does not depend on where they run. `None` for all others.
/// What an op without effect makes, by result.
fn results(f: &Function, op: Op, args: &[Val]) -> Vec<(Value, Val)> {
    let Some(v) = pure(f, op, args) else { return Vec::new() };
    let one = |(n, &r): (usize, &Value)| match v {
        Val::Tile(x) if n > 0 => (r, Val::Tile(h(&[13, x, n as u64]))),
        other => (r, other),
    };
    f.results(op).iter().enumerate().map(one).collect()
}

fn pure(f: &Function, op: Op, args: &[Val]) -> Option<Val> {
    let int = |i: usize| match args.get(i) {
        Some(Val::Int(v)) => *v,
        _ => panic!("{} takes an integer", f.opcode(op).name()),
    };
    let result_is_int =
        f.results(op).first().is_some_and(|&v| f.value_data(v).as_scalar().is_some_and(|s| s.is_int()));
    if f.opcode(op) == Opcode::Constant {
        let v = f.attr_number(op, keys::VALUE).expect("a value");
        return Some(if result_is_int {
            Val::Int(v as i64)
        } else if v == 0.0 {
            Val::Tile(ZERO)
        } else {
            Val::Tile(h(&[3, v.to_bits()]))
        });
    }
    if f.opcode(op) == Opcode::ProgramId {
        return Some(Val::Int(0));
    }
    if f.opcode(op) == Opcode::NumPrograms {
        return Some(Val::Int(1));
    }
    if result_is_int && args.iter().all(|a| matches!(a, Val::Int(_))) && !args.is_empty() {
        let (a, b) = (int(0), if args.len() > 1 { int(1) } else { 0 });
        return Some(Val::Int(match f.opcode(op) {
            Opcode::Addi => a.wrapping_add(b),
            Opcode::Subi => a.wrapping_sub(b),
            Opcode::Muli => a.wrapping_mul(b),
            // Numbers are small here: what counts tiles of many elements would be none.
            Opcode::Divi if b >= 16 => a,
            Opcode::Divi => a.checked_div(b).unwrap_or(0),
            Opcode::Remi => a.checked_rem(b).unwrap_or(0),
            Opcode::Maxi => a.max(b),
            Opcode::Mini => a.min(b),
            Opcode::Andi => a & b,
            Opcode::Ori => a | b,
            // Numbers here have no width.
            Opcode::Exti | Opcode::Trunci => a,
            Opcode::Cmpi => i64::from(match f.attr_name(op, keys::PREDICATE).expect("predicate") {
                "eq" => a == b,
                "ne" => a != b,
                "lt" => a < b,
                "le" => a <= b,
                "gt" => a > b,
                _ => a >= b,
            }),
            Opcode::Select => {
                if a != 0 {
                    b
                } else {
                    int(2)
                }
            }
            // What decides nothing is some number, the same wherever it is computed.
            _ => (h(&[5, name(f, op), a as u64, b as u64]) >> 33) as i64,
        }));
    }
    let mut parts = vec![4, name(f, op)];
    for a in args {
        parts.push(match a {
            Val::Int(v) => *v as u64 ^ 0x5555,
            Val::Tile(v) => *v,
            _ => return None,
        });
    }
    let made = h(&parts);
    Some(if result_is_int {
        Val::Int(scalar_at(made) & if is_bit(f, op) { 1 } else { 3 })
    } else {
        Val::Tile(made)
    })
}

/// Whether an op makes a condition.
fn is_bit(f: &Function, op: Op) -> bool {
    f.results(op).first().is_some_and(|&v| f.value_data(v).as_scalar() == Some(Scalar::I1))
}

fn params(f: &Function, ints: &[i64]) -> FxHashMap<Value, Val> {
    let mut n = 0;
    f.params()
        .iter()
        .map(|&p| {
            let v = if f.value_data(p).as_scalar().is_some() {
                n += 1;
                Val::Int(ints.get(n - 1).copied().unwrap_or(1))
            } else {
                Val::Tile(h(&[5, f.params().iter().position(|&q| q == p).unwrap() as u64]))
            };
            (p, v)
        })
        .collect()
}

fn store_key(desc: Val, coords: &[Val]) -> u64 {
    let mut parts = vec![6];
    for v in std::iter::once(&desc).chain(coords) {
        parts.push(match v {
            Val::Int(i) => *i as u64,
            Val::Tile(t) => *t,
            _ => panic!("a descriptor or coordinate"),
        });
    }
    h(&parts)
}

/// Trips of a loop that something else than its bounds ends.
const MOST_EXIT_TRIPS: i64 = 3;

/// The upper bound of a loop. Of one with an exit that may come late, few trips are looked at.
fn upper(f: &Function, l: Op, [lo, hi, step]: [i64; 3]) -> i64 {
    if f.exit_of(l).is_some() { hi.min(lo.saturating_add(MOST_EXIT_TRIPS * step)) } else { hi }
}

/// Whether the exit of a loop says that it ends, by what its condition is; of one that rests on a tile, half of all tiles say so.
fn exits(f: &Function, l: Op, value: impl Fn(Value) -> Val) -> bool {
    f.exit_of(l).is_some_and(|e| match value(f.operands(e)[0]) {
        Val::Int(c) => c != 0,
        Val::Tile(t) => t & 1 != 0,
        _ => panic!("a condition"),
    })
}

// ---- the placed function, in program order

struct Reference<'a> {
    f: &'a Function,
    env: FxHashMap<Value, Val>,
    /// Tiles that are overwritten in place, by the value that first named them.
    out: Outputs,
    cells: Cells,
}

/// Runs a placed function in program order.
pub fn reference(f: &Function, ints: &[i64]) -> Outputs {
    let mut r = Reference { f, env: params(f, ints), out: Outputs::new(), cells: Cells::new() };
    r.block(f.entry());
    with_cells(r.out, r.cells)
}

impl Reference<'_> {
    fn get(&self, v: Value) -> Val {
        *self.env.get(&v).unwrap_or_else(|| panic!("{v} is not defined"))
    }

    fn tile(&self, v: Value) -> u64 {
        match self.get(v) {
            Val::Tile(t) => t,
            o => panic!("{v} is {o:?}"),
        }
    }

    /// Runs a block; returns what its terminator passes on.
    fn block(&mut self, b: Block) -> Vec<Val> {
        let f = self.f;
        for op in f.block_ops(b) {
            let args: Vec<Val> = match f.opcode(op) {
                Opcode::Yield => return f.operands(op).iter().map(|&v| self.get(v)).collect(),
                Opcode::Return => return Vec::new(),
                _ => f.operands(op).iter().map(|&v| self.get(v)).collect(),
            };
            match f.opcode(op) {
                Opcode::For => {
                    let (Val::Int(mut i), Val::Int(hi), Val::Int(step)) = (args[0], args[1], args[2]) else {
                        panic!("bounds")
                    };
                    let body = f.op_block_at(op, 0).unwrap();
                    let mut carried = args[3..].to_vec();
                    let hi = upper(f, op, [i, hi, step]);
                    while i < hi {
                        let ps = f.block_params(body).to_vec();
                        self.env.insert(ps[0], Val::Int(i));
                        for (p, v) in ps[1..].iter().zip(&carried) {
                            self.env.insert(*p, *v);
                        }
                        carried = self.block(body);
                        if exits(f, op, |v| self.get(v)) {
                            break;
                        }
                        i += step;
                    }
                    for (r, v) in f.results(op).iter().zip(carried) {
                        self.env.insert(*r, v);
                    }
                }
                Opcode::If => {
                    let arm = usize::from(args[0] == Val::Int(0));
                    let vals = self.block(f.op_block_at(op, arm).unwrap());
                    for (r, v) in f.results(op).iter().zip(vals) {
                        self.env.insert(*r, v);
                    }
                }
                Opcode::AsyncDot => {
                    let n = name(f, op);
                    let t = |k: &str| self.tile(f.named_operand(op, k).unwrap());
                    let v = h(&[7, n, t("a"), t("b"), t("acc")]);
                    self.env.insert(f.results(op)[0], Val::Tile(v));
                }
                Opcode::AsyncTiledTmaLoad => {
                    let v = h(&[8, store_key(args[0], &args[1..])]);
                    self.env.insert(f.results(op)[0], Val::Tile(v));
                }
                Opcode::TiledLoad => {
                    let v = load(f, op, &self.cells, &args);
                    self.env.insert(f.results(op)[0], v);
                }
                Opcode::AtomicRmw => {
                    let key = store_key(args[1], &args[2..]);
                    let old = atomic(f, op, &mut self.cells, args[0], key);
                    self.env.insert(f.results(op)[0], old);
                }
                Opcode::AsyncTiledTmaStore => {
                    let coords = f.named_segment(op, "coords").len();
                    let v = self.tile(f.named_operand(op, "source").unwrap());
                    self.out.insert(store_key(args[0], &args[1..=coords]), v);
                }
                Opcode::TiledStore => {
                    let v = self.tile(f.named_operand(op, "value").unwrap());
                    self.out.insert(store_key(args[1], &args[2..]), v);
                }
                Opcode::AllocTensor => {
                    self.env.insert(f.results(op)[0], Val::Tile(JUNK));
                }
                Opcode::ExtractSlice if is_stored(f, f.results(op)[0]) => {
                    let (s, r) = (f.operands(op)[0], f.results(op)[0]);
                    let mut offsets = f.attr_ints(op, keys::OFFSETS).unwrap();
                    if let (Some(Val::Int(number)), Some(last)) = (args.get(1), offsets.last_mut()) {
                        *last += number * i64::from(*f.value_data(r).dims().unwrap().last().unwrap());
                    }
                    let v = slice(
                        self.tile(s),
                        f.value_data(s).dims().unwrap(),
                        f.value_data(r).dims().unwrap(),
                        &offsets,
                    );
                    self.env.insert(r, Val::Tile(v));
                }
                Opcode::Copy => match f.named_operand(op, "dest") {
                    None => {
                        self.env.insert(f.results(op)[0], args[0]);
                    }
                    Some(d) => {
                        let s = f.named_operand(op, "source").unwrap();
                        let offsets = f.attr_ints(op, keys::OFFSETS).unwrap_or_default();
                        let full = f.value_data(d).dims().unwrap();
                        let v = insert(
                            self.tile(d),
                            full,
                            f.value_data(s).dims().unwrap(),
                            &offsets,
                            self.tile(s),
                        );
                        self.env.insert(d, Val::Tile(v));
                    }
                },
                _ => {
                    for (r, v) in results(f, op, &args) {
                        self.env.insert(r, v);
                    }
                }
            }
        }
        Vec::new()
    }
}

// ---- the materialised function

#[derive(Clone, Debug)]
struct Barrier {
    count: i64,
    pending: i64,
    tx: i64,
    phase: u32,
}

impl Barrier {
    fn new(count: i64) -> Barrier {
        Barrier { count, pending: count, tx: 0, phase: 0 }
    }
    fn settle(&mut self) {
        assert!(self.pending >= 0, "more arrivals than the barrier counts");
        if self.pending == 0 && self.tx == 0 {
            self.phase += 1;
            self.pending = self.count;
        }
    }
    fn arrive(&mut self, n: i64) {
        self.pending -= n;
        self.settle();
    }
    /// Whether the phase of that parity is complete.
    fn ready(&self, parity: u32) -> bool {
        self.phase & 1 != parity
    }
}

struct Pipe {
    full: Vec<Barrier>,
    empty: Option<Vec<Barrier>>,
    full_kind: String,
    empty_kind: String,
    /// A named barrier stands for both sides: how often lane and others came to it, by what for.
    named: Option<[[u32; 2]; 2]>,
}

/// Why threads come to a named barrier.
const ACQUIRES: usize = 0;
const COMMITS: usize = 1;

/// Which threads of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// The only one.
    Alone,
    /// The issuing lane.
    Lane,
    /// All but the issuing lane.
    Others,
}

impl Part {
    /// The halves of a tile they have.
    fn halves(self) -> std::ops::Range<usize> {
        match self {
            Part::Alone => 0..2,
            Part::Lane => 0..1,
            Part::Others => 1..2,
        }
    }
}

/// A tile in memory, by halves.
type Halves = [u64; 2];

/// What whoever reads both halves reads.
fn whole(halves: Halves) -> u64 {
    if halves[0] == halves[1] { halves[0] } else { h(&[11, halves[0], halves[1]]) }
}

enum Job {
    Dot { a: (Value, u32), b: (Value, u32), acc: (Value, u32), accumulate: bool, name: u64 },
    SignalFull(usize, u32),
    SignalEmpty(usize, u32),
}

struct Frame {
    next: Option<Op>,
    /// The loop: op, induction value, bound, step.
    looping: Option<(Op, i64, i64, i64)>,
    owner: Option<Op>,
}

struct AgentState {
    env: FxHashMap<Value, Val>,
    frames: Vec<Frame>,
    matrix: VecDeque<Job>,
    stores: VecDeque<(u64, (Value, u32))>,
    threads: i64,
    part: Part,
    /// At a named barrier: how often the others must have been there.
    waits: Option<u32>,
}

/// A load under way: tile, cell, pipe, slot, bytes.
type Load = (u64, (Value, u32), usize, u32, i64);

struct Machine<'a> {
    f: &'a Function,
    pipes: Vec<Pipe>,
    pipe_of: FxHashMap<Value, usize>,
    memory: FxHashMap<(Value, u32), Halves>,
    /// Of buffers that lie at one place: the first of them.
    place: FxHashMap<Value, Value>,
    /// Slots of scalar channels.
    scalars: FxHashMap<(Value, u32), [Val; 2]>,
    agents: Vec<AgentState>,
    loads: Vec<Load>,
    out: BTreeMap<u64, Halves>,
    cells: Cells,
}

/// Why a run ended badly.
#[derive(Debug, PartialEq, Eq)]
pub enum Stuck {
    /// No agent can go on.
    Deadlock,
}

/// Runs a materialised function with one interleaving; `seed` picks it.
pub fn run(f: &Function, ints: &[i64], seed: u64) -> Result<Outputs, Stuck> {
    let mut base = params(f, ints);
    let mut m = Machine {
        f,
        pipes: Vec::new(),
        pipe_of: FxHashMap::default(),
        memory: FxHashMap::default(),
        place: FxHashMap::default(),
        scalars: FxHashMap::default(),
        agents: Vec::new(),
        loads: Vec::new(),
        out: BTreeMap::new(),
        cells: Cells::new(),
    };
    let mut buffers: Vec<(Value, Option<i64>)> = Vec::new();
    for op in f.block_ops(f.entry()) {
        match f.opcode(op) {
            Opcode::AllocTensor => {
                let v = f.results(op)[0];
                let at = f.attr_int(op, keys::OFFSET);
                let same = |b: &&(Value, Option<i64>)| {
                    at.is_some() && b.1 == at && f.value_type(b.0) == f.value_type(v)
                };
                match buffers.iter().find(same) {
                    Some(b) => drop(m.place.insert(v, b.0)),
                    None => buffers.push((v, at)),
                }
            }
            Opcode::AsyncPipelineCreatePipeline => {
                let depth = f.attr_int(op, keys::NUM_STAGES).unwrap() as usize;
                let (fk, fa) = f.attr_call(op, keys::FULL).unwrap();
                let (ek, ea) = f.attr_call(op, keys::EMPTY).unwrap();
                for &r in f.results(op) {
                    m.pipe_of.insert(r, m.pipes.len());
                    base.insert(r, Val::Own(m.pipes.len(), u32::MAX));
                }
                m.pipes.push(Pipe {
                    full: vec![Barrier::new(fa[0]); depth],
                    empty: (ek != "none").then(|| vec![Barrier::new(ea[0]); depth]),
                    full_kind: fk.to_string(),
                    empty_kind: ek.to_string(),
                    named: f.has_attr(op, keys::NAMED).then_some([[0; 2]; 2]),
                });
            }
            Opcode::AsyncPipelineAgentSwitch => {
                let warps = f.attr_ints(op, keys::NUM_WARPS).unwrap();
                let Some(AttrData::Array(lanes)) = f.attr(op, keys::LANES) else { panic!("lanes") };
                for (n, lane) in lanes.iter().enumerate() {
                    let elect = matches!(f.attr_data(*lane), AttrData::Name(s) if f.symbol(*s) == "elect");
                    let all = if elect { 1 } else { warps[n] * 32 };
                    let parts: &[(Part, i64)] = match all {
                        1 => &[(Part::Alone, 1)],
                        n => &[(Part::Lane, 1), (Part::Others, n - 1)],
                    };
                    for &(part, threads) in parts {
                        m.agents.push(AgentState {
                            env: base.clone(),
                            frames: vec![Frame {
                                next: f.first_op(f.op_block_at(op, n).unwrap()),
                                looping: None,
                                owner: None,
                            }],
                            matrix: VecDeque::new(),
                            stores: VecDeque::new(),
                            threads,
                            part,
                            waits: None,
                        });
                    }
                }
            }
            Opcode::Return => {}
            _ => {
                let args: Vec<Val> = f.operands(op).iter().map(|v| base[v]).collect();
                if let (Some(&r), Some(v)) = (f.results(op).first(), pure(f, op, &args)) {
                    base.insert(r, v);
                }
            }
        }
    }
    m.execute(seed)
}

impl Machine<'_> {
    fn execute(mut self, seed: u64) -> Result<Outputs, Stuck> {
        let mut rng = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = move |n: usize| {
            rng ^= rng << 13;
            rng ^= rng >> 7;
            rng ^= rng << 17;
            (rng % n as u64) as usize
        };
        let mut idle = 0;
        let n = self.agents.len();
        loop {
            // Agents run in bursts and engines lag, so that races show.
            let pick = next(2 * n + 2);
            let moved = if pick < n {
                let mut any = false;
                for _ in 0..=next(12) {
                    if !self.step(pick) {
                        break;
                    }
                    any = true;
                }
                any
            } else if pick < 2 * n {
                if next(2) == 0 { self.matrix(pick - n) } else { self.bulk(pick - n) }
            } else if self.loads.is_empty() {
                false
            } else {
                let k = next(self.loads.len());
                self.load(k);
                true
            };
            if moved {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle > 64 * (n + 1) {
                // Try everything once before giving up.
                let mut any = !self.loads.is_empty();
                if any {
                    self.load(0);
                }
                for a in 0..n {
                    any |= self.step(a) | self.matrix(a) | self.bulk(a);
                }
                if !any {
                    break;
                }
                idle = 0;
            }
        }
        if self.agents.iter().all(|a| a.frames.is_empty()) {
            let out = self.out.into_iter().map(|(k, v)| (k, whole(v))).collect();
            Ok(with_cells(out, self.cells))
        } else {
            Err(Stuck::Deadlock)
        }
    }

    fn load(&mut self, k: usize) {
        let (v, at, pipe, slot, bytes) = self.loads.swap_remove(k);
        self.memory.insert(at, [v; 2]);
        let b = &mut self.pipes[pipe].full[slot as usize];
        b.tx -= bytes;
        b.settle();
    }

    fn halves(&self, at: (Value, u32)) -> Halves {
        self.memory.get(&at).copied().unwrap_or([JUNK; 2])
    }

    fn cell(&self, at: (Value, u32)) -> u64 {
        whole(self.halves(at))
    }

    /// Stores a tile to global memory.
    fn store(&mut self, key: u64, part: Part, v: u64) {
        self.out.entry(key).or_insert([JUNK; 2])[part.halves()].fill(v);
    }

    /// Comes to the named barrier of a pipe; whether all threads of the agent are there.
    fn meet(&mut self, a: usize, p: usize, why: usize) -> bool {
        let half = self.agents[a].part.halves().start;
        let Some(came) = &mut self.pipes[p].named else { return true };
        let came = &mut came[why];
        let turn = *self.agents[a].waits.get_or_insert_with(|| {
            came[half] += 1;
            came[half]
        });
        let all = self.agents[a].part == Part::Alone || came[1 - half] >= turn;
        if all {
            self.agents[a].waits = None;
        }
        all
    }

    /// Whether an op is the issuing lane's alone.
    fn is_lanes(&self, op: Op) -> bool {
        let has = |key| self.f.has_attr(op, key);
        match self.f.opcode(op) {
            Opcode::AsyncTiledTmaLoad
            | Opcode::AsyncTiledTmaStore
            | Opcode::AsyncDot
            | Opcode::AsyncPipelineStoreWait => true,
            Opcode::AsyncPipelineProducerAcquire | Opcode::AsyncPipelineConsumerWait => has(keys::ISSUER),
            Opcode::AsyncPipelineProducerCommit => has(keys::TX) || has(keys::BULK_PENDING),
            Opcode::AsyncPipelineConsumerRelease => has(keys::BULK_PENDING),
            _ => false,
        }
    }

    /// What an op of the lane's means to the others.
    fn pass(&mut self, a: usize, op: Op, args: &[Val]) {
        let own = match args.get(1).or(args.first()) {
            Some(&Val::Iter(p, s, _)) => Val::Own(p, s),
            Some(&own @ Val::Own(..)) => own,
            _ => Val::Token,
        };
        let token = matches!(
            self.f.opcode(op),
            Opcode::AsyncTiledTmaLoad | Opcode::AsyncTiledTmaStore | Opcode::AsyncDot
        );
        let own = match args.first() {
            Some(&first @ Val::Own(_, slot)) if slot != u32::MAX => first,
            _ => own,
        };
        for n in 0..self.f.results(op).len() {
            self.set(a, op, n, if token { Val::Token } else { own });
        }
    }

    fn matrix(&mut self, a: usize) -> bool {
        match self.agents[a].matrix.pop_front() {
            None => false,
            Some(Job::Dot { a, b, acc, accumulate, name }) => {
                let old = if accumulate { self.cell(acc) } else { ZERO };
                let v = h(&[7, name, self.cell(a), self.cell(b), old]);
                self.memory.insert(acc, [v; 2]);
                true
            }
            Some(Job::SignalFull(p, s)) => {
                self.pipes[p].full[s as usize].arrive(1);
                true
            }
            Some(Job::SignalEmpty(p, s)) => {
                if let Some(e) = &mut self.pipes[p].empty {
                    e[s as usize].arrive(1);
                }
                true
            }
        }
    }

    fn bulk(&mut self, a: usize) -> bool {
        let Some((key, at)) = self.agents[a].stores.pop_front() else { return false };
        let v = self.cell(at);
        self.store(key, Part::Alone, v);
        true
    }

    fn get(&self, a: usize, v: Value) -> Val {
        *self.agents[a].env.get(&v).unwrap_or_else(|| panic!("{v} is not defined in agent {a}"))
    }

    fn set(&mut self, a: usize, op: Op, n: usize, v: Val) {
        let r = self.f.results(op)[n];
        self.agents[a].env.insert(r, v);
    }

    fn slot(&self, a: usize, v: Value) -> u32 {
        match self.get(a, v) {
            Val::Iter(_, s, _) => s,
            Val::Int(i) => i as u32,
            o => panic!("a slot is {o:?}"),
        }
    }

    fn at(&self, a: usize, op: Op, buffer: &str, stage: &str) -> (Value, u32) {
        let b = self.f.named_operand(op, buffer).unwrap();
        let b = self.place.get(&b).copied().unwrap_or(b);
        (b, self.slot(a, self.f.named_operand(op, stage).unwrap()))
    }

    /// Executes one op of an agent; false when it has to wait or has ended.
    fn step(&mut self, a: usize) -> bool {
        let f = self.f;
        let Some(op) = self.agents[a].frames.last().and_then(|fr| fr.next) else { return false };
        let opcode = f.opcode(op);
        let args: Vec<Val> = f
            .operands(op)
            .iter()
            .map(|&v| if is_stored(f, v) { Val::Token } else { self.get(a, v) })
            .collect();
        if self.agents[a].part == Part::Others && self.is_lanes(op) {
            self.pass(a, op, &args);
            self.agents[a].frames.last_mut().unwrap().next = f.next_op(op);
            return true;
        }
        match opcode {
            Opcode::AsyncPipelineYield => {
                self.agents[a].frames.pop();
                return true;
            }
            Opcode::Yield => {
                self.end_block(a, &args);
                return true;
            }
            Opcode::For => {
                let (Val::Int(i), Val::Int(hi), Val::Int(step)) = (args[0], args[1], args[2]) else {
                    panic!("bounds")
                };
                let hi = upper(f, op, [i, hi, step]);
                self.enter(a, op, i, hi, step, &args[3..]);
                return true;
            }
            Opcode::If => {
                let arm = usize::from(args[0] == Val::Int(0));
                let b = f.op_block_at(op, arm).unwrap();
                self.agents[a].frames.last_mut().unwrap().next = f.next_op(op);
                self.agents[a].frames.push(Frame { next: f.first_op(b), looping: None, owner: Some(op) });
                return true;
            }
            Opcode::AsyncPipelineCreateIterator => {
                let Val::Own(p, _) = args[0] else { panic!("an end") };
                self.set(a, op, 0, Val::Iter(p, 0, 0));
            }
            Opcode::AsyncPipelineIncIter => {
                let Val::Iter(p, s, ph) = args[0] else { panic!("an iterator") };
                let depth = self.pipes[p].full.len() as u32;
                self.set(
                    a,
                    op,
                    0,
                    if s + 1 == depth { Val::Iter(p, 0, ph ^ 1) } else { Val::Iter(p, s + 1, ph) },
                );
            }
            Opcode::AsyncPipelineProducerAcquire => {
                let Val::Iter(p, s, ph) = args[1] else { panic!("an iterator") };
                if let Some(e) = &self.pipes[p].empty
                    && (!e[s as usize].ready(ph ^ 1) || !self.meet(a, p, ACQUIRES))
                {
                    return false;
                }
                self.set(a, op, 0, Val::Own(p, s));
            }
            Opcode::AsyncPipelineConsumerWait => {
                let Val::Iter(p, s, ph) = args[1] else { panic!("an iterator") };
                if !self.pipes[p].full[s as usize].ready(ph) {
                    return false;
                }
                self.set(a, op, 0, Val::Own(p, s));
            }
            Opcode::AsyncPipelineProducerCommit => {
                let Val::Own(p, s) = args[0] else { panic!("ownership") };
                let threads = self.agents[a].threads;
                let bytes = f.attr_int(op, keys::TX).unwrap_or(0);
                let stores = self.agents[a].stores.len() as i64;
                if f.attr_int(op, keys::BULK_PENDING).is_some_and(|n| stores > n) {
                    return false;
                }
                if !self.meet(a, p, COMMITS) {
                    return false;
                }
                let pipe = &mut self.pipes[p];
                match pipe.full_kind.as_str() {
                    "tx" => {
                        pipe.full[s as usize].tx += bytes;
                        pipe.full[s as usize].arrive(1);
                    }
                    "commit" => self.agents[a].matrix.push_back(Job::SignalFull(p, s)),
                    // The lane that stored, when its bulk groups are complete.
                    _ if f.has_attr(op, keys::BULK_PENDING) => pipe.full[s as usize].arrive(1),
                    _ => pipe.full[s as usize].arrive(threads),
                }
                self.set(a, op, 0, args[0]);
            }
            Opcode::AsyncPipelineStoreWait => {
                if !self.agents[a].stores.is_empty() {
                    return false;
                }
            }
            Opcode::AsyncPipelineConsumerRelease => {
                let Val::Own(p, s) = args[0] else { panic!("ownership") };
                let threads = self.agents[a].threads;
                if let Some(n) = f.attr_int(op, keys::BULK_PENDING) {
                    if self.agents[a].stores.len() as i64 > n {
                        return false;
                    }
                    if let Some(e) = &mut self.pipes[p].empty {
                        e[s as usize].arrive(1);
                    }
                } else if self.pipes[p].empty_kind == "commit" && self.agents[a].part == Part::Alone {
                    self.agents[a].matrix.push_back(Job::SignalEmpty(p, s));
                } else if let Some(e) = &mut self.pipes[p].empty {
                    e[s as usize].arrive(threads);
                }
                self.set(a, op, 0, args[0]);
            }
            Opcode::AsyncTiledTmaLoad => {
                let coords = f.named_segment(op, "coords").len();
                let v = h(&[8, store_key(args[0], &args[1..=coords])]);
                let at = self.at(a, op, "buffer", "stage");
                let Val::Own(p, s) = self.get(a, f.named_operand(op, "barrier").unwrap()) else {
                    panic!("a barrier")
                };
                let slots = f.value_data(at.0).dims().unwrap()[0];
                let bytes = f.value_data(at.0).num_bytes().unwrap() as i64 / i64::from(slots);
                self.loads.push((v, at, p, s, bytes));
                self.set(a, op, 0, Val::Token);
            }
            Opcode::AsyncTiledTmaStore => {
                let coords = f.named_segment(op, "coords").len();
                let at = self.at(a, op, "source", "stage");
                self.agents[a].stores.push_back((store_key(args[0], &args[1..=coords]), at));
                self.set(a, op, 0, Val::Token);
            }
            Opcode::AsyncDot => {
                let accumulate =
                    f.named_operand(op, "accumulate").is_none_or(|v| self.get(a, v) != Val::Int(0));
                let job = Job::Dot {
                    a: self.at(a, op, "a", "a_stage"),
                    b: self.at(a, op, "b", "b_stage"),
                    acc: self.at(a, op, "acc", "acc_stage"),
                    accumulate,
                    name: name(f, op),
                };
                self.agents[a].matrix.push_back(job);
                self.set(a, op, 0, Val::Token);
            }
            Opcode::TiledLoad => {
                let v = load(f, op, &self.cells, &args);
                self.set(a, op, 0, v);
            }
            Opcode::AtomicRmw => {
                let key = store_key(args[1], &args[2..]);
                let old = atomic(f, op, &mut self.cells, args[0], key);
                self.set(a, op, 0, old);
            }
            Opcode::TiledStore => {
                let Val::Tile(v) = args[0] else { panic!("a tile") };
                self.store(store_key(args[1], &args[2..]), self.agents[a].part, v);
            }
            Opcode::Copy => self.copy(a, op),
            _ => {
                for (r, v) in results(f, op, &args) {
                    self.agents[a].env.insert(r, v);
                }
            }
        }
        self.agents[a].frames.last_mut().unwrap().next = f.next_op(op);
        true
    }

    fn copy(&mut self, a: usize, op: Op) {
        let f = self.f;
        let source = f.named_operand(op, "source").unwrap();
        let when = f.named_operand(op, "when").is_none_or(|v| self.get(a, v) != Val::Int(0));
        let mut offsets = f.attr_ints(op, keys::OFFSETS).unwrap_or_default();
        let result = f.results(op).first().copied();
        if let (Some(v), Some(r)) = (f.named_operand(op, "number"), result)
            && let Val::Int(number) = self.get(a, v)
        {
            let width = *f.value_data(r).dims().unwrap().last().unwrap();
            *offsets.last_mut().unwrap() += number * i64::from(width);
        }
        if let Some(r) = result
            && f.value_data(r).as_scalar().is_some()
        {
            let at = self.at(a, op, "source", "source_stage");
            let v = self.scalars.get(&at).copied().unwrap_or([Val::Int(UNWRITTEN); 2]);
            return self.set(a, op, 0, if v[0] == v[1] { v[0] } else { Val::Int(UNWRITTEN) });
        }
        if f.value_data(source).as_scalar().is_some() {
            let at = self.at(a, op, "dest", "dest_stage");
            let v = self.get(a, source);
            let part = self.agents[a].part;
            self.scalars.entry(at).or_insert([Val::Int(UNWRITTEN); 2])[part.halves()].fill(v);
            return;
        }
        let tile = if is_stored(f, source) {
            let at = self.at(a, op, "source", "source_stage");
            let full = &f.value_data(source).dims().unwrap()[1..];
            let dims: Vec<u32> = match result {
                Some(r) => f.value_data(r).dims().unwrap().to_vec(),
                None => full.to_vec(),
            };
            let own = f.value_data(source).space() == Some(Space::Tmem);
            let held = if own { self.halves(at)[self.agents[a].part.halves().start] } else { self.cell(at) };
            if when { slice(held, full, &dims, &offsets) } else { ZERO }
        } else {
            match self.get(a, source) {
                Val::Tile(t) => t,
                o => panic!("copy of {o:?}"),
            }
        };
        match f.named_operand(op, "dest") {
            Some(d) => {
                let at = self.at(a, op, "dest", "dest_stage");
                let full = f.value_data(d).dims().unwrap()[1..].to_vec();
                let dims: Vec<u32> = f.value_data(source).dims().unwrap().to_vec();
                let mut halves = self.halves(at);
                for half in self.agents[a].part.halves() {
                    halves[half] = insert(halves[half], &full, &dims, &offsets, tile);
                }
                self.memory.insert(at, halves);
            }
            None => self.set(a, op, 0, Val::Tile(tile)),
        }
    }

    fn enter(&mut self, a: usize, op: Op, i: i64, hi: i64, step: i64, carried: &[Val]) {
        let f = self.f;
        if i >= hi {
            for (n, v) in carried.iter().enumerate() {
                self.set(a, op, n, *v);
            }
            self.agents[a].frames.last_mut().unwrap().next = f.next_op(op);
            return;
        }
        let body = f.op_block_at(op, 0).unwrap();
        self.bind_params(a, body, i, carried);
        self.agents[a].frames.last_mut().unwrap().next = f.next_op(op);
        self.agents[a].frames.push(Frame {
            next: f.first_op(body),
            looping: Some((op, i, hi, step)),
            owner: Some(op),
        });
    }

    fn bind_params(&mut self, a: usize, body: Block, i: i64, carried: &[Val]) {
        let ps = self.f.block_params(body).to_vec();
        self.agents[a].env.insert(ps[0], Val::Int(i));
        for (p, v) in ps[1..].iter().zip(carried) {
            self.agents[a].env.insert(*p, *v);
        }
    }

    fn end_block(&mut self, a: usize, values: &[Val]) {
        let f = self.f;
        let frame = self.agents[a].frames.pop().unwrap();
        let owner = frame.owner.expect("a region op");
        if let Some((op, i, hi, step)) = frame.looping
            && i + step < hi
            && !exits(f, op, |v| self.get(a, v))
        {
            let body = f.op_block_at(op, 0).unwrap();
            self.bind_params(a, body, i + step, values);
            self.agents[a].frames.push(Frame {
                next: f.first_op(body),
                looping: Some((op, i + step, hi, step)),
                owner: Some(op),
            });
            return;
        }
        for (n, v) in values.iter().enumerate() {
            self.set(a, owner, n, *v);
        }
    }
}
