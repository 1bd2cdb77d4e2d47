//! What a reader sees: one pointer to the active memtable, the frozen ones and the table files.
//!
//! A read loads this pointer once and keeps it; rotation, flush and compaction install a new one and never change an old
//! one. Order of loading matters. A `get` loads the state **first** and the visible sequence number second: whatever a
//! compaction dropped before the state was installed was older than something visible then. A snapshot does it the other
//! way round, but registers itself first, so that compactions that start later keep its answers.

use std::sync::Arc;

use alluvium_base::key::Seqno;
use alluvium_compaction::Version;
use alluvium_sstable::PinnedValue as TableValue;

use crate::memtable::{Memtable, MemtableValue};

/// A frozen memtable that waits for its flush.
#[derive(Debug)]
pub(crate) struct Immutable {
    pub(crate) memtable: Arc<Memtable>,
    /// Every record of the log below this address is in this memtable or in an older one.
    pub(crate) log_end: u64,
    /// The newest sequence number that the memtable can hold.
    pub(crate) newest: Seqno,
}

/// Everything that is read: newest first, the active memtable, the frozen ones (last = newest), the tables.
#[derive(Debug)]
pub(crate) struct ReadState {
    pub(crate) active: Arc<Memtable>,
    pub(crate) immutables: Vec<Arc<Immutable>>,
    pub(crate) version: Arc<Version>,
}

/// A value that stays valid as long as it is held, whatever happens to the database meanwhile.
///
/// It pins what it points into (a cached block or a memtable); values of up to 512 bytes from a memtable are copied
/// instead.
#[derive(Clone)]
pub struct PinnedValue(Pin);

#[derive(Clone)]
enum Pin {
    Table(TableValue),
    Memtable(MemtableValue),
    Copied(Box<[u8]>),
}

impl PinnedValue {
    pub(crate) fn from_table(value: TableValue) -> PinnedValue {
        PinnedValue(Pin::Table(value))
    }

    pub(crate) fn from_memtable(value: MemtableValue) -> PinnedValue {
        PinnedValue(Pin::Memtable(value))
    }

    pub(crate) fn copied(value: &[u8]) -> PinnedValue {
        PinnedValue(Pin::Copied(value.into()))
    }
}

impl std::ops::Deref for PinnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Pin::Table(value) => value,
            Pin::Memtable(value) => value,
            Pin::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for PinnedValue {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for PinnedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedValue({} bytes)", self.len())
    }
}
