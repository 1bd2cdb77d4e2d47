//! Where an iterator's blocks come from, by its purpose.

use std::sync::Arc;

use alluvium_base::Result;

use super::ReadPurpose;
use super::read_ahead::ReadAhead;
use crate::cache::FillPolicy;
use crate::cached::{CachedBlock, Content, PinnedBlock};
use crate::frame::{BlockHandle, BlockKind};
use crate::table::Table;

/// What reading past the cache reads at once, in bytes.
const CHUNK_BYTES: u64 = 256 << 10;

/// Hands out blocks: through the cache with read-ahead, or past it in chunks.
#[derive(Debug)]
pub(crate) enum BlockSource {
    Cache(ReadAhead),
    /// A piece of the file, and where it starts.
    Chunks {
        start: u64,
        chunk: Vec<u8>,
    },
}

impl BlockSource {
    pub(crate) fn new(purpose: ReadPurpose) -> BlockSource {
        match purpose {
            ReadPurpose::Scan => BlockSource::Cache(ReadAhead::new()),
            ReadPurpose::Compaction | ReadPurpose::Verify => {
                BlockSource::Chunks { start: 0, chunk: Vec::new() }
            }
        }
    }

    /// An index partition.
    pub(crate) fn partition(&self, table: &Table, handle: BlockHandle) -> Result<PinnedBlock> {
        let fill = match self {
            BlockSource::Cache(_) => FillPolicy::Fill,
            BlockSource::Chunks { .. } => FillPolicy::NoFill,
        };
        table.cached_entries(handle, BlockKind::Index, fill)
    }

    /// A data block.
    pub(crate) fn data(&mut self, table: &Table, handle: BlockHandle) -> Result<PinnedBlock> {
        match self {
            BlockSource::Cache(ahead) => {
                ahead.note(handle.offset..handle.offset + handle.framed_len() as u64);
                table.cached_entries_with(handle, BlockKind::Data, FillPolicy::Fill, || {
                    if let Some(piece) = ahead.on_miss(table.blocks_end()) {
                        // A hint: if it fails, the read that follows says so.
                        let _ = table.file().read_ahead(piece.start, piece.end - piece.start);
                    }
                })
            }
            BlockSource::Chunks { start, chunk } => {
                let framed = chunk_part(table, handle, start, chunk)?;
                let block = table.open_entries(framed, handle, BlockKind::Data)?;
                Ok(PinnedBlock(Arc::new(CachedBlock(Content::Entries(block)))))
            }
        }
    }
}

/// The framed bytes of `handle` within the chunk, which is read anew if they are not in it.
fn chunk_part<'a>(
    table: &Table,
    handle: BlockHandle,
    start: &mut u64,
    chunk: &'a mut Vec<u8>,
) -> Result<&'a [u8]> {
    let (len, end) = (handle.framed_len() as u64, table.blocks_end());
    let block_end = handle.offset + len;
    if handle.offset < *start || block_end > *start + chunk.len() as u64 {
        let backward = handle.offset < *start && block_end >= *start && !chunk.is_empty();
        let (from, to) = if backward {
            (block_end.saturating_sub(CHUNK_BYTES.max(len)), block_end)
        } else {
            (handle.offset, (handle.offset + CHUNK_BYTES.max(len)).min(end))
        };
        chunk.clear();
        chunk.resize((to - from) as usize, 0);
        if let Err(error) = table.file().read_exact_at(chunk, from) {
            chunk.clear();
            return Err(error);
        }
        *start = from;
        let ahead =
            if backward { from.saturating_sub(CHUNK_BYTES)..from } else { to..(to + CHUNK_BYTES).min(end) };
        if !ahead.is_empty() {
            // A hint: if it fails, the read that follows says so.
            let _ = table.file().read_ahead(ahead.start, ahead.end - ahead.start);
        }
    }
    let from = (handle.offset - *start) as usize;
    Ok(chunk.get(from..from + len as usize).unwrap_or_default())
}
