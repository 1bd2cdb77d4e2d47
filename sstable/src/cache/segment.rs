//! The lookup table: many small segments, each an open-addressing table under a reader-writer lock of its own.
//!
//! A lookup hashes the key, takes the *shared* side of one segment's lock (one word for about 128 entries; nobody holds
//! it across I/O or an allocation of more than a few kilobytes), probes linearly, notes the use in the entry's
//! state word and clones the `Arc`. Segment headers stay in the processor's cache (64 bytes for about 128 blocks), so
//! a uniform hit costs two dependent memory accesses: the slot and the block's reference count.
//!
//! A slot is 32 bytes. Deletion shifts the following entries back, so there are no tombstones. A segment grows and
//! shrinks alone, in microseconds, so the table follows any capacity without a pause and needs no deferred freeing,
//! hence no `unsafe`.
//!
//! The *state word* of an entry: bits 0–1 count its uses (saturating), 2–3 hold its class, 4 says that it is in the main
//! queue, 5 that it is large; 8–31 are the low bits of the sequence number of its place in a queue, by which a queue's
//! ticket recognises its entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use alluvium_base::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::key::{BlockClass, BlockKey};

/// Largest use count of an entry.
pub(super) const USES_MAX: u32 = 3;
const CLASS_SHIFT: u32 = 2;
const MAIN: u32 = 1 << 4;
const LARGE: u32 = 1 << 5;
const STAMP_SHIFT: u32 = 8;

/// Smallest table of a segment that holds anything, in slots.
const SLOTS_MIN: usize = 8;

/// One cached block.
pub(super) struct Entry<V> {
    pub(super) key: BlockKey,
    /// `None` only in an empty slot.
    value: Option<Arc<V>>,
    /// Bytes charged for it.
    pub(super) charge: u32,
    state: AtomicU32,
}

impl<V> Entry<V> {
    pub(super) fn new(key: BlockKey, value: Arc<V>, charge: u32, place: Place, uses: u32) -> Entry<V> {
        Entry { key, value: Some(value), charge, state: AtomicU32::new(place.word(uses)) }
    }

    fn empty() -> Entry<V> {
        Entry { key: BlockKey { file_id: 0, offset: 0 }, value: None, charge: 0, state: AtomicU32::new(0) }
    }

    /// Notes a use; true if the entry is in the main queue. Two uses at once may count as one: it is a hint.
    pub(super) fn touch(&self) -> bool {
        let word = self.state.load(Ordering::Relaxed);
        if word & USES_MAX < USES_MAX {
            self.state.store(word + 1, Ordering::Relaxed);
        }
        word & MAIN != 0
    }

    pub(super) fn uses(&self) -> u32 {
        self.state.load(Ordering::Relaxed) & USES_MAX
    }

    pub(super) fn place(&self) -> Place {
        let word = self.state.load(Ordering::Relaxed);
        let class = match (word >> CLASS_SHIFT) & 3 {
            1 => BlockClass::Index,
            2 => BlockClass::Filter,
            _ => BlockClass::Data,
        };
        Place { main: word & MAIN != 0, large: word & LARGE != 0, class, stamp: word >> STAMP_SHIFT }
    }

    /// Moves the entry to another place in the queues. The caller has the segment exclusively.
    pub(super) fn set_place(&mut self, place: Place, uses: u32) {
        *self.state.get_mut() = place.word(uses);
    }

    pub(super) fn into_value(self) -> Option<Arc<V>> {
        self.value
    }
}

/// Which queue an entry is in, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) main: bool,
    pub(super) large: bool,
    pub(super) class: BlockClass,
    /// The low 24 bits of the sequence number of its ticket.
    pub(super) stamp: u32,
}

impl Place {
    pub(super) fn stamp_of(sequence: u64) -> u32 {
        (sequence as u32) << STAMP_SHIFT >> STAMP_SHIFT
    }

    fn word(self, uses: u32) -> u32 {
        uses.min(USES_MAX)
            | (self.class as u32) << CLASS_SHIFT
            | if self.main { MAIN } else { 0 }
            | if self.large { LARGE } else { 0 }
            | self.stamp << STAMP_SHIFT
    }
}

