//! Everything that a [`MemoryFs`](super::MemoryFs) holds, behind its one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::content::Content;
use super::crash::Leaning;
use super::names::{Change, Name, Names, Node, ROOT};
use super::pages::PAGE_BYTES;
use crate::checksum;
use crate::random::Random;

/// A process that uses the file system.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: u64,
    /// Changes only under the lock of [`State`], so that a call happens before a kill or fails.
    alive: AtomicBool,
}

impl Process {
    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    fn kill(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }
}

pub(super) struct State {
    pub(super) names: Names,
    files: BTreeMap<u64, Arc<Content>>,
    /// Files that lost a name, and so perhaps their last one.
    orphans: BTreeSet<u64>,
    next_id: u64,
    pub(super) boot_id: u128,
    /// The process on whose behalf the file system acts when it is not bound to one.
    pub(super) process: Arc<Process>,
    /// Every process that was started since the last crash.
    processes: Vec<Arc<Process>>,
    /// Number of open handles and mappings by process and file.
    open: BTreeMap<(u64, u64), usize>,
    /// Which process holds the lock of a file.
    locks: BTreeMap<u64, u64>,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) mappable: bool,
}

type IoResult<T> = Result<T, io::ErrorKind>;

impl State {
    pub(super) fn new() -> State {
        let process = Arc::new(Process { id: 1, alive: AtomicBool::new(true) });
        State {
            names: Names::default(),
            files: BTreeMap::new(),
            orphans: BTreeSet::new(),
            next_id: ROOT + 1,
            boot_id: boot_id(0, 0),
            processes: vec![Arc::clone(&process)],
            process,
            open: BTreeMap::new(),
            locks: BTreeMap::new(),
            capacity_bytes: None,
            mappable: true,
        }
    }

