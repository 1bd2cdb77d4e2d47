//! Backups: whole databases in a directory of their own, sharing what they have in common.
//!
//! ```text
//! LOCK                         held by whoever creates or deletes a backup
//! NNNNNN.backup                one backup: its state, and which copies of tables it needs (`description.rs`)
//! tables/ID-IDENTITY-CHECKSUM-N.sst    a copy of a table, made by backup N
//! ```
//!
//! Tables never change, so a copy that is named by file number, random identity and whole-file checksum serves every
//! backup that needs that table. An *incremental* backup copies only tables that no earlier one has; a *full* one copies
//! all of them anew, so that it depends on nothing older. Either kind is complete by itself: there is no chain to follow,
//! and any backup can be deleted.
//!
//! Order of writing: copies, their directory, then the description by an atomic rename. So a description that is there
//! names copies that are there. Deleting goes the other way round: the description, then the copies that no other one
//! names; as long as any other description cannot be read, nothing is removed, since nobody knows what it names.
//!
//! Every copy is compared with the checksum in the manifest while it is made, both ways: a damaged table is found when
//! it is backed up, a damaged copy when it is restored.

mod description;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use alluvium_base::fs::{Fs, OpenMode};
use alluvium_base::{Error, ErrorKind, Result};

use crate::db::Db;
use crate::environment::Environment;
use crate::layout;
use crate::new_directory::{
    NewDirectory, check_content, copy_table, create_durably, new_database_id, state_of_copy,
};
use description::{CopyName, Description};

/// Which tables a backup copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackupKind {
    /// Those that no earlier backup in the directory has.
    #[default]
    Incremental,
    /// All of them, so that the backup shares nothing with earlier ones, and no damage either.
    Full,
}

/// A directory of backups.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// use alluvium::backup::{BackupDirectory, BackupKind};
/// use alluvium::{Db, Durability, Options};
/// let db = Db::open(directory.path().join("live"), Options::default())?;
/// let events = db.keyspace("events")?;
/// let backups = BackupDirectory::new(directory.path().join("backups"));
/// events.put(b"1", b"one", Durability::Sync)?;
/// let first = backups.create(&db, BackupKind::Incremental)?;
/// events.put(b"2", b"two", Durability::Sync)?;
/// let second = backups.create(&db, BackupKind::Incremental)?;
/// assert_eq!((second.files, second.copied_files), (2, 1), "the first table is shared");
/// assert!(backups.verify(second.number)?.problems.is_empty());
/// backups.restore(first.number, directory.path().join("restored"))?;
/// let restored = Db::open(directory.path().join("restored"), Options::default())?;
/// assert!(restored.keyspace("events")?.get(b"2")?.is_none());
/// # Ok::<(), alluvium::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BackupDirectory {
    environment: Environment,
    directory: PathBuf,
}

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Its number; numbers ascend with time and are not used again.
    pub number: u64,
    /// When it was made, in microseconds since 1970 by the wall clock.
    pub created_micros: i64,
    /// Identity of the database that was backed up.
    pub database_id: u128,
    /// Every commit up to this sequence number is in it, and nothing else.
    pub last_seqno: u64,
    /// Number of tables.
    pub files: u64,
    /// Their size, in bytes.
    pub bytes: u64,
    /// Tables that were copied for it; the others it shares with earlier ones.
    pub copied_files: u64,
    /// Their size, in bytes.
    pub copied_bytes: u64,
}

/// What [`BackupDirectory::list`] has found.
#[derive(Clone, Debug, Default)]
pub struct BackupList {
    /// Backups, oldest first.
    pub backups: Vec<Backup>,
    /// Descriptions that cannot be read, by number, with the reason.
    pub damaged: Vec<(u64, Error)>,
}

/// What [`BackupDirectory::verify`] has found.
#[derive(Clone, Debug, Default)]
pub struct BackupVerification {
    /// Tables that were read.
    pub files: u64,
    /// Their size, in bytes.
    pub bytes: u64,
    /// What is missing or damaged. Empty: the backup can be restored.
    pub problems: Vec<Error>,
}

/// What [`BackupDirectory::delete`] has freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Copies of tables that no other backup needed.
    pub files: u64,
    /// Their size, in bytes.
    pub bytes: u64,
}

/// A database that [`BackupDirectory::restore`] has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Its directory.
    pub directory: PathBuf,
    /// Its identity, which is not that of the database that was backed up.
    pub database_id: u128,
    /// The backup that it comes from.
    pub backup: Backup,
}

/// Descriptions by number, those that cannot be read included.
type Descriptions = BTreeMap<u64, Result<Description>>;

