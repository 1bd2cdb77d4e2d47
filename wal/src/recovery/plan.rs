//! Which files have to be read, and how they belong together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_base::fs::{File, Fs, OpenMode};
use alluvium_base::{Error, ErrorKind, Result};

use super::{DroppedRange, Part, RecoveryMode, RecoveryOptions, RingState, Source};
use crate::files::{Listing, header_error, read_header_page, segment_path};
use crate::format::{HeaderProblem, PAGE_BYTES, SegmentHeader, page_floor, stream_identity};

/// A segment file and what its header says.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    /// From its name.
    pub(crate) base: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) header: Result<SegmentHeader, HeaderProblem>,
    /// Size of the file, in bytes.
    pub(crate) len: u64,
    /// First address that it does not answer for.
    pub(crate) end: u64,
}

/// Opens all segments and reads their headers; if `read_only`, a writer may be removing some meanwhile. What a header says is checked against the file's name.
pub(crate) fn read_segments(
    fs: &dyn Fs,
    directory: &Path,
    database_id: Option<u128>,
    read_only: bool,
) -> Result<Vec<SegmentFile>> {
    let mut segments: Vec<SegmentFile> = Vec::new();
    for (base, path) in Listing::read(fs, directory)?.segments {
        let file = match fs.open(&path, OpenMode::Read) {
            Ok(file) => file,
            // A writer has released it since the directory was listed, so it is not needed; a gap would be found.
            Err(error) if read_only && error.is_missing_file() => continue,
            Err(error) => return Err(error),
        };
        let len = file.len()?;
        let header = match SegmentHeader::decode(&read_header_page(file.as_ref())?, database_id) {
            Ok(header) if header.base != base => {
                Err(HeaderProblem::Damaged("the header is that of another segment"))
            }
            other => other,
        };
        let bytes =
            header.as_ref().map_or(page_floor(len.saturating_sub(PAGE_BYTES)), |header| header.segment_bytes);
        if let Some(before) = segments.last_mut() {
            before.end = before.end.min(base);
        }
        segments.push(SegmentFile { base, path, file, header, len, end: base.saturating_add(bytes) });
    }
    Ok(segments)
}

/// The part of the log that one incarnation wrote.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) incarnation: u64,
    /// Where the incarnation began.
    pub(crate) incarnation_start: u64,
    pub(crate) source: Source,
    /// First record to read.
    pub(crate) start: u64,
    /// Anything invalid below is damage.
    pub(crate) known: u64,
    /// The accepted end: nothing above belongs to the log.
    pub(crate) limit: Option<u64>,
    /// The end is known from the ring: what follows it is at most the record that was being copied.
    pub(crate) end_is_exact: bool,
}

/// Everything there is to read.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) runs: Vec<Run>,
    /// Behind every address in use.
    pub(crate) reach: u64,
    pub(crate) end_without_runs: u64,
    pub(crate) ring_is_used: bool,
    /// The last incarnation had a ring, which is gone: what was in it only is not known.
    pub(crate) ring_is_missing: bool,
    pub(crate) dropped: Vec<DroppedRange>,
    pub(crate) problems: Vec<Error>,
}

impl Plan {
    pub(crate) fn read(fs: &dyn Fs, options: &RecoveryOptions) -> Result<Plan> {
        let mut planner = Planner { options, dropped: Vec::new(), problems: Vec::new() };
        let ring = planner.read_ring(fs)?;
        let segments = read_segments(fs, &options.directory, Some(options.database_id), options.read_only)?;
        let reach = planner.reach(&segments, &ring);
        let last = options.last_incarnation;
        let had_ring = segments
            .iter()
            .filter_map(|segment| segment.header.as_ref().ok())
            .any(|header| header.incarnation == last && header.has_ring);
        let ring_is_missing =
            had_ring && matches!(ring, RingState::Absent) && accepted_end(options, last).is_none();
        let mut runs = planner.group(segments)?;
        let ring_is_used = planner.add_ring(&mut runs, &ring)?;
        planner.add_limits(&mut runs)?;
        let end_without_runs = match accepted_end(options, options.last_incarnation) {
            Some(end) => end.max(options.replay_start),
            None => options.replay_start,
        };
        let Planner { dropped, problems, .. } = planner;
        Ok(Plan { runs, reach, end_without_runs, ring_is_used, ring_is_missing, dropped, problems })
    }
}

