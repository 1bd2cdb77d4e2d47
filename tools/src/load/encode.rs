//! The first phase: from bytes to sorted runs of entries.
//!
//! ```text
//! unpack (1 thread) → blocks → cut rows (1 thread) → batches → convert, encode, sort (n workers) → runs
//! ```
//!
//! Blocks and batches go round and bound the memory. Rows are cut on one thread: csv-core makes some 200 MB/s, which
//! feeds several workers. Each worker has a buffer per target and sorts it when it is full.
//!
//! Whoever fails tells the others through the [`Job`]; they go on taking batches without looking at them, so that
//! nobody waits for somebody who has gone.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use alluvium::row::ValueRef;
use alluvium_base::ErrorKind;

use crate::load::convert::{Converter, Owned, recycled};
use crate::load::error::Result;
use crate::load::input::blocks::{BlockSource, UnpackedBlocks};
use crate::load::input::rows::{Batch, Row, RowReader};
use crate::load::job::Job;
use crate::load::plan::PlannedInput;
use crate::load::progress::Progress;
use crate::load::rejects::Reject;
use crate::load::sort::buffer::Buffer;
use crate::load::sort::store::{RunStore, Spiller};
use crate::load::target::{Entries, EntrySum, LoadTarget};

/// What the phase leaves.
pub struct Encoded {
    /// The runs of all targets.
    pub store: RunStore,
    /// What was encoded, by target.
    pub sums: Vec<EntrySum>,
    /// Rows read, rejected ones included.
    pub rows: u64,
}

/// Reads all inputs.
///
/// # Errors
/// Those of reading and of temporary files; `TooManyErrors`; `Stopped`.
pub fn run<T: LoadTarget>(job: &Job<'_, T>) -> Result<Encoded> {
    let threads = job.settings.threads;
    let store = RunStore::new(job.settings.budget, job.targets(), job.settings.spill_directory.clone());
    let (full_sender, full) = sync_channel(2 * threads);
    let (empty_sender, empty) = channel();
    for _ in 0..3 * threads {
        // Cannot fail: the receiver is in this function.
        let _ = empty_sender.send(Batch::default());
    }
    // Owned by the workers only: if all of them are gone, the reader's next send fails instead of waiting.
    let full = Arc::new(Mutex::new(full));
    let converter = Converter::new(job.plan);
    let mut outcomes = Vec::with_capacity(threads);
    let read = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let worker = Worker::new(job, &converter, &store);
                let (full, emptied) = (Arc::clone(&full), empty_sender.clone());
                scope.spawn(move || worker.run(&full, &emptied))
            })
            .collect();
        drop((full, empty_sender));
        let read = read_inputs(job, &full_sender, &empty);
        drop(full_sender);
        for worker in workers {
            match worker.join() {
                Ok(outcome) => outcomes.push(outcome),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        read
    });
    job.check_stop()?;
    let mut sums = vec![EntrySum::default(); job.targets()];
    for outcome in outcomes {
        for (sum, more) in sums.iter_mut().zip(outcome?) {
            *sum = sum.plus(more);
        }
    }
    let rows = job.progress.rows.get();
    read?;
    job.rejects.check(rows)?;
    job.progress.total_entries.add(sums.iter().map(|sum| sum.entries).sum());
    Ok(Encoded { store, sums, rows })
}

fn read_inputs<T: Sync>(job: &Job<'_, T>, full: &SyncSender<Batch>, empty: &Receiver<Batch>) -> Result<()> {
    for (number, input) in job.plan.inputs.iter().enumerate() {
        if job.is_over() {
            job.rejects.stop_early();
            break;
        }
        read_input(job, number as u16, input, full, empty).inspect_err(|_| job.fail())?;
    }
    Ok(())
}

/// Reads one input to its end, or until the load is over.
fn read_input<T: Sync>(
    job: &Job<'_, T>,
    number: u16,
    planned: &PlannedInput,
    full: &SyncSender<Batch>,
    empty: &Receiver<Batch>,
) -> Result<()> {
    let input = planned.open()?;
    let (name, progress) = (&planned.name, job.progress);
    let input_bytes = Arc::clone(&input.read_bytes);
    let mut counted_bytes = 0;
    std::thread::scope(|scope| {
        let (blocks, _) = UnpackedBlocks::start(scope, input);
        let blocks = Timed { blocks, progress };
        let mut reader = RowReader::new(name.clone(), blocks, planned.dialect.delimiter)?;
        planned.dialect.go_to_data(&mut reader)?;
        loop {
            let Ok(mut batch) = progress.timed(&progress.waits.workers, || empty.recv()) else {
                return Ok(());
            };
            batch.clear(number, progress.rows.get());
            if job.is_over() {
                // To know whether there would have been more. What is wrong with it does not matter any more.
                if reader.read_batch(&mut batch).unwrap_or(true) {
                    job.rejects.stop_early();
                }
                return Ok(());
            }
            let more = reader.read_batch(&mut batch)?;
            let bytes = input_bytes.load(Ordering::Relaxed);
            progress.read_bytes.add(bytes - std::mem::replace(&mut counted_bytes, bytes));
            progress.rows.add(batch.len() as u64);
            if !more {
                return Ok(());
            }
            if progress.timed(&progress.waits.workers, || full.send(batch)).is_err() {
                return Ok(());
            }
        }
    })
}

