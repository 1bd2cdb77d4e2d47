//! Random operations against a map, and the same operations twice.

use std::collections::HashMap;

use alluvium_base::random::Random;

use super::*;

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
