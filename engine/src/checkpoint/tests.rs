use alluvium_base::fs::fault::{Action, Failure, FaultFs, Rule};
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::fs::operation::Operation;
use alluvium_base::sync::{SimulationGuard, enter_simulation};
use alluvium_base::{Error, ErrorKind};

use super::*;
use crate::{Durability, Environment, Options};

fn environment(fs: &FaultFs) -> (Environment, SimulationGuard) {
    let (environment, executor, _) = Environment::simulated(fs.shared(), 5);
    (environment, enter_simulation(executor))
}

fn filled(environment: &Environment) -> Db {
    let db = Db::open_in(environment.clone(), "/live", Options::default()).unwrap();
    let keyspace = db.keyspace("a").unwrap();
    for number in 0..3u8 {
        keyspace.put(&[number], b"in a table", Durability::Buffered).unwrap();
        db.flush().unwrap();
    }
    keyspace.put(b"last", b"in the log", Durability::Buffered).unwrap();
    db
}

fn count(db: &Db) -> usize {
    let mut iter = db.keyspace("a").unwrap().iter().unwrap();
    let mut count = 0;
    while iter.next().unwrap() {
        count += 1;
    }
    count
}

#[test]
fn a_checkpoint_is_another_database_with_the_same_tables() {
    let fs = FaultFs::over_memory(&MemoryFs::new().process());
    let (environment, _guard) = environment(&fs);
    let db = filled(&environment);
    let made = db.checkpoint("/copies/first").unwrap();
    assert_eq!((made.files, made.copied_files), (4, 0));
    let copy = Db::open_in(environment, "/copies/first", Options::default()).unwrap();
    assert_eq!(count(&copy), 4);
    assert_eq!(made.database_id, copy.tree().unwrap().database_id);
    assert_ne!(made.database_id, db.tree().unwrap().database_id);
    // Neither sees what the other writes or removes.
    copy.keyspace("a").unwrap().put(b"only here", b"", Durability::Sync).unwrap();
    copy.compact(None).unwrap();
    assert_eq!((count(&copy), count(&db)), (5, 4));
    db.compact(None).unwrap();
    assert!(db.verify(true).unwrap().problems.is_empty());
    assert!(copy.verify(true).unwrap().problems.is_empty());
    let mut batch = crate::WriteBatch::new();
    batch.put(&db.keyspace("a").unwrap(), b"x", b"y").unwrap();
    assert!(copy.write(&batch, Durability::Sync).is_err(), "a batch of the other database is refused");
}

#[test]
fn where_linking_fails_tables_are_copied_and_never_written_through_a_link() {
    let memory = MemoryFs::new();
    let fs = FaultFs::over_memory(&memory.process());
    let (environment, _guard) = environment(&fs);
    let db = filled(&environment);
    let unlinkable = fs.add(Rule::new(Action::Fail(Failure::Io)).on(&[Operation::HardLink]));
    let made = db.checkpoint("/copy").unwrap();
    assert_eq!((made.copied_files, made.copied_bytes), (made.files, made.bytes));
    fs.remove(unlinkable);
    // A link that was made although the call failed: the copy must not go into the table itself.
    fs.add(Rule::new(Action::FailAfter(Failure::Io)).on(&[Operation::HardLink]).times(1));
    let error = db.checkpoint("/again").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::AlreadyExists { .. }), "{error}");
    assert!(db.verify(true).unwrap().problems.is_empty(), "the table of the database is as it was");
    assert_eq!(memory.files().iter().filter(|path| path.starts_with("/again.incomplete")).count(), 0);
    db.checkpoint("/again").unwrap();
}

#[test]
fn a_table_that_is_damaged_is_found_when_it_is_copied() {
    let memory = MemoryFs::new();
    let fs = FaultFs::over_memory(&memory.process());
    let (environment, _guard) = environment(&fs);
    let db = filled(&environment);
    fs.add(Rule::new(Action::Fail(Failure::Io)).on(&[Operation::HardLink]));
    let table = db.files().unwrap().remove(0).file.file_name();
    memory.patch(&Path::new("/live").join(&table), 30, &[0xee]).unwrap();
    let error: Error = db.checkpoint("/copy").unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains(&table), "{error}");
    assert!(!environment.fs.exists(Path::new("/copy")).unwrap());
    assert!(!environment.fs.exists(Path::new("/copy.incomplete")).unwrap());
}

#[test]
fn a_target_that_holds_something_is_refused() {
    let fs = FaultFs::over_memory(&MemoryFs::new().process());
    let (environment, _guard) = environment(&fs);
    let db = filled(&environment);
    environment.fs.create_directory_all(Path::new("/empty")).unwrap();
    db.checkpoint("/empty").unwrap();
    for target in ["/empty", "/live", "/"] {
        let error = db.checkpoint(target).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
    }
    // Somebody else's files are not taken for the leftovers of a checkpoint.
    environment.fs.create_directory_all(Path::new("/other.incomplete")).unwrap();
    environment
        .fs
        .open(Path::new("/other.incomplete/notes"), alluvium_base::fs::OpenMode::CreateNew)
        .unwrap();
    let error = db.checkpoint("/other").unwrap_err();
    assert!(error.to_string().contains("holds notes"), "{error}");
    let reader = Db::open_read_only_in(environment, "/live", Options::default()).unwrap();
    let error = reader.checkpoint("/from_reader").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ReadOnly { .. }), "{error}");
}
