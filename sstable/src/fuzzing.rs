//! Doors to parsers that have no public one, for fuzz targets only (`tests/src/fuzz`). No part of the API.

use alluvium_base::key::Trailer;
use alluvium_base::memory::Buffer;

use crate::block::{BlockBuilder, Contents, EntryBlock};
use crate::compress::decompress;
use crate::filter::point::{PROBES_MAX, PointFilterBuilder, PointFilterPartition};
use crate::filter::prefix::{PrefixFilterBuilder, PrefixFilterPartition, PrefixFilterShape};
use crate::settings::Compression;

/// Full key, trailer and value of an entry.
pub type Entry = (Vec<u8>, u64, Vec<u8>);

/// The entries of a data block, and whether they are in strict order; the error says what does not fit. Every key is
/// looked up as well.
///
/// # Errors
/// What is wrong with the bytes.
pub fn block(bytes: &[u8]) -> Result<(Vec<Entry>, bool), &'static str> {
    let block = EntryBlock::parse(Buffer::copy_of(bytes), Contents::Points)?;
    let mut entries = Vec::with_capacity(block.count());
    let ordered = block.is_strictly_ordered();
    let mut key = Vec::new();
    for at in 0..block.count() {
        block.read_key(at, &mut key);
        let trailer = block.trailer(at);
        let found = block.find(&key, trailer);
        let bound = block.lower_bound(&key, trailer);
        if ordered && (found != Some(at) || bound != at) {
            return Err("an entry of an ordered block is not found");
        }
        entries.push((key.clone(), trailer.0, block.value(at).to_vec()));
    }
    Ok((entries, ordered))
}

/// The block of these entries.
#[must_use]
pub fn build_block(entries: &[Entry]) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    entries.iter().for_each(|(key, trailer, value)| builder.add(key, Trailer(*trailer), value));
    let mut out = Vec::new();
    builder.finish(&mut out);
    out
}

/// Unpacks a compressed body.
///
/// # Errors
/// What is wrong with the bytes.
pub fn unpack(body: &[u8], with: Compression) -> Result<Vec<u8>, &'static str> {
    decompress(body, with).map(|raw| raw.to_vec())
}

/// Asks a partition of a point filter; `None` if the bytes are none.
#[must_use]
pub fn point_filter(bytes: &[u8], line: usize, hash: u64, probes: u8) -> Option<bool> {
    let partition = PointFilterPartition::parse(bytes, bytes.len())?;
    Some(partition.may_contain(line, hash, probes.min(PROBES_MAX)))
}

/// A point filter of these hashes: lines, probes and bytes. `None` without hashes.
#[must_use]
pub fn build_point_filter(hashes: &[u64], bits_per_key: u8) -> Option<(u64, u8, Vec<u8>)> {
    let mut builder = PointFilterBuilder::default();
    hashes.iter().for_each(|&hash| builder.add(hash, bits_per_key));
    let (shape, bytes) = builder.build()?;
    Some((shape.lines, shape.probes, bytes))
}

/// Asks a partition of a prefix filter of `bitmap_bytes`; `None` if the bytes are none.
#[must_use]
pub fn prefix_filter(bytes: &[u8], bitmap_bytes: usize, hash: u64) -> Option<bool> {
    let shape = PrefixFilterShape { partitions: 1, bitmap_bytes };
    PrefixFilterPartition::parse(bytes.to_vec(), shape).map(|partition| partition.may_contain(hash))
}

/// A prefix filter of these prefixes: the length of its bits and its partitions. `None` without prefixes.
#[must_use]
pub fn build_prefix_filter(prefixes: &[Vec<u8>], bits: u8) -> Option<(usize, Vec<Vec<u8>>)> {
    let mut builder = PrefixFilterBuilder::default();
    prefixes.iter().for_each(|prefix| builder.add(prefix, bits));
    builder.build().map(|(shape, partitions)| (shape.bitmap_bytes, partitions))
}

/// The hash that prefix filters are asked for.
#[must_use]
pub fn prefix_hash(prefix: &[u8]) -> u64 {
    crate::filter::prefix::prefix_hash(prefix)
}
