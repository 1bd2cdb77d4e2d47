//! Many writers on few rows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alluvium_base::ErrorKind;
use alluvium_base::clock::SystemClock;
use alluvium_base::random::Random;

use super::*;

const THREADS: u64 = 16;
const ROWS: u64 = 100;
/// Fewer than rows, so that unique values collide.
const UNIQUE_VALUES: u64 = 80;

fn table<S: Store>(store: &S) -> Table<S> {
    let schema = Schema::table("busy")
        .column("id", Type::U64)
        .column("counter", Type::U64)
        .nullable("unique", Type::Text)
        .column("group", Type::U8)
        .column("score", Type::I32)
        .primary_key(["id"])
        .index(Index::on("by_unique").asc("unique").unique())
        .index(Index::on("by_group").asc("group").desc("score"))
        .index(Index::on("by_score").desc("score").include(["counter", "group"]))
        .index(Index::on("by_prefix").prefix("unique", 2).asc("group"))
        .build()
        .unwrap();
    Table::create(store, schema).unwrap()
}

fn random_row<S: Store>(table: &Table<S>, random: &mut Random, id: u64) -> DynamicRow {
    let unique = match random.below(4) {
        0 => Value::Null,
        _ => format!("u{:02}", random.below(UNIQUE_VALUES)).into(),
    };
    let (group, score) = (random.below(5), random.below(50) as i32 - 25);
    table.row_of([id.into(), 0u64.into(), unique, group.into(), score.into()]).unwrap()
}

/// One batch of one to three operations. Increments are counted per row if the batch commits, unless it also replaces
/// or removes the row.
fn one_batch<S: Store>(
    table: &Table<S>,
    store: &S,
    random: &mut Random,
    durability: S::Durability,
) -> (Vec<u64>, alluvium_base::Result<()>) {
    let mut batch = Batch::new(store);
    let mut incremented = Vec::new();
    for _ in 0..=random.below(3) {
        let id = random.below(ROWS);
        // Rows 0 to 9 are only ever incremented, so that a lost update shows.
        match if id < 10 { 0 } else { random.below(5) } {
            0 | 1 => {
                let fresh = random_row(table, random, id);
                batch
                    .update(table, id, move |row: &mut DynamicRow| {
                        let Value::UInt(counter) = *row.get("counter")? else { panic!() };
                        row.set("counter", counter + 1)?;
                        row.set("score", fresh.get("score")?)?;
                        if id >= 10 {
                            row.set("unique", fresh.get("unique")?)?;
                        }
                        row.set("group", fresh.get("group")?)
                    })
                    .unwrap();
                incremented.push(id);
            }
            2 => batch.put(table, &random_row(table, random, id)).unwrap(),
            3 => batch.insert(table, &random_row(table, random, id)).unwrap(),
            _ => batch.delete(table, id).unwrap(),
        }
    }
    (incremented, batch.commit(durability))
}

#[test]
fn sixteen_writers_keep_indexes_and_counters_right() {
    let commits = run(&MapStore::new(), (), Duration::from_secs(2));
    assert!(commits > 1000);
}

#[test]
fn sixteen_writers_keep_indexes_and_counters_right_in_a_database() {
    let directory = tempfile::tempdir().unwrap();
    let options = crate::Options { memtable_bytes: Some(1 << 20), ..crate::Options::default() };
    let db = crate::Db::open(directory.path(), options).unwrap();
    let commits = run(&db, crate::Durability::Buffered, Duration::from_secs(2));
    assert!(commits > 1000);
}

/// Lets all threads write for a while, checks everything, and returns the number of commits.
fn run<S: Store>(store: &S, durability: S::Durability, duration: Duration) -> u64
where
    S::Durability: Sync,
{
    let table = table(store);
    for id in 0..10u64 {
        let values = [id.into(), 0u64.into(), Value::Null, 0u8.into(), 0.into()];
        let mut batch = Batch::new(store);
        batch.insert(&table, &table.row_of(values).unwrap()).unwrap();
        batch.commit(durability).unwrap();
    }
    let increments: Vec<AtomicU64> = (0..10).map(|_| AtomicU64::new(0)).collect();
    let commits = AtomicU64::new(0);
    let clock = SystemClock::shared();
    let end = clock.monotonic_nanos() + duration.as_nanos() as u64;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, increments, commits, clock) = (&table, &increments, &commits, &clock);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                while clock.monotonic_nanos() < end {
                    let (incremented, result) = one_batch(table, store, &mut random, durability);
                    match result {
                        Ok(()) => {
                            commits.fetch_add(1, Ordering::Relaxed);
                            for id in incremented.into_iter().filter(|&id| id < 10) {
                                increments[id as usize].fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        Err(error) => assert!(
                            matches!(
                                error.kind(),
                                ErrorKind::KeyExists { .. }
                                    | ErrorKind::UniqueViolation { .. }
                                    | ErrorKind::NotFound { .. }
                            ),
                            "{error}"
                        ),
                    }
                }
            });
        }
    });
    assert_clean(&table);
    for (id, expected) in increments.iter().enumerate() {
        let row = table.get(id as u64).unwrap().unwrap();
        assert_eq!(row.get("counter").unwrap(), &Value::UInt(expected.load(Ordering::Relaxed)), "row {id}");
    }
    commits.into_inner()
}
