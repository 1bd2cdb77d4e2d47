//! Reading: one key, or the start of a scan.

use std::sync::Arc;

use alluvium_base::checksum::key_hash;
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{KEYSPACE_ID_BYTES, KeyspaceId, Kind, Seqno, Trailer, common_prefix_len};
use alluvium_base::limits::VALUE_COPY_BYTES_MAX;
use alluvium_base::range_tombstone::{FragmentedTombstones, RangeTombstone};
use alluvium_base::{Error, KeyRange, Result};
use alluvium_compaction::iterate::{LevelIterator, TableOpener};
use alluvium_compaction::{FileMeta, MergingIterator, Run};
use alluvium_sstable::ReadPurpose;

use crate::iter::{Iter, unexpected_kind};
use crate::keyspace::Snapshot;
use crate::memtable::{Memtable, MemtableValue};
use crate::read_state::{PinnedValue, ReadState};
use crate::table_store::TableStore;
use crate::tree::Tree;

/// Keys up to this length are looked up without an allocation.
const STACK_KEY_BYTES: usize = 128;

impl Tree {
    /// The value of `key` at `snapshot`; `None` for the newest.
    pub(crate) fn get(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        snapshot: Option<&Snapshot>,
    ) -> Result<Option<PinnedValue>> {
        self.check_not_dropped(keyspace)?;
        let len = KEYSPACE_ID_BYTES + key.len();
        let mut on_stack = [0; STACK_KEY_BYTES];
        let on_heap;
        let full_key = match on_stack.get_mut(..len) {
            Some(buffer) => {
                let (id, rest) = buffer.split_at_mut(KEYSPACE_ID_BYTES);
                id.copy_from_slice(&keyspace.to_bytes());
                rest.copy_from_slice(key);
                &*buffer
            }
            None => {
                on_heap = keyspace.full_key(key);
                on_heap.as_slice()
            }
        };
        let at = snapshot.map(|snapshot| snapshot.0.seqno_in(&self.snapshots)).transpose()?;
        if let Some((state, at)) = snapshot.and_then(|snapshot| snapshot.0.state()).zip(at) {
            return lookup(state, &self.tables, full_key, at);
        }
        // The state first, the sequence number second: see `read_state`.
        let state = self.read_state.load();
        let snapshot = at.unwrap_or_else(|| self.snapshots.visible());
        lookup(&state, &self.tables, full_key, snapshot)
    }

    /// A cursor over `bounds`, at `snapshot` or at one taken now.
    pub(crate) fn iter(&self, bounds: KeyRange, snapshot: Option<&Snapshot>) -> Result<Iter> {
        self.check_not_dropped(KeyspaceId::of(&bounds.start).unwrap_or(KeyspaceId::CATALOG))?;
        // The snapshot first: what is registered is kept by every compaction that starts from now on.
        let snapshot = match snapshot {
            Some(snapshot) => {
                snapshot.0.seqno_in(&self.snapshots)?;
                Arc::clone(&snapshot.0)
            }
            None => Arc::new(self.take_snapshot()),
        };
        let state = snapshot.state().cloned().unwrap_or_else(|| self.read_state.load_full());
        let mut children: Vec<Box<dyn InternalIterator>> = Vec::new();
        let mut tombstones: Vec<RangeTombstone> = Vec::new();
        for memtable in memtables_newest_first(&state) {
            if memtable.is_empty() {
                continue;
            }
            children.push(Box::new(memtable.iter()));
            tombstones.extend(overlapping(&memtable.range_tombstones(), &bounds));
        }
        for (_, run) in state.version.runs_newest_first() {
            let mut files: Vec<Arc<FileMeta>> = Vec::new();
            for file in run.overlapping(&bounds) {
                if file.summary.range_tombstones > 0 {
                    tombstones.extend(overlapping(self.tables.get(file)?.range_tombstones(), &bounds));
                }
                if self.may_hold_prefix(run, file, &bounds)? {
                    files.push(Arc::clone(file));
                }
            }
            if files.is_empty() {
                continue;
            }
            let all = files.len() == run.files().len();
            // Files of a run stay a run when some are left out.
            let run = if all {
                Arc::clone(run)
            } else {
                Arc::new(Run::new(files).map_err(|e| Error::invalid(e.to_string()))?)
            };
            let opener = Arc::clone(&self.tables) as Arc<dyn TableOpener>;
            children.push(Box::new(LevelIterator::over_tables(
                run,
                Some(&bounds),
                opener,
                ReadPurpose::Scan,
            )));
        }
        let merged = MergingIterator::new(children);
        let tombstones = Arc::new(FragmentedTombstones::new(&tombstones));
        Ok(Iter::new(merged, tombstones, bounds, snapshot, state, Arc::clone(&self.closed)))
    }

