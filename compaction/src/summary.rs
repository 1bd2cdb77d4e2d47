//! What a table says about itself.

use alluvium_base::KeyRange;
use alluvium_base::key::{KeyspaceId, Seqno};

/// What a table holds of one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceProperties {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Point entries, tombstones included.
    pub entries: u64,
    /// Point tombstones.
    pub tombstones: u64,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// Bytes of the blocks in the file.
    pub stored_bytes: u64,
}

/// What is known of a table without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSummary {
    /// The table's random id, which seeds its checksums.
    pub identity: u128,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// xxh3 of the whole file.
    pub checksum: u64,
    /// Smallest range that holds every key and every range tombstone.
    pub range: KeyRange,
    /// Smallest sequence number.
    pub seqno_min: Seqno,
    /// Largest sequence number.
    pub seqno_max: Seqno,
    /// Point entries, tombstones included.
    pub entries: u64,
    /// Point tombstones.
    pub tombstones: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// By keyspace, ascending.
    pub keyspaces: Vec<KeyspaceProperties>,
}
