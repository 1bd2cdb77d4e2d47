//! The blocks of a table, for inspection.

use super::Table;
use crate::frame::{BlockHandle, BlockKind};
use crate::settings::Compression;
use alluvium_base::Result;

/// One block of a table file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// What it holds.
    pub kind: BlockKind,
    /// Where it starts in the file, in bytes.
    pub offset: u64,
    /// Length in the file with type and checksum, in bytes.
    pub stored_bytes: u64,
    /// Length before compression, in bytes.
    pub raw_bytes: u64,
    /// How it is compressed.
    pub compression: Compression,
    /// Number of entries; 0 for filters and properties, which have none.
    pub entries: u64,
    /// Full key of the first entry, if the block has entries.
    pub first_key: Option<Vec<u8>>,
}

impl Table {
    /// All blocks in the order of the file, each read and checked past the cache. A damaged block gives an error in
    /// its place, and the rest follows; behind a damaged index partition, its data blocks are missing.
    pub fn blocks(&self) -> impl Iterator<Item = Result<BlockInfo>> + '_ {
        let partitions =
            move || (0..self.partitions()).filter_map(|number| self.partition_handle(number).transpose());
        let data = partitions().flat_map(move |handle| self.data_handles(handle));
        let point = self.meta.point_filter.iter().flat_map(move |filter| {
            (0..filter.shape.partitions()).map(move |number| self.point_filter_handle(filter, number))
        });
        let prefix = self.meta.prefix_filter.iter().flat_map(move |filter| {
            (0..filter.shape.partitions).map(move |number| self.prefix_filter_handle(filter, number))
        });
        let rest = [
            (self.footer.range_tombstones, BlockKind::RangeTombstones),
            (self.footer.top_index, BlockKind::TopIndex),
            (self.footer.properties, BlockKind::Properties),
        ];
        let handles = data
            .map(|handle| (handle, BlockKind::Data))
            .chain(partitions().map(|handle| (handle, BlockKind::Index)))
            .chain(point.map(|handle| (Ok(handle), BlockKind::PointFilter)))
            .chain(prefix.map(|handle| (Ok(handle), BlockKind::PrefixFilter)))
            .chain(
                rest.into_iter()
                    .filter(|(handle, _)| handle.len > 0)
                    .map(|(handle, kind)| (Ok(handle), kind)),
            );
        handles.map(move |(handle, kind)| self.block_info(handle?, kind))
    }

    /// Handles of the data blocks of an index partition, or the one error that hides them.
    fn data_handles(&self, partition: Result<BlockHandle>) -> Vec<Result<BlockHandle>> {
        match partition.and_then(|handle| self.read_entries(handle, BlockKind::Index)) {
            Ok(partition) => (0..partition.count()).map(|slot| self.handle_in(&partition, slot)).collect(),
            Err(error) => vec![Err(error)],
        }
    }

    fn block_info(&self, handle: BlockHandle, kind: BlockKind) -> Result<BlockInfo> {
        let opened = self.read_block(handle, kind)?;
        let mut info = BlockInfo {
            kind,
            offset: handle.offset,
            stored_bytes: handle.framed_len() as u64,
            raw_bytes: opened.raw.len() as u64,
            compression: opened.compression,
            entries: 0,
            first_key: None,
        };
        let has_entries =
            !matches!(kind, BlockKind::PointFilter | BlockKind::PrefixFilter | BlockKind::Properties);
        if has_entries {
            let block = self.parse_entries(opened.raw, handle, kind)?;
            let mut first_key = Vec::new();
            block.read_key(0, &mut first_key);
            info.entries = block.count() as u64;
            info.first_key = Some(first_key);
        }
        Ok(info)
    }
}
