//! What a kernel computes before and after placement, by a tile interpreter that knows storage.
//!
//! Before placement every tile is a value. After it, an accumulator is storage: a dot and a copy into it overwrite
//! what all earlier names of it see, as on hardware. A slice read too late, written too early or cut wrongly
//! changes what the kernel stores.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use tileas_codegen::ir::opcodes::keys;
use tileas_codegen::ir::{Block, Function, Op, Opcode, Space, Value, parse_module, print_function};
use tileas_codegen::testing::agents::{AgentOptions, plan_agents};
use tileas_codegen::testing::place::{PlaceOptions, place};

type Tile = Rc<RefCell<Vec<f64>>>;

#[derive(Clone)]
enum Datum {
    Number(f64),
    Tile(Tile),
    View(String),
}

struct Machine<'a> {
    f: &'a Function,
    env: BTreeMap<u32, Datum>,
    /// What was stored: view and element position to value.
    memory: BTreeMap<(String, Vec<i64>), f64>,
    program: [f64; 2],
}

impl Machine<'_> {
    fn dims(&self, v: Value) -> Vec<i64> {
        self.f.value_data(v).dims().unwrap().iter().map(|&d| i64::from(d)).collect()
    }
    fn number(&self, v: Value) -> f64 {
        match &self.env[&v.as_u32()] {
            Datum::Number(n) => *n,
            _ => panic!("not a number"),
        }
    }
    fn tile(&self, v: Value) -> Tile {
        match &self.env[&v.as_u32()] {
            Datum::Tile(t) => t.clone(),
            _ => panic!("not a tile"),
        }
    }
    fn view(&self, v: Value) -> String {
        match &self.env[&v.as_u32()] {
            Datum::View(n) => n.clone(),
            _ => panic!("not a view"),
        }
    }
    fn set(&mut self, v: Value, d: Datum) {
        self.env.insert(v.as_u32(), d);
    }
    fn set_tile(&mut self, v: Value, t: Vec<f64>) {
        assert_eq!(t.len() as i64, self.dims(v).iter().product::<i64>());
        self.set(v, Datum::Tile(Rc::new(RefCell::new(t))));
    }
    fn index(dims: &[i64], flat: i64) -> Vec<i64> {
        let mut rest = flat;
        let mut at: Vec<i64> = dims
            .iter()
            .rev()
            .map(|d| {
                let x = rest % d;
                rest /= d;
                x
            })
            .collect();
        at.reverse();
        at
    }
    fn position(&self, dims: &[i64], coords: &[Value], flat: i64) -> Vec<i64> {
        Self::index(dims, flat)
            .iter()
            .zip(dims)
            .zip(coords)
            .map(|((x, d), c)| self.number(*c) as i64 * d + x)
            .collect()
    }
    fn load(&self, view: &str, at: &[i64]) -> f64 {
        if let Some(&v) = self.memory.get(&(view.to_string(), at.to_vec())) {
            return v;
        }
        let seed = at.iter().fold(view.len() as i64 * 7 + i64::from(view.as_bytes()[0]), |h, x| h * 31 + x);
        (seed.rem_euclid(23) - 11) as f64 / 8.0
    }
    fn store(&mut self, view: &str, value: Value, coords: &[Value]) {
        let dims = self.dims(value);
        let tile = self.tile(value).borrow().clone();
        for (n, x) in tile.into_iter().enumerate() {
            let at = self.position(&dims, coords, n as i64);
            self.memory.insert((view.to_string(), at), x);
        }
    }
    fn block(&mut self, b: Block) -> Vec<Datum> {
        for op in self.f.block_ops(b).collect::<Vec<_>>() {
            if self.f.opcode(op).is_terminator() {
                return self.f.operands(op).iter().map(|v| self.env[&v.as_u32()].clone()).collect();
            }
            self.op(op);
        }
        Vec::new()
    }

    fn op(&mut self, op: Op) {
        let f = self.f;
        let result = f.result(op);
        let operands = f.operands(op).to_vec();
        let coords = f.named_segment(op, "coords").to_vec();
        match f.opcode(op) {
            Opcode::Constant => {
                let (r, v) = (result.unwrap(), f.attr_number(op, keys::VALUE).unwrap());
                match f.value_data(r).dims() {
                    Some(d) => self.set_tile(r, vec![v; d.iter().product::<u32>() as usize]),
                    None => self.set(r, Datum::Number(v)),
                }
            }
            Opcode::ProgramId => {
                let axis = f.attr_int(op, keys::AXIS).unwrap() as usize;
                self.set(result.unwrap(), Datum::Number(self.program[axis]));
            }
            Opcode::NumPrograms => self.set(result.unwrap(), Datum::Number(2.0)),
            Opcode::MakeTiledTmaDesc => {
                let view = self.view(operands[0]);
                self.set(result.unwrap(), Datum::View(view));
            }
            Opcode::TiledLoad | Opcode::AsyncTiledTmaLoad => {
                let (r, view) = (result.unwrap(), self.view(operands[0]));
                let dims = self.dims(r);
                let t =
                    (0..dims.iter().product()).map(|n| self.load(&view, &self.position(&dims, &coords, n)));
                let t = t.collect();
                self.set_tile(r, t);
            }
            Opcode::TiledStore => {
                let view = self.view(operands[1]);
                self.store(&view, operands[0], &coords);
            }
            Opcode::AsyncTiledTmaStore => {
                let view = self.view(operands[0]);
                self.store(&view, f.named_operand(op, "source").unwrap(), &coords);
            }
            Opcode::Iota => {
                let n = self.dims(result.unwrap())[0];
                self.set_tile(result.unwrap(), (0..n).map(|x| x as f64).collect());
            }
            Opcode::Splat => {
                let (r, x) = (result.unwrap(), self.number(operands[0]));
                let n = self.dims(r).iter().product::<i64>();
                self.set_tile(r, vec![x; n as usize]);
            }
            Opcode::Reshape | Opcode::ConvertLayout => {
                let t = self.tile(operands[0]).borrow().clone();
                self.set_tile(result.unwrap(), t);
            }
            Opcode::Broadcast | Opcode::ExtractSlice => {
                let r = result.unwrap();
                let (from, to, t) = (self.dims(operands[0]), self.dims(r), self.tile(operands[0]));
                let mut offsets = f.attr_ints(op, keys::OFFSETS);
                if let (Some(&number), Some(o)) = (operands.get(1), &mut offsets) {
                    *o.last_mut().unwrap() += self.number(number) as i64 * to.last().unwrap();
                }
                let pick = |n: i64| {
                    let at = Self::index(&to, n);
                    let flat = at.iter().enumerate().zip(&from).fold(0, |acc, ((k, x), d)| {
                        let x = offsets.as_ref().map_or(if *d == 1 { 0 } else { *x }, |o| x + o[k]);
                        acc * d + x
                    });
                    t.borrow()[flat as usize]
                };
                let out = (0..to.iter().product()).map(pick).collect();
                self.set_tile(r, out);
            }
            Opcode::AllocTensor => {
                let n = self.dims(result.unwrap()).iter().product::<i64>();
                self.set_tile(result.unwrap(), vec![f64::NAN; n as usize]);
            }
            Opcode::Copy => match result {
                Some(r) => {
                    let t = self.tile(operands[0]).borrow().clone();
                    self.set_tile(r, t);
                }
                None => {
                    let (from, to) = (self.dims(operands[0]), self.dims(operands[1]));
                    let offsets = f.attr_ints(op, keys::OFFSETS).unwrap();
                    let (source, dest) = (self.tile(operands[0]), self.tile(operands[1]));
                    for (n, &x) in source.borrow().iter().enumerate() {
                        let at = Self::index(&from, n as i64);
                        let flat = at.iter().zip(&offsets).zip(&to).fold(0, |a, ((x, o), d)| a * d + x + o);
                        dest.borrow_mut()[flat as usize] = x;
                    }
                }
            },
            Opcode::Dot | Opcode::AsyncDot => self.dot(op, result.unwrap()),
            Opcode::For => {
                let (lo, hi, step) =
                    (self.number(operands[0]), self.number(operands[1]), self.number(operands[2]));
                let body = f.op_block_at(op, 0).unwrap();
                let mut carried: Vec<Datum> =
                    operands[3..].iter().map(|v| self.env[&v.as_u32()].clone()).collect();
                // A zero accumulator is no storage of its own: each loop starts anew.
                for (d, v) in carried.iter_mut().zip(&operands[3..]) {
                    if let (Datum::Tile(t), Some(_)) = (&*d, f.constant_value(*v)) {
                        let mut fresh = t.borrow().clone();
                        if f.value_data(*v).space().is_some_and(|s| s == Space::Tmem) && lo < hi {
                            // Nothing is stored: only a dot may come first, and it overwrites.
                            fresh.fill(f64::NAN);
                        }
                        *d = Datum::Tile(Rc::new(RefCell::new(fresh)));
                    }
                }
                let mut i = lo;
                while i < hi {
                    let params = f.block_params(body).to_vec();
                    self.set(params[0], Datum::Number(i));
                    for (p, d) in params[1..].iter().zip(carried) {
                        self.set(*p, d);
                    }
                    carried = self.block(body);
                    i += step;
                }
                for (r, d) in f.results(op).iter().zip(carried) {
                    self.set(*r, d);
                }
            }
            Opcode::If => {
                let arm = usize::from(self.number(operands[0]) == 0.0);
                let out = self.block(f.op_block_at(op, arm).unwrap());
                for (r, d) in f.results(op).iter().zip(out) {
                    self.set(*r, d);
                }
            }
            opcode => self.scalar_wise(op, opcode, result.unwrap(), &operands),
        }
    }

    fn dot(&mut self, op: Op, r: Value) {
        let f = self.f;
        let part = |name: &str| f.named_operand(op, name).unwrap();
        let (a, b, acc) = (part("a"), part("b"), part("acc"));
        let [m, n] = self.dims(acc)[..] else { panic!() };
        let (ta, tb) = (f.has_attr(op, keys::TRANSPOSE_A), f.has_attr(op, keys::TRANSPOSE_B));
        let (da, db) = (self.dims(a), self.dims(b));
        let k = if ta { da[0] } else { da[1] };
        let placed = f.value_data(acc).space() == Some(Space::Tmem) && f.constant_value(acc).is_none();
        let mut out = self.tile(acc).borrow().clone();
        if out.iter().all(|x| x.is_nan()) {
            out.fill(0.0);
        }
        {
            let (a, b) = (self.tile(a), self.tile(b));
            let (a, b) = (a.borrow(), b.borrow());
            for i in 0..m {
                for j in 0..n {
                    // A few products tell as much as all of them.
                    for x in (0..k).step_by((k / 2).max(1) as usize) {
                        let av = a[if ta { x * da[1] + i } else { i * da[1] + x } as usize];
                        let bv = b[if tb { j * db[1] + x } else { x * db[1] + j } as usize];
                        out[(i * n + j) as usize] += av * bv;
                    }
                }
            }
        }
        if placed {
            let storage = self.tile(acc);
            *storage.borrow_mut() = out;
            self.set(r, Datum::Tile(storage));
        } else {
            self.set_tile(r, out);
        }
    }

    fn scalar_wise(&mut self, op: Op, opcode: Opcode, r: Value, operands: &[Value]) {
        let name = self.f.attr_name(op, keys::PREDICATE).map(str::to_string);
        let apply = |x: &[f64]| match opcode {
            Opcode::Addf | Opcode::Addi => x[0] + x[1],
            Opcode::Subf | Opcode::Subi => x[0] - x[1],
            Opcode::Mulf | Opcode::Muli => x[0] * x[1],
            // Coordinates are small and not negative.
            Opcode::Mini => x[0].min(x[1]),
            Opcode::Divi => (x[0] / x[1]).trunc(),
            Opcode::Remi => x[0] % x[1],
            Opcode::Maxf => x[0].max(x[1]),
            Opcode::Exp | Opcode::Exp2 => x[0].exp2(),
            Opcode::Ftof | Opcode::Itof => x[0],
            Opcode::Cmpi => f64::from(match name.as_deref() {
                Some("eq") => x[0] == x[1],
                Some("lt") => x[0] < x[1],
                Some("gt") => x[0] > x[1],
                p => panic!("predicate {p:?}"),
            }),
            o => panic!("no meaning for {}", o.name()),
        };
        if !self.f.value_data(r).is_tile() {
            let x: Vec<f64> = operands.iter().map(|&v| self.number(v)).collect();
            return self.set(r, Datum::Number(apply(&x)));
        }
        let tiles: Vec<Vec<f64>> = operands.iter().map(|&v| self.tile(v).borrow().clone()).collect();
        let out =
            (0..tiles[0].len()).map(|n| apply(&tiles.iter().map(|t| t[n]).collect::<Vec<_>>())).collect();
        self.set_tile(r, out);
    }
}

