//! Interning: from keys to entity numbers, without a second copy of the keys.
//!
//! [`Index`] is an open-addressing table of entity numbers; keys stay where the entities are, and the caller compares
//! them. [`Symbols`] keeps all names of a function in one string. Both are copied into existing memory by
//! `clone_from`, since passes start from a copy of their input. Nothing iterates over the table, so its order shows
//! nowhere.

use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};

/// Hash of a key.
#[inline]
pub(super) fn hash_of(key: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = FxHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Numbers of entities by the hash of their keys.
#[derive(Default)]
pub(super) struct Index {
    /// Number plus 1; 0 = free. A power of two, at most half full.
    slots: Vec<u32>,
    used: usize,
}

impl Index {
    /// The entity of that hash for which `is` holds. If there is none, `new` is entered, whose key has the hash;
    /// `hash_of` gives the hashes of those entered before.
    pub(super) fn find_or_enter(
        &mut self,
        hash: u64,
        new: u32,
        is: impl Fn(u32) -> bool,
        hash_of: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        if self.slots.len() < 2 * (self.used + 1) {
            // Roomy: passes add to copies of the table, and a copy has the size of the original.
            let size = (8 * (self.used + 1)).next_power_of_two().max(128);
            let old = std::mem::replace(&mut self.slots, vec![0; size]);
            for entity in old.into_iter().filter_map(|slot| slot.checked_sub(1)) {
                let at = self.position(hash_of(entity), |_| false);
                self.slots[at] = entity + 1;
            }
        }
        let at = self.position(hash, is);
        let found = self.slots[at].checked_sub(1);
        if found.is_none() {
            self.slots[at] = new + 1;
            self.used += 1;
        }
        found
    }

    /// The slot of the entity for which `is` holds, or the free one where it would be.
    #[inline]
    fn position(&self, hash: u64, is: impl Fn(u32) -> bool) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while let Some(entity) = self.slots[at].checked_sub(1) {
            if is(entity) {
                break;
            }
            at = (at + 1) & mask;
        }
        at
    }

    /// Becomes a copy, in its own memory.
    pub(super) fn copy(&mut self, from: &Index) {
        self.slots.clone_from(&from.slots);
        self.used = from.used;
    }
}

/// Names, numbered from 0.
#[derive(Default)]
pub(super) struct Symbols {
    text: String,
    /// Where each name ends in `text`.
    ends: Vec<u32>,
    index: Index,
}

impl Symbols {
    /// Number of a name.
    pub(super) fn intern(&mut self, name: &str) -> u32 {
        let Symbols { text, ends, index } = self;
        let new = ends.len() as u32;
        let found = index.find_or_enter(
            hash_of(name),
            new,
            |i| get(text, ends, i as usize) == name,
            |i| hash_of(get(text, ends, i as usize)),
        );
        found.unwrap_or_else(|| {
            text.push_str(name);
            ends.push(text.len() as u32);
            new
        })
    }

    /// How many names there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The name of that number; empty if there is none.
    #[inline]
    pub(super) fn get(&self, number: usize) -> &str {
        get(&self.text, &self.ends, number)
    }

    /// Becomes a copy, in its own memory.
    pub(super) fn copy(&mut self, from: &Symbols) {
        self.text.clone_from(&from.text);
        self.ends.clone_from(&from.ends);
        self.index.copy(&from.index);
    }
}

#[inline]
fn get<'a>(text: &'a str, ends: &[u32], number: usize) -> &'a str {
    let Some(&end) = ends.get(number) else { return "" };
    let start = number.checked_sub(1).map_or(0, |before| ends[before]);
    &text[start as usize..end as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_numbers_and_copies_are_apart() {
        let mut a = Symbols::default();
        let names: Vec<String> = (0..100).map(|i| format!("n{i}")).collect();
        for (i, name) in names.iter().enumerate() {
            assert_eq!(a.intern(name) as usize, i);
        }
        let mut b = Symbols::default();
        b.intern("other");
        b.copy(&a);
        assert_eq!(b.intern("") as usize, names.len());
        assert_eq!(b.intern("n7x") as usize, names.len() + 1);
        assert_eq!(a.intern("n7x") as usize, names.len());
        for (i, name) in names.iter().enumerate() {
            assert_eq!((b.intern(name) as usize, b.get(i)), (i, name.as_str()));
        }
        assert_eq!(b.get(names.len()), "");
    }
}
