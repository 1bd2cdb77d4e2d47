//! What each crash keeps. Properties of the form "may be lost" are checked by finding a seed that loses it.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::fs::{read_file, replace_file};

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
fn synced_bytes_survive_any_power_loss() {
    let fs = MemoryFs::new();
    let bytes: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
    let file = create_durable(&fs, "/a", &bytes);
    file.write_at(&[0xff; 3000], 9000).unwrap();
    for seed in 0..SEEDS {
        let fork = fs.fork();
        fork.power_loss(seed);
        let after = fork.contents(p("/a")).unwrap();
        assert_eq!(after.len(), bytes.len());
        assert_eq!(after[..8704], bytes[..8704], "sectors before the write");
        assert_eq!(after[12_288..], bytes[12_288..], "sectors behind the write");
    }
}

#[test]
fn unsynced_writes_are_kept_dropped_reordered_and_torn_by_sector() {
    let fs = MemoryFs::new();
    let file = create_durable(&fs, "/a", &[0; 8192]);
    file.write_at(&[1; 4096], 0).unwrap();
    file.write_at(&[2; 4096], 4096).unwrap();
    let seen = outcomes(&fs, |fs| {
        let bytes = fs.contents(p("/a")).unwrap();
        bytes
            .chunks(512)
            .for_each(|sector| assert!(sector.iter().all(|&byte| byte == sector[0]), "torn sector"));
        bytes.chunks(512).map(|sector| sector[0]).collect::<Vec<u8>>()
    });
    let all = |first: u8, second: u8| [[first; 8], [second; 8]].concat();
    assert!(seen.contains(&all(1, 2)), "kept");
    assert!(seen.contains(&all(0, 0)), "dropped");
    assert!(seen.contains(&all(0, 2)), "the second without the first");
    assert!(seen.iter().any(|sectors| sectors[..8].contains(&0) && sectors[..8].contains(&1)), "torn");
    assert!(seen.iter().flatten().all(|&byte| byte <= 2));
}

#[test]
fn a_page_rewritten_since_the_sync_may_come_back_in_any_version() {
    let fs = MemoryFs::new();
    let file = create_durable(&fs, "/a", &[0; 4096]);
    let mapping = fs.map(p("/a"), 4096).unwrap().unwrap();
    mapping.write(0, &[1; 512]);
    file.write_at(&[2; 512], 0).unwrap();
    mapping.write(0, &[3; 512]);
    let first_byte = |fs: &MemoryFs| fs.contents(p("/a")).unwrap()[0];
    assert_eq!(outcomes(&fs, first_byte), BTreeSet::from([0, 1, 2, 3]));
    file.sync_data().unwrap();
    assert_eq!(outcomes(&fs, first_byte), BTreeSet::from([3]), "a sync of the file covers mapped pages");
}

#[test]
fn a_mapped_word_is_never_torn() {
    let fs = MemoryFs::new();
    create_durable(&fs, "/a", &[0; 4096]);
    let mapping = fs.map(p("/a"), 4096).unwrap().unwrap();
    (1..=200u64).for_each(|i| mapping.store_u64(512 * (i as usize % 8), i * 0x0101_0101));
    for word in outcomes(&fs, |fs| fs.contents(p("/a")).unwrap()[512..520].to_vec()) {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        assert!(word.is_multiple_of(0x0101_0101) && (word == 0 || word / 0x0101_0101 % 8 == 1), "{word:x}");
    }
}

#[test]
fn an_unsynced_size_may_stay_or_not_and_new_bytes_are_zeros_or_written() {
    let fs = MemoryFs::new();
    let file = create_durable(&fs, "/a", &[7; 100]);
    file.write_at(&[8; 1000], 100).unwrap();
    let seen = outcomes(&fs, |fs| fs.contents(p("/a")).unwrap());
    let lens: BTreeSet<usize> = seen.iter().map(Vec::len).collect();
    assert_eq!(lens, BTreeSet::from([100, 1100]));
    assert!(seen.iter().any(|bytes| bytes.len() == 1100 && bytes[600] == 0), "size without data");
    assert!(seen.iter().all(|bytes| bytes[..100] == [7; 100]));
    assert!(seen.iter().flat_map(|bytes| &bytes[100..]).all(|&byte| byte == 0 || byte == 8));
}

