//! A database directory that appears as a whole or not at all: what a checkpoint and a restore make.
//!
//! 1. Make `<target>.incomplete` beside the target, and put the tables into it: linked, or copied and compared with
//!    their checksums.
//! 2. Sync the directory, so that the names are durable before anything names them.
//! 3. Write the manifest, then `CURRENT`, each synced before the next begins.
//! 4. Read both back, and check that every table is there with its size.
//! 5. Rename the directory to its target, which is atomic, and sync the parent.
//!
//! So whatever a crash leaves under the target's name is complete. Before the rename nothing has that name; a directory
//! that is half made cannot be taken for a database even under its own name, since `CURRENT` comes last. A failure
//! removes what was made; what a crash leaves is removed by the next attempt.
//!
//! *Identity.* The new directory is another database: it gets an id of its own and an empty log that begins at address 0
//! (`design/decisions/0012-operators-safety-net.md`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_base::checksum::{Hasher, checksum};
use alluvium_base::fs::{Fs, OpenMode};
use alluvium_base::random::Random;
use alluvium_base::{Error, ErrorKind, Result};
use alluvium_compaction::{FileMeta, ManifestState};

use crate::environment::Environment;
use crate::layout;
use crate::manifest::{Current, Manifest};

/// Files are copied in pieces of this size, in bytes.
const COPY_BYTES: usize = 256 << 10;

/// How a table came into a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It is a second name of the same file.
    Linked,
    /// It is a file of its own.
    Copied,
}

/// A directory in the making. Dropping it before [`finish`](NewDirectory::finish) removes it.
pub(crate) struct NewDirectory {
    fs: Arc<dyn Fs>,
    target: PathBuf,
    parent: PathBuf,
    building: PathBuf,
    finished: bool,
}

impl NewDirectory {
    /// Begins to make `target`, which must not exist, or be an empty directory.
    pub(crate) fn begin(fs: &Arc<dyn Fs>, target: &Path) -> Result<NewDirectory> {
        let Some(name) = target.file_name() else {
            return Err(Error::invalid(format!("{} names no directory to be made", target.display())));
        };
        check_empty(fs.as_ref(), target)?;
        let parent = parent_of(target);
        create_durably(fs.as_ref(), &parent)?;
        let mut building = name.to_owned();
        building.push(".incomplete");
        let building = parent.join(building);
        let made = NewDirectory {
            fs: Arc::clone(fs),
            target: target.to_owned(),
            parent,
            building: building.clone(),
            finished: false,
        };
        made.remove_leftover()?;
        fs.create_directory_all(&building)?;
        Ok(made)
    }

    /// Gives the table at `from` a second name in here; where that fails (another file system, too many links), copies
    /// it.
    pub(crate) fn link_or_copy(&self, from: &Path, file: &FileMeta) -> Result<Placed> {
        match self.fs.hard_link(from, &layout::table(&self.building, file.id)) {
            Ok(()) => Ok(Placed::Linked),
            Err(error) if error.is_missing_file() => Err(error),
            // If the link was made nevertheless, the copy fails: it never writes into a file that exists, which would be
            // the very table of the database.
            Err(error) if matches!(error.kind(), ErrorKind::Io { .. }) => {
                self.copy(from, file).map(|()| Placed::Copied)
            }
            Err(error) => Err(error),
        }
    }

    /// Copies the table at `from`, and makes sure that it is the one that `file` describes, byte for byte.
    pub(crate) fn copy(&self, from: &Path, file: &FileMeta) -> Result<()> {
        copy_table(self.fs.as_ref(), from, &layout::table(&self.building, file.id), file)
    }

    /// Makes the directory, with its tables, the database that `state` describes (see [`state_of_copy`]), durably.
    pub(crate) fn finish(mut self, state: &ManifestState) -> Result<()> {
        let fs = &self.fs;
        fs.sync_directory(&self.building)?;
        drop(Manifest::create(fs, &self.building, state.database_id, 1, &state.to_edit())?);
        let current = Current::read(fs.as_ref(), &self.building)?
            .ok_or_else(|| Error::not_found(format!("CURRENT in {}", self.building.display())))?;
        crate::open::load(fs.as_ref(), &self.building, &current)?;
        fs.rename(&self.building, &self.target)?;
        self.finished = true;
        self.fs.sync_directory(&self.parent)
    }

