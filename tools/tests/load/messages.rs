//! What a newcomer reads when something is wrong: where, what, and what to do about it.

use std::fs;

use alluvium_tools::load::error::exit;
use tempfile::TempDir;

use crate::support::{Fault, Run, StopHandle};

fn files(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn error(text: &str, options: &[&str]) -> String {
    let directory = files(&[("users.csv", text)]);
    Run::new(directory.path(), options, &["users.csv"]).error()
}

/// Enough rows that what follows is not in the sample.
fn long(head: &str, row: impl Fn(usize) -> String, tail: &str) -> String {
    let mut text = head.to_owned();
    (0..10_000).for_each(|number| text.push_str(&row(number)));
    text + tail
}

#[test]
fn a_value_that_the_sample_did_not_foresee() {
    let text = long("id,age\n", |id| format!("{id},30\n"), "x1,31\n10001,unknown\n10002,1.5\n");
    assert_eq!(
        error(&text, &["--primary-key", "id", "--threads", "1"]),
        "nothing was loaded: 3 rows were rejected, --max-errors allows 0\n  \
         users.csv line 10002 (byte 78897), column id: expected i64, found \"x1\" – expected an integer\n  \
         users.csv line 10003 (byte 78903), column age: expected i64, found \"unknown\" – expected an integer\n  \
         users.csv line 10004 (byte 78917), column age: expected i64, found \"1.5\" – expected an integer\n  \
         help: if \"unknown\" stands for a missing value, say --null unknown\n  \
         help: to take column age as it is, say --column age=text\n  \
         help: to take column id as it is, say --column id=text"
    );
}

#[test]
fn a_missing_value() {
    assert_eq!(
        error("id,age\n1,\n,5\n", &["--primary-key", "id"]),
        "nothing was loaded: 1 row was rejected, --max-errors allows 0\n  \
         users.csv line 3 (byte 10), column id: expected i64, found \"\" – no value, but the column is part of the \
         primary key"
    );
    assert_eq!(
        error("id,age\n1,NA\n", &["--primary-key", "id", "--not-null", "age", "--null", "NA"]),
        "nothing was loaded: 1 row was rejected, --max-errors allows 0\n  \
         users.csv line 2 (byte 7), column age: expected text, found \"NA\" – no value, but --not-null names the column"
    );
}

#[test]
fn a_row_with_too_few_or_too_many_fields() {
    assert_eq!(
        error("id,age\n1,2\n3\n4,5,6\n", &["--primary-key", "id"]),
        "nothing was loaded: 2 rows were rejected, --max-errors allows 0\n  \
         users.csv line 3 (byte 11): expected 2 fields, found \"3\" – the row has 1 field\n  \
         users.csv line 4 (byte 13): expected 2 fields, found \"4,5,6\" – the row has 3 fields"
    );
}

#[test]
fn text_behind_a_closing_quote_was_loaded() {
    assert_eq!(
        error("id,name\n1,ann\n2,\"bob\"by\n", &["--primary-key", "id"]),
        "nothing was loaded: 1 row was rejected, --max-errors allows 0\n  \
         users.csv line 3 (byte 14): text behind a closing quote, at byte 21 (a quote inside of a quoted field must be \
         doubled): \"2,bobby\""
    );
}

#[test]
fn a_number_beyond_a_float_was_loaded_as_infinity() {
    assert_eq!(
        error("id,x\n1,1.5\n2,1e400\n", &["--primary-key", "id", "--column", "x=f64"]),
        "nothing was loaded: 1 row was rejected, --max-errors allows 0\n  \
         users.csv line 3 (byte 11), column x: expected f64, found \"1e400\" – out of range\n  \
         help: to take column x as it is, say --column x=text"
    );
}

#[test]
fn the_first_reject_was_told_as_if_it_were_the_only_one() {
    // More than one batch: behind the first reject nothing is read any more.
    let text = long("id,age\n", |id| format!("{id},30\n"), "");
    let text = text.replace("\n5,30\n", "\n5,x\n") + "x,1\n";
    let told = error(&text, &["--primary-key", "id", "--column", "age=i64", "--column", "id=i64"]);
    assert!(told.starts_with("nothing was loaded: at least 1 row was rejected"), "{told}");
}

#[test]
fn of_several_unique_violations_only_the_first_was_told() {
    let text = "id,email\na,x\nb,x\nc,x\nc,y\nd,y\n";
    for (mode, count) in [("last", 2), ("first", 2), ("reject", 3)] {
        let options = ["--primary-key", "id", "--unique-index", "by_email=email", "--on-duplicate", mode];
        let told = error(text, &options);
        assert!(
            told.starts_with(&format!("nothing was loaded: {count} rows were rejected")),
            "{mode}: {told}"
        );
    }
}

#[test]
fn a_file_where_the_database_must_be_was_an_entity_that_already_exists() {
    let directory = files(&[("users.csv", "id\n1\n")]);
    let file = directory.path().join("users.csv");
    for database in [file.clone(), file.join("db")] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_alluvium-load"));
        command.arg("--db").arg(database).args(["--primary-key", "id"]).arg(&file);
        let told = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(told.contains("is a file, not a directory"), "{told}");
    }
}

#[test]
fn an_output_on_a_full_device_was_said_to_resume_by_itself() {
    let directory = files(&[("users.csv", "id\n1\n")]);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_alluvium-load"));
    command.arg("--db").arg(directory.path().join("db")).args(["--primary-key", "id"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command.arg(directory.path().join("users.csv")).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(exit::IO)));
    let told = String::from_utf8(output.stderr).unwrap();
    let expected =
        "error: the table is loaded, but cannot write to standard output: no space left on the device\n";
    assert!(told.ends_with(expected), "{told}");
}

