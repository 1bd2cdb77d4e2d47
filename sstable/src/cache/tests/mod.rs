//! What must hold of the cache as a whole. Real threads are used here only to provoke races.

mod budget;
mod eviction;
mod model;
mod sharding;
mod single_flight;

use alluvium_base::clock::SystemClock;

use super::*;

/// A block that knows which key it belongs to, so that a wrong one is noticed.
#[derive(Debug, PartialEq)]
struct Block {
    key: BlockKey,
    version: u64,
    bytes: usize,
}

impl Charge for Block {
    fn charge(&self) -> usize {
        self.bytes
    }
}

const BLOCK_BYTES: usize = 4096;
const MIB: usize = 1 << 20;

fn key(file_id: u64, block: u64) -> BlockKey {
    BlockKey { file_id, offset: block * BLOCK_BYTES as u64 }
}

fn block_of(key: BlockKey, bytes: usize) -> Arc<Block> {
    Arc::new(Block { key, version: 0, bytes })
}

fn cache_of(capacity_bytes: usize, cpus: usize) -> Arc<Cache<Block>> {
    let options = CacheOptions { capacity_bytes, cpus, average_entry_bytes: BLOCK_BYTES };
    Cache::new(options, SystemClock::shared(), Arc::new(WaitStatistics::default()))
}

/// Reads a data block through the cache; true if it was a hit.
fn read(cache: &Cache<Block>, key: BlockKey) -> bool {
    read_as(cache, key, BlockClass::Data, FillPolicy::Fill, BLOCK_BYTES)
}

fn read_as(cache: &Cache<Block>, key: BlockKey, class: BlockClass, fill: FillPolicy, bytes: usize) -> bool {
    let mut hit = true;
    let load = || {
        hit = false;
        Ok(block_of(key, bytes))
    };
    assert_eq!(cache.get_or_load(key, class, fill, load).unwrap().key, key, "the block of another key");
    hit
}

/// Checks everything that must hold when no operation is in progress.
fn check_settled(cache: &Cache<Block>) {
    let statistics = cache.statistics();
    let total = statistics.total();
    assert_eq!(total.bytes, statistics.used_bytes, "the shards' bytes are the used bytes");
    assert!(statistics.used_bytes <= statistics.capacity_bytes, "{statistics:?}");
    assert!(statistics.probation_bytes <= statistics.used_bytes, "{statistics:?}");
    assert_eq!(cache.flights.count(), 0, "no load is left behind");
    let mut entries = 0;
    let mut bytes = 0;
    for segment in 0..cache.segments.count() as u64 {
        cache.segments.write_nth(segment).for_each(|entry| {
            entries += 1;
            bytes += u64::from(entry.charge);
        });
    }
    assert_eq!((total.entries, total.bytes), (entries, bytes), "counted is what is there");
    assert_eq!(cache.queued_entries(), entries, "each entry has exactly one live ticket");
}

impl Cache<Block> {
    fn tickets(&self) -> usize {
        self.count_tickets(|_| true)
    }

    /// Entries that have a ticket in a queue.
    fn queued_entries(&self) -> u64 {
        let live = |ticket: &queue::Ticket| {
            let stamp = segment::Place::stamp_of(ticket.sequence);
            self.segments.read(ticket.hash).find_stamp(ticket.hash, stamp).is_some()
        };
        self.count_tickets(live) as u64
    }

    fn count_tickets(&self, counted: impl Fn(&queue::Ticket) -> bool) -> usize {
        let topology = self.topology.read();
        let shards = topology.shards.iter().chain([&topology.large]);
        shards.map(|shard| shard.tickets().iter().filter(|ticket| counted(ticket)).count()).sum()
    }
}
