//! Options: few, each with a default that is right for most.

use std::time::Duration;

use alluvium_base::{Error, Result};
use alluvium_sstable::{Compression, KeyspaceSettings};
use alluvium_wal::RecoveryMode;

/// How a database is opened and how it spends memory, disk and processors.
///
/// ```
/// use alluvium::Options;
/// let options = Options { memory_bytes: Some(256 << 20), ..Options::default() };
/// assert!(options.create_if_missing);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Create the database if the directory holds none. Default: true.
    pub create_if_missing: bool,
    /// The one budget, in bytes, for memtables, cached blocks, indexes and filters. What memtables may take at most
    /// (`memtable_bytes` × (`immutable_memtables_max` + 1)) is set aside, the rest is the block cache. Default: a quarter
    /// of the memory that the machine or the control group allows, at most 1 GiB.
    pub memory_bytes: Option<usize>,
    /// Size at which a memtable is frozen and flushed, in bytes. Default: a sixteenth of the budget, at most 64 MiB.
    pub memtable_bytes: Option<usize>,
    /// Memtables that may wait for their flush before writers are stopped. Default: 4.
    pub immutable_memtables_max: usize,
    /// Compression of new blocks. Default: lz4.
    pub compression: Compression,
    /// Target size of a data block before compression, in bytes. Default: 4 KiB.
    pub block_bytes: u32,
    /// Bits per key of the point filter; 0 for none. Default: 10 (about 1 % false positives).
    pub filter_bits_per_key: u8,
    /// Target size of a table file, in bytes. Default: 64 MiB.
    pub table_bytes: u64,
    /// Target size of the first level below level 0, in bytes. Default: 256 MiB.
    pub base_level_bytes: u64,
    /// Sublevels of level 0 from which it is compacted. Default: 4.
    pub level0_compaction_trigger: usize,
    /// Threads that compact. Default: half of the processors, at least 1.
    pub compaction_threads: usize,
    /// Size of a log segment, in bytes; a multiple of 4 KiB. Default: 64 MiB.
    pub log_segment_bytes: u64,
    /// Size of the log's ring, in bytes; a power of two. Default: 4 MiB.
    pub log_ring_bytes: usize,
    /// Longest time that a `Buffered` commit stays un-synced. Default: 1 s.
    pub buffered_sync_interval: Duration,
    /// What to do with invalid bytes in the log. Default: [`RecoveryMode::TornTailOk`].
    pub recovery_mode: RecoveryMode,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            create_if_missing: true,
            memory_bytes: None,
            memtable_bytes: None,
            immutable_memtables_max: 4,
            compression: Compression::Lz4,
            block_bytes: 4096,
            filter_bits_per_key: 10,
            table_bytes: 64 << 20,
            base_level_bytes: 256 << 20,
            level0_compaction_trigger: 4,
            compaction_threads: std::thread::available_parallelism()
                .map_or(1, |cpus| (cpus.get() / 2).max(1)),
            log_segment_bytes: 64 << 20,
            log_ring_bytes: 4 << 20,
            buffered_sync_interval: Duration::from_secs(1),
            recovery_mode: RecoveryMode::TornTailOk,
        }
    }
}

