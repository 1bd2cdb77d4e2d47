//! The flights of the README, loaded and then read through the row layer.

use std::path::Path;

use alluvium::row::{DynamicRow, MapBatch, MapStore, Store, StoreBatch, Table, TableDefinition, Value};
use alluvium_tools::load::summary::Rows;

use crate::support::{ROOMY, Run};

const OPTIONS: [&str; 12] = [
    "--primary-key",
    "time_hour,carrier,flight,origin",
    "--null",
    "NA",
    "--index",
    "by_tail=tailnum,time_hour:desc",
    "--index",
    "by_route=origin,dest;include=carrier,arr_delay",
    "--index",
    "by_dest=dest:2",
    "--unique-index",
    "by_key=time_hour,carrier,flight,origin,tailnum",
];

/// Loads the sample and puts the entries where the row layer finds them.
fn table(run: &Run) -> Table<MapStore, DynamicRow> {
    let schema = run.plan().unwrap().schema;
    let (summary, targets) = run.load().unwrap();
    assert_eq!(summary.rows, Rows { read: 22_353, loaded: 22_353, rejected: 0, superseded: 0 });
    let store = MapStore::new();
    let definition = TableDefinition::allocate(&store, schema).unwrap();
    let mut batch = MapBatch::default();
    for (keyspace, entries) in definition.keyspaces().zip(&targets) {
        assert_eq!(entries.len(), 22_353);
        entries.iter().for_each(|(key, value)| batch.put(keyspace, key, value).unwrap());
    }
    store.apply(&batch, ()).unwrap();
    store.catalog_change(&definition.creation()).unwrap();
    Table::open(&store, "flights-sample").unwrap()
}

#[test]
fn every_index_agrees_with_the_rows_and_gives_the_right_answers() {
    let mut run = Run::new(Path::new("testdata"), &OPTIONS, &["flights-sample.csv.gz"]);
    run.directory = std::env::temp_dir();
    let table = table(&run);
    let check = table.check_indexes().unwrap();
    assert!(check.is_clean(), "{check:?}");
    let tail = |value: Value| table.scan().index("by_tail").eq(value).count().unwrap();
    assert_eq!(tail(Value::Null), 114);
    assert_eq!(tail("N722MQ".into()), 37);
    assert_eq!(table.scan().index("by_dest").eq("SEA").count().unwrap(), 256);
    let to_seattle =
        ["EWR", "JFK", "LGA"].map(|from| table.scan().index("by_route").eq((from, "SEA")).count().unwrap());
    assert_eq!(to_seattle.iter().sum::<u64>(), 256);
    assert_eq!(table.scan().index("by_key").count().unwrap(), 22_353);
    assert_eq!(table.scan().reverse().count().unwrap(), 22_353);
}

#[test]
fn the_types_are_those_that_a_person_would_choose() {
    let run = Run::new(Path::new("testdata"), &OPTIONS, &["flights-sample.csv.gz"]);
    let plan = run.plan().unwrap();
    let types: Vec<String> =
        plan.columns.iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
    assert_eq!(
        types.join(", "),
        "year i64, month i64, day i64, dep_time i64, sched_dep_time i64, dep_delay i64, arr_time i64, \
         sched_arr_time i64, arr_delay i64, carrier text, flight i64, tailnum text, origin text, dest text, \
         air_time i64, distance i64, hour i64, minute i64, time_hour timestamp"
    );
    assert_eq!(plan.estimated_rows.map(|rows| (20_000..25_000).contains(&rows)), Some(true));
}

#[test]
fn little_memory_gives_the_same_files() {
    let mut run = Run::new(Path::new("testdata"), &OPTIONS, &["flights-sample.csv.gz"]);
    run.directory = std::env::temp_dir();
    let (_, in_memory) = run.load().unwrap();
    run.budget.runs_bytes = 256 << 10;
    run.budget.buffer_bytes = 32 << 10;
    run.budget.fan_in = 3;
    let (summary, spilled) = run.load().unwrap();
    assert!(summary.spilled_bytes > ROOMY.block_bytes as u64, "{}", summary.spilled_bytes);
    assert!(in_memory == spilled);
}
