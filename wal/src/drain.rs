//! From the ring into the segments: whole pages, in order, up to 64 KiB per write.
//!
//! One thread at a time has the *drain turn*; whoever needs room, or a sync, and finds nobody at it, takes it. It
//! holds no lock while it writes, so appends go on. Steps of one write:
//!
//! 1. Look at the end of the log; take whole pages from `drained` on, up to 64 KiB, not beyond the active segment.
//!    Only if a sync asks, also the page that is not full, with zeros behind the last record; it stays in the ring
//!    and will be written again. (Sectors that a crash tears hold the old or the new bytes; where there were bytes,
//!    both are the same.)
//! 2. Copy them out of the ring, `pwrite`.
//! 3. Move `drained`, in memory and in the ring's header, and wake those who wait for room.
//!
//! So that the ring is rarely full, an append that finds more than one write's worth in it drains one write, if
//! nobody else is at it: 64 KiB are some 15 µs every few hundred records.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_base::sync::MutexGuard;
use alluvium_base::{Error, ErrorKind, Result};

use crate::files::{Segment, WRITE_BYTES_MAX};
use crate::format::{page_ceil, page_floor};
use crate::log::{Flow, Log};

/// The right to write to segments. Dropping it wakes the next; the flow lock must not be held then.
pub(crate) struct DrainTurn<'a> {
    log: &'a Log,
}

impl Drop for DrainTurn<'_> {
    fn drop(&mut self) {
        self.log.flow.lock().draining = false;
        self.log.drain_turn.notify_one();
        self.log.room.notify_all();
    }
}

/// How far to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Full pages only.
    WholePages,
    /// Everything, the last page filled up with zeros.
    Everything,
}

impl Log {
    /// Writes the full pages of the ring to segments.
    ///
    /// # Errors
    /// `DurabilityUnknown` if the log has failed or fails now.
    pub fn drain(&self) -> Result<()> {
        let turn = self.wait_for_drain_turn();
        self.write_out(&turn, Extent::WholePages)
    }

    /// Makes every record below `end` survive a crash of the process. Nothing to do where the ring is mapped; else
    /// writes to segments what is not there yet. Call it before acknowledging a commit that asks for no sync.
    ///
    /// # Errors
    /// `DurabilityUnknown` if the log has failed or fails now.
    pub fn secure(&self, end: u64) -> Result<()> {
        if self.ring.survives_the_process() {
            return Ok(());
        }
        let is_written = || self.written.load(Ordering::Acquire) >= end;
        let turn = {
            let mut flow = self.flow.lock();
            self.drain_turn.wait_while(&mut flow, |flow| flow.draining && !is_written());
            if is_written() {
                // Whoever had the turn wrote this record too; the wake-up belongs to another one.
                self.drain_turn.notify_one();
                return Ok(());
            }
            self.take_drain_turn(&mut flow)
        };
        self.write_out(&turn, Extent::Everything)
    }

    /// Called after an append without any lock: keeps the ring from filling up.
    pub(crate) fn drain_some(&self, end: u64) {
        // Others may have drained this append, and later ones, already.
        if end.saturating_sub(self.drained.load(Ordering::Relaxed)) < WRITE_BYTES_MAX as u64 {
            return;
        }
        let turn = match self.flow.try_lock() {
            Some(mut flow) if !flow.draining && flow.failure.is_none() => self.take_drain_turn(&mut flow),
            _ => return,
        };
        // A failure is remembered in the flow; this append has succeeded all the same.
        let _ = self.write_piece(&turn, Extent::WholePages);
    }

