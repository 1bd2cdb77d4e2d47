//! Bulk load: sorted entries become tables of the bottom level, and all of them appear with one edit of the manifest.
//!
//! The entries belong to keyspaces that nobody else knows yet, so they need no sequence numbers, no log and no
//! memtable: every byte is written once. Until the edit is durable a crash leaves the database as it was; the files are
//! then removed at the next open.

use std::sync::Arc;

use alluvium_base::fs::{File, OpenMode};
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{KeyspaceId, Kind, Trailer, user_key};
use alluvium_base::{Error, Result};
use alluvium_compaction::{BOTTOM_LEVEL, CatalogChange, FileMeta, VersionEdit};
use alluvium_sstable::{Fixed, ReadPurpose, TableSplitter, TableWriter};

use crate::db::Db;
use crate::layout;
use crate::row::{RowEncoder, Schema, TableDefinition};
use crate::tree::Tree;

/// Sees one entry: its key, without the keyspace, and its value.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// A table of rows that is being loaded. Nothing of it is visible before [`finish`](BulkLoad::finish); dropping it
/// removes what was written.
///
/// Target 0 is the primary index, targets 1 and up are the secondary indexes in the order of the schema.
#[derive(Debug)]
pub struct BulkLoad {
    db: Db,
    definition: TableDefinition,
    encoder: RowEncoder,
}

impl BulkLoad {
    pub(crate) fn new(db: &Db, schema: Schema) -> Result<BulkLoad> {
        let tree = db.tree()?;
        tree.log("load a table")?;
        let definition = TableDefinition::allocate(db, schema)?;
        let key = definition.creation().key;
        if tree.versions.lock().durable.catalog.contains_key(&key) {
            return Err(alluvium_base::ErrorKind::AlreadyExists {
                what: format!("table {}", definition.schema().name()),
            }
            .into());
        }
        let encoder = RowEncoder::new(Arc::clone(definition.schema()));
        Ok(BulkLoad { db: db.clone(), definition, encoder })
    }

    /// Encodes rows and index entries.
    #[must_use]
    pub fn encoder(&self) -> &RowEncoder {
        &self.encoder
    }

    /// Number of targets: one more than there are secondary indexes.
    #[must_use]
    pub fn targets(&self) -> usize {
        self.definition.keyspaces().count()
    }

    /// A writer of one target's entries. Writers of different targets may run on different threads.
    ///
    /// # Errors
    /// `NotFound` if there is no such target; `Closed`.
    pub fn writer(&self, target: usize) -> Result<BulkWriter> {
        let keyspace = self.definition.keyspaces().nth(target);
        let keyspace = keyspace.ok_or_else(|| Error::not_found(format!("target {target} of the load")))?;
        Ok(BulkWriter::new(self.db.tree()?, keyspace))
    }

    /// Visits the entries of a finished target, read back from its files.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if they cannot be read; those of `visit`.
    pub fn read_back(&self, written: &BulkWritten, visit: Visit<'_>) -> Result<()> {
        let tree = self.db.tree()?;
        for file in &written.files {
            let mut entries = tree.tables.get(file)?.iter(ReadPurpose::Verify);
            entries.seek_to_first()?;
            while entries.valid() {
                visit(user_key(entries.key()), entries.value())?;
                entries.next()?;
            }
        }
        Ok(())
    }

    /// Makes the table and all of its indexes visible and durable, in one step.
    ///
    /// # Errors
    /// `InvalidArgument` if a target is missing or comes twice; `AlreadyExists` if a table of this name was created
    /// meanwhile; those of writing the manifest. Nothing of the table is visible then.
    pub fn finish(self, mut written: Vec<BulkWritten>) -> Result<()> {
        let expected: Vec<KeyspaceId> = self.definition.keyspaces().collect();
        let mut found: Vec<KeyspaceId> = written.iter().map(|target| target.keyspace).collect();
        found.sort_unstable();
        if found != expected {
            return Err(Error::invalid(format!(
                "{} of {} targets were written",
                found.len(),
                expected.len()
            )));
        }
        let creation = self.definition.creation();
        let change = CatalogChange { key: creation.key, value: creation.value };
        install(self.db.tree()?, change, &mut written).map_err(|error| {
            error.context(format!("finishing the load of table {}", self.definition.schema().name()))
        })
    }
}

