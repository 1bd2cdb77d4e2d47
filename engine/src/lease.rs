//! Leases: how a process that only reads keeps the one that writes from removing what it reads.
//!
//! A reader has a file `lease-NNNNNNNNNNNNNNNN` in the database's directory and holds its lock, so that the lease dies
//! with the reader, however that ends. The file says what the reader still needs: the *position* in the history of
//! manifests from which it reads, and the log's address from which it replays. A table that an edit at position `p` has
//! removed is needed by every reader whose position is before `p`. While a reader does not know its position yet (it is
//! about to read `CURRENT`) its lease holds everything; so does a lease that cannot be understood.
//!
//! Why there is no race: the writer makes an edit durable, *then* looks at all leases, then removes what the edit made
//! obsolete. A reader takes its lease (or widens it to everything), *then* reads `CURRENT`. Either the writer sees the
//! lease, or the reader sees the edit.
//!
//! A writer that gets the lock of a lease knows that its reader is dead, and removes the file while it holds the lock. A
//! new lease may meet that between its creation and its locking; its owner looks for its name again once it has the
//! lock, and takes another name if the file is gone. So a name that is locked and there belongs to a living reader.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_base::checksum::checksum;
use alluvium_base::coding::Reader;
use alluvium_base::fs::{File, FileLock, Fs, OpenMode};
use alluvium_base::random::Random;
use alluvium_base::{Error, ErrorKind, Result};

use crate::layout;
use crate::manifest::Position;

const MAGIC: &[u8; 8] = b"ALLULEAS";
const FORMAT_VERSION: u32 = 1;
const LEASE_BYTES: usize = 48;
/// Names that are tried before giving up: a writer may take a few away, nobody takes all.
const NAMES_MAX: usize = 64;

/// What a reader still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// Every table that the manifest names at this position, and whatever is newer.
    pub(crate) position: Position,
    /// The log from this address on; `u64::MAX` if nothing of it.
    pub(crate) log_from: u64,
}

impl Hold {
    /// Everything, the manifests included.
    pub(crate) const EVERYTHING: Hold =
        Hold { position: Position { number: 0, durable_bytes: 0 }, log_from: 0 };

    fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEASE_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.position.number.to_le_bytes());
        out.extend_from_slice(&self.position.durable_bytes.to_le_bytes());
        out.extend_from_slice(&self.log_from.to_le_bytes());
        out.extend_from_slice(&checksum(0, &out).to_le_bytes());
        out
    }

    /// What a lease's bytes say; everything, if they are not (or only half) written, or of another format.
    fn decode(bytes: &[u8]) -> Hold {
        let mut reader = Reader::new(bytes);
        let mut fields = || {
            let known = reader.take(8)? == MAGIC && reader.u32()? == FORMAT_VERSION && reader.u32()? == 0;
            let position = Position { number: reader.u64()?, durable_bytes: reader.u64()? };
            let log_from = reader.u64()?;
            let covered = bytes.get(..reader.position())?;
            (known && reader.u64()? == checksum(0, covered)).then_some(Hold { position, log_from })
        };
        fields().unwrap_or(Hold::EVERYTHING)
    }

    /// The lease in a file; `None` if it has gone.
    fn read(fs: &dyn Fs, path: &Path) -> Option<Hold> {
        let read = || {
            let mut bytes = [0; LEASE_BYTES];
            let got = fs.open(path, OpenMode::Read)?.read_at(&mut bytes, 0)?;
            Ok::<Hold, Error>(Hold::decode(bytes.get(..got).unwrap_or_default()))
        };
        match read() {
            Ok(hold) => Some(hold),
            Err(error) if error.is_missing_file() => None,
            // What cannot be read may hold anything.
            Err(_) => Some(Hold::EVERYTHING),
        }
    }
}

/// A reader's own lease. Dropping it gives everything free.
#[derive(Debug)]
pub(crate) struct Lease {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    file: Arc<dyn File>,
    _lock: Box<dyn FileLock>,
}

impl Lease {
    /// Takes a lease that holds everything. `None` where none can be had: on a medium, or in a directory, that this
    /// process may not write to, or that is full.
    pub(crate) fn take(fs: &Arc<dyn Fs>, directory: &Path, random: &mut Random) -> Result<Option<Lease>> {
        for _ in 0..NAMES_MAX {
            let path = layout::lease(directory, random.next_u64());
            match Lease::take_name(fs, &path) {
                Ok(Some(lease)) => return Ok(Some(lease)),
                Ok(None) => {}
                Err(error) if is_impossible(&error) => return Ok(None),
                Err(error) => return Err(error.context("taking a lease for reading")),
            }
        }
        Err(Error::invalid(format!("no lease could be taken in {}; try again", directory.display())))
    }

