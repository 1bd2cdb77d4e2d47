//! The commit pipeline.
//!
//! 1. **Admission**: wait as long as the tree's debt asks for, computed once from the batch's bytes.
//! 2. **Gate**: share it, so that the memtable is not frozen under the commit.
//! 3. **Append**: the log gives the record its address and, under the same short lock, its sequence numbers; so the order
//!    of the log is the order of sequence numbers. Up to here a failure leaves nothing behind.
//! 4. **Apply**: insert every operation into the memtable, beside other commits. It cannot fail.
//! 5. **Publish**: sequence numbers become visible in order. Whoever is early waits for those before; so a reader that
//!    sees a commit sees all earlier ones.
//! 6. **Durability**: a `Sync` commit waits for the log to be synced past its record. It is visible already: what a
//!    reader sees may be lost in a crash of the machine until somebody's sync covers it, but a later durable commit
//!    implies every earlier one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use alluvium_base::checksum::key_hash;
use alluvium_base::clock::Clock;
use alluvium_base::key::{KeyspaceId, Kind, Seqno, Trailer};
use alluvium_base::metrics::Counter;
use alluvium_base::range_tombstone::RangeTombstone;
use alluvium_base::rate_limiter::RateLimiter;
use alluvium_base::sync::{Mutex, WaitPoint, WaitReason, WaitStatistics, sleep};
use alluvium_base::{Error, Result};
use alluvium_wal::{Appended, Log};

use crate::admission::{Admission, Cause, Debt, Limits, decide};
use crate::batch::{Operation, RawBatch};
use crate::memtable::Memtable;
use crate::options::{Durability, Options};
use crate::snapshot::SnapshotRegistry;
use crate::tree::{BackgroundError, Tree};

/// A commit that is visible, and the address up to which the log must be synced for it to be durable.
#[derive(Clone, Copy, Debug)]
pub struct CommitTicket {
    pub(crate) log_end: u64,
    pub(crate) durability: Durability,
}

/// Makes sequence numbers visible in order.
pub(crate) struct Publisher {
    state: Mutex<PublisherState>,
    advanced: WaitPoint,
}

struct PublisherState {
    /// The first number that is not visible yet.
    next: Seqno,
    /// Applied commits whose predecessors are not applied yet: first number → last number.
    early: BTreeMap<Seqno, Seqno>,
}

impl Publisher {
    pub(crate) fn new(next: Seqno, clock: Arc<dyn Clock>, waits: Arc<WaitStatistics>) -> Publisher {
        Publisher {
            state: Mutex::new(PublisherState { next, early: BTreeMap::new() }),
            advanced: WaitPoint::new(WaitReason::CommitQueue, clock, waits),
        }
    }

    /// Begins anew at `next`, after a replay and before the first commit.
    pub(crate) fn restart(&self, next: Seqno) {
        self.state.lock().next = next;
    }

    /// Says that the numbers `first..=last` are applied; returns when they are visible.
    fn publish(&self, first: Seqno, last: Seqno, snapshots: &SnapshotRegistry) {
        let mut state = self.state.lock();
        if state.next != first {
            state.early.insert(first, last);
            self.advanced.wait_while(&mut state, |state| state.next <= last);
            return;
        }
        state.next = last + 1;
        let mut released = false;
        while let Some(last) = {
            let next = state.next;
            state.early.remove(&next)
        } {
            state.next = last + 1;
            released = true;
        }
        snapshots.publish(state.next - 1);
        if released {
            self.advanced.notify_all();
        }
    }
}

/// Paces writers.
pub(crate) struct AdmissionControl {
    limits: Limits,
    limiter: RateLimiter,
    current: Mutex<Admission>,
    /// What flushes and compactions absorbed, and in how much busy time.
    capacity: Mutex<Capacity>,
    pub(crate) delayed: Counter,
    pub(crate) delayed_nanos: Counter,
    pub(crate) stopped: Counter,
    pub(crate) stopped_nanos: Counter,
}

