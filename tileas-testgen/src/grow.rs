//! Grows a kernel operation by operation: any operation whose operands the pool has, on any of them.
//!
//! In: random data. Out: a [`Kernel`] that is legal by the documentation, with a launch and options. The pool holds
//! scalars and tiles of all kinds, whatever made them: loads, products, loops, branches. Tile extents come from a few
//! numbers drawn for the kernel, so that tiles fit each other.
//!
//! Guarantees: the same data gives the same kernel. Trips of nested loops multiply to at most `TRIPS`. CTAs do not
//! conflict: with several, whatever touches a written view lies in the rows of its CTA. Numbers are bounded: each
//! value has a bound of its magnitude and a least bit, so that sums of products are exact in any order, and comparisons
//! and conversions give one answer, unless [`Kernel::exact`] is false; then nothing is compared that is not.

use crate::kernel::{Block, Elem, End, Form, Given, Id, Kernel, Stmt, Test, Ty, Use};
use arbitrary::Unstructured;

/// Most trips of nested loops together.
const TRIPS: i64 = 12;

/// What is known of the numbers of a value: a bound of the magnitude, the exponent of which all are multiples, and
/// whether every way of computing them gives the same.
#[derive(Copy, Clone, Debug)]
struct Num {
    mag: f64,
    lsb: i32,
    det: bool,
}

impl Num {
    fn whole(mag: f64) -> Num {
        Num { mag, lsb: 0, det: true }
    }

    fn join(self, o: Num) -> Num {
        Num { mag: self.mag.max(o.mag), lsb: self.lsb.min(o.lsb), det: self.det && o.det }
    }

    /// Sums of such numbers are exact in f32.
    fn sums(self) -> bool {
        self.mag * (-f64::from(self.lsb)).exp2() <= f64::from(1 << 24)
    }
}

#[derive(Copy, Clone, Debug)]
struct Info {
    num: Num,
    /// Range of a scalar integer.
    range: (i64, i64),
    used: bool,
    /// As a matrix operand, whether its innermost dimension is K.
    k_inner: Option<bool>,
    /// A product has been added to it.
    grown: bool,
    /// It is a product.
    product: bool,
}

const ANY: (i64, i64) = (i32::MIN as i64, i32::MAX as i64);

#[derive(Clone, Debug)]
struct View {
    id: Id,
    rank: usize,
    elem: Elem,
    num: Num,
    read: bool,
    written: bool,
    /// Rows of all tiles, where each CTA has its own.
    rows: u32,
    /// Tiles that were loaded, and from where.
    loaded: Vec<(Vec<u32>, Vec<Use>)>,
}

/// Options and values to draw from.
const OPTIONS: &[(&str, &[&str])] = &[
    ("scheduler", &["serial", "cost", "optimal"]),
    ("published.cycle-model", &["real"]),
    ("published.selector", &["spec"]),
    ("published.serial-threshold", &["0", "40"]),
    ("search.ii-search", &["linear", "gallop"]),
    ("max-stages", &["1", "2", "3"]),
    ("published.arm-policy", &["lowest-cost", "permute"]),
    ("search.exact-steps", &["0"]),
    ("search.steps", &["0", "1000"]),
    ("search.lifetime-steps", &["0"]),
    ("tune.fuse-reads", &["true"]),
    ("pipeline-strategy", &["none", "unspecialized", "warp-specialize"]),
    ("pipeline-strategy", &["unspecialized"]),
    ("published.light-specialization", &["true"]),
    ("max-simt-agents", &["2", "3", "4"]),
    ("max-simt-agents", &["2", "4"]),
    ("simt-warps", &["1", "2", "8", "16"]),
    ("slice-regs", &["8", "16", "32", "128"]),
    ("tune.roll-slices", &["0", "1", "3"]),
    ("tma-rewrite", &["false"]),
    ("tune.max-peeled-ops", &["0", "1000"]),
    ("pipeline-depth", &["1", "2", "3"]),
    ("tune.max-slots", &["1", "2"]),
    ("published.max-constraint-iterations", &["0", "1"]),
    ("regalloc", &["plan"]),
];

struct Gen<'a, 'b> {
    u: &'a mut Unstructured<'b>,
    k: Kernel,
    info: Vec<Info>,
    scopes: Vec<Vec<Id>>,
    blocks: Vec<Vec<Stmt>>,
    /// Descriptors, at the head of the kernel.
    head: Vec<Stmt>,
    views: Vec<View>,
    descs: Vec<(usize, Vec<u32>, Id)>,
    /// Extents along M, and all.
    rows: Vec<u32>,
    dims: Vec<u32>,
    trips: i64,
    left: usize,
    pid: Option<Id>,
    /// Tiles carried by the loops around.
    carried: Vec<Id>,
    /// What the loops around carry, by how much it may grow in a trip, and whether they may be left.
    loops: Vec<(Vec<Id>, f64, Form)>,
    /// First values of the loops around.
    around: Vec<Id>,
    /// Scopes outside the innermost loop.
    inner: usize,
}

/// Whether a tile can be stored: what is packed in rows of whole bytes.
fn storable(t: &Ty) -> bool {
    let whole = |d: &[u32], e: Elem| !e.is_packed() || d.last().is_some_and(|n| n % 2 == 0);
    matches!(t, Ty::Tile(d, e) if d.len() <= 3 && *e != Elem::I1 && whole(d, *e))
}

/// Draws a kernel.
pub fn kernel(u: &mut Unstructured<'_>) -> Kernel {
    let exact = !u.ratio(1, 5).unwrap_or(false);
    let k = Kernel {
        types: Vec::new(),
        params: Vec::new(),
        body: Block::default(),
        grid: 1,
        options: Vec::new(),
        exact,
    };
    let mut g = Gen {
        u,
        k,
        info: Vec::new(),
        scopes: vec![Vec::new()],
        blocks: vec![Vec::new()],
        head: Vec::new(),
        views: Vec::new(),
        descs: Vec::new(),
        rows: Vec::new(),
        dims: Vec::new(),
        trips: 1,
        left: 0,
        pid: None,
        carried: Vec::new(),
        loops: Vec::new(),
        around: Vec::new(),
        inner: 0,
    };
    g.whole();
    g.k
}

