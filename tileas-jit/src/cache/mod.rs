//! Keeping what was made.

use crate::error::Error;
use sha2::{Digest, Sha256};
use std::fmt;

/// The name of what is kept: a hash of everything it depends on.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key(pub [u8; 32]);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Makes a key.
#[derive(Default)]
pub struct KeyBuilder(Sha256);

impl KeyBuilder {
    /// No parts.
    pub fn new() -> KeyBuilder {
        KeyBuilder::default()
    }

    /// One more part.
    #[must_use]
    pub fn part(mut self, label: &str, bytes: &[u8]) -> KeyBuilder {
        for piece in [label.as_bytes(), bytes] {
            self.0.update((piece.len() as u64).to_le_bytes());
            self.0.update(piece);
        }
        self
    }

    /// The key.
    pub fn finish(self) -> Key {
        Key(self.0.finalize().into())
    }
}

/// In memory.
pub struct Memory<V>(moka::sync::Cache<Key, V>);

impl<V: Clone + Send + Sync + 'static> Memory<V> {
    /// Room for so many.
    pub fn new(most: u64) -> Memory<V> {
        Memory(moka::sync::Cache::new(most))
    }

    /// What is kept, or what is made now.
    ///
    /// # Errors
    /// The maker's.
    pub fn get_or_make(&self, key: &Key, make: impl FnOnce() -> Result<V, Error>) -> Result<V, Error> {
        self.0.try_get_with(*key, make).map_err(|e| (*e).clone())
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.invalidate_all();
    }
}

/// What was done.
#[derive(Copy, Clone, Debug, Default)]
pub struct Stats;

/// On disk and elsewhere.
#[derive(Clone, Default)]
pub struct Cache;

impl Cache {
    /// None.
    pub fn none() -> Cache {
        Cache
    }
    /// What is kept.
    pub fn get(&self, _: &Key) -> Option<Vec<u8>> {
        None
    }
    /// Keeps.
    pub fn put(&self, _: &Key, _: &[u8]) {}
    /// What was done.
    pub fn stats(&self) -> Stats {
        Stats
    }
}
