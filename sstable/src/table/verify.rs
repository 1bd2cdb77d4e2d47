//! Reading a whole table and comparing everything with everything else.
//!
//! 1. The file's parts follow each other without a gap: data blocks, index partitions, filters, range tombstones, top
//!    index, properties, footer. So every byte is covered by some checksum.
//! 2. Entries ascend within and across blocks; every block holds one keyspace; every separator separates.
//! 3. Counts, sizes, sequence numbers and key range agree with the properties, by keyspace too.
//! 4. The filters hold every key and prefix.
//! 5. The checksum of the whole file is computed, for the caller to compare with the manifest.

use alluvium_base::Result;
use alluvium_base::checksum::{Hasher, key_hash};
use alluvium_base::key::{self, KEYSPACE_ID_BYTES, KeyspaceId, Kind, Trailer};
use alluvium_base::key_range::{KeyRange, successor};

use super::Table;
use crate::block::EntryBlock;
use crate::filter::point::PointFilterPartition;
use crate::filter::prefix::{PrefixFilterPartition, prefix_hash};
use crate::footer::FOOTER_BYTES;
use crate::frame::{BlockHandle, BlockKind};
use crate::iter::{BlockSource, ReadPurpose};
use crate::properties::{KeyspaceProperties, TableProperties};

/// The file is hashed in pieces of this size, in bytes.
const READ_BYTES: usize = 256 << 10;

/// What a verification has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableVerification {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// xxh3-64 of the whole file, to be compared with the manifest's.
    pub checksum: u64,
    /// Point entries.
    pub entries: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Index partitions.
    pub index_partitions: u64,
}

impl Table {
    /// Reads everything and checks it: blocks, order, separators, counts, properties, filters. Does not fill the
    /// cache.
    ///
    /// # Errors
    /// `Corrupt` with the first damage found; those of reading.
    pub fn verify(&self) -> Result<TableVerification> {
        let mut verifier = Verifier::new(self)?;
        let mut partitions = Vec::with_capacity(self.partitions());
        for number in 0..self.partitions() {
            partitions.extend(self.partition_handle(number)?);
        }
        for (number, &handle) in partitions.iter().enumerate() {
            verifier.check_partition(number, handle)?;
        }
        verifier.check_layout(&partitions)?;
        verifier.check_properties()?;
        let index_partitions = partitions.len() as u64;
        let (entries, data_blocks) = (self.properties().entries, self.properties().data_blocks);
        Ok(TableVerification {
            bytes: self.bytes,
            checksum: self.file_checksum()?,
            entries,
            data_blocks,
            index_partitions,
        })
    }

    /// xxh3-64 of the whole file.
    fn file_checksum(&self) -> Result<u64> {
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; READ_BYTES];
        let mut offset = 0;
        while offset < self.bytes {
            let len = (self.bytes - offset).min(READ_BYTES as u64) as usize;
            let piece = buffer.get_mut(..len).unwrap_or_default();
            self.file.read_exact_at(piece, offset)?;
            hasher.update(piece);
            offset += len as u64;
        }
        Ok(hasher.digest())
    }
}

/// What has been seen so far.
struct Verifier<'a> {
    table: &'a Table,
    source: BlockSource,
    point_filter: Vec<PointFilterPartition>,
    prefix_filter: Vec<PrefixFilterPartition>,
    /// Where the next data block must begin.
    next_offset: u64,
    first_key: Vec<u8>,
    last: Option<(Vec<u8>, Trailer)>,
    last_separator: Option<(Vec<u8>, Trailer)>,
    seqno_min: u64,
    seqno_max: u64,
    data_blocks: u64,
    keyspaces: Vec<KeyspaceProperties>,
}

