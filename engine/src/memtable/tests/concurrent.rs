//! Many threads at once: nothing is lost, nothing is torn, nothing goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use alluvium_base::checksum::key_hash;
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{Kind, Trailer};
use alluvium_base::random::Random;

use super::{Memtable, get, put};

const WRITERS: u64 = 8;

/// The `n`-th key of writer `writer`; `spread` puts neighbours far apart.
fn key(writer: u64, n: u64, spread: bool) -> Vec<u8> {
    let number = n * WRITERS + writer;
    let number = if spread { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { number };
    [&1u32.to_be_bytes()[..], format!("{number:020}").as_bytes()].concat()
}

/// A value that vouches for its key and trailer.
fn value(key: &[u8], seqno: u64) -> [u8; 16] {
    let mut value = [0; 16];
    let (hash, number) = value.split_at_mut(8);
    hash.copy_from_slice(&(key_hash(key) ^ seqno).to_le_bytes());
    number.copy_from_slice(&seqno.to_le_bytes());
    value
}

fn insert_all<const N: usize>(per_writer: u64, spread: bool) -> Arc<Memtable<N>> {
    let memtable: Arc<Memtable<N>> = Memtable::with_leaves(1 << 20);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let memtable = &memtable;
            scope.spawn(move || {
                for n in 0..per_writer {
                    let key = key(writer, n, spread);
                    let seqno = n * WRITERS + writer;
                    put(memtable, &key, seqno, &value(&key, seqno));
                }
            });
        }
    });
    memtable
}

fn holds_everything<const N: usize>(memtable: &Arc<Memtable<N>>, per_writer: u64, spread: bool) {
    assert_eq!(memtable.entries(), WRITERS * per_writer);
    let mut expected = Vec::new();
    for writer in 0..WRITERS {
        for n in 0..per_writer {
            let key = key(writer, n, spread);
            let seqno = n * WRITERS + writer;
            let found = get(memtable, &key, seqno);
            assert_eq!(found, Some((Trailer::new(seqno, Kind::Put), value(&key, seqno).as_slice())));
            expected.push((key, seqno));
        }
    }
    expected.sort();
    let mut iterator = memtable.iter();
    iterator.seek_to_first().unwrap();
    for (key, seqno) in &expected {
        assert_eq!((iterator.key(), iterator.trailer().seqno()), (&key[..], *seqno));
        iterator.next().unwrap();
    }
    assert!(!iterator.valid());
    iterator.seek_to_last().unwrap();
    for (key, seqno) in expected.iter().rev() {
        assert_eq!((iterator.key(), iterator.trailer().seqno()), (&key[..], *seqno));
        iterator.prev().unwrap();
    }
    assert!(!iterator.valid());
}

#[test]
fn eight_writers_lose_nothing() {
    for spread in [true, false] {
        let memtable = insert_all::<3>(2_000, spread);
        holds_everything(&memtable, 2_000, spread);
        let memtable = insert_all::<{ crate::memtable::LEAF_ENTRIES }>(10_000, spread);
        holds_everything(&memtable, 10_000, spread);
    }
}

/// What each writer has published: versions `1..=published` of its keys are in.
struct Published([AtomicU64; 3]);

/// Writer `writer` overwrites its 50 keys again and again, in random order.
fn overwrite<const N: usize>(memtable: &Arc<Memtable<N>>, published: &Published, writer: u64, versions: u64) {
    let mut random = Random::new(writer);
    for seqno in 1..=versions {
        let key = key(writer, random.below(50), true);
        put(memtable, &key, seqno, &value(&key, seqno));
        published.0[writer as usize].store(seqno, Ordering::Release);
    }
}

fn assert_whole(key: &[u8], trailer: Trailer, found: &[u8]) {
    assert_eq!(found, value(key, trailer.seqno()), "a torn entry");
}

/// Every version published before the walk is on it, in order, whole.
fn walk<const N: usize>(memtable: &Arc<Memtable<N>>, published: &Published, forward: bool) {
    let before: Vec<u64> = published.0.iter().map(|seqno| seqno.load(Ordering::Acquire)).collect();
    let mut seen = vec![0; before.len()];
    let mut last: Option<(Vec<u8>, Trailer)> = None;
    let mut iterator = memtable.iter();
    if forward { iterator.seek_to_first() } else { iterator.seek_to_last() }.unwrap();
    while iterator.valid() {
        assert_whole(iterator.key(), iterator.trailer(), iterator.value());
        if let Some((key, trailer)) = &last {
            let order = alluvium_base::key::compare(key, *trailer, iterator.key(), iterator.trailer());
            assert_eq!(order.is_lt(), forward, "entries out of order");
        }
        last = Some((iterator.key().to_vec(), iterator.trailer()));
        let writer =
            (0..before.len()).find(|&w| (0..50).any(|n| key(w as u64, n, true) == iterator.key())).unwrap();
        seen[writer] += u64::from(iterator.trailer().seqno() <= before[writer]);
        if forward { iterator.next() } else { iterator.prev() }.unwrap();
    }
    assert_eq!(seen, before, "published versions are missing from a walk");
}

/// Reads keys at published snapshots: versions are whole and never go back.
fn read<const N: usize>(
    memtable: &Memtable<N>,
    published: &Published,
    random: &mut Random,
    newest: &mut [u64],
) {
    let (writer, n) = (random.below(3), random.below(50));
    let snapshot = published.0[writer as usize].load(Ordering::Acquire);
    let key = key(writer, n, true);
    let place = (writer * 50 + n) as usize;
    match get(memtable, &key, snapshot) {
        Some((trailer, found)) => {
            assert_whole(&key, trailer, found);
            assert!(trailer.seqno() <= snapshot && trailer.seqno() >= newest[place], "a read went back");
            newest[place] = trailer.seqno();
        }
        None => assert_eq!(newest[place], 0, "a key vanished"),
    }
}

fn readers_beside_writers<const N: usize>(versions: u64) {
    let memtable: Arc<Memtable<N>> = Memtable::with_leaves(1 << 20);
    let published = Published([const { AtomicU64::new(0) }; 3]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for forward in [true, false] {
            let (memtable, published, done) = (&memtable, &published, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    walk(memtable, published, forward);
                }
            });
        }
        for seed in 0..2 {
            let (memtable, published, done) = (&memtable, &published, &done);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let mut newest = vec![0; 150];
                while !done.load(Ordering::Relaxed) {
                    read(memtable, published, &mut random, &mut newest);
                }
            });
        }
        std::thread::scope(|writers| {
            for writer in 0..3 {
                let (memtable, published) = (&memtable, &published);
                writers.spawn(move || overwrite(memtable, published, writer, versions));
            }
        });
        done.store(true, Ordering::Relaxed);
    });
    walk(&memtable, &published, true);
    walk(&memtable, &published, false);
}

#[test]
fn readers_beside_writers_see_whole_and_growing_states() {
    readers_beside_writers::<3>(3_000);
    readers_beside_writers::<{ crate::memtable::LEAF_ENTRIES }>(20_000);
}
