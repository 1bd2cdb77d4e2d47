//! Helpers shared by the tests of whole tables.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses its own part of these helpers"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_base::Result;
use alluvium_base::checksum::key_hash;
use alluvium_base::clock::SystemClock;
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::fs::{Fs, OpenMode};
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{self, KeyspaceId, Kind, Seqno, Trailer};
use alluvium_base::range_tombstone::RangeTombstone;
use alluvium_base::sync::WaitStatistics;
use alluvium_sstable::cache::{Cache, CacheOptions};
use alluvium_sstable::{
    BlockCache, Fixed, KeyspaceSettings, SettingsSource, Table, TableSummary, TableWriter,
};

pub const IDENTITY: u128 = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;

/// Full key, trailer, value.
pub type Entry = (Vec<u8>, Trailer, Vec<u8>);

pub fn put(seqno: Seqno) -> Trailer {
    Trailer::new(seqno, Kind::Put)
}

pub fn full_key(keyspace: u32, user: &[u8]) -> Vec<u8> {
    KeyspaceId(keyspace).full_key(user)
}

/// Sorted as a writer wants it, without repeats.
pub fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by(|a, b| key::compare(&a.0, a.1, &b.0, b.1));
    entries.dedup_by(|b, a| a.0 == b.0 && a.1 == b.1);
    entries
}

pub fn cache(capacity_bytes: usize) -> Arc<BlockCache> {
    let options = CacheOptions { capacity_bytes, cpus: 2, average_entry_bytes: 4096 };
    Cache::new(options, SystemClock::shared(), Arc::new(WaitStatistics::default()))
}

/// A file system in memory with one table file.
pub struct TableFile {
    pub fs: MemoryFs,
    pub path: PathBuf,
    pub summary: TableSummary,
}

pub fn write(
    settings: impl SettingsSource + 'static,
    entries: &[Entry],
    tombstones: &[RangeTombstone],
) -> TableFile {
    let fs = MemoryFs::new();
    fs.create_directory_all(Path::new("/db")).unwrap();
    let path = PathBuf::from("/db/00000007.sst");
    let file = fs.open(&path, OpenMode::CreateNew).unwrap();
    let mut writer = TableWriter::new(file, IDENTITY, Arc::new(settings));
    for tombstone in tombstones {
        writer.add_range_tombstone(tombstone).unwrap();
    }
    for (key, trailer, value) in entries {
        writer.add(key, *trailer, value).unwrap();
    }
    let summary = writer.finish().unwrap();
    TableFile { fs, path, summary }
}

pub fn write_fixed(settings: KeyspaceSettings, entries: &[Entry]) -> TableFile {
    write(Fixed(settings), entries, &[])
}

impl TableFile {
    pub fn bytes(&self) -> Vec<u8> {
        self.fs.contents(&self.path).unwrap()
    }

    pub fn open(&self, cache: &Arc<BlockCache>) -> Result<Arc<Table>> {
        self.open_as(cache, IDENTITY)
    }

    pub fn open_as(&self, cache: &Arc<BlockCache>, identity: u128) -> Result<Arc<Table>> {
        let file = self.fs.open(&self.path, OpenMode::Read)?;
        Table::open(file, 7, self.summary.bytes, Some(identity), Arc::clone(cache))
    }
}

pub fn get(table: &Table, full_key: &[u8], snapshot: Seqno) -> Result<Option<(Trailer, Vec<u8>)>> {
    let found = table.get(full_key, key_hash(full_key), snapshot)?;
    Ok(found.map(|(trailer, value)| (trailer, value.to_vec())))
}

/// What `get` must answer.
pub fn expected_get(entries: &[Entry], full_key: &[u8], snapshot: Seqno) -> Option<(Trailer, Vec<u8>)> {
    let at = entries.partition_point(|(key, trailer, _)| {
        key::compare(key, *trailer, full_key, Trailer::at_snapshot(snapshot)).is_lt()
    });
    entries.get(at).filter(|(key, _, _)| key == full_key).map(|(_, trailer, value)| (*trailer, value.clone()))
}

pub fn current(iterator: &impl InternalIterator) -> Option<Entry> {
    iterator.valid().then(|| (iterator.key().to_vec(), iterator.trailer(), iterator.value().to_vec()))
}

pub fn forward(iterator: &mut impl InternalIterator) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    iterator.seek_to_first()?;
    while let Some(entry) = current(iterator) {
        entries.push(entry);
        iterator.next()?;
    }
    Ok(entries)
}

pub fn backward(iterator: &mut impl InternalIterator) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    iterator.seek_to_last()?;
    while let Some(entry) = current(iterator) {
        entries.push(entry);
        iterator.prev()?;
    }
    entries.reverse();
    Ok(entries)
}
