//! What the log counts.

use alluvium_base::metrics::{Counter, Histogram, HistogramSnapshot};

/// Counters that are kept outside of the append lock.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) bytes_drained: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) writes: Counter,
    pub(crate) syncs: Counter,
    pub(crate) bytes_synced: Counter,
    pub(crate) ring_waits: Counter,
    pub(crate) failures: Counter,
    pub(crate) segments_filled: Counter,
    pub(crate) segments_recycled: Counter,
    pub(crate) segments_late: Counter,
    pub(crate) sync_group_sizes: Histogram,
    pub(crate) sync_nanos: Histogram,
    pub(crate) write_nanos: Histogram,
}

/// What a log has done since it was created, and where it stands. Numbers read at slightly different moments.
#[derive(Clone, Debug)]
pub struct LogStatistics {
    /// Records appended.
    pub records_appended: u64,
    /// Bytes appended, headers and padding included.
    pub bytes_appended: u64,
    /// Bytes that left the ring for good.
    pub bytes_drained: u64,
    /// Bytes written to segments: more than was drained, since a sync writes a page that is not full, and writes it
    /// again later.
    pub bytes_written: u64,
    /// Writes to segments.
    pub writes: u64,
    /// Bytes made durable.
    pub bytes_synced: u64,
    /// Successful group syncs.
    pub syncs: u64,
    /// Times that an append found the ring full.
    pub ring_waits: u64,
    /// Failed writes and syncs.
    pub failures: u64,
    /// Segments that were filled anew.
    pub segments_filled: u64,
    /// Segments made from a spare one.
    pub segments_recycled: u64,
    /// Segments that had to be made while a write waited for them.
    pub segments_late: u64,
    /// Commits per group sync.
    pub sync_group_sizes: HistogramSnapshot,
    /// Duration of fsync, in nanoseconds.
    pub sync_nanos: HistogramSnapshot,
    /// Duration of single writes to segments, in nanoseconds.
    pub write_nanos: HistogramSnapshot,
    /// The address behind the last record.
    pub end_address: u64,
    /// Everything below this address has left the ring.
    pub drained_address: u64,
    /// Everything below this address is durable.
    pub durable_address: u64,
}
