//! Checkpoints: a consistent copy of a running database, for the price of some names.
//!
//! 1. Flush, so that everything committed so far is in tables.
//! 2. Take the newest durable state. It holds a reference to each of its tables, and a table is removed only when the
//!    list of obsolete ones has the last reference: so none of them goes while it is being linked.
//! 3. Link the tables (or copy them, on another file system) into a new directory and give it a manifest of its own;
//!    see `new_directory.rs`.
//!
//! What is in tables ends at a boundary between commits: a memtable is frozen while no commit is under way, and a flush
//! makes all of it visible with one edit. The log is neither linked (its segments are written again later) nor copied: the
//! flush has made it unnecessary. Writers go on meanwhile; no lock is held but for copying the list of tables.

use std::path::{Path, PathBuf};

use alluvium_base::Result;
use alluvium_compaction::ManifestState;

use crate::db::Db;
use crate::layout;
use crate::new_directory::{NewDirectory, Placed, check_empty, state_of_copy};
use crate::tree::Tree;

/// What [`Db::checkpoint`] has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The new database's directory.
    pub directory: PathBuf,
    /// Identity of the new database.
    pub database_id: u128,
    /// Every commit up to this sequence number is in it, and nothing else.
    pub last_seqno: u64,
    /// Number of tables.
    pub files: u64,
    /// Their size, in bytes.
    pub bytes: u64,
    /// Those of them that could not be linked and were copied.
    pub copied_files: u64,
    /// Their size, in bytes: what the checkpoint has cost.
    pub copied_bytes: u64,
}

impl Db {
    /// Makes a consistent copy of the database while writing goes on. It holds everything that was committed before this
    /// was called, and perhaps some later commits, but never a part of one. It is a database of its own: opened,
    /// written to and removed without regard to this one.
    ///
    /// Tables are hard-linked where possible, so that a checkpoint on the same file system costs neither time nor space
    /// (until this database replaces the tables). It is no backup: both databases share the bytes of a table, and its
    /// damage. See [`backup`](crate::backup) for that.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// use alluvium::{Db, Durability, Options};
    /// let db = Db::open(directory.path().join("live"), Options::default())?;
    /// let events = db.keyspace("events")?;
    /// events.put(b"1", b"before", Durability::Buffered)?;
    /// db.checkpoint(directory.path().join("copy"))?;
    /// events.put(b"1", b"after", Durability::Buffered)?;
    /// let copy = Db::open(directory.path().join("copy"), Options::default())?;
    /// assert_eq!(copy.keyspace("events")?.get(b"1")?.as_deref(), Some(b"before".as_slice()));
    /// # Ok::<(), alluvium::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if `directory` exists and is not empty; those of the flush; `ReadOnly`, `Closed`; those of the
    /// file system. After an error there is no directory of this name, or a complete one (if its name could not be made
    /// durable).
    pub fn checkpoint(&self, directory: impl AsRef<Path>) -> Result<Checkpoint> {
        let directory = directory.as_ref();
        self.tree()?
            .checkpoint(directory)
            .map_err(|error| error.context(format!("making a checkpoint in {}", directory.display())))
    }
}

impl Tree {
    /// Flushes, and returns the durable state: everything committed before this was called is in its tables. They stay on
    /// disk while it is held.
    pub(crate) fn flushed_state(&self) -> Result<ManifestState> {
        self.check_open()?;
        self.log("copy the database")?;
        self.flush_and_wait()?;
        Ok(self.versions.lock().durable.clone())
    }

    fn checkpoint(&self, directory: &Path) -> Result<Checkpoint> {
        // Before the flush, which may take a while.
        check_empty(self.environment.fs.as_ref(), directory)?;
        let pinned = self.flushed_state()?;
        let made = NewDirectory::begin(&self.environment.fs, directory)?;
        let mut checkpoint = Checkpoint {
            directory: directory.to_owned(),
            database_id: self.new_identity(),
            last_seqno: pinned.last_seqno,
            files: 0,
            bytes: 0,
            copied_files: 0,
            copied_bytes: 0,
        };
        for (_, file) in pinned.version.files() {
            self.check_open()?;
            let placed = made.link_or_copy(&layout::table(&self.directory, file.id), file)?;
            checkpoint.files += 1;
            checkpoint.bytes += file.bytes();
            if placed == Placed::Copied {
                checkpoint.copied_files += 1;
                checkpoint.copied_bytes += file.bytes();
            }
        }
        made.finish(&state_of_copy(&pinned, checkpoint.database_id))?;
        Ok(checkpoint)
    }
}

#[cfg(test)]
mod tests;
