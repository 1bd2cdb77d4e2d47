//! A file system in memory, with a model of what a crash leaves.
//!
//! Two crashes are modelled, each harsher than most real ones (the reasons are in `design/media-assumptions.md`):
//!
//! - **A process is killed** ([`MemoryFs::process_kill`]): every write and every store into a mapping stays; handles,
//!   mappings and locks of the process are dead.
//! - **Power is lost** ([`MemoryFs::power_loss`]): what was synced stays. Of what was not, any part stays: for every
//!   512-byte sector the durable version, the newest or one in between; any of the sizes that the file had; any
//!   subset of the changes of names, where a rename is atomic. The boot id changes.
//!
//! Everything is a function of the calls and the seed of the crash. [`MemoryFs::fork`] copies the whole file system for
//! the price of a few reference counts per file, so that a test can crash at every point of a run and go on.
//!
//! Parts: `pages` (bytes, copied on write), `content` (one file with its unsynced versions), `names` (directories and
//! their unsynced changes), `state` (all of it), `handle` (what a process holds).

mod content;
mod crash;
mod handle;
mod names;
mod pages;
mod state;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(in crate::fs) use handle::MemoryFile;
use handle::{Handle, MemoryLock, MemoryMapping};
use names::Node;
use state::{Process, State};

use super::operation::{CallCounts, Operation};
use super::{DirectoryEntry, File, FileLock, Fs, Mapping, OpenMode};
use crate::sync::{Mutex, MutexGuard};
use crate::{Error, ErrorKind, Result};

/// A file system in memory. Clones share the files; [`fork`](MemoryFs::fork) copies them.
///
/// ```
/// use std::path::Path;
/// use alluvium_base::fs::memory::MemoryFs;
/// use alluvium_base::fs::{Fs, OpenMode};
///
/// let fs = MemoryFs::new();
/// let file = fs.open(Path::new("/a"), OpenMode::CreateNew)?;
/// file.write_at(b"synced", 0)?;
/// file.sync_data()?;
/// fs.sync_directory(Path::new("/"))?;
/// file.write_at(b"not yet", 6)?;
/// for seed in 0..100 {
///     let crashed = fs.fork();
///     crashed.power_loss(seed);
///     assert!(crashed.contents(Path::new("/a"))?.starts_with(b"synced"));
/// }
/// # Ok::<(), alluvium_base::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryFs {
    shared: Arc<Shared>,
    /// The process that this view belongs to; `None` for the view of the machine, on which one always runs.
    process: Option<Arc<Process>>,
}

struct Shared {
    state: Mutex<State>,
    calls: CallCounts,
}

/// Most files that a process may hold open; the soft limit of most Linux systems.
const OPEN_FILES_MAX: usize = 1024;

fn failed(operation: Operation, path: &Path, kind: io::ErrorKind) -> Error {
    Error::io(operation.verb(), path, &io::Error::from(kind))
}

impl Shared {
    /// Begins one call: counts it and makes sure that its process lives.
    fn call(&self, operation: Operation, path: &Path, process: &Process) -> Result<MutexGuard<'_, State>> {
        self.calls.record(operation);
        let state = self.state.lock();
        if process.is_alive() {
            return Ok(state);
        }
        Err(failed(operation, path, io::ErrorKind::NotConnected).context("this process has been killed"))
    }
}

impl Default for MemoryFs {
    fn default() -> MemoryFs {
        MemoryFs::new()
    }
}

impl fmt::Debug for MemoryFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFs").field("files", &self.files()).finish_non_exhaustive()
    }
}

impl MemoryFs {
    /// An empty file system with a root directory, `/`. Relative paths start there too.
    #[must_use]
    pub fn new() -> MemoryFs {
        MemoryFs::with_state(State::new())
    }

    fn with_state(state: State) -> MemoryFs {
        let shared = Shared { state: Mutex::new(state), calls: CallCounts::default() };
        MemoryFs { shared: Arc::new(shared), process: None }
    }

