//! In a folder.
//!
//! One file per key, in folders named by its first byte. A file is written beside its place and renamed, so that every reader, in this
//! process or another, sees all of it or nothing; no locks. Files that vanish in between are misses. Above the limit the files
//! that were not used for the longest go, until three quarters of it are left; the time of a file's last use is its time of change.

use super::{Counts, Key, frame};
use crate::error::{Code, Error};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The name of a file that is being written begins so.
const UNFINISHED: &str = ".new-";
/// How old such a file is when nobody is taken to be writing it any more.
const STALE: Duration = Duration::from_secs(3600);
/// Default of [`Disk::limit`]: 1 GiB.
const LIMIT: u64 = 1 << 30;

/// A cache in a folder of its own, which several processes may use at the same time.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    limit: u64,
    /// Bytes that were written since the folder was last measured; `u64::MAX`: it never was.
    written: AtomicU64,
    warned: AtomicBool,
}

impl Disk {
    /// Opens a folder; makes it, for its owner alone, if it is not there.
    ///
    /// # Errors
    /// `E1206`: it cannot be made, or is a file. A folder that cannot be written to is none: it can be read from.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Disk, Error> {
        let folder = folder.into();
        make_folder(&folder)
            .map_err(|e| Error::new(Code::E1206, format!("the folder {}: {e}", folder.display())))?;
        let (written, warned) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        Ok(Disk { folder, limit: LIMIT, written, warned })
    }

    /// Most bytes of all files together. Default: 1 GiB.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Disk {
        self.limit = bytes;
        self
    }

    fn path(&self, key: &Key) -> PathBuf {
        let name = key.to_string();
        self.folder.join(&name[..2]).join(&name[2..])
    }

    /// What is kept under a key.
    pub(super) fn get(&self, key: &Key, counts: &Counts) -> Option<Vec<u8>> {
        let path = self.path(key);
        let entry = match self.read(&path) {
            Ok(entry) => entry,
            Err(e) if e.kind() == ErrorKind::NotFound => return None,
            Err(e) => {
                self.trouble(&path, &e, counts);
                return None;
            }
        };
        match frame::read(key, entry, None) {
            Ok(contents) => {
                // Where this fails the file goes earlier than it might.
                let _ =
                    File::options().append(true).open(&path).and_then(|f| f.set_modified(SystemTime::now()));
                Some(contents)
            }
            Err(why) => {
                log::warn!("cache: {} is passed over: {why}", path.display());
                Counts::add(&counts.damaged);
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// A file, unless it is larger than the limit: then all but its head, which is as good as damaged.
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        let file = File::open(path)?;
        let most = self.limit.saturating_add(frame::HEAD as u64);
        let mut entry = Vec::new();
        file.take(if file_len(path) > most { frame::HEAD as u64 } else { most }).read_to_end(&mut entry)?;
        Ok(entry)
    }

    /// Keeps bytes under a key.
    pub(super) fn put(&self, key: &Key, contents: &[u8], counts: &Counts) {
        if contents.len() as u64 > self.limit {
            return;
        }
        let path = self.path(key);
        let entry = frame::write(key, contents, None);
        if let Err(e) = write(&path, &entry) {
            self.trouble(&path, &e, counts);
            return;
        }
        let len = entry.len() as u64;
        // Measured at the first write and then whenever a quarter of the limit was written.
        let before = self.written.fetch_add(len, Ordering::Relaxed);
        if before == u64::MAX || before.saturating_add(len) > self.limit / 4 {
            self.written.store(0, Ordering::Relaxed);
            self.shrink();
        }
    }

    /// Removes what nobody is writing any more, and the files used the longest ago if there are too many bytes.
    fn shrink(&self) {
        let mut files = Vec::new();
        let mut total = 0_u64;
        let now = SystemTime::now();
        for folder in entries(&self.folder).filter(|e| is_part_of_a_key(e, 2)) {
            for file in entries(&folder.path()) {
                let Ok(about) = file.metadata() else { continue };
                let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                if !is_part_of_a_key(&file, 62) {
                    let unfinished = file.file_name().to_string_lossy().starts_with(UNFINISHED);
                    if unfinished && now.duration_since(used).is_ok_and(|age| age > STALE) {
                        let _ = fs::remove_file(file.path());
                    }
                    continue;
                }
                total = total.saturating_add(about.len());
                files.push((used, about.len(), file.path()));
            }
        }
        // So that what is written before the next time still fits.
        let most = self.limit - self.limit / 4;
        if total <= most {
            return;
        }
        files.sort();
        for (_, len, path) in files {
            if total <= most {
                break;
            }
            // Another process may have been faster.
            let _ = fs::remove_file(&path);
            total = total.saturating_sub(len);
        }
    }

    /// Counts a failure; the first of them is a warning.
    fn trouble(&self, path: &Path, error: &std::io::Error, counts: &Counts) {
        Counts::add(&counts.failed);
        let level =
            if self.warned.swap(true, Ordering::Relaxed) { log::Level::Debug } else { log::Level::Warn };
        log::log!(level, "cache: {}: {error}", path.display());
    }
}

fn file_len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

/// Whether a file or folder is named by so many digits. Others are none of ours and are left alone.
fn is_part_of_a_key(entry: &fs::DirEntry, digits: usize) -> bool {
    let name = entry.file_name();
    name.len() == digits && name.to_string_lossy().bytes().all(|b| b.is_ascii_hexdigit())
}

fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Makes a folder and those above it, for their owner alone.
fn make_folder(path: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// Writes a file beside its place and puts it there.
fn write(path: &Path, entry: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    make_folder(folder)?;
    // Readable for its owner alone; removed if it does not get to its place.
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
    file.write_all(entry)?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}
