//! `checkpoint`, `backup`, `restore`: copies have the same rows, share what can be shared, and damage is found.

use std::fs;
use std::path::Path;

use crate::support::{call, closed, crashed, flip};

fn rows(directory: &Path) -> Vec<serde_json::Value> {
    let words = ["--db", directory.to_str().unwrap(), "rows", "deliveries", "--limit", "all", "--json"];
    let lines = call(&words).fine().json();
    lines.into_iter().filter(|line| line["event"] == "row").map(|line| line["values"].clone()).collect()
}

#[test]
fn a_checkpoint_has_the_same_rows_those_in_the_log_too() {
    let sample = crashed();
    let expected = rows(&sample.directory);
    let target = sample.directory.with_file_name("copy");
    let document = sample.call(&["checkpoint", target.to_str().unwrap(), "--json"]).fine().document();
    assert_eq!(document["copied_files"], 0, "{document:#}");
    assert!(document["files"].as_u64().unwrap() > 1);
    assert_eq!(rows(&target), expected);
    call(&["--db", target.to_str().unwrap(), "verify", "--deep"]).fine();
    call(&["--db", target.to_str().unwrap(), "index-check"]).fine();
    sample.call(&["checkpoint", target.to_str().unwrap()]).refused(2, &["is not empty"]);
    let other = sample.directory.with_file_name("other");
    let text = sample.call(&["checkpoint", other.to_str().unwrap()]).fine().out;
    assert!(text.starts_with("done: ") && text.contains("all of them linked"), "{text}");
}

#[test]
fn a_database_that_is_open_elsewhere_is_not_copied_by_the_tool() {
    let sample = closed();
    let _db = sample.open();
    let target = sample.directory.with_file_name("copy");
    sample.call(&["checkpoint", target.to_str().unwrap()]).refused(9, &["in use by another process"]);
    sample.call(&["backup", "create", target.to_str().unwrap()]).refused(9, &["in use by another process"]);
    assert!(!target.join("000001.backup").exists());
}

#[test]
fn backups_are_made_listed_verified_restored_and_deleted() {
    let sample = crashed();
    let expected = rows(&sample.directory);
    let backups = sample.directory.with_file_name("backups");
    let path = backups.to_str().unwrap();
    let first = sample.call(&["backup", "create", path, "--json"]).fine().document();
    assert_eq!((&first["number"], &first["copied_files"]), (&1.into(), &first["files"]));
    let second = sample.call(&["backup", "create", path, "--json"]).fine().document();
    assert_eq!((&second["number"], &second["copied_files"]), (&2.into(), &0.into()), "all is shared");
    let full = sample.call(&["backup", "create", path, "--full", "--json"]).fine().document();
    assert_eq!(full["copied_files"], full["files"]);

    let list = call(&["backup", "list", path, "--json"]).fine().document();
    assert_eq!(list["backups"].as_array().unwrap().len(), 3);
    let text = call(&["backup", "list", path]).fine().out;
    assert_eq!(text.lines().count(), 4, "{text}");
    let text = call(&["backup", "verify", path]).fine().out;
    assert!(text.contains("fine: 3 backups"), "{text}");

    let target = sample.directory.with_file_name("restored");
    let restored = call(&["restore", path, target.to_str().unwrap(), "--json"]).fine().document();
    assert_eq!(restored["number"], 3, "the newest");
    assert_eq!(rows(&target), expected);
    call(&["--db", target.to_str().unwrap(), "index-check"]).fine();
    call(&["restore", path, target.to_str().unwrap()]).refused(2, &["is not empty"]);

    let deleted = call(&["backup", "delete", path, "3", "--json"]).fine().document();
    assert_eq!(deleted["files"], full["files"], "nobody else needs a full backup's copies");
    let deleted = call(&["backup", "delete", path, "1", "--json"]).fine().document();
    assert_eq!(deleted["files"], 0);
    call(&["backup", "delete", path, "1"]).refused(4, &["backup 1"]);
    call(&["backup", "verify", path, "2"]).fine();
}

#[test]
fn damage_in_a_backup_is_found_and_not_restored() {
    let sample = closed();
    let backups = sample.directory.with_file_name("backups");
    let path = backups.to_str().unwrap();
    sample.call(&["backup", "create", path]).fine();
    let copy = fs::read_dir(backups.join("tables")).unwrap().next().unwrap().unwrap().path();
    flip(&copy, 50);
    let answer = call(&["backup", "verify", path, "--json"]);
    assert_eq!(answer.code, 1, "{answer:#?}");
    let document = answer.document();
    assert_eq!(document["problems"].as_array().unwrap().len(), 1, "{document:#}");
    let name = copy.file_name().unwrap().to_str().unwrap();
    assert!(document["problems"][0]["message"].as_str().unwrap().contains(name), "{document:#}");
    let target = sample.directory.with_file_name("restored");
    call(&["restore", path, target.to_str().unwrap()]).refused(5, &[name]);
    assert!(!target.exists());
    flip(&copy, 50);
    flip(&backups.join("000001.backup"), 50);
    assert_eq!(call(&["backup", "list", path]).code, 1);
    call(&["restore", path, target.to_str().unwrap()]).refused(5, &["Give --number"]);
}
