//! An iterator over entries in memory, and what any iterator must show.

use std::sync::Arc;

use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{self, Seqno, Trailer};
use alluvium_base::{Error, Result};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

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
