//! How much of the cache probation may take: a tenth, as long as the main queue earns its place.
//!
//! A fixed tenth has a cliff. When readers move to a new set of blocks that they go through in turn, each block leaves
//! probation before it is used again; so nothing enters the main queue, nothing is ever evicted from it, and it keeps
//! blocks that nobody wants while every read misses (35 % hits instead of 95 on such a trace). What tells that state from
//! any good one is that blocks which were just evicted from probation come back more often than blocks of the main queue
//! are hit at all. Then probation grows by an eighth of the capacity, and the main queue loses its oldest; else it shrinks
//! as fast. On traces with a lasting hot set, with scans or without, it never leaves a tenth
//! (`design/decisions/0004-block-cache.md`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use alluvium_base::sync::Mutex;

/// Least share of the capacity, as a divisor: a tenth, as in the S3-FIFO paper.
const SHARE_MIN: usize = 10;
/// What the main queue keeps at least, as a divisor.
const MAIN_SHARE_MIN: usize = 10;
/// Steps of growing and shrinking, as a divisor of the capacity.
const STEP_SHARE: usize = 8;

/// The next target, in bytes, from the hits of main-queue blocks and the returns of blocks lately evicted from probation
/// during one interval.
fn next_target(target: usize, capacity: usize, main_hits: u64, returns: u64) -> usize {
    let step = capacity / STEP_SHARE;
    let next = if returns > main_hits { target.saturating_add(step) } else { target.saturating_sub(step) };
    next.clamp(capacity / SHARE_MIN, capacity - capacity / MAIN_SHARE_MIN)
}

/// The current target, and what it was last decided on.
pub(super) struct Probation {
    target: AtomicUsize,
    evictions: AtomicU64,
    decided_at: Mutex<Tally>,
}

/// Hits of main-queue blocks and returns of blocks evicted from probation, since the cache was made.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) main_hits: u64,
    pub(super) returns: u64,
}

impl Probation {
    pub(super) fn new(capacity: usize) -> Probation {
        Probation {
            target: AtomicUsize::new(capacity / SHARE_MIN),
            evictions: AtomicU64::new(0),
            decided_at: Mutex::new(Tally::default()),
        }
    }

    /// Bytes above which the next victim comes from probation.
    pub(super) fn target(&self) -> usize {
        self.target.load(Ordering::Relaxed)
    }

    /// Starts again for another capacity.
    pub(super) fn reset(&self, capacity: usize) {
        self.target.store(capacity / SHARE_MIN, Ordering::Relaxed);
    }

    /// Counts an eviction; after every `interval` of them decides anew by what `tally` says.
    pub(super) fn note_eviction(&self, interval: u64, capacity: usize, tally: impl FnOnce() -> Tally) {
        let evictions = self.evictions.fetch_add(1, Ordering::Relaxed) + 1;
        if !evictions.is_multiple_of(interval) {
            return;
        }
        let now = tally();
        let before = std::mem::replace(&mut *self.decided_at.lock(), now);
        let main_hits = now.main_hits.saturating_sub(before.main_hits);
        let returns = now.returns.saturating_sub(before.returns);
        self.target.store(next_target(self.target(), capacity, main_hits, returns), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probation_grows_only_while_the_main_queue_is_less_useful() {
        #[rustfmt::skip]
        let table = [
            // target, capacity, main hits, returns, next
            (100, 1000, 0,   0,   100), // nothing happens: a tenth
            (100, 1000, 0,   1,   225),
            (100, 1000, 50,  50,  100), // a tie is for the main queue
            (100, 1000, 500, 50,  100),
            (850, 1000, 0,   100, 900), // the main queue keeps a tenth
            (900, 1000, 1,   0,   775),
            (900, 10,   1,   0,   9),   // the capacity shrank meanwhile
            (0,   0,    0,   9,   0),
            (usize::MAX / 2, usize::MAX, 0, 1, usize::MAX / 2 + usize::MAX / 8),
        ];
        for (target, capacity, main_hits, returns, expected) in table {
            let next = next_target(target, capacity, main_hits, returns);
            assert_eq!(next, expected, "{target} of {capacity}, {main_hits} hits, {returns} returns");
        }
    }

    #[test]
    fn a_decision_looks_at_one_interval_only() {
        let probation = Probation::new(1000);
        let tally = |main_hits, returns| move || Tally { main_hits, returns };
        (0..9)
            .for_each(|_| probation.note_eviction(10, 1000, || unreachable!("the interval has not passed")));
        probation.note_eviction(10, 1000, tally(0, 5));
        assert_eq!(probation.target(), 225);
        (0..9)
            .for_each(|_| probation.note_eviction(10, 1000, || unreachable!("the interval has not passed")));
        probation.note_eviction(10, 1000, tally(3, 7));
        assert_eq!(probation.target(), 100, "two returns against three hits");
    }
}
