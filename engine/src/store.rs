//! The tree as the row layer sees it: [`Store`] for [`Db`].

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use alluvium_base::key::{KeyspaceId, Kind};
use alluvium_base::{ErrorKind, Result};
use alluvium_compaction::{CatalogChange as CatalogEntry, VersionEdit};

use crate::batch::RawBatch;
use crate::commit::CommitTicket;
use crate::db::Db;
use crate::iter::{Iter, bounds_in};
use crate::keyspace::Snapshot;
use crate::options::Durability;
use crate::read_state::PinnedValue;
use crate::row::{CatalogChange, Latches, Premise, Store, StoreBatch, StoreIter};

impl Store for Db {
    type Value = PinnedValue;
    type Snapshot = Snapshot;
    type Iter = Iter;
    type Batch = RawBatch;
    type Durability = Durability;
    type Ticket = CommitTicket;

    fn snapshot(&self) -> Result<Snapshot> {
        Db::snapshot(self)
    }

    fn get(&self, at: Option<&Snapshot>, keyspace: KeyspaceId, key: &[u8]) -> Result<Option<PinnedValue>> {
        self.tree()?.get(keyspace, key, at)
    }

    fn scan(&self, at: &Snapshot, keyspace: KeyspaceId, start: &[u8], end: Option<&[u8]>) -> Result<Iter> {
        self.tree()?.iter(bounds_in(keyspace, start, end), Some(at))
    }

    fn admit(&self, bytes: u64) -> Result<()> {
        let tree = self.tree()?;
        tree.log("write")?;
        tree.admit(bytes)
    }

    fn apply(&self, batch: &RawBatch, durability: Durability) -> Result<CommitTicket> {
        self.tree()?.apply(batch, durability)
    }

    fn apply_if(
        &self,
        batch: &RawBatch,
        premise: &Premise<Snapshot>,
        durability: Durability,
    ) -> Result<CommitTicket> {
        self.tree()?.apply_if(batch, premise, durability)
    }

    fn check(&self, premise: &Premise<Snapshot>) -> Result<()> {
        self.tree()?.check_premise(premise)
    }

    fn wait(&self, ticket: CommitTicket) -> Result<()> {
        self.tree()?.wait_durable(&ticket)
    }

    fn latches(&self) -> &Latches {
        self.row_latches()
    }

    fn catalog_file(&self) -> PathBuf {
        let file = self.tree().map(|tree| tree.catalog_file(&tree.versions.lock()));
        file.unwrap_or_else(|_| PathBuf::from("catalog"))
    }

    fn catalog_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.tree()?.versions.lock().durable.catalog.get(key).cloned())
    }

    fn catalog_list(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let versions = self.tree()?.versions.lock();
        let entries = versions.durable.catalog.range(prefix.to_vec()..);
        let of_prefix = entries.take_while(|(key, _)| key.starts_with(prefix));
        Ok(of_prefix.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn catalog_change(&self, change: &CatalogChange) -> Result<()> {
        let tree = self.tree()?;
        let mut versions = tree.versions.lock();
        if versions.durable.catalog.get(&change.key) != change.expected.as_ref() {
            let what = "a table's definition".to_owned();
            return Err(ErrorKind::Conflict { what }.into());
        }
        let edit = VersionEdit {
            catalog: vec![CatalogEntry { key: change.key.clone(), value: change.value.clone() }],
            dropped_keyspaces: change.dropped.clone(),
            ..VersionEdit::default()
        };
        tree.install_locked(&mut versions, &edit, None)
    }

    fn allocate_keyspaces(&self, count: u32) -> Result<KeyspaceId> {
        // Made durable by the edit that names them; until then nothing is written under them.
        Ok(KeyspaceId(self.tree()?.next_keyspace_id.fetch_add(count, Ordering::Relaxed)))
    }
}

impl StoreBatch for RawBatch {
    fn put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(Kind::Put, keyspace, key, value)
    }

    fn delete(&mut self, keyspace: KeyspaceId, key: &[u8]) -> Result<()> {
        self.add(Kind::Delete, keyspace, key, &[])
    }

    fn delete_once(&mut self, keyspace: KeyspaceId, key: &[u8]) -> Result<()> {
        self.add(Kind::DeleteOnce, keyspace, key, &[])
    }
}

impl StoreIter for Iter {
    fn next(&mut self) -> Result<bool> {
        Iter::next(self)
    }

    fn prev(&mut self) -> Result<bool> {
        Iter::prev(self)
    }

    fn key(&self) -> &[u8] {
        Iter::key(self)
    }

    fn value(&self) -> &[u8] {
        Iter::value(self)
    }
}
