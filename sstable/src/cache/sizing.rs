//! How many shards: pure functions of plain numbers.
//!
//! Over-sharding is the failure to avoid (RocksDB #10626, #3482), so the count starts low, and grows only when threads
//! were measured to wait for each other.

/// Most shards, whatever is measured: with the whole work under a shard's lock at some 300 ns, 256 locks serve several
/// hundred million misses a second.
pub const SHARDS_MAX: usize = 256;

/// Least capacity of a shard, in bytes.
const SHARD_BYTES_MIN: usize = 64 << 20;
/// Least capacity of a shard, in entries of average size.
const SHARD_ENTRIES_MIN: usize = 4096;
/// A shard that was split because of measured waits may be this much smaller than the two minima.
const SPLIT_SLACK: usize = 4;
/// A fullest shard of more than 3/2 of the mean shows that shards are too small to be evenly filled: with 4,096 entries
/// and a good hash, the fullest of 256 is within 1.05 of the mean.
const SKEW_MAX_HALVES: u64 = 3;
/// Threads that spend more than one part in this many of their time waiting for shards need more of them.
const LOCK_WAIT_SHARE: u64 = 100;

/// The number of shards for a cache: `pow2_floor(min(4·cpus, capacity / max(64 MiB, 4096·average_entry)))`, at least
/// one and at most [`SHARDS_MAX`].
///
/// ```
/// use alluvium_sstable::cache::shard_count;
/// assert_eq!(shard_count(89 << 20, 16, 4096), 1); // RocksDB #10626 had 64 here, and a two-hundredth of the speed
/// assert_eq!(shard_count(1 << 30, 2, 4096), 8);
/// ```
#[must_use]
pub fn shard_count(capacity_bytes: usize, cpus: usize, average_entry_bytes: usize) -> usize {
    let shard_bytes = SHARD_BYTES_MIN.max(average_entry_bytes.saturating_mul(SHARD_ENTRIES_MIN));
    pow2_floor((capacity_bytes / shard_bytes).min(cpus.saturating_mul(4)).min(SHARDS_MAX))
}

fn pow2_floor(n: usize) -> usize {
    1 << n.max(1).ilog2()
}

/// What was measured since the last decision about the number of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMeasurement {
    /// The capacity, in bytes.
    pub capacity_bytes: usize,
    /// Processors that may run readers.
    pub cpus: usize,
    /// Average size of an entry, in bytes, as measured.
    pub average_entry_bytes: usize,
    /// Bytes cached in each shard now.
    pub shard_bytes: Vec<u64>,
    /// Time that threads waited for shard locks, summed over threads, in nanoseconds.
    pub lock_wait_nanos: u64,
    /// Length of the interval, in nanoseconds.
    pub interval_nanos: u64,
}

