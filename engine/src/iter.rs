//! Iteration as a user sees it: one entry per key, at one snapshot, between two bounds, in both directions.
//!
//! Below is one merged stream of every version of every key ([`MergingIterator`]). This file hides what a reader at the
//! snapshot must not see:
//!
//! - Forward: of a key's versions (newest first) skip those newer than the snapshot; the first that is left decides. A
//!   tombstone, point or range, means that the key is absent; then all older versions are skipped.
//! - Backward: a key's versions come oldest first; walk to the front of the key and remember the last one that the
//!   snapshot may see.
//!
//! Forward, the merged stream stands *on* the entry that is shown (nothing is copied); backward, it stands on the last
//! version of the key before, and the shown entry is in a buffer. Turning around moves it to the right place first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{KEYSPACE_ID_BYTES, KeyspaceId, Kind, Seqno, Trailer};
use alluvium_base::range_tombstone::FragmentedTombstones;
use alluvium_base::{Error, ErrorKind, KeyRange, Result};
use alluvium_compaction::MergingIterator;

use crate::read_state::ReadState;
use crate::snapshot::SnapshotGuard;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// Not positioned yet, or past an end.
    Nowhere,
    /// The merged stream stands on the shown entry.
    OnEntry,
    /// The shown entry is in the buffers; the merged stream stands before all of its versions (or is exhausted).
    BeforeEntry,
}

/// A cursor over the entries of one keyspace at one snapshot. See [`Keyspace::iter`](crate::Keyspace::iter).
///
/// It owns its snapshot and whatever it reads from: it may outlive every handle of the database, and what it shows does
/// not change. A long-lived iterator keeps old versions and files on disk; its age is in the statistics.
pub struct Iter {
    merged: MergingIterator,
    tombstones: Arc<FragmentedTombstones>,
    bounds: KeyRange,
    snapshot: Seqno,
    position: Position,
    key: Vec<u8>,
    value: Vec<u8>,
    failed: Option<Error>,
    closed: Arc<AtomicBool>,
    _snapshot: Arc<SnapshotGuard>,
    _state: Arc<ReadState>,
}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter")
            .field("bounds", &self.bounds)
            .field("snapshot", &self.snapshot)
            .finish_non_exhaustive()
    }
}

impl Iter {
    pub(crate) fn new(
        merged: MergingIterator,
        tombstones: Arc<FragmentedTombstones>,
        bounds: KeyRange,
        snapshot: Arc<SnapshotGuard>,
        state: Arc<ReadState>,
        closed: Arc<AtomicBool>,
    ) -> Iter {
        Iter {
            merged,
            tombstones,
            bounds,
            snapshot: snapshot.seqno(),
            position: Position::Nowhere,
            key: Vec::new(),
            value: Vec::new(),
            failed: None,
            closed,
            _snapshot: snapshot,
            _state: state,
        }
    }

