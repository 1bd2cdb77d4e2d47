//! The golden database: small, with something of everything that the format has, written by a script of steps and kept in
//! `tests/testdata/golden/v{format}/`. The same script, played into plain maps, says what must be read from it.
//!
//! It is written in simulation, so that the same build writes the same bytes, and it ends in a kill of the process, so
//! that the log and its ring are needed to read it:
//!
//! - tables of each compression in two levels, with versions, tombstones, range tombstones, filters;
//! - two keyspaces and a dropped one; a table with every type, a unique, a descending, a covering and a prefix index,
//!   rows from before and after a column was added and another dropped;
//! - a manifest of a snapshot and many edits, of several incarnations;
//! - records in the log that are in no table: synced ones in a segment, and after them some that only the ring has.
#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests: what does not work fails the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::fs::{Fs, OpenMode};
use alluvium::base::sync::{SimulationGuard, enter_simulation};
use alluvium::row::alter_table;
use alluvium::{
    Compression, Db, Durability, Environment, Error, Index, Options, Result, Schema, Table, Type, Value,
};

/// Where the golden database lies in a [`MemoryFs`].
pub const DIRECTORY: &str = "/golden";

/// The format that this build writes: the folder of its golden files.
pub const VERSION: u32 = 1;

/// The folder of the golden files of a format.
#[must_use]
pub fn folder(version: u32) -> PathBuf {
    crate::sources::root().join(format!("tests/testdata/golden/v{version}"))
}

/// Options that make every file small.
#[must_use]
pub fn options(compression: Compression) -> Options {
    Options {
        memory_bytes: Some(2 << 20),
        memtable_bytes: Some(128 << 10),
        table_bytes: 8 << 10,
        base_level_bytes: 32 << 10,
        level0_compaction_trigger: 32,
        block_bytes: 512,
        compression,
        compaction_threads: 1,
        log_segment_bytes: 64 << 10,
        log_ring_bytes: 128 << 10,
        buffered_sync_interval: Duration::from_secs(3600),
        ..Options::default()
    }
}

