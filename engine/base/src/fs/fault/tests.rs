use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;
use crate::clock::{Clock, SimulatedClock};
use crate::fs::real::RealFs;
use crate::{ErrorKind, Result};

fn p(path: &str) -> &Path {
    Path::new(path)
}

fn create(fs: &FaultFs, path: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = fs.open(p(path), OpenMode::CreateNew).unwrap();
    file.write_at(bytes, 0).unwrap();
    file
}

fn eio() -> Action {
    Action::Fail(Failure::Io)
}

/// A run with one call of every kind that can fail.
fn script(fs: &dyn Fs, root: &Path) -> Result<()> {
    let directory = root.join("d");
    let (a, b, c) = (directory.join("a"), directory.join("b"), directory.join("c"));
    fs.create_directory_all(&directory)?;
    let lock = fs.lock(&directory.join("LOCK"))?;
    let file = fs.open(&a, OpenMode::CreateNew)?;
    file.write_at(&[1; 5000], 0)?;
    file.set_len(4096)?;
    file.start_writeback(0, 4096)?;
    file.sync_data()?;
    file.len()?;
    fs.file_size(&a)?;
    fs.hard_link(&a, &b)?;
    fs.rename(&a, &c)?;
    fs.sync_directory(&directory)?;
    fs.list_directory(&directory)?;
    fs.exists(&a)?;
    fs.available_space(root)?;
    drop(fs.map(&b, 4096)?);
    let file = fs.open(&c, OpenMode::Read)?;
    file.read_ahead(0, 100)?;
    file.read_exact_at(&mut [0; 100], 0)?;
    drop(lock);
    fs.remove_file(&b)?;
    fs.remove_file(&c)?;
    fs.remove_file(&directory.join("LOCK"))?;
    fs.remove_directory(&directory)
}

#[test]
fn every_single_call_of_a_run_can_fail_once() {
    let fs = FaultFs::over_memory(&MemoryFs::new());
    script(&fs, p("/")).unwrap();
    let total = fs.calls().fallible();
    for operation in Operation::ALL.iter().filter(|operation| operation.can_fail()) {
        assert!(fs.calls().of(*operation) > 0, "{operation:?} is not in the script");
    }
    for failure in [Failure::Io, Failure::DiskFull] {
        for number in 0..total {
            let fs = FaultFs::over_memory(&MemoryFs::new());
            let rule = fs.add(Rule::new(Action::Fail(failure)).from_call(number).times(1));
            let error = script(&fs, p("/")).unwrap_err();
            assert_eq!(
                matches!(error.kind(), ErrorKind::DiskFull { .. }),
                failure == Failure::DiskFull,
                "{error}"
            );
            assert_eq!(fs.matched(rule), number + 1, "call {number} was not the last of the run");
        }
        let fs = FaultFs::over_memory(&MemoryFs::new());
        fs.add(Rule::new(Action::Fail(failure)).from_call(total));
        script(&fs, p("/")).unwrap();
    }
}

#[test]
fn any_file_system_can_be_wrapped() {
    let directory = tempfile::tempdir().unwrap();
    let fs = FaultFs::new(RealFs::shared());
    script(&fs, directory.path()).unwrap();
    fs.add(Rule::new(Action::FailDroppingDirty).on(&[Operation::Sync]));
    assert!(script(&fs, directory.path()).unwrap_err().to_string().starts_with("cannot sync"));
}

#[test]
fn rules_pick_kind_path_and_number_and_can_be_removed() {
    let fs = FaultFs::over_memory(&MemoryFs::new());
    let (log, table) = (create(&fs, "/1.log", b""), create(&fs, "/1.sst", b""));
    let rule = fs.add(Rule::new(eio()).on(&[Operation::Write]).path_ends_with(".log").from_call(1).times(2));
    let writes =
        |file: &Arc<dyn File>| -> Vec<bool> { (0..5).map(|_| file.write_at(b"x", 0).is_ok()).collect() };
    assert_eq!(writes(&table), [true; 5]);
    assert_eq!(writes(&log), [true, false, false, true, true]);
    assert_eq!(fs.matched(rule), 5);
    fs.add(Rule::new(eio()).path_contains("sst"));
    assert_eq!(writes(&table), [false; 5]);
    assert!(fs.rename(p("/1.log"), p("/2.sst")).is_err(), "either path of a rename matches");
    fs.remove_all();
    assert_eq!(writes(&table), [true; 5]);
    assert_eq!(fs.matched(rule), 0);
}