/// Bytes absorbed per busy second, as an average that forgets half of its past with every job's worth of bytes.
#[derive(Debug)]
struct Capacity {
    flush_bytes_per_second: f64,
    compaction_bytes_per_second: f64,
}

/// What a flush absorbs before the first one has been measured, in bytes per second; corrected by each job.
const CAPACITY_GUESS: f64 = 200e6;

impl AdmissionControl {
    pub(crate) fn new(options: &Options) -> AdmissionControl {
        let trigger = options.level0_compaction_trigger;
        let base = options.base_level_bytes;
        AdmissionControl {
            limits: Limits {
                level0_sublevels: (trigger * 3, trigger * 9),
                immutable_memtables: (
                    options.immutable_memtables_max.div_ceil(2),
                    options.immutable_memtables_max,
                ),
                pending_bytes: (base.saturating_mul(32), base.saturating_mul(256)),
            },
            limiter: RateLimiter::new(f64::INFINITY),
            current: Mutex::new(Admission::Free),
            capacity: Mutex::new(Capacity {
                flush_bytes_per_second: CAPACITY_GUESS,
                compaction_bytes_per_second: CAPACITY_GUESS,
            }),
            delayed: Counter::default(),
            delayed_nanos: Counter::default(),
            stopped: Counter::default(),
            stopped_nanos: Counter::default(),
        }
    }

    /// Tells what a job absorbed in `nanos` of busy time.
    pub(crate) fn record_job(&self, is_flush: bool, user_bytes: u64, nanos: u64) {
        if nanos == 0 || user_bytes == 0 {
            return;
        }
        let rate = user_bytes as f64 / (nanos as f64 / 1e9);
        let mut capacity = self.capacity.lock();
        let average = if is_flush {
            &mut capacity.flush_bytes_per_second
        } else {
            &mut capacity.compaction_bytes_per_second
        };
        *average = (*average + rate) / 2.0;
    }

    /// What writers may do now.
    pub(crate) fn current(&self) -> Admission {
        *self.current.lock()
    }

    /// Decides anew what writers may do.
    pub(crate) fn update(&self, debt: &Debt) {
        let capacity = {
            let capacity = self.capacity.lock();
            capacity.flush_bytes_per_second.min(capacity.compaction_bytes_per_second)
        };
        let decision = decide(debt, &self.limits, capacity.max(1e6));
        self.limiter.set_rate(match decision {
            Admission::Paced { bytes_per_second, .. } => bytes_per_second,
            Admission::Free | Admission::Stopped { .. } => f64::INFINITY,
        });
        *self.current.lock() = decision;
    }
}

/// Longest single wait for admission, so that a rate that rises meanwhile is felt soon.
const DELAY_MAX: Duration = Duration::from_millis(20);

impl Tree {
    /// Writes an admitted batch: atomic, visible when this returns. Wait for its durability with [`Tree::wait_durable`].
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, or those of the log; the batch then has not happened.
    pub(crate) fn apply(&self, batch: &RawBatch, durability: Durability) -> Result<CommitTicket> {
        let log = self.check_writable(batch)?;
        loop {
            let gate = self.gate.read();
            if gate.memory_bytes() >= self.memory.memtable_bytes {
                drop(gate);
                self.make_room()?;
                continue;
            }
            let end = self.write_through(&gate, log, batch)?;
            drop(gate);
            return Ok(self.finish_commit(log, batch, end, durability));
        }
    }

    /// The log, if the batch may be written.
    pub(crate) fn check_writable(&self, batch: &RawBatch) -> Result<&Log> {
        self.check_open()?;
        let log = self.log("write")?;
        if self.any_dropped.load(Ordering::Acquire) {
            let mut keyspaces = batch.iter().filter_map(|operation| KeyspaceId::of(operation.key));
            keyspaces.try_for_each(|keyspace| self.check_not_dropped(keyspace))?;
        }
        Ok(log)
    }

