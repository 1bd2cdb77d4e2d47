//! What must hold of the cache as a whole. Real threads are used here only to provoke races.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use alluvium_base::clock::{SimulatedClock, SystemClock};
use alluvium_base::random::Random;
use alluvium_base::sync::{Simulation, WaitReason, enter_simulation};
use alluvium_base::{Error, ErrorKind};

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

#[test]
fn capacity_of_zero_caches_nothing_and_serves_reads() {
    let cache = cache_of(0, 2);
    for round in 0..3 {
        for block in 0..100 {
            assert!(!read(&cache, key(1, block)), "round {round}");
        }
    }
    let statistics = cache.statistics();
    assert_eq!((statistics.used_bytes, statistics.total().entries, statistics.refused), (0, 0, 300));
    assert!(!cache.insert(key(1, 1), BlockClass::Data, &block_of(key(1, 1), 1)));
    check_settled(&cache);
}

#[test]
fn one_mebibyte_serves_blocks_of_every_size() {
    let cache = cache_of(MIB, 16);
    assert_eq!(cache.shards(), 1);
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let block = random.below(1000);
        let class = [BlockClass::Data, BlockClass::Index, BlockClass::Filter][(block % 3) as usize];
        read_as(&cache, key(1, block), class, FillPolicy::Fill, 1 << (block % 22));
        assert!(cache.used_bytes() <= MIB);
    }
    assert!(cache.used_bytes() > MIB / 2, "it is used");
    check_settled(&cache);
}

#[test]
fn an_entry_above_an_eighth_of_the_capacity_is_returned_uncached() {
    let cache = cache_of(MIB, 2);
    read(&cache, key(1, 0));
    assert!(!read_as(&cache, key(2, 0), BlockClass::Data, FillPolicy::Fill, MIB / 8));
    assert!(!read_as(&cache, key(2, 0), BlockClass::Data, FillPolicy::Fill, MIB / 8));
    assert!(!read_as(&cache, key(2, 1), BlockClass::Data, FillPolicy::Fill, usize::MAX));
    assert!(read(&cache, key(1, 0)), "nothing was pushed out for them");
    assert_eq!(cache.statistics().refused, 3);
    check_settled(&cache);
}

#[test]
fn large_entries_bypass_the_shards_within_the_budget() {
    let cache = cache_of(256 * MIB, 2);
    assert_eq!(cache.shards(), 4);
    for block in 0..300 {
        read_as(&cache, key(1, block), BlockClass::Data, FillPolicy::Fill, 2 * MIB);
        read(&cache, key(2, block));
    }
    let statistics = cache.statistics();
    assert!(statistics.large.bytes > 200 * MIB as u64 && statistics.large.evictions > 100, "{statistics:?}");
    assert_eq!(statistics.shards.iter().map(|shard| shard.inserts).sum::<u64>(), 300);
    check_settled(&cache);
}

