//! Segments ahead of need and after use.
//!
//! Making a segment takes tens of milliseconds (fill, sync, rename, sync the directory), so the engine's background
//! job calls [`Log::prepare_segment`] as soon as [`Log::wants_segment`]; a drain that comes to the end of its segment
//! before that makes it itself, and is counted as late. Released segments become spares: their space is allocated
//! and filled already, and their old records never validate again.
//!
//! One thread at a time has the *preparation turn*, for everything that changes names in the directory. Its holder
//! waits for nothing but I/O.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_base::Result;
use alluvium_base::sync::MutexGuard;

use crate::files::{Listing, Segment, SegmentMaker, read_header_page, spare_path};
use crate::format::{PAGE_BYTES, SegmentHeader};
use crate::log::{Flow, Log, LogOptions};
use crate::statistics::Statistics;

/// A segment that is no longer written to.
#[derive(Clone, Debug)]
pub(crate) struct Retired {
    pub(crate) base: u64,
    /// The first address that it does not answer for.
    pub(crate) end: u64,
    pub(crate) path: PathBuf,
    /// True if the file is of the right size and its medium has not failed.
    pub(crate) reusable: bool,
}

/// Ends the preparation turn of a thread that panics.
struct EndTurnOnPanic<'a> {
    log: &'a Log,
}

impl Drop for EndTurnOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.log.flow.lock().preparing = false;
            self.log.preparation.notify_all();
        }
    }
}

/// Looks at what earlier incarnations left: their segments, and spare files to use. Removes half-made files.
pub(crate) fn take_stock(
    maker: &SegmentMaker,
    listing: &Listing,
    options: &LogOptions,
) -> Result<(Vec<Retired>, Vec<PathBuf>)> {
    let fs = maker.fs.as_ref();
    let file_bytes = PAGE_BYTES + options.segment_bytes;
    for path in &listing.temporaries {
        fs.remove_file(path)?;
    }
    let mut older: Vec<Retired> = Vec::new();
    for (base, path) in &listing.segments {
        let len = fs.file_size(path)?;
        let page = read_header_page(fs.open(path, alluvium_base::fs::OpenMode::Read)?.as_ref())?;
        let bytes = match SegmentHeader::decode(&page, Some(options.database_id)) {
            Ok(header) => header.segment_bytes,
            // Recovery has judged it; here it only matters when it can go.
            Err(_) => len.saturating_sub(PAGE_BYTES),
        };
        if let Some(before) = older.last_mut() {
            before.end = before.end.min(*base);
        }
        let end = base.saturating_add(bytes);
        older.push(Retired { base: *base, end, path: path.clone(), reusable: len == file_bytes });
    }
    if let Some(last) = older.last().filter(|last| last.end > options.start_address) {
        let (end, start) = (last.end, options.start_address);
        let detail = format!("the log cannot start at {start}: {} reaches to {end}", last.path.display());
        return Err(alluvium_base::Error::invalid(detail));
    }
    let mut spares = Vec::new();
    for path in &listing.spares {
        if fs.file_size(path)? == file_bytes && spares.len() < options.segments_recycled_max {
            spares.push(path.clone());
        } else {
            fs.remove_file(path)?;
        }
    }
    if !spares.is_empty() {
        // A spare may still have its old name on the medium; it must be gone before its header is overwritten.
        fs.sync_directory(&options.directory)?;
    }
    Ok((older, spares))
}

impl Statistics {
    pub(crate) fn count_made(&self, recycled: bool) {
        if recycled { self.segments_recycled.increment() } else { self.segments_filled.increment() }
    }
}

impl Log {
    /// True if the next segment has not been made yet. One atomic load: ask after every commit.
    #[must_use]
    pub fn wants_segment(&self) -> bool {
        self.segment_wanted.load(Ordering::Relaxed)
    }

    /// Makes the next segment ahead of need; false if there was nothing to do. For a background job.
    ///
    /// # Errors
    /// Those of the file system, disk full among them. The log goes on in its current segment, and whoever comes to
    /// its end tries again.
    pub fn prepare_segment(&self) -> Result<bool> {
        let mut flow = self.flow.lock();
        if flow.next.is_some() || flow.preparing || flow.failure.is_some() {
            return Ok(false);
        }
        self.make_next(&mut flow)?;
        Ok(true)
    }

    /// Makes the segment behind the active one the active one. The drain turn must be held.
    pub(crate) fn next_segment(&self) -> Result<Arc<Segment>> {
        let mut flow = self.flow.lock();
        self.preparation.wait_while(&mut flow, |flow| flow.preparing);
        if flow.next.is_none() {
            self.statistics.segments_late.increment();
            self.make_next(&mut flow)?;
        }
        let Some(next) = flow.next.take() else {
            return Err(alluvium_base::Error::invalid("the next log segment vanished while it was awaited"));
        };
        let full = std::mem::replace(&mut flow.active, Arc::clone(&next));
        flow.older.push(Retired::from_segment(&full, full.end(), true));
        self.segment_wanted.store(true, Ordering::Relaxed);
        Ok(next)
    }

