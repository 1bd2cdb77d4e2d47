//! Concurrent transactions over rows and keyspaces, recorded as histories and checked for anomalies
//! (`alluvium_tests::history`): in a simulation, where a seed decides who does the next step and when memtables are
//! flushed and tables merged, and with real threads.
//!
//! Lists are kept in a table (with an index that moves with every append) and in a plain keyspace. Clients read single
//! lists, scan them by key and by index, append to them, give up at random; some commit under snapshot isolation, some
//! serialisable, some write batches of updates.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::random::Random;
use alluvium::base::sync::enter_simulation;
use alluvium::{
    Db, Durability, DynamicRow, Environment, Error, ErrorKind, Index, Isolation, Keyspace, Options, Result,
    Schema, Table, Transaction, Type, Value,
};
use alluvium_tests::history::{Anomaly, History, Operation, Promise, Record, check};
use alluvium_tests::number;

/// Lists in the table; as many more are in the keyspace. Few, so that clients meet.
const LISTS: u64 = 5;

fn schema() -> Schema {
    Schema::table("lists")
        .column("id", Type::U64)
        .column("items", Type::Bytes)
        .column("length", Type::U64)
        .primary_key(["id"])
        .index(Index::on("by_length").asc("length"))
        .index(Index::on("by_items").prefix("items", 8))
        .build()
        .expect("a valid schema")
}

fn encode(items: &[u64]) -> Vec<u8> {
    items.iter().flat_map(|item| item.to_le_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("whole items"))).collect()
}

fn items_of(value: &Value) -> Vec<u64> {
    let Value::Bytes(bytes) = value else { panic!("{value:?} is no list") };
    decode(bytes)
}

/// The lists of a database.
#[derive(Clone)]
struct Lists {
    db: Db,
    table: Table,
    keyspace: Keyspace,
}

impl Lists {
    fn create(db: &Db) -> Lists {
        let (table, keyspace) = (db.create_table(schema()), db.keyspace("lists"));
        Lists { db: db.clone(), table: table.expect("table"), keyspace: keyspace.expect("keyspace") }
    }

    fn row(&self, key: u64, items: &[u64]) -> Result<DynamicRow> {
        let length = Value::from(items.len() as u64);
        self.table.row_of([Value::from(key), Value::from(encode(items)), length])
    }

    fn read(&self, tx: &mut Transaction, key: u64, for_update: bool) -> Result<Vec<u64>> {
        if key >= LISTS {
            let mut view = tx.keyspace(&self.keyspace);
            let key = key.to_be_bytes();
            let value = if for_update { view.get_for_update(&key)? } else { view.get(&key)? };
            return Ok(value.map_or(Vec::new(), |value| decode(&value)));
        }
        let row = if for_update { tx.get_for_update(&self.table, key)? } else { tx.get(&self.table, key)? };
        row.map_or(Ok(Vec::new()), |row| Ok(items_of(row.get("items")?)))
    }

    fn append(&self, tx: &mut Transaction, key: u64, value: u64) -> Result<Vec<u64>> {
        let seen = self.read(tx, key, false)?;
        let mut items = seen.clone();
        items.push(value);
        if key >= LISTS {
            tx.keyspace(&self.keyspace).put(&key.to_be_bytes(), &encode(&items))?;
        } else if seen.is_empty() {
            tx.insert(&self.table, &self.row(key, &items)?)?;
        } else {
            tx.put(&self.table, &self.row(key, &items)?)?;
        }
        Ok(seen)
    }

