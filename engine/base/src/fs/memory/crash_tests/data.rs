//! What a power loss keeps of the bytes and the size of a file.

use super::*;

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
fn after_a_failed_sync_a_later_sync_does_not_cover_the_lost_pages() {
    let fs = MemoryFs::new();
    create_durable(&fs, "/a", &[0; 8192]);
    let file = fs.open_file(p("/a"), OpenMode::ReadWrite).unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    file.forget_dirty(false).unwrap();
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
fn after_a_failed_sync_a_later_sync_covers_the_lost_size_only_if_something_was_written() {
    let fs = MemoryFs::new();
    create_durable(&fs, "/a", b"12345");
    let file = fs.open_file(p("/a"), OpenMode::ReadWrite).unwrap();
    file.write_at(b"67890", 5).unwrap();
    file.forget_dirty(false).unwrap();
    file.sync_data().unwrap();
    let len = |fs: &MemoryFs| fs.contents(p("/a")).unwrap().len();
    assert_eq!(outcomes(&fs, len), BTreeSet::from([5, 10]));
    file.write_at(b"0", 9).unwrap();
    file.sync_data().unwrap();
    assert_eq!(outcomes(&fs, |fs| fs.contents(p("/a")).unwrap()), BTreeSet::from([b"1234567890".to_vec()]));
}

#[test]
fn after_a_failed_sync_lost_pages_may_be_evicted_and_read_as_they_were() {
    let fs = MemoryFs::new();
    create_durable(&fs, "/a", &[0; 8192]);
    let file = fs.open_file(p("/a"), OpenMode::ReadWrite).unwrap();
    file.write_at(&[1; 4096], 0).unwrap();
    file.forget_dirty(true).unwrap();
    assert_eq!(fs.contents(p("/a")).unwrap(), [0; 8192]);
    assert_eq!(
        outcomes(&fs, |fs| fs.contents(p("/a")).unwrap()[0]),
        BTreeSet::from([0, 1]),
        "parts may be on disk"
    );
    file.write_at(&[2; 10], 0).unwrap();
    file.sync_data().unwrap();
    let expected = [vec![2; 10], vec![0; 8182]].concat();
    assert_eq!(outcomes(&fs, |fs| fs.contents(p("/a")).unwrap()), BTreeSet::from([expected]));
}

#[test]
fn rewriting_a_partly_filled_page_keeps_what_was_synced_in_it() {
    let fs = MemoryFs::new();
    let mut page = vec![1; 700];
    page.resize(4096, 0);
    let file = create_durable(&fs, "/segment", &page);
    for fill in 2..6 {
        page[usize::from(fill) * 350..][..350].fill(fill);
        file.write_at(&page, 0).unwrap();
    }
    let seen = outcomes(&fs, |fs| fs.contents(p("/segment")).unwrap());
    assert!(seen.iter().all(|bytes| bytes[..700] == [1; 700]));
    assert!(
        seen.iter().any(|bytes| bytes[1023] != bytes[1024] && bytes[1024] == 0),
        "the new part may be torn"
    );
}

#[test]
fn a_recycled_file_shows_old_and_new_bytes_side_by_side() {
    let fs = MemoryFs::new();
    drop(create_durable(&fs, "/1.log", &[1; 8192]));
    fs.rename(p("/1.log"), p("/9.log")).unwrap();
    fs.sync_directory(p("/")).unwrap();
    let file = fs.open(p("/9.log"), OpenMode::ReadWrite).unwrap();
    file.write_at(&[9; 8192], 0).unwrap();
    for bytes in outcomes(&fs, |fs| fs.contents(p("/9.log")).unwrap()) {
        assert_eq!(bytes.len(), 8192, "the size was durable before");
        assert!(bytes.chunks(512).all(|sector| sector == [1; 512] || sector == [9; 512]));
    }
    let mixed = |bytes: &Vec<u8>| bytes.contains(&1) && bytes.contains(&9);
    assert!(outcomes(&fs, |fs| fs.contents(p("/9.log")).unwrap()).iter().any(mixed));
}

#[test]
fn the_durable_version_may_come_back_after_any_number_of_writes() {
    let fs = MemoryFs::new();
    let file = create_durable(&fs, "/a", &[0; 512]);
    (1..=100).for_each(|version| file.write_at(&[version; 512], 0).unwrap());
    let seen = outcomes(&fs, |fs| fs.contents(p("/a")).unwrap()[0]);
    assert!(seen.contains(&0) && seen.contains(&100), "{seen:?}");
    assert!(seen.iter().any(|version| (1..90).contains(version)), "versions in between: {seen:?}");
}
