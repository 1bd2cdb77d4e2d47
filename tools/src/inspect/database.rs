//! The database that is looked at: its directory, and the ways to read it.
//!
//! A process that has it open goes on writing meanwhile: a table file may go between the moment in which the manifest
//! is read and the one in which the file is opened. So what fails beside a writer is tried again, a few times, from the
//! manifest on.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use alluvium::inspect::{
    Catalog, ManifestDump, ManifestState, read_catalog, read_former_catalog, read_manifest,
};
use alluvium::row::TableDefinition;
use alluvium::{Db, Environment, Options, Table};
use alluvium_base::{Error, ErrorKind};

use super::error::{InspectError, Result};

/// How often something is tried beside a writer.
const TRIES: u32 = 5;
/// How long to wait before the next try.
const PAUSE: Duration = Duration::from_millis(50);

/// A database's directory.
#[derive(Clone, Debug)]
pub struct Database {
    /// The directory.
    pub directory: PathBuf,
    /// The machine.
    pub environment: Environment,
}

/// A database as its manifest describes it.
#[derive(Clone, Debug)]
pub struct Description {
    /// The manifest.
    pub manifest: ManifestDump,
    /// What its edits say together.
    pub state: ManifestState,
    /// Tables and keyspaces.
    pub catalog: Catalog,
    /// Those that the manifest has ever named, dropped ones included.
    pub former: Catalog,
}

impl Database {
    /// The database in the directory that `--db` names.
    ///
    /// # Errors
    /// `Usage` if it names none; `NotFound` if there is no database.
    pub fn new(directory: Option<&Path>) -> Result<Database> {
        let directory = directory.ok_or_else(|| {
            InspectError::Usage("which database? Give its directory with --db DIR".to_owned())
        })?;
        let database = Database { directory: directory.to_owned(), environment: Environment::system() };
        let shown = directory.display();
        match fs::metadata(directory) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => {
                let hint = "it is a file, not a directory; check --db";
                return Err(Error::not_found(format!("database at {shown}: {hint}")).into());
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::not_found(format!("directory {shown}; check --db")).into());
            }
            Err(error) => return Err(Error::io("look at", directory, &error).into()),
        }
        // A directory with tables but without CURRENT is a damaged database, not none: see `describe`.
        if !database.has_current() && database.leftover().is_none() {
            let hint = "it has no file CURRENT; check --db";
            return Err(Error::not_found(format!("database in {} ({hint})", directory.display())).into());
        }
        Ok(database)
    }

    /// The database that the directory of `file` is, if it is one.
    #[must_use]
    pub fn around(file: &Path) -> Option<Database> {
        let directory = file.parent()?.to_owned();
        let database = Database { directory, environment: Environment::system() };
        database.has_current().then_some(database)
    }

    fn has_current(&self) -> bool {
        self.directory.join("CURRENT").exists()
    }

    /// A file that only a database has, if there is one.
    fn leftover(&self) -> Option<String> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.find(|name| {
            let table = name.strip_suffix(".sst").map(|number| number.bytes().all(|c| c.is_ascii_digit()));
            let segment =
                name.strip_suffix(".log").map(|n| n.len() == 16 && u64::from_str_radix(n, 16).is_ok());
            table.or(segment) == Some(true)
        })
    }

    /// An error if `CURRENT` is missing from among the files of a database: it is damaged, not absent.
    fn check_current(&self) -> Result<()> {
        if let (false, Some(leftover)) = (self.has_current(), self.leftover()) {
            let detail = format!(
                "it is missing, but {leftover} is there; see what repair says, or restore the database from a backup"
            );
            return Err(Error::corrupt(self.directory.join("CURRENT"), 0, detail).into());
        }
        Ok(())
    }

    /// What the manifest says.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn describe(&self) -> Result<Description> {
        self.check_current()?;
        let read = || {
            let manifest = read_manifest(&self.environment, &self.directory)?;
            let state = manifest.state(&self.directory)?;
            let catalog = read_catalog(&manifest.path(&self.directory), &state)?;
            let former = read_former_catalog(&manifest.path(&self.directory), &manifest);
            Ok(Description { manifest, state, catalog, former })
        };
        Ok(self.retry(read)?)
    }

    /// Opens the database for reading. Beside a writer every table file is opened at once, as far as the limit of open
    /// files allows: what is open stays readable when the writer removes it.
    ///
    /// # Errors
    /// Those of opening.
    pub fn open(&self) -> Result<Db> {
        self.check_current()?;
        let options = Options { create_if_missing: false, ..Options::default() };
        let open = || {
            let db = Db::open_read_only(&self.directory, options.clone())?;
            if self.writer().is_some()
                && let Some(gone) = db.verify(false)?.problems.into_iter().find(Error::is_missing_file)
            {
                return Err(gone);
            }
            Ok(db)
        };
        Ok(self.retry(open)?)
    }

    /// Opens a table for reading.
    ///
    /// # Errors
    /// `NotFound` with the tables that there are; those of opening.
    pub fn open_table(&self, name: &str) -> Result<Table> {
        let db = self.open()?;
        match db.table(name) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => {
                Err(no_such_table(name, &db.tables()?))
            }
            table => Ok(table?),
        }
    }

    /// Tries again what a writer may have come in the way of.
    fn retry<T>(&self, attempt: impl Fn() -> alluvium::Result<T>) -> alluvium::Result<T> {
        for _ in 1..TRIES {
            match attempt() {
                Err(error) if can_be_disturbance(&error) && self.writer().is_some() => {
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
        attempt()
    }

    /// The error, said to be the writer's doing if it can be.
    #[must_use]
    pub fn explain(&self, error: InspectError) -> InspectError {
        match error {
            InspectError::Engine(error) if can_be_disturbance(&error) => match self.writer() {
                Some(holder) => InspectError::Disturbed { error, holder },
                None => InspectError::Engine(error),
            },
            other => other,
        }
    }

    /// The process that has the database open for writing, as far as can be told without touching anything: the lock
    /// itself is not tried, since that could make a process fail that opens the database at this very moment.
    #[must_use]
    pub fn writer(&self) -> Option<String> {
        let path = self.directory.join("LOCK");
        let holder = fs::read_to_string(&path).ok().filter(|text| !text.is_empty())?;
        let process: u32 = holder.strip_prefix("process ")?.split(',').next()?.parse().ok()?;
        if !Path::new("/proc").join(process.to_string()).exists() {
            return None;
        }
        let inode = inode_of(&path)?;
        match fs::read_to_string("/proc/locks") {
            Ok(locks) => is_locked(&locks, process, inode).then_some(holder),
            // Another system than Linux, or one that hides it: the process lives, so it may have the database open.
            Err(_) => Some(holder),
        }
    }
}

/// True for errors that a file which is replaced, or written at this very moment, can cause.
fn can_be_disturbance(error: &Error) -> bool {
    error.is_corrupt() || error.is_missing_file()
}

#[cfg(unix)]
fn inode_of(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    Some(fs::metadata(path).ok()?.ino())
}

#[cfg(not(unix))]
fn inode_of(_: &Path) -> Option<u64> {
    None
}

/// True if `/proc/locks` says that the process has the file locked. The device is not compared: some file systems show
/// another one there than in a file's metadata.
fn is_locked(locks: &str, process: u32, inode: u64) -> bool {
    // 1: FLOCK  ADVISORY  WRITE 2231 fe:00:10037412 0 EOF
    locks.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1).filter(|word| *word != "->");
        let is_flock = words.next() == Some("FLOCK");
        let holder = words.nth(2).and_then(|word| word.parse().ok());
        let file = words.next().and_then(|word| word.rsplit(':').next()).and_then(|word| word.parse().ok());
        is_flock && holder == Some(process) && file == Some(inode)
    })
}