/// The number of shards to have from now on: half as many if the fullest holds over 3/2 of the mean, twice as many if
/// the processors spent over 1 % of the interval waiting for shards, else as many as now.
///
/// Doubling stops at four shards per processor, and where a shard would fall below a quarter of the minimum that
/// [`shard_count`] starts with.
#[must_use]
pub fn adapt_shards(measured: &ShardMeasurement) -> usize {
    let shards = measured.shard_bytes.len().max(1);
    let total: u64 = measured.shard_bytes.iter().sum();
    let fullest = measured.shard_bytes.iter().max().copied().unwrap_or(0);
    // A cache that is still filling says nothing about skew.
    let filled = total >= measured.capacity_bytes as u64 / 2;
    if shards > 1 && filled && fullest * shards as u64 * 2 > total * SKEW_MAX_HALVES {
        return shards / 2;
    }
    let processor_nanos = measured.interval_nanos.saturating_mul(measured.cpus as u64);
    if measured.lock_wait_nanos.saturating_mul(LOCK_WAIT_SHARE) > processor_nanos {
        let most = shard_count(
            measured.capacity_bytes.saturating_mul(SPLIT_SLACK),
            measured.cpus,
            measured.average_entry_bytes,
        );
        return (shards * 2).min(most.max(shards));
    }
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_count_follows_the_rule() {
        const KIB: usize = 1 << 10;
        const MIB: usize = 1 << 20;
        const GIB: usize = 1 << 30;
        #[rustfmt::skip]
        let table = [
            // capacity, cpus, average entry, shards
            (0,          2,   4 * KIB,  1), // nothing to divide
            (MIB,        64,  4 * KIB,  1),
            (63 * MIB,   64,  4 * KIB,  1),
            (89 * MIB,   16,  4 * KIB,  1), // RocksDB #10626
            (128 * MIB,  16,  4 * KIB,  2),
            (191 * MIB,  16,  4 * KIB,  2), // rounded down
            (GIB,        1,   4 * KIB,  4), // cpus bound
            (GIB,        2,   4 * KIB,  8),
            (GIB,        3,   4 * KIB,  8), // 12 rounded down
            (GIB,        64,  4 * KIB,  16), // 64 MiB bound
            (4 * GIB,    64,  4 * KIB,  64),
            (GIB,        64,  16 * KIB, 16), // 4096 entries of 16 KiB are 64 MiB
            (GIB,        64,  64 * KIB, 4), // 256 MiB each
            (GIB,        64,  MIB,      1),
            (64 * GIB,   512, 4 * KIB,  256), // the most there are
            (GIB,        0,   4 * KIB,  1),
            (GIB,        2,   0,        8),
            (usize::MAX, usize::MAX, usize::MAX, 1), // no overflow
        ];
        for (capacity, cpus, average, expected) in table {
            assert_eq!(
                shard_count(capacity, cpus, average),
                expected,
                "{capacity} B, {cpus} cpus, {average} B"
            );
        }
    }

    fn measured(shard_bytes: &[u64], lock_wait_millis: u64) -> ShardMeasurement {
        ShardMeasurement {
            capacity_bytes: 1 << 30,
            cpus: 16,
            average_entry_bytes: 4096,
            shard_bytes: shard_bytes.iter().map(|mib| mib << 20).collect(),
            lock_wait_nanos: lock_wait_millis * 1_000_000,
            interval_nanos: 1_000_000_000,
        }
    }

    #[test]
    fn skew_halves_and_lock_waits_double() {
        #[rustfmt::skip]
        let table: &[(&[u64], u64, usize, &str)] = &[
            (&[256, 256, 256, 256],          0,    4,  "even and idle: stays"),
            (&[300, 230, 240, 254],          0,    4,  "slightly uneven: stays"),
            (&[500, 180, 170, 174],          0,    2,  "skewed: halves"),
            (&[500, 180, 170, 174],          1000, 2,  "skew wins over waits: more shards would be worse"),
            (&[1000, 0],                     0,    1,  "two become one"),
            (&[1024],                        0,    1,  "one stays"),
            (&[20, 1, 1, 1],                 0,    4,  "nearly empty: no judgement"),
            (&[],                            0,    1,  "nothing measured"),
            (&[256, 256, 256, 256],          160,  4,  "one percent of 16 processors: stays"),
            (&[256, 256, 256, 256],          161,  8,  "over one percent: doubles"),
            (&[16; 64],                      5000, 64, "each at a quarter of the minimum: no further"),
        ];
        for (shards, waits, expected, why) in table {
            assert_eq!(adapt_shards(&measured(shards, *waits)), *expected, "{why}");
        }
    }

    #[test]
    fn a_small_cache_is_never_split_far() {
        let mut small = measured(&[64], 10_000);
        small.capacity_bytes = 64 << 20;
        for expected in [2, 4, 4] {
            let shards = adapt_shards(&small);
            assert_eq!(shards, expected);
            small.shard_bytes = vec![(64 << 20) / shards as u64; shards];
        }
    }
}