/// An open-addressing table with linear probing; a power of two slots, at most three quarters full.
pub(super) struct Table<V> {
    slots: Box<[Entry<V>]>,
    len: usize,
}

impl<V> Table<V> {
    fn new() -> Table<V> {
        Table { slots: Box::default(), len: 0 }
    }

    /// The slots from the home of `hash` to the next empty one, as indices.
    fn probe(&self, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let mask = self.slots.len().wrapping_sub(1);
        let home = hash as usize;
        (0..self.slots.len())
            .map(move |step| home.wrapping_add(step) & mask)
            .take_while(|&slot| self.slots[slot].value.is_some())
    }

    /// The block with this key.
    pub(super) fn get(&self, hash: u64, key: BlockKey) -> Option<(&Entry<V>, &Arc<V>)> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut slot = hash as usize & mask;
        loop {
            // A table without slots ends the search here; any other has an empty slot.
            let entry = self.slots.get(slot)?;
            let value = entry.value.as_ref()?;
            if entry.key == key {
                return Some((entry, value));
            }
            slot = (slot + 1) & mask;
        }
    }

    /// The slot of the entry whose queue place has `stamp`.
    pub(super) fn find_stamp(&self, hash: u64, stamp: u32) -> Option<usize> {
        self.probe(hash).find(|&slot| {
            let entry = &self.slots[slot];
            entry.state.load(Ordering::Relaxed) >> STAMP_SHIFT == stamp && entry.key.hash() == hash
        })
    }

    pub(super) fn entry_mut(&mut self, slot: usize) -> &mut Entry<V> {
        &mut self.slots[slot]
    }

    /// Puts `entry` in, and hands back the one with the same key that it replaces.
    pub(super) fn insert(&mut self, hash: u64, entry: Entry<V>) -> Option<Entry<V>> {
        let existing = self.probe(hash).find(|&slot| self.slots[slot].key == entry.key);
        if let Some(slot) = existing {
            return Some(std::mem::replace(&mut self.slots[slot], entry));
        }
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.resize((self.slots.len() * 2).max(SLOTS_MIN));
        }
        self.place(hash, entry);
        self.len += 1;
        None
    }

    /// Takes the entry at `slot` out; following entries may move.
    pub(super) fn remove(&mut self, slot: usize) -> Entry<V> {
        let removed = self.take(slot);
        if self.slots.len() > SLOTS_MIN && self.len * 8 < self.slots.len() {
            self.resize(self.slots.len() / 2);
        }
        removed
    }

    /// Takes every entry out whose key is not wanted.
    pub(super) fn remove_unless(&mut self, wanted: impl Fn(BlockKey) -> bool) -> Vec<Entry<V>> {
        let mut removed = Vec::new();
        let mut slot = 0;
        while slot < self.slots.len() {
            if self.slots[slot].value.is_some() && !wanted(self.slots[slot].key) {
                // Another entry may have moved into this slot, so it is looked at again.
                removed.push(self.take(slot));
            } else {
                slot += 1;
            }
        }
        removed
    }

    #[cfg(test)]
    pub(super) fn for_each(&self, visit: impl FnMut(&Entry<V>)) {
        self.slots.iter().filter(|entry| entry.value.is_some()).for_each(visit);
    }

    fn place(&mut self, hash: u64, entry: Entry<V>) {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot].value.is_some() {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = entry;
    }

    /// Backward-shift deletion (Knuth, TAOCP 6.4, algorithm R): each following entry of the run that may stand in the
    /// gap, because its home is not between the gap and itself, moves there.
    fn take(&mut self, slot: usize) -> Entry<V> {
        let mask = self.slots.len() - 1;
        let mut gap = slot;
        let mut next = slot;
        loop {
            next = (next + 1) & mask;
            if self.slots[next].value.is_none() {
                break;
            }
            let home = self.slots[next].key.hash() as usize & mask;
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(gap) & mask {
                self.slots.swap(gap, next);
                gap = next;
            }
        }
        self.len -= 1;
        std::mem::replace(&mut self.slots[gap], Entry::empty())
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, (0..slots).map(|_| Entry::empty()).collect());
        for entry in old {
            if entry.value.is_some() {
                self.place(entry.key.hash(), entry);
            }
        }
    }
}