/// The error that names the tables that there are.
#[must_use]
pub fn no_such_table(name: &str, tables: &[String]) -> InspectError {
    let others = if tables.is_empty() { "no tables".to_owned() } else { tables.join(", ") };
    Error::not_found(format!("table {name}; the database has {others}")).into()
}

impl Description {
    /// The table of this name.
    ///
    /// # Errors
    /// `NotFound` with the tables that there are.
    pub fn table(&self, name: &str) -> Result<&TableDefinition> {
        let tables = &self.catalog.tables;
        let names = || tables.iter().map(|table| table.schema().name().to_owned()).collect::<Vec<_>>();
        let found = tables.iter().find(|table| table.schema().name() == name);
        found.ok_or_else(|| no_such_table(name, &names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_known_by_its_process_and_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:42 0 EOF\n2: FLOCK  ADVISORY  WRITE 7 00:1f:43 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 8 00:1f:43 0 EOF\n";
        assert!(is_locked(locks, 7, 43));
        assert!(!is_locked(locks, 7, 42), "another kind of lock");
        assert!(!is_locked(locks, 9, 43));
        assert!(!is_locked("nonsense", 7, 43));
    }

    #[test]
    fn a_writer_is_seen_while_it_has_the_database_open() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(directory.path(), Options::default()).unwrap();
        let database = Database::new(Some(directory.path())).unwrap();
        assert!(database.writer().is_some_and(|holder| holder.contains(&std::process::id().to_string())));
        db.close(Duration::from_secs(10)).unwrap();
        assert_eq!(database.writer(), None);
    }
}
