//! The database handle.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use alluvium_base::coding::{Reader, put_varint};
use alluvium_base::key::KeyspaceId;
use alluvium_base::{Error, ErrorKind, Result};
use alluvium_compaction::{CatalogChange, VersionEdit};

use crate::batch::RawBatch;
use crate::commit::CommitTicket;
use crate::environment::Environment;
use crate::keyspace::{Keyspace, Snapshot, WriteBatch};
use crate::options::{Durability, Options};
use crate::statistics::Statistics;
use crate::tree::Tree;

/// Longest that dropping the last handle waits for background work to end.
const DROP_TIMEOUT: Duration = Duration::from_secs(30);
/// Catalog entries of keyspaces begin with this byte; those of tables with another (see `row::catalog`).
const CATALOG_KEYSPACE: u8 = b'k';
/// Longest name of a keyspace, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// An open database. Cheap to clone, shared by all threads; the last clone that goes closes it.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// use alluvium::{Db, Durability, Options, WriteBatch};
/// let db = Db::open(directory.path(), Options::default())?;
/// let accounts = db.keyspace("accounts")?;
/// let mut batch = WriteBatch::new();
/// batch.put(&accounts, b"ada", b"90")?;
/// batch.put(&accounts, b"bob", b"110")?;
/// db.write(&batch, Durability::Sync)?;
/// let before = db.snapshot()?;
/// accounts.delete(b"ada", Durability::Sync)?;
/// assert!(accounts.get(b"ada")?.is_none());
/// assert_eq!(accounts.get_at(&before, b"ada")?.as_deref(), Some(b"90".as_slice()));
/// # Ok::<(), alluvium::Error>(())
/// ```
#[derive(Clone)]
pub struct Db(Arc<Handle>);

/// Closes the database when the last handle goes.
struct Handle {
    tree: Arc<Tree>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nobody is left to hear of an error; what was acknowledged is in the log.
        let _ = self.tree.close(DROP_TIMEOUT);
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.0.tree.directory.display())
    }
}

