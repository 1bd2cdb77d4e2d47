//! The frame around every block of a table file.
//!
//! ```text
//! body (n bytes) ‖ type (1 byte: block kind × 16 + compression) ‖ checksum (8 bytes)
//! ```
//!
//! The checksum is xxh3-64 over body and type, seeded with the table's random identity and the block's offset, so
//! that a valid block in the wrong place, or of another table, does not validate. A [`BlockHandle`] says where a block
//! is; its length counts the body only.

use alluvium_base::checksum::{checksum, seed};
use alluvium_base::coding::Reader;
use alluvium_base::fs::File;
use alluvium_base::memory::Buffer;
use alluvium_base::{Error, Result, limits};

use crate::compress;
use crate::settings::Compression;

/// Bytes of a frame behind the body: type and checksum.
pub(crate) const FRAME_BYTES: usize = 1 + CHECKSUM_BYTES;
const CHECKSUM_BYTES: usize = 8;

/// What a block holds. The numbers are stored on disk and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockKind {
    /// Entries of one keyspace.
    Data = 0,
    /// A partition of the index: separators and handles of data blocks.
    Index = 1,
    /// The index of the index partitions.
    TopIndex = 2,
    /// A partition of the point filter.
    PointFilter = 3,
    /// A partition of the prefix filter.
    PrefixFilter = 4,
    /// Range tombstones.
    RangeTombstones = 5,
    /// Properties of the table.
    Properties = 6,
}

impl BlockKind {
    fn from_u8(byte: u8) -> Option<BlockKind> {
        Some(match byte {
            0 => BlockKind::Data,
            1 => BlockKind::Index,
            2 => BlockKind::TopIndex,
            3 => BlockKind::PointFilter,
            4 => BlockKind::PrefixFilter,
            5 => BlockKind::RangeTombstones,
            6 => BlockKind::Properties,
            _ => return None,
        })
    }
}

/// Where a block is in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHandle {
    /// Offset of the first byte of the body.
    pub offset: u64,
    /// Length of the body in bytes; type and checksum follow it.
    pub len: u32,
}

impl BlockHandle {
    /// Length of an encoded handle.
    pub(crate) const BYTES: usize = 12;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (offset, len) = bytes.split_at_mut(8);
        offset.copy_from_slice(&self.offset.to_le_bytes());
        len.copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<BlockHandle> {
        Some(BlockHandle { offset: reader.u64()?, len: reader.u32()? })
    }

    pub(crate) fn from_slice(bytes: &[u8]) -> Option<BlockHandle> {
        let mut reader = Reader::new(bytes);
        BlockHandle::read(&mut reader).filter(|_| reader.is_empty())
    }

    /// Length of the block with its frame, in bytes.
    #[must_use]
    pub fn framed_len(self) -> usize {
        self.len as usize + FRAME_BYTES
    }

    /// Offset of the first byte behind the block; `None` if it overflows.
    pub(crate) fn end(self) -> Option<u64> {
        self.offset.checked_add(self.framed_len() as u64)
    }

    /// True if the block ends at or before `end`, and is no longer than a block may be.
    pub(crate) fn fits(self, end: u64) -> bool {
        self.len as usize <= limits::BLOCK_BYTES_MAX && self.end().is_some_and(|block_end| block_end <= end)
    }
}

/// Turns a body into a framed block that will stand at `offset` of the table `identity`.
pub(crate) fn seal(
    body: &mut Vec<u8>,
    kind: BlockKind,
    compression: Compression,
    identity: u128,
    offset: u64,
) {
    body.push((kind as u8) << 4 | compression as u8);
    let sum = checksum(seed(identity, offset), body);
    body.extend_from_slice(&sum.to_le_bytes());
}

/// What [`open`] found around a body.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The body as it was before compression.
    pub(crate) raw: Buffer,
    pub(crate) compression: Compression,
}

