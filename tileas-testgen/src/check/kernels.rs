//! Draws kernels that are legal by the documented rules, with arguments to run them on and options to compile them with.
//!
//! In: random data. Out: [`Drawn`]: C (and D) = what a tree of loops, branches, products and element-wise steps makes of A, B and
//! further views. All that is drawn must compile; memory, registers and constraints that nothing can meet are the only reasons to
//! refuse it. Drawn are tile sizes (of A and B two along K), element types, transpositions, swizzles, tails, a persistent loop, one or two
//! accumulators that begin with zero or with a loaded tile, explicit loads and stores through descriptors, memory semantics of scalar loads, products of loaded, of computed and of register tiles,
//! broadcast rows and columns, reductions, conversions, stores in the middle and reads of what was stored, scalars that are computed, loaded or
//! carried as coordinates, bounds and conditions, scheduling attributes, options.
//!
//! Guarantees: the same data gives the same kernel. An accumulator value has one successor, as tied storage asks for. A
//! run is short: the trips of nested loops are multiplied, and no more is drawn than [`WORK`] multiplications. Numbers stay
//! exact in any order of summation unless [`Drawn::exact`] is false; then no comparison rests on them.

use arbitrary::{Result, Unstructured};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Multiplications of one program of a kernel, at most.
const WORK: u64 = 12 << 20;

/// A kernel that was drawn, and how to compile and launch it.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// Its source.
    pub text: String,
    /// Its views: name, extents, element type.
    pub views: Vec<(&'static str, Vec<u32>, &'static str)>,
    /// Its scalars.
    pub scalars: Vec<(&'static str, f64)>,
    /// CTAs along each axis.
    pub grid: [u32; 2],
    /// Whether every order of summation gives the same numbers.
    pub exact: bool,
    /// Compiler options that differ from the defaults.
    pub options: Vec<(&'static str, &'static str)>,
}

/// Options and values to draw from.
const OPTIONS: &[(&str, &[&str])] = &[
    ("scheduler", &["serial", "cost", "optimal"]),
    ("published.cycle-model", &["real"]),
    ("published.selector", &["spec"]),
    ("published.serial-threshold", &["0", "40"]),
    ("search.ii-search", &["linear", "gallop"]),
    ("search.budget-ratio", &["1"]),
    ("search.step-limit", &["1", "40"]),
    ("max-stages", &["1", "2", "3"]),
    ("published.rrt-size-threshold", &["0", "16"]),
    ("search.seed", &["7"]),
    ("published.arm-policy", &["lowest-cost", "permute"]),
    ("published.g2-horizon", &["fixed"]),
    ("search.permute-budget", &["1"]),
    ("search.arm-steps", &["0"]),
    ("search.exact-steps", &["0"]),
    ("search.steps", &["0", "1000"]),
    ("search.lifetime-steps", &["0"]),
    ("published.spill-budget", &["16", "64"]),
    ("tune.fuse-reads", &["true"]),
    ("published.latency-ceilings", &["true"]),
    ("pipeline-strategy", &["none", "unspecialized", "warp-specialize"]),
    ("published.light-specialization", &["true"]),
    ("max-simt-agents", &["2", "4"]),
    ("slice-regs", &["8", "16", "32", "128"]),
    ("tune.roll-slices", &["0", "1", "3"]),
    ("tma-rewrite", &["false"]),
    ("tune.max-peeled-ops", &["0", "1000"]),
    ("pipeline-depth", &["1", "2", "3", "7"]),
    ("tune.max-slots", &["1", "2"]),
    ("smem-bytes", &["65536", "98304"]),
    ("published.max-constraint-iterations", &["0", "1"]),
    ("max-regs", &["64", "128"]),
    ("regalloc", &["plan"]),
    ("ptx-comments", &["false"]),
    ("simt-warps", &["1", "2", "8"]),
];

/// Swizzles that a row of so many bytes holds, the widest first.
fn fitting(bytes: u32) -> impl Iterator<Item = &'static str> {
    let all = [("b128", 128), ("b64", 64), ("b32", 32), ("none", 16)];
    all.into_iter().filter(move |x| bytes >= x.1).map(|x| x.0)
}

