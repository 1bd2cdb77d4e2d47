//! Keeping house: syncing, log segments, recovery from a failed log, removing files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_base::Result;

use crate::executor::{Next, Worker, catch_panic};
use crate::layout;
use crate::lease::LeaseView;
use crate::obsolete::Removal;
use crate::tree::Tree;

/// How long to wait before looking again at files that a reader still holds, in this process or another.
const RECHECK_NANOS: u64 = 100_000_000;

/// See the module's documentation.
pub(super) struct Housekeeper {
    tree: Arc<Tree>,
    next_sync_nanos: u64,
    retry_at_nanos: u64,
    /// What readers of other processes need, and when that was looked at.
    leases: Option<(LeaseView, u64)>,
}

impl Housekeeper {
    pub(super) fn new(tree: Arc<Tree>) -> Result<Housekeeper> {
        crate::open::find_orphans(&tree)?;
        Ok(Housekeeper { tree, next_sync_nanos: 0, retry_at_nanos: 0, leases: None })
    }

    fn step(&mut self) -> Result<Next> {
        let now = self.tree.environment.clock.monotonic_nanos();
        let log = self.tree.log("keep house")?;
        if log.failure().is_some() {
            // A full disk may need the space. What cannot be removed must not keep the log from going on.
            return match self.remove_one(now) {
                Ok(true) => Ok(Next::Again),
                Ok(false) | Err(_) => self.resume_log(now),
            };
        }
        if now >= self.next_sync_nanos {
            if log.durable_address() < log.end_address() {
                log.sync(log.end_address())?;
            }
            self.next_sync_nanos = now + self.tree.options.buffered_sync_interval.as_nanos() as u64;
        }
        // What is free comes before the next segment, which may be made of it.
        let removed = self.remove_one(now);
        if matches!(removed, Ok(true)) {
            return Ok(Next::Again);
        }
        // Behind the sync, so that a disk too full for another segment does not keep what was buffered from being synced.
        let log = self.tree.log("keep house")?;
        if log.wants_segment() {
            log.prepare_segment()?;
            self.tree.segment_requested.store(false, Ordering::Relaxed);
            return Ok(Next::Again);
        }
        removed?;
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
            if !waiting {
                if !tree.rotate_if(|_| true)? {
                    // Nothing is in the memtable: what the log lost was flushed already, only the start must move.
                    tree.move_replay_start(failure.flush_before)?;
                    return Ok(Next::Again);
                }
                // Once, not at every look: it wakes this worker too, which would then spin while the flush waits to retry.
                tree.executor.wake();
            }
            return Ok(Next::IdleUntil(now + RECHECK_NANOS));
        }
        log.resume()?;
        tree.record_success("log");
        tree.progress.notify_all();
        Ok(Next::Again)
    }

    /// Removes one file that no version has any more and no reader holds. One a quantum, so that dropping a large table
    /// does not keep the disk busy at once. False if there is none.
    fn remove_one(&mut self, now: u64) -> Result<bool> {
        let (newest, next) = {
            let mut state = self.tree.state.lock();
            let Some(newest) = state.obsolete.newest_unread() else { return Ok(false) };
            (newest, self.leases.as_ref().and_then(|(view, _)| state.obsolete.next(view)))
        };
        let Some(removal) = next else {
            // Leases are looked at once for everything that is obsolete by then, and now and then for what they hold.
            let is_fresh = |(view, at): &(LeaseView, u64)| view.as_of >= newest && now < at + RECHECK_NANOS;
            if self.leases.as_ref().is_some_and(is_fresh) {
                return Ok(false);
            }
            let view = LeaseView::read(self.tree.environment.fs.as_ref(), &self.tree.directory, newest)?;
            self.tree.state.lock().readers = view.readers;
            self.leases = Some((view, now));
            return Ok(true);
        };
        let result = match &removal {
            Removal::Log(address) => self.tree.log("release the log")?.release_before(*address),
            Removal::Table(id) => self.tree.remove_table(*id),
            Removal::Manifest(number) => {
                self.tree.remove_file(&layout::manifest(&self.tree.directory, *number))
            }
            Removal::File(path) => self.tree.remove_file(path),
        };
        if result.is_err() {
            let removal = match removal {
                Removal::Table(id) => Removal::File(layout::table(&self.tree.directory, id)),
                other => other,
            };
            self.tree.state.lock().obsolete.put_back(removal, newest);
        }
        result.map(|()| true)
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
            Ok(next) => {
                if std::mem::take(&mut self.retry_at_nanos) > 0 {
                    self.tree.record_success("log");
                }
                next
            }
            Err(error) => {
                self.retry_at_nanos = self.tree.record_failure("log", error);
                Next::IdleUntil(self.retry_at_nanos)
            }
        }
    }
}
