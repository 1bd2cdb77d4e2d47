//! A simulated machine with one database on it: opening, crashing, recovering, breaking and healing the disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use alluvium::base::clock::SimulatedClock;
use alluvium::base::fs::fault::{Action, Failure, FaultFs, Rule};
use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::fs::operation::Operation;
use alluvium::base::random::Random;
use alluvium::base::sync::{Simulation, SimulationGuard, enter_simulation};
use alluvium::executor::SimulatedExecutor;
use alluvium::{Db, Durability, Environment, Error, ErrorKind, Keyspace, Options, Snapshot, Table};

use super::loaded::Loaded;
use super::rows;
use super::state::{Change, Crash, History, State};
use super::views::View;

const DIRECTORY: &str = "/db";

/// An open database.
pub(super) struct Open {
    pub(super) db: Db,
    pub(super) keyspaces: [Keyspace; 2],
    pub(super) table: Table,
    pub(super) executor: Arc<SimulatedExecutor>,
    pub(super) clock: Arc<SimulatedClock>,
    // Dropped last: closing waits, and waiting needs the simulation.
    _simulation: SimulationGuard,
}

/// The machine, the database, and what it should hold.
pub(super) struct World {
    pub(super) machine: MemoryFs,
    pub(super) faults: FaultFs,
    pub(super) open: Option<Open>,
    pub(super) history: History,
    pub(super) loaded: Loaded,
    pub(super) views: Vec<View>,
    pub(super) snapshots: Vec<(Snapshot, State)>,
    /// Draws the options of every open.
    options: Random,
    /// Draws what the scheduler does.
    schedule: Random,
    /// How the process died, set by the call at which it did; see `how_it_crashed`.
    crashed: Arc<AtomicU8>,
    /// True while a rule may make calls fail.
    pub(super) is_broken: bool,
    /// True while a rule may invert bits that are read from tables.
    pub(super) flips_bits: bool,
    /// The commit that was under way when the process died.
    pub(super) unsure: Option<Vec<Change>>,
    /// Everything that the database answered, folded into one number.
    pub(super) transcript: u64,
    pub(super) crashes: u64,
    pub(super) errors: u64,
    /// Says on standard error what happens.
    pub(super) trace: bool,
}

fn options(random: &mut Random) -> Options {
    let pick = |random: &mut Random, from: &[u64]| from[random.index(from.len())];
    let table_bytes = pick(random, &[4 << 10, 16 << 10, 64 << 10]);
    Options {
        memory_bytes: Some(1 << 20),
        memtable_bytes: Some(pick(random, &[16 << 10, 32 << 10, 64 << 10]) as usize),
        immutable_memtables_max: 1 + random.index(3),
        compression: [alluvium::Compression::None, alluvium::Compression::Lz4, alluvium::Compression::Zstd]
            [random.index(3)],
        block_bytes: pick(random, &[64, 256, 4096]) as u32,
        filter_bits_per_key: pick(random, &[0, 4, 10]) as u8,
        table_bytes,
        base_level_bytes: table_bytes * pick(random, &[1, 2, 4]),
        level0_compaction_trigger: 1 + random.index(4),
        compaction_threads: 1 + random.index(3),
        log_segment_bytes: pick(random, &[64 << 10, 128 << 10]),
        log_ring_bytes: 128 << 10,
        buffered_sync_interval: Duration::from_millis(pick(random, &[10, 1000])),
        ..Options::default()
    }
}

impl World {
    pub(super) fn new(seed: u64, options_seed: u64) -> World {
        let machine = MemoryFs::new();
        let mut world = World {
            faults: FaultFs::over_memory(&machine.process()),
            machine,
            open: None,
            history: History::default(),
            loaded: Loaded::default(),
            views: Vec::new(),
            snapshots: Vec::new(),
            options: Random::new(options_seed),
            schedule: Random::new(seed ^ options_seed.rotate_left(32)),
            crashed: Arc::default(),
            is_broken: false,
            flips_bits: false,
            unsure: None,
            transcript: 0,
            crashes: 0,
            errors: 0,
            trace: crate::number("ALLUVIUM_TRACE", 0) == 1,
        };
        world.open().expect("a healthy disk");
        world
    }

