//! The memtable against a `BTreeMap`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use alluvium_base::checksum::key_hash;
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{Kind, Trailer};
use proptest::prelude::*;

use super::{Memtable, get};

type Place = (Vec<u8>, Reverse<Trailer>);
type Model = BTreeMap<Place, Vec<u8>>;

/// Keys that tie in their heads, are prefixes of each other, cross keyspaces, or lie far apart.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => (0u32..3, 0u32..200).prop_map(|(keyspace, n)| [&keyspace.to_be_bytes()[..], format!("{n:016}").as_bytes()].concat()),
        2 => prop::collection::vec(0u8..2, 0..6),
        2 => (0usize..40, 0u8..3).prop_map(|(len, last)| [vec![7; len], vec![last]].concat()),
        1 => prop::collection::vec(any::<u8>(), 0..30),
    ]
}

#[derive(Clone, Debug)]
enum Move {
    First,
    Last,
    Seek(Vec<u8>, u64),
    SeekBefore(Vec<u8>, u64),
    Next,
    Prev,
}

fn movement() -> impl Strategy<Value = Move> {
    prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        4 => (key(), 0u64..400).prop_map(|(key, seqno)| Move::Seek(key, seqno)),
        4 => (key(), 0u64..400).prop_map(|(key, seqno)| Move::SeekBefore(key, seqno)),
        20 => Just(Move::Next),
        20 => Just(Move::Prev),
    ]
}

/// Values tell which entry they belong to.
fn value_of(key: &[u8], trailer: Trailer) -> Vec<u8> {
    [&trailer.0.to_be_bytes()[..], key].concat()
}

fn fill<const N: usize>(memtable: &Memtable<N>, keys: &[Vec<u8>], model: &mut Model) {
    for (seqno, key) in (model.len() as u64 + 1..).zip(keys) {
        let kind = if seqno % 5 == 0 { Kind::Delete } else { Kind::Put };
        let trailer = Trailer::new(seqno, kind);
        let value = if kind == Kind::Put { value_of(key, trailer) } else { Vec::new() };
        memtable.insert(key, key_hash(key), trailer, &value);
        model.insert((key.clone(), Reverse(trailer)), value);
    }
}

fn model_get<'m>(model: &'m Model, key: &[u8], snapshot: u64) -> Option<(Trailer, &'m [u8])> {
    let from = (key.to_vec(), Reverse(Trailer::at_snapshot(snapshot)));
    let ((found, Reverse(trailer)), value) = model.range(from..).next()?;
    (found == key).then_some((*trailer, value.as_slice()))
}

fn current(iterator: &impl InternalIterator) -> Option<(Place, Vec<u8>)> {
    iterator
        .valid()
        .then(|| ((iterator.key().to_vec(), Reverse(iterator.trailer())), iterator.value().to_vec()))
}

/// Makes the same moves with an iterator and in the model.
fn walk<const N: usize>(
    memtable: &Arc<Memtable<N>>,
    model: &Model,
    moves: &[Move],
) -> Result<(), TestCaseError> {
    let owned = |entry: (&Place, &Vec<u8>)| (entry.0.clone(), entry.1.clone());
    let mut iterator = memtable.iter();
    prop_assert!(!iterator.valid());
    let mut expected: Option<(Place, Vec<u8>)> = None;
    for movement in moves {
        match movement {
            Move::First => {
                iterator.seek_to_first()?;
                expected = model.iter().next().map(owned);
            }
            Move::Last => {
                iterator.seek_to_last()?;
                expected = model.iter().next_back().map(owned);
            }
            Move::Seek(key, seqno) => {
                let trailer = Trailer::at_snapshot(*seqno);
                iterator.seek(key, trailer)?;
                expected = model.range((key.clone(), Reverse(trailer))..).next().map(owned);
            }
            Move::SeekBefore(key, seqno) => {
                let trailer = Trailer::at_snapshot(*seqno);
                iterator.seek_before(key, trailer)?;
                expected = model.range(..(key.clone(), Reverse(trailer))).next_back().map(owned);
            }
            Move::Next => {
                let Some((place, _)) = &expected else { continue };
                iterator.next()?;
                let after = (std::ops::Bound::Excluded(place.clone()), std::ops::Bound::Unbounded);
                expected = model.range(after).next().map(owned);
            }
            Move::Prev => {
                let Some((place, _)) = &expected else { continue };
                iterator.prev()?;
                expected = model.range(..place.clone()).next_back().map(owned);
            }
        }
        prop_assert_eq!(current(&iterator), expected.clone(), "after {:?}", movement);
    }
    Ok(())
}

