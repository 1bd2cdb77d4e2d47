//! The entry block: sorted entries that can be searched and scanned both ways without decoding.
//!
//! Data blocks, index blocks and the range-tombstone block share this layout:
//!
//! ```text
//! widths        u8      bits 0–1 of key ends, 2–3 of trailers, 4–5 of value ends; 0, 1, 2, 3 mean 0, 2, 4, 8 bytes
//! count         varint  number of entries, at least 1
//! prefix length varint
//! key bytes     varint  length of the key area
//! value bytes   varint  length of the value area
//! base trailer  varint  smallest trailer
//! prefix        what all full keys begin with
//! key ends      count × width, end of each suffix in the key area   (width 0: all suffixes are equally long)
//! trailers      count × width, difference to the base trailer       (width 0: all trailers are equal)
//! value ends    count × width, end of each value in the value area  (width 0: all values are equally long)
//! key area      the suffixes: full keys without the prefix
//! value area    the values
//! ```
//!
//! Every entry is found by arithmetic on its number, so the previous entry costs what the next one costs. What a
//! search needs, the key heads (first eight bytes of every suffix), is computed once, when a block enters the cache,
//! and takes no room on disk; a search is a binary search over heads, then a comparison of bytes. Measurements and
//! alternatives: `design/decisions/0003-block-layout.md`.

mod build;
mod columns;

use std::cmp::Ordering;

use alluvium_base::coding::Reader;
use alluvium_base::key::{self, KEYSPACE_ID_BYTES, Kind, Trailer};
use alluvium_base::limits;
use alluvium_base::memory::Buffer;

pub(crate) use build::{BlockBuilder, write_single};
use columns::{Numbers, Slices, Width};

/// Longest full key that a block may hold, in bytes; the exclusive end of a range may have one byte more.
pub(crate) const FULL_KEY_BYTES_MAX: usize = KEYSPACE_ID_BYTES + limits::KEY_BYTES_MAX;

/// The last so many heads of a search are counted instead of halved: one cache line.
const COUNTED_HEADS_MAX: usize = 8;

/// What the trailers of a block may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Every kind but `RangeDelete`.
    Points,
    /// `RangeDelete` only.
    RangeTombstones,
    /// Anything: a separator's trailer is a bound.
    Index,
}

impl Contents {
    fn allows(self, trailer: Trailer) -> bool {
        match self {
            Contents::Points => trailer.kind().is_some_and(|kind| kind != Kind::RangeDelete),
            Contents::RangeTombstones => trailer.kind() == Some(Kind::RangeDelete),
            Contents::Index => true,
        }
    }
}

/// A checked block, with the key heads that a search needs. Entries are numbered from 0.
#[derive(Debug, Default)]
pub(crate) struct EntryBlock {
    bytes: Buffer,
    /// One per entry, ascending.
    heads: Buffer<u64>,
    prefix_start: u32,
    prefix_len: u32,
    keys: Slices,
    values: Slices,
    trailers: Numbers,
}

impl EntryBlock {
    /// What the absence of a block reads as.
    pub(crate) const EMPTY: EntryBlock = EntryBlock {
        bytes: Buffer::EMPTY,
        heads: Buffer::EMPTY,
        prefix_start: 0,
        prefix_len: 0,
        keys: Slices::EMPTY,
        values: Slices::EMPTY,
        trailers: Numbers::EMPTY,
    };

