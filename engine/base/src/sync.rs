//! Locks, and the only place where anything waits.
//!
//! In production [`WaitPoint::wait_while`] blocks on a condition variable. Under simulation there is one thread: it
//! then releases the lock, lets the simulation run other jobs, and looks again, so that a whole database runs on one
//! thread in an order given by one seed. That works only if *nothing else blocks*: no channel, no join, no sleep, no
//! bare condition variable, and no lock held across a wait but the one that is handed in.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::clock::Clock;

/// What a thread waits for; waits are counted and timed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum WaitReason {
    /// Room in the log's ring.
    LogRing,
    /// The sync of the log that a commit's durability asks for.
    LogSync,
    /// A turn in the commit queue.
    CommitQueue,
    /// Row latches.
    Latch,
    /// Another attempt at a transaction that met a conflict.
    Retry,
    /// Admission control.
    Admission,
    /// A memtable or level-0 hard limit.
    Backpressure,
    /// A block being read by another thread.
    CacheFill,
    /// A background job (manual flush, manual compaction, close).
    Job,
    /// A worker with nothing to do.
    Idle,
}

/// Number of [`WaitReason`]s.
pub const WAIT_REASONS: usize = WaitReason::Idle as usize + 1;

/// Count and total time of waits, by reason.
#[derive(Debug, Default)]
pub struct WaitStatistics {
    counts: [AtomicU64; WAIT_REASONS],
    nanos: [AtomicU64; WAIT_REASONS],
}

impl WaitStatistics {
    /// Records one wait.
    pub fn record(&self, reason: WaitReason, nanos: u64) {
        if let (Some(count), Some(total)) =
            (self.counts.get(reason as usize), self.nanos.get(reason as usize))
        {
            count.fetch_add(1, Ordering::Relaxed);
            total.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    /// Number of waits and their total nanoseconds.
    #[must_use]
    pub fn get(&self, reason: WaitReason) -> (u64, u64) {
        let load = |array: &[AtomicU64; WAIT_REASONS]| {
            array.get(reason as usize).map_or(0, |counter| counter.load(Ordering::Relaxed))
        };
        (load(&self.counts), load(&self.nanos))
    }
}

/// The single thread of a simulated database, as seen by whoever waits on it.
pub trait Simulation: Send + Sync {
    /// Runs one quantum of some job, chosen by the seed; false if no job can run now.
    fn run_one(&self) -> bool;
    /// Moves the simulated clock to the next timer, but at most by `limit`; false if there is neither a timer nor a
    /// limit.
    fn advance(&self, limit: Option<Duration>) -> bool;
}

thread_local! {
    static SIMULATION: RefCell<Option<Arc<dyn Simulation>>> = const { RefCell::new(None) };
}

/// While this lives, waits on this thread run the simulation instead of blocking.
#[must_use = "the simulation ends when the guard is dropped"]
pub struct SimulationGuard {
    previous: Option<Arc<dyn Simulation>>,
}

/// Makes this thread the single thread of `simulation`.
pub fn enter_simulation(simulation: Arc<dyn Simulation>) -> SimulationGuard {
    SimulationGuard { previous: SIMULATION.with(|current| current.borrow_mut().replace(simulation)) }
}

impl Drop for SimulationGuard {
    fn drop(&mut self) {
        let previous = self.previous.take();
        SIMULATION.with(|current| *current.borrow_mut() = previous);
    }
}

/// The simulation this thread belongs to, if any.
#[must_use]
pub fn simulation() -> Option<Arc<dyn Simulation>> {
    SIMULATION.with(|current| current.borrow().clone())
}

/// A condition variable that knows why one waits on it.
#[derive(Debug)]
pub struct WaitPoint {
    condvar: parking_lot::Condvar,
    reason: WaitReason,
    clock: Arc<dyn Clock>,
    statistics: Arc<WaitStatistics>,
}

impl WaitPoint {
    /// A wait point for `reason`, whose waits are recorded in `statistics`.
    #[must_use]
    pub fn new(reason: WaitReason, clock: Arc<dyn Clock>, statistics: Arc<WaitStatistics>) -> WaitPoint {
        WaitPoint { condvar: parking_lot::Condvar::new(), reason, clock, statistics }
    }

    /// Wakes one waiter, if there is one.
    pub fn notify_one(&self) {
        self.condvar.notify_one();
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.condvar.notify_all();
    }

    /// Waits while `condition` holds. Whoever makes it false must notify while or after holding the lock.
    pub fn wait_while<T>(&self, guard: &mut MutexGuard<'_, T>, condition: impl FnMut(&mut T) -> bool) {
        self.wait(guard, condition, None);
    }

    /// Waits while `condition` holds, at most for `timeout`. True if the condition no longer holds.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> bool {
        self.wait(guard, condition, Some(timeout))
    }

    fn wait<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        timeout: Option<Duration>,
    ) -> bool {
        if !condition(guard) {
            return true;
        }
        let start = self.clock.monotonic_nanos();
        let deadline = timeout.map(|timeout| start.saturating_add(timeout.as_nanos() as u64));
        let left = |now: u64| deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(now)));
        let simulation = simulation();
        let held = loop {
            let left = left(self.clock.monotonic_nanos());
            if left.is_some_and(|left| left.is_zero()) {
                break false;
            }
            match (&simulation, left) {
                (Some(simulation), left) => {
                    let moved =
                        MutexGuard::unlocked(guard, || simulation.run_one() || simulation.advance(left));
                    assert!(moved, "simulated deadlock: waiting for {:?} with no job to run", self.reason);
                }
                (None, Some(left)) => {
                    let _ = self.condvar.wait_for(guard, left);
                }
                (None, None) => self.condvar.wait(guard),
            }
            if !condition(guard) {
                break true;
            }
        };
        self.statistics.record(self.reason, self.clock.monotonic_nanos().saturating_sub(start));
        held
    }
}

/// Waits for `duration` without a condition (pacing, back-off). Under simulation other jobs run meanwhile.
pub fn sleep(clock: &dyn Clock, statistics: &WaitStatistics, reason: WaitReason, duration: Duration) {
    let start = clock.monotonic_nanos();
    match simulation() {
        None => clock.sleep(duration),
        Some(simulation) => {
            let end = start.saturating_add(duration.as_nanos() as u64);
            while clock.monotonic_nanos() < end {
                if !simulation.run_one() {
                    simulation.advance(Some(Duration::from_nanos(end - clock.monotonic_nanos())));
                }
            }
        }
    }
    statistics.record(reason, clock.monotonic_nanos().saturating_sub(start));
}
