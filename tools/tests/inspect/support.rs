//! A small database, and a call of the command.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use alluvium::row::{Decimal, Json, Timestamp, Uuid};
use alluvium::{Db, Durability, Index, Options, Schema, Table, Type, Value};
use tempfile::TempDir;

/// What a call has given.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    /// The lines of JSON on standard output.
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}\n{self:?}"))
        };
        self.out.lines().map(parse).collect()
    }

    /// The one document on standard output.
    pub(crate) fn document(&self) -> serde_json::Value {
        let [document] = <[_; 1]>::try_from(self.json()).unwrap_or_else(|lines| panic!("{lines:?}"));
        assert_eq!(document["version"], 1);
        document
    }

    /// Fails unless all went well and nothing was said on standard error.
    pub(crate) fn fine(self) -> Answer {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{self:#?}");
        self
    }

    /// Fails unless the call ended with this code and said these things on standard error.
    pub(crate) fn refused(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:#?}");
        for part in parts {
            assert!(self.err.contains(part), "{part}: {self:#?}");
        }
    }
}

pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_alluvium-inspect"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Calls the command with these words.
pub(crate) fn call(words: &[&str]) -> Answer {
    let output = command(words).output().unwrap();
    Answer {
        code: output.status.code().expect("the command ends by itself"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A database in a folder of its own.
pub(crate) struct Sample {
    _folder: TempDir,
    pub(crate) directory: PathBuf,
}

impl Sample {
    /// Calls the command on this database.
    pub(crate) fn call(&self, words: &[&str]) -> Answer {
        let mut all = vec!["--db", self.directory.to_str().unwrap()];
        all.extend(words);
        call(&all)
    }

    /// Calls the command with words that are separated by blanks.
    pub(crate) fn ask(&self, words: &str) -> Answer {
        self.call(&words.split(' ').collect::<Vec<_>>())
    }

    pub(crate) fn open(&self) -> Db {
        Db::open(&self.directory, options()).unwrap()
    }

    /// The table files, by name.
    pub(crate) fn table_files(&self) -> Vec<PathBuf> {
        self.files(".sst")
    }

    pub(crate) fn files(&self, ending: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.directory).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.to_str().unwrap().ends_with(ending));
        paths.sort();
        paths
    }
}

pub(crate) fn options() -> Options {
    Options { log_segment_bytes: 256 << 10, log_ring_bytes: 128 << 10, ..Options::default() }
}

/// Deliveries: all that an index can do, and one row without half of its values.
pub(crate) fn deliveries() -> Schema {
    Schema::table("deliveries")
        .column("place", Type::Text)
        .column("number", Type::I32)
        .nullable("driver", Type::Text)
        .nullable("arrived", Type::Timestamp)
        .column("weight", Type::Decimal { precision: 8, scale: 2 })
        .primary_key(["place", "number"])
        .index(Index::on("by_driver").asc("driver").desc("arrived"))
        .index(Index::on("by_weight").desc("weight").include(["driver"]))
        .index(Index::on("by_place").prefix("place", 2))
        .index(Index::on("once").asc("driver").asc("arrived").unique())
        .build()
        .unwrap()
}

/// One column of each kind that shows specially.
pub(crate) fn kinds() -> Schema {
    Schema::table("kinds")
        .column("id", Type::U64)
        .nullable("flag", Type::Bool)
        .nullable("small", Type::F32)
        .nullable("raw", Type::Bytes)
        .nullable("day", Type::Date)
        .nullable("key", Type::Uuid)
        .nullable("doc", Type::Json)
        .nullable("note", Type::Text)
        .primary_key(["id"])
        .build()
        .unwrap()
}

pub(crate) const ROWS: i32 = 300;

/// Row `number` of `deliveries`.
pub(crate) fn delivery(number: i32) -> Vec<Value> {
    let place = ["Aalen", "Aachen", "Bonn"][number as usize % 3];
    let moment = Timestamp::from_micros(1_700_000_000_000_000 + i64::from(number) * 60_000_000).unwrap();
    let has_driver = number % 10 != 0;
    vec![
        Value::from(place),
        Value::from(number - 5),
        if has_driver { Value::from(format!("driver {}", number % 7)) } else { Value::Null },
        if number % 4 == 0 { Value::Null } else { Value::from(moment) },
        Value::from(Decimal::new(i64::from(number) * 25, 2)),
    ]
}

fn insert(db: &Db, table: &Table, rows: impl IntoIterator<Item = Vec<Value>>) {
    let mut batch = db.batch().unwrap();
    for row in rows {
        batch.insert(table, &table.row_of(row).unwrap()).unwrap();
    }
    batch.commit(Durability::Sync).unwrap();
}

/// Makes the tables and a plain keyspace, in table files all of them.
fn fill(db: &Db) {
    let table = db.create_table(deliveries()).unwrap();
    insert(db, &table, (0..ROWS).map(delivery));
    db.flush().unwrap();
    let kinds = db.create_table(kinds()).unwrap();
    let first = vec![
        Value::from(1u64),
        Value::from(true),
        Value::from(0.1f32),
        Value::Bytes(vec![0, 255]),
        Type::Date.parse("2024-02-29").unwrap(),
        Value::from(Uuid::from_u128(7)),
        Value::Json(Json::parse(r#"{"b": [1, null]}"#).unwrap()),
        Value::from("line\nbreak"),
    ];
    let mut second = vec![Value::Null; 8];
    (second[0], second[7]) = (Value::from(2u64), Value::from("NULL"));
    insert(db, &kinds, [first, second]);
    let events = db.keyspace("events").unwrap();
    for number in 0..20u8 {
        events.put(&[b'e', number], b"something", Durability::Buffered).unwrap();
    }
    db.flush().unwrap();
}

/// A database that was closed in order: everything is in table files.
pub(crate) fn closed() -> Sample {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("data");
    let db = Db::open(&directory, options()).unwrap();
    fill(&db);
    db.close(Duration::from_secs(30)).unwrap();
    Sample { _folder: folder, directory }
}

/// A database as a killed process leaves it: the last rows, a change and a removal are in the log only.
pub(crate) fn crashed() -> Sample {
    let folder = tempfile::tempdir().unwrap();
    let (living, directory) = (folder.path().join("living"), folder.path().join("data"));
    let db = Db::open(&living, options()).unwrap();
    fill(&db);
    // What background work is still about to change must not change while it is copied.
    db.wait_until_settled().unwrap();
    let table = db.table("deliveries").unwrap();
    insert(&db, &table, (ROWS..ROWS + 20).map(delivery));
    let mut batch = db.batch().unwrap();
    batch.delete(&table, ("Aalen", -5)).unwrap();
    batch.commit(Durability::Sync).unwrap();
    copy(&living, &directory);
    db.close(Duration::from_secs(30)).unwrap();
    std::fs::remove_dir_all(&living).unwrap();
    Sample { _folder: folder, directory }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Changes one byte of a file.
pub(crate) fn flip(path: &Path, at: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at as usize] ^= 0x55;
    std::fs::write(path, bytes).unwrap();
}