/// Draws a kernel.
///
/// # Errors
/// When the data ends.
pub fn kernel(u: &mut Unstructured<'_>) -> Result<Drawn> {
    let m = *u.choose(&[64u32, 128, 128])?;
    let n = *u.choose(&[16u32, 32, 64, 64, 128, 128, 256])?;
    let k = *u.choose(&[16u32, 32, 64, 64, 128])?;
    let transposed = [u.ratio(1, 4)?, u.ratio(1, 2)?];
    // Two sizes of tiles of A and B, and descriptors of both.
    let other = if u.ratio(1, 4)? { *u.choose(&[16u32, 32, 64, 128])? } else { k };
    let boxes = [k, other]
        .map(|k| [if transposed[0] { [k, m] } else { [m, k] }, if transposed[1] { [n, k] } else { [k, n] }]);
    let mut swizzles = [[""; 2]; 2];
    for (s, b) in swizzles.iter_mut().flatten().zip(boxes.iter().flatten()) {
        let fit: Vec<&str> = fitting(2 * b[1]).collect();
        // The widest is what everyone takes.
        *s = if u.ratio(2, 3)? { fit[0] } else { *u.choose(&fit)? };
    }
    let grid = *u.choose(&[[1u32, 1], [1, 1], [1, 1], [2, 1], [2, 2]])?;
    let persistent = u.ratio(1, 6)?;
    let mut g = Kernel {
        text: String::new(),
        count: 0,
        m,
        n,
        k,
        elem: u.choose(&["f16", "bf16"])?,
        out: u.choose(&["f16", "bf16", "f32"])?,
        extra: u.choose(&["f16", "bf16", "f32"])?,
        other,
        transposed,
        boxes,
        plain: u.ratio(1, 4)?,
        explicit: u.ratio(1, 4)?,
        exact: u.ratio(3, 4)?,
        attributes: u.ratio(1, 3)?,
        left: 12,
        trips: 1,
        work: 0,
        used: BTreeSet::from(["a", "b", "c"]),
        described: BTreeSet::new(),
    };
    let mut s = Scope { accs: Vec::new(), ints: ["m", "n", "bm", "bn"].map(str::to_owned).to_vec() };
    let tiles = if persistent { u.int_in_range(1..=3)? } else { grid[0] * grid[1] };
    if persistent {
        g.trips = u64::from(tiles);
        // The tiles lie in a row along M.
        let _ = writeln!(g.text, "for %bm = %pid to %tiles step %np {{");
    }
    for _ in 0..u.int_in_range(1..=2)? {
        let first = g.begin(u)?;
        s.accs.push(Acc { name: first, mine: true });
    }
    g.block(u, &mut s, 0)?;
    for n in 0..s.accs.len() {
        g.store(u, &s.accs[n].name.clone(), n > 0)?;
    }
    if persistent {
        g.text.push_str("yield\n}\n");
    }
    // Extents that are no multiples of the tile; strides stay multiples of 16 bytes.
    let grid_m = if persistent { tiles } else { grid[0] };
    let grid_n = if persistent { 1 } else { grid[1] };
    let mut tail = |tile: u32| -> Result<u32> {
        Ok(if u.ratio(1, 4)? { 8 * u.int_in_range(0..=tile / 8 - 1)? } else { 0 })
    };
    let (rows, columns, depth) = (grid_m * m - tail(m)?, grid_n * n - tail(n)?, 3 * k.max(other) - tail(k)?);
    let pair = |t: bool, x: u32, y: u32| if t { vec![y, x] } else { vec![x, y] };
    let all = [
        ("a", pair(transposed[0], rows, depth), g.elem),
        ("b", pair(transposed[1], depth, columns), g.elem),
        ("c", vec![rows, columns], g.out),
        ("d", vec![rows, columns], "f32"),
        ("e", vec![n, n], g.elem),
        ("x", vec![rows, columns], g.extra),
        ("bias", vec![columns], g.extra),
        ("scale", vec![rows], "f32"),
        ("s", vec![4], "i32"),
        ("q", vec![2], "i32"),
    ];
    let views: Vec<_> = all.into_iter().filter(|v| g.used.contains(v.0)).collect();
    let mut text = String::from("kernel @k(");
    for (name, extents, elem) in &views {
        let dims = vec!["?"; extents.len()].join("x");
        let _ = write!(text, "%{name}: view<gmem, {dims}x{elem}>, ");
    }
    let _ = writeln!(text, "%n: i32, %m: i32, %tiles: i32, %alpha: f32) {{");
    if persistent {
        text.push_str(
            "%pid = program_id <{axis = 0}> : i32\n%np = num_programs <{axis = 0}> : i32\n%bn = constant 0 : i32\n",
        );
    } else {
        text.push_str("%bm = program_id <{axis = 0}> : i32\n%bn = program_id <{axis = 1}> : i32\n");
    }
    let mut descriptor = |name: &str, v: &str, [box0, box1]: [u32; 2], swizzle: &str, elem: &str| {
        let _ = writeln!(
            text,
            "%{name} = make_tiled_tma_desc %{v} <{{box = [{box0}, {box1}], swizzle = {swizzle}}}> : tma_desc<{box0}x{box1}x{elem}>"
        );
    };
    for (size, suffix) in ["", "2"].into_iter().enumerate().take(if other == k { 1 } else { 2 }) {
        for (side, v) in ["a", "b"].into_iter().enumerate() {
            descriptor(&format!("d{v}{suffix}"), v, boxes[size][side], swizzles[size][side], g.elem);
        }
    }
    for (v, elem) in [("c", g.out), ("d", "f32"), ("x", g.extra)] {
        if g.described.contains(v) {
            let swizzle = fitting(n * if elem == "f32" { 4 } else { 2 }).next().unwrap_or("none");
            descriptor(&format!("d{v}"), v, [m, n], swizzle, elem);
        }
    }
    let _ = writeln!(text, "%zero = constant 0.0 : {}", g.tile("f32"));
    text.push_str(&g.text);
    text.push_str("return\n}\n");
    let mut options: Vec<(&str, &str)> = Vec::new();
    if u.ratio(1, 2)? {
        for _ in 0..u.int_in_range(1..=4)? {
            let (name, values) = *u.choose(OPTIONS)?;
            if options.iter().all(|o| o.0 != name) {
                options.push((name, u.choose(values)?));
            }
        }
    }
    let scalars = vec![
        ("n", f64::from(u.int_in_range(0..=3u32)?)),
        ("m", f64::from(u.int_in_range(0..=2u32)?)),
        ("tiles", f64::from(tiles)),
        ("alpha", *u.choose(&[-1.0, 0.5, 2.0])?),
    ];
    let grid = if persistent { [1 + u32::from(u.ratio(1, 3)?), 1] } else { grid };
    Ok(Drawn { text, views, scalars, grid, exact: g.exact, options })
}

