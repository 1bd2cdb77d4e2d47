//! Everything a database needs from the outside, so that a test can replace it.

use std::sync::Arc;

use alluvium_base::checksum;
use alluvium_base::clock::{Clock, SimulatedClock, SystemClock};
use alluvium_base::fs::Fs;
use alluvium_base::fs::real::RealFs;

use crate::executor::{ExecutorKind, SimulatedExecutor};

/// File system, clock, threads and randomness of a database.
///
/// ```
/// let environment = alluvium::Environment::system();
/// assert!(environment.cpus >= 1);
/// ```
#[derive(Clone, Debug)]
pub struct Environment {
    /// Where files live.
    pub fs: Arc<dyn Fs>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// How background work runs.
    pub executor: ExecutorKind,
    /// The seed of everything random (identities of databases and tables).
    pub entropy: u64,
    /// Processors to plan for.
    pub cpus: usize,
    /// Memory to plan for, in bytes: the machine's, or what the control group allows.
    pub memory_bytes: u64,
}

impl Environment {
    /// The machine: its files, its clock, real threads.
    #[must_use]
    pub fn system() -> Environment {
        let (fs, clock) = (RealFs::shared(), SystemClock::shared());
        // Unique, not secret: boot, process, wall clock and an address together never repeat.
        let mut bytes = fs.boot_id().to_le_bytes().to_vec();
        bytes.extend_from_slice(&std::process::id().to_le_bytes());
        bytes.extend_from_slice(&clock.wall_micros().to_le_bytes());
        bytes.extend_from_slice(&(Arc::as_ptr(&fs).cast::<u8>() as usize).to_le_bytes());
        Environment {
            fs,
            clock,
            executor: ExecutorKind::Threads,
            entropy: checksum::checksum(0, &bytes),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: alluvium_base::fs::real::memory_limit_bytes(),
        }
    }

    /// One thread whose every choice follows from `seed`. Returns the executor too: enter it with
    /// [`alluvium_base::sync::enter_simulation`] before opening a database.
    #[must_use]
    pub fn simulated(
        fs: Arc<dyn Fs>,
        seed: u64,
    ) -> (Environment, Arc<SimulatedExecutor>, Arc<SimulatedClock>) {
        let clock = SimulatedClock::new();
        let executor = SimulatedExecutor::new(seed, Arc::clone(&clock));
        let environment = Environment {
            fs,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            executor: ExecutorKind::Simulated(Arc::clone(&executor)),
            entropy: seed,
            cpus: 2,
            memory_bytes: 1 << 30,
        };
        (environment, executor, clock)
    }
}
