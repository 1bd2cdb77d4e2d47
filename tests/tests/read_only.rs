//! Handles that only read, beside one that writes, each a process of its own on the in-memory file system.
//!
//! One seed decides everything. The interesting moments are *inside* of calls: whenever the writer makes a call to the
//! file system, a reader may open, refresh, read, die or close; whenever a reader makes one, the writer may commit, flush,
//! compact, remove files and recycle its log. Readers never see an error or a wrong answer, and what they held is free
//! once they are gone. `ALLUVIUM_SEEDS=1000` is the long form.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alluvium::base::clock::SimulatedClock;
use alluvium::base::fs::fault::{Action, Call, Failure, FaultFs, Rule};
use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::fs::operation::Operation;
use alluvium::base::random::Random;
use alluvium::base::sync::{Mutex, SimulationGuard, enter_simulation};
use alluvium::executor::SimulatedExecutor;
use alluvium::{Db, Durability, Environment, Iter, Keyspace, Options, Snapshot, WriteBatch};
use alluvium_tests::number;

const DIRECTORY: &str = "/db";
const LAST_BATCH: &[u8] = b"\xff\xfflast batch";
const READERS_MAX: usize = 3;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options {
        memory_bytes: Some(1 << 20),
        memtable_bytes: Some(16 << 10),
        block_bytes: 256,
        table_bytes: 4 << 10,
        base_level_bytes: 8 << 10,
        level0_compaction_trigger: 2,
        log_segment_bytes: 64 << 10,
        log_ring_bytes: 128 << 10,
        ..Options::default()
    }
}

struct Writer {
    db: Db,
    keyspace: Keyspace,
    fs: MemoryFs,
    executor: Arc<SimulatedExecutor>,
    clock: Arc<SimulatedClock>,
    _simulation: SimulationGuard,
}

struct Reader {
    fs: MemoryFs,
    db: Db,
    keyspace: Keyspace,
    /// The batch up to which it sees.
    at: usize,
    iterators: Vec<(Iter, usize)>,
    snapshots: Vec<(Snapshot, usize)>,
}

#[derive(Default)]
struct History {
    /// The state after every batch.
    states: Vec<Arc<Map>>,
    /// Batches whose commit has returned.
    done: usize,
}

/// Shared by the run and by what happens inside of calls.
struct World {
    fs: MemoryFs,
    random: Mutex<Random>,
    history: Mutex<History>,
    /// `None` while a reader is at work, so that nothing nests.
    readers: Mutex<Option<Vec<Reader>>>,
    writer: Mutex<Option<(Db, Keyspace, Arc<SimulatedExecutor>)>>,
    /// The writer is in a call of its own: it must not be made to work in the middle of it.
    writer_is_busy: AtomicBool,
}

impl World {
    fn below(&self, bound: u64) -> u64 {
        self.random.lock().below(bound)
    }

    fn key(&self) -> Vec<u8> {
        format!("key{:03}", self.below(300)).into_bytes()
    }

    fn write(&self, db: &Db, keyspace: &Keyspace) {
        let (number, mut after) = {
            let history = self.history.lock();
            (history.states.len(), Map::clone(history.states.last().expect("a state")))
        };
        let mut batch = WriteBatch::new();
        for _ in 0..=self.below(4) {
            let key = self.key();
            if self.below(3) > 0 {
                let mut value = vec![0; self.below(400) as usize];
                self.random.lock().fill(&mut value);
                batch.put(keyspace, &key, &value).expect("put");
                after.insert(key, value);
            } else {
                batch.delete(keyspace, &key).expect("delete");
                after.remove(&key);
            }
        }
        let last = number.to_be_bytes().to_vec();
        batch.put(keyspace, LAST_BATCH, &last).expect("put");
        after.insert(LAST_BATCH.to_vec(), last);
        // Known before it is committed: a reader may see it before the commit returns.
        self.history.lock().states.push(Arc::new(after));
        let durability = if self.below(8) == 0 { Durability::Sync } else { Durability::Buffered };
        db.write(&batch, durability).expect("write");
        self.history.lock().done = number;
    }

