//! The pages of one file: a sparse two-level table whose copy costs one reference count per 64 pages.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes in a page: the unit in which a file is copied on write.
pub(super) const PAGE_BYTES: usize = 4096;

const CHUNK_PAGES: usize = 64;

pub(super) type Page = [u8; PAGE_BYTES];

type Chunk = [Option<Arc<Page>>; CHUNK_PAGES];

/// Pages by index; a missing page is a hole and reads as zeros.
#[derive(Clone, Default)]
pub(super) struct Pages {
    chunks: BTreeMap<u64, Arc<Chunk>>,
    count: u64,
}

fn place(index: u64) -> (u64, usize) {
    (index / CHUNK_PAGES as u64, (index % CHUNK_PAGES as u64) as usize)
}

impl Pages {
    pub(super) fn get(&self, index: u64) -> Option<&Arc<Page>> {
        let (chunk, slot) = place(index);
        self.chunks.get(&chunk)?.get(slot)?.as_ref()
    }

    /// Puts a page, or a hole, in its place.
    pub(super) fn set(&mut self, index: u64, page: Option<Arc<Page>>) {
        let (chunk, slot) = place(index);
        if page.is_none() && !self.chunks.contains_key(&chunk) {
            return;
        }
        let chunk = self.chunks.entry(chunk).or_insert_with(|| Arc::new([const { None }; CHUNK_PAGES]));
        if let Some(place) = Arc::make_mut(chunk).get_mut(slot) {
            self.count -= u64::from(place.is_some());
            self.count += u64::from(page.is_some());
            *place = page;
        }
    }

    /// Number of pages that are no holes.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Indices, from `first` on, of the pages that are no holes.
    pub(super) fn indices_from(&self, first: u64) -> Vec<u64> {
        let (first_chunk, _) = place(first);
        let mut indices = Vec::new();
        for (&number, chunk) in self.chunks.range(first_chunk..) {
            let start = number * CHUNK_PAGES as u64;
            let taken = chunk.iter().enumerate().filter(|(_, page)| page.is_some());
            indices.extend(taken.map(|(slot, _)| start + slot as u64).filter(|&index| index >= first));
        }
        indices
    }
}
