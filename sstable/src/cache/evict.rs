//! The budget: reserving bytes, and choosing what to evict for them. S3-FIFO (Yang et al., SOSP 2023) over shards.
//!
//! 1. A new data block enters the *probation* queue; index and filter blocks, and blocks that were evicted a short while
//!    ago, enter the *main* queue.
//! 2. When room is needed and probation holds more than its share ([`super::probation`]: a tenth, as a rule), its oldest
//!    block is looked at: used since it came, it moves to main; else it is evicted and its hash remembered. So the
//!    blocks of a scan pass through a tenth of the cache and never touch the rest.
//! 3. Otherwise the oldest block of main is looked at: used, it goes to the end of the queue with one use less; else it
//!    is evicted.
//!
//! The budget is one number for the whole cache, and a shard has no capacity of its own. The victim comes from the
//! caller's shard or from one other, in rotation, whichever has the *older* oldest block (two random choices are nearly
//! as good as the best of all: Mitzenmacher 2001). So the shards together behave like one queue, and their number does
//! not change the hit ratio.
//!
//! *Invariant:* bytes are reserved before a block is visible and released after it is gone, so `used` never exceeds the
//! capacity, but for the moment in which the capacity shrinks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Cache;
use super::key::Charge;
use super::probation::Tally;
use super::queue::Ticket;
use super::segment::{Entry, Place};
use super::shard::{QueueKind, Shard, Topology};

/// Evictions after which probation's share is decided anew: a quarter of what the ghost remembers, an eighth of the
/// cache's entries.
const INTERVAL_SHARE: usize = 4;

/// Most blocks of the main queue that one eviction lets off because they were used; then the next one goes, used or not.
const REPRIEVES_MAX: usize = 256;

enum Verdict<V> {
    /// The entry is gone already.
    Stale,
    /// It was used: here is its ticket for the end of the main queue.
    Reprieved(Ticket),
    Evicted(Entry<V>),
}

impl<V: Charge> Cache<V> {
    /// Reserves `charge` bytes, evicting as needed; false if that much cannot be had.
    pub(super) fn reserve(&self, topology: &Topology, home: usize, charge: usize) -> bool {
        loop {
            let capacity = self.pace.capacity.load(Ordering::Acquire);
            let with_charge = |used: usize| used.checked_add(charge).filter(|&sum| sum <= capacity);
            if self.pace.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, with_charge).is_ok() {
                return true;
            }
            if !self.evict_one(topology, home) {
                return false;
            }
        }
    }

    /// Evicts until what is used fits the capacity.
    pub(super) fn trim(&self, topology: &Topology) {
        while self.pace.used.load(Ordering::Acquire) > self.pace.capacity.load(Ordering::Acquire) {
            if !self.evict_one(topology, 0) {
                return;
            }
        }
    }

    /// Evicts one block; false if there is none.
    fn evict_one(&self, topology: &Topology, home: usize) -> bool {
        let probation = self.pace.probation_bytes.load(Ordering::Relaxed);
        let order = if probation > self.probation.target() {
            [QueueKind::Probation, QueueKind::Main]
        } else {
            [QueueKind::Main, QueueKind::Probation]
        };
        let candidates = topology.shards.len() + 1;
        let other = self.pace.rotation.fetch_add(1, Ordering::Relaxed) % candidates;
        for kind in order {
            let (home, other) = (topology.nth(home), topology.nth(other));
            let first = if other.oldest(kind) < home.oldest(kind) { other } else { home };
            if self.evict_from(topology, first, kind) {
                return true;
            }
            if (0..candidates).any(|number| self.evict_from(topology, topology.nth(number), kind)) {
                return true;
            }
        }
        false
    }

    /// Evicts one block from a queue of a shard; false if the queue runs empty first.
    fn evict_from(&self, topology: &Topology, shard: &Shard, kind: QueueKind) -> bool {
        let mut reprieved = None;
        let mut reprieves = 0;
        while let Some(ticket) = shard.pop(&*self.clock, kind, reprieved.take()) {
            let may_reprieve = kind == QueueKind::Probation || reprieves < REPRIEVES_MAX;
            match self.judge(ticket, may_reprieve) {
                Verdict::Stale => shard.count_stale(-1),
                Verdict::Reprieved(ticket) => {
                    reprieved = Some(ticket);
                    reprieves += 1;
                }
                Verdict::Evicted(entry) => {
                    if kind == QueueKind::Probation {
                        topology.ghost.remember(ticket.hash);
                    }
                    let region = self.counters.region(ticket.hash, entry.place().large);
                    region.evictions.fetch_add(1, Ordering::Relaxed);
                    self.release(ticket.hash, entry);
                    self.adapt_probation(topology);
                    return true;
                }
            }
        }
        false
    }

    fn adapt_probation(&self, topology: &Topology) {
        let interval = (topology.ghost.places() / INTERVAL_SHARE) as u64;
        self.probation.note_eviction(interval, self.pace.capacity.load(Ordering::Relaxed), || Tally {
            main_hits: self.counters.main_hits(),
            returns: self.counters.events.readmitted.load(Ordering::Relaxed),
        });
    }

    /// What becomes of the entry of a ticket that was taken out of its queue.
    fn judge(&self, ticket: Ticket, may_reprieve: bool) -> Verdict<V> {
        let mut table = self.segments.write(ticket.hash);
        let Some(slot) = table.find_stamp(ticket.hash, Place::stamp_of(ticket.sequence)) else {
            return Verdict::Stale;
        };
        let entry = table.entry_mut(slot);
        let (uses, place) = (entry.uses(), entry.place());
        if uses == 0 || !may_reprieve {
            return Verdict::Evicted(table.remove(slot));
        }
        let sequence = self.pace.sequence.fetch_add(1, Ordering::Relaxed);
        // In main a use buys a round; whoever comes from probation starts there with none.
        let uses_left = if place.main { uses - 1 } else { 0 };
        entry.set_place(Place { main: true, stamp: Place::stamp_of(sequence), ..place }, uses_left);
        if !place.main {
            self.pace.probation_bytes.fetch_sub(entry.charge as usize, Ordering::Relaxed);
        }
        Verdict::Reprieved(Ticket { hash: ticket.hash, sequence })
    }

    /// Gives the bytes of an entry back that has left its segment. No lock may be held: dropping a block takes time.
    pub(super) fn release(&self, hash: u64, entry: Entry<V>) {
        let (place, charge) = (entry.place(), entry.charge);
        let region = self.counters.region(hash, place.large);
        region.entries.fetch_sub(1, Ordering::Relaxed);
        region.bytes.fetch_sub(u64::from(charge), Ordering::Relaxed);
        if !place.main {
            self.pace.probation_bytes.fetch_sub(charge as usize, Ordering::Relaxed);
        }
        if let Some(value) = entry.into_value() {
            self.pinned.note(&value, u64::from(charge));
            drop::<Arc<V>>(value);
        }
        self.pace.used.fetch_sub(charge as usize, Ordering::AcqRel);
    }
}
