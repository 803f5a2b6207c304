//! Scheduling constraints: nine attributes per op, the groups they form, and the ops that wait for a leader.
//!
//! In: a function and its ops in walk order. Out: a [`ConstraintMap`] with seven words per op, a [`GroupForest`],
//! the pending set, and warnings. A key is looked up in the inherent dictionary first, then in the discardable one.
//! Integers are 64-bit and reinterpreted as unsigned 32-bit words; unit keys count by presence; a key that is
//! absent leaves 0. The groups and the pending set are seeded in the same walk and frozen afterwards.
//!
//! Two modes. [`ConstraintMode::Spec`] keeps the documented behaviour with its quirks and warns: an op with a group
//! but no leader follows group 0. [`ConstraintMode::Strict`] tells absence from zero (such an op leads its own
//! group) and turns the warnings into errors. Ops with neither group nor leader belong to no group in both.
//!
//! Guarantee: the result depends on the walk order alone. Cost: linear in ops, O(α) per union. Elsewhere: what the
//! scheduler does with groups (gates, arms). Source: spec page 2; `W0101`–`W0107` are this project's.

mod groups;

pub use groups::{Group, GroupForest};

use crate::error::{Code, CodegenError};
use crate::ir::{Attr, AttrData, Function, Op, Sym, keys};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntitySet, SecondaryMap};
use std::fmt::Write;

/// How oddities are treated; the option `published.constraint-mode`.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum ConstraintMode {
    /// As documented, with warnings.
    #[default]
    Spec,
    /// Absence differs from zero, and the warnings are errors.
    Strict,
}

impl ConstraintMode {
    /// The mode of that name: `spec` or `strict`.
    pub fn from_name(name: &str) -> Option<ConstraintMode> {
        match name {
            "spec" => Some(ConstraintMode::Spec),
            "strict" => Some(ConstraintMode::Strict),
            _ => None,
        }
    }
}

/// The constraints of one op.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct ConstraintSlot {
    /// Group number.
    pub gid: u32,
    /// Group number of the leader.
    pub leader_gid: u32,
    /// Largest pipeline stage; 0 = unlimited.
    pub max_depth: u32,
    /// Bits [`ConstraintSlot::FORCE_SERIAL`], [`ConstraintSlot::RECOMPUTABLE`], [`ConstraintSlot::DEFUSION`].
    pub flags: u32,
    /// Preferred atom size for slicing.
    pub preferred_atom_size: u32,
    /// Most slices along an axis that is not reduced.
    pub max_slices: u32,
    /// Most recomputations.
    pub max_recomputations: u32,
}

impl ConstraintSlot {
    /// Flag bit of `force_serial_execution`.
    pub const FORCE_SERIAL: u32 = 1 << 0;
    /// Flag bit of `recomputable`.
    pub const RECOMPUTABLE: u32 = 1 << 1;
    /// Flag bit of `enable_defusion_if_fusion_extending_liveness`.
    pub const DEFUSION: u32 = 1 << 2;

    /// The seven words in their documented order.
    pub fn words(&self) -> [u32; 7] {
        let [gid, leader, depth, flags] = self.placement();
        let [atom, slices, recomputations] = self.remat();
        [gid, leader, depth, flags, atom, slices, recomputations]
    }

    /// Words 0 to 3, which placement reads.
    pub fn placement(&self) -> [u32; 4] {
        [self.gid, self.leader_gid, self.max_depth, self.flags]
    }

    /// Words 4 to 6, which rematerialisation reads.
    pub fn remat(&self) -> [u32; 3] {
        [self.preferred_atom_size, self.max_slices, self.max_recomputations]
    }
}

/// All constraints of a function or region.
#[derive(Clone, Default)]
pub struct ConstraintMap {
    placement: SecondaryMap<Op, [u32; 4]>,
    remat: SecondaryMap<Op, [u32; 3]>,
    /// Group of the op's own number.
    own: SecondaryMap<Op, PackedOption<Group>>,
    /// Group of its leader's number.
    leader: SecondaryMap<Op, PackedOption<Group>>,
    /// Ops that carry at least one of the nine keys, in walk order.
    tagged: Vec<Op>,
    /// Followers, in walk order and as a set.
    pending: Vec<Op>,
    is_pending: EntitySet<Op>,
    groups: GroupForest,
}

