//! Failing calls: every write and every read fails once, and nothing worse follows than an error.
#![expect(clippy::unwrap_used, reason = "a test says where it fails")]

mod common;

use std::path::Path;
use std::sync::Arc;

use alluvium_base::fs::fault::{Action, Failure, FaultFs, Rule};
use alluvium_base::fs::operation::Operation;
use alluvium_base::fs::{Fs, OpenMode};
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::Trailer;
use alluvium_base::random::Random;
use alluvium_base::{ErrorKind, Result};
use alluvium_sstable::{Fixed, KeyspaceSettings, ReadPurpose, Table, TableSummary, TableWriter};
use common::*;

fn entries() -> Vec<Entry> {
    let mut random = Random::new(8);
    let entries = (0..3000u64).map(|n| {
        let mut value = vec![0; if n % 300 == 0 { 400_000 } else { 200 }];
        random.fill(&mut value);
        (full_key(1, &n.to_be_bytes()), put(n), value)
    });
    entries.collect()
}

fn write_all(fs: &dyn Fs, path: &Path, entries: &[Entry]) -> Result<TableSummary> {
    let file = fs.open(path, OpenMode::CreateOrTruncate).unwrap();
    let mut writer = TableWriter::new(file, IDENTITY, Arc::new(Fixed(KeyspaceSettings::default())));
    for (at, (key, trailer, value)) in entries.iter().enumerate() {
        if let Err(error) = writer.add(key, *trailer, value) {
            for (key, trailer, value) in entries[at..].iter().take(2) {
                assert_eq!(writer.add(key, *trailer, value).unwrap_err().kind(), error.kind());
            }
            assert_eq!(writer.finish().unwrap_err().kind(), error.kind());
            return Err(error);
        }
    }
    writer.finish()
}

#[test]
fn a_failed_write_fails_the_table_and_stays() {
    let memory = alluvium_base::fs::memory::MemoryFs::new();
    let fs = FaultFs::over_memory(&memory);
    let (path, entries) = (Path::new("/1.sst"), entries());
    let expected = write_all(&fs, path, &entries).unwrap();
    let writes = fs.calls().of(Operation::Write);
    assert!(writes > 10, "{writes}");
    for number in 0..writes {
        for action in
            [Action::Fail(Failure::DiskFull), Action::ShortWrite { bytes: 1000, failure: Failure::DiskFull }]
        {
            let rule = fs.add(Rule::new(action).on(&[Operation::Write]).from_call(number).times(1));
            let error = write_all(&fs, path, &entries).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::DiskFull { .. }), "{error}");
            fs.remove(rule);
            let file = fs.open(path, OpenMode::Read).unwrap();
            let left = file.len().unwrap();
            let opened = Table::open(file, 1, left, Some(IDENTITY), cache(0));
            assert!(opened.unwrap_err().is_corrupt(), "half a table must not open");
        }
    }
    assert_eq!(write_all(&fs, path, &entries).unwrap(), expected);
}

#[test]
fn a_failed_read_fails_the_iterator_and_nothing_else() {
    let memory = alluvium_base::fs::memory::MemoryFs::new();
    let fs = FaultFs::over_memory(&memory);
    let (path, entries) = (Path::new("/1.sst"), entries());
    let summary = write_all(&fs, path, &entries).unwrap();
    let file = fs.open(path, OpenMode::Read).unwrap();
    let table = Table::open(file, 1, summary.bytes, None, cache(0)).unwrap();
    for purpose in [ReadPurpose::Scan, ReadPurpose::Compaction] {
        for number in [0, 1, 2, 5, 11] {
            let rule = Rule::new(Action::Fail(Failure::Io)).on(&[Operation::Read]).from_call(number).times(1);
            let rule = fs.add(rule);
            let mut iterator = table.iter(purpose);
            let error = forward(&mut iterator).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
            assert!(!iterator.valid());
            let key = full_key(1, b"");
            for again in [
                iterator.seek_to_first(),
                iterator.seek_to_last(),
                iterator.seek(&key, Trailer::NEWEST),
                iterator.seek_before(&key, Trailer::NEWEST),
            ] {
                assert_eq!(again.unwrap_err().kind(), error.kind(), "a failed iterator stays failed");
            }
            fs.remove(rule);
            assert!(forward(&mut table.iter(purpose)).unwrap() == entries);
        }
    }
    let (key, trailer, value) = &entries[1500];
    let rule = fs.add(Rule::new(Action::Fail(Failure::Io)).on(&[Operation::Read]));
    assert!(get(&table, key, 1 << 40).is_err());
    fs.remove(rule);
    assert_eq!(get(&table, key, 1 << 40).unwrap(), Some((*trailer, value.clone())));
}

#[test]
fn flipped_bits_on_the_way_are_found() {
    let memory = alluvium_base::fs::memory::MemoryFs::new();
    let fs = FaultFs::over_memory(&memory);
    let (path, entries) = (Path::new("/1.sst"), entries());
    let summary = write_all(&fs, path, &entries).unwrap();
    let file = fs.open(path, OpenMode::Read).unwrap();
    let table = Table::open(file, 1, summary.bytes, None, cache(0)).unwrap();
    let mut random = Random::new(6);
    for _ in 0..200 {
        let (key, trailer, value) = &entries[random.index(entries.len())];
        fs.add(
            Rule::new(Action::FlipBit { bit: random.next_u64() })
                .on(&[Operation::Read])
                .from_call(random.below(4)),
        );
        match get(&table, key, 1 << 40) {
            Ok(found) => assert_eq!(found, Some((*trailer, value.clone()))),
            Err(error) => assert!(error.is_corrupt(), "{error}"),
        }
        fs.remove_all();
    }
}