#[test]
fn budget_holds_at_every_moment_under_concurrency() {
    let cache = cache_of(2 * MIB, 2);
    cache.set_shards(8);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(cache.used_bytes() <= 2 * MIB);
            }
        });
        let workers: Vec<_> = (0..6)
            .map(|seed| {
                let cache = &cache;
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..20_000 {
                        let block = random.below(2000);
                        match random.below(20) {
                            0 => drop(cache.get(key(1, block), BlockClass::Data)),
                            1 => {
                                _ = cache.insert(
                                    key(1, block),
                                    BlockClass::Data,
                                    &block_of(key(1, block), 100),
                                )
                            }
                            2 => cache.set_shards(1 << random.below(6)),
                            _ => {
                                _ = read_as(
                                    cache,
                                    key(1, block),
                                    BlockClass::Data,
                                    FillPolicy::Fill,
                                    (block * 4 % 9000) as usize,
                                )
                            }
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(cache.statistics().total().evictions > 0, "the test must reach the limit");
    check_settled(&cache);
}

#[test]
fn sixteen_threads_missing_one_block_read_it_once() {
    for round in 0..50 {
        let cache = cache_of(MIB, 2);
        let loads = AtomicUsize::new(0);
        let start = Barrier::new(16);
        thread::scope(|scope| {
            for thread in 0..16 {
                let (cache, loads, start) = (&cache, &loads, &start);
                // Even when nobody keeps the block, those who came meanwhile share the read.
                let fill = if thread % 2 == 0 { FillPolicy::Fill } else { FillPolicy::NoFill };
                scope.spawn(move || {
                    start.wait();
                    let load = || {
                        loads.fetch_add(1, Ordering::SeqCst);
                        while cache.flights.waiters() < 15 {
                            thread::yield_now();
                        }
                        Ok(block_of(key(1, round), BLOCK_BYTES))
                    };
                    let block = cache.get_or_load(key(1, round), BlockClass::Data, fill, load).unwrap();
                    assert_eq!(block.key, key(1, round));
                });
            }
        });
        assert_eq!(loads.load(Ordering::SeqCst), 1);
        assert!(cache.get(key(1, round), BlockClass::Data).is_some(), "one who waited wanted it cached");
        check_settled(&cache);
    }
}

#[test]
fn waits_for_another_thread_are_counted_as_cache_fill() {
    let waits = Arc::new(WaitStatistics::default());
    let options = CacheOptions { capacity_bytes: MIB, cpus: 2, average_entry_bytes: BLOCK_BYTES };
    let cache: Arc<Cache<Block>> = Cache::new(options, SystemClock::shared(), Arc::clone(&waits));
    let loading = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let load = || {
                loading.wait();
                thread::sleep(Duration::from_millis(20));
                Ok(block_of(key(1, 1), 1))
            };
            cache.get_or_load(key(1, 1), BlockClass::Data, FillPolicy::Fill, load).unwrap();
        });
        loading.wait();
        let load = || unreachable!("another thread loads it");
        cache.get_or_load(key(1, 1), BlockClass::Data, FillPolicy::Fill, load).unwrap();
    });
    let (count, nanos) = waits.get(WaitReason::CacheFill);
    assert!(count == 1 && nanos > 1_000_000, "{count} waits of {nanos} ns");
    assert_eq!(cache.statistics().shared_loads, 1);
}

/// Runs `first` as the loader of a block while a second reader waits for it, and returns both outcomes. The second
/// reader's own load succeeds.
fn first_fails_while_second_waits(
    first: impl FnOnce() -> Result<Arc<Block>> + Send,
) -> (thread::Result<Result<Arc<Block>>>, Result<Arc<Block>>) {
    let cache = cache_of(MIB, 2);
    let loading = Barrier::new(2);
    let outcomes = thread::scope(|scope| {
        let loader = scope.spawn(|| {
            let load = || {
                loading.wait();
                while cache.flights.waiters() == 0 {
                    thread::yield_now();
                }
                first()
            };
            catch_unwind(AssertUnwindSafe(|| {
                cache.get_or_load(key(1, 1), BlockClass::Data, FillPolicy::Fill, load)
            }))
        });
        loading.wait();
        let load = || Ok(block_of(key(1, 1), BLOCK_BYTES));
        let second = cache.get_or_load(key(1, 1), BlockClass::Data, FillPolicy::Fill, load);
        (loader.join().unwrap(), second)
    });
    // Whatever happened, the block can be read now.
    read(&cache, key(1, 1));
    check_settled(&cache);
    outcomes
}

#[test]
fn damage_fails_everyone_who_waited() {
    let (first, second) = first_fails_while_second_waits(|| Err(Error::corrupt("1.sst", 4096, "checksum")));
    assert!(first.unwrap().unwrap_err().is_corrupt());
    assert!(second.unwrap_err().is_corrupt());
}

#[test]
fn a_cancelled_load_is_repeated_by_those_who_waited() {
    let (first, second) =
        first_fails_while_second_waits(|| Err(ErrorKind::Cancelled { what: "scan" }.into()));
    assert!(matches!(first.unwrap().unwrap_err().kind(), ErrorKind::Cancelled { .. }));
    assert_eq!(second.unwrap().key, key(1, 1));
}

#[test]
fn a_panicking_load_is_repeated_by_those_who_waited() {
    let (first, second) = first_fails_while_second_waits(|| panic!("in the loader"));
    assert!(first.is_err());
    assert_eq!(second.unwrap().key, key(1, 1));
}

#[test]
fn failed_and_panicked_loads_leave_nothing_behind() {
    let cache = cache_of(MIB, 2);
    let failing = || Err(Error::corrupt("1.sst", 0, "checksum"));
    assert!(cache.get_or_load(key(1, 1), BlockClass::Data, FillPolicy::Fill, failing).is_err());
    let panicking =
        || cache.get_or_load(key(1, 1), BlockClass::Data, FillPolicy::Fill, || panic!("in the loader"));
    assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
    check_settled(&cache);
    assert!(!read(&cache, key(1, 1)));
    assert!(read(&cache, key(1, 1)));
    assert_eq!(cache.statistics().failed_loads, 1);
}

