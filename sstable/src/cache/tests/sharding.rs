//! The number of shards changes speed, never content.

use std::thread;

use alluvium_base::random::Random;

use super::*;

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
        assert!((0..1800).all(|block| cache.find(key(1, block).hash(), key(1, block)).is_some()));
        check_settled(&cache);
    }
    // The oldest go first, as if nothing had happened.
    cache.set_capacity(4 * MIB);
    let kept = |block: u64| cache.find(key(1, block).hash(), key(1, block)).is_some();
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
