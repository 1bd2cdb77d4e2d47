//! Sixteen threads of put, update and delete on a hundred rows with four indexes, one of them unique: the indexes agree
//! with the table, and no update of a counter is lost.
//!
//! The short form runs two seconds, the long form a minute: `ALLUVIUM_SECONDS=60`.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alluvium::base::random::Random;
use alluvium::{Db, Durability, ErrorKind, Index, Options, Schema, Table, Type, Value};

const THREADS: u64 = 16;
const ROWS: u64 = 100;

fn schema() -> Schema {
    Schema::table("hot")
        .column("id", Type::U64)
        .column("owner", Type::Text)
        .column("counter", Type::I64)
        .nullable("note", Type::Bytes)
        .column("at", Type::Timestamp)
        .primary_key(["id"])
        .index(Index::on("by_owner").asc("owner").unique())
        .index(Index::on("by_counter").desc("counter").include(["note"]))
        .index(Index::on("by_note").prefix("note", 3))
        .index(Index::on("by_time").asc("at").asc("owner"))
        .build()
        .expect("a valid schema")
}

/// What one thread did to the counters: increments that were acknowledged.
fn hammer(
    db: &Db,
    table: &Table,
    seed: u64,
    until: Instant,
    counted: &[AtomicU64],
    violations: &AtomicU64,
) -> u64 {
    let mut random = Random::new(seed);
    let mut commits = 0;
    while Instant::now() < until {
        // Rows 0 to 49 are only updated, so that their counters can be checked; the others come and go.
        let id = random.below(ROWS);
        let mut batch = db.batch().expect("batch");
        let fixed = id < ROWS / 2;
        let owner = if fixed { format!("fixed {id}") } else { format!("owner {}", random.below(ROWS)) };
        let note = if random.one_in(3) { Value::from(vec![b'n'; random.index(6)]) } else { Value::Null };
        if fixed || random.one_in(3) {
            batch
                .update(table, id, move |row| {
                    let Value::Int(counter) = *row.get("counter")? else { panic!("a counter") };
                    row.set("counter", counter + 1)?;
                    row.set("note", note)
                })
                .expect("update");
        } else if random.one_in(2) {
            batch.delete(table, id).expect("delete");
        } else {
            let at = alluvium::row::Timestamp::from_micros(random.below(1 << 40) as i64).expect("in range");
            let values = [Value::from(id), Value::from(owner), Value::from(0i64), note, Value::from(at)];
            batch.put(table, &table.row_of(values).expect("row")).expect("put");
        }
        let durability = if random.one_in(50) { Durability::Sync } else { Durability::Buffered };
        match batch.commit(durability) {
            Ok(()) => {
                commits += 1;
                if fixed {
                    counted[id as usize].fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::UniqueViolation { .. } => {
                    violations.fetch_add(1, Ordering::Relaxed);
                }
                ErrorKind::NotFound { .. } => {}
                _ => panic!("{error:?}"),
            },
        }
    }
    commits
}

#[test]
fn indexes_agree_and_no_update_is_lost() {
    let seconds = std::env::var("ALLUVIUM_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options {
        memory_bytes: Some(8 << 20),
        memtable_bytes: Some(512 << 10),
        table_bytes: 256 << 10,
        base_level_bytes: 512 << 10,
        ..Options::default()
    };
    let db = Db::open(directory.path(), options).expect("opens");
    let table = db.create_table(schema()).expect("table");
    let mut batch = db.batch().expect("batch");
    for id in 0..ROWS / 2 {
        let at = alluvium::row::Timestamp::from_micros(id as i64).expect("in range");
        let owner = Value::from(format!("fixed {id}"));
        let values = [Value::from(id), owner, Value::from(0i64), Value::Null, Value::from(at)];
        batch.insert(&table, &table.row_of(values).expect("row")).expect("insert");
    }
    batch.commit(Durability::Sync).expect("commit");
    let counted: Vec<AtomicU64> = (0..ROWS / 2).map(|_| AtomicU64::new(0)).collect();
    let violations = AtomicU64::new(0);
    let until = Instant::now() + Duration::from_secs(seconds);
    let commits: u64 = std::thread::scope(|scope| {
        let (db, table, counted, violations) = (&db, &table, &counted, &violations);
        let threads: Vec<_> = (0..THREADS)
            .map(|seed| scope.spawn(move || hammer(db, table, seed, until, counted, violations)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let check = table.check_indexes().expect("readable");
    assert!(check.is_clean(), "{check:?}");
    for (id, counted) in counted.iter().enumerate() {
        let row = table.get(id as u64).expect("get").expect("fixed rows stay");
        let expected = Value::from(counted.load(Ordering::Relaxed) as i64);
        assert_eq!(row.get("counter").expect("column"), &expected, "row {id} lost an update");
    }
    assert!(commits > 0 && violations.load(Ordering::Relaxed) > 0, "the threads never met");
    println!("{commits} commits, {violations:?} unique violations in {seconds} s");
    drop(table);
    db.close(Duration::from_secs(10)).expect("closes");
}
