//! Conditional commits: a batch is applied only if what its transaction relies on has not been written since.
//!
//! 1. **Examine**, with no lock held and with all the I/O that it takes: is there a version of one of the keys, or of
//!    any key of one of the ranges, that is newer than the transaction's snapshot? The places are asked newest first;
//!    memtables and table files that hold nothing newer than the snapshot are not touched, which is nearly all of them.
//! 2. **Gate**, taken alone: commits of every kind hold it shared from the log until they are visible, so now nobody is
//!    in between. Nothing has become visible since step 1 began? Then its answer stands.
//! 3. **Examine again**, else, only the memtables that could grow since: the one that was active in step 1 and those
//!    after it. No I/O. If that memtable has been flushed meanwhile, begin anew.
//! 4. **Append, apply, publish** as any commit does, and let the gate go.
//!
//! So a transaction is ordered against *every* write (rows, plain keyspaces, range deletes, other transactions), and
//! writes that are not conditional pay nothing for it.
//!
//! *The newest version of a key tells whether it was written* because compaction, while a snapshot is held, neither
//! zeroes the sequence number of a newer version nor drops a newer tombstone (`compaction::drop_rules`). Only pairs of
//! a put and a delete-once vanish without a trace: index entries, of which transactions rely on ranges alone, and
//! there the range is as it was.

use std::sync::Arc;

use alluvium_base::checksum::key_hash;
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{Seqno, Trailer, user_key};
use alluvium_base::limits::SEQNO_MAX;
use alluvium_base::range_tombstone::FragmentedTombstones;
use alluvium_base::{Error, ErrorKind, KeyRange, Result};
use alluvium_compaction::Run;
use alluvium_compaction::iterate::{LevelIterator, TableOpener};
use alluvium_sstable::ReadPurpose;

use crate::batch::RawBatch;
use crate::commit::CommitTicket;
use crate::iter::bounds_in;
use crate::keyspace::Snapshot;
use crate::memtable::Memtable;
use crate::options::Durability;
use crate::read::memtables_newest_first;
use crate::read_state::ReadState;
use crate::row::{Premise, ReadRange};
use crate::tree::Tree;

/// What step 1 saw.
struct Examined {
    state: Arc<ReadState>,
    /// Everything up to here was in `state`.
    visible: Seqno,
}