impl Db {
    /// Opens the database in `directory`, creating it if [`Options::create_if_missing`].
    ///
    /// # Errors
    /// `InUse` if another process (or another handle in this one) has it open for writing; `NotFound`; `Corrupt`, naming
    /// file and offset; `UnsupportedFormat`; `InvalidArgument` for an unusable option; `Io`, `DiskFull`.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_in(Environment::system(), directory, options)
    }

    /// Opens a database in an environment of its own: another file system, a simulated clock.
    ///
    /// # Errors
    /// As [`open`](Db::open).
    pub fn open_in(environment: Environment, directory: impl AsRef<Path>, options: Options) -> Result<Db> {
        let directory = directory.as_ref();
        let opening = || format!("opening the database in {}", directory.display());
        let tree =
            crate::open::open(environment, directory, options).map_err(|error| error.context(opening()))?;
        Ok(Db(Arc::new(Handle { tree })))
    }

    /// Opens the database in `directory` for reading, also beside a process that writes: starts no thread, and writes
    /// nothing but a small *lease* file, by which the writer knows what it must not remove. The handle shows the state of
    /// this moment, what only the log has included, until it is [refreshed](Db::refresh); while it is open (and while
    /// iterators and snapshots of it are held) the tables of that state stay on disk.
    ///
    /// What the log holds is read into memory, however much that is: up to the memtables of the writer.
    ///
    /// Where no lease can be had (a read-only medium, a directory that this process may not write to, a full disk;
    /// [`has_lease`](Db::has_lease) tells) it opens all the same, but with a weaker promise: beside a process that
    /// writes, files may then vanish, and a read answers `Io` of kind `NotFound`; open or refresh again.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// use alluvium::{Db, Durability, Options};
    /// let writer = Db::open(directory.path(), Options::default())?;
    /// let events = writer.keyspace("events")?;
    /// events.put(b"a", b"1", Durability::Buffered)?;
    /// let reader = Db::open_read_only(directory.path(), Options::default())?; // usually another process
    /// let seen = reader.keyspace("events")?;
    /// assert_eq!(seen.get(b"a")?.as_deref(), Some(b"1".as_slice()));
    /// events.put(b"a", b"2", Durability::Buffered)?;
    /// assert_eq!(seen.get(b"a")?.as_deref(), Some(b"1".as_slice()));
    /// reader.refresh()?;
    /// assert_eq!(seen.get(b"a")?.as_deref(), Some(b"2".as_slice()));
    /// # Ok::<(), alluvium::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`open`](Db::open), without `InUse`.
    pub fn open_read_only(directory: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_read_only_in(Environment::system(), directory, options)
    }

    /// [`open_read_only`](Db::open_read_only) in an environment of its own.
    ///
    /// # Errors
    /// As [`open_read_only`](Db::open_read_only).
    pub fn open_read_only_in(
        environment: Environment,
        directory: impl AsRef<Path>,
        options: Options,
    ) -> Result<Db> {
        let directory = directory.as_ref();
        let opening = || format!("opening the database in {} for reading", directory.display());
        let tree = crate::read_only::open_read_only(environment, directory, options)
            .map_err(|error| error.context(opening()))?;
        Ok(Db(Arc::new(Handle { tree })))
    }

    /// The tree, unless the database has been closed.
    pub(crate) fn tree(&self) -> Result<&Arc<Tree>> {
        self.0.tree.check_open()?;
        Ok(&self.0.tree)
    }

    /// The latches of rows; usable even after closing, since a commit may still hold one.
    pub(crate) fn row_latches(&self) -> &crate::row::Latches {
        &self.0.tree.latches
    }

    /// Opens the keyspace `name`, creating it if it does not exist.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty name or one of more than 255 bytes; `NotFound` if it does not exist and the
    /// database is read-only; those of writing the manifest.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        check_name(name)?;
        let tree = self.tree()?;
        let mut versions = tree.versions.lock();
        let key = catalog_key(name);
        let id = match versions.durable.catalog.get(&key) {
            Some(value) => decode_keyspace(&tree.catalog_file(&versions), name, value)?,
            None if versions.manifest.is_none() => return Err(Error::not_found(format!("keyspace {name}"))),
            None => {
                let (change, id) = new_keyspace(tree, key);
                let edit = VersionEdit { catalog: vec![change], ..VersionEdit::default() };
                tree.install_locked(&mut versions, &edit, None)?;
                id
            }
        };
        Ok(Keyspace { db: self.clone(), id, name: name.into() })
    }

    /// The catalog entry of a keyspace that does not exist yet, and its id.
    pub(crate) fn new_keyspace(&self, name: &str) -> Result<(CatalogChange, KeyspaceId)> {
        check_name(name)?;
        let tree = self.tree()?;
        let key = catalog_key(name);
        if tree.versions.lock().durable.catalog.contains_key(&key) {
            return Err(ErrorKind::AlreadyExists { what: format!("keyspace {name}") }.into());
        }
        Ok(new_keyspace(tree, key))
    }

    /// Names of the keyspaces that [`keyspace`](Db::keyspace) has created, sorted.
    ///
    /// # Errors
    /// `Closed`.
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        let versions = self.tree()?.versions.lock();
        let names = versions.durable.catalog.keys().filter(|key| key.first() == Some(&CATALOG_KEYSPACE));
        Ok(names.map(|key| String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned()).collect())
    }

    /// Drops a keyspace: its data is gone at once for new readers, and its space comes back in the background.
    ///
    /// # Errors
    /// `NotFound`; those of writing the manifest.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let tree = self.tree()?;
        let mut versions = tree.versions.lock();
        let key = catalog_key(name);
        let Some(value) = versions.durable.catalog.get(&key) else {
            return Err(Error::not_found(format!("keyspace {name}")));
        };
        let id = decode_keyspace(&tree.catalog_file(&versions), name, value)?;
        let edit = VersionEdit {
            catalog: vec![CatalogChange { key, value: None }],
            dropped_keyspaces: vec![id],
            ..VersionEdit::default()
        };
        tree.install_locked(&mut versions, &edit, None)?;
        drop(versions);
        tree.executor.wake();
        Ok(())
    }

    /// Writes a batch: all of it or nothing. Visible to every reader that starts after this returns, and as durable as
    /// asked for.
    ///
    /// # Errors
    /// `DiskFull` or `Io` if the log has no room: nothing has happened. `DurabilityUnknown`: it is visible, but may or may
    /// not survive a crash. `InvalidArgument` if the batch's keyspaces belong to another database. `ReadOnly`, `Closed`.
    pub fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        let tree = self.tree()?;
        if batch.database_id.is_some_and(|id| id != tree.database_id) {
            return Err(Error::invalid("the batch's keyspaces belong to another database"));
        }
        tree.commit(&batch.raw, durability)
    }

    /// Makes every commit so far durable.
    ///
    /// # Errors
    /// `DurabilityUnknown`, `ReadOnly`, `Closed`.
    pub fn sync(&self) -> Result<()> {
        let tree = self.tree()?;
        let log = tree.log("sync")?;
        log.sync(log.end_address())
    }

    /// A fixed view of everything that is visible now.
    ///
    /// # Errors
    /// `Closed`.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot(Arc::new(self.tree()?.take_snapshot())))
    }

    /// Writes the memtable to a table and waits for it.
    ///
    /// # Errors
    /// Those of the flush (it is retried by itself afterwards); `ReadOnly`, `Closed`.
    pub fn flush(&self) -> Result<()> {
        self.tree()?.flush_and_wait()
    }

    /// Compacts everything, or a keyspace, down to its last level, and waits for it.
    ///
    /// # Errors
    /// Those of the jobs; `ReadOnly`, `Closed`.
    pub fn compact(&self, keyspace: Option<&Keyspace>) -> Result<()> {
        let range = keyspace.map(|keyspace| crate::iter::bounds_in(keyspace.id, &[], None));
        self.tree()?.compact_range(range)
    }

    /// Waits until no flush and no compaction has anything to do.
    ///
    /// # Errors
    /// The last failure of background work; `Closed`.
    pub fn wait_until_settled(&self) -> Result<()> {
        self.tree()?.wait_until_settled()
    }

    /// What the engine knows about itself right now.
    ///
    /// # Errors
    /// `Closed`.
    pub fn statistics(&self) -> Result<Statistics> {
        Ok(self.tree()?.statistics())
    }

    /// Moves a handle that was opened for reading on to the newest state: everything that was committed (or, where the
    /// log's ring cannot be mapped, drained) before this call. Reads go on meanwhile; iterators and snapshots keep
    /// showing what they showed, and what they keep on disk is given free by the first refresh after they are dropped.
    /// A handle that writes is always at the newest state: nothing happens.
    ///
    /// It reads the manifest and the log from the last flush on.
    ///
    /// # Errors
    /// Those of [`open_read_only`](Db::open_read_only); the handle then stays at the state that it was at. `Closed`.
    pub fn refresh(&self) -> Result<()> {
        crate::read_only::advance(self.tree()?)
            .map_err(|error| error.context(format!("refreshing {}", self.directory().display())))
    }

    /// True if this handle was opened for reading and holds a lease, so that a process that writes removes nothing that
    /// it may read. See [`open_read_only`](Db::open_read_only).
    #[must_use]
    pub fn has_lease(&self) -> bool {
        self.0.tree.reader.as_ref().is_some_and(|reader| reader.lock().has_lease())
    }

    /// The directory of the database.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0.tree.directory
    }

    /// The options it was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.tree.options
    }

    /// Closes the database: refuses new work, flushes the memtable, ends background work, syncs the log and releases the
    /// directory's lock. Iterators and other handles that live on answer `Closed`. Does nothing if it is closed already.
    ///
    /// # Errors
    /// `Cancelled` if background work has not ended within `timeout`; the lock is released all the same, since that work
    /// is only a flush or compaction whose result is then not used. Those of syncing the log.
    pub fn close(&self, timeout: Duration) -> Result<()> {
        self.0.tree.close(timeout)
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a keyspace's name has 1 to {NAME_BYTES_MAX} bytes, not {}",
            name.len()
        )));
    }
    Ok(())
}

