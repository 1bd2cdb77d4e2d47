//! One thread, and a seed that decides who runs next.

use std::sync::Arc;
use std::time::Duration;

use alluvium_base::clock::{Clock, SimulatedClock};
use alluvium_base::random::Random;
use alluvium_base::sync::{Mutex, Simulation};

use super::{Next, Worker};

/// The single thread of a simulated database.
///
/// Enter it with [`enter_simulation`](alluvium_base::sync::enter_simulation) on the thread that drives the database.
/// From then on, whatever waits runs the workers instead, one quantum at a time, in an order that depends on nothing
/// but the seed and on what was done before.
pub struct SimulatedExecutor {
    clock: Arc<SimulatedClock>,
    state: Mutex<State>,
}

struct State {
    random: Random,
    workers: Vec<Slot>,
    /// Every choice made so far, folded into one number: equal histories have equal traces.
    trace: u64,
}

struct Slot {
    /// Taken while the worker runs, so that a wait inside of it does not run it again.
    worker: Option<Box<dyn Worker>>,
    next: Next,
}

impl SimulatedExecutor {
    /// An executor without workers, driven by `seed`, on `clock`.
    #[must_use]
    pub fn new(seed: u64, clock: Arc<SimulatedClock>) -> Arc<SimulatedExecutor> {
        Arc::new(SimulatedExecutor {
            clock,
            state: Mutex::new(State { random: Random::new(seed), workers: Vec::new(), trace: seed }),
        })
    }

    pub(super) fn add(&self, worker: Box<dyn Worker>) {
        self.state.lock().workers.push(Slot { worker: Some(worker), next: Next::Again });
    }

    pub(super) fn wake(&self) {
        for slot in &mut self.state.lock().workers {
            slot.next = Next::Again;
        }
    }

    pub(super) fn clear(&self) {
        let workers = std::mem::take(&mut self.state.lock().workers);
        drop(workers);
    }

    /// A number that depends on every scheduling choice so far; two runs of one seed must agree on it.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.state.lock().trace
    }

    /// Runs up to `quanta` quanta; returns how many found work.
    pub fn run(&self, quanta: usize) -> usize {
        (0..quanta).take_while(|_| self.run_one()).count()
    }
}

impl Simulation for SimulatedExecutor {
    fn run_one(&self) -> bool {
        let (index, mut worker) = {
            let mut state = self.state.lock();
            let now = self.clock.monotonic_nanos();
            let ready: Vec<usize> = (0..state.workers.len())
                .filter(|&index| {
                    state.workers.get(index).is_some_and(|slot| {
                        slot.worker.is_some()
                            && match slot.next {
                                Next::Again => true,
                                Next::Idle => false,
                                Next::IdleUntil(nanos) => nanos <= now,
                            }
                    })
                })
                .collect();
            if ready.is_empty() {
                return false;
            }
            let choice = state.random.index(ready.len());
            let Some(&index) = ready.get(choice) else { return false };
            state.trace = state.trace.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
            let Some(slot) = state.workers.get_mut(index) else { return false };
            let Some(worker) = slot.worker.take() else { return false };
            // Set before the quantum, so that a wake-up from inside of it is not lost.
            slot.next = Next::Idle;
            (index, worker)
        };
        let next = worker.run_quantum();
        let mut state = self.state.lock();
        // The workers may have been cleared meanwhile.
        if let Some(slot) = state.workers.get_mut(index) {
            slot.worker = Some(worker);
            if slot.next == Next::Idle {
                slot.next = next;
            }
        }
        true
    }

    fn advance(&self, limit: Option<Duration>) -> bool {
        let now = self.clock.monotonic_nanos();
        let timer = self
            .state
            .lock()
            .workers
            .iter()
            .filter_map(|slot| match slot.next {
                Next::IdleUntil(nanos) if slot.worker.is_some() => Some(nanos.saturating_sub(now)),
                _ => None,
            })
            .min()
            .map(Duration::from_nanos);
        let Some(step) = [timer, limit].into_iter().flatten().min() else { return false };
        self.clock.advance(step.max(Duration::from_nanos(1)));
        true
    }
}
