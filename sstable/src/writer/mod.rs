//! Writing a table: entries in, one file out, nothing read back.
//!
//! ```text
//! data blocks │ index partitions │ point filter │ prefix filter │ range tombstones │ top index │ properties │ footer
//! ```
//!
//! 1. Entries come in order and gather in a block until it has its keyspace's size; a block never holds two
//!    keyspaces, and a value of 64 KiB or more has a block of its own.
//! 2. A full block is compressed, framed and appended; its index entry waits for the key that follows, which makes
//!    the separator short.
//! 3. Index partitions and filter hashes are kept until the end (about 1 % of the file), so that data lies in one
//!    piece and what opening a table needs lies in another, right before the footer.

mod finish;
mod index;
mod output;

use std::sync::Arc;

use alluvium_base::checksum::key_hash;
use alluvium_base::fs::File;
use alluvium_base::key::{self, KEYSPACE_ID_BYTES, KeyspaceId, Kind, Seqno, Trailer};
use alluvium_base::limits::{KEY_BYTES_MAX, SEQNO_MAX, VALUE_BYTES_MAX, VALUE_OWN_BLOCK_BYTES};
use alluvium_base::range_tombstone::RangeTombstone;
use alluvium_base::{Error, ErrorKind, Result};

use crate::block::{BlockBuilder, FULL_KEY_BYTES_MAX, write_single};
use crate::compress::Compressor;
use crate::filter::point::PointFilterBuilder;
use crate::filter::prefix::PrefixFilterBuilder;
use crate::frame::{BlockHandle, BlockKind};
use crate::properties::{KeyspaceFilters, KeyspaceProperties};
use crate::settings::{Compression, KeyspaceSettings, SettingsSource};

use index::IndexBuilder;
use output::Output;

/// Largest block that a keyspace may ask for, in bytes.
const BLOCK_TARGET_BYTES_MAX: usize = 1 << 20;

/// Writes one table file. Entries and range tombstones of any number of keyspaces; entries in the order of
/// [`key::compare`], range tombstones at any time.
///
/// After a failed write every later call fails with the same error; the file is then of no use and to be removed. An
/// entry that is refused (out of order, too long) leaves the writer as it was.
pub struct TableWriter {
    output: Output,
    identity: u128,
    source: Arc<dyn SettingsSource>,
    compressor: Compressor,
    block: BlockBuilder,
    /// Room for the bytes of a block under construction.
    scratch: Vec<u8>,
    index: IndexBuilder,
    /// The block whose index entry waits for the next key.
    pending: Option<(BlockHandle, Compression)>,
    point_filter: PointFilterBuilder,
    prefix_filter: PrefixFilterBuilder,
    keyspaces: Vec<Keyspace>,
    range_tombstones: Vec<RangeTombstone>,
    /// Size that the range tombstones will have at most, in bytes.
    range_tombstone_bytes: u64,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    last_trailer: Trailer,
    seqno_min: Seqno,
    seqno_max: Seqno,
    data_blocks: u64,
}

struct Keyspace {
    properties: KeyspaceProperties,
    settings: KeyspaceSettings,
}

impl Keyspace {
    fn filters(&self) -> KeyspaceFilters {
        let has_filters = self.settings.filter_bits_per_key > 0;
        KeyspaceFilters {
            point: has_filters,
            prefix_bytes: self.settings.prefix_bytes.filter(|_| has_filters),
        }
    }
}

impl std::fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableWriter")
            .field("file", &self.output.file().path())
            .field("entries", &self.entries())
            .field("estimated_bytes", &self.estimated_bytes())
            .finish_non_exhaustive()
    }
}

impl TableWriter {
    /// A writer into the empty `file`. `identity` must be random: it seeds the checksums that tell the blocks of this
    /// table from those of any other.
    #[must_use]
    pub fn new(file: Arc<dyn File>, identity: u128, settings: Arc<dyn SettingsSource>) -> TableWriter {
        TableWriter {
            output: Output::new(file, identity),
            identity,
            source: settings,
            compressor: Compressor::new(),
            block: BlockBuilder::new(),
            scratch: Vec::new(),
            index: IndexBuilder::new(),
            pending: None,
            point_filter: PointFilterBuilder::default(),
            prefix_filter: PrefixFilterBuilder::default(),
            keyspaces: Vec::new(),
            range_tombstones: Vec::new(),
            range_tombstone_bytes: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
            last_trailer: Trailer::NEWEST,
            seqno_min: Seqno::MAX,
            seqno_max: 0,
            data_blocks: 0,
        }
    }