fn new_keyspace(tree: &Tree, key: Vec<u8>) -> (CatalogChange, KeyspaceId) {
    let id = tree.next_keyspace_id.fetch_add(1, Ordering::Relaxed);
    let mut value = vec![1];
    put_varint(&mut value, u64::from(id));
    (CatalogChange { key, value: Some(value) }, KeyspaceId(id))
}

fn catalog_key(name: &str) -> Vec<u8> {
    let mut key = vec![CATALOG_KEYSPACE];
    key.extend_from_slice(name.as_bytes());
    key
}

/// The name and id of a keyspace, if the catalog entry is one of a keyspace. `file` is named in errors.
pub(crate) fn keyspace_of_catalog_entry(
    file: &Path,
    key: &[u8],
    value: &[u8],
) -> Result<Option<(String, KeyspaceId)>> {
    let Some((&CATALOG_KEYSPACE, name)) = key.split_first() else { return Ok(None) };
    let name = String::from_utf8_lossy(name).into_owned();
    let id = decode_keyspace(file, &name, value)?;
    Ok(Some((name, id)))
}

fn decode_keyspace(file: &Path, name: &str, value: &[u8]) -> Result<KeyspaceId> {
    let mut reader = Reader::new(value);
    let version = reader.u8();
    let id = reader.varint().and_then(|id| u32::try_from(id).ok());
    match (version, id) {
        (Some(1), Some(id)) => Ok(KeyspaceId(id)),
        (Some(found), _) if found > 1 => {
            let (file, found) = (file.to_owned(), u32::from(found));
            let newer = Error::from(ErrorKind::UnsupportedFormat { file, found, supported: 1 });
            Err(newer.context(format!("reading the catalog entry of keyspace {name}")))
        }
        _ => Err(Error::corrupt(file, 0, format!("the catalog entry of keyspace {name} is not understood"))),
    }
}

