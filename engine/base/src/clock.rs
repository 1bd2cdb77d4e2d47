//! The only place that reads the clock.
//!
//! Durations come from a monotonic clock; a wall clock serves only to stamp things for people and for expiry, and
//! nothing breaks when it jumps. Under simulation both stand still until someone advances them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Nanoseconds since some fixed moment; never goes back.
    fn monotonic_nanos(&self) -> u64;
    /// Microseconds since 1970-01-01 UTC; may jump.
    fn wall_micros(&self) -> i64;
    /// Waits. Only [`sync`](crate::sync) and the fault layer call this; a simulated clock advances instead of blocking.
    fn sleep(&self, duration: Duration);
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The machine's clock, shared.
    #[must_use]
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(SystemClock { start: Instant::now() })
    }
}

impl Clock for SystemClock {
    fn monotonic_nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn wall_micros(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        }
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct SimulatedClock {
    nanos: AtomicU64,
}

impl SimulatedClock {
    /// A clock at zero (2020-01-01 on the wall).
    #[must_use]
    pub fn new() -> Arc<SimulatedClock> {
        Arc::new(SimulatedClock::default())
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for SimulatedClock {
    fn monotonic_nanos(&self) -> u64 {
        self.nanos.load(Ordering::SeqCst)
    }

    fn wall_micros(&self) -> i64 {
        const YEAR_2020_MICROS: i64 = 1_577_836_800_000_000;
        YEAR_2020_MICROS + (self.monotonic_nanos() / 1000) as i64
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}
