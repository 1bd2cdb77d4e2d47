//! Files made up for tests, and what an iterator must show.

use std::sync::Arc;

use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{self, KeyspaceId, Seqno, Trailer};
use alluvium_base::limits::SEQNO_MAX;
use alluvium_base::{Error, KeyRange, Result};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::summary::{KeyspaceProperties, TableSummary};
use crate::version::{FileMeta, Version, VersionEdit};

/// A file of 1,000 bytes and 10 entries over `[start, end)`.
pub(crate) fn file(id: u64, start: &[u8], end: &[u8]) -> Arc<FileMeta> {
    l0_file(id, 0, start, end)
}

/// A file of level 0 with the given order.
pub(crate) fn l0_file(id: u64, order: Seqno, start: &[u8], end: &[u8]) -> Arc<FileMeta> {
    Arc::new(FileMeta {
        id,
        summary: TableSummary {
            identity: u128::from(id),
            bytes: 1000,
            checksum: id,
            range: KeyRange::new(start, end),
            seqno_min: order,
            seqno_max: order,
            entries: 10,
            tombstones: 0,
            range_tombstones: 0,
            keyspaces: Vec::new(),
        },
        order,
        created_micros: 0,
    })
}

/// A tree of files given as (level, "first-end", bytes), with ids 1, 2, … in this order. In level 0 a later file is
/// newer.
pub(crate) fn tree<'a>(files: impl IntoIterator<Item = (u8, &'a str, u64)>) -> Version {
    tree_with(files.into_iter().map(|(level, range, bytes)| (level, range, bytes, |_: &mut FileMeta| {})))
}

/// Like [`tree`], with a change to each file.
pub(crate) fn tree_with<'a, F: Fn(&mut FileMeta)>(
    files: impl IntoIterator<Item = (u8, &'a str, u64, F)>,
) -> Version {
    let mut edit = VersionEdit::default();
    for (id, (level, range, bytes, change)) in (1u64..).zip(files) {
        let (start, end) = range.split_once('-').unwrap();
        let mut file = FileMeta::clone(&l0_file(id, id, start.as_bytes(), end.as_bytes()));
        file.summary.bytes = bytes;
        change(&mut file);
        edit.add(level, Arc::new(file));
    }
    Version::new().apply(&edit).unwrap()
}

prop_compose! {
    /// Any file that a manifest may name.
    pub(crate) fn any_file()(
        (id, identity, bytes, checksum, created_micros) in any::<(u64, u128, u64, u64, i64)>(),
        start in prop::collection::vec(any::<u8>(), 0..9),
        tail in prop::collection::vec(any::<u8>(), 1..9),
        seqnos in (0..=SEQNO_MAX, 0..=SEQNO_MAX, 0..=SEQNO_MAX),
        (entries, tombstones, range_tombstones) in any::<(u64, u64, u64)>(),
        keyspaces in prop::collection::vec(any::<(u32, u64, u64, u64, u64)>(), 0..3),
    ) -> FileMeta {
        let end = [start.as_slice(), &tail].concat();
        let keyspace = |(id, entries, tombstones, raw_bytes, stored_bytes)| {
            KeyspaceProperties { keyspace: KeyspaceId(id), entries, tombstones, raw_bytes, stored_bytes }
        };
        FileMeta {
            id,
            summary: TableSummary {
                identity,
                bytes,
                checksum,
                range: KeyRange { start, end },
                seqno_min: seqnos.0.min(seqnos.1),
                seqno_max: seqnos.0.max(seqnos.1),
                entries,
                tombstones,
                range_tombstones,
                keyspaces: keyspaces.into_iter().map(keyspace).collect(),
            },
            order: seqnos.2,
            created_micros,
        }
    }
}

/// Full key, trailer, value.
pub(crate) type Entry = (Vec<u8>, Trailer, Vec<u8>);

/// `entries` in the order of the tree; equal ones stay in the order given.
pub(crate) fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by(|a, b| key::compare(&a.0, a.1, &b.0, b.1));
    entries
}

/// An iterator over sorted entries in memory.
pub(crate) struct VecIterator {
    entries: Arc<[Entry]>,
    /// Index of the current entry; `None` if there is none.
    at: Option<usize>,
    /// Moves until every move fails.
    moves_left: usize,
}