#[test]
fn of_two_rules_for_one_call_both_count_and_the_first_wins() {
    let fs = FaultFs::over_memory(&MemoryFs::new());
    let file = create(&fs, "/a", b"");
    let count = fs.add(Rule::new(Action::Count).on(&[Operation::Write]));
    fs.add(Rule::new(Action::Fail(Failure::DiskFull)).on(&[Operation::Write]));
    let second = fs.add(Rule::new(eio()).on(&[Operation::Write]));
    let error = file.write_at(b"x", 0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DiskFull { .. }), "{error}");
    assert_eq!((fs.matched(count), fs.matched(second)), (1, 1));
}

#[test]
fn a_short_write_leaves_its_first_bytes() {
    let memory = MemoryFs::new();
    let fs = FaultFs::over_memory(&memory);
    let file = create(&fs, "/a", &[0; 16]);
    let mapping = fs.map(p("/a"), 16).unwrap().unwrap();
    let short = Action::ShortWrite { bytes: 3, failure: Failure::DiskFull };
    fs.add(Rule::new(short).on(&[Operation::Write, Operation::MappedStore]));
    let error = file.write_at(&[1; 5], 0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DiskFull { .. }), "{error}");
    mapping.write(8, &[2; 5]);
    mapping.store_u64(8, u64::MAX);
    assert_eq!(memory.contents(p("/a")).unwrap(), [1, 1, 1, 0, 0, 0, 0, 0, 2, 2, 2, 0, 0, 0, 0, 0]);
}

#[test]
fn reads_may_be_short_or_wrong() {
    let fs = FaultFs::over_memory(&MemoryFs::new());
    let file = create(&fs, "/a", &[0; 100]);
    let mapping = fs.map(p("/a"), 96).unwrap().unwrap();
    let short = fs.add(Rule::new(Action::ShortRead { bytes: 7 }).on(&[Operation::Read]));
    let mut bytes = [9; 10];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 7);
    assert!(file.read_exact_at(&mut bytes, 0).unwrap_err().is_corrupt());
    fs.remove(short);
    fs.add(Rule::new(Action::FlipBit { bit: 9 }).on(&[Operation::Read, Operation::MappedLoad]));
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(mapping.load_u64(0), 1 << 9);
    assert_eq!(file.read_at(&mut bytes, 200).unwrap(), 0, "nothing to flip behind the end");
}

#[test]
fn a_call_that_fails_after_its_work_has_done_it() {
    let memory = MemoryFs::new();
    let fs = FaultFs::over_memory(&memory);
    create(&fs, "/a", b"bytes");
    fs.add(Rule::new(Action::FailAfter(Failure::Io)).on(&[Operation::Rename]));
    assert!(fs.rename(p("/a"), p("/b")).is_err());
    assert_eq!(memory.contents(p("/b")).unwrap(), b"bytes");
}

#[test]
fn a_delay_passes_on_the_clock_that_it_is_given() {
    let fs = FaultFs::over_memory(&MemoryFs::new());
    let file = create(&fs, "/a", b"");
    let clock = SimulatedClock::new();
    let delay = Action::Delay { clock: clock.clone(), duration: Duration::from_millis(3) };
    fs.add(Rule::new(delay).on(&[Operation::Sync]));
    file.sync_data().unwrap();
    file.write_at(b"x", 0).unwrap();
    assert_eq!(clock.monotonic_nanos(), 3_000_000);
}

