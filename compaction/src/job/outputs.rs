//! Where a job's output is cut into files.
//!
//! A file ends before the key that comes next
//! - at its target size, or at the edge of a keyspace that fills enough of it ([`TableSplitter`]);
//! - where a file of the level below (a *grandparent*) begins, if it is half full, so that its own next compaction
//!   rewrites no file for a few keys at its edge; it may grow to one and a half of its target size to get there;
//! - where it would overlap too much of the level below.
//!
//! Range tombstones are cut at the same places: each file carries the pieces that lie between its bounds, which makes
//! a file's range hold everything that it hides. A range tombstone over a wide empty range is cut too, into files that
//! hold nothing else, so that deleting a large table makes no file whose compaction rewrites all of it at once.

use std::path::PathBuf;
use std::sync::Arc;

use alluvium_base::checksum;
use alluvium_base::fs::{File, OpenMode};
use alluvium_base::key::{KeyspaceId, Seqno, Trailer};
use alluvium_base::random::Random;
use alluvium_base::range_tombstone::{Fragment, RangeTombstone};
use alluvium_base::{Error, ErrorKind, Result};
use alluvium_sstable::{TableSplitter, TableWriter};

use super::JobEnvironment;
use crate::version::{FileMeta, Run, file_name};

/// Entries per file that are remembered to be read back, besides the first and the last.
const SAMPLES_PER_FILE: usize = 8;

/// How the output files should be.
#[derive(Clone, Debug)]
pub struct OutputShape {
    /// [`FileMeta::order`] of the files.
    pub order: Seqno,
    /// Their target size, in bytes.
    pub file_bytes: u64,
    /// Most that one of them should overlap in the level below, in bytes.
    pub overlap_bytes_max: u64,
    /// The level below.
    pub grandparents: Arc<Run>,
}

/// A file that is written and synced.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) file: Arc<FileMeta>,
    /// Entries to be found in it: the first and some more.
    pub(super) samples: Vec<Sample>,
    /// Key and trailer of its last entry, if it has entries.
    pub(super) last: Option<(Vec<u8>, Trailer)>,
    /// Range tombstones to be found in it.
    pub(super) tombstones: Vec<RangeTombstone>,
}

/// An entry that was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) key: Vec<u8>,
    pub(super) trailer: Trailer,
    pub(super) value_hash: u64,
}

impl Sample {
    pub(super) fn new(key: &[u8], trailer: Trailer, value: &[u8]) -> Sample {
        Sample { key: key.to_vec(), trailer, value_hash: checksum::checksum(0, value) }
    }
}

/// A file that is being written.
struct Open {
    id: u64,
    file: Arc<dyn File>,
    writer: TableWriter,
    samples: Vec<Sample>,
    /// Size from which the next entry is remembered.
    next_sample_bytes: u64,
    last_trailer: Trailer,
    old_versions: u64,
}

pub(super) struct Outputs {
    environment: JobEnvironment,
    random: Random,
    shape: OutputShape,
    splitter: TableSplitter,
    open: Option<Open>,
    finished: Vec<Output>,
    /// Files made so far that are not handed over, and so are to be removed.
    owned: Vec<PathBuf>,
    /// Range tombstones to write, in key order; those before `tombstone_at` are written.
    tombstones: Vec<Fragment>,
    tombstone_at: usize,
    /// End of the last finished file: range tombstones are written up to here.
    lower: Vec<u8>,
    /// Grandparents before this one begin at or before the current key.
    grandparent_at: usize,
    /// Bytes of grandparents that the current file overlaps.
    overlapped_bytes: u64,
}

impl Outputs {
    pub(super) fn new(
        environment: JobEnvironment,
        random: Random,
        shape: OutputShape,
        tombstones: Vec<Fragment>,
    ) -> Outputs {
        Outputs {
            environment,
            random,
            splitter: TableSplitter::new(shape.file_bytes),
            shape,
            open: None,
            finished: Vec::new(),
            owned: Vec::new(),
            tombstones,
            tombstone_at: 0,
            lower: Vec::new(),
            grandparent_at: 0,
            overlapped_bytes: 0,
        }
    }

    /// Finished files, in key order.
    pub(super) fn finished(&self) -> &[Output] {
        &self.finished
    }

