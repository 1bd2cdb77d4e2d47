//! The ordered index of leaves: from a place to the last leaf that begins at or before it.
//!
//! The index may lag behind the chain of leaves (a split enters the new leaf last); what it finds is then too far to
//! the left, and the chain leads on. It never needs to be exact, only to know leaves that exist.

#![expect(unsafe_code, reason = "the skip list holds addresses of leaves, which live in the arena")]

use std::ops::Bound as Limit;
use std::ptr::NonNull;

use crossbeam_epoch as epoch;
use crossbeam_skiplist::SkipList;

use super::arena::{Bound, Probe};
use super::leaf::Leaf;

/// What the list of leaves asks of its index; a model under loom brings its own.
pub(super) trait LeafIndex<const N: usize>: Default {
    /// The last known leaf whose low bound is at or before `probe`.
    fn floor(&self, probe: &Probe<'_>) -> Option<&Leaf<N>>;

    /// The last known leaf.
    fn last(&self) -> Option<&Leaf<N>>;

    /// Enters a leaf. It, and the key of its low bound, must outlive the index.
    fn insert(&self, leaf: &Leaf<N>);

    /// Memory taken by the index, in bytes (an estimate: the skip list hides its nodes).
    fn memory_bytes(&self) -> usize;
}

/// Address of a leaf that outlives the index.
struct LeafAddress<const N: usize>(NonNull<Leaf<N>>);

// SAFETY: it is a shared reference to a leaf, and leaves are shared between threads.
unsafe impl<const N: usize> Send for LeafAddress<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for LeafAddress<N> {}

/// A skip list from low bounds to leaves. Insert-only: overwriting and removing race in crossbeam-skiplist 0.1.3.
///
/// Not a `SkipMap`, whose entries are reference-counted: two threads that get the same few keys would take twice the
/// time (200 against 100 ns), since both write to the node that they find.
pub(super) struct SkipIndex<const N: usize> {
    leaves: SkipList<Bound, LeafAddress<N>>,
}

/// What a node of the skip list takes, in bytes: bound, address, reference count, a tower of two pointers on average,
/// and the allocator's header.
const NODE_BYTES: usize = size_of::<Bound>() + 2 * size_of::<usize>() + 2 * size_of::<usize>() + 16;

impl<const N: usize> Default for SkipIndex<N> {
    fn default() -> SkipIndex<N> {
        SkipIndex { leaves: SkipList::new(epoch::default_collector().clone()) }
    }
}

impl<const N: usize> SkipIndex<N> {
    fn leaf(&self, address: &LeafAddress<N>) -> &Leaf<N> {
        // SAFETY: whoever inserted the leaf makes sure that it outlives the index.
        unsafe { address.0.as_ref() }
    }
}

impl<const N: usize> LeafIndex<N> for SkipIndex<N> {
    fn floor(&self, probe: &Probe<'_>) -> Option<&Leaf<N>> {
        let guard = &epoch::pin();
        let entry = self.leaves.upper_bound(Limit::Included(probe.bound()), guard)?;
        Some(self.leaf(entry.value()))
    }

    fn last(&self) -> Option<&Leaf<N>> {
        let guard = &epoch::pin();
        let entry = self.leaves.back(guard)?;
        Some(self.leaf(entry.value()))
    }

    fn insert(&self, leaf: &Leaf<N>) {
        // Low bounds never repeat, so this inserts; `insert` would first remove what it finds.
        let guard = &epoch::pin();
        self.leaves.get_or_insert(*leaf.low(), LeafAddress(NonNull::from(leaf)), guard).release(guard);
    }

    fn memory_bytes(&self) -> usize {
        self.leaves.len() * NODE_BYTES
    }
}
