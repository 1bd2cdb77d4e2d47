//! Repair: a database that cannot be opened, or lacks some of its files, becomes one that works with what is left, and
//! everything that was lost is named.
//!
//! 1. Find the manifest to go by (`manifests.rs`): `CURRENT` may be lost or damaged.
//! 2. Read every table that it names, in full. What is missing or damaged is lost: its key range and what it held are
//!    reported, and the manifest forgets it.
//! 3. Replay the log into nothing. What cannot be read of it is lost, and reported by address.
//!
//! That is the dry run; it changes nothing. To apply it:
//!
//! 4. Keep what is damaged: a second name (of the log, which is written again later, a copy) in a directory
//!    `damaged-N`, durable before anything changes. Nothing is ever deleted that is not kept there.
//! 5. Write a new manifest and switch to it. A crash before leaves the database as it was, one after it a repaired one.
//! 6. Open it, reading the log past its damage; flush what the log gave; make the indexes agree with the rows.
//!
//! *What cannot be repaired*: a manifest that cannot be read as far as `CURRENT` says, or to its end if that is lost.
//! Table files alone do not tell it all: an entry at the bottom has sequence number zero, so that which of two files is
//! newer, and which was replaced by a compaction and only not removed yet, stands in the manifest only. A guess could bring
//! back old values as new ones. See `design/decisions/0012-operators-safety-net.md`.
//!
//! *What else to expect after a loss*: where a lost table held a deletion, what had been deleted may be back.

mod manifests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use alluvium_base::fs::{File, Fs, OpenMode};
use alluvium_base::key::KeyspaceId;
use alluvium_base::{Error, KeyRange, Result};
use alluvium_compaction::{FileMeta, ManifestState, VersionEdit};
use alluvium_wal::{DroppedRange, RecoveryMode, recover};

use crate::environment::Environment;
use crate::inspect::{check_log, check_table_file, read_catalog};
use crate::manifest::Manifest;
use crate::new_directory::create_durably;
use crate::options::{Durability, Options};
use crate::row::IndexRebuild;
use crate::{Db, layout, open};
use manifests::Base;

/// How long closing the repaired database may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(600);
/// Files are copied in pieces of this size, in bytes.
const COPY_BYTES: usize = 256 << 10;

/// A table that is lost.
#[derive(Clone, Debug)]
pub struct LostTable {
    /// The file.
    pub file: PathBuf,
    /// Its level.
    pub level: u8,
    /// The full keys that it covered. Whatever else the database has of them is still there, and may be older.
    pub range: KeyRange,
    /// Point entries in it, versions and tombstones included.
    pub entries: u64,
    /// The same by keyspace, with names as far as the catalog has them.
    pub holds: Vec<(String, u64)>,
    /// Why it cannot be used.
    pub error: Error,
}

/// What [`repair`] has found, and done.
#[derive(Clone, Debug)]
pub struct RepairReport {
    /// Number of the manifest that was gone by.
    pub manifest: u64,
    /// Why `CURRENT` could not be used; `None` if it is sound.
    pub current_problem: Option<Error>,
    /// Tables that were read in full and are sound.
    pub sound_tables: u64,
    /// Tables that are lost.
    pub lost_tables: Vec<LostTable>,
    /// Records of the log that were read.
    pub log_records: u64,
    /// Addresses of the log that are lost. A torn tail, which was never acknowledged as durable, is not among them.
    pub lost_log: Vec<DroppedRange>,
    /// Damage of the log, including such that cost nothing.
    pub log_problems: Vec<Error>,
    /// What was done; `None` in a dry run, and if there is nothing to repair.
    pub applied: Option<Applied>,
}

/// What a repair has done.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The directory in which everything damaged is kept.
    pub kept_in: PathBuf,
    /// The files kept there, by their names in the database.
    pub kept: Vec<String>,
    /// For every table of rows: what was put right in its indexes.
    pub indexes: Vec<(String, IndexRebuild)>,
}

impl RepairReport {
    /// True if there is something to repair.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.current_problem.is_some() || !self.lost_tables.is_empty() || self.log_is_damaged()
    }

    /// True if something is lost for good.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        !self.lost_tables.is_empty() || !self.lost_log.is_empty()
    }

    fn log_is_damaged(&self) -> bool {
        !self.lost_log.is_empty() || !self.log_problems.is_empty()
    }
}

