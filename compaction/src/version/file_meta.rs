//! What the tree knows of one table file.

use std::sync::Arc;

use alluvium_base::KeyRange;
use alluvium_base::coding::{Reader, put_bytes, put_varint};
use alluvium_base::key::{KeyspaceId, Seqno};
use alluvium_base::limits::SEQNO_MAX;

use super::fields::{self, FieldError};
use alluvium_sstable::{KeyspaceProperties, TableSummary};

/// A table file as the manifest records it: its number, what its writer found out, and its place in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMeta {
    /// Number of the file, never reused; see [`file_name`](FileMeta::file_name).
    pub id: u64,
    /// What the writer of the table reported.
    pub summary: TableSummary,
    /// The age of the file's content among the files of level 0: for two level-0 files that overlap, everything in
    /// the one with the greater order is newer, key by key. A flush takes the newest sequence number that its
    /// memtables can hold, a compaction within level 0 the greatest order of its inputs. Meaningless in other levels.
    ///
    /// Why not the file's own `seqno_max`: a compaction within level 0 may drop the entry that carried it, and the
    /// output would then sink below files that it must stay above.
    pub order: Seqno,
    /// Point entries that are not the newest of their key in the file: kept for a snapshot, garbage once it is gone.
    pub old_versions: u64,
    /// When the file was written, in microseconds since 1970 by the wall clock; for people and for age triggers.
    pub created_micros: i64,
}

impl FileMeta {
    /// The file's name within the database directory.
    #[must_use]
    pub fn file_name(&self) -> String {
        file_name(self.id)
    }

    /// The smallest range that holds every key and every range tombstone of the file.
    #[must_use]
    pub fn range(&self) -> &KeyRange {
        &self.summary.range
    }

    /// Size of the file in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.summary.bytes
    }

    /// Bytes of the file plus what its point tombstones are expected to free: each counts like one average entry of
    /// its file, so that tombstones travel down to what they hide rather than wait for the level to fill.
    #[must_use]
    pub fn compensated_bytes(&self) -> u64 {
        let per_entry = self.summary.bytes.checked_div(self.summary.entries).unwrap_or(0);
        self.summary.bytes.saturating_add(self.summary.tombstones.saturating_mul(per_entry))
    }

    /// True if the file holds tombstones of any kind.
    #[must_use]
    pub fn has_tombstones(&self) -> bool {
        self.summary.tombstones > 0 || self.summary.range_tombstones > 0
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let summary = &self.summary;
        put_varint(out, self.id);
        out.extend_from_slice(&summary.identity.to_le_bytes());
        put_varint(out, summary.bytes);
        out.extend_from_slice(&summary.checksum.to_le_bytes());
        put_bytes(out, &summary.range.start);
        put_bytes(out, &summary.range.end);
        for number in [
            summary.seqno_min,
            summary.seqno_max,
            summary.entries,
            summary.tombstones,
            summary.range_tombstones,
            self.order,
            self.old_versions,
            zigzag(self.created_micros),
            summary.keyspaces.len() as u64,
        ] {
            put_varint(out, number);
        }
        for keyspace in &summary.keyspaces {
            let numbers = [keyspace.entries, keyspace.tombstones, keyspace.raw_bytes, keyspace.stored_bytes];
            put_varint(out, u64::from(keyspace.keyspace.0));
            numbers.into_iter().for_each(|number| put_varint(out, number));
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Arc<FileMeta>, FieldError> {
        let meta = read(reader).ok_or_else(|| FieldError::damaged("a file's description is cut off"))?;
        let (summary, range) = (&meta.summary, &meta.summary.range);
        if range.is_empty() {
            return Err(FieldError::damaged(format!("file {} has the empty key range {range:?}", meta.id)));
        }
        if summary.seqno_min > summary.seqno_max || summary.seqno_max > SEQNO_MAX || meta.order > SEQNO_MAX {
            return Err(FieldError::damaged(format!("file {} has impossible sequence numbers", meta.id)));
        }
        fields::read_fields(reader, |tag, _, _| Err(FieldError::UnknownField(tag)))?;
        Ok(Arc::new(meta))
    }
}

/// The name of table file `id` within the database directory.
#[must_use]
pub fn file_name(id: u64) -> String {
    format!("{id:08}.sst")
}

fn read(reader: &mut Reader<'_>) -> Option<FileMeta> {
    let id = reader.varint()?;
    let identity = reader.u128()?;
    let bytes = reader.varint()?;
    let checksum = reader.u64()?;
    let range = KeyRange::new(reader.bytes()?, reader.bytes()?);
    let (seqno_min, seqno_max) = (reader.varint()?, reader.varint()?);
    let (entries, tombstones, range_tombstones) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let (order, old_versions) = (reader.varint()?, reader.varint()?);
    let created_micros = unzigzag(reader.varint()?);
    // Every keyspace takes at least five bytes; nothing is allocated before its bytes have been seen.
    let keyspaces = (0..reader.length(reader.remaining() / 5)?)
        .map(|_| {
            Some(KeyspaceProperties {
                keyspace: KeyspaceId(u32::try_from(reader.varint()?).ok()?),
                entries: reader.varint()?,
                tombstones: reader.varint()?,
                raw_bytes: reader.varint()?,
                stored_bytes: reader.varint()?,
            })
        })
        .collect::<Option<Vec<_>>>()?;
    let summary = TableSummary {
        identity,
        bytes,
        checksum,
        range,
        seqno_min,
        seqno_max,
        entries,
        tombstones,
        range_tombstones,
        keyspaces,
    };
    Some(FileMeta { id, summary, order, old_versions, created_micros })
}

/// Signed to unsigned so that small magnitudes make short varints.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zigzag_round_trips() {
        for value in [0, 1, -1, i64::MAX, i64::MIN, 1_577_836_800_000_000] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    #[test]
    fn names_sort_like_numbers_for_a_long_time() {
        assert_eq!(file_name(7), "00000007.sst");
        assert_eq!(file_name(123_456_789), "123456789.sst");
    }
}