#[test]
fn a_failed_sync_can_lose_what_a_later_sync_then_does_not_cover() {
    let memory = MemoryFs::new();
    let fs = FaultFs::over_memory(&memory);
    let file = create(&fs, "/a", &[0; 4096]);
    file.sync_data().unwrap();
    fs.sync_directory(p("/")).unwrap();
    let lost = |action: Action| {
        file.write_at(&[1; 4096], 0).unwrap();
        fs.add(Rule::new(action).on(&[Operation::Sync]).times(1));
        // The handle is what counts, not the name.
        fs.rename(p("/a"), p("/b")).unwrap();
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        fs.rename(p("/b"), p("/a")).unwrap();
        fs.sync_directory(p("/")).unwrap();
        (0..100).any(|seed| {
            let fork = memory.fork();
            fork.power_loss(seed);
            fork.contents(p("/a")).unwrap() != [1; 4096]
        })
    };
    assert!(!lost(eio()), "a sync that failed without losing anything is made good by the next");
    file.write_at(&[0; 4096], 0).unwrap();
    file.sync_data().unwrap();
    assert!(lost(Action::FailDroppingDirty));
    file.write_at(&[0; 4096], 0).unwrap();
    file.sync_data().unwrap();
    assert!(lost(Action::FailEvictingDirty));
    assert_eq!(memory.contents(p("/a")).unwrap(), [0; 4096]);
}

#[test]
fn a_crash_can_be_taken_at_every_change_of_one_run() {
    let memory = MemoryFs::new();
    let fs = FaultFs::over_memory(&memory);
    let forks = Arc::new(Mutex::new(Vec::new()));
    let (machine, taken) = (memory.clone(), Arc::clone(&forks));
    let callback: Callback = Arc::new(move |call| taken.lock().push((call.operation, machine.fork())));
    fs.add(Rule::new(Action::Call(callback)).on_changes());
    create(&fs, "/a", b"1").sync_data().unwrap();
    fs.rename(p("/a"), p("/b")).unwrap();
    fs.map(p("/b"), 1).unwrap().unwrap().write(0, b"2");
    fs.remove_file(p("/b")).unwrap();
    let seen: Vec<_> =
        forks.lock().iter().map(|(operation, fork)| (*operation, fork.files().len())).collect();
    let expected = [
        (Operation::Create, 0),
        (Operation::Write, 1),
        (Operation::Sync, 1),
        (Operation::Rename, 1),
        (Operation::MappedStore, 1),
        (Operation::RemoveFile, 1),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_process_can_be_killed_in_the_midst_of_a_write() {
    for operation in [Operation::Write, Operation::MappedStore] {
        let machine = MemoryFs::new();
        let process = machine.process();
        let fs = FaultFs::over_memory(&process);
        let file = create(&fs, "/a", &[0; 8]);
        let mapping = fs.map(p("/a"), 8).unwrap().unwrap();
        let kills = Arc::new(AtomicU64::new(0));
        let (killed, victim) = (Arc::clone(&kills), process.clone());
        let callback: Callback = Arc::new(move |_| {
            killed.fetch_add(1, Ordering::Relaxed);
            victim.process_kill();
        });
        fs.add(Rule::new(Action::CallAfter { bytes: 2, callback }).on(&[operation]).times(1));
        mapping.write(0, &[1; 4]);
        if operation == Operation::Write {
            assert!(file.write_at(&[2; 4], 4).is_err());
        }
        mapping.store_u64(0, u64::MAX);
        let expected =
            if operation == Operation::Write { [1, 1, 1, 1, 2, 2, 0, 0] } else { [1, 1, 0, 0, 0, 0, 0, 0] };
        assert_eq!(machine.contents(p("/a")).unwrap(), expected);
        assert_eq!(kills.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_crash_taken_in_the_midst_of_a_write_does_not_disturb_it() {
    for operation in [Operation::Write, Operation::MappedStore] {
        let memory = MemoryFs::new();
        let fs = FaultFs::over_memory(&memory);
        let file = create(&fs, "/a", &[0; 8]);
        let mapping = fs.map(p("/a"), 8).unwrap().unwrap();
        let half = Arc::new(Mutex::new(Vec::new()));
        let (machine, seen) = (memory.clone(), Arc::clone(&half));
        let callback: Callback = Arc::new(move |_| *seen.lock() = machine.contents(p("/a")).unwrap());
        fs.add(Rule::new(Action::CallAfter { bytes: 1, callback }).on(&[operation]));
        match operation {
            Operation::Write => file.write_at(&[1, 2, 3], 4).unwrap(),
            _ => mapping.write(4, &[1, 2, 3]),
        }
        assert_eq!(*half.lock(), [0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(memory.contents(p("/a")).unwrap(), [0, 0, 0, 0, 1, 2, 3, 0]);
    }
}
