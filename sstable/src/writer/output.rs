//! The file under construction: buffered appends, a running checksum, early write-back.

use std::sync::Arc;

use alluvium_base::checksum::Hasher;
use alluvium_base::fs::File;
use alluvium_base::{Error, Result};

use crate::frame::{self, BlockHandle, BlockKind};
use crate::settings::Compression;

/// The file is written in pieces of this size, in bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// After so many bytes the system is asked to write them back, so that the final sync has little left to wait for.
const WRITEBACK_BYTES: u64 = 1 << 20;

/// Appends to a file. After a failed write every later call fails with the same error.
pub(super) struct Output {
    file: Arc<dyn File>,
    identity: u128,
    buffer: Vec<u8>,
    /// Bytes in the file; the buffer goes behind them.
    written: u64,
    /// Bytes for which write-back has been started.
    written_back: u64,
    hasher: Hasher,
    failed: Option<Error>,
}

impl Output {
    pub(super) fn new(file: Arc<dyn File>, identity: u128) -> Output {
        Output {
            file,
            identity,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            written: 0,
            written_back: 0,
            hasher: Hasher::new(),
            failed: None,
        }
    }

    pub(super) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// Offset of the next byte appended.
    pub(super) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// The error of an earlier write, if one failed.
    pub(super) fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Appends one block; `body` is used up.
    pub(super) fn append_block(
        &mut self,
        body: &mut Vec<u8>,
        kind: BlockKind,
        compression: Compression,
    ) -> Result<BlockHandle> {
        let handle = BlockHandle { offset: self.position(), len: body.len() as u32 };
        frame::seal(body, kind, compression, self.identity, handle.offset);
        self.append(body)?;
        Ok(handle)
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.check()?;
        self.hasher.update(bytes);
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() < BUFFER_BYTES {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        // What is as large as the buffer gains nothing from passing through it.
        let result = self.file.write_at(bytes, self.written);
        self.note(result)?;
        self.written += bytes.len() as u64;
        self.start_writeback()
    }

    fn flush(&mut self) -> Result<()> {
        let result = self.file.write_at(&self.buffer, self.written);
        self.note(result)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.start_writeback()
    }

    fn start_writeback(&mut self) -> Result<()> {
        let behind = self.written - self.written_back;
        if behind < WRITEBACK_BYTES {
            return Ok(());
        }
        let result = self.file.start_writeback(self.written_back, behind);
        self.note(result)?;
        self.written_back = self.written;
        Ok(())
    }

    fn note(&mut self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Writes what is buffered; gives the size and the checksum of the whole file.
    pub(super) fn finish(mut self) -> Result<(u64, u64)> {
        self.check()?;
        self.flush()?;
        Ok((self.written, self.hasher.digest()))
    }
}
