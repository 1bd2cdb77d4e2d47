use alluvium_base::fs::fault::{Action, Failure, FaultFs, Rule};
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::sync::{SimulationGuard, enter_simulation};

use super::*;
use crate::{Durability, Options};

struct Subject {
    db: Db,
    backups: BackupDirectory,
    environment: Environment,
    memory: MemoryFs,
    faults: FaultFs,
    _guard: SimulationGuard,
}

fn subject() -> Subject {
    let memory = MemoryFs::new();
    let faults = FaultFs::over_memory(&memory.process());
    let (environment, executor, _) = Environment::simulated(faults.shared(), 5);
    let guard = enter_simulation(executor);
    let db = Db::open_in(environment.clone(), "/live", Options::default()).unwrap();
    let backups = BackupDirectory::new_in(environment.clone(), "/safe/backups");
    Subject { db, backups, environment, memory, faults, _guard: guard }
}

impl Subject {
    /// Writes an entry, which becomes a table of its own with the next backup.
    fn put(&self, key: &str) {
        self.db.keyspace("a").unwrap().put(key.as_bytes(), &[7; 500], Durability::Buffered).unwrap();
    }

    fn create(&self, kind: BackupKind) -> Backup {
        self.backups.create(&self.db, kind).unwrap()
    }

    fn copies(&self) -> usize {
        self.backups.copies().unwrap().len()
    }

    /// The keys of a backup once it is restored.
    fn restored(&self, number: u64) -> Vec<String> {
        let target = format!("/restored/{number}");
        self.backups.restore(number, &target).unwrap();
        let db = Db::open_in(self.environment.clone(), &target, Options::default()).unwrap();
        assert!(db.verify(true).unwrap().problems.is_empty());
        let mut iter = db.keyspace("a").unwrap().iter().unwrap();
        let mut keys = Vec::new();
        while iter.next().unwrap() {
            keys.push(String::from_utf8(iter.key().to_vec()).unwrap());
        }
        keys
    }
}

#[test]
fn an_incremental_backup_shares_tables_and_a_full_one_does_not() {
    let subject = subject();
    subject.put("1");
    let first = subject.create(BackupKind::Incremental);
    subject.put("2");
    let second = subject.create(BackupKind::Incremental);
    let full = subject.create(BackupKind::Full);
    let last = subject.create(BackupKind::Incremental);
    let copied = |backup: &Backup| (backup.number, backup.files, backup.copied_files);
    assert_eq!([&first, &second, &full, &last].map(copied), [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 2, 0)]);
    assert_eq!(subject.copies(), 4);
    assert_eq!(subject.backups.list().unwrap().backups, [first, second, full, last]);
    assert_eq!(subject.restored(1), ["1"]);
    assert_eq!(subject.restored(2), ["1", "2"]);
    assert_eq!(subject.restored(4), ["1", "2"]);
}

#[test]
fn deleting_removes_what_no_other_backup_needs() {
    let subject = subject();
    subject.put("1");
    subject.create(BackupKind::Incremental);
    subject.put("2");
    subject.create(BackupKind::Incremental);
    subject.db.compact(None).unwrap();
    let third = subject.create(BackupKind::Incremental);
    let before = subject.copies();
    let deleted = subject.backups.delete(2).unwrap();
    assert_eq!(deleted.files, 1, "the first still needs the other table");
    let last = subject.backups.delete(3).unwrap();
    assert_eq!((last.files, last.bytes), (third.copied_files, third.copied_bytes));
    assert_eq!(subject.copies(), before - 1 - last.files as usize);
    assert_eq!(subject.restored(1), ["1"]);
    assert!(matches!(subject.backups.delete(3).unwrap_err().kind(), ErrorKind::NotFound { .. }));
}

