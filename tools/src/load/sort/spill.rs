//! Sorted runs on disk.
//!
//! Each worker appends its runs to one unnamed temporary file: the system frees it when the process ends, however it
//! ends, so a crash leaves nothing to clean up. A run is a stretch of that file, made of blocks:
//!
//! ```text
//! block = raw length (4 B) | stored length (4 B) | xxh3 of the stored bytes (8 B) | stored bytes
//! entry = key length (varint) | value length (varint) | place (8 B) | key | value      (in the raw bytes)
//! ```
//!
//! Integers are little-endian. Stored bytes are lz4, or the raw bytes where lz4 would not shrink them (the two lengths
//! are then equal). The checksum is seeded with the raw length and the block's offset, so it covers them too.
//! Temporary space is not trusted: a full or failing disk shows up as an error, never as missing rows.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_base::coding::{self, Reader};
use alluvium_base::limits::BLOCK_BYTES_MAX;
use alluvium_base::{Error, Result, checksum};

use crate::load::place::Place;

const HEADER_BYTES: usize = 16;

/// The unnamed temporary file of one worker.
#[derive(Debug)]
pub struct SpillFile {
    file: Arc<File>,
    /// Where it lives, for messages.
    directory: PathBuf,
    len: u64,
}

impl SpillFile {
    /// Creates an unnamed file in `directory`, which must exist.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(directory: &Path) -> Result<SpillFile> {
        let file = tempfile::tempfile_in(directory)
            .map_err(|error| Error::io("create a temporary file in", directory, &error))?;
        Ok(SpillFile { file: Arc::new(file), directory: directory.to_owned(), len: 0 })
    }

    /// Starts a run behind what has been written.
    pub fn start_run(&mut self, block_bytes: usize) -> RunWriter<'_> {
        let start = self.len;
        RunWriter {
            spill: self,
            start,
            block_bytes,
            raw: Vec::new(),
            stored: Vec::new(),
            entries: 0,
            first: None,
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, self.len).map_err(|error| {
            Error::io("spill sorted rows to a temporary file in", &self.directory, &error)
        })?;
        self.len += bytes.len() as u64;
        Ok(())
    }
}

/// Writes one run; keys come in ascending order.
#[derive(Debug)]
pub struct RunWriter<'a> {
    spill: &'a mut SpillFile,
    start: u64,
    block_bytes: usize,
    raw: Vec<u8>,
    stored: Vec<u8>,
    entries: u64,
    /// First key of the run, and later the last one behind it.
    first: Option<(Vec<u8>, Vec<u8>)>,
}

impl RunWriter<'_> {
    /// Appends an entry.
    ///
    /// # Errors
    /// Those of writing the file.
    pub fn add(&mut self, key: &[u8], value: &[u8], place: Place) -> Result<()> {
        let (_, last) = self.first.get_or_insert_with(|| (key.to_vec(), Vec::new()));
        last.clear();
        last.extend_from_slice(key);
        coding::put_varint(&mut self.raw, key.len() as u64);
        coding::put_varint(&mut self.raw, value.len() as u64);
        self.raw.extend_from_slice(&place.to_u64().to_le_bytes());
        self.raw.extend_from_slice(key);
        self.raw.extend_from_slice(value);
        self.entries += 1;
        if self.raw.len() >= self.block_bytes { self.finish_block() } else { Ok(()) }
    }

    fn finish_block(&mut self) -> Result<()> {
        self.stored.resize(HEADER_BYTES + lz4_flex::block::get_maximum_output_size(self.raw.len()), 0);
        let packed =
            lz4_flex::block::compress_into(&self.raw, &mut self.stored[HEADER_BYTES..]).unwrap_or(usize::MAX);
        if packed < self.raw.len() {
            self.stored.truncate(HEADER_BYTES + packed);
        } else {
            self.stored.truncate(HEADER_BYTES);
            self.stored.extend_from_slice(&self.raw);
        }
        let sum = block_checksum(self.spill.len, self.raw.len(), &self.stored[HEADER_BYTES..]);
        let stored_len = (self.stored.len() - HEADER_BYTES) as u32;
        self.stored[0..4].copy_from_slice(&(self.raw.len() as u32).to_le_bytes());
        self.stored[4..8].copy_from_slice(&stored_len.to_le_bytes());
        self.stored[8..16].copy_from_slice(&sum.to_le_bytes());
        self.raw.clear();
        self.spill.append(&self.stored)
    }

    /// Completes the run. `None` if nothing was added.
    ///
    /// # Errors
    /// Those of writing the file.
    pub fn finish(mut self) -> Result<Option<DiskRun>> {
        if !self.raw.is_empty() {
            self.finish_block()?;
        }
        let Some((first_key, last_key)) = self.first else { return Ok(None) };
        Ok(Some(DiskRun {
            file: Arc::clone(&self.spill.file),
            directory: self.spill.directory.clone(),
            start: self.start,
            end: self.spill.len,
            entries: self.entries,
            first_key,
            last_key,
        }))
    }
}