    pub(super) fn opened(&self) -> &Open {
        self.open.as_ref().expect("open")
    }

    /// Folds an answer into the transcript.
    pub(super) fn note(&mut self, answer: u64) {
        self.transcript = self.transcript.rotate_left(9).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ answer;
    }

    /// Takes an error that the database gave: it must follow from a fault.
    pub(super) fn accept(&mut self, error: &Error) {
        self.errors += 1;
        if self.trace {
            eprintln!("  error: {error}");
        }
        if self.has_crashed() {
            return;
        }
        let fits = match error.kind() {
            ErrorKind::Io { .. }
            | ErrorKind::DiskFull { .. }
            | ErrorKind::DurabilityUnknown { .. }
            | ErrorKind::AlreadyExists { .. }
            | ErrorKind::Cancelled { .. } => self.is_broken,
            ErrorKind::Corrupt { .. } => self.flips_bits,
            _ => false,
        };
        assert!(fits, "an error without a cause: {error} ({error:?})");
    }

    pub(super) fn has_crashed(&self) -> bool {
        self.how_it_crashed().is_some()
    }

    fn how_it_crashed(&self) -> Option<Crash> {
        match self.crashed.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Crash::Kill),
            _ => Some(Crash::PowerLoss),
        }
    }

    /// Opens the database in the present process.
    pub(super) fn open(&mut self) -> Result<(), Error> {
        let options = options(&mut self.options);
        let (environment, executor, clock) =
            Environment::simulated(self.faults.shared(), self.schedule.next_u64());
        let simulation = enter_simulation(executor.clone());
        let db = Db::open_in(environment, Path::new(DIRECTORY), options)?;
        let keyspaces = [db.keyspace("a")?, db.keyspace("b")?];
        let table = rows::open_table(&db)?;
        self.open = Some(Open { db, keyspaces, table, executor, clock, _simulation: simulation });
        Ok(())
    }

    fn forget_views(&mut self) {
        self.views.clear();
        self.snapshots.clear();
    }

    /// Closes and opens again.
    pub(super) fn reopen(&mut self) {
        self.forget_views();
        let open = self.open.take().expect("open");
        let closed = open.db.close(Duration::from_secs(20));
        drop(open);
        match closed {
            // What a clean close left is durable.
            Ok(()) if !self.has_crashed() => self.history.is_durable(),
            Ok(()) => {}
            Err(error) => self.accept(&error),
        }
        if !self.has_crashed() {
            self.start_process(Crash::Kill);
        }
    }

    /// Arms a crash: the process dies at the `number`-th change that it makes from now on, before it or after `bytes` of it.
    pub(super) fn arm_crash(&mut self, crash: Crash, number: u64, bytes: Option<usize>, seed: u64) {
        let (machine, crashed) = (self.machine.clone(), Arc::clone(&self.crashed));
        let trace = self.trace;
        let callback: alluvium::base::fs::fault::Callback = Arc::new(move |call| {
            if crashed.load(Ordering::Relaxed) == 0 {
                if trace {
                    eprintln!("  {crash:?} at {call:?}, after {bytes:?} bytes of it");
                }
                crashed.store(if crash == Crash::Kill { 1 } else { 2 }, Ordering::Relaxed);
                match crash {
                    Crash::Kill => machine.process_kill(),
                    Crash::PowerLoss => machine.power_loss(seed),
                }
            }
        });
        let action = match bytes {
            Some(bytes) => Action::CallAfter { bytes, callback },
            None => Action::Call(callback),
        };
        self.faults.add(Rule::new(action).on_changes().from_call(number).times(1));
    }

    /// If the process has died: starts another, which recovers.
    pub(super) fn recover_if_crashed(&mut self, random: &mut Random) {
        let Some(mut crash) = self.how_it_crashed() else { return };
        self.crashes += 1;
        if self.trace {
            for path in self.machine.files() {
                let bytes = self.machine.contents(&path).unwrap_or_default();
                let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                eprintln!("  left: {} of {} bytes, {used} used", path.display(), bytes.len());
            }
        }
        self.forget_views();
        self.open = None;
        // Recovery may be cut short too, several times in a row.
        for _ in 0..3 {
            self.new_process();
            if random.one_in(2) {
                break;
            }
            let next = if random.one_in(2) { Crash::Kill } else { Crash::PowerLoss };
            self.arm_crash(next, random.below(60), None, random.next_u64());
            let opened = self.open();
            if self.trace {
                eprintln!("  recovery: {:?}", self.how_it_crashed());
            }
            if !self.has_crashed() {
                opened.expect("no fault was met");
                self.faults.remove_all();
                break;
            }
            self.open = None;
            // Nothing was acknowledged since, so what the weaker of the two crashes must leave is left.
            if next == Crash::PowerLoss {
                crash = Crash::PowerLoss;
            }
        }
        if self.has_crashed() {
            self.new_process();
        }
        self.start_process(crash);
    }

    fn new_process(&mut self) {
        self.faults = FaultFs::over_memory(&self.machine.process());
        self.crashed = Arc::default();
        self.is_broken = false;
        self.flips_bits = false;
    }

    /// Opens the database in the process after the one that `crash` ended, and compares it with what should be there.
    fn start_process(&mut self, crash: Crash) {
        if self.open.is_none() {
            if let Err(error) = self.open() {
                self.open = None;
                self.accept(&error);
                if self.has_crashed() {
                    return;
                }
                self.faults.remove_all();
                self.open().unwrap_or_else(|error| panic!("does not open without a fault: {error}"));
            }
            if self.has_crashed() {
                return;
            }
        }
        if self.trace {
            eprintln!("  recovering from a {crash:?}: {}", self.history.summary());
        }
        let unsure = self.unsure.take();
        let Some(found) = self.try_read_all() else {
            // A fault kept us from looking; once it is gone we can.
            self.faults.remove_all();
            let found = self.try_read_all().expect("readable without a fault");
            return self.compare(&found, crash, unsure);
        };
        self.compare(&found, crash, unsure);
    }

    fn compare(&mut self, found: &State, crash: Crash, unsure: Option<Vec<Change>>) {
        if let Err(problem) = self.history.recover(found, crash, unsure) {
            panic!("after a {crash:?}: {problem}");
        }
        self.check_loaded_and_indexes();
    }

    /// Everything that the database holds; `None` if a fault or a crash prevented reading.
    pub(super) fn try_read_all(&mut self) -> Option<State> {
        match self.read_all() {
            Ok(state) => Some(state),
            Err(error) => {
                self.accept(&error);
                None
            }
        }
    }

    fn read_all(&self) -> Result<State, Error> {
        let open = self.opened();
        let mut state = State::default();
        for (map, keyspace) in state.maps.iter_mut().zip(&open.keyspaces) {
            let mut iter = keyspace.iter()?;
            while iter.next()? {
                map.insert(iter.key().to_vec(), iter.value().to_vec());
            }
        }
        state.rows = rows::read_all(&open.table)?;
        Ok(state)
    }

    /// Compares everything with what should be there.
    pub(super) fn check_all(&mut self) {
        if let Some(found) = self.try_read_all() {
            assert!(
                found == self.history.now,
                "the state differs while running: {}",
                self.history.difference(&found)
            );
            self.check_loaded_and_indexes();
        }
    }

    fn check_loaded_and_indexes(&mut self) {
        let open = self.open.as_ref().expect("open");
        let checked = self.loaded.check(&open.db).and_then(|()| open.table.check_indexes());
        match checked {
            Ok(check) => assert!(check.is_clean(), "indexes disagree: {check:?}"),
            Err(error) => self.accept(&error),
        }
        if let Ok(statistics) = self.opened().db.statistics() {
            assert_eq!(statistics.broken_pairs, 0, "puts and removals of an index entry do not alternate");
        }
    }

    /// Breaks the disk in a way that the step's `random` draws.
    pub(super) fn break_disk(&mut self, random: &mut Random) {
        self.is_broken = true;
        let failure = if random.one_in(2) { Failure::Io } else { Failure::DiskFull };
        let clock = self.opened().clock.clone();
        let writes = [Operation::Write, Operation::Sync, Operation::Create, Operation::SetLen];
        let names = [Operation::Rename, Operation::RemoveFile, Operation::SyncDirectory];
        let rule = match random.below(9) {
            0 => Rule::new(Action::Fail(failure)),
            1 => Rule::new(Action::Fail(failure)).on(&writes),
            2 => Rule::new(Action::FailAfter(failure)).on(&writes),
            3 => Rule::new(Action::FailDroppingDirty).on(&[Operation::Sync]),
            4 => Rule::new(Action::FailEvictingDirty).on(&[Operation::Sync]),
            5 => {
                let bytes = random.index(5000);
                Rule::new(Action::ShortWrite { bytes, failure }).on(&[Operation::Write])
            }
            6 => Rule::new(Action::Fail(failure)).on(&names),
            7 => {
                let duration = Duration::from_millis(random.below(500));
                Rule::new(Action::Delay { clock, duration }).on(&writes)
            }
            _ => {
                self.flips_bits = true;
                let bit = random.next_u64();
                Rule::new(Action::FlipBit { bit }).on(&[Operation::Read]).path_ends_with(".sst")
            }
        };
        let times = [1, 3, 1000][random.index(3)];
        self.faults.add(rule.from_call(random.below(40)).times(times));
    }

    /// Repairs the disk; writing must then resume by itself.
    pub(super) fn heal_disk(&mut self) {
        if !self.is_broken {
            return;
        }
        self.faults.remove_all();
        let resumed = (0..200).any(|attempt: u32| {
            let changes = vec![Change::Key(0, b"healed".to_vec(), Some(attempt.to_be_bytes().to_vec()))];
            let written = self.opened().keyspaces[0].put(b"healed", &attempt.to_be_bytes(), Durability::Sync);
            let done = self.committed(written, changes, Durability::Sync);
            let open = self.opened();
            open.executor.run(20);
            open.executor.advance(Some(Duration::from_millis(100)));
            open.clock.advance(Duration::from_millis(50));
            done
        });
        let error = self.opened().db.statistics().map(|statistics| statistics.background_error);
        assert!(resumed, "the disk is whole again, but writing does not resume: {error:?}");
        // Blocks of damaged reads are never kept, so nothing of the fault is left.
        self.is_broken = false;
        self.flips_bits = false;
    }

    /// Takes the outcome of a commit; true if it was acknowledged.
    pub(super) fn committed(
        &mut self,
        result: Result<(), Error>,
        changes: Vec<Change>,
        durability: Durability,
    ) -> bool {
        if self.has_crashed() {
            self.unsure = Some(changes);
            return false;
        }
        match result {
            Ok(()) => {
                if self.trace {
                    eprintln!("  committed, {durability:?}: {} changes", changes.len());
                }
                self.history.push(changes);
                match durability {
                    Durability::Sync => self.history.is_durable(),
                    Durability::Buffered => self.history.is_acknowledged(),
                }
                true
            }
            Err(error) => {
                self.accept(&error);
                if matches!(error.kind(), ErrorKind::DurabilityUnknown { .. }) {
                    self.history.push(changes);
                }
                false
            }
        }
    }
}