impl Options {
    /// Refuses values that cannot work, saying which and why.
    pub(crate) fn check(&self) -> Result<()> {
        let page = alluvium_base::limits::LOG_PAGE_BYTES as u64;
        let ring_min = 128 << 10;
        let checks = [
            (
                self.memory_bytes.is_none_or(|bytes| (64 << 10..=1 << 46).contains(&bytes)),
                "memory_bytes must lie between 64 KiB and 64 TiB",
            ),
            (
                self.memtable_bytes.is_none_or(|bytes| (16 << 10..=64 << 30).contains(&bytes)),
                "memtable_bytes must lie between 16 KiB and 64 GiB",
            ),
            (
                (1..=64).contains(&self.immutable_memtables_max),
                "immutable_memtables_max must lie between 1 and 64",
            ),
            ((64..=1 << 20).contains(&self.block_bytes), "block_bytes must lie between 64 B and 1 MiB"),
            (self.filter_bits_per_key <= 32, "filter_bits_per_key must be at most 32"),
            (self.table_bytes >= 4 << 10, "table_bytes must be at least 4 KiB"),
            (
                self.base_level_bytes >= self.table_bytes / 4,
                "base_level_bytes must be at least a quarter of table_bytes",
            ),
            (self.level0_compaction_trigger >= 1, "level0_compaction_trigger must be at least 1"),
            ((1..=64).contains(&self.compaction_threads), "compaction_threads must lie between 1 and 64"),
            (
                self.log_segment_bytes.is_multiple_of(page)
                    && (16 * page..=4 << 30).contains(&self.log_segment_bytes),
                "log_segment_bytes must be a multiple of 4 KiB between 64 KiB and 4 GiB",
            ),
            (
                self.log_ring_bytes.is_power_of_two() && (ring_min..=1 << 30).contains(&self.log_ring_bytes),
                "log_ring_bytes must be a power of two between 128 KiB and 1 GiB",
            ),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(Error::invalid(format!("option {rule}"))),
            None => Ok(()),
        }
    }

    /// Splits the budget into the size of one memtable and that of the block cache, both in bytes.
    pub(crate) fn split_memory(&self, machine_bytes: u64) -> MemorySplit {
        let default_budget = usize::try_from(machine_bytes / 4).unwrap_or(usize::MAX).min(1 << 30);
        let budget = self.memory_bytes.unwrap_or(default_budget);
        let memtable_bytes = self.memtable_bytes.unwrap_or((budget / 16).clamp(64 << 10, 64 << 20));
        let memtables = memtable_bytes.saturating_mul(self.immutable_memtables_max + 1);
        MemorySplit { budget_bytes: budget, memtable_bytes, cache_bytes: budget.saturating_sub(memtables) }
    }

    /// How a keyspace's entries are written.
    pub(crate) fn keyspace_settings(&self) -> KeyspaceSettings {
        KeyspaceSettings {
            compression: self.compression,
            block_bytes: self.block_bytes,
            filter_bits_per_key: self.filter_bits_per_key,
            prefix_bytes: None,
        }
    }
}

/// Who gets how much of the memory budget, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemorySplit {
    pub(crate) budget_bytes: usize,
    pub(crate) memtable_bytes: usize,
    pub(crate) cache_bytes: usize,
}

/// How long a commit waits before it is acknowledged, and so what it survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged once it is in the log: survives a crash of the process at once, a crash of the machine after at
    /// most [`Options::buffered_sync_interval`].
    Buffered,
    /// Acknowledged once the log is synced: survives a crash of the machine.
    #[default]
    Sync,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_budget_is_a_quarter_of_the_machine_and_at_most_a_gibibyte() {
        let split = Options::default().split_memory(24 << 30);
        assert_eq!(split.budget_bytes, 1 << 30);
        assert_eq!(split.memtable_bytes, 64 << 20);
        assert_eq!(split.cache_bytes, (1 << 30) - 5 * (64 << 20));
        let small = Options::default().split_memory(256 << 20);
        assert_eq!((small.budget_bytes, small.memtable_bytes), (64 << 20, 4 << 20));
    }

    #[test]
    fn an_unusable_option_is_named() {
        let error = Options { log_ring_bytes: 100_000, ..Options::default() }.check().unwrap_err();
        assert!(error.to_string().contains("log_ring_bytes must be a power of two"), "{error}");
    }

    #[test]
    fn sizes_that_would_exhaust_the_machine_are_refused() {
        // The first ended the process, the others filled the disk for minutes.
        let huge = [
            Options { memtable_bytes: Some(usize::MAX), ..Options::default() },
            Options { log_segment_bytes: 1 << 40, ..Options::default() },
            Options { log_ring_bytes: 1 << 40, ..Options::default() },
            Options { memory_bytes: Some(0), ..Options::default() },
        ];
        assert!(huge.iter().all(|options| options.check().is_err()));
    }
}
