//! Which parameters may lead to the same memory.
//!
//! In: a kernel. Out: [`Aliases`]. A front end chains accesses by tokens where one may touch what another touches; so two parameters are
//! apart unless a token leads from an access to one to an access to the other, and one of them is written, or a branch or loop chooses
//! between them. The same holds for pointers that are made of addresses or lead to globals, which count as parameters here. Cost: tokens and pointers × parameters / 64, as often as loops hand them on.

use crate::entities::{Region, Value};
use crate::module::{FuncRef, OpRef, ValueDef};
use crate::types::{Elem, TypeData};
use cranelift_entity::SecondaryMap;
use tileas_meta::tileir::{Opcode, Seg};

/// Parameters that count, one bit each; further ones are taken to be apart from none.
const MOST: usize = 128;

/// What is found.
pub(super) struct Aliases {
    /// Parameters that may lead to what an earlier one, which stands for all of them, leads to.
    pub pairs: Vec<(Value, Value)>,
    /// By pointer that loops or branches hand on: a parameter that it may be, the one that stands for all others.
    pub chosen: SecondaryMap<Value, Option<Value>>,
}

struct Finder<'m> {
    func: FuncRef<'m>,
    /// Parameters, then pointers of addresses.
    params: Vec<Value>,
    /// By token: the parameters whose accesses it stands for. By pointer or view: the parameters it may be made of.
    behind: SecondaryMap<Value, u128>,
    /// By parameter: the first one of those it may be the same as.
    first: Vec<usize>,
    written: u128,
    changed: bool,
}

/// What an op accesses, and whether it writes there.
fn access(op: OpRef<'_>) -> Option<(Value, bool)> {
    let (seg, writes) = match op.opcode() {
        Opcode::LoadPtrTko => (Seg::Source, false),
        Opcode::LoadViewTko => (Seg::View, false),
        Opcode::StorePtrTko => (Seg::Destination, true),
        Opcode::StoreViewTko | Opcode::AtomicRedViewTko => (Seg::View, true),
        Opcode::AtomicRmwTko | Opcode::AtomicCasTko => (Seg::Pointers, true),
        _ => return None,
    };
    Some((op.operand(seg)?, writes))
}

