//! Disjoint files in key order as one sequence.
//!
//! A file is opened when the iterator enters it, not before: a scan over a short range touches one file of a level,
//! whatever the level's size. A file may hold nothing but range tombstones, or none of the keys that its range
//! promises at either end; the iterator then moves on to its neighbour.

use std::ops::Range;
use std::sync::Arc;

use alluvium_base::iter::InternalIterator;
use alluvium_base::key::Trailer;
use alluvium_base::{Error, KeyRange, Result};
use alluvium_sstable::{ReadPurpose, Table, TableIterator};

use crate::version::{FileMeta, Run};

/// How a [`ConcatIterator`] gets an iterator over one file.
pub trait OpenFile: Send {
    /// Iterates over the entries of one file.
    type Iter: InternalIterator;
    /// Opens `file`.
    ///
    /// # Errors
    /// Those of opening a table; they fail the iterator.
    fn open(&self, file: &Arc<FileMeta>) -> Result<Self::Iter>;
}

/// Opens tables by what the manifest says of them; the engine keeps open ones for reuse.
pub trait TableOpener: Send + Sync {
    /// The table in `file`.
    ///
    /// # Errors
    /// Those of [`Table::open`], and of opening the file.
    fn open(&self, file: &Arc<FileMeta>) -> Result<Arc<Table>>;
}

/// Opens tables for a [`LevelIterator`].
#[derive(Clone)]
pub struct OpenTable {
    opener: Arc<dyn TableOpener>,
    purpose: ReadPurpose,
}

impl OpenFile for OpenTable {
    type Iter = TableIterator;

    fn open(&self, file: &Arc<FileMeta>) -> Result<TableIterator> {
        let table =
            self.opener.open(file).map_err(|error| error.context(format!("opening {}", file.file_name())))?;
        Ok(table.iter(self.purpose))
    }
}

/// Iterates over the tables of a level or a sublevel.
pub type LevelIterator = ConcatIterator<OpenTable>;

impl LevelIterator {
    /// An iterator over the tables of `run` that may hold keys of `range` (all if `None`), opened by `opener` when
    /// they are reached. It may still show keys outside of the range.
    #[must_use]
    pub fn over_tables(
        run: Arc<Run>,
        range: Option<&KeyRange>,
        opener: Arc<dyn TableOpener>,
        purpose: ReadPurpose,
    ) -> LevelIterator {
        let open = OpenTable { opener, purpose };
        match range {
            Some(range) => ConcatIterator::within(run, range, open),
            None => ConcatIterator::new(run, open),
        }
    }
}

/// Iterates over the files of a run, opening each when it is reached.
pub struct ConcatIterator<O: OpenFile> {
    run: Arc<Run>,
    opener: O,
    /// Indexes of the files that may be visited.
    visited: Range<usize>,
    /// The file that the iterator is in, and its index.
    current: Option<(usize, O::Iter)>,
    failed: Option<Error>,
}

impl<O: OpenFile> ConcatIterator<O> {
    /// An iterator over all files of `run`.
    #[must_use]
    pub fn new(run: Arc<Run>, opener: O) -> ConcatIterator<O> {
        let visited = 0..run.files().len();
        ConcatIterator { run, opener, visited, current: None, failed: None }
    }

    /// An iterator that visits only files that overlap `range`. It may still show keys outside of it: the bounds save
    /// opening files, no more.
    #[must_use]
    pub fn within(run: Arc<Run>, range: &KeyRange, opener: O) -> ConcatIterator<O> {
        let from = run.index_at_or_after(&range.start);
        let visited = from..from + run.overlapping(range).len();
        ConcatIterator { run, opener, visited, current: None, failed: None }
    }

    /// Makes file `index` the current one, still unpositioned; no file if it must not be visited.
    fn enter(&mut self, index: Option<usize>) -> Result<Option<&mut O::Iter>> {
        let Some(index) = index.filter(|index| self.visited.contains(index)) else {
            self.current = None;
            return Ok(None);
        };
        if self.current.as_ref().is_none_or(|(current, _)| *current != index) {
            self.current = None;
            let Some(file) = self.run.files().get(index) else { return Ok(None) };
            self.current = Some((index, self.opener.open(file)?));
        }
        Ok(self.current.as_mut().map(|(_, iter)| iter))
    }

    /// While the current file is exhausted, goes on to the start of the next one.
    fn skip_forward(&mut self) -> Result<()> {
        while let Some((index, iter)) = &self.current
            && !iter.valid()
        {
            let next = index + 1;
            if let Some(iter) = self.enter(Some(next))? {
                iter.seek_to_first()?;
            }
        }
        Ok(())
    }

    /// While the current file is exhausted, goes back to the end of the previous one.
    fn skip_backward(&mut self) -> Result<()> {
        while let Some((index, iter)) = &self.current
            && !iter.valid()
        {
            let previous = index.checked_sub(1);
            if let Some(iter) = self.enter(previous)? {
                iter.seek_to_last()?;
            }
        }
        Ok(())
    }

    /// Runs a move, unless an earlier one failed, and remembers its failure.
    fn guarded(&mut self, action: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = action(self);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            self.current = None;
        }
        result
    }
}

