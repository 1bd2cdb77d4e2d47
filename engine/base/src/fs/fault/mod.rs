//! Breaks chosen calls of another file system.
//!
//! A [`FaultFs`] hands every call on to the file system that it wraps, except those hit by a [`Rule`]: they fail, stop
//! half-way, wait, give wrong bytes, or call back into the test. Rules count their matching calls, and come and go
//! while the system runs. Two loops are built on that:
//!
//! - *fail every call once*: run once to count, then run again for each k with a rule that fails call k
//!   ([`CallCounts::fallible`], [`Rule::from_call`], [`Rule::times`]);
//! - *crash at every call*: run once over [`MemoryFs`] with a callback [`on_changes`](Rule::on_changes) that takes a
//!   [`fork`](MemoryFs::fork), and recover each fork, after a power loss or as it is.

mod handle;
mod rule;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use handle::{FaultFile, FaultMapping, Opened};
pub use rule::{Action, Call, Callback, Failure, Rule};

use super::memory::MemoryFs;
use super::operation::{CallCounts, Operation};
use super::{DirectoryEntry, File, FileLock, Fs, Mapping, OpenMode};
use crate::Result;
use crate::sync::Mutex;

/// Names a rule that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(u64);

/// A file system some of whose calls go wrong. Clones share the rules.
///
/// ```
/// use std::path::Path;
/// use alluvium_base::fs::fault::{Action, Failure, FaultFs, Rule};
/// use alluvium_base::fs::memory::MemoryFs;
/// use alluvium_base::fs::operation::Operation;
/// use alluvium_base::fs::{Fs, OpenMode};
///
/// let fs = FaultFs::over_memory(&MemoryFs::new());
/// let rule = fs.add(Rule::new(Action::Fail(Failure::DiskFull)).on(&[Operation::Write]));
/// let file = fs.open(Path::new("/a"), OpenMode::CreateNew)?;
/// assert!(file.write_at(b"bytes", 0).is_err());
/// fs.remove(rule);
/// file.write_at(b"bytes", 0)?;
/// # Ok::<(), alluvium_base::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FaultFs {
    shared: Arc<Shared>,
}

struct Added {
    id: RuleId,
    rule: Rule,
    matched: u64,
}

struct Shared {
    inner: Arc<dyn Fs>,
    /// The same file system as `inner`, if it is one in memory.
    memory: Option<MemoryFs>,
    /// Rules in the order of their ids, and the next id.
    rules: Mutex<(Vec<Added>, u64)>,
    calls: CallCounts,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// What the rules say about one call, apart from what was done before it.
type Verdict = Option<(Action, u64)>;

impl Shared {
    /// Begins one call: counts it, lets waits and callbacks run, and says what else is to happen. Of several rules that
    /// want to change the call itself, the one added first does.
    fn begin(&self, operation: Operation, paths: [&Path; 2]) -> Verdict {
        self.calls.record(operation);
        let mut hits: Vec<(Action, u64)> = Vec::new();
        for added in &mut self.rules.lock().0 {
            if added.rule.matches(operation, paths) {
                hits.extend(
                    added.rule.action_for(added.matched).map(|action| (action.clone(), added.matched)),
                );
                added.matched += 1;
            }
        }
        let mut verdict = None;
        for (action, number) in hits {
            match action {
                Action::Count => {}
                // Time passes, and nothing else happens: calls are made with locks held (the manifest's, say), so no
                // other job may run inside of one.
                Action::Delay { clock, duration } => clock.sleep(duration),
                Action::Call(callback) => callback(Call { operation, path: paths[0], number }),
                change => verdict = verdict.or(Some((change, number))),
            }
        }
        verdict
    }

    /// One call that is neither a read nor a write.
    fn run<T>(&self, operation: Operation, path: &Path, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.run_two(operation, [path, path], call)
    }

    fn run_two<T>(
        &self,
        operation: Operation,
        paths: [&Path; 2],
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let verdict = self.begin(operation, paths);
        apply(verdict, operation, paths[0], call)
    }
}

/// Does to a call what its rules say, as far as they do not need to look into it.
fn apply<T>(
    verdict: Verdict,
    operation: Operation,
    path: &Path,
    call: impl FnOnce() -> Result<T>,
) -> Result<T> {
    match verdict {
        Some((Action::Fail(failure) | Action::ShortWrite { failure, .. }, _)) => {
            Err(failure.error(operation, path))
        }
        Some((Action::FailDroppingDirty | Action::FailEvictingDirty, _)) => {
            Err(Failure::Io.error(operation, path))
        }
        Some((Action::FailAfter(failure), _)) => {
            call()?;
            Err(failure.error(operation, path))
        }
        Some((Action::CallAfter { callback, .. }, number)) => {
            callback(Call { operation, path, number });
            call()
        }
        _ => call(),
    }
}

impl FaultFs {
    /// Wraps a file system.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> FaultFs {
        FaultFs::wrap(inner, None)
    }

