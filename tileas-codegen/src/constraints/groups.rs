//! Groups of ops that are scheduled together: a union-find forest with a direction.
//!
//! Group numbers are interned in first-seen order. A union puts the child's root under the parent's root, whatever
//! their sizes: the leader's root stays root, and the order of unions decides when leaders disagree. Paths are
//! compressed; there is no rank. Source: spec page 2.

use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{PrimaryMap, entity_impl};
use rustc_hash::FxHashMap;

/// A group number of the source, interned.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group(u32);
entity_impl!(Group, "group");

#[derive(Copy, Clone)]
struct GroupData {
    gid: u32,
    parent: Group,
    /// The leader that the first op of this number named.
    declared: PackedOption<Group>,
}

/// The groups of a function or region.
#[derive(Clone, Default)]
pub struct GroupForest {
    groups: PrimaryMap<Group, GroupData>,
    ids: FxHashMap<u32, Group>,
}

impl GroupForest {
    /// Forgets all groups, keeps the allocations.
    pub fn clear(&mut self) {
        let Self { groups, ids } = self;
        groups.clear();
        ids.clear();
    }

    /// The group of a number.
    pub fn intern(&mut self, gid: u32) -> Group {
        *self.ids.entry(gid).or_insert_with(|| {
            let next = self.groups.next_key();
            self.groups.push(GroupData { gid, parent: next, declared: None.into() })
        })
    }

    /// The group of a number, if any op named it.
    pub fn get(&self, gid: u32) -> Option<Group> {
        self.ids.get(&gid).copied()
    }

    /// The number of a group.
    pub fn gid(&self, g: Group) -> u32 {
        self.groups[g].gid
    }

    /// Number of groups, joined ones counted separately.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether no op named a group.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The root above a group.
    pub fn root(&self, mut g: Group) -> Group {
        while self.groups[g].parent != g {
            g = self.groups[g].parent;
        }
        g
    }

    /// The root above a group; shortens the path to it.
    pub fn find(&mut self, mut g: Group) -> Group {
        let root = self.root(g);
        while g != root {
            g = std::mem::replace(&mut self.groups[g].parent, root);
        }
        root
    }

    /// Puts the root of `child` under the root of `parent`; whether that changed anything.
    pub fn union(&mut self, child: Group, parent: Group) -> bool {
        let (below, above) = (self.find(child), self.find(parent));
        self.groups[below].parent = above;
        below != above
    }

    /// Notes that an op of `group` names `leader`; gives what an earlier op of the same number named.
    pub(super) fn declare(&mut self, group: Group, leader: Group) -> Option<Group> {
        let slot = &mut self.groups[group].declared;
        let earlier = slot.expand();
        if earlier.is_none() {
            *slot = leader.into();
        }
        earlier
    }

    /// Shortens all paths, so that [`GroupForest::root`] takes one step.
    pub fn compress(&mut self) {
        for g in self.groups.keys().collect::<Vec<_>>() {
            self.find(g);
        }
    }

    /// Whether two groups are one.
    pub fn same(&self, a: Group, b: Group) -> bool {
        self.root(a) == self.root(b)
    }

    /// Roots in first-seen order: the scheduling groups.
    pub fn roots(&self) -> impl Iterator<Item = Group> + '_ {
        self.groups.iter().filter(|(g, d)| d.parent == *g).map(|(g, _)| g)
    }

    /// Numbers joined under a root, in first-seen order.
    pub fn gids_of(&self, root: Group) -> impl Iterator<Item = u32> + '_ {
        self.groups.iter().filter(move |(g, _)| self.root(*g) == root).map(|(_, d)| d.gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_for_a_root_shortens_the_path() {
        let mut forest = GroupForest::default();
        let n: Vec<Group> = (0..5).map(|gid| forest.intern(gid)).collect();
        (0..4).for_each(|k| _ = forest.union(n[k], n[k + 1]));
        // Each union looked for the roots alone, which were one step away.
        assert_eq!(
            n.iter().map(|&g| forest.groups[g].parent).collect::<Vec<_>>(),
            [n[1], n[2], n[3], n[4], n[4]]
        );
        forest.find(n[0]);
        assert!(n.iter().all(|&g| forest.groups[g].parent == n[4]));
    }
}
