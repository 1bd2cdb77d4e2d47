//! Defects that were found and fixed, each named after what went wrong.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::time::Duration;

use alluvium::base::clock::Clock;
use alluvium::base::fs::fault::{Action, Failure, FaultFs, Rule};
use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::fs::operation::Operation;
use alluvium::base::sync::enter_simulation;
use alluvium::{Db, Durability, Environment, ErrorKind, Options, Schema, Type, Value};

const DIRECTORY: &str = "/db";

fn small() -> Options {
    Options {
        memory_bytes: Some(1 << 20),
        memtable_bytes: Some(16 << 10),
        immutable_memtables_max: 1,
        log_segment_bytes: 64 << 10,
        log_ring_bytes: 128 << 10,
        ..Options::default()
    }
}

fn numbers(db: &Db, name: &str) -> alluvium::Table {
    let schema = Schema::table(name).column("id", Type::I64).column("text", Type::Text).primary_key(["id"]);
    db.create_table(schema.build().unwrap()).unwrap()
}

#[test]
fn a_durable_commit_that_changed_nothing_did_not_make_earlier_ones_durable() {
    let fs = MemoryFs::new();
    {
        let (environment, executor, _) = Environment::simulated(fs.process().shared(), 1);
        let _simulation = enter_simulation(executor);
        let db = Db::open_in(environment, Path::new(DIRECTORY), small()).unwrap();
        let table = numbers(&db, "t");
        let keyspace = db.keyspace("k").unwrap();
        keyspace.put(b"key", b"value", Durability::Buffered).unwrap();
        let mut batch = db.batch().unwrap();
        batch.delete(&table, 1).unwrap();
        batch.commit(Durability::Sync).unwrap();
        fs.power_loss(1);
    }
    let (environment, executor, _) = Environment::simulated(fs.process().shared(), 2);
    let _simulation = enter_simulation(executor);
    let db = Db::open_in(environment, Path::new(DIRECTORY), small()).unwrap();
    assert_eq!(db.keyspace("k").unwrap().get(b"key").unwrap().as_deref(), Some(b"value".as_slice()));
}

#[test]
fn a_writer_waited_for_ever_while_flushes_failed() {
    let fs = MemoryFs::new();
    let faults = FaultFs::over_memory(&fs.process());
    let (environment, executor, clock) = Environment::simulated(faults.shared(), 1);
    let _simulation = enter_simulation(executor);
    let db = Db::open_in(environment, Path::new(DIRECTORY), small()).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    faults.add(Rule::new(Action::Fail(Failure::DiskFull)).on(&[Operation::Create]).path_ends_with(".sst"));
    let refused = (0..1000u32)
        .find_map(|number| keyspace.put(&number.to_be_bytes(), &[7; 1000], Durability::Buffered).err())
        .unwrap();
    assert!(matches!(refused.kind(), ErrorKind::DiskFull { .. }), "{refused}");
    assert!(refused.to_string().contains("writers are stopped until flush works again"), "{refused}");
    assert!(clock.monotonic_nanos() < 60_000_000_000, "it took {} ns to say so", clock.monotonic_nanos());
    faults.remove_all();
    keyspace.put(b"after", b"", Durability::Sync).unwrap();
}

#[test]
fn housekeeping_spun_while_a_failed_log_waited_for_a_flush_to_be_retried() {
    let fs = MemoryFs::new();
    let faults = FaultFs::over_memory(&fs.process());
    let (environment, executor, clock) = Environment::simulated(faults.shared(), 1);
    let _simulation = enter_simulation(executor.clone());
    let db = Db::open_in(environment, Path::new(DIRECTORY), small()).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    faults.add(Rule::new(Action::Fail(Failure::Io)).on(&[Operation::Sync]));
    keyspace.put(b"key", b"value", Durability::Sync).unwrap_err();
    let quanta = executor.run(10_000);
    assert!(quanta < 1000, "{quanta} quanta without any time passing");
    faults.remove_all();
    let resumed = (0..100).any(|_| {
        clock.advance(Duration::from_millis(100));
        executor.run(100);
        keyspace.put(b"key", b"value", Durability::Sync).is_ok()
    });
    assert!(resumed);
}

