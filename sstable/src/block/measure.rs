//! The measurement behind `design/decisions/0003-block-layout.md`. Run it with
//! `cargo test --release -p alluvium-sstable block::measure -- --ignored --nocapture`.

use std::hint::black_box;

use alluvium_base::clock::{Clock, SystemClock};
use alluvium_base::key::{KEYSPACE_ID_BYTES, KeyspaceId};
use alluvium_base::random::Random;

use super::*;
use crate::compress::Compressor;
use crate::settings::Compression;

const KEYS: usize = 2_000_000;
const BLOCK_BYTES: usize = 4096;
const LOOKUPS: usize = 400_000;

/// 100 bytes that compress to half, as the benchmark driver's values.
fn value(random: &mut Random) -> Vec<u8> {
    let mut value = vec![0; 100];
    random.fill(&mut value[..50]);
    value
}

fn keys(decimal: bool) -> Vec<Vec<u8>> {
    let mut random = Random::new(1);
    let mut keys: Vec<Vec<u8>> = (0..KEYS as u64)
        .map(|n| {
            let mut user = format!("{n:016}").into_bytes();
            if !decimal {
                random.fill(&mut user);
            }
            KeyspaceId(1).full_key(&user)
        })
        .collect();
    keys.sort();
    keys
}

/// All entries in raw blocks of 4 KiB.
fn raw_blocks(keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut blocks, mut builder, mut random) = (Vec::new(), BlockBuilder::new(), Random::new(2));
    for key in keys {
        let value = value(&mut random);
        if !builder.is_empty() && builder.raw_len_with(key, value.len()) > BLOCK_BYTES {
            let mut raw = Vec::new();
            builder.finish(&mut raw);
            blocks.push(raw);
        }
        builder.add(key, Trailer(1), &value);
    }
    blocks
}

/// The same block with its heads stored: beside the suffixes, or in place of their first eight bytes.
fn with_stored_heads(raw: &[u8], in_place: bool) -> Vec<u8> {
    let block = EntryBlock::parse(Buffer::copy_of(raw), Contents::Points).unwrap();
    let area = block.keys.range(&block.bytes, 0).start;
    let area_end = block.keys.range(&block.bytes, block.count() - 1).end;
    let mut out = raw[..area].to_vec();
    out.extend(block.heads.iter().flat_map(|head| head.to_be_bytes()));
    for at in 0..block.count() {
        let suffix = block.suffix(at);
        out.extend_from_slice(if in_place { &suffix[suffix.len().min(8)..] } else { suffix });
    }
    out.extend_from_slice(&raw[area_end..]);
    out
}

