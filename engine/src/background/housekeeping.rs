//! Keeping house: syncing, log segments, recovery from a failed log, removing files.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_base::Result;

use crate::executor::{Next, Worker, catch_panic};
use crate::layout;
use crate::tree::Tree;

/// How long to wait before looking again at files that a reader still holds.
const RECHECK_NANOS: u64 = 100_000_000;

/// See the module's documentation.
pub(super) struct Housekeeper {
    tree: Arc<Tree>,
    next_sync_nanos: u64,
    retry_at_nanos: u64,
    /// Files that a crash left behind, found at open.
    orphans: VecDeque<PathBuf>,
}

impl Housekeeper {
    pub(super) fn new(tree: Arc<Tree>) -> Result<Housekeeper> {
        let orphans = crate::open::orphans(&tree)?.into();
        Ok(Housekeeper { tree, next_sync_nanos: 0, retry_at_nanos: 0, orphans })
    }

    fn step(&mut self) -> Result<Next> {
        let now = self.tree.environment.clock.monotonic_nanos();
        let log = self.tree.log("keep house")?;
        if log.failure().is_some() {
            return self.resume_log(now);
        }
        if now >= self.next_sync_nanos {
            if log.durable_address() < log.end_address() {
                log.sync(log.end_address())?;
            }
            self.next_sync_nanos = now + self.tree.options.buffered_sync_interval.as_nanos() as u64;
        }
        // Behind the sync, so that a disk too full for another segment does not keep what was buffered from being synced.
        if log.wants_segment() {
            log.prepare_segment()?;
            self.tree.segment_requested.store(false, Ordering::Relaxed);
            return Ok(Next::Again);
        }
        if let Some(path) = self.orphans.pop_front() {
            self.tree.remove_file(&path)?;
            return Ok(Next::Again);
        }
        if self.remove_one_obsolete()? {
            return Ok(Next::Again);
        }
        let waiting = !self.tree.state.lock().obsolete.is_empty();
        let recheck = if waiting { now + RECHECK_NANOS } else { u64::MAX };
        Ok(Next::IdleUntil(recheck.min(self.next_sync_nanos)))
    }

    /// After a failed write or sync of the log: once everything that the log may have lost is in durable tables, the
    /// log goes on.
    fn resume_log(&mut self, now: u64) -> Result<Next> {
        let tree = &self.tree;
        let log = tree.log("resume")?;
        let Some(failure) = log.failure() else { return Ok(Next::Again) };
        if tree.versions.lock().durable.log_replay_start < failure.flush_before {
            let waiting = tree.read_state.load().immutables.iter().any(|i| i.log_end >= failure.flush_before);
            if !waiting && !tree.rotate_if(|_| true)? {
                // Nothing is in the memtable: what the log lost was flushed already, only the start must move.
                tree.move_replay_start(failure.flush_before)?;
                return Ok(Next::Again);
            }
            tree.executor.wake();
            return Ok(Next::IdleUntil(now + RECHECK_NANOS));
        }
        log.resume()?;
        tree.record_success("log");
        tree.progress.notify_all();
        Ok(Next::Again)
    }

    /// Removes one file that no version has any more and no reader holds. One a quantum, so that dropping a large table
    /// does not keep the disk busy at once.
    fn remove_one_obsolete(&mut self) -> Result<bool> {
        let file = {
            let mut state = self.tree.state.lock();
            // The list's own reference is the last one: no version, hence no reader, can reach the file.
            let free = state.obsolete.iter().position(|file| Arc::strong_count(file) == 1);
            free.map(|index| state.obsolete.swap_remove(index))
        };
        let Some(file) = file else { return Ok(false) };
        self.tree.remove_table(file.id)?;
        Ok(true)
    }
}

impl Tree {
    /// Removes a table that no version has, and what the caches know of it.
    pub(crate) fn remove_table(&self, id: u64) -> Result<()> {
        self.tables.forget(id);
        self.remove_file(&layout::table(&self.directory, id))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        match self.environment.fs.remove_file(path) {
            Ok(()) => self.counters.removed_files.increment(),
            Err(error) if error.is_missing_file() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Worker for Housekeeper {
    fn name(&self) -> String {
        "alluvium-house".to_owned()
    }

    fn run_quantum(&mut self) -> Next {
        if self.tree.closed.load(Ordering::Acquire) {
            return Next::Idle;
        }
        let now = self.tree.environment.clock.monotonic_nanos();
        if now < self.retry_at_nanos {
            return Next::IdleUntil(self.retry_at_nanos);
        }
        match catch_panic("housekeeping", || self.step()) {
            Ok(next) => next,
            Err(error) => {
                self.retry_at_nanos = self.tree.record_failure("log", error);
                Next::IdleUntil(self.retry_at_nanos)
            }
        }
    }
}
