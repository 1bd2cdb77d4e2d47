//! Reading the log after a crash.
//!
//! 1. *Plan* (`plan`): list the segments, group them into *runs* of one incarnation each, read the ring if it is of
//!    this boot.
//! 2. *Walk* (`walk`): follow each run from record to record. A record is taken from the segments, else from segments
//!    below and ring above the drained address, else from the ring (`source`); its checksum says which of them is
//!    right.
//! 3. Where no record follows, decide whether the log ends there. Below a *known* address it is **damage**: below the
//!    accepted end of an incarnation (manifest), below the durable address that the caller names or that any later
//!    record of the run carries, below the end word of a ring of this boot, before a later segment when one is
//!    missing. Otherwise it is the end, or a **torn tail** if records follow that do not count: they are dropped and
//!    reported.
//! 4. *Settle* (`settle`): write what may exist only in memory (the ring, pages that were never synced) into the
//!    segments of its own incarnation, and sync them and their names. After that the report's end may go into the manifest as accepted.
//!
//! A gap of the address space between two incarnations is no damage: the earlier one ends at its accepted end, the
//! later one begins at a fresh segment. Within one incarnation there are no gaps; where a failed segment was abandoned,
//! the one that took its place overlaps it, and the later base counts.

mod plan;
mod ring_image;
mod settle;
mod source;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;

use alluvium_base::fs::Fs;
use alluvium_base::key::Seqno;
use alluvium_base::{Error, Result};

use crate::files::RING_NAME;
use crate::format::page_ceil;

pub(crate) use plan::{SegmentFile, read_segments};
pub(crate) use ring_image::{RingImage, RingState};
pub(crate) use source::{Found, Part, Source};

/// What to do about records that are missing or damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryMode {
    /// A torn tail is cut off; damage is an error. What was acknowledged is never dropped.
    #[default]
    TornTailOk,
    /// As `TornTailOk`, but any trace of a record that is dropped is an error too.
    Strict,
    /// Reads on behind damage and reports what was lost. What was read is settled, what is damaged stays so: until the
    /// replay start has moved past it (flush what was recovered), the next recovery must salvage again.
    Salvage,
}

/// What the manifest knows about the log.
#[derive(Clone, Debug)]
pub struct RecoveryOptions {
    /// The log's directory.
    pub directory: PathBuf,
    /// The database; files of another one are refused.
    pub database_id: u128,
    /// What to do about damage.
    pub mode: RecoveryMode,
    /// A record begins here, or the log ends here; what lies below is not needed.
    pub replay_start: u64,
    /// The last incarnation that the manifest made durable.
    pub last_incarnation: u64,
    /// For incarnations before the last: where each was found to end. Only those that reach above `replay_start`
    /// matter.
    pub accepted_ends: Vec<(u64, u64)>,
    /// Every record of the last incarnation that ends at or below this address is known to be durable; 0 if nothing
    /// is known.
    pub durable_address: u64,
    /// Changes no file. The log may then be read while another process writes it.
    pub read_only: bool,
}

impl RecoveryOptions {
    /// Options for a database whose manifest knows nothing of the log yet.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>, database_id: u128) -> RecoveryOptions {
        RecoveryOptions {
            directory: directory.into(),
            database_id,
            mode: RecoveryMode::TornTailOk,
            replay_start: 0,
            last_incarnation: 0,
            accepted_ends: Vec::new(),
            durable_address: 0,
            read_only: false,
        }
    }
}

/// One record, in the order of the log.
#[derive(Clone, Copy, Debug)]
pub struct RecoveredRecord<'a> {
    /// Where it begins.
    pub address: u64,
    /// Where it ends: a replay start from which it is not read again.
    pub end: u64,
    /// Its first sequence number.
    pub seqno: Seqno,
    /// What was appended.
    pub payload: &'a [u8],
    /// Who wrote it.
    pub incarnation: u64,
}

/// A part of the log that was not replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedRange {
    /// First address.
    pub from: u64,
    /// First address that is not in the range.
    pub to: u64,
    /// Why, with file and offset.
    pub why: String,
}

/// Where the newest records came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoverySource {
    /// The ring of a process that died during this boot of the machine, and the segments below it.
    Ring,
    /// Segments only.
    Segments,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct RecoveryReport {
    /// Where the last incarnation ends. Unless recovery was read-only, everything below is durable: record it in the
    /// manifest as the accepted end of [`RecoveryOptions::last_incarnation`], in the edit that makes the next
    /// incarnation durable.
    pub end: u64,
    /// Where the next incarnation begins.
    pub next_start_address: u64,
    /// Records replayed.
    pub records: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// The highest first sequence number of a record; 0 if there was none.
    pub highest_seqno: Seqno,
    /// True if the last incarnation ends with a close record.
    pub closed_cleanly: bool,
    /// What was not replayed although there was a trace of it.
    pub dropped: Vec<DroppedRange>,
    /// Damage that did not keep any record from being read.
    pub problems: Vec<Error>,
    /// Where the newest records came from.
    pub source: RecoverySource,
}

/// Replays the log: calls `on_record` for every record from the replay start on, in order.
///
/// # Errors
/// `Corrupt` with file and offset for damage (and in mode `Strict` for a torn tail); `UnsupportedFormat`; those of
/// the file system (a read error is never taken for the end of the log); whatever `on_record` returns. It may be
/// called again after an error: nothing was changed but bytes that were missing in segments.
pub fn recover(
    fs: &Arc<dyn Fs>,
    options: &RecoveryOptions,
    on_record: &mut dyn FnMut(RecoveredRecord<'_>) -> Result<()>,
) -> Result<RecoveryReport> {
    let plan = plan::Plan::read(fs.as_ref(), options)?;
    let mut report = RecoveryReport {
        end: plan.end_without_runs,
        next_start_address: 0,
        records: 0,
        bytes: 0,
        highest_seqno: 0,
        closed_cleanly: false,
        dropped: plan.dropped,
        problems: plan.problems,
        source: if plan.ring_is_used { RecoverySource::Ring } else { RecoverySource::Segments },
    };
    let mut reach = plan.reach;
    for run in plan.runs {
        let settled = !options.read_only && run.limit.is_none();
        let mut walk = walk::Walk::new(run, options.mode);
        report.end = walk.run(&mut report, on_record)?;
        if settled {
            reach = reach.max(settle::settle(fs, options, &mut walk, report.end)?);
        }
    }
    if plan.ring_is_missing && !report.closed_cleanly {
        let detail = "the file is missing, and the log was not closed: what was committed last may have been in it only. \
                      Bring it back, or open with recovery mode Salvage, which keeps what the segments hold";
        let missing = Error::corrupt(options.directory.join(RING_NAME), 0, detail);
        if options.mode != RecoveryMode::Salvage {
            return Err(missing);
        }
        report.problems.push(missing);
    }
    if !options.read_only {
        // A segment that was just made when the process died is seen, but its name may not be durable yet.
        fs.sync_directory(&options.directory)?;
    }
    report.next_start_address = page_ceil(reach.max(report.end));
    Ok(report)
}
