//! What goes into a table comes out of it, by every way of reading.
#![expect(clippy::unwrap_used, reason = "a test says where it fails")]

mod common;

use std::path::Path;
use std::sync::Arc;

use alluvium_base::ErrorKind;
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::fs::{Fs, OpenMode};
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{self, KeyspaceId, Kind, Trailer};
use alluvium_base::random::Random;
use alluvium_base::range_tombstone::{FragmentedTombstones, RangeTombstone};
use alluvium_sstable::{
    BlockKind, Compression, Fixed, KeyspaceSettings, ReadPurpose, SettingsSource, Table, TableWriter,
};
use common::*;
use proptest::prelude::*;

fn settings() -> impl Strategy<Value = KeyspaceSettings> {
    let compression = prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]);
    let block_bytes = prop::sample::select(vec![1u32, 64, 300, 4096]);
    let bits = prop::sample::select(vec![0u8, 5, 10]);
    let prefix = prop::sample::select(vec![None, Some(0u16), Some(2)]);
    (compression, block_bytes, bits, prefix).prop_map(
        |(compression, block_bytes, filter_bits_per_key, prefix_bytes)| KeyspaceSettings {
            compression,
            block_bytes,
            filter_bits_per_key,
            prefix_bytes,
        },
    )
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0u8, 1, b'a', b'b', 0xff]);
    (1u32..4, prop::collection::vec(byte, 0..8)).prop_map(|(keyspace, user)| full_key(keyspace, &user))
}

fn any_trailer() -> impl Strategy<Value = Trailer> {
    let kind = prop::sample::select(vec![Kind::Put, Kind::Put, Kind::Delete, Kind::Merge, Kind::DeleteOnce]);
    (prop_oneof![Just(0u64), 0u64..40], kind).prop_map(|(seqno, kind)| Trailer::new(seqno, kind))
}

fn any_entries() -> impl Strategy<Value = Vec<Entry>> {
    let value = prop::collection::vec(any::<u8>(), 0..60);
    prop::collection::vec((any_key(), any_trailer(), value), 1..150).prop_map(sorted)
}

/// A move of an iterator, and the same move of an index into the sorted list.
#[derive(Clone, Debug)]
enum Move {
    First,
    Last,
    Seek(Vec<u8>, Trailer),
    SeekBefore(Vec<u8>, Trailer),
    Next,
    Prev,
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        4 => (any_key(), any_trailer()).prop_map(|(key, trailer)| Move::Seek(key, trailer)),
        4 => (any_key(), any_trailer()).prop_map(|(key, trailer)| Move::SeekBefore(key, trailer)),
        10 => Just(Move::Next),
        10 => Just(Move::Prev),
    ]
}

fn apply(entries: &[Entry], at: Option<usize>, step: &Move) -> Option<usize> {
    let before = |key: &[u8], trailer: Trailer| {
        entries.partition_point(|(other, t, _)| key::compare(other, *t, key, trailer).is_lt())
    };
    let to = match step {
        Move::First => Some(0),
        Move::Last => entries.len().checked_sub(1),
        Move::Seek(key, trailer) => Some(before(key, *trailer)),
        Move::SeekBefore(key, trailer) => before(key, *trailer).checked_sub(1),
        Move::Next => at.map(|at| at + 1),
        Move::Prev => at.and_then(|at| at.checked_sub(1)),
    };
    to.filter(|&at| at < entries.len())
}

