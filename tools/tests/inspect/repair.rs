//! `repair`: says what is lost, changes nothing unless told, and leaves a database that works.

use std::fs;

use crate::support::{ROWS, closed, crashed, flip};

#[test]
fn a_sound_database_has_nothing_to_repair() {
    for sample in [closed(), crashed()] {
        let text = sample.ask("repair").fine().out;
        assert!(text.contains("fine: there is nothing to repair"), "{text}");
        assert!(sample.ask("repair --apply --json").fine().document()["applied"].is_null());
    }
}

#[test]
fn a_lost_current_is_made_anew_and_nothing_is_lost() {
    let sample = crashed();
    fs::remove_file(sample.directory.join("CURRENT")).unwrap();
    let answer = sample.ask("repair --json");
    assert_eq!(answer.code, 1, "{answer:#?}");
    let document = answer.document();
    assert_eq!((&document["needed"], &document["loss"]), (&true.into(), &false.into()), "{document:#}");
    assert!(!sample.directory.join("CURRENT").exists(), "without --apply nothing is changed");
    let text = sample.ask("repair --apply").fine().out;
    assert!(text.contains("repaired: "), "{text}");
    sample.ask("verify --deep").fine();
    let rows = sample.ask("rows deliveries --count --json").fine().out;
    assert!(rows.contains(&(ROWS + 20 - 1).to_string()), "{rows}");
}

#[test]
fn a_damaged_table_file_is_given_up_by_name_and_kept() {
    let sample = closed();
    let path = sample.table_files()[0].clone();
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    flip(&path, 100);
    let damaged = fs::read(&path).unwrap();
    let answer = sample.ask("repair");
    assert_eq!(answer.code, 1, "{answer:#?}");
    for part in ["lost: ", &name, "it held  rows of deliveries (", "nothing was changed", "repair --apply"] {
        assert!(answer.out.contains(part), "{part}: {answer:#?}");
    }
    assert_eq!(sample.ask("verify --deep").code, 1);
    let answer = sample.ask("repair --apply --json");
    assert_eq!(answer.code, 1, "what is lost stays lost: {answer:#?}");
    let document = answer.document();
    assert_eq!(document["lost_table_files"].as_array().unwrap().len(), 1, "{document:#}");
    let kept_in = document["applied"]["kept_in"].as_str().unwrap();
    assert_eq!(fs::read(std::path::Path::new(kept_in).join(&name)).unwrap(), damaged);
    sample.ask("verify --deep").fine();
    sample.ask("index-check").fine();
}

#[test]
fn a_damaged_manifest_is_refused() {
    let sample = closed();
    flip(&sample.directory.join("MANIFEST-000001"), 60);
    sample.ask("repair --apply").refused(5, &["MANIFEST-000001", "restore the database from a backup"]);
}
