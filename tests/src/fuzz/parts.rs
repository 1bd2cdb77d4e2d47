//! Targets for parts of files: records, edits, blocks, filters.
#![expect(clippy::panic, clippy::expect_used, reason = "a target panics if an oracle does not hold")]

use std::path::Path;

use alluvium::Compression;
use alluvium::base::random::Random;
use alluvium::fuzzing::{log, table};
use alluvium::inspect::{DumpItem, LogReader, VersionEdit, dump_log, read_manifest};

use super::files::golden;
use crate::golden::DIRECTORY;

const IDENTITY: u128 = 7;
const ADDRESS: u64 = 1 << 20;

/// The header of a record, of a segment and of the ring, each with its checksum put right.
pub(super) fn log_record(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    log::seal_header(&mut sealed, IDENTITY, ADDRESS);
    if let Some((written, payload_len, durable)) = log::header(&sealed, IDENTITY, ADDRESS) {
        assert!(durable <= ADDRESS, "a record says that what comes after it is durable");
        assert!(payload_len <= 1 << 20, "a payload of {payload_len} bytes");
        let again = log::header(&written, IDENTITY, ADDRESS);
        assert_eq!(again, Some((written, payload_len, durable)), "a header does not round trip");
        assert!(log::header(&written, IDENTITY, ADDRESS + 8).is_none(), "a header holds at another address");
    }
    for ring in [false, true] {
        if let Some(page) = log::header_page(bytes, ring) {
            assert_eq!(log::header_page(&page, ring), Some(page), "a header page does not round trip");
        }
    }
}

pub(super) fn log_record_seeds() -> Vec<Vec<u8>> {
    let fs = golden();
    let starts_of_files = fs.files().into_iter().filter_map(|path| {
        let name = path.to_string_lossy();
        let is_log = name.ends_with(".log") || name.ends_with("ring");
        is_log.then(|| fs.contents(&path).expect("readable"))
    });
    starts_of_files.flat_map(|bytes| [bytes[..96].to_vec(), bytes[4096..4160].to_vec()]).collect()
}

/// Payloads of records, each behind its length: what they do to keys.
pub(super) fn log_payload(bytes: &[u8]) {
    let mut reader = LogReader::new();
    for payload in pieces(bytes) {
        if let Ok(Some(operations)) = reader.operations(1, payload) {
            assert!(operations.len() <= bytes.len(), "more operations than bytes");
            assert!(operations.iter().all(|operation| operation.key.len() >= 4), "a key without a keyspace");
        }
    }
}

/// Cuts `bytes` at lengths of two bytes each.
fn pieces(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let (piece, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        found.push(piece);
        bytes = rest;
    }
    found
}

pub(super) fn log_payload_seeds() -> Vec<Vec<u8>> {
    let (environment, _, _) = alluvium::Environment::simulated(golden().shared(), 1);
    let mut seeds = Vec::new();
    dump_log(&environment, Path::new(DIRECTORY), &mut |item| {
        if let DumpItem::Record(record) = item {
            let mut seed = (record.payload.len() as u16).to_le_bytes().to_vec();
            seed.extend_from_slice(record.payload);
            seeds.push(seed);
        }
        Ok(())
    })
    .expect("a log");
    // A batch in two parts.
    let whole = seeds.first().map(|seed| seed[2..].to_vec()).unwrap_or_default();
    let (first, second) = whole.split_at(whole.len() / 2);
    let part =
        |kind: u8, piece: &[u8]| [&(piece.len() as u16 + 2).to_le_bytes()[..], &[kind, 5], piece].concat();
    seeds.push([part(0xf0, first), part(0xf1, second)].concat());
    seeds.truncate(24);
    seeds
}

/// One edit of the manifest.
pub(super) fn manifest_edit(bytes: &[u8]) {
    let Ok(edit) = VersionEdit::decode(bytes, Path::new("MANIFEST"), 0) else { return };
    let mut written = Vec::new();
    edit.encode(&mut written);
    let again = VersionEdit::decode(&written, Path::new("MANIFEST"), 0);
    let again = again.unwrap_or_else(|error| panic!("what was written is not read: {error}"));
    assert_eq!(again, edit, "an edit does not round trip");
    let mut twice = Vec::new();
    again.encode(&mut twice);
    assert_eq!(twice, written, "an edit is written in two ways");
}

pub(super) fn manifest_edit_seeds() -> Vec<Vec<u8>> {
    let (environment, _, _) = alluvium::Environment::simulated(golden().shared(), 1);
    let dump = read_manifest(&environment, Path::new(DIRECTORY)).expect("a manifest");
    let encode = |record: &alluvium::inspect::ManifestRecord| {
        let mut bytes = Vec::new();
        record.edit.encode(&mut bytes);
        bytes
    };
    dump.records.iter().map(encode).collect()
}

/// A data block.
pub(super) fn block(bytes: &[u8]) {
    let (entries, ordered) = match table::block(bytes) {
        Ok(found) => found,
        Err(problem) => {
            assert!(!problem.contains("is not found"), "{problem}");
            return;
        }
    };
    let newer_first = |pair: &[table::Entry]| {
        (pair[0].0.as_slice(), std::cmp::Reverse(pair[0].1))
            < (pair[1].0.as_slice(), std::cmp::Reverse(pair[1].1))
    };
    assert_eq!(entries.windows(2).all(newer_first), ordered, "order is misjudged");
    if ordered {
        let again = table::block(&table::build_block(&entries));
        assert_eq!(again, Ok((entries, true)), "a block does not round trip");
    }
}

