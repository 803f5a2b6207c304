//! What is rewritten before anyone plans a kernel.
//!
//! In: a verified kernel in value form. Out: the kernel that agents, placement and the scheduler see, in value form too,
//! or nothing where there is nothing to do. The stages, in this order, which is part of the contract:
//!
//! 0. [`pointers`]: what loops and branches hand on are no pointers; [`structure`]: they have one way in and one way out; [`packed`]: elements of 4 bits are bytes. None can be left out ([`legalize`]).
//! 1. [`views`]: loads of parts of tiles become loads of these parts; views and descriptors that loops and branches merely
//!    hand on are the ones they began with. So every access names the view that it goes to.
//! 2. [`canonical`]: loops with a small constant number of iterations are written out ([`unroll`]), `dot` is the `async.dot` it wraps,
//!    what no effect rests on is gone ([`dead`]), branches that only choose between register tiles are `select` ([`choose`]), what is the same along an axis is computed once ([`narrow`]), products are cut along K where memory asks for it ([`deep`]), those that loops add to what they carry do so themselves ([`accumulate`]), and those that
//!    the target has only the other way round are turned ([`swap`]), those of f32 are three of tf32 ([`precise`]), sums in f16 are kept in f32 ([`sums`]), and those that are larger than its instructions, or than words ask for, halved ([`split`]; [`order`] puts the pieces in order), loops that carry more sums than registers hold are run in parts ([`fission`]), what goes from registers to memory goes in strips ([`strips`]), and those that are too small for them are left to warps ([`warp`]). What may be computed again is, at each use ([`recompute`]).
//! 3. [`tma`]: loads of tiles that should go through the tensor memory accelerator do.
//! 4. [`boxes`]: the box of a descriptor has the extents of the tile that is loaded through it.
//! 5. [`shared`]: chains of different products do not share masks and the like, so that they can be different agents'.
//!
//! Guarantees: what the kernel computes stays, as do order, names and attributes of what is not rewritten; the result passes the
//! verifier; the source is not changed, and copied only where something is to be done. Loads through TMA and loops that are written
//! out guess that spaces, layouts and memory will suffice: a stage that finds that they do not prepares again without them. Cost: linear in ops and operands of the result.

pub mod accumulate;
pub mod boxes;
pub mod canonical;
pub mod choose;
pub mod dead;
pub mod deep;
pub mod fission;
pub mod narrow;
pub mod order;
pub mod packed;
pub mod pointers;
pub mod precise;
pub mod recompute;
pub mod shared;
pub mod split;
pub mod strips;
pub mod structure;
pub mod sums;
pub mod swap;
pub mod tma;
pub mod unroll;
pub mod views;
pub mod warp;

use crate::error::CodegenResult;
use crate::ir::{Function, ORIGIN, Op, Opcode, Type, Value, ValueDef};
use crate::isa::TargetIsa;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Which stages run, and how.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PrepareOptions {
    /// Stage 1, [`views`].
    pub views: bool,
    /// Stage 2, [`canonical`].
    pub canonical: bool,
    /// Stage 3, [`tma`].
    pub tma: bool,
    /// Stage 4, [`boxes`].
    pub boxes: bool,
    /// Stage 5, [`shared`].
    pub shared: bool,
    /// Most ops that a loop of several iterations may be written out to; 0: all loops stay. Default: 32.
    pub unroll_ops: u32,
    /// Warps of an agent that computes in registers. Default: 4.
    pub simt_warps: u32,
    /// Where there was no room: products go along K in strips ([`deep`]), and in tensor memory have at most so many columns ([`split`]).
    /// Default: there is room.
    pub tight: Option<u32>,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        PrepareOptions {
            views: true,
            canonical: true,
            tma: true,
            boxes: true,
            shared: true,
            unroll_ops: 32,
            simt_warps: 4,
            tight: None,
        }
    }
}

/// A prepared kernel.
#[derive(Default)]
pub struct Prepared {
    /// The kernel; `None`: it is the source.
    pub func: Option<Function>,
    /// Whether loads go through TMA that did not in the source.
    pub loads: bool,
    /// Whether loops are written out.
    pub loops: bool,
}

