//! Every limit of the engine as a named constant, so that a reader finds them in one place.
//!
//! A limit is checked where data enters (at write, at open, at decode) and answered with an error of its own; code
//! behind that check may rely on it.

/// Longest encoded key, in bytes, counted without its keyspace id. The empty key is allowed.
pub const KEY_BYTES_MAX: usize = 65_535;

/// Longest value, in bytes (256 MiB).
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// From this size, in bytes, a value gets a table block of its own, so that reading a small neighbour stays cheap.
pub const VALUE_OWN_BLOCK_BYTES: usize = 64 << 10;

/// Values up to this size, in bytes, are copied out of a memtable by `get`; larger ones pin it.
pub const VALUE_COPY_BYTES_MAX: usize = 512;

/// Largest sequence number: 56 bits, since the kind takes the other 8 of a trailer.
pub const SEQNO_MAX: u64 = (1 << 56) - 1;

/// Longest payload of one log record, in bytes (1 MiB). A larger batch becomes a table instead of a record.
pub const LOG_RECORD_BYTES_MAX: usize = 1 << 20;

/// Size, in bytes, of the unit in which the log is drained (4 KiB: the page of every file system we rely on).
pub const LOG_PAGE_BYTES: usize = 4096;

/// Largest stored block, in bytes, that a reader accepts: the largest value plus room for its framing.
pub const BLOCK_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);

/// Largest index or filter partition, in bytes (16 KiB), so that one never crowds out the cache.
pub const PARTITION_BYTES_MAX: usize = 16 << 10;

/// Number of levels of the tree: level 0 and six leveled ones.
pub const LEVELS: usize = 7;

/// Most columns in a table.
pub const COLUMNS_MAX: usize = 4096;

/// Most secondary indexes on a table.
pub const INDEXES_MAX: usize = 256;