    /// Wraps a file system in memory, whose failed syncs may then lose what was not durable
    /// ([`Action::FailDroppingDirty`], [`Action::FailEvictingDirty`]).
    #[must_use]
    pub fn over_memory(memory: &MemoryFs) -> FaultFs {
        FaultFs::wrap(memory.shared(), Some(memory.clone()))
    }

    fn wrap(inner: Arc<dyn Fs>, memory: Option<MemoryFs>) -> FaultFs {
        let shared =
            Shared { inner, memory, rules: Mutex::new((Vec::new(), 0)), calls: CallCounts::default() };
        FaultFs { shared: Arc::new(shared) }
    }

    /// This file system as a trait object.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Fs> {
        Arc::new(self.clone())
    }

    /// Adds a rule; it counts and hits calls from now on, of files that are already open too.
    pub fn add(&self, rule: Rule) -> RuleId {
        let (rules, next) = &mut *self.shared.rules.lock();
        let id = RuleId(*next);
        *next += 1;
        rules.push(Added { id, rule, matched: 0 });
        id
    }

    /// Removes a rule, if it is still there.
    pub fn remove(&self, id: RuleId) {
        self.shared.rules.lock().0.retain(|added| added.id != id);
    }

    /// Removes every rule.
    pub fn remove_all(&self) {
        self.shared.rules.lock().0.clear();
    }

    /// Number of calls that a rule has matched, whether it did anything to them or not; 0 once it is removed.
    #[must_use]
    pub fn matched(&self, id: RuleId) -> u64 {
        self.shared.rules.lock().0.iter().find(|added| added.id == id).map_or(0, |added| added.matched)
    }

    /// How often each kind of call was made.
    #[must_use]
    pub fn calls(&self) -> &CallCounts {
        &self.shared.calls
    }
}

impl Fs for FaultFs {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let create = matches!(mode, OpenMode::CreateNew | OpenMode::CreateOrTruncate);
        let operation = if create { Operation::Create } else { Operation::Open };
        let file = self.shared.run(operation, path, || {
            Ok(match &self.shared.memory {
                Some(memory) => Opened::InMemory(memory.open_file(path, mode)?),
                None => Opened::Elsewhere(self.shared.inner.open(path, mode)?),
            })
        })?;
        Ok(Arc::new(FaultFile::new(&self.shared, file)))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.shared.run(Operation::RemoveFile, path, || self.shared.inner.remove_file(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.shared.run_two(Operation::Rename, [from, to], || self.shared.inner.rename(from, to))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.shared.run_two(Operation::HardLink, [to, from], || self.shared.inner.hard_link(from, to))
    }

    fn create_directory_all(&self, path: &Path) -> Result<()> {
        self.shared.run(Operation::CreateDirectory, path, || self.shared.inner.create_directory_all(path))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.shared.run(Operation::RemoveDirectory, path, || self.shared.inner.remove_directory(path))
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.shared.run(Operation::SyncDirectory, path, || self.shared.inner.sync_directory(path))
    }

    fn list_directory(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.shared.run(Operation::ListDirectory, path, || self.shared.inner.list_directory(path))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.shared.run(Operation::Exists, path, || self.shared.inner.exists(path))
    }

    fn file_size(&self, path: &Path) -> Result<u64> {
        self.shared.run(Operation::FileSize, path, || self.shared.inner.file_size(path))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.shared.run(Operation::Lock, path, || self.shared.inner.lock(path))
    }

    fn map(&self, path: &Path, len: usize) -> Result<Option<Arc<dyn Mapping>>> {
        let mapping = self.shared.run(Operation::Map, path, || self.shared.inner.map(path, len))?;
        Ok(mapping.map(|mapping| FaultMapping::shared(&self.shared, mapping, path)))
    }

    fn available_space(&self, path: &Path) -> Result<u64> {
        self.shared.run(Operation::AvailableSpace, path, || self.shared.inner.available_space(path))
    }

    fn boot_id(&self) -> u128 {
        self.shared.inner.boot_id()
    }

    fn open_files_max(&self) -> usize {
        self.shared.inner.open_files_max()
    }
}
