//! Blocks that left the cache, or should: files that are gone, and evicted blocks that a reader still holds.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use alluvium_base::sync::Mutex;

/// Files whose blocks are to be swept out of the cache.
///
/// Erasing a file only notes its id: file ids are never reused, so nobody asks for its blocks, and they only waste space.
/// Each insert then sweeps one segment, so after one round over all segments (about one insert per 128 cached blocks)
/// the blocks are gone, at a constant cost per insert and whatever the number of files.
#[derive(Default)]
pub(super) struct DeadFiles {
    any: AtomicBool,
    state: Mutex<Sweep>,
}

#[derive(Default)]
struct Sweep {
    /// Segments swept so far, ever: the number of the next one.
    position: u64,
    files: Arc<BTreeSet<u64>>,
    /// Position at which each file has been swept for a whole round.
    done_at: VecDeque<(u64, u64)>,
}

impl DeadFiles {
    pub(super) fn add(&self, file_id: u64, segments: usize) {
        let mut sweep = self.state.lock();
        if Arc::make_mut(&mut sweep.files).insert(file_id) {
            let done_at = sweep.position + segments as u64;
            sweep.done_at.push_back((done_at, file_id));
            self.any.store(true, Ordering::Release);
        }
    }

    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(super) fn contains(&self, file_id: u64) -> bool {
        self.any() && self.state.lock().files.contains(&file_id)
    }

    pub(super) fn count(&self) -> usize {
        self.state.lock().files.len()
    }

    /// The number of the next segment to sweep and the files to look for.
    pub(super) fn next(&self) -> Option<(u64, Arc<BTreeSet<u64>>)> {
        let mut sweep = self.state.lock();
        while let Some(&(done_at, file_id)) = sweep.done_at.front()
            && done_at <= sweep.position
        {
            sweep.done_at.pop_front();
            Arc::make_mut(&mut sweep.files).remove(&file_id);
        }
        if sweep.files.is_empty() {
            self.any.store(false, Ordering::Release);
            return None;
        }
        let position = sweep.position;
        sweep.position += 1;
        Some((position, Arc::clone(&sweep.files)))
    }
}

/// Blocks that are no longer cached but still in memory because a reader holds them.
pub(super) struct PinnedBlocks<V> {
    blocks: Mutex<Vec<(Weak<V>, u64)>>,
    /// The released ones are dropped from the list when it reaches this length.
    prune_at: AtomicU64,
}

const PRUNE_AT_MIN: u64 = 64;

impl<V> PinnedBlocks<V> {
    pub(super) fn new() -> PinnedBlocks<V> {
        PinnedBlocks { blocks: Mutex::new(Vec::new()), prune_at: AtomicU64::new(PRUNE_AT_MIN) }
    }

    /// Notes a block that has left the cache, if anyone else holds it.
    pub(super) fn note(&self, block: &Arc<V>, charge: u64) {
        if Arc::strong_count(block) < 2 {
            return;
        }
        let mut blocks = self.blocks.lock();
        blocks.push((Arc::downgrade(block), charge));
        if blocks.len() as u64 >= self.prune_at.load(Ordering::Relaxed) {
            blocks.retain(|(block, _)| block.strong_count() > 0);
            self.prune_at.store((blocks.len() as u64 * 2).max(PRUNE_AT_MIN), Ordering::Relaxed);
        }
    }

    /// Bytes of those still held.
    pub(super) fn bytes(&self) -> u64 {
        let mut blocks = self.blocks.lock();
        blocks.retain(|(block, _)| block.strong_count() > 0);
        blocks.iter().map(|(_, charge)| charge).sum()
    }
}
