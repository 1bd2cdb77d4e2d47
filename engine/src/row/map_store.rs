//! A store that is a sorted map in memory: what the row layer is tested over, and small enough to be believed.
//!
//! A snapshot is a copy of the map (shared until the next write). Nothing survives the process.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Bound, Deref};
use std::path::PathBuf;
use std::sync::Arc;

use alluvium_base::clock::SystemClock;
use alluvium_base::key::{KeyspaceId, Kind};
use alluvium_base::sync::{Mutex, RwLock, WaitStatistics};
use alluvium_base::{Error, ErrorKind, Result};

use super::latches::Latches;
use super::premise::{Premise, ReadRange};
use super::store::{CatalogChange, Store, StoreBatch, StoreIter};

type Map = BTreeMap<(KeyspaceId, Vec<u8>), Arc<[u8]>>;
/// Kind, keyspace, key, value.
type Operation = (Kind, KeyspaceId, Vec<u8>, Vec<u8>);

/// A [`Store`] in memory, for tests of code that works on tables.
///
/// It keeps watch over the contract of delete-once: a key that is removed once must exist, and in a keyspace where keys
/// are removed once no existing key may be put.
#[derive(Clone, Debug)]
pub struct MapStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    data: RwLock<Data>,
    catalog: Mutex<Catalog>,
    latches: Latches,
}

#[derive(Debug, Default)]
struct Data {
    map: Arc<Map>,
    /// Keyspaces in which a key has been removed once.
    once: HashSet<KeyspaceId>,
}

#[derive(Debug, Default)]
struct Catalog {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    last_keyspace: u32,
}

impl Default for MapStore {
    fn default() -> MapStore {
        MapStore(Arc::new(Shared {
            data: RwLock::default(),
            catalog: Mutex::default(),
            latches: Latches::new(&SystemClock::shared(), &Arc::new(WaitStatistics::default())),
        }))
    }
}

impl MapStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> MapStore {
        MapStore::default()
    }
}

/// A value of a [`MapStore`].
#[derive(Clone, Debug)]
pub struct MapValue(Arc<[u8]>);

impl Deref for MapValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A snapshot of a [`MapStore`].
#[derive(Clone, Debug)]
pub struct MapSnapshot(Arc<Map>);

/// A batch for a [`MapStore`].
#[derive(Clone, Debug, Default)]
pub struct MapBatch(Vec<Operation>);

impl StoreBatch for MapBatch {
    fn put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.push((Kind::Put, keyspace, key.to_vec(), value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, keyspace: KeyspaceId, key: &[u8]) -> Result<()> {
        self.0.push((Kind::Delete, keyspace, key.to_vec(), Vec::new()));
        Ok(())
    }

    fn delete_once(&mut self, keyspace: KeyspaceId, key: &[u8]) -> Result<()> {
        self.0.push((Kind::DeleteOnce, keyspace, key.to_vec(), Vec::new()));
        Ok(())
    }
}

/// A cursor over a [`MapStore`].
#[derive(Clone, Debug)]
pub struct MapIter {
    map: Arc<Map>,
    keyspace: KeyspaceId,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    current: Option<(Vec<u8>, MapValue)>,
}

impl MapIter {
    fn step(&mut self, forward: bool) -> bool {
        let current = self.current.take().map(|(key, _)| (self.keyspace, key));
        let (mut start, mut end) = (
            Bound::Included((self.keyspace, self.start.clone())),
            match &self.end {
                Some(end) => Bound::Excluded((self.keyspace, end.clone())),
                None => Bound::Excluded((KeyspaceId(self.keyspace.0 + 1), Vec::new())),
            },
        );
        match (current, forward) {
            (Some(key), true) => start = Bound::Excluded(key),
            (Some(key), false) => end = Bound::Excluded(key),
            (None, _) => {}
        }
        let mut range = self.map.range((start, end));
        let found = if forward { range.next() } else { range.next_back() };
        self.current = found.map(|((_, key), value)| (key.clone(), MapValue(Arc::clone(value))));
        self.current.is_some()
    }
}

impl StoreIter for MapIter {
    fn next(&mut self) -> Result<bool> {
        Ok(self.step(true))
    }

    fn prev(&mut self) -> Result<bool> {
        Ok(self.step(false))
    }

    fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |(key, _)| key)
    }

    fn value(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |(_, value)| value)
    }
}

impl Data {
    fn apply(&mut self, operations: &[Operation]) -> Result<()> {
        self.check(operations)?;
        let map = Arc::make_mut(&mut self.map);
        for (kind, keyspace, key, value) in operations {
            let place = (*keyspace, key.clone());
            match kind {
                Kind::Put => map.insert(place, value.as_slice().into()),
                _ => map.remove(&place),
            };
            if *kind == Kind::DeleteOnce {
                self.once.insert(*keyspace);
            }
        }
        Ok(())
    }

