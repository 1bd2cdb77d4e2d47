//! The block cache: one byte budget for data, index and filter blocks of all tables.
//!
//! *Lookups* go to a table of small segments ([`segment`]), each under a reader-writer lock of one word: a hit takes the
//! shared side, notes the use in the entry's state word and clones an `Arc`. It takes no exclusive lock and does not
//! know the shards. *Misses* of one block are one read ([`flight`]). *Inserts and evictions* go through shards
//! ([`shard`]), which exist for concurrency only: the budget and the eviction order are the whole cache's ([`evict`]),
//! so neither does a shard run full while others idle, nor does their number change the hit ratio. It is a pure function
//! of capacity, processors and entry size, re-evaluated from what is measured ([`sizing`]).
//!
//! A cache never fails a read: what does not fit is handed to the caller uncached. It never returns a wrong block: it
//! compares whole keys. It starts no thread and draws no random number, so under simulation it replays.
//!
//! It must not know what a block is; [`Charge`] tells what one costs. Lock order: topology (shared), one shard, one
//! segment; a flight's lane is taken alone.

mod admit;
mod evict;
mod flight;
mod forget;
mod ghost;
mod key;
mod probation;
mod queue;
mod resize;
mod segment;
mod shard;
mod sizing;
mod statistics;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use alluvium_base::Result;
use alluvium_base::clock::Clock;
use alluvium_base::sync::{Mutex, WaitStatistics};

use flight::{Boarded, Flights};
use forget::{DeadFiles, PinnedBlocks};
pub use key::{BLOCK_CLASSES, BlockClass, BlockKey, Charge, FillPolicy};
use probation::Probation;
use resize::{Measured, expected_entries};
use segment::Segments;
use shard::{SharedTopology, Topology};
pub use sizing::{SHARDS_MAX, ShardMeasurement, adapt_shards, shard_count};
use statistics::Counters;
pub use statistics::{CacheStatistics, ShardStatistics};

/// What the cache itself needs per block, in bytes: a slot of 32 in a segment that is half to three quarters full, a
/// queue ticket of 16 and half a ghost's place of 4, both with room to grow. Charged with every block.
pub const ENTRY_OVERHEAD_BYTES: usize = 96;

/// How a cache is made.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The budget, in bytes. Zero caches nothing.
    pub capacity_bytes: usize,
    /// Processors that may run readers.
    pub cpus: usize,
    /// Expected average size of a block in memory, in bytes. A guess that is wrong costs a little memory or speed until
    /// the real average has been measured.
    pub average_entry_bytes: usize,
}

/// A cache of blocks of type `V`. See the [module](self).
///
/// ```
/// use std::sync::Arc;
/// use alluvium_base::{clock::SystemClock, sync::WaitStatistics};
/// use alluvium_sstable::cache::{BlockClass, BlockKey, Cache, CacheOptions, Charge, FillPolicy};
///
/// struct Block(Vec<u8>);
/// impl Charge for Block {
///     fn charge(&self) -> usize {
///         size_of::<Block>() + self.0.capacity()
///     }
/// }
///
/// let options = CacheOptions { capacity_bytes: 64 << 20, cpus: 2, average_entry_bytes: 4096 };
/// let cache: Arc<Cache<Block>> = Cache::new(options, SystemClock::shared(), Arc::new(WaitStatistics::default()));
/// let key = BlockKey { file_id: 7, offset: 4096 };
/// let read = || Ok(Arc::new(Block(vec![1; 4096])));
/// let block = cache.get_or_load(key, BlockClass::Data, FillPolicy::Fill, read)?;
/// let again = cache.get_or_load(key, BlockClass::Data, FillPolicy::Fill, || unreachable!("it is cached"))?;
/// assert!(Arc::ptr_eq(&block, &again));
/// # Ok::<(), alluvium_base::Error>(())
/// ```
pub struct Cache<V> {
    segments: Segments<V>,
    flights: Flights<V>,
    topology: SharedTopology,
    pace: Pace,
    probation: Probation,
    counters: Counters,
    dead: DeadFiles,
    pinned: PinnedBlocks<V>,
    last_measured: Mutex<Measured>,
    options: CacheOptions,
    clock: Arc<dyn Clock>,
}

/// What every insert and eviction changes, on cache lines of its own: readers must not lose the lines beside it.
#[repr(align(128))]
#[derive(Default)]
struct Pace {
    capacity: AtomicUsize,
    used: AtomicUsize,
    probation_bytes: AtomicUsize,
    /// Numbers the tickets of all queues.
    sequence: AtomicU64,
    /// Which other shard the next eviction looks at.
    rotation: AtomicUsize,
}

impl<V: Charge + Send + Sync> Cache<V> {
    /// An empty cache.
    #[must_use]
    pub fn new(options: CacheOptions, clock: Arc<dyn Clock>, waits: Arc<WaitStatistics>) -> Arc<Cache<V>> {
        let entries = expected_entries(options.capacity_bytes, options.average_entry_bytes);
        let shards = shard_count(options.capacity_bytes, options.cpus, options.average_entry_bytes);
        Arc::new(Cache {
            segments: Segments::new(entries),
            flights: Flights::new(options.cpus, &clock, &waits),
            topology: SharedTopology::new(Topology::new(shards, entries)),
            pace: Pace { capacity: AtomicUsize::new(options.capacity_bytes), ..Pace::default() },
            probation: Probation::new(options.capacity_bytes),
            counters: Counters::new(options.cpus),
            dead: DeadFiles::default(),
            pinned: PinnedBlocks::new(),
            last_measured: Mutex::new(Measured { at_nanos: clock.monotonic_nanos(), ..Measured::default() }),
            options,
            clock,
        })
    }

