//! What shares storage: the check accepts every kernel that compiles, and no damaged sharing that changes a value.
//!
//! The kernels of `examples/` and `filetests/` are placed, and damaged in two ways: a copy from one place to another is
//! dropped, so that two values become one; two webs are merged into one. The judge executes the placed function twice in
//! one go, each tile in a place of its own and each tile in the place of its web, for several trip counts and ways
//! through branches; contents are numbers made from what was read. It shares nothing with the check: no state of a
//! way, no fixpoint, no parts but cells of 8 columns.

use cranelift_entity::{EntityRef, EntitySet};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tileas_codegen::ir::{Block, Function, Op, Opcode, Space, Value, keys};
use tileas_codegen::settings::Settings;
use tileas_codegen::testing::storage::{Web, Webs, build_webs, check};
use tileas_codegen::{Context, Stage};

/// Content that nothing was written to yet.
const NOTHING: u64 = 0;
/// Columns of a cell.
const CELL: i64 = 8;

fn mix(a: u64, b: u64) -> u64 {
    let x = (a ^ b.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ x >> 31
}

/// What a register tile holds: by place of its own, and by shared place.
type Both = (u64, u64);

struct Judge<'a> {
    func: &'a Function,
    webs: &'a Webs,
    rings: &'a EntitySet<Web>,
    trips: i64,
    arms: u64,
    branches: u32,
    own: HashMap<(Value, usize), u64>,
    shared: HashMap<(Web, usize), u64>,
    registers: HashMap<Value, Both>,
    numbers: HashMap<Value, i64>,
    steps: u64,
    agrees: bool,
}

