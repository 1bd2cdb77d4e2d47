//! Rebuilding indexes from their rows, entry by entry, while the table is in use.
//!
//! 1. Stream each index at a snapshot; an entry that its row should not have (or that has no row) is a suspect.
//! 2. Stream the rows; an entry that a row should have and that is not there, or holds something else, is another.
//! 3. For each suspect: take the latches that a commit of that row would take, look again at what is there *now*, and
//!    put it right in one batch.
//!
//! So nothing is removed that is right, a reader never meets an empty index, and writers may go on: what they change
//! between the snapshot and the second look is seen by the second look.
//!
//! Entries are removed by plain deletes, not by delete-once: what is damaged need not have one put per entry, as
//! delete-once asks for. An entry that is put right is deleted first, which cuts it off from whatever lies below it.

use alluvium_base::checksum::key_hash;
use alluvium_base::key::KeyspaceId;
use alluvium_base::{Error, Result};

use super::index_codec::IndexCodec;
use super::key_decoder::DecodedKey;
use super::latches::LatchClass;
use super::record::Row;
use super::store::{Store, StoreBatch, StoreIter};
use super::table::{Table, TableCore};

/// What [`Table::rebuild_indexes`] has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexRebuild {
    /// Entries that were removed: no row should have them.
    pub removed: u64,
    /// Entries that were written: they were missing, or held something else.
    pub written: u64,
    /// Rows whose entry in a unique index belongs to another row too; that one keeps it.
    pub conflicts: u64,
    /// Rows that cannot be read, so that their entries are unknown; entries that name them are left alone.
    pub damaged_rows: u64,
}

impl<S: Store, R: Row> Table<S, R> {
    /// Puts every index right: removes entries that no row should have, and writes those that are missing. Does nothing
    /// to an index that agrees with the rows. Writers may go on meanwhile.
    ///
    /// # Errors
    /// Those of the store; what was put right until then stays so.
    pub fn rebuild_indexes(&self, durability: S::Durability) -> Result<IndexRebuild> {
        let mut rebuild = Rebuild { core: &self.core, durability, done: IndexRebuild::default() };
        let codec = &self.core.codec;
        for (index, keyspace) in codec.indexes.iter().zip(self.core.definition.keyspaces().skip(1)) {
            rebuild.remove_wrong_entries(index, keyspace)?;
        }
        // After all removals, so that a wrong entry does not stand in the way of the right one in a unique index.
        rebuild.write_missing_entries()?;
        Ok(rebuild.done)
    }
}

struct Rebuild<'a, S: Store> {
    core: &'a TableCore<S>,
    durability: S::Durability,
    done: IndexRebuild,
}

/// What an entry is, looked at from its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    Wrong,
    /// The row is there but cannot be read.
    Unknown,
}