    /// The block, from the cache or else from `load`.
    ///
    /// Threads that miss the same block at once share one `load`; it runs without any lock held. It must not read
    /// another block through the cache that another thread's `load` might be waiting for this one.
    ///
    /// # Errors
    /// What `load` returns, or what another thread's `load` of the same block returned at the same time, if that was an
    /// I/O error or damage. Caching never fails.
    pub fn get_or_load(
        &self,
        key: BlockKey,
        class: BlockClass,
        fill: FillPolicy,
        load: impl FnOnce() -> Result<Arc<V>>,
    ) -> Result<Arc<V>> {
        let hash = key.hash();
        match self.look_up(hash, key, class, fill) {
            Some(value) => Ok(value),
            None => self.load_once(hash, key, class, fill, load),
        }
    }

    /// The block, if it is cached. Counts as a use.
    #[must_use]
    pub fn get(&self, key: BlockKey, class: BlockClass) -> Option<Arc<V>> {
        self.look_up(key.hash(), key, class, FillPolicy::Fill)
    }

    /// Puts a block into the cache, in place of one with the same key. False if it does not fit.
    pub fn insert(&self, key: BlockKey, class: BlockClass, value: &Arc<V>) -> bool {
        self.admit(key.hash(), key, class, value)
    }

    /// Tells the cache that a file is gone. Its blocks are swept out as other blocks come in; the caller asks for none
    /// of them any more, and never reuses the id.
    pub fn erase_file(&self, file_id: u64) {
        self.dead.add(file_id, self.segments.count());
    }

    /// What has been counted.
    #[must_use]
    pub fn statistics(&self) -> CacheStatistics {
        let topology = self.topology.read();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let with_waits = |mut statistics: ShardStatistics, shard: &shard::Shard| {
            statistics.lock_waits = load(&shard.lock_waits);
            statistics.lock_wait_nanos = load(&shard.lock_wait_nanos);
            statistics
        };
        let count = topology.shards.len();
        let shards = topology.shards.iter().enumerate();
        let mut statistics = CacheStatistics {
            capacity_bytes: self.capacity_bytes() as u64,
            used_bytes: self.used_bytes() as u64,
            probation_bytes: self.pace.probation_bytes.load(Ordering::Relaxed) as u64,
            probation_target_bytes: self.probation.target() as u64,
            shards: shards
                .map(|(number, shard)| with_waits(self.counters.shard(number, count), shard))
                .collect(),
            large: with_waits(statistics::snapshot(&self.counters.large), &topology.large),
            unfilled_hits: load(&self.counters.events.unfilled_hits),
            unfilled_misses: load(&self.counters.events.unfilled_misses),
            refused: load(&self.counters.events.refused),
            readmitted: load(&self.counters.events.readmitted),
            shared_loads: load(&self.counters.events.shared_loads),
            failed_loads: load(&self.counters.events.failed_loads),
            pinned_evicted_bytes: self.pinned.bytes(),
            dead_files: self.dead.count() as u64,
            lock_waits: load(&self.counters.events.past_lock_waits),
            lock_wait_nanos: load(&self.counters.events.past_lock_wait_nanos),
        };
        let now = statistics.total();
        statistics.lock_waits += now.lock_waits;
        statistics.lock_wait_nanos += now.lock_wait_nanos;
        statistics
    }

    /// Looks a block up, and counts the lookup and the use.
    fn look_up(&self, hash: u64, key: BlockKey, class: BlockClass, fill: FillPolicy) -> Option<Arc<V>> {
        let table = self.segments.read(hash);
        let found = table.get(hash, key);
        let events = &self.counters.events;
        match (fill, found) {
            (FillPolicy::Fill, Some((entry, _))) => {
                let main = entry.touch();
                self.counters.hit(hash, class, main);
            }
            (FillPolicy::Fill, None) => self.counters.miss(hash, class),
            (FillPolicy::NoFill, Some(_)) => _ = events.unfilled_hits.fetch_add(1, Ordering::Relaxed),
            (FillPolicy::NoFill, None) => _ = events.unfilled_misses.fetch_add(1, Ordering::Relaxed),
        }
        found.map(|(_, value)| Arc::clone(value))
    }

    /// Looks a block up again that was counted as missed.
    fn find(&self, hash: u64, key: BlockKey) -> Option<Arc<V>> {
        self.segments.read(hash).get(hash, key).map(|(_, value)| Arc::clone(value))
    }

    #[cold]
    fn load_once(
        &self,
        hash: u64,
        key: BlockKey,
        class: BlockClass,
        fill: FillPolicy,
        load: impl FnOnce() -> Result<Arc<V>>,
    ) -> Result<Arc<V>> {
        loop {
            match self.flights.board(hash, key, fill) {
                Boarded::Load(ticket) => {
                    // Whoever loaded it between our look and our boarding put it into the cache before landing.
                    if let Some(value) = self.find(hash, key) {
                        ticket.land(Ok(&value));
                        return Ok(value);
                    }
                    let result = load();
                    match &result {
                        Ok(value) if fill == FillPolicy::Fill || ticket.fill_wanted() => {
                            self.admit(hash, key, class, value);
                        }
                        Ok(_) => {}
                        Err(_) => _ = self.counters.events.failed_loads.fetch_add(1, Ordering::Relaxed),
                    }
                    ticket.land(result.as_ref());
                    return result;
                }
                Boarded::LoadAlone => return load(),
                Boarded::Loaded(value) => {
                    self.counters.events.shared_loads.fetch_add(1, Ordering::Relaxed);
                    return Ok(value);
                }
                Boarded::Failed(error) => return Err(error),
                Boarded::Retry => {
                    if let Some(value) = self.find(hash, key) {
                        return Ok(value);
                    }
                }
            }
        }
    }
}

impl<V> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("options", &self.options).finish_non_exhaustive()
    }
}