    /// Reads all lists of the table, or of the keyspace, by a scan.
    fn scan(&self, tx: &mut Transaction, how: u64) -> Result<Vec<Operation>> {
        let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let base = if how < 4 { 0 } else { LISTS };
        if how < 4 {
            let scan = tx.scan(&self.table);
            let mut scan = match how {
                0 => scan,
                1 => scan.reverse(),
                2 => scan.index("by_length").range(1u64..),
                _ => scan.index("by_items").reverse(),
            }
            .run()?;
            while let Some(row) = scan.next_values()? {
                let Value::UInt(id) = row[0] else { panic!("{row:?}") };
                assert!(found.insert(id, items_of(&row[1])).is_none(), "list {id} is shown twice");
            }
        } else {
            let mut iter = tx.keyspace(&self.keyspace).range::<&[u8]>(..)?;
            while if how == 4 { iter.next()? } else { iter.prev()? } {
                let key = u64::from_be_bytes(iter.key().try_into().expect("a key"));
                found.insert(key, decode(iter.value()));
            }
        }
        let lists = (base..base + LISTS).map(|key| (key, found.remove(&key).unwrap_or_default()));
        Ok(lists.map(|(key, list)| Operation::Read(key, list)).collect())
    }

    /// Appends to rows that exist by one batch of updates.
    fn update(&self, appends: &[(u64, u64)]) -> Result<()> {
        let mut batch = self.db.batch()?;
        for &(key, value) in appends {
            batch.update(&self.table, key, move |row| {
                let mut items = items_of(row.get("items")?);
                items.push(value);
                row.set("length", items.len() as u64)?;
                row.set("items", encode(&items))
            })?;
        }
        batch.commit(Durability::Buffered)
    }

    fn last(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut tx = self.db.transaction(Isolation::Snapshot).expect("transaction");
        (0..2 * LISTS).map(|key| (key, self.read(&mut tx, key, false).expect("read"))).collect()
    }
}

/// What the clients of one history share.
struct Shared<'a> {
    lists: &'a Lists,
    clock: &'a AtomicU64,
    values: &'a AtomicU64,
    /// What is promised to each transaction; one of these.
    promises: &'a [Promise],
    operations_max: usize,
}

/// A client: does one thing at a time.
struct Client {
    random: Random,
    open: Option<(Transaction, Record, usize)>,
    done: Vec<Record>,
    conflicts: u64,
}

impl Client {
    fn new(seed: u64) -> Client {
        Client { random: Random::new(seed), open: None, done: Vec::new(), conflicts: 0 }
    }

    /// Does the next step: begins, reads or writes, commits or gives up.
    fn step(&mut self, shared: &Shared<'_>) {
        let Some((mut tx, mut record, left)) = self.open.take() else { return self.begin(shared) };
        if left == 0 {
            return self.end(tx, record, shared);
        }
        let lists = shared.lists;
        let key = self.random.below(2 * LISTS);
        match self.random.below(10) {
            0..4 => {
                let value = shared.values.fetch_add(1, Ordering::SeqCst);
                let seen = lists.append(&mut tx, key, value).expect("append");
                record.operations.push(Operation::Read(key, seen));
                record.operations.push(Operation::Append(key, value));
            }
            4..7 => {
                let seen = lists.read(&mut tx, key, self.random.one_in(4)).expect("read");
                record.operations.push(Operation::Read(key, seen));
            }
            _ => record.operations.extend(lists.scan(&mut tx, self.random.below(6)).expect("scan")),
        }
        self.open = Some((tx, record, left - 1));
    }

    fn begin(&mut self, shared: &Shared<'_>) {
        let promise = shared.promises[self.random.index(shared.promises.len())];
        let began = shared.clock.fetch_add(1, Ordering::SeqCst);
        let mut record = Record { promise, began, ended: 0, committed: false, operations: Vec::new() };
        let isolation = match promise {
            Promise::Snapshot => Isolation::Snapshot,
            Promise::Serializable => Isolation::Serializable,
            Promise::Latest => {
                let keys = [self.random.below(LISTS), self.random.below(LISTS)];
                let appends = keys.map(|key| (key, shared.values.fetch_add(1, Ordering::SeqCst)));
                record.operations = appends.map(|(key, value)| Operation::Append(key, value)).to_vec();
                return self.finish(record, shared.lists.update(&appends), shared);
            }
        };
        let tx = shared.lists.db.transaction(isolation).expect("transaction");
        self.open = Some((tx, record, 1 + self.random.index(shared.operations_max)));
    }