pub(super) fn block_seeds() -> Vec<Vec<u8>> {
    let mut random = Random::new(1);
    let mut seeds = Vec::new();
    for count in [1u64, 2, 5, 30] {
        for value_len in [0usize, 3, 40] {
            let entry = |n: u64| {
                let key = format!("\0\0\0\u{1}prefix{:04}", n / 2).into_bytes();
                let mut value = vec![0; value_len];
                random.fill(&mut value);
                (key, (1000 - n) << 8 | u64::from(n.is_multiple_of(2)), value)
            };
            seeds.push(table::build_block(&(0..count).map(entry).collect::<Vec<_>>()));
        }
    }
    seeds
}

/// The body of a compressed block, behind a byte that says how.
pub(super) fn compressed(bytes: &[u8]) {
    let Some((how, body)) = bytes.split_first() else { return };
    let with = if how % 2 == 0 { Compression::Lz4 } else { Compression::Zstd };
    let ratio_max = if how % 2 == 0 { 256 } else { 1 << 15 };
    if let Ok(raw) = table::unpack(body, with) {
        assert!(raw.len() <= body.len() * ratio_max, "{} bytes out of {}", raw.len(), body.len());
    }
}

pub(super) fn compressed_seeds() -> Vec<Vec<u8>> {
    let fs = golden();
    let (environment, _, _) = alluvium::Environment::simulated(fs.shared(), 1);
    let mut seeds = Vec::new();
    for path in fs.files().iter().filter(|path| path.extension().is_some_and(|extension| extension == "sst"))
    {
        let bytes = fs.contents(path).expect("readable");
        let file = alluvium::inspect::open_table_file(&environment, path).expect("a table");
        for block in file.blocks().flatten().filter(|block| block.compression != Compression::None).take(3) {
            let body = block.offset as usize..(block.offset + block.stored_bytes) as usize - 9;
            let how = u8::from(block.compression == Compression::Zstd);
            seeds.push([&[how], &bytes[body]].concat());
        }
    }
    seeds
}

/// A partition of a point filter: line, probes, hash, bits.
pub(super) fn point_filter(bytes: &[u8]) {
    let Some((head, bits)) = bytes.split_first_chunk::<10>() else { return };
    let hash = u64::from_le_bytes(*head.last_chunk().expect("eight of ten"));
    let answer = table::point_filter(bits, usize::from(head[0]), hash, head[1]);
    assert_eq!(answer.is_some(), bits.len().is_multiple_of(64), "a filter is whole lines");
    // A filter must not forget what it was given.
    let hashes: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
    let Some((lines, probes, built)) = table::build_point_filter(&hashes, head[1] % 33) else { return };
    if lines <= 256 {
        for hash in hashes {
            let line = ((u128::from(hash) * u128::from(lines)) >> 64) as usize;
            assert_eq!(table::point_filter(&built, line, hash, probes), Some(true), "a key was forgotten");
        }
    }
}

pub(super) fn point_filter_seeds() -> Vec<Vec<u8>> {
    let mut random = Random::new(2);
    let mut seeds = Vec::new();
    for keys in [1, 20, 200] {
        let hashes: Vec<u64> = (0..keys).map(|_| random.next_u64()).collect();
        if let Some((_, probes, bits)) = table::build_point_filter(&hashes, 10) {
            seeds.push([&[0, probes][..], &hashes[0].to_le_bytes(), &bits].concat());
        }
    }
    seeds
}

/// A partition of a prefix filter: length of its bits, hash, bytes.
pub(super) fn prefix_filter(bytes: &[u8]) {
    let Some((head, body)) = bytes.split_first_chunk::<10>() else { return };
    let bitmap_bytes = usize::from(u16::from_le_bytes([head[0], head[1]]));
    let hash = u64::from_le_bytes(*head.last_chunk().expect("eight of ten"));
    let answer = table::prefix_filter(body, bitmap_bytes, hash);
    assert!(answer.is_none() || body.len() == bitmap_bytes + 45, "a filter of another length");
    let prefixes: Vec<Vec<u8>> = body.chunks(5).take(200).map(<[u8]>::to_vec).collect();
    let Some((bitmap_bytes, partitions)) = table::build_prefix_filter(&prefixes, 1 + head[0] % 32) else {
        return;
    };
    if let [partition] = partitions.as_slice() {
        for prefix in &prefixes {
            let answer = table::prefix_filter(partition, bitmap_bytes, table::prefix_hash(prefix));
            assert_eq!(answer, Some(true), "a prefix was forgotten");
        }
    }
}

pub(super) fn prefix_filter_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for count in [1u8, 50] {
        let prefixes: Vec<Vec<u8>> = (0..count).map(|n| vec![0, 0, 0, 1, n]).collect();
        let Some((bitmap_bytes, partitions)) = table::build_prefix_filter(&prefixes, 10) else { continue };
        let hash = table::prefix_hash(&prefixes[0]).to_le_bytes();
        let head = (bitmap_bytes as u16).to_le_bytes();
        seeds.extend(partitions.iter().map(|partition| [&head[..], &hash, partition].concat()));
    }
    seeds
}