/// Writes the entries of one keyspace, which come in ascending order of their keys.
pub struct BulkWriter {
    tree: Arc<Tree>,
    keyspace: KeyspaceId,
    splitter: TableSplitter,
    current: Option<(u64, Arc<dyn File>, TableWriter)>,
    last_key: Vec<u8>,
    next_key: Vec<u8>,
    written: BulkWritten,
}

impl std::fmt::Debug for BulkWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkWriter").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}

/// The files of one keyspace, complete and durable but not part of the database yet.
pub struct BulkWritten {
    tree: Arc<Tree>,
    keyspace: KeyspaceId,
    files: Vec<Arc<FileMeta>>,
    entries: u64,
    /// They are in the manifest (or may be), so dropping this must not remove them.
    installed: bool,
}

impl std::fmt::Debug for BulkWritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkWritten")
            .field("files", &self.files.len())
            .field("entries", &self.entries)
            .finish()
    }
}

impl BulkWritten {
    /// Number of entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Size of the files, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes()).sum()
    }

    /// Number of files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }
}

impl Drop for BulkWritten {
    fn drop(&mut self) {
        if !self.installed {
            for file in &self.files {
                remove(&self.tree, file.id);
            }
        }
    }
}

/// A file that cannot be removed now is removed at the next open.
fn remove(tree: &Tree, id: u64) {
    let _ = tree.remove_table(id);
}

impl BulkWriter {
    fn new(tree: &Arc<Tree>, keyspace: KeyspaceId) -> BulkWriter {
        let written =
            BulkWritten { tree: Arc::clone(tree), keyspace, files: Vec::new(), entries: 0, installed: false };
        BulkWriter {
            tree: Arc::clone(tree),
            keyspace,
            splitter: TableSplitter::new(tree.options.table_bytes),
            current: None,
            last_key: Vec::new(),
            next_key: Vec::new(),
            written,
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `InvalidArgument` if the key is not greater than the last one; `KeyTooLong`, `ValueTooLong`; those of writing.
    pub fn add(&mut self, user_key: &[u8], value: &[u8]) -> Result<()> {
        self.tree.check_open()?;
        crate::batch::check_entry(self.keyspace, user_key, value)?;
        self.next_key.clear();
        self.keyspace.write_full_key(user_key, &mut self.next_key);
        if !self.last_key.is_empty() && self.next_key <= self.last_key {
            return Err(Error::invalid(format!(
                "entries of a bulk load must come in ascending order, but key {} follows {}",
                crate::iter::hex(user_key),
                crate::iter::hex(alluvium_base::key::user_key(&self.last_key))
            )));
        }
        let table_bytes = self.current.as_ref().map_or(0, |(_, _, writer)| writer.estimated_bytes());
        if self.current.is_some() && self.splitter.cut_before(&self.last_key, &self.next_key, table_bytes) {
            self.finish_table()?;
        }
        let writer = match &mut self.current {
            Some((_, _, writer)) => writer,
            None => {
                let id = self.tree.new_file_id();
                let path = layout::table(&self.tree.directory, id);
                let file = self.tree.environment.fs.open(&path, OpenMode::CreateNew)?;
                let settings = Arc::new(Fixed(self.tree.options.keyspace_settings()));
                let writer = TableWriter::new(Arc::clone(&file), self.tree.new_identity(), settings);
                &mut self.current.insert((id, file, writer)).2
            }
        };
        writer.add(&self.next_key, Trailer::new(0, Kind::Put), value)?;
        self.written.entries += 1;
        std::mem::swap(&mut self.last_key, &mut self.next_key);
        Ok(())
    }

    fn finish_table(&mut self) -> Result<()> {
        let Some((id, file, writer)) = self.current.take() else { return Ok(()) };
        let finished = writer.finish().and_then(|summary| file.sync_data().map(|()| summary));
        let summary = match finished {
            Ok(summary) => summary,
            Err(error) => {
                remove(&self.tree, id);
                return Err(error);
            }
        };
        let created_micros = self.tree.environment.clock.wall_micros();
        self.tree.counters.ingested_bytes.add(summary.bytes);
        self.written.files.push(Arc::new(FileMeta {
            id,
            summary,
            order: 0,
            old_versions: 0,
            created_micros,
        }));
        Ok(())
    }

    /// Ends the target: its files are complete and durable.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> Result<BulkWritten> {
        self.finish_table()?;
        let tree = Arc::clone(&self.tree);
        let empty =
            BulkWritten { tree, keyspace: self.keyspace, files: Vec::new(), entries: 0, installed: false };
        Ok(std::mem::replace(&mut self.written, empty))
    }
}

impl Drop for BulkWriter {
    fn drop(&mut self) {
        if let Some((id, _, _)) = self.current.take() {
            remove(&self.tree, id);
        }
    }
}

/// Makes loaded keyspaces part of the database, together with the catalog entry that names them.
fn install(tree: &Arc<Tree>, change: CatalogChange, written: &mut [BulkWritten]) -> Result<()> {
    // The names of the files must be durable before the manifest names them.
    tree.environment.fs.sync_directory(&tree.directory)?;
    let mut versions = tree.versions.lock();
    if versions.durable.catalog.contains_key(&change.key) {
        let name = String::from_utf8_lossy(change.key.get(1..).unwrap_or_default()).into_owned();
        return Err(alluvium_base::ErrorKind::AlreadyExists { what: name }.into());
    }
    let version = versions.durable.version.clone();
    let claims = tree.state.lock().claims.clone();
    let mut edit = VersionEdit { catalog: vec![change], ..VersionEdit::default() };
    for file in written.iter().flat_map(|target| &target.files) {
        // The deepest level that has nothing there and is about to get nothing there. Nobody has older data of these
        // keyspaces, so any level is right; only a file of neighbours on both sides, or one in the making, can be in
        // the way.
        let free = (1..=BOTTOM_LEVEL).rev().find(|&level| {
            let taken = !version.level(level).overlapping(file.range()).is_empty();
            let claimed =
                claims.iter().any(|claim| claim.output_level == level && claim.range.overlaps(file.range()));
            !taken && !claimed
        });
        edit.add(free.unwrap_or(0), Arc::clone(file));
    }
    let installed = tree.install_locked(&mut versions, &edit, None);
    // After a failure to write the manifest the files must stay: it may name them after a crash.
    written.iter_mut().for_each(|target| target.installed = true);
    installed
}

impl Db {
    /// Begins to load a new table from sorted entries. See [`BulkLoad`].
    ///
    /// # Errors
    /// `AlreadyExists` if there is a table of this name; `ReadOnly`, `Closed`.
    pub fn bulk_load(&self, schema: Schema) -> Result<BulkLoad> {
        BulkLoad::new(self, schema)
    }