#[test]
fn bytes_cut_off_read_as_zeros_when_the_file_grows_again_after_a_crash() {
    let fs = MemoryFs::new();
    let file = create_durable(&fs, "/a", &[7; 5000]);
    file.set_len(10).unwrap();
    file.sync_data().unwrap();
    file.write_at(&[9; 9000], 10).unwrap();
    for seed in 0..SEEDS {
        let fork = fs.fork();
        fork.power_loss(seed);
        let file = fork.open(p("/a"), OpenMode::ReadWrite).unwrap();
        let len = file.len().unwrap() as usize;
        file.set_len(20_000).unwrap();
        let bytes = fork.contents(p("/a")).unwrap();
        assert!(bytes[len..].iter().all(|&byte| byte == 0));
        assert!(!bytes[10..].contains(&7));
    }
}

#[test]
fn a_new_name_needs_its_directory_synced_and_its_data_needs_the_file_synced() {
    let fs = MemoryFs::new();
    create(&fs, "/data-only", b"bytes").sync_data().unwrap();
    let seen = outcomes(&fs, |fs| fs.contents(p("/data-only")).ok());
    assert_eq!(
        seen,
        BTreeSet::from([None, Some(b"bytes".to_vec())]),
        "a synced file may vanish with its name"
    );

    let fs = MemoryFs::new();
    create(&fs, "/name-only", b"bytes");
    fs.sync_directory(p("/")).unwrap();
    let seen = outcomes(&fs, |fs| fs.contents(p("/name-only")).unwrap());
    assert_eq!(seen, BTreeSet::from([vec![], vec![0; 5], b"bytes".to_vec()]));
}

#[test]
fn names_are_kept_or_dropped_one_by_one() {
    let fs = MemoryFs::new();
    create_durable(&fs, "/old", b"");
    fs.remove_file(p("/old")).unwrap();
    create(&fs, "/new", b"");
    fs.hard_link(p("/new"), p("/link")).unwrap();
    let seen = outcomes(&fs, file_names);
    assert_eq!(seen.len(), 8, "every subset of three independent changes: {seen:?}");
    fs.sync_directory(p("/")).unwrap();
    assert_eq!(outcomes(&fs, file_names), BTreeSet::from([vec!["/link".to_string(), "/new".into()]]));
}

#[test]
fn a_removed_file_may_come_back_whole() {
    let fs = MemoryFs::new();
    drop(create_durable(&fs, "/a", b"bytes"));
    fs.remove_file(p("/a")).unwrap();
    let seen = outcomes(&fs, |fs| fs.contents(p("/a")).ok());
    assert_eq!(seen, BTreeSet::from([None, Some(b"bytes".to_vec())]));
    fs.sync_directory(p("/")).unwrap();
    assert_eq!(outcomes(&fs, file_names), BTreeSet::from([vec![]]));
}

#[test]
fn a_rename_leaves_the_old_or_the_new_name() {
    let fs = MemoryFs::new();
    create_durable(&fs, "/a", b"bytes");
    fs.rename(p("/a"), p("/b")).unwrap();
    let one = |name: &str| vec![name.to_string()];
    assert_eq!(outcomes(&fs, file_names), BTreeSet::from([one("/a"), one("/b")]));
    fs.rename(p("/b"), p("/c")).unwrap();
    assert_eq!(outcomes(&fs, file_names), BTreeSet::from([one("/a"), one("/b"), one("/c")]));
}