    /// Removes what an attempt that a crash cut off has left. Nothing that could be anybody else's is touched.
    fn remove_leftover(&self) -> Result<()> {
        if !self.fs.exists(&self.building)? {
            return Ok(());
        }
        let entries = self.fs.list_directory(&self.building)?;
        let ours = |name: &str| {
            let manifest = layout::parse_manifest(name).is_some() || name.starts_with("CURRENT");
            manifest || layout::parse_table(name).is_some()
        };
        if let Some(other) = entries.iter().find(|entry| entry.is_directory || !ours(&entry.name)) {
            return Err(Error::invalid(format!(
                "{} is in the way, and holds {}; move it elsewhere",
                self.building.display(),
                other.name
            )));
        }
        // CURRENT first: at no moment is there one without its tables.
        for entry in entries.iter().rev().filter(|entry| entry.name.starts_with("CURRENT")) {
            self.fs.remove_file(&self.building.join(&entry.name))?;
        }
        self.fs.sync_directory(&self.building)?;
        for entry in entries.iter().filter(|entry| !entry.name.starts_with("CURRENT")) {
            self.fs.remove_file(&self.building.join(&entry.name))?;
        }
        self.fs.remove_directory(&self.building)
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed now is removed by the next attempt.
            let _ = self.remove_leftover();
        }
    }
}

/// What the manifest of a copy says: the same tables and catalog, under another identity, with a log that is empty.
pub(crate) fn state_of_copy(state: &ManifestState, database_id: u128) -> ManifestState {
    ManifestState {
        database_id,
        log_replay_start: 0,
        incarnation: 0,
        accepted_ends: Vec::new(),
        clean_close: false,
        ..state.clone()
    }
}

/// An identity for the database in `directory`, made without an open database.
pub(crate) fn new_database_id(environment: &Environment, directory: &Path) -> u128 {
    let place = directory.as_os_str().as_encoded_bytes();
    let mut random = Random::new(checksum(environment.entropy, place));
    u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())
}

/// Refuses a directory that holds something.
pub(crate) fn check_empty(fs: &dyn Fs, directory: &Path) -> Result<()> {
    if fs.exists(directory)? && !fs.list_directory(directory)?.is_empty() {
        let detail = format!("{} is not empty; give a new or an empty directory", directory.display());
        return Err(Error::invalid(detail));
    }
    Ok(())
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Makes a directory and its missing parents, each name durable.
pub(crate) fn create_durably(fs: &dyn Fs, directory: &Path) -> Result<()> {
    let mut missing = Vec::new();
    let mut at = directory.to_owned();
    while !fs.exists(&at)? {
        missing.push(at.clone());
        let above = parent_of(&at);
        if above == at {
            break;
        }
        at = above;
    }
    fs.create_directory_all(directory)?;
    missing.iter().rev().try_for_each(|made| fs.sync_directory(&parent_of(made)))
}

/// Copies a table to a new file, synced, and makes sure on the way that it is the one that `file` describes.
pub(crate) fn copy_table(fs: &dyn Fs, from: &Path, to: &Path, file: &FileMeta) -> Result<()> {
    let source = fs.open(from, OpenMode::Read)?;
    let copy = fs.open(to, OpenMode::CreateNew)?;
    let bytes = check_content(source.as_ref(), file, |piece, offset| copy.write_at(piece, offset));
    bytes.and_then(|()| copy.sync_data())
}

/// Reads a whole table file and hands out its pieces.
///
/// # Errors
/// `Corrupt` if its size or its checksum are not what `file` says; those of reading and of `each`.
pub(crate) fn check_content(
    source: &dyn alluvium_base::fs::File,
    file: &FileMeta,
    mut each: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let size = source.len()?;
    if size != file.bytes() {
        let detail = format!("the table has {size} bytes, {} were written", file.bytes());
        return Err(Error::corrupt(source.path(), size.min(file.bytes()), detail));
    }
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    while offset < size {
        let len = (size - offset).min(COPY_BYTES as u64) as usize;
        let piece = buffer.get_mut(..len).unwrap_or_default();
        source.read_exact_at(piece, offset)?;
        hasher.update(piece);
        each(piece, offset)?;
        offset += len as u64;
    }
    if hasher.digest() != file.summary.checksum {
        return Err(Error::corrupt(source.path(), 0, "the checksum of the whole file differs"));
    }
    Ok(())
}
