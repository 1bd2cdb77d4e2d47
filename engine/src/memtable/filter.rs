//! Which keys a memtable surely does not hold.
//!
//! Most reads find nothing in the memtable, and finding nothing costs a search of the skip list. The filter answers
//! first: a blocked Bloom filter with blocks of one 64-bit word (Putze, Sanders, Singler, "Cache-, Hash- and
//! Space-Efficient Bloom Filters", 2007), so that a question is one load and an insert one atomic *or*. It is sized
//! once, for the memtable's expected size, and never grows: more keys than expected only make it less sharp.
//!
//! Bits are set before the entry goes into its leaf, with relaxed order: a reader that must see the entry has
//! acquired the sequence number that was published after both.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits set per key.
const PROBES: u32 = 4;
/// Memtable bytes per filter word: 12 bits per entry of 128 bytes (entry and its share of a leaf), which lets about
/// 2 % of the missing keys through.
const MEMTABLE_BYTES_PER_WORD: usize = 64 * 128 / 12;

/// A set of key hashes that may answer yes by mistake, never no.
pub(super) struct Filter {
    words: Box<[AtomicU64]>,
}

impl Filter {
    /// A filter for a memtable of about `memtable_bytes`.
    pub(super) fn new(memtable_bytes: usize) -> Filter {
        let words = (memtable_bytes / MEMTABLE_BYTES_PER_WORD).max(1);
        Filter { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn insert(&self, hash: u64) {
        let (word, mask) = self.place(hash);
        // Another version of a key that is in already is common; looking first keeps its cache line shared.
        if word.load(Ordering::Relaxed) & mask != mask {
            word.fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// False only if no key with this hash was inserted.
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let (word, mask) = self.place(hash);
        word.load(Ordering::Relaxed) & mask == mask
    }

    /// The upper half of the hash selects the word, the lower half the bits in it.
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let index = ((hash >> 32) * self.words.len() as u64) >> 32;
        let mask = (0..PROBES).fold(0, |mask, probe| mask | 1 << ((hash >> (6 * probe)) & 63));
        (&self.words[index as usize], mask)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

#[cfg(test)]
mod tests {
    use alluvium_base::checksum::key_hash;

    use super::*;

    #[test]
    fn inserted_keys_are_found_and_few_others() {
        let keys = 10_000u64;
        let filter = Filter::new(keys as usize * 128);
        for key in 0..keys {
            filter.insert(key_hash(&key.to_be_bytes()));
        }
        assert!((0..keys).all(|key| filter.may_contain(key_hash(&key.to_be_bytes()))));
        let wrong = (keys..2 * keys).filter(|key| filter.may_contain(key_hash(&key.to_be_bytes()))).count();
        assert!(wrong < keys as usize * 4 / 100, "{wrong} of {keys} missing keys pass");
    }

    #[test]
    fn smallest_filter_works() {
        let filter = Filter::new(0);
        assert!(!filter.may_contain(7));
        filter.insert(7);
        assert!(filter.may_contain(7));
    }
}