    /// Called inside of a reader's calls: the writer goes on.
    fn writer_works(&self) {
        if self.writer_is_busy.swap(true, Ordering::Relaxed) {
            return;
        }
        let writer = self.writer.lock().clone();
        if let Some((db, keyspace, executor)) = writer {
            match self.below(40) {
                0..4 => self.write(&db, &keyspace),
                4 => db.flush().expect("flush"),
                5..16 => drop(executor.run(1 + self.below(8) as usize)),
                _ => {}
            }
        }
        self.writer_is_busy.store(false, Ordering::Relaxed);
    }

    /// Called inside of the writer's calls, and by the run: a reader does something.
    fn reader_works(self: &Arc<World>) {
        let Some(mut readers) = self.readers.lock().take() else { return };
        let which = self.below(READERS_MAX as u64) as usize;
        if which >= readers.len() {
            readers.push(self.open_reader());
        } else {
            match self.below(20) {
                0 => drop(readers.swap_remove(which)),
                1 => {
                    let reader = readers.swap_remove(which);
                    reader.fs.process_kill();
                }
                2..8 => {
                    let done = self.history.lock().done;
                    readers[which].db.refresh().expect("refresh");
                    self.look_where(&mut readers[which], done);
                }
                8 if readers[which].iterators.len() < 3 => {
                    let reader = &mut readers[which];
                    let iterator = reader.keyspace.iter().expect("iterator");
                    reader.iterators.push((iterator, reader.at));
                }
                9 if readers[which].snapshots.len() < 3 => {
                    let reader = &mut readers[which];
                    reader.snapshots.push((reader.db.snapshot().expect("snapshot"), reader.at));
                }
                10 => readers[which].snapshots.clear(),
                _ => self.check(&mut readers[which]),
            }
        }
        *self.readers.lock() = Some(readers);
    }

    fn open_reader(self: &Arc<World>) -> Reader {
        let fs = self.fs.process();
        let faulty = FaultFs::over_memory(&fs);
        let world = Arc::clone(self);
        let work = Arc::new(move |_: Call<'_>| world.writer_works());
        let (environment, _, _) = Environment::simulated(faulty.shared(), self.below(u64::MAX));
        faulty.add(Rule::new(Action::Call(work)));
        let done = self.history.lock().done;
        let db = Db::open_read_only_in(environment, Path::new(DIRECTORY), options()).expect("opens");
        assert!(db.has_lease());
        let keyspace = db.keyspace("a").expect("keyspace");
        let mut reader = Reader { fs, db, keyspace, at: 0, iterators: Vec::new(), snapshots: Vec::new() };
        self.look_where(&mut reader, done);
        reader
    }

    /// Finds out which state a reader is at: none that is older than what was committed when it began.
    fn look_where(&self, reader: &mut Reader, done: usize) {
        let number = reader.keyspace.get_owned(LAST_BATCH).expect("get").unwrap_or_default();
        reader.at = number.try_into().map_or(0, usize::from_be_bytes);
        assert!(reader.at >= done, "a reader is at batch {}, but {done} was committed", reader.at);
        self.check(reader);
    }

    fn state(&self, at: usize) -> Arc<Map> {
        Arc::clone(&self.history.lock().states[at])
    }

    fn check(&self, reader: &mut Reader) {
        let key = self.key();
        let expected = self.state(reader.at);
        assert_eq!(reader.keyspace.get_owned(&key).expect("get").as_ref(), expected.get(&key));
        if let Some((snapshot, at)) = reader.snapshots.last() {
            let got = reader.keyspace.get_at(snapshot, &key).expect("get at a snapshot");
            assert_eq!(got.as_deref(), self.state(*at).get(&key).map(Vec::as_slice));
            let start = key.as_slice();
            let mut some = reader.keyspace.range_at(snapshot, start..).expect("range at a snapshot");
            some.next().expect("next");
            let expected = self.state(*at);
            let found = some.valid().then(|| some.key());
            assert_eq!(found, expected.range(key.clone()..).next().map(|(k, _)| k.as_slice()));
        }
        if let Some((iterator, at)) = reader.iterators.last_mut() {
            let expected = self.state(*at);
            iterator.seek(&key).expect("seek");
            for (key, value) in expected.range(key..).take(20) {
                assert!(iterator.valid(), "the iterator ends before {key:?}");
                assert_eq!((iterator.key(), iterator.value()), (key.as_slice(), value.as_slice()));
                iterator.next().expect("next");
            }
            if self.below(4) == 0 {
                reader.iterators.pop();
            }
        }
        if self.below(10) == 0 {
            let mut iterator = reader.keyspace.iter().expect("iterator");
            let mut found = Map::new();
            while iterator.next().expect("next") {
                found.insert(iterator.key().to_vec(), iterator.value().to_vec());
            }
            assert_eq!(found, *expected);
        }
    }

    fn open_writer(self: &Arc<World>) -> Writer {
        let fs = self.fs.process();
        let faulty = FaultFs::over_memory(&fs);
        let (environment, executor, clock) = Environment::simulated(faulty.shared(), self.below(u64::MAX));
        let simulation = enter_simulation(executor.clone());
        let world = Arc::clone(self);
        let work = move |_: Call<'_>| {
            if world.below(30) == 0 && !world.writer_is_busy.swap(true, Ordering::Relaxed) {
                world.reader_works();
                world.writer_is_busy.store(false, Ordering::Relaxed);
            }
        };
        let db = Db::open_in(environment, Path::new(DIRECTORY), options()).expect("opens");
        let keyspace = db.keyspace("a").expect("keyspace");
        // Only from now on: readers need a database, and the keyspace.
        faulty.add(Rule::new(Action::Call(Arc::new(work))));
        *self.writer.lock() = Some((db.clone(), keyspace.clone(), Arc::clone(&executor)));
        Writer { db, keyspace, fs, executor, clock, _simulation: simulation }
    }

