//! What a table says about itself: its properties block, and the summary that its writer hands out.
//!
//! The block is a list of `tag (varint) ‖ length (varint) ‖ bytes`. Even tags must be understood by a reader, odd
//! ones may be skipped, so that a later version can add a fact without a new format.

use alluvium_base::coding::{Reader, put_bytes, put_varint};
use alluvium_base::key::{KEYSPACE_ID_BYTES, KeyspaceId, Seqno};
use alluvium_base::key_range::KeyRange;

use crate::block::FULL_KEY_BYTES_MAX;
use crate::filter::point::{self, PointFilterShape};
use crate::filter::prefix::{self, PrefixFilterShape};

const TAG_COUNTS: u64 = 2;
const TAG_RANGE: u64 = 4;
const TAG_KEYSPACE: u64 = 6;
const TAG_POINT_FILTER: u64 = 8;
const TAG_PREFIX_FILTER: u64 = 10;

const FLAG_POINT_FILTER: u8 = 1;
const FLAG_PREFIX_FILTER: u8 = 2;

/// What a table holds of one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceProperties {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Point entries, tombstones included. 0 if only range tombstones touch the keyspace.
    pub entries: u64,
    /// Point tombstones among them.
    pub tombstones: u64,
    /// Length of all full keys, trailers (8 bytes each) and values, in bytes.
    pub raw_bytes: u64,
    /// Length of its data blocks in the file, in bytes.
    pub stored_bytes: u64,
}

impl KeyspaceProperties {
    pub(crate) fn new(keyspace: KeyspaceId) -> KeyspaceProperties {
        KeyspaceProperties { keyspace, entries: 0, tombstones: 0, raw_bytes: 0, stored_bytes: 0 }
    }
}

/// What a table says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableProperties {
    /// The keys that it covers, by point entries or by range tombstones.
    pub range: KeyRange,
    /// Smallest sequence number of any entry or range tombstone.
    pub seqno_min: Seqno,
    /// Largest sequence number of any entry or range tombstone.
    pub seqno_max: Seqno,
    /// Point entries, tombstones included.
    pub entries: u64,
    /// Point tombstones among them.
    pub tombstones: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// By keyspace, ascending; every keyspace that has an entry or the start of a range tombstone here.
    pub keyspaces: Vec<KeyspaceProperties>,
}

/// What the writer of a table knows about it when it is finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSummary {
    /// Random identity of the table; seeds its checksums.
    pub identity: u128,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// xxh3-64 of the whole file.
    pub checksum: u64,
    /// The keys that it covers, by point entries or by range tombstones.
    pub range: KeyRange,
    /// Smallest sequence number of any entry or range tombstone.
    pub seqno_min: Seqno,
    /// Largest sequence number of any entry or range tombstone.
    pub seqno_max: Seqno,
    /// Point entries, tombstones included.
    pub entries: u64,
    /// Point tombstones among them.
    pub tombstones: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// By keyspace, ascending; every keyspace that has an entry or the start of a range tombstone here.
    pub keyspaces: Vec<KeyspaceProperties>,
}

/// Which filters hold the keys of one keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyspaceFilters {
    /// The point filter holds all of its keys.
    pub(crate) point: bool,
    /// The prefix filter holds the first so many bytes of all of its user keys that are long enough.
    pub(crate) prefix_bytes: Option<u16>,
}

/// A filter with its place in the file: partitions lie one behind the other, each with its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed<S> {
    pub(crate) shape: S,
    pub(crate) offset: u64,
}

/// The whole properties block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PropertiesBlock {
    pub(crate) properties: TableProperties,
    /// One per keyspace of the properties.
    pub(crate) filters: Vec<KeyspaceFilters>,
    pub(crate) point_filter: Option<Placed<PointFilterShape>>,
    pub(crate) prefix_filter: Option<Placed<PrefixFilterShape>>,
}

