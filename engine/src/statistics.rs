//! What the engine knows about itself: counters that are always on, and a snapshot of them for people and tools.

use alluvium_base::memory::{self, MemoryStatistics};
use alluvium_base::metrics::Counter;
use alluvium_base::sync::{WAIT_REASONS, WaitReason};
use alluvium_sstable::cache::CacheStatistics;
use alluvium_wal::LogStatistics;

use crate::admission::{Admission, Debt};
use crate::tree::{BackgroundError, Tree};

/// Counters of one open database, since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) written_operations: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) flushes: Counter,
    pub(crate) flushed_bytes: Counter,
    pub(crate) compactions: Counter,
    pub(crate) trivial_moves: Counter,
    pub(crate) compaction_read_bytes: Counter,
    pub(crate) compaction_written_bytes: Counter,
    pub(crate) ingested_bytes: Counter,
    pub(crate) dropped_entries: Counter,
    pub(crate) broken_pairs: Counter,
    pub(crate) removed_files: Counter,
    pub(crate) background_failures: Counter,
}

/// The state of one level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelStatistics {
    /// Files in the level.
    pub files: usize,
    /// Their size, in bytes.
    pub bytes: u64,
    /// Their entries, all versions and tombstones included.
    pub entries: u64,
    /// Their point tombstones.
    pub tombstones: u64,
    /// Their range tombstones.
    pub range_tombstones: u64,
}

/// What a database was doing at one moment; counters count from when it was opened.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Commits applied.
    pub commits: u64,
    /// Transactions that were refused because of a write meanwhile.
    pub conflicts: u64,
    /// Operations in the commits.
    pub written_operations: u64,
    /// Bytes in them (keys, values, framing), before the log.
    pub written_bytes: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Bytes of the tables that flushes wrote.
    pub flushed_bytes: u64,
    /// Compactions that rewrote tables.
    pub compactions: u64,
    /// Compactions that only moved a table to another level.
    pub trivial_moves: u64,
    /// Bytes of the tables that compactions read.
    pub compaction_read_bytes: u64,
    /// Bytes of the tables that compactions wrote.
    pub compaction_written_bytes: u64,
    /// Bytes of the tables that bulk loads wrote.
    pub ingested_bytes: u64,
    /// Entries that flushes and compactions dropped: overwritten, deleted, or of a dropped keyspace.
    pub dropped_entries: u64,
    /// Index entries whose puts and removals did not alternate, met by flushes and compactions. More than 0 is
    /// corruption: run the index check.
    pub broken_pairs: u64,
    /// Files removed.
    pub removed_files: u64,
    /// Failures of background work, all retried.
    pub background_failures: u64,
    /// The last of them, if no success has followed.
    pub background_error: Option<BackgroundError>,
    /// Levels from 0 on.
    pub levels: Vec<LevelStatistics>,
    /// Sublevels of level 0.
    pub level0_sublevels: usize,
    /// Bytes in the active memtable.
    pub memtable_bytes: usize,
    /// Frozen memtables that wait for their flush, and their bytes.
    pub immutable_memtables: (usize, usize),
    /// How far behind the tree is.
    pub debt: Debt,
    /// What writers may do.
    pub admission: Admission,
    /// Commits delayed by admission, and the nanoseconds they waited.
    pub admission_delays: (u64, u64),
    /// Commits stopped by a hard limit, and the nanoseconds they waited.
    pub admission_stops: (u64, u64),
    /// Held snapshots, and the age of the oldest in nanoseconds.
    pub snapshots: (usize, u64),
    /// Other processes that have the database open for reading, when that was last looked at (which is done when a file
    /// is to be removed).
    pub readers: usize,
    /// Tables that are no part of the tree any more, but are kept because an iterator, a snapshot or another process may
    /// read them, or because their turn to be removed has not come; and their bytes.
    pub obsolete_tables: (usize, u64),
    /// Sequence number of the newest visible operation.
    pub visible_seqno: u64,
    /// Open table files.
    pub open_tables: usize,
    /// Waits by reason: count and nanoseconds.
    pub waits: Vec<(WaitReason, u64, u64)>,
    /// The block cache.
    pub cache: CacheStatistics,
    /// What memtables and cached blocks take, over all databases of the process.
    pub buffers: MemoryStatistics,
    /// The log; `None` when open read-only.
    pub log: Option<LogStatistics>,
}