    /// To be called before the first entry of `key` is added: cuts the current file if it should end here.
    pub(super) fn begin_key(&mut self, key: &[u8]) -> Result<()> {
        self.pass_grandparents(|start| start <= key)?;
        let Some(open) = &self.open else {
            self.splitter.cut_before(b"", key, 0);
            return Ok(());
        };
        let last_key = open.writer.last_key();
        let at_edge = KeyspaceId::of(last_key) != KeyspaceId::of(key);
        if self.splitter.cut_before(last_key, key, self.counted_bytes(open.writer.estimated_bytes())) {
            // Range tombstones of the next keyspace belong to the next file, even those before its first key.
            let cut = key.get(..alluvium_base::key::KEYSPACE_ID_BYTES).filter(|_| at_edge).unwrap_or(key);
            let cut = cut.to_vec();
            self.finish_file(Some(&cut))?;
            self.splitter.cut_before(b"", key, 0);
        }
        Ok(())
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        if self.open.is_none() {
            self.open = Some(self.create()?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        open.old_versions += u64::from(open.writer.last_key() == key);
        open.writer.add(key, trailer, value)?;
        let bytes = open.writer.estimated_bytes();
        open.last_trailer = trailer;
        if bytes >= open.next_sample_bytes {
            open.samples.push(Sample::new(key, trailer, value));
            open.next_sample_bytes = bytes + (self.shape.file_bytes / SAMPLES_PER_FILE as u64).max(1);
        }
        Ok(())
    }

    /// Writes what is left.
    pub(super) fn finish(&mut self) -> Result<()> {
        if let Some(last) = self.tombstones.get(self.tombstone_at..).and_then(|rest| rest.last()) {
            let end = last.end.clone();
            self.pass_grandparents(|start| start < end.as_slice())?;
        }
        self.finish_file(None)
    }

    /// Walks over the grandparents whose first keys `reached` accepts, and cuts where one of them asks for it.
    fn pass_grandparents(&mut self, reached: impl Fn(&[u8]) -> bool) -> Result<()> {
        let grandparents = Arc::clone(&self.shape.grandparents);
        while let Some(next) = grandparents.files().get(self.grandparent_at) {
            let start = next.range().start.as_slice();
            if !reached(start) {
                break;
            }
            if !self.holds_anything_before(start) {
                self.overlapped_bytes = 0;
            } else if self.overlapped_bytes + next.bytes() > self.shape.overlap_bytes_max
                || self.is_half_full()
            {
                self.finish_file(Some(start))?;
            }
            self.overlapped_bytes += next.bytes();
            self.grandparent_at += 1;
        }
        Ok(())
    }

    /// True if a file that ends before `bound` would not be empty.
    fn holds_anything_before(&self, bound: &[u8]) -> bool {
        let tombstone = self.tombstones.get(self.tombstone_at);
        self.open.is_some() || tombstone.is_some_and(|fragment| fragment.start.as_slice() < bound)
    }

    /// The size to judge the current file by: it gets some more room if the begin of another grandparent is ahead.
    fn counted_bytes(&self, bytes: u64) -> u64 {
        let target = self.shape.file_bytes;
        match self.shape.grandparents.files().get(self.grandparent_at) {
            Some(_) if bytes < target.saturating_add(target / 2) => bytes.min(target.saturating_sub(1)),
            _ => bytes,
        }
    }

    fn is_half_full(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.writer.estimated_bytes() >= self.shape.file_bytes / 2)
    }

    fn create(&mut self) -> Result<Open> {
        let id = (self.environment.next_file_id)();
        let path = self.environment.directory.join(file_name(id));
        let opened = self.environment.fs.open(&path, OpenMode::CreateNew);
        // A call that failed may have made the file nevertheless; but one that was there before is not ours.
        if !matches!(&opened, Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists { .. })) {
            self.owned.push(path);
        }
        let file = opened?;
        let identity = u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64());
        let writer = TableWriter::new(file.clone(), identity, self.environment.settings.clone());
        Ok(Open {
            id,
            file,
            writer,
            samples: Vec::new(),
            next_sample_bytes: 0,
            last_trailer: Trailer::NEWEST,
            old_versions: 0,
        })
    }

    /// Ends the current file before `upper` (at the end of everything if `None`), with the range tombstones up to there.
    fn finish_file(&mut self, upper: Option<&[u8]>) -> Result<()> {
        let tombstones = self.take_tombstones(upper);
        self.overlapped_bytes = 0;
        if let Some(upper) = upper {
            self.lower = upper.to_vec();
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None if tombstones.is_empty() => return Ok(()),
            None => self.create()?,
        };
        for tombstone in &tombstones {
            open.writer.add_range_tombstone(tombstone)?;
        }
        let last = (open.writer.entries() > 0).then(|| (open.writer.last_key().to_vec(), open.last_trailer));
        let summary = open.writer.finish()?;
        open.file.sync_data()?;
        let file = FileMeta {
            id: open.id,
            summary,
            order: self.shape.order,
            old_versions: open.old_versions,
            created_micros: self.environment.now_micros,
        };
        self.finished.push(Output { file: Arc::new(file), samples: open.samples, last, tombstones });
        Ok(())
    }

    /// The pieces of the remaining range tombstones that lie before `upper`.
    fn take_tombstones(&mut self, upper: Option<&[u8]>) -> Vec<RangeTombstone> {
        let mut pieces = Vec::new();
        while let Some(fragment) = self.tombstones.get(self.tombstone_at) {
            let start = fragment.start.as_slice().max(&self.lower);
            let end = upper.map_or(fragment.end.as_slice(), |upper| upper.min(&fragment.end));
            if start >= end {
                break;
            }
            let piece = |&seqno: &Seqno| RangeTombstone { start: start.to_vec(), end: end.to_vec(), seqno };
            pieces.extend(fragment.seqnos.iter().map(piece));
            if upper.is_some_and(|upper| upper < fragment.end.as_slice()) {
                break;
            }
            self.tombstone_at += 1;
        }
        pieces
    }

    /// The files are the caller's now.
    pub(super) fn hand_over(&mut self) {
        self.owned.clear();
    }

    /// Removes every file that was not handed over. Tries all of them, and returns the first error.
    pub(super) fn remove_all(&mut self) -> Result<()> {
        self.open = None;
        let removed =
            std::mem::take(&mut self.owned).into_iter().map(|path| self.environment.fs.remove_file(&path));
        let errors: Vec<Error> =
            removed.filter_map(Result::err).filter(|error| !error.is_missing_file()).collect();
        errors.into_iter().next().map_or(Ok(()), Err)
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        // What cannot be removed now is unknown to the manifest and goes at the next open.
        let _ = self.remove_all();
    }
}