    /// Makes `flow.next`. Nobody may have the preparation turn.
    fn make_next(&self, flow: &mut MutexGuard<'_, Flow>) -> Result<()> {
        let base = flow.active.end();
        let made = self.make_segment(flow, base)?;
        flow.next = Some(made);
        self.segment_wanted.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Does `work`, which changes names in the directory, with the preparation turn and with the flow unlocked. The turn
    /// ends when the flow is locked again, so that what the caller then notes and the end of the turn are seen at once.
    fn prepare<T>(&self, flow: &mut MutexGuard<'_, Flow>, work: impl FnOnce() -> T) -> T {
        debug_assert!(!flow.preparing, "two threads change names at once");
        flow.preparing = true;
        let done = MutexGuard::unlocked(flow, || {
            let _guard = EndTurnOnPanic { log: self };
            work()
        });
        flow.preparing = false;
        self.preparation.notify_all();
        done
    }

    /// Makes a segment at `base`. Nobody may have the preparation turn.
    pub(crate) fn make_segment(&self, flow: &mut MutexGuard<'_, Flow>, base: u64) -> Result<Arc<Segment>> {
        let spare = flow.spares.pop();
        let made = self.prepare(flow, || {
            let made = self.maker.make(base, spare.as_deref());
            if let (Err(_), Some(spare)) = (&made, &spare) {
                // Not tried again, since what failed may be its blocks. A left-over goes at the next open.
                let _ = self.maker.fs.remove_file(spare);
            }
            made
        })?;
        self.statistics.count_made(spare.is_some());
        Ok(Arc::new(made))
    }

    /// Removes the segments that were made behind the active one: those that are known, and those that a failed call made
    /// nevertheless. A segment at an address in between could not stand before them. Nobody may have the preparation turn.
    pub(crate) fn remove_unused(&self, flow: &mut MutexGuard<'_, Flow>) -> Result<()> {
        let active = flow.active.base;
        flow.next = None;
        self.prepare(flow, || {
            let fs = self.maker.fs.as_ref();
            let listing = Listing::read(fs, &self.options.directory)?;
            let mut unused = listing.segments.iter().filter(|(base, _)| *base > active).peekable();
            if unused.peek().is_none() {
                return Ok(());
            }
            unused.try_for_each(|(_, path)| fs.remove_file(path))?;
            fs.sync_directory(&self.options.directory)
        })
    }

    /// Lets go of the segments that lie wholly below `address`: they become spares or are removed. The caller's
    /// replay start must be durable, and at or above `address`.
    ///
    /// # Errors
    /// Those of the file system; what could not be released is tried again by the next call.
    pub fn release_before(&self, address: u64) -> Result<()> {
        let mut flow = self.flow.lock();
        self.preparation.wait_while(&mut flow, |flow| flow.preparing);
        // A segment that is yet to be synced stays until it has been: its sync may be running.
        let unsynced = flow.unsynced.first().map_or(u64::MAX, |segment| segment.base);
        let limit = address.min(unsynced).min(self.durable_address());
        let count = flow.older.partition_point(|retired| retired.end <= limit);
        if count == 0 {
            return Ok(());
        }
        let mut released: VecDeque<Retired> = flow.older.drain(..count).collect();
        let spares_wanted = self.options.segments_recycled_max.saturating_sub(flow.spares.len());
        let mut spares = Vec::new();
        let result = self.prepare(&mut flow, || self.release(&mut released, &mut spares, spares_wanted));
        flow.older.splice(..0, released);
        flow.spares.extend(spares);
        result
    }

    /// Renames or removes what was released; leaves what it did not come to.
    fn release(
        &self,
        released: &mut VecDeque<Retired>,
        spares: &mut Vec<PathBuf>,
        spares_wanted: usize,
    ) -> Result<()> {
        let fs = self.maker.fs.as_ref();
        let mut release_all = || -> Result<()> {
            while let Some(retired) = released.front() {
                let spare = spare_path(&self.options.directory, retired.base);
                let result = if retired.reusable && spares.len() < spares_wanted {
                    fs.rename(&retired.path, &spare).map(|()| spares.push(spare))
                } else {
                    fs.remove_file(&retired.path)
                };
                match result {
                    // A call that failed before may have done its work all the same.
                    Err(error) if !error.is_missing_file() => return Err(error),
                    _ => released.pop_front(),
                };
            }
            fs.sync_directory(&self.options.directory)
        };
        let result = release_all();
        if result.is_err() {
            // Their old names may come back, so they must not be used; what is left of them goes at the next open.
            spares.drain(..).for_each(|spare| drop(fs.remove_file(&spare)));
        }
        result
    }
}

impl Retired {
    pub(crate) fn from_segment(segment: &Segment, end: u64, reusable: bool) -> Retired {
        Retired { base: segment.base, end, path: segment.file.path().to_owned(), reusable }
    }
}
