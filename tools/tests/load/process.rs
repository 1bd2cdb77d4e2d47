//! The real command on a real database.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use alluvium::{Db, Options, Value};
use alluvium_tools::load::error::exit;

const KEY: [&str; 2] = ["--primary-key", "time_hour,carrier,flight,origin"];

fn command(database: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_alluvium-load"));
    command.arg("--db").arg(database);
    command
}

fn load(database: &Path, options: &[&str], input: &str) -> Output {
    command(database).args(options).arg(input).output().unwrap()
}

fn code(status: ExitStatus) -> u8 {
    u8::try_from(status.code().expect("the command ends by itself")).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn open(database: &Path) -> Db {
    Db::open(database, Options::default()).unwrap()
}

/// Names of the table files in a database.
fn table_files(database: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(database).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".sst")).collect();
    names.sort();
    names
}

/// The files of a load that was killed are removed in the background, once the database is open again.
fn expect_no_table_files(database: &Path) {
    let gone = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        table_files(database).is_empty()
    });
    assert!(gone, "files of the load remain: {:?}", table_files(database));
}

#[test]
fn the_flights_are_there_and_all_indexes_agree() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("flights");
    let options = [
        "--table",
        "flights",
        "--null",
        "NA",
        "--index",
        "by_tail=tailnum,time_hour:desc",
        "--index",
        "by_route=origin,dest;include=carrier,arr_delay",
        "--index",
        "by_dest=dest:2",
        "--unique-index",
        "by_key=time_hour,carrier,flight,origin,tailnum",
    ];
    let output = load(&database, &[&KEY[..], &options].concat(), "testdata/flights-sample.csv.gz");
    assert_eq!(code(output.status), exit::CLEAN, "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("flights: 22,353 rows loaded in "), "{}", text(&output.stdout));

    let db = open(&database);
    let table = db.table("flights").unwrap();
    let check = table.check_indexes().unwrap();
    assert!(check.is_clean() && check.rows == 22_353, "{check:?}");
    assert_eq!(table.scan().index("by_tail").eq(Value::Null).count().unwrap(), 114);
    assert_eq!(table.scan().index("by_tail").eq("N722MQ").reverse().count().unwrap(), 37);
    assert_eq!(table.scan().index("by_dest").eq("SEA").count().unwrap(), 256);
    assert_eq!(db.statistics().unwrap().levels.iter().map(|level| level.files).sum::<usize>(), 5);
}

#[test]
fn a_second_load_adds_a_table_and_the_same_table_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (database, input) = (directory.path().join("db"), directory.path().join("users.csv"));
    std::fs::write(&input, "id,name\n1,ann\n2,bob\n").unwrap();
    let input = input.to_str().unwrap();
    for table in ["a", "b"] {
        let output = load(&database, &["--primary-key", "id", "--table", table], input);
        assert_eq!(code(output.status), exit::CLEAN, "{}", text(&output.stderr));
    }
    let output = load(&database, &["--primary-key", "id", "--table", "a"], input);
    assert_eq!(code(output.status), exit::USAGE);
    assert_eq!(text(&output.stderr), "error: table a already exists\n");
    assert_eq!(open(&database).tables().unwrap(), ["a", "b"]);
}

#[test]
fn a_database_in_use_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let _db = open(directory.path());
    let output = load(directory.path(), &KEY, "testdata/flights-sample.csv.gz");
    assert_eq!(code(output.status), exit::IN_USE);
    assert!(text(&output.stderr).contains("is in use by another process"), "{}", text(&output.stderr));
}

#[test]
fn a_load_that_fails_late_leaves_the_database_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (database, input) = (directory.path().join("db"), directory.path().join("users.csv"));
    std::fs::write(&input, "id,name\n1,ann\n2,bob\n2,cat\n").unwrap();
    let output = load(&database, &["--primary-key", "id"], input.to_str().unwrap());
    assert_eq!(code(output.status), exit::TOO_MANY_ERRORS);
    assert!(text(&output.stderr).contains("same primary key as"), "{}", text(&output.stderr));
    assert!(open(&database).tables().unwrap().is_empty());
    assert!(table_files(&database).is_empty());
}

/// Starts a load that reads from a pipe and gives it some rows: it then waits for more.
fn waiting_load(database: &Path) -> Child {
    let mut child = command(database)
        .args(["--table", "numbers", "--primary-key", "n", "--threads", "2", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More than the plan looks at: when all of it has been taken, the load is under way.
    let mut rows = String::from("n,text\n");
    (0..1_000_000).for_each(|n| rows.push_str(&format!("{n},x\n")));
    child.stdin.as_mut().unwrap().write_all(rows.as_bytes()).unwrap();
    child
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn the_first_interrupt_stops_cleanly() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = waiting_load(directory.path());
    signal(&child, "-INT");
    // Reading the pipe cannot be interrupted, but the end of the program that writes ends it.
    drop(child.stdin.take());
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(code(child.wait().unwrap()), exit::STOPPED);
    assert!(told.ends_with("error: stopped as asked; the database is as it was\n"), "{told}");
    assert!(open(directory.path()).tables().unwrap().is_empty());
}

#[test]
fn the_second_interrupt_stops_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = waiting_load(directory.path());
    let status = loop {
        // Signals of one kind that come together count as one, so that two may not be enough.
        signal(&child, "-INT");
        std::thread::sleep(Duration::from_millis(20));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(code(status), exit::STOPPED);
    assert!(open(directory.path()).tables().unwrap().is_empty());
}

#[test]
fn a_kill_at_any_moment_leaves_no_table_or_a_whole_one() {
    let options =
        ["--table", "flights", "--null", "NA", "--index", "by_dest=dest", "testdata/flights-sample.csv.gz"];
    let mut unfinished = 0;
    for delay_millis in std::iter::successors(Some(0), |delay| Some(delay * 4 / 3 + 10)) {
        let directory = tempfile::tempdir().unwrap();
        let mut child = command(directory.path())
            .args(KEY)
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(delay_millis));
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let db = open(directory.path());
        if db.tables().unwrap().is_empty() {
            assert!(ended.is_none(), "a load that has ended has left its table");
            expect_no_table_files(directory.path());
            unfinished += 1;
        } else {
            let check = db.table("flights").unwrap().check_indexes().unwrap();
            assert!(check.is_clean() && check.rows == 22_353, "after {delay_millis} ms: {check:?}");
        }
        if ended.is_some() {
            break;
        }
    }
    assert!(unfinished > 1);
}