/// Checks and unpacks a framed block that was read from `offset` of the table `identity`.
///
/// `framed` is taken by value, since an uncompressed block becomes its own result without a copy.
pub(crate) fn open(
    mut framed: Buffer,
    kind: BlockKind,
    identity: u128,
    offset: u64,
) -> Result<Opened, &'static str> {
    let compression = check(&framed, kind, identity, offset)?;
    let body_len = framed.len().saturating_sub(FRAME_BYTES);
    if compression == Compression::None {
        framed.truncate(body_len);
        return Ok(Opened { raw: framed, compression });
    }
    let raw = compress::decompress(framed.get(..body_len).unwrap_or_default(), compression)?;
    Ok(Opened { raw, compression })
}

/// As [`open`], for a block that is part of a larger buffer.
pub(crate) fn open_slice(
    framed: &[u8],
    kind: BlockKind,
    identity: u128,
    offset: u64,
) -> Result<Opened, &'static str> {
    let compression = check(framed, kind, identity, offset)?;
    let body = framed.get(..framed.len().saturating_sub(FRAME_BYTES)).unwrap_or_default();
    let raw = match compression {
        Compression::None => Buffer::copy_of(body),
        compressed => compress::decompress(body, compressed)?,
    };
    Ok(Opened { raw, compression })
}

fn check(framed: &[u8], kind: BlockKind, identity: u128, offset: u64) -> Result<Compression, &'static str> {
    let (covered, stored) = framed.split_last_chunk::<CHECKSUM_BYTES>().ok_or("a block is too short")?;
    if checksum(seed(identity, offset), covered) != u64::from_le_bytes(*stored) {
        return Err("block checksum differs");
    }
    let &block_type = covered.last().ok_or("a block is too short")?;
    let compression = Compression::from_u8(block_type & 0xf).ok_or("a block has an unknown compression")?;
    if BlockKind::from_u8(block_type >> 4) != Some(kind) {
        return Err("a block is of another kind than its place says");
    }
    Ok(compression)
}

/// Reads, checks and unpacks one block. `end` is where the blocks of the file end, in bytes.
pub(crate) fn read(
    file: &dyn File,
    handle: BlockHandle,
    end: u64,
    kind: BlockKind,
    identity: u128,
) -> Result<Opened> {
    if !handle.fits(end) {
        return Err(Error::corrupt(file.path(), handle.offset, "a block lies outside its place in the file"));
    }
    let mut framed = Buffer::new(handle.framed_len());
    file.read_exact_at(&mut framed, handle.offset)?;
    open(framed, kind, identity, handle.offset)
        .map_err(|detail| Error::corrupt(file.path(), handle.offset, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_validates_only_in_its_place() {
        let open =
            |framed: &[u8], kind, identity, offset| open(Buffer::copy_of(framed), kind, identity, offset);
        let mut framed = b"hello".to_vec();
        seal(&mut framed, BlockKind::Data, Compression::None, 7, 4096);
        assert_eq!(framed.len(), 5 + FRAME_BYTES);
        assert_eq!(*open(&framed, BlockKind::Data, 7, 4096).unwrap().raw, *b"hello");
        assert_eq!(*open_slice(&framed, BlockKind::Data, 7, 4096).unwrap().raw, *b"hello");
        assert!(open(&framed, BlockKind::Data, 7, 0).is_err(), "misplaced");
        assert!(open(&framed, BlockKind::Data, 8, 4096).is_err(), "of another table");
        assert!(open(&framed, BlockKind::Index, 7, 4096).is_err(), "of another kind");
        for at in 0..framed.len() {
            let mut damaged = framed.clone();
            damaged[at] ^= 1;
            assert!(open(&damaged, BlockKind::Data, 7, 4096).is_err());
            assert!(open(&framed[..at], BlockKind::Data, 7, 4096).is_err());
        }
    }

    #[test]
    fn handles_outside_the_file_do_not_fit() {
        assert!(BlockHandle { offset: 10, len: 81 }.fits(100));
        assert!(!BlockHandle { offset: 10, len: 82 }.fits(100));
        assert!(!BlockHandle { offset: u64::MAX, len: 1 }.fits(u64::MAX));
        assert!(!BlockHandle { offset: 0, len: u32::MAX }.fits(u64::MAX));
    }
}