    fn close_writer(&self, writer: Writer, kill: bool) {
        *self.writer.lock() = None;
        if kill {
            writer.fs.process_kill();
        } else {
            writer.db.close(Duration::from_secs(10)).expect("closes");
        }
    }
}

/// Runs whatever the writer has to do, timers included.
fn settle(writer: &Writer) {
    for _ in 0..20 {
        writer.executor.run(100_000);
        writer.clock.advance(Duration::from_millis(200));
    }
}

fn count(fs: &MemoryFs, text: &str) -> usize {
    fs.files().iter().filter(|path| path.to_string_lossy().contains(text)).count()
}

fn run(seed: u64, steps: usize) {
    let world = Arc::new(World {
        fs: MemoryFs::new(),
        random: Mutex::new(Random::new(seed)),
        history: Mutex::new(History { states: vec![Arc::default()], done: 0 }),
        readers: Mutex::new(Some(Vec::new())),
        writer: Mutex::new(None),
        writer_is_busy: AtomicBool::new(false),
    });
    let mut writer = world.open_writer();
    for _ in 0..steps {
        match world.below(1000) {
            0..600 => world.write(&writer.db, &writer.keyspace),
            600..800 => world.reader_works(),
            800..950 => drop(writer.executor.run(world.below(20) as usize)),
            950..980 => writer.clock.advance(Duration::from_millis(60)),
            980..986 => writer.db.flush().expect("flush"),
            986..988 => writer.db.compact(None).expect("compact"),
            kind @ 988..996 => {
                world.close_writer(writer, kind >= 992);
                // Readers go on without a writer, also those that open now.
                (0..4).for_each(|_| world.reader_works());
                writer = world.open_writer();
            }
            _ => {
                *world.writer.lock() = None;
                world.fs.power_loss(world.below(u64::MAX));
                // What is left of the dead does nothing any more.
                world.writer_is_busy.store(true, Ordering::Relaxed);
                let readers = world.readers.lock().replace(Vec::new());
                drop((writer, readers));
                writer = world.open_writer();
                let number = writer.keyspace.get_owned(LAST_BATCH).expect("get").unwrap_or_default();
                let found = number.try_into().map_or(0, usize::from_be_bytes);
                let mut history = world.history.lock();
                history.states.truncate(found + 1);
                history.done = found;
                world.writer_is_busy.store(false, Ordering::Relaxed);
            }
        }
    }
    // Once all readers are gone, whether they were closed or killed, nothing is held any more.
    for (number, reader) in world.readers.lock().take().expect("idle").into_iter().enumerate() {
        if number % 2 == 0 {
            reader.fs.process_kill();
        }
    }
    *world.readers.lock() = None;
    writer.db.compact(None).expect("compact");
    settle(&writer);
    let statistics = writer.db.statistics().expect("statistics");
    assert_eq!((statistics.obsolete_tables, statistics.readers), ((0, 0), 0));
    assert_eq!(count(&world.fs, ".sst"), writer.db.files().expect("files").len());
    assert_eq!((count(&world.fs, "lease-"), count(&world.fs, "MANIFEST-")), (0, 1));
    assert!(count(&world.fs, ".log") <= 3, "{:?}", world.fs.files());
    world.close_writer(writer, false);
}

