//! What the block cache holds for tables.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::block::EntryBlock;
use crate::cache::{Cache, Charge};
use crate::filter::point::PointFilterPartition;
use crate::filter::prefix::PrefixFilterPartition;

/// The cache of blocks that all tables of a database share.
pub type BlockCache = Cache<CachedBlock>;

/// One block as tables keep it in the cache: checked, uncompressed, ready to search.
#[derive(Debug)]
pub struct CachedBlock(pub(crate) Content);

#[derive(Debug)]
pub(crate) enum Content {
    Entries(EntryBlock),
    PointFilter(PointFilterPartition),
    PrefixFilter(PrefixFilterPartition),
}

impl Charge for CachedBlock {
    fn charge(&self) -> usize {
        let heap = match &self.0 {
            Content::Entries(block) => block.heap_bytes(),
            Content::PointFilter(partition) => partition.heap_bytes(),
            Content::PrefixFilter(partition) => partition.heap_bytes(),
        };
        // The two counters of the `Arc` stand in front of the struct.
        heap + size_of::<CachedBlock>() + 2 * size_of::<usize>()
    }
}

/// A pinned block of entries.
#[derive(Clone, Debug)]
pub(crate) struct PinnedBlock(pub(crate) Arc<CachedBlock>);

/// What the absence of a block reads as.
pub(crate) static EMPTY: EntryBlock = EntryBlock::EMPTY;

impl Deref for PinnedBlock {
    type Target = EntryBlock;

    fn deref(&self) -> &EntryBlock {
        match &self.0.0 {
            Content::Entries(block) => block,
            _ => &EMPTY,
        }
    }
}

/// A value that lies in a block of the cache, and keeps that block in memory. Dereferences to the bytes.
#[derive(Clone, Debug)]
pub struct PinnedValue {
    block: PinnedBlock,
    start: u32,
    end: u32,
}

impl PinnedValue {
    pub(crate) fn new(block: PinnedBlock, at: usize) -> PinnedValue {
        let Range { start, end } = block.value_range(at);
        PinnedValue { block, start: start as u32, end: end as u32 }
    }

    /// Memory that this value keeps from being freed, in bytes: that of its whole block.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        self.block.0.charge()
    }
}

impl Deref for PinnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block.bytes().get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

impl AsRef<[u8]> for PinnedValue {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
