//! Putting a block into the cache, and sweeping out those of dead files on the way.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::key::{BlockClass, BlockKey, Charge};
use super::queue::Ticket;
use super::segment::{Entry, Place, USES_MAX};
use super::shard::{QueueKind, Topology};
use super::{Cache, ENTRY_OVERHEAD_BYTES};

/// An entry above this share of the capacity (1/256) bypasses the shards.
const LARGE_SHARE: usize = 256;
/// An entry above this share of the capacity (1/8) is not cached: it would push out too much for one block.
const REFUSED_SHARE: usize = 8;
/// Uses with which index and filter blocks start: they survive two rounds of the main queue without being used.
const PRIORITY_USES: u32 = USES_MAX - 1;

impl<V: Charge> Cache<V> {
    /// Caches a block if it fits.
    pub(super) fn admit(&self, hash: u64, key: BlockKey, class: BlockClass, value: &Arc<V>) -> bool {
        let topology = self.topology.read();
        self.sweep_dead(&topology);
        let admitted = self.try_admit(&topology, hash, key, class, value);
        if !admitted {
            self.counters.events.refused.fetch_add(1, Ordering::Relaxed);
        }
        // The capacity may have shrunk between our reservation and our insertion.
        self.trim(&topology);
        admitted
    }

    fn try_admit(
        &self,
        topology: &Topology,
        hash: u64,
        key: BlockKey,
        class: BlockClass,
        value: &Arc<V>,
    ) -> bool {
        let charge = value.charge().saturating_add(ENTRY_OVERHEAD_BYTES);
        let capacity = self.pace.capacity.load(Ordering::Acquire);
        let Ok(charge_word) = u32::try_from(charge) else { return false };
        if charge > capacity / REFUSED_SHARE || self.dead.contains(key.file_id) {
            return false;
        }
        let large = charge > capacity / LARGE_SHARE;
        let home = topology.number(hash, large);
        if !self.reserve(topology, home, charge) {
            return false;
        }
        let known = class == BlockClass::Data && topology.ghost.recall(hash);
        self.counters.events.readmitted.fetch_add(u64::from(known), Ordering::Relaxed);
        let main = known || class != BlockClass::Data;
        self.count_in(hash, charge, main, large);

        // First the entry, then its ticket: an entry without a ticket would never be evicted.
        let sequence = self.pace.sequence.fetch_add(1, Ordering::Relaxed);
        let place = Place { main, large, class, stamp: Place::stamp_of(sequence) };
        let uses = if class == BlockClass::Data { 0 } else { PRIORITY_USES };
        let entry = Entry::new(key, Arc::clone(value), charge_word, place, uses);
        let replaced = self.segments.write(hash).insert(hash, entry);
        if let Some(replaced) = replaced {
            self.forget(topology, replaced);
        }
        let kind = if main { QueueKind::Main } else { QueueKind::Probation };
        topology.nth(home).push(&*self.clock, kind, Ticket { hash, sequence }, |ticket| {
            self.segments
                .read(ticket.hash)
                .find_stamp(ticket.hash, Place::stamp_of(ticket.sequence))
                .is_some()
        });
        true
    }

    /// Counts a block before it becomes visible, so that whoever takes it out again never counts below zero.
    fn count_in(&self, hash: u64, charge: usize, main: bool, large: bool) {
        let region = self.counters.region(hash, large);
        region.entries.fetch_add(1, Ordering::Relaxed);
        region.bytes.fetch_add(charge as u64, Ordering::Relaxed);
        region.inserts.fetch_add(1, Ordering::Relaxed);
        if !main {
            self.pace.probation_bytes.fetch_add(charge, Ordering::Relaxed);
        }
    }

    /// Sweeps one segment for blocks of dead files, if there are any.
    fn sweep_dead(&self, topology: &Topology) {
        if !self.dead.any() {
            return;
        }
        let Some((segment, files)) = self.dead.next() else { return };
        let removed = self.segments.write_nth(segment).remove_unless(|key| !files.contains(&key.file_id));
        removed.into_iter().for_each(|entry| self.forget(topology, entry));
    }

    /// Lets go of an entry that was taken out of its segment while its ticket is still in a queue.
    fn forget(&self, topology: &Topology, entry: Entry<V>) {
        let hash = entry.key.hash();
        topology.nth(topology.number(hash, entry.place().large)).count_stale(1);
        self.release(hash, entry);
    }
}
