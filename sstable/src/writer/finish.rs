//! Finishing a table: what lies behind the data blocks, in the order of the file.

use alluvium_base::key::{self, KeyspaceId, Kind, Trailer};
use alluvium_base::key_range::{KeyRange, successor};
use alluvium_base::limits::PARTITION_BYTES_MAX;
use alluvium_base::range_tombstone::RangeTombstone;
use alluvium_base::{Error, Result};

use super::index::IndexBuilder;
use super::{Keyspace, TableWriter};
use crate::block::BlockBuilder;
use crate::filter::point::PointFilterShape;
use crate::filter::prefix::PrefixFilterShape;
use crate::footer::Footer;
use crate::frame::{BlockHandle, BlockKind};
use crate::properties::{KeyspaceProperties, Placed, PropertiesBlock, TableProperties, TableSummary};
use crate::settings::Compression;

/// Stands in the footer for a block that is not there.
const NO_BLOCK: BlockHandle = BlockHandle { offset: 0, len: 0 };

impl TableWriter {
    /// Writes everything that is left. The file is complete, but not synced.
    ///
    /// # Errors
    /// `InvalidArgument` if nothing was added (a table covers some key); those of writing.
    pub fn finish(mut self) -> Result<TableSummary> {
        self.output.check()?;
        let range = self.range().ok_or_else(|| Error::invalid("a table needs at least one entry"))?;
        self.finish_block()?;
        self.finish_pending(None);
        let compression = self.compression();
        let mut top = BlockBuilder::new();
        for partition in std::mem::replace(&mut self.index, IndexBuilder::new()).finish() {
            self.scratch = partition.raw;
            let handle = self.write_block(BlockKind::Index, partition.compression)?;
            top.add(&partition.key, partition.trailer, &handle.to_bytes());
        }
        let point_filter = self.write_point_filter()?;
        let prefix_filter = self.write_prefix_filter()?;
        let range_tombstones = self.write_range_tombstones(compression)?;
        let top_index = if top.is_empty() {
            NO_BLOCK
        } else {
            top.finish(&mut self.scratch);
            self.write_block(BlockKind::TopIndex, compression)?
        };
        let block = PropertiesBlock {
            properties: self.properties(range),
            filters: self.keyspaces.iter().map(Keyspace::filters).collect(),
            point_filter,
            prefix_filter,
        };
        self.scratch = block.encode();
        let properties = self.write_block(BlockKind::Properties, compression)?;
        let footer = Footer { identity: self.identity, properties, top_index, range_tombstones };
        self.output.append(&footer.encode(self.output.position()))?;
        let (bytes, checksum) = self.output.finish()?;
        Ok(summary(block.properties, self.identity, bytes, checksum))
    }

    /// The keys that the table covers.
    fn range(&self) -> Option<KeyRange> {
        let mut range = KeyRange::default();
        if !self.last_key.is_empty() {
            range = KeyRange::new(self.first_key.as_slice(), successor(&self.last_key));
        }
        for tombstone in &self.range_tombstones {
            range.extend(&KeyRange::new(tombstone.start.as_slice(), tombstone.end.as_slice()));
        }
        (!range.is_empty()).then_some(range)
    }

    fn properties(&self, range: KeyRange) -> TableProperties {
        let keyspaces: Vec<KeyspaceProperties> =
            self.keyspaces.iter().map(|k| k.properties.clone()).collect();
        TableProperties {
            range,
            seqno_min: self.seqno_min,
            seqno_max: self.seqno_max,
            entries: keyspaces.iter().map(|keyspace| keyspace.entries).sum(),
            tombstones: keyspaces.iter().map(|keyspace| keyspace.tombstones).sum(),
            range_tombstones: self.range_tombstones.len() as u64,
            data_blocks: self.data_blocks,
            keyspaces,
        }
    }

    fn write_point_filter(&mut self) -> Result<Option<Placed<PointFilterShape>>> {
        let offset = self.output.position();
        let Some((shape, bytes)) = std::mem::take(&mut self.point_filter).build() else { return Ok(None) };
        for partition in bytes.chunks(PARTITION_BYTES_MAX) {
            self.scratch.clear();
            self.scratch.extend_from_slice(partition);
            self.write_block(BlockKind::PointFilter, Compression::None)?;
        }
        Ok(Some(Placed { shape, offset }))
    }

    fn write_prefix_filter(&mut self) -> Result<Option<Placed<PrefixFilterShape>>> {
        let offset = self.output.position();
        let Some((shape, partitions)) = std::mem::take(&mut self.prefix_filter).build() else {
            return Ok(None);
        };
        for partition in partitions {
            self.scratch = partition;
            self.write_block(BlockKind::PrefixFilter, Compression::None)?;
        }
        Ok(Some(Placed { shape, offset }))
    }

    /// Writes the range tombstones by start, newest first, each once.
    fn write_range_tombstones(&mut self, compression: Compression) -> Result<BlockHandle> {
        if self.range_tombstones.is_empty() {
            return Ok(NO_BLOCK);
        }
        self.range_tombstones.sort_unstable_by(|a, b| {
            let (a_trailer, b_trailer) = (tombstone_trailer(a), tombstone_trailer(b));
            key::compare(&a.start, a_trailer, &b.start, b_trailer).then_with(|| b.end.cmp(&a.end))
        });
        // Of two with one start and sequence number, the longer comes first and hides the other.
        self.range_tombstones.dedup_by(|b, a| a.start == b.start && a.seqno == b.seqno);
        let mut block = BlockBuilder::new();
        for tombstone in &self.range_tombstones {
            block.add(&tombstone.start, tombstone_trailer(tombstone), &tombstone.end);
            let keyspace = KeyspaceId::of(&tombstone.start).unwrap_or(KeyspaceId::CATALOG);
            if let Err(at) = self.keyspaces.binary_search_by_key(&keyspace, |known| known.properties.keyspace)
            {
                let settings = self.source.settings(keyspace);
                self.keyspaces
                    .insert(at, Keyspace { properties: KeyspaceProperties::new(keyspace), settings });
            }
        }
        self.scratch.clear();
        block.finish(&mut self.scratch);
        self.write_block(BlockKind::RangeTombstones, compression)
    }
}

fn tombstone_trailer(tombstone: &RangeTombstone) -> Trailer {
    Trailer::new(tombstone.seqno, Kind::RangeDelete)
}

fn summary(properties: TableProperties, identity: u128, bytes: u64, checksum: u64) -> TableSummary {
    TableSummary {
        identity,
        bytes,
        checksum,
        range: properties.range,
        seqno_min: properties.seqno_min,
        seqno_max: properties.seqno_max,
        entries: properties.entries,
        tombstones: properties.tombstones,
        range_tombstones: properties.range_tombstones,
        keyspaces: properties.keyspaces,
    }
}
