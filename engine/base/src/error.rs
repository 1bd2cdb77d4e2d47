//! The one error type of the engine: opaque, with a [`kind`](Error::kind) to branch on and a text that says what
//! happened, where, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, for code that must decide what to do next. The text for people is the error's `Display`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An operating-system call failed.
    #[error("cannot {operation} {}: {}", path.display(), words(*io, *code))]
    Io {
        /// What was being done ("read", "sync", …).
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The class of the failure.
        io: std::io::ErrorKind,
        /// The system's number for it, if it has one: the classes do not tell all failures apart.
        code: Option<i32>,
    },
    /// The device or quota is full. Nothing acknowledged is lost; free space and retry.
    #[error("no space left to {operation} {}; free some space: an open database then goes on writing by itself, anything else must be tried again", path.display())]
    DiskFull {
        /// What was being done.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
    },
    /// Stored bytes are not what was written.
    #[error("{} is damaged at byte {offset}: {detail}", file.display())]
    Corrupt {
        /// The damaged file.
        file: PathBuf,
        /// Where in the file the damaged piece begins, in bytes.
        offset: u64,
        /// What does not fit.
        detail: String,
    },
    /// The file was written by a newer version, which knows a format (or a field, or a kind of record) that this build
    /// does not.
    #[error(
        "{} was written by a newer version: it has format {found}, this build reads up to {supported}; use a newer build",
        file.display()
    )]
    UnsupportedFormat {
        /// The file.
        file: PathBuf,
        /// Version found.
        found: u32,
        /// Newest version understood.
        supported: u32,
    },
    /// An encoded key exceeds its limit.
    #[error(
        "key of {len} bytes in {index} exceeds the limit of {max} bytes; shorten it or use a prefix-length index"
    )]
    KeyTooLong {
        /// The keyspace, table or index whose key it is.
        index: String,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A value exceeds its limit.
    #[error("value of {len} bytes exceeds the limit of {max} bytes; split it")]
    ValueTooLong {
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A value is not of its column's type and cannot be converted exactly.
    #[error("column {column} holds {expected}, but the value is {found}")]
    TypeMismatch {
        /// The column.
        column: String,
        /// Its type.
        expected: String,
        /// What was given.
        found: String,
    },
    /// The stored schema is not the one expected, or a schema is not valid.
    #[error("schema of {table}: {difference}")]
    SchemaMismatch {
        /// The table.
        table: String,
        /// What differs or is wrong.
        difference: String,
    },
    /// A row with this primary key exists already.
    #[error("table {table} already has a row with primary key {key}; use put to overwrite it")]
    KeyExists {
        /// The table.
        table: String,
        /// The key, as text.
        key: String,
    },
    /// Another row has this value in a unique index.
    #[error("unique index {index} of {table} already has {key}, in the row with primary key {existing}")]
    UniqueViolation {
        /// The table.
        table: String,
        /// The index.
        index: String,
        /// The key, as text.
        key: String,
        /// Primary key of the row that has it, as text.
        existing: String,
    },
    /// Another transaction changed what this one read. Retry it.
    #[error("conflict with a concurrent write of {what}; retry the transaction")]
    Conflict {
        /// What was changed.
        what: String,
    },
    /// Something named does not exist.
    #[error("there is no {what}")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// Something to be created exists already.
    #[error("{what} already exists")]
    AlreadyExists {
        /// What exists.
        what: String,
    },
    /// An argument or option is not usable as given.
    #[error("{detail}")]
    InvalidArgument {
        /// What is wrong, and what would be right.
        detail: String,
    },
    /// Low-priority work was refused to protect the rest.
    #[error("overloaded: retry after {retry_after:?} or use a higher priority")]
    Overloaded {
        /// When a retry has a chance.
        retry_after: Duration,
    },
    /// The commit is visible, but whether it will survive a crash is not known: writing or syncing the log failed.
    #[error(
        "the commit is visible but its durability is unknown: {cause}; read it back after a restart, or write it again"
    )]
    DurabilityUnknown {
        /// The failure of the log.
        cause: String,
    },
    /// The database has been closed.
    #[error("the database is closed")]
    Closed,
    /// Another process has the database open for writing.
    #[error("{} is in use by another process{}; close it there, or open read-only", path.display(), holder.as_ref().map(|h| format!(" ({h})")).unwrap_or_default())]
    InUse {
        /// The database directory.
        path: PathBuf,
        /// What is known of the other process.
        holder: Option<String>,
    },
    /// A write was asked of a database opened read-only.
    #[error("the database is open read-only; open it for writing to {operation}")]
    ReadOnly {
        /// What was asked.
        operation: &'static str,
    },
    /// The caller cancelled the operation, or its deadline passed.
    #[error("{what} was cancelled")]
    Cancelled {
        /// What was cancelled.
        what: &'static str,
    },
    /// A closure or a background job panicked; only that operation failed.
    #[error("{what} panicked: {message}")]
    Panicked {
        /// Whose code it was.
        what: &'static str,
        /// The panic's message.
        message: String,
    },
}

