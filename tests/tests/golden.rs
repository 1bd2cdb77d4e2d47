//! Databases written by released formats stay readable, by reading and by writing opens, with their ring (the process
//! died) and without it (the machine died). A new format adds a folder here and keeps the old ones.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::time::Duration;

use alluvium::base::fs::memory::MemoryFs;
use alluvium::inspect::open_table_file;
use alluvium::{Compression, Db, Durability, Environment};
use alluvium_tests::golden::{self, Contents, VERSION};

/// Every format from the first to that of this build.
fn versions() -> impl Iterator<Item = u32> {
    1..=VERSION
}

/// Reads, writes, flushes, compacts, reopens.
fn use_it(fs: &MemoryFs, expected: &Contents) {
    let (guard, db) = golden::open_read_only(fs).expect("opens for reading");
    expected.check(&db).expect("readable");
    drop((db, guard));
    let (guard, db) = golden::open(fs, Compression::Lz4).expect("opens for writing");
    expected.check(&db).expect("readable");
    db.compact(None).expect("compacts");
    expected.check(&db).expect("readable");
    let keyspace = db.keyspace("new").expect("a new keyspace");
    keyspace.put(b"a", b"1", Durability::Sync).expect("writes");
    db.close(Duration::from_secs(10)).expect("closes");
    drop((keyspace, db, guard));
    let (guard, db) = golden::open(fs, Compression::Lz4).expect("opens again");
    assert_eq!(
        db.keyspace("new").expect("it stays").get(b"a").expect("readable").as_deref(),
        Some(&b"1"[..])
    );
    db.drop_keyspace("new").expect("drops");
    expected.check(&db).expect("readable");
    drop((db, guard));
}

#[test]
fn a_database_whose_process_died_is_read_with_its_ring() {
    for version in versions() {
        use_it(&golden::load(version).expect("golden files"), &Contents::expected(true));
    }
}

#[test]
fn a_copy_on_a_real_disk_has_everything_that_was_durable() {
    for version in versions() {
        for read_only in [true, false] {
            let directory = tempfile::tempdir().expect("a directory");
            for entry in std::fs::read_dir(golden::folder(version)).expect("golden files").flatten() {
                std::fs::copy(entry.path(), directory.path().join(entry.file_name())).expect("a copy");
            }
            let options = golden::options(Compression::Zstd);
            let path = directory.path();
            let opened = if read_only { Db::open_read_only(path, options) } else { Db::open(path, options) };
            let db = opened.expect("opens");
            // This is another boot of the machine, so the ring says nothing.
            Contents::expected(false).check(&db).expect("readable");
            if !read_only {
                db.close(Duration::from_secs(10)).expect("closes");
            }
        }
    }
}

#[test]
fn the_script_still_writes_what_it_says() {
    let fs = golden::write().expect("written");
    use_it(&fs, &Contents::expected(true));
    assert_ne!(Contents::expected(true), Contents::expected(false), "the ring must matter");
}

#[test]
fn the_golden_files_hold_something_of_everything() {
    for version in versions() {
        let fs = golden::load(version).expect("golden files");
        let names: Vec<String> = fs
            .files()
            .iter()
            .map(|path| path.file_name().expect("a name").to_string_lossy().into())
            .collect();
        let bytes: usize = fs.files().iter().map(|path| fs.contents(path).expect("readable").len()).sum();
        assert!(bytes < 300 << 10, "{bytes} bytes are too many to keep: {names:?}");
        for wanted in ["CURRENT", "MANIFEST-", "ring", ".log", ".sst"] {
            assert!(names.iter().any(|name| name.contains(wanted)), "{wanted} is not in {names:?}");
        }
        let (_guard, db) = golden::open_read_only(&fs).expect("opens");
        let files = db.files().expect("files");
        assert!(files.iter().any(|placed| placed.level == 0) && files.iter().any(|placed| placed.level > 0));
        assert!(files.iter().any(|placed| placed.file.summary.range_tombstones > 0), "no range tombstone");
        let (environment, _, _) = Environment::simulated(fs.shared(), 1);
        let tables = fs.files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "sst"));
        let tables = tables.map(|path| open_table_file(&environment, &path).expect("a table"));
        let blocks =
            tables.flat_map(|table| table.blocks().map(|block| block.expect("sound")).collect::<Vec<_>>());
        let compressions: Vec<Compression> = blocks.map(|block| block.compression).collect();
        for wanted in [Compression::None, Compression::Lz4, Compression::Zstd] {
            assert!(compressions.contains(&wanted), "no block with compression {wanted:?}");
        }
    }
}

#[test]
#[ignore = "run once for a new format: cargo test -p alluvium-tests --test golden -- --ignored write_the_golden"]
fn write_the_golden_files_of_this_version() {
    let fs = golden::write().expect("written");
    let folder = golden::folder(VERSION);
    assert!(!folder.exists(), "{} exists; released files are never written again", folder.display());
    std::fs::create_dir_all(&folder).expect("a folder");
    for path in fs.files() {
        let bytes = fs.contents(&path).unwrap_or_else(|error| panic!("{error}"));
        // What a crash at another moment would not have left either: spares, and a segment made ahead of need.
        let name = path.file_name().expect("a name").to_string_lossy();
        let is_empty = bytes.iter().skip(4096).all(|&byte| byte == 0);
        if name == "LOCK" || name.ends_with(".spare") || (name.ends_with(".log") && is_empty) {
            continue;
        }
        println!("{name} has {} bytes", bytes.len());
        std::fs::write(folder.join(&*name), bytes).expect("written");
    }
}