fn check_moves(table: &Arc<Table>, entries: &[Entry], moves: &[Move], purpose: ReadPurpose) {
    let mut iterator = table.iter(purpose);
    assert!(!iterator.valid());
    let mut at = None;
    for step in moves {
        if matches!(step, Move::Next | Move::Prev) && at.is_none() {
            continue;
        }
        match step {
            Move::First => iterator.seek_to_first(),
            Move::Last => iterator.seek_to_last(),
            Move::Seek(key, trailer) => iterator.seek(key, *trailer),
            Move::SeekBefore(key, trailer) => iterator.seek_before(key, *trailer),
            Move::Next => iterator.next(),
            Move::Prev => iterator.prev(),
        }
        .unwrap();
        at = apply(entries, at, step);
        assert_eq!(current(&iterator).as_ref(), at.map(|at| &entries[at]), "{step:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_table_answers_like_a_sorted_list(
        entries in any_entries(),
        settings in settings(),
        probes in prop::collection::vec((any_key(), 0u64..45), 0..60),
        moves in prop::collection::vec(any_move(), 0..120),
        cache_bytes in prop::sample::select(vec![0usize, 1 << 20]),
    ) {
        let written = write_fixed(settings, &entries);
        let cache = cache(cache_bytes);
        let table = written.open(&cache).unwrap();
        let keys = entries.iter().map(|(key, trailer, _)| (key.clone(), trailer.seqno()));
        for (key, snapshot) in keys.chain(probes) {
            let found = get(&table, &key, snapshot).unwrap();
            prop_assert_eq!(found, expected_get(&entries, &key, snapshot));
            for len in 4..=key.len() {
                let held = entries.iter().any(|(other, _, _)| other.starts_with(&key[..len]));
                prop_assert!(!held || table.may_contain_prefix(&key[..len]).unwrap(), "{:?}", &key[..len]);
            }
        }
        for purpose in [ReadPurpose::Scan, ReadPurpose::Compaction] {
            let mut iterator = table.iter(purpose);
            prop_assert_eq!(&forward(&mut iterator).unwrap(), &entries);
            prop_assert_eq!(&backward(&mut iterator).unwrap(), &entries);
            check_moves(&table, &entries, &moves, purpose);
        }
        let verification = table.verify().unwrap();
        prop_assert_eq!(verification.checksum, written.summary.checksum);
        prop_assert_eq!(verification.entries, entries.len() as u64);
    }
}

#[test]
fn versions_of_a_key_that_span_blocks_are_found() {
    let mut entries = Vec::new();
    for user in [&b"a"[..], b"b", b"c"] {
        for seqno in 0..300 {
            entries.push((full_key(1, user), put(seqno * 2), format!("{seqno}").into_bytes()));
        }
    }
    let entries = sorted(entries);
    let settings = KeyspaceSettings { block_bytes: 64, ..KeyspaceSettings::default() };
    let written = write_fixed(settings, &entries);
    let table = written.open(&cache(1 << 20)).unwrap();
    assert!(table.properties().data_blocks > 20);
    for user in [&b"a"[..], b"b", b"c", b"bb"] {
        let key = full_key(1, user);
        for snapshot in 0..610 {
            assert_eq!(get(&table, &key, snapshot).unwrap(), expected_get(&entries, &key, snapshot));
        }
    }
    table.verify().unwrap();
}

#[test]
fn large_values_have_blocks_of_their_own() {
    let mut random = Random::new(2);
    let mut noise = vec![0; 300 << 10];
    random.fill(&mut noise);
    let mut entries = Vec::new();
    for n in 0..30u64 {
        let value = match n % 5 {
            0 => noise[..(n as usize + 1) << 13].to_vec(),
            1 => vec![7; (n as usize) << 13],
            2 => noise[..65_536].to_vec(),
            _ => format!("small {n}").into_bytes(),
        };
        entries.push((full_key(1, &n.to_be_bytes()), put(n), value));
    }
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let settings = KeyspaceSettings { compression, ..KeyspaceSettings::default() };
        let written = write_fixed(settings, &entries);
        let table = written.open(&cache(1 << 20)).unwrap();
        assert_eq!(forward(&mut table.iter(ReadPurpose::Scan)).unwrap(), entries);
        assert_eq!(backward(&mut table.iter(ReadPurpose::Compaction)).unwrap(), entries);
        for (key, trailer, value) in &entries {
            assert_eq!(get(&table, key, 1000).unwrap(), Some((*trailer, value.clone())));
        }
        for block in table.blocks().map(Result::unwrap).filter(|block| block.kind == BlockKind::Data) {
            assert!(block.entries == 1 || block.raw_bytes < 64 << 10, "{block:?}");
        }
        table.verify().unwrap();
    }
}

#[test]
fn longest_and_shortest_keys() {
    let longest = |byte: u8| full_key(2, &vec![byte; 65_535]);
    let mut entries = vec![
        (full_key(0, b""), put(1), b"empty key".to_vec()),
        (full_key(2, b""), put(1), Vec::new()),
        (full_key(2, b"\0"), put(1), b"zero".to_vec()),
        (full_key(u32::MAX, b""), put(1), b"last keyspace".to_vec()),
        (full_key(u32::MAX, &[0xff; 65_535]), put(1), b"last key".to_vec()),
    ];
    entries.extend((1..20).map(|byte| (longest(byte), put(u64::from(byte)), vec![byte])));
    let mut almost = longest(9);
    *almost.last_mut().unwrap() = 10;
    entries.push((almost, put(5), b"differs in the last byte".to_vec()));
    let entries = sorted(entries);
    let written = write_fixed(KeyspaceSettings::default(), &entries);
    let table = written.open(&cache(1 << 20)).unwrap();
    assert_eq!(forward(&mut table.iter(ReadPurpose::Scan)).unwrap(), entries);
    assert_eq!(backward(&mut table.iter(ReadPurpose::Scan)).unwrap(), entries);
    for (key, trailer, value) in &entries {
        assert_eq!(get(&table, key, 1000).unwrap(), Some((*trailer, value.clone())));
    }
    assert_eq!(get(&table, &full_key(3, b""), 1000).unwrap(), None);
    table.verify().unwrap();
}