/// An accumulator where it can be seen.
#[derive(Clone)]
struct Acc {
    name: String,
    /// Whether it may be updated: its latest value is defined in this region, or it is handed through.
    mine: bool,
}

/// What can be named in a region.
#[derive(Clone)]
struct Scope {
    accs: Vec<Acc>,
    /// Small integers.
    ints: Vec<String>,
}

/// A kernel being written.
struct Kernel {
    text: String,
    count: u32,
    m: u32,
    n: u32,
    k: u32,
    /// Element type of A and B, of C, of the other operands.
    elem: &'static str,
    out: &'static str,
    extra: &'static str,
    /// The second size along K.
    other: u32,
    transposed: [bool; 2],
    /// Of A and B, in both sizes.
    boxes: [[[u32; 2]; 2]; 2],
    /// A and B are loaded without descriptors now and then.
    plain: bool,
    /// Other tiles go through descriptors now and then.
    explicit: bool,
    exact: bool,
    attributes: bool,
    /// Statements that may still be drawn.
    left: u32,
    /// How often what is written now may run in one program.
    trips: u64,
    work: u64,
    used: BTreeSet<&'static str>,
    /// Views with a descriptor of a tile of C.
    described: BTreeSet<&'static str>,
}

impl Kernel {
    fn fresh(&mut self) -> String {
        self.count += 1;
        format!("v{}", self.count)
    }

    fn tile(&self, elem: &str) -> String {
        format!("tile<{}x{}x{elem}>", self.m, self.n)
    }

    /// Books work; false if it would be too much.
    fn affords(&mut self, work: u64) -> bool {
        let sum = self.work + work * self.trips;
        let fits = sum <= WORK;
        if fits {
            self.work = sum;
        }
        fits
    }

    fn elements(&self) -> u64 {
        u64::from(self.m) * u64::from(self.n)
    }

    /// Annotations of an op: nothing, or constraints of its schedule.
    fn attrs(&self, u: &mut Unstructured<'_>) -> Result<String> {
        if !self.attributes || !u.ratio(1, 4)? {
            return Ok(String::new());
        }
        let c = "tileas.schedule.constraint";
        let number = u.int_in_range(1..=2)?;
        Ok(match u.int_in_range(0..=5)? {
            0 | 1 => {
                format!(" {{{c}.gid = {number} : i32, {c}.leader_gid = {} : i32}}", u.int_in_range(1..=2)?)
            }
            2 => format!(" {{{c}.max_depth = {number} : i32}}"),
            3 => format!(" {{{c}.force_serial_execution}}"),
            4 => format!(
                " {{{c}.gid = {number} : i32, {c}.leader_gid = {number} : i32, {c}.force_serial_execution}}"
            ),
            _ => format!(
                " {{tileas.preferred_atom_size = {} : i32, tileas.max_num_slices_for_non_reduce_axis = {number} : i32}}",
                32 * number
            ),
        })
    }

