//! `rows`, `explain` and `index-check`.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use alluvium::row::{Store, StoreBatch};
use alluvium::{Db, Durability, RawBatch};

use crate::support::{ROWS, closed, command, crashed};

#[test]
fn rows_stand_in_columns_with_null_apart_from_every_text() {
    let sample = closed();
    let answer = sample.ask("rows deliveries --limit 3").fine();
    let expected = "\
place   number  driver    arrived               weight
Aachen      -4  driver 1  2023-11-14T22:14:20Z    0.25
Aachen      -1  NULL      NULL                    1.00
Aachen       2  driver 0  2023-11-14T22:20:20Z    1.75
(3 rows, and there are more: --limit all, or go on with
--after ";
    // Row 4 has a driver.
    let expected = expected.replace("NULL      NULL  ", "driver 4  NULL  ");
    assert!(answer.out.starts_with(&expected), "{}", answer.out);
    let kinds = sample.ask("rows kinds").fine();
    let expected = r#"
id  flag  small  raw     day         key                                   doc             note
 1  true    0.1  0x00ff  2024-02-29  00000000-0000-0000-0000-000000000007  {"b":[1,null]}  "line\nbreak"
 2  NULL   NULL  NULL    NULL        NULL                                  NULL            "NULL"
(2 rows)
"#;
    assert_eq!(kinds.out, expected.trim_start());
    let vertical = sample.ask("rows kinds --vertical --columns id,note").fine();
    assert_eq!(
        vertical.out,
        "row 1\n  id    1\n  note  \"line\\nbreak\"\nrow 2\n  id    2\n  note  \"NULL\"\n(2 rows)\n"
    );
}

#[test]
fn rows_as_json_keep_their_types_and_order() {
    let lines = closed().ask("rows kinds --json").fine().json();
    assert_eq!((&lines[0]["version"], &lines[0]["event"]), (&1.into(), &"start".into()));
    assert_eq!(lines[0]["columns"][2], serde_json::json!({"name": "small", "type": "f32"}));
    let row = &lines[1]["values"];
    assert_eq!((&row["id"], &row["small"], &row["raw"]), (&1.into(), &0.1.into(), &"0x00ff".into()));
    assert_eq!(row["doc"]["b"][1], serde_json::Value::Null);
    assert_eq!(lines[2]["values"]["flag"], serde_json::Value::Null);
    assert_eq!(lines[3], serde_json::json!({"event": "end", "rows": 2, "continuation": null}));
}

#[test]
fn bounds_go_by_the_index_and_its_types() {
    let sample = closed();
    let count = |words: &[&str]| {
        let all = ["rows", "deliveries", "--count"].iter().chain(words);
        sample.call(&all.copied().collect::<Vec<_>>()).fine().out.trim().to_owned()
    };
    assert_eq!(count(&[]), "300");
    assert_eq!(count(&["--eq", "Bonn"]), "100");
    assert_eq!(count(&["--eq", "Bonn", "--eq", "-3"]), "1");
    assert_eq!(count(&["--eq", "Bonn", "--from", "-3", "--to", "3"]), "2", "from is in, to is out");
    assert_eq!(count(&["--index", "by_driver", "--eq", "\\N"]), "30");
    let third = (0..ROWS).filter(|number| number % 7 == 3 && number % 10 != 0);
    let arrived = third.filter(|number| number % 4 != 0).count().to_string();
    assert_eq!(count(&["--index", "by_driver", "--eq", "driver 3", "--from", "2023-11-14"]), arrived);
    assert_eq!(count(&["--index", "by_weight", "--from", "74.5"]), "2");
    assert_eq!(count(&["--index", "by_place", "--eq", "Aalen"]), "100", "a prefix is checked again");
    let first = sample.call(&[
        "rows",
        "deliveries",
        "--index",
        "by_weight",
        "--reverse",
        "--columns",
        "weight,driver",
        "--limit",
        "1",
    ]);
    assert!(first.fine().out.contains("\n  0.00  NULL\n"), "the lightest first");
    let count = sample.ask("rows deliveries --count --json").fine().document();
    assert_eq!(count["rows"], ROWS);
}

#[test]
fn pages_together_are_the_whole() {
    let sample = crashed();
    for order in [&["--index", "by_driver"][..], &["--reverse"]] {
        let ask = |more: &[&str]| {
            let words = ["rows", "deliveries", "--json", "--columns", "place,number"].iter();
            let words: Vec<&str> = words.chain(order).chain(more).copied().collect();
            sample.call(&words).fine().json()
        };
        let values = |lines: &[serde_json::Value]| -> Vec<String> {
            let rows = lines.iter().filter(|line| line["event"] == "row");
            rows.map(|line| line["values"].to_string()).collect()
        };
        let whole = values(&ask(&["--limit", "all"]));
        assert_eq!(whole.len() as i32, ROWS + 20 - 1, "what is in the log only is seen");
        let (mut pages, mut token) = (Vec::new(), None::<String>);
        loop {
            let page = match &token {
                Some(token) => ask(&["--limit", "47", "--after", token]),
                None => ask(&["--limit", "47"]),
            };
            pages.extend(values(&page));
            match page.last().unwrap()["continuation"].as_str() {
                Some(next) => token = Some(next.to_owned()),
                None => break,
            }
        }
        assert_eq!(pages, whole);
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused_with_what_would() {
    let sample = closed();
    let cases: [(&str, i32, &[&str]); 10] = [
        ("rows deliverys", 4, &["there is no table deliverys; the database has deliveries, kinds"]),
        ("rows deliveries --index by_color", 4, &["by_color", "by_driver, by_weight, by_place, once"]),
        ("rows deliveries --columns place,color", 4, &["no column color", "place, number"]),
        (
            "rows deliveries --eq Bonn --eq many",
            2,
            &["--eq many: column number is of type i32: expected an integer"],
        ),
        ("rows deliveries --eq Bonn --eq NULL", 2, &["the null value is written \\N"]),
        (
            "rows deliveries --index by_weight --from 1.001",
            2,
            &["--from 1.001", "more digits behind the point"],
        ),
        (
            "rows deliveries --eq Bonn --eq 1 --eq 2",
            2,
            &["2 columns (place, number), but --eq is given 3 times"],
        ),
        ("rows deliveries --eq Bonn --eq 1 --to 2", 2, &["none is left for --from and --to"]),
        ("rows deliveries --after 1234", 2, &["not a continuation token"]),
        ("rows deliveries --limit 0", 2, &["expected a number from 1 on"]),
    ];
    for (words, code, parts) in cases {
        let answer = sample.ask(words);
        answer.refused(code, parts);
        assert_eq!(answer.out, "", "{words}");
    }
    let answer = sample.ask("rows deliveries --index by_driver --eq NULL");
    assert!(answer.code == 0 && answer.err.contains("the null value is written \\N"), "{answer:?}");
}

#[test]
fn the_plan_says_whether_rows_are_read() {
    let sample = closed();
    let plan = sample.ask("explain deliveries --index by_weight --eq 1 --columns weight,driver").fine();
    for part in
        ["index by_weight (weight desc)", "only those with weight = 1.00", "not read: the index has all"]
    {
        assert!(plan.out.contains(part), "{part}\n{}", plan.out);
    }
    let plan = sample.ask("explain deliveries --index by_place --eq Bonn --reverse").fine();
    for part in [", backwards", "one more read by primary key", "since the index holds only a prefix"] {
        assert!(plan.out.contains(part), "{part}\n{}", plan.out);
    }
    assert!(sample.ask("explain deliveries").fine().out.contains("all: a full scan"));
    let plan = sample.ask("explain deliveries --index by_driver --eq x --json").fine().document();
    assert_eq!((&plan["reads_rows"], &plan["full_scan"]), (&true.into(), &false.into()));
    assert_eq!(plan["conditions"][0], "driver = x");
}

#[test]
fn whoever_stops_reading_gets_no_error() {
    let sample = closed();
    // Often enough that the pipe is full before the reader goes.
    let mut batch = Vec::new();
    let db = sample.open();
    let events = db.keyspace("events").unwrap();
    for number in 0..20_000u32 {
        batch.push(number);
        events.put(&number.to_be_bytes(), &[7; 40], Durability::Buffered).unwrap();
    }
    db.flush().unwrap();
    db.close(std::time::Duration::from_secs(30)).unwrap();
    let largest = sample.table_files().into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    for words in [
        &["sst", "scan", largest.to_str().unwrap(), "--limit", "all"][..],
        &["--json", "sst", "scan", largest.to_str().unwrap(), "--limit", "all"],
    ] {
        let mut child = command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        drop(reader);
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
    }
}

/// Removes one entry of an index behind the row layer's back, and adds one that has no row.
fn break_index(db: &Db) {
    let table = db.table("deliveries").unwrap();
    let keyspace = table.definition().index_keyspace(0).unwrap();
    let snapshot = db.snapshot().unwrap();
    let mut iter = Store::scan(db, &snapshot, keyspace, &[], None).unwrap();
    assert!(iter.prev().unwrap());
    let (key, value) = (iter.key().to_vec(), iter.value().to_vec());
    let mut other = key.clone();
    // The end of the key is the primary key's last column.
    *other.last_mut().unwrap() ^= 0x7f;
    let mut batch = RawBatch::default();
    StoreBatch::delete(&mut batch, keyspace, &key).unwrap();
    StoreBatch::put(&mut batch, keyspace, &other, &value).unwrap();
    db.wait(db.apply(&batch, Durability::Sync).unwrap()).unwrap();
}

#[test]
fn an_index_that_differs_from_its_rows_is_found_out() {
    let sample = closed();
    let answer = sample.ask("index-check").fine();
    assert!(answer.out.contains("fine: the indexes of 2 tables agree with the rows"), "{}", answer.out);
    let document = sample.ask("index-check deliveries --json").fine().document();
    assert_eq!((&document["fine"], &document["tables"][0]["rows"]), (&true.into(), &ROWS.into()));

    let db = sample.open();
    break_index(&db);
    db.close(std::time::Duration::from_secs(30)).unwrap();
    let answer = sample.ask("index-check");
    assert_eq!(answer.code, 1, "{answer:#?}");
    for part in [
        "by_driver      300  2 differences",
        "by_weight      300  agrees",
        "has no entry",
        "which does not exist",
        "problems in 1 of 2 tables",
        "what to do",
    ] {
        assert!(answer.out.contains(part), "{part}\n{}", answer.out);
    }
    let answer = sample.ask("index-check --json");
    assert_eq!((answer.code, &answer.document()["fine"]), (1, &false.into()));
    sample.ask("index-check kinds").fine();
    sample.ask("index-check nothing").refused(4, &["there is no table nothing"]);
}
