//! The memtable: where every write goes first, in memory, in order.
//!
//! A skip list *of sorted leaves* over an arena. The skip list holds one node per leaf, a leaf up to
//! [`LEAF_ENTRIES`] entries, so a search makes a tenth of the pointer jumps that a skip list of entries makes, a walk
//! reads arrays, and dropping frees a few chunks. Many threads insert at once, each locking one leaf for the time of
//! moving some words; readers take no lock ([`leaf`] has the protocol, [`writer`] its changing half).
//!
//! *In*: entries (full key, trailer, value), each key and trailer once, and range tombstones; versions of a key are
//! entries of their own. *Out*: the newest version at a snapshot, and iterators in the order of
//! [`compare`](alluvium_base::key::compare). What is visible to whom is not decided here: the engine publishes a
//! sequence number after inserting, and readers bring the one they have acquired. A memtable only grows; when it is
//! large enough the engine replaces it, flushes it and drops it.
//!
//! Measurements and the choices behind them: `design/decisions/0005-memtable-of-sorted-leaves.md`.

mod arena;
mod filter;
mod index;
mod iter;
mod leaf;
mod list;
mod pinned;
mod prefix;
mod shim;
mod tombstones;
mod writer;

#[cfg(test)]
#[cfg(loom)]
#[path = "tests/loom_models.rs"]
mod loom_models;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_base::key::{Seqno, Trailer};
use alluvium_base::range_tombstone::{FragmentedTombstones, RangeTombstone};

use self::filter::Filter;
use self::index::SkipIndex;
use self::list::LeafList;
use self::tombstones::Tombstones;

pub use self::iter::MemtableIterator;
pub use self::pinned::MemtableValue;

/// Most entries in a leaf: heads of 1 KiB, slots of 3 KiB.
pub const LEAF_ENTRIES: usize = 128;

/// An ordered set of entries in memory. See the module's text.
///
/// `N` is the size of leaves, in entries; only tests choose another one.
pub struct Memtable<const N: usize = LEAF_ENTRIES> {
    list: LeafList<SkipIndex<N>, N>,
    filter: Filter,
    tombstones: Tombstones,
    entries: AtomicU64,
}

impl Memtable {
    /// An empty memtable that is expected to grow to `expected_bytes`; its filter is sized for that, once.
    #[must_use]
    pub fn new(expected_bytes: usize) -> Arc<Memtable> {
        Memtable::with_leaves(expected_bytes)
    }
}

impl<const N: usize> Memtable<N> {
    fn with_leaves(expected_bytes: usize) -> Arc<Memtable<N>> {
        Arc::new(Memtable {
            list: LeafList::new(),
            filter: Filter::new(expected_bytes),
            tombstones: Tombstones::new(),
            entries: AtomicU64::new(0),
        })
    }

    /// Adds an entry. `hash` is the [`key_hash`](alluvium_base::checksum::key_hash) of `full_key`; no other entry has
    /// this key and trailer. Any number of threads may insert at once.
    pub fn insert(&self, full_key: &[u8], hash: u64, trailer: Trailer, value: &[u8]) {
        self.filter.insert(hash);
        self.list.insert(full_key, trailer, value);
        self.entries.fetch_add(1, Ordering::Relaxed);
    }

    /// The newest version of `full_key` with a sequence number of at most `snapshot`: its trailer and its value.
    /// Range tombstones are not considered, see [`newest_tombstone_covering`](Memtable::newest_tombstone_covering).
    #[must_use]
    pub fn get(&self, full_key: &[u8], hash: u64, snapshot: Seqno) -> Option<(Trailer, &[u8])> {
        if !self.filter.may_contain(hash) {
            return None;
        }
        self.list.get(full_key, snapshot).map(|entry| (entry.trailer(), entry.value()))
    }

    /// An iterator over all entries, not yet positioned.
    #[must_use]
    pub fn iter(self: &Arc<Self>) -> MemtableIterator<N> {
        MemtableIterator::new(Arc::clone(self))
    }

    /// Adds a range tombstone.
    pub fn add_range_tombstone(&self, tombstone: RangeTombstone) {
        self.tombstones.add(tombstone);
    }

    /// True if there are range tombstones; one relaxed load.
    #[must_use]
    pub fn has_range_tombstones(&self) -> bool {
        !self.tombstones.is_empty()
    }

    /// The range tombstones as fragments, cut anew if some were added since the last call.
    #[must_use]
    pub fn range_tombstones(&self) -> Arc<FragmentedTombstones> {
        self.tombstones.fragments()
    }

    /// Sequence number of the newest range tombstone over `full_key` that a reader at `snapshot` sees. One relaxed
    /// load if there are none; touches no shared reference count.
    #[must_use]
    pub fn newest_tombstone_covering(&self, full_key: &[u8], snapshot: Seqno) -> Option<Seqno> {
        self.tombstones.newest_covering(full_key, snapshot)
    }

    /// Memory held, in bytes: arena chunks (entries and leaves), filter, range tombstones, and the index's nodes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.list.memory_bytes()
            + self.filter.memory_bytes()
            + self.tombstones.memory_bytes()
    }

    /// Number of entries, range tombstones not counted.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// True if there is neither an entry nor a range tombstone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries() == 0 && self.tombstones.is_empty()
    }
}

impl<const N: usize> std::fmt::Debug for Memtable<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (entries, memory_bytes) = (self.entries(), self.memory_bytes());
        f.debug_struct("Memtable")
            .field("entries", &entries)
            .field("memory_bytes", &memory_bytes)
            .finish_non_exhaustive()
    }
}
