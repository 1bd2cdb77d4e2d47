//! What stays and what goes.

use alluvium_base::random::Random;

use super::*;

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
fn readers_that_move_to_other_blocks_take_the_cache_with_them() {
    let cache = cache_of(8 * MIB, 2);
    for file in 1..5 {
        let mut missed = 0;
        for round in 0..20 {
            let misses = (0..1600).filter(|&block| !read(&cache, key(file, block))).count();
            missed = if round < 12 { 0 } else { missed + misses };
        }
        assert!(missed < 160, "file {file}: {missed} of the last 12,800 reads missed");
    }
    check_settled(&cache);
}

#[test]
fn index_and_filter_blocks_outlive_data_blocks() {
    let cache = cache_of(8 * MIB, 2);
    let read_partitions = |block| {
        let index = read_as(&cache, key(1, block), BlockClass::Index, FillPolicy::Fill, BLOCK_BYTES);
        index & read_as(&cache, key(2, block), BlockClass::Filter, FillPolicy::Fill, BLOCK_BYTES)
    };
    (0..100).for_each(|block| _ = read_partitions(block));
    // Each partition is asked for once in 2,000 data blocks read: as often as the whole cache turns over.
    let mut random = Random::new(5);
    let mut missed = 0;
    for step in 0..40_000 {
        read(&cache, key(3, random.below(100_000)));
        missed += usize::from(step % 20 == 0 && !read_partitions(step / 20 % 100));
    }
    assert!(missed < 20, "{missed} of 2,000 lookups of partitions missed");
    // They are not immortal: when nobody uses them, data blocks in use take their place.
    for _ in 0..30 {
        (0..1990).for_each(|block| _ = read(&cache, key(4, block)));
    }
    let kept = (0..100).filter(|&block| cache.get(key(2, block), BlockClass::Filter).is_some()).count();
    assert!(kept < 20, "{kept} unused filter blocks kept");
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