    /// `None` if the name is taken, or was taken away before it was locked.
    fn take_name(fs: &Arc<dyn Fs>, path: &Path) -> Result<Option<Lease>> {
        match fs.open(path, OpenMode::CreateNew) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        let lock = match fs.lock(path) {
            Ok(lock) => lock,
            Err(error) if matches!(error.kind(), ErrorKind::InUse { .. }) => return Ok(None),
            Err(error) => {
                let _ = fs.remove_file(path);
                return Err(error);
            }
        };
        // Opened by its name once it is locked: a file that a writer has taken away is not found.
        let file = match fs.open(path, OpenMode::ReadWrite) {
            Ok(file) => file,
            Err(error) if error.is_missing_file() => return Ok(None),
            Err(error) => return Err(error),
        };
        let lease = Lease { fs: Arc::clone(fs), path: path.to_owned(), file, _lock: lock };
        lease.set(Hold::EVERYTHING)?;
        Ok(Some(lease))
    }

    /// Changes what it holds. After an error it may hold more than asked for, never less than before and after.
    pub(crate) fn set(&self, hold: Hold) -> Result<()> {
        self.file.write_at(&hold.encode(), 0)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // With the lock still held. What is left goes when the writer finds that nobody holds it.
        let _ = self.fs.remove_file(&self.path);
    }
}

/// True for failures that say that no lease can be had here, not that something went wrong.
fn is_impossible(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::DiskFull { .. } => true,
        ErrorKind::Io { io, .. } => matches!(
            io,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::Unsupported
        ),
        _ => false,
    }
}

/// What all readers together need, as the writer saw it at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseView {
    /// An edit that was durable before the leases were looked at. Nothing can be said of what later edits removed.
    pub(crate) as_of: Position,
    /// Living readers.
    pub(crate) readers: usize,
    /// The least that any of them holds.
    oldest: Position,
    log_from: u64,
    /// The greatest position of a reader.
    newest: Position,
}

impl LeaseView {
    /// Looks at all leases, and removes those of dead readers. `as_of` must have been durable before the call.
    pub(crate) fn read(fs: &dyn Fs, directory: &Path, as_of: Position) -> Result<LeaseView> {
        let nobody = Position { number: u64::MAX, durable_bytes: u64::MAX };
        let mut view =
            LeaseView { as_of, readers: 0, oldest: nobody, log_from: u64::MAX, newest: Position::default() };
        for entry in fs.list_directory(directory)? {
            if layout::parse_lease(&entry.name).is_none() {
                continue;
            }
            let path = directory.join(&entry.name);
            let hold = match fs.lock(&path) {
                Ok(_lock) => {
                    // Its reader is dead. If it cannot be removed now, it is found again.
                    let _ = fs.remove_file(&path);
                    None
                }
                Err(error) if matches!(error.kind(), ErrorKind::InUse { .. }) => Hold::read(fs, &path),
                Err(error) if error.is_missing_file() => None,
                Err(_) => Some(Hold::EVERYTHING),
            };
            if let Some(hold) = hold {
                view.readers += 1;
                view.oldest = view.oldest.min(hold.position);
                view.newest = view.newest.max(hold.position);
                view.log_from = view.log_from.min(hold.log_from);
            }
        }
        Ok(view)
    }

    /// True if nobody needs a table that an edit at `removed_at` took out of the tree.
    pub(crate) fn frees_table(&self, removed_at: Position) -> bool {
        removed_at <= self.as_of && removed_at <= self.oldest
    }

    /// True if nobody reads a manifest that was replaced at `replaced_at`.
    pub(crate) fn frees_manifest(&self, replaced_at: Position) -> bool {
        replaced_at <= self.as_of && self.oldest != Hold::EVERYTHING.position
    }

    /// Address up to which nobody needs the log any more, of which an edit at `moved_at` released everything below
    /// `address`.
    pub(crate) fn frees_log(&self, address: u64, moved_at: Position) -> u64 {
        if moved_at <= self.as_of { address.min(self.log_from) } else { 0 }
    }

