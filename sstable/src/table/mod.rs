//! Reading a table.
//!
//! An open table holds its footer's facts, its properties, its top index and its range tombstones. Everything else,
//! index partitions, filter partitions and data blocks, comes through the block cache when it is asked for.
//!
//! A point read goes: point filter (one cache line) → top index → index partition → data block → entry. Separators
//! are such that at most one data block can hold the answer, even if the versions of the key span blocks.
//!
//! *Architecture invariant.* Nothing read from the file is believed before it is checked: checksum, kind, bounds.
//! Damage gives [`ErrorKind::Corrupt`](alluvium_base::ErrorKind::Corrupt) with file and offset, never a panic.

mod inspect;
mod load;
mod open;
mod verify;

pub use inspect::BlockInfo;
pub use verify::TableVerification;

use std::sync::Arc;

use alluvium_base::Result;
use alluvium_base::fs::File;
use alluvium_base::key::{KEYSPACE_ID_BYTES, KeyspaceId, Seqno, Trailer};
use alluvium_base::range_tombstone::FragmentedTombstones;

use crate::block::EntryBlock;
use crate::cache::FillPolicy;
use crate::cached::{BlockCache, PinnedBlock, PinnedValue};
use crate::filter::prefix::prefix_hash;
use crate::footer::Footer;
use crate::frame::{BlockHandle, BlockKind};
use crate::iter::{ReadPurpose, TableIterator};
use crate::properties::{KeyspaceFilters, PropertiesBlock, TableProperties};

/// An open table file. Cheap to share; all methods may be called from many threads at once.
pub struct Table {
    file: Arc<dyn File>,
    file_id: u64,
    bytes: u64,
    footer: Footer,
    cache: Arc<BlockCache>,
    /// Where the blocks end and the footer begins.
    blocks_end: u64,
    /// Separators and handles of the index partitions; empty in a table of range tombstones only.
    top_index: EntryBlock,
    meta: PropertiesBlock,
    /// Every key of the table is in the point filter: no need to look up the keyspace.
    all_keys_filtered: bool,
    range_tombstones: Arc<FragmentedTombstones>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("file", &self.file.path())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Table {
    /// What the table says about itself.
    #[must_use]
    pub fn properties(&self) -> &TableProperties {
        &self.meta.properties
    }

    /// The range tombstones, cut into fragments.
    #[must_use]
    pub fn range_tombstones(&self) -> &Arc<FragmentedTombstones> {
        &self.range_tombstones
    }

    /// The random identity of the table.
    #[must_use]
    pub fn identity(&self) -> u128 {
        self.footer.identity
    }

    /// The number that the file was opened under.
    #[must_use]
    pub fn file_id(&self) -> u64 {
        self.file_id
    }

    /// Size of the file in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory that the open table takes outside of the cache, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let fragments: usize = (self.range_tombstones.fragments().iter())
            .map(|fragment| {
                size_of_val(fragment) + fragment.start.len() + fragment.end.len() + 8 * fragment.seqnos.len()
            })
            .sum();
        let keyspaces = self.meta.filters.len() * (size_of::<KeyspaceFilters>() + 40);
        size_of::<Table>() + self.top_index.heap_bytes() + fragments + keyspaces
    }

    /// The newest version of `full_key` with a sequence number of at most `snapshot`, tombstones included. `hash` is
    /// the key's [`key_hash`](alluvium_base::checksum::key_hash), computed once by the caller for all tables. Range
    /// tombstones are not looked at.
    ///
    /// # Errors
    /// `Corrupt` if what had to be read is damaged; those of reading.
    pub fn get(&self, full_key: &[u8], hash: u64, snapshot: Seqno) -> Result<Option<(Trailer, PinnedValue)>> {
        if !self.may_contain_key(full_key, hash)? {
            return Ok(None);
        }
        let newest = Trailer::at_snapshot(snapshot);
        let slot = self.top_index.lower_bound(full_key, newest);
        let Some(partition) = self.partition_handle(slot)? else { return Ok(None) };
        let partition = self.cached_entries(partition, BlockKind::Index, FillPolicy::Fill)?;
        let slot = partition.lower_bound(full_key, newest);
        if slot == partition.count() {
            return Ok(None);
        }
        let block = self.data_handle(&partition, slot)?;
        let block = self.cached_entries(block, BlockKind::Data, FillPolicy::Fill)?;
        Ok(block.find(full_key, newest).map(|at| (block.trailer(at), PinnedValue::new(block, at))))
    }

    /// False if the table certainly has no version of `full_key`.
    ///
    /// # Errors
    /// `Corrupt` if the filter is damaged; those of reading.
    pub fn may_contain_key(&self, full_key: &[u8], hash: u64) -> Result<bool> {
        if !self.all_keys_filtered {
            match self.keyspace_filters(full_key) {
                None => return Ok(false),
                Some(filters) if !filters.point => return Ok(true),
                Some(_) => {}
            }
        }
        let Some(filter) = &self.meta.point_filter else { return Ok(self.meta.properties.entries > 0) };
        self.point_filter_may_contain(filter, hash)
    }

    /// False if the table certainly has no point entry whose full key begins with `full_prefix` (keyspace id and
    /// first bytes of a user key). Range tombstones are not looked at.
    ///
    /// # Errors
    /// `Corrupt` if the filter is damaged; those of reading.
    pub fn may_contain_prefix(&self, full_prefix: &[u8]) -> Result<bool> {
        if KeyspaceId::of(full_prefix).is_none() {
            return Ok(true);
        }
        let Some(filters) = self.keyspace_filters(full_prefix) else { return Ok(false) };
        let filtered =
            filters.prefix_bytes.and_then(|len| full_prefix.get(..KEYSPACE_ID_BYTES + usize::from(len)));
        let Some(filtered) = filtered else { return Ok(true) };
        // A keyspace whose keys are all shorter than the prefix has put nothing into the filter.
        let Some(filter) = &self.meta.prefix_filter else { return Ok(false) };
        self.prefix_filter_may_contain(filter, prefix_hash(filtered))
    }

    /// An iterator over all point entries.
    #[must_use]
    pub fn iter(self: &Arc<Self>, purpose: ReadPurpose) -> TableIterator {
        TableIterator::new(Arc::clone(self), purpose)
    }

    /// Filters of the keyspace that `full_key` begins with; `None` if the table has no entry of it.
    fn keyspace_filters(&self, full_key: &[u8]) -> Option<KeyspaceFilters> {
        let keyspace = KeyspaceId::of(full_key)?;
        let at =
            self.meta.properties.keyspaces.binary_search_by_key(&keyspace, |known| known.keyspace).ok()?;
        self.meta.properties.keyspaces.get(at).filter(|known| known.entries > 0)?;
        self.meta.filters.get(at).copied()
    }

    /// Number of index partitions.
    pub(crate) fn partitions(&self) -> usize {
        self.top_index.count()
    }

    /// The index of index partitions.
    pub(crate) fn top_index(&self) -> &EntryBlock {
        &self.top_index
    }

    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    pub(crate) fn blocks_end(&self) -> u64 {
        self.blocks_end
    }

    /// Handle of index partition `at`; `None` past the last.
    pub(crate) fn partition_handle(&self, at: usize) -> Result<Option<BlockHandle>> {
        if at >= self.top_index.count() {
            return Ok(None);
        }
        self.handle_in(&self.top_index, at).map(Some)
    }

    /// Handle of the data block that entry `at` of an index partition names.
    pub(crate) fn data_handle(&self, partition: &PinnedBlock, at: usize) -> Result<BlockHandle> {
        self.handle_in(partition, at)
    }
}
