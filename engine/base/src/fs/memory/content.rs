//! The bytes of one file, and every older version of them that a power loss may bring back.
//!
//! A page that changed since the last sync keeps its earlier versions, the durable one first. A power loss picks, for
//! each 512-byte sector, one of these versions or the newest: that drops, reorders and tears writes in every way that
//! a disk with atomic sectors can. `pwrite` and stores through a mapping go through the same page cache and so through
//! the same history. Sizes have a history of their own.
//!
//! A failed sync may leave pages *clean but not durable* (what Linux does): they keep their history, but a later sync
//! passes them by unless they are written again. Once such a page is evicted, reads find the durable version.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::crash::Leaning;
use super::pages::{PAGE_BYTES, Page, Pages};
use crate::random::Random;

/// Bytes that a disk writes all or nothing.
pub(super) const SECTOR_BYTES: usize = 512;

/// Most earlier versions kept of a page or a size. Of more, some in the middle are forgotten; never the durable one.
const VERSIONS_MAX: usize = 8;

/// Something with versions that are not durable.
#[derive(Clone)]
struct History<T> {
    /// Oldest first; the first is the durable one. The newest version of all is not in here.
    versions: Vec<T>,
    /// True if the next sync makes the newest version durable.
    dirty: bool,
}

impl<T> History<T> {
    fn new() -> History<T> {
        History { versions: Vec::new(), dirty: true }
    }

    fn push(&mut self, version: T, random: &mut Random) {
        if self.versions.len() == VERSIONS_MAX {
            self.versions.remove(1 + random.index(VERSIONS_MAX - 1));
        }
        self.versions.push(version);
        self.dirty = true;
    }

    /// One of the old versions; `None` for the newest.
    fn pick(&self, random: &mut Random) -> Option<&T> {
        self.versions.get(random.index(self.versions.len() + 1))
    }
}

#[derive(Clone)]
pub(super) struct Content {
    len: u64,
    pages: Pages,
    unsynced_pages: BTreeMap<u64, History<Option<Arc<Page>>>>,
    unsynced_len: Option<History<u64>>,
    /// Chooses which versions a full history forgets.
    random: Random,
}

/// Splits a byte range at page borders: (page index, offset in the page, offset in the range, length).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let inside = (at % PAGE_BYTES as u64) as usize;
        let piece = (PAGE_BYTES - inside).min(len - done);
        let start = done;
        done += piece;
        (piece > 0).then_some((at / PAGE_BYTES as u64, inside, start, piece))
    })
}

