//! Levels: which table files make up the tree, and how that changes.
//!
//! A [`Version`] is an immutable picture of the tree. Level 0 is a stack of *sublevels*; levels 1 to 6 are one sorted
//! [`Run`] of files each. A [`VersionEdit`] says what changes; [`Version::apply`] makes the next version and refuses
//! an edit that would break an invariant:
//!
//! - files of one level (one sublevel) do not overlap;
//! - a file is in the tree once;
//! - what an edit removes is there.
//!
//! *Where newer data is.* For every key, what is newer is nearer to the top: memtables, then the highest sublevel down
//! to the lowest, then level 1 to 6. Nothing in this crate may ever place an output so that this breaks; see
//! `stack.rs` for level 0 and `picker/` for the rest.
//!
//! Versions share what did not change (every level is behind an `Arc`), so a clone or a small edit costs a few
//! reference counts.

mod edit;
mod fields;
mod file_meta;
mod run;
mod stack;
mod state;

use std::sync::Arc;

use alluvium_base::limits::LEVELS;
use alluvium_base::{Error, KeyRange, Result};

pub use edit::{AcceptedEnd, CatalogChange, VersionEdit};
pub use file_meta::{FileMeta, file_name};
pub use run::{Overlap, Run};
pub(crate) use stack::{stack, stack_height};
pub use state::ManifestState;

/// The deepest level.
pub const BOTTOM_LEVEL: u8 = LEVELS as u8 - 1;

/// An immutable picture of the tree's files.
#[derive(Clone, Debug, Default)]
pub struct Version {
    /// Level 0, oldest sublevel first.
    sublevels: Arc<[Arc<Run>]>,
    /// Levels by number; number 0 stays empty.
    levels: [Arc<Run>; LEVELS],
}

impl Version {
    /// A tree without files.
    #[must_use]
    pub fn new() -> Version {
        Version::default()
    }

    /// The sublevels of level 0, oldest first: where two files overlap, the one in the later sublevel is newer.
    #[must_use]
    pub fn sublevels(&self) -> &[Arc<Run>] {
        &self.sublevels
    }

    /// Level `level`, from 1 to [`BOTTOM_LEVEL`]. Empty for every other number: level 0 has
    /// [`sublevels`](Version::sublevels).
    #[must_use]
    pub fn level(&self, level: u8) -> &Arc<Run> {
        let [level_0, ..] = &self.levels;
        self.levels.get(usize::from(level)).unwrap_or(level_0)
    }

    /// Every sorted run with its level, the one with the newest data first.
    pub fn runs_newest_first(&self) -> impl Iterator<Item = (u8, &Arc<Run>)> {
        let sublevels = self.sublevels.iter().rev().map(|run| (0, run));
        let levels = (0u8..).zip(&self.levels).skip(1);
        sublevels.chain(levels).filter(|(_, run)| !run.is_empty())
    }

    /// Every file with its level, newest data first.
    pub fn files(&self) -> impl Iterator<Item = (u8, &Arc<FileMeta>)> {
        self.runs_newest_first().flat_map(|(level, run)| run.files().iter().map(move |file| (level, file)))
    }

    /// The files of `level`: for level 0 sublevel by sublevel, oldest first.
    pub fn files_of(&self, level: u8) -> impl Iterator<Item = &Arc<FileMeta>> {
        let sublevels = self.sublevels.iter().filter(move |_| level == 0);
        sublevels.chain(std::iter::once(self.level(level))).flat_map(|run| run.files())
    }

