//! In memory, made once however many ask.

use super::Key;
use crate::error::Error;

/// Values by key, so many at most.
///
/// Rules: all who ask for a key that is being made wait for it and get the same value, or the same error. It is made outside of any
/// lock: different keys are made side by side, and a maker may ask for other keys (not for its own). Errors are not kept: who
/// asks later makes it again. A maker that panics takes nobody with it but its own caller: one of those who wait makes it again.
pub struct Memory<V>(moka::sync::Cache<Key, V>);

impl<V: Clone + Send + Sync + 'static> Memory<V> {
    /// Room for so many values; those that were not asked for the longest go.
    pub fn new(most: u64) -> Memory<V> {
        Memory(moka::sync::Cache::new(most))
    }

    /// The value of a key, made if it is not there.
    ///
    /// # Errors
    /// The maker's.
    pub fn get_or_make(&self, key: &Key, make: impl FnOnce() -> Result<V, Error>) -> Result<V, Error> {
        self.0.try_get_with(*key, make).map_err(|e| (*e).clone())
    }

    /// Forgets all values.
    pub fn clear(&self) {
        self.0.invalidate_all();
        self.0.run_pending_tasks();
    }
}