impl Content {
    pub(super) fn new(id: u64) -> Content {
        Content {
            len: 0,
            pages: Pages::default(),
            unsynced_pages: BTreeMap::new(),
            unsynced_len: None,
            random: Random::new(id),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Number of pages that take space.
    pub(super) fn page_count(&self) -> u64 {
        self.pages.count()
    }

    /// Reads what lies within the file; returns the number of bytes.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let available = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buffer.len().min(available);
        for (index, inside, start, piece) in pieces(offset, len) {
            let target = &mut buffer[start..start + piece];
            match self.pages.get(index) {
                Some(page) => target.copy_from_slice(&page[inside..inside + piece]),
                None => target.fill(0),
            }
        }
        len
    }

    /// Writes `bytes`, taking at most `free_pages` new pages; returns the number of bytes written.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], mut free_pages: u64) -> usize {
        let mut written = 0;
        for (index, inside, start, piece) in pieces(offset, bytes.len()) {
            if self.pages.get(index).is_none() {
                if free_pages == 0 {
                    break;
                }
                free_pages -= 1;
            }
            self.change_page(index, |page| {
                page[inside..inside + piece].copy_from_slice(&bytes[start..start + piece])
            });
            written = start + piece;
        }
        let end = offset + written as u64;
        if written > 0 && end > self.len {
            self.change_len(end);
        } else if let Some(len) = &mut self.unsynced_len {
            // Writing back any page also writes the size.
            len.dirty |= written > 0;
        }
        written
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let inside = (len % PAGE_BYTES as u64) as usize;
            if inside > 0 && self.pages.get(len / PAGE_BYTES as u64).is_some() {
                self.change_page(len / PAGE_BYTES as u64, |page| page[inside..].fill(0));
            }
            for index in self.pages.indices_from(len.div_ceil(PAGE_BYTES as u64)) {
                self.remember_page(index);
                self.pages.set(index, None);
            }
        }
        if len != self.len {
            self.change_len(len);
        }
    }

    fn change_len(&mut self, len: u64) {
        self.unsynced_len.get_or_insert_with(History::new).push(self.len, &mut self.random);
        self.len = len;
    }

    fn remember_page(&mut self, index: u64) {
        let old = self.pages.get(index).cloned();
        self.unsynced_pages.entry(index).or_insert_with(History::new).push(old, &mut self.random);
    }

    fn change_page(&mut self, index: u64, change: impl FnOnce(&mut Page)) {
        self.remember_page(index);
        let mut page = self.pages.get(index).map_or([0; PAGE_BYTES], |page| **page);
        change(&mut page);
        self.pages.set(index, Some(Arc::new(page)));
    }

    pub(super) fn has_unsynced(&self) -> bool {
        !self.unsynced_pages.is_empty() || self.unsynced_len.is_some()
    }

    /// Makes everything that is dirty durable.
    pub(super) fn sync(&mut self) {
        self.unsynced_pages.retain(|_, history| !history.dirty);
        self.unsynced_len.take_if(|history| history.dirty);
    }

    /// A failed sync: nothing becomes durable, yet everything counts as clean. If the pages are evicted at once, reads
    /// give the durable bytes again (within the size that the file has now).
    pub(super) fn forget_dirty(&mut self, evict: bool) {
        for (&index, history) in &mut self.unsynced_pages {
            if history.dirty && evict {
                let lost = self.pages.get(index).cloned();
                self.pages.set(index, history.versions.first().cloned().flatten());
                history.push(lost, &mut self.random);
            }
            history.dirty = false;
        }
        if let Some(history) = &mut self.unsynced_len {
            history.dirty = false;
        }
    }

    /// Changes bytes in every version at once, as damage on the medium does.
    pub(super) fn patch(&mut self, offset: u64, bytes: &[u8]) {
        let len = bytes.len().min(usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX));
        for (index, inside, start, piece) in pieces(offset, len) {
            let damage = |version: &mut Option<Arc<Page>>| {
                let page = Arc::make_mut(version.get_or_insert_with(|| Arc::new([0; PAGE_BYTES])));
                page[inside..inside + piece].copy_from_slice(&bytes[start..start + piece]);
            };
            let mut current = self.pages.get(index).cloned();
            damage(&mut current);
            self.pages.set(index, current);
            if let Some(history) = self.unsynced_pages.get_mut(&index) {
                history.versions.iter_mut().for_each(damage);
            }
        }
    }

    /// Leaves what a power loss leaves.
    pub(super) fn power_loss(&mut self, random: &mut Random, leaning: Leaning) {
        for (index, history) in std::mem::take(&mut self.unsynced_pages) {
            let page = match leaning {
                Leaning::Everything => continue,
                Leaning::Nothing => history.versions.first().cloned().flatten(),
                Leaning::Mixed => mixed_page(&history, self.pages.get(index), random),
            };
            self.pages.set(index, page);
        }
        if let Some(history) = self.unsynced_len.take() {
            let old = match leaning {
                Leaning::Everything => None,
                Leaning::Nothing => history.versions.first(),
                Leaning::Mixed => history.pick(random),
            };
            self.len = old.copied().unwrap_or(self.len);
        }
        self.cut_behind_end();
    }

    /// Bytes behind the end of a file always read as zeros when it grows again.
    fn cut_behind_end(&mut self) {
        for index in self.pages.indices_from(self.len / PAGE_BYTES as u64) {
            let start = index * PAGE_BYTES as u64;
            match usize::try_from(self.len.saturating_sub(start)).unwrap_or(PAGE_BYTES) {
                0 => self.pages.set(index, None),
                keep if keep < PAGE_BYTES => {
                    let mut page = self.pages.get(index).map_or([0; PAGE_BYTES], |page| **page);
                    page[keep..].fill(0);
                    self.pages.set(index, Some(Arc::new(page)));
                }
                _ => {}
            }
        }
    }
}

/// The durable page, the newest, one in between, or a mixture of all of them, sector by sector.
fn mixed_page(
    history: &History<Option<Arc<Page>>>,
    newest: Option<&Arc<Page>>,
    random: &mut Random,
) -> Option<Arc<Page>> {
    match random.below(4) {
        0 => history.versions.first().cloned().flatten(),
        1 => newest.cloned(),
        2 => history.pick(random).cloned().unwrap_or_else(|| newest.cloned()),
        _ => {
            let mut page = [0; PAGE_BYTES];
            for start in (0..PAGE_BYTES).step_by(SECTOR_BYTES) {
                let sector = start..start + SECTOR_BYTES;
                if let Some(version) = history.pick(random).map_or(newest, Option::as_ref) {
                    page[sector.clone()].copy_from_slice(&version[sector]);
                }
            }
            Some(Arc::new(page))
        }
    }
}
