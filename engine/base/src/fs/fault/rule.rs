//! Which calls a fault hits, and what it does to them.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::clock::Clock;
use crate::fs::operation::Operation;

/// What a failing call reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// `EIO`: the device failed.
    Io,
    /// `ENOSPC`: the device is full.
    DiskFull,
    /// `EROFS`: the medium cannot be written to.
    ReadOnlyMedium,
}

impl Failure {
    pub(super) fn error(self, operation: Operation, path: &Path) -> Error {
        let error = match self {
            Failure::Io => io::Error::from_raw_os_error(libc::EIO),
            Failure::DiskFull => io::Error::from_raw_os_error(libc::ENOSPC),
            Failure::ReadOnlyMedium => io::Error::from_raw_os_error(libc::EROFS),
        };
        Error::io(operation.verb(), path, &error)
    }
}

/// One call, as a callback of a rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What is called.
    pub operation: Operation,
    /// The file or directory; for an open file, the path it was opened by.
    pub path: &'a Path,
    /// How many calls had matched the rule before this one.
    pub number: u64,
}

/// A callback of a rule.
pub type Callback = Arc<dyn Fn(Call<'_>) + Send + Sync>;

/// What a rule does to a call.
#[derive(Clone)]
pub enum Action {
    /// Nothing; the call is only counted.
    Count,
    /// The call fails and does nothing. A call on a mapping cannot fail: it is left alone.
    Fail(Failure),
    /// The call does all of its work and then fails nevertheless.
    FailAfter(Failure),
    /// A sync of a file fails as on Linux: pages that were to be written count as clean from now on, without being
    /// durable, so that a later sync does not cover them. Needs [`FaultFs::over_memory`](super::FaultFs::over_memory);
    /// over another file system, and for other calls, it is `Fail(Failure::Io)`.
    FailDroppingDirty,
    /// As [`Action::FailDroppingDirty`], and those pages leave the page cache at once, so that reads give the durable
    /// bytes again: what Btrfs does, and any file system sooner or later.
    FailEvictingDirty,
    /// Only the first `bytes` of a write are written, then it fails. A store into a mapping is cut without an error (a
    /// word is stored as a whole or not at all). Other calls fail and do nothing.
    ShortWrite {
        /// Bytes that are written.
        bytes: usize,
        /// What is reported.
        failure: Failure,
    },
    /// A read gives at most `bytes`, as if the file ended there. Other calls are left alone.
    ShortRead {
        /// Bytes that are read.
        bytes: usize,
    },
    /// One bit of what is read, from a file or a mapping, is inverted. Other calls are left alone.
    FlipBit {
        /// Number of the bit, from the lowest of the first byte, modulo the number of bits read.
        bit: u64,
    },
    /// The call waits first.
    Delay {
        /// The clock to wait on.
        clock: Arc<dyn Clock>,
        /// How long.
        duration: Duration,
    },
    /// The callback runs first: it may take a fork of the files as a crash would leave them here, or kill the process,
    /// whereupon the call itself fails.
    Call(Callback),
    /// As [`Action::Call`], but in the midst of a write or of a store into a mapping, after `bytes` bytes of it.
    CallAfter {
        /// Bytes that are written before.
        bytes: usize,
        /// The callback.
        callback: Callback,
    },
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Count => write!(f, "Count"),
            Action::Fail(failure) => write!(f, "Fail({failure:?})"),
            Action::FailAfter(failure) => write!(f, "FailAfter({failure:?})"),
            Action::FailDroppingDirty => write!(f, "FailDroppingDirty"),
            Action::FailEvictingDirty => write!(f, "FailEvictingDirty"),
            Action::ShortWrite { bytes, failure } => write!(f, "ShortWrite({bytes} bytes, {failure:?})"),
            Action::ShortRead { bytes } => write!(f, "ShortRead({bytes} bytes)"),
            Action::FlipBit { bit } => write!(f, "FlipBit({bit})"),
            Action::Delay { duration, .. } => write!(f, "Delay({duration:?})"),
            Action::Call(_) => write!(f, "Call"),
            Action::CallAfter { bytes, .. } => write!(f, "CallAfter({bytes} bytes)"),
        }
    }
}

#[derive(Clone, Debug)]
enum PathPattern {
    Any,
    EndsWith(String),
    Contains(String),
}

impl PathPattern {
    fn matches(&self, path: &Path) -> bool {
        match self {
            PathPattern::Any => true,
            PathPattern::EndsWith(text) => path.to_string_lossy().ends_with(text.as_str()),
            PathPattern::Contains(text) => path.to_string_lossy().contains(text.as_str()),
        }
    }
}

/// Which calls are hit, and how. As made by [`new`](Rule::new), every call that can fail, on any path, forever.
///
/// ```
/// use alluvium_base::fs::fault::{Action, Failure, Rule};
/// use alluvium_base::fs::operation::Operation;
/// // The third sync of a log segment fails, once.
/// let rule = Rule::new(Action::Fail(Failure::Io)).on(&[Operation::Sync]).path_ends_with(".log").from_call(2).times(1);
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    operations: Vec<Operation>,
    path: PathPattern,
    first: u64,
    times: u64,
    action: Action,
}

impl Rule {
    /// A rule for every call that can fail, that is all but those on mappings.
    #[must_use]
    pub fn new(action: Action) -> Rule {
        let operations = Operation::ALL.iter().copied().filter(|operation| operation.can_fail()).collect();
        Rule { operations, path: PathPattern::Any, first: 0, times: u64::MAX, action }
    }

    /// Only calls of these kinds.
    #[must_use]
    pub fn on(mut self, operations: &[Operation]) -> Rule {
        self.operations = operations.to_vec();
        self
    }

    /// Only the calls that change what is stored or make it durable, stores into mappings included: the places where a
    /// crash makes a difference.
    #[must_use]
    pub fn on_changes(mut self) -> Rule {
        self.operations =
            Operation::ALL.iter().copied().filter(|operation| operation.changes_state()).collect();
        self
    }

    /// Only paths that end with this text. Of calls with two paths, either may match.
    #[must_use]
    pub fn path_ends_with(mut self, text: impl Into<String>) -> Rule {
        self.path = PathPattern::EndsWith(text.into());
        self
    }

    /// Only paths that contain this text. Of calls with two paths, either may match.
    #[must_use]
    pub fn path_contains(mut self, text: impl Into<String>) -> Rule {
        self.path = PathPattern::Contains(text.into());
        self
    }

    /// Leaves the first `number` matching calls alone.
    #[must_use]
    pub fn from_call(mut self, number: u64) -> Rule {
        self.first = number;
        self
    }

    /// Hits only so many calls.
    #[must_use]
    pub fn times(mut self, times: u64) -> Rule {
        self.times = times;
        self
    }

    pub(super) fn matches(&self, operation: Operation, paths: [&Path; 2]) -> bool {
        self.operations.contains(&operation) && paths.iter().any(|path| self.path.matches(path))
    }

    /// What happens to a matching call; `None` outside of the rule's range of calls.
    pub(super) fn action_for(&self, number: u64) -> Option<&Action> {
        let hit = number.checked_sub(self.first).is_some_and(|past| past < self.times);
        hit.then_some(&self.action)
    }
}
