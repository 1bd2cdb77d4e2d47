//! What the memtable promises in numbers: telling heads, full leaves, exact accounting.

use std::sync::Arc;

use alluvium_base::key::{KeyspaceId, Trailer};
use alluvium_base::random::Random;

use super::{Memtable, put};
use crate::memtable::LEAF_ENTRIES;
use crate::memtable::arena::{Entry, Probe};
use crate::memtable::leaf::Leaf;

/// Every leaf from left to right with its entries.
fn leaves(memtable: &Memtable) -> Vec<(&Leaf<LEAF_ENTRIES>, Vec<Entry<'_>>)> {
    let mut entries = Vec::new();
    let mut cursor = memtable.list.copy_at(&Probe::new(b"", Trailer::NEWEST), &mut entries);
    let mut leaves = vec![(cursor.leaf, entries.clone())];
    while let Some(next) = cursor.next {
        cursor = super::super::list::copy_leaf(next, &mut entries);
        leaves.push((cursor.leaf, entries.clone()));
    }
    leaves
}

/// Share of neighbours within leaves whose heads differ.
fn distinct_heads(memtable: &Memtable) -> f64 {
    let (mut pairs, mut distinct) = (0, 0);
    for (leaf, entries) in leaves(memtable) {
        let heads: Vec<u64> = leaf.read(|view| Ok((0..entries.len()).map(|at| view.head(at)).collect()));
        pairs += heads.len().saturating_sub(1);
        distinct += heads.windows(2).filter(|pair| pair[0] != pair[1]).count();
    }
    distinct as f64 / pairs as f64
}

fn fill(keys: impl Iterator<Item = Vec<u8>>) -> Arc<Memtable> {
    let memtable = Memtable::new(1 << 20);
    for (seqno, key) in (1..).zip(keys) {
        put(&memtable, &key, seqno, b"value");
    }
    memtable
}

fn random_keys(keyspaces: u64, seed: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(move || {
        let mut key = [0; 16];
        random.fill(&mut key);
        KeyspaceId(random.below(keyspaces) as u32).full_key(&key)
    })
}

/// The driver's keys: sixteen decimal digits.
fn decimal_keys(range: u64, seed: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(move || KeyspaceId(7).full_key(format!("{:016}", random.below(range)).as_bytes()))
}

#[test]
fn heads_of_neighbours_differ() {
    let ascending = |n: usize| (0..n).map(|n| KeyspaceId(7).full_key(format!("{n:016}").as_bytes()));
    for entries in [50, 500, 50_000] {
        let share = distinct_heads(&fill(random_keys(1, 1).take(entries)));
        assert!(share >= 0.99, "random keys, {entries}: {share}");
        let share = distinct_heads(&fill(random_keys(4, 1).take(entries)));
        assert!(share >= 0.99, "random keys in four keyspaces, {entries}: {share}");
        // Drawn from so many that hardly any repeats: versions of one key share their head.
        let share = distinct_heads(&fill(decimal_keys(1_000_000_000, 2).take(entries)));
        assert!(share >= 0.99, "decimal keys, {entries}: {share}");
        let share = distinct_heads(&fill(ascending(entries)));
        assert!(share >= 0.99, "ascending decimal keys, {entries}: {share}");
        let keys: Vec<_> = ascending(entries).collect();
        let share = distinct_heads(&fill(keys.into_iter().rev()));
        assert!(share >= 0.99, "descending decimal keys, {entries}: {share}");
    }
}

#[test]
fn heads_of_neighbours_differ_in_groups_with_long_common_keys() {
    let mut random = Random::new(3);
    let keys = std::iter::repeat_with(move || {
        let (tail, hour) = (random.below(40), random.below(100_000_000));
        KeyspaceId(2).full_key(format!("N{tail:05},a-long-common-part,{hour:08}").as_bytes())
    });
    // Only the leaves across the edge of two groups (here one in fourteen) have heads that say little.
    let share = distinct_heads(&fill(keys.take(50_000)));
    assert!(share >= 0.9, "{share}");
}

fn fill_rate(memtable: &Memtable) -> f64 {
    memtable.entries() as f64 / (leaves(memtable).len() * LEAF_ENTRIES) as f64
}

#[test]
fn ascending_and_descending_inserts_fill_leaves() {
    let keys: Vec<Vec<u8>> = (0..20_000u32).map(|n| n.to_be_bytes().to_vec()).collect();
    let rate = fill_rate(&fill(keys.iter().cloned()));
    assert!(rate >= 0.9, "ascending: {rate}");
    let rate = fill_rate(&fill(keys.iter().rev().cloned()));
    assert!(rate >= 0.9, "descending: {rate}");
    // Many ascending runs in turn, as secondary indexes over a growing column.
    let runs =
        (0..500u32).flat_map(|n| (0..40u32).map(move |run| [run.to_be_bytes(), n.to_be_bytes()].concat()));
    let rate = fill_rate(&fill(runs));
    assert!(rate >= 0.8, "ascending runs: {rate}");
    let rate = fill_rate(&fill(random_keys(1, 5).take(20_000)));
    assert!(rate >= 0.65, "random: {rate}");
}

#[test]
fn memory_is_accounted() {
    let idle = Memtable::new(64 << 20).memory_bytes() - Memtable::new(0).memory_bytes();
    assert_eq!(idle, (64 << 20) / 682 * 8 - 8, "an idle memtable differs in its filter only");
    assert!(Memtable::new(0).memory_bytes() < 16 << 10);

    let memtable = Memtable::new(4 << 20);
    let mut content_bytes = 0;
    for (seqno, key) in (1..).zip(random_keys(1, 9).take(100_000)) {
        put(&memtable, &key, seqno, &[7; 100]);
        content_bytes += key.len() + 100;
    }
    let leaves = leaves(&memtable).len();
    let expected = content_bytes + leaves * (size_of::<Leaf<LEAF_ENTRIES>>() + 100) + (4 << 20) / 85;
    let counted = memtable.memory_bytes();
    assert!(counted >= expected, "{counted} < {expected}");
    assert!(counted < expected + (256 << 10) + (128 << 10), "{counted} > {expected} and one chunk");
}

#[test]
fn large_values_take_no_more_than_their_size_in_pages() {
    const PAGE: usize = 4096;
    let memtable = Memtable::new(0);
    let before = memtable.memory_bytes();
    for n in 0..10u8 {
        put(&memtable, &[n], 1, &vec![n; 3 << 20]);
    }
    let taken = memtable.memory_bytes() - before;
    assert!((10 * (3 << 20)..10 * ((3 << 20) + PAGE) + (8 << 10)).contains(&taken), "{taken}");
}