/// An error of the engine. Cheap to move; branch on [`kind`](Error::kind), show with `{}`.
///
/// ```
/// use alluvium_base::{Error, ErrorKind};
/// let error = Error::corrupt("000007.sst", 4096, "block checksum differs").context("opening table orders");
/// assert!(matches!(error.kind(), ErrorKind::Corrupt { offset: 4096, .. }));
/// assert_eq!(error.to_string(), "opening table orders: 000007.sst is damaged at byte 4096: block checksum differs");
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    /// What was being done, outermost last.
    context: Vec<String>,
}

impl Error {
    /// What went wrong, to branch on.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Adds what was being done when the error happened.
    #[must_use]
    pub fn context(mut self, doing: impl Into<String>) -> Error {
        self.0.context.push(doing.into());
        self
    }

    /// A failed operating-system call; running out of space becomes [`ErrorKind::DiskFull`].
    #[must_use]
    pub fn io(operation: &'static str, path: impl AsRef<Path>, error: &std::io::Error) -> Error {
        let path = path.as_ref().to_owned();
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ErrorKind::DiskFull { operation, path }.into()
            }
            io => ErrorKind::Io { operation, path, io, code: error.raw_os_error() }.into(),
        }
    }

    /// Damaged bytes at `offset` of `file`.
    #[must_use]
    pub fn corrupt(file: impl AsRef<Path>, offset: u64, detail: impl Into<String>) -> Error {
        ErrorKind::Corrupt { file: file.as_ref().to_owned(), offset, detail: detail.into() }.into()
    }

    /// An argument that is not usable as given.
    #[must_use]
    pub fn invalid(detail: impl Into<String>) -> Error {
        ErrorKind::InvalidArgument { detail: detail.into() }.into()
    }

    /// Something named that does not exist.
    #[must_use]
    pub fn not_found(what: impl Into<String>) -> Error {
        ErrorKind::NotFound { what: what.into() }.into()
    }

    /// True if a file or directory was looked for and is not there.
    #[must_use]
    pub fn is_missing_file(&self) -> bool {
        matches!(self.kind(), ErrorKind::Io { io: std::io::ErrorKind::NotFound, .. })
    }

    /// True if stored bytes are damaged.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        matches!(self.kind(), ErrorKind::Corrupt { .. } | ErrorKind::UnsupportedFormat { .. })
    }
}

/// What went wrong with a file, in plain words: neither the names of Rust's error kinds nor the system's numbers.
///
/// ```
/// use std::io;
/// assert_eq!(alluvium_base::error::describe_io(&io::ErrorKind::NotFound.into()), "no such file or directory");
/// assert_eq!(alluvium_base::error::describe_io(&io::Error::from_raw_os_error(5)), "input/output error");
/// ```
#[must_use]
pub fn describe_io(error: &std::io::Error) -> String {
    match error.get_ref() {
        Some(message) => message.to_string(),
        None => words(error.kind(), error.raw_os_error()),
    }
}

fn words(kind: std::io::ErrorKind, code: Option<i32>) -> String {
    use std::io::ErrorKind as Io;
    let known = match kind {
        Io::NotFound => "no such file or directory",
        Io::PermissionDenied => "permission denied",
        Io::AlreadyExists => "something is there already",
        Io::NotADirectory => "it, or a part of its path, is a file, not a directory",
        Io::IsADirectory => "it is a directory, not a file",
        Io::StorageFull => "no space left on the device",
        Io::UnexpectedEof => "it ends too early",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    // Many failures share the kind "uncategorized", so the system's own words come first.
    let text =
        code.map_or_else(|| kind.to_string(), |code| std::io::Error::from_raw_os_error(code).to_string());
    let plain = text.split(" (os error").next().unwrap_or(&text);
    if matches!(plain, "other error" | "uncategorized error") {
        return "input/output error".to_owned();
    }
    let mut chars = plain.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error(Box::new(Inner { kind, context: Vec::new() }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for doing in self.0.context.iter().rev() {
            write!(f, "{doing}: ")?;
        }
        self.0.kind.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} [{:?}]", self.0.kind)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn names_of_error_kinds_reached_people() {
        let shown = |error: io::Error| Error::io("open", "x", &error).to_string();
        for (code, expected) in [
            (2, "cannot open x: no such file or directory"),
            (5, "cannot open x: input/output error"),
            (13, "cannot open x: permission denied"),
            (17, "cannot open x: something is there already"),
            (20, "cannot open x: it, or a part of its path, is a file, not a directory"),
            (21, "cannot open x: it is a directory, not a file"),
            (24, "cannot open x: too many open files"),
            (30, "cannot open x: read-only file system"),
        ] {
            assert_eq!(shown(io::Error::from_raw_os_error(code)), expected);
        }
        assert_eq!(shown(io::ErrorKind::NotFound.into()), "cannot open x: no such file or directory");
        assert_eq!(shown(io::Error::other("planned")), "cannot open x: input/output error");
        assert_eq!(describe_io(&io::Error::other("planned")), "planned");
    }
}
