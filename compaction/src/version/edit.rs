//! One change of the database's durable state, and how it is written: `design/formats/manifest-edit.md`.

use std::path::Path;
use std::sync::Arc;

use alluvium_base::coding::{Reader, put_bytes, put_varint};
use alluvium_base::key::{KeyspaceId, Seqno};
use alluvium_base::limits::SEQNO_MAX;
use alluvium_base::{Error, ErrorKind, Result};

use super::fields::{FieldError, put_field, read_fields};
use super::{BOTTOM_LEVEL, FileMeta};

/// Where the log of an incarnation that is over ends: what was read up to there counts, what follows never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedEnd {
    /// The incarnation.
    pub incarnation: u64,
    /// Log address after its last accepted record.
    pub end: u64,
}

/// One entry of the catalog, set or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogChange {
    /// The entry's key; its meaning is the row layer's.
    pub key: Vec<u8>,
    /// The new value; `None` removes the entry.
    pub value: Option<Vec<u8>>,
}

/// One atomic change of the durable state. Everything is optional; what is absent stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionEdit {
    /// Identity of the database; set once.
    pub database_id: Option<u128>,
    /// Every file number below this one may have been used.
    pub next_file_id: Option<u64>,
    /// Every sequence number up to this one may have been used.
    pub last_seqno: Option<Seqno>,
    /// Log address at which replay starts: everything before it is in tables.
    pub log_replay_start: Option<u64>,
    /// Number of times that the database has been opened for writing.
    pub incarnation: Option<u64>,
    /// Ends of earlier incarnations' logs.
    pub accepted_ends: Vec<AcceptedEnd>,
    /// Every keyspace id below this one may have been used.
    pub next_keyspace_id: Option<u32>,
    /// True if the database was closed in order; any later edit takes that back.
    pub clean_close: Option<bool>,
    /// Files that leave the tree, by level and id. Applied before `added`.
    pub removed: Vec<(u8, u64)>,
    /// Files that enter the tree, by level.
    pub added: Vec<(u8, Arc<FileMeta>)>,
    /// Changes of the catalog, in order.
    pub catalog: Vec<CatalogChange>,
    /// Keyspaces that were dropped: their data is dead wherever it is.
    pub dropped_keyspaces: Vec<KeyspaceId>,
    /// Dropped keyspaces of which no file and no log record holds data any more, so that they can be forgotten.
    pub purged_keyspaces: Vec<KeyspaceId>,
}

/// Tags of the fields. An even tag is mandatory: a reader that does not know it must refuse the edit.
mod tag {
    pub(super) const DATABASE_ID: u64 = 2;
    pub(super) const NEXT_FILE_ID: u64 = 4;
    pub(super) const LAST_SEQNO: u64 = 6;
    pub(super) const LOG_REPLAY_START: u64 = 8;
    pub(super) const INCARNATION: u64 = 10;
    pub(super) const ACCEPTED_END: u64 = 12;
    pub(super) const NEXT_KEYSPACE_ID: u64 = 14;
    pub(super) const CLEAN_CLOSE: u64 = 16;
    pub(super) const REMOVED: u64 = 18;
    pub(super) const ADDED: u64 = 20;
    pub(super) const CATALOG_PUT: u64 = 22;
    pub(super) const CATALOG_REMOVE: u64 = 24;
    pub(super) const DROPPED_KEYSPACE: u64 = 26;
    pub(super) const PURGED_KEYSPACE: u64 = 28;
    /// The greatest tag that this build knows.
    pub(super) const NEWEST: u64 = PURGED_KEYSPACE;
}

impl VersionEdit {
    /// Adds a file to `level`.
    pub fn add(&mut self, level: u8, file: Arc<FileMeta>) {
        self.added.push((level, file));
    }

    /// Removes file `id` from `level`.
    pub fn remove(&mut self, level: u8, id: u64) {
        self.removed.push((level, id));
    }

