//! What can end an inspection, and the exit code that says so.

use std::path::PathBuf;

use alluvium_base::{Error, ErrorKind};

/// The result of everything in the inspector that can end it.
pub type Result<T, E = InspectError> = std::result::Result<T, E>;

/// Why an inspection ended early.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The command line does not make sense.
    #[error("{0}")]
    Usage(String),
    /// The engine, or a file, failed.
    #[error(transparent)]
    Engine(#[from] Error),
    /// Reading failed, and another process writes the database: that is probably why.
    #[error(
        "{error}\nthe database is open for writing in {holder}, which may have changed what was being read: try again, or close it there"
    )]
    Disturbed {
        /// What failed.
        error: Error,
        /// The process that writes.
        holder: String,
    },
    /// The file that `sst` was given is of another kind.
    #[error("{} is not a table file (no footer magic), or it is cut off at its end", .0.display())]
    NotATable(PathBuf),
    /// The answer could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(String),
    /// Whoever reads the output has stopped reading, as `head` does. No error to anyone.
    #[error("nobody reads the output any more")]
    OutputClosed,
}

/// Exit codes of `alluvium-inspect`, as documented in its `--help`. Those that `alluvium-load` has too mean the same.
pub mod exit {
    /// All is fine.
    pub const FINE: u8 = 0;
    /// `verify`, `sst verify`, `index-check`, `repair`, `backup list` or `backup verify` found problems.
    pub const PROBLEMS: u8 = 1;
    /// The command line does not make sense.
    pub const USAGE: u8 = 2;
    /// There is no such database, table, index, column or file.
    pub const NOT_FOUND: u8 = 4;
    /// Something that had to be read is damaged, or of a newer format.
    pub const DAMAGED: u8 = 5;
    /// Reading failed.
    pub const IO: u8 = 8;
    /// Another process has the database open and has changed what was being read.
    pub const IN_USE: u8 = 9;
}

impl InspectError {
    /// The exit code of a process that ends with this error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            InspectError::Usage(_) => exit::USAGE,
            InspectError::OutputClosed => exit::FINE,
            InspectError::Output(_) => exit::IO,
            InspectError::NotATable(_) => exit::DAMAGED,
            InspectError::Disturbed { .. } => exit::IN_USE,
            InspectError::Engine(error) if error.is_missing_file() => exit::NOT_FOUND,
            InspectError::Engine(error) if error.is_corrupt() => exit::DAMAGED,
            InspectError::Engine(error) => match error.kind() {
                ErrorKind::NotFound { .. } => exit::NOT_FOUND,
                ErrorKind::InUse { .. } => exit::IN_USE,
                ErrorKind::InvalidArgument { .. }
                | ErrorKind::TypeMismatch { .. }
                | ErrorKind::SchemaMismatch { .. }
                | ErrorKind::KeyTooLong { .. } => exit::USAGE,
                _ => exit::IO,
            },
        }
    }
}
