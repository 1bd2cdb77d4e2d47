//! One failing call at every position of a scripted run: open, write, flush, compact, bulk load, close. Errors are clear,
//! nothing acknowledged is lost, and writing resumes by itself without reopening.
//!
//! The short form tries every 11th position, the long form every one: `ALLUVIUM_STRIDE=1`.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use alluvium::base::clock::Clock;
use alluvium::base::fs::fault::{Action, Failure, FaultFs, Rule};
use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::fs::operation::Operation;
use alluvium::base::sync::{Simulation, enter_simulation};
use alluvium::{Db, Durability, Environment, Error, ErrorKind, Keyspace, Options, WriteBatch};

const DIRECTORY: &str = "/db";
const NUMBER: &[u8] = b"number of the last batch";
const BATCHES: u64 = 60;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options {
        memory_bytes: Some(1 << 20),
        memtable_bytes: Some(32 << 10),
        table_bytes: 8 << 10,
        base_level_bytes: 16 << 10,
        log_segment_bytes: 64 << 10,
        log_ring_bytes: 128 << 10,
        ..Options::default()
    }
}

/// What has happened, as far as the caller was told.
struct Told {
    /// The state after every batch that happened.
    history: Vec<Map>,
    /// The newest state that was acknowledged as durable.
    durable: usize,
}

fn is_acceptable(error: &Error) -> bool {
    // Every failure names the call that failed, or says what follows from it.
    matches!(
        error.kind(),
        ErrorKind::Io { .. }
            | ErrorKind::DiskFull { .. }
            | ErrorKind::DurabilityUnknown { .. }
            | ErrorKind::AlreadyExists { .. }
            | ErrorKind::Cancelled { .. }
    )
}

fn write(keyspace: &Keyspace, db: &Db, told: &mut Told, n: u64, durability: Durability) -> Result<(), Error> {
    let mut batch = WriteBatch::new();
    let mut state = told.history.last().expect("never empty").clone();
    for i in 0..4 {
        let key = format!("key{:03}", (n * 13 + i * 29) % 80).into_bytes();
        if (n + i).is_multiple_of(6) {
            batch.delete(keyspace, &key)?;
            state.remove(&key);
        } else {
            let value = format!("value {n}/{i} {}", "y".repeat(600)).into_bytes();
            batch.put(keyspace, &key, &value)?;
            state.insert(key, value);
        }
    }
    batch.put(keyspace, NUMBER, &n.to_be_bytes())?;
    state.insert(NUMBER.to_vec(), n.to_be_bytes().to_vec());
    let result = db.write(&batch, durability);
    let unknown =
        matches!(&result, Err(error) if matches!(error.kind(), ErrorKind::DurabilityUnknown { .. }));
    if result.is_ok() || unknown {
        told.history.push(state);
    }
    if result.is_ok() && durability == Durability::Sync {
        told.durable = told.history.len() - 1;
    }
    result
}

/// The scripted run. Returns the number of errors met.
fn script(db: &Db, keyspace: &Keyspace, told: &mut Told) -> usize {
    let mut errors = 0;
    let mut count = |result: Result<(), Error>| {
        if let Err(error) = result {
            assert!(is_acceptable(&error), "{error:?}");
            errors += 1;
        }
    };
    for n in 0..BATCHES {
        let durability = if n % 3 == 0 { Durability::Sync } else { Durability::Buffered };
        count(write(keyspace, db, told, n, durability));
        match n {
            20 => count(db.flush()),
            30 => {
                let mut numbers = 0..50u8;
                let loaded = db.bulk_load_keyspace("loaded", &mut |key, value| {
                    let Some(number) = numbers.next() else { return false };
                    *key = vec![number];
                    *value = vec![number; 100];
                    true
                });
                count(loaded.map(|_| ()));
            }
            45 => count(db.compact(None)),
            _ => {}
        }
        check(keyspace, told.history.last().expect("never empty"), "while running");
    }
    errors
}

fn read(keyspace: &Keyspace) -> Result<Map, Error> {
    let mut found = Map::new();
    let mut iter = keyspace.iter()?;
    while iter.next()? {
        found.insert(iter.key().to_vec(), iter.value().to_vec());
    }
    Ok(found)
}

fn check(keyspace: &Keyspace, expected: &Map, when: &str) {
    match read(keyspace) {
        Ok(found) => assert!(found == *expected, "wrong answers {when}"),
        // The one failing call may be this read.
        Err(error) => assert!(is_acceptable(&error), "{when}: {error:?}"),
    }
}

