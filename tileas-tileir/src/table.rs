//! Byte strings by number, back to back.

use cranelift_entity::EntityRef;
use std::marker::PhantomData;

/// Strings or constants of a module.
#[derive(Clone, Debug)]
pub struct Table<K> {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
    key: PhantomData<K>,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Table { bytes: Vec::new(), ends: Vec::new(), key: PhantomData }
    }
}

impl<K> PartialEq for Table<K> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.ends == other.ends
    }
}

impl<K: EntityRef> Table<K> {
    pub(crate) fn reserve(&mut self, items: usize, bytes: usize) {
        self.ends.reserve_exact(items);
        self.bytes.reserve_exact(bytes);
    }

    /// Adds one.
    pub fn push(&mut self, bytes: &[u8]) -> K {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len() as u32);
        K::new(self.ends.len() - 1)
    }

    /// The first one with these bytes, or a new one.
    pub fn intern(&mut self, bytes: &[u8]) -> K {
        let found = self.iter().find(|&(_, b)| b == bytes).map(|(k, _)| k);
        found.unwrap_or_else(|| self.push(bytes))
    }

    /// The bytes of one; empty if there is none of that number.
    pub fn get(&self, key: K) -> &[u8] {
        let i = key.index();
        let Some(&end) = self.ends.get(i) else { return &[] };
        let start = i.checked_sub(1).map_or(0, |p| self.ends[p]);
        &self.bytes[start as usize..end as usize]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (K, &[u8])> {
        (0..self.len()).map(|i| (K::new(i), self.get(K::new(i))))
    }
}
