//! What a power loss keeps of the changes of names.

use proptest::prelude::*;

use super::*;
use crate::fs::{read_file, replace_file};

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
