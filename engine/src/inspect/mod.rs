//! Looking at a database's files from outside: for tools, and for people in trouble.
//!
//! Everything here only reads. It works on a closed database and on single files, damaged ones included.

mod closed;

use std::path::Path;
use std::sync::Arc;

use alluvium_base::fs::OpenMode;
use alluvium_base::key::Kind;
use alluvium_base::sync::WaitStatistics;
use alluvium_base::{Error, Result};

pub use alluvium_compaction::picker::{LevelScores, LevelTargets};
pub use alluvium_compaction::{AcceptedEnd, CatalogChange, FileMeta, ManifestState, Version, VersionEdit};
pub use alluvium_sstable::{
    BlockInfo, BlockKind, KeyspaceProperties, ReadPurpose, Table as TableFile, TableIterator,
    TableProperties, TableSummary, TableVerification, ends_like_a_table,
};
pub use alluvium_wal::{
    DroppedRange, DumpItem, RecordInfo, RecordKind, RecoveryReport, RingInfo, SegmentInfo, SegmentState,
};

pub use crate::manifest::ManifestRecord;
pub use closed::{
    Catalog, LogCheck, check_log, check_table_file, level_scores, read_catalog, read_former_catalog,
};

use crate::batch::Operations;
use crate::db::Db;
use crate::environment::Environment;
use crate::manifest::{self, Current};
use crate::parts::{Joiner, Payload};

/// Blocks of a file that is looked at are kept within this many bytes.
const CACHE_BYTES: usize = 8 << 20;

/// Opens one table file by its path.
///
/// # Errors
/// `Corrupt` or `UnsupportedFormat` if it is no table that this build reads; `Io`.
pub fn open_table_file(environment: &Environment, path: &Path) -> Result<Arc<TableFile>> {
    let file = environment.fs.open(path, OpenMode::Read)?;
    let bytes = file.len()?;
    let options = alluvium_sstable::cache::CacheOptions {
        capacity_bytes: CACHE_BYTES,
        cpus: 1,
        average_entry_bytes: 4096,
    };
    let waits = Arc::new(WaitStatistics::default());
    let cache = alluvium_sstable::BlockCache::new(options, Arc::clone(&environment.clock), waits);
    TableFile::open(file, 0, bytes, None, cache)
}

/// A manifest as it stands in its file.
#[derive(Clone, Debug)]
pub struct ManifestDump {
    /// Identity of the database.
    pub database_id: u128,
    /// Number of the manifest, as in its name.
    pub number: u64,
    /// Bytes of it that are known to be durable.
    pub durable_bytes: u64,
    /// Its edits, in order.
    pub records: Vec<ManifestRecord>,
}

/// Reads the manifest of the database in `directory`.
///
/// # Errors
/// `NotFound` if there is no database; `Corrupt` with file and offset; `UnsupportedFormat`; `Io`.
pub fn read_manifest(environment: &Environment, directory: &Path) -> Result<ManifestDump> {
    let fs = environment.fs.as_ref();
    let current = Current::read(fs, directory)?
        .ok_or_else(|| Error::not_found(format!("database in {}", directory.display())))?;
    let records = manifest::read(fs, directory, &current)?;
    let Current { database_id, number, durable_bytes } = current;
    Ok(ManifestDump { database_id, number, durable_bytes, records })
}

/// Visits the log of the database in `directory`: ring, segments and records, in order.
///
/// # Errors
/// `Io` if files cannot be read; those of `visit`. Damage is visited as [`DumpItem::Problem`], not returned.
pub fn dump_log(
    environment: &Environment,
    directory: &Path,
    visit: &mut dyn FnMut(DumpItem<'_>) -> Result<()>,
) -> Result<()> {
    let database_id = Current::read(environment.fs.as_ref(), directory).ok().flatten().map(|c| c.database_id);
    alluvium_wal::dump(&environment.fs, directory, database_id, visit)
}

/// One operation in a log record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedOperation {
    /// What it does.
    pub kind: Kind,
    /// Full key (for a range delete: its start).
    pub key: Vec<u8>,
    /// Value (for a range delete: its end, a full key).
    pub value: Vec<u8>,
}

/// Understands the payloads of log records, which must be given in order.
#[derive(Debug, Default)]
pub struct LogReader(Joiner);

impl LogReader {
    /// A reader at the start of a log.
    #[must_use]
    pub fn new() -> LogReader {
        LogReader::default()
    }

