//! What each crash keeps. Properties of the form "may be lost" are checked by finding a seed that loses it.

mod data;
mod names;

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

const SEEDS: u64 = 300;

fn p(path: &str) -> &Path {
    Path::new(path)
}

fn create(fs: &MemoryFs, path: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = fs.open(p(path), OpenMode::CreateNew).unwrap();
    file.write_at(bytes, 0).unwrap();
    file
}

/// A file whose bytes and name are durable.
fn create_durable(fs: &MemoryFs, path: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = create(fs, path, bytes);
    file.sync_data().unwrap();
    fs.sync_directory(p("/")).unwrap();
    file
}

/// Everything that `look` sees after power losses with many seeds.
fn outcomes<T: Ord>(fs: &MemoryFs, look: impl Fn(&MemoryFs) -> T) -> BTreeSet<T> {
    (0..SEEDS)
        .map(|seed| {
            let fork = fs.fork();
            fork.power_loss(seed);
            look(&fork)
        })
        .collect()
}

fn file_names(fs: &MemoryFs) -> Vec<String> {
    fs.files().iter().map(|path| path.display().to_string()).collect()
}

#[test]
fn a_killed_process_leaves_every_write_and_store() {
    let fs = MemoryFs::new();
    let file = create(&fs, "/a", &[0; 8192]);
    let mapping = fs.map(p("/a"), 8192).unwrap().unwrap();
    file.write_at(b"written", 10).unwrap();
    mapping.write(5000, b"stored");
    mapping.store_u64(16, 7);
    let boot = fs.boot_id();
    fs.process_kill();
    let bytes = fs.contents(p("/a")).unwrap();
    assert_eq!(&bytes[10..16], b"writte");
    assert_eq!(&bytes[5000..5006], b"stored");
    assert_eq!(bytes[16..24], 7u64.to_le_bytes());
    assert_eq!(fs.boot_id(), boot, "the machine still runs");
}

#[test]
fn what_a_killed_process_held_is_dead() {
    let fs = MemoryFs::new();
    let file = create(&fs, "/a", &[1; 4096]);
    let mapping = fs.map(p("/a"), 4096).unwrap().unwrap();
    let lock = fs.lock(p("/LOCK")).unwrap();
    fs.process_kill();
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.read_at(&mut [0], 0).is_err());
    assert!(file.sync_data().is_err() && file.len().is_err() && file.set_len(0).is_err());
    mapping.write(0, b"ghost");
    assert_eq!(mapping.load_u64(0), 0);
    assert_eq!(fs.contents(p("/a")).unwrap(), vec![1; 4096]);
    let second = fs.lock(p("/LOCK")).unwrap();
    drop(lock);
    assert!(fs.lock(p("/LOCK")).is_err(), "a dead process must not release its successor's lock");
    drop(second);
    assert_eq!(fs.open_handles(), 0);
}

#[test]
fn a_killed_process_cannot_touch_names_either() {
    let machine = MemoryFs::new();
    let (first, other) = (machine.process(), machine.process());
    create(&first, "/a", b"1");
    let kept = create(&other, "/b", b"2");
    first.process_kill();
    assert!(first.remove_file(p("/a")).is_err());
    assert!(first.open(p("/a"), OpenMode::Read).is_err());
    kept.write_at(b"3", 0).unwrap();
    machine.power_loss(1);
    assert!(kept.write_at(b"4", 0).is_err() && other.exists(p("/")).is_err());
    assert!(machine.exists(p("/")).unwrap());
}

#[test]
fn a_power_loss_may_take_or_keep_everything_at_once() {
    let fs = MemoryFs::new();
    let paths: Vec<String> = (0..10).map(|i| format!("/f{i}")).collect();
    let files: Vec<_> = paths.iter().map(|path| create_durable(&fs, path, &[1; 5000])).collect();
    files.iter().for_each(|file| file.write_at(&[2; 9000], 0).unwrap());
    (0..10).for_each(|i| drop(create(&fs, &format!("/new{i}"), b"bytes")));
    let everything =
        |fs: &MemoryFs| -> Vec<_> { fs.files().iter().map(|path| fs.contents(path).unwrap()).collect() };
    let seen = outcomes(&fs, everything);
    assert!(seen.contains(&vec![vec![1; 5000]; 10]), "everything is lost");
    assert!(seen.contains(&everything(&fs)), "everything is kept");
}

#[test]
fn a_power_loss_is_a_function_of_calls_and_seed_and_changes_the_boot_id() {
    let run = |seed| {
        let fs = MemoryFs::new();
        for i in 0..20u8 {
            let file = create(&fs, &format!("/f{i}"), &vec![i; 5000]);
            file.write_at(&[0xee; 600], u64::from(i) * 100).unwrap();
        }
        let boot = fs.boot_id();
        fs.power_loss(seed);
        assert_ne!(fs.boot_id(), boot);
        let contents: Vec<_> =
            fs.files().iter().map(|path| (path.clone(), fs.contents(path).unwrap())).collect();
        (fs.boot_id(), contents)
    };
    for seed in 0..50 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(2), run(3));
}

#[test]
fn a_fork_is_independent_and_keeps_what_is_not_durable_apart() {
    let fs = MemoryFs::new();
    let file = create_durable(&fs, "/a", &[1; 4096]);
    file.write_at(&[2; 4096], 0).unwrap();
    let lock = fs.lock(p("/LOCK")).unwrap();
    let fork = fs.fork();
    file.sync_data().unwrap();
    file.write_at(&[3; 4096], 0).unwrap();
    assert_eq!(fork.contents(p("/a")).unwrap(), vec![2; 4096]);
    let seen = outcomes(&fork, |fs| fs.contents(p("/a")).unwrap()[0]);
    assert_eq!(seen, BTreeSet::from([1, 2]), "the sync came after the fork");
    fork.lock(p("/LOCK")).unwrap();
    fork.remove_file(p("/a")).unwrap();
    assert!(fs.exists(p("/a")).unwrap());
    drop(lock);
}

#[test]
fn damage_comes_back_after_any_crash() {
    let fs = MemoryFs::new();
    let file = create_durable(&fs, "/a", &[0; 9000]);
    file.write_at(&[1; 9000], 0).unwrap();
    fs.patch(p("/a"), 4090, &[0xdd; 10]).unwrap();
    fs.patch(p("/a"), 8999, &[0xdd; 10]).unwrap();
    for bytes in outcomes(&fs, |fs| fs.contents(p("/a")).unwrap()) {
        assert_eq!((&bytes[4090..4100], bytes.len(), bytes[8999]), (&[0xdd; 10][..], 9000, 0xdd));
    }
    fs.patch_len(p("/a"), 5).unwrap();
    assert_eq!(outcomes(&fs, |fs| fs.contents(p("/a")).unwrap().len()), BTreeSet::from([5]));
}
