//! The ordered set of entries: an arena, a chain of leaves in it, and the index that leads into the chain.
//!
//! Every question takes the same way: ask the index for a leaf at or to the left of the place, ask that leaf, and
//! move right as long as it says so.

use alluvium_base::key::{Seqno, Trailer};

use super::arena::{Arena, Entry, Probe};
use super::index::LeafIndex;
use super::leaf::{Copied, Found, Leaf};
use super::writer::Run;

/// Entries in order, in leaves of at most `N`, found through `I`.
///
/// Leaves and bounds of the index live in the arena, and go with it.
pub(super) struct LeafList<I, const N: usize> {
    index: I,
    arena: Arena,
}

/// A copied leaf and the place in it that was asked for.
pub(super) struct Cursor<'a, const N: usize> {
    pub(super) leaf: &'a Leaf<N>,
    pub(super) next: Option<&'a Leaf<N>>,
    /// Index of the first entry at or after the place.
    pub(super) position: usize,
}

impl<I: LeafIndex<N>, const N: usize> LeafList<I, N> {
    pub(super) fn new() -> LeafList<I, N> {
        let list = LeafList { index: I::default(), arena: Arena::new() };
        let low = list.arena.entry(b"", Trailer::NEWEST, b"").bound();
        list.index.insert(list.arena.place(Leaf::new(low, None, Run::default())));
        list
    }

    /// Adds an entry. No other entry may have its key and trailer.
    pub(super) fn insert(&self, full_key: &[u8], trailer: Trailer, value: &[u8]) {
        let entry = self.arena.entry(full_key, trailer, value);
        let probe = Probe::new(full_key, trailer);
        let mut leaf = self.floor(&probe);
        let split = loop {
            let writer = leaf.writer();
            match writer.right_of(&probe) {
                Some(right) => leaf = right,
                None => break writer.insert(entry, &probe, &self.arena),
            }
        };
        if let Some(new) = split {
            self.index.insert(new);
        }
    }

    /// The newest version of `full_key` with a sequence number of at most `snapshot`.
    pub(super) fn get(&self, full_key: &[u8], snapshot: Seqno) -> Option<Entry<'_>> {
        let probe = Probe::new(full_key, Trailer::at_snapshot(snapshot));
        let mut leaf = self.floor(&probe);
        loop {
            match leaf.find(&probe) {
                Found::Here(entry) => return entry,
                Found::Right(right) => leaf = right,
            }
        }
    }

    /// Copies the leaf that covers `probe` into `entries`.
    pub(super) fn copy_at<'a>(&'a self, probe: &Probe<'_>, entries: &mut Vec<Entry<'a>>) -> Cursor<'a, N> {
        let mut leaf = self.floor(probe);
        loop {
            match leaf.copy(Some(probe), entries) {
                Found::Here(Copied { position, next }) => return Cursor { leaf, next, position },
                Found::Right(right) => leaf = right,
            }
        }
    }

    /// Copies the last leaf into `entries`; the position is behind its last entry.
    pub(super) fn copy_last<'a>(&'a self, entries: &mut Vec<Entry<'a>>) -> Cursor<'a, N> {
        let Some(mut leaf) = self.index.last() else { unreachable!("the index knows the leftmost leaf") };
        loop {
            let cursor = copy_leaf(leaf, entries);
            match cursor.next {
                Some(next) => leaf = next,
                None => return Cursor { position: entries.len(), ..cursor },
            }
        }
    }

    fn floor(&self, probe: &Probe<'_>) -> &Leaf<N> {
        let Some(leaf) = self.index.floor(probe) else {
            unreachable!("the leftmost leaf begins before every key")
        };
        leaf
    }

    /// Memory held, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.arena.memory_bytes() + self.index.memory_bytes()
    }
}

/// Copies `leaf` into `entries`; the position is at its first entry.
pub(super) fn copy_leaf<'a, const N: usize>(
    leaf: &'a Leaf<N>,
    entries: &mut Vec<Entry<'a>>,
) -> Cursor<'a, N> {
    match leaf.copy(None, entries) {
        Found::Here(Copied { position, next }) => Cursor { leaf, next, position },
        Found::Right(_) => unreachable!("only a probe leads to the right"),
    }
}

/// Copies the left neighbour of `leaf` into `entries`; the position is behind its last entry. `None` if `leaf` is the
/// leftmost.
pub(super) fn copy_left_of<'a, const N: usize>(
    leaf: &'a Leaf<N>,
    entries: &mut Vec<Entry<'a>>,
) -> Option<Cursor<'a, N>> {
    let mut left = leaf.prev_hint()?;
    loop {
        match left.copy_left_of(leaf, entries) {
            Found::Here(()) => return Some(Cursor { leaf: left, next: Some(leaf), position: entries.len() }),
            Found::Right(right) => left = right,
        }
    }
}
