//! The key-value API against a `BTreeMap`, over random operations, flushes, compactions, reopens and crashes.
//!
//! One seed decides everything, the scheduling of background work included: the database runs single-threaded on the
//! in-memory file system. The short form runs a few seeds; `ALLUVIUM_SEEDS=1000` (and `ALLUVIUM_FIRST_SEED=n`) the long
//! one. A failure names its seed.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::random::Random;
use alluvium::base::sync::{SimulationGuard, enter_simulation};
use alluvium::{Db, Durability, Environment, Iter, Keyspace, Options, Snapshot, WriteBatch};
use alluvium_tests::number;

const DIRECTORY: &str = "/db";
/// Holds the number of the last batch, so that a recovered state tells which prefix of history it is.
const LAST_BATCH: &[u8] = b"\xff\xfflast batch";

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

struct Open {
    db: Db,
    keyspaces: Vec<Keyspace>,
    executor: std::sync::Arc<alluvium::executor::SimulatedExecutor>,
    _simulation: SimulationGuard,
}

struct Run {
    fs: MemoryFs,
    random: Random,
    open: Option<Open>,
    /// The state after every batch since the last crash; the last is now.
    history: Vec<[Map; 2]>,
    /// Index into `history` of the oldest state that a power loss may bring back.
    durable: usize,
    snapshots: Vec<(Snapshot, [Map; 2])>,
    batches: u64,
}