    /// True if the edit changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == VersionEdit::default()
    }

    /// Appends the encoded edit to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(id) = self.database_id {
            put_field(out, tag::DATABASE_ID, |out| out.extend_from_slice(&id.to_le_bytes()));
        }
        for (tag, number) in [
            (tag::NEXT_FILE_ID, self.next_file_id),
            (tag::LAST_SEQNO, self.last_seqno),
            (tag::LOG_REPLAY_START, self.log_replay_start),
            (tag::INCARNATION, self.incarnation),
            (tag::NEXT_KEYSPACE_ID, self.next_keyspace_id.map(u64::from)),
            (tag::CLEAN_CLOSE, self.clean_close.map(u64::from)),
        ] {
            if let Some(number) = number {
                put_field(out, tag, |out| put_varint(out, number));
            }
        }
        for accepted in &self.accepted_ends {
            put_field(out, tag::ACCEPTED_END, |out| {
                put_varint(out, accepted.incarnation);
                put_varint(out, accepted.end);
            });
        }
        for &(level, id) in &self.removed {
            put_field(out, tag::REMOVED, |out| {
                out.push(level);
                put_varint(out, id);
            });
        }
        for (level, file) in &self.added {
            put_field(out, tag::ADDED, |out| {
                out.push(*level);
                file.encode(out);
            });
        }
        for change in &self.catalog {
            match &change.value {
                Some(value) => put_field(out, tag::CATALOG_PUT, |out| {
                    put_bytes(out, &change.key);
                    put_bytes(out, value);
                }),
                None => put_field(out, tag::CATALOG_REMOVE, |out| put_bytes(out, &change.key)),
            }
        }
        for (tag, keyspaces) in
            [(tag::DROPPED_KEYSPACE, &self.dropped_keyspaces), (tag::PURGED_KEYSPACE, &self.purged_keyspaces)]
        {
            for keyspace in keyspaces {
                put_field(out, tag, |out| put_varint(out, u64::from(keyspace.0)));
            }
        }
    }

    /// Decodes one edit, which takes all of `bytes`. `file` and `offset` say where the bytes come from, for errors.
    ///
    /// # Errors
    /// `Corrupt` if no version writes such bytes, `UnsupportedFormat` if a newer version wrote something that must
    /// not be ignored.
    pub fn decode(bytes: &[u8], file: &Path, offset: u64) -> Result<VersionEdit> {
        let mut edit = VersionEdit::default();
        let mut at = 0;
        let read = read_fields(&mut Reader::new(bytes), |tag, position, payload| {
            at = position;
            edit.read_field(tag, payload)
        });
        match read {
            Ok(()) => Ok(edit),
            Err(FieldError::Damaged(detail)) => {
                Err(Error::corrupt(file, offset + at as u64, format!("manifest edit: {detail}")))
            }
            Err(FieldError::UnknownField(unknown)) => {
                let found = u32::try_from(unknown).unwrap_or(u32::MAX);
                let newer = ErrorKind::UnsupportedFormat {
                    file: file.to_owned(),
                    found,
                    supported: tag::NEWEST as u32,
                };
                let place = offset + at as u64;
                Err(Error::from(newer).context(format!("manifest edit has field {unknown} at byte {place}")))
            }
        }
    }

    fn read_field(&mut self, tag: u64, payload: &mut Reader<'_>) -> Result<(), FieldError> {
        let cut_off = || FieldError::damaged(format!("field {tag} is cut off"));
        match tag {
            tag::DATABASE_ID => set(tag, &mut self.database_id, payload.u128())?,
            tag::NEXT_FILE_ID => set(tag, &mut self.next_file_id, payload.varint())?,
            tag::LAST_SEQNO => {
                set(tag, &mut self.last_seqno, payload.varint().filter(|&seqno| seqno <= SEQNO_MAX))?;
            }
            tag::LOG_REPLAY_START => set(tag, &mut self.log_replay_start, payload.varint())?,
            tag::INCARNATION => set(tag, &mut self.incarnation, payload.varint())?,
            tag::NEXT_KEYSPACE_ID => {
                set(tag, &mut self.next_keyspace_id, payload.varint().and_then(|id| u32::try_from(id).ok()))?;
            }
            tag::CLEAN_CLOSE => {
                let flag = payload.varint().filter(|&flag| flag <= 1);
                set(tag, &mut self.clean_close, flag.map(|flag| flag == 1))?;
            }
            tag::ACCEPTED_END => {
                let read = payload.varint().and_then(|incarnation| Some((incarnation, payload.varint()?)));
                let (incarnation, end) = read.ok_or_else(cut_off)?;
                self.accepted_ends.push(AcceptedEnd { incarnation, end });
            }
            tag::REMOVED => {
                let level = read_level(payload)?;
                self.removed.push((level, payload.varint().ok_or_else(cut_off)?));
            }
            tag::ADDED => {
                let level = read_level(payload)?;
                self.added.push((level, FileMeta::decode(payload)?));
            }
            tag::CATALOG_PUT => {
                let read = payload.bytes().and_then(|key| Some((key, payload.bytes()?)));
                let (key, value) = read.ok_or_else(cut_off)?;
                self.catalog.push(CatalogChange { key: key.to_vec(), value: Some(value.to_vec()) });
            }
            tag::CATALOG_REMOVE => {
                let key = payload.bytes().ok_or_else(cut_off)?;
                self.catalog.push(CatalogChange { key: key.to_vec(), value: None });
            }
            tag::DROPPED_KEYSPACE | tag::PURGED_KEYSPACE => {
                let id = payload.varint().and_then(|id| u32::try_from(id).ok()).ok_or_else(cut_off)?;
                let keyspaces = if tag == tag::DROPPED_KEYSPACE {
                    &mut self.dropped_keyspaces
                } else {
                    &mut self.purged_keyspaces
                };
                keyspaces.push(KeyspaceId(id));
            }
            unknown => return Err(FieldError::UnknownField(unknown)),
        }
        Ok(())
    }
}

