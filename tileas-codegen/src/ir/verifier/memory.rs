//! Loads, stores, TMA, copies between spaces, and whether a layout fits its space.

use super::{Checker, MemSemantics, shape};
use crate::error::Code;
use crate::ir::entities::{Op, Value};
use crate::ir::layouts::{Layout, Swizzle};
use crate::ir::opcodes::{Opcode, keys};
use crate::ir::types::{Scalar, Space, TypeData};

/// Alignment of what a bulk tensor copy writes in shared memory. Source: PTX ISA, cp.async.bulk.tensor.
const TMA_ALIGN: i64 = 128;
/// Most elements of a TMA box along one dimension, on any target: what the format of tensor maps has room for. What the
/// target at hand has is checked where tiles are placed.
const MAX_BOX_DIM: i64 = 256;
/// Most dimensions of a tensor map, likewise.
const MAX_TMA_RANK: usize = 5;

/// Why a tile of these extents cannot live in that space and layout, or be a part of one that does.
pub(super) fn placement_fault(
    dims: &[u32],
    elem: Scalar,
    space: Option<Space>,
    layout: Option<Layout>,
    part: bool,
) -> Option<String> {
    if space == Some(Space::Gmem) {
        return Some("expected a tile in rmem, smem or tmem".into());
    }
    let layout = layout?;
    let Some(space) = space else {
        return Some("expected a space in front of the layout".into());
    };
    let home = match layout {
        Layout::SmemK(_) | Layout::SmemMn(_) | Layout::SmemRow => Space::Smem,
        Layout::Tmem128 | Layout::Tmem64 => Space::Tmem,
        Layout::Row | Layout::Cols | Layout::RowVec | Layout::Blocked(_) | Layout::Bits(_) => Space::Rmem,
    };
    if home != space {
        return Some(format!("layout {layout} belongs to {}, not {}", home.name(), space.name()));
    }
    let inner = dims.last().copied().unwrap_or(1);
    match layout {
        Layout::SmemK(s) | Layout::SmemMn(s) => {
            let bits = u64::from(inner) * u64::from(elem.bits());
            let span = u64::from(s.span());
            (!part && !bits.is_multiple_of(8 * span))
                .then(|| format!("layout {layout} expects rows of a multiple of {span} bytes"))
        }
        Layout::Tmem128 | Layout::Tmem64 => {
            let want = if layout == Layout::Tmem128 { 128 } else { 64 };
            let rows = dims.len().checked_sub(2).and_then(|n| dims.get(n)).copied();
            (rows != Some(want)).then(|| format!("layout {layout} expects {want} rows"))
        }
        Layout::Bits(b) => {
            let all = crate::layout::Axes::of(dims).is_some_and(|axes| b.map().is_surjective(axes.total()));
            (!all).then(|| {
                "a layout of registers expects each element of the tile in some place, and no other".into()
            })
        }
        _ => None,
    }
}

/// Whether tiles can be copied from one space to the other.
pub fn is_legal_copy(from: Space, to: Space) -> bool {
    use Space::{Gmem, Rmem, Smem, Tmem};
    matches!(
        (from, to),
        (Gmem, Rmem)
            | (Gmem, Smem)
            | (Rmem, Gmem)
            | (Rmem, Smem)
            | (Rmem, Tmem)
            | (Smem, Gmem)
            | (Smem, Rmem)
            | (Smem, Tmem)
            | (Tmem, Rmem)
    )
}

