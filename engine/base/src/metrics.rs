//! Metric primitives that are cheap enough to stay on: counters and latency histograms on relaxed atomics.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// The current value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sub-buckets per power of two: a quantile is at most 1/8 = 12.5 % too high.
const SUB_BUCKETS_LOG2: u32 = 3;
const BUCKETS: usize = (64 - SUB_BUCKETS_LOG2 as usize + 1) << SUB_BUCKETS_LOG2;

/// A histogram of unsigned numbers (nanoseconds, bytes) with logarithmic buckets, as in HdrHistogram: recording is
/// two relaxed additions, a quantile is at most 12.5 % too high.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64; BUCKETS]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: Box::new([const { AtomicU64::new(0) }; BUCKETS]),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
}

fn bucket_of(value: u64) -> usize {
    let magnitude = 63 - (value | 1).leading_zeros();
    if magnitude < SUB_BUCKETS_LOG2 {
        return value as usize;
    }
    let shift = magnitude - SUB_BUCKETS_LOG2;
    ((shift as usize + 1) << SUB_BUCKETS_LOG2) + ((value >> shift) as usize & ((1 << SUB_BUCKETS_LOG2) - 1))
}

/// The largest value that falls into `bucket`.
fn bucket_end(bucket: usize) -> u64 {
    let (row, column) = (bucket >> SUB_BUCKETS_LOG2, bucket as u64 & ((1 << SUB_BUCKETS_LOG2) - 1));
    match row.checked_sub(1) {
        None => column,
        Some(shift) => ((1u64 << SUB_BUCKETS_LOG2) + column) << shift | ((1u64 << shift) - 1),
    }
}

impl Histogram {
    /// Records one value.
    pub fn record(&self, value: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(value)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
        if value > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// A copy of the current state. Values recorded meanwhile may or may not be in it.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        let buckets: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        HistogramSnapshot {
            count: buckets.iter().sum(),
            sum: self.sum.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
            buckets,
        }
    }
}

/// What a [`Histogram`] had recorded at one moment.
#[derive(Clone, Debug)]
pub struct HistogramSnapshot {
    /// Number of values.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The largest.
    pub max: u64,
    buckets: Vec<u64>,
}

impl HistogramSnapshot {
    /// The value below or at which a share of `quantile` (0 to 1) of the values lie, at most 12.5 % too high.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = ((self.count as f64 * quantile).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bucket_end(bucket).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, (1u64 << shift) | (1u64 << shift >> 1)] {
                let bucket = bucket_of(value);
                assert!(bucket_end(bucket) >= value, "{value}");
                assert!(bucket == 0 || bucket_end(bucket - 1) < value, "{value}");
            }
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_close() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.record(value));
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count, snapshot.max, snapshot.sum), (1000, 1000, 500_500));
        let median = snapshot.quantile(0.5);
        assert!((500..=563).contains(&median), "{median}");
        assert_eq!(snapshot.quantile(1.0), 1000);
    }
}
