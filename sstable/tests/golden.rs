//! Tables written by released format versions stay readable. A new format version adds a file here and keeps the old.
#![expect(clippy::unwrap_used, reason = "a test says where it fails")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_base::fs::OpenMode;
use alluvium_base::fs::real::RealFs;
use alluvium_base::key::{KeyspaceId, Kind, Trailer};
use alluvium_base::range_tombstone::{FragmentedTombstones, RangeTombstone};
use alluvium_sstable::{
    Compression, FORMAT_VERSION, KeyspaceSettings, ReadPurpose, SettingsSource, Table, TableWriter,
};
use common::*;

fn golden_file(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/table-format-{version}.sst"))
}

/// Keyspace 1 is not compressed, 2 is LZ4 with a prefix filter, 3 is Zstandard without filters.
struct Settings;

impl SettingsSource for Settings {
    fn settings(&self, keyspace: KeyspaceId) -> KeyspaceSettings {
        let compression = [Compression::None, Compression::Lz4, Compression::Zstd];
        KeyspaceSettings {
            compression: compression[(keyspace.0 as usize + 2) % 3],
            block_bytes: 1024,
            filter_bits_per_key: if keyspace.0 == 3 { 0 } else { 10 },
            prefix_bytes: (keyspace.0 == 2).then_some(3),
        }
    }
}

fn contents() -> (Vec<Entry>, Vec<RangeTombstone>) {
    let kinds = [Kind::Put, Kind::Put, Kind::Delete, Kind::Merge, Kind::DeleteOnce];
    let mut entries = vec![(full_key(1, b""), put(0), b"the empty key".to_vec())];
    for keyspace in 1..4 {
        for row in 0..60u64 {
            let key = full_key(keyspace, format!("row{row:04}").as_bytes());
            let kind = kinds[row as usize % kinds.len()];
            let value = if kind.is_point_tombstone() {
                Vec::new()
            } else {
                format!("value {row} ").repeat(3).into_bytes()
            };
            entries.push((key.clone(), Trailer::new(100 + row, kind), value));
            if row % 10 == 0 {
                entries.push((key, put(row), b"an older version".to_vec()));
            }
        }
    }
    entries.push((full_key(3, b"large"), put(1000), vec![b'L'; 64 << 10]));
    let tombstones = vec![
        RangeTombstone { start: full_key(2, b"row0010"), end: full_key(2, b"row0030"), seqno: 500 },
        RangeTombstone { start: full_key(2, b"row0020"), end: full_key(3, b""), seqno: 90 },
        RangeTombstone { start: full_key(4, b""), end: full_key(5, b""), seqno: 1 << 50 },
    ];
    (sorted(entries), tombstones)
}

fn check(version: u32, checksum: u64) {
    let file = RealFs::shared().open(&golden_file(version), OpenMode::Read).unwrap();
    let bytes = file.len().unwrap();
    let table = Table::open(file, 1, bytes, Some(IDENTITY), cache(1 << 20)).unwrap();
    let (entries, tombstones) = contents();
    assert_eq!(forward(&mut table.iter(ReadPurpose::Scan)).unwrap(), entries);
    assert_eq!(backward(&mut table.iter(ReadPurpose::Compaction)).unwrap(), entries);
    for (key, trailer, _) in &entries {
        let found = get(&table, key, trailer.seqno()).unwrap();
        assert_eq!(found, expected_get(&entries, key, trailer.seqno()));
    }
    assert_eq!(**table.range_tombstones(), FragmentedTombstones::new(&tombstones));
    assert!(table.may_contain_prefix(&full_key(2, b"row")).unwrap());
    assert!(!table.may_contain_prefix(&full_key(2, b"xyz")).unwrap());
    let verification = table.verify().unwrap();
    assert_eq!(verification.checksum, checksum);
    assert_eq!(table.properties().range.start, full_key(1, b""));
    assert_eq!(table.properties().range.end, full_key(5, b""));
}

#[test]
fn tables_of_format_1_stay_readable() {
    check(1, GOLDEN_1_CHECKSUM);
}

const GOLDEN_1_CHECKSUM: u64 = 0xaa4a_aae0_5245_5b0a;

#[test]
#[ignore = "run once for a new format version: cargo test -p alluvium-sstable --test golden -- --ignored"]
fn write_the_golden_file_of_this_version() {
    let file = RealFs::shared().open(&golden_file(FORMAT_VERSION), OpenMode::CreateNew).unwrap();
    let mut writer = TableWriter::new(file, IDENTITY, Arc::new(Settings));
    let (entries, tombstones) = contents();
    tombstones.iter().for_each(|tombstone| writer.add_range_tombstone(tombstone).unwrap());
    entries.iter().for_each(|(key, trailer, value)| writer.add(key, *trailer, value).unwrap());
    println!("checksum {:#018x}", writer.finish().unwrap().checksum);
}