    /// Annotations of an op with regions.
    fn region_attrs(&self, u: &mut Unstructured<'_>) -> Result<String> {
        let text = self.attrs(u)?;
        Ok(if text.is_empty() { text } else { format!(" attributes{text}") })
    }

    fn int(&self, u: &mut Unstructured<'_>, s: &Scope) -> Result<String> {
        Ok(if u.ratio(1, 6)? {
            u.int_in_range(0..=2)?.to_string()
        } else {
            format!("%{}", u.choose(&s.ints)?)
        })
    }

    /// A coordinate: mostly the innermost index.
    fn at(&self, u: &mut Unstructured<'_>, s: &Scope) -> Result<String> {
        match s.ints.last() {
            Some(i) if u.ratio(3, 4)? => Ok(format!("%{i}")),
            _ => self.int(u, s),
        }
    }

    /// A further value to accumulate on: zeros, or a tile from memory.
    fn begin(&mut self, u: &mut Unstructured<'_>) -> Result<String> {
        if u.ratio(2, 3)? || !self.affords(self.elements()) {
            return Ok("zero".into());
        }
        self.loaded(u)
    }

    /// A tile of numbers from memory in f32.
    fn loaded(&mut self, u: &mut Unstructured<'_>) -> Result<String> {
        // What was stored may be read again.
        let (view, elem) =
            *u.choose(&[("x", self.extra), ("x", self.extra), ("c", self.out), ("d", "f32")])?;
        self.used.insert(view);
        let (l, tile, attrs) = (self.fresh(), self.tile(elem), self.attrs(u)?);
        let load = if self.explicit && u.ratio(1, 3)? {
            self.described.insert(view);
            "async.tiled_tma_load %d"
        } else {
            "tiled_load %"
        };
        let _ = writeln!(self.text, "%{l} = {load}{view}[%bm, %bn]{attrs} : {tile}");
        Ok(self.widened(&l, elem, None))
    }

    /// A value of f32, whatever its element type.
    fn widened(&mut self, v: &str, elem: &str, shape: Option<&str>) -> String {
        if elem == "f32" {
            return v.to_owned();
        }
        let (r, tile) = (self.fresh(), shape.map_or_else(|| self.tile("f32"), str::to_owned));
        let _ = writeln!(self.text, "%{r} = ftof %{v} : {tile}");
        r
    }

