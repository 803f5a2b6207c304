//! In a store that machines share: an object store, Redis, a network's folder.
//!
//! Any store that an [`opendal::Operator`] reaches; the crate is handed on as [`opendal`](super::opendal), and which services it knows is
//! for the program to say (`opendal = { version = "…", features = ["services-s3"] }`; a folder wants its option `atomic_write_dir`, or
//! others read what is half written). Entries are as on disk, at `v1/<key>`. A call waits
//! so long at most; a store that failed is left alone for a while, so that one that is gone costs little. Works inside of asynchronous
//! programs as well: what is awaited runs on a thread of its own.

use super::{Counts, Key, frame};
use crate::error::{Code, Error};
use opendal::layers::RetryLayer;
use opendal::{ErrorKind, Operator};
use std::fmt;
use std::future::Future;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Default of [`Shared::timeout`].
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a store that failed is left alone.
const PAUSE: Duration = Duration::from_secs(60);

/// How soon a question is asked again that failed for the moment, such as by status 500; it is asked three times at most.
const AGAIN: Duration = Duration::from_millis(20);

/// A cache in a store that machines share.
pub struct Shared {
    operator: Operator,
    /// Always there but while it is dropped.
    runtime: Option<Runtime>,
    secret: Option<Vec<u8>>,
    timeout: Duration,
    /// When it may be asked again.
    paused: Mutex<Option<Instant>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("signed", &self.secret.is_some()).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Waits for nothing: that would be forbidden in asynchronous code.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Shared {
    /// A store.
    ///
    /// # Errors
    /// `E1206`: its thread cannot be started.
    pub fn new(operator: Operator) -> Result<Shared, Error> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("tileas-cache").enable_all().build();
        let runtime =
            runtime.map_err(|e| Error::new(Code::E1206, format!("the thread of a shared store: {e}")))?;
        let retry = RetryLayer::new().with_max_times(2).with_min_delay(AGAIN).with_jitter();
        Ok(Shared {
            operator: operator.layer(retry),
            runtime: Some(runtime),
            secret: None,
            timeout: TIMEOUT,
            paused: Mutex::default(),
        })
    }

    /// Entries are signed with this key, and those that are not are as good as none (HMAC-SHA-256).
    #[must_use]
    pub fn signed(mut self, key: &[u8]) -> Shared {
        self.secret = Some(key.to_vec());
        self
    }

    /// How long to wait for an answer at most. Default: 2 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Shared {
        self.timeout = timeout;
        self
    }

    pub(super) fn get(&self, key: &Key, counts: &Counts) -> Option<Vec<u8>> {
        let (operator, path) = (self.operator.clone(), path(key));
        let read = async move { operator.read(&path).await.map(|buffer| buffer.to_vec()) };
        let entry = self.ask(read, counts)?;
        frame::read(key, entry, self.secret.as_deref())
            .map_err(|why| {
                log::warn!("cache: {key} of the shared store is passed over: {why}");
                Counts::add(&counts.damaged);
            })
            .ok()
    }

    pub(super) fn put(&self, key: &Key, contents: &[u8], counts: &Counts) {
        let (operator, path) = (self.operator.clone(), path(key));
        let entry = frame::write(key, contents, self.secret.as_deref());
        self.ask(async move { operator.write(&path, entry).await }, counts);
    }

    /// Waits for an answer; none where there is nothing or something fails.
    fn ask<T: Send + 'static>(
        &self,
        question: impl Future<Output = opendal::Result<T>> + Send + 'static,
        counts: &Counts,
    ) -> Option<T> {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        if paused.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        *paused = None;
        drop(paused);
        let (send, answer) = mpsc::sync_channel(1);
        let task = self.runtime.as_ref()?.spawn(async move {
            // Nobody may be waiting any more.
            let _ = send.send(question.await);
        });
        let why = match answer.recv_timeout(self.timeout) {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(e)) if e.kind() == ErrorKind::NotFound => return None,
            Ok(Err(e)) => e.to_string(),
            Err(e) => {
                task.abort();
                e.to_string()
            }
        };
        Counts::add(&counts.failed);
        log::warn!("cache: the shared store is left alone for {} s: {why}", PAUSE.as_secs());
        *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PAUSE);
        None
    }
}

fn path(key: &Key) -> String {
    format!("v1/{key}")
}
