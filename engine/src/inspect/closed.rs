//! A database as its files describe it, without opening it. So this works where opening fails, starts nothing, and finds
//! every problem rather than the first.

use std::path::{Path, PathBuf};

use alluvium_base::key::KeyspaceId;
use alluvium_base::{Error, Result};
use alluvium_compaction::picker::{LevelScores, PickInputs, Scope, scores};
use alluvium_compaction::{FileMeta, ManifestState};
use alluvium_wal::{RecoveryMode, RecoveryReport, recover};

use super::{LogReader, ManifestDump, differences, open_table_file};
use crate::environment::Environment;
use crate::options::Options;
use crate::row::TableDefinition;
use crate::{background, db, layout, manifest, open};

impl ManifestDump {
    /// The manifest's file in `directory`.
    #[must_use]
    pub fn path(&self, directory: &Path) -> PathBuf {
        layout::manifest(directory, self.number)
    }

    /// What all edits together say. `directory` is named in errors.
    ///
    /// # Errors
    /// `Corrupt` if an edit does not fit to those before it.
    pub fn state(&self, directory: &Path) -> Result<ManifestState> {
        manifest::state_of(&self.records, self.database_id, &layout::manifest(directory, self.number))
    }
}

/// What the catalog of a database names.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Tables, by name.
    pub tables: Vec<TableDefinition>,
    /// Keyspaces that are not part of a table, by name.
    pub keyspaces: Vec<(String, KeyspaceId)>,
}

/// Reads the catalog. `manifest` is the file to name in errors ([`ManifestDump::path`]).
///
/// # Errors
/// `Corrupt` or `UnsupportedFormat` if an entry is not understood.
pub fn read_catalog(manifest: &Path, state: &ManifestState) -> Result<Catalog> {
    let mut catalog = Catalog::default();
    for (key, value) in &state.catalog {
        match TableDefinition::of_catalog_entry(key, value, manifest) {
            Some(table) => catalog.tables.push(table?),
            None => catalog.keyspaces.extend(db::keyspace_of_catalog_entry(manifest, key, value)?),
        }
    }
    Ok(catalog)
}

/// Reads what the manifest has ever named, as far back as it goes, dropped tables included; what is not understood is left
/// out. A table that was altered comes once for each version of it. `file` is the manifest's.
#[must_use]
pub fn read_former_catalog(file: &Path, manifest: &ManifestDump) -> Catalog {
    let mut catalog = Catalog::default();
    for change in manifest.records.iter().flat_map(|record| &record.edit.catalog) {
        let Some(value) = &change.value else { continue };
        match TableDefinition::of_catalog_entry(&change.key, value, file) {
            Some(table) => catalog.tables.extend(table.ok()),
            None => {
                let keyspace = db::keyspace_of_catalog_entry(file, &change.key, value);
                catalog.keyspaces.extend(keyspace.ok().flatten());
            }
        }
    }
    catalog
}

/// How full the levels are, by the targets that `options` give: 1 is where a level wants to be compacted.
#[must_use]
pub fn level_scores(state: &ManifestState, options: &Options) -> LevelScores {
    let shape = background::tree_shape(options);
    let dropped: Vec<KeyspaceId> = state.dropped_keyspaces.iter().copied().collect();
    let inputs = PickInputs {
        shape: &shape,
        in_flight: &[],
        oldest_snapshot: None,
        dropped_keyspaces: &dropped,
        covered_files: &[],
        scope: Scope::All,
    };
    scores(&state.version, &inputs)
}

/// Checks one table file that the manifest names: that it is there, is the file that was written, and can be opened; with
/// `deep` everything in it. Returns the number of entries read (0 unless `deep`) and what is wrong.
#[must_use]
pub fn check_table_file(
    environment: &Environment,
    directory: &Path,
    file: &FileMeta,
    deep: bool,
) -> (u64, Vec<Error>) {
    let path = layout::table(directory, file.id);
    let check = || {
        open::check_table(environment.fs.as_ref(), directory, file)?;
        let table = open_table_file(environment, &path)?;
        if table.identity() != file.summary.identity {
            return Err(Error::corrupt(&path, 0, "it is a table, but not the one that the manifest names"));
        }
        if deep { table.verify().map(Some) } else { Ok(None) }
    };
    match check() {
        Ok(None) => (0, Vec::new()),
        Ok(Some(found)) => (found.entries, differences(directory, file, &found)),
        Err(error) => (0, vec![error]),
    }
}

