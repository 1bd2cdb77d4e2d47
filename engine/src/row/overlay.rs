//! What a transaction has written so far, laid over what it reads.
//!
//! An [`Overlay`] holds the newest value (or its absence) of each key that the transaction has written: rows, their
//! index entries, keys of plain keyspaces. An [`OverlayIter`] merges it with a cursor of the store, so that scans see it.
//! A scan shares the overlay as it was when it started (the transaction copies on its next write), so what it shows
//! does not change while it runs.
//!
//! Under serialisable isolation the cursor also notes how far it has come ([`Reads`]): the commit must check what the
//! transaction has seen, and the absence of a key is seen by stepping over its place.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use alluvium_base::key::KeyspaceId;
use alluvium_base::sync::Mutex;
use alluvium_base::{Error, Result};

use super::premise::ReadRange;
use super::store::StoreIter;

/// A written value; `None` for a removal.
pub(crate) type Written = Option<Arc<[u8]>>;

/// The writes of a transaction, by keyspace and key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    keyspaces: HashMap<KeyspaceId, BTreeMap<Vec<u8>, Written>>,
}

impl Overlay {
    /// What has been written under `key`; `None` if nothing has.
    pub(super) fn get(&self, keyspace: KeyspaceId, key: &[u8]) -> Option<&Written> {
        self.keyspaces.get(&keyspace)?.get(key)
    }

    pub(super) fn set(&mut self, keyspace: KeyspaceId, key: &[u8], value: Written) {
        self.keyspaces.entry(keyspace).or_default().insert(key.to_vec(), value);
    }

    fn beyond(
        &self,
        keyspace: KeyspaceId,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        forward: bool,
    ) -> Option<(Vec<u8>, Written)> {
        let empty = match (from, to) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
            _ => false,
        };
        if empty {
            return None;
        }
        let mut range = self.keyspaces.get(&keyspace)?.range::<[u8], _>((from, to));
        let found = if forward { range.next() } else { range.next_back() };
        found.map(|(key, value)| (key.clone(), value.clone()))
    }
}

/// What a serialisable transaction has read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(super) keys: BTreeSet<(KeyspaceId, Vec<u8>)>,
    pub(super) ranges: Vec<ReadRange>,
}

/// Where reads are noted; shared by a transaction and its scans.
pub(crate) type SharedReads = Arc<Mutex<Reads>>;

/// What a scan inside of a transaction needs of it.
#[derive(Clone, Debug)]
pub(crate) struct Within {
    pub(super) overlay: Arc<Overlay>,
    /// Only under serialisable isolation.
    pub(super) reads: Option<SharedReads>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Which side is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Nothing,
    Stored,
    Own,
}

/// A cursor of the store with a transaction's writes laid over it; outside of transactions it is just the former.
pub struct OverlayIter<I> {
    stored: I,
    over: Option<Box<Over>>,
}

/// The laid-over part.
struct Over {
    within: Within,
    range: ReadRange,
    /// Number of the noted range in [`Reads`].
    noted: Option<usize>,
    direction: Option<Direction>,
    /// The store's cursor stands on an entry that has not been passed yet.
    stored_ahead: bool,
    stored_ended: bool,
    /// The next own write in the direction; looked for again when `own_ahead` is false.
    own: Option<(Vec<u8>, Written)>,
    own_ahead: bool,
    shown: Shown,
}

impl<I> std::fmt::Debug for OverlayIter<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = self.over.as_ref().map(|over| &over.range);
        f.debug_struct("OverlayIter").field("range", &range).finish_non_exhaustive()
    }
}

impl<I: StoreIter> OverlayIter<I> {
    /// The store's cursor alone.
    pub(super) fn plain(stored: I) -> OverlayIter<I> {
        OverlayIter { stored, over: None }
    }

    /// `stored`, which goes over `range`, with what the transaction wrote into that range.
    pub(crate) fn within(stored: I, within: Within, range: ReadRange) -> OverlayIter<I> {
        let over = Over {
            within,
            range,
            noted: None,
            direction: None,
            stored_ahead: false,
            stored_ended: false,
            own: None,
            own_ahead: false,
            shown: Shown::Nothing,
        };
        OverlayIter { stored, over: Some(Box::new(over)) }
    }

    fn step(&mut self, direction: Direction) -> Result<bool> {
        let OverlayIter { stored, over } = self;
        let forward = direction == Direction::Forward;
        let Some(over) = over else { return if forward { stored.next() } else { stored.prev() } };
        if *over.direction.get_or_insert(direction) != direction {
            return Err(Error::invalid(
                "a scan inside of a transaction goes in one direction; start another",
            ));
        }
        loop {
            if !over.stored_ahead && !over.stored_ended {
                over.stored_ahead = if forward { stored.next()? } else { stored.prev()? };
                over.stored_ended = !over.stored_ahead;
            }
            if !over.own_ahead {
                over.own = over.next_own(forward);
                over.own_ahead = true;
            }
            over.shown = match &over.own {
                None if over.stored_ahead => Shown::Stored,
                None => Shown::Nothing,
                Some(_) if !over.stored_ahead => Shown::Own,
                Some((own, _)) if (own.as_slice() <= stored.key()) == forward || own == stored.key() => {
                    // A stored value of the same key is hidden.
                    over.stored_ahead &= own != stored.key();
                    Shown::Own
                }
                Some(_) => Shown::Stored,
            };
            match over.shown {
                Shown::Nothing => {
                    over.note(forward, None);
                    return Ok(false);
                }
                Shown::Stored => {
                    over.stored_ahead = false;
                    over.note(forward, Some(stored.key()));
                    return Ok(true);
                }
                Shown::Own => {
                    over.own_ahead = false;
                    if let Some((key, Some(_))) = over.own.clone() {
                        over.note(forward, Some(&key));
                        return Ok(true);
                    }
                }
            }
        }
    }
}

