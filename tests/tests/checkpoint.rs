//! Checkpoints: consistent while threads write, and never half a database, wherever a crash or a failing call hits.
//!
//! The short form crashes at every 7th call that changes something, the long form at every one: `ALLUVIUM_STRIDE=1`.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use alluvium::base::fs::Fs;
use alluvium::base::fs::fault::{Action, Failure, FaultFs, Rule};
use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::sync::enter_simulation;
use alluvium::{Db, Durability, Environment, Error, Keyspace, Options, WriteBatch};

const LIVE: &str = "/live";
const COPY: &str = "/copies/one";
const INCOMPLETE: &str = "/copies/one.incomplete";
const NUMBER: &[u8] = b"number of the last batch";

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

fn stride() -> usize {
    std::env::var("ALLUVIUM_STRIDE").ok().and_then(|text| text.parse().ok()).unwrap_or(7)
}

fn write(db: &Db, keyspace: &Keyspace, history: &mut Vec<Map>, n: u64) {
    let mut batch = WriteBatch::new();
    let mut state = history.last().cloned().unwrap_or_default();
    for i in 0..4 {
        let key = format!("key{:03}", (n * 13 + i * 29) % 80).into_bytes();
        if (n + i).is_multiple_of(6) {
            batch.delete(keyspace, &key).expect("delete");
            state.remove(&key);
        } else {
            let value = format!("value {n}/{i} {}", "z".repeat(300)).into_bytes();
            batch.put(keyspace, &key, &value).expect("put");
            state.insert(key, value);
        }
    }
    batch.put(keyspace, NUMBER, &n.to_be_bytes()).expect("put");
    state.insert(NUMBER.to_vec(), n.to_be_bytes().to_vec());
    db.write(&batch, Durability::Buffered).expect("written");
    history.push(state);
}

fn read(db: &Db) -> Result<Map, Error> {
    let mut found = Map::new();
    let mut iter = db.keyspace("a")?.iter()?;
    while iter.next()? {
        found.insert(iter.key().to_vec(), iter.value().to_vec());
    }
    Ok(found)
}

/// Opens what is in a directory; never creates anything.
fn open(fs: &MemoryFs, directory: &str) -> Result<Map, Error> {
    let (environment, executor, _) = Environment::simulated(fs.process().shared(), 3);
    let _simulation = enter_simulation(executor);
    let options = Options { create_if_missing: false, ..options() };
    read(&Db::open_in(environment, Path::new(directory), options)?)
}

/// Runs `act` on a database of some levels, with its last writes in the log; returns the history of its states.
fn with_database(fs: &FaultFs, act: impl FnOnce(&Db, &[Map])) -> Vec<Map> {
    let (environment, executor, _) = Environment::simulated(fs.shared(), 11);
    let _simulation = enter_simulation(executor);
    let db = Db::open_in(environment, Path::new(LIVE), options()).expect("opens");
    let keyspace = db.keyspace("a").expect("keyspace");
    let mut history = Vec::new();
    for n in 0..120 {
        write(&db, &keyspace, &mut history, n);
    }
    act(&db, &history);
    history
}

/// What a crash has left must be nothing, or the whole checkpoint.
fn check_after_crash(fs: &MemoryFs, expected: &Map, what: &str) -> bool {
    let mut complete = false;
    for directory in [COPY, INCOMPLETE] {
        match open(fs, directory) {
            Ok(found) => {
                assert!(found == *expected, "{what}: {directory} opens as a database that never was");
                complete |= directory == COPY;
            }
            Err(error) => assert!(
                directory == INCOMPLETE || !fs.exists(Path::new(COPY)).expect("asked"),
                "{what}: {directory} is half a database: {error}"
            ),
        }
    }
    let live = open(fs, LIVE).unwrap_or_else(|error| panic!("{what}: the database is damaged: {error}"));
    assert!(live == *expected, "{what}: the database has changed");
    complete
}

#[test]
fn a_crash_at_any_call_leaves_no_half_checkpoint() {
    let memory = MemoryFs::new();
    let faults = FaultFs::over_memory(&memory.process());
    let forks: Arc<Mutex<Vec<MemoryFs>>> = Arc::default();
    let history = with_database(&faults, |db, _| {
        // Everything is durable, so that every crash must leave the same state.
        db.sync().expect("synced");
        let (forks, memory) = (Arc::clone(&forks), memory.clone());
        let callback = Arc::new(move |_: alluvium::base::fs::fault::Call<'_>| {
            forks.lock().expect("lock").push(memory.fork());
        });
        let rule = faults.add(Rule::new(Action::Call(callback)).on_changes());
        db.checkpoint(COPY).expect("checkpoint");
        faults.remove(rule);
    });
    let expected = history.last().expect("never empty");
    let forks = std::mem::take(&mut *forks.lock().expect("lock"));
    assert!(forks.len() > 40, "the checkpoint changes {} things", forks.len());
    let mut complete = 0;
    for (call, fork) in forks.iter().enumerate().step_by(stride()) {
        for seed in 0..4 {
            let crashed = fork.fork();
            crashed.power_loss(call as u64 * 10 + seed);
            let what = format!("power loss {seed} at call {call}");
            complete += usize::from(check_after_crash(&crashed, expected, &what));
            // What is left is in nobody's way.
            let other = with_reopened(&crashed, |db| db.checkpoint("/copies/two").map(|_| ()));
            other.unwrap_or_else(|error| panic!("{what}: no other checkpoint: {error}"));
            if !crashed.exists(Path::new(COPY)).expect("asked") {
                let again = with_reopened(&crashed, |db| db.checkpoint(COPY).map(|_| ()));
                again.unwrap_or_else(|error| panic!("{what}: no second attempt: {error}"));
                assert!(open(&crashed, COPY).expect("opens") == *expected, "{what}: the second attempt");
            }
        }
    }
    println!("{} places to crash at, {complete} crashes left the whole checkpoint", forks.len());
    // When the call has returned, nothing can take it away.
    for seed in 0..20 {
        let crashed = memory.fork();
        crashed.power_loss(seed);
        assert!(check_after_crash(&crashed, expected, "after the checkpoint"), "seed {seed} lost it");
    }
}