fn accepted_end(options: &RecoveryOptions, incarnation: u64) -> Option<u64> {
    options.accepted_ends.iter().rev().find(|(of, _)| *of == incarnation).map(|&(_, end)| end)
}

struct Planner<'a> {
    options: &'a RecoveryOptions,
    dropped: Vec<DroppedRange>,
    problems: Vec<Error>,
}

impl Planner<'_> {
    /// Salvage notes damage and goes on; the other modes stop.
    fn damaged(&mut self, error: Error) -> Result<()> {
        let is_damage = matches!(error.kind(), ErrorKind::Corrupt { .. });
        if self.options.mode == RecoveryMode::Salvage && is_damage {
            self.problems.push(error);
            return Ok(());
        }
        Err(error)
    }

    fn read_ring(&mut self, fs: &dyn Fs) -> Result<RingState> {
        match RingState::read(fs, &self.options.directory, Some(self.options.database_id)) {
            Ok(RingState::Usable(ring)) if ring.header.incarnation > self.options.last_incarnation => {
                self.damaged(from_the_future(&ring.path, ring.header.incarnation, self.options))?;
                Ok(RingState::Absent)
            }
            Ok(state) => Ok(state),
            Err(error) => {
                self.damaged(error)?;
                Ok(RingState::Absent)
            }
        }
    }

    /// Behind every address that was ever given to a record, as far as files tell.
    fn reach(&self, segments: &[SegmentFile], ring: &RingState) -> u64 {
        let segments = segments.iter().map(|segment| segment.end);
        let ring = match ring {
            RingState::Usable(ring) => ring.end.min(ring.window_end()),
            _ => 0,
        };
        let accepted = self.options.accepted_ends.iter().map(|&(_, end)| end);
        segments.chain(accepted).chain([ring, self.options.replay_start]).max().unwrap_or(0)
    }

    /// Joins the segments that are needed into runs.
    fn group(&mut self, segments: Vec<SegmentFile>) -> Result<Vec<Run>> {
        let start = self.options.replay_start;
        let mut runs: Vec<Run> = Vec::new();
        // Whose a segment is whose header does not hold: that of the one before it, or of the first that can be read.
        let incarnation_of =
            |segment: &SegmentFile| segment.header.as_ref().ok().map(|header| header.incarnation);
        let first_readable = segments.iter().find_map(incarnation_of);
        let mut adopted = first_readable.unwrap_or(self.options.last_incarnation);
        let mut bases = segments.iter().map(|segment| segment.base).skip(1).collect::<Vec<_>>().into_iter();
        for segment in segments {
            let next_base = bases.next();
            adopted = incarnation_of(&segment).unwrap_or(adopted);
            // The last one is kept in any case: what follows it may still be in the ring.
            let passed = segment.header.is_ok() && segment.end <= start && next_base.is_some();
            if passed || next_base.is_some_and(|next| next <= start) {
                continue;
            }
            match &segment.header {
                Ok(header) if header.incarnation > self.options.last_incarnation => {
                    self.damaged(from_the_future(&segment.path, header.incarnation, self.options))?;
                    continue;
                }
                Ok(_) => {}
                Err(problem) => self.damaged(header_error(&segment.path, problem))?,
            }
            self.check_size(&segment)?;
            self.add_segment(&mut runs, segment, adopted)?;
        }
        Ok(runs)
    }

    /// A segment gets its name only when it has its full size, durably. A shorter one was cut off: were that taken for a
    /// torn tail, everything behind the cut would be lost without a word.
    fn check_size(&mut self, segment: &SegmentFile) -> Result<()> {
        let Ok(header) = &segment.header else { return Ok(()) };
        let expected = PAGE_BYTES.saturating_add(header.segment_bytes);
        if segment.len >= expected {
            return Ok(());
        }
        let detail = format!("the segment ends here, but its header says that it has {expected} bytes");
        self.damaged(Error::corrupt(&segment.path, segment.len, detail))
    }

    fn add_segment(&mut self, runs: &mut Vec<Run>, segment: SegmentFile, incarnation: u64) -> Result<()> {
        let SegmentFile { base, path, file, end, header, .. } = segment;
        let start = header.map_or(base, |header| header.incarnation_start);
        match runs.last_mut() {
            Some(run) if run.incarnation == incarnation => {
                let before = run.source.parts.last().map_or(base, |part| part.end);
                if before < base {
                    // Within an incarnation segments follow each other without a gap.
                    run.known = run.known.max(base);
                    let missing = segment_path(&self.options.directory, before);
                    self.damaged(Error::corrupt(missing, 0, "this segment is missing"))?;
                }
            }
            Some(run) if run.incarnation > incarnation => {
                let detail = "the segment is of an earlier incarnation than the one before it";
                return self.damaged(Error::corrupt(path, 0, detail));
            }
            _ => {
                let needed = start.max(self.options.replay_start);
                if base > needed {
                    let missing = segment_path(&self.options.directory, needed);
                    let detail =
                        format!("the log of incarnation {incarnation} is missing up to address {base}");
                    self.damaged(Error::corrupt(missing, 0, detail))?;
                }
                runs.push(self.new_run(incarnation, start, base));
            }
        }
        if let Some(run) = runs.last_mut() {
            run.source.parts.push(Part { base, end, path, file });
        }
        Ok(())
    }

    fn new_run(&self, incarnation: u64, incarnation_start: u64, base: u64) -> Run {
        let identity = stream_identity(self.options.database_id, incarnation);
        let last = incarnation == self.options.last_incarnation;
        Run {
            incarnation,
            incarnation_start,
            source: Source::new(identity, self.options.directory.clone(), Vec::new(), None),
            start: base.max(self.options.replay_start),
            known: if last { self.options.durable_address } else { 0 },
            limit: accepted_end(self.options, incarnation),
            end_is_exact: false,
        }
    }

    /// Gives the ring to the run that it belongs to.
    fn add_ring(&mut self, runs: &mut Vec<Run>, ring: &RingState) -> Result<bool> {
        let RingState::Usable(ring) = ring else { return Ok(false) };
        let incarnation = ring.header.incarnation;
        if !runs.iter().any(|run| run.incarnation == incarnation) {
            let superseded = runs.last().is_some_and(|run| run.incarnation > incarnation);
            if superseded || ring.end <= self.options.replay_start {
                return Ok(false);
            }
            let missing = segment_path(&self.options.directory, ring.drained);
            self.damaged(Error::corrupt(missing, 0, "the segment that the ring drains into is missing"))?;
            runs.push(self.new_run(incarnation, ring.drained, ring.drained));
        }
        let Some(run) = runs.iter_mut().find(|run| run.incarnation == incarnation) else { return Ok(false) };
        if run.limit.is_none() {
            run.known = run.known.max(ring.end);
            run.end_is_exact = true;
        }
        run.source.ring = Some(Arc::clone(ring));
        Ok(true)
    }

    /// What the manifest accepted must be there.
    fn add_limits(&mut self, runs: &mut [Run]) -> Result<()> {
        for run in runs.iter_mut() {
            run.known = run.known.max(run.limit.unwrap_or(0));
        }
        let mut accepted = self.options.accepted_ends.clone();
        accepted.sort_unstable();
        let mut reached = self.options.replay_start;
        for (incarnation, end) in accepted {
            if !runs.iter().any(|run| run.incarnation == incarnation) && end > reached {
                let missing = segment_path(&self.options.directory, reached);
                let detail = format!("the log of incarnation {incarnation} is missing up to address {end}");
                self.damaged(Error::corrupt(missing, 0, detail))?;
            }
            reached = reached.max(end);
        }
        Ok(())
    }
}

fn from_the_future(path: &Path, incarnation: u64, options: &RecoveryOptions) -> Error {
    let known = options.last_incarnation;
    Error::corrupt(path, 0, format!("it is of incarnation {incarnation}, the manifest knows only {known}"))
}
