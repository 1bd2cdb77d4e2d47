//! Showing a log to people: every file, every record, every place that does not hold.
//!
//! Nothing is changed and nothing is judged by what the manifest knows, so this also works on a directory whose
//! manifest is lost, and (as a glimpse) on a log that is being written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_base::fs::Fs;
use alluvium_base::key::Seqno;
use alluvium_base::{Error, Result};

use crate::files::{Listing, RING_NAME, header_error};
use crate::format::{PAGE_BYTES, RecordHeader, RecordKind, stream_identity};
use crate::recovery::{Found, Part, RingState, SegmentFile, Source, read_segments};

/// What a segment is used for, as far as its records tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Records fill it to its end.
    Full,
    /// The log of its incarnation ends in it.
    Last,
    /// Made ahead of need; no record has come this far.
    Unused,
    /// Its header does not hold.
    Unreadable,
}

/// A segment file.
#[derive(Clone, Debug)]
pub struct SegmentInfo {
    /// The file.
    pub path: PathBuf,
    /// Address of its first byte.
    pub base: u64,
    /// Number of addresses that it answers for, in bytes.
    pub bytes: u64,
    /// Who wrote it; `None` if the header does not hold.
    pub incarnation: Option<u64>,
    /// What it is used for.
    pub state: SegmentState,
}

/// The ring file.
#[derive(Clone, Copy, Debug)]
pub struct RingInfo {
    /// Who wrote it.
    pub incarnation: u64,
    /// True if the machine was not restarted since: then it counts.
    pub same_boot: bool,
    /// Its size in bytes.
    pub bytes: u64,
    /// Below this address the segments have everything (of a ring of this boot).
    pub drained_address: u64,
    /// Below this address every record is complete (of a ring of this boot).
    pub end_address: u64,
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub struct RecordInfo<'a> {
    /// Where it begins.
    pub address: u64,
    /// Where it ends.
    pub end: u64,
    /// What it is.
    pub kind: RecordKind,
    /// Its first sequence number.
    pub seqno: Seqno,
    /// Everything below this address was durable when it was written.
    pub durable_address: u64,
    /// Who wrote it.
    pub incarnation: u64,
    /// What was appended.
    pub payload: &'a [u8],
}

/// One thing found in a log's directory.
#[derive(Clone, Debug)]
pub enum DumpItem<'a> {
    /// The ring, if there is one; comes first.
    Ring(RingInfo),
    /// A segment; its records follow.
    Segment(SegmentInfo),
    /// A record, after the segment in which it begins.
    Record(RecordInfo<'a>),
    /// A file that waits to become a segment.
    Spare(PathBuf),
    /// Something that does not hold: a header, or bytes with records behind them that are no record themselves.
    Problem(Error),
}