#[test]
fn readers_beside_a_writer_never_see_an_error_or_a_wrong_answer() {
    let first = number("ALLUVIUM_FIRST_SEED", 1);
    for seed in first..first + number("ALLUVIUM_SEEDS", 20) {
        let result = std::panic::catch_unwind(|| run(seed, 600));
        assert!(
            result.is_ok(),
            "seed {seed} fails; run it alone with ALLUVIUM_FIRST_SEED={seed} ALLUVIUM_SEEDS=1"
        );
    }
}

fn written(fs: &MemoryFs) -> (Db, Keyspace, Arc<SimulatedExecutor>, Arc<SimulatedClock>, SimulationGuard) {
    let (environment, executor, clock) = Environment::simulated(fs.process().shared(), 1);
    let simulation = enter_simulation(executor.clone());
    let db = Db::open_in(environment, Path::new(DIRECTORY), options()).expect("opens");
    let keyspace = db.keyspace("a").expect("keyspace");
    for round in 0..4u8 {
        for key in 0..200u8 {
            keyspace.put(&[key], &[round; 100], Durability::Buffered).expect("put");
        }
        db.flush().expect("flush");
    }
    (db, keyspace, executor, clock, simulation)
}

/// The log of a writer is released and used again although some reader is always about to refresh.
#[test]
fn a_reader_holds_tables_but_no_log_once_it_is_open() {
    let fs = MemoryFs::new();
    let (db, keyspace, executor, clock, _simulation) = written(&fs);
    let (environment, _, _) = Environment::simulated(fs.process().shared(), 2);
    let reader = Db::open_read_only_in(environment, Path::new(DIRECTORY), options()).expect("opens");
    let seen = reader.keyspace("a").expect("keyspace");
    for round in 4..40u8 {
        for key in 0..200u8 {
            keyspace.put(&[key], &[round; 100], Durability::Buffered).expect("put");
        }
        db.flush().expect("flush");
        clock.advance(Duration::from_millis(200));
        executor.run(1000);
    }
    db.compact(None).expect("compact");
    (0..10).for_each(|_| {
        clock.advance(Duration::from_millis(200));
        executor.run(1000);
    });
    let statistics = db.statistics().expect("statistics");
    assert!(statistics.obsolete_tables.0 > 0 && statistics.readers == 1, "{statistics:?}");
    assert!(count(&fs, ".log") <= 3, "{:?}", fs.files());
    assert!(statistics.log.expect("a log").segments_recycled > 0);
    assert_eq!(seen.get(&[7]).expect("get").as_deref(), Some([3; 100].as_slice()));
    reader.refresh().expect("refresh");
    assert_eq!(seen.get(&[7]).expect("get").as_deref(), Some([39; 100].as_slice()));
    (0..10).for_each(|_| {
        clock.advance(Duration::from_millis(200));
        executor.run(1000);
    });
    assert_eq!(db.statistics().expect("statistics").obsolete_tables, (0, 0), "refreshing gives free");
}

/// A medium that a reader may not write to: it opens all the same.
#[test]
fn without_the_right_to_write_a_reader_opens_without_a_lease() {
    let fs = MemoryFs::new();
    let (db, _keyspace, _executor, _clock, _simulation) = written(&fs);
    for failure in [Failure::ReadOnlyMedium, Failure::DiskFull] {
        let faulty = FaultFs::new(fs.process().shared());
        faulty.add(Rule::new(Action::Fail(failure)).on(&[Operation::Create]));
        let (environment, _, _) = Environment::simulated(faulty.shared(), 2);
        let reader = Db::open_read_only_in(environment, Path::new(DIRECTORY), options()).expect("opens");
        assert!(!reader.has_lease());
        let seen = reader.keyspace("a").expect("keyspace");
        assert_eq!(seen.get(&[7]).expect("get").as_deref(), Some([3; 100].as_slice()));
        reader.refresh().expect("refresh");
        assert_eq!(count(&fs, "lease-"), 0);
    }
    drop(db);
}

