//! The workloads. Those that need data find it there: the driver fills the store first if an earlier workload has not.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alluvium::base::random::Random;

use crate::engine::{Config, Engine, Factory};
use crate::keys::{KEY_BYTES, Permutation, Values, write_key};
use crate::measure::{Latencies, Measurement, Outcome};
use crate::{Arguments, Result};

/// Most operations of a reading workload unless told otherwise.
const OPERATIONS_MAX: u64 = 1_000_000;
/// Synced writes take long; so many are enough.
const SYNCED_WRITES: u64 = 100_000;
/// Entries read after each seek.
const SEEK_ENTRIES: u64 = 10;
/// Writes per second beside the readers of `readwhilewriting`, the same for all engines.
const PACED_WRITES_PER_SECOND: u64 = 20_000;

/// What is done to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum Workload {
    /// Put all keys in order into an empty store.
    FillSeq,
    /// Put all keys in random order into an empty store, then wait until compaction is at rest.
    FillRandom,
    /// Put as many values again, to random keys; then wait until compaction is at rest.
    Overwrite,
    /// Durable puts from 1, 16 and 64 threads.
    FillSync,
    /// Get random keys that are there, with 1 and 2 threads.
    ReadRandom,
    /// Get keys that are not there but lie between those that are.
    ReadMissing,
    /// Seek to a random key and read 10 entries.
    SeekRandom,
    /// Read everything forward, then backward.
    Scan,
    /// Get random keys beside a writer of 20,000 puts a second.
    ReadWhileWriting,
    /// Delete half of the keys in random order.
    DeleteRandom,
    /// Load all keys, which come sorted, into an empty store.
    BulkLoad,
    /// Close and open the store.
    Open,
    /// Open a store whose process was killed with 3 million records (or all keys, if fewer) in its log.
    Reopen,
}

impl Workload {
    /// All of them, in an order in which the later ones find their data.
    pub const ALL: [Workload; 13] = [
        Workload::FillSync,
        Workload::BulkLoad,
        Workload::Reopen,
        Workload::FillSeq,
        Workload::FillRandom,
        Workload::ReadRandom,
        Workload::ReadMissing,
        Workload::SeekRandom,
        Workload::Scan,
        Workload::Overwrite,
        Workload::ReadWhileWriting,
        Workload::Open,
        Workload::DeleteRandom,
    ];
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", format!("{self:?}").to_lowercase())
    }
}

/// One engine under measurement.
pub struct Context<'a> {
    factory: &'a dyn Factory,
    config: Config,
    directory: PathBuf,
    arguments: &'a Arguments,
    values: Values,
    engine: Option<Box<dyn Engine>>,
    /// Every key has a value.
    filled: bool,
}