    /// Appends, applies and publishes a batch; the caller holds the gate, whose memtable is `gate`. Returns the end of
    /// the record, or that of the log if the batch is empty: what it found that made it change nothing may itself not be
    /// durable yet, and a durable commit makes every earlier one durable.
    pub(crate) fn write_through(&self, gate: &Memtable, log: &Log, batch: &RawBatch) -> Result<u64> {
        if batch.is_empty() {
            return Ok(log.end_address());
        }
        let appended = self.append(log, batch)?;
        let mut seqno = appended.seqno;
        for operation in batch.iter() {
            apply_operation(gate, &operation, seqno);
            seqno += 1;
        }
        // Published before the gate is let go: a frozen memtable holds nothing that is not visible yet, which a
        // flush relies on when it drops old versions. Those that this waits for hold the gate, too.
        self.publisher.publish(appended.seqno, seqno - 1, &self.snapshots);
        Ok(appended.end)
    }

    /// What is left to do for a visible commit once the gate is free.
    pub(crate) fn finish_commit(
        &self,
        log: &Log,
        batch: &RawBatch,
        log_end: u64,
        durability: Durability,
    ) -> CommitTicket {
        if batch.is_empty() {
            return CommitTicket { log_end, durability };
        }
        // Filling a segment takes tens of milliseconds; a commit that comes to the end of the last one would wait.
        if log.wants_segment() && !self.segment_requested.swap(true, Ordering::Relaxed) {
            self.executor.wake();
        }
        self.counters.commits.increment();
        self.counters.written_operations.add(batch.operations());
        self.counters.written_bytes.add(batch.bytes().len() as u64);
        CommitTicket { log_end, durability }
    }

    /// Appends a batch to the log, in parts if it is longer than a record. The gate is held, so all parts are in the
    /// range of the log that the memtable stands for.
    fn append(&self, log: &Log, batch: &RawBatch) -> Result<Appended> {
        let number_operations = || self.next_seqno.fetch_add(batch.operations(), Ordering::Relaxed);
        if batch.bytes().len() <= log.payload_bytes_max() {
            return log.append(batch.bytes(), number_operations);
        }
        let number = self.next_part_number.fetch_add(1, Ordering::Relaxed);
        let mut last = None;
        for (is_last, payload) in crate::parts::split(batch.bytes(), number, log.payload_bytes_max()) {
            last = Some(if is_last {
                log.append(&payload, number_operations)?
            } else {
                log.append(&payload, || self.next_seqno.load(Ordering::Relaxed))?
            });
        }
        last.ok_or_else(|| Error::invalid("an empty batch is not appended"))
    }

    /// Waits until a commit is as durable as it was asked to be.
    ///
    /// # Errors
    /// `DurabilityUnknown` if the log could not be written or synced.
    pub(crate) fn wait_durable(&self, ticket: &CommitTicket) -> Result<()> {
        match (ticket.durability, self.log.get()) {
            (Durability::Buffered, Some(log)) => log.secure(ticket.log_end),
            (Durability::Sync, Some(log)) => {
                let result = log.sync(ticket.log_end);
                if result.is_err() {
                    self.executor.wake();
                }
                result
            }
            (_, None) => Ok(()),
        }
    }

    /// Freezes the full memtable; stops while too many wait for their flush already.
    pub(crate) fn make_room(&self) -> Result<()> {
        self.wait_below_hard_limit()?;
        let limit = self.memory.memtable_bytes;
        self.rotate_if(|memtable| memtable.memory_bytes() >= limit)?;
        self.update_admission();
        Ok(())
    }

    /// Waits as long as the tree's debt asks for before `bytes` more are written.
    pub(crate) fn admit(&self, bytes: u64) -> Result<()> {
        match self.admission.current() {
            Admission::Free => Ok(()),
            Admission::Stopped { .. } => self.wait_below_hard_limit(),
            Admission::Paced { .. } => {
                let clock = &self.environment.clock;
                let wait = self.admission.limiter.take(bytes, clock.monotonic_nanos()).min(DELAY_MAX);
                if !wait.is_zero() {
                    self.admission.delayed.increment();
                    self.admission.delayed_nanos.add(wait.as_nanos() as u64);
                    sleep(clock.as_ref(), &self.waits, WaitReason::Admission, wait);
                }
                Ok(())
            }
        }
    }

