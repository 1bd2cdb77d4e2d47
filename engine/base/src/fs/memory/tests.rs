//! Without a crash, the file system in memory behaves like the machine's.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::fs::real::RealFs;

fn p(path: &str) -> &Path {
    Path::new(path)
}

#[test]
fn a_full_disk_writes_what_fits_and_recovers_when_space_returns() {
    let fs = MemoryFs::new();
    fs.set_capacity(Some(3 * 4096));
    let file = fs.open(p("/a"), OpenMode::CreateNew).unwrap();
    file.write_at(&[1; 4096], 0).unwrap();
    assert_eq!(fs.available_space(p("/")).unwrap(), 2 * 4096);
    let error = file.write_at(&[2; 4 * 4096], 4096).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DiskFull { .. }), "{error}");
    assert_eq!(fs.available_space(p("/")).unwrap(), 0);
    file.write_at(&[3; 8192], 0).unwrap();
    let other = fs.open(p("/b"), OpenMode::CreateNew).unwrap();
    assert!(other.write_at(b"x", 0).is_err());
    fs.remove_file(p("/a")).unwrap();
    assert!(other.write_at(b"x", 0).is_err(), "an open file keeps its space");
    drop(file);
    other.write_at(b"x", 0).unwrap();
    assert_eq!(fs.stored_bytes(), 4096);
}

#[test]
fn files_that_nothing_leads_to_are_freed() {
    let fs = MemoryFs::new();
    for _ in 0..3 {
        let file = fs.open(p("/a"), OpenMode::CreateNew).unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        fs.remove_file(p("/a")).unwrap();
        fs.sync_directory(p("/")).unwrap();
        assert!(fs.shared.state.lock().has_files());
        drop(file);
        assert!(!fs.shared.state.lock().has_files());
    }
}

#[test]
fn mapping_may_be_switched_off() {
    let fs = MemoryFs::new();
    let file = fs.open(p("/a"), OpenMode::CreateNew).unwrap();
    file.set_len(4096).unwrap();
    assert!(fs.map(p("/a"), 4096).unwrap().is_some());
    assert!(fs.map(p("/a"), 4097).is_err());
    fs.set_mappable(false);
    assert!(fs.map(p("/a"), 4096).unwrap().is_none());
    assert!(fs.map(p("/b"), 4096).unwrap_err().is_missing_file());
}

#[test]
#[should_panic(expected = "SIGBUS")]
fn a_mapping_of_a_file_that_was_cut_faults() {
    let fs = MemoryFs::new();
    let file = fs.open(p("/a"), OpenMode::CreateNew).unwrap();
    file.set_len(4096).unwrap();
    let mapping = fs.map(p("/a"), 4096).unwrap().unwrap();
    file.set_len(10).unwrap();
    mapping.write(100, b"x");
}

#[test]
#[should_panic(expected = "SIGBUS")]
fn a_store_into_a_hole_on_a_full_disk_faults() {
    let fs = MemoryFs::new();
    let file = fs.open(p("/a"), OpenMode::CreateNew).unwrap();
    file.set_len(8192).unwrap();
    file.write_at(&[1; 4096], 0).unwrap();
    let mapping = fs.map(p("/a"), 8192).unwrap().unwrap();
    fs.set_capacity(Some(4096));
    mapping.write(0, b"filled");
    mapping.write(5000, b"hole");
}

#[test]
fn a_handle_for_reading_refuses_to_write_but_not_to_write_nothing() {
    let fs = MemoryFs::new();
    fs.open(p("/a"), OpenMode::CreateNew).unwrap();
    let file = fs.open(p("/a"), OpenMode::Read).unwrap();
    assert!(file.write_at(b"x", 0).is_err() && file.set_len(1).is_err());
    file.write_at(b"", 0).unwrap();
}