/// Memory of the stages, kept from one kernel to the next.
#[derive(Default)]
pub struct PrepareScratch {
    live: dead::Live,
    /// A function that is no longer needed.
    pub(crate) spare: Option<Function>,
}

/// What later stages know of the ops and types of a kernel, stage 0; `None`: it has no others. `spare` is a function that is no longer needed.
///
/// # Errors
/// Those of [`structure::structure`].
pub fn legalize(func: &Function, spare: &mut Option<Function>) -> CodegenResult<Option<Function>> {
    let mut made = pointers::count(func, spare);
    if let Some(next) = structure::structure(made.as_ref().unwrap_or(func), spare)? {
        *spare = made.replace(next).or(spare.take());
    }
    if let Some(next) = packed::unpack(made.as_ref().unwrap_or(func), spare) {
        *spare = made.replace(next).or(spare.take());
    }
    Ok(made)
}

/// Prepares a kernel.
pub fn prepare(
    func: &Function,
    isa: &dyn TargetIsa,
    options: &PrepareOptions,
    scratch: &mut PrepareScratch,
) -> Prepared {
    let present = func.ops().fold(0, |all, op| all | 1 << func.opcode(op) as u32);
    let mut draft = Draft { source: func, present, changed: None, spare: scratch.spare.take() };
    if options.views {
        views::decompose(&mut draft);
    }
    let loops = options.canonical && unroll::write_out(&mut draft, options.unroll_ops);
    if options.canonical {
        canonical::canonicalize(&mut draft, &mut scratch.live, isa.acc_home());
        if narrow::narrow(&mut draft) {
            dead::remove_dead(&mut draft, &mut scratch.live);
        }
        if options.tight.is_some() && deep::cut(&mut draft) {
            dead::remove_dead(&mut draft, &mut scratch.live);
        }
        if accumulate::accumulate(&mut draft) {
            dead::remove_dead(&mut draft, &mut scratch.live);
        }
        if sums::widen(&mut draft) {
            dead::remove_dead(&mut draft, &mut scratch.live);
        }
        precise::expand(&mut draft, isa);
        if swap::turn(&mut draft, isa) | split::split(&mut draft, isa, options.tight) {
            canonical::canonicalize(&mut draft, &mut scratch.live, isa.acc_home());
        }
        fission::part(&mut draft, isa, &mut scratch.live);
        if options.tma && strips::cut(&mut draft, isa) {
            dead::remove_dead(&mut draft, &mut scratch.live);
        }
        warp::divide(&mut draft, isa);
        recompute::recompute(&mut draft);
    }
    let threads = options.simt_warps * isa.machine().limits.warp_threads;
    let loads = options.tma && tma::rewrite_loads(&mut draft, isa, threads);
    if options.boxes && draft.changed.is_some() {
        boxes::refresh(&mut draft);
    }
    if options.shared {
        shared::part(&mut draft, isa);
    }
    scratch.spare = draft.spare;
    Prepared { func: draft.changed, loads, loops }
}

const _: () = assert!(Opcode::ALL.len() <= 128, "a bit for each opcode");

/// A function that is copied when it is first changed.
struct Draft<'a> {
    source: &'a Function,
    /// The opcodes of the source, one bit each.
    present: u128,
    changed: Option<Function>,
    spare: Option<Function>,
}

impl Draft<'_> {
    /// Whether the source has such an op. Most stages have nothing to do without.
    fn has(&self, opcode: Opcode) -> bool {
        self.present & 1 << opcode as u32 != 0
    }

    /// The function as it is now.
    fn func(&self) -> &Function {
        self.changed.as_ref().unwrap_or(self.source)
    }

    /// The copy, to be changed. What is known of the source holds for it: entities keep their numbers.
    fn edit(&mut self) -> &mut Function {
        self.changed.get_or_insert_with(|| self.source.copy_in(self.spare.take()))
    }
}

/// Values that others take the place of.
#[derive(Default)]
struct Renames(SecondaryMap<Value, PackedOption<Value>>);

