//! `overview` and `tables`.

use crate::support::{ROWS, call, closed, crashed, delivery};

#[test]
fn the_overview_of_a_closed_database_says_what_is_there_and_that_it_is_sound() {
    let sample = closed();
    let answer = sample.ask("overview").fine();
    for part in [
        "opened for writing 1 time, closed in order",
        "deliveries",
        "  index by_driver",
        "keyspace events",
        "what was written is in table files already",
        "there are no tombstones",
        "there is no garbage",
    ] {
        assert!(answer.out.contains(part), "{part}\n{}", answer.out);
    }
    assert!(!answer.out.contains('\u{1b}'), "no colours in a pipe");
    let overview = sample.ask("overview --json").fine().document();
    assert_eq!(overview["closed_in_order"], true);
    let deliveries = &overview["tables"][0];
    assert_eq!((&deliveries["name"], &deliveries["rows"]["entries"]), (&"deliveries".into(), &ROWS.into()));
    assert_eq!(deliveries["indexes"].as_array().unwrap().len(), 4);
    assert_eq!(overview["keyspaces"][0]["entries"], 20);
    let levels = overview["levels"].as_array().unwrap();
    let entries: u64 = levels.iter().map(|level| level["entries"].as_u64().unwrap()).sum();
    assert_eq!(entries, 5 * ROWS as u64 + 2 + 20);
    assert_eq!(overview["log"]["operations"], 0);
}

#[test]
fn the_overview_after_a_crash_says_what_is_in_the_log_only() {
    let sample = crashed();
    let answer = sample.ask("overview").fine();
    assert!(answer.out.contains("not closed in order"), "{}", answer.out);
    // 20 rows and one removal, each with four index entries.
    assert!(answer.out.contains("105 operations"), "{}", answer.out);
    assert_eq!(sample.ask("overview --json").fine().document()["log"]["operations"], 105);
}

#[test]
fn garbage_and_tombstones_are_seen() {
    let sample = closed();
    let db = sample.open();
    let table = db.table("deliveries").unwrap();
    let mut batch = db.batch().unwrap();
    for number in (0..120).step_by(3) {
        batch.delete(&table, ("Aalen", number - 5)).unwrap();
    }
    // So that tombstones are not so many that they are compacted at once.
    for number in ROWS..ROWS + 100 {
        batch.insert(&table, &table.row_of(delivery(number)).unwrap()).unwrap();
    }
    batch.commit(alluvium::Durability::Sync).unwrap();
    db.flush().unwrap();
    db.drop_keyspace("events").unwrap();
    db.close(std::time::Duration::from_secs(30)).unwrap();
    let overview = sample.ask("overview --json").fine().document();
    let garbage = |field: &str| overview["garbage"][field].as_u64().unwrap();
    assert!(garbage("certain_bytes") > 0 && garbage("possible_bytes") >= garbage("certain_bytes"));
    let answer = sample.ask("overview").fine();
    assert!(answer.out.contains("are tombstones"), "{}", answer.out);
}

#[test]
fn tables_shows_columns_keys_and_indexes() {
    let sample = closed();
    let answer = sample.ask("tables deliveries").fine();
    for part in [
        "table deliveries: 5 columns, 4 indexes, schema version 1",
        "weight   decimal(8,2)  no",
        "primary key (place, number)",
        "index by_driver (driver, arrived desc)",
        "index by_weight (weight desc) include (driver)",
        "index by_place (place:2)",
        "unique index once (driver, arrived)",
    ] {
        assert!(answer.out.contains(part), "{part}\n{}", answer.out);
    }
    let document = sample.ask("tables --json").fine().document();
    assert_eq!(document["tables"].as_array().unwrap().len(), 2);
    assert_eq!(document["keyspaces"][0]["name"], "events");
    let index = &document["tables"][0]["indexes"][1];
    assert_eq!((&index["name"], &index["include"][0]), (&"by_weight".into(), &"driver".into()));
    assert_eq!((&index["parts"][0]["descending"], &index["entries"]), (&true.into(), &ROWS.into()));
    sample
        .ask("tables nothing")
        .refused(4, &["there is no table nothing; the database has deliveries, kinds"]);
}

#[test]
fn what_is_not_there_is_said_with_what_to_do() {
    call(&["overview"]).refused(2, &["Give its directory with --db DIR"]);
    call(&["--db", "/no/such/place", "overview"]).refused(4, &["/no/such/place", "check --db"]);
    let empty = tempfile::tempdir().unwrap();
    let answer = call(&["--db", empty.path().to_str().unwrap(), "overview"]);
    answer.refused(4, &["there is no database in", "CURRENT"]);
    let answer = call(&["--db", empty.path().to_str().unwrap(), "overview", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&answer.err).unwrap();
    assert_eq!((&error["version"], &error["exit_code"]), (&1.into(), &4.into()));
    call(&["--db", "x", "frobnicate"]).refused(2, &["frobnicate"]);
}

#[test]
fn help_teaches_and_shells_complete() {
    let help = call(&["--help"]).fine();
    for part in ["Examples:", "Exit codes:", "index-check", "NULL is no value"] {
        assert!(help.out.contains(part), "{part}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(call(&["completions", shell]).fine().out.contains("index-check"), "{shell}");
    }
}
