//! The tree: what all threads of an open database share, and how its parts are swapped.
//!
//! Locks, in the order in which they may be taken (see `design/locks.md`):
//!
//! 1. `gate`: committers share it from appending to the log until the entries are in the memtable; rotation takes it
//!    alone. So every record below a frozen memtable's `log_end` is in that memtable or an older one.
//! 2. `versions`: the manifest and the newest version. Held during manifest I/O; no reader or writer ever needs it.
//! 3. `state`: a few pointer moves while a new read state is built.
//!
//! Readers take none of them: they load `read_state`.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use alluvium_base::fs::FileLock;
use alluvium_base::key::KeyspaceId;
use alluvium_base::sync::{Mutex, RwLock, WaitPoint, WaitStatistics};
use alluvium_base::{Error, ErrorKind, Result};
use alluvium_compaction::picker::Claim;
use alluvium_compaction::{FileMeta, ManifestState, Version, VersionEdit};
use alluvium_sstable::BlockCache;
use alluvium_wal::Log;
use arc_swap::ArcSwap;

use crate::background::ManualRequest;
use crate::commit::Publisher;
use crate::environment::Environment;
use crate::executor::Executor;
use crate::layout;
use crate::manifest::{Current, Manifest, Position};
use crate::memtable::Memtable;
use crate::obsolete::Obsolete;
use crate::options::{MemorySplit, Options};
use crate::read_only::Reader;
use crate::read_state::{Immutable, ReadState};
use crate::row::Latches;
use crate::snapshot::{SnapshotGuard, SnapshotRegistry};
use crate::statistics::Counters;
use crate::table_store::TableStore;

/// What all threads of an open database share.
pub(crate) struct Tree {
    pub(crate) environment: Environment,
    pub(crate) directory: PathBuf,
    pub(crate) options: Options,
    pub(crate) memory: MemorySplit,
    pub(crate) waits: Arc<WaitStatistics>,
    pub(crate) counters: Counters,
    pub(crate) snapshots: Arc<SnapshotRegistry>,
    pub(crate) read_state: ArcSwap<ReadState>,
    /// The memtable that commits go to. See the module's documentation.
    pub(crate) gate: RwLock<Arc<Memtable>>,
    pub(crate) versions: Mutex<Versions>,
    pub(crate) state: Mutex<TreeState>,
    /// Somebody waits for background work: a flush, a compaction, room.
    pub(crate) progress: WaitPoint,
    pub(crate) publisher: Publisher,
    pub(crate) next_seqno: AtomicU64,
    /// The housekeeper has been woken to make the next log segment.
    pub(crate) segment_requested: AtomicBool,
    /// Number of the next batch that needs several log records.
    pub(crate) next_part_number: AtomicU64,
    pub(crate) next_file_id: Arc<AtomicU64>,
    pub(crate) next_keyspace_id: AtomicU32,
    pub(crate) latches: Latches,
    pub(crate) identities: Mutex<alluvium_base::random::Random>,
    /// Set once recovery is over; never, if the database is open read-only.
    pub(crate) log: OnceLock<Log>,
    /// Released by closing, even while handles and iterators live on.
    pub(crate) lock: Mutex<Option<Box<dyn FileLock>>>,
    /// What a handle that only reads has; `None` for the one that writes.
    pub(crate) reader: Option<Mutex<Reader>>,
    pub(crate) database_id: u128,
    pub(crate) tables: Arc<TableStore>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) executor: Executor,
    pub(crate) closed: Arc<AtomicBool>,
    /// Keyspaces that were dropped and of which files may still hold data, ascending.
    pub(crate) dropped: ArcSwap<Vec<KeyspaceId>>,
    /// `dropped` is not empty: asked before it, since it almost always is.
    pub(crate) any_dropped: AtomicBool,
    pub(crate) admission: crate::commit::AdmissionControl,
}

/// The newest durable state, and the manifest that makes it durable.
pub(crate) struct Versions {
    /// `None` if the database is open read-only.
    pub(crate) manifest: Option<Manifest>,
    /// Version, counters and catalog as of the last edit.
    pub(crate) durable: ManifestState,
}