    /// This view of the files as a trait object.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Fs> {
        Arc::new(self.clone())
    }

    /// Starts a process and returns its view of the files. After that process has been killed, or power was lost,
    /// every call through this view fails for good, so that what is left of a database in a test cannot touch the files
    /// of its successor. (Calls through the machine's view, which [`new`](MemoryFs::new) and
    /// [`fork`](MemoryFs::fork) return, always succeed: another process then runs at once.)
    #[must_use]
    pub fn process(&self) -> MemoryFs {
        let process = self.shared.state.lock().start_process();
        MemoryFs { shared: Arc::clone(&self.shared), process: Some(process) }
    }

    /// Kills the process of this view; through the machine's view, all processes. Everything stored stays, whether
    /// written or mapped; handles, mappings and locks die.
    pub fn process_kill(&self) {
        self.shared.state.lock().kill(self.process.as_deref());
    }

    /// Cuts the power: kills every process and keeps of what was not synced what `seed` chooses. The same calls and
    /// the same seed leave the same files.
    pub fn power_loss(&self, seed: u64) {
        self.shared.state.lock().power_loss(seed);
    }

    /// An independent copy of all files, durable and not, with no handle, mapping or lock: what a kill of all processes
    /// would leave now. Both share pages until one changes them.
    #[must_use]
    pub fn fork(&self) -> MemoryFs {
        MemoryFs::with_state(self.shared.state.lock().fork())
    }

    /// Limits the space; `None` takes the limit away. It may be less than what is stored.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.state.lock().capacity_bytes = bytes;
    }

    /// Whether [`Fs::map`] maps files (as at first) or returns `None`.
    pub fn set_mappable(&self, mappable: bool) {
        self.shared.state.lock().mappable = mappable;
    }

    /// Paths of all files, in order.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let state = self.shared.state.lock();
        let tree = state.names.tree();
        let mut files = Vec::new();
        let mut left = vec![(names::ROOT, PathBuf::from("/"))];
        while let Some((directory, path)) = left.pop() {
            for (name, node) in tree.entries(directory) {
                match node {
                    Node::File(_) => files.push(path.join(&**name)),
                    Node::Directory(child) => left.push((child, path.join(&**name))),
                }
            }
        }
        files.sort();
        files
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn contents(&self, path: &Path) -> Result<Vec<u8>> {
        let error = |kind| failed(Operation::Read, path, kind);
        let state = self.shared.state.lock();
        let content = state.content(state.names.tree().find_file(path).map_err(error)?).map_err(error)?;
        let mut bytes = vec![0; usize::try_from(content.len()).unwrap_or(usize::MAX)];
        content.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Damages a file on the medium: replaces bytes in every version of it, so that no crash brings the old ones back.
    /// What lies behind the end of the file is ignored.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn patch(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
        let error = |kind| failed(Operation::Write, path, kind);
        let mut state = self.shared.state.lock();
        let file = state.names.tree().find_file(path).map_err(error)?;
        state.content_mut(file).map_err(error)?.patch(offset, bytes);
        Ok(())
    }

    /// Cuts or extends a file on the medium, durably, along with everything in it that was not synced.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn patch_len(&self, path: &Path, len: u64) -> Result<()> {
        let error = |kind| failed(Operation::SetLen, path, kind);
        let mut state = self.shared.state.lock();
        let file = state.names.tree().find_file(path).map_err(error)?;
        let content = state.content_mut(file).map_err(error)?;
        content.set_len(len);
        content.sync();
        Ok(())
    }

    /// Bytes taken on the medium by files that have a name or are open, in whole pages.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.shared.state.lock().stored_bytes()
    }

    /// Number of open files, mappings and held locks of living processes.
    #[must_use]
    pub fn open_handles(&self) -> usize {
        self.shared.state.lock().open_count()
    }

    /// How often each kind of call was made, through any view. A fork starts at zero.
    #[must_use]
    pub fn calls(&self) -> &CallCounts {
        &self.shared.calls
    }

    fn call(&self, operation: Operation, path: &Path) -> Result<(MutexGuard<'_, State>, Arc<Process>)> {
        let process = match &self.process {
            Some(process) => Arc::clone(process),
            None => Arc::clone(&self.shared.state.lock().process),
        };
        Ok((self.shared.call(operation, path, &process)?, process))
    }

    /// Runs one call that changes or asks for names.
    fn name_call<T>(
        &self,
        operation: Operation,
        path: &Path,
        run: impl FnOnce(&mut State) -> Result<T, io::ErrorKind>,
    ) -> Result<T> {
        let (mut state, _) = self.call(operation, path)?;
        run(&mut state).map_err(|kind| failed(operation, path, kind))
    }

    /// [`Fs::open`], with the type of the handle.
    pub(in crate::fs) fn open_file(&self, path: &Path, mode: OpenMode) -> Result<MemoryFile> {
        let create = matches!(mode, OpenMode::CreateNew | OpenMode::CreateOrTruncate);
        let operation = if create { Operation::Create } else { Operation::Open };
        let error = |kind| failed(Operation::Open, path, kind);
        let (mut state, process) = self.call(operation, path)?;
        let (name, node) = state.names.tree().place(path).map_err(error)?;
        let file = match (node, mode) {
            (Some(_), OpenMode::CreateNew) => {
                return Err(ErrorKind::AlreadyExists { what: path.display().to_string() }.into());
            }
            (Some(Node::Directory(_)), _) => return Err(error(io::ErrorKind::IsADirectory)),
            (Some(Node::File(file)), _) => file,
            (None, OpenMode::Read | OpenMode::ReadWrite) => return Err(error(io::ErrorKind::NotFound)),
            (None, _) => state.create_file(name),
        };
        if mode == OpenMode::CreateOrTruncate {
            state.content_mut(file).map_err(error)?.set_len(0);
        }
        let handle = Handle::new(&self.shared, &mut state, &process, file, path);
        Ok(MemoryFile::new(handle, mode != OpenMode::Read))
    }
}

