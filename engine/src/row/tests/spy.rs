//! A [`MapStore`] that counts what it is asked for and fails when told to.

use std::sync::Arc;

use alluvium_base::key::{KeyspaceId, Kind};
use alluvium_base::sync::Mutex;
use alluvium_base::{Error, Result};

use super::*;

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Keyspaces of the gets since the last [`SpyStore::forget`].
    pub(super) gets: Vec<KeyspaceId>,
    /// Kind and keyspace of the operations applied since then.
    pub(super) applied: Vec<(Kind, KeyspaceId)>,
    /// Fail after so many more steps of any cursor.
    pub(super) fail_after_steps: Option<usize>,
    /// Fail the next apply.
    pub(super) fail_apply: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SpyStore {
    inner: MapStore,
    seen: Arc<Mutex<Seen>>,
}

impl SpyStore {
    pub(super) fn forget(&self) {
        *self.seen.lock() = Seen::default();
    }

    pub(super) fn tell(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock());
    }

    pub(super) fn gets(&self) -> Vec<KeyspaceId> {
        self.seen.lock().gets.clone()
    }

    pub(super) fn applied(&self) -> Vec<(Kind, KeyspaceId)> {
        self.seen.lock().applied.clone()
    }
}

#[derive(Debug, Default)]
pub(super) struct SpyBatch {
    inner: MapBatch,
    operations: Vec<(Kind, KeyspaceId)>,
}

impl StoreBatch for SpyBatch {
    fn put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> Result<()> {
        self.operations.push((Kind::Put, keyspace));
        self.inner.put(keyspace, key, value)
    }

    fn delete(&mut self, keyspace: KeyspaceId, key: &[u8]) -> Result<()> {
        self.operations.push((Kind::Delete, keyspace));
        self.inner.delete(keyspace, key)
    }

    fn delete_once(&mut self, keyspace: KeyspaceId, key: &[u8]) -> Result<()> {
        self.operations.push((Kind::DeleteOnce, keyspace));
        self.inner.delete_once(keyspace, key)
    }
}

#[derive(Debug)]
pub(super) struct SpyIter {
    inner: MapIter,
    seen: Arc<Mutex<Seen>>,
}

impl SpyIter {
    fn step(&mut self) -> Result<()> {
        match &mut self.seen.lock().fail_after_steps {
            Some(0) => Err(Error::corrupt("000007.sst", 4096, "told to fail")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl StoreIter for SpyIter {
    fn next(&mut self) -> Result<bool> {
        self.step()?;
        self.inner.next()
    }

    fn prev(&mut self) -> Result<bool> {
        self.step()?;
        self.inner.prev()
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    fn value(&self) -> &[u8] {
        self.inner.value()
    }
}

impl Store for SpyStore {
    type Value = MapValue;
    type Snapshot = MapSnapshot;
    type Iter = SpyIter;
    type Batch = SpyBatch;
    type Durability = ();
    type Ticket = ();

    fn snapshot(&self) -> Result<MapSnapshot> {
        self.inner.snapshot()
    }

    fn get(&self, at: Option<&MapSnapshot>, keyspace: KeyspaceId, key: &[u8]) -> Result<Option<MapValue>> {
        self.seen.lock().gets.push(keyspace);
        self.inner.get(at, keyspace, key)
    }

    fn scan(
        &self,
        at: &MapSnapshot,
        keyspace: KeyspaceId,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<SpyIter> {
        assert!(end.is_none_or(|end| start <= end), "an inverted range reached the store");
        Ok(SpyIter { inner: self.inner.scan(at, keyspace, start, end)?, seen: Arc::clone(&self.seen) })
    }

    fn admit(&self, bytes: u64) -> Result<()> {
        self.inner.admit(bytes)
    }

    fn apply(&self, batch: &SpyBatch, durability: ()) -> Result<()> {
        let mut seen = self.seen.lock();
        if std::mem::take(&mut seen.fail_apply) {
            return Err(Error::corrupt("log", 0, "told to fail"));
        }
        seen.applied.extend(&batch.operations);
        self.inner.apply(&batch.inner, durability)
    }

    fn apply_if(&self, batch: &SpyBatch, premise: &Premise<MapSnapshot>, durability: ()) -> Result<()> {
        self.check(premise)?;
        self.apply(batch, durability)
    }

    fn check(&self, premise: &Premise<MapSnapshot>) -> Result<()> {
        self.inner.check(premise)
    }

    fn wait(&self, ticket: ()) -> Result<()> {
        self.inner.wait(ticket)
    }

    fn latches(&self) -> &Latches {
        self.inner.latches()
    }

    fn catalog_file(&self) -> std::path::PathBuf {
        self.inner.catalog_file()
    }

    fn catalog_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.catalog_get(key)
    }

    fn catalog_list(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.inner.catalog_list(prefix)
    }

    fn catalog_change(&self, change: &CatalogChange) -> Result<()> {
        self.inner.catalog_change(change)
    }

    fn allocate_keyspaces(&self, count: u32) -> Result<KeyspaceId> {
        self.inner.allocate_keyspaces(count)
    }
}