impl ConstraintMap {
    /// Forgets everything, keeps the allocations.
    pub fn clear(&mut self) {
        let Self { placement, remat, own, leader, tagged, pending, is_pending, groups } = self;
        placement.clear();
        remat.clear();
        own.clear();
        leader.clear();
        tagged.clear();
        pending.clear();
        is_pending.clear();
        groups.clear();
    }

    /// The constraints of an op; all zero without any.
    pub fn slot(&self, op: Op) -> ConstraintSlot {
        let [gid, leader_gid, max_depth, flags] = self.placement[op];
        let [preferred_atom_size, max_slices, max_recomputations] = self.remat[op];
        ConstraintSlot {
            gid,
            leader_gid,
            max_depth,
            flags,
            preferred_atom_size,
            max_slices,
            max_recomputations,
        }
    }

    /// Largest stage of an op; 0 = unlimited.
    pub fn max_depth(&self, op: Op) -> u32 {
        self.placement[op][2]
    }

    /// Whether `force_serial_execution` is set.
    pub fn force_serial(&self, op: Op) -> bool {
        self.placement[op][3] & ConstraintSlot::FORCE_SERIAL != 0
    }

    /// The scheduling group of an op: the root of its own group.
    pub fn group(&self, op: Op) -> Option<Group> {
        Some(self.groups.root(self.own[op].expand()?))
    }

    /// The group of the op's own number, before unions.
    pub fn own_group(&self, op: Op) -> Option<Group> {
        self.own[op].expand()
    }

    /// The group whose ops lead this one: it waits for one of them if it is pending.
    pub fn leader_group(&self, op: Op) -> Option<Group> {
        self.leader[op].expand()
    }

    /// The groups.
    pub fn groups(&self) -> &GroupForest {
        &self.groups
    }

    /// Whether the op follows a leader other than itself.
    pub fn is_pending(&self, op: Op) -> bool {
        self.is_pending.contains(op)
    }

    /// Followers in walk order.
    pub fn pending(&self) -> &[Op] {
        &self.pending
    }

    /// Ops with at least one of the nine keys, in walk order.
    pub fn tagged(&self) -> &[Op] {
        &self.tagged
    }