/// A simulation whose only job reads one block.
struct OneReader {
    cache: Arc<Cache<Block>>,
    clock: Arc<SimulatedClock>,
}

impl Simulation for OneReader {
    fn run_one(&self) -> bool {
        read(&self.cache, key(1, 1));
        true
    }

    fn advance(&self, limit: Option<Duration>) -> bool {
        self.clock.advance(limit.unwrap_or_default());
        true
    }
}

#[test]
fn a_load_that_yields_to_a_reader_of_the_same_block_does_not_deadlock_in_simulation() {
    let clock = SimulatedClock::new();
    let options = CacheOptions { capacity_bytes: MIB, cpus: 2, average_entry_bytes: BLOCK_BYTES };
    let cache: Arc<Cache<Block>> = Cache::new(options, clock.clone(), Arc::new(WaitStatistics::default()));
    let reader = Arc::new(OneReader { cache: Arc::clone(&cache), clock });
    let _simulation = enter_simulation(reader.clone());
    let load = || {
        reader.run_one();
        Ok(block_of(key(1, 1), BLOCK_BYTES))
    };
    cache.get_or_load(key(1, 1), BlockClass::Data, FillPolicy::Fill, load).unwrap();
    assert!(read(&cache, key(1, 1)));
    check_settled(&cache);
}

#[test]
fn the_same_operations_give_the_same_state() {
    let run = || {
        let cache = cache_of(4 * MIB, 2);
        cache.set_shards(4);
        let mut random = Random::new(7);
        let hits: Vec<bool> = (0..30_000).map(|_| read(&cache, key(1, random.below(4000)))).collect();
        (hits, cache.statistics())
    };
    assert_eq!(run(), run());
}

#[test]
fn shrinking_evicts_and_growing_makes_room() {
    let cache = cache_of(16 * MIB, 2);
    (0..5000).for_each(|block| _ = read(&cache, key(1, block)));
    let held = cache.get(key(1, 4999), BlockClass::Data).unwrap();
    let full = cache.used_bytes();
    assert!(full > 15 * MIB);
    cache.set_capacity(MIB);
    assert!(cache.used_bytes() <= MIB);
    check_settled(&cache);
    assert_eq!(held.key, key(1, 4999), "what a reader holds stays");
    (0..5000).for_each(|block| _ = read(&cache, key(1, block)));
    check_settled(&cache);
    cache.set_capacity(0);
    assert_eq!(cache.used_bytes(), 0);
    check_settled(&cache);
    cache.set_capacity(16 * MIB);
    (0..5000).for_each(|block| _ = read(&cache, key(1, block)));
    assert_eq!(cache.used_bytes(), full);
    check_settled(&cache);
}

#[test]
fn capacity_sets_the_number_of_shards() {
    let cache = cache_of(64 * MIB, 2);
    assert_eq!(cache.shards(), 1);
    cache.set_capacity(512 * MIB);
    assert_eq!(cache.shards(), 8);
    cache.set_capacity(130 * MIB);
    assert_eq!(cache.shards(), 2);
}

#[test]
fn blocks_and_their_order_survive_a_change_of_shards() {
    let cache = cache_of(8 * MIB, 2);
    (0..1800).for_each(|block| _ = read(&cache, key(1, block)));
    for shards in [2, 64, 3, 1, 256, 1000, 0] {
        cache.set_shards(shards);
        assert_eq!(cache.shards(), 1 << shards.clamp(1, SHARDS_MAX).ilog2());
        assert!(
            (0..1800)
                .all(|block| cache.find(key(1, block).hash(), key(1, block), FillPolicy::NoFill).is_some())
        );
        check_settled(&cache);
    }
    // The oldest go first, as if nothing had happened.
    cache.set_capacity(4 * MIB);
    let kept = |block: u64| cache.find(key(1, block).hash(), key(1, block), FillPolicy::NoFill).is_some();
    assert!((0..800).all(|block| !kept(block)) && (1000..1800).all(kept));
}

#[test]
fn a_change_of_shards_under_load_loses_nothing() {
    let cache = cache_of(4 * MIB, 2);
    thread::scope(|scope| {
        for seed in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..20_000 {
                    read(cache, key(1, random.below(1500)));
                }
            });
        }
        for round in 0..200 {
            cache.set_shards(1 << (round % 8));
            thread::yield_now();
        }
    });
    check_settled(&cache);
}