impl PropertiesBlock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut field = |tag: u64, content: &[u8]| {
            put_varint(&mut out, tag);
            put_bytes(&mut out, content);
        };
        let properties = &self.properties;
        field(
            TAG_COUNTS,
            &varints(&[
                properties.entries,
                properties.tombstones,
                properties.range_tombstones,
                properties.data_blocks,
                properties.seqno_min,
                properties.seqno_max,
            ]),
        );
        let mut range = Vec::new();
        put_bytes(&mut range, &properties.range.start);
        put_bytes(&mut range, &properties.range.end);
        field(TAG_RANGE, &range);
        for (keyspace, filters) in properties.keyspaces.iter().zip(&self.filters) {
            field(TAG_KEYSPACE, &encode_keyspace(keyspace, filters));
        }
        if let Some(Placed { shape, offset }) = self.point_filter {
            let mut content = vec![point::KIND_BLOCKED_BLOOM, shape.probes];
            content.extend(varints(&[shape.lines, offset]));
            field(TAG_POINT_FILTER, &content);
        }
        if let Some(Placed { shape, offset }) = self.prefix_filter {
            let mut content = vec![prefix::KIND_BLOOMFILTER];
            content.extend(varints(&[shape.partitions, shape.bitmap_bytes as u64, offset]));
            field(TAG_PREFIX_FILTER, &content);
        }
        out
    }

    /// Decodes the block; the error says what does not fit.
    pub(crate) fn decode(bytes: &[u8]) -> Result<PropertiesBlock, &'static str> {
        let mut block = PropertiesBlock {
            properties: TableProperties {
                range: KeyRange::default(),
                seqno_min: 0,
                seqno_max: 0,
                entries: 0,
                tombstones: 0,
                range_tombstones: 0,
                data_blocks: 0,
                keyspaces: Vec::new(),
            },
            filters: Vec::new(),
            point_filter: None,
            prefix_filter: None,
        };
        let mut reader = Reader::new(bytes);
        let (mut has_counts, mut has_range) = (false, false);
        while !reader.is_empty() {
            let (Some(tag), Some(content)) = (reader.varint(), reader.bytes()) else {
                return Err("the properties are cut off");
            };
            let mut content = Reader::new(content);
            let understood = match tag {
                TAG_COUNTS => block.read_counts(&mut content).inspect(|()| has_counts = true),
                TAG_RANGE => block.read_range(&mut content).inspect(|()| has_range = true),
                TAG_KEYSPACE => block.read_keyspace(&mut content),
                TAG_POINT_FILTER => block.read_point_filter(&mut content),
                TAG_PREFIX_FILTER => block.read_prefix_filter(&mut content),
                optional if optional % 2 == 1 => continue,
                _ => {
                    return Err(
                        "the properties hold a field that this build does not know; use a newer build",
                    );
                }
            };
            if understood.is_none() || !content.is_empty() {
                return Err("a field of the properties does not fit");
            }
        }
        match has_counts && has_range && block.keyspaces_add_up() {
            true => Ok(block),
            false => Err("the properties do not add up"),
        }
    }

    fn read_counts(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let properties = &mut self.properties;
        properties.entries = reader.varint()?;
        properties.tombstones = reader.varint()?;
        properties.range_tombstones = reader.varint()?;
        properties.data_blocks = reader.varint()?;
        properties.seqno_min = reader.varint()?;
        properties.seqno_max = reader.varint()?;
        Some(())
    }

    fn read_range(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let (start, end) = (reader.bytes()?, reader.bytes()?);
        self.properties.range = KeyRange::new(start, end);
        let lengths = KEYSPACE_ID_BYTES..=FULL_KEY_BYTES_MAX + 1;
        (start < end && lengths.contains(&start.len()) && lengths.contains(&end.len())).then_some(())
    }

    fn read_keyspace(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let keyspace = KeyspaceId(reader.u32()?);
        let flags = reader.u8()?;
        let prefix_bytes = reader.u16()?;
        let (entries, tombstones) = (reader.varint()?, reader.varint()?);
        let (raw_bytes, stored_bytes) = (reader.varint()?, reader.varint()?);
        if flags & !(FLAG_POINT_FILTER | FLAG_PREFIX_FILTER) != 0 {
            return None;
        }
        self.properties.keyspaces.push(KeyspaceProperties {
            keyspace,
            entries,
            tombstones,
            raw_bytes,
            stored_bytes,
        });
        self.filters.push(KeyspaceFilters {
            point: flags & FLAG_POINT_FILTER != 0,
            prefix_bytes: (flags & FLAG_PREFIX_FILTER != 0).then_some(prefix_bytes),
        });
        Some(())
    }

    fn read_point_filter(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let (kind, probes) = (reader.u8()?, reader.u8()?);
        let (lines, offset) = (reader.varint()?, reader.varint()?);
        let sound =
            kind == point::KIND_BLOCKED_BLOOM && (1..=point::PROBES_MAX).contains(&probes) && lines > 0;
        self.point_filter = Some(Placed { shape: PointFilterShape { lines, probes }, offset });
        sound.then_some(())
    }

    fn read_prefix_filter(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let kind = reader.u8()?;
        let (partitions, bitmap_bytes) = (reader.varint()?, usize::try_from(reader.varint()?).ok()?);
        let offset = reader.varint()?;
        let shape = PrefixFilterShape { partitions, bitmap_bytes };
        self.prefix_filter = Some(Placed { shape, offset });
        (kind == prefix::KIND_BLOOMFILTER && shape.is_sound()).then_some(())
    }

    /// True if the keyspaces ascend, and their counts sum up to those of the table.
    fn keyspaces_add_up(&self) -> bool {
        let keyspaces = &self.properties.keyspaces;
        let ascending = keyspaces.is_sorted_by(|a, b| a.keyspace < b.keyspace);
        let sum = |count: fn(&KeyspaceProperties) -> u64| {
            keyspaces.iter().try_fold(0u64, |sum, keyspace| sum.checked_add(count(keyspace)))
        };
        ascending
            && sum(|keyspace| keyspace.entries) == Some(self.properties.entries)
            && sum(|keyspace| keyspace.tombstones) == Some(self.properties.tombstones)
    }
}

