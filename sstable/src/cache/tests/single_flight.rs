//! One read for all who miss a block, and nobody left behind when it fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use alluvium_base::clock::SimulatedClock;
use alluvium_base::sync::{Simulation, WaitReason, enter_simulation};
use alluvium_base::{Error, ErrorKind};

use super::*;

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
