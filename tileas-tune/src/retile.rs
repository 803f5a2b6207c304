//! Tile extents as something that can be changed.
//!
//! In: a kernel in source form. Out: classes of dimensions that must have the same extent ([`Dimensions`]), each with what it is now
//! and the parameters whose tiles it is of, and kernels with other extents. Tiles are addressed in tiles, so a kernel stays
//! the same function of its views when an extent changes, provided that the caller's scalars (numbers of tiles) change with it. Classes
//! in which that does not hold are fixed: dimensions with a constant coordinate (the tile is all there is), of `iota` (positions within
//! a tile), of slices, of reshapes that do more than add dimensions of 1, and those of another extent at the same coordinate.

use crate::error::{Code, Error};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tileas_codegen::ir::opcodes::{Traits, keys};
use tileas_codegen::ir::{AttrData, Function, Op, Opcode, Swizzle, TypeData, Value, ValueDef};

/// A class of dimensions, by its position.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub(crate) struct Class(usize);

/// Something that has an extent.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
enum Node {
    /// A dimension of a tile or of a descriptor's box.
    Dim(Value, usize),
    /// What a coordinate counts.
    Coordinate(Value),
}

/// What is known of a class.
#[derive(Clone, Debug, Default)]
struct About {
    /// `None`: of a coordinate without a tile yet.
    extent: Option<u32>,
    /// Why it cannot be changed.
    fixed: Option<&'static str>,
    /// Dimensions of parameters whose tiles it is of.
    places: SmallVec<[(Value, usize); 2]>,
}

/// The dimensions of a kernel's tiles, in classes.
#[derive(Clone, Debug)]
pub struct Dimensions {
    class_of: FxHashMap<(Value, usize), Class>,
    about: Vec<About>,
}

/// Classes while they grow together.
#[derive(Default)]
struct Union {
    number: FxHashMap<Node, usize>,
    nodes: Vec<Node>,
    parent: Vec<usize>,
    about: Vec<About>,
}

impl Union {
    fn root(&mut self, node: Node, extent: Option<u32>) -> usize {
        let next = self.parent.len();
        let mut n = *self.number.entry(node).or_insert(next);
        if n == next {
            self.parent.push(next);
            self.nodes.push(node);
            self.about.push(About { extent, ..About::default() });
        }
        while self.parent[n] != n {
            self.parent[n] = self.parent[self.parent[n]];
            n = self.parent[n];
        }
        n
    }

    fn unite(&mut self, a: usize, b: usize) {
        // The earlier one stays, so that classes are in the order of the program.
        let (a, b) = (a.min(b), a.max(b));
        if a == b {
            return;
        }
        let gone = std::mem::take(&mut self.about[b]);
        let kept = &mut self.about[a];
        if let (Some(x), Some(y)) = (kept.extent, gone.extent)
            && x != y
        {
            kept.fixed = Some("tiles of different extents have the same coordinate");
        }
        kept.extent = kept.extent.or(gone.extent);
        kept.fixed = kept.fixed.or(gone.fixed);
        for place in gone.places {
            if !kept.places.contains(&place) {
                kept.places.push(place);
            }
        }
        self.parent[b] = a;
    }
}

/// Extents of a tile or of a box.
fn dims(func: &Function, v: Value) -> Option<&[u32]> {
    match func.value_data(v) {
        TypeData::Tile { dims, .. } | TypeData::TmaDesc { dims, .. } => Some(dims),
        _ => None,
    }
}

struct Builder<'f> {
    func: &'f Function,
    union: Union,
}