    fn end(&mut self, tx: Transaction, record: Record, shared: &Shared<'_>) {
        let result = match self.random.one_in(12) {
            true => Err(Error::invalid("thought better of it")),
            false => tx.commit(Durability::Buffered),
        };
        self.finish(record, result, shared);
    }

    fn finish(&mut self, record: Record, result: Result<()>, shared: &Shared<'_>) {
        let ended = shared.clock.fetch_add(1, Ordering::SeqCst);
        let committed = result.is_ok();
        match result.as_ref().map_err(Error::kind) {
            Ok(()) | Err(ErrorKind::InvalidArgument { .. }) => {}
            Err(ErrorKind::Conflict { .. }) => self.conflicts += 1,
            // A batch of updates met a row that is not there yet.
            Err(ErrorKind::NotFound { .. }) if record.promise == Promise::Latest => {}
            Err(_) => panic!("{result:?}"),
        }
        self.done.push(Record { ended, committed, ..record });
    }
}

/// Puts the records of all clients together; transactions that are still open are undone.
fn history_of(clients: Vec<Client>, lists: &Lists) -> (History, u64) {
    let (mut records, mut conflicts) = (Vec::new(), 0);
    for client in clients {
        conflicts += client.conflicts;
        records.extend(client.open.map(|(_, record, _)| record));
        records.extend(client.done);
    }
    let indexes = lists.table.check_indexes().expect("checks");
    assert!(indexes.is_clean(), "{indexes:#?}");
    (History { records, last: lists.last() }, conflicts)
}

fn options(random: &mut Random) -> Options {
    let pick = |random: &mut Random, from: &[u64]| from[random.index(from.len())];
    Options {
        memory_bytes: Some(1 << 20),
        memtable_bytes: Some(pick(random, &[16 << 10, 32 << 10, 256 << 10]) as usize),
        immutable_memtables_max: 1 + random.index(3),
        table_bytes: 4 << 10,
        base_level_bytes: 8 << 10,
        level0_compaction_trigger: 1 + random.index(3),
        log_segment_bytes: 64 << 10,
        log_ring_bytes: 128 << 10,
        ..Options::default()
    }
}

/// One history in a simulation.
fn simulate(seed: u64, promises: &[Promise], steps: usize) -> (History, u64) {
    let mut random = Random::new(seed);
    let (environment, executor, _) = Environment::simulated(MemoryFs::new().shared(), random.next_u64());
    let _simulation = enter_simulation(executor.clone());
    let db = Db::open_in(environment, Path::new("/db"), options(&mut random)).expect("opens");
    let lists = Lists::create(&db);
    let (clock, values) = (AtomicU64::new(0), AtomicU64::new(0));
    let shared = Shared {
        lists: &lists,
        clock: &clock,
        values: &values,
        promises,
        operations_max: 1 + random.index(6),
    };
    let mut clients: Vec<Client> = (0..2 + random.index(6)).map(|_| Client::new(random.next_u64())).collect();
    for _ in 0..steps {
        match random.below(100) {
            0 => db.flush().expect("flush"),
            1 if random.one_in(4) => db.compact(None).expect("compact"),
            2..10 => drop(executor.run(random.index(8))),
            _ => {
                let client = random.index(clients.len());
                clients[client].step(&shared);
            }
        }
    }
    let result = history_of(clients, &lists);
    db.close(Duration::from_secs(10)).expect("closes");
    result
}

/// What many histories showed.
#[derive(Debug, Default)]
struct Sum {
    committed: usize,
    conflicts: u64,
    /// Histories that would be an anomaly if every transaction had been promised to be serialisable.
    skewed: usize,
}

