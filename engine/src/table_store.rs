//! Open tables, by file id: opened on first use, closed when too many are open.
//!
//! At most a quarter of the process's descriptor limit is used; the least recently used table is closed first. A reader
//! that holds a table keeps it open regardless.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_base::Result;
use alluvium_base::fs::{Fs, OpenMode};
use alluvium_base::sync::RwLock;
use alluvium_compaction::FileMeta;
use alluvium_compaction::iterate::TableOpener;
use alluvium_sstable::{BlockCache, Table};

use crate::layout;

/// Most tables kept open, whatever the descriptor limit: each holds about a kilobyte of index tops.
const OPEN_TABLES_MAX: usize = 16_384;

pub(crate) struct TableStore {
    fs: Arc<dyn Fs>,
    directory: PathBuf,
    cache: Arc<BlockCache>,
    open: RwLock<HashMap<u64, OpenTable>>,
    open_max: usize,
    /// Counts uses, as a clock for "least recently".
    tick: AtomicU64,
}

struct OpenTable {
    table: Arc<Table>,
    used: AtomicU64,
}

impl std::fmt::Debug for TableStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableStore({} open)", self.open.read().len())
    }
}

impl TableStore {
    pub(crate) fn new(fs: Arc<dyn Fs>, directory: PathBuf, cache: Arc<BlockCache>) -> Arc<TableStore> {
        let open_max = (fs.open_files_max() / 4).clamp(8, OPEN_TABLES_MAX);
        let open = RwLock::new(HashMap::new());
        Arc::new(TableStore { fs, directory, cache, open, open_max, tick: AtomicU64::new(0) })
    }

    /// The open table of `file`.
    pub(crate) fn get(&self, file: &FileMeta) -> Result<Arc<Table>> {
        let now = self.tick.fetch_add(1, Ordering::Relaxed);
        if let Some(open) = self.open.read().get(&file.id) {
            open.used.store(now, Ordering::Relaxed);
            return Ok(Arc::clone(&open.table));
        }
        // Opened outside of the lock; two threads may both open it, one of them in vain.
        let handle = self.fs.open(&layout::table(&self.directory, file.id), OpenMode::Read)?;
        let table =
            Table::open(handle, file.id, file.bytes(), Some(file.summary.identity), Arc::clone(&self.cache))?;
        let mut open = self.open.write();
        let entry = open.entry(file.id).or_insert(OpenTable { table, used: AtomicU64::new(now) });
        let table = Arc::clone(&entry.table);
        if open.len() > self.open_max {
            Self::close_least_used(&mut open, self.open_max);
        }
        Ok(table)
    }

    /// Closes the least recently used eighth, so that the search for it is rare.
    fn close_least_used(open: &mut HashMap<u64, OpenTable>, open_max: usize) {
        let mut uses: Vec<(u64, u64)> =
            open.iter().map(|(id, t)| (t.used.load(Ordering::Relaxed), *id)).collect();
        uses.sort_unstable();
        let surplus = open.len() - (open_max - open_max / 8);
        for (_, id) in uses.into_iter().take(surplus) {
            open.remove(&id);
        }
    }

    /// Closes a table whose file is about to be removed, and forgets its blocks.
    pub(crate) fn forget(&self, id: u64) {
        self.open.write().remove(&id);
        self.cache.erase_file(id);
    }

    /// Closes every table but `wanted`, and forgets the blocks of those that were open.
    pub(crate) fn forget_all_but(&self, wanted: &HashSet<u64>) {
        let closed: Vec<u64> =
            self.open.write().extract_if(|id, _| !wanted.contains(id)).map(|(id, _)| id).collect();
        closed.into_iter().for_each(|id| self.cache.erase_file(id));
    }

    pub(crate) fn open_count(&self) -> usize {
        self.open.read().len()
    }
}

impl TableOpener for TableStore {
    fn open(&self, file: &Arc<FileMeta>) -> Result<Arc<Table>> {
        self.get(file)
    }
}