impl Tree {
    /// Applies an admitted batch if `premise` holds. Otherwise as [`Tree::apply`].
    ///
    /// # Errors
    /// `Conflict` if the premise does not hold; as [`Tree::apply`]. The batch has not happened then.
    pub(crate) fn apply_if(
        &self,
        batch: &RawBatch,
        premise: &Premise<Snapshot>,
        durability: Durability,
    ) -> Result<CommitTicket> {
        let result = self.try_apply_if(batch, premise, durability);
        if result.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::Conflict { .. })) {
            self.counters.conflicts.increment();
        }
        result
    }

    fn try_apply_if(
        &self,
        batch: &RawBatch,
        premise: &Premise<Snapshot>,
        durability: Durability,
    ) -> Result<CommitTicket> {
        let log = self.check_writable(batch)?;
        loop {
            let examined = self.examine(premise)?;
            let gate = self.gate.write();
            if gate.memory_bytes() >= self.memory.memtable_bytes {
                drop(gate);
                self.make_room()?;
                continue;
            }
            if !self.examine_again(&examined, premise)? {
                continue;
            }
            let end = self.write_through(&gate, log, batch)?;
            drop(gate);
            return Ok(self.finish_commit(log, batch, end, durability));
        }
    }

    /// Says whether `premise` holds at this moment.
    ///
    /// # Errors
    /// `Conflict` if it does not; those of reading.
    pub(crate) fn check_premise(&self, premise: &Premise<Snapshot>) -> Result<()> {
        self.examine(premise).map(|_| ())
    }

    /// Step 1.
    fn examine(&self, premise: &Premise<Snapshot>) -> Result<Examined> {
        // In this order: what is visible is then in the state.
        let visible = self.snapshots.visible();
        let state = self.read_state.load_full();
        let since = premise.since.seqno();
        for (keyspace, key) in &premise.keys {
            self.check_not_dropped(*keyspace)?;
            if self.key_written_since(&state, &keyspace.full_key(key), since)? {
                return Err(premise.broken(*keyspace, key));
            }
        }
        for range in premise.ranges.iter().filter(|range| !range.is_empty()) {
            self.check_not_dropped(range.keyspace)?;
            let bounds = bounds_of(range);
            for memtable in memtables_since(&state, since) {
                check_range(premise, range, written_in(memtable, &bounds, since))?;
            }
            check_range(premise, range, self.written_in_tables(&state, &bounds, since)?)?;
        }
        Ok(Examined { state, visible })
    }

    /// Steps 2 and 3, under the gate. False if step 1 must be done again.
    fn examine_again(&self, examined: &Examined, premise: &Premise<Snapshot>) -> Result<bool> {
        // The gate is held alone, so whatever has been applied is visible.
        if self.snapshots.visible() == examined.visible {
            return Ok(true);
        }
        let state = self.read_state.load();
        let mut memtables: Vec<&Arc<Memtable>> = Vec::new();
        for memtable in memtables_newest_first(&state) {
            memtables.push(memtable);
            if Arc::ptr_eq(memtable, &examined.state.active) {
                break;
            }
        }
        if memtables.last().is_none_or(|oldest| !Arc::ptr_eq(oldest, &examined.state.active)) {
            return Ok(false);
        }
        let since = premise.since.seqno();
        for (keyspace, key) in &premise.keys {
            let full_key = keyspace.full_key(key);
            let hash = key_hash(&full_key);
            let newest = |memtable: &&Arc<Memtable>| newest_in(memtable, &full_key, hash) > since;
            if memtables.iter().any(newest) {
                return Err(premise.broken(*keyspace, key));
            }
        }
        for range in premise.ranges.iter().filter(|range| !range.is_empty()) {
            let bounds = bounds_of(range);
            for memtable in &memtables {
                check_range(premise, range, written_in(memtable, &bounds, since))?;
            }
        }
        Ok(true)
    }

    /// True if some place has a version of `full_key`, or a range tombstone over it, that is newer than `since`.
    fn key_written_since(&self, state: &ReadState, full_key: &[u8], since: Seqno) -> Result<bool> {
        let hash = key_hash(full_key);
        if memtables_since(state, since).any(|memtable| newest_in(memtable, full_key, hash) > since) {
            return Ok(true);
        }
        for (_, run) in state.version.runs_newest_first() {
            let Some(file) = run.file_of(full_key).filter(|file| file.summary.seqno_max > since) else {
                continue;
            };
            let table = self.tables.get(file)?;
            let newest = table.get(full_key, hash, SEQNO_MAX)?.map_or(0, |(trailer, _)| trailer.seqno());
            let covering = match file.summary.range_tombstones {
                0 => 0,
                _ => table.range_tombstones().newest_covering(full_key, SEQNO_MAX).unwrap_or(0),
            };
            if newest.max(covering) > since {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A key in `bounds` of which a table file has a version that is newer than `since`.
    fn written_in_tables(
        &self,
        state: &ReadState,
        bounds: &KeyRange,
        since: Seqno,
    ) -> Result<Option<Vec<u8>>> {
        for (_, run) in state.version.runs_newest_first() {
            let newer = run.overlapping(bounds).iter().filter(|file| file.summary.seqno_max > since);
            for file in newer {
                if file.summary.range_tombstones > 0
                    && let Some(key) = tombstone_in(self.tables.get(file)?.range_tombstones(), bounds, since)
                {
                    return Ok(Some(key));
                }
                let run = Run::new(vec![Arc::clone(file)]).map_err(|e| Error::invalid(e.to_string()))?;
                let opener = Arc::clone(&self.tables) as Arc<dyn TableOpener>;
                let entries =
                    LevelIterator::over_tables(Arc::new(run), Some(bounds), opener, ReadPurpose::Scan);
                if let Some(key) = newer_entry(entries, bounds, since)? {
                    return Ok(Some(key));
                }
            }
        }
        Ok(None)
    }
}

fn bounds_of(range: &ReadRange) -> KeyRange {
    bounds_in(range.keyspace, &range.start, range.end.as_deref())
}

/// The conflict of a range in which the full key `written` has been written.
fn check_range(premise: &Premise<Snapshot>, range: &ReadRange, written: Option<Vec<u8>>) -> Result<()> {
    written.map_or(Ok(()), |full_key| Err(premise.broken(range.keyspace, user_key(&full_key))))
}

/// The memtables that may hold something newer than `since`.
fn memtables_since(state: &ReadState, since: Seqno) -> impl Iterator<Item = &Arc<Memtable>> {
    let frozen = state.immutables.iter().rev().take_while(move |immutable| immutable.newest > since);
    std::iter::once(&state.active).chain(frozen.map(|immutable| &immutable.memtable))
}

/// The newest sequence number that the memtable has for a key, 0 if it has none.
fn newest_in(memtable: &Memtable, full_key: &[u8], hash: u64) -> Seqno {
    let newest = memtable.get(full_key, hash, SEQNO_MAX).map_or(0, |(trailer, _)| trailer.seqno());
    newest.max(memtable.newest_tombstone_covering(full_key, SEQNO_MAX).unwrap_or(0))
}

/// A key in `bounds` of which the memtable has a version that is newer than `since`.
fn written_in(memtable: &Arc<Memtable>, bounds: &KeyRange, since: Seqno) -> Option<Vec<u8>> {
    if memtable.is_empty() {
        return None;
    }
    let hidden = tombstone_in(&memtable.range_tombstones(), bounds, since);
    // An iterator over memory does not fail.
    hidden.or_else(|| newer_entry(memtable.iter(), bounds, since).ok().flatten())
}

fn newer_entry(
    mut entries: impl InternalIterator,
    bounds: &KeyRange,
    since: Seqno,
) -> Result<Option<Vec<u8>>> {
    entries.seek(&bounds.start, Trailer::NEWEST)?;
    while entries.valid() && entries.key() < bounds.end.as_slice() {
        if entries.trailer().seqno() > since {
            return Ok(Some(entries.key().to_vec()));
        }
        entries.next()?;
    }
    Ok(None)
}

/// The start of a range tombstone over some key in `bounds` that is newer than `since`.
fn tombstone_in(tombstones: &FragmentedTombstones, bounds: &KeyRange, since: Seqno) -> Option<Vec<u8>> {
    tombstones
        .to_tombstones()
        .find(|tombstone| {
            tombstone.seqno > since && tombstone.start < bounds.end && tombstone.end > bounds.start
        })
        .map(|tombstone| tombstone.start.max(bounds.start.clone()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use alluvium_base::fs::memory::MemoryFs;
    use alluvium_base::sync::enter_simulation;

    use super::*;
    use crate::{Db, Environment, Keyspace, Options};

    fn in_simulation(test: impl FnOnce(&Db, &Keyspace)) {
        let (environment, executor, _) = Environment::simulated(MemoryFs::new().shared(), 7);
        let _simulation = enter_simulation(executor);
        let db = Db::open_in(environment, "/db", Options::default()).unwrap();
        let keyspace = db.keyspace("k").unwrap();
        test(&db, &keyspace);
    }

    fn premise(db: &Db, keyspace: &Keyspace) -> Premise<Snapshot> {
        let range = ReadRange { keyspace: keyspace.id(), start: b"r".to_vec(), end: Some(b"s".to_vec()) };
        Premise {
            since: db.snapshot().unwrap(),
            keys: vec![(keyspace.id(), b"key".to_vec())],
            ranges: vec![range],
            names: BTreeMap::new(),
        }
    }

    /// What step 3 says after `meanwhile` has happened behind the back of step 1.
    fn again(meanwhile: impl FnOnce(&Db, &Keyspace)) -> Result<bool> {
        let mut answer = Ok(false);
        in_simulation(|db, keyspace| {
            keyspace.put(b"key", b"0", Durability::Buffered).unwrap();
            let premise = premise(db, keyspace);
            let tree = db.tree().unwrap();
            let examined = tree.examine(&premise).unwrap();
            meanwhile(db, keyspace);
            let _gate = tree.gate.write();
            answer = tree.examine_again(&examined, &premise);
        });
        answer
    }

    #[test]
    fn a_write_between_the_two_examinations_is_found() {
        let put = |key: &'static [u8]| {
            again(move |_, keyspace| keyspace.put(key, b"1", Durability::Buffered).unwrap())
        };
        assert!(again(|_, _| ()).unwrap());
        assert!(put(b"other").unwrap() && put(b"s").unwrap() && put(b"q").unwrap());
        assert!(put(b"key").is_err() && put(b"r").is_err() && put(b"rrr").is_err());
        let delete_range = |start: &'static [u8], end: &'static [u8]| {
            again(move |_, keyspace| keyspace.delete_range(start..end, Durability::Buffered).unwrap())
        };
        assert!(delete_range(b"l", b"r").unwrap() && delete_range(b"s", b"t").unwrap());
        assert!(delete_range(b"a", b"l").is_err() && delete_range(b"rr", b"z").is_err());
    }

    #[test]
    fn a_memtable_that_was_only_frozen_is_examined_again() {
        let freeze = |db: &Db| db.tree().unwrap().rotate_if(|_| true).map(|_| ()).unwrap();
        let frozen = again(|db, keyspace| {
            keyspace.put(b"key", b"1", Durability::Buffered).unwrap();
            freeze(db);
        });
        assert!(frozen.is_err());
        let other = again(|db, keyspace| {
            keyspace.put(b"other", b"1", Durability::Buffered).unwrap();
            freeze(db);
            keyspace.put(b"other", b"2", Durability::Buffered).unwrap();
        });
        assert!(other.unwrap());
    }

    #[test]
    fn after_a_flush_in_between_everything_is_examined_anew() {
        let flushed = again(|db, keyspace| {
            keyspace.put(b"key", b"1", Durability::Buffered).unwrap();
            db.flush().unwrap();
        });
        assert!(!flushed.unwrap(), "the key's new version is in a table, which step 3 does not look at");
        in_simulation(|db, keyspace| {
            let premise = premise(db, keyspace);
            keyspace.put(b"r1", b"1", Durability::Buffered).unwrap();
            db.flush().unwrap();
            let refused = db.tree().unwrap().check_premise(&premise).unwrap_err();
            assert!(refused.to_string().contains("key \"r1\""), "{refused}");
        });
    }
}