fn with_reopened(fs: &MemoryFs, act: impl FnOnce(&Db) -> Result<(), Error>) -> Result<(), Error> {
    let (environment, executor, _) = Environment::simulated(fs.process().shared(), 4);
    let _simulation = enter_simulation(executor);
    act(&Db::open_in(environment, Path::new(LIVE), options())?)
}

#[test]
fn a_failing_call_fails_the_checkpoint_only() {
    for failure in [Failure::Io, Failure::DiskFull] {
        let mut call = 0;
        let mut failed = 0;
        loop {
            let memory = MemoryFs::new();
            let faults = FaultFs::over_memory(&memory.process());
            let mut over = false;
            with_database(&faults, |db, history| {
                let what = format!("{failure:?} at call {call}");
                let expected = history.last().expect("never empty");
                let rule = faults.add(Rule::new(Action::Fail(failure)).from_call(call).times(1));
                let made = db.checkpoint(COPY);
                over = faults.matched(rule) <= call;
                faults.remove_all();
                let exists = faults.exists(Path::new(COPY)).expect("asked");
                assert!(exists || made.is_err(), "{what}: it is said to be there");
                failed += usize::from(made.is_err());
                if !exists {
                    db.checkpoint(COPY).unwrap_or_else(|error| panic!("{what}: not again: {error}"));
                }
                assert!(read(db).expect("readable") == *expected, "{what}: the database has changed");
                assert!(open(&memory, COPY).expect("opens") == *expected, "{what}: a wrong checkpoint");
            });
            if over {
                break;
            }
            call += stride() as u64;
        }
        assert!(failed > 2, "{failed} checkpoints failed");
        println!("{failure:?}: {call} calls, {failed} checkpoints failed");
    }
}

#[test]
fn checkpoints_beside_writing_threads_are_states_between_two_commits() {
    const WRITERS: u64 = 4;
    let folder = tempfile::tempdir().expect("folder");
    let db = Db::open(folder.path().join("live"), options()).expect("opens");
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    /// Ends the writers also when a check fails; else the scope would wait for them forever.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let keys = |writer: u64| (0..5u64).map(move |key| format!("{writer}/{key}").into_bytes());
    let mut written = 0;
    std::thread::scope(|scope| {
        for (writer, acknowledged) in (0..WRITERS).zip(&acknowledged) {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                let keyspace = db.keyspace("a").expect("keyspace");
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let mut batch = WriteBatch::new();
                    for key in keys(writer) {
                        let value = [n.to_be_bytes().as_slice(), &[b'v'; 100]].concat();
                        batch.put(&keyspace, &key, &value).expect("put");
                    }
                    db.write(&batch, Durability::Buffered).expect("written");
                    acknowledged.store(n, Ordering::SeqCst);
                }
            });
        }
        let _stop = Stop(&stop);
        for round in 0..12 {
            let before: Vec<u64> = acknowledged.iter().map(|n| n.load(Ordering::SeqCst)).collect();
            let directory = folder.path().join(format!("copy{round}"));
            let made = db.checkpoint(&directory).expect("checkpoint");
            let copy = Db::open(&directory, options()).expect("the checkpoint opens");
            assert_eq!(made.copied_files, 0, "the same file system");
            let found = read(&copy).expect("readable");
            for writer in 0..WRITERS {
                let numbers: Vec<Option<u64>> = keys(writer)
                    .map(|key| {
                        let value = found.get(&key)?;
                        Some(u64::from_be_bytes(value[..8].try_into().expect("eight bytes")))
                    })
                    .collect();
                assert!(numbers.iter().all(|n| *n == numbers[0]), "half a commit: {numbers:?}");
                let at_least = before[writer as usize];
                assert!(numbers[0].unwrap_or(0) >= at_least, "{numbers:?}, but {at_least} was acknowledged");
            }
            assert!(copy.verify(true).expect("verified").problems.is_empty());
            written = acknowledged.iter().map(|n| n.load(Ordering::SeqCst)).sum();
        }
    });
    println!("{written} commits beside 12 checkpoints");
    assert!(written > 100, "the writers wrote meanwhile");
}