/// What replaying the log would give.
#[derive(Clone, Debug)]
pub struct LogCheck {
    /// What recovery says.
    pub report: RecoveryReport,
    /// Operations in the records that are not in tables yet.
    pub operations: u64,
}

/// Replays the log of the database in `directory` into nothing, as opening it would, without changing a file.
///
/// # Errors
/// `Corrupt` with file and offset for damage that keeps the database from being opened; `Io`.
pub fn check_log(environment: &Environment, directory: &Path, state: &ManifestState) -> Result<LogCheck> {
    let options = open::recovery_options(directory, state, RecoveryMode::TornTailOk, true);
    let mut reader = LogReader::new();
    let mut operations = 0;
    let report = recover(&environment.fs, &options, &mut |record| {
        let found = reader.operations(record.incarnation, record.payload).map_err(|_| {
            Error::corrupt(directory, record.address, "a log record with a valid checksum is not understood")
        })?;
        operations += found.map_or(0, |found| found.len() as u64);
        Ok(())
    })?;
    Ok(LogCheck { report, operations })
}

#[cfg(test)]
mod tests {
    use alluvium_base::ErrorKind;

    use super::*;
    use crate::inspect::{placed_files, read_manifest};
    use crate::row::{Schema, Type, Value};
    use crate::{Db, Durability};

    fn database(directory: &Path) -> u64 {
        let db = Db::open(directory, Options::default()).unwrap();
        let schema = Schema::table("t").column("id", Type::U64).primary_key(["id"]).build().unwrap();
        let table = db.create_table(schema).unwrap();
        let plain = db.keyspace("plain").unwrap();
        let mut batch = db.batch().unwrap();
        batch.insert(&table, &table.row_of([Value::from(1u64)]).unwrap()).unwrap();
        batch.commit(Durability::Sync).unwrap();
        plain.put(b"a", b"1", Durability::Sync).unwrap();
        db.flush().unwrap();
        plain.put(b"b", b"2", Durability::Sync).unwrap();
        // Left as a crash would leave it: the last write is in the log only.
        std::mem::forget(db);
        u64::from(plain.id().0)
    }

    #[test]
    fn a_database_is_described_by_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let (path, environment) = (directory.path(), Environment::system());
        let plain = database(path);
        let manifest = read_manifest(&environment, path).unwrap();
        let state = manifest.state(path).unwrap();
        let catalog = read_catalog(&manifest.path(path), &state).unwrap();
        assert_eq!(catalog.tables.iter().map(|table| table.schema().name()).collect::<Vec<_>>(), ["t"]);
        assert_eq!(catalog.keyspaces, [("plain".to_owned(), KeyspaceId(plain as u32))]);
        assert_eq!(check_log(&environment, path, &state).unwrap().operations, 1);
        let files = placed_files(&state.version);
        assert_eq!(files.len(), 1);
        assert_eq!(check_table_file(&environment, path, &files[0].file, true).0, 2);
        assert!(level_scores(&state, &Options::default()).scores[0] > 0.0);
    }

    #[test]
    fn a_table_file_of_another_database_is_found_out() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let environment = Environment::system();
        database(one.path());
        database(two.path());
        let state = read_manifest(&environment, one.path()).unwrap().state(one.path()).unwrap();
        let files = placed_files(&state.version);
        let name = files[0].file.file_name();
        std::fs::copy(two.path().join(&name), one.path().join(&name)).unwrap();
        let (_, problems) = check_table_file(&environment, one.path(), &files[0].file, false);
        assert!(matches!(problems[0].kind(), ErrorKind::Corrupt { .. }), "{problems:?}");
    }
}