impl<'a> Context<'a> {
    /// An engine with an empty store.
    ///
    /// # Errors
    /// If the directory can't be made.
    pub fn new(factory: &'a dyn Factory, config: Config, arguments: &'a Arguments) -> Result<Context<'a>> {
        let directory = arguments.directory.join(factory.name());
        let values = Values::new(arguments.value_bytes);
        let mut context =
            Context { factory, config, directory, arguments, values, engine: None, filled: false };
        context.empty()?;
        Ok(context)
    }

    /// Closes the engine and removes its files.
    ///
    /// # Errors
    /// Those of closing.
    pub fn finish(mut self) -> Result<()> {
        self.close()?;
        Ok(std::fs::remove_dir_all(&self.directory)?)
    }

    /// Runs one workload; some have several results.
    ///
    /// # Errors
    /// Whatever the engine fails with, and wrong answers.
    pub fn run(&mut self, workload: Workload) -> Result<Vec<Outcome>> {
        match workload {
            Workload::FillSeq => self.fill(workload, |n| n),
            Workload::FillRandom => {
                let order = Permutation::new(self.keys(), 1);
                self.fill(workload, move |n| order.apply(n))
            }
            Workload::Overwrite => self.overwrite(),
            Workload::FillSync => self.fill_sync(),
            Workload::ReadRandom => {
                [1, 2].into_iter().map(|threads| self.read(workload, threads, false)).collect()
            }
            Workload::ReadMissing => Ok(vec![self.read(workload, 1, true)?]),
            Workload::SeekRandom => self.seek(),
            Workload::Scan => [false, true].into_iter().map(|reverse| self.scan(reverse)).collect(),
            Workload::ReadWhileWriting => self.read_while_writing(),
            Workload::DeleteRandom => self.delete_random(),
            Workload::BulkLoad => self.bulk_load(),
            Workload::Open => self.reopen_closed(),
            Workload::Reopen => self.reopen_killed(),
        }
    }

    fn keys(&self) -> u64 {
        self.arguments.keys
    }

    fn operations(&self) -> u64 {
        self.arguments.operations.unwrap_or(self.keys().min(OPERATIONS_MAX))
    }

    fn entry_bytes(&self) -> u64 {
        (KEY_BYTES + self.arguments.value_bytes) as u64
    }

    fn engine(&self) -> Result<&dyn Engine> {
        Ok(self.engine.as_deref().ok_or("the engine is not open")?)
    }

    fn open(&mut self) -> Result<()> {
        self.engine = Some(self.factory.open(&self.directory, &self.config)?);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.engine.take().map_or(Ok(()), Engine::close)
    }

    /// Starts over with an empty store.
    fn empty(&mut self) -> Result<()> {
        self.close()?;
        if self.directory.exists() {
            std::fs::remove_dir_all(&self.directory)?;
        }
        std::fs::create_dir_all(&self.directory)?;
        self.filled = false;
        self.open()
    }

    fn ensure_filled(&mut self) -> Result<()> {
        if !self.filled {
            let order = Permutation::new(self.keys(), 1);
            self.fill(Workload::FillRandom, move |n| order.apply(n))?;
        }
        Ok(())
    }

    fn outcome(
        &self,
        measurement: Measurement,
        name: String,
        operations: u64,
        latencies: &Latencies,
        puts: u64,
    ) -> Result<Outcome> {
        let bytes = self.entry_bytes();
        let live = if self.filled { self.keys() * bytes } else { 0 };
        measurement.finish(
            (self.factory.name(), name),
            operations,
            latencies,
            &self.directory,
            (puts * bytes, live),
        )
    }

    fn fill(&mut self, workload: Workload, order: impl Fn(u64) -> u64) -> Result<Vec<Outcome>> {
        self.empty()?;
        let mut latencies = Latencies::new();
        let measurement = Measurement::start();
        let engine = self.engine()?;
        let mut key = [0; KEY_BYTES];
        for n in 0..self.keys() {
            write_key(order(n), &mut key);
            latencies.time(|| engine.put(&key, self.values.get(n), false))?;
        }
        engine.settle()?;
        self.filled = true;
        Ok(vec![self.outcome(
            measurement,
            format!("{workload}, settled"),
            self.keys(),
            &latencies,
            self.keys(),
        )?])
    }

    fn overwrite(&mut self) -> Result<Vec<Outcome>> {
        self.ensure_filled()?;
        let mut latencies = Latencies::new();
        let mut random = Random::new(2);
        let measurement = Measurement::start();
        let engine = self.engine()?;
        let mut key = [0; KEY_BYTES];
        for n in 0..self.keys() {
            write_key(random.below(self.keys()), &mut key);
            latencies.time(|| engine.put(&key, self.values.get(n + 1), false))?;
        }
        engine.settle()?;
        Ok(vec![self.outcome(
            measurement,
            "overwrite, settled".to_owned(),
            self.keys(),
            &latencies,
            self.keys(),
        )?])
    }

    fn fill_sync(&mut self) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for threads in [1, 16, 64] {
            self.empty()?;
            let operations = self.arguments.operations.unwrap_or(SYNCED_WRITES);
            let measurement = Measurement::start();
            let latencies = self.on_threads(threads, operations, 3, |context, random, latencies| {
                let mut key = [0; KEY_BYTES];
                write_key(random.below(context.keys()), &mut key);
                let value = context.values.get(random.next_u64());
                let engine = context.engine()?;
                latencies.time(|| engine.put(&key, value, true))
            })?;
            let name = format!("fillsync, {threads} threads");
            outcomes.push(self.outcome(measurement, name, operations, &latencies, operations)?);
        }
        Ok(outcomes)
    }

    fn read(&mut self, workload: Workload, threads: u64, missing: bool) -> Result<Outcome> {
        self.ensure_filled()?;
        let operations = self.operations();
        self.warm(operations, missing)?;
        let measurement = Measurement::start();
        let latencies = self.on_threads(threads, operations * threads, 4, |context, random, latencies| {
            latencies.time(|| context.get_random(random, missing))
        })?;
        self.outcome(
            measurement,
            format!("{workload}, {threads} threads"),
            operations * threads,
            &latencies,
            0,
        )
    }

    /// Brings the data into the caches first: the workload is about reading from memory.
    fn warm(&self, operations: u64, missing: bool) -> Result<()> {
        let mut random = Random::new(5);
        (0..operations).try_for_each(|_| self.get_random(&mut random, missing))
    }

    fn get_random(&self, random: &mut Random, missing: bool) -> Result<()> {
        let mut key = [0; KEY_BYTES];
        write_key(random.below(self.keys()), &mut key);
        if missing {
            // Between two keys that are there: the filter decides, not the range of a file.
            key[KEY_BYTES - 1] = b'x';
        }
        let found = self.engine()?.get(&key)?;
        match (found, missing) {
            (Some(len), false) if len == self.arguments.value_bytes => Ok(()),
            (None, true) => Ok(()),
            _ => Err(format!("wrong answer for key {}", String::from_utf8_lossy(&key)).into()),
        }
    }

    fn seek(&mut self) -> Result<Vec<Outcome>> {
        self.ensure_filled()?;
        let operations = self.operations() / 4;
        let measurement = Measurement::start();
        let latencies = self.on_threads(1, operations, 6, |context, random, latencies| {
            let n = random.below(context.keys().saturating_sub(SEEK_ENTRIES).max(1));
            let mut key = [0; KEY_BYTES];
            write_key(n, &mut key);
            let engine = context.engine()?;
            let expected = SEEK_ENTRIES.min(context.keys() - n);
            let seen = latencies.time(|| engine.scan(Some(&key), false, SEEK_ENTRIES, &mut |_, _| {}))?;
            if seen == expected {
                Ok(())
            } else {
                Err(format!("{seen} entries instead of {expected}").into())
            }
        })?;
        Ok(vec![self.outcome(measurement, "seekrandom + 10 next".to_owned(), operations, &latencies, 0)?])
    }

    fn scan(&mut self, reverse: bool) -> Result<Outcome> {
        self.ensure_filled()?;
        let measurement = Measurement::start();
        let mut latencies = Latencies::new();
        let (mut bytes, mut ordered, mut last) = (0u64, true, Vec::new());
        let seen = latencies.time(|| {
            self.engine()?.scan(None, reverse, u64::MAX, &mut |key, value| {
                ordered &= last.is_empty() || (key > last.as_slice()) != reverse;
                last.clear();
                last.extend_from_slice(key);
                bytes += value.len() as u64;
            })
        })?;
        if seen != self.keys() || !ordered || bytes != self.keys() * self.arguments.value_bytes as u64 {
            return Err(format!("the scan saw {seen} entries, {bytes} bytes, ordered: {ordered}").into());
        }
        let name = if reverse { "scan, reverse" } else { "scan, forward" };
        self.outcome(measurement, name.to_owned(), seen, &latencies, 0)
    }

    fn read_while_writing(&mut self) -> Result<Vec<Outcome>> {
        self.ensure_filled()?;
        let operations = self.operations();
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let measurement = Measurement::start();
        let context = &*self;
        let latencies = std::thread::scope(|scope| {
            let writer = scope.spawn(|| context.write_paced(&stop, &written));
            let latencies = context.on_threads(1, operations, 7, |context, random, latencies| {
                latencies.time(|| context.get_random(random, false))
            });
            stop.store(true, Ordering::Relaxed);
            writer.join().map_err(|_| "the writer panicked")??;
            latencies
        })?;
        let puts = written.load(Ordering::Relaxed);
        Ok(vec![self.outcome(
            measurement,
            format!("readwhilewriting ({puts} puts)"),
            operations,
            &latencies,
            puts,
        )?])
    }

    fn write_paced(&self, stop: &AtomicBool, written: &AtomicU64) -> Result<()> {
        let start = Instant::now();
        let mut random = Random::new(8);
        let mut key = [0; KEY_BYTES];
        let engine = self.engine()?;
        while !stop.load(Ordering::Relaxed) {
            let due = start.elapsed().as_micros() as u64 * PACED_WRITES_PER_SECOND / 1_000_000;
            while written.load(Ordering::Relaxed) < due {
                write_key(random.below(self.keys()), &mut key);
                engine.put(&key, self.values.get(random.next_u64()), false)?;
                written.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    fn delete_random(&mut self) -> Result<Vec<Outcome>> {
        self.ensure_filled()?;
        let operations = self.keys() / 2;
        let order = Permutation::new(self.keys(), 9);
        let mut latencies = Latencies::new();
        let measurement = Measurement::start();
        let engine = self.engine()?;
        let mut key = [0; KEY_BYTES];
        for n in 0..operations {
            write_key(order.apply(n), &mut key);
            latencies.time(|| engine.delete(&key))?;
        }
        engine.settle()?;
        self.filled = false;
        Ok(vec![self.outcome(measurement, "deleterandom, settled".to_owned(), operations, &latencies, 0)?])
    }

    fn bulk_load(&mut self) -> Result<Vec<Outcome>> {
        self.empty()?;
        let keys = self.keys();
        let measurement = Measurement::start();
        let mut n = 0;
        self.engine()?.bulk_load(&mut |key, value| {
            if n == keys {
                return false;
            }
            let mut bytes = [0; KEY_BYTES];
            write_key(n, &mut bytes);
            key.clear();
            key.extend_from_slice(&bytes);
            value.clear();
            value.extend_from_slice(self.values.get(n));
            n += 1;
            true
        })?;
        let outcome =
            self.outcome(measurement, "bulkload, sorted".to_owned(), keys, &Latencies::new(), keys)?;
        self.empty()?;
        Ok(vec![outcome])
    }

    fn reopen_closed(&mut self) -> Result<Vec<Outcome>> {
        self.ensure_filled()?;
        let mut latencies = Latencies::new();
        let measurement = Measurement::start();
        let times = 5;
        for _ in 0..times {
            self.close()?;
            latencies.time(|| self.open())?;
            self.get_random(&mut Random::new(10), false)?;
        }
        Ok(vec![self.outcome(measurement, "open after close".to_owned(), times, &latencies, 0)?])
    }

    fn reopen_killed(&mut self) -> Result<Vec<Outcome>> {
        self.empty()?;
        self.close()?;
        let records = records_in_log(self.keys());
        let status = std::process::Command::new(std::env::current_exe()?)
            .arg("--fill-and-die")
            .args(["--engines", self.factory.name()])
            .arg("--directory")
            .arg(&self.directory)
            .args(["--keys", &self.keys().to_string()])
            .args(["--memory-mib", &(self.config.memory_bytes >> 20).to_string()])
            .args(["--write-buffer-mib", &(self.config.write_buffer_bytes >> 20).to_string()])
            .status()?;
        if status.success() {
            return Err("the child that should die closed in order".into());
        }
        let mut latencies = Latencies::new();
        let measurement = Measurement::start();
        latencies.time(|| self.open())?;
        let mut key = [0; KEY_BYTES];
        for n in 0..records {
            write_key(Permutation::new(records, 11).apply(n), &mut key);
            if self.engine()?.get(&key)?.is_none() {
                return Err(format!("record {n} of {records} is lost").into());
            }
        }
        let outcome =
            self.outcome(measurement, format!("reopen after a kill, {records} records"), 1, &latencies, 0)?;
        self.empty()?;
        Ok(vec![outcome])
    }

    /// Runs `operations` on `threads` threads, each with a seed of its own.
    fn on_threads(
        &self,
        threads: u64,
        operations: u64,
        seed: u64,
        operation: impl Fn(&Context<'a>, &mut Random, &mut Latencies) -> Result<()> + Sync,
    ) -> Result<Latencies> {
        std::thread::scope(|scope| {
            let work = |thread: u64| {
                let operation = &operation;
                move || -> Result<Latencies> {
                    let mut random = Random::new(seed << 32 | thread);
                    let mut latencies = Latencies::new();
                    let share = operations / threads + u64::from(thread < operations % threads);
                    (0..share).try_for_each(|_| operation(self, &mut random, &mut latencies))?;
                    Ok(latencies)
                }
            };
            let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
            let mut all = Latencies::new();
            for handle in handles {
                all.add(&handle.join().map_err(|_| "a thread panicked")??);
            }
            Ok(all)
        })
    }
}

fn records_in_log(keys: u64) -> u64 {
    keys.min(3_000_000)
}

/// The child of the `reopen` workload: writes without syncing, then dies.
///
/// # Errors
/// Whatever the engine fails with; does not return otherwise.
pub fn fill_and_die(
    factory: &dyn Factory,
    directory: &Path,
    config: &Config,
    arguments: &Arguments,
) -> Result<()> {
    let engine = factory.open(directory, config)?;
    let values = Values::new(arguments.value_bytes);
    let mut key = [0; KEY_BYTES];
    for n in 0..records_in_log(arguments.keys) {
        write_key(n, &mut key);
        engine.put(&key, values.get(n), false)?;
    }
    std::process::abort()
}
