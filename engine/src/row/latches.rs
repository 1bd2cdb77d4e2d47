//! Row latches: short locks, held by one commit from reading old rows until the new ones are visible.
//!
//! Keys are hashed onto a fixed number of stripes; a commit holds the stripes of its keys. Two different keys may share
//! a stripe, which costs a wait and nothing else. There are two classes, because the unique keys that a commit adds are
//! known only after it has read its old rows and run its update closures, under the latches of its primary keys:
//!
//! 1. all [`LatchClass::Primary`] stripes, ascending, at once; read, check, compute;
//! 2. all [`LatchClass::Unique`] stripes, ascending, at once; check uniqueness, apply;
//! 3. release everything.
//!
//! *No deadlock*: every commit acquires along the one order (class, stripe) and never goes back; so there is no cycle
//! of waits, and no retry is needed. *A unique key is latched only by who adds it*: whoever removes it holds the latch
//! of the row that owns it, and a reader of the key sees it either still there or gone for good, since a batch becomes
//! visible at once.
//!
//! A released stripe is handed to one waiter directly, so nobody overtakes and each waiter sleeps once.

use std::sync::Arc;

use alluvium_base::clock::Clock;
use alluvium_base::sync::{Mutex, WaitPoint, WaitReason, WaitStatistics};

/// Stripes per class. Two of n keys that are written at the same moment share a stripe with probability about n²/2¹³:
/// 1.5 % for the 16 writers that we plan for. Costs 100 KiB.
const STRIPES: usize = 1 << 12;

/// What a latch protects. All latches of the first class are taken before any of the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchClass {
    /// Rows, by their primary key.
    Primary,
    /// Values that must be unique, by the key of their index entry.
    Unique,
}

#[derive(Debug)]
struct Stripe {
    state: Mutex<StripeState>,
    handed_over: WaitPoint,
}

#[derive(Debug, Default)]
struct StripeState {
    held: bool,
    waiting: usize,
    /// The holder has left the stripe, still `held`, to one of those who wait.
    handed: bool,
}

impl Stripe {
    fn acquire(&self) {
        let mut state = self.state.lock();
        if !state.held {
            state.held = true;
            return;
        }
        state.waiting += 1;
        self.handed_over.wait_while(&mut state, |state| !state.handed);
        state.handed = false;
        state.waiting -= 1;
    }

    fn release(&self) {
        let mut state = self.state.lock();
        if state.waiting == 0 {
            state.held = false;
        } else {
            state.handed = true;
            self.handed_over.notify_one();
        }
    }
}

/// The latches of a store.
#[derive(Debug)]
pub struct Latches {
    primary: Box<[Stripe]>,
    unique: Box<[Stripe]>,
}

impl Latches {
    /// Latches whose waits are counted in `waits` as [`WaitReason::Latch`].
    #[must_use]
    pub fn new(clock: &Arc<dyn Clock>, waits: &Arc<WaitStatistics>) -> Latches {
        Latches::with_stripes(STRIPES, clock, waits)
    }

    fn with_stripes(count: usize, clock: &Arc<dyn Clock>, waits: &Arc<WaitStatistics>) -> Latches {
        let stripe = |_| Stripe {
            state: Mutex::default(),
            handed_over: WaitPoint::new(WaitReason::Latch, Arc::clone(clock), Arc::clone(waits)),
        };
        Latches { primary: (0..count).map(stripe).collect(), unique: (0..count).map(stripe).collect() }
    }

    /// Waits for the latches of all keys with these hashes and holds them until the guard is dropped. A commit calls
    /// this at most once per class, `Primary` first.
    pub fn acquire(&self, class: LatchClass, hashes: impl IntoIterator<Item = u64>) -> LatchGuard<'_> {
        let stripes = match class {
            LatchClass::Primary => &self.primary,
            LatchClass::Unique => &self.unique,
        };
        let mut numbers: Vec<usize> =
            hashes.into_iter().map(|hash| (hash % stripes.len() as u64) as usize).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut guard = LatchGuard { held: Vec::with_capacity(numbers.len()) };
        for stripe in numbers.into_iter().filter_map(|number| stripes.get(number)) {
            stripe.acquire();
            guard.held.push(stripe);
        }
        guard
    }
}

