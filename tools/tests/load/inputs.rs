//! The same rows, however they are packed, separated, split into files or piped in, make the same table.

use std::fs;
use std::io::Write;
use std::path::Path;

use alluvium_tools::load::summary::Rows;

use crate::support::{EntryList, Run};

const CSV: &str = "id,name,note\n3,cod,\"a, \"\"b\"\"\"\n1,ant,\n2,\"bee\nbug\",x\n";

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn load(directory: &Path, options: &[&str], inputs: &[&str]) -> Vec<EntryList> {
    let options = [&["--primary-key", "id", "--index", "by_name=name:desc"], options].concat();
    let (summary, entries) = Run::new(directory, &options, inputs).load().unwrap();
    assert_eq!(summary.rows, Rows { read: 3, loaded: 3, rejected: 0, superseded: 0 });
    entries
}

#[test]
fn packing_and_separators_do_not_matter() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    write("plain.csv", CSV.as_bytes());
    write("packed.csv.gz", &gzip(CSV));
    write("packed.csv.zst", &zstd::encode_all(CSV.as_bytes(), 1).unwrap());
    write(
        "windows.csv",
        format!("\u{feff}{}", CSV.replace('\n', "\r\n").replace("bee\r\nbug", "bee\nbug")).as_bytes(),
    );
    write("tabs.tsv", CSV.replace(',', "\t").replace("a\t ", "a, ").as_bytes());
    write("bars.txt", CSV.replace(',', "|").replace("a| ", "a, ").as_bytes());
    write("head.csv", b"id,name,note\n3,cod,\"a, \"\"b\"\"\"\n");
    write("tail.csv.gz", &gzip("id,name,note\n1,ant,\n2,\"bee\nbug\",x"));
    write("nameless.csv", CSV.split_once('\n').unwrap().1.as_bytes());

    let expected = load(directory.path(), &[], &["plain.csv"]);
    for input in ["packed.csv.gz", "packed.csv.zst", "windows.csv", "tabs.tsv", "bars.txt"] {
        assert_eq!(load(directory.path(), &[], &[input]), expected, "{input}");
    }
    assert_eq!(load(directory.path(), &[], &["tail.csv.gz", "head.csv"]), expected);
    let options = ["--primary-key", "c1", "--index", "by_name=c2:desc"];
    let (_, nameless) = Run::new(directory.path(), &options, &["nameless.csv"]).load().unwrap();
    assert_eq!(nameless, expected);
}

#[test]
fn a_first_row_wider_than_the_sample_made_every_column_text() {
    let directory = tempfile::tempdir().unwrap();
    let wide = "x".repeat(9 << 20);
    for (name, text) in [
        ("plain.csv", format!("id,n,note\n1,2.5,{wide}\n2,3.5,x\n")),
        ("quoted.csv", format!("id,n,note\n1,2.5,\"{wide}\"\n2,3.5,x\n")),
        ("nameless.csv", format!("1,2.5,{wide}\n2,3.5,x\n")),
    ] {
        fs::write(directory.path().join(name), text).unwrap();
        let plan = Run::new(directory.path(), &["--row-id"], &[name]).plan().unwrap();
        let types: Vec<String> = plan.columns.iter().map(|column| column.ty.to_string()).collect();
        assert_eq!(types, ["i64", "f64", "text"], "{name}");
    }
}

#[test]
fn a_quote_that_is_never_closed_in_the_first_row_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("open.csv"), format!("id,n\n1,\"{}\n", "x\n".repeat(5 << 20))).unwrap();
    let error = Run::new(directory.path(), &["--row-id"], &["open.csv"]).error();
    assert!(error.contains("line 2 (byte 5)") && error.contains("never closed"), "{error}");
}

#[test]
fn empty_lines_of_a_file_with_one_column_were_lost() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("one.csv"), "word\na\n\nb\n\n").unwrap();
    fs::write(directory.path().join("two.csv"), "word,n\na,1\n\nb,2\n\n").unwrap();
    let read = |input: &str| Run::new(directory.path(), &["--row-id"], &[input]).load().unwrap().0.rows.read;
    assert_eq!((read("one.csv"), read("two.csv")), (4, 2));
}

#[test]
fn a_pipe_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe.csv");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let writer = std::thread::spawn(move || fs::write(pipe, CSV).unwrap());
    let options = ["--primary-key", "id"];
    let (summary, entries) = {
        let run = Run::new(directory.path(), &options, &["pipe.csv"]);
        run.load().unwrap()
    };
    writer.join().unwrap();
    assert_eq!((summary.rows.loaded, entries[0].len()), (3, 3));
}

#[test]
fn rows_can_be_numbered() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.csv"), "word\nb\na\n").unwrap();
    fs::write(directory.path().join("b.csv"), "word\nb\nb\n").unwrap();
    let mut run = Run::new(
        directory.path(),
        &["--row-id", "--index", "by_word=word", "--threads", "3"],
        &["a.csv", "b.csv"],
    );
    let (_, entries) = run.load().unwrap();
    let numbers: Vec<u8> = entries[0].iter().map(|(key, _)| *key.last().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let by_word: Vec<(u8, u8)> = entries[1].iter().map(|(key, _)| (key[1], *key.last().unwrap())).collect();
    assert_eq!(by_word, [(b'a', 2), (b'b', 1), (b'b', 3), (b'b', 4)]);
    run.args.null = vec!["a".to_owned()];
    assert_eq!(run.load().unwrap().1[1][0].0.last(), Some(&2));
}
