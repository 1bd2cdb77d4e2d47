//! One job: sorted inputs in, table files out.
//!
//! A flush and a compaction are the same thing with different inputs. The steps:
//!
//! 1. Merge the inputs ([`MergingIterator`]), clipped to the job's bounds if it is one of several that share a plan.
//! 2. Ask the [`EntryFilter`] about every entry.
//! 3. Write what is kept, cutting files by the rules in `outputs.rs`; sync every file.
//! 4. Read a sample of every file back.
//! 5. Check that nothing was lost: entries read = entries written + entries dropped, by reason; and entries read =
//!    entries that the manifest says the inputs have. Sync the directory.
//!
//! It works in quanta: [`run_quantum`](MergeJob::run_quantum) returns after about the given number of bytes, so that
//! the engine can put something more urgent in between, slow the job down or give it up. A job that is dropped before
//! it is done removes its files.
//!
//! Nothing is skipped: an input that cannot be read, an entry out of order or a count that does not add up fails
//! the job, and its inputs stay what they are.

mod check;
mod inputs;
mod outputs;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use alluvium_base::fs::Fs;
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{Kind, Trailer};
use alluvium_base::random::Random;
use alluvium_base::{Error, KeyRange, Result};
use alluvium_sstable::SettingsSource;

use crate::drop_rules::{BrokenPair, DropCounts, EntryFilter, Verdict};
use crate::iterate::{MergingIterator, TableOpener};
use crate::picker::CompactionPlan;
use crate::version::FileMeta;

pub use inputs::{Flush, Readers};
pub use outputs::OutputShape;

use outputs::Outputs;

/// What jobs need from their surroundings.
#[derive(Clone)]
pub struct JobEnvironment {
    /// Where files are made.
    pub fs: Arc<dyn Fs>,
    /// The directory of the table files.
    pub directory: PathBuf,
    /// How each keyspace's blocks are stored.
    pub settings: Arc<dyn SettingsSource>,
    /// Opens inputs, and outputs for reading them back.
    pub opener: Arc<dyn TableOpener>,
    /// Hands out file numbers, each once.
    pub next_file_id: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Time to stamp the files with, in microseconds since 1970.
    pub now_micros: i64,
}

/// What a quantum came to.
#[derive(Debug)]
pub enum Progress {
    /// There is more to do: call again.
    Again,
    /// The outputs are durable and checked, and now belong to the caller.
    Done(JobOutput),
}

/// What a job did.
#[derive(Clone, Debug, Default)]
pub struct JobOutput {
    /// The files written, in key order.
    pub files: Vec<Arc<FileMeta>>,
    /// What went in and out.
    pub statistics: JobStatistics,
    /// The first few broken pairs met. To be reported as corruption; the job treated them as plain deletes.
    pub broken_pairs: Vec<BrokenPair>,
}

/// What went in and out of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobStatistics {
    /// Point entries read.
    pub read_entries: u64,
    /// Bytes of their keys and values.
    pub read_bytes: u64,
    /// Point entries written.
    pub written_entries: u64,
    /// Sizes of the files written, in bytes.
    pub written_bytes: u64,
    /// Entries dropped, by reason.
    pub dropped: DropCounts,
    /// Entries written with a sequence number of zero.
    pub zeroed_entries: u64,
    /// Number of broken pairs.
    pub broken_pairs: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The inputs are not positioned yet.
    New,
    Merging,
    /// Every file is written; this one is to be read back next.
    Checking(usize),
    /// The outputs were handed over.
    Done,
}

/// A flush, a compaction, or a part of one.
pub struct MergeJob {
    input: MergingIterator,
    /// Only keys in here are the job's business.
    bounds: Option<KeyRange>,
    /// Entries that the inputs hold by what is known of them; `None` if only a part of them is read.
    expected_entries: Option<u64>,
    filter: EntryFilter,
    /// Trailer of the last entry read of the current key.
    last_trailer: Trailer,
    /// True if an entry of the current key has been written.
    key_written: bool,
    outputs: Outputs,
    environment: JobEnvironment,
    statistics: JobStatistics,
    state: State,
    failed: Option<Error>,
}

