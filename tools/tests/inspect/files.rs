//! `sst`, `wal dump`, `manifest dump`.

use crate::support::{ROWS, call, closed, crashed};

#[test]
fn a_table_file_is_shown_by_path_or_number_with_its_rows() {
    let sample = closed();
    let files = sample.table_files();
    let mut rows = 0;
    let mut events = 0;
    for path in &files {
        let path = path.to_str().unwrap();
        let props = call(&["sst", "props", path, "--json"]).fine().document();
        assert!(props["level"].is_u64(), "the database around the file is found: {props}");
        let number = path.rsplit('/').next().unwrap().trim_end_matches(".sst").trim_start_matches('0');
        let by_number = sample.call(&["sst", "props", number, "--json"]).fine().document();
        assert_eq!(by_number["identity"], props["identity"]);
        for keyspace in props["keyspaces"].as_array().unwrap() {
            match keyspace["name"].as_str().unwrap() {
                "deliveries" => rows += keyspace["entries"].as_i64().unwrap(),
                "keyspace events" => events += keyspace["entries"].as_i64().unwrap(),
                _ => {}
            }
        }
        let text = call(&["sst", "props", path]).fine().out;
        assert!(text.contains("sequence numbers") && text.contains("packed to"), "{text}");
    }
    assert_eq!((rows, events), (i64::from(ROWS), 20));
}

#[test]
fn entries_of_a_table_file_are_shown_as_rows_and_index_entries() {
    let sample = closed();
    let mut all = String::new();
    let mut lines = Vec::new();
    for path in sample.table_files() {
        let path = path.to_str().unwrap();
        all += &call(&["sst", "scan", path, "--limit", "all"]).fine().out;
        lines.extend(call(&["sst", "scan", path, "--limit", "all", "--json"]).fine().json());
        let forward = call(&["sst", "scan", path, "--limit", "all", "--json"]).fine().json();
        let mut backward =
            call(&["sst", "scan", path, "--limit", "all", "--reverse", "--json"]).fine().json();
        let last = backward.len() - 1;
        backward[1..last].reverse();
        assert_eq!(forward, backward);
    }
    for part in [
        "(Aachen, -4) = {driver: driver 1, arrived: 2023-11-14T22:14:20Z, weight: 0.25}",
        "(driver 1, 2023-11-14T22:14:20Z) → (Aachen, -4)",
        "(0.25) → (Aachen, -4) with {driver: driver 1}",
        "(Aa) → (Aachen, -4)",
        r#""e\x00" = "something""#,
    ] {
        assert!(all.contains(part), "{part}");
    }
    let entries: Vec<_> = lines.iter().filter(|line| line["event"] == "entry").collect();
    assert_eq!(entries.len() as i32, 5 * ROWS + 2 + 20);
    let entry = entries.iter().find(|line| line["index"] == "by_weight").unwrap();
    assert_eq!((&entry["table"], &entry["kind"]), (&"deliveries".into(), &"put".into()));
    assert!(entry["included"]["driver"].is_string() || entry["included"]["driver"].is_null());
}

#[test]
fn a_table_file_alone_is_shown_as_bytes() {
    let sample = closed();
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("copy.sst");
    std::fs::copy(&sample.table_files()[0], &copy).unwrap();
    let copy = copy.to_str().unwrap();
    let answer = call(&["sst", "scan", copy, "--limit", "2"]).fine();
    assert!(answer.out.contains("keyspace number 1"), "{}", answer.out);
    assert!(answer.out.contains("(2 entries; there are more: --limit all)"), "{}", answer.out);
    assert!(call(&["sst", "props", copy]).fine().out.contains("no manifest that names it was found"));
    let named = sample.call(&["sst", "scan", copy, "--limit", "2"]).fine();
    assert!(named.out.contains("deliveries"), "with --db it has names: {}", named.out);
    call(&["sst", "props", "7"]).refused(4, &["give its path, or its number together with --db"]);
    sample.ask("sst props 77").refused(4, &["there is no table file 00000077.sst"]);
}

#[test]
fn the_layout_covers_the_file() {
    let sample = closed();
    for path in sample.table_files() {
        let path = path.to_str().unwrap();
        let lines = call(&["sst", "layout", path, "--json"]).fine().json();
        let blocks: Vec<_> = lines.iter().filter(|line| line["event"] == "block").collect();
        for pair in blocks.windows(2) {
            let number = |field: &str| pair[0][field].as_u64().unwrap();
            if pair[1]["kind"] == "data" {
                assert_eq!(number("offset") + number("stored_bytes"), pair[1]["offset"].as_u64().unwrap());
            }
        }
        let text = call(&["sst", "layout", path]).fine().out;
        assert!(text.contains("data") && text.contains("properties"), "{text}");
        assert!(call(&["sst", "verify", path]).fine().out.starts_with("fine: "));
    }
}

#[test]
fn the_log_is_shown_record_by_record() {
    let sample = crashed();
    let answer = sample.ask("wal dump --records --limit all").fine();
    for part in [
        "ring of 128 KiB, incarnation 1",
        ", the last one in use",
        "put deliveries (Bonn, 312) = {driver: driver 2, arrived: 2023-11-15T03:30:20Z, weight: 79.25}",
        "put deliveries.by_place (Bo) → (Bonn, 312)",
        "delete deliveries (Aalen, -5)",
        "delete-once deliveries.by_place (Aa) → (Aalen, -5)",
        ", 0 problems)",
    ] {
        assert!(answer.out.contains(part), "{part}\n{}", answer.out);
    }
    let lines = sample.ask("wal dump --records --limit all --json").fine().json();
    assert_eq!(lines[0]["version"], 1);
    let operations: usize = lines
        .iter()
        .filter(|line| line["event"] == "record")
        .map(|line| line["operations"].as_array().unwrap().len())
        .sum();
    assert!(operations >= 105, "{operations}");
    let short = sample.ask("wal dump").fine();
    assert!(!short.out.contains("put") && short.out.contains("of payload"), "{}", short.out);
}

#[test]
fn the_manifest_is_shown_edit_by_edit() {
    let sample = crashed();
    let answer = sample.ask("manifest dump").fine();
    for part in [
        "a new database",
        "opened for writing: incarnation 1",
        "catalog: table deliveries, schema version 1, in keyspace 1, 2, 3, 4, 5",
        "catalog: keyspace events",
        "+ level ",
        "holds deliveries, deliveries.by_driver",
    ] {
        assert!(answer.out.contains(part), "{part}\n{}", answer.out);
    }
    let lines = sample.ask("manifest dump --json").fine().json();
    assert_eq!((&lines[0]["version"], &lines[0]["event"]), (&1.into(), &"start".into()));
    assert!(lines.iter().any(|line| line["added"][0]["keyspaces"][0]["entries"].is_u64()));
    assert_eq!(lines.last().unwrap()["edits"].as_u64().unwrap() as usize, lines.len() - 2);
}
