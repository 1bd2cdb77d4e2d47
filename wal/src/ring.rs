//! The ring: where every record is before it is anywhere else.
//!
//! Address `a` lies at position `a % ring_bytes`. In the usual case the ring is a shared mapping of a small file, so
//! that a memcpy into it survives the death of the process (30–60 ns per record; one `write` each costs 470–550 ns).
//! It is never synced; a crash of the machine loses it. Two words in its header page tell the next process what is
//! where: *drained* (below it, the segments have everything) and *end* (below it, every record is complete).
//!
//! Where a file cannot be mapped safely the ring is plain memory, and [`Log::secure`](crate::Log::secure) writes a
//! group to its segment before it is acknowledged.
//!
//! Who touches what: appenders, one at a time (the append lock), write bytes at and above *end* and move *end*; the
//! one who has the drain turn reads bytes below *end* and moves *drained*. An appender reuses a position only after
//! *drained* has passed it.

use std::path::Path;
use std::sync::Arc;

use alluvium_base::Result;
use alluvium_base::fs::{Fs, Mapping, OpenMode};
use alluvium_base::limits::LOG_PAGE_BYTES;
use alluvium_base::sync::Mutex;

use crate::files::{RING_NAME, fill_with_zeros};
use crate::format::{PAGE_BYTES, RECORD_HEADER_BYTES, RING_DRAINED_OFFSET, RING_END_OFFSET, RingHeader};

#[derive(Debug)]
pub(crate) struct Ring {
    bytes: u64,
    store: Store,
}

#[derive(Debug)]
enum Store {
    /// The whole file, header page first.
    Mapped(Arc<dyn Mapping>),
    Memory(Mutex<Box<[u8]>>),
}

impl Ring {
    /// Sees to it that there is a ring file that can be mapped, if any can. What it says is not changed yet: it is of an
    /// earlier incarnation, or blank, as from before the machine was started.
    ///
    /// This comes before the first segment of an incarnation, which says that there is a ring, so that a ring that is
    /// missing was taken away; [`start`](Ring::start) comes after it, so that there is a segment to drain into.
    pub(crate) fn prepare(fs: &dyn Fs, directory: &Path, header: &RingHeader) -> Result<Ring> {
        let path = directory.join(RING_NAME);
        let bytes = header.ring_bytes;
        let file_bytes = PAGE_BYTES + bytes;
        if !(fs.exists(&path)? && fs.file_size(&path)? == file_bytes) {
            let temporary = directory.join("ring.tmp");
            if let Err(error) = fill_blank(fs, &temporary, header) {
                // Half a ring is of no use, and on a full disk the space is.
                let _ = fs.remove_file(&temporary);
                return Err(error);
            }
            fs.rename(&temporary, &path)?;
            fs.sync_directory(directory)?;
        }
        match fs.map(&path, file_bytes as usize)? {
            Some(mapping) => Ok(Ring { bytes, store: Store::Mapped(mapping) }),
            None => {
                fs.remove_file(&path)?;
                Ok(Ring { bytes, store: Store::Memory(Mutex::new(vec![0; bytes as usize].into())) })
            }
        }
    }

    /// Takes the file over for an incarnation that starts at address `start`: its old bytes belong to another one and
    /// never validate. Only the header page is written, in one piece; a killed process leaves the old header or the new
    /// one, and after a power loss its boot id is not that of the machine.
    pub(crate) fn start(&self, fs: &dyn Fs, directory: &Path, header: &RingHeader, start: u64) -> Result<()> {
        match &self.store {
            Store::Mapped(_) => {
                fs.open(&directory.join(RING_NAME), OpenMode::ReadWrite)?.write_at(&header.encode(start), 0)
            }
            Store::Memory(_) => Ok(()),
        }
    }

    /// True if what is in the ring survives the death of the process.
    pub(crate) fn survives_the_process(&self) -> bool {
        matches!(self.store, Store::Mapped(_))
    }