    /// Adds a point entry, which must sort after the one added before.
    ///
    /// # Errors
    /// `InvalidArgument` if the entry is out of order, has no keyspace id, or is a range delete; `KeyTooLong` and
    /// `ValueTooLong`; those of writing.
    pub fn add(&mut self, full_key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        self.output.check()?;
        self.check_entry(full_key, trailer, value)?;
        self.enter_keyspace(full_key)?;
        self.finish_pending(Some(full_key));
        let Some(keyspace) = self.keyspaces.last_mut() else { return Ok(()) };
        let settings = keyspace.settings;
        let same_key = self.last_key == full_key;

        let own_block = value.len() >= VALUE_OWN_BLOCK_BYTES;
        let target = (settings.block_bytes as usize).min(BLOCK_TARGET_BYTES_MAX);
        let properties = &mut keyspace.properties;
        properties.entries += 1;
        properties.tombstones += u64::from(trailer.kind().is_some_and(Kind::is_point_tombstone));
        properties.raw_bytes += (full_key.len() + size_of::<Trailer>() + value.len()) as u64;
        if !self.block.is_empty() && (own_block || self.block.raw_len_with(full_key, value.len()) > target) {
            self.finish_block()?;
            self.finish_pending(Some(full_key));
        }
        if !same_key {
            self.add_to_filters(full_key, settings);
        }
        if self.first_key.is_empty() {
            self.first_key.extend_from_slice(full_key);
        }
        self.note_seqno(trailer.seqno());
        self.last_trailer = trailer;
        if !same_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(full_key);
        }
        if own_block {
            self.scratch.clear();
            write_single(full_key, trailer, value, &mut self.scratch);
            return self.write_data_block();
        }
        self.block.add(full_key, trailer, value);
        Ok(())
    }

    fn add_to_filters(&mut self, full_key: &[u8], settings: KeyspaceSettings) {
        let bits = settings.filter_bits_per_key;
        if bits == 0 {
            return;
        }
        self.point_filter.add(key_hash(full_key), bits);
        let prefix =
            settings.prefix_bytes.and_then(|len| full_key.get(..KEYSPACE_ID_BYTES + usize::from(len)));
        if let Some(prefix) = prefix {
            self.prefix_filter.add(prefix, bits);
        }
    }

    /// Adds a range tombstone, in any order, at any time before [`TableWriter::finish`].
    ///
    /// # Errors
    /// `InvalidArgument` if the range is empty or a bound is not a full key; `KeyTooLong`.
    pub fn add_range_tombstone(&mut self, tombstone: &RangeTombstone) -> Result<()> {
        let (start, end) = (&tombstone.start, &tombstone.end);
        if start >= end || start.len() < KEYSPACE_ID_BYTES || end.len() < KEYSPACE_ID_BYTES {
            return Err(Error::invalid("a range tombstone needs two full keys, the start before the end"));
        }
        // The end that just includes a key of full length has one byte more.
        if start.len() > FULL_KEY_BYTES_MAX || end.len() > FULL_KEY_BYTES_MAX + 1 {
            return Err(self.key_too_long(start.len().max(end.len())));
        }
        if tombstone.seqno > SEQNO_MAX {
            return Err(Error::invalid("a sequence number exceeds 56 bits"));
        }
        self.note_seqno(tombstone.seqno);
        self.range_tombstone_bytes += (start.len() + end.len() + size_of::<Trailer>()) as u64;
        self.range_tombstones.push(tombstone.clone());
        Ok(())
    }

    /// About the size that the file would have if it were finished now, in bytes.
    #[must_use]
    pub fn estimated_bytes(&self) -> u64 {
        self.output.position()
            + self.block.raw_len() as u64
            + self.index.estimated_bytes()
            + self.point_filter.estimated_bytes()
            + self.prefix_filter.estimated_bytes()
            + self.range_tombstone_bytes
    }

    /// Number of point entries added.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.properties.entries).sum()
    }

    /// Full key of the entry added last; empty if there is none.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    fn check_entry(&self, full_key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        if full_key.len() > FULL_KEY_BYTES_MAX {
            return Err(self.key_too_long(full_key.len()));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(ErrorKind::ValueTooLong { len: value.len(), max: VALUE_BYTES_MAX }.into());
        }
        if trailer.kind().is_none_or(|kind| kind == Kind::RangeDelete) {
            return Err(Error::invalid(format!("{trailer:?} is no point entry")));
        }
        if full_key.len() < KEYSPACE_ID_BYTES {
            return Err(Error::invalid("a full key begins with a keyspace id of four bytes"));
        }
        let ordered = self.last_key.is_empty()
            || key::compare(&self.last_key, self.last_trailer, full_key, trailer).is_lt();
        if !ordered {
            return Err(Error::invalid(format!(
                "entries of {} are not in order: {:?} at {trailer:?} after {:?} at {:?}",
                self.output.file().path().display(),
                full_key.escape_ascii().to_string(),
                self.last_key.escape_ascii().to_string(),
                self.last_trailer,
            )));
        }
        Ok(())
    }

    fn key_too_long(&self, full_len: usize) -> Error {
        let index = self.output.file().path().display().to_string();
        ErrorKind::KeyTooLong { index, len: full_len - KEYSPACE_ID_BYTES, max: KEY_BYTES_MAX }.into()
    }

    fn note_seqno(&mut self, seqno: Seqno) {
        self.seqno_min = self.seqno_min.min(seqno);
        self.seqno_max = self.seqno_max.max(seqno);
    }

    /// Ends the block of the keyspace before, if `full_key` begins another one.
    fn enter_keyspace(&mut self, full_key: &[u8]) -> Result<()> {
        let keyspace = KeyspaceId::of(full_key).unwrap_or(KeyspaceId::CATALOG);
        if self.keyspaces.last().is_some_and(|last| last.properties.keyspace == keyspace) {
            return Ok(());
        }
        self.finish_block()?;
        let settings = self.source.settings(keyspace);
        self.keyspaces.push(Keyspace { properties: KeyspaceProperties::new(keyspace), settings });
        Ok(())
    }

    fn compression(&self) -> Compression {
        self.keyspaces.last().map_or(Compression::None, |keyspace| keyspace.settings.compression)
    }

    /// Writes the gathered block, if it holds anything.
    fn finish_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        self.scratch.clear();
        self.block.finish(&mut self.scratch);
        self.write_data_block()
    }

    /// Writes the data block in `scratch`.
    fn write_data_block(&mut self) -> Result<()> {
        let handle = self.write_block(BlockKind::Data, self.compression())?;
        if let Some(keyspace) = self.keyspaces.last_mut() {
            keyspace.properties.stored_bytes += handle.framed_len() as u64;
        }
        self.pending = Some((handle, self.compression()));
        self.data_blocks += 1;
        Ok(())
    }

    /// Writes the index entry of the last block, now that the key behind it is known.
    fn finish_pending(&mut self, next_key: Option<&[u8]>) {
        if let Some(block) = self.pending.take() {
            self.index.add(block, &self.last_key, self.last_trailer, next_key);
        }
    }

    /// Compresses, frames and appends the block in `scratch`.
    fn write_block(&mut self, kind: BlockKind, compression: Compression) -> Result<BlockHandle> {
        let handle = match self.compressor.compress(&self.scratch, compression) {
            Some(body) => self.output.append_block(body, kind, compression)?,
            None => self.output.append_block(&mut self.scratch, kind, Compression::None)?,
        };
        // One huge value must not keep its room until the table is finished.
        self.scratch.clear();
        self.scratch.shrink_to(BLOCK_TARGET_BYTES_MAX);
        self.compressor.shrink_to(BLOCK_TARGET_BYTES_MAX);
        Ok(handle)
    }
}
