//! What a process holds of a [`MemoryFs`](super::MemoryFs): open files, mappings, locks.
//!
//! Each knows its process. Once that has been killed, every call fails, stores are ignored and loads give zeros.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::state::{Process, State};
use super::{Shared, failed};
use crate::fs::operation::Operation;
use crate::fs::{File, FileLock, Mapping};
use crate::sync::MutexGuard;
use crate::{Error, Result};

/// A file as one process has it open.
pub(in crate::fs) struct Handle {
    shared: Arc<Shared>,
    process: Arc<Process>,
    file: u64,
    path: PathBuf,
}

impl Handle {
    pub(super) fn new(
        shared: &Arc<Shared>,
        state: &mut State,
        process: &Arc<Process>,
        file: u64,
        path: &Path,
    ) -> Handle {
        state.opened(process, file);
        Handle { shared: Arc::clone(shared), process: Arc::clone(process), file, path: path.to_owned() }
    }

    fn error(&self, operation: Operation, kind: io::ErrorKind) -> Error {
        failed(operation, &self.path, kind)
    }

    fn call(&self, operation: Operation) -> Result<MutexGuard<'_, State>> {
        self.shared.call(operation, &self.path, &self.process)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.state.lock().closed(&self.process, self.file);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of process {}", self.path.display(), self.process.id)
    }
}

#[derive(Debug)]
pub(in crate::fs) struct MemoryFile {
    handle: Handle,
    writable: bool,
}

impl MemoryFile {
    pub(super) fn new(handle: Handle, writable: bool) -> MemoryFile {
        MemoryFile { handle, writable }
    }

    /// Leaves the file as a failed sync does on Linux: clean, but not durable.
    /// If the pages are evicted at once, reads give the durable bytes again.
    pub(in crate::fs) fn forget_dirty(&self, evict: bool) -> Result<()> {
        let mut state = self.handle.call(Operation::Sync)?;
        let content = state.content_mut(self.handle.file);
        content.map_err(|kind| self.handle.error(Operation::Sync, kind))?.forget_dirty(evict);
        Ok(())
    }

    fn call_to_change(&self, operation: Operation) -> Result<MutexGuard<'_, State>> {
        let state = self.handle.call(operation)?;
        if self.writable {
            Ok(state)
        } else {
            Err(self.handle.error(operation, io::ErrorKind::PermissionDenied))
        }
    }
}

impl File for MemoryFile {
    fn path(&self) -> &Path {
        &self.handle.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let state = self.handle.call(Operation::Read)?;
        let content =
            state.content(self.handle.file).map_err(|kind| self.handle.error(Operation::Read, kind))?;
        Ok(content.read(offset, buffer))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if bytes.is_empty() {
            // Nothing reaches the system then, so that even a handle for reading may do it.
            return self.handle.call(Operation::Write).map(drop);
        }
        let mut state = self.call_to_change(Operation::Write)?;
        let result = state.write(self.handle.file, offset, bytes);
        result.map_err(|kind| self.handle.error(Operation::Write, kind))
    }

    fn sync_data(&self) -> Result<()> {
        let mut state = self.handle.call(Operation::Sync)?;
        state.content_mut(self.handle.file).map_err(|kind| self.handle.error(Operation::Sync, kind))?.sync();
        Ok(())
    }

    fn start_writeback(&self, _offset: u64, _len: u64) -> Result<()> {
        self.handle.call(Operation::StartWriteback).map(drop)
    }

    fn len(&self) -> Result<u64> {
        let state = self.handle.call(Operation::Len)?;
        Ok(state.content(self.handle.file).map_err(|kind| self.handle.error(Operation::Len, kind))?.len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut state = self.call_to_change(Operation::SetLen)?;
        if len > i64::MAX as u64 {
            return Err(self.handle.error(Operation::SetLen, io::ErrorKind::FileTooLarge));
        }
        let content = state.content_mut(self.handle.file);
        content.map_err(|kind| self.handle.error(Operation::SetLen, kind))?.set_len(len);
        Ok(())
    }

    fn read_ahead(&self, _offset: u64, _len: u64) -> Result<()> {
        self.handle.call(Operation::ReadAhead).map(drop)
    }
}

#[derive(Debug)]
pub(super) struct MemoryMapping {
    handle: Handle,
    len: usize,
}

impl MemoryMapping {
    pub(super) fn new(handle: Handle, len: usize) -> MemoryMapping {
        MemoryMapping { handle, len }
    }

    /// The state for one access of `len` bytes, unless the process is dead.
    fn access(&self, operation: Operation, offset: usize, len: usize) -> Option<MutexGuard<'_, State>> {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{len} bytes at {offset} are outside a mapping of {} bytes",
            self.len
        );
        let state = self.handle.call(operation).ok()?;
        let file_len = state.content(self.handle.file).map_or(0, |content| content.len());
        assert!(
            end.is_some_and(|end| end as u64 <= file_len),
            "SIGBUS: {len} bytes at {offset} of a mapping lie behind the end of {}, which has {file_len} bytes now",
            self.handle.path.display()
        );
        Some(state)
    }
}

impl Mapping for MemoryMapping {
    fn len(&self) -> usize {
        self.len
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        if let Some(mut state) = self.access(Operation::MappedStore, offset, bytes.len()) {
            let stored = state.write(self.handle.file, offset as u64, bytes);
            assert!(
                stored.is_ok(),
                "SIGBUS: a store into a hole of {} on a full disk",
                self.handle.path.display()
            );
        }
    }

    fn read(&self, offset: usize, buffer: &mut [u8]) {
        buffer.fill(0);
        if let Some(state) = self.access(Operation::MappedLoad, offset, buffer.len())
            && let Ok(content) = state.content(self.handle.file)
        {
            content.read(offset as u64, buffer);
        }
    }

    fn store_u64(&self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8), "a word at {offset} is not aligned");
        self.write(offset, &value.to_le_bytes());
    }

    fn load_u64(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8), "a word at {offset} is not aligned");
        let mut word = [0; 8];
        self.read(offset, &mut word);
        u64::from_le_bytes(word)
    }
}

/// A held lock.
#[derive(Debug)]
pub(super) struct MemoryLock {
    handle: Handle,
}

impl MemoryLock {
    pub(super) fn new(handle: Handle) -> MemoryLock {
        MemoryLock { handle }
    }
}

impl FileLock for MemoryLock {
    fn path(&self) -> &Path {
        &self.handle.path
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.handle.shared.state.lock();
        if self.handle.process.is_alive() {
            state.unlock(self.handle.file);
        }
    }
}