#[test]
fn a_batch_took_rows_for_a_table_of_another_database() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (a, b) = (Db::open(&one, small()).unwrap(), Db::open(&two, small()).unwrap());
    let (of_a, of_b) = (numbers(&a, "orders"), numbers(&b, "users"));
    let row = of_a.row_of([Value::from(1i64), Value::from("a")]).unwrap();
    let mut batch = b.batch().unwrap();
    assert!(batch.insert(&of_a, &row).unwrap_err().to_string().contains("table orders belongs to another"));
    assert!(batch.delete(&of_a, 1).is_err());
    assert!(batch.is_empty());
    let mut transaction = b.transaction(alluvium::Isolation::Snapshot).unwrap();
    assert!(transaction.get(&of_a, 1).is_err());
    assert!(transaction.put(&of_a, &row).is_err());
    assert!(transaction.delete(&of_a, 1).is_err());
    assert!(transaction.put(&of_b, &of_b.row_of([Value::from(1i64), Value::from("b")]).unwrap()).is_ok());
    // Another handle of the same database is no stranger.
    let mut batch = a.clone().batch().unwrap();
    batch.insert(&a.table("orders").unwrap(), &row).unwrap();
    batch.commit(Durability::Buffered).unwrap();
}

#[test]
fn a_snapshot_of_another_database_gave_wrong_answers() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (a, b) = (Db::open(&one, small()).unwrap(), Db::open(&two, small()).unwrap());
    let keyspace = b.keyspace("k").unwrap();
    keyspace.put(b"x", b"1", Durability::Buffered).unwrap();
    let table = numbers(&b, "t");
    let foreign = a.snapshot().unwrap();
    assert!(matches!(keyspace.get_at(&foreign, b"x").unwrap_err().kind(), ErrorKind::InvalidArgument { .. }));
    assert!(keyspace.range_at(&foreign, b"a".as_slice()..b"z").is_err());
    assert!(table.get_at(&foreign, 1).is_err());
    assert!(table.scan().at(&foreign).run().is_err());
    let own = b.snapshot().unwrap();
    assert_eq!(keyspace.get_at(&own, b"x").unwrap().as_deref(), Some(b"1".as_slice()));
}

#[test]
fn half_a_file_of_the_log_was_left_on_a_full_disk() {
    // Room for half of the ring, then for the ring and half of a segment.
    half_a_file_is_removed(100 << 10);
    half_a_file_is_removed(180 << 10);
}

fn half_a_file_is_removed(room: u64) {
    let fs = MemoryFs::new();
    fs.set_capacity(Some(room));
    let (environment, executor, _) = Environment::simulated(fs.process().shared(), 1);
    let _simulation = enter_simulation(executor);
    let opened = Db::open_in(environment, Path::new(DIRECTORY), small());
    assert!(opened.is_err(), "there is no room for ring and segment");
    let left = fs.files();
    assert!(left.iter().all(|path| path.extension().is_none_or(|ending| ending != "tmp")), "{left:?}");
}

#[test]
fn an_open_that_failed_after_its_workers_had_started_kept_the_directory_locked() {
    let closed = MemoryFs::new();
    {
        let (environment, executor, _) = Environment::simulated(closed.process().shared(), 1);
        let _simulation = enter_simulation(executor);
        drop(Db::open_in(environment, Path::new(DIRECTORY), small()).unwrap());
    }
    let mut failures = 0;
    for call in 0..200 {
        let fs = closed.fork();
        let faults = FaultFs::over_memory(&fs.process());
        let (environment, executor, _) = Environment::simulated(faults.shared(), 2);
        let _simulation = enter_simulation(executor);
        let rule = faults.add(Rule::new(Action::Fail(Failure::Io)).from_call(call).times(1));
        failures += u32::from(Db::open_in(environment.clone(), Path::new(DIRECTORY), small()).is_err());
        faults.remove(rule);
        Db::open_in(environment, Path::new(DIRECTORY), small())
            .unwrap_or_else(|error| panic!("after a failure at call {call}: {error}"));
    }
    assert!(failures > 10, "{failures}");
}