impl<S: Store> Rebuild<'_, S> {
    fn remove_wrong_entries(&mut self, index: &IndexCodec, keyspace: KeyspaceId) -> Result<()> {
        let snapshot = self.core.store.snapshot()?;
        let mut iter = self.core.store.scan(&snapshot, keyspace, &[], None)?;
        while iter.next()? {
            if self.judge(Some(&snapshot), index, iter.key(), iter.value())? == Verdict::Wrong {
                self.remove_if_wrong(index, keyspace, iter.key(), iter.value())?;
            }
        }
        Ok(())
    }

    /// What an entry is at a snapshot, or now.
    fn judge(
        &self,
        at: Option<&S::Snapshot>,
        index: &IndexCodec,
        key: &[u8],
        value: &[u8],
    ) -> Result<Verdict> {
        let core = self.core;
        let Ok(entry) = index.split(&core.codec, key, value) else { return Ok(Verdict::Wrong) };
        let Some(row) = core.store.get(at, core.definition.primary_keyspace(), entry.primary_key)? else {
            return Ok(Verdict::Wrong);
        };
        match self.entry_of(index, entry.primary_key, &row) {
            Ok((right_key, right_value)) if right_key == key && right_value == value => Ok(Verdict::Right),
            Ok(_) => Ok(Verdict::Wrong),
            Err(error) if error.is_corrupt() => Ok(Verdict::Unknown),
            Err(error) => Err(error),
        }
    }

    /// The entry that a row should have.
    fn entry_of(&self, index: &IndexCodec, primary_key: &[u8], row: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
        let codec = &self.core.codec;
        let mut decoded = DecodedKey::default();
        codec.decode_primary_key(primary_key, &mut decoded)?;
        let view = codec.view(&decoded, row)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        index.encode(codec, &view, primary_key, &mut key, &mut value)?;
        Ok((key, value))
    }

    fn remove_if_wrong(
        &mut self,
        index: &IndexCodec,
        keyspace: KeyspaceId,
        key: &[u8],
        suspect: &[u8],
    ) -> Result<()> {
        let core = self.core;
        let primary_key = index.split(&core.codec, key, suspect).map(|entry| entry.primary_key.to_vec());
        let row_hash = primary_key.ok().map(|primary_key| self.row_hash(&primary_key));
        let _row = core.store.latches().acquire(LatchClass::Primary, row_hash);
        let _entry = core.store.latches().acquire(LatchClass::Unique, [key_hash(&keyspace.full_key(key))]);
        // An entry with another value was written since, by a commit that knows its row.
        let now = core.store.get(None, keyspace, key)?;
        if now.is_none_or(|now| *now != *suspect) || self.judge(None, index, key, suspect)? != Verdict::Wrong
        {
            return Ok(());
        }
        let mut batch = S::Batch::default();
        batch.delete(keyspace, key)?;
        core.store.apply(&batch, self.durability)?;
        self.done.removed += 1;
        Ok(())
    }

    fn row_hash(&self, primary_key: &[u8]) -> u64 {
        key_hash(&self.core.definition.primary_keyspace().full_key(primary_key))
    }

    fn write_missing_entries(&mut self) -> Result<()> {
        let core = self.core;
        let snapshot = core.store.snapshot()?;
        let mut iter = core.store.scan(&snapshot, core.definition.primary_keyspace(), &[], None)?;
        while iter.next()? {
            let mut damaged = false;
            for (index, keyspace) in core.codec.indexes.iter().zip(core.definition.keyspaces().skip(1)) {
                match self.entry_of(index, iter.key(), iter.value()) {
                    Ok((key, value)) => {
                        let found = core.store.get(Some(&snapshot), keyspace, &key)?;
                        if found.is_none_or(|found| *found != *value) {
                            self.write_if_missing(index, keyspace, iter.key())?;
                        }
                    }
                    Err(error) if error.is_corrupt() => damaged = true,
                    Err(error) => return Err(error),
                }
            }
            self.done.damaged_rows += u64::from(damaged);
        }
        Ok(())
    }

    fn write_if_missing(
        &mut self,
        index: &IndexCodec,
        keyspace: KeyspaceId,
        primary_key: &[u8],
    ) -> Result<()> {
        let core = self.core;
        let _row = core.store.latches().acquire(LatchClass::Primary, [self.row_hash(primary_key)]);
        let row = core.store.get(None, core.definition.primary_keyspace(), primary_key)?;
        let Some(row) = row else { return Ok(()) };
        let (key, value) = self.entry_of(index, primary_key, &row)?;
        let _entry = core.store.latches().acquire(LatchClass::Unique, [key_hash(&keyspace.full_key(&key))]);
        if let Some(found) = core.store.get(None, keyspace, &key)? {
            if *found == *value {
                return Ok(());
            }
            let owner = index.split(&core.codec, &key, &found).map_err(|error: Error| {
                error.context("an index entry was damaged while indexes were being rebuilt")
            })?;
            if owner.primary_key != primary_key {
                self.done.conflicts += 1;
                return Ok(());
            }
        }
        let mut batch = S::Batch::default();
        batch.delete(keyspace, &key)?;
        batch.put(keyspace, &key, &value)?;
        core.store.apply(&batch, self.durability)?;
        self.done.written += 1;
        Ok(())
    }
}
