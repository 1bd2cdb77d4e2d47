//! The only door to files: the [`Fs`] trait and its implementations.
//!
//! Everything above takes an `Arc<dyn Fs>`, so that a test can fail, delay, shorten or lose any single call:
//! [`real`] is the machine's file system, [`memory`] keeps files in memory with a model of what a crash leaves,
//! [`fault`] wraps another file system and breaks chosen calls.
//!
//! What callers may assume about the medium is written down in `design/media-assumptions.md`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Result;

pub mod anonymous;
pub mod fault;
pub mod memory;
pub mod operation;
pub mod real;

/// How [`Fs::open`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A new file, for reading and writing; an error of kind `AlreadyExists` if the name is taken.
    CreateNew,
    /// A new or emptied file, for reading and writing.
    CreateOrTruncate,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    /// The file's name within the directory.
    pub name: String,
    /// True for a directory.
    pub is_directory: bool,
}

/// A file system. Paths are absolute or relative to the process; errors name operation and path.
pub trait Fs: Send + Sync + fmt::Debug {
    /// Opens or creates a file. A new name is durable only after [`Fs::sync_directory`] of its directory.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>>;
    /// Removes a file's name. Open handles keep working.
    fn remove_file(&self, path: &Path) -> Result<()>;
    /// Renames a file, replacing what has the new name; atomic, durable after syncing the directory.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Gives a file a second name.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Creates a directory and its missing parents.
    fn create_directory_all(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> Result<()>;
    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> Result<()>;
    /// The names in a directory, sorted.
    fn list_directory(&self, path: &Path) -> Result<Vec<DirectoryEntry>>;
    /// True if the name exists. An error only if that cannot be told.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Size of a file in bytes.
    fn file_size(&self, path: &Path) -> Result<u64>;
    /// Takes the exclusive lock of a file, creating it if missing, without waiting. An error of kind `InUse` if
    /// another holder lives; the lock of a dead process does not count. Released when the guard is dropped.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;
    /// Maps the first `len` bytes of an existing file, shared and writable. The file must be at least `len` bytes
    /// long, and no other process may shorten it while the mapping lives.
    ///
    /// `Ok(None)` where a mapping would not be safe (a network file system, a file system without shared mappings):
    /// the caller writes through [`File::write_at`] instead.
    fn map(&self, path: &Path, len: usize) -> Result<Option<Arc<dyn Mapping>>>;
    /// Bytes that can still be written below `path`; `u64::MAX` if unknown.
    fn available_space(&self, path: &Path) -> Result<u64>;
    /// A number that differs between two boots of the machine.
    fn boot_id(&self) -> u128;
    /// Most files that this process may hold open.
    fn open_files_max(&self) -> usize;
}

/// An open file. Reads and writes name their offset; handles may be shared between threads.
#[expect(
    clippy::len_without_is_empty,
    reason = "the length is a call that can fail; nobody asks whether it is zero"
)]
pub trait File: Send + Sync + fmt::Debug {
    /// The path it was opened by, for messages.
    fn path(&self) -> &Path;
    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all of `bytes` at `offset`, growing the file if needed. After an error any part may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Makes the file's bytes and size durable (fdatasync). After an error nothing may be assumed about bytes written
    /// since the last success, not even that a later success covers them.
    fn sync_data(&self) -> Result<()>;
    /// Starts writing back a range without waiting for it (a hint; no durability).
    fn start_writeback(&self, offset: u64, len: u64) -> Result<()>;
    /// Current size in bytes.
    fn len(&self) -> Result<u64>;
    /// Changes the size; new bytes read as zero.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Tells the system that a range will be read soon (a hint).
    fn read_ahead(&self, offset: u64, len: u64) -> Result<()>;

    /// Reads exactly `buffer.len()` bytes at `offset`; a shorter file is `Corrupt`, with the file and the offset where it ends.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let got = self.read_at(buffer, offset)?;
        if got == buffer.len() {
            return Ok(());
        }
        Err(crate::Error::corrupt(
            self.path(),
            offset + got as u64,
            format!("the file ends here, {} more bytes were expected", buffer.len() - got),
        ))
    }
}

/// Shared memory backed by a file: what is stored survives the process, but not the machine.
///
/// Callers make sure that no two threads write the same bytes at once; reading bytes while another thread writes
/// them gives unspecified (but no undefined) results.
pub trait Mapping: Send + Sync + fmt::Debug {
    /// Length in bytes.
    fn len(&self) -> usize;
    /// True if the mapping has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Stores `bytes` at `offset`.
    ///
    /// # Panics
    /// If the range does not lie within the mapping.
    fn write(&self, offset: usize, bytes: &[u8]);
    /// Loads `buffer.len()` bytes from `offset`.
    ///
    /// # Panics
    /// If the range does not lie within the mapping.
    fn read(&self, offset: usize, buffer: &mut [u8]);
    /// Stores one aligned word at once, after everything stored before (release).
    ///
    /// # Panics
    /// If `offset` is not a multiple of 8 or does not lie within the mapping.
    fn store_u64(&self, offset: usize, value: u64);
    /// Loads one aligned word (acquire).
    ///
    /// # Panics
    /// If `offset` is not a multiple of 8 or does not lie within the mapping.
    fn load_u64(&self, offset: usize) -> u64;
}

/// A held file lock; dropping it releases the lock.
pub trait FileLock: Send + Sync + fmt::Debug {
    /// The locked file.
    fn path(&self) -> &Path;
}

/// Reads a whole file that is expected to be small.
///
/// # Errors
/// Those of opening and reading; `InvalidArgument` if it is longer than `max_bytes`.
pub fn read_file(fs: &dyn Fs, path: &Path, max_bytes: u64) -> Result<Vec<u8>> {
    let file = fs.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > max_bytes {
        return Err(crate::Error::invalid(format!(
            "{} has {len} bytes; at most {max_bytes} were expected",
            path.display()
        )));
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Replaces a small file as a whole, durably: writes a temporary file beside it, syncs it, renames it over `path`,
/// syncs the directory.
///
/// # Errors
/// Those of the steps; the old content is then still there, or (if syncing the directory failed) either content is.
pub fn replace_file(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let file = fs.open(&temporary, OpenMode::CreateOrTruncate)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    fs.rename(&temporary, path)?;
    fs.sync_directory(path.parent().unwrap_or(Path::new(".")))
}
