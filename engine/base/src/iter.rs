//! The one shape of every iterator inside the tree: memtable, table, level, merge.

use crate::Result;
use crate::key::Trailer;

/// A cursor over entries in the order of [`key::compare`](crate::key::compare): full key ascending, trailer
/// descending. Every version of every key is visible here; hiding old versions is the reader's business.
///
/// Rules that every implementation keeps and every user may rely on:
/// - A new iterator is not valid: position it first.
/// - `key`, `trailer` and `value` may be called only while `valid()`; what they return lives until the next move.
/// - Moving past either end makes the iterator invalid without an error. `next` and `prev` may be called only while
///   `valid()`.
/// - After an error the iterator is invalid and stays failed: every later move returns an error of the same kind.
/// - `next` and `prev` may be mixed freely.
/// - An iterator owns what it reads (`'static`), so it may outlive the structure that made it.
pub trait InternalIterator: Send {
    /// True if the iterator stands on an entry.
    fn valid(&self) -> bool;
    /// The full key of the current entry.
    fn key(&self) -> &[u8];
    /// Sequence number and kind of the current entry.
    fn trailer(&self) -> Trailer;
    /// The value of the current entry (empty for tombstones).
    fn value(&self) -> &[u8];
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or after (`key`, `trailer`).
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()>;
    /// Moves to the last entry strictly before (`key`, `trailer`).
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()>;
    /// Moves to the next entry.
    fn next(&mut self) -> Result<()>;
    /// Moves to the previous entry.
    fn prev(&mut self) -> Result<()>;
}

impl<T: InternalIterator + ?Sized> InternalIterator for Box<T> {
    fn valid(&self) -> bool {
        (**self).valid()
    }
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    fn trailer(&self) -> Trailer {
        (**self).trailer()
    }
    fn value(&self) -> &[u8] {
        (**self).value()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        (**self).seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<()> {
        (**self).seek_to_last()
    }
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        (**self).seek(key, trailer)
    }
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        (**self).seek_before(key, trailer)
    }
    fn next(&mut self) -> Result<()> {
        (**self).next()
    }
    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }
}