/// Holds latches; dropping it releases them, also when a panic passes by.
#[derive(Debug)]
#[must_use = "the latches are released when the guard is dropped"]
pub struct LatchGuard<'a> {
    held: Vec<&'a Stripe>,
}

impl Drop for LatchGuard<'_> {
    fn drop(&mut self) {
        self.held.iter().for_each(|stripe| stripe.release());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use alluvium_base::clock::{SimulatedClock, SystemClock};
    use alluvium_base::random::Random;
    use alluvium_base::sync::{Simulation, enter_simulation};

    use super::*;

    fn latches(stripes: usize) -> (Latches, Arc<WaitStatistics>) {
        let waits = Arc::new(WaitStatistics::default());
        (Latches::with_stripes(stripes, &SystemClock::shared(), &waits), waits)
    }

    #[test]
    fn writers_of_overlapping_keys_exclude_each_other_and_never_deadlock() {
        const KEYS: usize = 8;
        let (latches, _) = latches(KEYS);
        let inside: Vec<AtomicBool> = (0..2 * KEYS).map(|_| AtomicBool::new(false)).collect();
        let enter = |offset: usize, keys: &[u64]| {
            for &key in keys {
                assert!(
                    !inside[offset + key as usize].swap(true, Ordering::SeqCst),
                    "two holders of one latch"
                );
            }
        };
        let leave = |offset: usize, keys: &[u64]| {
            keys.iter().for_each(|&key| inside[offset + key as usize].store(false, Ordering::SeqCst));
        };
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (latches, enter, leave) = (&latches, &enter, &leave);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    let mut some = || {
                        let mut keys: Vec<u64> = (0..3).map(|_| random.below(KEYS as u64)).collect();
                        keys.dedup();
                        keys.sort_unstable();
                        keys.dedup();
                        keys
                    };
                    for _ in 0..2000 {
                        let (primary, unique) = (some(), some());
                        let _rows = latches.acquire(LatchClass::Primary, primary.iter().copied());
                        enter(0, &primary);
                        let keys = latches.acquire(LatchClass::Unique, unique.iter().copied());
                        enter(KEYS, &unique);
                        std::thread::yield_now();
                        leave(KEYS, &unique);
                        drop(keys);
                        leave(0, &primary);
                    }
                });
            }
        });
    }

    #[test]
    fn a_latch_is_handed_to_who_waits_and_the_wait_is_counted() {
        let (latches, waits) = latches(1);
        let held = latches.acquire(LatchClass::Primary, [0]);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(latches.acquire(LatchClass::Primary, [7])));
            while latches.primary[0].state.lock().waiting == 0 {
                std::thread::yield_now();
            }
            drop(held);
            waiter.join().unwrap();
        });
        assert!(!latches.primary[0].state.lock().held);
        assert_eq!(waits.get(WaitReason::Latch).0, 1);
    }

    #[test]
    fn a_panic_releases_what_is_held() {
        let (latches, _) = latches(4);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = latches.acquire(LatchClass::Primary, [1, 2]);
            panic!("while holding latches");
        }));
        assert!(result.is_err());
        drop(latches.acquire(LatchClass::Primary, [2, 1, 1]));
    }

    /// A job that releases the latch for which the only thread waits.
    struct Releasing<'a> {
        guard: Mutex<Option<LatchGuard<'a>>>,
        runs: AtomicUsize,
    }

    impl Simulation for Releasing<'_> {
        fn run_one(&self) -> bool {
            self.runs.fetch_add(1, Ordering::SeqCst);
            self.guard.lock().take().is_some()
        }

        fn advance(&self, _limit: Option<Duration>) -> bool {
            false
        }
    }

    #[test]
    fn a_single_simulated_thread_runs_other_jobs_while_it_waits() {
        let clock: Arc<dyn Clock> = SimulatedClock::new();
        let waits = Arc::new(WaitStatistics::default());
        let latches: &'static Latches = Box::leak(Box::new(Latches::with_stripes(4, &clock, &waits)));
        let held = latches.acquire(LatchClass::Primary, [3]);
        let job = Arc::new(Releasing { guard: Mutex::new(Some(held)), runs: AtomicUsize::new(0) });
        let _simulation = enter_simulation(job.clone());
        drop(latches.acquire(LatchClass::Primary, [3]));
        assert_eq!(job.runs.load(Ordering::SeqCst), 1);
    }
}