fn memory(f: &Function, trips: f64) -> BTreeMap<(String, Vec<i64>), f64> {
    let mut m = Machine { f, env: BTreeMap::new(), memory: BTreeMap::new(), program: [1.0, 2.0] };
    for &p in f.params() {
        let scalar = f.value_data(p).as_scalar().is_some();
        let name = f.value_name(p).unwrap().to_string();
        m.set(p, if scalar { Datum::Number(trips) } else { Datum::View(name) });
    }
    m.block(f.entry());
    m.memory
}

#[test]
fn placement_keeps_what_is_stored() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/place");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "tileas"));
    files.sort();
    assert!(files.len() > 20);
    let isa = tileas_isa::isa_for_cpu("sm_100a").unwrap();
    for file in files {
        let func = parse_module(&std::fs::read_to_string(&file).unwrap()).unwrap().functions.remove(0);
        let plan = plan_agents(&func, &*isa, &AgentOptions::default()).unwrap();
        for (slice_regs, roll_slices) in [(16, 0), (16, 2), (16, 5), (64, 0), (64, 2), (256, 2)] {
            let opts = PlaceOptions { slice_regs, roll_slices, ..PlaceOptions::default() };
            let (placed, _) = place(&func, &plan, &*isa, &opts).unwrap();
            for trips in [0.0, 3.0] {
                let (want, got) = (memory(&func, trips), memory(&placed, trips));
                assert!(
                    want == got,
                    "{} slice_regs {slice_regs} roll_slices {roll_slices} trips {trips}: {} and {} elements\n{}",
                    file.display(),
                    want.len(),
                    got.len(),
                    print_function(&placed)
                );
            }
        }
    }
}