impl Finder<'_> {
    fn is_token(&self, v: Value) -> bool {
        *self.func.ty(v) == TypeData::Token
    }

    fn is_pointer(&self, v: Value) -> bool {
        match self.func.ty(v) {
            TypeData::Tile { elem, .. } => matches!(elem, Elem::Ptr { .. }),
            TypeData::TensorView { .. }
            | TypeData::PartitionView { .. }
            | TypeData::StridedView { .. }
            | TypeData::GatherScatterView { .. } => true,
            _ => false,
        }
    }

    fn add(&mut self, v: Value, bits: u128) {
        if self.behind[v] | bits != self.behind[v] {
            self.behind[v] |= bits;
            self.changed = true;
        }
    }

    /// Hands tokens and pointers on from values to those that take their place.
    fn pass(&mut self, from: &[Value], to: impl Iterator<Item = Value>) {
        for (&a, b) in from.iter().zip(to) {
            if self.is_token(a) || self.is_pointer(a) {
                self.add(b, self.behind[a]);
            }
        }
    }

    fn root_of(&self, mut n: usize) -> usize {
        while self.first[n] != n {
            n = self.first[n];
        }
        n
    }

    fn step(&mut self, op: OpRef<'_>) {
        let mut bits = 0;
        for &v in op.operands().iter().filter(|&&v| self.is_token(v)) {
            bits |= self.behind[v];
        }
        let own = access(op).map_or(0, |(v, _)| self.behind[v]);
        let all = bits | own;
        for n in (0..self.params.len().min(MOST)).filter(|&n| own >> n & 1 != 0) {
            for other in (0..self.params.len().min(MOST)).filter(|&m| all >> m & 1 != 0 && m != n) {
                let (a, b) = (self.root_of(n), self.root_of(other));
                if a != b && (self.written >> n | self.written >> other) & 1 != 0 {
                    self.first[a.max(b)] = a.min(b);
                }
            }
        }
        match op.opcode() {
            Opcode::For | Opcode::Loop => {
                let inits = op.list(Seg::Init);
                let skip = usize::from(op.opcode() == Opcode::For);
                if let Some(region) = op.regions().next() {
                    self.pass(inits, self.func.region_params(region).skip(skip));
                    if skip == 1 {
                        self.pass(inits, op.results());
                    }
                }
            }
            Opcode::Yield | Opcode::Continue | Opcode::Break => self.leave(op),
            // Comes behind everything, whatever that touches.
            Opcode::PrintTko => {}
            _ => {
                let from = op.operands().iter().filter(|&&v| self.is_pointer(v));
                let made = from.fold(0, |all, &v| all | self.behind[v]);
                for r in op.results() {
                    if self.is_token(r) {
                        self.add(r, bits | own);
                    } else if self.is_pointer(r) {
                        self.add(r, made);
                    }
                }
            }
        }
    }

    /// What a terminator hands on, to whatever it ends.
    fn leave(&mut self, op: OpRef<'_>) {
        let values = op.list(Seg::Values);
        let mut region = op.region();
        while let Some(owner) = self.func.owner(region) {
            match (owner.opcode(), op.opcode()) {
                (Opcode::If, Opcode::Yield) => return self.pass(values, owner.results()),
                (Opcode::If, _) => region = owner.region(),
                (Opcode::For, _) => {
                    if let Some(body) = owner.regions().next() {
                        self.pass(values, self.func.region_params(body).skip(1));
                    }
                    return self.pass(values, owner.results());
                }
                (Opcode::Loop, Opcode::Continue) => {
                    let Some(body) = owner.regions().next() else { return };
                    return self.pass(values, self.func.region_params(body));
                }
                (Opcode::Loop, _) => return self.pass(values, owner.results()),
                _ => return,
            }
        }
    }
}

/// Looks at a kernel.
pub(super) fn find(func: FuncRef<'_>) -> Aliases {
    let makes = |op: &OpRef<'_>| matches!(op.opcode(), Opcode::IntToPtr | Opcode::GetGlobal);
    let made = func.ops().filter(makes).filter_map(|op| op.result(0));
    let params: Vec<Value> = func.params().chain(made).collect();
    let count = func.params().len();
    let first = (0..params.len()).collect();
    let mut f = Finder { func, params, behind: SecondaryMap::new(), first, written: 0, changed: true };
    for n in 0..f.params.len() {
        let p = f.params[n];
        if n < MOST && f.is_pointer(p) {
            f.behind[p] = 1 << n;
        }
    }
    // What is written is known when all pointers are.
    loop {
        f.changed = false;
        func.ops().for_each(|op| f.step(op));
        for op in func.ops() {
            if let Some((v, true)) = access(op) {
                let all = f.written | f.behind[v];
                f.changed |= all != f.written;
                f.written = all;
            }
        }
        if !f.changed {
            break;
        }
    }
    let mut chosen: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let of = |v: Value| {
        let bits = f.behind[v];
        // All pointers that were addresses, or lead to globals, may lead to the same.
        let root = (bits != 0).then(|| f.root_of(bits.trailing_zeros() as usize));
        root.filter(|&n| n < count).map(|n| f.params[n])
    };
    for op in func.ops() {
        let region = op.regions().next().filter(|_| matches!(op.opcode(), Opcode::For | Opcode::Loop));
        let carried = region.into_iter().flat_map(|r| func.region_params(r));
        for v in carried.chain(op.results()).filter(|&v| f.is_pointer(v)) {
            chosen[v] = of(v);
        }
    }
    debug_assert!(
        f.params[..count].iter().all(|&v| matches!(func.def(v), Some(ValueDef::Param(Region::BODY, _)))),
        "parameters are the body's"
    );
    let later = (0..count).filter(|&n| f.root_of(n) != n);
    let pairs = later.map(|n| (f.params[n], f.params[f.root_of(n)])).collect();
    Aliases { pairs, chosen }
}