impl std::fmt::Debug for MergeJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MergeJob")
            .field("state", &self.state)
            .field("statistics", &self.statistics)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl MergeJob {
    fn new(
        environment: JobEnvironment,
        random: Random,
        readers: Readers,
        filter: EntryFilter,
        shape: OutputShape,
    ) -> MergeJob {
        let tombstones = filter.rules().kept_tombstones().fragments().to_vec();
        MergeJob {
            input: MergingIterator::new(readers.iterators),
            bounds: readers.bounds,
            expected_entries: readers.entries,
            filter,
            last_trailer: Trailer::NEWEST,
            key_written: false,
            outputs: Outputs::new(environment.clone(), random, shape, tombstones),
            environment,
            statistics: JobStatistics::default(),
            state: State::New,
            failed: None,
        }
    }

    /// Works until about `max_bytes` of keys and values have been read, or a step that cannot be divided is done.
    ///
    /// # Errors
    /// Those of reading and writing; `Corrupt` if an input is out of order or entries are missing. The job is then
    /// over: every later call fails alike, and dropping it (or [`abandon`](MergeJob::abandon)) removes its files.
    pub fn run_quantum(&mut self, max_bytes: u64) -> Result<Progress> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let progress = self.step(max_bytes);
        if let Err(error) = &progress {
            self.failed = Some(error.clone());
        }
        progress
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// As [`run_quantum`](MergeJob::run_quantum).
    pub fn run(mut self) -> Result<JobOutput> {
        loop {
            if let Progress::Done(output) = self.run_quantum(u64::MAX)? {
                return Ok(output);
            }
        }
    }

    /// Gives the job up and removes what it has written. Dropping the job does the same, but cannot tell if removing
    /// failed.
    ///
    /// # Errors
    /// Those of removing files; files that remain are unknown to the manifest and can be removed at any time.
    pub fn abandon(mut self) -> Result<()> {
        self.outputs.remove_all()
    }

    /// What went in and out so far.
    #[must_use]
    pub fn statistics(&self) -> &JobStatistics {
        &self.statistics
    }

    fn step(&mut self, max_bytes: u64) -> Result<Progress> {
        match self.state {
            State::New => {
                match &self.bounds {
                    Some(bounds) => self.input.seek(&bounds.start, Trailer::NEWEST)?,
                    None => self.input.seek_to_first()?,
                }
                self.state = State::Merging;
                self.merge(max_bytes)?;
                Ok(Progress::Again)
            }
            State::Merging => {
                self.merge(max_bytes)?;
                Ok(Progress::Again)
            }
            State::Checking(at) => match self.outputs.finished().get(at) {
                Some(output) => {
                    check::read_back(output, &*self.environment.opener)?;
                    self.state = State::Checking(at + 1);
                    Ok(Progress::Again)
                }
                None => self.hand_over().map(Progress::Done),
            },
            State::Done => Err(Error::invalid("the job is done already")),
        }
    }

    /// Reads entries until `max_bytes` are used up or none is left.
    fn merge(&mut self, max_bytes: u64) -> Result<()> {
        let quantum_end = self.statistics.read_bytes.saturating_add(max_bytes.max(1));
        while self.statistics.read_bytes < quantum_end {
            let done = !self.input.valid()
                || self.bounds.as_ref().is_some_and(|bounds| self.input.key() >= bounds.end.as_slice());
            if done {
                self.finish_key()?;
                self.outputs.finish()?;
                self.state = State::Checking(0);
                return Ok(());
            }
            self.take_entry()?;
            self.input.next()?;
        }
        Ok(())
    }

    /// Drops or writes the entry that the input stands on.
    fn take_entry(&mut self) -> Result<()> {
        let trailer = self.input.trailer();
        let kind = trailer.kind().filter(|kind| *kind != Kind::RangeDelete);
        let Some(kind) = kind else { return Err(self.corrupt(format!("{trailer:?} is no point entry"))) };
        self.enter_key(trailer)?;
        let (key, value) = (self.input.key(), self.input.value());
        self.statistics.read_entries += 1;
        self.statistics.read_bytes += (key.len() + value.len()) as u64;
        if let Verdict::Keep(trailer) = self.filter.offer(trailer.seqno(), kind) {
            self.write_released()?;
            self.begin_key()?;
            let (key, value) = (self.input.key(), self.input.value());
            self.outputs.add(key, trailer, value)?;
        }
        Ok(())
    }

    /// Makes the input's key the current one, and checks that the inputs are in order.
    fn enter_key(&mut self, trailer: Trailer) -> Result<()> {
        let key = self.input.key();
        let is_first = self.last_trailer == Trailer::NEWEST;
        let in_order = match key.cmp(self.filter.key()) {
            std::cmp::Ordering::Equal if !is_first => trailer < self.last_trailer,
            order => is_first || order.is_gt(),
        };
        if !in_order {
            let detail = format!(
                "{trailer:?} follows {:?} of \"{}\"",
                self.last_trailer,
                self.filter.key().escape_ascii()
            );
            return Err(self.corrupt(detail));
        }
        if is_first || key != self.filter.key() {
            self.finish_key()?;
            self.filter.start_key(self.input.key());
            self.key_written = false;
        }
        self.last_trailer = trailer;
        Ok(())
    }

    fn finish_key(&mut self) -> Result<()> {
        self.filter.finish_key();
        self.write_released()
    }

    /// Writes the tombstones that the filter has held back.
    fn write_released(&mut self) -> Result<()> {
        while let Some(tombstone) = self.filter.release_one() {
            self.begin_key()?;
            self.outputs.add(self.filter.key(), tombstone, b"")?;
        }
        Ok(())
    }

    /// Before the first entry of a key is written: files are cut only here, so all versions of a key share a file.
    fn begin_key(&mut self) -> Result<()> {
        if self.key_written {
            return Ok(());
        }
        self.key_written = true;
        self.outputs.begin_key(self.filter.key())
    }

    /// An error about the entry that the input stands on.
    fn corrupt(&self, detail: String) -> Error {
        let key = self.input.key().escape_ascii();
        Error::corrupt(&self.environment.directory, 0, format!("inputs of a job at key \"{key}\": {detail}"))
    }

    /// Checks that nothing was lost, makes the names durable, and hands the files over.
    fn hand_over(&mut self) -> Result<JobOutput> {
        let (broken_pairs, examples) = self.filter.broken_pairs();
        let files: Vec<Arc<FileMeta>> =
            self.outputs.finished().iter().map(|output| Arc::clone(&output.file)).collect();
        let statistics = JobStatistics {
            written_entries: files.iter().map(|file| file.summary.entries).sum(),
            written_bytes: files.iter().map(|file| file.bytes()).sum(),
            dropped: *self.filter.counts(),
            zeroed_entries: self.filter.zeroed(),
            broken_pairs,
            ..self.statistics
        };
        let output = JobOutput { files, statistics, broken_pairs: examples.to_vec() };
        output.check(self.expected_entries, &self.environment.directory)?;
        if !output.files.is_empty() {
            self.environment.fs.sync_directory(&self.environment.directory)?;
        }
        self.outputs.hand_over();
        self.state = State::Done;
        self.statistics = output.statistics;
        Ok(output)
    }
}