    /// Ops of a scheduling group in walk order.
    pub fn members(&self, root: Group) -> impl Iterator<Item = Op> + '_ {
        self.tagged.iter().copied().filter(move |&op| self.group(op) == Some(root))
    }

    /// Text for dumps: one comment line per tagged op and per scheduling group, then the pending set.
    pub fn dump(&self, func: &Function) -> String {
        let mut s = String::new();
        let list = |ops: &mut dyn Iterator<Item = Op>| {
            let names: Vec<String> = ops.map(|op| op.to_string()).collect();
            format!("[{}]", names.join(", "))
        };
        for &op in &self.tagged {
            let group = self.group(op).map_or_else(|| "none".to_string(), |g| g.to_string());
            let (name, words) = (func.opcode(op).name(), self.slot(op).words());
            _ = writeln!(s, "; constraints {op} {name} {words:?} group {group}");
        }
        for g in self.groups.roots() {
            let gids: Vec<String> = self.groups.gids_of(g).map(|n| n.to_string()).collect();
            let (gid, members) = (self.groups.gid(g), list(&mut self.members(g)));
            _ = writeln!(s, "; {g} leader gid {gid}, gids [{}], ops {members}", gids.join(", "));
        }
        _ = writeln!(s, "; pending {}", list(&mut self.pending.iter().copied()));
        s
    }

    /// Reads the constraints of `ops`, which come in walk order; warnings (errors in strict mode) go to `warnings`.
    pub fn parse(
        &mut self,
        func: &Function,
        ops: impl IntoIterator<Item = Op>,
        mode: ConstraintMode,
        warnings: &mut Vec<CodegenError>,
    ) {
        self.clear();
        for op in ops {
            let mut keys = func.inherent(op).iter().chain(func.discardable(op).iter());
            if !keys.any(|(k, _)| keys::SCHEDULE.iter().any(|s| s.0 == k)) {
                continue;
            }
            let mut reader = Reader { func, op, mode, warnings: &mut *warnings, tagged: false };
            let gid = reader.group_number(keys::GID);
            let leader = reader.group_number(keys::LEADER_GID);
            let mut slot = ConstraintSlot {
                gid: gid.unwrap_or(0),
                leader_gid: leader.unwrap_or(0),
                max_depth: reader.int(keys::MAX_DEPTH).unwrap_or(0),
                flags: 0,
                preferred_atom_size: reader.int(keys::PREFERRED_ATOM_SIZE).unwrap_or(0),
                max_slices: reader.int(keys::MAX_NUM_SLICES_FOR_NON_REDUCE_AXIS).unwrap_or(0),
                max_recomputations: reader.int(keys::MAX_NUM_OF_RECOMPUTATIONS).unwrap_or(0),
            };
            for (key, bit) in [
                (keys::FORCE_SERIAL_EXECUTION, ConstraintSlot::FORCE_SERIAL),
                (keys::RECOMPUTABLE, ConstraintSlot::RECOMPUTABLE),
                (keys::ENABLE_DEFUSION_IF_FUSION_EXTENDING_LIVENESS, ConstraintSlot::DEFUSION),
            ] {
                if reader.unit(key) {
                    slot.flags |= bit;
                }
            }
            if !reader.tagged {
                continue;
            }
            if mode == ConstraintMode::Strict && leader.is_none() {
                slot.leader_gid = slot.gid;
            } else if gid.is_some_and(|g| g != 0) && leader.is_none() {
                reader.warn(
                    Code::W0101,
                    format!("gid is {} but leader_gid is absent: the op joins group 0", slot.gid),
                );
            }
            self.tagged.push(op);
            self.placement[op] = slot.placement();
            self.remat[op] = slot.remat();
            if gid.is_some() || leader.is_some() {
                // Strict mode tells "no number of its own" from 0: such an op simply joins its leader.
                let joins = mode == ConstraintMode::Strict && gid.is_none();
                self.seed(func, op, slot, joins, mode, warnings);
            }
        }
        self.groups.compress();
    }

    /// Enters one op into the groups and the pending set.
    fn seed(
        &mut self,
        func: &Function,
        op: Op,
        slot: ConstraintSlot,
        joins: bool,
        mode: ConstraintMode,
        warnings: &mut Vec<CodegenError>,
    ) {
        let own_gid = if joins { slot.leader_gid } else { slot.gid };
        let own = self.groups.intern(own_gid);
        let leader = self.groups.intern(slot.leader_gid);
        self.own[op] = own.into();
        self.leader[op] = leader.into();
        if joins || own != leader {
            self.pending.push(op);
            self.is_pending.insert(op);
        }
        if joins {
            return;
        }
        let mut reader = Reader { func, op, mode, warnings, tagged: true };
        match self.groups.declare(own, leader) {
            Some(first) if first != leader => {
                let (have, first) = (slot.leader_gid, self.groups.gid(first));
                reader.warn(
                    Code::W0102,
                    format!("leaders disagree: gid {own_gid} follows {first} elsewhere, but {have} here"),
                );
            }
            None if own != leader && self.groups.find(leader) == own => {
                let have = slot.leader_gid;
                reader.warn(
                    Code::W0102,
                    format!("leaders disagree: gid {own_gid} follows {have}, which follows {own_gid}"),
                );
            }
            _ => {}
        }
        if own != leader {
            self.groups.union(own, leader);
        }
    }
}

/// What an op's attributes say about slices and recomputation, for the stages that do that: preparation and placement.
/// A stage takes the keys that it heeded off the op ([`take`]), so what is left when a kernel is scheduled had no effect.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct RematWords {
    /// Most columns of a piece; 0: not said.
    pub atom: u32,
    /// Most pieces; 0: not said.
    pub slices: u32,
    /// Most times that the result is made again; 0: as often as it is used.
    pub recomputations: u32,
    /// Whether the result may be made again.
    pub recomputable: bool,
    /// Whether the op may leave a fused set that would make its operands live longer.
    pub defusion: bool,
}

/// The keys that schedules heed.
pub const PLACEMENT_WORDS: [Sym; 4] =
    [keys::GID, keys::LEADER_GID, keys::MAX_DEPTH, keys::FORCE_SERIAL_EXECUTION];

/// The keys of slices.
pub const SLICE_WORDS: [Sym; 2] = [keys::PREFERRED_ATOM_SIZE, keys::MAX_NUM_SLICES_FOR_NON_REDUCE_AXIS];

/// The keys of recomputation.
pub const RECOMPUTE_WORDS: [Sym; 2] = [keys::RECOMPUTABLE, keys::MAX_NUM_OF_RECOMPUTATIONS];

