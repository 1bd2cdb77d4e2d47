//! Tables on a file system in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_base::Result;
use alluvium_base::clock::SystemClock;
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::fs::{Fs, OpenMode};
use alluvium_base::key::Seqno;
use alluvium_base::random::Random;
use alluvium_base::range_tombstone::RangeTombstone;
use alluvium_base::sync::WaitStatistics;
use alluvium_sstable::cache::CacheOptions;
use alluvium_sstable::{BlockCache, Fixed, KeyspaceSettings, Table};

use super::{Entry, VecIterator, sorted};
use crate::drop_rules::Snapshots;
use crate::iterate::TableOpener;
use crate::job::{Flush, JobEnvironment, MergeJob, Readers};
use crate::picker::TreeShape;
use crate::version::{FileMeta, Version};

/// A directory of tables.
pub(crate) struct Store {
    pub(crate) environment: JobEnvironment,
    pub(crate) random: Random,
}

struct Opener {
    fs: Arc<dyn Fs>,
    directory: PathBuf,
    cache: Arc<BlockCache>,
}

impl TableOpener for Opener {
    fn open(&self, file: &Arc<FileMeta>) -> Result<Arc<Table>> {
        let opened = self.fs.open(&self.directory.join(file.file_name()), OpenMode::Read)?;
        Table::open(opened, file.id, file.bytes(), Some(file.summary.identity), self.cache.clone())
    }
}

impl Store {
    /// An empty directory `/db`.
    pub(crate) fn new(seed: u64) -> Store {
        Store::over(MemoryFs::new().shared(), seed)
    }

    /// An empty directory `/db` on `fs`.
    pub(crate) fn over(fs: Arc<dyn Fs>, seed: u64) -> Store {
        let directory = Path::new("/db").to_owned();
        fs.create_directory_all(&directory).unwrap();
        fs.sync_directory(Path::new("/")).unwrap();
        let options = CacheOptions { capacity_bytes: 1 << 20, cpus: 1, average_entry_bytes: 4096 };
        let cache = BlockCache::new(options, SystemClock::shared(), Arc::new(WaitStatistics::default()));
        let opener = Opener { fs: fs.clone(), directory: directory.clone(), cache };
        let next_file_id = AtomicU64::new(1);
        let settings = KeyspaceSettings { block_bytes: 200, ..KeyspaceSettings::default() };
        let environment = JobEnvironment {
            fs,
            directory,
            settings: Arc::new(Fixed(settings)),
            opener: Arc::new(opener),
            next_file_id: Arc::new(move || next_file_id.fetch_add(1, Ordering::Relaxed)),
            now_micros: 7,
        };
        Store { environment, random: Random::new(seed) }
    }

    pub(crate) fn job_random(&mut self) -> Random {
        Random::new(self.random.next_u64())
    }

    pub(crate) fn open(&self, file: &Arc<FileMeta>) -> Arc<Table> {
        self.environment.opener.open(file).unwrap()
    }

    /// Names of the table files that exist.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = self.environment.fs.list_directory(&self.environment.directory).unwrap();
        entries.into_iter().map(|entry| entry.name).collect()
    }

    /// A flush of `entries` and `tombstones`.
    pub(crate) fn flush(
        &mut self,
        entries: Vec<Entry>,
        tombstones: Vec<RangeTombstone>,
        order: Seqno,
        snapshots: Snapshots,
        (version, shape): (&Version, &TreeShape),
    ) -> MergeJob {
        let flush = Flush {
            readers: Readers {
                entries: Some(entries.len() as u64),
                iterators: vec![Box::new(VecIterator::new(sorted(entries).into()))],
                tombstones,
                bounds: None,
            },
            order,
            snapshots,
            dropped_keyspaces: vec![],
        };
        MergeJob::flush(self.environment.clone(), self.job_random(), flush, version, shape)
    }
}
