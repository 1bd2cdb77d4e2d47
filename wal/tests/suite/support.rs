//! What the tests of the log share.

use std::sync::Arc;

use alluvium_base::Result;
use alluvium_base::clock::{Clock, SimulatedClock};
use alluvium_base::fs::Fs;
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::random::Random;
use alluvium_base::sync::WaitStatistics;
use alluvium_wal::{Log, LogOptions, RecoveryOptions, RecoveryReport, recover};

pub(crate) const DATABASE_ID: u128 = 0x1234_5678_9abc_def0_1122_3344_5566_7788;
pub(crate) const RING_BYTES: usize = 128 << 10;

pub(crate) fn options(incarnation: u64, start_address: u64) -> LogOptions {
    LogOptions {
        directory: "/".into(),
        database_id: DATABASE_ID,
        incarnation,
        start_address,
        segment_bytes: 64 << 10,
        ring_bytes: RING_BYTES,
        segments_recycled_max: 2,
    }
}

pub(crate) fn create_on(fs: Arc<dyn Fs>, options: LogOptions) -> Result<Log> {
    let clock: Arc<dyn Clock> = SimulatedClock::new();
    Log::create(fs, clock, Arc::new(WaitStatistics::default()), options)
}

pub(crate) fn create(fs: &MemoryFs, incarnation: u64, start_address: u64) -> Log {
    create_on(fs.shared(), options(incarnation, start_address)).unwrap()
}

pub(crate) fn recovery_options(last_incarnation: u64, accepted_ends: &[(u64, u64)]) -> RecoveryOptions {
    RecoveryOptions {
        last_incarnation,
        accepted_ends: accepted_ends.to_vec(),
        ..RecoveryOptions::new("/", DATABASE_ID)
    }
}

pub(crate) type Records = Vec<(u64, Vec<u8>)>;

pub(crate) fn recover_with(fs: &MemoryFs, options: &RecoveryOptions) -> Result<(Records, RecoveryReport)> {
    let mut records = Vec::new();
    let report = recover(&fs.shared(), options, &mut |record| {
        records.push((record.seqno, record.payload.to_vec()));
        Ok(())
    })?;
    Ok((records, report))
}

pub(crate) fn recover_all(
    fs: &MemoryFs,
    last_incarnation: u64,
    accepted_ends: &[(u64, u64)],
) -> Result<(Records, RecoveryReport)> {
    recover_with(fs, &recovery_options(last_incarnation, accepted_ends))
}

/// A payload that depends on its number.
pub(crate) fn payload(seqno: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new(seqno).fill(&mut bytes);
    bytes
}

/// The seeds of a test: `short` of them, or as many as `ALLUVIUM_SEEDS` says (the long form).
pub(crate) fn seeds(short: u64) -> std::ops::Range<u64> {
    let long = std::env::var("ALLUVIUM_SEEDS").ok().and_then(|text| text.parse().ok());
    0..long.unwrap_or(short)
}
