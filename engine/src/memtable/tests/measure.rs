//! What the memtable costs, beside a skip list of single entries. Not a test of anything: run it by hand.
//!
//! ```text
//! cargo test --release -p alluvium --lib memtable::tests::measure -- --ignored --nocapture
//! ```

use std::cmp::Reverse;
use std::hint::black_box;

use alluvium_base::checksum::key_hash;
use alluvium_base::clock::{Clock, SystemClock};
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{KeyspaceId, Kind, Trailer};
use alluvium_base::random::Random;
use crossbeam_skiplist::SkipMap;

use super::Memtable;

const ENTRIES: usize = 600_000;
const ROUNDS: usize = 5;
const VALUE: [u8; 100] = [7; 100];

fn keys(seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let key = |random: &mut Random| {
        let mut key = [0; 16];
        random.fill(&mut key);
        KeyspaceId(1).full_key(&key)
    };
    (0..ENTRIES).map(|_| key(&mut random)).collect()
}

/// Full key and trailer, as the skip list of entries sorts them.
type Place = (Box<[u8]>, Reverse<u64>);

/// Collects nanoseconds per entry by what was done, and prints medians.
struct Report {
    clock: std::sync::Arc<dyn Clock>,
    rows: Vec<(&'static str, Vec<f64>)>,
}

impl Report {
    fn time<T>(&mut self, what: &'static str, operations: usize, run: impl FnOnce() -> T) -> T {
        let start = self.clock.monotonic_nanos();
        let result = run();
        let nanos = (self.clock.monotonic_nanos() - start) as f64 / operations as f64;
        match self.rows.iter_mut().find(|(name, _)| *name == what) {
            Some((_, all)) => all.push(nanos),
            None => self.rows.push((what, vec![nanos])),
        }
        result
    }

    fn print(&mut self) {
        for (what, all) in &mut self.rows {
            all.sort_by(f64::total_cmp);
            println!("{what:38} {:8.1} ns (best {:.1})", all[all.len() / 2], all[0]);
        }
    }
}

fn leaves(report: &mut Report, keys: &[Vec<u8>], order: &[Vec<u8>], missing: &[Vec<u8>]) {
    let memtable = Memtable::new(ENTRIES * 170);
    report.time("leaves: insert", ENTRIES, || {
        for (seqno, key) in (1..).zip(keys) {
            memtable.insert(key, key_hash(key), Trailer::new(seqno, Kind::Put), &VALUE);
        }
    });
    let hits = report.time("leaves: get", ENTRIES, || {
        order.iter().filter(|key| memtable.get(key, key_hash(key), 1 << 40).is_some()).count()
    });
    assert_eq!(hits, ENTRIES);
    let hits = report.time("leaves: get of missing", ENTRIES, || {
        missing.iter().filter(|key| memtable.get(key, key_hash(key), 1 << 40).is_some()).count()
    });
    assert_eq!(hits, 0);
    report.time("leaves: seek and 10 next", ENTRIES / 10, || {
        for key in order.iter().step_by(10) {
            let mut iterator = memtable.iter();
            iterator.seek(key, Trailer::NEWEST).unwrap();
            for _ in 0..10 {
                if iterator.valid() {
                    black_box(iterator.key());
                    iterator.next().unwrap();
                }
            }
        }
    });
    let mut iterator = memtable.iter();
    report.time("leaves: iterate", ENTRIES, || {
        iterator.seek_to_first().unwrap();
        while iterator.valid() {
            black_box(iterator.key());
            iterator.next().unwrap();
        }
    });
    report.time("leaves: iterate backwards", ENTRIES, || {
        iterator.seek_to_last().unwrap();
        while iterator.valid() {
            black_box(iterator.key());
            iterator.prev().unwrap();
        }
    });
    let sum = report.time("leaves: iterate and read all bytes", ENTRIES, || {
        let mut sum = 0u64;
        iterator.seek_to_first().unwrap();
        while iterator.valid() {
            sum += iterator.key().iter().chain(iterator.value()).map(|&byte| u64::from(byte)).sum::<u64>();
            iterator.next().unwrap();
        }
        sum
    });
    black_box(sum);
    println!("leaves: {} bytes per entry", memtable.memory_bytes() / ENTRIES);
    drop(iterator);
    report.time("leaves: drop", ENTRIES, || drop(memtable));
}

fn entries(report: &mut Report, keys: &[Vec<u8>], order: &[Vec<u8>]) {
    let map: SkipMap<Place, Box<[u8]>> = SkipMap::new();
    report.time("entries: insert", ENTRIES, || {
        for (seqno, key) in (1..).zip(keys) {
            map.get_or_insert((key.as_slice().into(), Reverse(seqno)), VALUE.as_slice().into());
        }
    });
    let hits = report.time("entries: get", ENTRIES, || {
        let newest = |key: &[u8]| {
            let entry = map.lower_bound(std::ops::Bound::Included(&(key.into(), Reverse(1 << 40))))?;
            (*entry.key().0 == *key).then_some(())
        };
        order.iter().filter(|key| newest(key).is_some()).count()
    });
    assert_eq!(hits, ENTRIES);
    report.time("entries: iterate", ENTRIES, || {
        for entry in &map {
            black_box(&*entry.key().0);
        }
    });
    report.time("entries: drop", ENTRIES, || drop(map));
}

fn sorted_inserts(report: &mut Report, keys: &[Vec<u8>]) {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    let memtable = Memtable::new(ENTRIES * 170);
    report.time("leaves: insert ascending", ENTRIES, || {
        for (seqno, key) in (1..).zip(&keys) {
            memtable.insert(key, key_hash(key), Trailer::new(seqno, Kind::Put), &VALUE);
        }
    });
}

fn two_writers(report: &mut Report, keys: &[Vec<u8>]) {
    let memtable = Memtable::new(ENTRIES * 170);
    report.time("leaves: insert by two threads", ENTRIES, || {
        std::thread::scope(|scope| {
            for half in keys.chunks(ENTRIES / 2) {
                let memtable = &memtable;
                scope.spawn(move || {
                    for (seqno, key) in (1..).zip(half) {
                        memtable.insert(key, key_hash(key), Trailer::new(seqno, Kind::Put), &VALUE);
                    }
                });
            }
        });
    });
}

/// Two readers of the same few keys: whatever they write to is fought over.
fn two_hot_readers(report: &mut Report, keys: &[Vec<u8>]) {
    let memtable = Memtable::new(ENTRIES * 170);
    for (seqno, key) in (1..).zip(keys) {
        memtable.insert(key, key_hash(key), Trailer::new(seqno, Kind::Put), &VALUE);
    }
    report.time("leaves: get of 8 hot keys, two threads", ENTRIES, || {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for key in keys.iter().take(8).cycle().take(ENTRIES) {
                        black_box(memtable.get(key, key_hash(key), 1 << 40));
                    }
                });
            }
        });
    });
}

#[test]
#[ignore = "a measurement: minutes in debug builds, and its figures mean nothing there"]
fn costs_beside_a_skip_list_of_entries() {
    let (keys, missing) = (keys(1), keys(2));
    let mut order = keys.clone();
    let mut random = Random::new(3);
    for at in (1..order.len()).rev() {
        order.swap(at, random.index(at + 1));
    }
    let mut report = Report { clock: SystemClock::shared(), rows: Vec::new() };
    for _ in 0..ROUNDS {
        leaves(&mut report, &keys, &order, &missing);
        entries(&mut report, &keys, &order);
        sorted_inserts(&mut report, &keys);
        two_writers(&mut report, &keys);
        two_hot_readers(&mut report, &keys);
    }
    report.print();
}
