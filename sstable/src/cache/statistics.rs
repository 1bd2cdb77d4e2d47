//! What the cache counts, and how little that costs.
//!
//! Everything is counted by *region*: one of 256 equal parts of the hash space. A shard is a run of regions, so its
//! numbers are a sum, and survive any change of the number of shards. Hits, the only thing counted on the hot path, are
//! counted in stripes by thread, so that readers do not share a line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::key::{BLOCK_CLASSES, BlockClass};
use super::sizing::SHARDS_MAX;

/// As many as there may be shards.
const REGIONS: usize = SHARDS_MAX;

/// The numbers of one shard, or of the whole cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardStatistics {
    /// Blocks cached now.
    pub entries: u64,
    /// Bytes charged for them.
    pub bytes: u64,
    /// Lookups that found their block, by [`BlockClass`].
    pub hits: [u64; BLOCK_CLASSES],
    /// Lookups that did not.
    pub misses: [u64; BLOCK_CLASSES],
    /// Blocks put in.
    pub inserts: u64,
    /// Blocks taken out to make room.
    pub evictions: u64,
    /// Times that a thread had to wait for the shard, since the number of shards last changed.
    pub lock_waits: u64,
    /// How long they waited, in nanoseconds.
    pub lock_wait_nanos: u64,
}

impl ShardStatistics {
    pub(super) fn add(&mut self, other: &ShardStatistics) {
        self.entries += other.entries;
        self.bytes += other.bytes;
        for class in 0..BLOCK_CLASSES {
            self.hits[class] += other.hits[class];
            self.misses[class] += other.misses[class];
        }
        self.inserts += other.inserts;
        self.evictions += other.evictions;
        self.lock_waits += other.lock_waits;
        self.lock_wait_nanos += other.lock_wait_nanos;
    }

    /// Share of lookups that found their block, 0 to 1; 0 if there was none.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        let hits: u64 = self.hits.iter().sum();
        let lookups = hits + self.misses.iter().sum::<u64>();
        if lookups == 0 { 0.0 } else { hits as f64 / lookups as f64 }
    }
}

/// The numbers of a cache at one moment; counted without a lock, so they may differ by operations in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// The budget, in bytes.
    pub capacity_bytes: u64,
    /// Bytes charged against it, reservations of inserts in progress included.
    pub used_bytes: u64,
    /// Bytes in probation, not yet used again.
    pub probation_bytes: u64,
    /// Bytes above which victims come from probation: a tenth of the capacity unless readers have moved to other blocks.
    pub probation_target_bytes: u64,
    /// Each shard. Hits and misses of large entries are counted in the shard of their hash.
    pub shards: Vec<ShardStatistics>,
    /// Entries above 1/256 of the capacity, which bypass the shards.
    pub large: ShardStatistics,
    /// Reads that asked not to fill the cache and found their block in it.
    pub unfilled_hits: u64,
    /// Reads that asked not to fill the cache and did not find their block.
    pub unfilled_misses: u64,
    /// Blocks handed to the caller uncached because they did not fit.
    pub refused: u64,
    /// Blocks that came back soon after they were evicted, and went straight into the main queue.
    pub readmitted: u64,
    /// Misses answered by another thread's read.
    pub shared_loads: u64,
    /// Reads that failed.
    pub failed_loads: u64,
    /// Bytes of blocks that are evicted or erased but still referenced by a reader.
    pub pinned_evicted_bytes: u64,
    /// Files whose blocks are still being swept out.
    pub dead_files: u64,
    /// Times that a thread had to wait for any shard since the cache was made.
    pub lock_waits: u64,
    /// How long they waited, in nanoseconds.
    pub lock_wait_nanos: u64,
}

impl CacheStatistics {
    /// The sum over all shards and the large entries.
    #[must_use]
    pub fn total(&self) -> ShardStatistics {
        let mut total = self.large.clone();
        self.shards.iter().for_each(|shard| total.add(shard));
        total
    }
}

