//! Files made up for tests.

use std::sync::Arc;

use alluvium_base::KeyRange;
use alluvium_base::key::{KeyspaceId, Seqno};
use alluvium_base::limits::SEQNO_MAX;
use proptest::prelude::*;

use crate::version::{FileMeta, Version, VersionEdit};
use alluvium_sstable::{KeyspaceProperties, TableSummary};

/// A file of 1,000 bytes and 10 entries over `[start, end)`.
pub(crate) fn file(id: u64, start: &[u8], end: &[u8]) -> Arc<FileMeta> {
    l0_file(id, 0, start, end)
}

/// A file of level 0 with the given order.
pub(crate) fn l0_file(id: u64, order: Seqno, start: &[u8], end: &[u8]) -> Arc<FileMeta> {
    Arc::new(FileMeta {
        id,
        summary: TableSummary {
            identity: u128::from(id),
            bytes: 1000,
            checksum: id,
            range: KeyRange::new(start, end),
            seqno_min: order,
            seqno_max: order,
            entries: 10,
            tombstones: 0,
            range_tombstones: 0,
            keyspaces: Vec::new(),
        },
        order,
        old_versions: 0,
        created_micros: 0,
    })
}

/// A tree of files given as (level, "first-end", bytes), with ids 1, 2, … in this order. In level 0 a later file is
/// newer.
pub(crate) fn tree<'a>(files: impl IntoIterator<Item = (u8, &'a str, u64)>) -> Version {
    tree_with(files.into_iter().map(|(level, range, bytes)| (level, range, bytes, |_: &mut FileMeta| {})))
}

/// Like [`tree`], with a change to each file.
pub(crate) fn tree_with<'a, F: Fn(&mut FileMeta)>(
    files: impl IntoIterator<Item = (u8, &'a str, u64, F)>,
) -> Version {
    let mut edit = VersionEdit::default();
    for (id, (level, range, bytes, change)) in (1u64..).zip(files) {
        let (start, end) = range.split_once('-').unwrap();
        let mut file = FileMeta::clone(&l0_file(id, id, start.as_bytes(), end.as_bytes()));
        file.summary.bytes = bytes;
        change(&mut file);
        edit.add(level, Arc::new(file));
    }
    Version::new().apply(&edit).unwrap()
}

prop_compose! {
    /// Any file that a manifest may name.
    pub(crate) fn any_file()(
        (id, identity, bytes, checksum, created_micros) in any::<(u64, u128, u64, u64, i64)>(),
        start in prop::collection::vec(any::<u8>(), 0..9),
        tail in prop::collection::vec(any::<u8>(), 1..9),
        seqnos in (0..=SEQNO_MAX, 0..=SEQNO_MAX, 0..=SEQNO_MAX),
        (entries, tombstones, range_tombstones, old_versions) in any::<(u64, u64, u64, u64)>(),
        keyspaces in prop::collection::vec(any::<(u32, u64, u64, u64, u64)>(), 0..3),
    ) -> FileMeta {
        let end = [start.as_slice(), &tail].concat();
        let keyspace = |(id, entries, tombstones, raw_bytes, stored_bytes)| {
            KeyspaceProperties { keyspace: KeyspaceId(id), entries, tombstones, raw_bytes, stored_bytes }
        };
        FileMeta {
            id,
            summary: TableSummary {
                identity,
                bytes,
                checksum,
                range: KeyRange { start, end },
                seqno_min: seqnos.0.min(seqnos.1),
                seqno_max: seqnos.0.max(seqnos.1),
                entries,
                tombstones,
                range_tombstones,
                keyspaces: keyspaces.into_iter().map(keyspace).collect(),
            },
            order: seqnos.2,
            old_versions,
            created_micros,
        }
    }
}