impl Tree {
    /// Applies a batch and waits for its durability.
    pub(crate) fn commit(&self, batch: &RawBatch, durability: Durability) -> Result<()> {
        self.check_open()?;
        self.admit(batch.bytes().len() as u64)?;
        let ticket: CommitTicket = self.apply(batch, durability)?;
        self.wait_durable(&ticket)
    }

    /// Freezes the memtable and waits until it is in tables.
    pub(crate) fn flush_and_wait(&self) -> Result<()> {
        self.rotate_if(|_| true)?;
        let last = self.read_state.load().immutables.last().cloned();
        let Some(last) = last else { return Ok(()) };
        self.executor.wake();
        let mut state = self.state.lock();
        let failures = self.counters.background_failures.get();
        self.progress.wait_while(&mut state, |state| {
            let waiting =
                self.read_state.load().immutables.iter().any(|immutable| Arc::ptr_eq(immutable, &last));
            let failed = self.counters.background_failures.get() > failures && !state.failures.is_empty();
            waiting && !failed && !self.closed.load(Ordering::Acquire)
        });
        let flushed =
            !self.read_state.load().immutables.iter().any(|immutable| Arc::ptr_eq(immutable, &last));
        match state.background_error() {
            Some(failure) if !flushed => {
                Err(failure.error.clone().context(format!("{} failed", failure.job)))
            }
            _ if flushed => Ok(()),
            _ => Err(ErrorKind::Closed.into()),
        }
    }

    /// Ends everything. See [`Db::close`].
    pub(crate) fn close(&self, timeout: Duration) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let start = self.environment.clock.monotonic_nanos();
        // Flushed now, so that the next open has no log to replay. If that fails, the log still has everything.
        if self.log.get().is_some() && self.state.lock().failures.is_empty() {
            let _ = self.flush_within(timeout / 2);
        }
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.progress.notify_all();
        self.executor.wake();
        let spent = Duration::from_nanos(self.environment.clock.monotonic_nanos().saturating_sub(start));
        let stopped = self.executor.stop(timeout.saturating_sub(spent));
        // Commits that were under way when admission stopped are in the log before it is closed.
        drop(self.gate.write());
        let closed = self.log.get().map_or(Ok(()), alluvium_wal::Log::close);
        drop(self.lock.lock().take());
        if let Some(reader) = &self.reader {
            reader.lock().release();
        }
        stopped.and(closed)
    }

    fn flush_within(&self, timeout: Duration) -> Result<()> {
        self.rotate_if(|_| true)?;
        self.executor.wake();
        let mut state = self.state.lock();
        self.progress.wait_while_for(
            &mut state,
            |state| !self.read_state.load().immutables.is_empty() && state.failures.is_empty(),
            timeout,
        );
        Ok(())
    }
}