    /// The operations of a record; `None` if the record is a part of a batch that goes on in a later one.
    ///
    /// # Errors
    /// `InvalidArgument` if the payload is not understood.
    pub fn operations(&mut self, incarnation: u64, payload: &[u8]) -> Result<Option<Vec<LoggedOperation>>> {
        let not_understood = || Error::invalid("the record's payload is not understood");
        let joined;
        let batch = match self.0.take(incarnation, payload) {
            Payload::Whole(batch) => batch,
            Payload::Joined(batch) => {
                joined = batch;
                joined.as_slice()
            }
            Payload::Pending => return Ok(None),
            Payload::Unknown => return Err(not_understood()),
        };
        let mut operations = Operations::of_record(batch);
        let list = operations
            .by_ref()
            .map(|operation| LoggedOperation {
                kind: operation.kind,
                key: operation.key.to_vec(),
                value: operation.value.to_vec(),
            })
            .collect();
        if operations.is_complete() { Ok(Some(list)) } else { Err(not_understood()) }
    }
}

/// A table file's place in the tree.
#[derive(Clone, Debug)]
pub struct PlacedFile {
    /// Its level.
    pub level: u8,
    /// Its sublevel, 0 being the oldest; `None` below level 0.
    pub sublevel: Option<usize>,
    /// What the manifest knows of it.
    pub file: Arc<FileMeta>,
}

/// Every table file of a version, newest data first.
#[must_use]
pub fn placed_files(version: &Version) -> Vec<PlacedFile> {
    let sublevels = version.sublevels().iter().enumerate().rev();
    let level0 = sublevels.flat_map(|(number, run)| {
        let placed = move |file: &Arc<FileMeta>| PlacedFile {
            level: 0,
            sublevel: Some(number),
            file: Arc::clone(file),
        };
        run.files().iter().map(placed)
    });
    let deeper = (1..=alluvium_compaction::BOTTOM_LEVEL).flat_map(|level| {
        let files = version.level(level).files().iter();
        files.map(move |file| PlacedFile { level, sublevel: None, file: Arc::clone(file) })
    });
    level0.chain(deeper).collect()
}

/// What [`Db::verify`] found.
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// Files looked at.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries read; 0 unless `deep`.
    pub entries: u64,
    /// What is wrong, with file and offset. Empty: nothing.
    pub problems: Vec<Error>,
}

impl Db {
    /// Every table file of the tree, newest data first.
    ///
    /// # Errors
    /// `Closed`.
    pub fn files(&self) -> Result<Vec<PlacedFile>> {
        Ok(placed_files(&self.tree()?.read_state.load().version))
    }

    /// Checks every table file: that it is there with its size and can be opened; with `deep`, reads all of it and
    /// checks every block, the order and number of its entries, its filters and the checksum of the whole file. Goes on
    /// after a problem. Indexes are checked by [`Table::check_indexes`](crate::row::Table::check_indexes).
    ///
    /// # Errors
    /// `Closed`. What is wrong with files is in the result.
    pub fn verify(&self, deep: bool) -> Result<Verification> {
        let tree = self.tree()?;
        let mut result = Verification::default();
        for placed in self.files()? {
            let file = &placed.file;
            result.files += 1;
            result.bytes += file.bytes();
            let checked = tree
                .tables
                .get(file)
                .and_then(|table| if deep { table.verify().map(Some) } else { Ok(None) });
            match checked {
                Ok(None) => {}
                Ok(Some(found)) => {
                    result.entries += found.entries;
                    result.problems.extend(differences(&tree.directory, file, &found));
                }
                Err(error) => result.problems.push(error),
            }
        }
        Ok(result)
    }
}

/// How a file differs from what the manifest says of it.
fn differences(directory: &Path, file: &FileMeta, found: &TableVerification) -> Vec<Error> {
    let path = crate::layout::table(directory, file.id);
    let checks = [
        ("size", file.bytes(), found.bytes),
        ("checksum", file.summary.checksum, found.checksum),
        ("number of entries", file.summary.entries, found.entries),
    ];
    checks
        .into_iter()
        .filter(|(_, expected, found)| expected != found)
        .map(|(what, expected, found)| {
            Error::corrupt(&path, 0, format!("its {what} is {found}, but the manifest says {expected}"))
        })
        .collect()
}
