//! Building the partitioned index while data blocks are written.
//!
//! One index entry per data block: its key is a *separator*, its value the block's handle. The separator of a block
//! is at or after the block's last entry and before the first entry of the next block, so the first separator at or
//! after a key names the only block that can hold it. It is as short as that allows. Between two versions of one key
//! no shorter key fits: then it is the last entry itself, trailer included; all other separators have the trailer
//! that sorts after every version of their key, which makes the trailer column of nearly every partition free.

use alluvium_base::key::{Trailer, common_prefix_len};
use alluvium_base::limits::PARTITION_BYTES_MAX;

use crate::block::BlockBuilder;
use crate::frame::BlockHandle;
use crate::settings::Compression;

/// A finished partition, to be written behind the data blocks.
pub(super) struct Partition {
    pub(super) raw: Vec<u8>,
    /// Separator of its last block.
    pub(super) key: Vec<u8>,
    pub(super) trailer: Trailer,
    pub(super) compression: Compression,
}

/// Builds index partitions of at most 16 KiB (more only if a single separator is longer).
pub(super) struct IndexBuilder {
    builder: BlockBuilder,
    /// Compression of the partition being built: that of its first block.
    compression: Compression,
    separator: Vec<u8>,
    partitions: Vec<Partition>,
    partition_bytes: usize,
}

impl IndexBuilder {
    pub(super) fn new() -> IndexBuilder {
        IndexBuilder {
            builder: BlockBuilder::new(),
            compression: Compression::None,
            separator: Vec::new(),
            partitions: Vec::new(),
            partition_bytes: 0,
        }
    }

    /// Adds the block that ends with (`last_key`, `last_trailer`). `next_key` is the key of the entry behind it, if
    /// there is one.
    pub(super) fn add(
        &mut self,
        (handle, compression): (BlockHandle, Compression),
        last_key: &[u8],
        last_trailer: Trailer,
        next_key: Option<&[u8]>,
    ) {
        let mut trailer = Trailer::OLDEST;
        self.separator.clear();
        match next_key {
            Some(next_key) if next_key > last_key => separator(last_key, next_key, &mut self.separator),
            Some(_) => {
                self.separator.extend_from_slice(last_key);
                trailer = last_trailer;
            }
            None => self.separator.extend_from_slice(last_key),
        }
        if self.builder.raw_len_with(&self.separator, BlockHandle::BYTES) > PARTITION_BYTES_MAX {
            self.finish_partition();
        }
        if self.builder.is_empty() {
            self.compression = compression;
        }
        self.builder.add(&self.separator, trailer, &handle.to_bytes());
    }

    fn finish_partition(&mut self) {
        let Some((key, trailer)) = self.builder.last() else { return };
        let (key, mut raw) = (key.to_vec(), Vec::new());
        self.builder.finish(&mut raw);
        self.partition_bytes += raw.len();
        self.partitions.push(Partition { raw, key, trailer, compression: self.compression });
    }

    /// Size of the index so far, in bytes before compression.
    pub(super) fn estimated_bytes(&self) -> u64 {
        (self.partition_bytes + self.builder.raw_len()) as u64
    }

    /// All partitions, in order.
    pub(super) fn finish(mut self) -> Vec<Partition> {
        self.finish_partition();
        self.partitions
    }
}

/// Puts a short key into `out` that is at or after `last` and before `next`, where `last` < `next`.
fn separator(last: &[u8], next: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let shared = common_prefix_len(last, next);
    // The first byte that differs, raised by one, if that stays below `next`; else a later byte of `last`, raised.
    let (common, rest) = last.split_at_checked(shared).unwrap_or((last, &[]));
    out.extend_from_slice(common);
    let below_next = |byte: u8| next.get(shared).is_some_and(|&bound| byte < bound - 1);
    for (at, &byte) in rest.iter().enumerate() {
        // The last byte of `last` needs no raising: `last` itself is then as short.
        let may_raise = at + 1 < rest.len() && byte < 0xff && (at > 0 || below_next(byte));
        if may_raise {
            out.push(byte + 1);
            return;
        }
        out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn separators_are_short() {
        let cases: [(&[u8], &[u8], &[u8]); 8] = [
            (b"abcdef", b"abxyz", b"abd"),
            (b"abc", b"abd", b"abc"),
            (b"abcde", b"abd", b"abce"),
            (b"ab\xff\xffz", b"ac", b"ab\xff\xffz"),
            (b"ab\xff\x01z", b"ac", b"ab\xff\x02"),
            (b"a", b"ab", b"a"),
            (b"", b"a", b""),
            (b"b", b"z", b"b"),
        ];
        for (last, next, expected) in cases {
            let mut out = Vec::new();
            separator(last, next, &mut out);
            assert_eq!(out, expected, "{last:?} {next:?}");
        }
    }

    proptest! {
        #[test]
        fn separators_separate(a in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 254, 255]), 0..6),
                               b in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 254, 255]), 0..6)) {
            prop_assume!(a != b);
            let (last, next) = if a < b { (a, b) } else { (b, a) };
            let mut out = Vec::new();
            separator(&last, &next, &mut out);
            prop_assert!(last <= out && out < next, "{:?} {:?} {:?}", last, next, out);
            prop_assert!(out.len() <= last.len());
        }
    }
}
