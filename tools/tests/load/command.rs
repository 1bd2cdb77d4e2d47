//! The command as a whole: what it prints, and its exit code.

use std::fs;

use alluvium_tools::load::cli::Args;
use alluvium_tools::load::error::exit;
use alluvium_tools::load::job::Stop;
use alluvium_tools::load::run;
use clap::Parser;
use tempfile::TempDir;

use crate::support::{MemoryTarget, Run};

const USERS: &str = "id,name,age,paid\n1,ann,NA,12.50\n2,bob,31,3.00\n";

fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("users.csv"), USERS).unwrap();
    directory
}

/// Runs the command of a [`Run`]; returns its exit code and what it printed.
fn command(run: &Run) -> (u8, String) {
    let mut output = Vec::new();
    let mut args = run.args.clone();
    args.tmp = args.tmp.or(Some(run.directory.clone()));
    let code = run::run(&args, &Stop::default(), &mut output, |plan| Ok(MemoryTarget::new(plan).0));
    let output = String::from_utf8(output).unwrap();
    (code, output.replace(&format!("{}/", run.directory.display()), ""))
}

#[test]
fn a_dry_run_shows_the_plan_and_how_to_fix_it() {
    let directory = directory();
    let options = ["--primary-key", "id", "--dry-run", "--unique-index", "by_name=name:desc;include=age"];
    let (code, output) = command(&Run::new(directory.path(), &options, &["users.csv"]));
    assert_eq!(code, exit::CLEAN);
    assert_eq!(
        output,
        "\
Table users

Inputs
  users.csv  plain, 46 B; separated by comma, first row has the names
  about 2 rows, 46 B unpacked

Columns, from the first 2 rows
  id    i64            not null
  name  text           null
  age   text           null      text only because of 1 of 2 values; i64 with --null NA
  paid  decimal(18,2)  null

Primary key  id
Unique index  by_name=name:desc;include=age

To load exactly like this, whatever the first rows look like:

  alluvium-load \\
    --db unused --table users \\
    --format csv --header yes \\
    --column id=i64 \\
    --column name=text \\
    --column age=text \\
    --column 'paid=decimal(18,2)' \\
    --primary-key id \\
    --unique-index 'by_name=name:desc;include=age' \\
    users.csv
"
    );
}

#[test]
fn the_options_of_a_plan_make_the_same_plan() {
    let directory = directory();
    let options = [
        "--primary-key",
        "id",
        "--null",
        "NA",
        "--json",
        "--dry-run",
        "--not-null",
        "name",
        "--max-errors",
        "1%",
    ];
    let first = Run::new(directory.path(), &options, &["users.csv"]);
    let json: serde_json::Value = serde_json::from_str(&command(&first).1).unwrap();
    assert_eq!((&json["version"], &json["columns"][2]["type"]), (&1.into(), &"i64".into()));
    let words = json["options"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned());
    let words: Vec<String> = ["alluvium-load".to_owned()].into_iter().chain(words).collect();
    let mut args = Args::try_parse_from(words).unwrap();
    args.inputs.clone_from(&first.args.inputs);
    let again = Run { args, ..Run::new(directory.path(), &["--row-id"], &["users.csv"]) };
    let schema = again.plan().unwrap().schema;
    assert_eq!(schema, first.plan().unwrap().schema);
    assert_eq!(again.args.max_errors, first.args.max_errors);
}

#[test]
fn rejects_emptied_the_input() {
    let directory = directory();
    let input = directory.path().join("users.csv");
    let options = ["--primary-key", "id", "--rejects", input.to_str().unwrap()];
    assert_eq!(command(&Run::new(directory.path(), &options, &["users.csv"])).0, exit::USAGE);
    assert_eq!(fs::read_to_string(&input).unwrap(), USERS);
}