/// Fills a memtable in two rounds and compares everything after each, with moves by a fresh iterator.
fn agrees<const N: usize>(
    rounds: [&[Vec<u8>]; 2],
    probes: &[(Vec<u8>, u64)],
    moves: &[Move],
) -> Result<(), TestCaseError> {
    let memtable: Arc<Memtable<N>> = Memtable::with_leaves(1 << 16);
    let mut model = Model::new();
    for keys in rounds {
        fill(&memtable, keys, &mut model);
        prop_assert_eq!(memtable.entries(), model.len() as u64);
        for (key, snapshot) in probes {
            prop_assert_eq!(get(&memtable, key, *snapshot), model_get(&model, key, *snapshot));
        }
        for key in keys {
            for snapshot in [0, model.len() as u64 / 2, model.len() as u64] {
                prop_assert_eq!(get(&memtable, key, snapshot), model_get(&model, key, snapshot));
            }
        }
        walk(&memtable, &model, moves)?;
    }
    Ok(())
}

/// Keys in the order in which they are inserted: as drawn, ascending, or descending.
fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
    (prop::collection::vec(key(), 0..300), 0..3).prop_map(|(mut keys, order)| {
        match order {
            1 => keys.sort(),
            2 => keys.sort_by(|a, b| b.cmp(a)),
            _ => {}
        }
        keys
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn small_leaves_answer_like_a_sorted_map(
        first in keys(),
        second in keys(),
        probes in prop::collection::vec((key(), 0u64..600), 20),
        moves in prop::collection::vec(movement(), 200),
    ) {
        agrees::<2>([&first, &second], &probes, &moves)?;
        agrees::<5>([&first, &second], &probes, &moves)?;
    }

    #[test]
    fn leaves_of_full_size_answer_like_a_sorted_map(
        first in keys(),
        second in keys(),
        probes in prop::collection::vec((key(), 0u64..600), 20),
        moves in prop::collection::vec(movement(), 200),
    ) {
        agrees::<{ crate::memtable::LEAF_ENTRIES }>([&first, &second], &probes, &moves)?;
    }
}

#[test]
fn walking_to_the_end_and_back_visits_everything() {
    let memtable: Arc<Memtable<8>> = Memtable::with_leaves(1 << 16);
    let mut model = Model::new();
    let keys: Vec<Vec<u8>> = (0..1000u64).map(|n| (n * 7919 % 1000).to_be_bytes().to_vec()).collect();
    fill(&memtable, &keys, &mut model);
    let mut iterator = memtable.iter();
    iterator.seek_to_first().unwrap();
    for ((key, Reverse(trailer)), value) in &model {
        assert_eq!((iterator.key(), iterator.trailer(), iterator.value()), (&key[..], *trailer, &value[..]));
        iterator.next().unwrap();
    }
    assert!(!iterator.valid());
    iterator.seek_to_last().unwrap();
    for ((key, Reverse(trailer)), value) in model.iter().rev() {
        assert_eq!((iterator.key(), iterator.trailer(), iterator.value()), (&key[..], *trailer, &value[..]));
        iterator.prev().unwrap();
    }
    assert!(!iterator.valid());
}

#[test]
fn an_iterator_outlives_every_other_owner() {
    let memtable = Memtable::new(1 << 16);
    super::put(&memtable, b"key", 1, b"value");
    let mut iterator = memtable.iter();
    drop(memtable);
    iterator.seek_to_first().unwrap();
    assert_eq!((iterator.key(), iterator.value()), (b"key".as_slice(), b"value".as_slice()));
}

#[test]
fn nothing_is_found_in_an_empty_memtable() {
    let memtable = Memtable::new(0);
    let mut iterator = memtable.iter();
    iterator.seek_to_first().unwrap();
    assert!(!iterator.valid());
    iterator.seek_to_last().unwrap();
    assert!(!iterator.valid());
    iterator.seek(b"a", Trailer::NEWEST).unwrap();
    assert!(!iterator.valid());
    iterator.seek_before(b"a", Trailer::NEWEST).unwrap();
    assert!(!iterator.valid());
    assert_eq!(get(&memtable, b"", 1), None);
}