const CHILD_DIRECTORY: &str = "ALLUVIUM_CHILD_DIRECTORY";

fn account(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Not a test of its own: what a reading process runs. Money moves between accounts; their sum never changes.
#[test]
fn child_reads_and_refreshes_until_killed() {
    let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else { return };
    let db = Db::open_read_only(Path::new(&directory), options()).expect("opens for reading");
    assert!(db.has_lease());
    let keyspace = db.keyspace("a").expect("keyspace");
    let mut last = 0;
    for round in 0u64.. {
        let mut iterator = keyspace.iter().expect("iterator");
        if round > 0 {
            // The iterator began before: it shows the old state to its end.
            db.refresh().expect("refresh");
        }
        let (mut sum, mut moves) = (0, 0);
        while iterator.next().expect("next") {
            let value = u64::from_le_bytes(iterator.value()[..8].try_into().expect("a number"));
            if iterator.key() == LAST_BATCH { moves = value } else { sum += value }
        }
        assert_eq!(sum, 100_000, "after {moves} moves");
        assert!(moves >= last, "time never goes back");
        last = moves;
        use std::io::Write;
        let mut out = std::io::stdout().lock();
        writeln!(out, "read {moves}").and_then(|()| out.flush()).expect("the parent listens");
    }
}

/// Real processes: some read while this one writes, and are killed.
#[test]
fn reading_processes_are_not_disturbed_and_leave_nothing_behind() {
    use std::io::{BufRead, BufReader};
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), options()).expect("opens");
    let keyspace = db.keyspace("a").expect("keyspace");
    let mut balances = [1000u64; 100];
    let padding = [7; 300];
    let write = |balances: &[u64], changed: &[usize], moves: u64| {
        let mut batch = WriteBatch::new();
        for &number in changed {
            let value = [balances[number].to_le_bytes().as_slice(), &padding].concat();
            batch.put(&keyspace, &account(number as u64), &value).expect("put");
        }
        batch.put(&keyspace, LAST_BATCH, &moves.to_le_bytes()).expect("put");
        db.write(&batch, Durability::Buffered).expect("write");
    };
    let all: Vec<usize> = (0..100).collect();
    write(&balances, &all, 0);
    let mut random = Random::new(1);
    let mut moves = 0;
    for round in 1..=number("ALLUVIUM_KILLS", 3) {
        let mut children: Vec<std::process::Child> = (0..2)
            .map(|_| {
                std::process::Command::new(std::env::current_exe().expect("this program"))
                    .args(["--exact", "child_reads_and_refreshes_until_killed", "--nocapture"])
                    .env(CHILD_DIRECTORY, directory.path())
                    .stdout(std::process::Stdio::piped())
                    .spawn()
                    .expect("starts")
            })
            .collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = children
                .iter_mut()
                .map(|child| {
                    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
                    scope.spawn(move || {
                        let lines = lines.map(|line| line.expect("readable"));
                        let reads = lines.filter(|line| line.contains("read ")).take(40).count();
                        child.kill().expect("killed");
                        child.wait().expect("ends");
                        reads
                    })
                })
                .collect();
            let writer = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) || moves < 1000 * round {
                    let (from, to) = (random.index(100), random.index(100));
                    let amount = random.below(balances[from] + 1);
                    balances[from] -= amount;
                    balances[to] += amount;
                    moves += 1;
                    write(&balances, &[from, to], moves);
                }
            });
            let reads: Vec<usize> =
                readers.into_iter().map(|reader| reader.join().expect("reader")).collect();
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("writer");
            assert_eq!(reads, [40, 40], "a reader ended early");
        });
    }
    db.compact(None).expect("compact");
    // What the killed readers held goes when the housekeeper has looked again.
    for _ in 0..200 {
        if db.statistics().expect("statistics").obsolete_tables.0 == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let names =
        || std::fs::read_dir(directory.path()).expect("a directory").map(|e| e.expect("entry").file_name());
    let tables = names().filter(|name| name.to_string_lossy().ends_with(".sst")).count();
    assert_eq!(tables, db.files().expect("files").len());
    assert_eq!(names().filter(|name| name.to_string_lossy().starts_with("lease-")).count(), 0);
    println!("{moves} moves");
}