    /// Copies a record to its address, and zeros into the padding behind it.
    pub(crate) fn write_record(&self, address: u64, header: &[u8; RECORD_HEADER_BYTES], payload: &[u8]) {
        let padding = payload.len().wrapping_neg() % 8;
        let mut at = address;
        for part in [header.as_slice(), payload, [0; 8].get(..padding).unwrap_or_default()] {
            self.write(at, part);
            at += part.len() as u64;
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        let position = (address % self.bytes) as usize;
        let first = bytes.len().min(self.bytes as usize - position);
        let (head, tail) = bytes.split_at(first);
        self.write_piece(position, head);
        if !tail.is_empty() {
            self.write_piece(0, tail);
        }
    }

    fn write_piece(&self, position: usize, bytes: &[u8]) {
        match &self.store {
            Store::Mapped(mapping) => mapping.write(LOG_PAGE_BYTES + position, bytes),
            Store::Memory(memory) => {
                if let Some(target) = memory.lock().get_mut(position..position + bytes.len()) {
                    target.copy_from_slice(bytes);
                }
            }
        }
    }

    /// Copies bytes out; they must have been written and not yet be overwritten.
    pub(crate) fn read(&self, address: u64, out: &mut [u8]) {
        let position = (address % self.bytes) as usize;
        let first = out.len().min(self.bytes as usize - position);
        let (head, tail) = out.split_at_mut(first);
        self.read_piece(position, head);
        self.read_piece(0, tail);
    }

    fn read_piece(&self, position: usize, out: &mut [u8]) {
        match &self.store {
            Store::Mapped(mapping) => mapping.read(LOG_PAGE_BYTES + position, out),
            Store::Memory(memory) => {
                if let Some(source) = memory.lock().get(position..position + out.len()) {
                    out.copy_from_slice(source);
                }
            }
        }
    }

    /// Tells a later process that the segments have everything below `address`.
    pub(crate) fn set_drained(&self, address: u64) {
        self.set_word(RING_DRAINED_OFFSET, address);
    }

    /// Tells a later process that every record below `address` is complete.
    pub(crate) fn set_end(&self, address: u64) {
        self.set_word(RING_END_OFFSET, address);
    }

    fn set_word(&self, offset: usize, value: u64) {
        if let Store::Mapped(mapping) = &self.store {
            mapping.store_u64(offset, value);
        }
    }
}

/// Writes a ring file that no incarnation has taken over yet, and syncs it.
fn fill_blank(fs: &dyn Fs, path: &Path, header: &RingHeader) -> Result<()> {
    let blank = RingHeader { incarnation: 0, boot_id: 0, ..*header };
    let file = fs.open(path, OpenMode::CreateOrTruncate)?;
    file.write_at(&blank.encode(0), 0)?;
    fill_with_zeros(file.as_ref(), PAGE_BYTES, header.ring_bytes)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use alluvium_base::fs::memory::MemoryFs;

    use super::*;

    fn ring(mappable: bool) -> (MemoryFs, Ring) {
        let fs = MemoryFs::new();
        fs.set_mappable(mappable);
        let header =
            RingHeader { database_id: 1, incarnation: 1, boot_id: 1, ring_bytes: 8192, segment_bytes: 4096 };
        let ring = Ring::prepare(&fs, Path::new("/"), &header).unwrap();
        ring.start(&fs, Path::new("/"), &header, 0).unwrap();
        (fs, ring)
    }

    #[test]
    fn records_wrap_around_the_end() {
        for mappable in [true, false] {
            let (fs, ring) = ring(mappable);
            ring.write_record(8192 * 3 - 40, &[1; RECORD_HEADER_BYTES], &[2; 13]);
            let mut out = [9; 48];
            ring.read(8192 * 3 - 40, &mut out);
            assert_eq!(out[..32], [1; 32]);
            assert_eq!(out[32..45], [2; 13]);
            assert_eq!(out[45..], [0; 3], "padding is zero");
            assert_eq!(fs.exists(Path::new("/ring")).unwrap(), mappable);
        }
    }
}
