//! What is cached: keys, classes, fill policies, and how a key is hashed.

/// Names a block: the table file it is in and where it starts there.
///
/// File ids are never reused, so a key names the same bytes for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKey {
    /// Id of the table file.
    pub file_id: u64,
    /// Where the block starts in the file, in bytes.
    pub offset: u64,
}

impl BlockKey {
    /// Sixty-four well-mixed bits of the key: two folded multiplications, as in wyhash (Wang Yi, 2019). The top byte
    /// picks the region (and so the shard), bits 32 and up the segment, the low half the slot in it.
    pub(super) fn hash(self) -> u64 {
        fn fold(a: u64, b: u64) -> u64 {
            let product = u128::from(a) * u128::from(b);
            (product >> 64) as u64 ^ product as u64
        }
        let file = fold(self.file_id ^ 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93);
        fold(file ^ self.offset, 0xa076_1d64_78bd_642f) ^ file
    }
}

/// What a block is for. Index and filter blocks are asked far more often than any data block, so they skip probation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockClass {
    /// Entries of a table.
    Data,
    /// A partition of a table's index.
    Index,
    /// A partition of a table's filter.
    Filter,
}

/// Number of [`BlockClass`]es.
pub const BLOCK_CLASSES: usize = 3;

/// Whether a block that had to be read stays in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FillPolicy {
    /// Keep it: point reads and scans.
    Fill,
    /// Do not keep it, and do not count finding it as a use: compaction, verification.
    NoFill,
}

/// What a cached value costs.
pub trait Charge {
    /// Bytes of memory that the value occupies, its own struct included. Asked once, when the value enters the cache.
    fn charge(&self) -> usize;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_offsets_of_neighbouring_files_spread_over_every_part_of_the_hash() {
        let mut regions = [0u32; 256];
        let mut segments = [0u32; 256];
        let mut slots = [0u32; 256];
        for file_id in 1..=64 {
            for block in 0..1024 {
                let hash = BlockKey { file_id, offset: block * 4096 }.hash();
                regions[(hash >> 56) as usize] += 1;
                segments[(hash >> 32) as usize & 255] += 1;
                slots[hash as usize & 255] += 1;
            }
        }
        // 256 expected in each; six standard deviations are 96.
        for counts in [regions, segments, slots] {
            assert!(counts.iter().all(|count| (160..=352).contains(count)), "{counts:?}");
        }
    }
}