impl<O: OpenFile> InternalIterator for ConcatIterator<O> {
    fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, iter)| iter.valid())
    }

    fn key(&self) -> &[u8] {
        self.current.as_ref().map(|(_, iter)| iter.key()).unwrap_or_default()
    }

    fn trailer(&self) -> Trailer {
        self.current.as_ref().map_or(Trailer::OLDEST, |(_, iter)| iter.trailer())
    }

    fn value(&self) -> &[u8] {
        self.current.as_ref().map(|(_, iter)| iter.value()).unwrap_or_default()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.guarded(|this| {
            if let Some(iter) = this.enter(Some(this.visited.start))? {
                iter.seek_to_first()?;
            }
            this.skip_forward()
        })
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.guarded(|this| {
            if let Some(iter) = this.enter(this.visited.end.checked_sub(1))? {
                iter.seek_to_last()?;
            }
            this.skip_backward()
        })
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.guarded(|this| {
            let index = this.run.index_at_or_after(key).max(this.visited.start);
            if let Some(iter) = this.enter(Some(index))? {
                iter.seek(key, trailer)?;
            }
            this.skip_forward()
        })
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.guarded(|this| {
            // The file that may hold `key`, or else the one before it: an entry before the bound lies there or
            // further to the front.
            let at = this.run.index_at_or_after(key);
            let holds = this.run.files().get(at).is_some_and(|file| file.range().contains(key));
            let index = if holds { Some(at) } else { at.checked_sub(1) };
            let last = this.visited.end.checked_sub(1);
            if let Some(iter) = this.enter(index.min(last))? {
                iter.seek_before(key, trailer)?;
            }
            this.skip_backward()
        })
    }

    fn next(&mut self) -> Result<()> {
        self.guarded(|this| {
            if let Some((_, iter)) = &mut this.current {
                iter.next()?;
            }
            this.skip_forward()
        })
    }

    fn prev(&mut self) -> Result<()> {
        self.guarded(|this| {
            if let Some((_, iter)) = &mut this.current {
                iter.prev()?;
            }
            this.skip_backward()
        })
    }
}

#[cfg(test)]
mod tests {
    use alluvium_base::key::Kind;
    use parking_lot::Mutex;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Entry, Move, VecIterator, check_moves, file, walk_ends};

    /// Tables in memory, by file id; counts how often each is opened.
    #[derive(Clone, Default)]
    struct Tables {
        entries: Vec<Arc<[Entry]>>,
        opened: Arc<Mutex<Vec<u64>>>,
        unreadable: Option<u64>,
    }

    impl OpenFile for Tables {
        type Iter = VecIterator;
        fn open(&self, file: &Arc<FileMeta>) -> Result<VecIterator> {
            if self.unreadable == Some(file.id) {
                return Err(Error::corrupt(file.file_name(), 0, "made up"));
            }
            self.opened.lock().push(file.id);
            Ok(VecIterator::new(self.entries[file.id as usize].clone()))
        }
    }

    /// A run of `files` files of width 4 (keys 4·n to 4·n + 3); file n holds what `holds` says.
    fn level(files: u8, holds: impl Fn(u8) -> bool) -> (Arc<Run>, Tables, Vec<Entry>) {
        let mut tables = Tables::default();
        let mut metas = Vec::new();
        for number in 0..files {
            let keys = 4 * number..4 * number + 4;
            metas.push(file(u64::from(number), &[keys.start], &[keys.end]));
            let entry = |key| (vec![key], Trailer::new(1, Kind::Put), vec![number]);
            tables.entries.push(keys.filter(|&key| holds(key)).map(entry).collect());
        }
        let all = tables.entries.iter().flat_map(|entries| entries.to_vec()).collect();
        (Arc::new(Run::new(metas).unwrap()), tables, all)
    }

    proptest! {
        #[test]
        fn files_show_as_one_sequence(
            held in prop::collection::vec(any::<bool>(), 24),
            moves in prop::collection::vec(Move::any(prop::collection::vec(0u8..26, 0..3)), 0..50),
        ) {
            let (run, tables, all) = level(6, |key| held[usize::from(key)]);
            check_moves(&mut ConcatIterator::new(run, tables), &all, &moves)?;
        }

        #[test]
        fn bounds_hide_only_files_outside_of_them(
            held in prop::collection::vec(any::<bool>(), 24),
            (start, end) in (0u8..26, 0u8..26),
            moves in prop::collection::vec(Move::any(prop::collection::vec(0u8..26, 0..3)), 0..50),
        ) {
            let (run, tables, _) = level(6, |key| held[usize::from(key)]);
            let range = KeyRange::new([start], [end]);
            let visited = run.overlapping(&range).iter();
            let all: Vec<Entry> = visited.flat_map(|file| tables.entries[file.id as usize].to_vec()).collect();
            check_moves(&mut ConcatIterator::within(run, &range, tables), &all, &moves)?;
        }
    }

    #[test]
    fn a_file_is_opened_when_it_is_entered() {
        let (run, tables, _) = level(6, |_| true);
        let mut iter = ConcatIterator::new(run, tables.clone());
        iter.seek(&[9], Trailer::NEWEST).unwrap();
        iter.next().unwrap();
        assert_eq!(*tables.opened.lock(), [2]);
        iter.next().unwrap();
        iter.next().unwrap();
        assert_eq!((*tables.opened.lock()).as_slice(), [2, 3]);
    }

    #[test]
    fn an_unreadable_file_is_never_skipped() {
        let (run, tables, all) = level(3, |_| true);
        let mut iter = ConcatIterator::new(run.clone(), Tables { unreadable: Some(1), ..tables.clone() });
        iter.seek_to_first().unwrap();
        let mut shown = 0;
        let error = loop {
            shown += 1;
            if let Err(error) = iter.next() {
                break error;
            }
        };
        assert!(error.is_corrupt() && shown == 4, "{error} after {shown}");
        assert!(!iter.valid() && iter.seek_to_first().is_err() && !iter.valid());
        walk_ends(&mut ConcatIterator::new(run, tables), &all);
    }
}