impl BackupDirectory {
    /// The backups in `directory`, which is made with the first one.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> BackupDirectory {
        BackupDirectory::new_in(Environment::system(), directory)
    }

    /// [`new`](BackupDirectory::new) in an environment of its own. Its file system must be that of the databases.
    #[must_use]
    pub fn new_in(environment: Environment, directory: impl Into<PathBuf>) -> BackupDirectory {
        BackupDirectory { environment, directory: directory.into() }
    }

    /// Backs up everything that was committed before this was called, while writing goes on.
    ///
    /// # Errors
    /// `Corrupt` if a table of the database is not what was written; `InUse` if another process creates or deletes a
    /// backup; those of [`Db::flush`]; `ReadOnly`, `Closed`; those of the file system. There is no new backup then.
    pub fn create(&self, db: &Db, kind: BackupKind) -> Result<Backup> {
        let fs = self.fs();
        if fs.exists(&layout::current(&self.directory))? {
            let detail = format!("{} is a database; give another directory", self.directory.display());
            return Err(Error::invalid(detail));
        }
        create_durably(fs, &self.tables())?;
        let _lock = fs.lock(&layout::lock(&self.directory))?;
        let descriptions = self.descriptions()?;
        if descriptions.values().all(Result::is_ok) {
            self.remove_unneeded(&descriptions)?;
        }
        let tree = db.tree()?;
        let state = tree.flushed_state()?;
        let mut made = Description {
            number: self.next_number(&descriptions)?,
            created_micros: self.environment.clock.wall_micros(),
            copies: BTreeMap::new(),
            state,
        };
        let sources = tree.directory.clone();
        let result = self.copy_tables(&sources, &mut made, &descriptions, kind).and_then(|()| {
            db.tree()?;
            let path = self.description_path(made.number);
            alluvium_base::fs::replace_file(fs, &path, &made.encode())
        });
        if let Err(error) = result {
            self.take_back(&made);
            return Err(error.context(format!("backing up into {}", self.directory.display())));
        }
        Ok(made.info())
    }

    /// Removes what a failed backup has made: the description first, if it got its name before something failed. The copies
    /// stay unless it is gone durably. What cannot be removed now is removed with the next backup.
    fn take_back(&self, made: &Description) {
        let fs = self.fs();
        let removed = match fs.remove_file(&self.description_path(made.number)) {
            Err(error) if error.is_missing_file() => Ok(()),
            other => other,
        };
        if removed.and_then(|()| fs.sync_directory(&self.directory)).is_err() {
            return;
        }
        for (file, _) in made.own_copies() {
            let _ = fs.remove_file(&self.copy_path(&CopyName::of(file, made.number)));
        }
    }

    fn copy_tables(
        &self,
        sources: &Path,
        made: &mut Description,
        descriptions: &Descriptions,
        kind: BackupKind,
    ) -> Result<()> {
        // The newest copy of each table: older ones may have been given up for damaged by a full backup.
        let mut known: BTreeMap<CopyName, u64> = BTreeMap::new();
        for earlier in descriptions.values().flatten().filter(|_| kind == BackupKind::Incremental) {
            for (file, copy) in earlier.files() {
                known.insert(CopyName::of(file, 0), copy);
            }
        }
        let fs = self.fs();
        let files: Vec<_> = made.state.version.files().map(|(_, file)| file.clone()).collect();
        for file in files {
            if let Some(&copy) = known.get(&CopyName::of(&file, 0)) {
                let size = fs.file_size(&self.copy_path(&CopyName::of(&file, copy)));
                if size.is_ok_and(|size| size == file.bytes()) {
                    made.copies.insert(file.id, copy);
                    continue;
                }
            }
            made.copies.insert(file.id, made.number);
            let to = self.copy_path(&CopyName::of(&file, made.number));
            copy_table(fs, &layout::table(sources, file.id), &to, &file)?;
        }
        fs.sync_directory(&self.tables())
    }

    /// The backups that there are.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory; those of reading it. Damaged descriptions are in the result.
    pub fn list(&self) -> Result<BackupList> {
        let mut list = BackupList::default();
        for (number, description) in self.descriptions()? {
            match description {
                Ok(description) => list.backups.push(description.info()),
                Err(error) => list.damaged.push((number, error)),
            }
        }
        Ok(list)
    }

    /// Reads every copy that a backup needs, and compares its size and checksum with what was written.
    ///
    /// # Errors
    /// `NotFound` if there is no such backup; `Corrupt` if its description cannot be read. What is wrong with its
    /// tables is in the result.
    pub fn verify(&self, number: u64) -> Result<BackupVerification> {
        let description = self.description(number)?;
        let mut found = BackupVerification::default();
        for (file, copy) in description.files() {
            let path = self.copy_path(&CopyName::of(file, copy));
            let checked = self.fs().open(&path, OpenMode::Read).map_err(|error| {
                let missing = || Error::corrupt(&path, 0, "the backup needs this copy, but it is missing");
                if error.is_missing_file() { missing() } else { error }
            });
            let checked = checked.and_then(|copy| check_content(copy.as_ref(), file, |_, _| Ok(())));
            found.files += 1;
            found.bytes += file.bytes();
            found.problems.extend(checked.err());
        }
        Ok(found)
    }

    /// Deletes a backup, and the copies that no other one needs.
    ///
    /// # Errors
    /// `NotFound` if there is no such backup; `Corrupt` if the description of *another* one cannot be read: which copies
    /// it needs is then unknown, so nothing is deleted (delete that one first); `InUse`; those of the file system.
    pub fn delete(&self, number: u64) -> Result<Deleted> {
        let fs = self.fs();
        let _lock = fs.lock(&layout::lock(&self.directory))?;
        let mut descriptions = self.descriptions()?;
        if descriptions.remove(&number).is_none() {
            return Err(self.no_such_backup(number));
        }
        if let Some((other, Err(error))) = descriptions.iter().find(|(_, description)| description.is_err()) {
            let doing = format!("backup {other} may need the same tables; delete it first, or repair it");
            return Err(error.clone().context(doing));
        }
        fs.remove_file(&self.description_path(number))?;
        fs.sync_directory(&self.directory)?;
        self.remove_unneeded(&descriptions)
    }

    /// Makes a database from a backup: complete and checked when this returns.
    ///
    /// # Errors
    /// `InvalidArgument` if `target` exists and is not empty; `NotFound` if there is no such backup; `Corrupt`, with the
    /// file, if anything that the backup needs is damaged; those of the file system. There is no database in `target`
    /// then.
    pub fn restore(&self, number: u64, target: impl AsRef<Path>) -> Result<Restored> {
        let target = target.as_ref();
        let restore = || {
            let description = self.description(number)?;
            let made = NewDirectory::begin(&self.environment.fs, target)?;
            for (file, copy) in description.files() {
                made.copy(&self.copy_path(&CopyName::of(file, copy)), file)?;
            }
            let database_id = new_database_id(&self.environment, target);
            made.finish(&state_of_copy(&description.state, database_id))?;
            Ok(Restored { directory: target.to_owned(), database_id, backup: description.info() })
        };
        let doing = || format!("restoring backup {number} to {}", target.display());
        restore().map_err(|error: Error| error.context(doing()))
    }

    fn fs(&self) -> &dyn Fs {
        self.environment.fs.as_ref()
    }

    fn tables(&self) -> PathBuf {
        self.directory.join("tables")
    }

    fn copy_path(&self, name: &CopyName) -> PathBuf {
        self.tables().join(name.to_string())
    }

    fn description_path(&self, number: u64) -> PathBuf {
        self.directory.join(description::file_name(number))
    }

    fn no_such_backup(&self, number: u64) -> Error {
        Error::not_found(format!("backup {number} in {}", self.directory.display()))
    }

    fn description(&self, number: u64) -> Result<Description> {
        let path = self.description_path(number);
        match Description::read(self.fs(), &path, number) {
            Err(error) if error.is_missing_file() => Err(self.no_such_backup(number)),
            other => other,
        }
    }

    fn descriptions(&self) -> Result<Descriptions> {
        let entries =
            self.fs().list_directory(&self.directory).map_err(|error| match error.is_missing_file() {
                true => Error::not_found(format!("directory of backups {}", self.directory.display())),
                false => error,
            })?;
        let numbers = entries.iter().filter_map(|entry| description::parse_file_name(&entry.name));
        let mut descriptions = Descriptions::new();
        for number in numbers {
            let read = Description::read(self.fs(), &self.description_path(number), number);
            if let Err(error) = &read
                && matches!(error.kind(), ErrorKind::Io { .. })
            {
                return Err(error.clone());
            }
            descriptions.insert(number, read);
        }
        Ok(descriptions)
    }

    /// The copies that there are.
    fn copies(&self) -> Result<BTreeSet<CopyName>> {
        let entries = self.fs().list_directory(&self.tables())?;
        Ok(entries.iter().filter_map(|entry| CopyName::parse(&entry.name)).collect())
    }

    /// A number that neither a backup nor a copy has, not even one that a crash has left.
    fn next_number(&self, descriptions: &Descriptions) -> Result<u64> {
        let copies = self.copies()?;
        let used = descriptions.keys().copied().chain(copies.iter().map(|copy| copy.number));
        Ok(used.max().unwrap_or(0) + 1)
    }

    /// Removes the copies that no description needs; all of them must be readable.
    fn remove_unneeded(&self, descriptions: &Descriptions) -> Result<Deleted> {
        let mut needed = BTreeSet::new();
        for description in descriptions.values() {
            let description = description.as_ref().map_err(Clone::clone)?;
            needed.extend(description.files().map(|(file, copy)| CopyName::of(file, copy)));
        }
        let mut deleted = Deleted::default();
        for copy in self.copies()?.difference(&needed) {
            let path = self.copy_path(copy);
            deleted.bytes += self.fs().file_size(&path)?;
            deleted.files += 1;
            self.fs().remove_file(&path)?;
        }
        Ok(deleted)
    }
}