    /// True if a reader has seen a moment that comes after `position`.
    pub(crate) fn is_ahead_of(&self, position: Position) -> bool {
        self.newest > position
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use alluvium_base::fs::fault::{Action, FaultFs, Rule};
    use alluvium_base::fs::memory::MemoryFs;
    use alluvium_base::fs::operation::Operation;

    use super::*;

    fn at(number: u64, durable_bytes: u64) -> Position {
        Position { number, durable_bytes }
    }

    fn leases(fs: &MemoryFs) -> usize {
        fs.files().iter().filter(|path| path.to_string_lossy().contains("lease-")).count()
    }

    fn take(fs: &MemoryFs, seed: u64) -> Lease {
        Lease::take(&fs.shared(), Path::new("/"), &mut Random::new(seed)).unwrap().unwrap()
    }

    fn view(fs: &MemoryFs) -> LeaseView {
        LeaseView::read(fs, Path::new("/"), at(9, 0)).unwrap()
    }

    #[test]
    fn a_lease_holds_what_it_says_until_it_is_dropped() {
        let fs = MemoryFs::new();
        let lease = take(&fs.process(), 1);
        assert!(!view(&fs).frees_table(at(1, 1)), "a new lease holds everything");
        assert!(!view(&fs).frees_manifest(at(1, 1)));
        assert_eq!(view(&fs).frees_log(100, at(1, 1)), 0);
        lease.set(Hold { position: at(2, 100), log_from: 40 }).unwrap();
        assert!(view(&fs).frees_table(at(2, 100)) && !view(&fs).frees_table(at(2, 101)));
        assert_eq!(view(&fs).frees_log(100, at(1, 1)), 40);
        assert!(view(&fs).is_ahead_of(at(2, 99)) && !view(&fs).is_ahead_of(at(2, 100)));
        drop(lease);
        assert_eq!((view(&fs).readers, leases(&fs)), (0, 0));
        assert!(view(&fs).frees_table(at(9, 0)) && !view(&fs).frees_table(at(9, 1)), "not looked at yet");
    }

    #[test]
    fn a_dead_readers_lease_is_removed_and_a_half_written_one_holds_everything() {
        let fs = MemoryFs::new();
        let (first, second) = (fs.process(), fs.process());
        // The same seed: the second takes another name.
        let (_dead, living) = (take(&first, 1), take(&second, 1));
        living.set(Hold { position: at(5, 0), log_from: u64::MAX }).unwrap();
        assert_eq!(view(&fs).readers, 2);
        first.process_kill();
        assert_eq!((view(&fs).readers, leases(&fs)), (1, 1));
        assert!(view(&fs).frees_table(at(5, 0)));
        living.file.write_at(&[7; 20], 0).unwrap();
        assert!(!view(&fs).frees_table(at(1, 1)));
        fs.power_loss(3);
        assert_eq!((view(&fs).readers, leases(&fs)), (0, 0));
    }

    #[test]
    fn a_lease_that_a_writer_takes_away_before_it_is_locked_is_taken_again() {
        for operation in [Operation::Lock, Operation::Open] {
            let fs = MemoryFs::new();
            let faulty = FaultFs::new(fs.process().shared());
            let (writer, count) = (fs.process(), Arc::new(AtomicU32::new(0)));
            let look = Arc::new(move |_: alluvium_base::fs::fault::Call<'_>| {
                count.fetch_add(1, Ordering::Relaxed);
                LeaseView::read(&writer, Path::new("/"), at(9, 0)).unwrap();
            });
            faulty.add(Rule::new(Action::Call(look)).on(&[operation]).times(3));
            let shared: Arc<dyn Fs> = faulty.shared();
            let lease = Lease::take(&shared, Path::new("/"), &mut Random::new(1)).unwrap().unwrap();
            assert!(fs.exists(&lease.path).unwrap(), "{operation:?}");
            assert_eq!(view(&fs).readers, 1);
            lease.set(Hold { position: at(5, 0), log_from: u64::MAX }).unwrap();
            assert!(view(&fs).frees_table(at(5, 0)), "what it says is read from the file that is locked");
        }
    }

    #[test]
    fn where_nothing_can_be_written_there_is_no_lease() {
        let fs = MemoryFs::new();
        fs.set_capacity(Some(0));
        let lease = Lease::take(&fs.shared(), Path::new("/"), &mut Random::new(1)).unwrap();
        assert!(lease.is_none());
        assert_eq!(leases(&fs), 0);
    }
}
