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