impl RematWords {
    /// Those of an op, integers narrowed as [`ConstraintMap::parse`] does.
    pub fn of(func: &Function, op: Op) -> RematWords {
        let mut words = RematWords::default();
        let int = |a: Attr| match func.attr_data(a) {
            AttrData::Int(v, _) => *v as u32,
            _ => 0,
        };
        // The inherent dictionary is read last: it holds.
        for (key, a) in func.discardable(op).iter().chain(func.inherent(op).iter()) {
            match key {
                k if k == keys::PREFERRED_ATOM_SIZE => words.atom = int(a),
                k if k == keys::MAX_NUM_SLICES_FOR_NON_REDUCE_AXIS => words.slices = int(a),
                k if k == keys::MAX_NUM_OF_RECOMPUTATIONS => words.recomputations = int(a),
                k if k == keys::RECOMPUTABLE => words.recomputable = true,
                k if k == keys::ENABLE_DEFUSION_IF_FUSION_EXTENDING_LIVENESS => words.defusion = true,
                _ => {}
            }
        }
        words
    }
}

/// Takes keys that were heeded off an op.
pub fn take(func: &mut Function, op: Op, keys: &[Sym]) {
    for &key in keys {
        func.inherent_mut(op).remove(key);
        func.discardable_mut(op).remove(key);
    }
}

/// The attribute under `key`: the inherent one, else the discardable one.
pub fn lookup(func: &Function, op: Op, key: Sym) -> Option<Attr> {
    func.inherent(op).get(key).or_else(|| func.discardable(op).get(key))
}

/// Group numbers above this one are reserved as table sentinels.
const LAST_GID: u32 = 0xFFFF_FFFD;

/// Reads the keys of one op.
struct Reader<'a> {
    func: &'a Function,
    op: Op,
    mode: ConstraintMode,
    warnings: &'a mut Vec<CodegenError>,
    /// Whether any key was there.
    tagged: bool,
}

impl Reader<'_> {
    fn warn(&mut self, code: Code, text: String) {
        let code = match self.mode {
            ConstraintMode::Spec => code,
            ConstraintMode::Strict => as_error(code),
        };
        let text = format!("{}: {text}", self.func.opcode(self.op).name());
        self.warnings.push(CodegenError::new(code, self.func.op_loc(self.op), text));
    }

    fn raw(&mut self, key: Sym) -> Option<Attr> {
        let found = lookup(self.func, self.op, key);
        self.tagged |= found.is_some();
        found
    }

    fn word(&self, a: Attr) -> Option<i64> {
        match self.func.attr_data(a) {
            AttrData::Int(v, _) => Some(*v),
            _ => None,
        }
    }

    fn int(&mut self, key: Sym) -> Option<u32> {
        let found = self.raw(key)?;
        let name = self.func.symbol(key);
        let value = self.word(found);
        let shadow = self.func.inherent(self.op).get(key).and(self.func.discardable(self.op).get(key));
        if let Some(s) = shadow
            && s != found
            && (value.is_none() || self.word(s) != value)
        {
            self.warn(
                Code::W0103,
                format!("`{name}` differs in the two dictionaries: the inherent value holds"),
            );
        }
        let Some(v) = value else {
            self.warn(Code::W0106, format!("`{name}` expects an integer: ignored"));
            return None;
        };
        // Signed and unsigned 32-bit readings are both exact.
        let word = v as u32;
        if i64::from(word) != v && i64::from(word as i32) != v {
            self.warn(Code::W0105, format!("`{name}` is {v}, narrowed to {word}"));
        }
        Some(word)
    }

    fn group_number(&mut self, key: Sym) -> Option<u32> {
        let v = self.int(key)?;
        if v > LAST_GID {
            let name = self.func.symbol(key);
            self.warn(
                Code::W0107,
                format!("`{name}` is {v}, above the last group number {LAST_GID}: ignored"),
            );
            return None;
        }
        Some(v)
    }

    fn unit(&mut self, key: Sym) -> bool {
        let Some(found) = self.raw(key) else { return false };
        if *self.func.attr_data(found) != AttrData::Unit {
            let name = self.func.symbol(key);
            self.warn(Code::W0104, format!("`{name}` takes no value: its presence counts"));
        }
        true
    }
}

/// The error that stands for a warning in strict mode. Strict mode defines what `W0101` warns about.
fn as_error(warning: Code) -> Code {
    match warning {
        Code::W0102 => Code::E0102,
        Code::W0103 => Code::E0103,
        Code::W0104 => Code::E0104,
        Code::W0105 => Code::E0105,
        Code::W0106 => Code::E0106,
        Code::W0107 => Code::E0107,
        other => other,
    }
}

#[cfg(test)]
mod tests;