fn block_checksum(offset: u64, raw_len: usize, stored: &[u8]) -> u64 {
    checksum::checksum(checksum::seed(raw_len as u128, offset), stored)
}

/// Sorted entries on disk.
#[derive(Debug)]
pub struct DiskRun {
    file: Arc<File>,
    directory: PathBuf,
    start: u64,
    end: u64,
    entries: u64,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
}

impl DiskRun {
    /// Number of entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes on disk.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// The least and the greatest key.
    #[must_use]
    pub fn key_range(&self) -> (&[u8], &[u8]) {
        (&self.first_key, &self.last_key)
    }

    /// A cursor before the first entry.
    #[must_use]
    pub fn cursor(&self) -> DiskCursor<'_> {
        DiskCursor {
            run: self,
            next_block: self.start,
            raw: Vec::new(),
            stored: Vec::new(),
            next_entry: 0,
            key: 0..0,
            value: 0..0,
            place: Place::new(0, 0),
            read: 0,
        }
    }
}

/// Walks a run on disk from its first entry to its last.
#[derive(Debug)]
pub struct DiskCursor<'a> {
    run: &'a DiskRun,
    next_block: u64,
    raw: Vec<u8>,
    stored: Vec<u8>,
    next_entry: usize,
    key: std::ops::Range<usize>,
    value: std::ops::Range<usize>,
    place: Place,
    read: u64,
}

