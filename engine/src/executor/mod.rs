//! The only place that starts threads.
//!
//! Background work is done by *workers* (flush, compaction, housekeeping). A worker does one quantum at a time and
//! says whether there is more. In production every worker has a thread that sleeps while the worker is idle and is
//! woken by [`Executor::wake`]. Under simulation there is one thread: whenever it would wait (see
//! [`alluvium_base::sync`]), a seed picks the worker that runs its next quantum, so that a whole database replays from
//! one number.

use std::fmt;
use std::sync::Arc;

use alluvium_base::clock::Clock;
use alluvium_base::sync::{Mutex, WaitPoint, WaitReason, WaitStatistics};
use alluvium_base::{Error, ErrorKind, Result};

mod pool;
mod simulated;

pub(crate) use pool::Pool;
pub use simulated::SimulatedExecutor;

/// What a worker has left to do after a quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More to do right now.
    Again,
    /// Nothing to do until woken.
    Idle,
    /// Nothing to do until woken or until this time of the monotonic clock, in nanoseconds.
    IdleUntil(u64),
}

/// Something that does background work in small pieces.
pub trait Worker: Send {
    /// Its name, for threads and messages.
    fn name(&self) -> String;
    /// Does one piece of work: at most a few milliseconds or a few MiB of I/O.
    fn run_quantum(&mut self) -> Next;
}

/// How workers run: on threads, or inside a simulation.
#[derive(Clone)]
pub enum ExecutorKind {
    /// One thread per worker.
    Threads,
    /// All on the caller's thread, in an order given by a seed.
    Simulated(Arc<SimulatedExecutor>),
}

impl fmt::Debug for ExecutorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExecutorKind::Threads => "Threads",
            ExecutorKind::Simulated(_) => "Simulated",
        })
    }
}

/// Runs the workers of one database.
pub(crate) struct Executor {
    kind: ExecutorKind,
    signal: Arc<Signal>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

/// What sleeping workers wait on.
struct Signal {
    state: Mutex<SignalState>,
    changed: WaitPoint,
    stopped: WaitPoint,
}

#[derive(Default)]
struct SignalState {
    /// Counts wake-ups; a worker that saw the current number sleeps.
    generation: u64,
    stopping: bool,
    /// Workers that have not ended yet.
    running: usize,
}

impl Executor {
    pub(crate) fn new(kind: ExecutorKind, clock: &Arc<dyn Clock>, waits: &Arc<WaitStatistics>) -> Executor {
        let point = |reason| WaitPoint::new(reason, Arc::clone(clock), Arc::clone(waits));
        Executor {
            kind,
            signal: Arc::new(Signal {
                state: Mutex::new(SignalState::default()),
                changed: point(WaitReason::Idle),
                stopped: point(WaitReason::Job),
            }),
            threads: Mutex::new(Vec::new()),
        }
    }

    /// Starts a worker.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(&self, worker: Box<dyn Worker>, clock: &Arc<dyn Clock>) -> Result<()> {
        match &self.kind {
            ExecutorKind::Simulated(simulated) => {
                simulated.add(worker);
                Ok(())
            }
            ExecutorKind::Threads => {
                self.signal.state.lock().running += 1;
                let (signal, clock) = (Arc::clone(&self.signal), Arc::clone(clock));
                let thread = std::thread::Builder::new().name(worker.name()).spawn(move || {
                    run_worker(worker, &signal, clock.as_ref());
                });
                match thread {
                    Ok(thread) => {
                        self.threads.lock().push(thread);
                        Ok(())
                    }
                    Err(error) => {
                        self.signal.state.lock().running -= 1;
                        Err(Error::io("start a thread for", "worker", &error))
                    }
                }
            }
        }
    }

    /// Tells every idle worker to look for work.
    pub(crate) fn wake(&self) {
        match &self.kind {
            ExecutorKind::Simulated(simulated) => simulated.wake(),
            ExecutorKind::Threads => {
                self.signal.state.lock().generation += 1;
                self.signal.changed.notify_all();
            }
        }
    }

    /// Ends every worker after its current quantum. Waits for at most `timeout`.
    ///
    /// # Errors
    /// `Cancelled` if a worker is still in a quantum when the time is over; it ends by itself later.
    pub(crate) fn stop(&self, timeout: std::time::Duration) -> Result<()> {
        match &self.kind {
            ExecutorKind::Simulated(simulated) => {
                simulated.clear();
                Ok(())
            }
            ExecutorKind::Threads => {
                let mut state = self.signal.state.lock();
                state.stopping = true;
                self.signal.changed.notify_all();
                if !self.signal.stopped.wait_while_for(&mut state, |state| state.running > 0, timeout) {
                    return Err(ErrorKind::Cancelled { what: "waiting for background jobs to end" }.into());
                }
                drop(state);
                let current = std::thread::current().id();
                for thread in self.threads.lock().drain(..) {
                    // The last handle of a database may be dropped by a worker; it can't wait for itself.
                    if thread.thread().id() != current {
                        let _ = thread.join();
                    }
                }
                Ok(())
            }
        }
    }
}

fn run_worker(mut worker: Box<dyn Worker>, signal: &Signal, clock: &dyn Clock) {
    loop {
        let seen = {
            let state = signal.state.lock();
            if state.stopping {
                break;
            }
            state.generation
        };
        let next = worker.run_quantum();
        let mut state = signal.state.lock();
        let asleep = |state: &mut SignalState| !state.stopping && state.generation == seen;
        match next {
            Next::Again => {}
            Next::Idle => signal.changed.wait_while(&mut state, asleep),
            Next::IdleUntil(nanos) => {
                let left = nanos.saturating_sub(clock.monotonic_nanos());
                signal.changed.wait_while_for(&mut state, asleep, std::time::Duration::from_nanos(left));
            }
        }
    }
    // What the worker owns goes before anyone is told that it has ended.
    drop(worker);
    let mut state = signal.state.lock();
    state.running -= 1;
    signal.stopped.notify_all();
}

/// Runs `work`, turning a panic into an error, so that one broken job or closure does not take the database down.
pub(crate) fn catch_panic<T>(what: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(payload) => {
            let message = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "a panic without a message".to_owned());
            Err(Error::from(ErrorKind::Panicked { what, message }))
        }
    }
}