/// Checks histories of many seeds. All of them must be clean.
fn check_seeds(promises: &[Promise]) -> Sum {
    let (first, seeds) = (number("ALLUVIUM_FIRST_SEED", 1), number("ALLUVIUM_SEEDS", 60));
    let mut sum = Sum::default();
    for seed in first..first + seeds {
        let (mut history, conflicts) = simulate(seed, promises, 600);
        let found = check(&history);
        let shown: Vec<String> = found.iter().take(3).map(Anomaly::to_string).collect();
        assert!(
            found.is_empty(),
            "seed {seed}, {promises:?}: {} anomalies: {shown:#?}; run it alone with ALLUVIUM_FIRST_SEED={seed} \
             ALLUVIUM_SEEDS=1",
            found.len()
        );
        sum.committed += history.records.iter().filter(|record| record.committed).count();
        sum.conflicts += conflicts;
        history.records.iter_mut().for_each(|record| record.promise = Promise::Serializable);
        sum.skewed += usize::from(!check(&history).is_empty());
    }
    println!("{promises:?}: {seeds} histories, {sum:?}");
    assert!(seeds < 60 || (sum.committed > 1000 && sum.conflicts > 100), "too little happened: {sum:?}");
    sum
}

#[test]
fn snapshot_isolation_holds_in_simulated_histories() {
    let sum = check_seeds(&[Promise::Snapshot]);
    let seeds = number("ALLUVIUM_SEEDS", 60);
    assert!(
        seeds < 60 || sum.skewed > 0,
        "no history shows what snapshot isolation permits: is the checker blind?"
    );
}

#[test]
fn serialisable_transactions_are_serialisable_in_simulated_histories() {
    let sum = check_seeds(&[Promise::Serializable]);
    assert_eq!(sum.skewed, 0);
}

#[test]
fn each_kind_of_writer_keeps_its_promise_beside_the_others() {
    check_seeds(&[Promise::Snapshot, Promise::Serializable, Promise::Serializable, Promise::Latest]);
}

/// One history of real threads, which end after `seconds`.
fn run_threads(seed: u64, promises: &[Promise], transactions: usize) -> (History, u64) {
    const THREADS: u64 = 6;
    let environment = Environment { fs: MemoryFs::new().shared(), ..Environment::system() };
    let mut random = Random::new(seed);
    let db = Db::open_in(environment, Path::new("/db"), options(&mut random)).expect("opens");
    let lists = Lists::create(&db);
    let (clock, values) = (AtomicU64::new(0), AtomicU64::new(0));
    let shared = Shared { lists: &lists, clock: &clock, values: &values, promises, operations_max: 5 };
    let clients = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let shared = &shared;
                scope.spawn(move || {
                    let mut client = Client::new(seed * THREADS + thread);
                    while client.done.len() < transactions {
                        client.step(shared);
                    }
                    client
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a client")).collect()
    });
    let result = history_of(clients, &lists);
    db.close(Duration::from_secs(10)).expect("closes");
    result
}

#[test]
fn promises_hold_under_real_threads() {
    let until = Instant::now() + Duration::from_secs(number("ALLUVIUM_SECONDS", 3));
    let mixes: [&[Promise]; 3] = [
        &[Promise::Serializable],
        &[Promise::Snapshot],
        &[Promise::Snapshot, Promise::Serializable, Promise::Latest],
    ];
    let (mut committed, mut conflicts, mut seed) = (0, 0, 0);
    while Instant::now() < until || seed < 3 {
        let promises = mixes[seed as usize % mixes.len()];
        let (history, refused) = run_threads(seed, promises, 60);
        let found = check(&history);
        let shown: Vec<String> = found.iter().take(3).map(Anomaly::to_string).collect();
        assert!(found.is_empty(), "{promises:?}: {} anomalies: {shown:#?}", found.len());
        committed += history.records.iter().filter(|record| record.committed).count();
        conflicts += refused;
        seed += 1;
    }
    println!("{seed} histories of threads: {committed} commits, {conflicts} conflicts");
    assert!(conflicts > 0, "the threads never met");
}