/// Calls `visit` for everything in a log's directory. Without a `database_id` that of the first readable segment is
/// taken.
///
/// # Errors
/// Those of the file system, and whatever `visit` returns. Damage and a newer format are items, not errors.
pub fn dump(
    fs: &Arc<dyn Fs>,
    directory: &Path,
    database_id: Option<u128>,
    visit: &mut dyn FnMut(DumpItem<'_>) -> Result<()>,
) -> Result<()> {
    let segments = read_segments(fs.as_ref(), directory, database_id, true)?;
    let first = segments.iter().find_map(|segment| segment.header.as_ref().ok());
    let database_id = database_id.or(first.map(|header| header.database_id));
    let ring = visit_ring(fs.as_ref(), directory, database_id, visit)?;
    let mut run: Vec<SegmentFile> = Vec::new();
    for segment in segments {
        let incarnation =
            |segment: &SegmentFile| segment.header.as_ref().ok().map(|header| header.incarnation);
        if run.last().is_some_and(|last| incarnation(last) != incarnation(&segment)) {
            visit_run(directory, database_id, std::mem::take(&mut run), &ring, visit)?;
        }
        run.push(segment);
    }
    visit_run(directory, database_id, run, &ring, visit)?;
    for spare in Listing::read(fs.as_ref(), directory)?.spares {
        visit(DumpItem::Spare(spare))?;
    }
    Ok(())
}

/// The file that holds the record at `address`, by the names of the segments, and where in it; the ring, if no segment
/// reaches that far.
///
/// # Errors
/// Those of listing the directory.
pub fn place_of(fs: &dyn Fs, directory: &Path, address: u64) -> Result<(PathBuf, u64)> {
    let below = Listing::read(fs, directory)?.segments.into_iter().rfind(|(base, _)| *base <= address);
    let Some((base, path)) = below else { return Ok((directory.join(RING_NAME), 0)) };
    let offset = PAGE_BYTES + (address - base);
    if offset >= fs.file_size(&path)? {
        return Ok((directory.join(RING_NAME), 0));
    }
    Ok((path, offset))
}

fn visit_ring(
    fs: &dyn Fs,
    directory: &Path,
    database_id: Option<u128>,
    visit: &mut dyn FnMut(DumpItem<'_>) -> Result<()>,
) -> Result<RingState> {
    let state = match RingState::read(fs, directory, database_id) {
        Ok(state) => state,
        Err(error) if error.is_corrupt() => {
            visit(DumpItem::Problem(error))?;
            return Ok(RingState::Absent);
        }
        Err(error) => return Err(error),
    };
    let info = match &state {
        RingState::Absent => return Ok(state),
        RingState::OtherBoot(header) => RingInfo {
            incarnation: header.incarnation,
            same_boot: false,
            bytes: header.ring_bytes,
            drained_address: 0,
            end_address: 0,
        },
        RingState::Usable(ring) => RingInfo {
            incarnation: ring.header.incarnation,
            same_boot: true,
            bytes: ring.header.ring_bytes,
            drained_address: ring.drained,
            end_address: ring.end,
        },
    };
    visit(DumpItem::Ring(info))?;
    Ok(state)
}

/// Visits consecutive segments of one incarnation (or one that cannot be read) and their records.
fn visit_run(
    directory: &Path,
    database_id: Option<u128>,
    segments: Vec<SegmentFile>,
    ring: &RingState,
    visit: &mut dyn FnMut(DumpItem<'_>) -> Result<()>,
) -> Result<()> {
    let mut infos: Vec<SegmentInfo> = segments.iter().map(segment_info).collect();
    let (Some(first), Some(last)) = (infos.first(), infos.last()) else { return Ok(()) };
    let (start, reach) = (first.base, last.base + last.bytes);
    let (Some(incarnation), Some(database_id)) = (first.incarnation, database_id) else {
        for (segment, info) in segments.iter().zip(infos) {
            visit(DumpItem::Segment(info))?;
            if let Err(problem) = &segment.header {
                visit(DumpItem::Problem(header_error(&segment.path, problem)))?;
            }
        }
        return Ok(());
    };
    let ring = match ring {
        RingState::Usable(ring) if ring.header.incarnation == incarnation => Some(Arc::clone(ring)),
        _ => None,
    };
    let parts = segments.into_iter().map(|segment| {
        let SegmentFile { base, end, path, file, .. } = segment;
        Part { base, end, path, file }
    });
    let identity = stream_identity(database_id, incarnation);
    let mut source = Source::new(identity, directory.to_owned(), parts.collect(), ring);
    let reach = reach.max(source.reach());
    let end = follow(&mut source, start, reach, &mut |_| Ok(()))?;
    for info in &mut infos {
        info.state = match end {
            end if end <= info.base => SegmentState::Unused,
            end if end < info.base + info.bytes => SegmentState::Last,
            _ => SegmentState::Full,
        };
    }
    let mut infos = infos.into_iter().peekable();
    follow(&mut source, start, reach, &mut |step| match step {
        Step::Gap(error) => visit(DumpItem::Problem(error)),
        Step::Record(address, header, payload) => {
            while let Some(info) = infos.next_if(|info| info.base <= address) {
                visit(DumpItem::Segment(info))?;
            }
            visit(DumpItem::Record(RecordInfo {
                address,
                end: address + header.record_bytes(),
                kind: header.kind,
                seqno: header.seqno,
                durable_address: header.durable_address,
                incarnation,
                payload,
            }))
        }
    })?;
    infos.try_for_each(|info| visit(DumpItem::Segment(info)))
}

fn segment_info(segment: &SegmentFile) -> SegmentInfo {
    SegmentInfo {
        path: segment.path.clone(),
        base: segment.base,
        bytes: segment.end - segment.base,
        incarnation: segment.header.as_ref().ok().map(|header| header.incarnation),
        state: SegmentState::Unreadable,
    }
}

/// What comes next in a run.
enum Step<'a> {
    Record(u64, RecordHeader, &'a [u8]),
    /// Bytes between two records that are none.
    Gap(Error),
}

/// Follows the records of a run, over gaps, and returns where the last one ends.
fn follow(
    source: &mut Source,
    start: u64,
    reach: u64,
    on_step: &mut dyn FnMut(Step<'_>) -> Result<()>,
) -> Result<u64> {
    let (mut at, mut end) = (start, start);
    while at < reach {
        if let Found::Record(header) = source.record_at(at)? {
            on_step(Step::Record(at, header, source.payload()))?;
            at += header.record_bytes();
            end = at;
            continue;
        }
        let mut from = at + 1;
        let next = loop {
            match source.next_found(from, reach)? {
                Some((next, Found::Record(_))) => break next,
                Some((next, _)) => from = next + 1,
                None => return Ok(end),
            }
        };
        // The first segment may begin in the midst of a record whose first half was released with the one before.
        if at != start {
            let (file, offset) = source.locate(at);
            let detail = format!("no record at address {at}, the next one is at {next}");
            on_step(Step::Gap(Error::corrupt(file, offset, detail)))?;
        }
        at = next;
    }
    Ok(end)
}