impl<'a> Verifier<'a> {
    fn new(table: &'a Table) -> Result<Verifier<'a>> {
        let (mut point_filter, mut prefix_filter) = (Vec::new(), Vec::new());
        if let Some(filter) = &table.meta.point_filter {
            for number in 0..filter.shape.partitions() {
                point_filter.push(table.read_point_filter(filter, number)?);
            }
        }
        if let Some(filter) = &table.meta.prefix_filter {
            for number in 0..filter.shape.partitions {
                prefix_filter.push(table.read_prefix_filter(filter, number)?);
            }
        }
        Ok(Verifier {
            table,
            source: BlockSource::new(ReadPurpose::Verify),
            point_filter,
            prefix_filter,
            next_offset: 0,
            first_key: Vec::new(),
            last: None,
            last_separator: None,
            seqno_min: u64::MAX,
            seqno_max: 0,
            data_blocks: 0,
            keyspaces: Vec::new(),
        })
    }

    fn check_partition(&mut self, number: usize, handle: BlockHandle) -> Result<()> {
        let partition = self.table.read_entries(handle, BlockKind::Index)?;
        if !partition.is_strictly_ordered() {
            return Err(self.table.corrupt(handle.offset, "separators are not in order"));
        }
        let (mut separator, mut top) = (Vec::new(), Vec::new());
        for slot in 0..partition.count() {
            let block_handle = self.table.handle_in(&partition, slot)?;
            partition.read_key(slot, &mut separator);
            self.check_data_block(block_handle, &separator, partition.trailer(slot))?;
            self.last_separator = Some((separator.clone(), partition.trailer(slot)));
        }
        self.table.top_index.read_key(number, &mut top);
        if self.last_separator.as_ref() != Some(&(top, self.table.top_index.trailer(number))) {
            return Err(self
                .table
                .corrupt(handle.offset, "top index and index partition disagree on a separator"));
        }
        Ok(())
    }

    fn check_data_block(&mut self, handle: BlockHandle, separator: &[u8], bound: Trailer) -> Result<()> {
        let corrupt = |detail: &str| Err(self.table.corrupt(handle.offset, detail));
        if handle.offset != self.next_offset {
            return corrupt("a data block does not begin where the one before ends");
        }
        let block = self.source.data(self.table, handle)?;
        let last_at = block.count().saturating_sub(1);
        let (mut first, mut last) = (Vec::new(), Vec::new());
        block.read_key(0, &mut first);
        block.read_key(last_at, &mut last);
        if !block.is_strictly_ordered() {
            return corrupt("entries of a block are not in order");
        }
        if first.len() < KEYSPACE_ID_BYTES || KeyspaceId::of(&first) != KeyspaceId::of(&last) {
            return corrupt("a block holds entries of two keyspaces");
        }
        let is_before = |a: &Option<(Vec<u8>, Trailer)>| {
            a.as_ref()
                .is_none_or(|(key, trailer)| key::compare(key, *trailer, &first, block.trailer(0)).is_lt())
        };
        if !is_before(&self.last) || !is_before(&self.last_separator) {
            return corrupt("a block begins before the one before it ends");
        }
        if key::compare(&last, block.trailer(last_at), separator, bound).is_gt() {
            return corrupt("a block ends behind its separator");
        }
        self.count_entries(&block, handle, &first)?;
        if self.data_blocks == 0 {
            self.first_key = first;
        }
        self.last = Some((last, block.trailer(last_at)));
        self.next_offset = handle.end().unwrap_or(u64::MAX);
        self.data_blocks += 1;
        Ok(())
    }

    fn count_entries(&mut self, block: &EntryBlock, handle: BlockHandle, first: &[u8]) -> Result<()> {
        let keyspace = KeyspaceId::of(first).unwrap_or(KeyspaceId::CATALOG);
        let mut counted = match self.keyspaces.pop() {
            Some(last) if last.keyspace == keyspace => last,
            other => {
                self.keyspaces.extend(other);
                KeyspaceProperties::new(keyspace)
            }
        };
        let mut full_key = Vec::new();
        for at in 0..block.count() {
            let trailer = block.trailer(at);
            block.read_key(at, &mut full_key);
            counted.entries += 1;
            counted.tombstones += u64::from(trailer.kind().is_some_and(Kind::is_point_tombstone));
            counted.raw_bytes += (full_key.len() + size_of::<Trailer>() + block.value(at).len()) as u64;
            self.seqno_min = self.seqno_min.min(trailer.seqno());
            self.seqno_max = self.seqno_max.max(trailer.seqno());
            if !self.filters_hold(&full_key) {
                return Err(self.table.corrupt(handle.offset, "a filter misses a key of this block"));
            }
        }
        counted.stored_bytes += handle.framed_len() as u64;
        self.keyspaces.push(counted);
        Ok(())
    }

    fn filters_hold(&self, full_key: &[u8]) -> bool {
        let Some(filters) = self.table.keyspace_filters(full_key) else { return false };
        if filters.point {
            let Some(filter) = &self.table.meta.point_filter else { return false };
            let hash = key_hash(full_key);
            let (number, line) = filter.shape.place(hash);
            let Some(partition) = self.point_filter.get(number as usize) else { return false };
            if !partition.may_contain(line, hash, filter.shape.probes) {
                return false;
            }
        }
        let prefix =
            filters.prefix_bytes.and_then(|len| full_key.get(..KEYSPACE_ID_BYTES + usize::from(len)));
        let Some(prefix) = prefix else { return true };
        let Some(filter) = &self.table.meta.prefix_filter else { return false };
        let hash = prefix_hash(prefix);
        let Some(partition) = self.prefix_filter.get(filter.shape.place(hash) as usize) else {
            return false;
        };
        partition.may_contain(hash)
    }

    /// Checks that the parts behind the data follow each other up to the footer.
    fn check_layout(&mut self, partitions: &[BlockHandle]) -> Result<()> {
        let table = self.table;
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut block = |handle: BlockHandle| parts.push((handle.offset, handle.framed_len() as u64));
        partitions.iter().for_each(|&handle| block(handle));
        if let Some(filter) = &table.meta.point_filter {
            (0..filter.shape.partitions())
                .for_each(|number| block(table.point_filter_handle(filter, number)));
        }
        if let Some(filter) = &table.meta.prefix_filter {
            (0..filter.shape.partitions).for_each(|number| block(table.prefix_filter_handle(filter, number)));
        }
        let footer = &table.footer;
        [footer.range_tombstones, footer.top_index, footer.properties]
            .into_iter()
            .filter(|handle| handle.len > 0)
            .for_each(block);
        parts.push((table.blocks_end, FOOTER_BYTES as u64));
        let mut end = self.next_offset;
        for (offset, len) in parts {
            if offset != end {
                return Err(table.corrupt(end, "bytes between two parts of the file belong to neither"));
            }
            end = offset.saturating_add(len);
        }
        Ok(())
    }

    fn check_properties(mut self) -> Result<()> {
        let table = self.table;
        let mut range = match &self.last {
            Some((last, _)) => KeyRange::new(self.first_key.as_slice(), successor(last)),
            None => KeyRange::default(),
        };
        let mut range_tombstones = 0;
        if table.footer.range_tombstones.len > 0 {
            let block = table.read_entries(table.footer.range_tombstones, BlockKind::RangeTombstones)?;
            if !block.is_strictly_ordered() {
                return Err(
                    table.corrupt(table.footer.range_tombstones.offset, "range tombstones are not in order")
                );
            }
            range_tombstones = block.count() as u64;
            let mut start = Vec::new();
            for at in 0..block.count() {
                block.read_key(at, &mut start);
                range.extend(&KeyRange::new(start.as_slice(), block.value(at)));
                self.seqno_min = self.seqno_min.min(block.trailer(at).seqno());
                self.seqno_max = self.seqno_max.max(block.trailer(at).seqno());
            }
        }
        let mut stated = table.properties().clone();
        // Keyspaces that only range tombstones touch have nothing to count.
        stated.keyspaces.retain(|keyspace| keyspace.entries > 0);
        let counted = TableProperties {
            range,
            seqno_min: self.seqno_min,
            seqno_max: self.seqno_max,
            entries: self.keyspaces.iter().map(|keyspace| keyspace.entries).sum(),
            tombstones: self.keyspaces.iter().map(|keyspace| keyspace.tombstones).sum(),
            range_tombstones,
            data_blocks: self.data_blocks,
            keyspaces: self.keyspaces,
        };
        if stated != counted {
            let detail = format!("the properties differ from what is there: {stated:?}, not {counted:?}");
            return Err(table.corrupt(table.footer.properties.offset, &detail));
        }
        Ok(())
    }
}