#[test]
fn adapt_joins_skewed_shards() {
    let cache = cache_of(8 * MIB, 2);
    cache.set_shards(64);
    // Thirty blocks in 64 shards cannot be spread evenly.
    (0..30).for_each(|block| _ = read_as(&cache, key(1, block), BlockClass::Data, FillPolicy::Fill, MIB / 4));
    // They are large here, so only the shards of the small ones count: nothing to judge yet.
    assert_eq!(cache.adapt(), 64);
    let cache = cache_of(64 * MIB, 2);
    cache.set_shards(64);
    let mut random = Random::new(1);
    for _ in 0..300 {
        let key = key(random.below(1000), random.below(1 << 20));
        read_as(&cache, key, BlockClass::Data, FillPolicy::Fill, MIB / 5);
    }
    assert_eq!((cache.adapt(), cache.shards()), (32, 32));
    while cache.adapt() != cache.adapt() {}
    assert!(cache.shards() <= 8, "{}", cache.shards());
    check_settled(&cache);
}

#[test]
fn blocks_of_an_erased_file_are_swept_out_as_others_come_in() {
    let cache = cache_of(16 * MIB, 2);
    for block in 0..1000 {
        read(&cache, key(1, block));
        read(&cache, key(2, block));
    }
    (0..1000).for_each(|block| assert!(read(&cache, key(1, block)), "used, so in no hurry to leave"));
    cache.erase_file(1);
    cache.erase_file(1);
    assert_eq!(cache.statistics().dead_files, 1);
    assert!(!read(&cache, key(1, 5000)), "a late reader is served");
    assert!(!read(&cache, key(1, 5000)), "uncached");
    (0..500).for_each(|block| _ = read(&cache, key(3, block)));
    assert_eq!(cache.statistics().dead_files, 0);
    assert!((0..1000).all(|block| cache.get(key(1, block), BlockClass::Data).is_none()));
    assert!((0..1000).all(|block| cache.get(key(2, block), BlockClass::Data).is_some()));
    assert_eq!(cache.statistics().total().evictions, 0);
    check_settled(&cache);
}

#[test]
fn a_cache_that_never_fills_does_not_pile_up_tickets() {
    let cache = cache_of(64 * MIB, 2);
    for file in 0..200 {
        (0..500).for_each(|block| _ = read(&cache, key(file, block)));
        cache.erase_file(file);
    }
    check_settled(&cache);
    let tickets = cache.tickets();
    assert!(tickets < 20_000, "{tickets} tickets for {} blocks", cache.statistics().total().entries);
}

#[test]
fn a_reader_that_holds_evicted_blocks_is_seen() {
    let cache = cache_of(MIB, 2);
    read(&cache, key(1, 0));
    let held = cache.get(key(1, 0), BlockClass::Data).unwrap();
    assert_eq!(cache.statistics().pinned_evicted_bytes, 0, "cached bytes are counted already");
    cache.set_capacity(0);
    assert_eq!(cache.statistics().pinned_evicted_bytes, (BLOCK_BYTES + ENTRY_OVERHEAD_BYTES) as u64);
    drop(held);
    assert_eq!(cache.statistics().pinned_evicted_bytes, 0);
}

#[test]
fn a_scan_does_not_evict_hot_blocks() {
    let cache = cache_of(8 * MIB, 2);
    let hot = 1000;
    for _ in 0..3 {
        (0..hot).for_each(|block| _ = read(&cache, key(1, block)));
    }
    // A scan of twelve times the cache, with the hot blocks in use meanwhile.
    let mut missed = 0;
    let mut random = Random::new(3);
    for block in 0..24_000 {
        read(&cache, key(2, block));
        missed += usize::from(!read(&cache, key(1, random.below(hot))));
    }
    assert!(missed < 240, "{missed} of 24,000 reads of hot blocks missed");
    check_settled(&cache);
}

#[test]
fn index_and_filter_blocks_outlive_data_blocks() {
    let cache = cache_of(8 * MIB, 2);
    for block in 0..100 {
        read_as(&cache, key(1, block), BlockClass::Index, FillPolicy::Fill, BLOCK_BYTES);
        read_as(&cache, key(2, block), BlockClass::Filter, FillPolicy::Fill, BLOCK_BYTES);
    }
    let mut random = Random::new(5);
    (0..20_000).for_each(|_| _ = read(&cache, key(3, random.below(100_000))));
    let kept = (0..100).filter(|&block| cache.get(key(1, block), BlockClass::Index).is_some()).count();
    assert_eq!(kept, 100);
    // They are not immortal: when nobody uses them, data blocks in use take their place.
    for _ in 0..30 {
        (0..1990).for_each(|block| _ = read(&cache, key(4, block)));
    }
    let kept = (0..100).filter(|&block| cache.get(key(2, block), BlockClass::Filter).is_some()).count();
    assert!(kept < 50, "{kept} unused filter blocks kept");
}

