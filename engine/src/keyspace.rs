//! Keyspaces: named, ordered maps from bytes to bytes inside one database.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use alluvium_base::key::{KeyspaceId, Kind, prefix_end};
use alluvium_base::{Error, Result};

use crate::batch::RawBatch;
use crate::db::Db;
use crate::iter::{Iter, bounds_in};
use crate::options::Durability;
use crate::read_state::PinnedValue;
use crate::snapshot::SnapshotGuard;

/// A fixed view of the whole database: what was visible when it was taken.
///
/// Cheap to take and to clone. While it lives, compaction keeps the old versions that it sees; the age of the oldest
/// snapshot is in the statistics.
#[derive(Clone, Debug)]
pub struct Snapshot(pub(crate) Arc<SnapshotGuard>);

impl Snapshot {
    /// The sequence number that it stands for: commits up to it are seen.
    #[must_use]
    pub fn seqno(&self) -> u64 {
        self.0.seqno()
    }
}

/// A named ordered map inside a database. Get one from [`Db::keyspace`].
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// use alluvium::{Db, Durability, Options};
/// let db = Db::open(directory.path(), Options::default())?;
/// let events = db.keyspace("events")?;
/// events.put(b"2026-11-30", b"first light", Durability::Sync)?;
/// assert_eq!(events.get(b"2026-11-30")?.as_deref(), Some(b"first light".as_slice()));
/// # Ok::<(), alluvium::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Keyspace {
    pub(crate) db: Db,
    pub(crate) id: KeyspaceId,
    pub(crate) name: Arc<str>,
}

impl Keyspace {
    /// Its number, which is never used for another keyspace.
    #[must_use]
    pub fn id(&self) -> KeyspaceId {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The newest value of `key`, pinned rather than copied; `None` if there is none.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a table that may hold the key can't be read; `Closed`.
    pub fn get(&self, key: &[u8]) -> Result<Option<PinnedValue>> {
        self.db.tree()?.get(self.id, key, None)
    }

    /// The value of `key` at `snapshot`.
    ///
    /// # Errors
    /// As [`get`](Keyspace::get).
    pub fn get_at(&self, snapshot: &Snapshot, key: &[u8]) -> Result<Option<PinnedValue>> {
        self.db.tree()?.get(self.id, key, Some(snapshot))
    }

    /// The newest value of `key`, copied.
    ///
    /// # Errors
    /// As [`get`](Keyspace::get).
    pub fn get_owned(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get(key)?.map(|value| value.to_vec()))
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`, or those of [`Db::write`].
    pub fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.write_one(|batch| batch.add(Kind::Put, self.id, key, value), durability)
    }

    /// Removes `key`; does nothing if it is not there.
    ///
    /// # Errors
    /// `KeyTooLong`, or those of [`Db::write`].
    pub fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.write_one(|batch| batch.add(Kind::Delete, self.id, key, &[]), durability)
    }

    /// Removes every key in `range`, at once and at the cost of one entry.
    ///
    /// # Errors
    /// `KeyTooLong`, or those of [`Db::write`].
    pub fn delete_range<'a>(&self, range: impl RangeBounds<&'a [u8]>, durability: Durability) -> Result<()> {
        let (start, end) = half_open(&range);
        self.write_one(|batch| batch.delete_range(self.id, &start, end.as_deref()), durability)
    }

    /// Iterates over all keys, at a snapshot taken now.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a table can't be opened; `Closed`.
    pub fn iter(&self) -> Result<Iter> {
        self.range::<&[u8]>(..)
    }

    /// Iterates over the keys in `range`, at a snapshot taken now.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # use alluvium::{Db, Durability, Options};
    /// # let db = Db::open(directory.path(), Options::default())?;
    /// # let numbers = db.keyspace("numbers")?;
    /// for key in [b"1", b"2", b"3"] {
    ///     numbers.put(key, b"", Durability::Buffered)?;
    /// }
    /// let mut iter = numbers.range(b"1".as_slice()..b"3")?;
    /// let mut seen = Vec::new();
    /// while iter.prev()? {
    ///     seen.push(iter.key().to_vec());
    /// }
    /// assert_eq!(seen, [b"2", b"1"]);
    /// # Ok::<(), alluvium::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`iter`](Keyspace::iter).
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        let (start, end) = half_open(&range);
        self.db.tree()?.iter(bounds_in(self.id, &start, end.as_deref()), None)
    }

    /// Iterates over the keys in `range` at `snapshot`.
    ///
    /// # Errors
    /// As [`iter`](Keyspace::iter).
    pub fn range_at<K: AsRef<[u8]>>(&self, snapshot: &Snapshot, range: impl RangeBounds<K>) -> Result<Iter> {
        let (start, end) = half_open(&range);
        self.db.tree()?.iter(bounds_in(self.id, &start, end.as_deref()), Some(snapshot))
    }

    /// Iterates over the keys that begin with `prefix`, at a snapshot taken now.
    ///
    /// # Errors
    /// As [`iter`](Keyspace::iter).
    pub fn prefix(&self, prefix: &[u8]) -> Result<Iter> {
        let end = prefix_end(prefix);
        self.db.tree()?.iter(bounds_in(self.id, prefix, end.as_deref()), None)
    }

    fn write_one(&self, add: impl FnOnce(&mut RawBatch) -> Result<()>, durability: Durability) -> Result<()> {
        let mut batch = RawBatch::default();
        add(&mut batch).map_err(|error| error.context(format!("writing to keyspace {}", self.name)))?;
        self.db.tree()?.commit(&batch, durability)
    }
}

/// Operations on keyspaces that happen together or not at all. See [`Db::write`].
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    pub(crate) raw: RawBatch,
    /// The database that the keyspaces belong to.
    pub(crate) database_id: Option<u128>,
}

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`; the batch is then as it was.
    pub fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.belongs(keyspace)?;
        self.raw.add(Kind::Put, keyspace.id, key, value)
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// `KeyTooLong`; the batch is then as it was.
    pub fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.belongs(keyspace)?;
        self.raw.add(Kind::Delete, keyspace.id, key, &[])
    }