#[test]
fn text_that_is_not_utf_8() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("users.csv"), b"id,name\n1,J\xf6rg\n").unwrap();
    assert_eq!(
        Run::new(directory.path(), &["--primary-key", "id"], &["users.csv"]).error(),
        "nothing was loaded: 1 row was rejected, --max-errors allows 0\n  \
         users.csv line 2 (byte 8), column name: expected text, found \"J\u{fffd}rg\" – not UTF-8 text\n  \
         help: column name is not UTF-8: convert the file, for example iconv -f LATIN1 -t UTF-8"
    );
}

#[test]
fn rows_with_the_same_key() {
    let text = "id,email\na,x@a.org\nb,y@b.org\na,z@c.org\nc,x@a.org\n";
    let options = ["--primary-key", "id", "--unique-index", "by_email=email"];
    assert_eq!(
        error(text, &options),
        "nothing was loaded: 2 rows have a key that an earlier row has\n  \
         users.csv line 4, column id: same primary key as users.csv line 2: \"a\"\n  \
         users.csv line 5, column email: same key in unique index by_email as users.csv line 2: \"x@a.org\"\n  \
         help: --on-duplicate first, last or reject says which row to load; see --help"
    );
    assert_eq!(
        error(text, &[&options[..], &["--on-duplicate", "first"]].concat()),
        "nothing was loaded: 1 row was rejected, --max-errors allows 0\n  \
         users.csv line 5, column email: same key in unique index by_email as users.csv line 2: \"x@a.org\""
    );
}

#[test]
fn no_key_or_a_wrong_one() {
    let text = "id,name,age\n1,ann,5\n2,bob,5\n";
    assert_eq!(
        error(text, &[]),
        "users.csv: which columns tell one row from another? Say --primary-key COL[,COL…], or --row-id to number the \
         rows.\nIn the first 2 rows, each of these differs in every row: id, name"
    );
    assert_eq!(
        error("a,b\n1,2\n1,2\n", &[]).lines().last().unwrap(),
        "No single column differs in every sampled row; several together may: --primary-key COL,COL,…"
    );
    assert_eq!(
        error(text, &["--primary-key", "ID"]),
        "--primary-key: users.csv has no column \"ID\"; it has id, name, age"
    );
    assert_eq!(
        error(text, &["--primary-key", "id", "--index", "x=nam"]),
        "--index x: users.csv has no column \"nam\"; it has id, name, age"
    );
    assert_eq!(
        error(text, &["--primary-key", "id", "--index", "x=id:4"]),
        "schema of users: index x has a prefix of column id, but i64 has none; only text and bytes have"
    );
}

#[test]
fn files_that_do_not_belong_together() {
    let both = |second: &str| {
        let directory = files(&[("a.csv", "id,x\n1,2\n"), ("b.csv", second)]);
        Run::new(directory.path(), &["--primary-key", "id"], &["a.csv", "b.csv"]).error()
    };
    assert_eq!(both("id,y\n1,2\n"), "b.csv does not have the columns of a.csv: column 2 is y, not x");
    assert_eq!(both("id\n1\n"), "b.csv does not have the columns of a.csv: it has 1 column, not 2");
    assert_eq!(
        both("3,4\n5,6\n"),
        "b.csv does not have the columns of a.csv: it lacks a row of names, the other has one; say --header yes or \
         --header no"
    );
}

#[test]
fn inputs_that_cannot_be_read() {
    let directory = files(&[("empty.csv", ""), ("open.csv", "id,x\n1,2\n3,\"4\n5,6\n")]);
    let run = |input: &str| Run::new(directory.path(), &["--primary-key", "id"], &[input]);
    assert_eq!(run("empty.csv").error(), "empty.csv is empty: there is no row to learn the columns from");
    assert_eq!(run("nowhere.csv").error(), "cannot read nowhere.csv: no such file or directory");
    assert_eq!(run("").error().rsplit_once(": ").unwrap().1, "it is a directory; name the files in it");
    assert_eq!(
        run("open.csv").error(),
        "cannot read open.csv: the row that begins at line 3 (byte 9) has a quote (\") that is never closed"
    );
    assert_eq!(run("open.csv").load().err().unwrap().exit_code(), exit::IO);
}

#[test]
fn files_that_do_not_hold_what_was_written() {
    let directory = files(&[("users.csv", "id,age\n1,30\n2,31\n")]);
    let mut run = Run::new(
        directory.path(),
        &["--primary-key", "id", "--index", "by_age=age;include=id"],
        &["users.csv"],
    );
    run.fault = Fault::Loses(1);
    assert_eq!(
        run.error(),
        "verification failed: index by_age: the files do not give back what was written; nothing was loaded. This is \
         a bug or a failing disk: please report it"
    );
    assert_eq!(run.load().err().unwrap().exit_code(), exit::VERIFICATION_FAILED);
    run.fault = Fault::Flips(0);
    assert!(run.error().contains("the primary index: the files do not give back"));
}

#[test]
fn a_full_disk_and_the_wish_to_stop() {
    let directory = files(&[("users.csv", &long("id,age\n", |id| format!("{id},30\n"), ""))]);
    let mut run = Run::new(
        directory.path(),
        &["--primary-key", "id", "--threads", "2", "--index", "a=age"],
        &["users.csv"],
    );
    run.fault = Fault::Full(1000);
    assert_eq!(
        run.error(),
        "no space left to write 000007.sst; free some space: an open database then goes on writing by itself, anything else \
         must be tried again"
    );
    assert_eq!(run.load().err().unwrap().exit_code(), exit::IO);
    run.fault = Fault::Stops(StopHandle(run.stop.clone()));
    assert_eq!(run.error(), "stopped as asked; the database is as it was");
    assert_eq!(run.load().err().unwrap().exit_code(), exit::STOPPED);
}