/// Other settings for every keyspace.
struct ByKeyspace;

impl SettingsSource for ByKeyspace {
    fn settings(&self, keyspace: KeyspaceId) -> KeyspaceSettings {
        KeyspaceSettings {
            compression: match keyspace.0 % 3 {
                0 => Compression::None,
                1 => Compression::Lz4,
                _ => Compression::Zstd,
            },
            block_bytes: 512 << (keyspace.0 % 4),
            filter_bits_per_key: if keyspace.0.is_multiple_of(5) { 0 } else { 10 },
            prefix_bytes: keyspace.0.is_multiple_of(2).then_some(3),
        }
    }
}

#[test]
fn keyspaces_keep_to_their_own_blocks_and_settings() {
    let mut entries = Vec::new();
    for keyspace in 1..40u32 {
        for row in 0..u64::from(keyspace) * 5 {
            let kind = if row % 7 == 0 { Kind::Delete } else { Kind::Put };
            entries.push((
                full_key(keyspace, format!("{row:06}").as_bytes()),
                Trailer::new(row, kind),
                vec![keyspace as u8; 30],
            ));
        }
    }
    let written = write(ByKeyspace, &entries, &[]);
    let table = written.open(&cache(4 << 20)).unwrap();
    table.verify().unwrap();
    assert_eq!(table.properties().keyspaces.len(), 39);
    assert_eq!(written.summary.keyspaces, table.properties().keyspaces);
    for keyspace in &table.properties().keyspaces {
        let id = keyspace.keyspace.0;
        let own = || entries.iter().filter(|(key, _, _)| KeyspaceId::of(key) == Some(keyspace.keyspace));
        assert_eq!(keyspace.entries, u64::from(id) * 5);
        assert_eq!(
            keyspace.tombstones,
            own().filter(|entry| entry.1.kind() == Some(Kind::Delete)).count() as u64
        );
        assert_eq!(keyspace.raw_bytes, keyspace.entries * (10 + 8 + 30));
    }
    for block in table.blocks().map(Result::unwrap).filter(|block| block.kind == BlockKind::Data) {
        let id = KeyspaceId::of(&block.first_key.unwrap()).unwrap();
        let settings = ByKeyspace.settings(id);
        assert!(block.raw_bytes <= u64::from(settings.block_bytes), "{id:?}");
        assert!(block.compression == settings.compression || block.compression == Compression::None);
    }
    for (key, trailer, value) in &entries {
        assert_eq!(get(&table, key, 1 << 40).unwrap(), Some((*trailer, value.clone())));
        assert!(table.may_contain_prefix(&key[..8]).unwrap());
    }
    assert!(!table.may_contain_prefix(&full_key(40, b"")).unwrap(), "no such keyspace");
    let wrong = (0..10_000)
        .filter(|n| table.may_contain_prefix(&full_key(2, format!("x{n:05}").as_bytes())).unwrap());
    assert!(wrong.count() < 300);
}

#[test]
fn range_tombstones_come_back_in_fragments() {
    let tombstone = |start: &[u8], end: &[u8], seqno| RangeTombstone {
        start: full_key(3, start),
        end: full_key(3, end),
        seqno,
    };
    let tombstones = [
        tombstone(b"m", b"z", 9),
        tombstone(b"a", b"n", 5),
        tombstone(b"a", b"n", 5),
        tombstone(b"a", b"c", 7),
        RangeTombstone { start: full_key(5, b""), end: full_key(6, b""), seqno: 100 },
    ];
    for entries in
        [vec![], vec![(full_key(3, b"b"), put(4), b"v".to_vec()), (full_key(4, b""), put(4), vec![])]]
    {
        let written = write(Fixed(KeyspaceSettings::default()), &entries, &tombstones);
        let table = written.open(&cache(1 << 20)).unwrap();
        assert_eq!(**table.range_tombstones(), FragmentedTombstones::new(&tombstones));
        let properties = table.properties();
        assert_eq!(properties.range_tombstones, 4, "the repeat is stored once");
        assert_eq!(properties.range.start, full_key(3, b"a"));
        assert_eq!(properties.range.end, full_key(6, b""));
        assert_eq!(properties.seqno_max, 100);
        let keyspaces: Vec<u32> = properties.keyspaces.iter().map(|keyspace| keyspace.keyspace.0).collect();
        assert_eq!(keyspaces, if entries.is_empty() { vec![3, 5] } else { vec![3, 4, 5] });
        assert_eq!(forward(&mut table.iter(ReadPurpose::Scan)).unwrap(), entries);
        assert_eq!(get(&table, &full_key(3, b"a"), 100).unwrap(), None);
        assert_eq!(get(&table, &full_key(5, b"a"), 100).unwrap(), None);
        table.verify().unwrap();
    }
}