/// A segment on a cache line of its own.
#[repr(align(64))]
struct Segment<V>(RwLock<Table<V>>);

/// All segments: a power of two.
pub(super) struct Segments<V> {
    segments: Box<[Segment<V>]>,
}

impl<V> Segments<V> {
    /// Room for about `entries` blocks; more fit, in larger segments.
    pub(super) fn new(entries: usize) -> Segments<V> {
        // More would share a lock, fewer would push the segments' headers out of the processor's cache.
        const ENTRIES_PER_SEGMENT: usize = 128;
        let count = (entries / ENTRIES_PER_SEGMENT).next_power_of_two().clamp(64, 1 << 20);
        Segments { segments: (0..count).map(|_| Segment(RwLock::new(Table::new()))).collect() }
    }

    pub(super) fn count(&self) -> usize {
        self.segments.len()
    }

    fn of(&self, hash: u64) -> &RwLock<Table<V>> {
        &self.segments[(hash >> 32) as usize & (self.segments.len() - 1)].0
    }

    pub(super) fn read(&self, hash: u64) -> RwLockReadGuard<'_, Table<V>> {
        self.of(hash).read()
    }

    pub(super) fn write(&self, hash: u64) -> RwLockWriteGuard<'_, Table<V>> {
        self.of(hash).write()
    }

    /// The segment with this number, modulo their count.
    pub(super) fn write_nth(&self, number: u64) -> RwLockWriteGuard<'_, Table<V>> {
        self.segments[number as usize & (self.segments.len() - 1)].0.write()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use alluvium_base::random::Random;

    use super::*;

    const PLACE: Place = Place { main: false, large: false, class: BlockClass::Data, stamp: 0 };

    #[test]
    fn a_slot_is_half_a_cache_line() {
        assert_eq!(size_of::<Entry<u64>>(), 32);
        assert_eq!(size_of::<Segment<u64>>(), 64);
    }

    #[test]
    fn state_word_keeps_place_and_uses_apart() {
        let place =
            Place { main: true, large: true, class: BlockClass::Filter, stamp: Place::stamp_of(0xfeed_beef) };
        let mut entry = Entry::new(BlockKey { file_id: 1, offset: 2 }, Arc::new(()), 1, PLACE, 0);
        entry.set_place(place, 1);
        (0..5).for_each(|_| assert!(entry.touch()));
        assert_eq!(entry.uses(), USES_MAX);
        let read = entry.place();
        assert_eq!(
            (read.main, read.large, read.class, read.stamp),
            (true, true, BlockClass::Filter, 0xed_beef)
        );
    }

    #[test]
    fn table_agrees_with_a_map_through_growth_and_deletion() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut table = Table::new();
            let mut model: HashMap<BlockKey, u64> = HashMap::new();
            for step in 0..4000u64 {
                let key = BlockKey { file_id: random.below(4), offset: random.below(60) };
                let hash = key.hash();
                // Phases that mostly insert and phases that mostly delete, so that the table grows and shrinks.
                if random.below(10) < if step / 500 % 2 == 0 { 7 } else { 3 } {
                    let old = table.insert(hash, Entry::new(key, Arc::new(step), 1, PLACE, 0));
                    assert_eq!(old.and_then(Entry::into_value).map(|v| *v), model.insert(key, step));
                } else {
                    let slot = table.probe(hash).find(|&slot| table.slots[slot].key == key);
                    let removed = slot.and_then(|slot| table.remove(slot).into_value()).map(|v| *v);
                    assert_eq!(removed, model.remove(&key));
                }
                assert_eq!(table.len, model.len());
                let probe = BlockKey { file_id: random.below(4), offset: random.below(60) };
                assert_eq!(
                    table.get(probe.hash(), probe).map(|(_, value)| **value),
                    model.get(&probe).copied()
                );
            }
            let removed = table.remove_unless(|key| key.file_id != 1);
            assert_eq!(removed.len(), model.keys().filter(|key| key.file_id == 1).count());
            for (key, value) in &model {
                let found = table.get(key.hash(), *key).map(|(_, value)| **value);
                assert_eq!(found, (key.file_id != 1).then_some(*value), "seed {seed}");
            }
        }
    }
}
