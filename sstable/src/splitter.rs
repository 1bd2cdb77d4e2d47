//! Where an output of several tables is cut: one pure rule for flush, compaction and bulk load.
//!
//! A table ends
//! 1. when it has reached the target size, or
//! 2. at the edge of a keyspace that fills at least a quarter of a target file in it, so that a large keyspace has
//!    files to itself (dropping it unlinks whole files), while small neighbours share one (4,000 keyspaces of 100 rows
//!    must not become 4,000 files),
//!
//! but never between two versions of one key: a reader that has found the table of a key needs no other one.

use alluvium_base::key::KeyspaceId;

/// From this share of a target file (one over …) a keyspace ends its file at its own edge.
const KEYSPACE_EDGE_SHARE: u64 = 4;

/// Decides, entry by entry, where the next table begins.
///
/// ```
/// use alluvium_sstable::TableSplitter;
/// let mut splitter = TableSplitter::new(1000);
/// assert!(!splitter.cut_before(b"", b"\0\0\0\x01a", 0));
/// assert!(!splitter.cut_before(b"\0\0\0\x01a", b"\0\0\0\x01b", 400));
/// assert!(splitter.cut_before(b"\0\0\0\x01b", b"\0\0\0\x02a", 500));
/// ```
#[derive(Clone, Debug)]
pub struct TableSplitter {
    target_bytes: u64,
    /// Size of the current table when its current keyspace began.
    keyspace_start_bytes: u64,
}

impl TableSplitter {
    /// A splitter for tables of about `target_bytes` each.
    #[must_use]
    pub fn new(target_bytes: u64) -> TableSplitter {
        TableSplitter { target_bytes, keyspace_start_bytes: 0 }
    }

    /// True if the current table should end before the entry with full key `next_key`. `last_key` is the full key of
    /// the entry written last into it (empty if there is none), `table_bytes` its size so far, in bytes. To be called
    /// once before every entry; after `true` the entry belongs to a new table.
    pub fn cut_before(&mut self, last_key: &[u8], next_key: &[u8], table_bytes: u64) -> bool {
        if last_key.is_empty() {
            self.keyspace_start_bytes = 0;
            return false;
        }
        if last_key == next_key {
            return false;
        }
        let at_edge = KeyspaceId::of(last_key) != KeyspaceId::of(next_key);
        let keyspace_bytes = table_bytes.saturating_sub(self.keyspace_start_bytes);
        let fills_its_share = keyspace_bytes.saturating_mul(KEYSPACE_EDGE_SHARE) >= self.target_bytes;
        if table_bytes >= self.target_bytes || (at_edge && fills_its_share) {
            self.keyspace_start_bytes = 0;
            return true;
        }
        if at_edge {
            self.keyspace_start_bytes = table_bytes;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(keyspace: u32, user: &[u8]) -> Vec<u8> {
        KeyspaceId(keyspace).full_key(user)
    }

    #[test]
    fn rule_of_size_and_keyspace_edges() {
        let (a, a2, b) = (key(1, b"a"), key(1, b"b"), key(2, b"a"));
        /// Last key, next key, start of the keyspace, bytes of the table, cut?
        type Case<'a> = (&'a [u8], &'a [u8], u64, u64, bool);
        let cases: [Case<'_>; 9] = [
            (b"", &a, 0, 0, false),
            (&a, &a2, 0, 999, false),
            (&a, &a2, 0, 1000, true),
            (&a, &a, 0, 5000, false),
            (&a, &b, 0, 249, false),
            (&a, &b, 0, 250, true),
            (&a, &b, 600, 849, false),
            (&a, &b, 600, 850, true),
            (&a, &b, 900, 1000, true),
        ];
        for (last, next, start, bytes, expected) in cases {
            let mut splitter = TableSplitter { target_bytes: 1000, keyspace_start_bytes: start };
            assert_eq!(splitter.cut_before(last, next, bytes), expected, "{last:?} {next:?} {start} {bytes}");
        }
    }

    #[test]
    fn four_thousand_small_keyspaces_share_few_tables() {
        let mut splitter = TableSplitter::new(1 << 20);
        let (mut tables, mut bytes, mut last) = (1, 0, Vec::new());
        for keyspace in 0..4000 {
            for row in 0..100u8 {
                let next = key(keyspace, &[row]);
                if splitter.cut_before(&last, &next, bytes) {
                    tables += 1;
                    bytes = 0;
                }
                bytes += 120;
                last = next;
            }
        }
        assert_eq!(tables, 46, "48 MB in tables of 1 MiB, none cut at an edge");
    }
}