/// Takes over a field that may appear once.
fn set<T>(tag: u64, field: &mut Option<T>, value: Option<T>) -> Result<(), FieldError> {
    let value = value.ok_or_else(|| FieldError::damaged(format!("field {tag} has no valid value")))?;
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(FieldError::damaged(format!("field {tag} appears twice"))),
    }
}

fn read_level(payload: &mut Reader<'_>) -> Result<u8, FieldError> {
    payload
        .u8()
        .filter(|&level| level <= BOTTOM_LEVEL)
        .ok_or_else(|| FieldError::damaged(format!("a file's level is not between 0 and {BOTTOM_LEVEL}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::any_file;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..12)
    }

    prop_compose! {
        fn any_edit()(
            (database_id, next_file_id, last_seqno, log_replay_start, incarnation) in any::<(
                Option<u128>, Option<u64>, Option<u64>, Option<u64>, Option<u64>,
            )>(),
            (next_keyspace_id, clean_close) in any::<(Option<u32>, Option<bool>)>(),
            ends in prop::collection::vec(any::<(u64, u64)>(), 0..3),
            removed in prop::collection::vec((0..=BOTTOM_LEVEL, any::<u64>()), 0..4),
            added in prop::collection::vec((0..=BOTTOM_LEVEL, any_file()), 0..4),
            catalog in prop::collection::vec((bytes(), prop::option::of(bytes())), 0..3),
            dropped in prop::collection::vec(any::<u32>(), 0..3),
            purged in prop::collection::vec(any::<u32>(), 0..3),
        ) -> VersionEdit {
            VersionEdit {
                database_id,
                next_file_id,
                last_seqno: last_seqno.map(|seqno| seqno & SEQNO_MAX),
                log_replay_start,
                incarnation,
                accepted_ends: ends.into_iter().map(|(incarnation, end)| AcceptedEnd { incarnation, end }).collect(),
                next_keyspace_id,
                clean_close,
                removed,
                added: added.into_iter().map(|(level, file)| (level, Arc::new(file))).collect(),
                catalog: catalog.into_iter().map(|(key, value)| CatalogChange { key, value }).collect(),
                dropped_keyspaces: dropped.into_iter().map(KeyspaceId).collect(),
                purged_keyspaces: purged.into_iter().map(KeyspaceId).collect(),
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<VersionEdit> {
        VersionEdit::decode(bytes, Path::new("MANIFEST"), 1000)
    }

    proptest! {
        #[test]
        fn an_edit_round_trips(edit in any_edit()) {
            let mut encoded = Vec::new();
            edit.encode(&mut encoded);
            prop_assert_eq!(decode(&encoded).unwrap(), edit);
        }

        #[test]
        fn any_bytes_give_an_edit_or_an_error(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }

        #[test]
        fn a_damaged_edit_gives_an_edit_or_an_error(edit in any_edit(), at: prop::sample::Index, byte: u8, cut: bool) {
            let mut encoded = Vec::new();
            edit.encode(&mut encoded);
            if !encoded.is_empty() {
                let at = at.index(encoded.len());
                encoded[at] = byte;
                if cut {
                    encoded.truncate(at);
                }
                let _ = decode(&encoded);
            }
        }
    }

    #[test]
    fn unknown_fields_are_skipped_if_optional_and_refused_if_mandatory() {
        let mut bytes = Vec::new();
        VersionEdit { next_file_id: Some(7), ..VersionEdit::default() }.encode(&mut bytes);
        put_field(&mut bytes, 101, |out| out.extend_from_slice(b"for later"));
        assert_eq!(decode(&bytes).unwrap().next_file_id, Some(7));
        put_field(&mut bytes, 102, |out| out.extend_from_slice(b"for later"));
        let error = decode(&bytes).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnsupportedFormat { found: 102, .. }), "{error}");
        assert!(error.to_string().contains("MANIFEST"), "{error}");
    }

    #[test]
    fn damage_is_reported_where_it_is() {
        let mut bytes = Vec::new();
        VersionEdit { next_file_id: Some(7), incarnation: Some(1), ..VersionEdit::default() }
            .encode(&mut bytes);
        let twice = [bytes.as_slice(), &bytes].concat();
        let error = decode(&twice).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { offset: 1006, .. }), "{error}");
        bytes.pop();
        let error = decode(&bytes).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error}");
    }
}