fn varints(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.iter().for_each(|&number| put_varint(&mut out, number));
    out
}

fn encode_keyspace(keyspace: &KeyspaceProperties, filters: &KeyspaceFilters) -> Vec<u8> {
    let mut out = keyspace.keyspace.0.to_le_bytes().to_vec();
    let point = if filters.point { FLAG_POINT_FILTER } else { 0 };
    let prefix = if filters.prefix_bytes.is_some() { FLAG_PREFIX_FILTER } else { 0 };
    out.push(point | prefix);
    out.extend_from_slice(&filters.prefix_bytes.unwrap_or(0).to_le_bytes());
    out.extend(varints(&[keyspace.entries, keyspace.tombstones, keyspace.raw_bytes, keyspace.stored_bytes]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> PropertiesBlock {
        let keyspace = |id, entries| KeyspaceProperties {
            keyspace: KeyspaceId(id),
            entries,
            tombstones: 1,
            raw_bytes: 1000,
            stored_bytes: 500,
        };
        PropertiesBlock {
            properties: TableProperties {
                range: KeyRange::new(*b"\0\0\0\x01a", *b"\0\0\0\x02z\0"),
                seqno_min: 3,
                seqno_max: 70_000,
                entries: 300,
                tombstones: 2,
                range_tombstones: 1,
                data_blocks: 5,
                keyspaces: vec![keyspace(1, 100), keyspace(2, 200)],
            },
            filters: vec![
                KeyspaceFilters { point: true, prefix_bytes: None },
                KeyspaceFilters { point: false, prefix_bytes: Some(8) },
            ],
            point_filter: Some(Placed { shape: PointFilterShape { lines: 9, probes: 6 }, offset: 4000 }),
            prefix_filter: Some(Placed {
                shape: PrefixFilterShape { partitions: 1, bitmap_bytes: 80 },
                offset: 5000,
            }),
        }
    }

    #[test]
    fn properties_round_trip() {
        let block = block();
        assert_eq!(PropertiesBlock::decode(&block.encode()).unwrap(), block);
    }

    #[test]
    fn unknown_odd_tags_are_skipped_and_even_ones_refused() {
        let mut bytes = block().encode();
        put_varint(&mut bytes, 1001);
        put_bytes(&mut bytes, b"a later fact");
        assert_eq!(PropertiesBlock::decode(&bytes).unwrap(), block());
        put_varint(&mut bytes, 1002);
        put_bytes(&mut bytes, b"a later necessity");
        assert!(PropertiesBlock::decode(&bytes).unwrap_err().contains("newer build"));
    }

    #[test]
    fn damaged_properties_never_panic() {
        let good = block().encode();
        for at in 0..good.len() {
            assert!(PropertiesBlock::decode(&good[..at]).is_err() || at == 0 || good[at] != 0, "cut at {at}");
            for flip in [1, 0x80, 0xff] {
                let mut damaged = good.clone();
                damaged[at] ^= flip;
                let _ = PropertiesBlock::decode(&damaged);
            }
        }
    }
}
