//! A valid block in the wrong place is damage like any other.
#![expect(clippy::unwrap_used, reason = "a test says where it fails")]

mod common;

use std::sync::Arc;

use alluvium_base::fs::{Fs, OpenMode};
use alluvium_sstable::{
    BlockInfo, BlockKind, Compression, Fixed, KeyspaceSettings, ReadPurpose, TableWriter,
};
use common::*;

const SETTINGS: KeyspaceSettings = KeyspaceSettings {
    compression: Compression::None,
    block_bytes: 512,
    filter_bits_per_key: 10,
    prefix_bytes: None,
};

fn entries() -> Vec<Entry> {
    (0..500u64).map(|n| (full_key(1, &n.to_be_bytes()), put(5), n.to_le_bytes().to_vec())).collect()
}

fn data_blocks(file: &TableFile) -> Vec<BlockInfo> {
    let table = file.open(&cache(1 << 20)).unwrap();
    table.blocks().map(Result::unwrap).filter(|block| block.kind == BlockKind::Data).collect()
}

fn bytes_of(file: &TableFile, block: &BlockInfo) -> Vec<u8> {
    file.bytes()[block.offset as usize..(block.offset + block.stored_bytes) as usize].to_vec()
}

fn assert_corrupt(file: &TableFile, at: u64) {
    let table = file.open(&cache(1 << 20)).unwrap();
    for purpose in [ReadPurpose::Scan, ReadPurpose::Compaction] {
        let error = forward(&mut table.iter(purpose)).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains(&format!("byte {at}:")), "{error}");
    }
    assert!(table.verify().unwrap_err().is_corrupt());
}

#[test]
fn exchanged_blocks_are_found() {
    let file = write_fixed(SETTINGS, &entries());
    let blocks = data_blocks(&file);
    let (first, second) = (&blocks[3], &blocks[7]);
    assert_eq!(first.stored_bytes, second.stored_bytes);
    let (first_bytes, second_bytes) = (bytes_of(&file, first), bytes_of(&file, second));
    file.fs.patch(&file.path, first.offset, &second_bytes).unwrap();
    assert_corrupt(&file, first.offset);
    file.fs.patch(&file.path, second.offset, &first_bytes).unwrap();
    assert_corrupt(&file, first.offset);
    file.fs.patch(&file.path, first.offset, &first_bytes).unwrap();
    assert_corrupt(&file, second.offset);
}

#[test]
fn a_block_of_another_table_is_found() {
    let file = write_fixed(SETTINGS, &entries());
    let path = std::path::Path::new("/db/other.sst");
    let other = file.fs.open(path, OpenMode::CreateNew).unwrap();
    let mut writer = TableWriter::new(other, IDENTITY + 1, Arc::new(Fixed(SETTINGS)));
    for (key, trailer, _) in entries() {
        writer.add(&key, trailer, b"12345678").unwrap();
    }
    writer.finish().unwrap();
    let block = &data_blocks(&file)[4];
    let range = block.offset as usize..(block.offset + block.stored_bytes) as usize;
    file.fs.patch(&file.path, block.offset, &file.fs.contents(path).unwrap()[range]).unwrap();
    assert_corrupt(&file, block.offset);
}

#[test]
fn another_table_under_this_name_is_refused() {
    let mut file = write_fixed(SETTINGS, &entries());
    assert!(file.open(&cache(0)).is_ok());
    let error = file.open_as(&cache(0), IDENTITY ^ 1).unwrap_err();
    assert!(error.is_corrupt(), "{error}");
    file.summary.bytes += 1;
    assert!(file.open(&cache(0)).unwrap_err().is_corrupt());
}