/// Counts the time that the reader waits for unpacked bytes.
struct Timed<'a> {
    blocks: UnpackedBlocks,
    progress: &'a Progress,
}

impl BlockSource for Timed<'_> {
    fn next_block(&mut self, emptied: Vec<u8>) -> Result<Vec<u8>> {
        self.progress.timed(&self.progress.waits.input, || self.blocks.next_block(emptied))
    }
}

struct Worker<'a, 'j, T> {
    job: &'a Job<'j, T>,
    converter: &'a Converter<'a>,
    store: &'a RunStore,
    buffers: Vec<Buffer>,
    spiller: Spiller,
    sums: Vec<EntrySum>,
    entries: Entries,
}

impl<'a, 'j, T: LoadTarget> Worker<'a, 'j, T> {
    fn new(job: &'a Job<'j, T>, converter: &'a Converter<'a>, store: &'a RunStore) -> Worker<'a, 'j, T> {
        let targets = job.targets();
        Worker {
            job,
            converter,
            store,
            buffers: (0..targets).map(|_| Buffer::new(job.settings.budget.buffer_bytes)).collect(),
            spiller: Spiller::default(),
            sums: vec![EntrySum::default(); targets],
            entries: Entries::default(),
        }
    }

    fn run(mut self, full: &Mutex<Receiver<Batch>>, emptied: &Sender<Batch>) -> Result<Vec<EntrySum>> {
        let mut outcome = Ok(());
        loop {
            let received = full.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = received else { break };
            if self.job.is_over() {
                self.job.rejects.stop_early();
            } else if outcome.is_ok() {
                outcome = self.encode_batch(&batch).inspect_err(|_| self.job.fail());
            }
            // Fails when the reader has ended: then nobody needs the batch.
            let _ = emptied.send(batch);
        }
        outcome?;
        if !self.job.is_over() {
            for target in 0..self.buffers.len() {
                self.seal(target).inspect_err(|_| self.job.fail())?;
            }
        }
        Ok(self.sums)
    }

    fn encode_batch(&mut self, batch: &Batch) -> Result<()> {
        let mut owned = Owned::default();
        let mut spent = Vec::new();
        for (row, number) in batch.rows().zip(batch.first_row..) {
            match self.converter.convert(row, number, &mut owned, spent) {
                Ok(values) => {
                    self.encode_row(row, &values)?;
                    spent = recycled(values);
                }
                Err(reject) => {
                    self.reject(*reject)?;
                    spent = Vec::new();
                }
            }
        }
        Ok(())
    }

    fn encode_row(&mut self, row: Row<'_>, values: &[ValueRef<'_>]) -> Result<()> {
        if let Err(error) = self.entries.encode(self.job.target.encoder(), values) {
            return match error.kind() {
                ErrorKind::KeyTooLong { .. }
                | ErrorKind::ValueTooLong { .. }
                | ErrorKind::TypeMismatch { .. } => self.reject(Reject {
                    place: row.place,
                    byte: Some(row.byte),
                    column: None,
                    expected: None,
                    text: None,
                    reason: error.to_string(),
                    advice: None,
                }),
                _ => Err(error.into()),
            };
        }
        let entries = std::mem::take(&mut self.entries);
        for (target, (key, value)) in entries.iter().enumerate() {
            if !self.buffers[target].has_room(key.len(), value.len()) {
                self.seal(target)?;
            }
            self.buffers[target].push(key, value, row.place);
            self.sums[target].add(key, value);
        }
        self.entries = entries;
        Ok(())
    }

    fn reject(&self, reject: Reject) -> Result<()> {
        self.job.rejects.add(reject)?;
        if self.job.rejects.are_too_many_for_good() {
            self.job.fail();
        }
        Ok(())
    }

    /// Sorts what a buffer holds and hands it over.
    fn seal(&mut self, target: usize) -> Result<()> {
        let (job, store) = (self.job, self.store);
        let run = self.buffers[target].seal();
        let progress = job.progress;
        let spilled =
            progress.timed(&progress.waits.spilling, || store.add(target, run, &mut self.spiller))?;
        progress.spilled_bytes.add(spilled);
        Ok(())
    }
}