fn nanos_each(clock: &dyn Clock, count: usize, work: impl FnMut(usize)) -> f64 {
    let start = clock.monotonic_nanos();
    (0..count).for_each(work);
    (clock.monotonic_nanos() - start) as f64 / count as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A search that halves over heads without branches (as `partition_point` compiles).
fn lower_bound_without_branches(block: &EntryBlock, full_key: &[u8], trailer: Trailer) -> usize {
    let Some(suffix) = full_key.strip_prefix(block.prefix()) else { return 0 };
    let head = key::head(suffix);
    let first = block.heads.partition_point(|&other| other < head);
    if block.heads.get(first) != Some(&head) || block.compare(first, suffix, trailer).is_ge() {
        return first;
    }
    first + 1
}

/// A search that does without heads.
fn lower_bound_by_bytes(block: &EntryBlock, full_key: &[u8], trailer: Trailer) -> usize {
    let Some(suffix) = full_key.strip_prefix(block.prefix()) else { return 0 };
    let (mut low, mut high) = (0, block.count());
    while low < high {
        let middle = low.midpoint(high);
        if block.compare(middle, suffix, trailer).is_lt() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn stored_bytes(blocks: &[Vec<u8>], with: Compression, change: impl Fn(&[u8]) -> Vec<u8>) -> usize {
    let mut compressor = Compressor::new();
    blocks
        .iter()
        .map(|raw| {
            let raw = change(raw);
            compressor.compress(&raw, with).map_or(raw.len(), |body| body.len())
        })
        .sum()
}

#[test]
#[ignore = "a measurement, not a test"]
fn stored_or_computed_heads() {
    let clock = SystemClock::shared();
    for decimal in [false, true] {
        let keys = keys(decimal);
        let blocks = raw_blocks(&keys);
        println!(
            "{} keys, {} blocks of {BLOCK_BYTES}",
            if decimal { "decimal" } else { "random" },
            blocks.len()
        );
        for with in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let computed = stored_bytes(&blocks, with, <[u8]>::to_vec);
            let beside = stored_bytes(&blocks, with, |raw| with_stored_heads(raw, false));
            let in_place = stored_bytes(&blocks, with, |raw| with_stored_heads(raw, true));
            let more = |bytes: usize| (bytes as f64 / computed as f64 - 1.0) * 100.0;
            println!(
                "  {with:?}: heads computed {:.1} bytes per entry, stored beside {:+.1} %, stored in place {:+.1} %",
                computed as f64 / KEYS as f64,
                more(beside),
                more(in_place)
            );
        }
        measure_times(&*clock, &keys, &blocks);
    }
}

fn measure_times(clock: &dyn Clock, keys: &[Vec<u8>], raw: &[Vec<u8>]) {
    let runs =
        |work: &mut dyn FnMut(usize)| median((0..9).map(|_| nanos_each(clock, 10_000, &mut *work)).collect());
    let parse = runs(&mut |at| {
        black_box(EntryBlock::parse(Buffer::copy_of(&raw[at % 300]), Contents::Points).unwrap());
    });
    let copy = runs(&mut |at| {
        black_box(raw[at % 300].clone());
    });
    let blocks: Vec<EntryBlock> =
        raw.iter().map(|raw| EntryBlock::parse(Buffer::copy_of(raw), Contents::Points).unwrap()).collect();
    let heads = runs(&mut |at| {
        let block = &blocks[at % 300];
        let heads: Vec<u64> = (0..block.count()).map(|at| key::head(block.suffix(at))).collect();
        black_box(heads);
    });
    println!(
        "  entering the cache: check and heads {:.0} ns per block, of which heads {heads:.0} ns",
        parse - copy
    );
    let mut first = 0;
    let located: Vec<(usize, usize)> = (blocks.iter().enumerate())
        .flat_map(|(number, block)| {
            let start = first;
            first += block.count();
            (start..first).map(move |at| (number, at))
        })
        .collect();
    let mut random = Random::new(3);
    let lookups: Vec<(usize, usize)> = (0..LOOKUPS).map(|_| located[random.index(located.len())]).collect();
    type Search = fn(&EntryBlock, &[u8], Trailer) -> usize;
    let searches = [
        ("heads, with branches", EntryBlock::lower_bound as Search),
        ("heads, without branches", lower_bound_without_branches),
        ("bytes", lower_bound_by_bytes),
    ];
    let mut times = vec![(Vec::new(), Vec::new()); searches.len()];
    for _ in 0..9 {
        for ((_, search), (cold, hot)) in searches.iter().zip(&mut times) {
            cold.push(nanos_each(clock, LOOKUPS, |at| {
                let (block, key) = lookups[at];
                black_box(search(&blocks[block], &keys[key], Trailer::NEWEST));
            }));
            hot.push(nanos_each(clock, LOOKUPS, |at| {
                let (block, key) = located[lookups[at].1 % 1000];
                black_box(search(&blocks[block], &keys[key], Trailer::NEWEST));
            }));
        }
    }
    for ((name, _), (cold, hot)) in searches.iter().zip(times) {
        let (cold, hot) = (median(cold), median(hot));
        println!("  search by {name}: {cold:.0} ns in 240 MB of blocks, {hot:.0} ns in 30 hot blocks");
    }
    let mut key = Vec::with_capacity(KEYSPACE_ID_BYTES + 16);
    let mut walk = |backward: bool| {
        let time = runs(&mut |at| {
            let block = &blocks[at % 300];
            for at in 0..block.count() {
                let at = if backward { block.count() - 1 - at } else { at };
                block.read_key(at, &mut key);
                black_box((key.len(), block.value(at), block.trailer(at)));
            }
        });
        time / (located.len() as f64 / blocks.len() as f64)
    };
    let (forward, backward) = (walk(false), walk(true));
    println!("  walking: forward {forward:.1}, backward {backward:.1} ns per entry");
}
