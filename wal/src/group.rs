//! Group sync: one fsync at a time, for everybody who waits.
//!
//! 1. The first who needs a sync that no running one covers becomes *leader* of the gathering group; those who come
//!    after it join.
//! 2. The leader waits until no other group runs. Then its group stops gathering (the next one starts), it takes the
//!    drain turn and writes out everything appended so far. That end, snapped as late as can be, is the target.
//! 3. It syncs the segments written to, without any lock. Who comes meanwhile with an end below the target joins the
//!    running group; others gather for the next.
//! 4. It moves the durable address, wakes its members, all at once, and the leader of the next group.
//!
//! So each waiter sleeps once and is woken once; a lone one does not sleep at all. Even and odd groups wait on points
//! of their own: while one of them is woken, only the other gathers.
//!
//! A member of a running group has an end at or below its target: it appended before it joined, and the target is
//! read after gathering stopped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_base::sync::{MutexGuard, WaitPoint};
use alluvium_base::{Error, ErrorKind, Result};

use crate::drain::{Extent, unknown};
use crate::log::{Flow, Log};

/// Who waits for which sync.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Number of the group that gathers.
    gathering: u64,
    /// Its members so far.
    members: u64,
    /// True once it has a leader.
    led: bool,
    running: Option<Running>,
    /// Groups below this number are done.
    done: u64,
    /// Why the last failed group failed.
    failed: Option<Error>,
    /// Number of failures of the log so far. A group during which it moved is not acknowledged.
    pub(crate) failures: u64,
}

#[derive(Debug)]
struct Running {
    group: u64,
    members: u64,
    target: u64,
}

impl Log {
    /// Returns when every record that ends at or below `end` survives a crash of the machine.
    ///
    /// # Errors
    /// `DurabilityUnknown` if writing or syncing fails, or has failed and [`resume`](Log::resume) was not yet
    /// called; `InvalidArgument` if `end` lies beyond the log.
    pub fn sync(&self, end: u64) -> Result<()> {
        if self.durable_address() >= end {
            return Ok(());
        }
        if end > self.end_address() {
            return Err(Error::invalid(format!("address {end} lies behind the end of the log")));
        }
        let mut flow = self.flow.lock();
        if self.durable_address() >= end {
            return Ok(());
        }
        if let Some(failure) = &flow.failure {
            return Err(unknown(&failure.cause));
        }
        if let Some(running) = flow.groups.running.as_mut().filter(|running| end <= running.target) {
            running.members += 1;
            let group = running.group;
            return self.follow(flow, group, end);
        }
        flow.groups.members += 1;
        let group = flow.groups.gathering;
        if flow.groups.led {
            return self.follow(flow, group, end);
        }
        flow.groups.led = true;
        self.sync_turn.wait_while(&mut flow, |flow| flow.groups.running.is_some());
        self.lead(flow)
    }

    fn group_point(&self, group: u64) -> &WaitPoint {
        let [even, odd] = &self.groups;
        if group.is_multiple_of(2) { even } else { odd }
    }

    /// Waits for the leader of `group`.
    fn follow(&self, mut flow: MutexGuard<'_, Flow>, group: u64, end: u64) -> Result<()> {
        self.group_point(group).wait_while(&mut flow, |flow| flow.groups.done <= group);
        if self.durable_address() >= end {
            return Ok(());
        }
        Err(flow.groups.failed.clone().unwrap_or_else(|| {
            ErrorKind::DurabilityUnknown { cause: "the sync of the log failed".to_string() }.into()
        }))
    }

    /// Runs the gathering group.
    fn lead(&self, mut flow: MutexGuard<'_, Flow>) -> Result<()> {
        let group = flow.groups.gathering;
        let failures = flow.groups.failures;
        let (members, target) = (flow.groups.members, self.end_address());
        flow.groups.running = Some(Running { group, members, target });
        flow.groups.gathering += 1;
        flow.groups.members = 0;
        flow.groups.led = false;
        drop(flow);
        let mut leading = Leading { log: self, group, outcome: None };
        let synced = self.write_and_sync(failures);
        leading.outcome = Some(synced.clone());
        drop(leading);
        synced.map(|_| ())
    }

    /// Writes out what has been appended, syncs it, and returns the address up to which that holds.
    fn write_and_sync(&self, failures: u64) -> Result<u64> {
        let (target, segments) = {
            let turn = self.wait_for_drain_turn();
            self.write_out(&turn, Extent::Everything)?;
            let mut flow = self.flow.lock();
            let target = self.written.load(Ordering::Acquire);
            if let Some(running) = &mut flow.groups.running {
                running.target = target;
            }
            let segments = std::mem::take(&mut flow.unsynced);
            drop(flow);
            (target, segments)
        };
        for segment in &segments {
            let start = self.clock.monotonic_nanos();
            if let Err(error) = segment.file.sync_data() {
                self.flow.lock().unsynced.extend(segments.iter().map(Arc::clone));
                self.fail(&error);
                return Err(unknown(&error));
            }
            self.statistics.sync_nanos.record(self.clock.monotonic_nanos().saturating_sub(start));
        }
        let flow = self.flow.lock();
        if flow.groups.failures != failures {
            let cause = "another write to the log failed meanwhile".to_string();
            return Err(ErrorKind::DurabilityUnknown { cause }.into());
        }
        let before = self.durable.swap(target, Ordering::AcqRel);
        debug_assert!(before <= target, "the durable address went back from {before} to {target}");
        self.statistics.bytes_synced.add(target - before);
        self.statistics.syncs.increment();
        drop(flow);
        Ok(target)
    }
}

/// Ends a group when dropped, whatever happened to its leader.
struct Leading<'a> {
    log: &'a Log,
    group: u64,
    outcome: Option<Result<u64>>,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut flow = self.log.flow.lock();
        let groups = &mut flow.groups;
        groups.done = self.group + 1;
        if let Some(running) = groups.running.take() {
            self.log.statistics.sync_group_sizes.record(running.members);
        }
        match self.outcome.take() {
            Some(Ok(_)) => {}
            Some(Err(error)) => groups.failed = Some(error),
            None => {
                let cause = "the thread that synced the log panicked".to_string();
                groups.failed = Some(ErrorKind::DurabilityUnknown { cause }.into());
            }
        }
        drop(flow);
        self.log.group_point(self.group).notify_all();
        self.log.sync_turn.notify_one();
    }
}