    /// The same files, used by nobody.
    pub(super) fn fork(&self) -> State {
        let mut fork = State {
            names: self.names.clone(),
            files: self.files.clone(),
            orphans: self.orphans.clone(),
            next_id: self.next_id,
            boot_id: self.boot_id,
            process: Arc::clone(&self.process),
            processes: Vec::new(),
            open: BTreeMap::new(),
            locks: BTreeMap::new(),
            capacity_bytes: self.capacity_bytes,
            mappable: self.mappable,
        };
        fork.process = fork.start_process();
        fork
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn start_process(&mut self) -> Arc<Process> {
        let process = Arc::new(Process { id: self.new_id(), alive: AtomicBool::new(true) });
        self.processes.push(Arc::clone(&process));
        process
    }

    /// Kills one process, or all of them.
    pub(super) fn kill(&mut self, only: Option<&Process>) {
        let dies = |process: &Process| only.is_none_or(|only| only.id == process.id);
        self.processes.iter().filter(|process| dies(process)).for_each(|process| process.kill());
        self.processes.retain(|process| process.is_alive());
        let alive: BTreeSet<u64> = self.processes.iter().map(|process| process.id).collect();
        self.open.retain(|(process, _), _| alive.contains(process));
        self.locks.retain(|_, process| alive.contains(process));
        if !self.process.is_alive() {
            self.process = self.start_process();
        }
        self.forget_orphans();
    }

    pub(super) fn power_loss(&mut self, seed: u64) {
        self.kill(None);
        let mut random = Random::new(seed);
        let leaning = Leaning::pick(&mut random);
        let part = leaning.pick_part(&mut random);
        self.names.power_loss(&mut random, part);
        let reachable = self.names.tree().reachable_files();
        self.files.retain(|file, _| reachable.contains(file));
        for content in self.files.values_mut().filter(|content| content.has_unsynced()) {
            let part = leaning.pick_part(&mut random);
            Arc::make_mut(content).power_loss(&mut random, part);
        }
        self.orphans.clear();
        self.boot_id = boot_id(self.boot_id, seed);
    }

    pub(super) fn content(&self, file: u64) -> IoResult<&Content> {
        self.files.get(&file).map(|content| &**content).ok_or(io::ErrorKind::NotFound)
    }

    pub(super) fn content_mut(&mut self, file: u64) -> IoResult<&mut Content> {
        self.files.get_mut(&file).map(Arc::make_mut).ok_or(io::ErrorKind::NotFound)
    }

    /// Writes; an error of kind `StorageFull` after what still had room was written.
    pub(super) fn write(&mut self, file: u64, offset: u64, bytes: &[u8]) -> IoResult<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(io::ErrorKind::FileTooLarge);
        }
        let free_pages = match self.capacity_bytes {
            Some(_) => self.free_bytes() / PAGE_BYTES as u64,
            None => u64::MAX,
        };
        let written = self.content_mut(file)?.write(offset, bytes, free_pages);
        if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull) }
    }

    /// Bytes taken by the files that have a name or are open.
    pub(super) fn stored_bytes(&self) -> u64 {
        let mut files = self.names.tree().reachable_files();
        files.extend(self.open.keys().map(|(_, file)| *file));
        let pages = |file: &u64| self.files.get(file).map_or(0, |content| content.page_count());
        files.iter().map(pages).sum::<u64>() * PAGE_BYTES as u64
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.stored_bytes()))
    }

    /// A new empty file under a free name.
    pub(super) fn create_file(&mut self, name: Name) -> u64 {
        let file = self.new_id();
        self.files.insert(file, Arc::new(Content::new(file)));
        self.names.change(Change { from: None, name, node: Some(Node::File(file)) });
        file
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> IoResult<()> {
        match self.names.tree().place(path)? {
            (name, Some(Node::File(file))) => {
                self.names.change(Change { from: None, name, node: None });
                self.orphans.insert(file);
                Ok(())
            }
            (_, Some(Node::Directory(_))) => Err(io::ErrorKind::IsADirectory),
            (_, None) => Err(io::ErrorKind::NotFound),
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> IoResult<()> {
        let (from_name, node) = self.names.tree().place(from)?;
        let (to_name, replaced) = self.names.tree().place(to)?;
        let node = node.ok_or(io::ErrorKind::NotFound)?;
        match (node, replaced) {
            // POSIX: two names of one file both stay.
            (node, Some(replaced)) if node == replaced => return Ok(()),
            (Node::File(_), Some(Node::Directory(_))) => return Err(io::ErrorKind::IsADirectory),
            (Node::Directory(_), Some(Node::File(_))) => return Err(io::ErrorKind::NotADirectory),
            (Node::Directory(_), Some(Node::Directory(directory)))
                if self.names.tree().entries(directory).next().is_some() =>
            {
                return Err(io::ErrorKind::DirectoryNotEmpty);
            }
            (Node::Directory(_), _) if to.starts_with(from) => return Err(io::ErrorKind::InvalidInput),
            (Node::File(_), Some(Node::File(file))) => {
                self.orphans.insert(file);
            }
            _ => {}
        }
        self.names.change(Change { from: Some(from_name), name: to_name, node: Some(node) });
        Ok(())
    }

    pub(super) fn hard_link(&mut self, from: &Path, to: &Path) -> IoResult<()> {
        let node = self.names.tree().find(from)?;
        match (node, self.names.tree().place(to)?) {
            (_, (_, Some(_))) => Err(io::ErrorKind::AlreadyExists),
            (Node::Directory(_), _) => Err(io::ErrorKind::PermissionDenied),
            (Node::File(_), (name, None)) => {
                self.names.change(Change { from: None, name, node: Some(node) });
                Ok(())
            }
        }
    }

    pub(super) fn create_directory_all(&mut self, path: &Path) -> IoResult<()> {
        while let Some(name) = self.names.tree().first_missing_directory(path)? {
            let directory = self.new_id();
            self.names.change(Change { from: None, name, node: Some(Node::Directory(directory)) });
        }
        Ok(())
    }

    pub(super) fn remove_directory(&mut self, path: &Path) -> IoResult<()> {
        match self.names.tree().place(path)? {
            (name, Some(Node::Directory(directory))) => {
                if self.names.tree().entries(directory).next().is_some() {
                    return Err(io::ErrorKind::DirectoryNotEmpty);
                }
                self.names.change(Change { from: None, name, node: None });
                Ok(())
            }
            (_, Some(Node::File(_))) => Err(io::ErrorKind::NotADirectory),
            (_, None) => Err(io::ErrorKind::NotFound),
        }
    }

    pub(super) fn sync_directory(&mut self, path: &Path) -> IoResult<()> {
        let directory = self.names.tree().find_directory(path)?;
        self.names.sync(directory);
        self.forget_orphans();
        Ok(())
    }

    /// Takes the lock of a file for a process; false if it is held.
    pub(super) fn lock(&mut self, process: &Process, file: u64) -> bool {
        if self.locks.contains_key(&file) {
            return false;
        }
        self.locks.insert(file, process.id);
        true
    }

    pub(super) fn unlock(&mut self, file: u64) {
        self.locks.remove(&file);
    }

    pub(super) fn opened(&mut self, process: &Process, file: u64) {
        *self.open.entry((process.id, file)).or_default() += 1;
    }

    pub(super) fn closed(&mut self, process: &Process, file: u64) {
        if let Some(count) = self.open.get_mut(&(process.id, file)) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&(process.id, file));
                self.forget_orphans();
            }
        }
    }

    pub(super) fn open_count(&self) -> usize {
        self.open.values().sum()
    }

    #[cfg(test)]
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Frees files that no name leads to, now or after any crash, and that nobody has open.
    fn forget_orphans(&mut self) {
        if self.orphans.is_empty() {
            return;
        }
        let mut needed = self.names.files_ever_after();
        needed.extend(self.open.keys().map(|(_, file)| *file));
        self.orphans.retain(|file| needed.contains(file));
        self.files.retain(|file, _| needed.contains(file));
    }
}

fn boot_id(before: u128, seed: u64) -> u128 {
    let half = |salt: u64| u128::from(checksum::checksum(checksum::seed(before, salt), &seed.to_le_bytes()));
    half(0) << 64 | half(1)
}
