//! Files made up for tests.

use std::sync::Arc;

use alluvium_base::KeyRange;
use alluvium_base::key::{KeyspaceId, Seqno};
use alluvium_base::limits::SEQNO_MAX;
use proptest::prelude::*;

use crate::summary::{KeyspaceProperties, TableSummary};
use crate::version::FileMeta;

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
        created_micros: 0,
    })
}

prop_compose! {
    /// Any file that a manifest may name.
    pub(crate) fn any_file()(
        (id, identity, bytes, checksum, created_micros) in any::<(u64, u128, u64, u64, i64)>(),
        start in prop::collection::vec(any::<u8>(), 0..9),
        tail in prop::collection::vec(any::<u8>(), 1..9),
        seqnos in (0..=SEQNO_MAX, 0..=SEQNO_MAX, 0..=SEQNO_MAX),
        (entries, tombstones, range_tombstones) in any::<(u64, u64, u64)>(),
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
            created_micros,
        }
    }
}
