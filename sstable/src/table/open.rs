//! Opening a table: footer, then properties, top index and range tombstones, usually with a single read.

use std::sync::Arc;

use alluvium_base::fs::File;
use alluvium_base::memory::Buffer;
use alluvium_base::range_tombstone::{FragmentedTombstones, RangeTombstone};
use alluvium_base::{Error, Result};

use super::Table;
use crate::block::{Contents, EntryBlock};
use crate::cached::BlockCache;
use crate::footer::{FOOTER_BYTES, Footer};
use crate::frame::{self, BlockHandle, BlockKind, FRAME_BYTES};
use crate::properties::PropertiesBlock;

/// The end of the file that is read first. Footer, properties and top index of a table of 64 MiB take about 2 KiB.
const TAIL_BYTES: usize = 8 << 10;

/// The end of a file, in memory.
struct Tail<'a> {
    file: &'a dyn File,
    start: u64,
    bytes: Vec<u8>,
}

impl Tail<'_> {
    /// Reads, checks and unpacks a block that lies before the footer at `end`.
    fn block(&self, handle: BlockHandle, end: u64, kind: BlockKind, identity: u128) -> Result<Buffer> {
        let corrupt = |detail: &str| Error::corrupt(self.file.path(), handle.offset, detail);
        if !handle.fits(end) {
            return Err(corrupt("the footer names a block outside of the file"));
        }
        let in_tail = handle.offset.checked_sub(self.start).and_then(|from| {
            let from = usize::try_from(from).ok()?;
            self.bytes.get(from..from.checked_add(handle.framed_len())?)
        });
        match in_tail {
            Some(framed) => frame::open_slice(framed, kind, identity, handle.offset)
                .map(|opened| opened.raw)
                .map_err(corrupt),
            None => frame::read(self.file, handle, end, kind, identity).map(|opened| opened.raw),
        }
    }
}

impl Table {
    /// Opens a table file. `file_id` is its number in the cache, unique among all files of the cache's database;
    /// `bytes` and `identity` are what the manifest says of it, checked if given.
    ///
    /// # Errors
    /// `Corrupt` if the file has another size or identity, or if what opening reads is damaged;
    /// `UnsupportedFormat` if a newer version wrote it; those of reading.
    pub fn open(
        file: Arc<dyn File>,
        file_id: u64,
        bytes: u64,
        identity: Option<u128>,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<Table>> {
        let actual = file.len()?;
        if actual != bytes {
            let detail = format!("the file has {actual} bytes, {bytes} were expected");
            return Err(Error::corrupt(file.path(), actual.min(bytes), detail));
        }
        let tail_len = bytes.min(TAIL_BYTES as u64);
        let mut tail = Tail { file: &*file, start: bytes - tail_len, bytes: vec![0; tail_len as usize] };
        file.read_exact_at(&mut tail.bytes, tail.start)?;
        let footer = Footer::decode(file.path(), &tail.bytes, bytes)?;
        let blocks_end = bytes.saturating_sub(FOOTER_BYTES as u64);
        if identity.is_some_and(|expected| expected != footer.identity) {
            return Err(Error::corrupt(file.path(), blocks_end, "the file is another table than expected"));
        }
        let meta = read_properties(&tail, &footer, blocks_end)?;
        let top_index = read_top_index(&tail, &footer, blocks_end, &meta)?;
        let range_tombstones = read_range_tombstones(&tail, &footer, blocks_end, &meta)?;
        drop(tail);
        let keyspaces = meta.properties.keyspaces.iter().zip(&meta.filters);
        let all_keys_filtered =
            keyspaces.clone().all(|(keyspace, filters)| keyspace.entries == 0 || filters.point);
        Ok(Arc::new(Table {
            file,
            file_id,
            bytes,
            footer,
            cache,
            blocks_end,
            top_index,
            meta,
            all_keys_filtered,
            range_tombstones: Arc::new(range_tombstones),
        }))
    }
}

fn read_properties(tail: &Tail<'_>, footer: &Footer, end: u64) -> Result<PropertiesBlock> {
    let handle = footer.properties;
    let corrupt = |detail: &str| Error::corrupt(tail.file.path(), handle.offset, detail);
    let raw = tail.block(handle, end, BlockKind::Properties, footer.identity)?;
    let meta = PropertiesBlock::decode(&raw).map_err(corrupt)?;
    // With this, no arithmetic on filter places can leave the file.
    let room = |partitions: u64, partition_bytes: usize, offset: u64| {
        let bytes = partitions.checked_mul((partition_bytes + FRAME_BYTES) as u64);
        bytes.and_then(|bytes| bytes.checked_add(offset))
    };
    if let Some(filter) = &meta.point_filter {
        let last = filter.shape.partitions() - 1;
        let used = room(last, filter.shape.partition_bytes(0), filter.offset)
            .and_then(|start| start.checked_add((filter.shape.partition_bytes(last) + FRAME_BYTES) as u64));
        if used.is_none_or(|used| used > end) {
            return Err(corrupt("the point filter lies outside of the file"));
        }
    }
    if let Some(filter) = &meta.prefix_filter {
        let used = room(filter.shape.partitions, filter.shape.partition_bytes(), filter.offset);
        if used.is_none_or(|used| used > end) {
            return Err(corrupt("the prefix filter lies outside of the file"));
        }
    }
    Ok(meta)
}

fn read_top_index(tail: &Tail<'_>, footer: &Footer, end: u64, meta: &PropertiesBlock) -> Result<EntryBlock> {
    let handle = footer.top_index;
    let corrupt = |detail: &str| Error::corrupt(tail.file.path(), handle.offset, detail);
    match (handle.len > 0, meta.properties.entries > 0) {
        (false, false) => Ok(EntryBlock::EMPTY),
        (true, true) => {
            let raw = tail.block(handle, end, BlockKind::TopIndex, footer.identity)?;
            EntryBlock::parse(raw, Contents::Index).map_err(corrupt)
        }
        _ => Err(corrupt("index and properties disagree on whether there are entries")),
    }
}

fn read_range_tombstones(
    tail: &Tail<'_>,
    footer: &Footer,
    end: u64,
    meta: &PropertiesBlock,
) -> Result<FragmentedTombstones> {
    let handle = footer.range_tombstones;
    let corrupt = |detail: &str| Error::corrupt(tail.file.path(), handle.offset, detail);
    if handle.len == 0 && meta.properties.range_tombstones == 0 {
        return Ok(FragmentedTombstones::default());
    }
    let raw = tail.block(handle, end, BlockKind::RangeTombstones, footer.identity)?;
    let block = EntryBlock::parse(raw, Contents::RangeTombstones).map_err(corrupt)?;
    if block.count() as u64 != meta.properties.range_tombstones {
        return Err(corrupt("the number of range tombstones differs from the properties"));
    }
    let mut tombstones = Vec::with_capacity(block.count());
    for at in 0..block.count() {
        let mut start = Vec::new();
        block.read_key(at, &mut start);
        let end = block.value(at).to_vec();
        if start >= end {
            return Err(corrupt("a range tombstone covers nothing"));
        }
        tombstones.push(RangeTombstone { start, end, seqno: block.trailer(at).seqno() });
    }
    Ok(FragmentedTombstones::new(&tombstones))
}