impl Checker<'_> {
    pub(super) fn memory(&mut self, op: Op) {
        match self.func.opcode(op) {
            Opcode::TiledLoad => self.tiled(op, 0, 1),
            Opcode::TiledStore => self.tiled(op, 1, 2),
            o if o.is_sparse() => self.sparse(op),
            Opcode::MakeTiledTmaDesc => self.tma_desc(op),
            Opcode::AsyncTiledTmaLoad => self.tma_load(op),
            Opcode::AsyncTiledTmaStore => self.tma_store(op),
            Opcode::Copy => self.copy(op),
            Opcode::AllocTensor => self.alloc(op),
            _ => {}
        }
    }

    fn coordinates(&mut self, op: Op, segment: usize, want: usize) {
        let have = self.func.segment(op, segment).len();
        if have != want {
            self.err(op, Code::E0216, format_args!("{want} coordinates, but got {have}"));
        }
    }

    /// `tiled_load` and `tiled_store`: numbers of the view's and the coordinates' segment.
    fn tiled(&mut self, op: Op, view: usize, coords: usize) {
        let Some(v) = self.seg(op, view) else { return };
        let TypeData::View { dims, elem, .. } = self.data(v) else { return };
        self.coordinates(op, coords, dims.len());
        let load = self.func.opcode(op) == Opcode::TiledLoad;
        self.memory_semantics(op, load);
        let tile = if load { self.func.result(op) } else { self.seg(op, 0) };
        if !load && !self.func.results(op).is_empty() {
            let have = self.func.results(op).len();
            self.err(op, Code::E0203, format_args!("expected 0 results, but got {have}"));
        }
        let Some(tile) = tile.map(|t| self.data(t)) else { return };
        if let (true, TypeData::Scalar(s)) = (load, tile) {
            self.view_elements(op, *elem, *s);
            return;
        }
        let TypeData::Tile { dims: tile_dims, elem: tile_elem, space, .. } = tile else {
            self.err(op, Code::E0213, format_args!("expected a tile, but got {tile}"));
            return;
        };
        if tile_dims.len() != dims.len() {
            self.err(
                op,
                Code::E0213,
                format_args!(
                    "requires the same size for tileSize and tensor: expected {} dimensions, but got {}",
                    dims.len(),
                    tile_dims.len()
                ),
            );
        }
        self.view_elements(op, *elem, *tile_elem);
        if let Some(s) = space
            && *s != Space::Rmem
        {
            self.err(op, Code::E0221, format_args!("expected a tile in rmem, but got {}", s.name()));
        }
    }

    /// Which semantics a load or store may have, and whether there is a scope.
    fn memory_semantics(&mut self, op: Op, load: bool) {
        let sem = self.func.attr_name(op, keys::MEM_SEMANTIC).unwrap_or("weak");
        let scope = self.func.has_attr(op, keys::MEM_SCOPE);
        if sem == "weak" {
            if scope {
                self.err(op, Code::E0227, "mem_scope not supported when mem_semantic is weak");
            }
            return;
        }
        let strongest = match (self.limits.semantics, load) {
            (MemSemantics::Book, _) => None,
            (MemSemantics::Public, true) => Some("acquire"),
            (MemSemantics::Public, false) => Some("release"),
        };
        if sem != "relaxed" && strongest != Some(sem) {
            let what = if load { "load" } else { "store" };
            let allowed = strongest.map_or(String::new(), |s| format!(" or {s}"));
            self.err(
                op,
                Code::E0227,
                format_args!("a {what} is weak, relaxed{allowed}, but mem_semantic is {sem}"),
            );
        }
        if !scope {
            self.err(op, Code::E0227, "mem_scope required when mem_semantic is not weak");
        }
    }

    /// Accesses of single elements.
    fn sparse(&mut self, op: Op) {
        let func = self.func;
        let code = func.opcode(op);
        let view = func.named_operand(op, "view");
        let (want, elem) = match view.map(|v| self.data(v)) {
            Some(TypeData::View { dims, elem, .. }) => (dims.len(), elem),
            Some(TypeData::Ptr { elem, .. }) => (1, elem),
            _ => return,
        };
        let coords = func.named_segment(op, "coords");
        if coords.len() != want {
            let have = coords.len();
            self.err(op, Code::E0216, format_args!("{want} coordinates, but got {have}"));
        }
        if code == Opcode::Scatter && !func.results(op).is_empty() {
            let have = func.results(op).len();
            self.err(op, Code::E0203, format_args!("expected 0 results, but got {have}"));
        }
        let moved = match code {
            Opcode::Gather => self.result_data(op),
            _ => func.named_operand(op, "value").map(|v| self.data(v)),
        };
        let Some(moved) = moved else { return };
        let Some(have) = moved.elem().filter(|_| moved.is_tile() || moved.as_scalar().is_some()) else {
            self.err(op, Code::E0213, format_args!("expected a scalar or tile, but got {moved}"));
            return;
        };
        self.view_elements(op, *elem, have);
        if let Some(s) = moved.space().filter(|s| moved.is_tile() && *s != Space::Rmem) {
            self.err(op, Code::E0221, format_args!("expected a tile in rmem, but got {}", s.name()));
        }
        let shape_of = moved.dims().filter(|_| moved.is_tile());
        for (&v, what) in coords.iter().zip(std::iter::repeat("coordinate")) {
            self.repeats(op, what, v, shape_of);
            if self.data(v).elem() == Some(Scalar::I1) {
                self.err(op, Code::E0212, "expected coordinates of integers, but got i1");
            }
        }
        if let Some(v) = func.named_operand(op, "mask") {
            self.repeats(op, "mask", v, shape_of);
            if let Some(have) = self.data(v).elem().filter(|&e| e != Scalar::I1) {
                self.err(op, Code::E0212, format_args!("expected a mask of i1, but got {}", have.name()));
            }
        }
        if !code.is_atomic() {
            self.memory_semantics(op, code == Opcode::Gather);
            return;
        }
        if let Some(have) = self.result_data(op).filter(|r| *r != moved) {
            self.err(op, Code::E0213, format_args!("expected {moved} as result, but got {have}"));
        }
        if let Some(v) = func.named_operand(op, "compare")
            && self.data(v) != moved
        {
            let have = self.data(v);
            self.err(op, Code::E0213, format_args!("expected {moved} to compare with, but got {have}"));
        }
        let mode = func.attr_name(op, keys::MODE).filter(|_| code == Opcode::AtomicRmw);
        let fits = match mode {
            Some("addf") => matches!(elem, Scalar::F64 | Scalar::F32 | Scalar::F16 | Scalar::BF16),
            Some("exch") | None => {
                matches!(elem, Scalar::I32 | Scalar::I64 | Scalar::F32 | Scalar::F64)
            }
            Some(_) => matches!(elem, Scalar::I32 | Scalar::I64),
        };
        if !fits {
            let (mode, have) = (mode.unwrap_or("cas"), elem.name());
            self.err(op, Code::E0212, format_args!("no atomic `{mode}` of {have} elements"));
        }
    }

    /// Whether a coordinate or mask is a scalar, or a tile that repeats over a tile.
    fn repeats(&mut self, op: Op, what: &str, v: Value, over: Option<&[u32]>) {
        let data = self.data(v);
        let Some(have) = data.dims().filter(|_| data.is_tile()) else { return };
        let fits = over.is_some_and(|dims| {
            have.len() == dims.len() && have.iter().zip(dims).all(|(&a, &b)| a == b || a == 1)
        });
        if !fits {
            let want =
                over.map_or_else(|| "a scalar".to_owned(), |d| format!("{} or extents of 1", shape(d)));
            self.err(op, Code::E0213, format_args!("expected a {what} of {want}, but got {}", shape(have)));
        }
    }

    fn view_elements(&mut self, op: Op, view: Scalar, tile: Scalar) {
        if view != tile {
            self.err(
                op,
                Code::E0212,
                format_args!(
                    "view elementType not equal with tensor element type: expected {}, but got {}",
                    view.name(),
                    tile.name()
                ),
            );
        }
    }

    fn tma_desc(&mut self, op: Op) {
        let func = self.func;
        let Some(v) = self.seg(op, 0) else { return };
        let TypeData::View { dims, elem, .. } = self.data(v) else { return };
        let Some(result) = self.result_data(op) else { return };
        let TypeData::TmaDesc { dims: desc_dims, elem: desc_elem } = result else {
            self.err(op, Code::E0217, format_args!("expected a TMA descriptor as result, but got {result}"));
            return;
        };
        let nan = func.attr_name(op, keys::OOB) == Some("nan");
        // Bits are loaded as they are; what stands for those outside is the memory's NaN.
        if nan || !elem.loads_as(*desc_elem) {
            self.view_elements(op, *elem, *desc_elem);
        }
        if dims.is_empty() || dims.len() > MAX_TMA_RANK {
            self.err(
                op,
                Code::E0217,
                format_args!("expected a view of 1 to {MAX_TMA_RANK} dimensions, but got {}", dims.len()),
            );
        }
        if matches!(elem, Scalar::I1 | Scalar::UE8M0) {
            let have = elem.name();
            self.err(
                op,
                Code::E0217,
                format_args!("expected elements of whole bytes with a tensor-map type, but got {have}"),
            );
            return;
        }
        let Some(extents) = func.attr_ints(op, keys::BOX) else { return };
        if extents.len() != dims.len() {
            self.err(
                op,
                Code::E0217,
                format_args!("expected a box of {} dimensions, but got {}", dims.len(), extents.len()),
            );
            return;
        }
        if desc_dims.len() != extents.len()
            || desc_dims.iter().zip(&extents).any(|(&d, &b)| i64::from(d) != b)
        {
            let want = extents.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
            self.err(
                op,
                Code::E0217,
                format_args!("expected a descriptor of {want}, but got {}", shape(desc_dims)),
            );
        }
        let Some(swizzle) = func.attr_name(op, keys::SWIZZLE).and_then(Swizzle::from_name) else { return };
        self.box_extents(op, &extents, *elem, swizzle);
        if nan && (elem.is_int() || elem.is_packed()) {
            let have = elem.name();
            self.err(
                op,
                Code::E0217,
                format_args!(
                    "expected floating-point elements that have a NaN for `oob = nan`, but got {have}"
                ),
            );
        }
    }

    /// A tile wider than the swizzle span is transferred in boxes of one span each, so the innermost extent is
    /// bounded only through the span; the others are box extents as they stand.
    fn box_extents(&mut self, op: Op, extents: &[i64], elem: Scalar, swizzle: Swizzle) {
        let Some((&inner, outer)) = extents.split_last() else { return };
        let span = i64::from(swizzle.span());
        let bytes = inner.saturating_mul(elem.bits().into()) / 8;
        for (n, &e) in outer.iter().enumerate() {
            if !(1..=MAX_BOX_DIM).contains(&e) {
                self.err(
                    op,
                    Code::E0217,
                    format_args!("expected 1 to {MAX_BOX_DIM} in box dimension {n}, but got {e}"),
                );
            }
        }
        if inner.saturating_mul(elem.bits().into()) % 8 != 0 {
            self.err(
                op,
                Code::E0217,
                format_args!("expected rows of whole bytes in the box, but got {inner} elements"),
            );
        }
        let slab = outer.iter().fold(span, |all, &e| all.saturating_mul(e));
        if bytes > span && slab % TMA_ALIGN != 0 {
            self.err(
                op,
                Code::E0217,
                format_args!(
                    "expected boxes of one span of a multiple of {TMA_ALIGN} bytes for swizzle {}, but got {slab}",
                    swizzle.name()
                ),
            );
        }
        if bytes <= 0 || bytes % span != 0 {
            self.err(
                op,
                Code::E0217,
                format_args!(
                    "expected inner box rows of a multiple of {span} bytes for swizzle {}, but got {bytes}",
                    swizzle.name()
                ),
            );
        }
    }

    /// Compares a tile or slot with a descriptor's box. What is loaded may be its rows, whatever the dimensions they are counted by.
    fn against_box(&mut self, op: Op, desc: &TypeData, dims: &[u32], elem: Option<Scalar>) {
        let (Some(want), Some(want_elem)) = (desc.dims(), desc.elem()) else { return };
        let rows = |d: &[u32]| d.split_last().map(|(&n, outer)| (n, super::product(outer)));
        let merged = dims.len() == 2
            && self.func.opcode(op) == Opcode::AsyncTiledTmaLoad
            && want.len() > 2
            && rows(dims) == rows(want);
        if dims != want && !merged {
            self.err(
                op,
                Code::E0213,
                format_args!("expected a tile of {} as the box, but got {}", shape(want), shape(dims)),
            );
        }
        if let Some(elem) = elem {
            self.view_elements(op, want_elem, elem);
        }
    }

    fn in_smem(&mut self, op: Op, what: &str, data: &TypeData) {
        if let Some(s) = data.space()
            && s != Space::Smem
        {
            self.err(op, Code::E0221, format_args!("expected {what} in smem, but got {}", s.name()));
        }
    }

    fn tma_load(&mut self, op: Op) {
        let func = self.func;
        let (Some(desc), Some(result)) = (self.seg(op, 0), self.result_data(op)) else { return };
        let desc = self.data(desc);
        self.coordinates(op, 1, desc.dims().map_or(0, <[u32]>::len));
        let (stage, barrier) = (func.segment(op, 3), self.seg(op, 4));
        let Some(buffer) = self.seg(op, 2) else {
            if !stage.is_empty() || barrier.is_some() {
                self.err(op, Code::E0218, "a stage or barrier needs a buffer (destination form)");
            } else if let TypeData::Tile { dims, elem, .. } = result {
                self.against_box(op, desc, dims, Some(*elem));
                self.in_smem(op, "the tile", result);
            } else {
                self.err(
                    op,
                    Code::E0218,
                    format_args!("expected a tile as result of the value form, but got {result}"),
                );
            }
            return;
        };
        if *result != TypeData::AsyncToken {
            self.err(
                op,
                Code::E0218,
                format_args!("expected async_token as result of the destination form, but got {result}"),
            );
        }
        match barrier {
            None => self.err(op, Code::E0218, "the destination form expects a barrier, but got none"),
            Some(barrier) => {
                if let (TypeData::PipeProducer(n), [stage]) = (self.data(barrier), stage)
                    && let TypeData::PipeIter(m) = self.data(*stage)
                    && n != m
                {
                    self.err(
                        op,
                        Code::E0223,
                        format_args!("barrier has {n} slots, but the stage counts {m}"),
                    );
                }
            }
        }
        let data = self.data(buffer);
        if let Some(dims) = self.slot_dims(op, buffer, stage) {
            self.against_box(op, desc, &dims, data.elem());
        }
        self.in_smem(op, "the buffer", data);
    }

    fn tma_store(&mut self, op: Op) {
        let func = self.func;
        let (Some(desc), Some(source)) = (self.seg(op, 0), self.seg(op, 2)) else { return };
        let desc = self.data(desc);
        let stage = func.segment(op, 3);
        self.coordinates(op, 1, desc.dims().map_or(0, <[u32]>::len));
        let data = self.data(source);
        if let Some(dims) = self.slot_dims(op, source, stage) {
            self.against_box(op, desc, &dims, data.elem());
        }
        self.in_smem(op, "the source", data);
        match (stage.is_empty(), self.result_data(op)) {
            (true, None) | (false, Some(TypeData::AsyncToken)) => {}
            (true, Some(have)) => {
                self.err(op, Code::E0218, format_args!("the value form has no result, but got {have}"));
            }
            (false, have) => {
                let have = have.map_or_else(|| "none".to_string(), TypeData::to_string);
                self.err(
                    op,
                    Code::E0218,
                    format_args!("expected async_token as result of the destination form, but got {have}"),
                );
            }
        }
    }

    fn copy(&mut self, op: Op) {
        let func = self.func;
        let Some(source) = self.seg(op, 0) else { return };
        let from = self.data(source);
        let scalar = |d: Option<&TypeData>| d.is_some_and(|d| d.as_scalar().is_some());
        if scalar(Some(from)) || scalar(self.result_data(op)) {
            self.copy_scalar(op);
            return;
        }
        let from_dims = self.slot_dims(op, source, func.segment(op, 1));
        let dest = self.seg(op, 2);
        let (to, to_dims) = match (dest, self.result_data(op)) {
            (None, Some(tile @ TypeData::Tile { dims, .. })) => {
                if !func.segment(op, 3).is_empty() {
                    self.err(op, Code::E0218, "a destination stage needs a destination");
                }
                (tile, Some(dims.clone()))
            }
            (None, have) => {
                let have = have.map_or_else(|| "none".to_string(), TypeData::to_string);
                self.err(
                    op,
                    Code::E0218,
                    format_args!("expected a tile as result of the value form, but got {have}"),
                );
                return;
            }
            (Some(dest), result) => {
                if let Some(have) = result.filter(|r| **r != TypeData::AsyncToken) {
                    self.err(
                        op,
                        Code::E0218,
                        format_args!("expected no result or async_token in destination form, but got {have}"),
                    );
                }
                (self.data(dest), self.slot_dims(op, dest, func.segment(op, 3)))
            }
        };
        if from.elem() != to.elem() {
            self.err(
                op,
                Code::E0212,
                format_args!("expected one element type on both sides, but got {from} and {to}"),
            );
        }
        if let (Some(a), Some(b)) = (from_dims, to_dims) {
            // Offsets select a part of the buffer: of the source when reading, of the destination when writing.
            let (big, small) = if dest.is_none() { (&a, &b) } else { (&b, &a) };
            if func.has_attr(op, keys::OFFSETS) {
                self.sub_tile(op, big, small, keys::OFFSETS);
            } else if a != b {
                self.err(
                    op,
                    Code::E0213,
                    format_args!("expected a destination of {}, but got {}", shape(&a), shape(&b)),
                );
            }
        }
        if let (Some(a), Some(b)) = (from.space(), to.space())
            && !is_legal_copy(a, b)
        {
            self.err(op, Code::E0221, format_args!("no copy leads from {} to {}", a.name(), b.name()));
        }
        if let Some(number) = self.seg(op, 5) {
            self.slice_number(op, number);
            if dest.is_some() || !func.has_attr(op, keys::OFFSETS) {
                self.err(op, Code::E0218, "`at` needs `offsets` and the value form");
            }
        }
        let when = self.seg(op, 4).is_some();
        let otherwise = func.has_attr(op, keys::OTHERWISE);
        if dest.is_none() && when && !otherwise {
            self.err(op, Code::E0204, "attribute `otherwise` is required next to `when`");
        }
        if otherwise && (!when || dest.is_some()) {
            self.err(op, Code::E0218, "`otherwise` needs `when` and the value form");
        }
    }

    /// A scalar to or from a slot of one element.
    fn copy_scalar(&mut self, op: Op) {
        let func = self.func;
        let (Some(source), dest, result) = (self.seg(op, 0), self.seg(op, 2), self.result_data(op)) else {
            return;
        };
        let (buffer, stage, scalar) = match (dest, result) {
            (Some(dest), None) => (dest, 3, self.data(source)),
            (None, Some(result)) => (source, 1, result),
            _ => {
                self.err(op, Code::E0218, "a scalar is copied to a buffer, or from one to a result");
                return;
            }
        };
        let data = self.data(buffer);
        let slot = self.slot_dims(op, buffer, func.segment(op, stage));
        if slot.is_some_and(|d| d.iter().any(|&n| n != 1)) || data.space() != Some(Space::Smem) {
            self.err(op, Code::E0213, format_args!("expected slots of one element in smem, but got {data}"));
        }
        if data.elem() != scalar.as_scalar() {
            self.err(
                op,
                Code::E0212,
                format_args!("expected one element type on both sides, but got {scalar} and {data}"),
            );
        }
    }

    fn alloc(&mut self, op: Op) {
        let func = self.func;
        let Some(result) = self.result_data(op) else { return };
        if !result.is_tile() {
            self.err(op, Code::E0213, format_args!("expected a tile as result, but got {result}"));
            return;
        }
        if let Some(s) = result.space()
            && !matches!(s, Space::Smem | Space::Tmem)
        {
            self.err(
                op,
                Code::E0221,
                format_args!("expected a buffer in smem or tmem, but got {}", s.name()),
            );
        }
        for key in [keys::OFFSET, keys::COLUMN, keys::LANE, keys::OWNER_WARP] {
            if let Some(v) = func.attr_int(op, key)
                && v < 0
            {
                let name = func.symbol(key);
                self.err(op, Code::E0205, format_args!("expected `{name}` of at least 0, but got {v}"));
            }
        }
        if let Some(align) = func.attr_int(op, keys::ALIGN) {
            if align <= 0 || !(align as u64).is_power_of_two() {
                self.err(
                    op,
                    Code::E0205,
                    format_args!("expected a power of two for `align`, but got {align}"),
                );
            } else if let Some(offset) = func.attr_int(op, keys::OFFSET)
                && offset % align != 0
            {
                self.err(
                    op,
                    Code::E0205,
                    format_args!("expected `offset` to be a multiple of {align}, but got {offset}"),
                );
            }
        }
    }
}
