//! `verify`: damage is found, named, and nothing else is said.

use std::fs;
use std::path::Path;

use crate::support::{Answer, Sample, call, closed, crashed, flip};

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// The one problem that is found, from the JSON.
fn problem(sample: &Sample, words: &str) -> serde_json::Value {
    let answer = sample.ask(&format!("{words} --json"));
    assert_eq!(answer.code, 1, "{answer:#?}");
    let document = answer.document();
    assert_eq!(document["fine"], false);
    let problems = document["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{document:#}");
    problems[0].clone()
}

fn expect(answer: &Answer, code: i32, parts: &[&str]) {
    assert_eq!(answer.code, code, "{answer:#?}");
    for part in parts {
        assert!(answer.out.contains(part), "{part}\n{}", answer.out);
    }
}

#[test]
fn a_sound_database_is_fine_closed_or_crashed() {
    for sample in [closed(), crashed()] {
        expect(&sample.ask("verify").fine(), 0, &["fine: manifest, ", "with the right size and footer"]);
        expect(&sample.ask("verify --deep").fine(), 0, &["read in full (1,522 entries)"]);
        let document = sample.ask("verify --deep --json").fine().document();
        assert_eq!((&document["fine"], &document["problems"]), (&true.into(), &serde_json::json!([])));
    }
}

#[test]
fn a_flipped_byte_anywhere_in_a_table_file_is_found_with_file_and_place() {
    let sample = closed();
    for path in sample.table_files() {
        let bytes = fs::metadata(&path).unwrap().len();
        for part in 0..20 {
            let at = bytes * part / 20;
            flip(&path, at);
            let found = problem(&sample, "verify --deep");
            assert!(found["file"].as_str().unwrap().ends_with(&name(&path)), "{found:#}");
            let offset = found["offset"].as_u64().unwrap();
            assert!(offset <= at, "{offset} is behind byte {at}: {found:#}");
            assert!(found["holds"].as_array().unwrap().iter().any(|held| held.is_string()), "{found:#}");
            let alone = call(&["sst", "verify", path.to_str().unwrap()]);
            assert_eq!(alone.code, 1, "{alone:#?}");
            flip(&path, at);
        }
    }
    sample.ask("verify --deep").fine();
}

#[test]
fn every_problem_is_listed_and_says_what_to_do() {
    let sample = closed();
    let files = sample.table_files();
    flip(&files[0], 100);
    fs::remove_file(&files[1]).unwrap();
    let answer = sample.ask("verify --deep");
    expect(&answer, 1, &["2 problems found", "the file is missing", "what to do", "it holds  deliveries"]);
    for path in &files {
        assert!(answer.out.contains(&name(path)), "{}", answer.out);
    }
    assert_eq!(sample.ask("verify").code, 1, "a missing file is found without reading any");
    // What cannot be opened is still described.
    sample.ask("overview").fine();
    sample.ask("tables").fine();
    sample.ask("rows deliveries").refused(5, &["the file is missing"]);
}

#[test]
fn a_cut_off_table_file_is_found_without_reading_it() {
    let sample = closed();
    let path = &sample.table_files()[0];
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    let found = problem(&sample, "verify");
    assert!(found["message"].as_str().unwrap().contains("the manifest says"), "{found:#}");
}

#[test]
fn a_damaged_manifest_is_found_and_ends_the_check() {
    for (file, at) in [("CURRENT", 20), ("MANIFEST-000001", 60)] {
        let sample = closed();
        flip(&sample.directory.join(file), at);
        let found = problem(&sample, "verify");
        assert!(found["file"].as_str().unwrap().ends_with(file), "{found:#}");
        expect(&sample.ask("verify"), 1, &["restore the whole database from a backup", "were not checked"]);
        sample.ask("overview").refused(5, &[file]);
    }
    let sample = closed();
    fs::remove_file(sample.directory.join("CURRENT")).unwrap();
    let found = problem(&sample, "verify");
    assert!(found["message"].as_str().unwrap().contains("it is missing, but 0"), "{found:#}");
    // Those that open the database said that there was none.
    for words in
        ["rows deliveries", "explain deliveries", "index-check", "overview", "tables", "manifest dump"]
    {
        sample.ask(words).refused(5, &["CURRENT", "it is missing, but 0"]);
    }
}

#[test]
fn a_damaged_log_is_found_and_the_rest_still_shown() {
    let sample = crashed();
    // Without the ring the segments alone count; the log's first record is needed to open the database.
    let lines = sample.ask("wal dump --records --limit all --json").fine().json();
    let durable = lines.iter().filter(|line| line["event"] == "record").count();
    assert!(durable > 2);
    fs::remove_file(sample.directory.join("ring")).unwrap();
    let segment = &sample.files(".log")[0];
    let records: Vec<_> = lines.iter().filter(|line| line["event"] == "record").collect();
    let base = lines.iter().find(|line| line["event"] == "segment").unwrap()["base"].as_u64().unwrap();
    // The record before the last; one page of header lies before the records.
    let address = records[records.len() - 2]["address"].as_u64().unwrap();
    flip(segment, 4096 + (address - base) + 40);
    let found = problem(&sample, "verify");
    assert_eq!(found["kind"], "log");
    assert!(found["file"].as_str().unwrap().ends_with(&name(segment)), "{found:#}");
    expect(&sample.ask("verify"), 1, &["Salvage"]);
    expect(&sample.ask("overview"), 0, &["the log cannot be read"]);
    let dump = sample.ask("wal dump --records --limit all");
    expect(&dump, 0, &["problem: ", &name(segment), ", 1 problem)"]);
    sample.ask("rows deliveries").refused(5, &[&name(segment)]);
}

#[test]
fn left_over_files_are_no_problem() {
    let sample = closed();
    fs::write(sample.directory.join("00000999.sst"), b"half a file").unwrap();
    let answer = sample.ask("verify").fine();
    expect(&answer, 0, &["note: 1 table file in use no more"]);
    expect(&sample.ask("overview"), 0, &["are in use no more"]);
    // It was said to be damaged, but it never was a table.
    sample.ask("sst props 999").refused(5, &["00000999.sst is not a table file (no footer magic)"]);
}

#[test]
fn what_is_wrong_with_a_path_was_told_in_names_of_error_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    call(&["--db", file, "overview"]).refused(4, &["it is a file, not a directory; check --db"]);
    call(&["--db", file, "tables"]).refused(4, &["it is a file, not a directory"]);
    call(&["--db", "/nonexistent", "tables"]).refused(4, &["there is no directory /nonexistent; check --db"]);
    call(&["sst", "props", file]).refused(5, &["file is not a table file (no footer magic)"]);
    let verified = call(&["sst", "verify", file]);
    expect(&verified, 1, &["file is not a table file (no footer magic)"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = crate::support::command(&["completions", "bash"]);
    let output = command.stdout(full).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told, "error: cannot write to standard output: no space left on the device\n");
    assert_eq!(output.status.code(), Some(8));
}