impl Builder<'_> {
    fn dim(&mut self, v: Value, d: usize) -> Option<usize> {
        let extent = *dims(self.func, v)?.get(d)?;
        Some(self.union.root(Node::Dim(v, d), Some(extent)))
    }

    fn same_dim(&mut self, a: (Value, usize), b: (Value, usize)) {
        if let (Some(a), Some(b)) = (self.dim(a.0, a.1), self.dim(b.0, b.1)) {
            self.union.unite(a, b);
        }
    }

    /// Two values of equal rank, dimension by dimension.
    fn same(&mut self, a: Value, b: Value) {
        for d in 0..dims(self.func, a).map_or(0, <[u32]>::len) {
            self.same_dim((a, d), (b, d));
        }
    }

    fn fix(&mut self, v: Value, d: usize, why: &'static str) {
        if let Some(n) = self.dim(v, d) {
            self.union.about[n].fixed.get_or_insert(why);
        }
    }

    fn fix_all(&mut self, v: Value, why: &'static str) {
        for d in 0..dims(self.func, v).map_or(0, <[u32]>::len) {
            self.fix(v, d, why);
        }
    }

    /// A tile at coordinates of a view, or of a descriptor's view.
    fn access(&mut self, tile: Value, base: Value, coords: &[Value]) {
        let func = self.func;
        let (view, boxes) = match func.value_data(base) {
            TypeData::TmaDesc { .. } => (func.defining_op(base).map(|op| func.operands(op)[0]), true),
            _ => (Some(base), false),
        };
        for (d, &coord) in coords.iter().enumerate() {
            let Some(n) = self.dim(tile, d) else { continue };
            if boxes {
                self.same_dim((tile, d), (base, d));
            }
            if let Some(view) = view
                && !self.union.about[n].places.contains(&(view, d))
            {
                let n = self.union.root(Node::Dim(tile, d), None);
                self.union.about[n].places.push((view, d));
            }
            if func.constant_value(coord).is_some() {
                self.fix(tile, d, "its coordinate is a constant: the tile is all that is looked at");
            } else {
                let n = self.union.root(Node::Dim(tile, d), None);
                let c = self.union.root(Node::Coordinate(coord), None);
                self.union.unite(n, c);
            }
        }
    }

    fn reshape(&mut self, from: Value, to: Value) {
        let func = self.func;
        let wide = |v: Value| -> SmallVec<[(usize, u32); 4]> {
            let all = dims(func, v).unwrap_or(&[]).iter().copied().enumerate();
            all.filter(|&(_, n)| n != 1).collect()
        };
        let (a, b) = (wide(from), wide(to));
        if a.iter().map(|x| x.1).eq(b.iter().map(|x| x.1)) {
            for (&(d, _), &(e, _)) in a.iter().zip(&b) {
                self.same_dim((from, d), (to, e));
            }
            for v in [from, to] {
                for d in 0..dims(func, v).map_or(0, <[u32]>::len) {
                    if dims(func, v).is_some_and(|n| n[d] == 1) {
                        self.fix(v, d, "a dimension of 1");
                    }
                }
            }
        } else {
            self.fix_all(from, "it is reshaped");
            self.fix_all(to, "it is reshaped");
        }
    }

    fn op(&mut self, op: Op) {
        use Opcode as O;
        let func = self.func;
        let operands = func.operands(op);
        let result = func.result(op);
        match (func.opcode(op), result) {
            (O::TiledLoad, Some(tile)) => {
                self.access(tile, operands[0], func.named_segment(op, "coords"));
            }
            (O::AsyncTiledTmaLoad, Some(tile)) => {
                self.access(tile, operands[0], func.named_segment(op, "coords"));
            }
            (O::TiledStore, _) => {
                self.access(operands[0], operands[1], func.named_segment(op, "coords"));
            }
            (O::AsyncTiledTmaStore, _) => {
                if let Some(source) = func.named_operand(op, "source") {
                    self.access(source, operands[0], func.named_segment(op, "coords"));
                }
            }
            (O::Dot | O::AsyncDot, Some(result)) => {
                let of = |name| func.named_operand(op, name);
                if let (Some(a), Some(b), Some(acc)) = (of("a"), of("b"), of("acc")) {
                    let (ta, tb) =
                        (func.has_attr(op, keys::TRANSPOSE_A), func.has_attr(op, keys::TRANSPOSE_B));
                    self.same_dim((a, usize::from(ta)), (acc, 0));
                    self.same_dim((b, usize::from(!tb)), (acc, 1));
                    self.same_dim((a, usize::from(!ta)), (b, usize::from(tb)));
                    self.same(acc, result);
                }
            }
            (O::Broadcast, Some(to)) => {
                let from = operands[0];
                for d in 0..dims(func, from).map_or(0, <[u32]>::len) {
                    if dims(func, from).map(|n| n[d]) == dims(func, to).map(|n| n[d]) {
                        self.same_dim((from, d), (to, d));
                    } else {
                        self.fix(from, d, "a dimension of 1");
                    }
                }
            }
            (O::Reshape, Some(to)) => self.reshape(operands[0], to),
            (O::Reduce, Some(to)) => {
                let axis = func.attr_int(op, keys::AXIS).and_then(|a| usize::try_from(a).ok());
                for d in 0..dims(func, to).map_or(0, <[u32]>::len) {
                    let from = d + usize::from(axis.is_some_and(|axis| d >= axis));
                    self.same_dim((operands[0], from), (to, d));
                }
            }
            (O::ExtractSlice, Some(to)) => {
                self.fix_all(operands[0], "it is cut into slices");
                self.fix_all(to, "it is a slice");
            }
            (O::Iota, Some(to)) => self.fix_all(to, "its elements are positions within the tile"),
            (O::For, _) => {
                let (args, yields) = (func.for_args(op), func.region_yields(op, 0));
                for (n, &result) in func.results(op).iter().enumerate() {
                    let inits = operands.get(3 + n).copied();
                    for other in [inits, args.get(n).copied(), yields.get(n).copied()].into_iter().flatten() {
                        self.same(other, result);
                    }
                }
            }
            (O::If, _) => {
                for n in 0..2 {
                    for (&y, &r) in func.region_yields(op, n).iter().zip(func.results(op)) {
                        self.same(y, r);
                    }
                }
            }
            (O::Constant | O::Splat | O::MakeTiledTmaDesc | O::Yield | O::Return, _) => {}
            (opcode, _) if opcode.has(Traits::ELEMENTWISE) || opcode == O::ConvertLayout => {
                let mut tiles = operands.iter().chain(func.results(op)).filter(|&&v| dims(func, v).is_some());
                if let Some(&first) = tiles.next() {
                    tiles.for_each(|&v| self.same(first, v));
                }
            }
            _ => {
                for &v in operands.iter().chain(func.results(op)) {
                    self.fix_all(v, "an op works on it whose extents are given");
                }
            }
        }
    }
}

