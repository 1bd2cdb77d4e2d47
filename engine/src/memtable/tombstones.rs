//! The range tombstones of a memtable.
//!
//! They are kept as written, and cut into fragments when somebody reads after a change. Without any, a read is one
//! relaxed load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium_base::key::Seqno;
use alluvium_base::range_tombstone::{FragmentedTombstones, RangeTombstone};
use alluvium_base::sync::Mutex;
use arc_swap::ArcSwap;

/// Range tombstones, growing.
///
/// `count` is written under the lock of `all`; a reader that must see a tombstone has acquired the sequence number
/// published after it, so relaxed loads of `count` are enough.
pub(super) struct Tombstones {
    count: AtomicUsize,
    memory_bytes: AtomicUsize,
    all: Mutex<Vec<RangeTombstone>>,
    cut: ArcSwap<Cut>,
}

/// The fragments of the first `count` tombstones.
#[derive(Default)]
struct Cut {
    count: usize,
    fragments: Arc<FragmentedTombstones>,
}

impl Tombstones {
    pub(super) fn new() -> Tombstones {
        Tombstones {
            count: AtomicUsize::new(0),
            memory_bytes: AtomicUsize::new(0),
            all: Mutex::new(Vec::new()),
            cut: ArcSwap::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub(super) fn add(&self, tombstone: RangeTombstone) {
        let bytes = size_of::<RangeTombstone>() + tombstone.start.capacity() + tombstone.end.capacity();
        self.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut all = self.all.lock();
        all.push(tombstone);
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// All tombstones, as fragments.
    pub(super) fn fragments(&self) -> Arc<FragmentedTombstones> {
        self.with(Arc::clone)
    }

    /// Sequence number of the newest tombstone over `full_key` that a reader at `snapshot` sees.
    pub(super) fn newest_covering(&self, full_key: &[u8], snapshot: Seqno) -> Option<Seqno> {
        if self.is_empty() {
            return None;
        }
        self.with(|fragments| fragments.newest_covering(full_key, snapshot))
    }

    /// Asks the current fragments, without touching their reference count.
    fn with<T>(&self, ask: impl FnOnce(&Arc<FragmentedTombstones>) -> T) -> T {
        let cut = self.cut.load();
        if cut.count >= self.count.load(Ordering::Relaxed) {
            return ask(&cut.fragments);
        }
        drop(cut);
        self.cut_anew();
        ask(&self.cut.load().fragments)
    }

    #[cold]
    fn cut_anew(&self) {
        let all = self.all.lock();
        if self.cut.load().count < all.len() {
            let fragments = Arc::new(FragmentedTombstones::new(&all));
            self.cut.store(Arc::new(Cut { count: all.len(), fragments }));
        }
    }

    /// Memory taken by the tombstones as written, in bytes; their fragments are counted as much again.
    pub(super) fn memory_bytes(&self) -> usize {
        2 * self.memory_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tombstone_is_seen_as_soon_as_it_is_added() {
        let tombstones = Tombstones::new();
        assert!(tombstones.is_empty());
        assert_eq!(tombstones.newest_covering(b"b", 100), None);
        tombstones.add(RangeTombstone { start: b"a".to_vec(), end: b"c".to_vec(), seqno: 5 });
        assert_eq!(tombstones.newest_covering(b"b", 100), Some(5));
        let before = tombstones.fragments();
        tombstones.add(RangeTombstone { start: b"b".to_vec(), end: b"d".to_vec(), seqno: 9 });
        assert_eq!(tombstones.newest_covering(b"b", 100), Some(9));
        assert_eq!(tombstones.newest_covering(b"b", 8), Some(5));
        assert_eq!(before.newest_covering(b"b", 100), Some(5));
        assert!(Arc::ptr_eq(&tombstones.fragments(), &tombstones.fragments()));
    }
}
