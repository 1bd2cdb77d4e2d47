//! Every class of damage at every 64th byte, and at every byte of the footer: the right answer or an error that names
//! the file; never a wrong answer, a panic, a hang or memory far beyond the file's size.
//!
//! One test in a file of its own, since it watches the address space of the whole process.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says where it fails")]

mod common;

use std::path::Path;

use alluvium_base::fs::OpenMode;
use alluvium_base::fs::real::RealFs;
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{KeyspaceId, Kind, Trailer};
use alluvium_base::random::Random;
use alluvium_base::range_tombstone::{FragmentedTombstones, RangeTombstone};
use alluvium_base::{ErrorKind, Result};
use alluvium_sstable::{Compression, KeyspaceSettings, ReadPurpose, SettingsSource};
use common::*;

const FOOTER_BYTES: usize = 80;

struct Mixed;

impl SettingsSource for Mixed {
    fn settings(&self, keyspace: KeyspaceId) -> KeyspaceSettings {
        let compression = [Compression::None, Compression::Lz4, Compression::Zstd];
        KeyspaceSettings {
            compression: compression[keyspace.0 as usize % 3],
            block_bytes: 700,
            filter_bits_per_key: 10,
            prefix_bytes: Some(2),
        }
    }
}

/// Three keyspaces, old versions, tombstones, a large value, keys long enough for several index partitions.
fn contents() -> (Vec<Entry>, Vec<RangeTombstone>) {
    let mut random = Random::new(77);
    let mut entries = Vec::new();
    for keyspace in 3..6 {
        for row in 0..150u64 {
            let mut user = format!("{row:05}").into_bytes();
            user.resize(5 + random.index(200), b'x');
            let mut value = vec![b'v'; random.index(120)];
            random.fill(&mut value[..]);
            for version in 0..=random.below(3) {
                let kind = if random.one_in(5) { Kind::Delete } else { Kind::Put };
                entries.push((
                    full_key(keyspace, &user),
                    Trailer::new(row * 4 + version, kind),
                    value.clone(),
                ));
            }
        }
    }
    entries.push((full_key(4, b"large"), put(9), vec![b'l'; 70_000]));
    let tombstone = |start: &[u8], end: &[u8], seqno| RangeTombstone {
        start: full_key(3, start),
        end: full_key(3, end),
        seqno,
    };
    (sorted(entries), vec![tombstone(b"000", b"00050", 77), tombstone(b"00020", b"00099", 99)])
}

/// The right answers, or an error of the right kind.
struct Checker {
    file: TableFile,
    entries: Vec<Entry>,
    tombstones: FragmentedTombstones,
    found: u32,
    missed: u32,
}

impl Checker {
    fn accept<T>(&mut self, result: Result<T>, what: &str) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let names_the_file = match error.kind() {
                    ErrorKind::Corrupt { file, offset, .. } => {
                        *file == self.file.path && *offset <= self.file.summary.bytes
                    }
                    _ => false,
                };
                assert!(names_the_file, "{what}: {error:?}");
                None
            }
        }
    }

    fn check(&mut self, what: &str) {
        let cache = cache(1 << 20);
        let Some(table) = self.accept(self.file.open(&cache), what) else {
            self.found += 1;
            return;
        };
        assert_eq!(**table.range_tombstones(), self.tombstones, "{what}");
        for at in (0..self.entries.len()).step_by(11) {
            let (key, trailer, _) = self.entries[at].clone();
            if let Some(found) = self.accept(get(&table, &key, trailer.seqno()), what) {
                assert_eq!(found, expected_get(&self.entries, &key, trailer.seqno()), "{what}");
            }
            if let Some(held) = self.accept(table.may_contain_prefix(&key[..6]), what) {
                assert!(held, "{what}");
            }
        }
        if let Some(found) = self.accept(get(&table, &full_key(4, b"no such key"), 1000), what) {
            assert_eq!(found, None, "{what}");
        }
        for purpose in [ReadPurpose::Scan, ReadPurpose::Compaction] {
            let mut iterator = table.iter(purpose);
            let result = forward(&mut iterator);
            if result.is_err() {
                assert!(!iterator.valid() && iterator.next().is_err() && iterator.seek_to_first().is_err());
            }
            if let Some(read) = self.accept(result, what) {
                assert!(read == self.entries, "{what}: a scan read something else");
            }
            if let Some(read) = self.accept(backward(&mut table.iter(purpose)), what) {
                assert!(read == self.entries, "{what}: a reverse scan read something else");
            }
        }
        for block in table.blocks() {
            self.accept(block, what);
        }
        match self.accept(table.verify(), what) {
            // A rewrite with the same bytes is no damage.
            Some(verification) if verification.checksum == self.file.summary.checksum => self.missed += 1,
            Some(_) => panic!("{what}: verify overlooked damage"),
            None => self.found += 1,
        }
    }
}

/// Address space of this process at its largest, in bytes.
fn address_space_peak() -> usize {
    let file = RealFs::shared().open(Path::new("/proc/self/status"), OpenMode::Read).unwrap();
    let mut status = vec![0; 64 << 10];
    let len = file.read_at(&mut status, 0).unwrap();
    let status = String::from_utf8(status[..len].to_vec()).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn damage_gives_the_right_answer_or_an_error() {
    let (entries, tombstones) = contents();
    let file = write(Mixed, &entries, &tombstones);
    let good = file.bytes();
    assert!(good.len() > 100 << 10);
    let tombstones = FragmentedTombstones::new(&tombstones);
    let mut checker = Checker { file, entries, tombstones, found: 0, missed: 0 };
    checker.check("undamaged");
    assert_eq!((checker.found, checker.missed), (0, 1));
    let peak = address_space_peak();

    let footer = good.len() - FOOTER_BYTES;
    let positions: Vec<usize> = (0..footer).step_by(64).chain(footer..good.len()).collect();
    let mut random = Random::new(9);
    for &at in &positions {
        let span = if at < footer { 64.min(footer - at) } else { 1 };
        let fs = checker.file.fs.clone();
        let path = checker.file.path.clone();
        let flipped = at + random.index(span);
        fs.patch(&path, flipped as u64, &[good[flipped] ^ (1 << random.index(8))]).unwrap();
        checker.check(&format!("bit flipped in byte {flipped}"));
        fs.patch(&path, at as u64, &vec![0; span]).unwrap();
        fs.patch(&path, flipped as u64, &[if flipped < at + span { 0 } else { good[flipped] }]).unwrap();
        checker.check(&format!("{span} bytes zeroed at {at}"));
        fs.patch(&path, at as u64, &good[at..at + span]).unwrap();

        fs.patch_len(&path, at as u64).unwrap();
        checker.check(&format!("cut to {at} bytes"));
        // What a manifest would not catch: the size is as expected, the end of the file is not.
        let summary = checker.file.summary.clone();
        checker.file.summary.bytes = at as u64;
        checker.check(&format!("cut to {at} bytes, as expected"));
        checker.file.summary = summary;
        fs.patch_len(&path, good.len() as u64).unwrap();
        fs.patch(&path, at as u64, &good[at..]).unwrap();
    }
    checker.check("repaired");
    let grown = address_space_peak() - peak;
    assert!(grown <= 4 * good.len() + (64 << 20), "address space grew by {grown} bytes");
    let expected = positions.len() as u32 * 4;
    assert!(checker.found >= expected * 9 / 10, "{} of {expected} found", checker.found);
}
