//! The whole durable state that a manifest describes: a version, counters, the catalog.

use std::collections::{BTreeMap, BTreeSet};

use alluvium_base::key::{KeyspaceId, Seqno};
use alluvium_base::{Error, Result};

use super::{AcceptedEnd, CatalogChange, Version, VersionEdit};

/// What a manifest says: the sum of its edits. Opening a database replays edits into one of these; rewriting a
/// manifest writes [`to_edit`](ManifestState::to_edit) of it as the first edit of a new file.
#[derive(Clone, Debug, Default)]
pub struct ManifestState {
    /// Identity of the database; zero before the first edit.
    pub database_id: u128,
    /// The files of the tree.
    pub version: Version,
    /// The next file number to use.
    pub next_file_id: u64,
    /// The greatest sequence number that may have been used.
    pub last_seqno: Seqno,
    /// Log address at which replay starts.
    pub log_replay_start: u64,
    /// Number of times that the database has been opened for writing.
    pub incarnation: u64,
    /// Ends of earlier incarnations' logs that replay may still meet, oldest first.
    pub accepted_ends: Vec<AcceptedEnd>,
    /// The next keyspace id to use.
    pub next_keyspace_id: u32,
    /// True if the last thing that happened was an orderly close.
    pub clean_close: bool,
    /// The catalog.
    pub catalog: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Keyspaces that were dropped and of which data may still exist.
    pub dropped_keyspaces: BTreeSet<KeyspaceId>,
}