/// What is done to the database, one after the other.
#[derive(Clone, Debug)]
enum Step {
    Put(&'static str, Vec<u8>, Vec<u8>),
    Delete(&'static str, Vec<u8>),
    DeleteRange(&'static str, Vec<u8>, Vec<u8>),
    PutRow(Vec<Value>),
    DeleteRow(u64),
    /// Adds the column `added` and drops the column `gone`.
    ChangeColumns,
    DropKeyspace(&'static str),
    Flush,
    Compact,
    /// Closes the database and opens it with this compression.
    Reopen(Compression),
    /// Everything before is durable; what follows is in the ring only.
    BufferedFromHere,
}

/// A column's type, and the text of its value in row `n`.
type GoldenColumn = (Type, fn(u64) -> String);

/// Types of the columns `c00`, `c01`, … and a text of each row's value.
const COLUMNS: [GoldenColumn; 17] = [
    (Type::Bool, |n| (n % 2 == 0).to_string()),
    (Type::I8, |n| (n as i8).to_string()),
    (Type::I16, |n| (n as i16 - 20).to_string()),
    (Type::I32, |n| (n as i32 * -1000).to_string()),
    (Type::I64, |n| (n as i64 - 5).to_string()),
    (Type::U8, |n| (n as u8).to_string()),
    (Type::U16, |n| (n * 3).to_string()),
    (Type::U32, |n| (n << 20).to_string()),
    (Type::F32, |n| format!("{}.5", n)),
    (Type::F64, |n| format!("-{}.25", n)),
    (Type::Decimal { precision: 12, scale: 2 }, |n| format!("{n}.07")),
    (Type::Text, |n| format!("näme {}", n % 7)),
    (Type::Date, |n| format!("2013-01-{:02}", n % 28 + 1)),
    (Type::Time, |n| format!("{:02}:05:06.000007", n % 24)),
    (Type::Timestamp, |n| format!("2026-12-01 00:{:02}:00", n % 60)),
    (Type::Uuid, |n| format!("67e55044-10b1-426f-9247-{n:012}")),
    (Type::Json, |n| format!("{{\"n\":{n}}}")),
];

fn schema() -> Result<Schema> {
    let mut builder = Schema::table("rows").column("id", Type::U64);
    for (number, (ty, _)) in COLUMNS.iter().enumerate() {
        builder = builder.nullable(format!("c{number:02}"), *ty);
    }
    builder
        .nullable("gone", Type::Bytes)
        .primary_key(["id"])
        .index(Index::on("unique").asc("c04").unique())
        .index(Index::on("descending").desc("c10").asc("c14"))
        .index(Index::on("covering").asc("c11").include(["c03", "c16"]))
        .index(Index::on("prefix").prefix("c11", 3))
        .build()
}

/// The values of row `id` in its `edition`, as a table whose last column is `last` has them.
fn row(id: u64, edition: u64, last: Value) -> Vec<Value> {
    let parse = |number: usize, (ty, text): &GoldenColumn| {
        // Every row has a NULL somewhere; the unique column has a value per row and edition.
        let n = if number == 4 { id * 10 + edition } else { id + edition };
        let null = number != 4 && (id as usize + number).is_multiple_of(COLUMNS.len());
        if null { Value::Null } else { ty.parse(&text(n)).expect("a value of the type") }
    };
    let values = COLUMNS.iter().enumerate().map(|(number, column)| parse(number, column));
    std::iter::once(Value::from(id)).chain(values).chain([last]).collect()
}

fn key(n: u64) -> Vec<u8> {
    format!("key/{n:03}").into_bytes()
}

fn value(n: u64, round: u64) -> Vec<u8> {
    format!("value {n} of round {round} ").repeat(1 + (n % 3) as usize).into_bytes()
}

fn script() -> Vec<Step> {
    let mut steps = Vec::new();
    let old = |id, edition| row(id, edition, Value::from(vec![0, id as u8, 255]));
    steps.extend((0..40).map(|n| Step::Put("events", key(n), value(n, 0))));
    steps.extend(
        (0..20u64).map(|n| Step::Put("numbers", n.to_be_bytes().to_vec(), vec![n as u8; n as usize])),
    );
    steps.extend((0..4).map(|n| Step::Put("dropped", key(n), value(n, 0))));
    steps.extend((0..16).map(|id| Step::PutRow(old(id, 0))));
    steps.extend([Step::Flush, Step::Compact, Step::Reopen(Compression::Lz4)]);
    steps.extend((30..60).map(|n| Step::Put("events", key(n), value(n, 1))));
    steps.extend((0..40).step_by(7).map(|n| Step::Delete("events", key(n))));
    steps.push(Step::DeleteRange("events", key(10), key(15)));
    steps.push(Step::DeleteRange("numbers", vec![0; 8], 3u64.to_be_bytes().to_vec()));
    steps.push(Step::Put("events", key(12), value(12, 1)));
    steps.push(Step::Put("events", b"".to_vec(), b"the empty key".to_vec()));
    steps.extend((10..14).map(|id| Step::PutRow(old(id, 1))));
    steps.extend([Step::DeleteRow(3), Step::DropKeyspace("dropped"), Step::ChangeColumns, Step::Flush]);
    steps.push(Step::Reopen(Compression::Zstd));
    let new = |id, edition| row(id, edition, Value::from(id as i64 - 3));
    steps.extend((50..70).map(|n| Step::Put("events", key(n), value(n, 2))));
    steps.push(Step::DeleteRange("events", key(58), key(63)));
    steps.extend((14..20).map(|id| Step::PutRow(new(id, 2))));
    steps.extend([Step::DeleteRow(5), Step::Flush]);
    // These are in the log only.
    steps.extend((65..75).map(|n| Step::Put("events", key(n), value(n, 3))));
    steps.extend([Step::Delete("events", key(1)), Step::DeleteRange("numbers", key(0), vec![0xff])]);
    steps.push(Step::DeleteRange("numbers", 7u64.to_be_bytes().to_vec(), 9u64.to_be_bytes().to_vec()));
    steps.extend([Step::PutRow(new(1, 3)), Step::DeleteRow(15), Step::PutRow(new(21, 3))]);
    steps.push(Step::BufferedFromHere);
    steps.extend((70..73).map(|n| Step::Put("events", key(n), value(n, 4))));
    steps.extend([Step::Delete("events", key(2)), Step::PutRow(new(22, 4)), Step::DeleteRow(0)]);
    steps
}

/// What the database holds, as plain maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    keyspaces: BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>,
    rows: BTreeMap<u64, Vec<Value>>,
}

impl Contents {
    /// What every reader must find; with `ring` also what only the ring has.
    #[must_use]
    pub fn expected(ring: bool) -> Contents {
        let mut contents = Contents::default();
        for step in script() {
            if matches!(step, Step::BufferedFromHere) && !ring {
                break;
            }
            contents.apply(step);
        }
        contents
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Put(keyspace, key, value) => {
                self.keyspaces.entry(keyspace).or_default().insert(key, value);
            }
            Step::Delete(keyspace, key) => {
                self.keyspaces.entry(keyspace).or_default().remove(&key);
            }
            Step::DeleteRange(keyspace, start, end) => {
                self.keyspaces.entry(keyspace).or_default().retain(|key, _| *key < start || *key >= end);
            }
            Step::PutRow(values) => {
                let Some(Value::UInt(id)) = values.first() else { panic!("the id comes first") };
                self.rows.insert(*id, values);
            }
            Step::DeleteRow(id) => {
                self.rows.remove(&id);
            }
            Step::ChangeColumns => {
                let added = Value::from(-1i64);
                self.rows.values_mut().for_each(|row| *row.last_mut().expect("a column") = added.clone());
            }
            Step::DropKeyspace(keyspace) => {
                self.keyspaces.remove(keyspace);
            }
            Step::Flush | Step::Compact | Step::Reopen(_) | Step::BufferedFromHere => {}
        }
    }

    /// Reads everything in every way and compares.
    ///
    /// # Errors
    /// Those of reading.
    ///
    /// # Panics
    /// If something else is read.
    pub fn check(&self, db: &Db) -> Result<()> {
        assert_eq!(db.keyspaces()?, self.keyspaces.keys().copied().collect::<Vec<_>>());
        for (name, expected) in &self.keyspaces {
            let keyspace = db.keyspace(name)?;
            let (mut forward, mut backward) = (Vec::new(), Vec::new());
            let mut iter = keyspace.iter()?;
            while iter.next()? {
                forward.push((iter.key().to_vec(), iter.value().to_vec()));
            }
            let mut iter = keyspace.iter()?;
            while iter.prev()? {
                backward.push((iter.key().to_vec(), iter.value().to_vec()));
            }
            backward.reverse();
            let pairs: Vec<_> = expected.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            assert!(forward == pairs, "{name} forward: {} entries instead of {}", forward.len(), pairs.len());
            assert!(
                backward == pairs,
                "{name} backward: {} entries instead of {}",
                backward.len(),
                pairs.len()
            );
            let asked = (0..100).map(key).chain((0..30u64).map(|n| n.to_be_bytes().to_vec())).chain([vec![]]);
            for key in asked {
                assert_eq!(keyspace.get(&key)?.as_deref(), expected.get(&key).map(Vec::as_slice), "{key:?}");
            }
        }
        self.check_rows(&db.table("rows")?)?;
        let verification = db.verify(true)?;
        assert!(verification.problems.is_empty(), "{:?}", verification.problems);
        Ok(())
    }

    fn check_rows(&self, table: &Table) -> Result<()> {
        for id in 0..30 {
            let found = table.get(id)?.map(|row| row.values().to_vec());
            assert_eq!(found.as_ref(), self.rows.get(&id), "row {id}");
        }
        let check = table.check_indexes()?;
        assert!(check.is_clean(), "{check:?}");
        for reverse in [false, true] {
            for index in [None, Some("unique"), Some("descending"), Some("covering"), Some("prefix")] {
                let mut scan = table.scan();
                if let Some(index) = index {
                    scan = scan.index(index);
                }
                let mut scan = if reverse { scan.reverse() } else { scan }.run()?;
                let mut found = BTreeMap::new();
                while let Some(row) = scan.next_row()? {
                    let values = row.values().to_vec();
                    let Some(Value::UInt(id)) = values.first() else { panic!("the id comes first") };
                    assert!(found.insert(*id, values).is_none(), "{index:?} has a row twice");
                }
                assert_eq!(found, self.rows, "through {index:?}");
            }
        }
        for n in 0..7 {
            let name = Value::from(format!("näme {n}"));
            let expected = self.rows.values().filter(|row| row[12] == name).count() as u64;
            assert_eq!(table.scan().index("covering").eq(&name).count()?, expected);
            assert_eq!(table.scan().index("prefix").eq(&name).count()?, expected);
        }
        Ok(())
    }
}

/// Opens the golden database in simulation. The guard comes first, so that it is dropped last: closing needs it.
///
/// # Errors
/// Those of opening.
pub fn open(fs: &MemoryFs, compression: Compression) -> Result<(SimulationGuard, Db)> {
    let (environment, executor, _) = Environment::simulated(fs.process().shared(), 1);
    let guard = enter_simulation(executor);
    let db = Db::open_in(environment, DIRECTORY, options(compression))?;
    Ok((guard, db))
}

/// Opens the golden database for reading, in simulation.
///
/// # Errors
/// Those of opening.
pub fn open_read_only(fs: &MemoryFs) -> Result<(SimulationGuard, Db)> {
    let (environment, executor, _) = Environment::simulated(fs.process().shared(), 1);
    let guard = enter_simulation(executor);
    let db = Db::open_read_only_in(environment, DIRECTORY, options(Compression::None))?;
    Ok((guard, db))
}

/// Plays the script with this build and kills the process.
///
/// # Errors
/// Those of the database.
pub fn write() -> Result<MemoryFs> {
    let fs = MemoryFs::new();
    let (mut guard, mut db) = open(&fs, Compression::None)?;
    let mut table = db.create_table(schema()?)?;
    let mut durability = Durability::Sync;
    for step in script() {
        match step {
            Step::Put(keyspace, key, value) => db.keyspace(keyspace)?.put(&key, &value, durability)?,
            Step::Delete(keyspace, key) => db.keyspace(keyspace)?.delete(&key, durability)?,
            Step::DeleteRange(keyspace, start, end) => {
                db.keyspace(keyspace)?.delete_range(start.as_slice()..end.as_slice(), durability)?;
            }
            Step::PutRow(values) => {
                let mut batch = db.batch()?;
                batch.put(&table, &table.row_of(values)?)?;
                batch.commit(durability)?;
            }
            Step::DeleteRow(id) => {
                let mut batch = db.batch()?;
                batch.delete(&table, id)?;
                batch.commit(durability)?;
            }
            Step::ChangeColumns => {
                alter_table(&db, "rows", |schema| {
                    schema.without_column("gone")?.with_column(
                        "added",
                        Type::I64,
                        false,
                        Some((-1i64).into()),
                    )
                })?;
                table = db.table("rows")?;
            }
            Step::DropKeyspace(keyspace) => db.drop_keyspace(keyspace)?,
            Step::Flush => db.flush()?,
            Step::Compact => db.compact(None)?,
            Step::Reopen(compression) => {
                db.close(Duration::from_secs(10))?;
                drop((table, db, guard));
                (guard, db) = open(&fs, compression)?;
                table = db.table("rows")?;
            }
            Step::BufferedFromHere => durability = Durability::Buffered,
        }
    }
    fs.process_kill();
    drop((table, db, guard));
    Ok(fs)
}

/// The golden files of a format in a file system in memory, whose boot id is that under which they were written: so the
/// ring counts.
///
/// # Errors
/// Those of the file system in memory.
///
/// # Panics
/// If the golden files cannot be read.
pub fn load(version: u32) -> Result<MemoryFs> {
    let fs = MemoryFs::new();
    fs.create_directory_all(Path::new(DIRECTORY))?;
    let folder = folder(version);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.flatten() {
        let bytes = std::fs::read(entry.path()).map_err(|error| Error::io("read", entry.path(), &error))?;
        let file = fs.open(&Path::new(DIRECTORY).join(entry.file_name()), OpenMode::CreateNew)?;
        file.write_at(&bytes, 0)?;
    }
    Ok(fs)
}