impl VecIterator {
    pub(crate) fn new(entries: Arc<[Entry]>) -> VecIterator {
        VecIterator { entries, at: None, moves_left: usize::MAX }
    }

    pub(crate) fn failing_after(entries: Arc<[Entry]>, moves: usize) -> VecIterator {
        VecIterator { entries, at: None, moves_left: moves }
    }

    fn go(&mut self, to: Option<usize>) -> Result<()> {
        let Some(left) = self.moves_left.checked_sub(1) else {
            self.at = None;
            return Err(Error::corrupt("table", 7, "made up"));
        };
        self.moves_left = left;
        self.at = to.filter(|&at| at < self.entries.len());
        Ok(())
    }

    fn before(&self, key: &[u8], trailer: Trailer) -> usize {
        self.entries.partition_point(|entry| key::compare(&entry.0, entry.1, key, trailer).is_lt())
    }
}

impl InternalIterator for VecIterator {
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> &[u8] {
        &self.entries[self.at.unwrap()].0
    }
    fn trailer(&self) -> Trailer {
        self.entries[self.at.unwrap()].1
    }
    fn value(&self) -> &[u8] {
        &self.entries[self.at.unwrap()].2
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.go(self.entries.len().checked_sub(1))
    }
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.go(Some(self.before(key, trailer)))
    }
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.go(self.before(key, trailer).checked_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        self.go(Some(self.at.expect("next() of an invalid iterator") + 1))
    }
    fn prev(&mut self) -> Result<()> {
        self.go(self.at.expect("prev() of an invalid iterator").checked_sub(1))
    }
}

/// A move of an iterator; `Next` and `Prev` count only while it is valid.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    First,
    Last,
    Seek(Vec<u8>, Seqno),
    SeekBefore(Vec<u8>, Seqno),
    Next,
    Prev,
}

impl Move {
    pub(crate) fn any(key: impl Strategy<Value = Vec<u8>> + 'static) -> impl Strategy<Value = Move> {
        let key = key.boxed();
        prop_oneof![
            1 => Just(Move::First),
            1 => Just(Move::Last),
            3 => (key.clone(), 0u64..41).prop_map(|(key, seqno)| Move::Seek(key, seqno)),
            3 => (key, 0u64..41).prop_map(|(key, seqno)| Move::SeekBefore(key, seqno)),
            8 => Just(Move::Next),
            8 => Just(Move::Prev),
        ]
    }
}

/// Checks that `iter` shows `all` (sorted) from both ends, and whatever `moves` come across.
pub(crate) fn check_moves(
    iter: &mut impl InternalIterator,
    all: &[Entry],
    moves: &[Move],
) -> Result<(), TestCaseError> {
    walk_ends(iter, all);
    let mut model = VecIterator::new(all.into());
    iter.seek_to_first().unwrap();
    model.seek_to_first().unwrap();
    for step in moves {
        let apply = |iter: &mut dyn InternalIterator| match step {
            Move::First => iter.seek_to_first(),
            Move::Last => iter.seek_to_last(),
            Move::Seek(key, seqno) => iter.seek(key, Trailer::at_snapshot(*seqno)),
            Move::SeekBefore(key, seqno) => iter.seek_before(key, Trailer::at_snapshot(*seqno)),
            Move::Next if iter.valid() => iter.next(),
            Move::Prev if iter.valid() => iter.prev(),
            Move::Next | Move::Prev => Ok(()),
        };
        apply(&mut *iter).unwrap();
        apply(&mut model).unwrap();
        prop_assert_eq!(iter.valid(), model.valid(), "after {:?}", step);
        if model.valid() {
            prop_assert_eq!(
                (iter.key(), iter.trailer(), iter.value()),
                (model.key(), model.trailer(), model.value())
            );
        }
    }
    Ok(())
}

/// Checks that `iter` shows exactly `all`, forwards and backwards.
pub(crate) fn walk_ends(iter: &mut impl InternalIterator, all: &[Entry]) {
    let mut shown = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        shown.push((iter.key().to_vec(), iter.trailer(), iter.value().to_vec()));
        iter.next().unwrap();
    }
    assert_eq!(shown, all, "forwards");
    shown.clear();
    iter.seek_to_last().unwrap();
    while iter.valid() {
        shown.push((iter.key().to_vec(), iter.trailer(), iter.value().to_vec()));
        iter.prev().unwrap();
    }
    shown.reverse();
    assert_eq!(shown, all, "backwards");
}