impl ManifestState {
    /// Takes `edit` into account. After an error the state is as before.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit does not fit: it breaks an invariant of the tree, a counter would go back, or
    /// the database's identity would change.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<()> {
        let version = self.version.apply(edit)?;
        if edit.database_id.is_some_and(|id| self.database_id != 0 && id != self.database_id) {
            return Err(Error::invalid("edit belongs to another database"));
        }
        for (what, old, new) in [
            ("next file id", self.next_file_id, edit.next_file_id),
            ("last sequence number", self.last_seqno, edit.last_seqno),
            ("replay start of the log", self.log_replay_start, edit.log_replay_start),
            ("incarnation", self.incarnation, edit.incarnation),
            ("next keyspace id", u64::from(self.next_keyspace_id), edit.next_keyspace_id.map(u64::from)),
        ] {
            if let Some(new) = new.filter(|&new| new < old) {
                return Err(Error::invalid(format!("edit takes the {what} back from {old} to {new}")));
            }
        }
        self.version = version;
        self.database_id = edit.database_id.unwrap_or(self.database_id);
        self.next_file_id = edit.next_file_id.unwrap_or(self.next_file_id);
        self.last_seqno = edit.last_seqno.unwrap_or(self.last_seqno);
        for (_, file) in &edit.added {
            self.next_file_id = self.next_file_id.max(file.id.saturating_add(1));
            self.last_seqno = self.last_seqno.max(file.summary.seqno_max);
        }
        self.log_replay_start = edit.log_replay_start.unwrap_or(self.log_replay_start);
        self.incarnation = edit.incarnation.unwrap_or(self.incarnation);
        self.next_keyspace_id = edit.next_keyspace_id.unwrap_or(self.next_keyspace_id);
        self.clean_close = edit.clean_close.unwrap_or(false);
        self.accepted_ends.extend_from_slice(&edit.accepted_ends);
        self.accepted_ends.retain(|accepted| accepted.end > self.log_replay_start);
        for CatalogChange { key, value } in &edit.catalog {
            match value {
                Some(value) => self.catalog.insert(key.clone(), value.clone()),
                None => self.catalog.remove(key),
            };
        }
        self.dropped_keyspaces.extend(&edit.dropped_keyspaces);
        edit.purged_keyspaces.iter().for_each(|keyspace| {
            self.dropped_keyspaces.remove(keyspace);
        });
        Ok(())
    }

    /// The whole state as one edit: applied to an empty state it gives this one.
    #[must_use]
    pub fn to_edit(&self) -> VersionEdit {
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| CatalogChange {
            key: key.clone(),
            value: Some(value.clone()),
        };
        VersionEdit {
            database_id: Some(self.database_id),
            next_file_id: Some(self.next_file_id),
            last_seqno: Some(self.last_seqno),
            log_replay_start: Some(self.log_replay_start),
            incarnation: Some(self.incarnation),
            accepted_ends: self.accepted_ends.clone(),
            next_keyspace_id: Some(self.next_keyspace_id),
            clean_close: Some(self.clean_close),
            removed: Vec::new(),
            added: self.version.files().map(|(level, file)| (level, file.clone())).collect(),
            catalog: self.catalog.iter().map(entry).collect(),
            dropped_keyspaces: self.dropped_keyspaces.iter().copied().collect(),
            purged_keyspaces: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{file, l0_file};

    fn state() -> ManifestState {
        let mut state = ManifestState::default();
        let change = |key: &[u8], value: Option<&[u8]>| CatalogChange {
            key: key.into(),
            value: value.map(Into::into),
        };
        let mut edit = VersionEdit {
            database_id: Some(5),
            incarnation: Some(1),
            log_replay_start: Some(4096),
            next_keyspace_id: Some(3),
            catalog: vec![change(b"a", Some(b"1")), change(b"b", Some(b"2")), change(b"a", None)],
            dropped_keyspaces: vec![KeyspaceId(1), KeyspaceId(2)],
            accepted_ends: vec![
                AcceptedEnd { incarnation: 1, end: 4096 },
                AcceptedEnd { incarnation: 2, end: 9000 },
            ],
            ..VersionEdit::default()
        };
        edit.add(0, l0_file(8, 30, b"aaaa", b"bbbb"));
        edit.add(0, l0_file(4, 40, b"aaaa", b"cccc"));
        edit.add(6, file(9, b"aaaa", b"cccc"));
        state.apply(&edit).unwrap();
        state
            .apply(&VersionEdit { purged_keyspaces: vec![KeyspaceId(1)], ..VersionEdit::default() })
            .unwrap();
        state
    }

    #[test]
    fn the_state_as_one_edit_gives_the_state_again() {
        let state = state();
        assert_eq!(state.catalog, BTreeMap::from([(b"b".to_vec(), b"2".to_vec())]));
        assert_eq!(state.next_file_id, 10, "ids of added files count as used");
        assert_eq!(state.accepted_ends.len(), 1, "ends that replay cannot meet are forgotten");
        let mut encoded = Vec::new();
        state.to_edit().encode(&mut encoded);
        let decoded = VersionEdit::decode(&encoded, std::path::Path::new("MANIFEST"), 0).unwrap();
        let mut again = ManifestState::default();
        again.apply(&decoded).unwrap();
        assert_eq!(again.to_edit(), state.to_edit());
        let files = |state: &ManifestState| -> Vec<(u8, u64)> {
            state.version.files().map(|(level, file)| (level, file.id)).collect()
        };
        assert_eq!(files(&again), files(&state), "the same stack of sublevels");
    }

    #[test]
    fn counters_never_go_back() {
        let back = [
            VersionEdit { next_file_id: Some(9), ..VersionEdit::default() },
            VersionEdit { incarnation: Some(0), ..VersionEdit::default() },
            VersionEdit { log_replay_start: Some(4095), ..VersionEdit::default() },
            VersionEdit { next_keyspace_id: Some(2), ..VersionEdit::default() },
            VersionEdit { database_id: Some(6), ..VersionEdit::default() },
        ];
        for edit in back {
            let mut changed = state();
            assert!(changed.apply(&edit).is_err(), "{edit:?}");
            assert_eq!(changed.to_edit(), state().to_edit(), "a refused edit changes nothing");
        }
    }

    #[test]
    fn any_edit_takes_a_clean_close_back() {
        let mut state = state();
        state.apply(&VersionEdit { clean_close: Some(true), ..VersionEdit::default() }).unwrap();
        assert!(state.clean_close);
        state.apply(&VersionEdit { incarnation: Some(2), ..VersionEdit::default() }).unwrap();
        assert!(!state.clean_close);
    }
}