impl Over {
    /// The own write after the one that `own` holds.
    fn next_own(&self, forward: bool) -> Option<(Vec<u8>, Written)> {
        let last = self.own.as_ref().map(|(key, _)| key.as_slice());
        let (mut from, mut to) = (
            Bound::Included(self.range.start.as_slice()),
            self.range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        );
        match (last, forward) {
            (Some(last), true) => from = Bound::Excluded(last),
            (Some(last), false) => to = Bound::Excluded(last),
            (None, _) => {}
        }
        self.within.overlay.beyond(self.range.keyspace, (from, to), forward)
    }

    /// Notes that everything up to `key`, or to the end, has been seen.
    fn note(&mut self, forward: bool, key: Option<&[u8]>) {
        let Some(reads) = &self.within.reads else { return };
        let mut seen = self.range.clone();
        match key {
            None => {}
            Some(key) if forward => {
                let mut end = key.to_vec();
                end.push(0);
                seen.end = Some(end);
            }
            Some(key) => seen.start = key.to_vec(),
        }
        let mut reads = reads.lock();
        match self.noted.and_then(|noted| reads.ranges.get_mut(noted)) {
            Some(range) => *range = seen,
            None => {
                self.noted = Some(reads.ranges.len());
                reads.ranges.push(seen);
            }
        }
    }
}

impl<I: StoreIter> StoreIter for OverlayIter<I> {
    fn next(&mut self) -> Result<bool> {
        self.step(Direction::Forward)
    }

    fn prev(&mut self) -> Result<bool> {
        self.step(Direction::Backward)
    }

    fn key(&self) -> &[u8] {
        match self.over.as_deref() {
            None => self.stored.key(),
            Some(Over { shown: Shown::Stored, .. }) => self.stored.key(),
            Some(Over { shown: Shown::Own, own: Some((key, _)), .. }) => key,
            Some(_) => &[],
        }
    }

    fn value(&self) -> &[u8] {
        match self.over.as_deref() {
            None => self.stored.value(),
            Some(Over { shown: Shown::Stored, .. }) => self.stored.value(),
            Some(Over { shown: Shown::Own, own: Some((_, Some(value))), .. }) => value,
            Some(_) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::map_store::{MapBatch, MapStore};
    use super::super::store::{Store, StoreBatch};
    use super::*;

    const KEYSPACE: KeyspaceId = KeyspaceId(5);

    /// Keys from a small set, so that both sides meet; an odd value of an own write stands for a removal.
    fn entries() -> impl Strategy<Value = BTreeMap<Vec<u8>, u8>> {
        prop::collection::btree_map(prop::collection::vec(0u8..3, 0..3), any::<u8>(), 0..8)
    }

    fn bound() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0u8..3, 0..3)
    }

    proptest! {
        #[test]
        fn a_scan_shows_the_store_with_the_writes_laid_over_it(
            stored in entries(),
            own in entries(),
            bounds in (bound(), prop::option::of(bound())),
            steps in 0usize..12,
            forward: bool,
        ) {
            let (start, end) = bounds;
            let end = end.filter(|end| *end >= start);
            let store = MapStore::new();
            let mut batch = MapBatch::default();
            stored.iter().for_each(|(key, value)| batch.put(KEYSPACE, key, &[*value]).unwrap());
            store.apply(&batch, ()).unwrap();
            let mut expected = stored.clone();
            let mut overlay = Overlay::default();
            for (key, value) in &own {
                let written = (value % 2 == 0).then_some(*value);
                overlay.set(KEYSPACE, key, written.map(|value| Arc::from([value])));
                match written {
                    Some(value) => drop(expected.insert(key.clone(), value)),
                    None => drop(expected.remove(key)),
                }
            }
            expected.retain(|key, _| *key >= start && end.as_ref().is_none_or(|end| key < end));
            let mut expected: Vec<(Vec<u8>, Vec<u8>)> =
                expected.into_iter().map(|(key, value)| (key, vec![value])).collect();
            if !forward {
                expected.reverse();
            }

            let reads = SharedReads::default();
            let within = Within { overlay: Arc::new(overlay), reads: Some(Arc::clone(&reads)) };
            let range = ReadRange { keyspace: KEYSPACE, start: start.clone(), end: end.clone() };
            let cursor = store.scan(&store.snapshot().unwrap(), KEYSPACE, &start, end.as_deref()).unwrap();
            let mut iter = OverlayIter::within(cursor, within, range.clone());
            let mut shown = Vec::new();
            let mut ended = false;
            for _ in 0..steps {
                if !(if forward { iter.next() } else { iter.prev() }).unwrap() {
                    ended = true;
                    break;
                }
                shown.push((iter.key().to_vec(), iter.value().to_vec()));
            }
            prop_assert_eq!(&shown[..], &expected[..shown.len()]);
            prop_assert_eq!(ended, steps > expected.len());
            // What is noted is exactly what has been gone over.
            let noted = reads.lock().ranges.clone();
            let seen = match shown.last() {
                _ if ended => vec![range],
                None => vec![],
                Some((last, _)) if forward => {
                    vec![ReadRange { end: Some([last.as_slice(), &[0]].concat()), ..range }]
                }
                Some((last, _)) => vec![ReadRange { start: last.clone(), ..range }],
            };
            prop_assert_eq!(noted, seen);
        }
    }
}