#[test]
fn a_failed_load_keeps_its_rejects() {
    let directory = tempfile::tempdir().unwrap();
    let rejects = directory.path().join("rejects.jsonl");
    fs::write(directory.path().join("bad.csv"), "id,n\n1,2\n1,3\n").unwrap();
    let options = ["--primary-key", "id", "--rejects", rejects.to_str().unwrap()];
    assert_eq!(command(&Run::new(directory.path(), &options, &["bad.csv"])).0, exit::TOO_MANY_ERRORS);
    assert!(fs::read_to_string(&rejects).unwrap().contains("same primary key as"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn a_wrong_tmp_was_noticed_only_when_something_spilled() {
    let directory = directory();
    let options = ["--primary-key", "id", "--tmp", "/nonexistent"];
    assert_eq!(command(&Run::new(directory.path(), &options, &["users.csv"])).0, exit::USAGE);
}

#[test]
fn a_doubtful_header_is_noted_in_the_plan() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("names.csv"), "name,town\nann,bonn\n").unwrap();
    let options = ["--primary-key", "name", "--dry-run"];
    let (_, output) = command(&Run::new(directory.path(), &options, &["names.csv"]));
    let expected =
        "  note: names.csv: the first row is taken as column names, name, town (say --header no otherwise)\n";
    assert!(output.contains(expected), "{output}");
}

#[test]
fn exit_codes_tell_what_happened() {
    let directory = directory();
    fs::write(directory.path().join("bad.csv"), "id,n\n1,2\n1,2\n3,4\n").unwrap();
    let code = |options: &[&str], input: &str| command(&Run::new(directory.path(), options, &[input])).0;
    assert_eq!(code(&["--primary-key", "id"], "users.csv"), exit::CLEAN);
    assert_eq!(code(&["--primary-key", "nope"], "users.csv"), exit::USAGE);
    assert_eq!(code(&["--primary-key", "id", "--memory", "1MiB"], "users.csv"), exit::USAGE);
    assert_eq!(code(&["--primary-key", "id"], "nowhere.csv"), exit::IO);
    assert_eq!(code(&["--primary-key", "id"], "bad.csv"), exit::TOO_MANY_ERRORS);
    let reject = ["--primary-key", "id", "--on-duplicate", "reject"];
    assert_eq!(code(&reject, "bad.csv"), exit::TOO_MANY_ERRORS);
    assert_eq!(code(&[&reject[..], &["--max-errors", "33%"]].concat(), "bad.csv"), exit::TOO_MANY_ERRORS);
    assert_eq!(code(&[&reject[..], &["--max-errors", "34%"]].concat(), "bad.csv"), exit::ROWS_REJECTED);
    assert_eq!(code(&["--primary-key", "id", "--on-duplicate", "last"], "bad.csv"), exit::CLEAN);
}

#[test]
fn the_summary_counts_and_the_rejects_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let rejects = directory.path().join("rejects.jsonl");
    fs::write(directory.path().join("bad.csv"), "id,n\n1,2\nx,2\n1,3\n4\n").unwrap();
    let options = [
        "--primary-key",
        "id",
        "--column",
        "id=i64",
        "--on-duplicate",
        "reject",
        "--max-errors",
        "3",
        "--json",
        "--rejects",
        rejects.to_str().unwrap(),
    ];
    let (code, output) = command(&Run::new(directory.path(), &options, &["bad.csv"]));
    assert_eq!(code, exit::ROWS_REJECTED);
    let json: serde_json::Value = serde_json::from_str(&output).unwrap();
    let expected = serde_json::json!({"read": 4, "loaded": 1, "rejected": 3, "superseded": 0});
    assert_eq!((&json["version"], &json["table"], &json["rows"]), (&1.into(), &"bad".into(), &expected));
    let text = fs::read_to_string(&rejects).unwrap().replace(&format!("{}/", directory.path().display()), "");
    let reasons: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        reasons[0],
        serde_json::json!({"file": "bad.csv", "line": 3, "byte": 9, "column": "id", "expected": "i64", "text": "x",
            "reason": "expected an integer"})
    );
    assert_eq!(reasons[1]["reason"], "the row has 1 field");
    assert_eq!(
        (&reasons[2]["line"], &reasons[2]["byte"], &reasons[2]["reason"]),
        (&4.into(), &serde_json::Value::Null, &"same primary key as bad.csv line 2".into())
    );
}