#[test]
fn refused_entries_leave_the_writer_as_it_was() {
    let entries: Vec<Entry> =
        (1..50u64).map(|n| (full_key(1, &n.to_be_bytes()), put(n), vec![1; 20])).collect();
    let undisturbed = write_fixed(KeyspaceSettings::default(), &entries).summary.checksum;

    let mut writer = empty_writer();
    let mut last = None;
    for (key, trailer, value) in &entries {
        if let Some((last_key, last_trailer)) = &last {
            let refused = [
                (Vec::clone(last_key), *last_trailer),
                (Vec::clone(last_key), put(100)),
                (full_key(0, b"z"), put(0)),
                (b"abc".to_vec(), put(0)),
                (full_key(9, b""), Trailer::new(1, Kind::RangeDelete)),
                (full_key(9, b""), Trailer(7)),
            ];
            for (key, trailer) in refused {
                let error = writer.add(&key, trailer, b"").unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
            }
            let error = writer.add(&full_key(9, &[0; 65_536]), put(0), b"").unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::KeyTooLong { len: 65_536, max: 65_535, .. }),
                "{error}"
            );
        }
        writer.add(key, *trailer, value).unwrap();
        last = Some((key.clone(), *trailer));
    }
    assert_eq!(writer.finish().unwrap().checksum, undisturbed);
}

fn empty_writer() -> TableWriter {
    let fs = MemoryFs::new();
    fs.create_directory_all(Path::new("/db")).unwrap();
    let file = fs.open(Path::new("/db/1.sst"), OpenMode::CreateNew).unwrap();
    TableWriter::new(file, IDENTITY, Arc::new(Fixed(KeyspaceSettings::default())))
}

#[test]
fn an_empty_table_is_refused() {
    assert!(matches!(empty_writer().finish().unwrap_err().kind(), ErrorKind::InvalidArgument { .. }));
}

#[test]
fn a_larger_table_has_partitions_of_at_most_16_kib() {
    let mut random = Random::new(4);
    let mut entries: Vec<Entry> = (0..60_000u64)
        .map(|n| {
            let mut user = [0; 16];
            random.fill(&mut user);
            (full_key(1, &user), put(0), format!("{n:040}").into_bytes())
        })
        .collect();
    entries = sorted(entries);
    let settings =
        KeyspaceSettings { block_bytes: 512, prefix_bytes: Some(4), ..KeyspaceSettings::default() };
    let written = write_fixed(settings, &entries);
    let cache = cache(64 << 20);
    let table = written.open(&cache).unwrap();
    let blocks: Vec<_> = table.blocks().map(Result::unwrap).collect();
    let of = |kind: BlockKind| blocks.iter().filter(move |block| block.kind == kind);
    for kind in [BlockKind::Index, BlockKind::PointFilter, BlockKind::PrefixFilter] {
        assert!(of(kind).count() >= 4, "{kind:?}");
        assert!(of(kind).all(|block| block.raw_bytes <= 16 << 10), "{kind:?}");
    }
    assert_eq!(of(BlockKind::Data).count() as u64, table.properties().data_blocks);
    for (key, trailer, value) in entries.iter().step_by(7) {
        assert_eq!(get(&table, key, 0).unwrap(), Some((*trailer, value.clone())));
    }
    let misses = (0..20_000).filter(|_| {
        let mut user = [0; 16];
        random.fill(&mut user);
        let key = full_key(1, &user);
        table.may_contain_key(&key, alluvium_base::checksum::key_hash(&key)).unwrap()
    });
    let rate = misses.count() as f64 / 20_000.0;
    assert!(rate < 0.015, "{rate}");
    assert_eq!(forward(&mut table.iter(ReadPurpose::Compaction)).unwrap(), entries);
    assert_eq!(backward(&mut table.iter(ReadPurpose::Compaction)).unwrap(), entries);
    table.verify().unwrap();
}
