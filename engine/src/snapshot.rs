//! Snapshots: sequence numbers that compaction must keep answers for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_base::clock::Clock;
use alluvium_base::key::Seqno;
use alluvium_base::sync::Mutex;
use alluvium_base::{Error, Result};

use crate::read_state::ReadState;

/// The visible sequence number, and every older one that somebody still reads at.
#[derive(Debug)]
pub(crate) struct SnapshotRegistry {
    visible: AtomicU64,
    /// Sequence number → how many hold it, and since when (monotonic nanoseconds).
    held: Mutex<BTreeMap<Seqno, Held>>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Held {
    count: usize,
    since_nanos: u64,
}

impl SnapshotRegistry {
    pub(crate) fn new(visible: Seqno, clock: Arc<dyn Clock>) -> Arc<SnapshotRegistry> {
        Arc::new(SnapshotRegistry {
            visible: AtomicU64::new(visible),
            held: Mutex::new(BTreeMap::new()),
            clock,
        })
    }

    /// The newest sequence number whose commit, like every earlier one, has been applied.
    pub(crate) fn visible(&self) -> Seqno {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes everything up to `seqno` visible. Only the commit pipeline calls this, in order.
    pub(crate) fn publish(&self, seqno: Seqno) {
        debug_assert!(seqno >= self.visible.load(Ordering::Relaxed), "visibility never goes back");
        self.visible.store(seqno, Ordering::Release);
    }

    /// Takes a snapshot of what is visible now.
    pub(crate) fn take(self: &Arc<Self>) -> SnapshotGuard {
        // Under the lock, so that `live` sees either this snapshot or a visible number at or below it.
        let mut held = self.held.lock();
        let seqno = self.visible();
        let since_nanos = self.clock.monotonic_nanos();
        held.entry(seqno).or_insert(Held { count: 0, since_nanos }).count += 1;
        SnapshotGuard { seqno, registry: Arc::clone(self), state: None }
    }

    /// Every sequence number that a reader may be at, ascending: the held ones, and the visible one (which stands for
    /// all readers that come later).
    pub(crate) fn live(&self) -> Vec<Seqno> {
        let held = self.held.lock();
        let mut live: Vec<Seqno> = held.keys().copied().collect();
        let visible = self.visible();
        if live.last() != Some(&visible) {
            live.push(visible);
        }
        live
    }

    /// Number of held snapshots, and the age of the oldest in nanoseconds.
    pub(crate) fn oldest(&self) -> (usize, u64) {
        let held = self.held.lock();
        let count = held.values().map(|held| held.count).sum();
        let since = held.values().map(|held| held.since_nanos).min();
        (count, since.map_or(0, |since| self.clock.monotonic_nanos().saturating_sub(since)))
    }
}

/// Holds a sequence number; owns its registry, so it may outlive every handle of the database.
#[derive(Debug)]
pub(crate) struct SnapshotGuard {
    seqno: Seqno,
    registry: Arc<SnapshotRegistry>,
    /// What it reads, if that is not whatever the tree has at the time of reading.
    state: Option<Arc<ReadState>>,
}

impl SnapshotGuard {
    /// The same snapshot, bound to `state`.
    pub(crate) fn of_state(mut self, state: Arc<ReadState>) -> SnapshotGuard {
        self.state = Some(state);
        self
    }

    /// What it reads; `None` for the tree's newest state, whose compactions keep what it sees.
    pub(crate) fn state(&self) -> Option<&Arc<ReadState>> {
        self.state.as_ref()
    }

    pub(crate) fn seqno(&self) -> Seqno {
        self.seqno
    }

    /// The sequence number, if the snapshot is one of `registry`. That of another database, or of an earlier opening of
    /// the same one, would show something that never was.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn seqno_in(&self, registry: &Arc<SnapshotRegistry>) -> Result<Seqno> {
        if !Arc::ptr_eq(&self.registry, registry) {
            return Err(Error::invalid(
                "the snapshot is of another database, or of an earlier opening of this one; take one from this handle",
            ));
        }
        Ok(self.seqno)
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let mut held = self.registry.held.lock();
        if let Some(entry) = held.get_mut(&self.seqno) {
            entry.count -= 1;
            if entry.count == 0 {
                held.remove(&self.seqno);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alluvium_base::clock::SimulatedClock;

    use super::*;

    #[test]
    fn held_snapshots_stay_live_until_the_last_guard_goes() {
        let registry = SnapshotRegistry::new(5, SimulatedClock::new());
        let first = registry.take();
        let second = registry.take();
        registry.publish(9);
        assert_eq!(registry.live(), [5, 9]);
        drop(first);
        assert_eq!(registry.live(), [5, 9]);
        drop(second);
        assert_eq!(registry.live(), [9]);
    }

    #[test]
    fn the_age_of_the_oldest_snapshot_is_known() {
        let clock = SimulatedClock::new();
        let registry = SnapshotRegistry::new(1, clock.clone());
        let _held = registry.take();
        clock.advance(std::time::Duration::from_secs(3));
        assert_eq!(registry.oldest(), (1, 3_000_000_000));
    }
}