    /// False if the file's prefix filter says that no key in `bounds` is in it. Asked once per scan and file, and only
    /// for scans that are narrow enough to lie in one file of the run: a wide scan finds keys everywhere.
    fn may_hold_prefix(&self, run: &Run, file: &FileMeta, bounds: &KeyRange) -> Result<bool> {
        let prefix = shared_prefix(bounds);
        if prefix.len() <= KEYSPACE_ID_BYTES || run.overlapping(bounds).len() > 2 {
            return Ok(true);
        }
        self.tables.get(file)?.may_contain_prefix(prefix)
    }
}

/// What every key in `bounds` begins with: the common prefix of both bounds, and one byte more if the end is just the
/// successor of that longer prefix, as it is for a prefix scan.
fn shared_prefix(bounds: &KeyRange) -> &[u8] {
    let common = common_prefix_len(&bounds.start, &bounds.end);
    let next = bounds.start.get(common).and_then(|byte| byte.checked_add(1));
    let ends_there =
        bounds.end.len() == common + 1 && next.is_some() && bounds.end.get(common).copied() == next;
    bounds.start.get(..common + usize::from(ends_there)).unwrap_or_default()
}

pub(crate) fn memtables_newest_first(state: &ReadState) -> impl Iterator<Item = &Arc<Memtable>> {
    std::iter::once(&state.active).chain(state.immutables.iter().rev().map(|immutable| &immutable.memtable))
}

fn overlapping<'a>(
    tombstones: &'a FragmentedTombstones,
    bounds: &'a KeyRange,
) -> impl Iterator<Item = RangeTombstone> + 'a {
    tombstones
        .to_tombstones()
        .filter(|tombstone| tombstone.start < bounds.end && tombstone.end > bounds.start)
}

/// What one place knows of a key.
enum Found<V> {
    /// Its newest version there, and the value of a put.
    Version(Trailer, V),
    Nothing,
}

/// Looks a full key up: newest place first, until one has a version of the key that the snapshot may see or a range
/// tombstone over it; every older place has only older versions.
pub(crate) fn lookup(
    state: &ReadState,
    tables: &TableStore,
    full_key: &[u8],
    snapshot: Seqno,
) -> Result<Option<PinnedValue>> {
    let hash = key_hash(full_key);
    for memtable in memtables_newest_first(state) {
        let covered = memtable.newest_tombstone_covering(full_key, snapshot);
        let found = match memtable.get(full_key, hash, snapshot) {
            Some((trailer, value)) => Found::Version(trailer, value),
            None => Found::Nothing,
        };
        let pin = |value: &[u8]| {
            if value.len() <= VALUE_COPY_BYTES_MAX {
                return PinnedValue::copied(value);
            }
            // Searched for again, which costs less than copying it.
            MemtableValue::pin(memtable, |memtable| {
                memtable.get(full_key, hash, snapshot).map(|(_, value)| value)
            })
            .map_or_else(|| PinnedValue::copied(value), PinnedValue::from_memtable)
        };
        if let Some(answer) = decide(full_key, found, covered, pin)? {
            return Ok(answer);
        }
    }
    for (_, run) in state.version.runs_newest_first() {
        let Some(file) = run.file_of(full_key) else { continue };
        let table = tables.get(file)?;
        let covered = match file.summary.range_tombstones {
            0 => None,
            _ => table.range_tombstones().newest_covering(full_key, snapshot),
        };
        let found = match table.get(full_key, hash, snapshot)? {
            Some((trailer, value)) => Found::Version(trailer, value),
            None => Found::Nothing,
        };
        if let Some(answer) = decide(full_key, found, covered, PinnedValue::from_table)? {
            return Ok(answer);
        }
    }
    Ok(None)
}

/// The answer that one place gives: `None` to go on to an older one.
fn decide<V>(
    full_key: &[u8],
    found: Found<V>,
    covered: Option<Seqno>,
    pin: impl FnOnce(V) -> PinnedValue,
) -> Result<Option<Option<PinnedValue>>> {
    match found {
        Found::Nothing => Ok(covered.map(|_| None)),
        Found::Version(trailer, _) if covered.is_some_and(|seqno| seqno > trailer.seqno()) => Ok(Some(None)),
        Found::Version(trailer, value) => match trailer.kind() {
            Some(Kind::Put) => Ok(Some(Some(pin(value)))),
            Some(Kind::Delete | Kind::DeleteOnce) => Ok(Some(None)),
            Some(Kind::Merge | Kind::RangeDelete) | None => Err(unexpected_kind(full_key, trailer)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_scan_shares_its_prefix() {
        let shared = |start: &str, end: &str| shared_prefix(&KeyRange::new(start, end)).to_vec();
        assert_eq!(shared("abc", "abd"), b"abc");
        assert_eq!(shared("abc", "abe"), b"ab");
        assert_eq!(shared("abc", "abdx"), b"ab");
        assert_eq!(shared("abcx", "abd"), b"abc");
        assert_eq!(shared("a", "b"), b"a");
        assert_eq!(shared("a", "ab"), b"a");
    }
}
