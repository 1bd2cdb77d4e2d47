//! What a workload cost: latencies, processor time, memory, bytes.

use std::path::Path;
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::Result;

/// What the system has counted for this process so far.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    cpu_seconds: f64,
    /// Bytes handed to write calls. Stores into mapped files are not counted, which flatters nobody here: what
    /// Alluvium stores into its ring is written to the log by a call later.
    written_bytes: u64,
}

fn usage() -> Usage {
    let number = |text: &str, name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields 14 and 15 (user and system time in ticks of 1/100 s), counted behind the name in parentheses.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| -> f64 { fields.get(n).and_then(|text| text.parse().ok()).unwrap_or(0.0) };
    Usage { cpu_seconds: (ticks(11) + ticks(12)) / 100.0, written_bytes: number(&io, "wchar:") }
}

/// Peak resident memory of this process since the last [`reset_peak_memory`], in bytes.
#[must_use]
pub fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Starts a new peak. Where the system does not allow it, the peak is that of the whole process.
pub fn reset_peak_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Size of all files below `directory`, in bytes.
///
/// # Errors
/// If the directory can't be read.
pub fn directory_bytes(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { directory_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

/// Latencies of one thread, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

impl Latencies {
    /// No latencies yet.
    ///
    /// # Panics
    /// Never: three significant digits are allowed.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a constant that is known to be valid")]
    pub fn new() -> Latencies {
        Latencies(Histogram::new(3).expect("three significant digits"))
    }

    /// Runs `operation` and records how long it took.
    pub fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = operation();
        // The histogram grows as needed, so recording cannot fail.
        let _ = self.0.record(start.elapsed().as_nanos() as u64);
        result
    }

    /// Adds those of another thread.
    pub fn add(&mut self, other: &Latencies) {
        // Both have automatic ranges, so adding cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// The latency below which a share of operations lies, in microseconds.
    #[must_use]
    pub fn micros(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// The longest, in microseconds.
    #[must_use]
    pub fn max_micros(&self) -> f64 {
        self.0.max() as f64 / 1000.0
    }
}

/// A workload in progress.
#[derive(Debug)]
pub struct Measurement {
    start: Instant,
    usage: Usage,
}

/// What a workload cost.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// Engine and workload.
    pub engine: String,
    /// The workload, with its variant.
    pub workload: String,
    /// Operations done.
    pub operations: u64,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Operations per second.
    pub operations_per_second: f64,
    /// Median latency, µs.
    pub p50_micros: f64,
    /// 99th percentile, µs.
    pub p99_micros: f64,
    /// 99.9th percentile, µs.
    pub p999_micros: f64,
    /// Longest, µs.
    pub max_micros: f64,
    /// Processor seconds of all threads.
    pub cpu_seconds: f64,
    /// Peak resident memory, bytes.
    pub peak_memory_bytes: u64,
    /// Bytes handed to write calls.
    pub written_bytes: u64,
    /// Bytes written per byte of keys and values put; zero for workloads that only read.
    pub write_amplification: f64,
    /// Size of the database's files at the end, bytes.
    pub disk_bytes: u64,
    /// Size of the files per byte of live keys and values; zero where not all keys are there.
    pub space_amplification: f64,
}

impl Measurement {
    /// Starts measuring.
    #[must_use]
    pub fn start() -> Measurement {
        reset_peak_memory();
        Measurement { start: Instant::now(), usage: usage() }
    }

    /// Ends measuring. `user_bytes` were put; `live_bytes` are in the store now.
    ///
    /// # Errors
    /// If the directory can't be read.
    pub fn finish(
        self,
        (engine, workload): (&str, String),
        operations: u64,
        latencies: &Latencies,
        directory: &Path,
        (user_bytes, live_bytes): (u64, u64),
    ) -> Result<Outcome> {
        let seconds = self.start.elapsed().as_secs_f64();
        let now = usage();
        let written_bytes = now.written_bytes - self.usage.written_bytes;
        let disk_bytes = directory_bytes(directory)?;
        let per = |bytes: u64, of: u64| if of == 0 { 0.0 } else { bytes as f64 / of as f64 };
        Ok(Outcome {
            engine: engine.to_owned(),
            workload,
            operations,
            seconds,
            operations_per_second: operations as f64 / seconds.max(1e-9),
            p50_micros: latencies.micros(0.5),
            p99_micros: latencies.micros(0.99),
            p999_micros: latencies.micros(0.999),
            max_micros: latencies.max_micros(),
            cpu_seconds: now.cpu_seconds - self.usage.cpu_seconds,
            peak_memory_bytes: peak_memory(),
            written_bytes,
            write_amplification: per(written_bytes, user_bytes),
            disk_bytes,
            space_amplification: per(disk_bytes, live_bytes),
        })
    }
}
