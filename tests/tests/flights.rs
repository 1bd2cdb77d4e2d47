//! Real rows, written through the row API in batches of 100 by a child process that is killed at random moments: every
//! acknowledged batch is there, none by half, and all indexes agree.
//!
//! The short form uses the first 6,000 rows of the sample. The long form: `ALLUVIUM_FLIGHTS=…/flights.csv.gz
//! ALLUVIUM_ROWS=400000 ALLUVIUM_KILLS=100`.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use alluvium::base::random::Random;
use alluvium::{Db, Durability, Options, Value};
use alluvium_tests::flights;

const BATCH_ROWS: usize = 100;
const CHILD_DIRECTORY: &str = "ALLUVIUM_CHILD_DIRECTORY";

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn rows() -> Vec<Vec<Value>> {
    let mut rows = flights::rows();
    rows.truncate(number("ALLUVIUM_ROWS", 6000));
    rows
}

fn options() -> Options {
    // Small, so that flushes and compactions happen all the time.
    Options {
        memory_bytes: Some(16 << 20),
        memtable_bytes: Some(1 << 20),
        table_bytes: 1 << 20,
        base_level_bytes: 2 << 20,
        log_segment_bytes: 1 << 20,
        log_ring_bytes: 256 << 10,
        ..Options::default()
    }
}

/// How many whole batches the table has, after checking that it has no others.
fn whole_batches(directory: &Path, rows: &[Vec<Value>]) -> usize {
    let db = Db::open(directory, options()).expect("opens after a kill");
    let table = flights::open_table(&db).expect("table");
    let found = table.scan().count().expect("count") as usize;
    assert!(found.is_multiple_of(BATCH_ROWS) || found == rows.len(), "{found} rows: half a batch");
    flights::check(&table, &rows[..found]).expect("readable");
    drop(table);
    db.close(Duration::from_secs(10)).expect("closes");
    found.div_ceil(BATCH_ROWS)
}

/// Not a test of its own: what the child process runs.
#[test]
fn child_writes_batches_until_killed() {
    let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else { return };
    let rows = rows();
    let db = Db::open(Path::new(&directory), options()).expect("opens");
    let table = flights::open_table(&db).expect("table");
    let first = table.scan().count().expect("count") as usize / BATCH_ROWS;
    for (number, chunk) in rows.chunks(BATCH_ROWS).enumerate().skip(first) {
        let mut batch = db.batch().expect("batch");
        for values in chunk {
            batch.insert(&table, &flights::row(&table, values).expect("row")).expect("insert");
        }
        batch.commit(Durability::Sync).expect("commit");
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {number}").and_then(|()| out.flush()).expect("the parent listens");
    }
}

#[test]
fn rows_survive_kills_at_random_moments() {
    let rows = rows();
    let directory = tempfile::tempdir().expect("a directory");
    let database = directory.path().join("db");
    let total = rows.len().div_ceil(BATCH_ROWS);
    let kills = number("ALLUVIUM_KILLS", 8);
    let mut random = Random::new(number("ALLUVIUM_FIRST_SEED", 1) as u64);
    let mut done = 0;
    let mut killed = 0;
    while done < total {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "child_writes_batches_until_killed", "--nocapture", "--test-threads", "1"])
            .env(CHILD_DIRECTORY, &database)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let out = child.stdout.take().expect("piped");
        // The last kills are spread over what is left; then the child may finish.
        let stop_after = (killed < kills).then(|| random.index((total / kills).max(2)) + 1);
        let mut acknowledged = None;
        let mut seen = 0;
        for line in BufReader::new(out).lines() {
            let line = line.expect("readable");
            let Some((_, number)) = line.split_once("acknowledged ") else { continue };
            acknowledged = number.trim().parse::<usize>().ok();
            seen += 1;
            if stop_after == Some(seen) {
                // Somewhere within the next batch, or in the middle of a flush.
                std::thread::sleep(Duration::from_micros(random.below(3000)));
                child.kill().expect("killed");
            }
        }
        child.wait().expect("ends");
        killed += usize::from(stop_after.is_some_and(|stop| seen >= stop));
        let found = whole_batches(&database, &rows);
        if let Some(last) = acknowledged {
            assert!(found > last, "batch {last} was acknowledged, but only {found} batches are there");
        }
        done = found;
    }
    assert!(killed > 0, "nothing was killed");
    println!("{killed} kills, {total} batches, {} rows", rows.len());
}
