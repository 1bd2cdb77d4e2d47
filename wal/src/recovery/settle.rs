//! Making what was recovered durable where it belongs.
//!
//! After a crash of the process the newest records may be in the ring only, or in pages that were never synced (or
//! whose sync failed, after which a second sync would prove nothing). Before their end is accepted, they are written,
//! again or for the first time, to their addresses in segments of their own incarnation, and synced. Doing it twice,
//! or half, changes nothing.

use std::sync::Arc;

use alluvium_base::fs::{File, Fs, OpenMode};
use alluvium_base::{Error, Result};

use super::walk::Walk;
use super::{Found, RecoveryMode, RecoveryOptions};
use crate::files::{SegmentMaker, WRITE_BYTES_MAX};
use crate::format::{PAGE_BYTES, RECORD_HEADER_BYTES, stream_identity};

/// Settles the run of `walk`, which ends at `end`. Returns the address behind its last segment.
pub(crate) fn settle(fs: &Arc<dyn Fs>, options: &RecoveryOptions, walk: &mut Walk, end: u64) -> Result<u64> {
    let Some(from) = walk.unsettled_from() else { return Ok(0) };
    let incarnation = walk.run.incarnation;
    let segment_bytes = match &walk.run.source.ring {
        Some(ring) => ring.header.segment_bytes,
        None => 0,
    };
    let maker = SegmentMaker {
        fs: Arc::clone(fs),
        directory: options.directory.clone(),
        database_id: options.database_id,
        incarnation,
        incarnation_start: walk.run.incarnation_start,
        segment_bytes,
        has_ring: walk.run.source.ring.is_some(),
    };
    let source = &mut walk.run.source;
    let targets = source
        .parts
        .iter()
        .map(|part| {
            let file = fs.open(&part.path, OpenMode::ReadWrite)?;
            Ok(Target { base: part.base, end: part.end, file })
        })
        .collect::<Result<Vec<_>>>()?;
    let mut writer = Writer { maker, targets, first: from, start: from, bytes: Vec::new() };
    let identity = stream_identity(options.database_id, incarnation);
    let mut at = from;
    while at < end {
        let Found::Record(header) = source.record_at(at)? else {
            if options.mode == RecoveryMode::Salvage {
                at = source.next_found(at + 1, end)?.map_or(end, |(next, _)| next);
                continue;
            }
            let (file, offset) = source.locate(at);
            return Err(Error::corrupt(file, offset, "a record that was read before cannot be read again"));
        };
        writer.put(at, &header.encode(identity, at))?;
        writer.put(at + RECORD_HEADER_BYTES as u64, source.payload())?;
        at += header.record_bytes();
    }
    writer.finish()
}

/// A segment that is written to.
#[derive(Clone)]
struct Target {
    base: u64,
    end: u64,
    file: Arc<dyn File>,
}

/// Collects bytes that follow each other into larger writes.
struct Writer {
    maker: SegmentMaker,
    /// The run's segments, ascending.
    targets: Vec<Target>,
    /// Nothing is written below.
    first: u64,
    /// Address of the bytes collected so far.
    start: u64,
    bytes: Vec<u8>,
}

impl Writer {
    fn put(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let next = self.start + self.bytes.len() as u64;
        let is_padding = address >= next && address - next < 8;
        if !is_padding || self.bytes.len() >= WRITE_BYTES_MAX {
            self.flush()?;
            self.start = address;
        } else {
            self.bytes.resize((address - self.start) as usize, 0);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        let (mut address, mut rest) = (self.start, bytes.as_slice());
        while !rest.is_empty() {
            let Some(Target { base, end, file }) = self.target(address)? else {
                // A file of the run is missing, which only salvage gets past.
                return Ok(());
            };
            let here = usize::try_from(end - address).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at(here);
            file.write_at(now, PAGE_BYTES + (address - base))?;
            (address, rest) = (end, later);
        }
        Ok(())
    }

    /// The segment that holds `address`, made if the process died before it could make it; `None` in a gap.
    fn target(&mut self, address: u64) -> Result<Option<Target>> {
        loop {
            if let Some(target) =
                self.targets.iter().find(|target| (target.base..target.end).contains(&address))
            {
                return Ok(Some(target.clone()));
            }
            let base = self.targets.last().map_or(u64::MAX, |target| target.end);
            if base > address || self.maker.segment_bytes == 0 {
                return Ok(None);
            }
            let made = self.maker.make(base, None)?;
            self.targets.push(Target { base: made.base, end: made.end(), file: made.file });
        }
    }

    fn finish(mut self) -> Result<u64> {
        self.flush()?;
        for target in self.targets.iter().filter(|target| target.end > self.first) {
            target.file.sync_data()?;
        }
        Ok(self.targets.last().map_or(0, |target| target.end))
    }
}