    /// Checks the contract of delete-once before anything is changed.
    fn check(&self, operations: &[Operation]) -> Result<()> {
        let broken =
            |detail: &str, key: &[u8]| Err(Error::corrupt("map store", 0, format!("{detail} {key:02x?}")));
        let mut present: HashMap<(KeyspaceId, &[u8]), bool> = HashMap::new();
        let mut once: HashSet<KeyspaceId> = HashSet::new();
        for (kind, keyspace, key, _) in operations {
            let stored = || self.map.contains_key(&(*keyspace, key.clone()));
            let present = present.entry((*keyspace, key)).or_insert_with(stored);
            match kind {
                Kind::Put if *present && (self.once.contains(keyspace) || once.contains(keyspace)) => {
                    return broken("put without delete-once of", key);
                }
                Kind::DeleteOnce if !*present => return broken("delete-once without put of", key),
                Kind::DeleteOnce => {
                    once.insert(*keyspace);
                }
                _ => {}
            }
            *present = *kind == Kind::Put;
        }
        Ok(())
    }
}

/// Compares the map now with the map then, value by value: each put makes a value of its own. A key that was absent and
/// is absent again counts as untouched.
fn check_premise(now: &Map, premise: &Premise<MapSnapshot>) -> Result<()> {
    let then = &premise.since.0;
    let same = |place: &(KeyspaceId, Vec<u8>)| match (then.get(place), now.get(place)) {
        (Some(then), Some(now)) => Arc::ptr_eq(then, now),
        (then, now) => then.is_none() && now.is_none(),
    };
    let broken = |(keyspace, key): &(KeyspaceId, Vec<u8>)| Err(premise.broken(*keyspace, key));
    if let Some(place) = premise.keys.iter().find(|place| !same(place)) {
        return broken(place);
    }
    for ReadRange { keyspace, start, end } in premise.ranges.iter().filter(|range| !range.is_empty()) {
        let end = end.clone().map_or((KeyspaceId(keyspace.0 + 1), Vec::new()), |end| (*keyspace, end));
        let bounds = (*keyspace, start.clone())..end;
        let mut places = then.range(bounds.clone()).chain(now.range(bounds)).map(|(place, _)| place);
        if let Some(place) = places.find(|place| !same(place)) {
            return broken(place);
        }
    }
    Ok(())
}

impl Store for MapStore {
    type Value = MapValue;
    type Snapshot = MapSnapshot;
    type Iter = MapIter;
    type Batch = MapBatch;
    type Durability = ();
    type Ticket = ();

    fn snapshot(&self) -> Result<MapSnapshot> {
        Ok(MapSnapshot(Arc::clone(&self.0.data.read().map)))
    }

    fn get(&self, at: Option<&MapSnapshot>, keyspace: KeyspaceId, key: &[u8]) -> Result<Option<MapValue>> {
        let place = (keyspace, key.to_vec());
        let value = match at {
            Some(snapshot) => snapshot.0.get(&place).cloned(),
            None => self.0.data.read().map.get(&place).cloned(),
        };
        Ok(value.map(MapValue))
    }

    fn scan(
        &self,
        at: &MapSnapshot,
        keyspace: KeyspaceId,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<MapIter> {
        let (start, end) = (start.to_vec(), end.map(<[u8]>::to_vec));
        Ok(MapIter { map: Arc::clone(&at.0), keyspace, start, end, current: None })
    }

    fn admit(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn apply(&self, batch: &MapBatch, _durability: ()) -> Result<()> {
        self.0.data.write().apply(&batch.0)
    }

    fn apply_if(&self, batch: &MapBatch, premise: &Premise<MapSnapshot>, _durability: ()) -> Result<()> {
        let mut data = self.0.data.write();
        check_premise(&data.map, premise)?;
        data.apply(&batch.0)
    }

    fn check(&self, premise: &Premise<MapSnapshot>) -> Result<()> {
        check_premise(&self.0.data.read().map, premise)
    }

    fn wait(&self, _ticket: ()) -> Result<()> {
        Ok(())
    }

    fn latches(&self) -> &Latches {
        &self.0.latches
    }

    fn catalog_file(&self) -> PathBuf {
        PathBuf::from("catalog")
    }

    fn catalog_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.catalog.lock().entries.get(key).cloned())
    }

    fn catalog_list(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let catalog = self.0.catalog.lock();
        let from = catalog.entries.range(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix));
        Ok(from.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn catalog_change(&self, change: &CatalogChange) -> Result<()> {
        let mut catalog = self.0.catalog.lock();
        if catalog.entries.get(&change.key) != change.expected.as_ref() {
            let what = String::from_utf8_lossy(&change.key).into_owned();
            return Err(ErrorKind::Conflict { what }.into());
        }
        match &change.value {
            Some(value) => catalog.entries.insert(change.key.clone(), value.clone()),
            None => catalog.entries.remove(&change.key),
        };
        let mut data = self.0.data.write();
        Arc::make_mut(&mut data.map).retain(|(keyspace, _), _| !change.dropped.contains(keyspace));
        Ok(())
    }

    fn allocate_keyspaces(&self, count: u32) -> Result<KeyspaceId> {
        let mut catalog = self.0.catalog.lock();
        let first = catalog.last_keyspace + 1;
        catalog.last_keyspace += count;
        Ok(KeyspaceId(first))
    }
}