impl Judge<'_> {
    fn stored(&self, v: Value) -> bool {
        matches!(self.func.value_data(v).space(), Some(Space::Smem | Space::Tmem))
            && self.func.value_data(v).is_tile()
    }

    /// The tile behind a value and the cells of it that the value is, rows in strips of 32.
    fn cells(&self, v: Value, moved: &[i64], extents: &[u32]) -> (Value, Vec<usize>) {
        let mut offsets: Vec<i64> = moved.to_vec();
        offsets.resize(extents.len(), 0);
        let mut base = v;
        while let Some(op) = self.func.defining_op(base) {
            if self.func.opcode(op) != Opcode::ExtractSlice {
                break;
            }
            let width = self.func.value_data(base).dims().and_then(|d| d.last()).copied().unwrap_or(1);
            let number = self.func.named_operand(op, "number").map_or(0, |n| self.numbers[&n]);
            for (o, add) in offsets.iter_mut().zip(self.func.attr_ints(op, keys::OFFSETS).unwrap_or_default())
            {
                *o += add;
            }
            if let Some(last) = offsets.last_mut() {
                *last += number * i64::from(width);
            }
            base = self.func.named_operand(op, "source").expect("a slice of something");
        }
        let rank = extents.len();
        let columns = |n: i64| (n + CELL - 1) / CELL;
        let all = self.func.value_data(base).dims().expect("a tile");
        let row = columns(i64::from(all[rank - 1]));
        let (c0, c1) = (offsets[rank - 1] / CELL, columns(offsets[rank - 1] + i64::from(extents[rank - 1])));
        let (r0, r1) = match rank {
            1 => (0, 1),
            n => (offsets[n - 2] / 32, (offsets[n - 2] + i64::from(extents[n - 2]) + 31) / 32),
        };
        let cells = (r0..r1).flat_map(|r| (c0..c1).map(move |c| (r * row + c) as usize)).collect();
        (base, cells)
    }

    fn whole(&self, v: Value) -> (Value, Vec<usize>) {
        let dims: Vec<u32> = self.func.value_data(v).dims().expect("a tile").to_vec();
        self.cells(v, &[], &dims)
    }

    fn read(&mut self, (base, cells): (Value, Vec<usize>)) -> Both {
        let mut out = (7, 7);
        for c in cells {
            let own = self.own.get(&(base, c)).copied().unwrap_or(NOTHING);
            let web = self.webs.of[base].expand();
            // Versions of a ring, and what a flag says is not written, are not told apart by place.
            let shared = match web.filter(|w| own != NOTHING && !self.rings.contains(*w)) {
                Some(w) => self.shared.get(&(w, c)).copied().unwrap_or(NOTHING),
                None => own,
            };
            out = (mix(out.0, own), mix(out.1, shared));
        }
        self.agrees &= out.0 == out.1;
        out
    }

    fn write(&mut self, (base, cells): (Value, Vec<usize>), content: Both) {
        for c in cells {
            self.own.insert((base, c), mix(content.0, c as u64) | 1);
            if let Some(w) = self.webs.of[base].expand() {
                self.shared.insert((w, c), mix(content.1, c as u64) | 1);
            }
        }
    }

    /// `to` is what `from` is.
    fn hand_on(&mut self, from: Value, to: Value) {
        if let Some(&both) = self.registers.get(&from) {
            self.registers.insert(to, both);
        }
        if self.stored(to) {
            let (base, cells) = self.whole(from);
            for (n, c) in cells.into_iter().enumerate() {
                let own = self.own.get(&(base, c)).copied().unwrap_or(NOTHING);
                self.own.insert((to, n), own);
            }
        }
    }

    fn content(&mut self, op: Op) -> Both {
        self.steps += 1;
        let seed = mix(op.index() as u64, self.steps);
        let mut out = (seed, seed);
        for &v in self.func.operands(op) {
            let both = if self.stored(v) {
                let whole = self.whole(v);
                self.read(whole)
            } else {
                self.registers.get(&v).copied().unwrap_or((1, 1))
            };
            out = (mix(out.0, both.0), mix(out.1, both.1));
        }
        out
    }

    fn yields(&self, block: Block) -> Vec<Value> {
        let end = self.func.last_op(block).filter(|&t| self.func.opcode(t) == Opcode::Yield);
        end.map_or_else(Vec::new, |t| self.func.operands(t).to_vec())
    }

    /// All of `from` become all of `to` at once.
    fn hand_on_all(&mut self, from: &[Value], to: &[Value]) {
        let (own, registers) = (self.own.clone(), self.registers.clone());
        for (&f, &t) in from.iter().zip(to) {
            let now = (std::mem::replace(&mut self.own, own.clone()), self.registers.clone());
            self.registers = registers.clone();
            self.hand_on(f, t);
            let made: Vec<_> = self.own.iter().filter(|e| e.0.0 == t).map(|(k, v)| (*k, *v)).collect();
            let register = self.registers.get(&t).copied();
            (self.own, self.registers) = now;
            self.own.extend(made);
            if let Some(r) = register {
                self.registers.insert(t, r);
            }
        }
    }

    fn block(&mut self, block: Block) {
        for op in self.func.block_ops(block) {
            match self.func.opcode(op) {
                Opcode::ExtractSlice if self.func.results(op).iter().all(|&v| self.stored(v)) => {}
                Opcode::Yield | Opcode::AllocTensor => {}
                Opcode::Constant if self.func.results(op).iter().all(|&v| self.stored(v)) => {}
                Opcode::For => {
                    let body = self.func.op_block_at(op, 0).expect("a body");
                    let params = self.func.block_params(body).to_vec();
                    let bound = |n| self.func.named_operand(op, n).and_then(|v| self.func.constant_value(v));
                    let trips = match (bound("lower"), bound("upper"), bound("step")) {
                        (Some(a), Some(b), Some(s)) if s > 0.0 => {
                            ((b - a) / s).ceil().clamp(0.0, 16.0) as i64
                        }
                        _ => self.trips,
                    };
                    self.hand_on_all(self.func.named_segment(op, "inits"), &params[1..]);
                    for i in 0..trips {
                        self.numbers.insert(params[0], i);
                        self.block(body);
                        self.hand_on_all(&self.yields(body), &params[1..]);
                    }
                    self.hand_on_all(&params[1..], self.func.results(op));
                }
                Opcode::If => {
                    let n = (self.arms >> (self.branches % 16) & 1) as usize;
                    self.branches += 1;
                    if let Some(block) = self.func.op_block_at(op, n) {
                        self.block(block);
                        self.hand_on_all(&self.yields(block), self.func.results(op));
                    }
                }
                Opcode::Copy => {
                    let source = self.func.named_operand(op, "source").expect("a source");
                    let offsets = self.func.attr_ints(op, keys::OFFSETS).unwrap_or_default().to_vec();
                    let dest = self.func.named_operand(op, "dest");
                    let shape = dest.is_some().then_some(source).or(self.func.result(op)).unwrap_or(source);
                    let dims: Vec<u32> = self.func.value_data(shape).dims().expect("a tile").to_vec();
                    let what = if self.stored(source) {
                        let from = self.cells(source, if dest.is_none() { &offsets } else { &[] }, &dims);
                        self.read(from)
                    } else {
                        self.registers.get(&source).copied().unwrap_or((1, 1))
                    };
                    match (dest, self.func.result(op)) {
                        (Some(d), _) => {
                            let to = self.cells(d, &offsets, &dims);
                            self.write(to, what);
                        }
                        (None, Some(r)) if self.stored(r) => {
                            let to = self.whole(r);
                            self.write(to, what);
                        }
                        (None, Some(r)) => {
                            self.registers.insert(r, what);
                        }
                        _ => {}
                    }
                }
                _ => {
                    let content = self.content(op);
                    for &v in self.func.results(op) {
                        if self.stored(v) {
                            let to = self.whole(v);
                            self.write(to, content);
                        } else {
                            self.registers.insert(v, content);
                        }
                    }
                }
            }
        }
    }
}

/// Whether each tile has what it would have in a place of its own, on every way that is tried.
fn harmless(func: &Function, webs: &Webs, rings: &EntitySet<Web>) -> bool {
    (0..4).all(|trips| {
        [0x0000, 0xffff, 0x5555, 0xaaaa, 0x3336].into_iter().all(|arms| {
            let mut j = Judge {
                func,
                webs,
                rings,
                trips,
                arms,
                branches: 0,
                own: HashMap::new(),
                shared: HashMap::new(),
                registers: HashMap::new(),
                numbers: HashMap::new(),
                steps: 0,
                agrees: true,
            };
            j.block(func.entry());
            j.agrees
        })
    })
}

