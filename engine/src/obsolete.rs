//! What is to be removed once nobody needs it: tables, manifests, segments of the log.
//!
//! Each waits with the position of the edit that made it obsolete. A table waits for the readers of this process (they
//! hold its `FileMeta` through a version) and, like everything else, for those of other processes, of which a
//! [`LeaseView`] tells. Pure bookkeeping: the housekeeper looks at leases and removes files.

use std::path::PathBuf;
use std::sync::Arc;

use alluvium_compaction::FileMeta;

use crate::lease::LeaseView;
use crate::manifest::Position;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Obsolete {
    tables: Vec<(Arc<FileMeta>, Position)>,
    /// Tables that a crash left behind: an older writer may have shown them to a reader that still lives.
    orphans: Vec<(PathBuf, Position)>,
    manifests: Vec<(u64, Position)>,
    /// The log below this address is released.
    log: Option<(u64, Position)>,
    log_released: u64,
}

/// One thing that can be removed now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// A table, by its id.
    Table(u64),
    /// Any other file, or a table that never was open.
    File(PathBuf),
    /// A manifest, by its number.
    Manifest(u64),
    /// The log below an address.
    Log(u64),
}

impl Obsolete {
    pub(crate) fn add_tables(&mut self, files: Vec<Arc<FileMeta>>, removed_at: Position) {
        self.tables.extend(files.into_iter().map(|file| (file, removed_at)));
    }

    pub(crate) fn add_orphans(&mut self, paths: Vec<PathBuf>, removed_at: Position) {
        self.orphans.extend(paths.into_iter().map(|path| (path, removed_at)));
    }

    pub(crate) fn add_manifests(&mut self, numbers: Vec<u64>, replaced_at: Position) {
        self.manifests.extend(numbers.into_iter().map(|number| (number, replaced_at)));
    }

    pub(crate) fn release_log(&mut self, address: u64, moved_at: Position) {
        self.log = Some((address, moved_at));
    }

    /// Something that can go, as far as `view` tells; it is then the caller's to remove.
    pub(crate) fn next(&mut self, view: &LeaseView) -> Option<Removal> {
        if let Some((address, moved_at)) = self.log {
            let free = view.frees_log(address, moved_at);
            if free == address {
                self.log = None;
            }
            if free > self.log_released {
                self.log_released = free;
                return Some(Removal::Log(free));
            }
        }
        if let Some(at) = self.manifests.iter().position(|(_, position)| view.frees_manifest(*position)) {
            return Some(Removal::Manifest(self.manifests.swap_remove(at).0));
        }
        if let Some(at) = self.orphans.iter().position(|(_, position)| view.frees_table(*position)) {
            return Some(Removal::File(self.orphans.swap_remove(at).0));
        }
        let is_free =
            |(file, removed_at): &(Arc<FileMeta>, Position)| is_unread(file) && view.frees_table(*removed_at);
        let at = self.tables.iter().position(is_free)?;
        Some(Removal::Table(self.tables.swap_remove(at).0.id))
    }

    /// Gives back what could not be removed.
    pub(crate) fn put_back(&mut self, removal: Removal, position: Position) {
        match removal {
            Removal::Log(address) => {
                self.log_released = 0;
                if self.log.is_none_or(|(wanted, _)| wanted < address) {
                    self.log = Some((address, position));
                }
            }
            Removal::Manifest(number) => self.manifests.push((number, position)),
            Removal::File(path) => self.orphans.push((path, position)),
            // Its caller gives it back as a file, since its meta is gone.
            Removal::Table(_) => {}
        }
    }

    /// The latest edit that made something obsolete which only leases can still hold; `None` if nothing is.
    pub(crate) fn newest_unread(&self) -> Option<Position> {
        let tables = self.tables.iter().filter(|(file, _)| is_unread(file)).map(|(_, position)| *position);
        let orphans = self.orphans.iter().map(|(_, position)| *position);
        let manifests = self.manifests.iter().map(|(_, position)| *position);
        tables.chain(orphans).chain(manifests).chain(self.log.map(|(_, position)| position)).max()
    }

    /// True if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.orphans.is_empty() && self.manifests.is_empty() && self.log.is_none()
    }

    /// Tables that wait, and their bytes.
    pub(crate) fn table_count(&self) -> (usize, u64) {
        (self.tables.len(), self.tables.iter().map(|(file, _)| file.bytes()).sum())
    }
}

/// True if the list's own reference is the last one: no version, hence no reader of this process, can reach the file.
fn is_unread(file: &Arc<FileMeta>) -> bool {
    Arc::strong_count(file) == 1
}
