//! Whatever a newer version may write, this build refuses it by name: the error names the file and says that a newer
//! version wrote it. Each test takes the golden database and makes one file of it newer, checksums included.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::path::{Path, PathBuf};

use alluvium::base::checksum::{checksum, seed};
use alluvium::base::coding::{put_bytes, put_varint};
use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::fs::{Fs, OpenMode};
use alluvium::inspect::{DumpItem, dump_log, read_manifest};
use alluvium::{Environment, Error, ErrorKind, Result};
use alluvium_tests::golden::{self, Contents, DIRECTORY, VERSION};

fn golden() -> MemoryFs {
    golden::load(VERSION).expect("golden files")
}

/// The one file whose name is like this.
fn find(fs: &MemoryFs, like: impl Fn(&str) -> bool) -> PathBuf {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    fs.files().into_iter().rfind(|path| name(path).is_some_and(|name| like(&name))).expect("a file")
}

fn replace(fs: &MemoryFs, path: &Path, bytes: &[u8]) {
    let file = fs.open(path, OpenMode::CreateOrTruncate).expect("opens");
    file.write_at(bytes, 0).expect("writes");
}

/// Changes a file; `seal` puts its checksums right again.
fn change(fs: &MemoryFs, path: &Path, seal: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs.contents(path).expect("readable");
    seal(&mut bytes);
    replace(fs, path, &bytes);
}