/// What changes often and in memory only.
#[derive(Default)]
pub(crate) struct TreeState {
    /// What is to be removed once no reader, in this process or another, needs it.
    pub(crate) obsolete: Obsolete,
    /// Other processes that read, as of when that was last looked at.
    pub(crate) readers: usize,
    /// Background work that has failed since it last succeeded, by its name.
    pub(crate) failures: BTreeMap<&'static str, BackgroundError>,
    /// Claims of the compactions that run now.
    pub(crate) claims: Vec<Claim>,
    /// Compactions that somebody asked for, and the numbers of the last one asked for and the last one done.
    pub(crate) manual: VecDeque<ManualRequest>,
    pub(crate) manual_requested: u64,
    pub(crate) manual_done: u64,
}

/// A failure of background work: it is retried by itself.
#[derive(Clone, Debug)]
pub struct BackgroundError {
    /// The job ("flush", "compaction", "log", …).
    pub job: &'static str,
    /// What went wrong.
    pub error: Error,
    /// Failures in a row.
    pub count: u64,
    /// When it is tried again, in nanoseconds of the monotonic clock.
    pub retry_at_nanos: u64,
}

impl Tree {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(ErrorKind::Closed.into()) } else { Ok(()) }
    }

    /// Refuses what goes on with a keyspace after its drop.
    pub(crate) fn check_not_dropped(&self, keyspace: KeyspaceId) -> Result<()> {
        if self.any_dropped.load(Ordering::Acquire) && self.dropped.load().binary_search(&keyspace).is_ok() {
            return Err(Error::not_found(format!("keyspace {} any more: it was dropped", keyspace.0)));
        }
        Ok(())
    }

    /// The manifest, which holds the catalog: the file to name in errors.
    pub(crate) fn catalog_file(&self, versions: &Versions) -> PathBuf {
        let number = match &versions.manifest {
            Some(manifest) => Some(manifest.position().number),
            None => {
                let current = Current::read(self.environment.fs.as_ref(), &self.directory);
                current.ok().flatten().map(|current| current.number)
            }
        };
        match number {
            Some(number) => layout::manifest(&self.directory, number),
            None => layout::current(&self.directory),
        }
    }

    pub(crate) fn log(&self, operation: &'static str) -> Result<&Log> {
        self.log.get().ok_or_else(|| ErrorKind::ReadOnly { operation }.into())
    }

    /// A snapshot of what is visible now. In a handle that only reads it is bound to the files that there are now: nobody
    /// keeps old versions for it when the handle is refreshed.
    pub(crate) fn take_snapshot(&self) -> SnapshotGuard {
        if self.reader.is_none() {
            return self.snapshots.take();
        }
        // The state first, the sequence number second: see `read_state`.
        let state = self.read_state.load_full();
        self.snapshots.take().of_state(state)
    }

    pub(crate) fn new_file_id(&self) -> u64 {
        self.next_file_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn new_identity(&self) -> u128 {
        let mut random = self.identities.lock();
        u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())
    }

    pub(crate) fn new_memtable(&self) -> Arc<Memtable> {
        Memtable::new(self.memory.memtable_bytes)
    }

    /// Freezes the active memtable if it is not empty and `wanted` of its size still holds once nobody writes to it.
    /// Returns whether it did.
    pub(crate) fn rotate_if(&self, wanted: impl Fn(&Memtable) -> bool) -> Result<bool> {
        let log = self.log("write")?;
        let mut gate = self.gate.write();
        if gate.is_empty() || !wanted(&gate) {
            return Ok(false);
        }
        let fresh = self.new_memtable();
        let frozen = std::mem::replace(&mut *gate, Arc::clone(&fresh));
        // Nobody appends while the gate is held alone, so these two are exact.
        let newest = self.next_seqno.load(Ordering::Relaxed) - 1;
        let immutable = Arc::new(Immutable { memtable: frozen, log_end: log.end_address(), newest });
        let state = self.state.lock();
        let old = self.read_state.load_full();
        let mut immutables = old.immutables.clone();
        immutables.push(immutable);
        self.read_state.store(Arc::new(ReadState {
            active: fresh,
            immutables,
            version: Arc::clone(&old.version),
        }));
        drop(state);
        drop(gate);
        self.executor.wake();
        Ok(true)
    }

    /// Makes `edit` durable and then visible. `flushed` is the frozen memtable whose entries the edit adds as files.
    ///
    /// # Errors
    /// If the manifest can't be written. Nothing has changed for readers then, and every file that the edit names must be
    /// kept: a crash may bring the edit back.
    pub(crate) fn install(&self, edit: &VersionEdit, flushed: Option<&Arc<Immutable>>) -> Result<()> {
        let mut versions = self.versions.lock();
        self.install_locked(&mut versions, edit, flushed)
    }

    pub(crate) fn install_locked(
        &self,
        versions: &mut Versions,
        edit: &VersionEdit,
        flushed: Option<&Arc<Immutable>>,
    ) -> Result<()> {
        self.check_open()?;
        let next_file_id = self.next_file_id.load(Ordering::Relaxed).max(versions.durable.next_file_id);
        let next_keyspace_id = self.next_keyspace_id.load(Ordering::Relaxed);
        let edit = VersionEdit {
            next_file_id: Some(next_file_id),
            next_keyspace_id: (next_keyspace_id > versions.durable.next_keyspace_id)
                .then_some(next_keyspace_id),
            ..edit.clone()
        };
        let before = versions.durable.version.clone();
        // Checked before it is written; what is written must be readable.
        before.apply(&edit)?;
        let Versions { manifest, durable } = versions;
        let manifest = manifest.as_mut().ok_or(ErrorKind::ReadOnly { operation: "change the tree" })?;
        manifest.append(&edit, || {
            let mut after = durable.clone();
            after.apply(&edit)?;
            Ok(after.to_edit())
        })?;
        let (position, superseded) = (manifest.position(), manifest.take_superseded());
        durable.apply(&edit)?;
        if !edit.dropped_keyspaces.is_empty() || !edit.purged_keyspaces.is_empty() {
            self.dropped.store(Arc::new(durable.dropped_keyspaces.iter().copied().collect()));
            self.any_dropped.store(!durable.dropped_keyspaces.is_empty(), Ordering::Release);
        }
        let version = Arc::new(durable.version.clone());
        let removed = removed_files(&before, &edit);
        let mut state = self.state.lock();
        let old = self.read_state.load_full();
        let immutables = old
            .immutables
            .iter()
            .filter(|immutable| flushed.is_none_or(|flushed| !Arc::ptr_eq(immutable, flushed)))
            .cloned()
            .collect();
        self.read_state.store(Arc::new(ReadState { active: Arc::clone(&old.active), immutables, version }));
        state.obsolete.add_tables(removed, position);
        state.obsolete.add_manifests(superseded, position);
        if let Some(address) = edit.log_replay_start {
            state.obsolete.release_log(address, position);
        }
        drop(state);
        self.progress.notify_all();
        self.executor.wake();
        Ok(())
    }

    /// Moves the replay start of the log to `address`, below which everything is in tables.
    pub(crate) fn move_replay_start(&self, address: u64) -> Result<()> {
        self.install(&VersionEdit { log_replay_start: Some(address), ..VersionEdit::default() }, None)
    }

    /// The last edit that was made durable; that of a reader does not count.
    pub(crate) fn position(&self) -> Position {
        self.versions.lock().manifest.as_ref().map(Manifest::position).unwrap_or_default()
    }

    /// Records a failure of background work, and when to try again: after 50 ms, doubling up to 5 s.
    pub(crate) fn record_failure(&self, job: &'static str, error: Error) -> u64 {
        let now = self.environment.clock.monotonic_nanos();
        let mut state = self.state.lock();
        let count = state.failures.get(job).map_or(0, |last| last.count) + 1;
        let delay_ms = (50u64 << (count - 1).min(7)).min(5000);
        let retry_at_nanos = now + delay_ms * 1_000_000;
        state.failures.insert(job, BackgroundError { job, error, count, retry_at_nanos });
        self.counters.background_failures.increment();
        drop(state);
        self.progress.notify_all();
        retry_at_nanos
    }

    /// Forgets the failure of `job`, after a success.
    pub(crate) fn record_success(&self, job: &'static str) {
        self.state.lock().failures.remove(job);
    }
}

impl TreeState {
    /// The background work that has failed most often in a row, if any does.
    pub(crate) fn background_error(&self) -> Option<&BackgroundError> {
        self.failures.values().max_by_key(|last| last.count)
    }
}

/// The files that leave the tree with `edit`; those that only change their level stay.
fn removed_files(before: &Version, edit: &VersionEdit) -> Vec<Arc<FileMeta>> {
    let moved: Vec<u64> = edit.added.iter().map(|(_, file)| file.id).collect();
    let gone: HashSet<u64> =
        edit.removed.iter().map(|(_, id)| *id).filter(|id| !moved.contains(id)).collect();
    before.files().map(|(_, file)| file).filter(|file| gone.contains(&file.id)).cloned().collect()
}