    /// Checks the bytes of a block and computes its key heads; the error says what does not fit. That entries are in
    /// order is checked by heads only; `verify` compares whole keys.
    pub(crate) fn parse(bytes: Buffer, contents: Contents) -> Result<EntryBlock, &'static str> {
        const CUT_OFF: &str = "a block is cut off";
        if bytes.len() > limits::BLOCK_BYTES_MAX {
            return Err("a block is too long");
        }
        let mut reader = Reader::new(&bytes);
        let widths = reader.u8().ok_or(CUT_OFF)?;
        let [key_width, trailer_width, value_width] =
            Width::unpack(widths).ok_or("a block has unknown widths")?;
        // Two entries differ in key or trailer, so each but the first takes a byte at least.
        let count =
            reader.length(bytes.len()).filter(|&count| count > 0).ok_or("a block has a wrong count")?;
        let prefix_len = reader.length(FULL_KEY_BYTES_MAX + 1).ok_or("a block has a wrong prefix length")?;
        let key_bytes = reader.length(bytes.len()).ok_or("a block has a wrong key area")?;
        let value_bytes = reader.length(bytes.len()).ok_or("a block has a wrong value area")?;
        let base = reader.varint().ok_or(CUT_OFF)?;
        let prefix_start = reader.position();
        reader.take(prefix_len).ok_or(CUT_OFF)?;
        let key_ends = reader.position();
        reader.take(count * key_width.bytes()).ok_or(CUT_OFF)?;
        let trailers = reader.position();
        reader.take(count * trailer_width.bytes()).ok_or(CUT_OFF)?;
        let value_ends = reader.position();
        reader.take(count * value_width.bytes()).ok_or(CUT_OFF)?;
        let key_area = reader.position();
        reader.take(key_bytes).ok_or(CUT_OFF)?;
        let value_area = reader.position();
        reader.take(value_bytes).ok_or(CUT_OFF)?;
        if !reader.is_empty() {
            return Err("a block is longer than its entries");
        }
        let keys = Slices::new(key_width, key_ends, key_area, key_bytes, count)
            .ok_or("key lengths of a block do not add up")?;
        let values = Slices::new(value_width, value_ends, value_area, value_bytes, count)
            .ok_or("value lengths of a block do not add up")?;
        let trailers = Numbers::new(trailer_width, trailers, base);
        let mut block = EntryBlock {
            bytes,
            heads: Buffer::new(count),
            prefix_start: prefix_start as u32,
            prefix_len: prefix_len as u32,
            keys,
            values,
            trailers,
        };
        block.check_columns(count, key_bytes, value_bytes, contents)?;
        block.compute_heads()?;
        Ok(block)
    }

    fn check_columns(
        &self,
        count: usize,
        key_bytes: usize,
        value_bytes: usize,
        contents: Contents,
    ) -> Result<(), &'static str> {
        if !self.keys.is_monotone(&self.bytes, count, key_bytes) {
            return Err("key ends of a block are not in order");
        }
        if !self.values.is_monotone(&self.bytes, count, value_bytes) {
            return Err("value ends of a block are not in order");
        }
        if !self.trailers.all(&self.bytes, count, |trailer| contents.allows(Trailer(trailer))) {
            return Err("a block has an entry of unknown kind");
        }
        Ok(())
    }

    fn compute_heads(&mut self) -> Result<(), &'static str> {
        let mut last = 0;
        let mut heads = std::mem::take(&mut self.heads);
        for (at, place) in heads.iter_mut().enumerate() {
            let suffix = self.suffix(at);
            if suffix.len() + self.prefix_len as usize > FULL_KEY_BYTES_MAX + 1 {
                return Err("a block has a key that is too long");
            }
            let head = key::head(suffix);
            if head < last {
                return Err("keys of a block are not in order");
            }
            last = head;
            *place = head;
        }
        self.heads = heads;
        Ok(())
    }

    /// Number of entries.
    pub(crate) fn count(&self) -> usize {
        self.heads.len()
    }

    /// Memory taken beside the struct itself, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.memory_bytes() + self.heads.memory_bytes()
    }

    /// What all full keys of the block begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        let start = self.prefix_start as usize;
        self.bytes.get(start..start + self.prefix_len as usize).unwrap_or_default()
    }

    /// Entry `at`'s full key without the prefix.
    pub(crate) fn suffix(&self, at: usize) -> &[u8] {
        self.keys.get(&self.bytes, at)
    }

    /// Entry `at`'s value.
    pub(crate) fn value(&self, at: usize) -> &[u8] {
        self.values.get(&self.bytes, at)
    }

    /// Where entry `at`'s value lies in [`EntryBlock::bytes`].
    pub(crate) fn value_range(&self, at: usize) -> std::ops::Range<usize> {
        self.values.range(&self.bytes, at)
    }

    /// The whole block.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Entry `at`'s trailer.
    pub(crate) fn trailer(&self, at: usize) -> Trailer {
        Trailer(self.trailers.get(&self.bytes, at))
    }

    /// The key heads.
    #[cfg(test)]
    pub(crate) fn heads(&self) -> &[u64] {
        &self.heads
    }

    /// Entry `at`'s full key, assembled in `out`.
    pub(crate) fn read_key(&self, at: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(self.suffix(at));
    }

    /// Number of the first entry at or after (`full_key`, `trailer`); the count if there is none.
    pub(crate) fn lower_bound(&self, full_key: &[u8], trailer: Trailer) -> usize {
        match full_key.strip_prefix(self.prefix()) {
            Some(suffix) => self.search(suffix, trailer).0,
            // The key leaves the prefix somewhere: it lies before all entries or after all.
            None if full_key < self.prefix() => 0,
            None => self.count(),
        }
    }

    /// Number of the newest version of `full_key` at or after `trailer`, if the block has one.
    pub(crate) fn find(&self, full_key: &[u8], trailer: Trailer) -> Option<usize> {
        let (at, has_the_key) = self.search(full_key.strip_prefix(self.prefix())?, trailer);
        has_the_key.then_some(at)
    }

    /// Number of the first entry at or after (`suffix`, `trailer`), and whether it has that very key.
    fn search(&self, suffix: &[u8], trailer: Trailer) -> (usize, bool) {
        let head = key::head(suffix);
        let first = heads_below(&self.heads, head);
        if self.heads.get(first) != Some(&head) {
            return (first, false);
        }
        // Nearly always, at most this one entry shares the head.
        let by_key = self.suffix(first).cmp(suffix);
        if by_key.then_with(|| trailer.cmp(&self.trailer(first))).is_ge() {
            return (first, by_key.is_eq());
        }
        let tied = self.heads.get(first..).unwrap_or_default().partition_point(|&other| other == head);
        let (mut low, mut high) = (first + 1, first + tied);
        while low < high {
            let middle = low.midpoint(high);
            if self.compare(middle, suffix, trailer).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low, low < first + tied && self.suffix(low) == suffix)
    }

    fn compare(&self, at: usize, suffix: &[u8], trailer: Trailer) -> Ordering {
        key::compare(self.suffix(at), self.trailer(at), suffix, trailer)
    }

    /// True if every entry is greater than the one before it, by whole keys and trailers.
    pub(crate) fn is_strictly_ordered(&self) -> bool {
        (1..self.count()).all(|at| self.compare(at - 1, self.suffix(at), self.trailer(at)).is_lt())
    }
}

/// Number of heads that are smaller than `head`, of heads in ascending order.
///
/// Halving with branches, on purpose: in a cold block every head looked at is a miss of the processor's caches. Without
/// branches each load waits for the one before; with them the processor guesses on, and the misses overlap, which more
/// than pays for the wrong guesses (0.8 of the time in cold blocks). The last line is counted, without branches.
fn heads_below(heads: &[u64], head: u64) -> usize {
    let (mut below, mut rest) = (0, heads);
    while rest.len() > COUNTED_HEADS_MAX {
        let (left, right) = rest.split_at(rest.len() / 2);
        if left.last().is_some_and(|&last| last < head) {
            below += left.len();
            rest = right;
        } else {
            rest = left;
        }
    }
    below + rest.iter().filter(|&&other| other < head).count()
}

#[cfg(test)]
mod measure;
#[cfg(test)]
mod tests;
