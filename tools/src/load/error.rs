//! What can end a load, and the exit code that says so.

use alluvium_base::{Error, ErrorKind};

/// The result of everything in the loader that can end it.
pub type Result<T, E = LoadError> = std::result::Result<T, E>;

/// Why a load failed. The database is as it was, except for `Output`, which says how far it came.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The command line or the input's shape does not make sense; nothing was tried.
    #[error("{0}")]
    Usage(String),
    /// More rows were refused than `--max-errors` allows, or keys repeat and `--on-duplicate` is `error`.
    #[error("{0}")]
    TooManyErrors(String),
    /// What was written is not what was read.
    #[error(
        "verification failed: {0}; nothing was loaded. This is a bug or a failing disk: please report it"
    )]
    Verification(String),
    /// The user asked to stop.
    #[error("stopped as asked; the database is as it was")]
    Stopped,
    /// An input cannot be opened, read or unpacked.
    #[error("cannot read {input}: {detail}")]
    Input {
        /// Name of the input as given.
        input: String,
        /// What went wrong, and where.
        detail: String,
    },
    /// What is done could not be told: the summary, the plan or the rejected rows could not be written.
    #[error("{0}")]
    Output(String),
    /// The engine, or a file of the loader, failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Exit codes of `alluvium-load`, as documented in its `--help`.
pub mod exit {
    /// All rows are loaded.
    pub const CLEAN: u8 = 0;
    /// The command line does not make sense.
    pub const USAGE: u8 = 2;
    /// Loaded, but some rows were rejected.
    pub const ROWS_REJECTED: u8 = 3;
    /// Not loaded: too many rows were bad.
    pub const TOO_MANY_ERRORS: u8 = 4;
    /// Not loaded: what was written could not be verified.
    pub const VERIFICATION_FAILED: u8 = 5;
    /// Not loaded: stopped by the user.
    pub const STOPPED: u8 = 6;
    /// Not loaded: reading or writing failed, or space ran out.
    pub const IO: u8 = 8;
    /// Not loaded: another process has the database open.
    pub const IN_USE: u8 = 9;
}

impl LoadError {
    /// The exit code of a process that ends with this error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            LoadError::Usage(_) => exit::USAGE,
            LoadError::TooManyErrors(_) => exit::TOO_MANY_ERRORS,
            LoadError::Verification(_) => exit::VERIFICATION_FAILED,
            LoadError::Stopped => exit::STOPPED,
            LoadError::Input { .. } | LoadError::Output(_) => exit::IO,
            LoadError::Engine(error) => match error.kind() {
                ErrorKind::InUse { .. } => exit::IN_USE,
                ErrorKind::AlreadyExists { .. }
                | ErrorKind::InvalidArgument { .. }
                | ErrorKind::SchemaMismatch { .. } => exit::USAGE,
                ErrorKind::Cancelled { .. } => exit::STOPPED,
                _ => exit::IO,
            },
        }
    }
}
