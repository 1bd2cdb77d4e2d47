//! Getting blocks: through the cache, or past it.

use std::sync::Arc;

use alluvium_base::memory::Buffer;
use alluvium_base::{Error, Result};

use super::Table;
use crate::block::{Contents, EntryBlock};
use crate::cache::{BlockClass, BlockKey, FillPolicy};
use crate::cached::{CachedBlock, Content, PinnedBlock};
use crate::filter::point::{PointFilterPartition, PointFilterShape};
use crate::filter::prefix::{PrefixFilterPartition, PrefixFilterShape};
use crate::frame::{self, BlockHandle, BlockKind, FRAME_BYTES, Opened};
use crate::properties::Placed;

impl Table {
    /// An error about damage at `offset` of this table.
    pub(crate) fn corrupt(&self, offset: u64, detail: &str) -> Error {
        Error::corrupt(self.file.path(), offset, detail)
    }

    /// The handle that is entry `at`'s value in an index block.
    pub(super) fn handle_in(&self, index: &EntryBlock, at: usize) -> Result<BlockHandle> {
        BlockHandle::from_slice(index.value(at))
            .filter(|handle| handle.fits(self.blocks_end))
            .ok_or_else(|| self.corrupt(self.blocks_end, "an index entry names no block of this file"))
    }

    /// Reads one block past the cache.
    pub(crate) fn read_block(&self, handle: BlockHandle, kind: BlockKind) -> Result<Opened> {
        frame::read(&*self.file, handle, self.blocks_end, kind, self.footer.identity)
    }

    /// Unpacks a block of entries whose framed bytes are already in memory.
    pub(crate) fn open_entries(
        &self,
        framed: &[u8],
        handle: BlockHandle,
        kind: BlockKind,
    ) -> Result<EntryBlock> {
        let opened = frame::open_slice(framed, kind, self.footer.identity, handle.offset)
            .map_err(|detail| self.corrupt(handle.offset, detail))?;
        self.parse_entries(opened.raw, handle, kind)
    }

    /// Reads one block of entries past the cache.
    pub(crate) fn read_entries(&self, handle: BlockHandle, kind: BlockKind) -> Result<EntryBlock> {
        let opened = self.read_block(handle, kind)?;
        self.parse_entries(opened.raw, handle, kind)
    }

    pub(super) fn parse_entries(
        &self,
        raw: Buffer,
        handle: BlockHandle,
        kind: BlockKind,
    ) -> Result<EntryBlock> {
        EntryBlock::parse(raw, contents(kind)).map_err(|detail| self.corrupt(handle.offset, detail))
    }

    /// A block of entries, from the cache if it is there.
    pub(crate) fn cached_entries(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        fill: FillPolicy,
    ) -> Result<PinnedBlock> {
        self.cached_entries_with(handle, kind, fill, || {})
    }

    /// As [`Table::cached_entries`]; `on_miss` runs if the block has to be read.
    pub(crate) fn cached_entries_with(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        fill: FillPolicy,
        on_miss: impl FnOnce(),
    ) -> Result<PinnedBlock> {
        let class = if kind == BlockKind::Index { BlockClass::Index } else { BlockClass::Data };
        let block = self.cached(handle.offset, class, fill, || {
            on_miss();
            self.read_entries(handle, kind).map(Content::Entries)
        })?;
        match &block.0 {
            Content::Entries(_) => Ok(PinnedBlock(block)),
            _ => Err(self.corrupt(handle.offset, "an index entry names a block of another kind")),
        }
    }

    fn cached(
        &self,
        offset: u64,
        class: BlockClass,
        fill: FillPolicy,
        load: impl FnOnce() -> Result<Content>,
    ) -> Result<Arc<CachedBlock>> {
        let key = BlockKey { file_id: self.file_id, offset };
        self.cache.get_or_load(key, class, fill, || load().map(|content| Arc::new(CachedBlock(content))))
    }