    /// True if the iterator stands on an entry.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.position != Position::Nowhere
    }

    /// The current key, without the keyspace id; empty if the iterator is not valid.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        alluvium_base::key::user_key(self.full_key())
    }

    fn full_key(&self) -> &[u8] {
        match self.position {
            Position::Nowhere => &[],
            Position::OnEntry => self.merged.key(),
            Position::BeforeEntry => &self.key,
        }
    }

    /// The current value; empty if the iterator is not valid.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        match self.position {
            Position::Nowhere => &[],
            Position::OnEntry => self.merged.value(),
            Position::BeforeEntry => &self.value,
        }
    }

    /// Moves to the first entry. Returns whether there is one.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if something that must be read cannot be; the iterator then stays failed.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        let start = std::mem::take(&mut self.bounds.start);
        let result = self.moving(|this| {
            this.merged.seek(&start, Trailer::at_snapshot(this.snapshot))?;
            this.settle_forward()
        });
        self.bounds.start = start;
        result
    }

    /// Moves to the last entry. Returns whether there is one.
    ///
    /// # Errors
    /// As [`seek_to_first`](Iter::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<bool> {
        let end = std::mem::take(&mut self.bounds.end);
        let result = self.moving(|this| {
            this.merged.seek_before(&end, Trailer::NEWEST)?;
            Ok(())
        });
        self.bounds.end = end;
        result.and_then(|_| self.moving(Iter::settle_backward))
    }

    /// Moves to the first entry whose key is at least `key`. Returns whether there is one.
    ///
    /// # Errors
    /// As [`seek_to_first`](Iter::seek_to_first).
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let full_key = self.keyspace().full_key(key);
        if full_key < self.bounds.start {
            return self.seek_to_first();
        }
        self.moving(|this| {
            this.merged.seek(&full_key, Trailer::at_snapshot(this.snapshot))?;
            this.settle_forward()
        })
    }

    /// Moves to the last entry whose key is less than `key`. Returns whether there is one.
    ///
    /// # Errors
    /// As [`seek_to_first`](Iter::seek_to_first).
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool> {
        let full_key = self.keyspace().full_key(key);
        if full_key >= self.bounds.end {
            return self.seek_to_last();
        }
        self.moving(|this| {
            this.merged.seek_before(&full_key, Trailer::NEWEST)?;
            this.settle_backward()
        })
    }

    /// Moves to the next entry; from a new iterator, or one that has run off either end, to the first: an iterator that
    /// has said "no more" starts over. Returns whether there is one.
    ///
    /// # Errors
    /// As [`seek_to_first`](Iter::seek_to_first).
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor lends what it shows, which `Iterator` cannot"
    )]
    pub fn next(&mut self) -> Result<bool> {
        match self.position {
            Position::Nowhere if self.failed.is_none() => self.seek_to_first(),
            Position::Nowhere => self.moving(|_| Ok(())),
            Position::OnEntry => self.moving(|this| {
                this.remember_key();
                this.skip_versions_of_remembered_key()?;
                this.settle_forward()
            }),
            Position::BeforeEntry => self.moving(|this| {
                // The stream stands before the shown key: find it again, then leave it.
                let key = std::mem::take(&mut this.key);
                let sought = this.merged.seek(&key, Trailer::OLDEST);
                this.key = key;
                sought?;
                this.skip_versions_of_remembered_key()?;
                this.settle_forward()
            }),
        }
    }

    /// Moves to the previous entry; from a new iterator, or one that has run off either end, to the last. Returns
    /// whether there is one.
    ///
    /// # Errors
    /// As [`seek_to_first`](Iter::seek_to_first).
    pub fn prev(&mut self) -> Result<bool> {
        match self.position {
            Position::Nowhere if self.failed.is_none() => self.seek_to_last(),
            Position::Nowhere => self.moving(|_| Ok(())),
            Position::OnEntry => self.moving(|this| {
                this.remember_key();
                let key = std::mem::take(&mut this.key);
                let sought = this.merged.seek_before(&key, Trailer::NEWEST);
                this.key = key;
                sought?;
                this.settle_backward()
            }),
            Position::BeforeEntry => self.moving(Iter::settle_backward),
        }
    }

    fn keyspace(&self) -> KeyspaceId {
        KeyspaceId::of(&self.bounds.start).unwrap_or(KeyspaceId::CATALOG)
    }

    /// Runs a move; after an error the iterator shows nothing and every later move fails alike.
    fn moving(&mut self, step: impl FnOnce(&mut Iter) -> Result<()>) -> Result<bool> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.closed.load(Ordering::Relaxed) {
            self.position = Position::Nowhere;
            return Err(ErrorKind::Closed.into());
        }
        match step(self) {
            Ok(()) => Ok(self.valid()),
            Err(error) => {
                self.position = Position::Nowhere;
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    fn remember_key(&mut self) {
        self.key.clear();
        self.key.extend_from_slice(self.merged.key());
    }

    fn skip_versions_of_remembered_key(&mut self) -> Result<()> {
        while self.merged.valid() && self.merged.key() == self.key.as_slice() {
            self.merged.next()?;
        }
        Ok(())
    }

    /// True if the merged stream's entry, which the snapshot may see, says that its key is there.
    fn current_is_put(&self) -> Result<bool> {
        is_put(&self.tombstones, self.merged.key(), self.merged.trailer(), self.snapshot)
    }

    /// From wherever the merged stream stands, goes forward to the first key that is there.
    fn settle_forward(&mut self) -> Result<()> {
        self.position = Position::Nowhere;
        while self.merged.valid() && self.merged.key() < self.bounds.end.as_slice() {
            if self.merged.trailer().seqno() > self.snapshot {
                self.merged.next()?;
                continue;
            }
            if self.current_is_put()? {
                self.position = Position::OnEntry;
                return Ok(());
            }
            self.remember_key();
            self.skip_versions_of_remembered_key()?;
        }
        Ok(())
    }

    /// From wherever the merged stream stands, goes backward to the first key that is there.
    fn settle_backward(&mut self) -> Result<()> {
        self.position = Position::Nowhere;
        while self.merged.valid() && self.merged.key() >= self.bounds.start.as_slice() {
            self.remember_key();
            let mut there = false;
            while self.merged.valid() && self.merged.key() == self.key.as_slice() {
                if self.merged.trailer().seqno() <= self.snapshot {
                    there = self.current_is_put()?;
                    if there {
                        self.value.clear();
                        self.value.extend_from_slice(self.merged.value());
                    }
                }
                self.merged.prev()?;
            }
            if there {
                self.position = Position::BeforeEntry;
                return Ok(());
            }
        }
        Ok(())
    }
}

/// True if a reader at `snapshot` finds a value in the version (`key`, `trailer`), given the range tombstones.
pub(crate) fn is_put(
    tombstones: &FragmentedTombstones,
    key: &[u8],
    trailer: Trailer,
    snapshot: Seqno,
) -> Result<bool> {
    let covered = || tombstones.newest_covering(key, snapshot).is_some_and(|seqno| seqno > trailer.seqno());
    match trailer.kind() {
        Some(Kind::Put) => Ok(tombstones.is_empty() || !covered()),
        Some(Kind::Delete | Kind::DeleteOnce) => Ok(false),
        Some(Kind::Merge | Kind::RangeDelete) | None => Err(unexpected_kind(key, trailer)),
    }
}

/// An entry whose kind this version never writes as a point entry.
pub(crate) fn unexpected_kind(key: &[u8], trailer: Trailer) -> Error {
    Error::corrupt(
        "table",
        0,
        format!("the key {} has an entry of unknown kind {}", hex(key), trailer.kind_byte()),
    )
}

/// Bytes as hexadecimal digits, at most 32 of them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text: String = bytes.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > 32 {
        text.push('…');
    }
    text
}

/// Bounds of the user keys `[start, end)` of a keyspace; `None` for `end` means up to the keyspace's end.
pub(crate) fn bounds_in(keyspace: KeyspaceId, start: &[u8], end: Option<&[u8]>) -> KeyRange {
    let end = match end {
        Some(end) => keyspace.full_key(end),
        // The very last id has no successor; ids are handed out one by one and never get there.
        None => keyspace.end().map_or_else(|| vec![0xff; KEYSPACE_ID_BYTES + 1], |end| end.to_vec()),
    };
    KeyRange { start: keyspace.full_key(start), end }
}