/// Finds out what is damaged in the database in `directory`, which nobody may have open, and with `apply` makes it a
/// working database without that. `options` are those to open it with; its recovery mode does not matter.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// use alluvium::{Db, Durability, Environment, Options};
/// let db = Db::open(directory.path(), Options::default())?;
/// db.keyspace("events")?.put(b"1", b"one", Durability::Sync)?;
/// drop(db);
/// std::fs::remove_file(directory.path().join("CURRENT")).unwrap();
/// assert!(Db::open(directory.path(), Options::default()).is_err());
/// let report = alluvium::repair::repair(Environment::system(), directory.path(), &Options::default(), true)?;
/// assert!(report.is_needed() && !report.is_loss());
/// let db = Db::open(directory.path(), Options::default())?;
/// assert_eq!(db.keyspace("events")?.get(b"1")?.as_deref(), Some(b"one".as_slice()));
/// # Ok::<(), alluvium::Error>(())
/// ```
///
/// # Errors
/// `Corrupt` if the manifest is damaged itself: then nothing was changed. `NotFound` if there is no database;
/// `InUse`; those of the file system.
pub fn repair(
    environment: Environment,
    directory: impl AsRef<Path>,
    options: &Options,
    apply: bool,
) -> Result<RepairReport> {
    let directory = directory.as_ref();
    let fs = Arc::clone(&environment.fs);
    // A dry run changes nothing, not even the lock file.
    let lock = if apply { Some(fs.lock(&layout::lock(directory))?) } else { None };
    let Base { state, number, current_problem, next_number } = manifests::find(fs.as_ref(), directory)?;
    let (lost_tables, sound_tables) = check_tables(&environment, directory, &state)?;
    let mut report = RepairReport {
        manifest: number,
        current_problem,
        sound_tables,
        lost_tables,
        log_records: 0,
        lost_log: Vec::new(),
        log_problems: Vec::new(),
        applied: None,
    };
    check_log_into(&environment, directory, &state, &mut report)?;
    if !apply || !report.is_needed() {
        return Ok(report);
    }
    let (kept_in, kept) = keep_damaged(fs.as_ref(), directory, &report)?;
    let mut after = state.clone();
    let removed = report.lost_tables.iter().filter_map(|lost| Some((lost.level, id_of(&lost.file)?)));
    after.apply(&VersionEdit { removed: removed.collect(), ..VersionEdit::default() })?;
    drop(Manifest::create(&fs, directory, after.database_id, next_number, &after.to_edit())?);
    drop(lock);
    let indexes = reopen(environment, directory, options)?;
    report.applied = Some(Applied { kept_in, kept, indexes });
    Ok(report)
}

fn id_of(path: &Path) -> Option<u64> {
    layout::parse_table(path.file_name()?.to_str()?)
}

/// Reads every table; returns those that are lost, and how many are sound.
fn check_tables(
    environment: &Environment,
    directory: &Path,
    state: &ManifestState,
) -> Result<(Vec<LostTable>, u64)> {
    let names = keyspace_names(directory, state)?;
    let (mut lost, mut sound) = (Vec::new(), 0);
    for (level, file) in state.version.files() {
        match check_table_file(environment, directory, file, true).1.into_iter().next() {
            None => sound += 1,
            Some(error) => lost.push(lost_table(directory, level, file, &names, error)),
        }
    }
    Ok((lost, sound))
}

fn lost_table(
    directory: &Path,
    level: u8,
    file: &FileMeta,
    names: &BTreeMap<KeyspaceId, String>,
    error: Error,
) -> LostTable {
    let holds = file.summary.keyspaces.iter().map(|found| {
        let unnamed = || format!("keyspace {}", found.keyspace.0);
        (names.get(&found.keyspace).cloned().unwrap_or_else(unnamed), found.entries)
    });
    LostTable {
        file: layout::table(directory, file.id),
        level,
        range: file.range().clone(),
        entries: file.summary.entries,
        holds: holds.collect(),
        error,
    }
}