/// A kernel in which every use of a constant tile has an op of its own, so that uses may get different extents; and the ops that were added,
/// each with the one it is a copy of.
pub(crate) fn split_constants(func: &Function) -> (Function, Vec<(Op, Op)>) {
    let mut new = func.clone();
    let mut copies = Vec::new();
    let mut used: FxHashMap<Value, u32> = FxHashMap::default();
    for op in func.all_ops() {
        for (n, &v) in func.operands(op).iter().enumerate() {
            let Some(def) = func.defining_op(v).filter(|_| dims(func, v).is_some()) else { continue };
            if !matches!(func.opcode(def), Opcode::Constant | Opcode::Splat) {
                continue;
            }
            let uses = used.entry(v).or_default();
            *uses += 1;
            if *uses == 1 {
                continue;
            }
            let (operands, segments) = (func.operands(def), func.segments(def));
            let copy =
                new.make_op(func.opcode(def), operands, segments, &[func.value_type(v)], func.op_loc(def));
            *new.inherent_mut(copy) = func.inherent(def).clone();
            *new.discardable_mut(copy) = func.discardable(def).clone();
            new.insert_after(def, copy);
            let result = new.results(copy)[0];
            new.set_operand(op, n, result);
            copies.push((copy, def));
        }
    }
    (new, copies)
}

/// Takes copies out again that still are what they are copies of.
fn merge_constants(func: &mut Function, copies: &[(Op, Op)]) {
    let mut instead: FxHashMap<Value, Value> = FxHashMap::default();
    for &(copy, of) in copies {
        let (from, to) = (func.results(copy)[0], func.results(of)[0]);
        if func.value_type(from) == func.value_type(to) {
            instead.insert(from, to);
        }
    }
    for op in func.all_ops() {
        for n in 0..func.operands(op).len() {
            if let Some(&to) = instead.get(&func.operands(op)[n]) {
                func.set_operand(op, n, to);
            }
        }
    }
    for &(copy, _) in copies {
        if instead.contains_key(&func.results(copy)[0]) {
            func.remove_op(copy);
        }
    }
}

impl Dimensions {
    /// Of a kernel in source form. A constant tile that several ops use has one extent for all of them: see [`split_constants`].
    pub(crate) fn of(func: &Function) -> Dimensions {
        let mut builder = Builder { func, union: Union::default() };
        for op in func.all_ops() {
            builder.op(op);
            // What no rule looked at is a class of its own.
            for &v in func.operands(op).iter().chain(func.results(op)) {
                for d in 0..dims(func, v).map_or(0, <[u32]>::len) {
                    builder.dim(v, d);
                }
            }
        }
        let Builder { mut union, .. } = builder;
        let mut classes: FxHashMap<usize, Class> = FxHashMap::default();
        let (mut class_of, mut about) = (FxHashMap::default(), Vec::new());
        for node in union.nodes.clone() {
            let root = union.root(node, None);
            let class = *classes.entry(root).or_insert_with(|| {
                about.push(union.about[root].clone());
                Class(about.len() - 1)
            });
            if let Node::Dim(v, d) = node {
                class_of.insert((v, d), class);
            }
        }
        Dimensions { class_of, about }
    }