impl DiskCursor<'_> {
    /// Moves to the next entry; false behind the last.
    ///
    /// # Errors
    /// Those of reading; `Corrupt` if the temporary file does not hold what was written.
    pub fn advance(&mut self) -> Result<bool> {
        if self.next_entry == self.raw.len() {
            if self.next_block == self.run.end {
                return self.check_all_read();
            }
            self.read_block()?;
        }
        let mut reader = Reader::new(&self.raw[self.next_entry..]);
        let entry = (|| {
            let key_len = reader.length(self.raw.len())?;
            let value_len = reader.length(self.raw.len())?;
            let place = Place::from_u64(reader.u64()?);
            let key_start = self.next_entry + reader.position();
            reader.take(key_len)?;
            reader.take(value_len)?;
            Some((
                key_start..key_start + key_len,
                key_start + key_len..self.next_entry + reader.position(),
                place,
            ))
        })();
        let Some((key, value, place)) = entry else {
            return Err(self.damaged("an entry does not fit its block"));
        };
        self.next_entry = value.end;
        (self.key, self.value, self.place) = (key, value, place);
        self.read += 1;
        Ok(true)
    }

    fn check_all_read(&self) -> Result<bool> {
        if self.read == self.run.entries {
            return Ok(false);
        }
        Err(self.damaged(&format!("{} entries were written, {} are there", self.run.entries, self.read)))
    }

    fn read_block(&mut self) -> Result<()> {
        let mut header = [0; HEADER_BYTES];
        self.read_exact(&mut header, self.next_block)?;
        let mut reader = Reader::new(&header);
        let (Some(raw_len), Some(stored_len), Some(sum)) = (reader.u32(), reader.u32(), reader.u64()) else {
            return Err(self.damaged("a block has no header"));
        };
        let (raw_len, stored_len) = (raw_len as usize, stored_len as usize);
        let body = self.next_block + HEADER_BYTES as u64;
        if raw_len == 0
            || raw_len > BLOCK_BYTES_MAX
            || stored_len > raw_len
            || body + stored_len as u64 > self.run.end
        {
            return Err(self.damaged("the lengths of a block make no sense"));
        }
        let mut stored = std::mem::take(&mut self.stored);
        stored.resize(stored_len, 0);
        self.read_exact(&mut stored, body)?;
        if block_checksum(self.next_block, raw_len, &stored) != sum {
            return Err(self.damaged("the checksum of a block differs"));
        }
        if stored_len == raw_len {
            std::mem::swap(&mut self.raw, &mut stored);
        } else {
            self.raw.resize(raw_len, 0);
            if lz4_flex::block::decompress_into(&stored, &mut self.raw).ok() != Some(raw_len) {
                return Err(self.damaged("a block does not unpack"));
            }
        }
        self.stored = stored;
        self.next_block = body + stored_len as u64;
        self.next_entry = 0;
        Ok(())
    }

    fn read_exact(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.run
            .file
            .read_exact_at(buffer, offset)
            .map_err(|error| Error::io("read back a temporary file in", &self.run.directory, &error))
    }

    fn damaged(&self, detail: &str) -> Error {
        Error::corrupt(self.run.directory.join("(temporary file of the load)"), self.next_block, detail)
    }

    /// Key of the current entry.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.raw[self.key.clone()]
    }

    /// Value of the current entry.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.raw[self.value.clone()]
    }

    /// Place of the row of the current entry.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(entries: u64, block_bytes: usize) -> DiskRun {
        let mut spill = SpillFile::create(&std::env::temp_dir()).unwrap();
        spill.append(b"something before the run").unwrap();
        let mut run = spill.start_run(block_bytes);
        for at in 0..entries {
            run.add(&at.to_be_bytes(), &vec![at as u8; (at % 50) as usize], Place::new(1, at + 1)).unwrap();
        }
        run.finish().unwrap().unwrap()
    }

    #[test]
    fn a_run_reads_back_as_written() {
        for block_bytes in [1, 100, 1 << 20] {
            let run = written(500, block_bytes);
            assert_eq!(run.key_range(), (&0u64.to_be_bytes()[..], &499u64.to_be_bytes()[..]));
            let mut cursor = run.cursor();
            for at in 0..500u64 {
                assert!(cursor.advance().unwrap());
                assert_eq!(cursor.key(), at.to_be_bytes());
                assert_eq!(cursor.value(), vec![at as u8; (at % 50) as usize]);
                assert_eq!(cursor.place(), Place::new(1, at + 1));
            }
            assert!(!cursor.advance().unwrap());
        }
    }

    #[test]
    fn an_empty_run_is_none() {
        let mut spill = SpillFile::create(&std::env::temp_dir()).unwrap();
        assert!(spill.start_run(64).finish().unwrap().is_none());
    }

    #[test]
    fn damage_anywhere_is_an_error_and_never_a_lost_entry() {
        let run = written(60, 200);
        for offset in run.start..run.end {
            let mut byte = [0];
            run.file.read_exact_at(&mut byte, offset).unwrap();
            run.file.write_all_at(&[byte[0] ^ 0x40], offset).unwrap();
            let mut cursor = run.cursor();
            let outcome = loop {
                match cursor.advance() {
                    Ok(true) => {}
                    other => break other,
                }
            };
            assert!(outcome.is_err(), "flip at {offset} went unnoticed");
            run.file.write_all_at(&byte, offset).unwrap();
        }
    }
}