    /// Loads a new keyspace from entries in ascending order of their keys; `next` fills in the next entry and returns
    /// false at the end. Returns the number of entries.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # use alluvium::{Db, Options};
    /// # let db = Db::open(directory.path(), Options::default())?;
    /// let mut numbers = 0..100u8;
    /// let loaded = db.bulk_load_keyspace("squares", &mut |key, value| {
    ///     let Some(n) = numbers.next() else { return false };
    ///     *key = vec![n];
    ///     *value = (u32::from(n) * u32::from(n)).to_be_bytes().to_vec();
    ///     true
    /// })?;
    /// assert_eq!(loaded, 100);
    /// assert_eq!(db.keyspace("squares")?.get(&[9])?.as_deref(), Some([0, 0, 0, 81].as_slice()));
    /// # Ok::<(), alluvium::Error>(())
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` if there is a keyspace of this name; `InvalidArgument` if the entries are not in order;
    /// `ReadOnly`, `Closed`; those of writing. The database is then as it was.
    pub fn bulk_load_keyspace(
        &self,
        name: &str,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
    ) -> Result<u64> {
        let tree = self.tree()?;
        tree.log("load a keyspace")?;
        let (change, id) = self.new_keyspace(name)?;
        let mut writer = BulkWriter::new(tree, id);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while next(&mut key, &mut value) {
            writer.add(&key, &value)?;
        }
        let written = writer.finish()?;
        let entries = written.entries;
        install(tree, change, &mut [written])?;
        Ok(entries)
    }
}
