//! The invariants of the house, checked on its own source code: which crate may know which, and which few modules may
//! touch files, clocks, threads and raw memory. `design/ARCHITECTURE.md` gives the reasons.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use alluvium_tests::sources::{production_code, root};

/// For every crate, the workspace crates that it may depend on.
const ALLOWED: [(&str, &[&str]); 9] = [
    ("alluvium-base", &[]),
    ("alluvium-derive", &[]),
    ("alluvium-wal", &["alluvium-base"]),
    ("alluvium-sstable", &["alluvium-base"]),
    ("alluvium-compaction", &["alluvium-base", "alluvium-sstable"]),
    (
        "alluvium",
        &["alluvium-base", "alluvium-derive", "alluvium-wal", "alluvium-sstable", "alluvium-compaction"],
    ),
    ("alluvium-tools", &["alluvium", "alluvium-base"]),
    ("alluvium-benches", &["alluvium"]),
    ("alluvium-tests", &["alluvium", "alluvium-tools"]),
];

const ENGINE_FOLDERS: [&str; 4] = ["engine", "compaction", "sstable", "wal"];

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

#[test]
fn crates_depend_in_one_direction_only() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, may)| (*name, may.iter().copied().collect())).collect();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let names: BTreeSet<&str> =
        packages.iter().map(|package| package["name"].as_str().expect("name")).collect();
    assert_eq!(names, allowed.keys().copied().collect(), "the crates of the workspace");
    for package in packages {
        let name = package["name"].as_str().expect("name");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let wanted = dependency["name"].as_str().expect("name");
            if names.contains(wanted) {
                assert!(allowed[name].contains(wanted), "{name} must not depend on {wanted}");
            }
        }
    }
}

#[test]
fn the_top_level_holds_what_the_layout_says() {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output().expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listing = String::from_utf8_lossy(&output.stdout);
    let top: BTreeSet<&str> = listing.lines().filter_map(|line| line.split('/').next()).collect();
    let folders = ["engine", "compaction", "sstable", "wal", "tools", "benches", "tests", "design"];
    let files = [
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "clippy.toml",
        "rustfmt.toml",
        "rust-toolchain.toml",
        "deny.toml",
    ];
    for name in &top {
        let known = folders.contains(name) || files.contains(name) || name.starts_with('.');
        assert!(known, "{name} has no place at the top level");
    }
    for folder in folders {
        assert!(top.contains(folder), "the folder {folder} is missing");
    }
}

/// Fails if `pattern` stands in production code of the engine's crates outside of the files that may have it.
fn only_in(pattern: &str, may: &[&str]) {
    let mut seen = 0;
    for folder in ENGINE_FOLDERS {
        for (path, code) in production_code(folder) {
            for (number, line) in code.lines().enumerate().filter(|(_, line)| line.contains(pattern)) {
                assert!(
                    may.iter().any(|allowed| path.starts_with(allowed)),
                    "{path}:{}: {pattern} belongs into {may:?}: {line}",
                    number + 1
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "{pattern} stands nowhere: does this test still look for the right thing?");
}

#[test]
fn only_the_file_layer_touches_files() {
    only_in("std::fs", &["engine/base/src/fs/"]);
    only_in("memmap2", &["engine/base/src/fs/"]);
}

#[test]
fn only_the_clock_reads_the_clock() {
    only_in("Instant::now", &["engine/base/src/clock.rs"]);
    only_in("SystemTime", &["engine/base/src/clock.rs"]);
}

#[test]
fn only_the_executor_starts_threads() {
    only_in("std::thread::Builder", &["engine/src/executor/"]);
    for folder in ENGINE_FOLDERS {
        for (path, code) in production_code(folder) {
            assert!(!code.contains("thread::spawn"), "{path} starts a thread past the executor");
        }
    }
}

#[test]
fn nothing_waits_but_through_the_wait_point() {
    only_in("Condvar::new", &["engine/base/src/sync.rs"]);
    only_in("thread::sleep", &["engine/base/src/clock.rs"]);
    for folder in ENGINE_FOLDERS {
        for (path, code) in production_code(folder) {
            assert!(
                !code.contains("std::sync::mpsc"),
                "{path} uses a channel, which blocks outside of simulation"
            );
        }
    }
}

#[test]
fn unsafe_code_lives_in_few_modules_with_a_reason_each() {
    let may = [
        "engine/base/src/fs/real.rs",
        "engine/base/src/fs/anonymous.rs",
        "engine/base/src/memory/",
        "engine/src/memtable/",
    ];
    only_in("unsafe ", &may);
    for folder in ENGINE_FOLDERS {
        let mut blocks = 0;
        for (path, code) in production_code(folder) {
            blocks += code.matches("unsafe {").count();
            if code.contains("unsafe {") {
                let text = std::fs::read_to_string(root().join(&path)).expect("readable");
                let reasons = text.matches("// SAFETY:").count();
                let blocks = code.matches("unsafe {").count();
                assert!(reasons >= blocks, "{path}: {blocks} unsafe blocks, {reasons} SAFETY comments");
            }
        }
        assert!(blocks < 80, "{folder} has {blocks} unsafe blocks: is it still few?");
    }
}

#[test]
fn nothing_is_left_unfinished() {
    for folder in ["engine", "compaction", "sstable", "wal", "tools", "benches", "tests"] {
        for (path, code) in production_code(folder) {
            for word in ["todo!(", "unimplemented!(", "allow(dead_code"] {
                // This very list names them; and what the derive macro writes stands in its users' code, which need not
                // call all of it.
                let may =
                    ["tests/tests/architecture.rs", "engine/derive/src/expand.rs"].contains(&path.as_str());
                assert!(may || !code.contains(word), "{path} has {word}");
            }
        }
    }
}
