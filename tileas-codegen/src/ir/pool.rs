//! Memory of many short lists, one behind the other.
//!
//! A list at the end of the pool grows in place. Another one that outgrows its room moves to the end and gets twice the
//! room, so that what moves leave behind is at most as much as what is used. A pool is copied as one piece, into memory
//! that is there, and list handles mean the same in the copy.
//!
//! A handle has start and length beside each other, so that a lookup reads no memory but the entries themselves; lists of
//! `cranelift_entity` keep the length in the pool, and hold entities only.

/// Some entries of a [`Pool`], in order.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct List {
    start: u32,
    len: u32,
    room: u32,
}

impl List {
    /// Number of entries.
    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len as usize
    }

    /// Whether there are no entries.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Entries of all lists.
pub(crate) struct Pool<T>(Vec<T>);

impl<T> Default for Pool<T> {
    fn default() -> Pool<T> {
        Pool(Vec::new())
    }
}

impl<T: Copy> Pool<T> {
    /// No lists.
    pub(crate) fn new() -> Pool<T> {
        Pool(Vec::new())
    }

    /// No lists, and memory for that many entries.
    pub(crate) fn with_capacity(entries: usize) -> Pool<T> {
        Pool(Vec::with_capacity(entries))
    }

    /// Forgets all lists, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Becomes a copy, in its own memory.
    pub(crate) fn copy(&mut self, from: &Pool<T>) {
        self.0.clone_from(&from.0);
    }

    /// A new list.
    #[inline]
    pub(crate) fn list(&mut self, entries: &[T]) -> List {
        let (start, len) = (self.0.len() as u32, entries.len() as u32);
        self.0.extend_from_slice(entries);
        List { start, len, room: len }
    }

    /// The entries of a list.
    #[inline]
    pub(crate) fn get(&self, list: List) -> &[T] {
        &self.0[list.start as usize..][..list.len as usize]
    }

    /// The entries of a list, to change.
    #[inline]
    pub(crate) fn get_mut(&mut self, list: List) -> &mut [T] {
        &mut self.0[list.start as usize..][..list.len as usize]
    }

    /// Gives a list other entries.
    pub(crate) fn set(&mut self, list: &mut List, entries: &[T]) {
        if entries.len() <= list.room as usize {
            list.len = entries.len() as u32;
            self.get_mut(*list).copy_from_slice(entries);
        } else {
            *list = self.list(entries);
        }
    }

    /// Appends an entry to a list.
    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, entry: T) {
        if list.room == 0 {
            list.start = self.0.len() as u32;
        }
        let end = (list.start + list.len) as usize;
        if list.len == list.room {
            if end == self.0.len() {
                self.0.push(entry);
                list.room += 1;
            } else {
                self.move_to_end(list, entry);
            }
        } else {
            self.0[end] = entry;
        }
        list.len += 1;
    }

    /// Moves a full list to the end of the pool, with room for as many entries again: all are `next`, the first of which
    /// is about to count.
    #[cold]
    #[inline(never)]
    fn move_to_end(&mut self, list: &mut List, next: T) {
        let (from, len) = (list.start as usize, list.len as usize);
        list.start = self.0.len() as u32;
        list.room *= 2;
        self.0.extend_from_within(from..from + len);
        self.0.resize(self.0.len() + len, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_grow_apart_and_copies_keep_them() {
        let mut pool = Pool::new();
        let mut lists = [pool.list(&[]), pool.list(&[10, 11]), List::default()];
        let mut expected: [Vec<u32>; 3] = [vec![], vec![10, 11], vec![]];
        for i in 0..100 {
            let which = [0, 1, 1, 2, 0][i as usize % 5];
            pool.push(&mut lists[which], i);
            expected[which].push(i);
            for (list, want) in lists.iter().zip(&expected) {
                assert_eq!(
                    (pool.get(*list), list.len(), list.is_empty()),
                    (&want[..], want.len(), want.is_empty())
                );
            }
        }
        assert!(pool.0.len() < 400, "{}", pool.0.len());
        pool.set(&mut lists[1], &[7, 8, 9]);
        expected[1] = vec![7, 8, 9];
        let long: Vec<u32> = (0..500).collect();
        pool.set(&mut lists[2], &long);
        expected[2] = long;
        pool.get_mut(lists[0])[3] = 77;
        expected[0][3] = 77;
        let mut copy = Pool::new();
        copy.list(&[1, 2, 3]);
        copy.copy(&pool);
        pool.clear();
        for (list, want) in lists.iter().zip(&expected) {
            assert_eq!(copy.get(*list), &want[..]);
        }
    }
}