    /// The class of the tiles along a dimension of a parameter.
    ///
    /// # Errors
    /// `E1502`: no such parameter, no tile of it, several classes of tiles, or one that cannot be changed.
    pub(crate) fn class(&self, func: &Function, view: &str, dim: usize) -> Result<Class, Error> {
        let wrong = |why: String| Error::new(Code::E1502, format!("{view}.d{dim}: {why}"));
        let param = func.params().iter().copied().find(|&p| func.value_name(p) == Some(view));
        let Some(param) = param else {
            return Err(wrong(format!("kernel {} has no parameter {view}", func.name)));
        };
        let mut all = (0..self.about.len()).filter(|&c| self.about[c].places.contains(&(param, dim)));
        let free = |d: &Dimensions| match d.free(func).as_slice() {
            [] => "nothing can be changed".to_owned(),
            all => {
                let names: Vec<String> =
                    all.iter().map(|(_, names, n)| format!("{} ({n})", names.join(" = "))).collect();
                format!("what can be changed: {}", names.join(", "))
            }
        };
        let Some(class) = all.next() else {
            return Err(wrong(format!("no tile is loaded or stored along it; {}", free(self))));
        };
        if all.next().is_some() {
            return Err(wrong(format!(
                "tiles of several extents are loaded or stored along it; {}",
                free(self)
            )));
        }
        match self.about[class].fixed {
            Some(why) => Err(wrong(format!("it cannot be changed: {why}; {}", free(self)))),
            None => Ok(Class(class)),
        }
    }

    /// What it is now.
    pub(crate) fn extent(&self, class: Class) -> u32 {
        self.about[class.0].extent.unwrap_or(1)
    }

    /// What can be changed in a kernel: names such as `a.d0`, extent.
    pub fn of_kernel(func: &Function) -> Vec<(Vec<String>, u32)> {
        let (func, _) = split_constants(func);
        Dimensions::of(&func).free(&func).into_iter().map(|(_, names, extent)| (names, extent)).collect()
    }

    /// Classes that can be changed and are of some parameter: names such as `a.d0`, extent.
    fn free(&self, func: &Function) -> Vec<(Class, Vec<String>, u32)> {
        let all = self.about.iter().enumerate();
        all.filter(|(_, about)| about.fixed.is_none() && !about.places.is_empty())
            .filter_map(|(n, about)| {
                let name = |&(v, d): &(Value, usize)| match func.value_def(v) {
                    ValueDef::Param(..) => Some(format!("{}.d{d}", func.value_name(v)?)),
                    ValueDef::Result(..) => None,
                };
                let names: Vec<String> = about.places.iter().filter_map(name).collect();
                (!names.is_empty()).then(|| (Class(n), names, self.extent(Class(n))))
            })
            .collect()
    }

    /// The kernel with other extents. Copies are those of [`split_constants`].
    pub(crate) fn retile(&self, func: &Function, copies: &[(Op, Op)], changes: &[(Class, u32)]) -> Function {
        let mut new = func.clone();
        let changed = |v: Value, old: &[u32]| -> SmallVec<[u32; 4]> {
            let one = |(d, &n): (usize, &u32)| {
                let class = self.class_of.get(&(v, d));
                changes.iter().find(|(c, _)| class == Some(c)).map_or(n, |&(_, n)| n)
            };
            old.iter().enumerate().map(one).collect()
        };
        let mut values: Vec<Value> = func.params().to_vec();
        for op in func.all_ops() {
            values.extend(func.results(op));
            values.extend(func.regions(op).iter().flat_map(|&r| func.block_params(func.region_block(r))));
        }
        for v in values {
            let Some(old) = dims(func, v) else { continue };
            let now = changed(v, old);
            if now[..] == *old {
                continue;
            }
            let mut data = func.value_data(v).clone();
            if let TypeData::Tile { dims, .. } | TypeData::TmaDesc { dims, .. } = &mut data {
                *dims = now.as_slice().into();
            }
            let elem = match data {
                TypeData::TmaDesc { elem, .. } => Some(elem),
                _ => None,
            };
            let ty = new.intern_type(data);
            new.set_value_type(v, ty);
            if let (Some(elem), Some(op)) = (elem, func.defining_op(v)) {
                set_box(&mut new, op, &now, old, elem.bytes());
            }
        }
        merge_constants(&mut new, copies);
        new
    }
}

/// Gives a descriptor another box, in the swizzle that fits its rows, if it had the widest before.
fn set_box(func: &mut Function, op: Op, dims: &[u32], old: &[u32], bytes: u32) {
    let sizes: SmallVec<[i64; 4]> = dims.iter().map(|&d| i64::from(d)).collect();
    func.set_ints(op, keys::BOX, &sizes);
    let widest = |dims: &[u32]| Swizzle::widest(dims.last().map_or(0, |&d| d.saturating_mul(bytes)));
    let had = func.attr_name(op, keys::SWIZZLE).and_then(Swizzle::from_name);
    let (was, is) = (widest(old), widest(dims));
    if had.is_some_and(|had| had.span() == was.span() || had.span() > is.span()) {
        let name = func.intern_symbol(is.name());
        func.set_attr(op, keys::SWIZZLE, AttrData::Name(name));
    }
}