/// Runs the script with `rule` in force; returns the number of fallible calls made and of errors met.
fn run(rule: Option<Rule>, what: &str, lose_power: bool) -> (u64, usize) {
    let fs = MemoryFs::new();
    let process = fs.process();
    let faults = FaultFs::over_memory(&process);
    if let Some(rule) = rule {
        faults.add(rule);
    }
    let mut told = Told { history: vec![Map::new()], durable: 0 };
    let mut errors = 0;
    {
        let (environment, executor, clock) = Environment::simulated(faults.shared(), 11);
        let _simulation = enter_simulation(executor.clone());
        let opened = Db::open_in(environment.clone(), Path::new(DIRECTORY), options());
        let db = opened.unwrap_or_else(|error| {
            assert!(is_acceptable(&error), "{what}: {error:?}");
            errors += 1;
            Db::open_in(environment, Path::new(DIRECTORY), options()).expect("the second open meets no fault")
        });
        let keyspace = db.keyspace("a").unwrap_or_else(|error| {
            assert!(is_acceptable(&error), "{what}: {error:?}");
            errors += 1;
            db.keyspace("a").expect("the second try meets no fault")
        });
        errors += script(&db, &keyspace, &mut told);
        // Whatever failed, writing resumes by itself, and durably.
        let resumed = (0..100).any(|attempt| {
            let written = write(&keyspace, &db, &mut told, BATCHES + attempt, Durability::Sync);
            executor.run(20);
            executor.advance(Some(Duration::from_millis(100)));
            clock.advance(Duration::from_millis(50));
            written.is_ok()
        });
        assert!(
            resumed,
            "{what}: writing does not resume: {:?}",
            db.statistics().map(|s| s.background_error)
        );
        check(&keyspace, told.history.last().expect("never empty"), "after resuming");
        let closed = db.close(Duration::from_secs(20));
        if closed.is_ok() {
            told.durable = told.history.len() - 1;
        }
        if lose_power {
            fs.power_loss(5);
        } else {
            fs.process_kill();
        }
    }
    let (environment, executor, _) = Environment::simulated(fs.process().shared(), 12);
    let _simulation = enter_simulation(executor);
    let db = Db::open_in(environment, Path::new(DIRECTORY), options())
        .unwrap_or_else(|error| panic!("{what}: does not open again: {error:?}"));
    let keyspace = db.keyspace("a").expect("keyspace");
    let found = read(&keyspace).unwrap_or_else(|error| panic!("{what}: not readable again: {error:?}"));
    let state = told.history.iter().rposition(|state| *state == found);
    let state = state.unwrap_or_else(|| panic!("{what}: a state that never was"));
    assert!(state >= told.durable, "{what}: state {state} is back, but {} was acknowledged", told.durable);
    (faults.calls().fallible(), errors)
}

fn sweep(action: impl Fn() -> Action, name: &str) {
    let stride = std::env::var("ALLUVIUM_STRIDE").ok().and_then(|text| text.parse().ok()).unwrap_or(11);
    let (calls, errors) = run(None, "without a fault", true);
    assert_eq!(errors, 0);
    assert!(calls > 300, "the script makes {calls} calls");
    let mut seen = 0;
    for call in (0..calls).step_by(stride) {
        let rule = Rule::new(action()).from_call(call).times(1);
        let (_, errors) = run(Some(rule), &format!("{name} at call {call}"), call % 2 == 0);
        seen += usize::from(errors > 0);
    }
    println!("{name}: {calls} calls, every {stride}th failed, {seen} failures reached the caller");
    assert!(seen > 0, "no failure reached anyone");
}

#[test]
fn an_input_output_error_anywhere_loses_nothing() {
    sweep(|| Action::Fail(Failure::Io), "EIO");
}

#[test]
fn a_full_disk_anywhere_loses_nothing() {
    sweep(|| Action::Fail(Failure::DiskFull), "ENOSPC");
}

#[test]
fn a_failed_sync_that_drops_what_was_written_loses_nothing() {
    sweep(|| Action::FailDroppingDirty, "a sync that drops dirty pages");
}

#[test]
fn a_failed_sync_that_evicts_what_was_written_loses_nothing() {
    sweep(|| Action::FailEvictingDirty, "a sync that evicts dirty pages");
}

#[test]
fn a_disk_that_stays_full_for_a_while_stops_writers_and_lets_readers_go_on() {
    let fs = MemoryFs::new();
    let (environment, executor, clock) = Environment::simulated(fs.process().shared(), 3);
    let _simulation = enter_simulation(executor.clone());
    let db = Db::open_in(environment, Path::new(DIRECTORY), options()).expect("opens");
    let keyspace = db.keyspace("a").expect("keyspace");
    let mut told = Told { history: vec![Map::new()], durable: 0 };
    write(&keyspace, &db, &mut told, 0, Durability::Sync).expect("written");
    fs.set_capacity(Some(fs.stored_bytes() + (20 << 10)));
    let mut refused = None;
    for n in 1..500 {
        if let Err(error) = write(&keyspace, &db, &mut told, n, Durability::Sync) {
            assert!(is_acceptable(&error), "{error:?}");
            refused = Some((n, error));
            break;
        }
    }
    let (n, error) = refused.expect("the disk is full");
    println!("batch {n}: {error}");
    check(&keyspace, told.history.last().expect("never empty"), "on a full disk");
    fs.set_capacity(None);
    let resumed = (0..100).any(|attempt| {
        let written = write(&keyspace, &db, &mut told, 1000 + attempt, Durability::Sync);
        executor.run(20);
        clock.advance(Duration::from_millis(100));
        written.is_ok()
    });
    assert!(resumed, "space has returned, but writing does not resume");
    check(&keyspace, told.history.last().expect("never empty"), "after space returned");
}

#[test]
fn a_slow_disk_delays_and_breaks_nothing() {
    let fs = MemoryFs::new();
    let faults = FaultFs::over_memory(&fs.process());
    let (environment, executor, clock) = Environment::simulated(faults.shared(), 9);
    let _simulation = enter_simulation(executor);
    let slow = Action::Delay { clock: clock.clone(), duration: Duration::from_millis(200) };
    faults.add(Rule::new(slow).on(&[Operation::Sync, Operation::Write, Operation::SyncDirectory]));
    let db = Db::open_in(environment, Path::new(DIRECTORY), options()).expect("opens");
    let keyspace = db.keyspace("a").expect("keyspace");
    let mut told = Told { history: vec![Map::new()], durable: 0 };
    assert_eq!(script(&db, &keyspace, &mut told), 0, "slowness is no error");
    assert!(clock.monotonic_nanos() > 1_000_000_000, "the disk was not slow");
}
