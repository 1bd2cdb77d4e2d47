//! One byte budget, whatever is asked of it.

use std::sync::atomic::AtomicBool;
use std::thread;

use alluvium_base::random::Random;

use super::*;

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
