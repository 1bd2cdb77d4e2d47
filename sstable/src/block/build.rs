//! Building an entry block: entries are gathered in columns, then written in one go.

use alluvium_base::coding::{put_varint, varint_len};
use alluvium_base::key::{Trailer, common_prefix_len};

use super::columns::Width;

/// Gathers the entries of one block, in order.
#[derive(Default)]
pub(crate) struct BlockBuilder {
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    values: Vec<u8>,
    value_ends: Vec<u32>,
    trailers: Vec<u64>,
    /// Length of what all keys so far begin with.
    prefix_len: usize,
    /// Length of the first key and value, and whether all others are as long.
    key_len: Option<usize>,
    value_len: Option<usize>,
    trailer_min: u64,
    trailer_max: u64,
    /// Length of the block so far, in bytes. Asked more often than it changes.
    raw_len: usize,
}

impl BlockBuilder {
    pub(crate) fn new() -> BlockBuilder {
        BlockBuilder::default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.trailers.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.trailers.len()
    }

    /// The key added first; empty if there is none.
    pub(crate) fn first_key(&self) -> &[u8] {
        self.key_ends.first().and_then(|&end| self.keys.get(..end as usize)).unwrap_or_default()
    }

    /// Key and trailer of the entry added last.
    pub(crate) fn last(&self) -> Option<(&[u8], Trailer)> {
        let trailer = Trailer(*self.trailers.last()?);
        let start = self.key_ends.iter().rev().nth(1).map_or(0, |&end| end as usize);
        Some((self.keys.get(start..)?, trailer))
    }

    /// Adds an entry. The caller keeps the order.
    pub(crate) fn add(&mut self, full_key: &[u8], trailer: Trailer, value: &[u8]) {
        if self.is_empty() {
            self.prefix_len = full_key.len();
            (self.key_len, self.value_len) = (Some(full_key.len()), Some(value.len()));
            (self.trailer_min, self.trailer_max) = (trailer.0, trailer.0);
        } else {
            self.prefix_len = self.shared_len(full_key);
            self.key_len = self.key_len.filter(|&len| len == full_key.len());
            self.value_len = self.value_len.filter(|&len| len == value.len());
            self.trailer_min = self.trailer_min.min(trailer.0);
            self.trailer_max = self.trailer_max.max(trailer.0);
        }
        self.keys.extend_from_slice(full_key);
        self.key_ends.push(self.keys.len() as u32);
        self.values.extend_from_slice(value);
        self.value_ends.push(self.values.len() as u32);
        self.trailers.push(trailer.0);
        self.raw_len = self.compute_raw_len();
    }

    fn shared_len(&self, full_key: &[u8]) -> usize {
        common_prefix_len(self.first_key().get(..self.prefix_len).unwrap_or_default(), full_key)
    }

    /// Length of the block so far, in bytes; 0 if it is empty.
    pub(crate) fn raw_len(&self) -> usize {
        self.raw_len
    }

    fn compute_raw_len(&self) -> usize {
        let [key_width, trailer_width, value_width] = self.widths();
        let columns = self.count() * (key_width.bytes() + trailer_width.bytes() + value_width.bytes());
        let suffixes = self.suffix_bytes();
        let header = 1
            + varint_len(self.count() as u64)
            + varint_len(self.prefix_len as u64)
            + varint_len(suffixes as u64)
            + varint_len(self.values.len() as u64)
            + varint_len(self.trailer_min);
        header + self.prefix_len + columns + suffixes + self.values.len()
    }

    /// Upper bound of [`BlockBuilder::raw_len`] after adding one more entry, in bytes.
    pub(crate) fn raw_len_with(&self, full_key: &[u8], value_len: usize) -> usize {
        if self.is_empty() {
            return full_key.len() + value_len;
        }
        // A shorter prefix is paid by every entry. The columns may widen too, which this leaves out: an estimate will do.
        let lost_prefix = self.prefix_len - self.shared_len(full_key);
        let [key_width, trailer_width, value_width] = self.widths();
        let columns = key_width.bytes() + trailer_width.bytes() + value_width.bytes();
        self.raw_len() + lost_prefix * self.count() + full_key.len() - self.prefix_len.min(full_key.len())
            + value_len
            + columns
    }

    fn suffix_bytes(&self) -> usize {
        self.keys.len() - self.count() * self.prefix_len
    }

    fn widths(&self) -> [Width; 3] {
        let keys = if self.key_len.is_some() { Width::Zero } else { Width::of(self.suffix_bytes() as u64) };
        let values = if self.value_len.is_some() { Width::Zero } else { Width::of(self.values.len() as u64) };
        [keys, Width::of(self.trailer_max - self.trailer_min), values]
    }

    /// Appends the block to `out` and empties the builder.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        out.reserve(self.raw_len());
        let widths = self.widths();
        let [key_width, trailer_width, value_width] = widths;
        out.push(Width::pack(widths));
        let suffix_bytes = self.suffix_bytes();
        let lengths = [self.count(), self.prefix_len, suffix_bytes, self.values.len()];
        lengths.iter().for_each(|&length| put_varint(out, length as u64));
        put_varint(out, self.trailer_min);
        out.extend_from_slice(self.first_key().get(..self.prefix_len).unwrap_or_default());
        for (before, &end) in self.key_ends.iter().enumerate() {
            key_width.put(out, u64::from(end) - ((before + 1) * self.prefix_len) as u64);
        }
        self.trailers.iter().for_each(|&trailer| trailer_width.put(out, trailer - self.trailer_min));
        self.value_ends.iter().for_each(|&end| value_width.put(out, u64::from(end)));
        let mut start = 0;
        for &end in &self.key_ends {
            out.extend_from_slice(self.keys.get(start + self.prefix_len..end as usize).unwrap_or_default());
            start = end as usize;
        }
        out.extend_from_slice(&self.values);
        self.clear();
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.key_ends.clear();
        self.values.clear();
        self.value_ends.clear();
        self.trailers.clear();
        self.prefix_len = 0;
        self.raw_len = 0;
    }
}

/// Appends a block of one entry to `out`, without copying a large value twice.
pub(crate) fn write_single(full_key: &[u8], trailer: Trailer, value: &[u8], out: &mut Vec<u8>) {
    out.reserve(full_key.len() + value.len() + 32);
    out.push(Width::pack([Width::Zero; 3]));
    [1, full_key.len(), 0, value.len()].iter().for_each(|&length| put_varint(out, length as u64));
    put_varint(out, trailer.0);
    out.extend_from_slice(full_key);
    out.extend_from_slice(value);
}