    /// Removes every key in `range` that earlier commits and earlier operations of this batch have put.
    ///
    /// # Errors
    /// `KeyTooLong`; the batch is then as it was.
    pub fn delete_range<'a>(&mut self, keyspace: &Keyspace, range: impl RangeBounds<&'a [u8]>) -> Result<()> {
        self.belongs(keyspace)?;
        let (start, end) = half_open(&range);
        self.raw.delete_range(keyspace.id, &start, end.as_deref())
    }

    /// Number of operations.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.raw.operations()
    }

    /// True if there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Removes all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.raw.clear();
    }

    fn belongs(&mut self, keyspace: &Keyspace) -> Result<()> {
        let id = keyspace.db.tree()?.database_id;
        if *self.database_id.get_or_insert(id) != id {
            return Err(Error::invalid(format!(
                "keyspace {} belongs to another database than the batch",
                keyspace.name
            )));
        }
        Ok(())
    }
}

/// `range` as an inclusive start and an exclusive end (`None` = unbounded).
pub(crate) fn half_open<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> (Vec<u8>, Option<Vec<u8>>) {
    let after = |key: &[u8]| {
        let mut next = key.to_vec();
        next.push(0);
        next
    };
    let start = match range.start_bound() {
        Bound::Included(key) => key.as_ref().to_vec(),
        Bound::Excluded(key) => after(key.as_ref()),
        Bound::Unbounded => Vec::new(),
    };
    let end = match range.end_bound() {
        Bound::Included(key) => Some(after(key.as_ref())),
        Bound::Excluded(key) => Some(key.as_ref().to_vec()),
        Bound::Unbounded => None,
    };
    (start, end)
}
