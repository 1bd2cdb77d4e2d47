//! Files and mappings some of whose calls go wrong.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Action, Call, Shared, apply};
use crate::Result;
use crate::fs::memory::MemoryFile;
use crate::fs::operation::Operation;
use crate::fs::{File, Mapping};

/// A file of the wrapped file system.
#[derive(Debug)]
pub(super) enum Opened {
    InMemory(MemoryFile),
    Elsewhere(Arc<dyn File>),
}

pub(super) struct FaultFile {
    shared: Arc<Shared>,
    file: Opened,
}

impl FaultFile {
    pub(super) fn new(shared: &Arc<Shared>, file: Opened) -> FaultFile {
        FaultFile { shared: Arc::clone(shared), file }
    }

    fn inner(&self) -> &dyn File {
        match &self.file {
            Opened::InMemory(file) => file,
            Opened::Elsewhere(file) => &**file,
        }
    }

    fn run<T>(&self, operation: Operation, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.shared.run(operation, self.path(), call)
    }
}

impl fmt::Debug for FaultFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner().fmt(f)
    }
}

fn flip(bytes: &mut [u8], bit: u64) {
    if let Some(bit) = bit.checked_rem(bytes.len() as u64 * 8)
        && let Some(byte) = bytes.get_mut((bit / 8) as usize)
    {
        *byte ^= 1 << (bit % 8);
    }
}

impl File for FaultFile {
    fn path(&self) -> &Path {
        self.inner().path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self.shared.begin(Operation::Read, [self.path(); 2]) {
            Some((Action::ShortRead { bytes }, _)) => {
                let len = bytes.min(buffer.len());
                self.inner().read_at(buffer.get_mut(..len).unwrap_or_default(), offset)
            }
            Some((Action::FlipBit { bit }, _)) => {
                let got = self.inner().read_at(buffer, offset)?;
                flip(buffer.get_mut(..got).unwrap_or_default(), bit);
                Ok(got)
            }
            verdict => apply(verdict, Operation::Read, self.path(), || self.inner().read_at(buffer, offset)),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let path = self.path();
        match self.shared.begin(Operation::Write, [path; 2]) {
            Some((Action::ShortWrite { bytes: len, failure }, _)) => {
                let (written, _) = bytes.split_at(len.min(bytes.len()));
                self.inner().write_at(written, offset)?;
                Err(failure.error(Operation::Write, path))
            }
            Some((Action::CallAfter { bytes: len, callback }, number)) => {
                let (before, after) = bytes.split_at(len.min(bytes.len()));
                self.inner().write_at(before, offset)?;
                callback(Call { operation: Operation::Write, path, number });
                self.inner().write_at(after, offset + before.len() as u64)
            }
            verdict => apply(verdict, Operation::Write, path, || self.inner().write_at(bytes, offset)),
        }
    }

    fn sync_data(&self) -> Result<()> {
        let verdict = self.shared.begin(Operation::Sync, [self.path(); 2]);
        if let (Some((action, _)), Opened::InMemory(file)) = (&verdict, &self.file) {
            match action {
                Action::FailDroppingDirty => file.forget_dirty(false)?,
                Action::FailEvictingDirty => file.forget_dirty(true)?,
                _ => {}
            }
        }
        apply(verdict, Operation::Sync, self.path(), || self.inner().sync_data())
    }

    fn start_writeback(&self, offset: u64, len: u64) -> Result<()> {
        self.run(Operation::StartWriteback, || self.inner().start_writeback(offset, len))
    }

    fn len(&self) -> Result<u64> {
        self.run(Operation::Len, || self.inner().len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.run(Operation::SetLen, || self.inner().set_len(len))
    }

    fn read_ahead(&self, offset: u64, len: u64) -> Result<()> {
        self.run(Operation::ReadAhead, || self.inner().read_ahead(offset, len))
    }
}

pub(super) struct FaultMapping {
    shared: Arc<Shared>,
    mapping: Arc<dyn Mapping>,
    path: PathBuf,
}

impl FaultMapping {
    pub(super) fn shared(shared: &Arc<Shared>, mapping: Arc<dyn Mapping>, path: &Path) -> Arc<dyn Mapping> {
        Arc::new(FaultMapping { shared: Arc::clone(shared), mapping, path: path.to_owned() })
    }
}

impl fmt::Debug for FaultMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mapping.fmt(f)
    }
}

impl Mapping for FaultMapping {
    fn len(&self) -> usize {
        self.mapping.len()
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        match self.shared.begin(Operation::MappedStore, [&self.path; 2]) {
            Some((Action::ShortWrite { bytes: len, .. }, _)) => {
                self.mapping.write(offset, bytes.split_at(len.min(bytes.len())).0);
            }
            Some((Action::CallAfter { bytes: len, callback }, number)) => {
                let (before, after) = bytes.split_at(len.min(bytes.len()));
                self.mapping.write(offset, before);
                callback(Call { operation: Operation::MappedStore, path: &self.path, number });
                self.mapping.write(offset + before.len(), after);
            }
            _ => self.mapping.write(offset, bytes),
        }
    }

    fn read(&self, offset: usize, buffer: &mut [u8]) {
        let verdict = self.shared.begin(Operation::MappedLoad, [&self.path; 2]);
        self.mapping.read(offset, buffer);
        if let Some((Action::FlipBit { bit }, _)) = verdict {
            flip(buffer, bit);
        }
    }

    fn store_u64(&self, offset: usize, value: u64) {
        match self.shared.begin(Operation::MappedStore, [&self.path; 2]) {
            Some((Action::ShortWrite { bytes: 0..8, .. }, _)) => {}
            Some((Action::CallAfter { bytes, callback }, number)) => {
                // A word is never half stored: it comes before the callback or after it.
                let call = Call { operation: Operation::MappedStore, path: &self.path, number };
                if bytes < 8 {
                    callback(call);
                    self.mapping.store_u64(offset, value);
                } else {
                    self.mapping.store_u64(offset, value);
                    callback(call);
                }
            }
            _ => self.mapping.store_u64(offset, value),
        }
    }

    fn load_u64(&self, offset: usize) -> u64 {
        let verdict = self.shared.begin(Operation::MappedLoad, [&self.path; 2]);
        let word = self.mapping.load_u64(offset);
        match verdict {
            Some((Action::FlipBit { bit }, _)) => word ^ 1 << (bit % 64),
            _ => word,
        }
    }
}