#[test]
fn a_lock_has_one_holder_and_says_who() {
    let fs = MemoryFs::new();
    let held = fs.process().lock(p("/LOCK")).unwrap();
    let error = fs.process().lock(p("/LOCK")).unwrap_err();
    assert!(error.to_string().contains("process "), "{error}");
    drop(held);
    fs.lock(p("/LOCK")).unwrap();
}

#[test]
fn calls_are_counted_by_kind() {
    let fs = MemoryFs::new();
    let file = fs.open(p("/a"), OpenMode::CreateNew).unwrap();
    file.write_at(&[0; 8], 0).unwrap();
    file.write_at(&[0; 8], 8).unwrap();
    file.sync_data().unwrap();
    fs.map(p("/a"), 16).unwrap().unwrap().store_u64(0, 1);
    let calls = fs.calls();
    let counts = [Operation::Create, Operation::Write, Operation::Sync, Operation::MappedStore];
    assert_eq!(counts.map(|operation| calls.of(operation)), [1, 2, 1, 1]);
    assert_eq!(calls.fallible(), 5);
}

/// One call, on one of a few names, so that calls meet.
#[derive(Clone, Debug)]
enum Step {
    Open(usize, u8),
    Close(usize),
    Write(usize, u64, usize),
    Read(usize, u64, usize),
    SetLen(usize, u64),
    Sync(usize),
    MappedStore(usize, usize, usize),
    Remove(usize),
    Rename(usize, usize),
    Link(usize, usize),
    CreateDirectory(usize),
    RemoveDirectory(usize),
    SyncDirectory(usize),
    List(usize),
    Exists(usize),
    FileSize(usize),
}

const PATHS: [&str; 8] = ["a", "b", "c", "d/a", "d/b", "d", "e", "e/f/a"];
const HANDLES: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let path = || 0..PATHS.len();
    let handle = || 0..HANDLES;
    let offset = || 0u64..20_000;
    prop_oneof![
        4 => (path(), 0u8..4).prop_map(|(path, mode)| Step::Open(path, mode)),
        1 => handle().prop_map(Step::Close),
        4 => (handle(), offset(), 0usize..9000).prop_map(|(handle, at, len)| Step::Write(handle, at, len)),
        4 => (handle(), offset(), 0usize..9000).prop_map(|(handle, at, len)| Step::Read(handle, at, len)),
        2 => (handle(), offset()).prop_map(|(handle, len)| Step::SetLen(handle, len)),
        1 => handle().prop_map(Step::Sync),
        2 => (path(), 0usize..8000, 0usize..200).prop_map(|(path, at, len)| Step::MappedStore(path, at, len)),
        1 => path().prop_map(Step::Remove),
        2 => (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (path(), path()).prop_map(|(from, to)| Step::Link(from, to)),
        2 => path().prop_map(Step::CreateDirectory),
        1 => path().prop_map(Step::RemoveDirectory),
        1 => path().prop_map(Step::SyncDirectory),
        1 => path().prop_map(Step::List),
        1 => path().prop_map(Step::Exists),
        1 => path().prop_map(Step::FileSize),
    ]
}

/// Runs steps below `root` and turns each result into text that does not depend on the file system.
struct Runner<'a> {
    fs: &'a dyn Fs,
    root: &'a Path,
    handles: Vec<Option<Arc<dyn File>>>,
    next_handle: usize,
}

/// Text of a result: the value, or what kind of error it is as far as a caller may branch on it.
fn outcome<T: fmt::Debug>(result: Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => match error.kind() {
            ErrorKind::AlreadyExists { .. } => "exists".to_string(),
            ErrorKind::InvalidArgument { .. } => "invalid".to_string(),
            ErrorKind::Io { io: io::ErrorKind::NotFound, .. } => "missing".to_string(),
            ErrorKind::Io { .. } => "failed".to_string(),
            other => format!("{other:?}"),
        },
    }
}