fn options(random: &mut Random) -> Options {
    let pick = |random: &mut Random, from: &[u64]| from[random.index(from.len())];
    let table_bytes = pick(random, &[4 << 10, 16 << 10, 64 << 10]);
    Options {
        memory_bytes: Some(1 << 20),
        memtable_bytes: Some(pick(random, &[16 << 10, 32 << 10]) as usize),
        immutable_memtables_max: 1 + random.index(3),
        block_bytes: pick(random, &[64, 256, 4096]) as u32,
        filter_bits_per_key: pick(random, &[0, 4, 10]) as u8,
        table_bytes,
        base_level_bytes: table_bytes * pick(random, &[1, 2, 4]),
        level0_compaction_trigger: 1 + random.index(4),
        log_segment_bytes: 64 << 10,
        log_ring_bytes: 128 << 10,
        ..Options::default()
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut run = Run {
            fs: MemoryFs::new(),
            random: Random::new(seed),
            open: None,
            history: vec![[Map::new(), Map::new()]],
            durable: 0,
            snapshots: Vec::new(),
            batches: 0,
        };
        run.open();
        run
    }

    fn open(&mut self) {
        self.fs = self.fs.process();
        let options = options(&mut self.random);
        let (environment, executor, _) = Environment::simulated(self.fs.shared(), self.random.next_u64());
        let simulation = enter_simulation(executor.clone());
        let db = Db::open_in(environment, Path::new(DIRECTORY), options).expect("opens");
        let keyspaces = vec![db.keyspace("a").expect("keyspace"), db.keyspace("b").expect("keyspace")];
        self.open = Some(Open { db, keyspaces, executor, _simulation: simulation });
    }

    fn opened(&self) -> &Open {
        self.open.as_ref().expect("open")
    }

    fn now(&self) -> &[Map; 2] {
        self.history.last().expect("never empty")
    }

    fn key(&mut self) -> Vec<u8> {
        match self.random.below(10) {
            0 => Vec::new(),
            1 => vec![0; self.random.index(4)],
            2 => vec![0xff; self.random.index(3)],
            _ => format!("key{:03}", self.random.below(200)).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.random.below(20) {
            0 => 0,
            1 => 3000,
            2 => 70_000,
            _ => self.random.index(100),
        };
        let mut value = vec![0; len];
        self.random.fill(&mut value);
        value
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        let mut after = self.now().clone();
        for _ in 0..=self.random.index(4) {
            let which = self.random.index(2);
            let keyspace = self.opened().keyspaces[which].clone();
            let key = self.key();
            match self.random.below(12) {
                0..7 => {
                    let value = self.value();
                    batch.put(&keyspace, &key, &value).expect("put");
                    after[which].insert(key, value);
                }
                7..11 => {
                    batch.delete(&keyspace, &key).expect("delete");
                    after[which].remove(&key);
                }
                _ => {
                    let end = self.key();
                    batch.delete_range(&keyspace, key.as_slice()..end.as_slice()).expect("delete range");
                    after[which].retain(|k, _| !(*k >= key && *k < end));
                }
            }
        }
        self.batches += 1;
        let number = self.batches.to_be_bytes().to_vec();
        batch.put(&self.opened().keyspaces[0], LAST_BATCH, &number).expect("put");
        after[0].insert(LAST_BATCH.to_vec(), number);
        let durability = if self.random.one_in(4) { Durability::Sync } else { Durability::Buffered };
        self.opened().db.write(&batch, durability).expect("write");
        self.history.push(after);
        if durability == Durability::Sync {
            self.durable = self.history.len() - 1;
        }
    }

    fn check_get(&mut self) {
        let (which, key) = (self.random.index(2), self.key());
        let got = self.opened().keyspaces[which].get_owned(&key).expect("get");
        assert_eq!(got.as_ref(), self.now()[which].get(&key), "get {key:?}");
        if !self.snapshots.is_empty() {
            let (snapshot, expected) = &self.snapshots[self.random.index(self.snapshots.len())];
            let got = self.opened().keyspaces[which].get_at(snapshot, &key).expect("get");
            assert_eq!(
                got.as_deref(),
                expected[which].get(&key).map(Vec::as_slice),
                "get {key:?} at a snapshot"
            );
        }
    }

    fn check_range(&mut self) {
        let which = self.random.index(2);
        let (mut start, mut end) = (self.key(), self.key());
        if start > end {
            std::mem::swap(&mut start, &mut end);
        }
        let open = self.opened();
        let keyspace = open.keyspaces[which].clone();
        let (mut iter, expected) = if self.snapshots.is_empty() || self.random.one_in(2) {
            (keyspace.range(start.as_slice()..end.as_slice()).expect("range"), self.now()[which].clone())
        } else {
            let (snapshot, map) = &self.snapshots[self.random.index(self.snapshots.len())];
            (
                keyspace.range_at(snapshot, start.as_slice()..end.as_slice()).expect("range"),
                map[which].clone(),
            )
        };
        let expected: Vec<(Vec<u8>, Vec<u8>)> =
            expected.range(start.clone()..end.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
        let mut forward = Vec::new();
        while iter.next().expect("next") {
            forward.push((iter.key().to_vec(), iter.value().to_vec()));
        }
        assert_eq!(forward, expected, "forward over {start:?}..{end:?}");
        let mut backward = Vec::new();
        while iter.prev().expect("prev") {
            backward.push((iter.key().to_vec(), iter.value().to_vec()));
        }
        backward.reverse();
        assert_eq!(backward, expected, "backward over {start:?}..{end:?}");
        self.walk(&mut iter, &expected);
    }

    /// Moves about at random and compares every step.
    fn walk(&mut self, iter: &mut Iter, expected: &[(Vec<u8>, Vec<u8>)]) {
        let mut at: Option<usize> = None;
        for _ in 0..20 {
            let last = expected.len().checked_sub(1);
            at = match (self.random.below(6), at) {
                (0, _) => {
                    let key = self.key();
                    iter.seek(&key).expect("seek");
                    Some(expected.partition_point(|(k, _)| *k < key)).filter(|&i| i < expected.len())
                }
                (1, _) => {
                    let key = self.key();
                    iter.seek_before(&key).expect("seek before");
                    expected.partition_point(|(k, _)| *k < key).checked_sub(1)
                }
                (2..4, at) => {
                    iter.next().expect("next");
                    match at {
                        None => last.map(|_| 0),
                        Some(i) => Some(i + 1).filter(|&i| i < expected.len()),
                    }
                }
                (_, at) => {
                    iter.prev().expect("prev");
                    match at {
                        None => last,
                        Some(i) => i.checked_sub(1),
                    }
                }
            };
            assert_eq!(iter.valid(), at.is_some());
            if let Some((key, value)) = at.and_then(|at| expected.get(at)) {
                assert_eq!((iter.key(), iter.value()), (key.as_slice(), value.as_slice()));
            }
        }
    }

    fn forget_views(&mut self) {
        self.snapshots.clear();
    }

    fn reopen(&mut self) {
        self.forget_views();
        let open = self.open.take().expect("open");
        open.db.close(Duration::from_secs(10)).expect("closes");
        drop(open);
        self.open();
        let now = self.now().clone();
        self.history = vec![now];
        self.durable = 0;
        self.check_all();
    }

    fn kill(&mut self) {
        self.forget_views();
        self.fs.process_kill();
        self.open = None;
        self.open();
        self.check_all();
    }

    fn lose_power(&mut self) {
        self.forget_views();
        self.fs.power_loss(self.random.next_u64());
        self.open = None;
        self.open();
        let number = self.opened().keyspaces[0].get_owned(LAST_BATCH).expect("get");
        let found = self.history.iter().rposition(|state| state[0].get(LAST_BATCH) == number.as_ref());
        let found = found.expect("a state of the history");
        assert!(found >= self.durable, "state {found} came back, but {} was durable", self.durable);
        self.history.truncate(found + 1);
        self.history.drain(..found);
        self.durable = 0;
        self.check_all();
    }

    fn check_all(&self) {
        for (which, keyspace) in self.opened().keyspaces.iter().enumerate() {
            let mut iter = keyspace.iter().expect("iter");
            let mut found = Map::new();
            while iter.next().expect("next") {
                found.insert(iter.key().to_vec(), iter.value().to_vec());
            }
            let expected = &self.now()[which];
            let differs = found.keys().chain(expected.keys()).find(|k| found.get(*k) != expected.get(*k));
            assert!(differs.is_none(), "keyspace {which} differs at {differs:?}");
        }
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..550 => self.write(),
            550..750 => self.check_get(),
            750..850 => self.check_range(),
            850..880 => {
                if self.snapshots.len() < 4 {
                    let snapshot = self.opened().db.snapshot().expect("snapshot");
                    self.snapshots.push((snapshot, self.now().clone()));
                } else {
                    let index = self.random.index(self.snapshots.len());
                    self.snapshots.swap_remove(index);
                }
            }
            880..900 => self.opened().db.flush().expect("flush"),
            900..905 => self.opened().db.compact(None).expect("compact"),
            905..980 => {
                let quanta = self.random.index(20);
                self.opened().executor.run(quanta);
            }
            980..985 => self.reopen(),
            985..992 => self.kill(),
            992..997 => self.lose_power(),
            _ => self.check_all(),
        }
    }
}

fn run(seed: u64, steps: usize) -> u64 {
    let mut run = Run::new(seed);
    for _ in 0..steps {
        run.step();
    }
    run.check_all();
    let trace = run.opened().executor.trace();
    run.forget_views();
    run.open = None;
    trace
}

#[test]
fn answers_equal_those_of_a_sorted_map() {
    let first = number("ALLUVIUM_FIRST_SEED", 1);
    let seeds = number("ALLUVIUM_SEEDS", 40);
    for seed in first..first + seeds {
        let result = std::panic::catch_unwind(|| run(seed, 600));
        assert!(
            result.is_ok(),
            "seed {seed} fails; run it alone with ALLUVIUM_FIRST_SEED={seed} ALLUVIUM_SEEDS=1"
        );
    }
}

#[test]
fn a_simulated_history_with_a_crash_replays_from_its_seed() {
    let history = || {
        let mut run = Run::new(4242);
        for _ in 0..100 {
            run.write();
        }
        run.lose_power();
        for _ in 0..100 {
            run.step();
        }
        let files: Vec<(std::path::PathBuf, Vec<u8>)> = run
            .fs
            .files()
            .into_iter()
            .map(|path| (path.clone(), run.fs.contents(&path).expect("readable")))
            .collect();
        (run.opened().executor.trace(), files)
    };
    let first = history();
    assert_eq!(history(), first, "the second run differs");
    assert_eq!(history(), first, "the third run differs");
}
