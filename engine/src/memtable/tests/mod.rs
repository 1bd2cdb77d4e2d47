//! Tests of the memtable as a whole: against a sorted map, under threads, and of what it promises in numbers.

mod concurrent;
mod measure;
mod model;
mod numbers;
#[cfg(planted_fault)]
mod planted_fault;

use std::sync::Arc;

use alluvium_base::checksum::key_hash;
use alluvium_base::key::{Kind, Trailer};

use super::Memtable;

fn put<const N: usize>(memtable: &Arc<Memtable<N>>, key: &[u8], seqno: u64, value: &[u8]) {
    memtable.insert(key, key_hash(key), Trailer::new(seqno, Kind::Put), value);
}

fn get<'m, const N: usize>(
    memtable: &'m Memtable<N>,
    key: &[u8],
    snapshot: u64,
) -> Option<(Trailer, &'m [u8])> {
    memtable.get(key, key_hash(key), snapshot)
}

#[test]
fn a_snapshot_sees_the_newest_version_up_to_it() {
    let memtable = Memtable::new(1 << 20);
    assert!(memtable.is_empty());
    put(&memtable, b"key", 3, b"three");
    put(&memtable, b"key", 5, b"five");
    assert_eq!(get(&memtable, b"key", 2), None);
    assert_eq!(get(&memtable, b"key", 4), Some((Trailer::new(3, Kind::Put), b"three".as_slice())));
    assert_eq!(get(&memtable, b"key", 5), Some((Trailer::new(5, Kind::Put), b"five".as_slice())));
    assert_eq!(get(&memtable, b"ke", 9), None);
    assert_eq!(get(&memtable, b"key\0", 9), None);
    assert_eq!(memtable.entries(), 2);
    assert!(!memtable.is_empty());
}

#[test]
fn versions_of_a_key_are_found_across_leaves() {
    let memtable: Arc<Memtable<4>> = Memtable::with_leaves(1 << 20);
    for seqno in (1..=100).rev().chain(101..=200) {
        put(&memtable, b"one", seqno, &seqno.to_be_bytes());
        put(&memtable, b"two", seqno + 1000, &seqno.to_be_bytes());
    }
    for seqno in 1..=200u64 {
        let value = get(&memtable, b"one", seqno).map(|(trailer, value)| (trailer.seqno(), value));
        assert_eq!(value, Some((seqno, seqno.to_be_bytes().as_slice())));
    }
    assert_eq!(get(&memtable, b"one", 0), None);
    assert_eq!(get(&memtable, b"two", 1000), None);
}

#[test]
fn range_tombstones_count_as_content() {
    let memtable = Memtable::new(1 << 20);
    assert!(!memtable.has_range_tombstones());
    assert!(memtable.range_tombstones().is_empty());
    let tombstone = super::RangeTombstone { start: b"a".to_vec(), end: b"m".to_vec(), seqno: 4 };
    memtable.add_range_tombstone(tombstone);
    assert!(memtable.has_range_tombstones());
    assert!(!memtable.is_empty());
    assert_eq!(memtable.entries(), 0);
    assert_eq!(memtable.newest_tombstone_covering(b"b", 9), Some(4));
    assert_eq!(memtable.newest_tombstone_covering(b"b", 3), None);
    assert_eq!(memtable.range_tombstones().newest_covering(b"b", 9), Some(4));
}