    /// The backstop: waits while the tree is past a hard limit. Not for ever: if the background work that would bring it
    /// back fails, and fails again when it is retried, the writer is told.
    fn wait_below_hard_limit(&self) -> Result<()> {
        const FAILURES_MAX: u64 = 2;
        let start = self.environment.clock.monotonic_nanos();
        let mut stopped = false;
        let mut failure = None;
        let failures_before = self.counters.background_failures.get();
        let mut state = self.state.lock();
        self.progress.wait_while(&mut state, |state| {
            let wait = self.stopped_by().is_some() && !self.closed.load(Ordering::Acquire);
            stopped |= wait;
            // A failure of before may have been overcome: only one that comes while we wait says that waiting is no use.
            // That of the log is not asked for: it does not stop writers, and it would say that this commit is visible.
            if wait && self.counters.background_failures.get() > failures_before {
                let jobs = ["flush", "compaction"].iter().filter_map(|job| state.failures.get(job));
                failure =
                    jobs.filter(|last| last.count >= FAILURES_MAX).max_by_key(|last| last.count).cloned();
            }
            wait && failure.is_none()
        });
        drop(state);
        if stopped {
            self.admission.stopped.increment();
            self.admission.stopped_nanos.add(self.environment.clock.monotonic_nanos() - start);
        }
        self.check_open()?;
        match failure {
            None => Ok(()),
            Some(BackgroundError { job, error, count, .. }) => Err(error.context(format!(
                "nothing was written: writers are stopped until {job} works again, which has failed {count} times in \
                 a row and is retried by itself"
            ))),
        }
    }

    /// What stops writers right now. A freezing memtable counts as one more than there are.
    fn stopped_by(&self) -> Option<Cause> {
        match decide(&self.debt(), &self.admission.limits, CAPACITY_GUESS) {
            Admission::Stopped { cause } => Some(cause),
            _ => None,
        }
    }

    /// How far behind the tree is.
    pub(crate) fn debt(&self) -> Debt {
        let state = self.read_state.load();
        Debt {
            level0_sublevels: state.version.sublevels().len(),
            immutable_memtables: state.immutables.len(),
            pending_bytes: self.pending_compaction_bytes(&state.version),
        }
    }

    /// Decides anew how fast writers may go; called whenever the shape of the tree changes.
    pub(crate) fn update_admission(&self) {
        self.admission.update(&self.debt());
    }
}

/// Inserts one operation of a commit or of a replayed record.
pub(crate) fn apply_operation(memtable: &Memtable, operation: &Operation<'_>, seqno: Seqno) {
    match operation.kind {
        Kind::RangeDelete => memtable.add_range_tombstone(RangeTombstone {
            start: operation.key.to_vec(),
            end: operation.value.to_vec(),
            seqno,
        }),
        kind => memtable.insert(
            operation.key,
            key_hash(operation.key),
            Trailer::new(seqno, kind),
            operation.value,
        ),
    }
}

#[cfg(test)]
mod tests {
    use alluvium_base::clock::SimulatedClock;

    use super::*;

    #[test]
    fn commits_become_visible_in_order() {
        let clock = SimulatedClock::new();
        let waits = Arc::new(WaitStatistics::default());
        let snapshots = SnapshotRegistry::new(0, clock.clone());
        let publisher = Arc::new(Publisher::new(1, clock, waits));
        let early = {
            let (publisher, snapshots) = (Arc::clone(&publisher), Arc::clone(&snapshots));
            std::thread::spawn(move || publisher.publish(3, 5, &snapshots))
        };
        while publisher.state.lock().early.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(snapshots.visible(), 0, "a commit must not show before its predecessors");
        publisher.publish(1, 2, &snapshots);
        assert_eq!(snapshots.visible(), 5);
        early.join().unwrap();
    }
}
