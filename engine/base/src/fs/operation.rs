//! The kinds of calls that reach a file system, and counters for them.
//!
//! Tests count calls to find every place where one can fail ([`fault`](super::fault)), and to prove that a change saves
//! I/O ([`memory`](super::memory)).

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $name:ident => $verb:literal,)*) => {
        /// One kind of call of [`Fs`](super::Fs), [`File`](super::File) or [`Mapping`](super::Mapping).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(usize)]
        pub enum Operation {
            $($(#[doc = $doc])* $name,)*
        }

        impl Operation {
            /// Every kind of call.
            pub const ALL: &[Operation] = &[$(Operation::$name,)*];

            /// What the call does, as it stands in errors ("cannot *write* 000007.sst").
            #[must_use]
            pub fn verb(self) -> &'static str {
                match self {
                    $(Operation::$name => $verb,)*
                }
            }
        }
    };
}

operations! {
    /// Opening an existing file.
    Open => "open",
    /// Opening a file in one of the modes that create it.
    Create => "create",
    /// Removing a file's name.
    RemoveFile => "remove",
    /// Renaming.
    Rename => "rename",
    /// Giving a file a second name.
    HardLink => "link",
    /// Creating a directory.
    CreateDirectory => "create directory",
    /// Removing a directory.
    RemoveDirectory => "remove directory",
    /// Making the names of a directory durable.
    SyncDirectory => "sync directory",
    /// Listing a directory.
    ListDirectory => "list",
    /// Asking whether a name exists.
    Exists => "look for",
    /// Asking for the size of a file by its path.
    FileSize => "get the size of",
    /// Taking a file lock.
    Lock => "lock",
    /// Mapping a file.
    Map => "map",
    /// Asking for the free space.
    AvailableSpace => "get the free space of",
    /// Reading from an open file.
    Read => "read",
    /// Writing to an open file.
    Write => "write",
    /// Making an open file durable.
    Sync => "sync",
    /// Starting write-back without waiting.
    StartWriteback => "start writing back",
    /// Asking for the size of an open file.
    Len => "get the size of",
    /// Changing the size of an open file.
    SetLen => "change the size of",
    /// Announcing a read.
    ReadAhead => "read ahead",
    /// Storing into a mapping. It cannot fail.
    MappedStore => "store into",
    /// Loading from a mapping. It cannot fail.
    MappedLoad => "load from",
}

impl Operation {
    /// False for the calls that have no result to fail with: those on a mapping.
    #[must_use]
    pub fn can_fail(self) -> bool {
        !matches!(self, Operation::MappedStore | Operation::MappedLoad)
    }

    /// True for the calls that change what a file or a directory holds, or make it durable. A crash between two others
    /// leaves the same state, so it is enough to crash at each of these.
    #[must_use]
    pub fn changes_state(self) -> bool {
        matches!(
            self,
            Operation::Create
                | Operation::RemoveFile
                | Operation::Rename
                | Operation::HardLink
                | Operation::CreateDirectory
                | Operation::RemoveDirectory
                | Operation::SyncDirectory
                | Operation::Lock
                | Operation::Write
                | Operation::Sync
                | Operation::SetLen
                | Operation::MappedStore
        )
    }
}

/// How often each [`Operation`] was called.
#[derive(Debug, Default)]
pub struct CallCounts([AtomicU64; Operation::ALL.len()]);

impl CallCounts {
    /// Number of calls of one kind.
    #[must_use]
    pub fn of(&self, operation: Operation) -> u64 {
        self.0.get(operation as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Number of calls of every kind that can fail.
    #[must_use]
    pub fn fallible(&self) -> u64 {
        Operation::ALL
            .iter()
            .filter(|operation| operation.can_fail())
            .map(|&operation| self.of(operation))
            .sum()
    }

    /// Counts one call.
    pub(super) fn record(&self, operation: Operation) {
        if let Some(count) = self.0.get(operation as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
