//! The leaf protocol under loom: every interleaving and every allowed reordering of a few steps.
//!
//! The list, the leaves and the writer are the production code, with leaves of two entries. Only the skip list is
//! replaced, by an unordered array of addresses: it knows a leaf once it was entered, and orders nothing more than
//! the skip list does (release by the writer, acquire by the reader). Entries carry a [`Witness`](super::shim) that
//! lets loom report any access to an entry's bytes that does not happen after they were written.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p alluvium --lib memtable::loom
//! ```

#![expect(
    unsafe_code,
    reason = "the stand-in for the skip list holds addresses of leaves as the skip list does"
)]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_base::key::{Kind, Seqno, Trailer};
use loom::thread;

use super::arena::{Entry, Probe};
use super::index::LeafIndex;
use super::leaf::Leaf;
use super::list::{self, LeafList};
use super::shim::AtomicPtr;

const ENTRIES: usize = 2;
const LEAVES_MAX: usize = 4;

type List = LeafList<KnownLeaves, ENTRIES>;

/// The stand-in for the skip list.
struct KnownLeaves([AtomicPtr<Leaf<ENTRIES>>; LEAVES_MAX]);

impl Default for KnownLeaves {
    fn default() -> KnownLeaves {
        KnownLeaves(std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())))
    }
}

impl KnownLeaves {
    fn known(&self) -> impl Iterator<Item = &Leaf<ENTRIES>> {
        // SAFETY: leaves live in the arena of the list that owns this index.
        self.0.iter().filter_map(|leaf| unsafe { leaf.load(Ordering::Acquire).as_ref() })
    }
}

impl LeafIndex<ENTRIES> for KnownLeaves {
    fn floor(&self, probe: &Probe<'_>) -> Option<&Leaf<ENTRIES>> {
        self.known().filter(|leaf| leaf.low() <= probe.bound()).max_by_key(|leaf| *leaf.low())
    }

    fn last(&self) -> Option<&Leaf<ENTRIES>> {
        self.known().max_by_key(|leaf| *leaf.low())
    }

    fn insert(&self, leaf: &Leaf<ENTRIES>) {
        let address = ptr::from_ref(leaf).cast_mut();
        let free = self.0.iter().find(|place| place.replace_null(address));
        assert!(free.is_some(), "the model makes more leaves than it has room for");
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(check);
}

fn list_of(keys: &[u8]) -> Arc<List> {
    let list = List::new();
    for &key in keys {
        insert(&list, key);
    }
    Arc::new(list)
}

/// Entry number `key`: its key, sequence number and value can be told from each other.
fn insert(list: &List, key: u8) {
    list.insert(&[0, 0, 0, 1, key], Trailer::new(Seqno::from(key), Kind::Put), &[key, key]);
}

fn assert_found(list: &List, key: u8) {
    let entry = list.get(&[0, 0, 0, 1, key], 100).unwrap_or_else(|| panic!("{key} is lost"));
    assert_eq!(number_of(entry), key);
}

/// The number of a whole entry.
fn number_of(entry: Entry<'_>) -> u8 {
    let number = entry.value()[0];
    assert_eq!(entry.key(), [0, 0, 0, 1, number], "a torn entry");
    assert_eq!(entry.value(), [number, number], "a torn entry");
    assert_eq!(entry.trailer().seqno(), Seqno::from(number), "a torn entry");
    number
}

fn forward(list: &List) -> Vec<u8> {
    let (mut numbers, mut entries) = (Vec::new(), Vec::new());
    let mut cursor = list.copy_at(&Probe::new(b"", Trailer::NEWEST), &mut entries);
    loop {
        numbers.extend(entries.iter().map(|entry| number_of(*entry)));
        match cursor.next {
            Some(next) => cursor = list::copy_leaf(next, &mut entries),
            None => return numbers,
        }
    }
}

fn backward(list: &List) -> Vec<u8> {
    let (mut numbers, mut entries) = (Vec::new(), Vec::new());
    let mut cursor = list.copy_last(&mut entries);
    loop {
        numbers.extend(entries.iter().rev().map(|entry| number_of(*entry)));
        match list::copy_left_of(cursor.leaf, &mut entries) {
            Some(left) => cursor = left,
            None => return numbers,
        }
    }
}

/// In order, and with everything that was there before.
fn assert_walk(numbers: &[u8], before: &[u8]) {
    assert!(numbers.is_sorted_by(|a, b| a < b), "out of order: {numbers:?}");
    for key in before {
        assert!(numbers.contains(key), "{key} is missing from {numbers:?}");
    }
}

/// Inserts `new` on threads of their own into a list of `before`, runs `read` beside them, and checks the outcome.
fn beside(before: &'static [u8], new: &'static [u8], read: fn(&List)) {
    model(move || {
        let list = list_of(before);
        let writers: Vec<_> = new
            .iter()
            .map(|&key| {
                let list = Arc::clone(&list);
                thread::spawn(move || insert(&list, key))
            })
            .collect();
        read(&list);
        for writer in writers {
            writer.join().unwrap();
        }
        let mut all = [before, new].concat();
        all.sort_unstable();
        assert_eq!(forward(&list), all);
        assert_eq!(backward(&list), all.into_iter().rev().collect::<Vec<u8>>());
    });
}

#[test]
fn insert_beside_insert() {
    beside(&[], &[5, 3], |_| ());
}

#[test]
fn insert_beside_insert_that_splits() {
    beside(&[5], &[3, 7], |_| ());
}

#[test]
fn split_beside_insert() {
    beside(&[3, 5], &[4, 6], |_| ());
}

#[test]
fn split_beside_insert_into_two_leaves() {
    beside(&[3, 5, 7], &[4, 8], |_| ());
}

#[test]
fn get_beside_insert() {
    beside(&[5], &[3], |list| assert_found(list, 5));
}

#[test]
fn walk_beside_insert() {
    beside(&[5], &[3], |list| assert_walk(&forward(list), &[5]));
}

#[test]
fn get_beside_split() {
    beside(&[3, 5], &[4], |list| assert_found(list, 5));
}

#[test]
fn get_of_what_stays_beside_split() {
    beside(&[3, 5], &[4], |list| assert_found(list, 3));
}

#[test]
fn get_beside_split_of_an_inner_leaf() {
    beside(&[3, 5, 7], &[4], |list| assert_found(list, 5));
}

#[test]
fn walk_beside_split() {
    beside(&[3, 5], &[4], |list| assert_walk(&forward(list), &[3, 5]));
}

fn assert_walk_back(list: &List, before: &[u8]) {
    let mut numbers = backward(list);
    numbers.reverse();
    assert_walk(&numbers, before);
}

#[test]
fn walk_back_beside_split() {
    beside(&[3, 5], &[4], |list| assert_walk_back(list, &[3, 5]));
}

#[test]
fn walk_back_beside_split_of_an_inner_leaf() {
    beside(&[3, 5, 7], &[4], |list| assert_walk_back(list, &[3, 5, 7]));
}

#[test]
fn a_published_insert_is_read() {
    model(|| {
        let list = list_of(&[3, 5]);
        let published = Arc::new(loom::sync::atomic::AtomicU64::new(0));
        let writer = {
            let (list, published) = (Arc::clone(&list), Arc::clone(&published));
            thread::spawn(move || {
                insert(&list, 4);
                published.store(4, Ordering::Release);
            })
        };
        if published.load(Ordering::Acquire) == 4 {
            assert_found(&list, 4);
        }
        writer.join().unwrap();
    });
}