impl Renames {
    fn set(&mut self, from: Value, to: Value) {
        self.0[from] = to.into();
    }

    /// Puts a value that has none yet in the place of another, with its name.
    fn succeed(&mut self, func: &mut Function, from: Value, to: Value) {
        if let Some(name) = func.value_sym(from) {
            func.set_value_sym(to, name);
        }
        self.set(from, to);
    }

    /// What stands for a value in the end.
    fn of(&self, mut v: Value) -> Value {
        while let Some(to) = self.0[v].expand() {
            v = to;
        }
        v
    }

    /// Puts the others in place.
    fn apply(&self, func: &mut Function) {
        for op in func.all_ops() {
            for n in 0..func.operands(op).len() {
                let (v, to) = (func.operands(op)[n], self.of(func.operands(op)[n]));
                if v != to {
                    func.set_operand(op, n, to);
                }
            }
        }
    }
}

/// Puts an op in the place of another, with its attributes, location and names.
fn replace(
    func: &mut Function,
    old: Op,
    opcode: Opcode,
    (operands, segments): (&[Value], &[u32]),
    types: &[Type],
    renamed: &mut Renames,
) -> Op {
    let new = func.make_op(opcode, operands, segments, types, func.op_loc(old));
    *func.inherent_mut(new) = func.inherent(old).clone();
    *func.discardable_mut(new) = func.discardable(old).clone();
    func.insert_before(old, new);
    func.remove_op(old);
    for n in 0..types.len().min(func.results(old).len()) {
        let (from, to) = (func.results(old)[n], func.results(new)[n]);
        renamed.succeed(func, from, to);
    }
    new
}

/// An op once more, in front of another one.
fn copy_before(func: &mut Function, op: Op, before: Op) -> Op {
    let new = copied(func, op, |v| v);
    func.insert_before(before, new);
    new
}

/// An op once more, without its regions and without a place, of what stands for its operands.
fn copied(func: &mut Function, op: Op, of: impl Fn(Value) -> Value) -> Op {
    let operands: SmallVec<[Value; 4]> = func.operands(op).iter().map(|&v| of(v)).collect();
    let segments: SmallVec<[u32; 4]> = func.segments(op).into();
    let types: SmallVec<[Type; 1]> = func.results(op).iter().map(|&v| func.value_type(v)).collect();
    let new = func.make_op(func.opcode(op), &operands, &segments, &types, func.op_loc(op));
    *func.inherent_mut(new) = func.inherent(op).clone();
    *func.discardable_mut(new) = func.discardable(op).clone();
    new
}

/// Views that the kernel writes; `None` where a write may go anywhere.
fn written_views(func: &Function) -> Option<EntitySet<Value>> {
    let mut written = EntitySet::new();
    for op in func.ops().filter(|&op| func.opcode(op).has(crate::ir::opcodes::Traits::WRITES_GLOBAL)) {
        written.insert(view_of(func, op)?);
    }
    Some(written)
}

/// The kernel's view or pointer that an access goes to, if its descriptor is at hand.
fn view_of(func: &Function, op: Op) -> Option<Value> {
    let view = func.named_operand(op, "view").or_else(|| {
        let desc = func.defining_op(func.named_operand(op, "desc")?)?;
        func.named_operand(desc, "view")
    })?;
    let root = func.memory_touched(view);
    let known = match func.value_def(root) {
        ValueDef::Param(b, _) => b == func.entry(),
        ValueDef::Result(op, _) => func.makes_pointer(op),
    };
    known.then_some(root)
}

/// Whether anything is said about an op beyond what it computes and where it comes from: constraints, hints, notes.
fn is_annotated(func: &Function, op: Op) -> bool {
    let constrained = func.inherent(op).iter().any(|(key, _)| func.symbol(key).starts_with("tileas."));
    constrained || func.discardable(op).iter().any(|(key, _)| func.symbol(key) != ORIGIN)
}

/// Whether an op only says how often or whether others run.
fn is_region(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::For | Opcode::If)
}