#[test]
fn any_damage_of_a_backup_is_found_and_never_restored() {
    let subject = subject();
    subject.put("1");
    subject.put("2");
    subject.create(BackupKind::Incremental);
    let copy = subject.memory.files().into_iter().find(|path| path.starts_with("/safe/backups/tables"));
    let copy = copy.unwrap();
    let good = subject.memory.contents(&copy).unwrap();
    for at in (0..good.len()).step_by(37) {
        subject.memory.patch(&copy, at as u64, &[good[at] ^ 4]).unwrap();
        let found = subject.backups.verify(1).unwrap();
        assert!(found.problems.len() == 1 && found.problems[0].is_corrupt(), "byte {at}: {found:?}");
        assert!(subject.backups.restore(1, "/restored/bad").unwrap_err().is_corrupt());
        assert!(!subject.environment.fs.exists(Path::new("/restored/bad")).unwrap());
        subject.memory.patch(&copy, at as u64, &good[at..=at]).unwrap();
    }
    let description = Path::new("/safe/backups/000001.backup");
    let good = subject.memory.contents(description).unwrap();
    for at in 0..good.len() {
        subject.memory.patch(description, at as u64, &[good[at] ^ 4]).unwrap();
        assert!(subject.backups.verify(1).unwrap_err().is_corrupt(), "byte {at}");
        subject.memory.patch(description, at as u64, &good[at..=at]).unwrap();
    }
    assert!(subject.backups.verify(1).unwrap().problems.is_empty());
    subject.environment.fs.remove_file(&copy).unwrap();
    assert!(subject.backups.verify(1).unwrap().problems[0].to_string().contains("missing"));
    // The next incremental backup does not rely on a copy that is gone.
    assert_eq!(subject.create(BackupKind::Incremental).copied_files, 1);
    assert_eq!(subject.restored(2), ["1", "2"]);
}

#[test]
fn nothing_is_removed_while_a_description_cannot_be_read() {
    let subject = subject();
    subject.put("1");
    subject.create(BackupKind::Incremental);
    subject.put("2");
    subject.create(BackupKind::Incremental);
    subject.memory.patch(Path::new("/safe/backups/000001.backup"), 60, &[0xee]).unwrap();
    let list = subject.backups.list().unwrap();
    assert_eq!((list.backups.len(), list.damaged[0].0), (1, 1));
    let error = subject.backups.delete(2).unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("backup 1 may need"), "{error}");
    assert_eq!(subject.copies(), 2);
    let deleted = subject.backups.delete(1).unwrap();
    assert_eq!(deleted.files, 0, "the second needs the first one's table");
    assert_eq!(subject.restored(2), ["1", "2"]);
}

#[test]
fn a_table_that_is_damaged_in_the_database_is_found_when_it_is_backed_up() {
    let subject = subject();
    subject.put("1");
    subject.db.flush().unwrap();
    let table = subject.db.files().unwrap().remove(0).file.file_name();
    subject.memory.patch(&Path::new("/live").join(&table), 20, &[0xee]).unwrap();
    let error = subject.backups.create(&subject.db, BackupKind::Incremental).unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains(&table), "{error}");
    assert_eq!((subject.copies(), subject.backups.list().unwrap().backups.len()), (0, 0));
}

#[test]
fn a_failed_backup_whose_description_had_its_name_already_keeps_or_loses_all_of_it() {
    let mut call = 0;
    loop {
        let subject = subject();
        subject.put("1");
        subject.create(BackupKind::Incremental);
        subject.put("2");
        let rule = subject.faults.add(Rule::new(Action::Fail(Failure::Io)).from_call(call).times(1));
        let made = subject.backups.create(&subject.db, BackupKind::Incremental);
        let deleted = made.as_ref().map(|_| subject.backups.delete(1));
        let over = subject.faults.matched(rule) <= call;
        subject.faults.remove_all();
        for backup in subject.backups.list().unwrap().backups {
            let problems = subject.backups.verify(backup.number).unwrap().problems;
            assert!(problems.is_empty(), "call {call}: {problems:?}");
        }
        let again = subject.create(BackupKind::Incremental);
        assert_eq!(subject.restored(again.number), ["1", "2"], "call {call}");
        if over {
            assert!(matches!(deleted, Ok(Ok(_))));
            break;
        }
        call += 3;
    }
    assert!(call >= 40);
}

#[test]
fn targets_and_directories_that_are_something_else_are_refused() {
    let subject = subject();
    subject.put("1");
    subject.create(BackupKind::Incremental);
    let error = subject.backups.restore(1, "/live").unwrap_err();
    assert!(error.to_string().contains("not empty"), "{error}");
    assert!(matches!(subject.backups.restore(9, "/x").unwrap_err().kind(), ErrorKind::NotFound { .. }));
    let into_itself = BackupDirectory::new_in(subject.environment.clone(), "/live");
    assert!(
        into_itself.create(&subject.db, BackupKind::Full).unwrap_err().to_string().contains("is a database")
    );
    let nowhere = BackupDirectory::new_in(subject.environment.clone(), "/nowhere");
    assert!(matches!(nowhere.list().unwrap_err().kind(), ErrorKind::NotFound { .. }));
}