impl Runner<'_> {
    fn path(&self, index: usize) -> PathBuf {
        self.root.join(PATHS[index])
    }

    fn is_directory(&self, path: &Path) -> bool {
        self.fs.list_directory(path).is_ok()
    }

    fn with_handle<T: fmt::Debug>(&self, index: usize, run: impl FnOnce(&dyn File) -> Result<T>) -> String {
        self.handles[index].as_deref().map_or("closed".to_string(), |file| outcome(run(file)))
    }

    fn run(&mut self, step: &Step, number: usize) -> String {
        let fill = (number % 255 + 1) as u8;
        match *step {
            Step::Open(path, mode) => {
                let modes =
                    [OpenMode::Read, OpenMode::ReadWrite, OpenMode::CreateNew, OpenMode::CreateOrTruncate];
                let path = self.path(path);
                if self.is_directory(&path) {
                    return "Linux opens directories for reading; nobody does that here".to_string();
                }
                let opened = self.fs.open(&path, modes[usize::from(mode)]);
                let text = outcome(opened.as_ref().map(|_| ()).map_err(Clone::clone));
                if let Ok(file) = opened {
                    self.handles[self.next_handle] = Some(file);
                    self.next_handle = (self.next_handle + 1) % HANDLES;
                }
                text
            }
            Step::Close(handle) => {
                self.handles[handle] = None;
                String::new()
            }
            Step::Write(handle, offset, len) => {
                self.with_handle(handle, |file| file.write_at(&vec![fill; len], offset))
            }
            Step::Read(handle, offset, len) => self.with_handle(handle, |file| {
                let mut bytes = vec![0xaa; len];
                let got = file.read_at(&mut bytes, offset)?;
                Ok((got, bytes, file.len()?))
            }),
            Step::SetLen(handle, len) => self.with_handle(handle, |file| file.set_len(len)),
            Step::Sync(handle) => self.with_handle(handle, |file| file.sync_data()),
            Step::MappedStore(path, offset, len) => {
                let path = self.path(path);
                if self.is_directory(&path) {
                    return "a directory cannot be mapped".to_string();
                }
                let size = offset + len;
                outcome(self.fs.map(&path, size.max(1)).map(|mapping| {
                    let mapping = mapping.unwrap();
                    mapping.write(offset, &vec![fill; len]);
                    let mut bytes = vec![0; mapping.len()];
                    mapping.read(0, &mut bytes);
                    bytes
                }))
            }
            Step::Remove(path) => outcome(self.fs.remove_file(&self.path(path))),
            Step::Rename(from, to) => outcome(self.fs.rename(&self.path(from), &self.path(to))),
            Step::Link(from, to) => outcome(self.fs.hard_link(&self.path(from), &self.path(to))),
            Step::CreateDirectory(path) => outcome(self.fs.create_directory_all(&self.path(path))),
            Step::RemoveDirectory(path) => outcome(self.fs.remove_directory(&self.path(path))),
            Step::SyncDirectory(path) => {
                let path = self.path(path);
                if self.is_directory(&path) { outcome(self.fs.sync_directory(&path)) } else { String::new() }
            }
            Step::List(path) => outcome(self.fs.list_directory(&self.path(path))),
            Step::Exists(path) => {
                let path = self.path(path);
                outcome(self.fs.exists(&path))
            }
            Step::FileSize(path) => {
                let path = self.path(path);
                if self.is_directory(&path) { String::new() } else { outcome(self.fs.file_size(&path)) }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_call_answers_like_the_real_file_system(steps in prop::collection::vec(step(), 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let memory = MemoryFs::new();
        let runner = |fs, root| Runner { fs, root, handles: vec![None; HANDLES], next_handle: 0 };
        let mut real = runner(&RealFs as &dyn Fs, directory.path());
        let mut ours = runner(&memory, Path::new("/"));
        for (number, step) in steps.iter().enumerate() {
            prop_assert_eq!(ours.run(step, number), real.run(step, number), "step {} {:?}", number, step);
        }
    }
}