/// Opens for reading and for writing, reads everything, and expects that both are refused because of `path`.
fn refused(fs: &MemoryFs, path: &Path, found: u32) {
    let expected = Contents::expected(true);
    let read_only = || -> Result<()> {
        let (_guard, db) = golden::open_read_only(fs)?;
        expected.check(&db)
    };
    let writing = || -> Result<()> {
        let (_guard, db) = golden::open(&fs.fork(), alluvium::Compression::Lz4)?;
        expected.check(&db)
    };
    for (outcome, how) in [(read_only(), "reading"), (writing(), "writing")] {
        let error: Error = outcome.expect_err("a newer format must be refused");
        let ErrorKind::UnsupportedFormat { file, found: told, .. } = error.kind() else {
            panic!("{}, {how}: {error:?}", path.display())
        };
        assert_eq!((file.as_path(), *told), (path, found), "{how}: {error}");
        let text = error.to_string();
        assert!(text.contains("was written by a newer version"), "{text}");
        assert!(text.contains(&path.display().to_string()), "{text}");
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[test]
fn current() {
    let fs = golden();
    let path = Path::new(DIRECTORY).join("CURRENT");
    change(&fs, &path, |bytes| {
        put(bytes, 8, &2u32.to_le_bytes());
        let sum = checksum(0, &bytes[..48]);
        put(bytes, 48, &sum.to_le_bytes());
    });
    refused(&fs, &path, 2);
}

#[test]
fn manifest() {
    let fs = golden();
    let path = find(&fs, |name| name.starts_with("MANIFEST"));
    change(&fs, &path, |bytes| {
        put(bytes, 8, &7u32.to_le_bytes());
        let sum = checksum(0, &bytes[..40]);
        put(bytes, 40, &sum.to_le_bytes());
    });
    refused(&fs, &path, 7);
}

#[test]
fn a_damaged_version_of_a_manifest_is_damage() {
    let fs = golden();
    let path = find(&fs, |name| name.starts_with("MANIFEST"));
    change(&fs, &path, |bytes| bytes[8] = 7);
    let Err(error) = golden::open(&fs, alluvium::Compression::Lz4) else { panic!("it opened") };
    assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error:?}");
}

/// Appends an edit to the manifest, and lets CURRENT cover it.
fn append_edit(fs: &MemoryFs, edit: &[u8]) -> PathBuf {
    let (environment, _, _) = Environment::simulated(fs.shared(), 1);
    let dump = read_manifest(&environment, Path::new(DIRECTORY)).expect("a manifest");
    let path = dump.path(Path::new(DIRECTORY));
    let mut durable = 0;
    change(fs, &path, |bytes| {
        bytes.truncate(dump.durable_bytes as usize);
        let length = (edit.len() as u32).to_le_bytes();
        let identity = dump.database_id ^ u128::from(dump.number) << 64;
        let covered = [&length[..], edit].concat();
        let sum = checksum(seed(identity, bytes.len() as u64), &covered);
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(edit);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        durable = bytes.len() as u64;
    });
    change(fs, &Path::new(DIRECTORY).join("CURRENT"), |bytes| {
        put(bytes, 40, &durable.to_le_bytes());
        let sum = checksum(0, &bytes[..48]);
        put(bytes, 48, &sum.to_le_bytes());
    });
    path
}

fn field(tag: u64, payload: &[u8]) -> Vec<u8> {
    let mut edit = Vec::new();
    put_varint(&mut edit, tag);
    put_bytes(&mut edit, payload);
    edit
}

#[test]
fn manifest_edit() {
    let fs = golden();
    let path = append_edit(&fs, &field(1000, b"of a later version"));
    refused(&fs, &path, 1000);
    // What a newer version says is optional does not stop an older one.
    let fs = golden();
    append_edit(&fs, &field(1001, b"of a later version"));
    let (_guard, db) = golden::open(&fs, alluvium::Compression::Lz4).expect("opens");
    Contents::expected(true).check(&db).expect("readable");
}

/// Sets the catalog entry `key`.
fn set_catalog(fs: &MemoryFs, key: &[u8], value: &[u8]) -> PathBuf {
    let mut payload = Vec::new();
    put_bytes(&mut payload, key);
    put_bytes(&mut payload, value);
    append_edit(fs, &field(22, &payload))
}

/// The catalog entry `key`.
fn catalog(fs: &MemoryFs, key: &[u8]) -> Vec<u8> {
    let (environment, _, _) = Environment::simulated(fs.shared(), 1);
    let directory = Path::new(DIRECTORY);
    let state =
        read_manifest(&environment, directory).expect("a manifest").state(directory).expect("a state");
    state.catalog.get(key).expect("an entry").clone()
}

#[test]
fn catalog_entry_of_a_keyspace() {
    let fs = golden();
    let mut value = catalog(&fs, b"kevents");
    value[0] = 2;
    let path = set_catalog(&fs, b"kevents", &value);
    refused(&fs, &path, 2);
}

#[test]
fn catalog_entry_of_a_table() {
    let fs = golden();
    let mut value = catalog(&fs, b"trows");
    value[0] = 3;
    let path = set_catalog(&fs, b"trows", &value);
    refused(&fs, &path, 3);
}

#[test]
fn schema() {
    let fs = golden();
    let mut value = catalog(&fs, b"trows");
    // Format, keyspace of the rows, four indexes with number and keyspace, length of the schema: then its format.
    let name = value.windows(5).position(|window| window == b"\x04rows").expect("the schema's table");
    value[name - 1] = 5;
    let path = set_catalog(&fs, b"trows", &value);
    refused(&fs, &path, 5);
}

#[test]
fn row_of_a_newer_schema_version() {
    let fs = golden();
    let (guard, db) = golden::open(&fs, alluvium::Compression::Lz4).expect("opens");
    let old = db.table("rows").expect("a table");
    alluvium::row::alter_table(&db, "rows", |schema| {
        schema.with_column("newer", alluvium::Type::U8, true, None)
    })
    .expect("alters");
    let new = db.table("rows").expect("a table");
    let mut batch = db.batch().expect("batch");
    batch
        .put(&new, &new.new_row().with("id", 99u64).expect("id").with("c04", 9_999).expect("c04"))
        .expect("put");
    batch.commit(alluvium::Durability::Sync).expect("commit");
    let error = old.get(99u64).expect_err("an old handle cannot read it");
    assert!(matches!(error.kind(), ErrorKind::SchemaMismatch { .. }), "{error:?}");
    assert!(error.to_string().contains("open the table again"), "{error}");
    assert!(db.table("rows").expect("a table").get(99u64).expect("readable").is_some());
    drop((old, new, db, guard));
}

fn newer_log_header(bytes: &mut [u8], fields: usize) {
    put(bytes, 8, &4u32.to_le_bytes());
    let sum = checksum(seed(0, fields as u64), &bytes[..fields]);
    put(bytes, fields, &sum.to_le_bytes());
}

#[test]
fn log_segment() {
    let fs = golden();
    let path = find(&fs, |name| name.ends_with(".log"));
    change(&fs, &path, |bytes| newer_log_header(bytes, 64));
    refused(&fs, &path, 4);
}

#[test]
fn ring() {
    let fs = golden();
    let path = Path::new(DIRECTORY).join("ring");
    change(&fs, &path, |bytes| newer_log_header(bytes, 72));
    refused(&fs, &path, 4);
}

/// Changes the last record that a segment has, and puts its checksums right. The ring is removed: it has the record, too.
fn change_last_record(fs: &MemoryFs, edit: impl FnOnce(&mut [u8])) -> PathBuf {
    let directory = Path::new(DIRECTORY);
    fs.remove_file(&directory.join("ring")).expect("there is a ring");
    let path = find(fs, |name| name.ends_with(".log"));
    let mut last = None;
    let (environment, _, _) = Environment::simulated(fs.shared(), 1);
    dump_log(&environment, directory, &mut |item| {
        if let DumpItem::Record(record) = item {
            last = Some((record.address, record.payload.len()));
        }
        Ok(())
    })
    .expect("a log");
    let (address, length) = last.expect("a record");
    change(fs, &path, |bytes| {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let database_id = u128::from(u64_at(16)) | u128::from(u64_at(24)) << 64;
        let (incarnation, base) = (u64_at(32), u64_at(48));
        let identity =
            u128::from(seed(database_id, incarnation)) << 64 | u128::from(seed(!database_id, incarnation));
        let record = &mut bytes[4096 + (address - base) as usize..];
        edit(record);
        let hash = checksum(0, &record[32..32 + length]);
        put(record, 8, &hash.to_le_bytes());
        let sum = checksum(seed(identity, address), &record[8..32]);
        put(record, 0, &sum.to_le_bytes());
    });
    path
}

#[test]
fn log_record_of_a_newer_kind() {
    let fs = golden();
    let path = change_last_record(&fs, |record| record[16] = 9);
    refused(&fs, &path, 9);
}

#[test]
fn operation_of_a_newer_kind_in_a_log_record() {
    let fs = golden();
    let path = change_last_record(&fs, |record| record[32] = 77);
    refused(&fs, &path, 77);
}

#[test]
fn table() {
    let fs = golden();
    let path = find(&fs, |name| name.ends_with(".sst"));
    change(&fs, &path, |bytes| {
        let at = bytes.len() - 16;
        put(bytes, at, &6u32.to_le_bytes());
        put(bytes, at + 4, &(!6u32).to_le_bytes());
    });
    refused(&fs, &path, 6);
}