#[test]
fn reads_that_do_not_fill_leave_no_trace() {
    let cache = cache_of(MIB, 2);
    assert!(!read_as(&cache, key(1, 1), BlockClass::Data, FillPolicy::NoFill, BLOCK_BYTES));
    assert!(!read_as(&cache, key(1, 1), BlockClass::Data, FillPolicy::NoFill, BLOCK_BYTES));
    read(&cache, key(1, 1));
    assert!(read_as(&cache, key(1, 1), BlockClass::Data, FillPolicy::NoFill, BLOCK_BYTES));
    let statistics = cache.statistics();
    assert_eq!((statistics.unfilled_hits, statistics.unfilled_misses), (1, 2));
    assert_eq!((statistics.total().hits, statistics.total().misses), ([0; 3], [1, 0, 0]));
    // Not a use either: a newer block with a use outlives it.
    read(&cache, key(1, 2));
    read(&cache, key(1, 2));
    cache.set_capacity(40 * 1024);
    (0..20).for_each(|block| _ = read(&cache, key(2, block)));
    assert!(
        cache.get(key(1, 1), BlockClass::Data).is_none() && cache.get(key(1, 2), BlockClass::Data).is_some()
    );
}

#[test]
fn hits_and_misses_are_counted_by_class_and_shard() {
    let cache = cache_of(8 * MIB, 4);
    cache.set_shards(4);
    for class in [BlockClass::Data, BlockClass::Index, BlockClass::Filter] {
        for block in 0..=(class as u64) {
            read_as(&cache, key(class as u64, block), class, FillPolicy::Fill, BLOCK_BYTES);
            read_as(&cache, key(class as u64, block), class, FillPolicy::Fill, BLOCK_BYTES);
        }
    }
    thread::scope(|scope| _ = scope.spawn(|| read(&cache, key(0, 0))));
    let before = cache.statistics();
    assert_eq!((before.total().hits, before.total().misses), ([2, 2, 3], [1, 2, 3]));
    assert!((before.total().hit_ratio() - 7.0 / 13.0).abs() < 1e-9);
    assert_eq!(before.shards.len(), 4);
    cache.set_shards(2);
    let after = cache.statistics();
    assert_eq!(after.total(), before.total());
    let mut first_two = before.shards[0].clone();
    first_two.add(&before.shards[1]);
    assert_eq!(after.shards[0], first_two);
}

#[test]
fn the_cache_never_returns_a_wrong_value() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let cache = cache_of(128 << 10, 2);
        // The version of each key that was put in last, whether it is still there or not.
        let mut model: HashMap<BlockKey, u64> = HashMap::new();
        let mut hits = 0;
        for step in 0..5000u64 {
            let key = key(random.below(4) + step / 1000, random.below(30));
            let bytes = random.index(6000);
            let block = Arc::new(Block { key, version: step, bytes });
            match random.below(100) {
                0 => cache.set_capacity(random.index(256 << 10)),
                1 => cache.set_shards(1 << random.below(9)),
                2 => cache.erase_file(step / 1000),
                3..20 => {
                    if cache.insert(key, BlockClass::Data, &block) {
                        model.insert(key, step);
                    } else if let Some(found) = cache.get(key, BlockClass::Data) {
                        assert_eq!(model.get(&key), Some(&found.version));
                    }
                }
                20..40 => {
                    if let Some(found) = cache.get(key, BlockClass::Data) {
                        assert_eq!((found.key, Some(&found.version)), (key, model.get(&key)), "seed {seed}");
                        hits += 1;
                    }
                }
                _ => {
                    let fill = if random.one_in(4) { FillPolicy::NoFill } else { FillPolicy::Fill };
                    let found =
                        cache.get_or_load(key, BlockClass::Data, fill, || Ok(Arc::clone(&block))).unwrap();
                    assert_eq!(found.key, key);
                    if found.version == step {
                        model.insert(key, step);
                    } else {
                        assert_eq!(Some(&found.version), model.get(&key), "seed {seed}");
                        hits += 1;
                    }
                }
            }
            assert!(cache.used_bytes() <= cache.capacity_bytes());
        }
        assert!(hits > 100, "seed {seed} must hit");
        check_settled(&cache);
    }
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
