//! Where the bytes of one run come from: its segments, and the ring if it is of this boot.

use std::path::PathBuf;
use std::sync::Arc;

use alluvium_base::fs::File;
use alluvium_base::{Error, ErrorKind, Result};

use super::RingImage;
use crate::files::segment_path;
use crate::format::{
    PAGE_BYTES, RECORD_ALIGNMENT_BYTES, RECORD_HEADER_BYTES, RecordHeader, RecordKind, may_be_header,
    payload_hash,
};

/// Bytes read from segments at once.
const READ_BYTES: usize = 256 << 10;

/// The addresses that one segment file answers for.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Address of the first byte behind the header page.
    pub(crate) base: u64,
    /// First address that it does not answer for: its own end, or the base of the segment that replaced it.
    pub(crate) end: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
}

/// What is at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// A whole record; [`Source::payload`] has its payload.
    Record(RecordHeader),
    /// A header that holds, over a payload that does not.
    Torn(RecordHeader),
    /// No record of this run.
    Nothing,
}

/// Reads the records of one run.
#[derive(Debug)]
pub(crate) struct Source {
    identity: u128,
    directory: PathBuf,
    /// Ascending, without overlap.
    pub(crate) parts: Vec<Part>,
    pub(crate) ring: Option<Arc<RingImage>>,
    /// Bytes of the segments from `buffer_start` on.
    buffer: Vec<u8>,
    buffer_start: u64,
    /// The byte behind the buffer is in no file.
    buffer_is_final: bool,
    /// A record put together from segment and ring.
    scratch: Vec<u8>,
    /// Where the payload of the last record lies.
    payload: (Place, usize, usize),
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Buffer,
    Scratch,
}

impl Source {
    pub(crate) fn new(
        identity: u128,
        directory: PathBuf,
        parts: Vec<Part>,
        ring: Option<Arc<RingImage>>,
    ) -> Source {
        Source {
            identity,
            directory,
            parts,
            ring,
            buffer: Vec::new(),
            buffer_start: 0,
            buffer_is_final: false,
            scratch: Vec::new(),
            payload: (Place::Scratch, 0, 0),
        }
    }

    /// First address behind everything this run may have.
    pub(crate) fn reach(&self) -> u64 {
        let parts = self.parts.last().map_or(0, |part| part.end);
        parts.max(self.ring.as_ref().map_or(0, |ring| ring.window_end()))
    }

    /// Looks for a record at `address`: in the segments, then in segment and ring as the drained address divides
    /// them, then in the ring.
    pub(crate) fn record_at(&mut self, address: u64) -> Result<Found> {
        let mut best = self.record_in_segments(address)?;
        let Some(ring) = self.ring.clone() else { return Ok(best) };
        for cut in [ring.drained, address] {
            if let Found::Record(_) = best {
                break;
            }
            match self.record_across(&ring, address, cut)? {
                Found::Nothing => {}
                found => best = found,
            }
        }
        Ok(best)
    }

    /// Refuses a record of a kind that only a newer version knows: taken for the end of the log, it would be lost.
    pub(crate) fn refuse_unknown_kind(&mut self, address: u64) -> Result<()> {
        let identity = self.identity;
        let unknown = |bytes: &[u8]| RecordHeader::unknown_kind(bytes, identity, address);
        let mut kind = unknown(self.segment_bytes(address, RECORD_HEADER_BYTES)?);
        if let Some(ring) = self.ring.clone().filter(|_| kind.is_none()) {
            let whole = self.compose(&ring, address, RECORD_HEADER_BYTES, ring.drained)?;
            kind = whole.then(|| unknown(&self.scratch)).flatten();
        }
        let Some(kind) = kind else { return Ok(()) };
        let (file, offset) = self.locate(address);
        let (found, supported) = (u32::from(kind), u32::from(RecordKind::NEWEST as u8));
        let newer = Error::from(ErrorKind::UnsupportedFormat { file, found, supported });
        Err(newer.context(format!("the log record at byte {offset} is of kind {kind}")))
    }

    /// The payload of the record that was found last.
    pub(crate) fn payload(&self) -> &[u8] {
        let (place, start, len) = self.payload;
        let bytes = match place {
            Place::Buffer => &self.buffer,
            Place::Scratch => &self.scratch,
        };
        bytes.get(start..start + len).unwrap_or_default()
    }

    fn record_in_segments(&mut self, address: u64) -> Result<Found> {
        let identity = self.identity;
        let Some(header) =
            RecordHeader::decode(self.segment_bytes(address, RECORD_HEADER_BYTES)?, identity, address)
        else {
            return Ok(Found::Nothing);
        };
        let len = header.payload_len as usize;
        let start = address + RECORD_HEADER_BYTES as u64;
        let payload = self.segment_bytes(start, len)?;
        if payload.len() != len || payload_hash(payload) != header.payload_hash {
            return Ok(Found::Torn(header));
        }
        self.payload = (Place::Buffer, (start - self.buffer_start) as usize, len);
        Ok(Found::Record(header))
    }

    /// Takes bytes below `cut` from segments, the others from the ring.
    fn record_across(&mut self, ring: &RingImage, address: u64, cut: u64) -> Result<Found> {
        if !self.compose(ring, address, RECORD_HEADER_BYTES, cut)? {
            return Ok(Found::Nothing);
        }
        let Some(header) = RecordHeader::decode(&self.scratch, self.identity, address) else {
            return Ok(Found::Nothing);
        };
        let len = header.payload_len as usize;
        let whole = self.compose(ring, address, RECORD_HEADER_BYTES + len, cut)?;
        let payload = self.scratch.get(RECORD_HEADER_BYTES..).unwrap_or_default();
        if !whole || payload_hash(payload) != header.payload_hash {
            return Ok(Found::Torn(header));
        }
        self.payload = (Place::Scratch, RECORD_HEADER_BYTES, len);
        Ok(Found::Record(header))
    }

