//! The ring file, read into memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_base::fs::{Fs, OpenMode};
use alluvium_base::{Error, Result};

use crate::files::{RING_NAME, header_error, read_header_page};
use crate::format::{
    self, PAGE_BYTES, RECORD_KIND_OFFSET, RING_DRAINED_OFFSET, RING_END_OFFSET, RingHeader, ring_word,
};

/// A ring of this boot.
#[derive(Debug)]
pub(crate) struct RingImage {
    pub(crate) path: PathBuf,
    pub(crate) header: RingHeader,
    /// The segments have everything below. Only a hint where to look first: a record that validates is right,
    /// whatever this word says.
    pub(crate) drained: u64,
    /// Every record below is complete, so anything invalid below is damage.
    pub(crate) end: u64,
    bytes: Vec<u8>,
}

/// What there is of a ring.
#[derive(Clone, Debug)]
pub(crate) enum RingState {
    /// No file: it could not be mapped, or there never was a log.
    Absent,
    /// From before the machine was started; of no use.
    OtherBoot(RingHeader),
    /// From this boot.
    Usable(Arc<RingImage>),
}

impl RingState {
    /// Reads the ring; an error if there is one whose header does not hold. (Its checked part lies in one sector, and
    /// the file gets its name only when it is synced, so no crash leaves half a header.)
    ///
    /// A writer may be at work (a read-only open). The order of reading makes the image sound all the same: bytes from
    /// the drained address read *last* up to the end read *first* did not change in between.
    pub(crate) fn read(fs: &dyn Fs, directory: &Path, database_id: Option<u128>) -> Result<RingState> {
        let path = directory.join(RING_NAME);
        let file = match fs.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.is_missing_file() => return Ok(RingState::Absent),
            Err(error) => return Err(error),
        };
        let page = read_header_page(file.as_ref())?;
        let header =
            RingHeader::decode(&page, database_id).map_err(|problem| header_error(&path, &problem))?;
        if header.boot_id != fs.boot_id() {
            return Ok(RingState::OtherBoot(header));
        }
        let len = file.len()?;
        if len < PAGE_BYTES || len - PAGE_BYTES < header.ring_bytes {
            return Err(Error::corrupt(&path, len, "the ring is shorter than its header says"));
        }
        let end = ring_word(&page, RING_END_OFFSET);
        let mut bytes = vec![0; header.ring_bytes as usize];
        file.read_exact_at(&mut bytes, PAGE_BYTES)?;
        let drained = ring_word(&read_header_page(file.as_ref())?, RING_DRAINED_OFFSET);
        Ok(RingState::Usable(Arc::new(RingImage { path, header, drained, end, bytes })))
    }
}

impl RingImage {
    /// Where in the file `address` lies.
    pub(crate) fn offset(&self, address: u64) -> u64 {
        PAGE_BYTES + address % self.header.ring_bytes
    }

    /// First address that the ring may still hold.
    pub(crate) fn window_start(&self) -> u64 {
        self.drained.saturating_sub(self.header.ring_bytes)
    }

    /// First address that the ring cannot hold.
    pub(crate) fn window_end(&self) -> u64 {
        self.drained.saturating_add(self.header.ring_bytes)
    }

    /// True for the addresses that the ring may hold.
    pub(crate) fn may_hold(&self, address: u64) -> bool {
        (self.window_start()..self.window_end()).contains(&address)
    }

    /// As [`may_be_header`](format::may_be_header), for the ring's bytes at `address`.
    pub(crate) fn may_be_header(&self, address: u64) -> bool {
        let kind = (address + RECORD_KIND_OFFSET as u64) % self.header.ring_bytes;
        self.bytes.get(kind as usize).is_some_and(|&kind| format::may_be_kind(kind))
    }

    /// Appends the ring's bytes for `len` addresses from `address` on to `out`.
    pub(crate) fn copy(&self, address: u64, len: usize, out: &mut Vec<u8>) {
        let position = (address % self.header.ring_bytes) as usize;
        let first = len.min(self.bytes.len().saturating_sub(position));
        out.extend_from_slice(self.bytes.get(position..position + first).unwrap_or_default());
        out.extend_from_slice(self.bytes.get(..len - first).unwrap_or_default());
    }
}
