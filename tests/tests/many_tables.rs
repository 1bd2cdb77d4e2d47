//! Four thousand tables of a hundred rows each: they share files, and filling them is not much slower than filling one.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use alluvium::{Db, Durability, Options, Schema, Table, Type, Value};

const ROWS: u64 = 100;

fn table(db: &Db, number: usize) -> Table {
    let schema = Schema::table(format!("table{number:05}"))
        .column("id", Type::U64)
        .column("text", Type::Text)
        .primary_key(["id"])
        .build();
    db.create_table(schema.expect("a valid schema")).expect("table")
}

fn fill(db: &Db, table: &Table, ids: std::ops::Range<u64>) {
    let mut batch = db.batch().expect("batch");
    for id in ids {
        let text = format!("the text of row {id}, which is about as long as a row is");
        batch
            .insert(table, &table.row_of([Value::from(id), Value::from(text)]).expect("row"))
            .expect("insert");
    }
    batch.commit(Durability::Buffered).expect("commit");
}

#[test]
fn small_tables_share_files() {
    let tables = std::env::var("ALLUVIUM_TABLES").ok().and_then(|text| text.parse().ok()).unwrap_or(4000);
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), Options::default()).expect("opens");
    let handles: Vec<Table> = (0..tables).map(|number| table(&db, number)).collect();
    let start = std::time::Instant::now();
    handles.iter().for_each(|table| fill(&db, table, 0..ROWS));
    let many = start.elapsed();
    db.compact(None).expect("compacts");
    db.wait_until_settled().expect("settles");
    let files = db.files().expect("open").len();
    assert!(files <= 50, "{tables} tables of {ROWS} rows lie in {files} files");
    for table in handles.iter().step_by(97) {
        assert_eq!(table.scan().count().expect("count"), ROWS);
    }
    drop(handles);
    drop(db);
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), Options::default()).expect("opens");
    let one = table(&db, 0);
    let start = std::time::Instant::now();
    (0..tables as u64).for_each(|n| fill(&db, &one, n * ROWS..(n + 1) * ROWS));
    let single = start.elapsed();
    // Told, not asserted: time is no matter for a test.
    println!(
        "{files} files; {tables} tables filled at {:.2} × the rate of one",
        single.as_secs_f64() / many.as_secs_f64()
    );
}