impl Fs for MemoryFs {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(Arc::new(self.open_file(path, mode)?))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.name_call(Operation::RemoveFile, path, |state| state.remove_file(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.name_call(Operation::Rename, from, |state| state.rename(from, to))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.name_call(Operation::HardLink, to, |state| state.hard_link(from, to))
    }

    fn create_directory_all(&self, path: &Path) -> Result<()> {
        self.name_call(Operation::CreateDirectory, path, |state| state.create_directory_all(path))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.name_call(Operation::RemoveDirectory, path, |state| state.remove_directory(path))
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.name_call(Operation::SyncDirectory, path, |state| state.sync_directory(path))
    }

    fn list_directory(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.name_call(Operation::ListDirectory, path, |state| {
            let tree = state.names.tree();
            let directory = tree.find_directory(path)?;
            let entry = |(name, node): (&Arc<str>, Node)| DirectoryEntry {
                name: name.to_string(),
                is_directory: matches!(node, Node::Directory(_)),
            };
            Ok(tree.entries(directory).map(entry).collect())
        })
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.name_call(Operation::Exists, path, |state| match state.names.tree().find(path) {
            Ok(_) => Ok(true),
            Err(io::ErrorKind::NotFound) => Ok(false),
            Err(kind) => Err(kind),
        })
    }

    fn file_size(&self, path: &Path) -> Result<u64> {
        self.name_call(Operation::FileSize, path, |state| {
            Ok(state.content(state.names.tree().find_file(path)?)?.len())
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let error = |kind| failed(Operation::Lock, path, kind);
        let (mut state, process) = self.call(Operation::Lock, path)?;
        let (name, node) = state.names.tree().place(path).map_err(error)?;
        let file = match node {
            Some(Node::File(file)) => file,
            Some(Node::Directory(_)) => return Err(error(io::ErrorKind::IsADirectory)),
            None => state.create_file(name),
        };
        if !state.lock(&process, file) {
            let mut holder = [0; 64];
            let len = state.content(file).map_err(error)?.read(0, &mut holder);
            let holder = String::from_utf8_lossy(holder.get(..len).unwrap_or_default()).into_owned();
            return Err(ErrorKind::InUse { path: path.to_owned(), holder: Some(holder) }.into());
        }
        state.content_mut(file).map_err(error)?.set_len(0);
        // As on a real disk: who holds it is a courtesy, a full disk does not keep anyone from locking.
        let _ = state.write(file, 0, format!("process {}", process.id).as_bytes());
        Ok(Box::new(MemoryLock::new(Handle::new(&self.shared, &mut state, &process, file, path))))
    }

    fn map(&self, path: &Path, len: usize) -> Result<Option<Arc<dyn Mapping>>> {
        let error = |kind| failed(Operation::Map, path, kind);
        let (mut state, process) = self.call(Operation::Map, path)?;
        let file = state.names.tree().find_file(path).map_err(error)?;
        if !state.mappable {
            return Ok(None);
        }
        let size = state.content(file).map_err(error)?.len();
        if size < len as u64 {
            return Err(Error::invalid(format!(
                "cannot map {len} bytes of {}, which has {size}",
                path.display()
            )));
        }
        let handle = Handle::new(&self.shared, &mut state, &process, file, path);
        Ok(Some(Arc::new(MemoryMapping::new(handle, len))))
    }

    fn available_space(&self, path: &Path) -> Result<u64> {
        self.name_call(Operation::AvailableSpace, path, |state| {
            state.names.tree().find(path)?;
            Ok(state.free_bytes())
        })
    }

    fn boot_id(&self) -> u128 {
        self.shared.state.lock().boot_id
    }

    fn open_files_max(&self) -> usize {
        OPEN_FILES_MAX
    }
}
