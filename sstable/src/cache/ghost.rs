//! Which blocks were evicted from probation lately: a block that comes back soon was evicted too early and goes straight
//! into the main queue.
//!
//! A direct-mapped table of 32-bit fingerprints, overwritten by newer ones, without a lock. It has half as many places as
//! the cache has entries. With more, blocks are remembered that come back too rarely to deserve a place in the main queue;
//! with fewer, the cache takes long to notice that the readers have moved to other blocks
//! (`design/decisions/0004-block-cache.md` has the measurement). A false match (one in four thousand million) or a lost one
//! costs a little hit ratio, never a wrong answer.

use std::sync::atomic::{AtomicU32, Ordering};

pub(super) struct Ghost {
    places: Box<[AtomicU32]>,
}

impl Ghost {
    /// For a cache of about `entries` blocks.
    pub(super) fn new(entries: usize) -> Ghost {
        const ENTRIES_PER_PLACE: usize = 2;
        let places = (entries / ENTRIES_PER_PLACE).next_power_of_two().clamp(64, 1 << 28);
        Ghost { places: (0..places).map(|_| AtomicU32::new(0)).collect() }
    }

    /// How many blocks it remembers, at most.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    fn place(&self, hash: u64) -> (&AtomicU32, u32) {
        // Zero means empty, so a fingerprint is never zero.
        (&self.places[(hash >> 28) as usize & (self.places.len() - 1)], hash as u32 | 1)
    }

    pub(super) fn remember(&self, hash: u64) {
        let (place, fingerprint) = self.place(hash);
        place.store(fingerprint, Ordering::Relaxed);
    }

    /// Was it remembered? Then it no longer is.
    pub(super) fn recall(&self, hash: u64) -> bool {
        let (place, fingerprint) = self.place(hash);
        let known = place.load(Ordering::Relaxed) == fingerprint;
        if known {
            place.store(0, Ordering::Relaxed);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_block_is_recalled_once_and_others_are_not() {
        let ghost = Ghost::new(0);
        let hashes: Vec<u64> = (1..=64u64).map(|place| place << 28 | place << 40).collect();
        hashes.iter().for_each(|&hash| ghost.remember(hash));
        assert!(hashes.iter().all(|&hash| !ghost.recall(hash ^ 0xff_0000)), "same place, other fingerprint");
        assert!(hashes.iter().all(|&hash| ghost.recall(hash)));
        assert!(hashes.iter().all(|&hash| !ghost.recall(hash)));
    }
}
