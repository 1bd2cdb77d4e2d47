//! Damage at every 64th byte of every file: flipped, zeroed, cut off. The answer is right or an error that names a file;
//! of the log, a prefix may come back that holds everything durable. Never a wrong answer, a panic or a hang.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::sync::{SimulationGuard, enter_simulation};
use alluvium::{Compression, Db, Durability, Environment, Error, ErrorKind, Options, WriteBatch};

const DIRECTORY: &str = "/db";
const STEP: u64 = 64;
const NUMBER: &[u8] = b"number of the last batch";

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database that is about to be damaged.
struct Subject {
    fs: MemoryFs,
    /// The state after every batch.
    history: Vec<Map>,
    /// The oldest state that may come back from an undamaged log.
    durable: usize,
    /// The oldest state that may come back from a damaged one: the newest that some surviving record names as durable.
    /// After a power loss that is the sync before the last one, since only records behind a sync can name it.
    named: usize,
}

fn options() -> Options {
    Options {
        memory_bytes: Some(1 << 20),
        memtable_bytes: Some(64 << 10),
        table_bytes: 8 << 10,
        base_level_bytes: 16 << 10,
        block_bytes: 512,
        compression: Compression::Lz4,
        log_segment_bytes: 64 << 10,
        log_ring_bytes: 128 << 10,
        ..Options::default()
    }
}

/// The guard comes first, so that it is dropped last: closing needs the simulation.
fn open(fs: &MemoryFs) -> Result<(SimulationGuard, Db), Error> {
    let process = fs.process();
    let (environment, executor, _) = Environment::simulated(process.shared(), 7);
    let guard = enter_simulation(executor);
    Ok((guard, Db::open_in(environment, Path::new(DIRECTORY), options())?))
}

/// Writes tables, a log and a ring; ends in the way of `end`.
fn subject(end: impl FnOnce(&MemoryFs, Db)) -> Subject {
    let fs = MemoryFs::new();
    let (guard, db) = open(&fs).expect("opens");
    let keyspace = db.keyspace("a").expect("keyspace");
    let mut history = vec![Map::new()];
    let (mut durable, mut named) = (0, 0);
    for n in 0u64..400 {
        let mut batch = WriteBatch::new();
        let mut state = history.last().expect("never empty").clone();
        for i in 0..3 {
            let key = format!("key{:03}", (n * 7 + i * 31) % 150).into_bytes();
            if (n + i).is_multiple_of(5) {
                batch.delete(&keyspace, &key).expect("delete");
                state.remove(&key);
            } else {
                let value =
                    format!("value {n} of {i}, long enough to fill blocks {}", "x".repeat((n % 40) as usize));
                batch.put(&keyspace, &key, value.as_bytes()).expect("put");
                state.insert(key, value.into_bytes());
            }
        }
        if n % 97 == 0 {
            batch.delete_range(&keyspace, b"key010".as_slice()..b"key014").expect("delete range");
            state.retain(|key, _| !(key.as_slice() >= b"key010" && key.as_slice() < b"key014"));
        }
        batch.put(&keyspace, NUMBER, &n.to_be_bytes()).expect("put");
        state.insert(NUMBER.to_vec(), n.to_be_bytes().to_vec());
        let durability = if n % 10 == 0 { Durability::Sync } else { Durability::Buffered };
        db.write(&batch, durability).expect("write");
        history.push(state);
        if durability == Durability::Sync {
            named = durable;
            durable = history.len() - 1;
        }
        if n == 150 || n == 250 {
            db.flush().expect("flush");
        }
    }
    drop(keyspace);
    end(&fs, db);
    drop(guard);
    Subject { fs, history, durable, named }
}

fn names_a_file(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Corrupt { file, .. } | ErrorKind::UnsupportedFormat { file, .. } => file.starts_with("/"),
        // A file that is gone is no byte damage, but what remains of one may be missing its end.
        ErrorKind::Io { path, .. } => path.starts_with("/"),
        _ => false,
    }
}

