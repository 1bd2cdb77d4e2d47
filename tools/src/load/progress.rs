//! What has been done so far: counters that every thread adds to and the display reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use alluvium_base::clock::{Clock, SystemClock};

/// The phases of a load, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Phase {
    /// Read, convert, encode, sort into runs.
    Encode,
    /// Find rows with the same keys.
    Check,
    /// Merge the runs into table files.
    Write,
    /// Read the files back.
    Verify,
    /// Make the table part of the database.
    Finish,
}

/// All phases, in order.
pub const PHASES: [Phase; 5] = [Phase::Encode, Phase::Check, Phase::Write, Phase::Verify, Phase::Finish];

impl Phase {
    /// Share of the whole time that the phase usually takes (measured on the flights of nycflights13 with four
    /// indexes), for estimating when the load will be done.
    #[must_use]
    pub fn weight(self) -> f64 {
        match self {
            Phase::Encode => 0.45,
            Phase::Check => 0.05,
            Phase::Write => 0.40,
            Phase::Verify => 0.09,
            Phase::Finish => 0.01,
        }
    }

    /// What it does, for people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Phase::Encode => "reading",
            Phase::Check => "checking keys",
            Phase::Write => "writing",
            Phase::Verify => "verifying",
            Phase::Finish => "finishing",
        }
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Where threads spend their time while reading, in nanoseconds.
#[derive(Debug, Default)]
pub struct Waits {
    /// The reader of rows waits for unpacked bytes.
    pub input: Counter,
    /// The reader of rows waits for the workers to take a batch.
    pub workers: Counter,
    /// Workers write temporary files, or wait for others that do.
    pub spilling: Counter,
}

/// The counters of one load.
#[derive(Debug)]
pub struct Progress {
    clock: Arc<dyn Clock>,
    started_nanos: u64,
    phase: AtomicU8,
    phase_nanos: [AtomicU64; PHASES.len()],
    /// Stored bytes of all inputs, if known.
    pub total_bytes: Option<u64>,
    /// Stored bytes read.
    pub read_bytes: Counter,
    /// Rows read, rejected ones included.
    pub rows: Counter,
    /// Bytes written to temporary files.
    pub spilled_bytes: Counter,
    /// Entries that the current phase has done; see [`entries_of_phase`](Progress::entries_of_phase).
    entries: [Counter; PHASES.len()],
    /// Entries of all targets.
    pub total_entries: Counter,
    /// Where the time goes.
    pub waits: Waits,
}

impl Progress {
    /// Nothing done yet, of inputs of `total_bytes` stored bytes.
    #[must_use]
    pub fn new(total_bytes: Option<u64>) -> Progress {
        let clock = SystemClock::shared();
        Progress {
            started_nanos: clock.monotonic_nanos(),
            clock,
            phase: AtomicU8::new(Phase::Encode as u8),
            phase_nanos: Default::default(),
            total_bytes,
            read_bytes: Counter::default(),
            rows: Counter::default(),
            spilled_bytes: Counter::default(),
            entries: Default::default(),
            total_entries: Counter::default(),
            waits: Waits::default(),
        }
    }

    /// Nanoseconds since the load began.
    #[must_use]
    pub fn elapsed_nanos(&self) -> u64 {
        self.clock.monotonic_nanos() - self.started_nanos
    }

    /// The current phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        PHASES.get(usize::from(self.phase.load(Ordering::Relaxed))).copied().unwrap_or(Phase::Finish)
    }

    /// Begins the next phase.
    pub fn begin(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
        self.phase_nanos[phase as usize].store(self.elapsed_nanos(), Ordering::Relaxed);
    }

    /// When each phase began, in nanoseconds since the load began; 0 for those that have not.
    #[must_use]
    pub fn phase_began_nanos(&self, phase: Phase) -> u64 {
        self.phase_nanos[phase as usize].load(Ordering::Relaxed)
    }

    /// Entries done in a phase.
    #[must_use]
    pub fn entries_of_phase(&self, phase: Phase) -> &Counter {
        &self.entries[phase as usize]
    }

    /// Runs `work` and adds the time it takes to `wait`.
    pub fn timed<R>(&self, wait: &Counter, work: impl FnOnce() -> R) -> R {
        let start = self.clock.monotonic_nanos();
        let result = work();
        wait.add(self.clock.monotonic_nanos() - start);
        result
    }

    /// Share of the whole load that is done, 0 to 1; `None` while it is not known how much there is to read.
    #[must_use]
    pub fn fraction(&self) -> Option<f64> {
        let phase = self.phase();
        let before: f64 = PHASES.iter().filter(|other| **other < phase).map(|other| other.weight()).sum();
        let within = match phase {
            Phase::Encode => share(self.read_bytes.get(), self.total_bytes?),
            Phase::Finish => 0.0,
            _ => share(self.entries_of_phase(phase).get(), self.total_entries.get()),
        };
        Some(before + within * phase.weight())
    }
}

fn share(done: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { (done as f64 / all as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fraction_grows_from_phase_to_phase() {
        assert!((PHASES.iter().map(|phase| phase.weight()).sum::<f64>() - 1.0).abs() < 1e-9);
        let progress = Progress::new(Some(1000));
        assert_eq!(progress.fraction(), Some(0.0));
        progress.read_bytes.add(500);
        assert_eq!(progress.fraction(), Some(0.225));
        progress.total_entries.add(10);
        progress.begin(Phase::Write);
        progress.entries_of_phase(Phase::Write).add(5);
        assert_eq!(progress.fraction(), Some(0.7));
        assert_eq!(Progress::new(None).fraction(), None);
    }
}
