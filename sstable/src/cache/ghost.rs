//! Which blocks were evicted from probation lately: a block that comes back soon was evicted too early and goes straight
//! into the main queue.
//!
//! A direct-mapped table of 32-bit fingerprints, overwritten by newer ones: four bytes per remembered block, no lock,
//! and with as many places as the cache has entries a block is remembered for about one turnover of the cache. A false
//! match (one in four thousand million) or a lost one costs a little hit ratio, never a wrong answer.

use std::sync::atomic::{AtomicU32, Ordering};

pub(super) struct Ghost {
    places: Box<[AtomicU32]>,
}

impl Ghost {
    /// Remembers about `entries` blocks.
    pub(super) fn new(entries: usize) -> Ghost {
        let places = entries.next_power_of_two().clamp(64, 1 << 28);
        Ghost { places: (0..places).map(|_| AtomicU32::new(0)).collect() }
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
