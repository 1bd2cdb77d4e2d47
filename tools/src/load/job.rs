//! What all phases of one load share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::load::cli::OnDuplicate;
use crate::load::error::{LoadError, Result};
use crate::load::plan::Plan;
use crate::load::progress::{Phase, Progress};
use crate::load::rejects::Rejects;
use crate::load::sort::budget::Budget;

/// How to load, apart from what.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads that encode, sort, merge and write.
    pub threads: usize,
    /// Shares of the memory.
    pub budget: Budget,
    /// Where temporary files go.
    pub spill_directory: PathBuf,
    /// What happens to rows with the same primary key.
    pub on_duplicate: OnDuplicate,
}

/// One load under way.
pub struct Job<'a, T> {
    /// What to load.
    pub plan: &'a Plan,
    /// Where to.
    pub target: &'a T,
    /// How.
    pub settings: &'a Settings,
    /// What has been done so far.
    pub progress: &'a Progress,
    /// Rows that are not loaded.
    pub rejects: &'a Rejects,
    /// The user's wish to stop.
    pub stop: &'a Stop,
    /// Set when one thread has failed: the others need not go on.
    failed: AtomicBool,
}

impl<'a, T> Job<'a, T> {
    /// A load that has not begun.
    pub fn new(
        plan: &'a Plan,
        target: &'a T,
        settings: &'a Settings,
        progress: &'a Progress,
        rejects: &'a Rejects,
        stop: &'a Stop,
    ) -> Job<'a, T> {
        Job { plan, target, settings, progress, rejects, stop, failed: AtomicBool::new(false) }
    }

    /// Number of targets: the primary index and the secondary ones.
    #[must_use]
    pub fn targets(&self) -> usize {
        1 + self.plan.schema.indexes().len()
    }

    /// Tells the other threads that there is no point in going on.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// True if there is no point in going on: a thread has failed, or the user wants to stop.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.stop.is_requested()
    }

    /// An error if the user wants to stop.
    ///
    /// # Errors
    /// `Stopped`.
    pub fn check_stop(&self) -> Result<()> {
        if self.stop.is_requested() { Err(LoadError::Stopped) } else { Ok(()) }
    }
}

/// Entries between two looks at whether the load is over.
const STOP_INTERVAL: u64 = 4096;

/// Counts the entries that one thread does in a phase, and looks now and then whether to go on.
pub struct Ticker<'a, 'j, T> {
    job: &'a Job<'j, T>,
    phase: Phase,
    entries: u64,
}

impl<'a, 'j, T> Ticker<'a, 'j, T> {
    /// Nothing counted.
    pub fn new(job: &'a Job<'j, T>, phase: Phase) -> Ticker<'a, 'j, T> {
        Ticker { job, phase, entries: 0 }
    }

    /// Counts one entry.
    ///
    /// # Errors
    /// `Stopped` if there is no point in going on.
    pub fn tick(&mut self) -> Result<()> {
        self.entries += 1;
        if self.entries.is_multiple_of(STOP_INTERVAL) {
            self.job.progress.entries_of_phase(self.phase).add(STOP_INTERVAL);
            if self.job.is_over() {
                return Err(LoadError::Stopped);
            }
        }
        Ok(())
    }
}

/// The user's wish to stop. Set by a signal, read between batches.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens to ^C and to `kill`: the first asks to stop, the second ends the process at once, with exit code
    /// `exit_code`. Nothing needs to be cleaned up then: temporary files have no names, and what has been written is
    /// no part of the database yet.
    ///
    /// # Errors
    /// Those of the system.
    pub fn on_signals(exit_code: u8) -> std::io::Result<Stop> {
        let stop = Stop::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // In this order: the second signal finds the flag set by the first.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                i32::from(exit_code),
                Arc::clone(&stop.0),
            )?;
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    /// Asks to stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once asked.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
