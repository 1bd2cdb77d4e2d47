//! Walking a memtable in order, both ways, while others insert.
//!
//! The iterator copies one leaf at a time (24 bytes per entry: address, lengths, trailer) in one consistent state, and
//! walks the copy. What is inserted into that leaf afterwards it does not see, which is right for a reader: such
//! entries are newer than its snapshot. Between leaves it follows `next`, or the `prev` hint and then `next`.

#![expect(unsafe_code, reason = "an iterator owns the memtable whose entries it has copied")]

use std::sync::Arc;

use alluvium_base::Result;
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::Trailer;

use super::arena::{Entry, Probe};
use super::leaf::Leaf;
use super::list::{self, Cursor};
use super::{LEAF_ENTRIES, Memtable};

/// How many entries ahead of the current one the bytes are called for.
const PREFETCH_DISTANCE: usize = 4;

/// A cursor over all entries of a memtable; owns it. Never fails.
pub struct MemtableIterator<const N: usize = LEAF_ENTRIES> {
    /// Copy of `leaf`. Lives as long as `memtable`; handed out only with the lifetime of `&self`.
    entries: Vec<Entry<'static>>,
    leaf: Option<&'static Leaf<N>>,
    /// The neighbour to the right of `leaf` at the time of the copy.
    next: Option<&'static Leaf<N>>,
    /// Index of the current entry in `entries`; beyond them if the iterator is not valid.
    position: usize,
    memtable: Arc<Memtable<N>>,
}

impl<const N: usize> MemtableIterator<N> {
    pub(super) fn new(memtable: Arc<Memtable<N>>) -> MemtableIterator<N> {
        MemtableIterator { entries: Vec::new(), leaf: None, next: None, position: 0, memtable }
    }

    /// The memtable with the lifetime that the fields claim.
    fn memtable(&self) -> &'static Memtable<N> {
        // SAFETY: `memtable` keeps it alive for as long as the iterator and everything that is taken from it: no
        // method returns anything with a longer lifetime than that of `&self`.
        unsafe { &*Arc::as_ptr(&self.memtable) }
    }

    fn stand_on(&mut self, cursor: Cursor<'static, N>) {
        self.leaf = Some(cursor.leaf);
        self.next = cursor.next;
        self.position = cursor.position;
    }

    /// Moves right until `position` is that of an entry, or there is none.
    fn settle_forward(&mut self) {
        while self.position >= self.entries.len() {
            let Some(next) = self.next else { return self.invalidate() };
            let cursor = list::copy_leaf(next, &mut self.entries);
            self.stand_on(cursor);
        }
        self.prefetch(self.position..self.position + PREFETCH_DISTANCE);
    }

    /// Moves to the entry before `position`, if there is one.
    fn settle_backward(&mut self) {
        while self.position == 0 {
            let Some(leaf) = self.leaf else { return self.invalidate() };
            let Some(cursor) = list::copy_left_of(leaf, &mut self.entries) else { return self.invalidate() };
            self.stand_on(cursor);
        }
        self.position -= 1;
        self.prefetch(self.position.saturating_sub(PREFETCH_DISTANCE)..self.position);
    }

    fn invalidate(&mut self) {
        self.entries.clear();
        self.leaf = None;
        self.next = None;
        self.position = 0;
    }

    fn prefetch(&self, range: std::ops::Range<usize>) {
        for entry in self.entries.get(range.start..range.end.min(self.entries.len())).unwrap_or_default() {
            entry.prefetch();
        }
    }

    fn current(&self) -> Entry<'_> {
        self.entries[self.position]
    }
}

impl<const N: usize> InternalIterator for MemtableIterator<N> {
    fn valid(&self) -> bool {
        self.position < self.entries.len()
    }

    fn key(&self) -> &[u8] {
        self.current().key()
    }

    fn trailer(&self) -> Trailer {
        self.current().trailer()
    }

    fn value(&self) -> &[u8] {
        self.current().value()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.seek(b"", Trailer::NEWEST)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let cursor = self.memtable().list.copy_last(&mut self.entries);
        self.stand_on(cursor);
        self.settle_backward();
        Ok(())
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let cursor = self.memtable().list.copy_at(&Probe::new(key, trailer), &mut self.entries);
        self.stand_on(cursor);
        self.settle_forward();
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let cursor = self.memtable().list.copy_at(&Probe::new(key, trailer), &mut self.entries);
        self.stand_on(cursor);
        self.settle_backward();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid(), "next on an iterator that stands nowhere");
        self.position += 1;
        if self.position >= self.entries.len() {
            self.settle_forward();
        } else if let Some(entry) = self.entries.get(self.position + PREFETCH_DISTANCE) {
            entry.prefetch();
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid(), "prev on an iterator that stands nowhere");
        if self.position == 0 {
            self.settle_backward();
        } else {
            self.position -= 1;
            if let Some(entry) =
                self.position.checked_sub(PREFETCH_DISTANCE).and_then(|ahead| self.entries.get(ahead))
            {
                entry.prefetch();
            }
        }
        Ok(())
    }
}
