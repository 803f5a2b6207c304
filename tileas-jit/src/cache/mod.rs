//! Keeping what was made: in memory, on disk, in a store that machines share.
//!
//! In: keys that name everything a result depends on ([`KeyBuilder`]), and bytes. Out: the bytes of a key, or nothing. Guarantee: what
//! comes back is what was put in under that key, whatever happens to files and servers in between: entries carry a hash of
//! themselves (`frame`), and one that is damaged, cut off, foreign or of another version is as good as none, with a warning.
//! Trouble with a disk or a server costs the cache, never the result. Warnings go to the crate `log`, counts to [`Stats`].
//!
//! Tiers are asked in order: disk, shared store; what a later one has is written to the disk. [`Memory`] stands before all of them and
//! belongs to one [`Jit`](crate::Jit).
//!
//! Whoever can write to a store runs code on the GPU of everybody who reads it. A disk cache is made readable and writable for its
//! owner alone. A shared store has to be writable for trusted machines only, or be given a key (`Shared::signed`) that they have.

mod disk;
mod frame;
mod memory;
#[cfg(feature = "shared")]
mod shared;

pub use disk::Disk;
pub use memory::Memory;
#[cfg(feature = "shared")]
pub use opendal;
#[cfg(feature = "shared")]
pub use shared::Shared;

use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name of what is kept: a hash of everything it depends on.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; 32]);

/// In hexadecimal.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Makes a key of labelled parts. Each has its length before it, so that no two lists of parts are the same bytes.
#[derive(Clone, Default)]
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

/// What a cache has done so far.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Found on disk.
    pub disk_hits: u64,
    /// Found in the shared store.
    pub shared_hits: u64,
    /// Found nowhere.
    pub misses: u64,
    /// Entries that were not what they should be; each is a miss as well.
    pub damaged: u64,
    /// Reads and writes that failed.
    pub failed: u64,
}

/// [`Stats`] that are counted by several threads.
#[derive(Default, Debug)]
struct Counts {
    disk_hits: AtomicU64,
    shared_hits: AtomicU64,
    misses: AtomicU64,
    damaged: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where results are kept beyond this process. Copies of the handle are the same cache; may be used from any number of threads.
#[derive(Clone, Default)]
pub struct Cache {
    disk: Option<Arc<Disk>>,
    #[cfg(feature = "shared")]
    shared: Option<Arc<Shared>>,
    counts: Arc<Counts>,
}

impl Cache {
    /// Keeps nothing.
    pub fn none() -> Cache {
        Cache::default()
    }

    /// Keeps results in a folder, see [`Disk`].
    ///
    /// # Errors
    /// `E1206`: the folder cannot be made, or is a file.
    pub fn disk(folder: impl Into<std::path::PathBuf>) -> Result<Cache, crate::Error> {
        Ok(Cache::none().with_disk(Disk::open(folder)?))
    }

    /// With a folder.
    #[must_use]
    pub fn with_disk(mut self, disk: Disk) -> Cache {
        self.disk = Some(Arc::new(disk));
        self
    }

    /// With a store that machines share, which is asked after the disk.
    #[cfg(feature = "shared")]
    #[must_use]
    pub fn with_shared(mut self, shared: Shared) -> Cache {
        self.shared = Some(Arc::new(shared));
        self
    }

    /// What is kept under a key.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        if let Some(found) = self.disk.as_ref().and_then(|disk| disk.get(key, &self.counts)) {
            Counts::add(&self.counts.disk_hits);
            return Some(found);
        }
        #[cfg(feature = "shared")]
        if let Some(found) = self.shared.as_ref().and_then(|shared| shared.get(key, &self.counts)) {
            Counts::add(&self.counts.shared_hits);
            if let Some(disk) = &self.disk {
                disk.put(key, &found, &self.counts);
            }
            return Some(found);
        }
        Counts::add(&self.counts.misses);
        None
    }

    /// Keeps bytes under a key. What fails is counted and warned of.
    pub fn put(&self, key: &Key, bytes: &[u8]) {
        if let Some(disk) = &self.disk {
            disk.put(key, bytes, &self.counts);
        }
        #[cfg(feature = "shared")]
        if let Some(shared) = &self.shared {
            shared.put(key, bytes, &self.counts);
        }
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        let Counts { disk_hits, shared_hits, misses, damaged, failed } = &*self.counts;
        let [disk_hits, shared_hits, misses, damaged, failed] =
            [disk_hits, shared_hits, misses, damaged, failed].map(|c| c.load(Ordering::Relaxed));
        Stats { disk_hits, shared_hits, misses, damaged, failed }
    }
}