#[test]
fn a_name_taken_again_after_a_rename_never_hides_the_renamed_file() {
    let fs = MemoryFs::new();
    create_durable(&fs, "/log", b"old");
    fs.rename(p("/log"), p("/log.old")).unwrap();
    create(&fs, "/log", b"").sync_data().unwrap();
    fs.remove_file(p("/log")).unwrap();
    create(&fs, "/tmp", b"new").sync_data().unwrap();
    fs.rename(p("/tmp"), p("/log")).unwrap();
    let seen = outcomes(&fs, |fs| {
        let (log, old) = (fs.contents(p("/log")).ok(), fs.contents(p("/log.old")).ok());
        assert_ne!(log.as_deref() == Some(b"old"), old.is_some(), "{log:?} {old:?}");
        log
    });
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn a_rename_between_directories_is_atomic_and_either_sync_fixes_it() {
    for synced in ["/x", "/y"] {
        let fs = MemoryFs::new();
        fs.create_directory_all(p("/x")).unwrap();
        fs.create_directory_all(p("/y")).unwrap();
        fs.sync_directory(p("/")).unwrap();
        create(&fs, "/x/a", b"bytes").sync_data().unwrap();
        fs.rename(p("/x/a"), p("/y/b")).unwrap();
        assert!(outcomes(&fs, file_names).len() == 3);
        fs.sync_directory(p(synced)).unwrap();
        assert_eq!(outcomes(&fs, file_names), BTreeSet::from([vec!["/y/b".to_string()]]), "{synced}");
    }
}

#[test]
fn an_unsynced_directory_may_vanish_with_all_that_is_in_it() {
    let fs = MemoryFs::new();
    fs.create_directory_all(p("/x/y")).unwrap();
    create(&fs, "/x/y/a", b"bytes").sync_data().unwrap();
    fs.sync_directory(p("/x/y")).unwrap();
    fs.sync_directory(p("/x")).unwrap();
    let seen = outcomes(&fs, file_names);
    assert_eq!(seen, BTreeSet::from([vec![], vec!["/x/y/a".to_string()]]));
    fs.sync_directory(p("/")).unwrap();
    assert_eq!(outcomes(&fs, file_names), BTreeSet::from([vec!["/x/y/a".to_string()]]));
}

#[test]
fn replace_file_leaves_the_old_or_the_new_content() {
    let fs = MemoryFs::new();
    replace_file(&fs, p("/CURRENT"), b"one").unwrap();
    let before = fs.fork();
    replace_file(&before, p("/CURRENT"), b"two").unwrap();
    assert_eq!(
        outcomes(&before, |fs| read_file(fs, p("/CURRENT"), 9).unwrap()),
        BTreeSet::from([b"two".to_vec()])
    );
    // The same steps, without the last sync.
    let file = create(&fs, "/CURRENT.tmp", b"two");
    file.sync_data().unwrap();
    fs.rename(p("/CURRENT.tmp"), p("/CURRENT")).unwrap();
    let seen = outcomes(&fs, |fs| read_file(fs, p("/CURRENT"), 9).unwrap());
    assert_eq!(seen, BTreeSet::from([b"one".to_vec(), b"two".to_vec()]));
}

#[test]
fn after_a_failed_sync_a_later_sync_does_not_cover_the_lost_pages() {
    let fs = MemoryFs::new();
    create_durable(&fs, "/a", &[0; 8192]);
    let file = fs.open_file(p("/a"), OpenMode::ReadWrite).unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    file.forget_dirty().unwrap();
    file.write_at(&[2; 10], 4096).unwrap();
    file.sync_data().unwrap();
    assert_eq!(fs.contents(p("/a")).unwrap()[..4096], [1; 4096], "reads still see what was written");
    let seen = outcomes(&fs, |fs| {
        let bytes = fs.contents(p("/a")).unwrap();
        assert_eq!(bytes[4096..4106], [2; 10]);
        assert_eq!(bytes[4106..], [1; 4086], "a page written again is written back as a whole");
        bytes[0]
    });
    assert_eq!(seen, BTreeSet::from([0, 1]));
    file.write_at(&[1], 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(outcomes(&fs, |fs| fs.contents(p("/a")).unwrap()[0]), BTreeSet::from([1]));
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

proptest! {
    /// Whatever is renamed, no file is lost: each is found under a name that it had.
    #[test]
    fn renames_never_lose_a_file(moves in prop::collection::vec((0usize..6, 0usize..6), 1..12), seed: u64) {
        let fs = MemoryFs::new();
        let names = ["/a", "/b", "/c", "/x", "/y", "/z"];
        names[..3].iter().for_each(|name| drop(create_durable(&fs, name, name.as_bytes())));
        for (from, to) in moves {
            if fs.exists(p(names[from])).unwrap() && !fs.exists(p(names[to])).unwrap() {
                fs.rename(p(names[from]), p(names[to])).unwrap();
            }
        }
        fs.power_loss(seed);
        let mut found: Vec<_> = fs.files().iter().map(|path| fs.contents(path).unwrap()).collect();
        found.sort();
        prop_assert_eq!(found, vec![b"/a".to_vec(), b"/b".to_vec(), b"/c".to_vec()]);
    }
}
