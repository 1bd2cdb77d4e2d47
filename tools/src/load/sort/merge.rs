//! All runs of a target as one sorted sequence.
//!
//! A tournament of losers (Knuth, vol. 3, 5.4.1): each inner node remembers the run that lost there, so that moving
//! on costs one comparison per level. Runs are compared by the heads of their current keys: the eight bytes behind
//! the prefix that all keys of all runs share, which the first and last keys of the runs tell before the merge starts.

use alluvium_base::{Result, key};

use crate::load::place::Place;
use crate::load::sort::buffer::MemoryRun;
use crate::load::sort::spill::{DiskCursor, DiskRun};

/// Sorted entries, in memory or on disk.
#[derive(Debug)]
pub enum Run {
    /// In memory.
    Memory(MemoryRun),
    /// In a temporary file.
    Disk(DiskRun),
}

impl Run {
    fn key_range(&self) -> Option<(&[u8], &[u8])> {
        match self {
            Run::Memory(run) => run.key_range(),
            Run::Disk(run) => Some(run.key_range()),
        }
    }
}

#[derive(Debug)]
enum Cursor<'a> {
    Memory { run: &'a MemoryRun, next: usize, current: (&'a [u8], &'a [u8], Place) },
    Disk(DiskCursor<'a>),
}

impl<'a> Cursor<'a> {
    fn new(run: &'a Run) -> Cursor<'a> {
        match run {
            Run::Memory(run) => Cursor::Memory { run, next: 0, current: (&[], &[], Place::new(0, 0)) },
            Run::Disk(run) => Cursor::Disk(run.cursor()),
        }
    }

    fn advance(&mut self) -> Result<bool> {
        match self {
            Cursor::Memory { run, next, current } => {
                let Some(entry) = run.get(*next) else { return Ok(false) };
                *current = entry;
                *next += 1;
                Ok(true)
            }
            Cursor::Disk(cursor) => cursor.advance(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Cursor::Memory { current, .. } => current.0,
            Cursor::Disk(cursor) => cursor.key(),
        }
    }

    fn value(&self) -> &[u8] {
        match self {
            Cursor::Memory { current, .. } => current.1,
            Cursor::Disk(cursor) => cursor.value(),
        }
    }

    fn place(&self) -> Place {
        match self {
            Cursor::Memory { current, .. } => current.2,
            Cursor::Disk(cursor) => cursor.place(),
        }
    }
}

/// No run has reached this node yet.
const NOBODY: usize = usize::MAX;

/// Walks the entries of several runs in the order of (key, place).
#[derive(Debug)]
pub struct Merge<'a> {
    cursors: Vec<Cursor<'a>>,
    /// Head of each cursor's current key; `None` when the cursor is at its end.
    heads: Vec<Option<u64>>,
    /// Element 0 is the winner; each other node holds the cursor that lost there. Children of node n are 2n, 2n + 1;
    /// cursor i enters at node (i + number of cursors) / 2.
    tree: Vec<usize>,
    prefix_len: usize,
    started: bool,
}

impl<'a> Merge<'a> {
    /// A merge that stands before the first entry of `runs`.
    #[must_use]
    pub fn new(runs: &'a [Run]) -> Merge<'a> {
        Merge {
            cursors: runs.iter().map(Cursor::new).collect(),
            heads: vec![None; runs.len()],
            tree: vec![NOBODY; runs.len().max(1)],
            prefix_len: shared_prefix_len(runs),
            started: false,
        }
    }

    /// Moves to the next entry; false behind the last.
    ///
    /// # Errors
    /// Those of reading runs on disk.
    pub fn advance(&mut self) -> Result<bool> {
        if self.cursors.is_empty() {
            return Ok(false);
        }
        if self.started {
            let winner = self.tree[0];
            self.load(winner)?;
            self.replay(winner);
        } else {
            for cursor in 0..self.cursors.len() {
                self.load(cursor)?;
                self.replay(cursor);
            }
            self.started = true;
        }
        Ok(self.heads[self.tree[0]].is_some())
    }

    fn load(&mut self, cursor: usize) -> Result<()> {
        let at = &mut self.cursors[cursor];
        self.heads[cursor] = if at.advance()? { Some(key::head(&at.key()[self.prefix_len..])) } else { None };
        Ok(())
    }

    /// Plays `cursor` from its leaf up to the root, or to a node that nobody has reached yet.
    fn replay(&mut self, cursor: usize) {
        let mut winner = cursor;
        let mut node = (cursor + self.cursors.len()) / 2;
        while node > 0 {
            let other = self.tree[node];
            if other == NOBODY {
                self.tree[node] = winner;
                return;
            }
            if self.comes_before(other, winner) {
                self.tree[node] = winner;
                winner = other;
            }
            node /= 2;
        }
        self.tree[0] = winner;
    }

    fn comes_before(&self, a: usize, b: usize) -> bool {
        match (self.heads[a], self.heads[b]) {
            (Some(head_a), Some(head_b)) if head_a != head_b => head_a < head_b,
            (Some(_), Some(_)) => {
                let (a, b) = (&self.cursors[a], &self.cursors[b]);
                (a.key(), a.place()) < (b.key(), b.place())
            }
            (a, _) => a.is_some(),
        }
    }

    /// Key of the current entry. Call it, like the other two, only after `advance` has returned true.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.cursors[self.tree[0]].key()
    }

    /// Value of the current entry.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.cursors[self.tree[0]].value()
    }

    /// Place of the row of the current entry.
    #[must_use]
    pub fn place(&self) -> Place {
        self.cursors[self.tree[0]].place()
    }
}

fn shared_prefix_len(runs: &[Run]) -> usize {
    let ranges = runs.iter().filter_map(Run::key_range);
    let least = ranges.clone().map(|(first, _)| first).min();
    let greatest = ranges.map(|(_, last)| last).max();
    least.zip(greatest).map_or(0, |(least, greatest)| key::common_prefix_len(least, greatest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::sort::buffer::Buffer;
    use crate::load::sort::spill::SpillFile;

    type Owned = (Vec<u8>, Place);

    fn run(entries: &[Owned], on_disk: bool) -> Run {
        if on_disk {
            let mut spill = SpillFile::create(&std::env::temp_dir()).unwrap();
            let mut writer = spill.start_run(40);
            entries.iter().for_each(|(key, place)| writer.add(key, b"v", *place).unwrap());
            if let Some(run) = writer.finish().unwrap() {
                return Run::Disk(run);
            }
        }
        let mut buffer = Buffer::new(1 << 20);
        entries.iter().for_each(|(key, place)| buffer.push(key, b"v", *place));
        Run::Memory(buffer.seal())
    }

    proptest! {
        #[test]
        fn merging_runs_equals_sorting_everything(
            runs in prop::collection::vec((prop::collection::vec("(x|)[ab]{0,9}", 0..12), any::<bool>()), 0..9)
        ) {
            let mut line = 0;
            let mut all = Vec::new();
            let mut sorted_runs = Vec::new();
            for (keys, on_disk) in runs {
                let mut entries: Vec<Owned> = Vec::new();
                for key in keys {
                    line += 1;
                    // Places in another order than the runs.
                    entries.push((key.into_bytes(), Place::new(0, line * 7919 % 1009)));
                }
                entries.sort();
                all.extend(entries.iter().cloned());
                sorted_runs.push(run(&entries, on_disk));
            }
            all.sort();
            let mut merge = Merge::new(&sorted_runs);
            let mut got = Vec::new();
            while merge.advance().unwrap() {
                prop_assert_eq!(merge.value(), b"v");
                got.push((merge.key().to_vec(), merge.place()));
            }
            prop_assert_eq!(got, all);
        }
    }
}