    /// Statements of a region.
    fn block(&mut self, u: &mut Unstructured<'_>, s: &mut Scope, depth: u32) -> Result<()> {
        for _ in 0..u.int_in_range(1..=4)? {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            let which = u.choose_index(s.accs.len())?;
            match u.int_in_range(0..=19)? {
                0..=5 => self.product(u, s, which)?,
                6..=9 if depth < 3 => self.for_loop(u, s, depth)?,
                10 | 11 if depth < 3 => self.branch(u, s, depth)?,
                12 => self.chained(u, s, which)?,
                13 => {
                    let (v, second) = (s.accs[which].name.clone(), u.ratio(1, 3)?);
                    self.store(u, &v, second)?;
                }
                14 => {
                    let (v, second) = (s.accs[which].name.clone(), u.ratio(1, 3)?);
                    let t = self.step(u, s, &v)?;
                    self.store(u, &t, second)?;
                }
                15 | 16 => self.scalar(u, s)?,
                17 if s.accs[which].mine => s.accs[which].name = self.begin(u)?,
                _ if s.accs[which].mine => {
                    let v = s.accs[which].name.clone();
                    s.accs[which].name = self.step(u, s, &v)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A tile of A (0) or B (1).
    fn operand(&mut self, u: &mut Unstructured<'_>, side: usize, size: usize, i: &str) -> Result<String> {
        let view = ["a", "b"][side];
        let (r, attrs, elem) = (self.fresh(), self.attrs(u)?, self.elem);
        let [rows, columns] = self.boxes[size][side];
        let swap = self.transposed[side];
        let at = match (side, swap) {
            (0, false) => format!("%bm, {i}"),
            (0, true) => format!("{i}, %bm"),
            (_, false) => format!("{i}, %bn"),
            (_, true) => format!("%bn, {i}"),
        };
        let load = if self.plain && u.arbitrary()? {
            format!("tiled_load %{view}")
        } else {
            format!("async.tiled_tma_load %d{view}{}", ["", "2"][size])
        };
        let _ = writeln!(self.text, "%{r} = {load}[{at}]{attrs} : tile<{rows}x{columns}x{elem}>");
        if !u.ratio(1, 12)? {
            return Ok(r);
        }
        // Through registers.
        let q = self.fresh();
        let _ = writeln!(self.text, "%{q} = maxf %{r}, 0.5 : tile<{rows}x{columns}x{elem}>");
        Ok(q)
    }

    fn product(&mut self, u: &mut Unstructured<'_>, s: &mut Scope, which: usize) -> Result<()> {
        let size = usize::from(self.other != self.k && u.arbitrary()?);
        let depth = u64::from([self.k, self.other][size]);
        if !self.affords(self.elements() * depth) {
            return Ok(());
        }
        let i = self.at(u, s)?;
        let a = self.operand(u, 0, size, &i)?;
        let b = self.operand(u, 1, size, &i)?;
        let mut flags: Vec<&str> = Vec::new();
        if self.transposed[0] {
            flags.push("transpose_a");
        }
        if self.transposed[1] {
            flags.push("transpose_b");
        }
        let flags = if flags.is_empty() { String::new() } else { format!(" <{{{}}}>", flags.join(", ")) };
        let dot = *u.choose(&["async.dot", "dot"])?;
        let (r, attrs, tile) = (self.fresh(), self.attrs(u)?, self.tile("f32"));
        let acc = s.accs[which].clone();
        if acc.mine && u.ratio(5, 6)? {
            let _ = writeln!(self.text, "%{r} = {dot} %{a}, %{b}, %{}{flags}{attrs} : {tile}", acc.name);
            s.accs[which].name = r;
            // Both accumulators from one A and B, as two products of one tile.
            if let Some(other) = (0..s.accs.len()).find(|&o| o != which && s.accs[o].mine)
                && u.ratio(1, 4)?
                && self.affords(self.elements() * depth)
            {
                let r = self.fresh();
                let _ =
                    writeln!(self.text, "%{r} = {dot} %{a}, %{b}, %{}{flags} : {tile}", s.accs[other].name);
                s.accs[other].name = r;
            }
            return Ok(());
        }
        // A product of its own.
        let _ = writeln!(self.text, "%{r} = {dot} %{a}, %{b}, %zero{flags}{attrs} : {tile}");
        if acc.mine {
            let sum = self.fresh();
            let _ = writeln!(self.text, "%{sum} = addf %{}, %{r} : {tile}", acc.name);
            s.accs[which].name = sum;
            Ok(())
        } else {
            self.store(u, &r, true)
        }
    }

    /// A product with what was computed as its left operand.
    fn chained(&mut self, u: &mut Unstructured<'_>, s: &mut Scope, which: usize) -> Result<()> {
        let (n, m, elem) = (self.n, self.m, self.elem);
        if n > 64 || !self.affords(self.elements() * u64::from(n)) {
            return Ok(());
        }
        let from = s.accs[u.choose_index(s.accs.len())?].name.clone();
        let (low, h, e, r) = (self.fresh(), self.fresh(), self.fresh(), self.fresh());
        self.used.insert("e");
        let tile = self.tile("f32");
        // Small whole numbers, so that every order of summation gives the same.
        let _ = writeln!(
            self.text,
            "%{low} = minf %{from}, 1.0 : {tile}\n%{h}x = maxf %{low}, -1.0 : {tile}\n%{h} = ftof %{h}x : tile<{m}x{n}x{elem}>\n\
             %{e} = tiled_load %e[0, 0] : tile<{n}x{n}x{elem}>"
        );
        let acc = s.accs[which].clone();
        let base = if acc.mine && u.arbitrary()? { acc.name.clone() } else { "zero".into() };
        let _ = writeln!(self.text, "%{r} = async.dot %{h}, %{e}, %{base} : {tile}");
        if base != "zero" {
            s.accs[which].name = r;
            return Ok(());
        }
        if acc.mine {
            let sum = self.fresh();
            let _ = writeln!(self.text, "%{sum} = subf %{}, %{r} : {tile}", acc.name);
            s.accs[which].name = sum;
            return Ok(());
        }
        self.store(u, &r, true)
    }

    /// A loop.
    fn for_loop(&mut self, u: &mut Unstructured<'_>, s: &mut Scope, depth: u32) -> Result<()> {
        let trips = self.trips;
        if !self.affords(self.elements()) {
            return Ok(());
        }
        self.trips = trips * 3;
        let i = self.fresh();
        let from = if u.ratio(1, 6)? { self.int(u, s)? } else { u.int_in_range(0..=2)?.to_string() };
        let to = match u.int_in_range(0..=5)? {
            0 => u.int_in_range(1..=3)?.to_string(),
            1 => {
                let (h, v) = (self.fresh(), u.choose(&s.ints)?.clone());
                let _ = writeln!(self.text, "%{h} = mini %{v}, 3 : i32");
                format!("%{h}")
            }
            _ => "%n".into(),
        };
        // Coordinates and bounds may be below zero by two.
        let from = if from.starts_with('%') {
            let h = self.fresh();
            let _ = writeln!(self.text, "%{h} = maxi {from}, 0 : i32");
            format!("%{h}")
        } else {
            from
        };
        let step = u.int_in_range(1..=2)?;
        let one = u.ratio(1, 4)?;
        let chosen = u.choose_index(s.accs.len())?;
        let carried: Vec<usize> =
            (0..s.accs.len()).filter(|&k| s.accs[k].mine && (!one || k == chosen)).collect();
        let mut inner = s.clone();
        inner.accs.iter_mut().for_each(|a| a.mine = false);
        let (mut results, mut args) = (Vec::new(), Vec::new());
        for &k in &carried {
            let (r, a, tile) = (self.fresh(), self.fresh(), self.tile("f32"));
            args.push(format!("%{a} = %{} : {tile}", s.accs[k].name));
            results.push(r);
            inner.accs[k] = Acc { name: a, mine: true };
        }
        let number = if u.ratio(1, 4)? {
            let (r, a) = (self.fresh(), self.fresh());
            args.push(format!("%{a} = %{} : i32", u.choose(&s.ints)?));
            results.push(r);
            inner.ints.push(a.clone());
            Some(a)
        } else {
            None
        };
        inner.ints.push(i.clone());
        let attrs = self.region_attrs(u)?;
        if !results.is_empty() {
            let _ = write!(self.text, "%{} = ", results.join(", %"));
        }
        let _ = write!(self.text, "for %{i} = {from} to {to} step {step}");
        if !args.is_empty() {
            let _ = write!(self.text, " iter ({})", args.join(", "));
        }
        let _ = writeln!(self.text, "{attrs} {{");
        self.block(u, &mut inner, depth + 1)?;
        let mut yields: Vec<String> = carried.iter().map(|&k| inner.accs[k].name.clone()).collect();
        if let Some(a) = number {
            let next = match u.int_in_range(0..=3)? {
                0 => i,
                1 => u.choose(&inner.ints)?.clone(),
                _ => {
                    let r = self.fresh();
                    let _ = writeln!(self.text, "%{r} = addi %{a}, 1 : i32");
                    r
                }
            };
            yields.push(next);
        }
        if yields.is_empty() {
            self.text.push_str("yield\n}\n");
        } else {
            let _ = writeln!(self.text, "yield %{}\n}}", yields.join(", %"));
        }
        self.trips = trips;
        for (&k, r) in carried.iter().zip(&results) {
            s.accs[k].name = r.clone();
        }
        if results.len() > carried.len() {
            s.ints.push(self.small(&results[carried.len()]));
        }
        Ok(())
    }

    /// A number that stays small.
    fn small(&mut self, v: &str) -> String {
        let (l, r) = (self.fresh(), self.fresh());
        let _ = writeln!(self.text, "%{l} = mini %{v}, 4 : i32\n%{r} = maxi %{l}, -2 : i32");
        r
    }

    /// A branch.
    fn branch(&mut self, u: &mut Unstructured<'_>, s: &mut Scope, depth: u32) -> Result<()> {
        let (c, x, y) = (self.fresh(), u.choose(&s.ints)?.clone(), self.int(u, s)?);
        let predicate = *u.choose(&["lt", "ge", "eq", "ne"])?;
        let _ = writeln!(self.text, "%{c} = cmpi %{x}, {y} <{{predicate = {predicate}}}> : i1");
        let mut handed = Vec::new();
        for k in 0..s.accs.len() {
            if s.accs[k].mine && u.ratio(3, 4)? {
                handed.push(k);
            }
        }
        let number = u.ratio(1, 5)?;
        let mut results: Vec<String> = handed.iter().map(|_| self.fresh()).collect();
        let mut types: Vec<String> = handed.iter().map(|_| self.tile("f32")).collect();
        if number {
            results.push(self.fresh());
            types.push("i32".into());
        }
        let attrs = self.region_attrs(u)?;
        if !results.is_empty() {
            let _ = write!(self.text, "%{} = ", results.join(", %"));
        }
        let _ = write!(self.text, "if %{c}{attrs}");
        if !types.is_empty() {
            let _ = write!(self.text, " : {}", types.join(", "));
        }
        self.text.push_str(" {\n");
        for arm in 0..2 {
            if arm == 1 {
                self.text.push_str("} else {\n");
            }
            let mut inner = s.clone();
            for k in 0..inner.accs.len() {
                inner.accs[k].mine &= handed.contains(&k);
            }
            if arm == 0 || u.arbitrary()? {
                self.block(u, &mut inner, depth + 1)?;
            }
            let mut yields: Vec<String> = handed.iter().map(|&k| inner.accs[k].name.clone()).collect();
            if number {
                yields.push(u.choose(&inner.ints)?.clone());
            }
            if yields.is_empty() {
                self.text.push_str("yield\n");
            } else {
                let _ = writeln!(self.text, "yield %{}", yields.join(", %"));
            }
        }
        self.text.push_str("}\n");
        for (&k, r) in handed.iter().zip(&results) {
            s.accs[k].name = r.clone();
        }
        if number {
            s.ints.extend(results.pop());
        }
        Ok(())
    }

    /// A further number.
    fn scalar(&mut self, u: &mut Unstructured<'_>, s: &mut Scope) -> Result<()> {
        let (r, x, y) = (self.fresh(), u.choose(&s.ints)?.clone(), self.int(u, s)?);
        match u.int_in_range(0..=6)? {
            0 | 1 => {
                self.used.insert("s");
                let attrs = self.attrs(u)?;
                let semantic = if u.ratio(1, 4)? {
                    let (semantic, scope) =
                        (*u.choose(&["relaxed", "acquire"])?, *u.choose(&["cta", "gpu", "sys"])?);
                    format!(" <{{mem_semantic = {semantic}, mem_scope = {scope}}}>")
                } else {
                    String::new()
                };
                let _ = writeln!(self.text, "%{r} = tiled_load %s[%{x}]{semantic}{attrs} : i32");
            }
            2 => {
                self.used.insert("q");
                // What the counter says depends on the order of the CTAs.
                let _ = writeln!(
                    self.text,
                    "%{r}o = constant 1 : i32\n%{r} = atomic_rmw %{r}o, %q[0] <{{mode = addi}}> : i32"
                );
                return Ok(());
            }
            3 => {
                let c = self.fresh();
                let _ = writeln!(
                    self.text,
                    "%{c} = cmpi %{x}, {y} <{{predicate = lt}}> : i1\n%{r} = if %{c} : i32 {{\nyield %{x}\n}} else {{\n%{r}e = addi %{x}, 1 : i32\nyield %{r}e\n}}"
                );
            }
            _ => {
                let op = *u.choose(&["addi", "subi", "mini", "maxi", "xori"])?;
                let _ = writeln!(self.text, "%{r} = {op} %{x}, {y} : i32");
            }
        }
        let small = self.small(&r);
        s.ints.push(small);
        Ok(())
    }

    /// A second operand of an element-wise op.
    fn other(&mut self, u: &mut Unstructured<'_>, s: &Scope, acc: &str) -> Result<String> {
        let (m, n, tile) = (self.m, self.n, self.tile("f32"));
        let r = self.fresh();
        match u.int_in_range(0..=7)? {
            0 => {
                let elem = self.extra;
                self.used.insert("bias");
                let _ = writeln!(self.text, "%{r}l = tiled_load %bias[%bn] : tile<{n}x{elem}>");
                let w = self.widened(&format!("{r}l"), elem, Some(&format!("tile<{n}xf32>")));
                let _ = writeln!(
                    self.text,
                    "%{r}s = reshape %{w} : tile<1x{n}xf32>\n%{r} = broadcast %{r}s : {tile}"
                );
            }
            1 => {
                self.used.insert("scale");
                let _ = writeln!(
                    self.text,
                    "%{r}l = tiled_load %scale[%bm] : tile<{m}xf32>\n%{r}s = reshape %{r}l : tile<{m}x1xf32>\n%{r} = broadcast %{r}s : {tile}"
                );
            }
            2 => {
                let _ = writeln!(self.text, "%{r} = splat %alpha : {tile}");
            }
            3 => return self.loaded(u),
            4 => {
                let mode = *u.choose(&["max", "min"])?;
                let _ = writeln!(
                    self.text,
                    "%{r}l = reduce %{acc} <{{mode = {mode}, axis = 1}}> : tile<{m}xf32>\n%{r}s = reshape %{r}l : tile<{m}x1xf32>\n%{r} = broadcast %{r}s : {tile}"
                );
            }
            5 => return Ok(u.choose(&s.accs)?.name.clone()),
            _ => {
                let x = *u.choose(&["0.5", "-1.0", "2.0"])?;
                let _ = writeln!(self.text, "%{r} = constant {x} : {tile}");
            }
        }
        Ok(r)
    }

    /// An element-wise step on a tile.
    fn step(&mut self, u: &mut Unstructured<'_>, s: &Scope, acc: &str) -> Result<String> {
        if !self.affords(self.elements() * 8) {
            return Ok(acc.to_owned());
        }
        let (r, tile) = (self.fresh(), self.tile("f32"));
        let attrs = self.attrs(u)?;
        match u.int_in_range(0..=9)? {
            0 => {
                let op = *u.choose(&["negf", "absf"])?;
                let _ = writeln!(self.text, "%{r} = {op} %{acc}{attrs} : {tile}");
            }
            1 if self.exact => {
                let x = self.other(u, s, acc)?;
                let mask = format!("tile<{}x{}xi1>", self.m, self.n);
                let _ = writeln!(
                    self.text,
                    "%{r}z = constant 0.25 : {tile}\n%{r}m = cmpf %{acc}, %{r}z <{{predicate = gt}}> : {mask}\n%{r} = select %{r}m, %{acc}, %{x}{attrs} : {tile}"
                );
            }
            1 | 2 if !self.exact => {
                let _ = writeln!(
                    self.text,
                    "%{r}n = minf %{acc}, 0.0 : {tile}\n%{r}s = maxf %{r}n, -8.0 : {tile}\n%{r} = exp2 %{r}s{attrs} : {tile}"
                );
            }
            2 => {
                let (m, n, narrow) = (self.m, self.n, *u.choose(&["f16", "bf16"])?);
                let _ = writeln!(
                    self.text,
                    "%{r}h = ftof %{acc} : tile<{m}x{n}x{narrow}>\n%{r} = ftof %{r}h{attrs} : {tile}"
                );
            }
            3 => {
                let (m, n) = (self.m, self.n);
                let (top, left) = (self.fresh(), self.fresh());
                let _ = writeln!(
                    self.text,
                    "%{r}y = iota : tile<{m}xi32>\n%{r}x = iota : tile<{n}xi32>\n%{r}c = reshape %{r}y : tile<{m}x1xi32>\n%{r}d = reshape %{r}x : tile<1x{n}xi32>\n\
                     %{top} = broadcast %{r}c : tile<{m}x{n}xi32>\n%{left} = broadcast %{r}d : tile<{m}x{n}xi32>\n\
                     %{r}m = cmpi %{top}, %{left} <{{predicate = ge}}> : tile<{m}x{n}xi1>\n%{r}z = constant 0.5 : {tile}\n%{r} = select %{r}m, %{acc}, %{r}z{attrs} : {tile}"
                );
            }
            _ => {
                let x = self.other(u, s, acc)?;
                // A product of two results grows beyond what is exact.
                let op = *u.choose(&["addf", "subf", "maxf", "minf"])?;
                let _ = writeln!(self.text, "%{r} = {op} %{acc}, %{x}{attrs} : {tile}");
                if u.ratio(1, 3)? {
                    let half = self.fresh();
                    let _ = writeln!(self.text, "%{half} = mulf %{r}, 0.5 : {tile}");
                    return Ok(half);
                }
            }
        }
        Ok(r)
    }

    /// A store to C, or to D.
    fn store(&mut self, u: &mut Unstructured<'_>, v: &str, second: bool) -> Result<()> {
        if !self.affords(2 * self.elements()) {
            return Ok(());
        }
        let (view, elem) = if second { ("d", "f32") } else { ("c", self.out) };
        self.used.insert(view);
        let attrs = self.attrs(u)?;
        let mut stored = v.to_owned();
        if elem != "f32" {
            stored = self.fresh();
            let tile = self.tile(elem);
            let _ = writeln!(self.text, "%{stored} = ftof %{v} : {tile}");
        }
        if self.explicit && u.arbitrary()? {
            self.described.insert(view);
            let _ = writeln!(self.text, "async.tiled_tma_store %d{view}[%bm, %bn], %{stored}{attrs}");
        } else {
            let _ = writeln!(self.text, "tiled_store %{stored}, %{view}[%bm, %bn]{attrs}");
        }
        Ok(())
    }
}