    /// Where partition `number` of the point filter is. All but the last are equally long.
    pub(super) fn point_filter_handle(&self, filter: &Placed<PointFilterShape>, number: u64) -> BlockHandle {
        let len = filter.shape.partition_bytes(number);
        nth_partition(filter.offset, number, filter.shape.partition_bytes(0), len)
    }

    /// Where partition `number` of the prefix filter is. All are equally long.
    pub(super) fn prefix_filter_handle(
        &self,
        filter: &Placed<PrefixFilterShape>,
        number: u64,
    ) -> BlockHandle {
        let len = filter.shape.partition_bytes();
        nth_partition(filter.offset, number, len, len)
    }

    /// Reads partition `number` of the point filter past the cache.
    pub(super) fn read_point_filter(
        &self,
        filter: &Placed<PointFilterShape>,
        number: u64,
    ) -> Result<PointFilterPartition> {
        let handle = self.point_filter_handle(filter, number);
        let opened = self.read_block(handle, BlockKind::PointFilter)?;
        PointFilterPartition::parse(&opened.raw, handle.len as usize)
            .ok_or_else(|| self.corrupt(handle.offset, "a filter partition has a wrong length"))
    }

    /// Reads partition `number` of the prefix filter past the cache.
    pub(super) fn read_prefix_filter(
        &self,
        filter: &Placed<PrefixFilterShape>,
        number: u64,
    ) -> Result<PrefixFilterPartition> {
        let handle = self.prefix_filter_handle(filter, number);
        let opened = self.read_block(handle, BlockKind::PrefixFilter)?;
        PrefixFilterPartition::parse(opened.raw.to_vec(), filter.shape).ok_or_else(|| {
            self.corrupt(handle.offset, "a prefix filter partition is not what its writer made")
        })
    }

    /// False if the point filter has certainly not been given `hash`.
    pub(super) fn point_filter_may_contain(
        &self,
        filter: &Placed<PointFilterShape>,
        hash: u64,
    ) -> Result<bool> {
        let (number, line) = filter.shape.place(hash);
        let offset = self.point_filter_handle(filter, number).offset;
        let block = self.cached(offset, BlockClass::Filter, FillPolicy::Fill, || {
            self.read_point_filter(filter, number).map(Content::PointFilter)
        })?;
        match &block.0 {
            Content::PointFilter(partition) => Ok(partition.may_contain(line, hash, filter.shape.probes)),
            _ => Err(self.corrupt(offset, "the point filter overlaps other blocks")),
        }
    }

    /// False if the prefix filter has certainly not been given `hash`.
    pub(super) fn prefix_filter_may_contain(
        &self,
        filter: &Placed<PrefixFilterShape>,
        hash: u64,
    ) -> Result<bool> {
        let number = filter.shape.place(hash);
        let offset = self.prefix_filter_handle(filter, number).offset;
        let block = self.cached(offset, BlockClass::Filter, FillPolicy::Fill, || {
            self.read_prefix_filter(filter, number).map(Content::PrefixFilter)
        })?;
        match &block.0 {
            Content::PrefixFilter(partition) => Ok(partition.may_contain(hash)),
            _ => Err(self.corrupt(offset, "the prefix filter overlaps other blocks")),
        }
    }
}

/// Handle of partition `number` of a filter whose partitions (all but the last of `full_len` bytes) lie one behind
/// the other.
fn nth_partition(offset: u64, number: u64, full_len: usize, len: usize) -> BlockHandle {
    let stride = (full_len + FRAME_BYTES) as u64;
    BlockHandle { offset: offset.saturating_add(number.saturating_mul(stride)), len: len as u32 }
}

fn contents(kind: BlockKind) -> Contents {
    match kind {
        BlockKind::Index | BlockKind::TopIndex => Contents::Index,
        BlockKind::RangeTombstones => Contents::RangeTombstones,
        _ => Contents::Points,
    }
}