    /// Fills `scratch` with `len` bytes; false if the segments lack some.
    fn compose(&mut self, ring: &RingImage, address: u64, len: usize, cut: u64) -> Result<bool> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let below = cut.saturating_sub(address).min(len as u64) as usize;
        let result = self.segment_bytes(address, below).map(|bytes| {
            scratch.extend_from_slice(bytes);
            bytes.len() == below
        });
        ring.copy(address + below as u64, len - below, &mut scratch);
        self.scratch = scratch;
        result
    }

    /// Up to `len` bytes of the segments at `address`; fewer where a file ends or is missing.
    fn segment_bytes(&mut self, address: u64, len: usize) -> Result<&[u8]> {
        let tail = self.segment_tail(address, len)?;
        Ok(tail.get(..len).unwrap_or(tail))
    }

    /// All buffered bytes from `address` on, at least `len` unless a file ends or is missing before.
    fn segment_tail(&mut self, address: u64, len: usize) -> Result<&[u8]> {
        let buffer_end = self.buffer_start + self.buffer.len() as u64;
        let inside = (self.buffer_start..=buffer_end).contains(&address);
        if !inside || (buffer_end - address < len as u64 && !self.buffer_is_final) {
            self.fill_buffer(address, len.max(READ_BYTES))?;
        }
        Ok(self.buffer.get((address - self.buffer_start) as usize..).unwrap_or_default())
    }

    /// Reads `len` bytes of the segments at `address`, across files that follow each other.
    fn fill_buffer(&mut self, address: u64, len: usize) -> Result<()> {
        self.buffer.clear();
        self.buffer_start = address;
        self.buffer_is_final = false;
        while self.buffer.len() < len {
            let at = address + self.buffer.len() as u64;
            let after = self.parts.partition_point(|part| part.base <= at);
            let part = after.checked_sub(1).and_then(|index| self.parts.get(index));
            let Some(part) = part.filter(|part| at < part.end) else {
                self.buffer_is_final = true;
                break;
            };
            let filled = self.buffer.len();
            let wanted = usize::try_from(part.end - at).unwrap_or(usize::MAX).min(len - filled);
            self.buffer.resize(filled + wanted, 0);
            let space = self.buffer.get_mut(filled..).unwrap_or_default();
            let got = part.file.read_at(space, PAGE_BYTES + (at - part.base));
            self.buffer.truncate(filled + *got.as_ref().unwrap_or(&0));
            if got? < wanted {
                self.buffer_is_final = true;
                break;
            }
        }
        Ok(())
    }

    /// The first record (or torn one) at or after `from`, which is tried at every eighth byte.
    pub(crate) fn next_found(&mut self, from: u64, until: u64) -> Result<Option<(u64, Found)>> {
        let mut at = from.next_multiple_of(RECORD_ALIGNMENT_BYTES);
        while at < until {
            at = match self.next_candidate(at)? {
                Some(candidate) => candidate,
                None => return Ok(None),
            };
            if at >= until {
                break;
            }
            match self.record_at(at)? {
                Found::Nothing => at += RECORD_ALIGNMENT_BYTES,
                found => return Ok(Some((at, found))),
            }
        }
        Ok(None)
    }

    /// The first position at or after `at` where a header may stand, by its kind byte alone.
    fn next_candidate(&mut self, mut at: u64) -> Result<Option<u64>> {
        loop {
            if let Some(ring) = self.ring.clone().filter(|ring| ring.may_hold(at)) {
                if ring.may_be_header(at) || may_be_header(self.segment_tail(at, RECORD_HEADER_BYTES)?) {
                    return Ok(Some(at));
                }
                at += RECORD_ALIGNMENT_BYTES;
                continue;
            }
            let tail = self.segment_tail(at, RECORD_HEADER_BYTES)?;
            let mut windows = tail.windows(RECORD_HEADER_BYTES).step_by(RECORD_ALIGNMENT_BYTES as usize);
            let positions = windows.len() as u64;
            if let Some(index) = windows.position(may_be_header) {
                return Ok(Some(at + index as u64 * RECORD_ALIGNMENT_BYTES));
            }
            if positions > 0 {
                at += positions * RECORD_ALIGNMENT_BYTES;
                continue;
            }
            // Not even a header fits before a file ends or is missing: go on where the next one begins.
            let next_part = self.parts.iter().map(|part| part.base).find(|&base| base > at);
            let ring_start = self.ring.as_ref().map(|ring| ring.window_start()).filter(|&start| start > at);
            match next_part.into_iter().chain(ring_start).min() {
                Some(next) => at = next.next_multiple_of(RECORD_ALIGNMENT_BYTES),
                None => return Ok(None),
            }
        }
    }

    /// File and offset to name for the byte at `address`, whether it is there or missing.
    pub(crate) fn locate(&self, address: u64) -> (PathBuf, u64) {
        let after = self.parts.partition_point(|part| part.base <= address);
        let before = after.checked_sub(1).and_then(|index| self.parts.get(index));
        if let Some(ring) = self.ring.as_ref().filter(|ring| address >= ring.drained) {
            return (ring.path.clone(), ring.offset(address));
        }
        match before {
            Some(part) if address < part.end => (part.path.clone(), PAGE_BYTES + (address - part.base)),
            Some(part) => (segment_path(&self.directory, part.end), PAGE_BYTES + (address - part.end)),
            None => (segment_path(&self.directory, address), PAGE_BYTES),
        }
    }
}