/// Opens the damaged database and reads everything; panics at a wrong answer. True if there was an error.
fn check(subject: &Subject, fs: &MemoryFs, floor: usize, what: &str) -> bool {
    let fail = |error: &Error| {
        assert!(names_a_file(error), "{what}: the error names no file: {error:?}");
        true
    };
    let (_guard, db) = match open(fs) {
        Ok(opened) => opened,
        Err(error) => return fail(&error),
    };
    let keyspace = match db.keyspace("a") {
        Ok(keyspace) => keyspace,
        Err(error) => return fail(&error),
    };
    let read = || -> Result<Map, Error> {
        let mut found = Map::new();
        let mut iter = keyspace.iter()?;
        while iter.next()? {
            found.insert(iter.key().to_vec(), iter.value().to_vec());
        }
        Ok(found)
    };
    let failed = match read() {
        Ok(found) => {
            let number = found.get(NUMBER);
            let state = subject.history.iter().rposition(|state| state.get(NUMBER) == number);
            let state = state.unwrap_or_else(|| panic!("{what}: a state that never was"));
            assert!(state >= floor, "{what}: state {state} came back, but {floor} was durable");
            assert!(found == subject.history[state], "{what}: wrong answers at state {state}");
            for n in 0..150 {
                let key = format!("key{n:03}").into_bytes();
                match keyspace.get(&key) {
                    Ok(value) => {
                        assert_eq!(value.as_deref(), found.get(&key).map(Vec::as_slice), "{what}: {n}")
                    }
                    Err(error) => assert!(names_a_file(&error), "{what}: {error:?}"),
                }
            }
            false
        }
        Err(error) => fail(&error),
    };
    // Closing may fail as flushing does; it must not hang.
    let _ = db.close(Duration::from_secs(5));
    failed
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    Zero,
    Truncate,
}

fn damage(fs: &MemoryFs, path: &Path, at: u64, damage: Damage) {
    let bytes = fs.contents(path).expect("readable");
    let end = (at + STEP).min(bytes.len() as u64);
    match damage {
        Damage::Flip => {
            let byte = bytes[at as usize] ^ (1 << (at / STEP % 8));
            fs.patch(path, at, &[byte]).expect("patch");
        }
        Damage::Zero => fs.patch(path, at, &vec![0; (end - at) as usize]).expect("patch"),
        Damage::Truncate => fs.patch_len(path, at).expect("patch"),
    }
}

fn sweep(subject: &Subject) -> BTreeMap<&'static str, (usize, usize)> {
    let mut tried: BTreeMap<&'static str, (usize, usize)> = BTreeMap::new();
    assert!(!check(subject, &subject.fs.fork(), subject.durable, "undamaged"));
    let files: Vec<PathBuf> = subject.fs.files();
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let kind = match name {
            "LOCK" => continue,
            "CURRENT" => "current",
            "ring" => "ring",
            _ if name.starts_with("MANIFEST") => "manifest",
            _ if name.ends_with(".sst") => "table",
            _ => "log",
        };
        let len = subject.fs.contents(&path).expect("readable").len() as u64;
        for at in (0..len).step_by(STEP as usize) {
            for how in [Damage::Flip, Damage::Zero, Damage::Truncate] {
                let fs = subject.fs.fork();
                damage(&fs, &path, at, how);
                let floor = if kind == "log" { subject.named } else { subject.durable };
                let failed = check(subject, &fs, floor, &format!("{how:?} at {at} of {name}"));
                let count = tried.entry(kind).or_default();
                count.0 += 1;
                count.1 += usize::from(failed);
            }
        }
    }
    tried
}

#[test]
fn damage_after_an_orderly_close_is_found() {
    let mut subject = subject(|_, db| db.close(Duration::from_secs(10)).expect("closes"));
    // The close record names everything.
    (subject.durable, subject.named) = (subject.history.len() - 1, subject.history.len() - 1);
    let tried = sweep(&subject);
    println!("{tried:?}");
    for kind in ["current", "manifest", "table", "log"] {
        assert!(tried[kind].0 > 0, "no {kind} was damaged");
    }
    for kind in ["current", "manifest", "table"] {
        assert!(tried[kind].1 > 0, "no damage of a {kind} was found");
    }
}

#[test]
fn damage_after_a_kill_is_found() {
    let subject = subject(|fs, db| {
        fs.process_kill();
        drop(db);
    });
    // The ring knows its end.
    let tried = sweep(&Subject { named: subject.durable, ..subject });
    println!("{tried:?}");
    assert!(tried["ring"].0 > 0 && tried["log"].1 > 0, "{tried:?}");
}

#[test]
fn damage_after_a_power_loss_keeps_what_was_durable() {
    let subject = subject(|fs, db| {
        fs.power_loss(3);
        drop(db);
    });
    let tried = sweep(&subject);
    println!("{tried:?}");
    assert!(tried["log"].1 > 0, "{tried:?}");
}
