//! What an append and a sync cost on the machine's file system. Run with
//!
//! ```text
//! cargo test --release -p alluvium-wal --test suite measure -- --ignored --nocapture
//! ```
//!
//! `ALLUVIUM_MEASURE_DIRECTORY` names another place than the system's temporary directory (which may be in memory, where
//! a sync costs nothing). Figures are in `design/decisions/0002-log-ring-and-segments.md`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use alluvium_base::clock::SystemClock;
use alluvium_base::fs::real::RealFs;
use alluvium_base::metrics::Histogram;
use alluvium_base::sync::WaitStatistics;
use alluvium_wal::{Log, LogOptions};

use crate::support::options;

/// 16 B key, 100 B value and what a batch adds; 172 bytes as a record.
const PAYLOAD: [u8; 140] = [7; 140];

struct Case {
    threads: u64,
    appends: u64,
    sync: bool,
    ring_bytes: usize,
}

/// Runs a case in a fresh directory; prints one line.
fn measure(case: &Case) {
    let root = std::env::var_os("ALLUVIUM_MEASURE_DIRECTORY").map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(root).unwrap();
    let options = LogOptions {
        directory: directory.path().into(),
        segment_bytes: 64 << 20,
        ring_bytes: case.ring_bytes,
        segments_recycled_max: 4,
        ..options(1, 0)
    };
    let clock = SystemClock::shared();
    let waits = Arc::new(WaitStatistics::default());
    let log = Log::create(RealFs::shared(), Arc::clone(&clock), waits, options).unwrap();
    log.prepare_segment().unwrap();
    let latencies = Histogram::default();
    let seqno = AtomicU64::new(1);
    let done = AtomicBool::new(false);
    let mut elapsed = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if log.wants_segment() {
                    log.prepare_segment().unwrap();
                    log.release_before(log.durable_address().saturating_sub(128 << 20)).unwrap();
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let start = clock.monotonic_nanos();
        let run = || {
            for _ in 0..case.appends / case.threads {
                let begin = clock.monotonic_nanos();
                let appended = log.append(&PAYLOAD, || seqno.fetch_add(1, Ordering::Relaxed)).unwrap();
                if case.sync {
                    log.sync(appended.end).unwrap();
                }
                latencies.record(clock.monotonic_nanos() - begin);
            }
        };
        let threads: Vec<_> = (0..case.threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        elapsed = clock.monotonic_nanos() - start;
        done.store(true, Ordering::Relaxed);
    });
    let (latencies, statistics) = (latencies.snapshot(), log.statistics());
    println!(
        "{:>2} threads, {}: {:>7.0} k/s, {:>6} ns each; latency p50 {:.2} p99 {:.2} p99.9 {:.2} max {:.0} µs; \
         fsync p50 {:.0} p99 {:.0} µs, {:.1} a group; {} writes, {} ring waits, {} late segments",
        case.threads,
        if case.sync { "sync" } else { "buffered" },
        case.appends as f64 / (elapsed as f64 / 1e6),
        elapsed * case.threads.min(2) / case.appends,
        latencies.quantile(0.5) as f64 / 1e3,
        latencies.quantile(0.99) as f64 / 1e3,
        latencies.quantile(0.999) as f64 / 1e3,
        latencies.max as f64 / 1e3,
        statistics.sync_nanos.quantile(0.5) as f64 / 1e3,
        statistics.sync_nanos.quantile(0.99) as f64 / 1e3,
        statistics.sync_group_sizes.sum as f64 / statistics.sync_group_sizes.count.max(1) as f64,
        statistics.writes,
        statistics.ring_waits,
        statistics.segments_late,
    );
}

#[test]
#[ignore = "a measurement, not a test"]
fn measure_appends_and_syncs() {
    for _ in 0..3 {
        // Everything fits into the ring: hash, lock, copy.
        measure(&Case { threads: 1, appends: 90_000, sync: false, ring_bytes: 16 << 20 });
        for threads in [1, 2, 8] {
            measure(&Case { threads, appends: 2_000_000, sync: false, ring_bytes: 4 << 20 });
        }
        for (threads, appends) in [(1, 20_000), (16, 160_000), (64, 320_000)] {
            measure(&Case { threads, appends, sync: true, ring_bytes: 4 << 20 });
        }
    }
}