impl Gen<'_, '_> {
    fn below(&mut self, n: usize) -> usize {
        if n <= 1 || self.u.is_empty() { 0 } else { self.u.int_in_range(0..=n - 1).unwrap_or(0) }
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn one<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn whole(&mut self) {
        self.rows = match self.below(6) {
            0 if self.chance(25) => vec![256, 64],
            0 => vec![128],
            1 => vec![64, 128],
            _ => vec![64],
        };
        self.dims = match self.below(6) {
            0 => vec![64, 16],
            1 => vec![64, 32],
            2 => vec![32, 64, 128],
            3 if self.chance(25) => vec![64, 256],
            3 if self.chance(10) => vec![64, 512],
            3 => vec![128, 64],
            _ => vec![64],
        };
        if self.chance(30) {
            self.k.grid = 2;
            let id = self.emit("program_id <{axis = 0}>", &[], Ty::Scalar(Elem::I32), Num::whole(1.0));
            self.info[id].range = (0, 1);
            self.pid = Some(id);
            if self.chance(40) {
                let all = self.emit("num_programs <{axis = 0}>", &[], Ty::Scalar(Elem::I32), Num::whole(2.0));
                self.info[all].range = (1, 2);
            }
        }
        for _ in 0..1 + self.below(3) {
            let x = self.below(4);
            let id = self.value(Ty::Scalar(Elem::I32), Num::whole(3.0));
            self.info[id].range = (0, 3);
            self.k.params.push((id, Given::Scalar(x as f64)));
            self.scopes[0].push(id);
        }
        if self.chance(30) {
            let x = self.one(&[0.5, 2.0, -1.0, 3.0]);
            let id = self.value(Ty::Scalar(Elem::F32), Num { mag: 4.0, lsb: -1, det: true });
            self.k.params.push((id, Given::Scalar(x)));
            self.scopes[0].push(id);
        }
        self.left = 4 + self.below(18) + if self.chance(20) { 16 } else { 0 };
        while self.left > 0 {
            self.step();
        }
        self.finish(75);
        if !self.views.iter().any(|v| v.written) {
            let ty = Ty::Tile(vec![self.rows[0], 64], Elem::F32);
            let id = self.pick(|t, _| *t == ty).unwrap_or_else(|| self.load(Elem::F32, &[64, 64]));
            self.store(id);
        }
        let mut stmts = std::mem::take(&mut self.head);
        stmts.append(&mut self.blocks[0]);
        self.k.body.stmts = stmts;
        if self.chance(60) {
            for _ in 0..1 + self.below(4) {
                let (name, values) = self.one(OPTIONS);
                if self.k.options.iter().all(|o| o.0 != name) {
                    let value = self.one(values);
                    self.k.options.push((name, value));
                }
            }
            if self.k.options.contains(&("scheduler", "optimal")) {
                // With real cycles the default takes minutes.
                self.k.options.push(("search.optimal-steps", "2000"));
            }
        }
    }

    // The pool.

    fn value(&mut self, ty: Ty, num: Num) -> Id {
        self.k.types.push(ty);
        self.info.push(Info { num, range: ANY, used: false, k_inner: None, grown: false, product: false });
        self.k.types.len() - 1
    }

    fn touch(&mut self, uses: &[Use]) {
        for u in uses {
            if let Use::Val(id) = u {
                self.info[*id].used = true;
            }
        }
    }

    fn push(&mut self, form: Form, uses: Vec<Use>, results: Vec<Id>, blocks: Vec<Block>) {
        self.touch(&uses);
        self.scopes.last_mut().expect("a scope").extend(&results);
        self.blocks.last_mut().expect("a block").push(Stmt { form, uses, results, blocks });
    }

    fn emit(&mut self, text: &str, uses: &[Use], ty: Ty, num: Num) -> Id {
        let tile = matches!(ty, Ty::Tile(..));
        let id = self.value(ty, num);
        // Some ops have a word of rematerialisation: results stay what they are.
        let words = [
            " {tileas.recomputable}",
            " {tileas.preferred_atom_size = 32, tileas.recomputable}",
            " {tileas.preferred_atom_size = 16}",
            " {tileas.preferred_atom_size = 64, tileas.max_num_slices_for_non_reduce_axis = 2}",
        ];
        let word = if tile && id % 17 == 11 { words[id / 17 % words.len()] } else { "" };
        let form = Form::Plain { text: format!("{text}{word}"), effect: false };
        self.push(form, uses.to_vec(), vec![id], Vec::new());
        id
    }

    fn visible(&self, want: impl Fn(&Ty, &Info) -> bool) -> Vec<Id> {
        let all = self.scopes.iter().flatten().copied();
        all.filter(|&id| want(&self.k.types[id], &self.info[id])).collect()
    }

    /// A visible value; the youngest are likelier.
    fn pick(&mut self, want: impl Fn(&Ty, &Info) -> bool) -> Option<Id> {
        let list = self.visible(want);
        if list.is_empty() {
            return None;
        }
        let first: Vec<Id> = list.iter().copied().filter(|id| self.around.contains(id)).collect();
        if !first.is_empty() && self.chance(12) {
            return Some(self.one(&first));
        }
        let from = if self.chance(50) { list.len().saturating_sub(3) } else { 0 };
        Some(list[from + self.below(list.len() - from)])
    }

    fn ty(&self, id: Id) -> Ty {
        self.k.types[id].clone()
    }

    fn num(&self, id: Id) -> Num {
        self.info[id].num
    }

    fn tile(&self, id: Id) -> (Vec<u32>, Elem) {
        match &self.k.types[id] {
            Ty::Tile(d, e) => (d.clone(), *e),
            other => (Vec::new(), other.elem()),
        }
    }

    /// Whether such numbers may be: no infinity comes near.
    fn allowed(&self, elem: Elem, n: Num) -> bool {
        let most = match elem {
            Elem::F16 => 30000.0,
            _ => f64::from(1 << 22),
        };
        n.mag <= most && (n.det || !self.k.exact) && n.lsb >= -12
    }

    fn step(&mut self) {
        self.left = self.left.saturating_sub(1);
        let tiles = self.visible(|t, _| matches!(t, Ty::Tile(..))).len();
        if tiles < 2 && self.chance(70) {
            self.any_load();
            return;
        }
        for _ in 0..8 {
            let done = match self.below(100) {
                0..8 => self.any_load(),
                8..10 => self.gather(),
                10..25 => self.dot(),
                25 => self.odd_dot(),
                26..38 => self.float_op(),
                38..41 => self.unary(),
                41..45 => self.choice(),
                45..52 => self.convert(),
                52..57 => self.spread(),
                57..60 => self.reduce(),
                60 | 61 => self.combine(),
                62 | 63 => self.rearrange(),
                64 => self.scatter(),
                65..73 => self.any_store(),
                73..83 => self.repeat(),
                83..88 => self.branch(),
                88..92 => self.scalar(),
                92..94 => self.scalar_load(),
                94 => self.unsplat(),
                95 | 96 => self.atomic(),
                97 => self.update(),
                98 => self.output(),
                _ => self.int_op(),
            };
            if done {
                return;
            }
        }
    }

    // Memory.

    fn shape(&mut self) -> Vec<u32> {
        let (m, n) = (self.one(&self.rows.clone()), self.one(&self.dims.clone()));
        match self.below(15) {
            14 => vec![self.one(&[2, 4, 8]), self.one(&[8, 16]), self.one(&[16, 32])],
            0 => vec![n],
            1 => vec![m],
            2 => vec![1, n],
            3 => vec![m, 1],
            4 => vec![self.one(&[256, 1024, 2048])],
            5 => vec![1, m, n],
            6 => vec![n, m],
            7 => vec![self.one(&[1, 2, 4]), self.one(&[256, 512, 1024])],
            _ => vec![m, n],
        }
    }

    fn any_load(&mut self) -> bool {
        let shape = self.shape();
        let rare = self.one(&[Elem::I64, Elem::E4m3, Elem::E5m2, Elem::F64, Elem::I4, Elem::E2m1]);
        let rare = if rare.is_packed() && shape.last() == Some(&1) { Elem::I8 } else { rare };
        let elem = self.one(&[
            rare,
            Elem::F16,
            Elem::F16,
            Elem::F16,
            Elem::Bf16,
            Elem::F32,
            Elem::F32,
            Elem::F32,
            Elem::I32,
            Elem::I16,
            Elem::I8,
        ]);
        self.load(elem, &shape);
        true
    }

    /// A new view parameter for tiles of a shape.
    fn view(&mut self, elem: Elem, shape: &[u32], num: Num, read: bool, written: bool) -> usize {
        let mut extents = Vec::new();
        for (n, &d) in shape.iter().enumerate() {
            let times =
                if n == 0 && written && self.k.grid > 1 { self.k.grid } else { 1 + self.below(2) as u32 };
            let less = if self.chance(50) || d == 1 { 0 } else { self.below(d as usize) as u32 };
            extents.push((d * times - less) as usize);
        }
        let mut strides = vec![1; shape.len()];
        let unit = if elem.is_packed() { 32 } else { 16 / elem.bytes() };
        // What TMA may store to has rows of whole units.
        if let ([_, .., last], [.., columns]) = (&mut extents[..], shape)
            && written
            && *columns as usize >= unit
        {
            *last = (*last / unit * unit).max(unit);
        }
        if let (Some(last), true) = (extents.last_mut(), elem.is_packed()) {
            *last = last.next_multiple_of(2);
        }
        for n in (0..shape.len() - 1).rev() {
            let dense = extents[n + 1] * strides[n + 1];
            strides[n] = if n + 2 == shape.len() {
                dense.div_ceil(unit) * unit + if self.chance(20) { unit } else { 0 }
            } else {
                dense
            };
        }
        let fixed = self.chance(20);
        let dims = extents.iter().map(|&n| fixed.then_some(n as u32)).collect();
        let id = self.value(Ty::View(dims, elem), num);
        let init = if elem.is_float() && !read { "nan" } else { "ints" };
        if elem.is_packed() {
            extents.iter_mut().last().into_iter().for_each(|n| *n /= 2);
            strides.iter_mut().rev().skip(1).for_each(|n| *n /= 2);
        }
        self.k.params.push((id, Given::View(extents, strides, init)));
        self.views.push(View {
            id,
            rank: shape.len(),
            elem,
            num,
            read,
            written,
            rows: shape[0],
            loaded: Vec::new(),
        });
        self.views.len() - 1
    }

    /// Views that an access of such a tile may touch without a conflict of CTAs.
    fn fits(&self, v: &View, elem: Elem, shape: &[u32]) -> bool {
        v.elem == elem && v.rank == shape.len() && (self.k.grid == 1 || !v.written || v.rows == shape[0])
    }

    fn coordinates(&mut self, view: usize, rank: usize) -> Vec<Use> {
        let own = self.k.grid > 1 && self.views[view].written;
        let mut list: Vec<Use> = (0..rank).map(|_| self.coordinate()).collect();
        if let (true, Some(pid)) = (own, self.pid) {
            list[0] = Use::Val(pid);
        }
        list
    }

    fn coordinate(&mut self) -> Use {
        let small = |t: &Ty, i: &Info| *t == Ty::Scalar(Elem::I32) && i.range.0 >= -4 && i.range.1 <= 8;
        match self.below(20) {
            0..9 => Use::Int(if self.chance(80) { 0 } else { 1 }),
            9..18 => self.pick(small).map_or(Use::Int(0), Use::Val),
            18 => self.pick(|t, _| *t == Ty::Scalar(Elem::I32)).map_or(Use::Int(0), Use::Val),
            _ => {
                let n = self.one(&[2, 3, -1, 1 << 26, -(1 << 26)]);
                Use::Int(n)
            }
        }
    }

    fn desc(&mut self, view: usize, shape: &[u32]) -> Id {
        if let Some(d) = self.descs.iter().find(|d| d.0 == view && d.1 == shape) {
            return d.2;
        }
        let (id, elem) = (self.views[view].id, self.views[view].elem);
        let bytes = *shape.last().expect("a tile has dimensions") as usize * elem.bytes();
        let swizzle = match bytes {
            128.. => "b128",
            64.. => "b64",
            32.. => "b32",
            _ => "none",
        };
        let text = format!("make_tiled_tma_desc {{}} <{{box = {shape:?}, swizzle = {swizzle}}}>");
        let desc = self.value(Ty::Desc(shape.to_vec(), elem), Num::whole(0.0));
        self.head.push(Stmt {
            form: Form::Plain { text, effect: false },
            uses: vec![Use::Val(id)],
            results: vec![desc],
            blocks: Vec::new(),
        });
        self.descs.push((view, shape.to_vec(), desc));
        desc
    }

    fn takes_tma(shape: &[u32], elem: Elem) -> bool {
        let inner = shape.last().map_or(0, |&n| n as usize * elem.bytes());
        let outer = shape.split_last().map_or(&[][..], |x| x.1);
        outer.iter().all(|&d| d <= 256)
            && shape.len() >= 2
            && inner >= 16
            && elem.bytes() >= 2
            && !matches!(elem, Elem::I16 | Elem::I64 | Elem::F64)
    }

    fn load(&mut self, elem: Elem, shape: &[u32]) -> Id {
        let known: Vec<usize> = (0..self.views.len())
            .filter(|&n| self.views[n].read && self.fits(&self.views[n], elem, shape))
            .collect();
        let view = if !known.is_empty() && (self.chance(70) || self.views.len() > 8) {
            self.one(&known)
        } else {
            // Some are written later: then they hold more than small numbers.
            let written = self.chance(40);
            let num = match elem {
                Elem::I4 => Num::whole(8.0),
                Elem::E2m1 => Num { mag: 6.0, lsb: -1, det: true },
                _ if written => Num { mag: 64.0, lsb: -2, det: true },
                _ => Num::whole(2.0),
            };
            self.view(
                elem,
                shape,
                if elem.is_float() || elem.is_tiny() || !written { num } else { Num::whole(2e9) },
                true,
                written,
            )
        };
        let num = self.views[view].num;
        let at = self.coordinates(view, shape.len());
        let thin = shape[shape.len() - 1] == 1 || shape.len() >= 2 && shape[shape.len() - 2] == 1;
        let tma = Gen::takes_tma(shape, elem) && self.chance(if thin { 5 } else { 35 });
        let (what, op) = if tma {
            (self.desc(view, shape), "async.tiled_tma_load")
        } else {
            (self.views[view].id, "tiled_load")
        };
        let text = format!("{op} {{}}[{}]", vec!["{}"; shape.len()].join(", "));
        let padded = !tma && !elem.is_tiny() && self.chance(if elem.bytes() == 4 { 8 } else { 1 });
        let (text, num) = match (padded, elem.is_float()) {
            (false, _) => (text, num),
            (true, true) => (format!("{text} <{{padding = 1.0}}>"), Num { mag: num.mag.max(1.0), ..num }),
            (true, false) => (format!("{text} <{{padding = 3}}>"), Num { mag: num.mag.max(3.0), ..num }),
        };
        self.views[view].loaded.push((shape.to_vec(), at.clone()));
        let uses: Vec<Use> = std::iter::once(Use::Val(what)).chain(at).collect();
        self.emit(&text, &uses, Ty::Tile(shape.to_vec(), elem), num)
    }

    fn any_store(&mut self) -> bool {
        let fit = |t: &Ty, _: &Info| storable(t);
        let fresh = |t: &Ty, i: &Info| fit(t, i) && !i.used;
        let picked = if self.chance(60) { self.pick(fresh) } else { None };
        let Some(id) = picked.or_else(|| self.pick(fit)) else { return false };
        self.store(id);
        true
    }

    /// Prints a tile or scalar that is not too large, or asserts what always holds.
    fn output(&mut self) -> bool {
        let small = |t: &Ty| match t {
            Ty::Tile(d, _) => d.iter().product::<u32>() <= 2048,
            Ty::Scalar(_) => true,
            _ => false,
        };
        let Some(id) = self.pick(|t, _| small(t) && !t.elem().is_packed()) else { return false };
        let (ty, elem) = (self.ty(id), self.ty(id).elem());
        let is_float = elem.is_float() || elem.is_tiny();
        let effect = |text: String| Form::Plain { text, effect: true };
        if !is_float && elem != Elem::I1 && self.chance(30) {
            let holds = match &ty {
                Ty::Tile(d, _) => Ty::Tile(d.clone(), Elem::I1),
                _ => Ty::Scalar(Elem::I1),
            };
            let text = "cmpi {}, {} <{predicate = eq}>";
            let holds = self.emit(text, &[Use::Val(id), Use::Val(id)], holds, Num::whole(1.0));
            let form = effect("assert {} <{message = \"always\"}>".into());
            self.push(form, vec![Use::Val(holds)], Vec::new(), Vec::new());
            return true;
        }
        let spec = if is_float { self.one(&["%g", "%8.3f", "%e"]) } else { self.one(&["%d", "%5x", "%u"]) };
        let with = self.pick(|t, _| *t == Ty::Scalar(Elem::I32)).filter(|_| self.chance(50));
        let (text, uses) = match with {
            Some(n) => (format!("print {{}}, {{}} <{{format = \"%d: {spec}\\n\"}}>"), vec![n, id]),
            None => (format!("print {{}} <{{format = \"{spec}\\n\"}}>"), vec![id]),
        };
        self.push(effect(text), uses.into_iter().map(Use::Val).collect(), Vec::new(), Vec::new());
        true
    }

    fn store(&mut self, id: Id) {
        // What is left of a vector has no extents to store by.
        if let (shape, elem) = self.tile(id)
            && shape.is_empty()
        {
            let num = self.num(id);
            let one = self.emit("reshape {}", &[Use::Val(id)], Ty::Tile(vec![1], elem), num);
            return self.store(one);
        }
        if self.chance(35) && self.store_back(id) {
            return;
        }
        let ((shape, elem), num) = (self.tile(id), self.num(id));
        let suits = |v: &View| {
            v.written
                && self.fits(v, elem, &shape)
                && (!v.read || !elem.is_float() || num.mag <= v.num.mag && num.lsb >= v.num.lsb)
        };
        let known: Vec<usize> = (0..self.views.len()).filter(|&n| suits(&self.views[n])).collect();
        let view = if !known.is_empty() && (self.chance(65) || self.views.len() > 10) {
            self.one(&known)
        } else {
            let read = self.chance(45);
            let wide = Num { mag: (num.mag * 2.0).max(64.0), lsb: num.lsb.min(-2), det: num.det };
            self.view(elem, &shape, if elem.is_float() { wide } else { Num::whole(2e9) }, read, true)
        };
        let at = self.coordinates(view, shape.len());
        self.store_to(id, view, at);
    }

    /// Stores to where a tile of the same shape was loaded.
    fn store_back(&mut self, id: Id) -> bool {
        let (shape, elem) = self.tile(id);
        let visible = self.visible(|_, _| true);
        let mut places = Vec::new();
        for (n, v) in self.views.iter().enumerate().filter(|(_, v)| v.written && v.elem == elem) {
            let here =
                |u: &Use| matches!(u, Use::Int(_)) || matches!(u, Use::Val(id) if visible.contains(id));
            let fit = v.loaded.iter().filter(|(s, at)| *s == shape && at.iter().all(here));
            places.extend(fit.map(|(_, at)| (n, at.clone())));
        }
        if places.is_empty() {
            return false;
        }
        let (view, at) = places[self.below(places.len())].clone();
        let (most, num) = (self.views[view].num, self.num(id));
        let mut id = id;
        if elem.is_float() {
            if num.lsb < most.lsb || !num.det && most.det && self.k.exact {
                return false;
            }
            if num.mag > most.mag {
                id = self.clamp(id, 64);
            }
        }
        self.store_to(id, view, at);
        true
    }

    fn store_to(&mut self, id: Id, view: usize, at: Vec<Use>) {
        let shape = self.tile(id).0;
        let uses: Vec<Use> = [Use::Val(id), Use::Val(self.views[view].id)].into_iter().chain(at).collect();
        let text = format!("tiled_store {{}}, {{}}[{}]", vec!["{}"; shape.len()].join(", "));
        self.push(Form::Plain { text, effect: true }, uses, Vec::new(), Vec::new());
    }

    /// The integers that decide bounds, conditions and coordinates; each CTA only reads them where there are several.
    fn mem(&mut self) -> usize {
        let is = |v: &View| v.elem == Elem::I32 && v.rank == 1 && v.read;
        match self.views.iter().position(is) {
            Some(n) => n,
            None => {
                let written = self.k.grid == 1;
                self.view(Elem::I32, &[64], Num::whole(2e9), true, written)
            }
        }
    }

    fn element(&mut self) -> Use {
        match self.below(3) {
            0 => Use::Int(self.below(5) as i64),
            _ => self.coordinate(),
        }
    }

    fn scalar_load(&mut self) -> bool {
        // Any view of one dimension, or the integers.
        let known: Vec<usize> = (0..self.views.len())
            .filter(|&n| {
                let v = &self.views[n];
                let own = self.k.grid > 1 && v.written;
                v.read && v.rank <= 2 && !own && v.elem != Elem::I16 && !v.elem.is_packed()
            })
            .collect();
        let view = if known.is_empty() || self.chance(60) { self.mem() } else { self.one(&known) };
        if self.k.grid > 1 && self.views[view].written {
            return false;
        }
        let View { id, rank, elem, num, .. } = self.views[view].clone();
        let uses: Vec<Use> = std::iter::once(Use::Val(id)).chain((0..rank).map(|_| self.element())).collect();
        let semantics = match self.below(12) {
            _ if elem != Elem::I32 => "",
            0 => " <{mem_semantic = acquire, mem_scope = gpu}>",
            1 => " <{mem_semantic = relaxed, mem_scope = gpu}>",
            _ => "",
        };
        let text = format!("tiled_load {{}}[{}]{semantics}", vec!["{}"; rank].join(", "));
        self.emit(&text, &uses, Ty::Scalar(elem), num);
        true
    }

    /// A tile reduced to one element, as a scalar.
    fn unsplat(&mut self) -> bool {
        let Some(x) = self.pick(
            |t, _| matches!(t, Ty::Tile(_, e) if matches!(e, Elem::F32 | Elem::F16 | Elem::I32 | Elem::I8)),
        ) else {
            return false;
        };
        let ((mut d, e), num) = (self.tile(x), self.num(x));
        let mut id = x;
        while d.iter().any(|&n| n > 1) {
            let axis = self.below(d.len());
            d.remove(axis);
            let text = format!("reduce {{}} <{{mode = {}, axis = {axis}}}>", self.one(&["max", "min"]));
            id = self.emit(&text, &[Use::Val(id)], Ty::Tile(d.clone(), e), num);
        }
        self.emit("unsplat {}", &[Use::Val(id)], Ty::Scalar(e), num);
        true
    }

    fn atomic(&mut self) -> bool {
        if self.k.grid > 1 {
            return false;
        }
        let float = |v: &View| v.elem == Elem::F32 && v.rank == 1 && v.read && v.written;
        let floats: Vec<usize> = (0..self.views.len()).filter(|&n| float(&self.views[n])).collect();
        let view = if floats.is_empty() || self.chance(40) { self.mem() } else { self.one(&floats) };
        let View { elem, num: most, written, .. } = self.views[view].clone();
        let suits = |t: &Ty, i: &Info| {
            *t == Ty::Scalar(elem) && (elem == Elem::I32 || i.num.mag <= most.mag && i.num.lsb >= most.lsb)
        };
        let Some(x) = self.pick(suits).filter(|_| written) else { return false };
        let mode = match elem {
            Elem::F32 => "exch",
            _ => self.one(&["addi", "maxi", "mini", "xori", "exch"]),
        };
        let at = self.element();
        let id = self.value(Ty::Scalar(elem), most);
        let form =
            Form::Plain { text: format!("atomic_rmw {{}}, {{}}[{{}}] <{{mode = {mode}}}>"), effect: true };
        self.push(form, vec![Use::Val(x), Use::Val(self.views[view].id), at], vec![id], Vec::new());
        true
    }

    /// A coordinate of single elements: a scalar, or numbers along one axis of a tile.
    fn points(&mut self, shape: &[u32], axis: usize) -> Use {
        if self.chance(20) {
            return self.element();
        }
        let mut thin = vec![1; shape.len()];
        thin[axis] = shape[axis];
        // Any numbers, or those that count up.
        let ints = |t: &Ty, _: &Info| matches!(t, Ty::Tile(d, Elem::I32) if d.iter().product::<u32>() == shape[axis] || d[..] == *shape);
        if self.chance(35)
            && let Some(x) = self.pick(ints)
        {
            let (d, _) = self.tile(x);
            let num = Num::whole(127.0);
            let few = self.emit("andi {}, 127", &[Use::Val(x)], Ty::Tile(d.clone(), Elem::I32), num);
            return match d[..] == *shape {
                true => Use::Val(few),
                false => Use::Val(self.emit("reshape {}", &[Use::Val(few)], Ty::Tile(thin, Elem::I32), num)),
            };
        }
        Use::Val(self.counted(shape[axis], thin, None))
    }

    /// Numbers from a multiple of a few on, or from that many times a scalar.
    fn counted(&mut self, n: u32, thin: Vec<u32>, times: Option<Id>) -> Id {
        let num = Num::whole(1e6);
        let mut at = self.emit("iota", &[], Ty::Tile(vec![n], Elem::I32), Num::whole(f64::from(n)));
        if let Some(s) = times {
            let first = self.emit(&format!("muli {{}}, {n}"), &[Use::Val(s)], Ty::Scalar(Elem::I32), num);
            let all = self.emit("splat {}", &[Use::Val(first)], Ty::Tile(vec![n], Elem::I32), num);
            at = self.emit("addi {}, {}", &[Use::Val(at), Use::Val(all)], Ty::Tile(vec![n], Elem::I32), num);
        } else if self.chance(50) {
            let by = self.one(&[1, 4, 8, -1, 16, -3]);
            at = self.emit(&format!("addi {{}}, {by}"), &[Use::Val(at)], Ty::Tile(vec![n], Elem::I32), num);
        }
        if thin.len() == 1 {
            return at;
        }
        self.emit("reshape {}", &[Use::Val(at)], Ty::Tile(thin, Elem::I32), num)
    }

    /// A mask for a tile of single elements, with a comma and a keyword.
    fn mask(&mut self, shape: &[u32]) -> Option<Id> {
        if !self.chance(30) {
            return None;
        }
        self.pick(|t, _| match t {
            Ty::Scalar(Elem::I1) => true,
            Ty::Tile(d, Elem::I1) => d[..] == *shape,
            _ => false,
        })
    }

    fn gather(&mut self) -> bool {
        let shape = self.shape();
        let elems = [
            Elem::F16,
            Elem::F32,
            Elem::F32,
            Elem::Bf16,
            Elem::I32,
            Elem::I16,
            Elem::I8,
            Elem::I64,
            Elem::F64,
            Elem::E4m3,
        ];
        let elem = self.one(&elems);
        let fit = |v: &View| v.read && v.elem == elem && v.rank == shape.len();
        // Other CTAs may write elsewhere in a view.
        let known: Vec<usize> = (0..self.views.len())
            .filter(|&n| fit(&self.views[n]) && (self.k.grid == 1 || !self.views[n].written))
            .collect();
        let view = if !known.is_empty() && self.chance(60) {
            self.one(&known)
        } else if elem.is_float() {
            self.view(elem, &shape, Num::whole(2.0), true, false)
        } else {
            self.view(elem, &shape, Num::whole(2e9), true, false)
        };
        let (id, num) = (self.views[view].id, self.views[view].num);
        let mut uses = vec![Use::Val(id)];
        for axis in 0..shape.len() {
            let at = self.points(&shape, axis);
            uses.push(at);
        }
        let mut text = format!("gather {{}}[{}]", vec!["{}"; shape.len()].join(", "));
        if let Some(m) = self.mask(&shape) {
            text.push_str(" mask({})");
            text = text.replace("] mask", "], mask");
            uses.push(Use::Val(m));
        }
        let num = if self.chance(20) {
            text.push_str(if elem.is_float() { " <{padding = 1.0}>" } else { " <{padding = 1}>" });
            Num { mag: num.mag.max(1.0), ..num }
        } else {
            num
        };
        self.emit(&text, &uses, Ty::Tile(shape, elem), num);
        true
    }

    /// Stores single elements, no two to one place.
    fn scatter(&mut self) -> bool {
        let fit = |t: &Ty, _: &Info| matches!(t, Ty::Tile(d, e) if (1..=3).contains(&d.len()) && *e != Elem::I1 && !e.is_packed());
        let Some(x) = self.pick(fit) else { return false };
        let ((shape, elem), num) = (self.tile(x), self.num(x));
        let suits = |v: &View| {
            v.written
                && self.fits(v, elem, &shape)
                && (!v.read || !elem.is_float() || num.mag <= v.num.mag && num.lsb >= v.num.lsb)
        };
        let known: Vec<usize> = (0..self.views.len()).filter(|&n| suits(&self.views[n])).collect();
        let view = if !known.is_empty() && self.chance(60) {
            self.one(&known)
        } else {
            let read = self.chance(45);
            let wide = Num { mag: (num.mag * 2.0).max(64.0), lsb: num.lsb.min(-2), det: num.det };
            self.view(elem, &shape, if elem.is_float() { wide } else { Num::whole(2e9) }, read, true)
        };
        let mut uses = vec![Use::Val(x), Use::Val(self.views[view].id)];
        for axis in 0..shape.len() {
            let mut thin = vec![1; shape.len()];
            thin[axis] = shape[axis];
            let own = if axis == 0 && self.k.grid > 1 { self.pid } else { None };
            uses.push(Use::Val(self.counted(shape[axis], thin, own)));
        }
        if self.k.grid > 1 && self.pid.is_none() {
            return false;
        }
        let mut text = format!("scatter {{}}, {{}}[{}]", vec!["{}"; shape.len()].join(", "));
        if let Some(m) = self.mask(&shape) {
            text.push_str(", mask({})");
            uses.push(Use::Val(m));
        }
        self.push(Form::Plain { text, effect: true }, uses, Vec::new(), Vec::new());
        true
    }

    /// Atomic updates of the integers by a tile, which leave the same in any order; what was there before is not looked at.
    fn update(&mut self) -> bool {
        if self.k.grid > 1 {
            return false;
        }
        let view = self.mem();
        let Some(x) = self.pick(|t, _| matches!(t, Ty::Tile(d, Elem::I32) if !d.is_empty())) else {
            return false;
        };
        if !self.views[view].written {
            return false;
        }
        let (shape, _) = self.tile(x);
        let at = match self.pick(|t, _| matches!(t, Ty::Tile(d, Elem::I32) if *d == shape)) {
            Some(at) => self.emit(
                "andi {}, 63",
                &[Use::Val(at)],
                Ty::Tile(shape.clone(), Elem::I32),
                Num::whole(63.0),
            ),
            None => return false,
        };
        let mode = self.one(&["addi", "maxi", "mini", "xori", "andi", "ori"]);
        let mut uses = vec![Use::Val(x), Use::Val(self.views[view].id), Use::Val(at)];
        let mut text = "atomic_rmw {}, {}[{}]".to_owned();
        if let Some(m) = self.mask(&shape) {
            text.push_str(", mask({})");
            uses.push(Use::Val(m));
        }
        text.push_str(&format!(" <{{mode = {mode}}}>"));
        let old = self.value(Ty::Tile(shape, Elem::I32), Num::whole(2e9));
        self.push(Form::Plain { text, effect: true }, uses, vec![old], Vec::new());
        // Nothing uses it: how many updates came before is not said.
        if let Some(scope) = self.scopes.last_mut() {
            scope.retain(|&id| id != old);
        }
        true
    }

    /// Reductions and scans by a function.
    fn combine(&mut self) -> bool {
        let fit = |t: &Ty, _: &Info| matches!(t, Ty::Tile(d, e) if !d.is_empty() && *e != Elem::Bf16 && !e.is_tiny());
        let Some(x) = self.pick(fit) else { return false };
        let ((d, e), num) = (self.tile(x), self.num(x));
        let axis = if self.chance(50) { d.len() - 1 } else { self.below(d.len()) };
        let n = e.name();
        let scan = self.chance(55);
        let (op, reverse) = match (scan, self.chance(30)) {
            (true, true) => ("scan", ", reverse"),
            (true, false) => ("scan", ""),
            _ => ("combine", ""),
        };
        let left = |scan: bool| -> Vec<u32> {
            d.iter().enumerate().filter(|x| scan || x.0 != axis).map(|x| *x.1).collect()
        };
        // The largest and where it is.
        if e.is_float() && num.det && self.chance(40) {
            let at =
                self.emit("iota", &[], Ty::Tile(vec![d[axis]], Elem::I32), Num::whole(f64::from(d[axis])));
            let mut thin = vec![1; d.len()];
            thin[axis] = d[axis];
            let at = self.emit("reshape {}", &[Use::Val(at)], Ty::Tile(thin, Elem::I32), Num::whole(1e4));
            let at =
                self.emit("broadcast {}", &[Use::Val(at)], Ty::Tile(d.clone(), Elem::I32), Num::whole(1e4));
            let text = format!(
                "{op} {{}}, {{}} <{{axis = {axis}, by = (%a: {n}, %i: i32, %b: {n}, %j: i32) {{ %m = cmpf %b, %a <{{predicate = gt}}> \
                 %e = cmpf %b, %a <{{predicate = eq}}> %l = cmpi %j, %i <{{predicate = lt}}> %t = andi %e, %l %k = ori %m, %t \
                 %c = select %k, %b, %a %o = select %k, %j, %i yield %c, %o }}{reverse}}}>"
            );
            let best = self.value(Ty::Tile(left(scan), e), num);
            let place = self.value(Ty::Tile(left(scan), Elem::I32), Num::whole(1e4));
            let form = Form::Plain { text, effect: false };
            self.push(form, vec![Use::Val(x), Use::Val(at)], vec![best, place], Vec::new());
            return true;
        }
        let (body, num) = match e {
            Elem::I1 => (self.one(&["ori %a, %b", "andi %a, %b", "xori %a, %b"]), num),
            _ if e.is_float() => {
                let sum = Num { mag: num.mag * f64::from(d[axis]), ..num };
                if !num.det || self.chance(40) || !self.allowed(e, sum) || !sum.sums() || e != Elem::F32 {
                    ("maxf %a, %b", num)
                } else {
                    ("addf %a, %b", sum)
                }
            }
            Elem::I8 => ("addi %a, %b", Num::whole(128.0)),
            Elem::I16 => ("addi %a, %b", Num::whole(32768.0)),
            _ => (self.one(&["addi %a, %b", "maxi %a, %b", "muli %a, %b"]), Num::whole(9.3e18)),
        };
        let text = format!(
            "{op} {{}} <{{axis = {axis}, by = (%a: {n}, %b: {n}) {{ %c = {body} yield %c }}{reverse}}}>"
        );
        self.emit(&text, &[Use::Val(x)], Ty::Tile(left(scan), e), num);
        true
    }

    /// Products of bytes, and of few rows.
    fn odd_dot(&mut self) -> bool {
        let (bytes, few) = (self.chance(50), self.chance(60));
        let m = if few { self.one(&[16, 32]) } else { self.one(&[64, 128]) };
        let n = if few || bytes { self.one(&[64, 128]) } else { 64 };
        let k = if bytes { self.one(&[32, 64, 128]) } else { self.one(&[16, 64]) };
        let tiny = bytes && self.chance(50);
        let elem = match (bytes, tiny) {
            (_, true) => self.one(&[Elem::E4m3, Elem::E5m2]),
            (true, _) => Elem::I8,
            _ => self.one(&[Elem::F16, Elem::Bf16, Elem::F32]),
        };
        let (ta, tb) = (self.chance(30), self.chance(50));
        let (sa, sb) = (if ta { [k, m] } else { [m, k] }, if tb { [n, k] } else { [k, n] });
        let a = self.load(elem, &sa);
        let b = self.load(elem, &sb);
        let bytes = elem == Elem::I8;
        if a == b || self.info[a].k_inner.is_some() || self.info[b].k_inner.is_some() {
            return false;
        }
        let ty = Ty::Tile(vec![m, n], if bytes { Elem::I32 } else { Elem::F32 });
        let (x, y) = (self.num(a), self.num(b));
        let num = match bytes {
            true => Num::whole(2e9),
            false => Num { mag: 3.0 + f64::from(k) * x.mag * y.mag, lsb: (x.lsb + y.lsb).min(-1), det: true },
        };
        if !bytes && (!x.det || !y.det || !self.allowed(Elem::F32, num) || !num.sums()) {
            return false;
        }
        let acc = self.constant(&ty);
        let mut attrs: Vec<&str> = Vec::new();
        attrs.extend(ta.then_some("transpose_a"));
        attrs.extend(tb.then_some("transpose_b"));
        if bytes {
            attrs.extend(self.chance(30).then_some("unsigned_a"));
            attrs.extend(self.chance(30).then_some("unsigned_b"));
        }
        let attrs = if attrs.is_empty() { String::new() } else { format!(" <{{{}}}>", attrs.join(", ")) };
        self.info[a].k_inner = Some(!ta);
        self.info[b].k_inner = Some(tb);
        self.info[acc].grown = true;
        let uses = [Use::Val(a), Use::Val(b), Use::Val(acc)];
        let id = self.emit(&format!("dot {{}}, {{}}, {{}}{attrs}"), &uses, ty, num);
        self.info[id].product = true;
        true
    }

    // Arithmetic.

    /// A constant of a type.
    fn constant(&mut self, ty: &Ty) -> Id {
        let x: f64 = self.one(&[0.0, 0.0, 1.0, 2.0, -3.0, 0.5]);
        let (text, num) = if ty.elem().is_float() || ty.elem().is_tiny() && ty.elem() != Elem::I4 {
            (format!("{x:?}"), Num { mag: x.abs(), lsb: -1, det: true })
        } else {
            (format!("{}", x as i64), Num::whole(x.abs()))
        };
        self.emit(&format!("constant {text}"), &[], ty.clone(), num)
    }

    fn dot(&mut self) -> bool {
        let operand = |t: &Ty, _: &Info| matches!(t, Ty::Tile(d, Elem::F16 | Elem::Bf16) if d.len() == 2 && d[0] >= 16 && d[1] >= 16);
        // A tile lies in one layout, and a product has one sum: mostly.
        let anyhow = self.chance(12);
        let is_m = |n: u32| (64..=256).contains(&n);
        let onto = |t: &Ty, i: &Info| {
            matches!(t, Ty::Tile(d, Elem::F32) if d.len() == 2 && is_m(d[0]) && d[1] >= 16)
                && (anyhow || !i.grown)
        };
        // The accumulator decides, or the operands.
        let carried = self.carried.clone();
        let mut acc = match self.below(10) {
            0..3 => self.pick(|t, i| onto(t, i) && !i.used),
            3 => self.pick(onto),
            _ => None,
        };
        if let Some(&c) = carried.last().filter(|&&c| onto(&self.k.types[c], &self.info[c]))
            && self.chance(60)
        {
            acc = Some(c);
        }
        let (am, an) = acc.map_or((0, 0), |c| (self.tile(c).0[0], self.tile(c).0[1]));
        let left =
            |t: &Ty, i: &Info| operand(t, i) && matches!(t, Ty::Tile(d, _) if am == 0 || d.contains(&am));
        let drawn = if self.chance(60) { self.pick(left) } else { None };
        let a = match drawn {
            Some(a) => a,
            None => {
                let (m, k) = (self.one(&self.rows.clone()), self.one(&self.dims.clone()));
                let m = if am > 0 { am } else { m };
                let elem = self.one(&[Elem::F16, Elem::F16, Elem::Bf16]);
                let shape = if self.chance(25) { [k, m] } else { [m, k] };
                self.load(elem, &shape)
            }
        };
        let (s, elem) = self.tile(a);
        let good = |n: u32| is_m(n) && (am == 0 || n == am);
        let ta = match (good(s[0]), good(s[1])) {
            (false, false) => return false,
            (true, true) => self.chance(20),
            (first, _) => !first,
        };
        let (m, k) = if ta { (s[1], s[0]) } else { (s[0], s[1]) };
        let other = |i: &Info, k: bool| i.k_inner.is_some_and(|x| x != k);
        if other(&self.info[a], !ta) && !anyhow {
            return false;
        }
        let right = |t: &Ty, i: &Info| {
            operand(t, i)
                && matches!(t, Ty::Tile(d, e) if *e == elem && (d[0] == k && (an == 0 || d[1] == an) || d[1] == k && (an == 0 || d[0] == an)))
        };
        let drawn = if self.chance(60) { self.pick(right) } else { None };
        let b = match drawn {
            Some(b) => b,
            None => {
                let n = if an > 0 { an } else { self.one(&self.dims.clone()) };
                let shape = if self.chance(50) { [k, n] } else { [n, k] };
                self.load(elem, &shape)
            }
        };
        let (s, _) = self.tile(b);
        let plain = s[0] == k && (an == 0 || s[1] == an);
        let tb = match (plain, s[1] == k && (an == 0 || s[0] == an)) {
            (true, true) => self.chance(50),
            (first, _) => !first,
        };
        if other(&self.info[b], tb) && !anyhow || a == b && ta == tb && !anyhow {
            return false;
        }
        let n = if tb { s[0] } else { s[1] };
        let ty = Ty::Tile(vec![m, n], Elem::F32);
        let acc = match acc {
            Some(c) => c,
            None => {
                let drawn =
                    if self.chance(45) { self.pick(|t, i| *t == ty && (anyhow || !i.grown)) } else { None };
                match drawn {
                    Some(c) => c,
                    None if self.chance(15) => self.load(Elem::F32, &[m, n]),
                    None => self.constant(&ty),
                }
            }
        };
        // Each trip begins with its own sum.
        let outside = self.scopes[..self.inner].iter().flatten().any(|&id| id == acc);
        if outside && !anyhow && self.chance(80) {
            return false;
        }
        let (x, y, z) = (self.num(a), self.num(b), self.num(acc));
        let num = Num {
            mag: z.mag + f64::from(k) * x.mag * y.mag,
            lsb: z.lsb.min(x.lsb + y.lsb),
            det: x.det && y.det && z.det,
        };
        if !self.allowed(Elem::F32, num) || self.k.exact && !num.sums() {
            return false;
        }
        let attrs = match (ta, tb) {
            (false, false) => "",
            (true, false) => " <{transpose_a}>",
            (false, true) => " <{transpose_b}>",
            (true, true) => " <{transpose_a, transpose_b}>",
        };
        self.info[a].k_inner = Some(!ta);
        self.info[b].k_inner = Some(tb);
        self.info[acc].grown = true;
        let op = if self.chance(30) { "async.dot" } else { "dot" };
        let uses = [Use::Val(a), Use::Val(b), Use::Val(acc)];
        let id = self.emit(&format!("{op} {{}}, {{}}, {{}}{attrs}"), &uses, ty, num);
        self.info[id].product = true;
        true
    }

    fn float_op(&mut self) -> bool {
        let Some(x) = self.pick(|t, _| !matches!(t, Ty::View(..) | Ty::Desc(..)) && t.elem().is_float())
        else {
            return false;
        };
        let (ty, a) = (self.ty(x), self.num(x));
        let elem = ty.elem();
        let other = if self.chance(75) { self.pick(|t, _| *t == ty) } else { None };
        let y = match other {
            Some(y) => y,
            None => self.constant(&ty),
        };
        let b = self.num(y);
        let (op, mag, lsb) = match self.below(9) {
            0..3 => ("addf", a.mag + b.mag, a.lsb.min(b.lsb)),
            3 | 4 => ("subf", a.mag + b.mag, a.lsb.min(b.lsb)),
            5 | 6 => ("mulf", a.mag * b.mag, a.lsb + b.lsb),
            7 => ("maxf", a.mag.max(b.mag), a.lsb.min(b.lsb)),
            _ => ("minf", a.mag.max(b.mag), a.lsb.min(b.lsb)),
        };
        let num = Num { mag, lsb, det: a.det && b.det };
        if !self.allowed(elem, num) {
            return false;
        }
        let scalar = matches!(ty, Ty::Scalar(_));
        if scalar && elem != Elem::F32 {
            return false;
        }
        let half = Num { mag: a.mag, lsb: a.lsb - 1, det: a.det };
        if self.chance(6) && self.allowed(elem, half) {
            self.emit("divf {}, 2.0", &[Use::Val(x)], ty, half);
            return true;
        }
        if self.chance(8) && op == "mulf" {
            let z = self.pick(|t, _| *t == ty).unwrap_or(x);
            let c = self.num(z);
            let sum = Num { mag: mag + c.mag, lsb: lsb.min(c.lsb), det: num.det && c.det };
            if self.allowed(elem, sum) {
                self.emit("fma {}, {}, {}", &[Use::Val(x), Use::Val(y), Use::Val(z)], ty, sum);
                return true;
            }
        }
        let attrs = match elem {
            Elem::F32 if self.chance(5) => match op {
                "maxf" | "minf" => " <{ftz}>",
                _ => self.one(&[" <{rounding = zero}>", " <{rounding = negative_inf}>", " <{ftz}>"]),
            },
            _ => "",
        };
        self.emit(&format!("{op} {{}}, {{}}{attrs}"), &[Use::Val(x), Use::Val(y)], ty, num);
        true
    }

    fn unary(&mut self) -> bool {
        let Some(x) = self.pick(|t, _| matches!(t, Ty::Tile(..)) && t.elem().is_float()) else {
            return false;
        };
        let (ty, mut num) = (self.ty(x), self.num(x));
        if self.k.exact || !matches!(ty.elem(), Elem::F32 | Elem::F64) {
            let whole = Num { mag: num.mag + 1.0, lsb: 0, det: true };
            if num.det && self.allowed(ty.elem(), whole) && self.chance(30) {
                let op = self.one(&["floor", "ceil"]);
                self.emit(&format!("{op} {{}}"), &[Use::Val(x)], ty, whole);
                return true;
            }
            let op = self.one(&["negf", "absf"]);
            self.emit(&format!("{op} {{}}"), &[Use::Val(x)], ty, num);
            return true;
        }
        num.det = false;
        // Few tiles are of f64 by themselves.
        let (x, ty) = if ty.elem() == Elem::F32 && self.chance(15) {
            let wide = Ty::Tile(self.tile(x).0, Elem::F64);
            (self.emit("ftof {}", &[Use::Val(x)], wide.clone(), num), wide)
        } else {
            (x, ty)
        };
        // Where a function is steep, errors of its operand would grow.
        let (op, x, mag) = match self.below(12) {
            5 => (self.one(&["sin", "cos"]), self.clamp(x, 1), 1.0),
            6 => ("tan", self.clamp(x, 1), 2.0),
            7 => (self.one(&["sinh", "cosh"]), self.clamp(x, 4), 28.0),
            8 if ty.elem() == Elem::F32 => (self.one(&["erf", "tanh <{rounding = approx}>"]), x, 1.0),
            8 => ("erf", x, 1.0),
            9 => ("powi", x, 0.0),
            10 => ("pow", x, 0.0),
            11 => ("atan2", x, 4.0),
            0 => ("exp", self.clamp(x, 4), 56.0),
            1 => ("exp2", self.clamp(x, 4), 16.0),
            2 => ("tanh", x, 1.0),
            3 => {
                let abs = self.emit("absf {}", &[Use::Val(x)], ty.clone(), self.num(x));
                ("sqrt", abs, self.num(x).mag.sqrt() + 1.0)
            }
            _ => {
                let abs = self.emit("absf {}", &[Use::Val(x)], ty.clone(), self.num(x));
                let up = self.emit("addf {}, 1.0", &[Use::Val(abs)], ty.clone(), self.num(x));
                ("rsqrt", up, 1.0)
            }
        };
        match op {
            "powi" => {
                let (x, n) = (self.clamp(x, 4), self.one(&[2, 3, -1]));
                let abs = self.emit("absf {}", &[Use::Val(x)], ty.clone(), self.num(x));
                let up = self.emit("addf {}, 1.0", &[Use::Val(abs)], ty.clone(), self.num(x));
                let (shape, _) = self.tile(x);
                let by = format!("constant {n}");
                let by = self.emit(&by, &[], Ty::Tile(shape, Elem::I32), Num::whole(3.0));
                self.emit("powi {}, {}", &[Use::Val(up), Use::Val(by)], ty, Num { mag: 125.0, ..num });
            }
            "pow" => {
                let x = self.clamp(x, 4);
                let abs = self.emit("absf {}", &[Use::Val(x)], ty.clone(), self.num(x));
                let up = self.emit("addf {}, 1.0", &[Use::Val(abs)], ty.clone(), self.num(x));
                self.emit("pow {}, 1.5", &[Use::Val(up)], ty, Num { mag: 12.0, ..num });
            }
            "atan2" => {
                self.emit("atan2 {}, 2.0", &[Use::Val(x)], ty, Num { mag, ..num });
            }
            _ => {
                let (name, attrs) =
                    op.split_once(' ').map_or((op, ""), |(name, _)| (name, &op[name.len()..]));
                self.emit(&format!("{name} {{}}{attrs}"), &[Use::Val(x)], ty, Num { mag, ..num });
            }
        }
        true
    }

    /// The value with all elements between -most and most.
    fn clamp(&mut self, x: Id, most: i64) -> Id {
        let (ty, mut num) = (self.ty(x), self.num(x));
        let a = self.emit(&format!("minf {{}}, {most}.0"), &[Use::Val(x)], ty.clone(), num);
        num.mag = num.mag.min(most as f64);
        self.emit(&format!("maxf {{}}, -{most}.0"), &[Use::Val(a)], ty, num)
    }

    fn choice(&mut self) -> bool {
        let tile = |t: &Ty| matches!(t, Ty::Tile(..));
        if self.chance(60) {
            let Some(c) = self.pick(|t, _| tile(t) && t.elem() == Elem::I1) else { return self.compare() };
            let (shape, _) = self.tile(c);
            let same = |t: &Ty, _: &Info| matches!(t, Ty::Tile(d, e) if *d == shape && *e != Elem::I1);
            let Some(x) = self.pick(same) else { return false };
            return self.select(c, x);
        }
        if self.chance(40) {
            let Some(c) = self.pick(|t, _| *t == Ty::Scalar(Elem::I1)) else { return self.compare() };
            let Some(x) = self.pick(|t, _| matches!(t, Ty::Tile(..) | Ty::Scalar(Elem::I32))) else {
                return false;
            };
            return self.select(c, x);
        }
        self.compare()
    }

    fn select(&mut self, c: Id, x: Id) -> bool {
        let ty = self.ty(x);
        let Some(y) = self.pick(|t, _| *t == ty) else { return false };
        let num = self.num(x).join(self.num(y));
        let (a, b) = (self.info[x].range, self.info[y].range);
        let uses = [Use::Val(c), Use::Val(x), Use::Val(y)];
        let id = self.emit("select {}, {}, {}", &uses, ty, num);
        self.info[id].range = (a.0.min(b.0), a.1.max(b.1));
        true
    }

    fn compare(&mut self) -> bool {
        let Some(x) = self.pick(|t, i| match t {
            Ty::Tile(_, e) => {
                !matches!(e, Elem::I1 | Elem::I8) && !e.is_tiny() && (i.num.det || !e.is_float())
            }
            _ => false,
        }) else {
            return false;
        };
        let (ty, (shape, elem)) = (self.ty(x), self.tile(x));
        let y = match self.pick(|t, i| *t == ty && i.num.det) {
            Some(y) if y != x => y,
            _ => self.constant(&ty),
        };
        let op = if elem.is_float() { "cmpf" } else { "cmpi" };
        let p = self.one(&["lt", "le", "gt", "ge", "eq", "ne"]);
        let text = format!("{op} {{}}, {{}} <{{predicate = {p}}}>");
        self.emit(&text, &[Use::Val(x), Use::Val(y)], Ty::Tile(shape, Elem::I1), Num::whole(1.0));
        true
    }

    fn convert(&mut self) -> bool {
        let Some(x) = self.pick(|t, _| matches!(t, Ty::Tile(..))) else { return false };
        let ((shape, elem), num) = (self.tile(x), self.num(x));
        let (op, to, num) = match elem {
            Elem::I4 => {
                let to = self.one(&[Elem::I8, Elem::I16, Elem::I32, Elem::F16, Elem::F32, Elem::Bf16]);
                (if to.is_float() { "itof" } else { "exti" }, to, num)
            }
            Elem::E2m1 => ("ftof", self.one(&[Elem::F16, Elem::F32, Elem::Bf16]), num),
            Elem::F32 | Elem::F16 | Elem::Bf16 if num.det && self.chance(5) => {
                ("ftof", Elem::E2m1, Num { mag: 6.0, lsb: -1, det: true })
            }
            Elem::I8 | Elem::I16 | Elem::I32 if self.chance(8) => ("trunci", Elem::I4, Num::whole(8.0)),
            Elem::F32 if self.chance(12) && num.det => ("ftoi", Elem::I32, Num { lsb: 0, ..num }),
            // Few bits: numbers that differ a little would differ much.
            Elem::F32 if self.chance(15) && num.det => {
                let to = self.one(&[Elem::E4m3, Elem::E5m2]);
                ("ftof", to, Num { mag: (num.mag * 1.2).min(57344.0), ..num })
            }
            Elem::E4m3 | Elem::E5m2 => ("ftof", self.one(&[Elem::F32, Elem::F16]), num),
            Elem::F64 if num.det && self.chance(30) => ("ftoi", Elem::I64, Num { lsb: 0, ..num }),
            Elem::F64 => {
                let to = self.one(&[Elem::F16, Elem::F32, Elem::Bf16]);
                ("ftof", to, Num { mag: num.mag * 1.01, ..num })
            }
            Elem::F32 => {
                let to = self.one(&[Elem::F16, Elem::F16, Elem::Bf16, Elem::F64]);
                ("ftof", to, Num { mag: num.mag * 1.01, ..num })
            }
            Elem::F16 | Elem::Bf16 if self.chance(85) => ("ftof", Elem::F32, num),
            Elem::F16 => ("ftof", Elem::Bf16, Num { mag: num.mag * 1.01, ..num }),
            Elem::Bf16 => ("ftof", Elem::F16, num),
            Elem::I64 | Elem::I32 | Elem::I16 if num.mag <= 1e6 && self.chance(70) => {
                ("itof", Elem::F32, num)
            }
            Elem::I32 if self.chance(50) => return false,
            Elem::I32 | Elem::I16 if self.chance(20) => ("exti", Elem::I64, num),
            Elem::I64 => ("trunci", Elem::I32, Num::whole(2147483648.0)),
            Elem::I32 => ("trunci", Elem::I16, Num::whole(32768.0)),
            Elem::I16 => ("exti", Elem::I32, num),
            Elem::I8 => ("exti", Elem::I32, num),
            Elem::I1 => ("exti", Elem::I32, num),
        };
        if to.is_float() && !self.allowed(to, num) {
            return false;
        }
        self.emit(&format!("{op} {{}}"), &[Use::Val(x)], Ty::Tile(shape, to), num);
        true
    }

    /// Splats, broadcasts, reshapes, counts.
    fn spread(&mut self) -> bool {
        let (m, n) = (self.one(&self.rows.clone()), self.one(&self.dims.clone()));
        match self.below(4) {
            0 => {
                let Some(x) = self.pick(|t, _| matches!(t, Ty::Scalar(e) if *e != Elem::I1)) else {
                    return false;
                };
                let shape = if self.chance(50) { vec![m, n] } else { self.shape() };
                let ty = Ty::Tile(shape, self.ty(x).elem());
                let num = self.num(x);
                self.emit("splat {}", &[Use::Val(x)], ty, num);
                true
            }
            1 => {
                self.emit("iota", &[], Ty::Tile(vec![n], Elem::I32), Num::whole(f64::from(n)));
                true
            }
            _ => {
                let thin = |t: &Ty, _: &Info| match t {
                    Ty::Tile(d, e) => {
                        *e != Elem::I1 && (d.len() == 1 && d[0] <= 128 || d.len() == 2 && d.contains(&1))
                    }
                    _ => false,
                };
                let Some(mut x) = self.pick(thin) else {
                    // Three dimensions and back.
                    let Some(x) =
                        self.pick(|t, _| matches!(t, Ty::Tile(d, e) if d.len() >= 2 && *e != Elem::I1))
                    else {
                        return false;
                    };
                    let ((d, e), num) = (self.tile(x), self.num(x));
                    let to = if d.len() == 3 { vec![d[0] * d[1], d[2]] } else { vec![1, d[0], d[1]] };
                    self.emit("reshape {}", &[Use::Val(x)], Ty::Tile(to, e), num);
                    return true;
                };
                let ((mut d, e), num) = (self.tile(x), self.num(x));
                if d.len() == 1 {
                    let row =
                        if self.rows.contains(&d[0]) && self.chance(60) { [d[0], 1] } else { [1, d[0]] };
                    d = row.to_vec();
                    x = self.emit("reshape {}", &[Use::Val(x)], Ty::Tile(d.clone(), e), num);
                }
                let to = if d[0] == 1 { vec![m, d[1]] } else { vec![d[0], n] };
                self.emit("broadcast {}", &[Use::Val(x)], Ty::Tile(to, e), num);
                true
            }
        }
    }

    fn reduce(&mut self) -> bool {
        let Some(x) = self
            .pick(|t, _| matches!(t, Ty::Tile(d, e) if !d.is_empty() && !matches!(e, Elem::I1 | Elem::Bf16) && !e.is_tiny()))
        else {
            return false;
        };
        let ((d, e), num) = (self.tile(x), self.num(x));
        let axis = if self.chance(50) { d.len() - 1 } else { self.below(d.len()) };
        let mode = self.one(&["add", "max", "min"]);
        let sum = Num { mag: num.mag * f64::from(d[axis]), ..num };
        let num = match (mode, e) {
            ("add", Elem::I8) => Num::whole(128.0),
            ("add", Elem::I16) => Num::whole(32768.0),
            ("add", Elem::I64) => Num::whole(9.3e18),
            ("add", _) => sum,
            _ => num,
        };
        if e.is_float() && (!self.allowed(e, num) || self.k.exact && !num.sums()) {
            return false;
        }
        let text = format!("reduce {{}} <{{mode = {mode}, axis = {axis}}}>");
        let left: Vec<u32> = d.iter().enumerate().filter(|x| x.0 != axis).map(|x| *x.1).collect();
        let id = self.emit(&text, &[Use::Val(x)], Ty::Tile(left, e), num);
        if self.chance(70) || d.len() == 1 {
            let mut thin = d.clone();
            thin[axis] = 1;
            let thin = self.emit("reshape {}", &[Use::Val(id)], Ty::Tile(thin, e), num);
            self.emit("broadcast {}", &[Use::Val(thin)], Ty::Tile(d, e), num);
        }
        true
    }

    /// Axes in another order, halves, two tiles as one.
    fn rearrange(&mut self) -> bool {
        let Some(x) = self.pick(|t, _| matches!(t, Ty::Tile(d, _) if !d.is_empty())) else { return false };
        let ((d, e), num) = (self.tile(x), self.num(x));
        let rank = d.len();
        match self.below(4) {
            0 | 1 if rank > 1 => {
                let mut order: Vec<usize> = (0..rank).collect();
                for n in (1..rank).rev() {
                    let with = self.below(n + 1);
                    order.swap(n, with);
                }
                let to = order.iter().map(|&a| d[a]).collect();
                self.emit(
                    &format!("permute {{}} <{{permutation = {order:?}}}>"),
                    &[Use::Val(x)],
                    Ty::Tile(to, e),
                    num,
                );
                true
            }
            2 => {
                let axis = self.below(rank);
                if d[axis] == 1 {
                    return false;
                }
                let (mut to, mut at) = (d.clone(), vec![0; rank]);
                to[axis] /= 2;
                if self.chance(50) {
                    at[axis] = to[axis];
                }
                let text = format!("extract_slice {{}} <{{offsets = {at:?}, sizes = {to:?}}}>");
                self.emit(&text, &[Use::Val(x)], Ty::Tile(to, e), num);
                true
            }
            _ => {
                let ty = self.ty(x);
                let axis = self.below(rank);
                let Some(y) = self.pick(|t, _| *t == ty) else { return false };
                if d.iter().product::<u32>() > 8192 {
                    return false;
                }
                let mut to = d;
                to[axis] *= 2;
                let both = num.join(self.num(y));
                self.emit(
                    &format!("cat {{}}, {{}} <{{axis = {axis}}}>"),
                    &[Use::Val(x), Use::Val(y)],
                    Ty::Tile(to, e),
                    both,
                );
                true
            }
        }
    }

    fn int_op(&mut self) -> bool {
        let Some(x) =
            self.pick(|t, _| matches!(t, Ty::Tile(_, Elem::I64 | Elem::I32 | Elem::I16 | Elem::I8)))
        else {
            return false;
        };
        let (ty, a) = (self.ty(x), self.num(x));
        if self.chance(15) {
            let by = self.one(&[2, 3, 7]);
            let op = self.one(&["divi", "remi", "shri", "shli", "divi"]);
            let mag = if op == "shli" { 9.3e18 } else { a.mag };
            let attrs = match op {
                "divi" => self.one(&["", " <{rounding = negative_inf}>", " <{rounding = positive_inf}>"]),
                _ => "",
            };
            self.emit(&format!("{op} {{}}, {by}{attrs}"), &[Use::Val(x)], ty, Num::whole(mag));
            return true;
        }
        let y = match self.pick(|t, _| *t == ty) {
            Some(y) => y,
            None => self.constant(&ty),
        };
        let b = self.num(y);
        let (op, mag) = match self.below(8) {
            0 => ("addi", a.mag + b.mag),
            1 => ("subi", a.mag + b.mag),
            2 => ("muli", a.mag * b.mag),
            3 => ("maxi", a.mag.max(b.mag)),
            4 => ("mini", a.mag.max(b.mag)),
            5 => (self.one(&["andi", "mulhii"]), 2e9),
            6 => ("ori", 2e9),
            _ if self.chance(20) => {
                let mag = if ty.elem() == Elem::I16 { 32768.0 } else { a.mag };
                let (op, mag) = self.one(&[("absi", mag), ("popci", 64.0)]);
                self.emit(&format!("{op} {{}}"), &[Use::Val(x)], ty, Num::whole(mag));
                return true;
            }
            _ => ("xori", 2e9),
        };
        let mag = match ty.elem() {
            Elem::I8 => 128.0,
            Elem::I16 => 32768.0,
            Elem::I64 if mag > 1e6 => 9.3e18,
            _ => mag,
        };
        self.emit(&format!("{op} {{}}, {{}}"), &[Use::Val(x), Use::Val(y)], ty, Num::whole(mag));
        true
    }

    fn scalar(&mut self) -> bool {
        let int = Ty::Scalar(Elem::I32);
        let Some(x) = self.pick(|t, _| *t == int) else { return false };
        let (lo, hi) = self.info[x].range;
        let y = self.pick(|t, _| *t == int).unwrap_or(x);
        let (a, b) = self.info[y].range;
        let (text, two, range) = match self.below(8) {
            0 | 1 => ("addi {}, {}", true, (lo + a, hi + b)),
            2 => ("subi {}, {}", true, (lo - b, hi - a)),
            3 if !self.views.is_empty() && self.chance(30) => {
                let n = self.below(self.views.len());
                let (view, axis) = (self.views[n].id, self.below(self.views[n].rank));
                let text = format!("dim {{}} <{{axis = {axis}}}>");
                let extent = self.emit(&text, &[Use::Val(view)], int.clone(), Num::whole(4096.0));
                self.info[extent].range = (1, 4096);
                let id = self.emit("divi {}, 64", &[Use::Val(extent)], int.clone(), Num::whole(64.0));
                self.info[id].range = (0, 64);
                let id = self.emit("mini {}, 3", &[Use::Val(id)], int, Num::whole(3.0));
                self.info[id].range = (0, 3);
                return true;
            }
            3 => ("andi {}, 3", false, (0, 3)),
            4 => ("mini {}, {}", true, (lo.min(a), hi.min(b))),
            5 => ("muli {}, 2", false, (lo * 2, hi * 2)),
            6 => ("addi {}, 1", false, (lo + 1, hi + 1)),
            _ => return self.condition().is_some(),
        };
        let range = if range.0 < ANY.0 || range.1 > ANY.1 { ANY } else { range };
        let uses = [Use::Val(x), Use::Val(y)];
        let id = self.emit(text, if two { &uses } else { &uses[..1] }, int, Num::whole(2e9));
        self.info[id].num.mag = range.0.abs().max(range.1.abs()) as f64;
        self.info[id].range = range;
        true
    }

    fn condition(&mut self) -> Option<Id> {
        let int = Ty::Scalar(Elem::I32);
        let x = self.pick(|t, _| *t == int)?;
        let p = self.one(&["lt", "le", "gt", "ge", "eq", "ne"]);
        let y = if self.chance(50) {
            Use::Val(self.pick(|t, _| *t == int)?)
        } else {
            Use::Int(self.below(3) as i64)
        };
        let uses = [Use::Val(x), y];
        let text = format!("cmpi {{}}, {{}} <{{predicate = {p}}}>");
        Some(self.emit(&text, &uses, Ty::Scalar(Elem::I1), Num::whole(1.0)))
    }

    // Regions.

    /// Opens a region, grows it, and closes it with `end`.
    fn region(&mut self, args: Vec<Id>, most: usize, end: impl FnOnce(&mut Self) -> Vec<Use>) -> Block {
        self.scopes.push(args.clone());
        self.blocks.push(Vec::new());
        let outside = self.left;
        self.left = (1 + self.below(most)).min(outside.max(1));
        let inside = self.left;
        while self.left > 0 {
            self.step();
        }
        self.left = outside.saturating_sub(inside);
        self.finish(35);
        let yields = end(self);
        self.touch(&yields);
        self.scopes.pop();
        let stmts = self.blocks.pop().expect("the region's block");
        Block { args, stmts, yields, end: End::Falls }
    }

    /// Stores some of what nothing has used.
    fn finish(&mut self, percent: usize) {
        let unused: Vec<Id> = self.scopes.last().expect("a scope").clone();
        let mut stores = 0;
        for id in unused.into_iter().rev() {
            if storable(&self.k.types[id]) && !self.info[id].used && stores < 3 && self.chance(percent) {
                self.store(id);
                stores += 1;
            }
        }
    }

    /// A bound of at most so many trips.
    fn bound(&mut self, most: i64) -> (Use, i64) {
        match self.below(10) {
            0 => (Use::Int(0), 0),
            1 => (Use::Int(1), 1),
            2..5 => {
                let n = most.min(3);
                (Use::Int(n), n)
            }
            _ => {
                let int = Ty::Scalar(Elem::I32);
                if let Some(n) = self.pick(|t, i| *t == int && i.range.1 <= most) {
                    let hi = self.info[n].range.1.max(0);
                    return (Use::Val(n), hi);
                }
                let Some(x) = self.pick(|t, _| *t == int) else { return (Use::Int(1), 1) };
                let mask = if most >= 3 { 3 } else { 1 };
                let id = self.emit(&format!("andi {{}}, {mask}"), &[Use::Val(x)], int, Num::whole(3.0));
                self.info[id].range = (0, mask);
                (Use::Val(id), mask)
            }
        }
    }

    fn repeat(&mut self) -> bool {
        let depth = self.blocks.len();
        let most = TRIPS / self.trips;
        if depth > 3 || most < 1 {
            return false;
        }
        let (upper, hi) = self.bound(most.min(4));
        let int = Ty::Scalar(Elem::I32);
        let small = if self.chance(12) { self.pick(|t, i| *t == int && i.range.0 >= 0) } else { None };
        let lower = small.map_or(Use::Int(if self.chance(85) { 0 } else { 1 }), Use::Val);
        let large = if self.chance(10) { self.pick(|t, i| *t == int && i.range.0 >= 1) } else { None };
        let step = large.map_or(Use::Int(if self.chance(85) { 1 } else { 2 }), Use::Val);
        // By how much a carried value may grow in a trip.
        let grows = f64::from(1 << (18 - 2 * depth.min(5)));
        let mut inits: Vec<Id> = Vec::new();
        for _ in 0..self.below(4) {
            let init = match self.below(10) {
                0..4 => {
                    let ty =
                        Ty::Tile(vec![self.one(&self.rows.clone()), self.one(&self.dims.clone())], Elem::F32);
                    let product =
                        if self.chance(40) { self.pick(|_, i| i.product && !i.grown) } else { None };
                    if let Some(product) = product {
                        product
                    } else if self.chance(60) {
                        self.pick(|t, _| *t == ty).unwrap_or_else(|| self.constant(&ty))
                    } else {
                        self.constant(&ty)
                    }
                }
                4..8 => match self.pick(|t, _| matches!(t, Ty::Tile(_, e) if *e != Elem::I1)) {
                    Some(x) => x,
                    None => continue,
                },
                _ => match self.pick(|t, _| matches!(t, Ty::Scalar(Elem::I32 | Elem::F32))) {
                    Some(x) => x,
                    None => continue,
                },
            };
            inits.push(init);
        }
        let float = |g: &Self, id: Id| g.k.types[id].elem().is_float();
        let all = inits.iter().filter(|&&i| float(self, i));
        let (mag, lsb) =
            all.fold((1.0f64, -4), |(m, l), &i| (m.max(self.num(i).mag), l.min(self.num(i).lsb)));
        let trips = hi.max(1) as f64;
        let bound = |g: &Self, id: Id| {
            let det = g.k.exact;
            match g.k.types[id].elem() {
                Elem::F32 => Num { mag: mag + trips * grows, lsb, det },
                e if e.is_float() => Num { mag: mag.max(256.0), lsb, det },
                Elem::I1 => Num::whole(1.0),
                _ => Num::whole(2e9),
            }
        };
        if inits.iter().any(|&i| {
            let e = self.k.types[i].elem();
            e.is_float() && !self.allowed(e, bound(self, i))
        }) {
            return false;
        }
        let iv = self.value(Ty::Scalar(Elem::I32), Num::whole(8.0));
        self.info[iv].range = (0, hi.max(0));
        let mut args = vec![iv];
        let mut results = Vec::new();
        for &i in &inits {
            let (ty, num) = (self.ty(i), bound(self, i));
            args.push(self.value(ty.clone(), num));
            results.push(self.value(ty, num));
        }
        let saved = self.trips;
        self.trips *= hi.max(1);
        let carried: Vec<Id> = args[1..].to_vec();
        let outside = self.carried.len();
        let inner = std::mem::replace(&mut self.inner, self.scopes.len());
        self.carried.extend(&carried);
        let first = self.around.len();
        self.around.extend(&inits);
        let form = match self.below(12) {
            0 => Form::Loop(Test::First),
            1 => Form::Loop(Test::Difference),
            2 if lower == Use::Int(0) => Form::Loop(Test::Last),
            _ => Form::For,
        };
        self.loops.push((carried.clone(), grows, form.clone()));
        let body = self.region(args, 8, |g| carried.iter().map(|&a| Use::Val(g.next(a, grows))).collect());
        self.loops.pop();
        self.trips = saved;
        self.carried.truncate(outside);
        self.inner = inner;
        self.around.truncate(first);
        let mut uses = vec![lower, upper, step];
        uses.extend(inits.iter().map(|&i| Use::Val(i)));
        self.push(form, uses, results, vec![body]);
        true
    }

    /// What follows a carried value: anything of its type that is not too large.
    fn next(&mut self, arg: Id, grows: f64) -> Id {
        let (ty, most) = (self.ty(arg), self.num(arg));
        let (local, from) =
            (self.scopes.last().expect("a scope").clone(), if self.chance(70) { 1 } else { 0 });
        let good = |i: &Info| !ty.elem().is_float() || i.num.lsb >= most.lsb && (i.num.det || !most.det);
        let fresh = self.pick(|t, i| *t == ty && good(i) && !i.used);
        let here: Vec<Id> = local
            .iter()
            .copied()
            .filter(|&id| id != arg && self.k.types[id] == ty && good(&self.info[id]))
            .collect();
        let drawn = if fresh.is_some() && self.chance(40) {
            fresh
        } else if from == 1 && !here.is_empty() {
            Some(self.one(&here))
        } else {
            self.pick(|t, i| *t == ty && good(i))
        };
        let y = drawn.unwrap_or(arg);
        let grows = if ty.elem() == Elem::F32 { grows } else { 0.0 };
        if ty.elem().is_float() && self.num(y).mag > most.mag + grows { self.clamp(y, 64) } else { y }
    }

    fn branch(&mut self) -> bool {
        if self.blocks.len() > 4 {
            return false;
        }
        let known = if self.chance(40) { self.pick(|t, _| *t == Ty::Scalar(Elem::I1)) } else { None };
        let Some(c) = known.or_else(|| self.condition()) else { return false };
        let mut types = Vec::new();
        for _ in 0..self.below(3) {
            let one = self.pick(|t, _| match t {
                Ty::Tile(_, e) => *e != Elem::I1,
                Ty::Scalar(e) => *e == Elem::I32,
                _ => false,
            });
            types.extend(one.map(|x| self.ty(x)));
        }
        let mut blocks = Vec::new();
        let arms = if types.is_empty() && self.chance(50) { 1 } else { 2 };
        // One arm may leave the loop, or the kernel.
        let leaves =
            if self.chance(if self.loops.is_empty() { 8 } else { 35 }) { self.below(arms) } else { arms };
        for arm in 0..arms {
            if arm == leaves {
                let (carried, grows, around) =
                    self.loops.last().cloned().unwrap_or((Vec::new(), 0.0, Form::If));
                let end = match around {
                    Form::For => End::Continues,
                    Form::Loop(Test::Last) => End::Breaks,
                    Form::Loop(_) => self.one(&[End::Breaks, End::Continues]),
                    _ => End::Returns,
                };
                let next = |g: &mut Self| carried.iter().map(|&a| Use::Val(g.next(a, grows))).collect();
                let block = self.region(Vec::new(), 3, next);
                blocks.push(Block { end, ..block });
                continue;
            }
            let types = types.clone();
            blocks.push(self.region(Vec::new(), 4, |g| {
                let mut yields = Vec::new();
                for ty in &types {
                    let here: Vec<Id> = g.scopes.last().expect("a scope").clone();
                    let here: Vec<Id> = here.into_iter().filter(|&id| g.k.types[id] == *ty).collect();
                    let y = if !here.is_empty() && g.chance(70) {
                        g.one(&here)
                    } else {
                        g.pick(|t, _| t == ty).expect("the type was drawn from a visible value")
                    };
                    yields.push(Use::Val(y));
                }
                yields
            }));
        }
        let mut results = Vec::new();
        for (n, ty) in types.into_iter().enumerate() {
            let both: Vec<Info> = blocks
                .iter()
                .filter(|b| b.end == End::Falls)
                .filter_map(|b| match b.yields[n] {
                    Use::Val(id) => Some(self.info[id]),
                    Use::Int(_) => None,
                })
                .collect();
            let num = both.iter().fold(both[0].num, |a, i| a.join(i.num));
            let id = self.value(ty, num);
            self.info[id].range =
                both.iter().fold(both[0].range, |a, i| (a.0.min(i.range.0), a.1.max(i.range.1)));
            results.push(id);
        }
        self.push(Form::If, vec![Use::Val(c)], results, blocks);
        true
    }
}