impl JobOutput {
    /// Fails unless everything that was read was either written or dropped for a reason, and everything that was
    /// there was read.
    fn check(&self, expected_entries: Option<u64>, directory: &std::path::Path) -> Result<()> {
        let JobStatistics { read_entries, written_entries, dropped, .. } = self.statistics;
        if read_entries != written_entries + dropped.total() {
            let detail = format!(
                "a job read {read_entries} entries, but wrote {written_entries} and dropped {dropped:?}"
            );
            return Err(Error::corrupt(directory, 0, detail));
        }
        match expected_entries {
            Some(expected) if expected != read_entries => {
                let detail =
                    format!("a job read {read_entries} entries, but its inputs should hold {expected}");
                Err(Error::corrupt(directory, 0, detail))
            }
            _ => Ok(()),
        }
    }

    /// The outputs of jobs that have shared a plan by key range, in the order of their ranges, as one.
    ///
    /// # Errors
    /// `Corrupt` if together they have not read every entry of the plan's inputs.
    pub fn join(
        plan: &CompactionPlan,
        parts: Vec<JobOutput>,
        directory: &std::path::Path,
    ) -> Result<JobOutput> {
        let mut whole = JobOutput::default();
        for part in parts {
            whole.files.extend(part.files);
            whole.broken_pairs.extend(part.broken_pairs);
            let (sum, part) = (&mut whole.statistics, part.statistics);
            sum.read_entries += part.read_entries;
            sum.read_bytes += part.read_bytes;
            sum.written_entries += part.written_entries;
            sum.written_bytes += part.written_bytes;
            sum.dropped.add(&part.dropped);
            sum.zeroed_entries += part.zeroed_entries;
            sum.broken_pairs += part.broken_pairs;
        }
        whole.check(Some(plan.input_entries()), directory)?;
        Ok(whole)
    }
}