/// All kernel texts, in order.
fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut out: Vec<PathBuf> = ["examples", "filetests/filetests/execute", "filetests/filetests/storage"]
        .iter()
        .flat_map(|d| {
            std::fs::read_dir(root.join(d)).into_iter().flatten().filter_map(|e| Some(e.ok()?.path()))
        })
        .filter(|p| p.extension().is_some_and(|x| x == "tileas"))
        .collect();
    out.sort();
    out
}

#[derive(Default, Debug)]
struct Tally {
    kernels: usize,
    mutants: usize,
    refused: usize,
    /// Accepted, and harmless.
    equivalent: usize,
    /// Refused, although no way that was tried shows a difference.
    strict: usize,
}

fn judge(name: &str, func: &Function, webs: &Webs, rings: &EntitySet<Web>, tally: &mut Tally) {
    tally.mutants += 1;
    match (check(func, webs, rings), harmless(func, webs, rings)) {
        (Ok(()), true) => tally.equivalent += 1,
        (Ok(()), false) => panic!("{name}: accepted, and a tile is not what it was"),
        (Err(e), harmless) => {
            assert_eq!(format!("{}", e.code), "E0601", "{name}");
            tally.refused += 1;
            tally.strict += usize::from(harmless);
        }
    }
}

/// The tile whose content a tile in destination form is a copy of, slice by slice.
fn copied_from(func: &Function, v: Value) -> Option<Value> {
    let mut from = None;
    let slice = |mut v: Value| {
        while let Some(op) = func.defining_op(v).filter(|&op| func.opcode(op) == Opcode::ExtractSlice) {
            v = func.named_operand(op, "source")?;
        }
        Some(v)
    };
    let mut writes: Vec<Op> = func.all_ops();
    writes.retain(|&op| {
        func.opcode(op) == Opcode::Copy
            && (func.named_operand(op, "dest") == Some(v)
                || func.result(op) == Some(v) && func.named_operand(op, "dest").is_none())
    });
    for op in writes {
        let read = func.defining_op(func.named_operand(op, "source")?)?;
        if func.opcode(read) != Opcode::Copy {
            return None;
        }
        let base = slice(func.named_operand(read, "source")?)?;
        if func.value_type(base) != func.value_type(v) || from.is_some_and(|f| f != base) {
            return None;
        }
        from = Some(base);
    }
    from
}

#[test]
fn no_sharing_that_changes_a_value_is_accepted() {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
    let (mut merged, mut dropped) = (Tally::default(), Tally::default());
    for path in files() {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (settings, mut context) = (Settings::default(), Context::new());
        let Ok(module) = context.parse(&text, &settings) else { continue };
        let Ok(states) = context.run_to(Stage::Schedule, &module, &*isa, &settings) else { continue };
        for state in &states.kernels {
            let (Some(func), Some(buffers)) = (&state.placed, &state.buffers) else { continue };
            let (webs, rings) = (&buffers.webs, &buffers.rings());
            merged.kernels += 1;
            assert!(check(func, webs, rings).is_ok(), "{name}");
            assert!(harmless(func, webs, rings), "{name}");
            let all: Vec<Web> = webs.webs.keys().filter(|&w| !webs.webs[w].scalar).collect();
            for (n, &a) in all.iter().enumerate() {
                for &b in &all[n + 1..] {
                    let (x, y) = (&webs.webs[a], &webs.webs[b]);
                    if x.space != y.space || x.dims != y.dims || rings.contains(a) || rings.contains(b) {
                        continue;
                    }
                    let mut both = webs.clone();
                    let values = both.webs[b].values.clone();
                    for &v in &values {
                        both.of[v] = a.into();
                    }
                    both.webs[a].values.extend(values);
                    judge(&format!("{name}: {a} and {b}"), func, &both, rings, &mut merged);
                }
            }
            for &v in webs.webs.values().flat_map(|w| &w.values) {
                let Some(from) = copied_from(func, v) else { continue };
                let mut damaged = func.clone();
                for op in func.all_ops() {
                    if func.named_operand(op, "dest") == Some(v) {
                        damaged.remove_op(op);
                        continue;
                    }
                    for n in 0..func.operands(op).len() {
                        if func.operands(op)[n] == v {
                            damaged.set_operand(op, n, from);
                        }
                    }
                }
                let Ok(webs) = build_webs(&damaged) else { continue };
                dropped.kernels += 1;
                judge(
                    &format!("{name}: without the copy to {v}"),
                    &damaged,
                    &webs,
                    &EntitySet::new(),
                    &mut dropped,
                );
            }
        }
    }
    println!("merged: {merged:?}\ndropped: {dropped:?}");
    assert!(merged.refused > 20 && dropped.refused > 5, "merged {merged:?}, dropped {dropped:?}");
}
