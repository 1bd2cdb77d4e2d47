//! How much there is of what: sums over the table files that a manifest names. Pure.

use std::collections::BTreeMap;

use alluvium::inspect::ManifestState;
use alluvium_base::key::KeyspaceId;
use serde::Serialize;

/// What a keyspace takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyspaceUse {
    /// Entries in table files: every version of every key, tombstones included.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Bytes of keys and values before packing.
    pub raw_bytes: u64,
    /// Bytes of its blocks in the files.
    pub stored_bytes: u64,
    /// Files that hold something of it.
    pub files: u64,
}

impl KeyspaceUse {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: KeyspaceUse) -> KeyspaceUse {
        KeyspaceUse {
            entries: self.entries + other.entries,
            tombstones: self.tombstones + other.tombstones,
            raw_bytes: self.raw_bytes + other.raw_bytes,
            stored_bytes: self.stored_bytes + other.stored_bytes,
            files: self.files + other.files,
        }
    }
}

/// What every keyspace takes that is in a table file.
#[must_use]
pub fn by_keyspace(state: &ManifestState) -> BTreeMap<KeyspaceId, KeyspaceUse> {
    let mut uses: BTreeMap<KeyspaceId, KeyspaceUse> = BTreeMap::new();
    for (_, file) in state.version.files() {
        for found in &file.summary.keyspaces {
            let sum = uses.entry(found.keyspace).or_default();
            *sum = sum.plus(KeyspaceUse {
                entries: found.entries,
                tombstones: found.tombstones,
                raw_bytes: found.raw_bytes,
                stored_bytes: found.stored_bytes,
                files: 1,
            });
        }
    }
    uses
}

/// How much of the table files is dead: overwritten, deleted, or of a dropped keyspace. Files say what they know of
/// themselves; whether an entry is overwritten in another file only a merge can tell, so this is a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Garbage {
    /// Bytes that are dead for certain (unless a snapshot needs them): old versions and tombstones that their file
    /// knows of, and dropped keyspaces.
    pub certain_bytes: u64,
    /// Bytes that may be dead: those, and what would be hidden if every newer entry of the same keyspace hid as much as
    /// it takes in each older run.
    pub possible_bytes: u64,
}

/// Estimates the garbage of a tree.
#[must_use]
pub fn garbage(state: &ManifestState) -> Garbage {
    let mut garbage = Garbage::default();
    // By keyspace: how many bytes of older runs the runs so far may hide.
    let mut reach: BTreeMap<KeyspaceId, u64> = BTreeMap::new();
    for (_, run) in state.version.runs_newest_first() {
        let mut alive: BTreeMap<KeyspaceId, u64> = BTreeMap::new();
        let mut hides: BTreeMap<KeyspaceId, u64> = BTreeMap::new();
        for file in run.files() {
            let old_share = share(file.old_versions, file.summary.entries);
            for found in &file.summary.keyspaces {
                let tombstones = part_of(found.stored_bytes, share(found.tombstones, found.entries));
                let dead = if state.dropped_keyspaces.contains(&found.keyspace) {
                    found.stored_bytes
                } else {
                    (tombstones + part_of(found.stored_bytes, old_share)).min(found.stored_bytes)
                };
                garbage.certain_bytes += dead;
                *alive.entry(found.keyspace).or_default() += found.stored_bytes - dead;
                *hides.entry(found.keyspace).or_default() += found.stored_bytes;
            }
        }
        for (keyspace, bytes) in alive {
            garbage.possible_bytes += bytes.min(reach.get(&keyspace).copied().unwrap_or(0));
        }
        for (keyspace, bytes) in hides {
            *reach.entry(keyspace).or_default() += bytes;
        }
    }
    garbage.possible_bytes += garbage.certain_bytes;
    garbage
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn part_of(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alluvium::inspect::{FileMeta, KeyspaceProperties, TableSummary, VersionEdit};
    use alluvium_base::KeyRange;

    use super::*;

    /// A file with 100 entries of one keyspace in 1000 bytes.
    fn file(id: u64, keyspace: u32, tombstones: u64, old_versions: u64) -> Arc<FileMeta> {
        let keyspace = KeyspaceId(keyspace);
        let range = KeyRange::new(keyspace.full_key(b"a"), keyspace.full_key(b"b"));
        let properties =
            KeyspaceProperties { keyspace, entries: 100, tombstones, raw_bytes: 2000, stored_bytes: 1000 };
        let summary = TableSummary {
            identity: u128::from(id),
            bytes: 1100,
            checksum: 0,
            range,
            seqno_min: 1,
            seqno_max: id,
            entries: 100,
            tombstones,
            range_tombstones: 0,
            keyspaces: vec![properties],
        };
        Arc::new(FileMeta { id, summary, order: id, old_versions, created_micros: 0 })
    }

    fn state(added: Vec<(u8, Arc<FileMeta>)>, dropped: &[u32]) -> ManifestState {
        let mut state = ManifestState::default();
        let dropped_keyspaces = dropped.iter().map(|&keyspace| KeyspaceId(keyspace)).collect();
        state.apply(&VersionEdit { added, dropped_keyspaces, ..VersionEdit::default() }).unwrap();
        state
    }

    fn of(added: Vec<(u8, Arc<FileMeta>)>, dropped: &[u32]) -> (u64, u64) {
        let Garbage { certain_bytes, possible_bytes } = garbage(&state(added, dropped));
        (certain_bytes, possible_bytes)
    }

    #[test]
    fn one_run_has_no_more_garbage_than_it_knows_of() {
        assert_eq!(of(vec![(6, file(1, 1, 0, 0))], &[]), (0, 0));
        assert_eq!(of(vec![(6, file(1, 1, 10, 5))], &[]), (150, 150));
        assert_eq!(of(vec![(6, file(1, 1, 10, 5))], &[1]), (1000, 1000));
    }

    #[test]
    fn a_newer_run_hides_at_most_as_much_as_it_holds_and_only_of_its_keyspaces() {
        let below = || (6, file(1, 1, 0, 0));
        assert_eq!(of(vec![below(), (5, file(2, 1, 20, 0))], &[]), (200, 1200));
        assert_eq!(of(vec![below(), (5, file(2, 2, 0, 0))], &[]), (0, 0));
        assert_eq!(of(vec![below(), (5, file(2, 1, 0, 0)), (0, file(3, 1, 0, 0))], &[]), (0, 2000));
    }

    #[test]
    fn a_keyspace_is_summed_over_its_files() {
        let state = state(vec![(6, file(1, 1, 1, 0)), (0, file(2, 1, 2, 0)), (6, file(3, 2, 0, 0))], &[]);
        let uses = by_keyspace(&state);
        let one = uses[&KeyspaceId(1)];
        assert_eq!((one.entries, one.tombstones, one.stored_bytes, one.files), (200, 3, 2000, 2));
        assert_eq!(uses[&KeyspaceId(2)].files, 1);
    }
}