impl Statistics {
    /// Bytes written to tables and log per byte written by users: the log included.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        let log = self.log.as_ref().map_or(0, |log| log.bytes_written);
        let written = self.flushed_bytes + self.compaction_written_bytes + self.ingested_bytes + log;
        written as f64 / self.written_bytes.max(1) as f64
    }

    /// Size of all tables, in bytes.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum()
    }
}

const REASONS: [WaitReason; WAIT_REASONS] = [
    WaitReason::LogRing,
    WaitReason::LogSync,
    WaitReason::CommitQueue,
    WaitReason::Latch,
    WaitReason::Retry,
    WaitReason::Admission,
    WaitReason::Backpressure,
    WaitReason::CacheFill,
    WaitReason::Job,
    WaitReason::Idle,
];

impl Tree {
    /// A snapshot of all counters and of the shape of the tree.
    pub(crate) fn statistics(&self) -> Statistics {
        let counters = &self.counters;
        let read_state = self.read_state.load_full();
        let version = &read_state.version;
        let levels = (0..alluvium_base::limits::LEVELS as u8)
            .map(|level| {
                let mut sum = LevelStatistics::default();
                for file in version.files_of(level) {
                    sum.files += 1;
                    sum.bytes += file.bytes();
                    sum.entries += file.summary.entries;
                    sum.tombstones += file.summary.tombstones;
                    sum.range_tombstones += file.summary.range_tombstones;
                }
                sum
            })
            .collect();
        let immutable_bytes =
            read_state.immutables.iter().map(|immutable| immutable.memtable.memory_bytes()).sum();
        let (background_error, readers, obsolete_tables) = {
            let state = self.state.lock();
            (state.background_error().cloned(), state.readers, state.obsolete.table_count())
        };
        Statistics {
            commits: counters.commits.get(),
            conflicts: counters.conflicts.get(),
            written_operations: counters.written_operations.get(),
            written_bytes: counters.written_bytes.get(),
            flushes: counters.flushes.get(),
            flushed_bytes: counters.flushed_bytes.get(),
            compactions: counters.compactions.get(),
            trivial_moves: counters.trivial_moves.get(),
            compaction_read_bytes: counters.compaction_read_bytes.get(),
            compaction_written_bytes: counters.compaction_written_bytes.get(),
            ingested_bytes: counters.ingested_bytes.get(),
            dropped_entries: counters.dropped_entries.get(),
            broken_pairs: counters.broken_pairs.get(),
            removed_files: counters.removed_files.get(),
            background_failures: counters.background_failures.get(),
            background_error,
            levels,
            level0_sublevels: version.sublevels().len(),
            memtable_bytes: read_state.active.memory_bytes(),
            immutable_memtables: (read_state.immutables.len(), immutable_bytes),
            debt: self.debt(),
            admission: self.admission.current(),
            admission_delays: (self.admission.delayed.get(), self.admission.delayed_nanos.get()),
            admission_stops: (self.admission.stopped.get(), self.admission.stopped_nanos.get()),
            snapshots: self.snapshots.oldest(),
            readers,
            obsolete_tables,
            visible_seqno: self.snapshots.visible(),
            open_tables: self.tables.open_count(),
            waits: REASONS
                .iter()
                .map(|&reason| {
                    let (count, nanos) = self.waits.get(reason);
                    (reason, count, nanos)
                })
                .collect(),
            cache: self.cache.statistics(),
            buffers: memory::statistics(),
            log: self.log.get().map(alluvium_wal::Log::statistics),
        }
    }
}
