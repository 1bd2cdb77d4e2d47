//! After a failed write or sync.
//!
//! A failed `pwrite` may have written any part of its bytes; after a failed fsync nothing is known of anything written
//! since the last success, not even that a later success would cover it. So nothing is tried again on that segment:
//!
//! 1. Whoever waits for a sync gets `DurabilityUnknown`, and so does everyone who asks for one from now on. Appends go
//!    on as long as the ring has room; it drains no more.
//! 2. The engine flushes every record below [`LogFailure::flush_before`] into tables, syncs the manifest with a
//!    replay start at or above it, and calls [`Log::resume`].
//! 3. That starts a new segment at `drained`, the address where the ring begins. So what was appended meanwhile is
//!    still in the sequence, without a gap; what the failed segment had is in tables. The failed segment answers only
//!    for what lies below the new one, and is removed when it is released, never used again.
//!
//! If the process dies before step 3, the next one reads the failed segment below `drained` and the ring above it.

use std::sync::atomic::Ordering;

use alluvium_base::{Error, Result};

use crate::drain::unknown;
use crate::log::Log;
use crate::supply::Retired;

/// Why no sync is acknowledged at present.
#[derive(Clone, Debug)]
pub struct LogFailure {
    /// What failed.
    pub cause: Error,
    /// Every record below this address must be in durable tables, and the durable replay start at or above it, before
    /// [`Log::resume`] is called. It is the end of the log when the failure was noticed.
    pub flush_before: u64,
}

impl Log {
    /// The failure that the log is waiting to be [resumed](Log::resume) from, if any.
    #[must_use]
    pub fn failure(&self) -> Option<LogFailure> {
        self.flow.lock().failure.clone()
    }

    /// Remembers a failure and wakes everyone who waited for what can no longer happen.
    pub(crate) fn fail(&self, cause: &Error) {
        self.statistics.failures.increment();
        let mut flow = self.flow.lock();
        flow.groups.failures += 1;
        if flow.failure.is_none() {
            flow.failure = Some(LogFailure { cause: cause.clone(), flush_before: self.end_address() });
        }
        drop(flow);
        self.room.notify_all();
    }

    /// `DurabilityUnknown` while the log has failed.
    pub(crate) fn refuse_after_failure(&self) -> Result<()> {
        self.flow.lock().failure.as_ref().map_or(Ok(()), |failure| Err(unknown(&failure.cause)))
    }

    /// Goes on after a failure: starts a new segment, after which syncs are acknowledged again. Does nothing if the log
    /// has not failed.
    ///
    /// The caller has flushed what [`LogFailure::flush_before`] says; what was appended later is still in the ring.
    ///
    /// # Errors
    /// Those of making a segment (the disk may still be full): the failure stays, call it again later.
    pub fn resume(&self) -> Result<()> {
        // With the turn to drain, nobody moves `drained` or the active segment.
        let _turn = self.wait_for_drain_turn();
        let mut flow = self.flow.lock();
        self.preparation.wait_while(&mut flow, |flow| flow.preparing);
        if flow.failure.is_none() {
            return Ok(());
        }
        self.remove_unused(&mut flow)?;
        let base = self.drained.load(Ordering::Acquire);
        let made = self.make_segment(&mut flow, base)?;
        let failed = std::mem::replace(&mut flow.active, made);
        let suspects: Vec<u64> = flow.unsynced.drain(..).map(|segment| segment.base).collect();
        for retired in flow.older.iter_mut().filter(|retired| suspects.contains(&retired.base)) {
            retired.reusable = false;
        }
        if failed.base < base {
            flow.older.push(Retired::from_segment(&failed, base, false));
        }
        // The page that was written but is not full yet must be written again, into the new segment.
        self.written.store(base, Ordering::Release);
        flow.failure = None;
        self.segment_wanted.store(true, Ordering::Relaxed);
        drop(flow);
        Ok(())
    }
}