    /// Waits until `bytes` more fit into the ring, draining it if nobody else does.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<()> {
        self.statistics.ring_waits.increment();
        let has_room = || self.has_room(self.end_address(), bytes);
        let turn = {
            let mut flow = self.flow.lock();
            self.room.wait_while(&mut flow, |flow| flow.draining && flow.failure.is_none() && !has_room());
            if has_room() {
                return Ok(());
            }
            if let Some(failure) = &flow.failure {
                let full = "the log's ring is full and cannot be drained";
                return Err(failure.cause.clone().context(full));
            }
            self.take_drain_turn(&mut flow)
        };
        while !has_room() {
            if !self.write_piece(&turn, Extent::WholePages)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take_drain_turn(&self, flow: &mut MutexGuard<'_, Flow>) -> DrainTurn<'_> {
        debug_assert!(!flow.draining, "two threads drain at once");
        flow.draining = true;
        DrainTurn { log: self }
    }

    /// Waits until nobody drains and takes over.
    pub(crate) fn wait_for_drain_turn(&self) -> DrainTurn<'_> {
        let mut flow = self.flow.lock();
        self.drain_turn.wait_while(&mut flow, |flow| flow.draining);
        self.take_drain_turn(&mut flow)
    }

    /// Writes at least everything that had been appended when this was called, as far as `extent` goes.
    pub(crate) fn write_out(&self, turn: &DrainTurn<'_>, extent: Extent) -> Result<()> {
        let goal = match extent {
            Extent::WholePages => page_floor(self.end_address()),
            Extent::Everything => self.end_address(),
        };
        while self.written.load(Ordering::Acquire) < goal {
            if !self.write_piece(turn, extent).map_err(|error| unknown(&error))? {
                break;
            }
        }
        self.refuse_after_failure()
    }

    /// One write; false if there was nothing to write. A failure is remembered.
    fn write_piece(&self, _turn: &DrainTurn<'_>, extent: Extent) -> Result<bool> {
        self.flow.lock().failure.as_ref().map_or(Ok(()), |failure| Err(failure.cause.clone()))?;
        let end = self.end_address();
        let from = self.drained.load(Ordering::Relaxed);
        let limit = match extent {
            Extent::WholePages => page_floor(end),
            Extent::Everything => page_ceil(end),
        };
        if limit <= from || (extent == Extent::Everything && self.written.load(Ordering::Relaxed) >= end) {
            return Ok(false);
        }
        let result = self.segment_at(from).and_then(|segment| {
            let to = limit.min(from + WRITE_BYTES_MAX as u64).min(segment.end());
            self.copy_out(&segment, from, to, end)?;
            Ok((segment, to))
        });
        match result {
            Ok((segment, to)) => {
                self.note_written(&segment, from, to, end);
                Ok(true)
            }
            Err(error) => {
                self.fail(&error);
                Err(error)
            }
        }
    }

    /// Copies the ring's bytes in `from..to` into the segment, with zeros from `end` on.
    fn copy_out(&self, segment: &Segment, from: u64, to: u64, end: u64) -> Result<()> {
        let mut buffer = self.write_buffer.lock();
        let (len, live) = ((to - from) as usize, (to.min(end) - from) as usize);
        let bytes = buffer.get_mut(..len).unwrap_or_default();
        let (records, padding) = bytes.split_at_mut(live);
        self.ring.read(from, records);
        padding.fill(0);
        let start = self.clock.monotonic_nanos();
        segment.file.write_at(bytes, segment.offset(from))?;
        self.statistics.write_nanos.record(self.clock.monotonic_nanos().saturating_sub(start));
        Ok(())
    }

    /// Publishes one write: the ring is free below the last full page.
    fn note_written(&self, segment: &Arc<Segment>, from: u64, to: u64, end: u64) {
        let drained = to.min(page_floor(end));
        {
            let mut flow = self.flow.lock();
            if !flow.unsynced.iter().any(|unsynced| Arc::ptr_eq(unsynced, segment)) {
                flow.unsynced.push(Arc::clone(segment));
            }
            self.written.store(to.min(end), Ordering::Release);
            self.drained.store(drained, Ordering::Release);
        }
        self.ring.set_drained(drained);
        self.room.notify_all();
        self.statistics.writes.increment();
        self.statistics.bytes_written.add(to - from);
        self.statistics.bytes_drained.add(drained - from);
    }

    /// The segment that holds `address`, which is the next one to be drained.
    fn segment_at(&self, address: u64) -> Result<Arc<Segment>> {
        let active = Arc::clone(&self.flow.lock().active);
        if address < active.end() { Ok(active) } else { self.next_segment() }
    }
}

/// What a waiter gets to know about a failed write or sync.
pub(crate) fn unknown(cause: &Error) -> Error {
    match cause.kind() {
        ErrorKind::DurabilityUnknown { .. } => cause.clone(),
        _ => ErrorKind::DurabilityUnknown { cause: cause.to_string() }.into(),
    }
}