    /// Number of files in the tree.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.runs_newest_first().map(|(_, run)| run.files().len()).sum()
    }

    /// Sum of the sizes of the files of `level`, in bytes.
    #[must_use]
    pub fn level_bytes(&self, level: u8) -> u64 {
        if level == 0 {
            self.sublevels.iter().map(|run| run.bytes()).sum()
        } else {
            self.level(level).bytes()
        }
    }

    /// Sum of the sizes of all files, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.runs_newest_first().map(|(_, run)| run.bytes()).sum()
    }

    /// Hull of the ranges of all files; `None` if there are none.
    #[must_use]
    pub fn key_range(&self) -> Option<KeyRange> {
        KeyRange::hull(self.files().map(|(_, file)| file.range()))
    }

    /// The version after `edit`.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit would break an invariant (see the module's documentation). Whoever replays a
    /// manifest turns that into `Corrupt` with the place of the edit.
    pub fn apply(&self, edit: &VersionEdit) -> Result<Version> {
        if edit.added.is_empty() && edit.removed.is_empty() {
            return Ok(self.clone());
        }
        if let Some(&(level, _)) = edit.added.iter().find(|(level, _)| *level > BOTTOM_LEVEL) {
            return Err(Error::invalid(format!("edit adds to level {level}; the deepest is {BOTTOM_LEVEL}")));
        }
        let mut next = self.clone();
        for level in 0..=BOTTOM_LEVEL {
            let Some(files) = self.files_after(level, edit)? else { continue };
            if level == 0 {
                next.sublevels = stack::stack(files, &self.sublevels)?;
            } else if let Some(run) = next.levels.get_mut(usize::from(level)) {
                let sorted = Run::new(files);
                *run =
                    Arc::new(sorted.map_err(|overlap| Error::invalid(format!("level {level}: {overlap}")))?);
            }
        }
        next.check_added_once(edit)?;
        Ok(next)
    }

    /// The files of `level` after `edit`; `None` if it does not touch the level.
    fn files_after(&self, level: u8, edit: &VersionEdit) -> Result<Option<Vec<Arc<FileMeta>>>> {
        let mut removed: Vec<u64> =
            edit.removed.iter().filter(|removed| removed.0 == level).map(|removed| removed.1).collect();
        removed.sort_unstable();
        let mut added = edit.added.iter().filter(|(to, _)| *to == level).map(|(_, file)| file).peekable();
        if removed.is_empty() && added.peek().is_none() {
            return Ok(None);
        }
        let mut files = Vec::new();
        let mut found = 0;
        for file in self.files_of(level) {
            if removed.binary_search(&file.id).is_ok() {
                found += 1;
            } else {
                files.push(file.clone());
            }
        }
        if found != removed.len() {
            return Err(Error::invalid(format!(
                "edit removes files {removed:?} of level {level}, of which {found} are there"
            )));
        }
        files.extend(added.cloned());
        if let Some(empty) = files.iter().find(|file| file.range().is_empty()) {
            return Err(Error::invalid(format!(
                "file {} has the empty key range {:?}",
                empty.id,
                empty.range()
            )));
        }
        Ok(Some(files))
    }

    /// Fails if a file that `edit` added is in this version more than once.
    fn check_added_once(&self, edit: &VersionEdit) -> Result<()> {
        let mut added: Vec<u64> = edit.added.iter().map(|(_, file)| file.id).collect();
        added.sort_unstable();
        let mut found: Vec<u64> =
            self.files().map(|(_, file)| file.id).filter(|id| added.binary_search(id).is_ok()).collect();
        found.sort_unstable();
        if let Some([id, _]) = found.array_windows::<2>().find(|[a, b]| a == b) {
            return Err(Error::invalid(format!("edit adds file {id}, which is in the tree already")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{file, l0_file};

    fn edit(added: Vec<(u8, Arc<FileMeta>)>, removed: Vec<(u8, u64)>) -> VersionEdit {
        VersionEdit { added, removed, ..VersionEdit::default() }
    }

    #[test]
    fn edits_add_remove_and_move() {
        let empty = Version::new();
        let first =
            empty.apply(&edit(vec![(1, file(1, b"aaaa", b"cccc")), (6, file(2, b"bbbb", b"dddd"))], vec![]));
        let first = first.unwrap();
        assert_eq!((first.file_count(), first.level(1).files().len(), first.bytes()), (2, 1, 2000));
        let moved = first.apply(&edit(vec![(2, file(1, b"aaaa", b"cccc"))], vec![(1, 1)])).unwrap();
        assert_eq!(moved.files().map(|(level, file)| (level, file.id)).collect::<Vec<_>>(), [(2, 1), (6, 2)]);
        assert!(Arc::ptr_eq(moved.level(6), first.level(6)), "levels that did not change are shared");
        assert_eq!(empty.file_count(), 0, "versions do not change");
        assert_eq!(moved.key_range(), Some(KeyRange::new("aaaa", "dddd")));
    }

    #[test]
    fn edits_that_break_an_invariant_are_refused() {
        let version = Version::new().apply(&edit(vec![(1, file(1, b"aaaa", b"cccc"))], vec![])).unwrap();
        let cases = [
            (edit(vec![(1, file(2, b"bbbb", b"dddd"))], vec![]), "overlaps"),
            (edit(vec![(2, file(1, b"aaaa", b"cccc"))], vec![]), "already"),
            (edit(vec![(2, file(3, b"a", b"b")), (3, file(3, b"a", b"b"))], vec![]), "already"),
            (edit(vec![(2, file(3, b"a", b"b")), (2, file(3, b"c", b"d"))], vec![]), "already"),
            (edit(vec![], vec![(1, 9)]), "removes"),
            (edit(vec![], vec![(2, 1)]), "removes"),
            (edit(vec![], vec![(1, 1), (1, 1)]), "removes"),
            (edit(vec![(7, file(2, b"x", b"y"))], vec![]), "deepest"),
            (edit(vec![(2, file(2, b"y", b"x"))], vec![]), "empty"),
            (edit(vec![(0, l0_file(2, 5, b"a", b"c")), (0, l0_file(3, 5, b"b", b"d"))], vec![]), "order"),
        ];
        for (edit, expected) in cases {
            let error = version.apply(&edit).unwrap_err().to_string();
            assert!(error.contains(expected), "{error:?} should mention {expected:?}");
        }
    }
}