/// What changes with inserts, misses and evictions, on a line of its own.
#[repr(align(64))]
#[derive(Default)]
pub(super) struct RegionCounters {
    pub(super) entries: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) misses: [AtomicU64; BLOCK_CLASSES],
    pub(super) inserts: AtomicU64,
    pub(super) evictions: AtomicU64,
}

/// By region, class, and queue (probation, main).
type HitStripe = Box<[[[AtomicU64; 2]; BLOCK_CLASSES]]>;

pub(super) struct Counters {
    regions: Box<[RegionCounters]>,
    pub(super) large: RegionCounters,
    hits: Box<[HitStripe]>,
    pub(super) events: Events,
}

/// Counters of rarer things, apart from what every lookup reads.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Events {
    pub(super) unfilled_hits: AtomicU64,
    pub(super) unfilled_misses: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) readmitted: AtomicU64,
    pub(super) shared_loads: AtomicU64,
    pub(super) failed_loads: AtomicU64,
    /// Waits at shards that are gone.
    pub(super) past_lock_waits: AtomicU64,
    pub(super) past_lock_wait_nanos: AtomicU64,
}

thread_local! {
    /// Which stripe this thread counts in; `usize::MAX` until its first hit.
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn stripe_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            stripe.set(THREADS.fetch_add(1, Ordering::Relaxed));
        }
        stripe.get()
    })
}

fn region_of(hash: u64) -> usize {
    (hash >> (u64::BITS - REGIONS.trailing_zeros())) as usize
}

impl Counters {
    pub(super) fn new(cpus: usize) -> Counters {
        const STRIPES_MAX: usize = 64;
        let stripes = cpus.next_power_of_two().clamp(1, STRIPES_MAX);
        let stripe = || (0..REGIONS).map(|_| Default::default()).collect();
        Counters {
            regions: (0..REGIONS).map(|_| RegionCounters::default()).collect(),
            large: RegionCounters::default(),
            hits: (0..stripes).map(|_| stripe()).collect(),
            events: Events::default(),
        }
    }

    pub(super) fn hit(&self, hash: u64, class: BlockClass, main: bool) {
        let stripe = &self.hits[stripe_of_thread() & (self.hits.len() - 1)];
        stripe[region_of(hash)][class as usize][usize::from(main)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn miss(&self, hash: u64, class: BlockClass) {
        self.regions[region_of(hash)].misses[class as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Where an entry is counted.
    pub(super) fn region(&self, hash: u64, large: bool) -> &RegionCounters {
        if large { &self.large } else { &self.regions[region_of(hash)] }
    }

    /// Hits of blocks in the main queues.
    pub(super) fn main_hits(&self) -> u64 {
        let of_stripe = |stripe: &HitStripe| -> u64 {
            stripe.iter().flatten().map(|[_, main]| main.load(Ordering::Relaxed)).sum()
        };
        self.hits.iter().map(of_stripe).sum()
    }

    /// Entries in the shards, without the large ones, and their bytes.
    pub(super) fn occupancy(&self) -> (u64, u64) {
        self.regions.iter().fold((0, 0), |(entries, bytes), region| {
            (entries + region.entries.load(Ordering::Relaxed), bytes + region.bytes.load(Ordering::Relaxed))
        })
    }

    /// The numbers of the `number`-th of `shards` shards, without its lock waits.
    pub(super) fn shard(&self, number: usize, shards: usize) -> ShardStatistics {
        let width = REGIONS / shards.max(1);
        let mut sum = ShardStatistics::default();
        for region in number * width..(number + 1) * width {
            sum.add(&snapshot(&self.regions[region]));
            for stripe in &self.hits {
                for (total, hits) in sum.hits.iter_mut().zip(&stripe[region]) {
                    *total += hits.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
                }
            }
        }
        sum
    }
}

pub(super) fn snapshot(region: &RegionCounters) -> ShardStatistics {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    ShardStatistics {
        entries: load(&region.entries),
        bytes: load(&region.bytes),
        misses: [0, 1, 2].map(|class| load(&region.misses[class])),
        inserts: load(&region.inserts),
        evictions: load(&region.evictions),
        ..ShardStatistics::default()
    }
}