fn keyspace_names(directory: &Path, state: &ManifestState) -> Result<BTreeMap<KeyspaceId, String>> {
    let catalog = read_catalog(directory, state)?;
    let mut names: BTreeMap<KeyspaceId, String> =
        catalog.keyspaces.into_iter().map(|(name, id)| (id, format!("keyspace {name}"))).collect();
    for table in &catalog.tables {
        let name = table.schema().name();
        names.insert(table.primary_keyspace(), format!("rows of {name}"));
        for (number, index) in table.schema().indexes().iter().enumerate() {
            if let Some(keyspace) = table.index_keyspace(number) {
                names.insert(keyspace, format!("index {} of {name}", index.name()));
            }
        }
    }
    Ok(names)
}

/// Replays the log into nothing and notes what is lost of it.
fn check_log_into(
    environment: &Environment,
    directory: &Path,
    state: &ManifestState,
    report: &mut RepairReport,
) -> Result<()> {
    match check_log(environment, directory, state) {
        Ok(found) => {
            report.log_records = found.report.records;
            report.log_problems = found.report.problems;
            return Ok(());
        }
        Err(error) if !error.is_corrupt() => return Err(error),
        Err(_) => {}
    }
    let options = open::recovery_options(directory, state, RecoveryMode::Salvage, true);
    let found = recover(&environment.fs, &options, &mut |_| Ok(()))?;
    report.log_records = found.records;
    report.lost_log = found.dropped;
    report.log_problems = found.problems;
    Ok(())
}

/// Gives everything that is damaged, or will be replaced, a place of its own.
fn keep_damaged(fs: &dyn Fs, directory: &Path, report: &RepairReport) -> Result<(PathBuf, Vec<String>)> {
    let entries = fs.list_directory(directory)?;
    let free = (1..).map(|number| format!("damaged-{number}"));
    let name = free.into_iter().find(|name| entries.iter().all(|entry| entry.name != *name));
    let kept_in = directory.join(name.unwrap_or_default());
    create_durably(fs, &kept_in)?;
    let lost: Vec<u64> = report.lost_tables.iter().filter_map(|lost| id_of(&lost.file)).collect();
    let mut kept = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.is_directory) {
        let name = entry.name.as_str();
        let (from, to) = (directory.join(name), kept_in.join(name));
        let is_log = name == "ring" || name.ends_with(".log");
        // Written in place later: a second name would follow. CURRENT is small, and the log must be kept as it is.
        let copied = name == "CURRENT" || (is_log && report.log_is_damaged());
        let linked = layout::parse_manifest(name).is_some()
            || layout::parse_table(name).is_some_and(|id| lost.contains(&id));
        if copied || (linked && fs.hard_link(&from, &to).is_err()) {
            copy(fs.open(&from, OpenMode::Read)?.as_ref(), fs.open(&to, OpenMode::CreateNew)?.as_ref())?;
        }
        if copied || linked {
            kept.push(name.to_owned());
        }
    }
    fs.sync_directory(&kept_in)?;
    Ok((kept_in, kept))
}

fn copy(from: &dyn File, to: &dyn File) -> Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    loop {
        let got = from.read_at(&mut buffer, offset)?;
        if got == 0 {
            return to.sync_data();
        }
        to.write_at(buffer.get(..got).unwrap_or_default(), offset)?;
        offset += got as u64;
    }
}

/// Opens the repaired database past the damage of its log, puts what the log gave into tables and its indexes right.
fn reopen(
    environment: Environment,
    directory: &Path,
    options: &Options,
) -> Result<Vec<(String, IndexRebuild)>> {
    let options =
        Options { recovery_mode: RecoveryMode::Salvage, create_if_missing: false, ..options.clone() };
    let db = Db::open_in(environment, directory, options)?;
    // Moves the log's replay start past the damage.
    db.flush()?;
    let mut indexes = Vec::new();
    for name in db.tables()? {
        let rebuilt = db.table(&name)?.rebuild_indexes(Durability::Buffered)?;
        indexes.push((name, rebuilt));
    }
    db.flush()?;
    db.close(CLOSE_TIMEOUT)?;
    Ok(indexes)
}
