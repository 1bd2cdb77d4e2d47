//! Changing the capacity and the number of shards while running.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Cache;
use super::ENTRY_OVERHEAD_BYTES;
use super::ghost::Ghost;
use super::key::Charge;
use super::shard::Topology;
use super::sizing::{SHARDS_MAX, ShardMeasurement, adapt_shards, shard_count};

/// With fewer entries than this the measured average says little, and the configured one is used.
const AVERAGE_ENTRIES_MIN: u64 = 1024;

/// Where the current interval of measuring began.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) at_nanos: u64,
    pub(super) lock_wait_nanos: u64,
}

/// How many blocks a cache will hold, about.
pub(super) fn expected_entries(capacity_bytes: usize, average_entry_bytes: usize) -> usize {
    capacity_bytes / average_entry_bytes.saturating_add(ENTRY_OVERHEAD_BYTES)
}

impl<V: Charge + Send + Sync> Cache<V> {
    /// The budget, in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.pace.capacity.load(Ordering::Acquire)
    }

    /// Bytes charged against the budget now.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.pace.used.load(Ordering::Acquire)
    }

    /// Changes the budget, evicting what no longer fits, and the number of shards with it.
    pub fn set_capacity(&self, capacity_bytes: usize) {
        self.pace.capacity.store(capacity_bytes, Ordering::Release);
        self.probation.reset(capacity_bytes);
        self.trim(&self.topology.read());
        let average = self.average_entry_bytes();
        let mut topology = self.topology.write();
        topology.ghost = Ghost::new(expected_entries(capacity_bytes, average));
        self.reshard(&mut topology, shard_count(capacity_bytes, self.options.cpus, average));
    }

    /// The number of shards now.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.topology.read().shards.len()
    }

    /// Changes the number of shards, rounded down to a power of two between 1 and [`SHARDS_MAX`]. Lookups go on
    /// meanwhile; inserts wait for some milliseconds per million entries.
    pub fn set_shards(&self, shards: usize) {
        let shards = 1 << shards.clamp(1, SHARDS_MAX).ilog2();
        self.reshard(&mut self.topology.write(), shards);
    }

    /// Re-evaluates the number of shards from what was measured since the last call ([`adapt_shards`]), and returns it.
    /// To be called every few seconds.
    pub fn adapt(&self) -> usize {
        let measurement = self.measure();
        let shards = adapt_shards(&measurement);
        if shards != measurement.shard_bytes.len() {
            self.set_shards(shards);
        }
        shards
    }

    /// What [`adapt_shards`] decides by; starts a new interval.
    fn measure(&self) -> ShardMeasurement {
        let statistics = self.statistics();
        let mut last = self.last_measured.lock();
        let now =
            Measured { at_nanos: self.clock.monotonic_nanos(), lock_wait_nanos: statistics.lock_wait_nanos };
        let measurement = ShardMeasurement {
            capacity_bytes: self.capacity_bytes(),
            cpus: self.options.cpus,
            average_entry_bytes: self.average_entry_bytes(),
            shard_bytes: statistics.shards.iter().map(|shard| shard.bytes).collect(),
            lock_wait_nanos: now.lock_wait_nanos.saturating_sub(last.lock_wait_nanos),
            interval_nanos: now.at_nanos.saturating_sub(last.at_nanos),
        };
        *last = now;
        measurement
    }

    /// Average bytes of an entry, large ones apart.
    fn average_entry_bytes(&self) -> usize {
        match self.counters.occupancy() {
            (entries, bytes) if entries >= AVERAGE_ENTRIES_MIN => (bytes / entries) as usize,
            _ => self.options.average_entry_bytes,
        }
    }

    fn reshard(&self, topology: &mut Topology, shards: usize) {
        if topology.shards.len() == shards {
            return;
        }
        let add =
            |to: &AtomicU64, from: &AtomicU64| to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        for shard in &topology.shards {
            add(&self.counters.events.past_lock_waits, &shard.lock_waits);
            add(&self.counters.events.past_lock_wait_nanos, &shard.lock_wait_nanos);
        }
        topology.reshard(shards);
    }
}
